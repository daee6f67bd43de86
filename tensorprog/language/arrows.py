"""Directed graphs, as the nodes to which arrows lead from each: what leads to each other both ways, and an order.

And graphs without directions: what is connected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import Any, TypeVar

Node = TypeVar("Node")
Key = TypeVar("Key")


def components(after: Mapping[Node, Collection[Node]]) -> list[tuple[Node, ...]]:
    """Nodes that lead to each other both ways, together; each group comes before those that lead to it.

    Source    Kosaraju; Sharir 1981
    """
    leading = grouped((other, node) for node, others in after.items() for other in others)
    before = {node: leading.get(node, []) for node in after}
    seen, closed = set[Node](), set[Node]()
    order = [node for root in after for node in _followed(before, root, seen)]
    groups = (tuple(_followed(after, root, closed)) for root in reversed(order))
    return [group for group in groups if group]


def _followed(after: Mapping[Node, Collection[Node]], root: Node, seen: set[Node]) -> Iterator[Node]:
    """Nodes to which a root leads and that were not seen before, each after those to which it leads."""
    ways = [] if root in seen else [(root, iter(after[root]))]
    seen.add(root)
    while ways:
        node, rest = ways[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                ways.append((other, iter(after[other])))
                break
        else:
            ways.pop()
            yield node


def ordered(after: Mapping[Node, Collection[Node]], key: Callable[[Node], Any]) -> list[list[Node]]:
    """Groups as in `components`, each sorted, in an order along the arrows.

    Of groups that could come next, the one whose smallest `key` is the smallest does; keys differ.
    """
    groups, sorter = components(after), TopologicalSorter[int]()
    group_of = {node: k for k, group in enumerate(groups) for node in group}
    for k, group in enumerate(groups):
        sorter.add(k)
        for other in {group_of[other] for node in group for other in after[node]} - {k}:
            sorter.add(other, k)
    sorter.prepare()
    waiting, result = list[tuple[Any, int]](), list[list[Node]]()
    while sorter.is_active():
        for k in sorter.get_ready():
            heappush(waiting, (min(map(key, groups[k])), k))
        _, k = heappop(waiting)
        result.append(sorted(groups[k], key=key))
        sorter.done(k)
    return result


def reached(after: Callable[[Node], Iterable[Node]], starts: Iterable[Node]) -> frozenset[Node]:
    """Some nodes and all to which they lead."""
    waiting = list(starts)
    found = set(waiting)
    while waiting:
        new = set(after(waiting.pop())) - found
        found |= new
        waiting += new
    return frozenset(found)


def acyclic(after: Mapping[Node, Collection[Node]]) -> bool:
    """Whether no node leads to itself, directly or through others."""
    known = {node: [other for other in others if other in after] for node, others in after.items()}
    return len(components(known)) == len(known) and not any(node in others for node, others in known.items())


def grouped(pairs: Iterable[tuple[Key, Node]]) -> dict[Key, list[Node]]:
    """What belongs to each key, in the order given."""
    found: dict[Key, list[Node]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


def connected(items: Iterable[Node], tied: Callable[[Node, Node], bool]) -> list[list[Node]]:
    """Items in groups such that none is tied to one of another group; `tied` takes the earlier one first."""
    groups: list[list[Node]] = []
    for item in items:
        met = [group for group in groups if any(tied(other, item) for other in group)]
        groups = [group for group in groups if not any(group is one for one in met)]
        groups.append([*(other for group in met for other in group), item])
    return groups

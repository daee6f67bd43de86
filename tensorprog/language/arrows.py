"""Directed graphs, as the nodes to which arrows lead from each: what leads to each other both ways, and an order.

And graphs without directions: what is connected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

Node = TypeVar("Node")


def components(after: Mapping[Node, Collection[Node]]) -> list[tuple[Node, ...]]:
    """Nodes that lead to each other both ways, together; each group comes before those that lead to it.

    Source    Tarjan 1972
    """
    number: dict[Node, int] = {}  # in the order in which nodes are met
    low: dict[Node, int] = {}  # the earliest node on the stack that is known to be reached
    stack: list[Node] = []
    closed: set[Node] = set()
    found: list[tuple[Node, ...]] = []
    ways: list[tuple[Node, Iterator[Node]]] = []

    def enter(node: Node) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        ways.append((node, iter(after[node])))

    for root in after:
        if root not in number:
            enter(root)
        while ways:
            node, rest = ways[-1]
            for other in rest:
                if other not in number:
                    enter(other)
                    break
                if other not in closed:
                    low[node] = min(low[node], number[other])
            else:
                ways.pop()
                if ways:
                    low[ways[-1][0]] = min(low[ways[-1][0]], low[node])
                if low[node] == number[node]:
                    place = len(stack) - 1
                    while stack[place] != node:
                        place -= 1
                    found.append(tuple(stack[place:]))
                    closed.update(stack[place:])
                    del stack[place:]
    return found


def ordered(after: Mapping[Node, Collection[Node]], key: Callable[[Node], Any]) -> list[list[Node]]:
    """Groups as in `components`, each sorted, in an order along the arrows.

    Of groups that could come next, the one whose smallest `key` is the smallest does; keys differ.
    """
    groups = components(after)
    group_of = {node: k for k, group in enumerate(groups) for node in group}
    later = [{group_of[other] for node in group for other in after[node]} - {k} for k, group in enumerate(groups)]
    missing = [0] * len(groups)
    for others in later:
        for other in others:
            missing[other] += 1
    first = [min(map(key, group)) for group in groups]
    waiting = [(first[k], k) for k, count in enumerate(missing) if not count]
    heapify(waiting)
    result = []
    while waiting:
        _, k = heappop(waiting)
        result.append(sorted(groups[k], key=key))
        for other in later[k]:
            missing[other] -= 1
            if not missing[other]:
                heappush(waiting, (first[other], other))
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


def connected(items: Iterable[Node], tied: Callable[[Node, Node], bool]) -> list[list[Node]]:
    """Items in groups such that none is tied to one of another group; `tied` takes the earlier one first."""
    groups: list[list[Node]] = []
    for item in items:
        met = [group for group in groups if any(tied(other, item) for other in group)]
        groups = [group for group in groups if not any(group is one for one in met)]
        groups.append([*(other for group in met for other in group), item])
    return groups

"""The networkx view: one node per initial vector, weight and statement; a family of a million members is one node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import networkx as nx

from tensorprog.check.graph.roles import roles
from tensorprog.check.graph.structure import Structure
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Weight

__all__ = ["between", "build", "ways"]


def _family(name: str, indices: Sequence[str]) -> str:
    return f"{name}[{','.join(indices)}]" if indices else name


def build(netsor: Netsor) -> Any:
    """Return a networkx MultiDiGraph of initial vectors, weights and statements.

    Shapes    nodes: `x[i]` as written on the left, attributes kind, name, text, indices, position (-1: declared),
              line, roles; edges from what is read to what reads it, attribute role: weight, vector, left, right or
              argument
    """
    graph = nx.MultiDiGraph(name=netsor.name)
    structure = Structure(netsor)
    found = roles(structure)
    nodes: dict[str, str] = {}
    declared: list[tuple[Initial | Weight, str]] = [(entry, "initial") for entry in netsor.initial]
    declared += [(entry, "weight") for entry in netsor.weights]
    for entry, kind in declared:
        node = nodes[entry.name] = _family(entry.name, entry.indices)
        graph.add_node(
            node, kind=kind, name=entry.name, text=node, indices=entry.indices, position=-1, line=entry.span.line,
            roles=found[entry.name],
        )
    for position, statement in enumerate(netsor.body):
        graph.add_node(
            str(statement.target),
            kind=type(statement).__name__,
            name=statement.target.name,
            text=str(statement),
            indices=tuple(s.bare for s in statement.target.slots if s.bare),
            position=position,
            line=statement.span.line,
            roles=found[position],
        )
    for position, statement in enumerate(netsor.body):
        target = str(statement.target)
        if isinstance(statement, MatMul):
            graph.add_edge(nodes[statement.weight.name], target, role="weight")
            reads = [("vector", statement.vector)]
        elif isinstance(statement, Dot):
            reads = [("left", statement.left), ("right", statement.right)]
        else:
            reads = [("argument", reference) for reference in statement.inputs]
        seen = set()
        for part, reference in reads:
            sources = (
                [nodes[reference.name]]
                if reference.name in nodes
                else [str(netsor.body[d].target) for d in structure.definers(position, reference)]
            )
            for source in sources:
                if (source, part) not in seen:
                    graph.add_edge(source, target, role=part)
                    seen.add((source, part))
    return graph


def ways(graph: Any, stations: Sequence[str]) -> list[list[str]]:
    """Nodes in a row, with a shortest way in front of each that the one before leads to; else a new row begins."""
    found = [[stations[0]]]
    for start, end in pairwise(stations):
        if start == end:
            continue
        if nx.has_path(graph, start, end):
            found[-1] += nx.shortest_path(graph, start, end)[1:]
        else:
            found.append([end])
    return found


def between(graph: Any, stations: Sequence[str]) -> Iterator[str]:
    """Nodes in a row, with all that lie on a shortest way from one to the next."""
    yield from stations
    for start, end in pairwise(stations):
        if not graph.has_edge(start, end) and nx.has_path(graph, start, end):
            after = nx.single_source_shortest_path_length(graph, start)
            before = nx.single_source_shortest_path_length(graph.reverse(copy=False), end)
            yield from (node for node in after if after[node] + before.get(node, len(graph)) == after[end])

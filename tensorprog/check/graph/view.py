"""The networkx view: one node per initial vector, weight and statement, with the part that it plays in Assumption 1.

A family of a million members is one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import networkx as nx

from tensorprog.check.graph.structure import Structure
from tensorprog.language.expr import Variable
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Nonlin, Weight

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


def roles(structure: Structure) -> dict[str | int, tuple[str, ...]]:
    """The roles of declared names and of positions of statements, the most telling first.

    initial     an initial vector                       score    n**-0.5 times a product of two operands
    weight      a matrix that makes no operand          average  1/n times a product
    dedicated   W^{i,j}: makes an operand of a score    output   h^j = phi^j(g; p)
    G-var       a MatMul output g                       later    a MatMul of a vector that depends on scores
    operand     W^{i,j} x^{i,j}, or a sum of such       phi      a Nonlin that is none of these
    input       x^{i,j}, what W^{i,j} multiplies        unused   no output depends on it

    Scale     independent of the sizes of families
    Source    Sakai et al. 2025, Assumption 1
    """
    netsor = structure.netsor
    standing = _standing_in_scores(structure)
    makers = [(p, s) for p in standing if isinstance(p, int) and isinstance(s := netsor.body[p], MatMul)]
    inputs = {source for position, maker in makers for source in _sources(structure, position, maker.vector)}
    dedicated = {maker.weight.name for _, maker in makers}
    read = {p.name for position in structure.relevant for p in netsor.body[position].inputs}
    used = {s.weight.name for p in structure.relevant if isinstance(s := netsor.body[p], MatMul)}
    found: dict[str | int, tuple[str, ...]] = {}
    for initial in netsor.initial:
        stands = ("input",) * (initial.name in inputs) + ("operand",) * (initial.name in standing)
        found[initial.name] = ("initial", *stands) if initial.name in {*read, *netsor.outputs} else ("unused",)
    for weight in netsor.weights:
        role = "dedicated" if weight.name in dedicated else "weight"
        found[weight.name] = (role,) if weight.name in used else ("unused",)
    for position, statement in enumerate(netsor.body):
        own = list(_own(structure, position, position in standing))
        if position in inputs:
            own.insert(1 if own[0] == "operand" else 0, "input")
        if statement.target.name in netsor.outputs:
            own.insert(0, "output")
        if len(own) > 1 and "phi" in own:
            own.remove("phi")
        found[position] = tuple(own) if position in structure.relevant else ("unused",)
    return found


def _own(structure: Structure, position: int, stands: bool) -> Iterator[str]:
    """Roles that a statement has by what it is."""
    statement = structure.netsor.body[position]
    if stands:
        yield "operand"
    if isinstance(statement, Dot):
        yield "score" if statement.scale == "n**-0.5" else "average"
    elif isinstance(statement, MatMul) and _behind(structure, position):
        yield "later"
    elif isinstance(statement, MatMul) and not stands:
        yield "G-var"
    elif isinstance(statement, Nonlin):
        yield "phi"


def _behind(structure: Structure, position: int) -> bool:
    """Whether what a MatMul multiplies depends on a score."""
    (vector,) = structure.netsor.body[position].inputs
    return any(d in structure.score_dependent for d in structure.definers(position, vector))


def _sources(structure: Structure, position: int, reference: Variable) -> tuple[str | int, ...]:
    """What a reference reads: an initial vector by name, or statements by position."""
    return (reference.name,) if reference.name in structure.initial else structure.definers(position, reference)


def _standing_in_scores(structure: Structure) -> set[str | int]:
    """What stands in a score, directly or as a vector of a Nonlin that does."""
    found: set[str | int] = set()
    stack: list[str | int] = [source for dot in structure.scores for reference in structure.netsor.body[dot].inputs
                              for source in _sources(structure, dot, reference)]
    while stack:
        source = stack.pop()
        statement = structure.netsor.body[source] if isinstance(source, int) else None
        if source in found or (statement and structure.netsor.families[statement.target.name].kind == "scalar"):
            continue
        found.add(source)
        if isinstance(source, int) and isinstance(statement, Nonlin):
            stack += [s for reference in statement.inputs for s in _sources(structure, source, reference)]
    return found

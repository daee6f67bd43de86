"""What each initial vector, weight and statement is in Assumption 1, read off the structure of the program alone."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.check.graph.structure import Structure
from tensorprog.language.expr import Variable
from tensorprog.language.ir import Dot, MatMul, Nonlin

__all__ = ["roles"]


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


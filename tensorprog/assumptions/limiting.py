"""What functions of averages need at the limits of the averages: to be finite there, and without a jump.

Source    Yang 2019 (arXiv 1910.12478), Netsor+: nonlinearities with parameters, and rank stability
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.assumptions.context import NOT_COVERED, Context
from tensorprog.assumptions.report import Finding
from tensorprog.atoms import ATOMS
from tensorprog.calculus.composition import COMPARISONS
from tensorprog.expr import Call, Expr, variables
from tensorprog.ir import Nonlin

__all__ = ["limiting_values"]

CONTINUED = ("divide", "where", "logical_and", "logical_or")  # what jumps in these is said of their parts


def limiting_values(check: Context) -> Iterator[Finding]:
    """Functions of averages are finite and continuous at their limits; vectors made with averages are not at a jump."""
    needed = {need: position for position in reversed([*check.sinks()])
              for need in check.calculus.statement(position).assumes}  # fmt: skip
    for (text, expr), position in reversed(needed.items()):  # each where it is met first
        wrong = _vanishes(check, position) if expr is None else check.numbers.singular(check.written, expr)
        if wrong:
            yield check.finding(
                "fails",
                (position,),
                f"it is needed that {text}, but {wrong}: no theorem gives a limit there",
                "keep it away from there, e.g. by a constant eps > 0 in the denominator or under the root",
                NOT_COVERED,
            )
        elif wrong is None:
            yield check.finding("warning", (position,), f"it is needed that {text}; that is not known")
    if check.converging and not check.scored:  # beside scores a function that jumps is refused already
        yield from _jumps(check)


def _vanishes(check: Context, position: int) -> str | None:
    """Whether a denominator of vectors, in a Nonlin or those that it reads, is 0 with some probability in the limit."""
    found: list[float | None] = []
    for at in sorted({position, *check.structure.ancestors(position)}):
        statement = check.netsor.body[at]
        for below, chosen in _denominators(statement.expr) if isinstance(statement, Nonlin) else ():
            if check.calculus.expression(below, at).low <= 0:
                probability = check.numbers.atom(check.netsor, below)
                if probability and not chosen:
                    return f"{below} is 0 with probability {probability:.3g} in the limit"
                found.append(None if probability else probability)  # another branch may stand there
    return None if None in found or not found else ""


def _denominators(node: Expr, chosen: bool = False) -> Iterator[tuple[Expr, bool]]:
    """What an expression divides by, and whether a condition decides if it does."""
    if isinstance(node, Call) and node.atom == "divide":
        yield node.args[1], chosen
    chosen = chosen or (isinstance(node, Call) and node.atom == "where")
    for child in node.children:
        yield from _denominators(child, chosen)


def _jumps(check: Context) -> Iterator[Finding]:
    """Functions that jump, of vectors whose laws have an atom there which the limits of averages may have made."""
    for position in sorted(check.structure.relevant):
        statement = check.netsor.body[position]
        if not isinstance(statement, Nonlin):
            continue
        for node, zero in dict(_edges(check, statement.expr, position)).items():
            if not _reads_averages(check, zero, position):
                continue
            probability = check.numbers.atom(check.netsor, zero)
            if probability == 0:
                continue
            known = "has an unknown probability" if probability is None else f"has probability {probability:.3g}"
            yield check.finding(
                "fails" if probability == 1 else "unknown",
                (position,),
                f"{node} jumps where {zero} is 0, which {known} in the limit: what is left of it at finite n decides "
                "there, and no theorem gives a limit",
                "a continuous function, e.g. tanh, or a vector that does not vanish",
                NOT_COVERED,
            )


def _edges(check: Context, node: Expr, position: int) -> Iterator[tuple[Expr, Expr]]:
    """The parts of an expression that jump, each with the expression at whose zeros it does."""
    inside = node.children
    if isinstance(node, Call):
        if node.atom in COMPARISONS:
            yield node, Call("subtract", node.args)
        elif node.atom == "where" and check.calculus.expression(node, position).rough is None:
            inside = node.args[1:]  # its branches agree where the condition changes
        elif node.atom not in CONTINUED and not ATOMS[node.atom].continuous:
            yield node, node.args[0]
    for child in inside:
        yield from _edges(check, child, position)


def _reads_averages(check: Context, expr: Expr, position: int) -> bool:
    """Whether an average over a growing width is in an expression, or in what makes its vectors, and not it alone."""
    definers = {d for v in variables(expr) for d in check.structure.definers(position, v)}
    above = definers.union(*map(check.structure.ancestors, definers))
    return not check.converging.isdisjoint(above) and check.calculus.expression(expr, position).depends != {"average"}

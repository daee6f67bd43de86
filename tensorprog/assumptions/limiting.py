"""What functions of averages need at the limits of the averages: to be finite there, and without a jump.

Source    Yang 2019 (arXiv 1910.12478), Netsor+: nonlinearities with parameters, and rank stability
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tensorprog.assumptions.context import NOT_COVERED, Context
from tensorprog.assumptions.report import Finding
from tensorprog.atoms import ATOMS
from tensorprog.calculus.composition import COMPARISONS
from tensorprog.expr import Call, Expr, Number, variables
from tensorprog.ir import Nonlin

__all__ = ["limiting_values"]

CONTINUED = ("divide", "where", "logical_and", "logical_or")  # what jumps in these is said of their parts

AWAY = "keep it away from there, e.g. by a constant eps > 0 in the denominator or under the root"
UNCLEAR = "that is not known"

Used = Callable[[Expr], Expr]


def limiting_values(check: Context) -> Iterator[Finding]:
    """Functions of averages are finite and continuous at their limits; vectors made with averages are not at a jump."""
    needed: dict[tuple[str, Expr | None], list[int]] = {}
    for position in check.sinks():
        for need in check.calculus.statement(position).assumes:
            needed.setdefault(need, []).append(position)
    for (text, expr), positions in needed.items():
        position = positions[0]  # where it is met first
        if expr is None:
            yield from _vanishing(check, text, positions)
        elif wrong := check.numbers.singular(check.written, expr):
            yield _needed(check, position, text, wrong)
        elif wrong is None:
            yield _doubted(check, position, text, UNCLEAR)
    if check.converging and not check.scored:  # beside scores a function that jumps is refused already
        yield from _jumps(check)


def _needed(check: Context, position: int, text: str, wrong: str) -> Finding:
    return check.finding(
        "fails",
        (position,),
        f"it is needed that {text}, but {wrong}: no theorem gives a limit there",
        AWAY,
        NOT_COVERED,
    )


def _doubted(check: Context, position: int, text: str, doubt: str) -> Finding:
    return check.finding("unknown", (position,), f"it is needed that {text}; {doubt}", AWAY, NOT_COVERED)


def _vanishing(check: Context, text: str, positions: Sequence[int]) -> Iterator[Finding]:
    """The worst of the denominators of vectors, in some Nonlins or those that they read, that may be 0 in the limit."""
    doubts: list[str] = []
    for at in sorted({*positions}.union(*map(check.structure.ancestors, positions))):
        statement = check.netsor.body[at]
        for below, used in _denominators(statement.expr) if isinstance(statement, Nonlin) else ():
            probability = check.numbers.atom(check.netsor, below) if _reaches_zero(check, below, at) else 0.0
            hit = check.numbers.atom(check.netsor, used(below)) if probability else probability
            if hit:
                yield _needed(check, at, text, f"{below} is 0 with probability {hit:.3g} in the limit")
                return
            if probability and (hit is None or _reads_averages(check, below, at)):  # else as regular as Gaussian laws
                chance = f"{below} is 0 with probability {probability:.3g} in the limit"
                doubts.append(f"{chance}, and it is not known whether the branch stands there")
            elif probability is None:
                doubts.append(UNCLEAR)
    if doubts:
        yield _doubted(check, positions[0], text, doubts[0])


def _reaches_zero(check: Context, expr: Expr, position: int) -> bool:
    return check.calculus.expression(expr, position).low <= 0


def _denominators(node: Expr, used: Used = lambda below: below) -> Iterator[tuple[Expr, Used]]:
    """What an expression divides by, with the map that puts 1 in its place where a condition chooses another branch."""
    if isinstance(node, Call) and node.atom == "divide":
        yield node.args[1], used
    if isinstance(node, Call) and node.atom == "where" and variables(node.args[0]):
        condition, first, second = node.args
        yield from _denominators(condition, used)
        yield from _denominators(first, lambda below: used(Call("where", (condition, below, Number(1)))))
        yield from _denominators(second, lambda below: used(Call("where", (condition, Number(1), below))))
        return
    for child in node.children:
        yield from _denominators(child, used)


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

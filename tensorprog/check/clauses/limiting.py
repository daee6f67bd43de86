"""What functions of averages need at the limits of the averages: to be finite there, and without a jump.

Source    Yang 2019 (arXiv 1910.12478), Netsor+: nonlinearities with parameters, and rank stability
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tensorprog.check.clauses.context import NETSOR_PLUS, NOT_COVERED, Context, rule
from tensorprog.check.clauses.functions import away, continuous
from tensorprog.check.clauses.report import Finding, Fix, Replacement
from tensorprog.language.atoms import ATOMS
from tensorprog.language.expr import COMPARISONS, Call, Expr, Number, variables, walk
from tensorprog.language.ir import Nonlin

__all__ = ["limiting_values"]

CONTINUED = ("divide", "where", "logical_and", "logical_or")  # what jumps in these is said of their parts

AWAY = "keep it away from there"
SMOOTH = "a continuous function, or a vector that does not vanish"
FAR = 0.01  # stands for any distance from 0 of what is near 0 at finite n
UNCLEAR = "that is not known"

Used = Callable[[Expr], Expr]


@rule("limiting values", NETSOR_PLUS)
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
            yield _needed(check, position, text, wrong, _limit_fix(check, expr, positions))
        elif wrong is None:
            yield _doubted(check, position, text, UNCLEAR, _limit_fix(check, expr, positions))
    if check.converging and not check.scored:  # beside scores a function that jumps is refused already
        yield from _jumps(check)


def _needed(check: Context, position: int, text: str, wrong: str, fix: Fix) -> Finding:
    message = f"it is needed that {text}, but {wrong}: no theorem gives a limit there"
    return check.finding("fails", (position,), message, fix, NOT_COVERED)


def _doubted(check: Context, position: int, text: str, doubt: str, fix: Fix) -> Finding:
    return check.finding("unknown", (position,), f"it is needed that {text}; {doubt}", fix, NOT_COVERED)


def _limit_fix(check: Context, expr: Expr, positions: Sequence[int]) -> Fix:
    """What to write in place of the smallest part that is not finite and smooth at the limits of averages."""
    fault = next((n for n in _upwards(expr) if isinstance(n, Call) and check.numbers.singular(check.written, n)), expr)
    for at in sorted({*positions}.union(*map(check.structure.ancestors, positions))):
        statement = check.netsor.body[at]
        if not isinstance(statement, Nonlin):
            continue
        for node in walk(statement.expr):
            if isinstance(node, Call) and (node == fault or _divides(node, fault)):
                return _fix(check, AWAY, statement.expr, node, at)
    return Fix(AWAY)


def _upwards(expr: Expr) -> Iterator[Expr]:
    """The parts of an expression, each after its own parts."""
    for child in expr.children:
        yield from _upwards(child)
    yield expr


def _divides(node: Call, fault: Expr) -> bool:
    """Whether an expression divides by what another, 1 / .., says not to vanish."""
    return isinstance(fault, Call) and (node.atom, fault.atom) == ("divide", "divide") and node.args[1] == fault.args[1]


def _fix(check: Context, words: str, whole: Expr, node: Call, position: int) -> Fix:
    """What to write in place of a part of a statement that is not finite, or jumps."""

    def nonnegative(part: Expr) -> bool:
        return check.calculus.expression(part, position).low >= 0

    if node.atom in COMPARISONS:  # what is chosen by it
        chosen = (n for n in walk(whole) if isinstance(n, Call) and n.atom == "where" and node in walk(n.args[0]))
        node = next(chosen, node)
    if node.atom in ("step", "sign", "where"):
        new = continuous(node)
    elif node.atom == "divide":
        new = node.args[0] / away(node.args[1], nonnegative, FAR)
    elif node.atom in ("log", "sqrt", "power"):
        inside = away(Call("sqrt", (node.args[0],)), nonnegative, FAR)
        new = Call(node.atom, (*inside.children, *node.args[1:]))
    else:
        return Fix(words)
    return Fix(words, replacements=(Replacement(node, new),))


def _vanishing(check: Context, text: str, positions: Sequence[int]) -> Iterator[Finding]:
    """The worst of the denominators of vectors, in some Nonlins or those that they read, that may be 0 in the limit."""
    doubts: list[str] = []
    for at in sorted({*positions}.union(*map(check.structure.ancestors, positions))):
        statement = check.netsor.body[at]
        if not isinstance(statement, Nonlin):
            continue
        for below, used in _denominators(statement.expr):
            may = _reaches_zero(check, below, at)
            probability = check.numbers.zero_probability(check.netsor, below) if may else 0.0
            hit = check.numbers.zero_probability(check.netsor, used(below)) if probability else probability
            if hit:
                quotient = next(n for n in walk(statement.expr) if isinstance(n, Call) and n.args[1:] == (below,))
                fix = _fix(check, AWAY, statement.expr, quotient, at)
                yield _needed(check, at, text, f"{below} is 0 with probability {hit:.3g} in the limit", fix)
                return
            if probability and (hit is None or _reads_averages(check, below, at)):  # else as regular as Gaussian laws
                chance = f"{below} is 0 with probability {probability:.3g} in the limit"
                doubts.append(f"{chance}, and it is not known whether the branch stands there")
            elif probability is None:
                doubts.append(UNCLEAR)
    if doubts:
        yield _doubted(check, positions[0], text, doubts[0], Fix(AWAY))


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
            probability = check.numbers.zero_probability(check.netsor, zero)
            if probability == 0:
                continue
            known = "has an unknown probability" if probability is None else f"has probability {probability:.3g}"
            yield check.finding(
                "fails" if probability == 1 else "unknown",
                (position,),
                f"{node} jumps where {zero} is 0, which {known} in the limit: what is left of it at finite n decides "
                "there, and no theorem gives a limit",
                _fix(check, SMOOTH, statement.expr, node, position),
                NOT_COVERED,
            )


def _edges(check: Context, node: Expr, position: int) -> Iterator[tuple[Call, Expr]]:
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

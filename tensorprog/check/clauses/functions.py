"""Functions: pseudo-Lipschitz with scores, controlled without; at limits of averages finite and without a jump.

Each with what to write in place of a function that is not.

Source    Sakai et al. 2025, Theorem 1; Yang 2019 (arXiv 1910.12478), Theorem 5.4, and Netsor+ for averages
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tensorprog.check.certificates.profile import Fault, shown
from tensorprog.check.certificates.program import PROPERTIES
from tensorprog.check.clauses.context import NETSOR_PLUS, NOT_COVERED, SAKAI, YANG, Context, rule
from tensorprog.check.clauses.report import Finding, Fix, Replacement
from tensorprog.language.atoms import ATOMS, Atom
from tensorprog.language.expr import COMPARISONS, LOGICAL, Call, Expr, Number, call, rebuild, variables, walk
from tensorprog.language.facts import FAILS, HOLDS, UNKNOWN, Fact
from tensorprog.language.ir import Nonlin

__all__ = ["declared", "limiting_values", "nonlinearities"]

Ask = Callable[[Expr], bool]
Used = Callable[[Expr], Expr]


@rule("nonlinearities", "Sakai et al. 2025, Theorem 1; Yang 2019, Theorem 5.4")
def nonlinearities(check: Context) -> Iterator[Finding]:
    """Every Nonlin is pseudo-Lipschitz (with scores) or controlled (without)."""
    name = "pseudo-Lipschitz" if check.scored else "controlled"
    seen = set()
    for position in check.sinks():
        fact = check.calculus.fact(name, position)
        if fact.verdict is not HOLDS:
            fault = check.calculus.blame(name, position)
            if (fault.position, fault.expr) in seen:
                continue
            seen.add((fault.position, fault.expr))
            yield _not_regular(check, position, fact)
    if not seen:
        yield check.finding("holds", (), f"every Nonlin is {name}", source=SAKAI if check.scored else YANG)


def _not_regular(check: Context, position: int, fact: Fact) -> Finding:
    fault = check.calculus.blame(fact.name, position)
    chain = check.structure.chain(fault.position, position)
    is_not = f"is not {fact.name}" if fact.verdict is FAILS else f"cannot be shown to be {fact.name}"
    message = f"{check.text(fault.position)} {is_not}: {fault.reason}"
    if fact.witness:
        message += f"; {fact.witness}"
    elif fact.verdict is UNKNOWN:
        message += check.calculus.cut_short(fault.position)
    if len(chain) > 1:
        message += f"; it reaches {check.text(position)} through {check.chain_text(chain)}"
    profile = check.calculus.statement(fault.position)
    if fact.name == "pseudo-Lipschitz" and profile.controlled:
        message += f". Without scores it would be admitted: it is controlled ({YANG})"
    elif fact.name == "controlled":
        message += f". Needed: |phi(x)| <= exp(C |x|**r + c) with r < 2 ({YANG})"
    fix = _regular_fix(check, fact.name, fault)
    return check.finding(fact.verdict, (fault.position,), message, fix, NOT_COVERED, (chain,))


def _regular_fix(check: Context, name: str, fault: Fault) -> Fix:
    """What to write in place of the expression at fault, and of others in its statement, so that these are regular."""
    expr: Expr | None
    expr, position = fault.expr, fault.position
    statement = check.netsor.body[position]
    whole = statement.expr if isinstance(statement, Nonlin) else expr
    certified = PROPERTIES[name].certified
    seen = walk(whole if expr == statement.target else expr)
    mask = next((node for node in seen if isinstance(node, Call) and node.atom == "where" and _masks(node)), None)
    if mask is not None:
        zero = Call("where", tuple(Number(0) if _infinite(arg) else arg for arg in mask.args))
        words = f"put softmax over an index around {mask}, or 0 in place of -inf"
        return Fix(words, replacements=(Replacement(mask, zero),))
    if isinstance(expr, Call) and ATOMS[expr.atom].declared:
        return Fix(f"declare it, if it holds: tp.atom({expr.atom!r}, fn, growth=.., modulus=..)")
    if not isinstance(expr, Call) or expr.atom not in MENDS or not isinstance(statement, Nonlin):
        return Fix(ELSE)
    words, _ = MENDS[expr.atom]
    new = _mended(check, expr, position, SMALL)
    fix = Fix(words, replacements=(Replacement(expr, new),))
    for _ in range(MOST):
        whole, alone = _replaced(whole, expr, new), check.calculus.expression(new, position)
        profile = check.calculus.expression(whole, position)
        further = profile.partial or (profile.rough if name == "pseudo-Lipschitz" else profile.wild)
        here = further is not None and further.position == position and check.source(position) == statement
        expr = further.expr if further is not None and here else None
        if not isinstance(expr, Call) or expr.atom not in MENDS:
            return fix if certified(alone) or certified(profile) else Fix(words)
        new = _mended(check, expr, position, SMALL)
        fix = Fix(words, (replace(statement, expr=_replaced(whole, expr, new)),))
    return Fix(words)


def _mended(check: Context, expr: Call, position: int, by: float) -> Expr:
    """What to write in place of an expression of a statement, with a distance from what is to be avoided."""

    def nonnegative(part: Expr) -> bool:
        return check.calculus.expression(part, position).low >= 0

    return MENDS[expr.atom][1](expr, nonnegative, by)


def _replaced(whole: Expr, old: Expr, new: Expr) -> Expr:
    return rebuild(whole, lambda node: new if node == old else None)


def _infinite(expr: Expr) -> bool:
    """Whether an expression is inf or -inf."""
    return any(isinstance(node, Number) and math.isinf(node.value) for node in (expr, *expr.children))


def _masks(where: Call) -> bool:
    return any(map(_infinite, where.args[1:]))


def _ramp(expr: Expr, low: int = 0) -> Expr:
    """A continuous function that rises from `low` to 1 where an expression is positive and small."""
    return call("clip", STEEP * expr, low, 1)


def _difference(first: Expr, second: Expr) -> Expr:
    if second == Number(0):
        return first
    return Call("negative", (second,)) if first == Number(0) else first - second


def _chosen(condition: Expr) -> Expr:
    """A continuous function that is near 1 where a condition holds and near 0 elsewhere."""
    if isinstance(condition, Call) and condition.atom in COMPARISONS and variables(condition):
        one, two = condition.args
        if condition.atom in ("equal", "not_equal"):
            apart = _ramp(abs(_difference(one, two)))
            return apart if condition.atom == "not_equal" else 1 - apart
        return _ramp(_difference(one, two) if condition.atom.startswith("greater") else _difference(two, one))
    if isinstance(condition, Call) and condition.atom in LOGICAL and variables(condition):
        both = condition.atom == "logical_and"
        return Call("multiply" if both else "maximum", tuple(map(_chosen, condition.args)))
    return call("where", condition, 1, 0)


def _continuous(expr: Call, nonnegative: Ask, by: float) -> Expr:
    """A continuous function in place of one that jumps: step, sign, or `where`."""
    if expr.atom in ("step", "sign"):
        return _ramp(expr.args[0], 0 if expr.atom == "step" else -1)
    condition, one, two = expr.args
    scale = Number(one.value - two.value) if isinstance(one, Number) and isinstance(two, Number) else None
    difference = _difference(one, two) if scale is None else scale
    share = _chosen(condition)
    rise = share if difference == Number(1) else difference * share
    return rise if two == Number(0) else two + rise


def _inside(expr: Call, nonnegative: Ask, by: float) -> Expr:
    """A function of its first argument, which is kept away from 0."""
    return Call(expr.atom, (_away(expr.args[0], nonnegative, by), *expr.args[1:]))


def _away(expr: Expr, nonnegative: Ask, by: float) -> Expr:
    return (expr if nonnegative(expr) else abs(expr)) + by


def _quotient(expr: Call, nonnegative: Ask, by: float) -> Expr:
    """A quotient whose denominator is kept away from 0, under a root if it is one."""
    above, below = expr.args
    if isinstance(below, Call) and below.atom == "sqrt":
        return above / _inside(below, nonnegative, by)
    return above / _away(below, nonnegative, by)


ELSE = "an expression made of pseudo-Lipschitz functions"
# sensible numbers, which stand for any: the slope in place of a jump, a distance from 0, a bound on the argument of exp
STEEP, SMALL, LARGE = 100, 1e-6, 10
FAR = 0.01  # a distance from 0 of what is near 0 at finite n
MOST = 8  # expressions of one statement that are replaced
MENDS: Mapping[str, tuple[str, Callable[[Call, Ask, float], Expr]]] = {
    "step": ("a continuous function", _continuous),
    "sign": ("a continuous function", _continuous),
    "where": ("branches that agree where the condition changes", _continuous),
    "exp": (
        "use softmax, sigmoid or softplus, or bound the argument above",
        lambda e, *_: call("exp", call("minimum", e.args[0], LARGE)),
    ),
    "sqrt": ("keep the argument away from 0", _inside),
    "log": ("keep the argument away from 0", _inside),
    "power": ("keep what stands before ** away from 0", _inside),
    "divide": ("keep the denominator away from 0", _quotient),
}


@rule("declared functions", "tp.atom")
def declared(check: Context) -> Iterator[Finding]:
    """One finding for each declared function that an output depends on."""
    users: dict[str, list[int]] = {}
    for position, nonlin in check.nonlins():
        for name in {node.atom for node in walk(nonlin.expr) if isinstance(node, Call) and ATOMS[node.atom].declared}:
            users.setdefault(name, []).append(position)
    for name, positions in sorted(users.items()):
        places = ", ".join(dict.fromkeys(map(check.text, positions)))
        yield check.finding(
            "holds",
            tuple(positions),
            f"{places}: rests on what is declared of {name}: {_facts(ATOMS[name])}; declared by its author and "
            "attacked numerically, not proved",
        )


def _facts(atom: Atom) -> str:
    low, high = atom.bounds() if atom.bounds is not None else (-float("inf"), float("inf"))
    regularity = atom.regularity
    said = {
        f"range {shown((low, high))}": atom.bounds is not None,
        f"growth {regularity.growth:g}": regularity.growth < float("inf"),
        f"modulus {regularity.modulus:g}": regularity.modulus < float("inf"),
        f"Lipschitz constant {regularity.lipschitz:g}": regularity.lipschitz < float("inf"),
        "increasing" if atom.monotone > 0 else "decreasing": atom.monotone != 0,
        "even" if atom.parity > 0 else "odd": atom.parity != 0,
    }
    return ", ".join(text for text, known in said.items() if known) or "nothing"


# -- at the limits of averages -----------------------------------------------------------------------------------------

CONTINUED = ("divide", "where", "logical_and", "logical_or")  # what jumps in these is said of their parts

AWAY = "keep it away from there"
SMOOTH = "a continuous function, or a vector that does not vanish"
UNCLEAR = "that is not known"


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
    """What is said where a need fails, because of what is `wrong`."""
    message = f"it is needed that {text}, but {wrong}: no theorem gives a limit there"
    return check.finding("fails", (position,), message, fix, NOT_COVERED)


def _doubted(check: Context, position: int, text: str, doubt: str, fix: Fix) -> Finding:
    return check.finding("unknown", (position,), f"it is needed that {text}; {doubt}", fix, NOT_COVERED)


def _limit_fix(check: Context, expr: Expr, positions: Sequence[int]) -> Fix:
    """What to write in place of the smallest part that is not finite and smooth at the limits of averages."""
    fault = next((n for n in _upwards(expr) if isinstance(n, Call) and check.numbers.singular(check.written, n)), expr)
    for at, nonlin in check.nonlins({*positions} | check.structure.ancestors(*positions)):
        for node in walk(nonlin.expr):
            if isinstance(node, Call) and (node == fault or _divides(node, fault)):
                return _fix(check, AWAY, nonlin.expr, node, at)
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
    if node.atom in COMPARISONS:  # what is chosen by it
        chosen = (n for n in walk(whole) if isinstance(n, Call) and n.atom == "where" and node in walk(n.args[0]))
        node = next(chosen, node)
    if node.atom not in MENDS:
        return Fix(words)
    return Fix(words, replacements=(Replacement(node, _mended(check, node, position, FAR)),))


def _vanishing(check: Context, text: str, positions: Sequence[int]) -> Iterator[Finding]:
    """The worst of the denominators of vectors, in some Nonlins or those that they read, that may be 0 in the limit."""
    doubts: list[str] = []
    for at, nonlin in check.nonlins({*positions} | check.structure.ancestors(*positions)):
        for below, used in _denominators(nonlin.expr):
            may = check.calculus.expression(below, at).low <= 0
            probability = check.numbers.zero_probability(check.netsor, below) if may else 0.0
            hit = check.numbers.zero_probability(check.netsor, used(below)) if probability else probability
            if hit:
                quotient = next(n for n in walk(nonlin.expr) if isinstance(n, Call) and n.args[1:] == (below,))
                fix = _fix(check, AWAY, nonlin.expr, quotient, at)
                yield _needed(check, at, text, f"{below} is 0 with probability {hit:.3g} in the limit", fix)
                return
            if probability and (hit is None or _reads_averages(check, below, at)):  # else as regular as Gaussian laws
                chance = f"{below} is 0 with probability {probability:.3g} in the limit"
                doubts.append(f"{chance}, and it is not known whether the branch stands there")
            elif probability is None:
                doubts.append(UNCLEAR)
    if doubts:
        yield _doubted(check, positions[0], text, doubts[0], Fix(AWAY))


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
    for position, nonlin in check.nonlins():
        for node, zero in dict(_edges(check, nonlin.expr, position)).items():
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
                _fix(check, SMOOTH, nonlin.expr, node, position),
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

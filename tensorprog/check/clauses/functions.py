"""Nonlinearities: pseudo-Lipschitz with scores, controlled without; and what to write in place of what is neither."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tensorprog.check.certificates.profile import Fault, shown
from tensorprog.check.certificates.program import PROPERTIES
from tensorprog.check.clauses.context import NOT_COVERED, SAKAI, YANG, Context, rule
from tensorprog.check.clauses.report import Finding, Fix, Replacement
from tensorprog.language.atoms import ATOMS, Atom
from tensorprog.language.expr import COMPARISONS, LOGICAL, Call, Expr, Number, call, rebuild, variables, walk
from tensorprog.language.facts import FAILS, HOLDS, UNKNOWN, Fact
from tensorprog.language.ir import Nonlin

__all__ = ["away", "continuous", "declared", "nonlinearities"]

Ask = Callable[[Expr], bool]


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

    def nonnegative(part: Expr) -> bool:
        return check.calculus.expression(part, position).low >= 0

    seen = walk(whole if expr == statement.target else expr)
    mask = next((node for node in seen if isinstance(node, Call) and node.atom == "where" and _masks(node)), None)
    if mask is not None:
        zero = Call("where", tuple(Number(0) if _infinite(arg) else arg for arg in mask.args))
        words = f"put softmax over an index around {mask}, or 0 in place of -inf"
        return Fix(words, replacements=(Replacement(mask, zero),))
    if not isinstance(expr, Call):
        return Fix(ELSE)
    if ATOMS[expr.atom].declared:
        return Fix(f"declare it, if it holds: tp.atom({expr.atom!r}, fn, growth=.., modulus=..)")
    if expr.atom not in MENDS or not isinstance(statement, Nonlin):
        return Fix(ELSE)
    words, mend = MENDS[expr.atom]
    new = mend(expr, nonnegative)
    fix = Fix(words, replacements=(Replacement(expr, new),))
    for _ in range(MOST):
        whole, alone = _replaced(whole, expr, new), check.calculus.expression(new, position)
        profile = check.calculus.expression(whole, position)
        further = profile.partial or (profile.rough if name == "pseudo-Lipschitz" else profile.wild)
        here = further is not None and further.position == position and check.source(position) == statement
        expr = further.expr if further is not None and here else None
        if not isinstance(expr, Call) or expr.atom not in MENDS:
            return fix if certified(alone) or certified(profile) else Fix(words)
        new = MENDS[expr.atom][1](expr, nonnegative)
        fix = Fix(words, (replace(statement, expr=_replaced(whole, expr, new)),))
    return Fix(words)


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


def continuous(expr: Call) -> Expr:
    """A continuous function in place of one that jumps: step, sign, or `where`."""
    if expr.atom in ("step", "sign"):
        return _ramp(expr.args[0], 0 if expr.atom == "step" else -1)
    condition, one, two = expr.args
    scale = Number(one.value - two.value) if isinstance(one, Number) and isinstance(two, Number) else None
    difference = _difference(one, two) if scale is None else scale
    share = _chosen(condition)
    rise = share if difference == Number(1) else difference * share
    return rise if two == Number(0) else two + rise


def away(expr: Expr, nonnegative: Ask, by: float) -> Expr:
    """A denominator, or the argument of a logarithm or a power, that is kept away from 0; under a root if it is one."""
    if isinstance(expr, Call) and expr.atom == "sqrt":
        return _inside(expr, nonnegative, by)
    return (expr if nonnegative(expr) else abs(expr)) + by


def _inside(expr: Call, nonnegative: Ask, by: float) -> Expr:
    """A function of its first argument, which is kept away from 0."""
    first = expr.args[0]
    return Call(expr.atom, ((first if nonnegative(first) else abs(first)) + by, *expr.args[1:]))


ELSE = "an expression made of pseudo-Lipschitz functions"
# sensible numbers, which stand for any: the slope in place of a jump, a distance from 0, a bound on the argument of exp
STEEP, SMALL, LARGE = 100, 1e-6, 10
MOST = 8  # expressions of one statement that are replaced
MENDS: Mapping[str, tuple[str, Callable[[Call, Ask], Expr]]] = {
    "step": ("a continuous function", lambda e, _: continuous(e)),
    "sign": ("a continuous function", lambda e, _: continuous(e)),
    "where": ("branches that agree where the condition changes", lambda e, _: continuous(e)),
    "exp": (
        "use softmax, sigmoid or softplus, or bound the argument above",
        lambda e, _: call("exp", call("minimum", e.args[0], LARGE)),
    ),
    "sqrt": ("keep the argument away from 0", lambda e, ask: _inside(e, ask, SMALL)),
    "log": ("keep the argument away from 0", lambda e, ask: _inside(e, ask, SMALL)),
    "power": ("keep what stands before ** away from 0", lambda e, ask: _inside(e, ask, SMALL)),
    "divide": ("keep the denominator away from 0", lambda e, ask: e.args[0] / away(e.args[1], ask, SMALL)),
}


@rule("declared functions", "tp.atom")
def declared(check: Context) -> Iterator[Finding]:
    """One finding for each declared function that an output depends on."""
    users: dict[str, list[int]] = {}
    for position in sorted(check.structure.relevant):
        statement = check.netsor.body[position]
        if isinstance(statement, Nonlin):
            for name in {node.atom for node in walk(statement.expr) if isinstance(node, Call)}:
                if ATOMS[name].declared:
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

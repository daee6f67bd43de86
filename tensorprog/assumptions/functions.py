"""Nonlinearities: pseudo-Lipschitz with scores, controlled without."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from tensorprog.assumptions.context import NOT_COVERED, SAKAI, YANG, Context
from tensorprog.assumptions.report import Finding
from tensorprog.atoms import ATOMS
from tensorprog.expr import Call, Expr, Number, walk
from tensorprog.facts import FAILS, HOLDS, Fact

__all__ = ["nonlinearities"]

Ask = Callable[[Expr], bool]


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
    if len(chain) > 1:
        message += f"; it reaches {check.text(position)} through {check.chain_text(chain)}"
    profile = check.calculus.statement(fault.position)
    if fact.name == "pseudo-Lipschitz" and profile.controlled:
        message += f". Without scores it would be admitted: it is controlled ({YANG})"
    elif fact.name == "controlled":
        message += f". Needed: |phi(x)| <= exp(C |x|**r + c) with r < 2 ({YANG})"
    fix = _regular_fix(fault.expr, lambda expr: check.calculus.expression(expr, fault.position).low >= 0)
    return check.finding(fact.verdict, (fault.position,), message, fix, NOT_COVERED, (chain,))


def _regular_fix(expr: Expr, nonnegative: Ask) -> str:
    """What to write in place of an expression that is not regular; `nonnegative` tells whether one is certainly so."""
    mask = next((node for node in walk(expr) if isinstance(node, Call) and node.atom == "where" and _masks(node)), None)
    if mask is not None:
        zero = Call("where", tuple(Number(0) if _infinite(arg) else arg for arg in mask.args))
        return f"put softmax over an index around {mask}, or 0 in place of -inf: {zero}"
    if not isinstance(expr, Call):
        return ELSE
    if ATOMS[expr.atom].declared:
        return f"declare it, if it holds: tp.atom({expr.atom!r}, fn, growth=.., modulus=..)"
    fix = FIXES.get(expr.atom)
    return fix(expr, nonnegative) if fix is not None else ELSE


def _infinite(expr: Expr) -> bool:
    """Whether an expression is inf or -inf."""
    return any(isinstance(node, Number) and math.isinf(node.value) for node in (expr, *expr.children))


def _masks(where: Call) -> bool:
    return any(map(_infinite, where.args[1:]))


def _steep(expr: Call) -> Expr:
    """The argument times a large number."""
    return Call("multiply", (Number(STEEP), expr.args[0]))


def _positive(expr: Expr, nonnegative: Ask) -> Expr:
    """An expression, or its absolute value where it may be negative, away from 0."""
    return Call("add", (expr if nonnegative(expr) else Call("abs", (expr,)), Number(SMALL)))


def _away(expr: Call, nonnegative: Ask) -> Expr:
    """A function of its first argument, which is kept away from 0."""
    return Call(expr.atom, (_positive(expr.args[0], nonnegative), *expr.args[1:]))


def _quotient(expr: Call, nonnegative: Ask) -> Expr:
    top, bottom = expr.args
    if isinstance(bottom, Call) and bottom.atom == "sqrt":
        return Call("divide", (top, _away(bottom, nonnegative)))
    return Call("divide", (top, _positive(bottom, nonnegative)))


ELSE = "an expression made of pseudo-Lipschitz functions"
# sensible numbers, which stand for any: the slope in place of a jump, a distance from 0, a bound on the argument of exp
STEEP, SMALL, LARGE = 100, 1e-6, 10
FIXES: Mapping[str, Callable[[Call, Ask], str]] = {
    "step": lambda e, _: f"a continuous function, e.g. clip({_steep(e)}, 0, 1) or sigmoid({_steep(e)})",
    "sign": lambda e, _: f"a continuous function, e.g. clip({_steep(e)}, -1, 1) or tanh({_steep(e)})",
    "exp": lambda e, _: (
        f"bound the argument above, e.g. exp(min({e.args[0]}, {LARGE})), or use softmax, sigmoid or softplus"
    ),
    "sqrt": lambda e, ask: f"keep the argument away from 0, e.g. {_away(e, ask)}",
    "log": lambda e, ask: f"keep the argument away from 0, e.g. {_away(e, ask)}",
    "power": lambda e, ask: f"keep what stands before ** away from 0, e.g. {_away(e, ask)}",
    "divide": lambda e, ask: f"keep the denominator away from 0, e.g. {_quotient(e, ask)}",
    "where": lambda _, __: "branches that agree where the condition changes, or a condition on indices",
}

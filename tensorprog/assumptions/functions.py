"""Nonlinearities: pseudo-Lipschitz with scores, controlled without."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from tensorprog.assumptions.context import NOT_COVERED, SAKAI, YANG, Context
from tensorprog.assumptions.report import Finding
from tensorprog.atoms import ATOMS
from tensorprog.expr import Call, Constant, Expr, Number, walk
from tensorprog.facts import FAILS, HOLDS, Fact

__all__ = ["nonlinearities"]


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
    return check.finding(fact.verdict, (fault.position,), message, _regular_fix(fault.expr), NOT_COVERED, chain)


def _regular_fix(expr: Expr) -> str:
    """What to write in place of an expression that is not regular."""
    mask = next((node for node in walk(expr) if isinstance(node, Call) and node.atom == "where" and _masks(node)), None)
    if mask is not None:
        zero = Call("where", tuple(Number(0) if _infinite(arg) else arg for arg in mask.args))
        return f"put softmax over an index around {mask}, or 0 in place of -inf: {zero}"
    if not isinstance(expr, Call):
        return ELSE
    if ATOMS[expr.atom].declared:
        return f"declare it, if it holds: tp.atom({expr.atom!r}, fn, growth=.., modulus=..)"
    fix = FIXES.get(expr.atom)
    return fix(expr) if fix is not None else ELSE


def _infinite(expr: Expr) -> bool:
    """Whether an expression is inf or -inf."""
    return any(isinstance(node, Number) and math.isinf(node.value) for node in (expr, *expr.children))


def _masks(where: Call) -> bool:
    return any(map(_infinite, where.args[1:]))


def _steep(expr: Call) -> Expr:
    """The argument times a constant c, which is to be large."""
    return Call("multiply", (Constant("c"), expr.args[0]))


def _not_negative(expr: Expr) -> Expr:
    """The argument, or its absolute value, away from 0."""
    inner = expr if isinstance(expr, Call) and expr.atom == "abs" else Call("abs", (expr,))
    return Call("add", (inner, Constant("eps")))


def _power_fix(expr: Call) -> str:
    return f"keep what stands before ** away from 0: {Call('power', (_not_negative(expr.args[0]), *expr.args[1:]))}"


def _quotient_fix(expr: Call) -> str:
    top, bottom = expr.args
    root = isinstance(bottom, Call) and bottom.atom == "sqrt"
    under = Call("sqrt", (_not_negative(bottom.children[0]),)) if root else _not_negative(bottom)
    return f"keep the denominator away from 0, e.g. {Call('divide', (top, under))}"


ELSE = "an expression made of pseudo-Lipschitz functions"
FIXES: Mapping[str, Callable[[Call], str]] = {
    "step": lambda e: f"a continuous function, e.g. clip({_steep(e)}, 0, 1) or sigmoid({_steep(e)})",
    "sign": lambda e: f"a continuous function, e.g. clip({_steep(e)}, -1, 1) or tanh({_steep(e)})",
    "exp": lambda e: f"bound the argument above, e.g. exp(min({e.args[0]}, c)), or use softmax, sigmoid or softplus",
    "sqrt": lambda e: f"keep the argument away from 0: sqrt({_not_negative(e.args[0])})",
    "log": lambda e: f"keep the argument away from 0: log({_not_negative(e.args[0])})",
    "power": _power_fix,
    "divide": _quotient_fix,
    "where": lambda _: "branches that agree where the condition changes, or a condition on indices",
}

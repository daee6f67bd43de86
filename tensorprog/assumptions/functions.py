"""Nonlinearities: pseudo-Lipschitz with scores, controlled without."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.assumptions.context import NOT_COVERED, YANG, Context
from tensorprog.assumptions.report import Finding, Says
from tensorprog.atoms import ATOMS
from tensorprog.expr import Call, Expr
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
    verdict: Says = "fails" if fact.verdict is FAILS else "unknown"
    return check.finding(verdict, (fault.position,), message, _regular_fix(fault.expr), NOT_COVERED, chain)


def _regular_fix(expr: Expr) -> str:
    if isinstance(expr, Call):
        inner = ", ".join(map(str, expr.arguments))
        if ATOMS[expr.atom].declared:
            return f"declare it, if it holds: tp.atom({expr.atom!r}, fn, growth=.., modulus=..)"
        if expr.atom in ("step", "sign") or expr.atom in ("less", "greater", "less_equal", "greater_equal"):
            return f"a continuous function, e.g. clip(c * ({inner}), 0, 1) or sigmoid(c * ({inner}))"
        if expr.atom == "exp":
            return f"bound the argument above, e.g. exp(min({inner}, c)), or use softmax, sigmoid or softplus"
        if expr.atom in ("sqrt", "log"):
            return f"{expr.atom}({inner} + eps) with {inner} not negative and eps > 0"
        if expr.atom == "divide":
            return f"keep the denominator away from 0, e.g. ({expr.args[0]}) / (eps + abs({expr.args[1]}))"
        if expr.atom == "where":
            return "branches that agree where the condition changes, or a condition on indices"
    return "an expression made of pseudo-Lipschitz functions"

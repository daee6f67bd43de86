"""Functions: pseudo-Lipschitz with scores, controlled without; at limits of averages finite and without a jump.

What a function is sure not to be puts a program outside; what cannot be shown of it is assumed, and the claim says so.

Source    Sakai et al. 2025, Theorem 1; Yang 2019 (arXiv 1910.12478), Theorem 5.4, and Netsor+ for averages
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensorprog.check.clauses.context import NETSOR_PLUS, NOT_COVERED, SAKAI, YANG, Context, rule
from tensorprog.check.clauses.report import ASSUMED, Claim, Finding, Says
from tensorprog.check.facts import JUMPS, PROPERTIES, Fault
from tensorprog.check.overlaps import FAILS, HOLDS, Verdict
from tensorprog.language.arrows import grouped
from tensorprog.language.atoms import ATOMS
from tensorprog.language.expr import COMPARISONS, Call, Expr, Number, walk

ADVICE = {
    "step": "a continuous function, e.g. clip(100*x, 0, 1)",
    "sign": "a continuous function, e.g. clip(100*x, -1, 1)",
    "where": "branches that agree where the condition changes",
    "exp": "use softmax, sigmoid or softplus, or bound the argument above: exp(min(x, 10))",
    "sqrt": "keep the argument away from 0: sqrt(x + 1e-6)",
    "log": "keep the argument away from 0: log(x + 1e-6)",
    "power": "keep what stands before ** away from 0",
    "divide": "keep the denominator away from 0, e.g. by + 1e-6, or write softmax",
}
ELSE = "an expression made of pseudo-Lipschitz functions"


@rule("nonlinearities", "Sakai et al. 2025, Theorem 1; Yang 2019, Theorem 5.4")
def nonlinearities(check: Context) -> Iterator[Finding | Claim]:
    """Every Nonlin is pseudo-Lipschitz (with scores) or controlled (without), or is assumed to be."""
    name = "pseudo-Lipschitz" if check.structure.scores else "controlled"
    seen = set()
    for position in check.sinks():
        verdict = check.calculus.verdict(name, position)
        if verdict is HOLDS:
            continue
        fault = check.calculus.blame(name, position)
        if fault not in seen:
            seen.add(fault)
            if verdict is not FAILS:
                said = f"{check.text(fault.position)} is {name} (not shown)"
                yield Claim(ASSUMED, "not shown", said)
            yield _not_regular(check, position, name, verdict, fault)
    if not seen:
        yield check.finding("holds", (), f"every Nonlin is {name}", source=SAKAI if check.structure.scores else YANG)


def _not_regular(check: Context, position: int, name: str, verdict: Verdict, fault: Fault) -> Finding:
    chain = check.structure.chain(fault.position, position)
    is_not = f"is not {name}" if verdict is FAILS else f"cannot be shown to be {name}"
    message = f"{check.text(fault.position)} {is_not}: {fault.reason}"
    if len(chain) > 1:
        message += f"; it reaches {check.text(position)} through {check.chain_text(chain)}"
    if name == "pseudo-Lipschitz" and PROPERTIES["controlled"](check.calculus.statements[fault.position]):
        message += f". Without scores it would be admitted: it is controlled ({YANG})"
    elif name == "controlled":
        message += f". Needed: |phi(x)| <= exp(C |x|**r + c) with r < 2 ({YANG})"
    said: Says = "fails" if verdict is FAILS else "warning"
    consequence = NOT_COVERED if verdict is FAILS else ""
    return check.finding(said, (fault.position,), message, _advice(fault.expr), consequence, (chain,))


def _advice(expr: Expr) -> str:
    """What to write in place of an expression that is not regular."""
    masks = any(isinstance(node, Number) and math.isinf(node.value) for node in walk(expr))
    if masks:
        return "put softmax over an index around the mask, or write 0 in place of -inf"
    if isinstance(expr, Call) and ATOMS[expr.atom].declared:
        return f"declare it, if it holds: tp.atom({expr.atom!r}, fn, lipschitz=..) or growth=(K, g)"
    return ADVICE.get(expr.atom, ELSE) if isinstance(expr, Call) else ELSE


@rule("declared functions", "tp.atom")
def declared(check: Context) -> Iterator[Finding]:
    """One finding for each declared function that an output depends on."""
    calls = ((p, node.atom) for p, s in check.nonlins() for node in walk(s.expr) if isinstance(node, Call))
    users = grouped((name, position) for position, name in dict.fromkeys(calls) if ATOMS[name].declared)
    for name, positions in sorted(users.items()):
        places = ", ".join(dict.fromkeys(map(check.text, positions)))
        yield check.finding(
            "holds",
            tuple(positions),
            f"{places}: rests on what is declared of {name}: declared by its author and "
            "attacked numerically, not proved",
        )


@rule("limiting values", NETSOR_PLUS)
def limiting_values(check: Context) -> Iterator[Finding | Claim]:
    """Functions of averages are finite and continuous at their limits.

    Without scores a function of vectors may jump; one of averages too is assumed to have no atom of its law there.
    """
    facts = check.calculus.statements
    needed = grouped((need, position) for position in check.sinks() for need in facts[position].assumes)
    for (text, expr), positions in needed.items():
        wrong = check.numbers.singular(check.written, expr)
        if wrong:
            message = f"it is needed that {text}, but {wrong}: no theorem gives a limit there"
            yield check.finding("fails", (positions[0],), message, "keep it away from there", NOT_COVERED)
        elif wrong is None:
            yield Claim(ASSUMED, "not shown", f"{text} (not shown)")
    if (
        check.structure.converging and not check.structure.scores
    ):  # beside scores a function that jumps is refused already
        yield from _jumps(check)


def _jumps(check: Context) -> Iterator[Finding | Claim]:
    """Functions that jump, of vectors whose laws have an atom there which the limits of averages may have made."""
    for position, nonlin in check.nonlins():
        behind = check.structure.converging & check.structure.ancestors(position)
        found = check.calculus.statements[position]
        if not behind or found.rough is None or found.averages:
            continue
        for node in (n for n in walk(nonlin.expr) if isinstance(n, Call)):
            zero = Call("subtract", node.args) if node.atom in COMPARISONS else node.args[0]
            if node.atom not in (*COMPARISONS, *JUMPS) or check.calculus.expression(zero, position).averages:
                continue
            probability = check.numbers.zero_probability(check.netsor, zero)
            if probability == 1:
                message = f"{node} jumps where {zero} is 0, which it is in the limit: no theorem gives a limit"
                yield check.finding("fails", (position,), message, "a vector that does not vanish", NOT_COVERED)
            elif probability != 0:
                said = f"{node} in {check.text(position)} jumps with probability 0 in the limit (not shown)"
                yield Claim(ASSUMED, "not shown", said)

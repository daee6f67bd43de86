"""One layer of scores: what stands behind them, and what an exact rewrite would bring under the theorem."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.assumptions.context import NOT_COVERED, Context
from tensorprog.assumptions.report import Finding
from tensorprog.expr import Call, Expr, Reduction, Variable, rebuild, variables
from tensorprog.ir import MatMul, Nonlin

__all__ = ["combination", "linear", "one_layer"]


def combination(check: Context, expr: Expr, position: int, seen: frozenset[int], plain: bool = False) -> bool:
    """Whether an expression is linear in score-dependent vectors, with scalars as coefficients.

    With `plain` it must be linear in all vectors.
    """
    calculus = check.calculus
    if calculus.closed(expr) is not None or not variables(expr):
        return True
    if isinstance(expr, Variable):
        if check.netsor.families[expr.name].kind == "scalar":
            return True
        definers = check.structure.definers(position, expr)
        for definer in definers:
            statement = check.netsor.body[definer]
            if definer in seen or (not plain and definer not in check.structure.score_dependent):
                continue
            if isinstance(statement, Nonlin) and not combination(
                check, statement.expr, definer, seen | {definer}, plain
            ):
                return False
            if (
                isinstance(statement, MatMul)
                and not plain
                and not combination(check, statement.vector, definer, seen | {definer})
            ):
                return False
        return True

    def scalar(part: Expr) -> bool:
        return all(check.netsor.families[v.name].kind == "scalar" for v in variables(part))

    def free(part: Expr) -> bool:
        return not plain and all(
            d not in check.structure.score_dependent
            for v in variables(part)
            for d in check.structure.definers(position, v)
        )

    if scalar(expr) or free(expr):
        return True
    if isinstance(expr, Reduction):
        return expr.reducer in ("sum", "mean") and combination(check, expr.arg, position, seen, plain)
    assert isinstance(expr, Call)
    if expr.atom in ("add", "subtract", "negative"):
        return all(combination(check, arg, position, seen, plain) for arg in expr.args)
    if expr.atom == "multiply":
        left, right = expr.args
        return any(
            scalar(a) and combination(check, b, position, seen, plain) for a, b in ((left, right), (right, left))
        )
    if expr.atom == "divide":
        return scalar(expr.args[1]) and combination(check, expr.args[0], position, seen, plain)
    if expr.atom == "where" and not variables(expr.args[0]):
        return all(combination(check, arg, position, seen, plain) for arg in expr.args[1:])
    return False


def _moved(check: Context, position: int) -> str:
    """How the MatMul of a combination is written inside the sum."""
    statement = check.netsor.body[position]
    assert isinstance(statement, MatMul)
    definers = check.structure.definers(position, statement.vector)
    inner = check.netsor.body[definers[0]] if len(definers) == 1 else None
    if not isinstance(inner, Nonlin):
        return f"apply {statement.matrix} to each vector of the combination, and combine the products in a Nonlin"
    taken = {s.target.name for s in check.netsor.body} | set(check.netsor.families)
    indices = [name for slot in statement.weight.slots for name in slot.indices]
    renamed: dict[Variable, Variable] = {}
    lines = []
    for vector in variables(inner.expr):
        if check.netsor.families[vector.name].kind == "scalar":
            continue
        base = f"{statement.target.name}_{vector.name}"
        while base in taken:
            base += "1"
        own = [*indices, *(name for slot in vector.slots for name in slot.indices if name not in indices)]
        slots = ",".join(dict.fromkeys(own))
        lines.append(f"{base}{f'[{slots}]' if slots else ''} = MatMul({statement.matrix}, {vector})")
        renamed[vector] = Variable(f"{base}{f'[{slots}]' if slots else ''}")
    expr = rebuild(inner.expr, lambda node: renamed.get(node) if isinstance(node, Variable) else None)
    return "; ".join([*lines, f"{statement.target} = Nonlin({expr})"])


def one_layer(check: Context) -> Iterator[Finding]:
    """No weight multiplies a vector that depends on a score."""
    flagged: dict[int, bool] = {}
    for position in sorted(check.structure.relevant):
        statement = check.netsor.body[position]
        if not isinstance(statement, MatMul):
            continue
        bad = [d for d in check.structure.definers(position, statement.vector) if d in check.structure.score_dependent]
        if not bad:
            continue
        linear = combination(check, statement.vector, position, frozenset())
        earlier = [flagged[p] for p in check.structure.ancestors(position) if p in flagged]
        flagged[position] = linear
        if earlier and (linear or not all(earlier)):
            continue  # the first weight on the way from a score is to blame
        score = next(p for p in check.structure.scores if p in check.structure.ancestors(position))
        chain = check.structure.chain(score, position)
        message = (
            f"{statement.matrix} multiplies {statement.vector}, which depends on the score {check.text(score)} through "
            f"{check.chain_text(chain)}; Theorem 1 covers one layer of scores"
        )
        if linear:
            message += (
                f". But {statement.vector} is linear in its vectors, with scalars as coefficients: moving the MatMul "
                "inside the sum is exact at every n and brings this part under the theorem"
            )
            yield check.finding("fails", (position,), message, _moved(check, position), NOT_COVERED, chain)
        else:
            yield check.finding(
                "fails",
                (position,),
                message,
                "end the program here, or use an average (scale=1/n) in place of the score",
                NOT_COVERED,
                chain,
            )


def linear(check: Context, position: int) -> bool:
    """Whether a Nonlin is linear in its vectors."""
    statement = check.netsor.body[position]
    return isinstance(statement, Nonlin) and combination(check, statement.expr, position, frozenset(), plain=True)

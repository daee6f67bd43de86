"""Warnings: statements, scores and clips that do nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensorprog.assumptions.context import Context
from tensorprog.assumptions.report import Finding
from tensorprog.expr import Call, Expr, IndexValue, Variable, rebuild, walk
from tensorprog.facts import HOLDS
from tensorprog.graph import Structure
from tensorprog.ir import Dot, MatMul, Nonlin

__all__ = ["clips", "unused", "variance"]


def unused(check: Context) -> Iterator[Finding]:
    """Statements that no output depends on."""
    relevant = Structure(check.written).relevant
    idle = [s for position, s in enumerate(check.written.body) if position not in relevant]
    for statement in idle:
        yield check.finding(
            "warning",
            (check.rewritten.origin.index(str(statement.target)),),
            f"{statement.target} does not reach an output; leaving it out is exact, and the other rules do",
            f"drop it, or add {statement.target.name} to the outputs",
        )


def variance(check: Context) -> Iterator[Finding]:
    """Scores have positive variance, and averages are not of independent vectors."""
    positive = "(Theorem 1 speaks of scores of positive variance)"
    parts: dict[str, set[int]] = {}  # of each score as written
    for dot in check.scores:
        parts.setdefault(check.text(dot), set()).add(dot)
    for maker in check.products():
        definer, statement, score = maker.position, maker.statement, check.text(maker.dot)
        variance = check.calculus.closed(check.netsor.weight[statement.weight.name].variance)
        if definer in check.zeros and parts[score] <= check.zeros:
            why = f"the variance of {statement.weight}" if variance == (0.0, 0.0) else f"{statement.vector}"
            why += f" is 0, so the score {score} vanishes"
        elif variance is not None and variance[0] == 0 < variance[1] and len(parts[score]) == 1:
            why = f"the variance of {statement.weight} is 0 for some members, whose scores {score} vanish"
        else:
            continue
        yield check.finding("warning", (definer,), f"{why} {positive}")
    for operand in check.operands:
        if operand.definer in check.zeros and not isinstance(check.netsor.body[operand.definer], MatMul):
            zero, score = check.netsor.body[operand.definer].target, check.text(operand.dot)
            why = f"{zero} is 0, so the scores {score} that read it vanish {positive}"
            yield check.finding("warning", (operand.definer,), why)
    yield from _vanishing_averages(check)
    yield from _twins(check)


def _twins(check: Context) -> Iterator[Finding]:
    """Scores that are equal to others, whose joint law is degenerate."""
    seen: dict[frozenset[object], int] = {}
    equal = "their joint law is degenerate (Theorem 1 speaks of scores of positive variance)"
    for position in check.scores:
        dot = check.netsor.body[position]
        assert isinstance(dot, Dot)
        first = seen.setdefault(frozenset(_maker(check, position, side) for side in (dot.left, dot.right)), position)
        if check.text(first) != check.text(position):
            text = f"{dot.target} has the operands of {check.netsor.body[first].target}: the two scores are equal, and "
            yield check.finding("warning", (position, first), text + equal)
        read = {name for side in (dot.left, dot.right) for slot in side.slots for name in slot.indices}
        idle = [slot.bare for slot in dot.target.slots if slot.bare is not None and slot.bare not in read]
        sizes = [check.netsor.ranges[name][1] - check.netsor.ranges[name][0] for name in idle]
        if any(size > 1 for size in sizes):
            text = f"the scores {dot.target} are equal for all {', '.join(idle)}, which no operand has, and "
            yield check.finding("warning", (position,), text + equal)


def _maker(check: Context, position: int, side: Variable) -> object:
    """What an operand is: the weight and the vector of its MatMul, where one MatMul with these indices makes it."""
    definers = check.structure.definers(position, side)
    made = check.netsor.body[definers[0]] if len(definers) == 1 else None
    return (made.matrix, made.vector) if isinstance(made, MatMul) and made.target.slots == side.slots else side


def _vanishing_averages(check: Context) -> Iterator[Finding]:
    """Averages of q k for q and k by different weights: attention on the scale 1/n without tied weights."""
    for position in sorted(check.converging):
        dot = check.netsor.body[position]
        assert isinstance(dot, Dot)
        made = [check.structure.definers(position, side) for side in (dot.left, dot.right)]
        sides = [[d for d in definers if isinstance(check.netsor.body[d], MatMul)] for definers in made]
        if all(sides) and sides == [list(d) for d in made] and all(
            check.structure.same_member(one, two)[0] is HOLDS for one in sides[0] for two in sides[1]
        ):
            yield check.finding(
                "warning",
                (position,),
                f"{dot.left} and {dot.right} are made by different weights, so the average {dot.target} is 0 in the "
                "limit",
                f"the scale n**-0.5, {dot.target} = Dot({dot.left}, {dot.right}), or one weight for both",
            )


def _first_copy(node: Expr) -> Expr | None:
    return IndexValue(node.name[:-1]) if isinstance(node, IndexValue) and node.name.endswith("_") else None


def _second_moment(check: Context, vector: Variable, position: int, depth: int = 0) -> float:
    """Upper bound on E[Z^2], inf if none is cheap."""
    initial = check.structure.initial.get(vector.name)
    calculus = check.calculus
    if initial is not None:
        if not isinstance(initial.cov, Expr) or not isinstance(initial.mean, Expr) or initial.data is not None:
            return math.inf
        copies = rebuild(initial.cov, _first_copy)
        cov, mean = calculus.closed(copies), calculus.closed(initial.mean)
        return math.inf if cov is None or mean is None else cov[1] + max(abs(mean[0]), abs(mean[1])) ** 2
    profile = calculus.vector(vector, position)
    bound = max(abs(profile.low), abs(profile.high))
    definers = check.structure.definers(position, vector)
    statement = check.netsor.body[definers[0]] if len(definers) == 1 and depth < 8 else None
    if not isinstance(statement, MatMul):
        return bound**2
    variance = calculus.closed(check.netsor.weight[statement.weight.name].variance)
    return (
        math.inf if variance is None else variance[1] * _second_moment(check, statement.vector, definers[0], depth + 1)
    )


def clips(check: Context) -> Iterator[Finding]:
    """Clips whose bounds are never reached."""
    for position in sorted(check.structure.relevant):
        statement = check.netsor.body[position]
        if not isinstance(statement, Nonlin):
            continue
        for node in walk(statement.expr):
            if not (isinstance(node, Call) and node.atom == "clip" and isinstance(node.args[0], Variable)):
                continue
            low, high = (check.calculus.closed(p) for p in node.params)
            if low is None or high is None or check.netsor.families[node.args[0].name].kind != "vector":
                continue
            deviation = math.sqrt(_second_moment(check, node.args[0], position))
            if 0 < 8 * deviation < min(-low[1], high[0]):
                yield check.finding(
                    "warning",
                    (position,),
                    f"{node} is never active: {node.args[0]} has standard deviation at most "
                    f"{deviation:.3g} in the limit, and the bounds lie more than 8 of them away",
                )

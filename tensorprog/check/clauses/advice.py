"""Warnings beside Assumption 1: what does nothing, what rounding has spoilt, what this version does not compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tensorprog.check.clauses.context import Context, Rule, rule
from tensorprog.check.clauses.report import Finding
from tensorprog.check.graph import Structure
from tensorprog.language.expr import Call, Expr, IndexValue, Variable, rebuild, walk
from tensorprog.language.initials import initial_law
from tensorprog.language.ir import MatMul, Nonlin, Table

__all__ = ["WARNINGS"]

ADVICE = "advice, no clause of Assumption 1"
FAR = 8  # standard deviations that no coordinate reaches
FEW = 12  # statements that are never too large when they are written into each other


@rule("given covariances", ADVICE)
def rounded(check: Context) -> Iterator[Finding]:
    """Covariance matrices that rounding has made indefinite."""
    for initial in check.written.initial:
        if not isinstance(initial.cov, Table) or initial.data is not None:
            continue
        law = initial_law(check.written, initial)
        if law.error.any():
            top = float(np.diagonal(law.blocks, axis1=-2, axis2=-1).max())
            finding = check.finding(
                "warning",
                (),
                f"the covariance of {initial.name} has negative eigenvalues, within the rounding of its numbers; the "
                f"nearest covariance is taken, and its error of {float(law.error.max()) / top:.1e}, relative to the "
                "largest variance, is part of the errors of all results",
                "save it in double precision, or give the vectors themselves as data",
            )
            yield replace(finding, where=initial.name, line=initial.span.line)


@rule("unused statements", ADVICE)
def unused(check: Context) -> Iterator[Finding]:
    """Statements that no output depends on."""
    relevant = Structure.of(check.written).relevant
    idle = [s for position, s in enumerate(check.written.body) if position not in relevant]
    for statement in idle:
        yield check.finding(
            "warning",
            (check.rewritten.origin.index(str(statement.target)),),
            f"{statement.target} does not reach an output: it changes nothing, and no other rule looks at it",
            f"drop it, or add {statement.target.name} to the outputs",
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
        return math.inf if cov is None or mean is None else cov[1] + math.prod(2 * [max(map(abs, mean))])
    profile = calculus.vector(vector, position)
    bound = max(abs(profile.low), abs(profile.high))
    definers = check.structure.definers(position, vector)
    statement = check.netsor.body[definers[0]] if len(definers) == 1 and depth < 8 else None
    if not isinstance(statement, MatMul) or statement.transposed:  # beside W, W^T makes more than Gaussian vectors
        return bound * bound  # inf where it overflows
    variance = calculus.closed(check.netsor.weight[statement.weight.name].variance)
    return (
        math.inf if variance is None else variance[1] * _second_moment(check, statement.vector, definers[0], depth + 1)
    )


@rule("active clips", ADVICE)
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
            if 0 < FAR * deviation < min(-low[1], high[0]):
                yield check.finding(
                    "warning",
                    (position,),
                    f"{node} is never active: {node.args[0]} has standard deviation at most {deviation:.3g} in the "
                    f"limit, and the clip acts only beyond {min(-low[1], high[0]) / deviation:.3g} deviations",
                )


@rule("compiled limit", "this version of tensorprog")
def compiled(check: Context) -> Iterator[Finding]:
    """Numbers of the limit that this version does not compute, where the limit exists."""
    if check.failing or _plain(check):
        return
    for problem in check.numbers.uncompiled(check.netsor):
        span = problem.span
        position = next((p for p, s in enumerate(check.netsor.body) if s.span == span), None)
        where = span.text.partition(" = ")[0] if position is None else check.text(position)
        message = f"{problem.message}; networks of finite width are drawn all the same"
        fixes = (problem.fix,) if problem.fix else ()
        nodes = () if position is None else (where,)
        yield Finding("compiled limit", "warning", where, span.line, message, fixes, nodes=nodes)


def _plain(check: Context) -> bool:
    """Whether there is so little in a program that all of it is compiled, and the recursion need not be loaded.

    One layer of scores at most, without random averages, transposes, boundaries, or families in several pieces; and so
    few statements that they can be written into each other.
    """
    netsor, structure = check.netsor, check.structure
    return (
        len(netsor.body) <= FEW
        and not structure.behind_scores
        and not check.structure.converging & structure.random
        and not netsor.fixed_widths
        and not any(isinstance(statement, MatMul) and statement.transposed for statement in netsor.body)
        and not any(len(family.statements) > 1 for family in netsor.families.values())
        and not any(index.boundary for index in netsor.indices)
    )


WARNINGS: tuple[Rule, ...] = (clips, rounded, unused, compiled)

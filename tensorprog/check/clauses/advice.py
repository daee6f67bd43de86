"""Warnings beside Assumption 1: what does nothing, what rounding has spoilt, what this version does not compute."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.check.clauses.context import Context, Rule, rule
from tensorprog.check.clauses.report import Finding
from tensorprog.check.graph import Structure
from tensorprog.language.ir import MatMul

__all__ = ["WARNINGS"]

ADVICE = "advice, no clause of Assumption 1"
FEW = 12  # statements that are never too large when they are written into each other


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


WARNINGS: tuple[Rule, ...] = (unused, compiled)

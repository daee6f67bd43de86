"""What the limit of a program that has one does not compute yet; the grade is about the law, not about the program."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.check.clauses.context import Context
from tensorprog.check.clauses.report import Finding
from tensorprog.language.ir import MatMul

__all__ = ["compiled"]

FEW = 12  # statements that are never too large when they are written into each other


def compiled(check: Context) -> Iterator[Finding]:
    """Numbers of the limit that this version does not compute, where the limit exists."""
    if check.failing or _plain(check):
        return
    for problem in check.numbers.uncompiled(check.netsor):
        span = problem.span
        position = next((p for p, s in enumerate(check.netsor.body) if s.span == span), None)
        where = span.text.partition(" = ")[0] if position is None else check.text(position)
        message = f"{problem.message}; networks of finite width are drawn all the same"
        yield Finding("compiled limit", "warning", where, span.line, message, problem.fix,
                      nodes=() if position is None else (where,))  # fmt: skip


def _plain(check: Context) -> bool:
    """Whether there is so little in a program that all of it is compiled, and the compiler need not be loaded.

    One layer of scores at most, without random averages, transposes, boundaries, or families in several pieces; and so
    few statements that they can be written into each other.
    """
    netsor, structure = check.netsor, check.structure
    return (
        len(netsor.body) <= FEW
        and not structure.behind_scores
        and not check.converging & structure.random
        and not netsor.fixed_widths
        and not any(isinstance(statement, MatMul) and statement.transposed for statement in netsor.body)
        and not any(len(family.statements) > 1 for family in netsor.families.values())
        and not any(index.boundary for index in netsor.indices)
    )

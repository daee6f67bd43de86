"""What the limit of a program that has one does not compute yet; the grade is about the law, not about the program."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.assumptions.context import Context
from tensorprog.assumptions.report import Finding

__all__ = ["compiled"]


def compiled(check: Context) -> Iterator[Finding]:
    """Numbers of the limit that this version does not compute, where the limit exists."""
    if check.failing:
        return
    for problem in check.numbers.uncompiled(check.netsor):
        span = problem.span
        position = next((p for p, s in enumerate(check.netsor.body) if s.span == span), None)
        where = span.text.partition(" = ")[0] if position is None else check.text(position)
        message = f"{problem.message}; networks of finite width are drawn all the same"
        yield Finding("compiled limit", "warning", where, span.line, message, problem.fix,
                      nodes=() if position is None else (where,))  # fmt: skip

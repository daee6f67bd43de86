"""Cells of recurrences that this version does not compile, with the statement, its line, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from tensorprog.limit.form.definitions import is_layered, not_compiled
from tensorprog.limit.form.sums_of_functions import SumsOfFunctions, WeightedFunction

__all__ = ["bases_of", "refuse_cells"]


def bases_of(parts: Iterable[WeightedFunction]) -> set[str]:
    """The Gaussian families that parts of vectors read."""
    return {variable.name for part in parts for _, variable, _ in part.inner}


def refuse_cells(parts: SumsOfFunctions, random: frozenset[str], names: Iterable[str] | None = None) -> None:
    """Refuse gated cells of a recurrence that depend on scores, or that vectors which do, or `names`, read.

    Raises    NotCompiledError
    """
    families = parts.netsor.families
    vectors = {name for name in random if families[name].kind == "vector"} if names is None else set(names)
    read = bases_of(part for name in sorted(vectors - parts.carried) for part in parts.of(name)) | vectors
    spelled = set(parts.spelled) if is_layered(parts.netsor, random) else set[str]()
    for name in sorted((parts.carried - spelled) & read):
        raise not_compiled(
            parts.netsor.body[families[name].statements[-1]],  # which reads earlier members
            f"{name} is carried along a recurrence without a MatMul, and depends on scores or is read together with "
            "vectors that do",
            f"a MatMul in the recurrence, or {name} affine in its earlier members with numbers as coefficients, as in "
            "a residual stream",
        )

"""What of a program this version does not compile, from its statements alone: the check and the limit both ask here.

The law of a program exists where the check grades it; some laws are not computed yet.  Each case is a rule here, with
the statement, its line, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorprog.language.errors import NotCompiledError, Problem
from tensorprog.language.ir import Dot, Netsor
from tensorprog.language.schedule import upstream
from tensorprog.limit.form.definitions import is_layered, not_compiled, random_families, single
from tensorprog.limit.form.sums_of_functions import SumsOfFunctions, WeightedFunction

__all__ = ["bases_of", "refuse_cells", "uncompiled"]


def uncompiled(netsor: Netsor) -> list[Problem]:
    """What the limit of a program, rewritten as the check rewrites it, refuses of what its outputs depend on.

    Scale     independent of the sizes of families
    """
    found: dict[Problem, None] = {}
    try:
        names = upstream(netsor, netsor.outputs)
        netsor = single(replace(netsor, body=tuple(s for s in netsor.body if s.target.name in names)))
        parts, random = SumsOfFunctions(netsor), random_families(netsor)
        for name, family in netsor.families.items():
            if family.kind == "vector":
                try:
                    parts.of(name)
                except NotCompiledError as error:
                    found[error.problem] = None
        layered = is_layered(netsor, random)
        if not found and (layered or random & parts.carried):
            refuse_cells(parts, random)
        for s in netsor.body if not (found or layered) else ():
            if isinstance(s, Dot) and s.scale == "1/n" and s.target.name in random:
                refuse_cells(parts, random, [v.name for v in s.inputs])
    except NotCompiledError as error:
        return [error.problem]
    return list(found)


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

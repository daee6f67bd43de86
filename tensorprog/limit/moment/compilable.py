"""What of a program this version does not compile, from its statements alone: the check and the limit both ask here.

The law of a program exists where the check grades it; some laws are not computed yet.  Each case is a rule here, with
the statement, its line, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from tensorprog.language.errors import NotCompiledError, Problem
from tensorprog.language.ir import Dot, Netsor
from tensorprog.language.schedule import upstream
from tensorprog.limit.form.definitions import is_layered, not_compiled, random_families, single
from tensorprog.limit.form.sums_of_functions import SumsOfFunctions, WeightedFunction

__all__ = ["bases_of", "refuse_cells", "uncompiled"]


class Compiled(Protocol):
    """What the rules read, of the recursion or without one."""

    netsor: Netsor
    parts: SumsOfFunctions
    random: frozenset[str]


class Shape:
    """A program as the recursion takes it, without what no output depends on, and without any numbers."""

    def __init__(self, netsor: Netsor) -> None:
        names = upstream(netsor, netsor.outputs)
        self.netsor = single(replace(netsor, body=tuple(s for s in netsor.body if s.target.name in names)))
        self.parts = SumsOfFunctions(self.netsor)
        self.random = random_families(self.netsor)


def uncompiled(netsor: Netsor) -> list[Problem]:
    """What the limit of a program, rewritten as the check rewrites it, refuses of what its outputs depend on.

    Scale     independent of the sizes of families
    """
    found: dict[Problem, None] = {}
    try:
        shape = Shape(netsor)
        for name, family in shape.netsor.families.items():
            if family.kind == "vector":
                try:
                    shape.parts.of(name)
                except NotCompiledError as error:
                    found[error.problem] = None
        layered = is_layered(shape.netsor, shape.random)
        if not found and (layered or shape.random & shape.parts.carried):
            refuse_cells(shape)
        for s in shape.netsor.body if not (found or layered) else ():
            if isinstance(s, Dot) and s.scale == "1/n" and s.target.name in shape.random:
                refuse_cells(shape, [v.name for v in s.inputs])
    except NotCompiledError as error:
        return [error.problem]
    return list(found)


def bases_of(parts: Iterable[WeightedFunction]) -> set[str]:
    """The Gaussian families that parts of vectors read."""
    return {variable.name for part in parts for _, variable, _ in part.inner}


def refuse_cells(shape: Compiled, names: Iterable[str] | None = None) -> None:
    """Refuse gated cells of a recurrence that depend on scores, or that vectors which do, or `names`, read.

    Raises    NotCompiledError
    """
    families, parts = shape.netsor.families, shape.parts
    vectors = {name for name in shape.random if families[name].kind == "vector"} if names is None else set(names)
    read = bases_of(part for name in sorted(vectors - parts.carried) for part in parts.of(name)) | vectors
    spelled = set(parts.spelled) if is_layered(shape.netsor, shape.random) else set[str]()
    for name in sorted((parts.carried - spelled) & read):
        raise not_compiled(
            shape.netsor.body[families[name].statements[-1]],  # which reads earlier members
            f"{name} is carried along a recurrence without a MatMul, and depends on scores or is read together with "
            "vectors that do",
            f"a MatMul in the recurrence, or {name} affine in its earlier members with numbers as coefficients, as in "
            "a residual stream",
        )

"""What of a program this version does not compile, from its statements alone: the check and the limit both ask here.

The law of a program exists where the check grades it; some laws are not computed yet.  Each case is a rule here, with
the statement, its line, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, Protocol

from tensorprog.language.errors import NotCompiledError, Problem
from tensorprog.language.ir import Dot, MatMul, Netsor
from tensorprog.language.schedule import upstream
from tensorprog.limit.form.definitions import is_layered, not_compiled, random_families, reduces_numbered, single
from tensorprog.limit.form.sums_of_functions import SumsOfFunctions, WeightedFunction
from tensorprog.limit.form.univariate import smooth
from tensorprog.limit.moment.reduced import sums_over_vectors

__all__ = ["bases_of", "refuse_cells", "refuse_sums", "uncompiled"]

MOST_FORMS = 2  # independent affine forms of one function


class Compiled(Protocol):
    """What the rules read, of the recursion or without one."""

    netsor: Netsor
    parts: SumsOfFunctions
    random: frozenset[str]


class Shape:
    """A program as the recursion takes it, without any numbers."""

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = single(needed(netsor))
        self.parts = SumsOfFunctions(self.netsor)
        self.random = random_families(self.netsor)


def uncompiled(netsor: Netsor) -> list[Problem]:
    """What the limit of a program, rewritten as the check rewrites it, refuses of what its outputs depend on.

    Scale     independent of the sizes of families
    """
    try:
        shape = Shape(netsor)
    except NotCompiledError as error:
        return [error.problem]
    found: dict[Problem, None] = {}
    for level in _asked(shape):
        for asked in level:
            try:
                asked()
            except NotCompiledError as error:
                found[error.problem] = None
        if found:  # what follows from it is not said again
            break
    return list(found)


def _asked(shape: Shape) -> Iterator[list[Callable[[], Any]]]:
    """Calls that raise NotCompiledError for what is not compiled, in an order in which none explains one before."""
    netsor, body, layered = shape.netsor, shape.netsor.body, is_layered(shape.netsor, shape.random)
    yield [partial(shape.parts.of, name) for name, family in netsor.families.items() if family.kind == "vector"]
    if layered or shape.random & shape.parts.carried:
        yield [partial(refuse_cells, shape)]
    if layered:  # second moments given the scores are needed of what weights multiply, of averages, and of outputs
        products = (statement.vector.name for statement in body if isinstance(statement, MatMul))
        integrands = (v.name for s in body if isinstance(s, Dot) and s.scale == "1/n" for v in s.inputs)
        for names in ((*products, *integrands), netsor.outputs):
            yield [partial(refuse_sums, shape, name) for name in dict.fromkeys(names)]
    else:
        averages = [s for s in body if isinstance(s, Dot) and s.scale == "1/n" and s.target.name in shape.random]
        yield [partial(refuse_cells, shape, [v.name for v in s.inputs]) for s in averages]


def needed(netsor: Netsor) -> Netsor:
    """The program without what no output depends on."""
    names = upstream(netsor, netsor.outputs)
    body = tuple(statement for statement in netsor.body if statement.target.name in names)
    return netsor if len(body) == len(netsor.body) else replace(netsor, body=body)


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
    for name in sorted(parts.carried & read):
        raise not_compiled(
            shape.netsor.body[families[name].statements[-1]],  # which reads earlier members
            f"{name} is carried along a recurrence without a MatMul, and depends on scores or is read together with "
            "vectors that do",
            f"a MatMul in the recurrence, or {name} affine in its earlier members with numbers as coefficients, as in "
            "a residual stream; where it is divided by averages, as behind a norm, one statement for each step",
        )


def _apart(parts: SumsOfFunctions, factor: WeightedFunction) -> bool:
    """Whether a factor is a smooth function of few affine forms in vectors of different weights."""
    assert factor.function is not None
    body, forms = parts.numbered(factor.function)
    sources = [{parts.source(variable.name) for _, variable, _ in form} for form in forms]
    initial = sum(any(parts.source(variable.name) == variable.name for _, variable, _ in form) for form in forms)
    return (len(forms) <= MOST_FORMS and smooth(body) and not reduces_numbered(body) and initial < 2
            and all(one.isdisjoint(two) for one, two in combinations(sources, 2)))


def refuse_sums(shape: Compiled, name: str) -> None:
    """Refuse a vector behind several layers that is a nonlinear function of several vectors, sums over them inside.

    Smooth functions of affine forms that are independent are compiled (`gaussian.apart`).  Moments of others would be
    found point by point for each draw, which takes minutes.  Of several such vectors on the way the first is named.

    Raises    NotCompiledError
    """
    families, parts = shape.netsor.families, shape.parts

    def refused(each: str) -> bool:
        return each in shape.random and families[each].kind == "vector" and any(
            sums_over_vectors(parts, factor) and not _apart(parts, factor)
            for part in parts.of(each) for factor in parts.factors_of(part)
        )  # fmt: skip

    if not refused(name):
        return
    first = next(each for each in sorted(upstream(shape.netsor, [name]), key=lambda each: families[each].statements)
                 if refused(each))  # fmt: skip
    statements = [shape.netsor.body[position] for position in families[first].statements]
    raise not_compiled(
        next((s for s in statements if not isinstance(s, MatMul)), statements[0]),
        f"{first} depends on scores, and is a nonlinear function of several vectors with a sum over an index in it",
        "a smooth function such as gelu for one with kinks, a function of the sum alone, a linear function, or a "
        "weight between the two",
    )

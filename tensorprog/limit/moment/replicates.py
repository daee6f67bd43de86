"""Replicates of draws: the points they take, and an axis of values and moments until a number leaves the compiler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.several import REPLICATES, normal_points, standard_errors
from tensorprog.language.evaluate import Open, gather
from tensorprog.language.expr import Variable
from tensorprog.language.ir import Family, Range
from tensorprog.limit.moment.indexed import Term
from tensorprog.limit.moment.values import IndexedValues, Value

__all__ = ["REPLICATE", "REPLICATES", "Settled", "members_read", "point_sets", "settled"]

Settled = TypeVar("Settled", IndexedValues, Value)
Array = NDArray[Any]
REPLICATE = "&"  # the axis of replicates
SOBOL_DIMENSIONS = 512  # beyond, they gain little over pseudo-random numbers, which are made 20 times as fast


def members_read(
    values: Array, reference: Variable, family: Family, ranges: Mapping[str, Range], *after: str
) -> Open:
    """The members of a family that a reference reads, for every replicate.

    Shapes    values (replicates, *members, *after) -> over REPLICATE, the indices of the reference and `after`
    """
    slots = {str(k): slot for k, slot in enumerate(reference.slots)}
    starts = {str(k): start for k, (start, _) in enumerate(family.ranges)}
    return gather(Open((REPLICATE, *slots, *after), values), slots, ranges, starts)


def settled(found: Settled) -> Settled:
    """The mean over replicates of a value or a moment; its statistical error is part of the error."""
    if isinstance(found, IndexedValues):
        terms = tuple(Term(term.equations, settled(term.value)) for term in found.terms)
        return IndexedValues(terms, {k: v for k, v in found.ranges.items() if k != REPLICATE})
    if REPLICATE not in found.axes:
        return found
    axes: tuple[str, ...] = tuple(name for name in found.axes if name != REPLICATE)
    each = found.aligned((REPLICATE, *axes))
    error = standard_errors(each.value) + each.error.mean(axis=0)
    return Value(axes, Estimate(np.asarray(each.value.mean(axis=0)), error))


def point_sets(dim: int, log2: int, seed: int) -> Iterator[Array]:
    """Replicates of quasi-random normals, one at a time; pseudo-random beyond the dimensions of Sobol sequences."""
    if dim <= SOBOL_DIMENSIONS:
        for r in range(REPLICATES):
            yield normal_points(dim, log2, 1, seed + 7919 * r)[0]
    else:
        for r in range(REPLICATES):
            generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(1 << 32, r))))
            yield generator.standard_normal((1 << log2, dim))

"""What the check asks of the limit's numbers: where a score that is too large goes.

A score u.v / sqrt(n) divided by sqrt(n) converges to E[Z^u Z^v | p-ring], which `coefficients` gives at a few draws of
p-ring.

Source    Sakai et al. 2025 (arXiv 2506.00846), Theorem 1
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import MemoryLimitError
from tensorprog.language.ir import MatMul, Netsor
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.law.conditional_moments import DrawSource, in_box
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["coefficients"]

Array = NDArray[Any]

DRAWS, FEWEST = 64, 8
NUMBERS = 1 << 22  # held by all draws together
LOOKED_AT = 1 << 4  # members of the average
LISTED = 1 << 20  # of an average that is a number
SMALL, NEARBY = 1e-3, 1 + 1e-9  # values that may be rounding, and how far off draws are that tell
COVARIANCES = 1 << 22  # of the outputs of one weight family, which are factored


def coefficients(netsor: Netsor, name: str) -> tuple[Array, Array, Box, bool]:
    """Values and errors of an average at draws of p-ring, its members that were looked at, and whether these are all.

    Of large families the first few members along each index are looked at.  An average that no score reaches has one
    draw.

    Shapes    (draws, *members), twice
    Scale     at most NUMBERS numbers are held for the draws
    Accuracy  bounds where integrals are in closed form or by quadrature, else it holds with a probability of 99.9 %
    Raises    NotCompiledError, AccuracyError, MemoryLimitError
    """
    recursion = NumericRecursion(netsor)
    spans, random = recursion.netsor.families[name].ranges, name in recursion.random
    along = len(spans) and max(2, int((LOOKED_AT if random else LISTED) ** (1 / len(spans))))
    box = tuple((start, min(stop, start + along)) for start, stop in spans)
    if not random:
        value, error = in_box(recursion, recursion.average(name), name, box)
        return value[None], error[None], box, box == spans
    largest = max((_covariances(netsor, s) for s in netsor.body if isinstance(s, MatMul)), default=0)
    if largest > COVARIANCES:
        raise MemoryLimitError(f"{largest} covariances of the outputs of one family of weights are too many to factor")
    source = DrawSource(recursion, [(name, box)])
    numbers = max(1, source.dim, source.draws.width)
    if NUMBERS // numbers < FEWEST:
        raise MemoryLimitError(f"{numbers} numbers for a draw are too many")
    points = np.random.default_rng(0).standard_normal((min(DRAWS, NUMBERS // numbers), source.dim))

    def drawn(points: Array) -> Array:
        with source.at(points) as found:
            return source.mean(found, 0)

    value = drawn(points)
    error = source.inner + source.off("mean") + source.relative * np.abs(value)
    if np.max(np.abs(value), initial=0.0) < SMALL:  # what cancels leaves rounding, which nearby draws do not share
        error = error + np.abs(drawn(NEARBY * points) - value).max(axis=0)
    return value, error, box, box == spans


def _covariances(netsor: Netsor, statement: MatMul) -> int:
    """Between the outputs of the same member of a weight."""
    members, weights = (math.prod(netsor.families[v.name].shape) for v in (statement.target, statement.weight))
    return members * max(1, members // weights)

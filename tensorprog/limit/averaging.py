"""Averages over p-ring to a stated error: replicates of randomised quasi-Monte Carlo, doubled until they agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.errors import AccuracyError
from tensorprog.gaussian.qmc import normal_points

__all__ = ["REPLICATES", "converge"]

Array = NDArray[Any]
REPLICATES = 16
MIN_LOG2, AIM_LOG2, MAX_LOG2 = 8, 15, 18  # points per replicate: first, last without and with an accuracy asked for
AIM = 1e-4  # error aimed at, relative where numbers exceed 1
SOBOL_DIMENSIONS = 21_000
AIM_NUMBERS, MAX_NUMBERS = 1 << 22, 1 << 26  # normals per replicate, without and with an accuracy asked for


def converge(
    dim: int,
    replicate: Callable[[Array], Any],
    finish: Callable[[Sequence[Any]], tuple[Array, Array]],
    what: str,
    *,
    accuracy: float | None,
    seed: int,
    most: int = 1 << MAX_LOG2,
) -> tuple[Array, Array]:
    """Double the number of points per replicate until the error asked for is met, up to `most` points.

    Without an explicit accuracy the aim is AIM, and what is reached within 2**AIM_LOG2 points is returned as it is.
    Raises    AccuracyError when an explicit accuracy is not met
    """
    if dim == 0:
        return finish([replicate(np.zeros((1, 0)))])
    target = AIM if accuracy is None else accuracy
    most = max(1 << 4, min(most, (AIM_NUMBERS if accuracy is None else MAX_NUMBERS) // dim))
    last = min(AIM_LOG2 if accuracy is None else MAX_LOG2, int(math.log2(most)))
    log2 = min(MIN_LOG2, last)
    while True:
        value, error = finish([replicate(points) for points in _points(dim, log2, seed)])
        known = np.isfinite(value)  # a constant has no kurtosis
        size = float(np.max(np.abs(value), initial=0.0, where=known))
        worst = float(np.max(error, initial=0.0, where=known)) / max(1.0, size)
        if worst <= target:
            return value, error
        if log2 >= last:
            if accuracy is None:
                return value, error
            raise AccuracyError(
                f"{what}: error {worst:.1e} after {REPLICATES * 2**log2} points, {target:.1e} asked for; "
                "ask for less with accuracy="
            )
        log2 = min(last, log2 + max(1, math.ceil(math.log2(worst / target) / 1.5)))


def _points(dim: int, log2: int, seed: int) -> Iterator[Array]:
    """Replicates of quasi-random normals, one at a time; pseudo-random beyond the dimensions of Sobol sequences."""
    if dim <= SOBOL_DIMENSIONS:
        for r in range(REPLICATES):
            yield normal_points(dim, log2, 1, seed + 7919 * r)[0]
    else:
        for r in range(REPLICATES):
            generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(1 << 32, r))))
            yield generator.standard_normal((1 << log2, dim))

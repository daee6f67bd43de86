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


def converge(
    dim: int,
    replicate: Callable[[Array], Any],
    finish: Callable[[Sequence[Any]], tuple[Array, Array]],
    what: str,
    accuracy: float | None,
    seed: int,
) -> tuple[Array, Array]:
    """Double the number of points per replicate until the error asked for is met.

    Without an explicit accuracy the aim is AIM, and what is reached within AIM_LOG2 doublings is returned as it is.
    """
    if dim == 0:
        return finish([replicate(np.zeros((1, 0)))])
    target = AIM if accuracy is None else accuracy
    last = AIM_LOG2 if accuracy is None else MAX_LOG2
    log2 = MIN_LOG2
    while True:
        value, error = finish([replicate(points) for points in _points(dim, log2, seed)])
        size = float(np.max(np.abs(value), initial=1e-300))
        worst = float(np.max(error, initial=0.0)) / max(1.0, size)
        if worst <= target:
            return value, error
        if log2 >= last or (1 << log2) * REPLICATES * dim > 1 << 31:
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

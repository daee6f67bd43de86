"""Averages over draws: from 16 replicates of randomised quasi-Monte Carlo, whose points are doubled until they do.

Every replicate goes through the whole computation, so the spread of what comes out is the one statistical error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import REPLICATES, point_sets
from tensorprog.language.errors import AccuracyError
from tensorprog.limit.memory import numbers_at_once

__all__ = ["average", "pieces"]

Array = NDArray[Any]
FIRST_LOG2, AIM_LOG2, MAX_LOG2 = 9, 15, 18  # points per replicate: first, last without and with an accuracy asked for
AIM = 1e-4  # error aimed at, relative where numbers exceed 1
FEWEST = 2  # points per replicate
STUCK = 0.97  # of the error before, or the other way round: points that matter change it more
AIM_NUMBERS, MAX_NUMBERS = 1 << 22, 1 << 26  # normals per replicate, without and with an accuracy asked for


def pieces(sets: Iterable[Array], most: int) -> Iterator[list[tuple[int, Array]]]:
    """The points of several replicates, so many at a time, each part with the number of its replicate."""
    held: list[tuple[int, Array]] = []
    for number, points in enumerate(sets):
        for start in range(0, len(points), most):
            part = points[start : start + most]
            if held and sum(len(other) for _, other in held) + len(part) > most:
                yield held
                held = []
            held.append((number, part))
    if held:
        yield held


def average(
    dim: int, read: Callable[[Iterable[Array]], Sequence[Any]],
    finish: Callable[[Sequence[Any]], tuple[Array, Array]], what: str, *,
    accuracy: float | None, seed: int, aim: float = AIM, width: int = 1, most: int | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """A number and its error from what is `read` of every replicate, with twice as many points until that is small.

    `read` takes the points of each replicate that it has not had before, and gives what it has read of all.

    Without an explicit accuracy the aim is `aim`, and what is reached within 2**AIM_LOG2 points, or AIM_NUMBERS numbers
    where a point takes `width` of them, or `most` points, is returned as it is.  An error that more points hardly lower
    is not theirs: there are no more.

    Raises    AccuracyError when an explicit accuracy is not met
    """
    if dim == 0:
        return finish(read([np.zeros((1, 0))]))
    target = aim if accuracy is None else accuracy
    # as points are made, and as they are used
    numbers = numbers_at_once(AIM_NUMBERS if accuracy is None else MAX_NUMBERS, 3)
    most = max(FEWEST, min(1 << MAX_LOG2 if most is None else most, numbers // max(dim, width)))
    last = min(AIM_LOG2 if accuracy is None else MAX_LOG2, int(math.log2(most)))
    log2, done, before = min(FIRST_LOG2, last), 0, math.inf
    while True:
        value, error = finish(read(point_sets(dim, log2, seed, done)))
        known = np.isfinite(value)  # a constant has no kurtosis
        size = float(np.max(np.abs(value), initial=0.0, where=known))
        worst = float(np.max(error, initial=0.0, where=known)) / max(1.0, size)
        stuck = accuracy is None and STUCK * before < worst < before / STUCK
        if worst <= target or (accuracy is None and (log2 >= last or stuck)):
            return value, error
        if log2 >= last:
            raise AccuracyError(
                f"{what} has an error of {worst:.1e} after {REPLICATES * 2**log2:,} draws, and {target:.1e} was asked "
                f"for (errors of numbers above 1 are relative): ask for less with accuracy={worst:.1g}"
            )
        steps = worst / target
        more = max(1, math.ceil(math.log2(steps) / 1.5)) if steps < math.inf else last
        before, done, log2 = worst, 1 << log2, min(last, log2 + more)

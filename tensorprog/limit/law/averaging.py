"""Averages over p-ring: the number and error of averages over several sets of points, and how many points are drawn.

In up to four dimensions the sets may be two product rules (`ORDERS`, of which `outputs` makes the points); else they
are replicates of randomised quasi-Monte Carlo, whose points `converge` doubles until the error is small enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import REPLICATES, point_sets, standard_errors
from tensorprog.language.errors import AccuracyError
from tensorprog.limit.memory import numbers_at_once

__all__ = ["ORDERS", "Averaging", "converge", "pieces"]

Array = NDArray[Any]
MIN_LOG2, AIM_LOG2, MAX_LOG2 = 8, 15, 18  # points per replicate: first, last without and with an accuracy asked for
AIM = 1e-4  # error aimed at, relative where numbers exceed 1
FEWEST = 2  # points per replicate
STUCK = 0.97  # of the error before, or the other way round: points that matter change it more
AIM_NUMBERS, MAX_NUMBERS = 1 << 22, 1 << 26  # normals per replicate, without and with an accuracy asked for
# nodes per dimension of the finer and the coarser Gauss-Hermite rule, up to four dimensions: an even number and an odd
# one, which has a node at 0, so that a jump or a kink there does not look alike to both
ORDERS = {1: (64, 55), 2: (48, 41), 3: (32, 27), 4: (24, 19)}


@dataclass(frozen=True)
class Averaging:
    """How averages over several sets of draws make one number with its error.

    Sets are replicates of quasi-Monte Carlo (their mean, its standard error times Student's t), or two rules with
    nodes of their own (the finer one, and three times how far the coarser one is from it).
    """

    orders: bool = False

    def value(self, sets: Array) -> Array:
        """The number, from averages over each set (sets, ...)."""
        return np.asarray(sets[0] if self.orders else sets.mean(axis=0))

    def error(self, sets: Array) -> Array:
        """Its error."""
        if not self.orders:
            return standard_errors(sets)
        with np.errstate(invalid="ignore"):
            error = 3 * np.abs(sets[1] - sets[0])
        return np.asarray(np.where(np.isnan(error), np.inf, error))


def pieces(sets: Iterable[Array], most: int, joined: bool) -> Iterator[list[tuple[int, Array]]]:
    """The points of several replicates some at a time, each with the number of its replicate; those of several
    replicates at a time where they may be `joined`.
    """
    held: list[tuple[int, Array]] = []
    for number, points in enumerate(sets):
        for start in range(0, len(points), most):
            part = points[start : start + most]
            if held and (not joined or sum(len(other) for _, other in held) + len(part) > most):
                yield held
                held = []
            held.append((number, part))
    if held:
        yield held


def converge(
    dim: int,
    replicates: Callable[[Iterable[Array]], Sequence[Any]],
    finish: Callable[[Sequence[Any]], tuple[Array, Array]],
    what: str,
    *,
    accuracy: float | None,
    seed: int,
    aim: float | None = None,
    width: int = 1,
    most: int | None = None,
    first: int = MIN_LOG2,
) -> tuple[Array, Array]:
    """Double the number of points per replicate until the error asked for is met, from 2**first up to `most` points.

    Without an explicit accuracy the aim is `aim` (AIM by default), and what is reached within 2**AIM_LOG2 points, or
    AIM_NUMBERS numbers where a point takes `width` of them, is returned as it is.  An error that more points hardly
    lower is not theirs: there are no more.
    Raises    AccuracyError when an explicit accuracy is not met
    """
    if dim == 0:
        return finish(replicates([np.zeros((1, 0))]))
    target = (AIM if aim is None else aim) if accuracy is None else accuracy
    # as points are made, and as they are used
    numbers = numbers_at_once(AIM_NUMBERS if accuracy is None else MAX_NUMBERS, 3)
    most = max(FEWEST, min(1 << MAX_LOG2 if most is None else most, numbers // max(dim, width)))
    last = min(AIM_LOG2 if accuracy is None else MAX_LOG2, int(math.log2(most)))
    log2, before = min(first, last), math.inf
    while True:
        value, error = finish(replicates(point_sets(dim, log2, seed)))
        known = np.isfinite(value)  # a constant has no kurtosis
        size = float(np.max(np.abs(value), initial=0.0, where=known))
        worst = float(np.max(error, initial=0.0, where=known)) / max(1.0, size)
        if worst <= target:
            return value, error
        stuck = accuracy is None and STUCK * before < worst < before / STUCK
        if log2 >= last or stuck:
            if accuracy is None:
                return value, error
            raise AccuracyError(
                f"{what} has an error of {worst:.1e} after {REPLICATES * 2**log2:,} draws, and {target:.1e} was asked "
                f"for (errors of numbers above 1 are relative): ask for less with accuracy={worst:.1g}"
            )
        before, steps = worst, worst / target
        more = math.ceil(math.log2(steps) / 1.5) if steps < math.inf else last
        log2 = min(last, log2 + max(1, more))

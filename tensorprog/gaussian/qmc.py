"""Gaussian expectations in many dimensions by randomised quasi-Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.integrand import Integrand, JointIntegrand

if TYPE_CHECKING:
    from scipy.stats import qmc

Array = NDArray[np.floating]

__all__ = ["REPLICATES", "deviations", "expect", "normal_points", "quasi_monte_carlo", "standard_errors"]

REPLICATES = 16
KEPT = 1 << 22  # coordinates of points that are kept for the next function: larger sets are made again
COVERED = 0.999  # of errors from replicates hold
FIRST_LOG2 = 7  # points for a replicate, to begin with
MOST, LEAST = 1 << 20, 1 << 14  # points for a member, alone and in a large batch
BUDGET = 1 << 26  # multiplications for a batch of middling size


def normal_points(dim: int, log2_size: int, replicates: int, seed: int) -> Array:
    """Independently scrambled Sobol point sets, mapped to standard normal coordinates.

    The points of (log2_size) are the first half of those of (log2_size + 1) with the same seed: sizes can be doubled.

    Shapes    -> (replicates, 2**log2_size, dim)
    Accuracy  each point is marginally N(0, I); all values finite (uniforms are kept inside [2**-54, 1 - 2**-54])
    Raises    ValueError if dim or replicates is below 1 or log2_size below 0
    Source    Owen 1995 (scrambling); scipy.stats.qmc.Sobol, which uses the direction numbers of Joe & Kuo 2008
    """
    if dim < 1 or replicates < 1 or log2_size < 0:
        raise ValueError(f"need dim >= 1, replicates >= 1, log2_size >= 0; got {dim}, {replicates}, {log2_size}")
    points = np.empty((replicates, 2**log2_size, dim))
    for i in range(replicates):
        points[i] = copy(_scrambled(dim, seed, i)).reset().random_base2(log2_size)
    # multiples of 2^-52 in [0, 1): move to the middle of their cell, so that neither 0 nor 1 occurs
    points += 2.0**-54
    np.clip(points, 2.0**-54, 1 - 2.0**-54, out=points)
    return np.asarray(special.ndtri(points, out=points))


@lru_cache(maxsize=64)
def _scrambled(dim: int, seed: int, replicate: int) -> qmc.Sobol:
    """A scrambled sequence at its start; scrambling takes longer than the first few hundred points."""
    from scipy.stats import qmc  # slow to import, needed only here

    child = np.random.SeedSequence(seed, spawn_key=(replicate,))
    return qmc.Sobol(dim, scramble=True, bits=52, rng=np.random.default_rng(child))


def _point_sets(dim: int, log2_size: int, replicates: int, seed: int) -> Array:
    few = dim * 2**log2_size * replicates <= KEPT
    return (_kept_points if few else normal_points)(dim, log2_size, replicates, seed)


@lru_cache(maxsize=2)
def _kept_points(dim: int, log2_size: int, replicates: int, seed: int) -> Array:
    return normal_points(dim, log2_size, replicates, seed)


def standard_errors(replicates: Sequence[Array] | Array) -> Array:
    """How far the mean over replicates, the first axis, may be off: its standard error times Student's t.

    0 without replicates, for what is exact.

    Accuracy  holds with a probability of COVERED if replicates are Gaussian
    """
    count = len(replicates)
    if count < 2:
        return np.zeros(np.shape(replicates)[1:])
    mean = sum(replicates[1:], start=replicates[0]) / count
    squares = np.zeros(np.shape(mean))
    for replicate in replicates:  # one at a time: they may be large
        squares += np.square(replicate - mean)
    return np.asarray(deviations(count) * np.sqrt(squares / (count * (count - 1))))


@lru_cache(maxsize=16)
def deviations(count: int = REPLICATES) -> float:
    """How many standard errors are stated for a mean over so many replicates: 4.07 for 16."""
    return float(special.stdtrit(count - 1, 0.5 + COVERED / 2))


def expect(
    call: Callable[[Array], Array],
    mean: ArrayLike,
    cov: ArrayLike,
    *,
    tolerance: float = 1e-6,
    min_log2: int = 10,
    max_log2: int = 16,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Estimate:
    """E call(Z) for Z ~ N(mean, cov) in d dimensions, cov singular or not.

    The size doubles from 2**min_log2 until error <= tolerance * sqrt(E call(Z)**2) everywhere, or 2**max_log2.

    Shapes    call maps z of shape batch + (d, m) to batch + (m,); mean batch + (d,), cov batch + (d, d), which
              broadcast -> Estimate of shape batch
    Scale     any units
    Accuracy  error = that of `standard_errors` (a statistical bound, not a certain one) plus rounding;
              deterministic given seed
    Raises    ValueError if fewer than 2 replicates or impossible sizes are asked for,
              FloatingPointError if call returns nan
    """
    if replicates < 2 or min_log2 > max_log2:
        raise ValueError(f"need replicates >= 2 and min_log2 <= max_log2; got {replicates}, {min_log2}, {max_log2}")
    mu, sigma = np.asarray(mean, dtype=np.float64), np.asarray(cov, dtype=np.float64)
    mu = np.broadcast_to(mu, (*np.broadcast_shapes(mu.shape[:-1], sigma.shape[:-2]), mu.shape[-1]))
    return _by_doubling(JointIntegrand(call, mu, sigma, False, tolerance), min_log2, max_log2, replicates, seed)


def quasi_monte_carlo(integrand: Integrand) -> Callable[[JointIntegrand], Estimate] | None:
    """The last method: any function of several variables, fewer points for each member of a larger batch."""
    if not isinstance(integrand, JointIntegrand):
        return None
    last = int(math.log2(most_points(integrand) // REPLICATES))
    return lambda part: _by_doubling(part, FIRST_LOG2, last, REPLICATES, 7919)


def most_points(integrand: JointIntegrand) -> int:
    """How many points a member may take."""
    shape: tuple[int, ...] = integrand.mu.shape
    return min(MOST, max(LEAST, BUDGET // max(1, math.prod(shape) * shape[-1])))


def _by_doubling(integrand: JointIntegrand, min_log2: int, max_log2: int, replicates: int, seed: int) -> Estimate:
    """Twice the points for every replicate, until the error is within the tolerance."""
    d = integrand.mu.shape[-1]
    total, square, done = np.zeros((replicates, *integrand.shape)), np.zeros(integrand.shape), 0
    for log2_size in range(min_log2, max_log2 + 1):
        # a zero-dimensional Gaussian needs no points: the function is a constant
        points = _point_sets(max(d, 1), log2_size, replicates, seed)[:, done:, :d]
        for number, new in enumerate(points):
            sums = integrand.sums(new, np.ones(len(new)))
            total[number] += sums[0]
            square += sums[1]
        done = 2**log2_size
        averages = total / done
        size = np.sqrt(square / (done * replicates))
        error = standard_errors(averages) + 8 * EPS * size
        if np.all(error <= integrand.tolerance * size):
            break
    return Estimate(np.asarray(averages.mean(axis=0)), np.asarray(error))

"""Functions of several Gaussian variables: product rules for smooth ones, randomised quasi-Monte Carlo for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.function import counted
from tensorprog.gaussian.integrand import Integrand
from tensorprog.gaussian.rules import product_points
from tensorprog.gaussian.sobol import SOBOL_DIMENSIONS, scrambled_sobol
from tensorprog.language.linalg import pivoted_cholesky

Array = NDArray[np.floating]

__all__ = [
    "REPLICATES",
    "JointIntegrand",
    "deviations",
    "gauss_hermite",
    "normal_points",
    "point_sets",
    "quasi_monte_carlo",
    "rising_orders",
    "spread_factor",
    "standard_errors",
]

REPLICATES = 16
SEED = 7919
KEPT = 1 << 22  # coordinates of points that are kept for the next function: larger sets are made again
COVERED = 0.999  # of errors from replicates hold
FIRST_LOG2 = 7  # points for a replicate, to begin with
MOST, LEAST = 1 << 20, 1 << 14  # points for a member, alone and in a large batch
BUDGET = 1 << 26  # multiplications for a batch of middling size
NUMBERS = 1 << 17  # held at once for the points of a batch: they stay in cache
ROUGH = 4096  # points that tell the size of a function
# two differences tell the error of the largest; even and odd by turns, as odd ones have a node at 0: what happens there
# does not look alike to both
ORDERS = (7, 10, 13, 16, 23, 32, 45, 64)
NEGLIGIBLE = 1e-18  # weights of nodes
FINE = 1e-6  # asked of a rule, relative to the size of the function, where less is enough


@dataclass(frozen=True, eq=False)
class JointIntegrand(Integrand):
    """One function of several variables.

    Shapes    call maps z of shape batch + (dim, m) to batch + (m,); mu batch + (dim,), cov batch + (dim, dim)
    """

    call: Callable[[Array], Array]
    mu: Array
    cov: Array
    smooth: bool
    tolerance: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the batch."""
        return self.mu.shape[:-1]

    @cached_property
    def norm(self) -> Array:
        """sqrt(E call(Z)^2), roughly, in few dimensions."""
        dim = self.mu.shape[-1]
        order = min(8, int(ROUGH ** (1 / dim)))
        return np.sqrt(self.sums(*product_points(dim, order))[1]) if order > 1 else np.full(self.shape, np.nan)

    @cached_property
    def factor(self) -> Array:
        """L with L L^T = cov."""
        return spread_factor(self.cov)

    def sums(self, points: Array, weights: Array) -> tuple[Array, Array]:
        """Sums of weights * call and of weights * call**2 over points of N(0, I), in chunks that bound the memory.

        Shapes    points (m, dim), weights (m,) -> batch, twice
        Raises    FloatingPointError if call returns nan
        """
        m, d = points.shape
        chunk = max(1, NUMBERS // max(1, math.prod(self.shape) * d))
        value, square = np.zeros(self.shape), np.zeros(self.shape)
        for start in range(0, m, chunk):
            part = slice(start, start + chunk)
            z = self.mu[..., None] + np.matmul(self.factor, points[part].T)
            counted(z.size)
            f = np.broadcast_to(np.asarray(self.call(z), dtype=np.float64), (*self.shape, z.shape[-1]))
            if np.isnan(f).any():
                raise FloatingPointError("a function in a Gaussian expectation returned nan")
            value, square = value + f @ weights[part], square + np.square(f) @ weights[part]
        return np.asarray(value), np.asarray(square)


def spread_factor(cov: Array) -> Array:
    """L with L L^T = cov, singular or not, of which small changes of cov make small changes.

    Among rows that would do equally well the first is taken, whatever their rounding, so that effects of errors in
    cov can be seen as differences over the same points.

    Shapes    cov (..., d, d) -> (..., d, d)
    """
    d = cov.shape[-1]
    if not d:
        return np.zeros(cov.shape)
    return pivoted_cholesky(cov, np.einsum("...ii->...i", cov) * (1 + np.arange(d) / 64))[0]


# -- product rules -----------------------------------------------------------------------------------------------------


def gauss_hermite(integrand: Integrand) -> Callable[[JointIntegrand], Estimate] | None:
    """Differences of rules are the error: they mean something for smooth functions only."""
    return by_orders if isinstance(integrand, JointIntegrand) and integrand.smooth and integrand.mu.shape[-1] else None


def by_orders(integrand: JointIntegrand) -> Estimate:
    """Rules of rising order, until they agree or the next has too many points."""
    best = Estimate(np.zeros(integrand.shape), np.full(integrand.shape, np.inf))
    for best, square in rising_orders(integrand.sums, integrand.mu.shape[-1], most_points(integrand)):
        if np.all(best.error <= min(integrand.tolerance, FINE) * np.sqrt(square)):
            break
    return best


def rising_orders(
    sums: Callable[[Array, Array], tuple[Array, Array]], dim: int, most: int
) -> Iterator[tuple[Estimate, Array]]:
    """Sums of a smooth function, and of its square, by rules of rising order, while they have at most so many points.

    Accuracy  the last difference counts three times, the one before it once: one alone may be small by accident.  The
              first two rules have no such error; without a third there are none
    """
    value = before = np.full((), np.inf)
    orders = [order for order in ORDERS if order**dim <= most]
    for order in orders if len(orders) > 2 else ():
        last = value
        value, square = sums(*product_points(dim, order, NEGLIGIBLE))
        difference = np.abs(value - last)
        yield Estimate(value, np.maximum(3 * difference, before) + 8 * EPS * np.sqrt(square)), square
        before = difference


# -- quasi-Monte Carlo -------------------------------------------------------------------------------------------------


def normal_points(dim: int, log2_size: int, replicates: int, seed: int) -> Array:
    """Independently scrambled Sobol point sets, mapped to standard normal coordinates.

    Beyond the dimensions of Sobol sequences, where these gain little, points are pseudo-random.  The points of
    (log2_size) are the first half of those of (log2_size + 1) with the same seed: sizes can be doubled.

    Shapes    -> (replicates, 2**log2_size, dim)
    Accuracy  each point is marginally N(0, I); all values finite (uniforms are kept inside [2**-54, 1 - 2**-54])
    Raises    ValueError if dim or replicates is below 1 or log2_size below 0
    Source    Owen 1995 (scrambling); scrambled as in `gaussian/sobol`
    """
    if dim < 1 or replicates < 1 or log2_size < 0:
        raise ValueError(f"need dim >= 1, replicates >= 1, log2_size >= 0; got {dim}, {replicates}, {log2_size}")
    points = np.empty((replicates, 2**log2_size, dim))
    for i in range(replicates):
        if dim > SOBOL_DIMENSIONS:
            generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(1 << 32, i))))
            generator.standard_normal(out=points[i])
        else:
            points[i] = scrambled_sobol(dim, log2_size, seed, i)
    if dim > SOBOL_DIMENSIONS:
        return points
    # multiples of 2^-52 in [0, 1): move to the middle of their cell, so that neither 0 nor 1 occurs
    points += 2.0**-54
    np.clip(points, 2.0**-54, 1 - 2.0**-54, out=points)
    return np.asarray(special.ndtri(points, out=points))


def point_sets(dim: int, log2_size: int, seed: int) -> Iterator[Array]:
    """Replicates of quasi-random normals, one at a time.

    Shapes    each (2**log2_size, dim)
    """
    for r in range(REPLICATES):
        yield normal_points(dim, log2_size, 1, seed + SEED * r)[0]


_kept_points = lru_cache(maxsize=2)(normal_points)


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


def quasi_monte_carlo(integrand: Integrand) -> Callable[[JointIntegrand], Estimate] | None:
    """The last method: any function of several variables, fewer points for each member of a larger batch."""
    if not isinstance(integrand, JointIntegrand):
        return None
    return by_doubling


def most_points(integrand: JointIntegrand) -> int:
    """How many points a member may take."""
    shape: tuple[int, ...] = integrand.mu.shape
    return min(MOST, max(LEAST, BUDGET // max(1, math.prod(shape) * shape[-1])))


def by_doubling(integrand: JointIntegrand) -> Estimate:
    """Twice the points for every replicate, until the error is within the tolerance."""
    d, last = integrand.mu.shape[-1], int(math.log2(most_points(integrand) // REPLICATES))
    total, square, done = np.zeros((REPLICATES, *integrand.shape)), np.zeros(integrand.shape), 0
    for log2_size in range(FIRST_LOG2, last + 1):
        made = _kept_points if d * 2**log2_size * REPLICATES <= KEPT else normal_points
        # a zero-dimensional Gaussian needs no points: the function is a constant
        points = made(max(d, 1), log2_size, REPLICATES, SEED)[:, done:, :d]
        for number, new in enumerate(points):
            sums = integrand.sums(new, np.ones(len(new)))
            total[number] += sums[0]
            square += sums[1]
        done = 2**log2_size
        averages = total / done
        size = np.sqrt(square / (done * REPLICATES))
        error = standard_errors(averages) + 8 * EPS * size
        if np.all(error <= integrand.tolerance * size):
            break
    return Estimate(np.asarray(averages.mean(axis=0)), np.asarray(error))

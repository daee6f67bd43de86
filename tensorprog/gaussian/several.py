"""Functions of several Gaussian variables: product rules for smooth ones, randomised quasi-Monte Carlo for all.

Scrambled Sobol points are the numbers of `scipy.stats.qmc.Sobol`, which is slow to import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.function import counted
from tensorprog.language.linalg import pivoted_cholesky

Array = NDArray[np.floating]
Bits = NDArray[np.uint64]

__all__ = [
    "REPLICATES",
    "deviations",
    "integrate",
    "lattice",
    "normal_points",
    "point_sets",
    "rising_orders",
    "spread_factor",
    "standard_errors",
]

BITS = 52  # of a coordinate
SOBOL_DIMENSIONS = 512  # of which there are direction numbers here
REPLICATES = 16
SEED = 7919
KEPT = 1 << 22  # coordinates of points that are kept for the next function: larger sets are made again
COVERED = 0.999  # of errors from replicates hold
FIRST_LOG2 = 7  # points for a replicate, to begin with
MOST, LEAST = 1 << 20, 1 << 14  # points for a member, alone and in a large batch
BUDGET = 1 << 26  # multiplications for a batch of middling size
NUMBERS = 1 << 17  # held at once for the points of a batch: they stay in cache
# two differences tell the error of the largest; even and odd by turns, as odd ones have a node at 0: what happens there
# does not look alike to both
ORDERS = (7, 10, 13, 16, 23, 32, 45, 64)
LEVELS = 16  # bits of a coordinate of a lattice
# of lattices, modulo 2**LEVELS: of all modulo 2**12 the best for an LSTM and a GRU of a hundred steps
GENERATORS = (
    45149, 61613, 57589, 33197, 61989, 62053, 62205, 5221, 29885, 38253, 18029, 26261, 42669, 51229, 39005, 10413,
    43293, 55589, 14693, 35245, 23069, 59957, 2733, 31477, 60197, 27637, 11261, 52333, 65053, 65133, 61101, 24573,
)  # fmt: skip
NEGLIGIBLE = 1e-18  # weights of nodes
GOOD = 2e-4  # asked, relative to the size of the function
PASSED = 1e-10  # relative errors of moments up to this are rounding
FINE = 1e-6  # asked of a rule, relative to the size of the function, where less is enough


def integrate(
    call: Callable[[Array], Array], mu: Array | Estimate, cov: Array | Estimate, smooth: bool, tolerance: float = GOOD
) -> Estimate:
    """E call(Z) for Z ~ N(mu, cov), batches of them, to an error of tolerance * sqrt(E call(Z)**2) where possible.

    Shapes    call maps z of shape batch + (dim, m) to batch + (m,); mu batch + (dim,), cov batch + (dim, dim)
              -> Estimate of shape batch
    Scale     any units; fewer points for each member of a larger batch
    Accuracy  differences of Gauss-Hermite rules, which mean something for smooth functions only, or what replicates of
              quasi-Monte Carlo state, whichever is smaller; with what moving each mean and covariance by its error does
    Raises    FloatingPointError if call returns nan
    """
    mean, matrix = (given if isinstance(given, Estimate) else Estimate.exact(given) for given in (mu, cov))
    result = _integral(call, mean.value, matrix.value, smooth, tolerance)
    error, scale = result.error, np.abs(matrix.value).max(initial=0.0)
    for j in range(mean.value.shape[-1]):
        for k in range(-1, j + 1):  # the mean, then the covariances
            moved = mean.value.copy(), matrix.value.copy()
            off = mean.error[..., j] if k < 0 else matrix.error[..., j, k]
            if not np.any(off > PASSED * (np.sqrt(scale) if k < 0 else scale)):
                continue
            if k < 0:
                moved[0][..., j] += off
            else:
                for a, b in {(j, k), (k, j)}:
                    moved[1][..., a, b] += off
            error = error + np.abs(_integral(call, *moved, smooth, tolerance).value - result.value)
    return Estimate(result.value, error)


def _integral(call: Callable[[Array], Array], mu: Array, cov: Array, smooth: bool, tolerance: float) -> Estimate:
    batch, dim = mu.shape[:-1], mu.shape[-1]
    factor = spread_factor(cov)
    most = min(MOST, max(LEAST, BUDGET // max(1, mu.size)))

    def sums(points: Array, weights: Array) -> tuple[Array, Array]:
        """Sums of weights * call and of weights * call**2 over points of N(0, I), in chunks that bound the memory."""
        chunk = max(1, NUMBERS // max(1, mu.size))
        value, square = np.zeros(batch), np.zeros(batch)
        for start in range(0, len(points), chunk):
            part = slice(start, start + chunk)
            z = mu[..., None] + np.matmul(factor, points[part].T)
            counted(z.size)
            f = np.broadcast_to(np.asarray(call(z), dtype=np.float64), (*batch, z.shape[-1]))
            if np.isnan(f).any():
                raise FloatingPointError("a function in a Gaussian expectation returned nan")
            value, square = value + f @ weights[part], square + np.square(f) @ weights[part]
        return np.asarray(value), np.asarray(square)

    best, size = Estimate(np.full(batch, np.nan), np.full(batch, np.inf)), np.zeros(batch)
    for best, square in rising_orders(sums, dim, most) if smooth and dim else ():
        size = np.sqrt(square)
        if np.all(best.error <= min(tolerance, FINE) * size):
            break
    if np.all(best.error <= tolerance * size):
        return best
    found = by_doubling(sums, dim, most, tolerance)
    return found.where((found.error < best.error) | np.isnan(best.value), best)


def by_doubling(sums: Callable[[Array, Array], tuple[Array, Array]], dim: int, most: int, tolerance: float) -> Estimate:
    """Twice the quasi-random points for every replicate, until the error is within the tolerance."""
    zero: Array = np.zeros(())
    done, total, square, averages, error = 0, zero, zero, zero, zero
    for log2_size in range(FIRST_LOG2, int(math.log2(most // REPLICATES)) + 1):
        made = _kept_points if dim * 2**log2_size * REPLICATES <= KEPT else normal_points
        # a zero-dimensional Gaussian needs no points: the function is a constant
        points = made(max(dim, 1), log2_size, REPLICATES, SEED)[:, done:, :dim]
        new = [sums(part, np.ones(len(part))) for part in points]
        total, square = total + np.stack([each[0] for each in new]), square + np.sum([each[1] for each in new], axis=0)
        done = 2**log2_size
        averages = total / done
        size = np.sqrt(square / (done * REPLICATES))
        error = standard_errors(averages) + 8 * EPS * size
        if np.all(error <= tolerance * size):
            break
    return Estimate(np.asarray(averages.mean(axis=0)), np.asarray(error))


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


@lru_cache(maxsize=8)
def product_points(dim: int, order: int, least: float = 0.0) -> tuple[Array, Array]:
    """Gauss-Hermite product rule for N(0, I), without nodes whose weights are below `least`.

    Shapes    nodes (m, dim), weights (m,), which sum to 1; m = order**dim unless some are left out
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    logs = np.log(weights / weights.sum())
    kept = np.argwhere(sum(np.meshgrid(*[logs] * dim, indexing="ij")) > (math.log(least) if least else -math.inf))
    return nodes[kept], np.exp(logs[kept].sum(axis=1))


def normal_points(dim: int, log2_size: int, replicates: int, seed: int, start: int = 0) -> Array:
    """Independently scrambled Sobol point sets, mapped to standard normal coordinates.

    Beyond the dimensions of Sobol sequences, where these gain little, points are pseudo-random.  The points of
    (log2_size) are the first half of those of (log2_size + 1) with the same seed: sizes can be doubled, and those
    from `start` on come alone.

    Shapes    -> (replicates, 2**log2_size - start, dim)
    Accuracy  each point is marginally N(0, I); all values finite (uniforms are kept inside [2**-54, 1 - 2**-54])
    Raises    ValueError if dim or replicates is below 1 or log2_size below 0
    Source    Owen 1995 (scrambling); scrambled as in `scrambled_sobol`
    """
    if dim < 1 or replicates < 1 or log2_size < 0:
        raise ValueError(f"need dim >= 1, replicates >= 1, log2_size >= 0; got {dim}, {replicates}, {log2_size}")
    points = np.empty((replicates, 2**log2_size - start, dim))
    for i in range(replicates):
        if dim > SOBOL_DIMENSIONS:
            generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(1 << 32, i))))
            points[i] = generator.standard_normal((2**log2_size, dim))[start:]
        else:
            points[i] = scrambled_sobol(dim, log2_size, seed, i)[start:]
    if dim > SOBOL_DIMENSIONS:
        return points
    # multiples of 2^-52 in [0, 1): move to the middle of their cell, so that neither 0 nor 1 occurs
    points += 2.0**-54
    np.clip(points, 2.0**-54, 1 - 2.0**-54, out=points)
    return np.asarray(special.ndtri(points, out=points))


def point_sets(dim: int, log2_size: int, seed: int, start: int = 0, count: int = REPLICATES) -> Iterator[Array]:
    """Replicates of quasi-random normals, one at a time, from the point `start` on.

    Shapes    each (2**log2_size - start, dim)
    """
    for r in range(count):
        yield normal_points(dim, log2_size, 1, seed + SEED * r, start)[0]


def lattice(dim: int, log2_size: int, seed: int, replicate: int) -> NDArray[np.float32]:
    """Standard normals at the points of a lattice, shifted at random and folded: i (1, a, a**2, ...) / N modulo 1.

    What some coordinates look like together depends on how far apart they are alone: late ones are as good as the
    first, where those of a Sobol sequence get worse.  So this is for functions of neighbours in a long sequence.

    Shapes    -> (dim, 2**log2_size), log2_size at most LEVELS
    Accuracy  each point is marginally N(0, I), up to rounding in single precision and the square of 2**-LEVELS
    Source    Korobov 1959; Cranley & Patterson 1976 (shifts); Hickernell 2002 (folding)
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(replicate, 1)))
    offsets = rng.integers(1 << LEVELS, size=(dim, 1), dtype=np.uint16)
    generator = GENERATORS[replicate % len(GENERATORS)]
    powers = np.multiply.accumulate(np.full(dim, generator), dtype=np.uint16)  # modulo 2**LEVELS
    cells = (np.arange(1 << LEVELS) + rng.random()) / (1 << LEVELS)  # coordinates are on one grid, moved at random
    normals = special.ndtri(np.clip(1 - np.abs(2 * cells - 1), 2.0**-54, 1 - 2.0**-54)).astype(np.float32)
    places = np.arange(1 << log2_size, dtype=np.uint16) << np.uint16(LEVELS - log2_size)
    return np.asarray(normals[powers[:, None] * places + offsets])


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


def scrambled_sobol(dim: int, log2_size: int, seed: int, replicate: int) -> NDArray[np.float64]:
    """The first 2**log2_size points of a sequence, multiples of 2**-52, in the order of a Gray code.

    Shapes    -> (2**log2_size, dim)
    Source    Sobol' 1967; Joe & Kuo 2008 (direction numbers); Matousek 1998 (linear scrambling with a shift)
    """
    directions, shift = _scrambled(dim, seed, replicate)
    points = np.empty((1 << log2_size, dim), np.uint64)
    points[0] = shift
    for k in range(log2_size):  # the Gray codes of 2**k + j and of j differ in the bits k and k - 1
        change = directions[k] ^ directions[k - 1] if k else directions[0]
        np.bitwise_xor(points[: 1 << k], change, out=points[1 << k : 2 << k])
    return np.multiply(points, 2.0**-BITS, dtype=np.float64)


@lru_cache(maxsize=64)
def _scrambled(dim: int, seed: int, replicate: int) -> tuple[Bits, Bits]:
    """Directions of a scrambled sequence, and its first point.

    Shapes    -> (BITS, dim), (dim,)
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(replicate, 0)))
    powers = np.uint64(1) << np.arange(BITS, dtype=np.uint64)
    shift = rng.integers(2, size=(dim, BITS), dtype=np.uint64) @ powers
    lower = np.tril(rng.integers(2, size=(dim, BITS, BITS), dtype=np.uint64), -1).astype(np.float32)
    lower += np.eye(BITS, dtype=np.float32)
    places = np.arange(BITS, dtype=np.uint64)[::-1, None]  # of digits, the highest first
    plain = np.array([_directions(number) for number in range(dim)], np.uint64)[:, None]
    digits = (plain >> places & np.uint64(1)).astype(np.float32)
    mixed = np.matmul(lower, digits).astype(np.uint64) & np.uint64(1)
    return np.ascontiguousarray((mixed << places).sum(axis=1, dtype=np.uint64).T), shift


@cache
def _directions(dimension: int) -> tuple[int, ...]:
    """Direction numbers of one dimension, as integers of BITS digits."""
    polynomial, *found = _table()[dimension]
    degree = polynomial.bit_length() - 1
    for j in range(len(found), BITS):
        if not degree:  # van der Corput's sequence
            found.append(1)
            continue
        new = found[j - degree]
        for k in range(degree):
            if polynomial >> (degree - 1 - k) & 1:
                new ^= found[j - k - 1] << (k + 1)
        found.append(new)
    return tuple(number << (BITS - 1 - j) for j, number in enumerate(found))


@cache
def _table() -> list[list[int]]:
    """A primitive polynomial and the first direction numbers, for each dimension."""
    lines = (Path(__file__).parent / "direction_numbers.txt").read_text(encoding="ascii").splitlines()
    return [[*map(int, line.split())] for line in lines if not line.startswith("#")]

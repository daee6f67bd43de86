"""Gaussian expectations in many dimensions by randomised quasi-Monte Carlo."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..linalg import psd_cholesky
from .estimate import EPS, Estimate

Array = NDArray[np.floating]

__all__ = ["expect", "normal_points"]


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
    from scipy.stats import qmc  # slow to import, needed only here

    points = np.empty((replicates, 2**log2_size, dim))
    for i, child in enumerate(np.random.SeedSequence(seed).spawn(replicates)):
        sobol = qmc.Sobol(dim, scramble=True, bits=52, rng=np.random.default_rng(child))
        points[i] = sobol.random_base2(log2_size)
    # multiples of 2^-52 in [0, 1): move to the middle of their cell, so that neither 0 nor 1 occurs
    return np.asarray(special.ndtri(np.clip(points + 2.0**-54, 2.0**-54, 1 - 2.0**-54)))


def expect(
    call: Callable[[Array], Array],
    mean: ArrayLike,
    cov: ArrayLike,
    *,
    tolerance: float = 1e-6,
    min_log2: int = 10,
    max_log2: int = 16,
    replicates: int = 16,
    seed: int = 0,
) -> Estimate:
    """E call(Z) for Z ~ N(mean, cov) in d dimensions, cov singular or not.

    The size doubles from 2**min_log2 until error <= tolerance * max(1, |value|) everywhere, or 2**max_log2.

    Shapes    call maps z of shape batch + (d, m) to batch + (m,); mean batch + (d,), cov batch + (d, d), which
              broadcast -> Estimate of shape batch
    Scale     any units
    Accuracy  error = 3 standard errors over the replicates (a statistical bound, not a certain one) plus rounding;
              deterministic given seed
    Raises    ValueError if fewer than 2 replicates or impossible sizes are asked for,
              FloatingPointError if call returns nan
    """
    if replicates < 2 or min_log2 > max_log2:
        raise ValueError(f"need replicates >= 2 and min_log2 <= max_log2; got {replicates}, {min_log2}, {max_log2}")
    mu, sigma = np.asarray(mean, dtype=np.float64), np.asarray(cov, dtype=np.float64)
    d = mu.shape[-1]
    batch = np.broadcast_shapes(mu.shape[:-1], sigma.shape[:-2])
    # no factor of a zero-dimensional Gaussian, and no points: the function is a constant
    factor = psd_cholesky(sigma) if d else np.zeros((0, 0))
    shift = np.broadcast_to(mu, (*batch, d))[..., None]
    result: Estimate | None = None
    for log2_size in range(min_log2, max_log2 + 1):
        points = normal_points(max(d, 1), log2_size, replicates, seed)[..., :d]
        averages = np.stack([_average(call, shift, factor, p, batch) for p in points])
        value = averages.mean(axis=0)
        spread = averages.std(axis=0, ddof=1) / np.sqrt(replicates)
        error = 3 * spread + 8 * EPS * np.abs(averages).max(axis=0)
        result = Estimate(np.asarray(value), np.asarray(error))
        if np.all(result.error <= tolerance * np.maximum(1.0, np.abs(value))):
            break
    assert result is not None
    return result


def _average(
    call: Callable[[Array], Array], shift: Array, factor: Array, points: Array, batch: tuple[int, ...]
) -> Array:
    """Average of call over one point set, in chunks that bound the memory.

    Shapes    shift batch + (d, 1), factor (...) + (d, d), points (m, d) -> batch
    """
    m, d = points.shape
    per_point = max(1, int(np.prod(batch)) * max(d, 1))
    chunk = max(1, 2_000_000 // per_point)
    total = np.zeros(batch)
    for start in range(0, m, chunk):
        z = shift + np.matmul(factor, points[start : start + chunk].T)
        values = np.broadcast_to(np.asarray(call(z), dtype=np.float64), (*batch, z.shape[-1]))
        if np.isnan(values).any():
            raise FloatingPointError("a function in a Gaussian expectation returned nan")
        total = total + values.sum(axis=-1)
    return np.asarray(total / m)

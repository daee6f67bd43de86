"""Smooth functions of a few jointly Gaussian variables by Gauss-Hermite rules, others by quasi-Monte Carlo.

For batches so large that every member can afford some thousand evaluations only; `qmc.expect` goes further for few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..linalg import psd_cholesky
from .estimate import EPS, Estimate
from .qmc import normal_points

Array = NDArray[np.floating]

__all__ = ["POINTS", "integrate"]

POINTS = 1024  # evaluated at once for each member
HERMITE = {1: (40, 56), 2: (24, 32), 3: (11, 15)}  # orders for so many variables: the difference is the error
GOOD = 1e-6  # error of Gauss-Hermite, relative to the size of the function, with which quasi-Monte Carlo is not tried
REPLICATES = 8
FIRST_LOG2, LAST_LOG2 = 8, 11  # points per replicate
QMC_GOOD = 2e-4


@cache
def _hermite(dim: int, order: int) -> tuple[Array, Array]:
    """Nodes (dim, order**dim) and weights of the product rule for N(0, I)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    grids = np.meshgrid(*[nodes] * dim, indexing="ij")
    product = _multiply_out([weights / weights.sum()] * dim)
    keep = product > 1e-18 * product.max()
    return np.stack([grid.ravel()[keep] for grid in grids]), product[keep]


def _multiply_out(weights: Sequence[Array]) -> Array:
    result = weights[0]
    for other in weights[1:]:
        result = np.multiply.outer(result, other)
    return result.ravel()


@cache
def _points(dim: int, log2: int, replicate: int) -> Array:
    """Quasi-random normals (dim, 2**log2)."""
    return np.ascontiguousarray(normal_points(dim, log2, 1, 7919 * replicate)[0].T)


def integrate(call: Callable[[Array], Array], mu: Array, cov: Array, smooth: bool) -> Estimate:
    """E call(Z) for Z ~ N(mu, cov), batches of them.

    Shapes    call maps z of shape batch + (dim, m) to batch + (m,); mu batch + (dim,) -> Estimate of shape batch
    Accuracy  the difference of two Gauss-Hermite rules, which means something for smooth functions only, or 3 standard
              errors over replicates, whichever is smaller
    """
    dim = mu.shape[-1]
    factor = psd_cholesky(cov)

    def average(points: Array, weights: Array | None) -> tuple[Array, Array]:
        value = np.zeros(mu.shape[:-1])
        square = np.zeros(mu.shape[:-1])
        for start in range(0, points.shape[1], POINTS):
            part = slice(start, start + POINTS)
            f = call(mu[..., None] + np.matmul(factor, points[:, part]))
            w = np.full(f.shape[-1], 1 / points.shape[1]) if weights is None else weights[part]
            value, square = value + f @ w, square + np.square(f) @ w
        return np.asarray(value), np.asarray(np.sqrt(square))

    best: Estimate | None = None
    if smooth and dim in HERMITE:
        (coarse, _), (fine, size) = (average(*_hermite(dim, order)) for order in HERMITE[dim])
        best = Estimate(fine, np.abs(fine - coarse) + 8 * EPS * size)
        if np.all(best.error <= GOOD * np.maximum(size, 1e-300)):
            return best
    for log2 in range(FIRST_LOG2, LAST_LOG2 + 1):
        drawn = [average(_points(dim, log2, r), None) for r in range(REPLICATES)]
        values = np.stack([value for value, _ in drawn])
        size = np.stack([s for _, s in drawn]).mean(axis=0)
        error = 3 * values.std(axis=0, ddof=1) / math.sqrt(REPLICATES) + 8 * EPS * size
        found = Estimate(values.mean(axis=0), error)
        done = found if best is None else best.better_of(found)
        if np.all(done.error <= QMC_GOOD * np.maximum(size, 1e-300)):
            break
    return done

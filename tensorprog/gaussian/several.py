"""Functions of several jointly Gaussian variables: Gauss-Hermite rules if smooth, else quasi-Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.qmc import REPLICATES, expect, spread_factor, weighted_sums

Array = NDArray[np.floating]

__all__ = ["POINTS", "integrate", "product_points"]

POINTS = 1024  # evaluated at once for each member of a large batch
ORDERS = (8, 11, 16, 22, 32, 45, 64)  # of Gauss-Hermite: the difference of two is the error of the larger
NEGLIGIBLE = 1e-18  # weights of nodes
GOOD, FINE = 2e-4, 1e-6  # asked of quasi-Monte Carlo and of Gauss-Hermite, relative to the size of the function
FIRST_LOG2 = 7  # points for a replicate of quasi-Monte Carlo
MOST, LEAST = 1 << 20, 1 << 14  # points for a member, alone and in a large batch
BUDGET = 1 << 26  # multiplications for a batch of middling size


@lru_cache(maxsize=8)
def product_points(dim: int, order: int, least: float = 0.0) -> tuple[Array, Array]:
    """Gauss-Hermite product rule for N(0, I), without nodes whose weights are below `least`.

    Shapes    nodes (m, dim), weights (m,), which sum to 1; m = order**dim unless some are left out
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    logs = np.log(weights / weights.sum())
    kept = np.argwhere(sum(np.meshgrid(*[logs] * dim, indexing="ij")) > (math.log(least) if least else -math.inf))
    return nodes[kept], np.exp(logs[kept].sum(axis=1))


def integrate(
    call: Callable[[Array], Array], mu: Array, cov: Array, smooth: bool, tolerance: float = GOOD
) -> Estimate:
    """E call(Z) for Z ~ N(mu, cov), batches of them, to an error of tolerance * sqrt(E call(Z)**2) where possible.

    Shapes    call maps z of shape batch + (dim, m) to batch + (m,); mu batch + (dim,), cov batch + (dim, dim)
              -> Estimate of shape batch
    Scale     any units; fewer points for each member of a larger batch
    Accuracy  the difference of two Gauss-Hermite rules, which means something for smooth functions only, or what
              replicates of quasi-Monte Carlo state, whichever is smaller
    Raises    FloatingPointError if call returns nan
    """
    dim = mu.shape[-1]
    most = min(MOST, max(LEAST, BUDGET // max(1, math.prod(mu.shape) * dim)))
    best, done = _by_orders(call, mu, spread_factor(cov), most if smooth and dim else 0, min(tolerance, FINE))
    if done:
        return best
    last = int(math.log2(most // REPLICATES))
    found = expect(
        call, mu, cov, tolerance=tolerance, min_log2=FIRST_LOG2, max_log2=last, seed=7919
    )
    return best.better_of(found)


def _by_orders(
    call: Callable[[Array], Array], mu: Array, factor: Array, most: int, tolerance: float
) -> tuple[Estimate, bool]:
    """Gauss-Hermite rules of rising order, until two agree or the next has too many points; and whether two did."""
    best = Estimate(np.zeros(mu.shape[:-1]), np.full(mu.shape[:-1], np.inf))
    for order in ORDERS:
        if order ** mu.shape[-1] > most:
            return best, False
        value, square = weighted_sums(call, mu, factor, *product_points(mu.shape[-1], order, NEGLIGIBLE))
        size = np.sqrt(square)
        first = order == ORDERS[0]
        best = Estimate(value, np.where(first, np.inf, np.abs(value - best.value) + 8 * EPS * size))
        if np.all(best.error <= tolerance * size):
            return best, True
    return best, False

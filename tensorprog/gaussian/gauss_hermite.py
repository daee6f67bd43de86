"""Smooth functions of a few jointly Gaussian variables by Gauss-Hermite product rules of rising order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.integrand import Integrand, JointIntegrand
from tensorprog.gaussian.qmc import most_points
from tensorprog.gaussian.rules import product_points

__all__ = ["ORDERS", "gauss_hermite"]

ORDERS = (8, 11, 16, 22, 32, 45, 64)  # the difference of two is the error of the larger
NEGLIGIBLE = 1e-18  # weights of nodes
FINE = 1e-6  # asked of a rule, relative to the size of the function, where less is enough


def gauss_hermite(integrand: Integrand) -> Callable[[JointIntegrand], Estimate] | None:
    """The difference of two rules is the error: that means something for smooth functions only."""
    return by_orders if isinstance(integrand, JointIntegrand) and integrand.smooth and integrand.mu.shape[-1] else None


def by_orders(integrand: JointIntegrand) -> Estimate:
    """Rules of rising order, until two agree or the next has too many points."""
    dim, most = integrand.mu.shape[-1], most_points(integrand)
    best = Estimate(np.zeros(integrand.shape), np.full(integrand.shape, np.inf))
    for order in ORDERS:
        if order**dim > most:
            break
        value, square = integrand.sums(*product_points(dim, order, NEGLIGIBLE))
        size = np.sqrt(square)
        first = order == ORDERS[0]
        best = Estimate(value, np.where(first, np.inf, np.abs(value - best.value) + 8 * EPS * size))
        if np.all(best.error <= min(integrand.tolerance, FINE) * size):
            break
    return best

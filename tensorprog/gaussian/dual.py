"""E f(X) g(Y) as a function of the covariance of X and Y, their laws given: the dual of two functions.

What varies from pair to pair is one number, so that a chain of such expectations, all layers of a kernel on data, goes
over the pairs once, tile by tile. What is known of each variable, and with it all errors, is found beforehand: errors
are relative to sizes of the two variables, whose product no value exceeds.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.arc_kernels import arc_dual
from tensorprog.gaussian.estimate import Estimate, Sizes, largest_ratio
from tensorprog.gaussian.function import RealFunction
from tensorprog.gaussian.integrand import FactoredIntegrand, Index
from tensorprog.gaussian.series import series_dual

Array = NDArray[np.floating]

__all__ = ["Dual", "dual"]


class Dual(Protocol):
    """E f(X) g(Y) for variables of known laws, pair by pair."""

    sizes: Sizes

    def values(self, index: Index, cov: Array, out: Array | None) -> Array:
        """At the covariances of a part of the pairs, which may be overwritten if they are `out`."""


def dual(
    f: RealFunction, g: RealFunction, mu: tuple[Estimate, Estimate], var: tuple[Estimate, Estimate], cov: Sizes
) -> Dual | None:
    """E f(X) g(Y) by a closed form or Mehler's series, for covariances of these sizes; None where neither serves all.

    Shapes    means and variances broadcast to the array of pairs
    """
    if any(np.any(m.error) for m in mu) or any(np.any(v.error[v.value == 0]) for v in var):
        return None
    integrand = FactoredIntegrand.of((f, g), [m.value for m in mu], [np.maximum(v.value, 0.0) for v in var])
    if not integrand.plain:
        return None
    deviations = [np.sqrt(v) for v in integrand.var]
    # errors of the law, relative to the deviations of both variables
    wide = largest_ratio(cov.first, deviations[0]) * largest_ratio(cov.second, deviations[1])
    spread = [0.5 * largest_ratio(v.error, v.value) for v in var]
    moved = cov.relative * wide, spread[0], spread[1]
    if not np.isfinite(moved).all():
        return None
    return arc_dual(integrand, moved) or series_dual(integrand, moved)

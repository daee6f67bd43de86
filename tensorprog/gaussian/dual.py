"""E f(X) g(Y) as a function of the covariance of X and Y, their laws given: the dual of two functions.

What varies from pair to pair is one number, so that a chain of such expectations, all layers of a kernel on data, goes
over the pairs once, tile by tile. What is known of each variable, and with it all errors, is found beforehand: errors
are relative to sizes of the two variables, whose product no value exceeds.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.arc_kernels import Correlated, arc_dual
from tensorprog.gaussian.estimate import Estimate, Sizes, largest_ratio
from tensorprog.gaussian.function import RealFunction
from tensorprog.gaussian.integrand import FactoredIntegrand, Index
from tensorprog.gaussian.series import series_dual

Array = NDArray[np.floating]

__all__ = ["Dual", "dual"]

UNEVEN = 64.0  # by what bounds that are relative to sizes may exceed others


class Dual(Protocol):
    """E f(X) g(Y) for variables of known laws, pair by pair."""

    sizes: Sizes

    def values(self, index: Index, at: Correlated) -> Array:
        """At the covariances of a part of the pairs."""


def dual(
    f: RealFunction,
    g: RealFunction,
    mu: tuple[Estimate, Estimate],
    var: tuple[Estimate, Estimate],
    cov: Sizes,
    jumps: bool = False,
) -> Dual | None:
    """E f(X) g(Y) by a closed form or Mehler's series, for covariances of these sizes; None where neither serves all.

    Functions that both jump have large bounds on their errors, which are those at correlation 1: only if wanted.

    Shapes    means and variances broadcast to the array of pairs
    """
    if any(np.any(m.error) for m in mu) or any(np.any(v.error[v.value == 0]) for v in var):
        return None
    integrand = FactoredIntegrand.of((f, g), [m.value for m in mu], [np.maximum(v.value, 0.0) for v in var])
    if not integrand.plain:
        return None
    # errors of the law, relative to the deviations of both variables: where one bound serves members of very different
    # variances, these bounds would be much larger than errors of each
    deviations = [np.sqrt(v) for v in integrand.var]
    wide = largest_ratio(cov.first, deviations[0]) * largest_ratio(cov.second, deviations[1])
    spread = [largest_ratio(v.error, v.value) for v in var]
    even = [s * v.value.max(initial=0.0) <= UNEVEN * v.error.max(initial=0.0) for s, v in zip(spread, var, strict=True)]
    if not (wide <= UNEVEN and all(even)):
        return None
    moved = cov.relative * wide, 0.5 * spread[0], 0.5 * spread[1]
    return arc_dual(integrand, moved, jumps) or series_dual(integrand, moved)

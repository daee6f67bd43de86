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
from tensorprog.gaussian.integrand import PART, FactoredIntegrand, Index, exchanged, filled, part
from tensorprog.gaussian.series import series_dual

Array = NDArray[np.floating]

__all__ = ["Dual", "cross_by_series", "dual"]

UNEVEN = 64.0  # by what bounds that are relative to sizes may exceed others


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
    # errors of the law, relative to the deviations of both variables: where one bound serves members of very different
    # variances, these bounds would be much larger than errors of each
    deviations = [np.sqrt(v) for v in integrand.var]
    wide = largest_ratio(cov.first, deviations[0]) * largest_ratio(cov.second, deviations[1])
    spread = [largest_ratio(v.error, v.value) for v in var]
    even = [s * v.value.max(initial=0.0) <= UNEVEN * v.error.max(initial=0.0) for s, v in zip(spread, var, strict=True)]
    if not (wide <= UNEVEN and all(even)):
        return None
    moved = cov.relative * wide, 0.5 * spread[0], 0.5 * spread[1]
    return arc_dual(integrand, moved) or series_dual(integrand, moved)


def cross_by_series(
    f: RealFunction, g: RealFunction, mu: tuple[Estimate, Estimate], var: tuple[Estimate, Estimate], cov: Estimate,
    pairs: int,
) -> Estimate | None:  # fmt: skip
    """E f(X) g(Y) of functions that are no sums of terms, with the effect of errors of the law; None for any other.

    Shapes    arguments have one number of axes and broadcast to the batch, whose last axes may be `pairs`
    """
    if f.terms is not None and g.terms is not None:
        return None
    if cov.value.ndim == 0:
        lifted = [Estimate(e.value.reshape(1), e.error.reshape(1)) for e in (*mu, *var, cov)]
        found = cross_by_series(f, g, (lifted[0], lifted[1]), (lifted[2], lifted[3]), lifted[4], 0)
        return None if found is None else Estimate(found.value.reshape(()), found.error.reshape(()))
    if pairs and all(v.value.size == 1 for v in var):  # then covariances may depend on differences alone
        return None
    first, second = (np.sqrt(np.maximum(v.value, 0.0)) for v in var)
    relative = largest_ratio(cov.error, first * second)
    if relative * first.max(initial=0.0) * second.max(initial=0.0) > UNEVEN * cov.error.max(initial=0.0):
        return None
    made = dual(f, g, mu, var, Sizes(first, second, relative))
    if made is None:
        return None
    sizes, values = made.sizes, made.values
    shape = np.broadcast_shapes(*(e.value.shape for e in (*mu, *var, cov)))
    covs = np.broadcast_to(cov.value, shape)
    symmetric = bool(pairs) and f is g and all(
        np.array_equal(array, exchanged(other, pairs))
        for array, other in ((mu[0].value, mu[1].value), (var[0].value, var[1].value), (cov.value, cov.value))
    )
    value = filled(lambda index: values(index, part(covs, index), None), shape, PART, pairs, symmetric)
    return Estimate(value, np.broadcast_to(sizes.relative * (sizes.first * sizes.second), shape))


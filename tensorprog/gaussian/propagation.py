"""Expectations under laws that are estimates: the effect of their errors, to first order, is part of the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from .estimate import EPS, Estimate, compact
from .expectation import cross, mean
from .function import Function
from .kernels import elementary, kernel_sensitivity
from .several import integrate

Array = NDArray[np.floating]

__all__ = ["ROUNDING", "cross_of_estimates", "mean_of_estimates", "several_of_estimates"]

# errors up to this, relative to the largest argument of a member, count as rounding, which expectations bound
ROUNDING = 64 * EPS
SEVERAL = 1e-10  # asked of functions of several variables, relative to their size


def mean_of_estimates(f: Function, mu: Estimate, var: Estimate) -> Estimate:
    """E f(X) for X ~ N(mu, var).

    Shapes    as `mean`
    """
    return _by_differences(partial(mean, f), (mu, var))


def cross_of_estimates(
    f: Function, g: Function, mu: tuple[Estimate, Estimate], var: tuple[Estimate, Estimate], cov: Estimate, pairs: int
) -> Estimate:
    """E f(X) g(Y) for (X, Y) Gaussian; a covariance may exceed sqrt(var var) by its own error.

    Shapes    as `cross`
    """
    var_f, var_g = (Estimate(np.maximum(v.value, 0), v.error) for v in var)
    call = partial(cross, f, g, slack=np.inf, pairs=pairs)
    args = (*mu, var_f, var_g, cov)
    if not any(np.any(m.value) or np.any(m.error) for m in mu):
        first, second = elementary(f), elementary(g)
        moved = None
        if first is not None and second is not None:
            moved = kernel_sensitivity(first, second, var_f, var_g, cov)
        if moved is not None:
            result = call(*(arg.value for arg in args))
            return Estimate(result.value, np.broadcast_to(compact(result.error) + moved, result.value.shape))
    return _by_differences(call, args)


def several_of_estimates(
    call: Callable[[Array], Array], mu: Sequence[Estimate], cov: Sequence[Sequence[Estimate]], smooth: bool
) -> Estimate:
    """E call(Z) for Z ~ N(mu, cov) in a few dimensions.

    Shapes    call maps z of shape batch + (dim, m) to batch + (m,); entries of mu and cov of shape batch
              -> Estimate of shape batch
    Accuracy  as `several.integrate`, with the effect of the errors of all means and covariances
    """
    places = list(combinations_with_replacement(range(len(mu)), 2))

    def of_moments(*values: Array) -> Estimate:
        matrix = np.empty((*values[0].shape, len(mu), len(mu)))
        for (j, k), value in zip(places, values[len(mu) :], strict=True):
            matrix[..., j, k] = matrix[..., k, j] = value
        return integrate(call, np.stack(values[: len(mu)], axis=-1), matrix, smooth, SEVERAL)

    return _by_differences(of_moments, (*mu, *(cov[j][k] for j, k in places)))


def _by_differences(call: Callable[..., Estimate], args: Sequence[Estimate]) -> Estimate:
    """Evaluate again with every argument moved by its error, where errors exceed rounding."""
    values = [arg.value for arg in args]
    result = call(*values)
    error = result.error
    scale = reduce(np.maximum, (np.abs(value) for value in values))
    if any(np.any(arg.error > ROUNDING * scale) for arg in args):
        for k, arg in enumerate(args):
            if np.any(arg.error > 0):
                moved = call(*values[:k], values[k] + arg.error, *values[k + 1 :])
                error = error + np.abs(moved.value - result.value)
    return Estimate(result.value, error)

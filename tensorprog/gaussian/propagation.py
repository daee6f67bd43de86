"""Expectations under laws that are estimates: the effect of their errors, to first order, is part of the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .estimate import EPS, Estimate, compact
from .expectation import cross, mean
from .function import Function
from .kernels import elementary, kernel_sensitivity

Array = NDArray[np.floating]

__all__ = ["cross_of_estimates", "mean_of_estimates"]

# errors of arguments up to this, relative to the largest argument, count as rounding, which expectations bound
ROUNDING = 64 * EPS


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


def _by_differences(call: Callable[..., Estimate], args: Sequence[Estimate]) -> Estimate:
    """Evaluate again with every argument moved by its error, where errors exceed rounding."""
    values = [arg.value for arg in args]
    result = call(*values)
    error = result.error
    worst = max(float(np.max(arg.error, initial=0.0)) for arg in args)
    if worst > 0 and worst > ROUNDING * max(float(np.max(np.abs(v), initial=0.0)) for v in values):
        for k, arg in enumerate(args):
            if np.any(arg.error > 0):
                moved = call(*values[:k], values[k] + arg.error, *values[k + 1 :])
                error = error + np.abs(moved.value - result.value)
    return Estimate(result.value, error)

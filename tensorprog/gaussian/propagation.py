"""Expectations under laws that are estimates: the effect of their errors, to first order, is part of the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.arc_kernels import elementary, kernel_sensitivity, small_kernel
from tensorprog.gaussian.estimate import EPS, Estimate, compact
from tensorprog.gaussian.function import RealFunction
from tensorprog.gaussian.integrand import FactoredIntegrand
from tensorprog.gaussian.ladder import cross, integrate, mean
from tensorprog.gaussian.series import mehler_sensitivity

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]
Values = Sequence[Array]

__all__ = ["ROUNDING", "cross_of_estimates", "mean_of_estimates", "several_of_estimates"]

# errors of arguments up to this, relative to the largest argument of a member, count as rounding, which expectations
# bound; not those of functions that jump: E sign(X) sign(Y) has infinite slope at correlation +-1
ROUNDING = 64 * EPS
# distance from a kink at which a jump is looked for, relative to the place of the kink, or absolute at 0
NEAR, NEAR_ZERO = 1e-7, 1e-100
SEVERAL = 1e-10  # asked of functions of several variables, relative to their size


def mean_of_estimates(f: RealFunction, mu: Estimate, var: Estimate) -> Estimate:
    """E f(X) for X ~ N(mu, var).

    Shapes    as `mean`
    """
    return _by_differences(partial(mean, f), (mu, var), (-np.inf, 0.0), jumps=_jumps(f))


def cross_of_estimates(
    f: RealFunction,
    g: RealFunction,
    mu: tuple[Estimate, Estimate],
    var: tuple[Estimate, Estimate],
    cov: Estimate,
    pairs: int,
    one: Callable[[], Mask] = lambda: np.zeros((), dtype=bool),
) -> Estimate:
    """E f(X) g(Y) for (X, Y) Gaussian; a covariance may exceed sqrt(var var) by its own error.

    `one` says where X and Y are one variable: there errors of the law move it along correlation 1. It is asked where
    that matters only: for functions that both jump.

    Shapes    as `cross`; the mask broadcasts to the batch
    """
    var_f, var_g = (Estimate(np.maximum(v.value, 0), v.error) for v in var)
    call = partial(cross, f, g, slack=np.inf, pairs=pairs)
    args = (*mu, var_f, var_g, cov)
    first = second = None
    if not any(np.any(m.value) or np.any(m.error) for m in mu):
        first, second = elementary(f), elementary(g)
        moved = small = None
        if first is not None and second is not None:
            moved = kernel_sensitivity(first, second, var_f, var_g, cov, one)
            size = np.broadcast_shapes(var_f.value.shape, var_g.value.shape, cov.value.shape)
            square = pairs > 0 and size[-2 * pairs : -pairs] == size[-pairs:]  # one triangle is computed there
            small = None if square else small_kernel(first, second, var_f.value, var_g.value, cov.value)
        if moved is not None:
            result = call(*(arg.value for arg in args)) if small is None else small
            return Estimate(result.value, np.broadcast_to(compact(result.error) + moved, result.value.shape))

    # an arc sine that is steep somewhere has no bound to first order: there rounding counts as well
    steep = all(h is not None and h.sigmoids for h in (first, second))
    if not (steep or f.kinks.size or g.kinks.size):
        found = _by_series(f, g, call, args, one)
        if found is not None:
            return found
    jumps = _jumps(f), _jumps(g)
    same = one() if all(jumps) else np.zeros((), dtype=bool)

    def tied(values: Values) -> Values:
        a, b, v, w, c = values
        return a, np.where(same, a, b), v, np.where(same, v, w), np.where(same, v, c)

    lowest = (-np.inf, -np.inf, 0.0, 0.0, -np.inf)
    return _by_differences(call, args, lowest, jumps=any(jumps) or steep, tied=tied if same.any() else None)


def _by_series(
    f: RealFunction, g: RealFunction, call: Callable[..., Estimate], args: Sequence[Estimate], one: Callable[[], Mask]
) -> Estimate | None:
    """The expectation with what errors of the law do by derivatives; None where they are not to be had."""
    result = call(*(arg.value for arg in args))
    if not _matter(args, ROUNDING):
        return result
    a, b, v, w, c = (arg.value for arg in args)
    integrand = FactoredIntegrand.of((f, g), (a, b), (v, w), c, np.inf)
    mask = one()
    mask = mask & (a == b) & (v == w) & (v == c) if mask.any() else mask
    errors = [arg.error for arg in args]
    moved = mehler_sensitivity(integrand, errors[:2], errors[2:4], errors[4], mask)
    return None if moved is None else Estimate(result.value, result.error + moved)


def _matter(args: Sequence[Estimate], rounding: float) -> bool:
    """Whether errors of arguments are more than rounding of the largest."""
    scale = reduce(np.maximum, (np.abs(arg.value) for arg in args)) * rounding
    return any(np.any(arg.error > scale) for arg in args)


def several_of_estimates(
    call: Callable[[Array], Array], mu: Sequence[Estimate], cov: Sequence[Sequence[Estimate]], smooth: bool
) -> Estimate:
    """E call(Z) for Z ~ N(mu, cov) in a few dimensions.

    Shapes    call maps z of shape batch + (dim, m) to batch + (m,); entries of mu and cov of shape batch
              -> Estimate of shape batch
    Accuracy  as `integrate`, with the effect of the errors of all means and covariances
    """
    places = list(combinations_with_replacement(range(len(mu)), 2))

    def of_moments(*values: Array) -> Estimate:
        matrix = np.empty((*values[0].shape, len(mu), len(mu)))
        for (j, k), value in zip(places, values[len(mu) :], strict=True):
            matrix[..., j, k] = matrix[..., k, j] = value
        return integrate(call, np.stack(values[: len(mu)], axis=-1), matrix, smooth, SEVERAL)

    lowest = [-np.inf] * len(mu) + [0.0 if j == k else -np.inf for j, k in places]
    return _by_differences(of_moments, (*mu, *(cov[j][k] for j, k in places)), lowest, jumps=False)


def _by_differences(
    call: Callable[..., Estimate],
    args: Sequence[Estimate],
    lowest: Sequence[float],
    jumps: bool,
    tied: Callable[[Values], Values] | None = None,
) -> Estimate:
    """Evaluate again with every argument moved up and down by its error, where errors exceed rounding.

    At correlation +-1 a covariance can move to one side only, so that the larger change of both counts.
    """
    values = [arg.value for arg in args]
    result = call(*values)
    error = result.error
    if not _matter(args, 0.0 if jumps else ROUNDING):
        return result
    for k, (arg, low) in enumerate(zip(args, lowest, strict=True)):
        if np.any(arg.error > 0):
            ends = arg.value + arg.error, np.maximum(arg.value - arg.error, low)
            moved = ([*values[:k], end, *values[k + 1 :]] for end in ends)
            changes = [np.abs(call(*(tied(law) if tied else law)).value - result.value) for law in moved]
            error = error + np.maximum(*changes)
    return Estimate(result.value, error)


def _jumps(f: RealFunction) -> bool:
    """Whether f jumps at a kink: then it changes as much close to the kink as eight times further away."""
    places = np.where(np.isfinite(f.kinks), f.kinks, 0.0)
    if not places.size:
        return False
    step = np.where(places == 0, NEAR_ZERO, NEAR * np.abs(places))
    with np.errstate(all="ignore"):
        near, far = (np.abs(f.call(places + k * step) - f.call(places - k * step)) for k in (1, 8))
    return bool(np.any(near > far / 2))

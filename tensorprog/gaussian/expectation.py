"""E f(X) and E f(X) g(Y) for Gaussian variables: a ladder of methods, each answering the members it can.

In order: kernels at zero means; Mehler's series for smooth functions without closed form; exact zeros by parity and
points without variance; closed forms; quadrature. A member keeps the first answer whose stated error is at rounding
level, else the answer with the smallest stated error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.gaussian.closed_forms import closed_cross, closed_mean
from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.function import Function, Term
from tensorprog.gaussian.kernels import LARGE, SMALL, elementary, kernel, kernel_error
from tensorprog.gaussian.normal import CORRELATION_SLACK, correlation
from tensorprog.gaussian.quadrature import crude_norm, evaluate, integrate_line, integrate_plane
from tensorprog.gaussian.series import Series, product_series, series
from tensorprog.gaussian.tiles import tiled, toeplitz_values, toeplitz_view

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]

__all__ = ["cross", "mean"]

# a closed form whose error bound exceeds this, relative to the size of the functions, lets quadrature try as well
CLOSED_ENOUGH = 1e-12
# members computed at once where functions have no parameter arrays
BLOCK = 8192
MOST_SERIES = 1 << 14  # variables whose coefficients are held at once
KERNEL_TILE = 1 << 16  # members in one pass of a kernel: a handful of such arrays stay in cache


def mean(f: Function, mu: ArrayLike, var: ArrayLike) -> Estimate:
    """E f(X) for X ~ N(mu, var).

    Shapes    mu, var and the parameters of f broadcast to the batch -> Estimate of shape batch
    Scale     any units; var = 0 means X = mu
    Accuracy  error bounds rounding for closed forms (f has terms) and estimates it, conservatively, for quadrature;
              exactly 0 for odd f and mu = 0; an integral that overflows has infinite error
    Raises    ValueError for a negative or non-finite argument, FloatingPointError if f returns nan
    """
    m, v = _arguments(("mu", mu), ("var", var))
    _nonnegative("var", v)
    m, v = _full_batch((m, v), (f, m))
    sd = np.sqrt(v)
    zero = np.asarray((f.parity < 0) & (m == 0))
    point = np.asarray(v == 0)
    result = _at_point(f, m)
    active = ~(zero | point)
    if np.any(active):
        safe = np.where(point, 1.0, sd)
        spread = _by_member(_mean_spread, (f,), (m, safe), active)
        result = spread.where(active, result)
    return result.where(~zero, _zeros(m.shape))


def cross(
    f: Function,
    g: Function,
    mu_f: ArrayLike,
    mu_g: ArrayLike,
    var_f: ArrayLike,
    var_g: ArrayLike,
    cov: ArrayLike,
    *,
    slack: float = CORRELATION_SLACK,
    pairs: int = 0,
) -> Estimate:
    """E f(X) g(Y) for (X, Y) Gaussian with the given means, variances and covariance.

    `slack` is how far |cov| may exceed sqrt(var_f var_g), relatively; such a covariance counts as correlation +-1.
    `pairs` says that the last axes of the batch are (*i, *j) with so many indices i of X and as many j of Y, so that
    for one function and symmetric arguments the result is symmetric: half of it is computed, the other half read.

    Shapes    all arguments and the parameters of f and g broadcast to the batch -> Estimate of shape batch; where one
              bound on the error serves all members of an axis, its array has stride 0 along it
    Scale     any units; zero variances and correlations of exactly +-1 are ordinary arguments
    Accuracy  as `mean`; exactly 0 where both means are 0 and the parities opposite, and where cov = 0 and one of
              the two means of f(X), g(Y) is exactly 0
    Raises    ValueError for a negative or non-finite argument or |cov| beyond sqrt(var_f var_g),
              FloatingPointError if a function returns nan
    """
    a, b, va, vb, c = _aligned(mu_f, mu_g, var_f, var_g, cov)
    one = _plain(f)
    two = one if g is f else _plain(g)
    if one is None or two is None:
        return _cross_batch(f, g, slack, a, b, va, vb, c)
    a, b, va, vb = (_constant(array) for array in (a, b, va, vb))
    stationary = pairs == 1 and c.ndim == 2 and all(array.size == 1 for array in (a, b, va, vb))
    diagonals = toeplitz_values(c) if stationary else None
    if diagonals is not None:
        numbers = [array.ravel() for array in (a, b, va, vb)]
        found = _cross_plain(one, two, slack, 0, numbers[0], numbers[1], numbers[2], numbers[3], diagonals)
        return Estimate(toeplitz_view(found.value, c.shape), toeplitz_view(found.error, c.shape))
    return _cross_plain(one, two, slack, pairs, a, b, va, vb, c)


def _cross_plain(
    f: Function, g: Function, slack: float, pairs: int, a: Array, b: Array, va: Array, vb: Array, c: Array
) -> Estimate:
    """`cross` for functions without parameter arrays: in tiles, by a kernel where there is one."""
    symmetric = f is g and pairs > 0
    first, second = elementary(f), elementary(g)
    if first is not None and second is not None and not (np.any(a) or np.any(b)) and _ordinary(va, vb):
        if np.isfinite(slack):
            _refuse_covariance_of_constants(va, vb, c)
        compute = partial(kernel, first, second, slack=slack)
        (value,) = tiled(compute, (va, vb, c), KERNEL_TILE, pairs=pairs, swap=(1, 0, 2) if symmetric else None)
        return Estimate(value, np.broadcast_to(kernel_error(first, second, va, vb), value.shape))

    closed = f.terms is not None and g.terms is not None
    one = None if closed else _coefficients(f, a, va)
    two = None if one is None else _coefficients(g, b, vb)
    if one is not None and two is not None:
        order = max(one.order(), two.order())
        one, two = one.cut(order), two.cut(order)

    def ladder(a: Array, b: Array, va: Array, vb: Array, c: Array, i: Array, j: Array) -> tuple[Array, Array]:
        if one is None or two is None:
            found = _cross_batch(f, g, slack, a, b, va, vb, c)
        else:
            found = _cross_series(f, g, slack, (a, b, va, vb, c), (one, two), (i, j))
        return found.value, found.error

    arrays = (a, b, va, vb, c, _places(a, va), _places(b, vb))
    swap = (1, 0, 3, 2, 4, 6, 5) if symmetric else None
    return Estimate(*tiled(ladder, arrays, BLOCK, outputs=2, pairs=pairs, swap=swap, threads=True))


def _places(mu: Array, var: Array) -> NDArray[Any]:
    """Numbers of the different variables of a batch."""
    shape = np.broadcast_shapes(mu.shape, var.shape)
    return np.arange(math.prod(shape)).reshape(shape)


def _coefficients(f: Function, mu: Array, var: Array) -> Series | None:
    """Hermite coefficients of f for the variables of a batch, if they are not too many."""
    m, v = np.broadcast_arrays(mu, var)
    if m.size > MOST_SERIES or not (np.isfinite(m).all() and np.isfinite(v).all() and np.all(v >= 0)):
        return None
    return series(f, m.ravel(), np.sqrt(v.ravel()))


def _cross_series(
    f: Function, g: Function, slack: float, arrays: tuple[Array, ...], coefficients: tuple[Series, Series],
    places: tuple[NDArray[Any], NDArray[Any]],
) -> Estimate:
    """Mehler's series, and the ladder for members that it does not answer to rounding level."""
    a, b, va, vb, c = arrays
    one, two = coefficients
    if np.isfinite(slack):
        _refuse_covariance_of_constants(va, vb, c)
    c = np.where((va == 0) | (vb == 0), 0.0, c)
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    rho = np.broadcast_to(correlation(va, vb, c, slack).rho, shape)
    found = product_series(one, two, places[0], places[1], rho)
    found = found.where(~np.broadcast_to(_vanishes(f, g, a, b, c), shape), _zeros(shape))
    limit = CLOSED_ENOUGH * one.norm[places[0]] * two.norm[places[1]] + 2 * TINY
    pending = ~(found.error <= limit)
    if not np.any(pending):
        return found
    rest = _cross_batch(f, g, slack, *(np.broadcast_to(array, rho.shape)[pending] for array in arrays))
    found.value[pending], found.error[pending] = rest.value.ravel(), rest.error.ravel()
    return found


def _cross_batch(
    f: Function, g: Function, slack: float, a: Array, b: Array, va: Array, vb: Array, c: Array
) -> Estimate:
    """The ladder of `cross` for one batch, all of it at once."""
    named = (("mu_f", a), ("mu_g", b), ("var_f", va), ("var_g", vb), ("cov", c))
    a, b, va, vb, c = _arguments(*named)
    _nonnegative("var_f", va)
    _nonnegative("var_g", vb)
    if np.isfinite(slack):
        _refuse_covariance_of_constants(va, vb, c)
    c = np.where((va == 0) | (vb == 0), 0.0, c)
    a, b, va, vb, c = _full_batch((a, b, va, vb, c), (f, a), (g, b))
    independent = np.asarray(c == 0)
    zero = _vanishes(f, g, a, b, c)
    result = _zeros(c.shape)
    if np.any(independent & ~zero):
        # a common batch shape is kept, so that parameter arrays inside the functions still fit
        result = mean(f, a, va) * mean(g, b, vb)
    active = ~(zero | independent)
    corr = correlation(va, vb, c, slack)
    if np.any(active):
        sd = [np.sqrt(np.where(v == 0, 1.0, v)) for v in (va, vb)]
        arrays = (a, b, *sd, corr.rho, corr.s)
        result = _by_member(_cross_spread, (f, g), arrays, active).where(active, result)
    return result.where(~zero, _zeros(c.shape))


def _vanishes(f: Function, g: Function, a: Array, b: Array, c: Array) -> Mask:
    """Where E f(X) g(Y) is 0 by parity: odd times even, or an odd function of a variable independent of the other."""
    zero = (a == 0) & (b == 0) & (f.parity * g.parity < 0)
    return np.asarray(zero | ((c == 0) & (((f.parity < 0) & (a == 0)) | ((g.parity < 0) & (b == 0)))))


def _refuse_covariance_of_constants(var_f: Array, var_g: Array, cov: Array) -> None:
    if not (np.all(var_f) and np.all(var_g)):
        still = np.broadcast_to((var_f == 0) | (var_g == 0), np.broadcast_shapes(var_f.shape, var_g.shape, cov.shape))
        if np.any(np.broadcast_to(cov, still.shape)[still] != 0):
            raise ValueError("cov must be 0 where var_f or var_g is 0")


def _ordinary(*variances: Array) -> bool:
    """Whether all variances are zero or far from under- and overflow."""
    return all(bool(np.all((v == 0) | ((v > SMALL) & (v < LARGE)))) for v in variances)


def _constant(array: Array) -> Array:
    """One entry per axis, if all entries are one number."""
    return array.ravel()[:1].reshape((1,) * array.ndim) if array.size and array.min() == array.max() else array


def _aligned(*given: ArrayLike) -> list[Array]:
    """Float arrays of one number of axes."""
    arrays = [np.asarray(array, dtype=np.float64) for array in given]
    ndim = max(array.ndim for array in arrays)
    return [array.reshape((1,) * (ndim - array.ndim) + array.shape) for array in arrays]


def _plain(f: Function) -> Function | None:
    """f without batch axes, if no parameter varies over the batch: then any selection of members can be evaluated."""
    if any(length != 1 for length in f.shape):
        return None
    with np.errstate(all="ignore"):
        value = np.asarray(f.call(np.ones(1)))
    if value.size != 1:
        return None
    if f.shape == ():
        return f
    kinks, features = f.kinks.reshape(f.kinks.shape[-1:]), f.features.reshape(f.features.shape[-2:])
    terms = None if f.terms is None else tuple(term.flat() for term in f.terms)
    return replace(f, kinks=kinks, features=features, terms=terms)


def _by_member(
    compute: Callable[..., Estimate], functions: tuple[Function, ...], arrays: tuple[Array, ...], active: Mask
) -> Estimate:
    """compute(*functions, *arrays, active) for the active members, in blocks that bound the memory where possible.

    Functions with parameter arrays see the whole batch, the other members running along with harmless arguments.
    """
    plain = [f for f in map(_plain, functions) if f is not None]
    if len(plain) < len(functions):
        return compute(*functions, *arrays, active)
    result = _zeros(active.shape)
    chosen = np.flatnonzero(active)
    flat = [array.ravel() for array in arrays]
    for start in range(0, chosen.size, BLOCK):
        members = chosen[start : start + BLOCK]
        found = compute(*plain, *(array[members] for array in flat), np.ones(members.shape, dtype=bool))
        result.value.flat[members], result.error.flat[members] = found.value, found.error
    return result


def _mean_spread(f: Function, mu: Array, sd: Array, active: Mask) -> Estimate:
    """Rungs 2 and 3 of `mean`, positive deviations only."""
    if f.terms is None:
        return integrate_line([(f, mu, sd)])
    closed = closed_mean(f.terms, mu, sd)
    with np.errstate(over="ignore", invalid="ignore"):
        limit = CLOSED_ENOUGH * np.maximum(np.abs(closed.value), crude_norm(f, mu, sd)) + 2 * TINY
        enough = closed.error <= limit
    if np.all(~active | enough):
        return closed
    return closed.where(enough, closed.better_of(integrate_line([(f, mu, sd)])))


def _cross_spread(
    f: Function, g: Function, mu_f: Array, mu_g: Array, sd_f: Array, sd_g: Array, rho: Array, s: Array, active: Mask
) -> Estimate:
    """Rungs 2 and 3 of `cross`, positive deviations only."""
    mu, sd = (mu_f, mu_g), (sd_f, sd_g)
    closed = None
    pending = active
    if f.terms is not None and g.terms is not None:
        closed = closed_cross(f.terms, g.terms, mu, sd, rho, s)
    if closed is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            norm = crude_norm(f, mu_f, sd_f) * crude_norm(g, mu_g, sd_g)
            limit = CLOSED_ENOUGH * np.maximum(np.abs(closed.value), norm) + 2 * TINY
            pending = active & ~(closed.error <= limit)
        if not np.any(pending):
            return closed
    line, plane = pending & (s == 0), pending & (s > 0)
    arrays = (mu_f, mu_g, sd_f, sd_g, rho, s)
    numeric = _zeros(rho.shape)
    if np.any(line):
        numeric = _by_member(_line, (f, g), arrays, line)
    if np.any(plane):
        numeric = _by_member(_plane, (f, g), arrays, plane).where(plane, numeric)
    if closed is None:
        return numeric
    return closed.where(~pending, closed.better_of(numeric))


def _line(
    f: Function, g: Function, mu_f: Array, mu_g: Array, sd_f: Array, sd_g: Array, rho: Array, s: Array, active: Mask
) -> Estimate:
    """Correlation +-1: one variable behind both."""
    return integrate_line([(f, mu_f, sd_f), (g, mu_g, sd_g * np.where(rho < 0, -1.0, 1.0))])


def _plane(
    f: Function, g: Function, mu_f: Array, mu_g: Array, sd_f: Array, sd_g: Array, rho: Array, s: Array, active: Mask
) -> Estimate:
    """Quadrature over the plane; over a line where one factor has a closed conditional mean of rounding accuracy."""
    # members answered elsewhere get the easy correlation 0
    rho, s = np.where(active, rho, 0.0), np.where(active, s, 1.0)
    result: Estimate | None = None
    if g.terms is not None:
        result = integrate_plane(f, g, (mu_f, mu_g), (sd_f, sd_g), rho, s, _conditional_mean(g.terms))
    elif f.terms is not None:
        result = integrate_plane(g, f, (mu_g, mu_f), (sd_g, sd_f), rho, s, _conditional_mean(f.terms))
    if result is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            limit = CLOSED_ENOUGH * crude_norm(f, mu_f, sd_f) * crude_norm(g, mu_g, sd_g) + 2 * TINY
        if not np.any(active & (result.error > limit)):
            return result
    numeric = integrate_plane(f, g, (mu_f, mu_g), (sd_f, sd_g), rho, s)
    return numeric if result is None else result.better_of(numeric)


def _conditional_mean(terms: tuple[Term, ...]) -> Callable[[Array, Array], Estimate]:
    """E of the terms for means and deviations of shape batch + (m,)."""
    return partial(closed_mean, tuple(term.lifted() for term in terms))


def _zeros(shape: tuple[int, ...]) -> Estimate:
    return Estimate(np.zeros(shape), np.zeros(shape))


def _at_point(f: Function, mu: Array) -> Estimate:
    """f(mu), with the rounding of an evaluation."""
    value = evaluate(f, mu[..., None])[..., 0]
    return Estimate(value, np.where(np.isfinite(value), 4 * EPS * np.abs(value), np.inf))


def _arguments(*named: tuple[str, ArrayLike]) -> list[Array]:
    """Float arrays, finite; denormal numbers count as zero."""
    arrays = []
    for name, given in named:
        array = np.asarray(given, dtype=np.float64)
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)].flat[0]}")
        arrays.append(np.where(np.abs(array) < np.finfo(np.float64).tiny, 0.0, array))
    return list(np.broadcast_arrays(*arrays))


def _nonnegative(name: str, array: Array) -> None:
    if np.any(array < 0):
        raise ValueError(f"{name} must not be negative, got {array.min()}")


def _full_batch(arrays: tuple[Array, ...], *uses: tuple[Function, Array]) -> tuple[Array, ...]:
    """Broadcast to the batch that arguments and function parameters, visible or inside `call`, span together."""
    shapes = [arrays[0].shape]
    for f, mu in uses:
        with np.errstate(all="ignore"):
            shapes += [f.shape, np.shape(f.call(np.ones((1,) * (mu.ndim + 1))))[:-1]]
    batch = np.broadcast_shapes(*shapes)
    return tuple(np.broadcast_to(array, batch) for array in arrays)

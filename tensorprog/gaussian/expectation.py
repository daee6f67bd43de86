"""E f(X) and E f(X) g(Y) for Gaussian variables: a ladder of methods, each answering the members it can.

In order: exact zeros by parity and points without variance; closed forms; quadrature. A member keeps the first
answer whose stated error is at rounding level, else the answer with the smallest stated error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .closed_forms import closed_cross, closed_mean
from .estimate import EPS, TINY, Estimate
from .function import Function, Term
from .law import correlation
from .quadrature import crude_norm, evaluate, integrate_line, integrate_plane

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]

__all__ = ["cross", "mean"]

# a closed form whose error bound exceeds this, relative to the size of the functions, lets quadrature try as well
CLOSED_ENOUGH = 1e-12
# members computed at once where functions have no parameter arrays
BLOCK = 2048


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
) -> Estimate:
    """E f(X) g(Y) for (X, Y) Gaussian with the given means, variances and covariance.

    Shapes    all arguments and the parameters of f and g broadcast to the batch -> Estimate of shape batch
    Scale     any units; zero variances and correlations of exactly +-1 are ordinary arguments
    Accuracy  as `mean`; exactly 0 where both means are 0 and the parities opposite, and where cov = 0 and one of
              the two means of f(X), g(Y) is exactly 0
    Raises    ValueError for a negative or non-finite argument or |cov| beyond sqrt(var_f var_g),
              FloatingPointError if a function returns nan
    """
    named = (("mu_f", mu_f), ("mu_g", mu_g), ("var_f", var_f), ("var_g", var_g), ("cov", cov))
    a, b, va, vb, c = _arguments(*named)
    _nonnegative("var_f", va)
    _nonnegative("var_g", vb)
    if np.any(c[(va == 0) | (vb == 0)] != 0):
        raise ValueError("cov must be 0 where var_f or var_g is 0")
    a, b, va, vb, c = _full_batch((a, b, va, vb, c), (f, a), (g, b))
    independent = np.asarray(c == 0)
    zero = np.asarray((a == 0) & (b == 0) & (f.parity * g.parity < 0))
    zero |= independent & (((f.parity < 0) & (a == 0)) | ((g.parity < 0) & (b == 0)))
    result = _zeros(c.shape)
    if np.any(independent & ~zero):
        # a common batch shape is kept, so that parameter arrays inside the functions still fit
        result = mean(f, a, va) * mean(g, b, vb)
    active = ~(zero | independent)
    corr = correlation(va, vb, c)
    if np.any(active):
        sd = [np.sqrt(np.where(v == 0, 1.0, v)) for v in (va, vb)]
        arrays = (a, b, *sd, corr.rho, corr.s)
        result = _by_member(_cross_spread, (f, g), arrays, active).where(active, result)
    return result.where(~zero, _zeros(c.shape))


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
            shapes += [f.shape, np.shape(f.call(mu[..., None]))[:-1]]
    batch = np.broadcast_shapes(*shapes)
    return tuple(np.broadcast_to(array, batch) for array in arrays)

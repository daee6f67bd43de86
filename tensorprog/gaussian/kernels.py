"""E f(X) g(Y) at zero means for f, g built of 1, x, |x|, sign(x) and erf(a x): arc-cosine and arcsine kernels.

    E |X| |Y|                        = (2 / pi) sd sd' (s + rho asin rho)                    Cho & Saul 2009, n = 1
    E sign(X + dX) sign(Y + dY)      = (2 / pi) asin(c / sqrt((v + h) (v' + h')))            Sheppard 1899
    E Y sign(X + dX)                 = c sqrt(2 / pi) / sqrt(v + h)
    E |X|                            = sqrt(2 / pi) sd

with dX ~ N(0, h) independent; erf(a x) is the mean of sign(x + dX) for h = 1 / (2 a^2), which turns Sheppard's formula
into Williams' (1998). Products of opposite parity vanish. One pass over the covariances, in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .estimate import EPS
from .function import Function, Term
from .law import correlation

Array = NDArray[np.floating]

__all__ = ["Elementary", "elementary", "kernel", "kernel_error"]

MEAN_ABS = float(np.sqrt(2 / np.pi))  # E |X| of a standard normal X
# asin loses 1 / sqrt(1 - rho^2) of relative accuracy: beyond this correlation 1 - rho^2 comes from exact products
STEEP = 0.999
# spreads and variances outside count as extreme: their squares would over- or underflow
SMALL, LARGE = 1e-150, 1e150
# units of rounding in one kernel, relative to the product of the sizes: about 10 roundings in |x| |y|, and in the arc
# sine those of its argument (5) times 1 / sqrt(1 - STEEP^2) = 22 of conditioning, times 2 / pi, and its own
ULPS_SMOOTH, ULPS_STEEP = 16.0, 96.0


@dataclass(frozen=True)
class Elementary:
    """constant + linear x + modulus |x| + sum of amplitude * erf(x / sqrt(2 spread)); spread 0 means the sign.

    at_zero   f(0), which differs from the constant where a step counts as 0 at its own place
    """

    constant: float
    at_zero: float
    linear: float
    modulus: float
    sigmoids: tuple[tuple[float, float], ...]  # amplitude, spread


def elementary(f: Function) -> Elementary | None:
    """f in that form, if its terms have it: step(x) = (1 + sign x) / 2 and x step(x) = (x + |x|) / 2."""
    if f.terms is None:
        return None
    constant = at_zero = linear = modulus = 0.0
    sigmoids: dict[float, float] = {}
    for term in f.terms:
        numbers = _numbers(term)
        if numbers is None or term.power > 1:
            return None
        amplitude, scale = numbers
        if term.kind == "one" and term.power == 0:
            constant, at_zero = constant + amplitude, at_zero + amplitude
        elif term.kind == "one":
            linear += amplitude
        elif scale == 0:
            continue  # step(0) = erf(0) = 0
        elif term.kind == "step" and term.power == 1:
            linear, modulus = linear + amplitude / 2, modulus + np.sign(scale) * amplitude / 2
        elif term.kind == "step":
            constant += amplitude / 2
            sigmoids[0.0] = sigmoids.get(0.0, 0.0) + np.sign(scale) * amplitude / 2
        elif term.kind == "erf" and term.power == 0 and SMALL < scale * scale < LARGE:
            spread = 0.5 / (scale * scale)
            sigmoids[spread] = sigmoids.get(spread, 0.0) + np.sign(scale) * amplitude
        else:
            return None
    return Elementary(constant, at_zero, linear, float(modulus), tuple((float(a), h) for h, a in sigmoids.items()))


def _numbers(term: Term) -> tuple[float, float] | None:
    """Coefficient and scale of a term without shift and without parameters that vary over the batch."""
    values = [np.asarray(value, dtype=np.float64) for value in (term.coefficient, term.scale, term.shift)]
    if any(value.size != 1 for value in values) or (term.kind != "one" and values[2].item() != 0):
        return None
    return values[0].item(), values[1].item()


def kernel_size(f: Elementary, var: Array) -> Array:
    """A bound on sqrt(E f(X)^2) that is at most a small multiple of it, unless summands of f cancel.

    Shapes    var -> the same
    """
    sd = np.sqrt(var)
    size = np.where(var > 0, abs(f.constant), abs(f.at_zero)) + (abs(f.linear) + abs(f.modulus)) * sd
    for amplitude, spread in f.sigmoids:
        size = size + abs(amplitude) * sd * _inverse_root(var + spread)
    return np.asarray(size)


def kernel(f: Elementary, g: Elementary, var_f: Array, var_g: Array, cov: Array, slack: float) -> Array:
    """E f(X) g(Y) for (X, Y) Gaussian of mean zero.

    Shapes    arguments broadcast to the batch; var_f and var_g may have axes of length 1 -> batch
    Accuracy  see `kernel_error`, taking the arguments as exact
    Raises    ValueError for an infinite covariance or a correlation beyond 1 + slack
    """
    sd_f, sd_g = np.sqrt(var_f), np.sqrt(var_g)
    total = cov * (_odd(f, g, var_f, var_g) + np.zeros_like(var_f) * np.zeros_like(var_g))
    if f.constant or g.constant or f.at_zero or g.at_zero:
        one_f, one_g = (np.where(v > 0, h.constant, h.at_zero) for h, v in ((f, var_f), (g, var_g)))
        total += one_f * one_g + MEAN_ABS * (one_f * (g.modulus * sd_g) + (f.modulus * sd_f) * one_g)
    rho = _unit(cov, var_f, var_g, slack)
    if f.modulus and g.modulus:
        total += _arc_cosine(rho) * (sd_f * sd_g * (f.modulus * g.modulus * 2 / np.pi))
    for a, h in f.sigmoids:
        for b, k in g.sigmoids:
            total += _arc_sine(rho, cov, (var_f, h), (var_g, k)) * (a * b * 2 / np.pi)
    return total


def kernel_error(f: Elementary, g: Elementary, var_f: Array, var_g: Array) -> Array:
    """A bound on the rounding of `kernel`, in multiples of the sizes of f(X) and g(Y).

    Shapes    broadcast to the batch, or to axes of length 1 where sizes are alike: one bound then serves all
    """
    ulps = ULPS_STEEP if f.sigmoids and g.sigmoids else ULPS_SMOOTH
    first, second = (_alike(kernel_size(h, var)) for h, var in ((f, var_f), (g, var_g)))
    return np.asarray(ulps * EPS * first * second)


def _alike(size: Array) -> Array:
    """The largest size for all, if no other but zero is much smaller."""
    top = size.max(initial=0.0)
    if np.all((size == 0) | (16 * size >= top)):
        return np.full((1,) * size.ndim, top)
    return size


def _inverse_root(values: Array) -> Array:
    """1 / sqrt, 0 for 0."""
    return np.asarray(np.where(values > 0, 1 / np.sqrt(np.where(values > 0, values, 1.0)), 0.0))


def _odd(f: Elementary, g: Elementary, var_f: Array, var_g: Array) -> Array:
    """The factor of the covariance: products of x with x, and with sigmoids."""

    def slope(h: Elementary, var: Array) -> Array:
        return sum((a * MEAN_ABS * _inverse_root(var + spread) for a, spread in h.sigmoids), np.zeros((1,) * var.ndim))

    return f.linear * g.linear + (f.linear * slope(g, var_g) + g.linear * slope(f, var_f))


def _unit(cov: Array, var_f: Array, var_g: Array, slack: float) -> Array:
    """Correlations to a few roundings, in [-1, 1].  Errors and sizes are of the order of eps, not of eps / s."""
    rho = cov * (_inverse_root(var_f) * _inverse_root(var_g))
    top = max(rho.max(initial=0.0), -rho.min(initial=0.0))
    if not top <= 1 + slack:
        raise ValueError(
            f"covariance is not positive semidefinite: correlation {top:.17g} in absolute value\n"
            f"  needed  |cov| <= sqrt(var_f var_g), up to {slack:g} relatively"
        )
    if top > 1:
        np.clip(rho, -1, 1, out=rho)
    return rho


def _arc_cosine(rho: Array) -> Array:
    """J = sqrt(1 - rho^2) + rho asin rho, in [1, pi / 2].

    dJ / d rho = asin rho is at most pi / 2: the rounding of rho costs no more than that anywhere, provided that the
    root belongs to the same rounded rho. (1 - rho) (1 + rho) does: where rho is near 1, 1 - rho is exact.
    """
    root = 1 - rho
    root *= 1 + rho
    np.sqrt(root, out=root)
    angle = np.arcsin(rho)
    angle *= rho
    angle += root
    return angle


def _arc_sine(rho: Array, cov: Array, first: tuple[Array, float], second: tuple[Array, float]) -> Array:
    """asin of the correlation of X + dX and Y + dY, dX ~ N(0, h): d asin = d rho / s, so that small s are refined."""
    (var_f, h), (var_g, k) = first, second
    ratio = rho if h == k == 0 else cov * (_inverse_root(var_f + h) * _inverse_root(var_g + k))
    angle = np.arcsin(np.clip(ratio, -1, 1))
    steep = np.nonzero(np.abs(ratio) > STEEP)
    if steep[0].size:
        v, w, c = (np.broadcast_to(array, angle.shape)[steep] for array in (var_f, var_g, cov))
        plain = correlation(v, w, c, np.inf)  # what exceeds 1 was refused before
        p, q = h / v, k / w
        angle[steep] = np.arctan2(plain.rho, np.sqrt(plain.s**2 + (p + q + p * q)))
    return angle

"""The normal law in one and two variables: correlations and probabilities of signs.

Everything here is free of the cancellations that textbook formulas have: 1 - rho^2 near rho = +-1, the gap between two
thresholds that nearly meet, probabilities far in a tail.  Signs of two variables go through Owen's T: throughout
U = sd_U (h + xi), V = sd_V (k + eta) with xi, eta standard normal of correlation r, and s = sqrt(1 - r^2) given
separately, accurate where r is close to +-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tensorprog.gaussian.estimate import EPS, Estimate

Array = NDArray[Any]

__all__ = [
    "CORRELATION_SLACK",
    "FAR",
    "Correlation",
    "correlation",
    "fused",
    "gap",
    "positive",
    "refuse_correlation",
    "sign",
    "sign_sign",
    "step_sign",
    "step_step",
    "two_product",
    "two_sum",
]

# covariances that are themselves estimates may exceed sqrt(var var) slightly; beyond this it is an error
CORRELATION_SLACK = 1e-6
# standardised thresholds beyond this are as good as infinite: exp(-FAR^2 / 2) underflows
FAR = 50.0
SQRT_2PI = float(np.sqrt(2 * np.pi))
# relative error of scipy's erf and erfcx against mpmath, in eps, with a margin of two
ULPS = 8


# -- correlations ------------------------------------------------------------------------------------------------------


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Product and its rounding error: p + e = a b exactly (Dekker 1971), barring over- and underflow."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        p = a * b
        split = 134217729.0  # 2^27 + 1
        ah = split * a - (split * a - a)
        bh = split * b - (split * b - b)
        al, bl = a - ah, b - bh
        e = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    return np.asarray(p), np.asarray(np.where(np.isfinite(e), e, 0.0))


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Sum and its rounding error: s + e = a + b exactly (Knuth)."""
    with np.errstate(invalid="ignore"):
        s = a + b
        t = s - a
        e = (a - (s - t)) + (b - t)
    return np.asarray(s), np.asarray(np.where(np.isfinite(e), e, 0.0))


def fused(a: Array, x: Array, b: Array) -> Array:
    """a x + b to one rounding or so, however much cancels."""
    p, e = two_product(a, x)
    s, t = two_sum(p, b)
    return np.asarray(s + (t + e))


@dataclass(frozen=True, eq=False)
class Correlation:
    """rho and s = sqrt(1 - rho^2), each to a few units of relative rounding.

    Shapes    rho, s: batch; s is exactly 0 at correlation +-1
    """

    rho: Array
    s: Array


def correlation(var_f: ArrayLike, var_g: ArrayLike, cov: ArrayLike, slack: float = CORRELATION_SLACK) -> Correlation:
    """Correlation of two variables; 0 where a variance is 0.

    Shapes    batches that broadcast
    Accuracy  s has relative accuracy of a few eps even where it is 1e-8, taking the arguments as exact; a
              covariance above sqrt(var_f var_g) by rounding counts as correlation +-1
    Raises    ValueError if |cov| exceeds sqrt(var_f var_g) by more than `slack`, relatively
    """
    a, b, c = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (var_f, var_g, cov)))
    degenerate = (a == 0) | (b == 0)
    # scaled by powers of two into [1/4, 1), so that no product over- or underflows; exact
    ea, eb = (-(-np.frexp(v)[1] // 2) for v in (a, b))
    a, b, c = (np.ldexp(v, -k) for v, k in ((a, 2 * ea), (b, 2 * eb), (c, ea + eb)))
    a, b, c = (np.where(degenerate, r, v) for v, r in ((a, 1.0), (b, 1.0), (c, 0.0)))
    # var var - cov^2 from error-free products; where it is small the first difference is exact (Sterbenz)
    p, pe = two_product(a, b)
    q, qe = two_product(c, c)
    det = (p - q) + (pe - qe)
    worst = np.max(np.where(np.abs(c) > (1 + slack) * np.sqrt(p), np.abs(c) / np.sqrt(p), 0.0), initial=0.0)
    refuse_correlation(worst, slack)
    singular = np.asarray(det <= 0)
    rho = np.where(singular, np.sign(c), c / np.sqrt(p))
    s = np.where(singular, 0.0, np.sqrt(np.maximum(det, 0.0) / p))
    return Correlation(np.asarray(rho), np.asarray(s))


def refuse_correlation(largest: float, slack: float) -> None:
    """An error where the largest correlation is above 1 + slack."""
    if largest > 1 + slack:
        raise ValueError(
            f"covariance is not positive semidefinite: correlation {largest:.17g} in absolute value\n"
            f"  needed  |cov| <= sqrt(var_f var_g), up to {slack:g} relatively"
        )


# -- signs -------------------------------------------------------------------------------------------------------------


def gap(k: Estimate, h: Estimate, r: Array, s: Array) -> Estimate:
    """(k - r h) / s: the standardised mean of V given U = 0.

    For r >= 0 the numerator is (k - h) + (1 - r) h with 1 - r = s^2 / (1 + r), and for r < 0 it is
    (k + h) - (1 + r) h with 1 + r = s^2 / (1 - r): no cancellation but the one between k and +-h itself.
    """
    sign = np.where(r < 0, -1.0, 1.0)
    value = (k.value - sign * h.value) / s + sign * s / (1 + np.abs(r)) * h.value
    error = (k.error + h.error) / s + 4 * EPS * (np.abs(value) + s * np.abs(h.value))
    # the subtraction k -+ h rounds once (it is exact when they are close)
    return Estimate(value, np.asarray(error))


def _owen(h: Array, slanted: Estimate, other: Array) -> tuple[Array, Array]:
    """T(h, a) for a = slanted / h, with a bound; for h = 0 the limit a -> +-inf with the sign of `other`.

    dT/da = exp(-h^2 (1 + a^2) / 2) / (2 pi (1 + a^2)), and da = d slanted / h, hence
    dT = exp(-(h^2 + slanted^2) / 2) / (2 pi) * |h| / (h^2 + slanted^2) * d slanted.
    """
    g = slanted.value
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        a = np.where(h == 0, np.where(other == 0, 0.0, np.copysign(np.inf, other)), g / np.where(h == 0, 1.0, h))
        value = np.where(np.isinf(a), 0.5 * np.sign(a) * special.ndtr(-np.abs(h)), special.owens_t(h, a))
        square = h * h + g * g
        slope = np.where(square > 0, np.exp(-0.5 * square) * np.abs(h) / np.where(square > 0, square, 1.0), 0.0)
    # scipy's owens_t against mpmath: 3 eps for |h| < 2, 32 eps where it is small itself
    error = slope / (2 * np.pi) * slanted.error + np.where(np.abs(h) < 2, 4, 64) * EPS * np.abs(value)
    return np.asarray(value), np.asarray(np.minimum(error, 0.5))


def _owen_sum(h: Estimate, k: Estimate, r: Array, s: Array) -> Estimate:
    """Q = T(h, a_h) + T(k, a_k) + delta / 2, where a_h = (k - r h) / (h s) and a_k = (h - r k) / (k s).

    delta = 1 if h and k have opposite signs, or one is 0 and the other negative, else 0. Then
    P(xi <= h, eta <= k) = (cdf(h) + cdf(k)) / 2 - Q                                       (Owen 1956)
    At h = k = 0 it is 1/4 + asin(r) / (2 pi), hence Q = acos(r) / (2 pi).
    """
    # h and k count as exact here: what their errors do to Q is bounded below, without the factor 1 / s of the gaps
    exact_h, exact_k = Estimate.exact(h.value), Estimate.exact(k.value)
    first, first_error = _owen(h.value, gap(exact_k, exact_h, r, s), k.value)
    second, second_error = _owen(k.value, gap(exact_h, exact_k, r, s), h.value)
    product = np.sign(h.value) * np.sign(k.value)
    delta = (product < 0) | ((product == 0) & (h.value + k.value < 0))
    origin = (h.value == 0) & (k.value == 0)
    angle = np.arctan2(s, r) / (2 * np.pi)
    value = np.where(origin, angle, first + second + 0.5 * delta)
    error = np.where(origin, 4 * EPS * angle, first_error + second_error + 2 * EPS * np.abs(value))
    # thresholds that are inexact move the probability by at most the marginal density at them
    return Estimate(value, np.asarray(error + _moved(h) + _moved(k)))


def _moved(h: Estimate) -> Array:
    """Probability between h - error and h + error, to first order."""
    nearest = np.maximum(np.abs(h.value) - h.error, 0.0)
    return np.asarray(np.minimum(h.error * np.exp(-0.5 * nearest**2) / SQRT_2PI, 1.0))


def positive(h: Estimate) -> Estimate:
    """P(U > 0) = P(xi <= h), relatively accurate where it is small.

    Shapes    batch
    """
    tail = 0.5 * np.exp(-0.5 * h.value**2) * special.erfcx(np.abs(h.value) / np.sqrt(2.0))
    value = np.where(h.value > 0, 1 - tail, tail)
    return Estimate(value, np.asarray(EPS * ((ULPS + h.value**2) * tail + (h.value > 0)) + _moved(h)))


def sign(h: Estimate) -> Estimate:
    """E[sign U], relatively accurate where it is small.

    Shapes    batch
    """
    value = special.erf(h.value / np.sqrt(2.0))
    return Estimate(value, np.asarray(ULPS * EPS * np.abs(value) + 2 * _moved(h)))


def step_step(h: Estimate, k: Estimate, r: Array, s: Array) -> Estimate:
    """P(U > 0, V > 0) = P(xi <= h, eta <= k) = (cdf(h) + cdf(k)) / 2 - Q, within the Frechet bounds.

    Shapes    all batch
    Accuracy  absolute, at most min(P(U > 0), P(V > 0)): far thresholds give relative smallness, not relative accuracy
    Source    Owen 1956, Tables for computing bivariate normal probabilities, eq. 2.1
    """
    first, second = special.ndtr(h.value), special.ndtr(k.value)
    q = _owen_sum(h, k, r, s)
    smaller = np.minimum(first, second)
    value = np.clip(0.5 * first + 0.5 * second - q.value, np.maximum(first - special.ndtr(-k.value), 0.0), smaller)
    error = q.error + _moved(h) + _moved(k) + 4 * EPS * (first + second)
    return Estimate(value, np.asarray(np.minimum(error, smaller * (1 + 8 * EPS) + _moved(h) + _moved(k))))


def sign_sign(h: Estimate, k: Estimate, r: Array, s: Array) -> Estimate:
    """E[sign U sign V] = 4 P - 2 cdf(h) - 2 cdf(k) + 1 = 1 - 4 Q; at h = k = 0 it is (2 / pi) asin(r)."""
    q = _owen_sum(h, k, r, s)
    value = 1 - 4 * q.value
    origin = np.asarray((h.value == 0) & (k.value == 0) & (h.error == 0) & (k.error == 0))
    arcsine = Estimate.rounded(2 / np.pi * np.arctan2(r, s), 8)
    return arcsine.where(origin, Estimate(value, np.asarray(4 * q.error + 2 * EPS)))


def step_sign(h: Estimate, k: Estimate, r: Array, s: Array) -> Estimate:
    """E[1(U > 0) sign V] = 2 P - cdf(h) = cdf(k) - 2 Q, at most P(U > 0) in absolute value."""
    q = _owen_sum(h, k, r, s)
    bound = special.ndtr(h.value)
    value = np.clip(special.ndtr(k.value) - 2 * q.value, -bound, bound)
    error = 2 * q.error + _moved(k) + 4 * EPS
    return Estimate(value, np.asarray(np.minimum(error, 2 * bound * (1 + 8 * EPS) + 2 * _moved(h))))

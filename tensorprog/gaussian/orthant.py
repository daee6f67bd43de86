"""Signs of two Gaussian variables: E[1(U > 0) 1(V > 0)] and relatives, through Owen's T.

Throughout U = sd_U (h + xi), V = sd_V (k + eta) with xi, eta standard normal of correlation r, and s = sqrt(1 - r^2)
given separately, accurate where r is close to +-1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tensorprog.gaussian.estimate import EPS, Estimate

Array = NDArray[np.floating]

__all__ = ["FAR", "gap", "normal_cdf", "normal_pdf", "sign_sign", "step_sign", "step_step"]

# standardised thresholds beyond this are as good as infinite: exp(-FAR^2 / 2) underflows
FAR = 50.0
SQRT_2PI = float(np.sqrt(2 * np.pi))


def normal_pdf(d: Estimate) -> Estimate:
    """Standard normal density at d; its slope |d| pdf(d) <= 0.25 carries the error of d."""
    value = np.exp(-0.5 * d.value**2) / SQRT_2PI
    # where the error of d is not small against 1 the density is only known to lie in [0, 0.4]
    relative = np.minimum(2 * (np.abs(d.value) + d.error) * d.error, 1e6)
    error = np.minimum(value * (relative + EPS * (4 + d.value**2)), 0.4)
    return Estimate(value, np.asarray(error + np.where(d.error > 0.1, 0.4, 0.0)))


def normal_cdf(d: Estimate) -> Estimate:
    """Standard normal distribution function at d."""
    value = np.asarray(special.ndtr(d.value))
    slope = np.exp(-0.5 * np.maximum(np.abs(d.value) - d.error, 0.0) ** 2) / SQRT_2PI
    # in the lower tail the rounding of d / sqrt(2) counts |d| times the relative slope, which is |d|
    rounding = EPS * (4 + np.minimum(d.value, 0.0) ** 2) * value
    return Estimate(value, np.asarray(np.minimum(slope * d.error, 1.0) + rounding))


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

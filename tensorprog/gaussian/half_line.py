"""Moments over a half-line: J_k(z) = integral over v > 0 of v^k exp(z v - v^2 / 2) for complex z, Re z <= 0."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tensorprog.gaussian.estimate import EPS, Estimate

Array = NDArray[Any]

__all__ = ["half_line_moments"]

# relative error of scipy's erfcx against mpmath, in eps, with a margin of two: real arguments, complex ones
REAL_ULPS, COMPLEX_ULPS = 8, 256
# from this |z| on so many terms of the asymptotic series leave less than rounding, for k up to 5 or so
ASYMPTOTIC, TERMS = 10.0, 36


def half_line_moments(n: int, z: Array, error: Array) -> list[Estimate]:
    """J_0, ..., J_n, z known up to error.

    J_0 = sqrt(pi / 2) erfcx(-z / sqrt2), a Faddeeva function. By parts J_1 = 1 + z J_0, J_(k+1) = z J_k + k J_(k-1),
    which cancels where |z| is large: there exp(-v^2 / 2) is expanded and integrated against exp(z v).

    Shapes    z and error batch -> estimates of shape batch
    Accuracy  rounding, and the error of z through |dJ_0 / dz| <= 2 / (1 + |z|^2 / 2)
    """
    ulps = COMPLEX_ULPS if np.iscomplexobj(z) else REAL_ULPS
    root = np.sqrt(0.5 * np.pi)
    value = root * np.asarray(special.erfcx(-z / np.sqrt(2.0)))
    found = [Estimate(value, np.asarray(ulps * EPS * np.abs(value) + 2 / (1 + 0.5 * np.abs(z) ** 2) * error))]
    if n > 0:
        inexact = Estimate(z, error)
        found.append(inexact * found[0] + 1.0)
        for k in range(1, n):
            found.append(inexact * found[k] + found[k - 1] * float(k))
        far = np.asarray(np.abs(z) >= ASYMPTOTIC)
        u = -np.where(far, z, -ASYMPTOTIC)
        found[1:] = [found[k].better_of(_asymptotic(k, u, error)).where(far, found[k]) for k in range(1, n + 1)]
    return found


def _asymptotic(k: int, u: Array, error: Array) -> Estimate:
    """J_k(-u) = sum over m of (-1/2)^m / m! (k + 2 m)! / u^(k + 2 m + 1)."""
    term = factorial(k) / u ** (k + 1)
    total = term
    for m in range(TERMS):
        term = term * (-(k + 2 * m + 1) * (k + 2 * m + 2) / (2 * (m + 1))) / (u * u)
        total = total + term
    # the ratio of the next two terms; it grows slowly, hence twice the geometric rest
    ratio = (k + 2 * TERMS + 1) * (k + 2 * TERMS + 2) / (2 * (TERMS + 1)) / np.abs(u) ** 2
    rest = np.where(ratio < 1, 2 / np.maximum(1 - ratio, EPS), np.inf) * np.abs(term)
    size = np.abs(total)
    return Estimate(total, np.asarray((8 + 2 * k) * EPS * size + rest + 2 * (k + 1) * size / np.abs(u) * error))

"""Compiled passes over a tile of pairs: arcsine and arc-cosine kernels, bells, and sums of Hermite series.

They hold no lock of the interpreter.  Needs numba, from the extra `fast`; only `fast` imports this module.  Formulas
are those of `kernels` and `series`, without arrays on the way; loops over the second index are vector instructions.
"""

from __future__ import annotations

import math
from typing import Any

from numba import njit, types

__all__ = ["add_arc_sines", "add_bells", "add_plain", "add_ramps", "sums"]

OPTIONS = {"nogil": True, "error_model": "numpy"}
NUMBER = types.float64
TILE = types.Array(NUMBER, 2, "C", readonly=True)
OUT = types.Array(NUMBER, 2, "C")
STEEP = 1 - 0.999**2  # where 1 - r^2 is smaller, the angle comes from exact products
# the quotient of polynomials of Sun's fdlibm (e_asin.c) for (asin x - x) / x^3, x^2 <= 1/4
P = (1.66666666666666657415e-01, -3.25565818622400915405e-01, 2.01212532134862925881e-01, -4.00555345006794114027e-02,
     7.91534994289814532176e-04, 3.47933107596021167570e-05)  # fmt: skip
Q = (-2.40339491173441421878e00, 2.02094576023350569471e00, -6.88283971605453293030e-01, 7.70381505559019352791e-02)
P0, P1, P2, P3, P4, P5 = P
Q0, Q1, Q2, Q3 = Q


@njit(**OPTIONS)
def _asin(r: float) -> float:
    """asin r to two units of rounding: beyond 1/2 it is pi / 2 - 2 asin sqrt((1 - r) / 2)."""
    size = abs(r)
    far = size > 0.5
    z = (1.0 - size) * 0.5 if far else size * size
    x = math.sqrt(z) if far else size
    top = z * (P0 + z * (P1 + z * (P2 + z * (P3 + z * (P4 + z * P5)))))
    angle = x + x * (top / (1.0 + z * (Q0 + z * (Q1 + z * (Q2 + z * Q3)))))
    angle = math.pi / 2 - 2.0 * angle if far else angle
    return -angle if r < 0.0 else angle


@njit(**OPTIONS)
def _product(a: float, b: float) -> tuple[float, float]:
    """Product and its rounding error (Dekker 1971)."""
    one, two = 134217729.0 * a, 134217729.0 * b
    high, upper = one - (one - a), two - (two - b)
    low, lower, p = a - high, b - upper, a * b
    return p, ((high * upper - p) + high * lower + low * upper) + low * lower


@njit(**OPTIONS)
def _kept(r: float) -> float:
    """A correlation kept in [-1, 1]."""
    r = 1.0 if r > 1.0 else r
    return -1.0 if r < -1.0 else r


@njit(types.void(TILE, TILE, NUMBER, TILE, OUT), cache=True, **OPTIONS)
def add_plain(left: Any, right: Any, weight: float, cov: Any, total: Any) -> None:
    """Add what constants and linear parts give; left has the constant, the mean of all else, the slope and the tilt."""
    for i in range(cov.shape[0]):
        one, mean, slope, tilt = left[0, i], left[1, i], left[2, i], left[3, i]
        for j in range(cov.shape[1]):
            means = one * right[0, j] + (one * right[1, j] + mean * right[0, j])
            total[i, j] += means + cov[i, j] * (slope * right[2, j] + (slope * right[3, j] + tilt * right[2, j]))


@njit(types.void(TILE, TILE, NUMBER, TILE, OUT), cache=True, **OPTIONS)
def add_ramps(left: Any, right: Any, weight: float, cov: Any, total: Any) -> None:
    """Add weight S S' (r asin r + (p q + r^2 (1 - p - q)) / sqrt(1 - r^2)); left has 1 / S, p, 1 - p and S."""
    for i in range(cov.shape[0]):
        root, p, rest, size = left[0, i], left[1, i], left[2, i], weight * left[3, i]
        for j in range(cov.shape[1]):
            q, other = right[1, j], right[2, j]
            r = _kept(root * right[0, j] * cov[i, j])
            square = (1.0 - r) * (1.0 + r)
            tilt = min(p, q) - min(rest, other)
            top = max(tilt, 0.0) * square - min(tilt, 0.0) * (r * r) + min(rest * other, p * q)
            total[i, j] += size * right[3, j] * (top / max(math.sqrt(square), 2.0**-52) + r * _asin(r))


@njit(types.void(TILE, TILE, NUMBER, TILE, OUT), cache=True, **OPTIONS)
def add_arc_sines(left: Any, right: Any, weight: float, cov: Any, total: Any) -> None:
    """Add weight asin r; left has 1 / S, a scale z, z^2 v and z^2 h."""
    for i in range(cov.shape[0]):
        steep = 0
        for j in range(cov.shape[1]):
            r = _kept(left[0, i] * right[0, j] * cov[i, j])
            angle = weight * _asin(r)
            far = (1.0 - r) * (1.0 + r) >= STEEP
            total[i, j] += angle if far else 0.0
            steep += 0 if far else 1
        for j in range(cov.shape[1] if steep else 0):
            r = _kept(left[0, i] * right[0, j] * cov[i, j])
            if not (1.0 - r) * (1.0 + r) >= STEEP:
                v, w, h, k = left[2, i], right[2, j], left[3, i], right[3, j]
                c = left[1, i] * right[1, j] * cov[i, j]
                (p, e), (q, f) = _product(v, w), _product(c, c)
                rest = (p - q) + (e - f)
                c = c if rest > 0.0 else math.copysign(math.sqrt(p), c)
                total[i, j] += weight * math.atan2(c, math.sqrt(max(rest, 0.0) + (h * w + k * v + h * k)))


@njit(types.void(TILE, TILE, NUMBER, TILE, OUT), cache=True, **OPTIONS)
def add_bells(left: Any, right: Any, weight: float, cov: Any, total: Any) -> None:
    """Add weight sqrt(h h') / (S S' sqrt(1 - r^2)); left has 1 / S, 1 - p and sqrt(h)."""
    for i in range(cov.shape[0]):
        for j in range(cov.shape[1]):
            size = left[0, i] * right[0, j]
            r = size * cov[i, j]
            square = max((1.0 - r) * (1.0 + r), left[1, i] + right[1, j] - left[1, i] * right[1, j])
            total[i, j] += weight * (left[2, i] * right[2, j] * size) / math.sqrt(square)


@njit(types.void(TILE, TILE, types.int64, types.int64, types.int64, NUMBER, TILE, OUT), cache=True, **OPTIONS)
def sums(a: Any, b: Any, order: int, first: int, step: int, reach: float, rho: Any, total: Any) -> None:
    """Sums of a[k, i] b[k, j] rho^k, k = first, first + step, ..: below `order`, and all where abs(rho) > reach."""
    whole = a.shape[0]
    for i in range(rho.shape[0]):
        for j in range(rho.shape[1]):
            total[i, j] = 0.0
        for k in range(first + (order - 1 - first) // step * step, -1, -step):
            for j in range(rho.shape[1]):
                x = rho[i, j] if step == 1 else rho[i, j] * rho[i, j]
                total[i, j] = total[i, j] * x + a[k, i] * b[k, j]
        for j in range(rho.shape[1]):
            if abs(rho[i, j]) > reach:
                x = rho[i, j] if step == 1 else rho[i, j] * rho[i, j]
                found = 0.0
                for k in range(first + (whole - 1 - first) // step * step, -1, -step):
                    found = found * x + a[k, i] * b[k, j]
                total[i, j] = found
            if first:
                total[i, j] *= rho[i, j]

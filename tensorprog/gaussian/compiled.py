"""Compiled passes over a tile of pairs: arcsine and arc-cosine kernels, bells, and sums of Hermite series.

They hold no lock of the interpreter.  Needs numba, from the extra `fast`; only `fast` imports this module.  Formulas
are those of `kernels` and `series`, without arrays on the way; loops over the second index are vector instructions.
"""

from __future__ import annotations

import math
from typing import Any

from numba import njit, types

__all__ = ["add_arc_sines", "add_bells", "add_ramps", "sums"]

OPTIONS = {"nogil": True, "error_model": "numpy"}
NUMBER = types.float64
VECTOR, TILE = (types.Array(NUMBER, axes, "C", readonly=True) for axes in (1, 2))
OUT = types.Array(NUMBER, 2, "C")
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
def _kept(r: float) -> float:
    """A correlation kept in [-1, 1]."""
    r = 1.0 if r > 1.0 else r
    return -1.0 if r < -1.0 else r


@njit(types.void(*[VECTOR] * 8, NUMBER, TILE, OUT), cache=True, **OPTIONS)
def add_ramps(
    left: Any, right: Any, p: Any, rest: Any, q: Any, other: Any, size: Any, scale: Any, weight: float, cov: Any,
    total: Any,
) -> None:  # fmt: skip
    """Add weight size[i] scale[j] (r asin r + (p q + r^2 (1 - p - q)) / sqrt(1 - r^2)) for r = left[i] right[j] cov."""
    for i in range(cov.shape[0]):
        for j in range(cov.shape[1]):
            r = _kept(left[i] * right[j] * cov[i, j])
            square = (1.0 - r) * (1.0 + r)
            tilt = min(p[i], q[j]) - min(rest[i], other[j])
            top = max(tilt, 0.0) * square - min(tilt, 0.0) * (r * r) + min(rest[i] * other[j], p[i] * q[j])
            total[i, j] += weight * (size[i] * scale[j]) * (top / max(math.sqrt(square), 2.0**-52) + r * _asin(r))


@njit(types.int64(VECTOR, VECTOR, NUMBER, NUMBER, TILE, OUT), cache=True, **OPTIONS)
def add_arc_sines(left: Any, right: Any, weight: float, least: float, cov: Any, total: Any) -> int:
    """Add weight asin r where 1 - r^2 is at least `least`, and give the number of other pairs."""
    steep = 0
    for i in range(cov.shape[0]):
        for j in range(cov.shape[1]):
            r = _kept(left[i] * right[j] * cov[i, j])
            angle = weight * _asin(r)
            far = (1.0 - r) * (1.0 + r) >= least
            total[i, j] += angle if far else 0.0
            steep += 0 if far else 1
    return steep


@njit(types.void(*[VECTOR] * 4, NUMBER, TILE, OUT), cache=True, **OPTIONS)
def add_bells(left: Any, right: Any, rest: Any, other: Any, weight: float, cov: Any, total: Any) -> None:
    """Add weight left[i] right[j] / sqrt(1 - r^2)."""
    for i in range(cov.shape[0]):
        for j in range(cov.shape[1]):
            r = left[i] * right[j] * cov[i, j]
            square = max((1.0 - r) * (1.0 + r), rest[i] + other[j] - rest[i] * other[j])
            total[i, j] += weight * (left[i] * right[j]) / math.sqrt(square)


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

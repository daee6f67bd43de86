"""Compiled passes over pairs: the steps of closed kernels, and sums of Hermite series.

They hold no lock of the interpreter.  Needs numba, from the extra `fast`; only `fast` imports this module.  Formulas
are those of `steps` and `series`; loops along a row are vector instructions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload, register_jitable

from tensorprog.gaussian import steps
from tensorprog.gaussian.steps import ONE, STEEPEST, ZERO, Kind

__all__ = ["sums", "walk"]

OPTIONS = {"nogil": True, "error_model": "numpy"}
NUMBER = types.float64
TILE = types.Array(NUMBER, 2, "C", readonly=True)
OUT, PART = types.Array(NUMBER, 2, "C"), types.Array(NUMBER, 2, "A")
SIDES, GIVEN = types.Array(NUMBER, 3, "C"), types.Array(NUMBER, 3, "A", readonly=True)
KINDS, NUMBERS = types.Array(types.int64, 2, "C"), types.Array(NUMBER, 1, "C")
PLACES = types.Array(types.int64, 1, "C", readonly=True)
WIDE = 512  # numbers of a row at once, for which the cache has room
# the quotient of polynomials of Sun's fdlibm (e_asin.c) for (asin x - x) / x^3, x^2 <= 1/4
P = (1.66666666666666657415e-01, -3.25565818622400915405e-01, 2.01212532134862925881e-01, -4.00555345006794114027e-02,
     7.91534994289814532176e-04, 3.47933107596021167570e-05)  # fmt: skip
Q = (-2.40339491173441421878e00, 2.02094576023350569471e00, -6.88283971605453293030e-01, 7.70381505559019352791e-02)
P0, P1, P2, P3, P4, P5 = P
Q0, Q1, Q2, Q3 = Q


def _asin(r: Any) -> Any:
    """asin r to two units of rounding: beyond 1/2 it is pi / 2 - 2 asin sqrt((1 - r) / 2)."""
    size = abs(r)
    far = size > 0.5
    z = (1.0 - size) * 0.5 if far else size * size
    x = math.sqrt(z) if far else size
    top = z * (P0 + z * (P1 + z * (P2 + z * (P3 + z * (P4 + z * P5)))))
    angle = x + x * (top / (1.0 + z * (Q0 + z * (Q1 + z * (Q2 + z * Q3)))))
    angle = math.pi / 2 - 2.0 * angle if far else angle
    return -angle if r < 0.0 else angle


overload(steps.arcsine, jit_options={"error_model": "numpy"}, strict=False)(lambda r: _asin)
for formula in (
    steps.bounded_cosine, steps.cosine, steps.ramp, steps.steep_angle, steps.turn, steps.two_product,
):  # fmt: skip
    register_jitable(error_model="numpy")(formula)


@njit(**OPTIONS)
def _along(sides: Any, at: int, row: int, start: int, room: Any) -> Any:
    """Numbers of one side along a row; one number that is the same everywhere is repeated in a row that has room."""
    if sides.shape[2] > 1:
        return sides[at, row, start : start + room.size]
    for j in range(room.size):
        room[j] = sides[at, row, 0]
    return room


@njit(
    types.void(KINDS, NUMBERS, types.int64, SIDES, SIDES, PLACES, PLACES, GIVEN, PART),
    cache=True,
    **OPTIONS,
)
def walk(
    kinds: Any, numbers: Any, result: int, left: Any, right: Any, first: Any, second: Any, given: Any,
    out: Any,
) -> None:  # fmt: skip
    """All steps (`steps`) for one row after the other, of the numbers of X and Y that `first` and `second` name."""
    most = min(out.shape[1], WIDE)
    rows, sides = np.empty((len(kinds) + 2, most)), np.empty((4, most))
    rows[ZERO], rows[ONE] = 0.0, 1.0
    for i in range(out.shape[0]):
        for begin in range(0, out.shape[1], most):
            m = min(most, out.shape[1] - begin)
            for n in range(len(kinds)):
                kind, number = kinds[n, 0], numbers[n]
                total, x, y, found = (
                    rows[kinds[n, 1], :m],
                    rows[kinds[n, 2], :m],
                    rows[kinds[n, 3], :m],
                    rows[n + 2, :m],
                )
                p = q = p2 = q2 = x
                if kind >= Kind.OUTER:
                    p = _along(left, kinds[n, 4], first[i], begin, sides[0, :m])
                    q = _along(right, kinds[n, 4], second[i], begin, sides[1, :m])
                if kind >= Kind.STEEP:
                    p2 = _along(left, kinds[n, 4] + 1, first[i], begin, sides[2, :m])
                    q2 = _along(right, kinds[n, 4] + 1, second[i], begin, sides[3, :m])
                if kind == Kind.LINEAR:
                    for j in range(m):
                        found[j] = total[j] + number * x[j]
                elif kind == Kind.PRODUCT:
                    for j in range(m):
                        found[j] = total[j] + number * (x[j] * y[j])
                elif kind == Kind.OUTER:
                    for j in range(m):
                        found[j] = total[j] + number * (x[j] * (p[j] * q[j]))
                elif kind == Kind.TURN:
                    for j in range(m):
                        found[j] = steps.turn(p[j], q[j], x[j])
                elif kind == Kind.COSINE:
                    for j in range(m):
                        found[j] = steps.cosine(x[j])
                elif kind == Kind.INVERSE:
                    for j in range(m):
                        found[j] = 1.0 / steps.bounded_cosine(x[j], p[j], q[j])
                elif kind == Kind.ANGLE:
                    for j in range(m):
                        found[j] = steps.arcsine(x[j])
                elif kind == Kind.RAMP:
                    for j in range(m):
                        found[j] = steps.ramp(x[j], y[j], p[j], p2[j], q[j], q2[j])
                elif kind == Kind.STEEP:
                    steep = 0
                    for j in range(m):
                        found[j] = x[j]
                        steep += abs(x[j]) > STEEPEST
                    for j in range(m if steep else 0):
                        if abs(x[j]) > STEEPEST:
                            found[j] = steps.steep_angle(y[j], p[j], p2[j], q[j], q2[j])
                else:
                    array = given[kinds[n, 4], i, begin : begin + m]
                    for j in range(m):
                        found[j] = array[j]
            asked, found = out[i, begin : begin + m], rows[result, :m]
            for j in range(m):
                asked[j] = found[j]


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

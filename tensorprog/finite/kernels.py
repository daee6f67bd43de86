"""Compiled loops that draw what `normals` draws with numpy: normals and chi variables from SFC64 states, bit for bit.

The generator is inlined, its state stays in registers, and the loops hold no lock of the interpreter.  Needs numba,
from the extra `fast`; only `normals` imports this module, and checks it against numpy before use.  The formulas, order
of operations included, are those of numpy 1.17 and later (the ziggurat of Doornik (2005) with 256 strips, and Marsaglia
& Tsang (2000) for gamma variables), and of `normals.ManyNormals`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from tensorprog.finite.functions import END as LAST
from tensorprog.finite.functions import SHIFT, STEPS, WHOLE, normal_tables
from tensorprog.finite.ziggurat import FINE, ziggurat

__all__ = ["fill_chi_squares", "fill_many", "fill_normals", "gelu"]

TAIL = 3.6541528853610088  # where the lowest strip ends and the tail begins
INVERSE_TAIL = 0.27366123732975828
AREA = 0.0049286732339746519  # of each strip below exp(-x**2 / 2), the tail belonging to the lowest
_, WIDTHS, LIMITS, HEIGHTS = ziggurat(256, TAIL, AREA, raised=38)  # numpy's
END, FINE_WIDTHS, FINE_LIMITS, FINE_HEIGHTS = ziggurat(*FINE)
# numba turns an unsigned and a signed integer into a float, so every number here is unsigned
U1, U3, U8, U9, U10, U11, U12, U24, U40 = map(np.uint64, (1, 3, 8, 9, 10, 11, 12, 24, 40))
U255, U511, U1023, U2047 = map(np.uint64, (255, 511, 1023, 2047))
U52 = np.uint64(2**52 - 1)
UNIT = 2.0**-53
OPTIONS = {"nogil": True, "error_model": "numpy"}


@njit(**OPTIONS)
def _next(a: Any, b: Any, c: Any, d: Any) -> Any:
    """64 random bits, and the next state of SFC64."""
    bits = a + b + d
    return bits, b ^ (b >> U11), c + (c << U3), ((c << U24) | (c >> U40)) + bits, d + U1


@njit(**OPTIONS)
def _uniform(a: Any, b: Any, c: Any, d: Any) -> Any:
    bits, a, b, c, d = _next(a, b, c, d)
    return np.int64(bits >> U11) * UNIT, a, b, c, d


@njit(**OPTIONS)
def _edge(bits: Any, x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """What to do with the hundredth of all points that may lie above the curve: whether to take x, and which x."""
    strip = bits & U255
    if strip:
        u, a, b, c, d = _uniform(a, b, c, d)
        height = (HEIGHTS[strip - U1] - HEIGHTS[strip]) * u + HEIGHTS[strip]
        return height < math.exp(-0.5 * x * x), x, a, b, c, d
    while True:
        u, a, b, c, d = _uniform(a, b, c, d)
        beyond = -INVERSE_TAIL * math.log1p(-u)
        u, a, b, c, d = _uniform(a, b, c, d)
        y = -math.log1p(-u)
        if y + y > beyond * beyond:
            x = TAIL + beyond
            return True, -x if (bits >> U9 >> U8) & U1 else x, a, b, c, d


@njit(**OPTIONS)
def _point(a: Any, b: Any, c: Any, d: Any) -> Any:
    """A point of the ziggurat: its bits, x, and whether it lies under the curve for sure."""
    bits, a, b, c, d = _next(a, b, c, d)
    place = np.int64((bits >> U9) & U52)
    return bits, place * WIDTHS[bits & U511], place < LIMITS[bits & U255], a, b, c, d  # bit 8 is the sign


@njit("void(uint64[::1], float64[::1])", cache=True, **OPTIONS)
def fill_normals(state: Any, out: Any) -> None:
    """Fill an array with standard normals.  Shapes: state (4,), moved on; out (any,)."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    i = 0
    while i < out.size:
        bits, x, taken, a, b, c, d = _point(a, b, c, d)
        out[i] = x
        if not taken:
            taken, out[i], a, b, c, d = _edge(bits, x, a, b, c, d)
        i += taken
    state[0], state[1], state[2], state[3] = a, b, c, d


@njit(**OPTIONS)
def _second_look(bits: Any, x: Any, wedges: Any, others: Any, tails: Any) -> Any:
    """The normal at the place of a point that may lie above the curve, or in the tail."""
    strip = bits & U1023
    if strip:
        u, wedges[0], wedges[1], wedges[2], wedges[3] = _uniform(wedges[0], wedges[1], wedges[2], wedges[3])
        height = (FINE_HEIGHTS[strip - U1] - FINE_HEIGHTS[strip]) * u + FINE_HEIGHTS[strip]
        if height < math.exp(-0.5 * x * x):
            return x
        taken, a, b, c, d = False, others[0], others[1], others[2], others[3]
        while not taken:
            bits, x, taken, a, b, c, d = _point(a, b, c, d)
            if not taken:
                taken, x, a, b, c, d = _edge(bits, x, a, b, c, d)
        others[0], others[1], others[2], others[3] = a, b, c, d
        return x
    while True:
        u, tails[0], tails[1], tails[2], tails[3] = _uniform(tails[0], tails[1], tails[2], tails[3])
        beyond = -math.log1p(-u) / END
        u, tails[0], tails[1], tails[2], tails[3] = _uniform(tails[0], tails[1], tails[2], tails[3])
        if -2 * math.log1p(-u) > beyond * beyond:
            return -(END + beyond) if (bits >> U10) & U1 else END + beyond


@njit(f"void({'uint64[::1], ' * 4}float64[::1], float64[:, ::1])", cache=True, **OPTIONS)
def fill_many(points: Any, wedges: Any, others: Any, tails: Any, scale: Any, out: Any) -> None:
    """Fill rows with normals times one number each.

    Shapes    states (4,), moved on: of points, and of what wedges, points above the curve and the tail take; scale
              (rows,); out (rows, any)
    """
    a, b, c, d = points[0], points[1], points[2], points[3]
    for row in range(scale.size):
        for i in range(out.shape[1]):
            bits, a, b, c, d = _next(a, b, c, d)
            place = np.int64(bits >> U12)
            x = place * FINE_WIDTHS[bits & U2047]
            if place >= FINE_LIMITS[bits & U2047]:
                x = _second_look(bits, x, wedges, others, tails)
            out[row, i] = x * scale[row]
    points[0], points[1], points[2], points[3] = a, b, c, d


@njit(**OPTIONS)
def _fill_gamma(state: Any, shape: Any, out: Any) -> None:
    """Fill an array with gamma variables of scale 1 and a shape above 1."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    centre = shape - 1.0 / 3.0
    spread = 1.0 / math.sqrt(9 * centre)
    i = 0
    while i < out.size:
        bits, x, taken, a, b, c, d = _point(a, b, c, d)
        if not taken:
            taken, x, a, b, c, d = _edge(bits, x, a, b, c, d)
        v = 1.0 + spread * x
        if not taken or v <= 0.0:
            continue
        v = v * v * v
        out[i] = centre * v
        u, a, b, c, d = _uniform(a, b, c, d)
        if u < 1.0 - 0.0331 * (x * x) * (x * x) or math.log(u) < 0.5 * x * x + centre * (1.0 - v + math.log(v)):
            i += 1
    state[0], state[1], state[2], state[3] = a, b, c, d


@njit("void(uint64[::1], int64[::1], float64[:, ::1])", cache=True, **OPTIONS)
def fill_chi_squares(state: Any, degrees: Any, out: Any) -> None:
    """Fill rows with squares of chi variables.  Shapes: state (4,), moved on; degrees (rows,); out (rows, any)."""
    normals = np.empty(out.shape[1])
    for row in range(degrees.size):
        if degrees[row] > 2:
            _fill_gamma(state, degrees[row] / 2, out[row])
            out[row] *= 2
            continue
        out[row] = 0
        for _ in range(degrees[row]):
            fill_normals(state, normals)
            out[row] += normals * normals


PHI, DENSITY = normal_tables()


@njit("void(float64[::1], float64[::1])", cache=True, **OPTIONS)
def gelu(x: Any, out: Any) -> None:
    """As `functions.gelu`, in the same steps.  Shapes: x, out (any,)."""
    for i in range(x.size):
        h = min(x[i], LAST) if x[i] > -LAST else -LAST  # what is no number stays so by the last product
        shifted = h * STEPS + SHIFT
        near = (shifted - SHIFT) * (1 / STEPS)
        h -= near
        a, b = near * h, h * h
        series = ((((a * (-1 / 24) + 1 / 6) * a + b * (1 / 8)) - 0.5) * a + b * (-1 / 6) + 1.0) * h
        place = np.int64(shifted - WHOLE)
        out[i] = (series * DENSITY[place] + PHI[place]) * x[i]

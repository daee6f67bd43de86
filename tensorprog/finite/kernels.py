"""A compiled loop that draws what numpy draws: normals from SFC64 states, bit for bit.

The generator is inlined, its state stays in registers, and the loop holds no lock of the interpreter.  Needs numba,
from the extra `fast`; only `normals` imports this module, and checks it against numpy before use.  The formulas, order
of operations included, are those of numpy 1.17 and later: the ziggurat of Doornik (2005) with 256 strips of equal area
that cover a half of the normal density.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numba import njit

__all__ = ["fill_normals"]

STRIPS = 256
TAIL = 3.6541528853610088  # where the lowest strip ends and the tail begins
INVERSE_TAIL = 0.27366123732975828
AREA = 0.0049286732339746519  # of each strip below exp(-x**2 / 2), the tail belonging to the lowest
RAISED = 38  # the strip whose height numpy's table has one unit in the last place higher


def _ziggurat() -> tuple[Any, Any, Any]:
    """Widths of the strips, negative in the second half, limits below which a point lies under the curve for sure,
    and heights of the curve at the outer edges.

    A point of a strip is a whole number below 2**52 times the width.  Strip 0 is the lowest, with the tail; the last
    one stands on it, and strip 1 is the highest.  exp and log are rounded correctly on every machine.
    """
    context = Context(prec=30)
    edges, heights = np.zeros(STRIPS), np.ones(STRIPS)
    edge = TAIL
    for strip in range(STRIPS - 1, 0, -1):
        edges[strip] = edge
        heights[strip] = height = float(context.exp(Decimal(-0.5 * edge * edge)))
        if strip == RAISED:
            heights[strip] = height = math.nextafter(height, 1)
        if strip > 1:
            edge = math.sqrt(-2 * float(context.ln(Decimal(height + AREA / edge))))
    limits = np.zeros(STRIPS)
    limits[2:] = edges[1:-1] / edges[2:] * 2.0**52
    limits[0] = TAIL * heights[-1] / AREA * 2.0**52
    edges[0] = AREA / heights[-1]
    widths = edges / 2.0**52
    return np.concatenate([widths, -widths]), np.rint(limits).astype(np.int64), heights


WIDTHS, LIMITS, HEIGHTS = _ziggurat()
# numba turns an unsigned and a signed integer into a float, so every number here is unsigned
U1, U3, U8, U9, U11, U24, U40, U255, U511 = map(np.uint64, (1, 3, 8, 9, 11, 24, 40, 255, 511))
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

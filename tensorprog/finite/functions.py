"""Functions of many numbers that scipy computes one by one, here on whole arrays: gelu.

The normal distribution function at x_k + h is Phi(x_k) + phi(x_k) h S, with tables at multiples x_k of 1/512, and with
Taylor's series in a = x_k h and b = h**2,

    S = 1 - a/2 + (a**2 - b)/6 - a (a**2 - 3 b)/24,

whose next term is below 1e-17.  Beyond 8.5 the function is 0 or 1.
"""

from __future__ import annotations

import math
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["END", "SHIFT", "STEPS", "WHOLE", "gelu", "normal_tables"]

END, STEPS = 8.5, 512.0  # where tables end, and steps to one
WHOLE = 1.5 * 2.0**52  # a number plus this is whole, with the number in its last bits
SHIFT = WHOLE + END * STEPS  # so that these are an index
PIECE = 1 << 14  # numbers that numpy works on at a time


@cache
def normal_tables() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distribution function and density of N(0, 1) at the multiples of a step."""
    from scipy.special import ndtr

    x = np.arange(-END * STEPS, END * STEPS + 1) / STEPS
    return ndtr(x), np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu(
    x: NDArray[np.float64], out: NDArray[np.float64] | None = None, kernels: ModuleType | None = None
) -> NDArray[np.float64]:
    """x times the normal distribution function at x; compiled code gives the same bits.

    Shapes    x of any shape, out of the same, C-contiguous
    Accuracy  5e-16 |x|
    """
    out = np.empty(x.shape) if out is None else out
    numbers, results = x.reshape(-1), out.reshape(-1)
    if kernels is not None:
        kernels.gelu(numbers, results)
        return out
    own = np.empty((4, min(PIECE, numbers.size)))
    for start in range(0, numbers.size, PIECE):
        some = numbers[start : start + PIECE]
        _gelu(some, results[start : start + PIECE], *own[:, : some.size])
    return out


def _gelu(x: Any, out: Any, near: Any, h: Any, a: Any, b: Any) -> None:
    """Formulas of the module, step by step in memory given."""
    values, slopes = normal_tables()
    np.clip(x, -END, END, out=h)
    np.multiply(h, STEPS, out=near)
    near += SHIFT
    places = np.bitwise_and(near.view(np.int64), (1 << 14) - 1)
    near -= SHIFT
    near *= 1 / STEPS
    h -= near
    np.multiply(near, h, out=a)
    np.multiply(h, h, out=b)
    np.multiply(a, -1 / 24, out=out)
    out += 1 / 6
    out *= a
    np.multiply(b, 1 / 8, out=near)
    out += near
    out -= 0.5
    out *= a
    b *= -1 / 6
    out += b
    out += 1.0
    out *= h
    np.take(slopes, places, out=near, mode="clip")
    out *= near
    np.take(values, places, out=near, mode="clip")
    out += near
    out *= x

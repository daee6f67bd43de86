"""Enclosures of real numbers by floating-point numbers: sums, products and values of functions, rounded outward."""

from __future__ import annotations

import math
import sys

__all__ = ["Interval", "enclosed", "hull", "near", "product", "quotient", "sums"]

INF = math.inf
Interval = tuple[float, float]
WIDE = 1e-12  # more than the relative error of any function of numpy


def near(value: float, exact: bool = False) -> Interval:
    """Enclosure of what is computed as this value; an infinite one was too large for a floating-point number."""
    if math.isnan(value):
        return -INF, INF
    if exact:
        return value, value
    if math.isinf(value):
        return (sys.float_info.max, INF) if value > 0 else (-INF, -sys.float_info.max)
    wide = WIDE * abs(value) + 5e-324
    return value - wide, value + wide


def _rounded(value: float, *parts: float) -> Interval:
    """Enclosure of a sum, a product or a quotient: whole numbers and halves are exact, as are those with inf."""
    return near(value, exact=any(map(math.isinf, parts)) or (abs(value) < 2**52 and (2 * value).is_integer()))


def sums(a: float, b: float) -> Interval:
    """Enclosure of a + b; an infinite end of an interval stays what it is."""
    return _rounded(a + b, a, b)


def product(a: float, b: float) -> Interval:
    """Enclosure of a b, in which 0 times inf is 0: an end of inf stands for every finite value."""
    return (0.0, 0.0) if a == 0 or b == 0 else _rounded(a * b, a, b)


def quotient(a: float, b: float) -> Interval:
    """Enclosure of a / b, b not 0."""
    return (0.0, 0.0) if math.isinf(b) else _rounded(a / b, a)


def hull(*parts: Interval) -> Interval:
    """The smallest interval around several."""
    return min(low for low, _ in parts), max(high for _, high in parts)


def enclosed(parts: tuple[Interval, ...], bounds: Interval = (-INF, INF)) -> Interval:
    """The hull of several enclosures, cut at bounds that always hold."""
    low, high = hull(*parts)
    return min(max(low, bounds[0]), bounds[1]), max(min(high, bounds[1]), bounds[0])

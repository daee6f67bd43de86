"""Enclosures of real numbers by floating-point numbers: sums, products and values of functions, rounded outward.

An interval has the two nearest floating-point numbers as ends, or one twice where the result is exact.
"""

from __future__ import annotations

import math
import sys

__all__ = ["EPSILON", "LARGEST", "Interval", "beside", "enclosed", "hull", "near", "product", "quotient", "sums"]

INF = math.inf
LARGEST = sys.float_info.max
Interval = tuple[float, float]
EPSILON = 2.0**-52


def beside(value: float, side: float) -> Interval:
    """The enclosure of a real number that is rounded to a value; side: the sign of the real number less the value."""
    if math.isnan(value):
        return -INF, INF
    if math.isinf(value):  # too large for a floating-point number
        return (LARGEST, INF) if value > 0 else (-INF, -LARGEST)
    return math.nextafter(value, -INF) if side < 0 else value, math.nextafter(value, INF) if side > 0 else value


def sums(a: float, b: float) -> Interval:
    """Enclosure of a + b; an infinite end of an interval stays what it is."""
    if math.isinf(a) or math.isinf(b):
        return (-INF, INF) if math.isnan(a + b) else (a + b, a + b)
    total = a + b
    if math.isinf(total):
        return beside(total, 0)
    moved = total - a  # the error of a sum is a floating-point number (Moller 1965, Knuth 1969)
    return beside(total, (a - (total - moved)) + (b - moved))


def product(a: float, b: float) -> Interval:
    """Enclosure of a b, in which 0 times inf is 0: an end of inf stands for every finite value."""
    if a == 0 or b == 0:
        return 0.0, 0.0
    if math.isinf(a) or math.isinf(b) or abs(a) == 1 or abs(b) == 1:
        return a * b, a * b
    value = a * b
    return beside(value, _sign(*a.as_integer_ratio(), *b.as_integer_ratio(), value))


def quotient(a: float, b: float) -> Interval:
    """Enclosure of a / b, b not 0."""
    if math.isinf(b):
        return 0.0, 0.0
    if math.isinf(a):
        return math.copysign(INF, a * b), math.copysign(INF, a * b)
    value = a / b
    (n, d), (m, e) = a.as_integer_ratio(), b.as_integer_ratio()
    return beside(value, _sign(n, d, *((e, m) if m > 0 else (-e, -m)), value))


def _sign(n: int, d: int, m: int, e: int, value: float) -> int:
    """Sign of (n / d) (m / e) - value."""
    if math.isinf(value):
        return 0
    r, s = value.as_integer_ratio()
    difference = n * m * s - r * d * e
    return (difference > 0) - (difference < 0)


def near(value: float, ulps: float, exact: bool = False) -> Interval:
    """Enclosure of what a library's function gives with a relative error of so many units in the last place."""
    if exact or math.isnan(value) or (math.isinf(value) and ulps == 0):
        return (-INF, INF) if math.isnan(value) else (value, value)
    if math.isinf(value):
        return beside(value, 0)
    wide = abs(value) * ulps * EPSILON
    return math.nextafter(value - wide, -INF), math.nextafter(value + wide, INF)


def hull(*parts: Interval) -> Interval:
    """The smallest interval around several."""
    return min(low for low, _ in parts), max(high for _, high in parts)


def enclosed(parts: tuple[Interval, ...], bounds: Interval = (-INF, INF)) -> Interval:
    """The hull of several enclosures, cut at bounds that always hold."""
    low, high = hull(*parts)
    return min(max(low, bounds[0]), bounds[1]), max(min(high, bounds[1]), bounds[0])

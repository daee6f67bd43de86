"""Polynomials with exact coefficients, and their signs and ratios on intervals, proved by Sturm's theorem.

A polynomial is the tuple of its coefficients, lowest first, without zeros at the end: () is the zero polynomial.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from tensorprog.atoms import Interval

__all__ = ["Poly", "add", "bounds", "derive", "multiply", "power", "scale", "sign", "trend", "trim"]

INF = math.inf
Poly = tuple[Fraction, ...]
ROUNDING = Fraction(1, 10**14)  # of coefficients and ends, relative: numbers of a program stand for real ones
WIDER = (0.0, 1e-9, 1e-6, 1e-3, 1.0)  # how much a bound that was guessed is widened, until it is proved
MAX_DEGREE = 24
MAX_BITS = 1 << 16  # of all coefficients together


def trim(p: Iterable[Fraction]) -> Poly:
    """The polynomial without zeros at the end."""
    kept = list(p)
    while kept and kept[-1] == 0:
        kept.pop()
    return tuple(kept)


def add(p: Poly, q: Poly) -> Poly:
    """p + q."""
    return trim(a + b for a, b in itertools.zip_longest(p, q, fillvalue=Fraction(0)))


def scale(p: Poly, factor: Fraction) -> Poly:
    """A polynomial times a number."""
    return trim(factor * a for a in p)


def multiply(p: Poly, q: Poly) -> Poly:
    """p q."""
    product = [Fraction(0)] * (len(p) + len(q))
    for (j, a), (k, b) in itertools.product(enumerate(p), enumerate(q)):
        product[j + k] += a * b
    return trim(product)


def power(p: Poly, exponent: int) -> Poly:
    """p**exponent."""
    return functools.reduce(multiply, [p] * exponent, (Fraction(1),))


def derive(p: Poly) -> Poly:
    """The derivative."""
    return trim(k * a for k, a in enumerate(p) if k)


def _value(p: Iterable[Fraction], x: Fraction) -> Fraction:
    total = Fraction(0)
    for a in reversed(tuple(p)):
        total = total * x + a
    return total


@functools.lru_cache(maxsize=4096)
def sign(p: Poly, low: float, high: float) -> int:
    """+1 or -1 if the polynomial keeps that sign on the interval, whatever its coefficients' rounding; else 0.

    Accuracy  exact; 0 also where the numbers grow too long to decide
    """
    start = Fraction(min(max(0.0, low), high))
    found = _sign(_value(p, start))
    for side, a, b in ((1, max(low, 0.0), high), (-1, low, min(high, 0.0))):
        # less |p_k| |x|**k times ROUNDING, a polynomial on either side of 0
        least = trim(found * c - ROUNDING * abs(c) * side**k for k, c in enumerate(p))
        if a <= b and (_value(least, start) <= 0 or _vanishes(least, a, b)):
            return 0
    return found


def _sign(x: Fraction | int) -> int:
    return (x > 0) - (x < 0)


def _vanishes(p: Poly, low: float, high: float) -> bool:
    """Whether there may be a zero on the closed interval."""
    if any(_value(p, Fraction(end)) == 0 for end in (low, high) if math.isfinite(end)):
        return True
    whole = math.lcm(*(a.denominator for a in p))
    numbers = [int(a * whole) for a in p]
    if len(p) > 2 * MAX_DEGREE or sum(a.bit_length() for a in numbers) > MAX_BITS:
        return True
    chain = _sturm(numbers)
    return _variations(chain, low) != _variations(chain, high)


def _sturm(p: list[int]) -> list[list[int]]:
    """Sturm's chain, each member up to a positive factor; multiple zeros need no square-free part."""
    chain = [p, [k * a for k, a in enumerate(p)][1:]]
    while chain[-1]:
        chain.append(_remainder(chain[-2], chain[-1]))
    return chain[:-1]


def _remainder(p: list[int], q: list[int]) -> list[int]:
    """-(p mod q) times a positive number."""
    rest, lead = list(p), q[-1]
    while len(rest) >= len(q):
        top, shift = rest[-1] * _sign(lead), len(rest) - len(q)
        rest = [abs(lead) * a - (top * q[k - shift] if k >= shift else 0) for k, a in enumerate(rest)]
        while rest and rest[-1] == 0:
            rest.pop()
    content = math.gcd(*rest) or 1
    return [-a // content for a in rest]


def _variations(chain: list[list[int]], x: float) -> int:
    """Changes of sign along the chain at a point."""
    if math.isfinite(x):
        signs = [_sign(_value(map(Fraction, p), Fraction(x))) for p in chain]
    else:
        signs = [_sign(p[-1]) * (1 if x > 0 or len(p) % 2 else -1) for p in chain]
    return sum(a != b for a, b in itertools.pairwise(s for s in signs if s))


def trend(slope: Poly, low: float, high: float) -> int:
    """Sign of a derivative inside the interval, zeros at its ends left aside; 0 if it changes, or is not decided."""
    for end, inwards in ((low, 1), (high, -1)):
        while slope and math.isfinite(end) and _value(slope, Fraction(end)) == 0:
            slope = scale(_divided(slope, Fraction(end)), Fraction(inwards))  # by a factor that is positive inside
    return sign(slope, low, high)


def _divided(p: Poly, x: Fraction) -> Poly:
    """p / (u - x), the remainder left aside."""
    quotient: list[Fraction] = []
    for a in reversed(p[1:]):
        quotient.append(a + x * quotient[-1] if quotient else a)
    return tuple(reversed(quotient))


def _side(p: Poly, low: float, high: float, points: Iterable[Fraction]) -> int:
    """Sign of a polynomial on the interval, ends and double zeros at the given points left aside."""
    for x in points:
        while p and _value(p, x) == 0 and _value(derive(p), x) == 0:
            p = _divided(_divided(p, x), x)
    return trend(p, low, high)


def bounds(p: Poly, q: Poly, low: float, high: float) -> Interval:
    """Range of p / q, where q has no zero: guessed at critical points, and proved.

    Accuracy  outwards: the guess itself where no terms cancel, else widened by 1e-9 or more of their sizes; an end that
              is not proved is infinite
    """
    slope = add(multiply(derive(p), q), scale(multiply(p, derive(q)), Fraction(-1)))
    points = [x for x in (low, high) if math.isfinite(x)]
    points += [x for x in _guessed_zeros(slope) if low < x < high] or [min(max(0.0, low), high)]
    limits = [_limit(p, q, x) for x in (low, high) if math.isinf(x)]
    upper = _upper(p, q, (low, high), points, limits)
    lower = _upper(scale(p, Fraction(-1)), q, (low, high), points, [-x for x in limits])
    return 0.0 - lower, upper


def _upper(p: Poly, q: Poly, interval: Interval, points: list[float], limits: list[float]) -> float:
    """A number b with p / q <= b, as b q - p has the sign of q."""
    if max(limits, default=0.0) == INF:
        return INF
    exact = [Fraction(x) for x in points]
    found = [_value(p, x) / _value(q, x) for x in exact]
    sizes = [_value(map(abs, p), abs(x)) * _value(map(abs, q), abs(x)) / _value(q, x) ** 2 for x in exact]
    most, terms = max(found + [Fraction(x) for x in limits if math.isfinite(x)]), max(sizes)
    # where terms cancel, values are no better than the coefficients
    for wider in WIDER if sizes == [abs(value) for value in found] else WIDER[1:]:
        bound = _float(most + Fraction(wider) * terms)
        if math.isfinite(bound):
            gap = add(scale(q, Fraction(bound)), scale(p, Fraction(-1)))
            if _side(gap, *interval, exact) == sign(q, *interval) != 0:
                return bound
    return INF


def _limit(p: Poly, q: Poly, end: float) -> float:
    """Limit of p / q at an infinite end."""
    if len(p) < len(q):
        return 0.0
    lead = _float(p[-1] / q[-1])
    odd = (len(p) - len(q)) % 2 == 1 and end < 0
    return lead if len(p) == len(q) else math.copysign(INF, -lead if odd else lead)


def _guessed_zeros(p: Poly) -> list[float]:
    """Real parts of approximate zeros; nothing is claimed of them."""
    try:
        with np.errstate(all="ignore"):
            found = np.roots([float(a) for a in reversed(p)]).real
    except (OverflowError, np.linalg.LinAlgError):
        return []
    return [float(x) for x in found if math.isfinite(x)]


def _float(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return INF if x > 0 else -INF

"""Polynomials with exact coefficients, or intervals of them: signs and ratios on intervals, proved by counting zeros.

A polynomial is the tuple of its coefficients, lowest first, without zeros at the end: () is the zero polynomial.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from tensorprog.check.certificates.knowledge import ZERO, Span, Undecided
from tensorprog.language.atoms import Interval

__all__ = ["Poly", "add", "bounds", "exactly", "multiply", "power", "ratio_slope", "scale", "sign", "trend"]

INF = math.inf
Poly = tuple[Span, ...]
WIDER = (0.0, 1e-9, 1e-6, 1e-3, 1.0)  # how much a bound that was guessed is widened, until it is proved
MAX_DEGREE = 24
TRIED = [sign * Fraction(x) for x in (0.01, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 4, 10, 100) for sign in (1, -1)]


def _trim(p: Iterable[Span]) -> Poly:
    kept = list(p)
    while kept and kept[-1] == ZERO:
        kept.pop()
    if len(kept) > MAX_DEGREE + 1:
        raise Undecided
    return tuple(kept)


def add(p: Poly, q: Poly) -> Poly:
    """p + q."""
    return _trim(a + b for a, b in itertools.zip_longest(p, q, fillvalue=ZERO))


def scale(p: Poly, factor: Span) -> Poly:
    """A polynomial times a number."""
    return _trim(factor * a for a in p)


def multiply(p: Poly, q: Poly) -> Poly:
    """p q."""
    product = [ZERO] * (len(p) + len(q))
    for (j, a), (k, b) in itertools.product(enumerate(p), enumerate(q)):
        product[j + k] = product[j + k] + a * b
    return _trim(product)


def power(p: Poly, exponent: int) -> Poly:
    """p**exponent."""
    return functools.reduce(multiply, [p] * exponent, (exactly(1),))


def exactly(x: Fraction | float) -> Span:
    """One number."""
    return Span(Fraction(x), Fraction(x))


def _derive(p: Poly) -> Poly:
    return _trim(exactly(k) * a for k, a in enumerate(p) if k)


def ratio_slope(p: Poly, q: Poly) -> Poly:
    """The derivative of p / q, times q**2."""
    return add(multiply(_derive(p), q), scale(multiply(p, _derive(q)), exactly(-1)))


def _at(p: Iterable[Fraction], x: Fraction) -> Fraction:
    total = Fraction(0)
    for a in reversed(tuple(p)):
        total = total * x + a
    return total


def sign(p: Poly, low: float, high: float) -> int:
    """+1 or -1 if all polynomials with these coefficients keep that sign on the closed interval; else 0.

    Accuracy  exact
    """
    for way in (1, -1):
        lows = [a.low if way > 0 else -a.high for a in p]
        highs = [a.high if way > 0 else -a.low for a in p]
        # the least of them on either side of 0
        parts = [(lows, max(low, 0.0), high)] if high >= 0 else []
        if low < 0:
            parts.append(([(a if k % 2 == 0 else -b) for k, (a, b) in enumerate(zip(lows, highs, strict=True))],
                          max(-high, 0.0), -low))
        if lows == highs and len(parts) == 2:
            parts = [(lows, low, high)]
        if all(_positive(tuple(numbers), a, b) for numbers, a, b in parts):
            return way
    return 0


def _shifted(p: tuple[Fraction, ...], by: Fraction) -> list[Fraction]:
    """Coefficients of p(x + by)."""
    c = list(p)
    for k in range(len(c)):
        for j in range(len(c) - 2, k - 1, -1):
            c[j] += by * c[j + 1]
    return c


def _limit_sign(p: tuple[Fraction, ...], low: float, high: float) -> int:
    """The least sign at infinite ends."""
    ends = [1 if x > 0 or len(p) % 2 else -1 for x in (low, high) if math.isinf(x)]
    return min((side if p[-1] > 0 else -side for side in ends), default=0)


@functools.lru_cache(maxsize=4096)
def _positive(p: tuple[Fraction, ...], low: float, high: float) -> bool:
    """Whether a polynomial is positive on a closed interval."""
    inside = Fraction(min(max(low, 0.0), high))
    if _at(p, inside) <= 0:
        return False
    if any(low <= x <= high and _at(p, x) <= 0 for x in TRIED) or _limit_sign(p, low, high) < 0:
        return False
    if math.isfinite(low) and high == INF and min(_shifted(p, Fraction(low))) >= 0:
        return True
    if len(p) == 2:
        return _limit_sign(p, low, high) >= 0 and all(_at(p, Fraction(x)) > 0 for x in (low, high) if math.isfinite(x))
    if min(p[::2]) >= 0 and not any(p[1::2]):
        return True
    if len(p) == 3 and p[1] ** 2 < 4 * p[0] * p[2]:
        return True
    import sympy  # half a second to import: only where signs are not plain

    numbers = [sympy.Rational(a.numerator, a.denominator) for a in reversed(p)]
    exact = sympy.Poly(numbers, sympy.Symbol("x"), domain="QQ")
    ends = [sympy.Rational(*Fraction(x).as_integer_ratio()) if math.isfinite(x) else None for x in (low, high)]
    return bool(exact.count_roots(*ends) == 0)


def trend(slope: Poly, low: float, high: float) -> int:
    """Sign of a derivative inside the interval, zeros at its ends left aside; 0 if it changes, or is not decided."""
    for end, inwards in ((low, 1), (high, -1)):
        while slope and math.isfinite(end) and _vanishes(slope, Fraction(end)):
            slope = scale(_divided(slope, Fraction(end)), exactly(inwards))  # by a factor that is positive inside
    return sign(slope, low, high) if slope else 0


def _vanishes(p: Poly, x: Fraction) -> bool:
    return all(a.exact for a in p) and _at([a.low for a in p], x) == 0


def _divided(p: Poly, x: Fraction) -> Poly:
    """p / (u - x), the remainder left aside."""
    quotient: list[Fraction] = []
    for a in reversed(p[1:]):
        quotient.append(a.low + x * quotient[-1] if quotient else a.low)
    return tuple(map(exactly, reversed(quotient)))


def bounds(p: Poly, q: Poly, low: float, high: float) -> Interval:
    """Range of p / q, where q has no zero: guessed at critical points, and proved.

    Accuracy  outwards: by 1e-9 or more where a guess cannot be proved as it is; an end that is not proved is infinite
    """
    points = [x for x in (low, high) if math.isfinite(x)]
    points += [x for x in _guessed_zeros(ratio_slope(p, q)) if low < x < high] or [min(max(0.0, low), high)]
    limits = [_limit(p, q, x) for x in (low, high) if math.isinf(x)]
    upper = _upper(p, q, (low, high), points, limits)
    lower = _upper(scale(p, exactly(-1)), q, (low, high), points, [-x for x in limits])
    return 0.0 - lower, upper


def _upper(p: Poly, q: Poly, interval: Interval, points: list[float], limits: list[float]) -> float:
    """A number b with p / q <= b, as b q - p has the sign of q, zeros at the ends aside."""
    if max(limits, default=0.0) == INF:
        return INF
    tops, bottoms = ([(a.low + a.high) / 2 for a in x] for x in (p, q))
    found = [(_at(tops, Fraction(x)), _at(bottoms, Fraction(x))) for x in points]
    guesses = [_float(a / b) for a, b in found if b] + limits
    most, side = max(guesses, default=INF), sign(q, *interval)
    size = max((abs(x) for x in guesses if math.isfinite(x)), default=1.0)
    for wider in WIDER:
        bound = most + wider * size
        if math.isfinite(bound):
            gap = add(scale(q, exactly(bound)), scale(p, exactly(-1)))
            for x in map(Fraction, points):  # where it is reached
                while gap and _vanishes(gap, x) and _vanishes(_derive(gap), x):
                    gap = _divided(_divided(gap, x), x)
            if not gap or trend(gap, *interval) == side != 0:
                return bound
    return INF


def _limit(p: Poly, q: Poly, end: float) -> float:
    """Limit of p / q at an infinite end."""
    if len(p) < len(q):
        return 0.0
    lead = _float(p[-1].high / q[-1].low) if q[-1].sign else INF
    odd = (len(p) - len(q)) % 2 == 1 and end < 0
    return lead if len(p) == len(q) else math.copysign(INF, -lead if odd else lead)


def _guessed_zeros(p: Poly) -> list[float]:
    """Real parts of approximate zeros; nothing is claimed of them."""
    try:
        with np.errstate(all="ignore"):
            found = np.roots([float(a.low) for a in reversed(p)]).real
    except (OverflowError, np.linalg.LinAlgError):
        return []
    return [float(x) for x in found if math.isfinite(x)]


def _float(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return INF if x > 0 else -INF

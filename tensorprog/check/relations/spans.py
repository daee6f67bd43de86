"""Numbers of a program as exact rationals, or as intervals of them where they are rounded or depend on indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from tensorprog.check.relations.closed import rational
from tensorprog.language.expr import Expr

if TYPE_CHECKING:
    from tensorprog.check.certificates.composition import Composition

__all__ = ["ONE", "ZERO", "Span", "TooLong", "increasing", "outward", "span"]

ROUNDING = Fraction(1, 10**14)  # relative error of numbers that are computed
NEAR = Fraction(1, 10**12)  # ... of functions of them
MAX_BITS = 1 << 13


class TooLong(Exception):
    """Exact numbers, or expansions, grow beyond what is worth computing."""


@dataclass(frozen=True)
class Span:
    """All numbers between two rationals; a single number if they are equal."""

    low: Fraction
    high: Fraction

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Span:
        return Span(-self.high, -self.low)

    def __mul__(self, other: Span) -> Span:
        if self.exact and other.exact:
            value = self.low * other.low
            if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
                raise TooLong
            return Span(value, value)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        if max(x.numerator.bit_length() + x.denominator.bit_length() for x in ends) > MAX_BITS:
            raise TooLong
        return Span(min(ends), max(ends))

    def inverse(self) -> Span:
        """1 / x; the interval must not hold 0."""
        return Span(1 / self.high, 1 / self.low)

    @property
    def exact(self) -> bool:
        """Whether it is a single number."""
        return self.low == self.high

    @property
    def sign(self) -> int | None:
        """+1, -1, or 0 for the number 0; None if the interval holds 0 and others."""
        if self.low > 0 or self.high < 0:
            return 1 if self.low > 0 else -1
        return 0 if self.exact else None


def outward(low: float, high: float) -> Span:
    """An interval that holds numbers computed with rounding."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise TooLong
    a, b = Fraction(low), Fraction(high)
    return Span(a - abs(a) * ROUNDING, b + abs(b) * ROUNDING)


def increasing(function: Callable[[float], float], x: Span) -> Span:
    """An increasing function (exp, log) of numbers, to a relative and an absolute accuracy, whichever is worse."""
    if max(abs(x.low), abs(x.high)) > 500:
        raise TooLong
    low, high = (Fraction(function(float(end))) for end in (x.low, x.high))
    slack = NEAR * (1 if function is math.log else max(abs(low), abs(high)))
    return Span(low - slack, high + slack)


ZERO, ONE = Span(Fraction(0), Fraction(0)), Span(Fraction(1), Fraction(1))


def span(rules: Composition, expr: Expr) -> Span | None:
    """The values of an expression without vectors and scores; None for others."""
    interval = rules.closed(expr)
    if interval is None:
        return None
    number = rational(rules.netsor, expr)
    if number is not None:
        return Span(number, number)
    low, high = map(Fraction, interval)
    return Span(low, high)

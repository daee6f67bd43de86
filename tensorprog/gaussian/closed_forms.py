"""Closed forms of E f(X) and E f(X) g(Y) for functions that are finite sums of terms.

Terms are rewritten in standard deviations around the mean and gathered into groups, polynomial(z) * kind(a z + b).
A step that is on at the mean becomes 1 minus the step that is off there, so that a piecewise polynomial turns into
the piece that holds the mean plus corrections in the tails: clip(x, -100, 100) is x, up to tails of no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.function import Term
from tensorprog.gaussian.law import fused, two_product, two_sum
from tensorprog.gaussian.measure import Measure
from tensorprog.gaussian.moments import Factor, line_moments, pair_moments

Array = NDArray[np.floating]

__all__ = ["closed_cross", "closed_mean"]

# a threshold in standard deviations that is infinite for every purpose
HUGE = 1e100


class _Sum:
    """A running sum in about twice the working precision, with a bound on what its summands already lost."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.high: Array = np.zeros(shape)
        self.low: Array = np.zeros(shape)
        self.error: Array = np.zeros(shape)

    def add(self, high: Array, low: Array | float = 0.0, error: Array | float = 0.0) -> None:
        self.high, rest = two_sum(self.high, high)
        self.low = self.low + (rest + low)
        self.error = self.error + error

    def estimate(self, unit: Array) -> Estimate:
        """The sum times a unit that is itself rounded a few times."""
        value = self.high + self.low
        total = Estimate(value, np.asarray(self.error + EPS * np.abs(value)))
        return total * Estimate.rounded(unit)


@dataclass(eq=False)
class _Group:
    """sum over k of coefficients[k] (x - mu)^k * kind(a z + b), z = (x - mu) / sd."""

    kind: str
    a: Array
    b: Array
    coefficients: list[_Sum]

    def coefficient(self, k: int, shape: tuple[int, ...]) -> _Sum:
        while len(self.coefficients) <= k:
            self.coefficients.append(_Sum(shape))
        return self.coefficients[k]


@dataclass(frozen=True, eq=False)
class _Factored:
    """A finished group: coefficients of powers of z (None where a power is absent), and its factor."""

    factor: Factor
    coefficients: list[Estimate | None]


def _gather(terms: Sequence[Term], mu: Array, sd: Array) -> list[_Factored]:
    """Terms as polynomials in z = (x - mu) / sd times one factor each, anchored at the mean.

    x^p = sum over k of comb(p, k) mu^(p-k) (x - mu)^k; scale x + shift = (scale sd) z + (scale mu + shift).
    """
    shape = mu.shape
    base = _Group("one", np.zeros(shape), np.zeros(shape), [])
    groups: list[tuple[Term, _Group]] = []
    for term in terms:
        group = base
        if term.kind != "one":
            same = [g for t, g in groups if _same_argument(t, term)]
            if same:
                group = same[0]
            else:
                scale, shift = np.asarray(term.scale, dtype=np.float64), np.asarray(term.shift, dtype=np.float64)
                a, b = np.broadcast_to(scale * sd, shape), np.broadcast_to(fused(scale, mu, shift), shape)
                if term.kind == "step":
                    # a positive factor of its argument means nothing to a step: a = +-1 has no extreme units
                    unit = np.where(a == 0, 1.0, np.abs(a))
                    a, b = a / unit, np.clip(b / unit, -HUGE, HUGE)
                group = _Group(term.kind, a, b, [])
                groups.append((term, group))
        for k in range(term.power + 1):
            _add_power(group.coefficient(k, shape), np.asarray(term.coefficient, dtype=np.float64), term.power, k, mu)
    for _, group in groups:
        if group.kind == "step":
            _anchor(group, base)
    powers = [sd**k for k in range(1 + max((t.power for t in terms), default=0))]
    return [
        _Factored(
            Factor(group.kind, group.a, group.b),
            [c.estimate(powers[k]) if np.any(c.high) else None for k, c in enumerate(group.coefficients)],
        )
        for group in [base, *(g for _, g in groups)]
    ]


def _same_argument(first: Term, second: Term) -> bool:
    return (
        first.kind == second.kind
        and np.array_equal(first.scale, second.scale)
        and np.array_equal(first.shift, second.shift)
    )


def _add_power(target: _Sum, coefficient: Array, p: int, k: int, mu: Array) -> None:
    """Add coefficient * comb(p, k) * mu^(p - k), without rounding where p - k <= 1 and comb is 1."""
    if k == p:
        target.add(np.broadcast_to(coefficient, mu.shape))
        return
    c = comb(p, k) * coefficient
    power = mu ** (p - k - 1)
    high, low = two_product(c * power, np.asarray(mu))
    # c * power is rounded unless it is the coefficient itself
    rounded = 0.0 if p == 1 else EPS * (p + 1) * np.abs(high)
    target.add(np.broadcast_to(high, mu.shape), low, rounded)


def _anchor(group: _Group, base: _Group) -> None:
    """step(a z + b) = 1 - step(-a z - b) where b > 0: off at the mean, with the polynomial moved to the base."""
    flip = group.b > 0
    for k, c in enumerate(group.coefficients):
        moved = [np.where(flip, part, 0.0) for part in (c.high, c.low, c.error)]
        base.coefficient(k, group.b.shape).add(moved[0], moved[1], moved[2])
        c.high, c.low = (np.where(flip, -part, part) for part in (c.high, c.low))
    group.a, group.b = (np.where(flip, -part, part) for part in (group.a, group.b))


def closed_mean(terms: Sequence[Term], mu: Array, sd: Array) -> Estimate:
    """E f(X) for f the sum of the terms, X of mean mu and standard deviation sd > 0.

    Shapes    mu, sd of one shape, the batch, against which parameters of the terms broadcast -> batch
    Accuracy  error bounds the rounding to first order; infinite where the result is not finite
    """
    total = Estimate(np.zeros(mu.shape), np.zeros(mu.shape))
    zero, one = np.zeros(mu.shape), np.ones(mu.shape)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for group in _gather(terms, mu, sd):
            moments = line_moments(zero, one, group.factor)
            for k, c in enumerate(group.coefficients):
                if c is not None:
                    total = total + c * moments(0, k)
    return _finite(total.reshape(mu.shape))


def closed_cross(
    f: Sequence[Term], g: Sequence[Term], mu: tuple[Array, Array], sd: tuple[Array, Array], rho: Array, s: Array
) -> Estimate:
    """E f(X) g(Y).

    Shapes    means, deviations (positive), rho and s = sqrt(1 - rho^2) of one shape, the batch -> batch
    Accuracy  error bounds the rounding to first order; infinite where the result is not finite, and where two
              steps meet at correlation +-1: that is an integral over a line, for the next method
    """
    steps = any(t.kind == "step" for t in f) and any(t.kind == "step" for t in g)
    line = (s == 0) & steps
    rho, s = np.where(line, 0.0, rho), np.where(line, 1.0, s)
    shape = rho.shape
    zero, one = np.zeros(shape), np.ones(shape)
    law = Measure(zero, zero, one, one, rho, s * s)
    total = Estimate(zero, zero)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        others = _gather(g, mu[1], sd[1])
        for first in _gather(f, mu[0], sd[0]):
            for second in others:
                moments = pair_moments(law, first.factor, second.factor)
                for p, c in enumerate(first.coefficients):
                    for q, d in enumerate(second.coefficients):
                        if c is not None and d is not None:
                            total = total + c * d * moments(p, q)
    total = _finite(total.reshape(shape))
    return Estimate(total.value, np.where(line, np.inf, total.error))


def _finite(total: Estimate) -> Estimate:
    """With what underflow may have lost, and overflow stated."""
    return Estimate(total.value, np.asarray(total.error + TINY)).settled()

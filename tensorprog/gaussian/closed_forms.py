"""Closed forms of E f(X) and E f(X) g(Y) for functions that are finite sums of terms, with bounds on their rounding.

Terms are rewritten in standard deviations around the mean and gathered into groups, polynomial(z) * kind(a z + b).
A step that is on at the mean becomes 1 minus the step that is off there, so that a piecewise polynomial turns into
the piece that holds the mean plus corrections in the tails: clip(x, -100, 100) is x, up to tails of no weight.
Their moments are those of `pair_moments`, in numbers with errors.  At zero means `arc_kernels` answers first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.function import FunctionTerm
from tensorprog.gaussian.integrand import FactoredIntegrand, Integrand
from tensorprog.gaussian.normal import (
    FAR,
    fused,
    gap,
    positive,
    sign,
    sign_sign,
    step_sign,
    step_step,
    two_product,
    two_sum,
)
from tensorprog.gaussian.pair_moments import NO_FACTOR, WAVES, Factor, PairMoments

Array = NDArray[Any]  # real, or complex where there is a wave

__all__ = ["NumericGaussian", "closed_cross", "closed_form", "closed_mean"]

# a threshold in standard deviations that is infinite for every purpose
HUGE = 1e100
# exponents beyond this overflow
OVERFLOW = 700.0
ZERO = np.zeros(())
ROOT_2 = float(np.sqrt(2.0))
SQRT_2PI = float(np.sqrt(2 * np.pi))

# -- the algebra of numbers with errors -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NumericGaussian:
    """exp(log + wx x + wy y) times a Gaussian law of (x, y), the exponent real or complex.

    Means, variances and covariance are those of the law without the exponential, which is never multiplied out: so
    large and small factors meet in one exponent, and other factors act on a real law.

    Shapes    all fields broadcast; det = vx vy - c^2, given without cancellation
    """

    mx: Array
    my: Array
    vx: Array
    vy: Array
    c: Array
    det: Array
    wx: Array = field(default_factory=lambda: ZERO)
    wy: Array = field(default_factory=lambda: ZERO)
    log: Estimate = field(default_factory=lambda: Estimate(ZERO, ZERO))

    def swapped(self) -> NumericGaussian:
        """The measure of (y, x)."""
        return NumericGaussian(self.my, self.mx, self.vy, self.vx, self.c, self.det, self.wy, self.wx, self.log)

    def times_exp(self, a: Array, b: Array) -> NumericGaussian:
        """The measure times exp(a x + b)."""
        return replace(self, wx=self.wx + a, log=self.log + Estimate.rounded(b, 1))

    def times_wave(self, a: Array, b: Array) -> NumericGaussian:
        """The measure times exp(i (a x + b))."""
        return self.times_exp(1j * a, 1j * b)

    def times_gaussian(self, a: Array, b: Array) -> NumericGaussian:
        """The measure times exp(-(a x + b)^2 / 2): `observed` divided by sqrt(n)."""
        root = -0.5 * np.log(1 + a * a * self.vx)
        given = self.observed(a, b)
        return replace(given, log=given.log + Estimate(root, np.asarray(EPS * (1 + np.abs(root)))))

    def observed(self, a: Array, b: Array) -> NumericGaussian:
        """Without cancellation vx - a^2 vx^2 / n = vx / n, c / n, and vy - a^2 c^2 / n = (vy + a^2 det) / n."""
        n = 1 + a * a * self.vx
        u = a * self.mx + b
        pull = a * u / n
        size = np.abs(u) * (2 * np.abs(u) + np.abs(a * self.mx) + np.abs(b)) / n
        density = Estimate(-0.5 * u * u / n, np.asarray(2 * EPS * size))
        return replace(
            self,
            mx=self.mx - self.vx * pull,
            my=self.my - self.c * pull,
            vx=self.vx / n,
            vy=(self.vy + a * a * self.det) / n,
            c=self.c / n,
            det=self.det / n,
            log=self.log + density,
        )

    def at(self, x: Array, distance: Estimate) -> NumericGaussian:
        """The measure given x, times exp(-distance^2 / 2)."""
        d = distance
        density = Estimate(-0.5 * d.value**2, np.asarray(np.abs(d.value) * d.error + EPS * d.value**2))
        zero = np.zeros_like(x)
        spread = np.where(self.vx > 0, self.vx, 1.0)
        mean = self.my + self.c / spread * (x - self.mx)
        return replace(self, mx=x, my=mean, vx=zero, vy=self.det / spread, c=zero, det=zero, log=self.log + density)

    @cached_property
    def _standard(self) -> tuple[Array, Array, Array, Array]:
        """wx sd_x, wy sd_y, the correlation r, and 1 - r^2."""
        spread = (self.vx > 0) & (self.vy > 0)
        product = np.where(spread, self.vx * self.vy, 1.0)
        r = self.c / np.sqrt(product)
        return self.wx * np.sqrt(self.vx), self.wy * np.sqrt(self.vy), r, np.where(spread, self.det / product, 1.0)

    @property
    def tilted(self) -> bool:
        """Whether there is an exponential."""
        return not (self.wx is ZERO and self.wy is ZERO)

    @cached_property
    def pull(self) -> Array:
        """How far the exponential moves the mean of x, in deviations: u + r v, u = wx sd_x, v = wy sd_y.

        Close to r = +-1 it is (u +- v) -+ (1 - |r|) v, and 1 - |r| = (1 - r^2) / (1 + |r|).
        """
        if not self.tilted:
            return ZERO
        u, v, r, s2 = self._standard
        side = np.sign(r)
        return np.asarray(np.where(np.abs(r) > 0.5, (u + side * v) - side * s2 / (1 + np.abs(r)) * v, u + r * v))

    @cached_property
    def mean(self) -> Estimate:
        """The mean of x under the measure made a probability: complex where the exponent is."""
        if not self.tilted:
            return Estimate.rounded(self.mx)
        u, v, _, _ = self._standard
        sd = np.sqrt(self.vx)
        value = self.mx + sd * self.pull
        return Estimate(value, np.asarray(EPS * (4 * np.abs(value) + 2 * sd * (np.abs(u) + np.abs(v)))))

    @property
    def variance(self) -> Estimate:
        """The variance of x."""
        return Estimate.rounded(self.vx)

    @property
    def covariance(self) -> Estimate:
        """The covariance of x and y."""
        return Estimate.rounded(self.c)

    @cached_property
    def mass(self) -> Estimate:
        """The integral over the plane."""
        exponent = self.log + self._gain if self.tilted else self.log
        value = np.exp(exponent.value)
        relative = np.expm1(np.minimum(exponent.error, OVERFLOW)) + 2 * EPS * (exponent.value != 0)
        return Estimate(value, np.asarray(np.abs(value) * relative))

    @property
    def _gain(self) -> Estimate:
        """log E exp(W) = E W + Var W / 2, W = wx x + wy y, with Var W = (u + r v)^2 + (1 - r^2) v^2."""
        u, v, _, s2 = self._standard
        x, y = self.wx * self.mx, self.wy * self.my
        variance = self.pull**2 + s2 * v * v
        rough = np.abs(x) + np.abs(y) + np.abs(variance) + np.abs(self.pull) * (np.abs(u) + np.abs(v))
        return Estimate(x + y + 0.5 * variance, np.asarray(2 * EPS * rough))


class NumericMoments(PairMoments[Estimate]):
    """Moments with bounds on their rounding."""

    zero = Estimate.exact(0.0)
    half = 0.5
    root_2 = ROOT_2
    apart = ("exp", *WAVES)
    law: NumericGaussian

    @staticmethod
    def real(value: Estimate) -> Estimate:
        """The real part."""
        return Estimate(np.real(value.value), value.error)

    @staticmethod
    def imaginary(value: Estimate) -> Estimate:
        """The imaginary part."""
        return Estimate(np.imag(value.value), value.error)

    @cached_property
    def _scale(self) -> Array:
        """dV / dx."""
        return np.asarray(self.blur[0] * self.first.a)

    @cached_property
    def _deviation(self) -> Array:
        """Standard deviation of V."""
        return np.asarray(np.sqrt(self._scale**2 * self.law.vx + self.blur[1]))

    @property
    def slope(self) -> Estimate:
        """The jump of A times the density of V where V is as probable as can be."""
        jump = 2.0 if self.first.kind == "erf" else 1.0
        return Estimate.rounded(jump / SQRT_2PI * self._scale / _positive(self._deviation))

    @property
    def second_on_boundary(self) -> Factor:
        """The distance of y from its threshold, given x at its own, without the cancellation in mean - threshold."""
        if self.second.kind != "step":
            return self.second
        r, s = self._sign_correlation()
        return replace(self.second, distance=gap(self.swapped.distance, self.distance, r, s))

    @cached_property
    def threshold(self) -> Array:
        """Where the step of A sits; so many deviations from the mean that its density is 0 if it sits farther out."""
        a, law = self.first.a, self.law
        sd = np.sqrt(law.vx)
        with np.errstate(over="ignore"):
            t = np.where(a == 0, np.inf, -self.first.b / np.where(a == 0, 1.0, a))
            return np.asarray(law.mx + np.clip(t - law.mx, -FAR * sd, FAR * sd))

    @cached_property
    def distance(self) -> Estimate:
        """E V / sd V."""
        if self.first.distance is not None:
            return self.first.distance  # type: ignore[no-any-return]
        a, b, m = self.first.a, self.first.b, self.law.mx
        unit, sd = self.blur[0], self._deviation
        value, size = unit * (a * m + b), unit * np.where(m == 0, 0.0, np.abs(a * m) + np.abs(b))
        with np.errstate(over="ignore"):
            h = np.where(sd > 0, value / _positive(sd), np.where(value > 0, np.inf, -np.inf))
            inexact = EPS * (4 * np.minimum(np.abs(h), FAR) + 2 * size / _positive(sd))
        return Estimate(np.clip(h, -FAR, FAR), np.where(np.abs(h) >= FAR, 0.0, np.minimum(inexact, 1.0)))

    def _sign_correlation(self) -> tuple[Array, Array]:
        """Correlation r of the two sign variables and sqrt(1 - r^2).

        U = a x + noise n1, V = c y + noise n2: var U var V - cov^2 = a^2 c^2 det + a^2 vx n2 + c^2 vy n1 + n1 n2.
        """
        law = self.law
        a, n1 = self._scale, self.blur[1]
        c, n2 = self.swapped._scale, self.swapped.blur[1]
        u, v = a * a * law.vx + n1, c * c * law.vy + n2
        flat = (u == 0) | (v == 0)
        product = np.where(flat, 1.0, u * v)
        det = a * a * c * c * law.det + a * a * law.vx * n2 + c * c * law.vy * n1 + n1 * n2
        r = np.where(flat, 0.0, a * c * law.c / np.sqrt(product))
        s = np.where(flat, 1.0, np.sqrt(det / product))
        return np.clip(r, -1.0, 1.0), np.minimum(s, 1.0)

    def one_sign(self) -> Estimate:
        """E[A(x)], the weight included."""
        return self.law.mass * (positive if self.first.kind == "step" else sign)(self.distance)

    def two_signs(self) -> Estimate:
        """E[A(x) B(y)], the weight included."""
        first, second = self.first.kind, self.second.kind
        orthant = sign_sign if first == "erf" else step_step if second == "step" else step_sign
        return self.law.mass * orthant(self.distance, self.swapped.distance, *self._sign_correlation())


def line_moments(factor: Factor) -> Callable[[int, int], Estimate]:
    """Moments m(0, q) = E[y^q B(y)] of a standard normal variable: x is another one that nobody uses."""
    zero, one = np.zeros_like(factor.b), np.ones_like(factor.b)
    return NumericMoments.of(NumericGaussian(zero, zero, one, one, zero, one), NO_FACTOR, factor)


def _positive(sd: Array) -> Array:
    """To divide by: 1 for 0."""
    return np.asarray(np.where(sd > 0, sd, 1.0))


# -- sums of terms -----------------------------------------------------------------------------------------------------


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


Gathered = list[tuple[Factor, list[Estimate | None]]]  # factors, and coefficients of powers of z: None for 0


def _gather(terms: Sequence[FunctionTerm], mu: Array, sd: Array) -> Gathered:
    """Terms as polynomials in z = (x - mu) / sd times one factor each, anchored at the mean.

    x^p = sum over k of comb(p, k) mu^(p-k) (x - mu)^k; scale x + shift = (scale sd) z + (scale mu + shift).
    """
    shape = mu.shape
    base = _Group("one", np.zeros(shape), np.zeros(shape), [])
    groups: dict[Any, _Group] = {"one": base}
    for term in terms:
        scale, shift = np.asarray(term.scale, dtype=np.float64), np.asarray(term.shift, dtype=np.float64)
        key = term.kind if term.kind == "one" else (term.kind, *((v.shape, v.tobytes()) for v in (scale, shift)))
        if key not in groups:
            a, b = np.broadcast_to(scale * sd, shape), np.broadcast_to(fused(scale, mu, shift), shape)
            if term.kind == "step":
                # a positive factor of its argument means nothing to a step: a = +-1 has no extreme units
                unit = np.where(a == 0, 1.0, np.abs(a))
                a, b = a / unit, np.clip(b / unit, -HUGE, HUGE)
            groups[key] = _Group(term.kind, a, b, [])
        for k in range(term.power + 1):
            coefficient = groups[key].coefficient(k, shape)
            _add_power(coefficient, np.asarray(term.coefficient, dtype=np.float64), term.power, k, mu)
    for group in groups.values():
        if group.kind == "step":
            _anchor(group, base)
    powers = [sd**k for k in range(1 + max((t.power for t in terms), default=0))]
    return [
        (
            Factor(group.kind, group.a, group.b),
            [c.estimate(powers[k]) if np.any(c.high) else None for k, c in enumerate(group.coefficients)],
        )
        for group in groups.values()
    ]


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


def closed_form(integrand: Integrand) -> Callable[[FactoredIntegrand], Estimate] | None:
    """For functions that are sums of terms, without steps or erf in one and exponentials or waves in the other."""
    if not isinstance(integrand, FactoredIntegrand) or any(f.terms is None for f in integrand.functions):
        return None
    terms = [f.terms or () for f in integrand.functions]
    if len(terms) == 2 and not all(NumericMoments.closes(a.kind, b.kind) for a in terms[0] for b in terms[1]):
        return None

    def answer(part: FactoredIntegrand) -> Estimate:
        mu, sd = ([np.broadcast_to(array, part.shape) for array in arrays] for arrays in (part.mu, part.sd))
        if len(terms) == 1:
            return closed_mean(terms[0], mu[0], sd[0])
        law = part.correlation
        return closed_cross(terms[0], terms[1], (mu[0], mu[1]), (sd[0], sd[1]), law.rho, law.s)

    return answer


def closed_mean(terms: Sequence[FunctionTerm], mu: Array, sd: Array) -> Estimate:
    """E f(X) for f the sum of the terms, X of mean mu and standard deviation sd > 0.

    Shapes    mu, sd of one shape, the batch, against which parameters of the terms broadcast -> batch
    Accuracy  error bounds the rounding to first order; infinite where the result is not finite
    """
    total = Estimate(np.zeros(mu.shape), np.zeros(mu.shape))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for factor, coefficients in _gather(terms, mu, sd):
            moments = line_moments(factor)
            for k, c in enumerate(coefficients):
                if c is not None:
                    total = total + c * moments(0, k)
    return _finite(total.reshape(mu.shape))


def closed_cross(
    f: Sequence[FunctionTerm],
    g: Sequence[FunctionTerm],
    mu: tuple[Array, Array],
    sd: tuple[Array, Array],
    rho: Array,
    s: Array,
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
    law = NumericGaussian(zero, zero, one, one, rho, s * s)
    total = Estimate(zero, zero)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        others = _gather(g, mu[1], sd[1])
        for first, left in _gather(f, mu[0], sd[0]):
            for second, right in others:
                moments = NumericMoments.of(law, first, second)
                for p, c in enumerate(left):
                    for q, d in enumerate(right):
                        if c is not None and d is not None:
                            total = total + c * d * moments(p, q)
    total = _finite(total.reshape(shape))
    return Estimate(total.value, np.where(line, np.inf, total.error))


def _finite(total: Estimate) -> Estimate:
    """With what underflow may have lost, and overflow stated."""
    return Estimate(total.value, np.asarray(total.error + TINY)).settled()

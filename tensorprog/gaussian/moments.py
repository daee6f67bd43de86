"""E[x^p y^q A(x) B(y)] for Gaussian (x, y): one recursion for every pair of kinds.

Gaussian integration by parts (Stein): E[(x - m) F(x, y)] = v E[dF/dx] + c E[dF/dy], m and v mean and variance of x, c
the covariance. With F = x^(p-1) y^q A(x) B(y) this lowers the power and differentiates the factors:

    M(p, q) = m M(p-1, q) + v ((p-1) M(p-2, q) + M(p-1, q; A')) + c (q M(p-1, q-1) + M(p-1, q; B'))

- exp, gaussian: multiplying the density by them gives a multiple of another Gaussian density (measure.py), so they
  disappear before the recursion starts;
- sin and cos are parts of exp(i (a x + b)), and the same holds with a complex mean;
- erf(t) = E sign(sqrt2 t + N), N standard normal: erf is a step blurred by independent noise;
- 1(V > 0) has the derivative delta(V): the density of V at 0 times a moment given V = 0.

At p = q = 0 remain total masses, orthant probabilities (orthant.py) and Phi(z), the normal distribution function, of a
complex z if there is an exponential: exp(-z^2 / 2) erfcx(-z / sqrt2) / 2, Faddeeva's function, bounded for Re z <= 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb, factorial
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.half_line import half_line_moments
from tensorprog.gaussian.measure import Measure
from tensorprog.gaussian.orthant import FAR, gap, sign_sign, step_sign, step_step

Array = NDArray[Any]  # real, or complex where there is a wave

__all__ = ["Factor", "PairMoments", "line_moments", "pair_moments"]

SIGNS = ("step", "erf")
TRIGONOMETRIC = ("sin", "cos")
ROOT_2 = float(np.sqrt(2.0))
SQRT_2PI = float(np.sqrt(2 * np.pi))
# erf(z) / z as a polynomial in z^2 for |z|^2 <= 1/2 (scipy's complex erf is good to 1e-13 only)
ERF_SERIES = np.array([2 * (-1) ** n / (factorial(n) * (2 * n + 1)) for n in range(16)]) / np.sqrt(np.pi)


@dataclass(frozen=True, eq=False)
class Factor:
    """kind(a x + b), a factor of an expectation; `distance` overrides (a m + b) / (|a| sd) for a step.

    Beside the kinds of terms there is "wave", exp(i (a x + b)).
    """

    kind: str
    a: Array
    b: Array
    distance: Estimate | None = None

    def with_kind(self, kind: str) -> Factor:
        """Another function of the same argument."""
        return replace(self, kind=kind)


ONE = Factor("one", np.zeros(()), np.zeros(()))


def pair_moments(law: Measure, first: Factor, second: Factor) -> Callable[[int, int], Estimate]:
    """M(p, q) = E[x^p y^q A(x) B(y)] for any two kinds, sin and cos included.

    With W = E[x^p y^q exp(i U) B(y)]: cos U gives Re W, sin U gives Im W. If B is cos V or sin V as well, W is
    (W+ + W-) / 2 or (W+ - W-) / 2i for B = exp(+-i V).
    """
    if first.kind not in TRIGONOMETRIC:
        if second.kind not in TRIGONOMETRIC:
            return PairMoments(law, first, second)
        turned = pair_moments(law.swapped(), second, first)
        return lambda p, q: turned(q, p)
    part = _real if first.kind == "cos" else _imag
    wave = first.with_kind("wave")
    if second.kind not in TRIGONOMETRIC:
        single = PairMoments(law, wave, second)
        return lambda p, q: part(single(p, q))
    plus = PairMoments(law, wave, second.with_kind("wave"))
    minus = PairMoments(law, wave, Factor("wave", -second.a, -second.b))
    if second.kind == "cos":
        return lambda p, q: part((plus(p, q) + minus(p, q)) * 0.5)
    return lambda p, q: part((plus(p, q) - minus(p, q)) * np.asarray(-0.5j))


def _real(estimate: Estimate) -> Estimate:
    return Estimate(np.real(estimate.value), estimate.error)


def _imag(estimate: Estimate) -> Estimate:
    return Estimate(np.imag(estimate.value), estimate.error)


def line_moments(mean: Array, variance: Array, factor: Factor) -> Callable[[int, int], Estimate]:
    """Moments m(0, q) = E[y^q B(y)] of one variable: x is an independent standard normal that nobody uses."""
    zero, one = np.zeros_like(mean), np.ones_like(mean)
    return pair_moments(Measure(zero, mean, one, variance, zero, variance), ONE, factor)


def _positive(sd: Array) -> Array:
    """To divide by: 1 for 0."""
    return np.asarray(np.where(sd > 0, sd, 1.0))


def _absorb(law: Measure, factor: Factor) -> tuple[Measure, Factor]:
    """The law times a factor of x that keeps it Gaussian, and the factor that is left."""
    if factor.kind == "exp":
        return law.times_exp(factor.a, factor.b), ONE
    if factor.kind == "wave":
        return law.times_exp(1j * factor.a, 1j * factor.b), ONE
    if factor.kind == "gaussian":
        return law.times_gaussian(factor.a, factor.b), ONE
    return law, factor


class PairMoments:
    """The moments M(p, q) = E[x^p y^q A(x) B(y)] of one law and one pair of factors, computed once each."""

    def __init__(self, law: Measure, first: Factor, second: Factor) -> None:
        law, self.first = _absorb(law, first)
        turned, self.second = _absorb(law.swapped(), second)
        self.law = turned.swapped()
        self._known: dict[tuple[int, int], Estimate] = {}
        self._swapped: PairMoments | None = None

    @property
    def swapped(self) -> PairMoments:
        """The same moments with x and y in exchanged roles."""
        if self._swapped is None:
            self._swapped = PairMoments(self.law.swapped(), self.second, self.first)
            self._swapped._swapped = self
        return self._swapped

    def __call__(self, p: int, q: int) -> Estimate:
        """M(p, q)."""
        if p < 0 or q < 0:
            return Estimate.exact(0.0)
        if p == 0 and q > 0:
            return self.swapped(q, 0)
        if (p, q) not in self._known:
            self._known[p, q] = self._base() if p == 0 else self._power(p, q)
        return self._known[p, q]

    def _power(self, p: int, q: int) -> Estimate:
        """M(p, q), p > 0: where an exponential moves means far away, the recursion loses what the half-line keeps."""
        found = self._recursion(p, q)
        if self.law.tilted and self.first.kind in SIGNS:
            return found.better_of(self._one_sign(p, q))
        if self.law.tilted and self.second.kind in SIGNS:
            return found.better_of(self.swapped._one_sign(q, p))
        return found

    def _recursion(self, p: int, q: int) -> Estimate:
        law = self.law
        along = self(p - 2, q) * float(p - 1) + self._derivative(p - 1, q)
        across = self(p - 1, q - 1) * float(q) + self.swapped._derivative(q, p - 1)
        return law.mean * self(p - 1, q) + Estimate.rounded(law.vx) * along + Estimate.rounded(law.c) * across

    def _derivative(self, p: int, q: int) -> Estimate:
        """E[x^p y^q A'(x) B(y)]: A = 1(V > 0) or sign V, A' = dV/dx delta(V) or twice that."""
        if self.first.kind == "one":
            return Estimate.exact(0.0)
        jump = 2.0 if self.first.kind == "erf" else 1.0
        return Estimate.rounded(jump / SQRT_2PI * self._scale / _positive(self._deviation)) * self._boundary(p, q)

    @property
    def _blur(self) -> tuple[float, float]:
        """V = unit (a x + b) + noise is the sign variable behind A: the unit, and the variance of the noise."""
        return (ROOT_2, 1.0) if self.first.kind == "erf" else (1.0, 0.0)

    @cached_property
    def _scale(self) -> Array:
        """dV / dx."""
        return np.asarray(self._blur[0] * self.first.a)

    @cached_property
    def _deviation(self) -> Array:
        """Standard deviation of V."""
        return np.asarray(np.sqrt(self._scale**2 * self.law.vx + self._blur[1]))

    @cached_property
    def _boundary(self) -> PairMoments:
        """The moments of sqrt(2 pi) sd_V delta(V) B(y) times the law: those given V = 0, times exp(-distance^2 / 2)."""
        law, first, second = self.law, self.first, self.second
        if first.kind == "erf":
            return PairMoments(law.observed(ROOT_2 * first.a, ROOT_2 * first.b), ONE, second)
        if second.kind == "step":
            # the distance of y from its threshold, given x = t, without the cancellation in mean - threshold
            r, s = self._sign_correlation()
            second = replace(second, distance=gap(self.swapped._distance, self._distance, r, s))
        return PairMoments(law.at(self._threshold, self._distance), ONE, second)

    @cached_property
    def _threshold(self) -> Array:
        """Where the step of A sits; so many deviations from the mean that its density is 0 if it sits farther out."""
        a, law = self.first.a, self.law
        sd = np.sqrt(law.vx)
        with np.errstate(over="ignore"):
            t = np.where(a == 0, np.inf, -self.first.b / np.where(a == 0, 1.0, a))
            return np.asarray(law.mx + np.clip(t - law.mx, -self._far * sd, self._far * sd))

    @cached_property
    def _shift(self) -> Array:
        """How far exponentials move E V, in deviations of V: real for exp, imaginary for waves."""
        if not self.law.tilted:
            return self.law.pull
        return np.asarray(self._scale * np.sqrt(self.law.vx) / _positive(self._deviation) * self.law.pull)

    @property
    def _far(self) -> Array:
        """Standardised thresholds that are as good as infinite."""
        return np.asarray(FAR + np.abs(self._shift))

    @cached_property
    def _distance(self) -> Estimate:
        """E V / sd V before the law is multiplied by exponentials."""
        if self.first.distance is not None:
            return self.first.distance
        a, b, m = self.first.a, self.first.b, self.law.mx
        unit, sd, far = self._blur[0], self._deviation, self._far
        value, size = unit * (a * m + b), unit * np.where(m == 0, 0.0, np.abs(a * m) + np.abs(b))
        with np.errstate(over="ignore"):
            h = np.where(sd > 0, value / _positive(sd), np.where(value > 0, np.inf, -np.inf))
            inexact = EPS * (4 * np.minimum(np.abs(h), far) + 2 * size / _positive(sd))
        return Estimate(np.clip(h, -far, far), np.where(np.abs(h) >= far, 0.0, np.minimum(inexact, 1.0)))

    def _sign_correlation(self) -> tuple[Array, Array]:
        """Correlation r of the two sign variables and sqrt(1 - r^2).

        U = a x + noise n1, V = c y + noise n2: var U var V - cov^2 = a^2 c^2 det + a^2 vx n2 + c^2 vy n1 + n1 n2.
        """
        law = self.law
        a, n1 = self._scale, self._blur[1]
        c, n2 = self.swapped._scale, self.swapped._blur[1]
        u, v = a * a * law.vx + n1, c * c * law.vy + n2
        flat = (u == 0) | (v == 0)
        product = np.where(flat, 1.0, u * v)
        det = a * a * c * c * law.det + a * a * law.vx * n2 + c * c * law.vy * n1 + n1 * n2
        r = np.where(flat, 0.0, a * c * law.c / np.sqrt(product))
        s = np.where(flat, 1.0, np.sqrt(det / product))
        return np.clip(r, -1.0, 1.0), np.minimum(s, 1.0)

    def _base(self) -> Estimate:
        """E[A(x) B(y)]."""
        first, second = self.first.kind, self.second.kind
        if first not in SIGNS and second not in SIGNS:
            return self.law.mass
        if first not in SIGNS or (first == "erf" and second == "step"):
            return self.swapped._base()
        if second not in SIGNS:
            return self._one_sign(0, 0)
        orthant = sign_sign if first == "erf" else step_step if second == "step" else step_sign
        return self.law.mass * orthant(self._distance, self.swapped._distance, *self._sign_correlation())

    @cached_property
    def _whole(self) -> PairMoments:
        """The moments without factors."""
        return PairMoments(self.law, ONE, ONE)

    def _one_sign(self, p: int, q: int) -> Estimate:
        """E[x^p y^q 1(V > 0)] or E[x^p y^q sign V], exponentials included.

        Given V = v sd_V the means of x and y are those given V = 0 plus kappa v, kappa = Cov(., V) / sd_V, and the
        density of v with the exponentials is that at 0 times exp(z v - v^2 / 2), z = distance + shift. So x^p y^q
        becomes a polynomial in v, its coefficients moments given V = 0, where nothing overflows or cancels. The side
        of V on which Re z is negative is integrated, the other is the rest.
        """
        h = self._distance
        z = h.value + self._shift
        on = np.real(z) > 0
        side = np.where(on, -1.0, 1.0)
        moved = h.error + 4 * EPS * np.abs(self._shift)
        line = half_line_moments(p + q, side * z, moved)
        along, across = (
            Estimate.rounded(side * self._scale * cov / _positive(self._deviation)) for cov in (self.law.vx, self.law.c)
        )
        tail = Estimate.exact(0.0)
        for i in range(p + 1):
            for j in range(q + 1):
                power = _power(along, i) * _power(across, j) * float(comb(p, i) * comb(q, j))
                tail = tail + self._boundary(p - i, q - j) * power * line[i + j]
        tail, whole = tail * (1 / SQRT_2PI), self._whole(p, q)
        if self.first.kind == "step":
            return (whole - tail).where(on, tail)
        outer = whole - tail * 2.0
        result = outer.where(on, -outer)
        if p + q > 0:
            return result
        # relatively accurate where it is small
        near = np.where(np.abs(z) < 1, z, 0) / ROOT_2
        inner = near * polyval(near * near, ERF_SERIES)
        small = whole * Estimate(inner, np.asarray(8 * EPS * np.abs(inner) + 2 * moved))
        return small.where(np.abs(z) < 1, result)


def _power(base: Estimate, exponent: int) -> Estimate:
    result = Estimate.exact(1.0)
    for _ in range(exponent):
        result = result * base
    return result

"""E[x^p y^q A(x) B(y)] for Gaussian (x, y): one recursion for every pair of kinds that closes.

Gaussian integration by parts (Stein): E[(x - m) F(x, y)] = v E[dF/dx] + c E[dF/dy], m and v mean and variance of x, c
the covariance. With F = x^(p-1) y^q A(x) B(y) this lowers the power and differentiates the factors:

    M(p, q) = m M(p-1, q) + v ((p-1) M(p-2, q) + M(p-1, q; A')) + c (q M(p-1, q-1) + M(p-1, q; B'))

- exp, gaussian: multiplying the density by them gives a multiple of another Gaussian density ("tilting"), so they
  disappear before the recursion starts;
- sin' and cos' are cos and -sin, up to the scale;
- erf(a x + b)' = (2 / sqrt(pi)) a exp(-(a x + b)^2), which tilts;
- step(a x + b)' = sign(a) delta(x - t), t = -b / a: a density at t times a moment of y given x = t.

At p = q = 0 remain probabilities (orthant.py) and characteristic functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .estimate import EPS, Estimate
from .orthant import FAR, gap, normal_cdf, normal_pdf, sign_sign, step_sign, step_step

Array = NDArray[np.floating]

__all__ = ["Factor", "Law", "PairMoments", "closes", "line_moments"]

SIGNS = ("step", "erf")
TRIGONOMETRIC = ("sin", "cos")


@dataclass(frozen=True, eq=False)
class Law:
    """A Gaussian law of (x, y): means, variances, covariance, and det = vx vy - c^2 given without cancellation."""

    mx: Array
    my: Array
    vx: Array
    vy: Array
    c: Array
    det: Array

    def swapped(self) -> Law:
        """The law of (y, x)."""
        return Law(self.my, self.mx, self.vy, self.vx, self.c, self.det)


@dataclass(frozen=True, eq=False)
class Factor:
    """kind(a x + b), a factor of an expectation; `distance` overrides (a m + b) / (|a| sd) for a step."""

    kind: str
    a: Array
    b: Array
    distance: Estimate | None = None

    def with_kind(self, kind: str) -> Factor:
        """Another function of the same argument."""
        return replace(self, kind=kind)


ONE = Factor("one", np.zeros(()), np.zeros(()))


def closes(first: str, second: str) -> bool:
    """Whether a pair of kinds has a closed form: all but sin or cos with step or erf (Faddeeva functions)."""
    return not (
        (first in TRIGONOMETRIC and second in SIGNS) or (second in TRIGONOMETRIC and first in SIGNS)
    )


def line_moments(mean: Array, variance: Array, factor: Factor) -> PairMoments:
    """Moments m(0, q) = E[y^q B(y)] of one variable: x is an independent standard normal that nobody uses."""
    zero, one = np.zeros_like(mean), np.ones_like(mean)
    return PairMoments(Law(zero, mean, one, variance, zero, variance), ONE, factor)


def _tilt_exp(law: Law, a: Array, b: Array) -> tuple[Law, Estimate]:
    """exp(a x + b) times the law of (x, y): means move by a Cov(., x), total mass exp(b + a m + a^2 v / 2)."""
    with np.errstate(over="ignore"):
        mass = np.exp(b + a * law.mx + 0.5 * a * a * law.vx)
        size = 2 + np.abs(b) + np.abs(a * law.mx) + a * a * law.vx
        return replace(law, mx=law.mx + a * law.vx, my=law.my + a * law.c), Estimate(mass, 2 * EPS * size * mass)


def _tilt_gaussian(law: Law, a: Array, b: Array) -> tuple[Law, Estimate]:
    """exp(-(a x + b)^2 / 2) times the law of (x, y), as if a x + b + N(0, 1) had been observed to be 0.

    With n = 1 + a^2 vx (the variance of the observation) and u = a mx + b (its mean), Kalman's update gives
    mean -= Cov(., x) a u / n, covariance -= Cov(., x) Cov(x, .) a^2 / n, total mass exp(-u^2 / (2 n)) / sqrt(n);
    vx - a^2 vx^2 / n = vx / n, c - a^2 vx c / n = c / n, vy - a^2 c^2 / n = (vy + a^2 det) / n, and det / n.
    """
    n = 1 + a * a * law.vx
    u = a * law.mx + b
    with np.errstate(under="ignore"):
        mass = np.exp(-0.5 * u * u / n) / np.sqrt(n)
    pull = a * u / n
    tilted = Law(
        law.mx - law.vx * pull,
        law.my - law.c * pull,
        law.vx / n,
        (law.vy + a * a * law.det) / n,
        law.c / n,
        law.det / n,
    )
    size = 4 + u * u / n + np.abs(u) * (np.abs(a * law.mx) + np.abs(b)) / n
    return tilted, Estimate(mass, np.asarray(2 * EPS * size * mass))


class PairMoments:
    """The moments M(p, q) = E[x^p y^q A(x) B(y)] of one law and one pair of factors, computed once each."""

    def __init__(self, law: Law, first: Factor, second: Factor) -> None:
        mass = Estimate.exact(1.0)
        if first.kind in ("exp", "gaussian"):
            law, mass = (_tilt_exp if first.kind == "exp" else _tilt_gaussian)(law, first.a, first.b)
            first = ONE
        if second.kind in ("exp", "gaussian"):
            tilt = _tilt_exp if second.kind == "exp" else _tilt_gaussian
            turned, more = tilt(law.swapped(), second.a, second.b)
            law, mass, second = turned.swapped(), mass * more, ONE
        self.law, self.first, self.second, self.mass = law, first, second, mass
        self._known: dict[tuple[int, int], Estimate] = {}
        self._swapped: PairMoments | None = None

    def __call__(self, p: int, q: int) -> Estimate:
        """M(p, q), the mass of tilted densities included."""
        return self.mass * self.moment(p, q)

    @property
    def swapped(self) -> PairMoments:
        """The same moments with x and y in exchanged roles."""
        if self._swapped is None:
            self._swapped = PairMoments(self.law.swapped(), self.second, self.first)
            self._swapped._swapped = self
        return self._swapped

    def moment(self, p: int, q: int) -> Estimate:
        """M(p, q) under the tilted law, a probability law."""
        if p < 0 or q < 0:
            return Estimate.exact(0.0)
        if p == 0 and q > 0:
            return self.swapped.moment(q, 0)
        if (p, q) not in self._known:
            self._known[p, q] = self._base() if p == 0 else self._recursion(p, q)
        return self._known[p, q]

    def _recursion(self, p: int, q: int) -> Estimate:
        law = self.law
        along = self.moment(p - 2, q) * float(p - 1) + self._derivative(p - 1, q)
        across = self.moment(p - 1, q - 1) * float(q) + self.swapped._derivative(q, p - 1)
        start = Estimate.rounded(law.mx) * self.moment(p - 1, q)
        return start + Estimate.rounded(law.vx) * along + Estimate.rounded(law.c) * across

    def _derivative(self, p: int, q: int) -> Estimate:
        """E[x^p y^q A'(x) B(y)]."""
        kind, a = self.first.kind, self.first.a
        if kind == "one":
            return Estimate.exact(0.0)
        if kind in TRIGONOMETRIC:
            return self._companion.moment(p, q) * (a if kind == "sin" else -a)
        if kind == "erf":
            return self._companion(p, q) * Estimate.rounded(2 / np.sqrt(np.pi) * a)
        # step: the density of x at t, and y given x = t
        sd = np.sqrt(self.law.vx)
        d = self._distance
        height = normal_pdf(d) * Estimate.rounded(np.sign(a) / np.where(sd > 0, sd, 1.0))
        return height * Estimate.rounded(self._threshold**p) * self._companion(0, q)

    @cached_property
    def _companion(self) -> PairMoments:
        """The moments that the derivative of A leads to."""
        law, first, second = self.law, self.first, self.second
        if first.kind in TRIGONOMETRIC:
            return PairMoments(law, first.with_kind("cos" if first.kind == "sin" else "sin"), second)
        if first.kind == "erf":
            root = np.sqrt(2.0)
            return PairMoments(law, Factor("gaussian", root * first.a, root * first.b), second)
        slope = law.c / law.vx
        if second.kind == "step":
            # the distance of y from its threshold, given x = t, without the cancellation in mean - threshold
            r, s = self._sign_correlation()
            second = replace(second, distance=gap(self.swapped._distance, self._distance, r, s))
        return line_moments(law.my + slope * (self._threshold - law.mx), law.det / law.vx, second)

    @cached_property
    def _threshold(self) -> Array:
        """Where the step of A sits, at most FAR deviations from the mean (its density is 0 from there on)."""
        a, law = self.first.a, self.law
        sd = np.sqrt(law.vx)
        with np.errstate(over="ignore"):
            t = np.where(a == 0, np.inf, -self.first.b / np.where(a == 0, 1.0, a))
            return np.asarray(law.mx + np.clip(t - law.mx, -FAR * sd, FAR * sd))

    @cached_property
    def _distance(self) -> Estimate:
        """(a m + b) / sd for the sign variable behind A: a x + b for a step, sqrt2 (a x + b) + N(0, 1) for erf.

        erf(t) = E sign(sqrt2 t + N), N standard normal: erf is a step blurred by independent noise.
        """
        if self.first.distance is not None:
            return self.first.distance
        a, b, m, v = self.first.a, self.first.b, self.law.mx, self.law.vx
        value, size = a * m + b, np.where(m == 0, 0.0, np.abs(a * m) + np.abs(b))
        if self.first.kind == "erf":
            sd = np.sqrt(1 + 2 * a * a * v)
            root = np.sqrt(2.0)
            h = root * value / sd
            return Estimate(h, np.asarray(EPS * (4 * np.abs(h) + 2 * root * size / sd)))
        sd = np.abs(a) * np.sqrt(v)
        with np.errstate(over="ignore"):
            h = np.where(sd > 0, value / np.where(sd > 0, sd, 1.0), np.where(value > 0, np.inf, -np.inf))
            inexact = EPS * (4 * np.minimum(np.abs(h), FAR) + 2 * size / np.where(sd > 0, sd, 1.0))
        return Estimate(np.clip(h, -FAR, FAR), np.where(np.abs(h) >= FAR, 0.0, np.minimum(inexact, 1.0)))

    def _noise(self) -> tuple[Array, float]:
        """Scale of x and variance of the noise in the sign variable behind A."""
        return (np.sqrt(2.0) * self.first.a, 1.0) if self.first.kind == "erf" else (self.first.a, 0.0)

    def _sign_correlation(self) -> tuple[Array, Array]:
        """Correlation r of the two sign variables and sqrt(1 - r^2).

        U = a x + noise n1, V = c y + noise n2: var U var V - cov^2 = a^2 c^2 det + a^2 vx n2 + c^2 vy n1 + n1 n2.
        """
        law = self.law
        a, n1 = self._noise()
        c, n2 = self.swapped._noise()
        u, v = a * a * law.vx + n1, c * c * law.vy + n2
        flat = (u == 0) | (v == 0)
        product = np.where(flat, 1.0, u * v)
        det = a * a * c * c * law.det + a * a * law.vx * n2 + c * c * law.vy * n1 + n1 * n2
        r = np.where(flat, 0.0, a * c * law.c / np.sqrt(product))
        s = np.where(flat, 1.0, np.sqrt(det / product))
        return np.clip(r, -1.0, 1.0), np.minimum(s, 1.0)

    def _base(self) -> Estimate:
        """E[A(x) B(y)]."""
        kinds = (self.first.kind, self.second.kind)
        if kinds == ("one", "one"):
            return Estimate.exact(np.ones(np.broadcast_shapes(self.law.mx.shape, self.law.my.shape)))
        if kinds[0] == "one" and kinds[1] in SIGNS:
            return self.swapped._base()
        if kinds[1] == "one" and kinds[0] in SIGNS:
            h = self._distance
            if kinds[0] == "step":
                return normal_cdf(h)
            # erf(h / sqrt2), odd and relatively accurate
            value = normal_cdf(h) - normal_cdf(-h)
            small = Estimate.rounded(special.erf(h.value / np.sqrt(2.0)), 8)
            return Estimate(small.value, np.asarray(small.error + np.minimum(h.error, value.error)))
        if kinds[0] in SIGNS:
            if kinds[0] != "step" and kinds[1] == "step":
                return self.swapped._base()
            r, s = self._sign_correlation()
            h, k = self._distance, self.swapped._distance
            if kinds == ("step", "step"):
                return step_step(h, k, r, s)
            return (step_sign if kinds[0] == "step" else sign_sign)(h, k, r, s)
        return self._characteristic()

    def _characteristic(self) -> Estimate:
        """Products of cos and sin as sums over cos or sin of V + U and V - U, U = a x + b, V = c y + d.

        E cos(W) = exp(-Var W / 2) cos(E W), E sin(W) likewise. Var(V + e U) = (sd_U + e r sd_V)^2 + (1 - r^2) sd_V^2,
        whose first bracket is (sd_U - sd_V) + (1 - |r|) sd_V where e r < 0, 1 - |r| = (1 - r^2) / (1 + |r|).
        """
        if self.first.kind == "one":
            return self._wave(0.0, self.second.kind)
        if self.second.kind == "one":
            return self.swapped._wave(0.0, self.first.kind)
        half = 0.5
        if self.first.kind == self.second.kind:
            plus, minus = self._wave(1.0, "cos") * half, self._wave(-1.0, "cos") * half
            return minus - plus if self.first.kind == "sin" else minus + plus
        if self.first.kind == "sin":
            # sin U cos V = (sin(V + U) - sin(V - U)) / 2
            return self._wave(1.0, "sin") * half - self._wave(-1.0, "sin") * half
        return self._wave(1.0, "sin") * half + self._wave(-1.0, "sin") * half

    def _wave(self, e: float, kind: str) -> Estimate:
        """E cos(V + e U) or E sin(V + e U), e in {-1, 0, 1}."""
        law, a, c = self.law, self.first.a * e, self.second.a
        phase = c * law.my + self.second.b + (a * law.mx + self.first.b * e if e else 0.0)
        size = np.abs(c * law.my) + np.abs(self.second.b) + np.abs(a * law.mx) + np.abs(self.first.b * e)
        u, v = np.abs(a) * np.sqrt(law.vx), np.abs(c) * np.sqrt(law.vy)
        scale = np.where((law.vx > 0) & (law.vy > 0), law.vx * law.vy, 1.0)
        r = np.sign(a) * np.sign(c) * law.c / np.sqrt(scale)
        s2 = law.det / scale if e else np.ones_like(v)
        first = np.where(r < 0, (u - v) + s2 / (1 + np.abs(r)) * v, u + r * v)
        variance = first**2 + s2 * v * v
        rough = 4 * EPS * (variance + np.abs(first) * (u + v))
        with np.errstate(under="ignore"):
            damping = np.exp(-0.5 * variance)
        value = damping * (np.cos(phase) if kind == "cos" else np.sin(phase))
        return Estimate(value, np.asarray(damping * np.minimum(4 * EPS + rough + 2 * EPS * size, 2.0)))

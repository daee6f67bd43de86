"""Gaussian measures of two variables times exponentials of them, real or complex: closed under what factors do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, Estimate

Array = NDArray[Any]  # real, or complex where the exponential is

__all__ = ["Measure"]

ZERO = np.zeros(())
# exponents beyond this overflow
OVERFLOW = 700.0


@dataclass(frozen=True, eq=False)
class Measure:
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

    def swapped(self) -> Measure:
        """The measure of (y, x)."""
        return Measure(self.my, self.mx, self.vy, self.vx, self.c, self.det, self.wy, self.wx, self.log)

    def times_exp(self, a: Array, b: Array) -> Measure:
        """The measure times exp(a x + b)."""
        return replace(self, wx=self.wx + a, log=self.log + Estimate.rounded(b, 1))

    def times_gaussian(self, a: Array, b: Array) -> Measure:
        """The measure times exp(-(a x + b)^2 / 2): `observed` divided by sqrt(n)."""
        root = -0.5 * np.log(1 + a * a * self.vx)
        given = self.observed(a, b)
        return replace(given, log=given.log + Estimate(root, np.asarray(EPS * (1 + np.abs(root)))))

    def observed(self, a: Array, b: Array) -> Measure:
        """The measure given a x + b + N(0, 1) = 0, times exp(-d^2 / 2), d the standardised distance of 0.

        With n = 1 + a^2 vx (the variance of the observation) and u = a mx + b (its mean), Kalman's update gives
        mean -= Cov(., x) a u / n, covariance -= Cov(., x) Cov(x, .) a^2 / n;
        vx - a^2 vx^2 / n = vx / n, c - a^2 vx c / n = c / n, vy - a^2 c^2 / n = (vy + a^2 det) / n, and det / n.
        """
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

    def at(self, x: Array, d: Estimate) -> Measure:
        """The measure given x, times exp(-d^2 / 2)."""
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

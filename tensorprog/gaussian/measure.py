"""Gaussian measures of two variables times exponentials of them, real or complex: closed under what factors do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .estimate import EPS, Estimate

Array = NDArray[np.inexact]

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
        """The measure times exp(-(a x + b)^2 / 2), as if a x + b + N(0, 1) had been observed to be 0.

        With n = 1 + a^2 vx (the variance of the observation) and u = a mx + b (its mean), Kalman's update gives
        mean -= Cov(., x) a u / n, covariance -= Cov(., x) Cov(x, .) a^2 / n, total mass exp(-u^2 / (2 n)) / sqrt(n);
        vx - a^2 vx^2 / n = vx / n, c - a^2 vx c / n = c / n, vy - a^2 c^2 / n = (vy + a^2 det) / n, and det / n.
        """
        n = 1 + a * a * self.vx
        u = a * self.mx + b
        pull = a * u / n
        size = np.abs(u) * (2 * np.abs(u) + np.abs(a * self.mx) + np.abs(b)) / n
        mass = Estimate(-0.5 * (u * u / n + np.log(n)), np.asarray(2 * EPS * (1 + size)))
        return replace(
            self,
            mx=self.mx - self.vx * pull,
            my=self.my - self.c * pull,
            vx=self.vx / n,
            vy=(self.vy + a * a * self.det) / n,
            c=self.c / n,
            det=self.det / n,
            log=self.log + mass,
        )

    def given(self, x: Array, density: Estimate) -> Measure:
        """The measure at a value of x, times exp(density)."""
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

    @cached_property
    def pull(self) -> Array:
        """How far the exponential moves the mean of x, in deviations: u + r v, u = wx sd_x, v = wy sd_y.

        Close to r = +-1 it is (u +- v) -+ (1 - |r|) v, and 1 - |r| = (1 - r^2) / (1 + |r|).
        """
        u, v, r, s2 = self._standard
        side = np.sign(r)
        return np.asarray(np.where(np.abs(r) > 0.5, (u + side * v) - side * s2 / (1 + np.abs(r)) * v, u + r * v))

    @cached_property
    def mean(self) -> Estimate:
        """The mean of x under the measure made a probability: complex where the exponent is."""
        u, v, _, _ = self._standard
        sd = np.sqrt(self.vx)
        value = self.mx + sd * self.pull
        return Estimate(value, np.asarray(EPS * (4 * np.abs(value) + 2 * sd * (np.abs(u) + np.abs(v)))))

    @cached_property
    def mass(self) -> Estimate:
        """The integral over the plane: E exp(W) = exp(E W + Var W / 2), Var W = (u + r v)^2 + (1 - r^2) v^2."""
        u, v, _, s2 = self._standard
        x, y = self.wx * self.mx, self.wy * self.my
        variance = self.pull**2 + s2 * v * v
        exponent = self.log.value + x + y + 0.5 * variance
        rough = np.abs(x) + np.abs(y) + np.abs(variance) + np.abs(self.pull) * (np.abs(u) + np.abs(v))
        value = np.exp(exponent)
        relative = np.expm1(np.minimum(self.log.error + 2 * EPS * rough, OVERFLOW)) + 2 * EPS * (exponent != 0)
        return Estimate(value, np.asarray(np.abs(value) * relative))

"""Densities of sums of independent Gaussian mixtures, by their moment generating function on vertical lines.

Every summand is N(m, V) with m a number and V random: M(s) = E exp(s**2 V / 2) around the mean, an even function.  For
the sum, M is the product, and with d the distance to the mean

    density(d) = exp(-theta d) / pi * Integral over t > 0 of Re[M(theta + i t) exp(-i t d)]
    P(Y > d)   = the same with M(s) / s in place of M(s), for theta > 0
    P(Y > d)   = 1/2 - 1 / pi * Integral over t > 0 of M(i t) sin(t d) / t, for theta = 0

On the line through a theta near the saddlepoint K'(theta) = d, K = log M, nothing cancels: tails come out to full
relative accuracy (Lugannani & Rice 1980).  The trapezoidal rule converges geometrically, as M is analytic.  Where V is
not bounded M(theta) is infinite, or known from few draws only: there theta = 0 serves, with absolute accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.limit.law.mixture import Mixture, Nodes

__all__ = ["Convolution"]

Array = NDArray[np.floating]
NEGLIGIBLE = 40.0  # exp(-40) = 4e-18
MOST_POINTS = 1 << 13  # of the trapezoidal rule
MOST_LEVELS = 64
CHUNK = 1 << 20
EPS = 2.3e-16
AGREED = 0.02  # between sets of draws, of log M(theta)
LARGEST_SHARE = 0.05  # of one node in M(theta)
STEP = 2.0  # between neighbouring theta, in units of 1 / standard deviation


@dataclass(frozen=True)
class Level:
    """M on the line with real part theta.

    Shapes    frequencies (T,), ratio (1 + sets, T): M(theta + i t) / M(theta) by the rule, then of each set of draws;
              log_top (1 + sets,): K(theta)
    """

    theta: float
    step: float
    frequencies: Array
    ratio: NDArray[np.complexfloating]
    log_top: Array

    def density(self, distance: Array) -> tuple[Array, Array]:
        """Density at distances from the mean, and what rounding does to it.

        Shapes    (points,) -> (1 + sets, points), (points,)
        """
        return self._integral(self.ratio, distance)

    def tail(self, distance: Array) -> tuple[Array, Array]:
        """P(Y - E Y > d), and what rounding does to it.

        Shapes    (points,) -> (1 + sets, points), (points,)
        """
        if self.theta:
            return self._integral(self.ratio / (self.theta + 1j * self.frequencies), distance)
        # sin(t d) / t is d at t = 0, where 1 / (i t) is not a number
        later = np.where(self.frequencies > 0, self.frequencies, 1.0)
        found, rounding = self._integral(np.where(self.frequencies > 0, self.ratio / (1j * later), 0.0), distance)
        return 0.5 + found - 0.5 * self.step / math.pi * distance, rounding + EPS

    def _integral(self, integrand: NDArray[Any], distance: Array) -> tuple[Array, Array]:
        """exp(K(theta) - theta d) / pi times the integral over t > 0 of Re[integrand exp(-i t d)]."""
        integrand = integrand * np.where(self.frequencies == 0, 0.5, 1.0) * (self.step / math.pi)
        waves = np.exp(-1j * np.multiply.outer(self.frequencies, distance))
        with np.errstate(under="ignore"):
            size = np.exp(self.log_top[:, None] - self.theta * distance)
        rounding = 64 * EPS * np.abs(integrand[0]).sum() * size[0]
        return np.asarray(size * (integrand @ waves).real), np.asarray(rounding)


class Convolution:
    """The law of one variable that is a sum of independent Gaussian mixtures with constant means.

    `usable` says whether M falls off fast enough; it does not where the variance of the sum may be near 0.
    """

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture
        self._nodes: list[tuple[Nodes, int]] = mixture.nodes or []
        self._centre = float(mixture.expected()[0])
        self._var = float(mixture.var)
        self._sd = math.sqrt(max(float(mixture.moment(2)[0]), 0.0))
        self._largest = self._var + sum(count * float(nodes.var.max()) for nodes, count in self._nodes)
        self._levels: dict[int, Level | None] = {}
        self.usable = bool(self._nodes) and self._sd > 0 and self._level(0) is not None

    def _log_real(self, square: float) -> Array:
        """log E exp(square V / 2) of the sum, by the rule and of each set of draws, at a real number.

        Shapes    (1 + sets,)
        """
        total: Array = np.asarray(0.5 * square * self._var)
        for nodes, count in self._nodes:
            exponent = 0.5 * square * nodes.var
            top = exponent.max()
            with np.errstate(divide="ignore", under="ignore"):  # log 0 where it is far below what counts
                each = nodes.weights @ np.exp(exponent - top)
                total = total + count * (top + np.log(self._both(each)))
        return total

    def _both(self, sets: NDArray[Any]) -> NDArray[Any]:
        """What the rule makes of averages over sets of draws, then these averages."""
        return np.concatenate([self.mixture.rule.value(sets)[None], sets])

    def _known(self, theta: float, log_top: Array) -> bool:
        """Whether M(theta) is known: sets of draws agree, and no few nodes make it up."""
        if not np.isfinite(log_top).all() or np.abs(log_top - log_top[0]).max() > AGREED:
            return False
        for nodes, _ in self._nodes:
            exponent = 0.5 * theta**2 * nodes.var
            share = self.mixture.rule.value(nodes.weights) * np.exp(exponent - exponent.max())
            if np.abs(share).max() > LARGEST_SHARE * abs(share.sum()) and nodes.var.size > 1 / LARGEST_SHARE:
                return False
        return True

    def _level(self, number: int) -> Level | None:
        if number not in self._levels:
            self._levels[number] = self._make_level(number)
        return self._levels[number]

    def _make_level(self, number: int) -> Level | None:
        theta = (number - 0.5) * STEP / self._sd if number else 0.0
        log_top = self._log_real(theta**2)
        if not self._known(theta, log_top):
            return None
        last = 1 / self._sd
        while float(self._log_real(theta**2 - last**2)[0] - log_top[0]) > -NEGLIGIBLE:
            last *= 1.25
            if last * self._sd > 1e4:
                return None
        # so far apart stand the copies that the trapezoidal rule adds
        period = 20 * math.sqrt(self._largest) + STEP * self._largest / self._sd
        period += 2 * NEGLIGIBLE / theta if theta else 2 * self.mixture.reach
        points = math.ceil(last * period / (2 * math.pi)) + 1
        if points > MOST_POINTS:
            return None
        step = 2 * math.pi / period
        t = step * np.arange(points)
        ratio = np.exp((theta + 1j * t) ** 2 * (self._var / 2) - theta**2 * (self._var / 2))
        for nodes, count in self._nodes:
            real = 0.5 * theta**2 * nodes.var
            base = real.max()
            norm = nodes.weights @ np.exp(real - base)
            each = np.empty((len(nodes.weights), points), dtype=complex)
            for start in range(0, points, max(1, CHUNK // nodes.var.size)):
                part = slice(start, start + max(1, CHUNK // nodes.var.size))
                exponent = 0.5 * np.multiply.outer(nodes.var, (theta + 1j * t[part]) ** 2) - base
                each[:, part] = nodes.weights @ np.exp(exponent)
            ratio = ratio * (self._both(each) / self._both(norm)[:, None]) ** count
        return Level(theta, step, t, ratio, np.broadcast_to(log_top, len(ratio)))

    def density(self, grid: Array) -> tuple[Array, Array]:
        """Density and error.

        Shapes    grid (points,) -> two arrays (points,)
        """
        return self._invert(grid, tail=False)

    def cdf(self, grid: Array) -> tuple[Array, Array]:
        """Distribution function and error; below the mean to full relative accuracy where M(theta) is known."""
        tail, error = self._invert(grid, tail=True)
        return np.where(grid > self._centre, 1 - tail, tail), error

    def densities(self, grid: Array) -> Array:
        """Density by the rule, then in each set of draws.

        Shapes    grid (points,) -> (1 + sets, points)
        """
        return self._values(grid, tail=False)[0]

    def _invert(self, grid: Array, tail: bool) -> tuple[Array, Array]:
        """Density or tail, and its error.

        Shapes    grid (points,) -> two arrays (points,)
        """
        values, rounding = self._values(grid, tail)
        error = self.mixture.rule.error(values[1:]) + self.mixture.uncertainty(grid) * values[0]
        return values[0], error + rounding

    def _values(self, grid: Array, tail: bool) -> tuple[Array, Array]:
        """Density or tail, by the rule and then in each set of draws, and what rounding does to them.

        The bound exp(K(theta) - theta d) is least at the saddlepoint: the level where it is smallest is the nearest.
        Shapes    grid (points,) -> (1 + sets, points), (points,)
        """
        distance = np.abs(grid - self._centre)
        levels: list[Level] = []
        best = np.full(distance.shape, np.inf)
        choice = np.zeros(distance.shape, dtype=int)
        for number in range(MOST_LEVELS):
            level = self._level(number)
            if level is None:
                break
            bound = level.log_top[0] - level.theta * distance
            better = bound < best
            if levels and not better.any():
                break
            best, choice = np.where(better, bound, best), np.where(better, number, choice)
            levels.append(level)
        values = np.zeros((len(levels[0].ratio), distance.size))
        rounding = np.zeros(distance.size)
        for number, level in enumerate(levels):
            every = np.flatnonzero(choice == number)
            step = max(1, CHUNK // level.frequencies.size)
            for chosen in (every[start : start + step] for start in range(0, every.size, step)):
                found = level.tail(distance[chosen]) if tail else level.density(distance[chosen])
                values[:, chosen], rounding[chosen] = found
        return np.clip(values, 0.0, 0.5 if tail else None), rounding

"""Averages of Gaussians over quasi-random draws of p-ring, with replicates for the error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mixture"]

Array = NDArray[Any]
CHUNK = 1 << 20  # numbers held at once over a grid
BINS = 1024


@dataclass(frozen=True)
class Mixture:
    """Draws of conditional means and variances of real variables.

    `smoothed`: the variables are not Gaussian given the scores; the draws are values, densities kernel estimates.

    Shapes    mean, var (replicates, draws, *members)
    Accuracy  errors are 3 standard errors over the replicates plus the error of the covariances compiled
    """

    mean: Array
    var: Array
    relative_error: float = 0.0
    smoothed: bool = False

    @property
    def exact(self) -> bool:
        """Whether there is nothing to average over."""
        return int(self.mean.shape[1]) == 1

    def estimate(self, values: Array) -> tuple[Array, Array]:
        """Mean and error of per-draw values (replicates, draws, ...)."""
        means = values.mean(axis=1)
        return means.mean(axis=0), self._spread(means)

    def _spread(self, replicates: Array) -> Array:
        if self.exact:
            return np.zeros(replicates.shape[1:])
        return 3 * replicates.std(axis=0, ddof=1) / math.sqrt(replicates.shape[0])  # type: ignore[no-any-return]

    def moment(self, order: int) -> tuple[Array, Array]:
        """Central moment: E (m + sqrt(S) g - mu)**order, odd powers of g vanish."""
        centre = self.mean.mean(axis=(0, 1))
        if order == 1:
            return np.zeros_like(centre), np.zeros_like(centre)
        value, error = self.estimate(self._central(self.mean - centre, order))
        # the centre is itself an estimate: its error moves the moment by order * E(...)**(order - 1)
        _, shift = self.estimate(self.mean)
        if order > 2 and np.any(shift > 0):
            below, _ = self.estimate(self._central(self.mean - centre, order - 1))
            error = error + order * np.abs(below) * shift
        return value, error + 0.5 * order * self.relative_error * np.abs(value)

    def _central(self, offset: Array, order: int) -> Array:
        total = np.zeros_like(self.var)
        for k in range(0, order + 1, 2):
            double_factorial = math.prod(range(k - 1, 0, -2)) if k else 1
            total = total + math.comb(order, k) * double_factorial * self.var ** (k // 2) * offset ** (order - k)
        return total

    def standardised(self, order: int) -> tuple[Array, Array]:
        """E (y - mu)**order / var**(order / 2), its error from the ratio in each replicate."""
        offset = self.mean - self.mean.mean(axis=(0, 1))
        top = self._central(offset, order).mean(axis=1)
        bottom = self._central(offset, 2).mean(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = top.mean(axis=0) / bottom.mean(axis=0) ** (order / 2)  # nan for a constant
            # linearised: replicate deviations of numerator and denominator are correlated and partly cancel
            relative = top / top.mean(axis=0) - (order / 2) * bottom / bottom.mean(axis=0)
            error = np.abs(value) * self._spread(relative)
        return value, np.where(np.isnan(value), 0.0, error + order * self.relative_error * np.abs(value))

    def _kernel_variance(self, factor: float) -> Array:
        count = self.mean.shape[0] * self.mean.shape[1]
        low, high = np.quantile(self.mean, [0.25, 0.75], axis=(0, 1))
        spread = np.minimum(self.mean.std(axis=(0, 1)), np.where(high > low, (high - low) / 1.34, np.inf))
        bandwidth = factor * 0.9 * spread * count**-0.2  # Silverman 1986, equation (3.31), for factor 1
        return np.broadcast_to(bandwidth**2, self.mean.shape)

    def _over_grid(self, grid: Array, kernel: Any, var: Array) -> tuple[Array, Array]:
        """Average kernel((x - m), sd) over the draws for each grid point, in pieces of bounded size."""
        replicates, _draws = self.mean.shape
        means = np.empty((replicates, grid.size))
        step = max(1, CHUNK // max(1, grid.size))
        for r in range(replicates):
            centre, spread, weight = self._nodes(self.mean[r], var[r])
            total = np.zeros(grid.size)
            for start in range(0, len(centre), step):
                part = slice(start, start + step)
                total += weight[part] @ kernel(grid[None, :] - centre[part, None], np.sqrt(spread[part, None]))
            means[r] = total
        return means.mean(axis=0), self._spread(means)

    @staticmethod
    def _nodes(mean: Array, var: Array) -> tuple[Array, Array, Array]:
        """Fewer Gaussians for the same average: draws with one mean are binned by variance.

        Two nodes a bin, at its mean variance plus and minus its standard deviation, keep the first two moments of the
        variance in each bin exactly.  What is left is of third order in the bin's width over the variance.
        """
        if len(var) <= 4 * BINS or np.any(mean != mean[0]) or var.min() == var.max():
            return mean, var, np.full(len(mean), 1 / len(mean))
        low, high = float(var.min()), float(var.max())
        place = np.minimum(((var - low) * (BINS / (high - low))).astype(np.int64), BINS - 1)
        count = np.bincount(place, minlength=BINS)
        used = count > 0
        first = np.bincount(place, var, BINS)[used] / count[used]
        spread = np.zeros(BINS)
        spread[used] = first
        second = np.bincount(place, np.square(var - spread[place]), BINS)[used] / count[used]
        nodes = np.concatenate([first - np.sqrt(second), first + np.sqrt(second)])
        weight = np.tile(count[used] / (2 * len(var)), 2)
        return np.full(nodes.size, mean[0]), nodes, weight

    def density(self, grid: Array) -> tuple[Array, Array]:
        """Density at the grid points (one variable)."""

        def normal(x: Array, sd: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                value = np.exp(-0.5 * np.square(x / sd)) / (sd * math.sqrt(2 * math.pi))
            return np.where(sd > 0, value, np.where(x == 0, np.inf, 0.0))  # a constant has an atom

        if not self.smoothed:
            value, error = self._over_grid(grid, normal, self.var)
            return value, error + self.relative_error * value
        value, error = self._over_grid(grid, normal, self._kernel_variance(0.3))
        # narrow, because draws are many; the bias is of second order in the bandwidth: doubling shows three times of it
        coarse, _ = self._over_grid(grid, normal, self._kernel_variance(0.6))
        return value, error + np.abs(coarse - value)

    def cdf(self, grid: Array) -> tuple[Array, Array]:
        """Distribution function at the grid points (one variable); of draws where they are not Gaussian, no kernel."""
        from scipy.special import ndtr

        def normal(x: Array, sd: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                value = ndtr(x / sd)
            return np.where(sd > 0, value, x >= 0)

        value, error = self._over_grid(grid, normal, self.var)
        return value, error + self.relative_error * np.minimum(value, 1 - value)

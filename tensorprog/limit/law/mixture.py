"""Gaussian mixtures, held as sets of draws of conditional means and variances."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import TINY
from tensorprog.gaussian.several import standard_errors
from tensorprog.language.errors import NotCompiledError

__all__ = ["Joint", "Mixture", "Moment", "crossing"]


Array = NDArray[Any]
Kernel = Callable[[Array, Array], Array]
Moment = Callable[["Mixture", int], tuple[Array, Array]]  # `Mixture.moment` or `Mixture.standardised`
SUMMED = 1 << 12  # points of a grid of sums of variances
SECOND = 1e-6  # by which that moves second moments, at most
SUMS = 1 << 20  # draws that are added up, about, for the density of a sum over heads
CHUNK = 1 << 20  # numbers held at once over a grid
FAR = 39.0  # standard deviations beyond which a normal density is 0 and its distribution function 0 or 1
BINS = 1 << 11  # of variances, on a logarithmic scale
LEAST = 1e-14  # variances that far below the largest share a bin
ALIKE = 8  # draws that share a value are not due to chance
LONE = 0.02  # share of one draw in a variance that few draws decide
ROUNDING = 16 * float(np.finfo(np.float64).eps)  # of averages of products, relative to the sizes of the factors
HALVED = 40  # distances at which a quantile is looked for first


@dataclass(frozen=True)
class Mixture:
    """Variables that are Gaussian given draws, in sets of draws; of one draw in one set, Gaussian variables.

    `smoothed`: the variables are not Gaussian given the draws, which are values; densities are kernel estimates.

    `second` are their variances with errors, where they are known better than from the draws.

    Of a sum over `count` alike heads (see `heads`) the draws are of one, with the rest of the sum: a Gaussian whose
    mean and variance are `rest`.

    Shapes    mean, var (sets, draws, *members), relative_error and mean_error (*members) or one number for all
    Accuracy  errors are those over sets of draws plus the error of the covariances compiled
    """

    mean: Array
    var: Array
    relative_error: Array | float = 0.0  # of central second moments
    smoothed: bool = False
    mean_error: Array | float = 0.0
    count: int = 1
    rest: tuple[Array | float, Array | float] = (0.0, 0.0)
    second: tuple[Array, Array] | None = None

    @classmethod
    def gaussian(cls, mean: Array, var: Array, relative_error: Array | float = 0.0) -> Mixture:
        """Gaussian variables.

        Shapes    mean, var (*members)
        """
        return cls(np.asarray(mean)[None, None], np.asarray(var)[None, None], relative_error)

    @property
    def known(self) -> bool:
        """Whether the variables are Gaussian, without any draws."""
        return self.mean.shape[:2] == (1, 1)

    def member(self, key: tuple[int | slice, ...]) -> Mixture:
        """One member, or several."""
        place: Any = (slice(None), slice(None), *key)
        relative, off, *rest = (
            np.broadcast_to(x, self.mean.shape[2:])[key] for x in (self.relative_error, self.mean_error, *self.rest)
        )
        second = self.second and (self.second[0][key], self.second[1][key])
        return replace(self, mean=self.mean[place], var=self.var[place], relative_error=relative, mean_error=off,
                       rest=(rest[0], rest[1]), second=second)  # fmt: skip

    def summed(self) -> Mixture:
        """One variable that is a sum over heads: by its nodes, or draws of one head, added up in random order."""
        if self.count == 1 or self.nodes is not None:
            return self
        random, draws, means, variances = np.random.default_rng(0), self.mean.shape[1], list[Array](), list[Array]()
        for _ in range(max(1, SUMS // (self.count * self.mean.size))):
            order, shifts = random.permutation(draws), random.choice(draws, self.count, self.count > draws)
            picked = order[(np.arange(draws)[:, None] + shifts) % draws]
            means.append(self.mean[:, picked].sum(axis=-1) - (self.count - 1) * self.rest[0])
            variances.append(self.var[:, picked].sum(axis=-1) - (self.count - 1) * self.rest[1])
        mean, var = np.concatenate(means, axis=1), np.maximum(np.concatenate(variances, axis=1), 0.0)
        return replace(self, mean=mean, var=var, count=1)

    def within(self, deviations: float) -> float:
        """A distance from the mean that is so many standard deviations for the widest of the Gaussians."""
        return deviations * math.sqrt(self._widest) + float(np.abs(self.mean - self.mean.mean()).max())

    @property
    def _widest(self) -> float:
        return float((self.var if self.nodes is None else self.nodes[0]).max())

    # -- moments ------------------------------------------------------------------------------------------------

    def expected(self) -> tuple[Array, Array]:
        """Mean and error."""
        means = self.count * self.mean.mean(axis=1) - (self.count - 1) * self.rest[0]
        return means.mean(axis=0), standard_errors(means) + self.count * self.mean_error

    def _central(self, order: int) -> tuple[Array, Array]:
        """Central moments of all draws, and of each set around its own mean; those of a sum by its cumulants.

        Shapes    (*members), (sets, *members)
        """
        orders = range(order + 1)
        about = self._about[: order + 1] if order < len(self._about) else self._moments(order)
        moved = about[1]  # means of the sets from the mean of all
        own = [sum(math.comb(n, k) * about[k] * (-moved) ** (n - k) for k in range(n + 1)) for n in orders]
        whole = about.mean(axis=1)
        if self.count == 1:
            return whole[-1], np.asarray(own[-1])
        return _added(whole, self.count, self.rest[1]), _added(own, self.count, self.rest[1])

    @cached_property
    def _about(self) -> Array:
        return self._moments(4)

    def _moments(self, order: int) -> Array:
        """Averages over each set of moments about the mean of all draws, of orders from 0.

        Shapes    (1 + order, sets, *members)
        """
        first = self.mean[0, 0]  # means that are one number leave no rounding
        centre = first + np.mean([(mean - first).mean(axis=0) for mean in self.mean], axis=0)
        found = np.empty((1 + order, len(self.mean), *centre.shape))
        for k, (mean, var) in enumerate(zip(self.mean, self.var, strict=True)):
            offset, before, last = mean - centre, np.zeros_like(var), np.ones_like(var)
            found[0, k] = 1.0
            for n in range(1, order + 1):  # E (offset + sqrt(var) g)**n / n!, g standard normal
                before, last = last, (offset * last + var * before) / n
                found[n, k] = last.mean(axis=0) * math.factorial(n)
        return found

    def moment(self, order: int) -> tuple[Array, Array]:
        """Central moment and its error."""
        if order == 2 and self.second is not None:
            return self.second
        value, each = self._central(order)
        # beside a variance that is exactly 0 the error is one of size 1
        size = np.where((value == 0) & (np.asarray(self.relative_error) > 1), TINY, np.abs(value))
        error = standard_errors(each) + 0.5 * order * self.relative_error * size
        if order == 2:  # values that agree to rounding are one value
            constant = value + error <= np.square(ROUNDING * self.expected()[0])
            value, error = np.where(constant, 0.0, value), np.where(constant, 0.0, error)
        return value, error

    def standardised(self, order: int) -> tuple[Array, Array]:
        """E (y - mu)**order / var**(order / 2) and its error; nan for a constant."""
        if self.known:
            moment = 0.0 if order % 2 else float(math.prod(range(order - 1, 0, -2)))
            return np.where(self.var[0, 0] > 0, moment, np.nan), np.zeros(self.var.shape[2:])
        (value, each), (second, seconds) = self._central(order), self._central(2)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio, ratios = value / second ** (order / 2), each / seconds ** (order / 2)
            error = standard_errors(ratios) + order * self.relative_error * np.abs(ratio)
        return ratio, np.where(np.isnan(ratio), 0.0, error)

    def warn(self, name: str) -> None:
        """Warn where one draw carries more than LONE of the variance of a variable: its error may be larger."""
        draws = math.prod(self.mean.shape[:2])
        if self.known or draws < 1 / LONE**2:
            return
        squares = self.var + np.square(self.mean - self.mean.mean(axis=(0, 1)))
        total = squares.sum(axis=(0, 1))
        share = float(np.max(squares.max(axis=(0, 1)) / np.where(total > 0, total, 1.0), initial=0.0))
        if share > LONE:
            warnings.warn(
                f"{name}: one of {draws:,} draws carries {share:.0%} of its variance, "
                "so that its error may be larger than it is said to be",
                stacklevel=2,
            )

    # -- one variable -------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> tuple[Array, Array, float] | None:
        """One variable as few Gaussians: variances, weights in each set, width of the bins; None if means vary."""
        if np.any(self.mean != self.mean[0, 0]):
            return None
        return binned(self.var) if self.count == 1 else _convolved(self.var, self.count, float(self.rest[1]))

    @cached_property
    def _order(self) -> Array:
        """The draws of each set by their means, of one variable."""
        return np.asarray(np.argsort(self.mean, axis=1))

    def _averaged(self, kernel: Kernel, grid: Array, added: float = 0.0, above: float = 0.0) -> Array:
        """Averages in each set of kernel(x - mean, sd), 0 far below and `above` far above; `added` to all variances.

        Shapes    grid (points,) -> (sets, points)
        """
        result = np.zeros((len(self.mean), grid.size))
        if self.nodes is not None:
            var, weights, _ = self.nodes
            for part in _pieces(len(var), grid.size):
                result += weights[:, part] @ kernel(grid - self.spread[0], np.sqrt(var[part, None] + added))
            return result
        sd = np.sqrt(self.var + added)
        for r, order in enumerate(self._order):
            for part in _pieces(order.size, grid.size):
                centre, width = self.mean[r, order[part]], sd[r, order[part]]
                near = (centre[0] - FAR * width.max() <= grid) & (grid <= centre[-1] + FAR * width.max())
                result[r, near] += kernel(grid[near] - centre[:, None], width[:, None]).sum(axis=0)
                result[r, ~near & (grid > centre[-1])] += centre.size * above
        return np.asarray(result / self.mean.shape[1])

    @property
    def atoms(self) -> bool:
        """Whether one variable takes some value with positive probability."""
        still = self.mean[self.var == 0]
        return bool(still.size) and bool(np.ptp(still) == 0)

    def densities(self, grid: Array) -> Array:
        """Density of one variable, of all draws and then in each set.

        Shapes    grid (points,) -> (1 + sets, points)
        """
        values = self._averaged(_normal_density, grid)
        return np.concatenate([values.mean(axis=0)[None], values])

    def density(self, grid: Array) -> tuple[Array, Array]:
        """Density of one variable.

        Raises    NotCompiledError for draws of which many share a value
        """
        if not self.smoothed:
            values = self._averaged(_normal_density, grid)
            return self._stated(values, grid, values.mean(axis=0))
        if np.unique(self.mean, return_counts=True)[1].max() >= ALIKE:
            raise NotCompiledError(
                "a variable that takes some values with positive probability has no density: ask law.cdf"
            )
        return self._kernel(grid)

    def _kernel(self, grid: Array) -> tuple[Array, Array]:
        """A kernel estimate of the density from draws.

        Bandwidths are narrow, because draws are many; the bias is of second order in them: doubling shows three times
        of it.
        """
        values = self._averaged(_normal_density, grid, self._kernel_variance(0.3))
        coarse = self._averaged(_normal_density, grid, self._kernel_variance(0.6)).mean(axis=0)
        value = values.mean(axis=0)
        return value, standard_errors(values) + np.abs(coarse - value)

    def _kernel_variance(self, factor: float) -> float:
        low, high = np.quantile(self.mean, [0.25, 0.75])
        width = min(self.mean.std(), (high - low) / 1.34 if high > low else np.inf)
        return float((factor * 0.9 * width * self.mean.size**-0.2) ** 2)  # Silverman 1986, equation (3.31)

    def cdf(self, grid: Array) -> tuple[Array, Array]:
        """Distribution function of one variable; of draws where they are not Gaussian."""
        values = self._averaged(_normal_cdf, grid, above=1.0)
        below = values.mean(axis=0)
        return self._stated(values, grid, np.minimum(below, 1 - below))

    def _stated(self, values: Array, grid: Array, scale: Array) -> tuple[Array, Array]:
        """Value and error of densities or probabilities (sets, points) of that size; an atom has infinite density."""
        value = values.mean(axis=0)
        with np.errstate(invalid="ignore", over="ignore"):
            error = standard_errors(values) + np.where(scale > 0, self.uncertainty(grid) * scale, 0.0)
        return value, np.where(np.isfinite(value), error, 0.0)

    def uncertainty(self, grid: Array) -> Array:
        """Relative error of densities and tails from the errors of variances and means, and from binning.

        What a bin does not keep is the second order in the change of log V: up to 1 + d**2 / (2 V) times that change.
        """
        mean, variance = self.spread
        scale, width = max(variance, TINY), 0.0 if self.nodes is None else self.nodes[2]
        away, moved = np.square(grid - mean) / scale, float(self.mean_error) / math.sqrt(scale)
        binning = (width * (1 + 0.5 * away * scale / max(self._widest, TINY))) ** 2 / 8
        return np.asarray(float(self.relative_error) * (1 + away) + moved * (1 + np.sqrt(away)) + binning)

    @cached_property
    def spread(self) -> tuple[float, float]:
        """Mean and variance of one variable."""
        return float(self.expected()[0]), float(self.moment(2)[0])


def crossing(function: Callable[[Array], Array], levels: Array, centre: float, reach: float) -> Array:
    """Where an increasing function passes levels, within `reach` of a centre.

    Distances from the centre that halve give brackets for all levels together; then each is narrowed down.

    Shapes    levels (numbers,)
    """
    from scipy.optimize import elementwise

    def beyond(y: Array, /, *level: Any, **_: Any) -> Array:
        return np.asarray(function(y.reshape(-1)).reshape(y.shape) - level[0])

    away = reach * 0.5 ** np.arange(HALVED)
    marks = np.concatenate([centre - away, [centre], centre + away[::-1]])
    at = np.maximum.accumulate(function(marks))
    above = np.clip(np.searchsorted(at, levels), 1, marks.size - 1)
    low, high = marks[above - 1], marks[above]
    inside = (at[above - 1] < levels) & (levels < at[above])
    result = np.where(levels <= at[above - 1], low, high)
    if inside.any():
        found: Any = elementwise.find_root(
            beyond,
            (low[inside], high[inside]),
            args=(levels[inside],),
            tolerances={"xatol": 8e-22 * reach, "xrtol": 4e-16, "fatol": 0.0, "frtol": 0.0},
        )
        result[inside] = found.bracket[1]
    return result


def _added(moments: Sequence[Array], count: int, rest: Array | float) -> Array:
    """The last of the central moments, from order 0 on, of a sum of `count` variables that share a variance.

    Cumulants of the sum are `count` times those of one, but for what they share.
    """
    one, many = moments, list[Any]([1.0, 0.0])
    alone, total = list[Any]([0.0, 0.0]), list[Any]([0.0, 0.0])  # cumulants
    for n in range(2, len(one)):
        alone.append(one[n] - sum(math.comb(n - 1, k - 1) * alone[k] * one[n - k] for k in range(2, n - 1)))
        total.append(count * alone[n] - ((count - 1) * rest if n == 2 else 0.0))
        many.append(total[n] + sum(math.comb(n - 1, k - 1) * total[k] * many[n - k] for k in range(2, n - 1)))
    return np.asarray(many[len(one) - 1])


def _pieces(count: int, width: int) -> list[slice]:
    step = max(1, CHUNK // max(1, width))
    return [slice(start, start + step) for start in range(0, count, step)]


def _normal_density(x: Array, sd: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = np.exp(-0.5 * np.square(x / sd)) / (sd * math.sqrt(2 * math.pi))
    return value if np.all(sd > 0) else np.where(sd > 0, value, np.where(x == 0, np.inf, 0.0))  # a constant has an atom


def _normal_cdf(x: Array, sd: Array) -> Array:
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        value = ndtr(x / sd)
    return np.where(sd > 0, value, x >= 0)


# ---- many Gaussians of one mean as few of them ----------------------------------------------------------------------


def binned(var: Array, weights: Array | None = None) -> tuple[Array, Array, float]:
    """Nodes and their weights in each set: the means of bins that are even in log V, over as many decades as matter.

    V = 0 keeps a node of its own.
    Shapes    var (sets, draws) -> (nodes,), (sets, nodes), width of the bins in log V
    """
    sets, high = len(var), float(var.max())
    if var.min() == high:
        return np.array([high]), np.ones((sets, 1)), 0.0
    shares = np.ones(var.shape) if weights is None else weights
    low = max(float(np.min(var, where=var > 0, initial=high)), LEAST * high)
    width = math.log(high / low) / BINS
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(var > 0, np.clip(np.log(var / low) / width, 0, BINS - 1), BINS).astype(np.int64)
    counts = np.stack([np.bincount(own, share, BINS + 1) for own, share in zip(at, shares, strict=True)])
    used = counts.sum(axis=0) > 0
    means = np.bincount(at.reshape(-1), (shares * var).reshape(-1), BINS + 1)[used] / counts.sum(axis=0)[used]
    return means, counts[:, used] / counts.sum(axis=1, keepdims=True), width


def _convolved(var: Array, count: int, rest: float) -> tuple[Array, Array, float] | None:
    """The same of the sum of `count` independent variances that share one, on an even grid; None if it is too coarse.

    Shapes    as for `binned`
    """
    low, high = float(var.min()), float(var.max())
    points = max(2, SUMMED // count)
    step = max((high - low) / points, TINY)
    if count * step**2 > SECOND * (count * float(var.mean())) ** 2:
        return None
    left = ((var - low) / step).astype(np.int64)
    share = (var - low) / step - left
    pairs = zip(left, share, strict=True)
    each = [np.bincount(k, 1 - w, points + 2) + np.bincount(k + 1, w, points + 2) for k, w in pairs]
    size = count * (points + 1) + 1
    length = 1 << size.bit_length()
    total = np.fft.irfft(np.fft.rfft(np.array(each) / var.shape[1], length) ** count, length)[:, :size]
    used = total.max(axis=0) > ROUNDING
    nodes = count * low - (count - 1) * rest + step * np.flatnonzero(used)
    return np.maximum(nodes, 0.0), np.maximum(total[:, used], 0.0), step * math.sqrt(count) / max(nodes[0], TINY)


@dataclass(frozen=True)
class Joint:
    """Draws of the conditional means and covariances of d variables.

    Shapes    mean (replicates, draws, d), cov (replicates, draws, d, d)
    Accuracy  errors are those of `standard_errors` over replicates plus the error of the covariances compiled
    """

    mean: Array
    cov: Array
    relative_error: float = 0.0

    @property
    def size(self) -> int:
        """Number of variables, d."""
        return int(self.mean.shape[-1])

    def _averaged(self, function: Callable[[Array, Array], Array], points: Array) -> tuple[Array, Array]:
        """Average function(x - mean, draws) over the draws of each replicate, in pieces of bounded size.

        `function` takes differences (draws, points, d) and the numbers of the draws -> (draws, points)
        """
        replicates, draws, d = self.mean.shape
        result = np.zeros((replicates, len(points)))
        step = max(1, CHUNK // max(1, len(points) * d))
        for r in range(replicates):
            for start in range(0, draws, step):
                chosen = np.arange(start, min(draws, start + step))
                result[r] += function(points - self.mean[r, chosen, None], r * draws + chosen).sum(axis=0)
        values = result / draws
        value = values.mean(axis=0)
        return value, standard_errors(values)

    def density(self, points: Array) -> tuple[Array, Array]:
        """Joint density.

        Shapes    points (..., d) -> two arrays (...)
        Raises    LinAlgError where a conditional covariance is singular: there is no density
        """
        d = self.size
        flat = self.cov.reshape(-1, d, d)
        scale = np.sqrt(np.einsum("nkk->nk", flat))
        safe = np.where(scale > 0, scale, 1.0)
        values, vectors = np.linalg.eigh(flat / safe[:, :, None] / safe[:, None, :])
        if np.any(values < 1e-12):
            raise np.linalg.LinAlgError("singular")
        whiten = np.swapaxes(vectors / np.sqrt(values)[:, None, :], 1, 2) / safe[:, None, :]
        norm = np.exp(-0.5 * np.log(values).sum(axis=1)) / safe.prod(axis=1) / (2 * math.pi) ** (d / 2)

        def normal(offset: Array, number: Array, moved: bool = False) -> Array:
            """The densities, or what a relative change of the covariance does: times (q + d) / 2, q the exponent."""
            square = np.square(offset @ np.swapaxes(whiten[number], 1, 2)).sum(axis=-1)
            return np.asarray((0.5 * (square + d) if moved else 1.0) * norm[number, None] * np.exp(-0.5 * square))

        value, error = self._averaged(normal, points.reshape(-1, d))
        if self.relative_error:
            moved = self._averaged(partial(normal, moved=True), points.reshape(-1, d))[0]
            error = error + 2 * self.relative_error * moved
        return value.reshape(points.shape[:-1]), error.reshape(points.shape[:-1])

    def moment(self, orders: Sequence[int]) -> tuple[float, float]:
        """E of the product of (Y_k - E Y_k)**orders[k], by Isserlis' theorem for each draw."""
        centred = self.mean - self.mean.mean(axis=(0, 1))
        known: dict[tuple[int, ...], Array] = {(0,) * self.size: np.ones(self.mean.shape[:2])}

        def gaussian(powers: tuple[int, ...]) -> Array:
            # E[y_k q(y)] = m_k E[q] + sum over l of C_kl E[dq / dy_l]
            if powers not in known:
                k = next(k for k, p in enumerate(powers) if p)
                fewer = tuple(p - (m == k) for m, p in enumerate(powers))
                total = centred[..., k] * gaussian(fewer)
                for m, p in enumerate(fewer):
                    if p:
                        least = tuple(q - (n == m) for n, q in enumerate(fewer))
                        total = total + p * self.cov[..., k, m] * gaussian(least)
                known[powers] = total
            return known[powers]

        values = gaussian(tuple(orders)).mean(axis=1)
        value, total = float(values.mean()), sum(orders)
        size = 0.0
        if self.relative_error:  # that of the product of the variables' own sizes: the value itself may be near 0
            even = total + total % 2
            own = [float(gaussian(tuple(even * (m == k) for m in range(self.size))).mean()) for k in range(self.size)]
            size = math.prod(max(x, 0.0) ** (k / max(even, 1)) for x, k in zip(own, orders, strict=True))
        return value, float(standard_errors(values) + 0.5 * total * self.relative_error * size)

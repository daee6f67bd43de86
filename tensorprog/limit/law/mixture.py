"""Sums of independent Gaussian mixtures, held as sets of weighted draws of conditional means and variances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import TINY
from tensorprog.limit.law.averaging import Averaging
from tensorprog.limit.law.panels import Panels

__all__ = ["Mixture", "Nodes", "Summand", "binned", "crossing"]

Array = NDArray[Any]
Kernel = Callable[[Array, Array], Array]
CHUNK = 1 << 20  # numbers held at once over a grid
FAR = 39.0  # standard deviations beyond which a normal density is 0 and its distribution function 0 or 1
UNSEEN = 1e-30  # weight of draws that no density sees
BINS = 2048  # of variances, on a logarithmic scale
LEAST = 1e-14  # variances that far below the largest share a bin
MANY = 4096  # draws
ALIKE = 8  # draws that share a value are not due to chance
LONE, MISSED = 0.02, 14.0  # share of one draw in a density from which few decide; draws of what may be missed
MOST_FREQUENCY = 1e6
FREQUENCIES = (1.0, 3.0, 9.0)  # in units of 1 / standard deviation
HALVED = 40  # distances at which a quantile is looked for first


@dataclass(frozen=True)
class Summand:
    """Independent summands of a sum, `count` copies for each member of the axis of heads.

    Shapes    mean, var (sets, draws, heads, *members), weights (sets, draws)
    """

    mean: Array
    var: Array
    weights: Array
    count: int = 1
    panels: Panels | None = None  # of one score: they serve densities better than nodes for moments

    @cached_property
    def seen(self) -> Array:
        """Draws that matter for anything but moments.

        Shapes    (sets, draws)
        """
        return self.weights > UNSEEN

    def average(self, values: Array) -> Array:
        """Averages of values (sets, draws, ...) over the draws of each set."""
        return np.stack([np.tensordot(w, v, 1) for w, v in zip(self.weights, values, strict=True)])


@dataclass(frozen=True)
class Mixture:
    """Variables that are sums of independent Gaussian mixtures, and of a Gaussian N(mean, var) beside them.

    `smoothed`: the variables are not Gaussian given the scores; the draws are values, densities kernel estimates.

    Shapes    mean, var (*members), relative_error and mean_error the same or one number for all
    Accuracy  errors are those of the rule over sets of draws plus the error of the covariances compiled
    """

    summands: tuple[Summand, ...]
    mean: Array
    var: Array
    relative_error: Array | float = 0.0  # of central second moments
    smoothed: bool = False
    rule: Averaging = field(default_factory=Averaging)
    mean_error: Array | float = 0.0

    @property
    def factors(self) -> int:
        """Number of independent summands that are not Gaussian."""
        return sum(s.count * s.mean.shape[2] for s in self.summands)

    @cached_property
    def _means(self) -> Array:
        """Means of the whole in each set.

        Shapes    (sets, *members)
        """
        return np.asarray(self.mean + sum(s.count * s.average(s.mean).sum(axis=1) for s in self.summands))

    def expected(self) -> tuple[Array, Array]:
        """Mean and error."""
        means = np.reshape(self._means, (-1, *self.mean.shape))
        return self.rule.value(means), self.rule.error(means) + self.mean_error

    @property
    def mixture(self) -> Mixture:
        """The mixture itself; sums of several are put together by `Convolution`."""
        return self

    @property
    def reach(self) -> float:
        """A distance from the mean beyond which there is no probability worth a number, of one variable."""
        return self.within(38.0)

    def within(self, deviations: float) -> float:
        """A distance from the mean that is so many standard deviations for the widest of the Gaussians."""
        largest, shift = float(self.var), 0.0
        for s in self.summands:
            var, mean, weights = s.var[s.seen], s.mean[s.seen], s.weights[s.seen]
            largest += s.count * float(var.max(axis=0).sum())
            centre = np.tensordot(weights, mean, 1) / weights.sum()
            shift += s.count * float(np.abs(mean - centre).max(axis=0).sum())
        return deviations * math.sqrt(largest) + shift

    def member(self, key: tuple[int | slice, ...]) -> Mixture:
        """One member, or several."""
        place: Any = (Ellipsis, *key)
        own = tuple(
            Summand(s.mean[place], s.var[place], s.weights, s.count, s.panels and s.panels.member(key))
            for s in self.summands
        )
        errors = (np.broadcast_to(each, self.mean.shape)[key] for each in (self.relative_error, self.mean_error))
        return Mixture(own, self.mean[key], self.var[key], next(errors), self.smoothed, self.rule, next(errors))

    # -- moments ------------------------------------------------------------------------------------------------

    def _series(self, order: int) -> Array:
        """Coefficients of E exp(t (Y - E Y)) up to t**order: by the rule, then of each set of draws.

        The series of independent summands multiply.
        Shapes    (1 + sets, order + 1, *members)
        """
        gaussian = [np.zeros_like(self.var) if k % 2 else (self.var / 2) ** (k // 2) / math.factorial(k // 2)
                    for k in range(order + 1)]  # fmt: skip
        total = np.stack(gaussian)[None]
        for summand in self.summands:
            offset = summand.mean - self.rule.value(summand.average(summand.mean))
            own = np.stack([*map(summand.average, _raw(offset, summand.var, order))], axis=1)
            both = np.concatenate([self.rule.value(own)[None], own])
            both = both / both[:, :1]  # a rounding of 1 would be raised to the number of copies
            total = _product(total, _across(_power(both, summand.count)))
        # each set around its own mean
        shift = total[:, 1] if order else total[:, 0] * 0
        recentring = np.stack([(-shift) ** k / math.factorial(k) for k in range(order + 1)], axis=1)
        return _product(total, recentring)

    def moment(self, order: int) -> tuple[Array, Array]:
        """Central moment and its error."""
        top = self._series(order)[:, order] * math.factorial(order)
        value = top[0]
        # beside a variance that is exactly 0 the error is one of size 1
        size = np.where((value == 0) & (np.asarray(self.relative_error) > 1), TINY, np.abs(value))
        return value, self.rule.error(top[1:]) + 0.5 * order * self.relative_error * size

    def standardised(self, order: int) -> tuple[Array, Array]:
        """E (y - mu)**order / var**(order / 2) and its error; nan for a constant."""
        if not self.summands:  # Gaussian
            moment = 0.0 if order % 2 else float(math.prod(range(order - 1, 0, -2)))
            return np.where(self.var > 0, moment, np.nan), np.zeros(self.var.shape)
        series = self._series(order)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = series[:, order] * math.factorial(order) / (2 * series[:, 2]) ** (order / 2)
            error = self.rule.error(ratio[1:]) + order * self.relative_error * np.abs(ratio[0])
        return ratio[0], np.where(np.isnan(ratio[0]), 0.0, error)

    def disagreement(self) -> float:
        """The largest error, by the rule, of the characteristic functions of the summands at a few frequencies, up to
        those that narrow conditional Gaussians still have where means move.

        They see where densities and distribution functions are not smooth in the scores, which moments may not.
        """
        worst = 0.0
        for summand in self.summands:
            centre = self.rule.value(summand.average(summand.mean))
            offset = summand.mean - centre
            scale = np.sqrt(self.rule.value(summand.average(summand.var + offset**2)))
            scale = np.where(scale > 0, scale, 1.0)
            own = np.sort((summand.var[0] + self.var).reshape(len(summand.var[0]), -1).max(axis=1))
            narrow = math.sqrt(float(own[len(own) // 4])) if summand.mean.size and np.ptp(offset) else math.inf
            top = float(scale.max()) / narrow if narrow > 0 else MOST_FREQUENCY
            finer = np.geomspace(FREQUENCIES[-1], max(min(2 * top, MOST_FREQUENCY), FREQUENCIES[-1]), 5)[1:]
            for t in dict.fromkeys((*FREQUENCIES, *finer)):
                s = t / scale
                real = np.exp(-0.5 * s**2 * summand.var)
                values = summand.average(real * np.cos(s * offset) if offset.any() else real)
                worst = max(worst, float(np.max(self.rule.error(values), initial=0.0)))
        return worst

    # -- one variable -------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> list[tuple[Nodes, int]] | None:
        """The summands of one variable as few Gaussians each, with the number of copies; None if means vary.

        Draws with one mean are binned by variance.  Two nodes a bin, at its mean variance plus and minus its standard
        deviation, keep the first two moments of the variance in each bin: what is left is of third order in the bin's
        width over the variance.
        """
        found = []
        for s in self.summands:
            for h in range(s.mean.shape[2]):
                mean, var = s.mean[..., h], s.var[..., h]
                if np.any(mean[s.weights > 0] != mean[0, 0]):
                    return None
                found.append((grouped(float(mean[0, 0]), var, s.weights, self.rule), s.count))
        return found

    @cached_property
    def _order(self) -> Array:
        """The draws of each set by their means, of one variable with one summand."""
        return np.asarray(np.argsort(self.summands[0].mean[..., 0], axis=1))

    def _averaged(self, kernel: Kernel, grid: Array, added: Array, above: float = 0.0) -> Array:
        """Averages in each set of kernel(x - mean, sd), 0 far below and `above` far above; `added` to all variances.

        Shapes    grid (points,) -> (sets, points)
        """
        if not self.summands:
            return kernel(grid - self.mean, np.sqrt(self.var + added) + 0 * grid)[None]
        assert self.factors == 1
        found = self.nodes
        if found is not None and np.ndim(added) == 0:
            nodes = found[0][0]
            result = np.zeros((len(nodes.weights), grid.size))
            for part in _pieces(len(nodes.mean), grid.size):
                centre, sd = nodes.mean[part, None] + self.mean, np.sqrt(nodes.var[part, None] + self.var + added)
                result += np.einsum("rp,pg->rg", nodes.weights[:, part], kernel(grid - centre, sd))
            return result
        own = self.summands[0]
        mean, sd = own.mean[..., 0] + self.mean, np.sqrt(own.var[..., 0] + self.var + added)
        result = np.zeros((len(mean), grid.size))
        for r, order in enumerate(self._order):
            real = order[own.weights[r, order] != 0]
            for part in _pieces(real.size, grid.size):
                weights, centre, width = (a[r, real[part]] for a in (own.weights, mean, sd))
                low, high = centre[0] - FAR * width.max(), centre[-1] + FAR * width.max()
                near = (low <= grid) & (grid <= high)
                result[r, near] += np.einsum("p,pg->g", weights, kernel(grid[near] - centre[:, None], width[:, None]))
                result[r, grid > high] += weights.sum() * above
        return result

    @property
    def panels(self) -> Panels | None:
        """Those of the one score behind one variable, if there is no more than that."""
        if self.factors != 1 or self.summands[0].panels is None:
            return None
        return self.summands[0].panels.member((0,))

    @property
    def atoms(self) -> bool:
        """Whether one variable takes some value with positive probability."""
        if self.panels is not None:
            return self.panels.atoms(float(self.var))
        if self.factors != 1 or self.var:
            return False
        own = self.summands[0]
        still = (own.var[..., 0] == 0) & (own.weights > 0)
        return bool(still.any()) and bool(np.ptp(own.mean[still][..., 0]) == 0)

    def shifted(self, base: float) -> Mixture:
        """The variable less a number."""
        return replace(self, mean=self.mean - base)

    def densities(self, grid: Array) -> Array:
        """Density of one variable with at most one summand, by the rule and then in each set of draws.

        Shapes    grid (points,) -> (1 + sets, points)
        """
        if self.panels is not None:  # the second of two sets is off by its error
            value, error = self.panels.averaged(grid, float(self.mean), float(self.var), False)
            return np.stack([value, value, value + error / 3])
        values = self._averaged(_normal_density, grid, np.zeros(()))
        return np.concatenate([self.rule.value(values)[None], values])

    def density(self, grid: Array) -> tuple[Array, Array]:
        """Density of one variable with at most one summand."""
        if self.panels is not None:
            value, error = self.panels.averaged(grid, float(self.mean), float(self.var), False)
            return value, np.where(np.isfinite(value), error + self._off(grid, value), error)
        if not self.smoothed:
            values = self._averaged(_normal_density, grid, np.zeros(()))
            value, error = self._stated(values, grid, self.rule.value(values))
            return value, self._lone(grid, value, error)
        value, error = self._still.apart._kernel(grid)
        alike = np.isin(grid, self._still.values)
        return np.where(alike, np.inf, value), np.where(alike, 0.0, error)

    @cached_property
    def _still(self) -> _Still:
        """Values that many draws of one variable share, which have infinite density, and the other draws."""
        if not self.summands:
            return _Still(np.zeros(0), self)
        own = self.summands[0]
        values, where, counts = np.unique(own.mean, return_inverse=True, return_counts=True)
        alike = counts >= ALIKE
        if not alike.any():
            return _Still(values[alike], self)
        others = replace(own, weights=np.where(alike[where].reshape(own.weights.shape), 0.0, own.weights))
        return _Still(values[alike] + float(self.mean), replace(self, summands=(others,)))

    def _kernel(self, grid: Array) -> tuple[Array, Array]:
        """A kernel estimate of the density from draws."""
        if self.summands and not self.summands[0].weights.any():
            return np.zeros(grid.shape), np.zeros(grid.shape)
        values = self._averaged(_normal_density, grid, self._kernel_variance(0.3))
        # narrow, because draws are many; the bias is of second order in the bandwidth: doubling shows three times of it
        coarse = self.rule.value(self._averaged(_normal_density, grid, self._kernel_variance(0.6)))
        value = self.rule.value(values)
        return value, self.rule.error(values) + np.abs(coarse - value)

    def _lone(self, grid: Array, value: Array, error: Array) -> Array:
        """Errors of densities, where few draws decide, as large as what the others may have missed.

        Beside means that move that is the kernel estimate, which also shows what draws miss that are narrower than
        the way from one to the next; at a distance from a mean a normal density is at most 1 / (4 distance).
        """
        if self.rule.orders or not self.summands or self.summands[0].weights.size < MANY:
            return error
        own = self.summands[0]
        mean, sd = own.mean[..., 0] + self.mean, np.sqrt(own.var[..., 0] + self.var)
        weights = own.weights / len(own.weights)
        still = np.ptp(mean[own.seen]) == 0
        low, high = mean[own.seen].min(), mean[own.seen].max()
        share = np.zeros(grid.shape)  # one draw of so large a share shows in the error over replicates
        typical = float(weights[weights > 0].mean())
        with np.errstate(divide="ignore", invalid="ignore"):
            for k, y in enumerate(grid):
                if not np.isfinite(value[k]) or (not low <= y <= high and not still) or error[k] < 0.01 * value[k]:
                    continue
                each = weights * _normal_density(y - mean, sd)
                largest = np.unravel_index(np.argmax(each), each.shape)
                light = weights[largest] <= 10 * typical
                share[k] = 1.0 if value[k] == 0 and not still else (each[largest] / value[k] if light else 0.0)
            alone = share > LONE
            if still:
                if not alone.any():
                    return error
                unseen = MISSED / max(1, int(own.seen.sum()))
                return np.where(alone, error + value + unseen * 0.25 / np.abs(grid - mean.flat[0]), error)
        result = np.array(error)
        # draws that are narrower than the way from one to the next are mostly missed
        narrow = bool((sd[own.seen] ** 2 < self._kernel_variance(0.3)).any())
        asked = np.isfinite(value) & (alone | (narrow & (low <= grid) & (grid <= high)))
        if asked.any():
            rough, wrong = self._kernel(grid[asked])
            apart = np.abs(rough - value[asked]) + wrong
            few = np.where(alone[asked], rough, 0.0)
            result[asked] += np.where((few > 0) | (apart > 2 * wrong + error[asked]), apart + few, 0.0)
        return result

    def cdf(self, grid: Array) -> tuple[Array, Array]:
        """Distribution function of one variable with at most one summand; of draws where they are not Gaussian."""
        if self.panels is not None:
            value, error = self.panels.averaged(grid, float(self.mean), float(self.var), True)
            return value, error + self._off(grid, np.minimum(value, 1 - value))
        values = self._averaged(_normal_cdf, grid, np.zeros(()), 1.0)
        below = self.rule.value(values)
        return self._stated(values, grid, np.minimum(below, 1 - below))

    def _stated(self, values: Array, grid: Array, scale: Array) -> tuple[Array, Array]:
        """Value and error of densities or probabilities (sets, points) of that size; an atom has infinite density."""
        value = self.rule.value(values)
        with np.errstate(invalid="ignore"):
            error = self.rule.error(values) + self._off(grid, scale)
        return value, np.where(np.isfinite(value), error, 0.0)

    def _off(self, grid: Array, size: Array) -> Array:
        """`uncertainty` of densities or probabilities of that size; none of what is 0 in floating point."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(np.where(size > 0, self.uncertainty(grid) * size, 0.0))

    def uncertainty(self, grid: Array) -> Array:
        """Relative error of densities and tails from the errors of variances and means, and from binning."""
        mean, variance = self.spread
        distance = grid - mean
        scale = max(variance, 1e-300)
        away = np.square(distance) / scale
        moved = float(self.mean_error) / math.sqrt(scale)
        total = float(self.relative_error) * (1 + away) + moved * (1 + np.sqrt(away))
        found = self.nodes or []
        largest = float(self.var) + sum(count * float(nodes.var.max()) for nodes, count in found)
        for nodes, count in found:
            total = total + count * nodes.error(distance, largest)
        return np.asarray(total)

    @cached_property
    def spread(self) -> tuple[float, float]:
        """Mean and variance of one variable."""
        return float(self.expected()[0]), float(self.moment(2)[0])

    def _kernel_variance(self, factor: float) -> Array:
        mean = np.reshape(self.mean, (1,))
        if self.summands:
            mean = self.summands[0].mean[self.summands[0].weights > 0]
        low, high = np.quantile(mean, [0.25, 0.75])
        width = min(mean.std(), (high - low) / 1.34 if high > low else np.inf)
        silverman = 0.9 * width * len(mean) ** -0.2  # Silverman 1986, equation (3.31)
        return np.asarray((factor * silverman) ** 2)


@dataclass(frozen=True)
class _Still:
    """Values that a variable takes with positive probability, and its law but for them."""

    values: Array
    apart: Mixture


def crossing(function: Callable[[Array], Array], levels: Array, centre: float, reach: float) -> Array:
    """Where an increasing function passes levels, within `reach` of a centre: the upper end of the last bracket.

    Distances from the centre that halve give brackets for all levels together; then each is narrowed down.

    Shapes    levels (numbers,)
    Source    Chandrupatla 1997: inverse quadratic interpolation where it is safe, else bisection
    """
    away = reach * 0.5 ** np.arange(HALVED)
    marks = np.concatenate([centre - away, [centre], centre + away[::-1]])
    at = np.maximum.accumulate(function(marks))
    above = np.clip(np.searchsorted(at, levels), 1, marks.size - 1)
    a, b, fa, fb = marks[above], marks[above - 1], at[above] - levels, at[above - 1] - levels
    c, fc = a.copy(), fa.copy()
    t = np.full(a.shape, 0.5)
    left = np.arange(levels.size)
    for _ in range(200):
        best = np.where(np.abs(fa) < np.abs(fb), a, b)[left]
        width = np.abs(b - a)[left]
        tolerance = 4e-16 * np.maximum(np.abs(best), reach * 2e-6)
        least = np.where(width > 0, tolerance / np.maximum(width, 1e-300), 0.5)
        some = (width > 2 * tolerance) & (fa[left] != 0)
        left, least = left[some], least[some]
        if not left.size:
            break
        share = np.clip(t[left], np.minimum(least, 0.5), np.maximum(1 - least, 0.5))
        x = a[left] + share * (b - a)[left]
        fx = function(x) - levels[left]
        same = (fx >= 0) == (fa[left] >= 0)
        c[left], fc[left] = np.where(same, a[left], b[left]), np.where(same, fa[left], fb[left])
        b[left], fb[left] = np.where(same, b[left], a[left]), np.where(same, fb[left], fa[left])
        a[left], fa[left] = x, fx
        with np.errstate(divide="ignore", invalid="ignore"):
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            safe = (1 - np.sqrt(1 - xi) < phi) & (phi < np.sqrt(xi))
            t = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = np.where(safe & np.isfinite(t), t, 0.5)
    return np.where(fa == 0, a, np.where(fa > 0, a, b))


def _raw(mean: Array, var: Array, order: int) -> Iterator[Array]:
    """E (m + sqrt(v) g)**k / k! for k from 0 to order, g standard normal; terms of one k have one sign."""
    before, last = np.zeros_like(var), np.ones_like(var)
    yield last
    for k in range(1, order + 1):
        before, last = last, (mean * last + var * before) / k
        yield last


def _product(first: Array, second: Array) -> Array:
    """Product of two power series, truncated.

    Shapes    (..., order + 1, *members) along axis 1
    """
    count = first.shape[1]
    terms = [sum(first[:, k] * second[:, m - k] for k in range(m + 1)) for m in range(count)]
    return np.stack(np.broadcast_arrays(*terms), axis=1)


def _across(series: Array) -> Array:
    """Product over the axis of heads, in halves.

    Shapes    (..., order + 1, heads, *members) -> (..., order + 1, *members)
    """
    while series.shape[2] > 1:
        half = series.shape[2] // 2
        paired = _product(series[:, :, :half], series[:, :, half : 2 * half])
        series = np.concatenate([paired, series[:, :, 2 * half :]], axis=2)
    return series[:, :, 0]


def _power(series: Array, exponent: int) -> Array:
    """A power of a series that begins with 1: its derivative times the series is `exponent` times the power times the
    derivative of the series."""
    if exponent == 1:
        return series
    found = [np.ones_like(series[:, 0])]
    for m in range(1, series.shape[1]):
        terms = [(k * (exponent + 1) - m) / m * series[:, k] * found[m - k] for k in range(1, m + 1)]
        found.append(np.sum(terms, axis=0))
    return np.stack(found, axis=1)


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


@dataclass(frozen=True)
class Nodes:
    """One variable as a mixture of Gaussians N(mean, var) with weights in each set.

    Shapes    mean, var (nodes,), weights (sets, nodes)
    Accuracy  `width` is the width in log V of the bins whose variances a pair of nodes stands for
    """

    mean: Array
    var: Array
    weights: Array
    width: float = 0.0

    def error(self, distance: Array, total: float) -> Array:
        """Relative error of densities and tails of a sum, from binning, at a distance from its mean.

        What a bin does not keep is the third order in the change of log V: up to 1 + d**2 / (2 V) times that change for
        one Gaussian, and the share of the summand's in the sum's largest variance, `total`, of it for a sum.
        """
        share = float(self.var.max()) / max(total, 1e-300)
        return np.asarray((self.width * share * (1 + 0.5 * distance**2 / max(total, 1e-300))) ** 3 / 6)


def grouped(mean: float, var: Array, weights: Array, rule: Averaging) -> Nodes:
    """Nodes for variances at one mean: common ones for replicates, own ones for each order of a product rule.

    Shapes    var, weights (sets, draws)
    """
    groups = [[k] for k in range(len(var))] if rule.orders else [list(range(len(var)))]
    found = []
    for group in groups:
        real = (weights[group] > UNSEEN).any(axis=0)  # sets of different lengths were filled up
        found.append(binned(var[group][:, real], weights[group][:, real]))
    full = np.zeros((len(var), sum(len(nodes) for nodes, _, _ in found)))
    start = 0
    for group, (nodes, own, _) in zip(groups, found, strict=True):
        full[group, start : start + len(nodes)] = own
        start += len(nodes)
    width = max(width for _, _, width in found)
    return Nodes(np.full(start, mean), np.concatenate([nodes for nodes, _, _ in found]), full, width)


def binned(var: Array, weights: Array) -> tuple[Array, Array, float]:
    """Nodes and their weights in each set: every set keeps mass and mean in each bin, all together the variance.

    Bins are even in log V, over as many decades as matter; V = 0 keeps a node of its own.
    Shapes    var, weights (sets, draws) -> (nodes,), (sets, nodes), width of the bins in log V
    """
    sets, draws = var.shape
    high = float(var.max())
    if var.min() == high:
        return np.array([high]), np.ones((sets, 1)), 0.0
    if var.size <= 4 * BINS:
        own = np.zeros((sets, sets, draws))
        own[np.arange(sets), np.arange(sets)] = weights
        return var.reshape(-1), own.reshape(sets, -1), 0.0
    low = max(float(np.min(var, where=var > 0, initial=high)), LEAST * high)
    width = math.log(high / low) / BINS
    with np.errstate(divide="ignore"):
        place = np.clip((np.log(var / low) / width), 0, BINS - 1).astype(np.int64)
    place[var == 0] = BINS
    each = (place + (BINS + 1) * np.arange(sets)[:, None]).reshape(-1)
    middle = np.append(low * np.exp(width * (0.5 + np.arange(BINS))), 0.0)

    def total_of(values: Array) -> Array:
        return np.bincount(each, (weights * values).reshape(-1), minlength=sets * (BINS + 1)).reshape(sets, BINS + 1)

    mass = total_of(np.ones_like(var))
    used = mass.sum(axis=0) > 0
    first, second = (total_of((var - middle[place]) ** k)[:, used] for k in (1, 2))
    mass, middle = mass[:, used], middle[used]
    total = mass.sum(axis=0)
    centre = first.sum(axis=0) / total
    half = np.sqrt(np.maximum(second.sum(axis=0) / total - centre**2, 0.0))
    half = np.minimum(half, middle + centre)  # no negative variances
    shifted = (first - centre * mass) / np.where(half > 0, half, np.inf)
    nodes = np.concatenate([middle + centre - half, middle + centre + half])
    return np.maximum(nodes, 0.0), np.concatenate([mass - shifted, mass + shifted], axis=1) / 2, width

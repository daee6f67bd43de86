"""Kullback-Leibler divergences, in nats, between densities that are averages of Gaussians: far below a kernel's noise.

At finite width f_n(y) = E N(y; m, V) over networks, (m, V) mean and variance of y given all but the weights used last
(see `conditional`); in the limit f(y) is the same over p-ring.  So both are smooth, known without a bandwidth, and

    KL(f_n || f) = Integral f_n log(f_n / f)

is an integral of an analytic function: the trapezoidal rule in t, y = centre + scale sinh t, converges geometrically.
Steps grow with the distance from the centre.  That each density integrates to 1 on the grid is checked; what is missing
is part of the error.

With N networks f_n is known as f_N = f_n + e, E e = 0, E e(y) e(z) = c(y, z) / N.  The expansion

    KL(f_N || f) = KL(f_n || f) + Integral e log(f_n / f) + 1/2 Integral e**2 / f_n + ..

shows the bias B / N + O(1 / N**2), B = 1/2 Integral c(y, y) / f_n(y) dy, which the jackknife that leaves out one group
of networks at a time removes (Busing, Meijer & van der Leeden 1999 for groups of unequal sizes), and the error: the
first term and, near the limit where log(f_n / f) vanishes, the quadratic form.  That is the sum over pairs of groups
g < h of w_g w_h A_gh, A_gh = Integral (f_g - f_N) (f_h - f_N) / f_N, its variance P the sum of their squares.  The
jackknife's variance has the mean of the first term's plus 2 P (Efron & Stein 1981), so P is taken off; it follows
single draws, so P is stated where it is larger.  Against the Gaussian of equal mean and variance f_g / f_N - 1 acts by
what is orthogonal, with weight f_N, to 1, y and y**2: the rest moves the Gaussian along.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import standard_errors
from tensorprog.language.errors import NotCompiledError, ProgramError
from tensorprog.language.formats import split
from tensorprog.language.samples import is_samples, samples_of
from tensorprog.limit.law.mixture import binned
from tensorprog.results.conditional import gaussians
from tensorprog.results.reference import Reference

__all__ = ["GaussianDraws", "kl", "kl_gaussian", "kl_to_gaussian"]

Array = NDArray[Any]
Grid = tuple[float, float, float]  # centre, scale and reach
Rows = Callable[[Array], Array]  # functions on a grid: (points,) -> (rows, points)
Functional = Callable[[Array, Array, Array], Array]  # these, grid and weights of the rule to numbers, KL first

MANY = 20_000  # draws of one mean whose variances are binned
GROUPS = 64  # of networks: standard errors good to about 9 %
DEVIATIONS = 9.0  # of the widest Gaussian: a mass of 2e-19 lies beyond
FIRST_STEP = 0.5  # of the trapezoidal rule in t
FINE, COARSE = 1e-11, 1e-9  # change of the integral at which the rule is fine enough, for laws and for draws
MOST_POINTS = 1 << 14
CHUNK = 1 << 20  # numbers held at once
UNRESOLVED = 0.5  # relative error of a density that is no longer one
MOST_LOG = 100.0  # of the ratio of densities, allowed for where one of them is not known or the grid misses mass


def kl_gaussian(source: Any, variable: str) -> tuple[float, float]:
    """KL(y || Gaussian of equal mean and variance), and its error.

    `source` is a law, or samples drawn with `conditional=True`.

    Accuracy  of a law the error of its averages over p-ring, about 1e-10 for a few scores; of samples the standard
              error, with the bias of order 1 / samples removed
    Raises    NotCompiledError where y is not Gaussian given the scores, or was drawn without `conditional=True`
    """
    if is_samples(source):
        return kl_to_gaussian(GaussianDraws.of(source, variable))
    curve = Reference.of(source, "kl_gaussian takes a law or samples").law.averaged(variable)
    centre, deviation = curve.spread[0], math.sqrt(curve.spread[1])
    if not deviation > 0 or curve.atoms:
        return math.inf, 0.0

    def functional(p: Array, grid: Array, weights: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            log_normal = -0.5 * ((grid - centre) / deviation) ** 2 - math.log(deviation * math.sqrt(2 * math.pi))
            shared = np.where(p[0] > 0, curve.uncertainty(grid) * p[0] * np.abs(np.log(p[0]) - log_normal), 0.0)
        return np.append(_to_gaussian(p, grid, weights), shared @ weights)

    grid = centre, 0.5 * deviation, curve.within(DEVIATIONS)
    found, moved = _integrate(curve.densities, functional, grid, FINE)
    return float(found[0]), float(standard_errors(found[1:-1])) + float(found[-1]) + moved


def kl(samples: Any, law: Any, variable: str) -> tuple[float, float]:
    """KL(finite width || limit) of one variable, and its error; samples drawn with `conditional=True`.

    The bias of order 1 / samples is removed, so that near the limit the value may come out below 0, within its error.

    Accuracy  one standard error over networks, plus the error of the law's density; what stays of the bias is of order
              1 / samples**2
    Raises    NotCompiledError where one of the two densities is no average of Gaussians
    """
    draws = samples_of(samples, "kl takes samples first, then a law")
    reference = Reference.of(law, "kl takes a law second")
    return kl_to_law(GaussianDraws.of(draws, variable), reference.law.averaged(variable))


# ---- draws ----------------------------------------------------------------------------------------------------------


@dataclass
class GaussianDraws:
    """Gaussians N(mean, var), one row for each network, in groups of networks.

    Shapes    mean, var (networks, coordinates)
    """

    mean: Array
    var: Array
    cuts: Array = field(init=False)  # where groups begin, and the number of networks
    shares: Array = field(init=False)  # of each group in the networks

    @classmethod
    def of(cls, samples: Any, variable: str) -> GaussianDraws:
        """The conditional laws of one variable in samples."""
        name, position = split(samples.netsor, variable)
        if name not in samples.conditional:
            raise NotCompiledError(
                f"{variable} has no conditional law in these samples; draw them with conditional=True, for an output "
                "that is linear in products by weights used nowhere else"
            )
        mean, var = gaussians(samples, name, position)
        # without a mean of their own all coordinates of a network have one law
        return cls(mean, var) if np.ptp(mean) else cls(mean[:, :1], var[:, :1])

    def __post_init__(self) -> None:
        if len(self.var) < 2:
            raise ProgramError("an error needs two networks at least")
        self.cuts = np.linspace(0, len(self.var), min(GROUPS, len(self.var)) + 1).astype(np.int64)
        self.shares = np.diff(self.cuts) / len(self.var)

    @cached_property
    def _nodes(self) -> tuple[Array, Array] | None:
        """Variances and their weights in each group, if all means are one number: `tp run attention` takes a third."""
        if np.ptp(self.mean) or self.var.size < MANY:
            return None
        sizes, columns = np.diff(self.cuts), self.var.shape[1]
        place = np.minimum(self.cuts[:-1, None] + np.arange(sizes.max()), len(self.var) - 1)
        weights = (np.arange(sizes.max()) < sizes[:, None]) / (columns * sizes[:, None])
        nodes, shares, *_ = binned(self.var[place].reshape(len(sizes), -1), np.repeat(weights, columns, axis=1))
        return nodes, shares

    def densities(self, grid: Array) -> Array:
        """Averages of the Gaussian densities over each group.

        Shapes    grid (points,) -> (groups, points)
        """
        if self._nodes is not None:
            var, weights = self._nodes
            return np.asarray(weights @ _normal(grid - self.mean[0, 0], var[:, None]))
        result = np.zeros((len(self.cuts) - 1, grid.size))
        for k, (start, stop) in enumerate(zip(self.cuts, self.cuts[1:], strict=False)):
            mean, var = self.mean[start:stop].reshape(-1, 1), self.var[start:stop].reshape(-1, 1)
            step = max(1, CHUNK // grid.size)
            for first in range(0, len(mean), step):
                part = slice(first, first + step)
                result[k] += _normal(grid - mean[part], var[part]).sum(axis=0)
            result[k] /= len(mean)
        return result

    @property
    def grid(self) -> Grid:
        """A grid that holds the widest Gaussian, with steps for the narrowest at the centre."""
        centre = float(self.mean.mean())
        reach = float(np.abs(self.mean - centre).max() + DEVIATIONS * math.sqrt(self.var.max()))
        return centre, math.sqrt(self.var.min()), reach

    @property
    def undefined(self) -> tuple[float, float] | None:
        """The divergence where there is no density: nan of draws that overflowed, infinity with an atom."""
        if not np.isfinite([self.mean, self.var]).all():
            return math.nan, math.nan
        return None if self.var.min() > 0 else (math.inf, 0.0)


def _normal(distance: Array, var: Array) -> Array:
    return np.asarray(np.exp(-0.5 * distance**2 / var) / np.sqrt(2 * math.pi * var))


# ---- integrals ------------------------------------------------------------------------------------------------------


def _integrate(
    rows: Rows, functional: Functional, grid: Grid, tolerance: float, densities: int | None = None
) -> tuple[Array, float]:
    """Numbers from functions on a grid, and the error of the first by the rule.

    That is how far it moved when the step was last halved, as the rule converges geometrically, and a bound of the
    logarithm times the mass by which the first `densities` functions fail to integrate to 1: a grid that misses a
    peak at both steps sees no change.
    """
    centre, scale, reach = grid
    step, before = FIRST_STEP, math.nan
    count = math.ceil(math.asinh(reach / scale) / step)
    t = step * np.arange(-count, count + 1)
    values = rows(centre + scale * np.sinh(t))
    while True:
        weights = step * scale * np.cosh(t)
        found = functional(values, centre + scale * np.sinh(t), weights)
        missing = float(np.abs(values[:densities] @ weights - 1).mean())
        error = abs(float(found[0]) - before) + MOST_LOG * missing
        if error <= tolerance or 2 * t.size > MOST_POINTS:
            return found, error
        step, before = step / 2, float(found[0])
        between = step * np.arange(1 - 2 * count, 2 * count, 2)
        t, values = np.append(t, between), np.hstack([values, rows(centre + scale * np.sinh(between))])
        count *= 2


def _divergence(p: Array, q: Array, weights: Array) -> Array:
    """Integral of p log(p / q) along the last axis, where both are known to be positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where((p > 0) & (q > 0), p * (np.log(p) - np.log(q)), 0.0) @ weights)


def _to_gaussian(p: Array, grid: Array, weights: Array) -> Array:
    """KL of each density (rows, points) to the Gaussian of its mean and variance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (p @ (weights * grid)) / (p @ weights)
        distance = grid - mean[:, None]
        var = ((p * distance**2) @ weights) / (p @ weights)
        log_ratio = np.log(p) + 0.5 * np.log(2 * math.pi * var)[:, None] + 0.5 * distance**2 / var[:, None]
        return np.asarray(np.where(p > 0, p * log_ratio, 0.0) @ weights)


# ---- the three divergences ------------------------------------------------------------------------------------------


def kl_to_gaussian(draws: GaussianDraws) -> tuple[float, float]:
    """KL of an average of Gaussians to the Gaussian of its mean and variance, and its standard error."""
    if draws.undefined is not None:
        return draws.undefined

    def functional(groups: Array, grid: Array, weights: Array) -> Array:
        powers = np.vander(grid - draws.mean.mean(), 3).T
        rows, pairs = _left_out(groups, draws.shares, weights, powers)
        return np.append(_to_gaussian(rows, grid, weights), pairs)

    found, moved = _integrate(draws.densities, functional, draws.grid, COARSE)
    value, error = _jackknife(found[:-1], draws.shares, float(found[-1]))
    return value, error + moved


def kl_to_law(draws: GaussianDraws, curve: Any) -> tuple[float, float]:
    """KL of an average of Gaussians to a law, and its error."""
    if draws.undefined is not None:
        return draws.undefined
    centre, variance = curve.spread
    if not variance > 0:
        return math.inf, 0.0
    groups = draws.shares.size

    def both(grid: Array) -> Array:
        return np.concatenate([draws.densities(grid), curve.densities(grid)])

    def functional(densities: Array, grid: Array, weights: Array) -> Array:
        rows, pairs = _left_out(densities[:groups], draws.shares, weights, np.ones((1, grid.size)))
        law, relative = densities[groups:], curve.uncertainty(grid)
        known = (law[0] > 0) & (standard_errors(law[1:]) + relative * law[0] < UNRESOLVED * law[0])
        law = np.where(known, law, 0.0)
        # mass where the law's density is not known, times a logarithm: no tail is thinner than the Gaussian's
        beyond = np.where(known, 0.0, rows[0] * (MOST_LOG + 0.5 * (grid - centre) ** 2 / variance)) @ weights
        # what all sets share: dKL = - Integral (f_N / f - 1) df, as densities integrate to 1
        shared = np.where(known, relative * np.abs(rows[0] - law[0]), 0.0) @ weights
        spread = float(standard_errors(_divergence(rows[0], law[1:], weights)))
        return np.append(_divergence(rows, law[0], weights), [pairs, shared + spread + beyond])

    found, moved = _integrate(both, functional, draws.grid, COARSE, groups)
    value, error = _jackknife(found[:-2], draws.shares, float(found[-2]))
    return value, error + float(found[-1]) + moved


def _left_out(groups: Array, shares: Array, weights: Array, fitted: Array) -> tuple[Array, float]:
    """The average over all groups, then with each left out; variance of the quadratic form over pairs of groups.

    `fitted`: functions y -> number off which the groups' deviations are projected.

    Shapes    groups (groups, points), fitted (functions, points) -> (1 + groups, points), number
    """
    whole = shares @ groups
    rest = (whole - shares[:, None] * groups) / (1 - shares)[:, None]
    root = np.sqrt(whole * weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.where(whole > 0, (groups / whole - 1) * root, 0.0)
    basis = np.linalg.qr((fitted * root).T)[0]
    away -= (away @ basis) @ basis.T
    pairs = np.outer(shares, shares) * (away @ away.T)
    return np.concatenate([whole[None], np.maximum(rest, 0.0)]), float((np.triu(pairs, 1) ** 2).sum())


def _jackknife(values: Array, shares: Array, pairs: float) -> tuple[float, float]:
    """What is left of a statistic without its bias of order 1 / N, and its standard error.

    Shapes    values (1 + groups,): of all networks, then without each group
    """
    whole, without = float(values[0]), values[1:]
    value = len(without) * whole - float((1 - shares) @ without)
    ratio = 1 / shares
    pseudo = ratio * whole - (ratio - 1) * without
    variance = float(((pseudo - value) ** 2 / (ratio - 1)).mean())
    return value, math.sqrt(max(variance - pairs, pairs))

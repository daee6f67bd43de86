"""Averages over one score: panels on which every function that is met is followed, and what they say of a variable.

Given the score's normal z, the variable is N(m(z), v(z)).  Panels are halved until nothing hides between their nodes
(`intervals`) and m and v are polynomials on each of them, which further values confirm.  What is left, where a panel
cannot be halved any more, is slack of m and v that is part of every error.  Then one set of panels serves all
questions: moments by the Gauss-Legendre rule, densities and distribution functions at a point y by halving the panels
again, until (y - m) / sqrt(v) moves little on each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.rules import gauss_legendre

__all__ = ["Panels", "panels"]

Array = NDArray[Any]
Values = Callable[[Array], tuple[Array, Array]]  # z (points,) -> means and variances (points, members)
Effects = Callable[[Array, Array], tuple[Array, Array, Array, Array]]
# ends of panels -> mean and variance at their centres, and how far mean and deviation may be off, (panels, members)

NODES, CHECKS = 18, 13
HORIZON, FIRST = 38.4, 24  # standard deviations, and panels on that way: half a panel is 1.6, see `gaussian.rules`
MOST = 1 << 12  # panels
NEGLIGIBLE = 1e-16  # effect of a panel, relative
EPS = float(np.finfo(float).eps)
NOISE = 64 * EPS  # of values, relative
STALLED = 0.9  # halving a panel does not help where the misfit shrinks less than that
SPREAD = 2.0  # of log v on a panel
UNSEEN = 1e-18  # share of panels in the mass, and in the average of 1 / sd, for which that does not matter
FAR = 39.0  # standard deviations beyond which a normal density is 0 and its distribution function 0 or 1
PATH, SPAN = 3.0, 2.0  # of (y - m) / sqrt(v) and of log v on a panel that need not be halved for y
# deviation over the way of the mean at which a normal density is a point mass; share of the way that may be curved
NARROW, STRAIGHT = 1e-7, 0.25
DEPTH = 60  # halvings for a point
SEEN = 1e-12  # rounding of means, in deviations, from which it is part of the error
CHUNK = 1 << 19  # numbers held at once
TINIEST = 1e-290  # variances
MEMBERED = ("mean", "var", "mean_slack", "var_slack", "checked_mean", "checked_var")  # with axes of members
DIVERGES = 0.98  # exponent from which an integral of a power diverges


@lru_cache(maxsize=8)
def _matrix(count: int, low: float = -1.0, high: float = 1.0) -> Array:
    """From values at NODES to those at `count` Gauss-Legendre nodes on a part of the panel.

    Shapes    (count, NODES)
    """
    at = gauss_legendre(NODES)[0]
    to = low + (high - low) * (gauss_legendre(count)[0] + 1) / 2
    return _interpolation(at, to)


@lru_cache(maxsize=1)
def _ends() -> Array:
    """From values at NODES to those at both ends of the panel.

    Shapes    (NODES, 2)
    """
    return _interpolation(gauss_legendre(NODES)[0], np.array([-1.0, 1.0])).T


@lru_cache(maxsize=2)
def _barycentric(count: int) -> Array:
    """Weights of barycentric interpolation at Gauss-Legendre nodes."""
    apart = 2 * (gauss_legendre(count)[0][:, None] - gauss_legendre(count)[0])
    np.fill_diagonal(apart, 1.0)
    return np.asarray(1 / apart.prod(axis=1))


@lru_cache(maxsize=1)
def _legendre() -> Array:
    """From values at NODES to Legendre coefficients.

    Shapes    (NODES, NODES)
    """
    nodes, weights = gauss_legendre(NODES)
    return np.asarray(np.polynomial.legendre.legvander(nodes, NODES - 1) * weights[:, None] * (np.arange(NODES) + 0.5))


def _bounds(values: Array) -> tuple[Array, Array, Array]:
    """Polynomials through values at NODES: a straight line, as its middle and how far it goes, and what is left of it.

    Shapes    values (panels, NODES) -> three arrays (panels,)
    """
    found = values @ _legendre()
    return found[:, 0], np.abs(found[:, 1]), np.abs(found[:, 2:]).sum(axis=1)


def _interpolation(at: Array, to: Array) -> Array:
    """Barycentric interpolation from Gauss-Legendre nodes."""
    away = to[:, None] - at
    hit = away == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = _barycentric(len(at)) / away
        return np.asarray(np.where(hit.any(axis=1)[:, None], hit.astype(float), terms / terms.sum(axis=1)[:, None]))


def _mass(low: Array, high: Array) -> Array:
    """Of the standard normal law between two points."""
    from scipy.special import ndtr

    width, middle = high - low, (low + high) / 2
    narrow = width * np.exp(-0.5 * middle**2) / math.sqrt(2 * math.pi) * (1 + (middle**2 - 1) * width**2 / 24)
    wide = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    return np.asarray(np.where(width < 1e-4, narrow, wide))


@dataclass(frozen=True)
class Panels:
    """Means and variances on panels of z, as values at Gauss-Legendre nodes, and how far both may be off.

    Shapes    low, high (panels,); mean, var (panels, NODES, *members); mean_slack, var_slack (panels, *members)
    """

    low: Array
    high: Array
    mean: Array
    var: Array
    mean_slack: Array
    var_slack: Array
    checked_mean: Array
    checked_var: Array

    def member(self, place: Any) -> Panels:
        """Of one member, or several."""
        key = (Ellipsis, *place)
        return replace(self, **{name: getattr(self, name)[key] for name in MEMBERED})

    def reshaped(self, shape: tuple[int, ...]) -> Panels:
        """The members along one axis in another shape."""
        found = {name: getattr(self, name) for name in MEMBERED}
        return replace(self, **{name: a.reshape(*a.shape[:-1], *shape) for name, a in found.items()})

    @cached_property
    def masses(self) -> Array:
        """Of the panels."""
        return _mass(self.low, self.high)

    def weights(self, count: int) -> Array:
        """Weights of the Gauss-Legendre rule, with the density of z.

        Shapes    (panels, count)
        """
        nodes, weights = gauss_legendre(count)
        half = ((self.high - self.low) / 2)[:, None]
        z = ((self.high + self.low) / 2)[:, None] + half * nodes
        return np.asarray(half * weights * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi))

    def sets(self) -> tuple[Array, Array, Array]:
        """Means, variances and weights by the rule, and by one with other nodes that shows all that is not known.

        The second has the values that confirmed the panels, variances and means moved by their slack, and the last
        panels twice for what is beyond the horizon.
        Shapes    (2, draws, *members) twice, (2, draws)
        """
        size, few = self.mean.shape[0] * NODES, self.mean.shape[0] * CHECKS
        tail = self.mean.shape[2:]
        mean, var = np.zeros((2, size, *tail)), np.zeros((2, size, *tail))
        weights = np.zeros((2, size))
        mean[0], var[0] = self.mean.reshape(size, *tail), self.var.reshape(size, *tail)
        weights[0] = self.weights(NODES).reshape(-1)
        # away from the middle, where it changes most
        with np.errstate(invalid="ignore"):
            centre = np.tensordot(weights[0], np.nan_to_num(mean[0], posinf=0.0, neginf=0.0), 1)
            moved = self.mean_slack[:, None] * np.where(self.checked_mean < centre, -1.0, 1.0)
            mean[1, :few] = (self.checked_mean + moved).reshape(few, *tail)
            var[1, :few] = (self.checked_var + self.var_slack[:, None]).reshape(few, *tail)
        others = self.weights(CHECKS)
        others[[0, -1]] *= 2
        weights[1, :few] = others.reshape(-1)
        return mean, var, weights

    # -- one variable -------------------------------------------------------------------------------------------

    def averaged(self, grid: Array, mean: float, var: float, cumulative: bool) -> tuple[Array, Array]:
        """Density or distribution function of the variable beside an independent N(mean, var), and its error.

        Shapes    grid (points,) -> two arrays (points,)
        """
        size = max(1, CHUNK // (len(self.low) * NODES))
        parts = [_Points(self, grid[k : k + size], mean, var, cumulative).found() for k in range(0, len(grid), size)]
        value, error = (np.concatenate([np.zeros(0), *each]) for each in ([p[k] for p in parts] for k in (0, 1)))
        return value, error

    def atoms(self, var: float) -> bool:
        """Whether the variable takes some value with positive probability, beside an independent Gaussian."""
        flat = (self.var == 0).all(axis=1) & (self.var_slack == 0) & (self.mean == self.mean[:, :1]).all(axis=1)
        return not var and bool((flat & ~self.underflow & (self.masses > UNSEEN)).any())

    @cached_property
    def underflow(self) -> NDArray[np.bool_]:
        """Panels where the variance of one variable is near the smallest numbers, or 0 next to one that is."""
        zero = (self.var == 0).all(axis=1)
        tiny: NDArray[np.bool_] = np.asarray(((self.var > 0) & (self.var < TINIEST)).any(axis=1))
        found = np.zeros(len(zero), dtype=bool)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], zero, [False]]).astype(int)))
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            found[first:last] = tiny[max(first - 1, 0) : last + 1].any()
        return found | tiny

    def singular(self, var: float) -> Array:
        """Values at which the density may be infinite: means where the variance vanishes."""
        if var:
            return np.zeros(0)
        seen = self.masses > UNSEEN
        most = self.var.max(axis=1)
        small = seen & (most <= 1e-20 * most[seen].max())
        sharp = seen & (self.high - self.low <= _floor(self.low, self.high)) & (self.var.min(axis=1) <= 1e-3 * most)
        size, found = float(np.abs(self.mean[seen]).max()), np.zeros(0)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], small, [False]]).astype(int)))
        least = [first + int(np.argmin(most[first:last])) for first, last in zip(edges[::2], edges[1::2], strict=True)]
        for value in np.concatenate([self.mean[sharp, NODES // 2], self.mean[least, NODES // 2]]):
            if not (np.abs(found - value) <= 1e-6 * size).any():
                found = np.append(found, value)
        return np.sort(found)


class _Cells:
    """Panels or parts of them, beside an independent Gaussian, with what every point asks of them.

    Shapes    which, low, high (cells,); mean, var (cells, NODES); `ends`, `sd` at the nodes and at both ends of a cell
    """

    def __init__(self, panels: Panels, which: Array, low: Array, high: Array, mean: Array, var: Array) -> None:
        self.panels, self.which, self.low, self.high, self.mean, self.var = panels, which, low, high, mean, var
        self.ends = np.concatenate([mean, mean @ _ends()], axis=1)
        spread = np.concatenate([var, np.maximum(var @ _ends(), 0.0)], axis=1)
        self.sd = np.sqrt(spread)
        self.smallest, self.largest = spread.min(axis=1), spread.max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            span = np.log(self.largest) - np.log(self.smallest)
        self.span = np.where(self.smallest == self.largest, 0.0, span)
        rises, falls = ((sign * np.diff(mean, axis=1) > 0).all(axis=1) for sign in (1, -1))
        self.rises: NDArray[np.bool_] = np.asarray(rises)
        # between nodes a mean turns back by no more than what a straight line leaves of it
        (centre, way, self.bend), (middle, more, rest) = _bounds(mean), _bounds(var)
        # points beyond which all of a cell lies on one side
        far = panels.mean_slack[which] + FAR * np.sqrt(middle + more + rest + panels.var_slack[which])
        self.bottom, self.top = centre - way - self.bend - far, centre + way + self.bend + far
        # on almost straight ones noise that is narrow changes little of the density of the mean
        self.straight: NDArray[np.bool_] = np.asarray((rises | falls) & (self.bend <= STRAIGHT * way))
        self.mass = _mass(low, high)

    @cached_property
    def weights(self) -> Array:
        """Weights of the Gauss-Legendre rule, with the density of z.

        Shapes    (cells, NODES)
        """
        nodes, weights = gauss_legendre(NODES)
        half = ((self.high - self.low) / 2)[:, None]
        z = ((self.high + self.low) / 2)[:, None] + half * nodes
        return np.asarray(half * weights * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi))

    def halves(self, chosen: Array) -> _Cells:
        """Both halves of some cells, one after the other."""
        low, high = _halved(self.low[chosen], self.high[chosen])
        both = (_matrix(NODES, -1.0, 0.0).T, _matrix(NODES, 0.0, 1.0).T)
        mean, var = (
            np.stack([a[chosen] @ half for half in both], axis=1).reshape(-1, NODES) for a in (self.mean, self.var)
        )
        return _Cells(self.panels, np.repeat(self.which[chosen], 2), low, high, mean, np.maximum(var, 0.0))


class _Points:
    """The average of a normal density, or distribution function, at some points, over panels halved for each."""

    def __init__(self, panels: Panels, grid: Array, mean: float, var: float, cumulative: bool) -> None:
        self.panels, self.grid, self.cumulative = panels, grid, cumulative
        self.value, self.error = np.zeros(grid.shape), np.zeros(grid.shape)
        self.hidden = np.zeros(grid.shape)
        self.lost = panels.underflow & np.bool_(var == 0)
        self.rounded = EPS * np.abs(panels.mean).max(axis=1)
        own, spread = panels.mean + mean, np.maximum(panels.var, 0.0) + var
        # jumps and kinks: panels without width whose values are only bounded
        self.known = np.isfinite(own).all(axis=1) & np.isfinite(spread).all(axis=1) & (panels.masses > 0)
        with np.errstate(invalid="ignore"):
            self.cells = _Cells(panels, np.arange(len(panels.low)), panels.low, panels.high, own, spread)
        least, most = spread.min(axis=1), spread.max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # they were left so wide, as they do not matter
            self.rough = (most > least) & (np.log(most) - np.log(least) > 1.5 * SPREAD)
        self.rough &= panels.high - panels.low > 2 * _floor(panels.low, panels.high)
        self.near: list[tuple[Array, Array, Array]] = []  # points, ends of cells, averages over them
        self.vanishing: list[tuple[int, float, float]] = []  # points, and cells where v vanishes and the mean is there

    def found(self) -> tuple[Array, Array]:
        """Values and errors."""
        panels, cells = self.panels, self.cells
        clear = self.known & ~self.lost
        over, under = clear & (self.grid[:, None] > cells.top), clear & (self.grid[:, None] < cells.bottom)
        if self.cumulative:
            self.value += over @ panels.masses
        places = np.nonzero(self.known & ~over & ~under)
        points: Array = places[0]
        own: Array = places[1]
        lost = ~self.known & (panels.masses > 0)
        if lost.any():
            self.error += panels.masses[lost].sum() if self.cumulative else np.inf  # only their mass is known
        likely = panels.masses[own] > UNSEEN
        self._descend(points[likely], own[likely])
        # of what the score hardly ever meets only what matters beside the rest
        points, own = points[~likely], own[~likely]
        with np.errstate(divide="ignore"):
            most = panels.masses * (1.0 if self.cumulative else 0.4 / np.sqrt(cells.smallest))
        small = most[own] <= UNSEEN * self.value[points]
        self.error += np.bincount(points[small], most[own[small]], self.grid.size)
        self._descend(points[~small], own[~small])
        self._add_singular()
        # where deviations fall below the smallest numbers, the mass of the score falls faster, if it is that small
        unknown = self.hidden > UNSEEN * self.value
        self.error += self.hidden
        self.error[unknown] = np.inf
        known = np.isinf(self.value)
        with np.errstate(invalid="ignore"):
            return self.value, np.where(known, 0.0, self.error + 64 * EPS * self.value)

    def _descend(self, points: Array, own: Array) -> None:
        """Add what the panels that points own give, halved as often as a point needs it."""
        cells = self.cells
        for depth in range(DEPTH):
            again = self._settle(points, own, cells, depth == DEPTH - 1)
            if not again.size:
                break
            halved, place = np.unique(own[again], return_inverse=True)
            cells, points = cells.halves(halved), np.repeat(points[again], 2)
            own = np.stack([2 * place, 2 * place + 1], axis=1).reshape(-1)
            clear, y = ~self.lost[cells.which[own]], self.grid[points]
            over = clear & (y > cells.top[own])
            if self.cumulative:
                self._add(points[over], cells.mass[own[over]])
            here = ~over & ~(clear & (y < cells.bottom[own]))
            points, own = points[here], own[here]

    def _add(self, points: Array, values: Array, wrong: Array | None = None) -> None:
        """Add to values and errors at points, of which some come several times."""
        self.value += np.bincount(points, values, self.grid.size)
        if wrong is not None:
            self.error += np.bincount(points, wrong, self.grid.size)

    def _settle(self, points: Array, own: Array, cells: _Cells, last: bool) -> Array:
        """Add what needs no more halving, of points with the cells that they own; the places of what does."""
        y, which = self.grid[points], cells.which[own]
        ends, sd = cells.ends[own], cells.sd[own]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            s = y[:, None] - ends
            still = (s == 0) & (sd == 0) if not cells.smallest.all() else None
            s /= sd
            if still is not None:
                s[still] = 0.0
            least, most = s.min(axis=1), s.max(axis=1)
            path = np.where(least == most, 0.0, most - least)
        smallest, largest = cells.smallest[own], cells.largest[own]
        slack = self.panels.var_slack[which] > 0.5 * (smallest + self.panels.var_slack[which])
        slack |= (self.panels.mean_slack[which] ** 2 > smallest) | self.rough[which]
        beyond = ((least > FAR) | (most < -FAR)) & (2 * cells.bend <= np.sqrt(cells.smallest))[own]
        beyond |= (y > cells.top[own]) | (y < cells.bottom[own])
        near = ~beyond & (path <= PATH) & (self.cumulative | (cells.span[own] <= SPAN))
        step = ~beyond & ~near & (least < -FAR) & (most > FAR) & cells.straight[own]
        step &= np.sqrt(largest) < NARROW * np.abs(ends[:, NODES - 1] - ends[:, 0])
        floor = ~beyond & ~near & ~step & (last | (cells.high - cells.low <= _floor(cells.low, cells.high))[own])
        if self.lost.any():
            widest = np.sqrt(np.maximum(largest, TINIEST))
            close = self.lost[which] & (np.abs(y[:, None] - ends[:, :NODES]).min(axis=1) < FAR * widest)
            slack, beyond = slack | close, beyond & ~close
        vague = slack & ~beyond  # only the mass is known
        chosen = np.flatnonzero(near & ~vague)
        self._add_near(points[chosen], own[chosen], cells, s[chosen, :NODES])
        if self.cumulative:
            over = beyond & (y > cells.ends[own, 0])
            self._add(points[over], cells.mass[own[over]])
        self._add_steps(points, own, cells, step & ~vague)
        rest = floor | vague
        if rest.any():
            self._add_bounds(points[rest], own[rest], cells)
        return np.flatnonzero(~(beyond | near | step | rest))

    def _add_near(self, points: Array, own: Array, cells: _Cells, s: Array) -> None:
        from scipy.special import ndtr

        which, weights, sd = cells.which[own], cells.weights[own], cells.sd[own, :NODES]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            each = ndtr(s) if self.cumulative else np.exp(-0.5 * s**2) / math.sqrt(2 * math.pi) / sd
            rare = np.zeros(len(points), dtype=bool)
            if not cells.smallest.all():
                atom = (sd == 0) & (s == 0)
                each = np.where(atom, 1.0 if self.cumulative else np.inf, each)
                # so rarely that a variance which is too small for floating point looks the same
                rare = (atom & (weights > 0)).any(axis=1) & (self.panels.masses[which] <= UNSEEN)
                rare &= not self.cumulative
                each = np.where((weights > 0) & ~(atom & rare[:, None]), each, 0.0)
            found = np.einsum("pk,pk->p", weights, each)
        self._add(points, found, np.where(rare, np.inf, 0.0))
        rounded = np.where(self.rounded[which] > SEEN * np.sqrt(cells.smallest[own]), self.rounded[which], 0.0)
        mean_slack, var_slack = self.panels.mean_slack[which] + rounded, self.panels.var_slack[which]
        moved = np.flatnonzero((mean_slack > 0) | (var_slack > 0))
        if moved.size:
            slack = mean_slack[moved, None], var_slack[moved, None]
            wrong = self._wrong(slack, weights[moved], sd[moved], s[moved])
            self.error += np.bincount(points[moved], wrong, self.grid.size)
        self.near.append((points, np.stack([cells.low[own], cells.high[own]], 1), found))

    def _wrong(self, slack: tuple[Array, Array], weights: Array, sd: Array, s: Array) -> Array:
        """What slack of mean and variance does to averages over cells."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            normal = np.exp(-0.5 * s**2) / math.sqrt(2 * math.pi)
            relative = slack[0] / sd, slack[1] / (2 * sd**2)
            size = (
                normal * (relative[0] + relative[1] * np.abs(s))
                if self.cumulative
                else (normal / sd * (relative[0] * np.abs(s) + relative[1] * np.abs(s**2 - 1)))
            )
            wrong = np.where((weights > 0) & (size > 0), weights * size, 0.0).sum(axis=1)
        return np.where(np.isnan(wrong), 0.0, wrong)

    def _add_steps(self, points: Array, own: Array, cells: _Cells, chosen: Array) -> None:
        """Where the mean passes y and the noise around it is negligible: the density of the mean."""
        if not chosen.any():
            return
        points, own = points[chosen], own[chosen]
        low, high, mean, rises = cells.low[own], cells.high[own], cells.mean[own], cells.rises[own]
        y = self.grid[points]
        below, above = np.full(len(y), -1.0), np.full(len(y), 1.0)
        coefficients, value_at = (mean @ _legendre()).T, np.polynomial.legendre.legval
        for _ in range(54):
            t = (below + above) / 2
            left = (value_at(t, coefficients, tensor=False) < y) == rises
            below, above = np.where(left, t, below), np.where(left, above, t)
        t, half = (below + above) / 2, (high - low) / 2
        z = (low + high) / 2 + half * t
        if self.cumulative:
            value = np.where(rises, _mass(low, z), _mass(z, high))
        else:
            slope = value_at(t, np.polynomial.legendre.legder(coefficients), tensor=False) / half
            value = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) / np.abs(slope)
        rounded = 64 * EPS * np.abs(mean).max(axis=1) / np.abs(mean[:, -1] - mean[:, 0])
        self._add(points, value, (1e-11 + rounded) * value)

    def _add_bounds(self, points: Array, own: Array, cells: _Cells) -> None:
        """Cells of which only the mass is known: a normal density is at most 0.4 / sd and 0.25 / |y - m|."""
        which, low, high, y = cells.which[own], cells.low[own], cells.high[own], self.grid[points]
        mean, var, mass = cells.mean[own], cells.var[own], cells.mass[own]
        if self.cumulative:
            self._add(points, mass / 2, mass / 2)
            return
        small = self.rough[which] | (self.panels.masses[which] <= UNSEEN)  # they do not matter: nodes tell enough
        more = np.where(small, 0.0, self.panels.var_slack[which])
        slack = self.panels.mean_slack[which] + np.ptp(mean, axis=1)  # nodes do not reach the ends
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            away = np.maximum(0.0, np.maximum(mean.min(axis=1) - slack - y, y - mean.max(axis=1) - slack))
            least, most = np.maximum(var.min(axis=1) - more, 0.0), var.max(axis=1)
            wild = (np.log(most) - np.log(least) > SPAN) & ~small
            least = np.where(wild, 0.0, least)  # v vanishes, for all that is known
            bound = np.minimum(0.4 / np.sqrt(least), 0.25 / away) * mass
        bound = np.where(mass > 0, bound, 0.0)
        lost = self.lost[which]  # finite, but how large is not known
        self.hidden += np.bincount(points[lost], mass[lost] / math.sqrt(TINIEST), self.grid.size)
        bound = np.where(lost, 0.0, bound)
        finite = np.isfinite(bound)
        self.error += np.bincount(points[finite], bound[finite], self.grid.size)
        self.vanishing += zip(points[~finite], low[~finite], high[~finite], strict=True)

    def _add_singular(self) -> None:
        """Densities at the means of cells where v vanishes: finite if what is next to the cell falls off."""
        if not self.vanishing:
            return
        points, ends, found = (np.concatenate(arrays) for arrays in zip(*self.near, strict=True))
        order = np.argsort(points, kind="stable")
        bounds = np.searchsorted(points[order], np.arange(self.grid.size + 1))
        for number, low, high in self.vanishing:
            point = int(number)
            if high - low > 1e-9:  # nothing is known of what is inside
                self.error[point] = np.inf
                continue
            own = order[bounds[point] : bounds[point + 1]]
            away = np.minimum(np.abs(ends[own] - (low + high) / 2).max(axis=1), 1.0)
            shells = ((1e-9, 1e-6), (1e-6, 1e-3))
            near, far = (float(found[own][(away > a) & (away <= b)].sum()) for a, b in shells)
            exponent = 1 - math.log(far / near) / math.log(1e3) if near > 0 and far > 0 else 0.0
            if not math.isfinite(near) or exponent >= DIVERGES:
                self.value[point], self.error[point] = np.inf, 0.0
            else:  # what is left inside the cell, of a power of the distance
                rest = near * (high - low) ** (1 - exponent) / (1e-6 ** (1 - exponent) - 1e-9 ** (1 - exponent))
                self.error[point] += 4 * rest


# ---- how they are made ----------------------------------------------------------------------------------------------


def panels(values: Values, effects: Effects, fixed: Array) -> Panels:
    """Panels for functions of one standard normal.

    `fixed`: variances beside, (members,), so that small variances need not be told apart.

    Accuracy  slack is the certified effect of what is not followed, and what further values show
    """
    ends = np.linspace(-HORIZON, HORIZON, FIRST + 1)
    low, high, unknown = _certified(effects, ends[:-1], ends[1:])
    sharp = unknown & (high - low <= _floor(low, high))
    if sharp.any():  # between jumps and kinks wider panels do
        edges = np.unique(np.concatenate([low[sharp], high[sharp], ends]))
        inside = np.zeros(len(edges) - 1, dtype=bool)
        inside[np.searchsorted(edges, low[sharp])] = True
        a, b, _ = _certified(effects, edges[:-1][~inside], edges[1:][~inside])
        low, high = np.concatenate([a, low[sharp]]), np.concatenate([b, high[sharp]])
    order = np.argsort(low)
    return _confirmed(values, effects, low[order], high[order], fixed)


def _floor(low: Array, high: Array) -> Array:
    """Panels are not halved below that width."""
    return np.asarray(8 * EPS * np.maximum(np.maximum(np.abs(low), np.abs(high)), 0.125))


class _Scale:
    """The size of a variable, as far as it is known, by which effects are judged."""

    def __init__(self, mass: Array, mean: Array, var: Array) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            self.centre = _total(mass, mean)
            size = (mean - self.centre) ** 2 + var
            self.second, self.fourth = _total(mass, size), _total(mass, size**2)

    def matters(self, mass: Array, mean: Array, var: Array, more_mean: Array, more_var: Array) -> NDArray[np.bool_]:
        """Panels on which a change of mean and variance moves moments, or the probability of anything."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            away = np.abs(mean - self.centre)
            size = away**2 + var
            gained = more_mean * (2 * away + more_mean) + more_var
            gained = np.where(np.isnan(gained), np.inf, gained)
            second = mass[:, None] * gained > NEGLIGIBLE * self.second
            fourth = mass[:, None] * gained * (2 * size + gained) > NEGLIGIBLE * self.fourth
            unlike = np.minimum(1.0, more_mean / np.sqrt(var) + more_var / var)
            unlike = np.where((more_mean > 0) | (more_var > 0), np.nan_to_num(unlike, nan=1.0, posinf=1.0), 0.0)
            local = mass[:, None] * unlike > NEGLIGIBLE
        moved = (more_mean > 0) | (more_var > 0)
        return np.asarray(((second | fourth | local) & moved & (mass > 0)[:, None]).any(axis=1))


def _total(mass: Array, values: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.where(mass[:, None] > 0, mass[:, None] * values, 0.0)).sum(axis=0))


def _certified(effects: Effects, low: Array, high: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Panels halved until what is not followed has no effect, and which of them are left with one."""
    done: list[tuple[Array, Array, Array, Array, NDArray[np.bool_]]] = []
    while low.size:
        mean, var, more_mean, more_sd = effects(low, high)
        with np.errstate(invalid="ignore", over="ignore"):
            more_var = more_sd * (2 * np.sqrt(var) + more_sd)
        more_var = np.where(np.isnan(more_var), np.inf, more_var)
        every = [*done, (low, high, mean, var)]
        bounds = (np.concatenate([e[k] for e in every]) for k in range(4))
        first, last, means, variances = bounds
        scale = _Scale(_mass(first, last), means, variances)
        more = scale.matters(_mass(low, high), mean, var, more_mean, more_var)
        small = (high - low <= _floor(low, high)) | (len(first) >= MOST)
        stay = ~more | small
        done.append((low[stay], high[stay], mean[stay], var[stay], more[stay]))  # type: ignore[arg-type]
        low, high = _halved(low[~stay], high[~stay])
    return tuple(np.concatenate([d[k] for d in done]) for k in (0, 1, 4))  # type: ignore[return-value]


def _halved(low: Array, high: Array) -> tuple[Array, Array]:
    middle = (low + high) / 2
    return np.stack([low, middle], axis=1).reshape(-1), np.stack([middle, high], axis=1).reshape(-1)


def _nodes(low: Array, high: Array, count: int) -> Array:
    at = gauss_legendre(count)[0]
    return np.asarray(((low + high) / 2)[:, None] + ((high - low) / 2)[:, None] * at)


def _confirmed(values: Values, effects: Effects, low: Array, high: Array, fixed: Array) -> Panels:
    """Panels halved until further values agree with the polynomials, and log v moves little."""
    matrix = _matrix(CHECKS)
    done: list[list[Array]] = []
    before = np.full((low.size, 1), np.inf)
    while low.size:
        z = np.concatenate([_nodes(low, high, NODES), _nodes(low, high, CHECKS)], axis=1)
        mean, var = (a.reshape(*z.shape, -1) for a in values(z.reshape(-1)))
        found = []
        with np.errstate(invalid="ignore", over="ignore"):
            for a in (mean, var):
                size = np.abs(a).max(axis=1)
                misfit = np.abs(np.einsum("ck,pkm->pcm", matrix, a[:, :NODES]) - a[:, NODES:]).max(axis=1)
                found.append(np.where(np.isnan(misfit), np.inf, np.where(misfit > NOISE * size, misfit, 0.0)))
        mass = _mass(low, high)
        centre = mean[:, NODES + CHECKS // 2], var[:, NODES + CHECKS // 2]
        every = [*done, [low, high, mean, var]]
        all_low, all_high, means, variances = (np.concatenate([e[k] for e in every]) for k in range(4))
        place = NODES + CHECKS // 2
        scale = _Scale(_mass(all_low, all_high), means[:, place], variances[:, place])
        off = scale.matters(mass, *centre, *found)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            square = scale.second + 1e-300
            worst = np.maximum(found[0] / np.sqrt(square), found[1] / square).max(axis=1)
            total = var + fixed
            least, most = total.min(axis=1), total.max(axis=1)
            # densities are averages of 1 / sd, whose mass may lie where there is little of the score's
            centres = np.maximum(variances[:, place] + fixed, 0.0)
            each = np.where(centres > 0, _mass(all_low, all_high)[:, None] / np.sqrt(centres), 0.0)
            dense = (mass[:, None] > UNSEEN) | (mass[:, None] / np.sqrt(least) > UNSEEN * each.sum(axis=0))
            wide = ((np.where(most > least, np.log(most) - np.log(least), 0.0) > SPREAD) & dense).any(axis=1)
        off &= worst < STALLED * before[:, 0]
        stay = ~(off | wide) | (high - low <= _floor(low, high)) | (len(all_low) >= MOST)
        done.append([low[stay], high[stay], mean[stay], var[stay], found[0][stay], found[1][stay]])
        before = np.repeat(worst[~stay], 2)[:, None]
        low, high = _halved(low[~stay], high[~stay])
    low, high, mean, var, mean_slack, var_slack = (np.concatenate([d[k] for d in done]) for k in range(6))
    order = np.argsort(low)
    low, high, mean, var, mean_slack, var_slack = (a[order] for a in (low, high, mean, var, mean_slack, var_slack))
    _, centre_var, more_mean, more_sd = effects(low, high)
    with np.errstate(invalid="ignore", over="ignore"):
        more_var = np.nan_to_num(more_sd * (2 * np.sqrt(centre_var) + more_sd), nan=np.inf, posinf=np.inf)
    return Panels(
        low, high, mean[:, :NODES], var[:, :NODES], mean_slack + more_mean, var_slack + more_var,
        mean[:, NODES:], var[:, NODES:],
    )  # fmt: skip

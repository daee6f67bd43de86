"""Searches along the real line for what would refute a claim about a function: points, extremes, jumps, kinks, bends.

The function is only evaluated, on whole arrays; what is found is evidence, and what is not found proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.falsifier.trends import LEAST, Trend, grows
from tensorprog.language.atoms.declared import grids, points

__all__ = ["COARSE", "EPS", "FAR", "Line", "zoom"]

Array = NDArray[np.float64]
Values = Callable[[Array], Array]
EPS = float(np.finfo(float).eps)
FAR, KINKS = 1e4, 1e6  # slopes without bound are sought up to the first, kinks up to the second
CELLS = 16  # of a bracket, in one round of a search
MOST = 200  # brackets followed from one grid
KINK_STEP = 1e-6  # distance at which slopes on both sides of a point are compared, and 64 times it
STEEP = 1e6  # a jump is at least this steep, in units of the function's size near 0
BESIDE = np.array([1, 2, 3, 4, *(2**k for k in range(3, 13))])[:, None]  # steps on either side of a jump
COARSE, CLOSE = 1e-9, 1e-7  # rounding inside functions, and the least distance over which slopes are taken
SHARP = 16  # more bends than this are waves
NARROW = 0.2  # wider bends are no features


def zoom(f: Values, low: Array, high: Array, rounds: int = 14) -> tuple[Array, Array]:
    """Where f is largest in each bracket, by repeated subdivision, and its values there.

    Shapes    low, high (c,) -> (c,), (c,)
    """
    weights = np.linspace(0, 1, CELLS + 1)
    for _ in range(rounds):
        x = low[:, None] + (high - low)[:, None] * weights
        values = f(x.ravel()).reshape(x.shape)
        best = np.argmax(np.where(np.isnan(values), -np.inf, values), axis=1)
        rows = np.arange(len(x))
        low, high = x[rows, np.maximum(best - 1, 0)], x[rows, np.minimum(best + 1, CELLS)]
    return x[rows, best], values[rows, best]


def _spikes(size: Array) -> NDArray[np.intp]:
    """Places of the largest entries, and of those that stand out most from their neighbours."""
    beside = np.full(size.shape, 0.0)
    for shift in (2, 3):
        beside[shift:] = np.maximum(beside[shift:], size[:-shift])
        beside[:-shift] = np.maximum(beside[:-shift], size[shift:])
    out = size - beside
    chosen = np.concatenate([_largest(size), _largest(out)])
    return np.unique(chosen[size[chosen] > 0])


def _largest(values: Array) -> NDArray[np.intp]:
    """Places of the largest entries, in no order."""
    places: NDArray[np.intp] = np.argsort(values) if len(values) <= MOST else np.argpartition(values, -MOST)[-MOST:]
    return places


class Line:
    """A function on points of all scales: where it is finite, how large it is, where it jumps and bends.
    """

    def __init__(self, f: Values) -> None:
        self.f = f
        self.grids = grids()
        self.logs = self.grids[-1]
        self.x = points()
        self.v = f(self.x)

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        """Points between the nearest overflows on either side of 0."""
        bad = self.x[~np.isfinite(self.v)]
        low, high = bad[bad < 0].max(initial=-np.inf), bad[bad > 0].min(initial=np.inf)
        found: NDArray[np.bool_] = (self.x > low) & (self.x < high) & np.isfinite(self.v)
        return found

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The first and the last of the finite points."""
        x = self.x[self.finite]
        return float(x[0]), float(x[-1])

    @cached_property
    def sizes(self) -> Array:
        """The largest |value| up to the |x| of each of the finite points."""
        x, size = self.x[self.finite], np.abs(self.v[self.finite])
        order = np.argsort(np.abs(x), kind="stable")
        most = np.empty_like(size)
        most[order] = np.maximum.accumulate(size[order])
        return most

    @cached_property
    def scale(self) -> float:
        """The largest value near 0."""
        return float(np.abs(self.v[self.finite & (np.abs(self.x) <= 8)]).max(initial=0.0))

    @cached_property
    def unit(self) -> float:
        """The largest value near 0, or farther out where there is none: a slope of the function's own size."""
        near = np.abs(self.v[self.finite & (np.abs(self.x) <= FAR)]).max(initial=0.0)
        return float(self.scale or near or 1.0)

    def noise(self, v: Any) -> Any:
        """What rounding may do to values of the size given."""
        return 64 * EPS * (self.unit + np.abs(v))

    def shaken(self, x: Array) -> Array:
        """What rounding of arguments, here or inside the function, may do to values; inf where it is not resolved."""
        v = self.at(x)
        change = np.max([np.abs(self.at(x * (1 + k * 1e-12)) - v) for k in (1, 3, 7, 11, 13)], axis=0)
        shaken: Array = np.where(change > 1e-3 * (self.unit + np.abs(v)), np.inf, 16 * EPS / 1e-12 * change)
        return shaken

    def at(self, x: Array) -> Array:
        """Values, nan beyond what is finite."""
        v, (low, high) = self.f(x), self.ends
        return np.where((x >= low) & (x <= high) & np.isfinite(v), v, np.nan)

    def largest(self, sign: float) -> tuple[float, float]:
        """Place and value of the largest sign * f that is found."""
        x, v = self.x[self.finite], sign * self.v[self.finite]
        inner = np.arange(1, len(v) - 1)
        peaks = inner[(v[inner] >= v[inner - 1]) & (v[inner] >= v[inner + 1])]
        chosen = peaks[_largest(v[peaks])]
        best = int(np.argmax(v))
        place, value = float(x[best]), float(v[best])
        if chosen.size:
            near, tops = zoom(lambda t: sign * self.at(t), x[chosen - 1], x[chosen + 1])
            k = int(np.nanargmax(tops)) if np.isfinite(tops).any() else 0
            if tops[k] > value:
                place, value = float(near[k]), float(tops[k])
        return place, sign * value

    def rises(self, x: Array) -> Array:
        """Changes between neighbours, less what rounding may add."""
        v = self.at(x)
        rise = np.abs(np.diff(v)) - self.noise(v[1:]) - self.noise(v[:-1])
        return np.asarray(np.maximum(np.nan_to_num(rise), 0.0))

    def secants(self, x: Array) -> Array:
        """Slopes between neighbours, less what rounding may add."""
        return np.asarray(self.rises(x) / np.diff(x))

    def _relative(self, x: Array) -> Array:
        """Changes between neighbours beyond FAR, relative to the function's size."""
        change = self.rises(x) / (self.scale + np.abs(self.at(x[:-1])))
        return np.where(np.abs(x[:-1]) > FAR, np.nan_to_num(change), 0.0)

    def resolved(self, x: Array) -> NDArray[np.bool_]:
        """Points before the first octave on their side of 0 in a quarter of which numbers are too coarse for f."""
        coarse = ~np.isfinite(self.shaken(x))
        octave = np.maximum(np.floor(np.log2(np.abs(x) + LEAST)), 0.0).astype(int)
        found = np.ones(x.shape, dtype=bool)
        for side in (x > 0, x < 0):
            share = np.bincount(octave[side], coarse[side]) / np.maximum(np.bincount(octave[side]), 1)
            lost = np.flatnonzero(share > 0.25)
            found &= ~side | (octave < (lost[0] if lost.size else np.inf))
        return found

    def steepest(self) -> tuple[float, float, float]:
        """Two points 1e-7 or more apart, relative to |x| above 1, and the largest slope found between such.

        Accuracy  of two pairs the closer one is taken if its slope is larger by more than rounding inside the function
                  may add: `COARSE` over the relative distance
        """
        cells = [(grid[k], grid[k + 1]) for grid in self.grids for k in (_spikes(self.secants(grid)),)]
        low, high = (np.concatenate(ends) for ends in zip(*cells, strict=True))
        best = (0.0, 1.0, 0.0)
        most = -math.inf
        weights = np.linspace(0, 1, CELLS + 1)
        while low.size:
            x = low[:, None] + (high - low)[:, None] * weights
            rise = np.abs(np.diff(self.at(x.ravel()).reshape(x.shape), axis=1))
            rise = np.maximum(np.nan_to_num(rise) - self.noise(self.at(low))[:, None], 0.0)
            rows, steep = np.arange(len(x)), np.argmax(rise, axis=1)
            low, high = x[rows, steep], x[rows, steep + 1]
            apart = (high - low) / np.maximum(1.0, np.abs(low))
            slope = rise[rows, steep] / (high - low)
            sure = slope / (1 + COARSE / apart)
            k = int(np.argmax(sure))
            if sure[k] > most:
                most, best = float(sure[k]), (float(low[k]), float(high[k]), float(slope[k]))
            low, high = low[apart > CELLS * CLOSE], high[apart > CELLS * CLOSE]
        return best

    @cached_property
    def jumps(self) -> list[tuple[float, float]]:
        """Neighbouring numbers between which the function jumps, nearest to 0 first.

        Accuracy  the function changes by less than a thirtieth of the jump within 4096 numbers on one side; it is
                  steep, so that numbers far out, which lie far apart, do not make jumps of slopes
        """
        low, high = np.array(self.brackets).reshape(-1, 2).T
        apart = high - low
        a, b = self.at(low), self.at(high)
        ends = (low, a, -1), (high, b, 1)
        sides = [np.abs(self.at(x + side * BESIDE * apart) - v).max(axis=0) for x, v, side in ends]
        jump, beside = np.abs(b - a), np.min(sides, axis=0)
        close = apart <= 4 * EPS * np.maximum(1e-6, np.abs(low))
        found = close & (jump > 1e-7 * (self.scale + np.abs(a) + np.abs(b))) & (jump > 30 * beside)
        found &= jump > STEEP * apart * self.unit
        pairs = _apart(list(zip(low[found].tolist(), high[found].tolist(), strict=True)), lambda pair: pair[0])
        return sorted(pairs, key=lambda pair: abs(pair[0]))

    @cached_property
    def brackets(self) -> list[tuple[float, float]]:
        """Where bisection towards the larger change leads, from the steepest cells and those with large changes."""
        low, high = [self.corners[0]], [self.corners[1]]
        near = [(grid, np.where(np.abs(grid[:-1]) <= FAR, self.secants(grid), 0.0)) for grid in self.grids]
        far = [(grid, self._relative(grid)) for grid in self.grids[2:]]
        for grid, change in (*near, *far):
            cells = _spikes(change)
            low.append(grid[cells])
            high.append(grid[cells + 1])
        a, b = np.concatenate(low), np.concatenate(high)
        for _ in range(90):
            middle = a + (b - a) / 2
            left, centre, right = self.at(np.concatenate([a, middle, b])).reshape(3, -1)
            first = ~(np.abs(right - centre) > np.abs(centre - left))
            inside = (a < middle) & (middle < b)
            a, b = np.where(inside & ~first, middle, a), np.where(inside & first, middle, b)
        return sorted(set(zip(a.tolist(), b.tolist(), strict=True)))

    @cached_property
    def corners(self) -> tuple[Array, Array]:
        """Short intervals that hold the largest changes of the slope near the cells where it changes most."""
        starts, ends = [], []
        for grid in self.grids:
            with np.errstate(all="ignore"):
                change = np.abs(np.diff(np.diff(self.at(grid)) / np.diff(grid)))
            change = np.where(np.isfinite(change) & (np.abs(grid[1:-1]) <= KINKS), change, 0.0)
            cells = _spikes(change)
            starts.append(grid[cells])
            ends.append(grid[cells + 2])
        low, high = np.concatenate(starts), np.concatenate(ends)
        for _ in range(20):  # towards the cell with the largest second difference
            x = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, CELLS + 1)
            v = self.at(x.ravel()).reshape(x.shape)
            second = np.abs(v[:, 2:] - 2 * v[:, 1:-1] + v[:, :-2])
            best = 1 + np.argmax(np.nan_to_num(second), axis=1)
            rows = np.arange(len(x))
            coarse = (high - low) / CELLS > 4 * EPS * np.maximum(1.0, np.abs(low))
            low = np.where(coarse, x[rows, best - 1], low)
            high = np.where(coarse, x[rows, best + 1], high)
        return low, high

    @cached_property
    def bends(self) -> list[float]:
        """Points where the slope jumps or has no limit; jumps of the function are among them."""
        low, high = self.corners
        middle = (low + high) / 2
        wide = KINK_STEP * np.maximum(1.0, np.abs(middle) / 100)
        nearest, close, near, far = (self._turn(middle, step * wide) for step in (1 / 256, 1 / 16, 1, 64))
        slope = np.abs(self.at(middle + 64 * wide) - self.at(middle - 64 * wide)) / (128 * wide)
        floor = np.maximum(1e-3 * slope, 1e3 * self.noise(self.at(middle)) / wide)
        # of a smooth function they are in proportion to the step
        kept = (near >= 0.5 * far) & (close >= 0.4 * near) & (nearest >= 0.4 * close) & (near > floor)
        kept &= np.isfinite(self.shaken(middle))
        return _apart([*middle[kept].tolist(), *(low for low, _ in self.jumps)], float)

    def _turn(self, x: Array, h: Array) -> Array:
        """How much the slope changes within h of x."""
        found = np.zeros_like(x)
        for shift in (-0.5, 0.0, 0.5):
            t = x + shift * h
            middle = self.at(t)
            change = np.abs((self.at(t + h) - middle) - (middle - self.at(t - h))) / h
            found = np.maximum(found, np.nan_to_num(change))
        return found

    @cached_property
    def features(self) -> list[tuple[float, float]]:
        """Where the function bends sharply but smoothly: places, and the half-widths at half of the second derivative.

        None for waves, which are sharp everywhere, nor beyond |x| = 12.
        """
        grid = np.linspace(-12, 12, 24001)
        bend = self._bending(grid)
        inner = np.arange(1, len(bend) - 1)
        peaks = inner[(bend[inner] > bend[inner - 1]) & (bend[inner] >= bend[inner + 1])]
        peaks = peaks[bend[peaks] > 0.01 * bend.max()]
        step, found = float(grid[1] - grid[0]), []
        for k in peaks if len(peaks) <= SHARP else ():
            width = _half_width(bend, int(k))
            place, length = self._sharpen(float(grid[k + 1]), step) if width < 4 else (float(grid[k + 1]), width * step)
            if length < NARROW:
                found.append((place, length))
        return _apart(found, lambda one: one[0])

    def _bending(self, x: Array) -> Array:
        """Second differences, less what rounding may add."""
        v = self.at(x)
        return np.asarray(np.maximum(np.nan_to_num(np.abs(np.diff(v, 2)) - 2 * self.noise(v[1:-1])), 0.0))

    def _sharpen(self, place: float, step: float) -> tuple[float, float]:
        """Centre and half-width of a bend narrower than a few steps; of infinite width if it is a kink, or rounding."""
        for _ in range(8):
            x = place + step * np.linspace(-8, 8, 129)
            bend = self._bending(x)
            k = int(np.argmax(bend))
            width = _half_width(bend, k)
            place, step = float(x[k + 1]), step / 8
            if not bend[k] > 0:
                break
            if width >= 4:
                return place, width * step
        return place, math.inf

    def endless_slope(self, more: tuple[float, ...]) -> tuple[float, Trend] | None:
        """A point next to which slopes grow without bound, with slopes over shrinking distances."""
        places = {0.0, *more, *self.bends, *(low for low, _ in self.brackets)}
        x = np.array(sorted(p for p in places if abs(p) <= FAR))
        resolved = np.isfinite(self.shaken(x))
        for least in (1e-12, 1e-24, 1e-100):
            steps = np.stack([np.maximum(least, 1e-13 * np.abs(x)) ** a for a in (0.25, 0.5, 0.75, 1.0)])
            slopes = np.zeros_like(steps)
            here = self.at(x)
            for sign in (1.0, -1.0):
                there = self.at((x + sign * steps).ravel()).reshape(steps.shape)
                apart = np.abs((x + sign * steps) - x)
                with np.errstate(all="ignore"):
                    rise = np.maximum(np.abs(there - here) - self.noise(here), 0.0) / apart
                slopes = np.maximum(slopes, np.nan_to_num(rise))
            first, second, third = np.diff(np.log(np.maximum(slopes, LEAST)), axis=0)
            # faster than a power: rounding, where steps are too short; slowing down: it settles
            like_power = (second + third < 3 * first) & (third > 0.6 * second)
            for k in np.flatnonzero(like_power & (slopes.min(axis=0) > 0) & resolved):
                trend = grows(steps[[0, 1, 3], k].tolist(), slopes[[0, 1, 3], k].tolist())
                if trend is not None:
                    return float(x[k]), trend
        return None

    def slopes(self, x: Array) -> Array:
        """The largest slope found from each point over several short steps, less what rounding may add."""
        found = np.zeros_like(x)
        v = self.at(x)
        for step in (1e-3, 1e-5, 1e-7, 1e-10, 1e-12):
            y = x + step * np.maximum(np.abs(x), 1.0)
            w = self.at(y)
            with np.errstate(all="ignore"):
                rise = np.maximum(np.abs(w - v) - self.noise(v) - self.noise(w), 0.0) / np.abs(y - x)
            found = np.maximum(found, np.nan_to_num(rise))
        return found


def _half_width(bend: Array, k: int) -> float:
    """Steps from a peak to where half of its height is passed, on the wider side."""
    low = bend < 0.5 * bend[k]
    right, left = low[k:], low[k::-1]
    return float(max(int(np.argmax(side)) if side.any() else len(bend) for side in (right, left)))


def _apart(found: list[Any], place: Callable[[Any], float]) -> list[Any]:
    """One of each cluster."""
    kept: list[Any] = []
    for one in sorted(found, key=place):
        if not kept or place(one) - place(kept[-1]) > 1e-5 * max(1.0, abs(place(one))):
            kept.append(one)
    return kept

"""The search for numbers that refute a property: a function along a line, its extremes, trends, jumps and bends.

A declared function of one variable is its own line; an expression is searched along lines through the space of its
arguments (`witness`).  The function is only evaluated, on whole arrays; what is not found proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import declared

__all__ = ["COARSE", "EPS", "Line", "Trend", "racing", "rising"]

Array = NDArray[np.float64]
Values = Callable[[Array], Array]
EPS = float(np.finfo(float).eps)
FAR, KINKS = 1e4, 1e6  # slopes without bound are sought up to the first, kinks up to the second
CELLS, ROUNDS = 16, 14  # of a bracket in one round of a search, and how many rounds
MOST = 200  # brackets followed from one grid
KINK_STEP = 1e-6  # distance at which slopes on both sides of a point are compared, and 64 times it
STEEP = 1e6  # a jump is at least this steep, in units of the function's size near 0
BESIDE = np.array([1, 2, 3, 4, *(2**k for k in range(3, 13))])[:, None]  # steps on either side of a jump
COARSE, CLOSE = 1e-9, 1e-7  # rounding inside functions, and the least distance over which slopes are taken
SHARP = 16  # more bends than this are waves
NARROW = 0.2  # wider bends are no features
TRUST = 1e4  # growth as slow as a logarithm is told from what settles only on longer scales than this
HUGE = 1e100  # beyond this values have all but overflowed; what has arguments beyond it does not race
SETTLED = 64  # points: a maximum that is older is not exceeded any more
DECADES = 10.0 ** -np.arange(4.0, 151.0)  # distances over which slopes without bound are looked for
LEAST_DECADES = 6  # over which they must be seen to rise
RESOLVED = 1e-12  # changes of values that are told from rounding, relative to these
LEAST = 1e-300  # stands for 0 in logarithms


# ---- trends: whether ratios keep growing along a scale of lengths, as far as numbers go ------------------------------


@dataclass(frozen=True)
class Trend:
    """Three places along a scale of lengths, and the ratios there, the last of which is the largest."""

    at: tuple[float, float, float]
    ratio: tuple[float, float, float]
    powers: tuple[float, float] | None = None  # of |x| between the places, where ratios are no numbers

    def __str__(self) -> str:
        if self.powers is not None:
            first, second = self.powers
            a, b, c = (f"{x:.3g}" for x in self.at)
            return f"like |x|**{first:.3g} from x = {a} to {b}, like |x|**{second:.3g} from there to {c}"
        places = ", ".join(f"{x:.3g}" for x in self.at)
        return f"{', '.join(f'{r:.3g}' for r in self.ratio)} at x = {places}"


def rising(x: Array, size: Array, power: float = 0.0) -> Trend | None:
    """Whether size / |x|**power grows without bound along |x| >= 1, as powers and logarithms of |x| do.

    Let the points end at R, X be the last at which the ratio is largest from R**(1/4) on, and L(u) the logarithm of its
    maximum from there to X**u: an envelope, which oscillation does not hide, past what happens near 0.
    In u, a power is a line, a power of log |x| is log u, exp is convex, and what settles is flat from some place on. So
    the ratio is taken to grow for ever if X is one of the last points, L rises in the last quarter about as much as
    in the one before (half as much where X is large, where log does and 1 - c/X does not), and rises up to the end.

    Accuracy  found: whatever grows along the points at least like a power of log |x| if R > 10**4, or else of |x|, also
              times waves of which some of any 64 points in a row are near a crest. Not found: what has not
              caught up at R with its values next to R**(1/4); log log |x|; crests that are rarer. Mistaken for growth:
              what rises like this as far as it can be computed and settles beyond
    """
    far = np.abs(x)
    order = np.argsort(far, kind="stable")
    order = order[(far[order] >= 1) & np.isfinite(size[order])]
    order = order[far[order] >= far[order[-1:]].max(initial=1.0) ** 0.25]
    x, far, size = x[order], far[order], size[order]
    if not size.max(initial=0.0) > 0 or far[-1] < 2:
        return None
    log = np.log(np.maximum(size, LEAST)) - power * np.log(far)
    last = len(log) - 1 - int(np.argmax(log[::-1]))
    if len(log) - 1 - last > SETTLED or far[last] < 2:
        return None
    log, u = log[: last + 1], np.log(far[: last + 1]) / np.log(far[last])
    top = np.maximum.accumulate(log)

    def below(place: float) -> float:
        return float(top[last] - top[max(int(np.searchsorted(u, place, "right")) - 1, 0)])

    rise, both = below(0.75), below(0.5)
    concave = 0.5 if far[last] >= TRUST else 0.9
    if not (rise >= math.log(1.05) and rise >= concave * (both - rise)):
        return None
    if any(below(1 - part) < 0.3 * 4 * part * rise for part in (1 / 16, 1 / 64)):
        return None
    quarters = [(u >= low) & (u <= low + 0.25) for low in (0.25, 0.5, 0.75)]
    places = [int(np.argmax(np.where(quarter, log, -np.inf))) for quarter in quarters]
    a, b, c = (float(x[k]) for k in places)
    d, e, f = (float(np.exp(np.minimum(log[k], 709.0))) for k in places)
    return Trend((a, b, c), (d, e, f))


def racing(x: Array, size: Array, power: float) -> Trend | None:
    """Whether size overflows while it grows from octave to octave by more and more powers of |x|, more than `power`.

    Accuracy  found: exp(|x|**r) for powers below half of its last exponent (500 for exp, 300 for exp(sqrt|x|))
    """
    kept = np.isfinite(size) & (np.abs(x) >= 1) & (size > 0)
    x, size = x[kept], size[kept]
    end = np.abs(x).max(initial=1.0)
    if not (8 < end < HUGE and size.max() > HUGE):
        return None
    places = [int(np.argmin(np.abs(np.abs(x) - end / part))) for part in (4, 2, 1)]
    early, middle, late = (float(np.log(size[k])) for k in places)
    before, after = (middle - early) / math.log(2), (late - middle) / math.log(2)
    if not (before > 0 and after > power + 1 and after > 1.3 * before):
        return None
    a, b, c = (float(x[k]) for k in places)
    return Trend((a, b, c), (math.inf, math.inf, math.inf), (before - power, after - power))


# ---- lines -----------------------------------------------------------------------------------------------------------


def zoom(f: Values, low: Array, high: Array) -> tuple[Array, Array]:
    """Where f is largest in each bracket, by repeated subdivision, and its values there.

    Shapes    low, high (c,) -> (c,), (c,)
    """
    weights = np.linspace(0, 1, CELLS + 1)
    for _ in range(ROUNDS):
        x = low[:, None] + (high - low)[:, None] * weights
        values = f(x.ravel()).reshape(x.shape)
        best = np.argmax(np.where(np.isnan(values), -np.inf, values), axis=1)
        rows = np.arange(len(x))
        low, high = x[rows, np.maximum(best - 1, 0)], x[rows, np.minimum(best + 1, CELLS)]
    return x[rows, best], values[rows, best]


def _spikes(size: Array, most: int) -> NDArray[np.intp]:
    """Places of the largest entries, and of those that stand out most from their neighbours."""
    beside = np.full(size.shape, 0.0)
    for shift in (2, 3):
        beside[shift:] = np.maximum(beside[shift:], size[:-shift])
        beside[:-shift] = np.maximum(beside[:-shift], size[shift:])
    out = size - beside
    chosen = np.concatenate([_largest(size, most), _largest(out, most)])
    return np.unique(chosen[size[chosen] > 0])


def _largest(values: Array, most: int) -> NDArray[np.intp]:
    """Places of the largest entries, in no order."""
    places: NDArray[np.intp] = np.argsort(values) if len(values) <= most else np.argpartition(values, -most)[-most:]
    return places


class Line:
    """A function on points of all scales: where it is finite, how large it is, where it jumps and bends.

    grids: increasing points: even ones around 0 first, the last two even in log |x| on either side of 0
    x: the points of all grids, and others
    most: brackets that are followed from one grid
    rounding: of values, relative to their size; 0 where it is judged otherwise
    places: where slopes without bound are looked for
    """

    def __init__(
        self,
        f: Values,
        grids: tuple[Array, ...] | None = None,
        x: Array | None = None,
        most: int = MOST,
        rounding: float = 64 * EPS,
        places: Iterable[float] = (0.0,),
    ) -> None:
        self.f, self.most, self.rounding, self.places = f, most, rounding, places
        self.grids = declared.grids() if grids is None else grids
        self.x = declared.points() if x is None else x
        self.v = f(self.x)

    @property
    def logs(self) -> Array:
        """The grid that is even in log x."""
        return self.grids[-1]

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        """Points between the nearest overflows on either side of 0."""
        bad = self.x[~np.isfinite(self.v)]
        low, high = bad[bad < 0].max(initial=-np.inf), bad[bad > 0].min(initial=np.inf)
        found: NDArray[np.bool_] = (self.x > low) & (self.x < high) & np.isfinite(self.v)
        return found

    @property
    def reaches(self) -> bool:
        """Whether there are finite points on both sides of 0, or around it."""
        return bool(self.finite.any()) and self.ends[0] < 0 < self.ends[1]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The first and the last of the finite points."""
        x = self.x[self.finite]
        return float(x[0]), float(x[-1])

    @property
    def sides(self) -> Iterator[tuple[Array, Array]]:
        """The finite points on either side of 0, from there outwards, with |value|."""
        x, size = self.x[self.finite], np.abs(self.v[self.finite])
        yield x[x > 0], size[x > 0]
        yield x[x < 0][::-1], size[x < 0][::-1]

    def overflows(self, side: Array) -> bool:
        """Whether the value beyond the finite points of a side is infinite, rather than no number."""
        end = side[-1]
        beyond = self.v[self.x > end] if end > 0 else self.v[self.x < end][::-1]
        return bool(beyond.size and np.isinf(beyond[0]))

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
        return self.rounding * (self.unit + np.abs(v))

    def shaken(self, x: Array) -> Array:
        """What rounding of arguments, here or inside the function, may do to values; inf where it is not resolved."""
        v = self.at(x)
        change = np.max([np.abs(self.at(x * (1 + k * 1e-12)) - v) for k in (1, 3, 7, 11, 13)], axis=0)
        shaken: Array = np.where(change > 1e-3 * (self.unit + np.abs(v)), np.inf, 16 * EPS / 1e-12 * change)
        return shaken

    def at(self, x: Array) -> Array:
        """Values, nan beyond what is finite."""
        v, (low, high) = self.f(x.ravel()).reshape(x.shape), self.ends
        return np.where((x >= low) & (x <= high) & np.isfinite(v), v, np.nan)

    def largest(self, sign: float) -> tuple[float, float]:
        """Place and value of the largest sign * f that is found."""
        x, v = self.x[self.finite], sign * self.v[self.finite]
        inner = np.arange(1, len(v) - 1)
        peaks = inner[(v[inner] >= v[inner - 1]) & (v[inner] >= v[inner + 1])]
        chosen = peaks[_largest(v[peaks], self.most)]
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
        cells = [(grid[k], grid[k + 1]) for grid in self.grids for k in (_spikes(self.secants(grid), self.most),)]
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
        far = [(grid, self._relative(grid)) for grid in self.grids[-2:]]
        for grid, change in (*near, *far):
            cells = _spikes(change, self.most)
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
            cells = _spikes(change, self.most)
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

    def endless_slopes(self) -> Iterator[tuple[float, Array, Array]]:
        """Places next to which slopes grow without bound as distances shrink, the (signed) distances and the slopes.

        The slope is taken to be endless if it rises from each decade of distances to the next about as much as before
        or more, as log(1/distance) and powers do, down to where numbers or values are too coarse to tell: what is steep
        but Lipschitz settles before.  The changes of the value shrink, else they are a jump's.
        """
        x = np.array(sorted({p for p in self.places if abs(p) <= FAR}))
        x = x[np.isfinite(self.shaken(x))]
        for sign in (1.0, -1.0):
            there = x + sign * DECADES[:, None]
            value = self.at(there)
            change = np.abs(value - self.at(x))
            slope = change / np.abs(there - x)
            told = (DECADES[:, None] >= 1e-13 * np.abs(x)) & np.isfinite(change)
            told[1:] &= 0.1 * change[:-1] > RESOLVED * np.abs(value[1:])  # what a slope that has settled would leave
            told = np.logical_and.accumulate(told)
            first = slope[:LEAST_DECADES]
            for k in np.flatnonzero(told[: len(first)].all(axis=0) & (np.diff(first, axis=0) > 0).all(axis=0)):
                slopes, changes = slope[told[:, k], k], change[told[:, k], k]
                rise = np.diff(slopes)
                steadily = (rise > 0).all() and (rise[1:] > 0.8 * rise[:-1]).all() and slopes[-1] > 1.5 * slopes[0]
                if steadily and (changes[1:] < 0.9 * changes[:-1]).all():
                    yield float(x[k]), sign * DECADES[: len(slopes)], slopes

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

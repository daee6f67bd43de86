"""Where the second derivative of a function of one real variable jumps: found from its values alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["curvature", "jumps_of_curvature", "told"]

Array = NDArray[np.float64]
Values = Callable[[Array], Array]
EPS = float(np.finfo(float).eps)
NEAR, FAR = 12.0, 250.0  # lengths are absolute up to the first, and relative to |x| from there to the second
OUTER = NEAR * np.exp(np.arange(0, np.log(FAR / NEAR), 1e-4))
GRIDS = np.linspace(-NEAR, NEAR, 24001), OUTER, -OUTER
STEPS = np.array([3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7])  # of second differences beside a place
ALWAYS = 5  # steps that rounding leaves to every jump that is found; shorter ones where it leaves them
ALIKE = 1.8  # a jump is the same at all steps; what is smooth falls with the step, by 3 or more
MOST, WAVES = 200, 20  # places looked at on each grid; more jumps than this are waves
CELLS, ROUNDS = 16, 6
LEAST = 1e-3  # of a jump, in units of the function's size
CLOSE = 1e-7  # a spacing at which differences of what is smooth are rounding
NOISE = 6.0  # times that rounding: what third differences must exceed, and thus jumps times the square of their spacing
ROUNDING = 24**2 * NOISE  # of jumps times h**2: a place is known up to three cells, of which a 16th would be too short


def told(x: float) -> float:
    """The length from which places near x are told apart; each is known to a tenth of it."""
    return 1e-4 * max(1.0, abs(x) / NEAR)


def _lengths(x: Array) -> Array:
    """The unit of length at x."""
    return np.maximum(1.0, np.abs(x) / NEAR)


def curvature(f: Values, x: Array, h: Array) -> Array:
    """Second differences at x over h, divided by h**2."""
    return (f(x + h) - 2 * f(x) + f(x - h)) / h**2


def jumps_of_curvature(f: Values) -> list[float]:
    """Places in [-250, 250] where f'' jumps.

    The stencils on both sides leave out the place itself, so that their difference is the jump plus 3 h f'''.  Steps
    get as short as rounding allows.

    Accuracy  places to 1e-5; jumps above a thousandth of the function's size (beyond 12 above a hundredth), and 1e-4 or
              more from others; a smooth change of f'' by the function's size is taken for one if it happens within
              5e-6, a smaller one if within 1e-4; none is found among waves.  Lengths are relative to |x| / 12 beyond 12
    """
    near = np.abs(f(GRIDS[0][np.abs(GRIDS[0]) <= 8]))
    low, high = (np.concatenate(ends) for ends in zip(*(_candidates(f, grid) for grid in GRIDS), strict=True))
    size = np.fmax(np.abs(f(low)), near[np.isfinite(near)].max(initial=0.0))
    rounding = _rounding(f, low)
    low, high = _narrowed(f, low, high, NOISE * rounding)
    places = (low + high) / 2
    kept = _alike(f, places, rounding, LEAST * size / _lengths(places) ** 2)
    found: list[float] = []
    for one in sorted(places[kept].tolist()):
        if not found or one - found[-1] > told(one):
            found.append(one)
    return found if len(found) <= WAVES else []


def _alike(f: Values, places: Array, rounding: Array, least: Array) -> NDArray[np.bool_]:
    """Whether f'' differs on both sides of places by as much at each of the three last steps that tell."""
    h = STEPS * _lengths(places)[:, None]
    before, after = (curvature(f, (places[:, None] + side * 1.5 * h).ravel(), h.ravel()) for side in (-1, 1))
    jump = np.abs(after - before).reshape(h.shape)
    known = jump[:, ALWAYS - 1]
    tells = known[:, None] * h**2 > ROUNDING * rounding[:, None]
    tells[:, :ALWAYS] = True
    last, rows = np.count_nonzero(tells, axis=1) - 1, np.arange(len(h))
    with np.errstate(all="ignore"):
        ratio = jump[:, 1:] / jump[:, :-1]
    alike = (ratio > 1 / ALIKE) & (ratio < ALIKE)
    kept: NDArray[np.bool_] = alike[rows, last - 1] & alike[rows, last - 2] & (known > least)
    return kept


def _candidates(f: Values, grid: Array) -> tuple[Array, Array]:
    """Cells with the largest third differences, and those that differ most from the cells beside them."""
    third = np.nan_to_num(np.diff(f(grid), 3))
    beside = (np.roll(third, 4) + np.roll(third, -4)) / 2
    sizes = np.abs(third), np.abs(third - beside)
    chosen = np.unique(np.concatenate([np.argpartition(size, -MOST)[-MOST:] for size in sizes]))
    ends = grid[chosen], grid[chosen + 3]
    return np.minimum(*ends), np.maximum(*ends)


def _rounding(f: Values, x: Array) -> Array:
    """What rounding does to third differences next to x."""
    t = x[:, None] - CLOSE * _lengths(x)[:, None] * np.arange(1, CELLS + 2)
    v = f(t.ravel()).reshape(t.shape)
    third = np.abs(np.diff(v, 3, axis=1)).max(axis=1)
    rounding: Array = np.fmax(third, 4 * EPS * np.abs(v[:, 0]))
    return rounding


def _narrowed(f: Values, low: Array, high: Array, noise: Array) -> tuple[Array, Array]:
    """Parts of the cells that hold their largest third differences, as long as these are more than noise."""
    for _ in range(ROUNDS):
        x = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, CELLS + 1)
        third = np.nan_to_num(np.abs(np.diff(f(x.ravel()).reshape(x.shape), 3, axis=1)))
        rows, best = np.arange(len(x)), np.argmax(third, axis=1)
        clear = third[rows, best] > noise
        low, high = np.where(clear, x[rows, best], low), np.where(clear, x[rows, best + 3], high)
    return low, high

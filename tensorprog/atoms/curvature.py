"""Where the second derivative of a function of one real variable jumps: found from its values alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["TOLD", "curvature", "jumps_of_curvature"]

Array = NDArray[np.float64]
Values = Callable[[Array], Array]
EPS = float(np.finfo(float).eps)
GRID = np.linspace(-12, 12, 24001)
STEPS = np.array([3e-3, 1e-3, 3e-4, 1e-4, 3e-5])  # of second differences on both sides of a place
TOLD = 1e-4  # places are known to a tenth of this
ALIKE = 1.8  # a jump is the same at all steps; what is smooth falls with the step, by 3 or more
MOST, WAVES = 200, 20  # places looked at; more jumps than this are waves
CELLS, ROUNDS = 16, 3
LEAST = 1e-3  # of a jump, in units of the function's size near 0


def curvature(f: Values, x: Array, h: Array) -> Array:
    """Second differences at x over h, divided by h**2."""
    return (f(x + h) - 2 * f(x) + f(x - h)) / h**2


def jumps_of_curvature(f: Values) -> list[float]:
    """Places in [-12, 12] where f'' jumps.

    The stencils on both sides leave out the place itself, so that their difference is the jump plus 3 h f'''.

    Accuracy  places to 1e-5; jumps above a thousandth of the function's size near 0, and 1e-4 or more from others; a
              smooth change of f'' within 3e-5 is taken for one, and none is found among waves
    """
    low, high = _narrowed(f, *_candidates(f))
    place = (low + high) / 2
    size = np.abs(f(GRID[np.abs(GRID) <= 8]))
    unit = float(size[np.isfinite(size)].max(initial=0.0))
    x, h = place[:, None], STEPS[None, :]
    sides = [curvature(f, (x + side * 1.5 * h).ravel(), np.broadcast_to(h, (len(place), len(STEPS))).ravel())
             for side in (1, -1)]
    jump = np.abs(sides[0] - sides[1]).reshape(len(place), len(STEPS))
    with np.errstate(all="ignore"):
        ratio = jump[:, 1:] / jump[:, :-1]
    floor = np.maximum(LEAST * unit, 400 * EPS * unit / STEPS[-1] ** 2)
    kept = np.all((ratio > 1 / ALIKE) & (ratio < ALIKE), axis=1) & (jump[:, -1] > floor)
    found: list[float] = []
    for one in sorted(place[kept].tolist()):
        if not found or one - found[-1] > TOLD:
            found.append(one)
    return found if len(found) <= WAVES else []


def _candidates(f: Values) -> tuple[Array, Array]:
    """Cells with the largest third differences, and those that stand out most from the cells beside them."""
    third = np.nan_to_num(np.abs(np.diff(f(GRID), 3)))
    beside = np.maximum(np.roll(third, 4), np.roll(third, -4))
    chosen = np.unique(np.concatenate([np.argsort(third)[-MOST:], np.argsort(third - beside)[-MOST:]]))
    return GRID[chosen], GRID[chosen + 3]


def _narrowed(f: Values, low: Array, high: Array) -> tuple[Array, Array]:
    """Parts of the cells that hold their largest third differences."""
    for _ in range(ROUNDS):
        x = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, CELLS + 1)
        third = np.nan_to_num(np.abs(np.diff(f(x.ravel()).reshape(x.shape), 3, axis=1)))
        rows, best = np.arange(len(x)), np.argmax(third, axis=1)
        low, high = x[rows, best], x[rows, best + 3]
    return low, high

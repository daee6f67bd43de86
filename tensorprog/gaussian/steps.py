"""Closed kernels step by step: a list of steps, each of which makes one array of numbers from earlier ones.

A step knows numbers of X, one for each row or place, and numbers of Y.  numpy takes one step after the other, for a
tile of pairs or for arrays of any shape.  Compiled code (`compiled`) takes all steps for one row of numbers after the
other, which never leaves the cache of a processor.  Both share the formulas of this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS
from tensorprog.gaussian.fast import passes

Array = NDArray[Any]
Cut = tuple[slice, ...]

__all__ = ["ONE", "ZERO", "Steps", "bounded_cosine", "steep_angle", "turn", "two_product"]

# what steps make: total + number * x, total + number * x y, and with numbers l of X and r of Y total + number * x l r;
# what the formulas say, of l and r, and of those that follow them; one of the arrays that are given
LINEAR, PRODUCT, COSINE, ANGLE, OUTER, TURN, INVERSE, STEEP, RAMP, KNOWN = range(10)
ZERO, ONE = 0, 1  # arrays that all steps can read; the first step makes array 2
# asin loses 1 / sqrt(1 - r^2) of relative accuracy: beyond this correlation 1 - r^2 comes from exact products
STEEPEST = 0.999
MANY = 1 << 12  # numbers that are worth a compiled pass


def turn(left: Any, right: Any, cov: Any) -> Any:
    """A correlation kept in [-1, 1], of a covariance and inverse deviations."""
    return np.minimum(np.maximum(left * right * cov, -1.0), 1.0)


def cosine(r: Any) -> Any:
    """sqrt(1 - r^2) of the rounded r."""
    return np.sqrt((1.0 - r) * (1.0 + r))


def bounded_cosine(r: Any, p: Any, q: Any) -> Any:
    """The same of r itself, of which r^2 <= (1 - p) (1 - q) is known."""
    return np.sqrt(np.maximum((1.0 - r) * (1.0 + r), p + q - p * q))


def ramp(r: Any, s: Any, p: Any, rest: Any, q: Any, other: Any) -> Any:
    """(p q + r^2 (1 - p - q)) / s with rest = 1 - p, other = 1 - q, s^2 = 1 - r^2, for r^2 <= p q.

    With t = p + q - 1 the dividend is t s^2 + (1 - p) (1 - q), and p q - t r^2: of both all summands are positive, for
    t > 0 and for t < 0.  The derivative of all of the kernel by r is bounded, so that rounding of r costs little
    anywhere, provided that s belongs to the same rounded r.
    """
    tilt = np.minimum(p, q) - np.minimum(rest, other)
    size = np.abs(tilt)
    top = ((size + tilt) * (s * s) + (size - tilt) * (r * r)) * 0.5 + np.minimum(rest * other, p * q)
    return top / np.maximum(s, EPS)


def two_product(a: Any, b: Any) -> Any:
    """Product and its rounding error: p + e = a b exactly (Dekker 1971), barring over- and underflow."""
    one, two = 134217729.0 * a, 134217729.0 * b  # 2^27 + 1
    high, upper = one - (one - a), two - (two - b)
    low, lower, p = a - high, b - upper, a * b
    return p, ((high * upper - p) + high * lower + low * upper) + low * lower


def steep_angle(r: Any, cov: Any, v: Any, h: Any, w: Any, k: Any) -> Any:
    """asin r near +-1, r = cov / sqrt((v + h) (w + k)): d asin = d r / s, so that s = sqrt(1 - r^2) must be exact.

    The first difference is exact (Sterbenz).
    """
    (p, e), (q, f) = two_product(v, w), two_product(cov, cov)
    square = np.maximum((p - q) + (e - f), 0.0) + (h * w + k * v + h * k)
    return np.copysign(math.pi / 2 - np.arcsin(np.sqrt(square / ((v + h) * (w + k)))), r)


# how many numbers of X and of Y a step reads, and what it makes of x, y and these
FORMULAS: dict[int, tuple[int, Callable[..., Any]]] = {
    LINEAR: (0, lambda x, y: x),
    PRODUCT: (0, lambda x, y: x * y),
    OUTER: (1, lambda x, y, left, right: x * (left * right)),
    TURN: (1, lambda x, y, left, right: turn(left, right, x)),
    COSINE: (0, lambda x, y: cosine(x)),
    ANGLE: (0, lambda x, y: np.arcsin(x)),
    STEEP: (2, steep_angle),
    RAMP: (2, ramp),
    INVERSE: (1, lambda x, y, left, right: 1.0 / bounded_cosine(x, left, right)),
    KNOWN: (0, lambda x, y: x),
}


class Steps:
    """Steps, with numbers of X and of Y that broadcast with the arrays.

    `left` and `right` have one array for each number; `result` is the array that is asked for.
    """

    result: int

    def __init__(self) -> None:
        self.steps: list[tuple[int, ...]] = []  # kind, total, x, y, place of numbers of X and Y
        self.numbers: list[float] = []
        self.left: list[Array] = []
        self.right: list[Array] = []
        self.made: dict[Any, int] = {}  # what several kernels share

    def add(self, kind: int, x: int = ZERO, y: int = ZERO, total: int = ZERO, number: float = 1.0, at: int = 0) -> int:
        """The place of what a step makes, which is taken once."""
        step = kind, total, x, y, at
        if (step, number) not in self.made:
            self.made[step, number] = len(self.steps) + 2
            self.steps.append(step)
            self.numbers.append(number)
        return self.made[step, number]

    def known(self) -> int:
        """One more array that is given."""
        return self.add(KNOWN, number=float(sum(step[0] == KNOWN for step in self.steps)))

    def sides(self, left: Sequence[Array], right: Sequence[Array]) -> int:
        """Some more numbers of X and of Y; the place of the first."""
        self.left += left
        self.right += right
        return len(self.left) - len(left)

    def all_of(self, given: Array, shape: tuple[int, ...]) -> Array:
        """The result for one array, of any shape that broadcasts with the numbers of X and Y.

        Shapes    -> shape
        """
        if passes() is None or math.prod(shape) < MANY:
            found = self.by_numpy([given], (), ())
            return found if found.shape == shape else np.broadcast_to(found, shape).copy()
        sizes = [
            np.broadcast_shapes((1,) * len(shape), *(side.shape for side in own)) for own in (self.left, self.right)
        ]
        first = len(shape)  # of the last axes, along which numbers of X and Y change as the array does, or not at all
        while first and all(math.prod(size[first - 1 :]) in (1, math.prod(shape[first - 1 :])) for size in sizes):
            first -= 1
        lead = shape[:first]
        places = [np.arange(math.prod(size[:first])).reshape(size[:first]) for size in sizes]
        sides = [
            np.stack([np.broadcast_to(side, size) for side in own or [np.ones(())]]).reshape(
                -1, place.size, math.prod(size[first:])
            )
            for own, size, place in zip((self.left, self.right), sizes, places, strict=True)
        ]
        rows = [np.broadcast_to(place, lead).ravel() for place in places]
        array = np.broadcast_to(given, shape).reshape(1, math.prod(lead), -1)
        return self._walked(sides, rows, 0, array).reshape(shape)

    def tile(self, given: Sequence[Array], rows: slice, columns: slice) -> Array:
        """The result for a tile of all pairs of X, of numbers (n, 1), and Y, of numbers (1, n).

        Shapes    given, the arrays at the tile, (m, k) -> (m, k)
        """
        if passes() is None:
            return self.by_numpy(given, (rows,), (slice(None), columns))
        here = np.arange(len(self.left[0]))[rows] if self.left else np.zeros(given[0].shape[0], np.int64)
        return self._walked(self._stacked, (here, np.zeros_like(here)), columns.start, np.stack(given))

    @cached_property
    def _stacked(self) -> list[Array]:
        """The numbers of X, and those of Y, one array each."""
        return [np.stack(own or [np.ones((1, 1))]) for own in (self.left, self.right)]

    def _walked(self, sides: Sequence[Array], rows: Sequence[Array], start: int, given: Array) -> Array:
        """The result by compiled code.

        Shapes    sides (numbers, rows of theirs, columns or 1) of X and of Y; given (arrays, m, n) -> (m, n)
        """
        found, compiled = np.empty(given.shape[1:]), passes()
        assert compiled is not None
        arrays = (np.ascontiguousarray(each) for each in (*sides, *rows, given))
        compiled.walk(np.array(self.steps), np.array(self.numbers), self.result, *arrays, start, found)
        return found

    def by_numpy(self, given: Sequence[Array], left: Cut, right: Cut) -> Array:
        """The result for a tile, of the arrays that are given there, by numpy.

        Shapes    `left` and `right` take from the numbers of X and of Y what belongs to the tile
        """
        rows: dict[int, Any] = {ZERO: 0.0, ONE: 1.0}
        for n, ((kind, total, x, y, at), number) in enumerate(zip(self.steps, self.numbers, strict=True)):
            a, b, (count, formula) = rows[x], rows[y], FORMULAS[kind]
            own = [
                side[cut] for sides, cut in ((self.left, left), (self.right, right)) for side in sides[at : at + count]
            ]
            if kind == KNOWN:
                found = given[int(number)]
            elif kind == STEEP:
                found = rows[total]
                if (steep := np.abs(a) > STEEPEST).any():
                    found = found.copy()
                    found[steep] = steep_angle(*(np.broadcast_to(each, found.shape)[steep] for each in (a, b, *own)))
            else:
                found = formula(a, b, *own)
                found = found * number if number != 1.0 or kind == LINEAR else found
                found = found if total == ZERO else found + rows[total]
            rows[n + 2] = found
            for read in {total, x, y}:
                if self._last[read] == n:
                    del rows[read]
        return np.asarray(rows[self.result])

    @cached_property
    def _last(self) -> dict[int, int]:
        """The last step that reads an array."""
        return {read: n for n, step in enumerate(self.steps) for read in step[1:4]} | {self.result: len(self.steps)}

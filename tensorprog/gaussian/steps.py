"""Closed kernels step by step: a list of steps, each of which makes one array of numbers from earlier ones.

A step knows numbers of X, one for each row or place, and numbers of Y.  numpy takes one step after the other, for a
tile of pairs or for arrays of any shape.  Compiled code (`compiled`) takes all steps for one row of numbers after the
other, which never leaves the cache of a processor.  Both share the formulas of this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS
from tensorprog.gaussian.fast import passes

Array = NDArray[Any]

__all__ = [
    "ONE",
    "STEEPEST",
    "ZERO",
    "KernelSteps",
    "Kind",
    "arcsine",
    "bounded_cosine",
    "cosine",
    "ramp",
    "steep_angle",
    "turn",
    "two_product",
]  # fmt: skip

ZERO, ONE = 0, 1  # arrays that all steps can read; the first step makes array 2
# asin r loses 1 / sqrt(1 - r^2) of relative accuracy: beyond this angle, of r = 0.999, 1 - r^2 is of exact products
STEEPEST = 1.526
MANY = 1 << 12  # numbers that are worth a compiled pass


class Kind(IntEnum):
    """What steps make of arrays x and y, and of numbers l of X and r of Y (angles and ramps also of those that follow).

    Of most of them there is a formula below.
    """

    LINEAR = 0  # total + number * x
    PRODUCT = 1  # total + number * x y
    COSINE = 2
    ANGLE = 3
    KNOWN = 4  # a given array
    OUTER = 5  # total + number * x l r
    TURN = 6
    INVERSE = 7
    STEEP = 8
    RAMP = 9


def turn(left: Any, right: Any, cov: Any) -> Any:
    """A correlation kept in [-1, 1], of a covariance and inverse deviations."""
    return np.minimum(np.maximum(left * right * cov, -1.0), 1.0)


def cosine(r: Any) -> Any:
    """sqrt(1 - r^2) of the rounded r."""
    return np.sqrt((1.0 - r) * (1.0 + r))


def bounded_cosine(r: Any, p: Any, q: Any) -> Any:
    """The same of r itself, of which r^2 <= (1 - p) (1 - q) is known."""
    return np.sqrt(np.maximum((1.0 - r) * (1.0 + r), p + q - p * q))


def arcsine(r: Any) -> Any:
    """asin r."""
    return np.arcsin(r)


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


def steep_angle(cov: Any, v: Any, h: Any, w: Any, k: Any) -> Any:
    """asin r near +-1, r = cov / sqrt((v + h) (w + k)): d asin = d r / s, so that s = sqrt(1 - r^2) must be exact.

    The first difference is exact (Sterbenz).
    """
    (p, e), (q, f) = two_product(v, w), two_product(cov, cov)
    square = np.maximum((p - q) + (e - f), 0.0) + (h * w + k * v + h * k)
    return np.copysign(math.pi / 2 - np.arcsin(np.sqrt(square / ((v + h) * (w + k)))), cov)


def refined(angle: Array, *law: Array) -> Array:
    """Angles, where they are steep those of a law."""
    steep = np.abs(angle) > STEEPEST
    if steep.all():  # as of one variable
        return np.asarray(steep_angle(*law))
    found = angle.copy()
    found[steep] = steep_angle(*(np.broadcast_to(each, angle.shape)[steep] for each in law))
    return found


# how many numbers of X and of Y a step reads, and what it makes of x, y and these
FORMULAS: dict[int, tuple[int, Callable[..., Any]]] = {
    Kind.LINEAR: (0, lambda x, y: x),
    Kind.PRODUCT: (0, lambda x, y: x * y),
    Kind.OUTER: (1, lambda x, y, left, right: x * (left * right)),
    Kind.TURN: (1, lambda x, y, left, right: turn(left, right, x)),
    Kind.COSINE: (0, lambda x, y: cosine(x)),
    Kind.ANGLE: (0, lambda x, y: arcsine(x)),
    Kind.STEEP: (2, refined),
    Kind.RAMP: (2, ramp),
    Kind.INVERSE: (1, lambda x, y, left, right: 1.0 / bounded_cosine(x, left, right)),
}


class KernelSteps:
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

    def sides(self, left: Sequence[Array], right: Sequence[Array]) -> int:
        """Some more numbers of X and of Y; the place of the first."""
        self.left += left
        self.right += right
        return len(self.left) - len(left)

    def run(
        self, given: Sequence[Array], shape: tuple[int, ...], left: Any = (), right: Any = (), out: Array | None = None
    ) -> Array:
        """The result, of arrays that are given, and of what `left` and `right` take from the numbers of X and Y.

        Shapes    all broadcast to shape -> shape; it may stand in `out`, a matrix, with X its rows and Y its columns
        """
        sides, compiled = ([side[left] for side in self.left], [side[right] for side in self.right]), passes()
        if compiled is None or math.prod(shape) < MANY:
            found = self._by_numpy(given, *sides)
            return found if found.shape == shape else np.broadcast_to(found, shape).copy()
        sizes = [np.broadcast_shapes((1,) * len(shape), *(side.shape for side in own)) for own in sides]
        first = len(shape)  # of the last axes, along which numbers of X and Y change as the arrays do, or not at all
        while first > (out is not None) and all(
            math.prod(size[first - 1 :]) in (1, math.prod(shape[first - 1 :])) for size in sizes
        ):
            first -= 1
        arrays, rows, found = list[Array](), list[Array](), np.empty(shape) if out is None else out
        for own, size in zip(sides, sizes, strict=True):
            place = np.arange(math.prod(size[:first])).reshape(size[:first])
            rows.append(np.broadcast_to(place, shape[:first]).ravel())
            array = np.stack(np.broadcast_arrays(*own or [np.ones(())]))
            arrays.append(np.ascontiguousarray(array.reshape(len(array), place.size, -1)))
        lines = (math.prod(shape[:first]), math.prod(shape[first:]))
        array = np.stack([np.broadcast_to(each, shape) for each in given]) if len(given) > 1 else given[0][None]
        array = np.broadcast_to(array, (len(given), *shape)).reshape(-1, *lines)
        kinds, numbers = np.array(self.steps), np.array(self.numbers)
        compiled.walk(kinds, numbers, self.result, *arrays, *rows, array, found.reshape(lines))
        return found

    def _by_numpy(self, given: Sequence[Array], left: Sequence[Array], right: Sequence[Array]) -> Array:
        last = {read: n for n, step in enumerate(self.steps) for read in step[1:4]} | {self.result: len(self.steps)}
        rows: dict[int, Any] = {ZERO: 0.0, ONE: 1.0}
        for n, ((kind, total, x, y, at), number) in enumerate(zip(self.steps, self.numbers, strict=True)):
            if kind == Kind.KNOWN:
                found = given[at]
            else:
                count, formula = FORMULAS[kind]
                found = formula(rows[x], rows[y], *left[at : at + count], *right[at : at + count])
                found = found * number if number != 1.0 or kind == Kind.LINEAR else found
                found = found if total == ZERO else found + rows[total]
            rows[n + 2] = found
            for read in {total, x, y}:
                if last[read] == n:
                    del rows[read]
        return np.asarray(rows[self.result])

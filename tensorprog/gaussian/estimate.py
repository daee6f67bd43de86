"""A number together with a bound on its error, and the arithmetic that carries both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.floating]

__all__ = ["COMPACT", "EPS", "TINY", "Estimate", "Sizes", "compact", "largest", "largest_ratio"]

EPS = float(np.finfo(np.float64).eps)
# numbers from which arrays count as large: smaller ones have a bound for each number
COMPACT = 1 << 14
# densities far out underflow: what they lose absolutely
TINY = 1e-305


def _inexact(value: ArrayLike) -> Array:
    """As an array of float64, or complex128 where complex."""
    array = np.asarray(value)
    return array.astype(np.result_type(array, np.float64), copy=False)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value and a bound on |value - truth|, elementwise; complex values occur on the way to real ones.

    Sums and products propagate the bound to first order (plus the product of both errors) and add the rounding
    of the operation itself. An exact zero stays exact: 0 with error 0 times anything finite is 0 with error 0.

    Shapes    value and error have one shape, the batch; operations broadcast. A bound that serves all members of an
              axis may be a view of stride 0 along it: then sums and products of large arrays keep it one
    Accuracy  error is what the method that made it states: rounding bounds for closed forms, a difference between
              two rules for quadrature, Student's t at 99.9 % for quasi-Monte Carlo
    """

    value: Array
    error: Array

    # numpy must not take apart `array * estimate`
    __array_ufunc__ = None

    @staticmethod
    def exact(value: ArrayLike) -> Estimate:
        """A value without error."""
        v = _inexact(value)
        return Estimate(v, np.zeros(v.shape))

    @staticmethod
    def rounded(value: ArrayLike, ulps: float = 4.0) -> Estimate:
        """A value known to `ulps` units of relative rounding."""
        v = _inexact(value)
        return Estimate(v, np.asarray(ulps * EPS * np.abs(v)))

    def __add__(self, other: Estimate | ArrayLike) -> Estimate:
        o = other if isinstance(other, Estimate) else Estimate.exact(other)
        for one, other in ((self, o), (o, self)):  # adding an exact zero is no operation
            if other.value.size == 1 and not other.value.any() and not other.error.any():
                return one.reshape(np.broadcast_shapes(one.value.shape, other.value.shape))
        value = np.asarray(self.value + o.value)
        error = compact(self.error) + compact(o.error)
        rounding = EPS * largest(value, error.shape)
        if rounding.shape == value.shape:
            rounding = np.where((self.value == 0) | (o.value == 0), 0.0, rounding)
        return Estimate(value, _expand(error + rounding, value.shape))

    __radd__ = __add__

    def __neg__(self) -> Estimate:
        return Estimate(np.asarray(-self.value), self.error)

    def __sub__(self, other: Estimate | ArrayLike) -> Estimate:
        o = other if isinstance(other, Estimate) else Estimate.exact(other)
        return self + (-o)

    def __mul__(self, other: Estimate | ArrayLike) -> Estimate:
        o = other if isinstance(other, Estimate) else Estimate.exact(other)
        for one, other in ((self, o), (o, self)):  # multiplying by an exact one is no operation
            if other.value.size == 1 and np.all(other.value == 1) and not other.error.any():
                return one.reshape(np.broadcast_shapes(one.value.shape, other.value.shape))
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.asarray(self.value * o.value)
            first, second = compact(self.error), compact(o.error)
            shape = np.broadcast_shapes(first.shape, second.shape)
            left, right = largest(self.value, shape), largest(o.value, shape)
            error = left * second + right * first + first * second + EPS * (left * right)
        return Estimate(value, _expand(error, value.shape))

    __rmul__ = __mul__

    def sum(self, axis: int | tuple[int, ...] | None = None) -> Estimate:
        """Sum over axes; the bounds add, and so does the rounding of the sum."""
        value = np.asarray(self.value.sum(axis=axis))
        error = np.asarray(self.error.sum(axis=axis) + EPS * np.abs(self.value).sum(axis=axis))
        return Estimate(value, error)

    def reshape(self, shape: tuple[int, ...]) -> Estimate:
        """The same numbers in another shape, broadcast when the shape is larger."""
        return Estimate(_expand(self.value, shape), _expand(self.error, shape))

    def where(self, mask: NDArray[np.bool_], other: Estimate) -> Estimate:
        """Elementwise: self where the mask holds, other elsewhere."""
        return Estimate(np.where(mask, self.value, other.value), np.where(mask, self.error, other.error))

    def settled(self) -> Estimate:
        """Overflow gets an infinite error; inf - inf and 0 * inf count as overflow."""
        bad = ~(np.isfinite(self.value) & np.isfinite(self.error))
        return Estimate(np.where(np.isnan(self.value), np.inf, self.value), np.where(bad, np.inf, self.error))


@dataclass(frozen=True, eq=False)
class Sizes:
    """Bounds on an array over pairs: of entries the product of two sizes, of their errors `relative` times that.

    Shapes    first and second broadcast to the array
    """

    first: Array
    second: Array
    relative: float


def largest_ratio(above: Array, below: Array) -> float:
    """The largest quotient, 0 / 0 counting as 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(above == 0, 0.0, above / below), initial=0.0))


def compact(error: Array) -> Array:
    """A bound with axes of length 1 where a large array repeats one number."""
    if error.size < COMPACT:
        return error
    return error[tuple(slice(None, 1 if stride == 0 else None) for stride in error.strides)]


def _expand(array: Array, shape: tuple[int, ...]) -> Array:
    return array if array.shape == shape else np.broadcast_to(array, shape)


def largest(value: Array, shape: tuple[int, ...]) -> Array:
    """|value|, its largest along the axes that are of length 1 in `shape`.

    Shapes    value with the axes of `shape`, or fewer -> broadcasts to `shape`
    """
    lengths = shape[len(shape) - value.ndim :]
    axes = tuple(k for k, (own, length) in enumerate(zip(value.shape, lengths, strict=True)) if length == 1 < own)
    if not axes:
        return np.asarray(np.abs(value))
    return np.asarray(np.maximum(value.max(axis=axes, keepdims=True), -value.min(axis=axes, keepdims=True)))

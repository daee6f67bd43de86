"""A number together with a bound on its error, and the arithmetic that carries both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.floating]

__all__ = ["EPS", "TINY", "Estimate"]

EPS = float(np.finfo(np.float64).eps)
# densities far out underflow: what they lose absolutely
TINY = 1e-305


def _inexact(value: ArrayLike) -> Array:
    """As an array of float64, or complex128 where complex."""
    array = np.asarray(value)
    return array.astype(np.result_type(array, np.float64), copy=False)


@dataclass(eq=False)
class Estimate:
    """A value and a bound on |value - truth|, elementwise; complex values occur on the way to real ones.

    Sums and products propagate the bound to first order (plus the product of both errors) and add the rounding
    of the operation itself. An exact zero stays exact: 0 with error 0 times anything finite is 0 with error 0.

    Shapes    value and error have one shape, the batch; operations broadcast
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

    def __add__(self, other: Estimate | ArrayLike) -> Estimate:
        o = other if isinstance(other, Estimate) else Estimate.exact(other)
        for one, other in ((self, o), (o, self)):  # adding an exact zero is no operation
            if other.value.size == 1 and not other.value.any() and not other.error.any():
                return one.reshape(np.broadcast_shapes(one.value.shape, other.value.shape))
        value = np.asarray(self.value + o.value)
        error = np.asarray(EPS * np.abs(value))
        error += self.error
        error += o.error
        return Estimate(value, error)

    __radd__ = __add__

    def __mul__(self, other: Estimate | ArrayLike) -> Estimate:
        o = other if isinstance(other, Estimate) else Estimate.exact(other)
        for one, other in ((self, o), (o, self)):  # multiplying by an exact one is no operation
            if other.value.size == 1 and other.value.item() == 1 and not other.error.any():
                return one.reshape(np.broadcast_shapes(one.value.shape, other.value.shape))
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.asarray(self.value * o.value)
            for one, other in ((self, o), (o, self)):  # nor does multiplying by zeros and ones round
                small = other.value.size < one.value.size and not other.error.any()
                if small and ((other.value == 0) | (other.value == 1)).all():
                    return Estimate(value, np.asarray(one.error * other.value))
            error = EPS * np.abs(value)
            for one, other in ((self, o), (o, self)):
                if one.error.any():
                    error += one.error * (np.abs(other.value) + (other.error / 2 if other.error.any() else 0.0))
        return Estimate(value, np.asarray(error))

    __rmul__ = __mul__

    def __getitem__(self, key: Any) -> Estimate:
        return Estimate(np.asarray(self.value[key]), np.asarray(self.error[key]))

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


def _expand(array: Array, shape: tuple[int, ...]) -> Array:
    return array if array.shape == shape else np.broadcast_to(array, shape)

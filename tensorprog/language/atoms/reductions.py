"""Functions that reduce, or act over, indices: sum, mean, max, softmax, logsumexp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Reducer:
    """A function over index axes: `removes` says whether the axes disappear, `linear` whether it is linear.

    Shapes    numpy: array and axes -> array without those axes (`removes`) or of the same shape
    """

    name: str
    numpy: Callable[[NDArray[Any], Axes], NDArray[Any]]
    removes: bool
    linear: bool = False
    lipschitz: bool = True
    bounds: tuple[float, float] | None = None  # range over all arguments, where it does not follow from the argument's
    doc: str = ""


SHORT = 16  # along axes no longer than this, numpy reduces faster slice by slice


def _reduce(ufunc: np.ufunc, x: NDArray[Any], axes: Axes) -> NDArray[Any]:
    """ufunc.reduce over axes, which stay with length 1."""
    for axis in axes:
        if 1 < x.shape[axis] <= SHORT:
            slices = [x[(slice(None),) * axis + (slice(k, k + 1),)] for k in range(x.shape[axis])]
            total = ufunc(slices[0], slices[1])
            for other in slices[2:]:
                ufunc(total, other, out=total)
            x = total
        else:
            x = ufunc.reduce(x, axis=axis, keepdims=True)
    return x


def _softmax(x: NDArray[Any], axes: Axes) -> NDArray[Any]:
    # the largest entry is finite: a fully masked row is refused when the program is read
    shifted: NDArray[Any] = x - _reduce(np.maximum, x, axes)
    np.exp(shifted, out=shifted)
    shifted /= _reduce(np.add, shifted, axes)
    return shifted


def _logsumexp(x: NDArray[Any], axes: Axes) -> NDArray[Any]:
    top = _reduce(np.maximum, x, axes)
    result: NDArray[Any] = np.squeeze(top + np.log(_reduce(np.add, np.exp(x - top), axes)), axis=axes)
    return result


REDUCTIONS: dict[str, Reducer] = {
    reducer.name: reducer
    for reducer in (
        Reducer("sum", lambda x, axes: np.sum(x, axis=axes), True, linear=True, doc="sum over indices"),
        Reducer("mean", lambda x, axes: np.mean(x, axis=axes), True, linear=True, doc="mean over indices"),
        Reducer("max", lambda x, axes: np.max(x, axis=axes), True, doc="largest over indices"),
        Reducer(
            "softmax", _softmax, False, bounds=(0.0, 1.0), doc="exp(x) / sum of exp(x) over indices, at each index"
        ),
        Reducer("logsumexp", _logsumexp, True, doc="log of the sum of exp(x) over indices"),
    )
}

"""E of a product of smooth functions of one Gaussian variable, each with parameters of its own.

Functions f_a(X), g_b(X), h_c(X) with many parameters a, b, c have as many expectations as there are combinations; the
functions themselves are evaluated once for each of their own, at nodes that all share.

    E f_a(X) g_b(X) h_c(X) = sum_m w_m f_a(x_m) g_b(x_m) h_c(x_m)      a product of matrices, over the nodes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.function import density

__all__ = ["Factors", "on_shared_line"]

Array = NDArray[Any]
Factors = Callable[[Array], Sequence[tuple[tuple[str, ...], Array]]]
REACH = 13.0  # deviations; the density is 1e-37 there
ORDER = 16  # of the rule on each panel
PANELS = (7, 10, 15, 21, 31, 44, 63, 90, 128)  # rules that have no nodes in common
ENOUGH = 2e-14  # an error beside the size of the product
EPS = float(np.finfo(np.float64).eps)
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(ORDER)


def on_shared_line(factors: Factors, mean: float, deviation: float) -> tuple[tuple[str, ...], Array, float] | None:
    """The expectation over N(mean, deviation**2), with its axes and one error for all numbers; None if it is not found.

    `factors` gives the functions at some points, each with its axes.

    Shapes    factors (m,) -> (*axes, m) each
    Accuracy  composite Gauss-Legendre rules of rising length: the last difference counts three times, the one before
              it once, as one alone may be small by accident
    """
    value: Array | None = None
    before = math.inf
    for panels in PANELS:
        edges = np.linspace(-REACH, REACH, panels + 1)
        half, middle = (edges[1:] - edges[:-1]) / 2, (edges[1:] + edges[:-1]) / 2
        nodes = (middle[:, None] + half[:, None] * POINTS).reshape(-1)
        weights = (half[:, None] * WEIGHTS).reshape(-1) * density(nodes)
        with np.errstate(all="ignore"):
            found = factors(mean + deviation * nodes)
            axes, new, size, tail = _contracted(found, weights)
        if not (np.isfinite(new).all() and np.isfinite(size)):
            return None
        difference = math.inf if value is None else float(np.max(np.abs(new - value), initial=0.0))
        error = max(3 * difference, before) + 8 * EPS * size + tail
        if error <= ENOUGH * size:
            return axes, new, error
        value, before = new, difference
    return None


def _contracted(
    factors: Sequence[tuple[tuple[str, ...], Array]], weights: Array
) -> tuple[tuple[str, ...], Array, float, float]:
    """Sums over the nodes, their size without signs, and the part of it at both ends."""
    groups: list[tuple[tuple[str, ...], Array]] = []
    for axes, values in factors:  # those with axes in common are one
        met = [group for group in groups if set(group[0]) & set(axes)]
        groups = [group for group in groups if not any(group is other for other in met)]
        for other, known in met:
            axes, values = _times(axes, values, other, known)
        groups.append((axes, values))
    groups.sort(key=lambda group: -group[1].size)
    sides: list[tuple[tuple[str, ...], Array]] = [((), np.ones((1, len(weights)))), ((), weights[None])]
    for axes, values in groups:  # the smaller side takes the next
        k = int(len(sides[1][1]) < len(sides[0][1]))
        own, known = sides[k]
        flat = values.reshape(-1, values.shape[-1])
        sides[k] = (*own, *axes), (known[:, None, :] * flat[None]).reshape(-1, len(weights))
    (first, left), (second, right) = sides
    sizes = dict(pair for axes, values in groups for pair in zip(axes, values.shape, strict=False))
    axes = (*first, *second)
    largest = np.abs(left).max(axis=0) * np.abs(right).max(axis=0)
    tail = float(largest[:ORDER].sum() + largest[-ORDER:].sum())
    return axes, (left @ right.T).reshape([sizes[name] for name in axes]), float(largest.sum()), tail


def _times(axes: tuple[str, ...], values: Array, other: tuple[str, ...], known: Array) -> tuple[tuple[str, ...], Array]:
    """The product of two functions, over the axes of both."""
    joined = (*axes, *(name for name in other if name not in axes))

    def over(own: tuple[str, ...], array: Array) -> Array:
        order = sorted(range(len(own)), key=lambda k: joined.index(own[k]))
        moved = np.transpose(array, (*order, array.ndim - 1))
        return moved.reshape(*(array.shape[own.index(name)] if name in own else 1 for name in joined), array.shape[-1])

    return joined, over(axes, values) * over(other, known)

"""Two smooth functions, each of several Gaussian variables that are independent of each other, by Mehler's formula.

With the coefficients f_k of f in products of orthonormal Hermite polynomials of its standardised variables, and one
correlation rho_r for each variable of f that has a partner among those of g,

    E f(X) g(Y) = sum over k = (k_1, k_2, ...) of f_k g_k rho_1**k_1 rho_2**k_2 ...

so that functions are evaluated for each member, not for each pair.  Coefficients are sums over equally spaced points,
which converge geometrically for functions that are analytic near the real axis.  What is left out has the mean square
E f**2 - sum f_k**2, and how far sums over two sets of points are apart on E f**2 tells what points leave out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.function import counted, density
from tensorprog.gaussian.propagation import ROUNDING
from tensorprog.gaussian.series import hermite

Array = NDArray[np.floating]

__all__ = ["RULES", "Side", "cross_of_sides"]

MOST = 1 << 20  # values of one function at once
RULES = ((12, 20, 6.5), (24, 32, 8.0), (32, 40, 8.0), (48, 48, 9.0), (64, 64, 10.0))  # orders, points, and their reach


@dataclass(frozen=True, eq=False)
class Side:
    """A function of independent variables, the first of which have partners on the other side.

    Shapes    call maps z of shape batch + (dim, m) to batch + (m,), whatever the first axis of the batch is cut to;
              entries of mu and var broadcast to the batch
    """

    call: Callable[[Array], Array]
    mu: Sequence[Estimate]
    var: Sequence[Estimate]
    text: Hashable = None  # equal for functions that are the same

    @property
    def dim(self) -> int:
        """Number of variables."""
        return len(self.mu)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the batch."""
        return np.broadcast_shapes(*(part.value.shape for part in (*self.mu, *self.var)))

    def piece(self, part: slice) -> Side:
        """Some members of the first axis of the batch."""
        return replace(self, mu=[_piece(m, part) for m in self.mu], var=[_piece(v, part) for v in self.var])

    def copies(self, other: Side) -> bool:
        """Whether it is the other one at copies of its indices."""
        if self.text is None or self.text != other.text or math.prod(self.shape) != math.prod(other.shape):
            return False
        pairs = zip((*self.mu, *self.var), (*other.mu, *other.var), strict=True)
        return all(a.value.size == b.value.size and np.array_equal(a.value.ravel(), b.value.ravel()) for a, b in pairs)

    def series(self, rule: tuple[int, int, float]) -> _SideSeries:
        """Coefficients in products of Hermite polynomials.

        Raises    FloatingPointError if call returns nan
        """
        nodes, weights, basis = _rule(*rule)
        mean, deviation = (
            np.stack([np.broadcast_to(v, self.shape) for v in values], axis=-1)[..., None]
            for values in ([m.value for m in self.mu], [np.sqrt(v.value) for v in self.var])
        )
        points = np.stack([grid.reshape(-1) for grid in np.meshgrid(*[nodes] * self.dim, indexing="ij")])
        counted(math.prod(self.shape) * points.size)
        values = np.broadcast_to(self.call(mean + deviation * points), (*self.shape, points.shape[1]))
        if np.isnan(values).any():
            raise FloatingPointError("a function in a Gaussian expectation returned nan")
        square, found = values**2, values
        for _ in range(self.dim):  # the last variable first, which becomes the first axis behind the batch
            square = square.reshape(*self.shape, -1, len(nodes)) @ weights
            found = np.moveaxis(found.reshape(*self.shape, -1, len(nodes)) @ basis.T, -1, len(self.shape))
        orders = found.reshape(*self.shape, *[len(basis)] * self.dim)
        axes = tuple(range(len(self.shape), orders.ndim))
        coefficients = np.ascontiguousarray(np.moveaxis(orders, axes, tuple(range(self.dim))))
        return _SideSeries(self, coefficients, square.reshape(self.shape))

    def series_of_copy(self, other: _SideSeries) -> _SideSeries:
        """The same of a function at copies of its indices."""
        coefficients = other.coefficients.reshape(*other.coefficients.shape[: self.dim], *self.shape)
        return _SideSeries(self, coefficients, other.square.reshape(self.shape))


@dataclass(frozen=True, eq=False)
class _SideSeries:
    """Coefficients of a side, over (orders,) * dim and the batch, and its mean square."""

    side: Side
    coefficients: Array
    square: Array

    @cached_property
    def norm(self) -> Array:
        """sqrt(E f**2)."""
        return np.asarray(np.sqrt(self.square) + TINY)

    @cached_property
    def left(self) -> Array:
        """The root of the mean square of what the series leaves out."""
        known = (self.coefficients**2).sum(axis=tuple(range(self.side.dim)))
        return np.asarray(np.sqrt(np.maximum(self.square - known, 0.0) + 8 * EPS * self.square))

    def slope(self, axis: int, order: int = 1) -> Array:
        """Root of the mean square of a derivative by a standardised variable."""
        k = np.arange(len(self.coefficients), dtype=np.float64)
        weight = k if order == 1 else k * (k - 1)
        squares = self.coefficients**2 * weight.reshape(-1, *[1] * (self.coefficients.ndim - axis - 1))
        return np.asarray(np.sqrt(squares.sum(axis=tuple(range(self.side.dim)))))

    def moved(self) -> Array:
        """What errors of means and variances do to the function, to first order (Price 1958)."""
        total = np.zeros(self.side.shape)
        for axis, (mu, var) in enumerate(zip(self.side.mu, self.side.var, strict=True)):
            size = np.where(var.value > 0, var.value, 1.0)
            if np.any(mu.error > ROUNDING * np.abs(mu.value)):
                total = total + mu.error / np.sqrt(size) * self.slope(axis)
            if np.any(var.error > ROUNDING * var.value):
                total = total + var.error / size / 2 * self.slope(axis, 2)
        return total


def cross_of_sides(f: Side, g: Side, cov: Sequence[Estimate], tolerance: float) -> Estimate | None:
    """E f(X) g(Y) where the first variables of both have these covariances in pairs, and all others are independent.

    None where rules do not fit, or a variance is not known to half of itself.

    Shapes    entries of cov of shape batch -> batch
    Accuracy  what is left out by Cauchy and Schwarz, three times the change of the mean squares from rule to rule, and
              the effect of the errors of all moments to first order
    Source    Mehler 1866; Price 1958
    """
    if any(np.any((v.error > v.value / 2) & (v.error > 0)) for side in (f, g) for v in side.var):
        return None
    shape = np.broadcast_shapes(f.shape, g.shape, *(c.value.shape for c in cov))
    wanted = max(RULES[-2][1] ** side.dim * math.prod(side.shape) for side in (f, g))
    step = max(1, int(shape[0] * MOST / wanted))
    found, first = [], 0
    for start in range(0, shape[0], step):
        part = slice(start, start + step)
        known = _cross(f.piece(part), g.piece(part), [_piece(c, part) for c in cov], tolerance, first)
        if known is None:
            return None
        each, first = known  # later pieces are alike
        found.append(np.broadcast_arrays(each.value, each.error, np.empty((1, *shape[1:])))[:2])
    value, error = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Estimate(value, error)


def _cross(f: Side, g: Side, cov: Sequence[Estimate], tolerance: float, first: int) -> tuple[Estimate, int] | None:
    """The expectation, and the rule before the one that was enough."""
    scales = [np.sqrt(f.var[r].value * g.var[r].value) for r in range(len(cov))]
    rho = [np.clip(c.value / np.where(s > 0, s, 1.0), -1.0, 1.0) for c, s in zip(cov, scales, strict=True)]
    before, relative, found, copies = None, np.inf, None, g.copies(f)
    for number in range(first, len(RULES)):
        if any(RULES[number][1] ** side.dim * math.prod(side.shape) > MOST for side in (f, g)):
            break
        one = f.series(RULES[number])
        found, first = (one, g.series_of_copy(one) if copies else g.series(RULES[number])), max(number - 1, 0)
        if before is not None:
            changes = [np.max(np.abs(a.square - b.square) / a.norm**2) for a, b in zip(found, before, strict=True)]
            relative = 3 * float(max(changes))
            if relative + float(np.prod([np.max(each.left / each.norm) for each in found])) <= tolerance:
                break
        before = found
    if found is None or relative == np.inf:
        return None
    one, two = found
    error = one.left * two.left + (relative + 8 * EPS) * one.norm * two.norm
    error = error + one.moved() * two.norm + one.norm * two.moved()
    for r, (c, scale) in enumerate(zip(cov, scales, strict=True)):
        if np.any(c.error > ROUNDING * scale):
            error = error + c.error / np.where(scale > 0, scale, 1.0) * one.slope(r) * two.slope(r)
    return Estimate(_summed(one, two, rho), error), first


def _summed(one: _SideSeries, two: _SideSeries, rho: Sequence[Array]) -> Array:
    """Sums over all orders of the variables in pairs, of order 0 in all others."""
    pairs = len(rho)
    a, b = (side.coefficients[(slice(None),) * pairs + (0,) * (side.side.dim - pairs)] for side in (one, two))
    if not pairs:
        return np.asarray(a * b)
    powers = rho[-1] ** np.arange(len(a)).reshape(-1, *[1] * rho[-1].ndim)

    def total(a: Array, b: Array, at: int) -> Array:
        if at == pairs - 1:
            return np.asarray(np.einsum("k...,k...,k...->...", a, b, powers))
        result = total(a[-1], b[-1], at + 1)
        for k in range(len(a) - 2, -1, -1):  # Horner's rule
            result = result * rho[at] + total(a[k], b[k], at + 1)
        return result

    return total(a, b, 0)


def _piece(moment: Estimate, part: slice) -> Estimate:
    """Some members of the first axis, which may have length 1 for all."""
    return Estimate(moment.value[part], moment.error[part]) if len(moment.value) > 1 else moment


@lru_cache(maxsize=8)
def _rule(orders: int, points: int, reach: float) -> tuple[Array, Array, Array]:
    """Equally spaced points, weights of a standard normal, and the matrix that maps values to coefficients.

    Shapes    (points,), (points,), (orders, points)
    """
    nodes = np.linspace(-reach, reach, points)
    weights = density(nodes) * (nodes[1] - nodes[0])
    return nodes, weights, hermite(nodes, orders) * weights

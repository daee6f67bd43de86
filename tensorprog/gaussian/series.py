"""E f(X) g(Y) by Mehler's series in Hermite polynomials: a few hundred numbers for each variable,

    E f(X) g(Y) = sum over k of rho^k a_k b_k,    a_k = E f(mu + sd z) h_k(z),

h_k orthonormal under N(0, 1).  For f analytic in a strip of half-width L the a_k fall like exp(-L sqrt(k) / sd), with
kinks like a power of k.  What is left out after order K is at most |rho|^K times the norms of what is left of f and g
(Cauchy & Schwarz), and these norms are known: E f^2 minus the sum of a_k^2.

All laws share their nodes: those of the trapezoidal rule, which converges geometrically for smooth functions, or those
of panels.  Of these every law has the ones with kinks in pieces of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.fast import threaded
from tensorprog.gaussian.function import RealFunction, density, evaluate
from tensorprog.gaussian.quadrature import gauss_legendre, structure

Array = NDArray[Any]
Places = NDArray[np.intp]

__all__ = ["HermiteSeries", "ProductSeries", "hermite", "hermite_series", "series", "tabulated"]

ORDERS = (16, 32, 64, 128, 256)
SHARE = 3  # of the coefficients one is compared with that of the coarser rule
SOME = 9  # laws that tell how many orders are taken
BLOCK = 256  # laws whose functions are evaluated at once
NODES, WIDTH = 24, 0.45  # of a panel: a wave of the last polynomial fits in
# |h_k(z)| density(z)^(1/2) <= 1, and density(13.5)^(1/2) is below 1e-19
REACH = 13.5
# the trapezoidal rule errs by exp(-NEGLIGIBLE)
NEGLIGIBLE = 40.0
MOST_NODES = 4000
# what is left of a function after ORDERS terms may weigh so much, relative to its norm, before a larger order is taken
FAR = 1e300  # singularities of exp(0 * x) are infinitely far away
ENOUGH = 8e-8
LEFT = 8 * EPS  # what is left out of a product, relative to the norms, that is rounding
OCTAVE = 24  # deviations between two powers of 2, whose series give all between
OFF = 1e-13  # how far off these may be
LOOKED_AT = np.array([-1.0, -0.4, 0.1, 0.6, 1.0])  # places, from -1 to 1, of some of these
MOST, SEEN = 0.97, 4096  # the share of pairs that have no more orders than they need, and how many pairs tell


@dataclass(frozen=True, eq=False)
class HermiteSeries:
    """Hermite coefficients of f(mu + sd z) for many (mu, sd), and what bounds the errors of products.

    Shapes    coefficients (K, m); norm, tail, steep, rough (m,): (E f^2)^(1/2), the norm of what the coefficients leave
              out, (sum of (k + 2) a_k^2)^(1/2), and the norm of the errors of the coefficients and of the norm
    """

    coefficients: Array
    norm: Array
    tail: Array
    steep: Array
    rough: Array

    @cached_property
    def scale(self) -> Array:
        """A bound on the norm of df by d log var / 2, and by dmu / sd: of z df / dz.

        Shapes    (m,)
        """
        weights = np.square(np.arange(len(self.coefficients)), dtype=np.float64)
        return np.asarray(2 * np.sqrt(np.einsum("k,km,km->m", weights, self.coefficients, self.coefficients)))

    @cached_property
    def reach(self) -> Array:
        """A number for each law: little enough is left out at correlations up to the product of two.

        Shapes    (m,)
        """
        with np.errstate(divide="ignore"):
            return np.minimum((ENOUGH * self.norm / self.tail) ** (1 / len(self.coefficients)), 1.0)

    def cut(self, order: int) -> HermiteSeries:
        """The same to a lower order."""
        left = np.square(self.coefficients[order:]).sum(axis=0)
        return replace(self, coefficients=self.coefficients[:order], tail=np.sqrt(self.tail**2 + left))

    def left(self) -> Array:
        """What the coefficients from each order on leave out, relative to the norm, at the worst law.

        Shapes    (K + 1,)
        """
        scale = 1 / np.where(self.norm > 0, self.norm, 1.0)
        total = np.square(self.tail * scale)
        left = [total.max(initial=0.0)]
        for own in self.coefficients[::-1]:
            total += np.square(own * scale)
            left.append(total.max(initial=0.0))
        return np.sqrt(left[::-1])


def hermite_series(
    function: Callable[[Any], RealFunction], mu: Array, sd: Array, near: float = 1.0, enough: float = ENOUGH
) -> HermiteSeries | None:
    """The series to the least order after which little enough is left, or to the largest; None where no rule serves.

    No product is taken at correlations above `near`; `enough` may be left of a function, relative to its norm.

    Shapes    mu, sd (m,): different laws, for parts of which there is a function
    """
    if not mu.size:
        return None
    some = np.unique(np.linspace(0, len(mu) - 1, SOME).astype(int))
    for order in ORDERS:
        few = series(lambda at: function(some[at]), mu[some], sd[some], order)
        if few is None or np.all(few.tail * near ** (order / 2) <= enough * few.norm):
            break
    return None if few is None else series(function, mu, sd, order)


def series(
    function: Callable[[Any], RealFunction], mu: Array, sd: Array, order: int = ORDERS[-1]
) -> HermiteSeries | None:
    """Coefficients by one rule for all laws of about one deviation; None if the function is not smooth enough for it.

    Shapes    mu, sd (m,)
    Accuracy  the norm of the coefficients' error is taken from a coarser rule
    """
    f, ranked = function(slice(None)), np.argsort(sd, kind="stable")
    length = min(float(f.features[..., 1].min()), FAR) if f.features.size else 1.0
    rules = _panels if np.isfinite(f.kinks).any() else _trapezoidal

    def part(start: int) -> HermiteSeries | None:
        cut = ranked[start : start + BLOCK]
        # how far the lines parallel to the real axis may be moved without meeting a singularity, at most 4 deviations
        y = 0.9 * min(length / max(float(sd[cut].max()), length / 8), 4.0)
        rule = rules(2.0 ** (math.floor(8 * math.log2(y)) / 8), order)
        return None if rule is None else _coefficients(function(cut), mu[cut], sd[cut], rule)

    parts: list[list[Array]] = []
    for each in threaded(part, range(0, len(mu), BLOCK)):
        if each is None:
            return None
        parts.append([getattr(each, one.name) for one in fields(each)])
    back = np.argsort(ranked)
    return HermiteSeries(*(np.concatenate(arrays, axis=-1)[..., back] for arrays in zip(*parts, strict=True)))


def tabulated(f: RealFunction, sd: Array, enough: float = ENOUGH) -> HermiteSeries | None:
    """The series of very many laws of mean 0, by polynomials in the logarithm of the deviation; None if none serve.

    E f(sd z) h_k(z) is the integral of f(x) h_k(x / sd) density(x / sd) / sd, which decays while Re 1 / sd^2 is
    positive: so it is analytic in log sd as far as pi / 4 from the real axis, whatever f is, and the OCTAVE deviations
    between two powers of 2 that are integrated for once give all others to rounding.

    Shapes    sd (m,)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        octaves = np.floor(np.log2(sd))
        places = np.where(sd > 0, 2 * (np.log2(sd) - octaves) - 1, 0.0)
    numbers = np.unique(octaves)
    orders = [len(table.terms) for table in (_octave(f, float(n), enough) for n in numbers) if table is not None]
    if len(orders) < len(numbers):
        return None
    order = max(orders)  # what is left out is told from this order on
    tables = [_octave(f, float(number), enough, order) for number in numbers]
    squares, tail, steep, rough = np.empty((4, len(sd)))
    coefficients = np.zeros((order, len(sd)))
    for number, table in zip(numbers, tables, strict=True):
        if table is None:
            return None
        at = np.flatnonzero(octaves == number)
        waves = np.polynomial.chebyshev.chebvander(places[at], table.terms.shape[1] - 1).T
        squares[at] = table.squares @ waves
        tail[at], steep[at], rough[at] = table.tail, table.steep, table.rough
        for k in np.flatnonzero(table.terms.any(axis=1)):
            coefficients[k, at] = table.terms[k] @ waves
    norm = np.sqrt(np.maximum(squares, 0.0))
    return HermiteSeries(coefficients, norm, tail * norm, steep * norm, rough * norm)


class _Octave(NamedTuple):
    """Coefficients and E f^2 as Chebyshev series in the place in an octave; errors as in `HermiteSeries`, but relative.

    Shapes    terms (K, OCTAVE), squares (OCTAVE,)
    """

    terms: Array
    squares: Array
    tail: float
    steep: float
    rough: float


@lru_cache(maxsize=256)
def _octave(f: RealFunction, number: float, enough: float, order: int = 0) -> _Octave | None:
    """The series for deviations from 2**number to twice that; for 0, where the number is -inf; 0 orders: the least."""
    if number == -np.inf:
        value = evaluate(f, np.zeros(1))
        return _Octave(value[None], value**2, 0.0, math.sqrt(2), 8 * EPS) if np.isfinite(value).all() else None
    places = np.concatenate([np.cos(np.pi * (np.arange(OCTAVE) + 0.5) / OCTAVE), LOOKED_AT])
    law = lambda _: f, np.zeros(places.shape), 2.0 ** (number + (places + 1) / 2)
    exact = series(*law, order) if order else hermite_series(*law, enough=enough)
    if exact is None:
        return None
    scale = 1 / np.where(exact.norm > 0, exact.norm, 1.0)
    known = np.concatenate([exact.coefficients, exact.norm[None] ** 2])
    waves = np.polynomial.chebyshev.chebvander(places, OCTAVE - 1)
    terms = known[:, :OCTAVE] @ waves[:OCTAVE] * (2 / OCTAVE)
    terms[:, 0] /= 2
    missed = np.square((terms @ waves.T - known) * scale)
    off = float(np.sqrt(missed[:-1].sum(axis=0) + missed[-1] * scale**2).max())
    if off > OFF:
        return None
    tail, steep, rough = (float((array * scale).max()) for array in (exact.tail, exact.steep, exact.rough))
    return _Octave(terms[:-1], terms[-1], tail, steep, rough + 2 * off)


class _Rule(NamedTuple):
    """Nodes with weights, those of a coarser rule, and Hermite polynomials there; edges of panels, if it has some.

    Shapes    (m,), three times, (order, m), and (panels + 1,)
    """

    z: Array
    weights: Array
    coarse: Array
    basis: Array
    edges: Array


@lru_cache(maxsize=32)
def _trapezoidal(y: float, order: int) -> _Rule | None:
    """For functions that are analytic up to y; the coarser rule has twice the step.  None for too many nodes."""
    step = np.pi * y / (NEGLIGIBLE + y * y / 2 + y * np.sqrt(order))  # half of what is enough
    half = int(np.ceil(REACH / (2 * step)))
    if 4 * half > MOST_NODES:
        return None
    number = np.arange(-2 * half, 2 * half + 1)
    weights = step * density(step * number)
    return _Rule(step * number, weights, 2 * weights * (number % 2 == 0), hermite(step * number, order), np.zeros(0))


@lru_cache(maxsize=4)
def _panels(y: float, order: int) -> _Rule | None:
    """For functions that are analytic up to y between their kinks; None for too many nodes."""
    count = math.ceil(2 * REACH / min(WIDTH, 2 * y))
    if count * NODES > MOST_NODES:
        return None
    edges = np.linspace(-REACH, REACH, count + 1)
    z, weights, coarse = (array.ravel() for array in _on_pieces(edges[:-1], edges[1:]))
    return _Rule(z, weights, coarse, hermite(z, order), edges)


def _on_pieces(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Nodes and weights with the density, and those of a rule that misses what the last two polynomials add.

    Shapes    (...) -> (..., NODES), three times
    """
    nodes, weights = gauss_legendre(NODES)
    half = ((high - low) / 2)[..., None]
    z = ((high + low) / 2)[..., None] + half * nodes
    w = half * weights * density(z)
    return z, w, w * (1 - np.polynomial.legendre.legval(nodes, [0] * (NODES - 2) + [1, 1]))


def _pieces(kinks: Array, edges: Array) -> tuple[Array, Array, Array]:
    """The panels with kinks, and the pieces that these cut them into, one or none to each side of every kink.

    Shapes    kinks (m, J) -> panels (m, J), begins and ends of pieces (m, 2 J)
    """
    kinks = np.sort(np.clip(kinks, edges[0], edges[-1]), axis=-1)
    panel = np.clip(np.searchsorted(edges, kinks, side="right") - 1, 0, len(edges) - 2)
    end, none = edges[panel + 1], np.full((len(kinks), 1), np.inf)
    begin = np.maximum(edges[panel], np.concatenate([-none, kinks[:, :-1]], axis=-1))
    last = np.concatenate([kinks[:, 1:], none], axis=-1) >= end
    return panel, np.concatenate([begin, kinks], axis=-1), np.concatenate([kinks, np.where(last, end, kinks)], axis=-1)


def _coefficients(f: RealFunction, mu: Array, sd: Array, rule: _Rule) -> HermiteSeries | None:
    """Coefficients of the laws; None where values are not finite or reach too far."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.array(evaluate(f, mu[:, None] + sd[:, None] * rule.z))
            squares = np.square(values)
            edges = np.abs(values[:, [0, -1]]).max(axis=1)
            if rule.edges.size:
                panel, begin, end = _pieces(structure(f, mu, sd)[0], rule.edges)
                for array in (values, squares):
                    array.reshape(len(mu), -1, NODES)[np.arange(len(mu))[:, None], panel] = 0.0
                z, w, coarse = (array.reshape(len(mu), -1) for array in _on_pieces(begin, end))
                pieces = evaluate(f, mu[:, None] + sd[:, None] * z)
            both = squares @ np.stack([rule.weights, rule.coarse], axis=1)
            if rule.edges.size:
                both += np.stack([(each * np.square(pieces)).sum(axis=1) for each in (w, coarse)], axis=1)
            squares, uneven = both[:, 0], np.abs(both[:, 0] - both[:, 1])
    except FloatingPointError:
        return None
    if not (np.isfinite(squares).all() and np.all(edges * np.exp(-(REACH**2) / 4) <= EPS * np.sqrt(squares))):
        return None
    own = slice(int(f.parity < 0), None, 2) if f.parity and not mu.any() else slice(None)
    found = np.zeros((len(rule.basis), len(mu)))
    found[own] = (rule.basis[own] * rule.weights) @ values.T
    rough = (rule.basis[::SHARE] * (rule.weights - rule.coarse)) @ values.T
    if rule.edges.size:
        before, here, weighted = np.zeros(z.shape), np.ones(z.shape), np.stack([w * pieces, (w - coarse) * pieces])
        for k in range(len(found)):
            sums = np.einsum("aij,ij->ai", weighted, here)
            found[k] += sums[0]
            rough[k // SHARE] += 0.0 if k % SHARE else sums[1]
            before, here = here, (z * here - math.sqrt(k) * before) / math.sqrt(k + 1)
    if f.parity:  # exact zeros stay exact
        for array in (found, rough):
            array[int(f.parity > 0) :: 2, mu == 0] = 0.0
    norm = np.sqrt(squares)
    error = np.sqrt(SHARE * np.square(rough).sum(axis=0)) + uneven / np.where(norm > 0, norm, 1.0) + 8 * EPS * norm
    left = np.maximum(squares - np.square(found).sum(axis=0), 0.0) + 4 * EPS * squares
    steep = np.sqrt(np.arange(2, len(found) + 2) @ np.square(found))
    return HermiteSeries(found, norm, np.sqrt(left), steep, error)


def hermite(z: Array, order: int) -> Array:
    """Orthonormal Hermite polynomials h_0, ..., h_(order - 1).

    Shapes    z (m,) -> (order, m)
    """
    found = np.empty((order, z.size))
    found[0] = 1.0
    found[1] = z
    for k in range(1, order - 1):
        found[k + 1] = (z * found[k] - np.sqrt(k) * found[k - 1]) / np.sqrt(k + 1)
    return found


class ProductSeries:
    """E f(X) g(Y) for pairs of laws, by as many orders as most of the correlations need, and by all for the others."""

    def __init__(self, f: HermiteSeries, g: HermiteSeries) -> None:
        self.order = min(len(f.coefficients), len(g.coefficients))
        self.f = f.cut(self.order)
        self.g = self.f if f is g else g.cut(self.order)
        left = self.f.left()[1:]
        left = left * (left if f is g else self.g.left()[1:])
        # the largest correlation that needs no more than 1, 2, .. orders
        with np.errstate(divide="ignore"):
            roots = (LEFT / left) ** (1 / np.arange(1, self.order + 1))
        self.reach = np.maximum.accumulate(np.minimum(roots, 1.0))
        # odd functions have odd orders only, even ones even
        even, odd = ((self.f.coefficients[k::2].any(1) & self.g.coefficients[k::2].any(1)).any() for k in (0, 1))
        self.first, self.step = int(not even), 1 + int(not (even and odd))

    def at(self, first: Places, second: Places, rho: Array) -> tuple[Estimate, Array]:
        """E f(X) g(Y) for members `first` of f and `second` of g at correlations rho, and its derivative by rho.

        Shapes    rho of the shape that first and second broadcast to -> the same, twice
        Accuracy  rho^k has relative error k eps, each of K sums one rounding: eps times the sum of (k + 2) |a_k b_k|
        """
        f, g, size = self.f, self.g, np.abs(rho)
        value, slopes = self.values(first, second, rho, slopes=True)
        error = f.norm[first] * (LEFT * g.norm + g.rough)[second] + f.rough[first] * g.norm[second]
        error = np.broadcast_to(error + f.steep[first] * (4 * EPS * g.steep)[second] + TINY, rho.shape).copy()
        if f is g and (same := (first == second) & (rho == 1)).any():
            at = np.broadcast_to(first, rho.shape)[same]
            value[same] = f.norm[at] ** 2
            size = np.where(same, 0.0, size)
        if np.any(far := size > self.reach[-1]):
            tail = np.broadcast_to(f.tail[first] * g.tail[second], rho.shape)
            error[far] += tail[far] * size[far] ** self.order
        return Estimate(value, error), slopes

    def values(
        self, first: Places, second: Places, rho: Array, slopes: bool = False, compiled: ModuleType | None = None
    ) -> tuple[Array, Array]:
        """The values alone, or with derivatives; compiled, the values of a tile.

        Shapes    as `at`; first (n, 1), second (1, m) and rho (n, m) for a compiled pass
        """
        size = np.abs(rho)
        seen = np.sort(size.ravel()[:: 1 + size.size // SEEN])
        most = seen[int(MOST * (seen.size - 1))] if seen.size else 0.0
        order = 1 + min(int(np.searchsorted(self.reach, most)), self.order - 1)
        if compiled is not None:
            value, sides = np.empty(rho.shape), ((self.f, first), (self.g, second))
            coefficients = (np.ascontiguousarray(side.coefficients[:, at.ravel()]) for side, at in sides)
            compiled.sums(*coefficients, order, self.first, self.step, self.reach[order - 1], rho, value)
            return value, value
        value, rise = self._sums(first, second, rho, order, slopes)
        far = size > self.reach[order - 1]
        if order < self.order and far.any():
            one, two = (np.broadcast_to(place, rho.shape)[far] for place in (first, second))
            value[far], rise[far] = self._sums(one, two, rho[far], self.order, slopes)
        return value, rise

    def _sums(self, first: Places, second: Places, rho: Array, order: int, slopes: bool) -> tuple[Array, Array]:
        """The sum of so many orders, and its derivative, by Horner's rule in rho, or in its square."""
        along = np.argsort(rho.shape)  # loops over short axes take a multiple of the time
        first, second, rho = (np.ascontiguousarray(each.transpose(along)) for each in (first, second, rho))
        total, rise = np.zeros((2, *rho.shape))
        x = rho if self.step == 1 else rho * rho
        for k in range(self.first + (order - 1 - self.first) // self.step * self.step, -1, -self.step):
            if slopes:
                rise *= x
                rise += total
            total *= x
            total += self.f.coefficients[k][first] * self.g.coefficients[k][second]
        if self.step == 2 and slopes:
            rise *= 2 * rho
        both = (rho * total, total + rho * rise) if self.first else (total, rise)
        return both[0].transpose(np.argsort(along)), both[1].transpose(np.argsort(along))

    def spread(self, first: Places, second: Places) -> Array:
        """|d E f(X) g(X) / d log var| of one variable X: E (z^2 - 1) f(X) g(X) / 2.

        Shapes    (n,) -> (n,)
        """
        a, b = ([*(row[at] for row in side.coefficients), 0.0, 0.0] for side, at in ((self.f, first), (self.g, second)))
        total: Array = np.zeros(first.shape)
        for k in range(self.order):
            total += k * a[k] * b[k] + math.sqrt((k + 1) * (k + 2)) / 2 * (a[k] * b[k + 2] + a[k + 2] * b[k])
        return np.abs(total)

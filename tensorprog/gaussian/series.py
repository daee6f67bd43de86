"""E f(X) g(Y) for smooth f and g by Mehler's series in Hermite polynomials: a few hundred numbers for each variable,

    E f(X) g(Y) = sum over k of rho^k a_k b_k,    a_k = E f(mu + sd z) h_k(z),

h_k orthonormal under N(0, 1).  For f analytic in a strip of half-width L the a_k fall like exp(-L sqrt(k) / sd).  What
is left out after order K is at most |rho|^K times the norms of what is left of f and g (Cauchy & Schwarz), and these
norms are known: E f^2 minus the sum of a_k^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.arc_kernels import Correlated
from tensorprog.gaussian.estimate import EPS, TINY, Estimate, Sizes, largest_ratio
from tensorprog.gaussian.function import RealFunction, density, evaluate
from tensorprog.gaussian.integrand import FactoredIntegrand, Index, Integrand, part

Array = NDArray[np.floating]

__all__ = [
    "HermiteSeries", "mehler_sensitivity", "mehler_series", "product_series", "series", "series_dual",
]  # fmt: skip

ORDERS = (48, 128, 256)
LONG_ORDERS = (*ORDERS, 512, 1024, 2048)  # where pairs at correlations away from 1, most of them, need few
# laws from which coefficients are interpolated, the nodes that are tried, and what may be left out
MANY_LAWS, NODES, CLOSE = 64, (12, 24, 48, 96), 2e-14
# |h_k(z)| density(z)^(1/2) <= 1, and density(13.5)^(1/2) is below 1e-19
REACH = 13.5
# the trapezoidal rule errs by exp(-NEGLIGIBLE)
NEGLIGIBLE = 40.0
MOST_NODES = 4000
MOST_KNOWN = 1 << 19  # numbers that are remembered of a function
MOST_MOVED = 1 << 17  # members whose derivatives are computed at once
MOST_LAWS = 1 << 14  # of a variable whose coefficients are held at once
# what is left of a function after ORDERS terms may weigh so much, relative to its norm, before a larger order is taken
ENOUGH = 8e-8
CUTS = (0.5, 0.7, 0.9, 0.98, 0.995)  # correlations beyond one of these may be few, which get orders of their own
SCATTERED = 3  # what one of the few costs more than others
# what is left out of a series, relative to norms, that is rounding
LEFT = 8 * EPS
# relative errors with which a series is the only method that is asked; norms outside count as extreme
GOOD, SMALL, LARGE = 1e-12, 1e-150, 1e150


@dataclass(frozen=True, eq=False)
class HermiteSeries:
    """Hermite coefficients of f(mu + sd z) for many (mu, sd), and what bounds the errors of products.

    Shapes    coefficients (K, m); norm, tail, steep, rough (m,): (E f^2)^(1/2), the norm of what the coefficients leave
              out, (sum of (k + 2) a_k^2)^(1/2), and the norm of the error of the coefficients
    """

    coefficients: Array
    norm: Array
    tail: Array
    steep: Array
    rough: Array

    def members(self, chosen: NDArray[np.intp]) -> HermiteSeries:
        """Some of the laws."""
        arrays = (self.norm, self.tail, self.steep, self.rough)
        return HermiteSeries(self.coefficients[:, chosen], *(array[chosen] for array in arrays))

    def joined(self, other: HermiteSeries) -> HermiteSeries:
        """With further laws, to the same order."""
        parts = ((own, new) for own, new in zip(vars(self).values(), vars(other).values(), strict=True))
        return HermiteSeries(*(np.concatenate(pair, axis=-1) for pair in parts))

    def cut(self, order: int) -> HermiteSeries:
        """The same with fewer terms, or with further ones that are zero."""
        missing = order - len(self.coefficients)
        if missing >= 0:
            return replace(self, coefficients=np.pad(self.coefficients, ((0, missing), (0, 0)))) if missing else self
        left = np.square(self.coefficients[order:]).sum(axis=0)
        return HermiteSeries(self.coefficients[:order], self.norm, np.sqrt(self.tail**2 + left), self.steep, self.rough)

    @property
    def enough(self) -> bool:
        """Whether little enough is left of all members."""
        return bool(np.all(self.tail <= ENOUGH * self.norm))


class _Known:
    """The laws of which a function's series is known: those of the question before, which a longer one begins with."""

    def __init__(self) -> None:
        self.laws = np.zeros(0, dtype=complex)  # in rising order
        self.series: HermiteSeries | None = None


_KNOWN: WeakKeyDictionary[RealFunction, _Known] = WeakKeyDictionary()


def mehler_series(integrand: Integrand) -> Callable[[FactoredIntegrand], Estimate] | None:
    """For two functions one of which is no sum of terms; coefficients are computed once for each law of a variable."""
    if not isinstance(integrand, FactoredIntegrand) or not integrand.plain or len(integrand.functions) == 1:
        return None
    if all(f.terms is not None for f in integrand.functions):
        return None
    found = _of_both(integrand)
    if found is None:
        return None
    return lambda part: product_series(*found, part.places[0], part.places[1], part.correlation.rho)


def mehler_sensitivity(
    integrand: FactoredIntegrand, mu: Sequence[Array], var: Sequence[Array], cov: Array, same: NDArray[np.bool_]
) -> Array | None:
    """What errors of the laws do to E f(X) g(Y), to first order; None where the series says too little.

    By Price's theorem the derivative by c is E f' g', that by v is E f'' g / 2 and that by a mean is E f' g, and with
    f' and f'' go (k + 1)^(1/2) a_(k + 1) / sd and ((k + 1) (k + 2))^(1/2) a_(k + 2) / v. Where X and Y are one variable
    all three moments are one number, which moves by the error of c.

    Shapes    the errors of means, variances and covariances broadcast to the batch
    """
    if not integrand.plain or any(np.any((v == 0) & (error > 0)) for error, v in zip(var, integrand.var, strict=True)):
        return None
    found = _of_both(integrand) if math.prod(integrand.shape) <= MOST_MOVED else None
    if found is None or not all(each.enough for each in found):
        return None
    a, b = (each.coefficients[:, place] for each, place in zip(found, integrand.places, strict=True))
    rho, (sd_f, sd_g) = integrand.correlation.rho, integrand.sd
    k = np.arange(1.0, len(a)).reshape(-1, *(1,) * rho.ndim)
    root = np.sqrt(k)
    slope = _horner(k * a[1:], b[1:], rho) / (sd_f * sd_g)
    curves = [_horner(root[:-1] * root[1:] * one[2:], other[:-2], rho) / (2 * sd**2)
              for one, other, sd in ((a, b, sd_f), (b, a, sd_g))]  # fmt: skip
    moved = np.abs(slope) * cov + np.abs(curves[0]) * var[0] + np.abs(curves[1]) * var[1]
    if same.any():
        moved = np.where(same, np.abs(slope + curves[0] + curves[1]) * cov, moved)
    if any(map(np.any, mu)):
        tilts = [_horner(root * one[1:], other[:-1], rho) / sd for one, other, sd in ((a, b, sd_f), (b, a, sd_g))]
        moved = moved + np.abs(tilts[0]) * mu[0] + np.abs(tilts[1]) * mu[1]
    return np.asarray(moved)


def _horner(a: Array, b: Array, rho: Array) -> Array:
    """The sum over k of rho^k a_k b_k."""
    total: Array = a[-1] * b[-1] + np.zeros(rho.shape)
    for one, other in zip(a[-2::-1], b[-2::-1], strict=True):
        total *= rho
        total += one * other
    return total


def _of_both(integrand: FactoredIntegrand) -> tuple[HermiteSeries, HermiteSeries] | None:
    """The series of both functions, to the same order."""
    laws = list(zip(integrand.functions, integrand.mu, integrand.var, strict=True))
    one = _of_laws(*laws[0], ORDERS[0])
    two = None if one is None else _of_laws(*laws[1], len(one.coefficients))
    if one is None or two is None or len(one.coefficients) == len(two.coefficients):
        return None if one is None or two is None else (one, two)
    one = _of_laws(*laws[0], len(two.coefficients))
    return None if one is None else (one.cut(len(two.coefficients)), two)


class SeriesDual:
    """E f(X) g(Y) as a function of the covariance, and bounds on it.

    `left` is what coefficients from each order on leave out, relative to the product of the norms: where correlations
    are small, few orders are enough.
    """

    def __init__(
        self, one: HermiteSeries, two: HermiteSeries, integrand: FactoredIntegrand, sizes: Sizes, left: Array
    ) -> None:
        self.coefficients, self.sizes, self.left = (one.coefficients, two.coefficients), sizes, left
        self.places = integrand.places
        # odd functions have odd orders only, even ones even
        even, odd = (not any(c[k::2].any() for c in self.coefficients) for k in (1, 0))
        self.first, self.step = (1, 2) if odd else (0, 2 if even else 1)

    def values(self, index: Index, at: Correlated) -> Array:
        """At the covariances of a part of the pairs."""
        return self._at(at.rho(0.0, 0.0).copy(), [part(place, index) for place in self.places])

    def _at(self, rho: Array, places: Sequence[NDArray[np.intp]]) -> Array:
        """At correlations, which are overwritten."""
        largest = max(rho.max(initial=0.0), -rho.min(initial=0.0))
        order, size = self._order(largest), np.abs(rho)
        cost, cut = float(order * rho.size), 1.0
        for lower in [c for c in CUTS if c < largest and 2 * self._order(c) < order]:
            split = self._order(lower) * rho.size + SCATTERED * order * float(np.count_nonzero(size > lower))
            if split < cost:
                cost, cut = split, lower
        if cut == 1.0:
            return self._sum(rho, places, order)
        steep = size > cut
        few = self._at(rho[steep], [np.broadcast_to(place, rho.shape)[steep] for place in places])
        rho[steep] = 0.0
        found = self._sum(rho, places, self._order(cut))
        found[steep] = few
        return found

    def _order(self, largest: float) -> int:
        """How many orders leave no more than rounding, at correlations up to the largest."""
        with np.errstate(under="ignore"):
            enough = self.left * largest ** np.arange(len(self.left)) <= max(LEFT, self.left[-1])
        return int(enough.argmax())

    def _sum(self, rho: Array, places: Sequence[NDArray[np.intp]], order: int) -> Array:
        """The series at correlations, which are overwritten."""
        orders = slice(self.first, max(order, self.first + 1), self.step)
        a, b = (c[orders][:, place] for c, place in zip(self.coefficients, places, strict=True))
        ratio = np.square(rho) if self.step == 2 else rho
        total, product = np.zeros(rho.shape), np.empty(rho.shape)
        for one, other in zip(a[::-1], b[::-1], strict=True):
            total *= ratio
            total += np.multiply(one, other, out=product)
        return total if self.first == 0 else np.multiply(total, rho, out=total)


def series_dual(integrand: FactoredIntegrand, moved: tuple[float, float, float]) -> SeriesDual | None:
    """E f(X) g(Y) for laws that are uncertain: `moved` bounds the errors of the covariance over both deviations, and of
    these over themselves.

    With c the covariance and v a variance, the derivative by c is E f'(X) g'(Y), that by v E f''(X) g(Y) / 2: series
    again, of which no sum is larger than that of the sizes of its terms.
    """
    (f, g), (mu, nu), (v, w) = integrand.functions, integrand.mu, integrand.var
    one = _of_laws(f, mu, v, ORDERS[0], LONG_ORDERS)
    same = f is g and all(np.array_equal(a.ravel(), b.ravel()) for a, b in ((mu, nu), (v, w)))
    two = one if same or one is None else _of_laws(g, nu, w, ORDERS[0], LONG_ORDERS)
    if one is None or two is None:
        return None
    most = max(len(one.coefficients), len(two.coefficients))
    one, two = one.cut(most), two.cut(most)
    largest, steeps, roughs, lefts, norms = [], [], [], [], []
    for series, place in zip((one, two), integrand.places, strict=True):
        norm = series.norm
        if not np.all((norm == 0) | ((norm > SMALL) & (norm < LARGE))):
            return None
        scale = np.where(norm > 0, norm, 1.0)
        steeps.append(largest_ratio(series.steep, norm))
        roughs.append(largest_ratio(series.rough, norm))
        later = np.zeros((len(series.coefficients) + 1, norm.size))
        squares = np.square(np.divide(series.coefficients[::-1], scale, out=later[1:]), out=later[1:])
        largest.append(np.sqrt(squares.max(axis=1, initial=0.0)[::-1]))
        np.cumsum(later, axis=0, out=later)
        later += np.square(series.tail / scale)
        lefts.append(np.sqrt(later.max(axis=1, initial=0.0)[::-1]))
        norms.append(norm[place])
    left = lefts[0] * lefts[1]
    rounding = 4 * EPS * steeps[0] * steeps[1] + sum(roughs) + max(LEFT, left[-1])
    if not rounding <= GOOD:
        return None
    order = np.arange(len(left) - 1)
    slope = (order * largest[0] * largest[1]).sum()
    bends = [(np.sqrt((order * (order - 1))[2:]) * a[2:] * b[:-2]).sum() for a, b in (largest, largest[::-1])]
    changed = moved[0] * slope + moved[1] * bends[0] + moved[2] * bends[1]
    return SeriesDual(one, two, integrand, Sizes(norms[0], norms[1], float(rounding + changed)), left)


def _of_laws(
    f: RealFunction, mu: Array, var: Array, order: int = ORDERS[-1], orders: tuple[int, ...] = ORDERS
) -> HermiteSeries | None:
    """The series to that order, or the least above after which little enough is left, or the largest."""
    m, v = np.broadcast_arrays(mu, var)
    if m.size > MOST_LAWS or not (np.isfinite(m).all() and np.isfinite(v).all() and np.all(v >= 0)):
        return None
    laws, back = np.unique(m.ravel() + 1j * np.sqrt(v.ravel()), return_inverse=True)
    if len(laws) >= MANY_LAWS and laws.real[0] == laws.real[-1] and laws.imag[0] > 0:
        interpolated = _interpolated(f, float(laws.real[0]), laws.imag, [n for n in orders if n >= order])
        if interpolated is not None:
            return interpolated.members(back.ravel())
    known = _KNOWN.setdefault(f, _Known())
    if known.series is not None and order <= len(known.series.coefficients) <= orders[-1]:
        order = len(known.series.coefficients)
    else:
        known.series = None
    for more in [n for n in orders if n >= order]:
        held = known.laws if known.series is not None else laws[:0]
        new = laws[~np.isin(laws, held)]
        found = series(f, new.real, new.imag, more) if new.size or known.series is None else known.series
        if found is None:
            return None
        if known.series is not None and new.size:
            found = known.series.joined(found)
        if found.enough or more == orders[-1]:
            break
        known.series = None
    assert found is not None
    whole = np.concatenate([held, new])
    rank = np.argsort(whole)
    known.laws, known.series = whole[rank], found.members(rank) if found.coefficients.size <= MOST_KNOWN else None
    return found.members(rank[np.searchsorted(known.laws, laws)][back.ravel()])


def _interpolated(f: RealFunction, mu: float, sd: Array, orders: Sequence[int]) -> HermiteSeries | None:
    """The series for many deviations, in rising order, from that for few: polynomials in log sd.

    What is left out is taken to be less than what half of the polynomials' terms leave out.
    """
    if np.isfinite(f.kinks).any():
        return None
    low, high = np.log(sd[[0, -1]])
    place = np.clip((2 * np.log(sd) - low - high) / max(high - low, TINY), -1.0, 1.0)
    count, left, few = NODES[0], np.inf, None
    for order in orders:
        for count in [n for n in NODES if n >= count]:
            if 2 * count > sd.size:
                return None
            angles = np.pi * (np.arange(count) + 0.5) / count
            nodes = np.exp(low + (high - low) * (np.cos(angles) + 1) / 2)
            few = series(f, np.full(count, mu), nodes, order)
            if few is None or not np.all(few.norm > 0):
                return None
            basis = np.cos(np.outer(angles, np.arange(count))) * 2 / count
            basis[:, 0] /= 2
            terms = np.concatenate([few.coefficients / few.norm, np.log(few.norm)[None]]) @ basis
            left = 2 * float(np.linalg.norm(terms[:, count // 2 :]))
            if left <= CLOSE:
                break
        if few is None or few.enough or left > CLOSE:
            break
    if few is None or left > CLOSE:
        return None
    found = terms @ np.cos(np.outer(np.arange(count), np.arccos(place)))
    shares, norm = found[:-1], np.exp(found[-1])
    squares = np.square(shares)
    rough = (1 + np.log(count)) * largest_ratio(few.rough, few.norm) + left + EPS * np.abs(found[-1]).max()
    tail = np.sqrt(np.maximum(1 - squares.sum(axis=0), 0.0) + 2 * rough + 4 * EPS)
    steep = np.sqrt(np.arange(2, order + 2) @ squares)
    return HermiteSeries(shares * norm, norm, tail * norm, steep * norm, rough * norm)


def series(f: RealFunction, mu: Array, sd: Array, order: int = ORDERS[-1]) -> HermiteSeries | None:
    """Coefficients by the trapezoidal rule, which converges geometrically; None if f is not smooth enough for it.

    Shapes    mu, sd (m,)
    Accuracy  the norm of the coefficients' error is taken from a rule with twice the step
    """
    if np.isfinite(f.kinks).any():
        return None
    # how far the lines parallel to the real axis may be moved without meeting a singularity, at most 4 deviations
    length = float(f.features[..., 1].min()) if f.features.size else 1.0
    most = float(sd.max(initial=0.0))
    y = 0.9 * min(length / most, 4.0) if most > 0 else 3.6
    rule = _rule(2.0 ** (math.floor(8 * math.log2(y)) / 8), order)
    if rule is None:
        return None
    z, step, basis = rule
    try:
        values = evaluate(f, mu[:, None] + sd[:, None] * z)
    except FloatingPointError:
        return None
    weights = step * density(z)
    squares = values**2 @ weights
    edges = np.abs(values[:, [0, -1]]).max(axis=1)
    if not (np.isfinite(values).all() and np.all(edges * np.exp(-(REACH**2) / 4) <= EPS * np.sqrt(squares))):
        return None
    coefficients = (basis * weights) @ values.T
    coarse = (basis[:, ::2] * (2 * weights[::2])) @ values[:, ::2].T
    if f.parity:  # exact zeros stay exact
        for array in (coefficients, coarse):
            array[int(f.parity > 0) :: 2, mu == 0] = 0.0
    rough = np.sqrt(np.square(coefficients - coarse).sum(axis=0)) + 8 * EPS * np.sqrt(squares)
    left = np.maximum(squares - np.square(coefficients).sum(axis=0), 0.0) + 4 * EPS * squares
    steep = np.sqrt((np.arange(2, order + 2)[:, None] * np.square(coefficients)).sum(axis=0))
    return HermiteSeries(coefficients, np.sqrt(squares), np.sqrt(left), steep, rough)


@lru_cache(maxsize=16)
def _rule(y: float, order: int) -> tuple[Array, float, Array] | None:
    """Nodes, their distance and Hermite polynomials there, for functions that are analytic up to y; None for too many.

    Shapes    (m,), and (order, m)
    """
    step = np.pi * y / (NEGLIGIBLE + y * y / 2 + y * np.sqrt(order))  # half of what is enough
    half = int(np.ceil(REACH / (2 * step)))
    if 4 * half > MOST_NODES:
        return None
    z = step * np.arange(-2 * half, 2 * half + 1)
    return z, step, hermite(z, order)


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


def product_series(
    f: HermiteSeries, g: HermiteSeries, first: NDArray[np.intp], second: NDArray[np.intp], rho: Array
) -> Estimate:
    """E f(X) g(Y) for members `first` of f and `second` of g at correlations rho.

    Shapes    all broadcast to the batch; f and g of one order
    Accuracy  rho^k has relative error k eps, each of K sums one rounding: eps times the sum of (k + 2) |a_k b_k|
    """
    a, b = f.coefficients[:, first], g.coefficients[:, second]
    total = _horner(a, b, rho)
    with np.errstate(under="ignore"):
        left = np.abs(rho) ** len(a) * (f.tail[first] * g.tail[second])
    rounding = 4 * EPS * f.steep[first] * g.steep[second]
    rough = f.rough[first] * g.norm[second] + f.norm[first] * g.rough[second]
    return Estimate(total, np.asarray(left + rounding + rough + TINY))

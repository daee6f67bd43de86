"""E f(X) g(Y) by Mehler's series in Hermite polynomials: a few hundred numbers for each variable,

    E f(X) g(Y) = sum over k of rho^k a_k b_k,    a_k = E f(mu + sd z) h_k(z),

h_k orthonormal under N(0, 1).  For f analytic in a strip of half-width L the a_k fall like exp(-L sqrt(k) / sd).  What
is left out after order K is at most |rho|^K times the norms of what is left of f and g (Cauchy & Schwarz), and these
norms are known: E f^2 minus the sum of a_k^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.function import RealFunction, density, evaluate
from tensorprog.gaussian.quadrature import structure
from tensorprog.gaussian.rules import panel_edges, rule

Array = NDArray[np.floating]
Places = NDArray[np.intp]

__all__ = ["HermiteSeries", "ProductSeries", "hermite", "hermite_series", "series"]

ORDERS = (48, 128, 256)
BLOCK = 1024  # laws whose functions are evaluated at once
FEW, FINE = 128, 8.0  # the same by panels, and how much narrower these are: a wave of the last polynomial fits in
# laws from which coefficients are interpolated, the nodes that are tried, and what may be left out
MANY_LAWS, NODES, CLOSE = 64, (12, 24, 48, 96), 2e-14
# |h_k(z)| density(z)^(1/2) <= 1, and density(13.5)^(1/2) is below 1e-19
REACH = 13.5
# the trapezoidal rule errs by exp(-NEGLIGIBLE)
NEGLIGIBLE = 40.0
MOST_NODES = 4000
# what is left of a function after ORDERS terms may weigh so much, relative to its norm, before a larger order is taken
ENOUGH = 8e-8
LEFT = 8 * EPS  # what is left out of a product, relative to the norms, that is rounding


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

    @cached_property
    def scale(self) -> Array:
        """A bound on the norm of df by d log var / 2, and by dmu / sd: of z df / dz.

        Shapes    (m,)
        """
        return np.asarray(2 * np.sqrt(np.square(np.arange(len(self.coefficients))) @ np.square(self.coefficients)))

    def cut(self, order: int) -> HermiteSeries:
        """The same to a lower order."""
        left = np.square(self.coefficients[order:]).sum(axis=0)
        return replace(self, coefficients=self.coefficients[:order], tail=np.sqrt(self.tail**2 + left))

    @property
    def enough(self) -> bool:
        """Whether little enough is left of all members."""
        return bool(np.all(self.tail <= ENOUGH * self.norm))

    def left(self) -> Array:
        """What the coefficients from each order on leave out, relative to the norm, at the worst law.

        Shapes    (K + 1,)
        """
        scale = np.where(self.norm > 0, self.norm, 1.0)
        later = np.concatenate([(self.tail / scale)[None], self.coefficients[::-1] / scale])
        return np.asarray(np.sqrt(np.square(later).cumsum(axis=0).max(axis=1, initial=0.0))[::-1])


def hermite_series(f: RealFunction, mu: Array, sd: Array) -> HermiteSeries | None:
    """The series to the least order after which little enough is left, or to the largest; None where no rule serves.

    Shapes    mu, sd (m,): different laws, in rising order of means and then of deviations
    """
    if not mu.size:
        return None
    found = None
    if len(mu) >= MANY_LAWS and mu[0] == mu[-1] and sd[0] > 0:
        found = _interpolated(f, float(mu[0]), sd)
    if found is not None:
        return found
    if np.isfinite(f.kinks).any():
        return _with_kinks(f, mu, sd)
    for order in ORDERS:
        found = series(f, mu, sd, order)
        if found is None or found.enough:
            break
    return found


def _interpolated(f: RealFunction, mu: float, sd: Array) -> HermiteSeries | None:
    """The series for many deviations, in rising order, from that for few: polynomials in log sd.

    What is left out is taken to be less than what half of the polynomials' terms leave out.
    """
    low, high = np.log(sd[[0, -1]])
    place = np.clip((2 * np.log(sd) - low - high) / max(high - low, TINY), -1.0, 1.0)
    for count in [n for n in NODES if 2 * n <= sd.size]:
        angles = np.pi * (np.arange(count) + 0.5) / count
        nodes = np.exp(low + (high - low) * (np.cos(angles) + 1) / 2)
        few = hermite_series(f, np.full(count, mu), nodes[::-1])
        if few is None or not np.all(few.norm > 0):
            return None
        basis = np.cos(np.outer(angles, np.arange(count)))[::-1] * 2 / count
        basis[:, 0] /= 2
        terms = np.concatenate([few.coefficients / few.norm, np.log(few.norm)[None]]) @ basis
        left = 2 * float(np.linalg.norm(terms[:, count // 2 :]))
        if left <= CLOSE:
            break
    else:
        return None
    found = terms @ np.cos(np.outer(np.arange(count), np.arccos(place)))
    shares, norm = found[:-1], np.exp(found[-1])
    squares = np.square(shares)
    rough = (1 + np.log(count)) * float(np.max(few.rough / few.norm)) + left + EPS * np.abs(found[-1]).max()
    tail = np.sqrt(np.maximum(1 - squares.sum(axis=0), 0.0) + 2 * rough + 4 * EPS)
    steep = np.sqrt(np.arange(2, len(shares) + 2) @ squares)
    return HermiteSeries(shares * norm, norm, tail * norm, steep * norm, rough * norm)


def series(f: RealFunction, mu: Array, sd: Array, order: int = ORDERS[-1]) -> HermiteSeries | None:
    """Coefficients by the trapezoidal rule, which converges geometrically; None if f is not smooth enough for it.

    Shapes    mu, sd (m,)
    Accuracy  the norm of the coefficients' error is taken from a rule with twice the step
    """
    # how far the lines parallel to the real axis may be moved without meeting a singularity, at most 4 deviations
    length = float(f.features[..., 1].min()) if f.features.size else 1.0
    most = float(sd.max(initial=0.0))
    y = 0.9 * min(length / most, 4.0) if most > 0 else 3.6
    found = _rule(2.0 ** (math.floor(8 * math.log2(y)) / 8), order)
    if found is None:
        return None
    parts = []
    for start in range(0, len(mu), BLOCK):
        cut = slice(start, start + BLOCK)
        part = _coefficients(f, mu[cut], sd[cut], *found)
        if part is None:
            return None
        parts.append(part)
    return _joined(parts)


def _coefficients(f: RealFunction, mu: Array, sd: Array, z: Array, step: float, basis: Array) -> HermiteSeries | None:
    try:
        values = evaluate(f, mu[:, None] + sd[:, None] * z)
    except FloatingPointError:
        return None
    weights = step * density(z)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = values**2 @ weights
        edges = np.abs(values[:, [0, -1]]).max(axis=1)
        if not (np.isfinite(squares).all() and np.all(edges * np.exp(-(REACH**2) / 4) <= EPS * np.sqrt(squares))):
            return None
    coefficients = (basis * weights) @ values.T
    coarse = (basis[:, ::2] * (2 * weights[::2])) @ values[:, ::2].T
    return _measured(f, mu, coefficients, squares, coarse)


def _with_kinks(f: RealFunction, mu: Array, sd: Array) -> HermiteSeries | None:
    """The series of a function with kinks, whose coefficients fall slowly, by panels: for correlations away from 1."""
    parts = []
    for start in range(0, len(mu), FEW):
        m, d = mu[start : start + FEW], sd[start : start + FEW]
        reach = np.full(m.shape, REACH)
        edges = panel_edges(-reach, reach, *structure(f, m, d), refine=FINE)
        found = []
        for nodes in (20, 15):
            z, w = rule(edges, nodes)
            try:
                values = evaluate(f, m[:, None] + d[:, None] * z)
            except FloatingPointError:
                return None
            with np.errstate(over="ignore", invalid="ignore"):
                weighted = values * (w * density(z))
                squares = (values * weighted).sum(axis=1)
            if not np.isfinite(squares).all():
                return None
            before, here, sums = np.zeros(z.shape), np.ones(z.shape), []
            for k in range(ORDERS[-1]):
                sums.append((weighted * here).sum(axis=1))
                before, here = here, (z * here - math.sqrt(k) * before) / math.sqrt(k + 1)
            found.append((np.array(sums), squares))
        parts.append(_measured(f, m, *found[0], found[1][0]))
    return _joined(parts)


def _measured(f: RealFunction, mu: Array, coefficients: Array, squares: Array, coarse: Array) -> HermiteSeries:
    """Coefficients with what bounds errors, from those of a coarser rule."""
    if f.parity:  # exact zeros stay exact
        for array in (coefficients, coarse):
            array[int(f.parity > 0) :: 2, mu == 0] = 0.0
    rough = np.sqrt(np.square(coefficients - coarse).sum(axis=0)) + 8 * EPS * np.sqrt(squares)
    left = np.maximum(squares - np.square(coefficients).sum(axis=0), 0.0) + 4 * EPS * squares
    steep = np.sqrt((np.arange(2, len(coefficients) + 2)[:, None] * np.square(coefficients)).sum(axis=0))
    return HermiteSeries(coefficients, np.sqrt(squares), np.sqrt(left), steep, rough)


def _joined(parts: list[HermiteSeries]) -> HermiteSeries:
    """The series of one law after the other."""
    names = [each.name for each in fields(HermiteSeries)]
    return HermiteSeries(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))


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


class ProductSeries:
    """E f(X) g(Y) for pairs of laws, by as many orders as the correlation of each pair needs."""

    def __init__(self, f: HermiteSeries, g: HermiteSeries) -> None:
        order = min(len(f.coefficients), len(g.coefficients))
        self.f, self.g = f.cut(order), f.cut(order) if f is g else g.cut(order)
        left = (self.f.left() * self.g.left())[1:]
        # the largest correlation that needs no more than 1, 2, .. orders
        with np.errstate(divide="ignore"):
            roots = (LEFT / left) ** (1 / np.arange(1, order + 1))
        self.reach = np.maximum.accumulate(np.minimum(roots, 1.0))
        self.reach[-1] = 1.0
        # odd functions have odd orders only, even ones even
        self.skipped = [not (self.f.coefficients[k].any() and self.g.coefficients[k].any()) for k in range(order)]

    def at(self, first: Places, second: Places, rho: Array) -> tuple[Estimate, Array]:
        """E f(X) g(Y) for members `first` of f and `second` of g at correlations rho, and its derivative by rho.

        Shapes    rho (n,), the others (n,) or () -> (n,), (n,)
        Accuracy  rho^k has relative error k eps, each of K sums one rounding: eps times the sum of (k + 2) |a_k b_k|
        """
        need = np.searchsorted(self.reach, np.abs(rho)).astype(np.uint16) + np.uint16(1)
        rank = np.argsort(need, kind="stable")[::-1]  # those that need most orders first
        r, one, two = rho[rank], *(place if place.ndim == 0 else place[rank] for place in (first, second))
        begins = np.searchsorted(-need[rank].astype(np.int64), -np.arange(len(self.skipped)), side="left")
        total, rise = np.zeros((2, len(r)))
        for k in range(int(need.max(initial=0)) - 1, -1, -1):
            cut = slice(0, int(begins[k]))
            part, slope = total[cut], rise[cut]
            slope *= r[cut]
            slope += part
            part *= r[cut]
            if not self.skipped[k]:
                a, b = (c.coefficients[k][p if p.ndim == 0 else p[cut]] for c, p in ((self.f, one), (self.g, two)))
                part += a * b
        value, slopes = np.empty((2, len(r)))
        value[rank], slopes[rank] = total, rise
        f, g = self.f, self.g
        size, lost = f.norm[first] * g.norm[second], f.rough[first] * g.norm[second] + f.norm[first] * g.rough[second]
        rounding = 4 * EPS * f.steep[first] * g.steep[second]
        error = np.broadcast_to(LEFT * size + lost + rounding + TINY, value.shape).copy()
        whole = need == len(self.skipped)
        if whole.any():
            tail = np.broadcast_to(f.tail[first] * g.tail[second], value.shape)[whole]
            error[whole] += tail * np.abs(rho[whole]) ** len(self.skipped)
        return Estimate(value, error), slopes

    def spread(self, first: Places, second: Places) -> Array:
        """|d E f(X) g(X) / d log var| of one variable X: E (z^2 - 1) f(X) g(X) / 2.

        Shapes    (n,) -> (n,)
        """
        up = np.sqrt(np.arange(1, len(self.skipped)))[:, None]
        products = []
        for series, place in ((self.f, first), (self.g, second)):
            a = series.coefficients[:, place]
            moved = np.zeros((len(a) + 1, a.shape[1]))  # of z f
            moved[1:-1] += up * a[:-1]
            moved[-1] = np.sqrt(len(a)) * a[-1]
            moved[: len(up)] += up * a[1:]
            products.append((a, moved))
        (a, za), (b, zb) = products
        return np.asarray(np.abs((za * zb).sum(axis=0) - (a * b).sum(axis=0)) / 2)

"""E f(X) g(Y) for smooth f and g by Mehler's series in Hermite polynomials: a few hundred numbers for each variable,

    E f(X) g(Y) = sum over k of rho^k a_k b_k,    a_k = E f(mu + sd z) h_k(z),

h_k orthonormal under N(0, 1).  For f analytic in a strip of half-width L the a_k fall like exp(-L sqrt(k) / sd).  What
is left out after order K is at most |rho|^K times the norms of what is left of f and g (Cauchy & Schwarz), and these
norms are known: E f^2 minus the sum of a_k^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.function import RealFunction, density, evaluate
from tensorprog.gaussian.integrand import FactoredIntegrand, Integrand

Array = NDArray[np.floating]

__all__ = ["HermiteSeries", "mehler_series", "product_series", "series"]

ORDERS = (48, 128, 256)
# |h_k(z)| density(z)^(1/2) <= 1, and density(13.5)^(1/2) is below 1e-19
REACH = 13.5
# the trapezoidal rule errs by exp(-NEGLIGIBLE)
NEGLIGIBLE = 40.0
MOST_NODES = 4000
MOST_LAWS = 1 << 14  # of a variable whose coefficients are held at once
# what is left of a function after ORDERS terms may weigh so much, relative to its norm, before a larger order is taken
ENOUGH = 1e-8


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

    def cut(self, order: int) -> HermiteSeries:
        """The same with fewer terms."""
        if order >= len(self.coefficients):
            return self
        left = np.square(self.coefficients[order:]).sum(axis=0)
        return HermiteSeries(self.coefficients[:order], self.norm, np.sqrt(self.tail**2 + left), self.steep, self.rough)

    def order(self) -> int:
        """The least order after which little enough is left of all members, or the largest."""
        for order in ORDERS:
            if np.all(self.cut(order).tail <= ENOUGH * self.norm):
                return order
        return ORDERS[-1]


def mehler_series(integrand: Integrand) -> Callable[[FactoredIntegrand], Estimate] | None:
    """For two functions one of which is no sum of terms; coefficients are computed once for each law of a variable."""
    if not isinstance(integrand, FactoredIntegrand) or not integrand.plain or len(integrand.functions) == 1:
        return None
    if all(f.terms is not None for f in integrand.functions):
        return None
    one = _of_laws(integrand.functions[0], integrand.mu[0], integrand.var[0])
    two = None if one is None else _of_laws(integrand.functions[1], integrand.mu[1], integrand.var[1])
    if one is None or two is None:
        return None
    order = max(one.order(), two.order())
    first, second = one.cut(order), two.cut(order)
    return lambda part: product_series(first, second, part.places[0], part.places[1], part.correlation.rho)


def _of_laws(f: RealFunction, mu: Array, var: Array) -> HermiteSeries | None:
    m, v = np.broadcast_arrays(mu, var)
    if m.size > MOST_LAWS or not (np.isfinite(m).all() and np.isfinite(v).all() and np.all(v >= 0)):
        return None
    return series(f, m.ravel(), np.sqrt(v.ravel()))


def series(f: RealFunction, mu: Array, sd: Array) -> HermiteSeries | None:
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
    order = ORDERS[-1]
    step = np.pi * y / (NEGLIGIBLE + y * y / 2 + y * np.sqrt(order))  # half of what is enough
    half = int(np.ceil(REACH / (2 * step)))
    if 4 * half > MOST_NODES:
        return None
    z = step * np.arange(-2 * half, 2 * half + 1)
    try:
        values = evaluate(f, mu[:, None] + sd[:, None] * z)
    except FloatingPointError:
        return None
    weights = step * density(z)
    squares = values**2 @ weights
    edges = np.abs(values[:, [0, -1]]).max(axis=1)
    if not (np.isfinite(values).all() and np.all(edges * np.exp(-REACH**2 / 4) <= EPS * np.sqrt(squares))):
        return None
    basis = hermite(z, order)
    coefficients = (basis * weights) @ values.T
    coarse = (basis[:, ::2] * (2 * weights[::2])) @ values[:, ::2].T
    if f.parity:  # exact zeros stay exact
        for array in (coefficients, coarse):
            array[int(f.parity > 0) :: 2, mu == 0] = 0.0
    rough = np.sqrt(np.square(coefficients - coarse).sum(axis=0)) + 8 * EPS * np.sqrt(squares)
    left = np.maximum(squares - np.square(coefficients).sum(axis=0), 0.0) + 4 * EPS * squares
    steep = np.sqrt((np.arange(2, order + 2)[:, None] * np.square(coefficients)).sum(axis=0))
    return HermiteSeries(coefficients, np.sqrt(squares), np.sqrt(left), steep, rough)


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
    total = a[-1] * b[-1] + np.zeros(rho.shape)
    for one, other in zip(a[-2::-1], b[-2::-1], strict=True):
        total *= rho
        total += one * other
    with np.errstate(under="ignore"):
        left = np.abs(rho) ** len(a) * (f.tail[first] * g.tail[second])
    rounding = 4 * EPS * f.steep[first] * g.steep[second]
    rough = f.rough[first] * g.norm[second] + f.norm[first] * g.rough[second]
    return Estimate(total, np.asarray(left + rounding + rough + TINY))

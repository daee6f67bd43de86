"""Nodes and weights: Gauss-Legendre on panels, split at kinks and graded towards localised structure; Gauss-Hermite."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

__all__ = ["gauss_legendre", "panel_edges", "product_points", "rule"]

# widest half-panel in standard deviations: exp(-(c + 1.8 t)^2 / 2) on [-1, 1] has Chebyshev coefficients below 1e-17
# (relative to the centre of the Gaussian) from degree 30 on, and an 18-point rule is exact to degree 35
WIDEST = 1.8
# half-panel over distance to the centre of a feature: singularities near the real axis at distance d from the
# midpoint of a panel with half-width 0.6 d lie on the Bernstein ellipse with parameter 5/3 + 4/3 = 3
ANGLE = 0.6
# a runaway guard: 2 log_4(1e300) panels resolve any one feature
MOST_PANELS = 4000


@lru_cache(maxsize=32)
def gauss_legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights of the n-point Gauss-Legendre rule on [-1, 1].

    numpy's weights err by 7e-14 relatively at n = 20. Newton steps in long numbers on the recurrence
    k P_k = (2 k - 1) x P_(k-1) - (k - 1) P_(k-2) square that away; w = 2 / ((1 - x^2) P_n'(x)^2).
    """
    x: NDArray[Any] = np.polynomial.legendre.leggauss(n)[0].astype(np.longdouble)
    for _ in range(3):
        before, here = np.ones_like(x), x
        for k in range(2, n + 1):
            before, here = here, ((2 * k - 1) * x * here - (k - 1) * before) / k
        slope = n * (x * here - before) / (x * x - 1)
        weights = 2 / ((1 - x * x) * slope * slope)
        x = x - here / slope
    found = x.astype(np.float64), weights.astype(np.float64)
    for array in found:
        array.flags.writeable = False
    return found


def panel_edges(lo: Array, hi: Array, kinks: Array, centres: Array, scales: Array, refine: float = 1.0) -> Array:
    """Edges lo = e0 <= e1 <= ... <= eP = hi of panels on which an integrand with the given structure is smooth.

    A panel [a, b] is admissible if no kink lies inside, its half-width is at most WIDEST / refine, and for every
    feature (c, s) its half-width is at most s / refine or ANGLE times the distance from its midpoint to c. Members
    of the batch that need fewer panels than others repeat their last edge: a panel without width adds nothing.

    Shapes    lo, hi batch; kinks batch + (K,); centres, scales batch + (L,) -> batch + (P + 1,), P >= 1
    Scale     everything in one unit, standard deviations
    Accuracy  edges at kinks are exact copies of them
    Raises    nothing; kinks and features that are infinite or nan are none
    """
    # wider than the widest panel or farther than any window: no constraint
    valid = (np.abs(centres) < 1e3) & (scales < WIDEST)
    kinks = np.sort(np.where(np.isfinite(kinks), kinks, np.inf), axis=-1)
    centres = np.where(valid, centres, 0.0)
    scales = np.where(valid, scales / refine, np.inf)
    gamma = ANGLE / max(1.0, refine**0.5)
    edges = [lo]
    a = lo
    for _ in range(MOST_PANELS):
        b = np.minimum(a + 2 * WIDEST / refine, hi)
        if kinks.shape[-1]:
            b = np.minimum(b, np.where(kinks > a[..., None], kinks, np.inf).min(axis=-1))
        if centres.shape[-1]:
            # the farthest b with  b - a <= 2 s,  or  b - a <= gamma (b + a - 2 c)  right of the feature,
            # or  b - a <= gamma (2 c - a - b)  left of it (which then implies b < c)
            u = a[..., None] - centres
            right = np.where(u > 0, u * (1 + gamma) / (1 - gamma) - u, 0.0)
            left = np.where(u < 0, -2 * gamma * u / (1 + gamma), 0.0)
            reach = np.maximum(np.maximum(2 * scales, right), left).min(axis=-1)
            b = np.minimum(b, a + reach)
        # progress even where a scale is below the spacing of floats
        b = np.where(a < hi, np.maximum(b, np.nextafter(a, np.inf)), hi)
        edges.append(b)
        a = b
        if not np.any(a < hi):
            break
    else:
        edges.append(hi)
    return np.stack(edges, axis=-1)


def rule(edges: Array, n: int) -> tuple[Array, Array]:
    """Nodes and weights of the composite n-point rule, without the Gaussian weight.

    Shapes    edges batch + (P + 1,) -> two arrays batch + (P n,)
    """
    nodes, weights = gauss_legendre(n)
    half = 0.5 * (edges[..., 1:] - edges[..., :-1])
    middle = 0.5 * (edges[..., 1:] + edges[..., :-1])
    z = middle[..., None] + half[..., None] * nodes
    w = half[..., None] * weights
    shape = (*edges.shape[:-1], -1)
    return z.reshape(shape), w.reshape(shape)


@lru_cache(maxsize=8)
def product_points(dim: int, order: int, least: float = 0.0) -> tuple[Array, Array]:
    """Gauss-Hermite product rule for N(0, I), without nodes whose weights are below `least`.

    Shapes    nodes (m, dim), weights (m,), which sum to 1; m = order**dim unless some are left out
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    logs = np.log(weights / weights.sum())
    kept = np.argwhere(sum(np.meshgrid(*[logs] * dim, indexing="ij")) > (math.log(least) if least else -math.inf))
    return nodes[kept], np.exp(logs[kept].sum(axis=1))

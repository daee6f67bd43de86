"""E f(X) and E f(X) g(Y) by composite Gauss-Legendre rules in standard deviations, batched.

All rules integrate against the standard normal density over a window around 0 that a probe of the function widens
where the function grows (or lives) far out.  Panels are split at kinks and graded towards localised structure.  Two
orders on the same panels give value and error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.function import RealFunction, density, evaluate

Array = NDArray[np.floating]
Side = tuple[RealFunction, Array, Array]  # a function, mean and deviation of its variable

__all__ = [
    "Side",
    "crude_norm",
    "gauss_legendre",
    "integrate_line",
    "integrate_plane",
    "panel_edges",
    "rule",
    "structure",
]

# one even, one odd: a jump in the middle of a panel cannot look alike to both
FINE, COARSE = 20, 15
# the window reaches REACH deviations at least: the mass outside is 2e-19; what may be lost there, relative to norms
REACH = 9.0
TRUNCATION = 1e-17
# beyond this the normal density is below the smallest float
HORIZON = 38.0
# drop where |f| times density is e^-50 = 2e-22 of its maximum
NEGLIGIBLE = 50.0
# values that have all but overflowed
LARGEST = 1e300
# safety factor on differences between rules that have not converged
UNRESOLVED = 4.0
# how often panels are halved: where the integrand is an array of numbers, and where it is integrals
LINE_REFINEMENTS, PLANE_REFINEMENTS = 5, 2
# refined no further where two rules differ by less than this, relative to the integral of the absolute value
LINE_TOLERANCE, PLANE_TOLERANCE = 1e-13, 1e-12
# numbers evaluated at once: bounds memory to some ten arrays of this size
CHUNK = 400_000
# no further refinement of an integral after this many evaluations
BUDGET = 12_000_000

# widest half-panel in standard deviations: exp(-(c + 1.8 t)^2 / 2) on [-1, 1] has Chebyshev coefficients below 1e-17
# (relative to the centre of the Gaussian) from degree 30 on, and an 18-point rule is exact to degree 35
WIDEST = 1.8
# half-panel over distance to the centre of a feature: singularities near the real axis at distance d from the
# midpoint of a panel with half-width 0.6 d lie on the Bernstein ellipse with parameter 5/3 + 4/3 = 3
ANGLE = 0.6
# a runaway guard: 2 log_4(1e300) panels resolve any one feature
MOST_PANELS = 4000


gauss_legendre = lru_cache(maxsize=32)(special.roots_legendre)  # nodes and weights on [-1, 1]


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


def crude_norm(f: RealFunction, mu: Array, sd: Array) -> Array:
    """sqrt(E f(X)^2) to a digit or so: a yardstick for errors, not a result.

    Shapes    mu, sd batch -> batch
    """
    z = np.linspace(-REACH, REACH, 37)
    values = evaluate(f, mu[..., None] + sd[..., None] * z, strict=False)
    scale = np.abs(values).max(axis=-1, keepdims=True)
    scale = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    with np.errstate(over="ignore"):
        mean_square = ((values / scale) ** 2 * density(z)).sum(axis=-1) * (z[1] - z[0])
    return np.asarray(scale[..., 0] * np.sqrt(mean_square))


def probe_window(f: RealFunction, mu: Array, sd: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Where |f(mu + sd z)| exp(-z^2 / 2) matters: [lo, hi] containing [-REACH, REACH], and whether there may be more.

    There may be where it still matters at the horizon, or overflows: exp(x) at a variance of 900 has its mass at 30
    deviations, where it is too large for a float long before.

    Shapes    mu, sd batch -> three arrays of shape batch
    """
    z = np.linspace(-HORIZON, HORIZON, 153)
    # far out, where a formula may overflow to inf - inf, is not worth an exception: these values only guide
    values = np.abs(evaluate(f, mu[..., None] + sd[..., None] * z, strict=False))
    with np.errstate(divide="ignore"):
        level = np.log(np.minimum(values, LARGEST)) - 0.5 * z * z
    top = level.max(axis=-1, keepdims=True)
    matters = level > np.maximum(top, -1e6) - NEGLIGIBLE
    beyond = (np.abs(z) == HORIZON) & (level > np.log(TINY))
    more = (matters & (beyond | (values > LARGEST))).any(axis=-1)
    step = z[1] - z[0]
    lo = np.where(matters, z - step, 0.0).min(axis=-1)
    hi = np.where(matters, z + step, 0.0).max(axis=-1)
    return np.minimum(lo, -REACH), np.maximum(hi, REACH), np.asarray(more)


def structure(f: RealFunction, mu: Array, sd: Array) -> tuple[Array, Array, Array]:
    """Kinks, feature centres and feature scales of z -> f(mu + sd z).

    Shapes    mu, sd batch -> batch + (K,), batch + (L,), batch + (L,)
    """
    m, s = mu[..., None], sd[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        kinks = (f.kinks - m) / s
        centres = (f.features[..., 0] - m) / s
        scales = f.features[..., 1] / np.abs(s)
    return tuple(np.broadcast_to(v, mu.shape + v.shape[-1:]) for v in (kinks, centres, scales))  # type: ignore[return-value]


def _finish(fine: Array, coarse: Array, absolute: Array, extra: Array | float = 0.0) -> Estimate:
    """Value of the finer rule; twice the difference and the rounding as its error; overflow has infinite error."""
    return Estimate(fine, np.asarray(2 * np.abs(fine - coarse) + 16 * EPS * absolute + extra + TINY)).settled()


def _improve(
    best: Estimate | None, pending: NDArray[np.bool_], found: Estimate, rough: NDArray[np.bool_]
) -> tuple[Estimate, NDArray[np.bool_]]:
    """The next level of refinement for the pending members, and who is still pending.

    Two orders may agree by luck where an integrand is not resolved: there a later level must agree with the one
    before, too, and the error counts UNRESOLVED times.
    """
    found = Estimate(found.value, np.where(rough, UNRESOLVED, 1.0) * found.error)
    if best is None:
        return found, rough
    jump = np.abs(found.value - best.value)
    error = np.maximum(found.error, UNRESOLVED * np.where(np.isnan(jump), np.inf, jump))
    return Estimate(found.value, error).where(pending, best), pending & rough


def _argument_rounding(values: Array, z: Array, x_size: Array, sd: Array) -> Array:
    """Effect of rounding x = mu + sd z to eps |x|: eps |x| / sd times the total variation of f against the density."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        middle = density(0.5 * (z[..., 1:] + z[..., :-1]))
        variation = (np.abs(np.diff(values, axis=-1)) * middle).sum(axis=-1)
        ratio = np.where(sd > 0, EPS * x_size / sd, 0.0)
        return np.asarray(np.where(variation > 0, ratio * variation, 0.0))


@np.errstate(over="ignore", invalid="ignore")
def _refined(
    integrand: Callable[[Array, int, float], tuple[Array, Array, int]], sides: Sequence[Side], window: Sequence[Array],
    places: Sequence[Array], truncated: Array, refinements: int, tolerance: float,
) -> Estimate:  # fmt: skip
    """The integral of an integrand against the normal density, panels halved until two orders agree.

    At nodes, for an order and a refinement, the integrand has values, bounds on them before what cancels inside, and
    the number of evaluations.  `truncated` is what lies outside the window.
    """
    best: Estimate | None = None
    pending = np.ones(window[0].shape, dtype=bool)
    for level in range(refinements + 1):
        edges = panel_edges(window[0], window[1], places[0], places[1], places[2], 2.0**level)
        sums, cost = [], 0
        for order in (COARSE, FINE):
            z, w = rule(edges, order)
            values, sizes, count = integrand(z, order, 2.0**level)
            weights, cost = w * density(z), cost + count
            sums.append([np.asarray((array * weights).sum(axis=-1)) for array in (values, np.abs(sizes))])
        extra = sum((_argument_rounding(values, z, np.abs(m) + np.abs(d), np.abs(d)) for _, m, d in sides), truncated)
        (coarse, _), (fine, absolute) = sums
        rough = np.asarray(2 * np.abs(fine - coarse) > tolerance * absolute)
        best, pending = _improve(best, pending, _finish(fine, coarse, absolute, extra), rough)
        if not np.any(pending) or cost > BUDGET:
            break
    assert best is not None
    return best


def integrate_line(parts: Sequence[Side], refinements: int = LINE_REFINEMENTS) -> Estimate:
    """E of the product over parts of f(mu + sd z), z ~ N(0, 1): one variable behind all of them.

    A negative sd stands for correlation -1.

    Shapes    every mu and sd of shape batch -> Estimate of shape batch
    Accuracy  error: twice the difference of two orders, plus rounding; panels are halved until it is below
              LINE_TOLERANCE times E |product| everywhere, at most `refinements` times
    Raises    FloatingPointError if a function returns nan
    """
    # the product of two growing functions reaches farther than either: add up how far they push the window
    batch = parts[0][1].shape
    lo, hi, truncated = np.full(batch, -REACH), np.full(batch, REACH), np.full(batch, TRUNCATION)
    for f, mu, sd in parts:
        left, right, more = probe_window(f, mu, sd)
        lo, hi = lo + (left + REACH), hi + (right - REACH)
        truncated = np.where(more, np.inf, truncated * crude_norm(f, mu, sd))

    def integrand(z: Array, order: int, refine: float) -> tuple[Array, Array, int]:
        values = np.ones(z.shape)
        for f, mu, sd in parts:
            values = values * evaluate(f, mu[..., None] + sd[..., None] * z)
        return values, values, z.size

    places = [np.concatenate(arrays, axis=-1) for arrays in zip(*(structure(*part) for part in parts), strict=True)]
    window = np.maximum(lo, -HORIZON), np.minimum(hi, HORIZON)
    return _refined(integrand, parts, window, places, truncated, refinements, LINE_TOLERANCE)


def integrate_plane(first: Side, second: Side, rho: Array, s: Array) -> Estimate:
    """E f(mu_f + sd_f z) g(mu_g + sd_g (rho z + s w)) for independent standard normal z and w, s > 0.

    The outer rule runs over z. It resolves the kinks and features of f and those of G(z) = E[g | z], which are the
    ones of g moved to (c - mu_g) / (sd_g rho) and smoothed to the width s / |rho|. The inner rule runs over w with
    its own panels for every outer node.

    Shapes    all arrays batch -> Estimate of shape batch; work runs through the outer nodes in chunks
    Accuracy  error: twice the difference of two orders (in both variables), plus rounding
    Raises    FloatingPointError if a function returns nan
    """
    (f, mu_f, sd_f), (g, mu_g, sd_g) = first, second
    kinks, centres, scales = structure(*first)
    g_kinks, g_centres, g_scales = structure(*second)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        r = np.abs(rho)[..., None]
        # the outer variable sees g through a Gaussian of this width: kinks become features
        width = 1.5 * s[..., None] / r
        moved = np.concatenate([g_kinks, g_centres], axis=-1) / rho[..., None]
        spread = np.concatenate([np.broadcast_to(width, g_kinks.shape), np.hypot(width, g_scales / r)], axis=-1)
    left, right, more = probe_window(*first)
    low, high, other = inner = probe_window(*second)
    # exp-like growth moves the mass: of z by up to sd_f + |rho| sd_g, of w by up to s sd_g
    push = np.where(rho > 0, low + REACH, REACH - high), np.where(rho > 0, high - REACH, -REACH - low)
    lo, hi = (edge + by * np.abs(rho) for edge, by in zip((left, right), push, strict=True))

    def integrand(z: Array, order: int, refine: float) -> tuple[Array, Array, int]:
        outer = evaluate(f, mu_f[..., None] + sd_f[..., None] * z)
        mean = mu_g[..., None] + (sd_g * rho)[..., None] * z
        value, size, count = _inner(g, mean, sd_g * s, inner[:2], order, refine)
        return outer * value, outer * size, count

    places = kinks, np.concatenate([centres, moved], axis=-1), np.concatenate([scales, spread], axis=-1)
    truncated = np.where(more | other, np.inf, TRUNCATION * crude_norm(*first) * crude_norm(*second))
    window = np.maximum(lo, -HORIZON), np.minimum(hi, HORIZON)
    return _refined(integrand, (first, second), window, places, truncated, PLANE_REFINEMENTS, PLANE_TOLERANCE)


@np.errstate(over="ignore", invalid="ignore")
def _inner(
    g: RealFunction, mean: Array, sd: Array, window: Sequence[Array], order: int, refine: float
) -> tuple[Array, Array, int]:
    """E g(mean + sd w) and E |g(mean + sd w)| for every outer node, in chunks of nodes.

    Shapes    mean batch + (m,), sd batch, window batch -> two arrays batch + (m,), and the number of evaluations
    """
    batch, m = mean.shape[:-1], mean.shape[-1]
    value, size = np.empty(mean.shape), np.empty(mean.shape)
    lifted = replace(g, kinks=g.kinks[..., None, :], features=g.features[..., None, :, :])
    count = 0
    members = max(1, int(np.prod(batch)))
    # 8 panels is the least; adapt to what the first chunk shows
    per_node, start = 8 * order, 0
    while start < m:
        stop = min(m, start + max(1, CHUNK // (members * per_node)))
        part = mean[..., start:stop]
        deviation, lo, hi = (np.broadcast_to(array[..., None], part.shape) for array in (sd, *window))
        w, weights = rule(panel_edges(lo, hi, *structure(lifted, part, deviation), refine=refine), order)
        arguments = part[..., None] + deviation[..., None] * w
        product = evaluate(g, arguments.reshape((*batch, -1))).reshape(w.shape) * (weights * density(w))
        value[..., start:stop], size[..., start:stop] = product.sum(axis=-1), np.abs(product).sum(axis=-1)
        count += w.size
        per_node = max(per_node, w.shape[-1])
        start = stop
    return value, size, count

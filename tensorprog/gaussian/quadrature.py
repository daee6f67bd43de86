"""E f(X) and E f(X) g(Y) by composite Gauss-Legendre rules in standard deviations, batched.

All rules integrate against the standard normal density over a window around 0 that a probe of the function widens
where the function grows (or lives) far out. Two orders on the same panels give value and error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY, Estimate
from tensorprog.gaussian.function import RealFunction, density, evaluate
from tensorprog.gaussian.rules import panel_edges, rule

Array = NDArray[np.floating]
Side = tuple[RealFunction, Array, Array]  # a function, mean and deviation of its variable

__all__ = ["Side", "crude_norm", "integrate_line", "integrate_plane"]

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
# no further refinement of a plane integral beyond this many evaluations
BUDGET = 60_000_000


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


def _weighted_sum(values: Array, weights: Array) -> tuple[Array, Array]:
    """Sum of values * weights over the last axis, and of its absolute values; inf * 0 counts as overflow."""
    product = values * weights
    return np.asarray(product.sum(axis=-1)), np.asarray(np.abs(product).sum(axis=-1))


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
def integrate_line(parts: list[Side], refinements: int = LINE_REFINEMENTS) -> Estimate:
    """E of the product over parts of f(mu + sd z), z ~ N(0, 1): one variable behind all of them.

    A negative sd stands for correlation -1.

    Shapes    every mu and sd of shape batch -> Estimate of shape batch
    Accuracy  error: twice the difference of two orders, plus rounding; panels are halved until it is below
              LINE_TOLERANCE times E |product| everywhere, at most `refinements` times
    Raises    FloatingPointError if a function returns nan
    """
    batch = parts[0][1].shape
    kinks, centres, scales = (
        np.concatenate(arrays, axis=-1) for arrays in zip(*(structure(f, mu, sd) for f, mu, sd in parts), strict=True)
    )
    # the product of two growing functions reaches farther than either: add up how far they push the window
    lo, hi, truncated = np.full(batch, -REACH), np.full(batch, REACH), np.full(batch, TRUNCATION)
    for f, mu, sd in parts:
        left, right, more = probe_window(f, mu, sd)
        lo, hi = lo + (left + REACH), hi + (right - REACH)
        truncated = np.where(more, np.inf, truncated * crude_norm(f, mu, sd))
    lo, hi = np.maximum(lo, -HORIZON), np.minimum(hi, HORIZON)
    best: Estimate | None = None
    pending = np.ones(batch, dtype=bool)
    for level in range(refinements + 1):
        edges = panel_edges(lo, hi, kinks, centres, scales, refine=2.0**level)
        sums = []
        for order in (FINE, COARSE):
            z, w = rule(edges, order)
            weights = w * density(z)
            values = np.ones(z.shape)
            for f, mu, sd in parts:
                values = values * evaluate(f, mu[..., None] + sd[..., None] * z)
            sums.append(_weighted_sum(values, weights))
            if order == FINE:
                extra = truncated
                for _, mu, sd in parts:
                    extra = extra + _argument_rounding(values, z, np.abs(mu) + np.abs(sd), np.abs(sd))
        (fine, absolute), (coarse, _) = sums
        rough = 2 * np.abs(fine - coarse) > LINE_TOLERANCE * absolute
        best, pending = _improve(best, pending, _finish(fine, coarse, absolute, extra), np.asarray(rough))
        if not np.any(pending) or edges.size * FINE > 4_000_000:
            break
    assert best is not None
    return best


@np.errstate(over="ignore", invalid="ignore")
def integrate_plane(first: Side, second: Side, rho: Array, s: Array) -> Estimate:
    """E f(mu_f + sd_f z) g(mu_g + sd_g (rho z + s w)) for independent standard normal z and w, s > 0.

    The outer rule runs over z. It resolves the kinks and features of f and those of G(z) = E[g | z], which are the
    ones of g moved to (c - mu_g) / (sd_g rho) and smoothed to the width s / |rho|. The inner rule runs over w with
    its own panels for every outer node.

    Shapes    all arrays batch -> Estimate of shape batch; work runs through the outer nodes in chunks
    Accuracy  error: twice the difference of two orders (in both variables), plus rounding
    Raises    FloatingPointError if a function returns nan
    """
    batch = rho.shape
    (f, mu_f, sd_f), (g, mu_g, sd_g) = first, second
    kinks, centres, scales = structure(*first)
    g_kinks, g_centres, g_scales = structure(*second)
    with np.errstate(divide="ignore"):
        r = np.abs(rho)[..., None]
        width = s[..., None] / r
        # the outer variable sees g through a Gaussian of this width: kinks become features
        moved = np.concatenate([g_kinks, g_centres], axis=-1) / rho[..., None]
        spread = np.concatenate(
            [np.broadcast_to(1.5 * width, g_kinks.shape), np.hypot(1.5 * width, g_scales / r)], axis=-1
        )
    left_f, right_f, more_f = probe_window(*first)
    left_g, right_g, more_g = probe_window(*second)
    # exp-like growth moves the mass: of z by up to sd_f + |rho| sd_g, of w by up to s sd_g
    push_low = np.where(rho > 0, left_g + REACH, REACH - right_g) * np.abs(rho)
    push_high = np.where(rho > 0, right_g - REACH, -REACH - left_g) * np.abs(rho)
    lo = np.maximum(left_f + push_low, -HORIZON)
    hi = np.minimum(right_f + push_high, HORIZON)
    all_centres, all_scales = np.concatenate([centres, moved], axis=-1), np.concatenate([scales, spread], axis=-1)
    truncated = np.where(more_f | more_g, np.inf, TRUNCATION * crude_norm(*first) * crude_norm(*second))
    best: Estimate | None = None
    pending = np.ones(batch, dtype=bool)
    for level in range(PLANE_REFINEMENTS + 1):
        edges = panel_edges(lo, hi, kinks, all_centres, all_scales, refine=2.0**level)
        sums = []
        extra: Array = np.zeros(batch)
        cost = 0
        for order in (FINE, COARSE):
            z, w = rule(edges, order)
            outer = evaluate(f, mu_f[..., None] + sd_f[..., None] * z)
            mean = mu_g[..., None] + (sd_g * rho)[..., None] * z
            value, size, count = _inner(g, mean, sd_g * s, (left_g, right_g), order, 2.0**level)
            cost += count
            weights = w * density(z)
            total, _ = _weighted_sum(outer * value, weights)
            absolute, _ = _weighted_sum(np.abs(outer) * size, weights)
            sums.append((total, absolute))
            if order == FINE:
                extra = truncated + _argument_rounding(outer * value, z, np.abs(mu_f) + sd_f, sd_f)
                extra = extra + _argument_rounding(outer * value, z, np.abs(mu_g) + sd_g, sd_g)
        (fine, absolute), (coarse, _) = sums
        rough = 2 * np.abs(fine - coarse) > PLANE_TOLERANCE * absolute
        best, pending = _improve(best, pending, _finish(fine, coarse, absolute, extra), np.asarray(rough))
        if not np.any(pending) or 5 * cost > BUDGET:
            break
    assert best is not None
    return best


def _inner(
    g: RealFunction, mean: Array, sd: Array, window: tuple[Array, Array], order: int, refine: float
) -> tuple[Array, Array, int]:
    """E g(mean + sd w) and E |g(mean + sd w)| for every outer node, in chunks of nodes.

    Shapes    mean batch + (m,), sd batch, window batch -> two arrays batch + (m,), and the number of evaluations
    """
    batch, m = mean.shape[:-1], mean.shape[-1]
    value, size = np.empty(mean.shape), np.empty(mean.shape)
    lifted_kinks = g.kinks[..., None, :]
    lifted_features = g.features[..., None, :, :]
    count = 0
    members = max(1, int(np.prod(batch)))
    # 8 panels is the least; adapt to what the first chunk shows
    per_node, start = 8 * order, 0
    while start < m:
        stop = min(m, start + max(1, CHUNK // (members * per_node)))
        part = mean[..., start:stop]
        deviation = np.broadcast_to(sd[..., None], part.shape)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            x, d = part[..., None], deviation[..., None]
            kinks = np.broadcast_to((lifted_kinks - x) / d, part.shape + g.kinks.shape[-1:])
            centres = np.broadcast_to((lifted_features[..., 0] - x) / d, part.shape + g.features.shape[-2:-1])
            scales = np.broadcast_to(lifted_features[..., 1] / d, centres.shape)
        lo = np.broadcast_to(window[0][..., None], part.shape)
        hi = np.broadcast_to(window[1][..., None], part.shape)
        w, weights = rule(panel_edges(lo, hi, kinks, centres, scales, refine), order)
        weights = weights * density(w)
        arguments = part[..., None] + deviation[..., None] * w
        values = evaluate(g, arguments.reshape((*batch, -1))).reshape(w.shape)
        value[..., start:stop], size[..., start:stop] = _weighted_sum(values, weights)
        count += w.size
        per_node = max(per_node, w.shape[-1])
        start = stop
    return value, size, count

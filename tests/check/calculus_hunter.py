"""An optimiser that hunts violations of what is certified of an expression.

Points are R^8: g[0], e, p[0,0..2], v[0..2]; the average m is a number.  Search is by climbing: from the best of many
points, in steps along coordinates, rays and random directions, at scales that shrink, and from points as small and as
large as floats.  What is found is no violation before it is one with 60 digits: rounding and overflow deceive nobody.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np
from calculus_exact import TINY, exact
from calculus_expressions import BASE
from numpy.typing import NDArray

from tensorprog.check.certificates import Profile
from tensorprog.language.evaluate import BATCH, Open, Scope, evaluate
from tensorprog.language.expr import Expr, Variable

Array = NDArray[np.float64]
SIZE = 8
AVERAGE = 1.3
RADII = (0.0, 1e-3, 1.0, 5.0, 1e2, 1e3, 1e6)
EXTREMES = (1e-300, 1e-150, 1e-30, 1e-8, 1e12, 1e30, 1e100, 1e300)
SCALES = (3.0, 1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4)


def members(expr: Expr, at: Array) -> Array:
    """Values at points, one column for each member over bound indices."""

    def variable(reference: Variable, _: object) -> Open:
        if reference.name == "g":
            return Open((BATCH, "i"), at[:, :1])
        if reference.name == "e":
            return Open((BATCH,), at[:, 1])
        if reference.name == "m":
            return Open((), np.asarray(AVERAGE))
        return Open((BATCH, "i", "j"), at[:, None, 2:5]) if reference.name == "p" else Open((BATCH, "j"), at[:, 5:8])

    result = evaluate(expr, Scope(BASE, BASE.ranges | {"i": (0, 1)}, variable))
    data = np.asarray(result.data, dtype=float).reshape(len(at) if BATCH in result.axes else 1, -1)
    return np.broadcast_to(data, (len(at), data.shape[1]))


def values(expr: Expr, at: Array) -> Array:
    """Values at points of R^8."""
    return members(expr, at)[:, 0]


def _exactly(expr: Expr, at: Sequence[mp.mpf]) -> mp.mpf:
    """The value at one point with 60 digits; with as many as 1e300 - 1 has, far out."""
    start = {"g": 0, "p": 2, "v": 5}

    def read(name: str, member: Sequence[int]) -> mp.mpf:
        if name == "m":
            return mp.mpf(AVERAGE)
        return at[1] if name == "e" else at[start[name] + (0 if name == "g" else member[-1])]

    with mp.workdps(700 if max(map(abs, at)) > 1e20 else 60):
        return exact(BASE, expr, read, {"i": 0, "j": 0, "l": 0})


def _precise(at: Array) -> list[mp.mpf]:
    return [mp.mpf(float(x)) for x in at]


@functools.lru_cache
def cloud(radius: float) -> Array:
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(150, SIZE))
    directions[:60] *= rng.integers(0, 2, size=(60, SIZE))  # faces, where some arguments are 0
    directions[60:90] = np.sign(directions[60:90])
    return directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-9) * radius


def climb(
    score: Callable[[Array], Array],
    start: Array,
    project: Callable[[Array], Array] = lambda x: x,
    scales: tuple[float, ...] = SCALES,
) -> Array:
    """Points at which a score is large, the largest first; start: candidates, of which the best are improved."""
    rng = np.random.default_rng(2)

    def clean(x: Array) -> Array:
        return np.nan_to_num(score(x), nan=-np.inf, posinf=np.inf, neginf=-np.inf)

    first = clean(start)
    best = start[np.argsort(first)[::-1][:4]]
    for scale in scales:
        size = best.shape[1]
        moves = np.concatenate([np.eye(size), -np.eye(size), rng.normal(size=(size, size)) / math.sqrt(size)])
        reach = 1 + np.abs(best).max(axis=1)[:, None, None]
        tried = np.concatenate([best[:, None, :], best[:, None, :] + scale * reach * moves], axis=1)
        tried = np.concatenate([tried, best[:, None, :] * np.array([1 - scale / 4, 1 + scale])[None, :, None]], axis=1)
        tried = project(tried.reshape(-1, size)).reshape(tried.shape)
        gains = clean(tried.reshape(-1, size)).reshape(tried.shape[:2])
        best = tried[np.arange(len(best)), gains.argmax(axis=1)]
    return best[np.argsort(clean(best))[::-1]]


def on_sphere(radius: float) -> Callable[[Array], Array]:
    return lambda x: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300) * radius


def violation(expr: Expr, f: Profile) -> str:
    """What is found against the certified facts; '' for nothing."""
    origin = [mp.mpf(0)] * SIZE
    if any(shows is not None and not mp.isfinite(_exactly(shows, origin)) for _, shows in f.assumes):
        return ""  # what is assumed of the average is false at its value
    with np.errstate(all="ignore"):
        if f.partial is not None:  # no number somewhere: of the rest only the direction is certified
            return wrong_way(expr, f)
        return (
            outside_range(expr, f)
            or too_large(expr, f)
            or too_steep(expr, f)
            or wrong_parity(expr, f)
            or wrong_way(expr, f)
            or unlisted_kink(expr, f)
        )


def outside_range(expr: Expr, f: Profile) -> str:
    for radius in RADII:
        x = cloud(radius)
        for at in x[np.isnan(values(expr, x))][:3]:
            if radius <= 5 and not f.assumes and mp.isnan(_exactly(expr, _precise(at))):
                return f"not a number at {at}"
    for radii, scales in ((RADII, SCALES), (EXTREMES, (1.0, 0.1))):
        x = np.concatenate([cloud(radius) for radius in radii])
        for sign, end in ((1.0, f.high), (-1.0, -f.low)):
            if end == math.inf:
                continue

            def excess(at: Array, sign: float = sign, end: float = end) -> Array:
                v = sign * values(expr, at)
                return (v - end) / (1 + np.abs(v))

            for best in climb(excess, x, scales=scales):
                if not excess(best[None])[0] > 1e-9:
                    continue
                TINY.clear()
                v = sign * _exactly(expr, _precise(best))
                if not TINY and mp.isfinite(v) and v - end > 1e-9 * (1 + abs(v)):
                    return f"range: {float(sign * v)} at {best}, certified {f.interval}"
    return ""


def ratios_rise(ratios: dict[float, float], floor: float) -> bool:
    """Whether the last ratio exceeds those before it, by far more than a constant that settles can."""
    *before, last = ratios.values()
    return last > 20 * max(before, default=0.0) + floor


def too_large(expr: Expr, f: Profile) -> str:
    if f.growth * 6 > 200:
        return ""

    def ratio(at: Array) -> Array:
        return np.abs(values(expr, at)) / (1 + np.linalg.norm(at, axis=1) ** f.growth)

    places = {radius: climb(ratio, cloud(radius), on_sphere(radius))[0] for radius in (1.0, 5.0, 1e2, 1e3, 1e6)}
    found = {radius: float(np.nan_to_num(ratio(at[None])[0], posinf=np.inf)) for radius, at in places.items()}
    if math.inf not in found.values() and not ratios_rise(found, 1e-6):
        return ""

    def exactly(radius: float, at: Array) -> float:
        """The ratio with 60 digits, which may be more than a float can say; 0 where there is no number.

        Infinite where an exponent is too large for the oracle, which proves nothing.
        """
        size = abs(_exactly(expr, _precise(at))) / (1 + mp.mpf(radius) ** f.growth)
        return float(0 if mp.isnan(size) else size if mp.isinf(size) else min(size, mp.mpf(10) ** 300))

    known = {radius: exactly(radius, at) for radius, at in places.items()}
    known = {radius: size for radius, size in known.items() if size < math.inf}
    return f"growth: {known}, certified {f.growth}" if ratios_rise(known, 1e-6) else ""


def slopes(expr: Expr, at: Array, step: Array) -> Array:
    """Slopes along a step, less what rounding may bring."""
    v, w = values(expr, at), values(expr, at + step)
    radius = np.linalg.norm(at, axis=1)
    change = np.abs(w - v) - 1e-11 * (np.abs(v) + np.abs(w)) * (1 + radius)
    return change / np.linalg.norm(step, axis=1)


def _exact_slope(expr: Expr, at: Array) -> float:
    """The slope between a point and another, with 60 digits."""
    x, step = _precise(at[:SIZE]), _precise(at[SIZE:])
    change = _exactly(expr, [a + b for a, b in zip(x, step, strict=True)]) - _exactly(expr, x)
    slope = abs(change) / mp.norm(step)
    return float(0 if mp.isnan(slope) else min(slope, mp.mpf(10) ** 300))


def too_steep(expr: Expr, f: Profile) -> str:
    if not f.pseudo_lipschitz or f.modulus * 3 > 200:
        return ""
    ratios = {}
    directions = np.random.default_rng(1).normal(size=(150, SIZE))
    for radius in (1.0, 5.0, 1e2, 1e3):
        start = np.concatenate([cloud(radius), directions], axis=1)  # a point and a direction
        found = []
        for h in (1e-2, 1e-4, 1e-6, 1e-8) if radius <= 5 else (1e-2, 1e-4, 1e-6):

            def moved(at: Array, h: float = h, radius: float = radius) -> tuple[Array, Array]:
                return on_sphere(radius)(at[:, :SIZE]), on_sphere(h)(at[:, SIZE:])

            def slope(at: Array, moved: Callable[[Array], tuple[Array, Array]] = moved) -> Array:
                return slopes(expr, *moved(at))

            # each from the best of the step before: where an infinite slope is, it is found
            start = climb(slope, start, scales=tuple(h * k for k in (100, 10, 3, 1, 0.3)))
            found.append((float(slope(start[:1])[0]), np.concatenate(moved(start[:1]), axis=1)[0]))
        sizes = [size for size, _ in found]
        if radius <= 5 and all(b > 5 * a for a, b in itertools.pairwise(sizes)):
            sizes = [_exact_slope(expr, at) for _, at in found]
            if all(b > 5 * a for a, b in itertools.pairwise(sizes)):
                return f"slope: {sizes} over smaller and smaller steps, at {start[0]}"
        ratios[radius] = max(found[:3], key=lambda pair: pair[0])

    def relative(sizes: dict[float, float]) -> dict[float, float]:
        return {radius: size / (1 + radius**f.modulus) for radius, size in sizes.items()}

    if not ratios_rise(relative({radius: size for radius, (size, _) in ratios.items()}), 1e-3):
        return ""
    known = relative({radius: _exact_slope(expr, at) for radius, (_, at) in ratios.items()})
    return f"modulus: {known}, certified {f.modulus}" if ratios_rise(known, 1e-3) else ""


def wrong_parity(expr: Expr, f: Profile) -> str:
    if f.parity == 0 or f.assumes:
        return ""

    def gap(at: Array) -> Array:
        v, w = values(expr, at), values(expr, -at)
        return np.abs(w - f.parity * v) / (1 + np.abs(v) + np.abs(w))

    best = climb(gap, np.concatenate([cloud(1.0), cloud(5.0)]))[0]
    if not gap(best[None])[0] > 1e-9:
        return ""
    v, w = _exactly(expr, _precise(best)), _exactly(expr, _precise(-best))
    wrong = abs(w - f.parity * v) > 1e-9 * (1 + abs(v) + abs(w))
    return f"parity: {v} and {w} at {best} and its negative" if wrong else ""


def wrong_way(expr: Expr, f: Profile) -> str:
    if f.monotone == 0 or f.assumes:
        return ""
    rng = np.random.default_rng(3)
    for falls, certified in ((False, f.rises), (True, f.falls)):
        if not certified:
            continue

        def drop(at: Array, falls: bool = falls) -> Array:
            x, y = at[:, :SIZE], at[:, :SIZE] + np.abs(at[:, SIZE:])
            v, w = values(expr, x), values(expr, y)
            known = True if f.partial is None else np.isfinite(values(f.partial.expr, x) + values(f.partial.expr, y))
            return np.where(known, (w - v if falls else v - w) / (1 + np.abs(v) + np.abs(w)), np.nan)

        steps = rng.normal(size=(300, SIZE)) * rng.integers(0, 2, size=(300, SIZE))
        best = climb(drop, np.concatenate([np.concatenate([cloud(1.0), cloud(5.0)]), steps], axis=1))[0]
        if not drop(best[None])[0] > 1e-9:
            continue
        x, y = _precise(best[:SIZE]), _precise(best[:SIZE] + np.abs(best[SIZE:]))
        v, w = _exactly(expr, x), _exactly(expr, y)
        if (w - v if falls else v - w) > 1e-9 * (1 + abs(v) + abs(w)):
            return f"monotone: wrong between {x} and {y}"
    return ""


def bend(expr: Expr, at: Array, h: float) -> Array:
    """|f(x + h d) - 2 f(x) + f(x - h d)| / h, which is O(h) where f is twice differentiable."""
    x, d = at[:, :SIZE], on_sphere(h)(at[:, SIZE:])
    parts = values(expr, x + d), values(expr, x), values(expr, x - d)
    rounding = 1e-14 * sum(map(np.abs, parts))
    return np.maximum(np.abs(parts[0] - 2 * parts[1] + parts[2]) - rounding, 0) / h


def _exact_bend(expr: Expr, at: Array, h: float) -> float:
    """`bend` with 60 digits."""
    x = _precise(at[:SIZE])
    size = mp.norm(_precise(at[SIZE:]))
    d = [step / size * mp.mpf(h) for step in _precise(at[SIZE:])]
    up, down = ([a + sign * b for a, b in zip(x, d, strict=True)] for sign in (1, -1))
    return float(abs(_exactly(expr, up) - 2 * _exactly(expr, x) + _exactly(expr, down)) / h)


def unlisted_kink(expr: Expr, f: Profile) -> str:
    if f.kinks is None or f.assumes:
        return ""
    rng = np.random.default_rng(4)
    found = np.concatenate([np.concatenate([cloud(1.0), cloud(5.0)]), rng.normal(size=(300, SIZE))], axis=1)
    bends = []
    for h in (0.3, 3e-2, 3e-3, 3e-4, 1e-5, 1e-6):
        found = climb(lambda at, h=h: bend(expr, at, h), found, scales=tuple(h * k for k in (3, 1, 0.3, 0.1, 0.03)))
        bends.append(bend(expr, found, h))
    size = 1 + np.abs(values(expr, found[:, :SIZE]))
    bad = np.isfinite(bends[-1]) & (bends[-1] > 1e-3 * size) & (bends[-1] > 0.3 * bends[-3])
    for place in found[bad]:
        point = place[:SIZE]
        if not _exact_bend(expr, place, 1e-6) > 0.3 * _exact_bend(expr, place, 3e-4) > 1e-4:
            continue
        near = [
            np.abs(members(inner, point[None]) - t).min() <= 1e-2 * (1 + abs(t))
            for inner, thresholds in f.kinks
            for t in thresholds
        ]
        if not any(near):
            return f"kink at {point}, listed {[(str(inner), t) for inner, t in f.kinks]}"
    return ""

"""E f(X) g(Y) at zero means for f, g built of 1, x, |x|, sign(x), erf(a x) and x erf(a x): arc-cosine, arcsine kernels.

For chains of kernels also of B(x) = exp(-x^2 / (2 h)) and x B(x), of which derivatives of erf(a x) and x erf(a x) are
built: E f'(X) g'(Y) is the derivative of E f(X) g(Y) by the covariance (Price 1958), of the same correlation.

    E |X| |Y|                        = (2 / pi) sd sd' (s + rho asin rho)                    Cho & Saul 2009, n = 1
    E sign(X + dX) sign(Y + dY)      = (2 / pi) asin(c / sqrt((v + h) (v' + h')))            Sheppard 1899
    E Y sign(X + dX)                 = c sqrt(2 / pi) / sqrt(v + h)
    E X sign(X + dX) Y sign(Y + dY)  = (2 / pi) S S' (r asin r + (p p' + r^2 (1 - p - p')) / sqrt(1 - r^2))
    E X sign(X + dX)                 = sqrt(2 / pi) v / sqrt(v + h)

with dX ~ N(0, h) independent, S^2 = v + h, p = v / (v + h) and r = c / (S S'); erf(a x) is the mean of sign(x + dX)
for h = 1 / (2 a^2), which turns Sheppard's formula into Williams' (1998). The last but one is Stein's lemma,
E X F = v E dF/dX + c E dF/dY, for F = Y sign(..) sign(..); with h = h' = 0 it is the first. Products of opposite parity
vanish. With V = v + h, W = w + k, r the correlation c / sqrt(V W) and s^2 = 1 - r^2,

    E B(X) B(Y)                      = sqrt(h k / (V W)) / s
    E X B(X) Y B(Y)                  = h^(3/2) k^(3/2) / (V W) r / s^3
    E sign(X + dX) Y B(Y)            = sqrt(2 / pi) k^(3/2) / W r / s
    E X Y B(Y)                       = c (k / W)^(3/2)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, Estimate, Sizes, compact, largest_ratio
from tensorprog.gaussian.function import FunctionTerm, RealFunction
from tensorprog.gaussian.integrand import (
    FactoredIntegrand,
    Index,
    Integrand,
    part,
    refuse_covariance_of_constants,
    tiled,
)
from tensorprog.gaussian.normal import correlation, refuse_correlation
from tensorprog.language.linalg import alike

Array = NDArray[np.floating]

__all__ = [
    "Correlated", "Elementary", "arc_dual", "arc_kernel", "elementary", "kernel", "kernel_error", "kernel_sensitivity",
    "small_kernel",
]  # fmt: skip

MEAN_ABS = float(np.sqrt(2 / np.pi))  # E |X| of a standard normal X
# asin loses 1 / sqrt(1 - rho^2) of relative accuracy: beyond this correlation 1 - rho^2 comes from exact products
STEEP = 0.999
# spreads and variances outside count as extreme: their squares would over- or underflow
SMALL, LARGE = 1e-150, 1e150
# units of rounding in one kernel, relative to the product of the sizes: of |x| |y| and all else, and of the argument
# of the arc sine, which its slope multiplies
ULPS, ULPS_ARGUMENT = 16.0, 4.0
# x erf(a x) has slopes up to 1.2579, and a root mean square up to sqrt(6 / pi) v / sqrt(v + h), h = 1 / (2 a^2)
RAMP_SLOPE, RAMP_SIZE = 1.258, 1.39
# p and p' above this are far enough from 0 for p + p' - 1 to be computed as it is
FAIR = 0.1
# errors of the argument of an arc sine, times its slope, from which first order may not be enough
LINEAR = 1e-6
ALIKE = 4.0  # how much larger than a norm a bound on it may be to be replaced by it
ROUNDED = 1e-12  # errors of correlations that are rounding
TILE = 1 << 16  # members at once, so that a handful of arrays stay in cache


@dataclass(frozen=True)
class Elementary:
    """constant + linear x + modulus |x| + sum of amplitude * erf(x / sqrt(2 spread)); spread 0 means the sign.

    at_zero   the constant at 0, which differs where a step counts as 0 at its own place
    ramps     further summands amplitude * x erf(x / sqrt(2 spread)), with spreads above 0
    bells     further summands amplitude * exp(-x**2 / (2 spread)); `moved_bells` these times x
    """

    constant: float
    at_zero: float
    linear: float
    modulus: float
    sigmoids: tuple[tuple[float, float], ...]  # amplitude, spread
    ramps: tuple[tuple[float, float], ...] = ()
    bells: tuple[tuple[float, float], ...] = ()
    moved_bells: tuple[tuple[float, float], ...] = ()

    @property
    def spreads(self) -> list[float]:
        """The spreads of summands that depend on 1 / sqrt(1 - r^2)."""
        return [h for _, h in (*self.sigmoids, *self.bells, *self.moved_bells)]

    @property
    def even_slope(self) -> float:
        """A Lipschitz constant of the even part."""
        return abs(self.modulus) + RAMP_SLOPE * sum(abs(a) for a, _ in self.ramps)

    @property
    def even(self) -> tuple[tuple[float, float], ...]:
        """The even part but for the constant, |x| as x erf(x / 0)."""
        return ((self.modulus, 0.0), *self.ramps) if self.modulus else self.ramps


def elementary(f: RealFunction) -> Elementary | None:
    """f in that form, without bells, if its terms have it."""
    found = _with_bells(f)
    return None if found is None or found.bells or found.moved_bells else found


@lru_cache(maxsize=64)
def _with_bells(f: RealFunction) -> Elementary | None:
    """f in that form, if its terms have it: step(x) = (1 + sign x) / 2 and x step(x) = (x + |x|) / 2."""
    if f.terms is None:
        return None
    constant = at_zero = linear = modulus = 0.0
    sigmoids: dict[float, float] = {}
    ramps: dict[float, float] = {}
    bells: dict[float, float] = {}
    moved: dict[float, float] = {}
    for term in f.terms:
        numbers = _numbers(term)
        if numbers is None or term.power > 1:
            return None
        amplitude, scale = numbers
        if term.kind == "one" and term.power == 0:
            constant, at_zero = constant + amplitude, at_zero + amplitude
        elif term.kind == "one":
            linear += amplitude
        elif scale == 0:
            if term.kind == "gaussian":
                return None
            continue  # step(0) = erf(0) = 0
        elif term.kind == "step" and term.power == 1:
            linear, modulus = linear + amplitude / 2, modulus + np.sign(scale) * amplitude / 2
        elif term.kind == "step":
            constant += amplitude / 2
            sigmoids[0.0] = sigmoids.get(0.0, 0.0) + np.sign(scale) * amplitude / 2
        elif term.kind == "erf" and SMALL < scale * scale < LARGE:
            spread, found = 0.5 / (scale * scale), ramps if term.power else sigmoids
            found[spread] = found.get(spread, 0.0) + np.sign(scale) * amplitude
        elif term.kind == "gaussian" and SMALL < scale * scale < LARGE:
            spread, found = 1 / (scale * scale), moved if term.power else bells
            found[spread] = found.get(spread, 0.0) + amplitude
        else:
            return None
    bends = (tuple((float(a), h) for h, a in found.items()) for found in (sigmoids, ramps, bells, moved))
    return Elementary(constant, at_zero, linear, float(modulus), *bends)


def _numbers(term: FunctionTerm) -> tuple[float, float] | None:
    """Coefficient and scale of a term without shift and without parameters that vary over the batch."""
    values = [np.asarray(value, dtype=np.float64) for value in (term.coefficient, term.scale, term.shift)]
    if any(value.size != 1 for value in values) or (term.kind != "one" and values[2].item() != 0):
        return None
    return values[0].item(), values[1].item()


def arc_kernel(integrand: Integrand) -> Estimate | None:
    """The first method: all members at once, with one bound on the error for all that have the same variances."""
    if not isinstance(integrand, FactoredIntegrand) or not integrand.plain or len(integrand.functions) == 1:
        return None
    found = _elementary(integrand)
    if found is None:
        return None
    (f, g), (v, w) = found, integrand.var
    refuse_covariance_of_constants(v, w, integrand.cov, integrand.slack)
    swap = (1, 0, 2) if integrand.functions[0] is integrand.functions[1] and integrand.pairs else None
    compute = partial(kernel, f, g, slack=integrand.slack)
    (value,) = tiled(compute, (v, w, integrand.cov), TILE, pairs=integrand.pairs, swap=swap)
    return Estimate(value, np.broadcast_to(kernel_error(f, g, v, w), value.shape))


def _elementary(
    integrand: FactoredIntegrand, form: Callable[[RealFunction], Elementary | None] = elementary
) -> tuple[Elementary, Elementary] | None:
    """Both functions in that form if they have it, means are zero, and variances zero or far from extreme."""
    f, g = map(form, integrand.functions)
    if f is None or g is None or any(map(np.any, integrand.mu)):
        return None
    if not all(map(_ordinary, integrand.var)):
        return None
    return f, g


class Correlated:
    """Pairs of variables at some members, with what their kernels share: correlations, their arc sines and roots.

    Shapes    variances broadcast to the covariances; nothing here may be overwritten
    """

    def __init__(self, var_f: Array, var_g: Array, cov: Array) -> None:
        self.var, self.cov = (var_f, var_g), cov
        self._known: dict[tuple[str, float, float], Array] = {}

    def rho(self, h: float, k: float) -> Array:
        """The correlation of X + dX and Y + dY, dX ~ N(0, h) and dY ~ N(0, k)."""
        if ("rho", h, k) not in self._known:
            first, second = (_inverse_root(var + spread) for var, spread in zip(self.var, (h, k), strict=True))
            self._known["rho", h, k] = _correlation(self.cov, first, second)
        return self._known["rho", h, k]

    def angle(self, h: float, k: float) -> Array:
        """Its arc sine."""
        if ("angle", h, k) not in self._known:
            self._known["angle", h, k] = np.arcsin(self.rho(h, k))
        return self._known["angle", h, k]

    def square(self, h: float, k: float) -> Array:
        """1 - rho**2, without cancellation."""
        if ("square", h, k) not in self._known:
            square = 1 - self.rho(h, k)
            square *= 1 + self.rho(h, k)
            self._known["square", h, k] = square
        return self._known["square", h, k]

    def root(self, h: float, k: float) -> Array:
        """Its square root."""
        if ("root", h, k) not in self._known:
            self._known["root", h, k] = np.sqrt(self.square(h, k))
        return self._known["root", h, k]

    def tangent(self, h: float, k: float) -> Array:
        """The correlation over that root."""
        if ("tangent", h, k) not in self._known:
            self._known["tangent", h, k] = self.rho(h, k) / self.root(h, k)
        return self._known["tangent", h, k]


class ArcDual:
    """E f(X) g(Y) as a function of the covariance, and bounds on it."""

    def __init__(self, one: _Variable, two: _Variable, sizes: Sizes) -> None:
        self.one, self.two, self.sizes = one, two, sizes

    def values(self, index: Index, at: Correlated) -> Array:
        """At the covariances of a part of the pairs."""
        return _kernel(self.one, self.two, self.one.part(index), self.two.part(index), at, True)


def arc_dual(integrand: FactoredIntegrand, moved: tuple[float, float, float], jumps: bool) -> ArcDual | None:
    """E f(X) g(Y) for laws that are uncertain: `moved` bounds the errors of the covariance over both deviations, and of
    these over themselves.

    The bounds are those of `kernel_error` and `kernel_sensitivity`, whose sums over products of something of X and
    something of Y are taken at the largest of each. For functions that jump the bound for all pairs is that of a pair
    at correlation 1, where an arc sine moves by arccos(1 - d) for a small d: only if such `jumps` are wanted.
    """
    found = _elementary(integrand, _with_bells)
    if found is None:
        return None
    (f, g), (v, w) = found, integrand.var
    relative = (_bell_bound if any(h.bells or h.moved_bells for h in found) else _arc_bound)(f, g, v, w, moved, jumps)
    if relative is None or not np.isfinite(relative):
        return None
    one, two = _Variable(f, v, g), _Variable(g, w, f)
    sizes, relative = _norm(one, relative)
    others, relative = _norm(two, relative)
    return ArcDual(one, two, Sizes(sizes, others, relative))


def _slopes(f: Elementary, var: Array) -> tuple[Array, Array]:
    """Bounds on sd sqrt(E f'(X)^2) and on sqrt(E f'(X)^2 X^2), by the sums of those of the summands.

    Under exp(-x^2 / h) the law of X has the mass (h / (h + 2 v))^(1/2) and the variance t = h v / (h + 2 v).
    """
    sd = np.sqrt(var)
    slope = moved = np.asarray(abs(f.linear) * sd)
    parts = [*((MEAN_ABS * abs(a) / math.sqrt(h) if h else math.inf, h, 0) for a, h in f.sigmoids),
             *((abs(a), h, 1) for a, h in f.bells), *((abs(a), h, 2) for a, h in f.moved_bells)]  # fmt: skip
    for a, h, kind in parts:
        if not h:
            return np.where(var > 0, np.inf, 0.0), np.where(var > 0, np.inf, 0.0)
        root, t = (h / (h + 2 * var)) ** 0.25, var / (h + 2 * var)  # t over h
        square = (np.ones(()), t / h, 1 - 2 * t + 3 * t * t)[kind]
        further = (h * t, 3 * t * t, h * (t - 6 * t * t + 15 * t**3))[kind]
        slope, moved = slope + a * sd * root * np.sqrt(square), moved + a * root * np.sqrt(further)
    return slope, moved


def _norm(one: _Variable, relative: float) -> tuple[Array, float]:
    """sqrt(E f(X)^2), and an error relative to it in the place of one relative to the size, where both are alike."""
    f, v = one.f, one.arrays["var"]
    size, given = kernel_size(f, v), one.arrays.__getitem__
    norm = np.sqrt(np.maximum(_kernel(one, one, given, given, Correlated(v, v, v), False), 0.0))
    norm = norm + math.sqrt(relative) * size
    ratio = largest_ratio(size, norm)
    return (norm, relative * ratio) if ratio <= ALIKE else (size, relative)


def _arc_bound(
    f: Elementary, g: Elementary, v: Array, w: Array, moved: tuple[float, float, float], jumps: bool
) -> float | None:
    """The error of the kernel relative to the product of the sizes; None where that says too little."""
    slope, sizes = _slope(f, g, v, w), (kernel_size(f, v), kernel_size(g, w))
    (one_f, sd_f, tilt_f, jump_f), (one_g, sd_g, tilt_g, jump_g) = (
        [largest_ratio(array, size) for array in (np.ones(()), sd, _tilt(h, sd**2) * sd, _jump(h, sd))]
        for h, sd, size in zip((f, g), map(np.sqrt, (v, w)), sizes, strict=True)
    )
    total = sum(moved)
    steep = slope * tilt_f * tilt_g * total if tilt_f and tilt_g else 0.0
    if not steep <= LINEAR:
        if not jumps or total > ROUNDED:
            return None
        steep = min(steep, jump_f * jump_g * math.acos(1 - total))
    rate = (abs(f.linear * g.linear) + f.even_slope * g.even_slope) * sd_f * sd_g
    rate += abs(f.linear) * sd_f * tilt_g + abs(g.linear) * sd_g * tilt_f
    even = abs(f.constant) * g.even_slope * moved[2] * sd_g * one_f
    even += abs(g.constant) * f.even_slope * moved[1] * sd_f * one_g
    return float(_rounding(f, g, v, w) + rate * total + steep + (even if f.constant or g.constant else 0.0))


def _bell_bound(
    f: Elementary, g: Elementary, v: Array, w: Array, moved: tuple[float, float, float], jumps: bool
) -> float | None:
    """The same for functions with bells, by the inequality of Cauchy and Schwarz.

    The derivative by c is E f' g', that by sd_f at one correlation E f' g X / sd_f.
    """
    if f.even or g.even:
        return None
    slopes = [[largest_ratio(array, kernel_size(h, var)) for array in _slopes(h, var)] for h, var in ((f, v), (g, w))]
    top, other = (
        max((var.max(initial=0.0) / (var.max(initial=0.0) + spread) for spread in h.spreads if var.any()), default=0.0)
        for h, var in ((f, v), (g, w))
    )
    steep = 1 / (1 - top * other) if top * other < 1 else math.inf  # of r / s^3, times r over the same
    if not EPS * steep <= LINEAR:
        return None
    changed = sum(moved) * slopes[0][0] * slopes[1][0] + moved[1] * slopes[0][1] + moved[2] * slopes[1][1]
    return float(EPS * (2 * ULPS + 4 * ULPS_ARGUMENT * steep) + changed)


def kernel_size(f: Elementary, var: Array) -> Array:
    """A bound on sqrt(E f(X)^2) that is at most a small multiple of it, unless summands of f cancel.

    Shapes    var -> the same
    """
    sd = np.sqrt(var)
    size = np.abs(_constant(f, var)) + (abs(f.linear) + abs(f.modulus)) * sd
    for amplitude, spread in f.sigmoids:
        size = size + abs(amplitude) * sd * _inverse_root(var + spread)
    for amplitude, spread in f.ramps:
        size = size + RAMP_SIZE * abs(amplitude) * var * _inverse_root(var + spread)
    for amplitude, spread in f.bells:
        size = size + abs(amplitude) * (spread / (spread + 2 * var)) ** 0.25
    for amplitude, spread in f.moved_bells:
        size = size + abs(amplitude) * sd * (spread / (spread + 2 * var)) ** 0.75
    return np.asarray(size)


def kernel(f: Elementary, g: Elementary, var_f: Array, var_g: Array, cov: Array, slack: float) -> Array:
    """E f(X) g(Y) for (X, Y) Gaussian of mean zero.

    Shapes    arguments broadcast to the batch; var_f and var_g may have axes of length 1 -> batch
    Accuracy  see `kernel_error`, taking the arguments as exact
    Raises    ValueError for an infinite covariance or a correlation beyond 1 + slack
    """
    shape = np.broadcast_shapes(var_f.shape, var_g.shape, cov.shape)
    cov = np.broadcast_to(cov, shape)
    if not np.isfinite(cov).all():
        raise ValueError("cov must be finite")
    if np.isfinite(slack):
        refuse_correlation(np.abs(cov * (_inverse_root(var_f) * _inverse_root(var_g))).max(initial=0.0), slack)
    one, two = _Variable(f, var_f, g), _Variable(g, var_g, f)
    return _kernel(one, two, one.arrays.__getitem__, two.arrays.__getitem__, Correlated(var_f, var_g, cov), False)


class _Variable:
    """What the kernel needs of one function and of the variances of its variable.

    Shapes    arrays as the variances, or numbers; of some members (`part`) as these
    """

    def __init__(self, f: Elementary, var: Array, other: Elementary) -> None:
        self.f = f
        none = np.zeros((1,) * var.ndim)
        self.arrays = {"var": var, "modulus": MEAN_ABS * f.modulus * np.sqrt(var) if f.modulus else none}
        if f.sigmoids or f.moved_bells:
            self.arrays["tilt"] = MEAN_ABS * _tilt(f, var, float)
        for a, h in f.moved_bells:
            self.arrays["tilt"] = self.arrays["tilt"] + a * (h / (var + h)) ** 1.5
        if f.constant or f.at_zero:
            self.arrays["one"] = _constant(f, var)
        self.arrays["even"] = self.arrays["modulus"]
        for k, (a, h) in enumerate(f.even if f.ramps or other.ramps else ()):
            inverse = _inverse_root(var + h)
            named = {"size": MEAN_ABS * a * np.sqrt(var + h)}
            named |= {"share": var * inverse**2, "rest": h * inverse**2 if h else np.where(var > 0, 0.0, 1.0)}
            self.arrays |= {f"ramp {name} {k}": array for name, array in named.items()}
            if h:
                self.arrays["even"] = self.arrays["even"] + MEAN_ABS * a * var * inverse
        for k, (a, h) in enumerate(f.bells):
            self.arrays[f"bell {k}"] = a * np.sqrt(h / (var + h))
            self.arrays["even"] = self.arrays["even"] + self.arrays[f"bell {k}"]
        for k, (a, h) in enumerate(f.moved_bells):
            self.arrays[f"moved {k}"] = a * h**1.5 / (var + h)

    def part(self, index: Index) -> Callable[[str], Array]:
        """The arrays by name, of some members."""
        return lambda name: part(self.arrays[name], index)


class _Total:
    """A sum of arrays of one shape, in the first of them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.value = shape, None

    value: Array | None

    def add(self, summand: Array) -> None:
        """Add an array, which may be overwritten if it has the shape of the batch."""
        if self.value is None:
            self.value = summand if summand.shape == self.shape else np.broadcast_to(summand, self.shape).copy()
        else:
            np.add(self.value, summand, out=self.value)


def _kernel(
    one: _Variable, two: _Variable, first: Callable[[str], Array], second: Callable[[str], Array], at: Correlated,
    together: bool,
) -> Array:  # fmt: skip
    """The kernel at some members, for covariances of the shape of the batch, which may exceed both deviations."""
    f, g, cov = one.f, two.f, at.cov
    total = _Total(cov.shape)
    odd = [bool(h.linear or h.sigmoids or h.moved_bells) for h in (f, g)]
    straight = bool((f.linear or g.linear) and all(odd))
    if f.modulus and g.modulus:
        # c goes along as q rho
        joint = together and straight and not any(h.sigmoids or h.moved_bells for h in (f, g))
        lean = np.pi / 2 * (f.linear / f.modulus) * (g.linear / g.modulus) if joint else 0.0
        straight = straight and not joint
        product = _arc_cosine(at, lean)
        product *= first("modulus") * second("modulus")
        total.add(product)
    for j, (_, h) in enumerate(f.even):
        for k, (_, other) in enumerate(g.even):
            if not h and not other:
                continue
            both = [
                [of(f"ramp {name} {number}") for name in ("size", "share", "rest")]
                for of, number in ((first, j), (second, k))
            ]
            product = _ramps(at, (h, other), *both[0][1:], *both[1][1:])
            product *= both[0][0] * both[1][0]
            total.add(product)
    for a, h in f.sigmoids:
        for b, other in g.sigmoids:
            total.add(_arc_sine(at, h, other, a * b * 2 / np.pi))
    _add_bells(total, f, g, first, second, at)
    if straight:
        mixed = np.zeros(())
        for slope, of, tilted in ((f.linear, second, g), (g.linear, first, f)):
            mixed = mixed + slope * of("tilt") if slope and (tilted.sigmoids or tilted.moved_bells) else mixed
        total.add(cov * (f.linear * g.linear + mixed))
    if f.constant or g.constant or f.at_zero or g.at_zero:
        ones = [of("one") if h.constant or h.at_zero else np.zeros(()) for h, of in ((f, first), (g, second))]
        total.add(ones[0] * ones[1] + (ones[0] * second("even") + first("even") * ones[1]))
    return np.zeros(cov.shape) if total.value is None else total.value


def _add_bells(
    total: _Total, f: Elementary, g: Elementary, first: Callable[[str], Array], second: Callable[[str], Array],
    at: Correlated,
) -> None:  # fmt: skip
    """Add the expectations of products with bells."""
    for j, (_, h) in enumerate(f.bells):
        for k, (_, other) in enumerate(g.bells):
            total.add(first(f"bell {j}") * second(f"bell {k}") / at.root(h, other))
    factors: dict[tuple[float, float], Array] = {}  # of tangents of the angles
    for one, two, by, turned in ((f, g, second, False), (g, f, first, True)):
        for a, h in one.sigmoids:
            for k, (_, other) in enumerate(two.moved_bells):
                pair, factor = (other, h) if turned else (h, other), by(f"moved {k}") * (MEAN_ABS * a)
                factors[pair] = factors[pair] + factor if pair in factors else factor
    for pair, factor in factors.items():
        total.add(at.tangent(*pair) * factor)
    for j, (_, h) in enumerate(f.moved_bells):
        for k, (_, other) in enumerate(g.moved_bells):
            product = at.tangent(h, other) / at.square(h, other)
            product *= first(f"moved {j}") * second(f"moved {k}")
            total.add(product)


def kernel_error(f: Elementary, g: Elementary, var_f: Array, var_g: Array) -> Array:
    """A bound on the rounding of `kernel`.

    Shapes    broadcast to the batch, or to axes of length 1 where sizes are alike: one bound then serves all
    """
    first, second = (alike(kernel_size(h, var)) for h, var in ((f, var_f), (g, var_g)))
    return np.asarray(first * second * _rounding(f, g, var_f, var_g))


def _rounding(f: Elementary, g: Elementary, var_f: Array, var_g: Array) -> float:
    """Of the kernel, relative to the product of the sizes."""
    slope = min(_slope(f, g, var_f, var_g), 1 / np.sqrt(1 - STEEP**2))
    return float(EPS * (ULPS + ULPS_ARGUMENT * slope))


def small_kernel(f: Elementary, g: Elementary, var_f: Array, var_g: Array, cov: Array) -> Estimate | None:
    """`kernel` of a few members with its error, covariances being estimates; None for more, or extreme variances.

    Shapes    as `kernel`
    """
    shape = np.broadcast_shapes(var_f.shape, var_g.shape, cov.shape)
    if math.prod(shape) > TILE or not shape or not all(map(_ordinary, (var_f, var_g))):
        return None
    return Estimate(kernel(f, g, var_f, var_g, cov, np.inf), np.broadcast_to(kernel_error(f, g, var_f, var_g), shape))


def _ordinary(var: Array) -> bool:
    """Whether variances are zero or far from under- and overflow."""
    if var.size and var.min() > SMALL and var.max() < LARGE:
        return True
    return bool(np.all((var == 0) | ((var > SMALL) & (var < LARGE))))


def kernel_sensitivity(
    f: Elementary,
    g: Elementary,
    var_f: Estimate,
    var_g: Estimate,
    cov: Estimate,
    one: Callable[[], NDArray[np.bool_]] = lambda: np.zeros((), dtype=bool),
) -> Array | None:
    """A bound on what the errors of the law do to `kernel`, to first order.

    With de the error of c and dx, dy those of sd_f and sd_g, let D = de + sd_g dx + sd_f dy, which times both Lipschitz
    constants bounds that of even functions: the derivative by c is E f' g', that by sd_f is E f' g X / sd_f.  The
    argument of an arc sine moves by (de + |c| (dx / sd_f + dy / sd_g)) / sqrt((v + h) (w + k)) at most, and so do the
    other products. Where `one` says that X and Y are one variable, and their moments are one number, all moves by de:
    the argument of an arc sine by de (1 - (v / (v + h) + v / (v + k)) / 2) / sqrt(..). None where variances are too
    uncertain for that, and where the slope of an arc sine may change on the way (it is infinite at 1).

    Shapes    as `kernel_error` where one bound on the error of c serves several members, else those of c
    """
    v, w, error = var_f.value, var_g.value, compact(cov.error)
    if np.any(var_f.error[v == 0]) or np.any(var_g.error[w == 0]):
        return None
    if error.shape == np.broadcast_shapes(v.shape, w.shape, cov.value.shape):
        return _each_moves(f, g, var_f, var_g, cov, one)
    move_f, move_g = (alike(0.5 * e.error * _inverse_root(e.value)) for e in (var_f, var_g))
    moved = np.asarray(error + alike(np.sqrt(w)) * move_f + alike(np.sqrt(v)) * move_g)
    if not moved.any():
        return moved
    tilt_f, tilt_g = (alike(_tilt(h, var)) for h, var in ((f, v), (g, w)))
    rate = abs(f.linear * g.linear) + f.even_slope * g.even_slope + abs(f.linear) * tilt_g + abs(g.linear) * tilt_f
    one_f, one_g = (alike(np.abs(_constant(h, var))) for h, var in ((f, v), (g, w)))
    even = g.even_slope * one_f * move_g + f.even_slope * one_g * move_f
    if not (tilt_f.any() and tilt_g.any()):
        return np.asarray(rate * moved + even)
    slope = _slope(f, g, v, w)
    if slope * np.max(tilt_f * tilt_g * moved) > LINEAR:
        return None
    return np.asarray((rate + slope * tilt_f * tilt_g) * moved + even)


def _each_moves(
    f: Elementary,
    g: Elementary,
    var_f: Estimate,
    var_g: Estimate,
    cov: Estimate,
    one: Callable[[], NDArray[np.bool_]],
) -> Array | None:
    """`kernel_sensitivity` where every member has an error of its own, which slopes of its own multiply."""
    v, w, c, error = var_f.value, var_g.value, cov.value, cov.error
    if not (error.any() or var_f.error.any() or var_g.error.any()):
        return np.zeros((1,) * error.ndim)
    root_f, root_g = _inverse_root(v), _inverse_root(w)
    move_f, move_g = (0.5 * e.error * root for e, root in ((var_f, root_f), (var_g, root_g)))  # of the deviations
    same = one()
    if same.any():
        same = same & (v == w) & (v == c)
    turned = error + np.abs(c) * (move_f * root_f + move_g * root_g)
    turned = np.where(same, error, turned) if same.any() else turned
    total = np.zeros((1,) * error.ndim)
    if f.even and g.even:
        moved = error + np.sqrt(w) * move_f + np.sqrt(v) * move_g
        total = total + f.even_slope * g.even_slope * np.where(same, error, moved)
    if f.linear or g.linear:
        rate = abs(f.linear * g.linear) + abs(f.linear) * _tilt(g, w) + abs(g.linear) * _tilt(f, v)
        total = total + rate * turned
    if f.even or g.even:
        even = np.abs(_constant(f, v)) * g.even_slope * move_g + np.abs(_constant(g, w)) * f.even_slope * move_f
        total = total + even
    found = _turns(f, g, (v, w, c), turned, same)
    return None if found is None else np.asarray(total + found)


def _turns(
    f: Elementary, g: Elementary, law: tuple[Array, Array, Array], turned: Array, same: NDArray[np.bool_]
) -> Array | None:
    """What moves of c do to all products of sigmoids, by the slope of each arc sine; None where that may change.

    Shapes    those of c
    """
    v, w, c = law
    total = np.zeros(())
    for a, h in f.sigmoids:
        for b, k in g.sigmoids:
            size = (v + h) * (w + k)
            left = size - c * c  # of the squared root in the slope
            with np.errstate(divide="ignore", invalid="ignore"):
                slope = np.where(size > 0, 1 / np.sqrt(left), 0.0)
                if not np.all(turned * np.sqrt(size) * slope * slope <= LINEAR):
                    return None
            if same.any():
                slope = np.where(same, slope * (1 - 0.5 * v * (1 / (v + h) + 1 / (w + k))), slope)
            total = total + abs(a * b) * (2 / np.pi) * slope * turned
    return np.asarray(total)


def _constant(h: Elementary, var: Array) -> Array:
    """The constant of a function, which is its value at 0 where there is no variance."""
    if h.constant == h.at_zero:
        return np.full((1,) * var.ndim, h.constant)
    return np.where(var > 0, h.constant, h.at_zero)


def _tilt(h: Elementary, var: Array, size: Callable[[float], float] = abs) -> Array:
    """Sum over sigmoids of |amplitude| / sqrt(var + spread)."""
    tilts = (size(a) * _inverse_root(var + spread) for a, spread in h.sigmoids)
    return np.asarray(sum(tilts, np.zeros((1,) * var.ndim)))


def _jump(h: Elementary, var: Array) -> Array:
    """Sum over sigmoids of |amplitude| sqrt(2 / pi), where there is a variance."""
    return np.asarray(np.where(var > 0, MEAN_ABS * sum(abs(a) for a, _ in h.sigmoids), 0.0))


def _slope(f: Elementary, g: Elementary, var_f: Array, var_g: Array) -> float:
    """The largest 1 / sqrt(1 - r^2) of an arc sine: r^2 <= v w / ((v + h) (w + k)) whatever the covariance."""
    v, w = var_f.max(initial=0.0), var_g.max(initial=0.0)
    ratio = max((v * w / ((v + h) * (w + k)) for _, h in f.sigmoids for _, k in g.sigmoids if v and w), default=0.0)
    return float(1 / np.sqrt(1 - ratio)) if ratio < 1 else np.inf


def _inverse_root(values: Array) -> Array:
    """1 / sqrt, 0 for 0."""
    if values.size and values.min() > 0:
        return np.asarray(1 / np.sqrt(values))
    return np.asarray(np.where(values > 0, 1 / np.sqrt(np.where(values > 0, values, 1.0)), 0.0))


def _correlation(cov: Array, inverse_f: Array, inverse_g: Array) -> Array:
    """Rounded a few times, and kept in [-1, 1]."""
    rho = np.broadcast_to(inverse_f * inverse_g, cov.shape)  # so that both orders round alike
    rho = np.multiply(cov, rho, out=rho if rho.flags.writeable else None)
    return np.clip(rho, -1, 1, out=rho)


def _arc_cosine(at: Correlated, lean: float = 0.0) -> Array:
    """J + lean rho with J = sqrt(1 - rho^2) + rho asin rho, in [1, pi / 2].

    dJ / d rho = asin rho is at most pi / 2: the rounding of rho costs no more than that anywhere, provided that the
    root belongs to the same rounded rho. (1 - rho) (1 + rho) does: where rho is near 1, 1 - rho is exact.
    """
    rho, angle = at.rho(0.0, 0.0), at.angle(0.0, 0.0)
    product: Array = rho * (angle + lean if lean else angle)
    product += at.root(0.0, 0.0)
    return product


def _ramps(at: Correlated, spreads: tuple[float, float], p: Array, rest: Array, q: Array, other: Array) -> Array:
    """rho asin rho + (p q + rho^2 (1 - p - q)) / s with s^2 = 1 - rho^2, for rho^2 <= p q; `rest` is 1 - p.

    With t = p + q - 1 the dividend is t s^2 + (1 - p) (1 - q), and p q - t rho^2: of both all summands are positive,
    for t > 0 and for t < 0. The derivative by rho is bounded, so that its rounding costs little anywhere, provided that
    s belongs to the same rounded rho.
    """
    rho, square = at.rho(*spreads), at.square(*spreads)
    lowest, lowest_other = p.min(initial=1.0), q.min(initial=1.0)
    fair = min(lowest, lowest_other) > FAIR
    tilt = p - other if fair else np.minimum(p, q) - np.minimum(rest, other)
    if fair and lowest + lowest_other >= 1:
        top = tilt * square
        top += rest * other
    else:
        top = np.maximum(tilt, 0.0) * square
        top -= np.minimum(tilt, 0.0) * np.square(rho)
        top += np.minimum(rest * other, p * q)
    top /= np.maximum(at.root(*spreads), EPS)
    top += rho * at.angle(*spreads)
    return np.asarray(top)


def _arc_sine(at: Correlated, h: float, k: float, factor: float) -> Array:
    """A factor times asin of the correlation of X + dX and Y + dY: d asin = d rho / s, so that small s are refined.

    With r, s of X and Y themselves, the tangent of the angle is r / sqrt(s^2 + p + q + p q), p = h / v and q = k / w.
    """
    angle: Array = at.angle(h, k) * factor
    steep = at.square(h, k) < 1 - STEEP**2
    if steep.any():
        v, w, c = (np.broadcast_to(array, angle.shape)[steep] for array in (*at.var, at.cov))
        plain = correlation(v, w, c, np.inf)  # beyond 1 counts as 1
        p, q = h / v, k / w
        angle[steep] = factor * np.arctan2(plain.rho, np.sqrt(plain.s**2 + (p + q + p * q)))
    return angle

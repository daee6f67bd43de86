"""E f(X) g(Y) at zero means for f, g built of 1, x, |x|, sign(x), erf(a x), x erf(a x) and exp(-(a x)^2).

These are the functions whose `Atom.terms` are such: relu, abs, step, sign, erf, gelu, and derivatives of most of them;
tanh and its like go to `series`, and so do sums of x erf(a x) and exp(-(b x)^2).

    E |X| |Y|                        = (2 / pi) sd sd' (s + rho asin rho)                    Cho & Saul 2009, n = 1
    E sign(X + dX) sign(Y + dY)      = (2 / pi) asin(c / sqrt((v + h) (v' + h')))            Sheppard 1899
    E Y sign(X + dX)                 = c sqrt(2 / pi) / sqrt(v + h)
    E X sign(X + dX) Y sign(Y + dY)  = (2 / pi) S S' (r asin r + (p p' + r^2 (1 - p - p')) / sqrt(1 - r^2))
    E X sign(X + dX)                 = sqrt(2 / pi) v / sqrt(v + h)
    E exp(-X^2 / (2 h)) exp(-Y^2 / (2 h')) = sqrt(h h') / (S S' sqrt(1 - r^2))

with dX ~ N(0, h) independent, S^2 = v + h, p = v / (v + h) and r = c / (S S'); erf(a x) is the mean of sign(x + dX)
for h = 1 / (2 a^2), which turns Sheppard's formula into Williams' (1998). The last but one is Stein's lemma,
E X F = v E dF/dX + c E dF/dY, for F = Y sign(..) sign(..); with h = h' = 0 it is the first. Products of opposite parity
vanish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.function import FunctionTerm, RealFunction
from tensorprog.gaussian.steps import ONE, STEEPEST, ZERO, KernelSteps, Kind, two_product

Array = NDArray[np.floating]

__all__ = [
    "CORRELATION_SLACK",
    "Elementary",
    "add_kernel",
    "change",
    "correlation",
    "elementary",
    "kernel",
    "ordinary",
    "refuse_correlation",
    "values",
]

MEAN_ABS = float(np.sqrt(2 / np.pi))  # E |X| of a standard normal X
# variances and spreads outside count as extreme: errors of products of two would under- or overflow
SMALL, LARGE = 1e-130, 1e130
# units of rounding in one kernel: of sums of products, relative to the sizes, of x erf(a x), and of an arc sine, whose
# slope is at most 22.4, as it is refined beyond; |x| has a smaller share of its size
SUMS, BENDS, TURNS, STEEPEST_ARC, CORNER = 4.0, 16.0, 5.5, 22.4, 0.8
STEEPEST_RAMP = 1.13  # the largest slope of x erf(a x)
STEP, ROOM = 1e-5, 1.01  # relative steps of derivatives, and what these may lack
RAMP_SIZE = 1.39  # x erf(a x) has a root mean square up to sqrt(6 / pi) v / sqrt(v + h), h = 1 / (2 a^2)

# covariances that are themselves estimates may exceed sqrt(var var) slightly; beyond this it is an error
CORRELATION_SLACK = 1e-6


@dataclass(frozen=True)
class Elementary:
    """constant + linear x + sums of amplitude * erf(x / sqrt(2 h)), * x erf(x / sqrt(2 h)) and * exp(-x^2 / (2 h)).

    A spread h = 0 means sign(x) and |x|; `at_zero` is the constant at 0, where a step counts as 0 at its own place.
    """

    constant: float
    at_zero: float
    linear: float
    sigmoids: tuple[tuple[float, float], ...]  # amplitude, spread
    ramps: tuple[tuple[float, float], ...]
    bells: tuple[tuple[float, float], ...] = ()  # none beside ramps

    @property
    def jumps(self) -> bool:
        """Whether there is a sign among the sigmoids."""
        return any(h == 0 for _, h in self.sigmoids)

    def meets(self, other: Elementary) -> bool:
        """Whether products of both have closed forms: not those of x erf(a x) and exp(-(b x)^2)."""
        return not ((self.ramps and other.bells) or (self.bells and other.ramps))

    def offset(self, var: Array) -> Array:
        """The constant, which is the value at 0 where there is no variance."""
        return np.asarray(np.where(var > 0, self.constant, self.at_zero))

    def tilt(self, var: Array) -> Array:
        """E X f(X) / var of the sigmoids."""
        return np.asarray(sum((MEAN_ABS * a * _inverse_root(var + h) for a, h in self.sigmoids), np.zeros(var.shape)))

    def mean(self, var: Array) -> Array:
        """E f(X) but for the constant."""
        found = sum((MEAN_ABS * a * var * _inverse_root(var + h) for a, h in self.ramps), np.zeros(var.shape))
        return np.asarray(sum((a * np.sqrt(h / (var + h)) for a, h in self.bells), found))

    def slopes(self, var: Array, steep: float) -> tuple[Array, Array]:
        """Bounds for two variables of the same law: E f'(X) f'(Y), and what the variances do at a fixed covariance.

        The latter is that of (v d/dv + w d/dw) E f(X) f(Y), as products of numbers for both variables bound it; signs
        count with the slope of their kernel, `steep` that of its arc sine.  A linear function has none.
        """
        even, odd, moved = np.full(var.shape, abs(self.linear)), 0.0, np.zeros(var.shape)
        for a, h in self.sigmoids:
            slope = 2 / np.pi / np.sqrt(h * (2 * var + h)) if h else 2 / np.pi * steep / np.where(var > 0, var, 1.0)
            even += abs(a) * np.sqrt(slope)
            moved += abs(a) * np.sqrt(var * slope)
        bent = any(h for _, h in self.ramps)
        rise = np.sqrt(var) * (np.sqrt(STEEPEST_RAMP**2 + RAMP_SIZE**2 / 2) if bent else MEAN_ABS)
        for a, h in self.ramps:
            odd += abs(a) * (STEEPEST_RAMP if h else 1.0)
            moved += abs(a) * rise
        for a, h in self.bells:
            odds, norm = var / h, 1 / np.sqrt(1 + 2 * var / h)
            even += abs(a) * np.sqrt(odds * norm**3 / h)
            moved += abs(a) * np.sqrt((np.square(odds) + 1) / 2 * norm)
        if (self.sigmoids and self.linear) or ((self.ramps or self.bells) and self.constant):  # covariances of these
            moved += self.size(var)
        return np.asarray(even**2 + odd**2), moved**2

    def size(self, var: Array) -> Array:
        """A bound on sqrt(E f(X)^2) that is at most a small multiple of it, unless summands cancel."""
        sd = np.sqrt(var)
        size = np.abs(self.offset(var)) + abs(self.linear) * sd
        size = size + sum(abs(a) * sd * _inverse_root(var + h) for a, h in self.sigmoids)
        size = size + sum(abs(a) / (1 + 2 * var / h) ** 0.25 for a, h in self.bells)
        return np.asarray(size + sum(RAMP_SIZE * abs(a) * var * _inverse_root(var + h) for a, h in self.ramps))

    def rounding(self, var: Array) -> Array:
        """Numbers whose product for two functions bounds the rounding of their kernel, by Cauchy and Schwarz.

        The logarithm of the slope r / sqrt(1 - r^2) is convex in that of r, and r^2 is at most p p', p = v / (v + h).
        """
        bent, turns = np.zeros((2, *var.shape))
        for a, h in self.ramps:
            bent += (RAMP_SIZE if h else CORNER) * abs(a) * var * _inverse_root(var + h)
        for a, h in self.bells:  # 1 - r^2 has relative errors that are 1 + v / h times rounding at most
            bent += abs(a) * (1 + var / h) ** 0.5 / (1 + 2 * var / h) ** 0.25
        for a, h in self.sigmoids:
            share = np.square(np.sqrt(var) * _inverse_root(var + h))
            turns += abs(a) * np.sqrt(share / np.sqrt(np.maximum((1 - share) * (1 + share), STEEPEST_ARC**-2)))
        return np.asarray(np.sqrt(SUMS * self.size(var) ** 2 + BENDS * bent**2 + TURNS * turns**2))


@lru_cache(maxsize=64)
def elementary(f: RealFunction) -> Elementary | None:
    """f in that form, if its terms have it: step(x) = (1 + sign x) / 2 and x step(x) = (x + |x|) / 2."""
    if f.terms is None:
        return None
    constant = at_zero = linear = 0.0
    sigmoids: dict[float, float] = {}
    ramps: dict[float, float] = {}
    bells: dict[float, float] = {}
    for term in f.terms:
        numbers = _numbers(term)
        if numbers is None or term.power > 1 or term.kind not in ("one", "step", "erf", "gaussian"):
            return None
        amplitude, scale = numbers
        if term.kind == "one":
            constant, at_zero, linear = (
                (constant, at_zero, linear + amplitude)
                if term.power
                else (constant + amplitude, at_zero + amplitude, linear)
            )
            continue
        if scale == 0 and term.kind != "gaussian":
            continue  # step(0) = erf(0) = 0
        found, spread = ramps if term.power else sigmoids, 0.0
        if term.kind == "step":
            linear, constant = linear + term.power * amplitude / 2, constant + (1 - term.power) * amplitude / 2
            amplitude /= 2
        elif not SMALL < scale * scale < LARGE or (term.kind == "gaussian" and term.power):
            return None
        elif term.kind == "gaussian":
            found, spread, scale = bells, _simple(1 / (scale * scale)), 1.0
        else:
            spread = _simple(0.5 / (scale * scale))
        found[spread] = found.get(spread, 0.0) + float(np.sign(scale)) * amplitude
    if ramps and bells:
        return None
    bends = (tuple((a, h) for h, a in found.items() if a) for found in (sigmoids, ramps, bells))
    return Elementary(constant, at_zero, linear, *bends)


def _simple(spread: float) -> float:
    """The simple ratio that a spread is but for rounding, so that functions and their derivatives share what they can.

    Scales are often roots, as that of gelu; their squares round.
    """
    simple = float(Fraction(spread).limit_denominator(100))
    return simple if math.isclose(simple, spread, rel_tol=2 * EPS) else spread


def _numbers(term: FunctionTerm) -> tuple[float, float] | None:
    """Coefficient and scale of a term without shift and without parameters that vary over the batch."""
    values = [np.asarray(value, dtype=np.float64) for value in (term.coefficient, term.scale, term.shift)]
    if any(value.size != 1 for value in values) or (term.kind != "one" and values[2].item() != 0):
        return None
    return values[0].item(), values[1].item()


def ordinary(var: Array) -> bool:
    """Whether variances are zero or far from under- and overflow."""
    return bool(np.all((var == 0) | ((var > SMALL) & (var < LARGE))))


def kernel(f: Elementary, g: Elementary, v: Array, w: Array, cov: Array) -> Estimate:
    """E f(X) g(Y) for (X, Y) Gaussian of mean zero, of variances v and w and of covariances that may exceed sqrt(v w).

    Shapes    v, w and cov broadcast to the batch -> batch
    Accuracy  rounding, relative to the product of the sizes, taking the arguments as exact
    """
    return Estimate(values(f, g, v, w, cov), EPS * (f.rounding(v) * g.rounding(w)))


def values(f: Elementary, g: Elementary, v: Array, w: Array, cov: Array) -> Array:
    """The numbers of a kernel, without their errors; many of them by compiled code where that has been started."""
    steps = KernelSteps()
    steps.result = add_kernel(steps, f, g, v, w, steps.add(Kind.KNOWN))
    return steps.run([cov], np.broadcast_shapes(v.shape, w.shape, cov.shape))


def add_kernel(
    steps: KernelSteps,
    f: Elementary,
    g: Elementary,
    v: Array,
    w: Array,
    cov: int,
    total: int = ZERO,
    number: float = 1.0,
    near: float = 1.0,
) -> int:
    """Add the steps of total + number * kernel, of covariances that are one of the arrays; the place of what they make.

    The order does not depend on which function comes first, so that both orders round alike.  No correlation is above
    `near`, but for entries that are not read.
    """

    def sides(what: str, h: float, k: float) -> int:
        key = what, cov, h, k
        if key not in steps.made:
            steps.made[key] = steps.sides(SIDES[what](v, h), SIDES[what](w, k))
        return steps.made[key]

    for (a, h), (b, k) in sorted(product(f.ramps, g.ramps), key=sorted):
        r = steps.add(Kind.TURN, cov, at=sides("inverse", h, k))
        s = steps.add(Kind.COSINE, r)
        root = steps.add(Kind.RAMP, r, s, at=sides("shares", h, k)) if h or k else s
        found = steps.add(Kind.PRODUCT, r, steps.add(Kind.ANGLE, r), root)
        total = steps.add(Kind.OUTER, found, ZERO, total, number * MEAN_ABS**2 * (a * b), sides("deviation", h, k))
    for (a, h), (b, k) in sorted(product(f.sigmoids, g.sigmoids), key=sorted):
        angle = steps.add(Kind.ANGLE, steps.add(Kind.TURN, cov, at=sides("inverse", h, k)))
        largest = (v.max(initial=SMALL), h), (w.max(initial=SMALL), k)
        if all(near**2 * size > np.sin(STEEPEST) ** 2 * (size + spread) for size, spread in largest):
            angle = steps.add(Kind.STEEP, angle, cov, at=sides("law", h, k))
        total = steps.add(Kind.LINEAR, angle, ZERO, total, number * 2 / np.pi * (a * b))
    for (a, h), (b, k) in sorted(product(f.bells, g.bells), key=sorted):
        r = steps.add(Kind.TURN, cov, at=sides("inverse", h, k))
        inverse = steps.add(Kind.INVERSE, r, at=sides("shares", h, k) + 1)
        total = steps.add(Kind.OUTER, inverse, ZERO, total, number * a * b * (h * k) ** 0.5, sides("inverse", h, k))
    if (f.linear and g.sigmoids) or (g.linear and f.sigmoids):
        tilts = [f.linear + np.zeros(v.shape), f.tilt(v)], [g.tilt(w), g.linear + np.zeros(w.shape)]
        total = _with_outer(steps, total, number, cov, *tilts)
    if f.linear and g.linear:
        total = steps.add(Kind.LINEAR, cov, ZERO, total, number * f.linear * g.linear)
    if any((f.constant, f.at_zero, g.constant, g.at_zero)):
        one, two = f.offset(v), g.offset(w)
        total = _with_outer(steps, total, number, ONE, [one, f.mean(v)], [g.mean(w), two])
        if v.all() and w.all():
            total = steps.add(Kind.LINEAR, ONE, ZERO, total, number * f.constant * g.constant)
        else:
            total = steps.add(Kind.OUTER, ONE, ZERO, total, number, steps.sides([one], [two]))
    return total


def _with_outer(
    steps: KernelSteps, total: int, number: float, x: int, left: Sequence[Array], right: Sequence[Array]
) -> int:
    """Add the steps of total + number * x (l r' + l' r), where x is not multiplied by zeros."""
    if not any(one.any() and two.any() for one, two in zip(left, right, strict=True)):
        return total
    at = steps.sides(left, right)
    both = steps.add(Kind.OUTER, ONE, ZERO, steps.add(Kind.OUTER, ONE, at=at), at=at + 1)
    return steps.add(Kind.PRODUCT, both, x, total, number)


# numbers of a variable of a variance, with noise of a spread: p and 1 - p, 1 / S, S, and both
SIDES: dict[str, Callable[[Array, float], Sequence[Array]]] = {
    "shares": lambda var, spread: _shares(var, spread),
    "inverse": lambda var, spread: (_inverse_root(var + spread),),
    "deviation": lambda var, spread: (np.sqrt(var + spread),),
    "law": lambda var, spread: (var, np.full(var.shape, spread)),
}


def change(f: Elementary, g: Elementary, v: Array, w: Array, cov: Array, value: Array) -> Array:
    """What relative errors of one in all moments of one variable, which is X and Y, do to a kernel of some value.

    Shapes    all (pairs,) -> (pairs,)
    """
    moved = values(f, g, *(each * (1 + STEP) for each in (v, w, cov)))
    return np.asarray(ROOM / STEP * np.abs(moved - value))


def _shares(var: Array, spread: float) -> tuple[Array, Array]:
    """p = v / (v + h), and 1 - p without cancellation; both 0 without variance and spread."""
    whole = np.maximum(var + spread, SMALL)
    return var / whole, np.where(var > 0, spread / whole, float(spread > 0))


def _inverse_root(values: Array) -> Array:
    """1 / sqrt, 0 for 0."""
    if np.all(values > 0):
        return np.asarray(1 / np.sqrt(values))
    return np.asarray(np.where(values > 0, 1 / np.sqrt(np.where(values > 0, values, 1.0)), 0.0))


def correlation(
    var_f: ArrayLike, var_g: ArrayLike, cov: ArrayLike, slack: float = CORRELATION_SLACK
) -> tuple[Array, Array]:
    """Correlation rho of two variables, 0 where a variance is 0, and s = sqrt(1 - rho^2), free of cancellation.

    Shapes    batches that broadcast -> the same, twice
    Accuracy  both to a few eps, relatively, even where s is 1e-8, taking the arguments as exact; a
              covariance above sqrt(var_f var_g) by rounding counts as correlation +-1
    Raises    ValueError if |cov| exceeds sqrt(var_f var_g) by more than `slack`, relatively
    """
    a, b, c = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (var_f, var_g, cov)))
    degenerate = (a == 0) | (b == 0)
    # scaled by powers of two into [1/4, 1), so that no product over- or underflows; exact
    ea, eb = (-(-np.frexp(v)[1] // 2) for v in (a, b))
    a, b, c = (np.ldexp(v, -k) for v, k in ((a, 2 * ea), (b, 2 * eb), (c, ea + eb)))
    a, b, c = (np.where(degenerate, r, v) for v, r in ((a, 1.0), (b, 1.0), (c, 0.0)))
    # var var - cov^2 from error-free products; where it is small the first difference is exact (Sterbenz)
    (p, pe), (q, qe) = two_product(a, b), two_product(c, c)
    det = (p - q) + (pe - qe)
    worst = np.max(np.where(np.abs(c) > (1 + slack) * np.sqrt(p), np.abs(c) / np.sqrt(p), 0.0), initial=0.0)
    refuse_correlation(worst, slack)
    singular = np.asarray(det <= 0)
    rho = np.where(singular, np.sign(c), c / np.sqrt(p))
    s = np.where(singular, 0.0, np.sqrt(np.maximum(det, 0.0) / p))
    return np.asarray(rho), np.asarray(s)


def refuse_correlation(largest: float, slack: float) -> None:
    """An error where the largest correlation is above 1 + slack."""
    if largest > 1 + slack:
        raise ValueError(
            f"covariance is not positive semidefinite: correlation {largest:.17g} in absolute value\n"
            f"  needed  |cov| <= sqrt(var_f var_g), up to {slack:g} relatively"
        )

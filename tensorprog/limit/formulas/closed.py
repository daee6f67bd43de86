"""E f(X) and E f(X) g(Y) for Gaussian X, Y as sympy expressions: Gaussian integration by parts (Stein).

The recursion is that of `gaussian.moments`, without its care for rounding and with exact zeros; the singular case, one
variable behind both, is an integral over a line:

    M(p, q) = m M(p-1, q) + v ((p-1) M(p-2, q) + M(p-1, q; A')) + c (q M(p-1, q-1) + M(p-1, q; B'))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from math import comb
from typing import Any, NamedTuple

import sympy as sp

from tensorprog.limit.formulas.functions import Phi, Phi2, phi
from tensorprog.limit.formulas.terms import Term

__all__ = ["cross_moment", "line_moment", "mean_moment", "regular"]

SIGNS, WAVES = ("step", "erf"), ("sin", "cos")
ZERO, ONE = sp.S.Zero, sp.S.One
Terms = tuple[Term, ...]
WORK = 300  # of a formula with non-zero means that is made unasked; clip has 100


class Law(NamedTuple):
    """Means, variances and covariance of (x, y)."""

    mx: Any
    my: Any
    vx: Any
    vy: Any
    c: Any

    @property
    def swapped(self) -> Law:
        """The law of (y, x)."""
        return Law(self.my, self.mx, self.vy, self.vx, self.c)

    @property
    def det(self) -> Any:
        """vx vy - c^2."""
        return self.vx * self.vy - self.c**2


class Factor(NamedTuple):
    """kind(a x + b)."""

    kind: str
    a: Any
    b: Any


NONE = Factor("one", ONE, ZERO)


def closes(first: str, second: str) -> bool:
    """Whether a pair of kinds has a form in real functions here: all but sin or cos with step or erf."""
    return not ((first in WAVES and second in SIGNS) or (second in WAVES and first in SIGNS))


def _tilt(law: Law, factor: Factor) -> tuple[Law, Any]:
    """The law that remains of the density times exp(a x + b) or exp(-(a x + b)^2 / 2), and its mass."""
    kind, a, b = factor
    if kind == "exp":
        mass = sp.exp(b + a * law.mx + a**2 * law.vx / 2)
        return law._replace(mx=law.mx + a * law.vx, my=law.my + a * law.c), mass
    n, u = 1 + a**2 * law.vx, a * law.mx + b
    mass = sp.exp(-(u**2) / (2 * n)) / sp.sqrt(n)
    pull = a * u / n
    return Law(law.mx - law.vx * pull, law.my - law.c * pull, law.vx / n, law.vy - a**2 * law.c**2 / n, law.c / n), mass


class PairMoments:
    """M(p, q) = E[x^p y^q A(x) B(y)] of one law and one pair of factors."""

    def __init__(self, law: Law, first: Factor, second: Factor) -> None:
        self.mass = ONE
        if first.kind in ("exp", "gaussian"):
            law, self.mass = _tilt(law, first)
            first = NONE
        if second.kind in ("exp", "gaussian"):
            turned, mass = _tilt(law.swapped, second)
            law, second, self.mass = turned.swapped, NONE, self.mass * mass
        self.law, self.first, self.second = law, first, second
        self._known: dict[tuple[int, int], Any] = {}
        self._other: PairMoments | None = None

    def __call__(self, p: int, q: int) -> Any:
        """M(p, q), with the mass of tilted densities."""
        return self.mass * self.moment(p, q)

    @property
    def swapped(self) -> PairMoments:
        """x and y in exchanged roles."""
        if self._other is None:
            self._other = PairMoments(self.law.swapped, self.second, self.first)
            self._other._other = self
        return self._other

    def moment(self, p: int, q: int) -> Any:
        """M(p, q) under the tilted law."""
        if p < 0 or q < 0:
            return ZERO
        if p == 0 and q > 0:
            return self.swapped.moment(q, 0)
        if (p, q) not in self._known:
            self._known[p, q] = self._base() if p == 0 else self._recursion(p, q)
        return self._known[p, q]

    def _recursion(self, p: int, q: int) -> Any:
        law = self.law
        total = law.mx * self.moment(p - 1, q)
        total += law.vx * ((p - 1) * self.moment(p - 2, q) + self._derivative(p - 1, q))
        return total + law.c * (q * self.moment(p - 1, q - 1) + self.swapped._derivative(q, p - 1))

    def _derivative(self, p: int, q: int) -> Any:
        """E[x^p y^q A'(x) B(y)]."""
        kind, a, b = self.first
        law = self.law
        if kind == "one":
            return ZERO
        if kind in WAVES:
            other = Factor("cos" if kind == "sin" else "sin", a, b)
            return (a if kind == "sin" else -a) * PairMoments(law, other, self.second)(p, q)
        if kind == "erf":
            tilted = PairMoments(law, Factor("gaussian", sp.sqrt(2) * a, sp.sqrt(2) * b), self.second)
            return 2 / sp.sqrt(sp.pi) * a * tilted(p, q)
        t = -b / a  # a density at the threshold, and the law of y given x = t
        given = line_moments(law.my + law.c / law.vx * (t - law.mx), law.det / law.vx, self.second)
        return sp.sign(a) * phi((t - law.mx) / sp.sqrt(law.vx)) / sp.sqrt(law.vx) * t**p * given(0, q)

    def _sign(self) -> tuple[Any, Any, Any]:
        """Scale and variance of the sign variable behind A, and its mean in deviations; erf is a blurred step."""
        kind, a, b = self.first
        scale, noise = (sp.sqrt(2), ONE) if kind == "erf" else (ONE, ZERO)
        variance = scale**2 * a**2 * self.law.vx + noise
        return scale * a, variance, scale * (a * self.law.mx + b) / sp.sqrt(variance)

    def _base(self) -> Any:
        """E[A(x) B(y)]."""
        first, second = self.first.kind, self.second.kind
        if first in SIGNS and second in SIGNS:
            (a, u, h), (c, v, k) = self._sign(), self.swapped._sign()
            both = Phi2(h, k, a * c * self.law.c / sp.sqrt(u * v))
            if first == second == "step":
                return both
            if first == second:
                return 4 * both - 2 * Phi(h) - 2 * Phi(k) + 1
            return 2 * both - Phi(h if first == "step" else k)
        for kind, moments in ((first, self), (second, self.swapped)):
            if kind in SIGNS:
                h = moments._sign()[2]
                return Phi(h) if kind == "step" else 2 * Phi(h) - 1
        return self._waves()

    def _waves(self) -> Any:
        """Products of sin and cos as cos or sin of V + U and V - U: E cos W = exp(-Var W / 2) cos E W."""
        law, (first, a, b), (second, c, d) = self.law, self.first, self.second
        if first == "one" and second == "one":
            return ONE

        def wave(e: int, kind: str) -> Any:
            used = a if first != "one" else ZERO
            other = c if second != "one" else ZERO
            phase = e * (used * law.mx + (b if used != 0 else 0)) + other * law.my + (d if other != 0 else 0)
            variance = used**2 * law.vx + other**2 * law.vy + 2 * e * used * other * law.c
            return sp.exp(-sp.expand(variance) / 2) * (sp.cos if kind == "cos" else sp.sin)(phase)

        if "one" in (first, second):
            return wave(1, second if first == "one" else first)
        if first == second:
            return (wave(-1, "cos") + (1 if first == "cos" else -1) * wave(1, "cos")) / 2
        return (wave(1, "sin") - (1 if first == "sin" else -1) * wave(-1, "sin")) / 2


def line_moments(mean: Any, variance: Any, factor: Factor) -> PairMoments:
    """m(0, q) = E[y^q B(y)] of one variable."""
    return PairMoments(Law(ZERO, mean, ONE, variance, ZERO), NONE, factor)


def _groups(terms: Terms) -> dict[Factor, dict[int, Any]]:
    """Terms as polynomials times one factor each."""
    groups: dict[Factor, dict[int, Any]] = {}
    for term in terms:
        polynomial = groups.setdefault(Factor(*term[2:]), {})
        polynomial[term.power] = polynomial.get(term.power, ZERO) + term.coefficient
    return groups


# formulas are made once, for letters, and then read at what the letters stand for
MX, MY, C = sp.symbols("mx my c", real=True)
VX, VY, K = sp.symbols("vx vy k", positive=True)


def _letters(values: Sequence[Any]) -> tuple[Any, ...]:
    """The letters that stand for means, variances and covariance: exact zeros and equal variances are kept."""
    mx, my, vx, vy, _ = values
    return (ZERO if mx == 0 else MX, ZERO if my == 0 else MY, VX, VX if vy == vx else VY, C)


def mean_moment(f: Terms, mean: Any, variance: Any, most: float) -> Any:
    """E f(X) for X of positive variance; None for a formula of more than `most` parts."""
    return _read(_mean(f, ZERO if mean == 0 else MX), {MX: mean, VX: variance}, most)


def _read(formula: Any, values: dict[Any, Any], most: float) -> Any:
    """A formula at what its letters stand for, if it does not become too long."""
    length = size(formula) + sum(formula.count(letter) * size(value) for letter, value in values.items())
    return formula.xreplace(values) if length <= most else None


@lru_cache(maxsize=1 << 16)
def size(formula: Any) -> int:
    """How many parts a formula has, written out."""
    return 1 + sum(map(size, formula.args))


@cache
def _mean(f: Terms, mean: Any) -> Any:
    total = ZERO
    for factor, polynomial in _groups(f).items():
        moments = line_moments(mean, VX, factor)
        total += sum(c * moments(0, q) for q, c in polynomial.items())
    return _tidy(total)


def cross_moment(f: Terms, g: Terms, law: Sequence[Any], most: float) -> Any:
    """E f(X) g(Y) under (mx, my, vx, vy, c) with vx vy > c^2; None where a pair of terms has no closed form, or a
    long one.
    """
    if not all(closes(a.kind, b.kind) for a in f for b in g):
        return None
    if most < float("inf") and law[:2] != (0, 0) and _work(f) * _work(g) > WORK:
        return None
    letters = _letters(law)
    return _read(_cross(f, g, letters), {k: v for k, v in zip(letters, law, strict=True) if k.is_Symbol}, most)


def _work(terms: Terms) -> int:
    """How far the recursion goes for terms that are no polynomials."""
    return sum((1 + term.power) ** 2 for term in terms if term.kind != "one")


@cache
def _cross(f: Terms, g: Terms, letters: tuple[Any, ...]) -> Any:
    total = ZERO
    for first, left in _groups(f).items():
        for second, right in _groups(g).items():
            moments = PairMoments(Law(*letters), first, second)
            total += sum(c * d * moments(p, q) for p, c in left.items() for q, d in right.items())
    return _tidy(total)


def regular(f: Terms, g: Terms, mx: Any, my: Any) -> bool:
    """Whether the formula of `cross_moment` holds at correlation +-1 too: no steps meet, or both at their means."""
    if not any(t.kind == "step" for t in f) or not any(t.kind == "step" for t in g):
        return True
    return bool(mx == 0 and my == 0 and all(t.shift == 0 for t in (*f, *g) if t.kind == "step"))


def line_moment(f: Terms, g: Terms, law: Sequence[Any], most: float) -> Any:
    """E f(X) g(Y) where vx vy = c^2 > 0, so that y = my + k (x - mx), k = c / vx; None as in `cross_moment`."""
    mx, my, vx, _, c = law
    k = ONE if c == vx else -ONE if c == -vx else c / vx
    if not all(closes(a.kind, b.kind) for a in f for b in g) or sp.sign(k) not in (1, -1):
        return None
    slope = k if k in (ONE, -ONE) else sp.sign(k) * K
    x = ZERO if mx == 0 else MX
    y = slope * x if my == k * mx else ZERO if my == 0 else MY
    formula = _line(f, g, (x, y, VX, slope**2 * VX, slope * VX), slope)
    return None if formula is None else _read(formula, {MX: mx, MY: my, VX: vx, K: abs(k)}, most)


@cache
def _line(f: Terms, g: Terms, letters: tuple[Any, ...], slope: Any) -> Any:
    if any(sp.sign(t.scale) not in (1, -1) for t in (*f, *g) if t.kind == "step"):
        return None
    law, total = Law(*letters), ZERO
    offset = law.my - slope * law.mx
    for first, left in _groups(f).items():
        for second, right in _groups(g).items():
            if first.kind == second.kind == "step":
                other = Factor("step", second.a * slope, second.b + second.a * offset)
                along = _between(law, first, other)
                moments = _substituted(along, slope, offset)
            else:
                moments = PairMoments(law, first, second)
            total += sum(a * b * moments(p, q) for p, a in left.items() for q, b in right.items())
    return _tidy(total)


def _substituted(along: Any, slope: Any, offset: Any) -> Any:
    """(p, q) -> E[x^p (slope x + offset)^q ...] from moments of x alone."""

    def moment(p: int, q: int) -> Any:
        powers = [k for k in range(q + 1) if k == q or offset != 0]
        return sum(comb(q, k) * slope**k * offset ** (q - k) * along(p + k) for k in powers)

    return moment


def _between(law: Law, first: Factor, second: Factor) -> Any:
    """k -> E[x^k 1(a x + b > 0) 1(c x + d > 0)]: above both thresholds, below both, or between."""
    s, t = -first.b / first.a, -second.b / second.a
    up, also = first.a.is_positive, second.a.is_positive

    def above(threshold: Any) -> PairMoments:
        return line_moments(law.mx, law.vx, Factor("step", ONE, -threshold))

    if up and also:
        tail = above(sp.Max(s, t))
        return lambda k: tail(0, k)
    if not up and not also:
        below = line_moments(law.mx, law.vx, Factor("step", -ONE, sp.Min(s, t)))
        return lambda k: below(0, k)
    low, high = (s, t) if up else (t, s)
    outer, inner = above(sp.Max(high, low)), above(low)
    return lambda k: inner(0, k) - outer(0, k)


def _tidy(formula: Any) -> Any:
    """Terms with the same functions and roots are collected, their rational coefficients factored."""
    named = (Phi, phi, Phi2)
    formula = formula.replace(lambda e: isinstance(e, named), lambda e: e.func(*map(sp.factor_terms, e.args)))
    collected: dict[Any, Any] = {}
    for term in sp.Add.make_args(sp.expand_mul(formula)):
        coefficient, rest = _split(term)
        collected[rest] = collected.get(rest, ZERO) + coefficient
    return sp.Add(*(_shortest(coefficient) * rest for rest, coefficient in collected.items()))


def _shortest(coefficient: Any) -> Any:
    return min((sp.expand(coefficient), sp.factor(coefficient)), key=sp.count_ops)


def _split(term: Any) -> tuple[Any, Any]:
    """A product as (rational function, functions and one square root); all radicands are positive."""
    coefficient, rest, radicand = ONE, ONE, ONE
    for factor in sp.Mul.make_args(term):
        base, power = factor.as_base_exp()
        if power.is_Rational and power.q == 2 and not base.is_number:
            radicand *= base**power.p
        elif factor.is_rational_function() and not factor.has(sp.Function):
            coefficient *= factor
        else:
            rest *= factor
    outside, inside = ONE, ONE
    for factor in sp.Mul.make_args(sp.factor(radicand)):
        base, power = factor.as_base_exp()
        outside *= base ** int(power / 2)
        inside *= base ** (power - 2 * int(power / 2))
    top, bottom = map(sp.expand, sp.fraction(inside))
    if top.is_negative:  # then both are, their quotient being positive
        top, bottom = -top, -bottom
    return coefficient * outside, rest * sp.sqrt(top) / sp.sqrt(bottom)

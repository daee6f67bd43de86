"""E f(X) and E f(X) g(Y) for Gaussian X, Y as sympy expressions.

E[x^p y^q A(x) B(y)] for Gaussian (x, y): one recursion for every pair of kinds.

Gaussian integration by parts (Stein): E[(x - m) F(x, y)] = v E[dF/dx] + c E[dF/dy], m and v mean and variance of x, c
the covariance. With F = x^(p-1) y^q A(x) B(y) this lowers the power and differentiates the factors:

    M(p, q) = m M(p-1, q) + v ((p-1) M(p-2, q) + M(p-1, q; A')) + c (q M(p-1, q-1) + M(p-1, q; B'))

- exp, gaussian: multiplying the density by them gives a multiple of another Gaussian density (`SymbolicGaussian`), so
  they disappear before the recursion starts;
- erf(t) = E sign(sqrt2 t + N) = 2 P(sqrt2 t + N > 0) - 1, N standard normal: a step of a noisy variable;
- 1(V > 0) has the derivative delta(V): the density of V at 0 times a moment given V = 0.

At p = q = 0 remain total masses and probabilities of signs, which have a form for two signs at their means.  One
variable behind both is an integral over a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import product
from typing import Any, ClassVar, NamedTuple

import sympy as sp

from tensorprog.gaussian.function import FunctionTerm

__all__ = ["Phi", "mean_moment", "pair_moment", "phi"]

ZERO, ONE = sp.S.Zero, sp.S.One
ROOT_2PI = sp.sqrt(2 * sp.pi)
Terms = tuple[FunctionTerm, ...]
NO_FUNCTION: Terms = (FunctionTerm(ONE, 0),)


class _Normal(sp.Function):  # type: ignore[misc]
    """A function with a name in LaTeX."""

    tex: ClassVar[str]

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        power = f"^{{{exp}}}" if exp else ""
        return rf"{self.tex}{power}\left({', '.join(map(printer._print, self.args))}\right)"

    def _eval_evalf(self, prec: int) -> Any:
        return self.rewrite(sp.erf)._eval_evalf(prec)


class phi(_Normal):
    """Density of N(0, 1) at x."""

    nargs = 1
    tex = r"\varphi"

    @classmethod
    def eval(cls, x: Any) -> Any:
        """Even."""
        return 1 / sp.sqrt(2 * sp.pi) if x.is_zero else cls(-x) if x.could_extract_minus_sign() else None

    def fdiff(self, argindex: int = 1) -> Any:
        """phi' = -x phi."""
        return -self.args[0] * self

    def _eval_rewrite_as_erf(self, x: Any, **_: Any) -> Any:
        return sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)


class Phi(_Normal):
    """Distribution function of N(0, 1) at x."""

    nargs = 1
    tex = r"\Phi"

    @classmethod
    def eval(cls, x: Any) -> Any:
        """Phi(-x) is 1 - Phi(x)."""
        return sp.S.Half if x.is_zero else 1 - cls(-x) if x.could_extract_minus_sign() else None

    def fdiff(self, argindex: int = 1) -> Any:
        """Phi' = phi."""
        return phi(self.args[0])

    def _eval_rewrite_as_erf(self, x: Any, **_: Any) -> Any:
        return (1 + sp.erf(x / sp.sqrt(2))) / 2


class AffineFactor(NamedTuple):
    """kind(a x + b), a factor of an expectation: of a kind of terms."""

    kind: str
    a: Any
    b: Any
    noise: Any = ZERO  # the variance of what is added to a x + b, of a step


NO_FACTOR = AffineFactor("one", ONE, ZERO)


@dataclass(frozen=True)
class SymbolicGaussian:
    """A weight times a Gaussian law of (x, y)."""

    mx: Any
    my: Any
    variance: Any
    vy: Any
    covariance: Any
    weight: Any = ONE

    def swapped(self) -> SymbolicGaussian:
        """The measure of (y, x)."""
        return SymbolicGaussian(self.my, self.mx, self.vy, self.variance, self.covariance, self.weight)

    def times_exp(self, a: Any, b: Any) -> SymbolicGaussian:
        """The measure times exp(a x + b)."""
        mass = self.weight * sp.exp(b + a * self.mx + a**2 * self.variance / 2)
        return replace(self, mx=self.mx + a * self.variance, my=self.my + a * self.covariance, weight=mass)

    def observed(self, a: Any, b: Any) -> SymbolicGaussian:
        """The measure given a x + b + N(0, 1) = 0, times exp(-d^2 / 2), d the standardised distance of 0."""
        v, c = self.variance, self.covariance
        n, u = 1 + a**2 * v, a * self.mx + b
        law = self.mx - v * a * u / n, self.my - c * a * u / n, v / n, self.vy - a**2 * c**2 / n, c / n
        return SymbolicGaussian(*law, self.weight * sp.exp(-(u**2) / (2 * n)))

    def times_gaussian(self, a: Any, b: Any) -> SymbolicGaussian:
        """The measure times exp(-(a x + b)^2 / 2)."""
        given = self.observed(a, b)
        return replace(given, weight=given.weight / sp.sqrt(1 + a**2 * self.variance))

    def at(self, x: Any, distance: Any) -> SymbolicGaussian:
        """The measure given x, times exp(-distance^2 / 2)."""
        v, c = self.variance, self.covariance
        law = x, self.my + c / v * (x - self.mx), ZERO, (v * self.vy - c**2) / v, ZERO
        return SymbolicGaussian(*law, self.weight * ROOT_2PI * phi(distance))


def _absorbing(law: SymbolicGaussian, factor: AffineFactor) -> tuple[SymbolicGaussian, AffineFactor]:
    """The measure times a factor of x that keeps it Gaussian, and the factor that is left."""
    methods = {"exp": law.times_exp, "gaussian": law.times_gaussian}
    return (methods[factor.kind](factor.a, factor.b), NO_FACTOR) if factor.kind in methods else (law, factor)


class _Open(Exception):
    """There is no closed form."""


class Moments:
    """The moments M(p, q) = E[x^p y^q A(x) B(y)] of one law and one pair of factors, computed once each."""

    def __init__(self, law: SymbolicGaussian, first: AffineFactor, second: AffineFactor) -> None:
        law, self.first = _absorbing(law, first)
        turned, self.second = _absorbing(law.swapped(), second)
        self.weight = turned.weight  # one factor of all moments, so that formulas stay short
        self.law = replace(turned.swapped(), weight=ONE)
        self._known: dict[tuple[int, int], Any] = {}

    @cached_property
    def swapped(self) -> Moments:
        """The same moments with x and y in exchanged roles."""
        other = Moments(self.law.swapped(), self.second, self.first)
        other.swapped = self
        return other

    def __call__(self, p: int, q: int) -> Any:
        """M(p, q)."""
        return self.weight * self.moment(p, q)

    def moment(self, p: int, q: int) -> Any:
        """M(p, q), the weight left out."""
        if p < 0 or q < 0:
            return ZERO
        if p == 0 and q > 0:
            return self.swapped.moment(q, 0)
        if (p, q) not in self._known:
            self._known[p, q] = self.without_powers() if p == 0 else self.power(p, q)
        return self._known[p, q]

    def power(self, p: int, q: int) -> Any:
        """M(p, q), p > 0, by the recursion."""
        law = self.law
        along = self.moment(p - 2, q) * (p - 1) + self._derivative(p - 1, q)
        across = self.moment(p - 1, q - 1) * q + self.swapped._derivative(q, p - 1)
        return law.mx * self.moment(p - 1, q) + law.variance * along + law.covariance * across

    def _derivative(self, p: int, q: int) -> Any:
        """E[x^p y^q A'(x) B(y)]: A = 1(V > 0), A' = dV/dx delta(V)."""
        if self.first.kind == "one":
            return ZERO
        return self.first.a / (ROOT_2PI * sp.sqrt(self._variance)) * self.boundary(p, q)

    @cached_property
    def boundary(self) -> Moments:
        """The moments of sqrt(2 pi) sd_V delta(V) B(y) times the law: those given V = 0, times exp(-distance^2 / 2)."""
        a, b, noise = self.first[1:]
        given = self.law.observed(a, b) if noise else self.law.at(-b / a, self.distance)
        return Moments(given, NO_FACTOR, self.second)

    def without_powers(self) -> Any:
        """E[A(x) B(y)]; two signs have a form at their means."""
        if self.first.kind == self.second.kind == "one":
            return self.law.weight
        if self.first.kind == "one":
            return self.swapped.without_powers()
        if self.second.kind == "one":
            return self.law.weight * Phi(self.distance)
        if self.distance != 0 or self.swapped.distance != 0:
            raise _Open
        cov = self.first.a * self.second.a * self.law.covariance
        angle = sp.asin(cov / sp.sqrt(self._variance * self.swapped._variance))
        return self.law.weight * (sp.Rational(1, 4) + angle / (2 * sp.pi))

    @property
    def _variance(self) -> Any:
        """Of the sign variable behind A."""
        return self.first.a**2 * self.law.variance + self.first.noise

    @property
    def distance(self) -> Any:
        """E V / sd_V."""
        return (self.first.a * self.law.mx + self.first.b) / sp.sqrt(self._variance)


def _groups(terms: Terms) -> list[tuple[AffineFactor, dict[int, Any]]]:
    """Terms as polynomials times one factor each."""
    groups: dict[tuple[Any, ...], dict[int, Any]] = {}
    for term in terms:
        a, b, c = term.scale, term.shift, term.coefficient
        parts: list[Any] = [(term.kind, a, b, c)]
        if term.kind == "erf":
            root = sp.sqrt(2)
            parts = [("one", ONE, ZERO, -c), ("step", root * a, root * b, ONE, 2 * c)]
        elif term.kind == "step" and sp.sympify(a).is_negative:  # 1(V > 0) = 1 - 1(-V > 0)
            parts = [("one", ONE, ZERO, c), ("step", -a, -b, -c)]
        for *key, coefficient in parts:
            polynomial = groups.setdefault(tuple(key), {})
            polynomial[term.power] = polynomial.get(term.power, ZERO) + coefficient
    return [(AffineFactor(*key), polynomial) for key, polynomial in groups.items()]


# formulas are made once, for letters, and then read at what the letters stand for
MX, MY, C = sp.symbols("mx my c", real=True)
VX, VY = sp.symbols("vx vy", positive=True)


def mean_moment(f: Terms, mean: Any, variance: Any, most: float) -> Any:
    """E f(X) for X of positive variance; None for a formula of more than `most` parts."""
    formula = _moment(NO_FUNCTION, f, (ZERO, ZERO if mean == 0 else MX, ONE, VX, ZERO))
    return _read(formula, {MX: mean, VX: variance}, most)


def pair_moment(f: Terms, g: Terms, law: Sequence[Any], most: float, one: bool) -> Any:
    """E f(X) g(Y) under (mx, my, vx, vy, c); None where a pair of terms has no closed form, or a long one.

    X and Y may be `one` variable.
    """
    mx, my, vx, vy, c = law
    x, y = ZERO if mx == 0 else MX, ZERO if my == 0 else MY
    if one:
        if not all(factor.kind != "step" or sp.sympify(factor.a).is_positive for factor, _ in _groups((*f, *g))):
            return None
        return _read(_moment(f, g, (x, x, VX, VX, VX), True), {MX: mx, VX: vx}, most)
    formula = _moment(f, g, (x, y, VX, VX if vy == vx else VY, C))
    return _read(formula, {MX: mx, MY: my, VX: vx, VY: vy, C: c}, most)


def _read(formula: Any, values: dict[Any, Any], most: float) -> Any:
    """A formula at what its letters stand for, if it does not become too long."""
    if formula is None:
        return None
    length = size(formula) + sum(formula.count(letter) * size(value) for letter, value in values.items())
    return formula.xreplace(values) if length <= most else None


@lru_cache(maxsize=1 << 16)
def size(formula: Any) -> int:
    """How many parts a formula has, written out."""
    return 1 + sum(map(size, formula.args))


@cache
def _moment(f: Terms, g: Terms, letters: tuple[Any, ...], one: bool = False) -> Any:
    """E f(X) g(Y), None where there is no closed form; `one` variable may stand behind both."""
    law, total = SymbolicGaussian(*letters), ZERO
    for (first, left), (second, right) in product(_groups(f), _groups(g)):
        if one and first.kind == second.kind == "step" and not first.noise and not second.noise:
            along = _two_steps(law, first, second)
            total += sum(a * b * along(p + q) for p, a in left.items() for q, b in right.items())
            continue
        moments = Moments(law, first, second)
        try:
            total += sum(a * b * moments(p, q) for p, a in left.items() for q, b in right.items())
        except _Open:
            return None
    return _tidy(total)


def _two_steps(law: SymbolicGaussian, first: AffineFactor, second: AffineFactor) -> Callable[[int], Any]:
    """k -> E[x^k 1(a x + b > 0) 1(c x + d > 0)] for positive a and c: above both thresholds."""
    own = SymbolicGaussian(ZERO, law.mx, ONE, law.variance, ZERO)
    threshold = sp.Max(-first.b / first.a, -second.b / second.a)
    tail = Moments(own, NO_FACTOR, AffineFactor("step", ONE, -threshold))
    return lambda k: tail(0, k)


def _tidy(formula: Any) -> Any:
    """Terms with the same functions and roots are collected, their coefficients factored where that is shorter."""
    named = (Phi, phi)
    formula = formula.replace(lambda e: isinstance(e, named), lambda e: e.func(*map(sp.factor_terms, e.args)))
    formula = sp.expand_mul(formula)
    functions = sorted(formula.atoms(sp.Function), key=sp.default_sort_key)
    roots = [power for power in formula.atoms(sp.Pow) if power.exp.is_Rational and not power.exp.is_Integer]
    over = [part for part in (*functions, *sorted(roots, key=sp.default_sort_key)) if not part.is_number]
    return sp.collect(formula, over, lambda part: min((sp.expand(part), sp.factor(part)), key=sp.count_ops))

"""E[x^p y^q A(x) B(y)] for Gaussian (x, y): one recursion for every pair of kinds, in numbers or in formulas.

Gaussian integration by parts (Stein): E[(x - m) F(x, y)] = v E[dF/dx] + c E[dF/dy], m and v mean and variance of x, c
the covariance. With F = x^(p-1) y^q A(x) B(y) this lowers the power and differentiates the factors:

    M(p, q) = m M(p-1, q) + v ((p-1) M(p-2, q) + M(p-1, q; A')) + c (q M(p-1, q-1) + M(p-1, q; B'))

- exp, gaussian: multiplying the density by them gives a multiple of another Gaussian density (`_WeightedGaussian`), so
  they disappear before the recursion starts;
- sin and cos are parts of exp(i (a x + b)), and the same holds with a complex mean;
- erf(t) = E sign(sqrt2 t + N), N standard normal: erf is a step blurred by independent noise;
- 1(V > 0) has the derivative delta(V): the density of V at 0 times a moment given V = 0.

At p = q = 0 remain total masses and probabilities of signs.  The recursion takes its values from an algebra: numbers
with errors (`closed_forms`) or formulas.  An algebra is a `_WeightedGaussian` and a `PairMoments` of its own, which say
how masses and signs are computed: what cancels in floating point is written there in a form that does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

__all__ = ["NO_FACTOR", "SIGNS", "WAVES", "Factor", "PairMoments"]

SIGNS, WAVES = ("step", "erf"), ("sin", "cos")


class Quantity(Protocol):
    """A number with its error, or a formula."""

    def __add__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...


V = TypeVar("V", bound=Quantity)


@dataclass(frozen=True, eq=False)
class Factor:
    """kind(a x + b), a factor of an expectation: of a kind of terms, or a "wave", exp(i (a x + b)).

    `distance` overrides (a m + b) / (|a| sd) for a step, m and sd mean and deviation of x, where it is known better.
    """

    kind: str
    a: Any
    b: Any
    distance: Any = None


NO_FACTOR = Factor("one", 0.0, 0.0)


class _WeightedGaussian(Protocol[V]):
    """A weight, the exponential of a linear function, times a Gaussian law of (x, y): closed under what factors do.

    `mass` is the integral over the plane; `mean` that of x under the measure made a probability, complex where there is
    a wave; `variance` and `covariance` are those of x, and of x with y. `observed` is the measure given that
    a x + b + N(0, 1) = 0, times exp(-d^2 / 2), d the standardised distance of 0: with n = 1 + a^2 vx (the variance of
    the observation) and u = a mx + b (its mean), Kalman's update gives mean -= Cov(., x) a u / n,
    covariance -= Cov(., x) Cov(x, .) a^2 / n, and d^2 = u^2 / n; divided by sqrt(n) it is the measure times
    exp(-(a x + b)^2 / 2), `times_gaussian`. `at` is the measure given x, times exp(-distance^2 / 2).
    """

    @property
    def mass(self) -> V: ...
    @property
    def mean(self) -> V: ...
    @property
    def variance(self) -> V: ...
    @property
    def covariance(self) -> V: ...
    def swapped(self) -> Self: ...
    def times_exp(self, a: Any, b: Any, /) -> Self: ...
    def times_wave(self, a: Any, b: Any, /) -> Self: ...
    def times_gaussian(self, a: Any, b: Any, /) -> Self: ...
    def observed(self, a: Any, b: Any, /) -> Self: ...
    def at(self, x: Any, distance: V, /) -> Self: ...


def _absorbing(law: _WeightedGaussian[V], factor: Factor) -> tuple[_WeightedGaussian[V], Factor]:
    """The measure times a factor of x that keeps it Gaussian, and the factor that is left."""
    methods = {"exp": law.times_exp, "wave": law.times_wave, "gaussian": law.times_gaussian}
    return (methods[factor.kind](factor.a, factor.b), NO_FACTOR) if factor.kind in methods else (law, factor)


class PairMoments(ABC, Generic[V]):
    """The moments M(p, q) = E[x^p y^q A(x) B(y)] of one law and one pair of factors, computed once each."""

    zero: ClassVar[Any]
    half: ClassVar[Any]
    root_2: ClassVar[Any]
    apart: ClassVar[tuple[str, ...]]  # kinds that have no form together with a sign

    def __init__(self, law: _WeightedGaussian[V], first: Factor, second: Factor) -> None:
        law, self.first = _absorbing(law, first)
        turned, self.second = _absorbing(law.swapped(), second)
        self.law = turned.swapped()
        self._known: dict[tuple[int, int], V] = {}

    @classmethod
    def closes(cls, first: str, second: str) -> bool:
        """Whether a pair of kinds has a form."""
        return not any(a in cls.apart and b in SIGNS for a, b in ((first, second), (second, first)))

    @classmethod
    def of(cls, law: _WeightedGaussian[V], first: Factor, second: Factor) -> Callable[[int, int], V]:
        """M(p, q) for any two kinds, sin and cos included.

        With W = E[x^p y^q exp(i U) B(y)]: cos U gives Re W, sin U gives Im W. If B is cos V or sin V as well, W is
        (W+ + W-) / 2 or (W+ - W-) / 2i for B = exp(+-i V).
        """
        if first.kind not in WAVES:
            if second.kind not in WAVES:
                return cls(law, first, second)
            turned = cls.of(law.swapped(), second, first)
            return lambda p, q: turned(q, p)
        wave = replace(first, kind="wave")
        if second.kind not in WAVES:
            single = cls(law, wave, second)
            part = cls.real if first.kind == "cos" else cls.imaginary
            return lambda p, q: part(single(p, q))
        plus = cls(law, wave, Factor("wave", second.a, second.b))
        minus = cls(law, wave, Factor("wave", -second.a, -second.b))
        part = cls.real if first.kind == second.kind else cls.imaginary
        if second.kind == "cos":
            return lambda p, q: part(plus(p, q) + minus(p, q)) * cls.half
        sign = -1 if first.kind == "sin" else 1  # Im(W / i) = -Re W, Re(W / i) = Im W
        return lambda p, q: part(plus(p, q) - minus(p, q)) * (sign * cls.half)

    @property
    def swapped(self) -> Self:
        """The same moments with x and y in exchanged roles."""
        other = self.__dict__.get("_swapped")
        if other is None:
            other = type(self)(self.law.swapped(), self.second, self.first)
            self.__dict__["_swapped"], other.__dict__["_swapped"] = other, self
        return other  # type: ignore[no-any-return]

    def __call__(self, p: int, q: int) -> V:
        """M(p, q)."""
        return self.moment(p, q)

    def moment(self, p: int, q: int) -> V:
        """M(p, q), up to a factor that an algebra may set aside."""
        if p < 0 or q < 0:
            return self.zero  # type: ignore[no-any-return]
        if p == 0 and q > 0:
            return self.swapped.moment(q, 0)
        if (p, q) not in self._known:
            self._known[p, q] = self.without_powers() if p == 0 else self.power(p, q)
        return self._known[p, q]

    def power(self, p: int, q: int) -> V:
        """M(p, q), p > 0, by the recursion."""
        law = self.law
        along = self.moment(p - 2, q) * (p - 1) + self._derivative(p - 1, q)
        across = self.moment(p - 1, q - 1) * q + self.swapped._derivative(q, p - 1)
        return law.mean * self.moment(p - 1, q) + law.variance * along + law.covariance * across

    def _derivative(self, p: int, q: int) -> V:
        """E[x^p y^q A'(x) B(y)]: A = 1(V > 0) or sign V, A' = dV/dx delta(V) or twice that."""
        if self.first.kind == "one":
            return self.zero  # type: ignore[no-any-return]
        return self.slope * self.boundary(p, q)

    @cached_property
    def boundary(self) -> Self:
        """The moments of sqrt(2 pi) sd_V delta(V) B(y) times the law: those given V = 0, times exp(-distance^2 / 2)."""
        if self.first.kind == "erf":
            observed = self.law.observed(self.root_2 * self.first.a, self.root_2 * self.first.b)
            return type(self)(observed, NO_FACTOR, self.second)
        return type(self)(self.law.at(self.threshold, self.distance), NO_FACTOR, self.second_on_boundary)

    def without_powers(self) -> V:
        """E[A(x) B(y)]."""
        first, second = self.first.kind, self.second.kind
        if first not in SIGNS and second not in SIGNS:
            return self.law.mass
        if first not in SIGNS or (first == "erf" and second == "step"):
            return self.swapped.without_powers()
        return self.one_sign() if second not in SIGNS else self.two_signs()

    @property
    def blur(self) -> tuple[Any, Any]:
        """V = unit (a x + b) + noise is the sign variable behind A: the unit, and the variance of the noise."""
        return (self.root_2, 1) if self.first.kind == "erf" else (1, 0)

    @property
    def second_on_boundary(self) -> Factor:
        """B(y) where A jumps."""
        return self.second

    # -- of an algebra ------------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def real(value: V) -> V:
        """The real part."""

    @staticmethod
    @abstractmethod
    def imaginary(value: V) -> V:
        """The imaginary part."""

    @property
    @abstractmethod
    def slope(self) -> V:
        """The jump of A times the density of V where V is as probable as can be: jump dV/dx / (sqrt(2 pi) sd_V)."""

    @property
    @abstractmethod
    def threshold(self) -> Any:
        """Where a step sits."""

    @property
    @abstractmethod
    def distance(self) -> V:
        """E V / sd_V."""

    @abstractmethod
    def one_sign(self) -> V:
        """E[A(x)], the weight included, for A a step or erf."""

    @abstractmethod
    def two_signs(self) -> V:
        """E[A(x) B(y)], the weight included: two steps, two erfs, or a step and erf."""

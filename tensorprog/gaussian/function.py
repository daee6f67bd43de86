"""What a Gaussian expectation needs to know about a function of one real variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import comb
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

__all__ = [
    "KINDS", "FunctionTerm", "Left", "RealFunction", "at_most", "counted", "density", "evaluate",
    "merged", "terms_affine", "terms_product", "terms_scaled",
]  # fmt: skip

MOST_TERMS = 60  # that a product has more than its longer factor

# distance from a kink at which a jump is looked for, relative to the place of the kink, or absolute at 0
NEAR, NEAR_ZERO = 1e-7, 1e-100
SQRT_2PI = float(np.sqrt(2 * np.pi))

KINDS = ("one", "step", "erf", "exp", "sin", "cos", "gaussian")


@dataclass(frozen=True)
class FunctionTerm:
    """coefficient * x**power * kind(scale * x + shift), its parameters numbers, arrays of them, or formulas.

    `kind` is one of "one" (the constant 1), "step" (1 where its argument is positive, else 0), "erf", "exp", "sin",
    "cos" and "gaussian" (exp(-t**2 / 2)).

    Shapes    coefficient, scale and shift are numbers or arrays that broadcast against the batch, without node axis
    Raises    ValueError for an unknown kind or a negative power
    """

    coefficient: Any
    power: int
    kind: str = "one"
    scale: Any = 1
    shift: Any = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of term: {self.kind!r}; known kinds are {', '.join(KINDS)}")
        if self.power < 0:
            raise ValueError(f"the power of a term must be 0 or more, not {self.power}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The batch shape its parameters need."""
        return np.broadcast_shapes(np.shape(self.coefficient), np.shape(self.scale), np.shape(self.shift))

    def flat(self) -> FunctionTerm:
        """The same term with numbers for parameter arrays of one element."""
        c, a, b = (np.asarray(v, dtype=np.float64).reshape(()) for v in (self.coefficient, self.scale, self.shift))
        return replace(self, coefficient=c, scale=a, shift=b)


@dataclass(frozen=True, eq=False)
class RealFunction:
    """A real function of one real variable, as Gaussian expectations see it.

    call      x of shape batch + (m,) -> values of the same shape; parameter arrays inside are already shaped
              (broadcastable to the batch) + (1,)
    kinks     (..., K): where f, f' or f'' jumps; +-inf means none; K may be 0
    features  (..., L, 2): (centre, length scale) of smooth but localised structure, as (-1/3, 1/3) for
              tanh(3 x + 1); the length is about the distance from the centre to the nearest complex singularity,
              or any smaller number; L may be 0. Missing features cost accuracy, which the reported error shows
    parity    +1 even, -1 odd, 0 neither or unknown
    terms     the exact expansion of f into finitely many terms, if there is one: closed forms use it
    part      the function for a part of the batch, by a slice for each axis, where parameters vary over it
    """

    call: Callable[[Array], Array]
    kinks: Array
    features: Array = field(default_factory=lambda: np.zeros((0, 2)))
    parity: int = 0
    terms: tuple[FunctionTerm, ...] | None = None
    part: Callable[[tuple[slice, ...]], RealFunction] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The batch shape that its visible parameters need."""
        shapes = [np.shape(self.kinks)[:-1], np.shape(self.features)[:-2]]
        return np.broadcast_shapes(*shapes, *(term.shape for term in self.terms or ()))

    @property
    def degree(self) -> int:
        """d > 0 where f(s x) = s**d f(x) for all s > 0, as its terms say; 0 for all others."""
        terms = self.terms or ()
        plain = all(t.kind == "one" or (t.kind == "step" and not np.any(t.shift)) for t in terms)
        powers = {t.power for t in terms}
        return powers.pop() if plain and len(powers) == 1 else 0

    @cached_property
    def jumps(self) -> bool:
        """Whether it jumps at a kink: then it changes as much close to the kink as eight times further away."""
        places = np.where(np.isfinite(self.kinks), self.kinks, 0.0)
        step = np.where(places == 0, NEAR_ZERO, NEAR * np.abs(places))
        with np.errstate(all="ignore"):
            near, far = (np.abs(self.call(places + k * step) - self.call(places - k * step)) for k in (1, 8))
        return bool(places.size and np.any(near > far / 2))

    def affine(self, a: Array | float, b: Array | float = 0.0) -> RealFunction:
        """x -> f(a x + b), without parity and terms.

        Shapes    a and b broadcast against the batch
        """
        call = self.call
        a1, b1 = (np.asarray(array, dtype=np.float64)[..., None] for array in (a, b))
        with np.errstate(divide="ignore", invalid="ignore"):
            kinks = np.where(a1 == 0, np.inf, (self.kinks - b1) / a1)
            centres = np.where(a1 == 0, np.inf, (self.features[..., 0] - b1) / a1)
            widths = np.where(a1 == 0, np.inf, self.features[..., 1] / np.abs(a1))
        features = np.stack(np.broadcast_arrays(centres, widths), axis=-1)
        return RealFunction(lambda x: call(np.asarray(a1 * x + b1)), kinks, features)

    def joined(self, other: RealFunction, operation: Callable[[Array, Array], Array]) -> RealFunction:
        """x -> operation(f(x), g(x)), without parity and terms."""
        first, second = self.call, other.call

        def both(one: Array, two: Array, trailing: int) -> Array:
            batch = np.broadcast_shapes(one.shape[:-trailing], two.shape[:-trailing])
            parts = [np.broadcast_to(p, batch + p.shape[p.ndim - trailing :]) for p in (one, two)]
            return np.concatenate(parts, axis=-trailing)

        kinks, features = both(self.kinks, other.kinks, 1), both(self.features, other.features, 2)
        return RealFunction(lambda x: np.asarray(operation(first(x), second(x))), kinks, features)


# -- sums of terms, of numbers or formulas ----------------------------------------------------------------------------


def merged(terms: Sequence[FunctionTerm]) -> tuple[FunctionTerm, ...]:
    """The same sum with one term for each power of its polynomial part."""
    powers: dict[int, Any] = {}
    for term in terms:
        if term.kind == "one":
            powers[term.power] = powers[term.power] + term.coefficient if term.power in powers else term.coefficient
    rest = tuple(term for term in terms if term.kind != "one")
    return (*(FunctionTerm(c, power) for power, c in powers.items() if np.any(c != 0)), *rest)


def terms_scaled(terms: Sequence[FunctionTerm], factor: Any) -> tuple[FunctionTerm, ...]:
    """Terms of factor * f(x)."""
    return tuple(replace(term, coefficient=factor * term.coefficient) for term in terms)


def terms_product(f: Sequence[FunctionTerm], g: Sequence[FunctionTerm]) -> tuple[FunctionTerm, ...] | None:
    """Terms of f(x) g(x), which there are for products of polynomials with any terms, and of equal steps."""
    if (min(len(f), len(g)) - 1) * max(len(f), len(g)) > MOST_TERMS:
        return None
    found = []
    for one, two in product(f, g):
        p, t = (one, two) if one.kind == "one" else (two, one)
        steps = p.kind == t.kind == "step" and np.all(p.scale == t.scale) and np.all(p.shift == t.shift)
        if p.kind != "one" and not steps:
            return None
        found.append(replace(t, coefficient=p.coefficient * t.coefficient, power=p.power + t.power))
    return merged(found)


def terms_affine(terms: Sequence[FunctionTerm], a: Any, b: Any) -> tuple[FunctionTerm, ...]:
    """Terms of f(a x + b), the powers expanded by the binomial theorem."""
    return tuple(
        FunctionTerm(
            comb(term.power, k) * term.coefficient * a**k * b ** (term.power - k), k,
            term.kind, term.scale * a, term.scale * b + term.shift,
        )
        for term in terms
        for k in range(term.power + 1)
        if k == term.power or np.any(b != 0)
    )  # fmt: skip


# -- values and sizes --------------------------------------------------------------------------------------------------


def density(z: Array) -> Array:
    """Standard normal density."""
    return np.asarray(np.exp(-0.5 * z * z) / SQRT_2PI)


class Left:
    """How many values of functions may still be computed."""

    def __init__(self, values: int) -> None:
        self.values, self.lock = values, Lock()

    def take(self, values: int) -> None:
        """Count some; one count for all threads.

        Raises    FloatingPointError where more would be computed than may be
        """
        with self.lock:
            self.values -= values
        if self.values < 0:
            raise FloatingPointError("a Gaussian expectation takes more values of its function than are allowed here")


_LEFT: ContextVar[Left | None] = ContextVar("values", default=None)


@contextmanager
def at_most(left: Left) -> Iterator[None]:
    """Quadrature inside computes the values that are left at most, and raises FloatingPointError beyond."""
    token = _LEFT.set(left)
    try:
        yield
    finally:
        _LEFT.reset(token)


def counted(values: int) -> None:
    """Count values that are computed.

    Raises    FloatingPointError where they are more than may be
    """
    left = _LEFT.get()
    if left is not None:
        left.take(values)


def evaluate(f: RealFunction, x: Array, strict: bool = True) -> Array:
    """f at x of shape batch + (m,), without warnings, always of the shape of x; not strict: 0 for nan.

    Raises    FloatingPointError if f returns nan: a nan is a bug of the function or an argument outside its domain
    """
    counted(x.size)
    with np.errstate(all="ignore"):
        value = np.asarray(f.call(x), dtype=np.float64)
    # a function may answer with leading axes of length 1
    value = value.reshape(x.shape) if value.size == x.size else np.broadcast_to(value, x.shape)
    if not strict:
        return np.where(np.isnan(value), 0.0, value)
    if np.isnan(value).any():
        bad = x[np.isnan(value)].flat[0]
        raise FloatingPointError(
            f"a function in a Gaussian expectation returned nan at x = {bad!r}\n"
            "  needed  a finite real value on the whole real line"
        )
    return value

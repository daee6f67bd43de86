"""What a rule about expressions may ask: facts of their parts, enclosures of their numbers, what was computed before.

A number of a program is the decimal that is written, or the nearest floating-point number to it where that is exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.certificates.profile import Profile
from tensorprog.language.atoms import ATOMS
from tensorprog.language.atoms.outward import EPSILON, LARGEST, Interval, beside
from tensorprog.language.errors import ProgramError
from tensorprog.language.evaluate import Open, Scope, align, evaluate, union
from tensorprog.language.expr import (
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    as_expr,
    index_names,
    walk,
)
from tensorprog.language.ir import Draft, Netsor, Range, Table

__all__ = [
    "MAX_GRID",
    "ONE",
    "ROUNDING",
    "ZERO",
    "Enclosure",
    "Knowledge",
    "Undecided",
    "around",
    "increasing",
    "outward",
    "rational",
    "with_errors",
]

INF = math.inf
MAX_GRID = 1_000_000  # values of a constant that are computed one by one
MAX_BITS = 4096  # of a numerator and a denominator together
ROUNDING = 1e-14  # relative error up to which numbers are taken for what floating-point numbers make of them
NEAR = Fraction(1, 10**12)  # relative error of functions of such numbers
Array = NDArray[Any]
T = TypeVar("T")


class Undecided(Exception):
    """A rule gives up: numbers or expansions grow too long, or what it would need is not known."""


class Knowledge(ABC):
    """What is known of a program's expressions while one statement after the other is looked at."""

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.ranges: dict[str, Range] = dict(netsor.ranges)
        self.at = -1  # the statement in which the expression stands
        self.spread = 0  # sums that are being multiplied out
        self.renamed: dict[str, str] = {}  # names that indices had before relations compared them
        self._closed: dict[Expr, tuple[Interval, float | None] | None] = {}  # with the number, if it is one
        self._known: dict[Expr, Interval] = {}  # ranges that hold inside a branch of `where`
        self._remembered: dict[tuple[Any, ...], Any] = {}

    @abstractmethod
    def expression(self, expr: Expr, position: int) -> Profile:
        """Facts of an expression that stands in a statement."""

    def of(self, expr: Expr) -> Profile:
        """Facts of an expression in the statement that is looked at."""
        return self.expression(expr, self.at)

    def recall(self, kind: str, key: tuple[Any, ...], compute: Callable[[], T]) -> T:
        """What is computed once for each statement and each branch of `where`."""
        full = self._place(kind, *key)
        if full not in self._remembered:
            self._remembered[full] = compute()
        found: T = self._remembered[full]
        return found

    def attempt(self, kind: str, key: tuple[Any, ...], compute: Callable[[], T]) -> T | None:
        """As `recall`; None where the computation gives up."""

        def tried() -> T | None:
            try:
                return compute()
            except (Undecided, OverflowError):
                return None

        return self.recall(kind, key, tried)

    def _place(self, *key: Any) -> tuple[Any, ...]:
        return (*key, self.at, id(self.ranges), frozenset(self._known.items()))

    def closed(self, expr: Expr) -> Interval | None:
        """Interval of an expression of constants and indices; None for others and for very large grids."""
        found = self._enclosed(expr)
        return None if found is None else found[0]

    def number(self, expr: Expr) -> float | None:
        """Value of an expression that is one number, up to rounding, else None."""
        found = self._enclosed(expr)
        return None if found is None else found[1]

    def _enclosed(self, expr: Expr) -> tuple[Interval, float | None] | None:
        if expr not in self._closed:
            self._closed[expr] = self._enclosure(expr)
        return self._closed[expr]

    def _enclosure(self, expr: Expr) -> tuple[Interval, float | None] | None:
        names: dict[str, None] = {}
        for node in walk(expr):
            if isinstance(node, Variable):
                return None
            names |= dict.fromkeys(index_names(node))
        if isinstance(expr, IndexValue):
            start, stop = self.ranges[expr.name]
            return (float(start), float(stop - 1)), float(start) if stop == start + 1 else None
        exact = rational(self.netsor, expr) if not names else None
        if exact is not None and abs(exact) <= LARGEST:
            nearest = float(exact)
            side = (exact > Fraction(nearest)) - (exact < Fraction(nearest))
            return beside(nearest, side), nearest
        if math.prod(self.ranges[name][1] - self.ranges[name][0] for name in names) > MAX_GRID:
            return None
        values, errors = (np.asarray(part.data, dtype=float) for part in with_errors(self.netsor, expr, self.ranges))
        if not (np.isfinite(values).all() and np.isfinite(errors).all()):
            return None
        low, high, most = float(np.min(values)), float(np.max(values)), float(np.max(errors, initial=0.0))
        return around(values, errors), low if low == high and most <= ROUNDING * abs(low) else None

    def enclosure(self, expr: Expr) -> Enclosure | None:
        """The values of an expression without vectors and scores, as rationals; None for others."""
        interval = self.closed(expr)
        if interval is None:
            return None
        number = rational(self.netsor, expr)
        return Enclosure(*map(Fraction, interval)) if number is None else Enclosure(number, number)

    def count(self, node: Reduction) -> int:
        """How many members a reduction runs over."""
        return math.prod(self.ranges[name][1] - self.ranges[name][0] for name in node.indices)


# ---- numbers as rationals -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Enclosure:
    """All numbers between two rationals; a single number if they are equal."""

    low: Fraction
    high: Fraction

    def __add__(self, other: Enclosure) -> Enclosure:
        return Enclosure(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Enclosure:
        return Enclosure(-self.high, -self.low)

    def __mul__(self, other: Enclosure) -> Enclosure:
        if self.exact and other.exact:
            value = self.low * other.low
            if value.numerator.bit_length() + value.denominator.bit_length() > 2 * MAX_BITS:
                raise Undecided
            return Enclosure(value, value)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        if max(x.numerator.bit_length() + x.denominator.bit_length() for x in ends) > 2 * MAX_BITS:
            raise Undecided
        return Enclosure(min(ends), max(ends))

    def inverse(self) -> Enclosure:
        """1 / x; the interval must not hold 0."""
        return Enclosure(1 / self.high, 1 / self.low)

    @property
    def exact(self) -> bool:
        """Whether it is a single number."""
        return self.low == self.high

    @property
    def sign(self) -> int | None:
        """+1, -1, or 0 for the number 0; None if the interval holds 0 and others."""
        if self.low > 0 or self.high < 0:
            return 1 if self.low > 0 else -1
        return 0 if self.exact else None


def outward(low: float, high: float) -> Enclosure:
    """An interval that holds numbers computed with rounding."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise Undecided
    a, b = Fraction(low), Fraction(high)
    return Enclosure(a - abs(a) * Fraction(1, 10**14), b + abs(b) * Fraction(1, 10**14))


def increasing(function: Callable[[float], float], x: Enclosure) -> Enclosure:
    """An increasing function (exp, log) of numbers, to a relative and an absolute accuracy, whichever is worse."""
    if max(abs(x.low), abs(x.high)) > 500:
        raise Undecided
    low, high = (Fraction(function(float(end))) for end in (x.low, x.high))
    slack = NEAR * (1 if function is math.log else max(abs(low), abs(high)))
    return Enclosure(low - slack, high + slack)


ZERO, ONE = Enclosure(Fraction(0), Fraction(0)), Enclosure(Fraction(1), Fraction(1))


# ---- enclosures of expressions of constants and indices -------------------------------------------------------------


def rational(netsor: Netsor, expr: Expr) -> Fraction | None:
    """The value of an expression of numbers, where it is rational and arithmetic on decimals gives it."""
    if isinstance(expr, Constant) and not expr.slots:
        value = netsor.constant[expr.name].value
        return None if isinstance(value, Table) else rational(netsor, as_expr(value))
    if isinstance(expr, Number):
        return None if not math.isfinite(expr.value) or expr.value == math.pi else Fraction(repr(expr.value))
    if not isinstance(expr, Call):
        return None
    args = [rational(netsor, arg) for arg in expr.args]
    found = None if None in args else _exact(expr.atom, [arg for arg in args if arg is not None])
    return found if found is not None and sum(x.bit_length() for x in found.as_integer_ratio()) <= MAX_BITS else None


EXACT: Mapping[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "negative": lambda x: -x, "minimum": min, "maximum": max, "abs": abs, "relu": lambda x: max(x, Fraction(0)),
    "less": lambda x, y: Fraction(x < y), "less_equal": lambda x, y: Fraction(x <= y),
    "greater": lambda x, y: Fraction(x > y), "greater_equal": lambda x, y: Fraction(x >= y),
    "equal": lambda x, y: Fraction(x == y), "not_equal": lambda x, y: Fraction(x != y),
    "logical_and": min, "logical_or": max,
    "where": lambda condition, x, y: x if condition else y,
}  # fmt: skip


def _exact(atom: str, args: list[Fraction]) -> Fraction | None:
    if atom in EXACT:
        return EXACT[atom](*args)
    if atom in ("log", "power") and args[0] == 1:
        return Fraction(atom == "power")
    if atom == "divide":
        return args[0] / args[1] if args[1] else None
    if atom == "power":
        small = args[1].denominator == 1 and abs(args[1]) <= 1000 and (args[0] or args[1] >= 0)
        short = sum(x.bit_length() for x in args[0].as_integer_ratio()) * abs(args[1]) <= MAX_BITS
        return args[0] ** int(args[1]) if small and short else None
    if atom == "sqrt" and args[0] >= 0:
        roots = [math.isqrt(x) for x in args[0].as_integer_ratio()]
        return Fraction(*roots) if [r * r for r in roots] == [*args[0].as_integer_ratio()] else None
    if ATOMS[atom].arity == 1 and len(args) == 1 and args[0] == 0:  # libraries are exact there
        value = ATOMS[atom].near(0.0)
        return Fraction(value[0]) if value[0] == value[1] and math.isfinite(value[0]) else None
    return None


def around(values: Array, errors: Array) -> Interval:
    """The smallest interval around numbers with errors."""
    with np.errstate(all="ignore"):
        low, high = np.where(errors > 0, np.nextafter(values - errors, -INF), values), values + errors
        high = np.where(errors > 0, np.nextafter(high, INF), values)
    return float(np.min(low)), float(np.max(high))


def with_errors(netsor: Draft, expr: Expr, ranges: Mapping[str, Range]) -> tuple[Open, Open]:
    """Values of an expression of constants and indices over the open grid of its indices, with bounds on their errors.

    Accuracy  the errors of the numbers, of each operation and of what it is applied to; inf where none is known
    """

    def refuse(node: Variable, _: Mapping[str, Range]) -> Open:
        raise ProgramError(f"{node} is not a constant or an index here")

    scope = Scope(netsor, ranges, refuse)
    with np.errstate(all="ignore"):
        return evaluate(expr, scope), _error(expr, scope)


def _error(expr: Expr, scope: Scope) -> Open:
    if isinstance(expr, IndexValue):
        return Open((), np.zeros(()))
    if isinstance(expr, Number | Constant):
        definition = scope.netsor.constant[expr.name].value if isinstance(expr, Constant) else expr
        if isinstance(definition, Expr) and isinstance(expr, Constant):
            values, errors = with_errors(scope.netsor, definition, scope.netsor.ranges)
            return Open((), np.max(errors.data, initial=0.0))
        values = evaluate(expr, scope)
        return Open(values.axes, _of_decimals(values.data))
    parts = [(evaluate(child, scope), _error(child, scope)) for child in expr.children]
    if isinstance(expr, Reduction):
        return Open((), np.asarray(_of_reduction(expr, *parts[0], scope)))
    assert isinstance(expr, Call)
    axes = union(*(part.axes for pair in parts for part in pair))
    values_, errors_ = ([align(pair[k], axes) for pair in parts] for k in (0, 1))
    value = align(evaluate(expr, scope), axes)
    error = _of_call(expr.atom, value, values_, errors_)
    return Open(axes, np.where(np.isnan(error), INF, error) * np.ones(np.broadcast_shapes(np.shape(value))))


def _of_decimals(x: Array) -> Array:
    """Half a unit in the last place, but for decimals that are floating-point numbers for sure."""
    exact = (np.abs(x) <= 2**53) & (np.mod(x * 2.0**20, 1) == 0)
    return np.where(exact | np.isinf(x), 0.0, np.spacing(np.abs(x)))


def _of_reduction(node: Reduction, values: Open, errors: Open, scope: Scope) -> float:
    count = math.prod(scope.ranges[name][1] - scope.ranges[name][0] for name in node.indices)
    most, error = float(np.max(np.abs(values.data))), float(np.max(errors.data))
    whole = error == 0 and bool((np.mod(values.data, 1) == 0).all()) and most * count <= 2**53
    if node.reducer in ("sum", "mean"):
        added = count * (error + (0.0 if whole else count * most * EPSILON))
        return added if node.reducer == "sum" else added / count + most * EPSILON
    if node.reducer == "max":
        return error
    return 2 * error + (count + 16) * EPSILON * (1 + most)


def _of_call(atom: str, value: Array, x: list[Array], e: list[Array]) -> Array:
    """Error of an atom's value, by those of its arguments (their sum, in most cases) and its own rounding."""
    total: Array = sum(e, np.zeros(()))
    if atom in ("add", "subtract"):
        first, second = x[0], x[1] if atom == "add" else -x[1]
        moved = value - first
        return np.asarray(total + np.abs((first - (value - moved)) + (second - moved)))
    if atom == "multiply":
        return np.asarray(np.abs(x[0]) * e[1] + np.abs(x[1]) * e[0] + e[0] * e[1] + _rounding(value, x))
    found: Array
    if atom == "divide":
        gap = np.abs(x[1]) - e[1]
        shifted = (np.abs(np.frexp(x[1])[0]) == 0.5) & (np.abs(value) > 1e-300)
        exact = (np.fmod(x[0], x[1]) == 0) & (np.abs(value) <= 2**53) | shifted
        moved = np.where(gap > 0, (e[0] + np.abs(value) * e[1]) / np.maximum(gap, 5e-324), INF)
        found = moved + np.where(exact, 0.0, np.spacing(np.abs(value)))
        return found
    if atom in ("minimum", "maximum"):
        found = np.maximum(*e)
        return found
    if atom == "where":
        chosen = np.where(x[0], e[1], e[2])
        return np.where(e[0] > 0, np.abs(x[1] - x[2]) + e[1] + e[2], chosen)
    if ATOMS[atom].arity == 2:  # a comparison, or several: undecided where its two sides may be equal
        sure = (total == 0) | (np.abs(np.subtract(x[0], x[1], dtype=float)) > total)
        return np.where(total == 0 if atom.startswith("logical") else sure, 0.0, 1.0)
    return _of_function(atom, value, x, e)


def _rounding(value: Array, x: list[Array]) -> Array:
    """Rounding of a product: none of whole numbers and of powers of 2."""
    whole = np.all([np.mod(part, 1) == 0 for part in np.broadcast_arrays(*x)], axis=0) & (np.abs(value) <= 2**53)
    shifted = np.any([np.abs(np.frexp(part)[0]) == 0.5 for part in np.broadcast_arrays(*x)], axis=0)
    exact = whole | (value == 0) & np.any([part == 0 for part in np.broadcast_arrays(*x)], axis=0)
    return np.where(exact | (shifted & (np.abs(value) > 1e-300)), 0.0, np.spacing(np.abs(value)))


def _of_function(name: str, value: Array, x: list[Array], e: list[Array]) -> Array:
    """A function of one argument with parameters: its slope, of which parameters change no more than |x| or |f| do."""
    atom, (argument, *params), (error, *others) = ATOMS[name], x, e
    slope: Any = 0.0
    if name == "power":  # |d x**p| <= |p| |x**p / x| |dx|, and hardly more where this is small beside |x**p|
        relative = np.abs(params[0]) * error / np.abs(argument)
        slope = np.where(relative < 1e-9, 1.01 * np.abs(params[0] * value / argument), INF)
    elif np.max(error, initial=0.0) > 0:
        reach = float(np.min(argument - error)), float(np.max(argument + error))
        single = [float(p.flat[0]) for p in params] if all(np.min(p) == np.max(p) for p in params) else None
        slope = INF if single is None else atom.regularity_on(reach, *single).lipschitz
    exact = (argument == 0) & (np.mod(2 * value, 1) == 0)
    if name == "sqrt":
        exact = (np.mod(value, 1) == 0) & (value * value == argument)
    if name == "power":
        base, exponent = np.abs(np.frexp(argument)[0]) == 0.5, params[0]
        whole = (np.mod(argument, 1) == 0) & (np.mod(exponent, 1) == 0) & (exponent >= 0) & (np.abs(value) <= 2**53)
        exact = whole | (base & (np.mod(exponent, 1) == 0) & (np.abs(value) > 1e-300)) | (exponent == 1)
    size = np.maximum(np.abs(value), 1.0) if name in ("sin", "cos") else np.abs(value)
    moved = np.where(error > 0, slope * error, 0.0)
    shaped: Array = sum(others, np.zeros(())) * (1 + np.abs(argument) + 745 * np.abs(value))
    return moved + shaped + np.where(exact, 0.0, (atom.ulps + 1 if atom.ulps else 0.0) * EPSILON * size + 5e-324)

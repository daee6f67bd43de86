"""Functions of one variable as sums of terms coefficient * x**power * kind(scale * x + shift), exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import comb
from typing import Any, NamedTuple

import sympy as sp
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanAtom, BooleanFunction

from tensorprog.language.atoms import ATOMS
from tensorprog.language.expr import Call, Expr, Number, Variable, fold, walk
from tensorprog.limit.form.sums_of_functions import FORMAL

__all__ = ["Term", "apply", "as_number", "exact", "expand_terms", "parity", "scalar_function"]

MAX_TERMS, MAX_POWER = 60, 12
LOGICAL = (BooleanAtom, BooleanFunction, Relational)  # symbols are Boolean too, to sympy


class Term(NamedTuple):
    """coefficient * x**power * kind(scale * x + shift), with sympy expressions; kinds as in `gaussian.Term`."""

    coefficient: Any
    power: int
    kind: str = "one"
    scale: Any = sp.S.One
    shift: Any = sp.S.Zero


Terms = Sequence[Term]


def exact(value: Any) -> Any:
    """A sympy expression without floats: 0.7 is 7/10, and a float that is a root of a fraction is that root."""
    expr = sp.sympify(value)
    if not expr.has(sp.Float):
        return expr
    return expr.xreplace({number: _exact(float(number)) for number in expr.atoms(sp.Float)})


def _exact(x: float) -> Any:
    if x in (float("inf"), float("-inf")):
        return sp.oo if x > 0 else -sp.oo
    fraction = Fraction(x).limit_denominator(1_000_000)
    if float(fraction) == x:
        return sp.Rational(fraction.numerator, fraction.denominator)
    square = Fraction(x * x).limit_denominator(1_000)
    if square and abs(float(square) - x * x) <= 4e-16 * x * x:
        return sp.sign(x) * sp.sqrt(sp.Rational(square.numerator, square.denominator))
    return sp.Rational(repr(x))


def depends(expr: Expr) -> bool:
    """Whether the variable occurs."""
    return any(node == FORMAL for node in walk(expr))


def parity(expr: Expr) -> int:
    """+1 for a function that is even, -1 for one that is odd, 0 where neither is seen at once."""
    if expr == FORMAL:
        return -1
    if not depends(expr):
        return 1
    if not isinstance(expr, Call):
        return 0
    if expr.atom in ("add", "subtract"):
        first, second = map(parity, expr.args)
        return first if first == second else 0
    if expr.atom in ("multiply", "divide"):
        return parity(expr.args[0]) * parity(expr.args[1])
    if ATOMS[expr.atom].arity != 1:
        return 0
    inner, own = parity(expr.args[0]), ATOMS[expr.atom].parity
    if expr.atom == "power" and isinstance(expr.args[1], Number) and expr.args[1].value == int(expr.args[1].value):
        own = 1 if expr.args[1].value % 2 == 0 else -1
    return 1 if inner == 1 else own if inner == -1 else 0


def expand_terms(expr: Expr, numbers: Mapping[Variable, Any]) -> tuple[Term, ...] | None:
    """An expression in FORMAL as terms, its other variables standing for the numbers given; None if it is none."""
    found = _build(expr, numbers)
    if found is None or any(value.has(sp.oo, -sp.oo, sp.nan, sp.zoo) for t in found for value in (t[0], t[3], t[4])):
        return None
    merged: dict[tuple[Any, ...], Any] = {}
    for term in found:
        key = (term.power, *(term[2:] if term.kind != "one" else ("one", sp.S.One, sp.S.Zero)))
        merged[key] = merged.get(key, sp.S.Zero) + term.coefficient
    return tuple(Term(c, *key) for key, c in merged.items() if c != 0)


def scalar_function(expr: Expr, values: Mapping[Variable, Any]) -> Any:
    """An expression of numbers and the variables given."""
    def leaf(node: Expr) -> Any:
        return exact(node.value) if isinstance(node, Number) else values[node] if isinstance(node, Variable) else None

    return as_number(fold(expr, {}, leaf, lambda node, *args: apply(node.atom, args)))


def apply(atom: str, args: Sequence[Any]) -> Any:
    """An atom on sympy expressions; conditions become 0 or 1 where numbers are asked for."""
    logical = ATOMS[atom].operator in ("&", "|")
    values = [
        _condition(arg) if logical or (atom == "where" and k == 0) else as_number(arg) for k, arg in enumerate(args)
    ]
    return exact(ATOMS[atom].sympy(sp, *values))


def _condition(value: Any) -> Any:
    return value if isinstance(value, LOGICAL) else sp.Ne(value, 0)


def as_number(value: Any) -> Any:
    """A condition as 1 or 0; any other expression as it is."""
    return sp.Piecewise((1, value), (0, True)) if isinstance(value, LOGICAL) else value


def _build(expr: Expr, numbers: Mapping[Variable, Any]) -> list[Term] | None:
    if expr == FORMAL:
        return [Term(sp.S.One, 1)]
    if not depends(expr):
        return [Term(scalar_function(expr, numbers), 0)]
    if not isinstance(expr, Call):
        return None
    if expr.atom in ("maximum", "minimum"):  # max(a, b) = b + relu(a - b), min(a, b) = a - relu(a - b)
        first, second = expr.args
        hinge = Call("relu", (Call("subtract", (first, second)),))
        written = ("add", (second, hinge)) if expr.atom == "maximum" else ("subtract", (first, hinge))
        return _build(Call(*written), numbers)
    if expr.atom == "divide" and not depends(expr.args[1]):
        return _scaled(_build(expr.args[0], numbers), 1 / scalar_function(expr.args[1], numbers))
    arguments = [_build(arg, numbers) for arg in expr.arguments]
    if any(argument is None for argument in arguments):
        return None
    known: list[list[Term]] = [argument for argument in arguments if argument is not None]
    if expr.atom in ("add", "subtract"):
        return known[0] + (_scaled(known[1], sp.S.NegativeOne if expr.atom == "subtract" else sp.S.One) or [])
    if expr.atom == "negative":
        return _scaled(known[0], sp.S.NegativeOne)
    if expr.atom == "multiply":
        return _product(known[0], known[1])
    params = [scalar_function(param, numbers) for param in expr.params]
    return _applied(expr, known[0], params) if len(known) == 1 else None


def _scaled(terms: list[Term] | None, factor: Any) -> list[Term] | None:
    return None if terms is None else [term._replace(coefficient=factor * term.coefficient) for term in terms]


def _product(first: Terms, second: Terms) -> list[Term] | None:
    """A product closes where one factor is a polynomial."""
    for poly, other in ((first, second), (second, first)):
        if all(term.kind == "one" for term in poly) and len(poly) * len(other) <= MAX_TERMS:
            return [
                t._replace(coefficient=p.coefficient * t.coefficient, power=p.power + t.power)
                for p, t in product(poly, other)
            ]
    return None


def _applied(expr: Call, inner: Terms, params: Sequence[Any]) -> list[Term] | None:
    atom = ATOMS[expr.atom]
    if atom.terms is None or any(term.kind != "one" for term in inner):
        return None
    if expr.atom == "power":
        return _power(inner, params[0])
    raw = atom.terms(*params) if _ascending(atom.kinks(*params) if atom.kinks else ()) else None
    if raw is None or any(term.power > 1 for term in inner):
        return None
    slope = sum((term.coefficient for term in inner if term.power == 1), sp.S.Zero)
    offset = sum((term.coefficient for term in inner if term.power == 0), sp.S.Zero)
    if slope == 0:
        return None
    terms = [Term(exact(c), power, kind, exact(a), exact(b)) for c, power, kind, a, b in raw]
    return [
        Term(
            comb(t.power, k) * t.coefficient * slope**k * offset ** (t.power - k),
            k,
            t.kind,
            t.scale * slope,
            t.scale * offset + t.shift,
        )
        for t in terms
        for k in range(t.power + 1)
    ]


def _ascending(kinks: Sequence[Any]) -> bool:
    """Whether the pieces of a function are certain to come in the order in which its terms have them."""
    return all(sp.sympify(b - a).is_extended_nonnegative for a, b in pairwise(kinks))


def _power(inner: Terms, exponent: Any) -> list[Term] | None:
    if not exponent.is_Integer or not 0 <= exponent <= MAX_POWER:
        return None
    total: list[Term] | None = [Term(sp.S.One, 0)]
    for _ in range(int(exponent)):
        total = None if total is None else _product(total, inner)
    return total

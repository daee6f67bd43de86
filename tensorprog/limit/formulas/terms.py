"""Functions of one variable as sums of terms with exact coefficients, and numbers of the language without floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import sympy as sp
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanAtom, BooleanFunction

from tensorprog.gaussian.function import FunctionTerm
from tensorprog.language.atoms import ATOMS, Atom
from tensorprog.language.expr import Expr, Number, Variable, fold
from tensorprog.limit.form.univariate import TermExpansion, whole_number

__all__ = ["SymbolicExpansion", "apply", "as_number", "exact", "expand_terms", "scalar_function"]

ZERO, ONE = sp.S.Zero, sp.S.One
LOGICAL = (BooleanAtom, BooleanFunction, Relational)  # symbols are Boolean too, to sympy


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


class SymbolicExpansion(TermExpansion):
    """Expressions of one variable as sums of terms whose parameters are sympy expressions."""

    def __init__(self, numbers: Mapping[Variable, Any]) -> None:
        super().__init__()
        self.numbers = numbers

    def number(self, part: Expr) -> Any:
        """A part without the variable."""
        return scalar_function(part, self.numbers)

    def pieces(self, atom: Atom, params: Sequence[Any]) -> tuple[FunctionTerm, ...] | None:
        """A function of one argument as a sum of terms, if it is one and its pieces are certain to be in order."""
        if atom.terms is None or (atom.name == "power" and whole_number(params[0]) is None):
            return None
        kinks = atom.kinks(*params) if atom.kinks else ()
        if not all(sp.sympify(b - a).is_extended_nonnegative for a, b in pairwise(kinks)):
            return None
        found = atom.terms(*params)
        return None if found is None else tuple(
            FunctionTerm(exact(c), power, kind, exact(a), exact(b)) for c, power, kind, a, b in found if c != 0
        )  # fmt: skip


def expand_terms(expr: Expr, numbers: Mapping[Variable, Any]) -> tuple[FunctionTerm, ...] | None:
    """An expression in FORMAL as terms, its other variables standing for the numbers given; None if it is none."""
    found = SymbolicExpansion(numbers).terms(expr)
    merged: dict[FunctionTerm, Any] = {}
    for term in found or ():
        c, a, b = map(sp.sympify, (term.coefficient, term.scale, term.shift))
        if any(value.has(sp.oo, -sp.oo, sp.nan, sp.zoo) for value in (c, a, b)):
            return None
        key = FunctionTerm(ZERO, term.power, term.kind, *((a, b) if term.kind != "one" else (ONE, ZERO)))
        merged[key] = merged.get(key, ZERO) + c
    return None if found is None else tuple(replace(key, coefficient=c) for key, c in merged.items() if c != 0)


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

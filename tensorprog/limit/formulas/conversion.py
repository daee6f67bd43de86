"""Expressions of the language as formulas: exact numbers, sums of terms, and whole expressions with indices."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanAtom, BooleanFunction

from tensorprog.gaussian.function import FunctionTerm
from tensorprog.language.atoms import ATOMS, REDUCTIONS, Atom
from tensorprog.language.errors import NotCompiledError, ProgramError, did_you_mean
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    fold,
    is_call,
    substitute,
    walk,
)  # fmt: skip
from tensorprog.language.ir import Netsor, Range, Table
from tensorprog.limit.form.univariate import TermExpansion, whole_number
from tensorprog.limit.formulas.nodes import Choice, Lookup, Reduced, affine, index_symbol, softmax, summed

__all__ = [
    "Converter", "SymbolicExpansion", "converted", "exact", "expand_terms", "kept_constants", "within", "written",
]  # fmt: skip

ZERO, ONE = sp.S.Zero, sp.S.One
LOGICAL = (BooleanAtom, BooleanFunction, Relational)  # symbols are Boolean too, to sympy
MATHEMATICS = ("abs", "cos", "erf", "exp", "log", "maximum", "minimum", "sin", "sqrt", "tanh", "where")


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
        self.numbers = numbers

    def number(self, part: Expr) -> Any:
        """A part without the variable."""
        return converted(part, self.numbers.get)

    def pieces(self, atom: Atom, params: Sequence[Any]) -> tuple[FunctionTerm, ...] | None:
        """A function of one argument as a sum of terms, if it is one and its pieces are certain to be in order."""
        waves = atom.name in ("sin", "cos")  # of which expectations stay
        if atom.terms is None or waves or (atom.name == "power" and whole_number(params[0]) is None):
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
    found = SymbolicExpansion(numbers).of(expr).terms
    merged: dict[FunctionTerm, Any] = {}
    for term in found or ():
        c, a, b = map(sp.sympify, (term.coefficient, term.scale, term.shift))
        if any(value.has(sp.oo, -sp.oo, sp.nan, sp.zoo) for value in (c, a, b)):
            return None
        key = FunctionTerm(ZERO, term.power, term.kind, *((a, b) if term.kind != "one" else (ONE, ZERO)))
        merged[key] = merged.get(key, ZERO) + c
    return None if found is None else tuple(replace(key, coefficient=c) for key, c in merged.items() if c != 0)


def converted(
    expr: Expr,
    reference: Callable[[Any], Any],
    call: Callable[..., Any] | None = None,
    reduced: Callable[..., Any] | None = None,
) -> Any:
    """An expression by what its references are; calls and reductions by their formulas, unless they are given."""

    def leaf(node: Expr) -> Any:
        if isinstance(node, Number):
            return exact(node.value)
        if isinstance(node, IndexValue):
            return index_symbol(node.name)
        return reference(node) if isinstance(node, Constant | Variable) else None

    rules = dict.fromkeys(REDUCTIONS, reduced) if reduced else {}
    return as_number(fold(expr, rules, leaf, call or (lambda node, *args: apply(node.atom, args))))


def apply(atom: str, args: Sequence[Any]) -> Any:
    """An atom on sympy expressions; conditions become 0 or 1 where numbers are asked for."""
    logical = ATOMS[atom].operator in ("&", "|")
    values = [
        _condition(arg) if logical or (atom == "where" and k == 0) else as_number(arg) for k, arg in enumerate(args)
    ]
    return Choice(*values) if atom == "where" else exact(ATOMS[atom].sympy(sp, *values))


def _condition(value: Any) -> Any:
    return value if isinstance(value, LOGICAL) else sp.Ne(value, 0)


def as_number(value: Any) -> Any:
    """A condition as 1 or 0; any other expression as it is."""
    return Choice(value) if isinstance(value, LOGICAL) else value


def written(expr: Expr, reference: Callable[[Any], Any]) -> Any:
    """An expression as people write it, functions and reductions by their names."""

    def named(node: Call, *args: Any) -> Any:
        if ATOMS[node.atom].operator or node.atom in MATHEMATICS:
            return apply(node.atom, args)
        defaults = ATOMS[node.atom].params.values()  # parameters are shown unless all have their default values
        default = all(
            isinstance(p, Number) and p.value == value for p, value in zip(node.params, defaults, strict=True)
        )
        shown = args[: len(node.arguments)] if default else args
        return sp.Function(node.atom, real=True)(*map(as_number, shown))

    def reduced(node: Reduction, arg: Any) -> Any:
        return Reduced(sp.Symbol(node.reducer), as_number(arg), *map(index_symbol, node.indices))

    return converted(expr, reference, named, reduced)


class Converter:
    """Numbers of one program as sympy expressions, with the constants named in `kept` as symbols."""

    def __init__(self, netsor: Netsor, kept: frozenset[str]) -> None:
        self.netsor = netsor
        self.symbols = {name: _symbol(name, netsor.scalars[name]) for name in netsor.scalars if name in kept}

    def number(self, expr: Expr, scalar: Callable[[Variable], Any], ranges: Mapping[str, Range]) -> Any:
        """An expression of constants, indices and scalars, which `scalar` gives; a condition is 1 or 0."""

        def reference(node: Any) -> Any:
            return self._constant(node, scalar, ranges) if isinstance(node, Constant) else scalar(node)

        return converted(expr, reference, reduced=lambda node, arg: self._reduced(node, as_number(arg), ranges))

    def _reduced(self, node: Reduction, arg: Any, ranges: Mapping[str, Range]) -> Any:
        """A reduction of a number."""
        # indices that another softmax runs over carry a star
        spans = tuple(ranges[name if name in ranges else name.rstrip("*")] for name in node.indices)
        if node.reducer == "softmax":
            at = [affine(form) for form in node.at] or map(index_symbol, node.indices)
            return softmax(arg, node.indices, spans, tuple(at))
        if node.reducer == "max":
            raise NotCompiledError(
                "a maximum over an index has no formula yet; limit() without symbolic=True gives its numbers"
            )
        total = sp.exp(arg) if node.reducer == "logsumexp" else arg
        for name, span in zip(node.indices, spans, strict=True):
            total = summed(total, name, span)
        if node.reducer == "mean":
            return total / math.prod(stop - start for start, stop in spans)
        return sp.log(total) if node.reducer == "logsumexp" else total

    def _constant(self, node: Constant, scalar: Callable[[Variable], Any], ranges: Mapping[str, Range]) -> Any:
        if node.name in self.symbols:
            return self.symbols[node.name]
        definition = self.netsor.constant[node.name]
        if isinstance(definition.value, Table):
            indices = [self.netsor.index[name] for name in definition.indices]
            if any(index.boundary for index in indices):
                raise NotCompiledError(
                    f"{node.name} is read beyond a boundary, for which there are no formulas yet; limit() without "
                    "symbolic=True gives the numbers"
                )
            starts = tuple(index.start for index in indices)
            return Lookup.of(node.name, definition.value, starts, list(map(affine, node.slots)))
        if isinstance(definition.value, Expr):
            values = dict(zip(definition.indices, node.slots, strict=True))
            return self.number(substitute(definition.value, values), scalar, ranges)
        return exact(definition.value)


def within(form: Affine, span: Range, ranges: Mapping[str, Range]) -> Any:
    """1 where a form stays in a range, else 0."""
    low, high = form.bounds(ranges)
    if span[0] <= low and high < span[1]:
        return sp.S.One
    return Choice(sp.And(affine(form) >= span[0], affine(form) < span[1]))


def _symbol(name: str, value: float | int | None) -> Any:
    """A constant has the sign of its value."""
    sign = {1: "positive", -1: "negative"}.get(int(np.sign(value or 0)), "real")
    return sp.Symbol(name, **{sign: True})


# ---- which constants can be symbols --------------------------------------------------------------------------------


def kept_constants(netsor: Netsor, asked: bool | Sequence[str]) -> frozenset[str]:
    """Names of constants to keep as symbols.

    Raises    ProgramError for a name that is no constant, an array, a size or an exponent
    """
    fixed = _fixed(netsor)
    free = [name for name, value in netsor.scalars.items() if value is not None and name not in fixed]
    if isinstance(asked, bool):
        return frozenset(free if asked else ())
    names = [asked] if isinstance(asked, str) else list(asked)
    for name in names:
        if name not in free:
            hint = f"is not a constant of {netsor.name}; {did_you_mean(name, free)}"
            hint = "is an array or an expression, of which entries stay numbers" if name in netsor.scalars else hint
            raise ProgramError(f"symbolic: {name} {fixed.get(name, hint)}, so it cannot stay a symbol")
    return frozenset(names)


def _fixed(netsor: Netsor) -> dict[str, str]:
    """Constants that must be numbers, with the reason."""
    found: dict[str, str] = {}
    nodes = [node for expr in netsor.expressions for node in walk(expr)]
    for node in nodes:
        if is_call(node, "power"):
            found |= dict.fromkeys(_constants(node.args[1]), "stands in an exponent")
        if is_call(node, "where") and not any(isinstance(inner, Variable | IndexValue) for inner in walk(node.args[0])):
            found |= dict.fromkeys(_constants(node.args[0]), "makes a choice")
    references = [node for node in nodes if isinstance(node, Variable | Constant)]
    references += [reference for statement in netsor.body for reference in (statement.target, *statement.references)]
    texts = [slot.text for reference in references for slot in reference.slots]
    texts += [index.text for index in netsor.indices] + [text for _, _, text in netsor.widths]
    texts += [text for name, text in netsor.written if name in dict(netsor.fixed_widths)]
    sizes = set(re.findall(r"\w+", " ".join(texts))).intersection(netsor.scalars)
    return found | dict.fromkeys(sizes, "fixes the range of an index")


def _constants(expr: Expr) -> list[str]:
    return [node.name for node in walk(expr) if isinstance(node, Constant)]

"""Whole expressions, with indices, sums and softmaxes, as sympy expressions: constants kept or exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

from tensorprog.language.atoms import REDUCTIONS
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
    substitute,
    walk,
)
from tensorprog.language.ir import Netsor, Range, Table
from tensorprog.limit.formulas.nodes import Softmax, index_symbol, summed
from tensorprog.limit.formulas.terms import apply, as_number, exact

__all__ = [
    "Converter",
    "Data",
    "Lookup",
    "affine",
    "kept_constants",
    "within",
]


def affine(form: Affine) -> Any:
    """An affine form in index symbols."""
    return sum((coefficient * index_symbol(name) for name, coefficient in form.terms), sp.Integer(form.offset))


class Data(sp.Atom):  # type: ignore[misc]
    """An array of numbers with a name; `starts` are the first values of its indices, `rules` what lies outside."""

    __slots__ = ("name", "rules", "starts", "table")

    def __new__(cls, name: str, table: Table, starts: tuple[int, ...], rules: tuple[str, ...] = ()) -> Data:
        """From a table."""
        self = super().__new__(cls)
        self.name, self.table, self.starts, self.rules = name, table, starts, rules or ("",) * len(starts)
        return self  # type: ignore[no-any-return]

    def _hashable_content(self) -> tuple[Any, ...]:
        return self.name, self.table.shape, self.table.data, self.starts, self.rules  # sympy compares and sorts by it

    def sort_key(self, order: Any = None) -> Any:
        """By its name."""
        return self.class_key(), (1, (self.name,)), sp.S.One.sort_key(), sp.S.One

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.name, self.table, self.starts, self.rules

    def _sympystr(self, printer: Any) -> str:
        return str(self.name)

    def _latex(self, printer: Any) -> str:
        return str(printer._print(sp.Symbol(self.name)))

    def read(self, *indices: Any) -> Any:
        """The numbers at arrays of index values."""
        array, mask, places = self.table.array, np.True_, []
        for index, start, size, rule in zip(indices, self.starts, array.shape, self.rules, strict=True):
            place = np.asarray(index, dtype=np.int64) - start
            if rule == "zero":
                mask = mask & (place >= 0) & (place < size)
            places.append(place % size if rule == "wrap" else np.clip(place, 0, size - 1))
        return np.where(mask, array[tuple(places)], 0.0)


class Lookup(sp.Expr):  # type: ignore[misc]
    """An entry of an array of numbers, args (data, *indices); the number itself once the indices are numbers."""

    is_commutative = True
    is_extended_real = is_real = is_finite = True

    def __new__(cls, data: Data, *indices: Any) -> Any:
        """A lookup, or the number."""
        given = list(map(sp.sympify, indices))
        if not all(index.is_Integer for index in given):
            return super().__new__(cls, data, *given)
        value = float(data.read(*map(int, given)))
        return sp.Integer(int(value)) if value == int(value) else sp.Float(value)

    def _sympystr(self, printer: Any) -> str:
        return f"{self.args[0].name}[{', '.join(map(printer._print, self.args[1:]))}]"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"{printer._print(self.args[0])}\left[{', '.join(map(printer._print, self.args[1:]))}\right]"
        return rf"{text}^{{{exp}}}" if exp else text


class Converter:
    """Numbers of one program as sympy expressions, with the constants named in `kept` as symbols."""

    def __init__(self, netsor: Netsor, kept: frozenset[str]) -> None:
        self.netsor = netsor
        self.symbols = {name: _symbol(name, netsor.scalars[name]) for name in netsor.scalars if name in kept}

    def number(
        self,
        expr: Expr,
        scalar: Callable[[Variable], Any],
        ranges: Mapping[str, Range],
    ) -> Any:
        """An expression of constants, indices and scalars, which `scalar` gives; a condition is 1 or 0."""
        return as_number(self._value(expr, scalar, ranges))

    def _value(self, expr: Expr, scalar: Callable[[Variable], Any], ranges: Mapping[str, Range]) -> Any:
        """The same, conditions left as they are."""
        def leaf(node: Expr) -> Any:
            if isinstance(node, Number):
                return exact(node.value)
            if isinstance(node, IndexValue):
                return index_symbol(node.name)
            if isinstance(node, Constant):
                return self._constant(node, ranges)
            return scalar(node) if isinstance(node, Variable) else None

        def reduced(node: Reduction, arg: Any) -> Any:
            return self._reduced(node, as_number(arg), ranges)

        return fold(expr, dict.fromkeys(REDUCTIONS, reduced), leaf, lambda node, *args: apply(node.atom, args))

    def _reduced(self, node: Reduction, arg: Any, ranges: Mapping[str, Range]) -> Any:
        """A reduction of a number."""
        over = [index_symbol(name) for name in node.indices]
        if node.reducer == "softmax":
            at = [affine(form) for form in node.at] or over
            return Softmax.over(arg, {name: self._range(name, ranges) for name in node.indices}, at)
        if node.reducer == "max":
            raise NotCompiledError("a maximum over an index is not written as a formula by this version")
        total = sp.exp(arg) if node.reducer == "logsumexp" else arg
        count = 1
        for symbol, name in zip(over, node.indices, strict=True):
            start, stop = ranges[name]
            count *= stop - start
            total = summed(total, symbol, (start, stop))
        return total / count if node.reducer == "mean" else sp.log(total) if node.reducer == "logsumexp" else total

    @staticmethod
    def _range(name: str, ranges: Mapping[str, Range]) -> Range:
        """The range of an index; those that a softmax runs over carry a star."""
        return ranges[name if name in ranges else name.rstrip("*")]

    def _constant(self, node: Constant, ranges: Mapping[str, Range]) -> Any:
        if node.name in self.symbols:
            return self.symbols[node.name]
        definition = self.netsor.constant[node.name]
        if isinstance(definition.value, Table):
            indices = [self.netsor.index[name] for name in definition.indices]
            starts, rules = tuple(i.start for i in indices), tuple(i.boundary for i in indices)
            return Lookup(Data(node.name, definition.value, starts, rules), *(affine(slot) for slot in node.slots))
        if isinstance(definition.value, Expr):
            values = dict(zip(definition.indices, node.slots, strict=True))
            return self.number(substitute(definition.value, values), _no_scalar, ranges)
        return exact(definition.value)


def within(form: Affine, span: Range, ranges: Mapping[str, Range]) -> Any:
    """1 where a form stays in a range, else 0."""
    low, high = form.bounds(ranges)
    if span[0] <= low and high < span[1]:
        return sp.S.One
    return sp.Piecewise((1, sp.And(affine(form) >= span[0], affine(form) < span[1])), (0, True))


def _no_scalar(reference: Variable) -> Any:
    raise ProgramError(f"{reference} is not a constant or an index here")


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
        if name not in netsor.scalars:
            known = f"; {did_you_mean(name, free)}" if free else ""
            raise ProgramError(f"symbolic: {name} is not a constant of {netsor.name}{known}")
        if name not in free:
            reason = fixed.get(name, "is an array or an expression, of which entries stay numbers")
            raise ProgramError(f"symbolic: {name} {reason}, so it cannot stay a symbol")
    return frozenset(names)


def _fixed(netsor: Netsor) -> dict[str, str]:
    """Constants that must be numbers, with the reason."""
    found: dict[str, str] = {}
    for expr in netsor.expressions:
        for node in walk(expr):
            if isinstance(node, Call) and node.atom == "power":
                found |= {
                    inner.name: "stands in an exponent" for inner in walk(node.args[1]) if isinstance(inner, Constant)
                }
            if isinstance(node, Call) and node.atom == "where":
                inside = list(walk(node.args[0]))
                if not any(isinstance(inner, Variable | IndexValue) for inner in inside):
                    found |= {inner.name: "makes a choice" for inner in inside if isinstance(inner, Constant)}
    texts = [index.text for index in netsor.indices] + [text for _, _, text in netsor.widths]
    texts += [text for name, text in netsor.written if name in dict(netsor.fixed_widths)]
    texts += [
        slot.text
        for expr in netsor.expressions
        for node in walk(expr)
        if isinstance(node, Variable | Constant)
        for slot in node.slots
    ]
    texts += [
        slot.text for statement in netsor.body for reference in (statement.target, *statement.references)
        for slot in reference.slots
    ]
    for text in texts:
        found |= {name: "fixes the range of an index" for name in _words(text) if name in netsor.scalars}
    return found


def _words(text: str) -> Iterator[str]:
    word = ""
    for letter in f"{text} ":
        if letter.isalnum() or letter == "_":
            word += letter
        else:
            if word:
                yield word
            word = ""

"""What sympy leaves as it is: names with indices, sums, softmaxes, choices, arrays, averages over scores; and numbers.

An index that a node runs over is a `Bound`, a sympy Dummy: it means nothing outside and catches no other symbol.
Conditions on such indices must not leave their node, as those of a Piecewise do when sympy folds it: hence `Choice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

import numpy as np
import sympy as sp

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.language.errors import MemoryLimitError, NotCompiledError, ProgramError
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range, Table

__all__ = [
    "Bound", "Choice", "Entry", "IndexSum", "Lookup", "Named", "Node", "Opaque", "Reduced", "Score",
    "ScoreAverage", "Softmax", "affine", "carried", "estimate", "index_symbol", "outermost", "readable", "same",
    "softmax", "summed",
]  # fmt: skip

MOST = 100_000  # terms that are written out
LEVEL = 64 * EPS  # errors of arguments below this, relatively, are rounding


def index_symbol(name: str) -> Any:
    """The symbol of an index or of a position of a family."""
    return sp.Symbol(name, integer=True)


def affine(form: Affine) -> Any:
    """An affine form in index symbols."""
    return sum((coefficient * index_symbol(name) for name, coefficient in form.terms), sp.Integer(form.offset))


class Node(sp.Expr):  # type: ignore[misc]
    """A real number that sympy leaves as it is, and which may have a value once no symbol is left in it."""

    __slots__ = ()
    is_commutative = is_extended_real = is_real = is_finite = True

    def estimate(self) -> Estimate:
        """Value and error, when no free symbol is left."""
        return estimate(self)

    def value(self) -> Estimate:
        """The same, for nodes that have one."""
        raise ProgramError(f"no number yet: {self} must be given a value first")

    def _eval_evalf(self, prec: int) -> Any:
        return (
            None if self.free_symbols or self.has(Named, ScoreAverage) else sp.Float(float(self.estimate().value), 15)
        )

    def _eval_derivative(self, symbol: Any) -> Any:
        if not self.has_free(symbol):
            return sp.S.Zero
        raise NotCompiledError(
            f"the derivative in {symbol} of an expectation without closed form, or of what is not written out, is no "
            "formula; take differences of its values, or write it out with doit() first"
        )


class Opaque(sp.Atom):  # type: ignore[misc]
    """An argument of formulas that is none itself: an object, and what sympy compares and sorts it by."""

    __slots__ = ("held", "key")
    held: Any
    key: tuple[Any, ...]

    def __new__(cls, held: Any, *key: Any) -> Any:
        """From what it holds."""
        self = super().__new__(cls)
        self.held, self.key = held, key
        return self

    def _hashable_content(self) -> tuple[Any, ...]:
        return self.key

    def sort_key(self, order: Any = None) -> Any:
        """By its key."""
        return self.class_key(), (1, (str(self.key[0]),)), sp.S.One.sort_key(), sp.S.One

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.held, *self.key

    def _sympystr(self, printer: Any) -> str:
        return str(self.key[0])

    def _latex(self, printer: Any) -> str:
        return str(printer._print(sp.Symbol(self.key[0])))


# ---- names ----------------------------------------------------------------------------------------------------------


class Named(Node):
    """A member of a family, args (name, *indices)."""

    accent: ClassVar[str] = ""

    @property
    def free_symbols(self) -> set[Any]:
        """Those of its indices; its name is none."""
        return set().union(*(index.free_symbols for index in self.args[1:]))

    def _sympystr(self, printer: Any) -> str:
        name, *indices = map(printer._print, self.args)
        return f"{name}[{','.join(indices)}]" if indices else name

    def _latex(self, printer: Any) -> str:
        name, *indices = map(printer._print, self.args)
        name = f"{self.accent}{{{name}}}" if indices or self.accent else name
        return f"{name}_{{{','.join(indices)}}}" if indices else name


class Score(Named):
    """A score in the limit, p-ring."""

    accent = r"\mathring"


class Entry(Named):
    """A formula of an earlier line by its name."""


class Lookup(Named):
    """An entry of an array of numbers, args (data, *indices); the number itself once the indices are numbers."""

    @classmethod
    def of(cls, name: str, table: Table, starts: tuple[int, ...], indices: Sequence[Any]) -> Any:
        """From a table and the first values of its indices."""
        return cls(Opaque(table.array, name, table.shape, table.data, starts), *indices)

    def __new__(cls, data: Opaque, *indices: Any) -> Any:
        """A lookup, or the number there; outside, where conditions make it count for nothing, the nearest."""
        given = list(map(sp.sympify, indices))
        if not all(index.is_Integer for index in given):
            return super().__new__(cls, data, *given)
        _, shape, _, starts = data.key
        places = (min(max(int(i) - a, 0), size - 1) for i, a, size in zip(given, starts, shape, strict=True))
        value = float(data.held[tuple(places)])
        return sp.Integer(int(value)) if value == int(value) else sp.Float(value)


class Reduced(Node):
    """A reduction by its name, args (name, argument, *indices)."""

    def _sympystr(self, printer: Any) -> str:
        return f"{self.args[0].name}[{','.join(map(str, self.args[2:]))}]({printer._print(self.args[1])})"

    def _latex(self, printer: Any) -> str:
        indices, inner = ",".join(map(printer._print, self.args[2:])), printer._print(self.args[1])
        if self.args[0].name == "sum":
            return rf"\sum_{{{indices}}} " + (rf"\left({inner}\right)" if self.args[1].is_Add else inner)
        return rf"\operatorname{{{self.args[0].name}}}_{{{indices}}}\left({inner}\right)"


class Choice(sp.Expr):  # type: ignore[misc]
    """One value where a condition holds, another elsewhere, args (condition, value, other)."""

    is_commutative = True

    def __new__(cls, condition: Any, value: Any = sp.S.One, other: Any = sp.S.Zero) -> Any:
        """A choice, or what is chosen once the condition is known; a number, 1 or 0, of a condition alone."""
        if condition in (sp.true, sp.false):
            return value if condition == sp.true else other
        return super().__new__(cls, condition, value, other)

    def doit(self, **hints: Any) -> Any:
        """The same as sympy writes it."""
        condition, value, other = (arg.doit(**hints) for arg in self.args)
        return sp.Piecewise((value, condition), (other, True))

    def _eval_derivative(self, symbol: Any) -> Any:
        return Choice(self.args[0], *(arg.diff(symbol) for arg in self.args[1:]))

    def _sympystr(self, printer: Any) -> str:
        condition, *values = map(printer._print, self.args)
        return f"1[{condition}]" if values == ["1", "0"] else f"where({condition}, {', '.join(values)})"

    def _latex(self, printer: Any) -> str:
        condition, value, other = map(printer._print, self.args)
        if (value, other) == ("1", "0"):
            return rf"\mathbf{{1}}\left[{condition}\right]"
        return rf"\begin{{cases}} {value} & {condition} \\ {other} & \text{{otherwise}} \end{{cases}}"


class ScoreAverage(Node):
    """The average of a formula over p-ring, and over the vectors that stand in it by name."""

    def _sympystr(self, printer: Any) -> str:
        return f"E_p[{printer._print(self.args[0])}]"

    def _latex(self, printer: Any) -> str:
        return rf"\mathbb{{E}}_{{\mathring{{p}}}}\left[{printer._print(self.args[0])}\right]"


# ---- what runs over indices -----------------------------------------------------------------------------------------


class Bound(sp.Dummy):  # type: ignore[misc]
    """An index that a sum or a softmax runs over."""

    def _sympystr(self, printer: Any) -> str:
        return str(self.name)

    def _latex(self, printer: Any) -> str:
        return str(printer._print(sp.Symbol(self.name)))


def _bound(name: str) -> Any:
    """A bound index, by the name that it has in the program; second copies end in '_'."""
    base = name.split("~")[0].rstrip("*_'")
    return Bound(f"{base}{'_' * name.endswith('_')}", integer=True)


def readable(formula: Any, positions: Mapping[str, str]) -> Any:
    """A formula with positions named, and bound indices named so that all are different."""
    names = {index_symbol(old): index_symbol(new) for old, new in positions.items()}
    taken = set(positions.values())
    inner = {limit[0] for node in formula.atoms(Softmax) for limit in node.args[1]}  # most of which are not shown
    for index in sorted(formula.atoms(Bound), key=lambda index: (index in inner, index.name, index.dummy_index)):
        base, tail, new, number = index.name.rstrip("_"), "_" * index.name.endswith("_"), index.name, 2
        while new in taken:
            new, number = f"{base}{number}{tail}", number + 1
        taken.add(new)
        names[index] = index if new == index.name else Bound(new, integer=True)
    return formula.xreplace(names)


def same(first: Any, second: Any) -> bool:
    """Whether formulas are equal but for the names of bound indices."""
    return bool(first == second or _numbered(first) == _numbered(second))


def _numbered(formula: Any) -> Any:
    found = dict.fromkeys(node for node in sp.preorder_traversal(formula) if isinstance(node, Bound))
    return formula.xreplace({index: index_symbol(f"${number}") for number, index in enumerate(found)})


class Binder(Node):
    """What runs over indices, args (argument, limits (index, start, stop), ...)."""

    @property
    def free_symbols(self) -> set[Any]:
        """All but the indices it runs over."""
        return super().free_symbols - {limit[0] for limit in self.args[1]}  # type: ignore[no-any-return]

    def terms(self) -> Iterator[Any]:
        """The argument at all values of the indices."""
        indices, *spans = zip(*self.args[1], strict=True)
        ranges = [range(int(start), int(stop)) for start, stop in zip(*spans, strict=True)]
        if math.prod(map(len, ranges)) > MOST:
            raise MemoryLimitError(f"{math.prod(map(len, ranges))} terms are not written out")
        for values in product(*ranges):
            yield self.args[0].xreplace(dict(zip(indices, map(sp.Integer, values), strict=True)))

    def written_out(self) -> Any:
        """The same term by term."""
        raise NotImplementedError

    def value(self) -> Estimate:
        """The number of the same term by term."""
        return _estimate(self.written_out())

    def doit(self, **hints: Any) -> Any:
        """The same term by term, each of them done."""
        return self.written_out().doit(**hints)


class IndexSum(Binder):
    """A sum over an index, args (argument, limits)."""

    def written_out(self) -> Any:
        """All terms."""
        return sp.Add(*self.terms())

    def _sympystr(self, printer: Any) -> str:
        return str(printer._print(Reduced(sp.Symbol("sum"), self.args[0], self.args[1][0][0])))

    _latex = _sympystr


@lru_cache(maxsize=1 << 12)  # so that equal sums are the same
def summed(value: Any, name: str, span: Range) -> Any:
    """Sum over the values of an index; a value without it counts that often."""
    start, stop = span
    if not value.has(index_symbol(name)):
        return value * (stop - start)
    index = _bound(name)
    return IndexSum(value.xreplace({index_symbol(name): index}), sp.Tuple((index, start, stop)))


class Softmax(Binder):
    """softmax over indices, args (argument, limits, where it is read)."""

    @property
    def here(self) -> Any:
        """The argument where it is read."""
        return self.args[0].xreplace({limit[0]: place for limit, place in zip(*self.args[1:], strict=True)})

    def written_out(self) -> Any:
        """exp over the sum of all exp; masked entries are exactly zero."""
        return sp.exp(self.here) / sp.Add(*map(sp.exp, self.terms()))

    def _sympystr(self, printer: Any) -> str:
        bare = all(place.is_Symbol for place in self.args[2])
        indices = self.args[2] if bare else [limit[0] for limit in self.args[1]]
        shown = printer._print(Reduced(sp.Symbol("softmax"), self.here if bare else self.args[0], *indices))
        return shown if bare else f"{shown}[{', '.join(map(printer._print, self.args[2]))}]"

    _latex = _sympystr


@lru_cache(maxsize=1 << 12)
def softmax(argument: Any, names: tuple[str, ...], spans: tuple[Range, ...], at: tuple[Any, ...]) -> Any:
    """A softmax over indices."""
    own = [_bound(name) for name in names]
    inner = argument.xreplace(dict(zip(map(index_symbol, names), own, strict=True)))
    limits = [(index, *span) for index, span in zip(own, spans, strict=True)]
    return Softmax(inner, sp.Tuple(*limits), sp.Tuple(*at))


# ---- numbers --------------------------------------------------------------------------------------------------------


def estimate(expr: Any) -> Estimate:
    """A formula without free symbols as a number.

    Shapes    a scalar Estimate
    Accuracy  the errors of unevaluated expectations are carried through to first order
    Raises    ProgramError naming what has no value, NotCompiledError for expectations of functions of several variables
    """
    expr = sp.sympify(expr)
    if expr.has(ScoreAverage):
        raise ProgramError("averages over scores have no number as formulas; P.limit() gives their numbers")
    if expr.free_symbols or expr.has(Score):
        names = sorted({str(x) for x in expr.free_symbols} | {str(x) for x in expr.atoms(Score)})
        raise ProgramError(f"no number yet: {', '.join(names)} must be given values first")
    return _estimate(expr)


@lru_cache(maxsize=1 << 15)
def _estimate(expr: Any) -> Estimate:
    if isinstance(expr, Node):
        return expr.value()
    if expr.is_infinite:  # of a masked entry
        return Estimate.exact(float(expr))
    inner = list(dict.fromkeys(outermost(expr)))
    names = [sp.Dummy(real=True) for _ in inner]
    skeleton = expr.xreplace(dict(zip(inner, names, strict=True)))

    def call(*values: Any) -> Estimate:
        placed = skeleton.xreplace({n: sp.Float(float(v), 20) for n, v in zip(names, values, strict=True)})
        number = placed.evalf(20)
        if isinstance(number, sp.Float) and not number.is_comparable:  # a hundred digits do not tell it from 0
            return Estimate(np.asarray(float(number)), np.asarray(abs(float(number))))
        if not number.is_number or not number.is_comparable:
            raise ValueError(f"{skeleton} is not a real number")
        return Estimate(np.asarray(float(number)), np.asarray(2 * EPS * abs(float(number))))

    return carried(call, [_estimate(node) for node in inner])


def outermost(expr: Any) -> Iterator[Any]:
    """The nodes that stand in no other node."""
    if isinstance(expr, Node):
        yield expr
    else:
        for arg in expr.args:
            yield from outermost(arg)


def carried(call: Callable[..., Estimate], args: list[Estimate]) -> Estimate:
    """A function of estimates, the effect of their errors added to first order."""
    values = [arg.value for arg in args]
    result = call(*values)
    error = result.error
    for k, arg in enumerate(args):
        if arg.error > LEVEL * np.abs(arg.value):
            error = error + np.abs(call(*values[:k], values[k] + arg.error, *values[k + 1 :]).value - result.value)
    return Estimate(result.value, np.asarray(error))

"""The nodes of formulas that sympy leaves as they are: scores, sums, softmaxes, choices, arrays, averages over scores.

An index that a node runs over is bound there and means nothing outside.  Conditions on bound indices must not leave
their node, which sympy's Sum (it folds) and Piecewise (it is folded) would let happen: hence `IndexSum` is built
without sympy's rules, and conditions under a softmax are `Choice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, ClassVar

import numpy as np
import sympy as sp

from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.errors import MemoryLimitError
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range, Table

__all__ = [
    "Choice", "Conditional", "Data", "Entry", "IndexSum", "Lookup", "Node", "Opaque", "RealNode",
    "Score", "ScoreAverage", "Softmax", "affine", "index_symbol", "summed", "written_out",
]  # fmt: skip

MOST = 100_000  # terms that are written out


def index_symbol(name: str) -> Any:
    """The symbol of an index or of a position of a family."""
    return sp.Symbol(name, integer=True)


def affine(form: Affine) -> Any:
    """An affine form in index symbols."""
    return sum((coefficient * index_symbol(name) for name, coefficient in form.terms), sp.Integer(form.offset))


def written_out(expr: Any, limits: Any) -> Iterator[Any]:
    """An expression at all values of bound indices."""
    ranges = [range(int(start), int(stop) + 1) for _, start, stop in limits]
    if math.prod(map(len, ranges)) > MOST:
        raise MemoryLimitError(f"{math.prod(map(len, ranges))} terms are not written out")
    for values in product(*ranges):
        yield expr.xreplace({limit[0]: sp.Integer(value) for limit, value in zip(limits, values, strict=True)})


class Node(sp.Expr):  # type: ignore[misc]
    """What sympy leaves as it is, and what has a number of its own once no symbol is left in it."""

    __slots__ = ()
    is_commutative = True
    evaluation: ClassVar[Callable[[Any], Estimate]]  # handed in by `numbers`, which knows all nodes

    def estimate(self) -> Estimate:
        """Value and error, when no free symbol is left."""
        return Node.evaluation(self)

    def _eval_evalf(self, prec: int) -> Any:
        return None if self.free_symbols or self.has(Score) else sp.Float(float(self.estimate().value), 15)


class RealNode(sp.Expr):  # type: ignore[misc]
    """What stands for a finite real number."""

    __slots__ = ()
    is_commutative = True
    is_extended_real = is_real = is_finite = True


class Opaque(sp.Atom):  # type: ignore[misc]
    """An argument of formulas that is itself none, known by a label."""

    __slots__ = ("given", "label")
    given: tuple[Any, ...]
    label: str

    def __new__(cls, *given: Any) -> Any:
        """From what it holds."""
        self = super().__new__(cls)
        self.given, self.label = given, cls.labelled(*given)
        return self

    @staticmethod
    def labelled(*given: Any) -> str:
        """The label."""
        raise NotImplementedError

    def _hashable_content(self) -> tuple[Any, ...]:
        return (self.label,)  # sympy compares and sorts by it

    def sort_key(self, order: Any = None) -> Any:
        """By its label."""
        return self.class_key(), (1, (self.label,)), sp.S.One.sort_key(), sp.S.One

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.given

    def _sympystr(self, printer: Any) -> str:
        return self.label


class Score(RealNode):
    """A score in the limit, p-ring, args (name, *indices)."""

    @property
    def free_symbols(self) -> set[Any]:
        """Those of its indices; its name is none."""
        return set().union(*(index.free_symbols for index in self.args[1:]))

    def _sympystr(self, printer: Any) -> str:
        name, *indices = map(printer._print, self.args)
        return f"{name}[{','.join(indices)}]" if indices else name

    def _latex(self, printer: Any) -> str:
        name, *indices = map(printer._print, self.args)
        return rf"\mathring{{{name}}}" + (f"_{{{','.join(indices)}}}" if indices else "")


class Entry(RealNode):
    """A formula of an earlier line by its name: args (f, g, number of the case, *indices)."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Families and case."""
        return str(self.args[0]), str(self.args[1]), int(self.args[2])

    def _sympystr(self, printer: Any) -> str:
        first, second, number = self.key
        name = f"K_{first}" if first == second else f"K_{first}_{second}"
        name += "'" * number
        return f"{name}[{', '.join(map(printer._print, self.args[3:]))}]" if self.args[3:] else name

    def _latex(self, printer: Any) -> str:
        families = [printer._print(name) for name in dict.fromkeys(self.args[:2])]
        number = f"^{{({self.args[2]})}}" if self.args[2] else ""
        text = rf"\kappa{number}_{{{','.join(families)}}}"
        return text + (rf"\left({','.join(map(printer._print, self.args[3:]))}\right)" if self.args[3:] else "")


class Choice(sp.Expr):  # type: ignore[misc]
    """One value where a condition holds, another elsewhere, args (condition, value, other)."""

    is_commutative = True

    def __new__(cls, condition: Any, value: Any, other: Any) -> Any:
        """A choice, or what is chosen once the condition is known."""
        given = tuple(map(sp.sympify, (condition, value, other)))
        if given[0] in (sp.true, sp.false):
            return given[1] if given[0] == sp.true else given[2]
        return super().__new__(cls, *given)

    def doit(self, **hints: Any) -> Any:
        """The same as sympy writes it."""
        condition, value, other = (arg.doit(**hints) for arg in self.args)
        return sp.Piecewise((value, condition), (other, True))

    def _eval_derivative(self, symbol: Any) -> Any:
        condition, value, other = self.args
        return Choice(condition, value.diff(symbol), other.diff(symbol))

    def _sympystr(self, printer: Any) -> str:
        return f"where({', '.join(map(printer._print, self.args))})"

    def _latex(self, printer: Any) -> str:
        condition, value, other = map(printer._print, self.args)
        return rf"\begin{{cases}} {value} & {condition} \\ {other} & \text{{otherwise}} \end{{cases}}"


class Binder(Node):
    """What binds indices in its first argument: replacing symbols neither touches them nor lets them catch others."""

    @property
    def bound_symbols(self) -> list[Any]:
        """The indices it runs over."""
        raise NotImplementedError

    def _xreplace(self, rule: Mapping[Any, Any]) -> tuple[Any, bool]:
        """Sympy's replacement by a rule; an index that would catch a symbol of what comes in gets another name."""
        if self in rule:
            return rule[self], True
        bound = self.bound_symbols
        inside = {old: new for old, new in rule.items() if old not in bound}
        coming: set[Any] = set()
        for old, new in inside.items():
            if self.args[0].has(old):
                coming |= new.free_symbols - old.free_symbols
        names: dict[Any, Any] = {}
        for index in coming.intersection(bound):
            name = f"{index}*"
            while index_symbol(name) in coming.union(self.args[0].free_symbols, bound, names.values()):
                name += "*"
            names[index] = index_symbol(name)
        renamed = self.args[0].xreplace(names) if names else self.args[0]
        argument, changed = renamed._xreplace(inside)
        rest, moved = self._rest(rule, names)
        return (self.func(argument, *rest), True) if changed or moved or names else (self, False)

    def _rest(self, rule: Mapping[Any, Any], names: Mapping[Any, Any]) -> tuple[list[Any], bool]:
        """The other arguments with bound indices renamed; the rule holds outside."""
        raise NotImplementedError

    def _eval_subs(self, old: Any, new: Any) -> Any:
        return self._xreplace({old: new})[0] if old.is_Symbol else None


def _renamed(limits: Any, names: Mapping[Any, Any]) -> list[Any]:
    """Limits (index, start, stop) with other names of indices."""
    return [sp.Tuple(names.get(index, index), *span) for index, *span in limits]


class IndexSum(Binder, sp.Sum):  # type: ignore[misc]
    """A sum over an index that stays a sum; `doit` writes its terms out, `evalf` adds numbers."""

    @property
    def bound_symbols(self) -> list[Any]:
        """The indices it runs over."""
        return [limit[0] for limit in self.limits]

    def __new__(cls, function: Any, *limits: Any) -> Any:
        """As it is given."""
        return sp.Expr.__new__(cls, sp.sympify(function), *(sp.Tuple(*limit) for limit in limits))

    def doit(self, **hints: Any) -> Any:
        """Term by term."""
        return sp.Add(*(term.doit(**hints) for term in written_out(self.function, self.limits)))

    def _rest(self, rule: Mapping[Any, Any], names: Mapping[Any, Any]) -> tuple[list[Any], bool]:
        ends = [sp.Tuple(index, *(end.xreplace(rule) for end in span)) for index, *span in self.limits]
        return _renamed(ends, names), ends != list(self.limits)

    def _sympystr(self, printer: Any) -> str:
        limits = ", ".join(f"{printer._print(i)}={a}..{b}" for i, a, b in self.limits)
        return f"sum[{limits}]({printer._print(self.function)})"


class Softmax(RealNode, Binder):
    """softmax over indices, args (argument, limits (index, start, stop) it runs over, where it is read)."""

    def __new__(cls, argument: Any, limits: Any, at: Any) -> Any:
        """Conditions in the argument stay there."""
        inner = sp.sympify(argument).replace(sp.Piecewise, _chosen)
        return super().__new__(cls, inner, sp.Tuple(*(sp.Tuple(*limit) for limit in limits)), sp.Tuple(*at))

    @classmethod
    def over(cls, argument: Any, ranges: Mapping[str, Range], at: Any) -> Any:
        """Over names of indices, which are given names of their own."""
        own = {index_symbol(name): index_symbol(f"{name.rstrip('*')}*") for name in ranges}
        limits = [(own[index_symbol(name)], start, stop - 1) for name, (start, stop) in ranges.items()]
        return cls(argument.xreplace(own), limits, at)

    @property
    def bound_symbols(self) -> list[Any]:
        """The indices it runs over."""
        return [limit[0] for limit in self.args[1]]

    @property
    def free_symbols(self) -> set[Any]:
        """Those of the argument but for the indices it runs over, and those of where it is read."""
        inside: set[Any] = self.args[0].free_symbols - set(self.bound_symbols)
        at: set[Any] = self.args[2].free_symbols
        return inside | at

    @property
    def here(self) -> Any:
        """The argument where it is read."""
        return self.args[0].xreplace(dict(zip(self.bound_symbols, self.args[2], strict=True)))

    def doit(self, **hints: Any) -> Any:
        """exp over the sum of all exp; masked entries are exactly zero."""
        terms = (sp.exp(term.doit(**hints)) for term in written_out(self.args[0], self.args[1]))
        return sp.exp(self.here.doit(**hints)) / sp.Add(*terms)

    def _rest(self, rule: Mapping[Any, Any], names: Mapping[Any, Any]) -> tuple[list[Any], bool]:
        at, moved = self.args[2]._xreplace(rule)
        return [_renamed(self.args[1], names), at], moved

    def _eval_derivative(self, symbol: Any) -> Any:
        if not self.has_free(symbol):
            return sp.S.Zero
        argument, limits, _ = self.args
        again = {i: index_symbol(f"{i}*") for i in self.bound_symbols}  # the sum has indices of its own
        slope = Softmax(argument, limits, again.values()) * argument.diff(symbol).xreplace(again)
        return self * (self.here.diff(symbol) - IndexSum(slope, *((again[i], *span) for i, *span in limits)))

    def _texts(self, printer: Any) -> tuple[str, str, str]:
        argument, _, at = self.args
        bound = self.bound_symbols
        bare = at if all(place.is_Symbol for place in at) else [index_symbol(str(i).rstrip("*")) for i in bound]
        shown = argument.xreplace(dict(zip(bound, bare, strict=True)))
        return ",".join(map(printer._print, bare)), printer._print(shown), ",".join(map(printer._print, at))

    def _sympystr(self, printer: Any) -> str:
        names, shown, at = self._texts(printer)
        return f"softmax[{names}]({shown})" + (f"[{at}]" if at != names else "")

    def _latex(self, printer: Any) -> str:
        names, shown, at = self._texts(printer)
        return rf"\operatorname{{softmax}}_{{{names}}}\left({shown}\right)" + (f"_{{{at}}}" if at != names else "")


def _chosen(*pairs: Any) -> Any:
    """The arguments of a Piecewise as choices."""
    *first, (value, _) = pairs
    for earlier, condition in reversed(first):
        value = Choice(condition, earlier, value)
    return value


def summed(value: Any, symbol: Any, span: tuple[Any, Any]) -> Any:
    """Sum over start <= symbol < stop; a value without the symbol counts that often."""
    start, stop = span
    return value * (stop - start) if not value.has(symbol) else IndexSum(value, (symbol, start, stop - 1))


# ---- numbers from arrays ------------------------------------------------------------------------------------------


class Data(Opaque):
    """An array of numbers with a name, the first values of its indices, and what lies outside."""

    @staticmethod
    def labelled(name: str, table: Table, starts: tuple[int, ...], rules: tuple[str, ...]) -> str:
        """Its name."""
        return name

    def _hashable_content(self) -> tuple[Any, ...]:
        name, table, *rest = self.given
        return name, table.shape, table.data, *rest

    def _latex(self, printer: Any) -> str:
        return str(printer._print(sp.Symbol(self.label)))

    def read(self, *indices: Any) -> Any:
        """The numbers at arrays of index values."""
        _, table, starts, rules = self.given
        mask, places = np.True_, []
        for index, start, size, rule in zip(indices, starts, table.shape, rules or ("",) * len(starts), strict=True):
            place = np.asarray(index, dtype=np.int64) - start
            if rule == "zero":
                mask = mask & (place >= 0) & (place < size)
            places.append(place % size if rule == "wrap" else np.clip(place, 0, size - 1))
        return np.where(mask, table.array[tuple(places)], 0.0)


class Lookup(RealNode):
    """An entry of an array of numbers, args (data, *indices); the number itself once the indices are numbers."""

    def __new__(cls, data: Data, *indices: Any) -> Any:
        """A lookup, or the number."""
        given = list(map(sp.sympify, indices))
        if not all(index.is_Integer for index in given):
            return super().__new__(cls, data, *given)
        value = float(data.read(*map(int, given)))
        return sp.Integer(int(value)) if value == int(value) else sp.Float(value)

    def _sympystr(self, printer: Any) -> str:
        return f"{self.args[0].label}[{', '.join(map(printer._print, self.args[1:]))}]"

    def _latex(self, printer: Any) -> str:
        return rf"{printer._print(self.args[0])}\left[{', '.join(map(printer._print, self.args[1:]))}\right]"


class Conditional(RealNode):
    """A covariance or mean given p-ring that is not written out, args (variables as (name, *indices), ...)."""

    def _words(self, printer: Any) -> str:
        found = []
        for name, *indices in self.args:
            place = ",".join(map(printer._print, indices))
            found.append(f"{printer._print(name)}" + (f"_{{{place}}}" if place else ""))
        return ", ".join(found)

    def _sympystr(self, printer: Any) -> str:
        words = self._words(printer).replace("_{", "[").replace("}", "]")
        return f"{'Cov' if len(self.args) == 2 else 'E'}({words} | p)"

    def _latex(self, printer: Any) -> str:
        name = r"\operatorname{Cov}" if len(self.args) == 2 else r"\mathbb{E}"
        return rf"{name}\left({self._words(printer)} \,\middle|\, \mathring{{p}}\right)"


class ScoreAverage(RealNode, Node):
    """Cov(f, g) or E f over p-ring and the vectors, unevaluated: args (conditional covariance, conditional means)."""

    def _parts(self, printer: Any) -> tuple[str, list[str]]:
        return printer._print(self.args[0]), [printer._print(mean) for mean in self.args[1] if mean != 0]

    def _sympystr(self, printer: Any) -> str:
        covariance, means = self._parts(printer)
        if len(means) < len(self.args[1]):
            return f"E_p[{covariance}]"
        return f"E_p[{means[0]}]" if len(means) == 1 else f"E_p[{covariance}] + Cov_p({', '.join(means)})"

    def _latex(self, printer: Any) -> str:
        covariance, means = self._parts(printer)
        over = r"\mathbb{E}_{\mathring{p}}"
        text = rf"{over}\left[{covariance}\right]"
        if len(means) < len(self.args[1]):
            return text
        both = rf"{text} + \operatorname{{Cov}}_{{\mathring{{p}}}}\left({', '.join(means)}\right)"
        return rf"{over}\left[{means[0]}\right]" if len(means) == 1 else rf"\left({both}\right)"

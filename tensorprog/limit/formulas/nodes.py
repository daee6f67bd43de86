"""Sums, softmaxes and choices over indices as nodes that sympy leaves as they are.

An index that a node runs over is bound there and means nothing outside.  Conditions on bound indices must not leave
their node, which sympy's Sum (it folds) and Piecewise (it is folded) would let happen: hence `IndexSum` is built
without sympy's rules, and conditions under a softmax are `Choice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, ClassVar

import sympy as sp

from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.errors import MemoryLimitError
from tensorprog.language.ir import Range

__all__ = ["Choice", "IndexSum", "Node", "Score", "Softmax", "index_symbol", "summed"]

MOST = 100_000  # terms that are written out


def index_symbol(name: str) -> Any:
    """The symbol of an index or of a position of a family."""
    return sp.Symbol(name, integer=True)


def written_out(expr: Any, limits: Any) -> Iterator[Any]:
    """An expression at all values of bound indices."""
    ranges = [range(int(start), int(stop) + 1) for _, start, stop in limits]
    if math.prod(map(len, ranges)) > MOST:
        raise MemoryLimitError(f"{math.prod(map(len, ranges))} terms are not written out; sums evaluate as they are")
    for values in product(*ranges):
        yield expr.xreplace({limit[0]: sp.Integer(value) for limit, value in zip(limits, values, strict=True)})


class Node(sp.Expr):  # type: ignore[misc]
    """What sympy leaves as it is, and what has a number of its own once no symbol is left in it."""

    __slots__ = ()
    evaluation: ClassVar[Callable[[Any], Estimate]]  # handed in by `numbers`, which knows all nodes

    def estimate(self) -> Estimate:
        """Value and error, when no free symbol is left."""
        return Node.evaluation(self)

    def _eval_evalf(self, prec: int) -> Any:
        return None if self.free_symbols or self.has(Score) else sp.Float(float(self.estimate().value), 15)


class Score(sp.Expr):  # type: ignore[misc]
    """A score in the limit, p-ring, args (name, *indices)."""

    is_commutative = True
    is_extended_real = is_real = is_finite = True

    @property
    def free_symbols(self) -> set[Any]:
        """Those of its indices; its name is none."""
        return set().union(*(index.free_symbols for index in self.args[1:]))

    def _sympystr(self, printer: Any) -> str:
        name, *indices = map(printer._print, self.args)
        return f"{name}[{','.join(indices)}]" if indices else name

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        name, *indices = map(printer._print, self.args)
        text = rf"\mathring{{{name}}}" + (f"_{{{','.join(indices)}}}" if indices else "")
        return rf"{{{text}}}^{{{exp}}}" if exp else text


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

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        condition, value, other = map(printer._print, self.args)
        text = rf"\begin{{cases}} {value} & {condition} \\ {other} & \text{{otherwise}} \end{{cases}}"
        return rf"{{{text}}}^{{{exp}}}" if exp else text


class IndexSum(Node, sp.Sum):  # type: ignore[misc]
    """A sum over an index that stays a sum; `doit` writes its terms out, `evalf` adds numbers."""

    is_commutative = True

    def __new__(cls, function: Any, *limits: Any) -> Any:
        """As it is given."""
        return sp.Expr.__new__(cls, sp.sympify(function), *(sp.Tuple(*limit) for limit in limits))

    def doit(self, **hints: Any) -> Any:
        """Term by term."""
        return sp.Add(*(term.doit(**hints) for term in written_out(self.function, self.limits)))

    def _sympystr(self, printer: Any) -> str:
        limits = ", ".join(f"{printer._print(i)}={a}..{b}" for i, a, b in self.limits)
        return f"sum[{limits}]({printer._print(self.function)})"


class Softmax(Node):
    """softmax over indices, args (argument, limits (index, start, stop) it runs over, where it is read)."""

    is_commutative = True
    is_extended_real = is_real = is_finite = True

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

    def _eval_subs(self, old: Any, new: Any) -> Any:
        if old not in self.bound_symbols:
            return None
        return Softmax(self.args[0], self.args[1], self.args[2]._subs(old, new))

    def _eval_derivative(self, symbol: Any) -> Any:
        if not self.has_free(symbol):
            return sp.S.Zero
        argument, limits, _ = self.args
        slope = Softmax(argument, limits, self.bound_symbols) * argument.diff(symbol)
        return self * (self.here.diff(symbol) - IndexSum(slope, *limits))

    def _texts(self, printer: Any) -> tuple[str, str, str]:
        argument, _, at = self.args
        bound = self.bound_symbols
        bare = at if all(place.is_Symbol for place in at) else [index_symbol(str(i).rstrip("*")) for i in bound]
        shown = argument.xreplace(dict(zip(bound, bare, strict=True)))
        return ",".join(map(printer._print, bare)), printer._print(shown), ",".join(map(printer._print, at))

    def _sympystr(self, printer: Any) -> str:
        names, shown, at = self._texts(printer)
        return f"softmax[{names}]({shown})" + (f"[{at}]" if at != names else "")

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        names, shown, at = self._texts(printer)
        text = rf"\operatorname{{softmax}}_{{{names}}}\left({shown}\right)" + (f"_{{{at}}}" if at != names else "")
        return rf"{{{text}}}^{{{exp}}}" if exp else text


def _chosen(*pairs: Any) -> Any:
    """The arguments of a Piecewise as choices."""
    *first, (value, _) = pairs
    for earlier, condition in reversed(first):
        value = Choice(condition, earlier, value)
    return value


def summed(value: Any, symbol: Any, span: Range) -> Any:
    """Sum over start <= symbol < stop; a value without the symbol counts that often."""
    start, stop = span
    return value * (stop - start) if not value.has(symbol) else IndexSum(value, (symbol, start, stop - 1))

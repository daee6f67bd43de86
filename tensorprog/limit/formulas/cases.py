"""Second moments of two families as tables: which equations between indices hold, and the formula where they do.

Numbers are kept as sums of 1[equations] * value (`limit.moments`); formulas read better as cases, and nothing cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range
from tensorprog.language.substitute import compose
from tensorprog.limit.formulas.convert import affine
from tensorprog.limit.formulas.indexed import index_symbol
from tensorprog.limit.moment.moments import Equations, canonical, possible, rewrite, solve

__all__ = ["Cases", "place"]

NOTHING: Equations = frozenset()
Ranges = Mapping[str, Range]


def place(value: Any, names: Mapping[str, Affine]) -> Any:
    """A formula at affine forms of other indices."""
    return value.xreplace({index_symbol(name): affine(form) for name, form in names.items()})


@dataclass(frozen=True, eq=False)
class Cases:
    """A formula for each set of equations: where several sets hold, that of their union, which is listed too."""

    values: Mapping[Equations, Any]
    ranges: Ranges

    @classmethod
    def constant(cls, value: Any, ranges: Ranges) -> Cases:
        """One formula everywhere."""
        return cls({NOTHING: sp.sympify(value)}, ranges)

    @classmethod
    def where(cls, equations: Equations, value: Any, ranges: Ranges) -> Cases:
        """1[equations] * value."""
        return cls({NOTHING: sp.S.Zero, equations: sp.sympify(value)}, ranges)

    def at(self, equations: Equations) -> Any:
        """The formula where exactly these equations, and what follows from them, hold."""
        return self.values[frozenset().union(*(key for key in self.values if key <= equations))]

    def combined(self, other: Cases, operation: Callable[[Any, Any], Any]) -> Cases:
        """Case by case."""
        keys = {a | b for a in self.values for b in other.values}
        possible = [key for key in keys if self.solutions(key) is not None]
        return Cases({key: operation(self.at(key), other.at(key)) for key in possible}, self.ranges).tidied()

    def __add__(self, other: Cases) -> Cases:
        return self.combined(other, lambda a, b: a + b)

    def __mul__(self, other: Cases) -> Cases:
        return self.combined(other, lambda a, b: a * b)

    def rename(self, names: Mapping[str, Affine], ranges: Ranges) -> Cases:
        """The same at affine forms of new indices."""
        found: dict[Equations, tuple[int, Any]] = {}
        for key, value in self.values.items():
            equations = rewrite(key, names, ranges)
            if equations is not None and found.get(equations, (-1, None))[0] < len(key):
                found[equations] = len(key), place(value, names)
        # two sets that have become one another's parts may have a union that was not listed
        return Cases({key: value for key, (_, value) in found.items()}, ranges).tidied()

    def solutions(self, key: Equations) -> dict[str, Affine] | None:
        """What the equations say about indices; None where they contradict each other."""
        solution = solve(key, ())
        for equation in key:
            form = canonical(compose(equation, solution))
            if form is not None and (not form.terms or not possible(form, self.ranges)):
                return None
        return solution

    def tidied(self) -> Cases:
        """Formulas read where the equations put them; impossible cases and those that say nothing new are dropped."""
        values: dict[Equations, Any] = {}
        for key in sorted(self.values, key=lambda e: (len(e), sorted(map(str, e)))):
            solution = self.solutions(key)
            if solution is not None:
                values[key] = place(self.values[key], solution)
        for key in sorted(values, key=len, reverse=True):
            below = [other for other in values if other < key]
            if not key or any(a | b == key for a in below for b in below):
                continue
            parent = frozenset().union(*below)
            if values[key] == place(values[parent], self.solutions(key) or {}):
                del values[key]
        return Cases(values, self.ranges)

    def differences(self) -> list[tuple[Equations, Any]]:
        """The same as a sum of 1[equations] * value."""
        found: list[tuple[Equations, Any]] = []
        for key in sorted(self.values, key=len):
            inside = self.solutions(key) or {}
            rest = sum((place(value, inside) for smaller, value in found if smaller < key), sp.S.Zero)
            value = sp.expand_mul(self.values[key] - rest)
            if value != 0:
                found.append((key, value))
        return found

    @classmethod
    def total(cls, terms: Iterable[tuple[Equations, Any]], ranges: Ranges) -> Cases:
        """From a sum of 1[equations] * value."""
        given = list(terms)
        keys = {NOTHING}
        for equations, _ in given:
            keys |= {key | equations for key in keys}
        return cls(
            {key: sum((v for equations, v in given if equations <= key), sp.S.Zero) for key in keys}, ranges
        ).tidied()

    def mapped(self, change: Callable[[Any], Any]) -> Cases:
        """Every formula changed."""
        return Cases({key: change(value) for key, value in self.values.items()}, self.ranges)

    def entry(self, positions: Mapping[str, int]) -> Any:
        """The formula of one member of each family."""
        fixed = {name: Affine((), value) for name, value in positions.items()}
        holds = frozenset(e for key in self.values for e in key if compose(e, fixed).offset == 0)
        return place(self.at(holds), fixed)

    def expression(self) -> Any:
        """All cases as one formula in index symbols."""
        order = sorted(self.values, key=len, reverse=True)
        if len(order) == 1:
            return self.values[order[0]]
        return sp.Piecewise(
            *((self.values[key], sp.And(*(sp.Eq(affine(e), 0) for e in sorted(key, key=str)))) for key in order)
        )

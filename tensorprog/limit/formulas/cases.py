"""`IndexedFormulas`: formulas kept case by case, where nothing cancels, as people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy as sp

from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range
from tensorprog.limit.formulas.convert import affine
from tensorprog.limit.formulas.nodes import index_symbol
from tensorprog.limit.moment.indexed import NOTHING, Equations, Indexed, Term, patterns, solved

__all__ = ["IndexedFormulas", "place"]

Ranges = Mapping[str, Range]


def place(value: Any, names: Mapping[str, Affine]) -> Any:
    """A formula at affine forms of other indices."""
    return value.xreplace({index_symbol(name): affine(form) for name, form in names.items()})


class IndexedFormulas(Indexed[Any]):
    """A formula for each set of equations: where several sets hold, that of their union, which is listed too.

    Formulas are read where the equations put them; cases that cannot hold or say nothing new are left out.
    """

    @property
    def table(self) -> dict[Equations, Any]:
        """Every case with its formula."""
        return {term.equations: term.value for term in self.terms}

    @classmethod
    def constant(cls, value: Any, ranges: Ranges) -> IndexedFormulas:
        """One formula everywhere."""
        return cls((Term(NOTHING, sp.sympify(value)),), ranges)

    @classmethod
    def of_cases(cls, cases: Mapping[Equations, Any], ranges: Ranges, prefer: Sequence[str] = ()) -> IndexedFormulas:
        """From the formula of every case."""
        values: dict[Equations, Any] = {}
        for key in sorted(cases, key=lambda e: (len(e), sorted(map(str, e)))):
            solution = solved(key, ranges)
            if solution is not None:
                values[key] = place(cases[key], solution)
        for key in sorted(values, key=len, reverse=True):
            below = [other for other in values if other < key]
            if not key or any(a | b == key for a in below for b in below):
                continue
            parent = NOTHING.union(*below)
            if values[key] == place(values[parent], solved(key, ranges) or {}):
                del values[key]
        return cls(tuple(Term(equations, value) for equations, value in values.items()), ranges)

    @classmethod
    def of_summands(cls, summands: Iterable[tuple[Equations, Any]], ranges: Ranges) -> IndexedFormulas:
        """From formulas that count wherever their equations hold."""
        given = list(summands)
        keys = [key for key, _ in patterns((equations for equations, _ in given), ranges)]
        return cls.of_cases({key: sum((v for e, v in given if e <= key), sp.S.Zero) for key in keys}, ranges)

    def summands(self) -> list[tuple[Equations, Any]]:
        """What each case adds to the smaller ones."""
        found: list[tuple[Equations, Any]] = []
        for term in sorted(self.terms, key=lambda term: len(term.equations)):
            at = solved(term.equations, self.ranges) or {}
            rest = sum((place(value, at) for smaller, value in found if smaller < term.equations), sp.S.Zero)
            value = sp.expand_mul(term.value - rest)
            if value != 0:
                found.append((term.equations, value))
        return found

    def case(self, equations: Equations, solution: Mapping[str, Affine] | None = None) -> Any:
        """The formula of the most special case that holds there."""
        cases = self.table
        value = cases[NOTHING.union(*(key for key in cases if key <= equations))]
        return value if solution is None else place(value, solution)

    def combined(self, other: IndexedFormulas, operation: Callable[[Any, Any], Any]) -> IndexedFormulas:
        """Case by case."""
        keys = {a.equations | b.equations for a in self.terms for b in other.terms}
        possible = [key for key in keys if solved(key, self.ranges) is not None]
        both = {key: operation(self.case(key), other.case(key)) for key in possible}
        return IndexedFormulas.of_cases(both, self.ranges)

    def __add__(self, other: IndexedFormulas) -> IndexedFormulas:
        return self.combined(other, lambda a, b: a + b)

    def __sub__(self, other: IndexedFormulas) -> IndexedFormulas:
        return self.combined(other, lambda a, b: a - b)

    def __mul__(self, other: IndexedFormulas) -> IndexedFormulas:
        return self.combined(other, lambda a, b: a * b)

    def times(self, value: Any, equations: Equations = NOTHING) -> IndexedFormulas:
        """Times a formula, and zero where the equations do not hold."""
        factor = {NOTHING: sp.S.Zero, equations: sp.sympify(value)}
        return self * IndexedFormulas(tuple(Term(*case) for case in factor.items()), self.ranges)

    def zero(self) -> bool:
        """Whether all formulas are zero."""
        return all(term.value == 0 for term in self.terms)

    def _placed(self, value: Any, names: Mapping[str, Affine], ranges: Ranges) -> Any:
        return place(value, names)

    def _gathered(self, terms: Sequence[tuple[Equations, Term[Any]]], ranges: Ranges) -> IndexedFormulas:
        # two sets that have become one another's parts may have a union that was not listed
        found: dict[Equations, Any] = {}
        for _, term in sorted(terms, key=lambda entry: -len(entry[0])):
            found.setdefault(term.equations, term.value)
        return IndexedFormulas.of_cases(found, ranges)

    def entry(self, positions: Mapping[str, int]) -> Any:
        """The formula of one member of each family."""
        fixed = {name: Affine((), value) for name, value in positions.items()}
        holds = frozenset(e for key in self.table for e in key if e.at(fixed).offset == 0)
        return place(self.case(holds), fixed)

    def expression(self) -> Any:
        """All cases as one formula in index symbols."""
        order = sorted(self.terms, key=lambda term: len(term.equations), reverse=True)
        if len(order) == 1:
            return order[0].value
        return sp.Piecewise(
            *((term.value, sp.And(*(sp.Eq(affine(e), 0) for e in sorted(term.equations, key=str)))) for term in order)
        )

"""`Indexed`: values over pairs of members as sums of 1[equations between indices] * value, never as whole matrices.

A second moment M(f, g) has positions '0', '1', ... of f and '0_', '1_', ... of g.  Equations between them are affine,
as '1' - '1_' = 0 for vectors made by different weights of one family.  Keys shared by heads, heads that are
independent, stationary kernels: all are a few terms.  Values are arrays of numbers or formulas (`values`,
`formulas.recursion`); what holds for both is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Self, TypeVar

from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range

__all__ = [
    "NOTHING", "Equations", "Indexed", "Term",
    "canonical", "difference", "held_in", "patterns", "possible", "rewrite", "solve", "solved",
]  # fmt: skip

V = TypeVar("V")
Ranges = Mapping[str, Range]
Equations = frozenset[Affine]  # each affine form is zero
NOTHING: Equations = frozenset()


# ---- equations -----------------------------------------------------------------------------------------------------


def difference(first: Affine, second: Affine) -> Affine | None:
    """first - second = 0 as a canonical form; None if it always holds; an affine constant if it never does."""
    return canonical(first - second)


@lru_cache(maxsize=1 << 12)
def canonical(form: Affine) -> Affine | None:
    """An equation with sorted terms, content divided out and first coefficient positive; None if it always holds."""
    terms = sorted((name, value) for name, value in form.terms if value)
    if not terms:
        return None if form.offset == 0 else Affine((), 1)
    divisor = math.gcd(*(value for _, value in terms))
    if form.offset % divisor:
        return Affine((), 1)
    sign = 1 if terms[0][1] > 0 else -1
    return Affine(tuple((name, sign * value // divisor) for name, value in terms), sign * form.offset // divisor)


def possible(form: Affine, ranges: Ranges) -> bool:
    """Whether an equation can hold somewhere in the box."""
    low, high = form.bounds(ranges)
    return bool(form.terms) and low <= 0 <= high


def rewrite(equations: Equations, names: Mapping[str, Affine], ranges: Ranges) -> Equations | None:
    """The equations over new indices; None if one cannot hold."""
    result = set()
    for equation in equations:
        form = canonical(equation.at(names))
        if form is None:
            continue
        if not possible(form, ranges):
            return None
        result.add(form)
    return frozenset(result)


def solve(equations: Equations, prefer: Sequence[str] = (), only: bool = False) -> dict[str, Affine]:
    """Indices eliminated by the equations, each as an affine form of the remaining ones; `prefer` first, or `only`.

    An equation without an index of coefficient +-1 is left unsolved; it still stands in its term.
    """
    return dict(_solution(equations, tuple(prefer), only)) if equations else {}


@lru_cache(maxsize=1 << 12)
def _solution(equations: Equations, prefer: tuple[str, ...], only: bool) -> dict[str, Affine]:
    solution: dict[str, Affine] = {}
    rank = {name: position for position, name in enumerate(prefer)}
    for equation in sorted(equations, key=str):
        form = canonical(equation.at(solution))
        if form is None or not form.terms:
            continue
        # second copies before first ones, so that what remains speaks of the first
        candidates = [
            (rank.get(name, len(rank) + (not name.endswith("_"))), name)
            for name, value in form.terms
            if abs(value) == 1 and not (only and name not in rank)
        ]
        if not candidates:
            continue
        _, name = min(candidates)
        rest = form.solved(name)
        solution = {key: old.at({name: rest}) for key, old in solution.items()} | {name: rest}
    return solution


def solved(equations: Equations, ranges: Ranges, prefer: Sequence[str] = ()) -> dict[str, Affine] | None:
    """What the equations say about indices; None where they contradict each other, or the ranges."""
    if not equations:
        return {}
    solution = solve(equations, prefer)
    return None if any(rewrite(equations, names, ranges) is None for names in ({}, solution)) else solution


def held_in(window: Ranges, equations: Equations) -> dict[str, Range] | None:
    """The smallest window outside which equations do not hold; None where they do nowhere."""
    held = dict(window)
    for equation in equations:
        for name, coefficient in equation.terms:
            if name not in held or abs(coefficient) != 1:
                continue
            form = equation.solved(name)
            low, high = form.span(held)
            held[name] = max(held[name][0], low), min(held[name][1], high)
            if held[name][0] >= held[name][1]:
                return None
    return held


def _ordered(equations: Equations) -> tuple[int, list[str]]:
    return len(equations), sorted(map(str, equations))


def patterns(
    sets: Iterable[Equations], ranges: Ranges, prefer: Sequence[str] = ()
) -> Iterable[tuple[Equations, dict[str, Affine]]]:
    """The unions of some sets of equations that can hold, small ones first, each with what it says about indices."""
    unions = {NOTHING}
    for equations in sets:
        unions |= {known | equations for known in unions}
    for equations in sorted(unions, key=_ordered):
        solution = solved(equations, ranges, prefer)
        if solution is not None:
            yield equations, solution


# ---- values ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Term(Generic[V]):
    """1[all equations hold] * value."""

    equations: Equations
    value: V


@dataclass(eq=False)
class Indexed(ABC, Generic[V]):
    """A sum of terms over the indices in `ranges`.

    Two ways to write one down, each made from the other: as the value of every case, a set of equations that hold with
    no others that matter (`of_cases`, `case`), or as summands, each of which counts wherever its equations hold
    (`of_overlapping`, `overlapping`).  Numbers are kept as summands, of which there are fewer; formulas as cases, which
    people read.
    """

    terms: tuple[Term[V], ...]
    ranges: Ranges

    @classmethod
    @abstractmethod
    def constant(cls, value: Any, ranges: Ranges) -> Self:
        """One value everywhere."""

    @classmethod
    @abstractmethod
    def of_cases(cls, cases: Mapping[Equations, V], ranges: Ranges, prefer: Sequence[str] = ()) -> Self:
        """From the value of every case; `prefer` are indices that equations eliminate first."""

    @classmethod
    @abstractmethod
    def of_overlapping(cls, summands: Iterable[tuple[Equations, V]], ranges: Ranges) -> Self:
        """From values that count wherever their equations hold."""

    @abstractmethod
    def overlapping(self) -> list[tuple[Equations, V]]:
        """The same as a sum of 1[equations] * value."""

    @abstractmethod
    def case(self, equations: Equations, solution: Mapping[str, Affine] | None = None) -> V:
        """The value where these equations hold, and no others that matter, with the indices in `solution` eliminated.

        Without `solution`, which the equations are solved for.
        """

    @abstractmethod
    def times(self, value: V, equations: Equations = NOTHING) -> Self:
        """Times a value over the same indices, and 1 where further equations hold, else 0."""

    @abstractmethod
    def __add__(self, other: Self) -> Self: ...

    @abstractmethod
    def __mul__(self, other: Self) -> Self: ...

    @abstractmethod
    def zero(self) -> bool:
        """Whether all values are exactly zero."""

    def widened(self, ranges: Ranges) -> Self:
        """The same over larger ranges, zero outside its own; formulas say themselves where they are zero."""
        return type(self)(self.terms, ranges)

    @abstractmethod
    def placed(self, value: V, names: Mapping[str, Affine], ranges: Ranges) -> V:
        """A value read at affine forms of other indices."""

    @abstractmethod
    def _gathered(self, terms: Sequence[tuple[Equations, Term[V]]], ranges: Ranges) -> Self:
        """From terms with the equations that each had before it was read elsewhere."""

    def read(self, names: Mapping[str, Affine], ranges: Ranges) -> Self:
        """The same at affine forms of other indices, which may make positions equal.

        What is read at equal positions only has the terms and the axes of these positions, and no others.
        """
        if all(ranges.get(n) == span and (n not in names or names[n].bare == n) for n, span in self.ranges.items()):
            return type(self)(self.terms, ranges)  # nothing is read elsewhere
        found = []
        for term in self.terms:
            equations = rewrite(term.equations, names, ranges) if term.equations else NOTHING
            if equations is None:
                continue
            at = names
            if equations:
                solution = solve(equations)
                at = solution | {name: form.at(solution) for name, form in names.items()}
            found.append((term.equations, Term(equations, self.placed(term.value, at, ranges))))
        return self._gathered(found, ranges)

    def mapped(self, change: Callable[[V], V]) -> Self:
        """Every value changed."""
        return type(self)(tuple(Term(term.equations, change(term.value)) for term in self.terms), self.ranges)

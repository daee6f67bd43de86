"""The recursion in numbers: pairs by expectations, recurrences step by step, and what is averaged over points.

Recurrences are filled in step by step (`recurrences`).  Cells that they carry along without a MatMul between, and
functions that reduce over an index of vectors, are averaged over points (`points`) in replicates that stay apart, as an
axis of all values, until a number leaves the recursion.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any
from weakref import proxy

from tensorprog.gaussian.several import REPLICATES
from tensorprog.language.errors import NotCompiledError
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Netsor, Nonlin, Range
from tensorprog.limit.form.definitions import Corrected, reductions
from tensorprog.limit.form.sums_of_functions import Inner, WeightedFunction, position_names
from tensorprog.limit.form.weight_columns import Columns
from tensorprog.limit.moment.indexed import NOTHING, Equations, solve
from tensorprog.limit.moment.numbers import Numbers
from tensorprog.limit.moment.onsager import exact_coefficients
from tensorprog.limit.moment.points import NUMBERS, VectorsAtPoints
from tensorprog.limit.moment.products import Factors, ProductOfFunctions
from tensorprog.limit.moment.recurrences import Recurrences
from tensorprog.limit.moment.values import REPLICATE, DeferredPairs, IndexedValues, Value

__all__ = ["NumericRecursion"]

Ranges = Mapping[str, Range]
SMALL = 1 << 14  # numbers of a whole covariance that are computed even where fewer are asked for


class NumericRecursion(Numbers):
    """Moments of one program in numbers.

    Raises    NotCompiledError for what this version does not compile, NotFiniteError for moments that are not finite
    """

    def __init__(
        self, program: Netsor, expanded: bool = True, numbers: int = NUMBERS, symbols: Collection[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(program, expanded, symbols)
        self._held = numbers
        if "recurrences" not in self.program.known:
            self.program.known["recurrences"] = Recurrences(self.netsor)
        self.start(self.program.known["recurrences"].afresh(self))
        count = REPLICATES << bool(self.recurrences.loops)  # the spread of more is better known
        self.replicates = (0, count) if self.pointed_families else None

    def share(self, whole: NumericRecursion) -> None:
        """Take over the program of another recursion and what is known of its functions, but no moments."""
        self.expanded, self.program, self.netsor = whole.expanded, whole.program, whole.netsor
        self.parts, self.random = whole.parts, whole.random
        self.scores, self.summands = whole.scores, whole.summands
        self.initials, self._whole = whole.initials, whole._whole
        self._held = whole._held

    def start(self, recurrences: Recurrences) -> None:
        """Nothing is computed yet."""
        self.reset()
        self.recurrences = recurrences
        self._of_forms: dict[Any, IndexedValues] = {}
        self._points: VectorsAtPoints | None = None
        self._large: dict[tuple[str, str], bool] = {}

    def start_again(self) -> None:
        """Nothing is computed yet: filling in a recurrence did not finish."""
        self.start(self.recurrences.afresh(self))

    def is_finite(self, name: str) -> bool:
        """Whether a vector has a width that stays finite."""
        return self.netsor.families[name].width in dict(self.netsor.fixed_widths)

    def width(self, name: str) -> int:
        """Number of coordinates that one draw has: 1 where the width is infinite, as all follow one law."""
        return dict(self.netsor.fixed_widths).get(self.netsor.families[name].width, 1)

    # -- what is averaged over points -----------------------------------------------------------------------------

    @property
    def points(self) -> VectorsAtPoints:
        """The vectors at quasi-random points."""
        if self._points is None:
            steps, drawn = self.recurrences.steps, None if self.each else self.drawn
            self._points = VectorsAtPoints(proxy(self), steps, self.pointed_families, self._held, drawn)
        return self._points

    @property
    def weight_columns(self) -> Columns:
        """The products of every weight, numbered in the order in which they become known."""
        known = self.program.known
        if "columns" not in known:
            known["columns"] = Columns(self.netsor, self.recurrences.steps, dict.fromkeys(self.netsor.scores, 0))
        found: Columns = known["columns"]
        return found

    @property
    def pointed_families(self) -> list[str]:
        """The vectors whose moments are means over points, of those that depend on no scores."""
        known = self.program.known
        if "pointed" not in known:
            body, families = self.netsor.body, self.netsor.families
            reduces = any(self.parts.is_vector(n) for s in body if isinstance(s, Nonlin) for n in reductions(s.expr))
            some = reduces or any(families[name].kind == "vector" for name in self.parts.carried - self.random)
            names = sorted(families.keys() - self.random) if some else []
            known["pointed"] = [n for n in names if families[n].kind == "vector" and not self.parts.is_base(n)]
            known["pointed"] = list(filter(self._pointed, known["pointed"]))
        found: list[str] = known["pointed"]
        return found

    def _pointed(self, name: str) -> bool:
        with suppress(NotCompiledError):  # which whoever asks for the family will meet
            return any(map(self.needs_points, self.parts.of(name)))
        return False

    def needs_points(self, part: WeightedFunction) -> bool:
        """Whether the expectations of a part are means over points."""
        return any(map(self._together, self.parts.factors_of(part)))

    def _together(self, factor: WeightedFunction) -> bool:
        together = self.parts.sums_over_vectors if self.jointly else self.parts.reduces
        return self.parts.carries(factor) or together(factor)

    @property
    def drawn(self) -> frozenset[str]:
        """The weights and initial vectors that averages over points read."""
        if self.program.corrected:
            return frozenset(self.parts.source(name) for name in self.netsor.families if self.parts.is_base(name))
        read = {v.name for s in self.netsor.body if not isinstance(s, Nonlin) for v in s.inputs}
        found = list[WeightedFunction]()
        for name in read.intersection(self.pointed_families):
            groups = [self.parts.factors_of(part) for part in self.parts.of(name)]
            if self.parts.carried_by(name) != name:
                groups = [own for factors in groups for own in self.parts.independent_groups(factors)]
                groups = [own for own in groups if any(map(self._together, own))]
            found += [factor for own in groups for factor in own]
        return frozenset().union(*map(self.parts.sources, found))

    def expectations(self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges) -> IndexedValues:
        """E[f(l) g(l')] without coefficients; what one step of a recurrence reads is not remembered."""
        return self.averaged(p, q, ranges) if self.recurrences.active else super().expectations(p, q, ranges)

    def covariance(self, first: Inner, second: Inner, ranges: Ranges) -> IndexedValues:
        """Covariance of two affine forms, remembered where it takes no room: derivatives read what functions read."""
        key = first, second, tuple(ranges.items())
        if key in self._of_forms:
            return self._of_forms[key]
        found = super().covariance(first, second, ranges)
        if found.terms and not self.recurrences.active and all(isinstance(t.value, DeferredPairs) for t in found.terms):
            self._of_forms[key] = found
        return found

    def averaged(self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges) -> IndexedValues:
        """E[f(l) g(l')] without coefficients.

        Factors that are independent of those at points are averaged apart: the variance of the shipped mamba_like has
        an error of 4e-5 so, and of 2e-3 otherwise.
        """
        known, key = self.program.known, ("factors", p, q, self.jointly)
        if key not in known:
            sides = [self.parts.factors_of(part) for part in (p, q)]
            groups = self.parts.independent_groups([*sides[0], *sides[1]])
            alone = [f for group in groups if not any(map(self._together, group)) for f in group]
            known[key] = Factors(self.parts, alone), *([f for f in s if all(f is not a for a in alone)] for s in sides)
        factors, first, second = known[key]
        if factors.vanish:
            return self.nothing(ranges)
        if first or second:
            found = IndexedValues.constant(self.points.of_factors(first, second, ranges), ranges)
            if not (factors.forms or factors.constants):
                return found
        product = ProductOfFunctions(self, factors, ranges)
        others = self.by_patterns(
            product.forms.equations, lambda *case: product.law(*case).product(), ranges, (*q.bound, *p.bound)
        )
        return found * others if first or second else others

    def _uncentred(self, f: str, g: str, ranges: Ranges, at: Mapping[str, Affine] | None = None) -> IndexedValues:
        if self.random & {f, g} or any(self.parts.carried_by(name) != name for name in (f, g)):
            return super()._uncentred(f, g, ranges, at)
        with self.guarded(f, g):
            first, second = (self.parts.itself(name) for name in (f, g))
            names = {name: Affine.index(f"{name}_") for name in position_names(self.netsor, g)}
            second = second.renamed(names).renamed(at or {})
            return IndexedValues.constant(self.points.of_factors([first], [second], ranges), ranges)

    # -- what is filled in step by step ---------------------------------------------------------------------------

    def ready(self, *names: str) -> None:
        """Fill the recurrences that define these families, unless that is under way."""
        self.recurrences.ensure(*names)

    def in_part(self, f: str, g: str) -> bool:
        """Whether only what is asked for is computed: of large families, where nothing is averaged over draws."""
        if (f, g) not in self._large:
            families = [self.netsor.families[name] for name in (f, g)]
            large = math.prod(size for family in families for size in family.shape) > SMALL
            plain = all(len(own.statements) <= 1 or self.recurrences.recurrent(own.name) for own in families)
            self._large[f, g] = large and plain and (self.replicates is None or self.each)
        return self._large[f, g] and not self.recurrences.active & {f, g}

    def base(self, f: str, g: str, where: Equations = NOTHING) -> IndexedValues:
        """Covariance of two Gaussian families; of those in recurrences, as far as it is known."""
        self.ready(f, g)
        if self.recurrences.active & {f, g} or (f, g) in self.recurrences.covariances:
            return self.recurrences.covariances.get((f, g), IndexedValues((), self.pair_ranges(f, g)))
        if f == g in self.initials:  # what has the same law has the same covariance
            f = g = self.initials[f].initial.name
        return super().base(f, g, where)

    def between(self, f: str, g: str, names: Mapping[str, Affine], ranges: Ranges) -> IndexedValues:
        """E[Z^f Z^g] with at least the members that are read at these forms of other indices.

        Only those are computed of families of which only part is known, or whose later definitions may read earlier
        ones, or where every draw has moments of its own.
        """
        whole, held = position_names(self.netsor, f) | position_names(self.netsor, g, "_"), {}
        for name, (start, stop) in whole.items():
            low, high = names[name].span(ranges)
            held[name] = max(low, start), min(high, stop)
        partly = self.each or any(len(self.netsor.families[name].statements) > 1 for name in (f, g))
        if not self.recurrences.active & {f, g} and not (partly and held != whole):
            return super().between(f, g, names, ranges)
        if any(start >= stop for start, stop in held.values()):
            return IndexedValues((), self.over(held))
        return self._compute(f, g, self.over(held), solve(self.wanted(f, g, names)))

    def _average(self, name: str) -> Value:
        if name in self.program.corrected:
            return self._coefficient(name)
        self.ready(name)
        if name in self.recurrences.active and name not in self._averages:  # as far as it is known
            return self.recurrences.averages.get(name, Value.of(0.0))
        return super()._average(name)

    def by_moments(self, statement: Corrected) -> bool:
        """Whether the coefficients of a product follow from moments, and not with the vectors at points."""
        read = statement.product.vector.name
        return read not in self.pointed_families and not self.recurrences.recurrent(statement.target.name)

    def _coefficient(self, name: str) -> Value:
        """The coefficients of an Onsager term."""
        statement = self.program.corrected[name]
        if self.by_moments(statement):
            if name not in self._averages:
                self._averages |= exact_coefficients(self, statement)
            return self._averages[name]
        product = statement.target.name
        self.points.values(product, self.netsor.families[product].ranges)
        return Value.of(self.points.coefficients[name], (REPLICATE, *position_names(self.netsor, name)))

    def whole_average(self, name: str) -> Value:
        """All averages of a family, of those in recurrences as they have been filled in."""
        if len(self.netsor.families[name].statements) == 1 and name not in self.recurrences.averages:
            return super().whole_average(name)
        self.recurrences.rest_of(name)
        return self.recurrences.averages[name]

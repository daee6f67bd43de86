"""Vectors at quasi-random points: what has no expectation in pairs is averaged over points in place of coordinates.

The cells of an LSTM are functions of all steps before, a batch normalisation is one of all inputs: E[f f'] has no
closed form and no rule in few dimensions.  So vectors get coordinates, which are points in place of networks: one
dimension for each fresh Gaussian, and E is the mean over the points.

    initial    x = L z          L a factor of the declared covariance, z one normal for each member
    MatMul     g = L z          L the rows of a triangular factor of sigma**2 E[x x'], z one normal for each product
    Nonlin     as written
    average    E[u v], as it is known

This is the recursion of `finite.block` with averages in place of sums.  Covariances of products are those that the
recursion knows: exact where it has an expectation in pairs, means over points elsewhere.  There are several replicates,
each of which keeps to its own covariances from the first step to the last: their spread is the error.  Given draws of
scores, every draw has covariances of its own, and all replicates serve each of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.fast import threaded
from tensorprog.gaussian.several import REPLICATES, lattice, point_sets, standard_errors
from tensorprog.language.arrows import reached
from tensorprog.language.errors import NotCompiledError
from tensorprog.language.evaluate import (
    COORDINATE,
    Open,
    Scope,
    align,
    broadcast,
    contract,
    evaluate,
    take,
)
from tensorprog.language.expr import Affine, Variable, product_of, variables
from tensorprog.language.ir import Dot, MatMul, Nonlin, Range
from tensorprog.language.linalg import extended
from tensorprog.language.schedule import Step, downstream, upstream
from tensorprog.language.weight_members import variances
from tensorprog.limit.form.definitions import Box, Corrected, place, target_box
from tensorprog.limit.form.sums_of_functions import ONE, Inner, SumsOfFunctions, WeightedFunction
from tensorprog.limit.memory import need, numbers_at_once
from tensorprog.limit.moment.numbers import Numbers, initial_draws
from tensorprog.limit.moment.values import REPLICATE, Value

__all__ = ["FEWEST", "VectorsAtPoints", "numbers_given", "variables_drawn"]

Array = NDArray[Any]
Result = TypeVar("Result")
Ranges = Mapping[str, Range]
Slots = tuple[Affine, ...]
LEAST_LOG2, MOST_LOG2, MOST_GIVEN_LOG2 = 8, 16, 11  # points of a replicate; of one that serves a draw of scores
MOST_COPIED_LOG2 = 12  # of which there are copies
NUMBERS = 1 << 26  # numbers held by all points together, about
GIVEN = 1 << 15  # numbers held by the points of one replicate for one draw of scores
DIMENSIONS = 24  # of a recurrence, beyond which points are those of a lattice
COPIES = 6  # of its points, which read the normals of each source from another place on
SMALLEST = 1e-6  # of a singular value beside the largest: what is below is rounding in single precision
EACH = 8  # points that tell the products apart which the coefficients of Onsager terms belong to
FEWEST = REPLICATES << LEAST_LOG2  # points for such a draw


def variables_drawn(parts: SumsOfFunctions, name: str, box: Box | None = None) -> int:
    """Variables, about, that have points for the moments of a vector given scores; 0 where it needs none."""
    family = parts.netsor.families[name]
    if family.kind != "vector":
        return 0
    factors = [factor for part in parts.at(name, box or family.ranges) for factor in parts.factors_of(part)]
    size = math.prod(stop - start for start, stop in box or family.ranges)
    return size * sum(len(factor.inner) for factor in factors if parts.sums_over_vectors(factor))


def _count_given(variables: int) -> int:
    """Points of one replicate that serves one draw of scores."""
    log2 = int(math.log2(max(1, GIVEN // (1 + variables))))
    return 1 << min(max(log2, LEAST_LOG2), MOST_GIVEN_LOG2)


def numbers_given(variables: int) -> int:
    """Numbers that so many variables at the points for one draw of scores are."""
    return REPLICATES * _count_given(variables) * variables


class VectorsAtPoints:
    """Vectors of one program at points, as far as they are needed.

    `vectors` are those whose moments are asked for; all that they are functions of has points as well.

    Shapes    values of a family (replicates or draws, *members, points), in single precision
    Raises    MemoryLimitError where the fewest points take more than there is
    """

    def __init__(
        self, numbers: Numbers, steps: Iterable[Step], vectors: Sequence[str], held: int,
        drawn: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        self.numbers, self.netsor, self.parts, self.columns = (
            numbers,
            numbers.netsor,
            numbers.parts,
            numbers.weight_columns,
        )
        self.steps, self.vectors, self._held = list(steps), vectors, held
        self._values: dict[str, Array] = {}
        self.coefficients: dict[str, Array] = {}  # of Onsager terms, over (replicates, *members)
        self._done: set[int] = set()
        self._recent: tuple[Any, Value] = None, Value.of(0.0)  # the average that was asked for last
        self._products: dict[str, tuple[Any, Array]] = {}  # of the step that reads them
        self._factors: dict[tuple[Any, ...], Array] = {}  # of products that are known
        self._drawn = drawn  # all that functions read, and no sum of vectors as one, if it is None
        self._closures: dict[str, tuple[frozenset[str], list[int]]] = {}
        self._limit = len(self.steps)  # steps from here on are not to be made yet
        assert numbers.replicates is not None
        self.lead = numbers.replicates[1]

    # -- which vectors --------------------------------------------------------------------------------------------

    @cached_property
    def added(self) -> dict[str, dict[str, Slots]]:
        """Initial vectors that are read nowhere but in a sum with one product, which is drawn as one Gaussian vector.

        For every such product, the slots of each initial vector at positions of the product.
        """
        if not self.looped or self._drawn is None:
            return {}
        written: list[Inner] = []
        for statement in self.netsor.body:
            own = self.parts.numbered(statement.expr)[1] if isinstance(statement, Nonlin) else []
            written += own or [((ONE, v, ()),) for v in statement.inputs]
        asked = list(written)
        for name, family in self.netsor.families.items():
            if family.kind == "vector" and not self.parts.is_base(name):
                with suppress(NotCompiledError):
                    asked += [f.inner for part in self.parts.of(name) for f in self.parts.factors_of(part)]
        sets: dict[str, set[frozenset[str]]] = {}
        for form in asked:
            for _, v, _ in form:
                sets.setdefault(v.name, set()).add(frozenset(other.name for _, other, _ in form))
        times = Counter(v.name for form in written for _, v, _ in form)
        turned, found = {s.other for s in self.numbers.program.corrected.values()}, dict[str, dict[str, Slots]]()
        for form in written:
            once = [v for w, v, over in form if w == ONE and not over and times[v.name] == len(sets[v.name]) == 1]
            for v in once:
                source = self.parts.source(v.name) if v.name in self.columns.member else ""
                names = {str(slot.bare): Affine.index(str(k)) for k, slot in enumerate(v.slots) if slot.bare}
                plain = len(names) == len(v.slots) and not any(self.netsor.families[v.name].boundaries)
                if source and source not in turned and len(self.columns.owner[source]) == 1 and plain:
                    found[v.name] = {
                        x.name: tuple(slot.at(names) for slot in x.slots)
                        for x in once
                        if x.name in self.numbers.initials and all(names.keys() >= {*slot.indices} for slot in x.slots)
                    }
                    break
        return found

    @cached_property
    def sources(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the normals of weights and initial vectors that functions or averages read.

        What only outputs read is independent of all others.
        """
        fixed, found = dict(self.netsor.fixed_widths), dict[str, tuple[int, ...]]()
        for statement in self.netsor.body:
            if isinstance(statement, Nonlin) or (isinstance(statement, Dot) and statement.scale == "1/n"):
                read = variables(statement.expr) if isinstance(statement, Nonlin) else statement.inputs  # of all terms
                for name in (v.name for v in read if self.parts.is_base(v.name)):
                    family, source = self.netsor.families[name], self.parts.source(name)
                    known = self._drawn is None or source in self._drawn
                    if family.width not in fixed and known and not any(name in own for own in self.added.values()):
                        initials = self.numbers.initials
                        found[source] = self.columns.owner[source].shape if family.statements else initials[name].shape
        return found

    def _closure(self, name: str) -> tuple[frozenset[str], list[int]]:
        """The vectors that a vector is a function of, down to Gaussian ones, and the steps that make them."""
        if name not in self._closures:

            def read(other: str) -> Iterator[str]:
                statements = [self.netsor.body[p] for p in self.netsor.families[other].statements]
                names = {v.name for s in statements if not isinstance(s, MatMul) for v in s.inputs}
                names |= {s.product.vector.name for s in statements if isinstance(s, Corrected)}
                return (v for v in names if self.netsor.families[v].kind == "vector")

            found = reached(read, [name])
            steps = [k for k, step in enumerate(self.steps) if step.statement.target.name in found]
            self._closures[name] = found, steps
        return self._closures[name]

    # -- points ---------------------------------------------------------------------------------------------------

    @cached_property
    def count(self) -> int:
        """Points of one replicate."""
        if self.numbers.each:
            return _count_given(self.dimensions)
        names = {name for own in self.vectors for name in self._closure(own)[0]}
        names |= {v.name for s in self.netsor.body for v in s.inputs if self.netsor.families[v.name].kind == "vector"}
        # normals of initial vectors make room for their values
        normals = sum(math.prod(shape) for source, shape in self.sources.items() if source not in self.numbers.initials)
        kept = names - self.momentary - {name for own in self.added.values() for name in own}
        members = sum(math.prod(self.netsor.families[name].shape) for name in kept)
        each = self.lead * max(1, members * self.copies + normals)
        held = (2 + self.looped) * numbers_at_once(self._held, 2)  # in single precision
        # recurrences have products at every step, which take time
        most = MOST_COPIED_LOG2 if self.copies > 1 else MOST_LOG2 - 2 * self.looped
        log2 = min(max(int(math.log2(max(1, held // each))), LEAST_LOG2), most)
        count = self.copies << log2
        need(
            (each << log2) / 2,
            f"the fewest points, {count} in each of {self.lead} replicates, of {', '.join(sorted(names))}",
            "make the recurrence shorter",
        )
        turned = {s.other for s in self.numbers.program.corrected.values() if not self.numbers.by_moments(s)}
        products = max((self.columns.owner[weight].shape[1] for weight in turned), default=0)
        if EACH * products > count:
            raise NotCompiledError(
                f"Onsager terms of {products} products with one matrix take at least {EACH} points for each product, "
                f"and {count} fit: make the recurrence shorter, or raise max_memory (--max-memory)"
            )
        return count

    @cached_property
    def dimensions(self) -> int:
        """Normals of one point."""
        return sum(math.prod(shape) for shape in self.sources.values())

    @cached_property
    def copies(self) -> int:
        """Points for each of those whose normals are kept.

        What a step makes depends on few steps before it, so that copies that are far apart in time tell about
        as much as other points, whose normals would be kept as well.
        """
        return COPIES if self.looped and self.dimensions > DIMENSIONS and not self.numbers.each else 1

    @cached_property
    def looped(self) -> bool:
        """Whether there are recurrences."""
        return any(step.fixed for step in self.steps)

    @property
    def total(self) -> int:
        """Points of all values."""
        return self.count * REPLICATES if self.numbers.each else self.count

    @cached_property
    def normals(self) -> dict[str, Array]:
        """The normals of every source, of one of the copies: of each replicate, or of all of them one after the other.

        What comes first in a recurrence has the first coordinates, in which Sobol points are best; of many, neighbours
        in time are neighbours on a lattice.

        Shapes    (replicates or 1, *shape of the source, points), in single precision
        """
        times = [k * self.looped for shape in self.sources.values() for k in np.indices(shape)[-1].reshape(-1)]
        coordinates = np.argsort(np.argsort(times, kind="stable"))
        rows, start, found, count = {}, 0, dict[str, Array](), self.count // self.copies
        number = REPLICATES if self.numbers.each else self.lead
        for source, shape in self.sources.items():
            rows[source] = coordinates[start : start + math.prod(shape)]
            start += math.prod(shape)
            found[source] = np.empty((number, *shape, count), np.float32)
        log2, far = int(math.log2(count)), self.copies > 1 and 4 * len(times) <= count
        sobol = (points.T for points in point_sets(len(times), log2, 0, count=number))
        sets = (lattice(len(times), log2, 0, k) for k in range(number)) if far else sobol
        for k, points in enumerate(sets):
            for source, shape in self.sources.items():  # one replicate after the other: only what is kept takes memory
                found[source][k] = points[rows[source]].reshape(*shape, -1)
        if self.numbers.each:
            return {name: np.moveaxis(own, 0, -2).reshape(1, *own.shape[1:-1], -1) for name, own in found.items()}
        return found

    @cached_property
    def momentary(self) -> set[str]:
        """Families of which each step reads what was made last alone: they are made again where they are read.

        What is averaged is none.
        """
        read = {v.name for s in self.netsor.body if not isinstance(s, Nonlin) for v in s.inputs}
        averaged = {self.parts.carried_by(name) or name for name in read}
        given = {s.target.name for s in self.netsor.body if isinstance(s, Corrected)}
        given |= self.numbers.program.corrected.keys()
        found = {s.target.name for s in self.netsor.body if isinstance(s, Nonlin | MatMul)} - averaged - given
        latest = dict[str, Box]()
        for step in self.steps if self.looped else ():
            ranges = {**self.netsor.ranges, **step.ranges(self.netsor.ranges)}
            for v in step.statement.inputs if isinstance(step.statement, Nonlin) else ():
                if v.name in found and not within(tuple(slot.span(ranges) for slot in v.slots), latest.get(v.name)):
                    found.remove(v.name)
            latest[step.statement.target.name] = target_box(step.statement, ranges)
        return found if self.looped else set()

    @cached_property
    def in_turn(self) -> frozenset[str]:
        """Momentary families that are made step by step: what a recurrence carries, and what is made of it."""
        made = (s for s in self.netsor.body if isinstance(s, Nonlin) and s.target.name in self.momentary)
        return downstream(made, self.momentary & self.parts.carried)

    def values(self, name: str, box: Box) -> tuple[Array, list[int]]:
        """A vector at the points: its members in a box are known; and where the members begin.

        Shapes    (replicates or draws, *members, points)
        """
        family, (closure, steps) = self.netsor.families[name], self._closure(name)
        if self._limit == len(self.steps):  # before anything is half made
            self.numbers.ready(*sorted(closure))
        last = self._last(name, box)  # no step reads what later ones make
        starts = [start for start, _ in family.ranges]
        if name in self.momentary - self._values.keys() and last >= 0:
            made = target_box(self.steps[last].statement, self.steps[last].ranges(self.netsor.ranges))
            if within(box, made):
                if name in self.in_turn:
                    self._make_all(steps, last)
                if name not in self._products or self._products[name][0] != last:
                    self._products[name] = last, self._before(last, self._made)
                return self._products[name][1], [start for start, _ in made]
        if name not in self._values and family.statements:
            self._values[name] = np.zeros((self.lead, *family.shape, self.total), np.float32)
            self._done.difference_update(number for number, _ in self._boxes[name])
        elif name not in self._values:
            initial = self.numbers.initials[name].initial
            if name not in self.normals:  # the rest of it is part of a product
                mean = self.numbers.initials[name].mean.astype(np.float32)
                return np.broadcast_to(mean[..., None], (self.lead, *mean.shape, self.total)), starts
            normals = self.normals.pop(name)  # which nothing else reads
            flat = normals.reshape(len(normals), -1, normals.shape[-1])
            blocks = self._copied(flat).reshape(*normals.shape[:-1], -1)
            drawn = [initial_draws(self.numbers, initial, own[None])[0].astype(np.float32) for own in blocks]
            self._values[name] = np.broadcast_to(np.stack(drawn), (self.lead, *drawn[0].shape))
        self._make_all(steps, last, name)
        return self._values[name], starts

    def _make_all(self, steps: Sequence[int], last: int, asked: str = "") -> None:
        """Make what is kept, and what is made in turn, of some steps up to the last one; of `asked` all."""
        passing = self.momentary - self.in_turn - {asked}
        for number in [k for k in steps if k not in self._done] if last not in self._done else ():
            if number <= last and self.steps[number].statement.target.name not in passing:
                self._before(number, self._make)
                self._done.add(number)

    def _before(self, number: int, make: Callable[[int], Result]) -> Result:
        """What is made of what is known before a step."""
        before, self._limit = self._limit, number
        try:
            return make(number)
        finally:
            self._limit = before

    def _last(self, name: str, box: Box) -> int:
        """The last step that may be made now and makes members of a family in a box; -1 where there is none."""
        made = self._boxes.get(name, [])
        for number, own in reversed(made[: bisect_left(made, (self._limit,))]):
            if all(a < stop and start < b for (a, b), (start, stop) in zip(own, box, strict=True)):
                return number
        return -1

    @cached_property
    def _boxes(self) -> dict[str, list[tuple[int, Box]]]:
        """The steps that make each family, with the members that they make."""
        found: dict[str, list[tuple[int, Box]]] = {}
        for number, step in enumerate(self.steps):
            made = target_box(step.statement, step.ranges(self.netsor.ranges))
            found.setdefault(step.statement.target.name, []).append((number, made))
        return found

    def _make(self, number: int) -> None:
        """Keep the members that a step makes, at the points."""
        statement, ranges = self.steps[number].statement, self.steps[number].ranges(self.netsor.ranges)
        name, family = statement.target.name, self.netsor.families[statement.target.name]
        found = self._made(number)
        if name in self.in_turn - self._values.keys():
            self._products[name] = number, found
            return
        if name not in self._values:
            self._values[name] = np.zeros((self.lead, *family.shape, self.total), np.float32)
        self._values[name][(slice(None), *place(target_box(statement, ranges), family.ranges))] = found

    def _made(self, number: int) -> Array:
        """The members that a step makes, at the points."""
        statement, ranges = self.steps[number].statement, self.steps[number].ranges(self.netsor.ranges)
        if not isinstance(statement, Nonlin):
            return self._product(statement.target.name, target_box(statement, ranges))
        axes = (REPLICATE, *(slot.bare or f"={k}" for k, slot in enumerate(statement.target.slots)), COORDINATE)
        if isinstance(statement, Corrected) and not self.numbers.by_moments(statement):
            self._coefficients(statement, ranges, number)
        found = align(evaluate(statement.expr, Scope(self.netsor, ranges, self.read)), axes)
        sizes = (stop - start for start, stop in target_box(statement, ranges))
        return np.broadcast_to(np.asarray(found, np.float32), (self.lead, *sizes, self.total))

    def _coefficients(self, statement: Corrected, ranges: dict[str, Range], step: int) -> None:
        """Enter the coefficients of the Onsager terms of products that a step makes (see `onsager`)."""
        columns, netsor, product, other = self.columns, self.netsor, statement.product, statement.other
        family = netsor.families[product.target.name]
        flat = np.arange(math.prod(family.shape)).reshape(family.shape)[
            place(target_box(product, ranges), family.ranges)
        ]
        member, column = (table[product.target.name][flat.reshape(-1)] for table in (columns.member, columns.column))
        members, back = np.unique(member, return_inverse=True)
        vectors = np.zeros((self.lead, len(members), int(column.max(initial=-1)) + 1, self.total), np.float32)
        vectors[:, back, column] = self._multiplied(product.vector, product, ranges).reshape(self.lead, -1, self.total)

        read = upstream(netsor, [product.vector.name])
        met = [number for number, name in enumerate(columns.families[other]) if name in read]
        before = (columns.made[other][members] < step) & np.isin(columns.owner[other][members], met)
        stop = int(np.flatnonzero(before.any(axis=0)).max(initial=-1)) + 1
        before = before[:, :stop]
        factor = self.factor(other, members, stop) * before[..., None]
        normals = self._copied(self.normals[other][:, members])[:, :, :stop]
        along = (vectors @ normals.swapaxes(-1, -2)) / self.total
        found = along @ np.linalg.pinv(factor, SMALLEST)  # rows c with c factor = along
        found = (found * variances(netsor, product.weight.name)[members][:, None, None])[:, back, column]
        for coefficient in statement.coefficients:
            name = coefficient.target.name
            sizes = math.prod(family.shape), math.prod(netsor.families[coefficient.right.name].shape)
            entries = self.coefficients.setdefault(name, np.zeros((self.lead, *netsor.families[name].shape)))
            owned = columns.owner[other][members, :stop] == columns.families[other].index(coefficient.right.name)
            own, opposite = np.nonzero((owned & before)[back])
            places = columns.place[other][members, :stop][back[own], opposite]
            entries.reshape(self.lead, *sizes)[:, flat.reshape(-1)[own], places] = found[:, own, opposite]

    def _multiplied(self, vector: Variable, product: MatMul, ranges: Any) -> Array:
        """The vectors that a product multiplies, over the members of the product.

        Shapes    (replicates, *members, points)
        """
        names = [str(slot.bare) for slot in product.target.slots]
        sizes = {name: ranges[name][1] - ranges[name][0] for name in names}
        value = evaluate(vector, Scope(self.netsor, ranges, self.read))
        return np.asarray(
            broadcast(value, (REPLICATE, *names, COORDINATE), sizes | {REPLICATE: self.lead, COORDINATE: self.total})
        )

    def _product(self, name: str, box: Box) -> Array:
        """Products in a box: rows of a triangular factor of their covariances with all before, times normals."""
        family, weight = self.netsor.families[name], self.parts.source(name)
        flat = np.arange(math.prod(family.shape)).reshape(family.shape)[place(box, family.ranges)]
        member, column = self.columns.member[name][flat], self.columns.column[name][flat]
        members, back = np.unique(member, return_inverse=True)
        stop = int(column.max(initial=-1)) + 1
        factor = self.factor(weight, members, stop).astype(np.float32)
        own = slice(members[0], members[0] + 1) if len(members) == 1 else members  # a slice copies no normals
        first = int(column.min(initial=stop))
        made = self._times(factor[:, :, first:], self.normals[weight][:, own])
        return made[:, back.reshape(flat.shape), column - first]

    def _starts(self, count: int) -> list[int]:
        """The normals of a source that each copy begins with, of so many; after the last comes the first."""
        return [copy * count // (self.copies + 1) for copy in range(self.copies)]

    def _copied(self, normals: Array) -> Array:
        """Normals at the points of all copies.

        Shapes    (.., count, points of a copy) -> (.., count, points)
        """
        starts = self._starts(normals.shape[-2])
        return np.concatenate([np.roll(normals, -start, axis=-2) for start in starts], axis=-1)

    def _times(self, factor: Array, normals: Array) -> Array:
        """Rows times normals at the points of all copies, which are never formed.

        Shapes    factor (.., rows, first columns), normals (.., columns, points of a copy) -> (.., rows, points)
        """
        (stop, columns), starts = (factor.shape[-1], normals.shape[-2]), self._starts(normals.shape[-2])
        found = np.empty((*factor.shape[:-1], len(starts), normals.shape[-1]), np.float32)

        def multiply(part: slice) -> None:
            rows, own, into = factor[part], normals[part], found[part]
            for copy, start in enumerate(starts):
                kept = min(stop, columns - start)
                into[..., copy, :] = rows[..., :kept] @ own[..., start : start + kept, :]
                if kept < stop:
                    into[..., copy, :] += rows[..., kept:] @ own[..., : stop - kept, :]

        threaded(multiply, self._apart)
        return found.reshape(*found.shape[:-2], -1)

    @property
    def _apart(self) -> list[slice]:
        """What is multiplied by itself: every replicate, whose normals stay in cache, or all draws, which are small."""
        return [slice(None)] if self.numbers.each else [slice(k, k + 1) for k in range(self.lead)]

    def factor(self, weight: str, members: Array, stop: int) -> Array:
        """Triangular factors of the covariance of the first products of some weight members.

        Rows of products that were known before are those of the last time.
        """
        owner, places = (table[weight][members, :stop] for table in (self.columns.owner, self.columns.place))
        known = self.columns.made[weight][members, :stop] <= self._limit  # what is not made is not known
        owner = np.where(known, owner, -1)
        before = self._factors.get((weight, *members), np.zeros((self.lead, len(members), 0, 0)))[..., :stop, :stop]
        done, families = before.shape[-1], self.columns.families[weight]
        size = self.lead * len(members) * (stop - done) * stop
        need(4 * size, f"the covariance of {stop} products of {weight} in each of {self.lead} replicates")
        draws, cov = np.arange(self.lead)[:, None], np.zeros((self.lead, len(members), stop - done, stop))
        off = np.zeros(cov.shape)
        for a, f in enumerate(families):
            for b, g in enumerate(families):
                w, r, c = np.nonzero((owner[:, done:] == a)[:, :, None] & (owner == b)[:, None, :])
                if w.size:
                    at = self.columns.positions(f, places[w, r + done][None])
                    at |= self.columns.positions(g, places[w, c][None], "_")
                    with self.numbers.by_itself():
                        found = self.numbers.base(f, g).at({**at, REPLICATE: draws})
                    for x, slots in self.added.get(f, {}).items() if a == b else ():
                        spots = {f"{k}{copy}": slot.at({n: Affine.index(f"{n}{copy}") for n in slot.indices})
                                 for copy in ("", "_") for k, slot in enumerate(slots)}  # fmt: skip
                        there = {
                            k: sum((c * at[n] for n, c in s.terms), np.full((1, 1), s.offset)) for k, s in spots.items()
                        }
                        with self.numbers.by_itself():
                            found = found + self.numbers.base(x, x).at({**there, REPLICATE: draws})
                    cov[:, w, r, c], off[:, w, r, c] = found.value, found.error
        own = np.einsum("...ii->...i", cov[..., done:])
        deviations = np.sqrt(np.concatenate([np.square(before).sum(axis=-1), own], axis=-1))
        sizes = deviations[..., done:, None] * deviations[..., None, :]
        relative = off[sizes > 0] / sizes[sizes > 0]
        self.numbers.relative = max(self.numbers.relative, float(np.max(relative, initial=0.0)))
        factor = extended(before, cov)
        if not self.numbers.each:
            first = int(np.argmin(np.append(known.all(axis=0), False)))
            self._factors[weight, *members] = factor[..., :first, :first]
        return factor

    def read(self, reference: Variable, ranges: Ranges) -> Open:
        """What a reference means at the points, over the indices in its slots."""
        family = self.netsor.families[reference.name]
        if reference.name in self.coefficients:
            starts, values = [start for start, _ in family.ranges], self.coefficients[reference.name]
            return take(values, (REPLICATE,), starts, reference.slots, (), ranges)
        if family.kind == "scalar":
            return self.numbers.average_at(reference, ranges).value
        box = tuple(  # no more than is read: the rest may not be known yet
            whole if rule == "wrap" else (max(slot.span(ranges)[0], whole[0]), min(slot.span(ranges)[1], whole[1]))
            for slot, whole, rule in zip(reference.slots, family.ranges, family.boundaries, strict=True)
        )
        values, starts = self.values(reference.name, box)
        return take(values, (REPLICATE,), starts, reference.slots, (COORDINATE,), ranges, family.boundaries)

    # -- averages -------------------------------------------------------------------------------------------------

    def of_factors(self, p: Sequence[WeightedFunction], q: Sequence[WeightedFunction], ranges: Ranges) -> Value:
        """E of the product of some factors of two parts."""
        if not all(map(self._made_of, (*p, *q))):
            return VectorsAtPoints(self.numbers, self.steps, self.vectors, self._held).of_factors(p, q, ranges)
        key = *p, *q, *ranges.items()
        if self._recent[0] == key:  # as the next of several products with one vector asks
            return self._recent[1]
        own = self.parts.every_range() | dict(ranges)
        sides = []
        for side in (p, q):
            body = product_of([factor.expression for factor in side] or [ONE])
            value = evaluate(body, Scope(self.netsor, own, self.read))
            lead = [axis for axis in (REPLICATE, COORDINATE) if axis not in value.axes]
            axes = (REPLICATE, *(axis for axis in value.axes if axis not in (REPLICATE, COORDINATE)), COORDINATE)
            sizes = dict(zip(value.axes, value.data.shape, strict=True)) | {REPLICATE: self.lead}
            sizes |= {COORDINATE: self.total} if COORDINATE in lead else {}
            sides.append(Open(axes, broadcast(value, axes, sizes)))
        self._recent = key, self._mean(*sides)
        return self._recent[1]

    def _made_of(self, factor: WeightedFunction) -> bool:
        """Whether a factor is a function of what is drawn for the moments that the program needs."""
        names = {variable.name for _, variable, _ in factor.inner}
        sums = ({product, *own} for product, own in self.added.items())
        drawn = self._drawn is None or self.parts.sources(factor) <= set(self._drawn)
        return drawn and all(own <= names or not own & names for own in sums)

    def _mean(self, one: Open, two: Open) -> Value:
        """The mean of a product over the points, with the spread of the replicates that serve one draw."""
        count = self.count
        serving = [slice(k * count, (k + 1) * count) for k in range(REPLICATES if self.numbers.each else 1)]

        def summed(place: tuple[slice, slice]) -> Open:
            first, second = (Open(value.axes, value.data[place[0], ..., place[1]]) for value in (one, two))
            return contract(first, second, [COORDINATE])

        sums = threaded(summed, product(self._apart, serving))
        found = (np.stack if self.numbers.each else np.concatenate)([each.data / count for each in sums])
        if not np.isfinite(found).all():
            raise FloatingPointError("a function of vectors is not finite for some of their values")
        if self.numbers.each:
            return Value(sums[0].axes, Estimate(found.mean(axis=0), standard_errors(found)))
        return Value.of(found, sums[0].axes)


def within(box: Box, other: Box | None) -> bool:
    """Whether a box lies in another."""
    return other is not None and all(a <= start and stop <= b for (start, stop), (a, b) in zip(box, other, strict=True))

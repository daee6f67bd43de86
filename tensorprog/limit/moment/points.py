"""Vectors at quasi-random points: what has no expectation in pairs is averaged over points in place of coordinates.

The cells of an LSTM are functions of all steps before, a batch normalisation is one of all inputs: E[f f'] has no
closed form and no rule in few dimensions.  So vectors get coordinates, which are points in place of networks: one
dimension for each fresh Gaussian, and E is the mean over the points.

    initial    x = L z          L a factor of the declared covariance, z one normal for each member
    MatMul     g = L z          L the rows of a triangular factor of sigma**2 E[x x'], z one normal for each product
    Nonlin     as written
    average    E[u v], as it is known

This is the recursion of `finite.matmul` with averages in place of sums.  Covariances of products are those that the
recursion knows: exact where it has an expectation in pairs, means over points elsewhere.  There are several replicates,
each of which keeps to its own covariances from the first step to the last: their spread is the error.  Given draws of
scores, every draw has covariances of its own, and all replicates serve each of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.several import REPLICATES, point_sets, standard_errors
from tensorprog.language.evaluate import (
    COORDINATE,
    Open,
    Scope,
    align,
    broadcast,
    contract,
    evaluate,
    gather,
    multiply,
    take,
)
from tensorprog.language.expr import Affine, Variable, product_of
from tensorprog.language.ir import Dot, MatMul, Nonlin, Range
from tensorprog.language.linalg import triangular
from tensorprog.language.schedule import Step
from tensorprog.limit.form.definitions import Box, place, target_box
from tensorprog.limit.form.sums_of_functions import ONE, SumsOfFunctions, WeightedFunction
from tensorprog.limit.form.weight_columns import Columns
from tensorprog.limit.memory import need, numbers_at_once
from tensorprog.limit.moment.numbers import EXACT, Numbers, initial_draws
from tensorprog.limit.moment.values import REPLICATE, Value

__all__ = ["FEWEST", "VectorsAtPoints", "variables_drawn"]

Array = NDArray[Any]
Ranges = Mapping[str, Range]
LEAST_LOG2, MOST_LOG2, MOST_GIVEN_LOG2 = 8, 16, 11  # points of a replicate; of one that serves a draw of scores
NUMBERS = 1 << 26  # numbers held by all points together, about
GIVEN = 1 << 15  # the same of one replicate and one draw of scores
FEWEST = REPLICATES << LEAST_LOG2  # points for such a draw


def variables_drawn(parts: SumsOfFunctions, name: str, box: Box | None = None) -> int:
    """Variables, about, that have points for the moments of a vector given scores; 0 where it needs none."""
    family = parts.netsor.families[name]
    if family.kind != "vector":
        return 0
    factors = [factor for part in parts.at(name, box or family.ranges) for factor in parts.factors_of(part)]
    size = math.prod(stop - start for start, stop in box or family.ranges)
    return size * sum(len(factor.inner) for factor in factors if parts.sums_over_vectors(factor))


class VectorsAtPoints:
    """Vectors of one program at points, as far as they are needed.

    `vectors` are those whose moments are asked for; all that they are functions of has points as well.

    Shapes    values of a family (replicates or draws, *members, points), in single precision
    Raises    MemoryLimitError where the fewest points take more than there is
    """

    def __init__(self, numbers: Numbers, steps: Sequence[Step], vectors: Sequence[str], held: int) -> None:
        self.numbers, self.netsor, self.parts = numbers, numbers.netsor, numbers.parts
        self.steps, self.vectors, self._held = steps, vectors, held
        self._values: dict[str, Array] = {}
        self._done: set[int] = set()
        self._closures: dict[str, tuple[set[str], list[int]]] = {}
        self._limit = len(steps)  # steps from here on are not to be made yet
        assert numbers.replicates is not None
        self.lead = numbers.replicates[1]

    # -- which vectors --------------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> Columns:
        """The products of every weight, numbered in the order in which they become known."""
        known = self.numbers.program.known
        if "columns" not in known:
            known["columns"] = Columns(self.netsor, self.steps, dict.fromkeys(self.netsor.scores, 0))
        found: Columns = known["columns"]
        return found

    @cached_property
    def sources(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the normals of weights and initial vectors that functions or averages read.

        What only outputs read is independent of all others.
        """
        fixed, read = dict(self.netsor.fixed_widths), dict[str, None]()
        for statement in self.netsor.body:
            if isinstance(statement, Nonlin) or (isinstance(statement, Dot) and statement.scale == "1/n"):
                read |= dict.fromkeys(v.name for v in statement.inputs if self.parts.is_base(v.name))
        found: dict[str, tuple[int, ...]] = {}
        for name in read:
            if self.netsor.families[name].width in fixed:
                continue
            source = self.parts.source(name)
            initial = not self.netsor.families[name].statements
            shape = self.numbers.initials[name].shape if initial else self.columns.owner[source].shape
            found[source] = tuple(shape)
        return found

    def _closure(self, name: str) -> tuple[set[str], list[int]]:
        """The vectors that a vector is a function of, Gaussian ones last, and the steps that make them."""
        if name not in self._closures:
            found, waiting = {name}, [name]
            while waiting:
                other = waiting.pop()
                if self.parts.is_base(other):
                    continue
                read = {v.name for p in self.netsor.families[other].statements for v in self.netsor.body[p].inputs}
                new = {v for v in read - found if self.netsor.families[v].kind == "vector"}
                found |= new
                waiting += new
            steps = [k for k, step in enumerate(self.steps) if step.statement.target.name in found]
            self._closures[name] = found, steps
        return self._closures[name]

    # -- points ---------------------------------------------------------------------------------------------------

    @cached_property
    def count(self) -> int:
        """Points of one replicate."""
        dims = sum(math.prod(shape) for shape in self.sources.values())
        if self.numbers.each:
            log2 = int(math.log2(max(1, GIVEN // (1 + dims))))
            return 1 << min(max(log2, LEAST_LOG2), MOST_GIVEN_LOG2)
        names = {name for own in self.vectors for name in self._closure(own)[0]}
        names |= {v.name for s in self.netsor.body for v in s.inputs if self.netsor.families[v.name].kind == "vector"}
        # normals of initial vectors make room for their values
        normals = sum(math.prod(shape) for source, shape in self.sources.items() if source not in self.numbers.initials)
        members = max(1, normals + sum(math.prod(self.netsor.families[name].shape) for name in names))
        held = 2 * numbers_at_once(self._held, 2)  # in single precision
        log2 = min(max(int(math.log2(max(1, held // (REPLICATES * members)))), LEAST_LOG2), MOST_LOG2)
        need(
            (REPLICATES * members << log2) / 2,
            f"the fewest points, {1 << log2} in each of {REPLICATES} replicates, of {', '.join(sorted(names))}",
            "make the recurrence shorter",
        )
        return 1 << log2

    @property
    def total(self) -> int:
        """Points of all values."""
        return self.count * REPLICATES if self.numbers.each else self.count

    @cached_property
    def normals(self) -> dict[str, Array]:
        """The normals of every source: of each replicate, or of all of them one after the other.

        What comes first in a recurrence has the first coordinates, in which points are best.

        Shapes    (replicates or 1, *shape of the source, points), in single precision
        """
        looped = any(step.fixed for step in self.steps)
        times = [k * looped for shape in self.sources.values() for k in np.indices(shape)[-1].reshape(-1)]
        coordinates = np.argsort(np.argsort(times, kind="stable"))
        rows, start, found = {}, 0, dict[str, Array]()
        for source, shape in self.sources.items():
            rows[source] = coordinates[start : start + math.prod(shape)]
            start += math.prod(shape)
            lead = (1, *shape, REPLICATES, self.count) if self.numbers.each else (REPLICATES, *shape, self.count)
            found[source] = np.empty(lead, np.float32)
        for k, points in enumerate(point_sets(len(times), int(math.log2(self.count)), 0)):
            for source, shape in self.sources.items():  # one replicate after the other: only what is kept takes memory
                own = points.T[rows[source]].reshape(*shape, -1)
                found[source][(0, ..., k, slice(None)) if self.numbers.each else k] = own
        if self.numbers.each:
            return {source: values.reshape(*values.shape[:-2], -1) for source, values in found.items()}
        return found

    def values(self, name: str, box: Box) -> Array:
        """A vector at the points: its members in a box are known.

        Shapes    (replicates or draws, *members, points)
        """
        family, (closure, steps) = self.netsor.families[name], self._closure(name)
        if self._limit == len(self.steps):  # before anything is half made
            self.numbers.ready(*sorted(closure))
        if name not in self._values and not family.statements:
            initial = next(entry for entry in self.netsor.initial if entry.name == name)
            normals = self.normals.pop(name)  # which nothing else reads
            drawn = np.empty((len(normals), *family.shape, normals.shape[-1]), np.float32)
            for k in range(len(normals)):
                drawn[k] = initial_draws(self.numbers, initial, normals[k : k + 1])[0]
            self._values[name] = np.broadcast_to(drawn, (self.lead, *drawn.shape[1:]))
        numbers = [k for k in steps if k < self._limit and k not in self._done]
        made = [k for k in numbers if self.steps[k].statement.target.name == name and self._meets(k, box)]
        for number in numbers:
            if made and number <= made[-1]:
                self._make(number)
        return self._array(name)

    def _array(self, name: str) -> Array:
        if name not in self._values:
            shape = self.lead, *self.netsor.families[name].shape, self.total
            self._values[name] = np.zeros(shape, np.float32)
        return self._values[name]

    def _meets(self, number: int, box: Box) -> bool:
        step = self.steps[number]
        own = target_box(step.statement, step.ranges(self.netsor.ranges))
        return all(a < stop and start < b for (a, b), (start, stop) in zip(own, box, strict=True))

    def _make(self, number: int) -> None:
        """The members that a step makes, at the points."""
        step, before = self.steps[number], self._limit
        self._limit = number
        try:
            self._enter(step)
        finally:
            self._limit = before
        self._done.add(number)

    def _enter(self, step: Step) -> None:
        statement, ranges = step.statement, step.ranges(self.netsor.ranges)
        name, box = statement.target.name, target_box(statement, ranges)
        family = self.netsor.families[name]
        if isinstance(statement, MatMul):
            found = self._product(name, box)
        else:
            assert isinstance(statement, Nonlin)
            axes = (REPLICATE, *(slot.bare or f"={k}" for k, slot in enumerate(statement.target.slots)), COORDINATE)
            found = align(evaluate(statement.expr, Scope(self.netsor, ranges, self._read)), axes)
        self._array(name)[(slice(None), *place(box, family.ranges))] = found

    def _product(self, name: str, box: Box) -> Array:
        """Products in a box: rows of a triangular factor of their covariances with all before, times normals."""
        family, weight = self.netsor.families[name], self.parts.source(name)
        flat = np.arange(math.prod(family.shape)).reshape(family.shape)[place(box, family.ranges)]
        member, column = self.columns.member[name][flat], self.columns.column[name][flat]
        members, back = np.unique(member, return_inverse=True)
        stop = int(column.max(initial=-1)) + 1
        normals = self.normals[weight][:, members, :stop]
        factor = self._factor(weight, members, stop).astype(np.float32)
        if len(members) == 1:
            rows = factor[:, 0, column.reshape(-1)] @ normals[:, 0]
            return rows.reshape(len(rows), *flat.shape, -1)
        return (factor @ normals)[:, back.reshape(flat.shape), column]

    def _factor(self, weight: str, members: Array, stop: int) -> Array:
        """Triangular factors of the covariance of the first products of some weight members."""
        owner, places = (table[weight][members, :stop] for table in (self.columns.owner, self.columns.place))
        families = self.columns.families[weight]
        draws, cov = np.arange(self.lead)[:, None], np.zeros((self.lead, len(members), stop, stop))
        for a, f in enumerate(families):
            for b, g in enumerate(families):
                w, r, c = np.nonzero((owner == a)[:, :, None] & (owner == b)[:, None, :])
                if w.size:
                    at = self._positions(f, places[w, r], "") | self._positions(g, places[w, c], "_")
                    with self.numbers.by_itself():
                        moment = self.numbers.base(f, g)
                    cov[:, w, r, c] = moment.at({**at, REPLICATE: draws}).value
        return triangular(cov)

    def _positions(self, name: str, flat: Array, copy: str) -> dict[str, Array]:
        family = self.netsor.families[name]
        spots = np.unravel_index(flat, family.shape) if family.shape else ()
        spans = zip(spots, family.ranges, strict=True)
        return {f"{k}{copy}": start + spot[None] for k, (spot, (start, _)) in enumerate(spans)}

    def _read(self, reference: Variable, ranges: Ranges) -> Open:
        family = self.netsor.families[reference.name]
        if family.kind == "scalar":
            return self._average(reference, ranges)
        box = tuple(slot.span(ranges) for slot in reference.slots)
        values = self.values(reference.name, family.ranges if any(family.boundaries) else box)
        starts, rules = [start for start, _ in family.ranges], family.boundaries
        return take(values, (REPLICATE,), starts, reference.slots, (COORDINATE,), ranges, rules)

    def _average(self, reference: Variable, ranges: Ranges) -> Open:
        """An average, in half of the replicates larger by its error, in the others smaller: the spread tells what that
        does.  Which half is another one for other averages.
        """
        value = self.numbers.average_at(reference, ranges)
        if not np.any(value.estimate.error > EXACT * np.abs(value.estimate.value)):
            return value.value
        half = 1 + sorted(self.netsor.families).index(reference.name) % (REPLICATES - 1)
        signs = np.array([1.0 - 2 * ((half & k).bit_count() % 2) for k in range(REPLICATES)])
        side = Open((REPLICATE,), signs)
        if self.numbers.each:
            side = Open((COORDINATE,), np.repeat(signs, self.count))
        moved = multiply(value.error, side)
        return Open(moved.axes, align(value.value, moved.axes) + moved.data)

    # -- averages -------------------------------------------------------------------------------------------------

    def independent(self, f: str, g: str) -> bool:
        """Whether two vectors depend on different weights and initial vectors."""
        one, two = (
            {self.parts.source(name) for name in self._closure(of)[0] if self.parts.is_base(name)} for of in (f, g)
        )
        return one.isdisjoint(two)

    def of_factors(self, p: Sequence[WeightedFunction], q: Sequence[WeightedFunction], ranges: Ranges) -> Value:
        """E of the product of some factors of two parts."""
        own = self.parts.every_range() | dict(ranges)
        sides = []
        for side in (p, q):
            body = product_of([factor.expression for factor in side] or [ONE])
            value = evaluate(body, Scope(self.netsor, own, self._read))
            lead = [axis for axis in (REPLICATE, COORDINATE) if axis not in value.axes]
            axes = (REPLICATE, *(axis for axis in value.axes if axis not in (REPLICATE, COORDINATE)), COORDINATE)
            sizes = dict(zip(value.axes, value.data.shape, strict=True)) | {REPLICATE: self.lead}
            sizes |= {COORDINATE: self.total} if COORDINATE in lead else {}
            sides.append(Open(axes, broadcast(value, axes, sizes)))
        return self._mean(*sides)

    def average(self, f: str, g: str, ranges: Ranges, at: Mapping[str, Affine]) -> Value:
        """E of the product of two vectors, positions '0', ... of one and '0_', ..., or `at` others, of the other."""
        one = self._at(f, {str(k): Affine.index(str(k)) for k in range(len(self.netsor.families[f].ranges))}, ranges)
        names = (f"{k}_" for k in range(len(self.netsor.families[g].ranges)))
        two = self._at(g, {name[:-1]: at.get(name, Affine.index(name)) for name in names}, ranges)
        return self._mean(one, two)

    def mean(self, name: str, ranges: Ranges, order: int = 1) -> Value:
        """E of a power of a vector."""
        one = self._at(
            name, {k: Affine.index(k) for k in map(str, range(len(self.netsor.families[name].ranges)))}, ranges
        )
        return self._mean(Open(one.axes, one.data**order), Open((COORDINATE,), np.ones(self.total)))

    def _at(self, name: str, slots: Mapping[str, Affine], ranges: Ranges) -> Open:
        """A vector at the points, at forms of indices in the ranges."""
        family = self.netsor.families[name]
        values = self.values(name, tuple(slot.span(ranges) for slot in slots.values()))
        starts = {str(k): start for k, (start, _) in enumerate(family.ranges)}
        return gather(Open((REPLICATE, *slots, COORDINATE), values), slots, ranges, starts)

    def _mean(self, one: Open, two: Open) -> Value:
        """The mean of a product over the points, with the spread of the replicates that serve one draw."""
        count = self.count
        if not self.numbers.each:
            found = contract(one, two, [COORDINATE])
            return Value.of(_finite(found.data / count), found.axes)
        parts = [
            [Open(v.axes, v.data[..., k * count : (k + 1) * count]) for v in (one, two)] for k in range(REPLICATES)
        ]
        sums = [contract(first, second, [COORDINATE]) for first, second in parts]
        each = _finite(np.stack([part.data for part in sums]) / count)
        return Value(sums[0].axes, Estimate(each.mean(axis=0), standard_errors(each)))


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise FloatingPointError("a function of vectors is not finite for some of their values")
    return values

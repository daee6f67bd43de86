"""Carried families that are linear in themselves: second moments given their coefficients in closed form.

The state of a GRU, h[t] = (1 - z[t]) h[t-1] + z[t] n[t], is a sum of functions b_k of Gaussian variables that are
independent of its coefficients:

    h_t = sum_k w_tk b_k        E[h_t h_t' | w] = sum_kl w_tk w_t'l E[b_k b_l]

with E[b_k b_l] by closed form or quadrature.  So only the weights w are averaged over draws, which vary far less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.expr import Expr, Variable
from tensorprog.language.ir import MatMul, Range
from tensorprog.language.named_arrays import COORDINATE, Open, align, contract, multiply
from tensorprog.limit.form.definitions import place, product_of
from tensorprog.limit.form.sums_of_functions import FORMAL, ONE, Part
from tensorprog.limit.moment.products import factors_of, written
from tensorprog.limit.moment.recurrences import Box, box_ranges, merged
from tensorprog.limit.moment.replicates import REPLICATE, members_read

if TYPE_CHECKING:
    from tensorprog.limit.moment.paths import Paths

__all__ = ["Source", "Weights", "meet", "plain"]

Array = NDArray[Any]
Source = tuple[str, tuple[int | None, ...]]  # a weight with the slots that are numbers, or initial vectors
SUMMAND, OTHER = "k", "k_"  # axes of the b_k


@dataclass(frozen=True)
class _Summand:
    """coefficient * (a carried variable, or a function b of Gaussian variables independent of all coefficients)."""

    coefficient: Expr
    carried: Variable | None
    function: Part  # b, or 1
    position: int  # of the statement
    number: int  # of the summand in it


class Weights:
    """The weights w of all carried families of a program, if every definition of them is linear.

    Shapes    weights of a family (replicates, *members, summands, draws); moments of the b_k (replicates, summands,
              summands)
    """

    def __init__(self, paths: Paths) -> None:
        self.paths, self.parts, self.netsor = paths, paths.parts, paths.netsor
        self.summands = self._summands() if self._wanted() else None
        sizes = [self._size(s) for each in (self.summands or {}).values() for s in each if s.carried is None]
        self.count = sum(sizes)
        self._places: dict[tuple[int, int], Array] = {}  # number of b_k by member
        self._known: dict[tuple[int, int], list[Box]] = {}
        self._weights: dict[str, Array] = {}
        self._used = 0
        self._moments = np.zeros((0, 0, 0))

    def _wanted(self) -> bool:
        """Whether second moments of carried variables themselves are read, not of nonlinear functions of them."""
        vectors = {s.vector.name for s in self.netsor.body if isinstance(s, MatMul)} - self.paths.numbers.random
        parts = [part for name in sorted({*vectors, *self.netsor.outputs}) for part in self._parts_of(name)]
        return any(plain(factor, self.parts.carried) for part in parts for factor in factors_of(self.parts, part))

    def _parts_of(self, name: str) -> Sequence[Part]:
        return self.parts.of(name) if self.netsor.families[name].kind == "vector" else ()

    # -- what is linear -----------------------------------------------------------------------------------------

    def _summands(self) -> dict[int, list[_Summand]] | None:
        """The summands of every statement; None if one is not linear, or has nothing to integrate out."""
        split: list[tuple[int, Part, Variable | None, list[Part]]] = []
        for name in sorted(self.paths.families):
            for position in self.netsor.families[name].statements:
                for part in self.parts.split(self.parts.statement(position)):
                    found = self._linear(part)
                    if found is None:
                        return None
                    split.append((position, part, *found))
        fixed = {s for _, _, v, factors in split if v is not None for f in factors for s in self.paths.sources_of(f)}
        result: dict[int, list[_Summand]] = {}
        for position, part, variable, factors in split:
            apart = [f for f in factors if f.function is not None and not meet(fixed, self.paths.sources_of(f))]
            free = [] if variable is not None else apart
            held = [f for f in factors if not any(f is g for g in free)]
            coefficient = product_of([part.coefficient, *(written(f) for f in held)])
            whole = product_of([written(f) for f in free])
            function = Part(ONE) if whole == ONE else self.parts.function_part(whole)
            own = result.setdefault(position, [])
            own.append(_Summand(coefficient, variable, function, position, len(own)))
        return result if any(s.function.function is not None for each in result.values() for s in each) else None

    def _linear(self, part: Part) -> tuple[Variable | None, list[Part]] | None:
        """The carried variable of a part, if any, and its other factors; None if it is not linear in one."""
        found, others = [], []
        for factor in factors_of(self.parts, part):
            reads = [v for _, v, _ in factor.inner if v.name in self.parts.carried]
            if reads and not plain(factor, self.parts.carried):
                return None
            found += reads
            others += [] if reads else [factor]
        return None if len(found) > 1 or part.all_bound else (found[0] if found else None, others)

    def _size(self, summand: _Summand) -> int:
        ranges = self.netsor.ranges
        slots = self.netsor.body[summand.position].target.slots
        return math.prod(high + 1 - low for low, high in (slot.bounds(ranges) for slot in slots))

    # -- weights ------------------------------------------------------------------------------------------------

    def step(self, position: int, box: Box) -> None:
        """The weights of the members in a box, by one statement."""
        if self.summands is None:
            return
        name, ranges = self.netsor.body[position].target.name, box_ranges(box)
        family, replicates = self.netsor.families[name], self.paths.range[1]
        if name not in self._weights:
            self._weights[name] = np.zeros((replicates, *family.shape, self.count, self.paths.points))
        own = self._weights[name][(slice(None), *place(box, family.ranges))]
        axes = (REPLICATE, *ranges, SUMMAND, COORDINATE)
        groups = self.paths.replicate_groups(math.prod(b - a for a, b in box) * self.count)
        for summand in self.summands[position]:
            numbers = None if summand.carried is not None else self._enter(summand, box)
            for part in groups:
                coefficient, values = self.paths.evaluate(summand.coefficient, ranges, part), own[part]
                if summand.carried is not None:
                    values += align(multiply(coefficient, self._read(summand.carried, ranges, part)), axes)
                    continue
                assert numbers is not None
                full = np.broadcast_to(align(coefficient, (REPLICATE, *ranges, COORDINATE)), values[..., 0, :].shape)
                spot = np.indices(numbers.shape, sparse=True)
                values[(slice(None), *spot, numbers)] += full

    def _enter(self, summand: _Summand, box: Box) -> Array:
        """Numbers of the functions b of a summand in a box, with their moments entered."""
        key = summand.position, summand.number
        shape = tuple(b - a for a, b in box)
        self._known[key] = merged([*self._known.get(key, ()), box])
        numbers = self._used + np.arange(math.prod(shape)).reshape(shape)
        self._used += numbers.size
        family = self.netsor.families[self.netsor.body[summand.position].target.name]
        self._places.setdefault(key, np.full(family.shape, -1))[place(box, family.ranges)] = numbers
        if not self._moments.size:
            self._moments = np.zeros((self.paths.range[1], self.count, self.count))
        for other in (s for each in (self.summands or {}).values() for s in each if s.carried is None):
            for known in self._known.get((other.position, other.number), ()):
                self._enter_moment(summand, box, other, known)
        return numbers

    def _enter_moment(self, first: _Summand, box: Box, second: _Summand, known: Box) -> None:
        numbers, ranges = self.paths.numbers, box_ranges(box, known)
        moment = numbers.expectation(first.function, second.function, numbers.over(ranges))
        grid = [np.arange(*span).reshape([-1 if k == n else 1 for n in range(len(ranges) + 1)])
                for k, span in enumerate(ranges.values(), 1)]  # fmt: skip
        at = dict(zip(ranges, grid, strict=True))
        replicates = np.arange(self.paths.range[1]).reshape([-1] + [1] * len(ranges))
        value = moment.at({**at, REPLICATE: replicates}).value
        value = np.broadcast_to(value, (len(replicates), *(b - a for a, b in ranges.values())))
        rows, columns = (self._numbers(s, b) for s, b in ((first, box), (second, known)))
        block = value.reshape(len(replicates), rows.size, columns.size)
        self._moments[:, rows[:, None], columns] = block
        self._moments[:, columns[:, None], rows] = np.swapaxes(block, 1, 2)

    def _numbers(self, summand: _Summand, box: Box) -> Array:
        family = self.netsor.families[self.netsor.body[summand.position].target.name]
        return self._places[summand.position, summand.number][place(box, family.ranges)].reshape(-1)

    def _read(self, reference: Variable, ranges: Mapping[str, Range], part: slice) -> Open:
        family = self.netsor.families[reference.name]
        return members_read(self._weights[reference.name][part], reference, family, ranges, SUMMAND, COORDINATE)

    # -- averages -----------------------------------------------------------------------------------------------

    def average(self, first: Variable, second: Variable, ranges: Mapping[str, Range]) -> Open | None:
        """E[c c'] of two carried variables, for every replicate; None where their weights are not known."""
        self.paths.numbers.ready(first.name, second.name)
        if self.summands is None:
            return None
        families = (self.netsor.families[reference.name] for reference in (first, second))
        groups = self.paths.replicate_groups(self.count * sum(math.prod(family.shape) for family in families))
        found = [self._average(first, second, ranges, part) for part in groups]
        return Open(found[0].axes, np.concatenate([each.data for each in found]) / self.paths.points)

    def _average(self, first: Variable, second: Variable, ranges: Mapping[str, Range], part: slice) -> Open:
        """The sum over the draws of some replicates, which are the first axis."""
        one, two = (self._read(reference, ranges, part) for reference in (first, second))
        middle = contract(one, Open((REPLICATE, SUMMAND, OTHER), self._moments[part]), [SUMMAND])
        renamed = Open(tuple(OTHER if axis == SUMMAND else axis for axis in two.axes), two.data)
        return contract(middle, renamed, [OTHER, COORDINATE])


def meet(first: Iterable[Source], second: Iterable[Source]) -> bool:
    """Whether two sets of sources have a weight matrix or initial vectors in common."""
    return any(
        a == b and all(None in pair or pair[0] == pair[1] for pair in zip(slots, others, strict=True))
        for a, slots in first
        for b, others in second
    )


def plain(factor: Part, carried: frozenset[str]) -> bool:
    """Whether a factor is a carried variable."""
    if factor.function != FORMAL or len(factor.inner) > 1:
        return False
    weight, variable, bound = factor.inner[0]
    return weight == ONE and not bound and variable.name in carried

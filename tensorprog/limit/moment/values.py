"""Numbers with errors over named axes, and `IndexedValues`: sums of 1[equations between indices] * such numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.function import RealFunction
from tensorprog.gaussian.pairs import Pairs
from tensorprog.gaussian.several import standard_errors
from tensorprog.language.evaluate import Open, affine_values, align, contract, elementwise, gathered, union
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range
from tensorprog.limit.memory import need
from tensorprog.limit.moment.indexed import NOTHING, Equations, Indexed, Term, solve

__all__ = [
    "REPLICATE", "DeferredPairs", "Factored", "IndexedValues", "Latest", "PassedError", "Settled", "Value",
    "check_memory", "picked",
]  # fmt: skip

Array = NDArray[Any]
Ranges = Mapping[str, Range]
REPLICATE = "&"  # the axis of replicates of draws, or of draws that have moments of their own
ROUNDING = 1e-12  # relative errors that are rounding, and may be the same for all of one draw
LESS = 2  # a value is read where it is asked for, if more than so many times its numbers are read
FEW = 1 << 17  # numbers that are not worth counting
WORKED = 4  # arrays of numbers, errors and what is needed on the way, where two arrays make a third


def check_memory(shape: Sequence[int], arrays: int = WORKED) -> None:
    """Raise MemoryLimitError if moments of this shape do not fit."""
    numbers = math.prod(shape)
    need(arrays * numbers, f"an array of {numbers} moments")


@dataclass(eq=False)
class Value:
    """An estimate with named axes."""

    axes: tuple[str, ...]
    estimate: Estimate

    @classmethod
    def of(cls, data: Any, axes: Sequence[str] = (), error: Any = None) -> Value:
        """From plain numbers."""
        array = np.asarray(data, dtype=np.float64)
        if error is None and array.ndim == 0:
            return cls((), Estimate(array, np.zeros(())))
        return cls(tuple(axes), Estimate(array, np.broadcast_to(0.0 if error is None else error, array.shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self.estimate.value.shape

    @property
    def value(self) -> Open:
        """The numbers."""
        return Open(self.axes, self.estimate.value)

    @property
    def error(self) -> Open:
        """The bounds on their errors."""
        return Open(self.axes, self.estimate.error)

    def aligned(self, axes: Sequence[str]) -> Estimate:
        """The estimate with exactly the axes named, missing ones of length 1."""
        if self.axes == tuple(axes):
            return self.estimate
        own, found = self.axes, self.estimate
        order = [own.index(name) for name in axes if name in own]
        key = tuple([slice(None) if name in own else None for name in axes])
        return Estimate(found.value.transpose(order)[key], found.error.transpose(order)[key])

    def _with(self, other: Value, operation: Callable[[Estimate, Estimate], Estimate]) -> Value:
        """The values under an operation, over all axes, if that has room."""
        for kind in (DeferredPairs, Gathered):
            deferred = kind.combined(self, other, operation) or kind.combined(other, self, operation)
            if deferred is not None:
                return deferred
        axes = union(self.axes, other.axes)
        one, two = self.aligned(axes), other.aligned(axes)
        larger = one.value.size * two.value.size if len(axes) > max(len(self.axes), len(other.axes)) else 0
        if max(larger, one.value.size, two.value.size) > FEW:
            check_memory(np.broadcast_shapes(one.value.shape, two.value.shape))
        return Value(axes, operation(one, two))

    def __add__(self, other: Value) -> Value:
        return self._with(other, operator.add)

    def __mul__(self, other: Value) -> Value:
        return self._with(other, operator.mul)

    def summed(self, over: Sequence[str]) -> Value:
        """The sum over some axes."""
        if not over:
            return self
        if REPLICATE in self.axes:
            return self.contracted(Value.of(1.0), over)
        axes, known = tuple(self.axes.index(name) for name in over), self.estimate
        error = 2 * EPS * np.abs(known.value)
        error += known.error
        found = Estimate(np.asarray(known.value.sum(axis=axes)), np.asarray(error.sum(axis=axes)))
        return Value(tuple(name for name in self.axes if name not in over), found)

    def contracted(self, other: Value, over: Sequence[str]) -> Value:
        """The sum of products over some axes, never formed one by one.

        Rounding of many draws has one bound, if that is small: a sum of products is at most the sum of the sizes of the
        first factors times the largest of the others.
        """
        a, b = self.value, other.value
        if not over and (not (REPLICATE in a.axes and not b.axes) or self.zero()):
            return self * other
        data = contract(a, b, over) if over else elementwise(np.multiply, a, b)
        if REPLICATE in data.axes:
            lengths = dict(zip((*a.axes, *b.axes), (*a.data.shape, *b.data.shape), strict=True))
            coarse = self._size(over) * (other.bound.error + EPS * other.bound.value)
            coarse = coarse + other._size(over) * (self.bound.error + EPS * self.bound.value)
            coarse = coarse * math.prod(lengths[name] for name in over)
            if coarse <= ROUNDING * np.max(np.abs(data.data), initial=0.0):
                return Value(data.axes, Estimate(data.data, np.broadcast_to(coarse, data.data.shape)))
        if not over:
            return self * other
        sizes = Open(a.axes, np.abs(a.data)), Open(b.axes, np.abs(b.data))
        error = Open(a.axes, self.estimate.error + 2 * EPS * sizes[0].data)
        bound = contract(error, Open(b.axes, sizes[1].data + other.estimate.error), over).data
        if other.estimate.error.any():
            bound = bound + contract(sizes[0], other.error, over).data
        return Value(data.axes, Estimate(data.data, bound))

    def along(self, table: Value) -> Value:
        """Sums of products with a table over its first axis, whose place its others take."""
        axis, *others = table.axes
        place, known, weights = self.axes.index(axis), self.estimate, table.estimate
        count, lead = self.shape[place], math.prod(self.shape[:place])

        def sums(table: Array, array: Array) -> Array:
            rows, parts = table.reshape(count, -1).T, array.reshape(lead, count, -1)
            found = rows @ parts if parts.shape[-1] > 1 else parts[..., 0] @ rows.T
            return found.reshape(*self.shape[:place], *table.shape[1:], *self.shape[place + 1 :])

        sizes = np.abs(weights.value) + weights.error
        rounding = 2 * EPS + float(np.divide(weights.error, sizes, out=np.zeros(sizes.shape), where=sizes > 0).max())
        found = Estimate(sums(weights.value, known.value), sums(sizes, known.error + rounding * np.abs(known.value)))
        return Value((*self.axes[:place], *others, *self.axes[place + 1 :]), found)

    def _size(self, over: Sequence[str]) -> float:
        """The largest mean of sizes over some axes."""
        value = self.estimate.value
        sizes = value if np.min(value, initial=0.0) >= 0 else np.abs(value)
        return float(np.max(sizes.mean(axis=tuple(self.axes.index(n) for n in over if n in self.axes)), initial=0.0))

    def scaled(self, factor: float) -> Value:
        """Times a number that is exact."""
        value, exact = self.estimate.value * factor, abs(factor) in (0.5, 1.0)
        error = self.estimate.error * abs(factor)
        return Value(self.axes, Estimate(value, error if exact else error + EPS * np.abs(value)))

    def gather(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """Read every axis at an affine form of new indices; values outside the axis, modulo its length."""
        read = {name: slots[name] for name in self.axes if name in slots}
        if not read:
            return self
        if REPLICATE not in self.axes:
            lazy = Gathered(self, read, ranges, starts)
            if math.prod(lazy.shape) > max(FEW, LESS * math.prod(self.shape)):
                return lazy
        parts = self.estimate.value, self.estimate.error
        axes, found = gathered(self.axes, parts, slots, ranges, starts)
        return self if found is parts else Value(axes, Estimate(*found))

    def widened(self, ranges: Ranges, whole: Ranges) -> Value:
        """The value over larger ranges of some indices, zero outside its own."""
        if all(tuple(span) == tuple(whole[name]) for name, span in ranges.items()):
            return self
        return Value.of(0.0).overwritten(self, ranges, whole)

    def overwritten(self, value: Value, ranges: Ranges, whole: Ranges) -> Value:
        """The value over whole ranges with the part in smaller ranges replaced, in place where it has all axes."""
        partial = [name for name, span in ranges.items() if tuple(span) != tuple(whole[name])]
        axes = union(partial, value.axes, self.axes)  # parts are whole stretches of memory
        axes = self.axes if set(axes) == set(self.axes) else axes
        old = self.estimate
        if self.axes != axes:
            shape = [whole[name][1] - whole[name][0] for name in axes]
            check_memory(shape, 2)
            known, old = self.aligned(axes), Estimate(np.zeros(shape), np.zeros(shape))
            if not self.zero():
                old.value[...], old.error[...] = known.value, known.error
        place = tuple(slice(ranges[a][0] - whole[a][0], ranges[a][1] - whole[a][0]) if a in ranges else slice(None)
                      for a in axes)  # fmt: skip
        found = value.aligned(axes)
        old.value[place] = found.value
        if found.error.any() or old.error[place].any():  # else memory of zeros is not touched
            old.error[place] = found.error
        return Value(axes, old)

    def zero(self) -> bool:
        """Whether the value is exactly zero."""
        each = (f.estimate for f in self.factors)
        return any(not (f.value.flat[:1].any() or f.value.any() or f.error.any()) for f in each)  # most begin so

    def is_rounding(self, whole: Value) -> bool:
        """Whether what is left of a value is within its error, and that of the size of rounding errors."""
        value, error = self.estimate.value, self.estimate.error
        small = np.max(error, initial=0.0) <= ROUNDING * float(whole.bound.value)
        return bool(small and np.all(np.abs(value) <= error))

    def settled(self) -> Value:
        """The mean over replicates of draws; its statistical error is part of the error."""
        if REPLICATE not in self.axes:
            return self
        axes = tuple(name for name in self.axes if name != REPLICATE)
        each = self.aligned((REPLICATE, *axes))
        error = standard_errors(each.value) + each.error.mean(axis=0)
        return Value(axes, Estimate(np.asarray(each.value.mean(axis=0)), error))

    @property
    def factors(self) -> tuple[Value, ...]:
        """What the value is a product of: itself."""
        return (self,)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that stand behind the value."""
        return tuple(a for factor in self.factors for a in (factor.estimate.value, factor.estimate.error))

    @cached_property
    def bound(self) -> Estimate:
        """A bound on the size of the numbers, and on their errors."""
        found = Estimate.exact(1.0)
        for value, error in zip(self.arrays[::2], self.arrays[1::2], strict=True):
            largest = np.maximum(np.max(value, initial=0.0), -np.min(value, initial=0.0))
            found = found * Estimate(np.asarray(largest), np.asarray(np.max(error, initial=0.0)))
        return found

    def at(self, positions: Mapping[str, Array], starts: Mapping[str, int]) -> Estimate:
        """Numbers at index arrays, one for each axis, that broadcast against each other."""
        found = Estimate.exact(1.0)
        for factor in self.factors:
            key = [positions[name] - starts[name] for name in factor.axes]
            found = found * Estimate(picked(factor.estimate.value, key), picked(factor.estimate.error, key))
        return found


def picked(values: Array, places: Sequence[NDArray[np.int64]]) -> Array:
    """The values at index arrays, one for each axis; a view in other order, where stretches of each axis are taken.

    So ten draws of 12 heads and 1,024 tokens take a third less time.
    """
    along = [int(np.argmax(own.shape)) - own.ndim if own.size > 1 else k for k, own in enumerate(places)]
    flat = [own.reshape(-1) for own in places]
    for m, k in enumerate(map(along.index, along)):
        if k < m and values.shape[k] == values.shape[m] and np.array_equal(flat[k], flat[m]):  # a diagonal
            others = [own for number, own in enumerate(places) if number not in (k, m)]
            return picked(values.diagonal(0, k, m), [*others, places[m]])
    stretches = all(
        own.size == max(own.shape, default=1) and np.array_equal(line, line[:1] + np.arange(line.size))
        for own, line in zip(places, flat, strict=True)
    )
    if len(set(along)) < len(along) or not stretches:
        return np.asarray(values[tuple(places)])
    part = values[tuple(slice(line[0], line[0] + line.size) if line.size else slice(0) for line in flat)]
    order = sorted(range(len(along)), key=along.__getitem__)
    return part.transpose(order).reshape(np.broadcast_shapes(*(own.shape for own in places)))


class Factored(Value):
    """A product of values over different axes, as (query, query) x (key, key): multiplied out only where it is read."""

    def __init__(self, factors: Sequence[Value]) -> None:
        self.axes, self._factors = union(*(factor.axes for factor in factors)), tuple(factors)

    @classmethod
    def kept(cls, first: Value, second: Value) -> Value:
        """The product of two values, kept apart where it would have more axes than either."""
        axes = set(union(first.axes, second.axes))
        plain = axes in (set(first.axes), set(second.axes))
        return first * second if plain else cls(first.factors + second.factors)

    @property
    def factors(self) -> tuple[Value, ...]:
        """What the value is a product of."""
        return self._factors

    @property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """The product multiplied out."""
        return math.prod((factor.aligned(self.axes) for factor in self.factors), start=Estimate.exact(1.0))

    def gather(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """Read every axis of every factor at an affine form of new indices."""
        first, *others = (factor.gather(slots, ranges, starts) for factor in self.factors)
        return reduce(Factored.kept, others, first)


class Gathered(Value):
    """A value read at forms of more indices than it has, times values over a few of these, as convolutions read.

    Sums over indices of such a form are products by a matrix with one row for each place that it reads; all numbers are
    multiplied out only where they are asked for.  Without it, convolutions on 20 images take
    twice the time.
    """

    def __init__(
        self, known: Value, slots: Mapping[str, Affine], ranges: Ranges, starts: Mapping[str, int],
        others: Sequence[Value] = (),
    ) -> None:  # fmt: skip
        read = union(*(slots.get(name, Affine.index(name)).indices for name in known.axes))
        self.axes, self.known, self.others = union(read, *(other.axes for other in others)), known, tuple(others)
        self.slots, self.ranges, self.starts = slots, ranges, starts

    @cached_property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """All numbers."""
        check_memory(self.shape)
        parts = self.known.estimate.value, self.known.estimate.error
        axes, found = gathered(self.known.axes, parts, self.slots, self.ranges, self.starts)
        value = reduce(operator.mul, self.others, Value(axes, Estimate(*found)))
        return value.aligned(self.axes).reshape(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        sizes = dict(zip(self.known.axes, self.known.shape, strict=True))
        sizes |= {name: self.ranges[name][1] - self.ranges[name][0] for name in self.axes if name in self.ranges}
        return tuple(sizes[name] for name in self.axes)

    def zero(self) -> bool:
        """Whether a factor is exactly zero."""
        return self.known.zero() or any(other.zero() for other in self.others)

    @staticmethod
    def combined(one: Value, two: Value, operation: Callable[[Estimate, Estimate], Estimate]) -> Gathered | None:
        """The product with a value over some of its axes; else None."""
        if not isinstance(one, Gathered) or operation is not operator.mul or not set(two.axes) <= set(one.axes):
            return None
        return Gathered(one.known, one.slots, one.ranges, one.starts, (*one.others, two))

    def gather(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """Read at forms of other indices."""
        forms = {name: self.slots.get(name, Affine.index(name)).at(slots) for name in self.known.axes}
        others = [other.gather(slots, ranges, starts) for other in self.others]
        return Gathered(self.known, forms, ranges, self.starts, others)

    def summed(self, over: Sequence[str]) -> Value:
        """The sum over some axes."""
        known, slots, others, starts = self.known, dict(self.slots), list(self.others), dict(self.starts)
        ranges = self.ranges
        for name in over:
            own = [other for other in others if name in other.axes or not other.axes]
            factor = reduce(operator.mul, own, Value.of(np.ones(_length(ranges[name])), (name,)))
            others = [other for other in others if other.axes and name not in other.axes]
            forms = {axis: slots.get(axis, Affine.index(axis)) for axis in known.axes}
            places = [axis for axis, form in forms.items() if name in form.indices]
            if not places:
                others.append(factor.summed((name,)))
                continue
            left = union(*([index for index in forms[axis].indices if index != name] for axis in places))
            ends = {index: Affine.index(f"{index}>") for index in left}
            if not set(factor.axes) <= {*left, name} or any(f"{index}>" in forms for index in left):
                return super().summed(over)
            if len(places) == 1 and len(left) <= 1:
                known = known.along(_table(factor, forms[places[0]], places[0], name, known, ranges, starts))
            else:
                known = _of_windows(known, factor, {axis: forms[axis] for axis in places}, name, ends, ranges, starts)
            for index in left:
                slots[f"{index}>"], starts[f"{index}>"] = Affine.index(index), ranges[index][0]
        return reduce(operator.mul, others, known.gather(slots, ranges, starts))


def _table(
    factor: Value, form: Affine, axis: str, name: str, known: Value, ranges: Ranges, starts: Mapping[str, int]
) -> Value:
    """The matrix of a sum over an index, of an axis that is read at a form of this index and of one more at most."""
    left = [index for index in form.indices if index != name]
    lengths = [_length(ranges[index]) for index in left]
    tables = np.zeros((2, known.shape[known.axes.index(axis)], *lengths))
    at = (align(affine_values(form, ranges), (*left, name)) - starts[axis]) % tables.shape[1]
    for table, part in zip(tables, (factor.value, factor.error), strict=True):
        np.add.at(table, (at, *(np.arange(n)[:, None] for n in lengths)), align(part, (*left, name)))
    return Value((axis, *(f"{index}>" for index in left)), Estimate(*tables))


def _of_windows(
    known: Value, factor: Value, forms: Mapping[str, Affine], name: str, ends: Mapping[str, Affine], ranges: Ranges,
    starts: Mapping[str, int],
) -> Value:  # fmt: skip
    """The sum over an index of axes that are read at forms of it, one value of the index after the other."""
    spans = {**ranges, **{f"{index}>": ranges[index] for index in ends}}

    def window(value: int) -> Value:
        at = {**ends, name: Affine((), value)}
        read = known.gather({axis: form.at(at) for axis, form in forms.items()}, spans, starts)
        return read * factor.gather(at, spans, _starts(ranges))

    return reduce(operator.add, map(window, range(*ranges[name])))


def _length(span: Range) -> int:
    return span[1] - span[0]


class DeferredPairs(Value):
    """A symmetric matrix over an axis and its copy whose entries are computed where they are read."""

    def __init__(self, axes: Sequence[str], pairs: Pairs) -> None:
        self.axes, self.pairs = tuple(sorted(axes)), pairs

    @property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """All entries."""
        if "estimate" not in self.pairs.__dict__:
            check_memory(self.shape, 1 if self.pairs.alike else 2)
        return self.pairs.estimate

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self.pairs.diagonal.value.shape * 2

    def zero(self) -> bool:
        """Whether the matrix is exactly zero."""
        return not (self.pairs.growing or self.pairs.diagonal.value.any() or any(array.any() for array in self.arrays))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that bound all entries."""
        return self.pairs.diagonal.value, np.maximum(self.pairs.diagonal.error, self.pairs.bounds.error)

    @staticmethod
    def combined(one: Value, two: Value, operation: Callable[[Estimate, Estimate], Estimate]) -> DeferredPairs | None:
        """The sum or product of a matrix with another, or with a number that is not negative; else None."""
        if not isinstance(one, DeferredPairs):
            return None
        if isinstance(two, DeferredPairs):
            return DeferredPairs(one.axes, one.pairs.combined(two.pairs, operation)) if one.axes == two.axes else None
        if two.axes or two.estimate.value < 0:
            return None
        return DeferredPairs(one.axes, one.pairs.combined(two.estimate, operation))

    def scaled(self, factor: float) -> Value:
        """Times a number that is exact."""
        return self * Value.of(factor)

    def gather(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """The same under other names, of members next to each other, or at equal places; of other parts all entries."""
        forms, size = [slots.get(name, Affine.index(name)) for name in self.axes], self.shape[0]
        one, two = ((f - starts[name]).span(ranges) for f, name in zip(forms, self.axes, strict=True))
        alone = all(len(f.terms) == 1 and f.terms[0][1] == 1 for f in forms)
        if not alone or one != two or one[0] < 0 or one[1] > size:
            return super().gather(slots, ranges, starts)
        first, second = (f.terms[0][0] for f in forms)
        if first == second:
            return Value((first,), self.pairs.diagonal[slice(*one)])
        pairs = self.pairs if one == (0, size) else self.pairs.moved(one[0], one[1] - one[0])
        return DeferredPairs((first, second), pairs)

    def widened(self, ranges: Ranges, whole: Ranges) -> Value:
        """The value over larger ranges, zero outside its own."""
        own, other = ({tuple(spans.get(name, ())) for name in self.axes} for spans in (ranges, whole))
        if len(own) + len(other) > 2 or own == other or own == {()}:
            return super().widened(ranges, whole)
        (start, _), (low, high) = own.pop(), other.pop()
        return DeferredPairs(self.axes, self.pairs.moved(low - start, high - low))

    def under(self, f: RealFunction, variances: Sequence[Value]) -> DeferredPairs | None:
        """E f(X) f(Y) for X, Y of mean 0, these variances and covariances; None where it is not deferred."""
        own = self.pairs.diagonal
        for var in (value.estimate for value in variances):
            if var.value.shape != own.value.shape or np.any(np.abs(var.value - own.value) > var.error + own.error):
                return None
        found = self.pairs.under(f)
        return None if found is None else DeferredPairs(self.axes, found)


@dataclass(eq=False)
class IndexedValues(Indexed[Value]):
    """Numbers with errors, kept as summands; terms with equal equations are one, terms that are zero are dropped."""

    @classmethod
    def constant(cls, value: Any, ranges: Ranges) -> IndexedValues:
        """One value, or number, everywhere."""
        if not isinstance(value, Value):
            value = None if value == 0 else Value.of(value)
        return cls(() if value is None or value.zero() else (Term(NOTHING, value),), ranges)

    @classmethod
    def of_overlapping(cls, summands: Iterable[tuple[Equations, Value]], ranges: Ranges) -> IndexedValues:
        """From values that count wherever their equations hold, read where the equations put them."""
        starts = _starts(ranges)
        terms = (Term(e, v.gather(solve(e), ranges, starts) if e else v) for e, v in summands)
        return cls(tuple(terms), ranges).merged()

    @classmethod
    def of_cases(cls, cases: Mapping[Equations, Value], ranges: Ranges, prefer: Sequence[str] = ()) -> IndexedValues:
        """By inclusion and exclusion; what is left of a value within its rounding error is dropped."""
        starts, found = _starts(ranges), dict[Equations, Value]()
        for equations in sorted(cases, key=len):
            whole, solution = cases[equations], solve(equations, prefer)
            value = whole
            for smaller, part in found.items():
                if smaller < equations:
                    value = value + part.gather(solution, ranges, starts).scaled(-1.0)
            if not value.zero() and (value is whole or not value.is_rounding(whole)):
                found[equations] = value
        return cls(tuple(Term(equations, value) for equations, value in found.items()), ranges)

    def overlapping(self) -> list[tuple[Equations, Value]]:
        """The terms."""
        return [(term.equations, term.value) for term in self.terms]

    def case(self, equations: Equations, solution: Mapping[str, Affine] | None = None) -> Value:
        """The sum of all terms that count there."""
        starts, solution = _starts(self.ranges), solve(equations) if solution is None else solution
        held = [term.value for term in self.terms if term.equations <= equations]
        found = [value.gather(solution, self.ranges, starts) if solution else value for value in held]
        return reduce(operator.add, found) if found else Value.of(0.0)

    def times(self, value: Value, equations: Equations = NOTHING) -> IndexedValues:
        """Times a value, read where the equations of each term put it."""
        starts, found = _starts(self.ranges), []
        for term in self.terms:
            both, one, two = term.equations | equations, term.value, value
            if both:
                one, two = (side.gather(solve(both), self.ranges, starts) for side in (one, two))
            found.append(Term(both, _times(one, two, self.ranges)))
        return IndexedValues(tuple(found), self.ranges)

    def placed(self, value: Value, names: Mapping[str, Affine], ranges: Ranges) -> Value:
        """A value read at affine forms of other indices."""
        return value.gather(names, ranges, _starts(self.ranges))

    def _gathered(self, terms: Sequence[tuple[Equations, Term[Value]]], ranges: Ranges) -> IndexedValues:
        found = IndexedValues(tuple(term for _, term in terms), ranges)
        return found.merged() if len(terms) > 1 or any(term.equations for term in found.terms) else found

    def __add__(self, other: IndexedValues) -> IndexedValues:
        if not (self.terms and other.terms):
            return IndexedValues(self.terms or other.terms, self.ranges)
        return IndexedValues((*self.terms, *other.terms), self.ranges).merged()

    def __mul__(self, other: IndexedValues) -> IndexedValues:
        pairs = ((a, b) for a in self.terms for b in other.terms)
        made = ((a.equations | b.equations, Factored.kept(a.value, b.value)) for a, b in pairs)
        return IndexedValues.of_overlapping(made, self.ranges)

    def zero(self) -> bool:
        """Whether all values are exactly zero."""
        return all(term.value.zero() for term in self.terms)

    def merged(self) -> IndexedValues:
        """Add up terms with equal equations and drop exact zeros."""
        if not self.terms:
            return self
        groups: dict[tuple[Equations, int], Value] = {}
        for number, term in enumerate(self.terms):
            apart = isinstance(term.value, Factored)  # a sum would multiply them out
            key = term.equations, number if apart else -1
            groups[key] = groups[key] + term.value if key in groups else term.value
        kept = tuple(Term(equations, value) for (equations, _), value in groups.items() if not value.zero())
        return IndexedValues(kept, self.ranges)

    def widened(self, ranges: Ranges) -> IndexedValues:
        """The same over larger ranges, zero outside its own."""
        own = {name: span for name, span in self.ranges.items() if name in ranges}
        same = all(tuple(ranges[name]) == tuple(span) for name, span in own.items())
        terms = self.terms if same else self.mapped(lambda value: value.widened(own, ranges)).terms
        return IndexedValues(terms, ranges)

    def settled(self) -> IndexedValues:
        """The mean over replicates of draws."""
        ranges = {name: span for name, span in self.ranges.items() if name != REPLICATE}
        return IndexedValues(self.mapped(lambda value: value.settled()).terms, ranges)

    def dense(self, axes: Sequence[str]) -> Estimate:
        """All values over the full grid of the axes named."""
        spans = [self.ranges[name] for name in axes]
        if len(self.terms) == 1 and not self.terms[0].equations:
            return self.terms[0].value.aligned(axes).reshape(tuple(stop - start for start, stop in spans))
        grids = np.meshgrid(*(np.arange(*span) for span in spans), indexing="ij", sparse=True)
        return self.at(dict(zip(axes, grids, strict=True)))

    def at(self, positions: Mapping[str, Array]) -> Estimate:
        """Values at index arrays, one per pair index, that broadcast against each other.

        Shapes    the result has the shape they broadcast to
        """
        shape = np.broadcast_shapes(*(p.shape for p in positions.values())) if positions else ()
        check_memory(shape)
        starts = _starts(self.ranges)
        value: Array = np.zeros(())
        error: Array = value
        for number, term in enumerate(self.terms):
            found = term.value.at(positions, starts)
            for equation in term.equations:
                total: Array = np.asarray(equation.offset)
                for name, coefficient in equation.terms:
                    total = total + coefficient * positions[name]
                found = found.where(total == 0, Estimate.exact(0.0))
            value, error = (value + found.value, error + found.error) if number else (found.value, found.error)
        return Estimate(np.broadcast_to(value, shape), np.broadcast_to(error, shape))

    @property
    def error(self) -> float:
        """A bound on the error of every entry: terms may hold together."""
        return sum(float(term.value.bound.error) for term in self.terms)

    @property
    def size(self) -> float:
        """A bound on the entries."""
        return sum(float(term.value.bound.value) for term in self.terms)


class PassedError(Exception):
    """Members of a recurrence are asked for whose moments are kept no longer."""


class Latest(IndexedValues):
    """Moments of the members that a recurrence made last, of which no others can be read.

    Raises    PassedError
    """

    def read(self, names: Mapping[str, Affine], ranges: Ranges) -> IndexedValues:  # type: ignore[override]
        """The same at affine forms of other indices."""
        for name, (start, stop) in self.ranges.items():
            low, high = names[name].span(ranges) if name in names else (start, stop)
            if low < start or high > stop:
                raise PassedError
        return IndexedValues(super().read(names, ranges).terms, ranges)

    def at(self, positions: Mapping[str, Array]) -> Estimate:
        """Values at index arrays: see `IndexedValues.at`."""
        for name, (start, stop) in self.ranges.items():
            if name in positions and np.any((positions[name] < start) | (positions[name] >= stop)):
                raise PassedError
        return super().at(positions)


Settled = TypeVar("Settled", IndexedValues, Value)


def _times(one: Value, two: Value, ranges: Ranges) -> Value:
    """A product, which is not multiplied out where it has many more numbers than its factors."""
    axes = union(one.axes, two.axes)
    longer = len(axes) > max(len(one.axes), len(two.axes)) and REPLICATE not in axes
    if longer and math.prod(_length(ranges[name]) for name in axes) > FEW:
        return Gathered(one, {}, ranges, _starts(ranges), (two,))
    return one * two


def _starts(ranges: Ranges) -> dict[str, int]:
    return {name: span[0] for name, span in ranges.items()}

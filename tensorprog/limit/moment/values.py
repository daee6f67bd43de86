"""Numbers with errors over named axes, and `IndexedValues`: sums of 1[equations between indices] * such numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import COMPACT, EPS, Estimate, compact, largest
from tensorprog.gaussian.several import standard_errors
from tensorprog.language.evaluate import Open, affine_values, align, broadcast, contract, gather, union
from tensorprog.language.expr import Affine, Variable
from tensorprog.language.ir import Family, Range
from tensorprog.limit.memory import need
from tensorprog.limit.moment.indexed import NOTHING, Equations, Indexed, Term, solve

__all__ = ["REPLICATE", "Factored", "IndexedValues", "Settled", "Value", "check_memory", "members_read"]

Array = NDArray[Any]
Ranges = Mapping[str, Range]
Slices = tuple[slice, ...]
REPLICATE = "&"  # the axis of replicates of draws, or of draws that have moments of their own
ALIKE = 16.0  # bounds of which the largest serves for all
SHIFTED = 1 << 14  # numbers from which what is read at sums of indices is kept as it is
WORKED = 4  # arrays of numbers, errors and what is needed on the way, where two arrays make a third


def check_memory(shape: Sequence[int], arrays: int = WORKED) -> None:
    """Raise MemoryLimitError if moments of this shape do not fit."""
    numbers = math.prod(shape)
    need(arrays * numbers, f"an array of {numbers} moments")


@dataclass(frozen=True, eq=False)
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

    def named(self, axes: Sequence[str]) -> Value:
        """The same over axes of other names."""
        return Value(tuple(axes), self.estimate)

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
        return Estimate(align(self.value, axes), align(self.error, axes))

    def _both(self, other: Value) -> tuple[tuple[str, ...], Estimate, Estimate]:
        """All axes, and both estimates over them; what they make together has room."""
        axes = union(self.axes, other.axes)
        one, two = self.aligned(axes), other.aligned(axes)
        check_memory(np.broadcast_shapes(one.value.shape, two.value.shape))
        return axes, one, two

    def __add__(self, other: Value) -> Value:
        axes, one, two = self._both(other)
        return Value(axes, one + two)

    def __mul__(self, other: Value) -> Value:
        if isinstance(other, Shifted):
            return other * self
        axes, one, two = self._both(other)
        return Value(axes, one * two)

    def summed(self, name: str) -> Value:
        """The sum over an axis."""
        axis = self.axes.index(name)
        return Value(tuple(a for a in self.axes if a != name), self.estimate.sum(axis=axis))

    def contracted(self, other: Value, over: Sequence[str]) -> Value:
        """The sum of products over some axes, never formed one by one."""
        if not over:
            return self * other
        if isinstance(other, Shifted):
            return other.contracted(self, over)
        a, b = self.value, other.value
        sizes = Open(a.axes, np.abs(a.data)), Open(b.axes, np.abs(b.data))
        data, error = contract(a, b, over), Open(a.axes, self.estimate.error + 2 * EPS * sizes[0].data)
        bound = contract(error, Open(b.axes, sizes[1].data + other.estimate.error), over).data
        if other.estimate.error.any():
            bound = bound + contract(sizes[0], other.error, over).data
        return Value(data.axes, Estimate(data.data, bound))

    def scaled(self, factor: float) -> Value:
        """Times a number that is exact."""
        return Value(
            self.axes,
            self.estimate * factor
            if factor not in (1.0, -1.0)
            else (self.estimate if factor == 1.0 else -self.estimate),
        )

    def gather(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """Read every axis at an affine form of new indices; values outside the axis are read at its edge."""
        if not any(name in slots for name in self.axes):
            return self
        if any(len(slots[name].terms) > 1 for name in self.axes if name in slots):
            own = {f".{k}": slots[name] for k, name in enumerate(self.axes) if name in slots}
            named = tuple(f".{k}" if name in slots else name for k, name in enumerate(self.axes))
            first = {f".{k}": starts[name] for k, name in enumerate(self.axes)}
            return Shifted.kept(self.named(named), own, ranges, first)
        return self.read(slots, ranges, starts)

    def read(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """The same, with every number that is read."""
        value, error = gather(self.value, slots, ranges, starts), compact(self.estimate.error)
        if error.shape == self.estimate.value.shape:
            return Value(value.axes, Estimate(value.data, gather(self.error, slots, ranges, starts).data))
        # one bound for all along some axes: it is one for all that are read there
        axes = tuple(axis for axis, size in zip(self.axes, error.shape, strict=True) if size > 1)
        bound = gather(Open(axes, error.reshape([size for size in error.shape if size > 1])), slots, ranges, starts)
        return Value(value.axes, Estimate(value.data, np.broadcast_to(align(bound, value.axes), value.data.shape)))

    def widened(self, name: str, span: Range, whole: Range) -> Value:
        """The value over a larger range of one index, zero outside its own."""
        axes = self.axes if name in self.axes else (name, *self.axes)
        place = axes.index(name)
        sizes = dict(zip(self.axes, self.estimate.value.shape, strict=True)) | {name: span[1] - span[0]}
        edges = [(0, 0)] * len(axes)
        edges[place] = span[0] - whole[0], whole[1] - span[1]
        check_memory([sizes[axis] + before + after for axis, (before, after) in zip(axes, edges, strict=True)])
        value, error = (np.pad(broadcast(part, axes, sizes), edges) for part in (self.value, self.error))
        return Value(axes, Estimate(value, error))

    def around(self, name: str, span: Range, start: int) -> Value:
        """The value over a larger range of one index, around which it wraps."""
        if name not in self.axes:
            return self
        place, estimate = self.axes.index(name), self.estimate
        turned = (np.arange(*span) - start) % estimate.value.shape[place]
        check_memory([len(turned) if k == place else size for k, size in enumerate(estimate.value.shape)])
        value, error = np.take(estimate.value, turned, axis=place), compact(estimate.error)
        error = error if error.shape[place] == 1 else np.take(error, turned, axis=place)
        return Value(self.axes, Estimate(value, np.broadcast_to(error, value.shape)))

    def zero(self) -> bool:
        """Whether the value is exactly zero."""
        value, error = self.estimate.value, self.estimate.error
        if value.size and value.item(0):  # which mostly decides
            return False
        return not (value.any() or error.any())

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

    def apart(self, other: Value) -> Value | None:
        """The product with another value, kept apart; None where a `Factored` is that."""
        return None

    @property
    def symmetric(self) -> bool:
        """Whether exchanging first and second copies is known to change nothing."""
        return False

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that stand behind the value."""
        return self.estimate.value, self.estimate.error

    @cached_property
    def bound(self) -> Estimate:
        """The largest size of any number, with the largest error."""
        v, e = self.estimate.value, compact(self.estimate.error)
        largest = np.maximum(np.max(v, initial=0.0), -np.min(v, initial=0.0))
        return Estimate(np.asarray(largest), np.asarray(np.max(e, initial=0.0)))

    def at(self, positions: Mapping[str, Array], starts: Mapping[str, int]) -> Estimate:
        """Numbers at index arrays, one for each axis, that broadcast against each other."""
        key = tuple(positions[name] - starts[name] for name in self.axes)
        return Estimate(self.estimate.value[key], self.estimate.error[key])


class Factored(Value):
    """A product of values over different axes, as (query, query) x (key, key): multiplied out only where it is read."""

    def __init__(self, factors: Sequence[Value]) -> None:
        object.__setattr__(self, "axes", union(*(factor.axes for factor in factors)))
        object.__setattr__(self, "_factors", tuple(factors))

    @classmethod
    def kept(cls, first: Value, second: Value) -> Value:
        """The product of two values, kept apart where it would have more axes than either."""
        known = first.apart(second) or second.apart(first)
        if known is not None:
            return known
        axes = set(union(first.axes, second.axes))
        plain = axes in (set(first.axes), set(second.axes))
        return first * second if plain else cls(first.factors + second.factors)

    @property
    def factors(self) -> tuple[Value, ...]:
        """What the value is a product of."""
        return self._factors  # type: ignore[attr-defined, no-any-return]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of all factors."""
        return tuple(array for factor in self.factors for array in factor.arrays)

    @property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """The product multiplied out."""
        return math.prod((factor.aligned(self.axes) for factor in self.factors), start=Estimate.exact(1.0))

    def gather(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """Read every axis of every factor at an affine form of new indices."""
        first, *others = (factor.gather(slots, ranges, starts) for factor in self.factors)
        return reduce(Factored.kept, others, first)

    def zero(self) -> bool:
        """Whether a factor is zero."""
        return any(factor.zero() for factor in self.factors)

    @cached_property
    def bound(self) -> Estimate:
        """A bound on the size of the numbers, and on their errors."""
        return math.prod((factor.bound for factor in self.factors), start=Estimate.exact(1.0))

    def at(self, positions: Mapping[str, Array], starts: Mapping[str, int]) -> Estimate:
        """Numbers at index arrays, one for each axis, that broadcast against each other."""
        return math.prod((factor.at(positions, starts) for factor in self.factors), start=Estimate.exact(1.0))


class Shifted(Value):
    """A value read at sums of indices, as a convolution reads x[c + d], times factors over few of the indices.

    An array over all indices would have each number once for every shift d; it is made only where somebody reads it.
    A sum over a shift adds up what is behind it, one shift after the other.
    """

    def __init__(
        self, source: Value, slots: Mapping[str, Affine], ranges: Ranges, starts: Mapping[str, int],
        by: Sequence[Value] = (),
    ) -> None:  # fmt: skip
        parts = {
            "source": source,  # an axis in `slots` is read at its form, any other is an index
            "slots": dict(slots),
            "ranges": ranges,  # of the indices
            "starts": {axis: ranges[axis][0] for axis in source.axes if axis in ranges} | dict(starts),  # of the axes
            "by": tuple(by),
            "axes": union(_indices(source, slots), *(factor.axes for factor in by)),
        }
        for name, part in parts.items():
            object.__setattr__(self, name, part)

    source: Value
    slots: dict[str, Affine]
    ranges: Ranges
    starts: Mapping[str, int]
    by: tuple[Value, ...]

    @classmethod
    def kept(
        cls, source: Value, slots: Mapping[str, Affine], ranges: Ranges, starts: Mapping[str, int],
        by: Sequence[Value] = (),
    ) -> Value:  # fmt: skip
        """The value as it is where it would grow much, else with every number that is read."""
        bare = {axis: form for axis, form in slots.items() if len(form.terms) == 1 and form.bare in ranges}
        if len({form.bare for form in bare.values()}) < len(bare):  # diagonals first, which are smaller
            source = source.read(bare, ranges, starts)
            slots = {axis: form for axis, form in slots.items() if axis not in bare}
        indices, size = _indices(source, slots), math.prod(source.shape)
        read = dict(zip(source.axes, source.shape, strict=True))
        large = math.prod(ranges[n][1] - ranges[n][0] if n in ranges else read[n] for n in indices)
        whole = cls(source, slots, ranges, starts, by)
        return whole if large >= max(2 * size, SHIFTED) else whole.plain()

    @property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """Every number that is read."""
        return self.plain().aligned(self.axes)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that are read, and those of the factors."""
        return tuple(array for part in (self.source, *self.by) for array in part.arrays)

    def plain(self) -> Value:
        """The value over all its indices."""
        return reduce(lambda a, b: a * b, self.by, self.source.read(self.slots, self.ranges, self.starts))

    def __add__(self, other: Value) -> Value:
        return self.plain() + (other.plain() if isinstance(other, Shifted) else other)

    def __mul__(self, other: Value) -> Value:
        large = math.prod(self.source.shape)
        if isinstance(other, Shifted) or any(math.prod(array.shape) > large for array in other.arrays):
            return self.plain() * (other.plain() if isinstance(other, Shifted) else other)
        return Shifted(self.source, self.slots, self.ranges, self.starts, (*self.by, *other.factors))

    def scaled(self, factor: float) -> Value:
        """Times a number that is exact."""
        return self if factor == 1.0 else self * Value.of(factor)

    def gather(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """Read every index at an affine form of others."""
        slots = {name: form for name, form in slots.items() if name in self.axes and form.bare != name}
        if not slots:
            return self
        for name, form in slots.items():
            low, high = form.bounds(ranges)
            start, stop = self.ranges[name] if name in self.ranges else (starts[name], low)
            if low < start or high >= stop:
                return self.plain().gather(slots, ranges, starts)
        read = {name: f".{k}" for k, name in enumerate(self.source.axes) if name in slots or name in self.slots}
        forms = {own: self.slots.get(name, Affine.index(name)).at(slots) for name, own in read.items()}
        first = {own: (self.starts if name in self.slots else starts)[name] for name, own in read.items()}
        source = self.source.named([read.get(name, name) for name in self.source.axes])
        by = [factor.gather(slots, ranges, starts) for factor in self.by]
        return Shifted.kept(source, forms, dict(self.ranges) | dict(ranges), first, by)

    def zero(self) -> bool:
        """Whether all that is read is zero, or a factor."""
        return any(part.zero() for part in (self.source, *self.by))

    @cached_property
    def bound(self) -> Estimate:
        """A bound on the size of the numbers, and on their errors."""
        return math.prod((part.bound for part in (self.source, *self.by)), start=Estimate.exact(1.0))

    def contracted(self, other: Value, over: Sequence[str]) -> Value:
        """The sum of products over some axes."""
        return reduce(lambda value, name: value.summed(name), over, self * other)

    def summed(self, name: str) -> Value:
        """The sum over an index, of arrays without it."""
        own = [factor for factor in self.by if name in factor.axes]
        rest = [factor for factor in self.by if name not in factor.axes]
        touched = {axis: form for axis, form in self.slots.items() if name in form.indices}
        if not touched:
            return self.plain().summed(name)
        places = range(*self.ranges[name])
        sources = [self.source.gather({name: Affine((), place)}, self.ranges, {name: places.start}) for place in places]
        forms = [{axis: form.at({name: Affine((), place)}) for axis, form in touched.items()} for place in places]
        weights = [
            reduce(lambda a, b: a * b, (f.gather({name: Affine((), place)}, self.ranges, {name: places.start})
                                        for f in own), Value.of(1.0))
            for place in places
        ]  # fmt: skip
        total = _added(sources, forms, weights, self.ranges, self.starts)
        slots = {axis: form for axis, form in self.slots.items() if axis not in touched}
        return Shifted.kept(total, slots, self.ranges, self.starts, rest)


def _indices(source: Value, slots: Mapping[str, Affine]) -> tuple[str, ...]:
    """The indices of what is read at forms."""
    return union(*(slots[axis].indices if axis in slots else (axis,) for axis in source.axes))


def _added(
    sources: Sequence[Value], forms: Sequence[Mapping[str, Affine]], weights: Sequence[Value], ranges: Ranges,
    starts: Mapping[str, int],
) -> Value:  # fmt: skip
    """The sum of weights times values, each read at one form of one index along some axes.

    Where every form runs along its axis, slices are added up in place.  With K summands the rounding is at most K + 1
    units of the sum of the sizes, so that one sum of |weight| (error + (K + 1) eps |value|) bounds all errors.
    """
    source, parts = sources[0], list(zip(sources, forms, weights, strict=True))
    reads = [_slices(*part, ranges, starts) for part in parts]
    if None in reads:
        return reduce(lambda a, b: a + b, (one.read(form, ranges, starts) * weight for one, form, weight in parts))
    axes = tuple(forms[0][axis].indices[0] if axis in forms[0] else axis for axis in source.axes)
    shape = [ranges[name][1] - ranges[name][0] if axis in forms[0] else size
             for axis, name, size in zip(source.axes, axes, source.shape, strict=True)]  # fmt: skip
    check_memory(shape)
    known = [compact(one.estimate.error) for one in sources]
    rooms = [error + (len(parts) + 1) * EPS * largest(one.estimate.value, error.shape)
             for one, error in zip(sources, known, strict=True)]  # fmt: skip
    one = [size == 1 for size in rooms[0].shape]  # axes along which one bound serves all
    total, error = np.zeros(shape), np.zeros([1 if o else size for o, size in zip(one, shape, strict=True)])

    def at(place: Sequence[slice], lengths: Sequence[Any]) -> tuple[slice, ...]:
        return tuple(slice(None) if length == 1 else where for where, length in zip(place, lengths, strict=True))

    for (there, here), (found, _, weight), room in zip(filter(None, reads), parts, rooms, strict=True):
        factor, value = weight.aligned(axes), found.estimate.value
        w, off = (part[at(here, part.shape)] for part in (factor.value, factor.error))
        if not w.size:
            continue
        size, lost = (largest(part, tuple(1 if o else n for o, n in zip(one, part.shape, strict=True)))
                      for part in (w, off))  # fmt: skip
        total[here] += value[there] if np.all(w == 1) else value[there] * w
        bound = room[at(there, room.shape)]
        error[at(here, error.shape)] += bound if np.all(size == 1) else bound * size
        if lost.any():
            read = np.abs(value[there])
            error[at(here, error.shape)] += lost * (
                largest(read, tuple(1 if o else n for o, n in zip(one, read.shape, strict=True))) + bound
            )
    for k in range(error.ndim):  # sums over neighbours are alike, and so are their bounds
        if error.size >= COMPACT:
            top = error.max(axis=k, keepdims=True)
            error = top if np.all(ALIKE * error.min(axis=k, keepdims=True) >= top) else error
    return Value(axes, Estimate(total, np.broadcast_to(error, shape)))


def _slices(
    source: Value, forms: Mapping[str, Affine], weight: Value, ranges: Ranges, starts: Mapping[str, int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """Where axes are read, and where in the ranges of the new indices that is; None if these are no slices.

    Beyond an axis nothing is read, where the weight is zero there.
    """
    there, here, seen = [], [], [axis for axis in source.axes if axis not in forms]
    if not {*weight.axes} <= {*seen, *(name for form in forms.values() for name in form.indices)}:
        return None
    for axis, size in zip(source.axes, source.shape, strict=True):
        form = forms.get(axis)
        if form is None:
            there.append(slice(None))
            here.append(slice(None))
            continue
        if len(form.terms) != 1 or form.terms[0][1] < 1 or form.terms[0][0] in seen:
            return None
        ((name, step),) = form.terms
        seen.append(name)
        start, stop = ranges[name]
        first = max(start, -((form.offset - starts[axis]) // step))
        last = min(stop, (starts[axis] + size - 1 - form.offset) // step + 1)
        if (first, last) != (start, stop):
            outside = np.ones(stop - start, dtype=bool)
            outside[max(first - start, 0) : max(last - start, 0)] = False
            if name not in weight.axes:
                return None
            place, both = weight.axes.index(name), (weight.estimate.value, weight.estimate.error)
            if any(np.compress(outside, part, axis=place).any() for part in both):
                return None
        last = max(first, last)
        begin = step * first + form.offset - starts[axis]
        there.append(slice(begin, begin + step * (last - first - 1) + 1 if last > first else begin, step))
        here.append(slice(first - start, last - start))
    return tuple(there), tuple(here)


@dataclass(frozen=True, eq=False)
class IndexedValues(Indexed[Value]):
    """Numbers with errors, kept as summands; terms with equal equations are one, terms that are zero are dropped."""

    @classmethod
    def constant(cls, value: Any, ranges: Ranges) -> IndexedValues:
        """One value, or number, everywhere."""
        value = value if isinstance(value, Value) else Value.of(value)
        return cls(() if value.zero() else (Term(NOTHING, value),), ranges)

    @classmethod
    def of_summands(cls, summands: Iterable[tuple[Equations, Value]], ranges: Ranges) -> IndexedValues:
        """From values that count wherever their equations hold, read where the equations put them."""
        starts = _starts(ranges)
        terms = (Term(e, v.gather(solve(e), ranges, starts) if e else v) for e, v in summands)
        return cls(tuple(terms), ranges).merged()

    @classmethod
    def of_cases(cls, cases: Mapping[Equations, Value], ranges: Ranges, prefer: Sequence[str] = ()) -> IndexedValues:
        """By inclusion and exclusion; what is left of a value within its rounding error is dropped."""
        starts, found = _starts(ranges), dict[Equations, Value]()
        for equations in sorted(cases, key=len):
            value, solution = cases[equations], solve(equations, prefer)
            for smaller, part in found.items():
                if smaller < equations:
                    value = value + part.gather(solution, ranges, starts).scaled(-1.0)
            less = value is not cases[equations]
            if not (less and _vanishes(value, cases[equations])) and not value.zero():
                found[equations] = value
        return cls(tuple(Term(equations, value) for equations, value in found.items()), ranges)

    def summands(self) -> list[tuple[Equations, Value]]:
        """The terms."""
        return [(term.equations, term.value) for term in self.terms]

    def case(self, equations: Equations, solution: Mapping[str, Affine] | None = None) -> Value:
        """The sum of all terms that count there."""
        starts, total = _starts(self.ranges), Value.of(0.0)
        solution = solve(equations) if solution is None else solution
        for term in self.terms:
            if term.equations <= equations:
                total = total + term.value.gather(solution, self.ranges, starts)
        return total

    def times(self, value: Value, equations: Equations = NOTHING) -> IndexedValues:
        """Times a value, read where the equations of each term put it."""
        starts, found = _starts(self.ranges), []
        for term in self.terms:
            both = term.equations | equations
            solution = solve(both)
            one = term.value.gather(solution, self.ranges, starts)
            apart = value.factors if isinstance(one, Shifted) else (value,)
            found.append(Term(both, reduce(lambda a, b: a * b.gather(solution, self.ranges, starts), apart, one)))
        return IndexedValues(tuple(found), self.ranges)

    def scaled(self, factor: float) -> IndexedValues:
        """Times a number that is exact."""
        return self.mapped(lambda value: value.scaled(factor))

    def _placed(self, value: Value, names: Mapping[str, Affine], ranges: Ranges) -> Value:
        return value.gather(names, ranges, _starts(self.ranges))

    def _gathered(self, terms: Sequence[tuple[Equations, Term[Value]]], ranges: Ranges) -> IndexedValues:
        found = IndexedValues(tuple(term for _, term in terms), ranges)
        return found.merged() if len(terms) > 1 or any(term.equations for term in found.terms) else found

    def __add__(self, other: IndexedValues) -> IndexedValues:
        if not (self.terms and other.terms):
            return IndexedValues(self.terms or other.terms, self.ranges)
        return IndexedValues((*self.terms, *other.terms), self.ranges).merged()

    def __sub__(self, other: IndexedValues) -> IndexedValues:
        return self + other.scaled(-1.0)

    def __mul__(self, other: IndexedValues) -> IndexedValues:
        pairs = ((a, b) for a in self.terms for b in other.terms)
        made = ((a.equations | b.equations, Factored.kept(a.value, b.value)) for a, b in pairs)
        return IndexedValues.of_summands(made, self.ranges)

    def zero(self) -> bool:
        """Whether all values are exactly zero."""
        return all(term.value.zero() for term in self.terms)

    def merged(self) -> IndexedValues:
        """Add up terms with equal equations and drop exact zeros."""
        if not self.terms:
            return self
        groups: dict[tuple[Equations, int], Value] = {}
        for number, term in enumerate(self.terms):
            apart = isinstance(term.value, Factored | Shifted)  # a sum would multiply them out
            key = term.equations, number if apart else -1
            groups[key] = groups[key] + term.value if key in groups else term.value
        kept = tuple(Term(equations, value) for (equations, _), value in groups.items() if not value.zero())
        return IndexedValues(kept, self.ranges)

    def widened(self, ranges: Ranges) -> IndexedValues:
        """The same over larger ranges, zero outside its own."""
        grown = [name for name, span in self.ranges.items() if tuple(ranges.get(name, span)) != tuple(span)]
        terms = self.terms
        for name in grown:
            terms = tuple(Term(t.equations, t.value.widened(name, self.ranges[name], ranges[name])) for t in terms)
        return IndexedValues(terms, ranges)

    def around(self, spans: Ranges) -> IndexedValues:
        """The same over larger ranges of some indices, around which it wraps."""
        terms = self.terms
        for name, span in spans.items():
            start = self.ranges[name][0]
            terms = tuple(Term(term.equations, term.value.around(name, span, start)) for term in terms)
        return IndexedValues(terms, dict(self.ranges) | dict(spans))

    def settled(self) -> IndexedValues:
        """The mean over replicates of draws."""
        ranges = {name: span for name, span in self.ranges.items() if name != REPLICATE}
        return IndexedValues(self.mapped(lambda value: value.settled()).terms, ranges)

    def dense(self, axes: Sequence[str]) -> Estimate:
        """All values over the full grid of the axes named."""
        sizes = {name: self.ranges[name][1] - self.ranges[name][0] for name in axes}
        shape = tuple(sizes[name] for name in axes)
        if len(self.terms) == 1 and not self.terms[0].equations:
            return self.terms[0].value.aligned(axes).reshape(shape)
        check_memory(shape)
        value, error = np.zeros(shape), np.zeros(shape)
        for term in self.terms:
            mask, found = self._mask(term.equations, axes), term.value.estimate
            value += np.where(mask, broadcast(Open(term.value.axes, found.value), axes, sizes), 0)
            error += np.where(mask, broadcast(Open(term.value.axes, found.error), axes, sizes), 0)
        return Estimate(value, error)

    def _mask(self, equations: Equations, axes: Sequence[str]) -> Array:
        mask: Array = np.ones((1,) * len(axes), dtype=bool)
        for equation in equations:
            mask = mask & (align(affine_values(equation, self.ranges), axes) == 0)
        return mask

    def at(self, positions: Mapping[str, Array]) -> Estimate:
        """Values at index arrays, one per pair index, that broadcast against each other.

        Shapes    the result has the shape they broadcast to
        """
        shape = np.broadcast_shapes(*(p.shape for p in positions.values())) if positions else ()
        check_memory(shape)
        starts = _starts(self.ranges)
        value, error = np.zeros(shape), np.zeros(shape)
        for term in self.terms:
            mask: Array = np.ones((), dtype=bool)
            for equation in term.equations:
                total: Array = np.asarray(equation.offset)
                for name, coefficient in equation.terms:
                    total = total + coefficient * positions[name]
                mask = mask & (total == 0)
            found = term.value.at(positions, starts)
            value = value + np.where(mask, found.value, 0)
            error = error + np.where(mask, found.error, 0)
        return Estimate(np.broadcast_to(value, shape), np.broadcast_to(error, shape))

    @property
    def error(self) -> float:
        """A bound on the error of every entry: terms may hold together."""
        return sum(float(term.value.bound.error) for term in self.terms)

    @property
    def size(self) -> float:
        """A bound on the entries."""
        return sum(float(term.value.bound.value) for term in self.terms)


Settled = TypeVar("Settled", IndexedValues, Value)


def members_read(values: Array, reference: Variable, family: Family, ranges: Mapping[str, Range], *after: str) -> Open:
    """The members of a family that a reference reads, for every replicate.

    Shapes    values (replicates, *members, *after) -> over REPLICATE, the indices of the reference and `after`
    """
    slots = {str(k): slot for k, slot in enumerate(reference.slots)}
    starts = {str(k): start for k, (start, _) in enumerate(family.ranges)}
    return gather(Open((REPLICATE, *slots, *after), values), slots, ranges, starts)


def _starts(ranges: Ranges) -> dict[str, int]:
    return {name: span[0] for name, span in ranges.items()}


def _vanishes(difference: Value, found: Value) -> bool:
    """Whether a difference is zero within its error, at rounding level."""
    error, scale = difference.estimate.error, np.max(np.abs(found.estimate.value), initial=0.0)
    return bool(np.all(np.abs(difference.estimate.value) <= error) and np.max(error, initial=0.0) <= 1e-12 * scale)

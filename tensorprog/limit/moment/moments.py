"""Second moments of two families as sums of structured terms, never as matrices of members.

M(f, g) over positions '0', '1', ... of f and '0_', '1_', ... of g is a sum of terms 1[equations] * value, where the
equations are affine (as '1' - '1_' = 0 for vectors made by different weights of one family) and the value is an open
array.  Keys shared by heads, heads that are independent, stationary kernels: all are a few terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, Estimate, compact
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range
from tensorprog.language.named_arrays import Open, affine_values, align, broadcast, contract, gather, union
from tensorprog.language.substitute import compose
from tensorprog.limit.memory import need

__all__ = ["Equations", "Moment", "Product", "Term", "Value", "difference", "room", "solve"]

Array = NDArray[Any]
Equations = frozenset[Affine]  # each affine form is zero
WORKED = 4  # arrays of numbers, errors and what is needed on the way, where two arrays make a third


def room(shape: Sequence[int], arrays: int = WORKED) -> None:
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
        room(np.broadcast_shapes(one.value.shape, two.value.shape))
        return axes, one, two

    def __add__(self, other: Value) -> Value:
        axes, one, two = self._both(other)
        return Value(axes, one + two)

    def __mul__(self, other: Value) -> Value:
        axes, one, two = self._both(other)
        return Value(axes, one * two)

    def contracted(self, other: Value, over: Sequence[str]) -> Value:
        """The sum of products over some axes, never formed one by one."""
        if not over:
            return self * other
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
        value = gather(self.value, slots, ranges, starts)
        return Value(value.axes, Estimate(value.data, gather(self.error, slots, ranges, starts).data))

    def widened(self, name: str, span: Range, whole: Range) -> Value:
        """The value over a larger range of one index, zero outside its own."""
        axes = self.axes if name in self.axes else (name, *self.axes)
        place = axes.index(name)
        sizes = dict(zip(self.axes, self.estimate.value.shape, strict=True)) | {name: span[1] - span[0]}
        edges = [(0, 0)] * len(axes)
        edges[place] = span[0] - whole[0], whole[1] - span[1]
        room([sizes[axis] + before + after for axis, (before, after) in zip(axes, edges, strict=True)])
        value, error = (np.pad(broadcast(part, axes, sizes), edges) for part in (self.value, self.error))
        return Value(axes, Estimate(value, error))

    def zero(self) -> bool:
        """Whether the value is exactly zero."""
        # the first few numbers mostly decide
        first = (slice(0, 1),) * len(self.axes)
        both = (self.estimate.value, self.estimate.error)
        return not (any(part[first].any() for part in both) or any(part.any() for part in both))

    @property
    def factors(self) -> tuple[Value, ...]:
        """What the value is a product of: itself."""
        return (self,)

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


class Product(Value):
    """A product of values over different axes, as (query, query) x (key, key): multiplied out only where it is read."""

    def __init__(self, factors: Sequence[Value]) -> None:
        object.__setattr__(self, "axes", union(*(factor.axes for factor in factors)))
        object.__setattr__(self, "_factors", tuple(factors))

    @classmethod
    def kept(cls, first: Value, second: Value) -> Value:
        """The product of two values, kept apart where it would have more axes than either."""
        axes = set(union(first.axes, second.axes))
        return first * second if axes in (set(first.axes), set(second.axes)) else cls(first.factors + second.factors)

    @property
    def factors(self) -> tuple[Value, ...]:
        """What the value is a product of."""
        return self._factors  # type: ignore[attr-defined, no-any-return]

    @property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """The product multiplied out."""
        return math.prod((factor.aligned(self.axes) for factor in self.factors), start=Estimate.exact(1.0))

    def gather(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """Read every axis of every factor at an affine form of new indices."""
        first, *others = (factor.gather(slots, ranges, starts) for factor in self.factors)
        return reduce(Product.kept, others, first)

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


def difference(first: Affine, second: Affine) -> Affine | None:
    """first - second = 0 as a canonical form; None if it always holds; an affine constant if it never does."""
    terms = dict(first.terms)
    for name, coefficient in second.terms:
        terms[name] = terms.get(name, 0) - coefficient
    return canonical(Affine(tuple(terms.items()), first.offset - second.offset))


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


def possible(form: Affine, ranges: Mapping[str, Range]) -> bool:
    """Whether an equation can hold somewhere in the box."""
    low, high = form.bounds(dict(ranges))
    return low <= 0 <= high


def rewrite(equations: Equations, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> Equations | None:
    """The equations over new indices; None if they cannot hold."""
    result = set()
    for equation in equations:
        form = canonical(compose(equation, names))
        if form is None:
            continue
        if not form.terms or not possible(form, ranges):
            return None
        result.add(form)
    return frozenset(result)


def solve(equations: Equations, prefer: Sequence[str]) -> dict[str, Affine]:
    """Indices eliminated by the equations, each as an affine form of the remaining ones; `prefer` first.

    An equation without an index of coefficient +-1 is left unsolved; it still stands in its term.
    """
    solution: dict[str, Affine] = {}
    rank = {name: position for position, name in enumerate(prefer)}
    for equation in sorted(equations, key=str):
        form = canonical(compose(equation, solution))
        if form is None or not form.terms:
            continue
        # second copies before first ones, so that what remains speaks of the first
        candidates = [
            (rank.get(name, len(rank) + (not name.endswith("_"))), name, value)
            for name, value in form.terms
            if abs(value) == 1
        ]
        if not candidates:
            continue
        _, name, value = min(candidates)
        rest = Affine(tuple((n, -v * value) for n, v in form.terms if n != name), -form.offset * value)
        solution = {key: compose(old, {name: rest}) for key, old in solution.items()} | {name: rest}
    return solution


@dataclass(frozen=True, eq=False)
class Term:
    """1[all equations hold] * value."""

    equations: Equations
    value: Value


@dataclass(frozen=True, eq=False)
class Moment:
    """A sum of terms over the pair indices in `ranges`."""

    terms: tuple[Term, ...]
    ranges: Mapping[str, Range]

    def rename(self, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> Moment:
        """The moment at affine forms of new indices."""
        result = []
        starts = {name: span[0] for name, span in self.ranges.items()}
        for term in self.terms:
            equations = rewrite(term.equations, names, ranges)
            if equations is not None:
                result.append(Term(equations, term.value.gather(names, ranges, starts)))
        return Moment(tuple(result), ranges).merged()

    def times(self, value: Value, equations: Equations = frozenset()) -> Moment:
        """Multiply every term by a value and further equations (already over this moment's indices)."""
        return Moment(tuple(Term(term.equations | equations, term.value * value) for term in self.terms), self.ranges)

    def __add__(self, other: Moment) -> Moment:
        return Moment((*self.terms, *other.terms), self.ranges).merged()

    def __mul__(self, other: Moment) -> Moment:
        return (
            Moment(
                tuple(
                    Term(a.equations | b.equations, Product.kept(a.value, b.value))
                    for a in self.terms
                    for b in other.terms
                ),
                self.ranges,
            )
            .simplified()
            .merged()
        )

    def simplified(self) -> Moment:
        """Drop terms that cannot hold; read values where the equations put them, so that they have fewer axes."""
        if not any(term.equations for term in self.terms):
            return self
        result = []
        starts = {name: span[0] for name, span in self.ranges.items()}
        for term in self.terms:
            if any(not form.terms or not possible(form, self.ranges) for form in term.equations):
                continue
            solution = {k: v for k, v in solve(term.equations, ()).items() if k in term.value.axes}
            result.append(
                Term(term.equations, term.value.gather(solution, self.ranges, starts) if solution else term.value)
            )
        return Moment(tuple(result), self.ranges)

    def merged(self) -> Moment:
        """Add up terms with equal equations and drop exact zeros."""
        groups: dict[tuple[Equations, int], Value] = {}
        for number, term in enumerate(self.terms):
            key = term.equations, number if isinstance(term.value, Product) else -1  # a sum would multiply products out
            groups[key] = groups[key] + term.value if key in groups else term.value
        kept = tuple(Term(equations, value) for (equations, _), value in groups.items() if not value.zero())
        return Moment(kept, self.ranges)

    def widened(self, ranges: Mapping[str, Range]) -> Moment:
        """The moment over larger ranges, zero outside its own."""
        grown = [name for name, span in self.ranges.items() if tuple(ranges.get(name, span)) != tuple(span)]
        terms = self.terms
        for name in grown:
            terms = tuple(Term(t.equations, t.value.widened(name, self.ranges[name], ranges[name])) for t in terms)
        return Moment(terms, ranges)

    def dense(self, axes: Sequence[str]) -> Estimate:
        """All values over the full grid of the axes named."""
        sizes = {name: self.ranges[name][1] - self.ranges[name][0] for name in axes}
        shape = tuple(sizes[name] for name in axes)
        if len(self.terms) == 1 and not self.terms[0].equations:
            return self.terms[0].value.aligned(axes).reshape(shape)
        room(shape)
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
        room(shape)
        starts = {name: span[0] for name, span in self.ranges.items()}
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

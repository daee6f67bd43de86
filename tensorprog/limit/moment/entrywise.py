"""Values over pairs of members that are computed tile by tile, when they are read.

All layers of a kernel on data act entry by entry: the covariance of two members of a layer is a function of that of the
layer below, once the variances are known. Such values are not arrays but what makes them, a graph of steps. It is
walked once for each tile, which stays in cache, on all processors; of a symmetric array one triangle is computed. What
the recursion asks on the way, whether a value is zero, how large it is and how large its error, is known without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.arc_kernels import Correlated
from tensorprog.gaussian.dual import dual
from tensorprog.gaussian.estimate import EPS, Estimate, Sizes, largest_ratio
from tensorprog.gaussian.function import RealFunction
from tensorprog.gaussian.integrand import Index, exchanged, filled, part
from tensorprog.language.evaluate import affine_values, align, union
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range
from tensorprog.limit.memory import keep, need
from tensorprog.limit.moment.values import Slices, Value

__all__ = ["Entrywise"]

Array = NDArray[Any]
LARGE = 1 << 14  # members from which an array is computed tile by tile
TILE = 1 << 15  # members of a tile, of which a handful of arrays stay in cache


class Pairwise:
    """One array over pairs, made of others entry by entry.

    The last axes are those of pairs: positions of the first, then as many of the second.  A step that `moves` is made
    of all that its argument has along the axes before them, which tiles then have whole.

    compute    (index, arrays, free): the array at some members, from those of `args` there; `free` may be overwritten
    """

    def __init__(
        self, shape: tuple[int, ...], pairs: int, symmetric: bool, args: Sequence[Pairwise] = (),
        compute: Callable[[Index, Sequence[Any], Array | None], Any] | None = None, known: Array | None = None,
        moves: bool = False,
    ) -> None:  # fmt: skip
        self.shape, self.pairs, self.symmetric, self.args = shape, pairs, symmetric, tuple(args)
        self.compute, self.known = compute, known
        # what kernels of these covariances share, by the variances
        self.correlated: WeakValueDictionary[tuple[bytes, ...], Pairwise] = WeakValueDictionary()
        self._last: tuple[Index, Array] | None = None  # pairs that were read, and the array there
        self.whole_rows: bool = moves or any(arg.whole_rows for arg in args)

    @property
    def shared(self) -> tuple[int, ...]:
        """The lengths of the axes before those of pairs."""
        return self.shape[: len(self.shape) - 2 * self.pairs]

    def correlation(self, var_f: Array, var_g: Array) -> Pairwise:
        """Covariances with what their kernels have in common: a step whose value is `Correlated`.

        Shapes    variances broadcast to the array
        """
        key = var_f.tobytes(), var_g.tobytes()
        found = self.correlated.get(key)
        if found is None:
            one, two = (np.maximum(array, 0.0) for array in (var_f, var_g))
            found = self.correlated[key] = Pairwise(
                self.shape,
                self.pairs,
                False,
                (self,),
                lambda index, given, _: Correlated(part(one, index), part(two, index), given[0]),
            )
        return found

    def order(self) -> list[Pairwise]:
        """All steps that this one needs, each after those that it is made of, layer by layer.

        So steps that read the same arrays follow each other, and these are soon given free.
        """
        found, waiting = dict[Pairwise, int](), [self]
        while waiting:
            last = waiting[-1]
            args = [] if last.known is not None else last.args
            below = [step for step in args if step not in found]
            waiting.extend(below)
            if not below:
                found[waiting.pop()] = 1 + max((found[step] for step in args), default=0)
        return sorted(found, key=found.__getitem__)

    def reader(self) -> Callable[[Index], Array]:
        """The array at some members, in one walk over all steps."""
        steps = self.order()
        last = {step: number for number, user in enumerate(steps) if user.known is None for step in user.args}

        def read(index: Index) -> Array:
            arrays: dict[Pairwise, Any] = {}
            for number, step in enumerate(steps):
                own = step.rows(index) if self.whole_rows else index
                if step.known is not None:
                    arrays[step] = part(step.known, own)
                    continue
                assert step.compute is not None
                given = [arrays[arg] for arg in step.args]
                done = [arg for arg in step.args if last[arg] == number]
                made = (arrays[arg] for arg in done if arg.known is None)
                free = next((array for array in made if isinstance(array, np.ndarray)), None)
                for arg in dict.fromkeys(done):
                    del arrays[arg]
                arrays[step] = step.compute(own, given, free)
            return np.asarray(arrays[self])

        return read

    def rows(self, index: Index) -> Index:
        """The members at these pairs, with all of the axes before them."""
        return (*(slice(0, length) for length in self.shared), *index[len(index) - 2 * self.pairs :])

    def between(self, index: Index) -> Array:
        """The array at index arrays of one length for the pairs, with all of the axes before them."""
        if self.known is not None:
            return part(self.known, self.rows(index))
        if self._last is None or not all(map(np.array_equal, self._last[0], index)):
            with np.errstate(all="ignore"):
                self._last = index, self.reader()(self.rows(index))
        return self._last[1]

    @cached_property
    def some(self) -> Array:
        """The array at the first members along its last axis, or at one pair."""
        if self.shared:
            first = np.zeros(1, dtype=int)
            index: Index = (*(slice(0, length) for length in self.shared), *([first] * (2 * self.pairs)))
        else:
            row = np.arange(self.shape[-1])
            index = (*([np.zeros_like(row)] * (len(self.shape) - 1)), row)
        if self.compute is None:
            assert self.known is not None
            return part(self.known, index)
        return self.compute(index, [arg.some for arg in self.args], None)  # type: ignore[no-any-return]

    def whole(self) -> Array:
        """All of the array, computed once."""
        if self.known is None:
            need(math.prod(self.shape), f"an array of {math.prod(self.shape)} moments")
            size = TILE
            if self.whole_rows:  # tiles are as large as the largest array on the way allows
                largest = max(math.prod(step.shared) for step in self.order())
                size = max(1, TILE * math.prod(self.shared) // max(1, largest))
            with np.errstate(all="ignore"):
                self.known = filled(self.reader(), self.shape, size, self.pairs, self.symmetric, self.whole_rows)
            keep(self.known)
            self.args, self.compute = (), None
        return self.known

    def at(self, index: Sequence[Array]) -> Array:
        """The array at index arrays of one length."""
        if self.known is not None or self.whole_rows:
            return np.asarray(self.whole()[tuple(index)])
        read, count = self.reader(), len(index[0])
        found = np.empty(count)
        for start in range(0, count, TILE):
            cut = slice(start, min(start + TILE, count))
            found[cut] = read(tuple(positions[cut] for positions in index))
        return found


class Entrywise(Value):
    """A value over pairs of members, given by a step and by bounds: of its size, and of its error relative to it."""

    tiled = True
    step: Pairwise
    sizes: Sizes

    def __init__(self, axes: Sequence[str], step: Pairwise, sizes: Sizes) -> None:
        for name, given in (("axes", tuple(axes)), ("step", step), ("sizes", sizes)):
            object.__setattr__(self, name, given)

    # -- what makes such values -----------------------------------------------------------------------------------

    @classmethod
    def products(cls, axes: Sequence[str], rows: Array, scale: float, relative: float) -> Entrywise | None:
        """Inner products of rows of numbers times a scale, with the relative rounding of an entry; None for few.

        Shapes    rows (*members, d); axes (*positions of the first, *positions of the second)
        """
        members, dim = rows.shape[:-1], rows.shape[-1]
        pairs = len(members)
        if math.prod(members) ** 2 < LARGE:
            return None

        def compute(index: Index, _: Sequence[Array], free: Array | None) -> Array:
            first, second = rows[index[:pairs]], rows[index[pairs:]]
            if not isinstance(index[0], slice):
                return np.asarray(np.einsum("pd,pd->p", first, second) * scale)
            found = first.reshape(-1, dim) @ second.reshape(-1, dim).T
            found *= scale
            return found.reshape(first.shape[:-1] + second.shape[:-1])

        size = np.sqrt(scale * np.square(rows).sum(axis=-1))
        one = (1,) * pairs
        sizes = Sizes(size.reshape(members + one), size.reshape(one + members), relative)
        return cls(axes, Pairwise(members * 2, pairs, True, (), compute), sizes)

    @classmethod
    def at_equal(
        cls, axes: Sequence[str], rows: Array, shared: int, scale: float, relative: float
    ) -> Entrywise | None:  # fmt: skip
        """Inner products of rows that are equal in the first `shared` positions; None for few.

        Shapes    rows (*equal positions, *members, d); axes (*equal positions, *positions of first, *of second)
        """
        same, members = rows.shape[:shared], rows.shape[shared:-1]
        pairs = len(members)
        shape = (*same, *members, *members)
        if not pairs or math.prod(shape) < LARGE:
            return None

        def compute(index: Index, _: Sequence[Array], free: Array | None) -> Array:
            cuts = index[:shared], index[shared : shared + pairs], index[shared + pairs :]
            first, second = (part(rows, (*cuts[0], *cut, slice(None))) for cut in cuts[1:])
            if not isinstance(index[-1], slice):
                return np.asarray(np.einsum("...d,...d->...", first, second) * scale)
            one, two = (part.reshape(*part.shape[:shared], -1, part.shape[-1]) for part in (first, second))
            found = one @ two.swapaxes(-1, -2)
            found *= scale
            return np.asarray(found.reshape(*first.shape[:-1], *second.shape[shared:-1]))

        size = np.sqrt(scale * np.square(rows).sum(axis=-1))
        one = (1,) * pairs
        sizes = Sizes(size.reshape(same + members + one), size.reshape(same + one + members), relative)
        return cls(axes, Pairwise(shape, pairs, True, (), compute), sizes)

    @classmethod
    def over(cls, value: Value, axes: Sequence[str], pairs: int) -> Entrywise | None:
        """An array as it is, over these axes; None for one that is not worth it."""
        if isinstance(value, Entrywise):
            return value if value.axes == tuple(axes) and value.step.pairs == pairs else None
        if set(value.axes) != set(axes) or not pairs:
            return None
        found = value.aligned(axes)
        if found.value.size < LARGE:
            return None
        return cls(axes, _leaf(found.value, found.value.shape, pairs), _sizes(found))

    @classmethod
    def expectation(
        cls, f: RealFunction, g: RealFunction, mu: tuple[Estimate, Estimate], var: tuple[Estimate, Estimate],
        cov: Entrywise, jumps: bool = False,
    ) -> Entrywise | None:  # fmt: skip
        """E f(X) g(Y) pair by pair; None where no method serves all pairs, with one bound on their errors.

        Functions that both jump have a large one: only if `jumps` are wanted.
        """
        step = cov.step
        symmetric = step.symmetric and f is g
        if symmetric:  # laws that agree to rounding are one law, so that both orders have the same values
            others = [Estimate(*(exchanged(array, step.pairs) for array in (a.value, a.error))) for a, _ in (mu, var)]
            symmetric = all(_agree(b, c) for (_, b), c in zip((mu, var), others, strict=True))
            if symmetric:
                mu, var = ((a, c) for (a, _), c in zip((mu, var), others, strict=True))
        found = dual(f, g, mu, var, cov.sizes, jumps)
        if found is None:
            return None
        shared = step.correlation(var[0].value, var[1].value)
        made = Pairwise(
            step.shape,
            step.pairs,
            symmetric,
            (shared, step),
            lambda index, given, _: found.values(index, given[0]),
        )
        return cls(cov.axes, made, found.sizes)

    # -- arithmetic -----------------------------------------------------------------------------------------------

    def _with(self, other: Value, operation: np.ufunc, sizes: Callable[[Sizes, Sizes], Sizes]) -> Value | None:
        """A sum or a product, entry by entry."""
        if isinstance(other, Entrywise):
            if other.axes != self.axes or other.step.pairs != self.step.pairs:
                return None
            step, known = other.step, other.sizes
        elif set(other.axes) <= set(self.axes):
            found = other.aligned(self.axes)
            step, known = _leaf(found.value, self.step.shape, self.step.pairs), _sizes(found)
        else:
            return None
        made = sizes(self.sizes, known)
        if not np.isfinite(made.relative):
            return None
        symmetric = self.step.symmetric and step.symmetric
        return Entrywise(self.axes, Pairwise(
            self.step.shape, self.step.pairs, symmetric, (self.step, step),
            lambda _, given, free: operation(given[0], given[1], out=free),
        ), made)  # fmt: skip

    def __add__(self, other: Value) -> Value:
        if other.later:
            return NotImplemented
        if not isinstance(other, Entrywise) and other.zero():
            return self
        return self._with(other, np.add, _sum) or Value.__add__(self, other)

    def __mul__(self, other: Value) -> Value:
        if other.later:
            return NotImplemented
        if not isinstance(other, Entrywise) and other.estimate.value.size == 1:
            value, error = other.estimate.value.item(), other.estimate.error
            if not error.any() and value in (0.0, 1.0):
                return self if value else Value.of(0.0)
        return self._with(other, np.multiply, _product) or Value.__mul__(self, other)

    __radd__, __rmul__ = __add__, __mul__

    def scaled(self, factor: float) -> Value:
        """Times a number that is exact."""
        return self * Value.of(factor)

    # -- reading --------------------------------------------------------------------------------------------------

    @cached_property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """All numbers, in one pass."""
        value = self.step.whole()
        first, second = self.sizes.first, self.sizes.second
        both = first.max(initial=0.0), second.max(initial=0.0)
        if all(np.all((size == 0) | (16 * size >= top)) for size, top in zip((first, second), both, strict=True)):
            first, second = (np.full((1,) * value.ndim, top) for top in both)
        return Estimate(value, np.broadcast_to(self.sizes.relative * (first * second), value.shape))

    @property
    def symmetric(self) -> bool:
        """Whether exchanging first and second copies changes nothing."""
        return self.step.symmetric

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that are held."""
        return () if self.step.known is None else (self.step.known,)

    @cached_property
    def bound(self) -> Estimate:
        """A bound on the size of the numbers, and on their errors."""
        top = self.sizes.first.max(initial=0.0) * self.sizes.second.max(initial=0.0)
        return Estimate(np.asarray(top), np.asarray(self.sizes.relative * top))

    def zero(self) -> bool:
        """Whether all numbers are exactly zero."""
        if not self.bound.value:
            return True
        return not (self.step.some.any() or self.step.whole().any())

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self.step.shape

    def named(self, axes: Sequence[str]) -> Value:
        """The same over axes of other names."""
        return Entrywise(axes, self.step, self.sizes)

    def read(self, slots: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]) -> Value:
        """Read every axis at an affine form of new indices: the whole under other names, or few members."""
        axes, shape = self.axes, self.step.shape
        if not any(name in slots for name in axes):
            return self
        forms = [slots.get(name, Affine.index(name)) for name in axes]
        ranges = {name: (starts.get(name, 0), starts.get(name, 0) + size)
                  for name, size in zip(axes, shape, strict=True) if name not in slots} | dict(ranges)  # fmt: skip
        spans = [form.bounds(ranges) if form.terms else None for form in forms]
        plain = [
            form.bare is not None and span == (starts.get(name, 0), starts.get(name, 0) + size - 1)
            for form, span, name, size in zip(forms, spans, axes, shape, strict=True)
        ]
        names = union(*(form.indices for form in forms))
        if all(plain) and len(names) == len(axes):
            return self if names == axes else self.named([form.bare for form in forms])  # type: ignore[misc]
        shared = len(self.step.shared)
        kept = tuple(form.bare or "" for form in forms[:shared])
        names = union(*(form.indices for form in forms[shared:])) if self.step.whole_rows else names
        if self.step.whole_rows and not (all(plain[:shared]) and len({*kept, *names}) == shared + len(names)):
            return Value(axes, self.estimate).gather(slots, ranges, starts)
        cut = shared if self.step.whole_rows else 0
        forms, own, shape = forms[cut:], axes[cut:], shape[cut:]
        sizes = [ranges[name][1] - ranges[name][0] for name in names]
        if self.step.known is not None or 4 * math.prod(sizes) > math.prod(shape):
            return Value(axes, self.estimate).gather(slots, ranges, starts)
        index = []
        for form, name, size in zip(forms, own, shape, strict=True):
            grid = align(affine_values(form, ranges), names) - starts.get(name, 0)
            index.append(np.broadcast_to(np.clip(grid, 0, size - 1), sizes).ravel())
        if self.step.whole_rows:
            value, rows = self.step.between(tuple(index)), self.step.rows(tuple(index))
            top = self.sizes.relative * (part(self.sizes.first, rows) * part(self.sizes.second, rows))
            found = Estimate(value, np.broadcast_to(top, value.shape))
            names, sizes = (*kept, *names), [*self.step.shared, *sizes]
        else:
            found = self._members(index)
        return Value(names, Estimate(found.value.reshape(sizes), found.error.reshape(sizes)))

    def _moved(
        self, axes: Sequence[str], shared: tuple[int, ...], change: Callable[[Array, Callable[[Array], Array]], Array],
        rounding: float,
    ) -> Entrywise:  # fmt: skip
        """A sum of what is read along axes before those of pairs.

        change    (array, weights): the sum for an array (*shared axes, *others); each weight as `weights` gives it.
                  Sums of products of sizes are bounded by the inequality of Cauchy and Schwarz
        """
        step, sizes = self.step, self.sizes
        first, second = (
            np.sqrt(change(np.square(np.broadcast_to(size, step.shared + size.shape[len(step.shared) :])), np.abs))
            for size in (sizes.first, sizes.second)
        )
        made = Pairwise(
            (*shared, *step.shape[len(step.shared) :]),
            step.pairs,
            step.symmetric,
            (step,),
            lambda _, given, free: change(given[0], np.asarray),
            moves=True,
        )
        return Entrywise(axes, made, Sizes(first, second, sizes.relative + rounding))

    def added(
        self, reads: Sequence[tuple[Slices, Slices]], weights: Sequence[Value], axes: Sequence[str],
        shape: Sequence[int],
    ) -> Value | None:  # fmt: skip
        """A sum over slices along axes before those of pairs, computed in the one pass."""
        count = len(self.step.shared)
        plain = all(cut == slice(None) for both in reads for cuts in both for cut in cuts[count:])
        exact = all({*w.axes} <= {*axes[:count]} and not w.estimate.error.any() for w in weights)
        if not (plain and exact and self.step.symmetric):
            return None
        found = []
        for (there, here), weight in zip(reads, weights, strict=True):
            factor = weight.aligned(axes[:count]).value
            factor = factor[tuple(slice(None) if n == 1 else cut for n, cut in zip(factor.shape, here, strict=False))]
            found.append((there[:count], here[:count], None if np.all(factor == 1) else factor))

        def change(array: Array, weighted: Callable[[Array], Array]) -> Array:
            total = np.zeros((*shape[:count], *array.shape[count:]))
            for there, here, factor in found:
                if factor is None:
                    total[here] += array[there]
                else:
                    total[here] += array[there] * weighted(factor).reshape(factor.shape + (1,) * (array.ndim - count))
            return total

        return self._moved(axes, tuple(shape[:count]), change, (len(found) + 1) * EPS)

    def around(self, name: str, span: Range, start: int) -> Value:
        """The value over a larger range of one index, around which it wraps."""
        count = len(self.step.shared)
        if name not in self.axes[:count]:
            return super().around(name, span, start)
        axis = self.axes.index(name)
        turned = (np.arange(*span) - start) % self.step.shape[axis]
        shared = tuple(len(turned) if k == axis else size for k, size in enumerate(self.step.shared))
        return self._moved(self.axes, shared, lambda array, _: np.take(array, turned, axis=axis), 0.0)

    def summed(self, name: str) -> Value:
        """The sum over an axis."""
        if name not in self.axes[: len(self.step.shared)]:
            return super().summed(name)
        axis, shared = self.axes.index(name), list(self.step.shared)
        rounding = shared.pop(axis) * EPS
        axes = [*self.axes[:axis], *self.axes[axis + 1 :]]
        return self._moved(axes, tuple(shared), lambda array, _: array.sum(axis=axis), rounding)

    def contracted(self, other: Value, over: Sequence[str]) -> Value:
        """The sum of products over some axes."""
        if not over or {*over} & {*other.axes} or not {*over} <= {*self.axes[: len(self.step.shared)]}:
            return super().contracted(other, over)
        total: Value = self
        for name in over:
            total = total.summed(name)
        return total * other

    def at(self, positions: Mapping[str, Array], starts: Mapping[str, int]) -> Estimate:
        """Numbers at index arrays, one for each axis, that broadcast against each other."""
        index = np.broadcast_arrays(*(positions[name] - starts[name] for name in self.axes))
        found = self._members([positions.ravel() for positions in index])
        return Estimate(found.value.reshape(index[0].shape), found.error.reshape(index[0].shape))

    def _members(self, index: Sequence[Array]) -> Estimate:
        sizes = part(self.sizes.first, tuple(index)) * part(self.sizes.second, tuple(index))
        value = self.step.at(index)
        return Estimate(value, np.broadcast_to(self.sizes.relative * sizes, value.shape))


def _leaf(value: Array, shape: tuple[int, ...], pairs: int) -> Pairwise:
    """An array that broadcasts to a shape."""
    return Pairwise(shape, pairs, np.array_equal(value, exchanged(value, pairs)), known=value)


def _agree(one: Estimate, two: Estimate) -> bool:
    """Whether two arrays are equal to a few units of rounding."""
    if one.value.shape != two.value.shape:
        return False
    return bool(np.all(np.abs(one.value - two.value) <= 8 * EPS * np.abs(one.value) + np.minimum(one.error, two.error)))


def _sizes(found: Estimate) -> Sizes:
    """One bound for all entries of an array."""
    top = np.asarray(np.abs(found.value).max(initial=0.0))
    root = np.sqrt(top).reshape((1,) * found.value.ndim)
    return Sizes(root, root, largest_ratio(found.error.max(initial=0.0), top))


def _sum(one: Sizes, two: Sizes) -> Sizes:
    """Of a sum, by the inequality of Cauchy and Schwarz."""
    first, second = (np.sqrt(a * a + b * b) for a, b in ((one.first, two.first), (one.second, two.second)))
    return Sizes(first, second, max(one.relative, two.relative) + EPS)


def _product(one: Sizes, two: Sizes) -> Sizes:
    """Of a product."""
    relative = one.relative + two.relative + one.relative * two.relative + EPS
    return Sizes(one.first * two.first, one.second * two.second, relative)

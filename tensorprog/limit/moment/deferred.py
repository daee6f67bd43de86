"""Values that are written down once over whole ranges and computed in windows, as the rows of a recurrence are.

The recursion walks the statements of a recurrence once, over all steps: what it would compute becomes a graph of few
operations on arrays, which reads tables of covariances that are not known yet.  Each step then asks the graph for its
own window, a row, and no expression is looked at again.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.evaluate import union
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Range
from tensorprog.limit.moment.values import Value, check_memory

__all__ = ["Changes", "Computed", "Deferred", "Held", "KnownPart", "NotDeferredError", "deferred"]

Array = NDArray[Any]
Ranges = Mapping[str, Range]
Window = Mapping[str, Range]
SMALL = 1 << 22  # numbers that are computed at once where nothing is waited for


class NotDeferredError(Exception):
    """Something cannot be written down to be computed in windows: it depends on numbers that are not known yet."""


class Changes:
    """How often something changed that values are computed from."""

    def __init__(self) -> None:
        self.number = 0


class Deferred(Value):
    """A value over whole ranges of its axes, computed for windows of them.

    The last window is remembered until something changes that the value is computed from.
    """

    later = True
    whole: dict[str, Range]
    changes: frozenset[Changes]
    _key: Any
    _found: Estimate

    def __init__(self, axes: Sequence[str], ranges: Ranges, changes: Iterable[Changes], *reads: Value) -> None:
        whole = {name: (ranges[name][0], ranges[name][1]) for name in axes}
        joined = frozenset(changes).union(*(value.changes for value in reads if isinstance(value, Deferred)))
        self.__dict__.update(axes=tuple(axes), whole=whole, changes=joined, _key=None)

    @abstractmethod
    def compute(self, window: Window) -> Estimate:
        """The numbers in a window, which has a range for each axis."""

    def part(self, window: Window) -> Estimate:
        """The numbers in a window: the axes that it does not name are whole."""
        own = {name: window.get(name, span) for name, span in self.whole.items()}
        key = sum([entry.number for entry in self.changes]), *own.values()
        if self._key != key:
            self.__dict__.update(_found=self.compute(own), _key=key)
        return self._found

    @property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """All numbers: nothing may be computed before the tables are filled in."""
        raise NotDeferredError

    # -- what is made of them -------------------------------------------------------------------------------------

    def __add__(self, other: Value) -> Value:
        return _sum(self, other)

    def __radd__(self, other: Value) -> Value:
        return _sum(self, other)

    def __mul__(self, other: Value) -> Value:
        return self if _is(other, 1) else _elementwise(Estimate.__mul__, (self, other), any)

    def __rmul__(self, other: Value) -> Value:
        return self * other

    def scaled(self, factor: float) -> Value:
        """Times a number that is exact."""
        if factor == 1.0:
            return self
        return _elementwise(Estimate.__neg__ if factor == -1.0 else lambda e: e * factor, (self,), all)

    def contracted(self, other: Value, over: Sequence[str]) -> Value:
        """The sum of products over some axes."""
        return _Contracted(self, other, over) if over else self * other

    def summed(self, name: str) -> Value:
        """The sum over an axis."""
        return _Contracted(self, Value.of(1.0), [name])

    def settled(self) -> Value:
        """The mean over replicates of draws: what is known of a value that is computed later."""
        raise NotDeferredError

    def gather(self, slots: Mapping[str, Affine], ranges: Ranges, starts: Mapping[str, int]) -> Value:
        """Read every axis at an affine form of new indices; values outside the axis are read at its edge."""
        forms = {name: slots[name] for name in self.axes if name in slots}
        forms = {n: form for n, form in forms.items() if form.bare != n or tuple(ranges[n]) != self.whole[n]}
        return self._gathered(forms, ranges) if forms else self

    def _gathered(self, forms: Mapping[str, Affine], ranges: Ranges) -> Value:
        return _Gathered(self, forms, ranges)

    def widened(self, name: str, span: Range, whole: Range) -> Value:
        """The value over a larger range of one index, zero outside its own."""
        return _Widened(self, name, span, whole)

    def zero(self) -> bool:
        """Whether the value is known to be zero everywhere."""
        return False

    @property
    def small(self) -> bool:
        """Whether all numbers may be held at once."""
        return math.prod(b - a for a, b in self.whole.values()) <= SMALL


def _known(value: Value) -> Value | None:
    """A value that does not wait for others, if it is one."""
    return value.value_of if isinstance(value, KnownPart) else None if isinstance(value, Deferred) else value


def _is(value: Value, number: float) -> bool:
    """Whether a value is a number without error, the same everywhere."""
    known = _known(value)
    if known is None or known.axes:
        return False
    return bool(known.estimate.value == number and not known.estimate.error)


def _sum(first: Deferred, second: Value) -> Value:
    """The sum of two values; what is known of it is added up before."""
    if _is(second, 0):
        return first
    if _known(first) is not None and isinstance(second, _Elementwise):
        first, second = second, first
    if _known(second) is not None and isinstance(first, _Elementwise) and first.function is Estimate.__add__:
        for value, other in (first.reads, first.reads[::-1]):
            if _known(other) is not None:
                second = _elementwise(Estimate.__add__, (other, second), all)
                return _elementwise(Estimate.__add__, (value, second), all)
    return _elementwise(Estimate.__add__, (first, second), all)


def _elementwise(function: Callable[..., Estimate], reads: Sequence[Value], rule: Callable[[Any], bool]) -> Deferred:
    """A function of estimates, entry by entry: known at once where all of them are."""
    later = _Elementwise(function, reads, rule)
    known = [value for value in map(_known, reads) if value is not None]
    if len(known) < len(reads) or not later.small:
        return later
    found = function(*(value.aligned(later.axes) if value.axes else value.estimate for value in known))
    shape = tuple(b - a for a, b in later.whole.values())
    return KnownPart(later.axes, later.whole, Value(later.axes, found.reshape(shape)))


def deferred(value: Value, ranges: Ranges) -> Deferred:
    """A value that is known, among others that are not."""
    return value if isinstance(value, Deferred) else KnownPart(value.axes, ranges, value)


class KnownPart(Deferred):
    """Numbers as far as they are known: all of a value, or what has been entered."""

    entered: Estimate
    value_of: Value | None
    own: Changes

    def __init__(self, axes: Sequence[str], ranges: Ranges, known: Value | None = None) -> None:
        own = Changes()
        super().__init__(axes, ranges, [own] if known is None else [])
        shape = tuple(b - a for a, b in self.whole.values())
        if known is None:
            check_memory(shape, 2)
        entered = Estimate(np.zeros(shape), np.zeros(shape)) if known is None else known.estimate
        self.__dict__.update(entered=entered, value_of=known, own=own)

    def zero(self) -> bool:
        """Whether the value is known to be zero everywhere."""
        return self.value_of is not None and self.value_of.zero()

    def _gathered(self, forms: Mapping[str, Affine], ranges: Ranges) -> Value:
        later = _Gathered(self, forms, ranges)
        if self.value_of is None or not later.small:
            return later
        starts = {name: span[0] for name, span in self.whole.items()}
        known = self.value_of.read(forms, ranges, starts)
        return KnownPart(later.axes, later.whole, Value(later.axes, known.aligned(later.axes)))

    @property
    def estimate(self) -> Estimate:  # type: ignore[override]
        """All numbers of a value that is known."""
        if self.value_of is None:
            raise NotDeferredError
        return self.entered

    def _place(self, window: Window) -> Any:
        spans = self.whole.items()
        held = [(window.get(name, span), span[0]) for name, span in spans]
        return tuple([slice(span[0] - start, span[1] - start) for span, start in held]) or ...

    def part(self, window: Window) -> Estimate:
        """The numbers in a window: the axes that it does not name are whole."""
        return self.compute({name: window.get(name, span) for name, span in self.whole.items()})

    def compute(self, window: Window) -> Estimate:
        """The numbers in a window."""
        place = self._place(window)
        return Estimate(self.entered.value[place], self.entered.error[place])

    def enter(self, window: Window, found: Estimate) -> None:
        """Write the numbers of a window."""
        place = self._place(window)
        self.entered.value[place], self.entered.error[place] = found.value, found.error
        self.own.number += 1


class Computed(Deferred):
    """What a function gives for the ranges of a window."""

    def __init__(
        self, axes: Sequence[str], ranges: Ranges, call: Callable[[dict[str, Range]], Value],
        changes: Iterable[Changes] = (), *reads: Value
    ) -> None:  # fmt: skip
        super().__init__(axes, ranges, changes, *reads)
        self.__dict__.update(call=call, ranges=dict(ranges))

    call: Callable[[dict[str, Range]], Value]
    ranges: dict[str, Range]

    def compute(self, window: Window) -> Estimate:
        """The numbers in a window."""
        found = self.call({**self.ranges, **window}).aligned(self.axes)
        return _filled(found, window)


class Held(Deferred):
    """A value that is computed once for all that read it in a window, wherever they do."""

    def __init__(self, value: Deferred) -> None:
        super().__init__(value.axes, value.whole, (), value)
        self.__dict__["held"] = value

    held: Deferred

    def compute(self, window: Window) -> Estimate:
        """The numbers in a window."""
        return self.held.part(window)

    def zero(self) -> bool:
        """Whether the value is known to be zero everywhere."""
        return self.held.zero()


class _Elementwise(Deferred):
    """A function of estimates, entry by entry; zero where all of them are zero, or any."""

    def __init__(self, function: Callable[..., Estimate], reads: Sequence[Value], rule: Callable[[Any], bool]) -> None:
        ranges: dict[str, Range] = {}
        for value in reads:
            ranges |= value.whole if isinstance(value, Deferred) else {}
        super().__init__(union(*(value.axes for value in reads)), ranges, (), *reads)
        self.__dict__.update(function=function, reads=tuple(reads), rule=rule)

    function: Callable[..., Estimate]
    reads: tuple[Value, ...]
    rule: Callable[[Any], bool]

    def compute(self, window: Window) -> Estimate:
        """The numbers in a window."""
        parts = []
        for value in self.reads:
            part = value.part(window) if isinstance(value, Deferred) else value.estimate
            parts.append(part if value.axes in (self.axes, ()) else Value(value.axes, part).aligned(self.axes))
        return _filled(self.function(*parts), window)

    def _gathered(self, forms: Mapping[str, Affine], ranges: Ranges) -> Value:
        return _elementwise(self.function, [value.gather(forms, ranges, {}) for value in self.reads], self.rule)

    def zero(self) -> bool:
        """Whether the value is known to be zero everywhere."""
        return self.rule(value.zero() for value in self.reads)


class _Gathered(Deferred):
    """A value read at affine forms of other indices, at its edge where they leave it."""

    def __init__(self, value: Deferred, forms: Mapping[str, Affine], ranges: Ranges) -> None:
        incoming = {name for form in forms.values() for name in form.indices}
        mapped = [name for name in value.axes if name in forms]
        mapped += [name for name in value.axes if name not in forms and name in incoming]
        slots = {name: forms.get(name, Affine.index(name)) for name in mapped}
        kept = [name for name in value.axes if name not in slots]
        axes = union(*(form.indices for form in slots.values()), kept)
        whole = {name: value.whole[name] if name in kept else ranges[name] for name in axes}
        super().__init__(axes, whole, (), value)
        self.__dict__.update(source=value, slots=slots, steps=self._views(value, slots))

    source: Deferred
    slots: dict[str, Affine]
    steps: tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]] | None

    def _views(self, value: Deferred, slots: Mapping[str, Affine]) -> Any:
        """Axes to drop, pairs of axes whose diagonal is read, and the order of what is left, where this is a view."""
        names: list[str | None] = []
        for name in value.axes:
            form = slots.get(name, Affine.index(name))
            if form.terms and (len(form.terms) > 1 or form.terms[0][1] != 1):
                return None
            names.append(form.terms[0][0] if form.terms else None)
        dropped = tuple(k for k, name in enumerate(names) if name is None)
        left = [name for name in names if name is not None]
        pairs: list[tuple[int, int]] = []
        while repeated := [k for k, name in enumerate(left) if left.index(name) < k]:
            second = repeated[0]
            first = left.index(left[second])
            pairs.append((first, second))
            left = [name for k, name in enumerate(left) if k not in {first, second}] + [left[second]]
        return dropped, tuple(pairs), tuple(left.index(name) for name in self.axes)

    def compute(self, window: Window) -> Estimate:
        """The numbers in a window."""
        read, inside = {}, True
        for name, (start, stop) in self.source.whole.items():
            form = self.slots.get(name)
            if form is None:
                read[name] = window[name]
                continue
            low, high = form.bounds(window)
            inside = inside and start <= low and high < stop
            low = min(max(low, start), stop - 1)
            read[name] = low, max(low, min(high, stop - 1)) + 1
        part = self.source.part(read)
        if self.steps is not None and inside:
            return Estimate(self._view(part.value), self._view(part.error))
        starts = {name: span[0] for name, span in read.items()}
        return _filled(Value(self.source.axes, part).gather(self.slots, window, starts).aligned(self.axes), window)

    def _view(self, array: Array) -> Array:
        assert self.steps is not None
        dropped, pairs, order = self.steps
        if dropped:
            key: tuple[int | slice, ...] = tuple(0 if k in dropped else slice(None) for k in range(array.ndim))
            array = array[key]
        for first, second in pairs:
            array = array.diagonal(0, first, second)
        return array if order == tuple(range(array.ndim)) else array.transpose(order)

    def zero(self) -> bool:
        """Whether the value is known to be zero everywhere."""
        return self.source.zero()


class _Widened(Deferred):
    """A value over a larger range of one index, zero outside its own."""

    def __init__(self, value: Deferred, name: str, span: Range, whole: Range) -> None:
        axes = value.axes if name in value.axes else (name, *value.axes)
        super().__init__(axes, {**value.whole, name: whole}, (), value)
        self.__dict__.update(source=value, name=name, span=span)

    source: Deferred
    name: str
    span: Range

    def compute(self, window: Window) -> Estimate:
        """The numbers in a window."""
        start, stop = window[self.name]
        low, high = max(start, self.span[0]), min(stop, self.span[1])
        shape = [b - a for a, b in window.values()]
        if low >= high:
            return Estimate.exact(np.zeros(shape))
        held = {**window, self.name: (low, high)}
        part = _filled(Value(self.source.axes, self.source.part(held)).aligned(self.axes), held)
        if (low, high) == (start, stop):
            return part
        place = tuple(slice(low - start, high - start) if a == self.name else slice(None) for a in self.axes)
        found = Estimate(np.zeros(shape), np.zeros(shape))
        found.value[place], found.error[place] = part.value, part.error
        return found

    def zero(self) -> bool:
        """Whether the value is known to be zero everywhere."""
        return self.source.zero()


class _Contracted(Deferred):
    """The sum of products over some axes."""

    def __init__(self, first: Value, second: Value, over: Sequence[str]) -> None:
        ranges: dict[str, Range] = {}
        for value in (first, second):
            ranges |= value.whole if isinstance(value, Deferred) else {}
        super().__init__([n for n in union(first.axes, second.axes) if n not in over], ranges, (), first, second)
        self.__dict__.update(reads=(first, second), over=tuple(over))

    reads: tuple[Value, Value]
    over: tuple[str, ...]

    def compute(self, window: Window) -> Estimate:
        """The numbers in a window."""
        parts = [Value(v.axes, v.part(window)) if isinstance(v, Deferred) else v for v in self.reads]
        return _filled(parts[0].contracted(parts[1], self.over).aligned(self.axes), window)

    def zero(self) -> bool:
        """Whether the value is known to be zero everywhere."""
        return any(value.zero() for value in self.reads)


def _filled(found: Estimate, window: Window) -> Estimate:
    """An estimate with the shape of a window."""
    shape = tuple([b - a for a, b in window.values()])
    return found if found.value.shape == shape else found.reshape(shape)

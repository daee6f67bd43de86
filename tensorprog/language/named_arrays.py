"""Open arrays: numpy arrays whose axes carry names, so that families broadcast without being unrolled.

Two names are special: BATCH (networks or draws) always comes first, COORDINATE (the width) always last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.expr import Affine

__all__ = [
    "BATCH",
    "COORDINATE",
    "Open",
    "add",
    "affine_values",
    "align",
    "broadcast",
    "contract",
    "gather",
    "multiply",
    "take",
    "union",
]

BATCH, COORDINATE = "#", "@"
Range = tuple[int, int]


@dataclass(frozen=True)
class Open:
    """An array with one name per axis; a missing axis means "the same for all its values"."""

    axes: tuple[str, ...]
    data: NDArray[Any]

    def __post_init__(self) -> None:
        assert len(self.axes) == np.ndim(self.data), (self.axes, np.shape(self.data))


def union(*axes: Sequence[str]) -> tuple[str, ...]:
    """All names, BATCH first, COORDINATE last, the others in order of first appearance."""
    names = dict.fromkeys(name for group in axes for name in group)
    middle = tuple(name for name in names if name not in (BATCH, COORDINATE))
    return (BATCH,) * (BATCH in names) + middle + (COORDINATE,) * (COORDINATE in names)


def align(value: Open, axes: Sequence[str]) -> NDArray[Any]:
    """View of the data with exactly the axes named (a superset of its own), missing ones of length 1."""
    if value.axes == tuple(axes):
        return value.data
    own = [name for name in axes if name in value.axes]
    data = value.data.transpose([value.axes.index(name) for name in own])
    return data.reshape([data.shape[own.index(name)] if name in own else 1 for name in axes])


def broadcast(value: Open, axes: Sequence[str], sizes: Mapping[str, int]) -> NDArray[Any]:
    """As `align`, with every axis at its full size (a view where possible)."""
    return np.broadcast_to(align(value, axes), [sizes[name] for name in axes])


def affine_values(slot: Affine, ranges: Mapping[str, Range]) -> Open:
    """Values of an affine form over the open grid of its indices."""
    axes = slot.indices
    total: NDArray[Any] = np.full((1,) * len(axes), slot.offset)
    for position, (name, coefficient) in enumerate(slot.terms):
        values = coefficient * np.arange(*ranges[name])
        total = total + values.reshape([-1 if k == position else 1 for k in range(len(axes))])
    return Open(axes, total)


def take(
    array: NDArray[Any], lead: Sequence[str], starts: Sequence[int], slots: Sequence[Affine], trail: Sequence[str],
    ranges: Mapping[str, Range], boundaries: Sequence[str] = (),
) -> Open:
    """Read a family at affine slots.

    Shapes    array: lead axes, one axis per slot (first value `starts`), trail axes; result over lead, the slots'
              indices, trail.  Slots that are distinct indices plus constants give a view.
    """
    rules = tuple(boundaries) or ("",) * len(slots)
    sizes = array.shape[len(lead) : len(lead) + len(slots)]
    indices = [name for slot in slots for name in slot.indices]
    outside = [_reads_beyond(slot, start, size, ranges) for slot, start, size in zip(slots, starts, sizes, strict=True)]
    simple = len(set(indices)) == len(indices) and all(
        len(slot.terms) == 0 or (len(slot.terms) == 1 and slot.terms[0][1] == 1) for slot in slots
    )
    if simple and not any(outside):
        key: list[Any] = [slice(None)] * len(lead)
        for slot, start in zip(slots, starts, strict=True):
            if slot.terms:
                low, stop = ranges[slot.terms[0][0]]
                key.append(slice(low + slot.offset - start, stop + slot.offset - start))
            else:
                key.append(slot.offset - start)
        return Open((*lead, *indices, *trail), array[tuple(key)])
    axes = union(*(slot.indices for slot in slots))
    grids = []
    mask: NDArray[Any] | None = None
    for slot, start, size, rule in zip(slots, starts, sizes, rules, strict=True):
        values = align(affine_values(slot, ranges), axes) - start
        if rule == "wrap":
            values = values % size
        elif rule == "zero":
            inside = (values >= 0) & (values < size)
            mask = inside if mask is None else mask & inside
            values = np.clip(values, 0, size - 1)
        grids.append(values)
    full = np.broadcast_shapes(*(grid.shape for grid in grids))
    picked = array[(slice(None),) * len(lead) + tuple(np.broadcast_to(grid, full) for grid in grids)]
    if mask is not None and not mask.all():
        picked = picked * np.broadcast_to(mask, full).reshape((1,) * len(lead) + full + (1,) * len(trail))
    return Open((*lead, *axes, *trail), picked)


def gather(
    value: Open, forms: Mapping[str, Affine], ranges: Mapping[str, Range], starts: Mapping[str, int]
) -> Open:
    """Read the axes named in `forms` at affine forms of other indices; places outside an axis read its edge.

    Shapes    the result has the forms' indices in place of the axes named, all other axes as they are
    """
    size_of = dict(zip(value.axes, value.data.shape, strict=True))
    forms = {
        name: form
        for name, form in forms.items()
        if name in value.axes
        and not (form.bare == name and tuple(ranges.get(name, ())) == (starts[name], starts[name] + size_of[name]))
    }
    if not forms:
        return value
    mapped = [name for name in value.axes if name in forms]
    kept = [name for name in value.axes if name not in forms]
    # an index that comes in may be an axis already (the diagonal of i and i_): then it is read along as well
    incoming = {name for form in forms.values() for name in form.indices}
    mapped += [name for name in kept if name in incoming]
    kept = [name for name in kept if name not in incoming]
    data = align(value, (*mapped, *kept))
    slots, begin = [], []
    for position, name in enumerate(mapped):
        slot = forms.get(name, Affine.index(name))
        start, size = starts[name], data.shape[position]
        low, high = slot.bounds(ranges)
        if low < start or high >= start + size:
            data = np.take(data, np.clip(np.arange(low, high + 1) - start, 0, size - 1), axis=position)
            start = low
        slots.append(slot)
        begin.append(start)
    result = take(data, (), begin, slots, tuple(kept), ranges)
    axes = union(result.axes)
    return Open(axes, align(result, axes))


def _reads_beyond(slot: Affine, start: int, size: int, ranges: Mapping[str, Range]) -> bool:
    low, high = slot.bounds(ranges)
    return low < start or high >= start + size


def multiply(first: Open, second: Open) -> Open:
    """Product over the union of the axes."""
    axes = union(first.axes, second.axes)
    return Open(axes, align(first, axes) * align(second, axes))


def add(first: Open, second: Open) -> Open:
    """Sum over the union of the axes."""
    axes = union(first.axes, second.axes)
    return Open(axes, align(first, axes) + align(second, axes))


def contract(first: Open, second: Open, over: Sequence[str]) -> Open:
    """Sum of first * second over the named axes, as batched matrix products: never forms the product array.

    Axes named in `over` must occur in at least one operand.
    """
    # an axis summed over that only one operand has is summed there first
    for name in over:
        if name not in second.axes:
            first = _sum(first, name)
        elif name not in first.axes:
            second = _sum(second, name)
    over = [name for name in over if name in first.axes and name in second.axes]
    shared = [name for name in first.axes if name in second.axes and name not in over]
    left = [name for name in first.axes if name not in second.axes]
    right = [name for name in second.axes if name not in first.axes]

    def matrix(value: Open, rows: Sequence[str], columns: Sequence[str]) -> NDArray[Any]:
        order = [*shared, *rows, *columns]
        data = value.data.transpose([value.axes.index(name) for name in order])
        head, middle = len(shared), len(shared) + len(rows)
        shape = data.shape
        return data.reshape(*shape[:head], int(np.prod(shape[head:middle])), int(np.prod(shape[middle:])))

    with np.errstate(over="ignore", invalid="ignore"):  # what is no number is refused with its statement
        product = np.matmul(matrix(first, left, over), matrix(second, over, right))
    size = dict(zip(first.axes, first.data.shape, strict=True)) | dict(zip(second.axes, second.data.shape, strict=True))
    axes = (*shared, *left, *right)
    result = Open(axes, product.reshape([size[name] for name in axes]))
    ordered = union(axes)
    return Open(ordered, align(result, ordered))


def _sum(value: Open, name: str) -> Open:
    position = value.axes.index(name)
    return Open(tuple(axis for axis in value.axes if axis != name), value.data.sum(axis=position))

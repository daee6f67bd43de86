"""Which member of a weight family makes which member of a MatMul: packs vectors as (weight member, column)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.evaluate import (
    BATCH,
    COORDINATE,
    Open,
    affine_values,
    align,
    broadcast,
    elementwise,
    index_array,
)
from tensorprog.language.ir import Family, MatMul, Netsor, Range


def variances(netsor: Netsor, weight: str) -> NDArray[Any]:
    """The variance declared for each member of a weight family, in C order."""
    declared = netsor.weight[weight]
    return index_array(netsor, declared.variance, declared.indices).reshape(-1)


@dataclass(frozen=True)
class Grouping:
    """One MatMul over the box `ranges`: its members grouped by the weight matrix they use.

    Packed vectors have shape (batch, members or 1, columns, coordinates); a member axis of length 1 means that all
    weight members see the same vectors.
    """

    statement: MatMul
    weight: Family
    ranges: Mapping[str, Range]

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Indices on the left side that the right side depends on, in order of the left side."""
        used = {name for slot in (*self.statement.weight.slots, *self.statement.vector.slots) for name in slot.indices}
        return tuple(slot.bare for slot in self.statement.target.slots if slot.bare in used and slot.bare is not None)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Size of each index."""
        return {name: stop - start for name, (start, stop) in self.ranges.items()}

    @cached_property
    def separable(self) -> bool:
        """Whether every weight slot is a number or one index plus a constant, no index twice and none out of range."""
        slots = self.statement.weight.slots
        names = [name for slot in slots for name in slot.indices]
        bounds = [slot.bounds(self.ranges) for slot in slots]
        spans = self.weight.ranges
        inside = all(span[0] <= low and high < span[1] for (low, high), span in zip(bounds, spans, strict=True))
        plain = all(not slot.terms or (len(slot.terms) == 1 and slot.terms[0][1] == 1) for slot in slots)
        return inside and plain and len(set(names)) == len(names)

    @cached_property
    def member_axes(self) -> tuple[str, ...]:
        """Indices that choose the weight member (separable case)."""
        return tuple(name for slot in self.statement.weight.slots for name in slot.indices)

    @cached_property
    def column_axes(self) -> tuple[str, ...]:
        """Indices of the vectors that one weight member multiplies (separable case)."""
        return tuple(name for name in self.axes if name not in self.member_axes)

    def _member_numbers(self) -> Open:
        """Number of the weight member, in C order of the whole weight family, over the indices of its slots.

        A slot beyond a zero boundary has no weight: number -1.
        """
        total, outside = Open((), np.zeros((), dtype=np.int64)), Open((), np.zeros((), dtype=bool))
        for slot, (start, stop), rule in zip(
            self.statement.weight.slots, self.weight.ranges, self.weight.boundaries, strict=True
        ):
            value = affine_values(slot, self.ranges)
            position = (value.data - start) % (stop - start) if rule == "wrap" else value.data - start
            beyond = (position < 0) | (position >= stop - start)
            total = elementwise(np.add, Open(total.axes, total.data * (stop - start)), Open(value.axes, position))
            outside = elementwise(np.logical_or, outside, Open(value.axes, beyond))
        return Open(total.axes, np.where(outside.data, -1, total.data))

    @cached_property
    def members(self) -> NDArray[np.int64]:
        """Numbers of the weight members used, in the order of the packed axis."""
        numbers = self._member_numbers()
        if self.separable:
            return broadcast(numbers, self.member_axes, self.sizes).reshape(-1).astype(np.int64)
        found = np.unique(numbers.data).astype(np.int64)
        return found[found >= 0]

    @cached_property
    def _positions(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """For weights that are not separable: flat position over `axes` of each (member, column), and which exist."""
        numbers = broadcast(self._member_numbers(), self.axes, self.sizes).reshape(-1)
        order = np.argsort(numbers, kind="stable")
        order = order[numbers[order] >= 0]
        _, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        column = np.arange(counts.max(initial=0))
        exists = column < counts[:, None]
        flat = np.where(exists, starts[:, None] + np.minimum(column, counts[:, None] - 1), 0)
        return order[flat].astype(np.int64), exists

    @property
    def columns(self) -> int:
        """Number of vectors per weight member (the largest, where it varies)."""
        if self.separable:
            return math.prod(self.sizes[name] for name in self.column_axes)
        return int(self._positions[0].shape[1])

    @property
    def reads_members(self) -> bool:
        """Whether the vectors read depend on an index that chooses the weight member."""
        names = {name for slot in self.statement.vector.slots for name in slot.indices}
        return not self.separable or any(name in names for name in self.member_axes)

    @property
    def sets(self) -> int:
        """Number of sets of vectors: one for each weight member, or one for all."""
        return len(self.members) if self.reads_members else 1

    def pack(self, vector: Open) -> NDArray[Any]:
        """Arrange the vectors to be multiplied as (batch, members or 1, columns, coordinates)."""
        sizes = self.sizes | dict(zip(vector.axes, vector.data.shape, strict=True))
        batch, width = sizes.get(BATCH, 1), sizes.get(COORDINATE, 1)
        if self.separable:
            # one axis order for all: members (only if the vectors vary over them), columns
            own = self.member_axes if any(name in vector.axes for name in self.member_axes) else ()
            axes = (BATCH, *own, *self.column_axes, COORDINATE)
            data = broadcast(vector, axes, sizes | {BATCH: batch, COORDINATE: width})
            return data.reshape(batch, math.prod(sizes[name] for name in own), self.columns, width)
        axes = (BATCH, *self.axes, COORDINATE)
        count = math.prod(sizes[name] for name in self.axes)
        flat = broadcast(vector, axes, sizes | {BATCH: batch, COORDINATE: width}).reshape(batch, count, width)
        positions, exists = self._positions
        return flat[:, positions] * exists[None, :, :, None]

    def unpack(self, product: NDArray[Any]) -> Open:
        """Arrange products (batch, members, columns, coordinates) over the indices of the left side."""
        batch, width = product.shape[0], product.shape[-1]
        if self.separable:
            order = (*self.member_axes, *self.column_axes)
            data = product.reshape(batch, *(self.sizes[name] for name in order), width)
            result = Open((BATCH, *order, COORDINATE), data)
            axes = (BATCH, *self.axes, COORDINATE)
            return Open(axes, align(result, axes))
        positions, exists = self._positions
        flat = np.zeros((batch, math.prod(self.sizes[name] for name in self.axes), width), dtype=product.dtype)
        flat[:, positions[exists]] = product[:, exists]
        return Open((BATCH, *self.axes, COORDINATE), flat.reshape(batch, *(self.sizes[n] for n in self.axes), width))

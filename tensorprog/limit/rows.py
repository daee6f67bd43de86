"""Factor rows of MatMul families: the vectors e_g with e_g.e_g' = Cov(Z^g, Z^g'), per weight member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import Open, contract, gather, multiply
from tensorprog.expr import Affine
from tensorprog.grouping import Grouping
from tensorprog.ir import Range
from tensorprog.rename import compose

__all__ = ["RANK", "Rows", "place_of", "spread"]

Array = NDArray[Any]
RANK = "r"


@dataclass(frozen=True)
class Rows:
    """Factor rows e_g of a MatMul family over the indices of its left side.

    Either `values` has the axis RANK, or the vectors are orthogonal: then e_g is `values` times the unit vector number
    `place`, an affine form of the indices.
    """

    values: Open
    place: Affine | None
    group: Grouping
    members: NDArray[np.int64]  # all members of the weight that have a block of normals

    def apply(self, normals: Open, rank: str, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> Open:
        """Contract normals over the axis `rank` with the rows read at affine forms of other indices."""
        starts = starts_of(self.group.ranges)
        values = gather(self.values, names, ranges, starts)
        if self.place is None:
            values = Open(tuple(rank if axis == RANK else axis for axis in values.axes), values.data)
            return contract(values, normals, [rank])
        picked = gather(normals, {rank: compose(self.place, names)}, ranges, {rank: 0} | starts_of(ranges))
        return multiply(values, picked)


def starts_of(ranges: Mapping[str, Range]) -> dict[str, int]:
    """First value of every index."""
    return {name: span[0] for name, span in ranges.items()}


def place_of(group: Grouping, offset: int) -> Affine:
    """Number of a column as an affine form of the column indices, in C order."""
    terms, stride = [], 1
    for name in reversed(group.column_axes):
        terms.append((name, stride))
        offset -= stride * group.ranges[name][0]
        stride *= group.sizes[name]
    return Affine(tuple(terms), offset)


def spread(part: Array, group: Grouping) -> Open:
    """Rows (members or 1, columns, rank) over the indices of the left side."""
    if group.separable and part.shape[0] == 1:
        sizes = [group.sizes[name] for name in group.column_axes]
        return Open((*group.column_axes, RANK), part.reshape(*sizes, part.shape[-1]))
    full = np.broadcast_to(part, (len(group.members), *part.shape[1:]))
    value = group.unpack(full[None])
    return Open((*value.axes[1:-1], RANK), value.data[0])

"""Factor rows of MatMul families: the vectors e_g with e_g.e_g' = Cov(Z^g, Z^g'), per weight member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.evaluate import COORDINATE, Open, affine_values, contract, gather, index_array, multiply
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Family, Range
from tensorprog.language.linalg import psd_cholesky
from tensorprog.language.weight_members import Grouping
from tensorprog.limit.form.definitions import reads_beyond
from tensorprog.limit.memory import need
from tensorprog.limit.moment.compiler import Compiler
from tensorprog.limit.moment.indexed import difference
from tensorprog.limit.moment.values import IndexedValues

__all__ = ["RANK", "Rows", "factor_rows"]

Array = NDArray[Any]
RANK = "r"
FACTORED = 5  # arrays of the size of second moments while they are factored
TOGETHER = 1 << 19  # second moments computed at once


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
    error: float = 0.0  # of the second moments of the vectors multiplied, relative to the largest

    def apply(self, normals: Open, rank: str, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> Open:
        """Contract normals over the axis `rank` with the rows read at affine forms of other indices."""
        starts = starts_of(self.group.ranges)
        values = gather(self.values, names, ranges, starts)
        if self.place is None:
            values = Open(tuple(rank if axis == RANK else axis for axis in values.axes), values.data)
            return contract(values, normals, [rank])
        picked = gather(normals, {rank: self.place.at(names)}, ranges, {rank: 0} | starts_of(ranges))
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


def factor_rows(compiler: Compiler, groups: Sequence[Grouping]) -> tuple[NDArray[np.int64], int, dict[str, Rows]]:
    """Factor the second moments of all vectors that one weight family multiplies: its members, rank, rows by family.

    One factor serves all members of the weight where their vectors have the same moments.
    """
    members = np.unique(np.concatenate([g.members for g in groups]))
    varying = any(_varies(compiler, g, other) for g in groups for other in groups)
    whole = all(np.array_equal(g.members, members) for g in groups)
    shared = whole and not varying
    offsets = np.cumsum([0, *(g.columns for g in groups)])
    rows, orthogonal = _factor(compiler, groups, offsets, members[:1] if shared else members)
    if whole and len(rows) > 1 and (not rows.strides[0] or np.all(rows == rows[:1])):
        rows = rows[:1]
    declared = compiler.netsor.weight[groups[0].weight.name]
    sigma = np.sqrt(index_array(compiler.netsor, declared.variance, declared.indices).reshape(-1)[members])
    rows = rows * (sigma[0] if np.all(sigma == sigma[:1]) else sigma[:, None, None])
    result = {}
    for g, start, stop in zip(groups, offsets, offsets[1:], strict=False):
        part = rows[:, start:stop]
        values = spread(part[np.searchsorted(members, g.members)] if len(rows) > 1 else part, g)
        column: Affine | None = None
        if orthogonal:
            values, column = Open(values.axes[:-1], values.data[..., 0]), place_of(g, int(start))
        moment = compiler.second(g.statement.vector.name, g.statement.vector.name)
        error = moment.error / max(moment.size, 1e-300)
        result[g.statement.target.name] = Rows(values, column, g, members, error)
    return members, int(offsets[-1]), result


def _factor(
    compiler: Compiler, groups: Sequence[Grouping], offsets: NDArray[np.int64], members: NDArray[np.int64]
) -> tuple[Array, bool]:
    """Rows of the factor of the second moments of all columns, or their lengths where the vectors are orthogonal.

    Shapes    (members, columns, columns), or (members, columns, 1); and whether they are orthogonal
    Raises    MemoryLimitError
    """
    if _apart(compiler, groups):  # nothing but the diagonal is ever formed
        return np.sqrt(np.maximum(_moments(compiler, groups, offsets, members, diagonal=True), 0))[..., None], True
    names = ", ".join(dict.fromkeys(g.statement.vector.name for g in groups))
    need(
        FACTORED * len(members) * int(offsets[-1]) ** 2,
        f"factoring the second moments of {offsets[-1]} vectors ({names}) for {len(members)} members of "
        f"{groups[0].weight.name}",
    )
    gram = _moments(compiler, groups, offsets, members)
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1)
    if all(g.separable for g in groups) and np.count_nonzero(gram) == np.count_nonzero(diagonal):
        return np.sqrt(np.maximum(diagonal, 0))[..., None], True
    if len(gram) > 1 and np.all(gram == gram[:1]):
        gram = gram[:1]
    factor = psd_cholesky(gram)
    return np.broadcast_to(factor, (len(members), *factor.shape[1:])), False


def _apart(compiler: Compiler, groups: Sequence[Grouping]) -> bool:
    """Whether the structure of second moments says that all columns of a member are orthogonal."""
    for k, first in enumerate(groups):
        if not first.separable or reads_beyond(compiler.netsor, first.statement.vector, first.ranges):
            return False
        for second in groups[: k + 1]:
            moment = _at_columns(compiler, first, second)
            if moment is None or (moment.terms and first is not second):
                return False
            same = {difference(Affine.index(name), Affine.index(f"{name}_")) for name in first.column_axes}
            if not all(same <= term.equations for term in moment.terms):
                return False
    return True


def _at_columns(compiler: Compiler, first: Grouping, second: Grouping) -> IndexedValues | None:
    """Second moments of the columns of two families at the same member of their weight, second copies for the second;
    None where the member is not read in the same way."""
    names = {name: Affine.index(f"{name}_") for name in second.axes}
    for a, b in zip(first.statement.weight.slots, second.statement.weight.slots, strict=True):  # the same member
        if bool(a.terms) != bool(b.terms):
            return None
        for name, _ in b.terms:
            names[name] = Affine(a.terms, a.offset - b.offset)
    slots = {str(k): slot for k, slot in enumerate(first.statement.vector.slots)}
    slots |= {f"{k}_": slot.at(names) for k, slot in enumerate(second.statement.vector.slots)}
    ranges = {name: first.ranges[name] for name in first.axes}
    ranges |= {f"{name}_": second.ranges[name] for name in second.column_axes}
    return compiler.second(first.statement.vector.name, second.statement.vector.name).read(slots, ranges)


def _varies(compiler: Compiler, first: Grouping, second: Grouping) -> bool:
    """Whether the moments of the vectors of two families may differ from one member of their weight to another."""
    if not (first.separable and second.separable):
        return True
    if any(reads_beyond(compiler.netsor, group.statement.vector, group.ranges) for group in (first, second)):
        return True
    if not (first.reads_members or second.reads_members):
        return False
    moment = _at_columns(compiler, first, second)
    if moment is None:
        return True
    used = {n for t in moment.terms for n in (*t.value.axes, *(n for e in t.equations for n in e.indices))}
    return bool(used & set(first.member_axes))


def _moments(
    compiler: Compiler, groups: Sequence[Grouping], offsets: NDArray[np.int64], members: NDArray[np.int64],
    diagonal: bool = False,
) -> Array:  # fmt: skip
    """Second moments of all columns, member by member, some rows at a time; or of each column with itself.

    Shapes    (members, columns, columns), or (members, columns)
    """
    found = [_positions(g, compiler.netsor.families[g.statement.vector.name]) for g in groups]
    result = np.zeros((len(members), offsets[-1]) if diagonal else (len(members), offsets[-1], offsets[-1]))
    for a, g in enumerate(groups):
        for b, other in enumerate(groups):
            common = np.intersect1d(np.intersect1d(members, g.members), other.members)
            if not len(common) or (diagonal and a != b):
                continue
            moment = compiler.second(g.statement.vector.name, other.statement.vector.name)
            left, right = (
                [p[np.searchsorted(group.members, common)] if len(p) > 1 else p for p in found[k][0]]
                for k, group in ((a, g), (b, other))
            )
            rows = np.searchsorted(members, common)[:, None, None]
            if diagonal:
                at = {str(k): p for k, p in enumerate(left)} | {f"{k}_": p for k, p in enumerate(right)}
                result[rows[:, 0], np.arange(offsets[a], offsets[a + 1])] = moment.at(at).value
                continue
            step = max(1, TOGETHER // (len(common) * other.columns))
            for start in range(0, g.columns, step):
                part = slice(start, min(start + step, g.columns))
                at = {str(k): p[:, part, None] for k, p in enumerate(left)}
                at |= {f"{k}_": p[:, None, :] for k, p in enumerate(right)}
                place = np.arange(offsets[a] + part.start, offsets[a] + part.stop)[:, None]
                result[rows, place, np.arange(offsets[b], offsets[b + 1])] = moment.at(at).value
    if diagonal:
        return result
    for g, (_, exists), start, stop in zip(groups, found, offsets, offsets[1:], strict=False):
        if not exists.all():
            place = np.flatnonzero(np.isin(members, g.members))
            chosen = exists[np.searchsorted(g.members, members[place])] if len(exists) > 1 else exists
            result[place, start:stop] *= chosen[..., None]
            result[place, :, start:stop] *= chosen[:, None, :]
    return result


def _positions(group: Grouping, family: Family) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Index values of the vectors that are multiplied, one array for each slot, and which there are.

    Shapes    each (members or 1, columns)
    """
    arrays = []
    exists = np.ones((1, 1), dtype=bool) if group.separable else group.exists
    rules = family.boundaries or ("",) * len(family.ranges)
    for slot, (start, stop), rule in zip(group.statement.vector.slots, family.ranges, rules, strict=True):
        values = affine_values(slot, group.ranges)
        packed = group.pack(Open((*values.axes, COORDINATE), values.data[..., None]))[0, :, :, 0]
        if not group.separable:  # padded columns read some member that exists; their products are dropped
            packed = np.where(group.exists, packed, slot.bounds(group.ranges)[0])
        if rule == "wrap":
            packed = start + (packed - start) % (stop - start)
        exists = exists & (packed >= start) & (packed < stop)
        arrays.append(np.clip(packed, start, stop - 1))
    shape = np.broadcast_shapes((1, group.columns), exists.shape, *(a.shape for a in arrays))
    return [np.broadcast_to(a, shape) for a in arrays], np.broadcast_to(exists, shape)

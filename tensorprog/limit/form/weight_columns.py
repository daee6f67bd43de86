"""What each weight multiplies, numbered: the vectors that one weight member meets are the columns of a Gram matrix.

Columns are numbered in the order in which the vectors become known, so that a triangular factor of their covariance
can grow: the rows of earlier columns stay as they are when later ones come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.evaluate import Open, affine_values, align, broadcast
from tensorprog.language.expr import Affine, Variable, reindexed
from tensorprog.language.ir import Dot, Family, MatMul, Netsor, Range
from tensorprog.language.schedule import Step
from tensorprog.limit.form.definitions import operands_of, positions_of, target_box

__all__ = ["Columns", "Meeting"]

Numbers = NDArray[np.int64]


class Meeting:
    """Where the two operands of a score stand: members of their weights, columns, and pairs of weight members.

    Shapes    arrays that broadcast over the positions asked for, in the order of `axes`; length 1 where a position does
              not matter
    """

    def __init__(self, columns: Columns, left: Variable, right: Variable, ranges: Mapping[str, Range]) -> None:
        places = [columns.places(reference, ranges) for reference in (left, right)]
        self.axes = tuple(name for name in ranges if any(name in place.axes for place in places))
        flat = [align(place, self.axes) for place in places]
        names = [columns.weight[reference.name] for reference in (left, right)]
        (first, second), column = (
            [_short(table[r.name][place]) for r, place in zip((left, right), flat, strict=True)]
            for table in (columns.member, columns.column)
        )
        swapped = (
            _short(first > second) if names[0] == names[1] else np.full((1,) * len(self.axes), names[0] > names[1])
        )
        self.members, self.columns = (first, second), (column[0], column[1])
        if swapped.size and swapped.all():  # nothing is spread over axes that do not matter to it
            self.members, self.columns = (second, first), (column[1], column[0])
        elif swapped.any():
            self.members = np.where(swapped, second, first), np.where(swapped, first, second)
            self.columns = np.where(swapped, *column[::-1]), np.where(swapped, *column)
        self.weights = tuple(sorted(names))
        self.pairs = self.members[0] * columns.most + self.members[1]


def _short(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same with length 1 along axes that do not matter."""
    for axis, size in enumerate(numbers.shape):
        first = numbers.take([0], axis) if size else numbers
        numbers = first if np.all(numbers == first) else numbers
    return numbers


class Columns:
    """The columns of every weight of a program.

    Shapes    for a MatMul family: `member`, `column` (members,), numbers of the weight member and of the column.  For a
              weight: `owner`, `place` (weight members, columns), the family of a column (by number in `families`; -1
              beyond the last) and the member of it, and `made`, the number of the step that makes it
    """

    def __init__(self, netsor: Netsor, steps: Iterable[Step], together: Mapping[str, int] | None = None) -> None:
        self.netsor = netsor
        self.together = dict(together or {})  # scores that are drawn by their covariances instead, with their groups
        self.weight: dict[str, str] = {}
        self.member: dict[str, Numbers] = {}
        self.column: dict[str, Numbers] = {}
        self.families: dict[str, list[str]] = {}
        self.owner: dict[str, Numbers] = {}
        self.place: dict[str, Numbers] = {}
        self.made: dict[str, Numbers] = {}
        self._step: dict[str, Numbers] = {}  # of each member of a MatMul family
        self.most = 1 + max((int(np.prod(f.shape)) for f in netsor.families.values() if f.kind == "weight"), default=0)
        products = [(k, step, step.statement) for k, step in enumerate(steps) if isinstance(step.statement, MatMul)]
        for _, _, statement in products:
            if statement.target.name not in self.weight:
                self._declare(statement)
        counts = {name: np.zeros(int(np.prod(netsor.families[name].shape)), np.int64) for name in self.families}
        for number, step, statement in products:
            self._count(statement, step.ranges(netsor.ranges), counts[statement.weight.name], number)
        for weight, count in counts.items():
            self._table(weight, count)
        self.source: dict[str, tuple[str, ...]] = {}  # of a score of infinite width: the key of its normals
        self.pairs = self._pairs()

    def _pairs(self) -> dict[tuple[str, ...], Numbers]:
        """The pairs of weight members that meet in scores, by the key of their normals."""
        found: dict[tuple[str, ...], Numbers] = {}
        for statement in self.netsor.body:
            if isinstance(statement, Dot) and statement.scale != "1/n" and self._drawn(statement):
                box = {str(k): span for k, span in enumerate(target_box(statement, self.netsor.ranges))}
                meeting = self.meeting(statement, box)
                self.source[statement.target.name] = key = ("pair", *meeting.weights)
                found[key] = np.union1d(found.get(key, np.zeros(0, np.int64)), meeting.pairs)
        return found

    def _drawn(self, statement: Dot) -> bool:
        """Whether a score has normals of its own: one of infinite width, of two products."""
        infinite = self.netsor.families[statement.left.name].width not in dict(self.netsor.fixed_widths)
        products = {statement.left.name, statement.right.name} <= self.weight.keys()
        return infinite and products and statement.target.name not in self.together

    def _declare(self, statement: MatMul) -> None:
        name, weight = statement.target.name, statement.weight
        family, declared = self.netsor.families[name], self.netsor.families[weight.name]
        self.weight[name] = weight.name
        self.families.setdefault(weight.name, []).append(name)
        ranges = {str(k): span for k, span in enumerate(family.ranges)}
        slots = reindexed(weight, positions_of(statement.target)).slots
        self.member[name] = _flat(slots, declared, ranges).reshape(-1)
        self.column[name] = np.full(self.member[name].shape, -1)
        self._step[name] = np.full(self.member[name].shape, -1)

    def _count(self, statement: MatMul, ranges: Mapping[str, Range], counts: Numbers, step: int) -> None:
        """Number the members that a step makes known."""
        name = statement.target.name
        box = {str(k): span for k, span in enumerate(target_box(statement, ranges))}
        flat = _flat([Affine.index(axis) for axis in box], self.netsor.families[name], box).reshape(-1)
        member, self._step[name][flat] = self.member[name][flat], step
        order = np.argsort(member, kind="stable")
        ordered = member[order]
        first = np.searchsorted(ordered, ordered)
        self.column[name][flat[order]] = counts[ordered] + np.arange(len(ordered)) - first
        np.add.at(counts, member, 1)

    def _table(self, weight: str, counts: Numbers) -> None:
        shape = len(counts), int(counts.max(initial=0))
        self.owner[weight], self.place[weight] = np.full(shape, -1), np.zeros(shape, np.int64)
        self.made[weight] = np.full(shape, -1)
        for number, name in enumerate(self.families[weight]):
            at = self.member[name], self.column[name]
            self.owner[weight][at] = number
            self.place[weight][at] = np.arange(len(self.member[name]))
            self.made[weight][at] = self._step[name]

    def places(self, reference: Variable, ranges: Mapping[str, Range]) -> Open:
        """Numbers of the members that a reference reads, over the indices in its slots."""
        family = self.netsor.families[reference.name]
        indices = dict.fromkeys(name for slot in reference.slots for name in slot.indices)
        own = {name: ranges[name] for name in ranges if name in indices}
        return Open(tuple(own), _flat(reference.slots, family, own))

    def positions(self, name: str, flat: Numbers, suffix: str = "") -> dict[str, Numbers]:
        """Positions '0', '1', ... of the members of a family that have these numbers."""
        family = self.netsor.families[name]
        spots = np.unravel_index(flat, family.shape) if family.shape else ()
        return {
            f"{k}{suffix}": start + spot for k, (spot, (start, _)) in enumerate(zip(spots, family.ranges, strict=True))
        }

    def meeting(self, statement: Dot, ranges: Mapping[str, Range]) -> Meeting:
        """The operands of a score over positions '0', '1', ... of its family in the ranges."""
        left, right = operands_of(statement)
        return Meeting(self, left, right, ranges)


def _flat(slots: Sequence[Affine], family: Family, ranges: Mapping[str, Range]) -> Numbers:
    """Number of the member at the slots, in C order, over all indices in the ranges.

    Beyond a boundary that is zero it is any: all that is made there is zero.
    """
    sizes = {name: stop - start for name, (start, stop) in ranges.items()}
    total = np.zeros(tuple(sizes.values()), np.int64)
    rules = family.boundaries or ("",) * len(slots)
    for slot, (start, stop), rule in zip(slots, family.ranges, rules, strict=True):
        value = broadcast(affine_values(slot, ranges), tuple(sizes), sizes) - start
        value = value % (stop - start) if rule == "wrap" else np.clip(value, 0, stop - start - 1)
        total = total * (stop - start) + value
    return total

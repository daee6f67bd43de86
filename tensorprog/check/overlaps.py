"""Which members references read: whether two can touch the same one, and whether one reads beyond a boundary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import repeat
from typing import NoReturn

from tensorprog.language.expr import Affine, Variable
from tensorprog.language.ir import Family, Netsor, Range

Box = dict[str, Range]
Confined = tuple[Affine, Range]


class Verdict(Enum):
    """What is known: certified, refuted by a witness, or neither."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        raise TypeError("a verdict has three values: compare it with HOLDS, FAILS or UNKNOWN")


HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.UNKNOWN


def marked(slot: Affine, mark: str) -> Affine:
    """An affine slot whose indices carry a mark, so that two statements keep their own."""
    return Affine(tuple((f"{name}{mark}", value) for name, value in slot.terms), slot.offset)


class System:
    """Affine equations over a box of whole numbers, with affine forms confined to ranges."""

    def __init__(self) -> None:
        self.box: Box = {}
        self.equations: list[Affine] = []
        self.confined: list[Confined] = []

    def variables(self, ranges: Mapping[str, Range], names: Iterable[str], mark: str) -> None:
        """Let indices run over their ranges."""
        self.box |= {f"{name}{mark}": ranges[name] for name in names}

    def all_equal(self, some: Iterable[Affine], others: Iterable[Affine]) -> None:
        """Ask for forms to be equal, one by one."""
        self.equations += [a - b for a, b in zip(some, others, strict=True)]

    def member(self, family: Family, reference: Variable, mark: str) -> list[Affine]:
        """The member that is read, with marked indices: slots may wrap; beyond a boundary of zeros there is none."""
        found, slots = [], [marked(slot, mark) for slot in reference.slots]
        for slot, span, rule in zip(slots, family.ranges, family.boundaries or repeat(""), strict=False):
            read = slot
            if rule == "wrap":  # slot = member + rounds * size
                low, high = slot.bounds(self.box)
                size, rounds = span[1] - span[0], f"rounds {len(self.box)}'"
                self.box[rounds] = ((low - span[0]) // size, (high - span[0]) // size + 1)
                read = slot - size * Affine.index(rounds)
            if rule:
                self.confined.append((read, span))
            found.append(read)
        return found

    def solve(self) -> tuple[Verdict, dict[str, int]]:
        """HOLDS: no solution; FAILS: a solution, as index values; UNKNOWN."""
        todo, confined = list(self.equations), list(self.confined)
        solved: dict[str, Affine] = {}
        box = dict(self.box)
        while todo:
            form = todo.pop()
            if not form.terms:
                if form.offset:
                    return HOLDS, {}
                continue
            if form.offset % math.gcd(*(value for _, value in form.terms)):
                return HOLDS, {}
            name = next((name for name, value in form.terms if abs(value) == 1), None)
            if name is None:
                confined.append((form, (0, 1)))
                continue
            value = {name: form.solved(name)}
            confined.append((value[name], box.pop(name)))
            todo = [other.at(value) for other in todo]
            confined = [(other.at(value), span) for other, span in confined]
            solved = {key: other.at(value) for key, other in solved.items()} | value
        verdict, point = _search(box, confined)
        values = {name: Affine((), value) for name, value in point.items()}
        return verdict, point | {name: form.at(values).offset for name, form in solved.items() if verdict is FAILS}


def _search(box: Box, confined: list[Confined]) -> tuple[Verdict, dict[str, int]]:
    """A point of the box at which all forms are in their ranges: what is narrowed is fixed, one by one."""
    part = _narrowed(box, confined)
    if part is None:
        return HOLDS, {}
    for name in dict.fromkeys(name for form, _ in confined for name in form.indices):
        part = _narrowed(part | {name: (part[name][0], part[name][0] + 1)}, confined)
        if part is None:
            return UNKNOWN, {}
    return FAILS, {name: low for name, (low, _) in part.items()}


def _narrowed(box: Box, confined: list[Confined]) -> Box | None:
    """The box without ends at which a form leaves its range whatever the others are; None if nothing is left."""
    box, before = dict(box), None
    while box != before:
        before = dict(box)
        for form, (start, stop) in confined:
            low, high = form.bounds(box)
            if low >= stop or high < start:
                return None
            for name, c in form.terms:
                least, most = sorted((c * box[name][0], c * (box[name][1] - 1)))
                ends = sorted(((start - (high - most)) / c, (stop - 1 - (low - least)) / c))
                box[name] = max(box[name][0], math.ceil(ends[0])), min(box[name][1], math.floor(ends[1]) + 1)
                if box[name][0] >= box[name][1]:
                    return None
                low, high = form.bounds(box)
    return box if all(low < high for low, high in box.values()) else None


# -- references beyond boundaries --------------------------------------------------------------------------------------


def crossed(netsor: Netsor, reference: Variable, ranges: Mapping[str, Range]) -> list[str]:
    """Rules of the boundaries beyond which a reference reads."""
    family = netsor.families[reference.name]
    places = zip(reference.slots, family.ranges, family.boundaries, strict=True)
    ends = ((slot.bounds(ranges), span, rule) for slot, span, rule in places)
    return [rule for (low, high), (start, stop), rule in ends if low < start or high >= stop]

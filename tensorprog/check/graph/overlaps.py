"""Can two references touch one member of a family?  Affine equations over a box of whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import repeat

from tensorprog.language.expr import Affine
from tensorprog.language.facts import FAILS, HOLDS, UNKNOWN, Verdict
from tensorprog.language.ir import Family, Range

__all__ = ["Form", "System", "form", "substituted"]

MAX_BOXES = 5000  # parts of the box that a search looks at

Form = tuple[dict[str, int], int]
Box = dict[str, Range]
Confined = tuple[Form, Range]


def form(slot: Affine, mark: str) -> Form:
    """An affine slot whose indices carry a mark, so that two statements keep their own."""
    return {f"{name}{mark}": c for name, c in slot.terms}, slot.offset


def substituted(slot: Affine, inside: Mapping[str, Form]) -> Form:
    """An affine slot with forms in place of its indices."""
    terms: dict[str, int] = {}
    offset = slot.offset
    for name, coefficient in slot.terms:
        inner, constant = inside.get(name, ({name: 1}, 0))
        offset += coefficient * constant
        for other, factor in inner.items():
            terms[other] = terms.get(other, 0) + coefficient * factor
    return {name: c for name, c in terms.items() if c}, offset


class System:
    """Affine equations over a box of whole numbers, with affine forms confined to ranges."""

    def __init__(self) -> None:
        self.box: Box = {}
        self.equations: list[Form] = []
        self.confined: list[Confined] = []

    def variables(self, ranges: Mapping[str, Range], names: Iterable[str], mark: str) -> None:
        """Let indices run over their ranges."""
        self.box |= {f"{name}{mark}": ranges[name] for name in names}

    def equal(self, a: Form, b: Form) -> None:
        """Ask for two forms to be equal."""
        self.equations.append(_difference(a, b))

    def within(self, confined: Form, span: Range) -> None:
        """Confine a form to a range."""
        self.confined.append((confined, span))

    def member(self, family: Family, slots: Iterable[Form]) -> list[Form]:
        """The member that is read where these forms stand: slots may wrap; beyond a boundary of zeros there is none."""
        found = []
        for slot, span, rule in zip(slots, family.ranges, family.boundaries or repeat(""), strict=False):
            read = slot
            if rule == "wrap":  # slot = member + rounds * size
                low, high = _bounds(slot, self.box)
                size, rounds = span[1] - span[0], f"rounds {len(self.box)}'"
                self.box[rounds] = ((low - span[0]) // size, (high - span[0]) // size + 1)
                read = ({**slot[0], rounds: -size}, slot[1])
            if rule:
                self.within(read, span)
            found.append(read)
        return found

    def solve(self) -> tuple[Verdict, dict[str, int]]:
        """HOLDS: no solution; FAILS: a solution, as index values; UNKNOWN."""
        todo, confined = list(self.equations), list(self.confined)
        solved: list[tuple[str, Form]] = []
        box = dict(self.box)
        while todo:
            terms, offset = todo.pop()
            if not terms:
                if offset:
                    return HOLDS, {}
                continue
            if offset % math.gcd(*terms.values()):
                return HOLDS, {}
            name = next((n for n, c in terms.items() if abs(c) == 1), None)
            if name is None:
                confined.append(((terms, offset), (0, 1)))
                continue
            c = terms[name]
            value: Form = ({n: -c * k for n, k in terms.items() if n != name}, -c * offset)
            confined.append((value, box.pop(name)))
            todo = [_replace(f, name, value) for f in todo]
            confined = [(_replace(f, name, value), span) for f, span in confined]
            solved = [(n, _replace(f, name, value)) for n, f in solved] + [(name, value)]
        verdict, point = _search(box, confined)
        return verdict, point | {name: _value(f, point) for name, f in solved if verdict is FAILS}


def _search(box: Box, confined: list[Confined]) -> tuple[Verdict, dict[str, int]]:
    """A point of the box at which all forms are in their ranges: intervals are narrowed, and the smallest is halved."""
    waiting, looked = [box], 0
    while waiting:
        looked += 1
        if looked > MAX_BOXES:
            return UNKNOWN, {}
        part = _narrowed(waiting.pop(), confined)
        if part is None:
            continue
        open_ = {name for (terms, _), _ in confined for name in terms if part[name][1] - part[name][0] > 1}
        if not open_:
            return FAILS, {name: low for name, (low, _) in part.items()}
        name = min(sorted(open_), key=lambda n: part[n][1] - part[n][0])
        low, high = part[name]
        middle = (low + high) // 2
        waiting += [part | {name: (middle, high)}, part | {name: (low, middle)}]
    return HOLDS, {}


def _narrowed(box: Box, confined: list[Confined]) -> Box | None:
    """The box without ends at which a form leaves its range whatever the others are; None if nothing is left."""
    box, before = dict(box), None
    while box != before:
        before = dict(box)
        for (terms, offset), (start, stop) in confined:
            low, high = _bounds((terms, offset), box)
            if low >= stop or high < start:
                return None
            for name, c in terms.items():
                least, most = sorted((c * box[name][0], c * (box[name][1] - 1)))
                ends = sorted(((start - (high - most)) / c, (stop - 1 - (low - least)) / c))
                box[name] = max(box[name][0], math.ceil(ends[0])), min(box[name][1], math.floor(ends[1]) + 1)
                if box[name][0] >= box[name][1]:
                    return None
                low, high = _bounds((terms, offset), box)
    return box if all(low < high for low, high in box.values()) else None


def _bounds(of: Form, box: Mapping[str, Range]) -> Range:
    """The least and the largest value of a form over a box."""
    ends = [sorted((c * box[name][0], c * (box[name][1] - 1))) for name, c in of[0].items()]
    return of[1] + sum(low for low, _ in ends), of[1] + sum(high for _, high in ends)


def _difference(a: Form, b: Form) -> Form:
    terms = dict(a[0])
    for name, c in b[0].items():
        terms[name] = terms.get(name, 0) - c
    return {name: c for name, c in terms.items() if c}, a[1] - b[1]


def _replace(old: Form, name: str, value: Form) -> Form:
    terms, offset = old
    if name not in terms:
        return old
    c = terms[name]
    result = {n: k for n, k in terms.items() if n != name}
    for n, k in value[0].items():
        result[n] = result.get(n, 0) + c * k
    return {n: k for n, k in result.items() if k}, offset + c * value[1]


def _value(of: Form, point: Mapping[str, int]) -> int:
    return of[1] + sum(c * point[n] for n, c in of[0].items())

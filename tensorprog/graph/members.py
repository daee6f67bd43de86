"""Can two references touch one member of a family?  Affine equations over a box of whole numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping

from tensorprog.expr import Affine
from tensorprog.facts import FAILS, HOLDS, UNKNOWN, Verdict
from tensorprog.ir import Range

__all__ = ["Form", "System", "form", "substituted"]

Form = tuple[dict[str, int], int]


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
        self.box: dict[str, Range] = {}
        self.equations: list[Form] = []
        self.confined: list[tuple[Form, Range]] = []
        self.vague = False

    def variables(self, ranges: Mapping[str, Range], names: Iterable[str], mark: str) -> None:
        """Let indices run over their ranges."""
        self.box |= {f"{name}{mark}": ranges[name] for name in names}

    def equal(self, a: Form, b: Form, rule: str = "") -> None:
        """Ask for two forms to be equal."""
        if rule:
            self.vague = True  # slots that wrap are equal modulo the size: not decided here
            return
        terms = dict(a[0])
        for name, c in b[0].items():
            terms[name] = terms.get(name, 0) - c
        self.equations.append(({n: c for n, c in terms.items() if c}, a[1] - b[1]))

    def within(self, confined: Form, span: Range) -> None:
        """Confine a form to a range."""
        self.confined.append((confined, span))

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
        several = []
        for (terms, offset), (start, stop) in confined:
            if not terms:
                if not start <= offset < stop:
                    return HOLDS, {}
            elif len(terms) == 1:
                ((name, c),) = terms.items()
                ends = sorted(((start - offset) / c, (stop - 1 - offset) / c))
                low, high = box[name]
                box[name] = max(low, math.ceil(ends[0])), min(high, math.floor(ends[1]) + 1)
            else:
                several.append(((terms, offset), (start, stop)))
        if any(low >= high for low, high in box.values()):
            return HOLDS, {}
        for point, complete in _points(box, bool(several)):
            if all(start <= _value(f, point) < stop for f, (start, stop) in several):
                if self.vague:
                    return UNKNOWN, {}
                return FAILS, point | {name: _value(f, point) for name, f in solved}
            if complete:
                return HOLDS, {}
        return UNKNOWN, {}


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


def _points(box: Mapping[str, Range], search: bool) -> Iterable[tuple[dict[str, int], bool]]:
    """Points of a box, the last marked when all were tried; the first corner alone when there is nothing to search."""
    names = list(box)
    total = math.prod(high - low for low, high in box.values())
    if not search or total == 1:
        yield {name: box[name][0] for name in names}, True
    elif total <= 5000:
        for number, values in enumerate(itertools.product(*(range(*box[name]) for name in names))):
            yield dict(zip(names, values, strict=True)), number == total - 1
    else:
        generator = random.Random(0)
        for _ in range(3000):
            yield {name: generator.randrange(*box[name]) for name in names}, False

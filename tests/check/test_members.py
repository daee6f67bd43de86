"""Which members two uses can touch, against all members listed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from tensorprog.check.overlaps import System
from tensorprog.language.expr import Affine
from tensorprog.language.facts import FAILS, HOLDS
from tensorprog.language.ir import Family, Range

NAMES = ("a", "b", "c", "d")
RULES = ("", "wrap", "zero")


def _value(form: Affine, point: dict[str, int]) -> int:
    return form.offset + sum(c * point[name] for name, c in form.terms)


def _form(generator: np.random.Generator) -> Affine:
    terms = {name: int(c) for name, c in zip(NAMES, generator.integers(-3, 4, len(NAMES)), strict=True) if c}
    return Affine.of(terms, int(generator.integers(-6, 7)))


@dataclass
class Question:
    """Pairs of references to one member each, and a form in a range."""

    box: dict[str, Range]
    family: Family
    pairs: list[tuple[Affine, Affine]]
    confined: Affine
    span: Range = (-3, 4)

    @classmethod
    def drawn(cls, generator: np.random.Generator) -> Question:
        box = {
            name: (int(s), int(s + generator.integers(1, 6)))
            for name, s in zip(NAMES, generator.integers(-2, 3, len(NAMES)), strict=True)
        }
        size, rule = int(generator.integers(1, 6)), str(generator.choice(RULES))
        family = Family("f", "weight", ((0, size),), boundaries=(rule,))
        pairs = [(_form(generator), _form(generator)) for _ in range(generator.integers(1, 3))]
        return cls(box, family, pairs, _form(generator))

    def system(self) -> System:
        system = System()
        system.variables(self.box, NAMES, "")
        for one, two in self.pairs:
            system.equal(*system.member(self.family, [one]), *system.member(self.family, [two]))
        system.within(self.confined, self.span)
        return system

    def read(self, form: Affine, point: dict[str, int]) -> int | None:
        """The member at a point; None beyond a boundary of zeros."""
        value, ((start, stop),), (rule,) = _value(form, point), self.family.ranges, self.family.boundaries
        if rule == "wrap":
            return start + (value - start) % (stop - start)
        return value if not rule or start <= value < stop else None

    def solved(self, point: dict[str, int]) -> bool:
        reads = [(self.read(one, point), self.read(two, point)) for one, two in self.pairs]
        inside = self.span[0] <= _value(self.confined, point) < self.span[1]
        return inside and all(one is not None and one == two for one, two in reads)


@pytest.mark.turns(4)
def test_systems_agree_with_all_their_points() -> None:
    generator = np.random.default_rng(0)
    seen = set()
    for _ in range(1500):
        question = Question.drawn(generator)
        points = [dict(zip(NAMES, p, strict=True)) for p in product(*(range(*question.box[n]) for n in NAMES))]
        verdict, point = question.system().solve()
        assert verdict is (FAILS if any(map(question.solved, points)) else HOLDS)
        if verdict is FAILS:
            inside = {name: point[name] for name in NAMES}
            assert inside in points
            assert question.solved(inside)
        seen.add((verdict, question.family.boundaries))
    assert len(seen) == 6


def test_large_boxes_are_decided() -> None:
    box = {"a": (0, 10**6), "b": (0, 10**6), "c": (0, 96), "i": (0, 2048)}
    family = Family("f", "weight", ((0, 96),), boundaries=("wrap",))
    for offset, verdict in ((1, HOLDS), (96, FAILS)):
        system = System()
        system.variables(box, box, "")
        system.equal(*system.member(family, [Affine.index("c")]), *system.member(family, [Affine.index("c") + offset]))
        assert system.solve()[0] is verdict
    system = System()
    system.variables(box, box, "")
    system.equal(6 * Affine.index("a") - 10 * Affine.index("b"), Affine((), 4))
    found, point = system.solve()
    assert found is FAILS
    assert 6 * point["a"] - 10 * point["b"] == 4

"""Which members two uses can touch, against all members listed."""

from __future__ import annotations

from itertools import product

import numpy as np

from tensorprog.facts import FAILS, HOLDS
from tensorprog.graph.members import Form, System
from tensorprog.ir import Family

RULES = ("", "wrap", "zero")


def _value(form: Form, point: dict[str, int]) -> int:
    return form[1] + sum(c * point[name] for name, c in form[0].items())


def _read(form: Form, family: Family, point: dict[str, int]) -> int | None:
    """The member at a point; None beyond a boundary of zeros."""
    value, ((start, stop),), (rule,) = _value(form, point), family.ranges, family.boundaries
    if rule == "wrap":
        return start + (value - start) % (stop - start)
    return value if not rule or start <= value < stop else None


def _form(generator: np.random.Generator, names: list[str]) -> Form:
    terms = {name: int(c) for name, c in zip(names, generator.integers(-3, 4, len(names)), strict=True) if c}
    return terms, int(generator.integers(-6, 7))


def test_systems_agree_with_all_their_points() -> None:
    generator = np.random.default_rng(0)
    names = ["a", "b", "c", "d"]
    seen = set()
    for _ in range(1500):
        starts = generator.integers(-2, 3, 4)
        box = {n: (int(s), int(s + size)) for n, s, size in zip(names, starts, generator.integers(1, 6, 4), strict=True)}
        points = [dict(zip(names, p, strict=True)) for p in product(*(range(*box[n]) for n in names))]
        family = Family("f", "weight", ((0, int(generator.integers(1, 6))),), boundaries=(str(generator.choice(RULES)),))
        pairs = [[_form(generator, names) for _ in range(2)] for _ in range(generator.integers(1, 3))]
        confined, span = _form(generator, names), (-3, 4)

        system = System()
        system.variables(box, names, "")
        for pair in pairs:
            (one,), (two,) = (system.member(family, [form]) for form in pair)
            system.equal(one, two)
        system.within(confined, span)
        verdict, point = system.solve()

        def solves(point: dict[str, int]) -> bool:
            reads = [[_read(form, family, point) for form in pair] for pair in pairs]
            return all(one is not None and one == two for one, two in reads) and span[0] <= _value(confined, point) < span[1]

        assert verdict is (FAILS if any(map(solves, points)) else HOLDS)
        if verdict is FAILS:
            inside = {n: point[n] for n in names}
            assert inside in points and solves(inside)
        seen.add((verdict, family.boundaries))
    assert len(seen) == 6


def test_large_boxes_are_decided() -> None:
    box = {"a": (0, 10**6), "b": (0, 10**6), "c": (0, 96), "i": (0, 2048)}
    family = Family("f", "weight", ((0, 96),), boundaries=("wrap",))
    for offset, verdict in ((1, HOLDS), (96, FAILS)):
        system = System()
        system.variables(box, box, "")
        (one,), (two,) = (system.member(family, [form]) for form in (({"c": 1}, 0), ({"c": 1}, offset)))
        system.equal(one, two)
        assert system.solve()[0] is verdict
    system = System()
    system.variables(box, box, "")
    system.equal(({"a": 6, "b": -10}, 0), ({}, 4))
    found, point = system.solve()
    assert found is FAILS and 6 * point["a"] - 10 * point["b"] == 4

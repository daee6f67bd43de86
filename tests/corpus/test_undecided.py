"""What is not known never counts as certified: the corpus with searches and certificates that give up.

A certifier without witnesses, without boxes for the equations between indices, without relations, and without numbers
of the limit knows less, so no grade may be better than with them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensorprog.check import overlaps as members
from tensorprog.check.certificates import Calculus, composition
from tensorprog.check.clauses import GRADES, check
from tensorprog.language.facts import UNKNOWN
from tests.corpus import CASES

Patch = Callable[[pytest.MonkeyPatch], object]


def no_witnesses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Calculus, "_search", lambda *_: None)


def no_boxes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(members, "_search", lambda *_: (UNKNOWN, {}))


def no_relations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(composition, "MAX_STEPS", -1)


def nothing(patch: pytest.MonkeyPatch) -> None:
    for each in (no_witnesses, no_boxes, no_relations):
        each(patch)


@pytest.mark.turns(6)
@pytest.mark.parametrize("gives_up", [
    no_boxes,
    *(pytest.param(each, marks=pytest.mark.slow) for each in (no_witnesses, no_relations, nothing)),
])  # fmt: skip
def test_what_is_not_known_is_no_certificate(gives_up: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    gives_up(monkeypatch)
    cases = [case for case in CASES.values() if case.grade != "theorem"]
    assert len(cases) > 200
    for case in cases:
        report = check(case.load())
        assert GRADES.index(report.grade) >= GRADES.index(case.grade), (case.name, str(report))

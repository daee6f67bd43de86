"""Every program of the corpus gets the grade it deserves, for the reason it deserves it."""

from __future__ import annotations

import pytest

from tensorprog.check.clauses import GRADES, RULES
from tensorprog.check.graph import build
from tests.corpus import CASES, TABLES, Case
from tests.reading import judge

FAILING = ("fails", "unknown")
OUTSIDE = [case for case in CASES.values() if case.grade == "outside"]


def _rules(report, *verdicts: str) -> set[str]:
    return {finding.rule for finding in report.findings if finding.verdict in verdicts}


QUICK = 5  # every so many cases are in the quick run


@pytest.mark.parametrize("case", [
    pytest.param(case, id=case.name, marks=[] if k % QUICK == 0 else pytest.mark.slow)
    for k, case in enumerate(CASES.values())
])  # fmt: skip
def test_grade_and_reason(case: Case) -> None:
    netsor = case.load()
    report = judge(netsor)
    assert report.grade == case.grade, str(report)
    assert report.consequence == case.consequence, str(report)
    assert report.rate == ("sqrt(n)" if case.consequence == "diverges" else "")
    assert {claim.name: claim.standing for claim in report.claims} == dict(case.claims)
    assert _rules(report, *FAILING) == ({case.rule} if case.grade == "outside" else set()), str(report)
    if case.grade == "remark":
        assert _rules(report, "remark") == {case.rule}
    assert set(case.warns) == _rules(report, "warning")
    assert not case.rewritten or report.rewrites
    assert bool(report.failing) == (case.grade == "outside")
    # findings point at a statement and offer a fix
    nodes = set(build(netsor))
    lines = {statement.span.line: str(statement.target) for statement in netsor.body}
    for finding in report.failing:
        assert finding.where.startswith(lines[finding.line])
        assert set(finding.nodes) <= nodes
        assert finding.nodes[0] == lines[finding.line]
        assert finding.message and finding.fix and finding.source


def test_the_corpus_is_large() -> None:
    assert len(CASES) == sum(map(len, TABLES.values())) >= 100
    assert len(OUTSIDE) >= 40
    names = {rule.name for rule in RULES}
    assert {case.rule for case in CASES.values()} - {""} <= names
    assert all(
        case.grade in GRADES and bool(case.rule) == (case.grade in ("remark", "outside")) for case in CASES.values()
    )
    assert all(bool(case.consequence) == (case.grade == "outside") for case in CASES.values())
    assert all(bool(case.claims) == (case.grade == "extension") for case in CASES.values())


def _texts(case: Case) -> tuple:
    return case.body, case.initial, case.constants, case.weights


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.near], ids=lambda case: case.name)
def test_near_misses_name_each_other_and_are_judged_differently(case: Case) -> None:
    for name in case.near:
        other = CASES[name]
        assert case.name in other.near
        verdicts = [(c.grade, c.rule, c.consequence, c.claims, c.warns) for c in (case, other)]
        assert verdicts[0] != verdicts[1]
        assert _texts(case) != _texts(other)


def test_most_wrong_programs_have_a_right_neighbour() -> None:
    paired = [case for case in OUTSIDE if any(CASES[name].grade != "outside" for name in case.near)]
    assert len(paired) >= 0.9 * len(OUTSIDE)

"""Every program of the corpus gets the grade it deserves, decided by the rule that decides it."""

from __future__ import annotations

import pytest
from assumption_corpus import CORPUS, Case

from tensorprog.assumptions import check

NAMES = [case.name for case in CORPUS]


@pytest.mark.parametrize("case", CORPUS, ids=NAMES)
def test_grade_and_rule(case: Case) -> None:
    report = check(case.load())
    assert report.grade == case.grade, str(report)
    if case.consequence:
        assert report.consequence == case.consequence
    if case.grade == "outside":
        assert report.exit_code == 1
        assert {f.rule for f in report.failing} == {case.rule}
    else:
        assert report.exit_code == 0
        assert not report.failing
        if case.rule:
            assert any(f.rule == case.rule and f.verdict in ("remark", "holds") for f in report.findings)


@pytest.mark.parametrize(
    "case", [c for c in CORPUS if c.grade == "outside"], ids=[c.name for c in CORPUS if c.grade == "outside"]
)
def test_findings_point_at_a_statement_and_offer_a_fix(case: Case) -> None:
    netsor = case.load()
    targets = {str(s.target) for s in netsor.body}
    for finding in check(netsor).failing:
        assert finding.nodes[0] in targets
        assert finding.where.startswith(finding.nodes[0])
        assert finding.line > 0
        assert finding.fix
        assert finding.source


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 30
    assert len(set(NAMES)) == len(CORPUS)
    assert sum(c.grade == "outside" for c in CORPUS) >= 12

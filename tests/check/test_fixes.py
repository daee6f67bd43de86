"""What findings propose, all done at once, is a program that loads and has a better grade: one round is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tensorprog.check.clauses import GRADES, Finding, Fix
from tensorprog.check.clauses.report import Replacement
from tensorprog.language.expr import Variable, rebuild
from tensorprog.language.ir import MatMul, Nonlin, Statement
from tests.corpus import CASES, Case
from tests.reading import Netsor, dump, judge, loads

DECIDING = {"outside": ("fails", "unknown"), "remark": ("remark",)}
FAULTY = [case for case in CASES.values() if case.grade in DECIDING]


def _put(body: list[Statement], new: Statement) -> None:
    """Put a statement in the place of that with its left side, or in front of the first that reads its family."""
    for k, old in enumerate(body):
        if str(old.target) == str(new.target):
            body[k] = new
            return
    readers = (k for k, s in enumerate(body) if new.target.name in {v.name for v in s.inputs})
    body.insert(next(readers, len(body)), new)


def _replaced(statement: Statement, one: Replacement) -> Statement:
    """A statement with one expression in place of another."""
    if isinstance(statement, MatMul) and statement.vector == one.old and isinstance(one.new, Variable):
        return replace(statement, vector=one.new)
    if isinstance(statement, Nonlin):
        return replace(statement, expr=rebuild(statement.expr, lambda node: one.new if node == one.old else None))
    return statement


def _mended(netsor: Netsor, fixes: Sequence[Fix]) -> Netsor:
    """The program with all that some fixes say."""
    body, weights = list(netsor.body), {weight.name: weight for weight in netsor.weights}
    for fix in fixes:
        for one in fix.replacements:
            changed = [_replaced(s, one) if one.at in ("", str(s.target)) else s for s in body]
            assert changed != body, one
            body = changed
        for statement in reversed(fix.statements):  # what reads a new family before what makes it
            _put(body, statement)
        weights |= {weight.name: weight for weight in fix.weights}
    return loads(dump(replace(netsor, body=tuple(body), weights=tuple(weights.values()))))


def _says_what_to_write(fix: Fix) -> bool:
    return bool(fix.statements or fix.replacements)


def _chosen(finding: Finding, which: int) -> list[Fix]:
    """The first or the last of what a finding proposes, without advice on what a program declares."""
    assert finding.fixes
    written = [fix for fix in finding.fixes if _says_what_to_write(fix)]
    assert written or all(fix.impossible for fix in finding.fixes), finding.fix
    return written[which:][:1]


@pytest.mark.turns(10)
@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_what_is_proposed_helps_in_one_round(case: Case) -> None:
    netsor = case.load()
    findings = [finding for finding in judge(netsor).findings if finding.verdict in DECIDING[case.grade]]
    for which in (0, -1) if any(len(finding.fixes) > 1 for finding in findings) else (0,):
        fixes = [fix for finding in findings for fix in _chosen(finding, which)]
        if fixes:
            mended = _mended(netsor, fixes)
            assert GRADES.index(judge(mended).grade) < GRADES.index(case.grade), dump(mended)
            assert all(str(statement) in str(fix) for fix in fixes for statement in fix.statements)
            assert all(weight.name in str(fix) for fix in fixes for weight in fix.weights)

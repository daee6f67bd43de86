"""What a finding on a function proposes is a program with a better grade, taken literally."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tensorprog.assumptions import Finding, check
from tensorprog.assumptions.report import GRADES
from tensorprog.calculus import Calculus
from tensorprog.judge import judge
from tensorprog.normalize import normalize
from tensorprog.yaml_io import loads
from tests.corpus import CASES, Case

PROGRAM = """program: p
constants: {{s: 3}}
indices: {{i: s, j: s, k: s}}
initial:
  h: {{mean: 0, cov: 1}}
weights:
  W[i]: 1
  Q: 1
  K: 1
body:
  - u[i] = MatMul(W[i], h)
  - x[i] = Nonlin(tanh(u[i]))
  - q[i] = MatMul(Q, x[i])
  - g[j] = MatMul(K, x[j])
  - p[i,j] = Dot(q[i], g[j])
  - y[i] = Nonlin({expr})
outputs: [y]
"""
# an expression, the part at fault, and what is proposed for it
PROPOSED = (
    ("step(u[i]) * p[i,i]", "step(u[i])", "clip(100 * u[i], 0, 1)"),
    ("step(u[i] + 1) * p[i,i]", "step(u[i] + 1)", "sigmoid(100 * (u[i] + 1))"),
    ("sign(u[i]) * p[i,i]", "sign(u[i])", "clip(100 * u[i], -1, 1)"),
    ("sign(u[i] - x[i]) * p[i,i]", "sign(u[i] - x[i])", "tanh(100 * (u[i] - x[i]))"),
    ("p[i,i] / u[i]", "p[i,i] / u[i]", "p[i,i] / (abs(u[i]) + 1e-06)"),
    ("p[i,i] / u[i]**2", "p[i,i] / u[i]**2", "p[i,i] / (u[i]**2 + 1e-06)"),
    ("p[i,i] / sqrt(u[i]**2)", "p[i,i] / sqrt(u[i]**2)", "p[i,i] / sqrt(u[i]**2 + 1e-06)"),
    ("where(i <= 1, p[i,0], -inf) * x[i]", "where(i <= 1, p[i,0], -inf)", "where(i <= 1, p[i,0], 0)"),
    ("sum[j](where(j <= i, p[i,j], -inf)) * x[i]", "where(j <= i, p[i,j], -inf)", "where(j <= i, p[i,j], 0)"),
    ("abs(u[i])**0.5 * p[i,i]", "abs(u[i])**0.5", "(abs(u[i]) + 1e-06)**0.5"),
    ("u[i]**-1 * p[i,i]", "u[i]**-1", "(abs(u[i]) + 1e-06)**-1"),
    ("sqrt(u[i]) * p[i,i]", "sqrt(u[i])", "sqrt(abs(u[i]) + 1e-06)"),
    ("log(abs(u[i])) * p[i,i]", "log(abs(u[i]))", "log(abs(u[i]) + 1e-06)"),
    ("log(u[i]**2) * p[i,i]", "log(u[i]**2)", "log(u[i]**2 + 1e-06)"),
    ("exp(u[i]) * p[i,i]", "exp(u[i])", "exp(min(u[i], 10))"),
)


@pytest.mark.parametrize(("expr", "fault", "better"), PROPOSED, ids=[f"{row[0]}: {row[2]}" for row in PROPOSED])
def test_what_is_proposed_helps(expr: str, fault: str, better: str) -> None:
    report = check(loads(PROGRAM.format(expr=expr)))
    fixes = [finding.fix for finding in report.failing]
    assert any(better in fix for fix in fixes), fixes
    mended = check(loads(PROGRAM.format(expr=expr.replace(fault, better))))
    assert GRADES.index(mended.grade) < GRADES.index(report.grade)


def test_a_mask_is_told_of_softmax() -> None:
    report = check(loads(PROGRAM.format(expr="sum[j](where(j <= i, p[i,j], -inf) * x[j])")))
    assert "put softmax over an index around where(j <= i, p[i,j], -inf)" in str(report)


# what is proposed in the corpus, whatever is said around it
NEW = (
    r"e\.g\. (?P<new>\w+\(.+?) or (?:sigmoid|tanh)\(",
    r"e\.g\. (?P<new>exp\(min\(.*\)\)), or",
    r"away from 0, e\.g\. (?P<new>.*)$",
    r"^(?P<new>.*), which is the same$",
    r"in place of -inf: (?P<new>.*)$",
)
FUNCTIONS = [case for case in CASES.values() if case.rule == "nonlinearities"]
WORDS = "branches that agree"


def _mended(case: Case) -> list[str] | None:
    """The statements with what the findings propose in the places they blame; None where words are proposed."""
    netsor = case.load()
    calculus = Calculus(normalize(netsor).netsor)
    body = [str(statement) for statement in netsor.body]
    for finding in judge(netsor).failing:
        new = next((match["new"] for pattern in NEW if (match := re.search(pattern, finding.fix))), None)
        if new is None:
            assert finding.fix.startswith(WORDS)
            return None
        old = _blamed(calculus, finding, body)
        body = [line.replace(old, new) for line in body]
    return body


def _blamed(calculus: Calculus, finding: Finding, body: list[str]) -> str:
    """The part of the program that a finding blames, as it is written."""
    position = next(p for p, s in enumerate(calculus.netsor.body) if s.span.line == finding.line)
    faults = (str(calculus.blame(name, position).expr) for name in ("pseudo-Lipschitz", "controlled"))
    return next(fault for fault in faults if any(fault in line for line in body))


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case.name)
def test_what_is_proposed_for_functions_of_the_corpus_helps(case: Case) -> None:
    body = _mended(case)
    if body is not None:
        weights = {w.name + (f"[{','.join(w.indices)}]" if w.indices else ""): str(w.variance)
                   for w in case.load().weights}
        edited = replace(case, base="nothing", replace={}, then="\n".join(body), weights=case.weights or weights)
        assert judge(edited.load()).grade != "outside", body


def test_most_findings_on_functions_propose_an_expression() -> None:
    assert sum(_mended(case) is None for case in FUNCTIONS) < 0.2 * len(FUNCTIONS)

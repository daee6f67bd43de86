"""What a finding on a function proposes is a program with a better grade, taken literally."""

from __future__ import annotations

import pytest

from tensorprog.assumptions import check
from tensorprog.assumptions.report import GRADES
from tensorprog.yaml_io import loads

PROGRAM = """program: p
constants: {{s: 3, c: 10, eps: 0.01}}
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
    ("step(u[i]) * p[i,i]", "step(u[i])", "clip(c * u[i], 0, 1)"),
    ("step(u[i] + 1) * p[i,i]", "step(u[i] + 1)", "sigmoid(c * (u[i] + 1))"),
    ("sign(u[i]) * p[i,i]", "sign(u[i])", "clip(c * u[i], -1, 1)"),
    ("sign(u[i] - x[i]) * p[i,i]", "sign(u[i] - x[i])", "tanh(c * (u[i] - x[i]))"),
    ("p[i,i] / u[i]", "p[i,i] / u[i]", "p[i,i] / (abs(u[i]) + eps)"),
    ("where(i <= 1, p[i,0], -inf) * x[i]", "where(i <= 1, p[i,0], -inf)", "where(i <= 1, p[i,0], 0)"),
    ("sum[j](where(j <= i, p[i,j], -inf)) * x[i]", "where(j <= i, p[i,j], -inf)", "where(j <= i, p[i,j], 0)"),
    ("abs(u[i])**0.5 * p[i,i]", "abs(u[i])**0.5", "(abs(u[i]) + eps)**0.5"),
    ("u[i]**-1 * p[i,i]", "u[i]**-1", "(abs(u[i]) + eps)**-1"),
    ("sqrt(u[i]) * p[i,i]", "sqrt(u[i])", "sqrt(abs(u[i]) + eps)"),
    ("log(abs(u[i])) * p[i,i]", "log(abs(u[i]))", "log(abs(u[i]) + eps)"),
    ("exp(u[i]) * p[i,i]", "exp(u[i])", "exp(min(u[i], c))"),
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

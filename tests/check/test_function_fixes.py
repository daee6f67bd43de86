"""What a finding on a function proposes is a program with a better grade, taken literally."""

from __future__ import annotations

import pytest

from tensorprog.check.certificates import composition
from tensorprog.check.clauses import GRADES, check
from tests.reading import loads

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
    ("step(u[i] + 1) * p[i,i]", "step(u[i] + 1)", "clip(100 * (u[i] + 1), 0, 1)"),
    ("sign(u[i]) * p[i,i]", "sign(u[i])", "clip(100 * u[i], -1, 1)"),
    ("sign(u[i] - x[i]) * p[i,i]", "sign(u[i] - x[i])", "clip(100 * (u[i] - x[i]), -1, 1)"),
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
    ("where(i == 0, -inf, 0) + p[i,i]", "where(i == 0, -inf, 0)", "where(i == 0, 0, 0)"),
    (
        "where(u[i] != 0, sin(u[i]) / u[i], 1) * p[i,i]",
        "where(u[i] != 0, sin(u[i]) / u[i], 1)",
        "(1 + (sin(u[i]) / (abs(u[i]) + 1e-06) - 1) * clip(100 * abs(u[i]), 0, 1))",
    ),
    (
        "where(u[i] > 0, 1 / u[i], log(x[i])) * p[i,i]",
        "where(u[i] > 0, 1 / u[i], log(x[i]))",
        "(log(abs(x[i]) + 1e-06) + (1 / (abs(u[i]) + 1e-06) - log(abs(x[i]) + 1e-06)) * clip(100 * u[i], 0, 1))",
    ),
    (
        "where((u[i] > 1) & (i > 0), 1, 3) * p[i,i]",
        "where((u[i] > 1) & (i > 0), 1, 3)",
        "(3 + -2 * (clip(100 * (u[i] - 1), 0, 1) * where(i > 0, 1, 0)))",
    ),
    (
        "where((u[i] <= 1) | (x[i] == 0), u[i], 0) * p[i,i]",
        "where((u[i] <= 1) | (x[i] == 0), u[i], 0)",
        "u[i] * max(clip(100 * (1 - u[i]), 0, 1), 1 - clip(100 * abs(x[i]), 0, 1))",
    ),
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


@pytest.mark.parametrize("operand", [False, True])
def test_the_check_says_where_it_stopped_looking_for_relations(operand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PROGRAM.format(expr="exp(u[i]) / (1 + exp(u[i])) * p[i,i]")
    if operand:
        text = PROGRAM.replace("tanh(u[i])", "relu(u[i] + 1) - relu(u[i] - 1)").format(expr="p[i,i]")
    stopped = "relations between them were looked for in part only"
    assert check(loads(text)).grade == "theorem"
    monkeypatch.setattr(composition, "MAX_STEPS", 1)
    report = check(loads(text))
    assert report.grade in ("remark", "outside")
    assert stopped in str(report)
    worse = check(loads(PROGRAM.format(expr="sign(u[i]) * p[i,i]")))
    assert worse.grade == "outside"  # where a witness is found, there is nothing more to look for
    assert stopped not in str(worse)

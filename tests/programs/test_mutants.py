"""Shipped programs with something changed: each has been answered by a traceback once, and is answered now."""

from __future__ import annotations

import numpy as np
import pytest

from tensorprog.program import Program
from tensorprog.shipped import shipped_programs
from tests.reading import loads

MUTANTS = {  # program, what is replaced by what, and the grade
    "a score operand of zeros beyond a boundary": (
        "vit", {"l: 1..L}": "l: {size: 1..L, boundary: zero}}", "MatMul(WQ[l,a], h[l,i])": "MatMul(WQ[l,a], h[2*l,i])"},
        "extension",
    ),
    "variances whose product is too small for a number": (
        "attention_reused_weight", {"WQ[a]: 1": "WQ[a]: 1e-320"}, "outside",
    ),
    "a statement that names what reads it, but never reads it": (
        "gru", {"indices: {t: 1..T}": "indices: {t: {size: 1..T, boundary: zero}}", "* m[t] + z": "* m[-t] + z"},
        "theorem",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_changed_program_is_answered(name: str) -> None:
    shipped, changes, grade = MUTANTS[name]
    path = shipped_programs()[shipped]
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    assert Program.from_netsor(loads(text, base=path.parent)).check().grade == grade


def test_scores_whose_operands_lie_beyond_a_boundary_are_zero() -> None:
    """All of WQ[a - 2] is zero, so attention is the mean over tokens, and the output is one Gaussian variable."""
    text = shipped_programs()["attention_lowrank"].read_text()
    for old, new in {"a: H}": "a: {size: H, boundary: zero}}", "MatMul(WQ[a], x[i])": "MatMul(WQ[a-2], x[i])"}.items():
        assert old in text
        text = text.replace(old, new)
    law = Program.from_netsor(loads(text)).limit()
    cov = law.cov("y")
    assert np.allclose(cov, cov[0, 0], rtol=1e-12) and law.kurtosis("y[0]") == pytest.approx(3)
    assert law.density("y[0]", [0.0])[0] == pytest.approx((2 * np.pi * cov[0, 0]) ** -0.5)


def test_a_family_of_weights_beyond_a_boundary_is_run() -> None:
    text = """program: beyond
indices: {i: 2, t: 1..2, a: {size: 2, boundary: zero}}
initial:
  h[i]: {mean: 0, cov: 1}
weights:
  W[t,a]: 1
body:
  - x[0,i] = Nonlin(h[i])
  - g[t,a,i] = MatMul(W[t,a-2], x[t-1,i])
  - x[t,i] = Nonlin(x[t-1,i] + sum[a](g[t,a,i]))
outputs: [x]
"""
    drawn = Program.from_netsor(loads(text)).run(8, 20)["x"]
    assert np.array_equal(drawn[:, 2], drawn[:, 0])


def test_a_long_chain_of_functions_before_scores_is_judged() -> None:
    body = ["q0 = MatMul(Q, h)", "k = MatMul(K, h)", *(f"q{t} = Nonlin(tanh(q{t - 1}))" for t in range(1, 1200))]
    body += ["p = Dot(q1199, k)", "y = Nonlin(tanh(p) * h)"]
    text = "program: chain\ninitial:\n  h: {mean: 0, cov: 1}\nweights: {Q: 1, K: 1}\nbody:\n"
    text += "".join(f"  - {line}\n" for line in body) + "outputs: [y]\n"
    assert Program.from_netsor(loads(text)).check().grade == "extension"

"""Softmax, sums and conditions over indices, and what is refused, against the numeric law."""

from __future__ import annotations

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import Law
from tensorprog.limit.formulas import SymbolicLaw, estimate
from tensorprog.limit.formulas.nodes import Score
from tests.reading import loads

from .symbolic_programs import SHARED_KEYS

BASE = """
program: indexed
constants: {s: 3, c: 0.7}
indices: {i: s, j: s}
initial:
  h[i]: {mean: 0.3, cov: 0.5**abs(i - i_)}
weights: {W: 1, V: c}
body:
  - u[i] = MatMul(W, h[i])
  - x[i] = Nonlin(tanh(u[i]))
"""
BODIES = {
    "averaged attention": """
  - p[i,j] = Dot(x[i], x[j], scale=1/n)
  - o[i] = MatMul(V, x[i])
  - y[i] = Nonlin(tanh(sum[j](softmax[j](where(j <= i, p[i,j], -inf))*o[j])))
""",
    "averaged attention twice": """
  - p[i,j] = Dot(h[i], h[j], scale=1/n)
  - o[i] = MatMul(V, h[i])
  - a[i] = Nonlin(sum[j](softmax[j](p[i,j])*o[j]))
  - g[i] = MatMul(W, a[i])
  - b[i] = Nonlin(clip(g[i], -1, 2))
  - q[i,j] = Dot(b[i], b[j], scale=1/n)
  - y[i] = Nonlin(sum[j](softmax[j](q[i,j])*b[j]))
""",
    "choice": "  - y[i] = Nonlin(where(i < 2, u[i], 0))\n",
    "condition": "  - m[i] = Nonlin(where(i < 2, 1, 0))\n  - y[i] = Nonlin(relu(u[i]) + m[i]*c*u[i])\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_conditions_and_softmaxes_of_numbers_evaluate(name: str) -> None:
    netsor = loads(BASE + BODIES[name] + "outputs: [y]\n")
    law, (value, error) = SymbolicLaw(netsor), Law(netsor).cov("y", with_error=True)
    assert str(law.cov("y"))
    assert law.latex()
    for place in ((0, 0), (0, 1), (1, 2)):
        found = estimate(law.cov("y")[place].subs({"c": 0.7}))
        assert abs(float(found.value) - value[place]) <= float(found.error) + error[place] + 1e-15


def test_masked_heads_given_scores() -> None:
    netsor = loads(SHARED_KEYS.replace("s: 2", "s: 3"))
    law, scores = SymbolicLaw(netsor), np.random.default_rng(0).normal(size=(2, 3, 3))
    expected = np.asarray(Law(netsor).given({"p": scores}).cov())
    for place in ((0, 0), (1, 2), (2, 2)):
        formula = law.given_scores("y")[place].subs({"w": 1.5}).doit()
        given = {score: scores[tuple(map(int, score.args[1:]))] for score in formula.atoms(Score)}
        assert float(formula.xreplace(given).evalf()) == pytest.approx(expected[place], rel=1e-13)
    assert {str(symbol) for symbol in law.given_scores("y")[1, 2].free_symbols} == {"w"}
    assert str(law.given_scores("y")).count("softmax") == 2
    with pytest.raises(tp.ProgramError, match="no number yet: p"):
        estimate(law.given_scores("y")[1, 2].subs({"w": 1.5}))


def test_bounds_with_a_letter_are_those_of_numbers() -> None:
    made = tp.load("attention", C=1)
    found = float(made.limit(symbolic=True).cov("x")[0, 0].subs("C", 1).evalf())
    assert found == pytest.approx(float(np.asarray(made.limit().cov("x"))[0, 0]), abs=1e-13)
    with pytest.raises(tp.ProgramError, match="lower bound is above"):
        tp.load("attention", C=-1)


def test_arguments_that_are_refused() -> None:
    made = tp.load("attention")
    for wrong in (0, 1, [1]):
        with pytest.raises(tp.ProgramError, match="symbolic takes"):
            made.limit(symbolic=wrong)  # type: ignore[call-overload]
    assert isinstance(made.limit(symbolic=None), Law)  # type: ignore[call-overload]
    with pytest.raises(AttributeError):
        made.limit(symbolic=True).kurtosis  # noqa: B018
    with pytest.raises(tp.ProgramError, match="sigma_w2 must be given"):
        tp.load("mlp").limit(symbolic=["sigma_w2"]).cov("x1")[0, 0].estimate()


def test_derivatives_of_expectations_are_refused() -> None:
    with pytest.raises(tp.NotCompiledError, match="derivative in sigma_w2 of an expectation"):
        tp.load("mlp").limit(symbolic=["sigma_w2"]).cov("x1")[0, 0].diff("sigma_w2")

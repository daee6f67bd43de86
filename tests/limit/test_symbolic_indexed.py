"""Softmax, sums and conditions over indices, and what is refused, against the numeric law."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import tensorprog as tp
from tensorprog import Law
from tensorprog.limit.formulas import SymbolicLaw, estimate
from tensorprog.limit.formulas.nodes import Softmax
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
    "choice": "  - y[i] = Nonlin(where(i < 2, u[i], 0))\n",
    "condition": "  - m[i] = Nonlin(i < 2)\n  - y[i] = Nonlin(relu(u[i]) + m[i]*c*u[i])\n",
}


@pytest.mark.turns(3)
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
    given = law.given_scores("y", scores={"p": scores})
    for place in np.ndindex(3, 3):
        formula = given[place].subs({"w": 1.5})
        assert float(formula.evalf()) == pytest.approx(expected[place], rel=1e-13)
    assert float(formula.doit().evalf()) == pytest.approx(expected[2, 2], rel=1e-13)
    assert {str(symbol) for symbol in law.given_scores("y")[1, 2].free_symbols} == {"w"}
    assert str(law.given_scores("y")).count("softmax") == 2
    with pytest.raises(tp.ProgramError, match="p must have shape"):
        law.given_scores("y", scores={"p": scores[0]})
    with pytest.raises(tp.ProgramError, match="no number yet: p"):
        estimate(law.given_scores("y")[1, 2].subs({"w": 1.5}))


def test_a_condition_stays_under_its_softmax() -> None:
    i, j, x = sp.Symbol("i", integer=True), sp.Symbol("j*", integer=True), sp.Symbol("x", real=True)
    masked = Softmax(sp.Piecewise((x * j, j <= i), (-sp.oo, True)), [(j, 0, 2)], [sp.Integer(1)])
    assert sp.piecewise_fold(masked + masked**2) == masked + masked**2
    assert masked.free_symbols == {i, x}
    number = masked.subs({i: 1, x: sp.Rational(1, 2)})
    expected = 1 / (1 + np.exp(-0.5))
    assert float(number.evalf()) == pytest.approx(expected)
    assert float(number.doit()) == pytest.approx(expected)
    slope = masked.xreplace({i: sp.Integer(1)}).diff(x).subs({x: sp.Rational(1, 2)})
    assert float(slope.evalf()) == pytest.approx(expected * (1 - expected))
    assert float(slope.doit()) == pytest.approx(expected * (1 - expected))


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
    with pytest.raises(AttributeError, match=r"P\.limit\(\)"):
        made.limit(symbolic=True).kurtosis  # noqa: B018
    with pytest.raises(tp.ProgramError, match="sigma_w2 must be given"):
        tp.load("mlp").limit(symbolic=["sigma_w2"]).cov("x1")[0, 0].estimate()


def test_derivatives_of_expectations_are_refused() -> None:
    with pytest.raises(tp.NotCompiledError, match="derivative of an expectation"):
        tp.load("mlp").limit(symbolic=["sigma_w2"]).cov("x1")[0, 0].diff("sigma_w2")

"""Softmax, sums and conditions over indices, and what is refused, against the numeric law."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp

import tensorprog as tp
from tensorprog import Law
from tensorprog.limit.formulas import SymbolicLaw, estimate
from tensorprog.limit.formulas.nodes import Choice, Score, index_symbol, same, softmax, summed
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
    "condition": "  - m[i] = Nonlin(i < 2)\n  - y[i] = Nonlin(relu(u[i]) + m[i]*c*u[i])\n",
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


def test_a_condition_stays_under_its_softmax() -> None:
    i, j, x = index_symbol("i"), index_symbol("j"), sp.Symbol("x", real=True)
    masked = softmax(Choice(j <= i, x * j, -sp.oo), ("j",), ((0, 3),), (sp.Integer(1),))
    assert sp.piecewise_fold(masked + masked**2) == masked + masked**2
    assert masked.free_symbols == {i, x}
    number = masked.subs({i: 1, x: sp.Rational(1, 2)})
    expected = 1 / (1 + np.exp(-0.5))
    assert float(number.evalf()) == pytest.approx(expected)
    assert float(number.doit()) == pytest.approx(expected)
    slope = masked.xreplace({i: sp.Integer(1)}).doit().diff(x).subs({x: sp.Rational(1, 2)})
    assert float(slope.evalf()) == pytest.approx(expected * (1 - expected))


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


def test_bound_indices_catch_no_symbol() -> None:
    i, j, k = (index_symbol(name) for name in "ijk")
    g = sp.Function("g")
    inner = softmax(g(i, j), ("j",), ((0, 3),), (j,))
    for outer in (inner, summed(g(i, j), "j", (0, 3))):
        apart, again = outer.xreplace({i: k}), outer.xreplace({i: j})
        one = {j: sp.Integer(1), k: sp.Integer(1)}
        assert again == outer.subs(i, j)
        assert again.xreplace(one).doit() == apart.xreplace(one).doit()
    total = summed(summed(g(i, j), "j", (0, 3)) * g(j, j), "j", (5, 6))
    assert total.doit() == (g(i, 0) + g(i, 1) + g(i, 2)) * g(5, 5)
    assert same(summed(g(i, j), "j", (0, 3)).xreplace({i: k}), summed(g(k, i), "i", (0, 3)))
    assert not same(
        summed(summed(g(i, j), "i", (0, 3)), "j", (0, 3)), summed(summed(g(j, i), "i", (0, 3)), "j", (0, 3))
    )
    values = {(a, b): 0.3 * a + 0.1 * b * b for a in range(3) for b in range(3)}
    nested = softmax(inner.xreplace({i: j}) * g(i, j), ("j",), ((0, 2),), (j,))
    shares = [[math.exp(values[a, b]) for b in range(3)] for a in range(3)]
    logits = [shares[b][b] / sum(shares[b]) * values[2, b] for b in range(2)]
    found = nested.subs({i: 2, j: 1}).doit().replace(g, lambda a, b: sp.Float(values[int(a), int(b)]))
    assert float(found) == pytest.approx(math.exp(logits[1]) / sum(map(math.exp, logits)), rel=1e-12)

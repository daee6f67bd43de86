"""Every closed form at random parameters against `gaussian`, and the singular cases."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement

import mpmath
import numpy as np
import pytest
import sympy as sp

import tensorprog as tp
from tensorprog.gaussian import cross, mean
from tensorprog.gaussian.function import FunctionTerm, RealFunction
from tensorprog.language.expr import Expr, call
from tensorprog.limit.form.sums_of_functions import FORMAL
from tensorprog.limit.formulas import Expectation
from tensorprog.limit.formulas.closed import mean_moment, pair_moment
from tensorprog.limit.formulas.conversion import expand_terms
from tensorprog.limit.formulas.expectation import factor_of
from tests.terms import from_terms

ANY = float("inf")
ZEROS = (sp.S.Zero, sp.S.Zero)
FUNCTIONS: dict[str, Expr] = {
    "x": FORMAL,
    "square": call("power", FORMAL, 2),
    "relu": call("relu", FORMAL),
    "abs": call("abs", FORMAL),
    "sign": call("sign", FORMAL),
    "step": call("step", FORMAL - 0.4),
    "leaky": call("leaky_relu", FORMAL, 0.3),
    "clip": call("clip", FORMAL, -0.7, 1.2),
    "erf": call("erf", 0.8 * FORMAL + 0.1),
    "gelu": call("gelu", FORMAL),
    "exp": call("exp", 0.5 * FORMAL),
    "gaussian": call("gaussian", FORMAL),
    "x_exp": FORMAL * call("exp", -0.4 * FORMAL),
    "down": call("relu", -FORMAL),
}
SIGNS = {"relu", "abs", "sign", "step", "leaky", "clip", "erf", "gelu", "down"}
SHIFTED = {"step", "clip", "erf"}
LAWS = [(0, 0, 1.3, 0.8, 0.6), (0, 0, 0.9, 0.9, -0.5), (0.4, -0.3, 1.3, 0.8, 0.7), (-0.2, 0.9, 0.6, 1.7, -0.3)]


@cache
def terms(name: str) -> tuple[FunctionTerm, ...]:
    found = expand_terms(FUNCTIONS[name], {})
    assert found is not None
    return found


@cache
def numeric(name: str) -> RealFunction:
    return from_terms(
        [FunctionTerm(float(t.coefficient), t.power, t.kind, float(t.scale), float(t.shift)) for t in terms(name)]
    )


@cache
def numbers(law: tuple[float, ...]) -> tuple[sp.Expr, ...]:
    return tuple(sp.nsimplify(value) for value in law)


@cache
def second_moment(name: str, m: float, v: float) -> float:
    return cross(numeric(name), numeric(name), m, m, v, v, v).value


@pytest.mark.slow
@pytest.mark.parametrize(("f", "g"), list(combinations_with_replacement(FUNCTIONS, 2)))
def test_pairs(f: str, g: str) -> None:
    for law in LAWS:
        found = pair_moment(terms(f), terms(g), numbers(law), ANY, False)
        if found is None:
            # two signs of which one is not at its mean have no closed form
            assert {f, g} & SIGNS and ({f, g} & SHIFTED or law[:2] != (0, 0))
            continue
        expected = cross(numeric(f), numeric(g), *law)
        scale = np.sqrt(second_moment(f, law[0], law[2]) * second_moment(g, law[1], law[3]))
        assert abs(float(found.evalf(20)) - expected.value) <= expected.error + 1e-14 * scale


@pytest.mark.parametrize("f", FUNCTIONS)
def test_means(f: str) -> None:
    for m, _, v, _, _ in LAWS:
        expected = mean(numeric(f), m, v)
        found = mean_moment(terms(f), *numbers((m, v)), ANY)
        assert abs(float(found.evalf(20)) - expected.value) <= expected.error + 1e-14


@pytest.mark.slow
@pytest.mark.parametrize(("f", "g"), list(combinations_with_replacement(FUNCTIONS, 2)))
def test_one_variable_behind_both(f: str, g: str) -> None:
    for m, v in [(0, 1.3), (0.4, 0.8)]:
        law = (m, m, v, v, v)
        found = pair_moment(terms(f), terms(g), numbers(law), ANY, True)
        if found is None:
            assert {"erf", "gelu"} & {f, g}
            continue
        expected = cross(numeric(f), numeric(g), *law)
        assert abs(float(found.evalf(20)) - expected.value) <= expected.error + 1e-13 * (1 + abs(expected.value))


def test_known_kernels() -> None:
    v, w = sp.symbols("v w", positive=True)
    c = sp.Symbol("c", real=True)
    root, angle = sp.sqrt(v * w - c**2), sp.acos(c / sp.sqrt(v * w))
    relu = pair_moment(terms("relu"), terms("relu"), (*ZEROS, v, w, c), ANY, False)
    assert sp.simplify((relu - (root + c * (sp.pi - angle)) / (2 * sp.pi)).rewrite(sp.asin)) == 0
    erf = expand_terms(call("erf", FORMAL), {})
    assert erf is not None
    found = pair_moment(erf, erf, (*ZEROS, v, w, c), ANY, False)
    assert sp.simplify(found - 2 / sp.pi * sp.asin(2 * c / sp.sqrt((1 + 2 * v) * (1 + 2 * w)))) == 0
    assert pair_moment(terms("relu"), terms("relu"), (*ZEROS, v, v, v), ANY, True) == v / 2
    assert expectation(FUNCTIONS["sign"], FUNCTIONS["sign"], (*ZEROS, v, v, -v)).doit() == -1


def expectation(f: Expr, g: Expr, law: tuple[object, ...]) -> Expectation:
    mx, my, vx, vy, c = map(sp.sympify, law)
    factors = [factor_of(h, {FORMAL: k}, lambda _: sp.S.Zero) for k, h in enumerate((f, g))]
    return Expectation.of(factors, (mx, my), ((vx, c), (c, vy)))


def test_degenerate_laws_are_exact() -> None:
    tanh, relu = call("tanh", FORMAL), call("relu", FORMAL)
    v = sp.Symbol("v", positive=True)
    assert expectation(relu, tanh, (2, 0, 0, v, 0)).doit() == 0
    assert expectation(relu, relu, (2, 3, 0, 0, 0)).doit() == 6
    assert expectation(tanh, call("cos", FORMAL), (0, 0, v, v, v / 2)).doit() == 0
    assert expectation(relu, relu, (0, 0, v, v, 0)).doit() == v / (2 * sp.pi)
    squared = expectation(tanh, tanh, (0, 0, v, v, v)).doit()
    assert len(squared.args[1]) == 1  # one variable
    with mpmath.workdps(30):
        known = mpmath.quad(lambda x: mpmath.tanh(x) ** 2 * mpmath.npdf(x), [-mpmath.inf, 0, mpmath.inf])
    got = squared.subs(v, 1).estimate()
    assert abs(float(got.value) - float(known)) <= float(got.error) + 1e-15


def test_an_expectation_keeps_symbols_until_they_are_numbers() -> None:
    r = sp.Symbol("r", real=True)
    tanh = call("tanh", FORMAL)
    kept = expectation(tanh, tanh, (0, 0, 1, 1, r))
    assert kept.doit() == kept
    assert kept.evalf() == kept
    z, weights = np.polynomial.hermite_e.hermegauss(150)
    weights = weights / weights.sum()
    inner = weights @ (np.tanh(z)[:, None] * np.tanh(0.5 * z[:, None] + np.sqrt(0.75) * z)) @ weights
    assert float(kept.subs(r, sp.Rational(1, 2)).evalf()) == pytest.approx(float(inner), abs=1e-9)
    with pytest.raises(tp.NotCompiledError, match="derivative"):
        sp.diff(kept, r)
    assert sp.diff(kept, sp.Symbol("other")) == 0

"""Formulas against the papers' own, against the numeric law, and the constants that may be symbols."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import sympy as sp

import tensorprog as tp
from tensorprog import Law, Program
from tensorprog.limit.formulas import Expectation, SymbolicLaw, estimate
from tests.reading import loads

from .symbolic_programs import ATTENTION, CROSSED, FUNCTIONS, OTHERS, SHARED_KEYS, WINDOWS, mlp


def program(text: str) -> Program:
    result = Program.from_netsor(loads(text))
    assert isinstance(result, Program)
    return result


def both(text: str) -> tuple[SymbolicLaw, Law, dict[sp.Symbol, float]]:
    netsor = loads(text)
    law = SymbolicLaw(netsor)
    return law, Law(netsor), {symbol: netsor.scalars[name] for name, symbol in law.symbols.items()}  # type: ignore[misc]


def clip_formula() -> sp.Expr:
    """Section 4 of the theory: c(C), in functions that sympy has."""
    c = sp.Symbol("C")
    cdf, density = (1 + sp.erf(c / sp.sqrt(2))) / 2, sp.exp(-(c**2) / 2) / sp.sqrt(2 * sp.pi)
    return 2 * cdf - 1 - 2 * c * density + 2 * c**2 * (1 - cdf)


def test_attention_is_the_formula_of_the_paper() -> None:
    law = tp.load("attention").limit(symbolic=True)
    c = clip_formula()
    assert sp.simplify(law.cov("x")[0, 0] - c) == 0
    assert law.cov("x")[0, 1] == 0
    assert sp.simplify(law.cov("p")[0, 1, 2, 0, 1, 2] - c**2) == 0
    assert sp.simplify(law.cov("o")[1, 3, 1, 3] - c) == 0


def test_every_covariance_of_attention_with_named_variances() -> None:
    law = program(ATTENTION).limit(symbolic=["C", "sQ", "sK", "sV", "sO"])
    c = clip_formula()
    q, k, v, o = sp.symbols("sQ sK sV sO")
    scores, values = law.cov("p"), law.cov("o")
    assert scores.shape == (2, 4, 4, 2, 4, 4)
    for one, two in product(product(range(2), repeat=3), repeat=2):  # of each index equal and different values
        expected = q**2 * k**2 * c**2 if one == two else 0
        assert sp.simplify(scores[(*one, *two)] - expected) == 0
    assert sp.simplify(scores[1, 3, 2, 1, 3, 2] - q**2 * k**2 * c**2) == 0
    for one, two in product(product(range(2), range(4)), repeat=2):
        expected = o**2 * v**2 * c if one == two else 0
        assert sp.simplify(values[(*one, *two)] - expected) == 0


def test_outputs_are_averages_over_scores() -> None:
    law = program(ATTENTION.replace("s: 4", "s: 2")).limit(symbolic=["C", "sO"])
    formula = law.cov("y")[0, 1]
    assert formula.free_symbols >= {sp.Symbol("C"), sp.Symbol("sO")}
    with pytest.raises(tp.ProgramError, match="averages over scores"):
        formula.subs({"C": 1.3, "sO": 1.2}).estimate()
    assert law.mean("y")[0] == 0
    assert law.cov("o", "p")[0, 0, 0, 0, 0] == 0


TABLE = {name: mlp(name) for name in FUNCTIONS} | OTHERS


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_formulas_at_numbers_are_the_numeric_law(name: str) -> None:
    law, numeric, values = both(TABLE[name])
    for output in law.outputs:
        scalar = law.netsor.families[output].kind == "scalar"
        formulas = law.mean(output) if scalar else law.cov(output)
        found = numeric.mean(output, with_error=True) if scalar else numeric.cov(output, with_error=True)
        expected, error = np.asarray(found[0]), np.broadcast_to(found[1], formulas.shape)
        assert formulas.shape == expected.shape
        for place in list(product(*map(range, formulas.shape)))[:6]:
            formula = estimate(formulas[place].subs(values))
            got, own = float(formula.value), float(formula.error)
            assert abs(got - expected[place]) <= error[place] + own + 1e-13 * (1 + abs(got)), place


def test_functions_of_several_vectors_are_formulas_without_numbers() -> None:
    text = OTHERS["gates"].replace("sigmoid(u[i]) * tanh(v[i])", "sigmoid(u[i] * v[i])")
    formula = program(text).limit(symbolic=True).cov("x")[0, 1]
    assert "sigmoid(z_1*z_2)" in str(formula)
    with pytest.raises(tp.NotCompiledError, match="several variables"):
        estimate(formula.subs({"w": 1.5}))


def test_scores_with_shared_keys_and_masks() -> None:
    law, numeric, values = both(SHARED_KEYS)
    expected = np.asarray(numeric.cov("p"))
    for place in [(0, 0, 0, 0, 0, 0), (0, 0, 1, 1, 0, 1), (0, 0, 1, 0, 0, 1), (1, 0, 1, 1, 1, 0)]:
        got = float(law.cov("p")[place].subs(values).evalf())
        assert got == pytest.approx(expected[place], abs=1e-12)
    text = str(law.given_scores("y"))
    assert "softmax" in text


def test_scores_that_share_weights_crosswise() -> None:
    """f[i] . g[j] and g[k] . f[l] meet in the second product of Isserlis' theorem only."""
    law, numeric, values = both(CROSSED)
    k = 2 / np.pi * np.arcsin(2 * np.array([[1, 0.4], [0.4, 1]]) / 3)  # of erf, Williams 1998
    scores = {"p": law.cov("p"), "t": law.cov("t"), "pt": law.cov("p", "t")}
    expected = {"p": np.einsum("ik,jl->ijkl", k, k), "pt": np.einsum("il,jk->ijkl", k, k)}
    expected["t"] = expected["p"]
    for name, formulas in scores.items():
        for place in product(range(2), repeat=4):
            got = float(formulas[place].subs(values).evalf())
            assert got == pytest.approx(1.5 * 0.7 * expected[name][place], abs=1e-13), (name, place)
    np.testing.assert_allclose(numeric.cov("p", "t"), 1.05 * expected["pt"], atol=1e-12)


def test_sums_over_offsets_stop_at_the_edges() -> None:
    law, numeric, values = both(WINDOWS)
    window = np.array([[1, 2, 0, 0], [0, 1, 2, 0], [0, 0, 1, 2]])
    expected = 2 / np.pi * np.arcsin(2 / 3) * window @ window.T
    formulas = {"z": law.cov("z"), "g": law.cov("g")}
    for place in product(range(3), repeat=2):
        for name, size in (("z", 1), ("g", 1.5)):
            got = float(formulas[name][place].subs(values).evalf())
            assert got == pytest.approx(size * expected[place], abs=1e-13), (name, place)
    np.testing.assert_allclose(numeric.cov("g"), 1.5 * expected, atol=1e-12)


def test_three_layers_of_tanh_evaluate() -> None:
    made = tp.load("mlp")
    law, numeric = made.limit(symbolic=["sigma_w2", "rho"]), made.limit()
    formula = law.cov("f")[0, 2]
    assert formula.free_symbols == set(sp.symbols("sigma_w2 rho"))
    got = formula.subs({"sigma_w2": sp.Rational(3, 2), "rho": sp.Rational(7, 10)}).estimate()
    assert float(got.value) == pytest.approx(float(np.asarray(numeric.cov("f"))[0, 2]), abs=float(got.error) + 1e-12)
    assert float(got.error) < 1e-10


@pytest.mark.parametrize("name", ["relu", "erf"])
def test_three_layers_of_closed_forms_have_no_expectation(name: str) -> None:
    text = tp.load("mlp").to_yaml().replace("tanh", name)
    law, numeric, values = both(text)
    formula = law.cov("f")[0, 1]
    assert not formula.atoms(Expectation)
    assert float(formula.subs(values).evalf()) == pytest.approx(float(np.asarray(numeric.cov("f"))[0, 1]), abs=1e-12)


def test_sizes_do_not_matter() -> None:
    small, large = tp.load("attention"), tp.load("attention", s=64, H=8)
    first, second = (made.limit(symbolic=True) for made in (small, large))
    assert first.cov("p")[0, 1, 2, 0, 1, 2] == second.cov("p")[7, 63, 2, 7, 63, 2]
    assert second.cov("p").shape == (8, 64, 64, 8, 64, 64)
    assert len(second.cov("p").cases.terms) == len(first.cov("p").cases.terms) == 2


def test_conditions_in_text() -> None:
    law = tp.load("attention_relu").limit(symbolic=True)
    assert str(law.cov("q")).splitlines() == [
        "1/2   where a = a_ and i = i_",
        "1/(2*pi)   where a = a_",
        "0   otherwise",
    ]
    assert "SymbolicLaw(attention_relu" in repr(law)


def test_arrays_of_formulas() -> None:
    cov = tp.load("attention").limit(symbolic=True).cov("x")
    matrix = sp.Matrix(np.asarray(cov[:2, :2]))
    assert matrix == cov[0, 0] * sp.eye(2)
    assert cov[-1, 3] == cov[0, 0] == cov.at(2, 2)
    assert np.asarray(cov).shape == (4, 4)
    with pytest.raises(IndexError):
        cov[4, 0]
    with pytest.raises(tp.ProgramError, match=r"outside 0\.\.3"):
        cov.at(4, 0)


def test_which_constants_may_be_symbols() -> None:
    made = program(mlp("relu"))
    assert set(made.limit(symbolic=True).symbols) == {"rho", "sigma_w2", "sigma_b2", "c"}
    assert set(made.limit(symbolic="rho").symbols) == {"rho"}
    assert made.limit(symbolic=[]).cov("u1")[0, 1] == sp.Rational(7, 5) * sp.Rational(3, 5)
    for name, reason in {"m": "range of an index", "rh": "did you mean rho"}.items():
        with pytest.raises(tp.ProgramError, match=reason):
            made.limit(symbolic=[name])
    powers = program(mlp("relu").replace("relu((u1[i] + b1))", "tanh(u1[i])**k").replace("c: 0.8", "c: 0.8, k: 2"))
    with pytest.raises(tp.ProgramError, match="exponent"):
        powers.limit(symbolic=["k"])
    assert "k" not in powers.limit(symbolic=True).symbols


def test_refusals_are_those_of_the_numeric_law() -> None:
    with pytest.raises(tp.OutsideError):
        tp.load("attention_tied").limit(symbolic=True)
    with pytest.raises(tp.ProgramError, match="not a vector or scalar"):
        tp.load("attention").limit(symbolic=True).cov("W")
    recurrence = """
program: rnn
indices: {t: "1..3"}
initial: {"e[t]": {mean: 0, cov: 1}}
weights: {W: 1}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t-1])
  - s[t] = Nonlin(tanh(u[t] + e[t]))
outputs: [s]
"""
    with pytest.raises(tp.NotCompiledError):
        program(recurrence).limit(symbolic=True)

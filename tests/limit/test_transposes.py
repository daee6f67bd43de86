"""Limits of programs with a matrix and its transpose: values known otherwise, and networks drawn by their matrices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import tensorprog as tp
from tensorprog.language.ir import MatMul
from tests.finite.test_transposes import FAMILY as VECTORS
from tests.reading import loads

PROGRAMS: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").with_name("transposes.yaml").read_text())
BEYOND = 4.9  # a two-sided normal exceeds it once in a million


def program(text: str) -> tp.Program:
    found = tp.Program.from_netsor(loads(text))
    assert isinstance(found, tp.Program)
    return found


@pytest.mark.parametrize("name", [pytest.param(k, marks=[pytest.mark.slow] if k == "amp" else []) for k in PROGRAMS])
def test_values_known_from_state_evolution_and_long_simulation(name: str) -> None:
    law = program(PROGRAMS[name]["text"]).limit()
    for output, (expected, known) in PROGRAMS[name]["values"].items():
        value, error = law.mean(output, with_error=True)
        assert abs(float(value) - expected) <= 2 * float(error) + known, output
        assert float(error) < 1e-3, output


def test_gradient_of_a_tied_autoencoder() -> None:
    """Products with W read there what only an Onsager term reads besides."""
    P = tp.Program("tied", widths={"d": "n/2"})
    x, W = P.initial("x"), P.weight("W", variance=1.5, shape=("d", "n"))
    h = P.nonlin("h", tp.tanh(P.matmul("u", W, x)))
    P.outputs(P.nonlin("z", tp.tanh(2 * P.matmul("y", W.T, h))))
    value, error = tp.backward(P).limit().var("grad_x", with_error=True)
    assert abs(float(value) - 0.835992) < 2 * float(error) < 2e-3


def test_what_is_linear_is_exact() -> None:
    law = tp.load("power_iteration").limit()
    for output, moment in (("m1", 1 / 2), ("m2", 3 / 4), ("m3", 11 / 8), ("m4", 45 / 16)):
        assert float(law.mean(output)) == pytest.approx(moment, rel=1e-10)
    assert law.kurtosis("y3") == 3


AVERAGED = """  - q[l,i]   = Dot(v[l,i], v[0,i], scale=1/n)
outputs: [p, m, q]"""
FAMILY = VECTORS.replace("Dot(w[i], x[0]", "Dot(w[i], z[0,0]").replace("outputs: [y, w, v, p, m]", AVERAGED)

THROUGH_TIME = """
program: through_time
constants: {T: 4}
indices: {t: 1..T}
initial:
  e[t]: {cov: 1}
  c: {cov: 1}
weights: {W: 1.4}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t-1])
  - s[t] = Nonlin(tanh(u[t] + e[t] + c))
  - b[0] = Nonlin(s[T] * (1 - s[T]**2))
  - g[t] = MatMul(W.T, b[t-1])
  - b[t] = Nonlin(g[t] * (1 - s[T-t]**2))
  - a[t] = Dot(g[t], g[t], scale=1/n)
  - o[t] = Dot(g[t], s[1], scale=1/n)
outputs: [a, o]
"""


@pytest.mark.parametrize("text", [FAMILY, THROUGH_TIME])
def test_families_and_recurrences_are_where_networks_go(text: str) -> None:
    """A straight line in 1/n through two widths, its error and that of what is of order 1/n**2 beside it."""
    P = program(text)
    law = P.limit()
    narrow, wide = (P.run(width, samples, seed=width) for width, samples in ((256, 2000), (1024, 600)))
    for name in P.netsor.outputs:
        limit, error = (np.asarray(part) for part in law.mean(name, with_error=True))
        means = [np.asarray(net[name]).mean(axis=0) for net in (narrow, wide)]
        spread = [np.asarray(net[name]).std(axis=0) / len(net[name]) ** 0.5 for net in (narrow, wide)]
        line = (4 * means[1] - means[0]) / 3
        away = np.hypot(np.hypot(4 * spread[1], spread[0]) / 3, error / 4)
        assert (np.abs(line - limit) < BEYOND * away + 1e-3 * np.abs(limit)).all(), name


BESIDE_SCORES = """
program: beside_scores
initial: {x: {cov: 1}, b: {cov: 0.5}}
weights: {W: 1.5, Q: 2, K: 1}
body:
  - h = MatMul(W, x)
  - a = Nonlin(tanh(h + b))
  - q = MatMul(Q, a)
  - k = MatMul(K, x)
  - p = Dot(q, k)
  - y = MatMul(W.T, a)
  - r = MatMul(Q.T, q)
  - c = Nonlin(tanh(y*x) + r)
  - t = MatMul(W, c)
  - o = Nonlin(2*tanh(p)**2*(y + tanh(t)) + x + h)
outputs: [o]
"""


def test_behind_a_score_there_are_onsager_terms_too() -> None:
    P = program(BESIDE_SCORES)
    assert P.check().grade == "extension"
    value, error = P.limit().var("o", with_error=True)
    drawn = (np.asarray(P.run(256, 2000, seed=1, coordinates=64)["o"]) ** 2).mean(axis=1)
    assert abs(drawn.mean() - value) < BEYOND * drawn.std() / 2000**0.5 + error + 4 / 256 * value


ACROSS = """
program: across
indices: {i: 3, j: 2, h: 2}
widths: {d: n/2}
initial:
  x[i]: {cov: 0.5**abs(i-i_)}
  y[j]: {cov: 1, width: d}
weights:
  Q[h]: {variance: 1.5, shape: [d, n]}
  K[h]: {variance: 2, shape: [d, n]}
  V: 1
  U: {variance: 1, shape: [d, d]}
body:
  - q[h,i] = MatMul(Q[h], x[i])
  - k[h,i] = MatMul(K[h], x[i])
  - p[h,i] = Dot(q[h,i], k[h,0])
  - u[i] = MatMul(V, x[i])
  - w[j] = MatMul(U, y[j])
  - g[h,j] = MatMul(Q[h].T, w[j])
  - s[h,i,j] = Dot(u[i], g[h,j])
  - o = Nonlin(sum[h,i,j](tanh(p[h,i])*s[h,i,j]))
outputs: [o, s]
"""


def test_averages_and_covariances_beside_scores_have_the_onsager_terms() -> None:
    head = "program: both\ninitial:\n  x: {cov: 1}\nweights:\n  W: 1\n  Q: 1\n  K: 1\nbody:\n  - u = MatMul(W, x)\n"
    body = "  - h = Nonlin(tanh(u))\n  - r = MatMul(W.T, h)\n  - q = MatMul(Q, x)\n  - k = MatMul(K, x)\n"
    tail = "  - p = Dot(q, k)\n  - y = Nonlin(sigmoid(p) * r)\n  - l = Dot(y, x, scale=1/n)\noutputs: [y, x, l]\n"
    law = program(head + body + tail).limit()
    expected = average(slope, 1.0) / 2  # sigmoid(p) is 1/2 in the mean
    for value, error in (law.mean("l", with_error=True), law.cov("y", "x", with_error=True)):
        assert abs(value - expected) < error < 1e-3


def test_scores_that_are_one_number_have_one_covariance() -> None:
    text = "program: one\ninitial:\n  x: {cov: 1}\nweights:\n  Q: 1\n  K: 1\nbody:\n  - q = MatMul(Q, x)\n"
    text += "  - k = MatMul(K, x)\n  - r = MatMul(Q.T, k)\n  - p = Dot(q, k)\n  - s = Dot(x, r)\noutputs: [p, s]\n"
    value, error = program(text).limit().cov("p", "s", with_error=True)
    assert abs(value - 1) < error < 1e-3


def test_matrices_that_are_not_square_move_across_scores() -> None:
    """The second moments of eight coordinates stay as they are."""
    P = program(ACROSS)
    moved = P.rewritten()
    assert not any(isinstance(s, MatMul) and s.transposed for s in moved.netsor.body)
    squares = [np.asarray(Q.run(8, 20_000, seed=seed)["o"]) ** 2 for seed, Q in enumerate((P, moved))]
    spread = np.hypot(squares[0].std(), squares[1].std()) / 20_000**0.5
    assert abs(squares[0].mean() - squares[1].mean()) < BEYOND * spread
    value, error = P.limit().var("s[0,0,0]", with_error=True)
    assert abs(value - 0.75) < error < 1e-3


def test_gradients_behind_two_layers_of_scores() -> None:
    """The scores of one layer come back in the gradients of the other: simulations of three Gaussian matrices."""
    P = tp.Program("two", constants={"b": 64})
    i, j = P.index("i", 2), P.index("j", 2)
    z = P.initial("x[i]")
    for layer in "12":
        q, k, v = (P.weight(f"{name}{layer}", variance) for name, variance in (("Q", P.b), ("K", 1), ("V", 1)))
        made = [P.matmul(f"{name}{layer}[{index}]", weight, z[at])
                for name, index, weight, at in (("q", "i", q, i), ("k", "j", k, j), ("v", "j", v, j))]  # fmt: skip
        p = P.dot(f"p{layer}[i,j]", made[0][i], made[1][j])
        z = P.nonlin(f"z{layer}[i]", tp.sum[j](tp.softmax[j](p[i, j]) * made[2][j]))
    P.outputs(z)
    text = tp.backward(P).to_yaml().split("outputs:")[0]
    text += "  - m[j] = Dot(grad_x[j], grad_x[j], scale=1/n)\n  - g = Nonlin(log(1 + mean[j](m[j])))\n"
    B = program(text + "  - s = Nonlin(log(1 + 10*mean[i,j](grad_p1[i,j]**2)))\noutputs: [s, g]\n")
    assert B.check().grade == "extension"
    law = B.limit()
    for name, expected, known in (("s", 0.0812, 0.0003), ("g", 1.1689, 0.0009)):
        value, error = law.mean(name, with_error=True)
        assert abs(float(value) - expected) < float(error) + BEYOND * known, name
        assert float(error) < 6e-3


def test_message_passing_is_one_recurrence() -> None:
    """State evolution (Bayati & Montanari 2011) with the Onsager term; another limit without it."""
    values = tp.load("amp_lasso", T=2).limit().mean("mse", with_error=True)
    for value, error, expected in zip(*map(np.asarray, values), (0.92223138, 0.86836096), strict=True):
        assert abs(value - expected) < 2 * error < 2e-3
    with pytest.raises(tp.NotCompiledError, match="points for each"):
        tp.load("amp_lasso", T=1000).limit().mean("mse[2]")
    without = tp.load("amp_lasso", T=2, onsager=0).limit().mean("mse")
    assert abs(float(np.asarray(without)[1]) - 0.86836096) > 0.01


def test_coordinates_have_densities_and_draws() -> None:
    P = program(PROGRAMS["tied"]["text"].replace("outputs: [m1, l1, m2, m3, l3]", "outputs: [u1, y1]"))
    law, net = P.limit(), P.run(512, 4000, seed=3, coordinates=8)
    drawn = law.sample(100_000, seed=1)
    for name in ("u1", "y1"):
        variance, error = law.var(name, with_error=True)
        assert drawn[name].var() == pytest.approx(float(variance), rel=0.03, abs=2 * float(error))
        networks = (np.asarray(net[name]) ** 2).mean(axis=1)
        assert abs(networks.mean() - variance) < BEYOND * networks.std() / 4000**0.5 + 4 / 512 * variance
    assert law.kurtosis("u1") == pytest.approx(2.2462, abs=3e-3)
    assert law.density("u1", [0.0])[0] > 0.1


def average(f: Callable[[Any], Any], variance: float) -> float:
    """E f(N(0, variance))."""
    z = np.linspace(-12, 12, 4001)
    weights = np.exp(-(z**2) / 2)
    return float(weights @ f(np.sqrt(variance) * z) / weights.sum())


def slope(z: Any) -> Any:
    """The derivative of tanh."""
    return 1 / np.cosh(z) ** 2


def test_smooth_programs_to_nine_digits() -> None:
    """The recursion by hand: a decoder tied to its encoder, applied twice, its gradient, and a symmetric matrix."""
    c = 0.75 * average(slope, 1.75)
    m = 0.75 * average(lambda z: np.tanh(z) ** 2, 1.75) + c**2
    back, met = 2 * average(lambda z: slope(2 * z), m), average(lambda z: z * np.tanh(2 * z), m) / m * c
    again = 1.5 * average(lambda z: np.tanh(2 * z) ** 2, m) + (1.5 * back) ** 2 * average(
        lambda z: np.tanh(z) ** 2, 1.75
    )
    again += 4.5 * back * met * average(slope, 1.75)
    law = program(PROGRAMS["tied"]["text"]).limit(symbolic=True)
    for name, value in (("l1", c), ("m1", m), ("m2", again)):
        assert float(law.mean(name)[()].evalf()) == pytest.approx(value, abs=1e-9)
    squares = average(lambda z: np.tanh(2 * z) ** 2, 1.0)
    turned = 2 * average(lambda z: slope(2 * z), squares)
    law = program(PROGRAMS["goe"]["text"]).limit(symbolic=True)
    again = average(lambda z: np.tanh(2 * z) ** 2, squares) + turned**2 * squares
    for name, value in (("v1", squares), ("v2", again), ("l2", turned * squares)):
        assert float(law.mean(name)[()].evalf()) == pytest.approx(value, abs=1e-9)
    gradient = tp.backward(tp.load("autoencoder_tied")).limit().var("grad_x[0]")
    assert float(gradient) == pytest.approx(average(lambda z: slope(z) ** 2, 1.0) + average(slope, 1.0) ** 2, abs=1e-9)


@pytest.mark.parametrize(("name", "names"), [
    ("tied", "m1 l1 m2"), ("goe", "v1 v2 l2"), ("signtied", "l m"), ("mp", "a1 a4 a8"),
    pytest.param("family", "p m q", marks=pytest.mark.slow),
])  # fmt: skip
def test_formulas_have_the_values_of_the_numbers(name: str, names: str) -> None:
    """Means of all members, evaluated, beside the law in numbers; of linear programs they are rational."""
    P = program(FAMILY if name == "family" else PROGRAMS[name]["text"])
    law, numbers = P.limit(symbolic=True), P.limit()
    for output in names.split():
        found = np.array([float(entry.evalf()) for entry in np.ravel(np.asarray(law.mean(output)))])
        value, error = (np.ravel(part) for part in numbers.mean(output, with_error=True))
        assert (np.abs(found - value) <= 2 * error + 1e-9).all(), output


def test_first_orders_of_a_matrix_beside_its_transpose_are_refused() -> None:
    for P, output in ((tp.load("hopfield"), "z[0]"), (tp.backward(tp.load("mlp")), "grad_x[0]")):
        with pytest.raises(tp.NotCompiledError, match="both ways"):
            P.limit().correction("variance", output)


def test_formulas_show_onsager_terms_by_their_name() -> None:
    law = tp.load("autoencoder_tied").limit(symbolic=True)
    assert r"\hat{y}" in law.latex() and "The coefficient of an Onsager term" in law.latex()
    assert str(law.mean("c_y_u")) == "E[z*tanh(z); z ~ N(0, 1)]   where i = i2\n0   otherwise"
    apart = law.cov("y")[0, 1].subs(law.symbols["rho"], 0.5)
    assert float(apart.evalf()) == pytest.approx(tp.load("autoencoder_tied").limit().cov("y[0]", "y[1]"), abs=1e-9)
    assert str(tp.load("power_iteration").limit(symbolic=True).mean("m6")[()]) == "903/64"


def test_formulas_of_functions_of_several_products_are_refused_in_a_sentence() -> None:
    law = program(PROGRAMS["tied"]["text"]).limit(symbolic=True)
    with pytest.raises(tp.NotCompiledError, match="h1 is a function of several products, whose Onsager terms"):
        law.mean("m3")

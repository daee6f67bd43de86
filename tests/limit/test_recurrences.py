"""Recurrences: covariances over all pairs of steps, against recursions by hand, quadrature and finite networks."""

from __future__ import annotations

import gc
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog import Law
from tests.reading import loads

from . import oracles

Array = NDArray[np.float64]

RNN = """
program: rnn
constants: {T: 6, B: 2}
indices: {t: "1..T", b: B}
initial:
  "x[b,t]": {mean: 0, cov: "0.7**abs(t - t_) * 0.6**abs(b - b_)"}
weights: {W: 1.5, U: 0.8, V: 1.2}
body:
  - e[b,t] = MatMul(U, x[b,t])
  - s[b,0] = Nonlin(0)
  - u[b,t] = MatMul(W, s[b,t-1])
  - s[b,t] = Nonlin(PHI(u[b,t] + e[b,t]))
  - y[b,t] = MatMul(V, s[b,t])
outputs: [y]
"""


def _inputs(steps: int, batch: int) -> Array:
    t, b = np.arange(steps), np.arange(batch)
    return np.asarray(0.7 ** abs(t[:, None, None] - t) * 0.6 ** abs(b[:, None, None, None] - b[:, None]))


def _erf_states(inputs: Array) -> Array:
    """E[s s'] over (b, 0..T, b', 0..T): the arcsine kernel step by step, all pairs of steps at once."""
    batch, steps = inputs.shape[:2]
    s = np.zeros((batch, steps + 1, batch, steps + 1))
    for known in range(1, steps + 1):
        c = 1.5 * s[:, :known, :, :known] + 0.8 * inputs[:, :known, :, :known]
        flat = oracles.arcsine_kernel(c.reshape(batch * known, -1))
        s[:, 1 : known + 1, :, 1 : known + 1] = flat.reshape(c.shape)
    return s


def _z(draws: Array, expected: Array) -> float:
    """The largest deviation of second moments of draws, in standard errors."""
    flat = draws.reshape(len(draws), -1)
    products = np.einsum("ni,nj->nij", flat, flat)
    error = products.std(axis=0) / np.sqrt(len(flat))
    known = error > 0
    return float(np.abs((products.mean(axis=0) - expected.reshape(products.shape[1:]))[known] / error[known]).max())


def test_two_sequences_that_share_their_weights() -> None:
    law = Law(loads(RNN.replace("PHI", "erf")))
    expected = _erf_states(_inputs(6, 2))
    found = law.cov("y")
    assert found.error < 1e-10
    np.testing.assert_allclose(np.asarray(found), 1.2 * expected[:, 1:, :, 1:], rtol=0, atol=found.error)
    np.testing.assert_allclose(np.asarray(law.second_moment("s")), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.asarray(law.cov("y", "u")), 0)
    assert law.kurtosis("y[1,4]") == pytest.approx(3, abs=1e-12)


def test_draws_and_laws_of_steps() -> None:
    law = Law(loads(RNN.replace("PHI", "erf")))
    draws = law.sample(40_000, seed=1, keep=("s",))
    assert draws["s"].shape == (40_000, 2, 7)
    assert _z(draws["y"], np.asarray(law.cov("y"))) < 5
    assert _z(draws["s"], np.asarray(law.second_moment("s"))) < 5
    value, error = law.var("s[0,3]", with_error=True)
    assert value == pytest.approx(_erf_states(_inputs(6, 2))[0, 3, 0, 3], abs=error + 1e-12)
    assert law.var("s[0,0]") == 0
    assert law.density("y[0,2]", 0.0) == pytest.approx(1 / np.sqrt(2 * np.pi * law.var("y[0,2]")), rel=1e-9)


@pytest.mark.parametrize("weight", ["W", "W[t]"])
def test_finite_networks_approach_the_limit(weight: str) -> None:
    """tanh, a bias that differs from step to step, lag two, weights shared over time or fresh at every step."""
    text = f"""
program: lagged
indices: {{t: "2..4"}}
initial:
  "e[t]": {{mean: 0, cov: "0.4 + 0.3*where(t <= t_, where(t_ <= t, 1, 0), 0)"}}
  h: {{mean: 0.3, cov: 1}}
weights: {{"{weight}": 1.4, V: 1}}
body:
  - s[0] = Nonlin(tanh(h))
  - s[1] = Nonlin(0.5)
  - u[t] = MatMul({weight}, s[t-2])
  - s[t] = Nonlin(tanh(u[t] + e[t]) + 0.2*u[t])
  - y[t] = MatMul(V, s[t])
outputs: [y, s]
"""
    netsor = loads(text)
    law = Law(netsor)
    from tensorprog.finite.run import run

    seconds = []
    for width in (64, 256):
        s = run(netsor, width, 20_000, seed=width, method="lazy")["s"]
        seconds.append(np.einsum("ni,nj->nij", s, s))
    estimate = (4 * seconds[1].mean(axis=0) - seconds[0].mean(axis=0)) / 3
    error = np.sqrt(16 * seconds[1].var(axis=0) + seconds[0].var(axis=0)) / 3 / np.sqrt(20_000)
    difference = np.abs(estimate - np.asarray(law.second_moment("s")))
    assert np.all(difference <= 5 * error + 1e-10)
    if weight == "W[t]":
        cov = np.asarray(law.cov("u"))
        assert np.all(cov[~np.eye(3, dtype=bool)] == 0)


def test_two_recurrences_nested_recurrences_and_both_directions() -> None:
    """Layers l above each other, each a recurrence in t, and one that runs backwards over the same inputs."""
    text = """
program: stacked
constants: {T: 3, L: 2}
indices: {t: "1..T", l: "1..L"}
initial: {"x[t]": {mean: 0, cov: "0.5**abs(t - t_)"}}
weights: {"W[l]": 1.2, "U[l]": 0.9, R: 1.1, S: 0.8}
body:
  - h[0,t] = Nonlin(x[t])
  - s[l,0] = Nonlin(0)
  - u[l,t] = MatMul(W[l], s[l,t-1])
  - e[l,t] = MatMul(U[l], h[l-1,t])
  - s[l,t] = Nonlin(erf(u[l,t] + e[l,t]))
  - h[l,t] = Nonlin(s[l,t])
  - b[0] = Nonlin(0)
  - a[t] = MatMul(R, b[t-1])
  - z[t] = MatMul(S, x[T+1-t])
  - b[t] = Nonlin(erf(a[t] + z[t]))
  - y[t] = Nonlin(h[L,t] + b[T+1-t])
outputs: [y]
"""
    law = Law(loads(text))
    x = 0.5 ** np.abs(np.subtract.outer(np.arange(3), np.arange(3)))

    def layer(inputs: Array, w: float) -> Array:
        s = np.zeros((4, 4))
        for known in range(1, 4):
            s[1 : known + 1, 1 : known + 1] = oracles.arcsine_kernel(w * s[:known, :known] + inputs[:known, :known])
        return s[1:, 1:]

    top = layer(0.9 * layer(0.9 * x, 1.2), 1.2)
    back = layer(0.8 * x[::-1, ::-1], 1.1)[::-1, ::-1]
    np.testing.assert_allclose(np.asarray(law.second_moment("y")), top + back, atol=1e-10)


NORMED = """
program: normed
constants: {LAG: 0}
indices: {t: "1..4"}
initial: {"x[t]": {mean: 0, cov: "0.5**abs(t - t_)"}, h: {mean: 0, cov: 0.6}}
weights: {W: 2, U: 1}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t-1])
  - e[t] = MatMul(U, x[t])
  - r[t] = Nonlin(relu(u[t] + e[t]))
  - m[0] = Dot(h, h, scale=1/n)
  - m[t] = Dot(r[t], r[t], scale=1/n)
  - s[t] = Nonlin(r[t] / sqrt(m[t - LAG] + 0.1))
outputs: [s]
"""


@pytest.mark.parametrize("lag", [0, 1])
def test_layer_norm_in_a_recurrence(lag: int) -> None:
    """Averages along the way: the state is divided by its length at every step, or by that of the step before."""
    text = NORMED
    law = Law(loads(text, {"LAG": lag}))
    x = 0.5 ** np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    s = np.zeros((5, 5))
    for known in range(1, 5):
        r = oracles.arccos_kernel(2 * s[:known, :known] + x[:known, :known])
        squares = np.append(0.6, np.diag(r))
        scale = np.sqrt(squares[1 - lag : known + 1 - lag] + 0.1)
        s[1 : known + 1, 1 : known + 1] = r / np.outer(scale, scale)
    np.testing.assert_allclose(np.asarray(law.second_moment("s")), s, atol=1e-10)
    np.testing.assert_allclose(law.mean("m"), squares, atol=1e-10)


LSTM = """
program: lstm
constants: {T: 2}
indices: {t: "1..T", k: 4}
initial:
  "x[t]": {mean: 0, cov: "0.6**abs(t - t_)"}
  bf: {mean: 0.5, cov: 0.1}
weights: {"W[k]": 1.3, "U[k]": 0.3, V: 1}
body:
  - e[k,t] = MatMul(U[k], x[t])
  - h[0] = Nonlin(0)
  - c[0] = Nonlin(0)
  - u[k,t] = MatMul(W[k], h[t-1])
  - c[t] = Nonlin(sigmoid(u[0,t] + e[0,t] + bf) * c[t-1] + sigmoid(u[1,t] + e[1,t]) * tanh(u[2,t] + e[2,t]))
  - h[t] = Nonlin(sigmoid(u[3,t] + e[3,t]) * tanh(c[t]))
  - y[t] = MatMul(V, h[t])
outputs: [y]
"""


GRU = """
program: gru
constants: {T: 2}
indices: {t: "1..T", k: 3}
initial: {"x[t]": {mean: 0, cov: "0.6**abs(t - t_)"}}
weights: {"W[k]": 1.3, "U[k]": 0.7, V: 1}
body:
  - e[k,t] = MatMul(U[k], x[t])
  - h[0] = Nonlin(0)
  - u[k,t] = MatMul(W[k], h[t-1])
  - r[t] = Nonlin(sigmoid(u[1,t] + e[1,t]) * h[t-1])
  - f[t] = MatMul(N, r[t])
  - z[t] = Nonlin(sigmoid(u[0,t] + e[0,t]))
  - h[t] = Nonlin((1 - z[t]) * h[t-1] + z[t] * tanh(f[t] + e[2,t]))
  - y[t] = MatMul(V, h[t])
outputs: [y]
""".replace("V: 1}", "V: 1, N: 1.1}")


def _nodes(order: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    return nodes, weights / weights.sum()


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _pair(cov: Array, order: int = 24) -> tuple[Array, Array, Array]:
    """A product rule for a pair of variables: values of both, weights."""
    nodes, weights = _nodes(order)
    root = np.linalg.cholesky(cov)
    one, two = np.meshgrid(nodes, nodes, indexing="ij")
    return root[0, 0] * one, root[1, 0] * one + root[1, 1] * two, np.outer(weights, weights)


def test_lstm_of_two_steps_against_quadrature() -> None:
    law = Law(loads(LSTM))
    with mpmath.workdps(20):

        def second(f, var: float) -> float:  # type: ignore[no-untyped-def]
            return float(mpmath.quad(lambda x: f(x) ** 2 * mpmath.npdf(x, 0, mpmath.sqrt(var)), [-12, 0, 12]))

        gate = second(lambda x: 1 / (1 + mpmath.exp(-x)), 0.3)
    nodes, weights = _nodes(60)
    i, g = _sigmoid(np.sqrt(0.3) * nodes)[:, None], np.tanh(np.sqrt(0.3) * nodes)
    first = gate * float(weights @ np.tanh(i * g) ** 2 @ weights)
    # the second step: pairs of inputs to the input gate and to the candidate over both steps, one forget gate
    pair = np.array([[0.3, 0.18], [0.18, 0.3 + 1.3 * first]])
    a, b, w = _pair(pair)
    forget = _sigmoid(0.5 + np.sqrt(0.1 + 0.3 + 1.3 * first) * _nodes(16)[0])
    value = np.zeros((2, 2))
    f = forget.reshape(-1, 1, 1, 1, 1)
    c1 = (_sigmoid(a)[:, :, None, None] * np.tanh(a))[None]
    c2 = f * c1 + (_sigmoid(b)[:, :, None, None] * np.tanh(b))[None]
    full = _nodes(16)[1].reshape(-1, 1, 1, 1, 1) * w[:, :, None, None] * w
    value[0, 1] = value[1, 0] = (full * np.tanh(c1) * np.tanh(c2)).sum()
    value[0, 0], value[1, 1] = (full * np.tanh(c1) ** 2).sum(), (full * np.tanh(c2) ** 2).sum()
    expected = value * np.array([[(w * _sigmoid(x) * _sigmoid(y)).sum() for y in (a, b)] for x in (a, b)])
    found = law.cov("y")
    assert found.error < 1e-3
    assert expected[0, 0] == pytest.approx(first, abs=1e-7)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=found.error + 1e-7)


def test_gru_of_two_steps_against_quadrature() -> None:
    law = Law(loads(GRU))
    nodes, weights = _nodes(60)
    z2, n2 = weights @ _sigmoid(np.sqrt(0.7) * nodes) ** 2, weights @ np.tanh(np.sqrt(0.7) * nodes) ** 2
    first = z2 * n2
    one, two, w = _pair(np.array([[0.7, 0.42], [0.42, 0.7 + 1.3 * first]]), 40)
    z, zz = _sigmoid(one), _sigmoid(two)
    reset = (w * _sigmoid(two) ** 2).sum() * first
    one, two, v = _pair(np.array([[0.7, 0.42], [0.42, 0.7 + 1.1 * reset]]), 40)
    n11, n12, n22 = ((v * np.tanh(a) * np.tanh(b)).sum() for a, b in ((one, one), (one, two), (two, two)))
    cross = (w * z * (1 - zz) * z).sum() * n11 + (w * z * zz).sum() * n12
    last = (w * ((1 - zz) * z) ** 2).sum() * n11 + 2 * (w * (1 - zz) * z * zz).sum() * n12 + (w * zz**2).sum() * n22
    found = law.cov("y")
    assert found.error < 1e-3
    np.testing.assert_allclose(np.asarray(found), [[first, cross], [cross, last]], rtol=0, atol=found.error + 1e-9)


@pytest.mark.parametrize("choice", ["where(t == 1, 0, E)", "where(t > 1, E, 0)", "where(t == 1, 0.5, E)"])
def test_choices_by_conditions_on_indices(choice: str) -> None:
    """where(condition, number, product of vectors) is taken apart; the product of independent factors is exact."""
    text = """
program: chosen
indices: {t: 3}
initial: {"x[t]": {mean: 0, cov: "0.5**abs(t - t_)"}, "z[t]": {mean: 0, cov: "0.8**abs(t - t_)"}}
body:
  - h[t] = Nonlin(CHOICE)
outputs: [h]
""".replace("CHOICE", choice.replace("E", "erf(x[t]) * relu(z[t])"))
    law = Law(loads(text))
    t = np.arange(3)
    held = t > 1 if ">" in choice else t != 1
    other = 0.5 * np.outer(~held, ~held) if "0.5" in choice else np.zeros((3, 3))
    k = oracles.arcsine_kernel(0.5 ** np.abs(np.subtract.outer(t, t)))
    r = oracles.arccos_kernel(0.8 ** np.abs(np.subtract.outer(t, t)))
    expected = np.where(np.outer(held, held), k * r, 0.5 * other)
    found = law.second_moment("h")
    assert found.error < 1e-12
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=found.error + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("text", [LSTM, GRU])
def test_longer_gated_networks_against_draws_and_finite_networks(text: str) -> None:
    netsor = loads(text, {"T": 5})
    law = Law(netsor)
    found = law.cov("y")
    assert found.error < 1e-3
    assert _z(law.sample(40_000, seed=2)["y"], np.asarray(found)) < 5
    from tensorprog.finite.run import run

    seconds = []
    for width in (64, 256):
        y = run(netsor, width, 20_000, seed=width, method="lazy")["y"]
        seconds.append(np.einsum("ni,nj->nij", y, y))
    estimate = (4 * seconds[1].mean(axis=0) - seconds[0].mean(axis=0)) / 3
    error = np.sqrt(16 * seconds[1].var(axis=0) + seconds[0].var(axis=0)) / 3 / np.sqrt(20_000)
    assert np.all(np.abs(estimate - np.asarray(found)) <= 5 * error + found.error)


def test_what_is_carried_linearly() -> None:
    """A leaky state and a residual stream along a recurrence index, against sums by hand."""
    text = """
program: leaky
indices: {t: "1..4"}
initial: {"x[t]": {mean: 0, cov: "0.5**abs(t - t_)"}}
weights: {U: 1}
body:
  - e[t] = MatMul(U, x[t])
  - h[0] = Nonlin(0)
  - h[t] = Nonlin(0.5*h[t-1] + erf(e[t]))
outputs: [h]
"""
    law = Law(loads(text))
    k = oracles.arcsine_kernel(0.5 ** np.abs(np.subtract.outer(np.arange(4), np.arange(4))))
    w = np.array([[0.5 ** (t - s) if s <= t else 0.0 for s in range(4)] for t in range(4)])
    expected = np.zeros((5, 5))
    expected[1:, 1:] = w @ k @ w.T
    found = law.second_moment("h")
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=found.error + 1e-12)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_residual_streams_are_exact(factor: float) -> None:
    """h[l] = a h[l-1] + W[l] relu(h[l-1]) is Gaussian: covariances between all layers by arc-cosine kernels."""
    text = """
program: stream
constants: {a: FACTOR}
indices: {l: "1..5", i: 3}
initial: {"x[i]": {mean: 0, cov: "0.5**abs(i - i_)"}}
weights: {"W[l]": 1.2}
body:
  - h[0,i] = Nonlin(x[i])
  - r[l,i] = Nonlin(relu(h[l-1,i]))
  - u[l,i] = MatMul(W[l], r[l,i])
  - h[l,i] = Nonlin(a * h[l-1,i] + u[l,i])
outputs: [h]
""".replace("FACTOR", str(factor))
    law = Law(loads(text))
    k = 0.5 ** np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    layers = [k]
    for _ in range(5):
        layers.append(factor**2 * layers[-1] + 1.2 * oracles.arccos_kernel(layers[-1]))
    found = law.second_moment("h")
    expected = np.array([[factor ** abs(m - n) * layers[min(m, n)] for n in range(6)] for m in range(6)])
    assert found.error < 1e-10
    np.testing.assert_allclose(np.asarray(found), expected.transpose(0, 2, 1, 3), rtol=0, atol=1e-11)
    assert law.kurtosis("h[4,1]") == pytest.approx(3, abs=1e-9)


@pytest.mark.parametrize("start", [1, 3])
def test_a_stream_with_a_drift(start: int) -> None:
    """What a residual stream adds may have a mean: E erf(h) of h ~ N(m, v) is erf(m / sqrt(1 + 2 v))."""
    law = Law(
        loads(
            """
program: drift
indices: {l: "START..END"}
initial: {h0: {mean: 0.2, cov: 0.5}, "b[l]": {mean: 0.1, cov: 0.25}}
body:
  - h[FIRST] = Nonlin(h0)
  - h[l] = Nonlin(0.5*h[l-1] + b[l] + 0.3)
  - y[l] = Nonlin(erf(h[l]))
outputs: [y]
""".replace("START", str(start))
            .replace("END", str(start + 2))
            .replace("FIRST", str(start - 1))
        )
    )
    mean, var, expected = 0.2, 0.5, []
    for _ in range(3):
        mean, var = 0.5 * mean + 0.4, 0.25 * var + 0.25
        expected.append(float(mpmath.erf(mean / np.sqrt(1 + 2 * var))))
    np.testing.assert_allclose(law.mean("y"), expected, atol=1e-12)


FADING = """
program: fading
indices: {t: {size: 3, boundary: zero}}
initial:
  g[t]: {mean: 0, cov: 1}
body:
  - r[t] = Nonlin(r[t-1] / 2 + g[t])
outputs: [r]
"""


def test_a_boundary_may_be_the_base_of_a_recurrence() -> None:
    program = tp.Program.from_netsor(loads(FADING))
    exact = np.array([[1, 0.5, 0.25], [0.5, 1.25, 0.625], [0.25, 0.625, 1.3125]])
    value, error = program.limit().cov("r", with_error=True)
    assert np.all(np.abs(value - exact) <= error + 1e-9)
    law = program.limit()
    variance, error = law.var("r", with_error=True)
    assert np.all(np.abs(variance - exact.diagonal()) <= 5 * error)
    drawn = law.sample(100_000, seed=1)["r"]
    for values in (drawn, program.run(width=3, samples=100_000, seed=2)["r"]):
        se = np.sqrt((exact**2 + np.outer(exact.diagonal(), exact.diagonal())) / len(values))
        assert np.all(np.abs(np.cov(values, rowvar=False) - exact) <= 5 * se)


DIAGONAL = """
program: diagonal
constants: {T: 40}
indices: {t: 1..T}
initial:
  x[t]: {INPUT}
  c: {mean: 0.3, cov: 0.1}
weights: {W: 1.5, V: 1.2}
body:
  - s[0] = Nonlin(FIRST)
  - u[t] = MatMul(W, s[t - 1])
  - s[t] = Nonlin(PHI(u[t] + x[t] + c))
  - y[t] = MatMul(V, s[t])
outputs: [y]
"""


@pytest.mark.parametrize("first", ["0", "c"])
def test_variances_of_a_recurrence_follow_from_those_of_the_step_before(first: str) -> None:
    """Against E[relu(z)**2] and E[z >= 0] of a recursion by hand, with no covariance of different steps."""
    variances = 0.5 + 0.25 * np.sin(np.arange(1, 41))
    text = DIAGONAL.replace("INPUT", "mean: 0, cov: 'where(t == t_, 0.5 + 0.25 * sin(t), 0)'").replace("FIRST", first)
    for phi in ("relu", "erf"):
        own = text.replace("PHI", phi).replace("mean: 0.3", "mean: 0")
        law = Law(loads(own))
        found, error = law.var("y", with_error=True)
        second, states = 0.0 if first == "0" else 0.1, []
        for variance in variances:
            total = 1.5 * second + variance + 0.1
            second = total / 2 if phi == "relu" else 2 / np.pi * np.arcsin(2 * total / (1 + 2 * total))
            states.append(1.2 * second)
        assert np.all(np.abs(found - states) <= error + 1e-13)


def test_errors_of_a_long_recurrence_stay_small() -> None:
    """A contraction forgets the errors of earlier steps: those that are stated do not grow with the steps."""
    long = RNN.replace("PHI", "erf")
    short, found = (Law(loads(long, {"T": steps, "B": 1})).cov("y") for steps in (50, 200))
    assert found.error < 5 * short.error < 1e-12  # large arrays have one bound for many
    expected = 1.2 * _erf_states(_inputs(200, 1))[:, 1:, :, 1:]
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=found.error + 1e-14)


def test_variances_of_many_steps_without_their_covariances() -> None:
    """Of large families only equal positions are computed: of one that is shared by all steps, and of own weights."""
    law = Law(loads(RNN.replace("PHI", "erf"), {"T": 200, "B": 1}))
    found, error = law.var("y", with_error=True)
    expected = 1.2 * np.diagonal(_erf_states(_inputs(200, 1))[0, 1:, 0, 1:])
    assert np.all(np.abs(found[0] - expected) <= error[0] + 1e-14) and error.max() < 1e-12
    deep = """
program: deep
constants: {L: 200}
indices: {l: "1..L", i: 2}
initial: {"x[i]": {mean: 0, cov: "0.5**abs(i - i_)"}}
weights: {"W[l]": 2}
body:
  - h[0,i] = Nonlin(x[i])
  - u[l,i] = MatMul(W[l], h[l-1,i])
  - h[l,i] = Nonlin(relu(u[l,i]))
outputs: [u]
"""
    found, error = Law(loads(deep)).var("u", with_error=True)
    assert np.all(np.abs(found - 2) <= error) and error.max() < 1e-10


@pytest.mark.parametrize(("phi", "variance"), [("gelu", 2.5), ("silu", 2.5), ("tanh", 9.0), ("erf", 2.0)])
def test_errors_of_deep_networks_stay_small_beside_their_variances(phi: str, variance: float) -> None:
    """On the diagonal both variables are one: what moves together is not counted twice."""
    text = f"""
program: deep
indices: {{l: 1..40}}
initial: {{x: {{mean: 0, cov: 1}}}}
weights: {{"W[l]": {variance}}}
body:
  - h[0] = Nonlin(x)
  - u[l] = MatMul(W[l], h[l-1])
  - h[l] = Nonlin({phi}(u[l]))
outputs: [u]
"""
    value, error = Law(loads(text)).var("u", with_error=True)
    assert np.all(error < 1e-9 * value)


SEQUENCE = """
program: sequence
constants: {T: 150}
indices: {t: 1..T}
initial:
  x[t]: {mean: 0, cov: 0.5**abs(t - t_)}
  b: {mean: 0, cov: 0.1}
weights: {W: 1.2, R: 0.7, V: 2}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t - LAG])
  - r[t] = Nonlin(FIRST(u[t] + x[t] + b))
  - v[t] = MatMul(R, r[t])
  - s[t] = Nonlin(SECOND(v[t]))
  - f[t] = MatMul(V, s[t])
outputs: [f]
"""
KERNELS = {"erf": oracles.arcsine_kernel, "relu": oracles.arccos_kernel}


@pytest.mark.parametrize(
    ("first", "second", "lag", "weight"),
    [("erf", "relu", 1, 1.2), ("relu", "erf", 1, 1.2), ("relu", "relu", 1, 1.2), ("erf", "erf", 2, 9.0)],
)
def test_many_steps_with_two_products_each(first: str, second: str, lag: int, weight: float) -> None:
    """Rows of both covariances by plain numpy; chaotic weights, whose errors grow, among them."""
    text = SEQUENCE.replace("FIRST", first).replace("SECOND", second).replace("LAG", str(lag))
    text = text.replace("W: 1.2", f"W: {weight}").replace(
        "s[0] =", "s[-1] = Nonlin(0)\n  - s[0] =" if lag > 1 else "s[0] ="
    )
    x, s = 0.1 + 0.5 ** np.abs(np.subtract.outer(np.arange(150), np.arange(150))), np.zeros((150 + lag, 150 + lag))
    for step in range(150):
        known = slice(0, step + 1)
        inner = KERNELS[first](weight * s[known, known] + x[known, known])
        s[lag : step + 1 + lag, lag : step + 1 + lag] = KERNELS[second](0.7 * inner)
    law = Law(loads(text))
    found, expected = law.cov("f"), 2 * s[lag:, lag:]
    assert found.error < 1e-10
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=found.error + 1e-13)
    value, error = law.var("f", with_error=True)
    assert np.all(np.abs(value - np.diagonal(expected)) <= error + 1e-13)


@pytest.mark.parametrize(("name", "f"), [("tanh", np.tanh), ("silu", lambda x: x / (1 + np.exp(-x)))])
def test_many_steps_of_functions_without_closed_forms(name: str, f: Callable[[Array], Array]) -> None:
    """Rows by the trapezoidal rule in both variables."""
    lines = SEQUENCE.replace("LAG", "1").replace("SECOND(v[t])", f"{name}(u[t] + x[t] + b)").splitlines()
    law = Law(loads("\n".join(line for line in lines if "r[t]" not in line), {"T": 110}))
    z = 0.2 * np.arange(-41, 42)
    weights = 0.2 * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    x, s = 0.1 + 0.5 ** np.abs(np.subtract.outer(np.arange(110), np.arange(110))), np.zeros((111, 111))
    for step in range(110):
        k = 1.2 * s[: step + 1, : step + 1] + x[: step + 1, : step + 1]
        own, other = k[-1, -1], np.diag(k)
        left = np.sqrt(np.maximum(other - k[-1] ** 2 / own, 0.0))
        inner = f(k[-1][:, None, None] / np.sqrt(own) * z[:, None] + left[:, None, None] * z) @ weights
        s[step + 1, 1 : step + 2] = s[1 : step + 2, step + 1] = inner @ (weights * f(np.sqrt(own) * z))
    found, error = law.cov("f", with_error=True)
    assert error.max() < 1e-12
    np.testing.assert_allclose(np.asarray(found), 2 * s[1:, 1:], rtol=0, atol=2e-12)


def test_a_table_of_many_steps_is_kept_once() -> None:
    """Two tables of numbers have room, of the recurrence and of the answer, with inputs that are read in tiles."""
    lines = SEQUENCE.replace("LAG", "1").replace("SECOND(v[t])", "erf(u[t] + x[t] + b)").splitlines()
    text = "\n".join(line for line in lines if "r[t]" not in line)
    law = Law(loads(text, {"T": 2100}), max_memory=70 << 20)
    found = np.asarray(law.cov("f"))
    short = Law(loads(text, {"T": 150})).cov("f")
    np.testing.assert_allclose(found[:150, :150], np.asarray(short), rtol=0, atol=2 * short.error)
    np.testing.assert_array_equal(found, found.T)


def test_the_number_of_objects_does_not_grow_with_the_steps() -> None:
    text = SEQUENCE.replace("LAG", "1").replace("FIRST", "relu").replace("SECOND", "erf")

    def objects(steps: int) -> int:
        law = Law(loads(text, {"T": steps}))
        gc.collect()
        before = len(gc.get_objects())
        law.var("f[5]")
        gc.collect()
        return len(gc.get_objects()) - before

    objects(110), objects(400)  # what is loaded, and remembered of expressions, with the first
    assert objects(400) < objects(110) + 50


def test_weights_for_each_step_need_no_table() -> None:
    text = SEQUENCE.replace("{W: 1.2, R: 0.7,", '{"W[t]": 1.2, "R[t]": 0.7,').replace("(W,", "(W[t],")
    text = text.replace("(R,", "(R[t],").replace("x[t]", "x").replace("0.5**abs(t - t_)", "1").replace("LAG", "1")
    law = Law(loads(text.replace("FIRST", "relu").replace("SECOND", "erf"), {"T": 400}), max_memory=1200 << 10)
    state = 0.0
    for _ in range(400):
        inner = 0.7 * (1.2 * state + 1.1) / 2
        state = 2 / np.pi * np.arcsin(2 * inner / (1 + 2 * inner))
    value, error = law.var("f[400]", with_error=True)
    assert abs(value - 2 * state) <= error

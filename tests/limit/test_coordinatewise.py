"""Scores of functions of MatMul outputs, coordinate by coordinate, and coordinate vectors: rotary positions, gates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad, quad

import tensorprog as tp
from tests.reading import loads

ROTARY = """
program: rotary
constants: {base: 100}
indices: {i: 3, j: 3}
initial:
  x[i]: {cov: "0.5**abs(i - i_)"}
  t: {grid: true}
weights: {Q: 1, Q2: 1, K: 2, K2: 2, V: 1}
body:
  - q[i] = MatMul(Q, x[i])
  - q2[i] = MatMul(Q2, x[i])
  - k[i] = MatMul(K, x[i])
  - k2[i] = MatMul(K2, x[i])
  - v[i] = MatMul(V, x[i])
  - f = Nonlin(base**(-t))
  - rq[i] = Nonlin(q[i]*cos(i*f) - q2[i]*sin(i*f))
  - rq2[i] = Nonlin(q2[i]*cos(i*f) + q[i]*sin(i*f))
  - rk[j] = Nonlin(k[j]*cos(j*f) - k2[j]*sin(j*f))
  - rk2[j] = Nonlin(k2[j]*cos(j*f) + k[j]*sin(j*f))
  - p[i,j] = Dot(rq[i], rk[j])
  - p2[i,j] = Dot(rq2[i], rk2[j])
  - s[i,j] = Nonlin((p[i,j] + p2[i,j])/sqrt(2))
  - y[i] = Nonlin(sum[j](softmax[j](s[i,j]) * v[j]))
outputs: [y, s]
"""
TOKENS = np.arange(3)
INPUTS = 0.5 ** np.abs(np.subtract.outer(TOKENS, TOKENS))


def _one_score(left: str, right: str = "k[j]", more: str = "", weights: str = "", initial: str = "") -> str:
    return f"""
program: one
indices: {{i: 2, j: 2}}
initial:
  x[i]: {{cov: "0.5**abs(i - i_)"}}
{initial}
weights: {{Q: 1, G: 1, K: 1, V: 1{weights}}}
body:
  - q[i] = MatMul(Q, x[i])
  - g[i] = MatMul(G, x[i])
  - k[j] = MatMul(K, x[j])
  - v[j] = MatMul(V, x[j])
{more}  - a[i] = Nonlin({left})
  - b[j] = Nonlin({right})
  - p[i,j] = Dot(a[i], b[j])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))
outputs: [y, p]
"""


def _read(text: str) -> tp.Program:
    return tp.Program.from_netsor(loads(text))


def _rotation() -> np.ndarray:
    """Covariances of rotated scores, by the angle between both: 2 C_ik C_jl E cos((i - j - k + l) 100**-t)."""
    lags = np.array([quad(lambda u, m=m: np.cos(m * 100.0**-u), 0, 1, epsabs=1e-13)[0] for m in range(5)])
    i = TOKENS
    lag = np.abs(i[:, None, None, None] - i[None, :, None, None] - i[None, None, :, None] + i[None, None, None, :])
    return 2 * INPUTS[:, None, :, None] * INPUTS[None, :, None, :] * lags[lag]


def test_rotated_scores_have_the_covariance_of_the_formula() -> None:
    program = _read(ROTARY)
    report = program.check()
    assert report.grade == "extension"
    assert {claim.name: claim.standing for claim in report.claims} == {
        "coordinatewise operands": "proved",
        "coordinate vectors": "proved",
    }
    law = program.limit()
    cov = law.cov("p")
    one, cross, two = (np.asarray(law.cov(*names)) for names in (("p", "p"), ("p", "p2"), ("p2", "p2")))
    found = (one + two + cross + cross.transpose(2, 3, 0, 1)) / 2
    assert cov.error < 1e-6
    assert np.all(np.abs(found - _rotation()) <= 4 * cov.error)
    assert np.abs(found - _rotation()).max() < 1e-12


def _dense(width: int, networks: int) -> np.ndarray:
    """Scores of dense networks, with queries and keys as complex numbers that are turned."""
    generator = np.random.default_rng(5)
    root = np.linalg.cholesky(INPUTS)
    angle = np.exp(1j * np.outer(TOKENS, 100.0 ** -((np.arange(width) + 0.5) / width)))
    scores = np.empty((networks, 3, 3))
    for scored in scores:
        x = root @ generator.standard_normal((3, width))
        weights = generator.standard_normal((4, width, width)) / np.sqrt(width)
        q = x @ weights[0] + 1j * x @ weights[1]
        k = np.sqrt(2) * (x @ weights[2] + 1j * x @ weights[3])
        scored[:] = ((q * angle) @ (k * angle).conj().T).real / np.sqrt(2 * width)
    return scores


def _covariance(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Second moments of centred scores, and their standard errors."""
    flat = scores.reshape(len(scores), -1)
    second = flat.T @ flat / len(flat)
    return second, np.sqrt(((flat**2).T @ (flat**2) / len(flat) - second**2) / len(flat))


def test_finite_networks_turn_as_complex_numbers_do() -> None:
    width, networks = 48, 3000
    there, noise = _covariance(_dense(width, networks))
    program = _read(ROTARY)
    for method in ("dense", "lazy", "collapsed"):
        drawn = program.run(width, networks, seed=3, method=method)["s"]
        here, own = _covariance(np.asarray(drawn))
        assert np.all(np.abs(here - there) < 4.9 * np.hypot(noise, own)), method


@pytest.mark.slow
def test_wide_networks_have_the_law() -> None:
    program = _read(ROTARY)
    law = program.limit()
    width, networks = 512, 20_000
    drawn = program.run(width, networks, seed=8)
    second, noise = _covariance(np.asarray(drawn["s"]))
    limit = _rotation().reshape(9, 9)
    assert np.all(np.abs(second - limit) < 4.9 * noise + 4 / width)
    y, sampled = (np.asarray(found["y"]) for found in (drawn, law.sample(100_000, seed=1)))
    variance = law.var("y")
    for values, slack in ((y, 4 / width), (sampled, 0.0)):
        error = (values**2).std(axis=0) / np.sqrt(len(values))
        assert np.all(np.abs((values**2).mean(axis=0) - variance) < 4.9 * error + slack)


def _joint(f, c: float) -> float:
    """E f(a) f(b) for standard normals of covariance c, by a product rule that the package does not use."""
    return dblquad(
        lambda v, u: f(u) * f(c * u + np.sqrt(1 - c * c) * v) * np.exp(-(u * u + v * v) / 2) / (2 * np.pi),
        -9, 9, -9, 9, epsabs=1e-9, epsrel=1e-9,
    )[0]  # fmt: skip


def test_gated_and_squashed_queries() -> None:
    law = _read(_one_score("tanh(q[i])")).limit()
    found = np.asarray(law.cov("p"))
    diagonal = quad(lambda u: np.tanh(u) ** 2 * np.exp(-u * u / 2) / np.sqrt(2 * np.pi), -12, 12, epsabs=1e-13)[0]
    squashed = np.array([[diagonal, _joint(np.tanh, 0.5)], [_joint(np.tanh, 0.5), diagonal]])
    keys = np.array([[1, 0.5], [0.5, 1]])
    expected = squashed[:, None, :, None] * keys[None, :, None, :]
    assert np.abs(found - expected).max() < 1e-8
    gated = np.asarray(_read(_one_score("q[i]*relu(g[i])")).limit().cov("p"))
    relu = np.array([[0.5, (np.sqrt(0.75) + 0.5 * (np.pi - np.arccos(0.5))) / (2 * np.pi)]] * 2)
    relu = np.where(np.eye(2, dtype=bool), 0.5, relu[0, 1])  # Cho & Saul 2009
    assert np.abs(gated - (keys * relu)[:, None, :, None] * keys[None, :, None, :]).max() < 1e-12


TWO = """
program: two
indices: {i: 3, j: 3, a: 2}
initial:
  x[i]: {cov: "0.5**abs(i - i_)"}
  t: {grid: true}
weights:
  Q[a]: 1
  K[a]: 1
  V[a]: 1
  Q2[a]: 1
  K2[a]: 1
  V2[a]: 1
body:
  - q[a,i] = MatMul(Q[a], x[i])
  - k[a,i] = MatMul(K[a], x[i])
  - v[a,i] = MatMul(V[a], x[i])
  - g[a,i] = Nonlin(q[a,i]*cos(3*i*t))
  - h[a,i] = Nonlin(k[a,i]*cos(3*i*t))
  - p[a,i,j] = Dot(g[a,i], h[a,j])
  - z[i] = Nonlin(x[i] + sum[a](sum[j](softmax[j](p[a,i,j])*v[a,j])))
  - q2[a,i] = MatMul(Q2[a], z[i])
  - k2[a,i] = MatMul(K2[a], z[i])
  - v2[a,i] = MatMul(V2[a], z[i])
  - g2[a,i] = Nonlin(q2[a,i]*cos(3*i*t))
  - r[a,i,j] = Dot(g2[a,i], k2[a,j])
  - y[i] = Nonlin(z[i] + sum[a](sum[j](softmax[j](r[a,i,j])*v2[a,j])))
outputs: [y]
"""


def test_layers_of_such_scores() -> None:
    program = _read(TWO)
    assert {claim.name for claim in program.check().claims} == {
        "coordinatewise operands",
        "coordinate vectors",
        "iterated layers",
    }
    width, networks, draws = 256, 8_000, 20_000
    networks_y = np.asarray(program.run(width, networks, seed=2)["y"])
    limit_y = np.asarray(program.limit().sample(draws, seed=2)["y"])
    for power, slack in ((2, 8 / width), (4, 200 / width)):
        one, two = networks_y**power, limit_y**power
        noise = np.hypot(one.std(axis=0) / np.sqrt(networks), two.std(axis=0) / np.sqrt(draws))
        assert np.all(np.abs(one.mean(axis=0) - two.mean(axis=0)) < 4.9 * noise + slack), power


@pytest.mark.parametrize(("text", "consequence"), [
    (_one_score("relu(q[i])", "relu(k[j])"), "diverges"),  # a mean in every coordinate
    (_one_score("cos(q[i])", "k[j]", more="  - kk[j] = MatMul(K, v[j])\n  - w[j] = MatMul(G, kk[j])\n").replace(
        "softmax[j](p[i,j]) * v[j]", "softmax[j](p[i,j]) * w[j]"), "not covered"),  # K makes a value as well
    (_one_score("q[i]*(t - 0.5)", "tanh(q[j])", initial="  t: {grid: true}"), "not covered"),  # zero on average only
    (_one_score("g[i]*m[i]", "g[j]", more="  - m[i] = Dot(q[i], x[i], scale=1/n)\n"), "not covered"),
    (_one_score("q[i]**2 - 1", "relu(k[j])"), "not covered"),  # centred, but no symmetry says so
])  # fmt: skip
def test_what_is_not_covered(text: str, consequence: str) -> None:
    report = _read(text).check()
    assert report.grade == "outside"
    assert report.consequence == consequence


def test_averages_of_queries_are_parameters() -> None:
    norm = "  - m[i] = Dot(q[i], q[i], scale=1/n)\n"
    program = _read(_one_score("tanh(q[i]/sqrt(m[i] + 0.01))", more=norm))
    assert program.check().grade == "extension"
    law, other = program.limit(), _read(_one_score("tanh(q[i]/sqrt(1.01))")).limit()
    assert np.allclose(np.asarray(law.cov("p")), np.asarray(other.cov("p")), rtol=1e-9)


def test_coordinate_vectors_are_written_and_read() -> None:
    program = tp.Program("grid")
    t = program.initial("t", grid=True)
    x = program.initial("x")
    W = program.weight("W")
    program.nonlin("f", t**2 + x)
    program.matmul("g", W, program["f"])
    program.outputs("g", "f")
    assert _read(program.to_yaml()).to_yaml() == program.to_yaml()
    assert "t: {grid: true}" in program.to_yaml()
    law = program.limit()
    assert law.var("g") == pytest.approx(1.2, abs=1e-7)  # E t**4 + E x**2
    drawn = program.run(64, 40_000, seed=1)
    exact = 1 + np.mean(((np.arange(64) + 0.5) / 64) ** 4)
    g, f = (np.asarray(drawn[name]) for name in ("g", "f"))
    assert abs((g**2).mean() - exact) < 4.9 * (g**2).std() / 200
    assert abs(f.mean() - 1 / 3) < 4.9 * f.std() / 200 + 1e-4  # a coordinate chosen at random
    numbers = np.sort(
        np.asarray(
            _read("""
program: numbers
initial:
  t: {grid: true}
body: [s = Nonlin(t)]
outputs: [s]
""").run(16, 200, seed=1)["s"]
        )
    )
    assert set(np.round(numbers * 32).astype(int)) <= set(range(1, 32, 2))


@pytest.mark.parametrize(("entry", "said"), [
    ("t: {grid: true, cov: 2}", "no other options"),
    ("t[i]: {grid: true}", "has no indices"),
    ("t: {grid: maybe}", "known names: false, true"),
    ("t: {grid: true}\n  u: {grid: true}", "is the coordinate vector of this width already"),
])  # fmt: skip
def test_wrong_coordinate_vectors(entry: str, said: str) -> None:
    text = f"program: wrong\nindices: {{i: 2}}\ninitial:\n  {entry}\nbody: [s = Nonlin(1)]\noutputs: [s]\n"
    with pytest.raises(tp.ProgramError, match=said):
        _read(text)

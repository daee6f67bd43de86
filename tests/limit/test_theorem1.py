"""E[psi(Z) | p-ring]: given the scores against mpmath and brute force, over scores against networks of finite width."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import tensorprog as tp
from tensorprog import Law
from tensorprog.results import distances
from tensorprog.shipped import shipped_programs
from tests.reading import loads

from . import oracles

ATTENTION = shipped_programs()["attention"]


def softmax(p):  # type: ignore[no-untyped-def]
    e = np.exp(p - p.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def given_scores(draws: int, s: int = 4, heads: int = 2, seed: int = 0):  # type: ignore[no-untyped-def]
    """Scores, and the covariance (draws, s, s) of attention's outputs given them, for C = 100."""
    p = np.random.default_rng(seed).standard_normal((draws, heads, s, s))
    weights = softmax(p)
    return p, np.einsum("nhij,nhkj->nik", weights, weights) / heads


def over_plane(f, cov, points=601, reach=9.0):  # type: ignore[no-untyped-def]
    """E f(x, y) under N(0, cov) by the trapezoidal rule on a whitened square; exact to rounding for smooth f."""
    t = np.linspace(-reach, reach, points)
    w = np.exp(-(t**2) / 2)
    w /= w.sum()
    factor = np.linalg.cholesky(cov)
    a, b = t[:, None], t[None, :]
    return w @ f(factor[0, 0] * a + 0 * b, factor[1, 0] * a + factor[1, 1] * b) @ w


def test_one_variable_is_exact() -> None:
    p, cov = given_scores(5)
    value, error = tp.load(ATTENTION).limit().given({"p": p}).expectation("tanh(y[i])**2", with_error=True)
    assert value.shape == (5, 4)
    assert error < 1e-12
    for n, i in ((0, 0), (1, 3), (4, 2)):
        v = mpmath.mpf(cov[n, i, i])
        exact = mpmath.quad(lambda x, v=v: mpmath.tanh(mpmath.sqrt(v) * x) ** 2 * mpmath.npdf(x), [-12, -3, 0, 3, 12])
        assert abs(value[n, i] - float(exact)) < 1e-12


PLANE = {
    "product": ("y[0]*y[1]", lambda x, y, p: x * y),
    "bounded product": ("tanh(y[0])*tanh(y[1])", lambda x, y, p: np.tanh(x) * np.tanh(y)),
    "same variable twice": ("y[0]*tanh(y[0]) + y[1]**2", lambda x, y, p: x * np.tanh(x) + y**2),
    "scores outside and inside": (
        "p[0,0,1]*tanh(p[0,0,0]*y[0] + y[1] - p[1,2,3])*cos(y[0])",
        lambda x, y, p: p[0, 0, 1] * np.tanh(p[0, 0, 0] * x + y - p[1, 2, 3]) * np.cos(x),
    ),
    "an index inside": (
        "sum[i](where(i < 2, tanh(y[i])/(i + 1), 0)) * y[0]",
        lambda x, y, p: (np.tanh(x) + np.tanh(y) / 2) * x,
    ),
}


@pytest.mark.parametrize("case", PLANE)
def test_two_variables_agree_with_the_trapezoidal_rule(case: str) -> None:
    text, f = PLANE[case]
    p, cov = given_scores(6, seed=1)
    value, error = tp.load(ATTENTION).limit().given({"p": p}).expectation(text, with_error=True)
    exact = [over_plane(lambda x, y, n=n: f(x, y, p[n]), cov[n, :2, :2]) for n in range(6)]
    assert error < 2e-3
    np.testing.assert_allclose(value, exact, rtol=0, atol=error + 1e-12)
    if case != "an index inside":
        assert error < 1e-5


def test_kinks_and_parameters_that_depend_on_scores() -> None:
    p, cov = given_scores(3, seed=2)
    given = tp.load(ATTENTION).limit().given({"p": p})
    for n in range(3):
        kernel = oracles.arccos_kernel(cov[n, :2, :2])[0, 1]
        assert abs(given.expectation("relu(y[0])*relu(y[1])")[n] - kernel) < 1e-12
    value, error = given.expectation("relu(y[0] - abs(y[1]))", with_error=True)
    exact = [over_plane(lambda x, y: np.maximum(x - abs(y), 0), c[:2, :2], 1601) for c in cov]
    np.testing.assert_allclose(value, exact, rtol=0, atol=error + 1e-6)
    assert error < 1e-3
    value, error = given.expectation("max(p[0,0,0], y[0])", with_error=True)
    sd, level = np.sqrt(cov[:, 0, 0]), p[:, 0, 0, 0]
    closed = [float(m * mpmath.ncdf(m / s) + s * mpmath.npdf(m / s)) for m, s in zip(level, sd, strict=True)]
    np.testing.assert_allclose(value, closed, rtol=0, atol=1e-12)
    assert error < 1e-11


def test_a_maximum_over_members_is_clarks_formula_for_two_and_a_simulation_for_four() -> None:
    p, cov = given_scores(4, s=2, seed=3)
    value, error = tp.load(ATTENTION, s=2).limit().given({"p": p}).expectation("max[i](y[i])", with_error=True)
    spread = cov[:, 0, 0] + cov[:, 1, 1] - 2 * cov[:, 0, 1]
    np.testing.assert_allclose(value, np.sqrt(spread / (2 * np.pi)), rtol=0, atol=error)
    assert 1e-7 < error < 1e-3  # quasi-Monte Carlo: two Gauss-Hermite rules may agree by chance where there are kinks
    p, cov = given_scores(2, seed=4)
    generator = np.random.default_rng(0)
    for text, f in (
        ("max[i](y[i])", lambda y: y.max(axis=1)),
        ("sqrt(1 + mean[i](y[i]**2))", lambda y: np.sqrt(1 + (y**2).mean(axis=1))),
        ("sum[i](softmax[i](y[i])*tanh(y[i]))", lambda y: (softmax(y) * np.tanh(y)).sum(axis=1)),
    ):
        value, error = tp.load(ATTENTION).limit().given({"p": p}).expectation(text, with_error=True)
        for n in range(2):
            drawn = f(generator.multivariate_normal(np.zeros(4), cov[n], 1_000_000, method="cholesky"))
            assert abs(drawn.mean() - value[n]) < 4.9 * drawn.std() / 1000 + error
        assert error < 2e-3


def test_softmax_over_a_free_index() -> None:
    p, cov = given_scores(2, seed=5)
    given = tp.load(ATTENTION).limit().given({"p": p})
    value, error = given.expectation("softmax[i](y[i])", with_error=True)
    assert value.shape == (2, 4)
    np.testing.assert_allclose(value.sum(axis=1), 1, atol=1e-12)
    y = np.random.default_rng(1).multivariate_normal(np.zeros(4), cov[0], 1_000_000, method="cholesky")
    z = (softmax(y).mean(axis=0) - value[0]) / (softmax(y).std(axis=0) / 1000 + error)
    assert np.abs(z).max() < 4.9


def test_one_member_is_one_variable_however_often_it_is_read() -> None:
    """By Stein's lemma: a function of a member beside the member itself, and beside one that an index runs through."""
    p, cov = given_scores(3, seed=6)
    given = tp.load(ATTENTION).limit().given({"p": p})
    value, error = given.expectation("relu(y[i])*y[0]", with_error=True)
    np.testing.assert_allclose(value, cov[:, :, 0] / 2, rtol=0, atol=error + 1e-13)
    value, error = given.expectation("y[0]*y[1]*y[0]**2", with_error=True)
    np.testing.assert_allclose(value, 3 * cov[:, 0, 0] * cov[:, 0, 1], rtol=0, atol=error + 1e-13)
    both = given.expectation("y[0]*tanh(y[0]) + tanh(y[i])"), given.expectation("y[0]*tanh(y[0])")
    np.testing.assert_allclose(both[0], np.broadcast_to(both[1][:, None], (3, 4)), rtol=0, atol=1e-12)


def test_draws_are_the_expectations_given_their_scores() -> None:
    law = tp.load(ATTENTION).limit()
    psi = {"m": "tanh(y[0])**2", "f[i]": "y[i]*o[0,0]", "w": "tanh(u[1])*p[0,0,0]"}
    drawn = law.sample(3000, seed=5, averages=psi)
    assert {name: array.shape for name, array in drawn.averages.items()} == {"m": (3000,), "f": (3000, 4), "w": (3000,)}
    given = law.given({"p": drawn["p"]})
    for key, text in psi.items():
        np.testing.assert_allclose(drawn.averages[key[0]], given.expectation(text), rtol=0, atol=1e-12)
    plain = law.sample(3000, seed=5)
    assert np.array_equal(plain["y"], drawn["y"])
    assert np.array_equal(plain["p"], drawn["p"])
    assert list(drawn) == list(plain)
    assert np.array_equal(law.sample(1500, seed=5, averages=psi).averages["m"], drawn.averages["m"][:1500])
    alone = law.averages({"m": psi["m"]}, 50_000, seed=6)["m"]
    spread = np.hypot(alone.std() / np.sqrt(50_000), drawn.averages["m"].std() / np.sqrt(3000))
    assert abs(alone.mean() - drawn.averages["m"].mean()) < 4.9 * spread
    assert 0 < law.error < 1e-3


@pytest.mark.slow
def test_means_of_averages_are_expectations() -> None:
    law = tp.load(ATTENTION, C=1).limit()
    for text, moment in (("y[i]**2", law.var("y")), ("y[i]**4", law.moment("y", 4))):
        value, error = law.expectation(text, with_error=True)
        assert error.max() < 1e-3
        np.testing.assert_allclose(value, moment, rtol=0, atol=5e-4)
    value, error = law.expectation("y[0]*y[1]", with_error=True)
    known, known_error = law.cov("y", with_error=True)
    assert abs(value - known[0, 1]) < error + known_error[0, 1]
    _, _, y = oracles.attention_draws(400_000, 4, 2, seed=1, c=oracles.clip_moment(1.0))
    value, error = law.expectation("tanh(y[0])**2*max(y[1], y[2])", with_error=True)
    drawn = np.tanh(y[:, 0]) ** 2 * np.maximum(y[:, 1], y[:, 2])
    assert abs(drawn.mean() - value) < 4.9 * drawn.std() / np.sqrt(400_000) + error


def test_without_scores_averages_are_numbers() -> None:
    law = tp.load("mlp", m=2).limit()
    drawn = law.sample(100, averages={"a": "tanh(f[0])**2", "both": "tanh(f[0])*max(f[1], 0.5*f[0])"})
    assert np.ptp(drawn.averages["a"]) == 0
    cov = np.asarray(law.cov("f"))
    exact = over_plane(lambda x, y: np.tanh(x) ** 2 + 0 * y, cov)
    assert abs(drawn.averages["a"][0] - exact) < 1e-10
    exact = over_plane(lambda x, y: np.tanh(x) * np.maximum(y, 0.5 * x), cov, 1601)
    value, error = law.expectation("tanh(f[0])*max(f[1], 0.5*f[0])", with_error=True)
    assert abs(value - exact) < error + 1e-6
    assert abs(drawn.averages["both"][0] - exact) < error + 1e-6
    assert error < 1e-3


CORNER = """
program: corner
indices: {i: 3, j: 3, k: "1..2"}
initial:
  h: {mean: 0.5, cov: 1}
  b[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {Q: 1, K: 1, V: 1}
body:
  - x[i] = Nonlin((1 + 0.5*i) * tanh(b[i]))
  - q[i] = MatMul(Q, x[i])
  - c[j] = MatMul(K, x[j])
  - p[i,j] = Dot(q[i], c[j])
  - o[j] = MatMul(V, x[j])
  - g[i,j] = Nonlin(softmax[j](p[i,j]))
  - y[i] = Nonlin(relu(b[i] + sum[j](g[i,j] * o[j])))
  - z[i] = Nonlin(y[i] + h)
outputs: [z]
"""


def test_offsets_ranges_from_one_nonlinear_outputs_and_initial_vectors_with_means() -> None:
    """Against Definition 1 by hand; brute force over the Gaussians given three draws of the scores."""
    law = tp.Program.from_netsor(loads(CORNER)).limit()  # type: ignore[attr-defined]
    generator = np.random.default_rng(7)
    count = 1_000_000
    b = generator.multivariate_normal(np.zeros(3), 0.5 ** np.abs(np.subtract.outer(range(3), range(3))), count)
    x = (1 + 0.5 * np.arange(3)) * np.tanh(b)
    o = generator.multivariate_normal(np.zeros(3), x.T @ x / count, count)
    h = 0.5 + generator.standard_normal(count)
    p = generator.standard_normal((3, 3, 3))
    given = law.given({"p": p})
    for text, f in (
        ("tanh(z[k] - z[k-1])*g[0,k]", lambda y, z, g: np.tanh(z[:, 1:] - z[:, :2]) * g[0, 1:]),
        ("y[k]**2", lambda y, z, g: y[:, 1:] ** 2),
        ("sin(z[0])*k", lambda y, z, g: np.sin(z[:, :1]) * np.array([1, 2])),
        ("tanh(y[0])*h + k", lambda y, z, g: np.tanh(y[:, :1]) * h[:, None] + np.array([1, 2])),
    ):
        value, error = given.expectation(text, with_error=True)
        assert value.shape == (3, 2)
        assert error < 4e-3
        for n in range(3):
            g = softmax(p[n])
            y = np.maximum(b + o @ g.T, 0)
            drawn = f(y, y + h[:, None], g)
            limit = 4.9 * drawn.std(axis=0) / np.sqrt(count) + error + 2e-3  # o has the second moments of a sample
            assert np.all(np.abs(drawn.mean(axis=0) - value[n]) < limit), (text, n)


LAYER_NORM = """
program: norm
constants: {s: 4, eps: 0.1}
indices: {i: s, j: s}
initial:
  x[i]: {mean: 0, cov: 1}
weights: {Q: 1, K: 1, V: 1}
body:
  - c[i] = Nonlin(clip(x[i], -100, 100))
  - q[i] = MatMul(Q, c[i])
  - k[i] = MatMul(K, c[i])
  - p[i,j] = Dot(q[i], k[j])
  - v[i] = MatMul(V, c[i])
  - y[i] = Nonlin(2 + sum[j](softmax[j](p[i,j]) * v[j]))
  - one = Nonlin(1)
  - m[i] = Dot(y[i], one, scale=1/n)
  - d[i] = Nonlin(y[i] - m[i])
  - s2[i] = Dot(d[i], d[i], scale=1/n)
  - z[i] = Nonlin(d[i] / sqrt(s2[i] + eps))
outputs: [z]
"""


def test_averages_over_score_dependent_vectors_are_functions_of_the_scores() -> None:
    """LayerNorm after one-head attention divides by the variance given the scores, not by its mean."""
    law = Law(loads(LAYER_NORM))
    drawn = law.sample(100_000, seed=1, keep=("m", "s2"))
    v = (softmax(drawn["p"]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(drawn["m"], 2, atol=1e-12)
    np.testing.assert_allclose(drawn["s2"], v, rtol=1e-10)
    variance, error = law.var("z[0]", with_error=True)
    expected = v[:, 0] / (v[:, 0] + 0.1)
    assert abs(variance - expected.mean()) < 4.9 * expected.std() / np.sqrt(100_000) + error
    kurtosis, error = law.kurtosis("z[0]", with_error=True)
    assert abs(kurtosis - 3 * (expected**2).mean() / expected.mean() ** 2) < 2e-3 + error
    assert kurtosis < 3.05
    given = law.given({"p": drawn["p"][:10]})
    np.testing.assert_allclose(given.expectation("s2[i]*z[i]**2"), v[:10] ** 2 / (v[:10] + 0.1), rtol=1e-9)


@pytest.mark.slow
def test_theorem_1_for_attention_at_4096() -> None:
    """The law of (1/n) sum_a tanh(y_a)**2 over networks against that of its limit: mean, deviation and KS."""
    program = tp.load(ATTENTION)
    net = program.run(4096, 4400, seed=1, averages={"m": "tanh(y[0])**2"})
    row = tp.compare(net, program.limit())["m"]
    assert row.mean_se < 0.01 * row.mean / 4.9  # a mistake of one percent would show
    assert abs(row.z_mean) < 4.9
    # given the scores the average still fluctuates, and the scores are Gaussian in the limit only: terms of order 1/n
    assert 0.97 < (row.variance / row.limit_variance) ** 0.5 < 1.1
    assert row.ks_p > 1e-3
    wrong = program.limit().averages({"m": "tanh(1.03*y[0])**2"}, 100_000)["m"]
    assert distances.kolmogorov(net.averages["m"], wrong)["ks_p"] < 1e-3

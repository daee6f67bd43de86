"""Weights used transposed: one matrix serves both ways, exactly, whether it is drawn or not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import tensorprog as tp
from tensorprog.finite.run import run
from tests.reading import loads

Array = NDArray[np.float64]
METHODS = ("dense", "lazy")
THRESHOLD = 4.9  # a two-sided normal exceeds it once in a million

ADJOINT = """
program: adjoint
indices: {{i: 2, j: 2, k: 3}}
widths: {{d: 2*n}}
initial:
  x[i]: {{mean: 0.5, cov: 1}}
  y[j]: {{mean: 0, cov: 1, width: d}}
weights:
  W[k]: {{variance: 1 + k, shape: [d, n]}}
body:
  - {first}
  - {second}
  - a[i,j] = Dot(u[i,j], y[j], scale=1/n)
  - b[i,j] = Dot(x[i], g[i,j], scale=1/n)
outputs: [a, b]
"""


@pytest.mark.parametrize("slot", ["i", "1", "i + j", "2*j"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_the_transpose_is_that_of_the_same_matrix(slot: str, reverse: bool, method: str) -> None:
    """(W x).y = x.(W^T y) in every network, whichever is drawn first."""
    products = [f"u[i,j] = MatMul(W[{slot}], x[i])", f"g[i,j] = MatMul(W[{slot}].T, y[j])"]
    first, second = reversed(products) if reverse else products
    drawn = run(loads(ADJOINT.format(first=first, second=second)), 5, 50, method=method)
    np.testing.assert_allclose(10 * drawn["a"], 5 * drawn["b"], rtol=1e-10, atol=1e-10)
    assert np.unique(drawn["a"]).size == drawn["a"].size


def within(values: Array, expected: float) -> bool:
    """Whether a mean agrees with its exact value, in its own standard errors."""
    return bool(abs(values.mean() - expected) < THRESHOLD * values.std() / math.sqrt(values.size))


@pytest.mark.parametrize("n", [4, 6])
@pytest.mark.parametrize("method", METHODS)
def test_moments_of_a_matrix_times_its_transpose(n: int, method: str) -> None:
    """E (W^T W)^2 = v^2 d (n + d + 1) for W of d rows with entries of variance v: Wishart, d degrees of freedom.

    By Isserlis the entry (a, e) of E (W^T W)^2, the sum of E W_ba W_bc W_fc W_fe over b, c, f, has the pairings
    (ba)(bc) with c = a: d^2; (ba)(fc) with f = b and c = a, which pairs (bc)(fe) too: d; (ba)(fe) with f = b: d n.
    """
    d, sigma2 = n // 2, 1.5
    netsor = loads(f"""
program: tied
widths: {{d: n/2}}
initial:
  x: {{mean: 0, cov: 1}}
weights:
  W: {{variance: {sigma2}, shape: [d, n]}}
body:
  - u = MatMul(W, x)
  - g = MatMul(W.T, u)
  - m = Dot(g, g, scale=1/n)
  - l = Dot(x, g, scale=1/n)
outputs: [m, l]
""")
    drawn = run(netsor, n, 200_000, seed=n, method=method)
    v = sigma2 / n
    assert within(drawn["m"], v**2 * d * (n + d + 1))
    assert not within(drawn["m"], v**2 * d * n)  # of two independent matrices
    assert within(drawn["l"], v * d)


@pytest.mark.parametrize("n", [4, 16])
def test_a_score_of_a_matrix_and_its_transpose_has_a_small_mean(n: int) -> None:
    """E n^-1/2 (W x).(W^T y) = n^-1/2 E y^T W^2 x = sigma^2 n^-1/2 E x.y / n: only W_ii meets itself in W^2."""
    netsor = loads("""
program: score
initial:
  x: {mean: 1, cov: 0.5}
weights: {W: 2}
body:
  - q = MatMul(W, x)
  - k = MatMul(W.T, x)
  - p = Dot(q, k)
outputs: [p]
""")
    assert within(run(netsor, n, 200_000, seed=n)["p"], 2 * 1.5 / math.sqrt(n))


GRADIENT = """
program: gradient
indices: {i: 2}
widths: {d: n/2}
initial:
  x[i]: {mean: 0, cov: 1}
weights:
  W: 1.5
  V: {variance: 2, shape: [d, n]}
body:
  - u[i] = MatMul(W, x[i])
  - h[i] = Nonlin(tanh(u[i]))
  - f[i] = MatMul(V, h[i])
  - b[i] = MatMul(V.T, f[i])
  - e[i] = Nonlin((1 - h[i]**2) * b[i])
  - g[i] = MatMul(W.T, e[i])
  - p = Dot(g[0], x[1])
outputs: [g, f]
"""


def gradient(generator: np.random.Generator, networks: int, n: int) -> dict[str, Array]:
    """The gradient of |f|^2 / 2 with respect to the input, by hand."""
    w = generator.standard_normal((networks, n, n)) * math.sqrt(1.5 / n)
    v = generator.standard_normal((networks, n // 2, n)) * math.sqrt(2 / n)
    x = generator.standard_normal((networks, 2, n))
    h = np.tanh(np.einsum("mrc,mic->mir", w, x))
    f = np.einsum("mrc,mic->mir", v, h)
    e = (1 - h**2) * np.einsum("mrc,mir->mic", v, f)
    g = np.einsum("mrc,mir->mic", w, e)
    return {"g": g[..., 0], "f": f[..., 0], "p": np.einsum("mc,mc->m", g[:, 0], x[:, 1]) / math.sqrt(n)}


@pytest.mark.parametrize("method", METHODS)
def test_a_gradient_step_has_the_law_of_the_one_by_hand(method: str) -> None:
    count, n = 100_000, 4
    ours = run(loads(GRADIENT), n, count, seed=3, method=method)
    theirs = gradient(np.random.default_rng(4), count, n)
    columns = [np.column_stack([of[name].reshape(count, -1) for name in ("g", "f", "p")]) for of in (ours, theirs)]
    for one, two in zip(columns[0].T, columns[1].T, strict=True):
        assert stats.ks_2samp(one, two).pvalue > 1e-6
    products = [np.einsum("ma,mb->mab", c, c).reshape(count, -1) for c in map(np.tanh, columns)]
    for of in (lambda c: c, np.square):
        one, two = (of(c) for c in products)
        error = np.sqrt((one.var(axis=0) + two.var(axis=0)) / count)
        assert (np.abs(one.mean(axis=0) - two.mean(axis=0)) < THRESHOLD * error).all()


def test_what_reads_all_coordinates_is_not_collapsed() -> None:
    with pytest.raises(tp.ProgramError) as caught:
        run(loads(GRADIENT, file="gradient.yaml"), 4, 10, method="collapsed")
    text = str(caught.value)
    assert "b[i] = MatMul(V.T, f[i]) needs all coordinates of its vectors" in text
    assert 'method="lazy"' in text and "gradient.yaml, line 14" in text


def test_a_transposed_weight_that_nobody_reads_changes_nothing() -> None:
    netsor = loads(GRADIENT.replace("outputs: [g, f]", "outputs: [f]").replace("  - p = Dot(g[0], x[1])\n", ""))
    assert run(netsor, 8, 10).method == "collapsed"
    assert run(netsor, 8, 10, keep=["b"]).method == "lazy"


FAMILY = """
program: family
indices: {i: 2, j: 3, k: 2, l: 2}
widths: {d: 2*n}
initial:
  x[i]: {mean: 0.3, cov: 0.5**abs(i-i_)}
weights:
  W[k]: {variance: 1 + k, shape: [d, n]}
body:
  - u[k,i]   = MatMul(W[k], x[i])
  - r[k,i]   = Nonlin(tanh(u[k,i] + u[k,0]))
  - y[k,l,i] = MatMul(W[k].T, r[l,i])
  - z[l,i]   = Nonlin(relu(sum[k](y[k,l,i])) + x[i])
  - v[l,i]   = MatMul(W[l], z[0,i])
  - w[i]     = MatMul(W[1].T, v[0,i])
  - p[i]     = Dot(w[i], x[0], scale=1/n)
  - m[l,i]   = Dot(v[l,i], u[l,0], scale=1/n)
outputs: [y, w, v, p, m]
"""


def test_families_of_weights_both_ways_have_the_law_of_matrices() -> None:
    count = 40_000
    drawn = [run(loads(FAMILY), 4, count, seed=seed, method=method) for seed, method in enumerate(METHODS)]
    columns = [np.column_stack([one[name].reshape(count, -1) for name in one]) for one in drawn]
    for one, two in zip(columns[0].T, columns[1].T, strict=True):
        assert stats.ks_2samp(one, two).pvalue > 1e-7
    products = [np.einsum("ma,mb->mab", c, c).reshape(count, -1) for c in map(np.tanh, columns)]
    one, two = products
    error = np.sqrt((one.var(axis=0) + two.var(axis=0)) / count)
    assert (np.abs(one.mean(axis=0) - two.mean(axis=0)) < 5.5 * error).all()

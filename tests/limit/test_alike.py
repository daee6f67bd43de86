"""Tokens behind scores that have one law are averaged together."""

import numpy as np
import pytest

import tensorprog as tp

RESIDUAL = """
program: residual
constants: {s: 70}
indices: {i: s, j: s}
initial: {"x[i]": {mean: 0, cov: 0.7**abs(i - i_)}}
weights: {Q: 1, K: 1, V: 1}
body:
  - q[i] = MatMul(Q, x[i])
  - k[j] = MatMul(K, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - v[j] = MatMul(V, x[j])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j] * SCALE) * v[j]))
outputs: [y]
"""


def simulated(c, lag, draws):
    """E S(p) C S(p') for two tokens at a lag, p and p' with covariances c(i, m) C."""
    rng = np.random.default_rng(0)
    rows, keys = np.linalg.cholesky(c[[[0], [lag]], [0, lag]] + 1e-13 * np.eye(2)), np.linalg.cholesky(c)
    weights = np.exp(rows @ rng.standard_normal((draws, 2, len(c))) @ keys.T)
    weights /= weights.sum(axis=-1, keepdims=True)
    found = np.einsum("dj,jk,dk->d", weights[:, 0], c, weights[:, 1])
    return found.mean(), found.std() / np.sqrt(draws)


def test_lags_of_stationary_tokens() -> None:
    law = tp.load("attention_correlated", s=70).limit()
    variances = law.var("y")  # whichever is asked for first
    value, error = law.cov("y", with_error=True)
    c = np.asarray(law.second_moment("x"))
    assert np.max(error) < 0.005 * np.max(value)
    assert np.array_equal(value, value.T)
    assert np.array_equal(variances, np.diagonal(value))
    for lag in (0, 1, 4):
        assert np.ptp(np.diagonal(value, lag)) <= 1e-12 * np.max(value)
        truth, deviation = simulated(c, lag, 10_000)
        assert abs(truth - value[0, lag]) < 5 * deviation + error[0, lag]


@pytest.mark.parametrize("scale", [pytest.param("1 + i / s", marks=pytest.mark.slow), "1 + j / s"])
def test_what_depends_on_the_token_besides_is_not_averaged(scale: str, tmp_path) -> None:
    (tmp_path / "p.yaml").write_text(RESIDUAL.replace("SCALE", f"({scale})"), encoding="utf-8")
    value = tp.load(tmp_path / "p.yaml").limit().cov("y")
    same = np.ptp(np.diagonal(value)) <= 1e-12 * np.max(value)
    assert same == (scale == "1 + j / s")

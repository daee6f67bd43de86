"""Functions of attention and of functions of attention before it, layer behind layer, beside dense networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp

Array = NDArray[Any]
Network = Callable[[Array, Callable[[], Array]], Array]
HEAD = """
program: sums
constants: {T: 2, H: 2}
indices: {i: 1..T, j: 1..T, h: 1..H}
initial: {"x[i]": {mean: 0, cov: "where(i == i_, 1, 0.3)"}}
"""
RELU_OF_TWO_HEADS = """
weights: {"Q1[h]": 1, "K1[h]": 1, "V1[h]": 1, "Q2[h]": 1, "K2[h]": 1, "V2[h]": 1}
body:
  - q1[h,i] = MatMul(Q1[h], x[i])
  - k1[h,i] = MatMul(K1[h], x[i])
  - v1[h,i] = MatMul(V1[h], x[i])
  - p1[h,i,j] = Dot(q1[h,i], k1[h,j])
  - y1[i] = Nonlin(relu(x[i] + sum[h,j](softmax[j](p1[h,i,j]) * v1[h,j])))
  - q2[h,i] = MatMul(Q2[h], y1[i])
  - k2[h,i] = MatMul(K2[h], y1[i])
  - v2[h,i] = MatMul(V2[h], y1[i])
  - p2[h,i,j] = Dot(q2[h,i], k2[h,j])
  - y[i] = Nonlin(relu(y1[i] + sum[h,j](softmax[j](p2[h,i,j]) * v2[h,j])))
outputs: [y]
"""
TANH_THREE_TIMES = """
weights: {Q1: 1, K1: 1, V1: 1, Q2: 1, K2: 1, V2: 1, Q3: 1, K3: 1, V3: 1}
body:
  - q1[i] = MatMul(Q1, x[i])
  - k1[i] = MatMul(K1, x[i])
  - v1[i] = MatMul(V1, x[i])
  - p1[i,j] = Dot(q1[i], k1[j])
  - y1[i] = Nonlin(tanh(x[i] + sum[j](softmax[j](p1[i,j]) * v1[j])))
  - q2[i] = MatMul(Q2, y1[i])
  - k2[i] = MatMul(K2, y1[i])
  - v2[i] = MatMul(V2, y1[i])
  - p2[i,j] = Dot(q2[i], k2[j])
  - y2[i] = Nonlin(tanh(y1[i] + sum[j](softmax[j](p2[i,j]) * v2[j])))
  - q3[i] = MatMul(Q3, y2[i])
  - k3[i] = MatMul(K3, y2[i])
  - v3[i] = MatMul(V3, y2[i])
  - p3[i,j] = Dot(q3[i], k3[j])
  - y[i] = Nonlin(tanh(y2[i] + sum[j](softmax[j](p3[i,j]) * v3[j])))
outputs: [y]
"""
DECODER = """
weights: {Q1: 1, K1: 1, V1: 1, Q2: 1, K2: 1, V2: 1, Q3: 1, K3: 1, V3: 1, E: 1, U: 1, D: 1, Q4: 1, K4: 1, V4: 1}
body:
  - q1[i] = MatMul(Q1, x[i])
  - k1[i] = MatMul(K1, x[i])
  - v1[i] = MatMul(V1, x[i])
  - p1[i,j] = Dot(q1[i], k1[j])
  - e[i] = Nonlin(tanh(x[i] + sum[j](softmax[j](p1[i,j]) * v1[j])))
  - z[i] = MatMul(E, x[i])
  - q2[i] = MatMul(Q2, z[i])
  - k2[i] = MatMul(K2, z[i])
  - v2[i] = MatMul(V2, z[i])
  - p2[i,j] = Dot(q2[i], k2[j])
  - d[i] = Nonlin(relu(z[i] + sum[j](softmax[j](where(j <= i, p2[i,j], -inf)) * v2[j])))
  - q3[i] = MatMul(Q3, d[i])
  - k3[i] = MatMul(K3, e[i])
  - v3[i] = MatMul(V3, e[i])
  - p3[i,j] = Dot(q3[i], k3[j])
  - c[i] = Nonlin(tanh(d[i] + sum[j](softmax[j](p3[i,j]) * v3[j])))
  - u[i] = MatMul(U, c[i])
  - r[i] = Nonlin(relu(u[i]))
  - m[i] = MatMul(D, r[i])
  - g[i] = Nonlin(c[i] + m[i])
  - q4[i] = MatMul(Q4, g[i])
  - k4[i] = MatMul(K4, g[i])
  - v4[i] = MatMul(V4, g[i])
  - p4[i,j] = Dot(q4[i], k4[j])
  - y[i] = Nonlin(sum[j](softmax[j](p4[i,j]) * v4[j]))
outputs: [y]
"""


def attention(x: Array, other: Array, weight: Callable[[], Array], causal: bool = False) -> Array:
    scores = (x @ weight()) @ (other @ weight()).T / np.sqrt(x.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = np.tril(weights) if causal else weights
    return np.asarray(weights / weights.sum(axis=1, keepdims=True) @ (other @ weight()))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def two_heads(x: Array, weight: Callable[[], Array]) -> Array:
    for _ in range(2):
        x = relu(x + attention(x, x, weight) + attention(x, x, weight))
    return x


def three_times(x: Array, weight: Callable[[], Array]) -> Array:
    for _ in range(3):
        x = np.tanh(x + attention(x, x, weight))
    return x


def decoder(x: Array, weight: Callable[[], Array]) -> Array:
    e, z = np.tanh(x + attention(x, x, weight)), x @ weight()
    d = relu(z + attention(z, z, weight, causal=True))
    c = np.tanh(d + attention(d, e, weight))
    g = c + relu(c @ weight()) @ weight()
    return attention(g, g, weight)


def dense(network: Network, n: int, networks: int, rng: np.random.Generator) -> Array:
    """E[y1^2], E[y2^2], E[y1 y2], E[y1] and E[y2] over the coordinates of dense networks, a row each."""
    root = np.linalg.cholesky(np.array([[1, 0.3], [0.3, 1]]))
    found = []
    for _ in range(networks):
        y = network(root @ rng.standard_normal((2, n)), lambda: rng.standard_normal((n, n)) / np.sqrt(n))
        found.append([*np.mean(y * y, axis=1), np.mean(y[0] * y[1]), *y.mean(axis=1)])
    return np.array(found)


def reached(network: Network, rng: np.random.Generator) -> tuple[Array, Array]:
    """The same extrapolated to infinite width, and standard errors."""
    small, large = dense(network, 64, 3000, rng), dense(network, 128, 2500, rng)
    error = np.hypot(2 * large.std(axis=0) / np.sqrt(len(large)), small.std(axis=0) / np.sqrt(len(small)))
    return 2 * large.mean(axis=0) - small.mean(axis=0), error


@pytest.mark.slow
@pytest.mark.parametrize(("body", "network"), [
    (RELU_OF_TWO_HEADS, two_heads), (TANH_THREE_TIMES, three_times), (DECODER, decoder)
])  # fmt: skip
def test_functions_of_sums_before_more_scores_beside_dense_networks(
    body: str, network: Network, tmp_path: Path
) -> None:
    path = tmp_path / "sums.yaml"
    path.write_text(HEAD + body)
    law = tp.load(path).limit()
    cov, wrong = law.cov("y", with_error=True)
    mean, off = law.mean("y", with_error=True)
    second = cov + np.multiply.outer(mean, mean)
    wrong = wrong + 2 * np.abs(mean).max() * off.max()
    limit = np.array([second[0, 0], second[1, 1], second[0, 1], *mean])
    mine = np.array([wrong[0, 0], wrong[1, 1], wrong[0, 1], *off])
    found, error = reached(network, np.random.default_rng(5))
    assert np.all(mine < 0.1 * np.sqrt(max(second[0, 0], second[1, 1]))), mine
    assert np.all(np.abs(found - limit) < 4 * error + mine), (limit, mine, found, error)

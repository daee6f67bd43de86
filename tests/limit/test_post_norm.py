"""Post-norm encoders with their layers written out one by one, beside dense networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp

Array = NDArray[Any]
POST_NORM = """
program: postnorm
constants: {T: 2}
indices: {i: 1..T, j: 1..T}
initial: {"x[i]": {mean: 0, cov: "where(i == i_, 1, 0)"}}
weights: {Q1: 1, K1: 1, V1: 1, U1: 1, D1: 1, Q2: 1, K2: 1, V2: 1, U2: 1, D2: 1}
body:
  - q1[i] = MatMul(Q1, x[i])
  - k1[i] = MatMul(K1, x[i])
  - v1[i] = MatMul(V1, x[i])
  - p1[i,j] = Dot(q1[i], k1[j])
  - a[i] = Nonlin(x[i] + sum[j](softmax[j](p1[i,j]) * v1[j]))
  - ma[i] = Dot(a[i], a[i], scale=1/n)
  - b[i] = Nonlin(a[i] / sqrt(ma[i] + 0.1))
  - u[i] = MatMul(U1, b[i])
  - r[i] = Nonlin(relu(u[i]))
  - d[i] = MatMul(D1, r[i])
  - e[i] = Nonlin(b[i] + d[i])
  - me[i] = Dot(e[i], e[i], scale=1/n)
  - z[i] = Nonlin(e[i] / sqrt(me[i] + 0.1))
  - q2[i] = MatMul(Q2, z[i])
  - k2[i] = MatMul(K2, z[i])
  - v2[i] = MatMul(V2, z[i])
  - p2[i,j] = Dot(q2[i], k2[j])
  - y[i] = Nonlin(z[i] + sum[j](softmax[j](p2[i,j]) * v2[j]))
outputs: [y]
"""


def normalised(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 0.1))


def dense(n: int, networks: int, rng: np.random.Generator) -> Array:
    """Mean variance and covariance of the two outputs of dense networks, a row each."""

    def weight() -> Array:
        return np.asarray(rng.standard_normal((n, n)) / np.sqrt(n))

    def attended(x: Array) -> Array:
        scores = (x @ weight()) @ (x @ weight()).T / np.sqrt(n)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(x + weights / weights.sum(axis=1, keepdims=True) @ (x @ weight()))

    found = []
    for _ in range(networks):
        b = normalised(attended(rng.standard_normal((2, n))))
        y = attended(normalised(b + np.maximum(b @ weight(), 0) @ weight()))
        gram = y @ y.T / n
        found.append([(gram[0, 0] + gram[1, 1]) / 2, gram[0, 1]])
    return np.array(found)


def test_two_post_norm_layers_beside_dense_networks_extrapolated(tmp_path: Path) -> None:
    path = tmp_path / "postnorm.yaml"
    path.write_text(POST_NORM)
    cov = tp.load(path).limit().cov("y")
    rng = np.random.default_rng(3)
    small, large = dense(32, 3000, rng), dense(64, 2000, rng)
    reached = 2 * large.mean(axis=0) - small.mean(axis=0)
    error = np.hypot(2 * large.std(axis=0) / np.sqrt(len(large)), small.std(axis=0) / np.sqrt(len(small)))
    limit = np.array([(cov[0, 0] + cov[1, 1]) / 2, cov[0, 1]])
    assert np.all(np.abs(reached - limit) < 4 * error), (limit, reached, error)

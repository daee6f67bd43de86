"""Smooth functions of a vector and of the attention it gets, before more layers of scores, beside dense networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp

Array = NDArray[Any]
TEXT = """
program: two
constants: {S: 2, H: 2}
indices: {i: S, j: S, a: H}
initial: {"x[i]": {mean: 0, cov: "0.3 + 0.7*where(i == i_, 1, 0)"}}
weights:
  Q1[a]: 1
  K1[a]: 1
  V1[a]: 1
  Q2[a]: 1
  K2[a]: 2
  V2[a]: 1
  O: 1
body:
  - q[a,i] = MatMul(Q1[a], x[i])
  - k[a,i] = MatMul(K1[a], x[i])
  - v[a,i] = MatMul(V1[a], x[i])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - y[i] = Nonlin(tanh(x[i] + sum[a,j](softmax[j](p[a,i,j]) * v[a,j])))
  - q2[a,i] = MatMul(Q2[a], y[i])
  - k2[a,i] = MatMul(K2[a], y[i])
  - v2[a,i] = MatMul(V2[a], y[i])
  - p2[a,i,j] = Dot(q2[a,i], k2[a,j])
  - z[i] = Nonlin(tanh(y[i] + sum[a,j](softmax[j](p2[a,i,j]) * v2[a,j])))
  - o[i] = MatMul(O, z[i])
outputs: [o]
"""


def dense(n: int, networks: int, rng: np.random.Generator) -> Array:
    """Mean square and mean product of the coordinates of the two tokens behind both layers, a row for each network."""

    def layer(x: Array, scale: float) -> Array:
        total = x.copy()
        for _ in range(2):
            q, k, v = (rng.standard_normal((n, n)) / np.sqrt(n) for _ in range(3))
            scores = (x @ q) @ (x @ k).T * np.sqrt(scale / n)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            total += weights / weights.sum(axis=1, keepdims=True) @ (x @ v)
        return np.tanh(total)

    found = []
    for _ in range(networks):
        x = np.linalg.cholesky([[1, 0.3], [0.3, 1]]) @ rng.standard_normal((2, n))
        z = layer(layer(x, 1.0), 2.0)
        gram = z @ z.T / n
        found.append([(gram[0, 0] + gram[1, 1]) / 2, gram[0, 1]])
    return np.array(found)


@pytest.mark.slow
def test_two_layers_of_tanh_beside_dense_networks_extrapolated(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TEXT)
    law = tp.load(path).limit(accuracy=1e-3)
    cov = law.cov("o")
    rng = np.random.default_rng(11)
    small, large = dense(48, 6000, rng), dense(96, 4000, rng)
    reached = 2 * large.mean(axis=0) - small.mean(axis=0)
    error = np.hypot(2 * large.std(axis=0) / np.sqrt(len(large)), small.std(axis=0) / np.sqrt(len(small)))
    limit = np.array([(cov[0, 0] + cov[1, 1]) / 2, cov[0, 1]])
    assert np.all(error < 0.01 * limit)
    assert np.all(np.abs(reached - limit) < 4.9 * error + 1e-3), (limit, reached, error)

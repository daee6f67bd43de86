"""Functions that read an average or a score beside vectors, against quadrature of their own."""

from __future__ import annotations

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.integrate import quad

from tensorprog import Program
from tests.reading import loads

NODES, WEIGHTS = hermegauss(200)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
HEAD = """
program: numbers
constants: {s: 3}
indices: {i: s, j: s}
initial: {h: {cov: 1}}
weights: {"W[i]": 1, Q: 1, K: 1, R: 1}
body:
  - u[i] = MatMul(W[i], h)
"""


def _clipped(scale: float) -> float:
    """E clip(scale Z, -2, 2)**2."""
    edge = 2 / scale
    found = quad(lambda z: np.clip(scale * z, -2, 2) ** 2 * np.exp(-z * z / 2), -12, 12, points=[-edge, edge])
    return found[0] / np.sqrt(2 * np.pi)


def test_an_average_that_is_the_same_for_all_members() -> None:
    law = Program.from_netsor(
        loads(
            HEAD
            + """
  - m[i] = Dot(u[i], u[i], scale=1/n)
  - x[i] = Nonlin(clip(u[i] / sqrt(m[i] + 0.01), -2, 2))
  - q[i] = MatMul(Q, x[i])
  - k[j] = MatMul(K, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - y[i] = Nonlin(sum[j](tanh(p[i,j]) * x[j]))
outputs: [y, p]
"""
        )
    ).limit()
    variance, error = law.var("p", with_error=True)
    assert np.all(np.abs(variance - _clipped(1.01**-0.5) ** 2) <= error + 1e-9)


def test_a_score_inside_a_function_behind_which_a_weight_stands() -> None:
    law = Program.from_netsor(
        loads(
            HEAD
            + """
  - x[i] = Nonlin(clip(u[i], -2, 2))
  - q = MatMul(Q, x[0])
  - k = MatMul(K, x[1])
  - p = Dot(q, k)
  - z = Nonlin(tanh(tanh(p) * u[1]))
  - y = MatMul(R, z)
outputs: [y]
"""
        )
    ).limit()
    deviation = _clipped(1.0)
    squares = [WEIGHTS @ np.tanh(np.tanh(deviation * p) * NODES) ** 2 for p in NODES]
    value, error = law.var("y", with_error=True)
    assert abs(value - WEIGHTS @ np.array(squares)) <= error + 1e-9

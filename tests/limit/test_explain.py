"""What `explain` says of variables behind layers of scores, or over widths that stay finite."""

from __future__ import annotations

import pytest

from tensorprog import Law
from tensorprog.limit.law import conditional_moments as averaging
from tensorprog.limit.law.summary import explain
from tests.reading import loads

DEEP = """
program: deep
constants: {s: 2}
indices: {i: s, j: s, t: 1..2}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights:
  Q[t]: 1
  K[t]: 1
  V[t]: 1
  W[t]: 1
body:
  - x[0,i]   = Nonlin(h[i])
  - q[t,i]   = MatMul(Q[t], x[t - 1,i])
  - k[t,j]   = MatMul(K[t], x[t - 1,j])
  - p[t,i,j] = Dot(q[t,i], k[t,j])
  - v[t,j]   = MatMul(V[t], x[t - 1,j])
  - z[t,i]   = Nonlin(x[t - 1,i] + sum[j](softmax[j](p[t,i,j]) * v[t,j]))
  - u[t,i]   = MatMul(W[t], z[t,i])
  - x[t,i]   = Nonlin(relu(u[t,i]))
  - y[i]     = Nonlin(x[2,i])
outputs: [y]
"""
HEAD = """
program: head
constants: {s: 2, D: 4}
indices: {i: s, j: s}
fixed_widths: {d: D}
initial:
  x[i]: {mean: 0, cov: 1}
weights:
  Q: {variance: 1, shape: [d, n]}
  K: {variance: 1, shape: [d, n]}
  V: {variance: 1, shape: [d, n]}
  O: {variance: 1, shape: [n, d]}
body:
  - q[i]   = MatMul(Q, x[i])
  - k[j]   = MatMul(K, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - v[j]   = MatMul(V, x[j])
  - o[j]   = MatMul(O, v[j])
  - y[i]   = Nonlin(sum[j](softmax[j](p[i,j]) * o[j]))
outputs: [y]
"""
CASES = [
    (DEEP, "p[2,0,1]", ["(iv)", "given the draws of p upstream", "this covariance is random", "variance", "kurtosis"]),
    (DEEP, "p", ["(iv)", "this covariance is random", "averages over draws", "variance"]),
    (DEEP, "q[2,0]", ["(ii)", "this covariance is random", "kurtosis"]),
    (DEEP, "h", ["(i)", "variance"]),
    (HEAD, "q[0]", ["(ii)", "of width 4, which stays finite"]),
    (HEAD, "p[0,1]", ["exact: a sum over 4 coordinates", "given the draws of k, q upstream", "kurtosis  4."]),
    (HEAD, "y[0]", ["(iii)", "given the draws of k, p, q, v upstream; the numbers are averages over draws"]),
    (HEAD, "o[0]", ["(ii)", "given the draws of v upstream, this covariance is random"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "name", "phrases"), CASES, ids=[name for _, name, _ in CASES])
def test_what_is_random_is_said(text: str, name: str, phrases: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averaging, "AIM", 0.02)
    found = explain(Law(loads(text)), name)
    for phrase in phrases:
        assert phrase in found, found


def test_a_score_of_the_first_layer_alone_is_gaussian_with_a_known_covariance() -> None:
    single = DEEP.replace("t: 1..2", "t: 1..1").replace("x[2,i]", "x[1,i]")
    assert "kurtosis  3 " in explain(Law(loads(single)), "p[1,0,1]")

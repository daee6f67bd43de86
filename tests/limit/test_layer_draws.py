"""Scores and layers by hand: covariances of scores, layers given all scores, averages and draws behind layers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

import tensorprog as tp
from tensorprog import Law
from tensorprog.limit.draw.draws import Draws
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tests.reading import loads
from tests.stated import STATED

from . import oracles

Array = NDArray[np.float64]
# heads that share keys, weights on either side of a score, operands of two lengths, indices that do not start at 0
TWO = """
program: two
indices: {i: "1..3", j: "1..3", c: "2..3", a: 2, b: 2}
initial:
  x[i]: {mean: 0, cov: "0.5**abs(i - i_) + 0.3*i*i_"}
  e[c]: {mean: 0, cov: "0.4**abs(c - c_)"}
weights: {"Q1[a]": "0.7 + 0.2*a", K1: 1.3, "V1[a]": 0.9, "S[a]": 1.1, K2: 0.6, U: 1, "N[b]": "0.5 + 0.25*b"}
body:
  - q1[a,i]   = MatMul(Q1[a], x[i])
  - k1[j]     = MatMul(K1, x[j])
  - f[c]      = Nonlin(e[c] + x[c] / 2)
  - l1[c]     = MatMul(K1, f[c])
  - p1[a,i,j] = Dot(q1[a,i], k1[j])
  - r1[i,c]   = Dot(l1[c], q1[1,i])
  - n1[b,i]   = MatMul(N[b], x[i])
  - g1[a,b,i] = Dot(q1[a,i], n1[b,i])
  - v1[a,j]   = MatMul(V1[a], x[j])
  - o1[i]     = Nonlin(sum[a,j](softmax[j](p1[a,i,j]) * v1[a,j]) + sum[c](tanh(r1[i,c])) * v1[0,i])
  - x1[i]     = Nonlin(x[i] + o1[i] + mean[a,b](g1[a,b,i]) * v1[1,i])
  - z[i]      = Nonlin(relu(x1[i]))
  - s[a,i]    = MatMul(S[a], z[i])
  - k2[j]     = MatMul(K2, x1[j])
  - t[i,j]    = Dot(s[1,i], s[0,j])
  - m[i,j]    = Dot(s[0,i], s[1,j])
  - p2[a,i,j] = Dot(k2[j], s[a,i])
  - w[i]      = MatMul(U, z[i])
  - y[i]      = Nonlin(w[i] + sum[a,j](p2[a,i,j] * x1[j]) + sum[j]((t[i,j] + m[i,j]) * x1[j]))
outputs: [y]
"""


def _first_covariance() -> Array:
    """Of p1[a,i,j], r1[i,c] and g1[a,b,i] together, written by hand."""
    i, c = np.arange(1, 4), np.arange(2, 4)
    x = 0.5 ** abs(i[:, None] - i) + 0.3 * i[:, None] * i
    e = 0.4 ** abs(c[:, None] - c)
    q, n, k = np.diag([0.7, 0.9]), np.diag([0.5, 0.75]), 1.3  # variances of the weights
    heads = k * np.einsum("ab,ik,jl->aijbkl", q, x, x).reshape(18, 18)
    some = x[:, 1:] / 2  # of k1[j] and l1[c]
    rest = k * 0.9 * np.einsum("ik,cd->ickd", x, e + x[1:, 1:] / 4).reshape(6, 6)
    shared = k * np.einsum("a,ik,jc->aijkc", q[1], x, some).reshape(18, 6)
    pairs = np.einsum("ac,bd,ik->abicdk", q, n, x * x).reshape(12, 12)
    return np.asarray(block_diag(np.block([[heads, shared], [shared.T, rest]]), pairs))


LOOP = """
program: loop
indices: {i: 2, j: 2, t: "1..2"}
initial:
  x[i]: {mean: 0, cov: "0.5**abs(i - i_)"}
weights: {"Q[t]": 1.3, "K[t]": 1, "V[t]": 0.6, "W[t]": 0.8}
body:
  - h[0,i]   = Nonlin(x[i])
  - q[t,i]   = MatMul(Q[t], h[t-1,i])
  - k[t,j]   = MatMul(K[t], h[t-1,j])
  - p[t,i,j] = Dot(q[t,i], k[t,j])
  - v[t,j]   = MatMul(V[t], h[t-1,j])
  - z[t,i]   = Nonlin(h[t-1,i] + sum[j](softmax[j](p[t,i,j]) * v[t,j]))
  - u[t,i]   = MatMul(W[t], z[t,i])
  - h[t,i]   = Nonlin(relu(u[t,i]))
outputs: [h]
"""


def test_scores_of_the_first_layer_have_the_covariance_of_clause_iv() -> None:
    law = Law(loads(TWO))
    sizes = {"p1": 18, "r1": 6, "g1": 12}
    found = np.block([[np.asarray(law.cov(f, g)).reshape(m, n) for g, n in sizes.items()] for f, m in sizes.items()])
    np.testing.assert_allclose(found, _first_covariance(), rtol=0, atol=1e-11)


def test_layers_of_a_recurrence_given_scores() -> None:
    p = np.random.default_rng(3).standard_normal((3, 2, 2, 2))
    soft = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)
    given = Law(loads(LOOP.replace("[h]", "[h, u]"))).given({"p": p})
    k = np.broadcast_to(0.5 ** abs(np.subtract.outer(np.arange(2), np.arange(2))), (3, 2, 2))
    for t in range(2):
        mixed = 0.8 * (k + 0.6 * soft[:, t] @ k @ np.swapaxes(soft[:, t], 1, 2))
        np.testing.assert_allclose(given.cov("u")[:, t, :, t], mixed, rtol=1e-10)
        k = np.stack([oracles.arccos_kernel(each) for each in mixed])


def test_cells_that_depend_on_scores_have_their_moments_given_scores() -> None:
    """With p = 0 attention is the mean over tokens, and h[t] = relu(h[t-1] + mean(v[t])): a million draws by hand."""
    text = LOOP.replace("  - u[t,i]   = MatMul(W[t], z[t,i])\n", "").replace("relu(u[t,i])", "relu(z[t,i])")
    value, error = Law(loads(text)).given({"p": np.zeros((2, 2, 2))}).expectation("h[2,0]**2", with_error=True)
    rng = np.random.default_rng(5)
    h = rng.standard_normal((1_000_000, 2)) @ np.linalg.cholesky(np.array([[1, 0.5], [0.5, 1]])).T
    for _ in range(2):
        attention = math.sqrt(0.6 * np.mean(h @ [0.5, 0.5] * (h @ [0.5, 0.5]))) * rng.standard_normal((len(h), 1))
        h = np.maximum(h + attention, 0)
    squares = h[:, 0] ** 2
    assert abs(value - squares.mean()) < STATED * 2 * squares.std() / 1000 + error and error < 0.02 * value


def test_errors_of_averages_drawn_behind_layers_are_remembered() -> None:
    law = Law(loads(TWO))
    averages = law.averages({"a": "tanh(y[1])**2"}, 4)["a"]
    assert np.all((averages > 0) & (averages < 1))
    assert 0 < law.error < 1e-3


def test_draws_behind_layers_do_not_depend_on_how_many_there_are() -> None:
    """The blocks that are worked on together are the same however many draws are asked for."""
    law = tp.load("deep_attention", s=2, H=1).limit()
    many = law.sample(9000, seed=3)["y"]
    for size in (1, 1500, 5000):
        assert np.array_equal(law.sample(size, seed=3)["y"], many[:size])


MANY = """
program: many
indices: {a: 6, b: 9, i: 2, c: 3, d: 2}
initial: {"x[b,i]": {mean: 0, cov: "0.5**abs(i - i_)"}, e: {mean: 0, cov: 2}}
weights: {"Q[a]": 1, "K[a]": "1 + a"}
body:
  - l[a]     = MatMul(K[a], e)
  - q[a,i]   = MatMul(Q[a], x[a,i])
  - k[a,i]   = MatMul(K[a], x[a,i])
  - m[a,c]   = MatMul(Q[a], x[a + c,0])
  - w[d]     = MatMul(Q[d], x[d + 1,0])
  - p[a,i]   = Dot(q[a,i], k[a,i])
  - r[a,c]   = Dot(m[a,c], l[a])
  - t[d]     = Dot(w[d], l[d])
  - y[a]     = Nonlin(sum[i](tanh(p[a,i]) * x[a,i]) + sum[c](r[a,c] * x[a,0]) + sum[d](t[d]) * x[a,0])
outputs: [y]
"""


def test_weight_members_that_read_the_same_covariances_share_a_factor() -> None:
    recursion = NumericRecursion(loads(MANY))
    draws = Draws(recursion, ["p", "r", "t"])
    given = draws.at(np.zeros((1, draws.dim)))
    for weight, stop, kinds in (("Q", 6, 2), ("Q", 5, 1), ("K", 3, 6)):
        members = np.arange(6)
        own, kind = given._kinds(weight, members, stop, operands=True)
        each = [given._covariances(weight, member, stop, True)[0] for member in members]
        assert len(own) == kinds
        for member in members:
            np.testing.assert_array_equal(each[own[kind[member]]], each[member])

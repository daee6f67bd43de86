"""Draws of layers as exact functions of their normals: to rounding, where comparisons of samples would be blunt.

Given the layers before, scores are linear in normals of their own, so that the squares of their values at unit vectors
of these normals add up to their covariance.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

import tensorprog as tp
from tensorprog import Law
from tensorprog.limit.draw.conditioned import Conditioned
from tensorprog.limit.draw.draws import Draws
from tensorprog.limit.draw.normals import Points
from tensorprog.limit.moment.compilable import bases_of
from tensorprog.limit.moment.values import REPLICATE
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
FIRST, SECOND = ("p1", "r1", "g1"), ("t", "m", "p2")


def _values(found: Conditioned, names: tuple[str, ...]) -> Array:
    """Scores of every draw, one beside the other: (draws, members of all)."""
    shapes = [found.netsor.families[name].shape for name in names]
    arrays = []
    for name, shape in zip(names, shapes, strict=True):
        value = found.average(name)
        axes = (REPLICATE, *map(str, range(len(shape))))
        arrays.append(np.broadcast_to(value.aligned(axes).value, (found.normals.draws, *shape)))
    return np.concatenate([a.reshape(len(a), -1) for a in arrays], axis=1)


def _squares(drawn: Array) -> Array:
    """Sums over unit vectors of products of values."""
    return np.asarray(drawn.T @ drawn)


def _between(found: Conditioned, names: tuple[str, ...]) -> Array:
    """Covariances of scores given the layers before, of the first draw."""
    sizes = [math.prod(found.netsor.families[name].shape) for name in names]
    return np.block([[found.covariances(f, g)[0].reshape(m, n) for g, n in zip(names, sizes, strict=True)]
                     for f, m in zip(names, sizes, strict=True)])  # fmt: skip


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


def test_scores_are_linear_in_their_normals_with_the_covariance_of_clause_iv() -> None:
    law = Law(loads(TWO))
    layers = Draws(law.recursion, (*FIRST, *SECOND))
    at = np.cumsum([0, *(math.prod(shape) for _, shape in layers.sources)])
    second = np.concatenate([np.arange(a, b) for a, b, (key, _) in zip(at[:-1], at[1:], layers.sources, strict=True)
                             if key[1:] not in (("K1", "Q1"), ("N", "Q1"))])  # fmt: skip
    first = np.setdiff1d(np.arange(layers.dim), second)
    units = np.zeros((len(first), layers.dim))
    units[np.arange(len(first)), first] = 1
    np.testing.assert_allclose(_squares(_values(layers.at(units), FIRST)), _first_covariance(), rtol=0, atol=1e-12)
    # the second layer at one draw of the first
    units = np.zeros((len(second), layers.dim))
    units[:, first] = np.random.default_rng(0).standard_normal(len(first))
    units[np.arange(len(second)), second] = 1
    found = layers.at(units)
    expected = _between(found, SECOND)
    np.testing.assert_allclose(_squares(_values(found, SECOND)), expected, rtol=0, atol=1e-11 * expected.max())


def test_clause_iv_given_the_first_layer_by_hand() -> None:
    """Covariances of the second layer's scores from those of x1 and of its relu, given those of the first."""
    law = Law(loads(TWO))
    drawn = law.sample(2, seed=3, keep=FIRST)
    given = law.given({name: drawn[name] for name in FIRST} | {name: np.zeros((2, *law.compiled.families[name].shape))
                                                               for name in SECOND})  # fmt: skip
    found = next(given._parts(law.recursion))
    x1, z = found.covariances("x1", "x1"), np.asarray(found.replicated("z", "z").dense(
        (REPLICATE, "0", "0_")).value)  # fmt: skip
    i = np.arange(1, 4)
    x = 0.5 ** abs(i[:, None] - i) + 0.3 * i[:, None] * i
    soft = np.exp(drawn["p1"]) / np.exp(drawn["p1"]).sum(axis=-1, keepdims=True)
    soft[:, 0] += np.tanh(drawn["r1"]).sum(axis=-1)[:, :, None] * np.eye(3)
    soft[:, 1] += drawn["g1"].mean(axis=(1, 2))[:, :, None] * np.eye(3)
    np.testing.assert_allclose(x1, x + 0.9 * np.einsum("naij,jl,nakl->nik", soft, x, soft), rtol=1e-12)
    np.testing.assert_allclose(
        found.covariances("p2", "p2"), 0.6 * 1.1 * np.einsum("ab,nik,njl->naijbkl", np.eye(2), z, x1), rtol=1e-11
    )
    np.testing.assert_allclose(found.covariances("t", "m"), 1.1**2 * np.einsum("nil,njk->nijkl", z, z), rtol=1e-11)


FIXED = """
program: fixed
fixed_widths: {d: 3}
indices: {i: "1..2", j: "1..2", a: 2}
initial:
  x[i]: {mean: 0, cov: "0.5**abs(i - i_) * i * i_"}
  e: {mean: 0.7, cov: 1.5}
weights:
  WQ[a]: {variance: 0.8, shape: [d, n]}
  WK: {variance: 1.7, shape: [d, n]}
  WO[a]: {variance: 1.2, shape: [n, d]}
  W: 0.9
body:
  - q[a,i]   = MatMul(WQ[a], x[i])
  - k[j]     = MatMul(WK, x[j])
  - p[a,i,j] = Dot(q[a,i], k[j])
  - r[a,i]   = Nonlin(tanh(q[a,i]))
  - m[i,j]   = Dot(r[0,i], q[1,j], scale=1/n)
  - o[a,i]   = MatMul(WO[a], r[a,i])
  - u[i]     = MatMul(W, x[i])
  - y[i]     = Nonlin(sum[a](p[a,i,2] * o[a,i]) + relu(u[i]) + tanh(e) + m[i,1])
outputs: [y]
"""


def test_finite_widths_are_the_program_on_coordinates() -> None:
    law = Law(loads(FIXED))
    recursion = law.recursion
    parts = recursion.parts.of("y")
    gaussian = [part for part in parts if recursion.parts.gaussian(part)]
    others = [part for part in parts if not recursion.parts.gaussian(part)]
    layers = Draws(recursion, ("y", "p"), bases_of(others))
    points = np.random.default_rng(1).standard_normal((4, layers.dim))
    normals, found = Points(layers.sources, points), layers.at(points)
    i = np.arange(1, 3)
    x = 0.5 ** abs(i[:, None] - i) * i[:, None] * i
    root = np.linalg.cholesky(x)
    q = math.sqrt(0.8) * root @ normals.of(("weight", "WQ"), np.arange(2))
    k = math.sqrt(1.7) * root @ normals.of(("weight", "WK"), np.arange(1))
    u = math.sqrt(0.9) * root @ normals.of(("weight", "W"), np.arange(1))[:, 0]
    e = 0.7 + math.sqrt(1.5) * normals.of(("initial", "e"), np.arange(1)).reshape(4, 1)
    p, r = q @ np.swapaxes(k, -1, -2) / math.sqrt(3), np.tanh(q)
    m = np.einsum("nic,njc->nij", r[:, 0], q[:, 1]) / 3
    np.testing.assert_allclose(_values(found, ("p", "m")), np.concatenate([p.reshape(4, -1), m.reshape(4, -1)], axis=1),
                               rtol=1e-12)  # fmt: skip
    box = ((1, 3),)
    mean, variance = found.halves(gaussian, others, "y", box)
    np.testing.assert_allclose(mean, np.maximum(u[..., 0], 0) + np.tanh(e) + m[:, :, 0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(variance, 1.2 * np.einsum("nai,naic->ni", p[..., 1] ** 2, r**2) / 3, rtol=1e-12)


STEPS = """
program: steps
fixed_widths: {d: 3}
indices: {t: "1..3"}
initial:
  h: {mean: 0.3, cov: 0.8}
weights:
  A: {variance: 1, shape: [d, n]}
  W: {variance: 1.3, shape: [d, d]}
body:
  - g    = MatMul(A, h)
  - s[0] = Nonlin(g)
  - u[t] = MatMul(W, s[t-1])
  - s[t] = Nonlin(tanh(u[t]))
  - m[t] = Dot(s[t], s[t-1], scale=1/n)
outputs: [m]
"""


def test_a_finite_width_along_a_recurrence() -> None:
    """u[t] is a product with one matrix: rows of a factor of the Gram matrix of s[0..t-1], which grows."""
    law = Law(loads(STEPS))
    layers = Draws(law.recursion, ("m",))
    points = np.random.default_rng(2).standard_normal((5, layers.dim))
    normals, found = Points(layers.sources, points), layers.at(points)
    states = [math.sqrt(0.8 + 0.3**2) * normals.of(("weight", "A"), np.arange(1))[:, 0, 0]]
    block = normals.of(("weight", "W"), np.arange(1))[:, 0]
    for t in range(3):
        s = np.stack(states, axis=1)
        root = np.linalg.cholesky(1.3 * s @ np.swapaxes(s, 1, 2) / 3)
        states.append(np.tanh(np.einsum("nk,nkc->nc", root[:, t], block[:, : t + 1])))
    expected = np.stack([(a * b).mean(axis=-1) for a, b in zip(states[1:], states, strict=False)], axis=1)
    np.testing.assert_allclose(_values(found, ("m",)), expected, rtol=1e-10)


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


def test_layers_of_a_recurrence_given_scores() -> None:
    law = Law(loads(LOOP))
    p = np.random.default_rng(3).standard_normal((3, 2, 2, 2))
    soft = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)
    found = next(law.given({"p": p})._parts(law.recursion))
    k = np.broadcast_to(0.5 ** abs(np.subtract.outer(np.arange(2), np.arange(2))), (3, 2, 2))
    for t in range(2):
        first = 1.3 * np.einsum("nik,njl->nijkl", k, k)
        box = ((t + 1, t + 2), (0, 2), (0, 2))
        np.testing.assert_allclose(found.covariances("p", "p", box, box)[:, 0, :, :, 0], first, rtol=1e-10)
        mixed = k + 0.6 * soft[:, t] @ k @ np.swapaxes(soft[:, t], 1, 2)
        k = np.stack([oracles.arccos_kernel(0.8 * each) for each in mixed])
    second = found.replicated("h", "h").dense((REPLICATE, "0", "1", "0_", "1_")).value
    np.testing.assert_allclose(second[:, 2, :, 2], k, rtol=1e-10)


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


def test_the_error_of_covariances_that_draws_are_made_with_is_kept() -> None:
    """Of those by quadrature; and none of closed forms beyond rounding."""
    for function, low, high in (("relu(x1[i])", 0.0, 1e-11), ("gelu(tanh(x1[i]))", 1e-18, 1e-6)):
        layers = Draws(Law(loads(TWO.replace("relu(x1[i])", function))).recursion, SECOND)
        found = layers.at(np.ones((1, layers.dim)))
        _values(found, SECOND)
        assert low <= found.relative < high


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

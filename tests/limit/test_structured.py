"""Covariances that stay structured, and draws from them: against dense numpy, and by z-scores at fixed seeds."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

import tensorprog as tp
from tensorprog import Law
from tests.reading import loads
from tests.stated import STATED

Array = NDArray[np.float64]

ATTENTION = """
program: structured
constants: {s: 3, H: 2}
indices: {i: s, j: s, a: H, b: H}
initial:
  h[i]: {mean: 0, cov: 0.6**abs(i - i_)}
weights:
  W: 1
  WQ[a]: 1 + a
  WK[a]: 2
  WS: 3
  WV[a]: 1
  WU: 2
body:
  - u[i]     = MatMul(W, h[i])
  - x[i]     = Nonlin(clip(u[i], -1, 1))
  - q[a,i]   = MatMul(WQ[a], x[i])
  - k[a,j]   = MatMul(WK[a], x[j])
  - l[j]     = MatMul(WS, x[j])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - r[a,i,j] = Dot(q[a,i], l[j])
  - t[a,b,i,j] = Dot(q[a,i], k[b,j])
  - d[a,i]   = Dot(q[a,i], k[a,i])
  - v[a,j]   = MatMul(WV[a], x[j])
  - w[j]     = MatMul(WU, x[j])
  - c[a,j]   = MatMul(WU, x[j])
  - m[a,j]   = Nonlin(v[a,j] + w[j])
  - y[i]     = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * v[a,j]))
  - z[i]     = Nonlin(sum[a,j](softmax[j](r[a,i,j]) * w[j]))
outputs: [y, z, t, d, c, m]
"""


@pytest.fixture(scope="module")
def law() -> Law:
    return Law(loads(ATTENTION))


def expected(law: Law) -> dict[str, Array]:
    """Covariances from that of x, written out."""
    x, one, heads = np.asarray(law.cov("x")), np.eye(2), np.diag([1.0, 2.0])
    return {
        "q": np.einsum("ab,ik->aibk", heads, x),
        "p": np.einsum("ab,ik,jl->aijbkl", 2 * heads, x, x),
        "r": np.einsum("ab,ik,jl->aijbkl", 3 * heads, x, x),  # heads share keys: uncorrelated all the same
        "t": np.einsum("ac,bd,ik,jl->abijcdkl", 2 * heads, one, x, x),
        "d": np.einsum("ab,ik->aibk", 2 * heads, x * x),
        "v": np.einsum("ab,ik->aibk", one, x),
        "w": 2 * x,
        "c": np.einsum("ab,ik->aibk", np.ones((2, 2)), 2 * x),  # copies
        "m": np.einsum("ab,ik->aibk", one + 2, x),
    }


def test_structured_covariances_are_the_dense_ones(law: Law) -> None:
    for name, dense in expected(law).items():
        cov = law.cov(name)
        assert np.abs(np.asarray(cov) - dense).max() <= cov.error + 1e-15, name
        grid = np.ix_(*(np.arange(n) for n in cov.shape))
        half = len(cov.shape) // 2
        assert np.abs(cov.at(grid[:half], grid[half:]) - dense).max() <= cov.error + 1e-15, name


def test_what_does_not_fit_is_refused_with_a_way_out() -> None:
    program = tp.load("attention_correlated", s=32, H=3)
    law = program.limit(max_memory="8MiB")
    with pytest.raises(tp.MemoryLimitError, match="max_memory"):
        np.asarray(law.cov("p"))
    drawn = law.sample(500)
    with pytest.raises(tp.MemoryLimitError, match="500 draws of y, p"):
        drawn["p"]


# -- draws of the law ---------------------------------------------------------------------------------------------


def softmax(p: Array) -> Array:
    a = np.exp(p - p.max(axis=-1, keepdims=True))
    return np.asarray(a / a.sum(axis=-1, keepdims=True))


def test_scores_read_afterwards_are_those_the_outputs_had(law: Law) -> None:
    drawn = law.sample(600, seed=1, keep=("v", "w"))
    assert list(drawn) == ["y", "z", "t", "d", "c", "m", "v", "w", "p", "r"]
    y = np.einsum("naij,naj->ni", softmax(drawn["p"]), drawn["v"])
    z = np.einsum("naij,nj->ni", softmax(drawn["r"]), drawn["w"])
    np.testing.assert_allclose(drawn["y"], y, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(drawn["z"], z, rtol=1e-13, atol=1e-14)
    again = law.sample(600, seed=1, keep=("v", "w", "p"))
    assert np.array_equal(again["p"], drawn["p"]) and np.array_equal(again["y"], drawn["y"])
    assert np.array_equal(pickle.loads(pickle.dumps(drawn))["r"], drawn["r"])


def test_scores_of_one_draw_go_with_each_other(law: Law) -> None:
    """p, r and t share queries, and p and t are the same numbers where they have the same weights."""
    drawn = law.sample(2000, seed=3)
    for a in range(2):
        np.testing.assert_allclose(drawn["t"][:, a, a], drawn["p"][:, a], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.einsum("naii->nai", drawn["p"]), drawn["d"], rtol=1e-12, atol=1e-14)


def test_heads_that_differ_have_factors_of_their_own() -> None:
    law = Law(
        loads("""
program: differ
constants: {s: 3, H: 2}
indices: {i: s, j: s, a: H}
initial:
  h[a,i]: {mean: 0, cov: (1 + a) * 0.5**abs(i - i_)}
weights:
  WQ[a]: 1
  WK[a]: 1 + a
  WV: 1
body:
  - x[a,i]   = Nonlin(clip(h[a,i], -2, 2))
  - q[a,i]   = MatMul(WQ[a], x[a,i])
  - k[a,j]   = MatMul(WK[a], x[a,j])
  - v[j]     = MatMul(WV, x[0,j])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - y[i]     = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * v[j]))
outputs: [y]
""")
    )
    size = 60_000
    flat = law.sample(size, seed=1)["p"].reshape(size, -1)
    products = flat[:, :, None] * flat[:, None, :]
    dense = np.asarray(law.cov("p")).reshape(products.shape[1:])
    z = (products.mean(axis=0) - dense) / (products.std(axis=0) / np.sqrt(size))
    assert np.abs(z).max() < 4.9


@pytest.mark.parametrize("cov", ["0.5**abs(i - i_)", "(1 + a) * 0.5**abs(i - i_)"])
def test_statements_that_meet_in_some_members_of_a_weight(cov: str) -> None:
    law = Law(
        loads(f"""
program: meet
indices: {{i: 2, a: 3, b: 2, c: 2}}
initial:
  h[a,i]: {{mean: 0, cov: {cov}}}
weights:
  W[a]: 1 + a
body:
  - x[a,i] = Nonlin(clip(h[a,i], -2, 2))
  - q[a,i] = MatMul(W[a], x[a,i])
  - r[b,i] = MatMul(W[b+1], x[b+1,i])
  - g[c,i] = MatMul(W[c], x[1-c,i])
  - e[i]   = MatMul(W[2], x[0,i])
  - y[i]   = Nonlin(q[0,i] + r[1,i] + g[0,i] + e[i])
outputs: [y]
""")
    )
    size, names = 40_000, ("q", "r", "g", "e", "y")
    drawn = law.sample(size, seed=1, keep=names)
    for one in names:
        for two in names:
            left, right = (drawn[name].reshape(size, -1) for name in (one, two))
            dense = np.asarray(law.cov(one, two)).reshape(left.shape[1], right.shape[1])
            products = left[:, :, None] * right[:, None, :]
            z = (products.mean(axis=0) - dense) / (products.std(axis=0) / np.sqrt(size))
            assert np.abs(z).max() < 4.9, (one, two)


@pytest.mark.slow
def test_memory_does_not_grow_with_all_scores() -> None:
    """s = 256, H = 12: the scores of a draw take 6 MiB, their covariance would take 4.5 TiB."""
    law = tp.load("attention_correlated", s=256, H=12).limit()
    law.cov("p")
    scores = 8 * 12 * 256**2
    tracemalloc.start()
    try:

        def peak(call: Callable[[], object]) -> int:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            call()
            return tracemalloc.get_traced_memory()[1] - before

        assert peak(lambda: law.sample(12)) < 6 * scores
        assert peak(lambda: law.cov("p").at((0, 1, 2), (0, 2, 1))) < scores
        values = law.sample(2)["p"]
        assert peak(lambda: law.given({"p": values}).cov()) < 16 * scores
    finally:
        tracemalloc.stop()


# -- which heads are independent, which are alike -----------------------------------------------------------------


CROSSED = """
program: crossed
constants: {H: 3}
indices: {i: 2, a: H, c: 0..H}
initial:
  h[i]: {mean: 0, cov: 0.9**abs(i - i_)}
weights: {"A[c]": 1, "B[c]": 1, "V[a]": 1}
body:
  - x[i] = Nonlin(clip(h[i], -1, 1))
  - f[c,i] = MatMul(A[c], x[i])
  - g[c,i] = MatMul(B[c], x[i])
  - p[a] = Dot(f[a,0], g[a,1])
  - t[a] = Dot(g[a+1,0], f[a+1,1])
  - v[a] = MatMul(V[a], x[0])
  - y = Nonlin(sum[a](tanh(2*p[a]) * tanh(2*t[a]) * v[a]))
outputs: [y]
"""


def test_heads_that_meet_in_crossed_weights_only_are_dependent() -> None:
    """Cov(p[a+1], t[a]) is the second product of Isserlis' theorem: f . f and g . g, in the other order."""
    law = Law(loads(CROSSED))
    x = np.asarray(law.cov("x"))
    np.testing.assert_allclose(law.cov("p", "t"), x[0, 1] ** 2 * np.eye(3, k=-1), atol=1e-12)
    root, rng, size = np.linalg.cholesky(x), np.random.default_rng(5), 400_000
    # f[c,i] . g[c,j] / sqrt(n), a matrix over i, j for each c
    scores = root @ rng.standard_normal((size, 4, 2, 2)) @ root.T
    p, t = scores[:, :3, 0, 1], scores[:, 1:, 1, 0]
    var = x[0, 0] * np.square(np.tanh(2 * p) * np.tanh(2 * t)).sum(axis=1)
    found, error = law.moment("y", 4, with_error=True)
    z = (3 * np.square(var).mean() - found) / np.hypot(3 * np.square(var).std() / np.sqrt(size), error / STATED)
    assert abs(z) < 4.9
    assert law.density_method("y") == "conditional"
    density, error = law.density("y", [0.0, 0.5, 1.5], with_error=True)
    each = stats.norm.pdf([[0.0], [0.5], [1.5]], scale=np.sqrt(var))
    z = (each.mean(axis=1) - density) / np.hypot(each.std(axis=1) / np.sqrt(size), error / STATED)
    assert np.abs(z).max() < 4.9


def test_heads_that_differ_in_a_mean_only() -> None:
    """y = sum over a of S_a r_a, S_a = sigmoid(p_a), r_a ~ N(a - 1, 1): of the same law but for their means."""
    law = Law(
        loads("""
program: means
constants: {H: 3}
indices: {a: H}
initial:
  h: {mean: 0, cov: 1}
  r[a]: {mean: a - 1, cov: 1}
weights: {"A[a]": 1, "B[a]": 1}
body:
  - f[a] = MatMul(A[a], h)
  - g[a] = MatMul(B[a], h)
  - p[a] = Dot(f[a], g[a])
  - y = Nonlin(sum[a](sigmoid(p[a]) * r[a]))
outputs: [y]
""")
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights /= weights.sum()
    first, second = (weights @ special.expit(nodes) ** k for k in (1, 2))
    means = np.arange(3) - 1.0
    variance = (second * (1 + means**2) - (first * means) ** 2).sum()
    for known, (value, error) in (
        (first * means.sum(), law.mean("y", with_error=True)), (variance, law.var("y", with_error=True)),
        (variance, law.cov("y", with_error=True)), (0.0, law.moment("y", 3, with_error=True)),
    ):  # fmt: skip
        assert abs(value - known) <= error + 1e-12  # third moments of opposite means cancel
        assert error < 1e-4

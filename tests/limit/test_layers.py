"""Layers of scores, and widths that stay finite: against Theorem 1, draws written by hand, and finite networks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog import Law
from tests.reading import loads
from tests.stated import STATED

from . import oracles

Array = NDArray[np.float64]

STACK = """
program: stack
constants: {s: 4, H: 1, r: 0}
indices: {i: s, j: s, a: H}
initial:
  x[i]: {mean: 0, cov: r**abs(i - i_)}
weights:
  Q1[a]: 1
  K1[a]: 1
  V1[a]: 1
  Q2[a]: 1
  K2[a]: 1
  V2[a]: 1
  U: 1
body:
  - q1[a,i]   = MatMul(Q1[a], x[i])
  - k1[a,j]   = MatMul(K1[a], x[j])
  - p1[a,i,j] = Dot(q1[a,i], k1[a,j])
  - v1[a,j]   = MatMul(V1[a], x[j])
  - x1[i]     = Nonlin(x[i] + sum[a,j](softmax[j](p1[a,i,j]) * v1[a,j]) / sqrt(H))
  - q2[a,i]   = MatMul(Q2[a], x1[i])
  - k2[a,j]   = MatMul(K2[a], x1[j])
  - p2[a,i,j] = Dot(q2[a,i], k2[a,j])
  - v2[a,j]   = MatMul(V2[a], x1[j])
  - y[i]      = Nonlin(x1[i] + sum[a,j](softmax[j](p2[a,i,j]) * v2[a,j]) / sqrt(H))
outputs: [y]
"""
# a second output that no rewrite brings under Theorem 1: the layers are iterated, for the same y
ITERATED = STACK.replace(
    "outputs: [y]", "  - z[i]      = Nonlin(relu(x1[i]))\n  - w[i]      = MatMul(U, z[i])\noutputs: [y, w]"
)


def _law(text: str, accuracy: float | None = None, **constants: float) -> Law:
    return Law(loads(text, constants), accuracy=accuracy)


def _agree(first: tuple[Array, Array], second: tuple[Array, Array]) -> None:
    """Two estimates within five standard errors."""
    difference = np.abs(np.asarray(first[0]) - np.asarray(second[0]))
    assert np.all(difference <= 5 / STATED * np.hypot(first[1], second[1])), (first, second)


def _moments(draws: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Covariance and kurtosis of mean-zero draws (count, members), with three standard errors."""
    products = draws[:, :, None] * draws[:, None]
    count = math.sqrt(len(draws))
    squares, fourth = draws**2, draws**4
    variance = squares.mean(axis=0)
    kurtosis = fourth.mean(axis=0) / variance**2
    spread = (fourth / variance**2 - 2 * kurtosis * squares / variance).std(axis=0)
    return (products.mean(axis=0), STATED * products.std(axis=0) / count), (kurtosis, STATED * spread / count)


@pytest.mark.parametrize(("s", "r", "accuracy"), [(2, 0, 1e-2), pytest.param(3, 0.5, None, marks=pytest.mark.slow)])
def test_an_attention_only_stack_iterated_is_theorem_1_after_rewriting(
    s: int, r: float, accuracy: float | None
) -> None:
    theorem, iterated = _law(STACK, accuracy, r=r, s=s), _law(ITERATED, accuracy, r=r, s=s)
    assert not theorem.recursion.layered
    assert iterated.recursion.layered
    _agree(theorem.cov("y", with_error=True), iterated.cov("y", with_error=True))
    for name in ("y[0]", "p2[0,0,1]", "p2[0,0,0]"):
        _agree(theorem.var(name, with_error=True), iterated.var(name, with_error=True))
        _agree(theorem.kurtosis(name, with_error=True), iterated.kurtosis(name, with_error=True))
    grid = np.linspace(-3, 3, 7)
    _agree(theorem.density("y[0]", grid, with_error=True), iterated.density("y[0]", grid, with_error=True))
    _agree(theorem.density(["y[0]", f"y[{s - 1}]"], np.array([[0.3, -1]]), with_error=True),
           iterated.density(["y[0]", f"y[{s - 1}]"], np.array([[0.3, -1]]), with_error=True))  # fmt: skip
    psi = "tanh(y[0])**2"
    _agree(theorem.expectation(psi, with_error=True), iterated.expectation(psi, with_error=True))


@pytest.mark.slow
def test_scores_of_the_second_layer_are_not_gaussian() -> None:
    """Given the first layer p2[i,j] has variance k[i,i] k[j,j], k = 1 + a a^T with a the softmax of 4 x 4 scores."""
    law = _law(ITERATED)
    p = np.random.default_rng(0).standard_normal((400_000, 4, 4))
    a = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)
    k = 1 + (a**2).sum(axis=-1)
    for i, j in ((0, 1), (0, 0)):
        v = k[:, i] * k[:, j]
        value = 3 * (v**2).mean() / v.mean() ** 2
        spread = 3 * (v**2 / v.mean() ** 2 - 2 * v * (v**2).mean() / v.mean() ** 3).std() / math.sqrt(len(v))
        _agree(law.kurtosis(f"p2[0,{i},{j}]", with_error=True), (value, STATED * spread))
        assert value > 3.03


def test_given_all_scores_theorem_1_and_the_layers_are_one_gaussian_law() -> None:
    theorem, iterated = _law(STACK, s=3, r=0.5), _law(ITERATED, s=3, r=0.5)
    scores = iterated.sample(3, seed=1)
    own = iterated.given({"p1": scores["p1"], "p2": scores["p2"]})
    # by hand: x1 = (1 + V1 a1) x, y = (1 + V2 a2) x1 in law, given the softmaxes
    a1, a2 = (np.exp(scores[p][:, 0]) / np.exp(scores[p][:, 0]).sum(axis=-1, keepdims=True) for p in ("p1", "p2"))
    k = 0.5 ** abs(np.arange(3)[:, None] - np.arange(3))
    k1 = k + a1 @ k @ np.swapaxes(a1, 1, 2)
    assert np.allclose(own.cov("y"), k1 + a2 @ k1 @ np.swapaxes(a2, 1, 2), rtol=1e-12)
    assert np.allclose(own.cov("w"), [oracles.arccos_kernel(each) for each in k1], rtol=1e-10)
    assert theorem.given({name: scores[name] for name in ("p1",)} | {"p2": scores["p2"]}).cov("y").shape == (3, 3, 3)


DEEP = """
program: deep
constants: {s: 2, H: 2, L: 2}
indices: {i: s, j: s, a: H, t: 1..L}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights:
  WQ[t,a]: 1
  WK[t,a]: 1.3
  WV[t,a]: 1
  WO[t,a]: 1
  W1[t]: 2
  W2[t]: 0.7
body:
  - x[0,i]     = Nonlin(h[i])
  - q[t,a,i]   = MatMul(WQ[t,a], x[t - 1,i])
  - k[t,a,j]   = MatMul(WK[t,a], x[t - 1,j])
  - p[t,a,i,j] = Dot(q[t,a,i], k[t,a,j])
  - v[t,a,j]   = MatMul(WV[t,a], x[t - 1,j])
  - o[t,a,j]   = MatMul(WO[t,a], v[t,a,j])
  - z[t,i]     = Nonlin(x[t - 1,i] + sum[a,j](softmax[j](p[t,a,i,j]) * o[t,a,j]) / sqrt(H))
  - u[t,i]     = MatMul(W1[t], z[t,i])
  - r[t,i]     = Nonlin(relu(u[t,i]))
  - g[t,i]     = MatMul(W2[t], r[t,i])
  - x[t,i]     = Nonlin(z[t,i] + g[t,i])
  - y[i]       = Nonlin(x[L,i])
outputs: [y]
"""


def _deep_draws(count: int, layers: int, seed: int) -> tuple[Array, Array]:
    """The iterated law of DEEP by hand: covariances of y (count, 2, 2), and the scores of the last layer."""
    rng = np.random.default_rng(seed)
    k = np.broadcast_to(0.5 ** abs(np.arange(2)[:, None] - np.arange(2)), (count, 2, 2)).copy()
    for _ in range(layers):
        root = np.linalg.cholesky(k)
        normals = rng.standard_normal((count, 2, 2, 2))
        p = math.sqrt(1.3) * np.einsum("nij,najk,nlk->nail", root, normals, root)
        a = np.exp(p - p.max(axis=-1, keepdims=True))
        a /= a.sum(axis=-1, keepdims=True)
        z = k + np.einsum("naij,njk,nalk->nil", a, k, a) / 2
        theta = np.arccos(np.clip(z[:, 0, 1] / np.sqrt(z[:, 0, 0] * z[:, 1, 1]), -1, 1))
        kernel = z / 2  # E relu(u)**2 for u ~ N(0, 2 z) is z; on the diagonal of z/2 twice
        cross = np.sqrt(z[:, 0, 0] * z[:, 1, 1]) / math.pi * (np.sin(theta) + (math.pi - theta) * np.cos(theta))
        kernel = np.stack([np.stack([z[:, 0, 0], cross], -1), np.stack([cross, z[:, 1, 1]], -1)], -2)
        k = z + 0.7 * kernel
    return k, p


@pytest.mark.parametrize("layers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_layers_of_a_recurrence_are_the_law_written_by_hand(layers: int) -> None:
    law = _law(DEEP, L=layers)
    count = 200_000
    k, p = _deep_draws(count, layers, seed=layers)
    _agree(law.cov("y", with_error=True), (k.mean(axis=0), STATED * k.std(axis=0) / math.sqrt(count)))
    variance, square = k[:, 0, 0].mean(), (k[:, 0, 0] ** 2).mean()
    spread = (3 * k[:, 0, 0] ** 2 / variance**2 - 6 * square / variance**3 * k[:, 0, 0]).std() / math.sqrt(count)
    _agree(law.kurtosis("y[0]", with_error=True), (3 * square / variance**2, STATED * spread))
    score, kurtosis = _moments(p[:, 0].reshape(count, 4))
    name = f"p[{layers},0,0,1]"
    _agree(law.var(name, with_error=True), (score[0][1, 1], score[1][1, 1]))
    _agree(law.kurtosis(name, with_error=True), (kurtosis[0][1], kurtosis[1][1]))


@pytest.mark.slow
def test_draws_follow_the_covariances_that_the_law_states() -> None:
    law = _law(DEEP)
    draws = law.sample(60_000, seed=2)
    _agree(_moments(draws["y"])[0], law.cov("y", with_error=True))
    flat = draws["p"].reshape(len(draws["p"]), -1)
    _agree(_moments(flat)[0], tuple(part.reshape(16, 16) for part in law.cov("p", with_error=True)))
    again = law.sample(100, seed=2)
    assert np.array_equal(again["y"], draws["y"][:100])
    assert np.array_equal(again["p"], draws["p"][:100])
    averages = law.averages({"m": "y[0]*y[1]"}, 20_000)["m"]
    value, error = law.cov("y", with_error=True)
    _agree((averages.mean(), STATED * averages.std() / math.sqrt(20_000)), (value[0, 1], error[0, 1]))


@pytest.mark.slow
def test_layers_agree_with_finite_networks() -> None:
    law, size = _law(DEEP), 4000
    samples = tp.Program.from_netsor(loads(DEEP)).run(width=2048, samples=size, seed=5, coordinates=16)
    y = samples["y"]  # (networks, coordinates, members) or (networks, members, coordinates)
    y = np.moveaxis(y, 1, 2) if y.shape[1] == 2 else y
    products = np.einsum("nci,ncj->nij", y, y) / y.shape[1]
    finite = products.mean(axis=0), STATED * products.std(axis=0) / math.sqrt(size)
    value, error = law.cov("y", with_error=True)
    assert np.all(finite[1] < 0.1 * value)
    _agree(finite, (value, error + 3 / 2048 * value))  # what the width leaves is of order 1/n


HEADS = """
program: heads
constants: {s: 3, H: 2, D: 4}
indices: {i: s, j: s, a: H}
fixed_widths: {d: D}
initial:
  x[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights:
  WQ[a]: {variance: 1, shape: [d, n]}
  WK[a]: {variance: 2, shape: [d, n]}
  WV[a]: {variance: 1, shape: [d, n]}
  WO[a]: {variance: 1, shape: [n, d]}
body:
  - q[a,i]   = MatMul(WQ[a], x[i])
  - k[a,j]   = MatMul(WK[a], x[j])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - v[a,j]   = MatMul(WV[a], x[j])
  - o[a,j]   = MatMul(WO[a], v[a,j])
  - y[i]     = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * o[a,j]) / sqrt(H))
outputs: [y]
"""


def _head_draws(count: int, d: int, seed: int) -> tuple[Array, Array]:
    """Scores and covariances of y given the heads of HEADS, drawn coordinate by coordinate."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(0.5 ** abs(np.arange(3)[:, None] - np.arange(3)))
    q, k, v = (root @ rng.standard_normal((count, 2, 3, d)) for _ in range(3))
    p = math.sqrt(2 / d) * q @ np.swapaxes(k, -1, -2)
    a = np.exp(p - p.max(axis=-1, keepdims=True))
    a /= a.sum(axis=-1, keepdims=True)
    mixed = a @ v
    return p, np.einsum("naic,najc->nij", mixed, mixed) / (2 * d)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 4])
def test_heads_of_finite_dimension_are_products_of_gaussians(d: int) -> None:
    law = _law(HEADS, D=d)
    count = 400_000
    p, k = _head_draws(count, d, seed=d)
    _agree(law.cov("y", with_error=True), (k.mean(axis=0), STATED * k.std(axis=0) / math.sqrt(count)))
    variance, square = k[:, 1, 1].mean(), (k[:, 1, 1] ** 2).mean()
    spread = (3 * k[:, 1, 1] ** 2 / variance**2 - 6 * square / variance**3 * k[:, 1, 1]).std() / math.sqrt(count)
    _agree(law.kurtosis("y[1]", with_error=True), (3 * square / variance**2, STATED * spread))
    _agree(_moments(p[:, 0].reshape(count, 9))[0], tuple(
        part[0, :, :, 0].reshape(9, 9) for part in law.cov("p", with_error=True)))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 64])
def test_the_kurtosis_of_a_score_of_width_d_is_3_plus_6_over_d(d: int) -> None:
    value, error = _law(HEADS, D=d).kurtosis("p[0,0,1]", with_error=True)
    exact = 3 + 6 / d  # a mean of d independent products of two Gaussians, each of kurtosis 9
    assert abs(value - exact) <= error
    assert error < 0.04 * exact


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 8])
def test_finite_heads_agree_with_networks_of_large_width(d: int) -> None:
    law, size = _law(HEADS, D=d), 40_000
    samples = tp.Program.from_netsor(loads(HEADS, {"D": d})).run(width=2048, samples=size, seed=3, coordinates=4)
    y = samples["y"]
    y = np.moveaxis(y, 1, 2) if y.shape[1] == 3 else y
    products = np.einsum("nci,ncj->nij", y, y) / y.shape[1]
    value, error = law.cov("y", with_error=True)
    _agree((products.mean(axis=0), STATED * products.std(axis=0) / math.sqrt(size)), (value, error + 3 / 2048 * value))
    p = samples["p"].reshape(size, -1)
    _agree(_moments(p)[0], tuple(part.reshape(18, 18) for part in law.cov("p", with_error=True)))


REPEATED = """
program: repeated
fixed_widths: {d: 4}
initial:
  x: {mean: 0, cov: 1}
weights:
  A: {variance: 1, shape: [d, n]}
  W: {variance: 1, shape: [d, d]}
  B: {variance: 1, shape: [n, d]}
body:
  - g = MatMul(A, x)
  - u = MatMul(W, g)
  - w = MatMul(W, u)
  - y = MatMul(B, u)
  - z = MatMul(B, w)
outputs: [y, z]
"""


def test_a_square_weight_of_finite_width_used_twice_keeps_its_memory() -> None:
    """E |W g|**2 |W W g|**2 for a 4 x 4 matrix, by matrices drawn whole."""
    rng = np.random.default_rng(0)
    count = 400_000
    g = rng.standard_normal((count, 4, 1))
    w = rng.standard_normal((count, 4, 4)) / 2
    u = w @ g
    v = w @ u
    y, z = ((part[..., 0] ** 2).mean(axis=1) for part in (u, v))  # variances of y and z given u and w
    both = y * z + 2 * np.einsum("nic,nic->n", u, v) ** 2 / 16
    law = _law(REPEATED)
    value = law.expectation("y**2*z**2", with_error=True)
    _agree(value, (both.mean(), STATED * both.std() / math.sqrt(count)))
    _agree(law.var("z", with_error=True), (z.mean(), STATED * z.std() / math.sqrt(count)))


def test_what_layers_do_not_compile_is_refused_in_words() -> None:
    law = _law(HEADS)
    with pytest.raises(tp.NotCompiledError, match="width d, which stays finite"):
        law.given({"p": np.zeros((2, 3, 3))}).cov()
    for text in (DEEP, HEADS):
        with pytest.raises(tp.NotCompiledError, match="infinite_heads"):
            _law(text).infinite_heads("a")
    for text in (ITERATED, HEADS):
        with pytest.raises(tp.NotCompiledError, match="no formulas yet"):
            _law(text).latex()


@pytest.mark.parametrize("score", ["Dot(q, k)", "Dot(k, q)"])
def test_a_score_of_finite_width_whose_operands_depend_on_each_other_is_drawn(score: str) -> None:
    """With k = B q, p**2 is |q|**4 / d**2 on average over B, so E p**2 = 1 + 2/d."""
    law = _law(f"""
program: related
fixed_widths: {{d: 2}}
initial:
  x: {{mean: 0, cov: 1}}
weights:
  A: {{variance: 1, shape: [d, n]}}
  B: {{variance: 1, shape: [d, d]}}
  C: {{variance: 1, shape: [n, d]}}
body:
  - q = MatMul(A, x)
  - k = MatMul(B, q)
  - p = {score}
  - o = MatMul(C, k)
  - y = Nonlin(tanh(p) * o)
outputs: [y]
""")
    exact = np.full((), 2.0), np.zeros(())
    _agree(law.cov("p", with_error=True), exact)
    _agree(law.var("p", with_error=True), exact)


def test_a_score_of_a_vector_of_finite_width_with_itself_has_a_mean() -> None:
    """p = |q|**2 / sqrt(d) has mean sqrt(d), variance 2 and kurtosis 3 + 12/d."""
    law = _law("""
program: square
fixed_widths: {d: 2}
initial:
  x: {mean: 0, cov: 1}
weights:
  A: {variance: 1, shape: [d, n]}
  C: {variance: 1, shape: [n, d]}
body:
  - q = MatMul(A, x)
  - p = Dot(q, q)
  - o = MatMul(C, q)
  - y = Nonlin(tanh(p) * o)
outputs: [y]
""")
    for method, exact in (("mean", math.sqrt(2)), ("var", 2.0), ("kurtosis", 9.0)):
        _agree(getattr(law, method)("p", with_error=True), (np.full((), exact), np.zeros(())))


@pytest.mark.slow
def test_joint_laws_of_scores_count_every_variance_once() -> None:
    theorem, iterated = (_law(text, accuracy=3e-3, s=3) for text in (STACK, ITERATED))
    first = ["p1[0,0,1]", "p1[0,0,0]"]  # independent standard normals: the tokens are orthonormal
    for law in (theorem, iterated):
        assert law.moment(first, [2, 2]) == pytest.approx(1, rel=1e-12)
        assert law.density(first, [[0.3, 0.5]])[0] == pytest.approx(math.exp(-0.17) / math.tau, rel=1e-12)
    second, count = ["p2[0,0,1]", "p2[0,0,0]"], 100_000
    draws = iterated.sample(count, seed=4)["p2"][:, 0, 0]
    products = (draws[:, 0] * draws[:, 1]) ** 2
    drawn = products.mean(), STATED * products.std() / math.sqrt(count)
    _agree(iterated.moment(second, [2, 2], with_error=True), drawn)
    value, error = iterated.moment(["p2[0,0,1]", "x[0]"], [2, 2], with_error=True)  # independent: a product
    _agree((value, error), iterated.var("p2[0,0,1]", with_error=True))
    for text, names in ((ITERATED, ["p1[0,0,1]", "p2[0,0,0]"]), (HEADS, ["p[0,0,1]", "p[0,0,0]"])):
        with pytest.raises(tp.NotCompiledError, match=r"law\.sample draws them"):
            _law(text).moment(names, [2, 2])


@pytest.mark.slow
def test_heads_of_finite_width_stand_in_several_layers() -> None:
    """Weights of their own in each layer are fresh; one that is used again behind its vectors is not."""
    text = """
program: twice
indices: {t: "1..2", i: 2, j: 2}
fixed_widths: {d: 2}
initial:
  x[i]: {mean: 0, cov: 1}
weights:
  A[t]: {variance: 1, shape: [d, n]}
  B[t]: {variance: 1, shape: [d, n]}
  V[t]: 1
body:
  - h[0,i] = Nonlin(x[i])
  - q[t,i] = MatMul(A[t], h[t-1,i])
  - k[t,i] = MatMul(B[t], h[t-1,i])
  - p[t,i,j] = Dot(q[t,i], k[t,j])
  - v[t,i] = MatMul(V[t], h[t-1,i])
  - h[t,i] = Nonlin(sum[j](softmax[j](p[t,i,j]) * v[t,j]))
outputs: [h]
"""
    assert tp.Program.from_netsor(loads(text)).check().grade == "extension"
    reused = text.replace("A[t]", "A")
    assert tp.Program.from_netsor(loads(reused)).check().grade == "outside"
    rng, count = np.random.default_rng(0), 400_000
    k = np.broadcast_to(np.eye(2), (count, 2, 2))
    for _ in range(2):
        root = np.linalg.cholesky(k)
        left, right = (root @ rng.standard_normal((count, 2, 2)) for _ in range(2))
        p = left @ np.swapaxes(right, 1, 2) / math.sqrt(2)
        a = np.exp(p - p.max(axis=-1, keepdims=True))
        a /= a.sum(axis=-1, keepdims=True)
        k = a @ k @ np.swapaxes(a, 1, 2) + 1e-14 * np.eye(2)
    law = _law(text)
    value, error = law.cov("h", with_error=True)
    _agree((value[2, :, 2], error[2, :, 2]), (k.mean(axis=0), STATED * k.std(axis=0) / math.sqrt(count)))
    draws = p[:, 0, 1] ** 2
    _agree(law.var("p[2,0,1]", with_error=True), (draws.mean(), STATED * draws.std() / math.sqrt(count)))


@pytest.mark.slow
def test_errors_of_moments_given_the_draws_are_stated() -> None:
    """All draws share the nodes at which relu(u + w e) is averaged, so their spread does not show how far it is off."""
    law = Law(loads("""
program: shared_nodes
initial:
  e: {mean: 0, cov: 1}
  x: {mean: 0, cov: 1}
  z: {mean: 0, cov: 1}
weights: {Q: 1, K: 1, U: 1, W: 1, V: 1}
body:
  - q = MatMul(Q, x)
  - k = MatMul(K, x)
  - p = Dot(q, k)
  - g = Nonlin(cos(p) * x + sin(p) * z)    # of variance 1 for every p
  - u = MatMul(U, g)
  - w = MatMul(W, g)
  - r = Nonlin(relu(u + w * e))
  - y = MatMul(V, r)
outputs: [y]
"""), max_memory=1 << 16)  # fmt: skip
    for value, error in (law.cov("y", with_error=True), law.var("y", with_error=True)):
        assert 1e-6 < error < 0.05
        assert abs(value - 1) <= error  # E relu(u + w e)**2 = (1 + E e**2) / 2


def test_functions_of_initial_vectors_are_averaged_with_the_averages_of_each_draw() -> None:
    law = Law(loads(
        "program: weighed\nindices: {i: 2}\ninitial:\n  x[i]: {cov: 0.5**abs(i - i_)}\nweights: {A: 1, B: 1, V: 1}\n"
        "body:\n  - q[i] = MatMul(A, x[i])\n  - k[i] = MatMul(B, x[i])\n  - p[i] = Dot(q[i], k[0])\n"
        "  - h = Nonlin(p[0]*x[0])\n  - c = Dot(h, h, scale=1/n)\n  - u[i] = Nonlin(tanh(c*x[i] + x[1]))\n"
        "  - y[i] = MatMul(V, u[i])\noutputs: [y]\n"
    ))  # fmt: skip
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = np.outer(weights, weights) / (2 * np.pi)
    first = points[:, None]
    second = 0.5 * first + np.sqrt(0.75) * points[None]

    def cov(p: float) -> Array:
        u = [np.tanh(p**2 * x + second) for x in (first, second)]
        return np.array([[np.sum(weights * one * two) for two in u] for one in u])

    scores = np.array([[0.0, 1.0], [1.2, 0.0], [-1.0, 0.5]])
    for draws in (scores, scores[:2], scores[::-1]):
        expected = np.array([cov(p) for p, _ in draws])
        assert np.allclose(law.given({"p": draws}).cov("y"), expected, rtol=0, atol=1e-6)

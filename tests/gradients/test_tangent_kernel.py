"""Tangent kernels: closed forms, the sum over weights of products of averages, networks, and what has none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

import tensorprog as tp
from tensorprog import NotCompiledError, ProgramError

Array = NDArray[Any]


def arcs(second: Array) -> tuple[Array, Array]:
    """E relu(u) relu(v) and E step(u) step(v) of Gaussian u, v, by the formulas of Cho & Saul 2009."""
    flat = second.reshape(math.isqrt(second.size), -1)
    deviations = np.sqrt(np.diag(flat))
    correlation = np.clip(flat / np.outer(deviations, deviations), -1, 1)
    np.fill_diagonal(correlation, 1)
    angle = np.arccos(correlation)
    products = np.sin(angle) + (np.pi - angle) * correlation
    return ((np.outer(deviations, deviations) * products / (2 * np.pi)).reshape(second.shape),
            ((np.pi - angle) / (2 * np.pi)).reshape(second.shape))  # fmt: skip


def relu_network(layers: int, cov: str, members: int, **data: Any) -> tp.Program:
    P = tp.Program("relu")
    i = P.index("i", members)
    u = P.initial("x[i]", **data) if data else P.initial("x[i]", cov=cov)
    if not data:
        u = P.matmul("u0[i]", P.weight("W0"), u[i])
    for k in range(1, layers):
        h = P.nonlin(f"h{k}[i]", tp.relu(u[i]))
        u = P.matmul(f"u{k}[i]", P.weight(f"W{k}", 2), h[i])
    P.outputs(u)
    return P


def test_three_relu_layers() -> None:
    kernel = tp.ntk(relu_network(3, "0.6**abs(i - i_)", 2), "u2")
    assert np.asarray(kernel) == pytest.approx(np.array([[3, 1.5444163], [1.5444163, 3]]), abs=5e-8)
    assert kernel.error < 1e-11


def test_a_relu_network_on_data() -> None:
    x = np.random.default_rng(0).standard_normal((6, 5))
    P = relu_network(3, "", 6, data=x, variance=1.5)
    second = tangents = 1.5 * x @ x.T / 5
    for _ in range(2):
        products, steps = arcs(second)
        second, tangents = 2 * products, 2 * products + 2 * steps * tangents
    assert np.asarray(tp.ntk(P, "u2")) == pytest.approx(tangents, rel=1e-13)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "relu": tp.relu, "erf": tp.erf, "gelu": tp.gelu, "tanh": tp.tanh, "sines": tp.sin,
    "leaky": lambda u: tp.leaky_relu(u, 0.1), "sum": lambda u: tp.erf(2 * u) + u / 2 + 0.1,
    "bells": lambda u: tp.erf(2 * u) + u * tp.gaussian(u) + 0.3 * tp.gaussian(2 * u) + 0.2,
}  # fmt: skip


def of_data(x: Array, function: Callable[..., Any]) -> tp.Program:
    P = tp.Program("net")
    i = P.index("i", len(x))
    u = P.initial("x[i]", data=x, variance=1.5)
    for k in (1, 2):
        u = P.matmul(f"u{k}[i]", P.weight(f"W{k}", 1.6), P.nonlin(f"h{k}[i]", function(u[i]))[i])
    P.outputs(u)
    return P


@pytest.mark.parametrize(
    "name", [pytest.param(f, marks=[pytest.mark.slow] * (f in ("sum", "bells"))) for f in FUNCTIONS]
)
def test_many_inputs_have_the_kernel_of_a_few(name: str) -> None:
    x = np.random.default_rng(3).standard_normal((140, 5))
    x[3], x[5], x[7] = x[2], x[4] * (1 + 1e-9), -2 * x[6]
    if name not in ("relu", "leaky"):  # at 0 a step of a variance that is uncertain says nothing
        x[0] = 0
    many, few = (tp.ntk(of_data(rows, FUNCTIONS[name]), "u2") for rows in (x, x[:12]))
    whole = np.asarray(many)
    apart = np.abs(whole[:12, :12] - np.asarray(few))
    assert apart.max() <= many.error + few.error
    distinct = 1.0 - np.abs(np.corrcoef(x[1:12])) > 1e-3
    assert apart[1:, 1:][distinct].max() < 1e-11 * np.abs(whole).max()
    assert np.array_equal(whole, whole.T)
    assert many.error < 1e-5 * np.abs(whole).max()


def test_a_smooth_function_of_a_vector_and_its_bias() -> None:
    """Derivatives of gelu read the sum of both and multiples of it; products over two variables stand beside them."""
    x = np.random.default_rng(0).standard_normal((3, 5))
    P = tp.Program("net")
    i = P.index("i", 3)
    u, b = P.initial("x[i]", data=x, variance=1.5), P.initial("b", cov=0.1)
    P.outputs(P.matmul("u1[i]", P.weight("W", 1.6), P.nonlin("h[i]", tp.gelu(u[i] + b))[i]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = np.outer(weights, weights) / weights.sum() ** 2
    data = 1.5 * x @ x.T / 5
    second, wanted = data + 0.1, np.empty((3, 3))
    for k, m in np.ndindex(3, 3):
        rho = second[k, m] / second[k, k]
        rest = max(second[m, m] - rho * second[k, m], 0)
        y = np.sqrt(second[k, k]) * nodes[:, None]
        z = rho * y + np.sqrt(rest) * nodes
        first = [v * ndtr(v) for v in (y, z)]
        slopes = [ndtr(v) + v * np.exp(-v * v / 2) / math.sqrt(2 * math.pi) for v in (y, z)]
        wanted[k, m] = 1.6 * np.sum(weights * (first[0] * first[1] + data[k, m] * slopes[0] * slopes[1]))
    found = tp.ntk(P, "u1", parameters=["W", "x"])
    assert np.asarray(found) == pytest.approx(wanted, rel=1e-10)
    assert found.error < 1e-11


@pytest.mark.parametrize("pooled", [False, True])
def test_a_convolutional_network(pooled: bool) -> None:
    m, P_, rng = 2, 5, np.random.default_rng(1)
    x = rng.standard_normal((m * P_, 4))
    P = tp.Program("cnn")
    i, c, d = P.index("i", m), P.index("c", P_, boundary="zero"), P.index("d", "-1..1")
    u = P.initial("x[i,c]", data=x, variance=1.5)
    h = P.nonlin("h[i,c]", tp.relu(u[i, c]))
    g = P.matmul("g[i,c,d]", P.weight("F[d]", 2 / 3)[d], h[i, c + d])
    h = P.nonlin("k[i,c]", tp.relu(tp.sum[d](g[i, c, d])))
    V = P.weight("V[c]", 1.3 / P_)
    P.outputs(
        P.matmul("f[i]", P.weight("W", 1.3), P.nonlin("m[i]", tp.mean[c](h[i, c]))[i])
        if pooled
        else P.nonlin("f[i]", tp.sum[c](P.matmul("r[i,c]", V[c], h[i, c])[i, c]))
    )

    def shifted(kernel: Array) -> Array:
        wide = np.zeros((m, P_ + 2, m, P_ + 2))
        wide[:, 1:-1, :, 1:-1] = kernel
        return np.asarray(sum(wide[:, k : k + P_, :, k : k + P_] for k in range(3)) / 3)

    second = tangents = (1.5 * x @ x.T / 4).reshape(m, P_, m, P_)
    products, steps = arcs(second)
    second = 2 * shifted(products)
    tangents = second + 2 * shifted(steps * tangents)
    products, steps = arcs(second)
    read = "icjd->ij" if pooled else "icjc->ij"
    count = P_**2 if pooled else P_
    expected = 1.3 * (np.einsum(read, products) + np.einsum(read, steps * tangents)) / count
    assert np.asarray(tp.ntk(P, "f")) == pytest.approx(expected, rel=1e-12)


def test_residual_layers_and_normalisation() -> None:
    x = np.random.default_rng(2).standard_normal((4, 3))
    P = tp.Program("res")
    i = P.index("i", 4)
    z, one = P.initial("x[i]", data=x, variance=1.5), P.nonlin("one", 1)
    mean, square = P.dot("m[i]", z[i], one, scale="1/n"), P.dot("v[i]", z[i], z[i], scale="1/n")
    w = P.nonlin("w[i]", (z[i] - mean[i]) / tp.sqrt(square[i] - mean[i] ** 2 + 1e-5))
    u = P.matmul("u[i]", P.weight("W", 2), P.nonlin("h[i]", tp.relu(w[i]))[i])
    z = P.nonlin("z[i]", z[i] + u[i])
    P.outputs(P.matmul("f[i]", P.weight("V", 1.3), P.nonlin("k[i]", tp.relu(z[i]))[i]))
    first = 1.5 * x @ x.T / 3
    deviations = np.sqrt(np.diag(first) + 1e-5)
    products, steps = arcs(first / np.outer(deviations, deviations))
    second = first + 2 * products
    tangents = first + 2 * products + 2 * steps * first / np.outer(deviations, deviations)
    products, steps = arcs(second)
    assert np.asarray(tp.ntk(P, "f")) == pytest.approx(1.3 * (products + steps * tangents), rel=1e-12)


def by_gradients(P: tp.Program, products: tuple[str, ...]) -> float:
    """The sum over weights of products of two averages, of layers that make `products`, and of gradients there."""
    law = tp.backward(P).limit()
    return float(sum((np.asarray(law.cov(u)) * np.asarray(law.cov(f"grad_{u}"))).sum() for u in products))


def test_the_kernel_is_the_sum_over_weights_of_products_of_averages() -> None:
    P = tp.load("mlp", m=1)
    found = float(np.asarray(tp.ntk(P, "f")).item())
    assert found == pytest.approx(by_gradients(P, ("u1", "u2", "u3", "f")), rel=1e-11)
    R = tp.Program("rnn")
    t = R.index("t", "1..4")
    x, s, W = R.initial("x[t]", cov="0.5**abs(t - t_)"), R.family("s[t]"), R.weight("W", 1.5)
    R.nonlin("s[0]", 0)
    u = R.matmul("u[t]", W, s[t - 1])
    R.nonlin("s[t]", tp.erf(u[t] + x[t]))
    R.outputs(R.matmul("f", R.weight("V"), s[4]))
    found = float(np.asarray(tp.ntk(R, "f")))
    assert found == pytest.approx(by_gradients(R, ("u", "f")), rel=1e-9)


def test_biases_count_if_they_are_named() -> None:
    P = tp.load("mlp_bias")
    without = np.asarray(tp.ntk(P, "f", parameters=["x", "W", "V"]))
    with_weight = np.asarray(tp.ntk(P, "f"))  # B is a weight
    with_both = np.asarray(tp.ntk(P, "f", parameters=["x", "W", "V", "B", "b1"]))
    assert (np.diag(with_weight) > np.diag(without) + 0.01).all()
    assert (np.diag(with_both) > np.diag(with_weight) + 0.01).all()


@pytest.mark.parametrize(("name", "output", "error", "said"), [
    ("attention", "y", NotCompiledError, "a score, which stays random"),
    ("attention_fixed_head", "y", NotCompiledError, "stays random"),
    ("autoencoder_tied", "y", NotCompiledError, "used both as it is and transposed"),
    ("mlp", "nothing", ProgramError, "is not a vector"),
    ("mlp", "x", ProgramError, "depends on no parameter"),
])  # fmt: skip
def test_what_has_no_kernel(name: str, output: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        tp.ntk(tp.load(name), output)
    with pytest.raises(ProgramError, match="is no weight or initial vector"):
        tp.ntk(tp.load("mlp"), "f", parameters=["Q"])

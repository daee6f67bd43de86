"""Tangent kernels of networks of a finite width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp

Array = NDArray[Any]


def linear() -> tp.Program:
    P = tp.Program("linear")
    P.outputs(P.matmul("f", P.weight("W", 2), P.initial("x")))
    return P


def test_of_a_linear_map_the_kernel_is_the_average_of_squares() -> None:
    """f = W x: the kernel is 2 |x|**2 / n, of mean 2 and variance 8 / n."""
    found = tp.ntk(linear(), "f", width=32, samples=6000, seed=1)
    assert np.asarray(found).shape == (6000, 1, 1)
    assert abs(found.mean[0, 0] - 2) < 4.9 * found.mean_se[0, 0]
    assert found.mean_se[0, 0] < 0.01
    assert abs(found.deviation[0, 0] - 0.5) < 4.9 * found.deviation_se[0, 0] < 0.1


@pytest.mark.slow
def test_the_mean_is_the_kernel_of_the_limit_and_attention_keeps_its_spread() -> None:
    P = tp.Program("net")
    i = P.index("i", 2)
    u = P.matmul("u[i]", P.weight("W"), P.initial("x[i]", cov="0.6**abs(i - i_)")[i])
    P.outputs(P.matmul("f[i]", P.weight("V", 2), P.nonlin("h[i]", tp.relu(u[i]))[i]))
    limit, wide = np.asarray(tp.ntk(P, "f")), tp.ntk(P, "f", width=4096, samples=400)
    assert np.all(np.abs(wide.mean - limit) < 4.9 * wide.mean_se + 10 / 4096)
    attention = tp.ntk(tp.load("attention", H=2), "y", width=4096, samples=400)
    relative = [np.diag(k.deviation / k.mean).mean() for k in (wide, attention)]
    assert relative[0] < 0.05
    assert relative[1] > 0.06  # 0.03 would be that of an average over coordinates
    assert "4096" in str(attention)


def test_what_is_asked_wrongly_is_said() -> None:
    with pytest.raises(tp.TensorprogError, match="samples"):
        tp.ntk(linear(), "f", width=32, samples=1)
    with pytest.raises(tp.TensorprogError, match="directions"):
        tp.ntk(linear(), "f", width=32, directions=1)
    with pytest.raises(tp.TensorprogError, match="not a vector"):
        tp.ntk(linear(), "W", width=32)
    with pytest.raises(tp.TensorprogError, match=r'tp\.ntk\(P, "y", width=256\)'):
        tp.ntk(tp.load("attention"), "y")


def one_head() -> tp.Program:
    P = tp.Program("head")
    i, j = P.index("i", 2), P.index("j", 2)
    x = P.initial("x[i]", cov="0.5**abs(i - i_)")
    q, k = P.matmul("q[i]", P.weight("Q", 0.5), x[i]), P.matmul("k[i]", P.weight("K", 0.5), x[i])
    p = P.dot("p[i,j]", q[i], k[j])
    o = P.matmul("o[i]", P.weight("V", 2), x[i])
    P.outputs(P.nonlin("y[i]", tp.tanh(tp.sum[j](tp.softmax[j](p[i, j]) * o[j]))))
    return P


def dense_kernels(n: int, networks: int) -> Array:
    """The average over coordinates of inner products of complex-step derivatives, by every entry of every weight."""
    rng, step = np.random.default_rng(11), 1e-30
    factor = np.linalg.cholesky([[1, 0.5], [0.5, 1]])
    found = []
    for _ in range(networks):
        x = factor @ rng.standard_normal((2, n))
        weights = rng.standard_normal((3, n, n))  # Q, K and V as standard normals
        moved = weights + 1j * step * np.eye(3 * n * n).reshape(-1, 3, n, n)
        q, k, o = np.einsum("wcab,ib->cwia", moved, x) * np.sqrt(np.array([0.5, 0.5, 2]) / n)[:, None, None, None]
        attention = np.exp(q @ np.swapaxes(k, 1, 2) / math.sqrt(n))
        y = np.tanh(attention / attention.sum(axis=2, keepdims=True) @ o).imag / step
        found.append(np.einsum("wia,wja->ij", y, y) / n)
    return np.array(found)


def test_against_derivatives_of_dense_networks() -> None:
    found, dense = tp.ntk(one_head(), "y", width=4, samples=20_000, directions=8, seed=3), dense_kernels(4, 6000)
    deviation = dense.std(axis=0)
    deviation_se = ((dense - dense.mean(axis=0)) ** 2).std(axis=0) / math.sqrt(6000) / (2 * deviation)
    for own, own_se, other, other_se in (
        (found.mean, found.mean_se, dense.mean(axis=0), deviation / math.sqrt(6000)),
        (found.deviation, found.deviation_se, deviation, deviation_se),
    ):
        error = np.hypot(own_se, other_se)
        assert (error < 0.08 * other).all()
        assert np.abs((own - other) / error).max() < 4


def test_kernel_of_the_values_of_attention_in_the_limit() -> None:
    P = tp.Program("values")
    i, j = P.index("i", 4), P.index("j", 4)
    x = P.initial("x[i]")
    q, k = P.matmul("q[i]", P.weight("Q", 2), x[i]), P.matmul("k[i]", P.weight("K", 2), x[i])
    p = P.dot("p[i,j]", q[i], k[j])
    o = P.matmul("o[i]", P.weight("V"), x[i])
    P.outputs(P.nonlin("y[i]", tp.sum[j](tp.softmax[j](p[i, j]) * o[j])))
    found = tp.ntk(P, "y", parameters=["V"], width=256, samples=2000, seed=1)
    # tokens are orthogonal in the limit, and scores independent with variance 4: the kernel is sum_j softmax(p)_j**2
    g = np.exp(2 * np.random.default_rng(5).standard_normal((1_000_000, 4)))
    limit = ((g / g.sum(axis=1, keepdims=True)) ** 2).sum(axis=1)
    assert abs(found.mean[0, 0] - limit.mean()) < 4 * found.mean_se[0, 0] + 4 / 256
    assert abs(found.deviation[0, 0] - limit.std()) < 4 * found.deviation_se[0, 0] + 4 / 256
    assert found.deviation_se[0, 0] < 0.05 * found.deviation[0, 0]


def test_transposes_and_widths_that_stay_finite() -> None:
    for name in ("autoencoder_tied", "attention_fixed_head"):
        found = tp.ntk(tp.load(name), "y", width=16, samples=50)
        assert (np.diag(found.mean) > 3 * np.diag(found.mean_se)).all()
    with pytest.raises(tp.MemoryLimitError):
        tp.ntk(tp.load("attention"), "y", width=256, max_memory=1000)

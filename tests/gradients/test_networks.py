"""Tangent kernels of networks of a finite width."""

from __future__ import annotations

import numpy as np
import pytest

import tensorprog as tp


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


def test_noise_of_directions_is_taken_off() -> None:
    few, many = (tp.ntk(linear(), "f", width=32, samples=3000, directions=k, seed=k) for k in (2, 8))
    assert np.asarray(few).std() > 1.1 * np.asarray(many).std()  # with the noise
    error = np.hypot(few.deviation_se, many.deviation_se)
    assert np.all(np.abs(few.deviation - many.deviation) < 4.9 * error)


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

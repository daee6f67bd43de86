"""Products of smooth functions of one Gaussian variable, each with parameters of its own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from tensorprog.gaussian.shared_line import on_shared_line

LAW = 0.3, 1.7


def _expected(f) -> float:
    mean, deviation = LAW
    return quad(
        lambda z: f(mean + deviation * z) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi), -12, 12, epsabs=1e-13, limit=400,
        points=[0.0],
    )[0]  # fmt: skip


def test_products_with_parameters_of_their_own_and_in_common() -> None:
    a, b, c = np.arange(3.0), np.array([0.5, 2.0]), np.arange(4.0)
    found = on_shared_line(lambda x: [
        (("a",), np.cos(a[:, None] * x)), (("b", "a"), np.tanh(b[:, None, None] * x + a[:, None])),
        (("c",), np.sin(c[:, None] * x)), ((), x),
    ], *LAW)  # fmt: skip
    assert found is not None
    axes, values, error = found
    order = [axes.index(name) for name in "abc"]
    values = values.transpose(order)
    assert values.shape == (3, 2, 4)
    assert 0 < error < 1e-12
    for i, j, k in np.ndindex(values.shape):
        exact = _expected(lambda x, i=i, j=j, k=k: np.cos(a[i] * x) * np.tanh(b[j] * x + a[i]) * np.sin(c[k] * x) * x)
        assert abs(values[i, j, k] - exact) < error + 1e-12


@pytest.mark.parametrize("f", [
    lambda x: np.tanh(3000 * (x - 0.123)),  # sharper than any of the rules
    lambda x: np.exp(x * x),  # infinite
    lambda x: np.exp(20 * x),  # with its mass beyond the nodes
    np.log,  # no number
])  # fmt: skip
def test_what_is_not_resolved_is_not_answered(f) -> None:
    assert on_shared_line(lambda x: [((), f(x)), ((), np.cos(x)), ((), np.ones_like(x))], *LAW) is None

"""Errors that the laws of outputs state: they cover the truth, and are not much larger than what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import tensorprog as tp
from tensorprog import Law
from tests.reading import loads

Array = NDArray[Any]
GRID = np.array([-6.0, -3.0, -1.5, -0.4, 0.0, 0.8, 2.0, 4.0])


def exact(name: str, var: Array, weights: Array) -> Array:
    """The same number from the values of V: var, weights (values,)."""
    sd = np.sqrt(var)[:, None]
    second, fourth, sixth = weights @ var, 3 * weights @ var**2, 15 * weights @ var**3
    known = {"variance": second, "fourth moment": fourth, "sixth moment": sixth, "kurtosis": fourth / second**2}
    known |= {"density": weights @ stats.norm.pdf(GRID, scale=sd), "cdf": weights @ stats.norm.cdf(GRID, scale=sd)}
    return np.asarray(known[name])


def test_moments_of_infinitely_many_heads_carry_the_error_of_the_variance() -> None:
    limit = tp.load("attention", H=3, s=2).limit().infinite_heads("a")
    var, off = limit.var("y[0]", with_error=True)
    assert off > 0
    for order, factor in ((2, 1), (4, 3), (6, 15)):
        value, error = limit.moment("y[0]", order, with_error=True)
        change = factor * (var + off) ** (order // 2) - value
        assert error == pytest.approx(change, rel=1e-2)
    assert limit.moment("y[0]", 3, with_error=True) == (0.0, 0.0)


AVERAGED = """
program: averaged
initial:
  h: {cov: 1}
weights: {A: 1, B: 1, V: 1, Q: 1, K: 1}
body:
  - u = MatMul(A, h)
  - w = MatMul(B, h)
  - x = Nonlin(erf(u))
  - q = MatMul(Q, x)
  - k = MatMul(K, x)
  - p = Dot(q, k)
  - v = MatMul(V, x)
  - a = Nonlin(tanh(3*u*w + p))
  - m = Dot(a, a, scale=1/n)
  - y = Nonlin(m*v + m)
outputs: [y]
"""


def panels(edges: Array) -> tuple[Array, Array]:
    """Nodes and weights of a rule for a standard normal variable."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    low, high = edges[:-1, None], edges[1:, None]
    x = ((high - low) / 2 * nodes + (high + low) / 2).reshape(-1)
    return x, ((high - low) / 2 * weights).reshape(-1) * stats.norm.pdf(x)


@pytest.mark.slow
def test_errors_of_averages_are_in_the_moments_of_what_they_multiply() -> None:
    """m(p) = E tanh(3 u w + p)**2 has no closed form: for each p it comes from a rule in two variables."""
    spread = 2 / np.pi * np.arcsin(2 / 3)  # E erf(u)**2: the variance of v, and the deviation of p
    ends = np.geomspace(0.01, 10, 14)
    u, weights = panels(np.concatenate([-ends[::-1], [0.0], ends]))
    p, own = panels(np.arange(-10.0, 11.0, 2.0))
    each = np.array([weights @ np.square(np.tanh(3 * np.outer(u, u) + spread * z)) @ weights for z in p])
    mean, second = own @ each, own @ each**2
    law = Law(loads(AVERAGED))
    for (value, error), exact in (
        (law.mean("y", with_error=True), mean), (law.var("y", with_error=True), second * (1 + spread) - mean**2)
    ):  # fmt: skip
        assert abs(value - exact) <= error <= 0.01 * exact

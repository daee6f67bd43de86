"""Gated networks on two tokens, whose covariances are integrals in few variables: a sharp test of stated errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.programs.sentences import gram, sigmoid
from tests.programs.test_shipped_limits import PROGRAMS, limit, on

Array = NDArray[np.float64]
BIAS = 0.1


def expectation(f: Callable[..., Array], *covariances: Array, nodes: int) -> float:
    """E f(x, y, ..) of independent normal vectors with these covariances, by the product of Gauss-Hermite rules.

    f takes each vector as an array (size, points).
    """
    sizes = [len(covariance) for covariance in covariances]
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[points] * sum(sizes), indexing="ij")).reshape(sum(sizes), -1)
    weight = np.prod(np.meshgrid(*[weights / weights.sum()] * sum(sizes), indexing="ij"), axis=0).reshape(-1)
    parts = np.split(grid, np.cumsum(sizes)[:-1])
    return float(weight @ f(*(np.linalg.cholesky(c) @ part for c, part in zip(covariances, parts, strict=True))))


def gru(tokens: Array) -> Array:
    """h1 = z1 c1 and h2 = (1 - z2) h1 + z2 c2: gates and proposals are independent, both pairs correlated."""
    inputs = tokens + BIAS

    def later(moment: float) -> Array:
        """Covariance of what a gate reads: nothing of the state at first, its second moment then."""
        return inputs + np.diag([0.0, moment])

    def z(*powers: int) -> float:
        """E of z1, z2 and 1 - z2 to these powers."""
        return expectation(lambda g: sigmoid(g[0]) ** powers[0] * sigmoid(g[1]) ** powers[1]
                           * sigmoid(-g[1]) ** powers[2], later(first), nodes=60)

    def c(one: int, two: int) -> float:
        return expectation(lambda g: np.tanh(g[0]) ** one * np.tanh(g[1]) ** two, later(reset), nodes=60)

    own = inputs[:1, :1]

    def square(function: Callable[[Array], Array], covariance: Array) -> float:
        return expectation(lambda g: function(g[0]) ** 2, covariance, nodes=60)

    first = square(sigmoid, own) * square(np.tanh, own)
    reset = first * square(sigmoid, later(first)[1:, 1:])
    second = z(2, 0, 2) * c(2, 0) + 2 * z(1, 1, 1) * c(1, 1) + z(0, 2, 0) * c(0, 2)
    cross = z(2, 0, 1) * c(2, 0) + z(1, 1, 0) * c(1, 1)
    return np.array([[first, cross], [cross, second]])


def lstm(tokens: Array) -> Array:
    """c1 = i1 g1, c2 = f2 c1 + i2 g2, h = o tanh(c): at most five variables, the output gate apart."""
    inputs = tokens + BIAS

    def cells(nodes: int, covariance: Array, one: int, two: int) -> float:
        """E of tanh(c1), tanh(c2) to these powers."""
        def inner(i: Array, g: Array, f: Array) -> Array:
            before = sigmoid(i[0]) * np.tanh(g[0])
            after = sigmoid(f[0] + 1) * before + sigmoid(i[1]) * np.tanh(g[1])
            return np.asarray(np.tanh(before) ** one * np.tanh(after) ** two)

        return expectation(inner, covariance, covariance, covariance[1:, 1:], nodes=nodes)

    def gate(covariance: Array, one: int, two: int) -> float:
        return expectation(lambda o: sigmoid(o[0]) ** one * sigmoid(o[1]) ** two, covariance, nodes=60)

    first = gate(inputs, 2, 0) * cells(16, inputs, 2, 0)  # nothing here depends on the second token
    later = inputs + np.diag([0.0, first])
    powers = {(0, 0): (2, 0), (0, 1): (1, 1), (1, 1): (0, 2)}
    moments = {place: gate(later, *power) * cells(16, later, *power) for place, power in powers.items()}
    return np.array([[moments[0, 0], moments[0, 1]], [moments[0, 1], moments[1, 1]]])


@pytest.mark.slow
@pytest.mark.parametrize("exact", [gru, lstm], ids=lambda exact: exact.__name__)
def test_two_tokens(exact: Callable[[Array], Array], tmp_path: Path) -> None:
    tokens = np.load(PROGRAMS["rnn"].parent / "data" / "tokens.npy")[:2]
    law = limit(on(tokens, exact.__name__, tmp_path, S=2, T=2))
    found, error = law.cov("y", with_error=True)
    assert np.max(error) < 1e-3 * found[0, 0]
    np.testing.assert_array_less(np.abs(found - exact(gram(tokens))), np.asarray(error) + 1e-9)

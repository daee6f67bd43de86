"""Gated networks on two tokens, whose covariances are integrals in few variables: a sharp test of stated errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.programs.sentences import gram, sigmoid
from tests.programs.test_shipped_limits import PROGRAMS, on

Array = NDArray[np.float64]
BIAS = 0.1
NODES = 100  # in one direction, where there are at most two


def expectation(f: Callable[..., Array], *vectors: tuple[Array, int]) -> float:
    """E f(x, y, ..) of independent normal vectors, each given by covariance and Gauss-Hermite nodes in a direction.

    f takes each vector as an array (size, points).
    """
    rules = [np.polynomial.hermite_e.hermegauss(nodes) for covariance, nodes in vectors for _ in covariance]
    grid = np.stack(np.meshgrid(*[points for points, _ in rules], indexing="ij")).reshape(len(rules), -1)
    weight = reduce(np.multiply.outer, [weights / weights.sum() for _, weights in rules]).reshape(-1)
    parts = np.split(grid, np.cumsum([len(covariance) for covariance, _ in vectors])[:-1])
    return float(weight @ f(*(np.linalg.cholesky(c) @ part for (c, _), part in zip(vectors, parts, strict=True))))


def gru(tokens: Array) -> Array:
    """h1 = z1 c1 and h2 = (1 - z2) h1 + z2 c2: gates and proposals are independent, both pairs correlated."""
    inputs = tokens + BIAS

    def later(moment: float) -> Array:
        """Covariance of what a gate reads: nothing of the state at first, its second moment then."""
        return inputs + np.diag([0.0, moment])

    def z(*powers: int) -> float:
        """E of z1, z2 and 1 - z2 to these powers."""
        return expectation(
            lambda g: sigmoid(g[0]) ** powers[0] * sigmoid(g[1]) ** powers[1] * sigmoid(-g[1]) ** powers[2],
            (later(first), NODES),
        )

    def c(one: int, two: int) -> float:
        return expectation(lambda g: np.tanh(g[0]) ** one * np.tanh(g[1]) ** two, (later(reset), NODES))

    own = inputs[:1, :1]

    def square(function: Callable[[Array], Array], covariance: Array) -> float:
        return expectation(lambda g: function(g[0]) ** 2, (covariance, NODES))

    first = square(sigmoid, own) * square(np.tanh, own)
    reset = first * square(sigmoid, later(first)[1:, 1:])
    second = z(2, 0, 2) * c(2, 0) + 2 * z(1, 1, 1) * c(1, 1) + z(0, 2, 0) * c(0, 2)
    cross = z(2, 0, 1) * c(2, 0) + z(1, 1, 0) * c(1, 1)
    return np.array([[first, cross], [cross, second]])


def lstm(tokens: Array) -> Array:
    """c1 = i1 g1, c2 = f2 c1 + i2 g2, h = o tanh(c): at most five variables, the output gate apart."""
    inputs = tokens + BIAS

    def cell(i: Array, g: Array) -> Array:
        return np.asarray(sigmoid(i[0]) * np.tanh(g[0]))

    def both(i: Array, g: Array, f: Array) -> tuple[Array, Array]:
        return cell(i, g), sigmoid(f[0] + 1) * cell(i, g) + cell(i[1:], g[1:])

    def gate(one: int, two: int) -> float:
        return expectation(lambda o: sigmoid(o[0]) ** one * sigmoid(o[1]) ** two, (later, NODES))

    own = inputs[:1, :1]
    first = expectation(lambda o: sigmoid(o[0]) ** 2, (own, NODES)) * expectation(
        lambda i, g: np.tanh(cell(i, g)) ** 2, (own, NODES), (own, NODES)
    )
    later = inputs + np.diag([0.0, first])
    # the gates are smoother than tanh: fewer nodes for them
    vectors = (later, 14), (later, 44), (later[1:, 1:], 10)
    cross = gate(1, 1) * expectation(lambda *parts: np.prod(np.tanh(both(*parts)), axis=0), *vectors)
    second = gate(0, 2) * expectation(lambda *parts: np.tanh(both(*parts)[1]) ** 2, *vectors)
    return np.array([[first, cross], [cross, second]])


# five directions want more nodes than there is room for: at fewer by a fifth the integrals change by 5e-7
@pytest.mark.slow
@pytest.mark.parametrize("exact", [gru, lstm], ids=lambda exact: exact.__name__)
def test_two_tokens(exact: Callable[[Array], Array], tmp_path: Path) -> None:
    tokens = np.load(PROGRAMS["rnn"].parent / "data" / "tokens.npy")[:2]
    law = on(tokens, exact.__name__, tmp_path, S=2, T=2).limit()
    found, error = law.cov("y", with_error=True)
    assert np.max(error) < 1e-3 * found[0, 0]
    np.testing.assert_array_less(np.abs(found - exact(gram(tokens))), np.asarray(error) + 5e-7)

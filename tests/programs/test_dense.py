"""Shipped architectures against whole networks in plain numpy, at one width and in the limit."""

from __future__ import annotations

import numpy as np
import pytest

import tensorprog as tp
from tests.programs.dense import NETWORKS, Array, moments

WIDTH, SAMPLES = 16, 4000


def drawn(program: tp.Program, width: int, networks: int) -> Array:
    """All coordinates of the output of networks that the package draws, (networks, n, tokens)."""
    found = program.run(width, networks, seed=1, coordinates=width)
    return np.asarray(found[found.outputs[0]]).reshape(networks, width, -1)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_one_width_have_the_moments_of_the_program(name: str) -> None:
    ours, error = moments(drawn(tp.load(name), WIDTH, SAMPLES))
    theirs, slack = moments(NETWORKS[name](WIDTH, SAMPLES, np.random.default_rng(2)))
    np.testing.assert_array_less(np.abs(ours - theirs), 4.9 * np.hypot(error, slack) + 1e-12)


@pytest.mark.parametrize("name", [*NETWORKS, *(pytest.param(name, marks=pytest.mark.slow) for name in ("gru", "lstm"))])
def test_networks_of_growing_width_have_the_second_moments_of_the_limit(name: str) -> None:
    """(4 m(256) - m(64)) / 3 has no term in 1/n; what is left, of order 1/n**2, is below the standard error."""
    program = tp.load(name)
    law = program.limit()
    found, uncertain = (np.atleast_2d(part) for part in law.cov(law.outputs[0], with_error=True))
    upper = np.triu_indices(len(found))
    first, second = (moments(drawn(program, width, 2000)) for width in (64, 256))
    size = len(upper[0])
    value, error = (4 * second[0] - first[0])[:size] / 3, np.hypot(4 * second[1], first[1])[:size] / 3
    np.testing.assert_array_less(np.abs(value - found[upper]), 4.9 * error + uncertain[upper] + 1e-12)

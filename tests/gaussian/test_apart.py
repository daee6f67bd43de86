"""Pairs of smooth functions, each of independent Gaussian variables, beside sums over the whole law."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorprog.gaussian.apart import Side, cross_of_sides
from tensorprog.gaussian.estimate import Estimate

Array = NDArray[Any]
VARIANCES = np.array([[1.95, 0.37], [0.6, 0.9], [0.0, 1.2]])  # of the two variables of three members


def nested(z: Array) -> Array:
    return np.asarray(np.tanh(np.tanh(z[..., 0, :]) + z[..., 1, :]))


def one(z: Array) -> Array:
    return np.asarray(z[..., 0, :] * np.exp(-(z[..., 0, :] ** 2)))


def exact(value: Any, error: float = 0.0) -> Estimate:
    array = np.asarray(value, dtype=float)
    return Estimate(array, np.full(array.shape, error))


def whole(f: Any, g: Any, v: Array, w: Array, rho: Array, mean: float = 0.0) -> float:
    """E f g over four variables, on a grid of equal steps; of the second pair of variables first."""
    z = np.linspace(-8.5, 8.5, 52)
    p = np.exp(-z * z / 2) * (z[1] - z[0]) / np.sqrt(2 * np.pi)
    a, b = np.meshgrid(z, z, indexing="ij")
    left = [np.sqrt(v[k]) * a for k in range(2)]
    right = [np.sqrt(w[k]) * (rho[k] * a + np.sqrt(1 - rho[k] ** 2) * b) for k in range(2)]
    total = 0.0
    for i, j in product(range(len(z)), repeat=2):
        values = f(np.stack([np.full(a.size, left[0][i, j] + mean), left[1].ravel()]))
        values = values * g(np.stack([np.full(a.size, right[0][i, j] + mean), right[1].ravel()]))
        total += p[i] * p[j] * float(np.outer(p, p).ravel() @ values)
    return total


@pytest.mark.parametrize("second", [nested, one])
def test_pairs_are_those_of_sums_over_four_variables(second: Any) -> None:
    rho = np.array([0.7, -0.9])
    first = Side(nested, [exact(np.full((3, 1), 0.3)), exact(np.zeros((3, 1)))],
                 [exact(VARIANCES[:, [k]]) for k in range(2)])  # fmt: skip
    count = 2 if second is nested else 1
    other = Side(second, [exact(np.full((1, 3), m)) for m in (0.3, 0.0)[:count]],
                 [exact(VARIANCES[:, k][None]) for k in range(count)])  # fmt: skip
    cov = [exact(rho[k] * np.sqrt(np.multiply.outer(*[VARIANCES[:, k]] * 2))) for k in range(count)]
    found = cross_of_sides(first, other, cov, 1e-5)
    assert found is not None
    assert found.value.shape == (3, 3)
    for i, j in product(range(3), repeat=2):
        if VARIANCES[i, 0] * VARIANCES[j, 0] == 0 != VARIANCES[i, 0] + VARIANCES[j, 0]:
            continue  # a variable and a number: the same rule, at a correlation of 0
        expected = whole(nested, second, VARIANCES[i], VARIANCES[j], rho, 0.3)
        assert abs(found.value[i, j] - expected) <= found.error[i, j] + 1e-9
        assert found.error[i, j] < 1e-4


def test_a_function_and_its_copy_are_evaluated_once_and_pieces_are_the_whole() -> None:
    generator = np.random.default_rng(5)
    variances = generator.uniform(0.3, 2.0, (500, 2, 2))
    calls = []

    def counted(z: Array) -> Array:
        calls.append(z.shape)
        return nested(z)

    def sides(rows: slice, text: Any) -> tuple[Side, Side, list[Estimate]]:
        part = variances[rows]
        zero = exact(np.zeros((len(part), 1, 1)))
        laws = ([exact(part[..., k].reshape(len(part), *shape)) for k in range(2)] for shape in ((2, 1), (1, 2)))
        one, two = (Side(counted, [zero, zero], law, text) for law in laws)
        roots = np.sqrt(part)
        return one, two, [exact(0.5 * roots[:, :, None, k] * roots[:, None, :, k]) for k in range(2)]

    whole = cross_of_sides(*sides(slice(None), "same"), 3e-5)
    made = len(calls)
    apart = cross_of_sides(*sides(slice(None), None), 3e-5)
    assert len(calls) == 3 * made
    assert whole is not None and apart is not None
    np.testing.assert_array_equal(whole.value, apart.value)
    few = cross_of_sides(*sides(slice(7, 9), "same"), 3e-5)
    assert few is not None
    assert np.all(np.abs(few.value - whole.value[7:9]) <= few.error + whole.error[7:9])


def test_errors_of_moments_count() -> None:
    """The stated error is at least what moving a moment by its error does, and not a hundred times as much."""
    zero, cov = exact(np.zeros((1, 1))), 0.4
    base = [1.1, 0.5, 0.9, 0.7]  # variances of the left and of the right variables

    def found(values: list[float], error: float, off: float = 0.0) -> Estimate:
        v = [exact([[value]], error) for value in values]
        answer = cross_of_sides(Side(nested, [zero, zero], v[:2]), Side(nested, [zero, zero], v[2:]),
                                [exact([[cov + off]], error), exact([[0.2]], error)], 1e-8)  # fmt: skip
        assert answer is not None
        return answer

    plain, moved = found(base, 0.0), found(base, 1e-3)
    own = float((moved.error - plain.error).item())
    changes = [abs(found([v + 1e-3 * (k == m) for m, v in enumerate(base)], 0.0).value - plain.value).item()
               for k in range(4)]  # fmt: skip
    changes.append(abs(found(base, 0.0, 1e-3).value - plain.value).item())
    assert sum(changes) <= own <= 100 * sum(changes)
    assert cross_of_sides(Side(nested, [zero, zero], [exact([[1e-4]], 1e-3)] * 2), Side(nested, [zero, zero], [exact(
        [[1.0]])] * 2), [exact([[0.0]])] * 2, 1e-5) is None  # fmt: skip

"""Matrices whose entries are computed when they are read, against rules with 19 digits and against `cross`."""

import operator

import numpy as np
import pytest
from gaussian_functions import FUNCTIONS

from tensorprog.gaussian import Estimate, RealFunction, cross
from tensorprog.gaussian import FunctionTerm as Term
from tensorprog.gaussian.pairs import SIDE, Pairs

LONG = np.longdouble
SMOOTH = {
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "own": lambda x: np.sin(x) + x / (2 + np.cos(x)),
}


def gram(count, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 32)) * rng.uniform(0.4, 1.3, (count, 1))
    return x @ x.T / 32 + 0.05


def exact(call, v, w, c):
    """E f(X) f(Y) by the trapezoidal rule, in extended precision."""
    z = np.arange(-140, 141, dtype=LONG) / 14
    weights = np.exp(-z * z / 2) / np.sqrt(2 * LONG(np.pi)) / 14
    weights /= weights.sum()
    v, w, c = map(LONG, (v, w, c))
    rest = np.sqrt(w - c * c / v)
    inner = call(c / np.sqrt(v) * z[:, None] + rest * z) @ weights
    return call(np.sqrt(v) * z) * weights @ inner


@pytest.mark.parametrize("name", ["tanh", *(pytest.param(n, marks=pytest.mark.slow) for n in SMOOTH if n != "tanh")])
def test_two_hundred_pairs_against_nineteen_digits(name):
    call = SMOOTH[name]
    f = RealFunction(lambda x: np.asarray(call(x), np.float64), np.zeros(0), np.array([[0.0, 1.0]]))
    k = gram(150)
    found = Pairs.of(k, np.zeros(len(k))).under(f)
    assert found is not None
    rng = np.random.default_rng(1)
    off = []
    for i, j in rng.integers(len(k), size=(200, 2)):
        truth = exact(call, k[i, i], k[j, j], k[i, j]) if i != j else exact(call, k[i, i], k[i, i], k[i, i])
        off.append(abs(LONG(found.estimate.value[i, j]) - truth) / found.estimate.error[i, j])
    assert max(off) <= 1
    assert max(off) >= 0.01  # and the error is not a hundred times too large


@pytest.mark.parametrize("name", ["relu", "abs", "erf", "gelu", "tanh", "cube", "bell"])
def test_matrices_meet_pairs_of_variables(name):
    f = FUNCTIONS[name]
    k = gram(2 * SIDE + 30)
    v = np.diag(k)
    size = np.full(len(k), 1e-14)
    found = Pairs.of(k, size).under(f)
    assert found is not None
    other = cross(
        f, f, 0, 0, Estimate(v[:, None], size[:, None]), Estimate(v, size), Estimate(k, np.full(k.shape, 1e-14))
    )
    assert np.array_equal(found.estimate.value, found.estimate.value.T)
    assert np.all(np.abs(found.estimate.value - other.value) <= found.estimate.error + other.error)
    assert np.max(found.estimate.error / np.sqrt(np.outer(np.diag(other.value), np.diag(other.value)))) < 1e-11


@pytest.mark.parametrize("name", ["relu", "erf", "tanh", "gelu", "bell"])
def test_errors_of_matrices_are_passed_on(name):
    f, k = FUNCTIONS[name], gram(120)
    noise = np.random.default_rng(3).standard_normal((120, 400))
    scale = np.sqrt(np.diag(k))
    moved = k + 1e-11 * np.outer(scale, scale) * (noise @ noise.T / 400)
    errors = 2.5e-11 * np.diag(k)
    one, two = (Pairs.of(matrix, errors).under(f) for matrix in (k, moved))
    assert one is not None and two is not None
    apart = np.abs(one.estimate.value - two.estimate.value)
    assert np.all(apart <= one.estimate.error)
    assert apart.max() > one.estimate.error.max() / 60


def test_sums_and_products():
    a, b = gram(140), gram(140, 1)
    one, two = (Pairs.of(k, np.full(len(k), 1e-13)) for k in (a, b))
    for operation, whole in ((operator.add, a + b), (operator.mul, a * b)):
        found = one.combined(two, operation)
        assert np.array_equal(found.estimate.value, whole)
        assert np.all(
            found.estimate.error >= operation(*(Estimate(k, np.full(k.shape, 1e-13)) for k in (a, b))).error / 4
        )
        number = operation(a, 0.3)
        assert np.array_equal(one.combined(Estimate.exact(0.3), operation).estimate.value, number)
    size = np.sqrt(np.diag(number))
    others = np.abs(number / np.outer(size, size)) - np.eye(140)
    assert others.max() <= one.combined(Estimate.exact(0.3), operation).near * (1 + 1e-14)


@pytest.mark.parametrize("name", ["relu", "tanh", "gelu", "erf", "cube"])
def test_no_correlation_is_larger_than_was_said(name):
    found = Pairs.of(gram(120), np.zeros(120)).under(FUNCTIONS[name])
    size = np.sqrt(np.diag(found.estimate.value))
    assert np.max(np.abs(found.estimate.value) / np.outer(size, size) - np.eye(120)) <= found.near * (1 + 1e-12)


@pytest.mark.parametrize("name", ["clip", "tanh"])
def test_pairs_too_close_for_a_series_are_taken_apart(name):
    f, x = FUNCTIONS[name], np.random.default_rng(2).standard_normal((SIDE + 12, 32))
    x[1], x[2], x[SIDE], x[5] = x[0], -x[0], x[0] + 1e-9, x[SIDE + 1] + 0.1 * x[3]
    k = 2 * x @ x.T / 32
    found, v = Pairs.of(k, 4e-16 * np.diag(k)).under(f), np.diag(k)
    assert found is not None
    other = cross(f, f, 0, 0, v[:, None], v, Estimate(k, 4e-16 * np.sqrt(np.outer(v, v))), slack=np.inf)
    assert np.array_equal(found.estimate.value, found.estimate.value.T)
    assert np.all(np.abs(found.estimate.value - other.value) <= found.estimate.error + other.error)
    assert found.estimate.error.max() < 1e-11


def test_what_is_not_rounding_is_left_to_others():
    assert Pairs.of(gram(120), np.full(120, 1e-6)).under(FUNCTIONS["tanh"]) is None
    assert Pairs.of(np.diag([0.0, *np.ones(9)]), np.zeros(10)).under(FUNCTIONS["tanh"]) is None
    k = gram(120)
    k[1] = k[0]
    k[:, 1] = k[:, 0]
    step = RealFunction(lambda x: np.sign(x), np.zeros(1), parity=-1, terms=(Term(2.0, 0, "step"), Term(-1.0, 0)))
    assert Pairs.of(k, np.zeros(120)).under(step) is None

import numpy as np
import pytest
from gaussian_functions import FUNCTIONS

from tensorprog.gaussian import Estimate, FunctionTerm, mean
from tensorprog.gaussian.function import terms_product
from tests.terms import from_terms, terms_call

X = np.linspace(-3, 3, 101)


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.terms is not None])
def test_terms_sum_to_the_function(name):
    f = FUNCTIONS[name]
    assert np.allclose(terms_call(f.terms)(X), f.call(X), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_affine_precomposition_moves_everything_along(name):
    f = FUNCTIONS[name]
    a, b = np.array([[2.0], [-0.5]]), 0.25
    moved = f.affine(a, b)
    x = np.broadcast_to(X, (2, 1, X.size))
    assert np.allclose(moved.call(x), f.call(a[..., None] * x + b))
    direct, expected = mean(moved, 0.3, 1.2), mean(f, a * 0.3 + b, a**2 * 1.2)
    assert np.all(np.abs(direct.value - expected.value) <= direct.error + expected.error + 1e-15)


def test_sums_and_polynomial_factors():
    both = FUNCTIONS["tanh"].joined(FUNCTIONS["relu"].affine(2.0), np.add)
    assert np.allclose(both.call(X), np.tanh(X) + 2 * np.maximum(X, 0))
    assert both.kinks.tolist() == [0.0]
    terms = terms_product((FunctionTerm(1.0, 1, "sin"),), (FunctionTerm(2.0, 0), FunctionTerm(3.0, 1)))
    assert np.allclose(terms_call(terms)(X), (2 + 3 * X) * X * np.sin(X))
    f = from_terms((FunctionTerm(1.0, 0), FunctionTerm(2.0, 1), FunctionTerm(3.0, 2)))
    assert np.allclose(f.call(X), 1 + 2 * X + 3 * X**2)
    g = from_terms((FunctionTerm(1.0, 0, "step", 2.0, -1.0), FunctionTerm(1.0, 0, "erf", 2.0)))
    assert g.kinks.tolist() == [0.5]
    assert g.features.tolist() == [[0.0, 0.5]]


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="unknown kind"):
        FunctionTerm(1.0, 0, "tanh")
    with pytest.raises(ValueError, match="power"):
        FunctionTerm(1.0, -1)


def test_estimates_carry_their_errors():
    a, b = Estimate(np.array([1.0, 2.0]), np.array([0.1, 0.2])), Estimate(np.array(3.0), np.array(0.5))
    assert np.allclose((a + b).error, [0.6, 0.7])
    assert np.allclose((a * b).error, [0.5 + 0.3 + 0.05, 1.0 + 0.6 + 0.1])
    assert np.allclose((2 * a).value, [2, 4])
    assert np.allclose((np.array([1.0, 3.0]) * a).value, [1, 6])
    zero = Estimate.exact(0.0) * b
    assert zero.value == 0
    assert zero.error == 0

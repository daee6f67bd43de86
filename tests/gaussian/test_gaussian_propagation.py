"""Expectations under laws that carry errors: what is stated covers every law within the errors, and little more."""

from itertools import product

import numpy as np
import pytest
from gaussian_functions import FUNCTIONS

from tensorprog.gaussian import Estimate, FunctionTerm, cross, mean
from tests.terms import from_terms

FUNCTIONS = FUNCTIONS | {
    "one": from_terms((FunctionTerm(1.0, 0),), parity=1),
    "sign": from_terms((FunctionTerm(2.0, 0, "step"), FunctionTerm(-1.0, 0)), parity=-1),
    "positive": from_terms((FunctionTerm(1.0, 0, "step"),)),
}
# pairs with a kernel whose value depends on the variances
KERNELS = ["relu relu", "abs abs", "erf erf", "sign erf", "identity sign", "identity erf", "relu abs", "relu erf",
           "abs positive", "positive abs", "one relu"]  # fmt: skip
SIZE = 1e-6  # of the errors, relative to the variances: second order is 1e-6 of first
LAWS = [(v, w, rho * np.sqrt(v * w)) for v in (1.0, 0.2, 30.0) for w in (1.0, 4.0) for rho in (0.0, 0.3, -0.8, 0.9)]


def assert_covers(call, estimated, args, errors, most):
    """The stated error covers the change at every corner of the box of errors; it is at most `most` times the largest.

    Where nothing changes to first order, there is nothing to say from above.
    """
    found = estimated(*(Estimate(np.array([a]), np.array([e])) for a, e in zip(args, errors, strict=True)))
    exact = call(*args)
    assert found.value.item() == exact.value.item()
    corners = np.array(list(product([-1, 1], repeat=len(args)))).T
    moved = call(*(a + signs * e for a, signs, e in zip(args, corners, errors, strict=True)))
    worst = np.abs(moved.value - exact.value).max()
    rounding = moved.error.max() + exact.error.max()
    assert worst <= (1 + 10 * SIZE) * found.error.item() + rounding
    if worst > 1e-3 * SIZE * abs(exact.value):
        assert found.error.item() <= most * worst + rounding


def pair(names):
    f, g = (FUNCTIONS[name] for name in names.split())

    def estimated(mu_f, mu_g, var_f, var_g, cov):
        return cross(f, g, mu_f, mu_g, var_f, var_g, cov, slack=np.inf)

    def call(*args):
        return cross(f, g, *args, slack=np.inf)

    return call, estimated


@pytest.mark.parametrize("wrong", [(2,), (3,), (4,), (2, 3, 4)], ids=["first", "second", "covariance", "all"])
@pytest.mark.parametrize("names", KERNELS)
def test_kernels_carry_the_errors_of_a_layer_before(names, wrong):
    for v, w, c in LAWS:
        errors = [SIZE * size if k in wrong else 0.0 for k, size in enumerate([0, 0, v, w, np.sqrt(v * w)])]
        assert_covers(*pair(names), [0.0, 0.0, v, w, c], errors, 50)


def test_the_error_of_a_variance_moves_the_mean_of_a_modulus():
    """E |X| = sqrt(2 v / pi): its derivative by v, with a bound of at most twice as much."""
    call, estimated = pair("one abs")
    for var in (0.3, 1.0, 50.0):
        for size in (1e-8, 1e-6):
            args = [0.0, 0.0, 1.0, var, 0.0]
            found = estimated(*(Estimate(np.array([a]), np.array([size * a * (k == 3)])) for k, a in enumerate(args)))
            slope = np.sqrt(2 * var / np.pi) * size / 2
            assert slope <= found.error.item() <= 2 * slope + call(*args).error.item()


def test_a_constant_beside_an_uncertain_variance_counts_with_its_value_at_zero():
    """1 - step(x) is 1 at 0, where there is no variance, and 1/2 on average elsewhere."""
    down = from_terms((FunctionTerm(1.0, 0), FunctionTerm(-1.0, 0, "step")))
    size = from_terms((FunctionTerm(2.0, 1, "step"), FunctionTerm(-1.0, 1)), parity=1)
    zero, exact = Estimate.exact(np.zeros(2)), np.array([0.0, 1.0])
    found = cross(down, size, zero, zero, exact, Estimate(np.ones(2), np.full(2, 1e-6)), zero)
    moved = cross(down, size, 0, 0, exact, 1 + 1e-6, 0.0).value - found.value
    assert (np.abs(moved) <= found.error * (1 + 1e-5)).all()


def test_arc_sines_at_their_infinite_slope():
    """E sign(X) sign(Y) = (2 / pi) asin(rho) falls like sqrt(1 - rho) from rho = 1, whatever first order says."""
    size = 1e-8
    _, estimated = pair("sign sign")
    args = np.array([[0.0], [0.0], [1.0], [1.0], [1 - size]])
    found = estimated(*(Estimate(a, np.full(1, size * (k == 4))) for k, a in enumerate(args)))
    change = 2 / np.pi * np.arccos(1 - size)
    assert change <= found.error.item() <= 3 * change


@pytest.mark.parametrize("one", ["sign", "positive"])
def test_rounding_of_a_jump_beside_a_steep_function(one):
    """A jump has no slope whose square has a mean: nothing follows from the slopes of both functions."""
    call, estimated = pair(f"{one} erf")
    args = np.array([[0.0], [0.0], [1.0], [1e4], [100 * (1 - 1e-6)]])
    found = estimated(*(Estimate(a, np.full(1, 1e-9 * (k == 4))) for k, a in enumerate(args)))
    change = np.abs(call(*args[:4], args[4] - 1e-9).value - found.value).item()
    assert change <= found.error.item() <= 2 * change


@pytest.mark.parametrize("wrong", [(0,), (1,), (0, 1)], ids=["mean", "variance", "both"])
@pytest.mark.parametrize("name", ["relu", "abs", "erf", "exp", "cube", "clip", "tanh"])
def test_means_of_functions_carry_errors(name, wrong):
    f = FUNCTIONS[name]
    for mu, var in product((0.7, 1.3, -0.4), (0.5, 2.0)):
        errors = [SIZE * abs(a) if k in wrong else 0.0 for k, a in enumerate((mu, var))]
        assert_covers(lambda *args: mean(f, *args), lambda *args: mean(f, *args), [mu, var], errors, 5)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [(0, 1), (2, 3), (4,), (0, 1, 2, 3, 4)], ids=["means", "variances", "cov", "all"])
@pytest.mark.parametrize("names", ["relu relu", "abs erf", "exp cube", "erf tanh"])
def test_products_at_means_other_than_zero_carry_errors(names, wrong):
    for v, w, c in LAWS[:8]:
        sizes = [1.0, 1.0, v, w, np.sqrt(v * w)]
        errors = [SIZE * size if k in wrong else 0.0 for k, size in enumerate(sizes)]
        assert_covers(*pair(names), [0.7, -0.4, v, w, c], errors, 20)

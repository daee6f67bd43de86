"""Errors that the laws of outputs state: they cover the truth, and are not much larger than what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import tensorprog as tp
from tensorprog import Law
from tensorprog.gaussian.several import normal_points
from tensorprog.limit.law.joint import Joint
from tensorprog.limit.law.mixture import Mixture
from tests.reading import loads

Array = NDArray[Any]
Numbers = Callable[[Mixture], tuple[Array, Array]]  # value and error
GRID = np.array([-6.0, -3.0, -1.5, -0.4, 0.0, 0.8, 2.0, 4.0])
NUMBERS: dict[str, Numbers] = {
    "variance": lambda m: m.moment(2),
    "fourth moment": lambda m: m.moment(4),
    "sixth moment": lambda m: m.moment(6),
    "kurtosis": lambda m: m.standardised(4),
    "density": lambda m: m.density(GRID),
    "cdf": lambda m: m.cdf(GRID),
}


def mixture(var: Array, **more: Any) -> Mixture:
    """Gaussians N(0, V): var (sets, draws)."""
    return Mixture(np.zeros(var.shape), var, **more)


def exact(name: str, var: Array, weights: Array) -> Array:
    """The same number from the values of V: var, weights (values,)."""
    sd = np.sqrt(var)[:, None]
    second, fourth, sixth = weights @ var, 3 * weights @ var**2, 15 * weights @ var**3
    known = {"variance": second, "fourth moment": fourth, "sixth moment": sixth, "kurtosis": fourth / second**2}
    known |= {"density": weights @ stats.norm.pdf(GRID, scale=sd), "cdf": weights @ stats.norm.cdf(GRID, scale=sd)}
    return np.asarray(known[name])


@pytest.mark.parametrize("name", NUMBERS)
def test_replicates_show_their_standard_errors(name: str) -> None:
    """V is 0.5 or 2 at random: over repetitions the errors stated are 4.07 times those that are seen."""
    rng = np.random.default_rng(7)
    truth = exact(name, np.array([0.5, 2.0]), np.array([0.7, 0.3]))
    scores = []
    for _ in range(50):
        var = np.where(rng.random((16, 64)) < 0.3, 2.0, 0.5)
        value, error = NUMBERS[name](mixture(var))
        scores.append((value - truth) / (error / 4.07 + 1e-14))
    size = np.sqrt(np.mean(np.square(scores), axis=0))  # 15 degrees of freedom: sqrt(15 / 13) = 1.07, spread 0.11
    assert np.all(size < 1.4)
    assert size.max() > 0.7


SMALL = 1e-6  # relative error of the covariances: second order is a millionth of first


def shifted(made: Mixture, low: int, high: int) -> Mixture:
    """The law when variances below and above 1 are wrong by so many times SMALL."""

    def moved(var: Array) -> Array:
        return np.asarray(var * (1 + SMALL * np.where(var > 1, high, low)))

    return replace(made, var=moved(made.var), relative_error=0.0)


@pytest.mark.parametrize("name", NUMBERS)
def test_an_error_of_the_variances_is_carried_to_every_number(name: str) -> None:
    made = mixture(np.repeat([[0.5, 2.0]], [7, 3], axis=1), relative_error=SMALL)
    value, error = NUMBERS[name](made)
    largest = 0.0
    for low, high in ((1, 1), (1, 0), (0, 1), (1, -1), (-1, -1)):
        change = np.abs(NUMBERS[name](shifted(made, low, high))[0] - value)
        assert np.all(change <= (1 + 10 * SMALL) * error + 1e-14)
        largest = max(largest, change.max())
    assert error.max() <= 20 * largest


def gaussian_pair(cov: Array, relative_error: float) -> Joint:
    points = normal_points(1, 9, 16, 3)
    return Joint(np.zeros((1, 1, 2)), cov[None, None], points, relative_error)


COV = np.array([[1.0, 0.6], [0.6, 2.0]])
PLACES = np.array([[0.0, 0.0], [0.5, -0.5], [-1.0, -1.5], [1.0, 2.0], [-1.2, 0.8]])
PAIRS: dict[str, Callable[[Joint], tuple[Any, Any]]] = {
    "density": lambda pair: pair.density(PLACES),
    "cdf": lambda pair: pair.cdf(PLACES),
} | {f"moment {orders}": lambda pair, orders=orders: pair.moment(orders) for orders in ((1, 1), (2, 2), (1, 3), (4, 0))}


@pytest.mark.parametrize("name", PAIRS)
def test_an_error_of_the_covariances_is_carried_to_joint_laws(name: str) -> None:
    value, error = PAIRS[name](gaussian_pair(COV, SMALL))
    own = PAIRS[name](gaussian_pair(COV, 0.0))[1]  # of the draws
    change = np.abs(PAIRS[name](gaussian_pair(COV * (1 + SMALL), 0.0))[0] - value)
    carried = np.asarray(error - own)
    assert np.all(change <= (1 + 10 * SMALL) * carried + 1e-14)
    assert carried.max() <= 20 * change.max()


def test_moments_of_infinitely_many_heads_carry_the_error_of_the_variance() -> None:
    limit = tp.load("attention", H=3, s=3).limit().infinite_heads("a")
    var, off = limit.var("y[0]", with_error=True)
    assert off > 0
    for order, factor in ((2, 1), (4, 3), (6, 15)):
        value, error = limit.moment("y[0]", order, with_error=True)
        change = factor * (var + off) ** (order // 2) - value
        assert error == pytest.approx(change, rel=1e-2)
    assert limit.moment("y[0]", 3, with_error=True) == (0.0, 0.0)


def test_kernel_densities_state_their_bias() -> None:
    """Stratified draws of N(0, 1) in place of random ones: nothing but the bias of the kernel is wrong."""
    start = (np.arange(16)[:, None] + 0.5) / 16
    values = stats.norm.ppf((np.arange(256) + start) / 256)
    made = Mixture(values, np.zeros((16, 256)), 0.0, True)
    grid = np.linspace(-1.5, 1.5, 25)
    value, error = made.density(grid)
    off = np.abs(value - stats.norm.pdf(grid))
    assert np.all(off <= error)
    assert error.max() <= 10 * off.max()


ROUGH = """
program: rough
indices: {i: 2, j: 2}
initial:
  "h[i]": {cov: "where(i == i_, 1, 0.5)"}
weights: {A: 1, B: 1, C: 1, V: 1, Q: 1, K: 1}
body:
  - u[i] = MatMul(A, h[i])
  - w[i] = MatMul(B, h[i])
  - z[i] = MatMul(C, h[i])
  - x[i] = Nonlin(clip(max(u[i]*w[i], z[i]), -2, 2))
  - e[i] = Nonlin(erf(u[i]))
  - q[i] = MatMul(Q, e[i])
  - k[i] = MatMul(K, e[i])
  - v[i] = MatMul(V, x[i])
  - p[i,j] = Dot(q[i], k[j])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j])*v[j]))
outputs: [y]
"""


def test_errors_of_the_values_are_in_the_covariance_of_what_attends_to_them() -> None:
    """The values have kinks in three variables, whose moments come from quasi-Monte Carlo."""
    law = Law(loads(ROUGH))
    moment = law.recursion.centred("v", "v").dense(("0", "0_"))
    (own, between), (wrong, more) = moment.value[0], moment.error[0]
    value, error = law.cov("y", with_error=True)
    assert 1e-5 < wrong < more
    # weights that sum to 1: Cov(y[i], y[k]) is `own` times a share, and `between` times the rest; so are their errors
    share = (value - between) / (own - between)
    expected = share * wrong + (1 - share) * more
    assert np.all(error > 0.98 * expected) and np.all(
        error < 1.15 * expected
    )  # those of draws of the scores come to it


UNCERTAIN_BEHIND_LAYERS = """
program: uncertain_behind_layers
constants: {e: 0.001}
indices: {i: 2}
initial: {a: {cov: 1}, b: {cov: 1}, c: {cov: 1}, d: {cov: 1}, f: {cov: 1}, g: {cov: 1}}
weights: {W: 1, A: 1, B: 1, V: 1}
body:
  - q = MatMul(A, a)
  - r = MatMul(B, a)
  - p = Dot(q, r)
  - h = MatMul(W, a)
  - s = Nonlin(relu(h * sin(p)))
  - k = MatMul(A, s)
  - t = MatMul(B, s)
  - l = Dot(k, t)
  - x[i] = Nonlin(where(i == 0, a, e * relu(a*b + c*d + f*g)))
  - o[i] = MatMul(V, x[i])
  - y[i] = Nonlin(o[i] * sin(l))
outputs: [y]
"""


SCALED = """
program: scaled
initial:
  x: {cov: 1}
  g: {cov: 1}
weights: {A: 1, B: 1, C: 1, V: 1, U: 1, Q: 1, K: 1}
body:
  - u = MatMul(A, g)
  - w = MatMul(B, g)
  - z = MatMul(C, g)
  - f = Nonlin(clip(max(u*w, z), -2, 2) / 1000)
  - q = MatMul(Q, x)
  - k = MatMul(K, x)
  - p = Dot(q, k)
  - v = MatMul(V, x)
  - t = MatMul(U, f)
  - y = Nonlin(tanh(p)*v + 1000*sin(p)*t)
outputs: [y]
"""


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

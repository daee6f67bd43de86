"""Functions that reduce over an index of vectors: batch normalisation, softmax and maximum over a family.

Batch normalisation has integrals in one variable: with a ~ N(0, S), v = |a|**2 / m and S_s = S (1 + 2 s S / m)**-1,

    E f(a) / (v + eps)**p = integral of s**(p-1) e**(-s eps) / Gamma(p) * det(1 + 2 s S / m)**(-1/2) E f(N(0, S_s)) ds.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, special

import tensorprog as tp
from tensorprog import Law
from tests.reading import loads
from tests.stated import STATED

from . import oracles

Array = NDArray[np.float64]
EPS = 1e-5


def toeplitz(rho: float, size: int) -> Array:
    i = np.arange(size)
    return np.asarray(rho ** np.abs(i[:, None] - i))


def normalised(cov: Array) -> tuple[Array, Array]:
    """E h_i and E h_i h_j of h = relu((u - mean u) / sqrt(var u + EPS)), u ~ N(0, cov), by integrals over s."""
    m = len(cov)
    centre = np.eye(m) - 1 / m
    spread = centre @ cov @ centre
    values, vectors = np.linalg.eigh(spread)
    values = np.where(values < 1e-12, 0, values)

    def at(t: float, power: float) -> tuple[float, Array]:
        s = np.exp(t)  # e**(p t) stands for s**(p-1) ds
        weight = np.exp(power * t - s * EPS) / special.gamma(power) / np.sqrt(np.prod(1 + 2 * s / m * values))
        return weight, vectors * (values / (1 + 2 * s / m * values)) @ vectors.T

    def first(t: float) -> Array:
        weight, cov = at(t, 0.5)
        return weight * np.sqrt(np.diag(cov) / (2 * np.pi))

    def second(t: float) -> Array:
        weight, cov = at(t, 1.0)
        return weight * oracles.arccos_kernel(cov)

    mean, moment = (integrate.quad_vec(f, -40, 18, epsabs=1e-12, epsrel=1e-12, limit=2000)[0] for f in (first, second))
    return np.asarray(mean), np.asarray(moment)


def test_batch_normalisation_layer_by_layer() -> None:
    law = tp.load("batchnorm_mlp").limit()
    _, one = normalised(2 * toeplitz(0.5, 4))
    mean, two = normalised(2 * one)
    for name, expected in (("h1", one), ("h2", two)):
        found = law.second_moment(name)
        assert found.error < 1e-3
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=found.error)
    np.testing.assert_allclose(np.asarray(law.cov("f")), two, rtol=0, atol=law.cov("f").error)
    value, error = law.mean("h2", with_error=True)
    np.testing.assert_allclose(value, mean, rtol=0, atol=np.max(error))
    assert np.max(error) < 1e-3
    np.testing.assert_allclose(np.asarray(law.cov("mu1")), 2 * toeplitz(0.5, 4).mean(), rtol=1e-12)


def test_draws_and_expectations_of_normalised_vectors() -> None:
    law = tp.load("batchnorm_mlp").limit()
    draws = law.sample(40_000, seed=3, keep=("h1", "h2"))
    for name in ("h1", "h2", "f"):
        products = np.einsum("ni,nj->nij", draws[name], draws[name])
        z = (products.mean(axis=0) - np.asarray(law.second_moment(name))) / products.std(axis=0) * 200
        assert np.abs(z).max() < 5
    value, error = law.expectation("h2[0]*h2[1]", with_error=True)
    _, expected = normalised(2 * normalised(2 * toeplitz(0.5, 4))[1])
    assert value == pytest.approx(expected[0, 1], abs=error)


def test_softmax_over_an_index_of_vectors() -> None:
    """Smooth and of two variables: to rounding, against a product rule; the members of v are independent of u."""
    law = Law(
        loads("""
program: mixed
indices: {i: 2, j: 2}
initial: {"x[i]": {mean: 0.1, cov: "0.5**abs(i - i_)"}}
weights: {W: 1.5, U: 0.7, V: 1}
body:
  - u[i] = MatMul(W, x[i])
  - v[i] = MatMul(U, x[i])
  - a[i] = Nonlin(softmax[i](u[i]))
  - h[i] = Nonlin(a[i] * v[i])
  - s    = Nonlin(sum[j](a[j] * v[j]))
  - y[i] = MatMul(V, h[i])
outputs: [y, s]
""")
    )
    cov = np.array([[1.0, 0.5], [0.5, 1.0]]) + 0.01
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    z = np.linalg.cholesky(1.5 * cov) @ np.stack(np.meshgrid(nodes, nodes)).reshape(2, -1)
    a = special.softmax(z, axis=0)
    moment = np.einsum("in,jn,n->ij", a, a, np.outer(weights, weights).ravel())
    found = law.cov("y")
    assert found.error < 1e-3
    np.testing.assert_allclose(np.asarray(found), moment * 0.7 * cov, rtol=0, atol=found.error)
    np.testing.assert_allclose(np.asarray(law.cov("s")), (moment * 0.7 * cov).sum(), rtol=0, atol=law.cov("s").error)


def test_the_largest_of_neighbours() -> None:
    """max[d] u[c+d] over windows of two: E max**2 = 1, E max = sqrt((1 - rho) / pi), windows that overlap by draws."""
    law = Law(
        loads("""
program: pooled
indices: {i: 4, c: 3, d: 2}
initial: {"x[i]": {mean: 0, cov: "0.5**abs(i - i_)"}}
weights: {W: 1, V: 1}
body:
  - u[i] = MatMul(W, x[i])
  - h[c] = Nonlin(max[d](u[c+d]))
  - y[c] = MatMul(V, h[c])
outputs: [y]
""")
    )
    found = law.cov("y")
    assert found.error < 1e-3
    np.testing.assert_allclose(np.diag(np.asarray(found)), 1, rtol=0, atol=found.error)
    value, error = law.mean("h", with_error=True)
    np.testing.assert_allclose(value, np.sqrt(0.5 / np.pi), rtol=0, atol=np.max(error))
    u = np.random.default_rng(6).standard_normal((400_000, 4)) @ np.linalg.cholesky(toeplitz(0.5, 4)).T
    h = np.maximum(u[:, 1:], u[:, :-1])
    products = np.einsum("ni,nj->nij", h, h)
    spread = products.std(axis=0) / np.sqrt(len(u))
    z = (products.mean(axis=0) - np.asarray(found)) / np.hypot(spread, found.error / STATED)
    assert np.abs(z).max() < 5


def test_a_maximum_over_the_steps_of_a_recurrence() -> None:
    law = Law(
        loads("""
program: pooled
indices: {t: "1..3"}
initial: {"x[t]": {mean: 0, cov: "0.5**abs(t - t_)"}}
weights: {W: 1.2, V: 1}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t-1])
  - s[t] = Nonlin(erf(u[t] + x[t]))
  - m    = Nonlin(max[t](s[t]))
  - y    = MatMul(V, m)
outputs: [y]
""")
    )
    value, error = law.var("y", with_error=True)
    assert error < 1e-3
    s = law.sample(400_000, seed=2, keep=("s",))["s"][:, 1:].max(axis=1) ** 2
    assert abs(s.mean() - value) < 5 * s.std() / np.sqrt(len(s)) + error


def test_formulas_and_accuracy_are_refused() -> None:
    with pytest.raises(tp.NotCompiledError, match="reads the members of a vector together"):
        tp.load("batchnorm_mlp").limit(symbolic=True).cov("f")
    with pytest.raises(tp.AccuracyError):
        tp.load("batchnorm_mlp").limit(accuracy=1e-7).cov("f")

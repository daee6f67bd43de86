"""Programs without scores: kernels against published recursions, numbers against finite width and brute force."""

from __future__ import annotations

import numpy as np
import pytest

from tensorprog import Law
from tests.reading import loads

from . import oracles

HEAD = """
program: net
constants: {N: 6, rho: 0.8}
indices: {i: N}
initial:
  x[i]: {mean: 0, cov: rho**abs(i - i_)}
"""


def law(text: str) -> Law:
    return Law(loads(text))


@pytest.mark.parametrize(("name", "kernel"), [("relu", oracles.arccos_kernel), ("erf", oracles.arcsine_kernel)])
def test_deep_kernels(name: str, kernel) -> None:  # type: ignore[no-untyped-def]
    result = law(
        HEAD
        + f"""
weights:
  W1: 2
  W2: 1.7
  W3: 1
body:
  - a[i] = MatMul(W1, x[i])
  - b[i] = Nonlin({name}(a[i]))
  - c[i] = MatMul(W2, b[i])
  - d[i] = Nonlin({name}(c[i]))
  - f[i] = MatMul(W3, d[i])
outputs: [f]
"""
    )
    start = 0.8 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    expected = kernel(1.7 * kernel(2 * start))
    np.testing.assert_allclose(np.asarray(result.cov("f")), expected, rtol=1e-12)
    assert result.kurtosis("f[0]") == pytest.approx(3, abs=1e-12)
    np.testing.assert_allclose(
        result.density("f[0]", 0.3),
        np.exp(-0.09 / (2 * expected[0, 0])) / np.sqrt(2 * np.pi * expected[0, 0]),
        rtol=1e-12,
    )


def test_shared_weights_correlate_different_statements() -> None:
    """u = W x, w = W z: Cov = sigma**2 E[x z]; another weight gives exactly 0."""
    result = law(
        HEAD
        + """
weights:
  W: 1.5
  V[i]: 1
body:
  - z[i] = Nonlin(abs(x[i]))
  - u[i] = MatMul(W, x[i])
  - w[i] = MatMul(W, z[i])
  - t[i] = MatMul(V[i], z[i])
  - y[i] = Nonlin(u[i] + w[i] * 2 + t[i])
outputs: [y]
"""
    )
    k = 0.8 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    # E |u||v| = 2/pi (sqrt(1 - rho**2) + rho asin rho)
    absolute = 2 / np.pi * (np.sqrt(1 - np.where(k == 1, 1, k) ** 2) + k * np.arcsin(k))
    assert np.all(np.asarray(result.cov("u", "w")) == 0)  # odd times even
    np.testing.assert_allclose(np.asarray(result.cov("w")), 1.5 * absolute, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(result.cov("t")), np.diag(np.diag(absolute)), rtol=1e-12)
    expected = 1.5 * k + 6 * absolute + np.diag(np.diag(absolute))
    np.testing.assert_allclose(np.asarray(result.cov("y")), expected, rtol=1e-12)
    drawn = result.sample(200_000, seed=1)["y"]
    products = drawn[:, :, None] * drawn[:, None, :]
    z = (products.mean(axis=0) - np.asarray(result.cov("y"))) / (products.std(axis=0) / np.sqrt(len(drawn)))
    assert np.abs(z).max() < 4.9


def test_means_biases_and_residuals() -> None:
    """One unit by Gauss-Hermite: E[(b + x) ...] with a mean, a kink away from 0 and a residual branch."""
    result = law("""
program: bias
initial:
  x: {mean: 0.3, cov: 1.2}
  b: {mean: -0.5, cov: 0.4}
weights:
  W: 1
body:
  - h = Nonlin(x + relu(x - 2*b + 0.25) - 1)
  - f = MatMul(W, h)
outputs: [f]
""")
    from scipy import integrate, stats

    # l = x - 2 b + 1/4 ~ N(1.55, 1.2 + 1.6), Cov(x, l) = 1.2
    mean, var = 0.3 + 1.0 + 0.25, 1.2 + 4 * 0.4
    first = integrate.quad(lambda t: t * stats.norm.pdf(t, mean, np.sqrt(var)), 0, 40, epsabs=1e-14)[0]
    second = integrate.quad(lambda t: t * t * stats.norm.pdf(t, mean, np.sqrt(var)), 0, 40, epsabs=1e-14)[0]
    # E[x relu(l)]: x = 0.3 + 1.2/2.8 (l - mean) + independent
    mixed = integrate.quad(
        lambda t: t * (0.3 + 1.2 / var * (t - mean)) * stats.norm.pdf(t, mean, np.sqrt(var)), 0, 40, epsabs=1e-14
    )[0]
    expected = (1.2 + 0.09) + second + 1 + 2 * mixed - 2 * 0.3 - 2 * first
    assert float(np.asarray(result.cov("f"))) == pytest.approx(expected, rel=1e-11)
    assert result.mean("h") == pytest.approx(0.3 + first - 1, rel=1e-12)
    assert float(np.asarray(result.cov("h"))) == pytest.approx(expected - (0.3 + first - 1) ** 2, rel=1e-10)


def test_averages_are_numbers_and_layer_norm_normalises() -> None:
    result = law(
        HEAD
        + """
weights:
  W1: 2
  W2: 1
body:
  - a[i] = MatMul(W1, x[i])
  - b[i] = Nonlin(relu(a[i]))
  - m[i] = Dot(b[i], b[i], scale=1/n)
  - c[i] = Nonlin(b[i] / sqrt(m[i]))
  - f[i] = MatMul(W2, c[i])
outputs: [f]
"""
    )
    kernel = oracles.arccos_kernel(2 * 0.8 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6))))
    expected = kernel / np.sqrt(np.outer(np.diag(kernel), np.diag(kernel)))
    np.testing.assert_allclose(np.asarray(result.cov("f")), expected, rtol=1e-12)
    np.testing.assert_allclose(result.mean("m"), np.diag(kernel), rtol=1e-12)


def test_sums_over_indices_inside_a_vector() -> None:
    """Global pooling: f = W mean_i relu(a_i) has variance the mean of the kernel."""
    result = law(
        HEAD
        + """
weights:
  W1: 2
  W2: 1
body:
  - a[i] = MatMul(W1, x[i])
  - m = Nonlin(mean[i](relu(a[i])))
  - f = MatMul(W2, m)
outputs: [f]
"""
    )
    kernel = oracles.arccos_kernel(2 * 0.8 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6))))
    assert float(np.asarray(result.cov("f"))) == pytest.approx(kernel.mean(), rel=1e-12)


def test_convolution_offsets_keep_weights_apart() -> None:
    """u[c] = sum_d W[d] x[c+d]: Cov(u[c], u[c']) = sum_d K(c + d, c' + d)."""
    result = law("""
program: conv
indices: {c: 4, d: 3, e: 6}
initial:
  x[e]: {mean: 0, cov: 0.7**abs(e - e_)}
weights:
  W[d]: 1
body:
  - g[c,d] = MatMul(W[d], x[c+d])
  - u[c] = Nonlin(sum[d](g[c,d]))
  - z[c] = Nonlin(relu(u[c]))
outputs: [u, z]
""")
    k = 0.7 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    expected = sum(k[d : d + 4, d : d + 4] for d in range(3))
    np.testing.assert_allclose(np.asarray(result.cov("u")), expected, rtol=1e-13)
    np.testing.assert_allclose(np.asarray(result.second_moment("z")), oracles.arccos_kernel(expected), rtol=1e-12)
    drawn = result.sample(100_000, seed=2)["u"]
    products = drawn[:, :, None] * drawn[:, None, :]
    z = (products.mean(axis=0) - expected) / (products.std(axis=0) / np.sqrt(len(drawn)))
    assert np.abs(z).max() < 4.9

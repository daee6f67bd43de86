"""Functions of several Gaussian variables, batches at once: against closed forms, within the errors stated."""

import numpy as np
import pytest

from tensorprog.gaussian.several import integrate


def covariances(count, dim, seed, rank=None):
    a = np.random.default_rng(seed).standard_normal((count, dim, rank or dim)) / np.sqrt(dim)
    return a @ a.swapaxes(-1, -2)


@pytest.mark.parametrize(("dim", "rank"), [(1, 1), (2, 2), (3, 3), (2, 1), (5, 5), (6, 2)])
def test_cosines(dim, rank):
    cov = covariances(7, dim, dim, rank)
    mu = np.random.default_rng(1).standard_normal((7, dim))
    found = integrate(lambda z: np.cos(z.sum(axis=-2)), mu, cov, True)
    exact = np.cos(mu.sum(axis=1)) * np.exp(-cov.sum(axis=(1, 2)) / 2)
    assert found.value.shape == (7,)
    assert np.all(np.abs(found.value - exact) <= 1.5 * found.error)
    assert found.error.max() < (2e-6 if dim < 4 else 1e-2)


def test_polynomials_are_exact():
    cov = covariances(4, 2, 3)
    mu = np.zeros((4, 2))
    found = integrate(lambda z: z[..., 0, :] ** 2 * z[..., 1, :] ** 2, mu, cov, True)
    exact = cov[:, 0, 0] * cov[:, 1, 1] + 2 * cov[:, 0, 1] ** 2
    np.testing.assert_allclose(found.value, exact, rtol=1e-12)
    assert found.error.max() < 1e-11


def test_kinks_are_left_to_quasi_monte_carlo():
    cov = covariances(200, 2, 4)
    found = integrate(lambda z: z.max(axis=-2), np.zeros((200, 2)), cov, False)
    spread = cov[:, 0, 0] + cov[:, 1, 1] - 2 * cov[:, 0, 1]
    off = np.abs(found.value - np.sqrt(spread / (2 * np.pi)))
    assert np.mean(off <= found.error) > 0.95  # 3 standard errors over 8 replicates
    assert np.all(off <= 3 * found.error)
    assert found.error.max() < 2e-3

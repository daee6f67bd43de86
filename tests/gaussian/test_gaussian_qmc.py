import numpy as np
import pytest

from tensorprog.gaussian import integrate, normal_points


def test_points_are_finite_reproducible_and_nearly_normal():
    z = normal_points(3, 10, 4, 7)
    assert z.shape == (4, 1024, 3)
    assert np.all(np.isfinite(z))
    assert np.array_equal(z, normal_points(3, 10, 4, 7))
    assert not np.allclose(z[0], z[1])
    assert np.all(np.abs(z.mean(axis=1)) < 1e-2)
    assert np.all(np.abs(z.var(axis=1) - 1) < 2e-2)


def test_sizes_double_by_appending():
    assert np.array_equal(normal_points(2, 5, 2, 0), normal_points(2, 6, 2, 0)[:, :32])


def test_a_product_with_singular_covariance():
    cov = np.array([[1.0, 0.5, 1.5], [0.5, 1.0, 1.5], [1.5, 1.5, 3.0]])  # third = first + second
    result = integrate(lambda z: z[..., 0, :] * z[..., 1, :] + 0 * z[..., 2, :], np.zeros(3), cov, False, 1e-4)
    assert abs(result.value - 0.5) <= result.error <= 1e-3
    exact = integrate(lambda z: z[..., 2, :] - z[..., 0, :] - z[..., 1, :], np.zeros(3), cov, False)
    assert abs(exact.value) < 1e-14


def test_batches_and_tolerance():
    mean = np.array([[0.0, 0.0], [1.0, 2.0]])
    cov = np.array([[2.0, 0.3], [0.3, 1.0]])
    result = integrate(lambda z: np.exp(0.3 * z[..., 0, :]) * z[..., 1, :], mean, cov, False, 1e-5)
    # tilting by exp(t x): E = exp(t m + t^2 v / 2) (m_y + t c)
    truth = np.exp(0.3 * mean[:, 0] + 0.09) * (mean[:, 1] + 0.09)
    assert result.value.shape == (2,)
    assert np.all(np.abs(result.value - truth) <= result.error)
    assert np.all(result.error < 1e-3)


def test_impossible_requests_are_refused():
    with pytest.raises(ValueError, match="dim"):
        normal_points(0, 3, 1, 0)

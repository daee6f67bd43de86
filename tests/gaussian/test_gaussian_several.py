"""Functions of several Gaussian variables, batches at once: against closed forms, within the errors stated."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from tensorprog.gaussian import Estimate, integrate, normal_points
from tensorprog.gaussian.several import ORDERS, lattice, rising_orders, spread_factor


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


@pytest.mark.parametrize("steep", [0.3, 1, 3, 10])
@pytest.mark.parametrize("power", [1, 2])
def test_differences_of_product_rules_are_above_their_errors_whatever_the_order(steep: float, power: int) -> None:
    """tanh(a u w + p): along each axis a pole comes near as the other variable grows, and orders of one parity agree
    with each other long before they are right."""
    # the truth: with w given, u is cut into panels that grow from 0, and so is w
    cuts = np.geomspace(0.01, 10, 14)
    cuts = np.concatenate([-cuts[::-1], [0], cuts])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half, middle = np.diff(cuts)[:, None] / 2, (cuts[1:, None] + cuts[:-1, None]) / 2
    u = (half * nodes + middle).ravel()
    density = (half * weights).ravel() * np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)
    for p in (0, 0.25, 0.5, 1, 1.5, 2):

        def function(x: np.ndarray, y: np.ndarray, p: float = p) -> np.ndarray:
            return np.tanh(steep * x * y + p) ** power

        def sums(z: np.ndarray, w: np.ndarray, function: Callable = function) -> tuple[np.ndarray, np.ndarray]:
            found = function(z[:, 0], z[:, 1])
            return np.asarray(found @ w), np.asarray(found**2 @ w)

        exact = density @ function(u[:, None], u) @ density
        found = [result for result, _ in rising_orders(sums, 2, 1 << 12)]
        assert len(found) == len(ORDERS) and np.isinf(found[1].error) and (steep > 3 or found[-1].error < 0.1)
        assert all(abs(result.value - exact) <= result.error for result in found)


def test_kinks_are_left_to_quasi_monte_carlo():
    cov = covariances(200, 2, 4)
    found = integrate(lambda z: z.max(axis=-2), np.zeros((200, 2)), cov, False)
    spread = cov[:, 0, 0] + cov[:, 1, 1] - 2 * cov[:, 0, 1]
    off = np.abs(found.value - np.sqrt(spread / (2 * np.pi)))
    assert np.mean(off <= found.error) > 0.98  # Student's t over 8 replicates
    assert np.all(off <= 3 * found.error)
    assert found.error.max() < 2e-3


def test_smooth_functions_reach_the_error_asked_for():
    cov = covariances(5, 3, 8)
    found = integrate(lambda z: np.sin(z.sum(axis=-2) + 1), np.zeros((5, 3)), cov, True, 1e-10)
    exact = np.sin(1) * np.exp(-cov.sum(axis=(1, 2)) / 2)
    assert np.all(np.abs(found.value - exact) <= found.error)
    assert found.error.max() < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("smooth", [True, False])
def test_errors_of_all_moments_count(smooth):
    """E exp(sum z) for means and covariances that are off by what they state, each by its own amount."""
    mu, cov = np.array([[0.1, -0.2, 0.3]] * 2), covariances(2, 3, 5)
    rng = np.random.default_rng(0)
    off_mu = rng.uniform(0, 1e-3, (2, 3))
    off_cov = rng.uniform(0, 1e-3, (2, 3, 3)) * np.array([1, 1e-20]).reshape(2, 1, 1)
    off_cov, off_mu[1] = off_cov + off_cov.swapaxes(1, 2), 0

    def exact(m, c):
        return np.exp(m.sum(axis=1) + c.sum(axis=(1, 2)) / 2)

    call = lambda z: np.exp(z.sum(axis=-2))  # noqa: E731
    found = integrate(call, Estimate(mu, off_mu), Estimate(cov, off_cov), smooth, 1e-10)
    effect = exact(mu, cov) * (off_mu.sum(axis=1) + off_cov.sum(axis=(1, 2)) / 2)
    worst = np.maximum(*(np.abs(exact(mu + s * off_mu, cov + s * off_cov) - found.value) for s in (1, -1)))
    assert np.all(worst <= 1.01 * found.error)
    own = 1e-9 if smooth else 1e-2
    assert np.all(found.error <= 1.01 * effect + own * found.value)


def test_equal_rows_are_taken_in_one_order_whatever_their_rounding():
    cov = np.array([[1, 0.5, 0, 0], [0.5, 1, 0, 0], [0, 0, 1, 0.5], [0, 0, 0.5, 1]])
    for j, k in np.ndindex(4, 4):
        moved = cov.copy()
        moved[j, k] += 1e-9
        moved[k, j] = moved[j, k]
        assert np.abs(spread_factor(moved) - spread_factor(cov)).max() < 1e-8


# -- points ---------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("dim", [1, 2, 7, 64, 512])
def test_scrambled_points_are_those_of_scipy(dim: int) -> None:
    from scipy import special
    from scipy.stats import qmc

    for log2_size in (0, 1, 6):
        rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(1,)))
        uniform = qmc.Sobol(dim, bits=52, rng=rng).random_base2(log2_size)
        points = normal_points(dim, log2_size, 2, 5)[1]
        assert np.array_equal(points, special.ndtri(np.clip(uniform + 2.0**-54, 2.0**-54, 1 - 2.0**-54)))


def test_points_in_very_many_dimensions_are_pseudo_random() -> None:
    z = normal_points(600, 8, 2, 3)
    assert np.array_equal(z[:, :128], normal_points(600, 7, 2, 3))
    assert abs(z.mean()) < 5 / z.size**0.5 and abs(z.var() - 1) < 5 * (2 / z.size) ** 0.5
    assert abs(np.mean(z[0] * z[1])) < 5 / z[0].size ** 0.5


@pytest.mark.parametrize("log2_size", [10, 13])
def test_coordinates_of_a_lattice_are_normal_and_nearly_uncorrelated(log2_size: int) -> None:
    z = np.stack([lattice(100, log2_size, 3, replicate) for replicate in range(4)])
    points = 1 << log2_size
    assert z.shape == (4, 100, points) and np.isfinite(z).all()
    assert np.array_equal(z[1], lattice(100, log2_size, 3, 1)) and not np.allclose(z[0], z[1])
    ranks = special.ndtr(np.sort(z.astype(float), axis=-1)) * points
    assert np.all(abs(ranks - np.arange(points) - 0.5) < 1.001)  # each cell has its own
    correlations = z @ z.swapaxes(-1, -2) / points - np.eye(100)
    assert np.mean(correlations**2) < 0.5 / points  # half of that of random points


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

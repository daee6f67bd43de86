"""Mehler's series: against mpmath's own Hermite coefficients and integrals, and against quadrature."""

from __future__ import annotations

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from gaussian_functions import FUNCTIONS

from tensorprog.gaussian import cross, mean
from tensorprog.gaussian.series import ProductSeries, hermite, series

SMOOTH = ("tanh", "sigmoid", "softplus", "silu")
LAW_MU, LAW_SD = np.array([0.0, 0.4, -1.5, 0.0, 2.0]), np.array([1.0, 0.7, 1.6, 1e-3, 0.0])


def test_hermite_polynomials_are_orthonormal() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    basis = hermite(nodes, 60)
    np.testing.assert_allclose((basis * weights / weights.sum()) @ basis.T, np.eye(60), atol=1e-12)


@pytest.mark.parametrize("k", [0, 1, 2, 7, 20, 41])
def test_coefficients_are_the_integrals(k: int) -> None:
    found = series(lambda _: FUNCTIONS["tanh"], np.array([0.4]), np.array([1.3]))
    assert found is not None
    with mp.workdps(30):
        norm = mp.sqrt(mp.factorial(k) * mp.mpf(2) ** k)

        def integrand(z: mp.mpf) -> mp.mpf:
            return mp.tanh(mp.mpf("0.4") + mp.mpf("1.3") * z) * mp.hermite(k, z / mp.sqrt(2)) / norm * mp.npdf(z)

        exact = float(mp.quad(integrand, list(range(-14, 15, 2))))
    assert abs(found.coefficients[k, 0] - exact) <= found.rough[0] < 1e-14


@pytest.mark.parametrize("f", SMOOTH)
@pytest.mark.parametrize("g", SMOOTH)
def test_the_series_agrees_with_quadrature_within_both_errors(f: str, g: str) -> None:
    one, two = FUNCTIONS[f], FUNCTIONS[g]
    first, second = series(lambda _: one, LAW_MU, LAW_SD), series(lambda _: two, LAW_MU, LAW_SD)
    assert first is not None
    assert second is not None
    i, j = (index.ravel() for index in np.indices((LAW_MU.size, LAW_MU.size)))
    rho = np.linspace(-1, 1, i.size)
    found = ProductSeries(first, second).at(i, j, rho)[0]
    spread = LAW_SD[i] * LAW_SD[j]
    elsewhere = (replace(h, kinks=np.array([1e9])) for h in (one, two))  # a kink ends the smoothness, far out
    rest = cross(
        *elsewhere, LAW_MU[i], LAW_MU[j], LAW_SD[i] ** 2, LAW_SD[j] ** 2, np.where(spread > 0, rho * spread, 0.0)
    )
    assert np.all(np.abs(found.value - rest.value.ravel()) <= found.error + rest.error.ravel())
    smooth = (LAW_SD[i] < 1.1) & (LAW_SD[j] < 1.1)
    assert np.all(found.error[smooth] <= 1e-13 * first.norm[i][smooth] * second.norm[j][smooth])


def test_what_the_series_cannot_answer_is_left_to_quadrature() -> None:
    tanh = FUNCTIONS["tanh"]
    assert series(lambda _: tanh, np.zeros(1), np.full(1, 1e4)) is None
    wide = series(lambda _: tanh, np.zeros(1), np.full(1, 8.0))
    assert wide is not None
    assert wide.tail[0] > 1e-6  # the coefficients fall slowly
    found = cross(tanh, tanh, 0.0, 0.0, [1.0, 64.0], [64.0, 64.0], [4.0, 63.9])
    assert np.all(found.error < 1e-10)


def test_one_pair_and_many_give_the_same_numbers() -> None:
    tanh, silu = FUNCTIONS["tanh"], FUNCTIONS["silu"]
    rho = np.linspace(-0.9, 0.9, 7)
    many = cross(tanh, silu, 0.0, 0.3, 1.0, 0.8, rho * np.sqrt(0.8))
    for k, r in enumerate(rho):
        one = cross(tanh, silu, 0.0, 0.3, 1.0, 0.8, r * np.sqrt(0.8))
        assert abs(float(one.value) - many.value[k]) <= float(one.error) + many.error[k]


def test_many_laws_are_answered_by_the_series_as_few_are() -> None:
    f, g = FUNCTIONS["tanh"], FUNCTIONS["sigmoid"]
    v = np.linspace(0.5, 2.0, 6 * 5000).reshape(6, 5000)
    many = cross(f, g, 0.0, 0.1, v, v[::-1], 0.4)
    assert many.value.shape == v.shape
    assert many.error.max() < 1e-12  # quadrature in the plane states more, and takes minutes
    for row in range(6):
        few = cross(f, g, 0.0, 0.1, v[row, ::500], v[5 - row, ::500], 0.4)
        assert (np.abs(many.value[row, ::500] - few.value) <= many.error[row, ::500] + few.error).all()


@pytest.mark.parametrize(("f", "g"), [("silu", "silu"), ("tanh", "silu"), ("relu", "silu")])
def test_draws_of_laws_are_answered_by_tables_as_few_laws_are(f: str, g: str) -> None:
    one, two = FUNCTIONS[f], FUNCTIONS[g]
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((6000, 2, 3)) * np.geomspace(1e-3, 1.0, 6000)[:, None, None]
    factor[17, 0] = 0.0
    cov = np.einsum("kim,kjm->ijk", factor, factor)
    var = np.einsum("iik->ik", cov)
    many = cross(one, two, 0.0, 0.0, var[:, None], var[None], cov, slack=np.inf, pairs=1, enough=1e-8)
    means = mean(two, 0.0, var)
    assert many.error.max() < 1e-7
    for draw in (0, 17, 3000, 5000, 5999):
        v, c = var[:, draw], cov[..., draw]
        few = cross(one, two, 0.0, 0.0, v[:, None], v, c, slack=np.inf, pairs=1, enough=1e-8)
        assert (np.abs(many.value[..., draw] - few.value) <= many.error[..., draw] + few.error).all()
        known = mean(two, 0.0, v)
        assert (np.abs(means.value[:, draw] - known.value) <= means.error[:, draw] + known.error).all()

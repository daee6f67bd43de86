"""The pieces below expectations: correlations, panels and rules."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from tensorprog.gaussian.kernels import correlation
from tensorprog.gaussian.quadrature import gauss_legendre, panel_edges, rule


@pytest.mark.parametrize("gap", [0.3, 1e-6, 1e-9, 1e-13, 1e-15])
def test_one_minus_rho_squared_does_not_cancel(gap):
    var_f, var_g = 1.7, 0.6
    cov = float(np.sqrt(var_f * var_g) * (1 - gap))
    exact = 1 - Fraction(cov) ** 2 / (Fraction(var_f) * Fraction(var_g))
    s = correlation(var_f, var_g, cov)[1]
    truth = float(mp.sqrt(mp.mpf(exact.numerator) / exact.denominator))
    assert s == pytest.approx(truth, rel=1e-14)
    # powers of two change nothing
    assert correlation(var_f * 2.0**-600, var_g * 2.0**400, cov * 2.0**-100)[1] == s


@pytest.mark.parametrize("n", [15, 20])
def test_gauss_legendre_is_rounded_a_few_times(n):
    nodes, weights = gauss_legendre(n)
    with mp.workdps(30):
        for k in range(0, 2 * n, 2):
            moment = mp.fsum(mp.mpf(float(w)) * mp.mpf(float(x)) ** k for x, w in zip(nodes, weights, strict=True))
            assert abs(moment - mp.mpf(2) / (k + 1)) < 4e-15


def test_panels_stop_at_kinks_and_shrink_towards_features():
    lo, hi = np.full(2, -9.0), np.full(2, 9.0)
    kinks = np.array([[0.3, np.inf], [-np.inf, 12.0]])
    edges = panel_edges(lo, hi, kinks, np.array([[1.0], [np.nan]]), np.array([[1e-6], [1.0]]))
    assert np.all(np.diff(edges) >= 0)
    assert np.all(edges[:, 0] == -9)
    assert np.all(edges[:, -1] == 9)
    assert 0.3 in edges[0]
    near = np.diff(edges[0])[np.searchsorted(edges[0], 1.0) - 1]
    assert near <= 2e-6
    assert np.count_nonzero(np.diff(edges[1])) == 5
    z, w = rule(edges, 20)
    assert z.shape == w.shape == (2, 20 * (edges.shape[1] - 1))
    assert np.allclose(w.sum(axis=-1), 18)

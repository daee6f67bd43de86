"""Every term of a stated error where it matters: the true error, by mpmath or fractions, against the stated one."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from tensorprog.gaussian import FunctionTerm, RealFunction, cross, integrate, mean, normal_points
from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.quadrature import _argument_rounding, _finish, _improve, integrate_line
from tensorprog.gaussian.series import ProductSeries, series
from tensorprog.gaussian.several import standard_errors

NONE = np.zeros(0)
RNG = np.random.default_rng


def inexact(value, error):
    return Estimate(np.asarray(value, dtype=float), np.asarray(error, dtype=float))


def worst(found, truths):
    """The largest of distances from truths (numbers of mpmath or fractions) in units of the stated errors."""
    pairs = zip(found.value.ravel(), found.error.ravel(), truths, strict=True)
    off = [(abs(mp.mpf(float(v)) - t), float(e)) for v, e, t in pairs]
    return max(float(distance) / e if e else (np.inf if distance else 0.0) for distance, e in off)


# -- arithmetic -----------------------------------------------------------------------------------------------------


def as_mp(fraction):
    return mp.mpf(fraction.numerator) / fraction.denominator


@pytest.mark.parametrize("errors", [(0, 0), (1e-3, 0), (0, 1e-3), (0.5, 0.5), (1e-20, 1e-20)])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 0), (0, 1), (1e8, 1e-8)])
def test_sums_and_products_bound_rounding_and_what_errors_do(errors, sizes):
    a, b = (size * RNG(k).standard_normal(40) for k, size in enumerate(sizes))
    one, two = (inexact(x, np.full(40, e)) for x, e in zip((a, b), errors, strict=True))
    with mp.workdps(40):
        for signs in ((1, 1), (1, -1), (-1, -1)):
            ends = [[Fraction(float(x)) + sign * Fraction(e) for x in v]
                    for v, sign, e in zip((a, b), signs, errors, strict=True)]  # fmt: skip
            for found, truth in ((one + two, [x + y for x, y in zip(*ends, strict=True)]),
                                 (one * two, [x * y for x, y in zip(*ends, strict=True)])):  # fmt: skip
                assert worst(found, map(as_mp, truth)) <= 1 + 1e-12


# -- quadrature -----------------------------------------------------------------------------------------------------


def test_rules_that_differ_rounding_and_overflow_are_in_the_error():
    one = np.ones(1)
    assert _finish(one, one + 0.25, 0 * one).error >= 0.5
    assert _finish(one, one, 1e3 * one).error >= 16e3 * EPS
    assert _finish(one, one, 0 * one, 0.125).error >= 0.125
    assert _finish(one, one, 0 * one, np.inf).error == np.inf
    first, pending = _improve(None, np.array([True]), inexact([1.0], [0.1]), np.array([True]))
    assert first.error >= 0.4
    assert pending
    second, _ = _improve(first, pending, inexact([1.5], [1e-9]), np.array([False]))
    assert second.error >= 2.0  # the two levels differ by a half


def test_rules_bound_what_they_do_not_resolve():
    """A spike that nobody told of, narrower than the panels: off by less than stated."""
    for width in (0.3, 0.1, 0.05, 0.02):
        f = RealFunction(lambda x, w=width: np.exp(-(((x - 0.37) / w) ** 2) / 2), NONE)
        for refinements in (0, 1, 2):
            found = integrate_line([(f, np.zeros(1), np.ones(1))], refinements)
            w2 = mp.mpf(width) ** 2
            truth = mp.sqrt(w2 / (1 + w2)) * mp.exp(-(mp.mpf(0.37) ** 2) / (1 + w2) / 2)
            assert worst(found, [truth]) <= 1


def test_rounding_of_arguments_counts_where_the_mean_is_far():
    """A kink 1e7 deviations from 0: places are known to 1e-9 deviations only."""
    mu, sd = 1e7, 1.0
    f = RealFunction(lambda x: np.maximum(x - mu, 0.0) + 1e6 * (x > mu), np.array([mu]))
    z = np.linspace(-3, 3, 601)[None]
    bound = _argument_rounding(f.call(mu + sd * z), z, np.array([mu]), np.array([sd]))
    truth = EPS * mu * 1e6 * float(special.ndtr(0.0) * 2 / np.sqrt(2 * np.pi))  # what a step of 1e6 changes by
    assert bound[0] >= 0.99 * truth
    found = mean(f, mu + 0.5, sd)
    exact = mp.npdf(0.5) + mp.mpf(0.5) * mp.ncdf(0.5) + 10**6 * mp.ncdf(0.5)
    assert worst(Estimate(found.value[None], found.error[None]), [exact]) <= 1


def test_series_bound_what_they_leave_out():
    """Coefficients and norms of tanh(8 x): what the last ones leave, and the whole, are known."""
    f = RealFunction(lambda x: np.tanh(4 * x), NONE, np.array([[0.0, np.pi / 8]]))
    found = series(lambda _: f, np.zeros(1), np.ones(1))
    assert found is not None
    short = found.cut(48)
    with mp.workdps(25):
        square = mp.quad(lambda x: mp.tanh(4 * x) ** 2 * mp.npdf(x), [-12, -1, 0, 1, 12])
    left = float(square - mp.fsum(mp.mpf(float(a)) ** 2 for a in short.coefficients[:, 0]))
    assert float(short.tail[0]) ** 2 >= left * (1 - 1e-9) > 1e-9
    near = cross(f, f, 0, 0, 1.0, 1.0, np.array([0.3, 0.9, 0.999]))
    for rho, value, error in zip((0.3, 0.9, 0.999), near.value, near.error, strict=True):
        order = sum(mp.mpf(float(a)) ** 2 * mp.mpf(rho) ** k for k, a in enumerate(found.coefficients[:, 0]))
        assert abs(value - order) <= error + float(found.tail[0]) ** 2


def noisy_sine():
    """sin(1000 x) at means near 1: rounding of x moves it by up to 1e-13, at every node of a rule by another number."""
    call = lambda x: np.sin(1000.0 * x)  # noqa: E731
    return RealFunction(call, np.array([1e9]), np.array([[0.0, 1e-3]])), RNG(11).uniform(0.5, 2, 200), 1e-3


def test_rounding_of_arguments_is_in_the_error_of_a_line():
    f, mu, sd = noisy_sine()
    found = integrate_line([(f, mu, np.full(200, sd))])
    with mp.workdps(40):
        exact = [mp.exp(-((1000 * mp.mpf(sd)) ** 2) / 2) * mp.sin(1000 * mp.mpf(float(m))) for m in mu]
        assert 0.002 <= worst(found, exact) <= 1


@pytest.mark.parametrize("first", [True, False])
def test_rounding_of_arguments_is_in_the_error_of_a_plane(first):
    """E sin(1000 X) Z^2 for Z standard normal of correlation 1/2, in either order."""
    f, mu, sd = noisy_sine()
    square = RealFunction(np.square, np.array([1e9]))
    x, y = (f, mu, sd**2), (square, 0.0, 1.0)
    (one, m, v), (two, n, w) = (x, y) if first else (y, x)
    found = cross(one, two, m, n, v, w, 0.5 * sd)
    with mp.workdps(40):
        s = 1000 * mp.mpf(sd)  # under the tilted law Z has the mean i s / 2
        exact = [mp.im(mp.exp(1j * 1000 * mp.mpf(float(u)) - s**2 / 2) * (1 + (0.5j * s) ** 2)) for u in mu]
        assert 0.002 <= worst(found, exact) <= 1


def indicator(call, *kinks):
    return RealFunction(lambda x: 1.0 * call(x), np.array(kinks))


def test_what_lies_beyond_the_window_of_a_line_is_in_the_error():
    """Two functions that are both 1 beyond 12 only, which neither is for."""
    f, g = indicator(lambda x: (x < -3) | (x > 12), -3.0, 12.0), indicator(lambda x: x > 3, 3.0)
    found = cross(f, g, 0, 0, 1, 1, 1)
    with mp.workdps(30):
        assert worst(found.reshape((1,)), [mp.ncdf(-12)]) <= 1


def test_what_lies_beyond_the_window_of_a_plane_is_in_the_error():
    """P(X > 6, Y < -6) at correlation 0.9: given X > 6, Y would have to be 26 deviations from its mean."""
    found = cross(indicator(lambda x: x > 6, 6.0), indicator(lambda x: x < -6, -6.0), 0, 0, 1, 1, 0.9)
    with mp.workdps(30):
        s = mp.sqrt(1 - mp.mpf(0.9) ** 2)
        exact = mp.quad(lambda x: mp.npdf(x) * mp.ncdf((-6 - mp.mpf(0.9) * x) / s), mp.linspace(6, 9, 13))
        assert exact > 1e-200
        assert worst(found.reshape((1,)), [exact]) <= 1


@pytest.mark.parametrize("sd", [10.0, 20.0, 24.0, 26.0, 30.0, 35.0])
@pytest.mark.parametrize("known", [True, False])
def test_mass_so_far_out_that_functions_overflow_there_is_no_small_error(sd, known):
    """E exp(X) tanh(Y): X has its mass at sd deviations, which moves the mean of Y there."""
    terms = (FunctionTerm(1.0, 0, "exp"),) if known else None
    exponential = RealFunction(np.exp, NONE, terms=terms)
    tanh = RealFunction(np.tanh, NONE, np.array([[0.0, 1.0]]), -1)
    for rho in (0.1, 0.5, 0.9):
        found = cross(exponential, tanh, 0, -0.5 * sd, sd**2, 1, rho * sd)
        with mp.workdps(30):
            shift = (mp.mpf(rho) - 0.5) * sd
            exact = mp.exp(mp.mpf(sd) ** 2 / 2) * mp.quad(lambda z, m=shift: mp.tanh(m + z) * mp.npdf(z), [-10, 0, 10])
            assert found.error == np.inf or worst(found.reshape((1,)), [exact]) <= 1
        assert sd > 20 or found.error < 1e-6 * np.exp(sd**2 / 2)


@pytest.mark.parametrize("rho", [0.9, -0.99, 1.0])
def test_what_a_series_leaves_out_is_in_the_error_of_a_product(rho):
    """tanh(4 X) tanh(4 Y) by 48 coefficients against 256 of them."""
    f = RealFunction(lambda x: np.tanh(4 * x), NONE, np.array([[0.0, np.pi / 8]]))
    whole = series(lambda _: f, np.zeros(1), np.ones(1))
    assert whole is not None
    first = np.zeros(1, dtype=int)
    found = ProductSeries(whole.cut(48), whole.cut(48)).at(first, first, np.full(1, rho))[0]
    exact = ProductSeries(whole, whole).at(first, first, np.full(1, rho))[0]
    off = abs(float(found.value[0] - exact.value[0]))
    assert exact.error[0] < off / 2
    assert off <= found.error[0] + exact.error[0]


# -- kernels --------------------------------------------------------------------------------------------------------


# -- quasi-Monte Carlo ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "factor"), [(2, 636.6193), (3, 31.59905), (16, 4.072765)])
def test_standard_errors_are_those_of_a_sample(count, factor):
    """Student's t at 99.9 % times the deviation of the mean, with n - 1 in the sample's variance."""
    replicates = RNG(9).standard_normal((count, 5)) + 7
    np.testing.assert_allclose(
        standard_errors(replicates), factor * replicates.std(axis=0, ddof=1) / np.sqrt(count), rtol=1e-6
    )
    assert not standard_errors(replicates[:1]).any()


@pytest.mark.slow
def test_coverage_is_that_of_student():
    """Means of four functions over 120 seeds: as many within the error as Student's law with 15 degrees says."""
    exact = [np.exp(0.045), special.ndtr(0.3), np.sqrt(2 / np.pi), np.exp(-0.5) * np.cos(0.2)]

    def functions(z):
        x, y = z[:, 0], z[:, 1]
        return np.stack([np.exp(0.3 * x), x + y > -0.3 * 2**0.5, np.abs(y), np.cos(0.6 * x + 0.8 * y + 0.2)])

    inside, scores = 0, []
    for seed in range(120):
        values = functions(normal_points(2, 6, 16, seed).swapaxes(1, 2)).mean(axis=-1)
        off, error = values.mean(axis=1) - exact, standard_errors(values.T)
        inside += int(np.sum(np.abs(off) <= error))
        scores.append(off / (error / 4.072765))
    share = 0.999
    spread = np.sqrt(480 * share * (1 - share))
    assert abs(inside - 480 * share) <= 4 * spread + 1
    assert abs(np.square(scores).mean() - 15 / 13) <= 0.35  # the variance of Student's law


def test_rounding_of_sums_counts_where_replicates_agree():
    """A sum that cancels in every point: the replicates agree on rounding."""
    found = integrate(lambda z: (z[..., 0, :] + 1e9) - 1e9 - z[..., 0, :] + 1e9, np.zeros(1), np.eye(1), False)
    assert found.error >= 8 * EPS * 1e9 * 0.99

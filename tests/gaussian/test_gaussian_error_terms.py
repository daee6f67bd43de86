"""Every term of a stated error where it matters: the true error, by mpmath or fractions, against the stated one."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from tensorprog.gaussian import FunctionTerm, RealFunction, cross, integrate, mean, normal_points
from tensorprog.gaussian.arc_kernels import kernel, kernel_error
from tensorprog.gaussian.closed_forms import NumericGaussian, closed_mean
from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.normal import _owen, gap, positive, sign, sign_sign, step_sign, step_step
from tensorprog.gaussian.quadrature import _argument_rounding, _finish, _improve, integrate_line
from tensorprog.gaussian.series import product_series, series
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


def exact_sum(values):
    return sum((Fraction(float(v)) for v in values), Fraction(0))


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
        total = exact_sum(a) + 40 * Fraction(errors[0])
        assert worst(one.sum(), [as_mp(total)]) <= 1 + 1e-12


# -- signs ------------------------------------------------------------------------------------------------------------


def test_gaps_bound_rounding_and_errors():
    rng = RNG(1)
    h, k, r = rng.uniform(-6, 6, 300), rng.uniform(-6, 6, 300), rng.uniform(-1, 1, 300)
    with mp.workdps(40):
        exact_r = [mp.mpf(float(x)) for x in r]
        s = np.array([float(mp.sqrt(1 - x * x)) for x in exact_r])
        for e in (0.0, 1e-6):
            found = gap(inexact(k, np.full(300, e)), inexact(h, np.full(300, 2 * e)), r, s)
            truth = [(mp.mpf(float(b)) + e - x * (mp.mpf(float(a)) - 2 * np.sign(float(x)) * e)) / mp.sqrt(1 - x * x)
                     for a, b, x in zip(h, k, exact_r, strict=True)]  # fmt: skip
            assert worst(found, truth) <= 1 + 1e-12


def both_positive(h, k, r):
    """P(xi <= h, eta <= k): an integral over xi."""
    h, k, r = mp.mpf(h), mp.mpf(k), mp.mpf(r)
    s = mp.sqrt(1 - r * r)
    middle = [p for p in (k / r - 5 * s, k / r, k / r + 5 * s) if -12 < p < h] if r else []
    return mp.quad(lambda x: mp.npdf(x) * mp.ncdf((k - r * x) / s), [-12, *sorted(middle), h])


SIGNS = {
    step_step: lambda h, k, p: p,
    step_sign: lambda h, k, p: 2 * p - mp.ncdf(h),
    sign_sign: lambda h, k, p: 4 * p - 2 * mp.ncdf(h) - 2 * mp.ncdf(k) + 1,
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("call", SIGNS)
def test_signs_of_variables_with_inexact_thresholds(call):
    rng = RNG(2)
    laws = [*zip(rng.uniform(-2, 2, 3), rng.uniform(-2, 2, 3), rng.uniform(-0.95, 0.95, 3), strict=True),
            (0.0, 0.0, 0.5), (0.0, 0.3, -0.4)]  # fmt: skip
    ratios = []
    for e, f in ((0.0, 0.0), (1e-3, 0.0), (0.0, 1e-3)):
        for h, k, r in laws:
            s = float(mp.sqrt(1 - mp.mpf(r) ** 2))
            found = call(inexact([h], [e]), inexact([k], [f]), np.array([r]), np.array([s]))
            for x, y in {(h + e, k + f), (h - e, k - f), (h + e, k - f)}:
                with mp.workdps(19):
                    ratios.append(worst(found, [SIGNS[call](mp.mpf(x), mp.mpf(y), both_positive(x, y, r))]))
    assert max(ratios) <= 1 + 1e-6  # of first order in what thresholds move
    assert sorted(ratios)[len(ratios) // 2] >= 1e-3  # not for being careless


@pytest.mark.parametrize("error", [0.0, 1e-7])
@pytest.mark.parametrize("reach", [1e-6, 1.0, 37.0])
def test_signs_of_one_variable_bound_rounding_and_errors(error, reach):
    h = RNG(3).uniform(-reach, reach, 60)
    for call, truth in ((positive, mp.ncdf), (sign, lambda x: mp.erf(x / mp.sqrt(2)))):
        found = call(inexact(h, np.full(60, error)))
        with mp.workdps(60):
            for way in (-1, 0, 1):
                assert worst(found, [truth(mp.mpf(float(x)) + way * mp.mpf(error)) for x in h]) <= 1 + 1e-6
        assert np.all(found.error <= 2e3 * EPS * np.abs(found.value) + 2 * error)


# -- measures -------------------------------------------------------------------------------------------------------


def test_masses_and_means_bound_their_rounding():
    """E exp(a x + b) = exp(a m + b + a^2 v / 2), with a mean far out: exponents of hundreds lose hundreds of eps."""
    rng = RNG(4)
    m, v, a, b = rng.uniform(-30, 30, 300), rng.uniform(0.1, 9, 300), rng.uniform(-3, 3, 300), rng.uniform(-50, 50, 300)
    zero, one = np.zeros(300), np.ones(300)
    law = NumericGaussian(m, zero, v, one, zero, v)
    tilted = law.times_exp(a, b)
    blurred = law.times_gaussian(a, b)
    with mp.workdps(40):
        exact = [[mp.mpf(float(x)) for x in row] for row in zip(m, v, a, b, strict=True)]
        assert worst(tilted.mass, [mp.exp(p * x + q + p * p * w / 2) for x, w, p, q in exact]) <= 1
        assert worst(tilted.mean, [x + w * p for x, w, p, _ in exact]) <= 1
        masses = [mp.exp(-((p * x + q) ** 2) / (1 + p * p * w) / 2) / mp.sqrt(1 + p * p * w) for x, w, p, q in exact]
        found = blurred.mass
        kept = np.array([mass > 1e-290 for mass in masses])
        masses = [mass for mass, keep in zip(masses, kept, strict=True) if keep]
        assert worst(Estimate(found.value[kept], found.error[kept]), masses) <= 1
        d = RNG(5).uniform(-8, 8, 300)
        moved = law.at(m, inexact(d, np.full(300, 1e-9))).mass
        assert worst(moved, [mp.exp(-((mp.mpf(float(x)) + mp.mpf(1e-9)) ** 2) / 2) for x in d]) <= 1


def test_closed_means_of_cancelling_terms_bound_their_rounding():
    """E (x - c)^4 by its expanded terms at means near c: all digits but a few cancel."""
    rng = RNG(6)
    mu, sd = 10 + rng.uniform(-0.1, 0.1, 200), rng.uniform(0.01, 0.1, 200)
    coefficients = [10.0**4, -4 * 10.0**3, 6 * 10.0**2, -40.0, 1.0]
    found = closed_mean([FunctionTerm(c, k) for k, c in enumerate(coefficients)], mu, sd)
    with mp.workdps(50):
        pairs = [(mp.mpf(float(x)) - 10, mp.mpf(float(y))) for x, y in zip(mu, sd, strict=True)]
        assert worst(found, [x**4 + 6 * x**2 * y**2 + 3 * y**4 for x, y in pairs]) <= 1


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
    found = series(f, np.zeros(1), np.ones(1))
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


def test_errors_of_closed_conditional_means_are_in_the_error_of_a_plane():
    """E cos(X) (Y - 2)^4, the power by its expanded terms at means of Y near 2: a digit or two cancel."""
    rng = RNG(12)
    mu, sd, rho = 2 + rng.uniform(-0.1, 0.1, 200), rng.uniform(0.3, 0.6, 200), 0.5
    terms = tuple(FunctionTerm(c, k) for k, c in enumerate([16.0, -32.0, 24.0, -8.0, 1.0]))
    power = RealFunction(lambda x: (x - 2) ** 4, NONE, terms=terms)
    cosine = RealFunction(np.cos, np.array([1e9]))
    found = cross(cosine, power, 0.0, mu, 1.0, sd**2, rho * sd)
    with mp.workdps(40):
        exact = []
        for m, d in zip(mu, sd, strict=True):
            v, c = mp.mpf(float(d) ** 2), mp.mpf(float(rho * d))
            y = mp.mpf(float(m)) - 2 + 1j * c
            exact.append(mp.re(mp.exp(-0.5) * (y**4 + 6 * y**2 * v + 3 * v**2)))
        assert 0.002 <= worst(found, exact) <= 1


@pytest.mark.parametrize("rho", [0.9, -0.99, 1.0])
def test_what_a_series_leaves_out_is_in_the_error_of_a_product(rho):
    """tanh(4 X) tanh(4 Y) by 48 coefficients against 256 of them."""
    f = RealFunction(lambda x: np.tanh(4 * x), NONE, np.array([[0.0, np.pi / 8]]))
    whole = series(f, np.zeros(1), np.ones(1))
    assert whole is not None
    first = np.zeros(1, dtype=int)
    found = product_series(whole.cut(48), whole.cut(48), first, first, np.full(1, rho))
    exact = product_series(whole, whole, first, first, np.full(1, rho))
    off = abs(float(found.value[0] - exact.value[0]))
    assert exact.error[0] < off / 2
    assert off <= found.error[0] + exact.error[0]


# -- kernels --------------------------------------------------------------------------------------------------------


def test_steep_arc_sines_lose_what_is_stated():
    """sign(X) sign(Y) next to the correlation from which products are exact: the slope of the arc sine is 22."""
    from tensorprog.gaussian.arc_kernels import Elementary

    sign = Elementary(0.0, 0.0, 0.0, 0.0, ((1.0, 0.0),))
    rng = RNG(7)
    v, w = rng.uniform(0.3, 3, 3000), rng.uniform(0.3, 3, 3000)
    c = 0.9989 * np.sqrt(v * w)
    found = Estimate(kernel(sign, sign, v, w, c, 1e-6), np.broadcast_to(kernel_error(sign, sign, v, w), v.shape))
    with mp.workdps(30):
        exact = [2 / mp.pi * mp.asin(mp.mpf(float(z)) / mp.sqrt(mp.mpf(float(x)) * mp.mpf(float(y))))
                 for x, y, z in zip(v, w, c, strict=True)]  # fmt: skip
    ratio = worst(found, exact)
    assert 0.2 <= ratio <= 1  # without the slope the bound would be a sixth of this


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_kernels_of_all_kinds_lose_what_is_stated(spread):
    from tensorprog.gaussian.arc_kernels import Elementary

    f = Elementary(0.25, 0.25, -0.5, 1.5, ((2.0, spread),))
    rng = RNG(8)
    v, w, rho = rng.uniform(0.3, 3, 400), rng.uniform(0.3, 3, 400), rng.uniform(-1, 1, 400)
    c = rho * np.sqrt(v * w)
    found = Estimate(kernel(f, f, v, w, c, 1e-6), np.broadcast_to(kernel_error(f, f, v, w), v.shape))
    part, h = mp.sqrt(2 / mp.pi), mp.mpf(spread)

    def exact(v, w, c):
        r = max(-1, min(1, c / mp.sqrt(v * w)))
        odd = f.linear**2 * c + f.linear * 2 * part * (c / mp.sqrt(v + h) + c / mp.sqrt(w + h))
        arcs = 2 / mp.pi * (4 * mp.asin(max(-1, min(1, c / mp.sqrt((v + h) * (w + h))))))
        cosine = f.modulus**2 * 2 / mp.pi * mp.sqrt(v * w) * (mp.sqrt(1 - r * r) + r * mp.asin(r))
        even = f.constant**2 + part * f.constant * f.modulus * (mp.sqrt(v) + mp.sqrt(w))
        return odd + arcs + cosine + even

    with mp.workdps(30):
        truths = [exact(*(mp.mpf(float(x)) for x in row)) for row in zip(v, w, c, strict=True)]
    assert 0.002 <= worst(found, truths) <= 1


# -- quasi-Monte Carlo ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "factor"), [(2, 636.6193), (3, 31.59905), (16, 4.072765)])
def test_standard_errors_are_those_of_a_sample(count, factor):
    """Student's t at 99.9 % times the deviation of the mean, with n - 1 in the sample's variance."""
    replicates = RNG(9).standard_normal((count, 5)) + 7
    np.testing.assert_allclose(
        standard_errors(replicates), factor * replicates.std(axis=0, ddof=1) / np.sqrt(count), rtol=1e-6
    )
    assert not standard_errors(replicates[:1]).any()


@pytest.mark.turns(3)
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


def test_the_error_of_owens_function_holds_where_scipy_is_worst():
    rng = RNG(3)
    h = rng.uniform(1.5, 9, 12) * rng.choice([-1, 1], 12)
    g = h * rng.uniform(0.05, 3, 12)
    found = Estimate(*_owen(h, inexact(g, np.zeros(12)), h))
    truths = []
    with mp.workdps(40):
        for k in range(12):
            square, end = mp.mpf(float(h[k])) ** 2, mp.mpf(float(g[k])) / float(h[k])
            integral = mp.quad(lambda x, s=square: mp.exp(-s * (1 + x**2) / 2) / (1 + x**2), mp.linspace(0, end, 12))
            truths.append(integral / (2 * mp.pi))
    assert worst(found, truths) <= 1

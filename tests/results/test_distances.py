"""Moments and distances against known values and against scipy."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from tensorprog.results.distances import KL_POINTS, binned_kde, distances, moments
from tensorprog.results.reference import LawCurve


def curve(law=stats.norm, reach=14.0):
    grid = 0.3 * np.sinh(np.linspace(-1, 1, 257) * np.arcsinh(reach / 0.3))
    return LawCurve(grid, law.pdf(grid), law.cdf(grid))


def measure(x, reference, seed=0):
    return distances(np.asarray(x), reference, np.random.default_rng(seed))


def paper_kl(x, density):
    """The estimator as the paper's script has it, with the exact density in place of the second kernel estimate."""
    xs = np.linspace(x.min(), x.max(), 500)
    p, q = stats.gaussian_kde(x)(xs) + 1e-12, density(xs) + 1e-12
    return stats.entropy(p / trapezoid(p, xs), q / trapezoid(q, xs))


@pytest.mark.parametrize(
    ("law", "reach", "accuracy"),
    [
        (stats.norm(), 40, 1e-7),
        (stats.t(5), 2000, 3e-7),
        (stats.laplace(), 40, 3e-5),  # the last has a kink
    ],
)
def test_curve_integrates_and_interpolates(law, reach, accuracy):
    c = curve(law, reach)
    x = np.linspace(-9, 9, 1001)
    assert c.whole == (accuracy < 1e-6)
    assert np.abs(c.cdf(x) - law.cdf(x)).max() < accuracy
    assert np.abs(c.pdf(x) / law.pdf(x) - 1).max() < max(1e-4, 100 * accuracy)


@pytest.mark.parametrize(
    "sample",
    [
        stats.norm.rvs(size=3000, random_state=1),
        stats.t.rvs(4, size=5000, random_state=2) * 1e-3,
        stats.expon.rvs(size=800, random_state=3) + 1e4,
    ],
)
def test_kernel_estimate_is_that_of_scipy(sample):
    low, high = sample.min(), sample.max()
    exact = stats.gaussian_kde(sample)(np.linspace(low, high, KL_POINTS))
    assert np.abs(binned_kde(sample, low, high) - exact).max() < 1e-3 * exact.max()


def test_ks_and_its_p_value_agree_with_scipy():
    x = stats.norm.rvs(size=4000, random_state=5) * 1.03
    exact = stats.kstest(x, "norm")
    found = measure(x, curve())
    assert found["ks"] == pytest.approx(exact.statistic, abs=1e-6)
    assert found["ks_p"] == pytest.approx(exact.pvalue, rel=0.05)


def test_population_values_of_a_shift():
    n = 400_000
    quantiles = stats.norm.ppf((np.arange(n) + 0.5) / n)  # a sample without noise
    shift = measure(quantiles + 0.2, curve())
    assert shift["ks"] == pytest.approx(2 * stats.norm.cdf(0.1) - 1, abs=3e-6)
    assert shift["kl"] == pytest.approx(0.02, rel=0.03)  # 0.2**2 / 2, blurred by the bandwidth


def test_kl_is_the_estimator_of_the_paper():
    x = stats.t.rvs(6, size=6000, random_state=7)
    # the paper's grid is the pooled range; here the sample reaches further than the law
    assert x.max() > 4.5
    assert -x.min() > 4.5
    assert measure(x, curve())["kl"] == pytest.approx(paper_kl(x, stats.norm.pdf), rel=2e-3)


def test_errors_and_floors_are_those_seen_over_repetitions():
    def spread(scale):
        rng = np.random.default_rng(11)
        rows = [measure(scale * rng.standard_normal(2000), curve(), seed=k) for k in range(60)]
        return {key: (np.mean([r[key] for r in rows]), np.std([r[key] for r in rows])) for key in rows[0]}

    null = spread(1.0)
    for key in ("ks", "kl"):  # under the law itself the distance is its floor
        assert null[key][0] == pytest.approx(null[f"{key}_floor"][0], rel=0.15), key
    far = spread(1.25)
    for key in ("ks", "kl"):
        assert far[f"{key}_se"][0] == pytest.approx(far[key][1], rel=0.35), key


def test_moments_and_their_errors():
    rng = np.random.default_rng(3)
    values = 5 + 2 * rng.standard_t(12, size=(20_000, 1))
    result = moments(values)
    assert result["mean"][0] == pytest.approx(values.mean())
    assert result["kurtosis"][0] == pytest.approx(stats.kurtosis(values[:, 0], fisher=False))
    constant = moments(np.full((20, 1), 7.0))
    assert np.isnan(constant["kurtosis"][0]) and constant["variance"][0] == 0
    batches = [moments(rng.standard_normal((2000, 1))) for _ in range(200)]
    for key in batches[0]:
        value, error = np.array([batch[key] for batch in batches]).T
        assert error.mean() == pytest.approx(value.std(), rel=0.15), key


def test_coordinates_of_one_network_are_not_counted_as_independent():
    copies = np.repeat(np.random.default_rng(9).standard_normal((3000, 1)), 8, axis=1)
    one, many = moments(copies[:, :1]), moments(copies)
    for key in one:
        assert one[key][1] == pytest.approx(many[key][1])

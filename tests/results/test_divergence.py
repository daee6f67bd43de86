"""Divergences of averages of Gaussians: against quadrature of known laws, and numbers found without the package."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

import tensorprog as tp
from tensorprog.jobs import run as job
from tensorprog.limit.law.mixture import Mixture
from tensorprog.results.divergence import GaussianDraws, kl_to_gaussian, kl_to_law
from tensorprog.results.study import settings_of
from tests.reading import loads


def standard(var: float = 1.0) -> Mixture:
    """The law N(0, var)."""
    return Mixture.gaussian(np.zeros(()), np.asarray(var))


def gaussian(y: np.ndarray, var: Any) -> np.ndarray:
    return np.exp(-0.5 * y**2 / var) / np.sqrt(2 * math.pi * var)


@dataclass(frozen=True)
class GammaVariance:
    """y given V is N(0, V), V = chi-square of `freedom` degrees over `freedom`."""

    freedom: float

    def density(self, y: np.ndarray) -> np.ndarray:
        """Integral of N(y; 0, V) over the law of V, by Gauss-Legendre panels."""
        k = self.freedom / 2
        ends = stats.gamma.ppf([1e-18, 1e-9, 1e-4, 0.02, 0.3, 0.7, 0.98, 0.9999], k, scale=1 / k).tolist()
        ends += [ends[-1] * 2, ends[-1] * 5, ends[-1] * 20]
        nodes, weights = np.polynomial.legendre.leggauss(80)
        low, high = np.array(ends[:-1])[:, None], np.array(ends[1:])[:, None]
        v = ((low + high) / 2 + (high - low) / 2 * nodes).ravel()
        w = ((high - low) / 2 * weights).ravel() * stats.gamma.pdf(v, k, scale=1 / k)
        return gaussian(np.asarray(y)[..., None], v) @ w

    def divergence(self) -> float:
        """KL to N(0, 1), which has its mean and variance, by Simpson's rule."""
        y, step = np.linspace(0, 40, 8001, retstep=True)
        f = self.density(y)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(f > 0, f * (np.log(f) + 0.5 * math.log(2 * math.pi) + 0.5 * y**2), 0.0)
        return 2 * float(integrate.simpson(found, dx=step))

    def draws(self, networks: int, seed: int) -> GaussianDraws:
        var = np.random.default_rng(seed).chisquare(self.freedom, (networks, 1)) / self.freedom
        return GaussianDraws(np.zeros_like(var), var)


REPLICATES = 60
# sd of z over replicates is within three of its standard errors of 1, and below 1 only near the limit
ROOM = 3 / math.sqrt(2 * REPLICATES)


def held(found: np.ndarray, exact: float, above: float, least: float = 1 - ROOM) -> None:
    """Values (replicates, (value, error)) are unbiased, spread as stated up to ROOM and `above`, never by more."""
    away = found[:, 0] - exact
    assert abs(standing(away)) < 4
    ratio = away.std(ddof=1) / math.sqrt((found[:, 1] ** 2).mean())
    assert 1 - ROOM - above < ratio < 1 + ROOM
    z = away / found[:, 1]
    assert least < z.std(ddof=1) < 1 + ROOM
    assert np.abs(z).max() < 5


@pytest.mark.parametrize(("freedom", "above", "least"), [(4, 0.0, 1 - ROOM), (24, 0.0, 1 - ROOM), (1024, 0.15, 0.4)])
def test_values_and_errors_are_right_over_replicates(freedom: int, above: float, least: float) -> None:
    """Near the limit the error stated is larger where the value is, so that z is narrow."""
    law = GammaVariance(freedom)
    found = np.array([kl_to_law(law.draws(1500, seed), standard()) for seed in range(REPLICATES)])
    held(found, law.divergence(), above, least)


@pytest.mark.parametrize(("freedom", "networks"), [(4, 1500), (200, 1500), (4096, 5000)])
def test_errors_against_gaussians_are_right_over_replicates(freedom: int, networks: int) -> None:
    """The part that moves mean and variance of the Gaussian along is no error."""
    law = GammaVariance(freedom)
    found = np.array([kl_to_gaussian(law.draws(networks, seed)) for seed in range(REPLICATES)])
    held(found, law.divergence(), 0.0)


def standing(values: np.ndarray) -> float:
    """Mean in standard errors."""
    return float(values.mean() / (values.std(ddof=1) / math.sqrt(len(values))))


def with_means(seed: int, networks: int = 800) -> GaussianDraws:
    """y = m + sqrt(V) g is N(0, 1) for m ~ N(0, 0.4) and V = 0.6."""
    mean = math.sqrt(0.4) * np.random.default_rng(seed).standard_normal((networks, 3))
    return GaussianDraws(mean, np.full(mean.shape, 0.6))


def test_a_mean_for_each_coordinate_is_a_mixture_as_well() -> None:
    """The divergence is 0 within the error, and half the square of a shift."""
    found = np.array([kl_to_law(with_means(seed), standard()) for seed in range(30)])
    assert abs(standing(found[:, 0])) < 4
    assert np.abs(found[:, 0] / found[:, 1]).max() < 5
    shifted = replace(with_means(0), mean=with_means(0).mean + 0.5)
    value, error = kl_to_law(shifted, standard())
    assert abs(value - 0.125) < 4 * error
    own, error = kl_to_gaussian(shifted)
    assert abs(own) < 4 * error


# ---- grids ----------------------------------------------------------------------------------------------------------


def entropy_of_modes(apart: float, sd: float) -> float:
    """KL of (N(-a, s**2) + N(a, s**2)) / 2 to N(0, a**2 + s**2), for a >> s: the modes do not overlap."""
    return math.log(math.sqrt(apart**2 + sd**2) / sd) - math.log(2)


@pytest.mark.parametrize("sd", [1.0, 0.05])
def test_narrow_gaussians_far_from_the_centre_are_seen(sd: float) -> None:
    mean = np.where(np.arange(4000) % 2, 5.0, -5.0)[:, None]
    value, error = kl_to_gaussian(GaussianDraws(mean, np.full(mean.shape, sd**2)))
    assert error < 1e-3
    assert abs(value - entropy_of_modes(5.0, sd)) < 5 * error + 2e-6  # of the overlap at sd = 1


@pytest.mark.parametrize("sd", [5e-3, 1e-4, 1e-9])
def test_what_no_grid_resolves_has_an_error_that_says_so(sd: float) -> None:
    mean = np.where(np.arange(200) % 2, 5.0, -5.0)[:, None]
    value, error = kl_to_gaussian(GaussianDraws(mean, np.full(mean.shape, sd**2)))
    assert error > 1
    assert abs(value - entropy_of_modes(5.0, sd)) < error


def test_mass_where_the_law_is_not_known_is_part_of_the_error() -> None:
    """N(0, 70) against N(0, 1), whose density is 0 to the machine beyond 38.6; networks that do not differ."""
    value, error = kl_to_law(GaussianDraws(np.zeros((80, 1)), np.full((80, 1), 70.0)), standard())
    exact = 0.5 * (70 - 1 - math.log(70))
    y, step = np.linspace(38.5, 160, 64001, retstep=True)
    assert abs(value - exact) < error
    assert error == pytest.approx(2 * float(gaussian(y, 70.0) @ (100 + 0.5 * y**2)) * step, rel=0.2)
    narrow = GaussianDraws(np.where(np.arange(80) % 2, 3.0, -3.0)[:, None], np.full((80, 1), 1e-12))
    assert kl_to_law(narrow, standard())[1] > 1


def test_densities_that_underflow_give_numbers() -> None:
    net = tp.load("resnet").run(4, 20_000, conditional=True)
    value, error = tp.kl(net, tp.load("resnet").limit(), "f[0]")
    assert abs(value - 0.174) < 0.02
    assert error < 0.02


def test_draws_that_overflowed_have_no_divergence() -> None:
    var = GammaVariance(8).draws(80, 1).var
    for wrong in (math.nan, math.inf):
        for place in (
            GaussianDraws(np.zeros_like(var), np.where(var == var[3], wrong, var)),
            GaussianDraws(np.where(var == var[3], wrong, 0.0), var),
        ):
            assert np.isnan(kl_to_law(place, standard())).all()
            assert np.isnan(kl_to_gaussian(place)).all()


def test_two_linear_layers_at_n_1024() -> None:
    """V = chi-square_n / n: KL(finite || N(0, 1)) to 1e-7."""
    text = """
program: linear
initial: {x: {mean: 1, cov: 0}}
weights: {W1: 1, W2: 1}
body:
  - u = MatMul(W1, x)
  - y = MatMul(W2, u)
outputs: [y]
"""
    program = tp.Program.from_netsor(loads(text))
    net, law = program.run(width=1024, samples=100_000, conditional=True), program.limit()
    exact = GammaVariance(1024).divergence()
    assert exact < 1e-6
    value, error = tp.kl(net, law, "y")
    assert abs(value - exact) < max(4 * error, 1e-8)
    assert error < 1e-7
    assert abs(value - exact) < 1e-7
    assert abs(tp.kl_gaussian(net, "y")[0] - exact) < 1e-7
    assert tp.kl_gaussian(law, "y")[0] == pytest.approx(0, abs=1e-12)


def test_errors_of_one_group_do_not_matter() -> None:
    """Groups of unequal sizes, as few networks as two, and atoms."""
    law = GammaVariance(10)
    for networks in (2, 65, 127):
        value, error = kl_to_law(law.draws(networks, 1), standard())
        assert abs(value - law.divergence()) < 6 * error + 0.5 / networks
    var = np.append(law.draws(10, 1).var, [[0.0]], axis=0)
    assert kl_to_law(GaussianDraws(np.zeros_like(var), var), standard()) == (math.inf, 0.0)


# ---- limits against their Gaussians, found by numpy alone -----------------------------------------------------------


def attention_density(y: np.ndarray, alpha: float, beta: float, heads: int) -> np.ndarray:
    """Density of y[0] for four tokens with second moments K = alpha I + beta J, from its characteristic function.

    Scores are N(0, K_00 K); a softmax sees their part orthogonal to (1, 1, 1, 1), sqrt(K_00 alpha) times a standard
    normal in three dimensions; V = alpha |a|**2 + beta.  y is the sum of `heads` independent N(0, V_a / heads).
    """
    x, w = np.polynomial.hermite_e.hermegauss(50)
    normal = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3)
    share = np.einsum("i,j,k->ijk", w, w, w).ravel() / w.sum() ** 3
    across = np.linalg.qr(np.column_stack([np.ones(4), np.eye(4)[:, :3]]))[0][:, 1:]
    weights = special.softmax(math.sqrt((alpha + beta) * alpha) * normal @ across.T, axis=1)
    variance = alpha * (weights**2).sum(axis=1) + beta
    t = np.arange(0, 19, 0.08)
    factor = np.array([share @ np.exp(-0.5 * s**2 * variance / heads) for s in t]) ** heads
    factor[0] /= 2
    return np.asarray(0.08 / math.pi * np.cos(np.outer(y, t)) @ factor)


@pytest.mark.parametrize(
    ("name", "heads", "beta", "near"),
    [
        ("attention", 1, 0.0, 9.725e-4),
        ("attention", 2, 0.0, 2.728e-4),
        ("attention_relu", 2, 1 / (2 * math.pi), 6.80e-8),
    ],
)
def test_limits_against_gaussians(name: str, heads: int, beta: float, near: float) -> None:
    alpha = 1.0 if name == "attention" else 0.5 - beta
    y, step = np.linspace(0, 9 if name == "attention" else 4, 1501, retstep=True)
    f = attention_density(y, alpha, beta, heads)
    variance = 2 * integrate.simpson(f * y**2, dx=step)
    g = gaussian(y, variance)
    f = np.where(f > 1e-15, f, g)  # rounding
    exact = 2 * float(integrate.simpson(f * np.log(f / g) - f + g, dx=step))
    value, error = tp.kl_gaussian(tp.load(name, H=heads).limit(), "y[0]")
    assert error < (1e-2 if exact > 1e-6 else 0.3) * value  # a law so near to Gaussian is known less well than others
    assert abs(value - exact) < error + 2e-12
    assert exact == pytest.approx(near, rel=3e-3)


def test_compare_fills_the_precise_column() -> None:
    program = tp.load("attention", s=2, H=1)
    law = program.limit()
    net = program.run(width=32, samples=4000, conditional=True)
    found = tp.compare(net, law, "y[1]")
    row = found["y[1]"]
    value, error = tp.kl(net, law, "y[1]")
    assert (row.kl_precise, row.kl_precise_se) == (value, error)
    assert 0 < error < 0.2 * value
    plain = tp.compare(program.run(width=32, samples=4000), law, "y[1]")
    assert math.isnan(plain.rows[0].kl_precise)
    assert plain.rows[0].to_json()["kl_precise"] is None
    assert "precise KL" in str(found)
    assert "precise KL" not in str(plain)


def test_what_has_no_such_density_is_refused() -> None:
    program = tp.load("attention")
    net = program.run(width=8, samples=10)
    with pytest.raises(tp.NotCompiledError, match="conditional=True"):
        tp.kl(net, program.limit(), "y[0]")
    law = tp.Program.from_netsor(
        loads("""
program: nonlinear
initial: {h: {mean: 0, cov: 1}}
weights: {W: 1}
body:
  - u = MatMul(W, h)
  - p = Dot(u, h)
  - y = Nonlin(tanh(u + p))
outputs: [y]
""")
    ).limit()
    with pytest.raises(tp.NotCompiledError, match="not Gaussian given the scores"):
        tp.kl_gaussian(law, "y")


@pytest.mark.parametrize(("name", "precise"), [("attention", True), ("attention_tied", False), ("mlp", True)])
def test_runs_ask_for_conditional_laws_where_they_can_be_had(name: str, precise: bool) -> None:
    program = tp.load(name, **{"attention": {"s": 2, "H": 1}, "mlp": {"m": 2}}.get(name, {}))
    found = job.run(program, settings_of(program.netsor, {"width": (8, 16), "samples": 300}))
    (entry,) = found.finite[1]["outputs"].values()
    table = found.blocks()[0]
    assert (table.header[-1] == "precise KL") is precise
    if precise:
        assert np.isfinite(entry["kl_precise"] + entry["kl_precise_se"]).all()
        assert "precise KL" in table.note
        assert "KL in nats (the paper's estimator); precise KL" in table.note

"""Divergences of averages of Gaussians: against quadrature of known laws, and numbers found without the package."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

import tensorprog as tp
from tensorprog import divergence, study
from tensorprog.display import run_tables
from tensorprog.divergence import GaussianDraws, kl_to_gaussian, kl_to_law
from tensorprog.limit.mixture import Mixture
from tensorprog.yaml_io import loads


def standard(var: float = 1.0) -> Mixture:
    """The law N(0, var)."""
    return Mixture((), np.zeros(()), np.asarray(var))


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


@pytest.mark.parametrize("freedom", [4, 24, 1024])
def test_the_oracle_is_a_density(freedom: int) -> None:
    y, step = np.linspace(0, 40, 8001, retstep=True)
    assert abs(2 * integrate.simpson(GammaVariance(freedom).density(y), dx=step) - 1) < 1e-9


@pytest.mark.parametrize("freedom", [pytest.param(4, marks=pytest.mark.slow), 24,
                                     pytest.param(200, marks=pytest.mark.slow)])
def test_values_and_errors_are_right_over_replicates(freedom: int) -> None:
    law = GammaVariance(freedom)
    exact, networks, replicates = law.divergence(), 1500, 40
    found = np.array([kl_to_law(law.draws(networks, seed), standard()) for seed in range(replicates)])
    assert abs(standing(found[:, 0] - exact)) < 4
    z = (found[:, 0] - exact) / found[:, 1]
    assert 0.5 < z.std() < 1.35  # errors are not too small, and too large only near the limit
    assert np.abs(z).max() < 5


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


def test_without_the_jackknife_the_bias_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = divergence._jackknife
    monkeypatch.setattr(divergence, "_jackknife", lambda values, *rest: (float(values[0]), whole(values, *rest)[1]))
    found = np.array([kl_to_law(with_means(seed), standard()) for seed in range(20)])
    assert standing(found[:, 0]) > 4


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


@pytest.mark.parametrize(("name", "heads", "beta", "near"), [
    ("attention", 1, 0.0, 9.725e-4), ("attention", 2, 0.0, 2.728e-4), ("attention_relu", 2, 1 / (2 * math.pi), 6.80e-8),
])
def test_limits_against_gaussians(name: str, heads: int, beta: float, near: float) -> None:
    alpha = 1.0 if name == "attention" else 0.5 - beta
    y, step = np.linspace(0, 9 if name == "attention" else 4, 1501, retstep=True)
    f = attention_density(y, alpha, beta, heads)
    variance = 2 * integrate.simpson(f * y**2, dx=step)
    g = gaussian(y, variance)
    f = np.where(f > 1e-15, f, g)  # rounding
    exact = 2 * float(integrate.simpson(f * np.log(f / g) - f + g, dx=step))
    value, error = tp.kl_gaussian(tp.load(name, H=heads).limit(), "y[0]")
    assert error < min(1e-9, 1e-3 * value)
    assert abs(value - exact) < error + 2e-12
    assert value == pytest.approx(near, rel=3e-3)


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
    law = tp.Program.from_netsor(loads("""
program: nonlinear
initial: {h: {mean: 0, cov: 1}}
weights: {W: 1}
body:
  - u = MatMul(W, h)
  - p = Dot(u, h)
  - y = Nonlin(tanh(u + p))
outputs: [y]
""")).limit()
    with pytest.raises(tp.NotCompiledError, match="not Gaussian given the scores"):
        tp.kl_gaussian(law, "y")


@pytest.mark.parametrize(("name", "precise"), [("attention", True), ("attention_tied", False), ("mlp", True)])
def test_runs_ask_for_conditional_laws_where_they_can_be_had(name: str, precise: bool) -> None:
    program = tp.load(name, **({"s": 2, "H": 1} if name == "attention" else {}))
    found = study.run(program, study.settings_of(program.netsor, {"width": (8, 16), "samples": 300}))
    (entry,) = found.finite[1]["outputs"].values()
    assert found.settings.conditional is precise
    if precise:
        assert np.isfinite(entry["kl_precise"] + entry["kl_precise_se"] + entry["energy"]).all()
        table = next(run_tables(found))
        assert table.header[-1] == "precise KL"
        assert "precise KL" in table.note
        assert "KL in nats (the paper's estimator); precise KL" in table.note


def test_runs_with_many_outputs_do_without_conditional_laws() -> None:
    netsor = tp.load("attention", s=17).netsor
    assert not study._conditional(netsor, study.settings_of(netsor, {}))

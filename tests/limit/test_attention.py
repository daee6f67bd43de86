"""The paper's own program: closed forms, published and independently computed numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.limit.law import conditional_moments as averaging
from tensorprog.shipped import shipped_programs
from tests.stated import STATED

from . import oracles

ATTENTION = shipped_programs()["attention"]


@pytest.mark.parametrize("c", [0.3, 1.0, 2.5, 100.0])
def test_second_moments_are_the_closed_form(c: float) -> None:
    law = tp.load(ATTENTION, C=c).limit()
    value = oracles.clip_moment(c)
    np.testing.assert_allclose(np.asarray(law.cov("x")), value * np.eye(4), rtol=1e-12, atol=0)
    scores = np.asarray(law.cov("p")).reshape(32, 32)
    np.testing.assert_allclose(scores, value**2 * np.eye(32), rtol=1e-12, atol=0)
    assert np.all(np.asarray(law.cov("q", "k")) == 0)
    assert law.cov("p").error < 1e-12


@pytest.mark.parametrize(
    ("heads", "kurtosis"),
    [
        (1, 3.243318),
        (2, 3.121659),
        pytest.param(4, 3.060830, marks=pytest.mark.slow),
        pytest.param(16, 3.015207, marks=pytest.mark.slow),
    ],
)
def test_kurtosis_and_variance_are_the_known_ones(heads: int, kurtosis: float) -> None:
    law = tp.load(ATTENTION, H=heads).limit()
    value, error = law.kurtosis("y[0]", with_error=True)
    assert error < 1e-3
    assert abs(value - kurtosis) < error + 1e-6
    variance, error = law.moment("y[0]", 2, with_error=True)
    assert abs(variance - 0.391971) < error + 1e-6
    assert error < 1e-3


def test_outputs_of_all_tokens_agree_with_a_plain_simulation() -> None:
    law = tp.load(ATTENTION, C=1).limit()
    c = oracles.clip_moment(1.0)
    _, _, y = oracles.attention_draws(400_000, 4, 2, seed=1, c=c)
    cov, error = law.cov("y", with_error=True)
    products = y[:, :, None] * y[:, None, :]
    z = (products.mean(axis=0) - cov) / np.hypot(products.std(axis=0) / np.sqrt(len(y)), error / STATED)
    assert np.abs(z).max() < 4.9
    fourth = (y**4).mean(axis=0)
    z = (fourth - law.moment("y", 4)) / ((y**4).std(axis=0) / np.sqrt(len(y)))
    assert np.abs(z).max() < 4.9


@pytest.mark.parametrize(
    "more", ["u[i]", "mean[a](o[a,i])", "sum[a](a * o[a,i])", "sum[a,j](softmax[j](p[0,i,j]) * o[a,j])"]
)
def test_heads_with_more_beside_them_have_the_law_of_their_draws(more: str, tmp_path: Path) -> None:
    text = ATTENTION.read_text(encoding="utf-8").replace("Nonlin(sum[a", f"Nonlin({more} + sum[a")
    (tmp_path / "more.yaml").write_text(text, encoding="utf-8")
    law = tp.load(tmp_path / "more.yaml", H=3, s=2).limit()
    y = law.sample(1 << 16, seed=1)["y"].reshape(1 << 16, -1)
    np.testing.assert_allclose(law.cov("y"), np.cov(y.T), atol=0.03 * y.var())
    np.testing.assert_allclose(law.cdf("y[0]", [-1.0, 0.3]), [np.mean(y[:, 0] < x) for x in (-1.0, 0.3)], atol=8e-3)


def test_sampler_has_the_covariances_of_the_law() -> None:
    law = tp.load(ATTENTION, C=1).limit()
    drawn = law.sample(60_000, seed=3, keep=["o"])
    for name in ("p", "o"):
        flat = drawn[name].reshape(len(drawn[name]), -1)
        cov = np.asarray(law.cov(name)).reshape(flat.shape[1], -1)
        products = flat[:, :, None] * flat[:, None, :]
        z = (products.mean(axis=0) - cov) / (products.std(axis=0) / np.sqrt(len(flat)))
        assert np.abs(z).max() < 5.5  # 1024 and 64 entries
    mean_product = (drawn["p"].reshape(-1, 32)[:, :, None] * drawn["o"].reshape(-1, 8)[:, None, :]).mean(axis=0)
    assert np.abs(mean_product).max() < 5.5 * np.sqrt(0.5160585509617134**3 / 60_000)


def test_samples_do_not_depend_on_how_many_are_drawn() -> None:
    law = tp.load(ATTENTION).limit()
    assert np.array_equal(law.sample(3000, seed=5)["y"][:1500], law.sample(1500, seed=5)["y"])
    assert not np.array_equal(law.sample(10, seed=5)["y"], law.sample(10, seed=6)["y"])


def test_conditional_law_is_the_gaussian_of_theorem_1() -> None:
    law = tp.load(ATTENTION).limit()
    p = np.random.default_rng(0).standard_normal((3, 5, 2, 4, 4))
    given = law.given({"p": p})
    weights = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)
    expected = np.einsum("xyhij,xyhkj->xyik", weights, weights) / 2
    np.testing.assert_allclose(given.cov(), expected, rtol=1e-12, atol=1e-15)
    assert np.all(given.mean() == 0)
    assert law.given({"p": p[0, 0]}).cov().shape == (4, 4)


def test_density_cdf_and_quantiles_belong_together() -> None:
    law = tp.load(ATTENTION).limit()
    grid = np.linspace(-9, 9, 3001)
    step = grid[1] - grid[0]
    density, error = law.density("y[0]", grid, with_error=True)
    assert abs(density.sum() * step - 1) < 1e-8  # the trapezoidal rule is exact to rounding for so smooth a function
    assert abs((grid**2 * density).sum() * step - 0.391971) < 1e-4
    assert abs((grid**4 * density).sum() * step / 0.391971**2 - 3.121659) < 1e-3
    assert np.all(error < 1e-4)
    levels = np.array([1e-6, 0.1, 0.5, 0.99])
    quantiles = law.quantile("y[0]", levels)
    np.testing.assert_allclose(law.cdf("y[0]", quantiles), levels, rtol=1e-9)
    np.testing.assert_allclose(np.gradient(law.cdf("y[0]", grid), step)[1:-1], density[1:-1], atol=1e-4)


@pytest.mark.slow
def test_keys_shared_by_heads_leave_scores_of_heads_uncorrelated_but_dependent_inputs_show() -> None:
    law = tp.Program("shared", constants={"H": 2})
    i, j, a = law.index("i", 2), law.index("j", 2), law.index("a", "H")
    g = law.initial("g[i]", mean=0, cov=1)
    q_weights, k_weight = law.weights("WQ[a]", "WK")
    x = law.nonlin("x[i]", tp.clip(g[i], -1, 1) + tp.where(i >= 1, 0.5, 0) * tp.clip(g[0], -1, 1))
    q = law.matmul("q[a,i]", q_weights[a], x[i])
    k = law.matmul("k[j]", k_weight, x[j])
    p = law.dot("p[a,i,j]", q[a, i], k[j])
    law.outputs(p)
    cov = np.asarray(law.limit().cov("p")).reshape(8, 8)
    drawn = oracles.dense_attention(20_000, 96, seed=2).reshape(-1, 8)
    products = drawn[:, :, None] * drawn[:, None, :]
    z = (products.mean(axis=0) - cov) / (products.std(axis=0) / np.sqrt(len(drawn)))
    # finite width: terms of relative size 2/96 and below, on top of 64 comparisons
    noise = 5.2 * products.std(axis=0).max() / np.sqrt(len(drawn))
    assert np.abs(products.mean(axis=0) - cov).max() < 0.025 * cov.max() + noise
    assert np.abs(z).max() < 8
    assert np.all(cov.reshape(2, 2, 2, 2, 2, 2)[0, :, :, 1] == 0)


def test_outside_programs_are_refused_with_the_finding() -> None:
    with pytest.raises(tp.OutsideError, match="sqrt"):
        tp.load(shipped_programs()["attention_tied"]).limit()


def test_accuracy_asked_for_is_reached_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, error = tp.load(ATTENTION).limit(accuracy=2e-4).kurtosis("y[0]", with_error=True)
    assert error < 2e-4 * 3.2
    monkeypatch.setattr(averaging, "MAX_LOG2", 9)
    with pytest.raises(tp.AccuracyError, match="asked for"):
        tp.load(ATTENTION, s=8).limit(accuracy=1e-6).kurtosis("y[0]")


def test_explain_names_clause_and_numbers() -> None:
    program = tp.load(ATTENTION, C=1)
    assert "(iv)" in program.explain("p[0,1,2]")
    assert "0.26631" in program.explain("p[0,1,2]")
    assert "kurtosis" in program.explain("y[0]")
    assert "(i)" in program.explain("h")


def test_score_operands_may_enter_the_outputs_as_vectors() -> None:
    """Theorem 1's g^1..g^m contain the operands: Z^q is a Gaussian independent of p-ring."""
    program = tp.Program("both")
    i, j = program.index("i", 2), program.index("j", 2)
    x = program.initial("x[i]", mean=0, cov=1)
    query, key = program.weights("WQ", "WK")
    c = program.nonlin("c[i]", tp.clip(x[i], -1, 1))
    q = program.matmul("q[i]", query, c[i])
    k = program.matmul("k[j]", key, c[j])
    p = program.dot("p[i,j]", q[i], k[j])
    y = program.nonlin("y[i]", tp.sum[j](tp.softmax[j](p[i, j]) * q[j]))
    program.outputs(y)
    assert program.check().grade == "theorem"
    law = program.limit()
    drawn = law.sample(200_000, seed=1, keep=["q"])
    assert np.abs(np.corrcoef(drawn["q"][:, 0] ** 2, drawn["p"][:, 0, 0] ** 2)[0, 1]) < 4.9 / np.sqrt(200_000)
    z = (np.var(drawn["y"], axis=0) - law.moment("y", 2)) / (np.std(drawn["y"] ** 2, axis=0) / np.sqrt(200_000))
    assert np.abs(z).max() < 4.9

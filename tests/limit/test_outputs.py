"""Laws of outputs: independent summands, convolution, joint laws, infinitely many heads; against plain simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import tensorprog as tp
from tensorprog.limit.convolution import Convolution
from tensorprog.limit.mixture import Mixture, Summand
from tensorprog.limit.summands import Function, Summands
from tensorprog.shipped import shipped_programs

from . import oracles

ATTENTION = shipped_programs()["attention"]

# heads of different sizes, a second attention over other tokens, a residual: everything that a sum may hold
MIXED = """
program: mixed
constants: {s: 3, H: 3, G: 2}
indices: {i: s, j: s, a: H, b: G}
initial:
  h[i]: {mean: 0, cov: "0.5**abs(i - i_)"}
  r[i]: {mean: "0.3*i", cov: 1}
weights:
  Q[a]: "1 + a"
  K[a]: 1
  V[a]: 1
  R[b]: 1
  S[b]: 2
  U[b]: 1
body:
  - x[i]     = Nonlin(clip(h[i], -1, 1))
  - q[a,i]   = MatMul(Q[a], x[i])
  - k[a,j]   = MatMul(K[a], x[j])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - v[a,j]   = MatMul(V[a], x[j])
  - c[b,i]   = MatMul(R[b], x[i])
  - d[b,j]   = MatMul(S[b], x[j])
  - t[b,i,j] = Dot(c[b,i], d[b,j])
  - w[b,j]   = MatMul(U[b], x[j])
  - y[i]     = Nonlin(r[i] + sum[a,j](softmax[j](p[a,i,j]) * v[a,j]) / sqrt(H) + sum[b,j](tanh(t[b,i,j]) * w[b,j]))
outputs: [y]
"""


def mixed_moments() -> np.ndarray:
    """E x x' for x = clip(h, -1, 1), h of covariance 0.5**|i - j|: from a two-dimensional product rule, to 1e-7."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    z, w = 8 * nodes, 8 * weights * stats.norm.pdf(8 * nodes)
    result = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            rho = 0.5 ** abs(i - j)
            other = rho * z[:, None] + np.sqrt(1 - rho**2) * z
            result[i, j] = w @ (np.clip(z, -1, 1)[:, None] * np.clip(other, -1, 1)) @ w
    return result


def mixed_draws(size: int, seed: int) -> np.ndarray:
    """Outputs of MIXED from the formulas of Definition 1: (size, 3)."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(mixed_moments())
    y = 0.3 * np.arange(3) + rng.standard_normal((size, 3))
    for a in range(3):
        p = np.sqrt(1 + a) * root @ rng.standard_normal((size, 3, 3)) @ root.T
        weights = np.exp(p - p.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        y += np.einsum("nij,nj->ni", weights, rng.standard_normal((size, 3)) @ root.T) / np.sqrt(3)
    for _ in range(2):
        t = np.sqrt(2) * root @ rng.standard_normal((size, 3, 3)) @ root.T
        y += np.einsum("nij,nj->ni", np.tanh(t), rng.standard_normal((size, 3)) @ root.T)
    return y


def test_a_sum_is_taken_apart_into_independent_blocks_and_heads() -> None:
    law = tp.Law(tp.Program.from_netsor(_netsor(MIXED)).netsor)
    summands = Summands(law.compiler, [Function(law.compiler, "y", ((0, 3),))])
    found = {block.head: (block.size, block.count) for block in summands.blocks}
    assert found == {"a": (3, 1), "b": (1, 2)}  # heads a have different laws, heads b one law
    assert summands.fixed is not None


def test_all_moments_of_a_mixed_sum_agree_with_a_plain_simulation() -> None:
    law = tp.Law(_netsor(MIXED))
    y = mixed_draws(400_000, seed=1)
    centred = y - 0.3 * np.arange(3)
    np.testing.assert_allclose(law.mean("y"), 0.3 * np.arange(3), atol=1e-12)
    cov, error = law.cov("y", with_error=True)
    products = centred[:, :, None] * centred[:, None, :]
    z = (products.mean(axis=0) - cov) / np.hypot(products.std(axis=0) / np.sqrt(len(y)), error / 3)
    assert np.abs(z).max() < 4.9
    for order in (2, 4, 6):
        value, error = law.moment("y", order, with_error=True)
        powers = centred**order
        z = (powers.mean(axis=0) - value) / np.hypot(powers.std(axis=0) / np.sqrt(len(y)), error / 3)
        assert np.abs(z).max() < 4.9
    assert np.all(np.abs(law.moment("y", 3)) < 1e-12)
    np.testing.assert_allclose(law.var("y"), np.diagonal(cov), rtol=1e-3)
    assert law.density_method("y[1]") == "convolution"
    ks = stats.kstest(y[:200_000, 1], lambda x: law.cdf("y[1]", x))
    assert ks.pvalue > 1e-6


def _netsor(text: str) -> object:
    from tensorprog.yaml_io import loads

    return loads(text)


@pytest.mark.parametrize("heads", [2, 5])
def test_convolution_is_the_law_of_all_heads_at_once(heads: int) -> None:
    law = tp.load(ATTENTION, H=heads).limit()
    grid = np.array([0.0, 0.1, 0.7, 1.9, 3.0, 4.5])
    box = ((0, 1),)
    whole = law._mixture("y", box, split=False).member((0,))
    for method in ("density", "cdf"):
        value, error = getattr(law, method)("y[0]", grid, with_error=True)
        other, spread = getattr(whole, method)(grid)
        assert np.all(np.abs(value - other) <= error + spread)
        assert np.all(error < 1e-6)


def two_point(count: int) -> Mixture:
    """A sum of variables N(0, V) with V = 0.5 or 2: the number of large ones is binomial."""
    var = np.array([0.5, 2.0]).reshape(1, 2, 1)
    return Mixture((Summand(np.zeros((1, 2, 1)), var, np.array([[0.7, 0.3]]), count),), np.zeros(()), np.asarray(0.1))


@pytest.mark.parametrize("count", [2, 3, 40])
def test_convolution_of_two_point_variances_is_exact_far_into_the_tails(count: int) -> None:
    law = Convolution(two_point(count))
    number = np.arange(count + 1)
    weight, sd = stats.binom.pmf(number, count, 0.3), np.sqrt(0.1 + 0.5 * count + 1.5 * number)
    grid = np.concatenate([np.linspace(-3, 3, 31), [-40.0, 25.0, 8.0, 15.0]]) * np.sqrt(count)
    density = weight @ stats.norm.pdf(grid, scale=sd[:, None])
    cdf = weight @ stats.norm.cdf(grid, scale=sd[:, None])
    real = density > 1e-290
    np.testing.assert_allclose(law.density(grid)[0][real], density[real], rtol=3e-13)
    np.testing.assert_allclose(law.cdf(grid)[0][real], cdf[real], rtol=3e-13)


def test_a_variance_that_may_be_zero_is_left_to_plain_averages() -> None:
    var = np.array([0.0, 2.0]).reshape(1, 2, 1)
    atom = Mixture((Summand(np.zeros((1, 2, 1)), var, np.full((1, 2), 0.5), 2),), np.zeros(()), np.zeros(()))
    assert not Convolution(atom).usable


@pytest.mark.parametrize(("heads", "kurtosis"), [(1, 3.243318), (2, 3.121659), (4, 3.060830), (16, 3.015207),
                                                 (256, 3.000950)])  # fmt: skip
def test_kurtosis_is_known_to_a_part_in_ten_million(heads: int, kurtosis: float) -> None:
    value, error = tp.load(ATTENTION, H=heads).limit().kurtosis("y[0]", with_error=True)
    assert error < 1e-7
    assert abs(value - kurtosis) < 5.1e-7 + error


@pytest.mark.parametrize("heads", [1, 2])
def test_density_integrates_to_one_and_has_the_moments_of_the_law(heads: int) -> None:
    law = tp.load(ATTENTION, H=heads).limit()
    grid = np.linspace(-12, 12, 4001)
    step = grid[1] - grid[0]
    density = law.density("y[0]", grid)
    assert abs(density.sum() * step - 1) < 1e-12  # the trapezoidal rule is exact to rounding for so smooth a function
    variance = law.var("y[0]")
    np.testing.assert_allclose((grid**2 * density).sum() * step, variance, rtol=1e-8)
    np.testing.assert_allclose((grid**4 * density).sum() * step, law.kurtosis("y[0]") * variance**2, rtol=1e-7)


def test_joint_laws_agree_with_a_plain_simulation() -> None:
    law = tp.load(ATTENTION, C=1, s=3).limit()
    _, _, y = oracles.attention_draws(1_000_000, 3, 2, seed=5, c=oracles.clip_moment(1.0))
    names = ("y[0]", "y[2]")
    pair = y[:, [0, 2]]
    for orders in ((1, 1), (2, 2), (1, 3), (4, 0)):
        value, error = law.moment(names, orders, with_error=True)
        powers = (pair ** np.array(orders)).prod(axis=1)
        assert abs(powers.mean() - value) < 4.9 * np.hypot(powers.std() / 1e3, error / 3)
    points = np.array([[0.0, 0.0], [0.3, -0.2], [-0.8, 1.0], [0.5, 0.5]])
    value, error = law.cdf(names, points, with_error=True)
    below = (pair[:, None] <= points).all(axis=-1)
    z = (below.mean(axis=0) - value) / np.hypot(below.std(axis=0) / 1e3, error / 3)
    assert np.abs(z).max() < 4.9
    # a box in place of a point: the density integrated over it by a product rule, exact for a smooth function
    nodes, weights = np.polynomial.legendre.leggauss(6)
    grid = np.stack(np.meshgrid(0.2 + 0.1 * nodes, -0.1 + 0.1 * nodes, indexing="ij"), axis=-1)
    density, error = law.density(names, grid, with_error=True)
    expected = np.einsum("i,j,ij->", weights, weights, density) * 0.01
    inside = ((pair[:, 0] > 0.1) & (pair[:, 0] < 0.3) & (pair[:, 1] > -0.2) & (pair[:, 1] < 0.0)).mean()
    assert abs(inside - expected) < 4.9 * np.hypot(np.sqrt(expected) / 1e3, error.max() * 0.04 / 3)
    three = law.cdf(("y[0]", "y[1]", "y[2]"), np.zeros(3), with_error=True)
    below = (y < 0).all(axis=1)
    assert abs(below.mean() - three[0]) < 4.9 * np.hypot(below.std() / 1e3, three[1] / 3)


def test_joint_laws_of_gaussian_variables_are_exact() -> None:
    law = tp.load("mlp").limit()
    cov = np.asarray(law.cov("f"))[:2, :2]
    points = np.array([[0.1, -0.4], [1.0, 1.0]])
    expected = stats.multivariate_normal(cov=cov).pdf(points)
    np.testing.assert_allclose(law.density(("f[0]", "f[1]"), points), expected, rtol=1e-9)
    value, error = law.cdf(("f[0]", "f[1]"), np.zeros(2), with_error=True)
    orthant = 0.25 + np.arcsin(cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1])) / (2 * np.pi)
    assert abs(value - orthant) <= error < 1e-3
    assert abs(law.moment(("f[0]", "f[1]"), (2, 2)) - (cov[0, 0] * cov[1, 1] + 2 * cov[0, 1] ** 2)) < 1e-12


@pytest.mark.parametrize(
    ("names", "points", "message"),
    [
        (("y[0]", "y[0]"), [[0, 0]], "linearly dependent"),
        (("y[0]", "y"), [[0, 0]], "name one member"),
        (("y[0]", "y[1]"), [[0, 0, 0]], "need points"),
        (("y[0]", "p[0,0,0]"), [[0, 0]], "law.sample"),
        (("x[0]", "x[1]"), [[0, 0]], "not linear"),
        ((), [], "at least one"),
    ],
)
def test_joint_laws_that_do_not_exist_are_refused(names: tuple[str, ...], points: list[float], message: str) -> None:
    with pytest.raises(tp.ProgramError, match=message):
        tp.load(ATTENTION).limit().density(names, points)


def test_infinitely_many_heads_are_gaussian_with_the_covariance_of_any_number() -> None:
    law = tp.load(ATTENTION, H=3).limit()
    limit = law.infinite_heads("a")
    assert limit.grade == "extension"
    np.testing.assert_array_equal(limit.cov("y"), law.cov("y"))
    assert limit.kurtosis("y[0]") == 3
    many = tp.load(ATTENTION, H=4096).limit()
    grid = np.linspace(-3, 3, 25)
    np.testing.assert_allclose(many.density("y[0]", grid), limit.density("y[0]", grid), atol=2e-5)
    np.testing.assert_allclose(limit.cdf("y[0]", limit.quantile("y[0]", [0.01, 0.5])), [0.01, 0.5], rtol=1e-12)
    np.testing.assert_allclose(limit.moment("y[0]", 4), 3 * limit.var("y[0]") ** 2, rtol=1e-14)
    drawn = limit.sample(200_000, seed=1)["y"]
    products = drawn[:, :, None] * drawn[:, None, :]
    z = (products.mean(axis=0) - limit.cov("y")) / (products.std(axis=0) / np.sqrt(len(drawn)))
    assert np.abs(z).max() < 4.9


@pytest.mark.parametrize(
    ("change", "index", "message"),
    [
        (("/ sqrt(H)", ""), "a", "square root"),
        (("WQ[a]: 1", "WQ[a]: 1 + a"), "a", "one law"),
        (("sqrt(H)", "sqrt(H)"), "i", "independent heads"),
        (("sqrt(H)", "sqrt(H)"), "z", "not an index"),
        (("* o[a,j])", "* tanh(o[a,j]))"), "a", "not linear"),
        (("a: H", "a: 2"), "a", "must be a constant"),
        (("* o[a,j]) / sqrt(H)", "* (o[a,j] + h)) / sqrt(H)"), "a", "independent heads"),
    ],
)
def test_what_has_no_limit_of_infinitely_many_heads_is_refused(
    change: tuple[str, str], index: str, message: str
) -> None:
    text = ATTENTION.read_text(encoding="utf-8").replace(*change)
    with pytest.raises(tp.ProgramError, match=message):
        tp.Law(_netsor(text)).infinite_heads(index)

"""Laws of outputs: sums over heads, joint laws, infinitely many heads; against plain simulation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

import tensorprog as tp
from tensorprog.shipped import shipped_programs
from tests.stated import STATED

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


@pytest.mark.slow
def test_all_moments_of_a_mixed_sum_agree_with_a_plain_simulation() -> None:
    law = tp.Law(_netsor(MIXED))
    y = mixed_draws(200_000, seed=1)
    centred = y - 0.3 * np.arange(3)
    np.testing.assert_allclose(law.mean("y"), 0.3 * np.arange(3), atol=1e-12)
    cov, error = law.cov("y", with_error=True)
    products = centred[:, :, None] * centred[:, None, :]
    z = (products.mean(axis=0) - cov) / np.hypot(products.std(axis=0) / np.sqrt(len(y)), error / STATED)
    assert np.abs(z).max() < 4.9
    for order in (2, 4, 6):
        value, error = law.moment("y", order, with_error=True)
        powers = centred**order
        z = (powers.mean(axis=0) - value) / np.hypot(powers.std(axis=0) / np.sqrt(len(y)), error / STATED)
        assert np.abs(z).max() < 4.9
    assert np.all(np.abs(law.moment("y", 3)) < 1e-12)
    np.testing.assert_allclose(law.var("y"), np.diagonal(cov), rtol=1e-3)
    ks = stats.kstest(y[:50_000, 1], lambda x: law.cdf("y[1]", x))
    assert ks.pvalue > 1e-6


def _netsor(text: str) -> object:
    from tensorprog.language.reading import loads

    return loads(text)


@pytest.mark.parametrize("heads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_density_integrates_to_one_and_has_the_moments_of_the_law(heads: int) -> None:
    law = tp.load(ATTENTION, H=heads).limit()
    grid = np.linspace(-12, 12, 4001)
    step = grid[1] - grid[0]
    density = law.density("y[0]", grid)
    assert abs(density.sum() * step - 1) < 1e-12  # the trapezoidal rule is exact to rounding for so smooth a function
    variance = law.var("y[0]")
    np.testing.assert_allclose((grid**2 * density).sum() * step, variance, rtol=1e-6)
    np.testing.assert_allclose((grid**4 * density).sum() * step, law.kurtosis("y[0]") * variance**2, rtol=1e-5)


def test_joint_laws_agree_with_a_plain_simulation() -> None:
    law = tp.load(ATTENTION, C=1, s=3).limit()
    _, _, y = oracles.attention_draws(600_000, 3, 2, seed=5, c=oracles.clip_moment(1.0))
    names = ("y[0]", "y[2]")
    pair = y[:, [0, 2]]
    for orders in ((1, 1), (2, 2), (1, 3), (4, 0)):
        value, error = law.moment(names, orders, with_error=True)
        powers = (pair ** np.array(orders)).prod(axis=1)
        assert abs(powers.mean() - value) < 4.9 * np.hypot(powers.std() / np.sqrt(len(y)), error / STATED)
    # a box in place of a point: the density integrated over it by a product rule, exact for a smooth function
    nodes, weights = np.polynomial.legendre.leggauss(6)
    grid = np.stack(np.meshgrid(0.2 + 0.1 * nodes, -0.1 + 0.1 * nodes, indexing="ij"), axis=-1)
    density, error = law.density(names, grid, with_error=True)
    expected = np.einsum("i,j,ij->", weights, weights, density) * 0.01
    inside = ((pair[:, 0] > 0.1) & (pair[:, 0] < 0.3) & (pair[:, 1] > -0.2) & (pair[:, 1] < 0.0)).mean()
    assert abs(inside - expected) < 4.9 * np.hypot(np.sqrt(expected / len(y)), error.max() * 0.04 / STATED)


def test_joint_laws_of_gaussian_variables_are_exact() -> None:
    law = tp.load("mlp").limit()
    cov = np.asarray(law.cov("f"))[:2, :2]
    points = np.array([[0.1, -0.4], [1.0, 1.0]])
    expected = stats.multivariate_normal(cov=cov).pdf(points)
    np.testing.assert_allclose(law.density(("f[0]", "f[1]"), points), expected, rtol=1e-9)
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
    law = tp.load(ATTENTION, H=3, s=2).limit()
    limit = law.infinite_heads("a")
    assert limit.grade == "extension"
    np.testing.assert_array_equal(limit.cov("y"), law.cov("y"))
    assert limit.kurtosis("y[0]") == 3
    many = tp.load(ATTENTION, H=16, s=2).limit()
    grid = np.linspace(-3, 3, 25)
    np.testing.assert_allclose(many.density("y[0]", grid), limit.density("y[0]", grid), atol=3e-3)
    np.testing.assert_allclose(limit.cdf("y[0]", limit.quantile("y[0]", [0.01, 0.5])), [0.01, 0.5], rtol=1e-9)
    np.testing.assert_allclose(limit.moment("y[0]", 4), 3 * limit.var("y[0]") ** 2, rtol=1e-14)


SLOW = pytest.mark.slow


def test_many_heads_of_finite_width_add_up() -> None:
    """Heads are independent and alike: a variance stays, and what is beyond 3 of a kurtosis is shared out."""
    two, many = (tp.load("attention_fixed_head", D=4, H=heads).limit() for heads in (2, 2000))
    variance, kurtosis = (
        [getattr(law, which)("y[0]", with_error=True) for law in (two, many)] for which in ("var", "kurtosis")
    )
    assert abs(variance[0][0] - variance[1][0]) <= variance[0][1] + variance[1][1]
    excess, error = 1000 * (kurtosis[1][0] - 3), 1000 * kurtosis[1][1]
    assert abs(excess - (kurtosis[0][0] - 3)) <= error + kurtosis[0][1] < 0.2


@SLOW
def test_heads_that_read_the_same_covariances_leave_room_for_draws() -> None:
    two, many = (tp.load("deep_attention", H=heads).limit().var("y[0]", with_error=True) for heads in (2, 2000))
    assert abs(two[0] - many[0]) <= two[1] + many[1] < 0.03 * two[0]


@pytest.mark.parametrize(
    ("change", "index", "message"),
    [
        (("/ sqrt(H)", ""), "a", "square root"),
        pytest.param(*(("WQ[a]: 1", "WQ[a]: 1 + a"), "a", "one law"), marks=SLOW),
        (("sqrt(H)", "sqrt(H)"), "i", "independent heads"),
        (("sqrt(H)", "sqrt(H)"), "z", "not an index"),
        (("* o[a,j])", "* tanh(o[a,j]))"), "a", "not linear"),
        (("a: H", "a: 2"), "a", "must be a constant"),
        pytest.param(*(("* o[a,j]) / sqrt(H)", "* (o[a,j] + h)) / sqrt(H)"), "a", "one law"), marks=SLOW),
        pytest.param(*(("/ sqrt(H))", "/ sqrt(H) + u[i] / sqrt(H))"), "a", "one law"), marks=SLOW),
        pytest.param(*(("/ sqrt(H))", "/ sqrt(H) + 1 / H)"), "a", "one law"), marks=SLOW),
        pytest.param(
            *(("/ sqrt(H))", "/ where(i == 0, sqrt(H), H))"), "a", "half the variance"), marks=pytest.mark.slow
        ),
    ],
)
def test_what_has_no_limit_of_infinitely_many_heads_is_refused(
    change: tuple[str, str], index: str, message: str
) -> None:
    text = ATTENTION.read_text(encoding="utf-8").replace("s: 4", "s: 2").replace(*change)
    with pytest.raises(tp.ProgramError, match=message):
        tp.Law(_netsor(text)).infinite_heads(index)


ONE = """
program: one
constants: {{H: {heads}}}
indices: {{a: H}}
initial: {{h: {{mean: 0, cov: 1}}}}
weights:
  Q[a]: 1
  K[a]: 1
  V[a]: 1
body:
  - x = Nonlin(clip(h, -50, 50))
  - q[a] = MatMul(Q[a], x)
  - k[a] = MatMul(K[a], x)
  - p[a] = Dot(q[a], k[a])
  - o[a] = MatMul(V[a], x)
  - y = Nonlin(sum[a]({coefficient} * o[a]) / sqrt(H))
outputs: [y]
"""

# coefficients f(p) of y = f(p) o, p and o standard normal: smooth ones, kinks, steps, variances that may be zero
COEFFICIENTS = {
    "p[a]": (lambda p: p, ()),
    "relu(p[a])": (lambda p: max(p, 0.0), ()),
    "(1+clip(50*p[a],0,1))": (lambda p: 1 + min(max(50 * p, 0), 1), (0.02,)),
    "exp(clip(p[a],-3,3))": (lambda p: np.exp(min(max(p, -3), 3)), (-3.0, 3.0)),
    "sigmoid(10*p[a])": (lambda p: special.expit(10 * p), (-3.0, -1.0, 1.0)),
    "p[a]**2": (lambda p: p * p, (-0.1, 0.1)),
    "clip(p[a],-1,1)": (lambda p: min(max(p, -1), 1), (-1.0, 1.0)),
    "tanh(5*p[a])": (lambda p: np.tanh(5 * p), (-0.5, 0.5)),
    "(0.1+abs(p[a]))": (lambda p: 0.1 + abs(p), ()),
}


DEAR = ("exp(clip(p[a],-3,3))", "sigmoid(10*p[a])", "p[a]**2")  # steep or spread wide: many nodes


@pytest.mark.parametrize(
    "coefficient", [pytest.param(c, marks=[pytest.mark.slow] if c in DEAR else []) for c in COEFFICIENTS]
)
def test_stated_errors_hold_for_coefficients_of_every_kind(coefficient: str) -> None:
    f, places = COEFFICIENTS[coefficient]
    edges = sorted({-12.0, 0.0, 12.0, *places})

    def expected(g) -> float:  # type: ignore[no-untyped-def]
        def integrand(p: float) -> float:
            return stats.norm.pdf(p) * g(abs(f(p)))

        pieces = [integrate.quad(integrand, a, b, limit=400, epsabs=1e-13, epsrel=1e-12) for a, b in pairwise(edges)]
        return sum(value for value, _ in pieces)

    law = tp.Law(_netsor(ONE.format(heads=1, coefficient=coefficient)))
    for x in (0.001, 0.1, 1.0, 3.0):
        density = expected(lambda sd: stats.norm.pdf(x, scale=sd) if sd > 0 else 0.0)  # noqa: B023
        below = expected(lambda sd: stats.norm.cdf(x / sd) if sd > 0 else 1.0)  # noqa: B023
        for exact, (value, error) in (
            (density, law.density("y", x, with_error=True)), (below, law.cdf("y", x, with_error=True))
        ):  # fmt: skip
            assert abs(value - exact) <= error + 1e-12
            assert error < 0.03 * exact or x < 0.1  # the density has a spike at 0 where the coefficient vanishes
    second, fourth = (expected(lambda sd: sd**k) for k in (2, 4))  # noqa: B023
    for exact, (value, error) in (
        (second, law.var("y", with_error=True)),
        (3 * fourth / second**2, law.kurtosis("y", with_error=True)),
    ):
        assert abs(value - exact) <= error + 1e-12
        assert error < 0.05 * exact


@pytest.mark.parametrize(("heads", "exact"), [
    (2, lambda x: np.exp(-np.sqrt(2) * x) / np.sqrt(2)),
    (4, lambda x: np.exp(-2 * x) * (1 + 2 * x) / 2),
])  # fmt: skip
def test_sums_of_products_have_the_laws_of_laplace(heads: int, exact) -> None:  # type: ignore[no-untyped-def]
    law = tp.Law(_netsor(ONE.format(heads=heads, coefficient="p[a]")))
    x = np.array([0.01, 0.1, 0.5, 2.0])
    value, error = law.density("y", x, with_error=True)
    assert np.all(np.abs(value - exact(x)) <= error)
    assert np.all(error < 0.01)


@pytest.mark.parametrize("coefficient", ["p[a]**2", pytest.param("abs(p[a])**3", marks=pytest.mark.slow)])
def test_unbounded_variances_have_a_law_like_any_other(coefficient: str) -> None:
    law = tp.Law(_netsor(ONE.format(heads=4, coefficient=coefficient)))
    rng = np.random.default_rng(3)
    p, o = rng.standard_normal((2, 400_000, 4))
    y = (np.abs(p) ** (2 if "2" in coefficient else 3) * o).sum(axis=1) / 2
    grid = np.array([-4.0, -1.0, -0.1, 0.0, 0.3, 2.0])
    value, error = law.cdf("y", grid, with_error=True)
    below = (y[:, None] <= grid).mean(axis=0)
    assert np.abs((below - value) / np.hypot(np.sqrt(below * (1 - below) / len(y)), error / STATED)).max() < 4.9
    levels = np.array([0.1, 0.7])
    np.testing.assert_allclose(law.cdf("y", law.quantile("y", levels)), levels, rtol=1e-6)


def test_an_atom_is_an_atom() -> None:
    law = tp.Law(_netsor(ONE.format(heads=1, coefficient="relu(p[a])")))
    value, error = law.density("y", [0.0, 1.0], with_error=True)
    assert value[0] == np.inf
    assert error[0] == 0
    np.testing.assert_allclose(law.cdf("y", [-1e-300, 0.0]), [0.25, 0.75], atol=1e-4)
    median = law.quantile("y", 0.5)
    assert median >= 0
    assert law.cdf("y", median) > 0.7


def test_scores_of_huge_variance_are_not_taken_for_smooth() -> None:
    text = ATTENTION.read_text(encoding="utf-8").replace("WQ[a]: 1", "WQ[a]: 1e6").replace("s: 4, H: 2", "s: 2, H: 1")
    law = tp.Law(_netsor(text))
    rng = np.random.default_rng(1)
    p = 1e3 * oracles.clip_moment(100.0) * rng.standard_normal((1_000_000, 2))
    weights = np.exp(p - p.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    v = np.square(weights).sum(axis=1)
    value, error = law.var("y[0]", with_error=True)
    assert abs(v.mean() - value) < 4.9 * np.hypot(v.std() / 1e3, error / STATED)


# y is a sum over three vectors v of variance 1 with coefficients g relu(p), and scores p of variance P; g and P may
# depend on the member, and on the head where members are heads of one sum
MEMBERS = """
program: members
constants: {s: 3, "C[i]": [2, 0.5, 3]}
indices: {i: s, j: s, l: {size: s, boundary: zero}}
initial:
  h[i]: {mean: 0, cov: "where(i == i_, VARIANCE, 0)"}
  r[i]: {mean: 0, cov: "where(i == i_, 1, 0)"}
  z[i]: {mean: 0, cov: "where(i == i_, 1 + i, 0)"}
weights: {"Q[i]": WEIGHT, K: 1, "V[i]": SIZE, "T[i]": 1}
body:
  - q[i]   = MatMul(Q[i], h[i])
  - k[j]   = MatMul(K, r[j])
  - p[l,j] = Dot(q[l], k[j])
  - v[i,j] = MatMul(V[i], r[j])
  - m[i]   = Dot(z[i], z[i], scale=1/n)
  - y[i]   = Nonlin(sum[j](COEFFICIENT * v[i,j]))
  - t      = Nonlin(sum[i](sum[j](COEFFICIENT * v[i,j])))
outputs: [y, t]
"""
PLAIN = {"VARIANCE": "1", "WEIGHT": "1", "SIZE": "1", "COEFFICIENT": "relu(p[i,j])"}


@pytest.mark.parametrize(("changed", "sizes"), [
    ({}, (1, 1, 1)),
    ({"COEFFICIENT": "(i + 1) * relu(p[i,j])"}, (1, 4, 9)),
    ({"COEFFICIENT": "where(i == 1, 0, relu(p[i,j]))"}, (1, 0, 1)),
    ({"COEFFICIENT": "C[i] * relu(p[i,j])"}, (4, 0.25, 9)),
    ({"COEFFICIENT": "m[i] * relu(p[i,j])"}, (1, 4, 9)),
    ({"COEFFICIENT": "relu(p[i + 1,j])"}, (1, 1, 0)),
    ({"VARIANCE": "1 + i"}, (1, 2, 3)),
    ({"WEIGHT": "1 + i"}, (1, 2, 3)),
    ({"SIZE": "1 + i"}, (1, 2, 3)),
])  # fmt: skip
def test_members_and_heads_share_a_law_only_where_they_have_it(
    changed: dict[str, str], sizes: tuple[float, ...]
) -> None:
    text = MEMBERS
    for name, value in (PLAIN | changed).items():
        text = text.replace(name, value)
    law = tp.Law(_netsor(text))
    # of each of three summands E relu(p)**2 = P / 2 and E relu(p)**4 = 3 P**2 / 2
    variances = 1.5 * np.array(sizes)
    fourth = 3 * (3 * 1.5 * np.array(sizes) ** 2 + 6 * (np.array(sizes) / 2) ** 2)
    for name, exact in (("y", variances), ("t", variances.sum())):
        value, error = law.var(name, with_error=True)
        assert np.all(np.abs(value - exact) <= error + 1e-12)
        assert np.all(error <= 1e-2 * np.maximum(exact, 1))
    excess = fourth - 3 * variances**2
    for name, exact in (("y", fourth), ("t", 3 * variances.sum() ** 2 + excess.sum())):
        value, error = law.moment(name, 4, with_error=True)
        assert np.all(np.abs(value - exact) <= error + 1e-12)
        assert np.all(error <= 1e-2 * np.maximum(exact, 1))
    np.testing.assert_allclose(np.diag(law.cov("y")), variances, rtol=1e-3)

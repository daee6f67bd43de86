"""A program written naturally, biases and weights behind scores included, has the law of the theorem's form by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tensorprog import Law, Program
from tensorprog.check.clauses import check
from tensorprog.check.rewrites import normalize
from tests.reading import Netsor, loads

HEAD = """program: p
constants: {{H: 2}}
indices: {{i: 2, j: 2, a: H}}
initial:
  h: {{mean: 0, cov: 1}}
  bv[a]: {{mean: 0, cov: 0.4}}
{initial}
weights:
  W[i]: 1
  WQ[a]: 1
  WK[a]: 0.8
  WV[a]: 1.2
  WO[a]: 0.7
{weights}
body:
  - u[i] = MatMul(W[i], h)
  - x[i] = Nonlin(tanh(u[i]))
  - gq[a,i] = MatMul(WQ[a], x[i])
  - gk[a,j] = MatMul(WK[a], x[j])
  - gv[a,j] = MatMul(WV[a], x[j])
{body}
outputs: [y]
"""
NATURAL = HEAD.format(
    initial="  bq[a]: {mean: 0, cov: 0.3}\n  bk[a]: {mean: 0, cov: 0.5}",
    weights="",
    body="""
  - q[a,i] = Nonlin(gq[a,i] + bq[a])
  - k[a,j] = Nonlin(gk[a,j] + bk[a])
  - v[a,j] = Nonlin(gv[a,j] + bv[a])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - z[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * v[a,j]))
  - o[a,i] = MatMul(WO[a], z[a,i])
  - y[i] = Nonlin(sum[a](o[a,i]) / sqrt(H))""",
)
BY_HAND = HEAD.format(
    initial="",
    weights="  BQ[a]: 0.3\n  BK[a]: 0.5",
    body="""
  - one = Nonlin(1)
  - bq[a] = MatMul(BQ[a], one)
  - bk[a] = MatMul(BK[a], one)
  - p1[a,i,j] = Dot(gq[a,i], gk[a,j])
  - p2[a,i] = Dot(gq[a,i], bk[a])
  - p3[a,j] = Dot(bq[a], gk[a,j])
  - p4[a] = Dot(bq[a], bk[a])
  - p[a,i,j] = Nonlin(p1[a,i,j] + p2[a,i] + p3[a,j] + p4[a])
  - v[a,j] = Nonlin(gv[a,j] + bv[a])
  - og[a,j] = MatMul(WO[a], gv[a,j])
  - ob[a] = MatMul(WO[a], bv[a])
  - y[i] = Nonlin(sum[a,j](softmax[j](p[a,i,j]) * (og[a,j] + ob[a])) / sqrt(H))""",
)


@pytest.fixture(scope="module")
def laws() -> tuple[Law, Law]:
    return Law(loads(NATURAL)), Law(loads(BY_HAND))


def test_scores_have_the_covariance_of_the_sums_by_hand(laws: tuple[Law, Law]) -> None:
    natural, by_hand = laws
    parts = {"p1": "aijbkl", "p2": "aibk", "p3": "ajbl", "p4": "ab"}
    expected = np.zeros((2,) * 6)
    for name, letters in parts.items():
        expected += np.asarray(by_hand.cov(name)).reshape([2 if c in letters else 1 for c in "aijbkl"])
    np.testing.assert_allclose(np.asarray(natural.cov("p")), expected, rtol=0, atol=1e-14)
    for one, two in itertools.combinations(parts, 2):
        assert not np.asarray(by_hand.cov(one, two)).any()


@pytest.mark.slow
def test_values_and_outputs_have_the_law_of_those_by_hand(laws: tuple[Law, Law]) -> None:
    natural, by_hand = laws
    np.testing.assert_array_equal(np.asarray(natural.cov("v")), np.asarray(by_hand.cov("v")))
    for order in (2, 4):
        (first, one), (second, two) = (law.moment("y[0]", order, with_error=True) for law in laws)
        assert abs(first - second) <= one + two
    (first, one), (second, two) = (law.cov("y", with_error=True) for law in laws)
    assert np.all(np.abs(first - second) <= one + two)
    assert np.max(one + two) < 1e-3


def test_given_scores_the_laws_are_equal(laws: tuple[Law, Law]) -> None:
    natural, by_hand = laws
    generator = np.random.default_rng(0)
    parts = {
        name: generator.normal(size=(3, *(2,) * count)) for name, count in (("p1", 3), ("p2", 2), ("p3", 2), ("p4", 1))
    }
    total = parts["p1"] + parts["p2"][:, :, :, None] + parts["p3"][:, :, None] + parts["p4"][:, :, None, None]
    first, second = natural.given({"p": total}), by_hand.given(parts)
    np.testing.assert_allclose(first.cov("y"), second.cov("y"), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(first.mean("y"), second.mean("y"))


def statistics(netsor: Netsor, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of some functions of outputs and scores over networks, and their squared standard errors."""
    samples = Program.from_netsor(netsor).run(width=24, samples=40_000, seed=seed, method="lazy", keep=("p",))
    y, p = samples["y"], samples["p"]
    functions = np.stack(
        [
            y[:, 0] ** 2,
            y[:, 0] * y[:, 1],
            y[:, 0] ** 4,
            y[:, 0] ** 2 * y[:, 1] ** 2,
            p[:, 0, 0, 0] ** 2,
            p[:, 0, 0, 0] * p[:, 0, 1, 1],
            p[:, 0, 0, 0] ** 2 * p[:, 0, 0, 1] ** 2,
            p[:, 1, 1, 0] ** 2 * y[:, 1] ** 2,
            p[:, 0, 0, 1] * y[:, 0] ** 2,
            np.cos(y[:, 1]),
            np.tanh(p[:, 1, 0, 1]) ** 2,
        ]
    )
    return functions.mean(axis=1), functions.var(axis=1) / functions.shape[1]


@pytest.mark.slow
def test_finite_networks_of_the_rewritten_program_have_the_same_law() -> None:
    netsor = loads(NATURAL)
    rewritten = normalize(netsor)
    assert {step.kind for step in rewritten.steps} == {"expand", "biases", "move"}
    (first, one), (second, two) = statistics(netsor, 1), statistics(rewritten.netsor, 2)
    assert np.abs((first - second) / np.sqrt(one + two)).max() < 5.4  # one in a million


GATED = HEAD.format(
    initial="",
    weights="  G: 0.9",
    body="""
  - p[a,i,j] = Dot(gq[a,i], gk[a,j])
  - g[i] = MatMul(G, x[i])
  - c[a,i] = Nonlin(sigmoid(g[i]) * sum[j](softmax[j](p[a,i,j]) * gv[a,j]))
  - o[a,i] = MatMul(WO[a], c[a,i])
  - y[i] = Nonlin(sum[a](o[a,i]) / sqrt(H))""",
).replace("  bv[a]: {mean: 0, cov: 0.4}\n", "")
GATED_BY_HAND = (
    GATED.replace(
        "  - c[a,i] = Nonlin(sigmoid(g[i]) * sum[j](softmax[j](p[a,i,j]) * gv[a,j]))",
        """
  - c[a,i,j] = Nonlin(sigmoid(g[i]) * gv[a,j])""",
    )
    .replace(
        "o[a,i] = MatMul(WO[a], c[a,i])",
        """\
o[a,i,j] = MatMul(WO[a], c[a,i,j])""",
    )
    .replace("sum[a](o[a,i])", "sum[a,j](softmax[j](p[a,i,j]) * o[a,i,j])")
)


def test_gated_attention_is_the_theorem_and_has_the_law_of_the_form_by_hand() -> None:
    natural, by_hand = loads(GATED), loads(GATED_BY_HAND)
    assert [check(netsor).grade for netsor in (natural, by_hand)] == ["theorem", "theorem"]
    first, second = Law(natural), Law(by_hand)
    np.testing.assert_array_equal(np.asarray(first.cov("p")), np.asarray(second.cov("p")))
    scores = {"p": np.random.default_rng(1).normal(size=(3, 2, 2, 2))}
    np.testing.assert_allclose(first.given(scores).cov("y"), second.given(scores).cov("y"), rtol=0, atol=1e-13)
    for order in (2, 4):
        (one, error), (two, other) = (law.moment("y[0]", order, with_error=True) for law in (first, second))
        assert abs(one - two) <= error + other


@pytest.mark.slow
def test_gated_networks_have_the_law_of_the_form_by_hand() -> None:
    (first, one), (second, two) = statistics(loads(GATED), 3), statistics(loads(GATED_BY_HAND), 4)
    assert np.abs((first - second) / np.sqrt(one + two)).max() < 5.4  # one in a million


WINDOW = """program: window
indices: {c: {size: 4, boundary: %s}, w: -1..1}
initial:
  e[c]: {cov: 1 + c}
  b: {cov: 0.2}
weights: {Q: 1, K: 1}
body:
  - q[c] = MatMul(Q, e[c])
  - g[c] = MatMul(K, e[c])
  - k[c] = Nonlin(g[c] + b)
  - p[c,w] = Dot(q[c], k[c + w])
  - y[c] = Nonlin(sum[w](tanh(p[c,w]) * e[c]))
outputs: [y]
"""


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["zero", "wrap"])
def test_scores_of_sums_read_beyond_a_boundary(rule: str) -> None:
    law = Law(loads(WINDOW % rule))
    covariance = np.asarray(law.cov("p"))
    for c, w in itertools.product(range(4), range(3)):
        read = c + w - 1
        inside = 0 <= read < 4 or rule == "wrap"
        expected = (1 + c) * (1 + read % 4 + 0.2) if inside else 0.0
        assert abs(covariance[c, w, c, w] - expected) < 2e-3 * max(expected, 1)

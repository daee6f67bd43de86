"""The coefficient of the divergence that the check prints, against networks with dense matrices."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.limit.law.conditional_moments import coefficients
from tests.corpus import Case
from tests.reading import judge

Array = np.ndarray
WIDTH, REPEATS = 256, 400


class Draw:
    """One network of width n: Gaussian matrices and vectors."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.n = WIDTH

    def matrix(self, rows: int = WIDTH, variance: float = 1.0) -> Array:
        return self.rng.normal(0, np.sqrt(variance / WIDTH), (rows, WIDTH))

    def vectors(self, count: int, rho: float = 0.0) -> Array:
        cov = np.full((count, count), rho) + (1 - rho) * np.eye(count)
        return np.linalg.cholesky(cov) @ self.rng.normal(size=(count, self.n))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def tied(phi: Callable[[Array], Array], psi: Callable[[Array], Array], rho: float) -> Callable[[Draw], float]:
    def score(draw: Draw) -> float:
        (f, g), w = draw.vectors(2, rho), draw.matrix()
        return float((w @ phi(f)) @ (w @ psi(g)))

    return score


def attention(draw: Draw) -> float:
    x = np.clip(draw.matrix() @ draw.vectors(1)[0], -2, 2)
    w = draw.matrix()
    return float((w @ x) @ (w @ x))


def one_bias(draw: Draw) -> float:
    (f, g), e = draw.vectors(2), 0.5 * draw.vectors(1)[0]
    return float((draw.matrix() @ np.tanh(f) + e) @ (draw.matrix() @ np.tanh(g) + e))


def two_means(draw: Draw) -> float:
    (f, g), (d, e) = draw.vectors(2), draw.vectors(2)
    return float((draw.matrix() @ np.tanh(f) + 1 + d) @ (draw.matrix() @ np.tanh(g) - 0.5 + e))


def one_part(draw: Draw) -> float:
    (f, g), w = draw.vectors(2, 0.5), draw.matrix()
    return float((draw.matrix() @ np.tanh(f) + w @ np.tanh(f)) @ (draw.matrix() @ np.tanh(g) + w @ np.tanh(g)))


def growing_members(draw: Draw) -> float:
    x, w = 3 * np.tanh(draw.vectors(1)[0]), draw.matrix()
    return float((w @ x) @ (w @ x))


def low_rank(draw: Draw) -> float:
    (f, g), w = draw.vectors(2, 0.5), draw.matrix(WIDTH // 2, 2.0)
    return 2 * float((w @ np.tanh(f)) @ (w @ np.tanh(g)))  # n / d = 2


def score_of(left: str, right: str, rho: float, then: str = "k = MatMul(WQ, z)\np = Dot(q, k)") -> Case:
    body = f"x = Nonlin({left})\nz = Nonlin({right})\nq = MatMul(WQ, x)\n{then}\ny = Nonlin(tanh(p) * x)"
    initial = {
        "h[c]": {"mean": 0, "cov": f"where(c == c_, 1, {rho})"},
        "e": {"mean": 0, "cov": 0.25},
        "f": {"mean": 1, "cov": 1},
        "g": {"mean": -0.5, "cov": 1},
    }
    return Case("c", "nothing", then=body, indices={"c": 2}, initial=initial)


SUMS = """k = MatMul(WK, z)
r = MatMul(WR, x)
l = MatMul(WR, z)
c1 = Nonlin(q + r)
c2 = Nonlin(k + l)
p = Dot(c1, c2)"""
BIASES = "k = MatMul(WK, z)\nc1 = Nonlin(q + {})\nc2 = Nonlin(k + {})\np = Dot(c1, c2)"
MEMBERS = """x[i] = Nonlin(i * tanh(h))
q[i] = MatMul(WQ[i], x[i])
p[i,j] = Dot(q[i], q[j])
y = Nonlin(sum[i,j](p[i,j] * x[i]))"""
LOW = Case(
    "l",
    "nothing",
    then=score_of("tanh(h[0])", "tanh(h[1])", 0.5).then,
    indices={"c": 2},
    widths={"d": "n/2"},
    initial={"h[c]": {"mean": 0, "cov": "where(c == c_, 1, 0.5)"}},
    weights={"WQ": {"variance": 2, "shape": ["d", "n"]}},
)
PROGRAMS = {
    "attention": (Case("a", replace={"WK[a]": "WQ[a]"}), attention),
    "positive": (score_of("sigmoid(h[0])", "sigmoid(h[1])", 0), tied(sigmoid, sigmoid, 0)),
    "negative": (score_of("tanh(h[0])", "-tanh(h[1])", 0.5), tied(np.tanh, lambda g: -np.tanh(g), 0.5)),
    "small": (score_of("tanh(h[0])", "tanh(h[1])", 0.05), tied(np.tanh, np.tanh, 0.05)),
    "of both signs": (
        score_of("h[0]**2 - 1.2", "sin(h[1]) + 0.2", 0.5),
        tied(lambda f: f**2 - 1.2, lambda g: np.sin(g) + 0.2, 0.5),
    ),
    "one bias": (score_of("tanh(h[0])", "tanh(h[1])", 0, BIASES.format("e", "e")), one_bias),
    "two means": (score_of("tanh(h[0])", "tanh(h[1])", 0, BIASES.format("f", "g")), two_means),
    "one part of four": (score_of("tanh(h[0])", "tanh(h[1])", 0.5, SUMS), one_part),
    "members that differ": (Case("m", "nothing", then=MEMBERS, weights={"WQ[i]": 1}), growing_members),
    "low rank": (LOW, low_rank),
    "no weights": (
        score_of("sigmoid(h[0])", "tanh(h[1]) + 0.1", 0.5, "p = Dot(x, z)"),
        lambda draw: (lambda f, g: float(sigmoid(f) @ (np.tanh(g) + 0.1)))(*draw.vectors(2, 0.5)),
    ),
}


def gated(then: str) -> Case:
    base = "x = Nonlin(tanh(h))\nq = MatMul(Q, x)\nk = MatMul(K, x)\nv = MatMul(V, x)\np = Dot(q, k)\n"
    return Case("g", "nothing", then=base + then, outputs=("L",))


def behind(score: Callable[[Array, Array, Array, float, Draw], float]) -> Callable[[Draw], float]:
    """`score(h, x, v, p, draw)` of one network."""

    def of(draw: Draw) -> float:
        h = draw.vectors(1)[0]
        x = np.tanh(h)
        p = float((draw.matrix() @ x) @ (draw.matrix() @ x)) / np.sqrt(draw.n)
        return score(h, x, draw.matrix() @ x, p, draw)

    return of


def shared(u: Array, z: Array, draw: Draw) -> float:
    w = draw.matrix()
    return float((w @ u) @ (w @ z))


TIED = "c = MatMul(U, r)\nd = MatMul(U, x)\nL = Dot(c, d)"
BEHIND = {
    "tied embedding": (
        gated("r = Nonlin(h + sigmoid(p)*v)\nL = Dot(r, h)"),
        behind(lambda h, x, v, p, _: float((h + sigmoid(p) * v) @ h)),
    ),
    "tied embedding of a function": (
        gated("r = Nonlin(x + sigmoid(p)*v)\nL = Dot(r, h)"),
        behind(lambda h, x, v, p, _: float((x + sigmoid(p) * v) @ h)),
    ),
    "gate": (
        gated("r = Nonlin(sigmoid(p)*h + v)\nL = Dot(r, h)"),
        behind(lambda h, x, v, p, _: float((sigmoid(p) * h + v) @ h)),
    ),
    "gate of both signs": (
        gated("r = Nonlin(tanh(3*p)*x + x + v)\n" + TIED),
        behind(lambda h, x, v, p, draw: shared(np.tanh(3 * p) * x + x + v, x, draw)),
    ),
    "nonlinear": (
        gated("r = Nonlin(tanh(x + sigmoid(p)*v))\n" + TIED),
        behind(lambda h, x, v, p, draw: shared(np.tanh(x + sigmoid(p) * v), x, draw)),
    ),
}
CANCELLING = {
    "gates": (
        gated("w = Nonlin(-x)\nr = Nonlin(sigmoid(p)*x + sigmoid(p)*w + v)\n" + TIED),
        behind(lambda h, x, v, p, draw: shared(v, x, draw)),
    ),
    "parity": (
        gated("r = Nonlin(sigmoid(p)*x**2 + v)\nL = Dot(r, x)"),
        behind(lambda h, x, v, p, _: float((sigmoid(p) * x**2 + v) @ x)),
    ),
    "a nonlinear function": (
        gated("r = Nonlin(tanh(x + p) + tanh(-x - p) + v)\nL = Dot(r, x)"),
        behind(lambda h, x, v, p, _: float(v @ x)),
    ),
}


def simulated(simulate: Callable[[Draw], float]) -> tuple[float, float]:
    values = np.array([simulate(Draw(seed)) for seed in range(REPEATS)]) / WIDTH
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(REPEATS))


@pytest.mark.slow
@pytest.mark.parametrize("name", BEHIND)
def test_coefficients_behind_scores_are_those_of_dense_networks(name: str) -> None:
    case, simulate = BEHIND[name]
    report = judge(case.load())
    assert (report.grade, report.consequence, report.rate) == ("outside", "diverges", "sqrt(n)")
    message = report.failing[0].message
    number = re.search(r"\] is (-?[\d.e-]+) in a draw of the scores upstream", message)
    assert number is not None
    mean, error = simulated(simulate)
    assert np.sign(mean) == np.sign(float(number[1]))
    assert error < 0.3 * abs(mean)


@pytest.mark.slow
@pytest.mark.parametrize("name", CANCELLING)
def test_a_score_whose_parts_cancel_is_not_said_to_diverge(name: str) -> None:
    case, simulate = CANCELLING[name]
    report = judge(case.load())
    assert (report.grade, report.consequence, report.rate) == ("outside", "not covered", "")
    assert not any("not zero" in finding.message or "diverges" in finding.message for finding in report.failing)
    mean, error = simulated(simulate)
    assert abs(mean) < 4.5 * error
    assert error < 0.02


@pytest.mark.parametrize("size", [1, 1e3, 1e5])
def test_what_rounding_leaves_of_parts_that_cancel_is_no_mean(size: float) -> None:
    gate = f"z = Nonlin({size} * x)\nr = Nonlin((sin(p)**2 + cos(p)**2 - 1) * z + v)\n"
    report = judge(gated(gate + TIED.replace("MatMul(U, x)", "MatMul(U, z)")).load())
    assert report.consequence == "not covered"
    assert "which is 0" in report.failing[0].message


def test_large_families_are_looked_at_in_few_members() -> None:
    body = """x[i] = Nonlin(tanh(h[i]))
q[i] = MatMul(Q, x[i])
k[j] = MatMul(K, x[j])
v[j] = MatMul(V, x[j])
p[i,j] = Dot(q[i], k[j])
r[i] = Nonlin({}sum[j](softmax[j](p[i,j]) * v[j]))
L[i,w] = Dot(r[i], h[w])"""
    found = {}
    for part in ("x[i] + ", "x[i] - x[i] + "):
        case = Case(
            "w",
            "nothing",
            then=body.format(part),
            outputs=("L",),
            constants={"s": 4},
            indices={"w": 20},
            initial={"h[w]": {"mean": 0, "cov": 1}},
        )
        found[part] = judge(case.load())
    assert found["x[i] + "].consequence == "diverges"
    assert found["x[i] - x[i] + "].consequence == "not covered"


@pytest.mark.parametrize("size", [3, 200_000])
def test_the_size_of_a_family_costs_nothing(size: int) -> None:
    report = tp.load("attention_tied", s=size).check()
    assert "is 1 at a=0, i=0, j=0" in report.failing[0].message


def test_one_voice_for_each_score() -> None:
    for case in (gated("r = Nonlin(x + sigmoid(p)*v)\n" + TIED), CANCELLING["gates"][0]):
        said = {
            re.search(r"The mean of L is (.*?)(, and no|, so|\. )", finding.message)[1]  # type: ignore[index]
            for finding in judge(case.load()).failing
        }
        assert len(said) == 1


def test_behind_a_score_that_diverges_no_mean_is_known() -> None:
    case = gated("r = Nonlin(h + sigmoid(p)*v)\nL = Dot(r, h)")
    report = judge(Case("d", "nothing", then=case.then.replace("MatMul(K", "MatMul(Q"), outputs=("L",)).load())
    embedding = next(finding for finding in report.failing if finding.rule == "scales")
    assert "which is not known" in embedding.message and embedding.consequence == "not covered"


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_coefficient_is_that_of_dense_networks(name: str) -> None:
    case, simulate = PROGRAMS[name]
    report = judge(case.load())
    assert (report.grade, report.consequence, report.rate) == ("outside", "diverges", "sqrt(n)")
    found = re.search(r"Z\^.+?\] is (-?[\d.e-]+)( at i=3, j=3)?", report.failing[0].message)
    assert found
    assert bool(found[2]) == (name == "members that differ")
    mean, error = simulated(simulate)
    assert abs(mean - float(found[1])) < 4.5 * error + 2 / WIDTH * abs(mean) + 5e-4
    assert error < 0.3 * abs(mean)


@pytest.mark.parametrize(
    ("boundary", "read"), [("wrap", "r[t-1], x[t+2]"), ("zero", "r[t-1], x[t-1]"), ("wrap", "r[t-1], x[t]")]
)
def test_operands_that_are_read_beyond_a_boundary(boundary: str, read: str) -> None:
    body = """x[t] = Nonlin(tanh(h[t]))
q[t] = MatMul(Q, x[t])
k[t] = MatMul(K, x[t])
p[t] = Dot(q[t], k[t])
r[t] = Nonlin(sigmoid(p[t]) * x[t])
L[t] = Dot({}, scale=1/n)"""
    found = []
    for operands in ("r[t], x[t]", read):
        case = Case(
            "b",
            "nothing",
            then=body.format(operands),
            outputs=("L",),
            indices={"t": {"size": 3, "boundary": boundary}},
            initial={"h[t]": {"mean": 0, "cov": "where(t == t_, 1, 0)"}},
        )
        found.append(coefficients(case.load(), "L"))
    (inside, *_), (value, error, *_) = found
    if boundary == "zero":  # fewer scores are read, so that draws are others
        assert not value[:, 0].any()
        assert np.abs(value[:, 1:].mean() - inside.mean()) < 4.5 * inside.std() / np.sqrt(inside.size / 2)
    else:
        expected = np.roll(inside, 1, axis=1) * (read != "r[t-1], x[t]")
        assert np.all(np.abs(value - expected) <= 3 * error + 1e-12)
    assert np.max(inside.std(axis=0)) > 0.03  # so that members of other draws would be noticed

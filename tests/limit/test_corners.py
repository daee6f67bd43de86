"""Index gymnastics and degenerate laws: every way to ask must give the number that plain numpy gives."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import Law
from tests.reading import loads

HEAD = """
program: corner
indices: {i: 3, j: 3, k: "1..2"}
initial:
  h: {mean: 0, cov: 1}
weights:
  W[i]: 1
  WQ: 1
  WK: 1
  WV: 1
body:
  - u[i] = MatMul(W[i], h)
  - x[i] = Nonlin((1 + 0.5*i) * tanh(u[i]))
  - q[i] = MatMul(WQ, x[i])
  - c[j] = MatMul(WK, x[j])
  - p[i,j] = Dot(q[i], c[j])
  - o[j] = MatMul(WV, x[j])
"""


@cache
def plain(samples: int = 100_000):  # type: ignore[no-untyped-def]
    """Scores and values of HEAD drawn from Definition 1 by hand."""
    generator = np.random.default_rng(5)
    t = np.linspace(-9, 9, 20001)
    tanh = np.sum(np.tanh(t) ** 2 * np.exp(-(t**2) / 2)) * (t[1] - t[0]) / np.sqrt(2 * np.pi)
    second = tanh * (1 + 0.5 * np.arange(3)) ** 2
    p = generator.standard_normal((samples, 3, 3)) * np.sqrt(np.outer(second, second))
    return p, generator.standard_normal((samples, 3)) * np.sqrt(second)


def softmax(x, axis):  # type: ignore[no-untyped-def]
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def row(p):  # type: ignore[no-untyped-def]
    return softmax(p, 2)


CASES = {
    "softmax as a statement, one member read": (
        ["g[i,j] = Nonlin(softmax[j](p[i,j]))", "y = Nonlin(g[0,0] * o[0])"],
        lambda p, o: (row(p)[:, 0, 0] * o[:, 0])[:, None],
    ),
    "softmax as a statement, some members read": (
        ["g[i,j] = Nonlin(softmax[j](p[i,j]))", "y = Nonlin(sum[k](g[2,k] * o[k]))"],
        lambda p, o: (row(p)[:, 2, 1:] * o[:, 1:]).sum(1)[:, None],
    ),
    "softmax over the index on the left": (
        ["y[i] = Nonlin(sum[j](softmax[i](p[i,j]) * o[j]))"],
        lambda p, o: (softmax(p, 1) * o[:, None, :]).sum(2),
    ),
    "residual": (
        ["y[i] = Nonlin(o[i] + sum[j](softmax[j](p[i,j]) * o[j]))"],
        lambda p, o: o + (row(p) * o[:, None, :]).sum(2),
    ),
    "diagonal of a softmax": (
        ["g[i,j] = Nonlin(softmax[j](p[i,j]))", "y[i] = Nonlin(g[i,i] * o[i])"],
        lambda p, o: np.diagonal(row(p), axis1=1, axis2=2) * o,
    ),
    "two attention sums at different places": (
        ["g[i,j] = Nonlin(softmax[j](p[i,j]))", "y[i] = Nonlin(sum[k](g[i,k] * o[k]) + sum[k](g[i,k] * o[k-1]))"],
        lambda p, o: (row(p)[:, :, 1:] * (o[:, None, 1:] + o[:, None, :2])).sum(2),
    ),
    "a part of the scores only": (
        ["y[k] = Nonlin(tanh(p[k,k-1]) * o[k] + p[k-1,k] * o[0])"],
        lambda p, o: np.stack([np.tanh(p[:, k, k - 1]) * o[:, k] + p[:, k - 1, k] * o[:, 0] for k in (1, 2)], axis=1),
    ),
    "zero variance beside scores": (
        ["y[i] = Nonlin(i * sum[j](softmax[j](p[i,j]) * o[j]))"],
        lambda p, o: np.arange(3) * (row(p) * o[:, None, :]).sum(2),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, function) in CASES.items() if function])
def test_all_ways_of_asking_agree_with_plain_numpy(name: str) -> None:
    lines, function = CASES[name]
    law = Law(loads(HEAD + "".join(f"  - {line}\n" for line in lines) + "outputs: [y]\n"))
    y = function(*plain())  # type: ignore[misc]
    noise = np.std(y**2, axis=0) / np.sqrt(len(y))
    members = law.netsor.families["y"].ranges
    names = [f"y[{m}]" for m in range(*members[0])] if members else ["y"]
    variance = np.array([law.var(member) for member in names])
    whole = np.reshape(law.var("y"), -1)
    diagonal = np.diagonal(np.reshape(law.cov("y"), (len(names), len(names))))
    drawn = law.sample(len(y), seed=1)["y"].reshape(len(y), -1)
    truth = np.mean(y**2, axis=0)
    for value in (variance, whole, diagonal):
        assert np.all(np.abs(value - truth) <= 4.9 * noise + 3e-4)
    assert np.all(np.abs(np.mean(drawn**2, axis=0) - truth) <= 4.9 * np.sqrt(2) * noise + 1e-12)
    fourth = np.mean(y**4, axis=0)
    with np.errstate(invalid="ignore"):
        expected = fourth / truth**2
    kurtosis = np.array([law.kurtosis(member) for member in names])
    spread = np.std(y**4, axis=0) / np.sqrt(len(y)) / np.where(truth > 0, truth, 1) ** 2
    close = np.abs(kurtosis - expected) <= 4.9 * spread + 3e-3
    assert np.all(close | (truth == 0))
    p = drawn_scores = law.sample(50, seed=3)["p"]
    assert drawn_scores.shape == (50, 3, 3)
    given = law.given({"p": p}).cov()
    cov = np.reshape(given, (50, len(names), len(names)))
    second = np.array([0.3942944, 0.8871624, 1.5771776])
    # coefficients of the values, column by column
    units = [np.reshape(function(p, np.tile(np.eye(3)[m], (50, 1))), (50, -1)) for m in range(3)]  # type: ignore[misc]
    brute = sum(s * unit[:, :, None] * unit[:, None, :] for s, unit in zip(second, units, strict=True))
    np.testing.assert_allclose(cov, brute, rtol=1e-6, atol=1e-12)


def test_what_is_nonlinear_over_vectors_is_averaged() -> None:
    text = """
program: soft
indices: {i: 2, j: 2}
initial:
  h[i]: {mean: 0.3, cov: "where(i == i_, 1, 0.5)"}
weights:
  W: 1
  V: 1
body:
  - u[i] = MatMul(W, h[i])
  - y[i] = Nonlin(softmax[i](u[i]))
  - f[i] = MatMul(V, y[i])
outputs: [y, f]
"""
    law = Law(loads(text))
    cov, error = law.cov("y", with_error=True)
    generator = np.random.default_rng(1)
    g = generator.standard_normal((400_000, 2)) @ np.linalg.cholesky(np.array([[1.09, 0.59], [0.59, 1.09]])).T
    soft = softmax(g, 1)
    assert np.abs(cov - np.cov(soft.T)).max() < np.abs(error).max() + 3e-4
    assert np.abs(np.asarray(law.cov("f")) - soft.T @ soft / len(soft)).max() < law.cov("f").error + 3e-3


def test_numbers_and_constants_have_laws_too() -> None:
    body = "body:\n  - m = Dot(h, h, scale=1/n)\n  - y = Nonlin(h / m)\noutputs: [y, m]\n"
    law = Law(loads("program: m\ninitial:\n  h: {mean: 1, cov: 2}\n" + body))
    assert law.mean("m") == pytest.approx(3)
    assert law.var("m") == 0
    assert np.all(np.asarray(law.cov("y", "m")) == 0)
    assert law.var("y") == pytest.approx(2 / 9)
    assert np.isnan(law.kurtosis("m"))


def test_bad_questions_are_explained() -> None:
    law = tp.load("attention").limit()
    questions = (
        lambda: law.given({"p": "a"}),
        lambda: law.given(np.zeros(3)),
        lambda: law.sample(3, seed=-1),  # type: ignore[arg-type]
        lambda: law.quantile("y[0]", np.nan),
        lambda: law.given({"p": np.zeros((2, 4, 4))}).mean("zz"),
        lambda: law.var("y[9]"),
        lambda: law.moment("y[0]", 0),
        lambda: law.cov("nope"),
        lambda: law.density("y", 0.0),
    )
    for ask in questions:
        with pytest.raises(tp.ProgramError):
            ask()


def test_a_covariance_may_be_a_comparison() -> None:
    head = "program: own\nindices: {i: 3}\ninitial:\n  x[i]: {cov: COV}\nweights: {V: 1}\nbody:\n"
    body = "  - g[i] = MatMul(V, x[i])\n  - y[i] = Nonlin(relu(g[i]))\noutputs: [y]\n"
    compared, counted = (loads(head.replace("COV", cov) + body) for cov in ("i == i_", "1 - abs(sign(i - i_))"))
    assert np.array_equal(tp.Law(compared).cov("y"), tp.Law(counted).cov("y"))
    one, two = (tp.Program.from_netsor(netsor).run(16, 8, seed=1)["y"] for netsor in (compared, counted))
    assert np.array_equal(one, two)


def test_scores_with_several_definitions_are_as_scores_with_names_of_their_own() -> None:
    tail = "  - y[i] = Nonlin(sum[j](softmax[j](SCORES) * o[j]))\noutputs: [y]\n"
    head = HEAD.replace("p[i,j] = Dot(q[i], c[j])\n", "e[i] = MatMul(WE, x[i])\n").replace(
        "  WV: 1", "  WV: 1\n  WE: 1"
    )
    one = head + "  - s[i,j] = Dot(q[i], c[j])\n  - t[i,j] = Dot(e[i], c[j])\n"
    one += tail.replace("SCORES", "s[i,j] + 2*t[i,j]")
    two = head + "  - s[i,j,1] = Dot(q[i], c[j])\n  - s[i,j,2] = Dot(e[i], c[j])\n"
    two += tail.replace("SCORES", "sum[k](k * s[i,j,k])")
    found = [Law(loads(text)) for text in (one, two)]
    for ask in (Law.var, Law.kurtosis):
        (value, error), (other, off) = (ask(law, "y[1]", with_error=True) for law in found)
        assert abs(value - other) < 3 * (error + off)
        assert error < 1e-3 * value


def test_covariances_of_functions_and_what_they_are_functions_of() -> None:
    law = Law(
        loads(
            HEAD
            + "  - z[i] = Nonlin(sum[j](softmax[j](p[i,j]) * o[j]))\n  - y[i] = Nonlin(tanh(z[i]))\noutputs: [z, y]\n"
        )
    )
    value, error = law.cov("z[1]", "y[1]", with_error=True)
    other, off = law.expectation("z[1] * y[1]", with_error=True)  # means are 0
    assert abs(value - other) < error + off < 1e-2 * value

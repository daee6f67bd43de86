"""Gradient independence: when transposes count as independent, what the limit of gradients then is, and when not."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorprog as tp
from tests.reading import judge, loads

HEAD = """program: p
initial:
  x: {cov: 1}
  xi: {cov: 1}
  b: {cov: 1}
  c: {mean: 1, cov: 1}
weights: {W: 1, V: 1, U: 2}
"""


def verdicts(*body: str, outputs: str = "y") -> tuple[str, list[str]]:
    report = judge(loads(HEAD + "body:\n" + "".join(f"  - {line}\n" for line in body) + f"outputs: [{outputs}]\n"))
    return report.grade, [f.verdict for f in report.findings if f.rule == "transposes"]


FORWARD = ("u = MatMul(W, x)", "h = Nonlin(tanh(u))")


@pytest.mark.parametrize("body", [
    (*FORWARD, "d = MatMul(W.T, xi)", "y = Nonlin(h + d)"),
    (*FORWARD, "d = Nonlin(xi * (1 - h**2))", "y = MatMul(W.T, d)"),
    (*FORWARD, "d = Nonlin(sin(xi) * h)", "y = MatMul(W.T, d)"),
    (*FORWARD, "e = MatMul(V, xi)", "d = Nonlin(e * exp(h) + xi)", "y = MatMul(W.T, d)"),
    (*FORWARD, "e = MatMul(V, b)", "d = Nonlin(e * h)", "y = MatMul(W.T, d)"),  # V is used in one way: its sign decides
    (*FORWARD, "m = Dot(h, xi, scale=1/n)", "d = Nonlin(m * h + xi)", "y = MatMul(W.T, d)"),
    (*FORWARD, "z = Nonlin(0)", "y0 = MatMul(W.T, z)", "y = Nonlin(y0 + h)"),
])  # fmt: skip
def test_transposes_of_odd_vectors_are_independent(body: tuple[str, ...]) -> None:
    grade, found = verdicts(*body)
    assert found == ["holds"]
    assert grade == ("extension" if any("1/n" in line for line in body) else "theorem")


@pytest.mark.parametrize("body", [
    (*FORWARD, "y = MatMul(W.T, h)"),  # depends on W x itself
    (*FORWARD, "d = Nonlin(xi**2 * h)", "y = MatMul(W.T, d)"),
    (*FORWARD, "d = Nonlin(xi * h + h)", "y = MatMul(W.T, d)"),
    (*FORWARD, "d = Nonlin(relu(xi) * h)", "y = MatMul(W.T, d)"),
    (*FORWARD, "d = Nonlin(c * h)", "y = MatMul(W.T, d)"),  # not of mean zero
    (*FORWARD, "d = Nonlin(x * h)", "y = MatMul(W.T, d)"),  # W multiplies it, too
    (*FORWARD, "d = MatMul(W.T, xi)", "e = Nonlin(tanh(d))", "y = MatMul(W, e)"),
    ("s = Nonlin(x + xi)", "u = MatMul(W, s)", "d = Nonlin(xi * tanh(u))", "y = MatMul(W.T, d)"),
])  # fmt: skip
def test_others_are_not(body: tuple[str, ...]) -> None:
    report = judge(loads(HEAD + "body:\n" + "".join(f"  - {line}\n" for line in body) + "outputs: [y]\n"))
    assert report.grade == "extension" and [claim.name for claim in report.claims] == ["transposes"]


def test_a_bias_beside_a_product_that_is_differentiated_is_no_seed() -> None:
    assert verdicts(
        *FORWARD,
        "g = MatMul(V, h)",
        "t = Nonlin(tanh(g + b))",
        "d = Nonlin(xi * (1 - tanh(g + b)**2))",
        "k = MatMul(V.T, d)",
        "y = Nonlin(k + t)",
    ) == ("theorem", ["holds"])


@pytest.mark.parametrize(("name", "grade"), [
    ("mlp", "theorem"), ("resnet", "theorem"), ("rnn", "theorem"), ("lstm", "theorem"), ("gru", "theorem"),
    ("cnn", "theorem"), ("cnn_pool", "theorem"), ("batchnorm_mlp", "theorem"), ("layernorm_mlp", "extension"),
    ("attention_1n", "extension"), ("attention", "extension"), ("autoencoder_tied", "extension"),
])  # fmt: skip
def test_grades_of_shipped_gradients(name: str, grade: str) -> None:
    report = judge(tp.backward(tp.load(name)).netsor)
    assert report.grade == grade
    if grade != "outside":
        assert "Yang 2020 (arXiv 20" in report.source


def test_squared_gradients_of_a_relu_network_by_hand() -> None:
    P = tp.Program("relu")
    x = P.initial("x")
    for k in range(4):
        x = P.nonlin(f"x{k}", tp.relu(P.matmul(f"u{k}", P.weight(f"W{k}", 2), x)))
    P.outputs(P.matmul("f", P.weight("V", 3), x))
    law = tp.backward(P).limit()
    assert float(np.asarray(law.cov("grad_x"))) == pytest.approx(3.0, abs=1e-13)  # 3 (2 / 2)**4
    assert float(np.asarray(law.cov("f"))) == pytest.approx(3.0, abs=1e-13)


@pytest.mark.parametrize("name", ["mlp", "cnn", "layernorm_mlp", "rnn", "attention_1n"])
def test_the_limit_is_that_of_networks(name: str) -> None:
    B = tp.backward(tp.load(name))
    law, width, samples = B.limit(), 256, 60
    names = [o for o in B.netsor.outputs if o.startswith("grad_")][:3]
    drawn = B.run(width, samples, seed=11, coordinates=width, keep=names)
    for gradient in names:
        x = np.asarray(drawn[gradient]).reshape(samples, width, -1)
        squares = (x**2).mean(axis=1)
        cov, error = (np.asarray(a, float) for a in law.cov(gradient, with_error=True))
        members = x.shape[2]
        expected = np.diag(cov.reshape(members, members))
        spread = squares.std(axis=0, ddof=1) / math.sqrt(samples)
        away = np.abs(squares.mean(axis=0) - expected)
        # networks differ from their limit by a few times 1/n
        assert (away < 4.5 * spread + np.max(error) + 12 / width * expected).all(), gradient

"""Gradients as programs: against differences of networks, as texts, and what cannot be had."""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import ProgramError
from tensorprog.language.atoms import ATOMS
from tests.gradients.dense_networks import Network, Values, drawn, numpy_functions
from tests.gradients.gradient_programs import TEXTS, made
from tests.reading import loads

SHIPPED = (
    "mlp_bias",
    "resnet",
    "attention_gqa",
    "attention_masked",
    "attention_regimes",
    "attention_relpos",
    "attention_rotary",
    "attention_fixed_head",
    "deep_attention",
    "rnn_avgpool",
    "lstm",
    "gru",
    "cnn",
    "cnn_pool",
    "layernorm_mlp",
    "batchnorm_mlp",
    "cross_attention",
    "autoencoder_tied",
)
ROOT = Path(__file__).resolve().parents[2]
WIDTH, STEP = 8, 1e-5


@cache
def program(name: str) -> tp.Program:
    return made(name) if name in TEXTS else tp.load(name)


@pytest.fixture(autouse=True)
def _deep() -> None:
    sys.setrecursionlimit(20_000)


def loss(P: tp.Program, network: Network, seeds: Values) -> float:
    return sum(
        float((seeds[f"xi_{name}"][member] * vector).sum()) / math.sqrt(len(vector))
        for name in P.netsor.outputs
        for member, vector in network.family(name).items()
    )


def scale(P: tp.Program, name: str) -> float:
    """What the gradient of a scalar is multiplied by, as the page says."""
    body = [s for s in P.netsor.body if s.target.name == name]
    if any(getattr(s, "scale", "") == "1/n" for s in body):
        return WIDTH**-0.5
    inputs = [r.name for s in body if not hasattr(s, "scale") for r in s.inputs]
    scales = {scale(P, other) for other in inputs if other != name}
    return max(scales, default=1.0)


DEAR = pytest.param("transformer_yang", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*TEXTS, *SHIPPED, DEAR])
def test_gradients_are_those_of_differences(name: str) -> None:
    P = program(name)
    B = tp.backward(P)
    given = drawn(B.netsor, WIDTH, seed=3)
    functions, rng = numpy_functions(), np.random.default_rng(1)
    base = Network(B.netsor, WIDTH, given, functions)
    compared = 0
    for family in P.netsor.families.values():
        gradient = B.netsor.families.get(f"grad_{family.name}")
        if family.kind == "weight" or gradient is None:
            continue
        along = {m: rng.standard_normal(np.shape(base.value(family.name, m))) for m in family.members()}
        ends = [
            loss(
                P,
                Network(
                    B.netsor, WIDTH, given, functions, {family.name: {m: sign * STEP * x for m, x in along.items()}}
                ),
                given,
            )
            for sign in (1, -1)
        ]
        gradients = base.family(gradient.name)
        if family.kind == "vector":
            found = sum(float(gradients[m] @ x) / math.sqrt(len(x)) for m, x in along.items())
        else:
            found = sum(float(gradients[m] * x) for m, x in along.items()) / scale(P, family.name)
        difference = (ends[0] - ends[1]) / (2 * STEP)
        assert found == pytest.approx(difference, rel=2e-6, abs=1e-7), family.name
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", [*TEXTS, *SHIPPED])
def test_the_program_is_a_file_and_small(name: str) -> None:
    P = program(name)
    B = tp.backward(P)
    assert loads(B.to_yaml(), base=str(ROOT / "programs")) == B.netsor
    assert len(B.netsor.warnings) <= len(P.netsor.warnings)
    assert B.netsor.outputs[: len(P.netsor.outputs)] == P.netsor.outputs
    assert len(B.netsor.body) <= 8 * len(P.netsor.body) + 8


def test_an_mlp_reads_as_one_would_write_it() -> None:
    text = str(tp.backward(tp.load("mlp")))
    for line in (
        "xi_f[i]: {mean: 0, cov: 1}",
        "grad_f[i]  = Nonlin(xi_f[i])",
        "grad_x3[i] = MatMul(V.T, grad_f[i])",
        "grad_u3[i] = Nonlin(grad_x3[i] * (1 - tanh(u3[i] + b3)**2))",
        "grad_x2[i] = MatMul(W3.T, grad_u3[i])",
        "grad_b3    = Nonlin(",
    ):
        assert line in text


def test_sizes_do_not_change_how_many_statements_there_are() -> None:
    few, many = (tp.backward(tp.load("deep_attention", s=s, H=h, L=layers)) for s, h, layers in ((3, 2, 2), (9, 5, 7)))
    assert len(few.netsor.body) == len(many.netsor.body)


def test_gradients_of_gradients() -> None:
    P = tp.Program("p")
    x, W = P.initial("x"), P.weight("W")
    P.outputs(P.nonlin("y", tp.tanh(P.matmul("u", W, x))))
    second = tp.backward(tp.backward(P))
    assert {"grad_grad_x", "xi_grad_x", "grad_xi_y"} <= set(second.netsor.families)
    assert not second.netsor.warnings


def test_a_function_of_scores_has_no_gradient_program() -> None:
    P = tp.Program("p")
    x, W = P.initial("x"), P.weight("W")
    P.outputs(P.dot("p", P.matmul("u", W, x), x))
    with pytest.raises(ProgramError, match="the output p is a function of scores"):
        tp.backward(P)


def test_a_function_without_known_derivative_is_named() -> None:
    tp.atom("wobble", lambda x: np.sin(x) / 2, lipschitz=0.5, range=(-0.5, 0.5))
    try:
        Q = tp.Program("p")
        x, W = Q.initial("x"), Q.weight("W")
        Q.outputs(Q.nonlin("y", tp.wobble(Q.matmul("u", W, x))))
        with pytest.raises(ProgramError, match="the derivative of wobble is not known"):
            tp.backward(Q)
    finally:
        ATOMS.pop("wobble")

"""The gradients of adjoint programs are those of torch's autograd on the same matrices, to rounding."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tests.gradients.dense_networks import Network, Values, drawn, numpy_functions, torch_functions
from tests.gradients.gradient_programs import TEXTS, made

torch: Any = pytest.importorskip("torch")

NAMES = (
    "mlp",
    "resnet",
    "attention",
    "attention_gqa",
    "attention_masked",
    "attention_rotary",
    "attention_fixed_head",
    "attention_regimes",
    "deep_attention",
    "transformer_yang",
    "cross_attention",
    "rnn",
    "rnn_avgpool",
    "lstm",
    "gru",
    "cnn",
    "cnn_pool",
    "layernorm_mlp",
    "batchnorm_mlp",
    "autoencoder_tied",
    *TEXTS,
)
WIDTH = 12


def tensors(values: Values) -> Values:
    return {
        name: {m: torch.tensor(x, dtype=torch.float64) for m, x in members.items()} for name, members in values.items()
    }


def watched(value: Any) -> Any:
    """A value of its own whose gradient autograd keeps: a family that copies another has another gradient."""
    if isinstance(value, torch.Tensor) and value.ndim < 2:
        value = (value if value.requires_grad else value.requires_grad_()).clone()
        value.retain_grad()
    return value


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_autograd(name: str) -> None:
    sys.setrecursionlimit(20_000)
    P = made(name) if name in TEXTS else tp.load(name)
    B = tp.backward(P)
    given = drawn(B.netsor, WIDTH, seed=5)
    ours = Network(B.netsor, WIDTH, given, numpy_functions())
    theirs = Network(P.netsor, WIDTH, tensors(given), torch_functions(torch), seen=watched)
    loss: Any = sum(
        (torch.tensor(given[f"xi_{output}"][m]) * y).sum() / math.sqrt(len(y))
        for output in P.netsor.outputs
        for m, y in theirs.family(output).items()
    )
    loss.backward()
    compared = 0
    for family in P.netsor.families.values():
        if family.kind != "vector" or f"grad_{family.name}" not in B.netsor.families:
            continue
        found = ours.family(f"grad_{family.name}")
        gradients = {m: theirs.value(family.name, m) for m in family.members()}
        expected = {
            m: np.zeros(len(x)) if x.grad is None else x.grad.numpy() * math.sqrt(len(x)) for m, x in gradients.items()
        }
        size = max(float(np.abs(x).max()) for x in expected.values()) + 1e-300
        assert max(float(np.abs(found[m] - expected[m]).max()) for m in expected) < 3e-13 * max(size, 1), family.name
        compared += 1
    assert compared >= 3

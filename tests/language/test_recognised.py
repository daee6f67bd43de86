"""Functions that are spelled out with others are told by their values."""

from __future__ import annotations

import pytest

from tensorprog.language.parse import Names, parse_expression
from tensorprog.language.recognised import recognised

NAMES = Names({"c": None}, frozenset({"i"}))
SPELLED = {
    "u*sigmoid(u)": "silu(u)",
    "u/(1 + exp(-u))": "silu(u)",
    "max(u, 0)": "relu(u)",
    "where(u > 0, u, 0)": "relu(u)",
    "2*max(u + v, 0)": "2 * relu(u + v)",
    "1/(1 + exp(-(u*v + c)))": "sigmoid(u * v + c)",
    "0.5*u*(1 + tanh(sqrt(2/pi)*(u + 0.044715*u**3)))": "gelu_tanh(u)",
    "u*(1 + erf(u/sqrt(2)))/2": "gelu(u)",
    "(exp(u) - exp(-u))/(exp(u) + exp(-u))": "tanh(u)",
    "log(1 + exp(u))": "softplus(u)",
    "sqrt(u**2)": "abs(u)",
    "sum[i](max(u[i], 0))": "sum[i](relu(u[i]))",
    # and what is none
    "u + 1": "u + 1",
    "c*u": "c * u",
    "where(u > 100, 0, tanh(u))": "where(u > 100, 0, tanh(u))",
    "where(u >= 0, 1, 0)": "where(u >= 0, 1, 0)",
    "u*tanh(v)": "u * tanh(v)",
    "-tanh(u)": "-tanh(u)",
}


@pytest.mark.parametrize("text", SPELLED)
def test_what_is_recognised(text: str) -> None:
    assert str(recognised(parse_expression(text, NAMES))) == SPELLED[text]

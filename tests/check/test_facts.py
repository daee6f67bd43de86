"""What is certified of expressions as people write them is true, and what is true is certified or assumed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorprog import ProgramError
from tensorprog.check.facts import facts_table
from tensorprog.language.atoms import ATOMS
from tests.reading import judge, loads

PROGRAM = """
program: facts
indices: {{i: 3, j: 3}}
initial: {{h: {{cov: 1}}, "e[i]": {{cov: 1}}}}
weights: {{U: 1, T: 1, A: 1, B: 1, V: 1}}
body:
  - u = MatMul(U, h)
  - w = MatMul(T, h)
  - c[i] = Nonlin(tanh(e[i]))
  - a[i] = MatMul(A, c[i])
  - b[j] = MatMul(B, c[j])
  - v[j] = MatMul(V, c[j])
  - p[i,j] = Dot(a[i], b[j])
  - y = Nonlin({expr})
outputs: [y]
"""
# expression: range, growth, order (inf: not pseudo-Lipschitz, or not shown)
KNOWN = {
    "tanh(u)": (-1, 1, 0, 1),
    "relu(u)": (0, math.inf, 1, 1),
    "clip(u, -2, 3)": (-2, 3, 0, 1),
    "u**2": (0, math.inf, 2, 2),
    "u*w": (-math.inf, math.inf, 2, 2),
    "u**3 - 3*u": (-math.inf, math.inf, 3, 3),
    "gelu(u)*w": (-math.inf, math.inf, 2, 2),
    "silu(u)": (-0.27846454, math.inf, 1, 1),
    "sqrt(1 + u**2)": (1, math.inf, 1, 2),
    "tanh(u)*sigmoid(w)": (-1, 1, 0, 1),
    "sum[j](softmax[j](p[0,j])*v[j])": (-math.inf, math.inf, 1, 2),
    "sum[j](softmax[j](where(j <= 1, p[0,j], -inf))*v[j])": (-math.inf, math.inf, 1, 2),
    "max[j](p[0,j]) - logsumexp[j](p[0,j])": (-math.inf, math.inf, 1, 1),
    "where(u > 0, u, 0.1*u)": (-math.inf, math.inf, 1, 1),
    "where(abs(u) < 1, 0.5*u**2, abs(u) - 0.5)": (-0.5, math.inf, 2, 2),
    "1/(1 + u**2)": (0, 1, 0, 2),
    "exp(-relu(u))": (0, 1, 0, 1),
    "sin(u) + cos(w)": (-2, 2, 0, 1),
    "sign(u)": (-1, 1, 0, math.inf),
    "where(u > 0, 1, 0)": (0, 1, 0, math.inf),
    "exp(u)": (0, math.inf, math.inf, math.inf),
}
FAILS = (
    "sign(u)", "step(u - 1)*w", "tanh(sign(u))", "where(u > 0, u + 1, u)", "where(u > w, 1, 0)", "exp(u)", "exp(u)*w",
    "1/u", "log(u)", "w/relu(u)", "sqrt(abs(u))", "tanh(where(u > 0, 1, u))", "u/(1 - 1)",
    "u/abs(u)", "step(u)*cos(u)", "sqrt(abs(u))*w", "log(abs(u))", "where(p[0,1] >= max[j](p[0,j]), 1, 0)",
    "relu(p[0,0])/sum[j](relu(p[0,j]))", "(u - 0.5*(u + w))/sqrt(0.5*(u - w)**2)", "w*exp(u)/(1 + u**2)",
)  # fmt: skip
ASSUMED = (
    "exp(p[0,0])/sum[j](exp(p[0,j]))", "log(sigmoid(u))", "u*step(u - 1) - step(u - 1)", "exp(u)/(1 + exp(2*u))",
    "log(1 - sigmoid(u))", "-sum[j](softmax[j](p[0,j])*log(softmax[j](p[0,j])))",
    "sum[i]((tanh(p[0,i]) + 1)/sum[j](tanh(p[0,j]) + 1))", "u*((1 + exp(u))**2 - 1)/((1 + exp(u))**2 + 1)",
    "u/(1 + exp(-u))", "log(1 + exp(u))*w", "(exp(u) - exp(-u))/(exp(u) + exp(-u))",
    "where(u > 0, u, exp(u) - 1)",
)  # fmt: skip


def row(expr: str):
    """The facts of an expression."""
    return facts_table(loads(PROGRAM.format(expr=expr)))[-1]


@pytest.mark.parametrize("expr", KNOWN)
def test_what_is_certified(expr: str) -> None:
    found = row(expr)
    low, high, growth, order = KNOWN[expr]
    assert found["range"] == pytest.approx((low, high), abs=1e-6)
    assert (found["growth"], found["order"]) == (growth, order)


@pytest.mark.parametrize("expr", FAILS)
def test_what_is_sure_to_fail_is_outside(expr: str) -> None:
    program = (
        PROGRAM.format(expr=expr).replace("outputs", "  - z = Nonlin(y*tanh(p[0,0]))\noutputs").replace("[y]", "[z]")
    )
    report = judge(loads(program))
    assert report.grade == "outside"
    assert {finding.rule for finding in report.failing} == {"nonlinearities"}


@pytest.mark.parametrize("expr", ASSUMED)
def test_what_is_not_shown_is_assumed_and_said(expr: str) -> None:
    program = (
        PROGRAM.format(expr=expr).replace("outputs", "  - z = Nonlin(y*tanh(p[0,0]))\noutputs").replace("[y]", "[z]")
    )
    report = judge(loads(program))
    assert report.grade == "extension"
    assert "assumed: y is pseudo-Lipschitz (not shown)" in str(report)
    assert "assumed: y is pseudo-Lipschitz (not shown)" in report.says


def _random(generator: np.random.Generator, depth: int) -> str:
    """An expression of u and w."""
    if depth == 0:
        return str(generator.choice(["u", "w", "0.5", "2", "-1"]))
    one, two = (_random(generator, depth - 1) for _ in range(2))
    form = generator.choice([
        "({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} / {1})", "tanh({0})", "relu({0})", "abs({0})", "sqrt({0})",
        "exp({0})", "log({0})", "sigmoid({0})", "softplus({0})", "min({0}, {1})", "max({0}, {1})", "({0})**2",
        "sin({0})", "clip({0}, -1, 2)", "gelu({0})", "where({0} > 0, {1}, 0)", "where({0} > 0.5, {0}, 0.5)",
        "1/(1 + ({0})**2)",
    ])  # fmt: skip
    return str(form).format(one, two)


@pytest.mark.parametrize("seed", [pytest.param(k, marks=[] if k < 2 else pytest.mark.slow) for k in range(12)])
def test_what_is_certified_of_random_expressions_is_true(seed: int) -> None:
    """Values lie in the range, and quotients of differences and values stay below the powers that are certified."""
    generator = np.random.default_rng(seed)
    names = {name: ATOMS[name].numpy for name in ("relu", "sigmoid", "softplus", "gelu")}
    names |= {"tanh": np.tanh, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin}
    names |= {"min": np.minimum, "max": np.maximum, "clip": np.clip, "where": np.where}
    certified = 0
    for _ in range(80):
        expr = _random(generator, int(generator.integers(1, 4)))
        try:
            found = row(expr)
        except ProgramError:  # numbers that are not finite
            continue
        sizes = np.concatenate([np.full(300, 10.0**k) for k in (-2, 0, 1)])
        u, w = generator.normal(size=(2, 900)) * sizes
        step = 10.0 ** generator.uniform(-7, -3, size=900)
        with np.errstate(all="ignore"):
            here = eval(expr, {**names, "u": u, "w": w}) + 0 * u
            there = eval(expr, {**names, "u": u + step, "w": w - step}) + 0 * u
        assert np.isfinite(here).all() or found["growth"] == math.inf, expr
        size = 1 + np.abs(u) + np.abs(w)
        finite = np.isfinite(here) & np.isfinite(there)
        slack = 1e-9 * (1 + np.abs(here[finite]))
        assert (here[finite] >= found["range"][0] - slack).all(), expr
        assert (here[finite] <= found["range"][1] + slack).all(), expr
        if found["order"] < math.inf:
            certified += 1
            slope = np.abs(there - here) / step / size ** (found["order"] - 1)
            rough = 1e-13 * (np.abs(here) + 1) / step / size ** (found["order"] - 1)
            assert (slope[finite] <= 1e4 + rough[finite]).all(), expr
    assert certified > 10

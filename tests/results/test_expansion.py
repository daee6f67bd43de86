"""The first order in 1/n: closed forms of multilayer networks, and networks of several widths."""

from __future__ import annotations

import pytest

import tensorprog as tp
from tests.reading import loads


def limit(text: str) -> tp.Law:
    """The law of a program."""
    return tp.Law(loads(text))


def deep(layers: int, function: str, variance: float) -> tp.Law:
    """A network of one Gaussian input, without biases."""
    lines = ["program: deep", "initial: {x: {mean: 0, cov: 1}}", "weights:", "  V: 1"]
    lines += [f"  W{k}: {variance}" for k in range(layers)]
    lines += ["body:"]
    last = "x"
    for k in range(layers):
        lines += [f"  - u{k} = MatMul(W{k}, {last})", f"  - x{k} = Nonlin({function.format(f'u{k}')})"]
        last = f"x{k}"
    return limit("\n".join([*lines, f"  - y = MatMul(V, {last})", "outputs: [y]"]) + "\n")


@pytest.mark.parametrize(("layers", "function", "variance", "each"), [(2, "2*{}", 0.25, 2), (3, "relu({})", 2.0, 5)])
def test_moments_of_networks_whose_layers_are_independent_factors(
    layers: int, function: str, variance: float, each: int
) -> None:
    """V is |x|**2/n times factors of mean 1 and second moment 1 + each/n: kurtosis 3 (1 + 2/n) (1 + each/n)**layers."""
    law = deep(layers, function, variance)
    a, error = law.correction("kurtosis", "y", draws=2**13)
    assert abs(a - 3 * (2 + layers * each)) < error < 0.2 * a
    a, error = law.correction("variance", "y", draws=2**13)
    assert abs(a) < error < 0.5


def test_a_coordinate_stands_in_the_averages_that_it_meets() -> None:
    """z = x g, g ~ N(0, |x|**2/n) given x: E z_a**2 = E x_a**2 |x|**2/n = 1 + 2/n exactly, as x_a is in |x|**2."""
    text = """
program: shared
initial: {x: {mean: 0, cov: 1}}
weights: {W: 1, V: 1}
body:
  - g = MatMul(W, x)
  - z = Nonlin(x * g)
  - y = MatMul(V, z)
outputs: [y]
"""
    a, error = limit(text).correction("variance", "y", draws=2**13)
    assert abs(a - 2) < error < 1


def test_questions_that_have_no_answer() -> None:
    """Unknown quantities, too many names, functions that jump, and a precision relative to zero."""
    law = deep(1, "sign({})", 1.0)
    with pytest.raises(tp.ProgramError, match="the quantities are"):
        law.correction("skewness", "y")
    with pytest.raises(tp.ProgramError, match="of two variables"):
        law.correction("covariance", "y")
    with pytest.raises(tp.NotCompiledError, match="jumps"):
        law.correction("variance", "y")
    smooth = deep(1, "relu({})", 2.0)
    with pytest.raises(tp.ProgramError, match="is 0"):
        smooth.width_for("mean", "y", draws=64)
    assert smooth.width_for("kurtosis", "y", draws=2**10) > smooth.width_for("kurtosis", "y", within=0.1, draws=2**10)

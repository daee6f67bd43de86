"""The first order in 1/n: closed forms of multilayer networks, and networks of several widths."""

from __future__ import annotations

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.results.expansion import first_orders
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


def test_the_step_of_the_differences_counts() -> None:
    """E[c exp(-2c)] with c = |x|**2/n has no first order, for each draw: only what the step adds is left."""
    law = limit(
        "program: damped\ninitial: {x: {mean: 0, cov: 1}}\nweights: {V: 1}\nbody:\n"
        "  - c = Dot(x, x, scale=1/n)\n  - z = Nonlin(exp(-c)*x)\n  - y = MatMul(V, z)\noutputs: [y]\n"
    )
    a, error = law.correction("variance", "y", draws=2**13)
    assert abs(a) < error < 1e-5


@pytest.mark.parametrize("indexed", [True, False])
def test_a_residual_stream(indexed: bool) -> None:
    """z + sqrt(2) W z twice: |z|**2 gets factors of mean 3 and variance 16/n, kurtosis 3 (1 + 2/n) (1 + 16/9n)**2."""
    layers = "- z[0] = Nonlin(x)\n  - u[l] = MatMul(W[l], z[l-1])\n  - z[l] = Nonlin(z[l-1] + u[l])"
    plain = "- u1 = MatMul(W[1], x)\n  - z1 = Nonlin(x + u1)\n  - u2 = MatMul(W[2], z1)\n  - z2 = Nonlin(z1 + u2)"
    law = limit(f"""
program: residual
indices: {{l: 1..2}}
initial: {{x: {{mean: 0, cov: 1}}}}
weights: {{"W[l]": 2, V: 1}}
body:
  {layers if indexed else plain}
  - y = MatMul(V, {"z[2]" if indexed else "z2"})
outputs: [y]
""")
    a, error = law.correction("kurtosis", "y", draws=2**13)
    assert abs(a - 3 * (2 + 32 / 9)) < error < 3


def test_scores() -> None:
    """The shipped program of the paper: 26.82(5)/n and 0.753(2)/n, from a program of its own in plain numpy."""
    law = tp.load("attention").limit()
    for quantity, value in (("variance", 0.753), ("kurtosis", 26.82)):
        a, error = law.correction(quantity, "y[0]", draws=2**12)
        assert abs(a - value) < error < 0.4 * value


def test_an_output_whose_mean_is_a_score() -> None:
    """With p**2 = m**2 X, m = |x|**2/n, and v ~ N(0, m): E y**2 = E m**2 (m + c**2), and E y**4 has E p**4 = 3 + 6/n.

    Of m only the mean mu and the variance s/n count to this order.
    """
    law = limit("""
program: shifted
initial: {h: {cov: 1}}
weights: {WQ: 1, WK: 1, WV: 1}
body:
  - x = Nonlin(tanh(h))
  - q = MatMul(WQ, x)
  - k = MatMul(WK, x)
  - p = Dot(q, k)
  - v = MatMul(WV, x)
  - y = Nonlin(p * (v + 0.7))
outputs: [y]
""")
    x = np.polynomial.hermite_e.hermegauss(120)
    mu, fourth = (np.average(np.tanh(x[0]) ** k, weights=x[1]) for k in (2, 4))
    s, c = fourth - mu**2, np.poly1d([0.49])
    m = np.poly1d([1, 0])
    second, quartic = m**2 * (m + c), m**4 * (3 * m**2 + 6 * m * c + c**2)
    two, four = (f(mu) for f in (second, quartic))
    bend, other = (s / 2 * f.deriv(2)(mu) for f in (second, quartic))
    exact = {"variance": bend, "kurtosis": (6 * four + 3 * other) / two**2 - 6 * four * bend / two**3}
    for quantity, value in exact.items():
        a, error = law.correction(quantity, "y", draws=2**17)
        assert abs(a - value) < error < 0.3 * value


def test_questions_that_have_no_answer() -> None:
    """Unknown quantities, too many names, functions that jump, and a precision relative to zero."""
    law = deep(1, "sign({})", 1.0)
    with pytest.raises(tp.ProgramError, match="the quantities are"):
        law.correction("skewness", "y")
    with pytest.raises(tp.NotCompiledError, match="jumps"):
        law.correction("variance", "y")
    smooth = deep(1, "relu({})", 2.0)
    with pytest.raises(tp.ProgramError, match="is 0"):
        smooth.width_for("mean", "y", draws=64)
    assert smooth.width_for("kurtosis", "y", draws=2**10) > smooth.width_for("kurtosis", "y", within=0.1, draws=2**10)


def test_a_constant_has_no_kurtosis() -> None:
    """Its variance has a first order, which is 0, and the question after its kurtosis is answered with an error."""
    law = limit(
        "program: still\ninitial: {x: {mean: 0, cov: 0}}\nweights: {W: 1}\nbody:\n  - y = MatMul(W, x)\noutputs: [y]\n"
    )
    assert first_orders(law.netsor, "y", 2**10) == {"variance": (0.0, 0.0)}
    with pytest.raises(tp.ProgramError, match="y is a constant"):
        law.correction("kurtosis", "y")

"""Gates: products of functions of several Gaussian variables, against integrals over lines and planes by mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tensorprog import Law
from tests.reading import loads

STEP = 0.08  # the trapezoidal rule converges faster than any power for analytic functions


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def line(f: Callable[[Any], Any], var: float) -> float:
    """E f(X), X ~ N(0, var), f an mpmath function."""
    with mpmath.workdps(20):
        s = mpmath.sqrt(var)
        return float(mpmath.quad(lambda t: f(s * t) * mpmath.npdf(t), [-14, -4, -1, 0, 1, 4, 14]))


def plane(f: Callable[[Any, Any], Any], cov: Any) -> float:
    """E f(X, Y) for analytic f, (X, Y) ~ N(0, cov)."""
    t = np.arange(-11, 11, STEP)
    weight = np.exp(-t * t / 2) * STEP / np.sqrt(2 * np.pi)
    (a, b), (_, d) = np.asarray(cov, dtype=float)
    x = np.sqrt(a) * t[:, None]
    y = b / np.sqrt(a) * t[:, None] + np.sqrt(max(d - b * b / a, 0)) * t[None, :]
    return float(weight @ f(x, y) @ weight)


def expit(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def law(body: str, weights: str) -> Law:
    lines = "\n".join(f"  - {statement.strip()}" for statement in body.splitlines() if statement.strip())
    declared = "\n".join(f"  {entry.strip()}" for entry in weights.split(";"))
    return Law(
        loads(f"""
program: net
initial:
  x: {{mean: 0, cov: 1}}
weights:
{declared}
body:
{lines}
  - f = MatMul(R, h)
outputs: [f]
""")
    )


def close(result: Law, expected: float, most: float) -> None:
    """The variance of f, to the error it states, which is at most so large relatively."""
    found = result.cov("f")
    assert abs(float(np.asarray(found)) - expected) <= found.error
    assert found.error <= most * abs(expected)


def test_gates_with_weights_of_their_own_are_products_of_line_integrals() -> None:
    result = law(
        """
        a = MatMul(A, x)
        b = MatMul(B, x)
        c = MatMul(C, x)
        h = Nonlin(-sigmoid(a) * tanh(b) * relu(c + 0.2) / 3)
    """,
        "A: 1; B: 2; C: 0.5; R: 1",
    )
    with mpmath.workdps(20):
        s = mpmath.sqrt(0.5)
        rectified = float(mpmath.quad(lambda t: (s * t + 0.2) ** 2 * mpmath.npdf(t), [-0.2 / s, 0, 1, 4, 14]))
    expected = line(lambda t: expit(t) ** 2, 1) * line(lambda t: mpmath.tanh(t) ** 2, 2) * rectified / 9
    close(result, expected, 1e-12)


def test_an_lstm_over_two_inputs() -> None:
    """Four gates read correlated inputs: every block is one pair of pre-activations."""
    net = Law(
        loads("""
program: lstm
indices: {i: 2}
initial:
  x[i]: {mean: 0, cov: 0.6**abs(i - i_)}
  b: {mean: 0, cov: 0.3}
  c[i]: {mean: 0, cov: 0.5 + 0.5*0.9**abs(i - i_)}
weights: {F: 1, I: 1.5, G: 2, O: 1, R: 1}
body:
  - f[i] = MatMul(F, x[i])
  - j[i] = MatMul(I, x[i])
  - g[i] = MatMul(G, x[i])
  - o[i] = MatMul(O, x[i])
  - d[i] = Nonlin(sigmoid(f[i] + b) * c[i] + sigmoid(j[i]) * tanh(g[i]))
  - h[i] = Nonlin(sigmoid(o[i]) * tanh(g[i]) * c[i])
  - y[i] = MatMul(R, d[i])
  - z[i] = MatMul(R, h[i])
outputs: [y, z]
""")
    )
    gate = np.empty((4, 2, 2))
    k = np.array([[1, 0.6], [0.6, 1]])
    for number, (cov, f) in enumerate(((k + 0.3, sigmoid), (1.5 * k, sigmoid), (2 * k, np.tanh), (k, sigmoid))):
        for i in range(2):
            for j in range(2):
                pair = [[cov[i, i], cov[i, j]], [cov[i, j], cov[j, j]]]
                gate[number, i, j] = plane(lambda u, v, f=f: f(u) * f(v), pair)
    c = 0.5 + 0.5 * np.array([[1, 0.9], [0.9, 1]])
    for name, expected in (("y", gate[0] * c + gate[1] * gate[2]), ("z", gate[3] * gate[2] * c)):
        covariance = net.cov(name)
        assert np.abs(np.asarray(covariance) - expected).max() <= covariance.error + 1e-14
        assert covariance.error < 1e-11


@pytest.mark.parametrize("second", [1.0, 1e-3, 40.0])
def test_two_layers_with_heavy_tails_have_closed_forms(second: float) -> None:
    """E |u - 0.3|**2 = 1.09, E exp(3 g) = exp(4.5); the second layer multiplies two Gaussians."""
    result = law(
        f"""
        u = MatMul(A, x)
        g = MatMul(B, x)
        y = Nonlin(abs(u - 0.3) * exp(1.5*g))
        v = MatMul(C, y)
        w = MatMul(D, y)
        h = Nonlin({second} * v * w)
    """,
        "A: 1; B: 1; C: 1.5; D: 0.7; R: 1",
    )
    close(result, second**2 * 1.5 * 0.7 * (1.09 * np.exp(4.5)) ** 2, 1e-12)


LAYERED = """
    u = MatMul(A, x)
    g = MatMul(B, x)
    y = Nonlin(max(u, g))
    v = MatMul(C, y)
    w = MatMul(D, y)
"""


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("v * w", 1.5 * 0.7),
        ("exp(v) * w", np.exp(2 * 1.5) * 0.7),
        ("max(2*v, sqrt(60/7)*w)", 6),
        ("max(2*v, sqrt(60/7)*w) * v", 18),
    ],
)
def test_errors_of_the_first_layer_reach_the_second(expr: str, expected: float) -> None:
    """E max(u, g)**2 = E u**2 for independent u, g of one law: quasi-Monte Carlo finds it with an error."""
    result = law(LAYERED + f"    h = Nonlin({expr})\n", "A: 1; B: 1; C: 1.5; D: 0.7; R: 1")
    first = result.cov("v").error
    assert 0 < first < 1e-2
    close(result, expected, 0.3)
    assert result.cov("f").error >= 0.1 * expected * first / 1.5


def test_a_sum_of_gates_beside_one_of_its_terms() -> None:
    """sigmoid(u) tanh(u + g): two correlated forms, the same ones in both copies."""
    result = law(
        """
        u = MatMul(A, x)
        g = MatMul(B, x)
        h = Nonlin(sigmoid(u) * tanh(u + g))
    """,
        "A: 1.2; B: 0.8; R: 1",
    )
    expected = plane(lambda u, v: (sigmoid(u) * np.tanh(v)) ** 2, [[1.2, 1.2], [1.2, 2.0]])
    close(result, expected, 1e-11)


def test_three_dependent_factors_are_integrated_together() -> None:
    """E (u g (u + g))**2 = E u**2 g**2 (u**2 + g**2) = 6: a singular covariance, and a rule that is exact."""
    result = law(
        """
        u = MatMul(A, x)
        g = MatMul(B, x)
        h = Nonlin(u * g * (u + g))
    """,
        "A: 1; B: 1; R: 1",
    )
    close(result, 6, 1e-11)


def test_dependent_gates_of_two_members() -> None:
    """Four forms at once, with a closed form by the characteristic function."""
    net = Law(
        loads("""
program: four
indices: {i: 2}
initial:
  x[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {A: 1, B: 1, R: 1}
body:
  - u[i] = MatMul(A, x[i])
  - g[i] = MatMul(B, x[i])
  - h[i] = Nonlin(sin(u[i]) * cos(u[i] + g[i]))
  - f[i] = MatMul(R, h[i])
outputs: [f]
""")
    )
    k = np.array([[1, 0.5], [0.5, 1]])
    full = np.block([[k, k], [k, 2 * k]])  # u_0, u_1, l_0, l_1
    expected = np.zeros((2, 2))
    for i in range(2):
        for j in range(2):
            for signs in np.ndindex(2, 2, 2):  # sin a sin b cos c cos d as a sum of cosines
                s, t, r = 1 - 2 * np.array(signs)
                direction = np.zeros(4)
                for place, sign in ((i, 1), (j, s), (2 + i, t), (2 + j, r)):
                    direction[place] += sign
                expected[i, j] += -s / 8 * np.exp(-direction @ full @ direction / 2)
    covariance = net.cov("f")
    assert np.abs(np.asarray(covariance) - expected).max() <= covariance.error
    assert covariance.error < 1e-5


def test_means_of_gates() -> None:
    """Layer norm of gates: an average of a product, and E h of gates with biases."""
    net = Law(
        loads("""
program: means
initial:
  x: {mean: 0, cov: 1}
  b: {mean: 0.4, cov: 0}
weights: {A: 1, B: 2, R: 1}
body:
  - u = MatMul(A, x)
  - g = MatMul(B, x)
  - h = Nonlin(sigmoid(u + b) * tanh(g + b))
  - m = Dot(h, h, scale=1/n)
  - y = Nonlin(h / sqrt(m))
  - f = MatMul(R, y)
outputs: [f]
""")
    )
    expected = line(lambda t: expit(t + 0.4), 1) * line(lambda t: mpmath.tanh(t + 0.4), 2)
    assert float(net.mean("h")) == pytest.approx(expected, rel=1e-12)
    close(net, 1, 1e-10)


def test_errors_of_averages_inside_functions_count() -> None:
    """m = E max(u, g)**2 = 1 shifts the argument of a kink: E relu(v - m)**2 for v ~ N(0, 1.5)."""
    result = law(
        LAYERED
        + """
        m = Dot(y, y, scale=1/n)
        h = Nonlin(relu(v - m) * w)
    """,
        "A: 1; B: 1; C: 1.5; D: 0.7; R: 1",
    )
    with mpmath.workdps(20):
        s = mpmath.sqrt(1.5)
        square = float(mpmath.quad(lambda t: (s * t - 1) ** 2 * mpmath.npdf(t), [1 / s, 3, 14]))
        slope = float(mpmath.quad(lambda t: 2 * (s * t - 1) * mpmath.npdf(t), [1 / s, 3, 14]))
    close(result, 0.7 * square, 0.1)
    assert result.cov("f").error >= 0.5 * 0.7 * slope * result.cov("v").error / 1.5

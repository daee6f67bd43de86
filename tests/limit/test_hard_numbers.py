"""Infinite bounds, inputs that nearly agree, data that overflow: against mpmath."""

from __future__ import annotations

from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog import Law
from tensorprog.language.errors import NotFiniteError
from tests.reading import loads

Array = NDArray[np.float64]
INF = float("inf")


def one_layer(function: str) -> Law:
    return Law(
        loads(f"""
program: one_layer
indices: {{i: 3}}
initial:
  h: {{cov: 1}}
weights:
  W: 1
body:
  - u = MatMul(W, h)
  - y[i] = Nonlin({function})
outputs: [y]
""")
    )


BOUNDS = {
    "clip(u, 0, inf)": (0, INF),
    "clip(u, -inf, 1)": (-INF, 1),
    "clip(u, -inf, inf)": (-INF, INF),
    "max(u, -inf)": (-INF, INF),
    "max(-inf, u)": (-INF, INF),
    "min(0.5, u)": (-INF, 0.5),
    "max(u, 2)": (2, INF),
    "clip(u, 1, 1)": (1, 1),
}


@pytest.mark.parametrize("function", BOUNDS)
def test_infinite_bounds_are_no_bounds(function: str) -> None:
    law = one_layer(function)
    mean, error = law.mean("y", with_error=True)
    second = law.second_moment("y")
    with mpmath.workdps(30):
        lo, hi = map(mpmath.mpf, BOUNDS[function])
        points = sorted({-mpmath.inf, lo, hi, mpmath.inf})
        moments = [mpmath.quad(lambda x, k=k: min(max(x, lo), hi) ** k * mpmath.npdf(x), points) for k in (1, 2)]
    assert np.all(np.abs(mean - float(moments[0])) <= error + 1e-15)
    assert np.abs(np.asarray(second) - float(moments[1])).max() <= second.error + 1e-15
    assert second.error < 1e-13


@pytest.mark.parametrize("function", ["clip(u, -inf, -inf)", "exp(40*u) * exp(30*u)"])
def test_a_moment_that_is_not_finite_is_refused_by_name(function: str) -> None:
    law = one_layer(function)
    for ask in (law.mean, law.second_moment, law.cov):
        with pytest.raises(tp.AccuracyError, match="y"):
            ask("y")


def moved(seed: int) -> Array:
    """Two inputs that differ by 1e-8 in one of seven coordinates."""
    x = np.repeat(np.random.default_rng(seed).standard_normal((1, 7)), 2, axis=0)
    x[1, 3] += 1e-8
    return x


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_sign_networks_on_inputs_that_nearly_agree(tmp_path: Path, seed: int, depth: int) -> None:
    inputs = moved(seed)
    np.save(tmp_path / "x.npy", inputs)
    layers = range(1, depth + 1)
    text = ["program: signs", "indices: {i: 2}", "initial:", "  'u0[i]': {data: x.npy}", "weights:"]
    text += [*(f"  W{k}: 1" for k in layers), "body:"]
    for k in layers:
        text += [f"  - x{k}[i] = Nonlin(sign(u{k - 1}[i]))", f"  - u{k}[i] = MatMul(W{k}, x{k}[i])"]
    text += [f"  - y[i] = Nonlin(u{depth}[i])", "outputs: [y]"]
    (tmp_path / "signs.yaml").write_text("\n".join(text), encoding="utf-8")
    cov = tp.load(tmp_path / "signs.yaml").limit().cov("y")
    with mpmath.workdps(50):
        x, y = ([mpmath.mpf(float(entry)) for entry in row] for row in inputs)
        rho = mpmath.fdot(x, y) / mpmath.sqrt(mpmath.fdot(x, x) * mpmath.fdot(y, y))
        for _ in layers:
            rho = 2 / mpmath.pi * mpmath.asin(rho)
        assert abs(np.asarray(cov)[0, 1] - rho) <= cov.error
    assert np.abs(np.diagonal(np.asarray(cov)) - 1).max() < 1e-14
    assert cov.moment.at({"0": np.array(1), "0_": np.array(1)}).error < 1e-13  # a sign times itself is known
    assert cov.error < 4 * 1e-7 ** (2.0 ** (1 - depth))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e160, 1e200])
def test_data_that_overflow_are_refused_by_name(tmp_path: Path, size: float) -> None:
    np.save(tmp_path / "x.npy", size * moved(0))
    text = "program: huge\nindices: {i: 2}\ninitial:\n  'u[i]': {data: x.npy}\nbody:\n  - y[i] = Nonlin(relu(u[i]))\n"
    (tmp_path / "huge.yaml").write_text(text + "outputs: [y]\n", encoding="utf-8")
    program = tp.load(tmp_path / "huge.yaml")
    for ask in (lambda: program.limit().cov("y"), lambda: program.run(width=4, samples=2)):
        with pytest.raises(tp.ProgramError, match=r"(?s)u: inner products .* overflow.*huge\.yaml, line 4"):
            ask()


@pytest.mark.parametrize("depth", [1, 10, 20, 40])
@pytest.mark.parametrize("apart", [1e-4, 1e-8])
@pytest.mark.parametrize("gain", [4.0, 9.0])
def test_errors_hold_where_layers_part_inputs_that_nearly_agree(gain: float, apart: float, depth: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(6)
    x = np.stack([a, a + apart * rng.standard_normal(6), a[::-1]])
    P = tp.Program("chaos")
    i = P.index("i", len(x))
    u = P.initial("x[i]", data=x)
    for k in range(1, depth + 1):
        u = P.matmul(f"u{k}[i]", P.weight(f"W{k}", gain), P.nonlin(f"h{k}[i]", tp.sin(u[i]))[i])
    P.outputs(u)
    found = P.limit().second_moment(f"u{depth}")
    with mpmath.workdps(80):
        data = mpmath.matrix(x.tolist())
        kernel = data * data.T / 6
        for _ in range(depth):
            v = [kernel[j, j] for j in range(3)]
            for j in range(3):
                for k in range(3):
                    kernel[j, k] = gain * mpmath.exp(-(v[j] + v[k]) / 2) * mpmath.sinh(kernel[j, k])
        truth = np.array(kernel.tolist(), dtype=float)
    assert np.abs(np.asarray(found) - truth).max() <= found.error


@pytest.mark.parametrize(
    ("function", "weight", "depth"),
    [
        ("tanh(u)", 9, 40),
        ("gelu(u)", 2.5, 40),
        ("softplus(u)", 2, 40),
        ("relu(u) - 0.4", 2, 50),
        ("relu(u) - 0.5", 4, 50),
    ],
)
def test_deep_networks_state_errors_of_rounding(function: str, weight: float, depth: int) -> None:
    text = f"""
program: deep
indices: {{l: 1..{depth}}}
initial: {{x: {{cov: 1}}}}
weights: {{"W[l]": {weight}}}
body:
  - h[0] = Nonlin(x)
  - g[l] = MatMul(W[l], h[l-1])
  - h[l] = Nonlin({function.replace("(u)", "(g[l])")})
outputs: [g]
"""
    found = Law(loads(text)).second_moment("g")
    assert found.error <= 1e-11 * np.abs(np.asarray(found)).max()


@pytest.mark.parametrize("size", [1e-160, 1e-300, 1e300])
def test_sizes_beyond_the_numbers_of_a_computer_are_refused(size: float) -> None:
    text = f"program: far\ninitial: {{x: {{cov: 1}}}}\nweights: {{W: {size}, V: 1}}\nbody:\n  - g = MatMul(W, x)\n"
    law = Law(loads(text + "  - h = Nonlin(relu(g))\n  - y = MatMul(V, h)\noutputs: [y]\n"))
    with pytest.raises(NotFiniteError, match="scale weights and initial vectors"):
        law.var("y")

"""Kernels on data: the covariance of the output of a network on N inputs, against published recursions in mpmath."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog import Law

Array = NDArray[np.float64]
WEIGHT, BIAS, DEPTH = 1.5625, 0.25, 3
# the stored table: neural-tangents 0.6.5, stax.Dense(.., W_std=1.25, b_std=0.5), upper triangles by rows
INPUTS = np.array([[1.0, 0.0, 0.5], [0.25, -1.5, 2.0], [-1.0, 0.5, 0.0], [3.0, 1.0, -0.5]])
PEER = {
    "relu(z)": "1.027550538380941 1.2341676600817961 0.8086390365227308 1.5217211178698897 2.2848360141118365 "
    "1.0822739022827021 1.7933439678870693 1.027550538380941 1.1739835497868407 3.262724717458089",
    "erf(z)": "0.9634509274410971 0.695325235604995 0.4482749276556456 0.7969309141607109 0.9918457505931653 "
    "0.47238853779678697 0.44998820065841083 0.9634509274410971 0.3684375746371368 0.997359049525797",
    "leaky_relu(z, 0.1)": "1.0455895091096559 1.225774790160676 0.7745669295481105 1.5336756204917399 "
    "2.340971992040674 1.0196253427406368 1.6382724921515532 1.0455895091096559 1.0618210416614855 3.348491700987021",
    "abs(z)": "4.688177744547526 7.181289742570951 4.108508214232051 9.101289773667729 14.746461550394693 "
    "7.032205039288565 15.442717877373205 4.688177744547526 8.754866798555156 22.56957117716471",
    "sign(z)": "1.8125 0.6386099290089959 0.3713309251100272 0.7630608860961478 1.8125 0.4176847713016811 "
    "0.41858750601296685 1.8125 0.3161483731701421 1.8125",
}


def network(folder: Path, inputs: Array, function: str, bias: float = BIAS) -> Law:
    np.save(folder / "inputs.npy", inputs)
    lines = [
        "program: network",
        f"constants: {{N: {len(inputs)}, w: {WEIGHT}, b: {bias}}}",
        "indices: {i: N}",
        "initial:",
        "  'u0[i]': {data: inputs.npy, variance: w}",
        *(f"  b{k}: {{cov: b}}" for k in range(DEPTH + 1)),
        "weights:",
        *(f"  W{k + 1}: w" for k in range(DEPTH)),
        "body:",
    ]
    for k in range(DEPTH):
        lines.append(f"  - x{k}[i] = Nonlin({function.replace('z', f'(u{k}[i] + b{k})')})")
        lines.append(f"  - u{k + 1}[i] = MatMul(W{k + 1}, x{k}[i])")
    lines += [f"  - f[i] = Nonlin(u{DEPTH}[i] + b{DEPTH})", "outputs: [f]"]
    (folder / "network.yaml").write_text("\n".join(lines), encoding="utf-8")
    return tp.load(folder / "network.yaml").limit()


def arc_cosine(v: mpmath.mpf, w: mpmath.mpf, c: mpmath.mpf) -> mpmath.mpf:
    """E relu relu: Cho & Saul 2009, equation (6)."""
    if not v or not w:
        return mpmath.mpf(0)
    angle = mpmath.acos(min(1, max(-1, c / mpmath.sqrt(v * w))))
    return mpmath.sqrt(v * w) / (2 * mpmath.pi) * (mpmath.sin(angle) + (mpmath.pi - angle) * mpmath.cos(angle))


def arcsine(v: mpmath.mpf, w: mpmath.mpf, c: mpmath.mpf) -> mpmath.mpf:
    """E erf erf: Williams 1998."""
    return 2 / mpmath.pi * mpmath.asin(2 * c / mpmath.sqrt((1 + 2 * v) * (1 + 2 * w)))


RECURSIONS = {"relu(z)": arc_cosine, "erf(z)": arcsine}


def recursion(inputs: Array, step: Callable[..., mpmath.mpf], bias: float) -> Array:
    """The textbook recursion with 40 digits."""
    count, dim = inputs.shape
    pairs = [(i, j) for i in range(count) for j in range(count)]
    with mpmath.workdps(40):
        rows = [[mpmath.mpf(float(x)) for x in row] for row in inputs]
        w, b = mpmath.mpf(WEIGHT), mpmath.mpf(bias)
        k = {(i, j): w * mpmath.fdot(rows[i], rows[j]) / dim + b for i, j in pairs}
        for _ in range(DEPTH):
            k = {(i, j): w * step(k[i, i], k[j, j], k[i, j]) + b for i, j in pairs}
        return np.array([float(k[pair]) for pair in pairs]).reshape(count, count)


def hard_inputs(scale: float = 1.0) -> Array:
    """Duplicates, inputs 1e-9 apart, opposite ones, multiples, a zero."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 5))
    near = x + 1e-9 * rng.standard_normal(5)
    return scale * np.array([x, y, x, near, -x, 1e3 * y, 1e-3 * y, np.zeros(5)])


@pytest.mark.parametrize("bias", [0.0, BIAS])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("function", RECURSIONS)
def test_kernels_meet_the_recursion(function: str, scale: float, bias: float, tmp_path: Path) -> None:
    inputs = hard_inputs(scale)
    covariance = network(tmp_path, inputs, function, bias).cov("f")
    value, truth = np.asarray(covariance), recursion(inputs, RECURSIONS[function], bias)
    sizes = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    assert np.all(np.abs(value - truth) <= covariance.error)
    if function == "erf(z)" and scale > 1:
        return  # saturated: 1 - correlation is of the order of the rounding of the inputs' inner products
    assert np.all(np.abs(value - truth) <= 1e-13 * sizes)
    assert covariance.error <= {"relu(z)": 1e-12, "erf(z)": 1e-9}[function] * sizes.max()


@pytest.mark.parametrize("function", PEER)
def test_kernels_meet_neural_tangents(function: str, tmp_path: Path) -> None:
    value = np.asarray(network(tmp_path, INPUTS, function).cov("f"))
    expected = np.array(PEER[function].split(), dtype=float)
    np.testing.assert_allclose(value[np.triu_indices(4)], expected, rtol=1e-13)


@pytest.mark.parametrize("function", ["relu(z)", "erf(z)", "sign(z)", "clip(z, -1, 1)", "relu(z - 0.5)", "relu(z)**2"])
def test_kernels_are_symmetric_positive_and_alike_for_equal_inputs(function: str, tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).standard_normal((24, 4))
    inputs[12:] = inputs[:12]
    inputs[-1] = 0
    law = network(tmp_path, inputs, function)
    value = np.asarray(law.cov("f"))
    assert np.array_equal(value, value.T)
    assert np.linalg.eigvalsh(value).min() >= -1e-13 * np.trace(value)
    k = np.arange(11)
    np.testing.assert_allclose(value[k, k + 12], value[k, k], rtol=1e-13)
    np.testing.assert_allclose(value[k + 12, k + 12], value[k, k], rtol=1e-13)


def test_powers_of_relu_are_right_on_the_diagonal(tmp_path: Path) -> None:
    """E relu(g)^4 = 3 v^2 / 2 and E relu(g)^6 = 15 v^3 / 2; between inputs, Cho & Saul's J_2 and J_3."""
    x = np.array([[1.0, 2.0], [0.5, -1.0], [1.0, 2.0]])
    np.save(tmp_path / "inputs.npy", x)
    k = x @ x.T / 2
    v = np.diag(k)
    angle = np.arccos(np.clip(k / np.sqrt(np.outer(v, v)), -1, 1))
    s, c = np.sin(angle), np.cos(angle)
    j2 = 3 * s * c + (np.pi - angle) * (1 + 2 * c * c)
    j3 = 4 * s**3 + 15 * s * c * c + (np.pi - angle) * (9 * c + 6 * c**3)
    for power, j in ((2, j2), (3, j3)):
        (tmp_path / "net.yaml").write_text(
            "program: net\nindices: {i: 3}\ninitial:\n  'u[i]': {data: inputs.npy, variance: 1}\nweights: {W: 1}\n"
            f"body:\n  - h[i] = Nonlin(relu(u[i])**{power})\n  - f[i] = MatMul(W, h[i])\noutputs: [f]\n",
            encoding="utf-8",
        )
        value = np.asarray(tp.load(tmp_path / "net.yaml").limit().cov("f"))
        np.testing.assert_allclose(value, np.outer(v, v) ** (power / 2) * j / (2 * np.pi), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(np.diag(value), {2: 1.5, 3: 7.5}[power] * v**power, rtol=1e-13)


@pytest.mark.parametrize(("function", "spread"), [
    *product(["relu(z)", "erf(z)", "relu(z) + 0.5*erf(z)"], [0.0, 2.0]),
    *product(["tanh(z)"], [0.0, 0.6]), ("silu(z)", 0.6), ("gelu(z)", 2.0),
])  # fmt: skip
def test_tiles_of_many_inputs_agree_with_few_inputs(tmp_path: Path, function: str, spread: float) -> None:
    """150 inputs are computed in tiles, sixteen of them as whole arrays; both within the errors that they state."""
    generator = np.random.default_rng(3)
    inputs = generator.standard_normal((150, 5)) * np.exp(spread * generator.standard_normal((150, 1)))
    inputs[3], inputs[5], inputs[8] = inputs[2], -inputs[2], 0
    chosen = np.r_[0:10, 140:146]
    whole, few = (network(tmp_path, rows, function).cov("f") for rows in (inputs, inputs[chosen]))
    read = network(tmp_path, inputs, function).cov("f").at([chosen[:, None]], [chosen])
    expected, array = np.asarray(few), np.asarray(whole)
    np.testing.assert_allclose(array, array.T, rtol=1e-14)
    assert np.all(np.abs(array[np.ix_(chosen, chosen)] - expected) <= whole.error + few.error)
    assert np.all(np.abs(read - expected) <= whole.error + few.error)
    assert whole.error <= 1e-9 * array.max()


@pytest.mark.parametrize("function", ["tanh(z) + i / 130", "relu(z - i / 260)", "gelu(z)", "tanh(z) + 1"])
def test_many_inputs_are_like_few(function: str, tmp_path: Path) -> None:
    """Kernels of a hundred inputs and more are computed in tiles; of an input beside a few others they are the same."""
    inputs, found = np.random.default_rng(4).standard_normal((130, 32)), []
    for count in (130, 8):
        network(tmp_path, inputs[:count], "relu(z)")
        text = (tmp_path / "network.yaml").read_text(encoding="utf-8")
        written = function.replace("z", "u1[i] + b1")
        (tmp_path / "network.yaml").write_text(text.replace("relu((u1[i] + b1))", written), encoding="utf-8")
        found.append(tp.load(tmp_path / "network.yaml").limit().cov("f"))
    apart = np.abs(np.asarray(found[0])[:8, :8] - np.asarray(found[1]))
    assert np.all(apart <= found[0].error + found[1].error)
    assert found[0].error < 1e-11


def layers_in_extended_precision(function: str, inputs: Array, bias: float = BIAS) -> NDArray[np.longdouble]:
    """The recursion for relu (Cho & Saul 2009) and erf (Williams 1998), with 19 digits."""
    x, pi = inputs.astype(np.longdouble), 4 * np.arctan(np.longdouble(1))
    k = WEIGHT * (x @ x.T) / x.shape[1] + bias
    for _ in range(DEPTH):
        v, w = np.diag(k)[:, None], np.diag(k)
        if function == "erf(z)":
            rest = (1 + 2 * v) * (1 + 2 * w) - 4 * k * k
            k = 2 / pi * np.arctan2(2 * k, np.sqrt(np.where(np.eye(len(k)), 1 + 4 * v, rest)))
        else:
            s = np.sqrt(np.where(np.eye(len(k)), 0, np.maximum(v * w - k * k, 0)))
            k = (s + k * (pi - np.arctan2(s, k))) / (2 * pi)
        k = WEIGHT * k + bias
    return k


@pytest.mark.parametrize("function", ["relu(z)", "erf(z)"])
@pytest.mark.parametrize("count", [20, 150])
def test_errors_of_several_layers_are_not_much_too_large(tmp_path: Path, function: str, count: int) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((count, 32)) * rng.uniform(0.3, 2.0, (count, 1))
    value, error = network(tmp_path, inputs, function).cov("f", with_error=True)
    off = np.abs(np.asarray(value) - layers_in_extended_precision(function, inputs))
    assert np.all(off <= error)
    assert off.max() >= np.max(error) / 100


@pytest.mark.parametrize("function", ["relu(z)", "tanh(z)", "silu(z) + i / 20"])
def test_functions_that_are_remembered_keep_no_law(tmp_path: Path, function: str) -> None:
    """Functions are known from law to law; what a law has computed is free with it."""
    law = network(tmp_path, np.random.default_rng(0).standard_normal((20, 5)), function)
    assert law.cov("f").error < 1e-9
    recursion = weakref.ref(law.recursion)
    del law
    assert recursion() is None


def test_families_of_one_law_are_independent(tmp_path: Path) -> None:
    inputs = np.random.default_rng(3).standard_normal((120, 4))
    np.save(tmp_path / "inputs.npy", inputs)
    (tmp_path / "two.yaml").write_text(
        "program: two\nconstants: {N: 120}\nindices: {i: N}\n"
        "initial:\n  'u[i]': {data: inputs.npy}\n  'v[i]': {data: inputs.npy}\n  b: {cov: 0.5}\n  c: {cov: 0.5}\n"
        "body:\n  - f[i] = Nonlin(u[i] + 2 * v[i] + b - c)\n  - g[i] = Nonlin(u[i] * v[i])\noutputs: [f, g]\n",
        encoding="utf-8",
    )
    law, gram = tp.load(tmp_path / "two.yaml").limit(), inputs @ inputs.T / 4
    np.testing.assert_allclose(np.asarray(law.cov("f")), 5 * gram + 1.0, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(law.cov("g")), gram**2, rtol=1e-12, atol=1e-12)


def test_kinks_behind_a_normalisation() -> None:
    """Numbers that differ from input to input stand in one function: it is the same function of scaled inputs."""
    rng = np.random.default_rng(1)
    inputs = 0.3 * rng.standard_normal(20) + rng.standard_normal((6, 20)) * np.geomspace(1e-3, 0.1, 6)[:, None]
    second = inputs @ inputs.T / 20
    scale = 1 / np.sqrt(np.diag(second) + 0.01)

    def covariance(normed: bool) -> tp.Covariance:
        P = tp.Program("normed")
        i = P.index("i", 6)
        u = P.initial("u[i]", data=inputs) if normed else P.initial("u[i]", cov=second * np.outer(scale, scale))
        by = 1 / tp.sqrt(P.dot("m[i]", u[i], u[i], scale="1/n")[i] + 0.01) if normed else 1
        x = P.nonlin("x[i]", tp.clip(u[i] * by + 0.3, -1, 1))
        P.outputs(P.matmul("f[i]", P.weight("W"), x[i]))
        return P.limit().cov("f")

    found, expected = covariance(True), covariance(False)
    assert np.all(np.abs(np.asarray(found) - expected) <= found.error + expected.error)
    assert found.error < 1e-8

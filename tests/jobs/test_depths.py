"""Depth profiles: each quantity against its definition on dense networks, on closed forms, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from click.testing import CliRunner

import tensorprog as tp
from tensorprog.jobs.cli import main

RELU = """
program: deep_relu
constants: {L: 3, rho: 0.25, sigma_w2: 2}
indices: {i: 2, l: 1..L}
initial:
  x[i]: {mean: 0, cov: "where(i == i_, 1, rho)"}
weights:
  W[l]: sigma_w2
body:
  - z[0,i] = Nonlin(x[i])
  - r[l,i] = Nonlin(relu(z[l - 1,i]))
  - z[l,i] = MatMul(W[l], r[l,i])
  - y[i] = Nonlin(z[L,i])
outputs: [y]
"""
PRENORM = """
program: prenorm
constants: {s: 3, H: 2, L: 2, g: 1}
indices: {i: s, j: s, a: H, t: 1..L}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights:
  WQ[t,a]: g
  WK[t,a]: 1
  WV[t,a]: 1
  W1[t]: 2
  W2[t]: 1
body:
  - x[0,i] = Nonlin(h[i])
  - m[t,i] = Dot(x[t - 1,i], x[t - 1,i], scale=1/n)
  - n1[t,i] = Nonlin(x[t - 1,i] / sqrt(m[t,i] + 1e-6))
  - q[t,a,i] = MatMul(WQ[t,a], n1[t,i])
  - k[t,a,j] = MatMul(WK[t,a], n1[t,j])
  - p[t,a,i,j] = Dot(q[t,a,i], k[t,a,j])
  - v[t,a,j] = MatMul(WV[t,a], n1[t,j])
  - z[t,i] = Nonlin(x[t - 1,i] + sum[a,j](softmax[j](where(j <= i, p[t,a,i,j], -inf)) * v[t,a,j]) / sqrt(H))
  - w[t,i] = Dot(z[t,i], z[t,i], scale=1/n)
  - n2[t,i] = Nonlin(z[t,i] / sqrt(w[t,i] + 1e-6))
  - u[t,i] = MatMul(W1[t], n2[t,i])
  - r[t,i] = Nonlin(relu(u[t,i]))
  - g2[t,i] = MatMul(W2[t], r[t,i])
  - x[t,i] = Nonlin(z[t,i] + g2[t,i])
  - y[i] = Nonlin(x[L,i])
outputs: [y]
"""


def program(text: str, folder: Path, **constants: float) -> tp.Program:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    return tp.load(path, **constants)


def arc_cosine(c: float) -> float:
    """Correlation after a relu layer, Cho & Saul 2009."""
    return float((np.sqrt(1 - c * c) + (np.pi - np.arccos(c)) * c) / np.pi)


@pytest.mark.parametrize("shared", [(), ("W1", "W2"), ("WV",)])
def test_layers_are_the_same_however_few_draws_have_room(shared: tuple[str, ...], tmp_path: Path) -> None:
    """Moments of one layer at a time are kept then, unless layers share weights."""
    text = PRENORM
    for name in shared:
        text = text.replace(f"{name}[t", f"{name}[").replace(f"{name}[]", name).replace(f"{name}[,", f"{name}[")
    netsor = program(text, tmp_path)
    whole, few = (tp.depth(netsor, "x", to=3, draws=64, max_memory=m) for m in ("1GiB", "1MiB"))
    for name in whole.data_vars:
        np.testing.assert_allclose(few[name], whole[name], rtol=1e-3 if name.endswith("_error") else 1e-12, atol=1e-12)


def test_a_relu_network_follows_the_arc_cosine_map(tmp_path: Path) -> None:
    found = tp.depth(program(RELU, tmp_path), "z", to=30)
    c = 0.25
    for layer in range(31):
        at = found.sel(layer=layer)
        assert abs(at["variance"] - 1) <= min(float(at["variance_error"]), 1e-11)
        assert abs(at["token_correlation"] - c) <= at["token_correlation_error"] + 1e-12
        share = np.array([1 + c, 1 - c]) / 2
        rank = np.exp(-np.sum(share * np.log(share)))
        assert abs(at["effective_rank"] - rank) <= at["effective_rank_error"] + 1e-12
        assert abs(at["kurtosis"] - 3) <= at["kurtosis_error"] + 1e-12
        c = arc_cosine(c)
    assert found.sizes == {"layer": 31}
    assert "attention_entropy" not in found
    assert found.attrs["grade"] == "theorem"


def test_constants_are_axes_and_the_index_is_found(tmp_path: Path) -> None:
    text = program(RELU, tmp_path)
    found = tp.depth(text, "z", index="l", over={"sigma_w2": [1, 2, 3], "rho": [0.1, 0.5]})
    assert found.sizes == {"sigma_w2": 3, "rho": 2, "layer": 4}
    expected = (np.array([1.0, 2.0, 3.0])[:, None] / 2) ** np.arange(4)
    assert np.allclose(found["variance"], expected[:, None], rtol=1e-10)
    again = tp.depth(text, "z", over={"sigma_w2": [3], "rho": [0.5]})
    assert np.array_equal(again["token_correlation"].values[0, 0], found["token_correlation"].values[2, 1])


def dense(width: int, networks: int, layers: int, g: float) -> dict[str, np.ndarray[Any, Any]]:
    """The pre-norm program in numpy, with its weights as matrices: quantities of each network and layer."""
    rng, s, heads = np.random.default_rng(5), 3, 2
    factor = np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(np.arange(s), np.arange(s))))
    found: dict[str, list[Any]] = {
        "variance": [],
        "token_correlation": [],
        "effective_rank": [],
        "attention_entropy": [],
    }

    def weight(variance: float) -> np.ndarray[Any, Any]:
        return rng.standard_normal((width, width)) * np.sqrt(variance / width)

    def norm(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))

    for _ in range(networks):
        x = factor @ rng.standard_normal((s, width))
        rows: dict[str, list[float]] = {name: [] for name in found}
        for layer in range(layers + 1):
            entropy = np.nan
            if layer:
                x1, z, entropies = norm(x), x.copy(), []
                for _ in range(heads):
                    p = (x1 @ weight(g).T) @ (x1 @ weight(1).T).T / np.sqrt(width)
                    p[np.triu_indices(s, 1)] = -np.inf
                    a = np.exp(p - p.max(axis=1, keepdims=True))
                    a /= a.sum(axis=1, keepdims=True)
                    entropies.append(-np.sum(a * np.log(np.where(a > 0, a, 1)), axis=1))
                    z = z + a @ (x1 @ weight(1).T) / np.sqrt(heads)
                x = z + np.maximum(norm(z) @ weight(2).T, 0) @ weight(1).T
                entropy = float(np.mean(entropies))
            gram = x @ x.T / width
            root = np.sqrt(np.diag(gram))
            c = gram / np.outer(root, root)
            share = np.linalg.eigvalsh(gram / np.trace(gram))
            values = {
                "variance": np.trace(gram) / s,
                "token_correlation": (c.sum() - s) / (s * (s - 1)),
                "effective_rank": np.exp(-np.sum(share * np.log(share))),
                "attention_entropy": entropy,
            }
            for name, value in values.items():
                rows[name].append(float(value))
        for name, row in rows.items():
            found[name].append(row)
    return {name: np.array(values) for name, values in found.items()}


def test_a_prenorm_transformer_is_that_of_dense_networks(tmp_path: Path) -> None:
    found = tp.depth(program(PRENORM, tmp_path, g=4), "x", to=3, draws=1024, width=[48], samples=1600)
    small, large = (dense(width, 400, 3, 4.0) for width in (48, 96))
    for name, values in small.items():
        layers = slice(1, None) if name == "attention_entropy" else slice(None)
        mean, se = values.mean(axis=0)[layers], values.std(axis=0)[layers] / 20
        own, own_se = (found[key].sel(width=48).values[layers] for key in (f"{name}_finite", f"{name}_finite_se"))
        assert np.all(np.abs(mean - own) < 5 * np.hypot(se, own_se)), name  # the same law at the same width
        wide, wide_se = large[name].mean(axis=0)[layers], large[name].std(axis=0)[layers] / 20
        limit, error = found[name].values[layers], found[f"{name}_error"].values[layers]
        extrapolated = 2 * wide - mean  # free of a term in 1/n
        noise = np.sqrt(4 * wide_se**2 + se**2)
        assert np.all(np.abs(extrapolated - limit) < 5 * noise + error + 0.01 * np.abs(limit)), name
    assert np.isnan(found["attention_entropy"].sel(layer=0))


@pytest.mark.slow
def test_each_of_many_layers_is_read_from_the_one_before() -> None:
    found = tp.depth(tp.load("deep_attention", L=80, s=2, H=1), "x", draws=64)
    assert np.all(np.diff(np.log(found["variance"].values)) > 0)


def test_draws_are_the_same_for_all_constants(tmp_path: Path) -> None:
    text = program(PRENORM, tmp_path)
    fine = tp.depth(text, "x", to=2, draws=64, over={"g": [1, 1.001, 1.002]})
    slope = np.diff(fine["token_correlation"].sel(layer=2).values)
    error = float(fine["token_correlation_error"].sel(g=1, layer=2))
    assert error > 100 * abs(slope[0])  # far below the noise, and yet smooth
    assert slope[1] == pytest.approx(slope[0], rel=0.02)


def test_a_single_vector_has_no_correlation(tmp_path: Path) -> None:
    text = RELU.replace("initial:", "initial:\n  e: {mean: 0, cov: 1}").replace(
        "  - y[i]", "  - d[0] = Nonlin(e)\n  - c[l] = Nonlin(relu(d[l - 1]))\n  - d[l] = MatMul(W[l], c[l])\n  - y[i]"
    )
    found = tp.depth(program(text.replace("outputs: [y]", "outputs: [y, d]"), tmp_path), "d", to=3)
    assert set(found) == {"variance", "variance_error", "kurtosis", "kurtosis_error"}
    assert np.allclose(found["variance"], 1)


@pytest.mark.parametrize(("arguments", "said"), [
    ({"of": "zz"}, "no vector"), ({"of": "x"}, "counts layers"), ({"of": "z", "index": "k"}, "no index k"),
    ({"of": "z", "to": 0}, "whole number"), ({"of": "z", "over": {"gg": [1]}}, "not a constant"),
    ({"of": "z", "over": {"L": [2, 3]}}, "to="),
])  # fmt: skip
def test_mistakes_are_told(arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(tp.ProgramError, match=said):
        tp.depth(program(RELU, tmp_path), **arguments)


def test_an_index_of_numbers_has_no_other_depth(tmp_path: Path) -> None:
    text = RELU.replace("1..L", "1..3").replace("z[L,i]", "z[3,i]")
    with pytest.raises(tp.ProgramError, match=r"line 4(.|\n)*L: 3(.|\n)*1\.\.L"):
        tp.depth(program(text, tmp_path), "z", to=5)


def test_a_program_outside_has_networks_only(tmp_path: Path) -> None:
    text = PRENORM.replace("MatMul(WK[t,a]", "MatMul(WQ[t,a]")
    outside = program(text, tmp_path)
    with pytest.raises(tp.OutsideError):
        tp.depth(outside, "x")
    found = tp.depth(outside, "x", width=16, samples=64)
    assert "variance" not in found
    assert found["variance_finite"].sizes == {"width": 1, "layer": 3}
    assert "no_limit" in found.attrs


def test_the_command_writes_a_table_a_picture_and_json(tmp_path: Path) -> None:
    program(RELU, tmp_path)
    folder = tmp_path / "out"
    done = CliRunner().invoke(
        main,
        ["depth", str(tmp_path / "program.yaml"), "z", "--to", "20", "--set", "sigma_w2=1.5,2", "--out", str(folder)],
    )
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[1].startswith("deep_relu: theorem")
    assert "z[l,i] at l = 20" in done.output
    known = json.loads((folder / "depth.json").read_text(encoding="utf-8"))
    found = xarray.Dataset.from_dict(known["profile"])
    assert found["layer"].values.tolist() == list(range(21))
    assert float(found["variance"].sel(sigma_w2=2, layer=20)) == pytest.approx(1)
    assert (folder / "depth.png").stat().st_size > 10_000


@pytest.mark.parametrize("given", [["rho=0.1,0.5"], ["rho=0.1,0.5", "sigma_w2=1,2,3"], ["rho=0.2"]])
def test_pictures_are_drawn(given: list[str], tmp_path: Path) -> None:
    program(RELU, tmp_path)
    words = [word for pair in given for word in ("--set", pair)]
    done = CliRunner().invoke(
        main, ["depth", str(tmp_path / "program.yaml"), "z", *words, "--quiet", "--out", str(tmp_path / "out")]
    )
    assert (done.exit_code, done.output) == (0, "")
    assert (tmp_path / "out" / "depth.png").stat().st_size > 10_000


# ---- tp.solve -------------------------------------------------------------------------------------------------------


TANH = """
program: deep_tanh
constants: {L: 4, rho: 0.5, sigma_w: 1.5, sigma_b: 0.3}
indices: {i: 2, l: 1..L}
initial:
  x[i]: {mean: 0, cov: "where(i == i_, 1, rho)"}
  b[l]: {mean: 0, cov: sigma_b**2}
  e: {mean: 0, cov: 1}
weights:
  W[l]: sigma_w**2
body:
  - z[0,i] = Nonlin(x[i])
  - h[l,i] = Nonlin(tanh(z[l - 1,i]))
  - u[l,i] = MatMul(W[l], h[l,i])
  - z[l,i] = Nonlin(u[l,i] + b[l])
  - d[0] = Nonlin(e)                                     # a small change of the first input, carried along
  - c[l] = Nonlin((1 - tanh(z[l - 1,0])**2) * d[l - 1])
  - d[l] = MatMul(W[l], c[l])
  - y[i] = Nonlin(z[L,i])
  - f = Nonlin(d[L])
outputs: [y, f]
"""


def critical(q: float) -> tuple[float, float]:
    """sigma_w and sigma_b of tanh networks on the edge of chaos where the variance is q: Poole et al. 2016."""
    import mpmath as mp

    def average(f: Any) -> Any:
        return mp.quad(lambda x: f(mp.sqrt(q) * x) * mp.npdf(x), [-12, -4, 0, 4, 12])

    sigma_w2 = 1 / average(lambda h: mp.sech(h) ** 4)
    return float(mp.sqrt(sigma_w2)), float(mp.sqrt(q - sigma_w2 * average(lambda h: mp.tanh(h) ** 2)))


@pytest.mark.parametrize(("q", "layers"), [
    (1.0, 3), pytest.param(0.3, 60, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_edge_of_chaos_of_tanh(q: float, layers: int, tmp_path: Path) -> None:
    sigma_w, sigma_b = critical(q)
    text = program(TANH, tmp_path, sigma_b=sigma_b)
    value, error = tp.solve(text, "sigma_w", "variance", 1, of="d", to=layers, growth=True)
    assert abs(value - sigma_w) < 1e-9
    assert error < 1e-8
    other, error = tp.solve(
        program(TANH, tmp_path, sigma_w=sigma_w), "sigma_b", "variance", 1, of="d", to=layers, growth=True
    )
    assert abs(other - sigma_b) < 1e-8
    assert error < 1e-7


def test_weights_of_relu_and_scales_of_branches(tmp_path: Path) -> None:
    value, error = tp.solve(program(RELU, tmp_path), "sigma_w2", "variance", 1, of="z", to=12, growth=True)
    assert abs(value - 2) <= error + 1e-12 < 1e-8
    branches = RELU.replace("rho: 0.25", "rho: 0.25, beta: 0.3").replace("z[l,i] = MatMul(W[l], r[l,i])",
        "g[l,i] = MatMul(W[l], r[l,i])\n  - z[l,i] = Nonlin(z[l - 1,i] + beta * g[l,i])")  # fmt: skip
    for layers in (4, 16):  # a branch adds beta**2 times the variance of its input
        value, error = tp.solve(program(branches, tmp_path), "beta", "variance", np.e, of="z", to=layers)
        assert abs(value - np.sqrt(np.exp(1 / layers) - 1)) <= error + 1e-12 < 1e-6
        assert value * layers**0.5 == pytest.approx(1, abs=1 / layers)


def test_a_constant_behind_scores_is_where_the_profile_says(tmp_path: Path) -> None:
    text = program(PRENORM, tmp_path)
    value, error = tp.solve(text, "g", "token_correlation", 0.72, of="x", to=3, draws=256)
    there = tp.depth(text, "x", to=3, over={"g": [value]}, draws=256).sel(layer=3).isel(g=0)
    assert float(there["token_correlation"]) == pytest.approx(0.72, abs=1e-6)
    again = tp.depth(text, "x", to=3, over={"g": [value - error, value + error]}, draws=4096, seed=1)
    low, high = sorted(again["token_correlation"].sel(layer=3).values)
    assert low < 0.72 < high  # other draws agree within the error


def test_what_is_never_reached_is_said_with_what_is(tmp_path: Path) -> None:
    message = r"does not reach 0\.2(.|\n)*from 0\.002 to 2000(.|\n)*between"
    with pytest.raises(tp.TensorprogError, match=message) as told:
        tp.solve(program(RELU, tmp_path), "sigma_w2", "token_correlation", 0.2, of="z", to=4)
    assert told.value.exit_code == 3
    value, _ = tp.solve(program(RELU, tmp_path), "rho", "token_correlation", 0.2, of="z", to=1, between=(-0.9, 0.9))
    assert arc_cosine(value) == pytest.approx(0.2)


@pytest.mark.parametrize(("arguments", "said"), [
    (("sigma", "variance", 1), "did you mean"), (("rho", "varianz", 1), "did you mean"),
    (("rho", "attention_entropy", 1), "has no attention_entropy"), (("rho", "variance", float("nan")), "finite"),
    (("L", "variance", 3), "how many layers"),
])  # fmt: skip
def test_mistakes_of_solve_are_told(arguments: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(tp.ProgramError, match=said):
        tp.solve(program(RELU, tmp_path), *arguments, of="z")


def test_the_command_solves(tmp_path: Path) -> None:
    program(RELU, tmp_path)
    words = ["solve", str(tmp_path / "program.yaml"), "sigma_w2", "--make", "variance", "--of", "z", "--to", "4"]
    done = CliRunner().invoke(main, [*words, "--be", "1", "--growth"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1].startswith("sigma_w2 = 2: the growth of variance of z at l = 4 is 1")
    done = CliRunner().invoke(main, [*words, "--be", "16", "--format", "json"])
    found = json.loads(done.output)
    assert abs(found["value"] - 4) <= found["error"] < 1e-3
    assert found["slope"] == pytest.approx(16 * 4 / 4, rel=1e-3)
    done = CliRunner().invoke(main, [*words[:4], "kurtosis", *words[5:], "--be", "2"])
    assert done.exit_code == 3


# ---- gradients ------------------------------------------------------------------------------------------------------


def test_gradients_of_deep_networks(tmp_path: Path) -> None:
    found = tp.depth(program(RELU, tmp_path, sigma_w2=3), "z", to=6, gradients=True, width=256, samples=256)
    expected = 1.5 ** np.arange(6, -1, -1)  # half of the coordinates pass a relu on
    assert np.all(np.abs(found["gradient_norm"] - expected) <= found["gradient_norm_error"] + 1e-10)
    assert found.attrs["gradients_grade"] == "theorem"
    drawn, se = found["gradient_norm_finite"].sel(width=256), found["gradient_norm_finite_se"].sel(width=256)
    assert np.all(np.abs(drawn - expected) < 5 * se + 0.02 * expected)
    tanh = tp.depth("resnet", "z", to=4, gradients=True)["gradient_norm"]
    assert np.allclose(tanh, 1.25 ** np.arange(4, -1, -1), rtol=2e-3)  # T = 4 branches of sigma_w2 / (2 T)


def test_gradients_at_the_edge_of_chaos(tmp_path: Path) -> None:
    alone = "\n".join(line for line in TANH.splitlines() if not line.startswith(("  - d", "  - c", "  - f", "  e:")))
    sigma_w, sigma_b = critical(1.0)
    text = program(alone.replace("[y, f]", "[y]"), tmp_path, sigma_b=sigma_b)
    value, error = tp.solve(text, "sigma_w", "gradient_norm", 1, of="z", to=2, growth=True)
    assert abs(value - sigma_w) < 1e-9
    assert error < 1e-8


def test_gradients_behind_scores_are_those_of_networks(tmp_path: Path) -> None:
    found = tp.depth(program(PRENORM, tmp_path), "x", gradients=True, draws=64, width=[8, 16], samples=128)
    assert "variance" in found
    assert found.attrs["gradients_grade"] == "outside"
    assert "gradient_norm" not in found
    assert "none is claimed" in found.attrs["no_gradients"]
    finite = found["gradient_norm_finite"].values
    assert np.all(np.abs(finite[:, -1] - 1) < 0.1)  # of the output itself


def test_a_function_of_sums_is_followed(tmp_path: Path) -> None:
    old = RELU.replace("z[l,i] = MatMul(W[l], r[l,i])", "z[l,i] = Nonlin(relu(z[l - 1,i] + r[l,i]))").replace(
        "r[l,i] = Nonlin(relu(z[l - 1,i]))", "r[l,i] = MatMul(W[l], z[l - 1,i])")  # fmt: skip
    found = tp.depth(program(old, tmp_path), "z", to=2, width=64, samples=512, max_memory="200MB")
    for name in ("variance", "token_correlation"):
        limit, error = found[name].values, found[f"{name}_error"].values
        drawn, se = found[f"{name}_finite"].values[0], found[f"{name}_finite_se"].values[0]
        assert np.all(np.abs(limit - drawn) < 5 * se + error + 0.02 * np.abs(limit)), name

"""`tp.train`: coordinate checks beside numpy's descent on matrices, wrong parametrisations, and files."""

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
from tests.training.test_steps import network as deep

GRAM = np.array([[1.0, 0.3, 0.5], [0.3, 1.0, -0.2], [0.5, -0.2, 1.0]])
NAN = float("nan")


def network(scale: str = "1/n") -> tp.Program:
    P = tp.Program("net")
    i = P.index("i", 3)
    x = P.nonlin("x[i]", tp.tanh(P.initial("h[i]", cov=GRAM)[i]))
    z = P.nonlin("z[i]", tp.tanh(P.matmul("g[i]", P.weight("W", 1.5), x[i])[i]))
    P.outputs(P.dot("f[i]", P.initial("v"), z[i], scale=scale))
    return P


def by_numpy(n: int, networks: int, slope: Any, order: list[list[int]], readout: float, **how: Any) -> dict[str, Any]:
    """Descent on matrices with gradients by hand; f and g of all steps, g's size and change, over networks."""
    rng, momentum, decay = np.random.default_rng(1), how.get("momentum", 0.0), how.get("decay", 0.0)
    found: dict[str, list[Any]] = {"f": [], "size": [], "change": []}
    for _ in range(networks):
        h, v = np.linalg.cholesky(GRAM) @ rng.standard_normal((3, n)), rng.standard_normal(n)
        W, speed, rows = rng.standard_normal((n, n)) * (1.5 / n) ** 0.5, [0.0, 0.0, 0.0], []
        for batch in [*order, []]:
            x = np.tanh(h)
            g = x @ W.T
            z = np.tanh(g)
            f = readout * z @ v / n
            rows.append((f, np.abs(g).mean(), np.abs(g - (rows[0][3] if rows else g)).mean(), g))
            df = np.zeros(3)
            df[batch] = slope(f, np.array([1.0, -1.0, 0.0]))[batch] / max(len(batch), 1)
            dg = readout * df[:, None] * v / n * (1 - z**2)
            dh = dg @ W * (1 - x**2)
            moves = [n * GRAM @ dh, dg.T @ x, readout * df @ z]
            speed = [momentum * s + m + decay * p for s, m, p in zip(speed, moves, (h, W, v), strict=True)]
            h, W, v = (p - 0.5 * s for p, s in zip((h, W, v), speed, strict=True))
        for key, each in zip(found, zip(*(row[:3] for row in rows), strict=True), strict=True):
            found[key].append(each)
    return {key: np.array(each) for key, each in found.items()}


@pytest.mark.parametrize(("given", "slope", "batches", "scale"), [
    ({}, lambda f, y: f - y, [[0, 1], [0, 1]], "1/n"),
    ({"loss": "logistic", "batches": [[0], [1]]}, lambda f, y: -y / (1 + np.exp(y * f)), [[0], [1]], "1/n"),
    ({"momentum": 0.5, "decay": 0.2}, lambda f, y: f - y, [[0, 1], [0, 1]], "1/n"),
    ({"loss": "(f - y)**4", "rates": {"W": "0.5", "h": 0.5}}, lambda f, y: 4 * (f - y) ** 3, [[0, 1], [0, 1]], "1/n"),
    ({}, lambda f, y: f - y, [[0, 1], [0, 1]], "n**-0.5"),
])  # fmt: skip
def test_networks_are_those_of_descent_on_matrices(given: Any, slope: Any, batches: Any, scale: str) -> None:
    n, count = 12, 800
    lr = "1/n**0.5/n**0.5*6" if scale == "1/n" else 0.5  # 0.5, said in n
    found = tp.train(network(scale), [1, -1, NAN], 2, lr, [n], samples=4 * count, seed=2, **given)
    theirs = by_numpy(n, count, slope, batches, 1.0 if scale == "1/n" else n**0.5, **given)
    ours = {
        "f": (found.f_finite[0], found.f_finite_se[0]),
        "size": (found.size_finite.sel(family="g")[0], found.size_finite_se.sel(family="g")[0]),
        "change": (found.change_finite.sel(family="g")[0], found.change_finite_se.sel(family="g")[0]),
    }
    for key, (value, error) in ours.items():
        mean, spread = theirs[key].mean(0), theirs[key].std(0) / count**0.5
        assert (np.abs(value.values - mean) <= 4.9 * np.hypot(error.values, spread) + 1e-12).all(), key
    assert ("no_limit" in found.attrs) == (scale != "1/n")


def test_a_coordinate_check_with_its_limit() -> None:
    found = tp.train(network(), [1, -1, NAN], 1, widths=(64, 512), samples=60)
    assert found.attrs["grade"] == "extension" and [*found.family.values] == ["h", "v", "x", "g", "z", "f"]
    drawn, spread = found.size_finite.sel(width=512).values, found.size_finite_se.sel(width=512).values
    away = np.abs(drawn - found["size"].values)
    assert (away[:, :-1] < 4.9 * spread[:, :-1] + found.size_error.values[:, :-1] + 0.005).all()
    law = tp.gradient_descent(tp.load("mup_mlp"), "L", 1).limit()
    other = tp.train("mup_mlp", steps=1, widths=[])
    assert np.allclose(other.loss.values[1], law.mean("L_1"), atol=2e-4)
    assert np.allclose(
        other.second_moment.sel(family="g").values[1], np.diag(law.second_moment("g_1")).mean(), atol=1e-3
    )
    text = " ".join(json.loads(found.attrs["remarks"]))
    assert "f is 0 in the limit at step 0: its line falls with n, here as n**-0." in text


def test_one_seed_gives_the_same_numbers_bit_for_bit() -> None:
    one, two = (
        tp.train(network("n**-0.5"), [1, -1, NAN], 1, 0.1, [32], samples=500, max_memory=most)
        for most in ("40MB", "1GB")
    )
    assert one.equals(two)


@pytest.mark.slow
def test_rectangular_weights_beside_dense_descent_extrapolated() -> None:
    """Descent on matrices of n x n and n x 2n at n = 64, 128, 256, 512, 25,000 networks, as a line in 1/n."""
    found = tp.train(deep(hidden=2, widths=True), loss="L", steps=2, widths=[])
    z0 = found["size"].sel(family="z0").values[-1], found.size_error.sel(family="z0").values[-1]
    ours = [*zip(found.f.values[-1], found.f_error.values[-1], strict=True), z0]
    dense = (0.63251, 4.4e-4), (-0.63229, 4.4e-4), (0.51926, 5.5e-4), (0.53634, 1.24e-4)
    for (value, error), (expected, spread) in zip(ours, dense, strict=True):
        assert abs(value - expected) < 4.9 * spread + error and error < 1e-3


@pytest.mark.slow
def test_many_steps() -> None:
    """Vectors of later steps are functions of all earlier ones: they have points of their own."""
    found = tp.train(network(), [1, -1, NAN], 8, 0.5, widths=[2048], samples=60)
    away = np.abs(found.f.values - found.f_finite.values[0])
    assert (away[-1] < 4.9 * found.f_finite_se.values[0, -1] + found.f_error.values[-1] + 2e-3).all()
    assert found.f_error.values.max() < 3e-3 and found.f.values[-1, 0] > 0.8


def test_rates_in_n_have_their_limit() -> None:
    frozen = tp.train(network(), [1, -1, NAN], 1, widths=[], rates={"W": "n**-0.5", "h": 0, "v": "0.5 + 1/n"})
    plain = tp.train(network(), [1, -1, NAN], 1, widths=[], rates={"W": 0, "h": 0, "v": 0.5})
    assert np.array_equal(frozen.f.values, plain.f.values)
    with pytest.raises(tp.ProgramError, match="grows without bound"):
        tp.train(network(), [1, -1, NAN], 1, "n**0.1", [])


@pytest.mark.parametrize(("given", "said"), [
    ({"targets": [1, 2]}, "shape"),
    ({"targets": NAN}, "not all of them"),
    ({}, "neither targets nor a loss"),
    ({"loss": "K"}, "no scalar without indices"),
    ({"targets": 1, "batches": [[0]]}, "2 steps take as many batches"),
    ({"targets": 1, "rates": {"V": 1}}, "no weight or initial vector"),
    ({"targets": 1, "lr": "k"}, "lr"),
    ({"targets": 1, "momentum": "much"}, "momentum"),
    ({"targets": 1, "batches": [[0], [7]]}, "inputs from 0 to 2"),
    ({"targets": 1, "optimizer": "adam"}, "no sum of outer products"),
    ({"targets": 1, "output": "g"}, "one output"),
    ({"targets": 1, "rates": 3}, "rates gives parameters rates of their own, not 3"),
    ({"targets": 1, "batches": [0, 1]}, "a batch has inputs from 0 to 2, not 0"),
    ({"targets": 1, "batches": [[0], []]}, "no input that is learned"),
    ({"targets": ["a", "b", "c"]}, "are no numbers"),
    ({"targets": 1, "lr": -1}, "rates are numbers from 0 on"),
    ({"targets": 1, "momentum": 1}, "less than 1"),
    ({"targets": 1, "loss": "hinge"}, "square, logistic"),
])  # fmt: skip
def test_what_cannot_be_trained(given: dict[str, Any], said: str) -> None:
    with pytest.raises(tp.ProgramError, match=said):
        tp.train(network(), steps=2, widths=[8], samples=4, **given)


FILE = """program: p
constants: {eta: 1}
initial: {h: {mean: 0, cov: 1}, v: {mean: 0, cov: 1}}
body:
  - z = Nonlin(tanh(h))
  - f = Dot(v, z, scale=1/n)
  - L = Nonlin((f - 1)**2)
outputs: [f, L]
train: {loss: L, steps: 2, rate: eta/2, rates: {v: 1/n, h: 0.1}, momentum: 0.5}
"""


def test_the_section_of_files(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(FILE)
    P = tp.load(path)
    path.write_text(P.to_yaml())
    assert tp.load(path).netsor.train == P.netsor.train
    assert P.netsor.train[-2:] == (("rates", (("v", "1/n"), ("h", "0.1"))), ("momentum", 0.5))
    assert "train:" not in tp.gradient_descent(P, "L", 1).to_yaml()


@pytest.mark.parametrize(("old", "new", "place", "said"), [
    ("loss: L", "loss: K", "line 9, column 15", "the loss K is no scalar"),
    ("v: 1/n", "V: 1/n", "line 9, column 49", "V is no weight or initial vector"),
    ("steps: 2", "steps: 0", "line 9", "steps must lie between 1 and 1000"),
    ("eta/2", "beta/2", "line 9", "beta"),
    ("rates: {v: 1/n, h: 0.1}", "rates: 1", "line 9", "rates has the wrong form"),
    ("momentum", "momentun", "line 9", "there is no train option momentun"),
    ("momentum: 0.5", "optimizer: adam", "line 9", "tp exponents has Adam"),
])  # fmt: skip
def test_mistakes_of_the_section(tmp_path: Path, old: str, new: str, place: str, said: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(tp.ProgramError) as error:
        tp.load(path)
    assert said in str(error.value) and place in str(error.value)


def test_the_command(tmp_path: Path) -> None:
    line = ["train", "mup_mlp", "--widths", "16,64", "--steps", "1", "--samples", "20", "--out", str(tmp_path)]
    shown = CliRunner().invoke(main, line)
    assert shown.exit_code == 0 and "mean absolute value" in shown.output and "step 1" in shown.output
    assert (tmp_path / "train.png").stat().st_size > 1000
    found = xarray.Dataset.from_dict(json.loads((tmp_path / "train.json").read_text()))
    assert [*found.family.values] == ["h", "v", "x", "g", "z", "f"] and found.size_finite.shape == (2, 2, 6)
    wrong = CliRunner().invoke(
        main, ["train", "sp_mlp", "--widths", "16,64", "--samples", "30", "--out", str(tmp_path)]
    )
    assert wrong.exit_code == 1 and "random in the limit" in wrong.output and "f grows with n at step 1" in wrong.output
    assert "tp exponents" in wrong.output


@pytest.mark.slow
def test_zero_is_told_where_it_is_known() -> None:
    """With a large rate the limit of f is soon unresolved, which says nothing about networks."""
    text = " ".join(json.loads(tp.train("mup_mlp", steps=4, lr=10, widths=(32, 64), samples=20).attrs["remarks"]))
    assert "f is 0 in the limit at step 0:" in text and "The limit of f is not resolved at step" in text
    assert "no effect of finite widths" not in text and " at step 4:" not in text

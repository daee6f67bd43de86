"""`tp.sweep` and `tp sweep`: labelled numbers, streams of cells, files, the same numbers from any workers."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.jobs import sweeps
from tests.reading import loads

xarray = pytest.importorskip("xarray")

PROGRAM = """\
program: small
constants: {s: 2, c: 1, d: "2*c"}
indices: {i: s}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {V: c, W: d}
body:
  - u[i] = MatMul(V, h[i])
  - x[i] = Nonlin(erf(u[i]))
  - y[i] = MatMul(W, x[i])
outputs: [y]
run: {width: [8, 32], samples: 1000}
"""
SIZES: dict[str, Any] = {"repeats": 2, "samples": 200}
Tp = Callable[..., tuple[int, str, str]]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program file, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Widths of the cells that are drawn."""
    seen, compare = [], sweeps.compare

    def comparing(samples: Any, *rest: Any) -> Any:
        seen.append(samples.width)
        return compare(samples, *rest)

    monkeypatch.setattr(sweeps, "compare", comparing)
    return seen


def test_numbers_have_labelled_axes(small: Path) -> None:
    found = tp.sweep(small, [4, 8, 16], over={"c": [1, 0.5], "s": [2, 3]}, variables=["y[0]", "y[1]", "u[1]"], **SIZES)
    assert dict(found.sizes) == {"c": 2, "s": 2, "width": 3, "repeat": 2, "variable": 3}
    assert found["ks"].dims == ("c", "s", "width", "repeat", "variable")
    assert found["limit_variance"].dims == ("c", "s", "variable")
    assert found.c.values.tolist() == [1.0, 0.5]
    assert found.variable.values.tolist() == ["y[0]", "y[1]", "u[1]"]
    assert found["kl"].units == "nat"
    assert np.isfinite(found["ks"]).all()
    assert np.isfinite(found["kl_precise"].sel(variable=["y[0]", "y[1]"])).all()
    expected = [[tp.load(small, c=c, s=s).limit().var("y[1]") for s in (2, 3)] for c in (1, 0.5)]
    assert np.allclose(found["limit_variance"].sel(variable="y[1]"), expected, rtol=1e-12)
    assert loads(found.attrs["program"]) == tp.load(small).netsor


def test_a_cell_does_not_depend_on_what_else_is_swept_or_who_draws(small: Path) -> None:
    few = tp.sweep(small, 8, over={"c": 2}, repeats=1, samples=200)
    over = {"c": np.array([3, 2]), "s": [3, 2]}
    with ThreadPoolExecutor(2) as threads:
        many = tp.sweep(small, [16, 8], over=over, repeats=2, samples=200, variables=["y[1]", "y[0]"], executor=threads)
    part = many.sel(c=[2], s=2, width=[8], repeat=[0], variable=["y[0]"])
    for name in few.data_vars:
        assert np.array_equal(few[name], part[name], equal_nan=True), name
    other = tp.sweep(small, 8, over={"c": 2}, repeats=1, samples=200, seed=1)
    assert not np.array_equal(other["ks"], few["ks"])


def test_the_folder_holds_the_result_and_goes_on(small: Path, compared: list[int]) -> None:
    one = tp.sweep("small.yaml", [8, 4], over={"c": [1, 2]}, out="a", **SIZES)
    assert len(compared) == 8
    with xarray.open_dataset("a/sweep.nc", engine="scipy") as read:
        assert read.load().identical(one)
    with open("a/sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    for row in rows:
        place = {name: int(row[name]) for name in ("c", "width", "repeat")}
        assert float(row["kl"]) == float(one.sel(place | {"variable": row["variable"]})["kl"])
    names = {path.name for path in Path("a").iterdir()}
    assert names == {"cells", "sweep.nc", "sweep.csv", "convergence-c=1.png", "convergence-c=2.png"}
    told: list[tuple[int, int]] = []
    next(Path("a/cells").iterdir()).unlink()
    assert tp.sweep(small, [8, 4], over={"c": [1, 2.0]}, out="a", progress=lambda *n: told.append(n), **SIZES) == one
    assert len(compared) == 9
    assert told[-1] == (8, 8)
    tp.sweep(small, [8, 4, 16], out="a", repeats=3, samples=200)
    assert len(compared) == 9 + 9 - 4
    assert Path("a/convergence.png").exists()
    tp.sweep(small, [4], over={"c": [1, 2]}, out="b", **SIZES)
    assert Path("b/over-c.png").exists()
    cell = next(Path("b/cells").iterdir())
    sound = cell.read_text()
    first = re.search(r'"variance": [^,]*', sound)
    assert first is not None
    wrong = (sound.replace(first[0], f'"variance": {value}') for value in ("NaN", "true", "1" + 400 * "0", '"x"'))
    for text in ('{"numbers": {}}', "[" * 10**5, *wrong):
        cell.write_text(text)
        with pytest.raises(tp.ProgramError, match=r"cells.*\.json is damaged"):
            tp.sweep(small, [4], over={"c": [1, 2]}, out="b", **SIZES)
    for change in ({"seed": 1}, {"samples": 201}, {"variables": "y[1]"}):
        tp.sweep(small, [4], out="a", **(SIZES | {"repeats": 1} | change))
    assert len(compared) == 14 + 4 + 3


def test_without_a_limit_networks_are_swept_all_the_same() -> None:
    found = tp.sweep("attention_tied", [4, 8], **SIZES)
    assert json.loads(found.attrs["no_limit"]) == {"": "outside the theory"}
    assert np.isnan(found["limit_kurtosis"]).all()
    assert np.isfinite(found["kurtosis"]).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"width": []}, "width must be"),
        ({"width": [4.5]}, "not 4.5"),
        ({"width": [4], "over": {"c": []}}, "no values of c"),
        ({"width": [4], "over": {"ss": [1]}}, "did you mean s?"),
        ({"width": [4], "over": {"s": [0, 2]}}, "with s=0"),
        ({"width": [4], "over": {"c": ["two"]}}, "with c=two"),
        ({"width": [4], "over": ["c"]}, "over must give names"),
        ({"width": [4], "repeats": 0}, "repeats"),
        ({"width": [4], "samples": 1}, "samples"),
        ({"width": [4], "variables": ["q[0]"]}, "q[0] is not a variable"),
        ({"width": [4], "variables": ["y[1]"], "over": {"s": [1, 2]}}, "with s=1: y[1] is not a member"),
        ({"width": [4], "variables": []}, "no variables"),
        ({"width": [4], "workers": 0}, "workers"),
        ({"width": [4], "workers": 2, "executor": "any"}, "workers and executor"),
    ],
    ids=str,
)
def test_mistakes_are_told_before_any_work(small: Path, compared: list[int], arguments: Any, said: str) -> None:
    with pytest.raises(tp.ProgramError) as caught:
        tp.sweep(small, **({"out": "a"} | arguments))
    assert said in str(caught.value)
    assert not compared
    assert not Path("a").exists()


def test_two_sweeps_do_not_write_to_one_folder(small: Path) -> None:
    with pytest.raises(tp.ProgramError, match="another run is writing"):
        tp.sweep(small, 4, out="a", progress=lambda *_: tp.sweep(small, [4], out="a", **SIZES), **SIZES)
    tp.sweep(small, [4], out="a", **SIZES)


def test_rates_of_a_sweep(small: Path) -> None:
    found = tp.sweep(small, [2, 8], over={"c": [1, 2]}, repeats=3, samples=20_000, variables=["y[0]", "y[1]"])
    rate = tp.rate(found, "kl_precise", "y[0]", c=1)
    assert rate.used == (2, 8)
    assert -3 < rate.exponent < -1
    with pytest.raises(tp.ProgramError, match="kl cannot fall below its noise floor"):
        tp.rate(found, "kl", "y[0]", c=1)
    for wrong, said in (
        ({"distance": "kll"}, "did you mean kl"),
        ({}, "c of the sweep is one of 1, 2"),
        ({"H": 2}, "was not swept"),
        ({"variable": "y[0]", "c": 3}, "c of the sweep is one of 1, 2"),
    ):
        with pytest.raises(tp.ProgramError, match=said):
            tp.rate(found, **wrong)


# ---- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prints_an_object_or_tables(tp: Tp) -> None:
    words = ("sweep", "small.yaml", "--set", "s=3", "--over", "c=1,4", "--repeats", "3", "--width", "4,8")
    code, out, err = tp(*words, "--format", "json")
    assert code == 0, err
    found = json.loads(out)
    with xarray.open_dataset("runs/small-sweep/sweep.nc", engine="scipy") as read:
        data = read.load()
    told = xarray.Dataset.from_dict(found["sweep"])
    assert told.sizes == {"c": 2, "width": 2, "repeat": 3, "variable": 1}
    assert np.array_equal(told["ks"], data["ks"])
    assert float(told["limit_kurtosis"].sel(c=4, variable="y[0]")) == pytest.approx(3)
    assert sorted(found["files"]) == ["convergence-c=1.png", "convergence-c=4.png", "sweep.csv", "sweep.nc"]
    code, out, err = tp(*words)
    assert (code, err) == (0, "cells of the sweep\n")
    assert "small: y[0], c=1" in out
    assert out.count(" limit ") == 2
    assert "means over 3 repeats of 1,000 networks" in out
    assert "precise KL falls as n^-" in out
    assert tp("sweep", "small.yaml", "--quiet", "--repeats", "1", "--width", "8") == (0, "", "")
    code, out, _ = tp("sweep", "attention_tied", "--repeats", "1", "--width", "4,8", "--samples", "100")
    assert code == 1
    assert "no limit: outside the theory\n" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--over", "c"], "--over H=1,2,4"),
        (["--over", "c=1,,2"], "NAME=VALUE"),
        (["--over", "c=x"], "with c=x"),
        (["--over", "c=1", "--set", "c=2"], "by --set and"),
        (["--repeats", "0"], "--repeats 0"),
        (["--variable", "y"], "name a member, such as y[0]"),
        (["--workers", "2", "--scheduler", "x"], "both"),
        (["--out", "small.yaml"], "cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input(tp: Tp, args: list[str], said: str) -> None:
    code, out, err = tp("sweep", "small.yaml", *args)
    assert (code, out) == (2, "")
    assert said in err
    assert not Path("runs").exists()

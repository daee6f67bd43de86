"""`tp sweep`: its object, its tables, its files, and what it says to wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tensorprog.jobs.sweeps import cells
from tensorprog.language import errors

xarray = pytest.importorskip("xarray")

PROGRAM = """\
program: small
constants: {s: 2, c: 1}
indices: {i: s}
initial:
  x[i]: {mean: 0, cov: 1}
weights: {V: c, W: 1}
body:
  - u[i] = MatMul(V, x[i])
  - y[i] = MatMul(W, u[i])
outputs: [y]
run: {width: [8, 32], samples: 3000}
"""
Tp = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tp(tp: Tp) -> Tp:
    """Call `tp sweep`; gives (exit code, stdout, stderr)."""
    return lambda *args: tp("sweep", *args)


@pytest.mark.turns(3)
def test_the_object_and_the_files(tp: Tp) -> None:
    code, out, err = tp("small.yaml", "--set", "s=3", "--over", "c=1,4", "--repeats", "3", "--format", "json")
    assert code == 0
    assert err.startswith("estimate: about")
    found = json.loads(out)
    assert found["command"] == (
        "tp sweep small.yaml --set s=3 --width 8,32 --over c=1,4 --repeats 3 --samples 3000 --seed 0 --variable 'y[0]'"
    )
    assert [entry["constants"] for entry in found["sweep"]] == [{"c": 1}, {"c": 4}]
    with xarray.open_dataset("runs/small-sweep/sweep.nc", engine="scipy") as read:
        data = read.load()
    for entry in found["sweep"]:
        assert entry["no_limit"] is None
        for row in entry["rows"]:
            cells = data.sel(c=entry["constants"]["c"], width=row["width"], variable=row["variable"])
            assert row["samples"] == 9000
            assert row["ks"] == pytest.approx(float(cells.ks.mean()))
            assert row["ks_se"] == pytest.approx(float(cells.ks.std(ddof=1)) / np.sqrt(3))
            assert row["limit_kurtosis"] == pytest.approx(3)
    assert sorted(found["files"]) == ["convergence-c=1.png", "convergence-c=4.png", "sweep.csv", "sweep.nc"]
    for name in found["files"]:
        assert Path("runs/small-sweep", name).stat().st_size > 500
    again = tp("small.yaml", "--set", "s=3", "--over", "c=1,4", "--repeats", "3", "--format", "json")
    assert again == (0, out, "nothing is to be drawn: all cells are on disk\n")


@pytest.mark.turns(3)
def test_the_tables(tp: Tp) -> None:
    code, out, _ = tp("small.yaml", "--over", "c=1,4", "--repeats", "2", "--width", "4,8", "--out", "a")
    assert code == 0
    assert "small: y[0], c=1" in out
    assert "small: y[0], c=4" in out
    assert out.count("\nlimit") == 2
    assert "means over 2 repeats of 3,000 networks" in out
    assert "precise KL falls as n^-" in out
    assert "no rate of KL: fewer than three widths have a distance of at least 400 noise floors" in out
    assert "no rate of KS, W1: fewer than three widths have a distance of at least 20 noise floors" in out
    assert "written to a" in out
    code, out, _ = tp("small.yaml", "--repeats", "1", "--width", "8", "--out", "a", "--variable", "u[1]")
    assert code == 0
    assert "small: u[1]\n" in out
    assert "falls as" not in out
    assert "no rate" not in out
    assert "convergence.png" not in out


def test_quiet_is_quiet(tp: Tp) -> None:
    assert tp("small.yaml", "--quiet", "--repeats", "1", "--width", "8") == (0, "", "")


def test_programs_without_a_limit(tp: Tp) -> None:
    code, out, _ = tp("attention_tied", "--repeats", "1", "--width", "4,8", "--samples", "100")
    assert code == 1
    assert "no limit: outside the theory\n" in out
    assert "KL" not in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nosuch"], "no shipped program"),
        (["small.yaml", "--over", "c"], "--over H=1,2,4"),
        (["small.yaml", "--over", "c=1,,2"], "NAME=VALUE"),
        (["small.yaml", "--over", "=1"], "NAME=VALUE"),
        (["small.yaml", "--over", "cc=1"], "did you mean c?"),
        (["small.yaml", "--over", "s=0,2"], "with s=0"),
        (["small.yaml", "--over", "c=x"], "with c=x"),
        (["small.yaml", "--over", "c=1", "--set", "c=2"], "by --set and"),
        (["small.yaml", "--repeats", "0"], "--repeats 0"),
        (["small.yaml", "--samples", "1"], "--samples 1"),
        (["small.yaml", "--width", "0"], "--width 0"),
        (["small.yaml", "--variable", "z[0]"], "z[0] is not a variable"),
        (["small.yaml", "--variable", "y"], "name a member, such as y[0]"),
        (["small.yaml", "--over", "s=1,2", "--variable", "y[1]"], "with s=1: y[1] is not a member of y"),
        (["small.yaml", "--out", ""], "the path is empty"),
        (["small.yaml", "--workers", "0"], "--workers 0"),
        (["small.yaml", "--workers", "2", "--scheduler", "x"], "both"),
        (["small.yaml", "--scheduler", "nonsense"], "no scheduler answers"),
        (["small.yaml", "--out", "small.yaml"], "cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input(tp: Tp, args: list[str], said: str) -> None:
    code, out, err = tp(*args)
    assert code == 2
    assert out == ""
    assert said in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [(errors.MemoryLimitError("no room"), 3), (MemoryError(), 3), (ZeroDivisionError("no"), 70)],
    ids=repr,
)
def test_a_cell_that_fails_is_named(tp: Tp, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cells, "draw", failing)
    found, out, err = tp("small.yaml", "--repeats", "1", "--width", "8", "--over", "c=3")
    assert (found, out) == (code, "")
    assert "\n  in the cell c=3, n = 8, repeat 0 of the sweep\n" in err

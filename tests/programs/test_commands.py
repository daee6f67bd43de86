"""`tp-run` on every shipped program and in every regime: exit codes, what is printed, what is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tensorprog as tp
from tensorprog.jobs.cli import main
from tensorprog.shipped import shipped_programs

PROGRAMS = shipped_programs()
FILES = {"report.json", "report.html", "samples.npz", "density.png", "convergence.png", "program.svg"}
# limits by quasi-Monte Carlo take long for many tokens and layers; two tokens of each sentence have every kind of score
SHORT = {"s": 2, "S": 2, "T": 4}
REGIMES = [("attention_regimes", setting) for setting in ("mu=0.5", "mu=1", "r=4", "H=16", "fix=1")]
REGIMES += [("attention_fixed_head", "D=8"), ("attention_lowrank", "r=1")]


def shortened(name: str, folder: Path) -> list[str]:
    """The file to run and its settings: a copy beside the data of the first two tokens of each sentence."""
    path = Path(shutil.copy(PROGRAMS[name], folder))
    constants = {constant.name: constant.value for constant in tp.load(name).netsor.constants}
    (folder / "data").mkdir()
    for file in (PROGRAMS[name].parent / "data").glob("*.npy"):
        tokens = np.load(file)
        if {"S", "T"} <= set(constants) and len(tokens) == constants["T"]:
            tokens = tokens[[0, 1, constants["S"], constants["S"] + 1]]
        np.save(folder / "data" / file.name, tokens)
    settings = SHORT | ({"L": 1} if name == "deep_attention" else {})
    return [str(path), *(f"--set={key}={value}" for key, value in settings.items() if key in constants)]


def run(arguments: list[str], outside: bool, folder: Path) -> None:
    """A small run, its exit code and its report."""
    small = ["--width", "8,16", "--samples", "50", "--out", str(folder / "out"), "--format", "json", "--quiet"]
    result = CliRunner().invoke(main, ["run", *arguments, *small])
    assert result.exit_code == outside, result.output
    report = json.loads(result.stdout)
    assert [entry["width"] for entry in report["finite"]] == [8, 16]
    assert (report["limit"] is None) == (result.exit_code != 0)
    written = {path.name for path in (folder / "out").iterdir()}
    assert written == FILES


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program(name: str, tmp_path: Path) -> None:
    run(shortened(name, tmp_path), tp.load(name).check().grade == "outside", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setting"), REGIMES)
def test_every_regime(name: str, setting: str, tmp_path: Path) -> None:
    run([name, "--set", setting, "--set", "s=2"], False, tmp_path)

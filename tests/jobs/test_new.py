"""`tp new`: what it writes is a program that is checked, compiled and run as it stands."""

from __future__ import annotations

import os
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

import tensorprog as tp
from tensorprog.jobs.cli import main
from tensorprog.language.schema import FORM, SECTIONS
from tensorprog.shipped import STARTER, shipped_programs
from tests.reading import load


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def fails(*words: str) -> str:
    with pytest.raises(tp.ProgramError) as caught:
        main.main(list(words), standalone_mode=False)
    return str(caught.value)


def test_the_starter_is_a_theorem_and_runs() -> None:
    assert call("new", "mine").output.splitlines() == [
        "written to mine.yaml",
        "next:",
        "  tp check mine.yaml",
        "  tp-run mine.yaml",
        "  tp graph mine.yaml",
    ]
    program = tp.load("mine.yaml")
    report = program.check()
    assert program.netsor.name == "mine"
    assert report.grade == "theorem"
    assert {finding.verdict for finding in report.findings} == {"holds"}
    assert not program.netsor.warnings
    law = program.limit()
    kurtosis, error = law.kurtosis("y[0]", with_error=True)
    assert kurtosis - error > 3  # attention with few heads is not Gaussian
    drawn = program.run(64, 4000, seed=1)["y"]
    noise = (drawn[:, 0] ** 2).std() / np.sqrt(len(drawn))
    assert abs((drawn[:, 0] ** 2).mean() - law.var("y[0]")) < 4.9 * noise + 6 / 64 * law.var("y[0]")


def test_the_starter_shows_every_section_with_comments() -> None:
    text = STARTER.read_text(encoding="utf-8")
    sections = yaml.safe_load(text)
    jsonschema.validate(sections, FORM)
    assert {*SECTIONS} - {"reference", "widths", "fixed_widths", "train"} <= set(sections)
    assert text.count("#") > 15
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", ["a/b", "a\\b", "mine.yaml", "", ".hidden", "two words", "end.", "a:b", "a\nb", "a#b"])
def test_names_that_are_none(name: str, folder: Path) -> None:
    message = fails("new", name)
    assert "cannot name a program" in message
    assert "try   tp new " in message
    assert not os.listdir(folder)


@pytest.mark.parametrize("name", ["a", "42", "null", "true", "größe", "v1.2-b_3"])
def test_names_are_read_back(name: str) -> None:
    assert call("new", name).exit_code == 0
    assert load(f"{name}.yaml").name == name


@pytest.mark.parametrize("source", ["attention", "mlp_bias", "attention_masked"])
def test_a_copy_is_the_program_under_another_name(source: str, folder: Path) -> None:
    Path("sub").mkdir()
    result = call("new", "mine", "--from", source, "-o", "sub")
    assert result.exit_code == 0
    original, copy = tp.load(source), tp.load("sub/mine.yaml")
    assert copy.netsor.body == original.netsor.body
    assert copy.netsor.name == "mine"
    assert {key: table.array.tolist() for key, table in copy.netsor.tables.items()} == {
        key: table.array.tolist() for key, table in original.netsor.tables.items()
    }
    kept = shipped_programs()[source].read_text(encoding="utf-8").splitlines()
    text = Path("sub/mine.yaml").read_text(encoding="utf-8").splitlines()
    assert text[0].startswith("# yaml-language-server: $schema=")
    assert len([line for line in kept if line not in text]) == 2  # the line for editors, and the name
    assert all(f"written to {Path(path)}" in result.output for path in ["sub/mine.yaml"])


def test_data_that_differs_is_not_overwritten() -> None:
    Path("data").mkdir()
    np.save("data/tokens.npy", np.ones((16, 3)))
    assert "tokens.npy" in fails("new", "mine", "--from", "mlp_bias")
    assert not Path("mine.yaml").exists()
    assert call("new", "mine", "--from", "mlp_bias", "--force").exit_code == 0
    assert call("new", "second", "--from", "mlp_bias").exit_code == 0  # the same data is no obstacle


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "nosuch"], "no shipped program"),
        (["-o", "nowhere/x.yaml"], "no folder"),
        (["-o", "x.txt"], "end in"),
        (["--from", "broken.yaml"], "missing"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(words: list[str], message: str, folder: Path) -> None:
    Path("broken.yaml").write_text("program: broken")
    assert message in fails("new", "mine", *words)
    assert os.listdir(folder) == ["broken.yaml"]

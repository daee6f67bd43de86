"""`loads(dump(p)) == p`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from front_end_programs import program

import tensorprog as tp
from tensorprog import ProgramError
from tensorprog.language.builder import Builder
from tests.battery.generator import write
from tests.reading import Netsor, dump, load, loads

PROGRAMS = sorted((Path(__file__).parents[2] / "programs").glob("*.yaml"))


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_round_trip(seed):
    netsor = loads(write(seed).text)
    text = dump(netsor)
    again = loads(text)
    assert again == netsor and dump(again) == text and again.families == netsor.families
    assert Builder.from_netsor(netsor).netsor == netsor


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_shipped_programs_round_trip_as_written(path):
    netsor = load(path)
    text = dump(netsor, schema="../tensorprog/program.schema.json")
    assert loads(text, base=path.parent) == netsor

    def lines(source: str) -> list[str]:
        source = re.sub(r"(?m)(^|\s+)#.*$", "", source)
        return [line.rstrip().replace('"', "") for line in source.splitlines() if line.strip()]

    # apart from comments the file reads as its author wrote it
    assert lines(text) == lines(path.read_text(encoding="utf-8"))


def test_overrides_can_be_given_again_after_a_round_trip():
    text = program(
        "r = Nonlin(0, width=k)",
        constants="{s: 3, c: 2, d: 2*s}",
        widths="{w: n/d}",
        fixed_widths="{k: 4*d}",
        indices="{i: s, j: s, t: 1..s}",
    )
    again = loads(dump(loads(text)), {"s": 5})
    assert again == loads(text, {"s": 5})
    assert again.scalars["d"] == 10
    assert again.fixed_widths == (("k", 40),)
    assert str(again.body[2].expr) == "u[t - 1]"


def test_tables_keep_their_files(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    text = program(
        "r[i] = Nonlin(b[i,0] * q[i])",
        constants="\n  s: 3\n  c: 2\n  b[i,j]: x.npy",
        initial="\n  h: {cov: 1}\n  q[i]: {gram: x.npy}\n  r0[i]: {data: x.npy, variance: 2}\n  v[i]: {cov: x.npy}",
    )
    netsor = loads(text, base=tmp_path)
    again = dump(netsor)
    assert again.count("x.npy") == 4
    assert loads(again, base=tmp_path) == netsor


def test_tables_without_files_are_written_out_exactly():
    P = Builder("p")
    i = P.index("i", 40)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 40))
    x = P.initial("x[i]", mean=np.where(a[0] > 0, a[0], -0.0), gram=a @ a.T)
    P.nonlin("y[i]", x[i])
    P.outputs("y")
    assert loads(dump(P.netsor)) == P.netsor


def test_a_table_too_large_for_a_file_is_refused():
    P = Builder("p")
    P.index("i", 200_000)
    P.constant("b[i]", np.zeros(200_000))
    x = P.initial("x")
    P.nonlin("y[i]", f"{x} * b[i]")
    P.outputs("y")
    with pytest.raises(ProgramError, match="too large for a program file"):
        dump(P.netsor)


@pytest.mark.parametrize(
    "title",
    [
        "a: b",
        "# a",
        "- a",
        "'",
        '"quoted" \\n',
        "[x]",
        "{",
        "é 🙂",
        "a #b",
        "~",
        "!x",
        "a:",
        "---",
        "null",
        "1e3",
        "&a *b",
        "%x",
        "@x",
        "`x",
        "? x",
        ": x",
        "> x",
        "| x",
        "=",
        "<<",
    ],
)
def test_titles_survive(title):
    netsor = Builder.from_netsor(replace(loads(program()), title=title)).netsor
    assert isinstance(netsor, Netsor)
    assert loads(dump(netsor)).title == title


def test_a_folder_holds_the_program_and_its_numbers(tmp_path: Path) -> None:
    P = tp.Program("saved")
    i = P.index("i", 40)
    u = P.initial("u[i]", data=np.random.default_rng(0).standard_normal((40, 3)), variance=2)
    P.outputs(P.nonlin("y[i]", tp.tanh(u[i])))
    path = P.save(tmp_path / "new" / "folder")
    assert tp.load(path) == P
    assert {file.name for file in path.parent.iterdir()} == {"saved.yaml", "u.data.npy"}
    (tmp_path / "file").touch()
    with pytest.raises(tp.ProgramError, match="cannot be written"):
        P.save(tmp_path / "file")

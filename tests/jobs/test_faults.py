"""What goes wrong around a program: damaged files, disks that are full, limits that are none, interrupts."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tensorprog as tp
from tensorprog.jobs.cli import main
from tests.reading import loads

PROGRAM = """program: small
indices: {i: 2}
initial:
  h[i]: {cov: 1}
weights:
  W: 1
body:
  - y[i] = MatMul(W, h[i])
outputs: [y]
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.mark.parametrize("shape", ["(True, 3)", "(-1, 3)", "(-1, -3)", "(3, -1)", "(False,)", "(2.0, 3)", "()"])
def test_a_header_with_an_odd_shape_is_named(small: Path, shape: str) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    raw = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(24)
    (small.parent / "x.npy").write_bytes(raw)
    with pytest.raises(tp.ProgramError, match=r"x\.npy"):
        tp.load(_with("h[i]: {data: x.npy}", small))


def _with(entry: str, small: Path) -> Path:
    small.write_text(PROGRAM.replace("h[i]: {cov: 1}", entry), encoding="utf-8")
    return small


@pytest.mark.parametrize("indices", ["{t: (}", "{t: [}", "{t: )}", "{(: t}", "{i: (, j: )}"])
def test_brackets_in_indices_are_answered(indices: str) -> None:
    with pytest.raises(tp.ProgramError):
        loads(PROGRAM.replace("{i: 2}", indices))


@pytest.mark.parametrize("size", ["-1GiB", "0", "nan", "1e-9", "GiB", "-inf", "1 XB"])
@pytest.mark.parametrize("command", ["run", "limit"])
def test_an_amount_of_memory_that_is_none_is_refused_at_once(small: Path, size: str, command: str) -> None:
    result = CliRunner().invoke(main, [command, str(small), f"--max-memory={size}"])
    assert result.exit_code == 2
    assert f"{size!r} is not an amount of memory" in result.output
    assert not (small.parent / "runs").exists()


@pytest.mark.skipif(os.name == "nt", reason="files have no largest size there")
@pytest.mark.parametrize(("largest", "kept"), [(20_000, []), (10**6, [8, 16])])
def test_what_a_full_disk_does_not_take_is_left_out(small: Path, largest: int, kept: list[int]) -> None:
    """Each width has 2000 networks of 16 bytes and conditional laws; a file that grows too large is a full disk."""
    script = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({largest}, {largest}))\n"
        "from tensorprog.jobs.cli import main\nmain.main(args=sys.argv[1:])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, "run", str(small), "--width", "8,16", "--samples", "2000", "--out", "a"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == (3 if len(kept) < 2 else 0), run.stderr
    assert "Traceback" not in run.stderr
    assert "Exception ignored" not in run.stderr
    assert not [*Path("a").glob(".*")]
    assert ("samples.npz cannot be written: file too large" in run.stderr) == (len(kept) < 2)
    if not kept:
        assert not Path("a/samples.npz").exists()
        return
    with np.load("a/samples.npz") as held:
        assert sorted(held) == sorted(["meta.json", *(f"y_n{width}" for width in kept)])
        for width in kept:
            assert np.array_equal(held[f"y_n{width}"], tp.load(small).run(width, 2000)["y"])


def test_a_disk_without_room_is_refused_before_a_run(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(small.parent)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    result = CliRunner().invoke(main, ["run", str(small), "--width", "8", "--samples", "2000", "--stream"])
    assert result.exit_code == 3
    assert re.search(r"the samples take [\d.]+ KiB, the disk has 100 bytes left", result.output)


def test_draws_are_on_disk_before_they_are_compared(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorprog.jobs import run as job

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "compare", interrupted)
    result = CliRunner().invoke(main, ["run", str(small), "--width", "8", "--samples", "2000", "--out", "a"])
    assert result.exit_code == 130
    with np.load("a/samples.npz") as held:
        assert np.array_equal(held["y_n8"], tp.load(small).run(8, 2000)["y"])


def test_missing_pictures_are_said_before_the_work(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for command in (["run", "--width", "8"], ["sweep", "--width", "8,16", "--repeats", "1"]):
        result = CliRunner().invoke(main, [command[0], str(small), *command[1:], "--samples", "200"])
        assert result.exit_code == 0
        assert result.output.count("there will be no picture") == (command[0] == "run")
        assert "density.png" not in result.output


SIZE = r"([\d.]+) (KiB|MiB|GiB)"
UNITS = {"KiB": 1.0, "MiB": 1024.0, "GiB": 1024.0**2}


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        (["run", "--samples", "1e7", "--width", "8", "--max-memory", "50MB"], {"--stream", "--max-memory"}),
        (["run", "--samples", "1e7", "--width", "8", "--max-memory", "10KB", "--stream"], {"--max-memory"}),
        (["run", "--width", "8,4096", "--max-memory", "10MB", "--method", "dense"], {"--max-memory", "--method"}),
        (["sample", "--size", "1e9", "--out", "x.npz"], {"--max-memory"}),
        (["limit", "--self-check", "--samples", "1e8", "--max-memory", "1MB"], {"--max-memory"}),
    ],
)
def test_a_refusal_of_memory_says_what_helps(small: Path, command: list[str], offered: set[str]) -> None:
    result = CliRunner().invoke(main, [command[0], str(small), *command[1:]])
    assert result.exit_code == 3, result.output
    said = result.output[result.output.index("would take") :]
    found = re.findall(SIZE, said)
    assert float(found[0][0]) * UNITS[found[0][1]] > float(found[-1][0]) * UNITS[found[-1][1]]
    assert set(re.findall(r"--[a-z-]+", said)) == offered
    assert not Path("runs").exists()  # it was refused before the limit


def test_no_control_character_of_a_file_reaches_a_screen() -> None:
    with pytest.raises(tp.ProgramError) as caught:
        loads(PROGRAM.replace("program: small", 'program: "\\e[31mred"'))
    assert "\x1b" not in str(caught.value)
    for key in ("title", "reference"):
        said = f"{key} has characters that are not printable"
        with pytest.raises(tp.ProgramError, match=said) as caught:
            loads(PROGRAM + f'{key}: "a\\n b \\0\\e\\u202ered"')
        assert str(caught.value).replace("\n", "").isprintable()
        with pytest.raises(tp.ProgramError, match="not printable"):
            tp.Program("small", **{key: "a\x1b"})
        assert getattr(loads(PROGRAM + f'{key}: "a\\n b"'), key) == "a b"
    for text in (PROGRAM.replace("{i: 2}", "{i: \u202e2}"), PROGRAM.replace("{i: 2}", "i:\t2\t\u2028")):
        with pytest.raises(tp.ProgramError) as caught:
            loads(text)
        assert str(caught.value).replace("\n", "").isprintable()


ODD = "x\x1b[31m\x07\r\x9b\u202e\u2028\x85"  # a colour, a bell, and what else a terminal would obey


@pytest.mark.usefixtures("undrawn")
@pytest.mark.skipif(os.name == "nt", reason="Windows refuses such names of files")
@pytest.mark.parametrize(
    "words",
    [
        "check FILE",
        "check none-FILE",
        "limit FILE",
        "graph FILE",
        "graph FILE --out OUT.svg",
        "sample FILE --out OUT.npz",
        "sample FILE --out OUT/x.npz",
        "run FILE --width 8 --samples 20 --out OUT",
        "run FILE --set ODD=1",
        "run FILE --ODD",
        "run FILE --width ODD",
        "run FILE --average ODD=1",
        "solve FILE ODD --make variance --of y --be 1",
        "depth FILE --of ODD",
        "list ODD",
        "new ODD",
        "paper ODD",
        "import ODD:model",
        "ODD",
    ],
)
def test_no_control_character_of_a_command_reaches_a_screen(small: Path, words: str) -> None:
    odd = small.with_name(f"{ODD}.yaml")
    small.rename(odd)
    result = CliRunner().invoke(
        main, [word.replace("FILE", odd.name).replace("OUT", ODD).replace("ODD", ODD) for word in words.split()]
    )
    assert result.exit_code in (0, 2)
    assert result.output
    assert result.output.replace("\n", "").isprintable()


@pytest.mark.parametrize("entry", ["h[i]: {mean: 1e308, cov: 1}", 'h[i]: {cov: "where(i == i_, 1, 1e308)"}'])
def test_numbers_whose_squares_overflow_are_answered(entry: str) -> None:
    text = PROGRAM.replace("h[i]: {cov: 1}", entry).replace(
        "y[i] = MatMul(W, h[i])", "x[i] = MatMul(W, h[i])\n  - y[i] = Nonlin(clip(x[i], -100, 100))"
    )

    try:
        program = tp.Program.from_netsor(loads(text))
        program.check()
        drawn = program.run(8, 20)["y"]
    except tp.ProgramError as error:
        said = str(error)
        drawn = np.zeros(1)
    else:
        said = "not finite"
    assert re.search(r"not finite|semidefinite", said)
    assert np.abs(drawn).max() <= 100


def test_a_score_of_nothing_but_zeros_is_judged() -> None:
    text = PROGRAM.replace("{i: 2}", "{i: {size: 2, boundary: zero}}").replace(
        "y[i] = MatMul(W, h[i])", "k[i] = MatMul(W, h[i])\n  - p[i] = Dot(k[i], k[i-2])\n  - y[i] = Nonlin(tanh(p[i]))"
    )
    report = tp.Program.from_netsor(loads(text)).check()
    assert report.grade == "outside"
    assert "zeros that are read beyond a boundary" in str(report)

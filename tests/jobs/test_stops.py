"""Sweeps that are stopped: killed at several moments, interrupted, and given again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tensorprog as tp
from tensorprog.finite import plan

pytest.importorskip("xarray")
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")

PROGRAM = """\
program: small
constants: {c: 1}
initial:
  x: {mean: 0, cov: 1}
weights: {W: c}
body:
  - u = MatMul(W, x)
  - y = Nonlin(relu(u))
outputs: [y]
"""
# the command line, which stands still at the moment named, after it has said so, until its input is closed; what the
# tests were started with is not what a terminal does: a script starts them in its background with SIGINT ignored
SCRIPT = """
import itertools, pathlib, signal, sys
from tensorprog.jobs.cli import main
from tensorprog.finite import plan
from tensorprog.jobs import sweeps

plan.MAX_BLOCK = 16  # several blocks in a cell
moment, number, interrupt, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], itertools.count()
compare, replace = sweeps.compare, pathlib.Path.replace

def stop():
    print(moment, flush=True)
    sys.stdin.read()

def comparing(*args):
    if next(count) == number:
        stop()
    return compare(*args)

def replacing(self, target):
    if next(count) == number:
        stop()
    return replace(self, target)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN if interrupt == "ignored" else signal.default_int_handler)
    if moment == "comparing":
        sweeps.compare = comparing
    elif moment == "replacing":
        pathlib.Path.replace = replacing
    main.main(args=sys.argv[4:])
"""
COMMAND = ["sweep", "small.yaml", "--width", "8", "--over", "c=1,2", "--repeats", "4", "--samples", "200"]
CELLS = 8


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.yaml").write_text(PROGRAM)
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "MAX_BLOCK", 16)
    return tmp_path


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[str]]:
    """What a sweep writes that nothing stops: its numbers, and the names of its cells."""
    folder = tmp_path_factory.mktemp("unbroken")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(plan, "MAX_BLOCK", 16)
        Path("small.yaml").write_text(PROGRAM)
        numbers = sweep("b")
    return numbers, sorted(path.name for path in (folder / "b" / "cells").iterdir())


@contextmanager
def stopped(moment: str, number: int, *extra: str, interrupt: str = "heard") -> Iterator[subprocess.Popen[str]]:
    """The command, standing still at a moment."""
    command = [sys.executable, "script.py", moment, str(number), interrupt, *COMMAND, *extra]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().strip() == moment
            yield process
        finally:
            process.kill()


def sweep(out: str) -> bytes:
    tp.sweep("small.yaml", [8], over={"c": [1, 2]}, repeats=4, samples=200, out=out)
    return Path(out, "sweep.nc").read_bytes()


@pytest.mark.parametrize(
    ("moment", "number", "finished"),
    [
        ("comparing", 3, 3),
        pytest.param("replacing", 5, 5, marks=pytest.mark.slow),
        pytest.param("comparing", 0, 0, marks=pytest.mark.slow),
        pytest.param("replacing", CELLS, CELLS, marks=pytest.mark.slow),
    ],
)
def test_a_killed_sweep_goes_on_bit_for_bit(
    folder: Path, unbroken: tuple[bytes, list[str]], moment: str, number: int, finished: int
) -> None:
    with stopped(moment, number, "--out", "a") as process:
        process.send_signal(signal.SIGKILL)
        process.wait(120)
    cells = [path for path in Path("a/cells").iterdir() if not path.name.startswith(".")]
    assert len(cells) == finished
    assert not Path("a/sweep.nc").exists()
    for path in cells:
        assert json.loads(path.read_text())["known"]["numbers"]
    known = {path: path.stat().st_mtime_ns for path in cells}
    numbers, names = unbroken
    assert sweep("a") == numbers
    assert {path: path.stat().st_mtime_ns for path in cells} == known  # they were not drawn again
    assert sorted(path.name for path in Path("a/cells").iterdir()) == names
    assert len(names) == CELLS


def test_an_interrupted_sweep_says_how_to_go_on(folder: Path, unbroken: tuple[bytes, list[str]]) -> None:
    with stopped("comparing", 3, "--out", "a") as process:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command goes on from there" in said
    assert "Traceback" not in said
    assert len(list(Path("a/cells").iterdir())) == 3
    assert sweep("a") == unbroken[0]


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the children of a process are not listed here")
@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_sweep(folder: Path, unbroken: tuple[bytes, list[str]], kind: signal.Signals) -> None:
    with stopped("replacing", 2, "--out", "a", "--workers", "2") as process:
        children = [
            int(child)
            for task in Path(f"/proc/{process.pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        assert len(children) >= 2
        process.send_signal(kind)
        _, said = process.communicate(timeout=120)
    assert "Traceback" not in said
    assert process.returncode == (130 if kind == signal.SIGINT else -kind)
    end = time.monotonic() + 20
    while any(map(_alive, children)):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert sweep("a") == unbroken[0]

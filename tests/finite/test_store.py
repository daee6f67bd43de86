"""Results in a folder: runs that stop and go on, what is refused, and what a reader may see meanwhile."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.finite import plan, store
from tensorprog.finite import run as engine
from tensorprog.shipped import shipped_programs
from tests.reading import loads

ATTENTION = shipped_programs()["attention"]
RUN: dict[str, Any] = {"width": 24, "seed": 7, "method": "lazy"}

SLOWLY = """
import sys, time
import tensorprog as tp
from tensorprog.finite import plan, run, store
store.SYNC_SECONDS = 0.02
run.MAX_TASK = 1
plan.MAX_BLOCK = 64
settings = {"width": 24, "seed": 7, "method": "lazy"}
tp.load("attention").run(samples=20000, store=sys.argv[1], progress=lambda *_: time.sleep(0.05), **settings)
"""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_BLOCK", 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "samples"


def _same(one: tp.Samples, other: tp.Samples, count: int | None = None) -> None:
    assert list(one) == list(other)
    for name in one:
        assert np.array_equal(one[name], other[name][:count]), name


def test_a_stored_run_has_the_numbers_of_one_in_memory(folder: Path) -> None:
    program = tp.load(ATTENTION)
    stored = program.run(samples=1001, store=folder, keep=["q"], coordinates=3, **RUN)
    _same(stored, program.run(samples=1001, keep=["q"], coordinates=3, **RUN))
    assert isinstance(stored["y"], np.memmap)
    assert np.array_equal(np.load(folder / "y.npy"), stored["y"])
    stored.save(folder.parent / "copy.npz")
    with np.load(folder.parent / "copy.npz") as copy:
        assert np.array_equal(copy["q"], stored["q"])


def test_a_complete_run_is_read_and_a_longer_one_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tp.load(ATTENTION)
    longest = program.run(samples=3000, **RUN)
    seen: list[tuple[int, int]] = []
    for samples in (300, 1001, 3000):
        drawn = program.run(samples=samples, store=folder, progress=lambda *done: seen.append(done), **RUN)
        _same(drawn, longest, samples)
        assert len(np.load(folder / "p.npy", mmap_mode="r")) == samples
        assert seen[-1] == (samples, samples)
    assert (320, 1001) in seen  # whole blocks, of 64
    assert (1024, 3000) in seen
    monkeypatch.setattr(engine, "draw_blocks", None)  # nothing is drawn any more
    for samples in (3000, 100):
        _same(program.run(samples=samples, store=folder, **RUN), longest, samples)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_killed_run_goes_on_and_ends_with_the_same_numbers(folder: Path) -> None:
    program = tp.load(ATTENTION)
    for _ in range(2):
        before = _recorded(folder)
        process = subprocess.Popen([sys.executable, "-c", SLOWLY, str(folder)])
        try:
            _wait_for(lambda start=before: _recorded(folder) >= start + 3, process)
            with pytest.raises(tp.ProgramError, match="another run is writing"):
                program.run(samples=20000, store=folder, **RUN)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert len(np.load(folder / "y.npy", mmap_mode="r")) == 0  # not complete, so not counted
    seen: list[int] = []
    finished = program.run(samples=20000, store=folder, progress=lambda done, _: seen.append(done), **RUN)
    assert 0 < seen[0] < 20000
    _same(finished, program.run(samples=20000, **RUN))


def _recorded(folder: Path) -> int:
    return (folder / "finished").read_bytes().count(1) if (folder / "finished").exists() else 0


def _wait_for(condition: Any, process: subprocess.Popen[Any]) -> None:
    end = time.monotonic() + 300  # it hangs
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 8}, "another seed"), ({"width": 32}, "another width"), ({"method": "dense"}, "another method"),
        ({"dtype": "float32"}, "another dtype"), ({"keep": ["q"]}, "another names"),
        ({"coordinates": 2}, "another coordinates"),
    ],
)  # fmt: skip
def test_a_folder_of_another_run_is_refused(folder: Path, change: dict[str, Any], named: str) -> None:
    program = tp.load(ATTENTION)
    program.run(samples=50, store=folder, **RUN)
    with pytest.raises(tp.ProgramError, match=named):
        program.run(samples=50, store=folder, **(RUN | change))
    _same(program.run(samples=50, store=folder, **RUN), program.run(samples=50, **RUN))


def test_a_folder_of_another_program_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tp.load(ATTENTION).run(samples=50, store=folder, **RUN)
    with pytest.raises(tp.ProgramError, match="another program"):
        tp.load(ATTENTION, H=3).run(samples=50, store=folder, **RUN)
    monkeypatch.setattr(store, "settings", lambda job, real=store.settings: real(job) | {"numpy": "1.0"})
    with pytest.raises(tp.ProgramError, match="another numpy"):
        tp.load(ATTENTION).run(samples=50, store=folder, **RUN)


def test_tables_read_from_files_count_by_their_numbers(tmp_path: Path) -> None:
    text = "program: p\nindices: {i: 2}\ninitial:\n  x[i]: {gram: g.npy}\nbody:\n  - y[i] = Nonlin(x[i])\n"
    (tmp_path / "p.yaml").write_text(text + "outputs: [y]\n")
    for variance in (1.0, 2.0):
        np.save(tmp_path / "g.npy", np.diag([1.0, variance]))
        program = tp.load(tmp_path / "p.yaml")
        if variance == 1:
            program.run(4, 10, store=tmp_path / "samples")
    with pytest.raises(tp.ProgramError, match="another tables"):
        program.run(4, 10, store=tmp_path / "samples")


def test_a_folder_with_other_files_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "y.npy").write_text("mine")
    with pytest.raises(tp.ProgramError, match="holds other files"):
        tp.load(ATTENTION).run(samples=50, store=folder, **RUN)
    assert [path.name for path in folder.iterdir()] == ["y.npy"]
    (folder.parent / "file").write_text("mine")
    with pytest.raises(tp.ProgramError, match="file"):
        tp.load(ATTENTION).run(samples=50, store=folder.parent / "file", **RUN)


def test_damage_is_noticed(folder: Path) -> None:
    program = tp.load(ATTENTION)
    program.run(samples=700, store=folder, **RUN)
    whole = (folder / "p.npy").read_bytes()
    (folder / "p.npy").write_bytes(whole[:-8])
    with pytest.raises(tp.ProgramError, match=r"p\.npy is damaged"):
        program.run(samples=700, store=folder, **RUN)
    (folder / "p.npy").write_bytes(whole)
    meta = (folder / "meta.json").read_text()
    for text, message in ((meta[:-9], "damaged"), (json.dumps({"format": 99}), "another version"), ("[]", "another")):
        (folder / "meta.json").write_text(text)
        with pytest.raises(tp.ProgramError, match=message):
            program.run(samples=700, store=folder, **RUN)


def test_a_full_disk_is_one_message_and_no_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tp.load(ATTENTION)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 100))  # type: ignore[attr-defined]
        with pytest.raises(tp.ProgramError, match="the disk has"):
            program.run(samples=9000, store=folder, **RUN)
    real, calls = store._write, []

    def fill(file: Any, place: int, data: bytes) -> None:
        calls.append(place)
        if len(calls) > 30:
            real(file, place, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, place, data)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_write", fill)
        with pytest.raises(tp.ProgramError, match="cannot be written: no space left"):
            program.run(samples=9000, store=folder, **RUN)
    assert len(np.load(folder / "y.npy")) == 0
    _same(program.run(samples=9000, store=folder, **RUN), program.run(samples=9000, **RUN))


def test_numbers_that_are_not_finite_are_not_stored(folder: Path) -> None:
    netsor = loads("program: p\ninitial:\n  x: {mean: 0, cov: 1}\nbody:\n  - y = Nonlin(log(x))\noutputs: [y]\n")
    for _ in range(2):
        with pytest.raises(tp.ProgramError, match="not finite"):
            engine.run(netsor, 4, 100, engine.Resources(store=folder))
    assert len(np.load(folder / "y.npy")) == 0

"""`tp run --stream` and `--scheduler`: samples on disk as they are drawn, and what happens when that goes wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorprog.finite import plan

PROGRAM = """\
program: small
initial:
  x: {mean: 0, cov: 1}
weights: {W: 1}
body:
  - u = MatMul(W, x)
  - y = Nonlin(relu(u))
outputs: [y]
run: {width: [8, 32], samples: 4000}
"""
SLOWLY = """
import sys, time
from tensorprog.show import terminal
from tensorprog.jobs.cli import main
from tensorprog.finite import plan, store
plan.MAX_BLOCK, store.SYNC_SECONDS = 64, 0.02
terminal.Progress.progress = lambda *_: time.sleep(0.05)
main.main(args=sys.argv[1:])
"""
Tp = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("undrawn")


def _report(text: str) -> Any:
    report = json.loads(text)
    for entry in report["finite"]:
        del entry["seconds"]
    return report


def test_streamed_samples_give_the_same_report(tp: Tp) -> None:
    plain, streamed, again = (
        tp("run", "small.yaml", "--format", "json", "--out", out, *extra)
        for out, extra in (("a", ()), ("b", ("--stream",)), ("b", ("--stream",)))
    )
    assert plain[0] == streamed[0] == again[0] == 0
    assert _report(plain[1]) == _report(streamed[1]) == _report(again[1])
    assert not Path("b/samples.npz").exists()
    with np.load("a/samples.npz") as data:
        for width in (8, 32):
            assert np.array_equal(np.load(f"b/samples/n{width}/y.npy"), data[f"y_n{width}"])
    assert "samples/n32" in tp("run", "small.yaml", "--out", "b", "--stream", "--samples", "5000")[1].replace("\\", "/")


def test_other_settings_are_refused_before_anything_is_written(tp: Tp) -> None:
    tp("run", "small.yaml", "--stream", "--out", "a", "--quiet")
    before = {path: path.stat().st_mtime_ns for path in Path("a").rglob("*")}
    code, out, err = tp("run", "small.yaml", "--stream", "--out", "a", "--seed", "5")
    assert (code, out) == (2, "")
    assert "holds the samples of another run, with another seed" in err
    assert {path: path.stat().st_mtime_ns for path in Path("a").rglob("*")} == before


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_killed_command_goes_on_when_it_is_given_again(tp: Tp, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["run", "small.yaml", "--stream", "--out", "a", "--threads", "1", "--format", "json"]
    with subprocess.Popen([sys.executable, "-c", SLOWLY, *command, "--quiet"], stdout=subprocess.DEVNULL) as process:
        record, end = Path("a/samples/n32/finished"), time.monotonic() + 300  # it hangs
        while not (record.exists() and 1 in record.read_bytes()):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert 0 < record.read_bytes().count(1) < 4000 // 64
    assert [entry["width"] for entry in json.loads(Path("a/report.json").read_text())["finite"]] == [8]
    monkeypatch.setattr(plan, "MAX_BLOCK", 64)
    unbroken = ["b" if part == "a" else part for part in command]
    assert _report(tp(*command)[1]) == _report(tp(*unbroken)[1])
    assert np.array_equal(np.load("a/samples/n32/y.npy"), np.load("b/samples/n32/y.npy"))


def test_only_the_first_networks_are_compared_where_memory_does_not_hold_all(tp: Tp) -> None:
    Path("small.yaml").write_text(PROGRAM.replace("samples: 4000", "samples: 400000, max_memory: 40MB"))
    code, out, err = tp("run", "small.yaml", "--stream", "--width", "8", "--format", "json")
    assert code == 0, err
    (entry,) = json.loads(out)["finite"]
    assert entry["samples"] == 400_000
    assert "comparing the first" in err
    assert len(np.load("runs/small/samples/n8/y.npy", mmap_mode="r")) == 400_000


@pytest.mark.parametrize("address", ["nonsense", "ftp://host:1"])
def test_a_scheduler_that_is_not_there(tp: Tp, address: str) -> None:
    pytest.importorskip("distributed")
    code, out, err = tp("run", "small.yaml", "--scheduler", address)
    assert (code, out) == (2, "")
    assert "no scheduler answers" in err
    assert not Path("runs").exists()


def test_a_run_replaces_a_folder_as_a_whole(tp: Tp, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorprog.jobs import run
    from tensorprog.language.files import locked

    assert tp("run", "small.yaml", "--out", "a", "--width", "8")[0] == 0
    before = {path.name: path.read_bytes() for path in Path("a").iterdir()}
    with locked(Path("a")):
        code, _, err = tp("run", "small.yaml", "--out", "a", "--seed", "1")
    assert code == 2
    assert "another run is writing to a" in err

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "draw", interrupted)
        assert tp("run", "small.yaml", "--out", "a", "--seed", "1")[0] == 130
    assert {path.name: path.read_bytes() for path in Path("a").iterdir()} == before
    assert tp("run", "small.yaml", "--out", "a", "--seed", "1", "--samples", "100")[0] == 0
    assert {path.name for path in Path("a").iterdir()} == set(before)
    with np.load("a/samples.npz") as data:
        assert json.loads(str(data["meta.json"]))["seed"] == 1
    assert json.loads(Path("a/report.json").read_text())["finite"][0]["seed"] == 1

"""A real cluster: a scheduler and two worker processes, some of which do not live long."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.finite import cluster, workers
from tensorprog.jobs.cli import main
from tensorprog.language.extras import how_to_install
from tensorprog.shipped import shipped_programs

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow  # clusters take seconds to start, and some even when idle

ATTENTION = shipped_programs()["attention"]
RUN: dict[str, Any] = {"width": 64, "samples": 30_000, "seed": 7, "method": "lazy"}
CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@contextmanager
def _cluster(folder: Path) -> Iterator[subprocess.Popen[str]]:
    script = folder / "cluster.py"
    script.write_text(CLUSTER)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, script], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=folder
    ) as running:
        yield running
        assert running.stdin is not None
        running.stdin.close()
        try:
            running.wait(60)
        finally:
            running.kill()


def _address(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A cluster that a test may end."""
    with _cluster(tmp_path) as running:
        yield running


@pytest.fixture
def address(process: subprocess.Popen[str]) -> str:
    return _address(process)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster that several tests use."""
    with _cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield _address(running)


def _same(one: tp.Samples, other: tp.Samples) -> None:
    for name in one:
        assert np.array_equal(one[name], other[name]), name


def _workers(executor: Any) -> list[int]:
    return list(executor._client.run(os.getpid).values())


@pytest.mark.turns(4)
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_worker_ended_in_mid_run_changes_nothing(address: str, tmp_path: Path) -> None:
    program = tp.load(ATTENTION)
    reference = program.run(**RUN, threads=1)
    notes: list[str] = []
    with cluster.connected(address, notes.append) as executor:
        assert len(_workers(executor)) == 2
        _same(program.run(**RUN, executor=executor), reference)
        killed: list[int] = []

        def kill(done: int, all_of_them: int) -> None:
            if not killed and done < all_of_them:
                killed.append(_workers(executor)[0])
                os.kill(killed[0], signal.SIGKILL)

        _same(program.run(**RUN, executor=executor, progress=kill, store=tmp_path / "samples"), reference)
        assert killed
        assert killed[0] not in _workers(executor)

        def stop(*_: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            program.run(**RUN, executor=executor, progress=stop)
        _same(program.run(**RUN, executor=executor), reference)
    assert not notes


def test_plain_executors_of_a_client_serve_as_well(lasting: str) -> None:
    from distributed import Client

    program = tp.load(ATTENTION)
    with Client(lasting, set_as_default=False) as client:
        _same(program.run(**RUN, executor=client.get_executor()), program.run(**RUN))
        worker = next(iter(client.nthreads()))
    with pytest.raises(tp.ProgramError, match=r"no scheduler answers at .* a Worker does"):
        cluster.connected(worker, print).__enter__()


def test_run_with_a_scheduler_reports_the_same_numbers(
    lasting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    reports = []
    for extra in ([], ["--scheduler", lasting]):
        command = ["run", "mlp", "--width", "16,64", "--samples", "3000", "--format", "json", "--quiet", *extra]
        with pytest.raises(SystemExit) as caught:
            main.main(args=command, prog_name="tp")
        printed = capsys.readouterr()
        assert (caught.value.code, printed.err) == (0, "")
        report = json.loads(printed.out)
        for entry in report["finite"]:
            del entry["seconds"]
        reports.append(report)
    assert reports[0] == reports[1]


def test_the_loss_of_the_scheduler_is_one_message(address: str, process: subprocess.Popen[str]) -> None:
    def kill(*_: int) -> None:
        process.kill()
        process.wait()

    with (
        pytest.raises(tp.WorkerError, match=r"workers were lost|scheduler has gone"),
        cluster.connected(address, print) as executor,
    ):
        tp.load(ATTENTION).run(**RUN, executor=executor, progress=kill)


def test_workers_with_other_libraries_are_refused(lasting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "libraries", lambda: {"tensorprog": tp.__version__, "numpy": "1.0"})
    with (
        pytest.raises(tp.WorkerError, match=r"has numpy .* instead of 1\.0"),
        cluster.connected(lasting, print) as executor,
    ):
        tp.load(ATTENTION).run(**RUN, executor=executor)


@pytest.mark.parametrize("address", ["tcp://host.invalid:8786", "nonsense", "ftp://host:1"])
def test_an_address_without_a_scheduler_is_bad_input(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(tp.ProgramError, match="no scheduler answers at"), cluster.connected(address, print):
        pass


def test_an_address_that_stays_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("0.0.0.0", 0)) as server:
        address = f"tcp://0.0.0.0:{server.getsockname()[1]}"
        with pytest.raises(tp.ProgramError, match=r"nothing came within 0\.3 s"):
            cluster.connected(address, print).__enter__()


def test_a_scheduler_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(tp.ProgramError, match=re.escape(how_to_install("cluster"))),
        cluster.connected("tcp://host.invalid:8786", print),
    ):
        pass

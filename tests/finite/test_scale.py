"""Executors, threads of BLAS and memory: what may change how a run is done, and never its numbers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import tensorprog as tp
from tensorprog.finite import run as engine
from tensorprog.finite.plan import OVERHEAD, make_job

RUN: dict[str, Any] = {"width": 24, "samples": 3000, "seed": 7}


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


class Backwards(Executor):
    """An executor of this test's own: it collects tasks and does the last of them first."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []
        self.most = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, function, args))
        self.most = max(self.most, len(self.waiting))
        threading.Timer(0.01, self.work).start()
        return future

    def work(self) -> None:
        future, function, args = self.waiting.pop()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)


@pytest.mark.parametrize("method", ["dense", "lazy", "collapsed"])
def test_one_seed_gives_the_same_numbers_in_every_executor(
    method: str, processes: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tp.load("attention")
    reference = program.run(**RUN, method=method, threads=1)
    with ThreadPoolExecutor(3) as threads:
        executors: list[dict[str, Any]] = [{"executor": e} for e in (threads, processes, Backwards())]
        for size in (1, 64):
            monkeypatch.setattr(engine, "MAX_TASK", size)
            for how in (*executors, {"threads": 2}, {"max_memory": "80MiB"}):
                drawn = program.run(**RUN, method=method, **how)
                for name in reference:
                    assert np.array_equal(reference[name], drawn[name]), (how, name)


def test_one_thread_draws_where_two_do_not_fit() -> None:
    """And its numbers are theirs."""
    program = tp.load("attention", s=64)
    run: dict[str, Any] = {"width": 128, "samples": 128, "seed": 3}
    job = make_job(program.netsor, 128, 3)
    one, two = (engine.batching(job, 128, engine.Resources(threads, 1 << 30)).memory for threads in (1, 2))
    assert one < two
    between = (one + two) // 2
    assert engine.batching(job, 128, engine.Resources(2, between)).memory <= between
    small, large = program.run(**run, threads=2, max_memory=between), program.run(**run, threads=2)
    assert all(np.array_equal(small[name], large[name]) for name in large)
    with pytest.raises(tp.MemoryLimitError, match="at a time with the results would take"):
        program.run(**run, max_memory=one // 2)


SETTINGS: list[tuple[str, dict[str, Any], int, int, dict[str, Any]]] = [
    ("attention", {"s": 128, "H": 6}, 96, 1, {}),
    ("attention", {"s": 96}, 512, 16, {"dtype": "float32"}),
    ("attention", {"s": 48, "H": 16}, 512, 64, {"coordinates": 8}),
    ("attention", {}, 512, 20_000, {}),
    ("attention", {}, 512, 4, {"method": "dense"}),
    ("attention", {"s": 24}, 2048, 16, {"method": "lazy"}),
    ("attention_relu", {"s": 64}, 2048, 16, {"keep": ["x"]}),
    ("cnn", {}, 1024, 64, {}),
    ("gru", {}, 1024, 32, {}),
    ("mlp", {}, 8192, 64, {}),
    ("deep_attention", {}, 1024, 32, {}),
    ("autoencoder_tied", {}, 512, 8, {}),
]


@pytest.mark.parametrize(("name", "sizes", "width", "samples", "options"), SETTINGS)
def test_the_memory_of_a_run_is_what_its_estimate_says(
    name: str, sizes: dict[str, Any], width: int, samples: int, options: dict[str, Any]
) -> None:
    program = tp.load(name, **sizes)
    said = engine.batching(make_job(program.netsor, width, **options), samples, engine.Resources(1)).memory - OVERHEAD
    program.run(width, 1, threads=1, **options)  # what is loaded and worked out once is there by now
    tracemalloc.start()
    try:
        program.run(width, samples, threads=1, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.5 * said - 3e5 <= peak <= 2 * said + 3e5  # objects of Python beside the arrays


def test_what_is_sent_to_workers_does_not_grow_with_the_network() -> None:
    job = make_job(tp.load("attention_correlated", s=1024, H=12).netsor, 768)
    assert len(pickle.dumps(engine.pack(job))) < 1 << 16


class Deadly(Executor):
    """Processes that a task kills."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool, self.tasks = pool, 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        self.tasks += 1
        if self.tasks == 3:
            return self.pool.submit(signal.raise_signal, signal.SIGKILL)
        return self.pool.submit(function, *args)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_the_loss_of_a_process_is_one_message() -> None:
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
        pytest.raises(tp.WorkerError, match="workers were lost") as caught,
    ):
        tp.load("attention").run(width=24, samples=20_000, executor=Deadly(pool))
    assert caught.value.exit_code == 3


def test_errors_of_a_task_come_from_other_processes_as_they_are(processes: ProcessPoolExecutor) -> None:
    packed = engine.pack(make_job(tp.load("attention").netsor, 8))
    assert len(processes.submit(engine.draw_packed, packed, [0, 1]).result()) == 2
    other = pickle.dumps(({"numpy": "1.0"}, *pickle.loads(packed)[1:]))
    with pytest.raises(tp.WorkerError, match=r"a worker has numpy .* instead of 1\.0"):
        processes.submit(engine.draw_packed, other, [0]).result()


def test_an_exception_cancels_what_is_under_way() -> None:
    executor = Backwards()
    executor.work = lambda: None  # type: ignore[method-assign]  # nothing is ever finished but the first task

    def finish_one() -> None:
        future, function, args = executor.waiting[0]
        future.set_result(function(*args))

    threading.Timer(0.5, finish_one).start()

    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tp.load("attention", s=16).run(width=24, samples=6000, executor=executor, progress=stop)
    assert len(executor.waiting) > 1
    assert all(future.cancelled() for future, _, _ in executor.waiting[1:])


def _blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


PEAK = """
import resource, sys
import tensorprog as tp
program = tp.load("attention")
program.run(16, 2000, store=sys.argv[1] + "-first", method="collapsed")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
drawn = program.run(16, 300_000, store=sys.argv[1], method="collapsed", max_memory="64MB", threads=2)
size = sum(array.nbytes for array in drawn.values())
unit = 1 if sys.platform == "darwin" else 1024
print(size, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)
"""


@pytest.mark.skipif(os.name != "posix", reason="memory is measured where the system tells")
def test_memory_stays_within_the_budget_when_results_do_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PEAK, str(tmp_path / "samples")]
    env = os.environ | {"TENSORPROG_FAST": "0"}  # compiled code would count as memory of the run
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    size, growth = map(int, done.stdout.split())
    assert size > 64e6
    assert growth < 64e6
    with pytest.raises(tp.MemoryLimitError, match="write them to disk"):
        tp.load("attention").run(16, 300_000, max_memory="64MB")

"""Executors, threads of BLAS and memory: what may change how a run is done, and never its numbers."""

from __future__ import annotations

import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import tensorprog as tp
from tensorprog.finite import workers
from tensorprog.finite.job import OVERHEAD, make_job
from tensorprog.finite.run import estimate
from tensorprog.language.memory import parse_memory
from tensorprog.shipped import shipped_programs

ATTENTION = shipped_programs()["attention"]
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


@pytest.mark.turns(4)
@pytest.mark.parametrize("method", ["dense", "lazy", "collapsed"])
@pytest.mark.parametrize("size", [1, 2, 64])
def test_one_seed_gives_the_same_numbers_in_every_executor(
    method: str, size: int, processes: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tp.load(ATTENTION)
    reference = program.run(**RUN, method=method, threads=1)
    monkeypatch.setattr(workers, "MAX_TASK", size)
    with ThreadPoolExecutor(3) as threads:
        executors: list[dict[str, Any]] = [{"executor": e} for e in (threads, processes, Backwards())]
        for how in (*executors, {"threads": 2}, {"max_memory": "80MiB"}):
            drawn = program.run(**RUN, method=method, **how)
            for name in reference:
                assert np.array_equal(reference[name], drawn[name]), (how, name)


@pytest.mark.turns(3)
def test_tasks_under_way_are_bounded_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    program = tp.load(ATTENTION, s=16)
    job = make_job(program.netsor, 8, 7, "lazy", 1, (), "float64")
    drawn = job.drawn
    samples = 40 * job.block
    results = samples * drawn // job.block
    few = workers.flight(job, samples, results + 10 * drawn, executor=Backwards())
    assert 1 <= few.tasks * few.size <= 4  # each is there twice, packed and unpacked
    assert few.memory <= results + 10 * drawn
    assert workers.flight(job, samples, results + 2 * drawn, executor=Backwards()).memory > results + 2 * drawn
    executor = Backwards()
    program.run(8, samples, seed=7, method="lazy", executor=executor, max_memory=results + 10 * drawn)
    assert executor.most * 2 * drawn <= 10 * drawn


def test_one_thread_draws_where_two_do_not_fit() -> None:
    """And its numbers are theirs."""
    program = tp.load(ATTENTION, s=128)
    run: dict[str, Any] = {"width": 128, "samples": 64, "seed": 3}
    one, two = (estimate(program.netsor, 128, 64, threads=threads, max_memory="1GiB")[1] for threads in (1, 2))
    assert one < two
    between = (one + two) // 2
    assert estimate(program.netsor, 128, 12, threads=2, max_memory=between)[1] <= between
    small, large = program.run(**run, threads=2, max_memory=between), program.run(**run, threads=2)
    assert all(np.array_equal(small[name], large[name]) for name in large)
    with pytest.raises(tp.MemoryLimitError):
        program.run(**run, max_memory=one - 1)


SETTINGS: list[tuple[str, dict[str, Any], int, int, dict[str, Any]]] = [
    ("attention", {"s": 128, "H": 6}, 96, 1, {}),
    ("attention", {"s": 96}, 160, 48, {}),
    ("attention", {"s": 96}, 512, 16, {"dtype": "float32"}),
    ("attention", {"s": 48, "H": 16}, 512, 64, {"coordinates": 8}),
    ("attention", {}, 512, 20_000, {}),
    ("attention", {}, 512, 4, {"method": "dense"}),
    ("attention", {"s": 24}, 2048, 16, {"method": "lazy"}),
    ("attention_relu", {"s": 64}, 2048, 16, {"keep": ["x"]}),
    ("attention_masked", {}, 4096, 256, {}),
    ("cnn", {}, 1024, 64, {}),
    ("gru", {}, 1024, 32, {}),
    ("layernorm_mlp", {}, 4096, 64, {}),
    ("lstm", {}, 1024, 32, {}),
    ("mlp", {}, 8192, 64, {}),
    ("mlp_bias", {}, 2048, 64, {}),
    ("resnet", {}, 1024, 64, {}),
    ("rnn", {}, 2048, 32, {}),
    ("transformer_yang", {}, 1024, 32, {}),
    ("deep_attention", {}, 1024, 32, {}),
    ("autoencoder_tied", {}, 512, 8, {}),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("name", "sizes", "width", "samples", "options"), SETTINGS)
def test_the_memory_of_a_run_is_what_its_estimate_says(
    name: str, sizes: dict[str, Any], width: int, samples: int, options: dict[str, Any]
) -> None:
    program = tp.load(shipped_programs()[name], **sizes)
    said = estimate(program.netsor, width, samples, threads=1, **options)[1] - OVERHEAD
    program.run(width, samples, threads=1, **options)  # what is loaded and worked out once is there by now
    tracemalloc.start()
    try:
        program.run(width, samples, threads=1, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert abs(said - peak) <= 0.2 * peak + 3e5  # objects of Python beside the arrays


def test_one_sample_of_a_large_program_fits() -> None:
    program = tp.load(ATTENTION, s=1024, H=12)
    assert estimate(program.netsor, 768, 1)[1] < 400 << 20
    with pytest.raises(tp.MemoryLimitError, match="drawing 1 network at a time with the results would take 2"):
        program.run(768, 1, max_memory="200MiB")


@pytest.mark.parametrize("name", ["attention", "attention_relu", "gru", "mlp", "autoencoder_tied", "cnn"])
@pytest.mark.parametrize("limit", ["1kB", "999 KiB", "1MB", "1.5MiB", 2_000_000, "3MiB", "20MB"])
def test_a_refusal_names_more_than_the_limit_that_it_quotes(name: str, limit: str | int, tmp_path: Path) -> None:
    program = tp.load(shipped_programs()[name])
    refused = 0
    for width, samples, options in ((8, 1, {}), (64, 300, {}), (64, 10**7, {}), (1024, 20, {"threads": 2}),
                                    (8192, 1, {}), (64, 10**6, {"store": tmp_path / "drawn"})):  # fmt: skip
        if estimate(program.netsor, width, samples, max_memory=limit, threads=options.get("threads"),
                    stored="store" in options)[1] <= parse_memory(limit):  # fmt: skip
            continue
        with pytest.raises(tp.MemoryLimitError) as caught:
            program.run(width, samples, max_memory=limit, **options)
        found = re.findall(r"(\d[\d.e+]*) (bytes|[KMGTPE]iB)", str(caught.value))
        takes, allowed = (float(number) * 1024 ** ("bKMGTPE".index(unit[0])) for number, unit in found)
        assert takes > allowed, str(caught.value)
        assert allowed <= parse_memory(limit)
        refused += 1
    assert refused or limit == "20MB"


class Counted(Executor):
    """Workers elsewhere that never do anything."""

    def __init__(self, workers: int) -> None:
        self._max_workers = workers


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_tasks_for_workers_elsewhere_take_a_second_or_more(count: int) -> None:
    job = make_job(tp.load("attention_relu").netsor, 1024, 0, "auto", 1, (), "float64")
    many = 100 * count * math.ceil(1 / job.seconds)
    way = workers.flight(job, many * job.block, 1 << 40, executor=Counted(count), stored=True)
    assert 0.9 <= way.size * job.seconds <= 5
    assert way.size * job.seconds >= 3e-3 * count  # else the scheduler could not keep so many busy
    assert way.tasks >= 2 * count
    few = workers.flight(job, 8 * count * job.block, 1 << 40, executor=Counted(count), stored=True)
    assert few.size <= 2  # everybody has something to do


def test_what_is_sent_to_workers_does_not_grow_with_the_network() -> None:
    job = make_job(tp.load("attention_correlated", s=1024, H=12).netsor, 768, 0, "auto", 1, (), "float64")
    assert len(pickle.dumps(workers.pack(job, 1e9))) < 1 << 16


@pytest.mark.skipif(sys.platform != "linux", reason="thresholds of glibc")
def test_memory_is_kept_where_the_environment_says_that_it_is_given_back() -> None:
    code = """
import resource, tensorprog as tp
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
program = tp.load("attention_relu")
program.run(256, 2048, threads=1)
before = faults()
program.run(256, 8192, threads=1)
print(faults() - before)
"""
    counts = []
    for given in ({}, {"MALLOC_TRIM_THRESHOLD_": "65536"}):  # as dask gives it to its workers
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")} | given
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        counts.append(int(done.stdout))
    assert counts[1] < 4 * counts[0] + 4000, counts


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
        tp.load(ATTENTION).run(width=24, samples=20_000, executor=Deadly(pool))
    assert caught.value.exit_code == 3


def test_errors_of_a_task_come_from_other_processes_as_they_are(processes: ProcessPoolExecutor) -> None:
    packed = workers.pack(make_job(tp.load(ATTENTION).netsor, 8, 0, "auto", 1, (), "float64"), 0)
    assert len(processes.submit(workers.draw_packed, packed, [0, 1]).result()) == 2
    other = workers.Packed((("numpy", "1.0"),), packed.job, 0)
    with pytest.raises(tp.WorkerError, match=r"a worker has numpy .* instead of 1\.0"):
        processes.submit(workers.draw_packed, other, [0]).result()
    with pytest.raises(tp.WorkerError, match="cannot load"):
        tp.load(ATTENTION).run(**RUN, executor=_Failing(ModuleNotFoundError("No module named 'numpy'")))


class _Failing(Executor):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def submit(self, function: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(self.error)
        return future


def test_an_exception_cancels_what_is_under_way() -> None:
    executor = Backwards()
    executor.work = lambda: None  # type: ignore[method-assign]  # nothing is ever finished but the first task

    def finish_one() -> None:
        while not executor.waiting:
            time.sleep(0.01)
        future, function, args = executor.waiting[0]
        future.set_result(function(*args))

    threading.Timer(0.2, finish_one).start()

    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tp.load(ATTENTION, s=16).run(width=24, samples=6000, executor=executor, progress=stop)
    assert len(executor.waiting) > 1
    assert all(future.cancelled() for future, _, _ in executor.waiting[1:])


def _blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture
def three_blas_threads() -> Iterator[None]:
    with threadpool_limits(3):
        assert _blas_threads() == {3}
        yield


@pytest.mark.usefixtures("three_blas_threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_blas_has_one_thread_while_blocks_are_drawn(threads: int) -> None:
    seen: list[set[int]] = []
    tp.load(ATTENTION).run(width=24, samples=50, threads=threads, progress=lambda *_: seen.append(_blas_threads()))
    assert seen
    assert all(found == {1} for found in seen)
    assert _blas_threads() == {3}


@pytest.mark.usefixtures("three_blas_threads")
def test_the_last_to_leave_gives_blas_its_threads_back() -> None:
    first, second = workers.one_blas_thread(), workers.one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert _blas_threads() == {1}
    second.__exit__(None, None, None)
    assert _blas_threads() == {3}


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


@pytest.mark.turns(4)
@pytest.mark.skipif(os.name != "posix", reason="memory is measured where the system tells")
def test_memory_stays_within_the_budget_when_results_do_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PEAK, str(tmp_path / "samples")]
    env = os.environ | {"TENSORPROG_FAST": "0"}  # compiled code would count as memory of the run
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    size, growth = map(int, done.stdout.split())
    assert size > 64e6
    assert growth < 64e6
    with pytest.raises(tp.MemoryLimitError, match="write them to disk"):
        tp.load(ATTENTION).run(16, 300_000, max_memory="64MB")

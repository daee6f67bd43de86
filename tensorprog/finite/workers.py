"""Blocks handed to workers: how many may be under way in the memory allowed, how a job travels, and what workers do."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.block import draw_blocks
from tensorprog.finite.job import Job
from tensorprog.finite.normals import prepare
from tensorprog.language.atoms.declared import declared_function, install
from tensorprog.language.errors import Problem, WorkerError

__all__ = [
    "OUTSIDE_WORKERS",
    "Flight",
    "Packed",
    "cores",
    "draw_packed",
    "execute",
    "finished",
    "flight",
    "inside",
    "libraries",
    "one_blas_thread",
    "opened",
    "pack",
    "ready",
]

Task = TypeVar("Task")
Result = TypeVar("Result")
Drawn = list[dict[str, NDArray[Any]]]  # of each block of a task
# aimed at for one task: long beside the work of handing it over, short beside one's patience
TASK_SECONDS, OUTSIDE_SECONDS = 0.1, 1.0
HANDING_OVER = 4e-3  # seconds of the scheduler and this process for one task elsewhere, which all workers wait for
MAX_TASK, MAX_OUTSIDE = 64, 1024  # blocks handed to a worker at once, at most
OUTSIDE_WORKERS = 64  # presumed of an executor that does not tell
FEWEST_OUTSIDE, OUTSIDE_TASKS = 32, 256  # tasks kept under way for workers elsewhere, whose number may grow
_lock = threading.Lock()
_inside = 0  # how many are inside `one_blas_thread`
_before: dict[str, tuple[Any, int]] = {}  # by file: each library and the number of threads it had


# ---- what a run takes, and how many blocks may be under way ----------------------------------------------------------


@dataclass(frozen=True)
class Flight:
    """How many blocks are under way: `tasks` of `size` blocks each, computed or waiting, by so many `workers`; and the
    bytes of this process that the run takes at most, results included."""

    workers: int
    size: int
    tasks: int
    memory: int


def flight(
    job: Job, samples: int, limit: int, threads: int | None = None, executor: Executor | None = None,
    stored: bool = False,
) -> Flight:  # fmt: skip
    """Choose as many workers as the memory allows, and one if it allows none: then it takes more than `limit` bytes.

    Workers in other processes take memory there, each as much as drawing a block takes; of their tasks the results
    count here, packed and unpacked.  Results take memory as they are written, those of one task more than are under way
    are in use, and a worker that draws a block holds the results of it in what drawing takes.  Tasks elsewhere are
    long, since handing over one takes the scheduler, the worker and this process some milliseconds together.
    """
    blocks = -(-samples // job.block)
    if executor is None:
        workers = threads or cores()
    else:
        workers = int(getattr(executor, "_max_workers", OUTSIDE_WORKERS))
    workers = max(1, min(workers, blocks))
    here = inside(executor)
    results = 0 if stored else samples * job.drawn // job.block

    def memory(tasks: int, size: int) -> int:
        busy = min(workers, tasks)
        beside = 0 if executor is None and tasks == 1 else size  # of the task in use
        if not here:
            return max(job.memory, results + (tasks * size + beside) * 2 * job.drawn)
        held = busy * job.memory + (tasks * size + beside - busy) * job.drawn
        return max(results + (size + beside) * job.drawn, results - min(results, busy * size * job.drawn) + held)

    def fitting(tasks: int) -> int:
        return next((fewer for fewer in range(min(tasks, blocks), 1, -1) if memory(fewer, size) <= limit), 1)

    if here:
        longest, seconds, fewest, most = MAX_TASK, TASK_SECONDS, workers + (workers > 1), workers + (workers > 1)
    else:
        longest, seconds = MAX_OUTSIDE, max(OUTSIDE_SECONDS, HANDING_OVER * workers)
        fewest, most = max(2 * workers, FEWEST_OUTSIDE), max(2 * workers, OUTSIDE_TASKS)
    size = 1
    tasks = fitting(fewest)
    size = max(1, min(longest, int(seconds / job.seconds), blocks // (4 * workers)))
    while size > 1 and memory(tasks, size) > limit:
        size -= 1
    tasks = max(tasks, fitting(most))
    return Flight(min(workers, tasks) if here else workers, size, tasks, memory(tasks, size))


def inside(executor: Executor | None) -> bool:
    """Whether the workers are threads of this process."""
    return executor is None or isinstance(executor, ThreadPoolExecutor)


def cores() -> int:
    """Cores that this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return max(1, os.cpu_count() or 1)


# ---- what a worker does, in this process or in another one -----------------------------------------------------------


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread in this process, until the last of those who asked for it has left.

    Products are then never split, so they round the same wherever they are computed; and workers, which are threads or
    processes already, do not fight for the cores.
    """
    global _inside
    from threadpoolctl import ThreadpoolController

    with _lock:
        _inside += 1
        for library in ThreadpoolController().lib_controllers:  # those loaded by now
            _before.setdefault(library.filepath, (library, library.num_threads))
            library.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                for library, threads in _before.values():
                    library.set_num_threads(threads)
                _before.clear()


def libraries() -> dict[str, str]:
    """Versions of the libraries that numbers depend on."""
    import scipy

    from tensorprog import __version__

    return {"tensorprog": __version__, "numpy": np.__version__, "scipy": scipy.__version__}


@dataclass(frozen=True)
class Packed:
    """A job on its way to another process, with the libraries it is meant for and the functions declared for it."""

    libraries: tuple[tuple[str, str], ...]
    job: bytes
    normals: float
    functions: tuple[tuple[str, bytes], ...] = ()


def pack(job: Job, normals: float) -> Packed:
    """Make a job ready to travel to a worker that will draw so many random numbers, roughly.

    Raises    WorkerError if a function of its own cannot be sent
    """
    functions = []
    for name in job.netsor.own:
        try:
            functions.append((name, pickle.dumps(declared_function(name).fn)))
        except Exception as error:  # of many kinds: the function may hold anything
            raise _not_sent(name, f"it cannot be pickled ({error})") from error
    return Packed(tuple(libraries().items()), pickle.dumps(job), normals, tuple(functions))


def _not_sent(name: str, reason: str) -> WorkerError:
    fix = "define it with def in a module that workers can import, or run without an executor"
    return WorkerError(Problem(f"the function {name} cannot be sent to workers: {reason}", fix=fix))


def ready(job: Job, normals: float) -> None:
    """Work out what all blocks need, once, before several workers share the job."""
    prepare(normals)
    _ = job.stages, job.heads, job.deviations


def opened(packed: Packed) -> Job:
    """The job that was packed; functions declared for it are declared here.

    Raises    WorkerError if other libraries are installed here, or a function cannot be declared
    """
    here = libraries()
    other = [
        f"{name} {here.get(name)} instead of {version}"
        for name, version in packed.libraries
        if here.get(name) != version
    ]
    if other:
        raise WorkerError(f"a worker has {', '.join(other)}: its numbers would not be those of one seed")
    for name, written in packed.functions:
        try:
            install(name, pickle.loads(written))  # written by `pack`
        except Exception as error:  # of many kinds: modules that are missing or other ones
            raise _not_sent(name, str(error)) from error
    job: Job = pickle.loads(packed.job)  # written by `pack`
    return job


@lru_cache(maxsize=4)
def _unpack(packed: Packed) -> Job:
    """The job, once in a process, so that what is worked out once for all blocks is."""
    job = opened(packed)
    ready(job, packed.normals)
    return job


def draw_packed(packed: Packed, blocks: Sequence[int]) -> list[dict[str, NDArray[Any]]]:
    """As `draw_blocks`, in a process that may be another one."""
    with one_blas_thread():
        return draw_blocks(_unpack(packed), blocks)


# ---- tasks handed to workers -----------------------------------------------------------------------------------------


def execute(
    job: Job, blocks: Iterable[int], flight: Flight, executor: Executor | None, normals: float
) -> Generator[tuple[list[int], Drawn]]:
    """Draw the blocks numbered; gives the numbers of each task with their results, in the order they are finished.

    `normals` are the random numbers that one worker will draw, roughly.  Closing the iterator cancels what is under
    way.

    Raises    WorkerError when workers are lost
    """
    numbers = iter(blocks)
    tasks = iter(lambda: list(islice(numbers, flight.size)), [])
    if inside(executor):
        ready(job, normals)
    if executor is not None:
        yield from finished(_submitter(job, executor, normals), tasks, flight.tasks)
    elif flight.workers > 1:
        with ThreadPoolExecutor(flight.workers) as pool:
            yield from finished(_submitter(job, pool, normals), tasks, flight.tasks)
    else:
        for task in tasks:
            yield task, draw_blocks(job, task)


def _submitter(job: Job, executor: Executor, normals: float) -> Callable[[list[int]], Future[Drawn]]:
    if inside(executor):
        return lambda task: executor.submit(draw_blocks, job, task)
    packed = pack(job, normals)
    share = getattr(executor, "share", None)  # executors of this package send it once
    sent = packed if share is None else share(packed)
    return lambda task: executor.submit(draw_packed, sent, task)


def finished(
    submit: Callable[[Task], Future[Result]], tasks: Iterator[Task], most: int
) -> Generator[tuple[Task, Result]]:
    """Keep up to `most` tasks under way; gives each with its result, in the order they are finished.

    Raises    WorkerError when workers are lost
    """
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    flying: dict[Future[Result], Task] = {}
    try:
        while True:
            for task in islice(tasks, most - len(flying)):
                with _worker_errors():
                    future = submit(task)
                flying[future] = task
                future.add_done_callback(ended.put)
            if not flying:
                return
            future = ended.get()
            task = flying.pop(future)
            with _worker_errors():
                drawn = future.result()
            del future  # the results are the caller's alone
            yield task, drawn
    except WorkerError as error:
        if isinstance(error.__cause__, BrokenExecutor):
            flying.clear()  # a broken pool ends its tasks itself, and stumbles over cancelled ones
        raise
    finally:
        for future in flying:
            future.cancel()


@contextmanager
def _worker_errors() -> Iterator[None]:
    """Turn the loss of workers into one message.

    Raises    WorkerError
    """
    try:
        yield
    except ImportError as error:
        raise WorkerError(
            Problem(f"a worker cannot load what it needs: {error}", fix="install the same tensorprog there")
        ) from error
    except Exception as error:
        cancelled = isinstance(error, CancelledError)
        if not (cancelled or isinstance(error, BrokenExecutor) or type(error).__module__.startswith("distributed")):
            raise
        what = "their tasks were cancelled" if cancelled else str(error).strip().split("\n")[0].rstrip(".")
        fix = (
            "give each worker more memory, or use fewer; a script that starts processes needs its calls under "
            'if __name__ == "__main__"; a run that stores its results goes on where it stopped'
        )
        raise WorkerError(Problem(f"workers were lost before their networks were drawn: {what}", fix=fix)) from error

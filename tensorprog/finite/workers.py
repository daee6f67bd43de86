"""Blocks handed to workers: how many may be under way in the memory allowed, how a job travels, and what workers do."""

from __future__ import annotations

import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.block import draw_blocks
from tensorprog.finite.job import Job
from tensorprog.finite.normals import prepare
from tensorprog.language.atoms.declared import declared_function, install
from tensorprog.language.errors import Problem, WorkerError

__all__ = [
    "OUTSIDE_WORKERS",
    "Batching",
    "Packed",
    "batching",
    "cores",
    "execute",
    "inside",
    "libraries",
    "one_blas_thread",
    "opened",
    "pack",
]

Drawn = list[dict[str, NDArray[Any]]]  # of each block of a task
TASK_SECONDS, OUTSIDE_SECONDS, MAX_TASK = 0.1, 1.0, 1024  # aimed at for one task, and its blocks at most
OUTSIDE_WORKERS = 64  # presumed of an executor that does not tell
_lock = threading.Lock()
_inside = 0  # how many are inside `one_blas_thread`
_limits: Any = None


@dataclass(frozen=True)
class Batching:
    """How many blocks are under way: tasks of `size` blocks, two for each of so many `workers`; and the bytes of this
    process that the run takes, results included."""

    workers: int
    size: int
    memory: int


def batching(
    job: Job, samples: int, limit: int, threads: int | None = None, executor: Executor | None = None,
    stored: bool = False,
) -> Batching:  # fmt: skip
    """Choose as many workers as the memory allows, and one if it allows none: then it takes more than `limit` bytes."""
    blocks = -(-samples // job.block)
    workers = (threads or cores()) if executor is None else int(getattr(executor, "_max_workers", OUTSIDE_WORKERS))
    workers = max(1, min(workers, blocks))
    seconds = TASK_SECONDS if inside(executor) else OUTSIDE_SECONDS
    size = max(1, min(MAX_TASK, int(seconds / job.seconds), blocks // (4 * workers)))
    results = 0 if stored else samples * job.drawn // job.block
    drawing = job.memory if inside(executor) else 0

    def memory(workers: int, size: int) -> int:
        waiting = 0 if executor is None and workers == 1 else 2 * workers * size * job.drawn
        return results + max(workers * drawing + waiting, job.memory)

    while size > 1 and memory(workers, size) > limit:
        size //= 2
    while workers > 1 and memory(workers, size) > limit:
        workers -= 1
    return Batching(workers, size, memory(workers, size))


def inside(executor: Executor | None) -> bool:
    """Whether the workers are threads of this process."""
    return executor is None or isinstance(executor, ThreadPoolExecutor)


def cores() -> int:
    """Cores that this process may use."""
    own = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(own(0)) if own else os.cpu_count() or 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread in this process, until the last of those who asked for it has left.

    Products are then never split, so they round the same wherever they are computed; and workers, which are threads or
    processes already, do not fight for the cores.
    """
    global _inside, _limits
    from threadpoolctl import threadpool_limits

    with _lock:
        _inside += 1
        if _inside == 1:
            _limits = threadpool_limits(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limits.restore_original_limits()


def libraries() -> dict[str, str]:
    """Versions of the libraries that numbers depend on."""
    import scipy

    from tensorprog.version import __version__

    return {"tensorprog": __version__, "numpy": np.__version__, "scipy": scipy.__version__}


@dataclass(frozen=True)
class Packed:
    """A job on its way to another process, with the libraries it is meant for and the functions declared for it."""

    libraries: tuple[tuple[str, str], ...]
    job: bytes
    normals: float
    functions: tuple[tuple[str, bytes], ...] = ()


def pack(job: Job, normals: float = 0.0) -> Packed:
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


@lru_cache(maxsize=4)
def opened(packed: Packed) -> Job:
    """The job that was packed; functions declared for it are declared here.

    Raises    WorkerError if other libraries are installed here, or a function cannot be declared
    """
    here = libraries()
    other = [f"{name} {here.get(name)} instead of {own}" for name, own in packed.libraries if here.get(name) != own]
    if other:
        raise WorkerError(f"a worker has {', '.join(other)}: its numbers would not be those of one seed")
    for name, written in packed.functions:
        try:
            install(name, pickle.loads(written))  # written by `pack`
        except Exception as error:  # of many kinds: modules that are missing or other ones
            raise _not_sent(name, str(error)) from error
    job: Job = pickle.loads(packed.job)  # written by `pack`
    prepare(packed.normals)
    return job


def draw_packed(packed: Packed, blocks: Sequence[int]) -> Drawn:
    """As `draw_blocks`, in a process that may be another one."""
    with one_blas_thread():
        return draw_blocks(opened(packed), blocks)


def execute(
    job: Job, blocks: Iterable[int], batching: Batching, executor: Executor | None, normals: float
) -> Generator[tuple[Sequence[int], Drawn]]:
    """Draw the blocks numbered; gives the numbers of each task with their results, in order.

    `normals` are the random numbers that one worker will draw, roughly.  Closing the iterator cancels what is under
    way.

    Raises    WorkerError when workers are lost
    """
    numbers = iter(blocks)
    tasks = iter(lambda: list(islice(numbers, batching.size)), [])
    outside = executor is not None and not inside(executor)
    if not outside:
        prepare(normals)
    if executor is None and batching.workers == 1:
        for task in tasks:
            yield task, draw_blocks(job, task)
        return
    draw: Callable[..., Drawn] = draw_packed if outside else draw_blocks
    what = pack(job, normals) if outside else job
    flying: deque[tuple[Sequence[int], Future[Drawn]]] = deque()
    with ThreadPoolExecutor(batching.workers) if executor is None else nullcontext(executor) as pool:
        try:
            with _worker_errors():
                while True:
                    ahead = islice(tasks, 2 * batching.workers - len(flying))
                    flying.extend((task, pool.submit(draw, what, task)) for task in ahead)
                    if not flying:
                        return
                    yield flying[0][0], flying.popleft()[1].result()  # and nothing here keeps the result
        except WorkerError as error:
            if isinstance(error.__cause__, BrokenExecutor):
                flying.clear()  # a broken pool ends its tasks itself, and stumbles over cancelled ones
            raise
        finally:
            for _, future in flying:
                future.cancel()


@contextmanager
def _worker_errors() -> Iterator[None]:
    """Turn the loss of workers into one message.

    Raises    WorkerError
    """
    try:
        yield
    except ImportError as error:
        fix = "install the same tensorprog there"
        raise WorkerError(Problem(f"a worker cannot load what it needs: {error}", fix=fix)) from error
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

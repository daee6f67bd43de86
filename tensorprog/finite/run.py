"""Running a program at finite width: blocks of networks, one random stream per block, in threads or an executor.

The block is the unit of everything: its size follows from the program and the width alone, and its numbers from the
seed and its number.  So results do not depend on threads, executors, memory or on how many blocks run at a time, and a
longer run begins with the numbers of a shorter one.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.block import draw_blocks
from tensorprog.finite.normals import COMPILED
from tensorprog.finite.plan import Job, make_job
from tensorprog.finite.store import Store
from tensorprog.language.atoms.declared import declared_function, install
from tensorprog.language.errors import Problem, ProgramError, WorkerError, check_count
from tensorprog.language.ir import Netsor
from tensorprog.language.memory import parse_memory, too_much
from tensorprog.language.samples import Samples
from tensorprog.version import libraries

__all__ = ["OUTSIDE_WORKERS", "Batching", "Resources", "batching", "draw", "one_blas_thread", "opened", "pack", "run"]

Array = NDArray[Any]
Progress = Callable[[int, int], None]
Drawn = list[dict[str, Array]]  # of each block of a task
TASK_SECONDS, OUTSIDE_SECONDS, MAX_TASK = 0.1, 1.0, 1024  # aimed at for one task, and its blocks at most
PATIENCE = 20.0  # seconds without any worker of a cluster
OUTSIDE_WORKERS = 64  # presumed of an executor that does not tell, or has none yet
_lock = threading.Lock()
_inside = 0  # how many are inside `one_blas_thread`
_limits: Any = None


@dataclass(frozen=True)
class Resources:
    """What a run may take: threads, memory of this process, the workers of an executor, a folder for its results.

    Raises    ProgramError for threads that are no count, or an executor that is none
    """

    threads: int | None = None
    max_memory: str | int = "1GiB"
    executor: Executor | None = None
    store: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            check_count("threads", self.threads)
        if self.executor is not None and not isinstance(self.executor, Executor):
            raise ProgramError(f"executor must be a concurrent.futures.Executor, not {type(self.executor).__name__}")

    @property
    def inside(self) -> bool:
        """Whether the workers are threads of this process."""
        return self.executor is None or isinstance(self.executor, ThreadPoolExecutor)


def run(
    netsor: Netsor, width: int, samples: int, resources: Resources = Resources(), progress: Progress | None = None,
    **settings: Any,
) -> Samples:  # fmt: skip
    """Draw independent networks of the given width, with the settings of `make_job`; see `draw`."""
    return draw(make_job(netsor, width, **settings), samples, resources, progress)


def draw(job: Job, samples: int, resources: Resources = Resources(), progress: Progress | None = None) -> Samples:
    """Draw the networks of a job.

    With a store, results go to disk as they are drawn and come back mapped to memory; a run that was stopped goes on
    where it was, and a longer one goes on from a shorter one.

    Shapes    see `Samples`; the coordinates reported are the first `coordinates` of the width (they are exchangeable)
    Scale     method "lazy" draws O(width) numbers per MatMul member, "dense" O(width**2) per weight; memory holds the
              results, unless they are stored, and the blocks under way
    Raises    ProgramError for bad arguments, a store of another run, or numbers that are not finite; MemoryLimitError
              when one block or the results exceed `max_memory`; WorkerError when an executor loses its workers
    """
    samples, started, plan = check_count("samples", samples), time.perf_counter(), job.plan
    with one_blas_thread():
        way = batching(job, samples, resources)
        if resources.store is not None:
            with Store(resources.store, job, samples) as folder:
                _fill(job, samples, resources, way, folder.networks, folder.unfinished(), folder.write, progress)
            arrays: Mapping[str, Array] = folder.arrays()
        else:
            arrays = {name: np.empty((samples, *shape), job.dtype) for name, shape in job.shapes.items()}

            def write(number: int, values: Mapping[str, Array]) -> None:
                start = number * job.block
                for name, value in values.items():
                    arrays[name][start : start + job.block] = value[: samples - start]

            _fill(job, samples, resources, way, 0, range(-(-samples // job.block)), write, progress)
    seconds = time.perf_counter() - started
    return Samples(job.netsor, arrays, samples, job.seed, plan.method, plan.width, plan.coordinates, seconds)


def _fill(
    job: Job, samples: int, resources: Resources, way: Batching, done: int, blocks: Iterable[int],
    write: Callable[[int, Mapping[str, Array]], None], progress: Progress | None,
) -> None:  # fmt: skip
    """Draw the blocks that are missing, where so many networks are done.

    Raises    ProgramError if a number of a block is not finite
    """
    normals = (samples - done) * (job.plan.normals + job.plan.chi_squares) / way.workers
    if progress is not None and done:
        progress(done, samples)
    with closing(_execute(job, blocks, way, resources, normals)) as drawn:
        for numbers, results in drawn:
            for number, values in zip(numbers, results, strict=True):
                for name, value in values.items():
                    if not np.isfinite(value).all():
                        draw_blocks(job, [number], watched=True)
                        what = "not finite numbers: the program overflows or leaves the domain of a function"
                        raise ProgramError(
                            f"at width {job.plan.width}, {name} took values that are {what} (log, sqrt, division)"
                        )
                write(number, values)
                done += min(job.block, samples - number * job.block)
            del results, values  # before more are drawn
            if progress is not None:
                progress(done, samples)


# ---- how many blocks are under way -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batching:
    """How many blocks are under way: tasks of `size` blocks, two for each of so many `workers`; and the bytes of this
    process that the run takes, results included."""

    workers: int
    size: int
    memory: int


def batching(job: Job, samples: int, resources: Resources = Resources()) -> Batching:
    """As many workers as the memory allows.

    Raises    MemoryLimitError if it allows not even one
    """
    limit, executor = parse_memory(resources.max_memory), resources.executor
    blocks = -(-samples // job.block)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = max(1, min(resources.threads or cores if executor is None else _workers(executor), blocks))
    seconds = TASK_SECONDS if resources.inside else OUTSIDE_SECONDS
    size = max(1, min(MAX_TASK, int(seconds / job.seconds), blocks // (4 * workers)))
    results = 0 if resources.store is not None else samples * job.drawn // job.block
    drawing = job.memory if resources.inside else 0

    def memory() -> int:
        waiting = 0 if executor is None and workers == 1 else 2 * workers * size * job.drawn
        return results + max(workers * drawing + waiting, job.memory)

    while memory() > limit and (size > 1 or workers > 1):
        size, workers = (size // 2, workers) if size > 1 else (1, workers - 1)
    if memory() <= limit:
        return Batching(workers, size, memory())
    networks, ways = min(samples, job.block), list[str]()
    what = f"drawing {networks} network{'s' if networks > 1 else ''} at a time" + (
        " with the results" if results else ""
    )
    if 2 * results > memory():
        what = "the results and drawing them"
        ways = ["write them to disk with store= (--stream)", "ask for fewer samples"]
    if job.plan.method == "dense":
        ways.append("draw without weight matrices by method='lazy' (--method lazy)")
    raise too_much(what, memory(), limit, ways)


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


# ---- workers ---------------------------------------------------------------------------------------------------------


def _workers(executor: Executor) -> int:
    """How many workers an executor has now, or is presumed to have."""
    client = getattr(executor, "_client", None)  # of dask
    told = getattr(executor, "_max_workers", 0) if client is None else sum(client.nthreads().values())
    return int(told) or OUTSIDE_WORKERS


def pack(job: Job, normals: float = 0.0) -> bytes:
    """A job on its way to a worker that will draw so many random numbers, roughly.

    With it go the versions of the libraries that it is meant for, and the functions declared for it.

    Raises    WorkerError if a function of its own cannot be sent
    """
    functions = []
    for name in job.netsor.own:
        try:
            functions.append((name, pickle.dumps(declared_function(name).fn)))
        except Exception as error:  # of many kinds: the function may hold anything
            raise _not_sent(name, f"it cannot be pickled ({error})") from error
    return pickle.dumps((libraries(), functions, normals, pickle.dumps(job)))


def _not_sent(name: str, reason: str) -> WorkerError:
    fix = "define it with def in a module that workers can import, or run without an executor"
    return WorkerError(Problem(f"the function {name} cannot be sent to workers: {reason}", fix=fix))


@lru_cache(maxsize=4)
def opened(packed: bytes) -> Job:
    """The job that `pack` wrote; functions declared for it are declared here.

    Raises    WorkerError if other libraries are installed here, or a function cannot be declared
    """
    versions, functions, normals, written = pickle.loads(packed)
    here = libraries()
    other = [f"{name} {here.get(name)} instead of {own}" for name, own in versions.items() if here.get(name) != own]
    if other:
        raise WorkerError(f"a worker has {', '.join(other)}: its numbers would not be those of one seed")
    for name, function in functions:
        try:
            install(name, pickle.loads(function))
        except Exception as error:  # of many kinds: modules that are missing or other ones
            raise _not_sent(name, str(error)) from error
    job: Job = pickle.loads(written)
    COMPILED.prepare(normals)
    return job


def draw_packed(packed: bytes, blocks: Sequence[int]) -> Drawn:
    """As `draw_blocks`, in a process that may be another one."""
    with one_blas_thread():
        return draw_blocks(opened(packed), blocks)


def _result(future: Future[Drawn], client: Any, known: list[str]) -> Drawn:
    """The result of a task, where the workers known of a dask client were there before.

    Raises    WorkerError where the workers have been gone for a while
    """
    gone = 0
    while True:
        try:
            return future.result(None if client is None else PATIENCE / 4)
        except TimeoutError:
            if future.done():  # it is the task's own
                raise
            workers = [*client.nthreads()]
            gone = 0 if workers else gone + 1
            known[:] = workers or known
            if gone > 3:
                who = f"the workers {', '.join(known)} are gone" if known else "there is no worker"
                fix = "start workers, and give the command again"
                raise WorkerError(Problem(f"{who}, and none came for {PATIENCE:g} seconds", fix=fix)) from None


def _execute(
    job: Job, blocks: Iterable[int], way: Batching, resources: Resources, normals: float
) -> Generator[tuple[Sequence[int], Drawn]]:
    """Draw the blocks numbered; gives the numbers of each task with their results, in order.

    `normals` are the random numbers that one worker will draw, roughly.  Closing the iterator cancels what is under
    way.

    Raises    WorkerError when workers are lost
    """
    numbers, executor = iter(blocks), resources.executor
    tasks = iter(lambda: list(islice(numbers, way.size)), [])
    if resources.inside:
        COMPILED.prepare(normals)
    if executor is None and way.workers == 1:
        for task in tasks:
            yield task, draw_blocks(job, task)
        return
    draw: Callable[..., Drawn] = draw_blocks if resources.inside else draw_packed
    what = job if resources.inside else pack(job, normals)
    client = getattr(executor, "_client", None)  # of dask, which waits for workers without end
    known = list[str]()
    if client is not None:
        found = client.run(find_spec, "tensorprog")
        known += found
        if without := [worker for worker in known if found[worker] is None]:
            fix = "install the same tensorprog there"
            raise WorkerError(Problem(f"workers have no tensorprog: {', '.join(without)}", fix=fix))
    flying: deque[tuple[Sequence[int], Future[Drawn]]] = deque()
    with ThreadPoolExecutor(way.workers) if executor is None else nullcontext(executor) as pool:
        try:
            while True:
                ahead = islice(tasks, 2 * way.workers - len(flying))
                flying.extend((task, pool.submit(draw, what, task)) for task in ahead)
                if not flying:
                    return
                yield flying[0][0], _result(flying.popleft()[1], client, known)  # and nothing here keeps the result
        except ImportError as error:
            fix = "install the same tensorprog there"
            raise WorkerError(Problem(f"a worker cannot load what it needs: {error}", fix=fix)) from error
        except Exception as error:
            cancelled, broken = isinstance(error, CancelledError), isinstance(error, BrokenExecutor)
            if not (cancelled or broken or type(error).__module__.startswith("distributed")):
                raise
            if broken:
                flying.clear()  # a broken pool ends its tasks itself, and stumbles over cancelled ones
            why = "their tasks were cancelled" if cancelled else str(error).strip().split("\n")[0].rstrip(".")
            fix = (
                "give each worker more memory, or use fewer; a script that starts processes needs its calls under "
                'if __name__ == "__main__"; a run that stores its results goes on where it stopped'
            )
            lost = Problem(f"workers were lost before their networks were drawn: {why}", fix=fix)
            raise WorkerError(lost) from error
        finally:
            for _, future in flying:
                future.cancel()

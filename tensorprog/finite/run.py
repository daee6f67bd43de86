"""Running a program at finite width: blocks of networks, one random stream per block.

The block is the unit of everything: its size follows from the program and the width alone, and its numbers from the
seed and its number.  So results do not depend on threads, executors, memory or on how many blocks run at a time, and a
longer run begins with the numbers of a shorter one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.block import watch
from tensorprog.finite.job import Job, make_job
from tensorprog.finite.store import Store
from tensorprog.finite.workers import Batching, batching, execute, one_blas_thread
from tensorprog.language.errors import ProgramError, check_count
from tensorprog.language.ir import Netsor
from tensorprog.language.memory import parse_memory, too_much
from tensorprog.language.samples import Samples

__all__ = ["check_memory", "draw", "run"]

Array = NDArray[Any]
Progress = Callable[[int, int], None]


def run(
    netsor: Netsor,
    width: int,
    samples: int,
    *,
    seed: int = 0,
    method: str = "auto",
    coordinates: int = 1,
    keep: Sequence[str] = (),
    dtype: str = "float64",
    threads: int | None = None,
    max_memory: str | int = "1GiB",
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Samples:
    """Draw independent networks of the given width.

    With `store`, a folder, results go to disk as they are drawn and come back mapped to memory; a run that was stopped
    goes on where it was, and a longer one goes on from a shorter one.

    Shapes    see `Samples`; the coordinates reported are the first `coordinates` of the width (they are exchangeable)
    Scale     method "lazy" draws O(width) numbers per MatMul member, "dense" O(width**2) per weight; memory holds the
              results, unless they are stored, and the blocks under way
    Raises    ProgramError for bad arguments, a store of another run, or numbers that are not finite; MemoryLimitError
              when one block or the results exceed `max_memory`; WorkerError when an executor loses its workers
    """
    job = make_job(netsor, width, seed, method, coordinates, keep, dtype)
    return draw(job, samples, threads, max_memory, executor, store, progress)


def draw(
    job: Job,
    samples: int,
    threads: int | None = None,
    max_memory: str | int = "1GiB",
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Samples:
    """Draw the networks of a job; see `run`.

    Raises    as `run`
    """
    samples = check_count("samples", samples)
    threads = None if threads is None else check_count("threads", threads)
    if executor is not None and not isinstance(executor, Executor):
        raise ProgramError(f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}")
    started, plan = time.perf_counter(), job.plan
    with one_blas_thread():
        way = check_memory(job, samples, threads, max_memory, executor, store is not None)
        if store is not None:
            with Store(store, job, samples) as folder:
                _fill(job, samples, way, executor, folder.networks, folder.unfinished(), folder.write, progress)
            arrays: Mapping[str, Array] = folder.arrays()
        else:
            arrays = {name: np.empty((samples, *shape), job.dtype) for name, shape in job.shapes.items()}

            def write(number: int, values: Mapping[str, Array]) -> None:
                start = number * job.block
                for name, value in values.items():
                    arrays[name][start : start + job.block] = value[: samples - start]

            _fill(job, samples, way, executor, 0, range(-(-samples // job.block)), write, progress)
    seconds = time.perf_counter() - started
    return Samples(job.netsor, arrays, samples, job.seed, plan.method, plan.width, plan.coordinates, seconds)


def _fill(
    job: Job,
    samples: int,
    way: Batching,
    executor: Executor | None,
    done: int,
    blocks: Iterable[int],
    write: Callable[[int, Mapping[str, Array]], None],
    progress: Progress | None,
) -> None:
    """Draw the blocks that are missing, where so many networks are done."""
    normals = (samples - done) * (job.plan.normals + job.plan.chi_squares) / way.workers
    if progress is not None and done:
        progress(done, samples)
    with closing(execute(job, blocks, way, executor, normals)) as drawn:
        for numbers, results in drawn:
            for number, values in zip(numbers, results, strict=True):
                _check(values, job, number)
                write(number, values)
                done += min(job.block, samples - number * job.block)
            del results, values  # before more are drawn
            if progress is not None:
                progress(done, samples)


def check_memory(
    job: Job,
    samples: int,
    threads: int | None = None,
    max_memory: str | int = "1GiB",
    executor: Executor | None = None,
    stored: bool = False,
) -> Batching:
    """How many blocks may be under way beside the results.

    Raises    MemoryLimitError if not even one
    """
    limit = parse_memory(max_memory)
    way = batching(job, samples, limit, threads, executor, stored)
    if way.memory <= limit:
        return way
    networks = min(samples, job.block)
    what, ways = f"drawing {networks} network{'s' if networks > 1 else ''} at a time", list[str]()
    results = 0 if stored else samples * job.drawn // job.block
    if 2 * results > way.memory:
        what, ways = (
            "the results and drawing them",
            ["write them to disk with store= (--stream)", "ask for fewer samples"],
        )
    elif results:
        what += " with the results"
    if job.plan.method == "dense":
        ways.append("draw without weight matrices by method='lazy' (--method lazy)")
    raise too_much(what, way.memory, limit, ways)


def _check(values: Mapping[str, Array], job: Job, number: int) -> None:
    """Raise ProgramError if a number of a block is not finite."""
    for name, value in values.items():
        if not np.isfinite(value).all():
            watch(job, number)
            what = f"{name} took values that are not finite numbers: the program overflows or leaves the domain of a"
            raise ProgramError(f"at width {job.plan.width}, {what} function (log, sqrt, division)")

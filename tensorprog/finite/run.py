"""Running a program at finite width: blocks of networks, one random stream per block.

The block is the unit of everything: its size follows from the program and the width alone, and its numbers from the
seed and its number.  So results do not depend on threads, executors, memory or on how many blocks run at a time, and a
longer run begins with the numbers of a shorter one.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.block import culprit
from tensorprog.finite.cluster import adopted
from tensorprog.finite.job import Job, make_job
from tensorprog.finite.store import Store
from tensorprog.finite.workers import Flight, execute, flight, one_blas_thread
from tensorprog.language.errors import ProgramError, check_count
from tensorprog.language.ir import Netsor
from tensorprog.language.memory import parse_memory, too_much
from tensorprog.language.samples import Samples

__all__ = ["Interrupted", "check_memory", "check_store", "estimate", "run"]

Array = NDArray[Any]


def estimate(
    netsor: Netsor,
    width: int,
    samples: int,
    method: str = "auto",
    coordinates: int = 1,
    keep: Sequence[str] = (),
    threads: int | None = None,
    max_memory: str | int = "1GiB",
    executor: Executor | None = None,
    stored: bool = False,
    exact: bool = False,
    dtype: str = "float64",
) -> tuple[float, int]:
    """Rough seconds of a run, and the bytes that it takes at most, before it starts.

    Scale     seconds from the numbers drawn and multiplied per network, at the speed of one current core; bytes from
              the arrays that are alive at once
    """
    job = make_job(netsor, width, 0, method, coordinates, keep, dtype, exact)
    way = flight(job, samples, parse_memory(max_memory), threads, executor, stored)
    return -(-samples // job.block) * job.seconds / way.workers, way.memory


def run(
    netsor: Netsor,
    width: int,
    samples: int,
    *,
    seed: int = 0,
    method: str = "auto",
    coordinates: int = 1,
    keep: Sequence[str] = (),
    threads: int | None = None,
    max_memory: str | int = "1GiB",
    dtype: str = "float64",
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    exact: bool = False,
) -> Samples:
    """Draw independent networks of the given width, unless `exact` without functions that never act.

    With `store`, a folder, results go to disk as they are drawn and come back mapped to memory; a run that was stopped
    goes on where it was, and a longer one goes on from a shorter one.

    Shapes    see `Samples`; the coordinates reported are the first `coordinates` of the width (they are exchangeable)
    Scale     method "lazy" draws O(width) numbers per MatMul member, "dense" O(width**2) per weight; memory holds the
              results, unless they are stored, and the blocks under way
    Raises    ProgramError for bad arguments, a store of another run, or numbers that are not finite; MemoryLimitError
              when one block or the results exceed `max_memory`; WorkerError when an executor loses its workers
    """
    samples = check_count("samples", samples)
    threads = None if threads is None else check_count("threads", threads)
    if executor is not None and not isinstance(executor, Executor):
        raise ProgramError(f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}")
    executor = adopted(executor)
    started = time.perf_counter()
    with one_blas_thread():
        job = make_job(netsor, width, seed, method, coordinates, keep, dtype, exact)
        way = _flight(job, samples, max_memory, threads, executor, store is not None)
        if store is None:
            arrays = {name: np.empty((samples, *shape), job.dtype) for name, shape in job.shapes.items()}

            def write(number: int, values: Mapping[str, Array]) -> None:
                start = number * job.block
                for name, value in values.items():
                    arrays[name][start : start + job.block] = value[: samples - start]
                finished.add(number)

            finished: set[int] = set()
            try:
                _fill(job, samples, way, executor, 0, range(-(-samples // job.block)), write, progress)
            except KeyboardInterrupt as stop:
                whole = next(k for k in count() if k not in finished)  # blocks may come in any order
                first = {name: array[: whole * job.block] for name, array in arrays.items()}
                raise Interrupted(
                    Samples(
                        netsor,
                        first,
                        min(whole * job.block, samples),
                        seed,
                        job.plan.method,
                        width,
                        coordinates,
                        time.perf_counter() - started,
                    )
                    if finished and whole
                    else None
                ) from stop
        else:
            with Store(store, job, samples) as folder:
                _fill(job, samples, way, executor, folder.done, folder.unfinished(), folder.write, progress)
            arrays = folder.arrays()
    inactive = job.plan.inactive
    return Samples(
        netsor, arrays, samples, seed, job.plan.method, width, coordinates, time.perf_counter() - started,
        log10_variation=-math.inf if inactive is None else inactive.of_run(samples),
    )  # fmt: skip


class Interrupted(KeyboardInterrupt):
    """A run was interrupted; `drawn` are the networks that were finished, if there are any."""

    def __init__(self, drawn: Samples | None) -> None:
        super().__init__()
        self.drawn = drawn


def _fill(
    job: Job,
    samples: int,
    way: Flight,
    executor: Executor | None,
    done: int,
    blocks: Iterable[int],
    write: Callable[[int, Mapping[str, Array]], None],
    progress: Callable[[int, int], None] | None,
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
    netsor: Netsor,
    width: int,
    samples: int,
    *,
    method: str = "auto",
    coordinates: int = 1,
    keep: Sequence[str] = (),
    threads: int | None = None,
    max_memory: str | int = "1GiB",
    dtype: str = "float64",
    executor: Executor | None = None,
    stored: bool = False,
    exact: bool = False,
) -> None:
    """Raise MemoryLimitError if a run would not fit in the memory allowed, before anything is drawn."""
    job = make_job(netsor, width, 0, method, coordinates, keep, dtype, exact)
    _flight(job, samples, max_memory, threads, executor, stored)


def check_store(
    netsor: Netsor,
    width: int,
    samples: int,
    store: str | os.PathLike[str],
    seed: int = 0,
    method: str = "auto",
    coordinates: int = 1,
    keep: Sequence[str] = (),
    dtype: str = "float64",
    exact: bool = False,
) -> None:
    """Raise ProgramError if a folder holds anything but this run, or the beginning of it."""
    Store(store, make_job(netsor, width, seed, method, coordinates, keep, dtype, exact), samples).known()


def _flight(
    job: Job, samples: int, max_memory: str | int, threads: int | None, executor: Executor | None, stored: bool
) -> Flight:
    """How many blocks may be under way beside the results.

    Raises    MemoryLimitError if not even one
    """
    limit = parse_memory(max_memory)
    way = flight(job, samples, limit, threads, executor, stored)
    if way.memory <= limit:
        return way
    networks = min(samples, job.block)
    what, ways = f"drawing {networks} network{'s' if networks > 1 else ''} at a time", list[str]()
    results = 0 if stored else samples * job.drawn // job.block
    if 2 * results > way.memory:
        what, ways = "the results and drawing them", ["write them to disk with store=", "ask for fewer samples"]
    elif results:
        what += " with the results"
    if job.plan.method == "dense" and not job.plan.matrices:
        ways.append("draw without weight matrices by method='lazy'")
    raise too_much(what, way.memory, limit, ways)


def _check(values: Mapping[str, Array], job: Job, number: int) -> None:
    """Raise ProgramError if a number of a block is not finite."""
    for name, value in values.items():
        if not np.isfinite(value).all():
            wrong = culprit(job, number) or (
                f"{name} took values that are not finite numbers: the program overflows or leaves the domain of a "
                "function (log, sqrt, division)"
            )
            raise ProgramError(f"at width {job.plan.width}, {wrong}")

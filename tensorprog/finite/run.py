"""Running a program at finite width: blocks of networks, one random stream per block.

The block is the unit of everything: its size follows from the program and the width alone, and its numbers from the
seed and its number.  So results do not depend on threads, on memory or on how many blocks run at a time, and a longer
run begins with the numbers of a shorter one.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.errors import MemoryLimitError, ProgramError
from tensorprog.finite.block import draw_blocks
from tensorprog.finite.job import METHODS, Job, make_job
from tensorprog.ir import Netsor
from tensorprog.samples import Samples

__all__ = ["METHODS", "estimate", "parse_memory", "run"]

Array = NDArray[Any]
MAX_TASK = 16  # blocks handed to a worker at once, at most


def parse_memory(text: str | int) -> int:
    """Bytes meant by '1GiB', '500 MB' or a number of bytes."""
    if isinstance(text, int | float):
        return int(text)
    units = {
        "": 1,
        "b": 1,
        "kb": 10**3,
        "mb": 10**6,
        "gb": 10**9,
        "tb": 10**12,
        "kib": 2**10,
        "mib": 2**20,
        "gib": 2**30,
        "tib": 2**40,
    }
    digits = text.strip().rstrip("BbiIkKmMgGtT ")
    unit = text.strip()[len(digits) :].strip().lower()
    try:
        return int(float(digits) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise ProgramError(f"{text!r} is not an amount of memory; write for example 1GiB or 500MB") from None


def estimate(
    netsor: Netsor,
    width: int,
    samples: int,
    method: str = "auto",
    coordinates: int = 1,
    keep: Sequence[str] = (),
    threads: int | None = None,
) -> tuple[float, int]:
    """Rough seconds and peak bytes of a run, before it starts.

    Scale     from the numbers drawn and multiplied per network, at the speed of one current core
    """
    job = make_job(netsor, width, 0, method, coordinates, keep, "float64")
    workers = min(threads or _cores(), -(-samples // job.block))
    seconds = samples * (job.plan.work * 1.2e-9 + 2e-3 / job.block)
    memory = 2 * job.plan.floats * 8 * job.block * workers + _result_bytes(job, samples)
    return seconds / workers, memory


def _cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return max(1, os.cpu_count() or 1)


def _result_shape(job: Job, name: str, samples: int) -> tuple[int, ...]:
    family = job.netsor.families[name]
    coordinates = (job.coordinates,) if family.kind == "vector" and job.coordinates > 1 else ()
    return (samples, *coordinates, *family.shape)


def _result_bytes(job: Job, samples: int) -> int:
    return sum(math.prod(_result_shape(job, name, samples)) for name in job.kept) * np.dtype(job.dtype).itemsize


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
    progress: Callable[[int, int], None] | None = None,
) -> Samples:
    """Draw independent networks of the given width.

    Shapes    see `Samples`; the coordinates reported are the first `coordinates` of the width (they are exchangeable)
    Scale     method "lazy" draws O(width) numbers per MatMul member, "dense" O(width**2) per weight
    Raises    ProgramError for bad arguments, MemoryLimitError when one block or the results exceed `max_memory`
    """
    if isinstance(samples, bool) or not hasattr(samples, "__index__") or samples < 1:
        raise ProgramError(f"samples must be a whole number of at least 1, not {samples!r}")
    if threads is not None and threads < 1:
        raise ProgramError(f"threads must be at least 1, not {threads!r}")
    started = time.perf_counter()
    job = make_job(netsor, width, seed, method, coordinates, keep, dtype)
    budget = parse_memory(max_memory)
    results = _result_bytes(job, samples)
    block_bytes = 2 * job.plan.floats * job.block * np.dtype(dtype).itemsize
    if results + block_bytes > budget:
        what = "the results" if results > block_bytes else f"one block of {job.block} networks"
        better = "; method='lazy' needs no weight matrices" if job.method == "dense" else ""
        raise MemoryLimitError(
            f"{what} would take {max(results, block_bytes) / 2**30:.3g} GiB, more than max_memory="
            f"{max_memory}: ask for fewer samples or raise max_memory{better}"
        )
    blocks = -(-samples // job.block)
    workers = max(1, min(threads or _cores(), blocks, (budget - results) // max(1, block_bytes)))
    _ = job.stages, job.heads, job.deviations  # once for all blocks, before workers share the job
    arrays = {name: np.empty(_result_shape(job, name, samples), dtype=dtype) for name in job.kept}
    done = 0
    size = max(1, min(MAX_TASK, blocks // (4 * workers)))
    tasks = (range(start, min(start + size, blocks)) for start in range(0, blocks, size))
    with _one_blas_thread() if workers > 1 else nullcontext():
        for task, drawn in _execute(job, tasks, workers, executor):
            for number, values in zip(task, drawn, strict=True):
                start = number * job.block
                stop = min(start + job.block, samples)
                for name, value in values.items():
                    arrays[name][start:stop] = value[: stop - start]
                done += stop - start
            if progress is not None:
                progress(done, samples)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ProgramError(
                f"{name} took values that are not finite numbers at width {width}: the program overflows "
                "or leaves the domain of a function (log, sqrt, division)"
            )
    return Samples(netsor, arrays, samples, seed, job.method, width, coordinates, time.perf_counter() - started)


def _one_blas_thread() -> AbstractContextManager[Any]:
    # workers are threads already; BLAS threads under them only fight for the cores
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)  # type: ignore[no-any-return]


def _execute(
    job: Job, tasks: Iterator[range], workers: int, executor: Executor | None
) -> Iterator[tuple[range, list[dict[str, Array]]]]:
    """Run tasks with a bounded number in flight, in order."""
    if workers == 1 and executor is None:
        for task in tasks:
            yield task, draw_blocks(job, task)
        return
    own = ThreadPoolExecutor(workers) if executor is None else None
    pool: Executor = own if own is not None else executor  # type: ignore[assignment]
    flying: list[tuple[range, Future[list[dict[str, Array]]]]] = []
    try:
        for task in tasks:
            flying.append((task, pool.submit(draw_blocks, job, task)))
            if len(flying) > 2 * workers:
                first, future = flying.pop(0)
                yield first, future.result()
        while flying:
            first, future = flying.pop(0)
            yield first, future.result()
    finally:
        for _, future in flying:
            future.cancel()
        if own is not None:
            own.shutdown()

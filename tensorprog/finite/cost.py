"""What a run takes: bytes and seconds of a block, and how many blocks may be under way within the memory allowed."""

from __future__ import annotations

import math
import os
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tensorprog.finite.job import Job
from tensorprog.language.errors import ProgramError

__all__ = ["Cost", "Flight", "cores", "cost", "flight", "inside", "parse_memory", "row_shapes"]

MAX_TASK = 64  # blocks handed to a worker at once, at most
TASK_SECONDS = 0.1  # aimed at for one task: long beside the work of handing it over, short beside one's patience
OUTSIDE_WORKERS = 64  # presumed of an executor that does not tell
OUTSIDE_TASKS = 256  # kept under way for workers elsewhere, whose number may grow


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


def row_shapes(job: Job) -> dict[str, tuple[int, ...]]:
    """Shape of what one network reports, by name."""
    shapes = {}
    for name in job.kept:
        family = job.netsor.families[name]
        coordinates = (job.coordinates,) if family.kind == "vector" and job.coordinates > 1 else ()
        shapes[name] = (*coordinates, *family.shape)
    return shapes


@dataclass(frozen=True)
class Cost:
    """What one block takes."""

    working: int  # bytes while it is drawn
    drawn: int  # bytes of its results
    seconds: float  # roughly, on one current core


def cost(job: Job) -> Cost:
    """The cost of one block."""
    numbers = sum(math.prod(shape) for shape in row_shapes(job).values())
    return Cost(
        working=job.memory,
        drawn=numbers * np.dtype(job.dtype).itemsize * job.block,
        seconds=job.plan.work * 1.2e-9 * job.block + 2e-3,
    )


@dataclass(frozen=True)
class Flight:
    """How many blocks are under way: `tasks` of `size` blocks each, computed or waiting, by so many `workers`."""

    workers: int
    size: int
    tasks: int  # 0 if not even one block fits


def flight(job: Job, blocks: int, room: int, threads: int | None = None, executor: Executor | None = None) -> Flight:
    """Choose sizes for which the blocks under way take no more than `room` bytes of this process.

    Workers in other processes take memory there; of their tasks the results count here, packed and unpacked.  One task
    more than those under way has its results in use.
    """
    block = cost(job)
    if executor is None:
        workers = threads or cores()
    else:
        workers = int(getattr(executor, "_max_workers", OUTSIDE_WORKERS))
    workers = max(1, min(workers, blocks))
    here = inside(executor)
    working, drawn = (block.working, block.drawn) if here else (0, 2 * block.drawn)
    most = 2 * workers if here else max(2 * workers, OUTSIDE_TASKS)
    size = min(MAX_TASK, int(TASK_SECONDS / block.seconds), blocks // (4 * workers))
    size = max(1, min(size, (room // (most + 1) - working) // drawn))
    tasks = max(0, min(most, (room - size * drawn) // (working + size * drawn)))
    return Flight(min(workers, tasks) if here else workers, size, tasks)


def inside(executor: Executor | None) -> bool:
    """Whether the workers are threads of this process."""
    return executor is None or isinstance(executor, ThreadPoolExecutor)


def cores() -> int:
    """Cores that this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return max(1, os.cpu_count() or 1)

"""Who draws the cells: this process, processes beside it, or any executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

from tensorprog.finite.cluster import adopted
from tensorprog.finite.workers import OUTSIDE_WORKERS, cores, finished, inside, pack
from tensorprog.jobs.sweeps.cells import Drawn, draw, job_of, named
from tensorprog.jobs.sweeps.design import Cell, Design

__all__ = ["drawn", "pool"]


@contextmanager
def pool(workers: int | None) -> Iterator[Executor | None]:
    """So many processes; None for one, as this process is one.

    Interrupted, they are ended at once; and they do not outlive this process, however it ends.
    """
    if workers is None or workers == 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, initializer=_follow)
    try:
        yield executor
    except BaseException:
        for process in list(getattr(executor, "_processes", {}).values()):
            process.terminate()
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


def _follow() -> None:
    """Leave Ctrl-C to the process that started this one, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def drawn(
    design: Design, cells: Sequence[Cell], executor: Executor | None, progress: Callable[[Cell, float], None]
) -> Generator[tuple[Cell, Drawn]]:
    """Draw cells; gives each with its draws, in the order they are finished.

    `progress` hears which share of a cell is done, where that is known.

    Raises    WorkerError when workers are lost
    """
    if executor is None:
        for cell in cells:
            def tell(done: int, total: int, cell: Cell = cell) -> None:
                progress(cell, done / total)

            with named(cell.name):
                found = draw(job_of(design, cell), *_arguments(design, cell), progress=tell)
            yield cell, found
        return
    chosen = adopted(executor)
    assert chosen is not None
    workers = int(getattr(chosen, "_max_workers", OUTSIDE_WORKERS))
    here = inside(chosen) or isinstance(chosen, ProcessPoolExecutor)
    threads = max(1, cores() // workers) if here else 1

    def submit(cell: Cell) -> Future[Drawn]:
        with named(cell.name):
            job = job_of(design, cell)
        sent = job if inside(chosen) else pack(job, 0.0)
        return chosen.submit(_draw, cell.name, sent, *_arguments(design, cell), threads)

    yield from finished(submit, iter(cells), 2 * workers)


def _draw(name: str, *arguments: Any) -> Drawn:
    """Draw a cell where a worker is, whose errors are then named there."""
    with named(name):
        return draw(*arguments)


def _arguments(design: Design, cell: Cell) -> tuple[int, tuple[str, ...], bool]:
    return design.samples, design.variables, cell.setting.conditional is not None

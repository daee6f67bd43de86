"""Cells: their random streams, who draws them, their comparison with the limit, and the files that remember them.

A sweep on disk is one small file for each finished cell, then the whole as netCDF and CSV:

    cells/<digest>.json    a cell's numbers, beside everything that they depend on; the digest is that of the latter
    lock                   held by the process that writes

Files appear whole or not at all.  A cell is found again by what its numbers depend on, in whichever sweep it occurs:
one that was stopped goes on, and one with more widths, repeats or values computes what is new.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.job import Job, make_job
from tensorprog.finite.store import settings
from tensorprog.finite.workers import OUTSIDE_WORKERS, Packed, cores, finished, inside, opened, pack
from tensorprog.jobs.sweeps.design import NUMBERS, Cell, Design, Setting
from tensorprog.language.errors import MemoryLimitError, NotCompiledError, OutsideError, ProgramError, TensorprogError
from tensorprog.language.files import Lock, write_text, writing
from tensorprog.language.formats import split
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import Samples
from tensorprog.program import Program
from tensorprog.results.comparison import compare
from tensorprog.results.reference import Reference

__all__ = [
    "Drawn",
    "Finished",
    "Numbers",
    "draw",
    "drawn",
    "identity",
    "job_of",
    "limit_of",
    "locked",
    "named",
    "numbers",
    "pool",
    "read_cell",
    "stream",
    "write_cell",
]

Array = NDArray[Any]
Drawn = dict[str, Array]  # variable -> its draws, and mean and variance of its conditional laws if it has them
Numbers = dict[str, dict[str, float | None]]  # variable -> field -> number; None where there is none


def stream(seed: int, cell: Cell) -> int:
    """The seed of a cell: of the sweep's seed, the program's constants, the width and the repeat, and of nothing else.

    Derived by SeedSequence, so that streams of different cells are independent.
    """
    scalars = cell.setting.netsor.scalars
    text = json.dumps({name: float(scalars[name] or 0) for name in sorted(scalars)})
    words = np.frombuffer(hashlib.sha256(text.encode()).digest(), "<u4").tolist()
    sequence = np.random.SeedSequence(seed, spawn_key=(*words, cell.width, cell.repeat))
    return int(sequence.generate_state(1, np.uint64)[0])


@contextmanager
def named(cell: str) -> Iterator[None]:
    """Say of every error inside the block in which cell it happened; its type stays what it is."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the cell {cell} of the sweep")
        raise


def job_of(design: Design, cell: Cell) -> Job:
    """The program, the width and the seed of a cell, planned."""
    setting = cell.setting
    keep = _kept(setting.netsor, design.variables)
    return make_job(setting.netsor, cell.width, stream(design.seed, cell), "auto", 1, keep, "float64")


def _kept(netsor: Netsor, variables: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(split(netsor, variable)[0] for variable in variables))


def identity(design: Design, cell: Cell) -> dict[str, Any]:
    """Everything that a cell's numbers depend on, as plain values."""
    return settings(job_of(design, cell)) | {
        "samples": design.samples,
        "variables": list(design.variables),
        "numbers": list(NUMBERS),
        "conditional": cell.setting.conditional is not None,
    }


def draw(
    cell: Job | Packed,
    samples: int,
    variables: Sequence[str],
    conditional: bool,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Drawn:
    """Draw the networks of a cell, in this process or another, and keep the columns that are compared.

    Shapes    variable -> (1 or 3, samples)
    Scale     results that memory would not hold, such as scores of many heads, pass through a temporary folder
    """
    job = opened(cell) if isinstance(cell, Packed) else cell
    run = partial(
        Program.from_netsor(job.netsor).run,
        job.plan.width,
        samples,
        seed=job.seed,
        threads=threads,
        keep=_kept(job.netsor, variables),
        progress=progress,
        conditional=conditional,
    )
    try:
        return _columns(run(), variables)
    except MemoryLimitError:
        with TemporaryDirectory() as folder:
            return _columns(run(store=folder), variables)


def _columns(drawn: Samples, variables: Sequence[str]) -> Drawn:
    found = {}
    for variable in variables:
        name, position = split(drawn.netsor, variable)
        arrays = (drawn[name], *drawn.conditional.get(name, ()))
        found[variable] = np.array([array.reshape(len(array), -1)[:, position] for array in arrays])
    return found


# ---- who draws ------------------------------------------------------------------------------------------------------


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

    def arguments(cell: Cell) -> tuple[int, tuple[str, ...], bool]:
        return design.samples, design.variables, cell.setting.conditional is not None

    if executor is None:
        for cell in cells:

            def tell(done: int, total: int, cell: Cell = cell) -> None:
                progress(cell, done / total)

            with named(cell.name):
                found = draw(job_of(design, cell), *arguments(cell), progress=tell)
            yield cell, found
        return
    chosen = executor
    workers = int(getattr(chosen, "_max_workers", OUTSIDE_WORKERS))
    here = inside(chosen) or isinstance(chosen, ProcessPoolExecutor)
    threads = max(1, cores() // workers) if here else 1

    def submit(cell: Cell) -> Future[Drawn]:
        with named(cell.name):
            job = job_of(design, cell)
        sent = job if inside(chosen) else pack(job)
        return chosen.submit(_draw, cell.name, sent, *arguments(cell), threads)

    yield from finished(submit, iter(cells), 2 * workers)


def _draw(name: str, *arguments: Any) -> Drawn:
    """Draw a cell where a worker is, whose errors are then named there."""
    with named(name):
        return draw(*arguments)


# ---- the limits beside them -----------------------------------------------------------------------------------------


def limit_of(setting: Setting, variables: Sequence[str]) -> tuple[Reference | None, str]:
    """The limit of a program, and why there is none of all or some variables."""
    missing = []
    try:
        reference = Reference(Program.from_netsor(setting.netsor).limit())
        for name in _kept(setting.netsor, variables):
            try:
                reference.moments(name)
            except (NotCompiledError, MemoryLimitError) as error:
                missing.append(str(error))
        return reference, "; ".join(missing)
    except OutsideError:
        return None, "outside the theory"
    except ProgramError:
        raise
    except TensorprogError as error:
        return None, str(error)


def numbers(design: Design, cell: Cell, drawn: Drawn, reference: Reference | None) -> Numbers:
    """Compare the draws of each variable with the limit; None where a number does not exist."""
    found: Numbers = {}
    for variable, values in drawn.items():
        fields = compare(_samples(design, cell, variable, values), reference, [variable])[variable].to_json()
        found[variable] = {name: fields[name] for name in NUMBERS}
    return found


def _samples(design: Design, cell: Cell, variable: str, columns: Array) -> Samples:
    """Samples of which one member is read: all members of its family are views of its draws."""
    netsor = cell.setting.netsor
    name, _ = split(netsor, variable)
    shape = netsor.families[name].shape
    size = columns.shape[1]
    values, *law = (np.broadcast_to(part.reshape(size, *(1 for _ in shape)), (size, *shape)) for part in columns)
    conditional = {name: (law[0], law[1])} if law else {}
    return Samples(netsor, {name: values}, size, stream(design.seed, cell), "auto", cell.width, conditional=conditional)


# ---- files ----------------------------------------------------------------------------------------------------------


class Finished(NamedTuple):
    """What is known of a finished cell."""

    numbers: Numbers
    refused: str  # why there is no limit; empty if there is one


@contextmanager
def locked(out: Path | None) -> Iterator[None]:
    """The folder of a sweep made, and open for writing by nobody else; without one there is nothing to do.

    Raises    ProgramError if another process is writing to it, or nobody can
    """
    if out is None:
        yield
        return
    lock = Lock(out / "lock")
    with writing(out):
        (out / "cells").mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def read_cell(out: Path, design: Design, cell: Cell) -> Finished | None:
    """What is known of a cell; None if it is not finished, or its file is not what was written."""
    wanted = identity(design, cell)
    try:
        found = json.loads(_file(out, wanted).read_text(encoding="utf-8"))
        return Finished(found["numbers"], found["refused"]) if found["identity"] == wanted else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write_cell(out: Path, design: Design, cell: Cell, done: Finished) -> None:
    """Put a finished cell on disk."""
    wanted = identity(design, cell)
    entry = {"cell": cell.name, "numbers": done.numbers, "refused": done.refused, "identity": wanted}
    write_text(_file(out, wanted), json.dumps(entry, indent=1, allow_nan=False) + "\n")


def _file(out: Path, wanted: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
    return out / "cells" / f"{digest[:32]}.json"

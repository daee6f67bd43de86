"""Sweeps: one program at several widths and constants, several times over, compared with the limit of each.

The *cell* is the unit of everything: one choice of the constants swept, one width, one repeat.  Its random stream
follows from the seed and from what the cell itself is, so its numbers do not depend on the other cells, on their order
or on the workers that draw them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tensorprog.blocks import Block
from tensorprog.blocks.html import Shown
from tensorprog.finite.workers import one_blas_thread
from tensorprog.jobs.sweeps.cells import Finished, drawn, limit_of, locked, named, numbers, pool, read_cell, write_cell
from tensorprog.jobs.sweeps.design import Cell, Design, design
from tensorprog.jobs.sweeps.results import Summary, dataset, netcdf, summaries, tables, tidy
from tensorprog.language.errors import fail, need_xarray
from tensorprog.language.files import whole, write_text, writing
from tensorprog.language.formats import BRACKETS
from tensorprog.results.study import duration
from tensorprog.show import plots
from tensorprog.show.progress import Listener, watched

__all__ = ["Outcome", "perform", "sweep"]

PICTURE = "convergence"  # how the names of pictures begin
LIMITS_HELD = 2  # cells of one setting come one after the other


@dataclass
class Outcome(Shown):
    """A sweep that is done."""

    design: Design
    dataset: Any
    summaries: tuple[Summary, ...]
    written: list[Path] = field(default_factory=list)

    def blocks(self) -> list[Block]:
        """A table for each choice of constants and each variable, rates below."""
        of = self.design
        note = f"{of.samples:,} networks; {BRACKETS}"
        note = f"means over {of.repeats} repeats of {note}" if of.repeats > 1 else note
        return [
            summary.block(
                variable, ", ".join(filter(None, (f"{of.base.name}: {variable}", str(summary.setting)))), note
            )
            for summary in self.summaries
            for variable in of.variables
        ]


def sweep(
    program: Any,
    width: Iterable[int] | int,
    *,
    over: Mapping[str, Iterable[Any]] | None = None,
    repeats: int = 10,
    samples: int = 50_000,
    seed: int = 0,
    variables: str | Iterable[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Run a program (or the path of one) at several widths and constants and compare each with its limit.

    `over` names constants and their values, {"H": [1, 2, 4]}; `variables` are members such as "y[0]", by default the
    first of each output.  With `out`, a folder, every finished cell goes to disk, and the same call again goes on where
    it was stopped; sweep.nc and sweep.csv follow at the end.  Cells are drawn one after the other, with `workers` in
    so many processes, or by an `executor`: the numbers are the same.  `progress(done, total)` counts cells.

    Shapes    an xarray.Dataset: (*constants, width, repeat, variable), numbers of limits (*constants, variable), nan
              where a number does not exist; why there is no limit is in the attribute `no_limit`
    Scale     each cell, one choice of all of these, has random networks of its own
    Accuracy  beside each number its standard error, within its cell; the repeats are independent
    Raises    ProgramError for mistakes, all together and before any work; MemoryLimitError, WorkerError; errors in a
              cell have a note that names it
    """
    need_xarray("sweeps")
    if workers is not None and (isinstance(workers, bool) or not hasattr(workers, "__index__") or workers < 1):
        raise fail(f"workers must be a whole number of at least 1, not {workers!r}")
    if executor is not None and workers is not None:
        raise fail("workers and executor both say who draws", fix="one of them")
    if not isinstance(executor, Executor | None):
        raise fail(f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}")
    if not isinstance(out, str | os.PathLike | None) or out == "":
        raise fail(f"out must be the path of a folder, not {out!r}")
    wanted = design(program, width, over, repeats, samples, seed, variables)
    with (
        nullcontext(executor) if executor is not None else pool(workers) as chosen,
        nullcontext(progress) if progress is not None else watched("cells of the sweep") as told,
    ):
        return perform(wanted, None if out is None else Path(out), chosen, _Counting(told)).dataset


class _Counting(Listener):
    """Passes the number of cells on, when it changes."""

    def __init__(self, tell: Callable[[int, int], None] | None) -> None:
        self._tell, self._last = tell, -1

    def progress(self, done: int, total: int) -> None:
        if self._tell is not None and done != self._last:
            self._last = done
            self._tell(done, total)


def perform(wanted: Design, out: Path | None, executor: Executor | None, told: Listener) -> Outcome:
    """Draw the cells that are not on disk, compare them, and write the result; without `out` nothing is written.

    Raises    ProgramError if the folder cannot be used, MemoryLimitError, WorkerError
    """
    cells = wanted.cells()
    if out is not None and len(wanted.width) > 1:
        try:
            plots.need_matplotlib()
        except plots.PlotsUnavailableError as error:
            told.note(f"there will be no pictures: {error}")
    with locked(out):
        done = {cell: known for cell in cells if out and (known := read_cell(out, wanted, cell)) is not None}
        missing = [cell for cell in cells if cell not in done]
        total = sum(map(wanted.cost, missing)) or 1.0
        told.note(_estimate(len(cells), len(missing), total))
        limit = lru_cache(LIMITS_HELD)(partial(limit_of, variables=wanted.variables))
        spent = 0.0

        def progress(cell: Cell, share: float) -> None:
            told.progress(len(done), len(cells))

        told.progress(len(done), len(cells))
        with one_blas_thread(), closing(drawn(wanted, missing, executor, progress)) as draws:
            for cell, values in draws:
                with named(cell.name):
                    reference, refused = limit(cell.setting)
                    done[cell] = Finished(numbers(wanted, cell, values, reference), refused)
                if out is not None:
                    write_cell(out, wanted, cell, done[cell])
                spent += wanted.cost(cell)
                progress(cell, 0.0)
        found = tables(wanted, done)
        outcome = Outcome(wanted, dataset(wanted, done, found), tuple(summaries(wanted, done, found)))
        if out is not None:
            _write(outcome, out, told)
    return outcome


def _estimate(cells: int, missing: int, seconds: float) -> str:
    if not missing:
        return "nothing is to be drawn: all cells are on disk"
    known = f" ({cells - missing:,} of {cells:,} are on disk)" if missing < cells else ""
    wanted = f"{missing:,} cell{'' if missing == 1 else 's'}{known}"
    return f"estimate: about {duration(seconds)} on one core for {wanted}, without the limits"


def _write(outcome: Outcome, out: Path, told: Listener) -> None:
    path = out / "sweep.nc"
    with writing(path), whole(path) as file:
        file.write_bytes(netcdf(outcome.dataset))
    write_text(out / "sweep.csv", tidy(outcome.dataset))
    outcome.written += [path, out / "sweep.csv"]
    for old in out.glob(f"{PICTURE}-*=*.png"):  # also those of a sweep of other constants
        with writing(old):
            old.unlink(missing_ok=True)
    if len(outcome.design.width) > 1:
        try:
            for summary in outcome.summaries:
                outcome.written.append(_picture(outcome.design, summary, out))
        except plots.PlotsUnavailableError:  # which has been said
            pass


def _picture(wanted: Design, summary: Summary, out: Path) -> Path:
    """Convergence of the means of one setting."""
    name = "-".join([PICTURE, *(f"{key}={value}" for key, value in summary.setting.values)])
    path = out / f"{name}.png"
    panels = len(plots.DISTANCES if summary.has_limit else plots.STATISTICS)
    with writing(path):
        plots.save(path, lambda axes: plots.convergence(summary.comparisons, wanted.variables[0], axes), panels)
    return path

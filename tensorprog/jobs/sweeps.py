"""Sweeps: one program at several widths and constants, several times over, compared with the limit of each.

The *cell* is the unit of everything: one choice of the constants swept, one width, one repeat.  Its random stream
follows from the seed and from what the cell itself is, so its numbers do not depend on the other cells or on who draws
them.  A sweep on disk is one small file for each finished cell, then the whole as netCDF and CSV:

    cells/<digest>.json    a cell's numbers, beside everything that they depend on; the digest is that of the latter
    lock                   held by the process that writes

Files appear whole or not at all: a sweep that was stopped goes on, and one with more widths, repeats or values computes
what is new.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tensorprog.blocks import Grid
from tensorprog.finite.workers import libraries, one_blas_thread
from tensorprog.jobs.choices import ProgramChoice, choices
from tensorprog.language.atoms.declared import declared_function
from tensorprog.language.errors import (
    MemoryLimitError,
    NotCompiledError,
    OutsideError,
    ProgramError,
    TensorprogError,
    check_count,
    fail,
    need_package,
    need_xarray,
)
from tensorprog.language.files import Lock, whole, write_text, writing
from tensorprog.language.formats import BRACKETS, label, members, name_of, one_or_several, split
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import Samples, program_text
from tensorprog.language.writing import pack
from tensorprog.program import Program, netsor_of
from tensorprog.results.comparison import HEADINGS, Comparison, Row, compare
from tensorprog.results.conditional import with_conditional
from tensorprog.results.rates import rate
from tensorprog.results.reference import Reference
from tensorprog.show import plots
from tensorprog.show.progress import Listener, watched
from tensorprog.version import __version__

__all__ = ["Sweep", "no_limit", "perform", "pool", "summary", "sweep", "tables"]

MAX_WIDTH, MAX_INT32 = 10**7, 2**31 - 1  # the latter: the largest whole number that netCDF 3 holds
AXES = ("width", "repeat", "variable")
NUMBERS = tuple(field.name for field in fields(Row) if field.type in ("int", "float"))  # of a cell
LIMITS = tuple(name for name in NUMBERS if name.startswith("limit_"))  # the same at all widths and repeats
DISTANCES = ("kl_precise", "kl", "ks")  # in tables
PICTURE = "convergence"  # how the names of pictures begin


@dataclass(frozen=True)
class Sweep:
    """What is asked: a program, its widths, choices of constants and variables, and how much is drawn."""

    base: Netsor
    width: tuple[int, ...]
    choices: tuple[ProgramChoice, ...]
    repeats: int
    samples: int
    seed: int
    variables: tuple[str, ...]

    @classmethod
    def of(
        cls,
        program: Any,
        width: Any,
        over: Mapping[str, Any] | None = None,
        repeats: int = 10,
        samples: int = 50_000,
        seed: int = 0,
        variables: str | Iterable[str] | None = None,
    ) -> Sweep:
        """Read and check a sweep.

        Raises    ProgramError
        """
        base = netsor_of(program, "a sweep")
        widths = tuple(dict.fromkeys(check_count("width", n) for n in ([width] if np.ndim(width) == 0 else width)))
        if not widths or max(widths) > MAX_WIDTH:
            raise fail(
                f"width must be whole numbers between 1 and {MAX_WIDTH}, at least one", fix="width=[16, 64, 256]"
            )
        found = choices(base, over, (*AXES, *NUMBERS))
        if variables is None:
            variables = [label(name, members(base, name, 1)[0]) for name in base.outputs]
        names = tuple(dict.fromkeys(one_or_several(variables, name_of)))
        if not names:
            raise fail("no variables are given: there is nothing to compare")
        for choice, name in itertools.product(found, names):
            try:
                split(choice.netsor, name)
            except ProgramError as error:
                raise fail(f"with {choice}: {error}" if choice.values else str(error)) from None
        counts = check_count("repeats", repeats), check_count("samples", samples, 2), check_count("seed", seed, 0)
        return cls(base, widths, found, *counts, names)


@dataclass(frozen=True)
class SweepCell:
    """One choice, width and repeat: the networks that are drawn and compared at once."""

    choice: ProgramChoice
    width: int
    repeat: int

    def __str__(self) -> str:
        return ", ".join(filter(None, (str(self.choice), f"n = {self.width}", f"repeat {self.repeat}")))

    def stream(self, seed: int) -> int:
        """The cell's seed: of the sweep's seed, the program's constants, the width and the repeat."""
        scalars = self.choice.netsor.scalars
        text = json.dumps({name: float(scalars[name] or 0) for name in sorted(scalars)})
        words = np.frombuffer(hashlib.sha256(text.encode()).digest(), "<u4").tolist()
        sequence = np.random.SeedSequence(seed, spawn_key=(*words, self.width, self.repeat))
        return int(sequence.generate_state(1, np.uint64)[0])


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
    it was stopped; sweep.nc and sweep.csv follow at the end.  Networks are drawn by threads, with `workers` by so many
    processes, or by an `executor`: the numbers are the same.  `progress(done, total)` counts cells.

    Shapes    an xarray.Dataset: (*constants, width, repeat, variable), numbers of limits (*constants, variable), nan
              where a number does not exist; why there is no limit is in the attribute `no_limit`
    Scale     each cell, one choice of all of these, has random networks of its own
    Accuracy  beside each number its standard error, within its cell; the repeats are independent
    Raises    ProgramError for mistakes, before any work; MemoryLimitError, WorkerError; errors in a cell have a note
              that names it
    """
    need_xarray("sweeps")
    if executor is not None and workers is not None:
        raise fail("workers and executor both say who draws", fix="one of them")
    if not isinstance(executor, Executor | None):
        raise fail(f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}")
    if not isinstance(out, str | os.PathLike | None) or out == "":
        raise fail(f"out must be the path of a folder, not {out!r}")
    drawers = nullcontext(executor) if workers is None else pool(check_count("workers", workers))
    asked = Sweep.of(program, width, over, repeats, samples, seed, variables)
    with drawers as chosen, nullcontext(progress) if progress is not None else watched("cells of the sweep") as tell:
        return perform(asked, None if out is None else Path(out), chosen, tell=tell)


def perform(
    asked: Sweep,
    out: Path | None,
    executor: Executor | None = None,
    told: Listener | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Any:
    """Draw the cells that are not on disk, compare them, and write the result; without `out` nothing is written.

    Raises    ProgramError if the folder cannot be used, MemoryLimitError, WorkerError
    """
    told = told or Listener()
    total = len(asked.choices) * len(asked.width) * asked.repeats
    rows, refused, done = list[dict[str, Any]](), dict[str, str](), 0
    with _locked(out), one_blas_thread():
        for choice in asked.choices:
            limit: tuple[Reference | None, str] | None = None
            for width, repeat in itertools.product(asked.width, range(asked.repeats)):
                cell = SweepCell(choice, width, repeat)
                if tell is not None:
                    tell(done, total)
                try:
                    identity = _identity(asked, cell)
                    known = None if out is None else _read(out, identity)
                    if known is None:
                        told.stage(f"cell {done + 1} of {total}: {cell}")
                        limit = limit or _limit(choice, asked.variables)
                        known = {"numbers": _numbers(asked, cell, executor, told, limit[0]), "refused": limit[1]}
                        if out is not None:
                            text = json.dumps({"cell": str(cell), **known, "identity": identity}, indent=1)
                            write_text(_file(out, identity), text + "\n")
                except Exception as error:
                    error.add_note(f"in the cell {cell} of the sweep")
                    raise
                done += 1
                if known["refused"]:
                    refused[str(choice)] = known["refused"]
                place = dict(choice.values) | {"width": width, "repeat": repeat}
                rows += [place | {"variable": name} | numbers for name, numbers in known["numbers"].items()]
        if tell is not None:
            tell(done, total)
        found = _dataset(asked, rows, refused)
        if out is not None:
            _write(asked, found, out)
    return found


# ---- one cell --------------------------------------------------------------------------------------------------------


def _identity(asked: Sweep, cell: SweepCell) -> dict[str, Any]:
    """Everything that a cell's numbers depend on, as plain values."""
    text, arrays = pack(cell.choice.netsor)
    digests = {
        name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for name, array in arrays.items()
    }
    return {
        "program": text,
        "tables": digests,
        "functions": {name: declared_function(name).sketch for name in cell.choice.netsor.own},
        "width": cell.width,
        "stream": cell.stream(asked.seed),
        "samples": asked.samples,
        "variables": list(asked.variables),
        "numbers": list(NUMBERS),
        "version": __version__,
    }


def _file(out: Path, identity: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return out / "cells" / f"{digest[:32]}.json"


def _read(out: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """What is known of a cell; None if it is not finished, or its file is not what was written."""
    try:
        found = json.loads(_file(out, identity).read_text(encoding="utf-8"))
        numbers = {name: {key: found["numbers"][name][key] for key in NUMBERS} for name in identity["variables"]}
        same = found["identity"] == json.loads(json.dumps(identity))
        return {"numbers": numbers, "refused": str(found["refused"])} if same else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _limit(choice: ProgramChoice, variables: Iterable[str]) -> tuple[Reference | None, str]:
    """The limit of a program, and why there is none of all or some variables."""
    missing = []
    try:
        reference = Reference(Program.from_netsor(choice.netsor).limit())
        for name in dict.fromkeys(split(choice.netsor, variable)[0] for variable in variables):
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


def _numbers(
    asked: Sweep, cell: SweepCell, executor: Executor | None, told: Listener, reference: Reference | None
) -> dict[str, dict[str, float | None]]:
    """Draw a cell's networks and compare each variable with the limit; None where a number does not exist.

    Results that memory would not hold, such as scores of many heads, pass through a temporary folder.
    """
    netsor = cell.choice.netsor
    keep = tuple(dict.fromkeys(split(netsor, variable)[0] for variable in asked.variables))
    try:
        conditional = bool(set(keep) & set(with_conditional(netsor).variance))
    except NotCompiledError:
        conditional = False

    def compared(**options: Any) -> dict[str, dict[str, float | None]]:
        drawn: Samples = Program.from_netsor(netsor).run(
            cell.width,
            asked.samples,
            seed=cell.stream(asked.seed),
            keep=keep,
            conditional=conditional,
            executor=executor,
            progress=told.progress,
            **options,
        )
        rows = {variable: compare(drawn, reference, [variable])[variable] for variable in asked.variables}
        found = {variable: row.to_json() for variable, row in rows.items()}
        return {variable: {name: row[name] for name in NUMBERS} for variable, row in found.items()}

    try:
        return compared()
    except MemoryLimitError:
        with TemporaryDirectory() as folder:
            return compared(store=folder)


@contextmanager
def _locked(out: Path | None) -> Iterator[None]:
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


# ---- who draws -------------------------------------------------------------------------------------------------------


@contextmanager
def pool(workers: int | None) -> Iterator[Executor | None]:
    """So many processes; None for one, as this process is one.

    Interrupted, they are ended at once; and they do not outlive this process, however it ends.
    """
    if workers is None or workers == 1:
        yield None
        return
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_follow)
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


# ---- the result ------------------------------------------------------------------------------------------------------


def _dataset(asked: Sweep, rows: list[dict[str, Any]], refused: Mapping[str, str]) -> Any:
    """An xarray.Dataset of all cells; it holds no times, dates or names of machines, so that equal sweeps are equal."""
    pandas = need_package("pandas", "sweeps", "sweep")
    names = [name for name, _ in asked.choices[0].values]
    over = {name: list(dict.fromkeys(dict(choice.values)[name] for choice in asked.choices)) for name in names}
    axes = over | {"width": asked.width, "repeat": range(asked.repeats), "variable": asked.variables}
    frame = pandas.DataFrame(rows).set_index([*axes]).astype(np.float64)
    found = frame.to_xarray().sel({name: list(values) for name, values in axes.items()}).transpose(*axes)
    for name, values in axes.items():
        whole_numbers = all(isinstance(value, int) and abs(value) <= MAX_INT32 for value in values)
        if name != "variable":
            found[name] = found[name].astype(np.int32 if whole_numbers else np.float64)
    for name in NUMBERS:
        if name in LIMITS:
            found[name] = found[name].isel(width=0, repeat=0, drop=True)
        found[name].attrs["units"] = "nat" if name.startswith("kl") else "1"
    found.attrs = {
        "title": f"{asked.base.name}: finite widths against the limit",
        "program_name": asked.base.name,
        "program": program_text(asked.base),
        "samples": asked.samples if asked.samples <= MAX_INT32 else str(asked.samples),
        "seed": str(asked.seed),
        "versions": json.dumps(libraries()),
        "kl_source": "Sakai et al. 2025 (arXiv 2506.00846), Sec. 5.1: kernel estimates on 500 points",
        **({"no_limit": json.dumps(dict(refused))} if refused else {}),
    }
    return found


def no_limit(found: Any) -> dict[str, str]:
    """Why there is no limit, by choice of constants."""
    return dict(json.loads(found.attrs.get("no_limit", "{}")))


def _means(asked: Sweep, found: Any, choice: ProgramChoice) -> list[Comparison]:
    """A comparison for each width, whose rows are means over the repeats; nan for what a mean does not say."""
    comparisons = []
    for width in asked.width:
        rows = []
        for variable in asked.variables:
            at = found.sel(dict(choice.values) | {"width": width, "variable": variable})
            means = {name: float(at[name].values.mean()) for name in NUMBERS if not name.startswith("z_")}
            for name in (name for name in means if f"{name}_se" in means and asked.repeats > 1):
                means[f"{name}_se"] = float(at[name].values.std(ddof=1)) / math.sqrt(asked.repeats)
            means |= {name: float(at[name].values.sum()) for name in ("samples", "effective")}
            means = {name: value for name, value in means.items() if not name.endswith("_p")}
            rows.append(Row(variable=variable, **means | {"samples": int(means["samples"])}))  # type: ignore[arg-type]
        reference = "limit" if math.isfinite(rows[0].limit_variance) else "nothing"
        comparisons.append(Comparison(tuple(rows), width, reference, asked.base.name))
    return comparisons


def _rates(asked: Sweep, found: Any, choice: ProgramChoice, variable: str) -> Iterator[tuple[str, Any]]:
    """The rate of each distance, or as text why there is none."""
    for name in DISTANCES if len(asked.width) > 1 else ():
        if np.isfinite(found[name].sel(dict(choice.values) | {"variable": variable})).any():
            try:
                yield name, rate(found, name, variable, **dict(choice.values))
            except ProgramError as error:  # too few widths, or they are within noise
                yield name, str(error)


def tables(asked: Sweep, found: Any) -> Iterator[Grid]:
    """A table for each choice of constants and each variable, the limit last if there is one, rates below."""
    note = f"{asked.samples:,} networks; {BRACKETS}"
    note = f"means over {asked.repeats} repeats of {note}" if asked.repeats > 1 else note
    for choice in asked.choices:
        comparisons, refused = _means(asked, found, choice), no_limit(found).get(str(choice))
        for variable in asked.variables:
            rows = [comparison[variable] for comparison in comparisons]
            distances = [name for name in DISTANCES if any(math.isfinite(getattr(row, name)) for row in rows)]
            names = ["variance", "kurtosis", *distances]
            cells = [(str(width), *row.cells(names)) for width, row in zip(asked.width, rows, strict=True)]
            limited = math.isfinite(rows[0].limit_variance)
            cells += [("limit", *rows[0].limit_cells(names))] if limited else []
            notes = [note, *([f"no limit: {refused}"] if refused else [])]
            for name, fall in _rates(asked, found, choice, variable):
                notes.append(
                    f"{HEADINGS[name]}: {fall}" if isinstance(fall, str) else f"{HEADINGS[name]} falls as {fall}"
                )
            title = ", ".join(filter(None, (f"{asked.base.name}: {variable}", str(choice))))
            marked = (len(cells) - 1,) if limited else ()
            yield Grid(title, ("n", *(HEADINGS[name] for name in names)), tuple(cells), "\n".join(notes), marked)


def summary(asked: Sweep, found: Any) -> list[dict[str, Any]]:
    """The same numbers for JSON: constants, rows and rates of each choice; None for numbers that do not exist."""
    result = []
    for choice in asked.choices:
        fits = {variable: dict(_rates(asked, found, choice, variable)) for variable in asked.variables}
        result.append(
            {
                "constants": dict(choice.values),
                "no_limit": no_limit(found).get(str(choice)),
                "rows": [{"width": c.width, **row.to_json()} for c in _means(asked, found, choice) for row in c.rows],
                "rates": {
                    variable: {name: fit.to_json() for name, fit in fit_of.items() if not isinstance(fit, str)}
                    for variable, fit_of in fits.items()
                },
                "no_rates": {
                    variable: {name: fit for name, fit in fit_of.items() if isinstance(fit, str)}
                    for variable, fit_of in fits.items()
                },
            }
        )
    return result


def _write(asked: Sweep, found: Any, out: Path) -> None:
    """sweep.nc (netCDF 3, which needs no further library), sweep.csv, and a picture of convergence for each choice."""
    with writing(out / "sweep.nc"), whole(out / "sweep.nc") as file:
        file.write_bytes(bytes(found.to_netcdf(engine="scipy")))
    frame = found.to_dataframe(dim_order=list(found["samples"].dims)).astype({"samples": int})
    write_text(out / "sweep.csv", str(frame.to_csv(columns=list(NUMBERS), lineterminator="\n")))
    for old in out.glob(f"{PICTURE}*.png"):  # those of a sweep of other constants
        if old.stem == PICTURE or "=" in old.stem:
            with writing(old):
                old.unlink(missing_ok=True)
    for choice in asked.choices if len(asked.width) > 1 else ():
        comparisons = _means(asked, found, choice)
        panels = plots.STATISTICS if comparisons[0].reference == "nothing" else plots.DISTANCES
        path = out / f"{'-'.join([PICTURE, *(f'{key}={value}' for key, value in choice.values)])}.png"

        def draw(axes: Any, comparisons: list[Comparison] = comparisons) -> None:
            plots.convergence(comparisons, asked.variables[0], axes)

        try:
            with writing(path):
                plots.save(path, draw, len(panels))
        except plots.PlotsUnavailableError:
            return

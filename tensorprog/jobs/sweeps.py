"""Sweeps: one program at several widths and constants, several times over, compared with the limit of each.

The *cell* is the unit of everything: one choice of the constants swept, one width, one repeat.  Its random stream
follows from the seed and from what the cell itself is, so its numbers do not depend on the other cells or on who draws
them.  A sweep on disk is one small file for each finished cell, then the whole as netCDF and CSV:

    cells/<digest>.json    a cell's numbers, and everything that they depend on, whose digest it is; a digest of both
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
from contextlib import ExitStack, suppress
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tensorprog.blocks import Grid
from tensorprog.finite.run import one_blas_thread
from tensorprog.jobs.choices import Choice, choices, choices_of, said
from tensorprog.language.atoms.declared import declared_function
from tensorprog.language.errors import (
    MemoryLimitError,
    MissingPackageError,
    NotCompiledError,
    OutsideError,
    ProgramError,
    TensorprogError,
    check_count,
    fail,
    need_package,
)
from tensorprog.language.files import locked, read_json, whole, write_text, writing
from tensorprog.language.formats import label, members, name_of, one_or_several, split
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import program_text
from tensorprog.language.writing import pack
from tensorprog.program import Program, netsor_of
from tensorprog.results.comparison import HEADINGS, Comparison, Row, compare, table_of_widths
from tensorprog.results.conditional import with_conditional
from tensorprog.results.rates import rate
from tensorprog.results.reference import Reference
from tensorprog.show import plots
from tensorprog.version import __version__, libraries

__all__ = ["no_limit", "sweep", "tables"]

MAX_WIDTH, MAX_INT32 = 10**7, 2**31 - 1  # the latter: the largest whole number that netCDF 3 holds
AXES = ("width", "repeat", "variable")
NUMBERS = tuple(field.name for field in fields(Row) if field.type in ("int", "float"))  # of a cell
TOLD = ("variance", "kurtosis", "kl_precise", "kl", "ks")  # in tables
RATED = "kl_precise"  # which has no noise floor


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
    max_memory: str | int = "1GiB",
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
    Raises    ProgramError for mistakes, before any work, and for a cell on disk that is damaged; MemoryLimitError,
              WorkerError; errors in a cell have a note that names it
    """
    need_package("xarray", "sweeps", "sweep")
    if executor is not None and workers is not None:
        raise fail("workers and executor both say who draws", fix="one of them")
    check_count("repeats", repeats), check_count("samples", samples, 2), check_count("seed", seed, 0)
    base = netsor_of(program, "a sweep")
    widths = tuple(dict.fromkeys(check_count("width", n) for n in (width if isinstance(width, Iterable) else [width])))
    if not widths or max(widths) > MAX_WIDTH:
        raise fail(f"width must be whole numbers between 1 and {MAX_WIDTH}, at least one", fix="width=[16, 64, 256]")
    picked = choices(base, over, (*AXES, *NUMBERS))
    firsts = [label(name, members(base, name, 1)[0]) for name in base.outputs]
    names = tuple(dict.fromkeys(one_or_several(firsts if variables is None else variables, name_of)))
    if not names:
        raise fail("no variables are given: there is nothing to compare")
    for (values, netsor), name in itertools.product(picked, names):
        try:
            split(netsor, name)
        except ProgramError as error:
            raise fail(f"with {said(values)}: {error}" if values else str(error)) from None
    folder, rows, refused = None if out is None else Path(out), list[dict[str, Any]](), dict[str, str]()
    with ExitStack() as held:
        if workers is not None and check_count("workers", workers) > 1:
            spawn = multiprocessing.get_context("spawn")
            executor = held.enter_context(ProcessPoolExecutor(workers, spawn, initializer=_follow))
        held.enter_context(one_blas_thread())
        if folder is not None:
            held.enter_context(locked(folder))
            with writing(folder / "cells"):
                (folder / "cells").mkdir(exist_ok=True)
        total = len(picked) * len(widths) * repeats
        for values, netsor in picked:
            limit = cache(partial(_limit, netsor, names, max_memory))
            for n, repeat in itertools.product(widths, range(repeats)):
                if progress is not None:
                    progress(len(rows) // len(names), total)
                cell = ", ".join(filter(None, (said(values), f"n = {n}", f"repeat {repeat}")))
                identity = _identity(netsor, n, repeat, samples, seed, names)
                try:
                    known = _known(
                        folder, cell, identity, partial(_measured, netsor, identity, limit, executor, max_memory)
                    )
                except Exception as error:
                    error.add_note(f"in the cell {cell} of the sweep")
                    raise
                refused |= {said(values): known["refused"]} if known["refused"] else {}
                place = values | {"width": n, "repeat": repeat}
                rows += [place | {"variable": name} | known["numbers"][name] for name in names]
        if progress is not None:
            progress(total, total)
        over = {name: list(dict.fromkeys(values[name] for values, _ in picked)) for name in picked[0][0]}
        axes = over | {"width": widths, "repeat": range(repeats), "variable": names}
        about = {"samples": samples if samples <= MAX_INT32 else str(samples), "seed": str(seed)}
        found = _dataset(base, rows, axes, about | ({"no_limit": json.dumps(refused)} if refused else {}))
        if folder is not None:
            _write(found, folder)
    return found


def _follow() -> None:
    """In a worker: leave Ctrl-C to the process that started this one, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


# ---- one cell --------------------------------------------------------------------------------------------------------


def _identity(
    netsor: Netsor, width: int, repeat: int, samples: int, seed: int, variables: tuple[str, ...]
) -> dict[str, Any]:
    """Everything that the numbers of a cell depend on, as plain values; its stream follows from the sweep's seed, the
    program's constants, the width and the repeat.
    """
    scalars = json.dumps({name: float(value or 0) for name, value in sorted(netsor.scalars.items())})
    words = np.frombuffer(hashlib.sha256(scalars.encode()).digest(), "<u4").tolist()
    stream = np.random.SeedSequence(seed, spawn_key=(*words, width, repeat)).generate_state(1, np.uint64)[0]
    text, arrays = pack(netsor)
    return {
        "program": text,
        "tables": {name: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for name, a in arrays.items()},
        "functions": {name: declared_function(name).sketch for name in netsor.own},
        "width": width,
        "stream": int(stream),
        "samples": samples,
        "variables": list(variables),
        "numbers": list(NUMBERS),
        "version": __version__,
    }


def _known(folder: Path | None, cell: str, identity: dict[str, Any], measure: Callable[[], Any]) -> dict[str, Any]:
    """The numbers of each variable, None where one does not exist, and why there is no limit: from the disk, or worked
    out and written there.
    """
    file = None if folder is None else folder / "cells" / f"{_digest(identity)[:32]}.json"
    if file is not None and file.exists():
        fix = "remove it, and this cell is drawn again"
        with writing(file, fix):
            found = read_json(file, fix)
        known = found.get("known") if isinstance(found, dict) else None
        if not isinstance(known, dict) or found.get("digest") != _digest([identity, known]):
            raise fail(f"{file} is damaged", fix=fix)
        return known
    numbers, refused = measure()
    known = {"cell": cell, "numbers": numbers, "refused": refused}
    if file is not None:
        told = {"known": known, "identity": identity, "digest": _digest([identity, known])}
        write_text(file, json.dumps(told, indent=1) + "\n")
    return known


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _measured(
    netsor: Netsor,
    identity: dict[str, Any],
    limit: Callable[[], tuple[Reference | None, str]],
    executor: Executor | None,
    max_memory: str | int,
) -> tuple[dict[str, dict[str, Any]], str]:
    """Draw the networks of a cell and compare each variable with the limit."""
    reference, refused = limit()
    keep = tuple(dict.fromkeys(split(netsor, variable)[0] for variable in identity["variables"]))
    conditional = False
    with suppress(NotCompiledError):
        conditional = bool(set(keep) & set(with_conditional(netsor).variance))
    run = Program.from_netsor(netsor).run
    drawn = run(
        identity["width"],
        identity["samples"],
        seed=identity["stream"],
        keep=keep,
        conditional=conditional,
        executor=executor,
        max_memory=max_memory,
    )
    found = {name: compare(drawn, reference, [name])[name].to_json() for name in identity["variables"]}
    return {variable: {name: row[name] for name in NUMBERS} for variable, row in found.items()}, refused


def _limit(netsor: Netsor, variables: tuple[str, ...], max_memory: str | int) -> tuple[Reference | None, str]:
    try:
        reference = Reference(Program.from_netsor(netsor).limit(max_memory=max_memory))
        for name in dict.fromkeys(split(netsor, variable)[0] for variable in variables):
            with suppress(NotCompiledError, MemoryLimitError):
                reference.moments(name)
        return reference, "; ".join(map(str, reference.failed.values()))
    except OutsideError:
        return None, "outside the theory"
    except ProgramError:
        raise
    except TensorprogError as error:
        return None, str(error)


# ---- the result ------------------------------------------------------------------------------------------------------


def _dataset(base: Netsor, rows: list[dict[str, Any]], axes: Mapping[str, Any], about: dict[str, Any]) -> Any:
    """An xarray.Dataset of all cells; it holds no times, dates or names of machines, so that equal sweeps are equal."""
    pandas = need_package("pandas", "sweeps", "sweep")
    frame = pandas.DataFrame(rows).set_index([*axes]).astype(np.float64)
    found = frame.to_xarray().sel({name: list(values) for name, values in axes.items()}).transpose(*axes)
    for name in (name for name in axes if name != "variable"):
        whole_numbers = all(isinstance(value, int) and abs(value) <= MAX_INT32 for value in axes[name])
        found[name] = found[name].astype(np.int32 if whole_numbers else np.float64)
    for name in NUMBERS:
        if name.startswith("limit_"):  # the same at all widths and repeats
            found[name] = found[name].isel(width=0, repeat=0, drop=True)
        found[name].attrs["units"] = "nat" if name.startswith("kl") else "1"
    found.attrs = {
        "title": f"{base.name}: finite widths against the limit",
        "program_name": base.name,
        "program": program_text(base),
        "versions": json.dumps(libraries()),
        "kl_source": "Sakai et al. 2025 (arXiv 2506.00846), Sec. 5.1: kernel estimates on 500 points",
        **about,
    }
    return found


def no_limit(found: Any) -> dict[str, str]:
    """Why there is no limit, by choice of constants."""
    return dict(json.loads(found.attrs.get("no_limit", "{}")))


def _means(found: Any, choice: Choice) -> list[Comparison]:
    """A comparison for each width, whose rows are means over the repeats; nan for what a mean does not say."""
    at, repeats = found.sel(choice), found.sizes["repeat"]
    mean = at.mean("repeat", skipna=False)
    mean = mean.assign(samples=at["samples"].sum("repeat", skipna=False))
    if repeats > 1:
        spread = at[[name for name in at if f"{name}_se" in at]].std("repeat", ddof=1, skipna=False)
        mean = mean.assign({f"{name}_se": value / math.sqrt(repeats) for name, value in spread.items()})
    mean = mean.drop_vars([name for name in mean if name.startswith("z_") or name.endswith("_p")])
    comparisons = []
    for width in found["width"].values.tolist():
        table = mean.sel(width=width).to_dataframe().astype({"samples": int})
        rows = tuple(Row(**row) for row in table.reset_index()[["variable", *mean.data_vars]].to_dict("records"))
        reference = "limit" if math.isfinite(rows[0].limit_variance) else "nothing"
        comparisons.append(Comparison(rows, width, reference, found.attrs["program_name"]))
    return comparisons


def _rate(found: Any, choice: Choice, variable: str) -> list[str]:
    """The rate of the precise divergence, or why there is none, where widths are compared by it."""
    if found.sizes["width"] < 2 or not np.isfinite(found[RATED].sel(choice | {"variable": variable})).any():
        return []
    try:
        return [f"{HEADINGS[RATED]} falls as {rate(found, RATED, variable, **choice)}"]
    except ProgramError as error:  # too few widths, or they are within noise
        return [f"{HEADINGS[RATED]}: {error}"]


def tables(found: Any) -> Iterator[Grid]:
    """A table for each choice of constants and each variable, the limit last if there is one, rates below."""
    repeats = found.sizes["repeat"]
    said_of = f"; {f'means over {repeats} repeats of ' if repeats > 1 else ''}{int(found.attrs['samples']):,} networks"
    for choice in choices_of(found, AXES):
        comparisons, refused = _means(found, choice), no_limit(found).get(said(choice))
        for variable in found["variable"].values.tolist():
            title = ", ".join(filter(None, (f"{found.attrs['program_name']}: {variable}", said(choice))))
            against = "limit" if math.isfinite(comparisons[0][variable].limit_variance) else ""
            further = [said_of, *([f"no limit: {refused}"] if refused else []), *_rate(found, choice, variable)]
            yield table_of_widths(title, comparisons, [variable], against, TOLD, further="\n".join(further))


def _write(found: Any, out: Path) -> None:
    """sweep.nc (netCDF 3, which needs no further library), sweep.csv, and a picture of convergence for each choice."""
    with writing(out / "sweep.nc"), whole(out / "sweep.nc") as file:
        file.write_bytes(bytes(found.to_netcdf(engine="scipy")))
    frame = found.to_dataframe(dim_order=list(found["samples"].dims)).astype({"samples": int})
    write_text(out / "sweep.csv", str(frame.to_csv(columns=list(NUMBERS), lineterminator="\n")))
    first, each = found["variable"].values.tolist()[0], choices_of(found, AXES)
    pictures: dict[str, Any] = {}
    varied = [str(name) for name, size in found.sizes.items() if name not in AXES and size > 1]
    if found.sizes["width"] > 1:
        for choice in each:
            name = "-".join(["convergence", *(f"{key}={value:.15g}" for key, value in choice.items())])
            pictures[name] = _means(found, choice), None
    elif len(varied) == 1:  # of one width, against the only constant
        values = varied[0], [choice[varied[0]] for choice in each]
        pictures[f"over-{varied[0]}"] = [one for choice in each for one in _means(found, choice)], values
    for name, (comparisons, over) in pictures.items():
        panels = plots.STATISTICS if comparisons[0].reference == "nothing" else plots.DISTANCES
        path = out / f"{name}.png"
        with writing(path), suppress(MissingPackageError):
            draw = partial(plots.convergence, comparisons, first, over=over)
            plots.save(path, draw, len(panels))

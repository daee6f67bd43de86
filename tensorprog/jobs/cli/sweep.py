"""`tp sweep`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorprog.jobs.cli.frame import COMMANDS, OUTPUT, OUTSIDE, RESOURCES, Command
from tensorprog.jobs.cli.options import (
    FILE,
    FORMAT,
    QUIET,
    SEED,
    SET,
    WIDTH,
    Place,
    constants,
    option,
    options,
    variables,
    whole_number,
)
from tensorprog.jobs.cli.shared import echo, open_program, print_json, show
from tensorprog.language.errors import Problem, ProgramError, fail
from tensorprog.show.terminal import columns_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tensorprog.jobs.sweeps.work import Outcome


def _values(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, list[str]]:
    """NAME=VALUE,VALUE,.. of each constant, its values in one place or several."""
    found: dict[str, list[str]] = {}
    problems = []
    for text in texts:
        name, equals, values = text.partition("=")
        listed = [value.strip() for value in values.split(",")]
        if not (equals and name.strip() and all(listed)):
            problems.append(Problem(f"--over {text}: is not of the form NAME=VALUE,VALUE,..", fix="--over H=1,2,4"))
        found.setdefault(name.strip(), []).extend(listed)
    if problems:
        raise ProgramError(problems)
    return found


@click.command(
    cls=Command, heading=COMMANDS[2], short_help="Several widths, constants and repeats, each against its limit.",
    examples=[("attention --over H=1,2,4", "the distance to the limit for three numbers of heads"),
              ("attention --width 16,64,4096", "one more width: what is there is not done again"),
              ("mine.yaml --repeats 20 --workers 2", "two processes, the same numbers")],
)
@options(FILE, SET, WIDTH)
@option("--over", metavar="NAME=V,..", multiple=True, callback=_values, shell_complete=constants,
        help="Values of a constant, e.g. H=1,2,4; repeated, all combinations.")
@option("--repeats", metavar="N", default="10", show_default=True, callback=whole_number("--repeats", 1),
        help="Repeats of each cell, with networks of their own.")
@option("--samples", metavar="N", callback=whole_number("--samples", 2), help="Networks drawn in each cell.")
@SEED
@option("--variable", "variables", metavar="NAME", multiple=True, shell_complete=variables,
        help="A member such as y[0], may be repeated; default the first of each output.")
@option("--workers", metavar="N", callback=whole_number("--workers", 1), heading=RESOURCES,
        help="Processes that draw one cell each; default one, on all cores.")
@option("--scheduler", metavar="ADDRESS", heading=RESOURCES,
        help="Draw cells on the workers of a dask.distributed scheduler, e.g. tcp://host:8786.")
@option("--out", metavar="DIR", type=Place(), heading=OUTPUT,
        help="Where files go; default runs/<program>-sweep.")
@option("--zarr", is_flag=True, heading=OUTPUT, help="Write sweep.zarr beside sweep.nc.")
@options(FORMAT, QUIET)
def sweep(
    file: str, overrides: dict[str, str], width: tuple[int, ...] | None, over: dict[str, list[str]], repeats: int,
    samples: int | None, seed: int | None, variables: tuple[str, ...], workers: int | None, scheduler: str | None,
    out: Path | None, zarr: bool, quiet: bool, form: str,
) -> int:
    """Run FILE at each width and each choice of constants, several times over, and compare each with its limit.

    A cell is one choice of constants, one width and one repeat. Every finished cell goes to disk: the same command
    again goes on where it was stopped, and one with more widths, values or repeats computes what is new. The numbers do
    not depend on workers. The folder receives cells/, sweep.nc (netCDF, for xarray.load_dataset), sweep.csv and, of two
    or more widths, a picture of convergence for each choice of constants. Options left out come from the program's
    `run:` section. The exit code is 1 if there is no limit to compare with, for any choice.
    """
    both = sorted(set(over) & set(overrides))
    if both:
        raise fail(f"{both[0]} is given by --set and by --over", fix=f"--over {both[0]}=..")
    if workers is not None and scheduler is not None:
        raise fail("--workers and --scheduler both say who draws", fix="one of them")
    program = open_program(file, overrides)
    from tensorprog.jobs.sweeps.design import design
    from tensorprog.jobs.sweeps.results import need_xarray
    from tensorprog.jobs.sweeps.work import perform
    from tensorprog.results.study import default_out, settings_of
    from tensorprog.show.progress import SweepProgress

    need_xarray()
    chosen = settings_of(program.netsor, {"width": width, "samples": samples, "seed": seed})
    wanted = design(program, chosen.width, over, repeats, chosen.samples, chosen.seed, variables or None,
                    words=_words(file, overrides))
    usual = default_out(program.netsor)
    folder = out or usual.with_name(f"{usual.name}-sweep")
    told = SweepProgress(notes=not quiet)
    with told.shown(), _interrupted(told), _pool(workers, scheduler, told) as executor:
        outcome = perform(wanted, folder, executor, told, zarr)
    if form == "json":
        print_json(_json(outcome, folder))
    elif not quiet:
        _print(outcome, folder)
    return 0 if any(summary.has_limit for summary in outcome.summaries) else OUTSIDE


def _words(file: str, overrides: dict[str, str]) -> str:
    """How the program is named in a command, without the folder it is in."""
    return shlex.join([Path(file).name, *(word for pair in overrides.items() for word in ("--set", "=".join(pair)))])


def _pool(workers: int | None, scheduler: str | None, told: Any) -> AbstractContextManager[Executor | None]:
    if scheduler is None:
        from tensorprog.jobs.sweeps.cells import pool

        return pool(workers)
    from tensorprog.finite.cluster import connected

    return connected(scheduler, told.note)


@contextmanager
def _interrupted(told: Any) -> Iterator[None]:
    """Say how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        told.note(f"{told.said}; the same command goes on from there")
        raise


def _json(outcome: Outcome, folder: Path) -> dict[str, Any]:
    design = outcome.design
    return {"program": design.base.name, "command": design.command, "samples": design.samples, "seed": design.seed,
            "repeats": design.repeats, "sweep": [summary.to_json() for summary in outcome.summaries],
            "files": [path.relative_to(folder).as_posix() for path in outcome.written]}


def _print(outcome: Outcome, folder: Path) -> None:
    """The tables, then the files."""
    for block in outcome.blocks(figures=1 if columns_of(sys.stdout) < 100 else 2):
        show([block])
        echo()
    echo(f"written to {folder}{os.sep}")
    echo("\n".join(f"  {path.relative_to(folder)}" for path in outcome.written))

"""Studies: `tp sweep`, and `tp paper`, the figures of the paper."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorprog.blocks import Grid
from tensorprog.jobs.cli.frame import (
    COMMANDS,
    OUTPUT,
    OUTSIDE,
    RESOURCES,
    Command,
    cluster,
    echo,
    open_program,
    places,
    print_json,
    show,
)
from tensorprog.jobs.cli.options import (
    ALL,
    FILE,
    FORMAT,
    QUIET,
    SEED,
    SET,
    WIDTH,
    Place,
    constants,
    figures,
    option,
    options,
    values,
    variables,
    whole_number,
)
from tensorprog.language.errors import did_you_mean, fail

if TYPE_CHECKING:
    from tensorprog.jobs.sweeps import Outcome


@click.command(
    cls=Command,
    heading=COMMANDS[2],
    short_help="Several widths, constants and repeats, each against its limit.",
    examples=[
        ("attention --over H=1,2,4", "the distance to the limit for three numbers of heads"),
        ("attention --width 16,64,4096", "one more width: what is there is not done again"),
        ("mine.yaml --repeats 20 --workers 2", "two processes, the same numbers"),
    ],
)
@options(FILE, SET, WIDTH)
@option(
    "--over",
    metavar="NAME=V,..",
    multiple=True,
    callback=values,
    shell_complete=constants,
    help="Values of a constant, e.g. H=1,2,4; repeated, all combinations.",
)
@option(
    "--repeats",
    metavar="N",
    default="10",
    show_default=True,
    callback=whole_number("--repeats", 1),
    help="Repeats of each cell, with networks of their own.",
)
@option("--samples", metavar="N", callback=whole_number("--samples", 2), help="Networks drawn in each cell.")
@SEED
@option(
    "--variable",
    "variables",
    metavar="NAME",
    multiple=True,
    shell_complete=variables,
    help="A member such as y[0], may be repeated; default the first of each output.",
)
@option(
    "--workers",
    metavar="N",
    callback=whole_number("--workers", 1),
    heading=RESOURCES,
    help="Processes that draw one cell each; default one, on all cores.",
)
@option(
    "--scheduler",
    metavar="ADDRESS",
    heading=RESOURCES,
    help="Draw cells on the workers of a dask.distributed scheduler, e.g. tcp://host:8786.",
)
@option("--out", metavar="DIR", type=Place(), heading=OUTPUT, help="Where files go; default runs/<program>-sweep.")
@options(FORMAT, QUIET)
def sweep(
    file: str,
    overrides: dict[str, str],
    width: tuple[int, ...] | None,
    over: dict[str, list[str]],
    repeats: int,
    samples: int | None,
    seed: int | None,
    variables: tuple[str, ...],
    workers: int | None,
    scheduler: str | None,
    out: Path | None,
    quiet: bool,
    form: str,
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
    from tensorprog.jobs.sweeps import perform
    from tensorprog.jobs.sweeps.cells import pool
    from tensorprog.jobs.sweeps.design import design
    from tensorprog.language.errors import need_xarray
    from tensorprog.results.study import default_out, settings_of
    from tensorprog.show.progress import Progress

    need_xarray("sweeps")
    chosen = settings_of(program.netsor, {"width": width, "samples": samples, "seed": seed})
    wanted = design(
        program,
        chosen.width,
        over,
        repeats,
        chosen.samples,
        chosen.seed,
        variables or None,
        words=_words(file, overrides),
    )
    usual = default_out(program.netsor)
    folder = out or usual.with_name(f"{usual.name}-sweep")
    told = Progress(notes=not quiet)
    with (
        told.shown(),
        _interrupted(told),
        pool(workers) if scheduler is None else cluster(scheduler) as executor,
    ):
        outcome = perform(wanted, folder, executor, told)
    if form == "json":
        print_json(_json(outcome, folder))
    elif not quiet:
        for block in outcome.blocks():
            show([block])
            echo()
        echo(places(folder, (path.relative_to(folder) for path in outcome.written)))
    return 0 if any(summary.has_limit for summary in outcome.summaries) else OUTSIDE


def _words(file: str, overrides: dict[str, str]) -> str:
    """How the program is named in a command, without the folder it is in."""
    return shlex.join([Path(file).name, *(word for pair in overrides.items() for word in ("--set", "=".join(pair)))])


@contextmanager
def _interrupted(told: Any) -> Iterator[None]:
    """Say how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        told.note("finished cells are on disk; the same command goes on from there")
        raise


def _json(outcome: Outcome, folder: Path) -> dict[str, Any]:
    design = outcome.design
    return {
        "program": design.base.name,
        "command": design.command,
        "samples": design.samples,
        "seed": design.seed,
        "repeats": design.repeats,
        "sweep": [summary.to_json() for summary in outcome.summaries],
        "files": [path.relative_to(folder).as_posix() for path in outcome.written],
    }


# ---- tp paper --------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    heading=COMMANDS[2],
    short_help="The figures of the paper, with their data.",
    examples=[("", "list them"), ("fig1b", "KL divergence against the width"), ("all", "all of them, in some minutes")],
)
@click.argument("names", metavar="[FIGURE]...", nargs=-1, shell_complete=figures)
@option(
    "--samples",
    metavar="N",
    default="50000",
    show_default=True,
    callback=whole_number("--samples", 100),
    help="Networks drawn at each width.",
)
@option(
    "--repeats",
    metavar="N",
    default="10",
    show_default=True,
    callback=whole_number("--repeats", 2),
    help="Trials of the figures on KL divergence.",
)
@options(SEED)
@option(
    "--out",
    metavar="DIR",
    type=Place(file_okay=False),
    default=Path("runs/paper"),
    show_default=True,
    heading=OUTPUT,
    help="Where files go.",
)
@options(FORMAT, QUIET)
def paper(
    names: tuple[str, ...], samples: int, repeats: int, seed: int | None, out: Path, form: str, quiet: bool
) -> int:
    """Make figures of Sakai, Karakida & Imaizumi 2025: fig1a, fig1b, fig2a, fig2b, fig3, relu, or all.

    Without a FIGURE they are listed. For each the folder receives the picture as .png and .svg, tables of everything
    drawn as .csv, and a .json file with its numbers, versions, and the command that makes it again.
    """
    from tensorprog.shipped import paper_figures

    example = paper_figures()
    known = example.FIGURES
    wrong = [name for name in names if name not in known and name != ALL]
    if wrong:
        hint = did_you_mean(wrong[0], [*known, ALL]).replace("known names", "figures")
        raise fail(f"there is no figure {', '.join(wrong)}", fix=hint)
    if not names:
        return _list(known.values(), form, quiet)
    from tensorprog.show.plots import need_matplotlib
    from tensorprog.show.progress import Progress

    need_matplotlib()
    settings = example.Settings(samples, seed or 0, repeats)
    chosen = [known[name] for name in (known if ALL in names else dict.fromkeys(names))]
    made = []
    with Progress(notes=not quiet).shown() as listener:
        for number, figure in enumerate(chosen, 1):
            listener.stage(f"figure {number} of {len(chosen)}, {figure.name}")
            made.append(example.make(figure, settings, out, listener))
    if form == "json":
        print_json({"figures": made})
    elif not quiet:
        echo(
            "\n\n".join(
                "\n".join(
                    [
                        f"{found['title']}: {found['shows']}",
                        *(f"  {line}" for line in found["summary"]),
                        places(out, found["files"]),
                    ]
                )
                for found in made
            )
        )
    return 0


def _list(figures: Iterable[Any], form: str, quiet: bool) -> int:
    """The figures by name."""
    if form == "json":
        print_json({"figures": [{"figure": f.name, "title": f.title, "shows": f.shows} for f in figures]})
    elif not quiet:
        rows = tuple((f.name, f.title, f.shows) for f in figures)
        show([Grid("", ("figure", "in the paper", "what"), rows, text_columns=(0, 1, 2))])
    return 0

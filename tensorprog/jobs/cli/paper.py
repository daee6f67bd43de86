"""`tp paper`: the figures of the paper, each by one command."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from tensorprog.blocks import Grid
from tensorprog.jobs.cli.frame import COMMANDS, OUTPUT, Command
from tensorprog.jobs.cli.options import ALL, FORMAT, QUIET, SEED, Place, figures, option, options, whole_number
from tensorprog.jobs.cli.shared import echo, print_json, show
from tensorprog.language.errors import did_you_mean, fail


@click.command(
    cls=Command, heading=COMMANDS[2], short_help="The figures of the paper, with their data.",
    examples=[("", "list them"), ("fig1b", "KL divergence against the width"), ("all", "all of them, in some minutes")],
)
@click.argument("names", metavar="[FIGURE]...", nargs=-1, shell_complete=figures)
@option("--samples", metavar="N", default="50000", show_default=True, callback=whole_number("--samples", 100),
        help="Networks drawn at each width.")
@option("--repeats", metavar="N", default="10", show_default=True, callback=whole_number("--repeats", 2),
        help="Trials of the figures on KL divergence.")
@options(SEED)
@option("--out", metavar="DIR", type=Place(file_okay=False), default=Path("runs/paper"),
        show_default=True, heading=OUTPUT, help="Where files go.")
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
    from tensorprog.results.study import duration
    from tensorprog.show.progress import Progress

    settings = example.Settings(samples, seed or 0, repeats)
    chosen = [known[name] for name in (known if ALL in names else dict.fromkeys(names))]
    seconds = sum(figure.drawing.cost(settings) for figure in chosen)
    with Progress(notes=not quiet).shown() as listener:
        listener.note(f"estimate: about {duration(seconds)} for drawing networks")
        made = [example.make(figure, settings, out, listener) for figure in chosen]
    if form == "json":
        print_json({"figures": made})
    elif not quiet:
        echo("\n\n".join(_text(found, out) for found in made))
    return 0


def _text(found: dict[str, Any], out: Path) -> str:
    """What a figure shows, its most important numbers, and where it is."""
    return "\n".join([f"{found['title']}: {found['shows']}", *(f"  {line}" for line in found["summary"]),
                      f"written to {out}{os.sep}", *(f"  {name}" for name in found["files"])])


def _list(figures: Iterable[Any], form: str, quiet: bool) -> int:
    """The figures by name."""
    if form == "json":
        print_json({"figures": [{"figure": f.name, "title": f.title, "shows": f.shows} for f in figures]})
    elif not quiet:
        rows = tuple((f.name, f.title, f.shows) for f in figures)
        show([Grid("", ("figure", "in the paper", "what"), rows, text_columns=(0, 1, 2))])
    return 0

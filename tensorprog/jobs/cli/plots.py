"""`tp plot`: figures for papers from the folder of a run, drawn again without computing anything again."""

from __future__ import annotations

from pathlib import Path

import click

from tensorprog.jobs.cli.frame import BAD_INPUT, COMMANDS, DONE, NOT_MET, OUTPUT, Command, echo, notice, places
from tensorprog.jobs.cli.options import QUIET, Place, option, options
from tensorprog.language.errors import did_you_mean, fail

PAPERS = ("column", "page")
ENDINGS = ("png", "svg", "pdf")


def _endings(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    """Endings of files, separated by commas."""
    found = tuple(dict.fromkeys(part.strip().lower().removeprefix(".") for part in text.split(",")))
    for name in found:
        if name not in ENDINGS:
            raise fail(
                f"--format {name[:40]}: figures are not written so",
                fix=did_you_mean(name[:40], list(ENDINGS)).replace("known names", "formats"),
            )
    return found


@click.command(
    cls=Command,
    heading=COMMANDS[2],
    exits=(DONE, BAD_INPUT, NOT_MET),
    short_help="Figures for papers from the folder of a run.",
    examples=[
        ("runs/attention", "all figures of a run, as wide as a page"),
        ("runs/attention --what density --style column", "one, for a column"),
        ("runs/attention --what convergence --panel kl --format pdf", "one panel of it"),
        ("runs/attention-depth --style column", "the picture of tp depth"),
        ("runs/paper --what fig1a --style column", "a figure of the paper"),
    ],
)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@option(
    "--what",
    metavar="FIGURE",
    multiple=True,
    help="density, convergence or covariance of a run, depth, or a figure of the paper; may be repeated. Default "
    "all that the folder has.",
)
@option("--variable", metavar="NAME", help="A member such as y[1], or for a covariance a family; default the first.")
@option(
    "--panel",
    "panels",
    metavar="NAME",
    multiple=True,
    help="linear or log of density; kl, ks, w1, excess, variance or kurtosis of convergence; may be repeated.",
)
@option(
    "--style",
    type=click.Choice(PAPERS),
    metavar="STYLE",
    default="page",
    show_default=True,
    help="column, 3.3 inches wide, or page, 6.9 inches wide.",
)
@option(
    "--format",
    "endings",
    metavar="FORMAT,..",
    default=",".join(ENDINGS),
    show_default=True,
    callback=_endings,
    heading=OUTPUT,
    help="How figures are written; text in SVG and PDF can be edited.",
)
@option(
    "--out",
    metavar="DIR",
    type=Place(file_okay=False),
    heading=OUTPUT,
    help="Where files go; default the folder itself.",
)
@options(QUIET)
def plot(
    folder: Path,
    what: tuple[str, ...],
    variable: str | None,
    panels: tuple[str, ...],
    style: str,
    endings: tuple[str, ...],
    out: Path | None,
    quiet: bool,
) -> int:
    """Draw figures of FOLDER, which tp run, tp depth or tp paper has written, in the size that a paper needs.

    Nothing is drawn from networks or computed of the limit again: figures are made from what the folder holds, and the
    same folder gives the same bytes. The files are called <figure>-<style>.<format>.
    """
    from tensorprog.jobs.saved import Wish, saved_figures
    from tensorprog.language.files import writing

    figures = saved_figures(folder, what, Wish(variable, panels), notice)
    target = out or folder
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    names = []
    for name, save in figures.items():
        for ending in endings:
            names.append(f"{name}-{style}.{ending}")
            with writing(target / names[-1]):
                save(target / names[-1], style)
    if not quiet:
        echo(places(target, names))
    return DONE

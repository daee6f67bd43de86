"""Studies: `tp sweep`, `tp depth`, `tp solve`, `tp train`, and `tp paper`, the figures of the paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from tensorprog.blocks import Grid
from tensorprog.jobs.cli.frame import (
    DONE,
    FILE,
    FORMAT,
    MEMORY,
    OUTSIDE,
    QUIET,
    REQUIRE,
    SCHEDULER,
    SEED,
    SET,
    WIDTH,
    Command,
    answer,
    cluster,
    exit_code,
    header,
    interval,
    most_memory,
    notice,
    number,
    open_program,
    option,
    options,
    out,
    pairs,
    places,
    watching,
    widths,
)
from tensorprog.language.errors import MissingPackageError, did_you_mean, fail, need_package

__all__ = ["depth", "paper", "solve", "sweep", "train"]

ALL = "all"  # the name of all figures together
INDEX = option("--index", metavar="INDEX", help="The index of layers; default the one that recurs.")
TO = number("--to", 1, "The last layer, in place of the constant that bounds the index.")
DRAWS = number("--draws", 16, "Draws of the scores, the same for all values of constants.", "4096")


@click.command(
    cls=Command,
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
    callback=pairs("--over", "NAME=VALUE,VALUE,..", "H=1,2,4"),
    help="Values of a constant, e.g. H=1,2,4; repeated, all combinations.",
)
@options(number("--repeats", 1, "Repeats of each cell, with networks of their own.", "10"))
@options(number("--samples", 2, "Networks drawn in each cell."), SEED)
@option(
    "--variable",
    "variables",
    metavar="NAME",
    multiple=True,
    help="A member such as y[0], may be repeated; default the first of each output.",
)
@options(number("--workers", 1, "Processes that draw networks; default one, on all cores."), SCHEDULER, MEMORY)
@options(out("Where files go; default runs/<program>-sweep."), FORMAT, QUIET)
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
    max_memory: int | None,
    out: Path | None,
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
    from tensorprog.jobs.choices import choices_of
    from tensorprog.jobs.sweeps import AXES, no_limit, tables
    from tensorprog.jobs.sweeps import sweep as perform
    from tensorprog.results.study import default_out, settings_of

    chosen = settings_of(program.netsor, {"width": width, "samples": samples, "seed": seed, "max_memory": max_memory})
    keys: dict[str, Any] = {"samples": chosen.samples, "seed": chosen.seed, "repeats": repeats}
    given: dict[str, Any] = keys | {"over": over, "variables": variables or None, "workers": workers}
    given |= {"max_memory": chosen.max_memory}
    folder = out or default_out(program.netsor, "-sweep")
    with watching() as told, cluster(scheduler) as executor:
        told.stage("cells of the sweep")
        try:
            found = perform(program, chosen.width, **given, out=folder, executor=executor, progress=told.progress)
        except KeyboardInterrupt:
            told.note("the same command goes on from there")
            raise
    files = sorted(path.name for path in folder.iterdir() if path.suffix in (".nc", ".csv", ".png"))
    answer(
        lambda: {"program": program.name, **keys, "sweep": found.to_dict(), "files": files},
        lambda: [*(part for table in tables(found) for part in (table, "")), places(folder, files)],
    )
    return DONE if len(no_limit(found)) < len(choices_of(found, AXES)) else OUTSIDE


def _written(folder: Path, name: str, content: dict[str, Any], draw: Callable[[Path], None]) -> list[str]:
    """The names of the files of a study: its numbers as JSON, and a picture where there is matplotlib."""
    from tensorprog.language.files import json_text, write_text, writing

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.json", json_text(content))
    try:
        with writing(folder / f"{name}.png"):
            draw(folder / f"{name}.png")
    except MissingPackageError as error:
        notice(f"there is no picture: {error}")
        return [f"{name}.json"]
    return [f"{name}.json", f"{name}.png"]


# ---- layers ----------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    short_help="Tokens from layer to layer: variance, correlation, rank, entropy.",
    examples=[
        ("deep_attention x --to 8", "a table of eight layers, and a picture"),
        ("deep_attention x --to 8 --set C=1,2,4", "three curves"),
        ("deep_attention x --to 4 --width 64", "networks of width 64 beside the limit"),
    ],
)
@options(FILE)
@click.argument("family", metavar="Z")
@options(INDEX, TO)
@option(
    "--set",
    "given",
    metavar="NAME=V,..",
    multiple=True,
    callback=pairs("--set", "NAME=VALUE,VALUE,..", "g=1,4,16"),
    help="Replace a constant of the program, by one value or by several that are compared; may be repeated.",
)
@option("--gradients", is_flag=True, help="Squared norms of gradients too, by the adjoint program.")
@options(WIDTH, number("--samples", 32, "Networks drawn at each width.", "1024"), SEED, DRAWS, MEMORY)
@options(out("Where files go; default runs/<program>-depth."), FORMAT, QUIET, REQUIRE)
def depth(
    file: str,
    family: str,
    index: str | None,
    to: int | None,
    given: dict[str, list[str]],
    gradients: bool,
    width: tuple[int, ...] | None,
    samples: int,
    seed: int | None,
    draws: int,
    max_memory: int | None,
    out: Path | None,
) -> int:
    """Follow the tokens of a family Z of FILE, such as z of z[t,i], through the layers of the limit.

    For every layer: the variance of a coordinate, the mean correlation of two tokens, the effective rank of all tokens,
    the entropy of attention and the kurtosis, each with its error. The folder receives depth.json, which
    xarray.Dataset.from_dict reads, and depth.png: curves for several values of one constant, maps of the last layer for
    several values of two. With --width networks stand beside the limit.
    """
    program = open_program(file, {name: values[0] for name, values in given.items() if len(values) == 1})
    from tensorprog.jobs.depths import depth as profile
    from tensorprog.jobs.depths.results import save_picture, tables
    from tensorprog.results.study import default_out

    asked: dict[str, Any] = {"index": index, "to": to, "over": {n: v for n, v in given.items() if len(v) > 1}}
    drawn: dict[str, Any] = {"width": width or (), "draws": draws, "samples": samples, "seed": seed or 0}
    drawn |= {"max_memory": max_memory or "1GiB"}
    with watching() as listener:
        found = profile(program, family, gradients=gradients, progress=listener.progress, **asked, **drawn)
    folder, report = out or default_out(program.netsor, "-depth"), program.check()
    text = header(program.netsor, report) | {"profile": found.to_dict()}
    written = _written(folder, "depth", text, lambda path: save_picture(path, found))
    blocks = chain.from_iterable(("", block) for block in tables(found, report))
    answer(lambda: text, lambda: [*blocks, "", places(folder, written)])
    return exit_code(report.grade)


@click.command(
    cls=Command,
    short_help="The constant for which a quantity of a layer is as wanted.",
    examples=[
        ("resnet sigma_w2 --make variance --of z --be 2", "the weight variance that doubles the signal"),
        ("mine.yaml beta --make token_correlation --of z --be 0.5 --to 50", "a branch scale for fifty layers"),
        ("mine.yaml sigma_w --make variance --growth --of d --be 1", "where a signal neither grows nor falls"),
    ],
)
@options(FILE)
@click.argument("constant", metavar="CONSTANT")
@option(
    "--make",
    "quantity",
    metavar="QUANTITY",
    required=True,
    help="variance, token_correlation, effective_rank, attention_entropy, kurtosis or gradient_norm.",
)
@option("--of", "family", metavar="Z", required=True, help="The family, such as z of z[t,i].")
@option("--be", "value", metavar="X", type=float, required=True, help="The value that the quantity is to have.")
@option("--growth", is_flag=True, help="Make the factor from the last layer but one to the last so large.")
@options(INDEX, TO, SET)
@option("--between", metavar="A,B", callback=interval, help="Look from A to B instead of around the program's value.")
@options(SEED, DRAWS, MEMORY, FORMAT, QUIET, REQUIRE)
def solve(
    file: str,
    constant: str,
    quantity: str,
    family: str,
    value: float,
    growth: bool,
    index: str | None,
    to: int | None,
    overrides: dict[str, str],
    between: tuple[float, float] | None,
    seed: int | None,
    draws: int,
    max_memory: int | None,
) -> int:
    """Find the CONSTANT of FILE for which a quantity of the last layer of a family has a value.

    Values are tried outwards from that in the program, up to a thousand times as large and as small, with the same
    draws of the scores; the nearest that fits is given with its error. The exit code is 3 where none fits.
    """
    program = open_program(file, overrides)
    from tensorprog.jobs.depths.question import ask
    from tensorprog.jobs.depths.results import summary
    from tensorprog.jobs.depths.solving import Search
    from tensorprog.language.formats import quantity as number

    question = ask(program, family, index, to, quantity == "gradient_norm", max_memory or "1GiB")
    search = Search(question, constant, quantity, value, growth, draws, seed or 0)
    report, found = program.check(), search.find(between)
    about = {"constant": constant, "quantity": quantity, "growth": growth, "of": family, "index": question.index}
    error = found["error"] if found["error"] > 1e-9 * abs(found["value"]) else 0.0
    told = f"{constant} = {number(found['value'], error)}: {search.said} of {search.place} is {value:g}"
    layer = {"layer": question.layers[search.places[0]]}
    answer(
        lambda: header(program.netsor, report) | about | layer | found,
        lambda: [summary(program.netsor.name, report), told],
    )
    return exit_code(report.grade)


# ---- training --------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    short_help="The first steps of training: sizes at each width beside the limit.",
    examples=[
        ("mup_mlp", "a coordinate check with its limit, and a picture"),
        ("mup_mlp --steps 8 --lr 0.5", "more steps, a smaller learning rate"),
        ("sp_mlp --widths 64,256,1024", "a network whose sizes grow with the width"),
    ],
)
@options(FILE, SET)
@option("--width", "--widths", "width", metavar="N,..", multiple=True, callback=widths, help="Widths, e.g. 256,1024.")
@options(number("--steps", 1, "Steps of gradient descent."))
@option("--lr", metavar="X", help="Learning rate, 1 on the scale of muP; an expression in n if it depends on it.")
@option("--loss", metavar="L", help="The loss, a scalar of the program.")
@options(number("--samples", 2, "Networks drawn at each width.", "100"), SEED)
@options(most_memory("networks and the limit", "2GiB"))
@options(out("Where files go; default runs/<program>-train."), FORMAT, QUIET, REQUIRE)
def train(
    file: str,
    overrides: dict[str, str],
    width: tuple[int, ...] | None,
    steps: int | None,
    lr: str | None,
    loss: str | None,
    samples: int,
    seed: int | None,
    max_memory: int | None,
    out: Path | None,
) -> int:
    """Follow FILE through the first steps of training: losses, outputs, and the size of each family of vectors.

    Networks of each width stand beside the limit of infinite width, if there is one; sentences say which lines are not
    flat in the width, and why. Loss, steps and learning rates come from the program's `train:` section, where options
    leave them out. The folder receives train.json, which xarray.Dataset.from_dict reads, and train.png. The exit code
    is 1 if there is no limit.
    """
    program = open_program(file, overrides)
    from tensorprog.results.study import default_out
    from tensorprog.show import plots
    from tensorprog.training import train as perform
    from tensorprog.training.report import tables

    drawn: dict[str, Any] = {"samples": samples, "seed": seed or 0, "max_memory": max_memory or "2GiB"}
    with watching() as told:
        told.stage("the limit and networks of each width")
        given: dict[str, Any] = {"steps": steps, "lr": lr, "loss": loss, "widths": width or (256, 1024)}
        found = perform(program, **given, **drawn, progress=told.progress)
    folder, panels = out or default_out(program.netsor, "-train"), found.sizes["family"]
    draw = partial(plots.coordinate_check, found, "size")
    written = _written(folder, "train", found.to_dict(), lambda path: plots.save(path, draw, panels))
    answer(
        found.to_dict,
        lambda: [*(p for table in tables(found) for p in (table, "")), places(folder, written)],
    )
    return exit_code(found.attrs["grade"])


# ---- tp paper --------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    short_help="The figures of the paper, with their data.",
    examples=[("", "list them"), ("fig1b", "KL divergence against the width"), ("all", "all of them, in some minutes")],
)
@click.argument("names", metavar="[FIGURE]...", nargs=-1)
@options(number("--samples", 100, "Networks drawn at each width.", "50000"))
@options(number("--repeats", 2, "Trials of the figures on KL divergence.", "10"), SEED)
@options(most_memory("networks", "3GiB"))
@options(out("Where files go.", default=Path("runs/paper"), show_default=True), FORMAT, QUIET)
def paper(
    names: tuple[str, ...], samples: int, repeats: int, seed: int | None, max_memory: int | None, out: Path
) -> int:
    """Make figures of Sakai, Karakida & Imaizumi 2025: fig1a, fig1b, fig2a, fig2b, fig3, relu, or all.

    Without a FIGURE they are listed. For each the folder receives the picture as .png, .svg and .pdf, tables of
    everything drawn as .csv, and a .json file with its numbers, versions, and the command that makes it again.
    """
    from tensorprog.shipped import paper_figures

    example = paper_figures()
    known: dict[str, Any] = example.FIGURES
    wrong = [name for name in names if name not in known and name != ALL]
    if wrong:
        hint = did_you_mean(wrong[0], [*known, ALL]).replace("known names", "figures")
        raise fail(f"there is no figure {', '.join(wrong)}", fix=hint)
    if not names:
        rows, keys = tuple((one.name, one.title, one.shows) for one in known.values()), ("figure", "title", "shows")
        answer(
            lambda: {"figures": [dict(zip(keys, row, strict=True)) for row in rows]},
            lambda: [Grid("", ("figure", "in the paper", "what"), rows, text_columns=(0, 1, 2))],
        )
        return DONE
    need_package("matplotlib", "pictures", "plot")
    settings, made = example.Settings(samples, seed or 0, repeats, max_memory or "3GiB"), list[Any]()
    chosen = [known[name] for name in (known if ALL in names else dict.fromkeys(names))]
    with watching() as listener:
        for count, figure in enumerate(chosen, 1):
            listener.stage(f"figure {count} of {len(chosen)}, {figure.name}")
            made.append(example.make(figure, settings, out, listener))
    answer(
        lambda: {"figures": made},
        lambda: [
            "\n".join([f"{one['title']}: {one['shows']}", *(f"  {line}" for line in one["summary"])])
            + f"\n{places(out, one['files'])}"
            for one in made
        ],
    )
    return DONE

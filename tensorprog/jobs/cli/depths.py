"""`tp depth`: what happens to tokens from layer to layer; `tp solve`: constants for which it is as wanted."""

from __future__ import annotations

from pathlib import Path

import click

from tensorprog.jobs.cli.frame import (
    COMMANDS,
    OUTPUT,
    RESOURCES,
    Command,
    echo,
    exit_code,
    header,
    notice,
    open_program,
    places,
    print_json,
    show,
)
from tensorprog.jobs.cli.options import (
    FILE,
    FORMAT,
    QUIET,
    REQUIRE,
    SEED,
    WIDTH,
    Place,
    constants,
    indices,
    interval,
    lists,
    option,
    options,
    whole_number,
)
from tensorprog.jobs.cli.options import SET as ONE

SET = option(
    "--set",
    "given",
    metavar="NAME=V,..",
    multiple=True,
    callback=lists,
    shell_complete=constants,
    help="Replace a constant of the program, by one value or by several that are compared; may be repeated.",
)
INDEX = option(
    "--index", metavar="INDEX", shell_complete=indices, help="The index of layers; default the one that recurs."
)
TO = option(
    "--to",
    metavar="LAYER",
    callback=whole_number("--to", 1),
    help="The last layer, in place of the constant that bounds the index.",
)
TOKENS = option(
    "--tokens", metavar="INDEX", shell_complete=indices, help="The index of tokens; default the last other one."
)
DRAWS = option(
    "--draws",
    metavar="N",
    default="4096",
    show_default=True,
    callback=whole_number("--draws", 16),
    heading=RESOURCES,
    help="Draws of the scores, the same for all values of constants.",
)


@click.command(
    cls=Command,
    heading=COMMANDS[2],
    short_help="Tokens from layer to layer: variance, correlation, rank, entropy.",
    examples=[
        ("deep_attention x --to 8", "a table of eight layers, and a picture"),
        ("deep_attention x --to 8 --set C=1,2,4", "three curves"),
        ("deep_attention x --to 4 --width 64", "networks of width 64 beside the limit"),
    ],
)
@options(FILE)
@click.argument("family", metavar="Z")
@options(INDEX, TO, TOKENS, SET)
@option("--gradients", is_flag=True, help="Squared norms of gradients too, by the adjoint program.")
@options(WIDTH)
@option(
    "--samples",
    metavar="N",
    default="1024",
    show_default=True,
    callback=whole_number("--samples", 32),
    help="Networks drawn at each width.",
)
@options(SEED, DRAWS)
@option("--out", metavar="DIR", type=Place(), heading=OUTPUT, help="Where files go; default runs/<program>-depth.")
@options(FORMAT, QUIET, REQUIRE)
def depth(
    file: str,
    family: str,
    index: str | None,
    to: int | None,
    tokens: str | None,
    given: dict[str, list[str]],
    gradients: bool,
    width: tuple[int, ...] | None,
    samples: int,
    seed: int | None,
    draws: int,
    out: Path | None,
    form: str,
    quiet: bool,
    require: str | None,
) -> int:
    """Follow the tokens of a family Z of FILE, such as z of z[t,i], through the layers of the limit.

    For every layer: the variance of a coordinate, the mean correlation of two tokens, the effective rank of all tokens,
    the entropy of attention and the kurtosis, each with its error. The folder receives depth.json and depth.png: curves
    for several values of one constant, maps of the last layer for several values of two. With --width networks stand
    beside the limit.
    """
    program = open_program(file, {name: values[0] for name, values in given.items() if len(values) == 1})
    from tensorprog.jobs.depths import profile
    from tensorprog.jobs.depths.pictures import save_picture
    from tensorprog.jobs.depths.question import ask
    from tensorprog.language.files import json_text, write_text
    from tensorprog.results.study import default_out
    from tensorprog.show.plots import PlotsUnavailableError, need_matplotlib
    from tensorprog.show.progress import Progress

    over = {name: values for name, values in given.items() if len(values) > 1}
    question = ask(program, family, index, to, over, tokens, gradients)
    usual = default_out(program.netsor)
    folder = out or usual.with_name(f"{usual.name}-depth")
    try:
        need_matplotlib()
    except PlotsUnavailableError as error:
        notice(f"there will be no picture: {error}")
    with Progress(notes=not quiet).shown() as listener:
        found = profile(question, width or (), draws, samples, seed or 0, listener)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "depth.json", json_text(found.to_json()))
    found.written.append(folder / "depth.json")
    try:
        save_picture(folder / "depth.png", found.to_json())
        found.written.append(folder / "depth.png")
    except PlotsUnavailableError:  # which has been said
        pass
    if form == "json":
        print_json(found.to_json())
    elif not quiet:
        show(found.blocks(), apart=True)
        echo("\n" + places(folder, (path.relative_to(folder) for path in found.written)))
    return exit_code(found.report.grade, require)


@click.command(
    cls=Command,
    heading=COMMANDS[2],
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
@options(INDEX, TO, TOKENS, ONE)
@option("--between", metavar="A,B", callback=interval, help="Look from A to B instead of around the program's value.")
@options(SEED, DRAWS, FORMAT, QUIET, REQUIRE)
def solve(
    file: str,
    constant: str,
    quantity: str,
    family: str,
    value: float,
    growth: bool,
    index: str | None,
    to: int | None,
    tokens: str | None,
    overrides: dict[str, str],
    between: tuple[float, float] | None,
    seed: int | None,
    draws: int,
    form: str,
    quiet: bool,
    require: str | None,
) -> int:
    """Find the CONSTANT of FILE for which a quantity of the last layer of a family has a value.

    Values are tried outwards from that in the program, up to a thousand times as large and as small, with the same
    draws of the scores; the nearest that fits is given with its error. The exit code is 3 where none fits.
    """
    program = open_program(file, overrides)
    from tensorprog.finite.workers import one_blas_thread
    from tensorprog.jobs.depths import per_replicate
    from tensorprog.jobs.depths.question import ask
    from tensorprog.jobs.depths.results import summary
    from tensorprog.jobs.depths.root import Wanted, root
    from tensorprog.language.formats import quantity as number

    wanted = Wanted(constant, quantity, value, growth)
    question = ask(program, family, index, to, None, tokens, quantity == "gradient_norm")
    report = program.check()
    with one_blas_thread():
        found = root(question, wanted, per_replicate(draws), seed or 0, between)
    if form == "json":
        print_json(
            header(program.netsor, report)
            | {
                "constant": constant,
                "value": found.value,
                "error": found.error,
                "quantity": quantity,
                "growth": growth,
                "of": family,
                "index": question.index,
                "layer": question.layers[-1],
                "reached": found.reached,
                "reached_error": found.reached_error,
                "slope": found.slope,
            }
        )
    elif not quiet:
        show([summary(program.netsor.name, report)])
        error = found.error if found.error > 1e-9 * abs(found.value) else 0.0
        layer = question.layers[0 if quantity == "gradient_norm" and not growth else -1]
        echo(
            f"{constant} = {number(found.value, error)}: {wanted.said} of {family} at {question.index} = {layer} is "
            f"{value:g}"
        )
    return exit_code(report.grade, require)

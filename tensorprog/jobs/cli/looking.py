"""`tp plan` and `tp graph`: a program looked at, with nothing drawn at random."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import click

from tensorprog.jobs.cli.exits import SIMPLE, Command
from tensorprog.jobs.cli.help import COMMANDS, OUTPUT
from tensorprog.jobs.cli.options import FILE, FORMAT, METHOD, QUIET, SET, WIDTH, Place, option, options
from tensorprog.jobs.cli.shared import echo, load, open_program, print_json, show, writable
from tensorprog.language.errors import fail

KINDS = (".svg", ".dot", ".gv", ".mmd", ".md")


@click.command(
    cls=Command, heading=COMMANDS[1], exits=SIMPLE, short_help="Show how networks of finite width would be drawn.",
    examples=[("attention", "at the program's own widths"),
              ("attention --width 1024 --method lazy", "at one width, by one method")],
)
@options(FILE, SET, WIDTH, METHOD, FORMAT, QUIET)
def plan(
    file: str, overrides: dict[str, str], width: tuple[int, ...] | None, method: str | None, form: str, quiet: bool
) -> int:
    """Show how networks of FILE would be drawn: for each statement, how its vectors are represented and the random
    numbers of one network. Nothing is drawn.
    """
    program = open_program(file, overrides)
    from tensorprog.results.study import settings_of

    settings = settings_of(program.netsor, {"width": width, "method": method})
    choices = {"method": settings.method, "coordinates": settings.coordinates, "keep": settings.keep,
               "averages": dict(settings.averages)}
    plans = [program.plan(n, **choices) for n in settings.width]
    if form == "json":
        print_json({"program": program.netsor.name, "plans": [each.to_json() for each in plans]})
    elif not quiet:
        for each in plans:
            show(each.blocks())
    return 0


@click.command(
    cls=Command, heading=COMMANDS[1], exits=SIMPLE, short_help="Draw the program as a graph.",
    examples=[("attention -o attention.svg", "a picture"),
              ("attention_tied --check -o tied.svg", "what is at fault, and where"),
              ("attention", "Mermaid text on the screen")],
)
@options(FILE, SET)
@option("--check", "judged", is_flag=True, help="Show the roles of Assumption 1, the grade and what is at fault.")
@option("-o", "--out", metavar="FILE", type=Place(), heading=OUTPUT,
        help="The file to write: .svg, .dot, or .mmd and .md for Mermaid; without it Mermaid text is printed.")
@QUIET
def graph(file: str, overrides: dict[str, str], judged: bool, out: Path | None, quiet: bool) -> int:
    """Draw the program as a graph, one node per statement, initial vector and weight.

    With --check boxes tell what they are in Assumption 1 (operands, their inputs and weights, scores, outputs), the
    title has the grade, and faults are numbered, with the path that leads to them, and listed.
    """
    if out is not None:
        if out.suffix.lower() not in KINDS:
            name = Path(file).stem if out.name.lower() in ("", "..", *KINDS) else out.stem
            raise fail(f"{out}: pictures of programs end in {', '.join(KINDS)}", fix=f"-o {out.parent / name}.svg")
        writable(out)
    netsor = load(file, overrides)
    from tensorprog.check.graph import build
    from tensorprog.language.files import write_text
    from tensorprog.results.judge import judge
    from tensorprog.show import graphs

    kind = out.suffix.lower() if out is not None else ".mmd"
    draw = {".svg": graphs.to_svg, ".dot": graphs.to_dot, ".gv": graphs.to_dot}.get(kind, graphs.to_mermaid)
    view, report = build(netsor), judge(netsor) if judged else None
    text = draw(view, report)
    if kind == ".md":
        text = _page(netsor.title or netsor.name, text, graphs.captions(view, report))
    if out is not None:
        write_text(out, text)
    if not quiet:
        echo(text.rstrip() if out is None else f"written to {out}")
    return 0


def _page(title: str, picture: str, captions: Sequence[str]) -> str:
    """Markdown around a picture; what a file's author wrote is text in it, never markup."""
    heading = html.escape(" ".join(title.split()), quote=False)
    listed = ["", "```text", *(" ".join(caption.split()) for caption in captions), "```"] if captions else []
    return "\n".join([f"# {heading}", "", "```mermaid", picture.rstrip(), "```", *listed, ""])

"""`tp list`, `tp new` and `tp graph`: programs, with nothing computed."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

import click

from tensorprog.blocks import Grid
from tensorprog.jobs.cli.frame import COMMANDS, OUTPUT, SIMPLE, Command, echo, load, print_json, show, writable
from tensorprog.jobs.cli.options import FILE, FORMAT, QUIET, SET, SUFFIXES, Place, files, option, options
from tensorprog.language.errors import fail
from tensorprog.language.files import is_reserved, whole, write_text, writing
from tensorprog.shipped import SCHEMA, STARTER, judged, resolve

if TYPE_CHECKING:
    from tensorprog.language.atoms.core import Regularity

KINDS = (".svg", ".dot", ".gv", ".mmd", ".md")
MODELINE = "# yaml-language-server: $schema="


# ---- tp list --------------------------------------------------------------------------------------------------------


@click.command(
    name="list",
    cls=Command,
    heading=COMMANDS[3],
    exits=SIMPLE,
    short_help="List the programs that ship.",
    examples=[("", "the programs and their grades"), ("--atoms", "the functions that programs may use")],
)
@option("--atoms", is_flag=True, help="List the nonlinearities that programs may use instead.")
@options(FORMAT, QUIET)
def list_(atoms: bool, form: str, quiet: bool) -> int:
    """List the shipped programs with the grade of each."""
    columns, rows = (
        (("name", "arguments", "range", "Lipschitz", "what"), atom_rows())
        if atoms
        else (("name", "grade", "title"), judged())
    )
    if form == "json":
        print_json({"atoms" if atoms else "programs": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif not quiet:
        show([Grid("", columns, tuple(rows), text_columns=tuple(range(len(columns))))])
    return 0


def atom_rows() -> list[tuple[str, ...]]:
    """Name, arguments, range, Lipschitz constant and purpose of each function."""
    from tensorprog.language.atoms import ATOMS, REDUCTIONS

    rows: list[tuple[str, ...]] = []
    for atom in ATOMS.values():
        names = [
            *["x", "y", "z"][: atom.arity],
            *(key if value is None else f"{key}={value:g}" for key, value in atom.params.items()),
        ]
        interval = "" if atom.params or atom.bounds is None else "[{:g}, {:g}]".format(*atom.bounds())
        everywhere = (-float("inf"), float("inf"))
        defaults = [value for value in atom.params.values() if value is not None]
        complete = len(defaults) == len(atom.params)
        regularity = atom.regularity_on(everywhere, *defaults) if atom.arity == 1 and complete else atom.regularity
        lipschitz = _lipschitz(regularity, complete)
        written = f"x {atom.operator} y" if atom.operator and atom.arity + len(atom.params) == 2 else ", ".join(names)
        rows.append((atom.name, written, interval, lipschitz, atom.doc))
    for reducer in REDUCTIONS.values():
        interval = "[{:g}, {:g}]".format(*reducer.bounds) if reducer.bounds is not None else ""
        rows.append((f"{reducer.name}[i]", "x", interval, "yes" if reducer.lipschitz else "no", reducer.doc))
    return rows


def _lipschitz(regularity: Regularity, complete: bool) -> str:
    """The best constant, `yes` if there is one that depends on the norm, '' if that depends on parameters."""
    if regularity.lipschitz < float("inf"):
        return f"{regularity.lipschitz:.4g}"
    return "yes" if regularity.modulus == 0 else "no" if complete else ""


# ---- tp new ---------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    heading=COMMANDS[3],
    exits=SIMPLE,
    short_help="Write a commented program file to start from.",
    examples=[
        ("mine", "a small attention layer, into mine.yaml"),
        ("mine --from lstm", "a copy of a program that ships"),
        ("mine -o programs/mine.yaml", "into another file"),
    ],
)
@click.argument("name", metavar="NAME")
@option(
    "--from",
    "source",
    metavar="PROGRAM",
    shell_complete=files,
    help="Copy this program, shipped or a file, with the data it reads; default a small attention layer.",
)
@option(
    "-o",
    "--out",
    metavar="FILE",
    type=Place(),
    heading=OUTPUT,
    help="The file to write, or the folder to put it into; default NAME.yaml.",
)
@option("--force", is_flag=True, heading=OUTPUT, help="Replace files that exist.")
@QUIET
def new(name: str, source: str | None, out: Path | None, force: bool, quiet: bool) -> int:
    """Write NAME.yaml, a small program with a comment on every section, ready to be checked, run and changed.

    Its first line leads editors to the schema of program files.
    """
    _named(name)
    target = out / f"{name}.yaml" if out is not None and out.is_dir() else out or Path(f"{name}.yaml")
    if target.suffix.lower() not in SUFFIXES:
        raise fail(f"{target}: program files end in {' or '.join(SUFFIXES)}", fix=f"-o {target.with_suffix('.yaml')}")
    if is_reserved(target.name):
        raise fail(f"{target} is the name of a device on Windows", fix="choose another name")
    writable(target)
    path = resolve(source) if source is not None else STARTER
    tables = load(str(path), {}).tables.values()
    written = {target: _text(path, name).encode()}
    written |= _data(path.parent, target.parent, [table.file for table in tables if table.file])
    taken = [path for path in written if path.exists() and (path == target or path.read_bytes() != written[path])]
    if taken and not force:
        raise fail(f"{', '.join(map(str, taken))}: there already", fix="another NAME, or --force to replace")
    for path, content in written.items():
        with writing(path, "choose another place with -o"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole(path) as partial:
                partial.write_bytes(content)
    if not quiet:
        shown, picture = shlex.quote(str(target)), shlex.quote(str(target.with_suffix(".svg")))
        commands = (f"tp check {shown}", f"tp-run {shown}", f"tp graph {shown} -o {picture}")
        echo("\n".join([*(f"written to {path}" for path in written), "next:", *(f"  {text}" for text in commands)]))
    return 0


def _named(name: str) -> None:
    """Refuse names that could not be those of a program and of its file, everywhere."""
    plain = re.sub(r"[^\w.-]+", "_", PureWindowsPath(name).stem).strip("._-") or "mine"
    if PureWindowsPath(name).suffix.lower() in SUFFIXES:
        raise fail(f"{name}: NAME is written without its ending", fix=f"tp new {plain}")
    if "/" in name or "\\" in name:
        raise fail(f"{name}: NAME is the name of a program, not a path", fix=f"tp new {plain} -o FOLDER")
    if is_reserved(name):
        raise fail(f"{name} is the name of a device on Windows", fix=f"tp new {plain}_program")
    if not re.fullmatch(r"\w([\w.-]*\w)?", name):
        raise fail(f"{name!r} cannot name a program: letters, digits, and . - _ between them", fix=f"tp new {plain}")


def _text(path: Path, name: str) -> str:
    """The text of a program under a new name, led by a line for editors."""
    from tensorprog.language.reading import compose

    text = path.read_text(encoding="utf-8-sig")
    root: Any = compose(text, str(path))
    entry = next(value for key, value in root.value if key.value == "program")
    text = f"{text[: entry.start_mark.index]}{name}{text[entry.end_mark.index :]}"
    lines = [line for line in text.splitlines() if not line.startswith(MODELINE)]
    return "\n".join([f"{MODELINE}{SCHEMA.as_uri()}", *lines, ""])


def _data(base: Path, folder: Path, names: Iterable[str]) -> dict[Path, bytes]:
    """Data files by the place where the copy of a program will look for them."""
    from tensorprog.language.data_files import data_path

    return {folder.joinpath(*PureWindowsPath(name).parts): data_path(name, base).read_bytes() for name in names}


# ---- tp graph -------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    heading=COMMANDS[1],
    exits=SIMPLE,
    short_help="Draw the program as a graph.",
    examples=[
        ("attention -o attention.svg", "a picture"),
        ("attention_tied --check -o tied.svg", "what is at fault, and where"),
        ("attention", "Mermaid text on the screen"),
    ],
)
@options(FILE, SET)
@option("--check", "judged", is_flag=True, help="Show the roles of Assumption 1, the grade and what is at fault.")
@option(
    "-o",
    "--out",
    metavar="FILE",
    type=Place(),
    heading=OUTPUT,
    help="The file to write: .svg, .dot, or .mmd and .md for Mermaid; without it Mermaid text is printed.",
)
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
    from tensorprog.results.limit_answers import check_with_limit
    from tensorprog.show import graphs

    kind = out.suffix.lower() if out is not None else ".mmd"
    draw = {".svg": graphs.to_svg, ".dot": graphs.to_dot, ".gv": graphs.to_dot}.get(kind, graphs.to_mermaid)
    view, report = build(netsor), check_with_limit(netsor) if judged else None
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

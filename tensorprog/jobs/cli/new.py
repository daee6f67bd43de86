"""`tp new NAME`: a commented program file to start from."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from typing import Any

import click

from tensorprog.jobs.cli.complete import SUFFIXES, files
from tensorprog.jobs.cli.exits import SIMPLE, Command
from tensorprog.jobs.cli.help import COMMANDS, OUTPUT
from tensorprog.jobs.cli.options import QUIET, Place, option
from tensorprog.jobs.cli.shared import echo, load, writable
from tensorprog.language.errors import fail
from tensorprog.language.files import is_reserved, whole, writing
from tensorprog.shipped import SCHEMA, STARTER, resolve

LONGEST = 60  # characters of a name
MODELINE = "# yaml-language-server: $schema="


@click.command(
    cls=Command, heading=COMMANDS[3], exits=SIMPLE, short_help="Write a commented program file to start from.",
    examples=[("mine", "a small attention layer, into mine.yaml"),
              ("mine --from lstm", "a copy of a program that ships"),
              ("mine -o programs/mine.yaml", "into another file")],
)
@click.argument("name", metavar="NAME")
@option("--from", "source", metavar="PROGRAM", shell_complete=files,
        help="Copy this program, shipped or a file, with the data it reads; default a small attention layer.")
@option("-o", "--out", metavar="FILE", type=Place(), heading=OUTPUT,
        help="The file to write, or the folder to put it into; default NAME.yaml.")
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
    written = {target: _text(path, name, target.parent).encode()}
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
        shown, picture = _quoted(target), _quoted(target.with_suffix(".svg"))
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
    if len(name) > LONGEST:
        raise fail(f"the name has {len(name)} characters, more than {LONGEST}", fix=f"tp new {plain[:20]}")
    if not re.fullmatch(r"\w([\w.-]*\w)?", name):
        raise fail(f"{name!r} cannot name a program: letters, digits, and . - _ between them", fix=f"tp new {plain}")


def _text(path: Path, name: str, folder: Path) -> str:
    """The text of a program under a new name, led by a line for editors."""
    from tensorprog.language.yaml_io.compose import compose

    text = path.read_text(encoding="utf-8-sig")
    root: Any = compose(text, str(path))
    entry = next(value for key, value in root.value if key.value == "program")
    text = f"{text[: entry.start_mark.index]}{name}{text[entry.end_mark.index :]}"
    lines = [line for line in text.splitlines() if not line.startswith(MODELINE)]
    return "\n".join([f"{MODELINE}{_schema(folder)}", *lines, ""])


def _schema(folder: Path) -> str:
    """Where the schema is: relative to a folder that holds the package, so that both may be moved together."""
    place = folder.resolve()
    return SCHEMA.relative_to(place).as_posix() if SCHEMA.is_relative_to(place) else SCHEMA.as_uri()


def _data(base: Path, folder: Path, names: Iterable[str]) -> dict[Path, bytes]:
    """Data files by the place where the copy of a program will look for them."""
    from tensorprog.language.yaml_io.data import data_path

    return {folder.joinpath(*PureWindowsPath(name).parts): data_path(name, base).read_bytes() for name in names}


def _quoted(path: Path) -> str:
    return subprocess.list2cmdline([str(path)]) if os.name == "nt" else shlex.quote(str(path))

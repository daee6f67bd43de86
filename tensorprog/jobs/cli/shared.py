"""What several commands do: read a program, judge its grade, print, refuse places that cannot be written."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorprog.jobs.cli.frame import OUTSIDE
from tensorprog.jobs.cli.options import REQUIRED
from tensorprog.language.errors import fail
from tensorprog.language.files import json_text

if TYPE_CHECKING:
    from tensorprog.blocks import Block
    from tensorprog.language.ir import Netsor


def echo(text: str = "") -> None:
    """Print a line on stdout as it is encoded: click takes ASCII terminals for ones that know UTF-8."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print an error on stderr."""
    print(text, file=sys.stderr, flush=True)


def notice(text: str) -> None:
    """Print on stderr what is no error; nothing if the command was told to be quiet."""
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("quiet"):
        complain(text)


def show(blocks: Iterable[Block], apart: bool = False) -> None:
    """Print what is to be seen of a result, each block after an empty line if they stand `apart`.

    Blocks that are apart are printed as they come, so that those before one that fails are seen.
    """
    from tensorprog.show.terminal import show as print_blocks

    for group in ([block] for block in blocks) if apart else [blocks]:
        if apart:
            echo()
        print_blocks(group, echo)


def load(file: str, overrides: Mapping[str, str]) -> Netsor:
    """The program meant by FILE; its warnings go to stderr."""
    from tensorprog.language.reading import load as read
    from tensorprog.shipped import resolve

    netsor = read(resolve(file), overrides, file=file)
    for warning in netsor.warnings:
        notice(f"warning: {warning}")
    return netsor


def open_program(file: str, overrides: Mapping[str, str]) -> Any:
    """As `load`, as the `Program` of the Python interface."""
    from tensorprog.program import Program

    return Program.from_netsor(load(file, overrides))


def _below(grade: str, required: str | None) -> bool:
    """Whether a grade does not reach the bar (by default: anything but outside does)."""
    order = ("outside", *reversed(REQUIRED))
    return order.index(grade) < order.index(required or "extension")


def exit_code(grade: str, required: str | None) -> int:
    """0 if a grade reaches the bar, else the code for it, after saying why if the program is inside the theory."""
    if not _below(grade, required):
        return 0
    if grade != "outside":
        complain(f"the grade is {grade}, and --require asks for {required}")
    return OUTSIDE


def header(netsor: Netsor, report: Any) -> dict[str, Any]:
    """The entries that every JSON object begins with."""
    from tensorprog.results.study import constants_json

    return {"program": netsor.name, "constants": constants_json(netsor), "assumptions": report.to_json()}


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object, in ASCII, which every terminal and pipe leaves as it is."""
    text = json_text(value)
    echo(re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found.group())[1:-1], text).rstrip("\n"))


def writable(path: Path) -> None:
    """Refuse early what would fail after a long computation.

    Raises    ProgramError
    """
    folder = path.parent
    if path.is_dir():
        raise fail(f"{path} is a directory", fix="name a file in it")
    if not folder.is_dir():
        raise fail(f"there is no folder {folder}", fix="create it first, or name another place")
    if not os.access(folder, os.W_OK):
        raise fail(f"{folder} cannot be written to", fix="name another place")

"""What shells are told while a command is being typed: program files, shipped programs, what is in them, figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from tensorprog.language.ir import Netsor

SUFFIXES = (".yaml", ".yml")
MEMBERS = 16  # of one family
ALL = "all"  # the name of all figures together


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Shipped programs by name, and the folders and program files that begin with what is typed."""
    from tensorprog.shipped import shipped_programs

    return _starting(incomplete, shipped_programs()) + [CompletionItem(path) for path in _paths(incomplete)]


def _paths(incomplete: str) -> Iterator[str]:
    """Folders with a slash at their end; what is in a folder instead of it where no other path is possible."""
    head, slash, start = incomplete.rpartition("/")
    try:
        entries = sorted(Path(f"{head}{slash}" or ".").iterdir())
    except OSError:
        return
    shown = [entry for entry in entries
             if entry.name.startswith(start) and (start or not entry.name.startswith("."))
             and (entry.suffix.lower() in SUFFIXES or entry.is_dir())]
    if len(shown) == 1 and shown[0].is_dir() and start:
        yield from _paths(f"{head}{slash}{shown[0].name}/")
        return
    for entry in shown:
        yield f"{head}{slash}{entry.name}" + ("/" if entry.is_dir() else "")


def constants(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """NAME=VALUE of each number among the program's constants, with its value there."""
    entries = [(constant.name, constant.value) for constant in getattr(_program(ctx), "constants", ())]
    return _starting(incomplete, (f"{name}={value!r}" for name, value in entries if isinstance(value, int | float)))


def indices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The program's indices."""
    return _starting(incomplete, (index.name for index in getattr(_program(ctx), "indices", ())))


def variables(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Members of the program's vectors and scalars, the first of each family."""
    from tensorprog.results.law_summary import label, members

    netsor = _program(ctx)
    if netsor is None:
        return []
    names = (name for name, family in netsor.families.items() if family.kind != "weight")
    return _starting(incomplete, (label(name, index) for name in names for index in members(netsor, name, MEMBERS)))


def figures(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The figures of the paper."""
    from tensorprog.shipped import paper_figures

    return _starting(incomplete, (*paper_figures().FIGURES, ALL))


def _starting(incomplete: str, texts: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(text) for text in texts if text.startswith(incomplete)]


def _program(ctx: click.Context) -> Netsor | None:
    """The program named on the line, if it is one; click leaves it among `args` where an option has no value yet."""
    from tensorprog.language.errors import TensorprogError
    from tensorprog.language.yaml_io import load
    from tensorprog.shipped import resolve

    try:
        return next((load(resolve(word)) for word in (ctx.params.get("file"), *ctx.args) if word), None)
    except TensorprogError:
        return None

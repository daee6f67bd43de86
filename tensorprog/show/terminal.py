"""Screens: blocks that fit them, in a pipe the same as plain text; notes and a bar while something takes long."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TextIO

from tensorprog.blocks import COLOURS, Block, Grid, Paragraph, Styled, to_text

__all__ = ["Progress", "is_styled", "is_terminal", "prepare", "show"]

# ---- the screen ------------------------------------------------------------------------------------------------------


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is looking at it."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def is_styled(stream: TextIO | None) -> bool:
    """Whether tables are drawn: for a person, and for whoever sets FORCE_COLOR."""
    return is_terminal(stream) or bool(os.environ.get("FORCE_COLOR"))


def prepare() -> None:
    """Let the streams of the process take every text: closed ones swallow it, others write ? for what they lack."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


# ---- blocks ----------------------------------------------------------------------------------------------------------

Write = Callable[[str], None]


def show(blocks: Iterable[Block], write: Write, stream: TextIO | None = None) -> None:
    """Print blocks: drawn on a terminal, as plain text in a pipe."""
    stream = stream or sys.stdout
    if not is_styled(stream):
        write(to_text(blocks))
        return
    from rich.console import Console

    screen = Console(file=stream, highlight=False)
    for block in blocks:
        screen.print(_drawn(block), soft_wrap=False)


def _drawn(block: Block) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if isinstance(block, Paragraph):
        label = f"{block.label:<8}" if block.label else ""
        return Text.assemble((label, "italic"), *((word, _ink(word)) for word in block.words))
    if isinstance(block, Grid):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for k, name in enumerate(block.header):
            left = k in block.text_columns
            table.add_column(Text(name), justify="left" if left else "right", overflow="fold")
        for k, row in enumerate(block.rows):
            table.add_row(*map(Text, row), style="bold" if k in block.marked else None, end_section=k in block.sections)
        head = [Text(block.title, "bold")] if block.title else []
        return Group(*head, table, *([Text(block.note, "dim")] if block.note else []))
    return Text(to_text([block]))


def _ink(word: str) -> str:
    if not isinstance(word, Styled) or word.look == "code":
        return ""
    return f"bold {COLOURS.get(word, '')}" if word.look == "badge" else "bold"


# ---- while something takes long --------------------------------------------------------------------------------------


class Progress:
    """What long work tells: notes and the name of each step on stderr, and a bar for it if that is a terminal; without
    `notes` nothing.
    """

    def __init__(self, notes: bool = True, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.notes = notes
        self.bar: Any = None
        self.task: Any = None

    @contextmanager
    def shown(self) -> Iterator[Self]:
        """Show the bar inside the block, and take it away at the end."""
        if not (self.notes and is_terminal(self.stream)):
            yield self
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        text, bar = TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)
        shown = Console(file=self.stream, highlight=False)
        self.bar = Bar(text, bar, MofNCompleteColumn(), TimeRemainingColumn(), transient=True, console=shown)
        with self.bar:
            self.task = self.bar.add_task("", total=None)
            yield self
        self.bar = None

    def stage(self, text: str) -> None:
        """Name the step that begins: beside the bar, or in a line of its own."""
        if self.bar is not None:
            self.bar.reset(self.task, total=None, description=text)
        else:
            self.note(text)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        if self.notes and self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        elif self.notes:
            print(text, file=self.stream, flush=True)

    def progress(self, done: int, total: int) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total)

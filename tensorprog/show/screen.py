"""What a screen shows: tables and lines that fit it; the same as plain text in a pipe."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from tensorprog.results.comparison import aligned
from tensorprog.show.terminals import PIPE, columns_of, is_styled

__all__ = ["Table", "console", "show", "show_text", "stacked", "wrapped"]

WORD = 24  # columns of text that are never torn


@dataclass(frozen=True)
class Table:
    """A table before it meets a screen; `marked` rows stand out, the first column is text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    marked: tuple[int, ...] = ()
    text_columns: tuple[int, ...] = (0,)
    sections: tuple[int, ...] = ()  # rows after which a line is drawn


def show(table: Table, write: Callable[[str], None], stream: TextIO | None = None) -> None:
    """Print a table: with rich on a terminal (one value per line if it is narrow), aligned text in a pipe."""
    stream = stream or sys.stdout
    if not is_styled(stream):
        plain = aligned(table.header, table.rows, table.text_columns)
        write("\n".join(part for part in (table.title, plain, table.note) if part))
    elif sum(min(_width(table, k), _longest(table, k)) + 1 for k in range(len(table.header))) > columns_of(stream):
        write(stacked(table, columns_of(stream)))
    else:
        _rich(table, stream)


def _width(table: Table, k: int) -> int:
    """Width of the longest cell of a column."""
    return max(len(row[k]) for row in (table.header, *table.rows))


def _longest(table: Table, k: int) -> int:
    """Width that a column needs: numbers stay whole, and so do names."""
    return WORD if k in table.text_columns else PIPE


def stacked(table: Table, columns: int = PIPE) -> str:
    """A table for narrow screens: one value per line, for each row."""
    size = max((len(name) for name in table.header), default=0)
    blocks = [wrapped(table.title, columns)] if table.title else []
    for row in table.rows:
        cells = [f"  {name:<{size}}  {cell}" for name, cell in zip(table.header, row, strict=True) if cell]
        blocks.append("\n".join(wrapped(cell, columns, size + 4) for cell in cells))
    return "\n\n".join([*blocks, wrapped(table.note, columns)] if table.note else blocks)


def wrapped(text: str, columns: int, hanging: int | None = None) -> str:
    """Lines no longer than the screen is wide, what is wrapped below the text that its label leads."""
    lines = []
    for line in text.splitlines():
        label = re.match(r"(\s*\S+\s{2,})|\s*", line)
        assert label is not None
        indent = label.end() if hanging is None else hanging
        lines += textwrap.wrap(line, columns, subsequent_indent=" " * min(indent, columns // 2),
                               break_on_hyphens=False) or [""]
    return "\n".join(lines)


def show_text(text: str, write: Callable[[str], None], stream: TextIO | None = None) -> None:
    """Print lines, wrapped between words on a terminal."""
    write(wrapped(text, columns_of(stream or sys.stdout)) if is_styled(stream or sys.stdout) else text)


def console(stream: TextIO) -> Any:
    """The screen as rich sees it; a reader that has gone is an error like any other."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise

    return Screen(file=stream, highlight=False, width=columns_of(stream))


def _rich(table: Table, stream: TextIO) -> None:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    screen = console(stream)
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for k, name in enumerate(table.header):
        text = k in table.text_columns
        grid.add_column(Text(name), justify="left" if text else "right", no_wrap=_width(table, k) <= _longest(table, k),
                        overflow="fold")
    for k, row in enumerate(table.rows):
        grid.add_row(*(Text(cell) for cell in row), style="bold" if k in table.marked else None,
                     end_section=k in table.sections)
    if table.title:
        screen.print(Text(table.title, style="bold"))
    if table.header:
        screen.print(grid)
    if table.note:
        screen.print(Text(table.note, style="dim"))

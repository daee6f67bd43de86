"""Terminals: blocks that fit the screen a person looks at; in a pipe the same as plain text."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from tensorprog.blocks import COLOURS, Block, Grid, Judgement, Judgements, Paragraph, Styled, badge
from tensorprog.blocks.text import to_text

__all__ = ["columns_of", "console", "is_styled", "is_terminal", "prepare", "show", "stacked", "wrapped"]

PIPE = 1000  # columns of what is no screen
WORD = 24  # columns of text that are never torn
GAP = 2  # between columns
WIDE = 100  # columns from which the reasons of judgements stand in a column of their own


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


def columns_of(stream: TextIO | None) -> int:
    """Width of the terminal, or that of a long line for a pipe."""
    return shutil.get_terminal_size().columns if is_styled(stream) else PIPE


def prepare() -> None:
    """Let the streams of the process take every text: closed ones swallow it, others write ? for what they lack."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def console(stream: TextIO) -> Any:
    """The screen as rich sees it; a reader that has gone is an error like any other."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise

    return Screen(file=stream, highlight=False, width=columns_of(stream))


def wrapped(text: str, columns: int, hanging: int | None = None) -> str:
    """Lines no longer than the screen is wide, what is wrapped below the text that its label leads."""
    lines = []
    for line in text.splitlines():
        label = re.match(r"(\s*\S+\s{2,})|\s*", line)
        assert label is not None
        indent = label.end() if hanging is None else hanging
        lines += textwrap.wrap(
            line, columns, subsequent_indent=" " * min(indent, columns // 2), break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


# ---- blocks ----------------------------------------------------------------------------------------------------------

Write = Callable[[str], None]


def show(blocks: Iterable[Block], write: Write, stream: TextIO | None = None) -> None:
    """Print blocks: drawn on a terminal, as plain text in a pipe."""
    stream = stream or sys.stdout
    if not is_styled(stream):
        write(to_text(blocks))
        return
    for block in blocks:
        rule = RULES.get(type(block))
        if rule is None:
            write(wrapped(to_text([block]), columns_of(stream)))
        else:
            rule(block, write, stream)


def _paragraph(block: Paragraph, write: Write, stream: TextIO) -> None:
    if block.label:
        console(stream).print(_labelled([(f"{block.label:<7}", "".join(block.words))], 0))
    elif any(isinstance(word, Styled) for word in block.words):
        console(stream).print(_line(block.words))
    else:
        write(wrapped("".join(block.words), columns_of(stream)))


def _line(words: Iterable[str]) -> Any:
    """Words with their looks."""
    from rich.text import Text

    return Text.assemble(*((word, _ink(word)) for word in words))


def _ink(word: str) -> str:
    if not isinstance(word, Styled) or word.look == "code":
        return ""
    return f"bold {COLOURS.get(word, '')}" if word.look == "badge" else "bold"


# ---- tables ----------------------------------------------------------------------------------------------------------


def _grid(block: Grid, write: Write, stream: TextIO) -> None:
    """A table, without minor columns if the screen is narrow, or one value per line. Numbers stay whole, and names."""
    widths = [max(map(len, column)) for column in zip(block.header, *block.rows, strict=True)]
    torn = [width > WORD and k in block.text_columns for k, width in enumerate(widths)]
    taken = [(WORD if may else width) + GAP for may, width in zip(torn, widths, strict=True)]
    gone = next(
        (
            block.minor[:few]
            for few in range(len(block.minor) + 1)
            if sum(taken) - GAP - sum(taken[k] for k in block.minor[:few]) <= columns_of(stream)
        ),
        None,
    )
    if gone is None:
        write(stacked(block, columns_of(stream)))
        return
    if gone:
        _grid(block.without(gone), write, stream)
        return
    from rich.table import Table
    from rich.text import Text

    screen = console(stream)
    table = Table(**_looks())
    for k, name in enumerate(block.header):
        table.add_column(
            Text(name), justify="left" if k in block.text_columns else "right", overflow="fold", no_wrap=not torn[k]
        )
    for k, row in enumerate(block.rows):
        table.add_row(*map(Text, row), style="bold" if k in block.marked else None, end_section=k in block.sections)
    if block.title:
        screen.print(Text(block.title, style="bold"))
    screen.print(table)
    if block.note:
        screen.print(Text(block.note, style="dim"))


def _looks() -> dict[str, Any]:
    from rich import box

    return {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0), "show_edge": False}


def stacked(block: Grid, columns: int = PIPE) -> str:
    """A table for narrow screens: one value per line, for each row."""
    size = max((len(name) for name in block.header), default=0)
    texts = [wrapped(block.title, columns)] if block.title else []
    for row in block.rows:
        cells = [f"  {name:<{size}}  {cell}" for name, cell in zip(block.header, row, strict=True) if cell]
        texts.append("\n".join(wrapped(cell, columns, size + 4) for cell in cells))
    return "\n\n".join([*texts, wrapped(block.note, columns)] if block.note else texts)


# ---- judgements ------------------------------------------------------------------------------------------------------


def _judgements(block: Judgements, _: Write, stream: TextIO) -> None:
    """A table, with reasons below the rows on a narrow screen."""
    if block.entries:
        screen = console(stream)
        draw = _in_columns if screen.width >= WIDE else _one_by_one
        screen.print(draw(block.entries, screen.width))


def _in_columns(entries: Sequence[Judgement], _: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(**_looks(), expand=True)
    for name, widest in (("verdict", 7), ("rule", 20), ("where", 14), ("line", 4)):
        table.add_column(Text(name), max_width=widest, overflow="fold", justify="right" if name == "line" else "left")
    table.add_column(Text("why"), ratio=1, overflow="fold")
    for entry in entries:
        said = Text(entry.said[0][1]) if entry.holds else _labelled(entry.said, 0)
        table.add_row(
            _line([badge(entry.verdict)]), Text(entry.rule), Text(entry.where), Text(str(entry.line or "")), said
        )
    return table


def _one_by_one(entries: Sequence[Judgement], columns: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    rules = max(len(entry.rule) for entry in entries) if columns >= 72 else 0  # they stand in a column
    texts: list[Any] = [Text(f"{'verdict':<8} {'rule':<{rules}}  where, line", style="bold")] if rules else []
    for entry in entries:
        head = _line([badge(entry.verdict), " " * (9 - len(entry.verdict)), f"{entry.rule:<{rules}}  ", entry.where])
        head.append(f", line {entry.line}" if entry.line else "")
        said = entry.said[:1] if entry.holds else entry.said
        texts += [head, _labelled(said, 9 if rules else 2)]
    return Group(*texts)


def _labelled(said: Sequence[tuple[str, str]], indent: int) -> Any:
    """Paragraphs with hanging labels."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in said:
        table.add_row(Text(name, style="italic"), Text(text))
    return Padding(table, (0, 0, 0, indent))


RULES: dict[type, Callable[[Any, Write, TextIO], None]] = {  # what is not here is shown as text
    Paragraph: _paragraph,
    Grid: _grid,
    Judgements: _judgements,
}

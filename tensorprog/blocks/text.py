"""Blocks as plain text, as a pipe gets them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorprog.blocks import (
    Block,
    Code,
    Grid,
    Heading,
    Judgement,
    Judgements,
    Mathematics,
    Paragraph,
    Picture,
)

__all__ = ["aligned", "judgement_text", "to_text"]


def to_text(blocks: Iterable[Block]) -> str:
    """Blocks one below the other; what has no text, such as pictures, is named."""
    return "\n".join(filter(None, (RULES[type(block)](block) for block in blocks)))


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A table as plain text: the columns `left` to the left, numbers to the right."""
    lines = [header, *rows]
    widths = [max(len(row[k]) for row in lines) for k in range(len(header))]
    padded = (
        (cell.ljust(widths[k]) if k in left else cell.rjust(widths[k]) for k, cell in enumerate(row)) for row in lines
    )
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def judgement_text(entry: Judgement) -> str:
    """One judgement: a line if it holds, else with what is said below it."""
    if entry.holds:
        (_, message), *source = entry.said
        return f"{entry.verdict:<8}{entry.rule}: {message}" + "".join(f" ({text})" for _, text in source)
    place = f"   [line {entry.line}]" if entry.line else ""
    head = f"{entry.verdict:<8}{entry.rule}" + (f": {entry.where}" if entry.where else "") + place
    return "\n".join([head, *(f"        {label:<5} {text}" for label, text in entry.said)])


def _paragraph(block: Paragraph) -> str:
    return (f"{block.label:<8}" if block.label else "") + "".join(block.words)


def _grid(block: Grid) -> str:
    plain = aligned(block.header, block.rows, block.text_columns)
    return "\n".join(filter(None, (block.title, plain, block.note)))


def _mathematics(block: Mathematics) -> str:
    return "\n".join(re.sub(r"\s+", " ", line).strip() for line in block.lines)


RULES: dict[type, Callable[[Any], str]] = {
    Heading: lambda block: f"\n{block.text}\n",
    Paragraph: _paragraph,
    Code: lambda block: block.text,
    Grid: _grid,
    Judgements: lambda block: "\n".join(map(judgement_text, block.entries)),
    Mathematics: _mathematics,
    Picture: lambda block: f"[{block.label}]",
}

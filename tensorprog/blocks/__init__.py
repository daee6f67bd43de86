"""What is to be seen of a result: a list of blocks, and what shows blocks.

A result makes its blocks (headings, paragraphs, tables, formulas, pictures: the kinds below) in one place; text, as a
pipe gets it (`to_text`), HTML (`html`) and terminals (`show.terminal`) show blocks of any kind.  Nothing here knows of
programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

__all__ = [
    "COLOURS",
    "Block",
    "Code",
    "Grid",
    "Heading",
    "Judgement",
    "Judgements",
    "Mathematics",
    "Paragraph",
    "Picture",
    "Styled",
    "aligned",
    "badge",
    "code",
    "judgement_text",
    "paragraph",
    "strong",
    "to_text",
]

# of grades and verdicts, readable on white and on black: Okabe & Ito's green, blue, orange, vermillion
COLOURS = {
    "theorem": "#009e73",
    "holds": "#009e73",
    "remark": "#0072b2",
    "extension": "#0072b2",
    "warning": "#b37400",
    "unknown": "#d55e00",
    "outside": "#d55e00",
    "fails": "#d55e00",
}


class Styled(str):
    """A word with a look; where there are no looks, as in a pipe, it is the word."""

    look: Literal["code", "strong", "badge"]

    def __new__(cls, text: object, look: Literal["code", "strong", "badge"] = "code") -> Self:
        """The text of anything, with a look."""
        word = super().__new__(cls, text)
        word.look = look
        return word


def code(text: object) -> Styled:
    """A name or a statement."""
    return Styled(text, "code")


def strong(text: object) -> Styled:
    """A word that stands out."""
    return Styled(text, "strong")


def badge(word: str) -> Styled:
    """A grade or a verdict, in its colour."""
    return Styled(word, "badge")


@dataclass(frozen=True)
class Heading:
    """The title of what follows."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """Words one after another; a `note` is in smaller letters, and a `label` such as "claim" leads."""

    words: tuple[str, ...]
    label: str = ""
    note: bool = False


def paragraph(*words: object, label: str = "", note: bool = False) -> Paragraph:
    """A paragraph of these words."""
    return Paragraph(tuple(word if isinstance(word, str) else str(word) for word in words), label, note)


@dataclass(frozen=True)
class Code:
    """Lines as they are, called `label` by readers of screens."""

    text: str
    label: str


@dataclass(frozen=True)
class Grid:
    """A table: the columns `text_columns` to the left, numbers to the right.

    Rows `marked` stand out, and a line follows the rows `sections`.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    marked: tuple[int, ...] = ()
    text_columns: tuple[int, ...] = (0,)
    sections: tuple[int, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A verdict on one place: `said` are labelled texts, why, from where, and what to try."""

    verdict: str
    rule: str
    where: str
    line: int
    said: tuple[tuple[str, str], ...]

    @property
    def holds(self) -> bool:
        """Whether nothing is at fault here; such judgements are shown in short, or folded away."""
        return self.verdict == "holds"


@dataclass(frozen=True)
class Judgements:
    """Judgements, worst first."""

    entries: tuple[Judgement, ...]


@dataclass(frozen=True)
class Mathematics:
    """LaTeX as this package writes it: prose with formulas in $ $, and displayed ones; several are numbered."""

    lines: tuple[str, ...]
    numbered: bool = True


@dataclass(frozen=True)
class Picture:
    """An SVG picture; `label` says what it shows."""

    svg: str
    label: str


Block = Heading | Paragraph | Code | Grid | Judgements | Mathematics | Picture


# ---- as plain text ---------------------------------------------------------------------------------------------------


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


RULES: dict[type, Callable[[Any], str]] = {
    Heading: lambda block: f"\n{block.text}\n",
    Paragraph: lambda block: "".join([f"{block.label:<8}" if block.label else "", *block.words]),
    Code: lambda block: block.text,
    Grid: lambda block: "\n".join(
        filter(None, (block.title, aligned(block.header, block.rows, block.text_columns), block.note))
    ),
    Judgements: lambda block: "\n".join(map(judgement_text, block.entries)),
    Mathematics: lambda block: "\n".join(" ".join(line.split()) for line in block.lines),
    Picture: lambda block: f"[{block.label}]",
}

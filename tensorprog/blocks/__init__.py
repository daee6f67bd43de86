"""What is to be seen of a result: a list of blocks, and what shows blocks.

A result makes its blocks (headings, paragraphs, tables, formulas, pictures: the kinds below) in one place; text
(`text`), HTML (`html`, with formulas by `formulas`) and terminals (`show.terminal`) show blocks of any kind.  Nothing
here knows of programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

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
    "badge",
    "code",
    "paragraph",
    "strong",
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

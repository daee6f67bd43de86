"""What is to be seen of a result: a list of blocks, and what shows blocks.

A result makes its blocks (headings, paragraphs, tables, formulas, pictures: the kinds below) in one place; text
(`text`), HTML (`html`, with formulas by `mathml` and pictures by `svg`) and terminals (`show.terminal`) show blocks of
any kind.  Nothing here knows of programs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

__all__ = [
    "COLOURS",
    "Block",
    "Code",
    "Folded",
    "Grid",
    "Heading",
    "Judgement",
    "Judgements",
    "Mathematics",
    "Paragraph",
    "Picture",
    "Pictures",
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

    Rows `marked` stand out, and a line follows the rows `sections`; `shades` between -1 and 1 are the grounds of cells
    by row and column.  Narrow screens do without the columns `minor`, the first of them first.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    marked: tuple[int, ...] = ()
    text_columns: tuple[int, ...] = (0,)
    sections: tuple[int, ...] = ()
    shades: Mapping[tuple[int, int], float] = field(default_factory=dict)
    minor: tuple[int, ...] = ()

    def without(self, columns: Sequence[int]) -> Grid:
        """The table without some of its columns, which are named below it."""
        kept = [k for k in range(len(self.header)) if k not in columns]
        gone = ", ".join(self.header[k] for k in sorted(columns))
        return replace(
            self,
            header=tuple(self.header[k] for k in kept),
            rows=tuple(tuple(row[k] for k in kept) for row in self.rows),
            note="\n".join(filter(None, [self.note, f"on a wider screen: {gone}"])),
            minor=(),
            text_columns=tuple(kept.index(k) for k in self.text_columns if k in kept),
            shades={(row, kept.index(k)): shade for (row, k), shade in self.shades.items() if k in kept},
        )


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
    """An SVG picture; `name` makes its identifiers its own, `label` says what it shows.

    One that may `scroll` keeps its letters readable on narrow screens; colours in `fixed` stay as they are.  `readings`
    are the numbers in it as JSON, for pages with a script that shows them.
    """

    svg: str
    name: str
    label: str
    caption: str = ""
    scroll: bool = False
    fixed: Collection[str] = ()
    readings: str = ""


@dataclass(frozen=True)
class Pictures:
    """Pictures side by side where there is room."""

    panels: tuple[Picture, ...]


@dataclass(frozen=True)
class Folded:
    """Blocks that fold away below a summary."""

    summary: str
    blocks: tuple[Block, ...]
    opened: bool = False


Block = Heading | Paragraph | Code | Grid | Judgements | Mathematics | Picture | Pictures | Folded

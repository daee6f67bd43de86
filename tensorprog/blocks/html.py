"""Blocks as HTML, for notebooks and the page.

Notebooks take what is made here as it is: colours come from the surroundings, so that it reads on light and on dark,
and tables break over lines by themselves, as no style sheet knows their width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorprog.blocks import (
    COLOURS,
    Block,
    Code,
    Folded,
    Grid,
    Heading,
    Judgement,
    Judgements,
    Mathematics,
    Paragraph,
    Picture,
    Pictures,
    Styled,
    badge,
)
from tensorprog.blocks.markup import PARAGRAPH, Html, joined, tag

__all__ = ["Shown", "to_html"]

GREY = "#808080"
CELL = "padding:.25em .6em;vertical-align:top;"
LINE = "border-top:1px solid rgba(128,128,128,.35);"
NOTE = "font-size:.9em;opacity:.85;margin:.2em 0"
CODE = "white-space:normal;background:none;color:inherit;padding:0"  # notebooks have style sheets that pad code
LINES = "font-family:monospace;overflow-x:auto;background:var(--panel,none);color:inherit"
BLOCK = "display:block;"
# of a table of judgements, with the widths of its columns: the last stands below the others where there is no room
COLUMNS = {"verdict": "0 1 7em", "rule": "1 1 9em", "where": "1 1 9em", "why": "9 1 24em"}
ROW = "display:flex;flex-wrap:wrap;gap:.2em .8em;padding:.4em 0;text-align:left;"


class Shown:
    """A result that notebooks show: its blocks say what."""

    def blocks(self) -> Sequence[Block]:
        """What is to be seen, as blocks of `tensorprog.blocks`."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return tag("div", to_html(self.blocks()), style="max-width:75em")


def to_html(blocks: Iterable[Block]) -> Html:
    """Blocks one below the other."""
    return joined(RULES[type(block)](block) for block in blocks)


def _words(words: Iterable[str]) -> Html:
    return joined(map(_word, words))


def _word(word: str) -> str:
    """A word with its look."""
    if not isinstance(word, Styled):
        return word
    if word.look == "badge":  # in a frame of its colour, in the ink of the surroundings
        colour = COLOURS.get(word, GREY)
        style = f"border:2px solid {colour};background:{colour}26;border-radius:.6em;padding:.05em .5em;"
        return tag("span", word, style=f"{style}font-weight:bold;white-space:nowrap")
    return tag("b", word) if word.look == "strong" else tag("code", word, style=CODE)


def _paragraph(block: Paragraph) -> Html:
    label = [tag("i", block.label), " "] if block.label else []
    return tag("p", *label, _words(block.words), style=NOTE if block.note else PARAGRAPH)


def _code(block: Code) -> Html:
    """Lines in a box that scrolls."""
    return tag("pre", tag("code", block.text), tabindex=0, role="region", aria_label=block.label, style=LINES)


# ---- tables ---------------------------------------------------------------------------------------------------------


def _grid(block: Grid) -> Html:
    """A table in a box that scrolls; the first cell of a row is its heading."""
    text = block.text_columns
    sides = [f"{CELL}text-align:{'left' if k in text else 'right'};" for k in range(len(block.header))]
    head = tag("tr", *(_cell(cell, side, "col") for cell, side in zip(block.header, sides, strict=True)))
    body = []
    for k, row in enumerate(block.rows):
        own = f"font-weight:{'bold' if k in block.marked else 'normal'};"
        own += LINE if k == 0 or k - 1 in block.sections else ""
        styles = (
            side + own + ("" if place in text else "white-space:nowrap;") + _ground(block.shades.get((k, place)))
            for place, side in enumerate(sides)
        )
        cells = zip(row, styles, strict=True)
        body.append(
            tag("tr", *(_cell(cell, style, "" if place else "row") for place, (cell, style) in enumerate(cells)))
        )
    caption = tag("caption", block.title, style="text-align:left;caption-side:top") if block.title else ""
    shown = tag("table", caption, tag("thead", head), tag("tbody", *body), style="border-collapse:collapse")
    name = block.title or ", ".join(filter(None, block.header))
    box = tag("div", shown, style="overflow-x:auto", tabindex=0, role="region", aria_label=f"table: {name}")
    return joined([box, tag("p", block.note, style=NOTE) if block.note else ""])


def _cell(content: str, style: str, heads: str) -> Html:
    """A cell, which may be the heading of a row or column unless it is empty."""
    heading = heads and content != ""
    return tag("th" if heading else "td", _word(content), scope=heads if heading else None, style=style)


def _ground(share: float | None) -> str:
    """A ground of blue above zero and vermilion below, through which that of the surroundings shows."""
    if not share:
        return ""
    return f"background:rgba({'0,114,178' if share > 0 else '213,94,0'},{0.5 * abs(share):.2f});"


# ---- judgements -----------------------------------------------------------------------------------------------------


def _judgements(block: Judgements) -> Html:
    """A table of what is at fault; what holds is folded away."""
    said = [entry for entry in block.entries if not entry.holds]
    holds = [entry for entry in block.entries if entry.holds]
    count = "1 clause holds" if len(holds) == 1 else f"{len(holds)} clauses hold"
    return joined(
        [
            _judged(said, "findings") if said else "",
            _details(count, _judged(holds, count), opened=not said) if holds else "",
        ]
    )


def _judged(entries: Sequence[Judgement], caption: str) -> Html:
    """A table whose rows break over lines; of its header one line is shown, that of columns side by side."""
    head = _flexible("th", COLUMNS, f"{ROW}padding:0;height:1.5em;overflow:hidden;", "columnheader")
    rows = (_flexible("td", _judgement(entry), f"{ROW}{LINE}", "cell") for entry in entries)
    return tag(
        "table",
        tag("caption", caption, style=f"{BLOCK}padding:0;text-align:left"),
        tag("thead", head, role="rowgroup", style=BLOCK),
        tag("tbody", *rows, role="rowgroup", style=BLOCK),
        role="table",
        style=f"{BLOCK}width:100%;border-collapse:collapse",
    )


def _flexible(name: str, contents: Iterable[Any], style: str, role: str) -> Html:
    """One row, its cells as wide as their columns."""
    shown = (
        tag(
            name,
            content,
            role=role,
            scope="col" if name == "th" else None,
            style=f"flex:{width};min-width:0;padding:0;border:0;text-align:left;overflow-wrap:anywhere;{BLOCK}",
        )
        for content, width in zip(contents, COLUMNS.values(), strict=True)
    )
    return tag("tr", *shown, role="row", style=f"{style}background:none")


def _judgement(entry: Judgement) -> tuple[Any, ...]:
    (_, reason), *others = entry.said
    more = () if entry.holds else (joined([tag("br"), tag("i", label), " ", text]) for label, text in others)
    where = tag("code", entry.where, style=CODE) if entry.where else ""
    place = joined([where, f"line {entry.line}" if entry.line else ""], ", ")
    return _word(badge(entry.verdict)), entry.rule, place, joined([reason, *more])


# ---- formulas, pictures, what folds ---------------------------------------------------------------------------------


def _mathematics(block: Mathematics) -> Html:
    from tensorprog.blocks.mathml import displayed

    if not block.numbered:
        return joined(map(displayed, block.lines))
    return tag("ol", *(tag("li", displayed(line)) for line in block.lines), class_="derivation")


def _picture(block: Picture) -> Html:
    from tensorprog.blocks.svg import embedded

    shown = embedded(
        block.svg, re.sub(r"[^\w-]+", "-", block.name), block.label, scroll=block.scroll, fixed=block.fixed
    )
    if not block.caption:
        return shown
    numbers = tag("script", Html(block.readings), type="application/json", class_="readings") if block.readings else ""
    return tag("figure", shown, tag("figcaption", block.caption), numbers, class_="graph" if block.scroll else None)


def _details(summary: str, *content: Any, opened: bool) -> Html:
    return tag("details", tag("summary", summary), *content, open=opened)


RULES: dict[type, Callable[[Any], Html]] = {
    Heading: lambda block: tag("h3", block.text),
    Paragraph: _paragraph,
    Code: _code,
    Grid: _grid,
    Judgements: _judgements,
    Mathematics: _mathematics,
    Picture: _picture,
    Pictures: lambda block: tag("div", *map(_picture, block.panels), class_="figures"),
    Folded: lambda block: _details(block.summary, to_html(block.blocks), opened=block.opened),
}

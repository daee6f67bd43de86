"""HTML that is safe by construction: text is escaped unless it is `Html` already.

Notebooks take what is made here as it is: colours come from the surroundings, so that it reads on light and on dark.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["LINE", "Html", "Shades", "badge", "code", "details", "joined", "note", "notebook", "paragraph", "table",
           "tag"]

Shades = Mapping[tuple[int, int], float]
VOID = {"br", "hr", "link", "meta"}
CELL = "padding:.25em .6em;vertical-align:top;"
LINE = "border-top:1px solid rgba(128,128,128,.35);"


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def joined(parts: Iterable[Any], between: str = "") -> Html:
    """Parts one after another, text escaped; what is left out is None or empty."""
    return Html(between.join(
        part if isinstance(part, Html) else html.escape(str(part)) for part in parts if part not in (None, "")
    ))


def tag(name: str, /, *content: Any, **attributes: Any) -> Html:
    """One element: attributes that are None or False are left out, `class_` is class, `aria_label` is aria-label."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{"" if value is True else html.escape(str(value))}"'
        for key, value in attributes.items() if value is not None and value is not False
    )
    return Html(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{joined(content)}</{name}>")


def table(
    header: Sequence[Any], rows: Iterable[Sequence[Any]], caption: Any = "", *, text: Collection[int] = (0,),
    marked: Collection[int] = (), sections: Collection[int] = (), foot: Any = "", shades: Shades | None = None,
) -> Html:
    """A table: the columns `text` to the left, numbers to the right; the first cell of a row is its heading.

    Rows `marked` stand out, and a line follows the rows `sections`; `shades` are between -1 and 1, by row and column.
    """
    sides = [f"{CELL}text-align:{'left' if k in text else 'right'};" for k in range(len(header))]
    head = tag("tr", *(_cell(cell, side, "col") for cell, side in zip(header, sides, strict=True)))
    body = []
    for k, row in enumerate(rows):
        own = f"font-weight:{'bold' if k in marked else 'normal'};" + (LINE if k == 0 or k - 1 in sections else "")
        cells = []
        for place, (cell, side) in enumerate(zip(row, sides, strict=True)):
            style = side + own + ("" if place in text else "white-space:nowrap;") + _shade(shades, k, place)
            cells.append(_cell(cell, style, "" if place else "row"))
        body.append(tag("tr", *cells))
    shown = tag("table", tag("caption", caption, style="text-align:left;caption-side:top") if caption else "",
                tag("thead", head), tag("tbody", *body), style="border-collapse:collapse")
    name = _label(caption, header)
    box = tag("div", shown, style="overflow-x:auto", tabindex=0, role="region", aria_label=name)
    return joined([box, note(foot) if foot else ""])


def _cell(content: Any, style: str, heads: str) -> Html:
    """A cell, which may be the heading of a row or column unless it is empty."""
    heading = heads and content != ""
    return tag("th" if heading else "td", content, scope=heads if heading else None, style=style)


def _shade(shades: Shades | None, row: int, column: int) -> str:
    """A ground of blue above zero and vermilion below, through which that of the surroundings shows."""
    share = shades[row, column] if shades and (row, column) in shades else 0.0
    return f"background:rgba({'0,114,178' if share > 0 else '213,94,0'},{0.5 * abs(share):.2f});" if share else ""


def _label(caption: Any, header: Sequence[Any]) -> str:
    """What a box that scrolls is called by readers of screens."""
    plain = caption if caption and not isinstance(caption, Html) else ", ".join(str(cell) for cell in header if cell)
    return f"table: {plain}"


def note(text: Any) -> Html:
    """A remark below something."""
    return tag("p", text, style="font-size:.9em;opacity:.85;margin:.2em 0")


def paragraph(*content: Any) -> Html:
    """One paragraph."""
    return tag("p", *content, style="margin:.3em 0")


def code(text: Any) -> Html:
    """A name or a statement, which may break over lines."""
    return tag("code", text, style="white-space:normal;background:none;color:inherit;padding:0")


def badge(word: str, colour: str) -> Html:
    """One word in a frame of a colour, in the ink of the surroundings."""
    style = f"border:2px solid {colour};background:{colour}26;border-radius:.6em;padding:.05em .5em;font-weight:bold;"
    return tag("span", word, style=f"{style}white-space:nowrap")


def details(summary: Any, *content: Any, opened: bool = False) -> Html:
    """What folds away."""
    return tag("details", tag("summary", summary), *content, open=opened)


def notebook(*content: Any) -> Html:
    """What a notebook shows of one object."""
    return tag("div", *content, style="max-width:75em")

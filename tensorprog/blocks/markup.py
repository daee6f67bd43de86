"""HTML that is safe by construction: text is escaped unless it is `Html` already."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

__all__ = ["PARAGRAPH", "Html", "joined", "tag"]

VOID = {"br", "hr", "link", "meta"}
PARAGRAPH = "margin:.3em 0"


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def joined(parts: Iterable[Any], between: str = "") -> Html:
    """Parts one after another, text escaped; what is left out is None or empty."""
    return Html(
        between.join(
            part if isinstance(part, Html) else html.escape(str(part)) for part in parts if part not in (None, "")
        )
    )


def tag(name: str, /, *content: Any, **attributes: Any) -> Html:
    """One element: attributes that are None or False are left out, `class_` is class, `aria_label` is aria-label."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{"" if value is True else html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{joined(content)}</{name}>")

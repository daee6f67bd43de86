"""The page around its sections: head, style, navigation."""

from __future__ import annotations

from importlib.resources import files

from tensorprog.jobs.study import Study
from tensorprog.show import findings
from tensorprog.show.markup import Html, joined, tag
from tensorprog.show.page import sections
from tensorprog.show.svg import palette

__all__ = ["Page"]

DARK = "@media screen and (prefers-color-scheme: dark)"


class Page:
    """report.html of one run; what does not change from width to width is made once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Html]] = {}

    def __call__(self, study: Study) -> str:
        """The page as text, of what is known so far."""
        self._known = self._known or {
            "program": ("Program", sections.program(study)),
            "check": ("Check", findings.body(study.report)),
            "limit": ("Infinite-width limit", sections.limit(study)),
        }
        parts = self._known | {
            "widths": ("Finite widths", sections.widths(study)),
            "reproduce": ("To reproduce this", sections.reproduce(study)),
        }
        entries = (tag("li", tag("a", title, href=f"#{key}")) for key, (title, _) in parts.items())
        blocks = (tag("section", tag("h2", title, id=f"{key}-title"), content, id=key, aria_labelledby=f"{key}-title")
                  for key, (title, content) in parts.items())
        body = tag("body", tag("header", _heading(study), tag("nav", tag("ul", *entries), aria_label="sections")),
                   tag("main", *blocks), tag("footer", sections.signature()))
        return "<!DOCTYPE html>\n" + tag("html", _head(study, body), body, lang="en") + "\n"


def _head(study: Study, body: str) -> Html:
    # nothing in this text comes from the program
    sheet = files("tensorprog.show.page").joinpath("page.css").read_text(encoding="utf-8")
    style = f"{sheet}:root{{{palette(body, dark=False)}}}\n{DARK}{{:root{{{palette(body, dark=True)}}}}}\n"
    return tag(
        "head", tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"),
        tag("meta", name="generator", content=sections.signature()),
        tag("title", f"{study.netsor.title or study.netsor.name} - tensorprog"), tag("style", Html(style)),
    )


def _heading(study: Study) -> Html:
    netsor = study.netsor
    named = netsor.name if netsor.title else ""
    return joined([
        tag("h1", netsor.title or netsor.name),
        tag("p", joined([tag("code", named) if named else "", netsor.reference], ": "), class_="soft"),
        tag("p", findings.grade(study.report), class_="summary"),
    ])

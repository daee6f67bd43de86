"""What a report of the check looks like where it is shown: cells of a table, and the table of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tensorprog.show import markup
from tensorprog.show.markup import LINE, Html, badge, joined, tag

if TYPE_CHECKING:
    from tensorprog.check.clauses.report import Finding, Report

__all__ = ["COLOURS", "Cells", "basis", "body", "cells", "grade", "notebook"]

# of grades and verdicts, readable on white and on black: Okabe & Ito's green, blue, orange, vermillion
COLOURS = {
    "theorem": "#009e73", "holds": "#009e73",
    "remark": "#0072b2", "extension": "#0072b2",
    "warning": "#b37400", "unknown": "#d55e00",
    "outside": "#d55e00", "fails": "#d55e00",
}
GREY = "#808080"
BLOCK = "display:block;"
# of a table of findings, with the widths of its columns: the last stands below the others where there is no room
HEADER = {"verdict": "0 1 7em", "rule": "1 1 9em", "where": "1 1 9em", "why": "9 1 24em"}
ROW = "display:flex;flex-wrap:wrap;gap:.2em .8em;padding:.4em 0;text-align:left;"
LABELS = ("why", "from", "try")


def basis(report: Report) -> list[tuple[str, str]]:
    """What the grade rests on besides the clauses: results beyond Assumption 1, then exact rewrites, in order."""
    return [("claim", str(claim)) for claim in report.claims] + [
        ("exact rewrite", f"{rewrite.kind} {rewrite.where}, line {rewrite.line}: {rewrite.text}")
        for rewrite in report.rewrites
    ]


Cells = tuple[str, str, str, str, tuple[tuple[str, str], ...]]


def cells(finding: Finding) -> Cells:
    """Verdict, rule, place, line, and what is said: why, and unless it holds the source and what to write instead."""
    source = "" if finding.verdict == "holds" or finding.source in finding.message else finding.source
    texts = (finding.message, source, finding.fix)
    said = tuple((label, text) for label, text in zip(LABELS, texts, strict=True) if text)
    return finding.verdict, finding.rule, finding.where, str(finding.line or ""), said


# ---- notebooks ------------------------------------------------------------------------------------------------------


def notebook(report: Report) -> str:
    """The report as HTML without scripts or style sheets: grade, claims, rewrites, findings; what holds is folded."""
    return markup.notebook(markup.paragraph(tag("b", report.program), " ", grade(report)), body(report))


def grade(report: Report) -> Html:
    """The grade in one line."""
    return joined([badge(report.grade, COLOURS.get(report.grade, GREY)), " ", report.says])


def body(report: Report) -> Html:
    """Claims, rewrites and findings; what holds is folded."""
    said = [finding for finding in report.findings if finding.verdict != "holds"]
    holds = [finding for finding in report.findings if finding.verdict == "holds"]
    parts = [markup.paragraph(tag("i", kind), " ", text) for kind, text in basis(report)]
    if said:
        parts.append(_table(said, "findings"))
    if holds:
        count = "1 clause holds" if len(holds) == 1 else f"{len(holds)} clauses hold"
        parts.append(markup.details(count, _table(holds, count), opened=not said))
    return joined(parts)


def _table(findings: Sequence[Finding], caption: str) -> Html:
    """A table whose rows break over lines by themselves: notebooks have no style sheet that knows their width."""
    # of the header one line is shown, that of the columns which stand side by side
    head = _cells("th", HEADER, f"{ROW}padding:0;height:1.5em;overflow:hidden;", "columnheader")
    rows = (_cells("td", _row(finding), f"{ROW}{LINE}", "cell") for finding in findings)
    return tag("table", tag("caption", caption, style=f"{BLOCK}padding:0;text-align:left"),
               tag("thead", head, role="rowgroup", style=BLOCK), tag("tbody", *rows, role="rowgroup", style=BLOCK),
               role="table", style=f"{BLOCK}width:100%;border-collapse:collapse")


def _cells(name: str, contents: Iterable[Any], style: str, role: str) -> Html:
    """One row, its cells as wide as their columns."""
    shown = (tag(name, content, role=role, scope="col" if name == "th" else None,
                 style=f"flex:{width};min-width:0;padding:0;border:0;text-align:left;overflow-wrap:anywhere;{BLOCK}")
             for content, width in zip(contents, HEADER.values(), strict=True))
    return tag("tr", *shown, role="row", style=f"{style}background:none")


def _row(finding: Finding) -> tuple[Any, ...]:
    verdict, rule, where, line, said = cells(finding)
    first, *others = said
    more = (joined([tag("br"), tag("i", kind), " ", text]) for kind, text in others)
    place = joined([markup.code(where) if where else "", f"line {line}" if line else ""], ", ")
    return badge(verdict, COLOURS.get(verdict, GREY)), rule, place, joined([first[1], *more])

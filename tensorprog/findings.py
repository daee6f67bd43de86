"""What a report of the check looks like where it is shown: cells of a table, and the table of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensorprog import markup
from tensorprog.markup import Html, badge, joined

if TYPE_CHECKING:
    from tensorprog.assumptions.report import Finding, Report

__all__ = ["COLOURS", "Cells", "basis", "body", "cells", "grade", "notebook"]

# of grades and verdicts, readable on white and on black: Okabe & Ito's green, blue, orange, vermillion
COLOURS = {
    "theorem": "#009e73", "holds": "#009e73",
    "remark": "#0072b2", "extension": "#0072b2",
    "warning": "#b37400", "unknown": "#d55e00",
    "outside": "#d55e00", "fails": "#d55e00",
}
GREY = "#808080"
HEADER = ("verdict", "rule", "where", "line", "why")
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
    return markup.notebook(markup.paragraph(markup.tag("b", report.program), " ", grade(report)), body(report))


def grade(report: Report) -> Html:
    """The grade in one line."""
    return joined([badge(report.grade, COLOURS.get(report.grade, GREY)), " ", report.says])


def body(report: Report) -> Html:
    """Claims, rewrites and findings; what holds is folded."""
    said = [finding for finding in report.findings if finding.verdict != "holds"]
    holds = [finding for finding in report.findings if finding.verdict == "holds"]
    parts = [markup.paragraph(markup.tag("i", kind), " ", text) for kind, text in basis(report)]
    if said:
        parts.append(_table(said, "findings"))
    if holds:
        count = "1 clause holds" if len(holds) == 1 else f"{len(holds)} clauses hold"
        parts.append(markup.details(count, _table(holds, count), opened=not said))
    return joined(parts)


def _table(findings: Sequence[Finding], caption: str) -> Html:
    return markup.table(HEADER, map(_row, findings), caption, text=range(5), class_="findings")


def _row(finding: Finding) -> tuple[str, ...]:
    verdict, rule, where, line, said = cells(finding)
    first, *others = said
    more = (joined([markup.tag("br"), markup.tag("i", kind), " ", text]) for kind, text in others)
    return badge(verdict, COLOURS.get(verdict, GREY)), rule, markup.code(where), line, joined([first[1], *more])

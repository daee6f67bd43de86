"""What a report of the check looks like where it is shown: cells of a table, and the table of a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorprog.assumptions.report import Finding, Report

__all__ = ["COLOURS", "Cells", "basis", "cells", "notebook"]

# of grades and verdicts, readable on white and on black: Okabe & Ito's green, blue, orange, vermillion
COLOURS = {
    "theorem": "#009e73", "holds": "#009e73",
    "remark": "#0072b2", "extension": "#0072b2",
    "warning": "#b37400", "unknown": "#d55e00",
    "outside": "#d55e00", "fails": "#d55e00",
}
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

CELL = "text-align:left;vertical-align:top;white-space:normal;overflow-wrap:anywhere;padding:.3em .6em"
LINE = "border-top:1px solid rgba(128,128,128,.35)"


def notebook(report: Report) -> str:
    """The report as HTML without scripts or style sheets: grade, claims, rewrites, findings; what holds is folded."""
    said = [f for f in report.findings if f.verdict != "holds"]
    holds = [f for f in report.findings if f.verdict == "holds"]
    parts = [f"<p><b>{html.escape(report.program)}</b> {_badge(report.grade)} {html.escape(report.says)}</p>"]
    parts += [f"<p style='margin:.2em 0'><i>{kind}</i> {html.escape(text)}</p>" for kind, text in basis(report)]
    if said:
        parts.append(_table(said))
    if holds:
        count = "1 clause holds" if len(holds) == 1 else f"{len(holds)} clauses hold"
        opened = "" if said else " open"
        parts.append(f"<details{opened}><summary>{count}</summary>{_table(holds)}</details>")
    return f"<div style='max-width:70em'>{''.join(parts)}</div>"


def _badge(word: str) -> str:
    colour = COLOURS.get(word, "#666666")
    return (f"<span style='background:{colour};color:#ffffff;border-radius:.6em;padding:.1em .6em;font-weight:bold'>"
            f"{html.escape(word)}</span>")


def _table(findings: Sequence[Finding]) -> str:
    heads = "".join(f"<th style='{CELL}'>{name}</th>" for name in ("verdict", "rule", "where", "line", "why"))
    rows = "".join(f"<tr style='background:transparent;{LINE}'>{''.join(_row(finding))}</tr>" for finding in findings)
    return (f"<table style='border-collapse:collapse;width:100%'><thead><tr>{heads}</tr></thead>"
            f"<tbody>{rows}</tbody></table>")


def _row(finding: Finding) -> Iterator[str]:
    verdict, rule, where, line, said = cells(finding)
    yield f"<td style='{CELL}'>{_badge(verdict)}</td>"
    yield f"<td style='{CELL}'>{html.escape(rule)}</td>"
    yield f"<td style='{CELL}'><code style='white-space:normal'>{html.escape(where)}</code></td>"
    yield f"<td style='{CELL}'>{line}</td>"
    first, *others = [html.escape(text) for _, text in said]
    labels = [label for label, _ in said[1:]]
    more = "".join(f"<br><i style='opacity:.7'>{label}</i> {text}" for label, text in zip(labels, others, strict=True))
    yield f"<td style='{CELL};width:55%'>{first}{more}</td>"

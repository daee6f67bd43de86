"""Colours, tags and legends of drawings, and the marks that a report leaves on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BLAME", "KINDS", "REMARK", "ROLES", "Marks", "Style", "clean", "marks_of"]

# Okabe & Ito's colours, safe for colour-blind readers; vermillion is kept for faults
BLAME, REMARK = "#d55e00", "#0072b2"


@dataclass(frozen=True)
class Style:
    """How boxes of one sort look, and what the legend says."""

    label: str
    fill: str
    border: str
    thick: float = 1.5
    dash: str = ""
    ink: str = "#000000"


KINDS = {
    "initial": Style("initial vector", "#d9eefa", "#56b4e9"),
    "weight": Style("weight", "#eeeeee", "#8a8a8a"),
    "MatMul": Style("MatMul (G-var)", "#d6e6f2", "#0072b2"),
    "Nonlin": Style("Nonlin", "#d5efe7", "#009e73"),
    "Dot": Style("Dot", "#fbecc8", "#e69f00"),
}
ROLES = {
    "initial": Style("initial vector", "#d9eefa", "#56b4e9"),
    "weight": Style("weight", "#eeeeee", "#8a8a8a"),
    "dedicated": Style("weight W^{i,j}", "#d4d4d4", "#333333", 2.0),
    "G-var": Style("MatMul output g", "#d6e6f2", "#0072b2"),
    "phi": Style("Nonlin", "#ffffff", "#009e73"),
    "input": Style("x^{i,j} = phi^{i,j}(g)", "#b8e3d5", "#009e73", 2.0),
    "operand": Style("W^{i,j} x^{i,j}", "#f4e0ec", "#cc79a7", 2.0),
    "score": Style("p_i, scale n**-0.5", "#fbdfa6", "#e69f00", 2.0),
    "average": Style("scale 1/n", "#fbf7c4", "#a89a00"),
    "later": Style("MatMul behind scores", "#d6e6f2", "#0072b2", 1.5, "6 3"),
    "output": Style("h^j = phi^j(g; p)", "#ffffff", "#000000", 2.5),
    "unused": Style("unused", "#ffffff", "#bbbbbb", 1.0, "3 3", "#767676"),
}


@dataclass(frozen=True)
class Marks:
    """What a report says, as a drawing shows it."""

    sorts: Mapping[str, tuple[str, ...]]  # node -> its kind, or its roles if the drawing is of a check
    judged: bool = False
    verdict: str = ""  # grade, and what follows from it
    path: frozenset[str] = frozenset()  # nodes at fault and between, or without faults those of the remarks
    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of the findings about a node
    notes: dict[str, str] = field(default_factory=dict)  # node -> whole messages
    faults: tuple[str, ...] = ()  # one line for each number, faults first
    fails: int = 0  # how many of them are faults; the others are remarks
    claims: tuple[str, ...] = ()

    @property
    def colour(self) -> str:
        """Colour of the path."""
        return BLAME if self.fails else REMARK

    def joins(self, u: str, v: str) -> bool:
        """Whether an edge belongs to the path; what a statement reads of itself, in an earlier round, does not."""
        return u != v and {u, v} <= self.path

    def style(self, node: str) -> Style:
        """The style of a node: by its kind, or by its first role if the drawing is of a check."""
        return (ROLES if self.judged else KINDS)[self.sorts[node][0]]


def marks_of(graph: Any, report: Any) -> Marks:
    """The marks of a report: faults and remarks are numbered; the paths of faults, else of remarks, are drawn."""
    if report is None:
        return Marks({node: (kind,) for node, kind in graph.nodes(data="kind")})
    failing = [f for f in report.findings if f.verdict in ("fails", "unknown")]
    remarks = [f for f in report.findings if f.verdict == "remark"]
    numbers: dict[str, tuple[int, ...]] = {}
    notes: dict[str, str] = {}
    for number, finding in enumerate([*failing, *remarks], 1):
        for node in finding.where.split(", "):
            numbers[node] = (*numbers.get(node, ()), number)
        for node in {*finding.nodes, *finding.where.split(", ")}:
            told = (notes.get(node), f"{finding.rule}: {finding.message}", finding.fix and f"try {finding.fix}")
            notes[node] = "\n".join(filter(None, told))
    path = frozenset(node for finding in failing or remarks for node in finding.nodes)
    verdict = report.grade
    if report.claims:
        verdict += f": {', '.join(f'{claim.name} ({claim.standing})' for claim in report.claims)}"
    if report.consequence:
        verdict += f": {report.consequence}" + (f" like {report.rate}" if report.rate else "")
    faults = tuple(_short(finding) for finding in [*failing, *remarks])
    sorts = _roles(graph, {rewrite.where for rewrite in report.rewrites if rewrite.kind == "unused"})
    return Marks(sorts, True, verdict, path, numbers, notes, faults, len(failing), _claims(report))


def _roles(graph: Any, dropped: set[str]) -> dict[str, tuple[str, ...]]:
    """Roles, where what the rewrites before the check drop is unused, and so is what only such statements read."""
    found = dict(graph.nodes(data="roles"))
    for node in graph:
        readers = set(graph.successors(node))
        if node in dropped or (readers and readers <= dropped):
            found[node] = ("unused",)
    return found


def _claims(report: Any) -> tuple[str, ...]:
    """What the grade rests on besides the clauses: results beyond Assumption 1, and exact rewrites."""
    rewrites = (f"{rewrite.kind}, line {rewrite.line}: {rewrite.text}" for rewrite in report.rewrites)
    return (*map(str, report.claims), *rewrites)


def _short(finding: Any) -> str:
    """Rule, place and first sentence of a finding."""
    sentence = re.split(r"(?<!e\.g)(?<!i\.e)[.;] ", finding.message, maxsplit=1)[0]
    place = f", line {finding.line}" if finding.line else ""
    return f"{finding.rule}{place}: {sentence}"


def clean(text: object) -> str:
    """Drop the control characters that XML forbids."""
    return "".join(
        c
        for c in str(text)
        if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF and ord(c) not in (0xFFFE, 0xFFFF))
    )

"""Drawings of the networkx view of a program: SVG, Graphviz and Mermaid, with the marks that a check leaves on them."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from tensorprog.show.graph_layout import CHARACTER, LINE, PAD, PORT, TAG, Edge, Placement, layout, lines

__all__ = ["BLAME", "REMARK", "captions", "marks_of", "to_dot", "to_mermaid", "to_svg"]

MARGIN, NARROWEST = 24.0, 560.0
WIDE = 8.6  # a character of the title
GREY = "#777777"
TIP = 9.0  # length of an arrowhead

# Okabe & Ito's colours, safe for colour-blind readers; vermillion is kept for faults
BLAME, REMARK = "#b34700", "#0072b2"


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
ROLES = {name: KINDS[name] for name in ("initial", "weight")} | {
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
    claims: tuple[str, ...] = ()  # what the grade rests on besides the clauses: results beyond them, exact rewrites

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
    rewrites = (f"{rewrite.kind}, line {rewrite.line}: {rewrite.text}" for rewrite in report.rewrites)
    claims = (*map(str, report.claims), *rewrites)
    return Marks(sorts, True, verdict, path, numbers, notes, faults, len(failing), claims)


def _roles(graph: Any, dropped: set[str]) -> dict[str, tuple[str, ...]]:
    """Roles, where what the rewrites before the check drop is unused, and so is what only such statements read."""
    found = dict(graph.nodes(data="roles"))
    for node in graph:
        readers = set(graph.successors(node))
        if node in dropped or (readers and readers <= dropped):
            found[node] = ("unused",)
    return found


def _short(finding: Any) -> str:
    """Rule, place and first sentence of a finding."""
    sentence = re.split(r"(?<!e\.g)(?<!i\.e)[.;] ", finding.message, maxsplit=1)[0]
    place = f", line {finding.line}" if finding.line else ""
    return f"{finding.rule}{place}: {sentence}"


def clean(text: object) -> str:
    """Drop the control characters that XML forbids."""
    return re.sub("[\\0-\\x08\\x0b-\\x1f\\ud800-\\udfff\\ufffe\\uffff]", "", str(text))


# ---- SVG ------------------------------------------------------------------------------------------------------------


def to_svg(graph: Any, report: Any = None) -> str:
    """Draw the program as a self-contained SVG: kinds of statements, or with a report roles in Assumption 1.

    With a report the title has the grade, and statements at fault are numbered, with the path between them, and listed.
    """
    marks = marks_of(graph, report)
    tags = {node: ", ".join(marks.sorts[node]) for node in graph} if marks.judged else {}
    plan = layout(graph, tags)
    title = clean(graph.graph.get("name", "")) + (f" - {marks.verdict}" if marks.judged else "")
    inner = max(plan.width, NARROWEST, len(title) * WIDE)
    legend, below = list(_legend(marks, inner)), list(_listing(marks, inner))
    head = MARGIN + 30 + 22 * (max(row for row, _, _, _ in legend) + 1 if legend else 0)
    width, foot = inner + 2 * MARGIN, head + 18 + plan.height
    height = foot + MARGIN + (LINE * len(below) + 10 if below else 0)
    origin = ((width - plan.width) / 2, head + 18)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        "<defs>" + "".join(_tip(name, colour) for name, colour in (("tip", GREY), ("path", marks.colour))) + "</defs>",
        _text(MARGIN, MARGIN, title, bold=True, size=14),
    ]
    for row, x, label, style in legend:
        y = MARGIN + 14 + 22 * row
        out.append(_rect(MARGIN + x, y, 18, 14, 4, style) + _text(MARGIN + x + 24, y + 11, label, style.ink))
    # the path on top
    for u, v, k, data in sorted(graph.edges(keys=True, data=True), key=lambda edge: marks.joins(*edge[:2])):
        colour = marks.colour if marks.joins(u, v) else ""
        out.append(_edge(plan, (u, v, k), data["role"], origin, colour))
    out += [_box(plan, node, data, marks, tags.get(node, ""), origin) for node, data in graph.nodes(data=True)]
    for k, (text, colour) in enumerate(below):
        out.append(_text(MARGIN, foot + MARGIN + LINE * k, text, colour))
    return "\n".join([*out, "</svg>"])


def _legend(marks: Marks, width: float) -> Iterator[tuple[int, float, str, Style]]:
    """Row, offset, label and style of each entry that occurs in the drawing."""
    shown = {sort for sorts in marks.sorts.values() for sort in sorts}
    entries = [
        (f"{name}: {style.label}" if marks.judged and name not in style.label else style.label, style)
        for name, style in (ROLES if marks.judged else KINDS).items()
        if name in shown
    ]
    if marks.path:
        label = "at fault" if marks.fails else "remarked on"
        entries.append((label, Style("", "#ffffff", marks.colour, 3.0, ink=marks.colour)))
    row, at = 0, 0.0
    for label, style in entries:
        size = len(label) * CHARACTER + 44
        if at and at + size - 20 > width:
            row, at = row + 1, 0.0
        yield row, at, label, style
        at += size


def _listing(marks: Marks, width: float) -> Iterator[tuple[str, str]]:
    """Lines under the drawing, with their colours: claims and rewrites, then faults and remarks by number."""
    entries = [(claim, "  ", "#000000") for claim in marks.claims]
    entries += [
        (f"{number:>2}  {fault}", "    ", BLAME if number <= marks.fails else "#000000")
        for number, fault in enumerate(marks.faults, 1)
    ]
    for text, indent, colour in entries:
        columns = int(width / CHARACTER)
        for line in textwrap.wrap(clean(text), columns, subsequent_indent=indent, break_on_hyphens=False):
            yield line, colour


def _tip(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" '
        f'markerWidth="9" markerHeight="9" orient="auto"><path d="M0,0.5 L8,4 L0,7.5 z" fill="{colour}"/></marker>'
    )


def _text(
    x: float, y: float, text: str, colour: str = "#000000", *, bold: bool = False, size: float = 0, middle: bool = False
) -> str:
    extra = f' fill="{colour}"' if colour != "#000000" else ""
    extra += ' font-weight="bold"' if bold else ""
    extra += f' font-size="{size:g}"' if size else ""
    extra += ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra} xml:space="preserve">{escape(clean(text))}</text>'


def _rect(x: float, y: float, w: float, h: float, radius: float, style: Style, path: str = "") -> str:
    stroke, thick = (path, 3.0) if path else (style.border, style.thick)
    dash = f' stroke-dasharray="{style.dash}"' if style.dash and not path else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius:g}" fill="{style.fill}" '
        f'stroke="{stroke}" stroke-width="{thick:g}"{dash}/>'
    )


def _box(plan: Placement, node: str, data: Any, marks: Marks, tag: str, origin: tuple[float, float]) -> str:
    (x, y), (w, h) = plan.centres[node], plan.sizes[node]
    x, y = x + origin[0], y + origin[1]
    style = marks.style(node)
    note = f"<title>{escape(clean(marks.notes[node]))}</title>" if node in marks.notes else ""
    out = [note, _rect(x - w / 2, y - h / 2, w, h, 7, style, marks.colour if node in marks.path else "")]
    text = lines(data["text"])
    first = y + TAG * bool(tag) / 2 - (len(text) - 1) / 2 * LINE + 4
    for k, line in enumerate(text):
        left, middle = (x, True) if len(text) == 1 else (x - w / 2 + PAD, False)
        out.append(_text(left, first + k * LINE, line, style.ink, middle=middle))
    if tag:
        out.append(_text(x - w / 2 + PAD, y - h / 2 + TAG, tag, "#333333", size=10))
    if node in marks.numbers:
        out.append(_numbers(x + w / 2, y - h / 2, marks.numbers[node], marks))
    return f"<g>{''.join(out)}</g>"


def _numbers(x: float, y: float, numbers: Sequence[int], marks: Marks) -> str:
    """The findings about a node, on its upper right corner: full for faults, hollow for remarks."""
    fault = numbers[0] <= marks.fails
    text = ",".join(map(str, numbers))
    style, ink = (Style("", BLAME, BLAME, 1), "#ffffff") if fault else (Style("", "#ffffff", "#000000", 1), "#000000")
    size = max(16.0, len(text) * CHARACTER + 6)
    return _rect(x - size / 2, y - 8, size, 16, 8, style) + _text(
        x, y + 3.5, text, ink, bold=True, size=10, middle=True
    )


def _edge(plan: Placement, edge: Edge, role: str, origin: tuple[float, float], path: str) -> str:
    u, v, _ = edge
    y1, y2, h1, h2 = plan.centres[u][1], plan.centres[v][1], plan.sizes[u][1], plan.sizes[v][1]
    style = (
        f'fill="none" stroke="{path or GREY}" stroke-width="{2.6 if path else 1.2}" '
        f'marker-end="url(#{"path" if path else "tip"})"' + (' stroke-dasharray="4 3"' if role == "weight" else "")
    )
    if y1 >= y2:
        return f'<path d="{_back(plan, edge, origin)}" stroke-linejoin="round" {style}/>'
    bends = plan.bends.get((u, v), ())
    side = edge[2] * PORT
    start, end = plan.leaves[edge], plan.arrives[edge]
    stops = [(start, y1 + h1 / 2), (start, plan.bands[u][1])]
    stops += [point for x, top, bottom in bends for point in ((x + side, top), (x + side, bottom))]
    stops += [(end, plan.bands[v][0] - TIP), (end, y2 - h2 / 2 - 1)]
    return f'<path d="{_curve([(x + origin[0], y + origin[1]) for x, y in stops])}" {style}/>'


def _curve(stops: Sequence[tuple[float, float]]) -> str:
    """Straight inside rows (between stops 0 and 1, 2 and 3, ..), curved between them."""
    path = f"M{stops[0][0]:.1f},{stops[0][1]:.1f}"
    for k, ((xa, ya), (xb, yb)) in enumerate(itertools.pairwise(stops)):
        middle = (ya + yb) / 2
        path += f" V{yb:.1f}" if k % 2 == 0 else f" C{xa:.1f},{middle:.1f} {xb:.1f},{middle:.1f} {xb:.1f},{yb:.1f}"
    return path


def _back(plan: Placement, edge: Edge, origin: tuple[float, float]) -> str:
    """Back along a recurrence: through the gap below, up a lane on the right, in from above."""
    u, v, _ = edge
    y1, y2, h1, h2 = plan.centres[u][1], plan.centres[v][1], plan.sizes[u][1], plan.sizes[v][1]
    dx, dy = origin
    step = 4 * (list(plan.lanes).index(u) % 3)
    below, above = plan.bands[u][1] + 12 + step + dy, plan.bands[v][0] - 16 - step + dy
    start, end = (plan.leaves[edge] + dx, y1 + h1 / 2 + dy), (plan.arrives[edge] + dx, y2 - h2 / 2 - 1 + dy)
    return (
        f"M{start[0]:.1f},{start[1]:.1f} V{below:.1f} H{plan.lanes[u] + dx:.1f} V{above:.1f} H{end[0]:.1f} "
        f"V{end[1]:.1f}"
    )


# ---- text for other programs --------------------------------------------------------------------------------------


def _labels(graph: Any, marks: Marks) -> dict[str, list[str]]:
    """The lines in each box: numbers of findings and roles, if the program was checked, and the statement."""
    found = {}
    for node, data in graph.nodes(data=True):
        numbers = "".join(f"({number}) " for number in marks.numbers.get(node, ()))
        found[node] = [numbers + ", ".join(marks.sorts[node]), data["text"]] if marks.judged else [data["text"]]
    return found


def captions(graph: Any, report: Any = None) -> list[str]:
    """What stands beside a drawing of a check: the grade, what it rests on, and the findings by number."""
    marks = marks_of(graph, report)
    if not marks.judged:
        return []
    faults = [f"({number}) {fault}" for number, fault in enumerate(marks.faults, 1)]
    return [f"{graph.graph.get('name', '')} - {marks.verdict}", *marks.claims, *faults]


def to_dot(graph: Any, report: Any = None) -> str:
    """Return the program in Graphviz's DOT language; with a report its roles, faults and the paths between them."""
    marks = marks_of(graph, report)

    def quoted(*texts: str) -> str:
        return '"' + "\\n".join(clean(text).replace("\\", "\\\\").replace('"', '\\"') for text in texts) + '"'

    lines = [
        f"digraph {quoted(graph.graph.get('name', ''))} {{",
        '  node [shape=box, style="rounded,filled", fontname=monospace];',
    ]
    if marks.judged:
        caption = quoted(*captions(graph, report)).replace("\\n", "\\l")[:-1]
        lines.append(f'  graph [label={caption}\\l", labeljust=l, fontname=monospace];')
    labels = _labels(graph, marks)
    for node in graph:
        style, fault = marks.style(node), node in marks.path
        look = f'fillcolor="{style.fill}", color="{marks.colour if fault else style.border}", fontcolor="{style.ink}"'
        look += ", penwidth=3" if fault else ""
        look += ', style="rounded,filled,dashed"' if style.dash else ""
        lines.append(f"  {quoted(node)} [label={quoted(*labels[node])}, {look}];")
    for u, v, data in graph.edges(data=True):
        look = f', color="{marks.colour}", penwidth=3' if marks.joins(u, v) else ""
        lines.append(f"  {quoted(u)} -> {quoted(v)} [label={quoted(data['role'])}{look}];")
    return "\n".join([*lines, "}"])


def to_mermaid(graph: Any, report: Any = None) -> str:
    """Return the program as a Mermaid flowchart; with a report its roles, faults and the paths between them."""
    marks = marks_of(graph, report)
    names = {node: f"n{k}" for k, node in enumerate(graph)}
    entities = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;"}

    def text(value: str) -> str:
        return "".join(entities.get(c, c) for c in clean(value))

    def sort(node: str) -> str:
        return marks.sorts[node][0].replace("-", "")

    lines = ["flowchart TD", *(f"  %% {' '.join(clean(line).split())}" for line in captions(graph, report))]
    labels = _labels(graph, marks)
    for node in graph:
        lines.append(f'  {names[node]}("{"<br/>".join(map(text, labels[node]))}"):::{sort(node)}')
    for u, v, data in graph.edges(data=True):
        lines.append(f"  {names[u]} -->|{data['role']}| {names[v]}")
    for sort_name, style in (ROLES if marks.judged else KINDS).items():
        dash = f",stroke-dasharray:{style.dash}" if style.dash else ""
        lines.append(
            f"  classDef {sort_name.replace('-', '')} fill:{style.fill},stroke:{style.border},color:{style.ink}{dash}"
        )
    for node in graph:
        if node in marks.path:
            lines.append(f"  style {names[node]} stroke:{marks.colour},stroke-width:3px")
    bad = [str(k) for k, (u, v) in enumerate(graph.edges()) if marks.joins(u, v)]
    if bad:
        lines.append(f"  linkStyle {','.join(bad)} stroke:{marks.colour},stroke-width:3px")
    return "\n".join(lines)

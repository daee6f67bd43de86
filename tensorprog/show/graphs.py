"""Drawings of the networkx view of a program: SVG, Graphviz and Mermaid, with the marks that a check leaves on them."""

from __future__ import annotations

import io
import re
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BLAME", "REMARK", "marks_of", "to_dot", "to_mermaid", "to_svg"]

GREY = "#777777"
CHARACTER, LINE, PAD, INCH = 6.1, 15.0, 8.0, 72.0  # points: of a letter, a line, around texts
GAP, BETWEEN, NARROWEST = 16.0, 34.0, 400.0  # between boxes, between rows; the least width
WRAP = 46  # characters in a line of a box
SWEEPS = 8  # through the rows, to put boxes near what they read
LETTERS: dict[str, Any] = {"family": ["DejaVu Sans Mono", "monospace"], "size": 10}
SVG: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "tensorprog"}

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
    path: frozenset[str] = frozenset()  # nodes at fault and between, or without faults those of the remarks
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of the findings about a node
    captions: tuple[str, ...] = ()  # the grade, what it rests on, and a line for each finding, faults first
    colour: str = REMARK  # of the path

    def joins(self, u: str, v: str) -> bool:
        """Whether an edge belongs to the path; what a statement reads of itself, in an earlier round, does not."""
        return u != v and {u, v} <= self.path

    def style(self, node: str) -> Style:
        """The style of a node: by its kind, or by its first role if the drawing is of a check."""
        return (ROLES if self.judged else KINDS)[self.sorts[node][0]]

    def lines(self, node: str, text: str) -> list[str]:
        """The lines in the box of a node: numbers of findings and roles, if the program was checked, and the text."""
        numbers = "".join(f"({number}) " for number in self.numbers.get(node, ()))
        return [numbers + ", ".join(self.sorts[node]), text] if self.judged else [text]


def marks_of(graph: Any, report: Any) -> Marks:
    """The marks of a report: faults and remarks are numbered; the paths of faults, else of remarks, are drawn."""
    if report is None:
        return Marks({node: (kind,) for node, kind in graph.nodes(data="kind")})
    failing = [f for f in report.findings if f.verdict in ("fails", "unknown")]
    remarks = [f for f in report.findings if f.verdict == "remark"]
    numbers = defaultdict[str, tuple[int, ...]](tuple)
    claims = [*map(str, report.claims)]
    claims += [f"{rewrite.kind}, line {rewrite.line}: {rewrite.text}" for rewrite in report.rewrites]
    faults = []
    for number, finding in enumerate([*failing, *remarks], 1):
        for node in finding.where.split(", "):
            numbers[node] += (number,)
        place = f", line {finding.line}" if finding.line else ""
        sentence = re.split(r"(?<!e\.g)(?<!i\.e)[.;] ", finding.message, maxsplit=1)[0]
        faults.append(f"({number}) {finding.rule}{place}: {sentence}")
    title = f"{graph.graph.get('name', '')} - {report.grade}"
    if report.claims:
        title += f": {', '.join(f'{claim.name} ({claim.standing})' for claim in report.claims)}"
    if report.consequence:
        title += f": {report.consequence}" + (f" like {report.rate}" if report.rate else "")
    path = frozenset(node for finding in failing or remarks for node in finding.nodes)
    return Marks(
        dict(graph.nodes(data="roles")), True, path, numbers, (title, *claims, *faults), BLAME if failing else REMARK
    )


def clean(text: object) -> str:
    """Drop the control characters that XML forbids."""
    return re.sub("[\\0-\\x08\\x0b-\\x1f\\ud800-\\udfff\\ufffe\\uffff]", "", str(text))


# ---- a drawing -----------------------------------------------------------------------------------------------------


def to_svg(graph: Any, report: Any = None) -> str:
    """Draw the program as a self-contained SVG: kinds of statements, or with a report roles in Assumption 1.

    With a report the title has the grade, and statements at fault are numbered, with the path between them, and listed.

    Raises    PlotsUnavailableError without matplotlib
    """
    from tensorprog.show.plots import need_matplotlib, plain

    need_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

    marks, labels = marks_of(graph, report), {}
    for node, text in graph.nodes(data="text"):
        labels[node] = "\n".join(line for part in marks.lines(node, text) for line in _lines(part, WRAP))
    places, sizes, width, height = _layout(graph, labels)
    below = [line for text in marks.captions[1:] for line in _lines(text, int(width / CHARACTER))]
    shown = {sort for sorts in marks.sorts.values() for sort in sorts}
    styles = [(name, style) for name, style in (ROLES if marks.judged else KINDS).items() if name in shown]
    entries: list[Any] = [
        Patch(
            facecolor=style.fill,
            edgecolor=style.border,
            linewidth=style.thick,
            linestyle="--" if style.dash else "-",
            label=f"{name}: {style.label}" if marks.judged and name not in style.label else style.label,
        )
        for name, style in styles
    ]
    columns = max(1, int(width / CHARACTER / (6 + max(len(entry.get_label()) for entry in entries)))) if entries else 1
    head, foot = LINE * (2 - -len(entries) // columns), LINE * (1 + len(below))
    figure = Figure(figsize=(width / INCH, (head + height + foot) / INCH))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height + foot, -head))
    ax.axis("off")
    boxes = {}
    for node, (x, y) in places.items():
        style, fault, (w, h) = marks.style(node), node in marks.path, sizes[node]
        boxes[node] = FancyBboxPatch(
            (x - w / 2, y - h / 2),
            w,
            h,
            boxstyle="round,pad=0,rounding_size=5",
            facecolor=style.fill,
            edgecolor=marks.colour if fault else style.border,
            linewidth=2.5 if fault else style.thick,
            linestyle="--" if style.dash and not fault else "-",
            zorder=3,
        )
        ax.add_patch(boxes[node])
        ax.text(x, y, plain(clean(labels[node])), ha="center", va="center", color=style.ink, zorder=4, **LETTERS)
    for u, v, data in graph.edges(data=True):
        blamed, back = marks.joins(u, v), places[u][1] >= places[v][1]
        arrow = FancyArrowPatch(
            places[u],
            places[v],
            patchA=boxes[u],
            patchB=boxes[v],
            arrowstyle="-|>",
            mutation_scale=9,
            connectionstyle=f"arc3,rad={0.5 if back else 0.05 if data['role'] in ('weight', 'left') else -0.05}",
            color=marks.colour if blamed else GREY,
            linewidth=2.2 if blamed else 0.9,
            linestyle="--" if data["role"] == "weight" else "-",
            zorder=2 if blamed else 1,
        )
        ax.add_patch(arrow)
    title = clean(marks.captions[0] if marks.judged else graph.graph.get("name", ""))
    ax.text(
        PAD,
        -head + LINE,
        plain("\n".join(_lines(title, int(width / CHARACTER)))),
        weight="bold",
        va="center",
        **LETTERS,
    )
    if entries:
        ax.legend(
            handles=entries, loc="upper left", bbox_to_anchor=(0, 1 - 1.6 * LINE / (head + height + foot)),
            ncols=columns, frameon=False, prop=LETTERS,
        )  # fmt: skip
    for k, line in enumerate(below):
        ax.text(PAD, height + LINE * (k + 0.5), plain(clean(line)), va="center", **LETTERS)
    out = io.StringIO()
    with matplotlib.rc_context(SVG):
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return out.getvalue()


def _lines(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _layout(
    graph: Any, labels: Mapping[str, str]
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]], float, float]:
    """Places and sizes of the boxes in rows from what is declared to the outputs, width and height of the whole."""
    rows = _rows(graph)
    sizes = {
        node: (CHARACTER * max(map(len, text.split("\n"))) + 2 * PAD, LINE * (1 + text.count("\n")) + PAD)
        for node, text in labels.items()
    }
    width = max([NARROWEST, *(sum(sizes[node][0] + GAP for node in row) + GAP for row in rows)])
    places, top = {}, GAP
    for row in rows:
        high = max(sizes[node][1] for node in row)
        left = (width - sum(sizes[node][0] + GAP for node in row) + GAP) / 2
        for node in row:
            places[node] = left + sizes[node][0] / 2, top + high / 2
            left += sizes[node][0] + GAP
        top += high + BETWEEN
    return places, sizes, width, top - BETWEEN + GAP


def _rows(graph: Any) -> list[list[str]]:
    """Nodes row by row: longest ways from what is declared, each below the middle of what it reads or is read by."""
    import networkx as nx

    position = nx.get_node_attributes(graph, "position")
    forward = nx.DiGraph()
    forward.add_nodes_from(graph)
    forward.add_edges_from((u, v) for u, v in graph.edges() if position[u] < position[v])  # recurrences point back
    level = {node: k for k, nodes in enumerate(nx.topological_generations(forward)) for node in nodes}
    for node in graph:  # a weight or initial vector stands just above its first user
        if position[node] < 0 and forward.out_degree(node):
            level[node] = min(level[v] for v in forward.successors(node)) - 1
    rows = [[node for node in graph if level[node] == row] for row in sorted(set(level.values()))]
    at = {node: k - (len(row) - 1) / 2 for row in rows for k, node in enumerate(row)}
    for _ in range(SWEEPS):
        for row in rows:
            near = {node: [at[other] for other in nx.all_neighbors(forward, node)] or [at[node]] for node in row}
            row.sort(key=lambda node: sum(near[node]) / len(near[node]))
            at |= {node: k - (len(row) - 1) / 2 for k, node in enumerate(row)}
    return rows


# ---- text for other programs --------------------------------------------------------------------------------------


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
        caption = quoted(*marks.captions).replace("\\n", "\\l")[:-1]
        lines.append(f'  graph [label={caption}\\l", labeljust=l, fontname=monospace];')
    for node, text in graph.nodes(data="text"):
        style, fault = marks.style(node), node in marks.path
        look = f'fillcolor="{style.fill}", color="{marks.colour if fault else style.border}", fontcolor="{style.ink}"'
        look += ", penwidth=3" if fault else ""
        look += ', style="rounded,filled,dashed"' if style.dash else ""
        lines.append(f"  {quoted(node)} [label={quoted(*marks.lines(node, text))}, {look}];")
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

    lines = ["flowchart TD", *(f"  %% {' '.join(clean(line).split())}" for line in marks.captions)]
    for node, said in graph.nodes(data="text"):
        written = "<br/>".join(map(text, marks.lines(node, said)))
        lines.append(f'  {names[node]}("{written}"):::{sort(node)}')
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

"""Drawings of the networkx view of a program: SVG, with the marks that a check leaves on them."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tensorprog.language.errors import need_package
from tensorprog.show.plots import plain

__all__ = ["BLAME", "REMARK", "to_svg"]

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
    dashed: bool = False
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
    "later": Style("MatMul behind scores", "#d6e6f2", "#0072b2", 1.5, True),
    "output": Style("h^j = phi^j(g; p)", "#ffffff", "#000000", 2.5),
    "unused": Style("unused", "#ffffff", "#bbbbbb", 1.0, True, "#767676"),
}


def _findings(report: Any) -> tuple[list[str], dict[str, str], set[str], str]:
    """What is said of a check below its title, the numbers of findings by node, the nodes of the path that joins those
    at fault, or else those of remarks, and the colour of that path.
    """
    remarks, numbers = [finding for finding in report.findings if finding.verdict == "remark"], dict[str, str]()
    said = [str(claim) for claim in report.claims]
    said += [f"{rewrite.kind}, line {rewrite.line}: {rewrite.text}" for rewrite in report.rewrites]
    for number, finding in enumerate([*report.failing, *remarks], 1):
        for node in finding.where.split(", "):
            numbers[node] = f"{numbers.get(node, '')}({number}) "
        place = f", line {finding.line}" if finding.line else ""
        sentence = re.split(r"(?<!e\.g)(?<!i\.e)[.;] ", finding.message, maxsplit=1)[0]
        said.append(f"({number}) {finding.rule}{place}: {sentence}")
    path = {node for finding in report.failing or remarks for node in finding.nodes}
    return said, numbers, path, BLAME if report.failing else REMARK


def _title(name: str, report: Any) -> str:
    """The name of a program, with the grade, what it rests on, and what happens instead of a limit."""
    claims = ", ".join(f"{claim.name} ({claim.standing})" for claim in report.claims)
    follows = report.consequence and report.consequence + (f" like {report.rate}" if report.rate else "")
    return ": ".join(filter(None, (f"{name} - {report.grade}", claims, follows)))


def _clean(text: object) -> str:
    """Drop the control characters that XML forbids."""
    return re.sub("[\\0-\\x08\\x0b-\\x1f\\ud800-\\udfff\\ufffe\\uffff]", "", str(text))


# ---- a drawing -----------------------------------------------------------------------------------------------------


def to_svg(graph: Any, report: Any = None) -> str:
    """Draw the program as a self-contained SVG: kinds of statements, or with a report roles in Assumption 1.

    With a report the title has the grade, and statements at fault are numbered, with the path between them, and listed.

    Raises    MissingPackageError without matplotlib
    """
    matplotlib = need_package("matplotlib", "pictures", "plot")
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

    looks, title = KINDS, str(graph.graph.get("name", ""))
    sorts: dict[str, Sequence[str]] = {node: (kind,) for node, kind in graph.nodes(data="kind")}
    said, numbers, path, colour = list[str](), dict[str, str](), set[str](), BLAME
    if report is not None:
        looks, title, sorts = ROLES, _title(title, report), dict(graph.nodes(data="roles"))
        said, numbers, path, colour = _findings(report)
    labels = dict[str, list[str]]()
    for node, text in graph.nodes(data="text"):
        above = () if report is None else (numbers.get(node, "") + ", ".join(sorts[node]),)
        labels[node] = [part for line in (*above, text) for part in _wrapped(_clean(line), WRAP)]
    sizes = {node: (CHARACTER * max(map(len, own)) + 2 * PAD, LINE * len(own) + PAD) for node, own in labels.items()}
    places, width, height = _layout(graph, sizes)
    columns = int((width - 2 * PAD) / CHARACTER)
    title, *below = ("\n".join(_wrapped(_clean(text), columns)) for text in (title, *said))
    seen = {sort for own in sorts.values() for sort in own}
    entries: list[Any] = [
        Patch(
            facecolor=style.fill, edgecolor=style.border, linewidth=style.thick, linestyle=_line(style.dashed),
            label=style.label if report is None or name in style.label else f"{name}: {style.label}",
        )
        for name, style in looks.items() if name in seen
    ]  # fmt: skip
    beside = max(1, columns // (6 + max((len(entry.get_label()) for entry in entries), default=0)))
    head, foot = LINE * (2 - -len(entries) // beside), LINE * (1 + len("\n".join(below).split("\n")))
    figure = Figure(figsize=(width / INCH, (head + height + foot) / INCH))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height + foot, -head))
    ax.axis("off")
    patches: dict[str, Any] = {}
    for node, own in sorts.items():
        (x, y), (w, h), style, blamed = places[node], sizes[node], looks[own[0]], node in path
        patches[node] = ax.add_patch(
            FancyBboxPatch(
                (x - w / 2, y - h / 2), w, h, boxstyle="round,pad=0,rounding_size=5", facecolor=style.fill,
                edgecolor=colour if blamed else style.border, linewidth=2.5 if blamed else style.thick,
                linestyle=_line(style.dashed and not blamed), zorder=3,
            )
        )  # fmt: skip
        ax.text(x, y, plain("\n".join(labels[node])), ha="center", va="center", color=style.ink, zorder=4, **LETTERS)
    for u, v, role in graph.edges(data="role"):
        if u == v:  # of an earlier round
            continue
        blamed = {u, v} <= path
        bend = 0.5 if places[u][1] >= places[v][1] else 0.05 if role in ("weight", "left") else -0.05
        ax.add_patch(
            FancyArrowPatch(
                places[u], places[v], patchB=patches[v], shrinkA=0, shrinkB=0, arrowstyle="-|>",
                connectionstyle=f"arc3,rad={bend}", mutation_scale=9, color=colour if blamed else GREY,
                linewidth=2.2 if blamed else 0.9, linestyle=_line(role == "weight"), zorder=2 if blamed else 1,
            )
        )  # fmt: skip
    ax.text(PAD, -head + LINE, plain(title), weight="bold", va="center", **LETTERS)
    ax.text(PAD, height, plain("\n".join(below)), va="top", linespacing=1.3, **LETTERS)
    if entries:
        top = 1 - 1.6 * LINE / (head + height + foot)
        ax.legend(handles=entries, loc="upper left", bbox_to_anchor=(0, top), ncols=beside, frameon=False, prop=LETTERS)
    out = io.StringIO()
    with matplotlib.rc_context(SVG):
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return out.getvalue()


def _line(dashed: bool) -> Literal["--", "-"]:
    return "--" if dashed else "-"


def _wrapped(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _layout(
    graph: Any, sizes: Mapping[str, tuple[float, float]]
) -> tuple[dict[str, tuple[float, float]], float, float]:
    """Places of the boxes in rows from what is declared to the outputs, width and height of the whole.

    Rows are longest ways from what is declared; each box is below the middle of what it reads or is read by.
    """
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
    for row in rows * SWEEPS:
        near = {node: [at[other] for other in nx.all_neighbors(forward, node)] or [at[node]] for node in row}
        row.sort(key=lambda node: sum(near[node]) / len(near[node]))
        at |= {node: k - (len(row) - 1) / 2 for k, node in enumerate(row)}
    taken = [sum(sizes[node][0] + GAP for node in row) for row in rows]
    width, places, top = max([NARROWEST, *(wide + GAP for wide in taken)]), {}, GAP
    for row, wide in zip(rows, taken, strict=True):
        high, left = max(sizes[node][1] for node in row), (width - wide + GAP) / 2
        for node in row:
            places[node] = left + sizes[node][0] / 2, top + high / 2
            left += sizes[node][0] + GAP
        top += high + BETWEEN
    return places, width, top - BETWEEN + GAP

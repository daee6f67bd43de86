"""Drawings of the view: layered layout, SVG, Graphviz and Mermaid text."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import networkx as nx

__all__ = ["BLAME", "Layout", "layout", "to_dot", "to_mermaid", "to_svg"]

KINDS = ("initial", "weight", "MatMul", "Nonlin", "Dot")
# Okabe & Ito's colours, safe for colour-blind readers: fill, border
COLOURS = {
    "initial": ("#d9eefa", "#56b4e9"),
    "weight": ("#eeeeee", "#8a8a8a"),
    "MatMul": ("#d6e6f2", "#0072b2"),
    "Nonlin": ("#d5efe7", "#009e73"),
    "Dot": ("#fbecc8", "#e69f00"),
}
LEGEND = {
    "initial": "initial vector",
    "weight": "weight",
    "MatMul": "MatMul (G-var)",
    "Nonlin": "Nonlin",
    "Dot": "Dot (score)",
}
BLAME = "#d55e00"
CHARACTER, LINE, PAD, LAYER, GAP = 7.3, 16.0, 10.0, 74.0, 26.0
WRAP = 46  # characters in a line of a box


@dataclass(frozen=True)
class Layout:
    """Centres and sizes of all nodes, and the bends of edges that span several layers."""

    centres: dict[str, tuple[float, float]]
    sizes: dict[str, tuple[float, float]]
    bends: dict[tuple[str, str], tuple[tuple[float, float], ...]]
    lanes: dict[str, float]  # right of everything: where the recurrence edges of a statement run
    width: float
    height: float


def _lines(text: str) -> list[str]:
    """Break a statement into lines at spaces and commas."""
    lines, line = [], ""
    for part in text.replace(" ", " \0").replace(",", ",\0").split("\0"):
        if line and len(line) + len(part) > WRAP:
            lines.append(line.rstrip())
            line = "  "
        line += part
    return [*lines, line.rstrip()]


def _layers(graph: Any) -> dict[str, int]:
    forward = nx.DiGraph()
    forward.add_nodes_from(graph)
    position = nx.get_node_attributes(graph, "position")
    forward.add_edges_from((u, v) for u, v in graph.edges() if position[u] < position[v])  # recurrences point back
    layer: dict[str, int] = {}
    for node in nx.topological_sort(forward):
        layer[node] = max((layer[u] + 1 for u in forward.predecessors(node)), default=0)
    for node in graph:  # a weight or initial vector stands just above its first user
        if position[node] < 0 and forward.out_degree(node):
            layer[node] = min(layer[v] for v in forward.successors(node)) - 1
    lowest = min(layer.values(), default=0)
    return {node: value - lowest for node, value in layer.items()}


def layout(graph: Any) -> Layout:
    """Place nodes in layers: longest path from the sources, barycentre ordering, then aligned with their neighbours."""
    layer = _layers(graph)
    sizes = {}
    for node, data in graph.nodes(data=True):
        lines = _lines(data["text"])
        sizes[node] = (max(map(len, lines)) * CHARACTER + 2 * PAD, len(lines) * LINE + PAD)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for node in graph:
        rows[layer[node]].append(node)
    above: dict[str, list[str]] = {node: [] for node in graph}
    below: dict[str, list[str]] = {node: [] for node in graph}
    paths: dict[tuple[str, str], list[str]] = {}
    extent = {node: size[0] for node, size in sizes.items()}
    for u, v in dict.fromkeys(graph.edges()):
        if layer[u] >= layer[v]:
            continue
        path = [u]
        for level in range(layer[u] + 1, layer[v]):
            dummy = f"\0{u}\0{v}\0{level}"
            rows[level].append(dummy)
            above[dummy], below[dummy], extent[dummy] = [], [], 6.0
            path.append(dummy)
        path.append(v)
        for a, b in itertools.pairwise(path):
            below[a].append(b)
            above[b].append(a)
        paths[u, v] = path
    place = {node: float(k) for row in rows for k, node in enumerate(row)}
    for sweep in range(12):
        neighbours = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            centre = {
                node: sum(place[o] for o in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else place[node]
                for node in row
            }
            row.sort(key=lambda node: (centre[node], place[node]))
            place.update({node: k - (len(row) - 1) / 2 for k, node in enumerate(row)})
    x: dict[str, float] = {}
    for row in rows:
        x |= _spread(row, dict.fromkeys(row, 0.0), extent)
    for sweep in range(16):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wanted = {}
            for node in row:
                others = [*above[node], *below[node]] if sweep > 4 else (above if sweep % 2 == 0 else below)[node]
                wanted[node] = sum(x[o] for o in others) / len(others) if others else x[node]
            x |= _spread(row, wanted, extent)
    y, top = {}, 0.0
    for row in rows:
        height = max((sizes[node][1] for node in row if node in sizes), default=LINE)
        for node in row:
            y[node] = top + height / 2
        top += height + LAYER - LINE
    left = min((x[node] - extent[node] / 2 for node in x), default=0.0)
    width = max((x[node] + extent[node] / 2 for node in x), default=0.0) - left
    centres = {node: (x[node] - left, y[node]) for node in graph}
    bends = {edge: tuple((x[d] - left, y[d]) for d in path[1:-1]) for edge, path in paths.items()}
    back = dict.fromkeys(u for u, v in graph.edges() if layer[u] >= layer[v])
    lanes = {node: width + 14.0 + 12.0 * k for k, node in enumerate(back)}
    return Layout(centres, sizes, bends, lanes, max([width, *lanes.values()]), top - LAYER + LINE + 12.0 * bool(lanes))


def _spread(row: Sequence[str], wanted: Mapping[str, float], extent: Mapping[str, float]) -> dict[str, float]:
    """Positions nearest to those wanted that keep order and distance (isotonic regression, pooling violators)."""
    offsets, total = [], 0.0
    for k, node in enumerate(row):
        if k:
            total += (extent[row[k - 1]] + extent[node]) / 2 + GAP
        offsets.append(total)
    pools: list[list[float]] = []  # mean, count
    for node, offset in zip(row, offsets, strict=True):
        pools.append([wanted[node] - offset, 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * count) / (pools[-1][1] + count), pools[-1][1] + count]
    values = [mean for mean, count in pools for _ in range(int(count))]
    return {node: value + offset for node, value, offset in zip(row, values, offsets, strict=True)}


def _offending(report: Any) -> tuple[set[str], dict[str, str]]:
    nodes: set[str] = set()
    notes: dict[str, str] = {}
    for finding in getattr(report, "findings", ()):
        if finding.verdict in ("fails", "unknown"):
            nodes |= set(finding.nodes)
            for name in finding.nodes:
                notes.setdefault(name, f"{finding.rule}: {finding.message}")
    return nodes, notes


def to_svg(graph: Any, report: Any = None) -> str:
    """Draw the program as a self-contained SVG; statements that a report faults, and the path between, stand out."""
    plan = layout(graph)
    bad, notes = _offending(report)
    margin, legend = 24.0, 64.0
    shown = [kind for kind in KINDS if any(data["kind"] == kind for _, data in graph.nodes(data=True))]
    legend_width = sum(len(LEGEND[kind]) * CHARACTER + 44 for kind in shown) + (150 if bad else 0)
    width, height = max(plan.width, legend_width) + 2 * margin, plan.height + 2 * margin + legend
    shift = (width - plan.width) / 2
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12">',
        f"<title>{escape(_clean(graph.graph.get('name', '')))}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        "<defs>"
        + "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" '
            f'markerWidth="9" markerHeight="9" orient="auto">'
            f'<path d="M0,0.5 L8,4 L0,7.5 z" fill="{colour}"/></marker>'
            for name, colour in (("tip", "#777777"), ("bad", BLAME))
        )
        + "</defs>",
    ]
    title = _clean(graph.graph.get("name", ""))
    out.append(f'<text x="{margin}" y="{margin}" font-weight="bold" font-size="14">{escape(title)}</text>')
    at = margin
    for kind in shown:
        fill, border = COLOURS[kind]
        out.append(
            f'<rect x="{at:.1f}" y="{margin + 14:.1f}" width="18" height="14" rx="4" fill="{fill}" stroke="{border}" '
            f'stroke-width="1.5"/><text x="{at + 24:.1f}" y="{margin + 25:.1f}">{LEGEND[kind]}</text>'
        )
        at += len(LEGEND[kind]) * CHARACTER + 44
    if bad:
        out.append(
            f'<rect x="{at:.1f}" y="{margin + 14:.1f}" width="18" height="14" rx="4" fill="#ffffff" stroke="{BLAME}" '
            f'stroke-width="3"/><text x="{at + 24:.1f}" y="{margin + 25:.1f}" fill="{BLAME}">at fault</text>'
        )
    origin = margin + legend
    twice: dict[tuple[str, str], int] = {}
    edges = sorted(graph.edges(data=True), key=lambda e: e[0] in bad and e[1] in bad)  # the offending path on top
    for u, v, data in edges:
        twice[u, v] = twice.get((u, v), 0) + 1
        fault = u in bad and v in bad
        out.append(_edge(plan, u, v, data["role"], shift, origin, fault, twice[u, v] - 1))
    for node, data in graph.nodes(data=True):
        (x, y), (w, h) = plan.centres[node], plan.sizes[node]
        fill, border = COLOURS[data["kind"]]
        stroke, thick = (BLAME, 3.0) if node in bad else (border, 1.5)
        x, y = x + shift, y + origin
        note = f"<title>{escape(_clean(notes[node]))}</title>" if node in notes else ""
        out.append(
            f'<g>{note}<rect x="{x - w / 2:.1f}" y="{y - h / 2:.1f}" width="{w:.1f}" height="{h:.1f}" rx="7" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="{thick}"/>'
        )
        lines = _lines(data["text"])
        for k, line in enumerate(lines):
            anchor = 'text-anchor="middle"' if len(lines) == 1 else ""
            left = x if len(lines) == 1 else x - w / 2 + PAD
            out.append(
                f'<text x="{left:.1f}" y="{y + (k - (len(lines) - 1) / 2) * LINE + 4:.1f}" {anchor} '
                f'xml:space="preserve">{escape(_clean(line))}</text>'
            )
        out.append("</g>")
    out.append("</svg>")
    return "\n".join(out)


def _edge(plan: Layout, u: str, v: str, role: str, shift: float, origin: float, fault: bool, extra: int) -> str:
    (x1, y1), (x2, y2) = plan.centres[u], plan.centres[v]
    (w1, h1), (w2, h2) = plan.sizes[u], plan.sizes[v]
    side = extra * 14.0
    style = (
        f'fill="none" stroke="{BLAME if fault else "#777777"}" stroke-width="{2.6 if fault else 1.2}" '
        f'marker-end="url(#{"bad" if fault else "tip"})"' + (' stroke-dasharray="4 3"' if role == "weight" else "")
    )
    if y1 >= y2:  # back along a recurrence: through the gap below, up a lane on the right, in from above
        lane = plan.lanes[u] + shift
        number = list(plan.lanes).index(u)
        start, end = (x1 + w1 / 4 + shift, y1 + h1 / 2 + origin), (x2 + w2 / 4 + shift, y2 - h2 / 2 - 1 + origin)
        below, above = start[1] + 12 + 4 * (number % 3), end[1] - 16 - 4 * (number % 3)
        path = f"M{start[0]:.1f},{start[1]:.1f} V{below:.1f} H{lane:.1f} V{above:.1f} H{end[0]:.1f} V{end[1]:.1f}"
        return f'<path d="{path}" stroke-linejoin="round" {style}/>'
    # leave and arrive spread over the box, towards where the other end lies
    bends = plan.bends.get((u, v), ())
    first, last = (bends[0][0], bends[-1][0]) if bends else (x2, x1)
    start_x = x1 + max(-0.35 * w1, min(0.35 * w1, (first - x1) * 0.35)) + side
    end_x = x2 + max(-0.4 * w2, min(0.4 * w2, (last - x2) * 0.5)) + side
    points = [(start_x, y1 + h1 / 2), *((x + side, y) for x, y in bends), (end_x, y2 - h2 / 2 - 1)]
    points = [(x + shift, y + origin) for x, y in points]
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (xa, ya), (xb, yb) in itertools.pairwise(points):
        middle = (ya + yb) / 2
        path += f" C{xa:.1f},{middle:.1f} {xb:.1f},{middle:.1f} {xb:.1f},{yb:.1f}"
    return f'<path d="{path}" {style}/>'


def _clean(text: str) -> str:
    """Drop the control characters that XML forbids."""
    return "".join(
        c
        for c in str(text)
        if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF and ord(c) not in (0xFFFE, 0xFFFF))
    )


def to_dot(graph: Any) -> str:
    """Return the program in Graphviz's DOT language."""

    def quoted(text: str) -> str:
        return '"' + _clean(text).replace("\\", "\\\\").replace('"', '\\"') + '"'

    lines = [
        f"digraph {quoted(graph.graph.get('name', ''))} {{",
        '  node [shape=box, style="rounded,filled", fontname=monospace];',
    ]
    for node, data in graph.nodes(data=True):
        fill, border = COLOURS[data["kind"]]
        lines.append(f'  {quoted(node)} [label={quoted(data["text"])}, fillcolor="{fill}", color="{border}"];')
    for u, v, data in graph.edges(data=True):
        lines.append(f"  {quoted(u)} -> {quoted(v)} [label={quoted(data['role'])}];")
    return "\n".join([*lines, "}"])


def to_mermaid(graph: Any) -> str:
    """Return the program as a Mermaid flowchart."""
    names = {node: f"n{k}" for k, node in enumerate(graph)}
    entities = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;"}

    def text(value: str) -> str:
        return "".join(entities.get(c, c) for c in _clean(value))

    lines = ["flowchart TD"]
    for node, data in graph.nodes(data=True):
        lines.append(f'  {names[node]}("{text(data["text"])}"):::{data["kind"]}')
    for u, v, data in graph.edges(data=True):
        lines.append(f"  {names[u]} -->|{data['role']}| {names[v]}")
    for kind, (fill, border) in COLOURS.items():
        lines.append(f"  classDef {kind} fill:{fill},stroke:{border}")
    return "\n".join(lines)

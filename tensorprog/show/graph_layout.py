"""Where boxes and arrows of a drawing go."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CHARACTER", "LINE", "PAD", "PORT", "TAG", "Edge", "Placement", "layout", "lines"]

Edge = tuple[str, str, int]  # from, to, and which of several

CHARACTER, LINE, PAD, LAYER, GAP = 7.3, 16.0, 10.0, 74.0, 26.0
SMALL, TAG = 6.0, 13.0  # a character and the line of a tag
CORNER, PORT = 8.0, 14.0  # what stays free of arrows at each end of a side; between arrows that leave or reach one box
WRAP = 46  # characters in a line of a box
BESIDE, PASSING = 0.03, 0.1  # firmness of declared boxes, and of edges that pass a row, where statements have 1
SWEEPS = 40


@dataclass(frozen=True)
class Placement:
    """Centres and sizes of all nodes, and the bends of edges that span several layers."""

    centres: dict[str, tuple[float, float]]
    sizes: dict[str, tuple[float, float]]
    bends: dict[tuple[str, str], tuple[tuple[float, float, float], ...]]  # x, top and bottom of each row passed
    bands: dict[str, tuple[float, float]]  # top and bottom of the row in which a node stands
    lanes: dict[str, float]  # right of everything: where the recurrence edges of a statement run
    leaves: dict[Edge, float]  # where arrows begin on the lower side of a box
    arrives: dict[Edge, float]  # and end on the upper side of one
    width: float
    height: float


def lines(text: str) -> list[str]:
    """Break a statement into lines at spaces, which lists of indices do not have."""
    return textwrap.wrap(text, WRAP, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _layers(graph: Any) -> dict[str, int]:
    import networkx as nx

    forward = nx.DiGraph()
    forward.add_nodes_from(graph)
    position = nx.get_node_attributes(graph, "position")
    forward.add_edges_from((u, v) for u, v in graph.edges() if position[u] < position[v])  # recurrences point back
    layer = {node: level for level, nodes in enumerate(nx.topological_generations(forward)) for node in nodes}
    for node in graph:  # a weight or initial vector stands just above its first user
        if position[node] < 0 and forward.out_degree(node):
            layer[node] = min(layer[v] for v in forward.successors(node)) - 1
    lowest = min(layer.values(), default=0)
    return {node: value - lowest for node, value in layer.items()}


def layout(graph: Any, tags: Mapping[str, str] | None = None) -> Placement:
    """Place nodes in layers: longest path from the sources, barycentre ordering, then aligned with their neighbours.

    Boxes with a tag have a line for it above the statement.  What is declared and never used stands below the rest.
    """
    tags = tags or {}
    loose = [node for node, position in graph.nodes(data="position") if position < 0 and not graph.degree(node)]
    layer = _layers(graph)
    sizes = {}
    for node, data in graph.nodes(data=True):
        text, tag = lines(data["text"]), tags.get(node, "")
        across = max(max(map(len, text)) * CHARACTER, len(tag) * SMALL)
        sizes[node] = (across + 2 * PAD, len(text) * LINE + TAG * bool(tag) + PAD)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for node in graph:
        if node not in loose:
            rows[layer[node]].append(node)
    rows += [loose] if loose else []
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
    declared = {node for node, position in graph.nodes(data="position") if position < 0}
    firm = {node: BESIDE if node in declared else 1.0 if node in sizes else PASSING for node in extent}
    x = _aligned(rows, above, below, extent, firm)
    left = min((x[node] - extent[node] / 2 for node in x), default=0.0)
    width = max((x[node] + extent[node] / 2 for node in x), default=0.0) - left
    bands: dict[str, tuple[float, float]] = {}
    top = 0.0
    for row in rows:
        height = max((sizes[node][1] for node in row if node in sizes), default=LINE)
        bands |= dict.fromkeys(row, (top, top + height))
        top += height + LAYER - LINE
    centres = {node: (x[node] - left, sum(bands[node]) / 2) for node in graph}
    bends = {edge: tuple((x[d] - left, *bands[d]) for d in path[1:-1]) for edge, path in paths.items()}
    back = dict.fromkeys(u for u, v in graph.edges() if layer[u] >= layer[v])
    lanes = {node: width + 14.0 + 12.0 * k for k, node in enumerate(back)}
    height = top - LAYER + LINE + 24.0 * bool(lanes)
    leaves, arrives = _ports(graph, centres, sizes, bends, lanes)
    return Placement(centres, sizes, bends, bands, lanes, leaves, arrives, max([width, *lanes.values()]), height)


def _ports(
    graph: Any,
    centres: Mapping[str, tuple[float, float]],
    sizes: Mapping[str, tuple[float, float]],
    bends: Mapping[tuple[str, str], tuple[tuple[float, float, float], ...]],
    lanes: Mapping[str, float],
) -> tuple[dict[Edge, float], dict[Edge, float]]:
    """Where arrows leave and arrive: spread over the box, towards where the other end lies, apart from each other.

    All that go back from one statement leave at one place.
    """
    leaves: dict[str, dict[Edge, float]] = {node: {} for node in graph}
    arrives: dict[str, dict[Edge, float]] = {node: {} for node in graph}
    home: dict[str, Edge] = {}
    for u, v, k in graph.edges(keys=True):
        ahead = centres[u][1] < centres[v][1]
        passed = [x for x, _, _ in bends.get((u, v), ())]
        first, last = (passed[0], passed[-1]) if passed else (centres[v][0], centres[u][0])
        one = (u, v, k) if ahead else home.setdefault(u, (u, v, k))
        leaves[u][one] = (first - centres[u][0]) * 0.35 if ahead else sizes[u][0] / 4
        arrives[v][u, v, k] = (last - centres[v][0]) * 0.5 if ahead else sizes[v][0] / 4
    start, end = (
        {edge: x for node, wanted in side.items() for edge, x in _apart(wanted, centres[node], sizes[node]).items()}
        for side in (leaves, arrives)
    )
    return {edge: start[edge if edge in start else home[edge[0]]] for edge in end}, end


def _apart(wanted: Mapping[Edge, float], centre: tuple[float, float], size: tuple[float, float]) -> dict[Edge, float]:
    """Positions on one side of a box, in the order of those wanted, and none at a corner."""
    order = sorted(wanted, key=lambda edge: (wanted[edge], edge))
    half = min(0.4 * size[0], size[0] / 2 - CORNER)
    gap = min(PORT, 2 * half / max(1, len(order) - 1))
    kept = {edge: max(-half, min(half, wanted[edge])) for edge in order}
    spread = _spread(order, kept, dict.fromkeys(order, 0.0), dict.fromkeys(order, 1.0), gap)
    room = half - gap * (len(order) - 1)
    return {edge: centre[0] + max(-half, min(room, spread[edge] - k * gap)) + k * gap for k, edge in enumerate(order)}


def _aligned(
    rows: Sequence[Sequence[str]],
    above: Mapping[str, list[str]],
    below: Mapping[str, list[str]],
    extent: Mapping[str, float],
    firm: Mapping[str, float],
) -> dict[str, float]:
    """Positions in each row near to the mean of the neighbours' positions, the firm ones counting most."""
    x: dict[str, float] = {}
    for row in rows:
        x |= _spread(row, dict.fromkeys(row, 0.0), extent, firm)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wanted = {}
            for node in row:
                others = [*above[node], *below[node]] if sweep > 4 else (above if sweep % 2 == 0 else below)[node]
                total = sum(firm[o] for o in others)
                wanted[node] = sum(firm[o] * x[o] for o in others) / total if others else x[node]
            x |= _spread(row, wanted, extent, firm)
    return x


def _spread(
    row: Sequence[Any],
    wanted: Mapping[Any, float],
    extent: Mapping[Any, float],
    firm: Mapping[Any, float],
    gap: float = GAP,
) -> dict[Any, float]:
    """Positions nearest to those wanted that keep order and distance (isotonic regression, pooling violators)."""
    steps = ((extent[a] + extent[b]) / 2 + gap for a, b in itertools.pairwise(row))
    offsets = list(itertools.accumulate(steps, initial=0.0))[: len(row)]
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for node, offset in zip(row, offsets, strict=True):
        pools.append((wanted[node] - offset, firm[node], 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, weight, count), (other, heavy, many) = pools.pop(), pools.pop()
            pools.append(((mean * weight + other * heavy) / (weight + heavy), weight + heavy, count + many))
    values = [mean for mean, _, count in pools for _ in range(count)]
    return {node: value + offset for node, value, offset in zip(row, values, offsets, strict=True)}

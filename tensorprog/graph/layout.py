"""Where boxes and arrows of a drawing go."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

__all__ = ["CHARACTER", "LINE", "PAD", "SMALL", "TAG", "Layout", "layout", "lines"]

CHARACTER, LINE, PAD, LAYER, GAP = 7.3, 16.0, 10.0, 74.0, 26.0
SMALL, TAG = 6.0, 13.0  # a character and the line of a tag
WRAP = 46  # characters in a line of a box
BESIDE, PASSING = 0.03, 0.1  # firmness of declared boxes, and of edges that pass a row, where statements have 1
SWEEPS = 40


@dataclass(frozen=True)
class Layout:
    """Centres and sizes of all nodes, and the bends of edges that span several layers."""

    centres: dict[str, tuple[float, float]]
    sizes: dict[str, tuple[float, float]]
    bends: dict[tuple[str, str], tuple[tuple[float, float, float], ...]]  # x, top and bottom of each row passed
    bands: dict[str, tuple[float, float]]  # top and bottom of the row in which a node stands
    lanes: dict[str, float]  # right of everything: where the recurrence edges of a statement run
    width: float
    height: float


def lines(text: str) -> list[str]:
    """Break a statement into lines at spaces and commas."""
    done, line = [], ""
    for part in text.replace(" ", " \0").replace(",", ",\0").split("\0"):
        if line and len(line) + len(part) > WRAP:
            done.append(line.rstrip())
            line = "  "
        line += part
    return [*done, line.rstrip()]


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


def layout(graph: Any, tags: Mapping[str, str] | None = None) -> Layout:
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
    for shelf in _shelves(loose, extent, width):
        x |= {node: left + at for node, at in shelf.items()}
        rows.append(list(shelf))
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
    return Layout(centres, sizes, bends, bands, lanes, max([width, *lanes.values()]), height)


def _shelves(nodes: Sequence[str], extent: Mapping[str, float], width: float) -> list[dict[str, float]]:
    """Rows of unconnected boxes, none wider than the drawing unless one box is: positions from its left."""
    shelves: list[dict[str, float]] = []
    end = math.inf
    for node in nodes:
        if end + GAP + extent[node] > width:
            shelves.append({})
            end = -GAP
        shelves[-1][node] = end + GAP + extent[node] / 2
        end += GAP + extent[node]
    return shelves


def _aligned(
    rows: Sequence[Sequence[str]], above: Mapping[str, list[str]], below: Mapping[str, list[str]],
    extent: Mapping[str, float], firm: Mapping[str, float],
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
    row: Sequence[str], wanted: Mapping[str, float], extent: Mapping[str, float], firm: Mapping[str, float]
) -> dict[str, float]:
    """Positions nearest to those wanted that keep order and distance (isotonic regression, pooling violators)."""
    offsets, total = [], 0.0
    for k, node in enumerate(row):
        if k:
            total += (extent[row[k - 1]] + extent[node]) / 2 + GAP
        offsets.append(total)
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for node, offset in zip(row, offsets, strict=True):
        pools.append((wanted[node] - offset, firm[node], 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, weight, count), (other, heavy, many) = pools.pop(), pools.pop()
            pools.append(((mean * weight + other * heavy) / (weight + heavy), weight + heavy, count + many))
    values = [mean for mean, _, count in pools for _ in range(count)]
    return {node: value + offset for node, value, offset in zip(row, values, offsets, strict=True)}

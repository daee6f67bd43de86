"""Networkx views of the family-level program: who depends on whom, which weights are reused, and drawings.

One node per initial vector, weight and statement; a family of a million members is one node.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from xml.sax.saxutils import escape

import networkx as nx

from tensorprog.expr import Affine, Variable
from tensorprog.facts import FAILS, HOLDS, UNKNOWN, Verdict
from tensorprog.ir import Dot, Initial, MatMul, Netsor, Nonlin, Range
from tensorprog.order import dependencies

__all__ = ["Operand", "Structure", "build", "layout", "to_dot", "to_mermaid", "to_svg"]

KINDS = ("initial", "weight", "MatMul", "Nonlin", "Dot")


@dataclass(frozen=True)
class Operand:
    """One side of a score, and one MatMul (or other) statement that defines what stands there."""

    dot: int
    side: str  # "left" or "right"
    reference: Variable
    definer: int | None  # None: an initial vector


class Structure:
    """Ancestry and weight use of a program, by positions of statements; nothing here has members."""

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.initial: dict[str, Initial] = {initial.name: initial for initial in netsor.initial}
        boundaries = {name: family.boundaries for name, family in netsor.families.items()}
        self.edges = dependencies(netsor.body, netsor.ranges, boundaries)
        self._definers: dict[tuple[int, Variable], list[int]] = {}
        for user, definer, reference in self.edges:
            self._definers.setdefault((user, reference), []).append(definer)

    def definers(self, position: int, reference: Variable) -> tuple[int, ...]:
        """Statements that may bind what a reference in a statement reads."""
        return tuple(dict.fromkeys(self._definers.get((position, reference), ())))

    @cached_property
    def _graph(self) -> Any:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.netsor.body)))
        graph.add_edges_from((definer, user) for user, definer, _ in self.edges)
        return graph

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Statements in an order in which Nonlins come after the Nonlins they use; recurrences are one group."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.netsor.body)))
        for user, definer, _ in self.edges:
            if isinstance(self.netsor.body[user], Nonlin) and isinstance(self.netsor.body[definer], Nonlin):
                graph.add_edge(definer, user)
        condensed = nx.condensation(graph)
        order = nx.lexicographical_topological_sort(condensed, key=lambda c: min(condensed.nodes[c]["members"]))
        self._loops = {p for p in graph if graph.has_edge(p, p)}
        return tuple(tuple(sorted(condensed.nodes[c]["members"])) for c in order)

    def cyclic(self, group: tuple[int, ...]) -> bool:
        """Whether a group is a recurrence."""
        return len(group) > 1 or group[0] in self._loops

    def cyclic_at(self, position: int) -> bool:
        """Whether a statement belongs to a recurrence of Nonlins."""
        return any(position in group and self.cyclic(group) for group in self.groups)

    def ancestors(self, position: int) -> frozenset[int]:
        """Statements that a statement depends on, without itself unless it recurs."""
        found = set(nx.ancestors(self._graph, position))
        if any(position in self.ancestors_of_one(d) for d in self._graph.predecessors(position)):
            found.add(position)
        return frozenset(found)

    def ancestors_of_one(self, position: int) -> frozenset[int]:
        """A statement and all it depends on."""
        return frozenset(nx.ancestors(self._graph, position)) | {position}

    def chain(self, start: int, end: int) -> tuple[int, ...]:
        """Shortest chain of statements from one to a dependent other; empty if there is none."""
        try:
            return tuple(nx.shortest_path(self._graph, start, end))
        except nx.NetworkXNoPath:
            return ()

    @cached_property
    def relevant(self) -> frozenset[int]:
        """Statements that the outputs depend on."""
        found: set[int] = set()
        for name in self.netsor.outputs:
            for position in self.netsor.families[name].statements:
                found |= self.ancestors_of_one(position)
        return frozenset(found)

    @cached_property
    def scores(self) -> tuple[int, ...]:
        """Relevant Dots of scale n**-0.5."""
        return tuple(p for p, s in enumerate(self.netsor.body)
                     if p in self.relevant and isinstance(s, Dot) and s.scale == "n**-0.5")

    @cached_property
    def averages(self) -> frozenset[str]:
        """Names of families with an average (a Dot of scale 1/n) among their definitions."""
        return frozenset(s.target.name for s in self.netsor.body if isinstance(s, Dot) and s.scale == "1/n")

    @cached_property
    def score_dependent(self) -> frozenset[int]:
        """Statements downstream of a score, the scores included."""
        found: set[int] = set()
        for position in self.scores:
            found |= {position, *nx.descendants(self._graph, position)}
        return frozenset(found)

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Both sides of every score with the statements that define them."""
        found = []
        for position in self.scores:
            dot = self.netsor.body[position]
            assert isinstance(dot, Dot)
            for side, reference in (("left", dot.left), ("right", dot.right)):
                definers: Sequence[int | None] = self.definers(position, reference) or (None,)
                found += [Operand(position, side, reference, definer) for definer in definers]
        return tuple(found)

    def weight_uses(self, name: str) -> tuple[int, ...]:
        """Relevant MatMuls by a weight family."""
        return tuple(p for p, s in enumerate(self.netsor.body)
                     if p in self.relevant and isinstance(s, MatMul) and s.weight.name == name)

    # -- can two uses touch the same member? ----------------------------------------------------------------------------

    def same_member(self, first: int, second: int) -> tuple[Verdict, dict[str, int]]:
        """Whether two MatMuls can use one member of a weight family: FAILS with index values, HOLDS if never."""
        one, two = self.netsor.body[first], self.netsor.body[second]
        assert isinstance(one, MatMul)
        assert isinstance(two, MatMul)
        if one.weight.name != two.weight.name:
            return HOLDS, {}
        system = _System()
        system.variables(self.netsor.ranges, [n for s in one.weight.slots for n in s.indices], "")
        system.variables(self.netsor.ranges, [n for s in two.weight.slots for n in s.indices], "'")
        for a, b in zip(one.weight.slots, two.weight.slots, strict=True):
            system.equal(_form(a, ""), _form(b, "'"), self._rule(one.weight.name))
        return system.solve()

    def same_weight_in_score(self, left: Operand, right: Operand, vectors: bool = False) -> tuple[Verdict, dict[str, int]]:
        """Whether both sides of a score can use one member of a weight family, at the same index values of the score.

        With `vectors` they must multiply the same vector as well.
        """
        dot = self.netsor.body[left.dot]
        assert left.definer is not None
        assert right.definer is not None
        one, two = self.netsor.body[left.definer], self.netsor.body[right.definer]
        assert isinstance(one, MatMul)
        assert isinstance(two, MatMul)
        if one.weight.name != two.weight.name or (vectors and one.vector.name != two.vector.name):
            return HOLDS, {}
        system = _System()
        system.variables(self.netsor.ranges, [s.bare for s in dot.target.slots if s.bare], "")
        forms = []
        for operand, statement in ((left, one), (right, two)):
            inside: dict[str, tuple[dict[str, int], int]] = {}
            for slot, target in zip(operand.reference.slots, statement.target.slots, strict=True):
                form = _form(slot, "")
                if target.bare is None:
                    system.equal(form, ({}, target.offset))
                else:
                    inside[target.bare] = form
                    system.within(form, self.netsor.ranges[target.bare])
            read = (*statement.weight.slots, *(statement.vector.slots if vectors else ()))
            forms.append([_substituted(slot, inside) for slot in read])
        for a, b in zip(*forms, strict=True):
            system.equal(a, b, self._rule(one.weight.name))
        return system.solve()

    def _rule(self, weight: str) -> str:
        return "wrap" if any(self.netsor.families[weight].boundaries) else ""


Form = tuple[dict[str, int], int]


def _form(slot: Affine, mark: str) -> Form:
    return {f"{name}{mark}": c for name, c in slot.terms}, slot.offset


def _substituted(slot: Affine, inside: Mapping[str, Form]) -> Form:
    terms: dict[str, int] = {}
    offset = slot.offset
    for name, coefficient in slot.terms:
        inner, constant = inside.get(name, ({name: 1}, 0))
        offset += coefficient * constant
        for other, factor in inner.items():
            terms[other] = terms.get(other, 0) + coefficient * factor
    return {name: c for name, c in terms.items() if c}, offset


class _System:
    """Affine equations over a box of whole numbers, with affine forms confined to ranges."""

    def __init__(self) -> None:
        self.box: dict[str, Range] = {}
        self.equations: list[Form] = []
        self.confined: list[tuple[Form, Range]] = []
        self.vague = False

    def variables(self, ranges: Mapping[str, Range], names: Iterable[str], mark: str) -> None:
        self.box |= {f"{name}{mark}": ranges[name] for name in names}

    def equal(self, a: Form, b: Form, rule: str = "") -> None:
        if rule:
            self.vague = True  # slots that wrap are equal modulo the size: not decided here
            return
        terms = dict(a[0])
        for name, c in b[0].items():
            terms[name] = terms.get(name, 0) - c
        self.equations.append(({n: c for n, c in terms.items() if c}, a[1] - b[1]))

    def within(self, form: Form, span: Range) -> None:
        self.confined.append((form, span))

    def solve(self) -> tuple[Verdict, dict[str, int]]:
        """HOLDS: no solution; FAILS: a solution, as index values; UNKNOWN."""
        todo, confined = list(self.equations), list(self.confined)
        solved: list[tuple[str, Form]] = []
        box = dict(self.box)
        while todo:
            terms, offset = todo.pop()
            if not terms:
                if offset:
                    return HOLDS, {}
                continue
            if offset % math.gcd(*terms.values()):
                return HOLDS, {}
            name = next((n for n, c in terms.items() if abs(c) == 1), None)
            if name is None:
                confined.append(((terms, offset), (0, 1)))
                continue
            c = terms[name]
            value: Form = ({n: -c * k for n, k in terms.items() if n != name}, -c * offset)
            confined.append((value, box.pop(name)))
            todo = [_replace(form, name, value) for form in todo]
            confined = [(_replace(form, name, value), span) for form, span in confined]
            solved = [(n, _replace(form, name, value)) for n, form in solved] + [(name, value)]
        several = []
        for (terms, offset), (start, stop) in confined:
            if not terms:
                if not start <= offset < stop:
                    return HOLDS, {}
            elif len(terms) == 1:
                ((name, c),) = terms.items()
                ends = sorted(((start - offset) / c, (stop - 1 - offset) / c))
                low, high = box[name]
                box[name] = max(low, math.ceil(ends[0])), min(high, math.floor(ends[1]) + 1)
            else:
                several.append(((terms, offset), (start, stop)))
        if any(low >= high for low, high in box.values()):
            return HOLDS, {}
        for point, complete in _points(box, bool(several)):
            if all(start <= _value(form, point) < stop for form, (start, stop) in several):
                if self.vague:
                    return UNKNOWN, {}
                return FAILS, point | {name: _value(form, point) for name, form in solved}
            if complete:
                return HOLDS, {}
        return UNKNOWN, {}


def _replace(form: Form, name: str, value: Form) -> Form:
    terms, offset = form
    if name not in terms:
        return form
    c = terms[name]
    result = {n: k for n, k in terms.items() if n != name}
    for n, k in value[0].items():
        result[n] = result.get(n, 0) + c * k
    return {n: k for n, k in result.items() if k}, offset + c * value[1]


def _value(form: Form, point: Mapping[str, int]) -> int:
    return form[1] + sum(c * point[n] for n, c in form[0].items())


def _points(box: Mapping[str, Range], search: bool) -> Iterable[tuple[dict[str, int], bool]]:
    """Points of a box, the last marked when all were tried; the first corner alone when there is nothing to search."""
    names = list(box)
    total = math.prod(high - low for low, high in box.values())
    if not search or total == 1:
        yield {name: box[name][0] for name in names}, True
    elif total <= 5000:
        for number, values in enumerate(itertools.product(*(range(*box[name]) for name in names))):
            yield dict(zip(names, values, strict=True)), number == total - 1
    else:
        generator = random.Random(0)
        for _ in range(3000):
            yield {name: generator.randrange(*box[name]) for name in names}, False


# -- the view ---------------------------------------------------------------------------------------------------------


def _family(name: str, indices: Sequence[str]) -> str:
    return f"{name}[{','.join(indices)}]" if indices else name


def build(netsor: Netsor) -> Any:
    """Return a networkx MultiDiGraph of initial vectors, weights and statements.

    Shapes    nodes: `x[i]` as written on the left, attributes kind, name, text, indices, position (-1: declared), line;
              edges from what is read to what reads it, attribute role: weight, vector, left, right, argument
    """
    graph = nx.MultiDiGraph(name=netsor.name)
    nodes: dict[str, str] = {}
    for entry, kind in [*((e, "initial") for e in netsor.initial), *((w, "weight") for w in netsor.weights)]:
        node = nodes[entry.name] = _family(entry.name, entry.indices)
        graph.add_node(node, kind=kind, name=entry.name, text=node, indices=entry.indices, position=-1, line=entry.span.line)
    for position, statement in enumerate(netsor.body):
        graph.add_node(str(statement.target), kind=type(statement).__name__, name=statement.target.name, text=str(statement),
                       indices=tuple(s.bare for s in statement.target.slots if s.bare), position=position,
                       line=statement.span.line)
    structure = Structure(netsor)
    for position, statement in enumerate(netsor.body):
        target = str(statement.target)
        if isinstance(statement, MatMul):
            graph.add_edge(nodes[statement.weight.name], target, role="weight")
            roles = [("vector", statement.vector)]
        elif isinstance(statement, Dot):
            roles = [("left", statement.left), ("right", statement.right)]
        else:
            roles = [("argument", reference) for reference in statement.inputs]
        seen = set()
        for role, reference in roles:
            sources = [nodes[reference.name]] if reference.name in nodes else [
                str(netsor.body[d].target) for d in structure.definers(position, reference)]
            for source in sources:
                if (source, role) not in seen:
                    graph.add_edge(source, target, role=role)
                    seen.add((source, role))
    return graph


# -- drawing ------------------------------------------------------------------------------------------------------------

# Okabe & Ito's colours, safe for colour-blind readers: fill, border
COLOURS = {
    "initial": ("#d9eefa", "#56b4e9"), "weight": ("#eeeeee", "#8a8a8a"), "MatMul": ("#d6e6f2", "#0072b2"),
    "Nonlin": ("#d5efe7", "#009e73"), "Dot": ("#fbecc8", "#e69f00"),
}
LEGEND = {"initial": "initial vector", "weight": "weight", "MatMul": "MatMul (G-var)", "Nonlin": "Nonlin", "Dot": "Dot (score)"}
BLAME = "#d55e00"
CHARACTER, LINE, PAD, LAYER, GAP = 7.3, 16.0, 10.0, 74.0, 26.0
WRAP = 46  # characters in a line of a box


@dataclass(frozen=True)
class Layout:
    """Centres and sizes of all nodes, and the bends of edges that span several layers."""

    centres: dict[str, tuple[float, float]]
    sizes: dict[str, tuple[float, float]]
    bends: dict[tuple[str, str], tuple[tuple[float, float], ...]]
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
            centre = {node: sum(place[o] for o in neighbours[node]) / len(neighbours[node]) if neighbours[node] else place[node]
                      for node in row}
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
    return Layout(centres, sizes, bends, width, top - LAYER + LINE)


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
    """Draw the program as a self-contained SVG; statements that a report faults, and the path between them, stand out."""
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
        "<defs>" + "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto">'
            f'<path d="M0,0.5 L8,4 L0,7.5 z" fill="{colour}"/></marker>'
            for name, colour in (("tip", "#777777"), ("bad", BLAME))) + "</defs>",
    ]
    title = _clean(graph.graph.get("name", ""))
    out.append(f'<text x="{margin}" y="{margin}" font-weight="bold" font-size="14">{escape(title)}</text>')
    at = margin
    for kind in shown:
        fill, border = COLOURS[kind]
        out.append(f'<rect x="{at:.1f}" y="{margin + 14:.1f}" width="18" height="14" rx="4" fill="{fill}" stroke="{border}" '
                   f'stroke-width="1.5"/><text x="{at + 24:.1f}" y="{margin + 25:.1f}">{LEGEND[kind]}</text>')
        at += len(LEGEND[kind]) * CHARACTER + 44
    if bad:
        out.append(f'<rect x="{at:.1f}" y="{margin + 14:.1f}" width="18" height="14" rx="4" fill="#ffffff" stroke="{BLAME}" '
                   f'stroke-width="3"/><text x="{at + 24:.1f}" y="{margin + 25:.1f}" fill="{BLAME}">at fault</text>')
    origin = margin + legend
    twice: dict[tuple[str, str], int] = {}
    for u, v, data in graph.edges(data=True):
        twice[u, v] = twice.get((u, v), 0) + 1
        fault = u in bad and v in bad
        out.append(_edge(plan, u, v, data["role"], shift, origin, fault, twice[u, v] - 1))
    for node, data in graph.nodes(data=True):
        (x, y), (w, h) = plan.centres[node], plan.sizes[node]
        fill, border = COLOURS[data["kind"]]
        stroke, thick = (BLAME, 3.0) if node in bad else (border, 1.5)
        x, y = x + shift, y + origin
        note = f"<title>{escape(_clean(notes[node]))}</title>" if node in notes else ""
        out.append(f'<g>{note}<rect x="{x - w / 2:.1f}" y="{y - h / 2:.1f}" width="{w:.1f}" height="{h:.1f}" rx="7" '
                   f'fill="{fill}" stroke="{stroke}" stroke-width="{thick}"/>')
        lines = _lines(data["text"])
        for k, line in enumerate(lines):
            anchor = 'text-anchor="middle"' if len(lines) == 1 else ""
            left = x if len(lines) == 1 else x - w / 2 + PAD
            out.append(f'<text x="{left:.1f}" y="{y + (k - (len(lines) - 1) / 2) * LINE + 4:.1f}" {anchor} '
                       f'xml:space="preserve">{escape(_clean(line))}</text>')
        out.append("</g>")
    out.append("</svg>")
    return "\n".join(out)


def _edge(plan: Layout, u: str, v: str, role: str, shift: float, origin: float, fault: bool, extra: int) -> str:
    (x1, y1), (x2, y2) = plan.centres[u], plan.centres[v]
    (w1, h1), (w2, h2) = plan.sizes[u], plan.sizes[v]
    side = extra * 14.0
    style = (f'fill="none" stroke="{BLAME if fault else "#777777"}" stroke-width="{2.6 if fault else 1.2}" '
             f'marker-end="url(#{"bad" if fault else "tip"})"' + (' stroke-dasharray="4 3"' if role == "weight" else ""))
    if y1 >= y2:  # back along a recurrence: around the right side
        right = max(x1 + w1 / 2, x2 + w2 / 2) + 22 + shift
        start, end = (x1 + w1 / 2 + shift, y1 + origin), (x2 + w2 / 2 + shift, y2 + origin)
        path = f"M{start[0]:.1f},{start[1]:.1f} C{right:.1f},{start[1]:.1f} {right:.1f},{end[1]:.1f} {end[0]:.1f},{end[1]:.1f}"
        return f'<path d="{path}" {style}/>'
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
    return "".join(c for c in str(text) if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF and ord(c) not in (0xFFFE, 0xFFFF)))


def to_dot(graph: Any) -> str:
    """Return the program in Graphviz's DOT language."""
    def quoted(text: str) -> str:
        return '"' + _clean(text).replace("\\", "\\\\").replace('"', '\\"') + '"'

    lines = [f"digraph {quoted(graph.graph.get('name', ''))} {{", '  node [shape=box, style="rounded,filled", fontname=monospace];']
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

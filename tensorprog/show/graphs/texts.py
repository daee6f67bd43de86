"""The view as text for other programs: Graphviz and Mermaid."""

from __future__ import annotations

from typing import Any

from tensorprog.show.graphs.styles import KINDS, ROLES, Marks, clean, marks_of

__all__ = ["captions", "to_dot", "to_mermaid"]


def _labels(graph: Any, marks: Marks) -> dict[str, list[str]]:
    """The lines in each box: numbers of findings and roles, if the program was checked, and the statement."""
    found = {}
    for node, data in graph.nodes(data=True):
        numbers = "".join(f"({number}) " for number in marks.numbers.get(node, ()))
        found[node] = [numbers + ", ".join(marks.sorts[node]), data["text"]] if marks.judged else [data["text"]]
    return found


def captions(graph: Any, report: Any = None) -> list[str]:
    """What stands beside a drawing of a check: the grade, what it rests on, and the findings by number."""
    return _captions(graph, marks_of(graph, report))


def _captions(graph: Any, marks: Marks) -> list[str]:
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
        caption = quoted(*_captions(graph, marks)).replace("\\n", "\\l")[:-1]
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

    lines = ["flowchart TD", *(f"  %% {' '.join(clean(line).split())}" for line in _captions(graph, marks))]
    labels = _labels(graph, marks)
    for node in graph:
        lines.append(f'  {names[node]}("{"<br/>".join(map(text, labels[node]))}"):::{sort(node)}')
    for u, v, data in graph.edges(data=True):
        lines.append(f"  {names[u]} -->|{data['role']}| {names[v]}")
    for sort_name, style in (ROLES if marks.judged else KINDS).items():
        dash = f",stroke-dasharray:{style.dash}" if style.dash else ""
        lines.append(f"  classDef {sort_name.replace('-', '')} fill:{style.fill},stroke:{style.border},"
                     f"color:{style.ink}{dash}")
    for node in graph:
        if node in marks.path:
            lines.append(f"  style {names[node]} stroke:{marks.colour},stroke-width:3px")
    bad = [str(k) for k, (u, v) in enumerate(graph.edges()) if marks.joins(u, v)]
    if bad:
        lines.append(f"  linkStyle {','.join(bad)} stroke:{marks.colour},stroke-width:3px")
    return "\n".join(lines)

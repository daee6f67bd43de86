"""The networkx view and its drawings."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tensorprog import graph
from tensorprog.assumptions import check
from tests.corpus import CASES, Case

SVG = "{http://www.w3.org/2000/svg}"


def test_one_node_for_each_declaration_and_statement() -> None:
    netsor = replace(CASES["attention"], constants={"s": 128, "H": 96}).load()
    view = graph.build(netsor)
    assert len(view) == len(netsor.initial) + len(netsor.weights) + len(netsor.body) == 14
    assert view.nodes["p[a,i,j]"] == {
        "kind": "Dot",
        "name": "p",
        "text": "p[a,i,j] = Dot(q[a,i], k[a,j])",
        "indices": ("a", "i", "j"),
        "position": 4,
        "line": view.nodes["p[a,i,j]"]["line"],
    }
    roles = {(u, v, d["role"]) for u, v, d in view.edges(data=True)}
    assert {
        ("WQ[a]", "q[a,i]", "weight"),
        ("x[i]", "q[a,i]", "vector"),
        ("q[a,i]", "p[a,i,j]", "left"),
        ("k[a,j]", "p[a,i,j]", "right"),
        ("p[a,i,j]", "y[i]", "argument"),
    } <= roles


def test_ancestry() -> None:
    structure = graph.Structure(CASES["attention"].load())
    assert structure.scores == (4,)
    assert structure.score_dependent == {4, 7}
    assert structure.ancestors(4) == {0, 1, 2, 3}
    assert {(o.side, o.definer) for o in structure.operands} == {("left", 2), ("right", 3)}
    assert structure.weight_uses("WQ") == (2,)
    assert structure.chain(0, 4) in ((0, 1, 2, 4), (0, 1, 3, 4))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_drawings_are_well_formed_and_boxes_do_not_overlap(case: Case) -> None:
    netsor = case.load()
    view = graph.build(netsor)
    picture = ET.fromstring(graph.to_svg(view, check(netsor)))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    assert len(picture.findall(f"{SVG}g")) == len(view)
    plan = graph.layout(view)
    boxes = [
        (x - w / 2, x + w / 2, y - h / 2, y + h / 2)
        for (x, y), (w, h) in ((plan.centres[node], plan.sizes[node]) for node in view)
    ]
    for a, b in itertools.combinations(boxes, 2):
        assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
    assert all(box[0] > -0.5 and box[1] <= width and box[2] > -0.5 and box[3] <= height for box in boxes)
    assert graph.layout(view) == plan
    assert graph.to_dot(view).count("->") == view.number_of_edges() == graph.to_mermaid(view).count("-->")


def test_text_is_escaped_and_nothing_is_fetched() -> None:
    netsor = replace(CASES["branches that meet"].load(), name='<b>&\x01"')
    text = graph.to_svg(graph.build(netsor), check(netsor))
    assert "<b>" not in text
    assert "where(u[i] &gt; 0" in text
    assert "href" not in text
    assert "url(#" in text
    ET.fromstring(text)


def test_faults_are_drawn_in_their_colour() -> None:
    netsor = CASES["tied queries and keys"].load()
    plain, marked = graph.to_svg(graph.build(netsor)), graph.to_svg(graph.build(netsor), check(netsor))
    assert "at fault" not in plain
    picture = ET.fromstring(marked)
    red = [g for g in picture.findall(f"{SVG}g") if g.find(f"{SVG}rect").attrib["stroke"] == graph.BLAME]
    assert {g.findall(f"{SVG}text")[0].text.split(" ")[0] for g in red} == {"q[a,i]", "k[a,j]", "p[a,i,j]", "WQ[a]"}

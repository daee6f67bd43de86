"""The networkx view and its drawings."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from click.testing import CliRunner
from tensorprog.show.graph_layout import layout
from tensorprog.show.graph_layout import lines as graph_lines

from tensorprog.check import graph
from tensorprog.check.clauses import check
from tensorprog.jobs.cli import main
from tensorprog.shipped import resolve
from tensorprog.show import graphs
from tests.corpus import CASES, Case
from tests.reading import Netsor, judge, loads
from tests.reading import load as read
from tests.rotation import some

DRAWN = dict(some(CASES.items(), 5))
SVG = "{http://www.w3.org/2000/svg}"


def load(name: str) -> Netsor:
    """A shipped program."""
    return read(resolve(name))


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
        "roles": ("score",),
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


def _points(path: str) -> list[tuple[float, float]]:
    """Points along a path of M, V, H and C commands."""
    points: list[tuple[float, float]] = []
    for command, numbers in re.findall(r"([MVHC])([^MVHC]*)", path):
        values = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        if command == "M":
            points.append((values[0], values[1]))
            continue
        x, y = points[-1]
        ends = {"V": [(x, y), (x, values[0]), (x, values[0])], "H": [(x, y), (values[0], y), (values[0], y)]}
        (x1, y1), (x2, y2), (x3, y3) = ends.get(command) or zip(values[::2], values[1::2], strict=True)
        for k in range(1, 21):
            t = k / 20
            weights = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t * t, t**3)
            points.append(
                (
                    sum(w * v for w, v in zip(weights, (x, x1, x2, x3), strict=True)),
                    sum(w * v for w, v in zip(weights, (y, y1, y2, y3), strict=True)),
                )
            )
    return points


@pytest.mark.turns(3)
@pytest.mark.parametrize("case", DRAWN.values(), ids=DRAWN)
def test_drawings_are_well_formed_and_nothing_overlaps(case: Case) -> None:
    netsor = case.load()
    view = graph.build(netsor)
    for report in (None, check(netsor)):
        picture = ET.fromstring(graphs.to_svg(view, report))
        width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
        groups = picture.findall(f"{SVG}g")
        assert len(groups) == len(view)
        boxes = []
        for group in groups:
            x, y, w, h = (float(group.find(f"{SVG}rect").attrib[key]) for key in ("x", "y", "width", "height"))
            boxes.append((x, x + w, y, y + h))
            texts = [text for text in group.findall(f"{SVG}text") if text.attrib.get("font-weight") != "bold"]
            assert all(len(text.text) * (6.0 if "font-size" in text.attrib else 7.25) <= w for text in texts)
            assert all(y < float(text.attrib["y"]) < y + h for text in texts)
        for a, b in itertools.combinations(boxes, 2):
            assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
        assert all(box[0] > 0 and box[1] < width and box[2] > 0 and box[3] < height for box in boxes)
        for path in picture.findall(f"{SVG}path"):
            for x, y in _points(path.attrib["d"])[1:-1]:
                inside = [box for box in boxes if box[0] + 1 < x < box[1] - 1 and box[2] + 1 < y < box[3] - 1]
                assert not inside, path.attrib["d"]
        for text in picture.findall(f"{SVG}text"):
            size = 8.5 if "font-size" in text.attrib else 7.25
            assert float(text.attrib["x"]) + len(text.text) * size <= width
            assert float(text.attrib["y"]) < height
        assert graphs.to_dot(view, report).count('" -> "') == view.number_of_edges()
        assert graphs.to_mermaid(view, report).count(" -->|") == view.number_of_edges()
    assert layout(view) == layout(view)


@pytest.mark.turns(3)
@pytest.mark.parametrize("case", DRAWN.values(), ids=DRAWN)
def test_arrows_end_apart_from_each_other(case: Case) -> None:
    view = graph.build(case.load())
    plan = layout(view)
    assert plan.arrives.keys() == plan.leaves.keys() == set(view.edges(keys=True))
    for node in view:
        left = plan.centres[node][0] - plan.sizes[node][0] / 2
        ends = sorted(plan.arrives[edge] for edge in view.in_edges(node, keys=True))
        assert all(b - a > 4 for a, b in itertools.pairwise(ends))
        assert all(left < x < left + plan.sizes[node][0] for x in ends)


def test_many_arrows_share_the_side_of_a_box() -> None:
    view = graph.build(load("lstm"))
    plan = layout(view)
    ends = sorted(plan.arrives[edge] for edge in view.in_edges("c[t]", keys=True))
    assert len(ends) == 10
    assert all(b - a > 13.9 for a, b in itertools.pairwise(ends))


def test_statements_are_broken_between_words() -> None:
    netsor = CASES["attention"].load()
    texts = [text for _, text in graph.build(netsor).nodes(data="text")]
    for text in texts:
        broken = graph_lines(text)
        assert " ".join(line.strip() for line in broken) == text
    assert max(len(graph_lines(text)) for text in texts) == 2


def test_ways_of_a_fault_are_not_counted_one_by_one() -> None:
    """Of 2**40 shortest ways all statements are on some."""
    rounds = [
        f"  - a{k} = Nonlin(tanh(x{k}))\n  - b{k} = Nonlin(sin(x{k}))\n  - x{k + 1} = Nonlin(a{k} + b{k})\n"
        for k in range(40)
    ]
    netsor = loads(
        "program: many\ninitial: {h: {cov: 1}}\nweights: {W: 1}\nbody:\n  - x0 = MatMul(W, h)\n"
        f"{''.join(rounds)}outputs: [x40]\n"
    )
    assert set(graph.between(graph.build(netsor), ["x0", "x40"])) == {str(one.target) for one in netsor.body}


def test_the_way_of_a_fault_has_no_gaps() -> None:
    netsor = load("attention_same_bias")
    view = graph.build(netsor)
    marks = graphs.marks_of(view, judge(netsor))
    assert marks.path == {"b[a]", "q[a,i]", "k[a,j]", "p[a,i,j]"}


BLOCK = """program: block
constants: {s: 3}
indices: {i: s, j: s}
initial:
  h[i]: {cov: 0.5**abs(i - i_)}
  b: {cov: 0.1}
weights: {Q: 1, K: 1}
body:
  - x[i] = Nonlin(relu(h[i]))
  - q0[i] = MatMul(Q, x[i])
  - q[i] = Nonlin(q0[i] + b)
  - k[j] = MatMul(K, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * x[j]))
outputs: [y]
"""
NODE = r"\w+(?:\[[^]]*\])?"
LAYERS = """program: layers
constants: {L: 3}
indices: {l: 1..L}
initial: {h: {cov: 1}, z0: {cov: 1}}
weights: {Q: 1, K: 1}
body:
  - x = Nonlin(tanh(h))
  - k = MatMul(K, x)
  - z[0] = Nonlin(tanh(z0))
  - q[l] = MatMul(Q, z[l-1])
  - p[l] = Dot(q[l], k)
  - z[l] = Nonlin(tanh(z[l-1] + p[l] * x))
outputs: [z]
"""


def test_a_way_over_rewritten_statements_is_that_of_the_program_as_written() -> None:
    netsor = loads(BLOCK)
    report = judge(netsor)
    assert graphs.marks_of(graph.build(netsor), report).path == {"x[i]", "q0[i]", "q[i]", "k[j]", "p[i,j]"}
    assert "x[i] -> q0[i] -> q[i] -> p[i,j]" in report.findings[0].message


def test_the_way_from_a_layer_to_the_next_is_told_and_drawn() -> None:
    netsor = loads(LAYERS)
    report = judge(netsor)
    assert "; the way there: p[l] -> z[l] -> q[l]" in report.failing[0].message
    marks = graphs.marks_of(graph.build(netsor), report)
    assert marks.path == {"Q", "q[l]", "p[l]", "z[l]"}
    assert marks.joins("z[l]", "q[l]")
    assert not marks.joins("z[l]", "z[l]")


@pytest.mark.turns(4)
@pytest.mark.parametrize("case", DRAWN.values(), ids=DRAWN)
def test_the_ways_of_findings_are_ways_of_the_program(case: Case) -> None:
    netsor = case.load()
    view = graph.build(netsor)
    for finding in judge(netsor).findings:
        if finding.nodes and finding.verdict in ("fails", "unknown", "remark"):
            assert nx.is_weakly_connected(view.subgraph(finding.nodes))
        for told in re.findall(rf"{NODE}(?: -> {NODE})+", finding.message):
            nodes = told.split(" -> ")
            assert all(view.has_edge(*pair) for pair in itertools.pairwise(nodes)), told
            assert set(nodes) <= set(finding.nodes)


def test_the_title_of_an_extension_names_its_claims() -> None:
    netsor = load("deep_attention")
    title = _texts(graphs.to_svg(graph.build(netsor), judge(netsor)))[0]
    assert title == "deep_attention - extension: iterated layers (conjecture)"


def test_what_the_rewrites_drop_is_drawn_as_unused() -> None:
    netsor = load("attention_regimes")
    view = graph.build(netsor)
    sorts = graphs.marks_of(view, judge(netsor)).sorts
    unused = {node for node, found in sorts.items() if found == ("unused",)}
    assert unused == {
        "EQ[a]",
        "EK[a]",
        "EV[a]",
        "EO[a]",
        "eq[a,i]",
        "ek[a,j]",
        "ev[a,j]",
        "eo[a,j]",
        "m[a,i,j]",
        "ep[a,i,j]",
    }
    assert sorts["q[a,i]"] == ("operand",)
    assert "unused" in graphs.to_mermaid(view, judge(netsor)).split("classDef")[0]


def _roles(case: Case) -> dict[str, tuple[str, ...]]:
    return dict(graph.build(case.load()).nodes(data="roles"))


def test_roles_of_attention() -> None:
    assert _roles(CASES["attention"]) == {
        "h": ("initial",),
        "W[i]": ("weight",),
        "WQ[a]": ("dedicated",),
        "WK[a]": ("dedicated",),
        "WV[a]": ("weight",),
        "WO[a]": ("weight",),
        "u[i]": ("G-var",),
        "x[i]": ("input",),
        "q[a,i]": ("operand",),
        "k[a,j]": ("operand",),
        "p[a,i,j]": ("score",),
        "v[a,j]": ("G-var",),
        "o[a,j]": ("G-var",),
        "y[i]": ("output",),
    }


def test_roles_elsewhere() -> None:
    biased = _roles(CASES["biases in queries and keys"])
    assert biased["e[a]"] == ("initial", "operand")
    assert biased["c[a,i]"] == biased["q[a,i]"] == ("operand",)
    stack = _roles(CASES["a residual stack with relu between"])
    assert stack["q2[a,i]"] == ("operand", "later")
    assert stack["v2[a,j]"] == ("later",)
    assert stack["z[i]"] == ("input",)
    unused = _roles(CASES["an unused value path by the query weight"])
    assert unused["z[a,i]"] == ("unused",)
    assert unused["WQ[a]"] == ("dedicated",)
    assert _roles(CASES["layer norm"])["m"] == ("average",)
    assert _roles(CASES["a score of an initial vector"])["h"] == ("initial", "operand")
    assert _roles(CASES["an input that is an initial vector"])["h"] == ("initial", "input")
    assert _roles(CASES["tanh"])["x"] == ("phi",)
    assert _roles(CASES["tanh"])["y"] == ("output", "G-var")


def _texts(picture: str) -> list[str]:
    return [text.text for text in ET.fromstring(picture).findall(f"{SVG}text")]


def test_a_plain_drawing_tells_kinds_and_a_checked_one_roles() -> None:
    netsor = CASES["attention"].load()
    view = graph.build(netsor)
    plain, checked = graphs.to_svg(view), graphs.to_svg(view, check(netsor))
    assert _texts(plain) == ["attention", "initial vector", "weight", "MatMul (G-var)", "Nonlin", "Dot"]
    title, *legend = _texts(checked)
    assert title == "attention - theorem"
    assert [entry.split(":")[0] for entry in legend] == [
        "initial vector",
        "weight",
        "dedicated",
        "G-var",
        "input",
        "operand",
        "score",
        "output",
    ]


def test_faults_are_numbered_and_listed() -> None:
    netsor = CASES["a value path by the query weight"].load()
    view = graph.build(netsor)
    picture = graphs.to_svg(view, check(netsor))
    texts = _texts(picture)
    assert texts[0].endswith("outside: not covered")
    assert any(text.startswith(" 1  dedicated weights, line ") for text in texts)
    boxes = [[text.text for text in g.findall(f"{SVG}text")] for g in ET.fromstring(picture).findall(f"{SVG}g")]
    names = {text.split(" ")[0] for box in boxes if "1" in box for text in box if " = " in text}
    assert names == {"v[a,j]", "q[a,i]"}
    for text in (graphs.to_dot(view, check(netsor)), graphs.to_mermaid(view, check(netsor))):
        assert "outside: not covered" in text
        assert "(1) operand" in text
        assert graphs.BLAME in text
    remarked = graphs.to_svg(view, check(CASES["relu inputs"].load()))
    assert graphs.BLAME not in remarked.split("</defs>")[1]
    assert any(text.startswith(" 1  operand inputs bounded") for text in _texts(remarked))


def test_the_way_of_a_remark_is_drawn_in_its_own_colour() -> None:
    netsor = CASES["relu inputs"].load()
    report = check(netsor)
    picture = ET.fromstring(graphs.to_svg(graph.build(netsor), report))
    marked = [g for g in picture.findall(f"{SVG}g") if g.find(f"{SVG}rect").attrib["stroke-width"] == "3"]
    assert {g.find(f"{SVG}rect").attrib["stroke"] for g in marked} == {graphs.REMARK}
    nodes = {node for finding in report.findings if finding.verdict == "remark" for node in finding.nodes}
    assert len(marked) == len(nodes & set(graph.build(netsor)))
    assert any(path.attrib.get("stroke") == graphs.REMARK for path in picture.findall(f"{SVG}path"))
    assert "remarked on" in _texts(graphs.to_svg(graph.build(netsor), report))


def test_weights_that_are_never_used_stand_below_the_rest() -> None:
    netsor = CASES["attention"].load()
    idle = tuple(replace(netsor.weights[0], name=f"Unused{k}") for k in range(3))
    plain, more = (layout(graph.build(n)) for n in (netsor, replace(netsor, weights=netsor.weights + idle)))
    assert more.width == plain.width
    assert {node: place for node, place in more.centres.items() if node in plain.centres} == plain.centres
    lowest = max(y for _, y in plain.centres.values())
    assert all(y > lowest for node, (_, y) in more.centres.items() if node.startswith("Unused"))


def test_text_is_escaped_and_nothing_is_fetched() -> None:
    netsor = replace(CASES["branches that meet"].load(), name='<b>&\x01"')
    text = graphs.to_svg(graph.build(netsor), check(netsor))
    assert "<b>" not in text
    assert "where(u[i] &gt; 0" in text
    assert "href" not in text
    assert "url(#" in text
    ET.fromstring(text)


def test_faults_are_drawn_in_their_colour() -> None:
    netsor = CASES["tied queries and keys"].load()
    plain, marked = graphs.to_svg(graph.build(netsor)), graphs.to_svg(graph.build(netsor), check(netsor))
    assert "at fault" not in plain
    picture = ET.fromstring(marked)
    red = [g for g in picture.findall(f"{SVG}g") if g.find(f"{SVG}rect").attrib["stroke"] == graphs.BLAME]
    assert {g.findall(f"{SVG}text")[0].text.split(" ")[0] for g in red} == {"q[a,i]", "k[a,j]", "p[a,i,j]", "WQ[a]"}


@pytest.mark.parametrize("suffix", ["svg", "dot", "mmd", "md"])
def test_the_command_judges_on_request(suffix: str, tmp_path: Path) -> None:
    plain, checked = tmp_path / f"plain.{suffix}", tmp_path / f"checked.{suffix}"
    for args, out in (((), plain), (("--check",), checked)):
        assert CliRunner().invoke(main, ["graph", "attention_tied", *args, "-o", str(out)]).exit_code == 0
    assert "diverges like sqrt(n)" in checked.read_text()
    assert "diverges" not in plain.read_text()
    assert "operand" not in plain.read_text()


def test_pages_list_the_faults_and_take_titles_as_text(tmp_path: Path) -> None:
    source, page = tmp_path / "t.yaml", tmp_path / "t.md"
    source.write_text(
        "program: t\ntitle: '<script>alert(1)</script>'\ninitial: {h: {mean: 0, cov: 1}}\n"
        "weights: {W: 1, V: 1}\nbody:\n  - u = MatMul(W, h)\n  - p = Dot(u, u)\n"
        "  - y = Nonlin(p * h)\noutputs: [y]\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(main, ["graph", str(source), "--check", "-o", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert "<script>" not in text
    assert text.startswith("# &lt;script&gt;")
    assert text.count("```") == 4
    listed = text.split("```text")[1]
    assert listed.splitlines()[1] == "t - outside: diverges like sqrt(n)"
    assert "(1) weights of one score differ" in listed

"""The graph of a program, and what plays which part in it."""

from __future__ import annotations

from dataclasses import replace

from tensorprog.check import graph
from tests.corpus import CASES, Case
from tests.reading import judge, loads


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


def test_the_way_from_a_layer_to_the_next_is_told() -> None:
    finding = judge(loads(LAYERS)).failing[0]
    assert "; the way there: p[l] -> z[l] -> q[l]" in finding.message
    assert set(finding.nodes) == {"Q", "q[l]", "p[l]", "z[l]"}


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

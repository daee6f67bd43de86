"""Facts of statements as objects and as rows, and what they cost."""

from __future__ import annotations

import math
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from calculus_expressions import EXPRESSIONS, LAST, PROGRAM, parsed, profile
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensorprog import ProgramError
from tensorprog.check.certificates import Calculus, facts_blocks, facts_table
from tensorprog.check.clauses import check
from tensorprog.check.rewrites import written_out
from tensorprog.language.expr import Affine, Call, Expr, Variable, free_indices, rebuild, variables, walk
from tensorprog.language.facts import FAILS, HOLDS
from tests.corpus import CASES
from tests.reading import Netsor, judge, load, loads
from tests.rotation import some

ROOT = Path(__file__).resolve().parents[2]
ATTENTION = ROOT / "programs" / "attention.yaml"
GPT3 = ROOT / "benchmarks" / "programs" / "gpt3.yaml"
AT_I = Variable("a", (Affine((("i", 1),)),))


def test_rows_list_each_statement_in_order() -> None:
    netsor = load(ATTENTION)
    rows = facts_table(netsor)
    assert [row.statement for row in rows] == [str(statement.target) for statement in netsor.body]
    clipped, output = rows[1], rows[-1]
    assert clipped.cells() == ("x[i]", "[-100, 100]", "0", "1", "odd", "nondecreasing", "u[i] = -100, 100")
    assert output.cells() == ("y[i]", "(-inf, inf)", "1", "2", "", "", "none")
    assert output[1:] == ((-math.inf, math.inf), 1, 2, 0, 0, (), "", ())


LOSING = """program: losing
initial: {h: {mean: 0, cov: 1}}
weights: {W: 1, Q: 1, K: 1}
body:
  - u = MatMul(W, h)
  - x = Nonlin(relu(u))
  - z = Nonlin(x + 1)
  - q = MatMul(Q, z)
  - w = Nonlin(tanh(z))
  - k = MatMul(K, w)
  - p = Dot(q, k)
  - s = Nonlin(step(u) * clip(p, -1, 1))
  - e = Nonlin(exp(u**2) * s)
  - t = Nonlin(s + x)
  - r = Nonlin(sqrt(u))
  - y = Nonlin(u + p)
outputs: [e, t, r, y]
"""


def test_rows_tell_where_properties_are_lost() -> None:
    rows = {row.statement: row for row in facts_table(loads(LOSING))}
    lost = {name: {(loss.property, loss.statement, loss.part) for loss in row.lost} for name, row in rows.items()}
    assert lost["x"] == lost["z"] == {("bounded", "x", "relu(u)")}
    assert lost["s"] == {("pseudo-Lipschitz", "s", "step(u)")}
    assert {(name, at) for name, at, _ in lost["e"]} == {
        ("bounded", "e"),
        ("pseudo-Lipschitz", "e"),
        ("controlled", "e"),
    }
    assert {(name, at) for name, at, _ in lost["t"]} == {("bounded", "x"), ("pseudo-Lipschitz", "s")}
    assert {(name, part) for name, _, part in lost["r"]} == {("real", "sqrt(u)")}
    assert not lost["u"] | lost["q"] | lost["p"] | lost["y"]  # of Gaussians, and sums of them, nothing is lost
    assert rows["x"].to_json()["lost"] == [
        {"property": "bounded", "statement": "x", "part": "relu(u)", "why": "relu is unbounded on the range of u"}
    ]


def test_the_facts_are_followed_by_a_table_of_losses_only_if_there_are_any() -> None:
    facts, losses = facts_blocks(loads(LOSING))
    assert facts.header[0] == "statement"
    assert losses.rows[0] == ("x", "bounded", "relu(u): relu is unbounded on the range of u")
    assert len(set(losses.rows)) == len(losses.rows)
    assert len(facts_blocks(load(ATTENTION))) == 1


def test_facts_are_three_valued() -> None:
    calculus = Calculus(load(ATTENTION))
    names = ("bounded", "pseudo-Lipschitz", "controlled")
    assert {calculus.fact(name, 1).verdict for name in names} == {HOLDS}
    assert [calculus.fact(name, 7).verdict for name in names] == [FAILS, HOLDS, HOLDS]


MASKS = ["where({}, p[a,i,j], -inf)", "p[a,i,j] + where({}, 0, -inf)", "where({}, p[a,i,j], -inf) / 2"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("named", [False, True])
def test_masks_may_be_scaled_added_and_named(mask: str, named: bool) -> None:
    text = ATTENTION.read_text(encoding="utf-8")

    def written(condition: str) -> Netsor:
        masked = mask.format(condition)
        line = f"  - w[a,i,j] = Nonlin({masked})\n" if named else ""
        changed = text.replace("  - y[i] ", line + "  - y[i] ").replace(
            "softmax[j](p[a,i,j])", "softmax[j](w[a,i,j])" if named else f"softmax[j]({masked})"
        )
        return loads(changed)

    assert check(written("j <= i")).grade == "theorem"
    with pytest.raises(ProgramError, match="every entry is masked at i=0"):
        written("j < i")


@pytest.mark.parametrize("atom", ["sin", "-", "sqrt", "abs"])
def test_a_function_of_masked_scores_is_refused_with_a_reason(atom: str) -> None:
    text = ATTENTION.read_text(encoding="utf-8")
    report = check(loads(text.replace("softmax[j](p[a,i,j])", f"{atom}(where(j <= i, p[a,i,j], -inf))")))
    assert report.grade == "outside"
    assert "meets the value -inf of a mask" in str(report)


def test_facts_of_very_large_families_take_no_memory() -> None:
    # 96 layers of 96 heads on 2048 tokens: an array over the tokens squared alone would take 32 MiB
    netsor = load(GPT3)
    tracemalloc.start()
    facts_table(netsor)
    check(netsor)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20


# one definition in several statements, the last of them x[i]: bounded, as the one line is
SPLIT = [
    ["d[i] = Nonlin(1 + abs(h[i]))", "x[i] = Nonlin(h[i] / d[i])"],
    ["d[i] = Nonlin(h[i]**2)", "x[i] = Nonlin(h[i] / (1 + d[i]))"],
    ["d[i] = Nonlin(exp(-h[i]**2))", "x[i] = Nonlin(h[i] * d[i])"],
    ["a[i] = Nonlin(1 + h[i]**2)", "d[i] = Nonlin(sqrt(a[i]))", "x[i] = Nonlin(h[i] / d[i])"],
    ["d[i] = Nonlin(1 + abs(h[i]))", "w[i] = Nonlin(h[i] / d[i])", "x[i] = Nonlin(3 * w[i])"],
    ["s = Nonlin(mean[j](h[j]**2))", "r = Nonlin(sqrt(s + 0.01))", "x[i] = Nonlin(h[i] / r)"],
    [
        "m = Nonlin(mean[j](h[j]))",
        "c[i] = Nonlin(h[i] - m)",
        "s = Nonlin(mean[j](c[j]**2))",
        "x[i] = Nonlin(c[i] / sqrt(s + 0.01))",
    ],
]


SCORED = """
program: scored
indices: {{i: 3, j: 3, l: 500}}
initial:
  z: {{mean: 0, cov: 1}}
weights:
  W[i]: 1
  A[l]: 1
  WQ: 1
  WK: 1
body:
  - h[i] = MatMul(W[i], z)
{}
  - q[i] = MatMul(WQ, x[i])
  - k[i] = MatMul(WK, x[i])
  - p[i,j] = Dot(q[i], k[j])
outputs: [p]
"""


def scored(*lines: str) -> Netsor:
    """Scores of tokens x[i], which the lines make of vectors h[i]."""
    return loads(SCORED.format("\n".join(f"  - {line}" for line in lines)))


@pytest.mark.parametrize("lines", SPLIT, ids=lambda lines: "; ".join(lines))
def test_relations_are_seen_across_statements(lines: list[str]) -> None:
    netsor = scored(*lines)
    assert check(netsor).grade == "theorem"
    row = next(row for row in facts_table(netsor) if row.statement == "x[i]")
    assert row.growth == 0


def _regularity(calculus: Calculus) -> tuple[float, ...]:
    """What is better the smaller it is, of the last statement."""
    p = calculus.written(len(calculus.netsor.body) - 1)
    flaws = (not p.bounded, not p.pseudo_lipschitz, not p.controlled)
    return *map(float, flaws), -p.low, p.high, p.growth, p.modulus


@pytest.mark.turns(4)
@settings(max_examples=40)
@given(EXPRESSIONS, st.data())
def test_statements_know_as_much_as_one_line(expr: Expr, data: st.DataObject) -> None:
    calls = [x for x in walk(expr) if isinstance(x, Call) and x != expr and variables(x)]
    parts = [x for x in calls if set(free_indices(x)) <= {"i"}]
    assume(parts)
    part = data.draw(st.sampled_from(parts))
    whole = rebuild(expr, lambda node: AT_I if node == part else None)
    text = PROGRAM.replace("  - y[i] = Nonlin(g[i])", f"  - a[i] = Nonlin({part})\n  - y[i] = Nonlin({whole})")
    try:
        one, split = profile(expr)[0], Calculus(loads(text))
    except ProgramError:
        assume(False)
        raise
    pairs = zip(_regularity(split), _regularity(one), strict=True)
    assert all(a <= b or math.isclose(a, b) for a, b in pairs), (str(part), str(whole))


@pytest.mark.turns(3)
def test_deep_networks_are_blamed_without_deep_calls() -> None:
    lines = ["r0[i] = Nonlin(h[i])"]
    for k in range(500):
        lines += [f"g{k}[i] = MatMul(A[{k}], r{k}[i])", f"r{k + 1}[i] = Nonlin(r{k}[i] + relu(g{k}[i]))"]
    assert check(scored(*lines, "x[i] = Nonlin(r500[i])")).grade == "remark"


SHIPPED = sorted((ROOT / "programs").glob("*.yaml"))
WHOLE = {path.stem: partial(load, path) for path in SHIPPED} | {name: CASES[name].load for name in some(CASES, 6)}


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", WHOLE)
def test_rewritten_programs_get_the_same_grade(name: str) -> None:
    netsor = WHOLE[name]()
    assert judge(written_out(netsor).netsor).grade == judge(netsor).grade


RANGES = """
program: ranges
indices: {{j: 3, l: 5}}
initial:
  z: {{mean: 0, cov: 1}}
weights:
  W[l]: 1
body:
  - h[l] = MatMul(W[l], z)
  - x = Nonlin({})
outputs: [x]
"""


@pytest.mark.parametrize(
    "text",
    [
        "sum[j](h[j]) / (1 + abs(sum[l](h[l])))",
        "exp(logsumexp[l](h[l]) - logsumexp[j](h[j]))",
        "sum[j](h[j]) / sqrt(1 + sum[l](h[l])**2)",
        "exp(max[l](h[l]) - max[j](h[j]))",
    ],
)
def test_sums_over_different_ranges_are_different(text: str) -> None:
    # at h = (0, 0, 0, t, 0), and at h = (t, 0, 0, -t, 0), they grow
    assert Calculus(loads(RANGES.format(text))).fact("bounded", 1).verdict is not HOLDS
    same = text.replace("[l]", "[j]")
    assert Calculus(loads(RANGES.format(same))).fact("bounded", 1).verdict is HOLDS


# (expression, bounded or not, the best growth of the slope; None: not pseudo-Lipschitz, or not known to be)
RELATIONS = [
    ("sigmoid(e) * (1 - sigmoid(e)) * e", True, 0),
    ("e**3 * (1 - tanh(2*e - 1)**2)", True, 0),
    ("e**2 * (1 + erf(e)) * sigmoid(-e)", True, 0),
    ("e * exp(-abs(e))", True, 0),
    ("e**2 * exp(e - e**4)", True, 0),
    ("relu(e) * exp(-relu(e))", True, 0),
    ("e * (1 - sigmoid(e))", False, 0),
    ("e**2 * (1 - sigmoid(e)) * (2 - tanh(e))", False, 1),
    ("e**2 * (1 + exp(-e**2))", False, 1),
    ("e * exp(-e)", False, None),
    ("e * exp(-e**3)", False, None),
    ("e**3 * abs(e) * exp(-abs(e))", True, 0),
    ("sqrt(abs(e)) * abs(e)**0.25", False, None),
    ("exp(-0.5 * log(1 + e**2))", True, 0),
]


@pytest.mark.parametrize(("text", "bounded", "modulus"), RELATIONS, ids=[case[0] for case in RELATIONS])
def test_relations_certify_what_holds_and_no_more(text: str, bounded: bool, modulus: float | None) -> None:
    calculus, found = profile(parsed(text))
    assert found.modulus == (math.inf if modulus is None else modulus)
    assert found.bounded == bounded
    assert calculus.fact("bounded", LAST).verdict is (HOLDS if bounded else FAILS)

"""Facts of statements as objects and as rows, and what they cost."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import pytest

from tensorprog.assumptions import check
from tensorprog.calculus import Calculus, facts_table
from tensorprog.display import facts_of
from tensorprog.errors import ProgramError
from tensorprog.facts import FAILS, HOLDS, UNKNOWN
from tensorprog.ir import Netsor
from tensorprog.yaml_io import load, loads

ROOT = Path(__file__).resolve().parents[2]
ATTENTION = ROOT / "programs" / "attention.yaml"
GPT3 = ROOT / "benchmarks" / "programs" / "gpt3.yaml"


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
        ("bounded", "e"), ("pseudo-Lipschitz", "e"), ("controlled", "e")}
    assert {(name, at) for name, at, _ in lost["t"]} == {("bounded", "x"), ("pseudo-Lipschitz", "s")}
    assert {(name, part) for name, _, part in lost["r"]} == {("real", "sqrt(u)")}
    assert not lost["u"] | lost["q"] | lost["p"] | lost["y"]  # of Gaussians, and sums of them, nothing is lost
    assert rows["x"].to_json()["lost"] == [{
        "property": "bounded", "statement": "x", "part": "relu(u)", "why": "relu is unbounded on the range of u"}]


def test_the_facts_are_followed_by_a_table_of_losses_only_if_there_are_any() -> None:
    facts, losses = facts_of(loads(LOSING))
    assert facts.header[0] == "statement"
    assert losses.rows[0] == ("x", "bounded", "relu(u): relu is unbounded on the range of u")
    assert len(set(losses.rows)) == len(losses.rows)
    assert len(facts_of(load(ATTENTION))) == 1


def test_facts_are_three_valued() -> None:
    calculus = Calculus(load(ATTENTION))
    clipped = {fact.name: fact for fact in calculus.facts(1)}
    assert {name: fact.verdict for name, fact in clipped.items()} == {
        "bounded": HOLDS, "pseudo-Lipschitz": HOLDS, "controlled": HOLDS, "odd": HOLDS, "nondecreasing": HOLDS,
        "twice differentiable": UNKNOWN,
    }
    assert "u[i] = -100, 100" in clipped["twice differentiable"].reason
    output = {fact.name: fact.verdict for fact in calculus.facts(7)}
    assert (output["bounded"], output["nondecreasing"], output["twice differentiable"]) == (FAILS, UNKNOWN, HOLDS)


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

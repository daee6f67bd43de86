"""Reports: what they say, in which form, and how fast."""

from __future__ import annotations

import json
import time
from dataclasses import FrozenInstanceError, replace

import pytest

from tensorprog import facts
from tensorprog.assumptions import RULES, check
from tensorprog.calculus import Calculus, Profile
from tensorprog.facts import FAILS, HOLDS, UNKNOWN, Fact
from tensorprog.graph import Structure
from tests.corpus import CASES, Case


def test_tied_weights_are_named_and_explained() -> None:
    report = check(CASES["tied queries and keys"].load())
    (finding,) = report.failing
    assert finding.rule == "weights of one score differ"
    assert finding.where == "q[a,i], k[a,j]"
    for part in (
        "clause (b)",
        "WQ[a]",
        "E[Z^q[a,i] Z^k[a,j]] = sigma^2 E[Z^x[i] Z^x[j]]",
        "not zero",
        "i=0, j=0",
        "sqrt(n)",
    ):
        assert part in finding.message
    assert "scale=1/n" in finding.fix
    assert "separate weights" in finding.fix
    assert (report.consequence, report.rate, report.exit_code) == ("diverges", "sqrt(n)", 1)


def test_remark_names_the_unbounded_operand() -> None:
    report = check(CASES["relu inputs"].load())
    remarks = [f for f in report.findings if f.verdict == "remark"]
    assert {f.where for f in remarks} == {"x[i], q[a,i]", "x[i], k[a,j]"}
    assert all("relu is unbounded" in f.message and "clip(relu(u[i]), -C, C)" in f.fix for f in remarks)


def test_a_weight_after_the_sum_is_told_how_to_move() -> None:
    (finding,) = check(CASES["a weight after the sum"].load()).failing
    assert "p[a,i,j] -> z[a,i] -> w[a,i]" in finding.message
    assert "exact at every n" in finding.message
    assert "w_v[a,j] = MatMul(WO[a], v[a,j])" in finding.fix
    assert "w[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * w_v[a,j]))" in finding.fix


def test_moving_the_weight_as_told_gives_the_theorem() -> None:
    case = CASES["a weight after the sum"]
    (finding,) = check(case.load()).failing
    moved = {"w[a,i] = MatMul(WO[a], z[a,i])": finding.fix.replace("; ", "\n")}
    assert check(replace(case, replace=moved).load()).grade == "theorem"


def test_relu_between_is_not_called_linear() -> None:
    (finding,) = check(CASES["a weight after relu of the sum"].load()).failing
    assert "exact" not in finding.message


def test_a_nonlinear_layer_behind_a_linear_one_is_named_too() -> None:
    last = "y[i] = Nonlin(sum[a](w[a,i]) / sqrt(H))"
    more = "r[a,i] = Nonlin(relu(w[a,i]))\nm[a,i] = MatMul(WM[a], r[a,i])\ny[i] = Nonlin(sum[a](m[a,i]))"
    findings = check(Case("two", "block", {last: more}).load()).failing
    assert [f.where for f in findings] == ["w[a,i]", "m[a,i]"]
    assert ["exact" in f.message for f in findings] == [True, False]


def test_an_attention_only_stack_is_linear_throughout() -> None:
    findings = check(CASES["a residual stack of attention only"].load()).failing
    assert {f.rule for f in findings} == {"one layer of scores"}
    assert all("exact" in f.message for f in findings)


def test_the_smallest_statement_is_blamed_and_the_chain_given() -> None:
    first = "x[i] = Nonlin(clip(u[i], -C, C))"
    three = "t[i] = Nonlin(step(u[i]))\nr[i] = Nonlin(2 * t[i])\nx[i] = Nonlin(clip(r[i], -C, C))"
    (finding,) = check(Case("chain", replace={first: three}).load()).failing
    assert finding.where == "t[i]"
    assert "t[i] -> r[i] -> x[i]" in finding.message
    assert "step is discontinuous" in finding.message


def test_never_active_clips_and_vanishing_scores_are_warnings() -> None:
    report = check(CASES["clips that are never active"].load())
    assert report.grade == "theorem"
    assert [f.rule for f in report.findings if f.verdict == "warning"] == ["active clips"]
    findings = check(CASES["a score weight of variance zero"].load()).findings
    assert any(f.verdict == "warning" and "vanishes" in f.message for f in findings)


def test_layer_norm_without_epsilon_is_left_to_the_limit() -> None:
    report = check(CASES["layer norm without epsilon"].load())
    assert report.grade == "extension"
    assert any(f.verdict == "warning" and "sqrt(m) is not 0" in f.message for f in report.findings)


def test_report_is_frozen_json_and_html() -> None:
    netsor = CASES["tied queries and keys"].load()
    report = check(replace(netsor, name="<script>alert(1)</script>"))
    with pytest.raises(FrozenInstanceError):
        report.grade = "theorem"  # type: ignore[misc]
    data = json.loads(json.dumps(report.to_json()))
    assert set(data["findings"][0]) == {"rule", "verdict", "where", "line", "message", "fix"}
    assert data["grade"] == "outside"
    assert "<script>" not in report._repr_html_()
    assert "<table" in report._repr_html_()
    assert "outside" in str(report).splitlines()[0]


def test_failing_findings_come_first_and_every_rule_cites_a_source() -> None:
    report = check(CASES["tied queries and keys"].load())
    verdicts = [f.verdict for f in report.findings]
    assert verdicts == sorted(verdicts, key=["fails", "unknown", "remark", "warning", "holds"].index)
    assert all(rule.source for rule in RULES)
    assert all(f.source for f in report.findings)


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("low rank", [("several widths", "proved")]),
        ("heads of fixed width", [("fixed width", "exact")]),
        ("layer norm", [("averages", "proved")]),
        ("attention", []),
    ],
)
def test_claims_of_extensions(name: str, claims: list[tuple[str, str]]) -> None:
    assert [(claim.name, claim.standing) for claim in check(CASES[name].load()).claims] == claims


def test_sources() -> None:
    assert check(CASES["attention"].load()).source == "Sakai et al. 2025, Theorem 1"
    assert check(CASES["tanh"].load()).source == "Yang 2019, Theorem 5.4"


def test_a_large_program_takes_milliseconds() -> None:
    netsor = replace(CASES["attention"], constants={"s": 128, "H": 96}).load()
    check(netsor)
    start = time.perf_counter()
    assert check(netsor).grade == "theorem"
    assert time.perf_counter() - start < 0.1


def test_long_recurrences_settle() -> None:
    body = "r[0] = Nonlin(h)\ng[t] = MatMul(W, h)\nr[t] = Nonlin(tanh(r[t-1] + g[t]))\ny = MatMul(V, r[5000])"
    case = Case("long", "nothing", then=body, indices={"t": "1..5000"})
    start = time.perf_counter()
    assert check(case.load()).grade == "theorem"
    assert time.perf_counter() - start < 1


def test_recurrences_keep_their_ranges() -> None:
    body = "r[0] = Nonlin(0)\ng[t] = MatMul(W, h)\nr[t] = Nonlin({})\ny = MatMul(V, r[5])"

    def profile(phi: str) -> Profile:
        netsor = Case("r", "nothing", then=body.format(phi), indices={"t": "1..5"}).load()
        return Calculus(netsor).statement(2)

    for phi, bounded in (
        ("tanh(r[t-1] + g[t])", True),
        ("r[t-1] + tanh(g[t])", True),
        ("r[t-1] * r[t-1] + g[t]", False),
    ):
        assert profile(phi).bounded == bounded, phi
        assert profile(phi).pseudo_lipschitz
    assert profile("r[t-1] + tanh(g[t])").interval == (-5.0, 5.0)


def test_members_of_a_weight_are_told_apart() -> None:
    def verdict(left: str, right: str, indices: str) -> facts.Verdict:
        body = (
            f"g[{left.split('|')[0]}] = MatMul(W[{left.split('|')[1]}], h)\n"
            f"f[{right.split('|')[0]}] = MatMul(W[{right.split('|')[1]}], h)\n"
            f"y = Nonlin(g[{left.split('|')[2]}] + f[{right.split('|')[2]}])"
        )
        sizes = dict(entry.split(": ") for entry in f"c: 12, {indices}".split(", "))
        case = Case("w", "nothing", then=body, weights={"W[c]": 1}, indices=sizes)
        return Structure(case.load()).same_member(0, 1)[0]

    assert verdict("a|a|0", "b|b|0", "a: 3, b: 3") is FAILS
    assert verdict("a|2*a|0", "b|2*b+1|0", "a: 3, b: 3") is HOLDS
    assert verdict("a|a|0", "b|b+3|0", "a: 3, b: 3") is HOLDS
    assert verdict("a|2*a|1", "b|3*b|1", "a: 1..3, b: 1..3") is FAILS
    assert verdict("a|2*a|1", "b|3*b|1", "a: 1..2, b: 1..1") is HOLDS
    assert verdict("a,d|3*a+d|0,0", "b|b+6|0", "a: 2, d: 3, b: 3") is HOLDS


def test_verdicts_refuse_truth_values() -> None:
    fact = Fact("bounded", HOLDS)
    for thing in (fact, HOLDS, FAILS, UNKNOWN):
        with pytest.raises(TypeError, match="three values"):
            bool(thing)


def test_facts_imply_each_other() -> None:
    assert {f.name for f in facts.implied(Fact("Lipschitz", HOLDS))} == {"pseudo-Lipschitz", "continuous", "controlled"}
    refuted = facts.implied(Fact("controlled", FAILS))
    assert {f.name for f in refuted} == {"bounded", "pseudo-Lipschitz", "Lipschitz"}
    assert all(f.verdict is FAILS for f in refuted)
    assert facts.implied(Fact("bounded", UNKNOWN)) == ()
    assert facts.all_hold("x", [Fact("a", HOLDS), Fact("b", UNKNOWN), Fact("c", FAILS)]).verdict is FAILS
    assert facts.all_hold("x", [Fact("a", HOLDS), Fact("b", UNKNOWN)]).verdict is UNKNOWN
    assert facts.all_hold("x", [Fact("a", HOLDS)]).verdict is HOLDS

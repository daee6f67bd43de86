"""Reports: what they say, in which form, and how fast."""

from __future__ import annotations

import json
import time
from dataclasses import FrozenInstanceError, replace

import pytest

import tensorprog as tp
from tensorprog.check.clauses import RULES, check
from tests.corpus import CASES, Case
from tests.reading import judge, loads


def test_tied_weights_are_named_and_explained() -> None:
    report = judge(CASES["tied queries and keys"].load())
    (finding,) = report.failing
    assert finding.rule == "weights of one score differ"
    assert finding.where == "q[a,i], k[a,j]"
    for part in (
        "clause (b)",
        "WQ[a]",
        "sqrt(n) E[Z^q[a,i] Z^k[a,j]]",
        "E[Z^q[a,i] Z^k[a,j]] is 0.9205",  # of clip(g, -2, 2)**2
        "i=0, j=0",
        "sqrt(n)",
    ):
        assert part in finding.message
    assert "scale=1/n" in finding.fix
    assert "separate weights" in finding.fix
    assert (report.consequence, report.rate) == ("diverges", "sqrt(n)")


def test_remark_names_the_unbounded_operand() -> None:
    report = check(CASES["relu inputs"].load())
    (remark,) = (f for f in report.findings if f.verdict == "remark")
    assert remark.where == "x[i], q[a,i], k[a,j]"
    assert "q[a,i] and k[a,j] of p[a,i,j]" in remark.message
    assert "clip(x[i], -10, 10)" in remark.fix


def test_a_weight_after_the_sum_is_moved_inside() -> None:
    report = check(CASES["a weight after the sum"].load())
    assert (report.grade, report.claims) == ("theorem", ())
    assert "the theorem applies after exact rewrites" in str(report)
    (step,) = report.rewrites
    assert (step.kind, step.where, step.standing) == ("move", "w[a,i]", "exact at every n")
    assert step.text.endswith("becomes w[a,i] = Nonlin(sum[j](softmax[j](p[a,i,j]) * w_v[a,j]))")


def test_a_nonlinear_layer_behind_a_score_is_a_conjecture() -> None:
    report = check(CASES["a weight after relu of the sum"].load())
    assert (report.grade, report.rewrites) == ("extension", ())
    assert [(c.name, c.standing) for c in report.claims] == [("iterated layers", "conjecture")]
    (found,) = (f for f in report.findings if f.rule == "one layer of scores")
    assert "p[a,i,j] -> z[a,i] -> w[a,i]" in found.message


def test_matmuls_are_moved_only_where_that_leaves_one_layer() -> None:
    last = "y[i] = Nonlin(sum[a](w[a,i]) / sqrt(H))"
    more = "r[a,i] = Nonlin(relu(w[a,i]))\nm[a,i] = MatMul(WM[a], r[a,i])\ny[i] = Nonlin(sum[a](m[a,i]))"
    report = check(Case("two", "block", {last: more}).load())
    assert (report.grade, report.rewrites) == ("extension", ())
    assert report.claims[0].text.startswith("w[a,i], m[a,i]:")


def _stack(between: str = "", query: str = "WQ2", key: str = "WK2") -> Case:
    then = (
        f"{between}q2[a,i] = MatMul({query}[a], z[i])\nk2[a,j] = MatMul({key}[a], z[j])\n"
        "p2[a,i,j] = Dot(q2[a,i], k2[a,j])\ny[i] = Nonlin(sum[a,j](softmax[j](p2[a,i,j]) * z[j]))"
    )
    return Case("stack", replace={"y[i] =": "z0[i] =" if between else "z[i] ="}, then=then)


def test_an_attention_only_stack_is_one_layer() -> None:
    report = check(_stack().load())
    assert (report.grade, report.claims) == ("remark", ())
    assert {r.kind for r in report.rewrites} == {"move", "expand"}
    assert {f.where for f in report.findings if f.verdict == "remark"} == {"o[a,j], q2[a,i], k2[a,j]"}


@pytest.mark.parametrize("recurrence", [False, True])
def test_a_score_weight_used_again_in_a_later_layer_is_not_covered(recurrence: bool) -> None:
    def case(query: str) -> Case:
        if not recurrence:
            return _stack("z[i] = Nonlin(relu(z0[i]))\n", query)
        body = (
            f"z[0,i] = Nonlin(clip(h[i], -C, C))\nq[t,i] = MatMul({query}, z[t-1,i])\n"
            "k[t,i] = MatMul(WK[t], z[t-1,i])\np[t,i,j] = Dot(q[t,i], k[t,j])\n"
            "m[t,i] = Nonlin(sum[j](softmax[j](p[t,i,j]) * z[t-1,j]))\n"
            "z[t,i] = Nonlin(z[t-1,i] + tanh(m[t,i]))\ny[i] = Nonlin(z[T,i])"
        )
        initial = {"h[i]": {"mean": 0, "cov": 1}}
        return Case("r", "nothing", then=body, initial=initial, indices={"t": "1..T"}, constants={"T": 3})

    good, bad = (case(q) for q in (("WQ[t]", "WQ") if recurrence else ("WQ2", "WK")))
    assert check(good.load()).grade == "extension"
    report = check(bad.load())
    assert (report.grade, report.consequence) == ("outside", "not covered")
    (finding,) = report.failing
    assert finding.rule == "one layer of scores"
    assert "used again" in finding.message


def test_the_same_bias_in_both_operands_diverges_with_its_variance() -> None:
    body = (
        "q[i] = MatMul(WQ, h[i])\nk[i] = MatMul(WK, h[i])\nc[i] = Nonlin(q[i] + e)\nd[i] = Nonlin(k[i] + {})\n"
        "p[i,j] = Dot(c[i], d[j])\ny[i] = Nonlin(sum[j](tanh(p[i,j]) * h[j]))"
    )
    initial = {"h[i]": {"mean": 0, "cov": 1}, "f": {"mean": 0, "cov": 0.25}, "e": {"mean": 0, "cov": 0.25}}
    two, one = (Case("b", "nothing", then=body.format(name), initial=initial) for name in "fe")
    assert check(two.load()).grade == "remark"
    report = judge(one.load())
    assert (report.grade, report.consequence) == ("outside", "diverges")
    (finding,) = report.failing
    assert (finding.rule, finding.where) == ("scales", "p[i,j]")
    assert "is 0.25" in finding.message
    assert "e" in finding.nodes


def test_the_smallest_statement_is_blamed_and_the_chain_given() -> None:
    first = "x[i] = Nonlin(clip(u[i], -C, C))"
    three = "t[i] = Nonlin(step(u[i]))\nr[i] = Nonlin(2 * t[i])\nx[i] = Nonlin(clip(r[i], -C, C))"
    (finding,) = check(Case("chain", replace={first: three}).load()).failing
    assert finding.where == "t[i]"
    assert "t[i] -> r[i] -> x[i]" in finding.message
    assert "step is discontinuous" in finding.message


def test_layer_norm_without_epsilon_is_left_to_the_limit() -> None:
    netsor = CASES["layer norm without epsilon"].load()
    report = check(netsor)  # without numbers of the limit
    assert any("sqrt(m) is " in claim.text for claim in report.claims)
    assert judge(netsor).grade == "extension"


@pytest.mark.parametrize(("name", "sizes"), [("amp_lasso", {"T": 10**6}), ("transformer_yang", {"L": 10**4})])
def test_a_check_costs_by_lines_and_not_by_sizes(name, sizes) -> None:
    """Beyond some hundred steps the numbers of the limit are not asked for, and what they would show is assumed."""
    start = time.process_time()
    report = tp.load(name, **sizes).check()
    assert time.process_time() - start < 5
    assert report.grade == "extension"


def test_report_is_frozen_json_and_html() -> None:
    netsor = CASES["tied queries and keys"].load()
    report = check(replace(netsor, name="<script>alert(1)</script>"))
    with pytest.raises(FrozenInstanceError):
        report.grade = "theorem"  # type: ignore[misc]
    data = json.loads(json.dumps(report.to_json()))
    assert set(data["findings"][0]) == {"rule", "verdict", "where", "line", "message", "fix", "source", "nodes"}
    assert all(finding["source"] for finding in data["findings"])
    assert set(data["findings"][0]["where"].split(", ")) <= set(data["findings"][0]["nodes"])
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
    start = time.process_time()
    assert check(netsor).grade == "theorem"
    assert time.process_time() - start < 0.1


def test_long_recurrences_settle() -> None:
    body = "r[0] = Nonlin(h)\ng[t] = MatMul(W, h)\nr[t] = Nonlin(tanh(r[t-1] + g[t]))\ny = MatMul(V, r[5000])"
    case = Case("long", "nothing", then=body, indices={"t": "1..5000"})
    start = time.process_time()
    assert check(case.load()).grade == "theorem"
    assert time.process_time() - start < 1


DIFFERENTIAL = """program: differential
constants: {{s: 3}}
indices: {{i: s, j: s}}
initial: {{"h[i]": {{cov: 0.5**abs(i - i_)}}}}
weights: {{V: 1, {weights}}}
body:
  - x[i] = Nonlin(tanh(h[i]))
  - v[j] = MatMul(V, x[j])
{body}
  - z[i] = Nonlin(sum[j](({weighted}) * v[j]))
  - m[i] = Dot(z[i], z[i], scale=1/n)
  - y[i] = Nonlin(z[i] / sqrt(m[i] + 1e-5))
outputs: [y]
"""


def differential(heads: int) -> str:
    """Softmaxes of several scores, added, and divided by the norm of what they give, as text."""
    count = range(1, heads + 1)
    lines = "".join(
        f"""
  - q{k}[i] = MatMul(Q{k}, x[i])
  - k{k}[i] = MatMul(K{k}, x[i])
  - p{k}[i,j] = Dot(q{k}[i], k{k}[j])"""
        for k in count
    )
    return DIFFERENTIAL.format(
        body=lines.strip("\n"),
        weights=", ".join(f"Q{k}: 1, K{k}: 1" for k in count),
        weighted=" - ".join(f"softmax[j](p{k}[i,j])" for k in count),
    )


RECURRENT = """program: recurrent
constants: {T: 3}
indices: {t: 1..T, u: 1..4}
initial: {h: {cov: 1}, x0: {cov: 1}}
weights: {"Q[u]": 1, "A[t]": 1, "K[u]": 1, "B[t]": 1, S: 1, C: 1, "D[t]": 1, "E[t]": 1, O: 1}
body:
  - x[0] = Nonlin(tanh(x0))
  - e = Nonlin(tanh(h))
"""
LOOP = """  - q[t] = MatMul(Q[t], x[t-1])
  - k[t] = MatMul(A[t], x[t-1])
  - p[t] = Dot(q[t], k[t])
  - f[t] = MatMul(K[t], x[t-1])
  - g[t] = MatMul(B[t], x[t-1])
  - s[t] = Dot(f[t], g[t])
  - x[t] = Nonlin(tanh(p[t] * e + s[t] * x[t-1]))
  - a[t] = MatMul({left}, e)
  - b[t] = MatMul({right}, e)
  - r[t] = Dot(a[t], b[t])
  - y[t] = Nonlin(tanh(r[t]) * x[t])
outputs: [y]
"""
SAME = """  - q[t] = MatMul(S, x[t-1])
  - x[t] = Nonlin(tanh(q[t]))
  - k = MatMul(C, e)
  - p[t] = Dot(q[t], k)
  - y[t] = Nonlin(tanh(p[t] * x[t]))
  - o[t] = MatMul(O, y[t])
outputs: [o]
"""


@pytest.mark.parametrize(
    ("left", "right", "grade"),
    [
        ("D[t]", "E[t]", "extension"),
        ("Q[t]", "K[t+1]", "outside"),  # r[t] belongs to the layer of p[t], and to that of s[t+1] behind it
        ("Q[t]", "Q[t+1]", "outside"),
        ("Q[t]", "C", "outside"),  # all r share C, so all p would be in one layer
    ],
    ids=lambda word: word,
)
def test_a_score_beside_a_recurrence_may_tie_its_rounds(left: str, right: str, grade: str) -> None:
    report = check(loads(RECURRENT + LOOP.format(left=left, right=right)))
    assert report.grade == grade
    assert {finding.rule for finding in report.failing} <= {"one layer of scores"}


def test_scores_with_no_score_behind_them_are_one_layer_in_a_recurrence_too() -> None:
    assert check(loads(RECURRENT + SAME)).grade == "extension"
    behind = SAME.replace("tanh(q[t])", "tanh(q[t] * p[t])")
    assert check(loads(RECURRENT + behind)).grade == "outside"


@pytest.mark.slow
def test_linear_stacks_fall_under_the_theorem_where_they_can_be_written_out() -> None:
    """Residual layers without nonlinearities between: each doubles the parts of the next, so eight are too many."""
    layer = """
q{t}[i] = MatMul(WQ{t}, x{s}[i])
k{t}[j] = MatMul(WK{t}, x{s}[j])
p{t}[i,j] = Dot(q{t}[i], k{t}[j])
v{t}[j] = MatMul(WV{t}, x{s}[j])
x{t}[i] = Nonlin(x{s}[i] + sum[j](softmax[j](p{t}[i,j]) * v{t}[j]))
"""
    for depth, grade, claims in ((2, "remark", []), (8, "extension", ["iterated layers"])):
        body = "x0[i] = Nonlin(clip(h[i], -C, C))" + "".join(layer.format(t=t, s=t - 1) for t in range(1, depth + 1))
        case = Case("stack", base="nothing", then=body, initial={"h[i]": {"cov": 1}}, outputs=(f"x{depth}",))
        report = judge(case.load())
        assert (report.grade, [claim.name for claim in report.claims]) == (grade, claims)
        assert bool(report.rewrites) == (depth == 2)


def test_functions_that_are_no_number_are_not_covered() -> None:
    case = replace(CASES["tied queries and keys"], replace={"WK[a]": "WQ[a]", "clip(u[i], -C, C)": "sqrt(u[i])"})
    assert judge(case.load()).grade == "outside"

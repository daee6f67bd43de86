"""A matrix together with its transpose: who meets whom, and what follows."""

from __future__ import annotations

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import Report
from tensorprog.check.clauses import Finding, check
from tests.reading import Netsor, judge, loads


def program(*body: str, weights: str = "W[a]: 1 & V: 1", indices: str = "a: 3, c: 2", outputs: str = "y") -> Netsor:
    lines = ["program: p", f"indices: {{{indices}}}", "initial:", "  x: {mean: 0, cov: 1}", "weights:"]
    lines += [f"  {entry}" for entry in weights.split(" & ")]
    lines += ["body:", *(f"  - {line}" for line in body), f"outputs: [{outputs}]"]
    return loads("\n".join(lines))


def found(report: Report, rule: str = "transposes") -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


def test_a_tied_decoder_has_onsager_terms() -> None:
    report = check(program("u[a] = MatMul(W[a], x)", "h[a] = Nonlin(tanh(u[a]))", "y[a] = MatMul(W[a].T, h[a])"))
    (finding,) = found(report)
    (claim,) = report.claims
    assert (report.grade, claim.name, claim.standing) == ("extension", "transposes", "proved")
    assert (finding.verdict, finding.where, finding.line) == ("holds", "y[a]", 11)
    assert "W[a].T" in finding.message and "Onsager" in finding.message
    assert "2009.10685" in finding.source and "2009.10685" in report.source


def test_functions_that_jump_between_transposes_are_a_conjecture() -> None:
    report = check(program("u = MatMul(V, x)", "h = Nonlin(sign(u))", "y = MatMul(V.T, h)"))
    (claim,) = report.claims
    assert (report.grade, claim.standing) == ("extension", "conjecture")
    assert "h: not pseudo-Lipschitz" in claim.text


def test_averages_before_a_score_of_one_matrix_fluctuate_too() -> None:
    """A limit with mean zero, whose variance clause (iv) does not give."""
    report = check(program(
        "h = MatMul(V.T, x)", "t = Nonlin(tanh(h))", "z = Nonlin(tanh(x)**2)", "q = MatMul(V, z)", "k = MatMul(V, t)",
        "p = Dot(q, k)", "y = Nonlin(p * x)",
    ))  # fmt: skip
    assert report.grade == "outside" and "a score that depends on both" in found(report)[0].message


@pytest.mark.parametrize(("width", "score", "beside"), [
    ("", "p = Dot(q, r)", "a score that depends on both"),
    ("fixed", "p = Dot(q, q, scale=1/n)", "a width that stays finite"),
])  # fmt: skip
def test_what_is_not_known_beside_transposes(width: str, score: str, beside: str) -> None:
    body = [
        "u = MatMul(V, x)",
        "h = Nonlin(tanh(u))",
        "y = MatMul(V.T, h)",
        "q = MatMul(W[0], x)",
        "k = MatMul(W[1], x)",
        "r = MatMul(W[1], y)",
    ]
    weights = "W[a]: {variance: 1, shape: [d, n]} & V: 1" if width == "fixed" else "W[a]: 1 & V: 1"
    lines = program(*body[:3], weights="V: 1")  # alone it is covered
    assert check(lines).grade == "extension"
    head = [
        "program: p",
        "indices: {a: 2}",
        "fixed_widths: {d: 3}" if width == "fixed" else "",
        "initial: {x: {cov: 1}}",
    ]
    declared = ["weights:", *(f"  {entry}" for entry in weights.split(" & "))]
    rest = ["body:", *(f"  - {line}" for line in (*body, score, "z = Nonlin(y * tanh(p))")), "outputs: [z]"]
    text = "\n".join([*head, *declared, *rest])
    report = check(loads(text))
    (finding,) = found(report)
    assert report.grade == "outside" and finding.verdict == "fails" and beside in finding.message
    assert "weight of its own" in finding.fix


@pytest.mark.parametrize(("first", "second", "verdict"), [
    ("W[a]", "W[a].T", "holds"),
    ("W[a].T", "W[a]", "holds"),
    ("W[a]", "W[0].T", "holds"),
    ("W[1]", "W[a].T", "holds"),
    ("W[c]", "W[c + 1].T", "holds"),  # at c = 1 and c = 0
    ("W[0]", "W[1].T", ""),
    ("W[c]", "W[2].T", ""),  # c runs over 0, 1
    ("W[2*c]", "W[1].T", ""),
    ("W[a]", "V.T", ""),
    ("V", "W[a].T", ""),
    ("W[a].T", "W[a].T", ""),
    ("W[a]", "W[a]", ""),
])  # fmt: skip
def test_members_that_meet(first: str, second: str, verdict: str) -> None:
    report = check(
        program(f"u[a,c] = MatMul({first}, x)", "h[a,c] = Nonlin(tanh(u[a,c]))", f"y[a,c] = MatMul({second}, h[a,c])")
    )
    assert [finding.verdict for finding in found(report)] == [verdict] * bool(verdict)
    assert report.grade == ("extension" if verdict else "theorem")


@pytest.mark.parametrize(("first", "second", "boundary", "verdict"), [
    ("W[a]", "W[a + 1].T", "wrap", "holds"),  # at a = 1 and a = 0, say
    ("W[0]", "W[c + 1].T", "wrap", ""),  # 1 and 2
    ("W[0]", "W[c + 2].T", "wrap", "holds"),  # 2 and 0
    ("W[a]", "W[a + 3].T", "zero", ""),  # nothing is left of the second
    ("W[0]", "W[a - 2].T", "zero", "holds"),
])  # fmt: skip
def test_members_beyond_a_boundary(first: str, second: str, boundary: str, verdict: str) -> None:
    report = check(
        program(
            f"u[a,c] = MatMul({first}, x)",
            "h[a,c] = Nonlin(tanh(u[a,c]))",
            f"y[a,c] = MatMul({second}, h[a,c])",
            indices=f"a: {{size: 3, boundary: {boundary}}}, c: 2",
        )
    )
    assert [finding.verdict for finding in found(report)] == [verdict] * bool(verdict)
    assert report.grade == ("extension" if verdict else "theorem")


def test_each_transposed_use_is_named() -> None:
    report = check(
        program(
            "u = MatMul(V, x)",
            "v = MatMul(W[0], u)",
            "g = MatMul(V.T, x)",
            "r = MatMul(V.T, v)",
            "y = Nonlin(u + v + g + r)",
        )
    )
    assert [finding.where for finding in found(report)] == ["g, r"]


def test_statements_that_reach_no_output_do_not_count() -> None:
    assert not found(check(program("u = MatMul(V, x)", "g = MatMul(V.T, u)", "y = Nonlin(tanh(u))")))


@pytest.mark.parametrize(("keys", "grade"), [("z", "extension"), ("v", "outside")])
def test_clause_a_counts_the_transpose_where_scores_depend_on_it(keys: str, grade: str) -> None:
    report = check(
        program(
            "z = Nonlin(tanh(x))",
            "q = MatMul(W[0], z)",
            "v = MatMul(W[0].T, z)",
            f"k = MatMul(W[1], {keys})",
            "p = Dot(q, k)",
            "y = Nonlin(sigmoid(p) * v)",
        )
    )
    assert report.grade == grade
    for rule in ("dedicated weights", "transposes"):
        assert [f.verdict for f in found(report, rule)] == (["fails"] if keys == "v" else ["holds"])


def scored(first: str, second: str) -> Report:
    return judge(program(
        "z = Nonlin(tanh(x)**2)", f"q = MatMul({first}, z)", f"k = MatMul({second}, z)", "p = Dot(q, k)",
        "v = MatMul(W[1], z)", "y = Nonlin(sigmoid(p) * v)",
    ))  # fmt: skip


def test_a_score_of_a_matrix_and_its_transpose_does_not_diverge() -> None:
    report = scored("V", "V.T")
    assert (report.grade, report.consequence, report.rate) == ("outside", "not covered", "")
    assert all(f.verdict == "holds" for f in found(report, "weights of one score differ"))
    assert len(found(report)) == 1


@pytest.mark.parametrize(("first", "second"), [("V", "V"), ("V.T", "V.T")])
def test_a_score_of_one_matrix_used_one_way_diverges(first: str, second: str) -> None:
    report = scored(first, second)
    assert (report.consequence, report.rate) == ("diverges", "sqrt(n)")
    assert not found(report)


def test_a_weight_used_only_transposed_is_a_weight_of_the_other_shape() -> None:
    P = tp.Program("p", widths={"d": "n/2"})
    x, W = P.initial("x", width="d"), P.weight("W", shape=("d", "n"))
    y = P.matmul("y", W.T, x)
    P.outputs(P.nonlin("z", tp.tanh(y)))
    report = P.check()
    assert report.grade == "extension"  # two widths
    # entries N(0, 1/n), d = n/2 of them meet x in each row of the transpose
    assert float(np.asarray(P.limit().cov("y"))) == pytest.approx(0.5, abs=1e-14)


def test_a_transpose_behind_a_score_is_moved_like_any_other_weight() -> None:
    report = check(
        program(
            "z = Nonlin(tanh(x))",
            "q = MatMul(W[0], z)",
            "k = MatMul(W[1], z)",
            "p = Dot(q, k)",
            "s = Nonlin(sigmoid(p) * z)",
            "y = MatMul(V.T, s)",
        )
    )
    assert report.grade == "theorem"
    assert [r.kind for r in report.rewrites] == ["move"]

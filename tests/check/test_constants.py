"""Constants put into expressions: what goes, what stays, and that every number stays what it was."""

from __future__ import annotations

import numpy as np
import pytest
from networks import check_same
from rewrite_programs import ONE_HEAD, Case

from tensorprog import Law
from tensorprog.check.clauses import check
from tensorprog.check.rewrites import normalize, written_out
from tensorprog.check.rewrites.constants import Folding
from tensorprog.language.expr import Number
from tests.reading import dump, loads

CONSTANTS = (
    "zero: 0 & one: 1 & half: 0.5 & ones[i]: [1, 1, 1] & mixed[i]: [1, 1, 0] "
    "& none[i,j]: [[0, 0, 0], [0, 0, 0], [0, 0, 0]] & twice[k]: 2*one + k"
)


def program(expr: str, outputs: str = "y", **declared: str) -> Case:
    """An expression for y[i] over a score p[i,j], vectors x[i] and a mask of scores that is not finite."""
    mask = "t[i,j] = Nonlin(where(j <= i, p[i,j], -inf))\n"
    return Case("constants", f"{ONE_HEAD}{mask}y[i] = Nonlin({expr})", constants=CONSTANTS, outputs=outputs, **declared)


FOLDED = (
    ("(1 - one) * p[i,0] * x[i] + one * x[i]", "x[i]", "one = 1"),
    ("zero + x[i]", "x[i]", "zero = 0"),
    ("x[i] - zero", "x[i]", "zero = 0"),
    ("zero - x[i]", "-x[i]", "zero = 0"),
    ("x[i] / one", "x[i]", "one = 1"),
    ("x[i] / sqrt(one) / 3", "x[i] / 3", "one = 1"),
    ("(1 - 2*half) * x[i] + u[i]", "u[i]", "half = 0.5"),
    ("ones[i] * x[i]", "x[i]", "ones = 1"),
    ("x[i] + sum[j](none[i,j] * x[j])", "x[i]", "none = 0"),
    ("x[i] + mean[j](softmax[j](p[i,j]) * x[j]) * zero", "x[i]", "zero = 0"),
    ("x[i] * (2 + tanh(zero * u[i]))", "x[i] * 2", "zero = 0"),
    ("x[i] * exp(zero * u[i])", "x[i]", "zero = 0"),
    ("x[i] + zero * (u[i]**2 / 3 - p[i,0] * abs(x[i]))", "x[i]", "zero = 0"),
    ("where(one > half, x[i], -inf)", "x[i]", "one = 1 and half = 0.5"),
    ("where(one == zero, x[i], where(zero == 0, u[i], x[i]))", "u[i]", "one = 1 and zero = 0"),
    ("sum[j](softmax[j](where(zero > 0, t[i,j], p[i,j])) * x[j])", "sum[j](softmax[j](p[i,j]) * x[j])", "zero = 0"),
    ("softmax[i](one * p[i,0]) * x[i]", "softmax[i](p[i,0]) * x[i]", "one = 1"),
    ("zero * x[i]", "0", "zero = 0"),
    ("1 * x[i] + 0 * u[i]", "1 * x[i]", "0 times a finite number is 0"),
    ("x[i] - tanh(p[i,0]) * 0 * x[i]", "x[i]", "0 times a finite number is 0"),
)
KEPT = (
    "half * x[i] + (1 - half) * u[i]",  # takes nothing away
    "1 * x[i] + 0",  # written so
    "x[i] + 0 * sqrt(u[i])",
    "mixed[i] * x[i]",  # not the same for all indices
    "i * x[i]",
    "twice[i] * x[i]",
    "x[i] + zero * where(0 <= i, x[i], -inf)",
    "x[i] + zero * max[j](t[i,j])",  # a family that is not finite everywhere
    "x[i] + zero * sqrt(u[i])",
    "x[i] + zero * u[i]**(-1)",
    "x[i] + zero * (1 / u[i])",
    "x[i] + zero * log(abs(u[i]))",
    "zero * x[i] + p[i,0]",  # would be a scalar
    "zero * p[i,0]",
)


@pytest.mark.parametrize(("expr", "left", "reason"), FOLDED, ids=[row[0] for row in FOLDED])
def test_what_is_taken_away(expr: str, left: str, reason: str) -> None:
    netsor = program(expr).load()
    rewritten = normalize(netsor)
    (step,) = (step for step in rewritten.steps if step.kind == "constants")
    assert str(next(s for s in rewritten.netsor.body if s.target.name == "y").expr) == left  # type: ignore[union-attr]
    assert step.text.endswith(f", as {reason}")
    assert (step.where, step.line) == ("y[i]", netsor.body[-1].span.line)
    for found in (rewritten, written_out(netsor)):
        check_same(found, netsor)
        assert loads(dump(found.netsor)) == found.netsor
    assert normalize(rewritten.netsor).netsor == rewritten.netsor


@pytest.mark.parametrize("expr", KEPT)
def test_what_stays(expr: str) -> None:
    netsor = program(expr).load()
    assert normalize(netsor).netsor is netsor


def test_a_symbol_may_have_any_value() -> None:
    netsor = program("zero * u[i] + one * x[i]").load()
    found = normalize(netsor, symbols={"zero"}).netsor
    assert str(found.body[-1]) == "y[i] = Nonlin(zero * u[i] + x[i])"
    assert normalize(netsor, symbols={"zero", "one"}).netsor is netsor


def test_constants_beyond_a_boundary_are_not_the_same_everywhere() -> None:
    text = "o[e] = MatMul(W2[e], h)\ny[e] = Nonlin(f[e + 1] * o[e])"
    declared = {"indices": "e: {{size: 3, boundary: {}}}", "weights": "W2[e]: 1", "constants": "f[e]: [1, 1, 1]"}
    for rule, left in (("zero", "f[e + 1] * o[e]"), ("wrap", "o[e]")):
        netsor = Case("b", text, **declared | {"indices": declared["indices"].format(rule)}).load()
        found = normalize(netsor)
        assert str(found.netsor.body[-1]) == f"y[e] = Nonlin({left})"
        check_same(found, netsor)


def test_what_constants_put_out_of_use_is_dropped_and_nothing_else() -> None:
    body = ONE_HEAD + (
        "idle[i] = Nonlin(x[i])\nd[i] = MatMul(WO[0], u[i])\ne[i] = Nonlin(d[i] * d[i])\n"
        "y[i] = Nonlin(x[i] + zero * e[i])"
    )
    netsor = Case("unused", body, constants="zero: 0").load()
    found = normalize(netsor)
    assert [step.where for step in found.steps if step.kind == "unused"] == ["d[i]", "e[i]"]
    assert {s.target.name for s in netsor.body} - {s.target.name for s in found.netsor.body} == {"d", "e"}
    assert "WO" not in found.netsor.weight
    check_same(found, netsor)


def test_vectors_stay_vectors_of_their_width() -> None:
    text = "g = MatMul(W2, h)\nz = Nonlin(zero * g)\ny = MatMul(W3, z)"
    netsor = Case(
        "width",
        text,
        constants="zero: 0",
        extra="widths: {d: n/2}",
        weights="W2: {variance: 1, shape: [d, n]} & W3: {variance: 1, shape: [n, d]}",
    ).load()
    found = normalize(netsor)
    assert str(found.netsor.body[-2]) == "z = Nonlin(0, width=d)"
    check_same(found, netsor)


def test_recurrences_of_vectors_stay_so() -> None:
    """The base case alone would not say that z are vectors."""
    text = ONE_HEAD + "z[0] = Nonlin(p[0,0])\nz[r] = Nonlin(z[r - 1] + {} * x[r])\ny[i] = Nonlin(z[i] * x[0])"
    vectors = Case("base", text.format("one").replace("Nonlin(p[0,0])", "Nonlin(u[0])"), constants="one: 1").load()
    assert normalize(vectors).steps
    check_same(normalize(vectors), vectors)
    for name in ("zero", "one"):
        netsor = Case("scalars", text.format(name), constants="zero: 0 & one: 1").load()
        check_same(normalize(netsor), netsor)


def test_a_width_that_is_n_is_called_so() -> None:
    text = "g = MatMul(W2, h)\nz = Nonlin(tanh(g))\no = Nonlin(1, width=d)\nw = Nonlin(z + o)\ny = MatMul(W3, w)"
    for ratio, widths in (("n/rank", {"n"}), ("n/half", {"n", "d"})):
        netsor = Case(
            "width",
            text,
            constants="rank: 1 & half: 2",
            extra=f"widths: {{d: {ratio}}}",
            weights="W2: {variance: 1, shape: [d, n]} & W3: {variance: 1, shape: [n, d]}",
        ).load()
        found = normalize(netsor)
        assert {family.width for family in found.netsor.families.values()} - {""} == widths
        check_same(found, netsor)


def test_numbers_are_finite_or_not_known() -> None:
    folding = Folding(program("x[i]").load())
    assert folding.number(Number(float("inf"))) is None
    assert folding.number(Number(2) ** -1) == 0.5
    assert folding.number(1 / Number(0)) is None
    assert folding.number(Number(-1) ** 0.5) is None


def test_check_and_limit_see_what_is_left() -> None:
    netsor = program("sum[j](softmax[j](one * p[i,j]) * u[j]) + zero * relu(exp(x[i]))").load()
    plain = program("sum[j](softmax[j](p[i,j]) * u[j])").load()
    assert check(netsor).grade == check(plain).grade
    given = {"p": np.random.default_rng(0).normal(size=(3, 3))}
    first, second = (np.asarray(Law(each).given(given).cov("y")) for each in (netsor, plain))
    np.testing.assert_array_equal(first, second)

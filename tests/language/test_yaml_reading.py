"""What files mean: scalars by the rules of YAML 1.2, overrides, sections, data, positions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from front_end_programs import program

from tensorprog import ProgramError
from tensorprog.language.expr import Affine, Call, Constant, Number, Variable
from tensorprog.language.ir import Dot, Index, MatMul, Nonlin
from tests.reading import load, loads


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1e-3", 0.001),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-.5", -0.5),
        ("+7", 7),
        ("1.", 1.0),
        ('"3"', 3),
        ("2*s", 6),
        ("sqrt(4)", 2.0),
        ("1/4", 0.25),
        ("s**2", 9),
        ("pi", np.pi),
    ],
)
def test_numbers(text, value):
    read = loads(program(constants=f"{{s: 3, c: 2, k: {text}}}")).constant["k"].value
    assert read == value
    assert isinstance(read, type(value))


@pytest.mark.parametrize("text", ["on", "no", "~", "null", ".nan", ".inf", "inf", "2020-01-01x", "12:30:45"])
def test_texts_that_are_not_numbers(text):
    with pytest.raises(ProgramError):
        loads(program(constants=f"{{s: 3, c: 2, k: {text}}}"))


def test_overrides():
    text = program(constants="{s: 3, c: 2, d: 2*s}", widths="{w: n/d}")
    netsor = loads(text, {"s": 5, "c": "0.5"})
    assert netsor.scalars == {"s": 5, "c": 0.5, "d": 10}
    assert netsor.index["i"] == Index("i", 0, 5)
    assert netsor.widths == (("w", Fraction(1, 10), "n/d"),)
    assert loads(text, {"d": np.int64(3)}).scalars["d"] == 3
    assert loads(text, {"c": np.float64(3)}).scalars["c"] == 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"S": 3}, "S is not a constant of the program"),
        ({"c": "abc"}, "'abc' is not a number"),
        ({"c": True}, "True is not a number"),
        ({"c": [1]}, "[1] is not a number"),
        ({"c": float("nan")}, "c=nan is not a number"),
        ({"c": None}, "None is not a number"),
        ({"s": 2.5}, "must be a whole number, not 2.5"),
        ({"b": 1}, "b is not a constant of the program that is a number"),
        ({"c": "__import__('os')"}, "is not a number"),
        ({"s": 10**12}, "values, more than"),
    ],
)
def test_overrides_that_are_refused(overrides, message):
    text = program("q[i] = Nonlin(b[i])", constants="\n  s: 3\n  c: 2\n  b[i]: [1, 2, 3]")
    with pytest.raises(ProgramError) as caught:
        loads(text, overrides)
    assert message in str(caught.value)


def test_override_suggests_the_closest_name():
    with pytest.raises(ProgramError, match="did you mean heads"):
        loads(program(constants="{s: 3, c: 2, heads: 1}"), {"head": 3})


def test_sections():
    text = (
        program(
            [
                "r = Nonlin(0, width=d)",
                "a = Dot(g, g, scale=1/n)",
                "w = MatMul(Q[0], r)",
                "e1[i,p] = Nonlin(u[i] * b[i,p] + f[p-1])",
            ],
            constants="\n  s: 3\n  c: 2\n  H: 4\n  P: 2\n  b[i,p]: [[1, 2], [3, 4], [5, 6e-1]]\n  f[p]: p + c",
            indices="{i: s, j: s, t: 1..s, p: {size: P, boundary: wrap}}",
            widths="{d: n/H, e: 3*n/2}",
            fixed_widths="{k: 16*H}",
            initial="\n  h: {}\n  x0[i]: {mean: [1, 2, 3], cov: c**abs(i - i_) / 9, width: k}".replace("c**", "0.5**"),
            weights='\n  W[i]: 1\n  V: 1\n  Q[p]: {variance: "max(p, 1)", shape: [n, d]}',
        )
        + 'run: {width: 64, seed: 1, keep: [g, m], max_memory: 2GiB, averages: {m2: "tanh(g)**2"}}\n'
    )
    netsor = loads(text)
    assert netsor.widths == (("d", Fraction(1, 4), "n/H"), ("e", Fraction(3, 2), "3*n/2"))
    assert netsor.fixed_widths == (("k", 64),)
    assert netsor.index["p"] == Index("p", 0, 2, "wrap")
    assert netsor.index["t"] == Index("t", 1, 4)
    assert netsor.constant["b"].value.array.tolist() == [[1, 2], [3, 4], [5, 0.6]]
    assert netsor.constant["f"].indices == ("p",)
    h, x0 = netsor.initial
    assert (h.mean, h.cov, h.width) == (Number(0), Number(1), "n")
    assert (x0.indices, x0.width, x0.mean.array.tolist()) == (("i",), "k", [1, 2, 3])
    assert str(x0.cov) == "0.5**abs(i - i_) / 9"
    assert netsor.weight["Q"].shape == ("n", "d")
    assert dict(netsor.run) == {
        "width": (64,),
        "seed": 1,
        "keep": ("g", "m"),
        "max_memory": "2GiB",
        "averages": (("m2", "tanh(g)**2"),),
    }
    u, x, y, m = netsor.body[:4]
    assert u == MatMul(Variable("u", (Affine((("i", 1),)),)), Variable("W", (Affine((("i", 1),)),)), Variable("h"))
    assert isinstance(x, Nonlin)
    assert x.expr.args[1] == Constant("c")
    assert y.expr == Variable("u", (Affine((("t", 1),), -1),))
    assert m == Dot(Variable("m"), Variable("y", (Affine((), 1),)), Variable("y", (Affine((), 2),)))
    assert netsor.body[7].scale == "1/n"
    assert isinstance(netsor.body[-1].expr, Call)


def test_gram_and_data(tmp_path):
    x = np.random.default_rng(0).standard_normal((3, 5))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "gram.npy", x @ x.T)
    (tmp_path / "p.yaml").write_text(
        program(
            initial="\n  h: {cov: 1}\n  q[i]: {data: x.npy, variance: c}\n  r[i]: {gram: gram.npy}"
            "\n  v[i]: {data: [[1], [2], [3]]}"
        )
    )
    _, q, r, v = load(tmp_path / "p.yaml").initial
    np.testing.assert_array_equal(q.data.array, x)
    assert q.cov == Constant("c")
    np.testing.assert_allclose(r.cov.array, x @ x.T, rtol=1e-15)
    assert v.data.array.tolist() == [[1], [2], [3]]


def test_columns_of_statements_hold_behind_unusual_beginnings():
    for text, line, column in [
        ("  -   q[i] = Nonlin(uu[i])", 16, 21),
        ("  - 'q[i] = Nonlin(uu[i])'", 16, 20),
        ("  - q[i]    = Nonlin(uu[i])", 16, 22),
        ("  - qq = Nonlin(\n      uu[0])", 16, 0),
        ("  - |\n    q[i] = Nonlin(uu[i])", 16, 0),
        ("  - ψ[i] = Nonlin(σ[i])", 16, 19),
    ]:
        source = program().replace("outputs", text + "\noutputs")
        with pytest.raises(ProgramError) as caught:
            loads(source)
        span = caught.value.problems[0].span
        assert (span.line, span.column) == (line, column), text


def test_statements_may_run_over_several_lines():
    source = program().replace(
        "outputs", "  - q[i] = Nonlin(u[i]\n      + 1)\n  - >-\n    r[i] =\n    Nonlin(u[i] + 1)\noutputs"
    )
    q, r = loads(source).body[-2:]
    assert q.expr == r.expr


def test_a_fully_masked_row_is_only_refused_where_every_entry_is_masked():
    loads(program("q[i] = Nonlin(sum[j](softmax[j](where(j < i + 1, m, -inf)) * x[i,j]))"))


def test_a_program_may_begin_with_a_constant_state():
    text = "program: a\nindices: {i: 1..3}\nweights: {W: 1}\nbody:\n  - h[0] = Nonlin(0)\n"
    netsor = loads(f"{text}  - u[i] = MatMul(W, h[i - 1])\n  - h[i] = Nonlin(tanh(u[i]))\noutputs: [h]\n")
    assert netsor.families["h"].kind == "vector"

"""(1/n) sum_a psi of a network: what is reported, what is refused, and against networks written out in numpy."""

from __future__ import annotations

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import compare
from tensorprog.shipped import shipped_programs
from tests.reading import loads

ATTENTION = shipped_programs()["attention"]
NARROW = """
program: narrow
indices: {t: "1..3"}
widths: {d: n/2}
initial:
  x: {mean: 1, cov: 1}
weights:
  U: 1
  D: {variance: 1, shape: [d, n]}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(U, s[t-1])
  - s[t] = Nonlin(tanh(u[t] + x))
  - low[t] = MatMul(D, s[t])
outputs: [s, low]
"""


def program(text: str):  # type: ignore[no-untyped-def]
    return tp.Program.from_netsor(loads(text))


def test_an_average_is_the_mean_over_all_coordinates_of_the_same_network() -> None:
    psi = {"m": "tanh(y[0])**2", "f": "y[i]*y[0] + p[0,i,0]", "c": "C*x[1]*y[j] + i"}
    for method in ("lazy", "dense"):
        net = tp.load(ATTENTION, C=2).run(24, 30, seed=3, method=method, coordinates=24, keep=("x",), averages=psi)
        y, x, p = net["y"], net["x"], net["p"]
        assert y.shape == (30, 24, 4)
        np.testing.assert_allclose(net.averages["m"], (np.tanh(y[..., 0]) ** 2).mean(axis=1), atol=1e-12)
        family = (y * y[..., :1]).mean(axis=1) + p[:, 0, :, 0]
        np.testing.assert_allclose(net.averages["f"], family, atol=1e-12)
        both = 2 * (x[..., 1:2] * y).mean(axis=1)[:, :, None] + np.arange(4)
        np.testing.assert_allclose(net.averages["c"], both, atol=1e-12)  # axes j, i: as they appear
        assert set(net) == {"y", "x", "p"}
        assert net.psi == {"m": "tanh(y[0])**2", "f[i]": "y[i] * y[0] + p[0,i,0]", "c[j,i]": "C * x[1] * y[j] + i"}


def test_same_seed_same_averages_whatever_the_threads_and_a_longer_run_begins_with_a_shorter() -> None:
    P = tp.load(ATTENTION)
    one = P.run(32, 3000, seed=4, averages={"m": "tanh(y[0])"}, threads=1)
    two = P.run(32, 4000, seed=4, averages={"m": "tanh(y[0])"}, threads=2)
    assert np.array_equal(one.averages["m"], two.averages["m"][:3000])
    assert P.run(32, 10).averages == {}


@pytest.mark.parametrize(
    ("averages", "message"),
    [
        ({"m": "tanh(yy[0])"}, "average m: yy is not defined"),
        ({"m": "tanh(y[0]"}, "average m: this cannot be read"),
        ({"m": "tanh(y[0])**y[1]"}, "average m: power"),
        ({"m": "tanh(y)"}, "average m: y has 1 index, 0 given"),
        ({"m": "y[4]"}, "average m: y: the index 4 runs over 4..4, outside 0..3"),
        ({"m": "y[i+1]"}, "average m: y: the index i \\+ 1 runs over 1..4"),
        ({"m": "y[i_]"}, "left side takes plain indices or whole numbers"),
        ({"m": "p[0,0,0]**2"}, "average m: there is no vector in it"),
        ({"m": "2"}, "average m: there is no vector in it"),
        ({"m": "W[0]"}, r"average m: W is a weight"),
        ({"m": "softmax[i](y)"}, "average m: y has 1 index"),
        ({"m": "n*y[0]"}, "average m: n may occur only"),
        ({"y": "y[0]"}, "average y: there is something of that name"),
        ({"m[i]": "y[0]"}, "average m: its indices are none, not i"),
        ({"m[i]": "y[j]"}, "average m: its indices are j, not i"),
        ({"m": "y[0]", "m[i]": "y[i]"}, "average m: there is something of that name"),
        ({"2m": "y[0]"}, "cannot be read"),
        ({"m": "__import__('os')"}, "there is no function|not part of the language"),
        ([("m", "y[0]")], "averages are written by name"),
        ({"a": "zz", "b": "ww"}, "(?s)average a: zz.*average b: ww"),
    ],
)
def test_mistakes_are_named(averages, message) -> None:  # type: ignore[no-untyped-def]
    P = tp.load(ATTENTION)
    with pytest.raises(tp.ProgramError, match=message):
        P.run(8, 5, averages=averages)
    with pytest.raises(tp.ProgramError, match=message):
        P.limit().sample(5, averages=averages)


def test_vectors_of_two_widths_do_not_mix_and_a_domain_left_is_reported() -> None:
    with pytest.raises(tp.ProgramError, match=r"average m: .*width"):
        program(NARROW).run(8, 5, averages={"m": "low[1]*s[1]"})
    with pytest.raises(tp.ProgramError, match=r"average m = .* took values that are not finite"):
        tp.load(ATTENTION).run(8, 5, averages={"m": "log(y[0])"})


def test_compare_has_a_row_for_each_average() -> None:
    P = tp.load(ATTENTION, C=1)
    net = P.run(64, 2000, averages={"m": "tanh(y[0])**2", "f": "y[i]**2"})
    law = P.limit()
    table = compare(net, law)
    assert [row.variable for row in table.averages] == ["m", "f[0]", "f[1]", "f[2]", "f[3]"]
    row = table["m"]
    assert row.mean == pytest.approx(net.averages["m"].mean())
    assert row.mean_se == pytest.approx(net.averages["m"].std(ddof=1) / np.sqrt(2000))
    assert row.variance == pytest.approx(net.averages["m"].var(), rel=1e-9)
    assert row.limit_mean == pytest.approx(law.expectation("tanh(y[0])**2"), abs=5 * row.limit_mean_error)
    assert 0 < row.ks < 1
    assert "m  " in str(table)
    assert "limit" in table._repr_html_()
    assert [r["variable"] for r in table.to_json()["averages"]][:2] == ["m", "f[0]"]
    only = compare(net, law, "m")
    assert not only.rows
    assert [r.variable for r in only.averages] == ["m"]
    assert compare(net, law, ["y[0]"]).averages == ()
    other = P.run(64, 2000, seed=1, averages={"m": "tanh(y[0])**2", "f": "y[i]**2"})
    assert compare(net, other)["m"].ks_p > 1e-4
    assert np.isnan(compare(net, None)["m"].limit_mean)
    with pytest.raises(tp.ProgramError, match="g was not compared"):
        table["g"]


def test_a_limit_that_is_a_number_has_no_distribution_to_compare_with() -> None:
    P = tp.load("mlp", m=2)
    row = compare(P.run(128, 2000, averages={"a": "tanh(f[0])**2"}), P.limit())["a"]
    assert row.limit_variance == 0
    assert np.isnan(row.ks)
    assert abs(row.mean - row.limit_mean) < 0.02


@pytest.mark.parametrize("psi", ["log(y[0])", "sqrt(y[0])"])
def test_averages_without_an_expectation_are_refused(psi: str) -> None:
    law = tp.load("attention").limit()
    with pytest.raises(tp.ProgramError, match="has no expectation"):
        law.averages({"m": psi}, 100)
    with pytest.raises(tp.ProgramError, match="has no expectation"):
        law.expectation(psi)

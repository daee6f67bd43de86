"""Results as tables of pandas, and one comparison table for one comparison."""

import sys

import pytest

import tensorprog as tp
from tensorprog import compare
from tests.results.fakes import MixtureLaw, draw, netsor

pandas = pytest.importorskip("pandas")


def test_the_limit_has_a_row_below_each_variable():
    program = netsor(2)
    table = compare(draw(program, 500, (1.0,)), MixtureLaw(program))
    grid = table.blocks()[0]
    header, rows = grid.header, grid.rows
    assert [row[:2] for row in rows] == [("y[0]", "16"), ("", "limit"), ("y[1]", "16"), ("", "limit")]
    assert float(rows[1][header.index("variance")]) == table["y[0]"].limit_variance
    assert "limit" in table._repr_html_() and "500 networks" in str(table) and repr(table) == str(table)
    alone = compare(draw(program, 500, (1.0,)), None)
    assert alone.blocks()[0].header == ("output", "n", "variance", "kurtosis") and len(alone.blocks()[0].rows) == 2
    other = compare(draw(program, 500, (1.0,)), draw(program, 400, (1.0,), seed=1))
    assert [row[1] for row in other.blocks()[0].rows] == ["16", "others"] * 2


def test_limits_as_tables():
    law = tp.load("attention", s=3, H=1).limit()
    frame = law.to_dataframe()
    assert list(frame.index[:4]) == ["y[0]", "y[1]", "y[2]", "p[0,0,0]"] and len(frame) == 3 + 9
    shown = frame.loc["y[1]", "kurtosis"], frame.loc["y[1]", "kurtosis_error"]
    assert shown == pytest.approx(law.kurtosis("y[1]", with_error=True), rel=1e-9)
    assert frame.loc["p[0,2,2]", "variance"] == law.var("p[0,2,2]")
    assert list(law.to_dataframe(every=True).index[:4]) == ["u[0]", "u[1]", "u[2]", "x[0]"]


def test_without_the_packages_the_command_is_named(monkeypatch):
    law = tp.load("mlp").limit()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(tp.TensorprogError, match=r"need the package pandas\n.*pip install"):
        law.to_dataframe()

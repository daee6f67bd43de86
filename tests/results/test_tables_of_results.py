"""Results as tables of pandas and xarray, and one comparison table for one comparison."""

import sys

import pytest

import tensorprog as tp
from tensorprog import compare
from tests.results.fakes import MixtureLaw, draw, netsor

pandas = pytest.importorskip("pandas")
xarray = pytest.importorskip("xarray")


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


@pytest.mark.parametrize("coordinates", [1, 3])
def test_samples_as_tables(coordinates):
    drawn = tp.load("attention", s=3, H=1).run(
        16, 20, coordinates=coordinates, averages={"m": "tanh(y[0])", "f": "y[i]**2"}
    )
    frame = drawn.to_dataframe()
    assert len(frame) == 20 * coordinates and set(frame) >= {"y[0]", "y[1]", "y[2]", "m", "f[2]"}
    wide = frame["y[1]"].to_numpy().reshape(20, coordinates)
    assert (wide == drawn["y[1]"].reshape(20, coordinates)).all()
    assert (frame["f[2]"].to_numpy().reshape(20, coordinates) == drawn.averages["f"][:, 2][:, None]).all()
    score = frame["p[0,1,2]"].to_numpy().reshape(20, coordinates)
    assert (score == drawn["p"][:, 0, 1, 2][:, None]).all()


def test_limits_as_tables():
    law = tp.load("attention", s=3, H=1).limit()
    frame = law.to_dataframe()
    assert list(frame.index[:4]) == ["y[0]", "y[1]", "y[2]", "p[0,0,0]"] and len(frame) == 3 + 9
    shown = frame.loc["y[1]", "kurtosis"], frame.loc["y[1]", "kurtosis_error"]
    assert shown == pytest.approx(law.kurtosis("y[1]", with_error=True), rel=1e-9)
    assert frame.loc["p[0,2,2]", "variance"] == law.var("p[0,2,2]")
    assert list(law.to_dataframe(every=True).index[:4]) == ["u[0]", "u[1]", "u[2]", "x[0]"]


def test_without_the_packages_the_command_is_named(monkeypatch):
    drawn = draw(netsor(1), 5, (1.0,))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(tp.TensorprogError, match=r"need the package pandas\n.*pip install"):
        drawn.to_dataframe()

"""`tp.sweep`: labelled numbers, streams of cells, going on after a stop, the same numbers from any workers."""

from __future__ import annotations

import csv
import json
import math
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import Program
from tensorprog.jobs import sweeps
from tensorprog.jobs.cli.frame import cluster as cluster_of
from tensorprog.jobs.sweeps import cells
from tensorprog.jobs.sweeps.design import NUMBERS, design
from tensorprog.jobs.sweeps.results import mean_of, netcdf
from tensorprog.language.errors import how_to_install
from tensorprog.results.comparison import Row
from tensorprog.show import plots
from tests.reading import loads

xarray = pytest.importorskip("xarray")

SMALL = """\
program: small
constants: {s: 2, c: 1, d: "2*c"}
indices: {i: s}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {V: c, W: d}
body:
  - u[i] = MatMul(V, h[i])
  - x[i] = Nonlin(tanh(u[i]))
  - y[i] = MatMul(W, x[i])
outputs: [y]
"""
SIZES: dict[str, Any] = {"repeats": 2, "samples": 200}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program file, in a folder of its own; no pictures are drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plots, "save", lambda path, *_, **__: path.touch())
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Width and seed of each cell that is drawn."""
    seen, drawing = [], cells.draw

    def draw(job: Any, *args: Any, **keywords: Any) -> Any:
        seen.append((job.plan.width, job.seed))
        return drawing(job, *args, **keywords)

    monkeypatch.setattr(cells, "draw", draw)
    return seen


@pytest.mark.turns(3)
def test_numbers_have_labelled_axes(small: Path) -> None:
    found = tp.sweep(small, [4, 8, 16], over={"c": [1, 0.5], "s": [2, 3]}, variables=["y[0]", "y[1]", "u[1]"], **SIZES)
    assert dict(found.sizes) == {"c": 2, "s": 2, "width": 3, "repeat": 2, "variable": 3}
    assert found["ks"].dims == ("c", "s", "width", "repeat", "variable")
    assert found["limit_variance"].dims == ("c", "s", "variable")
    assert found.c.values.tolist() == [1.0, 0.5]
    assert set(found.data_vars) == {name for name in Row.__dataclass_fields__ if name not in ("variable", "kl_method")}
    for name, array in found.data_vars.items():
        assert {"long_name", "units"} <= set(array.attrs), name
    assert found["kl"].units == "nat"
    assert np.isfinite(found["ks"]).all()
    assert np.isfinite(found["limit_kurtosis"]).all()
    assert np.isfinite(found["kl_precise"].sel(variable=["y[0]", "y[1]"])).all()
    # d is twice c, so the variance of y goes with both
    expected = [[tp.load(small, c=c, s=s).limit().var("y[1]") for s in (2, 3)] for c in (1, 0.5)]
    assert np.allclose(found["limit_variance"].sel(variable="y[1]"), expected, rtol=1e-12)


def test_values_may_be_those_of_numpy(small: Path) -> None:
    one = tp.sweep(small, 4, over={"c": 2, "s": [3]}, variables="y[2]", **SIZES)
    two = tp.sweep(small, np.array([4]), over={"c": np.array([2]), "s": np.int64(3)}, variables=["y[2]"], **SIZES)
    assert two.identical(one)
    assert type(one.c.values[0]) is np.int32


def test_a_cell_is_a_run_compared_with_its_limit(small: Path) -> None:
    found = tp.sweep(small, [4, 8], over={"c": [2]}, variables="y[1]", **SIZES)
    wanted = design(small, [8], {"c": [2]}, 2, 200, variables="y[1]")
    program = tp.load(small, c=2)
    for cell in wanted.cells():
        net = program.run(8, 200, seed=cells.stream(0, cell), conditional=True)
        row = tp.compare(net, program.limit(), ["y[1]"])["y[1]"]
        chosen = found.sel(c=2, width=8, repeat=cell.repeat, variable="y[1]")
        for name in found.data_vars:
            assert np.array_equal(chosen[name], getattr(row, name), equal_nan=True), name


def test_streams_depend_on_the_cell_alone(small: Path) -> None:
    one = design(small, [4, 8], {"c": [1, 2]}, 3, 200).cells()
    streams = {cell: cells.stream(0, cell) for cell in one}
    assert len(set(streams.values())) == len(one) == 12
    named = {cell.name: stream for cell, stream in streams.items()}
    two, five = design(tp.load(small), [8], {"c": [2.0, 5]}, 1, 900).cells()
    assert cells.stream(0, two) == named["c=2, n = 8, repeat 0"]
    assert cells.stream(0, five) not in streams.values()
    assert not set(streams.values()) & {cells.stream(1, cell) for cell in one}
    code = (
        "from tensorprog.jobs.sweeps import cells, design\n"
        "for cell in design('small.yaml', [4, 8], {'c': [1, 2]}, 3, 200).cells():\n"
        "    print(cells.stream(0, cell))"
    )
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=small.parent)
    assert list(map(int, again.stdout.split())) == list(streams.values())


@pytest.mark.turns(3)
def test_a_cell_does_not_depend_on_what_else_is_swept(small: Path) -> None:
    few = tp.sweep(small, [8], over={"c": [2]}, repeats=1, samples=200)
    over = {"c": [3, 2], "s": [3, 2]}
    many = tp.sweep(small, [16, 8, 4], over=over, repeats=2, samples=200, variables=["y[1]", "y[0]"])
    part = many.sel(c=[2], s=2, width=[8], repeat=[0], variable=["y[0]"])
    for name in few.data_vars:
        assert np.array_equal(few[name], part[name], equal_nan=True), name


def test_the_folder_holds_the_result(small: Path) -> None:
    found = tp.sweep("small.yaml", [8, 4], over={"c": [1, 2]}, out="a", **SIZES)
    with xarray.open_dataset("a/sweep.nc", engine="scipy") as read:
        assert read.load().identical(found)
    assert Path("a/sweep.nc").read_bytes() == netcdf(found)
    assert found.attrs["command"] == (
        "tp sweep small.yaml --width 8,4 --over c=1,2 --repeats 2 --samples 200 --seed 0 --variable 'y[0]'"
    )
    assert loads(found.attrs["program"]) == tp.load(small).netsor
    assert "no_limit" not in found.attrs
    with open("a/sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        place = {name: int(row[name]) for name in ("c", "width", "repeat")}
        chosen = found.sel(place | {"variable": row["variable"]})
        assert float(row["kl"]) == float(chosen["kl"])
        assert row["z_mean"] == "" if np.isnan(chosen["z_mean"]) else float(row["z_mean"]) == chosen["z_mean"]
    names = {path.name for path in Path("a").iterdir()}
    assert names == {"cells", "lock", "sweep.nc", "sweep.csv", "convergence-c=1.png", "convergence-c=2.png"}


def test_pictures_of_other_constants_go(small: Path) -> None:
    tp.sweep(small, [2, 4], over={"c": [1, 2]}, out="a", **SIZES)
    Path("a/convergence-of-mine.png").touch()
    tp.sweep(small, [2, 4], over={"s": [1]}, out="a", **SIZES)
    assert {path.name for path in Path("a").glob("*.png")} == {"convergence-s=1.png", "convergence-of-mine.png"}


@pytest.mark.turns(3)
def test_finished_cells_are_not_drawn_again(small: Path, drawn: list[Any]) -> None:
    one = tp.sweep(small, [8, 4], out="a", **SIZES)
    assert len(drawn) == 4
    assert drawn[0][0] == 8  # the dearest first
    told: list[tuple[int, int]] = []
    assert tp.sweep(small, [8, 4], out="a", progress=lambda *n: told.append(n), **SIZES).identical(one)
    assert len(drawn) == 4
    assert told == [(4, 4)]
    more = tp.sweep(small, [4, 8, 16], out="a", over={"c": [1, 2]}, repeats=3, samples=200)
    assert len(drawn) == 4 + 18 - 4
    for name in one.data_vars:
        assert np.array_equal(
            more[name].sel(c=1, width=[8, 4], repeat=[0, 1]).transpose(*one[name].dims)
            if "width" in one[name].dims
            else more[name].sel(c=1),
            one[name],
            equal_nan=True,
        ), name


def test_other_numbers_share_no_cells(small: Path, drawn: list[Any]) -> None:
    for change in ({}, {"seed": 1}, {"samples": 201}, {"variables": "y[1]"}):
        tp.sweep(small, [4], out="a", **(SIZES | {"repeats": 1} | change))
    small.write_text(SMALL.replace("tanh", "sin"))
    tp.sweep(small, [4], out="a", **(SIZES | {"repeats": 1}))
    assert len(drawn) == len(list(Path("a/cells").iterdir())) == 5


def test_a_number_is_one_value_however_it_is_written(small: Path, drawn: list[Any]) -> None:
    one = tp.sweep(small, [4], over={"c": [2, 0.5]}, out="a", **SIZES)
    for values in ([2.0, "0.50"], ["2.0", 0.5], [2, np.float64(0.5)], ["2e0", "5e-1"], [2, 2.0, 0.5]):
        assert tp.sweep(small, [4], over={"c": values}, out="a", **SIZES).identical(one)
    assert len(drawn) == 4
    large = design(small, [4], {"c": [2.0**60]}, 1, 200)
    assert large.settings[0].values == (("c", 2.0**60),)


@pytest.mark.turns(3)
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"identity": 3}', None])
def test_files_that_are_not_whole_cells_are_drawn_again(small: Path, drawn: list[Any], text: str | None) -> None:
    one = tp.sweep(small, [4], out="a", **SIZES)
    path = next(Path("a/cells").iterdir())
    path.write_text(path.read_text()[:-30] if text is None else text)
    assert tp.sweep(small, [4], out="a", **SIZES).identical(one)
    assert len(drawn) == 3


def test_a_cell_of_something_else_is_not_taken(small: Path, drawn: list[Any]) -> None:
    one = tp.sweep(small, [4], out="a", **SIZES)
    path = next(Path("a/cells").iterdir())
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found | {"identity": found["identity"] | {"seed": 5}}))
    assert tp.sweep(small, [4], out="a", **SIZES).identical(one)
    assert len(drawn) == 3


def test_means_over_repeats_have_the_errors_of_means() -> None:
    repeats = [
        dict.fromkeys(NUMBERS, 1.0)
        | {
            "samples": 100,
            "effective": 90.0,
            "ks": ks,
            "ks_se": 0.5,
            "ks_floor": floor,
            "limit_variance": 7.0,
            "kl": None,
            "kl_se": None,
        }
        for ks, floor in ((1.0, 0.1), (2.0, 0.2), (6.0, 0.6))
    ]
    numbers = {name: np.array([repeat[name] for repeat in repeats], dtype=np.float64) for name in NUMBERS}
    row = mean_of(numbers, "y[0]")
    assert (row.variable, row.samples, row.effective) == ("y[0]", 300, 270.0)
    assert row.ks == 3.0
    assert row.ks_se == pytest.approx(math.sqrt((4 + 1 + 9) / 2 / 3))  # n - 1 below, then the error of the mean
    assert row.ks_floor == pytest.approx(0.3)
    assert row.limit_variance == 7.0
    assert math.isnan(row.kl)
    assert math.isnan(row.kl_se)
    assert math.isnan(row.ks_p)  # a mean of p-values says nothing
    one = {name: values[:1] for name, values in numbers.items()}
    assert mean_of(one, "y[0]").ks_se == 0.5  # of one repeat: the error stated


@pytest.mark.turns(3)
def test_the_numbers_do_not_depend_on_the_workers(small: Path) -> None:
    sizes: dict[str, Any] = {"width": [4, 8], "over": {"c": [1, 2]}, **SIZES}
    one = netcdf(tp.sweep(small, **sizes))
    with ThreadPoolExecutor(3) as threads:
        assert netcdf(tp.sweep(small, executor=threads, **sizes)) == one
    assert netcdf(tp.sweep(small, workers=2, **sizes)) == one
    assert netcdf(tp.sweep(small, workers=1, **sizes)) == one


@pytest.mark.turns(6)
def test_a_cluster_gives_the_same_file(small: Path) -> None:
    distributed = pytest.importorskip("distributed")
    sizes: dict[str, Any] = {"width": [4, 8], "over": {"c": [1, 2]}, **SIZES}
    one = netcdf(tp.sweep(small, **sizes))
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        assert netcdf(tp.sweep(small, executor=client.get_executor(), **sizes)) == one
        with cluster_of(cluster.scheduler_address) as executor:
            assert netcdf(tp.sweep(small, executor=executor, **sizes)) == one


def test_constants_without_a_limit_have_finite_numbers(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Program.limit

    def some(self: Program, **keywords: Any) -> Any:
        if self.netsor.scalars["c"] == 2:
            raise tp.NotCompiledError("this is not compiled")
        return limit(self, **keywords)

    with monkeypatch.context() as patched:
        patched.setattr(Program, "limit", some)
        found = tp.sweep(small, [4, 8], over={"c": [1, 2]}, out="a", **SIZES)
    assert json.loads(found.attrs["no_limit"]) == {"c=2": "this is not compiled"}
    assert np.isfinite(found["variance"]).all()
    for name in ("ks", "kl", "limit_variance"):
        assert np.isfinite(found[name].sel(c=1)).all()
        assert np.isnan(found[name].sel(c=2)).all()
    assert json.loads(tp.sweep(small, [4, 8], over={"c": [1, 2]}, out="a", **SIZES).attrs["no_limit"])
    with pytest.raises(tp.ProgramError, match="no rate"):
        tp.rate(found, "ks", c=2)


def test_a_program_outside_the_theory_is_swept_all_the_same() -> None:
    found = tp.sweep("attention_tied", [4, 8], **SIZES)
    assert json.loads(found.attrs["no_limit"]) == {"": "outside the theory"}
    assert np.isnan(found["limit_kurtosis"]).all()
    assert np.isfinite(found["kurtosis"]).all()


def test_programs_declared_in_python(small: Path) -> None:
    tp.atom("softer", lambda x: x / (1 + np.abs(x)), range=(-1, 1), growth=0, modulus=0, lipschitz=1)
    text = SMALL.replace("tanh", "softer")
    small.write_text(text)
    program = tp.load(small)
    with ThreadPoolExecutor(2) as threads:
        one = tp.sweep(program, [4], over={"c": [1, 2]}, executor=threads, **SIZES)
    assert one.identical(tp.sweep(program, [4], over={"c": [1, 2]}, **SIZES))
    assert one.attrs["command"].startswith("tp sweep FILE --width 4")


def test_the_command_makes_the_sweep_anew(small: Path) -> None:
    def command(program: Any, **over: Any) -> str:
        found = design(program, [4], over, 1, 200).command
        assert "--width 4" in found
        return found.replace(" --width 4", "").removesuffix(" --repeats 1 --samples 200 --seed 0 --variable 'y[0]'")

    assert command("attention", H=[1, 2]) == "tp sweep attention --over H=1,2"
    assert command(tp.load("attention"), H=[1, 2]) == "tp sweep attention --over H=1,2"
    changed = tp.load("attention", s=2, C=0.5, H=7)
    assert command(changed) == "tp sweep attention --set s=2 --set H=7 --set C=0.5"
    assert command(changed, H=[1, 2]) == "tp sweep attention --set s=2 --set C=0.5 --over H=1,2"
    # others: what is saved under the name FILE is read as the same program
    other = tp.load("attention")
    other.outputs("x")
    for program in (tp.load(small, c=3), other):
        text = design(program, [4], {}, 1, 200, variables="x[0]").command
        assert text.startswith("tp sweep FILE --width 4 ")
        assert text.endswith("# FILE: the attribute program, saved")
    found = tp.sweep(tp.load(small, c=3), [4], over={"s": [2, 3]}, **SIZES)
    Path("FILE").write_text(found.attrs["program"])
    again = tp.sweep("FILE", [4], over={"s": [2, 3]}, **SIZES)
    assert all(np.array_equal(again[name], found[name], equal_nan=True) for name in found.data_vars)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"width": []}, ["width is empty", "nothing to sweep"]),
        ({"width": [0, 4.5]}, ["not 0", "not 4.5"]),
        ({"width": [4], "over": {"c": []}}, ["no values of c"]),
        ({"width": [4], "over": {"z": [1]}}, ["z is not a constant of small"]),
        ({"width": [4], "over": {"ss": [1], "c": []}}, ["did you mean s?", "no values of c"]),
        ({"width": [4], "over": {"s": [0, 2], "c": ["two"]}}, ["with s=0, c=two", "with s=2, c=two"]),
        ({"width": [4], "over": {"c": [float("nan")]}}, ["with c=nan"]),
        ({"width": [4], "repeats": 0, "samples": 1, "seed": -1}, ["repeats", "samples", "seed"]),
        ({"width": [4], "variables": ["q[0]", "y[7]"]}, ["q[0] is not a variable", "y[7] is not a member"]),
        ({"width": [4], "variables": ["y[1]"], "over": {"s": [1, 2]}}, ["y[1] is not a member"]),
        ({"width": [4], "variables": []}, ["no variables"]),
        ({"width": [4], "workers": 0}, ["workers"]),
        ({"width": [4], "workers": 2, "executor": "any"}, ["workers and executor"]),
        ({"width": [4], "executor": "any"}, ["executor must be"]),
    ],
    ids=str,
)
def test_mistakes_are_told_together_before_any_work(
    small: Path, drawn: list[Any], arguments: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(tp.ProgramError) as caught:
        tp.sweep(small, out="a", **arguments)
    for part in said:
        assert part in str(caught.value)
    assert not drawn
    assert not Path("a").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"over": ["c"]}, "over must give names of constants their values, not ['c']"),
        ({"over": {3: [1]}}, "over must give names"),
        ({"variables": [3]}, "a variable is named by text, such as 'y[0]', not 3"),
        ({"variables": 3}, "a variable is named by text"),
        ({"variables": "y"}, "y is a family: name a member, such as y[0]"),
        ({"over": {"s": [1, 2], "c": [1]}, "variables": "y[1]"}, "with s=1, c=1: y[1] is not a member of y"),
        ({"out": 3}, "out must be the path of a folder, not 3"),
        ({"out": ""}, "out must be the path of a folder, not ''"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_in_words(small: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(tp.ProgramError) as caught:
        tp.sweep(small, 4, **SIZES, **arguments)
    assert str(caught.value).startswith(said)


def test_constants_with_names_of_numbers_are_refused(small: Path) -> None:
    small.write_text(SMALL.replace("c: 1", "width: 1").replace("2*c", "2*width").replace("V: c", "V: width"))
    with pytest.raises(tp.ProgramError, match="the constant width cannot be swept"):
        tp.sweep(small, [4], over={"width": [1]})


def test_two_sweeps_do_not_write_to_one_folder(small: Path) -> None:
    def progress(done: int, _: int) -> None:
        if done:
            tp.sweep(small, [4], out="a", **SIZES)

    with pytest.raises(tp.ProgramError, match="another run is writing"):
        tp.sweep(small, [4], out="a", progress=progress, **SIZES)
    tp.sweep(small, [4], out="a", **SIZES)


def test_a_folder_that_cannot_be(small: Path) -> None:
    Path("file").write_text("x")
    with pytest.raises(tp.ProgramError, match="cannot be written"):
        tp.sweep(small, [4], out="file", **SIZES)


def test_without_xarray(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(tp.TensorprogError, match=re.escape(how_to_install("sweep"))):
        tp.sweep(small, [4], **SIZES)


@pytest.mark.turns(3)
def test_rates_of_a_sweep(small: Path) -> None:
    found = tp.sweep(small, [2, 8], over={"c": [1, 2]}, repeats=3, samples=20_000, variables=["y[0]", "y[1]"])
    rate = tp.rate(found, "kl_precise", "y[0]", c=1)
    assert rate.used == (2, 8)
    assert -3 < rate.exponent < -1
    assert rate.exponent_bias == 0
    for name in ("kl", "ks", "w1", "energy"):
        with pytest.raises(tp.ProgramError, match=f"of at least {400 if name == 'kl' else 20} noise floors"):
            tp.rate(found, name, "y[0]", c=1)
    for wrong, said in (
        ({"distance": "kll"}, "did you mean kl"),
        ({}, "several values of"),
        ({"H": 2}, "was not swept"),
        ({"variable": "y[0]", "c": 3}, "has no c = 3"),
    ):
        with pytest.raises(tp.ProgramError, match=said):
            tp.rate(found, **({"distance": "kl"} | wrong))
    with pytest.raises(tp.ProgramError, match="takes the result of a sweep"):
        tp.rate({}, "kl")


@pytest.mark.parametrize("place", ["draw", "numbers"])
@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor])
def test_a_cell_that_fails_is_named(
    small: Path, monkeypatch: pytest.MonkeyPatch, place: str, executor: type[ThreadPoolExecutor] | None
) -> None:
    module = {"draw": cells, "numbers": sweeps}[place]
    whole = getattr(module, place)

    def failing(*args: Any, **keywords: Any) -> Any:
        width = args[0].plan.width if place == "draw" else args[1].width
        if width == 8:
            raise tp.MemoryLimitError("there is no room")
        return whole(*args, **keywords)

    monkeypatch.setattr(module, place, failing)
    with pytest.raises(tp.MemoryLimitError, match="there is no room") as caught:
        tp.sweep(small, [4, 8, 2], over={"c": [2]}, repeats=1, samples=200, executor=executor and executor(1), out="a")
    assert caught.value.__notes__ == ["in the cell c=2, n = 8, repeat 0 of the sweep"]
    copied = pickle.loads(pickle.dumps(caught.value))
    assert copied.__notes__ == caught.value.__notes__


def test_results_that_memory_does_not_hold(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tp.sweep(small, [4], **SIZES)
    run, stored = Program.run, []

    def tight(self: Program, *args: Any, store: Any = None, **keywords: Any) -> Any:
        stored.append(store)
        if store is None:
            raise tp.MemoryLimitError("the results would take more than there is")
        return run(self, *args, store=store, **keywords)

    monkeypatch.setattr(Program, "run", tight)
    assert tp.sweep(small, [4], **SIZES).identical(one)
    assert len(stored) == 4
    assert not any(Path(folder).exists() for folder in stored if folder is not None)

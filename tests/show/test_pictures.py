"""Plots return axes and say what is in them; tables fit their screens; files appear whole or not at all."""

import io
import json
import re
import sys
from dataclasses import replace

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from tensorprog import ProgramError, compare, load
from tensorprog.blocks import Grid
from tensorprog.jobs.run import SamplesFile
from tensorprog.language.extras import how_to_install
from tensorprog.language.files import json_text, write_text
from tensorprog.show import plots
from tensorprog.show.progress import Progress
from tensorprog.show.terminal import show, stacked
from tests.results.fakes import MixtureLaw, draw, netsor


@pytest.fixture(scope="module")
def study():
    program = netsor(2)
    law = MixtureLaw(program, (0.5, 2.0))
    runs = [draw(program, 4000, (0.5 * k, 2.0), seed=n, width=n) for n, k in ((16, 0.2), (64, 0.8))]
    return runs, law, [compare(run, law) for run in runs]


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_density_has_both_panels_with_every_curve(study):
    runs, law, _ = study
    linear, log = plots.density(runs, law, "y[1]")
    assert (linear.get_yscale(), log.get_yscale()) == ("linear", "log")
    assert log.get_xlabel() == "y[1]"
    texts = [text.get_text() for text in linear.figure.legends[0].get_texts()]
    assert texts == ["n = 16", "n = 64", "limit", "Gaussian, equal variance"]
    limit = next(line for line in log.lines if line.get_label() == "limit")
    x, y = limit.get_data()
    assert np.allclose(y, law.density("y[1]", x), rtol=1e-5)
    assert y.min() < 1e-3 * min(plots.tail_bins(runs[1]["y"][:, 1])[1]) * 100


def test_density_draws_into_given_axes_and_without_a_law(study):
    runs, law, _ = study
    _, ax = plt.subplots()
    assert plots.density(runs[0], law, ax=ax, scale="log") is ax
    both = plots.density(runs)
    assert len(both) == 2
    with pytest.raises(ProgramError, match="2 axes"):
        plots.density(runs, law, ax=ax)
    with pytest.raises(ProgramError, match="scale"):
        plots.density(runs, law, scale="cubic")
    with pytest.raises(ProgramError, match="nothing"):
        plots.density([])


def test_convergence(study):
    _, _, comparisons = study
    axes = plots.convergence(comparisons)
    assert [ax.get_xscale() for ax in axes] == ["log"] * 4
    assert [ax.get_yscale() for ax in axes] == ["log"] * 4
    assert [ax.get_ylabel().partition(" ")[0] for ax in axes] == ["KL(finite", "KS", "Wasserstein", "|kurtosis"]
    assert not any(ax.get_legend() for ax in axes)
    (legend,) = axes[0].figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["y[0]", "other outputs", "noise floor"]
    runs, _, _ = study
    assert len(plots.convergence([compare(run, None) for run in runs])) == 2
    assert len(plots.convergence(comparisons[:1])) == 4
    (both,) = plots.convergence(comparisons, panels=["distances"])
    assert both.get_ylabel().startswith("KS and Wasserstein")
    with pytest.raises(ProgramError):
        plots.convergence([])


def test_panels_of_convergence_can_be_chosen(study):
    _, ax = plt.subplots()
    (panel,) = plots.convergence(study[2], ax=ax, panels=["kurtosis"])
    assert panel is ax
    assert panel.get_ylabel().startswith("kurtosis of y[0]")
    with pytest.raises(ProgramError, match="panel 'kul'"):
        plots.convergence(study[2], panels=["kul"])
    with pytest.raises(ProgramError, match="panel 'kl'"):
        plots.convergence([compare(study[0][0], None)], panels=["kl"])


def test_the_precise_divergence_is_drawn_below_the_floor(study):
    rows = [
        [replace(row, kl_precise=1e-6 / k, kl_precise_se=1e-8) for row in c.rows] for k, c in enumerate(study[2], 1)
    ]
    precise = [replace(c, rows=tuple(found)) for c, found in zip(study[2], rows, strict=True)]
    (panel,) = plots.convergence(precise, panels=["kl"])
    labels = panel.get_legend_handles_labels()[1]
    assert "precise, y[0]" in labels
    assert labels.count("noise floor") == 1
    assert panel.get_ylim()[0] < 5e-7
    assert "precise, y[0]" not in plots.convergence(study[2], panels=["kl"])[0].get_legend_handles_labels()[1]


def test_covariances_have_numbers_and_a_legend():
    law = load("mlp").limit()
    _, ax = plt.subplots()
    assert plots.covariance(law, "f", ax) is ax
    matrix = np.asarray(law.cov("f"))
    assert [text.get_text() for text in ax.texts[:2]] == [f"{matrix[0, 0]:.3g}", f"{matrix[0, 1]:.3g}"]
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"f[{k}]" for k in range(4)]
    assert ax.images[0].colorbar.ax.get_ylabel() == "covariance of f in the limit"
    large = plots.covariance(load("mlp_bias").limit(), "f")
    assert not large.texts
    with pytest.raises(ProgramError, match="not a family"):
        plots.covariance(law, "W1")
    with pytest.raises(ProgramError, match="members"):
        plots.covariance(load("attention", s=64).limit(), "p")


def test_a_panel_becomes_svg_with_text_and_no_ground(study):
    runs, law, _ = study
    text = plots.svg(lambda ax: plots.density(runs, law, ax=ax, scale="log"))
    assert text == plots.svg(lambda ax: plots.density(runs, law, ax=ax, scale="log"))
    assert ">y[0]</text>" in text
    assert "fill: #ffffff" not in text
    assert "<metadata" not in text


def test_legends_stand_above_single_panels(study):
    runs, law, _ = study
    ax = plots.density(runs, law, scale="linear")
    ax.figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert legend.y0 >= ax.get_window_extent().y1 - 1


def ticks(axis):
    axis.axes.figure.canvas.draw()
    return [text.get_text() for text in axis.get_ticklabels()]


def test_powers_of_ten_stand_in_the_names_of_axes():
    program = netsor(1)
    law = MixtureLaw(program, (1e18,))
    linear, log = plots.density(draw(program, 1000, (1e18,)), law)
    assert linear.get_xlabel() == "y[0] / 10\u2079"
    assert linear.get_ylabel() == "probability density / 10\u207b\u00b9\u2070"
    assert log.get_ylabel() == "probability density"
    assert "2" in ticks(linear.xaxis) and "1" in ticks(linear.yaxis)
    assert not linear.yaxis.get_offset_text().get_text() and not linear.xaxis.get_offset_text().get_text()
    (panel, _) = plots.convergence([compare(draw(program, 1000, (1e18,), width=8), None)])
    assert panel.get_ylabel().endswith("/ 10\u00b9\u2078")


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (0.003, 0.03, ["5\u00d710\u207b\u00b3", "10\u207b\u00b2", "2\u00d710\u207b\u00b2"]),
        (0.3, 30, ["10\u2070", "10\u00b9"]),
    ],
)
def test_logarithmic_axes_name_powers_of_ten_and_more_where_there_are_few(low, high, names):
    _, ax = plt.subplots()
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    plots.name_axis(ax.yaxis, "size")
    seen = zip(ax.get_yticks(), ticks(ax.yaxis), strict=True)
    assert [name for place, name in seen if low <= place <= high] == names


def test_panels_show_most_of_the_draws_however_heavy_their_tails():
    program = netsor(1)
    run = draw(program, 5000, (1.0,), width=8)
    run.arrays["y"] = np.sign(run["y"]) * np.exp(np.abs(8 * run["y"]))
    assert run["y"].std() > 1e4 * np.abs(np.median(np.abs(run["y"])))
    linear, log = plots.density(run)
    for panel in (linear, log):
        low, high = panel.get_xlim()
        assert ((low < run["y"]) & (run["y"] < high)).mean() > 0.5
        assert high < 0.01 * run["y"].std()
    places, _, _ = plots.tail_bins(run["y"])
    assert len(places) > 4


def test_logarithmic_panels_end_where_densities_do():
    program = netsor(1)
    _, log = plots.density(draw(program, 3000, (1.0,)), MixtureLaw(program, (1.0,)))
    assert 0.4 < log.get_ylim()[1] < 2


def test_constant_outputs_can_be_drawn(tmp_path):
    program = netsor(1)
    run, law = draw(program, 100, (0.0,)), MixtureLaw(program, (0.0,))
    plots.save(tmp_path / "d.png", lambda axes: plots.density(run, law, ax=axes), 2)
    plots.save(tmp_path / "c.png", lambda axes: plots.convergence([compare(run, law)], ax=axes), 4)
    assert (tmp_path / "d.png").stat().st_size > 1000


def test_tail_bins_hold_ten_draws_and_integrate_to_what_they_cover():
    x = np.random.default_rng(0).standard_t(4, size=20_000)
    places, heights, errors = plots.tail_bins(x)
    assert (np.diff(places) > 0).all()
    assert (heights / errors >= np.sqrt(10) - 1e-9).all()
    from scipy.stats import t

    assert np.abs((heights - t(4).pdf(places)) / errors)[np.abs(places) < 3].max() < 5


def test_without_matplotlib_there_is_one_clear_message(monkeypatch, study, tmp_path):
    for name in ("matplotlib", "matplotlib.pyplot", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    runs, law, _ = study
    with pytest.raises(plots.PlotsUnavailableError, match=re.escape(how_to_install("plot"))):
        plots.density(runs, law)
    with pytest.raises(plots.PlotsUnavailableError):
        plots.save(tmp_path / "a.png", lambda axes: None, 1)


def test_a_picture_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def fail(axes):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        plots.save(path, fail, 1)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_files_are_replaced_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    write_text(path, "one")

    def full(self, target):
        raise OSError(28, "No space left")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(ProgramError, match="no space left"):
        write_text(path, "two")
    assert path.read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_samples_file_keeps_whole_arrays_only(tmp_path, monkeypatch):
    path = tmp_path / "samples.npz"
    real = np.lib.format.write_array

    def half(stream, array, **options):
        if array.size == 7:
            stream.write(b"half")
            raise KeyboardInterrupt
        real(stream, array, **options)

    monkeypatch.setattr(np.lib.format, "write_array", half)

    def fill():
        with SamplesFile(path, {"seed": 3}) as store:
            store.add("a", np.arange(5.0))
            store.add("b", np.zeros(7))

    with pytest.raises(KeyboardInterrupt):
        fill()
    with np.load(path, allow_pickle=False) as data:
        assert sorted(data) == ["a", "meta.json"]
        assert (data["a"] == np.arange(5)).all()
        assert json.loads(str(data["meta.json"])) == {"seed": 3}
    with SamplesFile(tmp_path / "none.npz", {}):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["samples.npz"]


def test_json_has_no_nan():
    values = {"a": float("nan"), "b": np.array([1.0, np.inf]), "c": [np.float32(0.5), np.int64(3)], "d": (None, "ü")}
    text = json_text(values)
    assert json.loads(text) == {"a": None, "b": [1.0, None], "c": [0.5, 3], "d": [None, "ü"]}


class Screen(io.StringIO):
    def isatty(self):
        return True


TABLE = Grid("title [bold]", ("name", "value"), (("first", "1.0(2)"), ("second", "20.0(1)")), "a note", marked=(1,))


def shown(monkeypatch, columns, stream=None, **env):
    stream = stream or Screen()
    for key, value in {"COLUMNS": str(columns), "TERM": "xterm", **env}.items():
        monkeypatch.setenv(key, value)
    show([TABLE], lambda text: print(text, file=stream), stream)
    return stream.getvalue()


def test_tables_fit_their_screen(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    wide = shown(monkeypatch, 80)
    assert "title [bold]" in wide
    assert "\x1b[" in wide
    narrow = shown(monkeypatch, 12)
    assert max(map(len, narrow.splitlines())) <= 17
    assert "second" in narrow
    pipe = shown(monkeypatch, 80, io.StringIO())
    assert "\x1b" not in pipe
    assert "first    1.0(2)" in pipe
    assert "name" in stacked(TABLE)


def test_no_color_is_respected(monkeypatch):
    text = shown(monkeypatch, 80, NO_COLOR="1")
    assert "\x1b[3" not in text


def test_progress_is_silent_in_a_pipe_and_visible_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    pipe, screen, quiet = io.StringIO(), Screen(), Screen()
    for stream, notes in ((pipe, True), (screen, True), (quiet, False)):
        with Progress(notes=notes, stream=stream).shown() as bar:
            bar.stage("n = 16")
            bar.progress(5, 10)
            bar.note("estimate: 3 s [for sure]")
    assert pipe.getvalue() == "estimate: 3 s [for sure]\n"
    assert "n = 16" in screen.getvalue()
    assert "estimate: 3 s [for sure]" in screen.getvalue()
    assert quiet.getvalue() == ""

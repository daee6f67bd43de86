"""The figures of the paper show what they say: limits against other code, estimates against their definitions."""

import csv
import json
import math
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import entropy, gaussian_kde

import tensorprog as tp
from examples.paper import FIGURES, make
from examples.paper.convergence import Convergence
from examples.paper.densities import Densities
from examples.paper.experiment import Case, Listener, Settings, Together, chosen, seed_of
from examples.paper.scores import Scores
from tensorprog.jobs.cli import main
from tensorprog.results.distances import kernel_kl

SMALL = Settings(samples=2000, seed=3, repeats=3)
ONE_HEAD = (("H", 1),)


def density_by_quadrature(y, nodes):
    """E of the N(0, sum softmax(p)^2) density at y over p ~ N(0, I_4): one head, inputs of unit variance."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    p = np.stack(np.meshgrid(x, x, x, x), axis=-1).reshape(-1, 4)
    weight = np.prod(np.stack(np.meshgrid(w, w, w, w), axis=-1).reshape(-1, 4), axis=1) / (2 * math.pi) ** 2
    soft = np.exp(p - p.max(axis=1, keepdims=True))
    variance = ((soft / soft.sum(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return np.array([weight @ (np.exp(-0.5 * v * v / variance) / np.sqrt(2 * math.pi * variance)) for v in y])


@pytest.fixture(scope="module")
def densities():
    part = Densities((Case("attention", 16, ONE_HEAD), Case("attention", 64, ONE_HEAD)), histogram=True)
    return part, part.data(SMALL, Listener())


@pytest.fixture(scope="module")
def scores():
    part = Scores(Case("attention", 16, ONE_HEAD))
    return part, part.data(SMALL, Listener())


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_limits_are_those_of_other_code(densities):
    table = chosen(densities[1].tables[""], {"n": 16, "H": 1})
    some = np.linspace(0, 499, 21).astype(int)
    rough, fine = (density_by_quadrature(table["y"][some], nodes) for nodes in (14, 18))
    error = np.abs(fine - rough) + table["limit_error"][some] + 1e-9
    assert np.all(np.abs(table["limit"][some] - fine) < error)
    assert np.all(table["limit_error"] < 1e-4)
    # the variance of the Gaussian for infinitely many heads is that of one
    variance = np.trapezoid(table["y"] ** 2 * table["gaussian"], table["y"])
    assert variance == pytest.approx(np.trapezoid(table["y"] ** 2 * table["limit"], table["y"]), rel=1e-5)


def test_estimates_are_those_of_the_networks(densities):
    part, data = densities
    for case in part.cases:
        y = case.networks(SMALL, Listener())["y"][:, 0]
        own = chosen(data.tables[""], case.key)
        direct = gaussian_kde(y)(own["y"])
        assert np.abs(own["kernel"] - direct).max() < 2e-3 * direct.max()
        bars = chosen(data.tables["histogram"], case.key)
        assert np.sum(bars["density"] * (bars["right"] - bars["left"])) == pytest.approx(1, abs=1e-12)
        assert np.allclose(bars["left"], -bars["right"][::-1])
        (row,) = (row for row in data.numbers["rows"] if row["n"] == case.width)
        assert row["variance"] == pytest.approx(y.var(), rel=0.1)  # of the conditional laws, of less noise
        assert (row["networks"], row["seed"]) == (SMALL.samples, seed_of(SMALL, 0, case.width))
        far = chosen(data.tables["tails"], case.key)
        assert np.all(far["density"] > 0)


def test_scores_on_both_scales(scores):
    part, data = scores
    n = part.case.width
    root, average = data.numbers["rows"]
    assert root["variance"] == pytest.approx(n * average["variance"], rel=1e-3)  # ddof aside, the same draws
    # given the inputs p is Gaussian; |x_i|^2 / n are independent given h, and clipping at 100 never happens
    exact = (1 + 2 / n) ** 2
    assert abs(root["variance"] - exact) < 4 * root["variance_se"]
    bars = data.tables["histogram"]
    for power in (0.5, 1.0):
        own = chosen(bars, {"power": power})
        mass = np.sum(own["density"] * (own["right"] - own["left"]))
        assert 0.99 < mass <= 1 + 1e-12
    limit = data.tables[""]
    assert np.allclose(limit["limit"], np.exp(-(limit["y"] ** 2) / 2) / math.sqrt(2 * math.pi), rtol=1e-9)


def test_kl_of_kernel_estimates_is_that_of_the_papers_scripts():
    rng = np.random.default_rng(5)
    x, y = rng.standard_t(6, 3000), rng.standard_normal(3000)
    low, high = min(x.min(), y.min()) - 1, max(x.max(), y.max()) + 1
    points = np.linspace(low, high, 500)
    p, q = (gaussian_kde(z)(points) + 1e-12 for z in (x, y))
    direct = entropy(p / np.trapezoid(p, points), q / np.trapezoid(q, points))
    assert kernel_kl(x, y, low, high) == pytest.approx(direct, rel=2e-3)
    assert kernel_kl(x, x, low, high) == 0


def test_convergence_of_kl():
    part = Convergence((Case("attention", 16, ONE_HEAD), Case("attention", 64, ONE_HEAD)))
    data = part.data(SMALL, Listener())
    table, means = data.tables[""], data.tables["mean"]
    assert len(table["n"]) == 2 * SMALL.repeats
    assert len(set(table["seed"])) == len(table["seed"])
    logs = np.log(table["kl_kernel"][table["n"] == 16])
    assert means["log_kl_kernel"][0] == pytest.approx(logs.mean())
    assert means["log_kl_kernel_sd"][0] == pytest.approx(logs.std())
    low, high = data.numbers["points_low"], data.numbers["points_high"]
    case = part.cases[1]
    x = case.networks(SMALL, Listener(), 2)["y"][:, 0]
    again = kernel_kl(x, case.limit_draws(SMALL, 2), low, high)
    assert chosen(table, {"n": 64, "trial": 2})["kl_kernel"][0] == pytest.approx(again)
    assert means["log_kl_kernel"][0] > means["log_kl_kernel"][1] > math.log(data.tables["floor"]["limit"].min()) - 1
    value, error = (chosen(table, {"n": 64, "trial": 2})[name][0] for name in ("kl", "kl_se"))
    assert (value, error) == tp.kl(case.networks(SMALL, Listener(), 2, conditional=True), case.reference, "y[0]")
    assert means["kl"][0] > means["kl"][1] > 0
    assert means["kl_se"][1] == pytest.approx(np.sqrt((table["kl_se"][table["n"] == 64] ** 2).sum()) / SMALL.repeats)
    expected = math.log(means["kl"][1] / means["kl"][0]) / math.log(4)
    assert data.numbers["rate"]["exponent"] == pytest.approx(expected, abs=0.05)


def test_kl_of_the_limit_to_a_gaussian_is_that_of_other_code():
    case = Case("attention", 16, ONE_HEAD)
    y = np.arange(-70, 71) / 10
    f = density_by_quadrature(y, 18)
    variance = 0.1 * f @ y**2
    logs = np.log(f) + 0.5 * y**2 / variance + 0.5 * math.log(2 * math.pi * variance)
    value, error = tp.kl_gaussian(case.reference, "y[0]")
    assert error < 1e-5
    assert value == pytest.approx(0.1 * f @ logs, abs=error + 1e-6)
    assert case.spread**2 == pytest.approx(variance, rel=1e-4)
    page = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")
    assert f"{value:.2e}"[:4] in page


def test_pictures_show_the_tables_and_nothing_else(densities, scores):
    whole = Together({"outputs": densities[0], "score": scores[0]})
    data = whole.data(SMALL, Listener())
    parts = {"", "_tails", "_histogram", "_precise"}
    assert set(data.tables) == {*(f"outputs{part}" for part in parts), "score", "score_histogram"}
    _, axes = plt.subplots(1, 5)
    labels = [handle.get_label() for handle in whole.draw(list(axes), data)]
    assert labels[:3] == ["n = 16", "n = 64", "limit"]
    limit = next(line for line in axes[1].lines if line.get_label() == "limit")
    assert np.array_equal(limit.get_ydata(), chosen(data.tables["outputs"], {"n": 16})["limit"])


def test_files(tmp_path):
    found = make(FIGURES["fig2a"], SMALL, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(found["files"])
    written = json.loads((tmp_path / "fig2a.json").read_text())
    assert written["command"] == "tp paper fig2a --samples 2000 --seed 3 --repeats 3"
    assert set(written["versions"]) == {"tensorprog", "python", "numpy", "scipy"}
    assert written["numbers"]["rows"][0]["limit_variance"] == pytest.approx(1, abs=1e-9)
    rows = list(csv.DictReader((tmp_path / "fig2a.csv").read_text().splitlines()))
    assert list(rows[0]) == ["y", "limit", "limit_error"]
    assert float(rows[200]["limit"]) == pytest.approx(1 / math.sqrt(2 * math.pi), rel=1e-9)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    make(FIGURES["fig2a"], SMALL, tmp_path)
    assert before == {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}


def test_figures_are_those_of_the_paper():
    assert list(FIGURES) == ["fig1a", "fig1b", "fig2a", "fig2b", "fig3", "relu"]
    assert [case.width for case in FIGURES["fig1a"].drawing.cases] == [16, 64, 256, 1024]
    low = FIGURES["fig3"].drawing.cases
    assert [(case.width, case.heads, case.scale) for case in low] == [(64, 1, 1), (256, 4, 2), (1024, 16, 4)]
    assert [case.heads for case in FIGURES["fig2b"].drawing.cases] == [1, 256]


def test_command_line(tmp_path, capsys):
    def call(*args):
        with pytest.raises(SystemExit) as caught:
            main.main(args=["paper", *map(str, args)], prog_name="tp")
        return caught.value.code, *capsys.readouterr()

    code, out, _ = call("--format", "json")
    assert [entry["figure"] for entry in json.loads(out)["figures"]] == list(FIGURES)
    code, _, err = call("fig2c")
    assert code == 2 and "there is no figure fig2c" in err
    folder = tmp_path / "new" / "folder"
    code, out, _ = call("fig2a", "--samples", 200, "--out", folder)
    assert "1/n: standard deviation" in out and (folder / "fig2a.png").is_file()
    code, _, err = call("fig2a", "--samples", 200, "--out", folder, "--max-memory", "1KB")
    assert code == 3 and "more than max_memory, 1000 bytes" in err

"""`tp plot`: the figures of a folder again, from what it holds and nothing else."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorprog import program

PROGRAM = """\
program: small
indices: {t: 2}
initial:
  x: {mean: 0, cov: 1}
weights:
  W[t]: 1
body:
  - u[t] = MatMul(W[t], x)
  - y[t] = Nonlin(tanh(u[t]) + u[t])
outputs: [y]
run: {width: [8, 32], samples: 1000}
"""
Tp = Callable[..., tuple[int, str, str]]


@pytest.fixture
def nothing_computed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on no network may be drawn and no limit compiled."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    def now() -> None:
        for name in ("run", "limit", "check"):
            monkeypatch.setattr(program.Program, name, refuse)

    return now


@pytest.mark.turns(2)
@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_figures_are_those_of_the_run(tp: Tp, nothing_computed: Callable[[], None], stream: tuple[str, ...]) -> None:
    assert tp("run", "small.yaml", "--quiet", "--samples", "200", "--out", "r", *stream)[0] == 0
    nothing_computed()
    Path("small.yaml").unlink()
    code, out, _ = tp("plot", "r", "--format", "png,svg", "--out", "figures")
    assert code == 0
    names = [f"{name}-page.{kind}" for name in ("density", "convergence", "covariance") for kind in ("png", "svg")]
    assert [line.strip() for line in out.splitlines()[1:]] == names
    for name in ("density", "convergence"):
        assert Path(f"figures/{name}-page.png").read_bytes() == Path(f"r/{name}.png").read_bytes()
    before = Path("figures/density-page.svg").read_bytes()
    assert tp("plot", "r", "--what", "density", "--format", "svg", "--out", "figures", "--quiet") == (0, "", "")
    assert Path("figures/density-page.svg").read_bytes() == before


def test_panels_and_variables_are_chosen(tp: Tp) -> None:
    tp("run", "small.yaml", "--quiet", "--out", "r")
    words = ("plot", "r", "--style", "column", "--format", "svg", "--out", "f")
    assert tp(*words, "--what", "convergence", "--panel", "kl", "--panel", "excess", "--variable", "y[1]")[0] == 0
    text = Path("f/convergence-column.svg").read_text()
    assert 'width="237.6pt"' in text
    assert ">y[1]</text>" in text and ">KS distance</text>" not in text
    assert tp(*words, "--what", "density", "--panel", "log")[0] == 0
    assert tp(*words, "--what", "covariance", "--variable", "y")[0] == 0
    assert ">covariance of y in the limit</text>" in Path("f/covariance-column.svg").read_text()


WRONG = [
    (("--what", "densty"), "r has no figure densty"),
    (("--what", "convergence", "--panel", "kul"), "there is no panel kul in this figure"),
    (("--what", "density", "--panel", "kl"), "there is no panel kl"),
    (("--what", "density", "--variable", "z[0]"), "z[0] is not a variable of r"),
    (("--what", "density", "--variable", "y[1]"), "the density of y[1] in the limit was not saved, only that of y[0]"),
    (("--what", "covariance", "--variable", "u"), "u is not a family of the limit"),
    (("--what", "covariance", "--panel", "log"), "no panels to choose from"),
    (("--format", "jpg"), "--format jpg"),
    (("--style", "poster"), "poster"),
]


def test_what_cannot_be_drawn_is_said(tp: Tp) -> None:
    tp("run", "small.yaml", "--quiet", "--out", "r", "--samples", "100")
    for options, said in WRONG:
        code, out, err = tp("plot", "r", *options)
        assert (code, out) == (2, ""), options
        assert said in err


def test_what_a_folder_lacks_is_said(tp: Tp) -> None:
    tp("run", "small.yaml", "--quiet", "--out", "r", "--samples", "100")

    def refused(*words: str) -> str:
        code, out, err = tp("plot", *words)
        assert (code, out) == (2, "")
        return err

    assert "there is no folder nowhere" in refused("nowhere")
    Path("empty").mkdir()
    assert "empty holds nothing to draw" in refused("empty")
    Path("empty/report.json").write_text("{}")
    assert "was not written by tensorprog" in refused("empty")
    Path("empty/report.json").write_text('{"finite": [')
    assert "report.json cannot be read" in refused("empty")
    shutil.copytree("r", "old")
    report = json.loads(Path("old/report.json").read_text())
    del report["densities"]
    Path("old/report.json").write_text(json.dumps(report))
    assert "no density of the limit" in refused("old", "--what", "density")
    assert tp("plot", "old", "--format", "png")[1].split() == [
        "written",
        "to",
        "old/",
        "convergence-page.png",
        "covariance-page.png",
    ]
    Path("r/samples.npz").write_bytes(Path("r/samples.npz").read_bytes()[:200])
    assert "cannot be read from r/samples.npz" in refused("r", "--what", "density")
    code, out, err = tp("plot", "r", "--format", "png")
    assert (code, out.split()[3:]) == (0, ["convergence-page.png", "covariance-page.png"])
    assert "no figure density" in err
    assert "cannot be read from r/samples.npz" in err
    Path("r/samples.npz").unlink()
    assert "there are no samples in r" in refused("r", "--what", "density")
    for key in ("finite", "limit", "densities"):
        Path("old/report.json").write_text(json.dumps(report | {"densities": {}, key: 5}))
        assert "was not written by tensorprog, or was changed" in refused(
            "old", "--what", "covariance" if key == "limit" else "density"
        )
    report["finite"] = []
    Path("r/report.json").write_text(json.dumps(report))
    assert "no width is complete in r" in refused("r", "--what", "convergence")
    Path("sweep").mkdir()
    Path("sweep/sweep.nc").touch()
    assert "the folder of a sweep" in refused("sweep")


def test_runs_without_a_limit_have_figures_too(tp: Tp) -> None:
    tp("run", "attention_tied", "--width", "8,16", "--quiet", "--out", "r", "--samples", "200")
    report = json.loads(Path("r/report.json").read_text())
    assert report["limit"] is None
    code, out, _ = tp("plot", "r", "--format", "png")
    assert code == 0
    assert out.split()[3:] == ["density-page.png", "convergence-page.png"]
    assert Path("r/density-page.png").read_bytes() == Path("r/density.png").read_bytes()
    assert "there is no limit" in tp("plot", "r", "--what", "covariance")[2]


def test_depth_profiles_and_figures_of_the_paper(tp: Tp, nothing_computed: Callable[[], None]) -> None:
    tp("depth", "deep_attention", "x", "--to", "3", "--set", "C=1,2", "--draws", "64", "--out", "d", "--quiet")
    tp("paper", "fig2a", "--samples", "200", "--out", "p", "--quiet")
    nothing_computed()
    assert tp("plot", "d", "--format", "png")[0] == 0
    assert Path("d/depth-page.png").read_bytes() == Path("d/depth.png").read_bytes()
    assert tp("plot", "p", "--format", "pdf", "--style", "column")[1].split()[3:] == ["fig2a-column.pdf"]
    assert "are drawn as they are" in tp("plot", "p", "--panel", "log")[2]
    Path("p/fig2a.csv").unlink()
    assert "fig2a.csv cannot be read" in tp("plot", "p", "--what", "fig2a")[2]


def test_figures_of_the_paper_ask_for_matplotlib_before_the_work(
    tp: Tp, nothing_computed: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_computed()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = tp("paper", "fig1a", "--out", "p")
    assert (code, out) == (2, "")
    assert "pictures need matplotlib" in err
    assert not Path("p").exists()

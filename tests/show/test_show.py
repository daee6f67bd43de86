"""Pages, pictures, drawings and formulas: complete, harmless whatever a program says, the same for the same run."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import cycle
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.blocks import Code, Grid, Heading, Mathematics, Picture, code, paragraph, to_text
from tensorprog.blocks.html import to_html
from tensorprog.jobs.run import run
from tensorprog.results.study import Settings
from tensorprog.show import graphs
from tensorprog.show.page import report_page

plt = pytest.importorskip("matplotlib.pyplot")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> $x$ \\"
PROGRAM = """
program: small
title: TITLE
indices: {i: 2, j: 2}
initial: {"h[i]": {cov: "0.5**abs(i - i_)"}}
weights: {Q: 1, K: 1, V: 1}
body:
  - x[i] = Nonlin(tanh(h[i]))
  - q[i] = MatMul(Q, x[i])
  - k[i] = MatMul(K, x[i])
  - p[i,j] = Dot(q[i], k[j])
  - v[i] = MatMul(V, x[i])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))
outputs: [y]
"""


class Tags(HTMLParser):
    """Which tags there are, and the sources of images."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.sources += [value or "" for key, value in attributes if key in ("src", "href")]
        assert not [key for key, _ in attributes if key.startswith("on")]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tp.Program:
    path = tmp_path_factory.mktemp("show") / "small.yaml"
    path.write_text(PROGRAM.replace("TITLE", f"'{HOSTILE}'"), encoding="utf-8")
    return tp.load(path)


@pytest.fixture(autouse=True)
def close() -> object:
    yield
    plt.close("all")


def test_the_page_is_complete_and_harmless(small: tp.Program, tmp_path: Path) -> None:
    study = run(small, Settings(width=(8, 32), samples=400), tmp_path, page=report_page)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "default-src 'none'" in text
    found = Tags(text)
    assert not {"script", "iframe", "object", "form", "link"} & found.names
    assert {"math", "table", "figure", "img", "section"} <= found.names
    assert all(source.startswith(("data:image/svg+xml;base64,", "#")) for source in found.sources)
    assert "&lt;script&gt;alert(1)" in text
    for section in ("program", "check", "limit", "widths", "reproduce"):
        assert f'<section id="{section}"' in text
    assert text.index('id="widths"') < text.index(">Results<") < text.index('id="program"')
    assert "tp run small.yaml --width 8,32 --samples 400" in text
    assert text == report_page(study)  # made again
    for name in ("density.png", "convergence.png"):
        assert (tmp_path / name).stat().st_size > 10_000
    outside = tp.load("attention_tied")
    assert "No limit is claimed" in report_page(run(outside, Settings(width=(8,), samples=50)))


def test_blocks_as_html_and_as_text() -> None:
    blocks = [
        Heading(HOSTILE),
        paragraph("a ", code(HOSTILE), label="claim"),
        Code(HOSTILE, HOSTILE),
        Grid(HOSTILE, ("", "n"), (("<b>", "1"), ("c", "2")), "note", marked=(1,)),
        Mathematics((r"the law $\mathring{p}$ of", r"\[ a < \frac{1}{2} \]", HOSTILE)),
        Picture("<svg xmlns='http://www.w3.org/2000/svg'/>", HOSTILE),
    ]
    html = to_html(blocks)
    assert not {"script", "b"} & Tags(html).names
    assert "<mfrac>" in html
    text = to_text(blocks)
    assert HOSTILE in text
    assert "note" in text


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("name", ["attention_tied", "rnn"])
def test_drawings_of_programs(name: str, judged: bool) -> None:
    program = tp.load(name)
    view, report = program.graph(), program.check() if judged else None
    picture = graphs.to_svg(view, report)
    assert picture == graphs.to_svg(view, report)
    root = ElementTree.fromstring(picture)
    texts = " ".join("".join(node.itertext()) for node in root.iter() if node.tag.endswith("text"))
    assert all(node.split("[")[0] in texts for node in view)
    if judged and name == "attention_tied":
        assert "outside" in texts
        assert "(1)" in texts
        assert graphs.BLAME in picture


def test_pictures(small: tp.Program, tmp_path: Path) -> None:
    law, nets = small.limit(), [small.run(n, 400, conditional=True) for n in (8, 32)]
    rows = [tp.compare(net, law) for net in nets]
    left, right = tp.plots.density(nets, law, "y[0]")
    assert right.get_yscale() == "log"
    names = [line.get_label() for line in left.lines]
    assert names == ["n = 8", "n = 32", "limit", "Gaussian, equal variance"]
    two = tp.plots.density([nets[0], tp.load("attention").run(8, 50)], None, "y[0]")[0]
    assert [line.get_label() for line in two.lines][:2] == ["n = 8, small", "n = 8, attention"]
    named = tp.plots.density(nets, law, "y[0]", labels=["narrow", "wide"])[0]
    assert [line.get_label() for line in named.lines][:2] == ["narrow", "wide"]
    panels = tp.plots.convergence(rows, "y[0]", first_order={"kurtosis": (1.0, 0.1)})
    assert len(panels) == 3
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["8", "32"]
    tp.plots.covariance(law, "p")
    for ending, style in zip(tp.plots.FORMATS, cycle(tp.plots.STYLES), strict=False):
        path, written = tmp_path / f"{style}.{ending}", []
        for _ in range(2):
            tp.plots.save(path, lambda axes: tp.plots.density(nets, law, "y[0]", axes), 2, style)
            written.append(path.read_bytes())
        assert written[0] == written[1]
    for wrong in (
        lambda: tp.plots.density([], None),
        lambda: tp.plots.density(nets, law, "z[0]"),
        lambda: tp.plots.density(nets, law, scale="cubic"),
        lambda: tp.plots.density(nets, law, labels=["one"]),
        lambda: tp.plots.convergence(rows, "y[0]", panels=["w1"]),
        lambda: tp.plots.convergence(nets),
        lambda: tp.plots.covariance(law, "Q"),
        lambda: tp.plots.save(tmp_path / "a.jpg", print),
        lambda: tp.plots.save(tmp_path / "a.png", print, 1, "poster"),
    ):
        with pytest.raises(tp.ProgramError):
            wrong()


def test_the_tail_of_a_density_is_that_of_the_draws() -> None:
    x = np.random.default_rng(0).standard_normal(50_000)
    places, heights, errors = tp.plots.tail_bins(x)
    truth = np.exp(-(places**2) / 2) / np.sqrt(2 * np.pi)
    assert np.abs(places).max() > 3.2
    assert np.all(np.abs(heights - truth) < 4.9 * errors + 0.02 * truth)


def test_runs_of_one_width_are_told_apart(small: tp.Program) -> None:
    nets = [small.run(8, 50, seed=seed) for seed in (0, 1)]
    assert _names(tp.plots.density(nets, scale="linear"))[:2] == ["n = 8, seed = 0", "n = 8, seed = 1"]
    one, two = (tp.load("attention", H=heads).run(8, 50, seed=heads) for heads in (1, 2))
    assert _names(tp.plots.density([one, two], scale="linear"))[:2] == ["n = 8, H = 1", "n = 8, H = 2"]


def _names(ax: object) -> list[str]:
    return [str(line.get_label()) for line in ax.lines]  # type: ignore[attr-defined]

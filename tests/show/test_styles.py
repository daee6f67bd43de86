"""Figures for papers: sizes, letters, names that do not touch, colours told apart, files that can be edited."""

import io
import re
from dataclasses import replace
from itertools import combinations, pairwise

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import tensorprog as tp
from tensorprog import ProgramError, compare
from tensorprog.show import plots
from tensorprog.show.layers import LayerCurve, LayerPanel, save_layers
from tests.results.fakes import MixtureLaw, draw, netsor

WIDTHS = (16, 64, 256, 1024)
PROGRAM = netsor(2)
LAW = MixtureLaw(PROGRAM, (0.5, 2.0))
RUNS = [draw(PROGRAM, 3000, (0.5 * (1 - 2 / n), 2.0), seed=n, width=n) for n in WIDTHS]
COMPARED = [compare(run, LAW) for run in RUNS]
DRAWINGS = {
    "density": (2, lambda axes: plots.density(RUNS, LAW, ax=axes)),
    "linear": (1, lambda axes: plots.density(RUNS, LAW, ax=axes, scale="linear")),
    "convergence": (4, lambda axes: plots.convergence(COMPARED, ax=axes)),
    "kl": (1, lambda axes: plots.convergence(COMPARED, ax=axes, panels=["kl"])),
    "many widths": (
        4,
        lambda axes: plots.convergence(
            [replace(c, width=round(16 * 1.3**k)) for k, c in enumerate(COMPARED * 5)], ax=axes
        ),
    ),
    "without a limit": (2, lambda axes: plots.convergence([compare(run, None) for run in RUNS], ax=axes)),
    "covariance": (1, lambda axes: plots.covariance(tp.load("mlp_bias").limit(), "f", axes[0])),
}


@pytest.fixture
def drawn(monkeypatch):
    """Figures as they are when they are written."""
    seen = []
    real = plots._write

    def keep(figure, target, **options):
        real(figure, target, **options)
        seen.append(figure)

    monkeypatch.setattr(plots, "_write", keep)
    return seen


@pytest.mark.parametrize("style", plots.STYLES)
@pytest.mark.parametrize("name", DRAWINGS)
def test_nothing_touches_in_figures_for_papers(drawn, tmp_path, name, style):
    panels, draw_in = DRAWINGS[name]
    plots.save(tmp_path / "a.png", draw_in, panels, style=style)
    (figure,) = drawn
    assert figure.get_figwidth() == {"column": 3.3, "page": 6.9}[style]
    axes = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    assert len(axes) == panels
    page = figure.bbox
    for ax in figure.axes:
        for axis, side in ((ax.xaxis, 0), (ax.yaxis, 1)):
            low, high = sorted(axis.get_view_interval())
            shown = [
                text
                for place, text in zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
                if text.get_text() and low <= place <= high
            ]
            spans = sorted((text.get_window_extent().min[side], text.get_window_extent().max[side]) for text in shown)
            assert all(first[1] < second[0] for first, second in pairwise(spans)), (name, [t.get_text() for t in shown])
            if name != "covariance" or ax in axes:
                assert 1 < len(shown) <= 30
            assert all(5 <= text.get_fontsize() <= 10 for text in shown)
            texts = [*shown, axis.label]
            for box in (text.get_window_extent() for text in texts if text.get_text()):
                assert page.padded(1).containsx(box.x0) and page.padded(1).containsx(box.x1)
                assert page.padded(1).containsy(box.y0) and page.padded(1).containsy(box.y1)
            for text in shown:  # numbers keep clear of the names of the axes
                if axis.label.get_text():
                    assert not text.get_window_extent().overlaps(axis.label.get_window_extent())
    if panels > 1:
        assert [ax.get_title(loc="left") for ax in axes] == list("abcdef"[:panels])
    boxes = [legend.get_window_extent() for legend in figure.legends]
    assert all(page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1 for box in boxes)
    assert not any(box.overlaps(ax.get_tightbbox()) for box in boxes for ax in axes)
    if name != "covariance":
        assert all(ax.get_xlabel() and ax.get_ylabel() for ax in axes)
    assert {ax.get_ylabel() for ax in axes} == {"probability density"} or name not in ("density", "linear")


def test_depth_profiles_have_the_same_sizes(drawn, tmp_path):
    layers = list(range(1, 101))
    curves = [LayerCurve(f"C = {k}", np.linspace(1, k + 2, 100), np.full(100, 0.1), k) for k in range(3)]
    for style in plots.STYLES:
        save_layers(tmp_path / "d.png", [LayerPanel(f"quantity {k}", curves) for k in range(5)], layers, "l", 3, style)
    column, page = drawn
    assert (column.get_figwidth(), page.get_figwidth()) == (3.3, 6.9)
    assert len({ax.get_position().x0 for ax in page.axes}) == 3
    assert len(page.axes) == 5


@pytest.mark.parametrize("kind", plots.FORMATS)
def test_the_same_figure_is_the_same_file(tmp_path, kind):
    panels, draw_in = DRAWINGS["density"]
    for name in ("a", "b"):
        plots.save(tmp_path / f"{name}.{kind}", draw_in, panels, style="column")
    first, second = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("a", "b"))
    assert first == second
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert first.startswith(start)
    if kind == "svg":
        assert b">probability density</text>" in first
    if kind == "pdf":  # letters by TrueType fonts inside the file, not drawn as curves
        assert b"/FontFile2" in first
        assert not re.search(rb"/Subtype\s*/Type3", first)


def test_wrong_styles_and_endings_are_named(tmp_path):
    with pytest.raises(ProgramError, match=r"no style 'colum'.*column"):
        plots.save(tmp_path / "a.png", lambda axes: None, 1, style="colum")
    with pytest.raises(ProgramError, match=r"a\.jpg: figures are written as \.png, \.svg, \.pdf"):
        plots.save(tmp_path / "a.jpg", lambda axes: None, 1)


# ---- colours --------------------------------------------------------------------------------------------------------

# G. M. Machado, M. M. Oliveira, L. A. F. Fernandes 2009, Table 1, severity 1; rows of matrices on linear RGB
BLIND = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}


def linear(colour):
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* of linear RGB, white D65."""
    matrix = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    t = matrix @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(colour):
    """With white paper, as WCAG 2 has it."""
    return 1.05 / (0.05 + np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))


@pytest.mark.parametrize("count", [1, 2, 4, 6, 12])
def test_colours_of_widths_are_seen_on_paper_and_in_order_of_grey(count):
    shades = plots.colours(count)
    assert len(shades) == count
    assert min(map(contrast, shades)) >= 3  # WCAG 2.2, 1.4.11
    greys = [lab(linear(shade))[0] for shade in shades]
    assert all(first - second > 40 / max(count, 3) for first, second in pairwise(greys))


@pytest.mark.parametrize("eyes", BLIND)
def test_colours_are_told_apart_by_colour_blind_readers(eyes):
    def seen(colour):
        return lab(np.array(BLIND[eyes]) @ linear(colour))

    widths = [*plots.colours(4), plots.VERMILION]
    kinds = [plots.FIRST, plots.SECOND, plots.VERMILION, plots.GREY]
    for colours in (widths, kinds):
        nearest = min(np.linalg.norm(seen(a) - seen(b)) for a, b in combinations(colours, 2))
        assert nearest > 10, nearest  # some four times what can just be seen side by side


def test_fixed_colours_are_seen_on_paper():
    assert min(map(contrast, (plots.FIRST, plots.SECOND, plots.VERMILION, plots.GREY, plots.LIMIT))) >= 3


def test_figures_of_the_paper_have_the_colours_of_runs():
    from examples.paper import FIGURES, drawing

    assert drawing.colours is plots.colours
    assert len(FIGURES["fig1a"].drawing.cases) == len(WIDTHS)


def test_legends_have_one_row_where_there_is_room():
    buffer = io.BytesIO()
    panels, draw_in = DRAWINGS["density"]
    for name, rows in (("page", 1), ("column", 2)):
        style = plots.STYLES[name]
        with style.settings():
            figure, axes = plots._figure(panels, *style.size(panels), grid=style.grid(panels), dpi=100)
            draw_in(axes)
            figure.savefig(buffer, format="png")
            (legend,) = figure.legends
            places = {round(text.get_window_extent().y0, 1) for text in legend.get_texts()}
            assert len(places) == rows

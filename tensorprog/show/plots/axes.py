"""Figures and axes: where pictures are drawn, how they look, and the files and texts that they become."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorprog.language.errors import ProgramError, TensorprogError
from tensorprog.language.files import whole

__all__ = ["FIRST", "GREY", "LIMIT", "MARKERS", "SECOND", "VERMILION", "PlotsUnavailableError", "axes_of", "colours",
           "legend_above", "name", "plain", "save", "style", "svg", "width_axis"]

LIMIT, GREY = "#000000", "#777777"
FIRST, SECOND, VERMILION = "#0072B2", "#CC79A7", "#D55E00"  # blue, purple and vermilion of Okabe & Ito
MARKERS = "os^Dv<>pP*X"
LAST = ("other outputs", "noise floor", "standard error")  # in legends, after what is measured


class PlotsUnavailableError(TensorprogError):
    """matplotlib is not installed."""


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise PlotsUnavailableError('pictures need matplotlib: pip install "tensorprog[plot]"') from None
    return plt


def _figure(columns: int, width: float, height: float) -> tuple[Any, Any]:
    """A figure that belongs to no window system."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PlotsUnavailableError('pictures need matplotlib: pip install "tensorprog[plot]"') from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def axes_of(ax: Any, columns: int, width: float, height: float) -> list[Any]:
    """One axes object per panel: those given, or those of a new figure."""
    if ax is None:
        _, axes = _pyplot().subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False)
        return list(axes[0])
    axes = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(axes) != columns:
        raise ProgramError(f"ax must hold {columns} axes here, not {len(axes)}")
    return axes


def save(path: str | os.PathLike[str], draw: Any, columns: int, width: float = 10.0, height: float = 4.2) -> None:
    """Draw a figure and write it in one step: `draw(axes)` gets the axes.

    Raises    PlotsUnavailableError without matplotlib
    """
    figure, axes = _figure(columns, width, height)
    draw(list(axes))
    with whole(path) as partial:
        figure.savefig(partial, dpi=200)


def svg(draw: Callable[[Any], Any], width: float = 4.4, height: float = 3.6) -> str:
    """One panel as SVG text, for a page: `draw(ax)` gets the axes.

    The ground is transparent, and what matplotlib draws black has the ink of the page; text stays text.

    Raises    PlotsUnavailableError without matplotlib
    """
    figure, (ax,) = _figure(1, width, height)
    import matplotlib

    options: dict[Any, Any] = {"savefig.facecolor": "none", "svg.fonttype": "none", "svg.hashsalt": "tensorprog"}
    with matplotlib.rc_context(options):
        figure.patch.set_alpha(0.0)
        ax.patch.set_alpha(0.0)
        draw(ax)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return text.getvalue()


def plain(text: str) -> str:
    """Text in which no dollar begins a formula."""
    return text.replace("$", r"\$")


def colours(count: int) -> list[Any]:
    """Colours for widths in order, from light to dark."""
    import matplotlib

    shades = matplotlib.colormaps["viridis"](np.linspace(0.82, 0.12, count) if count > 1 else np.array([0.35]))
    return list(shades)


def style(ax: Any) -> None:
    """Frame and grid of a panel."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, which="major", color="#000000", alpha=0.10, linewidth=0.6)
    ax.set_axisbelow(True)


def width_axis(ax: Any, widths: Sequence[float]) -> None:
    """A log axis with ticks at widths: at each, or at some of a dozen or more."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ax.set_xscale("log")
    shown = [w for k, w in enumerate(widths) if k % max(1, len(widths) // 6) == 0]
    ax.xaxis.set_major_locator(FixedLocator(shown))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticklabels([f"{w:g}" for w in shown])
    ax.set_xlim(min(widths) / 1.5, max(widths) * 1.5)


def name(axis: Any, text: str) -> None:
    """Name an axis with all its data; of large and small numbers on it the name has the power of ten."""
    largest = float(np.abs(axis.get_view_interval()).max())
    power = math.floor(math.log10(largest)) if largest > 0 else 0
    if axis.get_scale() == "log" or -4 < power < 5:
        axis.set_label_text(plain(text))
        return
    axis.set_major_formatter(lambda value, _: f"{value / 10.0**power:g}".replace("-", "\u2212"))
    axis.set_label_text(f"{plain(text)} / $10^{{{power}}}$")


def legend_above(ax: Any, handles: Sequence[Any] | None = None) -> None:
    """A legend above the panel, where no data are; measured curves first, one entry per meaning."""
    if handles is None:
        handles, _ = ax.get_legend_handles_labels()
    found = {handle.get_label(): handle for handle in handles}
    last = [name for name in LAST if name in found]
    last += [name for name in found if name.startswith("slope")]
    order = [name for name in found if name not in last] + last
    if order:
        ax.legend([found[name] for name in order], [plain(name) for name in order], loc="lower left",
                  bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, fontsize="small", borderaxespad=0.2,
                  handlelength=2.2, columnspacing=1.4)

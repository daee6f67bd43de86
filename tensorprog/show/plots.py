"""Pictures: densities against the limit, convergence in the width, covariances; `save` writes them for papers.

Functions take `ax=None` and return the axes.  Widths have the same colours in all pictures, from light to dark, so that
colour-blind readers and readers of grey prints tell them apart; they have markers too.  Pictures compute nothing but
histograms and kernel estimates.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, TensorprogError, did_you_mean
from tensorprog.language.extras import how_to_install
from tensorprog.language.files import whole
from tensorprog.language.formats import label, members, name_of, one_or_several, selected, short, split
from tensorprog.language.samples import column, samples_of
from tensorprog.results.comparison import Comparison, Row
from tensorprog.results.distances import KL_POINTS, binned_kde
from tensorprog.results.limit_density import LimitDensity, limit_density
from tensorprog.results.reference import Reference

__all__ = [
    "FORMATS",
    "STYLES",
    "FigureStyle",
    "PlotsUnavailableError",
    "convergence",
    "covariance",
    "density",
    "density_of",
    "save",
    "svg",
    "tail_bins",
]

Array = NDArray[Any]
LIMIT, GREY = "#000000", "#777777"
FIRST, SECOND, VERMILION = "#0072B2", "#CC79A7", "#D55E00"  # blue, purple and vermilion of Okabe & Ito
MARKERS = "os^Dv<>pP*X"
RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
LAST = ("other outputs", "noise floor")  # in legends, after what is measured
LIGHT_END, DARK_END, ALONE = 0.60, 0.05, 0.35  # the part of viridis that reads on white paper
FORMATS = ("png", "svg", "pdf")
RESOLUTION = 300  # dots to the inch of PNG
LETTERS = 8.0  # points, of text in figures for papers; numbers at ticks have one less
LEGEND = 0.42  # inches below the panels
GAP = 1.15  # between names of ticks, in lengths of the names
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
AS_TEXT: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "tensorprog", "pdf.fonttype": 42}  # can be edited


class PlotsUnavailableError(TensorprogError):
    """matplotlib is not installed."""


@dataclass(frozen=True)
class FigureStyle:
    """The size of a figure for papers, in inches: of so many panels in a row, how wide and how high each is."""

    name: str
    width: float
    heights: tuple[float, ...]  # of a panel, where there are 1, 2, .. in a row

    def grid(self, panels: int) -> tuple[int, int]:
        """Rows and columns for so many panels."""
        rows = -(-panels // len(self.heights))
        return rows, -(-panels // rows)

    def size(self, panels: int) -> tuple[float, float]:
        """Width and height of a figure of so many panels, with a legend."""
        rows, columns = self.grid(panels)
        return self.width, rows * self.heights[columns - 1] + LEGEND

    def settings(self) -> AbstractContextManager[Any]:
        """Letters and lines of this style, inside a `with` block."""
        import matplotlib

        small = LETTERS - 1.0
        settings: dict[Any, Any] = {
            "font.size": LETTERS,
            "axes.titlesize": LETTERS,
            "axes.labelsize": LETTERS,
            "xtick.labelsize": small,
            "ytick.labelsize": small,
            "legend.fontsize": small,
            "axes.titlepad": 4.0,
            "axes.labelpad": 2.0,
            "xtick.major.size": 2.5,
            "ytick.major.size": 2.5,
            "xtick.minor.size": 1.5,
            "ytick.minor.size": 1.5,
            "xtick.minor.width": 0.5,
            "ytick.minor.width": 0.5,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "axes.linewidth": 0.6,
        }
        return matplotlib.rc_context(settings)


STYLES = {
    style.name: style
    for style in (
        FigureStyle("column", 3.3, (1.95,)),  # one column of a page of two
        FigureStyle("page", 6.9, (3.2, 2.5, 2.1)),  # the whole width
    )
}


def style_named(name: str) -> FigureStyle:
    """A style by its name.

    Raises    ProgramError
    """
    if name not in STYLES:
        raise ProgramError(f"there is no style {name!r} of figures; {did_you_mean(name, list(STYLES))}")
    return STYLES[name]


def need_matplotlib() -> None:
    """Nothing where pictures can be drawn.

    Raises    PlotsUnavailableError without matplotlib
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PlotsUnavailableError(f"pictures need matplotlib: {how_to_install('plot')}") from None


def _figure(
    panels: int,
    width: float,
    height: float,
    windowed: bool = False,
    grid: tuple[int, int] | None = None,
    dpi: float | None = None,
) -> tuple[Any, list[Any]]:
    """A figure with panels, in one row or as many as `grid` has; if not `windowed` it belongs to no window system."""
    need_matplotlib()
    make: Any
    if windowed:
        from matplotlib.pyplot import figure as make
    else:
        from matplotlib.figure import Figure as make
    figure = make(figsize=(width, height), layout="constrained", dpi=dpi)
    axes = list(figure.subplots(*(grid or (1, panels)), squeeze=False).ravel())
    for ax in axes[panels:]:
        ax.remove()
    return figure, axes[:panels]


def axes_of(ax: Any, columns: int, width: float, height: float) -> list[Any]:
    """One axes object per panel: those given, or those of a new figure."""
    if ax is None:
        return _figure(columns, width, height, windowed=True)[1]
    axes = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(axes) != columns:
        raise ProgramError(f"ax must hold {columns} axes here, not {len(axes)}")
    return axes


def save(
    path: str | os.PathLike[str],
    draw: Any,
    columns: int,
    width: float = 10.0,
    height: float = 4.2,
    rows: int = 1,
    style: str | FigureStyle | None = None,
) -> None:
    """Draw a figure and write it in one step: `draw(axes)` gets the axes, one for each panel.

    The ending of the path says how it is written: .png, .svg or .pdf; text in the last two stays text.  With the style
    "column" or "page" the figure has the width of a column (3.3 inches) or of a page (6.9 inches) of a paper, letters
    of 7 and 8 points, and panels with letters; `columns` is the number of panels then, and other sizes are left out.

    Raises    PlotsUnavailableError without matplotlib, ProgramError for another style or ending
    """
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise ProgramError(f"{Path(path).name}: figures are written as {', '.join(f'.{name}' for name in FORMATS)}")
    if style is None:
        figure, axes = _figure(columns * rows, width, height, grid=(rows, columns), dpi=RESOLUTION)
        draw(axes)
        _put(figure, path, kind)
        return
    chosen = style if isinstance(style, FigureStyle) else style_named(style)
    _figure(1, 1.0, 1.0)  # which says what is missing without matplotlib
    with chosen.settings():
        figure, axes = _figure(columns, *chosen.size(columns), grid=chosen.grid(columns), dpi=RESOLUTION)
        draw(axes)
        for ax, letter in zip(axes if columns > 1 else (), "abcdefghijklmnopqrstuvwxyz", strict=False):
            ax.set_title(letter, loc="left", fontweight="bold")
        _put(figure, path, kind)


def _put(figure: Any, path: str | os.PathLike[str], kind: str) -> None:
    """Write a figure to a file, the same bytes for the same figure."""
    import matplotlib

    with matplotlib.rc_context(AS_TEXT), whole(path) as partial:
        _write(figure, partial, format=kind, metadata=UNDATED.get(kind))


def svg(draw: Callable[[Any], Any]) -> str:
    """One panel as SVG text, for a page: `draw(ax)` gets the axes.

    The ground is transparent, and what matplotlib draws black has the ink of the page; text stays text.

    Raises    PlotsUnavailableError without matplotlib
    """
    figure, (ax,) = _figure(1, 4.4, 3.6)
    import matplotlib

    with matplotlib.rc_context(AS_TEXT | {"savefig.facecolor": "none"}):
        figure.patch.set_alpha(0.0)
        ax.patch.set_alpha(0.0)
        draw(ax)
        text = io.StringIO()
        _write(figure, text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return text.getvalue()


def _write(figure: Any, target: Any, **options: Any) -> None:
    """Save a figure with the layout that it has now, for which matplotlib would draw all of it a second time."""
    engine = figure.get_layout_engine()
    engine.execute(figure)
    crowded = [thinned(axis) for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    if any(crowded):
        engine.execute(figure)
    figure.set_layout_engine("none")
    figure.savefig(target, **options)


def thinned(axis: Any) -> bool:
    """Leave out names of ticks, every other one or more, where they would touch their neighbours."""
    low, high = sorted(axis.get_view_interval())
    names = [
        (place, text)
        for place, text in zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
        if text.get_text() and text.get_visible() and low <= place <= high
    ]
    boxes = [text.get_window_extent() for _, text in names]
    side = slice(0, 1) if axis.axis_name == "x" else slice(1, 2)
    spans = [(float(box.min[side][0]), float(box.max[side][0])) for box in boxes]

    def touch(step: int) -> bool:
        chosen = sorted(spans[::step])
        return any(second[0] < first[1] + (GAP - 1) * (first[1] - first[0]) for first, second in pairwise(chosen))

    step = next(step for step in range(1, len(spans) + 2) if not touch(step))
    if step > 1:
        axis.set_ticks([place for place, _ in names[::step]], [text.get_text() for _, text in names[::step]])
    return step > 1


def sized(points: float) -> float:
    """Widths of lines and sizes of markers, which grow with the letters."""
    import matplotlib

    return points * float(matplotlib.rcParams["font.size"]) / 10.0


def plain(text: str) -> str:
    """Text in which no dollar begins a formula."""
    return text.replace("$", r"\$")


def colours(count: int) -> list[Any]:
    """Colours for widths, or for other values in order, from light to dark."""
    import matplotlib

    places = np.linspace(LIGHT_END, DARK_END, count) if count > 1 else np.array([ALONE])
    return list(matplotlib.colormaps["viridis"](places))


def frame(ax: Any) -> None:
    """Frame and grid of a panel."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, which="major", color="#000000", alpha=0.10, linewidth=sized(0.6))
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


def name_axis(axis: Any, text: str) -> None:
    """Name an axis with all its data; of large and small numbers on it the name has the power of ten."""
    largest = float(np.abs(axis.get_view_interval()).max())
    power = math.floor(math.log10(largest)) if largest > 0 else 0
    if axis.get_scale() == "log":
        _log_ticks(axis)
    elif not -4 < power < 5:
        axis.set_major_formatter(lambda value, _: f"{value / 10.0**power:g}".replace("-", "\u2212"))
        text = f"{text} / {_power(power)}"
    axis.set_label_text(plain(text))


def _log_ticks(axis: Any) -> None:
    """Ticks at powers of ten, and at twice and five times them where there are few, named where there are no two.

    Their names are text: matplotlib takes longer to set formulas than to draw all the rest.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    def name(value: float, _: object = None) -> str:
        power = math.floor(math.log10(value) + 1e-9)
        first = f"{value / 10.0**power:g}"
        return _power(power) if first == "1" else f"{first}\u00d7{_power(power)}"

    low, high = (math.log10(value) for value in sorted(axis.get_view_interval()))
    powers = math.floor(high) - math.ceil(low) + 1
    axis.set_major_locator(LogLocator(subs=(1.0,) if powers > 1 else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(name)
    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)) if 1 < powers < 5 else NullLocator())
    axis.set_minor_formatter(lambda *_: "")


def _power(power: int) -> str:
    """A power of ten as text."""
    return f"10{str(power).translate(RAISED)}"


def _in_order(handles: Iterable[Any]) -> list[Any]:
    """One entry of a legend for each meaning, measured curves first."""
    found: dict[str, Any] = {}
    for handle in handles:
        found.setdefault(handle.get_label(), handle)
    last = [name for name in LAST if name in found]
    return [found[name] for name in (*(name for name in found if name not in last), *last)]


def legend_above(ax: Any, handles: Sequence[Any] | None = None) -> None:
    """A legend above the panel, where no data are."""
    found = _in_order(ax.get_legend_handles_labels()[0] if handles is None else handles)
    if found:
        ax.legend(
            found,
            [plain(handle.get_label()) for handle in found],
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=2,
            frameon=False,
            fontsize="small",
            borderaxespad=0.2,
            handlelength=2.2,
            columnspacing=1.4,
        )


def legend_below(axes: Sequence[Any], handles: Sequence[Any] | None = None) -> None:
    """One legend for several panels below all of them, in rows that are as even and as few as there is room for."""
    if handles is None:
        handles = [handle for ax in axes for handle in ax.get_legend_handles_labels()[0]]
    found, figure = _in_order(handles), axes[0].figure
    if not found:
        return
    room = figure.bbox.width

    def put(columns: int) -> Any:
        return figure.legend(
            found,
            [handle.get_label() for handle in found],
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=2.2,
            columnspacing=1.4,
            borderaxespad=0.2,
        )

    for rows in range(1, len(found) + 1):
        columns = -(-len(found) // rows)
        legend = put(columns)
        if columns == 1 or legend.get_window_extent().width <= room:
            return
        legend.remove()


# ---- densities ------------------------------------------------------------------------------------------------------


DASHED = (0, (5, 2.5))  # the Gaussian
LIMIT_NAME, GAUSSIAN_NAME = "limit", "Gaussian, equal variance"
LEAST = 10  # draws in a bin of the empirical density, at least
BIN = 0.25  # its width, in standard deviations, where there are enough


def tail_bins(x: Array) -> tuple[Array, Array, Array]:
    """Empirical density at points, with standard errors: bins of a quarter standard deviation, wider in the tails.

    Bins with fewer than ten draws are joined with their outer neighbours up to one standard deviation; what is then
    still rarer is not shown.  Where a few draws make the standard deviation it is replaced, see `_bulk`.

    Shapes    (samples,) -> places (the mean of the draws in the bin), density, error
    """
    x = np.sort(np.asarray(x, dtype=np.float64).ravel())
    spread = _bulk(x)[1]
    if not 0 < spread < math.inf:
        return (np.zeros(0),) * 3
    centre = float(np.median(x))

    def side(distances: Array, sign: float) -> list[tuple[float, float, float]]:
        found = []
        distances = np.sort(distances)
        start, stop = 0.0, BIN * spread
        while start <= distances[-1] if len(distances) else False:
            first, last = np.searchsorted(distances, [start, stop])
            count = int(last - first)
            if count >= LEAST:
                place = centre + sign * float(distances[first:last].mean())
                height = count / (len(x) * (stop - start))
                found.append((place, height, height / math.sqrt(count)))
                start, stop = stop, stop + BIN * spread
            elif stop - start < spread - 1e-9 * spread:
                stop += BIN * spread
            else:
                break
        return found

    rows = side(centre - x[x < centre], -1.0)[::-1] + side(x[x >= centre] - centre, 1.0)
    places, heights, errors = np.array(rows).T if rows else (np.zeros(0),) * 3
    return places, heights, errors


def _bulk(x: Array) -> tuple[float, float]:
    """Mean and standard deviation; median and central range of 68 % where that is shorter, with very heavy tails.

    Of Gaussian draws that range is twice the standard deviation.
    """
    low, middle, high = (float(value) for value in np.quantile(x, [0.16, 0.5, 0.84]))
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = float(x.mean()), float(x.std())
    return (mean, spread) if high == low or spread <= high - low else (middle, high - low)


def density(
    samples: Any,
    law: Any = None,
    variable: str | None = None,
    ax: Any = None,
    scale: str = "both",
) -> Any:
    """Densities at finite width against the limit and against the Gaussian of equal variance.

    `samples` is one or several results of `run`; `scale` is "linear", "log" or "both" (then `ax` holds two axes).  On
    the linear scale finite widths are kernel estimates; on the log scale histograms with their counting errors, as far
    out as a bin of one standard deviation holds ten networks.
    """
    runs = one_or_several(samples, lambda run: samples_of(run, "density takes samples first, one or several"))
    if not runs and law is None:
        raise ProgramError("there is nothing to draw: give samples, a law, or both")
    netsor = runs[0].netsor if runs else law.netsor
    if variable is None:
        variable = label(netsor.outputs[0], members(netsor, netsor.outputs[0], 1)[0])
    place = split(netsor, variable)
    draws = [(f"n = {run.width}" if run.width else "draws from the limit", column(run, *place)) for run in runs]
    return density_of(draws, variable, law, ax, scale)


def density_of(
    draws: Sequence[tuple[str, Array]], variable: str, law: Any = None, ax: Any = None, scale: str = "both"
) -> Any:
    """As `density`, for draws of one variable given as (name in the legend, array)."""
    if scale not in ("linear", "log", "both"):
        raise ProgramError(f"scale must be linear, log or both, not {scale!r}")
    scales = ["linear", "log"] if scale == "both" else [scale]
    draws = [(run, np.asarray(x, dtype=np.float64).ravel()) for run, x in draws]
    limit = (
        None
        if law is None
        else law
        if isinstance(law, LimitDensity)
        else limit_density(Reference.of(law, "density takes a law second"), variable, [x for _, x in draws])
    )
    axes = axes_of(ax, len(scales), 5.0 * len(scales), 4.2)
    gaussian = _last(draws) if limit is None else (limit.mean, limit.deviation)
    centre, spread = _bulk(draws[-1][1]) if limit is None else gaussian
    curve = None if limit is None else limit.curve
    for panel, kind in zip(axes, scales, strict=True):
        _density_panel(panel, kind, draws, curve, gaussian, centre, spread)
        name_axis(panel.xaxis, variable)
        name_axis(panel.yaxis, "probability density")
        frame(panel)
    handles = _density_legend([run for run, _ in draws], axes[0])
    if len(axes) > 1:
        legend_below(axes, handles)
    else:
        legend_above(axes[0], handles)
    return axes[0] if len(axes) == 1 else np.asarray(axes, dtype=object)


def _density_legend(names: Sequence[str], ax: Any) -> list[Any]:
    """Widths as they look in both panels, then the smooth curves."""
    from matplotlib.lines import Line2D

    shades = colours(len(names))
    handles: list[Any] = [
        Line2D(
            [],
            [],
            color=shades[k],
            marker=MARKERS[k % len(MARKERS)],
            markersize=sized(4.5),
            linewidth=sized(1.3),
            label=run,
        )
        for k, run in enumerate(names)
    ]
    return handles + [line for line in ax.lines if line.get_label() in (LIMIT_NAME, GAUSSIAN_NAME)]


def _last(draws: Sequence[tuple[str, Array]]) -> tuple[float, float]:
    """Mean and standard deviation of the last sample."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(draws[-1][1].mean()), float(draws[-1][1].std())


def _density_panel(
    ax: Any,
    kind: str,
    draws: Sequence[tuple[str, Array]],
    curve: Any,
    gaussian: tuple[float, float],
    centre: float,
    spread: float,
) -> None:
    shades = colours(len(draws))
    lowest, highest, reach = math.inf, 0.0, 4.0 * spread
    for k, (run, x) in enumerate(draws):
        marker = MARKERS[k % len(MARKERS)]
        if kind == "log":
            places, heights, errors = tail_bins(x)
            if len(places):
                ax.errorbar(
                    places,
                    heights,
                    yerr=errors,
                    color=shades[k],
                    marker=marker,
                    markersize=sized(3.6),
                    linestyle="none",
                    elinewidth=sized(0.8),
                    label=run,
                    zorder=3,
                )
                lowest, highest = min(lowest, float(heights.min())), max(highest, float(heights.max()))
                reach = max(reach, float(np.abs(places - centre).max()))
        else:
            low, high = centre - 6 * spread, centre + 6 * spread
            inside = x[(low <= x) & (x <= high)]
            if len(inside) > 1 and inside.std() > 0:
                heights = binned_kde(inside, low, high) * (len(inside) / len(x))
                ax.plot(
                    np.linspace(low, high, KL_POINTS),
                    heights,
                    color=shades[k],
                    linewidth=sized(1.3),
                    label=run,
                    zorder=2 + k / 100,
                    **spaced(k, len(draws), KL_POINTS),
                )
    if not spread > 0:
        return
    floor = 10.0 ** (math.floor(math.log10(lowest)) - 1) if math.isfinite(lowest) else 1e-6 / spread
    if kind == "log":
        # as far as the limit, or the data, stay above the bottom of the picture
        x = np.linspace(centre - 40 * spread, centre + 40 * spread, 8001)
        height = curve.pdf(x) if curve is not None else _gauss(x, *gaussian)
        visible = np.abs(x - centre)[height > floor]
        reach = max(reach * 1.05, float(visible.max()) if len(visible) else 0.0)
        reach = min(reach, 40 * spread)
    x = np.linspace(centre - reach, centre + reach, 1201)
    limit, normal = np.zeros(0) if curve is None else curve.pdf(x), _gauss(x, *gaussian)
    if curve is not None:
        ax.plot(x, limit, color=LIMIT, linewidth=sized(1.8), label=LIMIT_NAME, zorder=4 if kind == "linear" else 2.5)
    ax.plot(
        x,
        normal,
        color=VERMILION,
        linewidth=sized(1.5),
        linestyle=DASHED,
        label=GAUSSIAN_NAME,
        zorder=5 if kind == "linear" else 2.4,
    )
    ax.set_xlim(centre - reach, centre + reach)
    if kind == "log":
        ax.set_yscale("log")
        ax.set_ylim(floor, 2 * float(max(highest, 10 * floor, normal.max(), limit.max(initial=0.0))))
    else:
        ax.set_ylim(bottom=0)


def spaced(k: int, count: int, points: int) -> dict[str, Any]:
    """Markers along the k-th of so many curves, not at the same places as those of the others."""
    every = points // 24
    return {"marker": MARKERS[k % len(MARKERS)], "markersize": sized(3.4), "markevery": (k * every // count, every)}


def _gauss(x: Array, centre: float, spread: float) -> Array:
    result: Array = np.exp(-0.5 * ((x - centre) / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
    return result


# ---- convergence in the width ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Series:
    """One variable over the widths, and other members of the same comparisons."""

    variable: str
    widths: list[float]
    rows: list[Row]
    others: list[list[Row]]
    first_order: Mapping[str, tuple[float, float]]


def convergence(
    comparisons: Comparison | Iterable[Comparison],
    variable: str | None = None,
    ax: Any = None,
    panels: Sequence[str] | None = None,
    first_order: Mapping[str, tuple[float, float]] | None = None,
) -> Any:
    """Distances to the limit against the width n, on log axes, with standard errors and noise floors.

    `panels` are among "kl" (the paper's kernel estimate, and where rows have it the precise one), "ks", "w1" (the
    distances of Kolmogorov-Smirnov and Wasserstein), "distances" (both in one panel), "excess" (distance of the
    kurtosis from the limit's), "variance" and "kurtosis"; by default KL, KS, Wasserstein and excess, without a limit
    the last two.  The noise floor is what draws of the limit would show, for the kurtosis its standard error.  Other
    members of the same comparisons are drawn faintly.  `first_order` has a and its error where a quantity is its
    limit + a/n + .. (`law.correction`).

    Shapes    one axes object for each panel, as `ax` and as what is returned
    """

    def read(value: Any) -> Comparison:
        if not isinstance(value, Comparison):
            raise ProgramError(f"convergence takes comparisons, one or several, not {type(value).__name__}")
        return value

    ordered = sorted((c for c in one_or_several(comparisons, read) if c.width), key=lambda c: c.width)
    if not ordered:
        raise ProgramError("there is nothing to draw: give at least one comparison of finite width")
    variable = variable or ordered[0].rows[0].variable
    known = DISTANCES | TOGETHER | STATISTICS if ordered[0].reference != "nothing" else STATISTICS
    chosen = list(panels) if panels is not None else list(DISTANCES if known != STATISTICS else STATISTICS)
    for kind in chosen:
        if kind not in known:
            raise ProgramError(f"there is no panel {kind!r} here; {did_you_mean(kind, list(known))}")
    axes = axes_of(ax, len(chosen), 3.6 * len(chosen), 3.8)
    faint = [row.variable for row in ordered[0].rows[:8] if row.variable != variable]
    series = _Series(
        variable,
        [float(c.width or 0) for c in ordered],
        [c[variable] for c in ordered],
        [[c[other] for c in ordered] for other in faint],
        first_order or {},
    )
    for kind, panel in zip(chosen, axes, strict=True):
        title = known[kind](panel, series)
        panel.set_xlabel("width n")
        name_axis(panel.yaxis, title)
        width_axis(panel, series.widths)
        frame(panel)
    if len(axes) > 1:
        legend_below(axes)
    else:
        legend_above(axes[0])
    return np.asarray(axes, dtype=object)


def _kl(ax: Any, series: _Series) -> str:
    drawn, start = _distance(ax, series, "kl", series.variable, FIRST), series.rows[0].kl
    if np.isfinite(_numbers(series.rows, "kl_precise")).any():
        drawn += _distance(ax, series, "kl_precise", f"precise, {series.variable}", SECOND, floored=False)
        start = series.rows[0].kl_precise
    _log(ax, drawn)
    _guide(ax, series.widths, start, -2)
    return "KL(finite || limit) / nats"


def _distances(ax: Any, series: _Series) -> str:
    first = _distance(ax, series, "ks", f"KS, {series.variable}", FIRST)
    _log(ax, first + _distance(ax, series, "w1", f"Wasserstein-1, {series.variable}", SECOND))
    _guide(ax, series.widths, max(series.rows[0].ks, series.rows[0].w1), -1)
    return "KS and Wasserstein-1 to the limit"


def _ks(ax: Any, series: _Series) -> str:
    _one_distance(ax, series, "ks")
    return "KS distance"


def _w1(ax: Any, series: _Series) -> str:
    _one_distance(ax, series, "w1")
    return "Wasserstein distance"


def _one_distance(ax: Any, series: _Series, key: str) -> None:
    _log(ax, _distance(ax, series, key, series.variable, FIRST))
    _guide(ax, series.widths, getattr(series.rows[0], key), -1)


def _excess(ax: Any, series: _Series) -> str:
    rows = series.rows
    error = np.hypot(_numbers(rows, "kurtosis_se"), np.nan_to_num(_numbers(rows, "limit_kurtosis_error")))
    _log(ax, _measured(ax, series, _excesses, error, series.variable, floor=error))
    if "kurtosis" in series.first_order:
        a, _ = series.first_order["kurtosis"]
        ax.plot(
            series.widths,
            abs(a) / np.asarray(series.widths),
            color=VERMILION,
            linewidth=sized(1.4),
            zorder=3.5,
            linestyle=DASHED,
            label="|a|/n, first order",
        )
    else:
        _guide(ax, series.widths, abs(rows[0].kurtosis - rows[0].limit_kurtosis), -1)
    return "|kurtosis \u2212 limit|"


def _excesses(rows: Sequence[Row]) -> Array:
    result: Array = np.abs(_numbers(rows, "kurtosis") - _numbers(rows, "limit_kurtosis"))
    return result


def _variance(ax: Any, series: _Series) -> str:
    _statistic(ax, series, "variance")
    return f"variance of {series.variable}"


def _kurtosis(ax: Any, series: _Series) -> str:
    _statistic(ax, series, "kurtosis")
    return f"kurtosis of {series.variable} (Gaussian = 3)"


Panel = Callable[[Any, _Series], str]  # draws, and says what its vertical axis is
DISTANCES: dict[str, Panel] = {"kl": _kl, "ks": _ks, "w1": _w1, "excess": _excess}
TOGETHER: dict[str, Panel] = {"distances": _distances}
STATISTICS: dict[str, Panel] = {"variance": _variance, "kurtosis": _kurtosis}


def _numbers(rows: Sequence[Row], key: str) -> Array:
    return np.array([getattr(row, key) for row in rows], dtype=np.float64)


def _distance(ax: Any, series: _Series, key: str, label: str, colour: str, floored: bool = True) -> list[Array]:
    floor = _numbers(series.rows, f"{key}_floor") if floored else None
    return _measured(
        ax, series, lambda rows: _numbers(rows, key), _numbers(series.rows, f"{key}_se"), label, colour, floor
    )


def _statistic(ax: Any, series: _Series, key: str) -> None:
    value, _ = _measured(
        ax, series, lambda rows: _numbers(rows, key), _numbers(series.rows, f"{key}_se"), series.variable
    )
    if (value > 0).all() and value.max() > 3 * value.min():
        _log(ax, [value])


def _measured(
    ax: Any,
    series: _Series,
    values: Callable[[Sequence[Row]], Array],
    error: Array,
    label: str,
    colour: str = FIRST,
    floor: Array | None = None,
) -> list[Array]:
    """Values with their errors, those of other members faintly, and a floor below which they say nothing."""
    # the second series of a panel stands a little to the right, so that error bars do not cover each other
    widths = [width * (1.0 if colour == FIRST else 1.07) for width in series.widths]
    for other in series.others:
        ax.plot(widths, values(other), color=colour, linewidth=sized(0.8), alpha=0.4, zorder=1, label="other outputs")
    value = values(series.rows)
    ax.errorbar(
        widths,
        value,
        yerr=np.nan_to_num(error),
        color=colour,
        marker="o" if colour == FIRST else "s",
        markersize=sized(5),
        linewidth=sized(1.5),
        capsize=sized(2.5),
        label=label,
        zorder=3,
    )
    if floor is None:
        return [value, value + error]
    ax.plot(widths, floor, color=colour, linestyle=(0, (1, 1.5)), linewidth=sized(1.4), label="noise floor", zorder=2)
    return [value, value + error, floor]


def _guide(ax: Any, widths: Sequence[float], start: float, slope: int) -> None:
    """A grey line of the given slope with its name, to read the rate from; it does not stretch the axes."""
    if len(widths) > 1 and start > 0 and math.isfinite(start):
        limits = ax.get_ylim()
        line = start * 1.6 * (np.asarray(widths) / widths[0]) ** slope
        ax.plot(widths, line, color=GREY, linewidth=sized(1.0), linestyle=(0, (6, 3)), zorder=0)
        place = math.sqrt(widths[0] * widths[1])
        ax.annotate(
            f"slope \u2212{-slope}",
            (place, start * 1.6 * (place / widths[0]) ** slope),
            (3.0, 1.0),
            textcoords="offset points",
            color=GREY,
            fontsize="small",
            ha="left",
            va="bottom",
        )
        ax.set_ylim(limits)


def _log(ax: Any, series: Sequence[Array]) -> None:
    seen = np.concatenate([s[np.isfinite(s) & (s > 0)] for s in series])
    if len(seen):
        ax.set_yscale("log", nonpositive="clip")
        ax.set_ylim(float(seen.min()) / 2, float(seen.max()) * 2)


# ---- covariances ----------------------------------------------------------------------------------------------------


NUMBERED = 8  # members of a family up to which cells hold numbers
TICKS = 16  # names along an axis, at most
LARGEST = 1024  # members that can be told apart in a picture
INKS = DARK, LIGHT = "#111111", "#f4f4f4"  # on cells


def covariance(law: Any, name: str, ax: Any = None) -> Any:
    """Covariance matrix over the members of a family of the limit, or of that of a member: outputs, scores, or any
    other vectors.

    Members stand in C order.  Small families have numbers in the cells; colours are centred at zero where there are
    negative covariances.

    Raises    ProgramError for a family that there is none of, or of more than 1024 members
    """
    reference = Reference.of(law, "covariance takes a law")
    variable, name = name, name_of(name).partition("[")[0]
    family = reference.netsor.families.get(name)
    if family is None or family.kind == "weight":
        known = [key for key, value in reference.netsor.families.items() if value.kind != "weight"]
        raise ProgramError(f"{variable} is not a family of {reference.netsor.name}; {did_you_mean(name, known)}")
    selected(reference.netsor, variable)
    found = reference.covariance(name, LARGEST)
    if found is None:
        raise ProgramError(
            f"{name} has {math.prod(family.shape):,} members; pictures show up to {LARGEST:,}: read "
            f"entries with law.cov({name!r}).at(I, J)"
        )
    (panel,) = axes_of(ax, 1, 5.0, 4.2)
    return matrix_of(found[0], [label(name, index) for index in members(reference.netsor, name)], name, panel)


def matrix_of(matrix: NDArray[np.float64], names: Sequence[str], name: str, panel: Any) -> Any:
    """As `covariance`, for a matrix over the members that have these names."""
    image = _cells(panel, matrix)
    step = -(-len(names) // TICKS)
    places = range(0, len(names), step)
    shown = [plain(names[k]) for k in places]
    panel.set_xticks(places, shown, rotation=90 if len(shown) > NUMBERED or max(map(len, shown)) > 5 else 0)
    panel.set_yticks(places, shown)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    panel.figure.colorbar(image, ax=panel, label=f"covariance of {plain(name)} in the limit")
    return panel


def _cells(panel: Any, matrix: NDArray[np.float64]) -> Any:
    """The matrix in colours, with numbers where there is room."""
    largest = float(np.nanmax(np.abs(matrix), initial=0.0)) or 1.0
    signed = bool((matrix < -1e-9 * largest).any())
    image = panel.imshow(
        matrix,
        cmap="RdBu" if signed else "cividis",
        vmin=-largest if signed else 0.0,
        vmax=largest,
        interpolation="nearest",
    )
    if len(matrix) <= NUMBERED:
        red, green, blue, _ = np.moveaxis(image.to_rgba(matrix), -1, 0)
        light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.18
        for i, j in np.ndindex(matrix.shape):
            value = matrix[i, j] if abs(matrix[i, j]) > 1e-12 * largest else 0.0
            panel.text(
                j,
                i,
                short(float(value)).replace("-", "\u2212"),
                ha="center",
                va="center",
                fontsize="small",
                color=DARK if light[i, j] else LIGHT,
            )
    return image

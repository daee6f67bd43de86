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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, did_you_mean, need_package
from tensorprog.language.files import whole
from tensorprog.language.formats import label, members, name_of, one_or_several, selected, short, split
from tensorprog.language.samples import column, samples_of
from tensorprog.results.comparison import Comparison, Row
from tensorprog.results.distances import KL_POINTS, binned_kde
from tensorprog.results.reference import LimitDensity, Reference

__all__ = [
    "FORMATS",
    "STYLES",
    "convergence",
    "coordinate_check",
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
LIGHT_END, DARK_END, ALONE = 0.60, 0.05, 0.35  # the part of viridis that reads on white paper
FORMATS = ("png", "svg", "pdf")
STYLES = {"column": (3.3, 1, 2.2), "page": (6.9, 3, 2.6)}  # inches, panels in a row at most, inches of a row
RESOLUTION = 300  # dots to the inch of PNG
WRITTEN: dict[str, dict[str, Any]] = {  # without dates
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
    "png": {"pil_kwargs": {"compress_level": 3}},  # half the time, files a tenth larger
}
UNSAID = dict.fromkeys(("Creator", "Date", "Format", "Type"))
RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
LOOKS: dict[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 8.0),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7.0),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    "lines.linewidth": 1.2,
    "lines.markersize": 3.4,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text can be edited
    "svg.hashsalt": "tensorprog",
    "pdf.fonttype": 42,
}


def axes_of(ax: Any, columns: int, width: float, height: float) -> list[Any]:
    """One axes object per panel: those given, or those of a new figure."""
    if ax is None:
        need_package("matplotlib", "pictures", "plot")
        from matplotlib.pyplot import figure

        made = figure(figsize=(width, height), layout="constrained")
        return list(made.subplots(1, columns, squeeze=False).ravel())
    axes = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(axes) != columns:
        raise ProgramError(f"ax must hold {columns} axes here, not {len(axes)}")
    return axes


def save(path: str | os.PathLike[str], draw: Callable[[Any], Any], panels: int = 1, style: str = "page") -> None:
    """Draw a figure and write it in one step: `draw(axes)` gets the axes, one for each panel.

    The ending of the path says how it is written: .png, .svg or .pdf; text in the last two stays text.  With the style
    "column" or "page" the figure has the width of a column (3.3 inches) or of a page (6.9 inches) of a paper.

    Raises    MissingPackageError without matplotlib, ProgramError for another style or ending
    """
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise ProgramError(f"{Path(path).name}: figures are written as {', '.join(f'.{name}' for name in FORMATS)}")
    if style not in STYLES:
        raise ProgramError(f"there is no style {style!r} of figures; {did_you_mean(style, list(STYLES))}")
    with _looks(), whole(path) as partial:
        _drawn(draw, panels, style).savefig(partial, format=kind, **WRITTEN[kind])


def svg(draw: Callable[[Any], Any], panels: int = 1, png: Path | None = None) -> str:
    """A figure as SVG text, for a page, of the width of a column or, of several panels, of a page; with `png` the same
    figure, drawn once, in a file.

    Raises    MissingPackageError without matplotlib
    """
    text = io.StringIO()
    with _looks({"svg.fonttype": "path"}):
        figure = _drawn(draw, panels, "page" if panels > 1 else "column")
        figure.savefig(text, format="svg", metadata=UNSAID)
        if png is not None:
            with whole(png) as partial:
                figure.savefig(partial, format="png", **WRITTEN["png"])
    return text.getvalue()


def _looks(more: Mapping[Any, Any] | None = None) -> Any:
    return need_package("matplotlib", "pictures", "plot").rc_context({**LOOKS, **(more or {})})


def _drawn(draw: Callable[[Any], Any], panels: int, style: str) -> Any:
    """A figure of a style with its panels in place, and a letter at each of several."""
    from matplotlib.figure import Figure

    width, most, height = STYLES[style]
    rows = -(-panels // most)
    figure: Any = Figure(figsize=(width, rows * height + 0.3), layout="constrained", dpi=RESOLUTION)
    axes = list(figure.subplots(rows, -(-panels // rows), squeeze=False).ravel())
    for ax in axes[panels:]:
        ax.remove()
    draw(axes[:panels])
    for ax, letter in zip(axes if panels > 1 else (), "abcdefghijklmnopqrstuvwxyz"[:panels], strict=False):
        ax.set_title(letter, loc="left", fontweight="bold")
    figure.get_layout_engine().execute(figure)  # once: matplotlib would draw everything again to find out where
    figure.set_layout_engine(None)
    return figure


def plain(text: str) -> str:
    """Text in which no dollar begins a formula."""
    return text.replace("$", r"\$")


def colours(count: int) -> list[Any]:
    """Colours for widths, or for other values in order, from light to dark."""
    import matplotlib

    places = np.linspace(LIGHT_END, DARK_END, count) if count > 1 else np.array([ALONE])
    return list(matplotlib.colormaps["viridis"](places))


def frame(ax: Any, x: str, y: str) -> None:
    """Frame, grid and names of a panel with all its data.

    Powers of ten are text: matplotlib takes longer to set formulas than to draw all the rest.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    if ax.get_yscale() == "log":
        low, high = ax.get_ylim()
        few = high < 20 * low
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        ax.yaxis.set_major_formatter("{x:g}" if few else lambda x, _: f"10{f'{math.log10(x):.0f}'.translate(RAISED)}")
        ax.yaxis.set_minor_locator(NullLocator())
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, alpha=0.25, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.set_xlabel(plain(x))
    ax.set_ylabel(plain(y))


def width_axis(ax: Any, widths: Sequence[float]) -> None:
    """A log axis with ticks at widths: at each, or at some of a dozen or more."""
    ax.set_xscale("log")
    shown = widths[:: max(1, len(widths) // 6)]
    ax.set_xticks(shown, [f"{width:g}" for width in shown])
    ax.set_xticks([], minor=True)
    ax.set_xlim(min(widths) / 1.5, max(widths) * 1.5)


def legend(axes: Sequence[Any], handles: Sequence[Any] | None = None) -> None:
    """One legend below all panels, with one entry for each meaning."""
    if handles is None:
        handles = [handle for ax in axes for handle in ax.get_legend_handles_labels()[0]]
        handles = sorted(handles, key=lambda handle: not isinstance(handle, tuple))  # those with error bars first
    found: dict[str, Any] = {}
    for handle in handles:
        found.setdefault(handle.get_label(), handle)
    if found:
        figure = axes[0].figure
        columns = max(1, int(figure.get_size_inches()[0] * 17 / (6 + max(map(len, found)))))
        names = [plain(name) for name in found]
        figure.legend(list(found.values()), names, loc="outside lower center", ncols=min(columns, len(found)))


# ---- densities ------------------------------------------------------------------------------------------------------


DASHED = (0, (5, 2.5))  # the Gaussian
LIMIT_NAME, GAUSSIAN_NAME = "limit", "Gaussian, equal variance"
LEAST = 10  # draws in a bin of the empirical density, at least
STEPS = np.concatenate([np.arange(0, 2.5, 0.25), np.arange(2.5, 4, 0.5), np.arange(4.0, 41)])  # in standard deviations


def tail_bins(x: Array) -> tuple[Array, Array, Array]:
    """Empirical density at points, with standard errors: bins of a quarter standard deviation, wider in the tails.

    Bins with fewer than ten draws are not shown.

    Shapes    (samples,) -> places (the mean of the draws in the bin), density, error
    """
    x = np.asarray(x, dtype=np.float64).ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float(x.std())
    if not 0 < spread < math.inf:
        return (np.zeros(0),) * 3
    edges = np.median(x) + spread * np.concatenate([-STEPS[:0:-1], STEPS])
    place = np.digitize(x, edges)
    counts, sums = (np.bincount(place, own, len(edges) + 1)[1:-1] for own in (None, x))
    shown = counts >= LEAST
    counts, heights = counts[shown], (counts / (len(x) * np.diff(edges)))[shown]
    return sums[shown] / counts, heights, heights / np.sqrt(counts)


def density(
    samples: Any,
    law: Any = None,
    variable: str | None = None,
    ax: Any = None,
    scale: str = "both",
    labels: Sequence[str] = (),
) -> Any:
    """Densities at finite width against the limit and against the Gaussian of equal variance.

    `samples` is one or several results of `run`; `scale` is "linear", "log" or "both" (then `ax` holds two axes).  On
    the linear scale finite widths are kernel estimates; on the log scale histograms with their counting errors, as far
    out as a bin of one standard deviation holds ten networks.  `labels` name the samples in the legend instead of their
    widths.
    """
    runs = one_or_several(samples, lambda run: samples_of(run, "density takes samples first, one or several"))
    if not runs and law is None:
        raise ProgramError("there is nothing to draw: give samples, a law, or both")
    netsor = runs[0].netsor if runs else law.netsor
    if variable is None:
        variable = label(netsor.outputs[0], members(netsor, netsor.outputs[0], 1)[0])
    place = split(netsor, variable)
    names = list(labels) or [f"n = {run.width}" if run.width else "draws from the limit" for run in runs]
    if len(names) != len(runs):
        raise ProgramError(f"there are {len(runs)} samples and {len(names)} labels")
    told = [{"": run.netsor.name, **run.netsor.scalars, "seed": run.seed} for run in runs]
    for key in told[0] if told and not labels else ():  # as far as it takes to tell them apart
        more = [f"{key} = {one.get(key)}" if key else str(one[""]) for one in told]
        if len(set(more)) > 1 and len(set(names)) < len(names):
            names = [f"{name}, {text}" for name, text in zip(names, more, strict=True)]
    return density_of([(n, column(run, *place)) for n, run in zip(names, runs, strict=True)], variable, law, ax, scale)


def density_of(
    draws: Sequence[tuple[str, Array]], variable: str, law: Any = None, ax: Any = None, scale: str = "both"
) -> Any:
    """As `density`, for draws of one variable given as (name in the legend, array)."""
    if scale not in ("linear", "log", "both"):
        raise ProgramError(f"scale must be linear, log or both, not {scale!r}")
    scales = ["linear", "log"] if scale == "both" else [scale]
    draws = [(run, np.asarray(x, dtype=np.float64).ravel()) for run, x in draws]
    limit = law
    if law is not None and not isinstance(law, LimitDensity):
        reference = Reference.of(law, "density takes a law second")
        limit = reference.limit_density(variable, [x for _, x in draws])
    axes = axes_of(ax, len(scales), 5.0 * len(scales), 4.2)
    with np.errstate(over="ignore", invalid="ignore"):
        last = draws[-1][1] if draws else np.zeros(1)
        gaussian = (float(last.mean()), float(last.std())) if limit is None else (limit.mean, limit.deviation)
    for panel, kind in zip(axes, scales, strict=True):
        _density_panel(panel, kind, draws, None if limit is None else limit.curve, gaussian)
        frame(panel, variable, "probability density")
    legend(axes)
    return axes[0] if len(axes) == 1 else np.asarray(axes, dtype=object)


def _density_panel(
    ax: Any,
    kind: str,
    draws: Sequence[tuple[str, Array]],
    curve: Any,
    gaussian: tuple[float, float],
) -> None:
    shades, (centre, spread) = colours(len(draws)), gaussian
    lowest, reach = math.inf, 4.0 * spread
    for k, (run, x) in enumerate(draws):
        look = {"color": shades[k], "marker": MARKERS[k % len(MARKERS)], "label": run}
        if kind == "log":
            places, heights, errors = tail_bins(x)
            if len(places):
                ax.errorbar(places, heights, yerr=errors, linestyle="none", elinewidth=0.7, zorder=3, **look)
                lowest, reach = min(lowest, heights.min()), max(reach, float(np.abs(places - centre).max()))
        else:
            low, high = centre - 6 * spread, centre + 6 * spread
            inside = x[(low <= x) & (x <= high)]
            if len(inside) > 1 and inside.std() > 0:
                heights = binned_kde(inside, low, high) * (len(inside) / len(x))
                places = np.linspace(low, high, KL_POINTS)
                ax.plot(places, heights, markevery=spaced(k, len(draws), KL_POINTS), **look)
    if not spread > 0:
        return
    floor = lowest / 10 if math.isfinite(lowest) else 1e-6 / spread
    if kind == "log":  # as far as the limit, or the data, stay above the bottom of the picture
        x = np.linspace(centre - 40 * spread, centre + 40 * spread, 8001)
        visible = np.abs(x - centre)[(curve.pdf(x) if curve is not None else _gauss(x, *gaussian)) > floor]
        reach = min(max(reach * 1.05, float(visible.max(initial=0.0))), 40 * spread)
    x = np.linspace(centre - reach, centre + reach, 1201)
    if curve is not None:
        ax.plot(x, curve.pdf(x), color=LIMIT, linewidth=1.4, label=LIMIT_NAME, zorder=4 if kind == "linear" else 2.5)
    ax.plot(x, _gauss(x, *gaussian), color=VERMILION, linestyle=DASHED, label=GAUSSIAN_NAME, zorder=2.4)
    ax.set_xlim(centre - reach, centre + reach)
    if kind == "log":
        ax.set_yscale("log", nonpositive="clip")
        ax.set_ylim(bottom=floor)
    else:
        ax.set_ylim(bottom=0)


def spaced(k: int, count: int, points: int) -> tuple[int, int]:
    """Places of markers along the k-th of so many curves, not the same as those of the others."""
    every = points // 24
    return k * every // count, every


def _gauss(x: Array, centre: float, spread: float) -> Array:
    result: Array = np.exp(-0.5 * ((x - centre) / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
    return result


# ---- convergence in the width ---------------------------------------------------------------------------------------


DISTANCES = {  # panels, with the names of their vertical axes
    "kl": "KL(finite || limit) / nats",
    "ks": "KS distance",
    "excess": "|kurtosis \u2212 limit|",
}
STATISTICS = {"variance": "variance", "kurtosis": "kurtosis (Gaussian = 3)"}


def convergence(
    comparisons: Comparison | Iterable[Comparison],
    variable: str | None = None,
    ax: Any = None,
    panels: Sequence[str] | None = None,
    first_order: Mapping[str, tuple[float, float]] | None = None,
    over: tuple[str, Sequence[float]] | None = None,
) -> Any:
    """Distances to the limit against the width n, on log axes, with standard errors and noise floors.

    `panels` are among "kl" (the paper's kernel estimate, and where rows have it the precise one), "ks" (the distance of
    Kolmogorov-Smirnov), "excess" (distance of the kurtosis from the limit's), "variance" and "kurtosis"; by default the
    first three, without a limit the last two.  The noise floor is what draws of the limit would show, for the kurtosis
    its standard error.  `first_order` has a and its error
    where a quantity is its limit + a/n + .. (`law.correction`).  With `over`, the name of a constant and its values,
    comparisons of one width stand against the constant.

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
    limited = ordered[0].reference != "nothing"
    known = DISTANCES | STATISTICS if limited else STATISTICS
    chosen = list(panels) if panels is not None else list(DISTANCES if limited else STATISTICS)
    for kind in chosen:
        if kind not in known:
            raise ProgramError(f"there is no panel {kind!r} here; {did_you_mean(kind, list(known))}")
    axes = axes_of(ax, len(chosen), 3.6 * len(chosen), 3.8)
    name, at = ("width n", [float(c.width or 0) for c in ordered]) if over is None else over
    widths = np.array(at, dtype=np.float64)
    rows = [c[variable] for c in ordered]
    for kind, panel in zip(chosen, axes, strict=True):
        _measured(panel, widths, rows, kind, variable, FIRST)
        if kind == "kl" and np.isfinite(_of(rows, "kl_precise")).any():
            _measured(panel, widths * 1.07, rows, "kl_precise", f"precise, {variable}", SECOND)
        if kind in DISTANCES or kind == "variance":
            panel.set_yscale("log", nonpositive="clip")
        if kind == "excess" and first_order and "kurtosis" in first_order:
            a = abs(first_order["kurtosis"][0])
            panel.plot(widths, a / widths, color=VERMILION, linestyle=DASHED, label="|a|/n, first order")
        elif kind in DISTANCES and over is None:
            _guide(panel, widths, float(_of(rows, kind)[0]), -2 if kind == "kl" else -1)
        if over is None or widths.min() > 0:
            width_axis(panel, list(widths))
        frame(panel, name, known[kind] if kind in DISTANCES else known[kind].replace(kind, f"{kind} of {variable}"))
    legend(axes)
    return np.asarray(axes, dtype=object)


def _of(rows: Sequence[Row], key: str) -> Array:
    if key == "excess":
        return np.asarray(np.abs(_of(rows, "kurtosis") - _of(rows, "limit_kurtosis")))
    return np.array([getattr(row, key, math.nan) for row in rows], dtype=np.float64)


def _measured(ax: Any, widths: Array, rows: Sequence[Row], key: str, name: str, colour: str) -> None:
    """Values with their errors, and a floor below which they say nothing."""
    error = np.nan_to_num(_of(rows, f"{key}_se"))
    floor = _of(rows, f"{key}_floor")
    if key == "excess":
        error = floor = np.hypot(_of(rows, "kurtosis_se"), np.nan_to_num(_of(rows, "limit_kurtosis_error")))
    marker = "o" if colour == FIRST else "s"
    ax.errorbar(
        widths, _of(rows, key), yerr=error, color=colour, marker=marker, markersize=4, capsize=2, label=name, zorder=3
    )
    if np.isfinite(floor).any():
        ax.plot(widths, floor, color=colour, linestyle=":", label="noise floor", zorder=2)


def _guide(ax: Any, widths: Array, start: float, slope: int) -> None:
    """A grey line of the given slope with its name, to read the rate from; it does not stretch the axes."""
    if len(widths) > 1 and start > 0 and math.isfinite(start):
        limits = ax.get_ylim()
        line = start * 1.6 * (widths / widths[0]) ** slope
        ax.plot(widths, line, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
        text = f"slope \u2212{-slope}"
        ax.annotate(
            text,
            (widths[1], line[1]),
            (4.0, 2.0),
            textcoords="offset points",
            color=GREY,
            fontsize="small",
            va="bottom",
        )
        ax.set_ylim(limits)


def of_study(study: Any, variable: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[str, ...]]:
    """What draws the density of a variable, what draws its convergence in the width, and the panels of the latter."""
    limited = study.limit_of(variable)
    law = study.densities.get(variable, study.compared) if limited else None
    panels = tuple(DISTANCES if limited else STATISTICS)
    first = study.first_orders.get(variable)
    return (
        lambda axes: density_of(study.columns[variable], variable, law, axes),
        lambda axes: convergence(study.comparisons, variable, axes, panels, first),
        panels,
    )


# ---- coordinate checks ----------------------------------------------------------------------------------------------


FEWFOLD = 4.0  # sizes that differ by no larger factor stand on a linear axis


def coordinate_check(found: Any, what: str = "size", ax: Any = None) -> Any:
    """Sizes of each family against the width, a line for each step, as `tp.train` finds them; dashed is the limit.

    `what` is "size", "second_moment" or "change".  Without networks of two widths, steps stand on the horizontal axis.

    Shapes    one axes object for each family, as `ax` and as what is returned
    """
    families, widths = found["family"].values, found["width"].values if "width" in found else np.zeros(0)
    axes, steps = axes_of(ax, len(families), 2.6 * len(families), 3.0), found["step"].values
    name = "width n" if len(widths) > 1 else "step"
    for k, (family, panel) in enumerate(zip(families, axes, strict=True)):
        drawn, error = (
            found[f"{what}{end}"].values[..., k] if f"{what}{end}" in found else np.zeros((0, len(steps)))
            for end in ("_finite", "_finite_se")
        )
        limit = found[what].values[:, k] if what in found else np.full(len(steps), np.nan)
        if len(widths) > 1:
            for t, shade in zip(steps, colours(len(steps)), strict=True):
                look = {"color": shade, "marker": MARKERS[t % len(MARKERS)], "label": f"step {t}"}
                panel.errorbar(widths, drawn[:, t], yerr=error[:, t], elinewidth=0.7, **look)
                if limit[t] > 0:
                    panel.axhline(limit[t], color=shade, linestyle=DASHED, linewidth=0.8, zorder=1)
            width_axis(panel, widths.tolist())
        else:
            panel.plot(steps, limit, color=LIMIT, linestyle=DASHED, label=LIMIT_NAME)
            for n, value, spread in zip(widths, drawn, error, strict=True):
                panel.errorbar(steps, value, yerr=spread, marker="o", linestyle="none", color=FIRST, label=f"n = {n}")
        shown = np.concatenate([drawn.ravel(), limit[np.isfinite(limit)]])
        shown = shown[shown > 0]
        if len(shown) and shown.max() > FEWFOLD * shown.min():
            panel.set_yscale("log", nonpositive="mask")
        frame(panel, name, str(family))
    handles = axes[0].get_legend_handles_labels()[0]
    if what in found and len(widths) > 1:
        from matplotlib.lines import Line2D

        handles = [*handles, Line2D([], [], color=GREY, linestyle=DASHED, label=LIMIT_NAME)]
    legend(axes, handles)
    return np.asarray(axes, dtype=object)


# ---- covariances ----------------------------------------------------------------------------------------------------


NUMBERED = 8  # members of a family up to which cells hold numbers
TICKS = 16  # names along an axis, at most
LARGEST = 1024  # members that can be told apart in a picture


def covariance(law: Any, name: str, ax: Any = None) -> Any:
    """Covariance matrix over the members of a family of the limit, or of that of a member: outputs, scores, or any
    other vectors.

    Members stand in C order.  Small families have numbers in the cells; colours are centred at zero where there are
    negative covariances.

    Raises    ProgramError for a family that there is none of, or of more than 1024 members
    """
    reference = Reference.of(law, "covariance takes a law")
    variable, name = name, name_of(name).partition("[")[0]
    selected(reference.netsor, variable)
    family = reference.netsor.families[name]
    if family.kind == "weight" or math.prod(family.shape) > LARGEST:
        raise ProgramError(
            f"there is no picture of {name}: it is a weight, or has more than {LARGEST:,} members; read "
            f"entries with law.cov({name!r}).at(I, J)"
        )
    (panel,) = axes_of(ax, 1, 5.0, 4.2)
    names = [label(name, index) for index in members(reference.netsor, name)]
    values = reference.covariance(name)[0]
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    signed = bool((values < -1e-9 * largest).any())
    low = -largest if signed else 0.0
    image = panel.imshow(values, cmap="RdBu" if signed else "cividis", vmin=low, vmax=largest, aspect="auto")
    step, rotated = -(-len(names) // TICKS), len(names) > NUMBERED or max(map(len, names)) > 5
    shown = [plain(name) for name in names[::step]]
    panel.set_yticks(range(0, len(names), step), shown)
    panel.set_xticks(range(0, len(names), step), shown, rotation=90 if rotated else 0)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    if max(values.shape) <= NUMBERED:
        light = image.to_rgba(values)[..., :3] @ [0.299, 0.587, 0.114] > 0.5
        for i, j in np.ndindex(values.shape):
            value = float(values[i, j]) if abs(values[i, j]) > 1e-12 * largest else 0.0
            ink = "#111111" if light[i, j] else "#f4f4f4"
            panel.text(j, i, short(value), ha="center", va="center", fontsize="small", color=ink)
    panel.figure.colorbar(image, ax=panel, label=f"covariance of {plain(name)} in the limit")
    return panel

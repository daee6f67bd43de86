"""Pictures: densities against the limit, and convergence in the width.  They compute nothing but histograms.

Functions take `ax=None` and return the axes; colours are told apart by colour-blind readers, and widths by markers too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.comparison import Comparison, Row
from tensorprog.distances import KL_POINTS, binned_kde
from tensorprog.errors import ProgramError, TensorprogError
from tensorprog.files import whole
from tensorprog.reference import Reference, column, label, members, split

__all__ = ["PlotsUnavailableError", "convergence", "density", "density_of", "save"]

Array = NDArray[Any]

LIMIT = "#000000"
GAUSSIAN = "#D55E00"  # vermilion of Okabe & Ito
LIMIT_NAME, GAUSSIAN_NAME = "limit", "Gaussian, equal variance"
FIRST, SECOND, GREY = "#0072B2", "#CC79A7", "#777777"
NOISE, ERROR = "noise floor", "standard error"
MARKERS = "os^Dv<>pP*X"
LEAST = 10  # draws in a bin of the empirical density, at least
BIN = 0.25  # its width, in standard deviations, where there are enough


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


def _axes(ax: Any, columns: int, width: float, height: float) -> list[Any]:
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


def _plain(text: str) -> str:
    return text.replace("$", r"\$")


def _colours(count: int) -> list[Any]:
    import matplotlib

    shades = matplotlib.colormaps["viridis"](np.linspace(0.82, 0.12, count) if count > 1 else np.array([0.35]))
    return list(shades)


def _style(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, which="major", color="#000000", alpha=0.10, linewidth=0.6)
    ax.set_axisbelow(True)


def tail_bins(x: Array) -> tuple[Array, Array, Array]:
    """Empirical density at points, with standard errors: bins of a quarter standard deviation, wider in the tails.

    Bins with fewer than ten draws are joined with their outer neighbours up to one standard deviation; what is then
    still rarer is not shown.

    Shapes    (samples,) -> places (the mean of the draws in the bin), density, error
    """
    x = np.sort(np.asarray(x, dtype=np.float64).ravel())
    spread = float(x.std())
    if not spread > 0:
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


def density(
    samples: Any, law: Any = None, variable: str | None = None, ax: Any = None, scale: str = "both",
) -> Any:
    """Densities at finite width against the limit and against the Gaussian of equal variance.

    `samples` is one or several results of `run`; `scale` is "linear", "log" or "both" (then `ax` holds two axes).  On
    the linear scale finite widths are kernel estimates; on the log scale histograms with their counting errors, as far
    out as a bin of one standard deviation holds ten networks.
    """
    runs = [samples] if hasattr(samples, "outputs") else list(samples)
    if not runs and law is None:
        raise ProgramError("there is nothing to draw: give samples, a law, or both")
    netsor = runs[0].netsor if runs else law.netsor
    if variable is None:
        name = netsor.outputs[0]
        variable = label(name, members(netsor, name, 1)[0])
    name, position = split(netsor, variable)
    draws = [(f"n = {run.width}" if run.width else "draws from the limit", column(run, name, position)) for run in runs]
    return density_of(draws, variable, law, ax, scale)


def density_of(
    draws: Sequence[tuple[str, Array]], variable: str, law: Any = None, ax: Any = None, scale: str = "both"
) -> Any:
    """As `density`, for draws of one variable given as (name in the legend, array)."""
    if scale not in ("linear", "log", "both"):
        raise ProgramError(f"scale must be linear, log or both, not {scale!r}")
    scales = ["linear", "log"] if scale == "both" else [scale]
    draws = [(name, np.asarray(x, dtype=np.float64).ravel()) for name, x in draws]
    reference = None if law is None else Reference.of(law)
    axes = _axes(ax, len(scales), 5.0 * len(scales), 4.2)
    centre, spread = _centre(reference, variable, draws)
    low = min([centre - 12 * spread, *(float(x.min()) for _, x in draws)])
    high = max([centre + 12 * spread, *(float(x.max()) for _, x in draws)])
    curve = reference.curve(variable, low, high) if reference is not None and spread > 0 else None
    for panel, kind in zip(axes, scales, strict=True):
        _density_panel(panel, kind, draws, curve, centre, spread)
        panel.set_xlabel(_plain(variable))
        panel.set_ylabel("probability density" + (", log scale" if kind == "log" else ""))
        _style(panel)
    handles = _density_legend([name for name, _ in draws], axes[0])
    if len(axes) > 1:
        # below both panels, where no data are
        axes[0].figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), frameon=False)
    else:
        axes[0].legend(handles=handles, loc="upper right" if scale == "linear" else "lower center", frameon=False,
                       fontsize="small")
    return axes[0] if len(axes) == 1 else np.asarray(axes, dtype=object)


def _density_legend(names: Sequence[str], ax: Any) -> list[Any]:
    """Widths as they look in both panels, then the smooth curves."""
    from matplotlib.lines import Line2D

    colours = _colours(len(names))
    handles: list[Any] = [
        Line2D([], [], color=colours[k], marker=MARKERS[k % len(MARKERS)], markersize=4.5, linewidth=1.3, label=name)
        for k, name in enumerate(names)
    ]
    return handles + [line for line in ax.lines if line.get_label() in (LIMIT_NAME, GAUSSIAN_NAME)]


def _centre(reference: Reference | None, variable: str, draws: Sequence[tuple[str, Array]]) -> tuple[float, float]:
    """Mean and standard deviation of the limit, or else of the last sample."""
    if reference is not None:
        name, position = split(reference.netsor, variable)
        values = reference.moments(name)
        return float(values["mean"][0][position]), math.sqrt(max(0.0, float(values["variance"][0][position])))
    return float(draws[-1][1].mean()), float(draws[-1][1].std())


def _density_panel(
    ax: Any, kind: str, draws: Sequence[tuple[str, Array]], curve: Any, centre: float, spread: float
) -> None:
    colours = _colours(len(draws))
    lowest, reach = math.inf, 4.0 * spread
    for k, (name, x) in enumerate(draws):
        marker = MARKERS[k % len(MARKERS)]
        if kind == "log":
            places, heights, errors = tail_bins(x)
            if len(places):
                ax.errorbar(places, heights, yerr=errors, color=colours[k], marker=marker, markersize=3.6,
                            linestyle="none", elinewidth=0.8, label=name, zorder=3)
                lowest = min(lowest, float(heights.min()))
                reach = max(reach, float(np.abs(places - centre).max()))
        elif x.std() > 0:
            low, high = centre - 6 * spread, centre + 6 * spread
            inside = np.linspace(low, high, KL_POINTS)
            ax.plot(inside, binned_kde(x, low, high), color=colours[k], linewidth=1.3, label=name, zorder=2 + k / 100)
    if not spread > 0:
        return
    floor = 10.0 ** (math.floor(math.log10(lowest)) - 1) if math.isfinite(lowest) else 1e-6 / spread
    if kind == "log":
        # as far as the limit, or the data, stay above the bottom of the picture
        x = np.linspace(centre - 40 * spread, centre + 40 * spread, 8001)
        height = curve.pdf(x) if curve is not None else _gauss(x, centre, spread)
        visible = np.abs(x - centre)[height > floor]
        reach = max(reach * 1.05, float(visible.max()) if len(visible) else 0.0)
        reach = min(reach, 40 * spread)
    x = np.linspace(centre - reach, centre + reach, 1201)
    if curve is not None:
        ax.plot(x, curve.pdf(x), color=LIMIT, linewidth=1.8, label=LIMIT_NAME, zorder=4 if kind == "linear" else 2.5)
    ax.plot(x, _gauss(x, centre, spread), color=GAUSSIAN, linewidth=1.5, linestyle=(0, (5, 2.5)),
            label=GAUSSIAN_NAME, zorder=5 if kind == "linear" else 2.4)
    ax.set_xlim(centre - reach, centre + reach)
    if kind == "log":
        ax.set_yscale("log")
        ax.set_ylim(bottom=floor)
    else:
        ax.set_ylim(bottom=0)


def _gauss(x: Array, centre: float, spread: float) -> Array:
    result: Array = np.exp(-0.5 * ((x - centre) / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
    return result


def convergence(comparisons: Iterable[Comparison], variable: str | None = None, ax: Any = None) -> Any:
    """Distances to the limit against the width n, on log axes, with standard errors and noise floors.

    Three panels: KL; KS and Wasserstein-1; distance of the kurtosis from the limit's.  Without a limit two panels:
    variance and kurtosis.  Other members of the same comparisons are drawn faintly.
    """
    ordered = sorted((c for c in comparisons if c.width), key=lambda c: c.width or 0)
    if not ordered:
        raise ProgramError("there is nothing to draw: give at least one comparison of finite width")
    variable = variable or ordered[0].rows[0].variable
    widths = [float(c.width or 0) for c in ordered]
    rows = [c[variable] for c in ordered]
    limit = ordered[0].reference != "nothing"
    axes = _axes(ax, 3 if limit else 2, 12.0 if limit else 8.4, 4.0)
    faint = [row.variable for row in ordered[0].rows[:8] if row.variable != variable]
    others = [[c[name] for c in ordered] for name in faint]
    if limit:
        _log(axes[0], _distance(axes[0], widths, rows, others, "kl", variable, FIRST, "o"))
        _guide(axes[0], widths, rows[0].kl, -2)
        _log(axes[1], _distance(axes[1], widths, rows, others, "ks", f"KS, {variable}", FIRST, "o")
             + _distance(axes[1], widths, rows, others, "w1", f"Wasserstein-1, {variable}", SECOND, "s"))
        _guide(axes[1], widths, max(rows[0].ks, rows[0].w1), -1)
        _log(axes[2], _excess(axes[2], widths, rows, others, variable))
        _guide(axes[2], widths, abs(rows[0].kurtosis - rows[0].limit_kurtosis), -1)
        titles = ["KL(finite || limit) / nats", "KS and Wasserstein-1 to the limit", "|kurtosis \u2212 limit|"]
    else:
        _statistic(axes[0], widths, rows, others, "variance", FIRST)
        _statistic(axes[1], widths, rows, others, "kurtosis", FIRST)
        titles = [f"variance of {variable}", f"kurtosis of {variable} (Gaussian = 3)"]
    for panel, title in zip(axes, titles, strict=True):
        panel.set_xlabel("width n")
        panel.set_ylabel(_plain(title))
        _width_axis(panel, widths)
        _style(panel)
        _legend_above(panel)
    return np.asarray(axes, dtype=object)


def _legend_above(ax: Any) -> None:
    """A legend above the panel, where no data are; measured curves first, one entry per meaning."""
    handles, labels = ax.get_legend_handles_labels()
    found = dict(zip(labels, handles, strict=True))
    last = [name for name in ("other outputs", NOISE, ERROR) if name in found]
    last += [name for name in found if name.startswith("slope")]
    order = [name for name in found if name not in last] + last
    if order:
        ax.legend([found[name] for name in order], [_plain(name) for name in order], loc="lower left",
                  bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, fontsize="small", borderaxespad=0.2,
                  handlelength=2.2, columnspacing=1.4)


def _width_axis(ax: Any, widths: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    ax.set_xscale("log")
    shown = [w for k, w in enumerate(widths) if k % max(1, len(widths) // 6) == 0]
    ax.xaxis.set_major_locator(FixedLocator(shown))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticklabels([f"{w:g}" for w in shown])
    ax.set_xlim(min(widths) / 1.5, max(widths) * 1.5)


def _numbers(rows: Sequence[Row], key: str) -> Array:
    return np.array([getattr(row, key) for row in rows], dtype=np.float64)


def _distance(
    ax: Any, widths: Sequence[float], rows: Sequence[Row], others: Sequence[Sequence[Row]], key: str, name: str,
    colour: str, marker: str,
) -> list[Array]:
    # the second series of a panel stands a little to the right, so that error bars do not cover each other
    widths = [width * (1.07 if marker == "s" else 1.0) for width in widths]
    value, error, floor = (_numbers(rows, key + suffix) for suffix in ("", "_se", "_floor"))
    for other in others:
        ax.plot(widths, _numbers(other, key), color=colour, linewidth=0.8, alpha=0.4, zorder=1, label="other outputs")
    ax.errorbar(widths, value, yerr=np.nan_to_num(error), color=colour, marker=marker, markersize=5, linewidth=1.5,
                capsize=2.5, label=name, zorder=3)
    ax.plot(widths, floor, color=colour, linestyle=(0, (1, 1.5)), linewidth=1.4, label=NOISE, zorder=2)
    return [value, value + error, floor]


def _excess(
    ax: Any, widths: Sequence[float], rows: Sequence[Row], others: Sequence[Sequence[Row]], name: str
) -> list[Array]:
    def difference(some: Sequence[Row]) -> Array:
        result: Array = np.abs(_numbers(some, "kurtosis") - _numbers(some, "limit_kurtosis"))
        return result

    value = difference(rows)
    error = np.hypot(_numbers(rows, "kurtosis_se"), np.nan_to_num(_numbers(rows, "limit_kurtosis_error")))
    for other in others:
        ax.plot(widths, difference(other), color=FIRST, linewidth=0.8, alpha=0.4, zorder=1, label="other outputs")
    ax.errorbar(widths, value, yerr=np.nan_to_num(error), color=FIRST, marker="o", markersize=5, linewidth=1.5,
                capsize=2.5, label=name, zorder=3)
    ax.plot(widths, error, color=FIRST, linestyle=(0, (1, 1.5)), linewidth=1.4, label=ERROR, zorder=2)
    return [value, value + error, error]


def _guide(ax: Any, widths: Sequence[float], start: float, slope: int) -> None:
    """A grey line of the given slope, to read the rate from; it does not stretch the axes."""
    if len(widths) > 1 and start > 0 and math.isfinite(start):
        limits = ax.get_ylim()
        line = start * 1.6 * (np.asarray(widths) / widths[0]) ** slope
        ax.plot(widths, line, color=GREY, linewidth=1.0, linestyle=(0, (6, 3)), zorder=0, label=f"slope \u2212{-slope}")
        ax.set_ylim(limits)


def _log(ax: Any, series: Sequence[Array]) -> None:
    seen = np.concatenate([s[np.isfinite(s) & (s > 0)] for s in series])
    if len(seen):
        ax.set_yscale("log", nonpositive="clip")
        ax.set_ylim(float(seen.min()) / 2, float(seen.max()) * 2)


def _statistic(
    ax: Any, widths: Sequence[float], rows: Sequence[Row], others: Sequence[Sequence[Row]], key: str, colour: str
) -> None:
    for other in others:
        ax.plot(widths, _numbers(other, key), color=colour, linewidth=0.7, alpha=0.35, zorder=1)
    ax.errorbar(widths, _numbers(rows, key), yerr=np.nan_to_num(_numbers(rows, f"{key}_se")), color=colour, marker="o",
                markersize=5, linewidth=1.5, capsize=2.5, zorder=3)
    value = _numbers(rows, key)
    if (value > 0).all() and value.max() > 3 * value.min():
        _log(ax, [value])

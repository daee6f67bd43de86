"""Densities at finite width against the limit.  Pictures compute nothing but histograms and kernel estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError
from tensorprog.language.formats import label, members, one_or_several, split
from tensorprog.language.samples import column, samples_of
from tensorprog.results.distances import KL_POINTS, binned_kde
from tensorprog.results.reference import Reference
from tensorprog.show.plots.axes import LIMIT, MARKERS, VERMILION, axes_of, colours, legend_above, name, style

__all__ = ["density", "density_of", "tail_bins"]

Array = NDArray[Any]

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
    samples: Any, law: Any = None, variable: str | None = None, ax: Any = None, scale: str = "both",
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
    reference = None if law is None else Reference.of(law, "density takes a law second")
    axes = axes_of(ax, len(scales), 5.0 * len(scales), 4.2)
    gaussian = _moments(reference, variable, draws)
    centre, spread = gaussian if reference is not None else _bulk(draws[-1][1])
    low = min([centre - 12 * spread, *(float(x.min()) for _, x in draws)])
    high = max([centre + 12 * spread, *(float(x.max()) for _, x in draws)])
    curve = reference.curve(variable, low, high) if reference is not None and spread > 0 else None
    for panel, kind in zip(axes, scales, strict=True):
        _density_panel(panel, kind, draws, curve, gaussian, centre, spread)
        name(panel.xaxis, variable)
        name(panel.yaxis, "probability density" + (", log scale" if kind == "log" else ""))
        style(panel)
    handles = _density_legend([run for run, _ in draws], axes[0])
    if len(axes) > 1:
        # below both panels, where no data are
        axes[0].figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), frameon=False)
    else:
        legend_above(axes[0], handles)
    return axes[0] if len(axes) == 1 else np.asarray(axes, dtype=object)


def _density_legend(names: Sequence[str], ax: Any) -> list[Any]:
    """Widths as they look in both panels, then the smooth curves."""
    from matplotlib.lines import Line2D

    shades = colours(len(names))
    handles: list[Any] = [
        Line2D([], [], color=shades[k], marker=MARKERS[k % len(MARKERS)], markersize=4.5, linewidth=1.3, label=run)
        for k, run in enumerate(names)
    ]
    return handles + [line for line in ax.lines if line.get_label() in (LIMIT_NAME, GAUSSIAN_NAME)]


def _moments(reference: Reference | None, variable: str, draws: Sequence[tuple[str, Array]]) -> tuple[float, float]:
    """Mean and standard deviation of the limit, or else of the last sample."""
    if reference is not None:
        family, position = split(reference.netsor, variable)
        values = reference.moments(family)
        return float(values["mean"][0][position]), math.sqrt(max(0.0, float(values["variance"][0][position])))
    with np.errstate(over="ignore", invalid="ignore"):
        return float(draws[-1][1].mean()), float(draws[-1][1].std())


def _density_panel(
    ax: Any, kind: str, draws: Sequence[tuple[str, Array]], curve: Any, gaussian: tuple[float, float], centre: float,
    spread: float,
) -> None:
    shades = colours(len(draws))
    lowest, highest, reach = math.inf, 0.0, 4.0 * spread
    for k, (run, x) in enumerate(draws):
        marker = MARKERS[k % len(MARKERS)]
        if kind == "log":
            places, heights, errors = tail_bins(x)
            if len(places):
                ax.errorbar(places, heights, yerr=errors, color=shades[k], marker=marker, markersize=3.6,
                            linestyle="none", elinewidth=0.8, label=run, zorder=3)
                lowest, highest = min(lowest, float(heights.min())), max(highest, float(heights.max()))
                reach = max(reach, float(np.abs(places - centre).max()))
        else:
            low, high = centre - 6 * spread, centre + 6 * spread
            inside = x[(low <= x) & (x <= high)]
            if len(inside) > 1 and inside.std() > 0:
                heights = binned_kde(inside, low, high) * (len(inside) / len(x))
                ax.plot(np.linspace(low, high, KL_POINTS), heights, color=shades[k], linewidth=1.3, label=run,
                        zorder=2 + k / 100)
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
        ax.plot(x, limit, color=LIMIT, linewidth=1.8, label=LIMIT_NAME, zorder=4 if kind == "linear" else 2.5)
    ax.plot(x, normal, color=VERMILION, linewidth=1.5, linestyle=(0, (5, 2.5)),
            label=GAUSSIAN_NAME, zorder=5 if kind == "linear" else 2.4)
    ax.set_xlim(centre - reach, centre + reach)
    if kind == "log":
        ax.set_yscale("log")
        ax.set_ylim(floor, 2 * float(max(highest, 10 * floor, normal.max(), limit.max(initial=0.0))))
    else:
        ax.set_ylim(bottom=0)


def _gauss(x: Array, centre: float, spread: float) -> Array:
    result: Array = np.exp(-0.5 * ((x - centre) / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
    return result

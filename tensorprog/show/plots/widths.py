"""Distances to the limit, or statistics, against the width."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, did_you_mean
from tensorprog.language.formats import one_or_several
from tensorprog.results.comparison import Comparison, Row
from tensorprog.show.plots.axes import FIRST, GREY, SECOND, axes_of, legend_above, name, style, width_axis

__all__ = ["convergence"]

Array = NDArray[Any]


@dataclass(frozen=True)
class _Series:
    """One variable over the widths, and other members of the same comparisons."""

    variable: str
    widths: list[float]
    rows: list[Row]
    others: list[list[Row]]


def convergence(
    comparisons: Comparison | Iterable[Comparison], variable: str | None = None, ax: Any = None,
    panels: Sequence[str] | None = None,
) -> Any:
    """Distances to the limit against the width n, on log axes, with standard errors and noise floors.

    `panels` are among "kl" (the paper's kernel estimate, and where rows have it the precise one), "distances" (KS and
    Wasserstein-1), "excess" (distance of the kurtosis from the limit's), "variance" and "kurtosis"; by default the
    first three, without a limit the last two.  Other members of the same comparisons are drawn faintly.

    Shapes    one axes object for each panel, as `ax` and as what is returned
    """
    ordered = sorted((c for c in one_or_several(comparisons, _comparison) if c.width), key=lambda c: c.width)
    if not ordered:
        raise ProgramError("there is nothing to draw: give at least one comparison of finite width")
    variable = variable or ordered[0].rows[0].variable
    known = DISTANCES | STATISTICS if ordered[0].reference != "nothing" else STATISTICS
    chosen = list(panels) if panels is not None else list(DISTANCES if known != STATISTICS else STATISTICS)
    for kind in chosen:
        if kind not in known:
            raise ProgramError(f"there is no panel {kind!r} here; {did_you_mean(kind, list(known))}")
    axes = axes_of(ax, len(chosen), 4.1 * len(chosen), 4.0)
    faint = [row.variable for row in ordered[0].rows[:8] if row.variable != variable]
    series = _Series(variable, [float(c.width or 0) for c in ordered], [c[variable] for c in ordered],
                     [[c[other] for c in ordered] for other in faint])
    for kind, panel in zip(chosen, axes, strict=True):
        title = known[kind](panel, series)
        panel.set_xlabel("width n")
        name(panel.yaxis, title)
        width_axis(panel, series.widths)
        style(panel)
        legend_above(panel)
    return np.asarray(axes, dtype=object)


def _comparison(value: Any) -> Comparison:
    if not isinstance(value, Comparison):
        raise ProgramError(f"convergence takes comparisons, one or several, not {type(value).__name__}")
    return value


def _kl(ax: Any, series: _Series) -> str:
    drawn, start = _distance(ax, series, "kl", f"kernel estimate, {series.variable}", FIRST, "o"), series.rows[0].kl
    if np.isfinite(_numbers(series.rows, "kl_precise")).any():
        drawn += _distance(ax, series, "kl_precise", f"precise, {series.variable}", SECOND, "s", floored=False)
        start = series.rows[0].kl_precise
    _log(ax, drawn)
    _guide(ax, series.widths, start, -2)
    return "KL(finite || limit) / nats"


def _distances(ax: Any, series: _Series) -> str:
    first = _distance(ax, series, "ks", f"KS, {series.variable}", FIRST, "o")
    _log(ax, first + _distance(ax, series, "w1", f"Wasserstein-1, {series.variable}", SECOND, "s"))
    _guide(ax, series.widths, max(series.rows[0].ks, series.rows[0].w1), -1)
    return "KS and Wasserstein-1 to the limit"


def _excess(ax: Any, series: _Series) -> str:
    rows = series.rows
    value = _excesses(rows)
    error = np.hypot(_numbers(rows, "kurtosis_se"), np.nan_to_num(_numbers(rows, "limit_kurtosis_error")))
    for other in series.others:
        ax.plot(series.widths, _excesses(other), color=FIRST, linewidth=0.8, alpha=0.4, zorder=1, label="other outputs")
    ax.errorbar(series.widths, value, yerr=np.nan_to_num(error), color=FIRST, marker="o", markersize=5, linewidth=1.5,
                capsize=2.5, label=series.variable, zorder=3)
    ax.plot(series.widths, error, color=FIRST, linestyle=(0, (1, 1.5)), linewidth=1.4, label="standard error", zorder=2)
    _log(ax, [value, value + error, error])
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
DISTANCES: dict[str, Panel] = {"kl": _kl, "distances": _distances, "excess": _excess}
STATISTICS: dict[str, Panel] = {"variance": _variance, "kurtosis": _kurtosis}


def _numbers(rows: Sequence[Row], key: str) -> Array:
    return np.array([getattr(row, key) for row in rows], dtype=np.float64)


def _distance(
    ax: Any, series: _Series, key: str, label: str, colour: str, marker: str, floored: bool = True
) -> list[Array]:
    # the second series of a panel stands a little to the right, so that error bars do not cover each other
    widths = [width * (1.07 if marker == "s" else 1.0) for width in series.widths]
    value, error = _numbers(series.rows, key), _numbers(series.rows, f"{key}_se")
    for other in series.others:
        ax.plot(widths, _numbers(other, key), color=colour, linewidth=0.8, alpha=0.4, zorder=1, label="other outputs")
    ax.errorbar(widths, value, yerr=np.nan_to_num(error), color=colour, marker=marker, markersize=5, linewidth=1.5,
                capsize=2.5, label=label, zorder=3)
    if not floored:
        return [value, value + error]
    floor = _numbers(series.rows, f"{key}_floor")
    ax.plot(widths, floor, color=colour, linestyle=(0, (1, 1.5)), linewidth=1.4, label="noise floor", zorder=2)
    return [value, value + error, floor]


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


def _statistic(ax: Any, series: _Series, key: str) -> None:
    for other in series.others:
        ax.plot(series.widths, _numbers(other, key), color=FIRST, linewidth=0.7, alpha=0.35, zorder=1,
                label="other outputs")
    value, error = _numbers(series.rows, key), np.nan_to_num(_numbers(series.rows, f"{key}_se"))
    ax.errorbar(series.widths, value, yerr=error, color=FIRST, marker="o", markersize=5, linewidth=1.5, capsize=2.5,
                label=series.variable, zorder=3)
    if (value > 0).all() and value.max() > 3 * value.min():
        _log(ax, [value])

"""Distances to the limit, or statistics, against the width."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.comparison import Comparison, Row
from tensorprog.errors import ProgramError
from tensorprog.plots.axes import FIRST, GREY, SECOND, axes_of, legend_above, plain, style

__all__ = ["convergence"]

Array = NDArray[Any]


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
    axes = axes_of(ax, 3 if limit else 2, 12.0 if limit else 8.4, 4.0)
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
        panel.set_ylabel(plain(title))
        _width_axis(panel, widths)
        style(panel)
        legend_above(panel)
    return np.asarray(axes, dtype=object)


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
    ax.plot(widths, floor, color=colour, linestyle=(0, (1, 1.5)), linewidth=1.4, label="noise floor", zorder=2)
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
    ax.plot(widths, error, color=FIRST, linestyle=(0, (1, 1.5)), linewidth=1.4, label="standard error", zorder=2)
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

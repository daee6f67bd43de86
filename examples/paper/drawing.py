"""How the figures look: colours that colour-blind readers tell apart, markers, lines, labelled axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.show.plots import (
    DASHED,
    FIRST,
    GREY,
    LIMIT,
    MARKERS,
    SECOND,
    VERMILION,
    colours,
    frame,
    spaced,
)

__all__ = [
    "FIRST",
    "GREY",
    "LIMIT",
    "SECOND",
    "VERMILION",
    "bars",
    "both",
    "colours",
    "curve",
    "difference",
    "gaussian",
    "kernel",
    "labels",
    "level",
    "line",
    "points",
    "power",
    "spike",
    "trials",
]

Array = NDArray[Any]

GAUSSIAN_NAME = "Gaussian, H to infinity"


def kernel(ax: Any, y: Array, density: Array, colour: Any, label: str, k: int, count: int) -> Any:
    """A kernel estimate: the k-th of so many, with the marker that its counts have on the log scale."""
    return ax.plot(
        y,
        density,
        color=colour,
        linewidth=1.0,
        label=label,
        zorder=3,
        marker=MARKERS[k],
        markevery=spaced(k, count, len(y)),
    )[0]


def bars(ax: Any, table: Mapping[str, Array], colour: Any, label: str, strong: bool) -> Any:
    """A histogram: filled, or where it is not to hide another one an outline."""
    edges = [*table["left"], table["right"][-1]]
    if strong:
        return ax.stairs(table["density"], edges, color=colour, linewidth=0.8, label=label, zorder=2.2)
    return ax.stairs(table["density"], edges, color=colour, alpha=0.3, linewidth=0, fill=True, label=label, zorder=2)


def points(ax: Any, table: Mapping[str, Array], colour: Any, label: str, k: int) -> Any:
    """Counts in bins, with counting errors."""
    return ax.errorbar(
        table["y"],
        table["density"],
        yerr=table["error"],
        color=colour,
        marker=MARKERS[k],
        markersize=2.7,
        linestyle="none",
        elinewidth=0.6,
        label=label,
        zorder=3,
    )


def curve(ax: Any, y: Array, density: Array, colour: Any, label: str, dotted: bool = False) -> Any:
    """The density of a limit: solid, or dotted to let another one be seen below it."""
    return ax.plot(
        y,
        density,
        color=colour,
        linewidth=1.3,
        label=label,
        zorder=3.2 if dotted else 3.1,
        linestyle=(0, (1, 1.2)) if dotted else "-",
    )[0]


def gaussian(ax: Any, y: Array, density: Array) -> Any:
    """The Gaussian limit of infinitely many heads: dashed, above limits that may coincide with it."""
    return ax.plot(y, density, color=VERMILION, linewidth=1.1, linestyle=DASHED, label=GAUSSIAN_NAME, zorder=4)[0]


def difference(ax: Any, table: Mapping[str, Array], y: Array, gaussian: Array, colour: Any, k: int) -> None:
    """What a density has more than a Gaussian, with standard errors."""
    from scipy.interpolate import CubicSpline

    ax.errorbar(
        table["y"],
        table["density"] - CubicSpline(y, gaussian)(table["y"]),
        yerr=table["error"],
        color=colour,
        marker=MARKERS[k],
        markersize=2.7,
        linestyle="none",
        elinewidth=0.6,
        zorder=3,
    )


def both(draw: Callable[..., Any], axes: Sequence[Any], *given: Any) -> Any:
    """The same in several panels; gives what belongs into the legend."""
    first, *_ = [draw(ax, *given) for ax in axes]
    return first


def spike(ax: Any, colour: str, label: str) -> Any:
    """A point mass at zero."""
    return ax.axvline(0.0, color=colour, linewidth=1.4, label=label, zorder=2.5)


def trials(
    ax: Any, n: Array, low: Array, middle: Array, high: Array, colour: str, label: str, k: int, joined: bool = True
) -> Any:
    """Points with error bars."""
    return ax.errorbar(
        n,
        middle,
        yerr=[middle - low, high - middle],
        color=colour,
        marker=MARKERS[k],
        markersize=3.6,
        linewidth=1.0,
        linestyle="-" if joined else "none",
        capsize=2.0,
        label=label,
        zorder=3 + k,
    )


def power(ax: Any, n: Array, values: Array, colour: str, label: str) -> Any:
    """A fitted power law."""
    return ax.plot(n, values, color=colour, linewidth=0.8, linestyle=(0, (5, 2)), label=label, zorder=2)[0]


def line(ax: Any, value: float, colour: str, label: str) -> Any:
    """A horizontal line."""
    return ax.axhline(value, color=colour, linewidth=1.1, linestyle=(0, (1, 1.5)), label=label, zorder=1.5)


def level(ax: Any, values: Array, colour: str, label: str) -> Any:
    """A horizontal line: the mean of log values over trials, in a band of one standard deviation."""
    logs = np.log(values)
    low, middle, high = np.exp(logs.mean() + logs.std() * np.array([-1.0, 0.0, 1.0]))
    ax.axhspan(low, high, color=colour, alpha=0.15, linewidth=0, zorder=1)
    return ax.axhline(middle, color=colour, linewidth=1.0, linestyle=DASHED, label=label, zorder=1.5)


def labels(ax: Any, x: str, y: str) -> None:
    """Names of the axes, and the frame."""
    frame(ax, x, y)

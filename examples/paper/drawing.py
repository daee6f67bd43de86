"""How the figures look: colours that colour-blind readers tell apart, markers, lines, labelled axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.show.plots import FIRST, GREY, LIMIT, MARKERS, SECOND, VERMILION, style

__all__ = [
    "FIRST", "GREEN", "GREY", "LIMIT", "VERMILION", "bars", "both", "colours", "curve", "gaussian", "kernel", "labels",
    "level", "line", "points", "power", "spike", "trials",
]

Array = NDArray[Any]

ORANGE, GREEN = "#E69F00", "#009E73"  # of Okabe & Ito
COLOURS = (ORANGE, GREEN, FIRST, SECOND)
GAUSSIAN_NAME = "Gaussian, H to infinity"


def colours(count: int) -> Sequence[str]:
    """Colours of so many cases; one or two of them are the strongest."""
    return COLOURS if count > 3 else COLOURS[1:] if count == 3 else (FIRST, ORANGE)


def kernel(ax: Any, y: Array, density: Array, colour: str, label: str, k: int) -> Any:
    """A kernel estimate: dashed, with the marker that its counts have on the log scale."""
    return ax.plot(y, density, color=colour, linewidth=1.2, linestyle=(0, (4, 1.5)), marker=MARKERS[k], markersize=3.0,
                   markevery=(5 * k, 20), label=label, zorder=3)[0]


def bars(ax: Any, table: Mapping[str, Array], colour: str, label: str) -> Any:
    """A histogram: filled, with its outline."""
    edges = [*table["left"], table["right"][-1]]
    ax.stairs(table["density"], edges, color=colour, linewidth=0.7, zorder=2.2)
    return ax.stairs(table["density"], edges, color=colour, alpha=0.35, fill=True, label=label, zorder=2)


def points(ax: Any, table: Mapping[str, Array], colour: str, label: str, k: int) -> Any:
    """Counts in bins, with counting errors."""
    return ax.errorbar(table["y"], table["density"], yerr=table["error"], color=colour, marker=MARKERS[k],
                       markersize=2.8, linestyle="none", elinewidth=0.8, label=label, zorder=3)


def curve(ax: Any, y: Array, density: Array, colour: str, label: str) -> Any:
    """The density of a limit: solid."""
    return ax.plot(y, density, color=colour, linewidth=1.5, label=label, zorder=2.6)[0]


def gaussian(ax: Any, y: Array, density: Array, colour: str) -> Any:
    """The Gaussian limit of infinitely many heads: dots, above limits that may coincide with it."""
    return ax.plot(y, density, color=colour, linewidth=1.3, linestyle=(0, (1, 2)), label=GAUSSIAN_NAME, zorder=4)[0]


def both(draw: Callable[..., Any], axes: Sequence[Any], *given: Any) -> Any:
    """The same in two panels; gives what belongs into the legend."""
    first, _ = (draw(ax, *given) for ax in axes)
    return first


def spike(ax: Any, colour: str, label: str) -> Any:
    """A point mass at zero."""
    return ax.axvline(0.0, color=colour, linewidth=1.8, label=label, zorder=2.5)


def trials(
    ax: Any, n: Array, low: Array, middle: Array, high: Array, colour: str, label: str, k: int, joined: bool = True
) -> Any:
    """Points with error bars."""
    return ax.errorbar(n, middle, yerr=[middle - low, high - middle], color=colour, marker=MARKERS[k], markersize=4.5,
                       linewidth=1.2, linestyle="-" if joined else "none", capsize=2.5, label=label, zorder=3 + k)


def power(ax: Any, n: Array, values: Array, colour: str, label: str) -> Any:
    """A fitted power law."""
    return ax.plot(n, values, color=colour, linewidth=1.0, linestyle=(0, (5, 2)), label=label, zorder=2)[0]


def line(ax: Any, value: float, colour: str, label: str) -> Any:
    """A horizontal line."""
    return ax.axhline(value, color=colour, linewidth=1.4, linestyle=(0, (1, 1.5)), label=label, zorder=1.5)


def level(ax: Any, values: Array, colour: str, label: str) -> Any:
    """A horizontal line: the mean of log values over trials, in a band of one standard deviation."""
    logs = np.log(values)
    low, middle, high = np.exp(logs.mean() + logs.std() * np.array([-1.0, 0.0, 1.0]))
    ax.axhspan(low, high, color=colour, alpha=0.15, linewidth=0, zorder=1)
    return ax.axhline(middle, color=colour, linewidth=1.2, linestyle=(0, (5, 2.5)), label=label, zorder=1.5)


def labels(ax: Any, x: str, y: str) -> None:
    """Names of the axes, and the frame."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    style(ax)

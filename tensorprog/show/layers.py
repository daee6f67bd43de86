"""Pictures of depth profiles: curves over the layers, and maps over two constants."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.formats import short
from tensorprog.show.plots import (
    LIMIT,
    MARKERS,
    FigureStyle,
    colours,
    frame,
    legend_below,
    name_axis,
    plain,
    save,
    sized,
)

__all__ = ["LayerCurve", "LayerMap", "LayerPanel", "save_layers"]

Array = NDArray[Any]
WIDELY = 30.0  # numbers whose ratio is larger stand on a log axis
NUMBERED = 8  # values of a constant up to which cells hold numbers
SIGNS = 8  # markers along a curve of networks, about
LIGHTEST = 0.5  # of cells with dark letters


@dataclass(frozen=True)
class LayerCurve:
    """One quantity over the layers: of the limit, a line, broken where it is extrapolated, or of networks, markers.

    `shade` counts choices.

    Shapes    value, error (layers,), nan where there is none
    """

    label: str
    value: Array
    error: Array
    shade: int = 0
    width: int | None = None  # position among widths
    measured: bool = False  # extrapolated from networks


@dataclass(frozen=True)
class LayerMap:
    """One quantity of the last layer over two constants.

    Shapes    value (values of the first, values of the second)
    """

    names: tuple[str, str]
    values: tuple[Sequence[float], Sequence[float]]
    value: Array


@dataclass(frozen=True)
class LayerPanel:
    """A quantity: its name, and what is drawn of it."""

    title: str
    curves: Sequence[LayerCurve] = ()
    map: LayerMap | None = None


def save_layers(
    path: str | os.PathLike[str],
    panels: Sequence[LayerPanel],
    layers: Sequence[int],
    index: str,
    shades: int,
    style: str | FigureStyle = "page",
) -> None:
    """Write a picture with one panel for each quantity, curves in so many shades.

    Raises    PlotsUnavailableError without matplotlib
    """

    def draw(axes: Sequence[Any]) -> None:
        for panel, ax in zip(panels, axes, strict=False):
            if panel.map is not None:
                _map(ax, panel.map, panel.title)
            else:
                _curves(ax, panel, layers, index, shades)
        if len({name for ax in axes for name in ax.get_legend_handles_labels()[1]}) > 1:
            legend_below(axes)

    save(path, draw, len(panels), style=style)


def _curves(ax: Any, panel: LayerPanel, layers: Sequence[int], index: str, shades: int) -> None:
    x = np.asarray(layers, dtype=np.float64)
    chosen = [LIMIT] if shades == 1 else colours(shades)
    seen = np.concatenate([curve.value[np.isfinite(curve.value)] for curve in panel.curves])
    if len(seen) and seen.min() > 0 and seen.max() > WIDELY * seen.min():
        ax.set_yscale("log")
    widths = colours(1 + max((curve.width for curve in panel.curves if curve.width is not None), default=0))
    for curve in panel.curves:
        colour = chosen[curve.shade]
        if curve.width is None:
            low, high = curve.value - curve.error, curve.value + curve.error
            ax.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
            ax.plot(
                x,
                curve.value,
                color=colour,
                linewidth=sized(1.6),
                label=curve.label,
                zorder=3,
                linestyle="dashed" if curve.measured else "solid",
            )
        else:
            step = max(1, len(x) // SIGNS)
            ax.errorbar(
                x[::step],
                curve.value[::step],
                yerr=np.nan_to_num(curve.error[::step]),
                color=widths[curve.width] if shades == 1 else colour,
                linestyle="none",
                marker=MARKERS[curve.width % len(MARKERS)],
                markersize=sized(4),
                elinewidth=sized(0.8),
                markerfacecolor="none" if shades > 1 else None,
                label=curve.label,
                zorder=4,
                clip_on=False,
            )
    ax.set_xlim(min(x), max(x) if len(x) > 1 else min(x) + 1)
    ax.set_xlabel(plain(f"layer {index}"))
    name_axis(ax.yaxis, panel.title)
    frame(ax)


def _map(ax: Any, shown: LayerMap, title: str) -> None:
    """Cells over the values of two constants, the first upwards."""
    (first, second), value = shown.values, shown.value
    image = ax.imshow(value, origin="lower", aspect="auto", cmap="viridis", interpolation="nearest")
    for axis, name, values in ((ax.xaxis, shown.names[1], second), (ax.yaxis, shown.names[0], first)):
        step = -(-len(values) // NUMBERED)
        axis.set_ticks(range(0, len(values), step), [f"{number:.3g}" for number in values[::step]])
        axis.set_label_text(plain(name))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if max(value.shape) <= NUMBERED:
        red, green, blue, _ = np.moveaxis(image.to_rgba(value), -1, 0)
        light = 0.299 * red + 0.587 * green + 0.114 * blue > LIGHTEST
        for i, j in np.ndindex(value.shape):
            if np.isfinite(value[i, j]):
                ax.text(
                    j,
                    i,
                    short(float(value[i, j])),
                    ha="center",
                    va="center",
                    fontsize="small",
                    color="#111111" if light[i, j] else "#f4f4f4",
                )
    ax.figure.colorbar(image, ax=ax)
    ax.set_title(plain(title), fontsize="medium")

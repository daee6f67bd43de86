"""depth.png: a panel for each quantity, curves over the layers or a map over two constants; drawn from depth.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.jobs.depths.quantities import LONG_NAMES, QUANTITIES
from tensorprog.show import plots

__all__ = ["save_picture"]

Found = Mapping[str, Any]  # the content of depth.json
WIDELY = 30.0  # numbers whose ratio is larger stand on a log axis
SIGNS = 8  # markers along a curve of networks, about


def save_picture(path: Path, found: Found) -> None:
    """Write the picture of what `depth_json` gives.

    Raises    PlotsUnavailableError without matplotlib
    """
    profiles = found["profiles"]
    held = {
        name for profile in profiles for part in (profile["limit"] or {}, *profile.get("finite", ())) for name in part
    }
    names = [name for name in QUANTITIES if name in held]
    varied = {
        name: list(dict.fromkeys(profile["constants"][name] for profile in profiles))
        for name in profiles[0]["constants"]
    }
    mapped = sum(len(values) > 1 for values in varied.values()) == 2 and any(profile["limit"] for profile in profiles)

    def draw(axes: Any) -> None:
        for name, ax in zip(names, axes, strict=True):
            if mapped:
                _map(ax, found, name, {key: values for key, values in varied.items() if len(values) > 1})
            else:
                _curves(ax, found, name)
        if not mapped:
            plots.legend(axes)

    plots.save(path, draw, len(names))


def _numbers(values: Any) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _curves(ax: Any, found: Found, name: str) -> None:
    """The limit of each choice of constants in bands of its errors, and networks."""
    profiles, x = found["profiles"], np.array(found["layers"], dtype=np.float64)
    shades = plots.colours(len(profiles))
    for profile, shade in zip(profiles, shades, strict=True):
        choice = ", ".join(f"{key}={number:g}" for key, number in profile["constants"].items())
        if name in (limit := profile["limit"] or {}):
            value, error = (_numbers(limit[name][key]) for key in ("value", "error"))
            ax.fill_between(x, value - error, value + error, color=shade, alpha=0.18, linewidth=0)
            ax.plot(x, value, color=shade, label=choice or "limit")
        for number, networks in enumerate(profile.get("finite", ())):
            if name in networks:
                value, error = (_numbers(networks[name][key]) for key in ("value", "error"))
                step = slice(None, None, max(1, len(x) // SIGNS))
                label = ", ".join(filter(None, [f"n = {networks['width']}", choice]))
                marker = plots.MARKERS[number % len(plots.MARKERS)]
                look = {"linestyle": "none", "elinewidth": 0.7, "marker": marker, "markerfacecolor": "none"}
                ax.errorbar(x[step], value[step], yerr=np.nan_to_num(error[step]), color=shade, label=label, **look)
    seen = np.concatenate([line.get_ydata() for line in ax.lines])
    if np.nanmin(seen) > 0 and np.nanmax(seen) > WIDELY * np.nanmin(seen):
        ax.set_yscale("log")
    plots.frame(ax, f"layer {found['index']}", LONG_NAMES[name])


def _map(ax: Any, found: Found, name: str, varied: Mapping[str, list[float]]) -> None:
    """The last layer over two constants, the first upwards."""
    (first, rows), (second, columns) = varied.items()
    value = np.full((len(rows), len(columns)), np.nan)
    for profile in found["profiles"]:
        if profile["limit"] and name in profile["limit"]:
            place = rows.index(profile["constants"][first]), columns.index(profile["constants"][second])
            value[place] = _numbers(profile["limit"][name]["value"])[-1]
    image = plots.cells(ax, value, [f"{number:g}" for number in rows], [f"{number:g}" for number in columns])
    ax.invert_yaxis()
    ax.set_xlabel(plots.plain(second))
    ax.set_ylabel(plots.plain(first))
    ax.figure.colorbar(image, ax=ax, label=LONG_NAMES[name])

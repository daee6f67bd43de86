"""depth.png: a panel for each quantity, curves over the layers or a map over two constants; drawn from depth.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.jobs.depths.quantities import LONG_NAMES, QUANTITIES
from tensorprog.show.layers import LayerCurve, LayerMap, LayerPanel, save_layers

__all__ = ["save_picture"]

Found = Mapping[str, Any]  # the content of depth.json


def save_picture(path: Path, found: Found, style: str = "page") -> None:
    """Write the picture of what `DepthProfile.to_json` gives.

    Raises    PlotsUnavailableError without matplotlib
    """
    profiles = found["profiles"]
    held = {name for profile in profiles for part in _parts(profile) for name in part}
    names = [name for name in QUANTITIES if name in held]
    varied = {
        name: list(dict.fromkeys(profile["constants"][name] for profile in profiles))
        for name in profiles[0]["constants"]
    }
    varied = {name: values for name, values in varied.items() if len(values) > 1}
    mapped = len(varied) == 2 and any(profile["limit"] for profile in profiles)
    panels = [_map(found, name, varied) if mapped else _curves(profiles, name) for name in names]
    save_layers(path, panels, found["layers"], found["index"], len(profiles), style)


def _parts(profile: Found) -> list[Found]:
    return [profile["limit"] or {}, *profile.get("finite", ())]


def _numbers(values: Any) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _curves(profiles: list[Found], name: str) -> LayerPanel:
    """The limit of each choice of constants, and networks."""
    shown = []
    several = len(profiles) > 1
    for shade, profile in enumerate(profiles):
        choice = ", ".join(f"{key}={number:g}" for key, number in profile["constants"].items())
        limit, *finite = _parts(profile)
        if name in limit:
            value, error = (_numbers(limit[name][key]) for key in ("value", "error"))
            shown.append(LayerCurve(choice if several else "limit", value, error, shade))
        line = profile.get("extrapolated") or {}
        if name in line:
            value, error = (_numbers(line[name][key]) for key in ("value", "error"))
            label = "1/n = 0, from networks"
            shown.append(LayerCurve(f"{label}, {choice}" if several else label, value, error, shade, measured=True))
        for number, networks in enumerate(finite):
            if name in networks:
                label = f"n = {networks['width']}" + (f", {choice}" if several else "")
                value, error = (_numbers(networks[name][key]) for key in ("value", "error"))
                shown.append(LayerCurve(label, value, error, shade, number))
    return LayerPanel(LONG_NAMES[name], shown)


def _map(found: Found, name: str, varied: Mapping[str, list[float]]) -> LayerPanel:
    """The last layer over two constants."""
    (first, rows), (second, columns) = varied.items()
    value = np.full((len(rows), len(columns)), np.nan)
    for profile in found["profiles"]:
        if profile["limit"] and name in profile["limit"]:
            place = rows.index(profile["constants"][first]), columns.index(profile["constants"][second])
            value[place] = _numbers(profile["limit"][name]["value"])[-1]
    title = f"{LONG_NAMES[name]}, {found['index']} = {found['layers'][-1]}"
    return LayerPanel(title, map=LayerMap((first, second), (rows, columns), value))

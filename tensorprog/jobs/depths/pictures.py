"""depth.png: a panel for each quantity, curves over the layers or a map over two constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tensorprog.jobs.depths.quantities import LONG_NAMES
from tensorprog.jobs.depths.results import DepthProfile
from tensorprog.show.layers import LayerCurve, LayerMap, LayerPanel, save_layers

__all__ = ["save_picture"]


def save_picture(path: Path, profile: DepthProfile) -> None:
    """Write the picture.

    Raises    PlotsUnavailableError without matplotlib
    """
    question = profile.question
    varied = [(name, values) for name, values in question.over if len(values) > 1]
    panels = [_map(profile, name) if len(varied) == 2 and profile.limit else _curves(profile, name)
              for name in profile.names]
    save_layers(path, panels, question.layers, question.index, len(question.choices))


def _curves(profile: DepthProfile, name: str) -> LayerPanel:
    """The limit of each choice of constants, and networks."""
    found = []
    several = len(profile.question.choices) > 1
    for shade, choice in enumerate(profile.question.choices):
        limit = profile.limit.get(choice.position)
        if limit is not None and name in limit.values:
            found.append(LayerCurve(str(choice) if several else "limit", limit.values[name], limit.errors[name], shade))
        for number, width in enumerate(profile.widths):
            curves = profile.finite[choice.position, width]
            if name in curves.values:
                label = f"n = {width}" + (f", {choice}" if several else "")
                found.append(LayerCurve(label, curves.values[name], curves.errors[name], shade, number))
    return LayerPanel(LONG_NAMES[name], found)


def _map(profile: DepthProfile, name: str) -> LayerPanel:
    """The last layer over two constants."""
    question = profile.question
    value = np.full([len(values) for _, values in question.over], np.nan)
    for place, curves in profile.limit.items():
        if name in curves.values:
            value[place] = curves.values[name][-1]
    varied = [(key, values) for key, values in question.over if len(values) > 1]
    shape = [len(values) for _, values in varied]
    (first, rows), (second, columns) = varied
    title = f"{LONG_NAMES[name]}, {question.index} = {question.layers[-1]}"
    return LayerPanel(title, map=LayerMap((first, second), (rows, columns), value.reshape(shape)))

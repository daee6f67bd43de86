"""What a drawn panel shows as numbers, for pages that let readers point at them.

They are read from the panel itself, so that they are those of the picture.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["readings"]

Array = NDArray[Any]
POINTS = 200  # of a smooth curve, about


def readings(ax: Any, kind: str, output: str) -> str:
    """The curves of a panel as JSON: names, places, heights, errors, colours, and the axes.

    `kind` says what panels of other outputs show the same of `output`.
    """
    curves, bars = [], set()
    for container in ax.containers:
        line, caps, stems = container.lines
        bars |= {id(part) for part in (line, *caps)}
        errors = [
            abs(float(segment[1][1] - segment[0][1])) / 2 if len(segment) > 1 else 0.0
            for stem in stems
            for segment in stem.get_segments()
        ]
        curves.append(_curve(line, str(container.get_label()), np.array(errors)))
    curves += [_curve(line, str(line.get_label()), np.zeros(0)) for line in ax.lines if id(line) not in bars]
    found = {
        "kind": kind,
        "output": output,
        "x": ax.get_xlabel(),
        "y": ax.get_ylabel(),
        "scales": [ax.get_xscale(), ax.get_yscale()],
        "limits": [*_rounded(ax.get_xlim()), *_rounded(ax.get_ylim())],
        "curves": [curve for curve in curves if not curve["name"].startswith("_")],
    }
    return json.dumps(found, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _curve(line: Any, name: str, errors: Array) -> dict[str, Any]:
    x, y = (np.asarray(values, dtype=np.float64) for values in line.get_data())
    step = max(1, len(x) // POINTS)
    style = line.get_linestyle()
    return {
        "name": name.replace("\\$", "$"),
        "colour": _hex(line.get_color()),
        "x": _rounded(x[::step]),
        "y": _rounded(y[::step]),
        "errors": _rounded(errors) if len(errors) == len(x) else [],
        "points": line.get_marker() not in ("None", "none", "", " ", None) and line.get_markevery() is None,
        "line": style not in ("None", "none", ""),
        "dashed": style in ("--", ":", "-."),
        "faint": line.get_alpha() is not None,
    }


def _hex(colour: Any) -> str:
    """A colour of a line, which is text or its red, green and blue between 0 and 1."""
    if isinstance(colour, str):
        return colour.lower()
    return "#" + "".join(f"{round(255 * float(channel)):02x}" for channel in tuple(colour)[:3])


def _rounded(values: Any) -> list[float | None]:
    """Five digits, and nothing for what is not finite."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]

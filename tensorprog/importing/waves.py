"""Fixed vectors that differ from coordinate to coordinate: the cosines and sines of rotary positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Wave", "recognised"]

CLOSE = 2e-5  # of cosines in single precision


@dataclass(frozen=True)
class Wave:
    """scale * function(position * frequency * base**(-coordinate)), with coordinates 0, 1/m, 2/m, .. below 1."""

    function: str
    base: float
    scale: float = 1.0
    frequency: float = 1.0


def recognised(one: Any, other: Any) -> Wave | None:
    """What two tables (positions, coordinates), at both widths, are waves of; None for anything else."""
    for function in ("cos", "sin"):
        found = [_of(np.asarray(table, float), function) for table in (one, other)]
        if found[0] is not None and found[1] is not None and abs(found[0].base / found[1].base - 1) < 1e-3:
            best = found[1]
            base = round(best.base) if abs(best.base / round(best.base) - 1) < 1e-3 else best.base
            wave = Wave(function, float(base), float(f"{best.scale:.5g}"), float(f"{best.frequency:.5g}"))
            if all(_matches(np.asarray(table, float), wave) for table in (one, other)):
                return wave
    return None


def _of(table: Any, function: str) -> Wave | None:
    """The base of a table of waves: from the angles of position 1."""
    if table.shape[0] < 2 or table.shape[1] < 2:
        return None
    frequency = 1.0
    scale = float(table[0, 0]) if function == "cos" else float(table[1, 0]) / math.sin(1.0)
    if function == "cos" and scale and abs(table[1, 0] / scale) <= 1:
        frequency = math.acos(table[1, 0] / scale)
    if function == "sin" and len(table) > 2 and table[1, 0] and 0 < abs(table[2, 0] / table[1, 0]) < 2:
        frequency = math.acos(table[2, 0] / (2 * table[1, 0]))  # sin 2f = 2 cos f sin f
        scale = float(table[1, 0]) / math.sin(frequency)
    frequency = 1.0 if abs(frequency - 1) < CLOSE else frequency
    if not scale or not frequency or np.abs(table[1] / scale).max() > 1 + CLOSE:
        return None
    values = np.clip(table[1] / scale, -1, 1)
    angles = np.arccos(values) if function == "cos" else np.arcsin(values)
    k = int(np.argmin(np.abs(angles - 0.3 * frequency)))  # where the angle is told best
    if not k or angles[k] <= 0:
        return None
    return Wave(function, math.exp(-math.log(angles[k] / frequency) * table.shape[1] / k), scale, frequency)


def _matches(table: Any, wave: Wave) -> bool:
    places, coordinates = np.arange(table.shape[0]), np.arange(table.shape[1]) / table.shape[1]
    angles = places[:, None] * wave.frequency * wave.base**-coordinates
    made = wave.scale * (np.cos(angles) if wave.function == "cos" else np.sin(angles))
    return bool(np.abs(made - table).max() < CLOSE * max(1, table.shape[0] / 10) * abs(wave.scale))

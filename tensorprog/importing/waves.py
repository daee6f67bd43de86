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
    """function(position * base**(-coordinate)), with coordinates 0, 1/m, 2/m, .. below 1."""

    function: str
    base: float

    def matches(self, table: Any) -> bool:
        """Whether a table (positions, coordinates) is one of these numbers."""
        places, coordinates = np.arange(table.shape[0]), np.arange(table.shape[1]) / table.shape[1]
        made = {"cos": np.cos, "sin": np.sin}[self.function](places[:, None] * self.base**-coordinates)
        return bool(np.abs(made - table).max() < CLOSE * max(1, table.shape[0] / 10))


def recognised(one: Any, other: Any) -> Wave | None:
    """What two tables (positions, coordinates), at both widths, are waves of; None for anything else."""
    if other.shape[0] < 2 or other.shape[1] < 2:
        return None
    for function, inverse in (("cos", np.arccos), ("sin", np.arcsin)):
        angles = inverse(np.clip(other[1], -1, 1))
        k = int(np.argmin(np.abs(angles - 0.3)))  # where the angle is told best
        if k and angles[k] > 0:
            base = math.exp(-math.log(angles[k]) * other.shape[1] / k)
            wave = Wave(function, float(round(base)) if abs(base / max(round(base), 1) - 1) < 1e-3 else base)
            if wave.matches(one) and wave.matches(other):
                return wave
    return None

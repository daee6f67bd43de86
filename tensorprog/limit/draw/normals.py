"""Where the standard normals of draws come from: points given beforehand, or random streams that can be read anywhere.

A source is a block of normals (members, *rest) for each draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHUNK", "Normals", "Points", "Some", "Source", "Streams"]

Array = NDArray[Any]
Key = tuple[str, ...]
Source = tuple[Key, tuple[int, ...]]
CHUNK = 1 << 18  # numbers held at once, about, while draws are evaluated


class Points:
    """Normals of `draws` draws, given as points, source after source.

    Shapes    points (draws, numbers)
    """

    def __init__(self, sources: Sequence[Source], points: Array) -> None:
        self.draws, self._points, start = len(points), points, 0
        self._at: dict[Key, tuple[int, tuple[int, ...]]] = {}
        for key, shape in sources:
            self._at[key] = start, shape
            start += math.prod(shape)

    def of(self, key: Key, places: Array) -> Array:
        """Those of the members at `places` (ascending) of a source.

        Shapes    (draws, places, *rest)
        """
        start, shape = self._at[key]
        block = self._points[:, start : start + math.prod(shape)].reshape(self.draws, *shape)
        return block if len(places) == shape[0] else block[:, places]


class Streams:
    """Normals of block number `number` of the draws with a seed.

    Each source is cut into runs of whole members of about CHUNK numbers, and each run has a stream of its own.  So
    numbers depend on neither what else is read nor in which order, and those of large sources need not be kept.
    """

    def __init__(self, sources: Sequence[Source], draws: int, seed: int, number: int) -> None:
        self.draws, self._seed, self._number = draws, seed, number
        self._at = {key: (position, shape) for position, (key, shape) in enumerate(sources)}

    def of(self, key: Key, places: Array) -> Array:
        """See `Points.of`."""
        position, (members, *rest) = self._at[key]
        length = max(1, CHUNK // max(1, self.draws * math.prod(rest)))
        runs, run_of = np.unique(places // length, return_inverse=True)
        parts = []
        for run in runs:
            entropy = np.random.SeedSequence(self._seed, spawn_key=(self._number, position, int(run)))
            size = (self.draws, min(length, members - int(run) * length), *rest)
            parts.append(np.random.Generator(np.random.SFC64(entropy)).standard_normal(size))
        none = np.empty((self.draws, 0, *rest))
        block = parts[0] if len(parts) == 1 else np.concatenate([none, *parts], axis=1)
        return block if len(places) == block.shape[1] else block[:, run_of * length + places % length]


class Some:
    """Those of some draws among others, by a slice or by their numbers, which may occur again."""

    def __init__(self, whole: Normals, part: slice | NDArray[np.int64]) -> None:
        self.draws: int = len(np.arange(whole.draws)[part])
        self._whole, self._part = whole, part

    def of(self, key: Key, places: Array) -> Array:
        """See `Points.of`."""
        return self._whole.of(key, places)[self._part]


Normals: TypeAlias = Points | Streams | Some

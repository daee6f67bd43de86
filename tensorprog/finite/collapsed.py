"""Fresh Gaussian vectors as a plan says: in coordinates, along known directions, and by Bartlett's triangle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.frames import Draw
from tensorprog.finite.normals import chi, standard_normal

__all__ = ["gaussian_vectors"]

Array = NDArray[Any]


def gaussian_vectors(
    generator: np.random.Generator, draw: Draw, batch: int, members: Mapping[str, int], columns: int, dtype: Any
) -> Array:
    """Independent N(0, I) vectors: `columns` of them for every value of the indices `members`, in every network.

    Shapes    (batch, *members, columns, draw.length)
    Source    Bartlett 1933; directions that `draw` does not mention get zeros
    """
    separate = [name for name in members if name in draw.batch]
    together = [name for name in members if name not in draw.batch]
    rows = math.prod(members[name] for name in together) * columns
    lead = [members[name] for name in separate]
    drawn = np.empty((batch, *lead, rows, draw.length), dtype)
    _fill(generator, draw, drawn)
    if not together:
        return drawn
    drawn = drawn.reshape(batch, *lead, *(members[name] for name in together), columns, draw.length)
    names = [*separate, *together]
    places = [1 + names.index(name) for name in members]
    return drawn.transpose(0, *places, drawn.ndim - 2, drawn.ndim - 1)


def _normal_ranges(draw: Draw) -> list[tuple[int, int]]:
    """Ranges of plain normals, adjacent ones joined."""
    ranges: list[tuple[int, int]] = []
    for start, stop in ((0, draw.seen), *draw.along):
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        elif stop > start:
            ranges.append((start, stop))
    return ranges


def _gaps(draw: Draw) -> list[tuple[int, int]]:
    covered = sorted([*_normal_ranges(draw), *([draw.own] if draw.opened else [])])
    edges = [0, *(edge for span in covered for edge in span), draw.length]
    return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if stop > start]


def _fill(generator: np.random.Generator, draw: Draw, drawn: Array) -> None:
    """Fill (batch, .., rows, length)."""
    if draw.plain:
        standard_normal(generator, drawn)
        return
    lead = drawn.shape[:-2]
    rows = drawn.shape[-2]
    for start, stop in _gaps(draw):
        drawn[..., start:stop] = 0
    for start, stop in _normal_ranges(draw):
        buffer = np.empty((*lead, rows, stop - start), drawn.dtype)
        standard_normal(generator, buffer)
        drawn[..., start:stop] = buffer
    if not draw.opened:
        return
    start = draw.own[0]
    for k in range(draw.opened):
        drawn[..., :k, start + k] = 0
        buffer = np.empty((*lead, rows - k - 1), drawn.dtype)
        standard_normal(generator, buffer)
        drawn[..., k + 1 :, start + k] = buffer
    lengths = chi(generator, range(draw.degrees, draw.degrees - draw.opened, -1), math.prod(lead))
    for k in range(draw.opened):
        drawn[..., k, start + k] = lengths[k].reshape(lead)

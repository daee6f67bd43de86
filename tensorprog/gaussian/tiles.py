"""Batches in tiles: memory stays bounded, arrays stay in cache, symmetric halves are computed once.

A tile is computed from its own arguments alone, so numbers do not depend on the number of threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Index = tuple[slice, ...]

__all__ = ["tiled", "toeplitz_values", "toeplitz_view"]


def tiled(
    compute: Callable[..., Array | tuple[Array, ...]],
    arrays: Sequence[Array],
    size: int,
    outputs: int = 1,
    pairs: int = 0,
    swap: tuple[int, ...] | None = None,
    threads: bool = False,
) -> tuple[Array, ...]:
    """compute(*arrays) over the batch that the arrays broadcast to, tiles of about `size` members at a time.

    `swap` says that exchanging i and j, the last `pairs` axes and those before them, together with exchanging the
    arrays by this permutation, changes nothing: members (.., i, j) and (.., j, i) whose arguments agree in that way
    are computed once.

    Shapes    arrays with equal numbers of axes, which broadcast; the results have the shape of the batch
    """
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    if not shape:  # numpy answers with numbers where arrays are without axes
        found = tiled(compute, [array[None] for array in arrays], size, outputs)
        return tuple(np.asarray(result[0]) for result in found)
    shared = len(shape) - 2 * pairs
    if shape[shared : shared + pairs] != shape[shared + pairs :]:
        swap = None
    results = tuple(np.empty(shape) for _ in range(outputs))

    def fill(index: Index) -> None:
        found = compute(*(_part(array, index) for array in arrays))
        for result, part in zip(results, (found,) if outputs == 1 else found, strict=True):
            result[index] = part

    if swap is None:
        _each(fill, list(_blocks(shape, size)), threads)
        return results
    order = (*range(shared), *range(shared + pairs, len(shape)), *range(shared, shared + pairs))
    partners = [(array, arrays[other]) for array, other in zip(arrays, swap, strict=True)]

    def fill_both(index: Index) -> None:
        mirror = tuple(index[axis] for axis in order)
        fill(index)
        alike = all(np.array_equal(_part(a, index), _part(b, mirror).transpose(order)) for a, b in partners)
        if alike and mirror != index:
            for result in results:
                result[mirror] = result[index].transpose(order)
        elif alike:  # a tile on the diagonal, in which results may still differ by rounding
            lower = _lower(shape[shared : shared + pairs], index[shared : shared + pairs])
            for result in results:
                np.copyto(result[index], result[index].transpose(order), where=lower)
        elif mirror != index:
            fill(mirror)

    _each(fill_both, list(_triangle(shape, shared, pairs, size)), threads)
    return results


def _part(array: Array, index: Index) -> Array:
    """A tile of an array that may have axes of length 1."""
    return array[tuple(slice(None) if length == 1 else cut for length, cut in zip(array.shape, index, strict=True))]


def _cuts(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _blocks(shape: tuple[int, ...], size: int) -> Iterator[Index]:
    """Tiles of at most `size` members, with the last axes as long as they can be."""
    steps = []
    for length in reversed(shape):
        step = max(1, min(length, size))
        steps.append(step)
        size //= step
    return product(*(_cuts(length, step) for length, step in zip(shape, reversed(steps), strict=True)))


def _triangle(shape: tuple[int, ...], shared: int, pairs: int, size: int) -> Iterator[Index]:
    """Tiles with i <= j, square in the first of the pairs: with their mirror images they cover the batch."""
    first, second = shared, shared + pairs
    rest = math.prod(shape) // max(1, shape[first] * shape[second])
    cuts = _cuts(shape[first], max(1, math.isqrt(size // max(1, rest))))
    for row, one in enumerate(cuts):
        for two in cuts[row:]:
            index = [slice(0, length) for length in shape]
            index[first], index[second] = one, two
            yield tuple(index)


def _lower(shape: tuple[int, ...], index: Index) -> NDArray[np.bool_]:
    """Where i > j in a tile on the diagonal.

    Shapes    (*i, *j)
    """
    lengths = tuple(len(range(*cut.indices(length))) for cut, length in zip(index, shape, strict=True))
    members = math.prod(lengths)
    return np.tri(members, k=-1, dtype=bool).reshape(*lengths, *lengths)


def _each(call: Callable[[Index], None], tiles: list[Index], threads: bool) -> None:
    """call(tile) for all of them, on all processors if threads are wanted."""
    workers = min(len(tiles), _processors()) if threads else 1
    if workers < 2:
        for tile in tiles:
            call(tile)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(call, tiles):
            pass


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def toeplitz_values(array: Array) -> Array | None:
    """The distinct values of a matrix that depends on j - i only, from j - i = 1 - N on; None for any other.

    Shapes    (N, M) -> (N + M - 1,)
    """
    if min(array.shape) < 2 or not np.array_equal(array[1, 1:], array[0, :-1]):
        return None
    if not np.array_equal(array[1:, 1:], array[:-1, :-1]):
        return None
    return np.concatenate([array[:0:-1, 0], array[0]])


def toeplitz_view(values: Array, shape: tuple[int, ...]) -> Array:
    """The matrix with those diagonals, without a copy.

    Shapes    (N + M - 1,) -> (N, M), read-only
    """
    return np.lib.stride_tricks.sliding_window_view(values, shape[1])[::-1]

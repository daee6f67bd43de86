"""Random numbers: normals and chi variables, and fresh Gaussian vectors of them as a plan says.

numpy draws, or compiled loops draw the same bits where that pays.  Where very many normals are wanted in one place,
`ManyNormals` draws them from words of the generator, which takes numpy two thirds of the time of its own.

The extra `fast` brings numba.  It takes a moment to start, so a run first says how many numbers it will draw
(`prepare`); only a long run starts it.  Whatever is missing or fails, numpy draws, and since both give the
same bits no result depends on which it was.  TENSORPROG_FAST=0 in the environment switches numba off.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping, Sequence
from itertools import product
from threading import Lock
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.frames import Recipe
from tensorprog.finite.functions import gelu
from tensorprog.finite.ziggurat import FINE, Ziggurat, ziggurat

__all__ = ["ManyNormals", "chi", "compiled", "engine", "gaussian_vectors", "prepare", "standard_normal"]

Array = NDArray[Any]
# Starting numba takes 0.3 to 0.5 s: importing it, loading what it compiled before, comparing with numpy; 1.5 s more
# when it has to compile, once per machine and release.  It saves 3 to 5 ns a number: of normals 4.6 (many) or 7.5
# -> 1.6, of chi variables 13 -> 5.
MANY = 150_000_000
PIECE = 1 << 15  # points that numpy works on at a time
CHECKED = 1 << 18  # normals compared with numpy's before use: about 70 of them come from the tail

_Four = ctypes.c_uint64 * 4
_kernels: ModuleType | None = None
_tried = False
_lock = Lock()


def engine() -> Literal["numba", "numpy"]:
    """What draws from SFC64 generators now."""
    return "numpy" if _kernels is None else "numba"


def compiled() -> ModuleType | None:
    """The compiled loops, if this process has started them."""
    return _kernels


def prepare(normals: float) -> None:
    """Start numba if this process is to draw so many numbers, in one thread, that it pays.

    Raises    nothing: numpy draws where numba is missing, switched off, fails to compile or gives other bits
    """
    global _kernels, _tried
    if normals < MANY or _tried or os.environ.get("TENSORPROG_FAST") == "0":
        return
    with _lock:
        if not _tried:
            _kernels = _load()
            _tried = True


def _load() -> ModuleType | None:
    try:
        from tensorprog.finite import kernels

        return kernels if _agrees(kernels) else None
    except Exception:  # no numba, none for this numpy, no place for compiled code, a warning made an error, ..
        return None


def _agrees(kernels: ModuleType) -> bool:
    """Whether compiled code draws what numpy draws, on this machine and with this release of numpy."""
    if not getattr(kernels.fill_normals, "signatures", ()):
        return False  # numba was told not to compile
    ours, theirs = (np.random.Generator(np.random.SFC64(0)) for _ in range(2))
    bits = ours.bit_generator
    if not np.array_equal(_state(bits), bits.state["state"]["state"]):
        return False
    normals, many, squares = np.empty(CHECKED), np.empty((2, CHECKED // 2)), np.empty((4, CHECKED // 16))
    kernels.fill_normals(_state(bits), normals)
    kernels.fill_chi_squares(_state(bits), np.arange(1, 5, dtype=np.int64), squares)
    ManyNormals(ours).fill_by(kernels, np.full(2, 3.0), many)
    expected = theirs.standard_normal(CHECKED), np.empty(squares.shape), np.empty(many.shape)
    _fill_chi_squares(theirs, range(1, 5), expected[1])
    ManyNormals(theirs).fill_by_numpy(np.full(2, 3.0), expected[2])
    apart = np.concatenate([3 * normals, [0.0, np.inf]])
    same = np.array_equal(gelu(apart), gelu(apart, kernels=kernels))
    return same and all(map(np.array_equal, (normals, squares, many), expected))


def _state(bits: Any) -> NDArray[np.uint64]:
    """The four numbers of an SFC64 state, in place."""
    numbers: Any = _Four.from_address(bits.ctypes.state_address)
    return np.frombuffer(numbers, np.uint64)


def _compiled(generator: np.random.Generator, out: NDArray[Any]) -> ModuleType | None:
    fits = type(generator.bit_generator) is np.random.SFC64 and out.dtype == np.float64 and out.flags.carray
    return _kernels if fits else None


def standard_normal(generator: np.random.Generator, out: NDArray[Any]) -> None:
    """Fill an array with independent N(0, 1) numbers, those of `generator.standard_normal`.

    Shapes    out of any shape, C-contiguous, float64 (or float32, which numpy always draws)
    """
    kernels = _compiled(generator, out)
    if kernels is None:
        generator.standard_normal(out=out, dtype=out.dtype)
        return
    with generator.bit_generator.lock:
        kernels.fill_normals(_state(generator.bit_generator), out.reshape(-1))


class ManyNormals:
    """Normals in great numbers, by generators of its own: the same numbers in pieces of any size.

    Every point of a ziggurat takes 64 bits of the first generator and becomes one normal.  A point that may lie above
    the curve takes a uniform number of the second; if it does lie above, a normal of the third stands in its place, and
    the fourth draws the tail.  So numpy can do the same to many points at once, which takes it two thirds of the
    time of `standard_normal`.

    Scale     with numpy the last bit of an exponential may decide otherwise than in compiled code, once in 1e13 numbers
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._points, self._wedges, self._others, self._tails = own = generator.spawn(4)
        self._states = [_state(each.bit_generator) for each in own]

    def fill(self, scale: NDArray[Any], out: NDArray[Any]) -> None:
        """Fill rows with standard normals times one number each.

        Shapes    scale (rows,), out (rows, any), C-contiguous, float64 or float32
        """
        if _kernels is None:
            self.fill_by_numpy(scale, out)
            return
        normals = out if out.dtype == np.float64 else np.empty(out.shape)
        self.fill_by(_kernels, scale, normals)
        if normals is not out:
            out[...] = normals

    def fill_by(self, kernels: ModuleType, scale: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Fill rows by compiled loops."""
        kernels.fill_many(*self._states, scale.astype(np.float64, copy=False), out)

    def fill_by_numpy(self, scale: NDArray[Any], out: NDArray[Any]) -> None:
        """Fill rows by numpy, in pieces that stay in cache: some rows, or a part of one."""
        tables, length = ziggurat(*FINE), out.shape[1]
        columns = min(length, PIECE)
        rows = PIECE // max(columns, 1)
        strips, numbers = np.empty(PIECE, np.int64), np.empty(PIECE)
        looked = []
        for row, column in product(range(0, len(out), rows), range(0, length, max(columns, 1))):
            piece = out[row : row + rows, column : column + columns]
            words: NDArray[np.uint64] = self._points.bit_generator.random_raw(piece.size)
            strip, x = strips[: piece.size], numbers[: piece.size]
            np.bitwise_and(words, np.uint64(len(tables.widths) - 1), out=strip.view(np.uint64))
            places = np.right_shift(words, np.uint64(12), out=words).view(np.int64)
            limits = np.take(tables.limits, strip, out=x.view(np.int64), mode="wrap")
            found = np.flatnonzero(np.greater_equal(places, limits))
            np.take(tables.widths, strip, out=x, mode="wrap")
            np.multiply(places, x, out=x)
            looked.append((found + (row * length + column), strip[found], x[found]))
            np.multiply(x.reshape(piece.shape), scale[row : row + rows, None], out=piece, casting="same_kind")
        if looked:
            at, strip, x = map(np.concatenate, zip(*looked, strict=True))
            self._second_look(tables, strip, x)
            out.reshape(-1)[at] = x * scale[at // length]

    def _second_look(self, tables: Ziggurat, strips: NDArray[np.int64], x: NDArray[np.float64]) -> None:
        """Put right what points have become that may lie above the curve, or in the tail."""
        count = len(tables.heights)
        strip = strips % count
        wedge = np.flatnonzero(strip)
        upper, lower = tables.heights[strip[wedge] - 1], tables.heights[strip[wedge]]
        height = (upper - lower) * self._wedges.random(wedge.size) + lower
        above = wedge[~(height < np.exp(-0.5 * x[wedge] * x[wedge]))]
        x[above] = self._others.standard_normal(above.size)
        for k in np.flatnonzero(strip == 0):
            while True:
                beyond = -math.log1p(-self._tails.random()) / tables.tail
                if -2 * math.log1p(-self._tails.random()) > beyond * beyond:
                    break
            x[k] = -(tables.tail + beyond) if strips[k] >= count else tables.tail + beyond


def chi(generator: np.random.Generator, degrees: Sequence[int], size: int) -> NDArray[np.float64]:
    """Chi variables: `size` for each number of degrees of freedom in turn; 0 where there are none.

    Shapes    (len(degrees), size)
    """
    squares = np.empty((len(degrees), size))
    kernels = _compiled(generator, squares)
    if kernels is None:
        _fill_chi_squares(generator, degrees, squares)
    else:
        with generator.bit_generator.lock:
            kernels.fill_chi_squares(_state(generator.bit_generator), np.asarray(degrees, np.int64), squares)
    return np.sqrt(squares, out=squares)


def _fill_chi_squares(generator: np.random.Generator, degrees: Sequence[int], out: NDArray[np.float64]) -> None:
    for row, nu in zip(out, degrees, strict=True):
        if nu > 2:
            generator.standard_gamma(nu / 2, out=row)
            row *= 2
        else:  # numpy takes other roads to gamma variables of shape 1/2 and 1
            np.square(generator.standard_normal((nu, row.size))).sum(axis=0, out=row)


# ---- vectors: in coordinates, along known directions, and by Bartlett's triangle ------------------------------------


def gaussian_vectors(
    generator: np.random.Generator, recipe: Recipe, batch: int, members: Mapping[str, int], columns: int, dtype: Any,
    beside: bool = False, many: bool = False,
) -> Array:  # fmt: skip
    """Independent N(0, I) vectors: `columns` of them for every value of the indices `members`, in every network.

    With `beside`, vectors of members that are drawn apart lie beside each other in memory, as one matrix of all.
    `ManyNormals` draws those that are `many`, if all their numbers are normals.

    Shapes    (batch, *members, columns, recipe.length)
    Source    Bartlett 1933; directions that `recipe` does not mention get zeros
    """
    separate = [name for name in members if name in recipe.batch]
    together = [name for name in members if name not in recipe.batch]
    rows = math.prod(members[name] for name in together) * columns
    lead = [members[name] for name in separate]
    if beside:
        drawn = np.moveaxis(np.empty((batch, rows, *lead, recipe.length), dtype), 1, -2)
    else:
        drawn = np.empty((batch, *lead, rows, recipe.length), dtype)
    if recipe.plain:
        buffer = drawn if drawn.flags.c_contiguous else np.empty(drawn.shape, dtype)
        if many:
            ManyNormals(generator).fill(np.ones(1, dtype), buffer.reshape(1, -1))
        else:
            standard_normal(generator, buffer)
        if buffer is not drawn:
            drawn[...] = buffer
    else:
        _fill(generator, recipe, drawn)
    if not together:
        return drawn
    drawn = drawn.reshape(batch, *lead, *(members[name] for name in together), columns, recipe.length)
    names = [*separate, *together]
    places = [1 + names.index(name) for name in members]
    return drawn.transpose(0, *places, drawn.ndim - 2, drawn.ndim - 1)


def _fill(generator: np.random.Generator, recipe: Recipe, drawn: Array) -> None:
    """Fill (batch, .., rows, length), where not all numbers are normals."""
    drawn[...] = 0
    for start, stop in recipe.normal_ranges:
        _fill_view(generator, drawn[..., start:stop])
    if not recipe.opened:
        return
    start, lead = recipe.own[0], drawn.shape[:-2]
    opened, beneath = recipe.opened, drawn[..., recipe.opened :, start : recipe.own[1]]
    triangle = np.empty((*lead, opened * (opened - 1) // 2), drawn.dtype)
    standard_normal(generator, triangle)
    for row in range(1, opened):
        place = row * (row - 1) // 2
        drawn[..., row, start : start + row] = triangle[..., place : place + row]
    if beneath.size:
        _fill_view(generator, beneath)
    lengths = chi(generator, range(recipe.degrees, recipe.degrees - opened, -1), math.prod(lead))
    for k in range(opened):
        drawn[..., k, start + k] = lengths[k].reshape(lead)


def _fill_view(generator: np.random.Generator, view: Array) -> None:
    buffer = np.empty(view.shape, view.dtype)
    standard_normal(generator, buffer)
    view[...] = buffer

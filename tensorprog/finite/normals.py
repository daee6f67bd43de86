"""Random numbers: normals and chi variables, and fresh Gaussian vectors of them as a plan says.

numpy draws, or a compiled loop draws the same normals where that pays.  The extra `fast` brings numba.  It takes a
moment to start, so a run first says how many numbers it will draw (`prepare`); only a long run starts it.  Whatever
is missing or fails, numpy draws, and since both give the same bits no result depends on which it was.
TENSORPROG_FAST=0 in the environment switches numba off.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping, Sequence
from threading import Lock
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.vectors import Recipe

__all__ = ["chi", "engine", "gaussian_vectors", "prepare", "standard_normal"]

Array = NDArray[Any]
# Starting numba takes 0.3 to 0.5 s, and 1.5 s more when it has to compile, once per machine and release.  A normal
# then takes 1.6 ns instead of 7.5.
MANY = 100_000_000
CHECKED = 1 << 18  # normals compared with numpy's before use: about 70 of them come from the tail

_Four = ctypes.c_uint64 * 4
_kernels: ModuleType | None = None
_tried = False
_lock = Lock()


def engine() -> Literal["numba", "numpy"]:
    """What draws from SFC64 generators now."""
    return "numpy" if _kernels is None else "numba"


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
    normals = np.empty(CHECKED)
    kernels.fill_normals(_state(bits), normals)
    return np.array_equal(normals, theirs.standard_normal(CHECKED))


def _state(bits: Any) -> NDArray[np.uint64]:
    numbers: Any = _Four.from_address(bits.ctypes.state_address)
    return np.frombuffer(numbers, np.uint64)


def standard_normal(generator: np.random.Generator, out: Array) -> None:
    """Fill an array with independent N(0, 1) numbers, those of `generator.standard_normal`.

    Shapes    out of any shape, float64 (or float32, which numpy always draws)
    """
    whole = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    fits = type(generator.bit_generator) is np.random.SFC64 and whole.dtype == np.float64 and whole.flags.carray
    if _kernels is None or not fits:
        generator.standard_normal(out=whole, dtype=out.dtype)
    else:
        with generator.bit_generator.lock:
            _kernels.fill_normals(_state(generator.bit_generator), whole.reshape(-1))
    if whole is not out:
        out[...] = whole


def chi(generator: np.random.Generator, degrees: Sequence[int], size: int) -> NDArray[np.float64]:
    """Chi variables: `size` for each number of degrees of freedom in turn; 0 where there are none.

    Shapes    (len(degrees), size)
    """
    squares = np.empty((len(degrees), size))
    for row, nu in zip(squares, degrees, strict=True):
        if nu > 2:
            generator.standard_gamma(nu / 2, out=row)
            row *= 2
        else:  # numpy takes other roads to gamma variables of shape 1/2 and 1
            np.square(generator.standard_normal((nu, row.size))).sum(axis=0, out=row)
    return np.sqrt(squares, out=squares)


def gaussian_vectors(
    generator: np.random.Generator, recipe: Recipe, batch: int, members: Mapping[str, int], columns: int, dtype: Any,
) -> Array:  # fmt: skip
    """Independent N(0, I) vectors: `columns` of them for every value of the indices `members`, in every network.

    Shapes    (batch, *members, columns, recipe.length)
    Source    Bartlett 1933; directions that `recipe` does not mention get zeros
    """
    separate = [name for name in members if name in recipe.batch]
    together = [name for name in members if name not in recipe.batch]
    rows = math.prod(members[name] for name in together) * columns
    lead = [members[name] for name in separate]
    drawn = np.empty((batch, *lead, rows, recipe.length), dtype)
    if recipe.plain:
        standard_normal(generator, drawn)
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
    start, opened = recipe.known, recipe.opened
    drawn[..., start:] = 0
    standard_normal(generator, drawn[..., :start])
    if not opened:
        return
    lead = drawn.shape[:-2]
    triangle = np.empty((*lead, opened * (opened - 1) // 2), drawn.dtype)
    standard_normal(generator, triangle)
    for row in range(1, opened):
        place = row * (row - 1) // 2
        drawn[..., row, start : start + row] = triangle[..., place : place + row]
    standard_normal(generator, drawn[..., opened:, start : start + opened])
    lengths = chi(generator, range(recipe.degrees, recipe.degrees - opened, -1), math.prod(lead))
    for k in range(opened):
        drawn[..., k, start + k] = lengths[k].reshape(lead)

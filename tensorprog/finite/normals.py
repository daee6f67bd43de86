"""Random numbers: normals and chi variables, and fresh Gaussian vectors of them as a plan says.

numpy draws, or a compiled loop draws the same normals where that pays; a run first says how many numbers it will draw.
Since both give the same bits no result depends on which it was.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorprog.fast import Compiled
from tensorprog.finite.vectors import Recipe

__all__ = ["COMPILED", "chi", "engine", "gaussian_vectors", "standard_normal"]

Array = NDArray[Any]
CHECKED = 1 << 18  # normals compared with numpy's before use: about 70 of them come from the tail

_Four = ctypes.c_uint64 * 4


def engine() -> Literal["numba", "numpy"]:
    """What draws from SFC64 generators now."""
    return "numpy" if COMPILED.module is None else "numba"


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


COMPILED = Compiled("tensorprog.finite.kernels", 100_000_000, _agrees)  # normals, of 1.6 ns instead of 7.5


def _state(bits: Any) -> NDArray[np.uint64]:
    numbers: Any = _Four.from_address(bits.ctypes.state_address)
    return np.frombuffer(numbers, np.uint64)


def standard_normal(generator: np.random.Generator, out: Array) -> None:
    """Fill an array with independent N(0, 1) numbers, those of `generator.standard_normal`.

    Shapes    out of any shape, float64 (or float32, which numpy always draws)
    """
    whole = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    fits = type(generator.bit_generator) is np.random.SFC64 and whole.dtype == np.float64 and whole.flags.carray
    kernels = COMPILED.module
    if kernels is None or not fits:
        generator.standard_normal(out=whole, dtype=out.dtype)
    else:
        with generator.bit_generator.lock:
            kernels.fill_normals(_state(generator.bit_generator), whole.reshape(-1))
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

"""Scrambled Sobol points in the unit cube: the numbers of `scipy.stats.qmc.Sobol`, which is slow to import."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["BITS", "SOBOL_DIMENSIONS", "scrambled_sobol"]

BITS = 52  # of a coordinate
SOBOL_DIMENSIONS = 512  # of which there are direction numbers here
Bits = NDArray[np.uint64]


def scrambled_sobol(dim: int, log2_size: int, seed: int, replicate: int) -> NDArray[np.float64]:
    """The first 2**log2_size points of a sequence, multiples of 2**-52, in the order of a Gray code.

    Shapes    -> (2**log2_size, dim)
    Source    Sobol' 1967; Joe & Kuo 2008 (direction numbers); Matousek 1998 (linear scrambling with a shift)
    """
    directions, shift = _scrambled(dim, seed, replicate)
    points = np.empty((1 << log2_size, dim), np.uint64)
    points[0] = shift
    for k in range(log2_size):  # the Gray codes of 2**k + j and of j differ in the bits k and k - 1
        change = directions[k] ^ directions[k - 1] if k else directions[0]
        np.bitwise_xor(points[: 1 << k], change, out=points[1 << k : 2 << k])
    return np.multiply(points, 2.0**-BITS, dtype=np.float64)


@lru_cache(maxsize=64)
def _scrambled(dim: int, seed: int, replicate: int) -> tuple[Bits, Bits]:
    """Directions of a scrambled sequence, and its first point.

    Shapes    -> (BITS, dim), (dim,)
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(replicate, 0)))
    powers = np.uint64(1) << np.arange(BITS, dtype=np.uint64)
    shift = rng.integers(2, size=(dim, BITS), dtype=np.uint64) @ powers
    lower = np.tril(rng.integers(2, size=(dim, BITS, BITS), dtype=np.uint64), -1).astype(np.float32)
    lower += np.eye(BITS, dtype=np.float32)
    places = np.arange(BITS, dtype=np.uint64)[::-1, None]  # of digits, the highest first
    plain = np.array([_directions(number) for number in range(dim)], np.uint64)[:, None]
    digits = (plain >> places & np.uint64(1)).astype(np.float32)
    mixed = np.matmul(lower, digits).astype(np.uint64) & np.uint64(1)
    return np.ascontiguousarray((mixed << places).sum(axis=1, dtype=np.uint64).T), shift


@cache
def _directions(dimension: int) -> tuple[int, ...]:
    """Direction numbers of one dimension, as integers of BITS digits."""
    polynomial, *found = _table()[dimension]
    degree = polynomial.bit_length() - 1
    for j in range(len(found), BITS):
        if not degree:  # van der Corput's sequence
            found.append(1)
            continue
        new = found[j - degree]
        for k in range(degree):
            if polynomial >> (degree - 1 - k) & 1:
                new ^= found[j - k - 1] << (k + 1)
        found.append(new)
    return tuple(number << (BITS - 1 - j) for j, number in enumerate(found))


@cache
def _table() -> list[list[int]]:
    """A primitive polynomial and the first direction numbers, for each dimension."""
    lines = (Path(__file__).parent / "direction_numbers.txt").read_text(encoding="ascii").splitlines()
    return [[*map(int, line.split())] for line in lines if not line.startswith("#")]

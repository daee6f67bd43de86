"""Normals and chi variables from a generator (stand-in)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["chi", "standard_normal"]


def standard_normal(generator: np.random.Generator, out: NDArray[Any]) -> None:
    """Fill a C-contiguous array with independent N(0, 1) numbers."""
    generator.standard_normal(out=out, dtype=out.dtype)


def chi(generator: np.random.Generator, degrees: Sequence[int], size: int) -> NDArray[np.float64]:
    """Chi variables: `size` for each number of degrees of freedom.  Shapes (len(degrees), size)."""
    out = np.zeros((len(degrees), size))
    for row, nu in zip(out, degrees, strict=True):
        if nu:
            generator.standard_gamma(nu / 2, out=row)
    return np.sqrt(2 * out)

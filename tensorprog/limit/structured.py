"""`Covariance`: what `Law.cov` returns, an array that is formed only when asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.errors import MemoryLimitError, ProgramError
from tensorprog.limit.moments import Moment
from tensorprog.linalg import psd_cholesky

__all__ = ["Covariance"]

Array = NDArray[Any]


class Covariance:
    """A covariance between two families, kept as a sum of structured terms.

    `np.asarray` gives the array (members of the first, then of the second) and refuses above `max_memory`; `at` reads
    single entries; `factors` lists the terms; `error` bounds the error of every entry.
    """

    def __init__(self, moment: Moment, first: Sequence[str], second: Sequence[str], max_memory: int = 1 << 30) -> None:
        self.moment, self._axes, self._max = moment, (*first, *second), max_memory

    @property
    def shape(self) -> tuple[int, ...]:
        """Members of the first family, then of the second."""
        return tuple(self.moment.ranges[name][1] - self.moment.ranges[name][0] for name in self._axes)

    @property
    def error(self) -> float:
        """A bound on the error of every entry."""
        return self.moment.error

    @property
    def factors(self) -> list[dict[str, Any]]:
        """The terms: equations that must hold, and values with the positions they depend on."""
        return [
            {
                "equations": [f"{e} = 0" for e in sorted(map(str, term.equations))],
                "axes": term.value.axes,
                "values": term.value.estimate.value,
            }
            for term in self.moment.terms
        ]

    def at(self, first: Sequence[Any], second: Sequence[Any]) -> Array:
        """Entries at index values of the first and the second family (arrays broadcast)."""
        positions = dict(zip(self._axes, [np.asarray(i) for i in (*first, *second)], strict=True))
        for name, value in positions.items():
            start, stop = self.moment.ranges[name]
            if np.any(value < start) or np.any(value >= stop):
                raise ProgramError(f"an index lies outside {start}..{stop - 1}")
        return self.moment.at(positions).value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        size = 8 * math.prod(self.shape)
        if 4 * size > self._max:
            raise MemoryLimitError(
                f"this covariance has shape {self.shape} and would take {size / 2**30:.3g} GiB; read entries with "
                ".at(I, J), terms with .factors, or raise max_memory"
            )
        value = self.moment.dense(self._axes).value
        return value if dtype is None else value.astype(dtype)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __repr__(self) -> str:
        return f"Covariance(shape={self.shape}, terms={len(self.moment.terms)}, error={self.error:.1e})"

    def sample(self, size: int, seed: int = 0) -> Array:
        """Draws of N(0, covariance), for the covariance of one family with itself.

        Shapes    (size, *members)
        """
        shape = self.shape[: len(self.shape) // 2]
        if self.shape != (*shape, *shape):
            raise ProgramError("only the covariance of a family with itself can be sampled")
        count = math.prod(shape)
        factor = psd_cholesky(np.asarray(self).reshape(count, count))
        normals = np.random.Generator(np.random.SFC64(seed)).standard_normal((size, count))
        return (normals @ factor.T).reshape(size, *shape)

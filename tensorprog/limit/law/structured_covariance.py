"""`Covariance`: what `Law.cov` returns, an array that is formed only when asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import Affine
from tensorprog.limit.memory import Budget, budgeted, need
from tensorprog.limit.moment.values import DeferredPairs, IndexedValues

__all__ = ["Covariance"]

Array = NDArray[Any]


class Covariance:
    """A covariance between two families, kept as a sum of structured terms.

    `np.asarray` gives the array (members of the first, then of the second) and refuses above `max_memory`; `at` reads
    single entries; `factors` lists the terms; `error` bounds the error of every entry.
    """

    def __init__(
        self, moment: IndexedValues, first: Sequence[str], second: Sequence[str], budget: Budget | None = None
    ) -> None:
        self.moment, self._first, self._axes = moment, tuple(first), (*first, *second)
        self.budget = budget or Budget(1 << 30)

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
        """The terms: equations that must hold, and factors whose product is the value, as (positions, array).

        Equations write [0], [1], .. for the positions of the first family, [0_], [1_], .. for those of the second.
        """
        return [
            {
                "equations": sorted(_written(equation) for equation in term.equations),
                "factors": [(factor.axes, factor.estimate.value) for factor in term.value.factors],
            }
            for term in self.moment.terms
        ]

    @budgeted
    def at(self, first: Sequence[Any], second: Sequence[Any]) -> Array:
        """Entries at index values of the first and the second family (arrays broadcast).

        Raises    ProgramError for a wrong number of indices, and for one that is no whole number of its range
        """
        counts = len(self._first), len(self._axes) - len(self._first)
        if (len(first), len(second)) != counts:
            raise ProgramError(
                f".at takes {counts[0]} and {counts[1]} indices, of the first and of the second family, "
                f"not {len(first)} and {len(second)}"
            )
        positions = dict(zip(self._axes, [np.asarray(i) for i in (*first, *second)], strict=True))
        for name, value in positions.items():
            if value.dtype.kind not in "iu":
                raise ProgramError(f"an index is a whole number, not {value.flat[0] if value.size else value}")
            start, stop = self.moment.ranges[name]
            if np.any(value < start) or np.any(value >= stop):
                raise ProgramError(f"an index lies outside {start}..{stop - 1}")
        return self.moment.at(positions).value

    @budgeted
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        what = f"making an array of this covariance, of shape {self.shape},"
        if len(self.moment.terms) != 1 or not isinstance(self.moment.terms[0].value, DeferredPairs):  # it asks itself
            need(4 * math.prod(self.shape), what, "read entries with .at(I, J)", "terms with .factors")
        value = np.asarray(self.moment.dense(self._axes).value)
        return value if dtype is None else value.astype(dtype)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __repr__(self) -> str:
        return f"Covariance(shape={self.shape}, terms={len(self.moment.terms)}, error={self.error:.1e})"


def _written(equation: Affine) -> str:
    """An equation between positions, what is subtracted on its right: '[0] = [0_]'."""

    def side(sign: int) -> Affine:
        terms = tuple((f"[{name}]", sign * value) for name, value in equation.terms if sign * value > 0)
        return Affine(terms, max(sign * equation.offset, 0))

    return f"{side(1)} = {side(-1)}"

"""`Covariance`: what `Law.cov` returns, an array that is formed only when asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, check_count, need_xarray
from tensorprog.language.evaluate import BATCH, Open, align, broadcast, contract
from tensorprog.language.expr import Affine
from tensorprog.language.linalg import psd_cholesky
from tensorprog.limit.memory import Budget, budgeted, need
from tensorprog.limit.moment.indexed import Term, difference
from tensorprog.limit.moment.values import IndexedValues, Value

__all__ = ["Covariance"]

Array = NDArray[Any]
RANK, MEMBERS = "r", "m"
DRAWN_AT_ONCE = 1 << 18  # normals, where one draw takes fewer


@budgeted
class Covariance:
    """A covariance between two families, kept as a sum of structured terms.

    `np.asarray` gives the array (members of the first, then of the second) and refuses above `max_memory`; `at` reads
    single entries; `factors` lists the terms; `sample` draws; `error` bounds the error of every entry.
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
        return self.written({name: f"[{name}]" for name in self._axes})

    def written(self, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The terms as in `factors`, with names of one's own for positions in the equations."""
        return [
            {
                "equations": sorted(_written(equation, names) for equation in term.equations),
                "factors": [(factor.axes, factor.estimate.value) for factor in term.value.factors],
            }
            for term in self.moment.terms
        ]

    def to_xarray(self) -> Any:
        """All entries as an xarray.DataArray, whose axes have the indices of the first family, then of the second.

        Raises    TensorprogError where xarray is not installed; MemoryLimitError
        """
        xarray = need_xarray("labelled covariances")
        places = [(name, np.arange(*self.moment.ranges[name])) for name in self._axes]
        return xarray.DataArray(np.asarray(self), places, name="covariance", attrs={"error": self.error})

    def to_dataframe(self) -> Any:
        """The same as a pandas.DataFrame, one row for each entry."""
        return self.to_xarray().to_dataframe()

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        what = f"making an array of this covariance, of shape {self.shape},"
        need(4 * math.prod(self.shape), what, "read entries with .at(I, J)", "terms with .factors")
        value = np.asarray(self.moment.dense(self._axes).value)
        return value if dtype is None else value.astype(dtype)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __repr__(self) -> str:
        return f"Covariance(shape={self.shape}, terms={len(self.moment.terms)}, error={self.error:.1e})"

    @cached_property
    def _root(self) -> Root:
        return Root.of(self.moment, self._first)

    def sample(self, size: int, seed: int = 0) -> Array:
        """Draws of N(0, covariance), for the covariance of one family with itself.

        Shapes    (size, *members)
        Scale     blocks of members that are independent are drawn by factors of their own
        Raises    ProgramError for a size or seed that is none, or two families; MemoryLimitError if the draws, or the
                  covariance of members that are not independent, do not fit
        """
        size, seed = check_count("size", size, 0), check_count("seed", seed, 0)
        shape = self.shape[: len(self._first)]
        if self.shape != (*shape, *shape):
            raise ProgramError("only the covariance of a family with itself can be sampled")
        numbers = (size + 4) * math.prod(shape)  # one draw is worked on at a time
        need(numbers, f"{size} draws of shape {shape}", "draw fewer at a time")
        generator = np.random.Generator(np.random.SFC64(seed))
        result = np.empty((size, *shape))
        step = max(1, DRAWN_AT_ONCE // max(1, math.prod(self._root.shape)))
        for start in range(0, size, step):
            part = result[start : start + step]
            normals = np.zeros((step, *self._root.shape))  # products of one size round in one way
            normals[: len(part)] = generator.standard_normal((len(part), *self._root.shape))
            part[:] = self._root.draws(normals, shape)[: len(part)]
        return result


@dataclass(frozen=True)
class Root:
    """A square root of a covariance, for draws: members that differ in an `independent` position are independent.

    Those of the `others` have one factor; members of positions that are neither are equal.
    """

    positions: tuple[str, ...]
    independent: tuple[str, ...]
    others: tuple[str, ...]
    factor: Open  # over the independent positions that matter, the members of the others as one axis, RANK
    shape: tuple[int, ...]  # of the normals: independent positions, then the others

    @classmethod
    def of(cls, moment: IndexedValues, positions: Sequence[str]) -> Root:
        """Factorise the covariance of a family with itself."""
        same = {name: difference(Affine.index(name), Affine.index(f"{name}_")) for name in positions}
        independent = tuple(name for name in positions if all(same[name] in term.equations for term in moment.terms))
        moment = moment.read({f"{name}_": Affine.index(name) for name in independent}, moment.ranges)
        found = {name.rstrip("_") for term in moment.terms for name in _indices(term)}
        lead = tuple(name for name in independent if name in found)
        others = tuple(name for name in positions if name in found and name not in independent)
        sizes = {name: moment.ranges[name][1] - moment.ranges[name][0] for name in positions}
        members, blocks = (math.prod(sizes[name] for name in names) for names in (others, lead))
        need(
            6 * blocks * members**2,
            f"factoring the whole covariance of {members} members, which are not independent,",
            "draw with law.sample(size, keep=...)",
        )
        dense = moment.dense((*lead, *others, *(f"{name}_" for name in others))).value
        blocked = dense.reshape(*(sizes[name] for name in lead), members, members)
        shape = (*(sizes[name] for name in independent), members)
        return cls(tuple(positions), independent, others, Open((*lead, MEMBERS, RANK), psd_cholesky(blocked)), shape)

    def draws(self, normals: Array, shape: Sequence[int]) -> Array:
        """Gaussian draws from standard normals.

        Shapes    normals (draws, *self.shape) -> (draws, *shape)
        """
        value = contract(self.factor, Open((BATCH, *self.independent, RANK), normals), [RANK])
        sizes = dict(zip((BATCH, *self.positions), (len(normals), *shape), strict=True))
        full = (BATCH, *self.independent, *self.others)
        split = align(value, (BATCH, *self.independent, MEMBERS)).reshape([sizes[name] for name in full])
        return broadcast(Open(full, split), (BATCH, *self.positions), sizes)


def _written(equation: Affine, names: Mapping[str, str]) -> str:
    """An equation between positions, what is subtracted on its right: 'a = a_'."""

    def side(sign: int) -> Affine:
        terms = tuple((names.get(name, name), sign * value) for name, value in equation.terms if sign * value > 0)
        return Affine(terms, max(sign * equation.offset, 0))

    return f"{side(1)} = {side(-1)}"


def _indices(term: Term[Value]) -> set[str]:
    return {*term.value.axes, *(name for equation in term.equations for name in equation.indices)}

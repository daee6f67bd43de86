"""The two engines of MatMul: weights as matrices, exact by definition, and products without the matrix.

Let Q be an orthonormal basis of the inputs so far.  W is seen only through Xi = W Q^T n_in**0.5 / sigma, which has
i.i.d. standard normal entries.  A later input x is C Q plus a residual of length r, so W x is sigma n_in**-0.5 times
C Xi plus r times a fresh normal vector, which joins Xi as the residual's direction joins Q: the same law at every
finite n, at the cost of O(n k) numbers for k products.  Inputs and outputs may as well be given by coordinates in a
frame (`frames`): inner products and combinations are all that is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.normals import standard_normal
from tensorprog.language.linalg import pivoted_cholesky
from tensorprog.language.weight_members import Grouping

__all__ = ["Dense", "Lazy"]

Array = NDArray[Any]


@dataclass(eq=False)
class _History:
    """Basis Q (batch, members or 1, capacity, n_in) and normals Xi (batch, members, capacity, n_out), `filled` so far.

    Directions of inputs that depend on earlier ones are zero in Q; their normals serve nothing.
    """

    members: NDArray[np.int64]
    basis: Array
    normals: Array
    filled: int = 0

    def append(self, directions: Array, fresh: Array) -> None:
        """Add directions (batch, members or 1, columns, n_in) and their normals."""
        if self.basis.shape[1] < directions.shape[1]:
            self.basis = np.repeat(self.basis, directions.shape[1], axis=1)
        stop = self.filled + directions.shape[2]
        self.basis[:, :, self.filled : stop] = directions
        self.normals[:, :, self.filled : stop] = fresh
        self.filled = stop


class Lazy:
    """Histories of the weights of one block of networks."""

    def __init__(self) -> None:
        self._histories: dict[str, list[_History]] = {}

    def matmul(self, group: Grouping, vectors: Array, scale: Array, fresh: Array, again: bool, capacity: int) -> Array:
        """Products of packed vectors with their weights, given all earlier ones.

        Shapes    vectors (batch, members or 1, columns, n_in), scale (members used,): sigma n_in**-0.5 of each,
                  fresh (batch, members used, columns, n_out): independent N(0, I) vectors; `capacity` bounds the
                  columns of all products of one member -> (batch, members used, columns, n_out)
        """
        history = self._find(group, vectors, fresh, capacity)
        place = None
        if not np.array_equal(history.members, group.members):
            # members that this product does not use get zero vectors, which add nothing
            place = _place(history.members, group.members)
            vectors, fresh = (_spread(values, place, len(history.members)) for values in (vectors, fresh))
        dtype = fresh.dtype
        vectors = vectors.astype(np.float64, copy=False)  # so that what is new in an input is not lost in rounding
        squares = np.einsum("...ij,...ij->...i", vectors, vectors)
        residual, products = vectors, None
        if history.filled:
            basis = history.basis[:, :, : history.filled]
            along = np.matmul(vectors, basis.swapaxes(-1, -2))
            residual = vectors - np.matmul(along, basis)
            products = np.matmul(along.astype(dtype, copy=False), history.normals[:, :, : history.filled])
        factor, order = pivoted_cholesky(np.matmul(residual, residual.swapaxes(-1, -2)), squares)
        lower = factor.astype(dtype, copy=False)
        new = np.matmul(lower, fresh) if lower.shape[-1] > 1 else lower * fresh
        products = new if products is None else np.add(products, new, out=products)
        if again:
            history.append(_directions(residual, factor, order), fresh)
        products *= scale[:, None, None] if place is None else _scattered(scale, place, len(history.members))
        return products if place is None else products[:, place]

    def _find(self, group: Grouping, vectors: Array, fresh: Array, capacity: int) -> _History:
        """The one history that holds all earlier products of these weight members: a new one, or several merged."""
        kept = self._histories.get(group.weight.name, [])
        touched = [h for h in kept if np.intersect1d(h.members, group.members).size]
        members = np.unique(np.concatenate([group.members, *(h.members for h in touched)]))
        if len(touched) == 1 and np.array_equal(members, np.sort(touched[0].members)):
            return touched[0]
        if not touched:
            members = group.members
        batch = vectors.shape[0]
        basis_members = len(members) if touched else vectors.shape[1]
        basis = np.zeros((batch, basis_members, capacity, vectors.shape[-1]))
        normals = np.zeros((batch, len(members), capacity, fresh.shape[-1]), fresh.dtype)
        merged = _History(members, basis, normals)
        for h in touched:  # side by side: a direction of one is zero for the members of the others
            place = _place(members, h.members)
            stop = merged.filled + h.filled
            basis[:, place, merged.filled : stop] = h.basis[:, :, : h.filled]
            normals[:, place, merged.filled : stop] = h.normals[:, :, : h.filled]
            merged.filled = stop
        self._histories[group.weight.name] = [*(h for h in kept if h not in touched), merged]
        return merged


def _directions(residual: Array, factor: Array, order: NDArray[np.intp]) -> Array:
    """Orthonormal rows Q with factor Q = residual; zero where a column of the factor is."""
    result = np.zeros(residual.shape, residual.dtype)
    for column in range(residual.shape[-2]):
        row = order[..., column, None, None]
        rest = np.take_along_axis(residual, row, axis=-2)[..., 0, :]
        entries = np.take_along_axis(factor, row, axis=-2)[..., 0, :]
        if column:
            rest = rest - np.matmul(entries[..., None, :column], result[..., :column, :])[..., 0, :]
        pivot = entries[..., column, None]
        np.divide(rest, pivot, out=result[..., column, :], where=pivot > 0)
    return result


def _spread(values: Array, place: NDArray[np.int64], count: int) -> Array:
    """Values of some members among those of all, with zeros for the others."""
    result = np.zeros((values.shape[0], count, *values.shape[2:]), dtype=values.dtype)
    result[:, place] = values
    return result


def _scattered(scale: Array, place: NDArray[np.int64], count: int) -> Array:
    result = np.zeros((count, 1, 1), dtype=scale.dtype)
    result[place, 0, 0] = scale
    return result


def _place(members: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the wanted member numbers, all of which occur."""
    order = np.argsort(members)
    return order[np.searchsorted(members, wanted, sorter=order)]


class Dense:
    """Weight matrices of one block of networks, drawn when first used and dropped after their last use."""

    def __init__(self, generator: np.random.Generator, dtype: Any) -> None:
        self._generator, self._dtype = generator, dtype
        self._weights: dict[str, NDArray[Any]] = {}

    def matmul(
        self, group: Grouping, vectors: NDArray[Any], scale: NDArray[Any], outputs: int, members: int, again: bool
    ) -> NDArray[Any]:
        """Multiply packed vectors by their weights.

        Shapes    vectors (batch, members or 1, columns, inputs), scale (members used,): deviations of their entries
                  -> (batch, members used, columns, outputs)
        """
        name, transposed = group.weight.name, group.statement.transposed
        if name not in self._weights:
            sides = (vectors.shape[-1], outputs) if transposed else (outputs, vectors.shape[-1])
            shape = (vectors.shape[0], members, *sides)
            self._weights[name] = np.empty(shape, self._dtype)
            standard_normal(self._generator, self._weights[name])
        weight = self._weights[name] if again else self._weights.pop(name)
        if not np.array_equal(group.members, np.arange(members)):
            weight = weight[:, group.members]
        matrix = weight if transposed else weight.swapaxes(-1, -2)
        return np.matmul(vectors, matrix) * scale[:, None, None]  # type: ignore[no-any-return]

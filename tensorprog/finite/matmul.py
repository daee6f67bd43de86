"""The two engines of MatMul: weights as matrices, exact by definition, and products without the matrix.

Let Q be an orthonormal basis of the inputs so far.  W is seen only through Xi = W Q^T n_in**0.5 / sigma, which has
i.i.d. standard normal entries.  A later input x is C Q plus a residual of length r, so W x is sigma n_in**-0.5 times
C Xi plus r times a fresh normal vector, which joins Xi as the residual's direction joins Q: the same law at every
finite n, at the cost of O(n k) numbers for k products.  Inputs and outputs may as well be given by coordinates in a
frame (`frames`): inner products and combinations are all that is used.

Products with the transpose have a basis S of their own inputs, and H of normals.  They fix what W makes along S: for a
new direction q, the vector of normals is q H^T S plus a fresh vector without its part along S (Bolthausen 2014).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.normals import standard_normal
from tensorprog.finite.plan import History
from tensorprog.language.linalg import pivoted_cholesky
from tensorprog.language.weight_members import Grouping

__all__ = ["Dense", "Lazy"]

Array = NDArray[Any]


class Lazy:
    """Histories of the weights of one block of networks: basis Q and normals Xi of the products so far.

    Directions of inputs that depend on earlier ones, or that other members of the weight have, are zero in Q; their
    normals serve nothing.

    Shapes    Q (batch, members or 1, columns of all products, n_in), Xi (batch, members, the same columns, n_out)
    """

    def __init__(self) -> None:
        self._histories: dict[tuple[str, bool], tuple[Array, Array]] = {}  # of W, and of W^T

    def matmul(self, group: Grouping, vectors: Array, scale: Array, fresh: Array, place: History) -> Array:
        """Products of packed vectors with their weights, given all earlier ones.

        Shapes    vectors (batch, members or 1, columns, n_in), scale (members used,): sigma n_in**-0.5 of each,
                  fresh (batch, members used, columns, n_out): independent N(0, I) vectors
                  -> (batch, members used, columns, n_out)
        """
        dtype, members = fresh.dtype, math.prod(group.weight.shape)
        side, other_side = ((group.weight.name, group.statement.transposed != turned) for turned in (False, True))
        vectors = vectors.astype(np.float64, copy=False)  # so that what is new in an input is not lost in rounding
        if side not in self._histories:
            basis = np.zeros((len(vectors), 1 if place.shared else members, place.capacity, vectors.shape[-1]))
            self._histories[side] = basis, np.zeros((len(fresh), members, place.capacity, fresh.shape[-1]), dtype)
        (basis, normals), other = self._histories[side], self._histories.get(other_side)
        used: Any = slice(None) if np.array_equal(group.members, np.arange(members)) else group.members
        in_basis: Any = slice(None) if place.shared else used
        squares = np.einsum("...ij,...ij->...i", vectors, vectors)
        residual, products = vectors, None
        if place.start:
            earlier = basis[:, in_basis, : place.start]
            along = np.matmul(vectors, earlier.swapaxes(-1, -2))
            residual = vectors - np.matmul(along, earlier)
            products = np.matmul(along.astype(dtype, copy=False), normals[:, used, : place.start])
        factor, order = pivoted_cholesky(np.matmul(residual, residual.swapaxes(-1, -2)), squares)
        directions = None if place.last and other is None else _directions(residual, factor, order)
        if other is not None and directions is not None:
            along_other, made = (part if part.shape[1] == 1 else part[:, used] for part in other)
            onsager = np.matmul(directions, made.swapaxes(-1, -2)) - np.matmul(fresh, along_other.swapaxes(-1, -2))
            fresh = fresh + np.matmul(onsager, along_other).astype(dtype, copy=False)
        lower = factor.astype(dtype, copy=False)
        new = np.matmul(lower, fresh) if lower.shape[-1] > 1 else lower * fresh
        products = new if products is None else np.add(products, new, out=products)
        if place.last:
            self._histories = {key: kept for key, kept in self._histories.items() if key[0] != group.weight.name}
        else:
            columns = slice(place.start, place.start + fresh.shape[2])
            basis[:, in_basis, columns] = directions
            normals[:, used, columns] = fresh
        products *= scale[:, None, None]
        return products


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


class Dense:
    """Weight matrices of one block of networks, drawn when first used and dropped after their last use."""

    def __init__(self, generator: np.random.Generator, dtype: Any) -> None:
        self._generator, self._dtype = generator, dtype
        self._weights: dict[str, Array] = {}

    def matmul(self, group: Grouping, vectors: Array, scale: Array, outputs: int, last: bool) -> Array:
        """Multiply packed vectors by their weights.

        Shapes    vectors (batch, members or 1, columns, inputs), scale (members used,): deviations of their entries
                  -> (batch, members used, columns, outputs)
        """
        name, transposed, members = group.weight.name, group.statement.transposed, math.prod(group.weight.shape)
        if name not in self._weights:
            sides = (vectors.shape[-1], outputs) if transposed else (outputs, vectors.shape[-1])
            self._weights[name] = np.empty((len(vectors), members, *sides), self._dtype)
            standard_normal(self._generator, self._weights[name])
        weight = self._weights.pop(name) if last else self._weights[name]
        if not np.array_equal(group.members, np.arange(members)):
            weight = weight[:, group.members]
        matrix = weight if transposed else weight.swapaxes(-1, -2)
        return np.asarray(np.matmul(vectors, matrix) * scale[:, None, None])

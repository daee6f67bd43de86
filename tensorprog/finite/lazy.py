"""MatMul without the matrix: exact conditional Gaussians given the inputs and the earlier products.

With X = L Q (rows of X the inputs so far, Q orthonormal rows, L the Cholesky factor of X X^T) and W Gaussian,
W X^T = sigma n_in**-0.5 (L Xi)^T where Xi = Q W^T n_in**0.5 / sigma has i.i.d. standard normal entries.  A later input
adds a row to L and, unless it depends on earlier inputs, a fresh row to Xi: the same law at every finite n, at the cost
of O(n k) numbers for k products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.grouping import Grouping
from tensorprog.linalg import psd_cholesky

__all__ = ["Lazy"]

Array = NDArray[Any]


@dataclass(eq=False)
class _History:
    """Inputs X (batch, members or 1, k, n_in), factor L (.., k, k) and normals Xi (batch, members, k, rows) so far."""

    members: NDArray[np.int64]
    inputs: Array
    factor: Array
    normals: Array


class Lazy:
    """Histories of the weights of one block of networks; weights used once keep none."""

    def __init__(self, generator: np.random.Generator, dtype: Any) -> None:
        self._generator, self._dtype = generator, dtype
        self._histories: dict[str, list[_History]] = {}

    def matmul(self, group: Grouping, vectors: Array, scale: Array, rows: int, members: int, again: bool) -> Array:
        """Draw the products of packed vectors with their weights, given all earlier ones.

        Shapes    vectors (batch, members or 1, columns, n_in), scale (members used,): sigma n_in**-0.5 of each
                  -> (batch, members used, columns, rows)
        """
        batch, _, columns, _ = vectors.shape
        gram = np.matmul(vectors, vectors.swapaxes(-1, -2))
        history = self._find(group, vectors)
        count = len(group.members)
        if history is None:
            factor = psd_cholesky(gram)
            normals = self._draw((batch, count, columns, rows))
            products = factor @ normals if columns > 1 else factor * normals
            if again:
                self._histories.setdefault(group.weight.name, []).append(
                    _History(group.members, vectors, factor, normals)
                )
            products *= scale[:, None, None]
            return products  # type: ignore[no-any-return]
        # spread over the members of the history, which may be more: absent ones get zero vectors, which add nothing
        if not np.array_equal(history.members, group.members):
            place = _place(history.members, group.members)
            spread = np.zeros((batch, len(history.members), *vectors.shape[2:]), dtype=vectors.dtype)
            spread[:, place] = vectors
            vectors = spread
            gram = np.matmul(vectors, vectors.swapaxes(-1, -2))
        else:
            place = np.arange(count)
        cross = np.matmul(vectors, history.inputs.swapaxes(-1, -2))
        new = psd_cholesky(gram, history.factor, cross)
        fresh = self._draw((batch, len(history.members), columns, rows))
        normals = np.concatenate([history.normals, fresh], axis=2)
        products = np.matmul(new, normals)[:, place] * scale[:, None, None]
        if again:
            lead = new.shape[:-2]
            k = history.factor.shape[-1]
            old = np.broadcast_to(history.factor, (*lead, k, k))
            factor = np.concatenate(
                [np.concatenate([old, np.zeros((*lead, k, columns), old.dtype)], axis=-1), new], axis=-2
            )
            shape = (*lead, *history.inputs.shape[-2:])
            history.inputs = np.concatenate(
                [np.broadcast_to(history.inputs, shape), np.broadcast_to(vectors, (*lead, *vectors.shape[-2:]))], axis=2
            )
            history.factor, history.normals = factor, normals
        return products  # type: ignore[no-any-return]

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return self._generator.standard_normal(shape, dtype=self._dtype)  # type: ignore[no-any-return]

    def _find(self, group: Grouping, vectors: Array) -> _History | None:
        """Find the one history that holds all earlier products of these weight members, merging several."""
        kept = self._histories.get(group.weight.name, [])
        touched = [h for h in kept if np.intersect1d(h.members, group.members).size]
        if not touched:
            return None
        members = np.unique(np.concatenate([group.members, *(h.members for h in touched)]))
        if len(touched) == 1 and np.array_equal(members, touched[0].members):
            return touched[0]
        batch, total = vectors.shape[0], sum(h.factor.shape[-1] for h in touched)
        inputs = np.zeros((batch, len(members), total, vectors.shape[-1]), vectors.dtype)
        factor = np.zeros((batch, len(members), total, total), vectors.dtype)
        normals = np.zeros((batch, len(members), total, touched[0].normals.shape[-1]), vectors.dtype)
        start = 0
        for h in touched:
            place, stop = _place(members, h.members), start + h.factor.shape[-1]
            inputs[:, place, start:stop] = h.inputs
            factor[:, place, start:stop, start:stop] = h.factor
            normals[:, place, start:stop] = h.normals
            start = stop
        merged = _History(members, inputs, factor, normals)
        self._histories[group.weight.name] = [h for h in kept if h not in touched] + [merged]
        return merged


def _place(members: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the wanted member numbers, all of which occur."""
    order = np.argsort(members)
    return order[np.searchsorted(members, wanted, sorter=order)]

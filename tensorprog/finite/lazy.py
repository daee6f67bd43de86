"""MatMul without the matrix: exact conditional Gaussians given the inputs and the earlier products.

With X = L Q (rows of X the inputs so far, Q orthonormal rows, L the Cholesky factor of X X^T) and W Gaussian,
W X^T = sigma n_in**-0.5 (L Xi)^T where Xi = Q W^T n_in**0.5 / sigma has i.i.d. standard normal entries.  A later input
adds a row to L and, unless it depends on earlier inputs, a fresh row to Xi: the same law at every finite n, at the cost
of O(n k) numbers for k products.  Inputs and outputs may as well be given by coordinates in a frame (`frames`): inner
products and combinations are all that is used.
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
    """Inputs X (batch, members or 1, k, n_in), factor L (.., k, k) and normals Xi (batch, members, k, n_out) so far."""

    members: NDArray[np.int64]
    inputs: Array
    factor: Array
    normals: Array


class Lazy:
    """Histories of the weights of one block of networks."""

    def __init__(self) -> None:
        self._histories: dict[str, list[_History]] = {}

    def matmul(self, group: Grouping, vectors: Array, scale: Array, fresh: Array, again: bool) -> Array:
        """Products of packed vectors with their weights, given all earlier ones.

        Shapes    vectors (batch, members or 1, columns, n_in), scale (members used,): sigma n_in**-0.5 of each,
                  fresh (batch, members used, columns, n_out): independent N(0, I) vectors
                  -> (batch, members used, columns, n_out)
        """
        columns = vectors.shape[2]
        gram = np.matmul(vectors, vectors.swapaxes(-1, -2))
        history = self._find(group, vectors)
        count = len(group.members)
        if history is None:
            factor = psd_cholesky(gram)
            products = factor @ fresh if columns > 1 else factor * fresh
            if again:
                self._histories.setdefault(group.weight.name, []).append(
                    _History(group.members, vectors, factor, fresh)
                )
            products *= scale[:, None, None]
            return products  # type: ignore[no-any-return]
        # spread over the members of the history, which may be more: absent ones get zero vectors, which add nothing
        if not np.array_equal(history.members, group.members):
            place = _place(history.members, group.members)
            vectors = _spread(vectors, place, len(history.members))
            fresh = _spread(fresh, place, len(history.members))
            gram = np.matmul(vectors, vectors.swapaxes(-1, -2))
        else:
            place = np.arange(count)
        cross = np.matmul(vectors, history.inputs.swapaxes(-1, -2))
        new = psd_cholesky(gram, history.factor, cross)
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


def _spread(values: Array, place: NDArray[np.int64], count: int) -> Array:
    """Values of some members among those of all, with zeros for the others."""
    result = np.zeros((values.shape[0], count, *values.shape[2:]), dtype=values.dtype)
    result[:, place] = values
    return result


def _place(members: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the wanted member numbers, all of which occur."""
    order = np.argsort(members)
    return order[np.searchsorted(members, wanted, sorter=order)]

"""Triangular factors of the covariances that draws are made with, once where they are the same for all draws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.linalg import triangular
from tensorprog.limit.draw.joint_scores import relative_error
from tensorprog.limit.moment.values import REPLICATE, IndexedValues

__all__ = ["Factor", "same_for_all"]

Array = NDArray[Any]


def same_for_all(moment: IndexedValues) -> bool:
    """Whether a moment is the same for all draws."""
    return all(REPLICATE not in term.value.axes for term in moment.terms)


@dataclass(frozen=True)
class Factor:
    """Triangular factors, one for each of some weight members, of which many share one.

    Shapes    rows (draws or 1, kinds, columns, columns), or (draws or 1, kinds, columns) where they are diagonal; kind
              (members,)
    """

    rows: Array
    kind: NDArray[np.int64]
    relative: float = 0.0  # the largest error of a covariance, beside the deviations of both members

    @classmethod
    def of(cls, each: Iterable[tuple[Array, Array]]) -> Factor:
        """The factors of covariances, each with its errors averaged over draws: those of one member after another."""
        kinds: list[Array] = []
        kind, relative = list[int](), 0.0
        for cov, error in each:
            if not kinds or not (cov.shape == kinds[-1].shape and np.array_equal(cov, kinds[-1])):
                kinds.append(cov)
                relative = max(relative, relative_error(cov, error))
            kind.append(len(kinds) - 1)
        draws, size = (max((cov.shape[k] for cov in kinds), default=1) for k in (0, 1))
        whole = np.stack([np.broadcast_to(cov, (draws, size, size)) for cov in kinds] or [np.zeros((1, 0, 0))], axis=1)
        diagonal = np.einsum("...ii->...i", whole)
        if np.count_nonzero(whole) == np.count_nonzero(diagonal):
            return cls(np.sqrt(np.maximum(diagonal, 0.0)), np.array(kind, np.int64), relative)
        return cls(triangular(whole), np.array(kind, np.int64), relative)

    def at(self, members: NDArray[np.int64] | slice) -> Factor:
        """The factors of some of the members."""
        return replace(self, kind=self.kind[members])

    def times(self, block: Array, right: bool = False) -> Array:
        """Factors times normals, or normals times transposed factors, of every draw and member.

        Shapes    block (draws, members, rows, columns)
        """
        rows = self.rows if self.rows.shape[1] == 1 else self.rows[:, self.kind]
        if rows.ndim == 3:
            return np.asarray(block * (rows[:, :, None] if right else rows[..., None]))
        return np.asarray(block @ np.swapaxes(rows, -1, -2) if right else rows @ block)

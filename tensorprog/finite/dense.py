"""MatMul with materialised weight matrices: the reference, exact by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.normals import standard_normal
from tensorprog.language.weight_members import Grouping

__all__ = ["Dense"]


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

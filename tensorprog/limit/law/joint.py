"""Joint laws of a few variables: the conditional Gaussian in several dimensions, averaged over p-ring."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import standard_errors

__all__ = ["Joint"]

Array = NDArray[Any]
CHUNK = 1 << 19  # numbers held at once over a grid


@dataclass(frozen=True)
class Joint:
    """Draws of the conditional means and covariances of d variables.

    Shapes    mean (replicates, draws, d), cov (replicates, draws, d, d)
    Accuracy  errors are those of `standard_errors` over replicates plus the error of the covariances compiled
    """

    mean: Array
    cov: Array
    relative_error: float = 0.0

    @property
    def size(self) -> int:
        """Number of variables, d."""
        return int(self.mean.shape[-1])

    def _averaged(self, function: Callable[[Array, Array], Array], points: Array) -> tuple[Array, Array]:
        """Average function(x - mean, draws) over the draws of each replicate, in pieces of bounded size.

        `function` takes differences (draws, points, d) and the numbers of the draws -> (draws, points)
        """
        replicates, draws, d = self.mean.shape
        result = np.zeros((replicates, len(points)))
        step = max(1, CHUNK // max(1, len(points) * d))
        for r in range(replicates):
            for start in range(0, draws, step):
                chosen = np.arange(start, min(draws, start + step))
                result[r] += function(points - self.mean[r, chosen, None], r * draws + chosen).sum(axis=0)
        values = result / draws
        value = values.mean(axis=0)
        return value, standard_errors(values)

    def density(self, points: Array) -> tuple[Array, Array]:
        """Joint density.

        Shapes    points (..., d) -> two arrays (...)
        Raises    LinAlgError where a conditional covariance is singular: there is no density
        """
        d = self.size
        flat = self.cov.reshape(-1, d, d)
        scale = np.sqrt(np.einsum("nkk->nk", flat))
        safe = np.where(scale > 0, scale, 1.0)
        values, vectors = np.linalg.eigh(flat / safe[:, :, None] / safe[:, None, :])
        if np.any(values < 1e-12):
            raise np.linalg.LinAlgError("singular")
        whiten = np.swapaxes(vectors / np.sqrt(values)[:, None, :], 1, 2) / safe[:, None, :]
        norm = np.exp(-0.5 * np.log(values).sum(axis=1)) / safe.prod(axis=1) / (2 * math.pi) ** (d / 2)

        def normal(offset: Array, number: Array, moved: bool = False) -> Array:
            """The densities, or what a relative change of the covariance does: times (q + d) / 2, q the exponent."""
            square = np.square(offset @ np.swapaxes(whiten[number], 1, 2)).sum(axis=-1)
            return np.asarray((0.5 * (square + d) if moved else 1.0) * norm[number, None] * np.exp(-0.5 * square))

        value, error = self._averaged(normal, points.reshape(-1, d))
        if self.relative_error:
            moved = self._averaged(partial(normal, moved=True), points.reshape(-1, d))[0]
            error = error + 2 * self.relative_error * moved
        return value.reshape(points.shape[:-1]), error.reshape(points.shape[:-1])

    def moment(self, orders: Sequence[int]) -> tuple[float, float]:
        """E of the product of (Y_k - E Y_k)**orders[k], by Isserlis' theorem for each draw."""
        centred = self.mean - self.mean.mean(axis=(0, 1))
        known: dict[tuple[int, ...], Array] = {(0,) * self.size: np.ones(self.mean.shape[:2])}

        def gaussian(powers: tuple[int, ...]) -> Array:
            # E[y_k q(y)] = m_k E[q] + sum over l of C_kl E[dq / dy_l]
            if powers not in known:
                k = next(k for k, p in enumerate(powers) if p)
                fewer = tuple(p - (m == k) for m, p in enumerate(powers))
                total = centred[..., k] * gaussian(fewer)
                for m, p in enumerate(fewer):
                    if p:
                        least = tuple(q - (n == m) for n, q in enumerate(fewer))
                        total = total + p * self.cov[..., k, m] * gaussian(least)
                known[powers] = total
            return known[powers]

        values = gaussian(tuple(orders)).mean(axis=1)
        value, total = float(values.mean()), sum(orders)
        size = 0.0
        if self.relative_error:  # that of the product of the variables' own sizes: the value itself may be near 0
            even = total + total % 2
            own = [float(gaussian(tuple(even * (m == k) for m in range(self.size))).mean()) for k in range(self.size)]
            size = math.prod(max(x, 0.0) ** (k / max(even, 1)) for x, k in zip(own, orders, strict=True))
        return value, float(standard_errors(values) + 0.5 * total * self.relative_error * size)

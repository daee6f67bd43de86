"""The numbers of a depth profile, from Gram matrices of tokens and from weights of attention.

    variance             mean over tokens of E[z_i**2]
    token_correlation    mean over pairs of tokens of E[z_i z_j / sqrt(E z_i**2 E z_j**2)]
    effective_rank       E of exp of the entropy of the eigenvalues of the Gram matrix over its trace
    attention_entropy    mean over rows of E[-sum_j a_j log a_j]
    kurtosis             mean over tokens of the fourth central moment over the squared variance
    gradient_norm        mean over tokens of |d(sum xi . y / sqrt(n)) / dz_i|**2, xi standard normal for every output

Inner expectations are over coordinates, given the scores; the outer ones over draws of the scores.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["LONG_NAMES", "QUANTITIES", "Sums", "correlations", "effective_ranks", "widened"]

Array = NDArray[np.float64]
LONG_NAMES = {
    "variance": "mean square of a coordinate",
    "token_correlation": "mean correlation of two tokens",
    "effective_rank": "effective rank of the tokens",
    "attention_entropy": "entropy of attention",
    "kurtosis": "kurtosis (Gaussian = 3)",
    "gradient_norm": "squared norm of the gradient",
}
QUANTITIES = tuple(LONG_NAMES)
SECOND = QUANTITIES[:3]  # of Gram matrices
TINY = 1e-300


def correlations(gram: Array) -> Array:
    """The mean over pairs of tokens of their correlation; nan for a single token.

    Shapes    gram (..., tokens, tokens) -> (...)
    """
    tokens = gram.shape[-1]
    if tokens < 2:
        return np.full(gram.shape[:-2], np.nan)
    root = np.sqrt(np.maximum(np.einsum("...ii->...i", gram), TINY))
    found = gram / root[..., :, None] / root[..., None, :]
    total = found.sum(axis=(-2, -1)) - np.einsum("...ii->...", found)
    return np.asarray(total / (tokens * (tokens - 1)))


def effective_ranks(gram: Array) -> Array:
    """exp of the entropy of the eigenvalues, divided by their sum: 1 for equal tokens, their number for orthogonal
    ones of one length.

    Shapes    gram (..., tokens, tokens) -> (...)
    """
    trace = np.maximum(np.einsum("...ii->...", gram), TINY)
    share = np.linalg.eigvalsh(gram / trace[..., None, None])
    share = np.maximum(share, 0.0)
    share = share / share.sum(axis=-1, keepdims=True)
    entropy = -np.sum(share * np.log(np.maximum(share, TINY)), axis=-1)
    return np.asarray(np.exp(entropy))


def widened(name: str, value: Array, tokens: int, relative: Array) -> Array:
    """What errors of Gram matrices, relative to the lengths of tokens, do to a quantity at most.

    A correlation moves by twice the error.  Of eigenvalues that add up to 1, the sum of all moves is at most t = tokens
    times twice the error, and an entropy by no more than t log(tokens / t) (Fannes).

    Shapes    value (layers,), relative (2, layers), of diagonals and of all entries -> (layers,)
    """
    diagonal, relative = np.broadcast_to(relative, (2, *value.shape))
    if name == "token_correlation":
        return 2 * relative
    if name == "effective_rank":
        moved = np.clip(2 * tokens * relative, TINY, 1 / math.e)
        return np.asarray(value * np.expm1(moved * np.log(tokens / moved)))
    return np.asarray((4 if name == "kurtosis" else 1) * diagonal * np.abs(value))


class Sums:
    """Sums over draws, from which the quantities of all layers follow.

    Shapes    each sum (layers,), plain moments (orders, layers, others, tokens)
    """

    def __init__(self) -> None:
        self.draws, self._sums, self._raw = 0, dict[str, Array](), np.zeros(())
        self.relative, self.tokens, self._known = np.zeros(()), 1, True

    def add(self, gram: Array, raw: Array | None, entropy: Array | None, relative: Array | None = None) -> None:
        """More draws.

        Shapes    gram (draws, layers, others, tokens, tokens), raw (orders, draws, layers, others, tokens),
                  entropy (draws, layers), nan where there is no attention
        """
        self.draws, self.tokens = self.draws + len(gram), gram.shape[-1]
        self.relative = self.relative if relative is None else np.maximum(self.relative, relative)
        found = {"variance": np.einsum("...ii->...", gram) / self.tokens}
        if self.tokens > 1:
            found |= {"token_correlation": correlations(gram), "effective_rank": effective_ranks(gram)}
        each = {name: value.mean(axis=2) for name, value in found.items()}
        if entropy is not None:
            each["attention_entropy"] = entropy
        for name, values in each.items():
            self._sums[name] = self._sums.get(name, np.zeros(())) + values.sum(axis=0)
        self._known &= raw is not None
        if raw is not None:
            self._raw = self._raw + raw.sum(axis=1)

    def __add__(self, other: Sums) -> Sums:
        total = Sums()
        total.draws, total.tokens = self.draws + other.draws, max(self.tokens, other.tokens)
        total.relative, total._known = np.maximum(self.relative, other.relative), self._known and other._known
        names = dict.fromkeys([*self._sums, *other._sums])
        zero = np.zeros(())
        total._sums = {name: self._sums.get(name, zero) + other._sums.get(name, zero) for name in names}
        total._raw = self._raw + other._raw
        return total

    @property
    def values(self) -> dict[str, Array]:
        """The quantities by name.

        Shapes    each (layers,)
        """
        found = {name: np.asarray(total / self.draws) for name, total in self._sums.items()}
        if self._known and self._raw.ndim:
            found["kurtosis"] = _kurtosis(self._raw / self.draws).mean(axis=(-2, -1))
        return found


def _kurtosis(raw: Array) -> Array:
    """From plain moments of orders 1 to 4."""
    mean, second, third, fourth = raw
    with np.errstate(over="ignore", invalid="ignore"):  # nan where the fourth moment is no number
        variance = second - mean**2
        central = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
        return np.asarray(central / np.maximum(variance, TINY) ** 2)

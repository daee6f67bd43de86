"""The paper's attention layer as one writes it in numpy: every matrix drawn once, one network after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def attention(generator: np.random.Generator, n: int, heads: int, tokens: int, clip: float = 100.0) -> Array:
    """Outputs (tokens, n) of one network."""
    weight = np.empty((n, n))  # the same memory for every matrix: none is needed twice

    def times_new_weight(vectors: Array) -> Array:
        generator.standard_normal(out=weight)
        return weight @ vectors / np.sqrt(n)

    h = generator.standard_normal(n)
    x = np.clip(np.stack([times_new_weight(h) for _ in range(tokens)], axis=1), -clip, clip)
    y = np.zeros((n, tokens))
    for _ in range(heads):
        q, k, v = times_new_weight(x), times_new_weight(x), times_new_weight(x)
        p = q.T @ k / np.sqrt(n)
        e = np.exp(p - p.max(axis=1, keepdims=True))
        y += times_new_weight(v @ (e / e.sum(axis=1, keepdims=True)).T)
    return y.T / np.sqrt(heads)


def loop(n: int, heads: int, tokens: int, networks: int, seed: int = 0) -> Callable[[], Array]:
    """Coordinate 0 of the outputs of so many networks (networks, tokens), when called."""
    generator = np.random.Generator(np.random.SFC64(seed))
    return lambda: np.stack([attention(generator, n, heads, tokens)[:, 0] for _ in range(networks)])

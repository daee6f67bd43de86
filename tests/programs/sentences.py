"""Covariances of networks on two sentences, from the Gram matrix of all tokens; plain numpy.

Everywhere `tokens` is that matrix, (T, T), and `first` the number of tokens of the first sentence.
Nothing here imports the package: erf and relu networks by the closed forms of their kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.limit.oracles import arccos_kernel, arcsine_kernel

Array = NDArray[np.float64]
FIRST = 7


def gram(vectors: Array) -> Array:
    """Inner products over the dimension."""
    result: Array = vectors @ vectors.T / vectors.shape[1]
    return result


def mlp_bias(tokens: Array, first: int = FIRST) -> Array:
    """Two erf layers, each with a bias of variance 0.1."""
    return arcsine_kernel(2 * arcsine_kernel(2 * tokens + 0.1) + 0.1)


def rnn(tokens: Array, first: int = FIRST) -> Array:
    """Second moments of the states of an erf network, over all pairs of tokens."""
    states = np.zeros_like(tokens)
    before = np.zeros_like(tokens)  # moments of the states before each token, zero at the start of a sentence
    for _ in range(len(tokens)):  # each pass fixes one more position of both sentences
        states = arcsine_kernel(before + tokens + 0.1)
        before[1:, 1:] = states[:-1, :-1]
        before[[0, first]] = before[:, [0, first]] = 0
    return states


def rnn_avgpool(tokens: Array, first: int = FIRST) -> Array:
    """The same, averaged over each sentence."""
    states = rnn(tokens, first)
    parts = slice(0, first), slice(first, len(tokens))
    return np.array([[states[a, b].mean() for b in parts] for a in parts])


def causal(scores: Array, first: int) -> Array:
    """Softmax over the tokens of the same sentence up to each token."""
    weights = np.zeros_like(scores)
    for row in range(len(scores)):
        start = 0 if row < first else first
        part = np.exp(scores[row, start : row + 1])
        weights[row, start : row + 1] = part / part.sum()
    return weights


def correlation(moment: Array) -> Array:
    """Of vectors of mean zero: what layer normalisation leaves of their second moments."""
    scale = np.sqrt(np.diag(moment))
    return moment / np.outer(scale, scale)  # type: ignore[no-any-return]


def transformer_yang(tokens: Array, first: int = FIRST, layers: int = 2) -> Array:
    """On the scale 1/n scores are the Gram matrix of the layer's tokens."""
    state = tokens
    for _ in range(layers):
        mixed = np.eye(len(state)) + causal(state, first)
        attended = correlation(mixed @ state @ mixed.T)
        state = correlation(arccos_kernel(attended + 1) + 1 + attended)
    return state


CLOSED = {"mlp_bias": mlp_bias, "rnn": rnn, "rnn_avgpool": rnn_avgpool, "transformer_yang": transformer_yang}

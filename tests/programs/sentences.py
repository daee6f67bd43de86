"""Covariances of networks on two sentences, from the Gram matrix of all tokens; plain numpy.

Everywhere `tokens` is that matrix, (T, T), and `first` the number of tokens of the first sentence.
Nothing here imports the package: erf and relu networks by the closed forms of their kernels, gated ones by simulating
networks of great width from the conditional law of a Gaussian matrix given its products so far.
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


class Weight:
    """A matrix of independent N(0, 1/n) entries that is known by its products only."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []

    def __call__(self, x: Array) -> Array:
        """The product with x: its mean given the products so far, and what is new in x times fresh normals."""
        known = np.zeros_like(x)
        rest = x
        if self.inputs:
            inputs = np.stack(self.inputs)
            share = np.linalg.pinv(inputs @ inputs.T / len(x), rcond=1e-10, hermitian=True) @ (inputs @ x / len(x))
            known, rest = share @ np.stack(self.outputs), x - share @ inputs
        result: Array = known + np.sqrt(np.mean(rest**2)) * self.generator.standard_normal(len(x))
        self.inputs.append(x)
        self.outputs.append(result)
        return result


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def read(tokens: Array, width: int, generator: np.random.Generator) -> Array:
    """The tokens as one gate reads them, with its bias: (T, width)."""
    values, directions = np.linalg.eigh(tokens + 0.1)
    factor = directions * np.sqrt(np.maximum(values, 0))
    return np.asarray(factor @ generator.standard_normal((len(tokens), width)))


def gru_states(tokens: Array, first: int, width: int, generator: np.random.Generator) -> Array:
    """States of one network, (T, width)."""
    xz, xr, xh = (read(tokens, width, generator) for _ in range(3))
    Uz, Ur, Uh = (Weight(generator) for _ in range(3))
    states: list[Array] = []
    for t in range(len(tokens)):
        h = np.zeros(width) if t in (0, first) else states[-1]
        z, r = sigmoid(Uz(h) + xz[t]), sigmoid(Ur(h) + xr[t])
        states.append((1 - z) * h + z * np.tanh(Uh(r * h) + xh[t]))
    return np.stack(states)


def lstm_states(tokens: Array, first: int, width: int, generator: np.random.Generator) -> Array:
    """States of one network, (T, width)."""
    xi, xf, xg, xo = (read(tokens, width, generator) for _ in range(4))
    Ui, Uf, Ug, Uo = (Weight(generator) for _ in range(4))
    states: list[Array] = []
    c = np.zeros(width)
    for t in range(len(tokens)):
        h, c = (np.zeros(width), np.zeros(width)) if t in (0, first) else (states[-1], c)
        c = sigmoid(Uf(h) + xf[t] + 1) * c + sigmoid(Ui(h) + xi[t]) * np.tanh(Ug(h) + xg[t])
        states.append(sigmoid(Uo(h) + xo[t]) * np.tanh(c))
    return np.stack(states)


def simulated(name: str, tokens: Array, networks: int, first: int = FIRST, width: int = 1 << 15) -> tuple[Array, Array]:
    """Second moments of the states of a gated network, and standard errors from independent networks of great width.

    What the moments lack at that width, of order 1/width, is small beside their standard errors.
    """
    moments = []
    for seed in range(networks):
        drawn = GATED[name](tokens, first, width, np.random.default_rng(seed))
        moments.append(drawn @ drawn.T / width)
    return np.mean(moments, axis=0), np.std(moments, axis=0, ddof=1) / np.sqrt(networks)


CLOSED = {"mlp_bias": mlp_bias, "rnn": rnn, "rnn_avgpool": rnn_avgpool, "transformer_yang": transformer_yang}
GATED = {"gru": gru_states, "lstm": lstm_states}

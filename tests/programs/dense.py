"""Whole networks of shipped architectures with all their matrices, in plain numpy; nothing here imports the package.

Each function draws `networks` networks of width n, with the sizes of the program as it ships, and gives their output,
(networks, n, tokens).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, softmax

Array = NDArray[np.float64]
Network = Callable[[int, int, np.random.Generator], Array]


def weight(generator: np.random.Generator, networks: int, rows: int, columns: int, variance: float = 1) -> Array:
    """A matrix for each network, with entries of variance `variance` / columns."""
    return np.asarray(generator.standard_normal((networks, rows, columns)) * np.sqrt(variance / columns))


def rms_norm(x: Array, eps: float = 1e-6) -> Array:
    return np.asarray(x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps))


def layer_norm(x: Array, eps: float = 1e-5) -> Array:
    return np.asarray((x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + eps))


def gelu(x: Array) -> Array:
    return np.asarray(x * (1 + erf(x / np.sqrt(2))) / 2)


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def attend(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    """Attention of one head; (networks, dimension, tokens) each."""
    scores = q.transpose(0, 2, 1) @ k / np.sqrt(q.shape[1])
    if causal:
        scores = np.where(np.tri(*scores.shape[1:]) > 0, scores, -np.inf)
    return np.asarray(v @ softmax(scores, axis=2).transpose(0, 2, 1))


def rotary(x: Array, base: float) -> Array:
    """Queries or keys whose halves are turned by position * base**-((a + 1/2) / (dimension / 2)) in coordinate a."""
    half = x.shape[1] // 2
    turn = np.exp(1j * np.outer(base ** -((np.arange(half) + 0.5) / half), np.arange(x.shape[2])))
    turned = (x[:, :half] + 1j * x[:, half:]) * turn
    return np.concatenate([turned.real, turned.imag], axis=1)


def llama_block(n: int, networks: int, generator: np.random.Generator) -> Array:
    groups, heads, d = 2, 2, n // 4
    x = generator.standard_normal((networks, n, 3))
    h = rms_norm(x)
    added = np.zeros_like(x)
    for _ in range(groups):
        k = rotary(weight(generator, networks, d, n) @ h, 10000)
        v = weight(generator, networks, d, n) @ h
        for _ in range(heads):
            q = rotary(weight(generator, networks, d, n) @ h, 10000)
            added += weight(generator, networks, n, d, 1 / 4) @ attend(q, k, v, causal=True)
    x = x + added
    h = rms_norm(x)
    gate, up = (weight(generator, networks, 4 * n, n) @ h for _ in range(2))
    return np.asarray(x + weight(generator, networks, n, 4 * n) @ (silu(gate) * up))


def blocks(x: Array, generator: np.random.Generator, heads: int, share: float, eps: float, causal: bool) -> Array:
    """One layer of attention and gelu network, layer norm in front of each; `share` scales what each adds."""
    networks, n, _ = x.shape
    h = layer_norm(x, eps)
    for _ in range(heads):
        q, k, v = (weight(generator, networks, n // heads, n) @ h for _ in range(3))
        x = x + weight(generator, networks, n, n // heads, share / heads) @ attend(q, k, v, causal)
    inner = gelu(weight(generator, networks, 4 * n, n) @ layer_norm(x, eps))
    return np.asarray(x + weight(generator, networks, n, 4 * n, share) @ inner)


def gpt2(n: int, networks: int, generator: np.random.Generator) -> Array:
    x = generator.standard_normal((networks, n, 3)) + generator.standard_normal((networks, n, 3))
    return layer_norm(blocks(x, generator, heads=2, share=1 / 2, eps=1e-5, causal=True))


def vit(n: int, networks: int, generator: np.random.Generator) -> Array:
    places = np.array([(row, column) for row in range(2) for column in range(2)])
    distance = np.abs(places[:, None] - places).sum(axis=2)
    patches = generator.standard_normal((networks, n, 4)) @ np.linalg.cholesky(0.5**distance).T
    x = np.concatenate([generator.standard_normal((networks, n, 1)), patches], axis=2)
    x = x + generator.standard_normal(x.shape)
    return layer_norm(blocks(x, generator, heads=2, share=1, eps=1e-12, causal=False), 1e-12)


def mixture_of_experts(n: int, networks: int, generator: np.random.Generator) -> Array:
    x = generator.standard_normal((networks, n, 2)) @ np.array([[1, 0.5], [0, np.sqrt(0.75)]])
    h = rms_norm(x)
    shares = softmax(weight(generator, networks, 4, n) @ h, axis=1)
    for expert in range(4):
        gate, up = (weight(generator, networks, n, n) @ h for _ in range(2))
        x = x + shares[:, expert, None] * (weight(generator, networks, n, n) @ (silu(gate) * up))
    return np.asarray(x)


def whisper_like(n: int, networks: int, generator: np.random.Generator) -> Array:
    def attention(asks: Array, answers: Array, causal: bool = False) -> Array:
        q, k, v = (weight(generator, networks, n, n) @ x for x in (asks, answers, answers))
        return weight(generator, networks, n, n) @ attend(q, k, v, causal)

    def network(x: Array) -> Array:
        return weight(generator, networks, n, n) @ gelu(weight(generator, networks, n, n) @ rms_norm(x, 1e-5))

    apart = np.abs(np.arange(4)[:, None] - np.arange(4))
    frames = generator.standard_normal((networks, n, 4)) @ np.linalg.cholesky(0.5**apart).T
    padded = np.concatenate([np.zeros((networks, n, 1)), frames], axis=2)  # zero before the first frame
    x = gelu(sum(weight(generator, networks, n, n, 2 / 3) @ padded[:, :, tap : tap + 3 : 2] for tap in range(3)))
    h = rms_norm(x, 1e-5)
    x = x + attention(h, h)
    encoded = rms_norm(x + network(x), 1e-5)
    text = generator.standard_normal((networks, n, 2))
    h = rms_norm(text, 1e-5)
    text = text + attention(h, h, causal=True)
    text = text + attention(rms_norm(text, 1e-5), encoded)
    return text + network(text)


def mamba_like(n: int, networks: int, generator: np.random.Generator) -> Array:
    apart = np.abs(np.arange(3)[:, None] - np.arange(3))
    x = generator.standard_normal((networks, n, 3)) @ np.linalg.cholesky(0.5**apart).T
    s = silu(weight(generator, networks, n, n) @ x)
    reads, asks = (weight(generator, networks, 2, n) @ s for _ in range(2))
    bias = generator.standard_normal((networks, n, 1)) - 1
    steps = np.log1p(np.exp(weight(generator, networks, n, n) @ s + bias))
    state = np.zeros((networks, n, 2))
    for token in range(3):
        step = steps[:, :, token, None]
        state = np.exp(-step * np.array([1, 2])) * state + step * reads[:, None, :, token] * s[:, :, token, None]
    last = (state * asks[:, None, :, -1]).sum(axis=2, keepdims=True) + s[:, :, -1:]
    gate = silu(weight(generator, networks, n, n) @ x[:, :, -1:])
    return np.asarray(weight(generator, networks, n, n) @ (last * gate))


NETWORKS: dict[str, Network] = {
    "llama_block": llama_block,
    "gpt2": gpt2,
    "vit": vit,
    "mixture_of_experts": mixture_of_experts,
    "mamba_like": mamba_like,
    "whisper_like": whisper_like,
}


def moments(outputs: Array) -> tuple[Array, Array]:
    """Second moments (upper triangle) and fourth moments of the outputs, averaged over coordinates, with their errors.

    Shapes    outputs (networks, n, tokens) -> two of (tokens (tokens + 1) / 2 + tokens,)
    """
    second = np.einsum("nci,ncj->nij", outputs, outputs) / outputs.shape[1]
    rows, columns = np.triu_indices(outputs.shape[2])
    each = np.concatenate([second[:, rows, columns], (outputs**4).mean(axis=1)], axis=1)
    return each.mean(axis=0), each.std(axis=0) / np.sqrt(len(each))

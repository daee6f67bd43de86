"""Programs of `agreement_programs` by hand, in numpy: every matrix is drawn, and nothing imports the package.

Each takes a generator and a number of networks and returns what a run reports, coordinate 0 of vectors: one array
(networks, *members) for each output and score.  Widths and variances are those of the program of the same name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BATCH = 5000


def gaussian(generator: np.random.Generator, networks: int, *shape: int, variance: float = 1.0) -> Array:
    """Weight matrices, or families of them: rows and columns come last."""
    return generator.standard_normal((networks, *shape)) * np.sqrt(variance / shape[-1])


def softmax(p: Array) -> Array:
    e = np.exp(p - p.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(g: np.random.Generator, m: int) -> dict[str, Array]:
    n, s, heads = 4, 3, 2
    h = g.standard_normal((m, n))
    x = np.clip(np.einsum("mirc,mc->mir", gaussian(g, m, s, n, n), h), -1, 1)
    q = np.einsum("marc,mic->mair", gaussian(g, m, heads, n, n), x)
    k = np.einsum("marc,mjc->majr", gaussian(g, m, heads, n, n, variance=1.5), x)
    p = np.einsum("mair,majr->maij", q, k) / np.sqrt(n)
    v = np.einsum("marc,mjc->majr", gaussian(g, m, heads, n, n), x)
    mixed = np.einsum("maij,majr->mair", softmax(p), v)
    y = np.einsum("marc,maic->mir", gaussian(g, m, heads, n, n), mixed) / np.sqrt(heads)
    return {"y": y[..., 0], "p": p}


def low_rank(g: np.random.Generator, m: int) -> dict[str, Array]:
    n, s, heads, d = 6, 2, 2, 3
    x = g.standard_normal((m, s, n))
    z = np.maximum(x, 0)
    q = np.einsum("madc,mic->maid", gaussian(g, m, heads, d, n), z)
    k = np.einsum("madc,mjc->majd", gaussian(g, m, heads, d, n), z)
    p = np.einsum("maid,majd->maij", q, k) / np.sqrt(d)
    v = np.einsum("madc,mjc->majd", gaussian(g, m, heads, d, n), x)
    mixed = np.einsum("maij,majd->maid", softmax(p), v)
    y = np.einsum("marc,maic->mir", gaussian(g, m, heads, n, d), mixed) / np.sqrt(heads)
    return {"y": y[..., 0], "p": p}


def shared_keys(g: np.random.Generator, m: int) -> dict[str, Array]:
    n, s, heads = 4, 2, 2
    z = np.maximum(g.standard_normal((m, s, n)), 0)
    q = np.einsum("marc,mic->mair", gaussian(g, m, heads, n, n), z)
    k = np.einsum("mrc,mjc->mjr", gaussian(g, m, n, n, variance=1.5), z)
    v = np.einsum("mrc,mjc->mjr", gaussian(g, m, n, n), z)
    p = np.einsum("mair,mjr->maij", q, k) / np.sqrt(n)
    return {"y": np.einsum("maij,mjr->mir", softmax(p), v)[..., 0], "p": p}


def two_layers_relu(g: np.random.Generator, m: int) -> dict[str, Array]:
    n, s = 3, 2
    z = g.standard_normal((m, s, n))
    scores = []
    for layer in range(2):
        q = np.einsum("mrc,mic->mir", gaussian(g, m, n, n), z)
        k = np.einsum("mrc,mic->mir", gaussian(g, m, n, n), z)
        v = np.einsum("mrc,mic->mir", gaussian(g, m, n, n), z)
        scores.append(np.einsum("mir,mjr->mij", q, k) / np.sqrt(n))
        z = np.einsum("mij,mjr->mir", softmax(scores[-1]), v)
        if layer == 0:
            z = np.maximum(z, 0)
    return {"y": z[..., 0], "p": scores[0], "p2": scores[1]}


def linear_recurrence_width_2(g: np.random.Generator, m: int) -> dict[str, Array]:
    n = 2
    h = 0.5 + g.standard_normal((m, n))
    e = g.standard_normal((m, 3, n))
    w = gaussian(g, m, n, n)
    s = h
    p, r, last = [], [], []
    for t in range(3):
        u = np.einsum("mrc,mc->mr", w, s)
        r.append((u * u).sum(axis=-1) / n)
        last.append((u * s).sum(axis=-1) / np.sqrt(n))
        s = u + 0.5 * e[:, t]
        p.append((s * h).sum(axis=-1) / np.sqrt(n))
    return {
        "y": sum(np.tanh(a) + b for a, b in zip(p, r, strict=True)),  # type: ignore[dict-item]
        "p": np.stack(p, axis=1),
        "r": np.stack(r, axis=1),
        "m": np.stack(last, axis=1),
    }


def layer_norm_of_inner_products_only(g: np.random.Generator, m: int) -> dict[str, Array]:
    n, s = 3, 2
    x = g.standard_normal((m, s, n))
    v = np.einsum("mrc,mic->mir", gaussian(g, m, n, n), x)
    mean = v.mean(axis=-1)
    square = (v * v).mean(axis=-1)
    norm = (v - mean[..., None]) / np.sqrt(square - mean**2 + 0.01)[..., None]
    q = np.einsum("mrc,mic->mir", gaussian(g, m, n, n), norm)
    k = np.einsum("mrc,mic->mir", gaussian(g, m, n, n), norm)
    p = np.einsum("mir,mjr->mij", q, k) / np.sqrt(n)
    y = np.einsum("mij,mjr->mir", softmax(p), x)
    return {
        "y": y[..., 0],
        "m": mean,
        "s": square,
        "p": p,
        "r": np.einsum("mir,mjr->mij", norm, norm) / n,
    }


ORACLES: dict[str, Callable[[np.random.Generator, int], dict[str, Array]]] = {
    function.__name__: function
    for function in (
        attention,
        low_rank,
        shared_keys,
        two_layers_relu,
        linear_recurrence_width_2,
        layer_norm_of_inner_products_only,
    )
}


def simulate(name: str, networks: int, seed: int) -> dict[str, Array]:
    """Many networks of one program, drawn in batches."""
    generator = np.random.default_rng(seed)
    parts = [ORACLES[name](generator, min(BATCH, networks - start)) for start in range(0, networks, BATCH)]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

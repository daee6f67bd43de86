"""Independent answers: plain numpy, mpmath and dense simulation; nothing here imports the package."""

from __future__ import annotations

import mpmath
import numpy as np
from numpy.typing import NDArray


def clip_moment(c: float) -> float:
    """E clip(g, -c, c)**2 for a standard normal g, by 30-digit quadrature."""
    with mpmath.workdps(30):
        inside = mpmath.quad(lambda x: x * x * mpmath.npdf(x), [-c, 0, c])
        return float(inside + 2 * c * c * (1 - mpmath.ncdf(c)))


def arccos_kernel(k: NDArray[np.float64]) -> NDArray[np.float64]:
    """E relu(u) relu(v) for N(0, k): Cho & Saul 2009, equation (6) with J_1, halved norm convention."""
    d = np.sqrt(np.diag(k))
    rho = np.clip(k / np.outer(d, d), -1, 1)
    theta = np.arccos(rho)
    return np.outer(d, d) / (2 * np.pi) * (np.sin(theta) + (np.pi - theta) * rho)


def arcsine_kernel(k: NDArray[np.float64]) -> NDArray[np.float64]:
    """E erf(u) erf(v) for N(0, k): Williams 1998."""
    d = 1 + 2 * np.diag(k)
    return 2 / np.pi * np.arcsin(2 * k / np.sqrt(np.outer(d, d)))


def attention_draws(
    samples: int, s: int, heads: int, seed: int, c: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Example 1's limit from its formulas: scores (samples, H, s, s), values (samples, H, s), outputs (samples, s)."""
    generator = np.random.default_rng(seed)
    p = c * generator.standard_normal((samples, heads, s, s))
    v = np.sqrt(c) * generator.standard_normal((samples, heads, s))
    a = np.exp(p - p.max(axis=-1, keepdims=True))
    a /= a.sum(axis=-1, keepdims=True)
    return p, v, np.einsum("nhij,nhj->ni", a, v) / np.sqrt(heads)


def dense_attention(samples: int, n: int, seed: int) -> NDArray[np.float64]:
    """Scores p[i, j] with keys shared by two heads, straight from matrices: (samples, 2, 2, 2)."""
    generator = np.random.default_rng(seed)
    result = np.empty((samples, 2, 2, 2))
    for number in range(samples):
        x = np.clip(generator.standard_normal((2, n)), -1, 1)
        x[1] = 0.5 * x[0] + x[1]
        wq = generator.standard_normal((2, n, n)) / np.sqrt(n)
        wk = generator.standard_normal((n, n)) / np.sqrt(n)
        q, k = np.einsum("hab,ib->hia", wq, x), x @ wk.T
        result[number] = np.einsum("hia,ja->hij", q, k) / np.sqrt(n)
    return result

"""The density of attention's output against a kernel estimate: L1 error and time, in one run.

    python benchmarks/density.py

The reference is made here, with numpy alone: a product Gauss-Hermite rule with 40 nodes in each of the four scores of a
head, and for two heads the trapezoidal rule for the inverse Fourier transform.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.stats import gaussian_kde

import tensorprog as tp

POINTS, DRAWS, ORDER = 500, 1_000_000, 40


def head() -> tuple[np.ndarray, np.ndarray]:
    """Conditional variances of one head, sum over j of softmax_j(p)**2, and their weights."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(ORDER)
    weights /= weights.sum()
    p = np.stack(np.meshgrid(*[nodes] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    a = np.exp(p - p.max(axis=1, keepdims=True))
    a /= a.sum(axis=1, keepdims=True)
    product = np.einsum("i,j,k,l->ijkl", *[weights] * 4).reshape(-1)
    return (a * a).sum(axis=1), product


def reference(heads: int, grid: np.ndarray) -> np.ndarray:
    """Density of the output."""
    var, weight = head()
    kept = weight > 1e-18
    var, weight = var[kept], weight[kept]
    if heads == 1:
        return np.array([(weight * np.exp(-x * x / (2 * var)) / np.sqrt(2 * np.pi * var)).sum() for x in grid])
    t = np.arange(0, 60, 0.05)
    phi = np.array([(weight * np.exp(-f * f * var / (2 * heads))).sum() for f in t]) ** heads
    phi[0] *= 0.5
    return phi @ np.cos(np.outer(t, grid)) * 0.05 / np.pi


def main() -> None:
    grid = np.linspace(-5, 5, POINTS)
    step = grid[1] - grid[0]
    tp.load("attention", s=2).limit().density("y[0]", grid)  # imports
    for heads in (1, 2):
        exact = reference(heads, grid)
        program = tp.load("attention", H=heads)
        start = time.perf_counter()
        law = program.limit()
        ours = law.density("y[0]", grid)
        own_time = time.perf_counter() - start
        draws = law.sample(DRAWS, seed=0)["y"][:, 0]
        start = time.perf_counter()
        kernel = gaussian_kde(draws)(grid)
        kernel_time = time.perf_counter() - start
        own, other = (np.abs(f - exact).sum() * step for f in (ours, kernel))
        wide = np.linspace(-40, 40, 8001)
        mass = law.density("y[0]", wide).sum() * 0.01 - 1
        print(
            f"H={heads}: L1 error {own:.1e} in {own_time:.2f} s; kernel estimate {other:.1e} in {kernel_time:.1f} s; "
            f"ratios {other / own:.0f} and {kernel_time / own_time:.0f}; mass - 1 = {mass:.1e}"
        )


if __name__ == "__main__":
    main()

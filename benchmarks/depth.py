"""Depth profiles and constants: known lines of the literature, a Markov chain of Gram matrices, dense networks.

    python benchmarks/depth.py [--draws 1024] [--networks 100] [--deep 50]

The edge of chaos of tanh networks is compared with the line sigma_w**2 E tanh'(sqrt(q) z)**2 = 1, sigma_b**2 = q -
sigma_w**2 E tanh(sqrt(q) z)**2 by mpmath.  The transformer has six tokens, two heads, a causal mask, a relu network of
width n, and normalises before each branch; `chain` is its limit once more, written for this program alone: given the
Gram matrix of a layer, scores are drawn, and the next one follows in closed form.  Networks are dense, in numpy, of two
widths, extrapolated to infinite width by 2 x(2 n) - x(n).  Seconds are of one processor.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from shipped import line

import tensorprog as tp
from tensorprog.language.formats import quantity

Array = np.ndarray[Any, Any]
TANH = """
program: tanh_tangent
constants: {L: 60, rho: 0.5, sigma_w: 1.5, sigma_b: 0.3}
indices: {i: 2, l: 1..L}
initial:
  x[i]: {mean: 0, cov: "where(i == i_, 1, rho)"}
  b[l]: {mean: 0, cov: sigma_b**2}
  e: {mean: 0, cov: 1}
weights:
  W[l]: sigma_w**2
body:
  - z[0,i] = Nonlin(x[i])
  - h[l,i] = Nonlin(tanh(z[l - 1,i]))
  - u[l,i] = MatMul(W[l], h[l,i])
  - z[l,i] = Nonlin(u[l,i] + b[l])
  - d[0]   = Nonlin(e)
  - c[l]   = Nonlin((1 - tanh(z[l - 1,0])**2) * d[l - 1])
  - d[l]   = MatMul(W[l], c[l])
  - y[i]   = Nonlin(z[L,i])
  - f      = Nonlin(d[L])
outputs: [y, f]
"""
RELU = """
program: relu
constants: {L: 10, sigma_w2: 1, beta: 0.5, alpha: 0}
indices: {l: 1..L}
initial:
  x: {mean: 0, cov: 1}
weights:
  W[l]: sigma_w2
body:
  - z[0] = Nonlin(x)
  - h[l] = Nonlin(relu(z[l - 1]))
  - u[l] = MatMul(W[l], h[l])
  - z[l] = Nonlin(alpha * z[l - 1] + beta * u[l])
  - y    = Nonlin(z[L])
outputs: [y]
"""
BLOCKS = """
program: blocks
constants: {s: 6, H: 2, L: 12, beta: 1, g: 1, rho: 0.3}
indices: {i: s, j: s, a: H, t: 1..L}
initial:
  h[i]: {mean: 0, cov: "where(i == i_, 1, rho)"}
weights:
  WQ[t,a]: g
  WK[t,a]: 1
  WV[t,a]: 1
  W1[t]: 2
  W2[t]: 1
body:
  - x[0,i]     = Nonlin(h[i])
  - m[t,i]     = Dot(x[t - 1,i], x[t - 1,i], scale=1/n)
  - r[t,i]     = Nonlin(x[t - 1,i] / sqrt(m[t,i] + 1e-9))
  - q[t,a,i]   = MatMul(WQ[t,a], r[t,i])
  - k[t,a,j]   = MatMul(WK[t,a], r[t,j])
  - p[t,a,i,j] = Dot(q[t,a,i], k[t,a,j])
  - v[t,a,j]   = MatMul(WV[t,a], r[t,j])
  - z[t,i]     = Nonlin(x[t - 1,i] + beta * sum[a,j](softmax[j](MASKED) * v[t,a,j]) / sqrt(H))
  - w[t,i]     = Dot(z[t,i], z[t,i], scale=1/n)
  - u[t,i]     = Nonlin(z[t,i] / sqrt(w[t,i] + 1e-9))
  - f[t,i]     = MatMul(W1[t], u[t,i])
  - e[t,i]     = Nonlin(relu(f[t,i]))
  - c[t,i]     = MatMul(W2[t], e[t,i])
  - x[t,i]     = Nonlin(z[t,i] + beta * c[t,i])
  - y[i]       = Nonlin(x[L,i])
outputs: [y]
"""


def loaded(text: str, **constants: float) -> tp.Program:
    """The program of a text."""
    from tensorprog.language.reading import loads

    return tp.Program.from_netsor(loads(text, constants))


# ---- known lines ----------------------------------------------------------------------------------------------------


def critical(q: float) -> tuple[float, float]:
    """sigma_w and sigma_b of tanh networks at the edge of chaos where the variance is q."""
    mp.mp.dps = 30

    def average(f: Callable[[Any], Any]) -> Any:
        return mp.quad(lambda x: f(mp.sqrt(q) * x) * mp.npdf(x), [-14, -6, -2, 0, 2, 6, 14])

    sigma_w2 = 1 / average(lambda h: mp.sech(h) ** 4)
    return float(mp.sqrt(sigma_w2)), float(mp.sqrt(q - sigma_w2 * average(lambda h: mp.tanh(h) ** 2)))


def edge() -> None:
    """The edge of chaos, by the growth of a tangent and by that of gradients."""
    print("\nedge of chaos of tanh\n")
    print(line(["q", "layers", "sigma_b", "known sigma_w", "found - known", "seconds"]))
    print(line(["---:"] * 6))
    for q, layers in ((0.1, 120), (0.3, 60), (1.0, 60)):  # near q = 0 the variance settles slowly
        sigma_w, sigma_b = critical(q)
        start = time.process_time()
        value, _ = tp.solve(loaded(TANH, sigma_b=sigma_b), "sigma_w", "variance", 1, of="d", to=layers, growth=True)
        print(
            line(
                [
                    f"{q}",
                    str(layers),
                    f"{sigma_b:.6f}",
                    f"{sigma_w:.6f}",
                    f"{value - sigma_w:.1e}",
                    f"{time.process_time() - start:.0f}",
                ]
            ),
            flush=True,
        )


def weights() -> None:
    """The relu weight variance at which nothing grows, and branch scales of residual networks."""
    print("\nrelu\n\n" + line(["what", "found", "known"]) + "\n" + line(["---:"] * 3))
    value, error = tp.solve(loaded(RELU, beta=1), "sigma_w2", "variance", 1, of="z", growth=True)
    print(line(["sigma_w2, growth 1", quantity(value, error), "2"]))
    for layers in (10, 40, 160):
        value, error = tp.solve(loaded(RELU, alpha=1, sigma_w2=2), "beta", "variance", math.e, of="z", to=layers)
        print(
            line(
                [
                    f"beta, variance e at {layers} layers",
                    quantity(value, error),
                    f"{math.sqrt(math.exp(1 / layers) - 1):.6f} = {value * layers**0.5:.4f} / sqrt(L)",
                ]
            ),
            flush=True,
        )


# ---- transformers ---------------------------------------------------------------------------------------------------


def correlation(gram: Array) -> Array:
    """Mean correlation of pairs of tokens."""
    root, s = np.sqrt(np.einsum("...ii->...i", gram)), gram.shape[-1]
    c = gram / (root[..., :, None] * root[..., None, :])
    return (c.sum(axis=(-2, -1)) - s) / (s * (s - 1))


def chain(
    s: int, heads: int, layers: int, g: float, beta: float, rho: float, masked: bool, draws: int
) -> tuple[float, float]:
    """The token correlation after all layers, with its standard error, from a Markov chain of Gram matrices."""
    rng = np.random.default_rng(1)
    gram = np.broadcast_to(rho + (1 - rho) * np.eye(s), (draws, s, s)).copy()
    for _ in range(layers):
        root = np.sqrt(np.einsum("nii->ni", gram))
        x = gram / (root[:, :, None] * root[:, None, :])
        factor = np.linalg.cholesky(x + 1e-13 * np.eye(s))
        mixed = np.zeros_like(gram)
        for _ in range(heads):
            p = math.sqrt(g) * factor @ rng.standard_normal((draws, s, s)) @ np.swapaxes(factor, 1, 2)
            p = np.where(np.tri(s, dtype=bool), p, -np.inf) if masked else p
            a = np.exp(p - p.max(axis=-1, keepdims=True))
            a /= a.sum(axis=-1, keepdims=True)
            mixed += a @ x @ np.swapaxes(a, 1, 2) / heads
        gram = gram + beta**2 * mixed
        root = np.sqrt(np.einsum("nii->ni", gram))
        angle = np.arccos(np.clip(gram / (root[:, :, None] * root[:, None, :]), -1, 1))
        gram = gram + beta**2 * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi
    found = correlation(gram)
    return float(found.mean()), float(found.std() / math.sqrt(draws))


def dense(width: int, networks: int, s: int, heads: int, layers: int, g: float, rho: float) -> tuple[float, float]:
    """The token correlation of networks with their weights as matrices, causal."""
    rng, found = np.random.default_rng(width), []
    factor, mask = np.linalg.cholesky(rho + (1 - rho) * np.eye(s)), np.tri(s, dtype=bool)

    def weight(variance: float) -> Array:
        return rng.standard_normal((width, width), dtype=np.float32) * np.float32(math.sqrt(variance / width))

    def norm(x: Array) -> Array:
        return x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))

    for _ in range(networks):
        x = (factor @ rng.standard_normal((s, width))).astype(np.float32)
        for _ in range(layers):
            r, z = norm(x), x
            for _ in range(heads):
                p = np.where(mask, (r @ weight(g)) @ (r @ weight(1)).T / math.sqrt(width), -np.inf)
                a = np.exp(p - p.max(axis=1, keepdims=True))
                z = z + a / a.sum(axis=1, keepdims=True) @ (r @ weight(1)) / math.sqrt(heads)
            x = z + np.maximum(norm(z) @ weight(2), 0) @ weight(1)
        found.append(float(correlation(x.astype(np.float64) @ x.T.astype(np.float64) / width)))
    return float(np.mean(found)), float(np.std(found) / math.sqrt(networks))


def transformers(draws: int, networks: int) -> None:
    """Twelve layers, two variances of the scores, in three ways."""
    print(
        "\nsix tokens, two heads, twelve layers: mean token correlation\n\n"
        + line(["score variance", "tp.depth", "seconds", "chain", "n = 64", "n = 128", "2 x(128) - x(64)", "z"])
    )
    print(line(["---:"] * 8))
    text = BLOCKS.replace("MASKED", "where(j <= i, p[t,a,i,j], -inf)")
    for g in (1.0, 16.0):
        start = time.process_time()
        found = tp.depth(loaded(text, g=g), "x", draws=draws).isel(layer=-1)
        seconds = time.process_time() - start
        value, error = float(found["token_correlation"]), float(found["token_correlation_error"])
        known = chain(6, 2, 12, g, 1.0, 0.3, True, 1 << 16)
        small, large = dense(64, 4 * networks, 6, 2, 12, g, 0.3), dense(128, networks, 6, 2, 12, g, 0.3)
        wide = 2 * large[0] - small[0], math.hypot(2 * large[1], small[1])
        z = (wide[0] - value) / math.hypot(wide[1], error / 4.07)
        print(
            line(
                [
                    f"{g:g}",
                    quantity(value, error),
                    f"{seconds:.0f}",
                    quantity(*known),
                    quantity(*small),
                    quantity(*large),
                    quantity(*wide),
                    f"{z:.1f}",
                ]
            ),
            flush=True,
        )


def branches(draws: int, layers: int) -> None:
    """The branch scale that leaves tokens at a correlation of one half."""
    print(
        f"\neight tokens, two heads, {layers} layers: beta for a token correlation of 0.5\n\n"
        + line(["found", "seconds", "chain's correlation there", "chain's beta"])
        + "\n"
        + line(["---:"] * 4)
    )
    text = BLOCKS.replace("MASKED", "p[t,a,i,j]")
    start = time.process_time()
    value, error = tp.solve(
        loaded(text, s=8, beta=0.2, rho=0.2, L=layers),
        "beta",
        "token_correlation",
        0.5,
        of="x",
        draws=draws,
        between=(0.1, 0.25),
    )
    seconds = time.process_time() - start
    there, off = chain(8, 2, layers, 1.0, value, 0.2, False, 1 << 13)
    ahead, _ = chain(8, 2, layers, 1.0, 1.01 * value, 0.2, False, 1 << 13)
    slope = (ahead - there) / (0.01 * value)
    print(
        line(
            [
                quantity(value, error),
                f"{seconds:.0f}",
                quantity(there, off),
                quantity(value + (0.5 - there) / slope, off / slope),
            ]
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1024)
    parser.add_argument(
        "--networks", type=int, default=100, help="of the larger width; four times as many of the smaller"
    )
    parser.add_argument("--deep", type=int, default=50, help="layers of the branch scale")
    arguments = parser.parse_args()
    edge()
    weights()
    transformers(arguments.draws, arguments.networks)
    branches(arguments.draws, arguments.deep)


if __name__ == "__main__":
    main()

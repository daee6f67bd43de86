"""Figures of the paper's own dense code beside those of tensorprog, with standard errors and z-scores.

    python benchmarks/finite_reference.py --method collapsed --networks 400000
    python benchmarks/finite_reference.py --method dense --widths 256 --networks 100000 --coordinates 256

The layer is programs/attention.yaml: s = 4, H = 2, inputs clipped at 100.  Of the output y of token 0 are shown

- the pooled kurtosis E y**4 / (E y**2)**2 and the variance, where both expectations run over networks and coordinates
  together.  The paper draws the law of one coordinate over networks; coordinates are exchangeable, so pooling them has
  the same expectation and a smaller error.  (The kurtosis within a network, averaged over networks, is another number:
  given the scores the output is nearly Gaussian, and that one is near 3.)
- E y_c**2 y_c'**2 / (E y**2)**2 over pairs of coordinates c != c' of one network: 1 if coordinates were independent;
  above 1, because they share the network's scores.  Given all but the last weight, coordinates are independent normals
  of one variance, so this is exactly a third of the kurtosis, and the better estimate of it;
- variances of the scores, which are known: (1 + 2/n)**2 for i = j and 1 + 2/n for i != j, since a score has the
  variance |x_i|**2 |x_j|**2 / n**2 given its inputs, and x_i given h is N(0, |h|**2 / n) in every coordinate.

Errors come from blocks of networks (jackknife).  Reference figures are given to the digits shown; their own errors are
taken as those of 50,000 networks, which is what their authors draw, unless they are stated.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from finite_measure import table
from numpy.typing import NDArray

import tensorprog as tp

Array = NDArray[np.float64]
BLOCKS = 200
REFERENCE_NETWORKS = 50_000


@dataclass(frozen=True)
class Figure:
    """A number to be met: its value, unit of the last digit, seeds behind it, and its error where that is stated."""

    value: float
    digit: float
    seeds: int = 1
    error: float | None = None


KURTOSIS = {16: Figure(4.99, 0.01, 2), 64: Figure(3.57, 0.01), 256: Figure(3.203, 0.001, error=0.008)}  # 16: 5.02, 4.96
VARIANCE = {16: Figure(0.434, 0.001), 64: Figure(0.404, 0.001), 256: Figure(0.396, 0.001)}
PAIRS = {16: Figure(1.66, 0.01), 64: Figure(1.185, 0.001), 256: Figure(1.073, 0.001)}


def averages(program: tp.Program, n: int, networks: int, coordinates: int, method: str, seed: int) -> Array:
    """Block averages (BLOCKS, 5) of y**2, y**4, y_c**2 y_c'**2, p_ii**2 and p_ij**2."""
    result = np.empty((BLOCKS, 5))
    per_block = networks // BLOCKS
    held = max(1, min(BLOCKS, 2_000_000 // (per_block * coordinates)))  # blocks drawn at once, which bounds memory
    diagonal = np.eye(4, dtype=bool)
    for start in range(0, BLOCKS, held):
        count = min(held, BLOCKS - start)
        drawn = program.run(n, count * per_block, coordinates=coordinates, method=method, seed=seed * 1000 + start)
        square = drawn["y"][..., 0].reshape(count, per_block, coordinates) ** 2
        fourth = square**2
        scores = drawn["p"].reshape(count, -1, 4, 4) ** 2
        pairs = (square.sum(axis=-1) ** 2 - fourth.sum(axis=-1)) / (coordinates * (coordinates - 1))
        result[start : start + count] = np.stack([
            square.mean(axis=(1, 2)), fourth.mean(axis=(1, 2)), pairs.mean(axis=1),
            scores[..., diagonal].mean(axis=(1, 2)), scores[..., ~diagonal].mean(axis=(1, 2)),
        ], axis=1)  # fmt: skip
    return result


def jackknife(blocks: Array, function: Callable[[Array], float]) -> tuple[float, float]:
    """A function of means, and its standard error."""
    total, count = blocks.sum(axis=0), len(blocks)
    without = np.array([function((total - block) / (count - 1)) for block in blocks])
    return function(total / count), float(np.sqrt((count - 1) * without.var()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="collapsed")
    parser.add_argument("--networks", type=int, default=400_000)
    parser.add_argument("--coordinates", type=int, default=8)
    parser.add_argument("--widths", type=int, nargs="+", choices=list(KURTOSIS), default=list(KURTOSIS))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = tp.load("attention", H=2)
    rows = []
    for n in arguments.widths:
        blocks = averages(program, n, arguments.networks, arguments.coordinates, arguments.method, arguments.seed)
        used = arguments.networks // BLOCKS * BLOCKS
        known = {"variance, i = j": (1 + 2 / n) ** 2, "variance, i != j": 1 + 2 / n}
        shown: list[tuple[str, Callable[[Array], float], Figure | float]] = [
            ("kurtosis of y", lambda m: m[1] / m[0] ** 2, KURTOSIS[n]),
            ("variance of y", lambda m: m[0], VARIANCE[n]),
            ("pairs of coordinates", lambda m: m[2] / m[0] ** 2, PAIRS[n]),
            ("scores, i = j", lambda m: m[3], known["variance, i = j"]),
            ("scores, i != j", lambda m: m[4], known["variance, i != j"]),
        ]
        for name, function, wanted in shown:
            value, error = jackknife(blocks, function)
            if isinstance(wanted, Figure):
                theirs = wanted.error
                if theirs is None:
                    theirs = error * math.sqrt(used / (REFERENCE_NETWORKS * wanted.seeds))
                target, spread = wanted.value, math.hypot(theirs, wanted.digit / math.sqrt(12))
            else:
                target, spread = wanted, 0.0
            z = (value - target) / math.hypot(error, spread)
            stated = f"{target:.4g} +- {spread:.2g}" if spread else f"{target:.4f} (exact)"
            rows.append([str(n), name, f"{value:.4f}", f"{error:.4f}", stated, f"{z:+.1f}"])
    table(
        f"{arguments.method}, {used:,} networks a width, {arguments.coordinates} coordinates each, H = 2, s = 4",
        ["n", "figure", "tensorprog", "error", "reference", "z"], rows,
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""Finite width: lazy MatMul against dense, and against the time its normals alone take.

    python benchmarks/finite.py

Each line is measured in one run; ratios are medians over repeats, so that the machine's drift cancels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

import tensorprog as tp
from tensorprog.finite.plan import plan


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def floor(normals: int, networks: int) -> float:
    """Time to draw the normals of so many networks, in buffers of 2**18 that stay in cache."""
    generator = np.random.Generator(np.random.SFC64(0))
    buffer = np.empty(1 << 18)

    def draw() -> None:
        for _ in range(max(1, normals * networks // buffer.size)):
            generator.standard_normal(out=buffer)

    return seconds(draw) * normals * networks / (max(1, normals * networks // buffer.size) * buffer.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    program = tp.load("attention")
    print(f"medians of {arguments.repeats}; us per network of lazy on one thread")
    print(f"{'n':>6} {'us':>9} {'dense/lazy':>11} {'lazy/floor':>11} {'1/2 threads':>12}")
    for width, networks, few in ((64, 20_000, 200), (256, 8000, 40), (1024, 2000, 6)):
        decided = plan(program.netsor, width, 1, ("y",), "lazy")
        rows = []
        for seed in range(arguments.repeats):
            lazy = seconds(partial(program.run, width, networks, seed=seed, threads=1)) / networks
            dense = seconds(partial(program.run, width, few, seed=seed, threads=1, method="dense")) / few
            both = seconds(partial(program.run, width, networks, seed=seed, threads=2)) / networks
            rows.append((lazy, dense / lazy, lazy / (floor(decided.normals, networks) / networks), lazy / both))
        lazy, against_dense, against_floor, threads = (median(column) for column in zip(*rows, strict=True))
        print(f"{width:>6} {lazy * 1e6:>9.1f} {against_dense:>11.1f} {against_floor:>11.2f} {threads:>12.2f}")


if __name__ == "__main__":
    main()

"""Heads of fixed dimension d = 64: finite n = 4096 beside the limit with d fixed and beside the limit of all widths.

    python benchmarks/fixed_head.py [--d 64] [--error 0.004]

Programs attention_fixed_head and attention.  The limit with d fixed stands here twice, as the package's law and drawn
from its definition: tokens have E[x_i x_j] = 0 for i != j and so, given n -> infinity, q_i, k_j and v_j are independent
normal vectors in R^d, p_ij = q_i.k_j / sqrt(d), and y is Gaussian given p and v.  Scores have kurtosis 3 + 6/d.
z counts standard errors of the difference to n = 4096.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from shipped import COORDINATES, Moments, line, pooled

import tensorprog as tp
from tensorprog.language.formats import quantity

Array = NDArray[np.float64]
WIDTH, TOKENS, HEADS = 4096, 4, 2
QUANTITIES = ("variance of y", "kurtosis of y", "variance of p", "kurtosis of p")
Numbers = tuple[Array, Array]  # the four quantities, and their standard errors


def one(second: Array, fourth: Array) -> Moments:
    """Of one variable, from its averages over members and coordinates of each network."""
    return pooled(second[:, None, None], fourth[:, None])


def both(y: Moments, p: Moments) -> Numbers:
    return np.concatenate([y.value, p.value]), np.concatenate([y.error, p.error])


def finite(d: int, networks: int, seed: int) -> Numbers:
    """Networks of width 4096."""
    program = tp.load("attention_fixed_head", D=d, s=TOKENS, H=HEADS)
    drawn = program.run(WIDTH, networks, seed=seed, coordinates=COORDINATES, max_memory="4GiB")
    y, p = (drawn[name].reshape(networks, -1) for name in ("y", "p"))
    return both(*(one((values**2).mean(axis=1), (values**4).mean(axis=1)) for values in (y, p)))


def defined(d: int, networks: int, seed: int) -> Numbers:
    """The limit with d fixed, drawn from its definition; fourth moments of y given p and v are 3 C_ii^2."""
    generator = np.random.default_rng(seed)
    q, k, v = generator.standard_normal((3, networks, HEADS, TOKENS, d))
    p = q @ np.swapaxes(k, -1, -2) / math.sqrt(d)
    weight = np.exp(p - p.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    variance = ((weight @ v) ** 2).sum(axis=(1, -1)) / (HEADS * d)
    flat = p.reshape(networks, -1)
    return both(
        one(variance.mean(axis=1), 3 * (variance**2).mean(axis=1)), one((flat**2).mean(axis=1), (flat**4).mean(axis=1))
    )


def compiled(name: str, **constants: float) -> Numbers | None:
    """The law's numbers, if this version compiles it."""
    try:
        law = tp.load(name, s=TOKENS, H=HEADS, **constants).limit()
        pairs = [
            question(variable, with_error=True)
            for variable in ("y[0]", "p[0,0,0]")
            for question in (law.var, law.kurtosis)
        ]
    except tp.NotCompiledError:
        return None
    value, error = np.array(pairs).T
    return value, error / 4  # four standard errors, or bounds far below the others


def reached(draw: Callable[[int, int], Numbers], error: float) -> Numbers:
    """With a standard error of the kurtosis of y as demanded, networks being drawn in batches."""
    batches: list[Numbers] = []
    while not batches or batches[0][1][1] > error * math.sqrt(len(batches)):
        batches.append(draw(2048, len(batches)))
    values, errors = (np.array(part) for part in zip(*batches, strict=True))
    return values.mean(axis=0), np.sqrt((errors**2).sum(axis=0)) / len(batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--error", type=float, default=0.004, help="standard error of the kurtosis of y")
    arguments = parser.parse_args()
    d = arguments.d
    value, error = reached(lambda networks, seed: finite(d, networks, seed), arguments.error)
    others = {
        f"law, d = {d}": compiled("attention_fixed_head", D=d),
        f"definition, d = {d}": reached(lambda networks, seed: defined(d, networks, seed), arguments.error / 2),
        "all widths": compiled("attention"),
    }
    header = ["", f"n = {WIDTH}, d = {d}", *(cell for name in others for cell in (name, "z"))]
    print(line(header))
    print(line(["---", *["---:"] * (len(header) - 1)]))
    for number, name in enumerate(QUANTITIES):
        cells = [name, quantity(value[number], error[number])]
        for other in others.values():
            if other is None:
                cells += ["", ""]
                continue
            expected, slack = other[0][number], other[1][number]
            z = (value[number] - expected) / math.hypot(error[number], slack)
            cells += [quantity(expected, slack), f"{z:.1f}"]
        print(line(cells))


if __name__ == "__main__":
    main()

"""The first order in 1/n of variance and kurtosis beside networks: python benchmarks/width.py [PROGRAM VARIABLE] ...

Moments of networks come from their conditional laws.  The last column is the power of n with which what remains of the
kurtosis falls, from the first two widths: 2 where the first order is right.
"""

from __future__ import annotations

import math
import sys

import tensorprog as tp

DRAWS, NETWORKS, WIDTHS = 1 << 13, 40_000, (8, 16, 64, 256)
PROGRAMS = (
    ("attention", "y[0]"), ("attention_relu", "y[0]"), ("attention_lowrank", "y[0]"), ("attention_1n", "y[0]"),
    ("cnn", "f[0]"), ("resnet", "f[0]"), ("layernorm_mlp", "f[0]"),
)  # fmt: skip


def show(name: str, variable: str) -> None:
    """One program."""
    program = tp.load(name)
    law = program.limit()
    limit = law.kurtosis(variable)
    a, error = law.correction("kurtosis", variable, draws=DRAWS)
    print(f"{name}: kurtosis of {variable} = {limit:.5f} + a/n, a = {a:.4g} +- {error:.2g}", flush=True)
    left = []
    for width in WIDTHS:
        samples = program.run(width=width, samples=NETWORKS, conditional=True)
        row = tp.compare(samples, law, variable)[variable]
        left.append(abs(row.kurtosis - limit - a / width))
        wrong = math.hypot(row.kurtosis_se, error / 4 / width)
        print(f"  n = {width:5d}  networks {row.kurtosis:.4f} +- {row.kurtosis_se:.4f}"
              f"  limit + a/n {limit + a / width:.4f}  rest {left[-1]:.4f} +- {wrong:.4f}", flush=True)
    print(f"  the rest falls like n**-{math.log(left[0] / left[1]) / math.log(WIDTHS[1] / WIDTHS[0]):.2f}", flush=True)


if __name__ == "__main__":
    asked = sys.argv[1:]
    for name, variable in list(zip(asked[::2], asked[1::2], strict=True)) or PROGRAMS:
        show(name, variable)

"""Deep attention: kurtosis of the limit and of finite widths, by number of layers.

    python benchmarks/deep_attention.py [--layers 1,2,4,8] [--error 0.01]

The limit conditions layer after layer on the scores of the layers before, which is a conjecture beyond the paper; this
table is its evidence.  z is the difference at n = 4096 from limit + b/n fitted at n = 256 and 1024, in standard errors,
as in shipped.py: the largest of all second moments and kurtoses.  The kurtosis shown is that of y[0].
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
from shipped import WIDTHS, limiting, line, scores, sufficient

import tensorprog as tp
from tensorprog.language.formats import quantity

HEADER = ("layers", "limit", *(f"n = {n}" for n in WIDTHS), "z 4096", "networks", "seconds")


def row(layers: int, error: float) -> list[str]:
    """One line of the table; the limit is left open where this version does not compile it."""
    start = time.perf_counter()
    program = tp.load("deep_attention", L=layers)
    found = {n: sufficient(program, n, (math.inf, error)) for n in WIDTHS}
    first = -found[WIDTHS[0]].outputs  # of the kurtoses
    try:
        law = limiting(program.limit())
        limit, z = quantity(law.value[first], law.error[first]), f"{np.abs(scores(law, found)).max():.1f}"
    except tp.NotCompiledError:
        limit = z = ""
    kurtosis = [quantity(found[n].value[first], found[n].error[first]) for n in WIDTHS]
    networks = "/".join(f"{found[n].networks:,}" for n in WIDTHS)
    return [str(layers), limit, *kurtosis, z, networks, f"{time.perf_counter() - start:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="1,2,4,8")
    parser.add_argument("--error", type=float, default=0.01, help="standard error of each kurtosis")
    arguments = parser.parse_args()
    print(line(HEADER))
    print(line(["---:"] * len(HEADER)))
    for layers in map(int, arguments.layers.split(",")):
        print(line(row(layers, arguments.error)), flush=True)


if __name__ == "__main__":
    main()

"""Deep attention: kurtosis of the limit and of finite widths, by number of layers.

    python benchmarks/deep_attention.py [--layers 1,2,4,8] [--error 0.01]
    python benchmarks/deep_attention.py --time [--layers 8,50]

The limit conditions layer after layer on the scores of the layers before, which is a conjecture beyond the paper; this
table is its evidence.  z is the difference at n = 4096 from limit + b/n fitted at n = 256 and 1024, in standard errors,
as in shipped.py: the largest of all second moments and kurtoses.  The kurtosis shown is that of y[0].

With --time: processor seconds of the covariance of y in the limit, with the relative error of its largest entry.
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


def timed(layers: int) -> list[str]:
    """The covariance of y by the limit, and how long it takes."""
    law = tp.load("deep_attention", L=layers).limit()
    start = time.process_time()
    cov = law.cov("y")
    seconds = time.process_time() - start
    return [str(layers), f"{cov[0, 0]:.6g}", f"{float(np.max(law.error)) / cov.max():.1e}", f"{seconds:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="1,2,4,8")
    parser.add_argument("--error", type=float, default=0.01, help="standard error of each kurtosis")
    parser.add_argument("--time", action="store_true", help="only what the limit takes, without networks")
    arguments = parser.parse_args()
    if arguments.time:
        print(line(("layers", "variance", "relative error", "processor seconds")))
        print(line(["---:"] * 4))
        for layers in map(int, arguments.layers.split(",")):
            print(line(timed(layers)), flush=True)
        return
    print(line(HEADER))
    print(line(["---:"] * len(HEADER)))
    for layers in map(int, arguments.layers.split(",")):
        print(line(row(layers, arguments.error)), flush=True)


if __name__ == "__main__":
    main()

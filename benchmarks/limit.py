"""The limit of attention.yaml: kurtosis and variance, their stated errors, how far off they are, and the time.

Then attention_correlated.yaml at growing numbers of tokens s and heads H, up to the shape of GPT-2 (s = 1024, H = 12):
seconds of P.limit() and covariances of x, p and o; seconds of ten draws of all outputs; seconds of the s x s covariance
of the outputs, averaged over p-ring, and its largest error relative to the variance; the most memory that the process
ever held, numpy and scipy included.  Each row is a process of its own, on all processors.

    python benchmarks/limit.py [--growth]
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from finite_measure import peak, significant, table, timed

import tensorprog as tp

KNOWN = {1: 3.243318, 2: 3.121659, 4: 3.060830, 16: 3.015207, 256: 3.000950}
VARIANCE = 0.391971


TOKENS, HEADS = (64, 256, 1024), (1, 4, 12)


def covariances_and_draws(s: int, heads: int) -> tuple[float, float, float, float, int]:
    """Seconds of covariances, of ten draws and of the covariance of outputs, its error, and the most bytes held."""
    program = tp.load("attention_correlated", s=s, H=heads)
    law = program.limit()
    covariances = timed(lambda: [law.cov(name) for name in ("x", "p", "o")])
    draws = timed(lambda: law.sample(10)["y"])
    outputs = timed(lambda: law.cov("y"))
    value, error = law.cov("y", with_error=True)
    return covariances.wall, draws.wall, outputs.wall, float(error.max() / value.max()), peak()


def growth() -> None:
    rows = []
    for s in TOKENS:
        for heads in HEADS:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                covariances, draws, outputs, error, held = pool.submit(covariances_and_draws, s, heads).result()
            rows.append(
                [
                    str(s),
                    str(heads),
                    f"{heads * s * s:,}",
                    significant(covariances),
                    significant(draws),
                    significant(outputs),
                    f"{error:.0e}",
                    f"{held / 2**20:,.0f}",
                ]
            )
    head = ["s", "H", "scores", "covariances, s", "10 draws, s", "covariance of y, s", "its error", "peak, MiB"]
    table("Attention on correlated tokens", head, rows)


def accuracy() -> None:
    print(f"{'H':>4} {'kurtosis':>10} {'error':>9} {'off':>10}   {'variance':>10} {'error':>9} {'off':>10} {'s':>6}")
    for heads, known in KNOWN.items():
        start = time.perf_counter()
        law = tp.load("attention", H=heads).limit()
        kurtosis, error = law.kurtosis("y[0]", with_error=True)
        variance, variance_error = law.moment("y[0]", 2, with_error=True)
        took = time.perf_counter() - start
        print(
            f"{heads:>4} {kurtosis:>10.6f} {error:>9.1e} {kurtosis - known:>10.1e}   "
            f"{variance:>10.6f} {variance_error:>9.1e} {variance - VARIANCE:>10.1e} {took:>6.2f}"
        )
    start = time.perf_counter()
    program = tp.load("attention", H=96, s=128)
    grade = program.check().grade
    checked = time.perf_counter() - start
    covariance = program.limit().cov("p")
    compiled = time.perf_counter() - start - checked
    print(
        f"H = 96, s = 128: load and check ({grade}) {checked:.2f} s; covariance of {np.prod(covariance.shape[:3]):,} "
        f"scores {compiled:.2f} s, {len(covariance.factors)} term"
    )


if __name__ == "__main__":
    if "--growth" not in sys.argv[1:]:
        accuracy()
    growth()

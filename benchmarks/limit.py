"""The limit of attention.yaml: kurtosis and variance, their stated errors, how far off they are, and the time.

    python benchmarks/limit.py
"""

from __future__ import annotations

import time

import numpy as np

import tensorprog as tp

KNOWN = {1: 3.243318, 2: 3.121659, 4: 3.060830, 16: 3.015207}
VARIANCE = 0.391971


def main() -> None:
    print(f"{'H':>4} {'kurtosis':>10} {'error':>9} {'off':>10}   {'variance':>10} {'error':>9} {'off':>10} {'s':>6}")
    for heads, known in KNOWN.items():
        start = time.perf_counter()
        law = tp.load("attention", H=heads).limit()
        kurtosis, error = law.kurtosis("y[0]", with_error=True)
        variance, variance_error = law.moment("y[0]", 2, with_error=True)
        took = time.perf_counter() - start
        print(f"{heads:>4} {kurtosis:>10.6f} {error:>9.1e} {kurtosis - known:>10.1e}   "
              f"{variance:>10.6f} {variance_error:>9.1e} {variance - VARIANCE:>10.1e} {took:>6.2f}")
    start = time.perf_counter()
    program = tp.load("attention", H=96, s=128)
    grade = program.check().grade
    checked = time.perf_counter() - start
    covariance = program.limit().cov("p")
    compiled = time.perf_counter() - start - checked
    print(f"H = 96, s = 128: load and check ({grade}) {checked:.2f} s; covariance of {np.prod(covariance.shape[:3]):,} "
          f"scores {compiled:.2f} s, {len(covariance.factors)} term")


if __name__ == "__main__":
    main()

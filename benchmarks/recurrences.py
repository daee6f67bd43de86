"""Covariances along recurrences: CPU time and stated errors, beside the same recursion in plain numpy without errors.

    python benchmarks/recurrences.py [--quick]

The erf network has inputs with covariance 0.5^|t - t'| and a bias.  The plain loop fills the same table row by row.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from floor import RNN, program, recurrence
from numpy.typing import NDArray


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and the result."""
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def plain(steps: int) -> NDArray[np.float64]:
    """E[s s'] in plain numpy."""
    lags = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    x = 0.5**lags
    k, s = np.zeros((steps, steps)), np.zeros((steps + 1, steps + 1))
    for t in range(steps):
        k[t, : t + 1] = s[t, : t + 1] + x[t, : t + 1] + 0.1
        d = 1 + 2 * np.diagonal(k)[: t + 1]
        s[t + 1, 1 : t + 2] = 2 / np.pi * np.arcsin(2 * k[t, : t + 1] / np.sqrt(d * d[t]))
        s[1 : t + 2, t + 1] = s[t + 1, 1 : t + 2]
    return s[1:, 1:]


def main() -> None:
    """Print one row for each network."""
    quick = "--quick" in sys.argv
    for steps in (100, 300) if quick else (100, 300, 1000, 2000):
        law = program(RNN, T=steps).limit()
        floor, expected = min((timed(partial(plain, steps)) for _ in range(3)), key=itemgetter(0))
        taken, cov = timed(partial(law.cov, "f"))
        apart = np.abs(np.asarray(cov) - expected).max()
        print(f"erf network, T = {steps:5} {taken:7.2f} s, error {cov.error:.1e}; plain numpy {floor:.3f} s, "
              f"{apart:.1e} away, {taken / floor:.0f} times less", flush=True)  # fmt: skip
    for name in ("lstm", "gru"):
        steps = 10 if quick else 100
        law = recurrence(name, steps).limit()
        taken, cov = timed(partial(law.cov, "y"))
        print(f"{name}, T = {steps:5} {taken:7.2f} s, error {cov.error:.1e} of {np.asarray(cov).max():.3f}", flush=True)


if __name__ == "__main__":
    main()

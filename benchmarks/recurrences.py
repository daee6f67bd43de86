"""Covariances along recurrences: CPU time and stated errors, beside the same recursion in plain numpy without errors.

    python benchmarks/recurrences.py [--quick]

The erf network has inputs with covariance 0.5^|t - t'| and a bias.  The plain loop fills the same table row by row.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp

RNN = """
program: rnn
constants: {T: 1000}
indices: {t: 1..T}
initial:
  x[t]: {mean: 0, cov: 0.5**abs(t - t_)}
  b: {mean: 0, cov: 0.1}
weights: {W: 1.5, V: 1}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t-1])
  - s[t] = Nonlin(erf(u[t] + x[t] + b))
  - f[t] = MatMul(V, s[t])
outputs: [f]
"""


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
        k[t, : t + 1] = 1.5 * s[t, : t + 1] + x[t, : t + 1] + 0.1
        d = 1 + 2 * np.diagonal(k)[: t + 1]
        s[t + 1, 1 : t + 2] = 2 / np.pi * np.arcsin(2 * k[t, : t + 1] / np.sqrt(d * d[t]))
        s[1 : t + 2, t + 1] = s[t + 1, 1 : t + 2]
    return s[1:, 1:]


def loaded(text: str, **constants: int) -> tp.Program:
    """A program from text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.yaml")
        path.write_text(text)
        return tp.load(path, **constants)


def main() -> None:
    """Print one row for each network."""
    quick = "--quick" in sys.argv
    for steps in (100, 300) if quick else (100, 300, 1000, 2000):
        law = loaded(RNN, T=steps).limit()
        floor, expected = min((timed(partial(plain, steps)) for _ in range(3)), key=itemgetter(0))
        taken, cov = timed(partial(law.cov, "f"))
        apart = np.abs(np.asarray(cov) - expected).max()
        print(f"erf network, T = {steps:5} {taken:7.2f} s, error {cov.error:.1e}; plain numpy {floor:.3f} s, "
              f"{apart:.1e} away, {taken / floor:.0f} times less", flush=True)  # fmt: skip
    for name in ("lstm", "gru"):
        text = (Path(__file__).parents[1] / "programs" / f"{name}.yaml").read_text()
        text = text.replace("data: data/tokens.npy, variance: sigma_w2", "cov: 0.5**abs(t - t_)")
        steps = 10 if quick else 100
        law = loaded(text, T=steps, S=steps).limit()
        taken, cov = timed(partial(law.cov, "y"))
        print(f"{name}, T = {steps:5} {taken:7.2f} s, error {cov.error:.1e} of {np.asarray(cov).max():.3f}", flush=True)


if __name__ == "__main__":
    main()

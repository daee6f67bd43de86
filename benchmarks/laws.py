"""Laws asked for everything, and draws behind two layers of scores: processor time beside a reference in the same run.

    python benchmarks/laws.py [one] [draws]

`one`: outputs of one score, asked for mean, variance, kurtosis, sixth moment, density and distribution function at 501
points, 99 quantiles and the divergence from a Gaussian.  The reference is a kernel estimate of the density from 100,000
draws at the same points.

`draws`: 200,000 draws of the limit of programs with two layers of attention.  The reference is the time that numpy
takes for as many normals as these draws are made from.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import gaussian_kde

import tensorprog as tp
from tensorprog.limit.draw.layers import Layers

KERNEL = 100_000
ONE = """
program: one
initial: {h: {cov: 1}}
weights: {W: 1, V: 1, Q: 1, K: 1}
body:
  - u = MatMul(W, h)
  - x = Nonlin(erf(u))
  - v = MatMul(V, x)
  - q = MatMul(Q, x)
  - k = MatMul(K, x)
  - p = Dot(q, k)
  - y = Nonlin(%s)
outputs: [y]
"""
OUTPUTS = (
    "p**3*v",
    "(p**2 - 0.1)*v + p**3",
    "abs(tanh(5*p))*v + sin(4*p)",
    "sigmoid(40*(p - 0.2))*v",
    "(1 + 100*gaussian((p - 0.911)/1e-4))*v",
    "relu(p + 0.1)*v + p",
    "1e-9*v + p**3",
    "p**4*v + p**2",
)
DRAWS = 200_000
TWO = """
program: two
constants: {s: 4, C: 2}
indices: {i: s, j: s}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {A: 1, B: 1, V: 1, W: 2, D: 1, E: 1, O: 1}
body:
  - x[i] = Nonlin(clip(h[i], -C, C))
  - q[i] = MatMul(A, x[i])
  - k[j] = MatMul(B, x[j])
  - p[i,j] = Dot(q[i], k[j])
  - v[j] = MatMul(V, x[j])
  - z[i] = Nonlin(x[i] + sum[j](softmax[j](p[i,j]) * v[j]))
  - u[i] = MatMul(W, z[i])
  - r[i] = Nonlin(relu(u[i]))
  - m[i] = Dot(r[i], r[i], scale=1/n)
  - a[i] = Nonlin(r[i] / sqrt(m[i] + 0.001))
  - d[i] = MatMul(D, a[i])
  - e[j] = MatMul(E, a[j])
  - t[i,j] = Dot(d[i], e[j])
  - o[j] = MatMul(O, a[j])
  - y[i] = Nonlin(sum[j](softmax[j](t[i,j]) * o[j]))
outputs: [y]
"""


def loaded(text: str) -> tp.Program:
    """A program from its text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.yaml")
        path.write_text(text)
        return tp.load(path)


def taken(call: Callable[[], Any]) -> float:
    """Processor time."""
    start = time.process_time()
    call()
    return time.process_time() - start


def everything(law: tp.Law) -> dict[str, float]:
    """Processor time of each question to a law."""
    found = {"moments": taken(lambda: [law.mean("y"), law.var("y"), law.kurtosis("y"), law.moment("y", 6)])}
    grid = law.var("y") ** 0.5 * np.linspace(-6, 6, 501)
    found["density"] = taken(lambda: law.density("y", grid))
    found["cdf"] = taken(lambda: law.cdf("y", grid))
    found["quantiles"] = taken(lambda: law.quantile("y", np.arange(1, 100) / 100))
    found["divergence"] = taken(lambda: tp.kl_gaussian(law, "y"))
    return found


def one_score() -> None:
    """Outputs of one score."""
    everything(loaded(ONE % "(1 + p**2)*v").limit())  # imports
    for output in OUTPUTS:
        law = loaded(ONE % output).limit()
        found = everything(law)
        whole, sample = sum(found.values()), law.sample(KERNEL)["y"]
        grid = law.var("y") ** 0.5 * np.linspace(-6, 6, 501)
        kernel = taken(lambda sample=sample, grid=grid: gaussian_kde(sample)(grid))
        print(
            f"{output:40}",
            "  ".join(f"{name} {seconds:.2f}" for name, seconds in found.items()),
            f" all {whole:.2f} s; kernel estimate {kernel:.2f} s, ratio {whole / kernel:.2f}",
            flush=True,
        )


def draws() -> None:
    """Draws behind two layers."""
    programs = {"attention, relu, RMS norm, attention": loaded(TWO), "deep_attention": tp.load("deep_attention")}
    for name, program in programs.items():
        law = program.limit()
        law.sample(64)
        seconds = taken(lambda law=law: law.sample(DRAWS, seed=1)["y"])
        dim, generator = Layers(law.recursion, ["y"]).dim, np.random.Generator(np.random.SFC64(0))
        normals = taken(lambda dim=dim, generator=generator: generator.standard_normal((DRAWS, dim)))
        print(
            f"{name:40} {DRAWS:,} draws {seconds:.1f} s; {dim} normals each {normals:.2f} s, "
            f"ratio {seconds / normals:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["one", "draws"]
    if "one" in chosen:
        one_score()
    if "draws" in chosen:
        draws()

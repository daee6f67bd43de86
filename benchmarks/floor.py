"""What the hardest work takes today, over the least that this machine could do it in: what is left to gain.

    python benchmarks/floor.py                # every row, some minutes
    python benchmarks/floor.py cnn rnn        # some of them
    python benchmarks/floor.py --rows         # their names

Each line is a call of the public interface, after one that is not counted.  `today` is processor time, the median over
repeats, with one thread of BLAS.  The floor is what the work cannot do without, at prices that this machine has in the
same minute: normals and chi-squares drawn by numpy, multiplications in products of matrices, bytes written and read
once.  It leaves out all functions, so that 1 is out of reach where there are many of them.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from finite_measure import Prices, significant, table, timed
from threadpoolctl import threadpool_limits

import tensorprog as tp

LONG, ENOUGH = 20.0, 10.0  # seconds of a first call that is counted because there is no other, and of repeats


@dataclass(frozen=True)
class Need:
    """What a call cannot do without."""

    normals: float = 0
    chi_squares: float = 0
    multiplications: float = 0
    bytes: float = 0
    seconds: float = 0  # of something else, measured

    def __str__(self) -> str:
        parts = [
            (self.normals, "normals"),
            (self.chi_squares, "chi-squares"),
            (self.multiplications, "multiplications"),
            (self.bytes, "bytes"),
        ]
        return ", ".join(f"{number:.2g} {what}" for number, what in parts if number)


class Machine:
    """Seconds of a normal, a chi-square, a multiplication in a matrix product, and a byte written or read."""

    def __init__(self) -> None:
        self._prices = Prices()
        self._factors = np.random.default_rng(0).standard_normal((2, 1024, 1024))
        self._buffers = np.ones((2, 1 << 22))

    def now(self) -> tuple[float, float, float, float]:
        product = min(timed(lambda: self._factors[0] @ self._factors[1]).cpu for _ in range(3)) / 1024**3
        copied = min(timed(lambda: np.copyto(*self._buffers)).cpu for _ in range(3)) / (2 * self._buffers[0].nbytes)
        return (*self._prices.now(1024), product, copied)


@dataclass(frozen=True)
class Line:
    """A call, and its floor; a call that gives a number measured itself."""

    work: str
    call: Callable[[], object]
    need: Need


Row = Callable[[], Iterator[Line]]
ROWS: dict[str, Row] = {}


def row(function: Row) -> Row:
    ROWS[function.__name__] = function
    return function


def program(text: str, **constants: Any) -> tp.Program:
    """A program from text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.yaml"
        path.write_text(text, encoding="utf-8")
        return tp.load(path, **constants)


# ---- covariances of the limit ----------------------------------------------------------------------------------------

CNN = """
program: cnn_3x3
constants: {m: 2, P: 16, rho: 0.5}
indices: {i: m, c: {size: P, boundary: BOUNDARY}, e: {size: P, boundary: BOUNDARY}, d: -1..1, g: -1..1}
initial:
  x[i,c,e]: {mean: 0, cov: "where(i == i_, 1, rho)PIXELS"}
weights: {"F1[d,g]": 2 / 9, "F2[d,g]": 2 / 9, READOUT: 1}
body:
  - g1[i,c,e,d,g] = MatMul(F1[d,g], x[i,c + d,e + g])
  - x1[i,c,e]     = Nonlin(relu(sum[d,g](g1[i,c,e,d,g])))
  - g2[i,c,e,d,g] = MatMul(F2[d,g], x1[i,c + d,e + g])
  - x2[i,c,e]     = Nonlin(relu(sum[d,g](g2[i,c,e,d,g])))
"""
FLAT = "  - r[i,c,e] = MatMul(V[c,e], x2[i,c,e])\n  - f[i] = Nonlin(sum[c,e](r[i,c,e]) / P)\noutputs: [f]\n"
POOL = "  - h[i] = Nonlin(mean[c,e](x2[i,c,e]))\n  - f[i] = MatMul(V, h[i])\noutputs: [f]\n"


def cnn_program(size: int, images: int, boundary: str = "zero", pooled: bool = False) -> tp.Program:
    text = CNN + (POOL if pooled else FLAT)
    text = text.replace("BOUNDARY", boundary).replace("READOUT", "V" if pooled else '"V[c,e]"')
    text = text.replace("PIXELS", " * 0.5**abs(c - c_) * 0.5**abs(e - e_)" if pooled else "")
    return program(text, P=size, m=images)


@row
def cnn() -> Iterator[Line]:
    for images in (2, 20):
        for boundary in ("zero", "wrap"):
            network = cnn_program(32, images, boundary)
            numbers = 2 * images * (images + 1) / 2 * 32**2  # of two layers, at equal positions
            yield Line(
                f"CNN 3x3, 2 layers, relu, flattened, {images} images of 32 x 32, {boundary}",
                lambda network=network: np.asarray(network.limit().cov("f")),
                Need(bytes=16 * numbers),
            )


@row
def pool() -> Iterator[Line]:
    for size in (8, 16):
        network = cnn_program(size, 2, "wrap", pooled=True)
        yield Line(
            f"the same with average pooling, 2 images of {size} x {size}",
            lambda network=network: np.asarray(network.limit(max_memory="4GiB").cov("f")),
            Need(bytes=16 * 2 * 3 * size**4),
        )


def recurrence(name: str, steps: int) -> tp.Program:
    """A shipped recurrence on one sentence of correlated tokens."""
    text = tp.load(name).to_yaml()
    text = re.sub(r"where\(t == S \+ 1, 0, (\w+\[t - 1\])\)", r"\1", text).replace("S: 7, ", "")
    text = re.sub(r"data: data/tokens.npy, variance: \w+", "cov: 0.5**abs(t - t_)", text)
    return program(text, T=steps)


RNN = """
program: rnn
constants: {T: 16}
indices: {t: 1..T}
initial:
  x[t]: {mean: 0, cov: 0.5**abs(t - t_)}
  b: {mean: 0, cov: 0.1}
weights: {W: 1, V: 1}
body:
  - s[0] = Nonlin(0)
  - u[t] = MatMul(W, s[t - 1])
  - s[t] = Nonlin(erf(u[t] + x[t] + b))
  - f[t] = MatMul(V, s[t])
outputs: [f]
"""


@row
def rnn() -> Iterator[Line]:
    for steps in (1000, 10_000):
        network = program(RNN, T=steps)
        yield Line(
            f"erf RNN, T = {steps:,}, within 2 GiB",
            lambda network=network: np.asarray(network.limit(max_memory="2GiB").cov("f")),
            Need(bytes=16 * steps**2 / 2),
        )
        yield Line(
            f"the same, variances only, T = {steps:,}",
            lambda network=network: np.asarray(network.limit(max_memory="2GiB").var("f")),
            Need(bytes=16 * steps),
        )


@row
def gates() -> Iterator[Line]:
    for name, products in (("lstm", 4), ("gru", 3)):
        network = recurrence(name, 100)
        yield Line(
            f"{name.upper()}, T = 100",
            lambda network=network: np.asarray(network.limit().cov("y")),
            Need(bytes=16 * products * 100**2 / 2),
        )


def mlp(name: str, count: int) -> tp.Program:
    """Three hidden layers with biases on random inputs of dimension 32."""
    layers = [
        f"  - x{k}[i] = Nonlin({name}(u{k}[i] + b{k}))\n  - u{k + 1}[i] = MatMul(W{k + 1}, x{k}[i])\n" for k in range(3)
    ]
    text = (
        f"program: {name}\nconstants: {{N: {count}}}\nindices: {{i: N}}\ninitial:\n"
        "  u0[i]: {data: inputs.npy, variance: 2}\n"
        + "".join(f"  b{k}: {{cov: 0.1}}\n" for k in range(4))
        + "weights: {W1: 2, W2: 2, W3: 2}\nbody:\n"
        + "".join(layers)
        + "  - f[i] = Nonlin(u3[i] + b3)\noutputs: [f]\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "inputs.npy", np.random.default_rng(0).standard_normal((count, 32)))
        path = Path(folder) / "program.yaml"
        path.write_text(text, encoding="utf-8")
        return tp.load(path)


def kernel_lines(count: int, names: tuple[str, ...]) -> Iterator[Line]:
    for name in names:
        network = mlp(name, count)
        yield Line(
            f"kernel of 3 layers on {count:,} inputs, {name}",
            lambda network=network: np.asarray(network.limit(max_memory="4GiB").cov("f")),
            Need(multiplications=32 * count**2 / 2, bytes=8 * count**2),
        )


@row
def kernel() -> Iterator[Line]:
    yield from kernel_lines(1000, ("relu", "erf", "tanh", "gelu"))


@row
def kernel_large() -> Iterator[Line]:
    yield from kernel_lines(8000, ("relu", "erf"))


# ---- networks of finite width ----------------------------------------------------------------------------------------


def networks(network: tp.Program, width: int, count: int, work: str, products: float = 0, memory: str = "4GiB") -> Line:
    """A run on one thread; the random numbers of its plan, and multiplications of a network if they are given."""
    plan = network.plan(width)
    return Line(
        work,
        lambda: network.run(width, count, threads=1, seed=1, max_memory=memory),
        Need(plan.normals * count, plan.chi_squares * count, products * count),
    )


@row
def inactive() -> Iterator[Line]:
    for width, count in ((64, 50_000), (1024, 50_000), (16384, 50_000)):
        yield networks(tp.load("attention"), width, count, f"attention, clip at 100, n = {width}, {count:,} networks")


@row
def active() -> Iterator[Line]:
    text = tp.load("attention").to_yaml()
    for name in ("clip(u[i], -2, 2)", "tanh(u[i])", "gelu(u[i])", "relu(u[i])"):
        network = program(text.replace("clip(u[i], -C, C)", name).replace(", C: 100", "").replace("C: 100, ", ""))
        yield networks(network, 1024, 50_000, f"attention, {name}, n = 1024, 50,000 networks")


def frame_products(tokens: int, heads: int, width: int) -> float:
    """Multiplications of the Gram matrix and, for each head, of three products of frames."""
    return tokens**2 * (width + 3 * heads * min(tokens, width))


@row
def frames() -> Iterator[Line]:
    for tokens, count in ((64, 400), (256, 16), (1024, 1)):
        yield networks(
            tp.load("attention", s=tokens),
            256,
            count,
            f"attention, s = {tokens}, H = 2, n = 256, {count:,} networks",
            frame_products(tokens, 2, 256),
        )


@row
def gpt2() -> Iterator[Line]:
    yield networks(
        tp.load("attention", s=1024, H=12),
        768,
        1,
        "attention, s = 1024, H = 12, n = 768, within 1 GiB",
        frame_products(1024, 12, 768),
        memory="1GiB",
    )


# ---- laws ------------------------------------------------------------------------------------------------------------


@row
def draws() -> Iterator[Line]:
    law = tp.load("attention_correlated", s=1024, H=12).limit()
    need = Need(normals=10 * 12 * 1024**2, multiplications=10 * 12 * 1024**3)  # two products by triangles
    yield Line("10 draws of the limit, s = 1024, H = 12", lambda: law.sample(10), need)


TWO_LAYERS = """
program: two_layers
constants: {s: 4, H: 2}
indices: {i: s, j: s, a: H}
initial:
  h[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {"Q[a]": 1, "K[a]": 1, "V[a]": 1, U: 2, "R[a]": 1, "S[a]": 1, "T[a]": 1}
body:
  - x[i]   = Nonlin(clip(h[i], -2, 2))
  - q[a,i] = MatMul(Q[a], x[i])
  - k[a,j] = MatMul(K[a], x[j])
  - p[a,i,j] = Dot(q[a,i], k[a,j])
  - v[a,j] = MatMul(V[a], x[j])
  - z[i]   = Nonlin(x[i] + sum[a,j](softmax[j](p[a,i,j]) * v[a,j]) / sqrt(H))
  - u[i]   = MatMul(U, z[i])
  - w[i]   = Nonlin(relu(u[i]))
  - m[i]   = Dot(w[i], w[i], scale=1/n)
  - t[i]   = Nonlin(w[i] / sqrt(m[i] + 0.001))
  - r[a,i] = MatMul(R[a], t[i])
  - l[a,j] = MatMul(S[a], t[j])
  - e[a,i,j] = Dot(r[a,i], l[a,j])
  - o[a,j] = MatMul(T[a], t[j])
  - y[i]   = Nonlin(sum[a,j](softmax[j](e[a,i,j]) * o[a,j]) / sqrt(H))
outputs: [y]
"""


@row
def layers() -> Iterator[Line]:
    law = program(TWO_LAYERS).limit()
    count = 200_000
    yield Line(
        f"{count:,} draws: attention, relu, RMS norm, attention",
        lambda: law.sample(count),
        Need(normals=count * (2 * 2 * 16 + 4), bytes=16.0 * count * (2 * 2 * 16 + 4)),
    )


ONE_SCORE = """
program: one_score
indices: {i: 2}
initial:
  x[i]: {mean: 0, cov: 0.5**abs(i - i_)}
weights: {Q: 1, K: 1, V: 1}
body:
  - q = MatMul(Q, x[0])
  - k = MatMul(K, x[1])
  - p = Dot(q, k)
  - v = MatMul(V, x[0])
  - y = Nonlin(FUNCTION * v)
outputs: [y]
"""


def everything(network: tp.Program) -> None:
    law = network.limit()
    law.var("y"), law.kurtosis("y"), law.moment("y", 6)
    grid = np.linspace(-4, 4, 501)
    law.density("y", grid), law.cdf("y", grid)
    law.quantile("y", [0.01, 0.25, 0.5, 0.75, 0.99])
    tp.kl_gaussian(law, "y")


@row
def laws() -> Iterator[Line]:
    for function in ("tanh(p)", "p", "exp(-p**2)", "clip(p, -1, 1)", "sin(20 * p)"):
        network = program(ONE_SCORE.replace("FUNCTION", function))
        yield Line(f"all questions to y = {function} v", lambda network=network: everything(network), Need())


# ---- processes -------------------------------------------------------------------------------------------------------


def process(arguments: list[str]) -> float:
    """Processor seconds of a process, and of those it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@row
def start() -> Iterator[Line]:
    numpy = median(process(["-c", "import numpy"]) for _ in range(5))
    scipy = median(process(["-c", "import numpy, scipy.special, scipy.linalg"]) for _ in range(5))
    covariance = "import tensorprog as tp; tp.load('attention').limit().cov('y')"
    empty = median(process(["-c", "pass"]) for _ in range(5))
    with tempfile.TemporaryDirectory() as folder:
        for work, arguments, floor in (
            ("tp list", ["-m", "tensorprog", "list"], empty),
            ("tp check attention", ["-m", "tensorprog", "check", "attention"], numpy),
            ("first covariance of attention", ["-c", covariance], scipy),
            ("tp-run attention", ["-m", "tensorprog", "run", "attention", "--quiet", "--out", folder], scipy),
        ):
            yield Line(work, lambda arguments=arguments: process(arguments), Need(seconds=floor))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ROW", help="rows, by name; all without")
    parser.add_argument("--repeats", type=int, default=5, help="of each call, in ten seconds at most")
    parser.add_argument("--rows", action="store_true", help="list the names of rows")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in ROWS]
    if arguments.rows or unknown:
        print("\n".join([*(f"there is no row {name}; there are" for name in unknown), *ROWS]))
        raise SystemExit(2 if unknown else 0)
    with threadpool_limits(1):
        machine, rows = Machine(), []
        for name in arguments.names or ROWS:
            for line in ROWS[name]():
                rows.append([name, *measured(line, machine, arguments.repeats)])
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    normal, chi, product, byte = machine.now()
    table(
        f"Today over the floor: {normal * 1e9:.1f} ns a normal, {chi * 1e9:.1f} ns a chi-square, "
        f"{1 / product / 1e9:.1f} G multiplications/s, {1 / byte / 2**30:.1f} GiB/s",
        ["row", "work", "today, s", "floor, s", "today / floor", "the floor"],
        rows,
    )


def measured(line: Line, machine: Machine, repeats: int) -> list[str]:
    """The cells of a line, or why it was refused."""
    seconds: list[float] = []
    before = machine.now()
    try:
        for turn in range(repeats + 1):
            clock = time.process_time()
            found = line.call()
            took = found if isinstance(found, float) else time.process_time() - clock
            if turn or took > LONG:
                seconds.append(took)
            if sum(seconds) > ENOUGH:
                break
    except tp.TensorprogError as error:
        return [line.work, str(error).splitlines()[0][:120], "", "", str(line.need)]
    need = line.need
    counts = (need.normals, need.chi_squares, need.multiplications, need.bytes)
    prices = np.mean([before, machine.now()], axis=0)
    floor = need.seconds + float(np.dot(counts, prices))
    ratio = significant(median(seconds) / floor) if floor else ""
    least = "a process with its libraries" if need.seconds else str(need)
    return [line.work, significant(median(seconds)), significant(floor) if floor else "", ratio, least]


if __name__ == "__main__":
    main()

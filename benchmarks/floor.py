"""What hard work takes today, beside numpy as one writes it, or a goal in seconds.

    python benchmarks/floor.py                # every row, some minutes
    python benchmarks/floor.py cnn rnn        # some of them
    python benchmarks/floor.py --rows         # their names

Each line is a call of the public interface, after one that is not counted: seconds of the clock and of the processor,
the median of five turns, in which plain numpy takes its turns too where there is such a thing.  Run it on an idle
machine; it names the processor.  `benchmarks/peers` has the same kernels by neural-tangents.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
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
from finite_measure import significant, table
from threadpoolctl import threadpool_limits

import tensorprog as tp

LONG = 20.0  # seconds of a first call that is counted because there is no other


@dataclass(frozen=True)
class Line:
    """A call; plain numpy beside it, if there is such a thing; what is to be reached, in words."""

    work: str
    call: Callable[[], object]
    goal: str
    plain: Callable[[], object] | None = None
    threads: int = 1  # of BLAS


Row = Callable[[], Iterator[Line]]
ROWS: dict[str, Row] = {}


def row(function: Row) -> Row:
    ROWS[function.__name__] = function
    return function


def program(text: str, arrays: dict[str, Any] | None = None, **constants: Any) -> tp.Program:
    """A program from text, with arrays beside it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, array in (arrays or {}).items():
            np.save(Path(folder) / f"{name}.npy", array)
        path = Path(folder) / "program.yaml"
        path.write_text(text, encoding="utf-8")
        return tp.load(path, **constants)


# ---- kernels on data -------------------------------------------------------------------------------------------------

WEIGHT, BIAS, DEPTH = 2.0, 0.1, 3


def data(count: int, alike: bool = True) -> Any:
    """Inputs of dimension 32, of about one norm or of different ones."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, 32)) * (1.0 if alike else rng.uniform(0.3, 2.0, (count, 1)))


def mlp(function: str, inputs: Any) -> tp.Program:
    """Three hidden layers with biases; `function` of z."""
    layers = [
        f"  - x{k}[i] = Nonlin({function.replace('z', f'(u{k}[i] + b{k})')})\n"
        f"  - u{k + 1}[i] = MatMul(W{k + 1}, x{k}[i])\n"
        for k in range(DEPTH)
    ]
    text = (
        f"program: network\nconstants: {{N: {len(inputs)}}}\nindices: {{i: N}}\ninitial:\n"
        f"  u0[i]: {{data: inputs.npy, variance: {WEIGHT}}}\n"
        + "".join(f"  b{k}: {{cov: {BIAS}}}\n" for k in range(DEPTH + 1))
        + f"weights: {{{', '.join(f'W{k + 1}: {WEIGHT}' for k in range(DEPTH))}}}\nbody:\n"
        + "".join(layers)
        + f"  - f[i] = Nonlin(u{DEPTH}[i] + b{DEPTH})\noutputs: [f]\n"
    )
    return program(text, {"inputs": inputs})


def covariance(network: tp.Program, **given: Any) -> Callable[[], Any]:
    return lambda: np.asarray(network.limit(**given).cov("f"))


def textbook(name: str, x: Any, tangent: bool = False) -> Any:
    """The recursion on whole matrices, with that of the tangents: Cho & Saul 2009, Williams 1998, Jacot et al. 2018."""
    k = WEIGHT * (x @ x.T) / x.shape[1] + BIAS
    t = k
    for _ in range(DEPTH):
        if name == "relu":
            d = np.sqrt(np.diag(k))
            q = np.outer(d, d)
            rho = np.clip(k / q, -1, 1)
            angle = np.pi - np.arccos(rho)
            slope = angle / (2 * np.pi)
            k = q / (2 * np.pi) * (np.sqrt(1 - rho * rho) + angle * rho)
        else:
            d = 1 + 2 * np.diag(k)
            q = np.outer(d, d)
            slope = 4 / np.pi / np.sqrt(q - 4 * k * k)
            k = 2 / np.pi * np.arcsin(2 * k / np.sqrt(q))
        k = WEIGHT * k + BIAS
        t = k + WEIGHT * slope * t if tangent else t
    return t if tangent else k


def started() -> None:
    """A larger kernel first, with which a process starts compiled code, if the extra `fast` is installed."""
    covariance(mlp("relu(z)", data(4000)))()


@row
def smooth() -> Iterator[Line]:
    started()
    inputs = data(1000, alike=False)
    for function in ("tanh(z)", "gelu(z)", "silu(z)", "softplus(z)", "z * tanh(z) / 2 + sin(z)"):
        yield Line(f"kernel, 1,000 inputs of different norms, {function}", covariance(mlp(function, inputs)), "0.5 s")


@row
def kernel() -> Iterator[Line]:
    started()
    inputs = data(1000)
    for name in ("relu", "erf"):
        call = covariance(mlp(f"{name}(z)", inputs))
        yield Line(f"kernel, 1,000 inputs, {name}", call, "0.5 of plain", lambda name=name: textbook(name, inputs))


@row
def tangent() -> Iterator[Line]:
    started()
    inputs = data(1000)
    for name in ("relu", "erf"):
        network = mlp(f"{name}(z)", inputs)
        yield Line(
            f"tangent kernel, 1,000 inputs, {name}", lambda network=network: np.asarray(tp.ntk(network, "f")),
            "1.5 times the kernel", lambda name=name: textbook(name, inputs, tangent=True),
        )  # fmt: skip


@row
def clip() -> Iterator[Line]:
    yield Line("kernel, 200 inputs, clip(z, -1, 1)", covariance(mlp("clip(z, -1, 1)", data(200))), "0.5 s")


CNN = """
program: cnn_3x3
constants: {m: 20, P: 32, rho: 0.5}
indices: {i: m, c: {size: P, boundary: zero}, e: {size: P, boundary: zero}, d: -1..1, g: -1..1}
initial:
  x[i,c,e]: {mean: 0, cov: "where(i == i_, 1, rho)"}
weights: {"F1[d,g]": 2 / 9, "F2[d,g]": 2 / 9, "V[c,e]": 1}
body:
  - g1[i,c,e,d,g] = MatMul(F1[d,g], x[i,c + d,e + g])
  - x1[i,c,e]     = Nonlin(relu(sum[d,g](g1[i,c,e,d,g])))
  - g2[i,c,e,d,g] = MatMul(F2[d,g], x1[i,c + d,e + g])
  - x2[i,c,e]     = Nonlin(relu(sum[d,g](g2[i,c,e,d,g])))
  - r[i,c,e] = MatMul(V[c,e], x2[i,c,e])
  - f[i] = Nonlin(sum[c,e](r[i,c,e]) / P)
outputs: [f]
"""


def convolutions() -> Any:
    """The same recursion on whole arrays."""
    k = np.where(np.eye(20, dtype=bool), 1.0, 0.5)[:, :, None, None] * np.ones((32, 32))
    for _ in range(2):
        wide = np.pad(k, ((0, 0), (0, 0), (1, 1), (1, 1)))
        k = 2 / 9 * sum(wide[:, :, a : a + 32, b : b + 32] for a in range(3) for b in range(3))
        d = np.sqrt(np.einsum("iice->ice", k))
        q = d[:, None] * d
        rho = np.clip(k / q, -1, 1)
        k = q / (2 * np.pi) * (np.sqrt(1 - rho * rho) + (np.pi - np.arccos(rho)) * rho)
    return k.mean(axis=(2, 3))


@row
def cnn() -> Iterator[Line]:
    yield Line("20 images of 32 x 32, two layers, flattened", covariance(program(CNN)), "2 of the peer", convolutions)


# ---- recurrences -----------------------------------------------------------------------------------------------------

RNN = """
program: rnn
constants: {T: 1000}
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


def steps_of_erf(count: int) -> Any:
    """A row of the covariance for each step."""
    t = np.arange(count)
    inputs = 0.5 ** np.abs(t[:, None] - t) + 0.1
    second = np.zeros((count, count))
    spread = np.zeros(count)
    for k in range(count):
        row = inputs[k, : k + 1].copy()
        row[1:] += second[k - 1, :k] if k else 0.0
        spread[k] = 1 + 2 * row[k]
        second[k, : k + 1] = 2 / np.pi * np.arcsin(2 * row / np.sqrt(spread[k] * spread[: k + 1]))
        second[: k + 1, k] = second[k, : k + 1]
    return second


@row
def rnn() -> Iterator[Line]:
    call = covariance(program(RNN))
    yield Line("erf RNN, T = 1,000", call, "0.3 s", lambda: steps_of_erf(1000))
    yield Line("erf RNN, T = 10,000, within 2 GiB", covariance(program(RNN, T=10_000), max_memory="2GiB"), "it fits")


@row
def gates() -> Iterator[Line]:
    for name in ("lstm", "gru"):  # the shipped recurrence on one sentence of correlated tokens
        text = tp.load(name).to_yaml()
        text = re.sub(r"where\(t == S \+ 1, 0, (\w+\[t - 1\])\)", r"\1", text).replace("S: 7, ", "")
        text = re.sub(r"data: data/tokens.npy, variance: \w+", "cov: 0.5**abs(t - t_)", text)
        network = program(text, T=100)

        def call(network: tp.Program = network) -> str:
            value, error = network.limit().cov("y", with_error=True)
            return f"error {np.max(error):.1e}, variance {np.max(value):.2g}"

        yield Line(f"{name.upper()}, T = 100", call, "5 s at 1e-3")


# ---- behind scores, and networks -------------------------------------------------------------------------------------


@row
def attention() -> Iterator[Line]:
    count = 50_000  # so many that `fast` starts
    network = program(tp.load("attention").to_yaml().replace("C: 100", "C: 2"))

    def normals() -> None:
        rng = np.random.default_rng(0)
        for _ in range(count):
            rng.standard_normal(4 * 1024)

    yield Line(
        f"attention, clip acting, n = 1024, {count:,} networks, one thread, `fast`",
        lambda: network.run(1024, count, threads=1, seed=1), "0.40 of s n normals", normals,
    )  # fmt: skip


@row
def scores() -> Iterator[Line]:
    for tokens in (256, 1024):
        network = tp.load("attention_correlated", s=tokens)

        def call(network: tp.Program = network) -> str:
            value, error = network.limit().cov("y", with_error=True)
            return f"error {np.max(error) / np.max(value):.1g} of the variance"

        yield Line(f"covariance of y, attention_correlated, s = {tokens}", call, "error 0.01, 4 s")


# ---- processes -------------------------------------------------------------------------------------------------------


def process(*arguments: str) -> None:
    variables = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=variables)


@row
def start() -> Iterator[Line]:
    imports = lambda: process("-c", "import numpy, scipy.special, scipy.linalg")  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        yield Line("tp limit attention", lambda: process("-m", "tensorprog", "limit", "attention"), "1.0 s", imports)
        arguments = ("-m", "tensorprog", "run", "attention", "--quiet", "--out", folder)
        yield Line("tp-run attention", lambda: process(*arguments), "5 s")


@row
def dask() -> Iterator[Line]:
    from distributed import Client, LocalCluster

    network = program(tp.load("attention").to_yaml().replace("C: 100", "C: 2"))
    for workers in (1, 2):
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            pool = client.get_executor()
            call = lambda pool=pool: network.run(4096, 100_000, seed=1, executor=pool)  # noqa: E731
            yield Line(
                f"100,000 networks, n = 4096, {workers} of dask's workers, `fast` in each",
                call,
                "1.7 times as fast by 2",
            )


# ---- measuring -------------------------------------------------------------------------------------------------------


def timed(call: Callable[[], object]) -> tuple[float, float, object]:
    """Seconds of the clock, and of the processor by this process and those it waits for, and what the call gives."""
    clock, before = time.perf_counter(), os.times()
    found = call()
    after = os.times()
    return time.perf_counter() - clock, sum(after[:4]) - sum(before[:4]), found


def measured(line: Line, turns: int) -> list[str]:
    """The cells of a line, or why it was refused."""
    ours, plain = [], []
    try:
        with threadpool_limits(line.threads):
            first = timed(line.call)
            if first[0] > LONG:
                ours.append(first)
            for _ in range(0 if ours else turns):
                ours.append(timed(line.call))
                plain += [timed(line.plain)] if line.plain else []
    except tp.TensorprogError as error:
        return [line.work, str(error).splitlines()[0][:120], "", "", "", line.goal]
    clock, processor = (median(each[k] for each in ours) for k in (0, 1))
    beside = [each[0] for each in plain]
    ratio = significant(median(a[0] / b for a, b in zip(ours, beside, strict=True))) if beside else ""
    said = f"; {first[2]}" if isinstance(first[2], str) else ""
    return [line.work, significant(clock), significant(processor), significant(median(beside)) if beside else "", ratio,
            line.goal + said]  # fmt: skip


def processor_name() -> str:
    """The processor that is measured on."""
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ROW", help="rows, by name; all without")
    parser.add_argument("--turns", type=int, default=5, help="of each call")
    parser.add_argument("--rows", action="store_true", help="list the names of rows")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in ROWS]
    if arguments.rows or unknown:
        print("\n".join([*(f"there is no row {name}; there are" for name in unknown), *ROWS]))
        raise SystemExit(2 if unknown else 0)
    rows = []
    for name in arguments.names or ROWS:
        for line in ROWS[name]():
            rows.append([name, *measured(line, arguments.turns)])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    table(processor_name(), ["row", "work", "seconds", "of processor", "plain, s", "today / plain", "to reach"], rows)


if __name__ == "__main__":
    main()

"""NNGP kernels of three-hidden-layer networks on data: tensorprog, neural-tangents and plain numpy, by turns.

    python3 -m venv peer
    python3 -m pip --python peer install -r benchmarks/peers/neural_tangents.txt
    python benchmarks/peers/neural_tangents.py peer/bin/python

neural-tangents runs in its own interpreter, given as the argument, in double precision, compiled by jit; its first
call includes the compilation. Ours goes from a loaded program to the array of the covariance of the output. Both may
use two processors. Calls alternate, so that both see the same machine; ratios are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DEPTH, BIAS = 3, 0.1
WEIGHT = {"relu": 2.0, "erf": 1.5}  # variances of weights


def text(name: str) -> str:
    """The network as a program file, on inputs.npy beside it."""
    lines = [
        f"program: {name}_network",
        f"constants: {{N: {len(np.load('inputs.npy', mmap_mode='r'))}, w: {WEIGHT[name]}, b: {BIAS}}}",
        "indices: {i: N}",
        "initial:",
        "  'u0[i]': {data: inputs.npy, variance: w}",
        *(f"  b{k}: {{cov: b}}" for k in range(DEPTH + 1)),
        "weights:",
        *(f"  W{k}: w" for k in range(1, DEPTH + 1)),
        "body:",
    ]
    for k in range(DEPTH):
        lines.append(f"  - x{k}[i] = Nonlin({name}(u{k}[i] + b{k}))")
        lines.append(f"  - u{k + 1}[i] = MatMul(W{k + 1}, x{k}[i])")
    lines += [f"  - f[i] = Nonlin(u{DEPTH}[i] + b{DEPTH})", "outputs: [f]"]
    return "\n".join(lines) + "\n"


def naive(name: str, x: np.ndarray) -> np.ndarray:
    """The textbook recursion on whole matrices: Cho & Saul 2009, Williams 1998."""
    w = WEIGHT[name]
    k = w * (x @ x.T) / x.shape[1] + BIAS
    for _ in range(DEPTH):
        if name == "relu":
            d = np.sqrt(np.diag(k))
            q = np.outer(d, d)
            rho = np.clip(k / q, -1, 1)
            k = w * q / (2 * np.pi) * (np.sqrt(1 - rho * rho) + (np.pi - np.arccos(rho)) * rho) + BIAS
        else:
            d = 1 + 2 * np.diag(k)
            k = w * 2 / np.pi * np.arcsin(2 * k / np.sqrt(np.outer(d, d))) + BIAS
    return k


def serve(folder: Path) -> None:
    """Theirs: for each name on a line of the input, one call; its seconds on a line, the kernel in a file."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from neural_tangents import stax

    x = np.load(folder / "inputs.npy")
    kernels: dict[str, Callable[..., Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in kernels:
            dense = {"W_std": WEIGHT[name] ** 0.5, "b_std": BIAS**0.5}
            activation = {"relu": stax.Relu, "erf": stax.Erf}[name]
            hidden = [layer for _ in range(DEPTH) for layer in (stax.Dense(512, **dense), activation())]
            kernels[name] = jax.jit(stax.serial(*hidden, stax.Dense(1, **dense))[2], static_argnames="get")
        start = time.perf_counter()
        value = np.asarray(kernels[name](x, None, get="nngp").block_until_ready())
        seconds = time.perf_counter() - start
        np.save(folder / f"{name}.npy", value)
        print(seconds, flush=True)


class Peer:
    """The other interpreter, which answers one call at a time."""

    def __init__(self, python: str, folder: Path) -> None:
        command = [python, "-I", __file__, "--serve", str(folder)]  # -I: this file is not to be imported there
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __call__(self, name: str) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("neural-tangents did not answer: is it installed in the interpreter given?")
        return float(answer)


def timed(call: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


def compare(name: str, peer: Peer, rounds: int) -> dict[str, float]:
    import tensorprog as tp

    x = np.load("inputs.npy")
    Path(f"{name}.yaml").write_text(text(name), encoding="utf-8")
    program = tp.load(Path(f"{name}.yaml"))

    def ours() -> np.ndarray:
        return np.asarray(program.limit().cov("f"))

    first, value = timed(ours)
    peer_first = peer(name)
    theirs = np.load(f"{name}.npy")
    rows = np.array([(timed(ours)[0], peer(name), timed(lambda: naive(name, x))[0]) for _ in range(rounds)])
    own, other, plain = np.median(rows, axis=0)
    best = np.min(rows, axis=0)  # the machine at its quietest
    return {
        "first call, ms": 1e3 * first,
        "its first call, ms": 1e3 * peer_first,
        "warm, ms": 1e3 * own,
        "its warm call, ms": 1e3 * other,
        "plain numpy, ms": 1e3 * plain,
        "warm, best, ms": 1e3 * best[0],
        "its warm call, best, ms": 1e3 * best[1],
        "plain numpy, best, ms": 1e3 * best[2],
        "ratio to its warm call": float(np.median(rows[:, 0] / rows[:, 1])),
        "ratio to plain numpy": float(np.median(rows[:, 0] / rows[:, 2])),
        "difference, relative": float(np.max(np.abs(value / theirs - 1))),
        "error reported, relative": program.limit().cov("f").error / float(np.max(value)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("python", nargs="?", help="interpreter that has neural-tangents")
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        serve(args.serve)
        return
    if args.python is None:
        parser.error("the interpreter that has neural-tangents is missing")
    python = str(Path(args.python).absolute())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        np.save("inputs.npy", np.random.default_rng(0).standard_normal((args.inputs, args.dim)))
        peer = Peer(python, Path(folder))
        results = {name: compare(name, peer, args.rounds) for name in WEIGHT}
        peer.process.kill()
        os.chdir("/")
    print(f"{'':28}" + "".join(f"{name:>12}" for name in results))
    for row in next(iter(results.values())):
        print(f"{row:28}" + "".join(f"{results[name][row]:12.3g}" for name in results))
    print(json.dumps(results))


if __name__ == "__main__":
    main()

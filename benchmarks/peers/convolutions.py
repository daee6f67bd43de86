"""Covariances of convolutional networks on images: tensorprog and neural-tangents, by turns, and what a plan said.

    python3 -m venv peer
    python3 -m pip --python peer install -r benchmarks/peers/neural_tangents.txt
    python benchmarks/peers/convolutions.py peer/bin/python

Two layers of 3 x 3 convolutions with relu, read flattened or averaged over places. Ours goes from a loaded program to
the array of the covariance of the output, with errors, the check included; neural-tangents runs in its own interpreter,
in double precision, compiled by jit. Calls alternate; both keep to one processor, and times are processor times, so
that other work on the machine counts less; ratios are medians over the rounds. Memory is the peak of one call of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

WEIGHT, BIAS, CHANNELS = 2.0, 0.1, 3


class Case(NamedTuple):
    """Images of `side` x `side` places, with a stride in the first layer."""

    images: int
    side: int
    boundary: str = "zero"
    pooled: bool = False
    stride: int = 1

    def __str__(self) -> str:
        return f"{self.images} of {self.side} x {self.side}, {'averaged' if self.pooled else 'flattened'}, " + (
            f"{self.boundary}, stride {self.stride}")  # fmt: skip


CASES = (
    Case(2, 32), Case(2, 32, "wrap"), Case(2, 32, stride=2), Case(20, 32), Case(20, 32, "wrap"), Case(20, 32, stride=2),
    Case(2, 16, pooled=True), Case(2, 16, "wrap", pooled=True),
)  # fmt: skip


def text(case: Case) -> str:
    """The network as a program file, on images.npy beside it."""
    head = ["  V: 1"] if case.pooled else ["  'V[u,v]': 1"]
    readout = (
        ["  - h[i] = Nonlin(mean[u,v](x2[i,u,v]))", "  - f[i] = MatMul(V, h[i])"]
        if case.pooled
        else ["  - r[i,u,v] = MatMul(V[u,v], x2[i,u,v])", "  - f[i] = Nonlin(sum[u,v](r[i,u,v]) / Q)"]
    )
    index = f"size: {{}}, boundary: {case.boundary}"
    names = {"a": "P", "c": "P", "u": "Q", "v": "Q"}
    indices = ", ".join(f"{name}: {{{index.format(size)}}}" for name, size in names.items())
    return "\n".join([
        "program: convolutions",
        f"constants: {{m: {case.images}, P: {case.side}, Q: {case.side // case.stride}, w: {WEIGHT}, b: {BIAS}}}",
        f"indices: {{i: m, {indices}, d: '-1..1', e: '-1..1'}}",
        "initial:",
        "  'x[i,a,c]': {data: images.npy}",
        "  b1: {cov: b}",
        "  b2: {cov: b}",
        "weights:",
        "  'F1[d,e]': w / 9",
        "  'F2[d,e]': w / 9",
        *head,
        "body:",
        f"  - g1[i,u,v,d,e] = MatMul(F1[d,e], x[i,{case.stride}*u+d,{case.stride}*v+e])",
        "  - x1[i,u,v] = Nonlin(relu(sum[d,e](g1[i,u,v,d,e]) + b1))",
        "  - g2[i,u,v,d,e] = MatMul(F2[d,e], x1[i,u+d,v+e])",
        "  - x2[i,u,v] = Nonlin(relu(sum[d,e](g2[i,u,v,d,e]) + b2))",
        *readout,
        "outputs: [f]",
    ]) + "\n"  # fmt: skip


def images(case: Case) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((case.images, case.side, case.side, CHANNELS))


def serve() -> None:
    """Theirs: for each case on a line of the input, one call; its seconds and the kernel on a line."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from neural_tangents import stax

    kernels: dict[Case, Any] = {}
    for line in sys.stdin:
        case = Case(*json.loads(line))
        x = images(case)
        if case.stride == 2 and case.boundary == "zero":  # places 2 u - 1, 2 u, 2 u + 1, as ours
            x = np.pad(x, [(0, 0), (1, 0), (1, 0), (0, 0)])
        if case not in kernels:
            padding = {"zero": "SAME", "wrap": "CIRCULAR"}[case.boundary]
            first = "VALID" if case.stride == 2 else padding
            common = {"W_std": WEIGHT**0.5, "b_std": BIAS**0.5}
            strides = (case.stride, case.stride)
            readout = stax.GlobalAvgPool() if case.pooled else stax.Flatten()
            kernels[case] = jax.jit(stax.serial(
                stax.Conv(8, (3, 3), strides, padding=first, **common), stax.Relu(),
                stax.Conv(8, (3, 3), padding=padding, **common), stax.Relu(), readout, stax.Dense(1, 1.0, 0.0),
            )[2], static_argnames="get")  # fmt: skip
        start = time.process_time()
        value = np.asarray(kernels[case](x, None, get="nngp").block_until_ready())
        print(json.dumps([time.process_time() - start, value.tolist()]), flush=True)


class Peer:
    """The other interpreter, which answers one call at a time."""

    def __init__(self, python: str) -> None:
        flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [python, "-I", __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=os.environ | flags,
        )  # fmt: skip

    def __call__(self, case: Case) -> tuple[float, np.ndarray]:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(case), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("neural-tangents did not answer: is it installed in the interpreter given?")
        seconds, value = json.loads(answer)
        return seconds, np.array(value)


def compare(case: Case, peer: Peer, rounds: int) -> dict[str, float | str]:
    import tensorprog as tp

    np.save("images.npy", images(case).reshape(-1, CHANNELS))
    Path("convolutions.yaml").write_text(text(case), encoding="utf-8")
    program = tp.load(Path("convolutions.yaml"))

    def ours() -> tuple[float, np.ndarray, float]:
        start = time.process_time()
        found = program.limit().cov("f")
        value = np.asarray(found)
        return time.process_time() - start, value, found.error

    _, value, error = ours()
    _, truth = peer(case)
    times = np.array([(ours()[0], peer(case)[0]) for _ in range(rounds)])
    law = program.limit()
    tracemalloc.start()
    law.cov("f")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "case": str(case),
        "ms": 1e3 * float(np.median(times[:, 0])),
        "best ms": 1e3 * float(np.min(times[:, 0])),
        "its ms": 1e3 * float(np.median(times[:, 1])),
        "ratio": float(np.median(times[:, 0] / times[:, 1])),
        "MiB": peak / 2**20,
        "difference": float(np.max(np.abs(value / truth - 1))) if case.stride == 1 or case.boundary == "zero" else 0.0,
        "error": error / float(np.max(value)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("python", nargs="?", help="interpreter that has neural-tangents")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return
    if args.python is None:
        parser.error("the interpreter that has neural-tangents is missing")
    peer = Peer(str(Path(args.python).absolute()))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rows = [compare(case, peer, args.rounds) for case in CASES]
        peer.process.kill()
        os.chdir("/")
    print(f"{'':44}" + "".join(f"{name:>13}" for name in rows[0] if name != "case"))
    for row in rows:
        print(f"{row['case']:44}" + "".join(f"{value:13.3g}" for name, value in row.items() if name != "case"))


if __name__ == "__main__":
    main()

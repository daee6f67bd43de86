"""Kernels of three-hidden-layer networks on data: functions beside relu, and many inputs beside the product x @ x.T.

    python benchmarks/kernels.py [--inputs 1000] [--many 8000] [--rounds 5]

Times are of a processor, all threads together, and of the clock; ratios are medians over rounds in which both sides
alternate. Each call goes from a loaded program to the array of the covariance of the output.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import neural_tangents as networks

networks.WEIGHT.update(tanh=1.5, gelu=1.5)


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of processors, and of the clock."""
    start = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - start[0], time.perf_counter() - start[1]


def kernel(name: str, inputs: int) -> Callable[[], np.ndarray]:
    """What computes the array."""
    import tensorprog as tp

    np.save("inputs.npy", np.random.default_rng(0).standard_normal((inputs, 32)))
    Path(f"{name}.yaml").write_text(networks.text(name), encoding="utf-8")
    program = tp.load(Path(f"{name}.yaml"))
    return lambda: np.asarray(program.limit(max_memory="16GiB").cov("f"))


def peak() -> float:
    """Largest memory of the process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--many", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        calls = {name: kernel(name, args.inputs) for name in networks.WEIGHT}
        for call in calls.values():
            call()
        rows = np.array([[timed(call) for call in calls.values()] for _ in range(args.rounds)])
        print(f"{args.inputs} inputs: milliseconds of processors and of the clock, over those of relu")
        for name, own in zip(calls, rows.transpose(1, 2, 0), strict=True):
            ratio = np.median(own / rows[:, 0].T, axis=1)
            spent = 1e3 * np.median(own, axis=1)
            print(f"  {name:6}{spent[0]:8.1f}{spent[1]:8.1f}{ratio[0]:8.2f}{ratio[1]:8.2f}")
        large = kernel("relu", args.many)
        x = np.load("inputs.npy")
        pairs = [(timed(lambda: x @ x.T), peak(), timed(large), peak()) for _ in range(args.rounds)]
        print(f"{args.many} inputs, relu: seconds of processors and of the clock, over those of x @ x.T")
        first, second = (np.array([pair[k] for pair in pairs]) for k in (0, 2))
        for k, label in enumerate(("processors", "clock")):
            ratio = np.median(second[:, k] / first[:, k])
            print(f"  {label:12}{np.median(first[:, k]):8.2f}{np.median(second[:, k]):8.2f}{ratio:8.2f}")
        print(f"  peak of the process after x @ x.T {pairs[0][1]:.0f} MiB, after the kernel {pairs[-1][3]:.0f} MiB")
        os.chdir("/")


if __name__ == "__main__":
    main()

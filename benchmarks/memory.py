"""Memory that laws take, beside what they were allowed, and networks, beside the estimate: each in its own process.

    python benchmarks/memory.py [laws] [networks] [--quick]

The peak is that of the process, less what it had when the program was loaded and all packages were imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

QUICK = [
    ("gru", {}, "100MiB", "law.var('y')"),
    ("gru", {}, "1GiB", "law.var('y')"),
    ("attention", {"s": 4000}, "100MiB", "law.sample(4)"),
    ("attention", {"s": 4000}, "1GiB", "law.sample(1)"),
    ("attention", {"s": 100_000}, "100MiB", "law.sample(1)"),
    ("attention", {"s": 100_000}, "100MiB", "law.var('y[0]')"),
]
CASES = [
    *QUICK,
    ("lstm", {}, "100MiB", "law.var('y')"),
    ("lstm", {}, "1GiB", "law.var('y')"),
    ("attention", {}, "100MiB", "law.kurtosis('y')"),
    ("attention", {"s": 1024}, "256MiB", "law.sample(8)"),
    ("attention_correlated", {"s": 2000}, "100MiB", "law.sample(1)"),
    ("attention_correlated", {"s": 2000}, "1GiB", "law.sample(1)"),
    ("attention_fixed_head", {}, "100MiB", "law.var('y')"),
    ("batchnorm_mlp", {}, "100MiB", "law.var(law.outputs[0])"),
    ("mlp", {"m": 2000}, "100MiB", "np.asarray(law.cov('f'))"),
    ("mlp", {"m": 2000}, "1GiB", "np.asarray(law.cov('f'))"),
    ("mlp", {"m": 2000}, "1GiB", "law.sample(100)"),
]
NETWORKS: list[tuple[str, dict[str, int], int, int, dict[str, object]]] = [
    ("attention", {"s": 1024, "H": 12}, 768, 1, {}),
    ("attention", {"s": 256}, 256, 64, {}),
    ("attention", {"s": 256}, 256, 64, {"threads": 2}),
    ("attention", {"s": 256}, 1024, 64, {"dtype": "float32"}),
    ("attention", {"s": 64}, 1024, 400, {}),
    ("attention", {"s": 64, "H": 16}, 1024, 64, {"coordinates": 8}),
    ("attention", {}, 1024, 50_000, {"threads": 2}),
    ("attention", {}, 256, 500_000, {}),
    ("attention", {}, 2048, 4, {"method": "dense"}),
    ("attention", {"s": 64}, 4096, 64, {"method": "lazy"}),
    ("attention_relu", {"s": 128}, 4096, 32, {}),
    ("attention_gelu", {"s": 512}, 512, 4, {}),
    ("mlp", {}, 16384, 512, {}),
    ("mlp_bias", {}, 4096, 2048, {}),
    ("layernorm_mlp", {}, 16384, 256, {}),
    ("gru", {}, 4096, 64, {}),
    ("lstm", {}, 2048, 64, {}),
    ("rnn", {}, 8192, 64, {}),
    ("resnet", {}, 4096, 256, {}),
    ("deep_attention", {}, 4096, 256, {}),
    ("transformer_yang", {}, 4096, 128, {}),
    ("autoencoder_tied", {}, 2048, 8, {}),
]
DRAWING = """
import ctypes, json, os, pathlib, sys
os.environ["TENSORPROG_FAST"] = "0"  # compiled code would count as memory of the run
import numpy as np
import tensorprog as tp
from tensorprog.finite.plan import make_job
from tensorprog.finite.run import Resources, batching
program, given, width, samples, options = sys.argv[1:]
width, samples, options = int(width), int(samples), {"threads": 1, **json.loads(options)}
P = tp.load(program, **json.loads(given))
tp.load(program).run(16, 2)
square = np.ones((1024, 1024))
np.linalg.cholesky(square @ square + np.eye(1024))
del square
def held(what):
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what)) / 1024
drawing = {k: v for k, v in options.items() if k != "threads"}
said = batching(make_job(P.netsor, width, **drawing), samples, Resources(1, 1 << 40)).memory / 2**20
ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = held("VmRSS")
P.run(width, samples, **options)
print(json.dumps([held("VmHWM") - before, said]))
"""
CHILD = """
import json, resource, sys
import numpy as np, scipy.stats, sympy
import tensorprog as tp
from tensorprog import law as _
program, given, allowed, question = sys.argv[1:]
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
P = tp.load(program, **json.loads(given))
before = peak()
try:
    law = P.limit(max_memory=allowed)
    exec(question)
    said = ""
except tp.MemoryLimitError as error:
    said = str(error)
print(json.dumps([peak() - before, said]))
"""


def alone(script: str, *arguments: str) -> tuple[float, str | float]:
    """What a script prints last, in a process of its own."""
    command = [sys.executable, "-c", script, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    peak, said = json.loads(found.stdout.splitlines()[-1])
    return float(peak), said


def named(program: str, given: dict[str, int]) -> str:
    return " ".join([program, *(f"{name}={value}" for name, value in given.items())])


def laws(quick: bool) -> None:
    """Peaks in MiB beside what was there before, and why a question was refused if it was."""
    for program, given, allowed, question in QUICK if quick else CASES:
        peak, said = alone(CHILD, program, json.dumps(given), allowed, question)
        asked = f"{named(program, given):30} {question:28} {allowed:>7}"
        print(f"{asked} {peak:7.0f} MiB   {said or 'answered'}", flush=True)


def networks(quick: bool) -> None:
    """Peaks of runs in MiB beside what `estimate` says before (Linux)."""
    for program, given, width, samples, options in NETWORKS[:6] if quick else NETWORKS:
        peak, said = alone(DRAWING, program, json.dumps(given), str(width), str(samples), json.dumps(options))
        run = " ".join([f"n={width} x {samples}", *(f"{name}={value}" for name, value in options.items())])
        ratio = float(said) / peak
        print(f"{named(program, given):24} {run:32} {peak:7.1f} MiB, estimated {said:7.1f}   {ratio:.2f}", flush=True)


def main() -> None:
    """Print one row for each question and for each run."""
    for section in (laws, networks):
        if section.__name__ in sys.argv or not {"laws", "networks"}.intersection(sys.argv):
            section("--quick" in sys.argv)


if __name__ == "__main__":
    main()

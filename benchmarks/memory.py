"""Memory that laws take, beside what they were allowed: each question in a process of its own.

    python benchmarks/memory.py [--quick]

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


def measure(program: str, given: dict[str, int], allowed: str, question: str) -> tuple[float, str]:
    """Peak in MiB beside what was there before, and why it was refused if it was."""
    command = [sys.executable, "-c", CHILD, program, json.dumps(given), allowed, question]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    peak, said = json.loads(found.stdout.splitlines()[-1])
    return float(peak), str(said)


def main() -> None:
    """Print one row for each question."""
    for program, given, allowed, question in QUICK if "--quick" in sys.argv else CASES:
        peak, said = measure(program, given, allowed, question)
        options = " ".join(f"{name}={value}" for name, value in given.items())
        name = f"{program} {options}".strip()
        print(f"{name:30} {question:28} {allowed:>7} {peak:7.0f} MiB   {said or 'answered'}", flush=True)


if __name__ == "__main__":
    main()

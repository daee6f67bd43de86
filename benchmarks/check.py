"""`tp check` as a whole process, from start to exit: seconds on the clock, and the most memory it held.

Rows: an empty Python process, the imports of a check alone, attention.yaml as shipped and at the number of tokens of
GPT-2, and programs/gpt3.yaml: 96 layers of 96 heads on 2048 tokens with a causal mask, as a recurrence over layers,
4 * 10**10 scores.  The processes run by turns; medians over turns, with the smallest and the largest.

    python benchmarks/check.py [--turns 5]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from finite_measure import significant, table

GPT3 = str(Path(__file__).parent / "programs" / "gpt3.yaml")
CHECK = "from tensorprog.jobs.cli import main; main()"
IMPORTS = "import tensorprog.jobs.cli, tensorprog.language.reading, tensorprog.check.clauses"
PROCESSES = {
    "an empty process": ["-c", "pass"],
    "imports alone": ["-c", IMPORTS],
    "attention": ["-c", CHECK, "check", "attention"],
    "attention, s = 1024, H = 12": ["-c", CHECK, "check", "attention", "--set", "s=1024", "--set", "H=12"],
    "gpt3": ["-c", CHECK, "check", GPT3],
    "gpt3, 1 layer": ["-c", CHECK, "check", GPT3, "--set", "L=1"],
    "gpt3, 1024 layers": ["-c", CHECK, "check", GPT3, "--set", "L=1024"],
}


def process(arguments: list[str]) -> tuple[float, float]:
    """Seconds of one process, and the most MiB that it held."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):  # 1: no limit is claimed
        raise SystemExit(f"{arguments} ended with {child.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    measured = [{name: process(arguments) for name, arguments in PROCESSES.items()} for _ in range(turns)]
    rows = []
    for name in PROCESSES:
        seconds = [turn[name][0] for turn in measured]
        held = max(turn[name][1] for turn in measured)
        rows.append([name, *map(significant, (median(seconds), min(seconds), max(seconds))), f"{held:,.0f}"])
    table("tp check", ["process", "s, median", "least", "most", "peak, MiB"], rows)


if __name__ == "__main__":
    main()

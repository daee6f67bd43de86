"""Networks drawn by workers of dask.distributed: processor time beside a thread's, and what handing over a task takes.

    python benchmarks/cluster.py                # two worker processes on this machine, about two minutes
    python benchmarks/cluster.py --networks 100000 --turns 5

The first table is processor time for each network: of a thread of this process, of a worker, and of this process and
the scheduler while the worker draws; by turns, medians.  The second is what one task takes that does nothing, and one
that brings back the results of a second.  The third is by the clock, so that only a machine with nothing else to do
shows it: one worker over two, beside the same for threads that draw normals in numpy.  The fourth is computed from the
second: how many workers one scheduler keeps busy.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from finite_measure import Took, significant, table, timed, two_threads

import tensorprog as tp

TASKS = 400
SECOND = 1.0  # a task of finite/workers.py


def nothing(number: int) -> int:
    return number


def results(number: int, size: int) -> np.ndarray:
    return np.full(size, float(number))


class Cluster:
    """Some workers of one thread each; the scheduler lives in this process."""

    def __init__(self, workers: int) -> None:
        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        self._cluster = LocalCluster(**options, silence_logs=logging.CRITICAL)
        self._client = Client(self._cluster)
        self.executor = self._client.get_executor(pure=False)

    def cpu(self) -> float:
        """Processor seconds of all workers so far."""
        return sum(self._client.run(time.process_time).values())

    def timed(self, call: Callable[[], object]) -> tuple[Took, float]:
        """Seconds of a call, and processor seconds of the workers meanwhile."""
        before = self.cpu()
        took = timed(call)
        return took, self.cpu() - before

    def close(self) -> None:
        self._client.close()
        self._cluster.close()


def networks(program: tp.Program, width: int, count: int, seed: int, **how: Any) -> Callable[[], object]:
    return lambda: program.run(width, count, seed=seed, **how)


def processor(program: tp.Program, width: int, count: int, turns: int) -> None:
    one = Cluster(1)
    rows = []
    try:
        for turn in range(turns + 1):
            thread = timed(networks(program, width, count, turn, threads=1)).cpu
            here, worker = one.timed(networks(program, width, count, turn, executor=one.executor))
            if turn:  # the first loads numba here and there
                rows.append([1e6 * value / count for value in (thread, worker, here.cpu)])
    finally:
        one.close()
    columns = [[row[k] for row in rows] for k in range(3)]
    ratio = median(row[1] / row[0] for row in rows)
    table(f"Processor time, us for each of {count:,} networks of attention_relu at n = {width}",
          ["thread", "worker", "worker / thread", "this process and the scheduler"],
          [[*map(significant, map(median, columns[:2])), f"{ratio:.2f}", significant(median(columns[2]))]])


def tasks(size: int) -> tuple[float, float]:
    """Milliseconds of a task that does nothing, and of one that brings results: of this process and the scheduler."""
    one = Cluster(1)
    rows, costs = [], []
    try:
        for what, count, function, extra in (("nothing", TASKS, nothing, ()),
                                             (f"results of {size * 8 / 2**20:.2g} MiB", TASKS // 8, results, (size,))):
            def all_of_them(count: int = count, function: Any = function, extra: Any = extra) -> None:
                for future in [one.executor.submit(function, k, *extra) for k in range(count)]:
                    future.result()

            all_of_them()
            found = [one.timed(all_of_them) for _ in range(3)]
            costs.append(median(took.cpu for took, _ in found) / count)
            worker = median(worker for _, worker in found) / count
            clock = median(took.wall for took, _ in found) / count
            rows.append([what, *(f"{1e3 * value:.2f}" for value in (costs[-1], worker, clock))])
    finally:
        one.close()
    table("One task, ms", ["a task of", "this process and the scheduler", "the worker", "by the clock"], rows)
    return costs[0], costs[1]


def scaling(program: tp.Program, width: int, count: int, turns: int) -> None:
    one, two = Cluster(1), Cluster(2)
    ratios, machine = [], []
    try:
        for turn in range(turns + 1):
            clocks = [timed(networks(program, width, count, turn, executor=each.executor)).wall for each in (one, two)]
            if turn:
                ratios.append(clocks[0] / clocks[1])
                machine.append(two_threads())
    finally:
        one.close()
        two.close()
    table("By the clock", ["networks", "one worker / two workers", "one thread / two threads, normals of numpy alone"],
          [[f"{count:,}", f"{median(ratios):.2f}", f"{median(machine):.2f}"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=60_000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    program = tp.load("attention_relu")
    measured = program, arguments.width, arguments.networks, arguments.turns
    processor(*measured)
    sample = program.run(arguments.width, 4096, threads=1)
    took = timed(lambda: program.run(arguments.width, 4096, threads=1)).cpu / 4096
    size = int(SECOND / took * sum(array.nbytes for array in sample.values()) / 4096 / 8)
    small, large = tasks(size)
    scaling(*measured)
    rows = []
    for what, seconds, cost in (("small results", 1.0, small), ("small results", 10.0, small),
                                ("all outputs and scores", 1.0, large)):
        rows.append([what, f"{seconds:g}", f"{seconds / cost:,.0f}", f"{1000 * cost / seconds:.2g}"])
    table("On paper, from these: workers that one scheduler and one process keep busy",
          ["results", "tasks of, s", "workers at most", "of 1000 workers: seconds of the scheduler in each"], rows)


if __name__ == "__main__":
    main()

"""Networks drawn by workers of dask.distributed: processor time beside a thread's, and what handing over a task takes.

    python benchmarks/cluster.py                # two worker processes on this machine, some minutes
    python benchmarks/cluster.py --networks 100000 --turns 5 --seconds 60

The first table is processor time for each network: of a thread of this process, of a worker, and of this process and
the scheduler while the worker draws; by turns, medians.  The second is what one task takes that does nothing, and one
that brings back the results of a second.  The third is what workers take until they have drawn their first network.
The fourth is by the clock, so that only a machine with nothing else to do shows it: one worker over two for a run of
some seconds of work, with workers that have drawn before, beside the same for threads that draw normals in numpy; and
the processor time of a network on each.  The fifth is computed from the second: how many workers one scheduler keeps
busy.
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
WARMING = 20_000  # networks with which workers begin
SECOND = 1.0  # a task of finite/workers.py


def nothing(number: int) -> int:
    return number


def results(number: int, size: int) -> np.ndarray:
    return np.full(size, float(number))


class Cluster:
    """Some workers of one thread each; the scheduler lives in this process."""

    def __init__(self, workers: int) -> None:
        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
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
    table(
        f"Processor time, us for each of {count:,} networks of attention_relu at n = {width}",
        ["thread", "worker", "worker / thread", "this process and the scheduler"],
        [[*map(significant, map(median, columns[:2])), f"{ratio:.2f}", significant(median(columns[2]))]],
    )


def tasks(size: int) -> tuple[float, float]:
    """Milliseconds of a task that does nothing, and of one that brings results: of this process and the scheduler."""
    one = Cluster(1)
    rows, costs = [], []
    try:
        for what, count, function, extra in (
            ("nothing", TASKS, nothing, ()),
            (f"results of {size * 8 / 2**20:.2g} MiB", TASKS // 8, results, (size,)),
        ):

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


def starting(program: tp.Program, width: int) -> None:
    """What the first network takes, from the start of a cluster."""
    rows = []
    for workers in (1, 2):
        found: list[Cluster] = []
        started = timed(lambda workers=workers, found=found: found.append(Cluster(workers))).wall
        try:
            before = found[0].cpu()
            first, worker = found[0].timed(networks(program, width, WARMING, 0, executor=found[0].executor))
            rows.append([str(workers), *map(significant, (started, before / workers, first.wall, worker / workers))])
        finally:
            found[0].close()
    head = ["workers", "started after, s", "processor time of each", "first run, s", "processor time of each in it"]
    table(f"Starting, and a first run of {WARMING:,} networks", head, rows)


def scaling(program: tp.Program, width: int, count: int, turns: int) -> None:
    """One worker beside two, which have drawn before, by the clock and in processor time of a network."""
    one, two = Cluster(1), Cluster(2)
    rows, machine = [], []
    try:
        for each in (one, two):
            networks(program, width, WARMING, 0, executor=each.executor)()
        for turn in range(1, turns + 1):
            thread = timed(networks(program, width, count // 8, turn, threads=1)).cpu / (count // 8)
            (first, alone), (second, both) = (
                each.timed(networks(program, width, count, turn, executor=each.executor)) for each in (one, two)
            )
            rows.append([first.wall, second.wall, first.wall / second.wall, thread, alone / count, both / count])
            machine.append(two_threads())
    finally:
        one.close()
        two.close()
    walls, ratio, cpu = (np.median(np.array(rows)[:, part], axis=0) for part in (slice(2), 2, slice(3, None)))
    table(
        "By the clock",
        ["networks", "one worker, s", "two workers, s", "ratio", "one thread / two threads, normals of numpy alone"],
        [[f"{count:,}", *map(significant, walls), f"{ratio:.2f}", f"{median(machine):.2f}"]],
    )
    table(
        "Processor time of a network in these runs, us",
        ["thread", "one worker", "each of two workers"],
        [[significant(1e6 * value) for value in cpu]],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=60_000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of work in a run by the clock")
    arguments = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    program = tp.load("attention_relu")
    measured = program, arguments.width, arguments.networks, arguments.turns
    processor(*measured)
    sample = program.run(arguments.width, 4096, threads=1)
    took = timed(lambda: program.run(arguments.width, 4096, threads=1)).cpu / 4096
    size = int(SECOND / took * sum(array.nbytes for array in sample.values()) / 4096 / 8)
    small, large = tasks(size)
    starting(program, arguments.width)
    scaling(program, arguments.width, int(arguments.seconds / took), arguments.turns)
    rows = []
    for what, seconds, cost in (
        ("small results", 1.0, small),
        ("small results", 10.0, small),
        ("all outputs and scores", 1.0, large),
    ):
        rows.append([what, f"{seconds:g}", f"{seconds / cost:,.0f}", f"{1000 * cost / seconds:.2g}"])
    table(
        "On paper, from these: workers that one scheduler and one process keep busy",
        ["results", "tasks of, s", "workers at most", "of 1000 workers: seconds of the scheduler in each"],
        rows,
    )


if __name__ == "__main__":
    main()

"""What the benchmarks of finite widths share: runs in processes of their own, prices of random numbers, tables.

Other work on a machine makes everything slower at times.  So what is compared is measured in turns, every ratio is
taken within one turn, and medians over turns are shown.  One-thread figures are processor time, which is the time on
the clock when nothing else runs.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

import tensorprog as tp
from tensorprog.finite import normals as drawing

SIZES = [1 << k for k in range(12, 17)]  # of buffers that stay in cache
NUMBERS = 1 << 22  # drawn for one price


@dataclass(frozen=True)
class Setting:
    """Attention as in programs/attention.yaml, with a clip that acts, at one width."""

    n: int
    heads: int = 2
    tokens: int = 4

    @property
    def cells(self) -> tuple[str, str, str]:
        return str(self.n), str(self.heads), str(self.tokens)

    @property
    def weight_entries(self) -> int:
        """Numbers in the weight matrices of one network."""
        return (self.tokens + 4 * self.heads) * self.n**2

    def program(self) -> tp.Program:
        return tp.load("attention", H=self.heads, s=self.tokens, C=2)  # a clip that acts

    def drawn(self, method: str) -> tuple[int, int]:
        """Normals and chi-squares drawn per network."""
        plan = self.program().plan(self.n, method=method)
        return plan.normals, plan.chi_squares


@dataclass(frozen=True)
class Took:
    """Seconds of one call: on the clock, and of processors."""

    wall: float
    cpu: float


def timed(call: Callable[[], object]) -> Took:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Took(time.perf_counter() - wall, time.process_time() - cpu)


# the extra `fast` is chosen when a process starts, so each choice has its own


def _start(fast: bool) -> None:
    os.environ["TENSORPROG_FAST"] = "1" if fast else "0"
    drawing.COMPILED.prepare(1e15)  # long runs start numba on their own; here it is started before anything is measured


def _run(setting: Setting, networks: int, method: str, threads: int, seed: int) -> Took:
    program = setting.program()
    with threadpool_limits(1):
        return timed(
            lambda: program.run(setting.n, networks, method=method, threads=threads, seed=seed, max_memory="4GiB")
        )


class Runner:
    """Runs programs in a process of its own, with or without the extra `fast`."""

    def __init__(self, fast: bool) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_start, initargs=(fast,))
        self.engine = self._pool.submit(drawing.engine).result()
        self._seed = 0

    def __call__(self, setting: Setting, networks: int, method: str, threads: int = 1) -> Took:
        """Seconds of one run, with numbers of its own."""
        self._seed += 1
        return self._pool.submit(_run, setting, networks, method, threads, self._seed).result()

    def close(self) -> None:
        self._pool.shutdown()


def peak() -> int:
    """The most bytes that this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage starts from what the parent held
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _first(setting: Setting, networks: int, method: str, threads: int) -> tuple[Took, int]:
    took = _run(setting, networks, method, threads, 0)
    return took, peak()


def in_fresh_process(setting: Setting, networks: int, method: str, threads: int = 1) -> tuple[Took, int]:
    """Seconds of the first run of a process, and the most bytes the process ever held."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_first, setting, networks, method, threads).result()


class Prices:
    """What one normal and one chi-square cost numpy on one thread, drawn into the buffer that suits it best."""

    def __init__(self) -> None:
        self.generator = np.random.Generator(np.random.SFC64(0))
        self.normals = min(SIZES, key=lambda size: median(self._normal(size, NUMBERS // 4) for _ in range(7)))
        self.chis = min(SIZES, key=lambda size: median(self._chi(size, 4.0, NUMBERS // 4) for _ in range(7)))

    def _normal(self, size: int, numbers: int = NUMBERS) -> float:
        buffer, rounds = np.empty(size), numbers // size

        def draw() -> None:
            for _ in range(rounds):
                self.generator.standard_normal(out=buffer)

        return timed(draw).cpu / (rounds * size)

    def _chi(self, size: int, shape: float, numbers: int = NUMBERS) -> float:
        buffer, rounds = np.empty(size), numbers // size

        def draw() -> None:
            for _ in range(rounds):
                self.generator.standard_gamma(shape, out=buffer)  # half of a chi-square of 2 * shape degrees

        return timed(draw).cpu / (rounds * size)

    def now(self, n: int) -> tuple[float, float]:
        """Seconds of a normal and of a chi-square with about n degrees of freedom, at this moment."""
        return self._normal(self.normals), self._chi(self.chis, n / 2, NUMBERS // 4)


def two_threads(numbers: int = 1 << 25) -> float:
    """How much faster two threads draw normals in numpy than one, at this moment: what the machine has to give."""
    generators = [np.random.Generator(np.random.SFC64(seed)) for seed in (1, 2)]

    def draw(generator: np.random.Generator, rounds: int) -> None:
        buffer = np.empty(1 << 14)
        for _ in range(rounds):
            generator.standard_normal(out=buffer)

    rounds = numbers >> 14
    one = timed(lambda: draw(generators[0], rounds)).wall
    with ThreadPoolExecutor(2) as pool:
        two = timed(lambda: list(pool.map(draw, generators, [rounds // 2] * 2))).wall
    return one / two


def floor(before: tuple[float, float], after: tuple[float, float], drawn: tuple[int, int]) -> float:
    """Seconds per network that the numbers alone take, by prices before and after what they are compared with."""
    return sum(count * (first + last) / 2 for count, first, last in zip(drawn, before, after, strict=True))


def matrix_products(setting: Setting) -> float:
    """Seconds that numpy's products of matrices take for one network, each of fresh weights with all tokens at once.

    They are the Gram matrix of the tokens, unless it is larger than the tokens themselves; of each head queries, keys
    and values from a factor of it, and the scores.
    """
    s, rank = setting.tokens, min(setting.tokens, setting.n)
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((2, s, setting.n))
    vectors, fresh = generator.standard_normal((s, rank)), generator.standard_normal((rank, rank))

    def products() -> None:
        if s < setting.n:
            x @ y.T
        for _ in range(setting.heads):
            query, key, _ = (vectors @ fresh for _ in range(3))
            query @ key.T

    return median(timed(products).cpu for _ in range(5))


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, in the form that the documentation shows."""
    sizes = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    print(f"\n{title}\n")
    for row in (head, ["-" * max(1, size - 1) + ":" for size in sizes], *rows):
        print("| " + " | ".join(cell.rjust(size) for cell, size in zip(row, sizes, strict=True)) + " |")
    sys.stdout.flush()


def significant(value: float) -> str:
    """A number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

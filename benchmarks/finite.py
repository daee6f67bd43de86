"""Finite width: `collapsed` against a dense loop in numpy, against the time its numbers alone take, and how it grows.

    python benchmarks/finite.py                       # everything, about ten minutes
    python benchmarks/finite.py speed --repeats 9     # some of: speed tokens threads scaling memory large
    python benchmarks/finite.py --method lazy

The program is programs/attention.yaml.  `loop` is `finite_loop.py`, one thread.  `floor` is the time in which numpy's
SFC64 draws the normals and chi-squares that the plan names, on one thread, into a buffer that stays in cache; `fast` is
the run with the extra of that name, over the same floor of numpy.
"""

from __future__ import annotations

import argparse
from statistics import median

from finite_loop import loop
from finite_measure import (
    Prices,
    Runner,
    Setting,
    floor,
    in_fresh_process,
    matrix_products,
    significant,
    table,
    timed,
    two_threads,
)
from threadpoolctl import threadpool_limits

import tensorprog as tp

GPT3 = Setting(12288, 96, 128)


def speed(method: str, repeats: int, runners: list[Runner]) -> None:
    """Collapsed against the loop and against the floor."""
    prices = Prices()
    rows = []
    cases = ((Setting(64), 50_000, 100), (Setting(256), 50_000, 20), (Setting(1024), 50_000, 2),
             (Setting(256, 256), 2000, 1), (Setting(1024, 16, 32), 1000, 1))  # fmt: skip
    for setting, networks, few in cases:
        drawn = setting.drawn(method)
        turns: list[list[float]] = []
        for turn in range(repeats + 1):
            slow = loop(setting.n, setting.heads, setting.tokens, few, turn)
            measured = []
            for runner in runners:
                before = prices.now(setting.n)
                took = runner(setting, networks, method).cpu / networks
                measured += [took, took / floor(before, prices.now(setting.n), drawn)]
            dense = timed(slow).cpu / few
            if turn:  # the first is for warming up
                turns.append([*measured, dense, dense / measured[0], dense / measured[-2]])
        middle = [median(column) for column in zip(*turns, strict=True)]
        over_floor = [f"{value:.2f}" for value in middle[1 : 2 * len(runners) : 2]]
        rows.append([
            *setting.cells, f"{networks:,}", f"{drawn[0]:,}", f"{drawn[1]:,}",
            *(significant(value * 1e6) for value in middle[0 : 2 * len(runners) : 2]), *over_floor,
            significant(middle[-3] * 1e3), *(f"{value:,.0f}" for value in middle[len(middle) - len(runners) :]),
        ])  # fmt: skip
    names = ["", " fast"][: len(runners)]
    table(
        f"{method} on one thread, medians of {repeats} turns",
        ["n", "H", "s", "networks", "normals", "chi-squares", *(f"us{name}" for name in names),
         *(f"/ floor{name}" for name in names), "loop ms", *(f"loop /{name or ' run'}" for name in names)], rows,
    )  # fmt: skip


def tokens(method: str, repeats: int, runners: list[Runner]) -> None:
    """Many tokens, against the time of the numbers and of the matrix products that a network cannot do without."""
    prices = Prices()
    rows = []
    for n, most in ((256, 1024), (1024, 1024)):
        for s in (64, 256, 1024):
            setting, networks = Setting(n, 2, s), max(2, 64 * most // (s * s // 16 + n))
            drawn = setting.drawn(method)
            turns: list[list[float]] = []
            for turn in range(repeats + 1):
                before = prices.now(n)
                measured = [runner(setting, networks, method).cpu / networks for runner in runners]
                numbers, products = floor(before, prices.now(n), drawn), matrix_products(setting)
                if turn:  # the first is for warming up
                    least = numbers + products
                    turns.append([*measured, numbers, products, *(took / least for took in measured)])
            *times, numbers, products = (median(column) for column in [*zip(*turns, strict=True)][: len(runners) + 2])
            over = [median(column) for column in [*zip(*turns, strict=True)][len(runners) + 2 :]]
            rows.append([*setting.cells, *(significant(value * 1e3) for value in (*times, numbers, products)),
                         *(f"{value:.2f}" for value in over)])  # fmt: skip
    names = ["", " fast"][: len(runners)]
    head = ["n", "H", "s", *(f"ms{name}" for name in names), "numbers", "products", *(f"/ floor{n}" for n in names)]
    table(f"{method} on one thread, milliseconds a network, medians of {repeats} turns", head, rows)


def threads(method: str, repeats: int, runners: list[Runner]) -> None:
    """One thread against two, by the clock; needs a machine with nothing else to do, and the last column tells."""
    rows = []
    for setting, networks in ((Setting(256), 200_000), (Setting(1024), 50_000), (Setting(256, 256), 8000)):
        turns: list[list[float]] = []
        for turn in range(repeats + 1):
            measured = []
            for runner in runners:
                one, two, again = (runner(setting, networks, method, threads=count).wall for count in (1, 2, 1))
                measured.append((one + again) / 2 / two)
            if turn:
                turns.append([*measured, two_threads()])
        rows.append([*setting.cells, f"{networks:,}", *(f"{median(c):.2f}" for c in zip(*turns, strict=True))])
    names = ["", " with fast"][: len(runners)]
    table(f"{method}: one thread / two threads, by the clock", ["n", "H", "s", "networks",
          *(f"ratio{name}" for name in names), "normals of numpy alone"], rows)  # fmt: skip


def scaling(method: str, repeats: int, runners: list[Runner]) -> None:
    """Time per network as n, H, s and the number of networks grow."""
    series = {
        "n": [(Setting(n), max(50, 8_000_000 // n)) for n in (64, 256, 1024, 4096, 16384)],
        "H": [(Setting(256, heads), max(100, 40_000 // heads)) for heads in (1, 4, 16, 64, 256)],
        "s": [(Setting(1024, 2, tokens), max(50, 40_000 // tokens)) for tokens in (2, 4, 16, 64, 128)],
        "networks": [(Setting(256), networks) for networks in (10, 100, 1000, 10_000, 100_000)],
    }
    for name, cases in series.items():
        took: list[list[float]] = [[] for _ in cases]
        for turn in range(repeats + 1):
            for (setting, networks), found in zip(cases, took, strict=True):
                seconds = runners[-1](setting, networks, method).cpu / networks
                if turn:
                    found.append(seconds)
        rows = []
        for (setting, networks), found in zip(cases, took, strict=True):
            drawn = setting.drawn(method)
            relative = median(now / first for now, first in zip(found, took[0], strict=True))
            rows.append([
                *setting.cells, f"{networks:,}", f"{drawn[0]:,}", f"{drawn[1]:,}", significant(median(found) * 1e6),
                significant(relative), significant(setting.weight_entries / cases[0][0].weight_entries),
            ])  # fmt: skip
        table(f"{method} as {name} grows, engine {runners[-1].engine}", ["n", "H", "s", "networks", "normals",
              "chi-squares", "us per network", "relative", "weight entries, relative"], rows)  # fmt: skip


def memory(method: str) -> None:
    """Peak resident memory of a process that does one run."""
    rows = []
    cases = ((Setting(16), 1), (Setting(256), 50_000), (Setting(1024), 50_000), (Setting(16384), 1000),
             (Setting(256, 256), 1000), (Setting(1024, 16, 128), 100))  # fmt: skip
    for setting, networks in cases:
        _, peak = in_fresh_process(setting, networks, method)
        dense = 8 * setting.weight_entries / 2**20
        rows.append([*setting.cells, f"{networks:,}", f"{peak / 2**20:,.0f}", f"{dense:,.0f}"])
    table(f"{method}, one thread: MiB of the whole process, Python and libraries included", ["n", "H", "s", "networks",
          "peak MiB", "weights of one network, MiB"], rows)  # fmt: skip


def large(method: str, repeats: int) -> None:
    """GPT-3's shape: single networks, each the first run of a new process."""
    rows = []
    for n in (GPT3.n // 4, GPT3.n // 2, GPT3.n, 2 * GPT3.n, 4 * GPT3.n):
        setting = Setting(n, GPT3.heads, GPT3.tokens)
        try:
            found = [in_fresh_process(setting, 1, method) for _ in range(repeats)]
        except tp.MemoryLimitError:
            rows.append([*setting.cells, "refused", "", f"{setting.weight_entries:,}"])
            continue
        seconds = median(took.wall for took, _ in found)
        peak = max(peak for _, peak in found) / 2**20
        rows.append([*setting.cells, f"{seconds:.2f}", f"{peak:,.0f}", f"{setting.weight_entries:,}"])
    table(f"{method}: one network, the first run of a process, one thread", ["n", "H", "s", "seconds", "peak MiB",
          "weight entries"], rows)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = ("speed", "tokens", "threads", "scaling", "memory", "large")
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(sections))
    parser.add_argument("--method", default="collapsed")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(sections):
        parser.error(f"there is no section {', '.join(sorted(unknown))}; choose from {', '.join(sections)}")
    asked, method, repeats = arguments.sections or sections, arguments.method, arguments.repeats
    if "memory" in asked:
        memory(method)
    if "large" in asked:
        large(method, repeats)
    runners = [Runner(False), Runner(True)]
    if runners[1].engine == "numpy":
        print("the extra fast is not installed: no columns for it")
        runners.pop().close()
    with threadpool_limits(1):
        for section in (speed, tokens, threads, scaling):
            if section.__name__ in asked:
                section(method, repeats, runners)
    for runner in runners:
        runner.close()


if __name__ == "__main__":
    main()

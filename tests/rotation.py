"""Batteries too large for one run are run in slices: which one, the commit decides, so that all have their turn.

The header of a run says its number, and TENSORPROG_TESTS=<number> repeats it; TENSORPROG_TESTS=all runs every slice.
Outside a clone, or where git is not installed, the number is 0.  Random examples have the number as their seed.

Slow tests take turns: one in three of their cases is run for each commit.  `@pytest.mark.turns(n)` makes that one in n,
for quick tests as well, and `always=("attention",)` names the ids of cases that are run whoever has the turn.  So are
tests that are chosen on the command line, with `::` or with `-k`.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

__all__ = ["ALL", "NUMBER", "examples", "having_their_turn", "some"]

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
WANTED = os.environ.get("TENSORPROG_TESTS", "")
ALL = WANTED == "all"
SLOW = 3  # one in so many slow tests is run for a commit
if WANTED and not ALL and not WANTED.isdecimal():
    raise pytest.UsageError(f"TENSORPROG_TESTS is a number or `all`, not {WANTED!r}")


def _commit() -> int:
    if not (ROOT / ".git").exists():
        return 0
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(said[:8], 16) % 10_000


NUMBER = 0 if ALL else int(WANTED) if WANTED else _commit()


def some(cases: Iterable[T], slices: int) -> list[T]:
    """The cases of the slice that has its turn: every `slices`-th of them."""
    return [case for place, case in enumerate(cases) if ALL or place % slices == NUMBER % slices]


def examples(count: int, slices: int) -> range:
    """Numbers of random examples, others in each slice."""
    return range(count * slices) if ALL else range(NUMBER % slices * count, (NUMBER % slices + 1) * count)


def having_their_turn(items: Sequence[pytest.Item]) -> list[bool]:
    """Of the cases of each test that takes turns, one in n; tests begin at different places."""
    places: Counter[str] = Counter()
    chosen = []
    for item in items:
        mark = item.get_closest_marker("turns")
        count = mark.args[0] if mark else SLOW if item.get_closest_marker("slow") else 1
        test, _, case = item.nodeid.partition("[")
        place = places[test] + zlib.crc32(test.encode())
        places[test] += 1
        always = mark.kwargs.get("always", ()) if mark else ()
        chosen.append(case.removesuffix("]") in always or (place + NUMBER) % count == 0)
    return chosen

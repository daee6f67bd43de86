"""Batteries too large for one run are run in slices: which one, the commit decides, so that all have their turn.

The header of a run says its number, and TENSORPROG_TESTS=<number> repeats it; TENSORPROG_TESTS=all runs every slice.
Outside a clone, or where git is not installed, the number is 0.  Random examples have the number as their seed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest

__all__ = ["ALL", "NUMBER", "examples", "rotating", "some"]

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
WANTED = os.environ.get("TENSORPROG_TESTS", "")
ALL = WANTED == "all"
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


def rotating(cases: Iterable[T], slices: int) -> list[object]:
    """Parameters of a test: all cases, of which those that have not their turn are slow."""
    cases = list(cases)
    places = set(some(range(len(cases)), slices))
    return [case if place in places else pytest.param(case, marks=pytest.mark.slow) for place, case in enumerate(cases)]


def examples(count: int, slices: int) -> range:
    """Numbers of random examples, others in each slice."""
    return range(count * slices) if ALL else range(NUMBER % slices * count, (NUMBER % slices + 1) * count)

"""Amounts of memory, written and read, the one error of work that takes too much, and what is freed."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from tensorprog.language.errors import MemoryLimitError, fail

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
FREED_BYTES = 32 << 20  # kept by the allocator instead of being returned to the system; its limit
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h of glibc


def parse_memory(text: str | int) -> int:
    """Bytes meant by '1GiB', '500 MB' or a number of bytes."""
    parts = re.fullmatch(r"\s*([\d.e+]+)\s*([kmgt]?)(i?)b?\s*", str(text).lower())
    try:
        assert parts is not None
        found = int(float(parts[1]) * (1024 if parts[3] else 1000) ** " kmgt".index(parts[2] or " "))
    except (AssertionError, ValueError, OverflowError):
        found = 0
    if found < 1:
        raise fail(f"{text!r} is not an amount of memory", fix="1GiB or 500MB, say")
    return found


def amount(size: float, up: bool = False) -> str:
    """Bytes in words, to three digits, rounded up or down, so that what is larger is shown larger."""
    power = min(max(math.frexp(max(size, 1))[1] - 1, 0) // 10, len(UNITS) - 1)
    scaled = size / 2.0 ** (10 * power)
    step = 10.0 ** (math.floor(math.log10(scaled)) - 2) if scaled > 0 else 1.0
    shown = step * (math.ceil(scaled / step * (1 - 1e-12)) if up else math.floor(scaled / step * (1 + 1e-12)))
    return f"{shown:.15g} {UNITS[power]}"


def too_much(what: str, takes: float, limit: float, ways: Sequence[str], beside: str = "") -> MemoryLimitError:
    """An error that says what would take how many bytes, `beside` what else, which is more than the limit, and the
    ways to need less, the last of which is to allow more."""
    more = ", ".join(ways) + ", or " if ways else ""
    return MemoryLimitError(
        f"{what} would take {amount(takes, up=True)}{beside}, more than max_memory, {amount(limit)}: {more}"
        "raise max_memory (--max-memory)"
    )


@cache
def keep_freed_memory() -> None:
    """Let freed arrays be used again at once.

    The C library of Linux returns freed memory to the system above a threshold, and getting it back page by page costs
    more than the arithmetic on it: workers of dask, which set the threshold low, took twice the processor time, and
    convolutions on 20 images half as much more.
    """
    with suppress(AttributeError, OSError, TypeError):  # other C libraries
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, FREED_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, 2 * FREED_BYTES)

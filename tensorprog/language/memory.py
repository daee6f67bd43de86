"""Amounts of memory, written and read, and the one error of work that takes too much."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tensorprog.language.errors import MemoryLimitError, fail

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


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

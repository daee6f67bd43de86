"""Three-valued verdicts: HOLDS, FAILS or UNKNOWN."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

__all__ = ["FAILS", "HOLDS", "UNKNOWN", "Verdict"]


class Verdict(Enum):
    """What is known: certified, refuted by a witness, or neither."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        raise TypeError("a verdict has three values: compare it with HOLDS, FAILS or UNKNOWN")


HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.UNKNOWN

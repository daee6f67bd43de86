"""Three-valued facts: HOLDS, FAILS or UNKNOWN, each with the reason and the source it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

__all__ = ["FAILS", "HOLDS", "UNKNOWN", "Fact", "Verdict"]


class Verdict(Enum):
    """What is known: certified, refuted by a witness, or neither."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        raise TypeError("a verdict has three values: compare it with HOLDS, FAILS or UNKNOWN")


HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.UNKNOWN


@dataclass(frozen=True)
class Fact:
    """One property with its verdict; `witness` refutes it, `source` is the paper and item it rests on."""

    name: str
    verdict: Verdict
    reason: str = ""
    source: str = ""
    witness: str = ""

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the fact {self.name!r} has three values: compare its verdict with HOLDS, FAILS or UNKNOWN")

    def __str__(self) -> str:
        how = {HOLDS: "is", FAILS: "is not", UNKNOWN: "cannot be shown to be"}[self.verdict]
        why = f": {self.reason}" if self.reason else ""
        return f"{how} {self.name}{why}" + (f" ({self.witness})" if self.witness else "")

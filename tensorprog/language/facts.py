"""Three-valued facts: HOLDS, FAILS or UNKNOWN, each with the reason and the source it rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NoReturn

__all__ = ["FAILS", "HOLDS", "UNKNOWN", "Fact", "Verdict", "all_hold", "implied"]


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


# premise -> conclusions; a refuted conclusion refutes the premise
IMPLICATIONS: dict[str, tuple[str, ...]] = {
    "Lipschitz": ("pseudo-Lipschitz",),
    "pseudo-Lipschitz": ("continuous", "controlled"),
    "bounded": ("controlled",),
}


def implied(fact: Fact) -> tuple[Fact, ...]:
    """Facts that follow from one fact, forwards from HOLDS and by contraposition from FAILS.

    Source    Bayati & Montanari 2011 (pseudo-Lipschitz functions are continuous and grow like a power)
    """
    found: list[Fact] = []
    stack = [fact]
    while stack:
        known = stack.pop()
        if known.verdict is HOLDS:
            names: Iterable[str] = IMPLICATIONS.get(known.name, ())
        elif known.verdict is FAILS:
            names = (premise for premise, conclusions in IMPLICATIONS.items() if known.name in conclusions)
        else:
            names = ()
        for name in names:
            consequence = replace(
                known, name=name, reason=f"it {'is' if known.verdict is HOLDS else 'is not'} {known.name}"
            )
            found.append(consequence)
            stack.append(consequence)
    return tuple(found)


def all_hold(name: str, facts: Iterable[Fact]) -> Fact:
    """Conjunction: FAILS if one fails, else UNKNOWN if one is unknown, with the reason of the first of these."""
    facts = tuple(facts)
    for verdict in (FAILS, UNKNOWN):
        for fact in facts:
            if fact.verdict is verdict:
                return replace(fact, name=name)
    return Fact(name, HOLDS, source=facts[0].source if facts else "")

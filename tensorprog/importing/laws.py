"""`EntryLaw`: the law of the entries of a parameter, as the module's own initialiser states it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

__all__ = ["EntryLaw", "constant_law", "normal_law", "truncated_law", "uniform_law"]

NEVER_CUT = 7.0  # standard deviations beyond which the bounds of a truncated normal are none, in double precision


@dataclass(frozen=True)
class EntryLaw:
    """Independent entries of one law: its kind, mean and standard deviation."""

    kind: str
    mean: float = 0.0
    deviation: float = 0.0
    error: float = 0.0  # of the deviation, where it was measured
    draw: int = field(default=0, compare=False)  # which draw it was: copies of one are the same numbers
    padding: int | None = None  # a row that is zero instead

    @property
    def variance(self) -> float:
        """The variance of an entry."""
        return self.deviation**2

    @property
    def gaussian(self) -> bool:
        """Whether entries are exactly Gaussian, or one number."""
        return self.kind in ("normal", "constant")

    @property
    def random(self) -> bool:
        """Whether entries are random."""
        return self.kind not in ("constant", "fixed")

    def moved(self, factor: float = 1.0, shift: float = 0.0) -> EntryLaw:
        """The law of factor * entry + shift."""
        size = abs(factor)
        kind = self.kind if factor or self.kind == "unknown" else "constant"
        mean = self.mean * factor + shift
        return replace(self, kind=kind, mean=mean, deviation=self.deviation * size, error=self.error * size)

    def __str__(self) -> str:
        if self.kind == "fixed":
            return "fixed numbers"
        if self.kind == "constant":
            return f"{self.mean:.6g}"
        if self.kind == "uniform":
            reach = math.sqrt(3) * self.deviation
            return f"uniform({self.mean - reach:.6g}, {self.mean + reach:.6g})"
        measured = f" measured, +- {self.error:.2g}" if self.kind == "measured" else ""
        names = {"measured": "law with", "unknown": "unknown law with", "truncated": "truncated normal with"}
        return f"{names.get(self.kind, self.kind)}({self.mean:.6g}, {self.deviation:.6g}**2){measured}"


def constant_law(value: float) -> EntryLaw:
    """Entries that are all one number."""
    return EntryLaw("constant", mean=value)


def normal_law(mean: float, deviation: float) -> EntryLaw:
    """Gaussian entries."""
    return EntryLaw("normal", mean, deviation) if deviation else constant_law(mean)


def uniform_law(low: float, high: float) -> EntryLaw:
    """Entries uniform between two numbers."""
    return EntryLaw("uniform", (low + high) / 2, (high - low) / math.sqrt(12)) if low < high else constant_law(low)


def truncated_law(mean: float, deviation: float, low: float, high: float) -> EntryLaw:
    """Gaussian entries that are drawn again while they lie outside of the bounds; plain ones where bounds never act."""
    from scipy.stats import truncnorm

    a, b = (low - mean) / deviation, (high - mean) / deviation
    if min(-a, b) > NEVER_CUT:
        return normal_law(mean, deviation)
    law = truncnorm(a, b, mean, deviation)
    return EntryLaw("truncated", float(law.mean()), float(law.std()))

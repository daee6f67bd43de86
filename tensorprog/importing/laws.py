"""`EntryLaw`: the law of the entries of a parameter, as the module's own initialiser states it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

__all__ = ["EntryLaw", "Pieces", "constant_law", "whole_law"]

NEVER_CUT = 7.0  # standard deviations beyond which the bounds of a truncated normal are none, in double precision


@dataclass(frozen=True)
class EntryLaw:
    """Independent entries of one law: its kind, mean and standard deviation, and what else it takes to draw them."""

    kind: str
    mean: float = 0.0
    deviation: float = 0.0
    low: float = -math.inf  # of a truncated normal, before it is cut: bounds, mean and deviation
    high: float = math.inf
    parent: tuple[float, float] = (0.0, 1.0)
    error: float = 0.0  # of the deviation, where it was measured
    draw: int = field(default=0, compare=False)  # which draw it was: copies of one are the same numbers

    @property
    def variance(self) -> float:
        """The variance of an entry."""
        return self.deviation**2

    @property
    def gaussian(self) -> bool:
        """Whether entries are exactly Gaussian."""
        return self.kind == "normal"

    @property
    def random(self) -> bool:
        """Whether entries are random."""
        return self.kind not in ("constant", "fixed")

    def moved(self, factor: float = 1.0, shift: float = 0.0) -> EntryLaw:
        """The law of factor * entry + shift."""
        ends = sorted((self.low * factor + shift, self.high * factor + shift)) if factor else [shift, shift]
        kind = self.kind if factor or self.kind == "unknown" else "constant"
        mean, deviation = self.parent
        return replace(
            self,
            kind=kind,
            mean=self.mean * factor + shift,
            deviation=self.deviation * abs(factor),
            low=ends[0],
            high=ends[1],
            parent=(mean * factor + shift, deviation * abs(factor)),
            error=self.error * abs(factor),
        )

    def __str__(self) -> str:
        if self.kind == "fixed":
            return "fixed numbers"
        if self.kind == "constant":
            return f"{self.mean:.6g}"
        if self.kind == "uniform":
            return f"uniform({self.low:.6g}, {self.high:.6g})"
        if self.kind == "truncated":
            return f"normal({self.parent[0]:.6g}, {self.parent[1]:.6g}**2) cut at {self.low:.6g} and {self.high:.6g}"
        measured = f" measured, +- {self.error:.2g}" if self.kind == "measured" else ""
        name = {"measured": "law with", "unknown": "unknown law with"}.get(self.kind, self.kind)
        return f"{name}({self.mean:.6g}, {self.deviation:.6g}**2){measured}"


Pieces = tuple[tuple[int, int, EntryLaw], ...]  # rows from, to, and their law, along the first axis of a parameter


def constant_law(value: float) -> EntryLaw:
    """Entries that are all one number."""
    return EntryLaw("constant", mean=value)


def normal_law(mean: float, deviation: float) -> EntryLaw:
    """Gaussian entries."""
    return EntryLaw("normal", mean, deviation) if deviation else constant_law(mean)


def uniform_law(low: float, high: float) -> EntryLaw:
    """Entries uniform between two numbers."""
    if low == high:
        return constant_law(low)
    return EntryLaw("uniform", (low + high) / 2, (high - low) / math.sqrt(12), low, high)


def truncated_law(mean: float, deviation: float, low: float, high: float) -> EntryLaw:
    """Gaussian entries that are drawn again while they lie outside of the bounds; plain ones where bounds never act."""
    a, b = (low - mean) / deviation, (high - mean) / deviation
    if min(-a, b) > NEVER_CUT:
        return normal_law(mean, deviation)

    def density(x: float) -> float:
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if math.isfinite(x) else 0.0

    mass = (math.erf(b / math.sqrt(2)) - math.erf(a / math.sqrt(2))) / 2
    first = (density(a) - density(b)) / mass
    tails = [x * density(x) if math.isfinite(x) else 0.0 for x in (a, b)]
    second = 1 + (tails[0] - tails[1]) / mass - first**2
    return EntryLaw("truncated", mean + deviation * first, deviation * math.sqrt(second), low, high, (mean, deviation))


def whole_law(pieces: Pieces) -> EntryLaw | None:
    """The one law of all entries; None where rows have different ones."""
    laws = {law for _, _, law in pieces}
    return laws.pop() if len(laws) == 1 else None

"""`Mean`: what a score over sqrt(n) converges to, a number or a function of the scores upstream, and how it is told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Mean", "values"]

ROUNDING = 1e-12
EXACT = 1e-9  # an error that is rounding
SHOWN = 1e-4  # a relative error that four digits show


@dataclass(frozen=True)
class Mean:
    """E[Z^left Z^right], given the scores upstream, of the member of a Dot that is furthest from 0 beyond its error.

    With scores upstream it is random: `value` is the draw furthest from 0, and `low`, `high`, `average` are of all.
    """

    value: float
    error: float
    place: Mapping[str, int] = field(default_factory=dict)
    draws: int = 0  # of the scores upstream; 0 if there are none
    low: float = math.nan
    high: float = math.nan
    average: float = math.nan
    deviation: float = math.nan  # standard error of the average over draws
    whole: bool = True  # whether all members were looked at
    conjecture: bool = False  # whether it rests on the conjecture on iterated layers

    @property
    def zero(self) -> bool:
        """Whether it is 0 within its error."""
        return abs(self.value) <= max(self.error, ROUNDING)

    def text(self, product: str) -> str:
        """What is known of it, `product` being E[Z^left Z^right]: 'which is 0', 'and E[Z^q Z^k] is 0.25'."""
        given = f" in each of {self.draws} draws of the scores upstream" if self.draws else ""
        if self.zero:
            within = f" within {self.error:.1g}" if self.error > EXACT else ""
            some = "" if self.whole else ", for the members looked at, the first few of each index"
            return f"which is 0{within}{given}{some}"
        where = values(self.place) + (f" (within {self.error:.1g})" if self.error > SHOWN * abs(self.value) else "")
        rests = " (a conjecture, by iterated layers)" if self.conjecture else ""
        if not self.draws:
            return f"and {product} is {self.value:.4g}{where}"
        if self.high - self.low <= 2 * max(self.error, ROUNDING):
            return f"and {product} is {self.average:.4g}{where}{given}{rests}"
        return (
            f"and {product} given the scores upstream is random{where}: from {self.low:.4g} to {self.high:.4g} in "
            f"{self.draws} draws of them, {self.average:.4g} on average (standard error {self.deviation:.1g}){rests}"
        )


def values(witness: Mapping[str, int]) -> str:
    """Index values at which something happens, as text."""
    shown = {name: value for name, value in witness.items() if not name.endswith(("'", '"'))}  # copies
    return f" at {', '.join(f'{name}={value}' for name, value in sorted(shown.items()))}" if shown else ""

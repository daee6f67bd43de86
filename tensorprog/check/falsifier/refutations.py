"""The list of refutations: for each property the rules that find numbers against it, of any function on a line.

Functions that authors declare (`claims`) and expressions of programs (`witness`) are searched by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.falsifier.line import Line, Trend, racing, rising

__all__ = ["REFUTATIONS", "Refutation", "outgrows"]

Array = NDArray[np.float64]
REACH = 1e20  # growth up to here is believed even if values then leave the computer's numbers for no number
POWER = 14.0  # what outgrows this power faster and faster outgrows all of them


@dataclass(frozen=True)
class Refutation:
    """Points of a line at which the values refute a property.

    kind: "growth" of |values| from point to point; "jump" between two neighbouring numbers; "slope" without bound
    between the first point and the others, which draw near to it
    """

    kind: Literal["growth", "jump", "slope"]
    at: Array
    trend: Trend | None = None  # of what grows
    slopes: Array | None = None  # from the first point to each of the others


Rule = Callable[[Line], Iterator[Refutation]]


def outgrows(x: Array, size: Array, power: float, fast: float | None = None) -> Trend | None:
    """Whether size outgrows |x|**power on one side of 0, or `fast` if it overflows, faster and faster."""
    return rising(x, size, power) or racing(x, size, power if fast is None else fast)


def _grows(line: Line) -> Iterator[Refutation]:
    """Growth that goes on as far as the computer's numbers go."""
    for x, size in line.sides:
        if line.overflows(x) or np.abs(x[-1]) >= REACH:
            trend = outgrows(x, size, 0.0, POWER)
            if trend is not None:
                yield Refutation("growth", np.array(trend.at), trend)


def _outgrows_powers(line: Line) -> Iterator[Refutation]:
    """Growth that is faster and faster than powers, until it leaves the computer's numbers."""
    for x, size in line.sides:
        trend = racing(x, size, 0.0) if line.overflows(x) else None
        if trend is not None and trend.powers is not None:
            before, after = trend.powers
            if before > POWER and after > 1.5 * before:
                yield Refutation("growth", np.array(trend.at), trend)


def _outgrows_exponentials(line: Line) -> Iterator[Refutation]:
    """Growth like exp(|t|**r) with r of 1.96 or more up to the end."""
    for x, size in line.sides:
        trend = racing(x, size, POWER) if line.overflows(x) else None
        if trend is not None:
            at = np.array(trend.at)
            logs = np.log(np.abs(line.at(at)))
            if logs[0] > 1 and (np.diff(np.log(logs)) > 1.96 * np.diff(np.log(np.abs(at)))).all():
                yield Refutation("growth", at, trend)


def _jumps(line: Line) -> Iterator[Refutation]:
    """Two points a tiny distance apart whose values are not."""
    for jump in line.jumps:
        yield Refutation("jump", np.array(jump))


def _steepens(line: Line) -> Iterator[Refutation]:
    """A point at which the slope is infinite."""
    for at, steps, slopes in line.endless_slopes():
        yield Refutation("slope", at + np.array([0.0, *steps]), slopes=slopes)


REFUTATIONS: dict[str, tuple[Rule, ...]] = {
    "bounded": (_grows,),
    "controlled": (_outgrows_exponentials,),
    "pseudo-Lipschitz": (_outgrows_powers, _jumps, _steepens),
}

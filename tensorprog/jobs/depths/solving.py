"""The constant for which a quantity of the last layer has a wanted value.

All values of the constant are tried with the same draws, so that the quantity is a smooth function of it: outwards
from the value in the program until it passes the one wanted, then between the last two by Brent's method.  The error of
that place is the error of the quantity, divided by the slope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tensorprog.gaussian.several import standard_errors
from tensorprog.jobs.depths.quantities import LONG_NAMES, merged, parts_of_limit, widened
from tensorprog.jobs.depths.question import NAME, Question, variant
from tensorprog.language.errors import (
    AccuracyError,
    NotCompiledError,
    OutsideError,
    ProgramError,
    TensorprogError,
    did_you_mean,
    fail,
)
from tensorprog.program import Program

__all__ = ["NoSolutionError", "Solution", "Wanted", "find"]

REACH, STEP = 6, math.sqrt(10.0)  # how many steps from the program's value, and how large
PARTS = 12  # of an interval that was given
NEAR, EXACT = 1e-7, 1e-13  # relative accuracy of a place, with draws and without
SLOPE = 1e-3  # relative distance over which a slope is taken


class NoSolutionError(TensorprogError):
    """No value of the constant makes the quantity as wanted, as far as was looked."""

    exit_code = 3


@dataclass(frozen=True)
class Wanted:
    """What is to be made how large: a quantity of the last layer, or its factor of growth from the layer before.

    Gradients go backwards: theirs is the first layer, and growth that from the last layer to the one before.
    """

    constant: str
    quantity: str
    value: float
    growth: bool = False

    @property
    def said(self) -> str:
        """The quantity in words."""
        return f"the growth of {self.quantity}" if self.growth else self.quantity

    @property
    def places(self) -> tuple[int, ...]:
        """Layers: that of the quantity, and with growth the one that it is divided by."""
        if self.quantity == "gradient_norm":
            return (-2, -1) if self.growth else (0,)
        return (-1, -2) if self.growth else (-1,)


@dataclass(frozen=True)
class Solution:
    """A place with its error; the quantity there, its own error, and its slope."""

    value: float
    error: float
    reached: float
    reached_error: float
    slope: float


def find(
    question: Question, wanted: Wanted, draws: int, seed: int, between: tuple[float, float] | None = None
) -> Solution:
    """Find the place nearest to the value that the program has.

    Raises    ProgramError for mistakes; NoSolutionError where the value is not reached; what made the limit fail where
              it fails everywhere
    """
    from scipy.optimize import brentq

    known, failed = dict[float, tuple[float, float]](), list[TensorprogError]()

    def quantity(constant: float) -> tuple[float, float]:
        """Value and error; nan where the program is none, or has no limit, with this constant."""
        if constant not in known:
            try:
                known[constant] = _computed(question, wanted, constant, draws, seed)
            except (OutsideError, AccuracyError, NotCompiledError, ProgramError) as error:  # overflows among them
                if not known and isinstance(error, ProgramError):  # what is wrong does not hang on the value
                    raise
                failed.append(error)
                known[constant] = math.nan, math.nan
        return known[constant]

    def excess(constant: float) -> float:
        return quantity(constant)[0] - wanted.value

    start = _start(question, wanted, between)
    for pair in _places(start, between):
        if excess(pair[0]) * excess(pair[1]) <= 0:
            low, high = sorted(pair)
            break
    else:
        raise _not_reached(question, wanted, {at: value for at, (value, _) in known.items()}, failed)
    value, error = quantity(low)
    within = NEAR if error > 1e-9 * abs(value) else EXACT
    if low > 0:  # constants that are scales
        place = math.exp(brentq(lambda log: excess(math.exp(log)), math.log(low), math.log(high), xtol=within))
    else:
        place = float(brentq(excess, low, high, xtol=within * max(abs(low), abs(high), 1e-300)))
    value, error = quantity(place)
    step = SLOPE * (abs(place) or high - low)
    near = [(at, quantity(at)[0]) for at in (place - step, place, place + step)]
    (left, below), *_, (right, above) = [pair for pair in near if math.isfinite(pair[1])]
    slope = (above - below) / (right - left) if right > left else 0.0
    own = abs(value - wanted.value) + error
    return Solution(place, own / abs(slope) if slope else math.inf, value, error, slope)


def _computed(question: Question, wanted: Wanted, constant: float, draws: int, seed: int) -> tuple[float, float]:
    choice, gradients = variant(question, {wanted.constant: constant}), wanted.quantity == "gradient_norm"
    judged = Program.from_netsor((choice.backward if gradients else None) or choice.netsor).check()
    if judged.grade == "outside":
        raise OutsideError(f"no limit is claimed with {wanted.constant} = {constant:g}:\n{judged}")
    parts = parts_of_limit(question, choice, draws, seed, gradients)
    whole, name = merged(parts), "variance" if gradients else wanted.quantity  # of the adjoint program's families
    if name not in whole.values:
        raise fail(f"{question.axes.name} has no {name}", fix=f"one of {', '.join(whole.values)}")

    def pick(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        first, *other = (float(values[place]) for place in wanted.places)
        return first / other[0] if other else first

    with np.errstate(divide="ignore", invalid="ignore"):
        value = pick(whole.values[name])
        error = float(standard_errors([np.asarray(pick(part.values[name])) for part in parts]))
        wide = widened(name, whole.values[name], whole.tokens, whole.relative) / np.abs(whole.values[name])
    return value, error + abs(value) * sum(float(wide[place]) for place in wanted.places)


def _start(question: Question, wanted: Wanted, between: tuple[float, float] | None) -> float:
    if wanted.quantity not in LONG_NAMES:
        raise fail(f"there is no quantity {wanted.quantity}", fix=did_you_mean(wanted.quantity, list(LONG_NAMES)))
    if not math.isfinite(wanted.value):
        raise fail(f"{wanted.said} can be made a finite number, not {wanted.value}")
    if wanted.growth and len(question.layers) < 2:
        raise fail(f"{question.axes.name} has one layer only: nothing grows", fix="to=2, --to 2 in a command")
    known = {name: number for name, number in question.base.scalars.items() if number is not None}
    if wanted.constant not in known:
        raise fail(
            f"{wanted.constant} is not a constant of {question.base.name} that has one number",
            fix=did_you_mean(wanted.constant, list(known)),
        )
    if wanted.constant in NAME.findall(question.base.index[question.index].text):
        raise fail(
            f"{wanted.constant} says how many layers there are: the quantity is looked for at one of them",
            question.base.index[question.index].span,
            "another constant, and to=, --to in a command",
        )
    if between is not None and not (len(between) == 2 and -math.inf < between[0] < between[1] < math.inf):
        raise fail(f"between takes two numbers, the smaller one first, not {between}", fix="between=(0.01, 10)")
    return float(known[wanted.constant])


def _places(start: float, between: tuple[float, float] | None) -> list[tuple[float, float]]:
    """Places to try, each with the neighbour tried before it: of an interval in order, else outwards from the start."""
    if between is not None:
        places = (np.geomspace if between[0] > 0 else np.linspace)(*between, PARTS + 1).tolist()
        return list(zip(places, [places[0], *places], strict=False))
    start = start or 1.0
    steps = [(sign * k, sign * (k - 1)) for k in range(1, REACH + 1) for sign in (1, -1)]
    return [(start, start), *((start * STEP**outer, start * STEP**inner) for outer, inner in steps)]


def _not_reached(
    question: Question, wanted: Wanted, seen: dict[float, float], failed: list[TensorprogError]
) -> TensorprogError:
    known = {place: value for place, value in seen.items() if math.isfinite(value)}
    if failed and len(known) < 2:
        return failed[0]
    if not known:
        return NoSolutionError(f"{wanted.said} is not finite at any value of {wanted.constant} that was tried")
    at = f"{question.axes.name} at {question.index} = {question.layers[wanted.places[0]]}"
    return NoSolutionError(
        f"{wanted.said} of {at} does not reach {wanted.value:g}: at the {len(known)} values of {wanted.constant} "
        f"tried, from {min(known):.4g} to {max(known):.4g}, it lies between {min(known.values()):.4g} and "
        f"{max(known.values()):.4g}\n  try   between=(.., ..), --between in a command, to look elsewhere"
    )

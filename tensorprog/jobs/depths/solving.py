"""The constant for which a quantity of the last layer has a wanted value.

All values of the constant are tried with the same draws, so that the quantity is a smooth function of it: outwards
from the value in the program until it passes the one wanted, then between the last two by Brent's method.  The error of
that place is the error of the quantity, divided by the slope.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tensorprog.gaussian.several import standard_errors
from tensorprog.jobs.depths.profile import gradients_of_limit, sums_of_limit
from tensorprog.jobs.depths.quantities import QUANTITIES, Sums, widened
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

REACH, STEP = 1e3, math.sqrt(10.0)  # how far from the program's value, in which steps
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


@dataclass
class _Quantity:
    """The quantity as a function of the constant; what was tried is kept."""

    question: Question
    wanted: Wanted
    draws: int
    seed: int
    known: dict[float, tuple[float, float]] = field(default_factory=dict)
    refusal: TensorprogError | None = None

    def __call__(self, constant: float) -> tuple[float, float]:
        """Value and error; nan where the program has no limit with this constant."""
        if constant not in self.known:
            try:
                self.known[constant] = self._computed(constant)
            except (OutsideError, AccuracyError, NotCompiledError) as error:  # overflows among them
                self.refusal = self.refusal or error
                self.known[constant] = math.nan, math.nan
        return self.known[constant]

    def excess(self, constant: float) -> float:
        """What the quantity has more than wanted."""
        return self(constant)[0] - self.wanted.value

    def _computed(self, constant: float) -> tuple[float, float]:
        choice = variant(self.question, {self.wanted.constant: constant})
        name, sums = self.wanted.quantity, sums_of_limit
        if name == "gradient_norm":  # the variance of the adjoint program's families
            name, sums = "variance", gradients_of_limit
        judged = Program.from_netsor((choice.backward if sums is gradients_of_limit else None) or choice.netsor).check()
        if judged.grade == "outside":
            raise OutsideError(f"no limit is claimed with {self.wanted.constant} = {constant:g}:\n{judged}")
        parts = sums(self.question, choice, self.draws, self.seed)
        whole = sum(parts, start=Sums())
        if name not in whole.values:
            known = ", ".join(name for name in QUANTITIES if name in whole.values)
            raise fail(f"{self.question.axes.name} has no {name}", fix=f"one of {known}")

        def pick(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
            first, *other = (float(values[place]) for place in self.wanted.places)
            return first / other[0] if other else first

        with np.errstate(divide="ignore", invalid="ignore"):
            value = pick(whole.values[name])
            error = float(standard_errors([np.asarray(pick(part.values[name])) for part in parts]))
            wide = widened(name, whole.values[name], whole.tokens, whole.relative) / np.abs(whole.values[name])
        return value, error + abs(value) * sum(float(wide[place]) for place in self.wanted.places)


def find(
    question: Question, wanted: Wanted, draws: int, seed: int, between: tuple[float, float] | None = None
) -> Solution:
    """Find the place nearest to the value that the program has.

    Raises    ProgramError for mistakes; NoSolutionError where the value is not reached; what made the limit fail where
              it fails everywhere
    """
    from scipy.optimize import brentq

    quantity = _Quantity(question, wanted, draws, seed)
    low, high = _bracket(quantity, _start(question, wanted, between), between)
    value, error = quantity(low)
    within = NEAR if error > 1e-9 * abs(value) else EXACT
    place = low
    if low > 0 and quantity.excess(low):  # constants that are scales
        logs = math.log(low), math.log(high)
        place = math.exp(brentq(lambda log: quantity.excess(math.exp(log)), *logs, xtol=within))
    elif quantity.excess(low):
        place = float(brentq(quantity.excess, low, high, xtol=within * max(abs(low), abs(high))))
    value, error = quantity(place)
    step = SLOPE * (abs(place) or high - low)
    near = [(at, quantity(at)[0]) for at in (place - step, place, place + step)]
    (left, below), *_, (right, above) = [pair for pair in near if math.isfinite(pair[1])]
    slope = (above - below) / (right - left) if right > left else 0.0
    own = abs(value - wanted.value) + error
    return Solution(place, own / abs(slope) if slope else math.inf, value, error, slope)


def _start(question: Question, wanted: Wanted, between: tuple[float, float] | None) -> float:
    """The value in the program, after a look at what was asked."""
    if wanted.quantity not in QUANTITIES:
        raise fail(f"there is no quantity {wanted.quantity}", fix=did_you_mean(wanted.quantity, QUANTITIES))
    if not math.isfinite(wanted.value):
        raise fail(f"{wanted.said} can be made a finite number, not {wanted.value}")
    if wanted.growth and len(question.layers) < 2:
        raise fail(f"{question.axes.name} has one layer only: nothing grows", fix="to=2, --to 2 in a command")
    value = question.base.scalars.get(wanted.constant)
    if value is None:
        known = [name for name, number in question.base.scalars.items() if number is not None]
        raise fail(
            f"{wanted.constant} is not a constant of {question.base.name} that has one number",
            fix=did_you_mean(wanted.constant, known),
        )
    if wanted.constant in NAME.findall(question.base.index[question.index].text):
        raise fail(
            f"{wanted.constant} says how many layers there are: the quantity is looked for at one of them",
            question.base.index[question.index].span,
            "another constant, and to=, --to in a command",
        )
    if between is not None and not (len(between) == 2 and -math.inf < between[0] < between[1] < math.inf):
        raise fail(f"between takes two numbers, the smaller one first, not {between}", fix="between=(0.01, 10)")
    return float(value)


def _bracket(quantity: _Quantity, start: float, between: tuple[float, float] | None) -> tuple[float, float]:
    """Neighbouring places between which the quantity passes the value, the nearest to the start.

    Raises    NoSolutionError, or ProgramError of the first place
    """
    seen: dict[float, float] = {}
    mistake: ProgramError | None = None
    for place, neighbour in _places(start, between):
        try:
            seen[place] = quantity.excess(place)
        except ProgramError as error:
            if not seen:  # what is wrong does not hang on the value
                raise
            mistake, seen[place] = mistake or error, math.nan
        if seen[place] == 0:
            return place, place
        if seen[place] * seen.get(neighbour, math.nan) < 0:
            return min(place, neighbour), max(place, neighbour)
    wanted, question = quantity.wanted, quantity.question
    known = {place: value + wanted.value for place, value in seen.items() if math.isfinite(value)}
    if mistake is not None and len(known) < 2:  # a number of heads, say
        raise mistake
    if not known:
        raise quantity.refusal or NoSolutionError(
            f"{wanted.said} is not a finite number at any value of {wanted.constant} that was tried"
        )
    at = f"{question.axes.name} at {question.index} = {question.layers[-1]}"
    raise NoSolutionError(
        f"{wanted.said} of {at} does not reach {wanted.value:g}: at the {len(known)} values of {wanted.constant} "
        f"tried, from {min(known):.4g} to {max(known):.4g}, it lies between {min(known.values()):.4g} and "
        f"{max(known.values()):.4g}\n  try   between=(.., ..), --between in a command, to look elsewhere"
    )


def _places(start: float, between: tuple[float, float] | None) -> Iterator[tuple[float, float]]:
    """Places to try, each with the neighbour tried before it: of an interval in order, else outwards from the start."""
    if between is not None:
        spaced = np.geomspace if between[0] > 0 else np.linspace
        places = [float(place) for place in spaced(*between, PARTS + 1)]
        yield from zip(places, [places[0], *places], strict=False)
        return
    start = start or 1.0
    yield start, start
    factors = [STEP**k for k in range(round(math.log(REACH) / math.log(STEP)) + 1)]
    for inner, outer in pairwise(factors):
        yield start * outer, start * inner
        yield start / outer, start / inner

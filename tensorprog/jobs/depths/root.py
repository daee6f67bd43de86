"""The constant for which a quantity of the last layer has a wanted value.

All values of the constant are tried with the same draws, so that the quantity is a smooth function of it: outwards
from the value in the program until it passes the one wanted, first with a few draws; then the place where it passes is
found with all of them.  The error of that place is the error of the quantity, divided by the slope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tensorprog.gaussian.several import REPLICATES
from tensorprog.jobs.depths.profile import curves, gradients_of_limit, sums_of_limit
from tensorprog.jobs.depths.quantities import QUANTITIES
from tensorprog.jobs.depths.question import NAME, Question, Variant, variant
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

__all__ = ["NoSolutionError", "Solution", "Wanted", "root"]

FEW = 2  # replicates while a place is looked for
REACH, STEP = 1e3, math.sqrt(10.0)  # how far from the program's value, in which steps
PARTS = 12  # of an interval that was given
NEAR, EXACT = 1e-7, 1e-13  # relative accuracy of a place, with draws and without
SLOPE = 1e-3  # relative distance over which a slope is taken
AROUND = 0.02  # relative distance from a place found with few draws within which that of all is expected first


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


@dataclass(frozen=True)
class Solution:
    """A place with its error; the quantity there, its own error, and its slope."""

    value: float
    error: float
    reached: float
    reached_error: float
    slope: float


@dataclass
class _Tried:
    """The quantity as a function of the constant, by so many replicates; what was tried is kept."""

    question: Question
    wanted: Wanted
    draws: int
    seed: int
    known: dict[tuple[float, int], tuple[float, float]] = field(default_factory=dict)
    refusal: TensorprogError | None = None
    exact: bool = False  # nothing is drawn

    def __call__(self, constant: float, replicates: int) -> tuple[float, float]:
        """Value and error; nan where the program has no limit with this constant."""
        key = constant, REPLICATES if self.exact else replicates
        if key not in self.known:
            try:
                found = self._computed(constant, replicates)
                self.known[constant, REPLICATES if self.exact else replicates] = found
                return found
            except (OutsideError, AccuracyError, NotCompiledError) as error:  # overflows among them
                self.refusal = self.refusal or error
                self.known[key] = math.nan, math.nan
        return self.known[key]

    def _computed(self, constant: float, replicates: int) -> tuple[float, float]:
        choice = variant(self.question, {self.wanted.constant: constant})
        checked = Program.from_netsor(choice.netsor).check()
        if checked.grade == "outside":
            raise OutsideError(f"no limit is claimed with {self.wanted.constant} = {constant:g}:\n{checked}")
        if self.wanted.quantity == "gradient_norm":
            return self._gradient(choice, replicates)
        parts = sums_of_limit(self.question, choice, self.draws, self.seed, replicates)
        self.exact = len(parts) == 1
        found = curves(parts, growth=self.wanted.growth)
        if self.wanted.quantity not in found.values:
            raise fail(
                f"{self.question.axes.name} has no {self.wanted.quantity}", fix=f"one of {', '.join(found.values)}"
            )
        name = self.wanted.quantity
        return float(found.values[name][-1]), float(found.errors[name][-1])

    def _gradient(self, choice: Variant, replicates: int) -> tuple[float, float]:
        """Gradients go backwards: that of the first layer, or its factor from the last layer to the one before."""
        assert choice.backward is not None
        checked = Program.from_netsor(choice.backward).check()
        if checked.grade == "outside":
            raise OutsideError(
                f"no limit is claimed for gradients with {self.wanted.constant} = {choice.values[0][1]:g}:\n{checked}"
            )
        parts = gradients_of_limit(self.question, choice, self.draws, self.seed, replicates)
        self.exact = len(parts) == 1
        found = curves([part.backwards for part in parts], growth=self.wanted.growth)
        place = 0 if self.wanted.growth else -1
        return float(found.values["variance"][place]), float(found.errors["variance"][place])


def root(
    question: Question, wanted: Wanted, draws: int, seed: int, between: tuple[float, float] | None = None
) -> Solution:
    """Find the place nearest to the value that the program has.

    Raises    ProgramError for mistakes; NoSolutionError where the value is not reached; what made the limit fail where
              it fails everywhere
    """
    start = _start(question, wanted, between)
    tried = _Tried(question, wanted, draws, seed)
    few = lambda place: tried(place, FEW)[0] - wanted.value  # noqa: E731
    low, high = _bracket(few, start, between, tried)
    place = _passing(few, low, high, EXACT if tried.exact else SLOPE)
    if not tried.exact:
        whole = lambda place: tried(place, REPLICATES)[0] - wanted.value  # noqa: E731
        place = _passing(whole, *_closer(whole, place, low, high), NEAR)
    value, error = tried(place, REPLICATES)
    step = SLOPE * (abs(place) or high - low)
    ahead, behind = (tried(place + sign * step, REPLICATES)[0] for sign in (1, -1))
    slope = (ahead - behind) / (2 * step)
    if not math.isfinite(slope):
        slope = ((ahead if math.isfinite(ahead) else value) - (behind if math.isfinite(behind) else value)) / step
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


def _bracket(
    few: Callable[[float], float], start: float, between: tuple[float, float] | None, tried: _Tried
) -> tuple[float, float]:
    """Neighbouring places between which the quantity passes the value, the nearest to the start.

    Raises    NoSolutionError, or ProgramError of the first place
    """
    seen: dict[float, float] = {}
    mistake: ProgramError | None = None
    for place, neighbour in _places(start, between):
        try:
            seen[place] = few(place)
        except ProgramError as error:
            if not seen:  # what is wrong does not hang on the value
                raise
            mistake, seen[place] = mistake or error, math.nan
        other = seen.get(neighbour, math.nan)
        if seen[place] == 0 or seen[place] * other < 0:
            return (place, neighbour) if place < neighbour else (neighbour, place)
    known = {place: value + tried.wanted.value for place, value in seen.items() if math.isfinite(value)}
    if mistake is not None and len(known) < 2:  # a number of heads, say
        raise mistake
    if not known:
        raise tried.refusal or NoSolutionError(
            f"{tried.wanted.said} is not a finite number at any value of {tried.wanted.constant} that was tried"
        )
    wanted = tried.wanted
    at = f"{tried.question.axes.name} at {tried.question.index} = {tried.question.layers[-1]}"
    raise NoSolutionError(
        f"{wanted.said} of {at} does not reach {wanted.value:g}: at the {len(known)} values of {wanted.constant} "
        f"tried, from {min(known):.4g} to {max(known):.4g}, it lies between {min(known.values()):.4g} and "
        f"{max(known.values()):.4g}\n  try   between=(.., ..), --between in a command, to look elsewhere"
    )


def _places(start: float, between: tuple[float, float] | None) -> Iterator[tuple[float, float]]:
    """Places to try, each with the neighbour tried before it: of an interval in order, else outwards from the start."""
    if between is not None:
        low, high = between
        spaced = np.geomspace if low > 0 else np.linspace
        places = [float(place) for place in spaced(low, high, PARTS + 1)]
        yield from zip(places, [places[0], *places], strict=False)
        return
    start = start or 1.0
    yield start, start
    above = below = start
    factor = 1.0
    while factor < REACH * (1 - 1e-9):
        factor *= STEP
        yield start * factor, above
        yield start / factor, below
        above, below = start * factor, start / factor


def _passing(function: Callable[[float], float], low: float, high: float, within: float) -> float:
    """The place between two of different signs where a function is 0."""
    if low == high or function(low) == 0:
        return low
    if function(high) == 0:
        return high
    from scipy.optimize import brentq

    if low > 0:  # constants that are scales
        return math.exp(brentq(lambda place: function(math.exp(place)), math.log(low), math.log(high), xtol=within))
    return float(brentq(function, low, high, xtol=within * max(abs(low), abs(high)), rtol=max(within, 1e-15)))


def _closer(whole: Callable[[float], float], place: float, low: float, high: float) -> tuple[float, float]:
    """A narrow interval around a place in which the function with all draws passes, within the wide one if it can.

    Raises    NoSolutionError where all draws say otherwise than a few
    """
    around = AROUND
    while True:
        near = max(low, place - around * abs(place)), min(high, place + around * abs(place))
        if whole(near[0]) * whole(near[1]) <= 0:
            return near
        if near == (low, high):
            raise NoSolutionError(
                "whether the value is reached at all cannot be told from so few draws\n"
                "  try   more of them with draws=, --draws in a command"
            )
        around *= 4

"""The constant for which a quantity of the last layer has a wanted value.

All values of the constant are tried with the same draws, so that the quantity is a smooth function of it: outwards
from the value in the program until it passes the one wanted, then between the last two by Brent's method.  The error of
that place is the error of the quantity, divided by the slope.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from tensorprog.gaussian.several import standard_errors
from tensorprog.jobs.depths.quantities import LONG_NAMES, measured, per_replicate
from tensorprog.jobs.depths.question import Question
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

__all__ = ["NoSolutionError", "Search"]

REACH, STEP = 6, math.sqrt(10.0)  # how many steps from the program's value, and how large
PARTS = 12  # of an interval that was given
NEAR, EXACT = 1e-7, 1e-13  # relative accuracy of a place, with draws and without
SLOPE = 1e-3  # relative distance over which a slope is taken


class NoSolutionError(TensorprogError):
    """No value of the constant makes the quantity as wanted, as far as was looked."""

    exit_code = 3


@dataclass
class Search:
    """What is to be made how large: a quantity of the last layer, or its factor of growth from the layer before.

    Gradients go backwards: theirs is the first layer, and growth that from the last layer to the one before.

    Raises    ProgramError for mistakes
    """

    question: Question
    constant: str
    quantity: str
    wanted: float
    growth: bool
    draws: int
    seed: int
    known: dict[float, tuple[float, float]] = field(default_factory=dict)  # values and errors by constant

    def __post_init__(self) -> None:
        base, constant, self.draws = self.question.base, self.constant, per_replicate(self.draws)
        if self.quantity not in LONG_NAMES:
            raise fail(f"there is no quantity {self.quantity}", fix=did_you_mean(self.quantity, list(LONG_NAMES)))
        if not math.isfinite(self.wanted):
            raise fail(f"{self.said} can be made a finite number, not {self.wanted}")
        if self.growth and len(self.question.layers) < 2:
            raise fail(f"{self.question.axes.name} has one layer only: nothing grows", fix="to=2, --to 2 in a command")
        names = [name for name, number in base.scalars.items() if number is not None]
        if constant not in names:
            raise fail(f"{constant} is not a constant of {base.name} that has one number",
                       fix=did_you_mean(constant, names))  # fmt: skip
        if self.question.bounds(constant):
            raise fail(
                f"{constant} says how many layers there are: the quantity is looked for at one of them",
                base.index[self.question.index].span,
                "another constant, and to=, --to in a command",
            )

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

    @property
    def place(self) -> str:
        """The layer in words."""
        return f"{self.question.axes.name} at {self.question.index} = {self.question.layers[self.places[0]]}"

    def at(self, constant: float) -> tuple[float, float]:
        """Value and error; nan where the program is none, or has no limit, with this constant."""
        if constant not in self.known:
            wrong = (ProgramError,) if self.known else ()  # else it does not hang on the value; overflows among them
            found = math.nan, math.nan
            with suppress(OutsideError, AccuracyError, NotCompiledError, *wrong):
                found = self._computed(constant)
            self.known[constant] = found
        return self.known[constant]

    def excess(self, constant: float) -> float:
        """By how much the quantity is too large."""
        return self.at(constant)[0] - self.wanted

    def find(self, between: tuple[float, float] | None = None) -> dict[str, float]:
        """The place nearest to the value that the program has, or in an interval, as `value` with its `error`; what is
        `reached` there with `reached_error`, and its `slope`.

        Raises    NoSolutionError where the value is not reached; what made the limit fail where it fails everywhere
        """
        from scipy.optimize import brentq

        tried = self._tried(between)
        reached = (pair for pair in tried if self.excess(pair[0]) * self.excess(pair[1]) <= 0)
        if (found := next(reached, None)) is None:
            if all(math.isnan(value) for value, _ in self.known.values()):
                self._computed(tried[0][0])  # which says why
            seen = [(place, value) for place, (value, _) in sorted(self.known.items()) if math.isfinite(value)]
            least, most = (f"{end(value for _, value in seen):.4g}" for end in (min, max))
            raise NoSolutionError(
                f"{self.said} of {self.place} does not reach {self.wanted:g}: at the {len(seen)} values "
                f"of {self.constant} tried, from {seen[0][0]:.4g} to {seen[-1][0]:.4g}, it lies between {least} and "
                f"{most}\n"
                "  try   between=(.., ..), --between in a command, to look elsewhere"
            )
        (low, high), (value, error) = sorted(found), self.at(found[0])
        within = NEAR if error > 1e-9 * abs(value) else EXACT
        if low > 0:  # constants that are scales
            place = math.exp(brentq(lambda log: self.excess(math.exp(log)), math.log(low), math.log(high), xtol=within))
        else:
            place = float(brentq(self.excess, low, high, xtol=within * max(abs(low), abs(high), 1e-300)))
        value, error = self.at(place)
        step = SLOPE * (abs(place) or high - low)
        near = [(at, self.at(at)[0]) for at in (place - step, place, place + step)]
        (left, below), *_, (right, above) = [pair for pair in near if math.isfinite(pair[1])]
        slope = (above - below) / (right - left) if right > left else 0.0
        own = (abs(value - self.wanted) + error) / abs(slope) if slope else math.inf
        return {"value": place, "error": own, "reached": value, "reached_error": error, "slope": slope}

    def _computed(self, constant: float) -> tuple[float, float]:
        (choice,), gradients = self.question.variants({self.constant: constant}), self.quantity == "gradient_norm"
        judged = Program.from_netsor((choice.backward if gradients else None) or choice.netsor).check()
        if judged.grade == "outside":
            raise OutsideError(f"no limit is claimed with {self.constant} = {constant:g}:\n{judged}")
        found = measured(self.question, choice, self.draws, self.seed, gradients)
        if self.quantity not in found:
            raise fail(f"{self.question.axes.name} has no {self.quantity}", fix=f"one of {', '.join(found)}")
        own, places = found[self.quantity], list(self.places)
        with np.errstate(divide="ignore", invalid="ignore"):
            value, *each = (
                part[places[0]] / part[places[1]] if self.growth else part[places[0]] for part in (own.whole, *own.each)
            )
            spread = float(standard_errors([np.asarray(part) for part in each])) if len(each) > 1 else 0.0
            wide = float((own.wide / np.abs(own.whole))[places].sum())
        return float(value), spread + abs(float(value)) * wide

    def _tried(self, between: tuple[float, float] | None) -> list[tuple[float, float]]:
        """Places, each with the neighbour tried before it: of an interval in order, else outwards from the start."""
        if between is not None:
            if not (len(between) == 2 and -math.inf < between[0] < between[1] < math.inf):
                raise fail(f"between takes two numbers, the smaller one first, not {between}", fix="between=(0.01, 10)")
            places = (np.geomspace if between[0] > 0 else np.linspace)(*between, PARTS + 1).tolist()
            return list(zip(places, [places[0], *places], strict=False))
        start = float(self.question.base.scalars[self.constant] or 1.0)
        steps = [(sign * k, sign * (k - 1)) for k in range(1, REACH + 1) for sign in (1, -1)]
        return [(start, start), *((start * STEP**outer, start * STEP**inner) for outer, inner in steps)]

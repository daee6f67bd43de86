"""The density of one variable in the limit, as pictures need it and as report.json keeps it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.formats import split
from tensorprog.results.reference import LawCurve, Reference

__all__ = ["LimitDensity", "limit_density"]

REACH = 12.0  # standard deviations on either side, at least


@dataclass(frozen=True)
class LimitDensity:
    """Mean, standard deviation, and the density, if there is one that says all."""

    mean: float
    deviation: float
    curve: LawCurve | None

    def to_json(self) -> dict[str, Any]:
        """The numbers; `at` and `density` are null where the law has no density."""
        at, density = (None, None) if self.curve is None else (self.curve.grid, self.curve.density)
        return {"mean": self.mean, "deviation": self.deviation, "at": at, "density": density}

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> LimitDensity:
        """The same numbers, read."""
        curve = None
        if found["at"] is not None:
            curve = LawCurve(np.array(found["at"], dtype=np.float64), np.array(found["density"], dtype=np.float64))
        return cls(float(found["mean"]), float(found["deviation"]), curve)


def limit_density(reference: Reference, variable: str, draws: Iterable[NDArray[Any]]) -> LimitDensity:
    """The density of a member such as "y[0]", as far out as draws of it lie."""
    family, position = split(reference.netsor, variable)
    values = reference.moments(family)
    mean, deviation = float(values["mean"][0][position]), math.sqrt(max(0.0, float(values["variance"][0][position])))
    held = [x for x in draws if x.size]
    low = min([mean - REACH * deviation, *(float(x.min()) for x in held)])
    high = max([mean + REACH * deviation, *(float(x.max()) for x in held)])
    return LimitDensity(mean, deviation, reference.curve(variable, low, high) if deviation > 0 else None)

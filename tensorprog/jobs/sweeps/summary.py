"""A sweep in short: means over the repeats of each width beside the limit, and the rates fitted to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tensorprog.jobs.sweeps.design import Cell, Design, Setting
from tensorprog.jobs.sweeps.fields import LIMITS, NUMBERS
from tensorprog.jobs.sweeps.folder import Finished
from tensorprog.language.errors import ProgramError
from tensorprog.results.comparison import Comparison, Row, quantity
from tensorprog.results.rates import NO_RATE, Rate, rate_of

__all__ = ["Summary", "mean_of", "summaries"]

NAMES = {"kl_precise": "precise KL", "kl": "KL", "ks": "KS", "w1": "W1", "energy": "energy"}  # as tables name them
TABLED = tuple(name for name in ("kl_precise", "kl", "ks", "w1") if name in NUMBERS)  # in tables
SUMS = ("n", "effective")
MISFIT = 0.01  # p-value of a fit below which a pure power is not what there is


@dataclass(frozen=True)
class Rates:
    """The rates of the distances of one variable, and why others have none."""

    power: dict[str, Rate] = field(default_factory=dict)
    corrected: dict[str, Rate] = field(default_factory=dict)  # with a factor exp(c / n), where a misfit could be seen
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """One setting: a comparison per width whose rows are means over the repeats."""

    setting: Setting
    refused: str  # why there is no limit of all or some variables
    comparisons: tuple[Comparison, ...]
    rates: dict[str, Rates]  # of each variable

    @property
    def has_limit(self) -> bool:
        """Whether the first variable has a limit to compare with."""
        return math.isfinite(self.comparisons[0].rows[0].limit_variance)

    def to_json(self) -> dict[str, Any]:
        """Constants swept, rows and rates; None for numbers that do not exist."""
        rows = [{"width": comparison.width, **row.to_json()} for comparison in self.comparisons
                for row in comparison.rows]
        return {"constants": dict(self.setting.values), "no_limit": self.refused or None, "rows": rows,
                "rates": {variable: _json(found.power) for variable, found in self.rates.items()},
                "corrected_rates": {variable: _json(found.corrected) for variable, found in self.rates.items()},
                "no_rates": {variable: found.missing for variable, found in self.rates.items()}}

    def falls(self, variable: str) -> Iterator[str]:
        """The rates as text; the corrected one too where a pure power does not fit, and why there is none."""
        rates = self.rates[variable]
        for name, found in rates.power.items():
            if name in TABLED:
                yield f"{NAMES[name]} falls as {found}"
                if found.p < MISFIT and name in rates.corrected:
                    yield f"{NAMES[name]} falls as {rates.corrected[name]}"
        if len(self.comparisons) > 1:
            for reason in dict.fromkeys(rates.missing.values()):
                names = [NAMES[name] for name, why in rates.missing.items() if why == reason and name in TABLED]
                if names:
                    yield f"no rate of {', '.join(names)}: {reason}"

    def table(self, variable: str, figures: int = 2) -> tuple[list[str], list[list[str]]]:
        """Header and cells of one variable, the limit last if there is one."""
        rows = [comparison[variable] for comparison in self.comparisons]
        distances = [name for name in TABLED if any(math.isfinite(getattr(row, name)) for row in rows)]
        names = ["variance", "kurtosis", *distances]
        header = ["n", *(NAMES.get(name, name) for name in names)]
        cells = [[str(comparison.width), *(quantity(getattr(row, name), getattr(row, f"{name}_se"), figures)
                                           for name in names)]
                 for comparison, row in zip(self.comparisons, rows, strict=True)]
        if math.isfinite(rows[0].limit_variance):
            limit = [quantity(getattr(rows[0], f"limit_{name}"), getattr(rows[0], f"limit_{name}_error"), figures)
                     for name in names[:2]]
            cells.append(["limit", *limit, *[""] * len(distances)])
        return header, cells


def _json(rates: dict[str, Rate]) -> dict[str, dict[str, Any]]:
    return {name: rate.to_json() for name, rate in rates.items()}


def summaries(design: Design, cells: dict[Cell, Finished]) -> Iterator[Summary]:
    """One summary per setting, in the order of the values given."""
    for setting in design.settings:
        done = [[cells[Cell(setting, width, repeat)] for repeat in range(design.repeats)] for width in design.width]
        comparisons = tuple(
            Comparison(tuple(mean_of([found.numbers[variable] for found in repeats], variable)
                             for variable in design.variables),
                       width, "limit", design.base.name)
            for width, repeats in zip(design.width, done, strict=True))
        if not math.isfinite(comparisons[0].rows[0].limit_variance):
            comparisons = tuple(replace(comparison, reference="nothing") for comparison in comparisons)
        rates = {variable: _rates(design.width, [[found.numbers[variable] for found in repeats] for repeats in done])
                 for variable in design.variables}
        yield Summary(setting, done[0][0].refused, comparisons, rates)


def mean_of(repeats: Sequence[Mapping[str, float | None]], variable: str) -> Row:
    """Means of the fields over the repeats, with their standard errors; nan for what a mean does not say."""
    numbers = {name: np.array([repeat[name] for repeat in repeats], dtype=np.float64) for name in NUMBERS}
    means: dict[str, Any] = dict.fromkeys(NUMBERS, math.nan)
    for name, values in numbers.items():
        if name in SUMS:
            means[name] = values.sum()
        elif name in LIMITS:
            means[name] = float(values[0])
        elif name.endswith("_floor"):
            means[name] = float(values.mean())
        elif (error := f"{name}_se") in numbers:
            means[name] = float(values.mean())
            scatter = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else numbers[error][0]
            means[error] = float(scatter)
    return Row(variable=variable, **means | {"n": int(means["n"])})


def _rates(width: Sequence[int], numbers: Sequence[Sequence[Any]]) -> Rates:
    """Fit every distance that there is.

    Shapes    width (K,); numbers (K, R), fields by name
    """
    arrays = {name: np.array([[repeat[name] for repeat in repeats] for repeats in numbers], dtype=np.float64)
              for name in NUMBERS}
    found = Rates()
    for name in NAMES:
        if name not in NUMBERS or not np.isfinite(arrays[name]).any():
            continue
        try:
            found.power[name] = rate_of(name, width, arrays)
        except ProgramError as error:  # too few widths, or they are within noise
            found.missing[name] = str(error).removeprefix(NO_RATE)
            continue
        with suppress(ProgramError):
            corrected = rate_of(name, width, arrays, corrected=True)
            if corrected.degrees:
                found.corrected[name] = corrected
    return found

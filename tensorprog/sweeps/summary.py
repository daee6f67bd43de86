"""A sweep in short: means over the repeats of each width beside the limit, and the rates fitted to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorprog.comparison import Comparison, Row, quantity
from tensorprog.errors import ProgramError
from tensorprog.rates import Rate, fit
from tensorprog.sweeps.cells import Numbers
from tensorprog.sweeps.design import Cell, Design, Setting
from tensorprog.sweeps.fields import LIMITS, NUMBERS
from tensorprog.sweeps.folder import Finished

__all__ = ["Summary", "summaries"]

NAMES = {"kl_precise": "precise KL", "kl": "KL", "ks": "KS", "w1": "W1", "energy": "energy"}  # as tables name them
TABLED = tuple(name for name in ("kl_precise", "kl", "ks", "w1") if name in NUMBERS)  # in tables
SUMS = ("n", "effective")
MISFIT = 0.01  # p-value of a fit below which a pure power is not what there is


@dataclass(frozen=True)
class Summary:
    """One setting: a comparison per width whose rows are means over the repeats."""

    setting: Setting
    refused: str  # why there is no limit of all or some variables
    comparisons: tuple[Comparison, ...]
    rates: dict[str, dict[str, Rate]]  # variable -> distance -> rate, where one can be fitted
    corrected: dict[str, dict[str, Rate]]  # with a factor exp(c / n), where a misfit could be seen

    @property
    def has_limit(self) -> bool:
        """Whether the first variable has a limit to compare with."""
        return math.isfinite(self.comparisons[0].rows[0].limit_variance)

    def to_json(self) -> dict[str, Any]:
        """Constants swept, rows and rates; None for numbers that do not exist."""
        rows = [{"width": comparison.width, **row.to_json()} for comparison in self.comparisons
                for row in comparison.rows]
        return {"constants": dict(self.setting.values), "no_limit": self.refused or None, "rows": rows,
                "rates": _json(self.rates), "corrected_rates": _json(self.corrected)}

    def falls(self, variable: str) -> Iterator[str]:
        """The rates as text; the corrected one too where a pure power does not fit."""
        for name, found in self.rates[variable].items():
            if name in TABLED:
                yield f"{NAMES[name]} falls as {found}"
                if found.p < MISFIT and name in self.corrected[variable]:
                    yield f"{NAMES[name]} falls as {self.corrected[variable][name]}"

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


def _json(rates: dict[str, dict[str, Rate]]) -> dict[str, dict[str, Any]]:
    return {variable: {name: rate.to_json() for name, rate in found.items()} for variable, found in rates.items()}


def summaries(design: Design, cells: dict[Cell, Finished]) -> Iterator[Summary]:
    """One summary per setting, in the order of the values given."""
    for setting in design.settings:
        done = [[cells[Cell(setting, width, repeat)] for repeat in range(design.repeats)] for width in design.width]
        comparisons = tuple(
            Comparison(tuple(_mean([found.numbers for found in repeats], variable) for variable in design.variables),
                       width, "limit", design.base.name)
            for width, repeats in zip(design.width, done, strict=True))
        if not math.isfinite(comparisons[0].rows[0].limit_variance):
            comparisons = tuple(replace(comparison, reference="nothing") for comparison in comparisons)
        numbers = {variable: [[found.numbers[variable] for found in repeats] for repeats in done]
                   for variable in design.variables}
        rates, corrected = ({variable: dict(_rates(design.width, found, more)) for variable, found in numbers.items()}
                            for more in (False, True))
        yield Summary(setting, done[0][0].refused, comparisons, rates, corrected)


def _mean(repeats: Sequence[Numbers], variable: str) -> Row:
    """Means over the repeats, with the standard errors of these means; nan for what a mean does not say."""
    numbers = {name: np.array([repeat[variable][name] for repeat in repeats], dtype=np.float64) for name in NUMBERS}
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


def _rates(width: Sequence[int], numbers: Sequence[Sequence[Any]], corrected: bool) -> Iterator[tuple[str, Rate]]:
    for name in NAMES:
        if name in NUMBERS:
            values, errors, floors = (
                np.array([[repeat.get(key, 0.0) for repeat in repeats] for repeats in numbers], dtype=np.float64)
                for key in (name, f"{name}_se", f"{name}_floor"))
            with suppress(ProgramError):  # too few widths, or all of them within noise
                found = fit(width, values, errors, floors, corrected)
                if found.degrees or not corrected:
                    yield name, found

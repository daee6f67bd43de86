"""What a sweep found: an xarray Dataset with labelled axes, rows of a table, means and the rates fitted to them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Grid
from tensorprog.finite.workers import libraries
from tensorprog.jobs.sweeps.cells import Finished
from tensorprog.jobs.sweeps.design import LIMITS, NUMBERS, Cell, Design, Setting, described
from tensorprog.language.errors import ProgramError, need_xarray
from tensorprog.language.samples import program_text
from tensorprog.results.comparison import HEADINGS, Comparison, Row
from tensorprog.results.rates import NO_RATE, Rate, rate_of

__all__ = ["Summary", "dataset", "mean_of", "netcdf", "summaries", "tables", "tidy"]

Array = NDArray[Any]

MAX_INT32 = 2**31 - 1  # the largest whole number that netCDF 3 holds


def tables(design: Design, cells: Mapping[Cell, Finished]) -> dict[str, Array]:
    """The numbers of all cells by name; nan where a number does not exist.

    Shapes    (*constants, width, repeat, variable)
    """
    sizes = (*(len(values) for _, values in design.over), len(design.width), design.repeats, len(design.variables))
    found = {name: np.full(sizes, math.nan) for name in NUMBERS}
    for cell, done in cells.items():
        place = (*cell.setting.position, design.width.index(cell.width), cell.repeat)
        for name, array in found.items():
            array[place] = np.array([done.numbers[variable][name] for variable in design.variables], dtype=np.float64)
    return found


def dataset(design: Design, cells: Mapping[Cell, Finished], numbers: Mapping[str, Array]) -> Any:
    """An xarray.Dataset of all cells; it holds no times, dates or names of machines, so that equal sweeps are equal.

    Shapes    (*constants, width, repeat, variable); numbers of limits (*constants, variable)
    """
    axes = (*design.names, "width", "repeat", "variable")
    data: dict[str, Any] = {
        name: ((*design.names, "variable"), array[..., 0, 0, :], described(name))
        if name in LIMITS
        else (axes, array, described(name))
        for name, array in numbers.items()
    }
    return need_xarray("sweeps").Dataset(data, _coordinates(design), _attributes(design, cells))


def _coordinates(design: Design) -> dict[str, Any]:
    coordinates: dict[str, Any] = {
        name: (name, _axis(values), {"long_name": f"constant {name}"}) for name, values in design.over
    }
    return coordinates | {
        "width": ("width", _axis(design.width), {"long_name": "width n"}),
        "repeat": ("repeat", _axis(range(design.repeats)), {"long_name": "repeat, with networks of its own"}),
        "variable": ("variable", np.array(design.variables), {"long_name": "member of a family"}),
    }


def _axis(values: Any) -> NDArray[Any]:
    listed = list(values)
    whole = all(isinstance(value, int) and abs(value) <= MAX_INT32 for value in listed)
    return np.array(listed, dtype=np.int32 if whole else np.float64)


def _attributes(design: Design, cells: Mapping[Cell, Finished]) -> dict[str, Any]:
    refused = {
        str(cell.setting): done.refused
        for cell, done in sorted(cells.items(), key=lambda item: item[0].setting.position)
        if done.refused
    }
    attributes: dict[str, Any] = {
        "title": f"{design.base.name}: finite widths against the limit",
        "program_name": design.base.name,
        "program": program_text(design.base),
        "command": design.command,
        "samples": design.samples if design.samples <= MAX_INT32 else str(design.samples),
        "seed": str(design.seed),
        "versions": json.dumps(libraries()),
        "kl_source": "Sakai et al. 2025 (arXiv 2506.00846), Sec. 5.1: kernel estimates on 500 points",
    }
    return attributes | ({"no_limit": json.dumps(refused)} if refused else {})


def netcdf(found: Any) -> bytes:
    """A Dataset as a netCDF file of version 3, which needs no further library."""
    return bytes(found.to_netcdf(engine="scipy"))


def tidy(found: Any) -> str:
    """A Dataset as CSV with one line for each cell and variable; numbers that do not exist are empty."""
    frame = found.to_dataframe(dim_order=list(found["samples"].dims)).astype({"samples": int})
    return str(frame.to_csv(columns=list(NUMBERS), lineterminator="\n"))


# ---- means and rates ------------------------------------------------------------------------------------------------


DISTANCES = ("kl_precise", "kl", "ks")
SUMS = ("samples", "effective")


@dataclass(frozen=True)
class Rates:
    """The rates of the distances of one variable, and why others have none."""

    power: dict[str, Rate] = field(default_factory=dict)
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
        rows = [
            {"width": comparison.width, **row.to_json()} for comparison in self.comparisons for row in comparison.rows
        ]
        return {
            "constants": dict(self.setting.values),
            "no_limit": self.refused or None,
            "rows": rows,
            "rates": {variable: _json(found.power) for variable, found in self.rates.items()},
            "no_rates": {variable: found.missing for variable, found in self.rates.items()},
        }

    def falls(self, variable: str) -> Iterator[str]:
        """The rates as text, and why there is none."""
        rates = self.rates[variable]
        for name, found in rates.power.items():
            yield f"{HEADINGS[name]} falls as {found}"
        if len(self.comparisons) > 1:
            for reason in dict.fromkeys(rates.missing.values()):
                names = [HEADINGS[name] for name, why in rates.missing.items() if why == reason]
                yield f"no rate of {', '.join(names)}: {reason}"

    def block(self, variable: str, title: str, note: str) -> Grid:
        """The table of one variable, the limit last if there is one, with the rates below."""
        rows = [comparison[variable] for comparison in self.comparisons]
        names = [
            "variance",
            "kurtosis",
            *(name for name in DISTANCES if any(math.isfinite(getattr(row, name)) for row in rows)),
        ]
        cells = [
            (str(comparison.width), *row.cells(names)) for comparison, row in zip(self.comparisons, rows, strict=True)
        ]
        limited = math.isfinite(rows[0].limit_variance)
        cells += [("limit", *rows[0].limit_cells(names))] if limited else []
        notes = [note, *self.falls(variable), *([f"no limit: {self.refused}"] if self.refused else [])]
        header = ("n", *(HEADINGS[name] for name in names))
        marked = (len(cells) - 1,) if limited else ()
        return Grid(title, header, tuple(cells), "\n".join(notes), marked)


def _json(rates: dict[str, Rate]) -> dict[str, dict[str, Any]]:
    return {name: rate.to_json() for name, rate in rates.items()}


def summaries(design: Design, cells: Mapping[Cell, Finished], numbers: Mapping[str, Array]) -> Iterator[Summary]:
    """One summary per setting, in the order of the values given."""
    for setting in design.settings:
        of = {
            variable: {name: array[setting.position][..., k] for name, array in numbers.items()}
            for k, variable in enumerate(design.variables)
        }
        rows = [
            tuple(
                mean_of({name: array[k] for name, array in arrays.items()}, variable) for variable, arrays in of.items()
            )
            for k in range(len(design.width))
        ]
        reference = "limit" if math.isfinite(rows[0][0].limit_variance) else "nothing"
        comparisons = tuple(
            Comparison(row, width, reference, design.base.name) for width, row in zip(design.width, rows, strict=True)
        )
        rates = {variable: _rates(design.width, arrays) for variable, arrays in of.items()}
        yield Summary(setting, cells[Cell(setting, design.width[0], 0)].refused, comparisons, rates)


def mean_of(numbers: Mapping[str, Array], variable: str) -> Row:
    """Means of the fields over the repeats, with their standard errors; nan for what a mean does not say.

    Shapes    (R,)
    """
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
    return Row(variable=variable, **means | {"samples": int(means["samples"])})


def _rates(width: Sequence[int], numbers: Mapping[str, Array]) -> Rates:
    """Fit every distance that there is.

    Shapes    width (K,); numbers (K, R)
    """
    found = Rates()
    for name in DISTANCES:
        if not np.isfinite(numbers[name]).any():
            continue
        try:
            found.power[name] = rate_of(name, width, numbers)
        except ProgramError as error:  # too few widths, or they are within noise
            found.missing[name] = str(error).removeprefix(NO_RATE)
    return found

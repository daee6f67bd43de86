"""The numbers of a sweep as an xarray Dataset with labelled axes, and as rows of a table."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.workers import libraries
from tensorprog.jobs.sweeps.cells import Numbers
from tensorprog.jobs.sweeps.design import Cell, Design
from tensorprog.jobs.sweeps.fields import LIMITS, NUMBERS, described
from tensorprog.jobs.sweeps.folder import Finished
from tensorprog.language.errors import Problem, TensorprogError
from tensorprog.language.files import partial_name, writing
from tensorprog.language.samples import program_text

__all__ = ["SweepsUnavailableError", "dataset", "need_xarray", "netcdf", "tidy", "write_zarr"]

MAX_INT32 = 2**31 - 1  # the largest whole number that netCDF 3 holds


class SweepsUnavailableError(TensorprogError):
    """xarray is not installed."""


def need_xarray() -> Any:
    """The module.

    Raises    SweepsUnavailableError
    """
    try:
        import xarray
    except ImportError:
        message = str(Problem("sweeps need the package xarray", fix='pip install "tensorprog[sweep]"'))
        raise SweepsUnavailableError(message) from None
    return xarray


def dataset(design: Design, cells: Mapping[Cell, Finished]) -> Any:
    """An xarray.Dataset of all cells; it holds no times, dates or names of machines, so that equal sweeps are equal.

    Shapes    (*constants, width, repeat, variable); numbers of limits (*constants, variable)
    """
    axes = (*design.names, "width", "repeat", "variable")
    sizes = (*design.shape, len(design.width), design.repeats, len(design.variables))
    arrays = {name: np.full(sizes, math.nan) for name in NUMBERS}
    for cell, done in cells.items():
        place = (*cell.setting.position, design.width.index(cell.width), cell.repeat)
        for name, array in arrays.items():
            array[place] = [_number(done.numbers, variable, name) for variable in design.variables]
    data: dict[str, Any] = {}
    for name, array in arrays.items():
        limit = name in LIMITS
        data[name] = ((*design.names, "variable"), array[..., 0, 0, :], described(name)) if limit else (
            axes, array, described(name))
    return need_xarray().Dataset(data, _coordinates(design), _attributes(design, cells))


def _number(numbers: Numbers, variable: str, name: str) -> float:
    value = numbers[variable][name]
    return math.nan if value is None else float(value)


def _coordinates(design: Design) -> dict[str, Any]:
    coordinates: dict[str, Any] = {name: (name, _axis(values), {"long_name": f"constant {name}"})
                                   for name, values in design.over}
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
    refused = {str(cell.setting): done.refused for cell, done in sorted(
        cells.items(), key=lambda item: item[0].setting.position) if done.refused}
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


def write_zarr(found: Any, path: Path) -> None:
    """A Dataset as a folder in the format zarr; an older one is replaced when the new one is complete.

    Raises    SweepsUnavailableError
    """
    if find_spec("zarr") is None:
        raise SweepsUnavailableError(str(Problem("this needs the package zarr", fix="pip install zarr")))
    partial = partial_name(path)
    with writing(path):
        found.to_zarr(partial, mode="w", zarr_format=2)
        shutil.rmtree(path, ignore_errors=True)
        partial.rename(path)


def tidy(design: Design, cells: Mapping[Cell, Finished]) -> str:
    """CSV with one line for each cell and variable; numbers that do not exist are empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*design.names, "width", "repeat", "variable", *NUMBERS])
    writer.writerows(_lines(design, cells))
    return stream.getvalue()


def _lines(design: Design, cells: Mapping[Cell, Finished]) -> Iterator[list[Any]]:
    def place(cell: Cell) -> tuple[Any, ...]:
        return cell.setting.position, design.width.index(cell.width), cell.repeat

    for cell in sorted(cells, key=place):
        for variable in design.variables:
            found = cells[cell].numbers[variable]
            head = [value for _, value in cell.setting.values]
            yield [*head, cell.width, cell.repeat, variable,
                   *("" if found[name] is None else repr(found[name]) for name in NUMBERS)]

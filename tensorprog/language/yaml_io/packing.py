"""A program with its tables, for archives that must not depend on other files: `pack`, `read_tables` and `unpack`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.expr import Expr
from tensorprog.language.ir import ConstantDef, Draft, Initial, Netsor, Table
from tensorprog.language.yaml_io.data import DataError, read_npy
from tensorprog.language.yaml_io.program import loads
from tensorprog.language.yaml_io.writing import dump

__all__ = ["pack", "read_tables", "unpack"]

FOLDER = "tables/"  # of an archive
SMALL = 100  # numbers of a table that stays in the text, if it was not read from a file


def pack(netsor: Netsor) -> tuple[str, dict[str, NDArray[np.float64]]]:
    """The program's text, and the numbers of the tables that the text only names, by 'tables/' and the name.

    Tables that were not read from a file get the name of one, if they are large.
    """
    taken = {table.file for table in netsor.tables.values()}
    named = {name: _named(name, table, taken) for name, table in netsor.tables.items()}
    arrays: dict[str, NDArray[np.float64]] = {}
    for table in named.values():  # a .csv file of one line may be a vector here, a matrix there
        known = arrays.get(FOLDER + table.file)
        if table.file and (known is None or known.ndim < len(table.shape)):
            arrays[FOLDER + table.file] = table.array
    return dump(_with_tables(netsor, named)), arrays


def unpack(text: str, arrays: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Netsor:
    """The program of what `pack` gave; `overrides` replace scalar constants.

    Raises    ProgramError
    """
    return loads(text, overrides, base={name.removeprefix(FOLDER): array for name, array in arrays.items()})


def read_tables(archive: ZipFile) -> dict[str, NDArray[np.float64]]:
    """The arrays of `pack` in an archive that numpy.savez wrote.

    Raises    DataError for arrays that are too large, or none of plain numbers
    """
    arrays = {}
    for entry in archive.infolist():
        if entry.filename.startswith(FOLDER):
            with archive.open(entry) as stream:
                try:
                    arrays[entry.filename.removesuffix(".npy")] = read_npy(stream, entry.file_size)
                except DataError as error:
                    raise DataError(f"{entry.filename} {error}") from None
    return arrays


def _named(name: str, table: Table, taken: set[str]) -> Table:
    """The table, with the name of a file if it is too large for a text."""
    if table.file or math.prod(table.shape) <= SMALL:
        return table
    file = f"{name}.npy"
    while file in taken:
        file = f"_{file}"
    return replace(table, file=file)


def _with_tables(netsor: Netsor, tables: Mapping[str, Table]) -> Draft:
    """The program with other tables; they have the same numbers, so that nothing is validated again."""

    def constant(entry: ConstantDef) -> ConstantDef:
        return replace(entry, value=tables.get(entry.name, entry.value))

    def initial(entry: Initial) -> Initial:
        parts: dict[str, Expr | Table | None] = {"mean": entry.mean, "cov": entry.cov, "data": entry.data}
        found: dict[str, Any] = {part: tables.get(f"{entry.name}.{part}", value) for part, value in parts.items()}
        return replace(entry, **found)

    whole: dict[str, Any] = {part.name: getattr(netsor, part.name) for part in fields(netsor) if part.init}
    whole["constants"] = tuple(map(constant, netsor.constants))
    whole["initial"] = tuple(map(initial, netsor.initial))
    return Draft(**whole)

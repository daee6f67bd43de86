"""A program to text: `dump`, `shown` for those to read that no file could hold, and `pack` for archives.

What is packed depends on no other file: the text, and the numbers of the tables that it names; `unpack` reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.data_files import DataError, read_npy
from tensorprog.language.errors import ProgramError, fail
from tensorprog.language.expr import Expr
from tensorprog.language.formats import label
from tensorprog.language.ir import ConstantDef, Draft, Index, Initial, Netsor, Table, Weight
from tensorprog.language.reading import MAX_NODES, MAX_TEXT, loads
from tensorprog.language.schema import SHORT, options_of

FOLDER = "tables/"  # of an archive
SMALL = 100  # numbers of a table that stays in the text, if it was not read from a file


def dump(netsor: Draft, schema: str = "") -> str:
    """The program as a file: `loads(dump(x)) == x`; tables read from files are written as the names of the files.

    With `schema`, the path of `program.schema.json`, the first line tells editors to check the file by it.
    Raises    ProgramError if a table is too large to be written out
    """
    written = dict(netsor.written)
    sections: list[tuple[str, list[tuple[str, str | list[str]]]]] = [
        ("constants", [(label(c.name, c.indices), _value(written.get(c.name, c.value))) for c in netsor.constants]),
        ("indices", [(index.name, _entry(index, "indices")) for index in netsor.indices]),
        ("widths", [(name, _scalar(text)) for name, _, text in netsor.widths]),
        ("fixed_widths", [(name, _scalar(written.get(name, str(size)))) for name, size in netsor.fixed_widths]),
        ("initial", [(label(v.name, v.indices), _entry(v, "initial")) for v in netsor.initial]),
        ("weights", [(label(w.name, w.indices), _entry(w, "weights")) for w in netsor.weights]),
    ]
    lines = [f"# yaml-language-server: $schema={schema}"] * bool(schema) + [f"program: {_scalar(netsor.name)}"]
    texts = {"title": netsor.title, "reference": netsor.reference}
    lines += [f"{key}: {_scalar(text, False)}" for key, text in texts.items() if text]
    for name, entries in sections:
        if entries:
            flow = name in ("constants", "indices", "widths", "fixed_widths")
            lines += _section(name, entries, flow)
    lines.append("body:")
    targets = [str(statement.target) for statement in netsor.body]
    column = max((len(target) for target in targets if len(target) <= 30), default=0)
    for target, statement in zip(targets, netsor.body, strict=True):
        lines.append(f"  - {target:{column}} = {str(statement)[len(target) + 3 :]}")
    lines.append(f"outputs: [{', '.join(netsor.outputs)}]")
    for name, options in (("run", netsor.run), ("train", netsor.train)):
        if options:
            lines += _section(name, [(key, _value(value)) for key, value in options], True)
    text = "\n".join(lines) + "\n"
    if len(text) > MAX_TEXT or text.count(",") + text.count("\n") > MAX_NODES // 2:
        raise fail("the program is too large for a file", fix="give its tables as .npy files")
    return text


def shown(netsor: Netsor) -> str:
    """The program as a file, or its statements alone where a file could not hold it."""
    try:
        return dump(netsor)
    except ProgramError as error:
        return "\n".join(["body:", *(f"  - {s}" for s in netsor.body), "", f"not a whole file: {error}"])


def _scalar(text: str, flow: bool = True) -> str:
    """Text as a plain scalar where YAML allows that, else in double quotes."""
    text, forbidden = text.strip(), r"[,\[\]{}]|" if flow else ""
    plain = (
        text.isprintable()
        and text[:1] not in set("!&*?|>%@`\"'#,[]{}:=~")
        and not re.match(r"-(\s|$)|---|\.\.\.", text)
        and not re.search(forbidden + r":(\s|$)|\s#", text)
    )
    return text if text and plain else json.dumps(text, ensure_ascii=False)


def _section(name: str, entries: Sequence[tuple[str, str | list[str]]], flow: bool) -> list[str]:
    """One line `name: {...}` where that is short and simple, else one entry per line."""
    line = f"{name}: {{{', '.join(f'{key}: {value}' for key, value in entries)}}}"
    if flow and len(line) <= 100 and not any(isinstance(value, list) or "[" in key for key, value in entries):
        return [line]
    lines = [f"{name}:"]
    for key, value in entries:
        if isinstance(value, list):
            lines += [f"  {key}:", *(f"    {part}" for part in value)]
        else:
            lines.append(f"  {key}: {value}")
    return lines


def _rows(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_rows, values))}]"
    values = float(values)
    exact = values.is_integer() and abs(values) < 1e15 and not (values == 0 and math.copysign(1, values) < 0)
    return str(int(values)) if exact else repr(values)


def _table(table: Table) -> str | list[str]:
    if table.file:
        return _scalar(table.file)
    if math.prod(table.shape) > MAX_NODES // 2:
        raise fail(f"a table of shape {table.shape} is too large for a program file", fix="save it as a .npy file")
    values = table.array.tolist()
    return [f"- {_rows(row)}" for row in values] if len(table.shape) > 1 else _rows(values)


def _value(value: Any) -> str | list[str]:
    """A value as the text behind its key: numbers of a table, a list of texts, texts by name, or one text."""
    match value:
        case Table():
            return _table(value)
        case bool():
            return str(value).lower()
        case tuple((tuple(), *_)):
            return [f"{name}: {_scalar(text, flow=False)}" for name, text in value]
        case tuple():
            return f"[{', '.join(map(str, value))}]"
    return _scalar(str(value))


def _entry(record: Index | Initial | Weight, section: str) -> str | list[str]:
    """An entry with its options, below each other where one is a matrix."""
    shown = {key: _value(value) for key, value in options_of(record).items()}
    if [*shown] == [SHORT.get(section)]:
        return next(iter(shown.values()))
    if any(isinstance(value, list) for value in shown.values()):
        return [line[2:] for line in _section("", [*shown.items()], False)[1:]]
    return f"{{{', '.join(f'{key}: {value}' for key, value in shown.items())}}}"


# ---- archives -----------------------------------------------------------------------------------------------------


def pack(netsor: Netsor) -> tuple[str, dict[str, NDArray[np.float64]]]:
    """The program's text, and the numbers of the tables that the text only names, by 'tables/' and the name.

    Tables that were not read from a file get the name of one, if they are large.
    """
    taken = {table.file for table in netsor.tables.values()}
    named = {name: _with_file(name, table, taken) for name, table in netsor.tables.items()}
    arrays = {FOLDER + table.file: table.array for table in named.values() if table.file}
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


def _with_file(name: str, table: Table, taken: set[str]) -> Table:
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

    whole = {"constants": tuple(map(constant, netsor.constants)), "initial": tuple(map(initial, netsor.initial))}
    return Draft(**netsor.parts | whole)

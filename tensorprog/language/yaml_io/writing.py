"""A program to text: `dump`, and `shown` for those to read that no file could hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tensorprog.language.errors import ProgramError, fail
from tensorprog.language.expr import Expr
from tensorprog.language.ir import ConstantDef, Draft, Index, Initial, Netsor, Table, Weight
from tensorprog.language.yaml_io.nodes import MAX_NODES, MAX_TEXT


def dump(netsor: Draft, schema: str = "") -> str:
    """The program as a file: `loads(dump(x)) == x`; tables read from files are written as the names of the files.

    With `schema`, the path of `program.schema.json`, the first line tells editors to check the file by it.
    Raises    ProgramError if a table is too large to be written out
    """
    written = dict(netsor.written)
    sections: list[tuple[str, list[tuple[str, str | _Block]]]] = [
        ("constants", [(_family(c.name, c.indices), _constant(c, written)) for c in netsor.constants]),
        ("indices", [(index.name, _index(index)) for index in netsor.indices]),
        ("widths", [(name, _scalar(text)) for name, _, text in netsor.widths]),
        ("fixed_widths", [(name, _scalar(written.get(name, str(size)))) for name, size in netsor.fixed_widths]),
        ("initial", [(_family(v.name, v.indices), _initial(v)) for v in netsor.initial]),
        ("weights", [(_family(w.name, w.indices), _weight(w)) for w in netsor.weights]),
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
        lines.append(f"  - {target:{column}} = {str(statement)[len(target) + 3:]}")
    lines.append(f"outputs: [{', '.join(netsor.outputs)}]")
    options = [(key, _option(value)) for key, value in netsor.run]
    if options:
        lines += _section("run", options, True)
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


class _Block(list[str]):
    """Lines that stand indented below their key."""


def _scalar(text: str, flow: bool = True) -> str:
    """Text as a plain scalar where YAML allows that, else in double quotes."""
    text = text if text.strip() == text else text.strip()
    forbidden = r"[,\[\]{}]|" if flow else ""
    plain = (text.isprintable() and text[:1] not in set("!&*?|>%@`\"'#,[]{}:=~")
             and not re.match(r"-(\s|$)|---|\.\.\.", text) and not re.search(forbidden + r":(\s|$)|\s#", text))
    if text and plain:
        return text
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    return '"' + "".join(escapes.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in text) + '"'


def _family(name: str, indices: Sequence[str]) -> str:
    return f"{name}[{','.join(indices)}]" if indices else name


def _section(name: str, entries: Sequence[tuple[str, str | _Block]], flow: bool) -> list[str]:
    """One line `name: {...}` where that is short and simple, else one entry per line."""
    line = f"{name}: {{{', '.join(f'{key}: {value}' for key, value in entries)}}}"
    if flow and len(line) <= 100 and not any(isinstance(value, _Block) or "[" in key for key, value in entries):
        return [line]
    lines = [f"{name}:"]
    for key, value in entries:
        if isinstance(value, _Block):
            lines += [f"  {key}:", *(f"    {part}" for part in value)]
        else:
            lines.append(f"  {key}: {value}")
    return lines


def _number(value: float) -> str:
    exact = value.is_integer() and abs(value) < 1e15 and not (value == 0 and math.copysign(1, value) < 0)
    return str(int(value)) if exact else repr(value)


def _rows(values: Any) -> str:
    return f"[{', '.join(map(_rows, values))}]" if isinstance(values, list) else _number(float(values))


def _table(table: Table) -> str | _Block:
    if table.file:
        return _scalar(table.file)
    if math.prod(table.shape) > MAX_NODES // 2:
        raise fail(f"a table of shape {table.shape} is too large for a program file", fix="save it as a .npy file")
    values = table.array.tolist()
    return _Block(f"- {_rows(row)}" for row in values) if len(table.shape) > 1 else _rows(values)


def _constant(constant: ConstantDef, written: Mapping[str, str]) -> str | _Block:
    if isinstance(constant.value, Table):
        return _table(constant.value)
    if isinstance(constant.value, Expr):
        return _scalar(str(constant.value))
    return _scalar(written.get(constant.name, repr(constant.value)))


def _index(index: Index) -> str:
    plain = str(index.stop) if index.start == 0 else f"{index.start}..{index.stop - 1}"
    text = _scalar(index.text or plain)
    return f"{{size: {text}, boundary: {index.boundary}}}" if index.boundary else text


def _options(options: Sequence[tuple[str, str | _Block]]) -> str | _Block:
    """Options in braces, or below each other where one of them is a matrix."""
    if not any(isinstance(value, _Block) for _, value in options):
        return f"{{{', '.join(f'{key}: {value}' for key, value in options)}}}"
    lines = _section("", options, False)[1:]
    return _Block(line[2:] for line in lines)


def _value(value: Expr | Table) -> str | _Block:
    return _table(value) if isinstance(value, Table) else _scalar(str(value))


def _initial(initial: Initial) -> str | _Block:
    options: list[tuple[str, str | _Block]] = [("mean", _value(initial.mean))]
    if initial.data is not None:
        options += [("data", _table(initial.data)), ("variance", _value(initial.cov))]
    else:
        file = isinstance(initial.cov, Table) and initial.cov.file
        options.append(("gram" if file else "cov", _value(initial.cov)))
    if initial.width != "n":
        options.append(("width", initial.width))
    return _options(options)


def _weight(weight: Weight) -> str | _Block:
    variance = _value(weight.variance)
    if weight.shape == ("n", "n"):
        return variance
    return _options([("variance", variance), ("shape", f"[{', '.join(weight.shape)}]")])


def _option(value: Any) -> str | _Block:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return _Block(f"{name}: {_scalar(text, flow=False)}" for name, text in value)
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else _scalar(str(value))

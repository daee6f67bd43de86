"""Nodes to numbers: expressions, nested lists, and the names of data files."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tensorprog.language.entries import expression, scalar
from tensorprog.language.errors import Span, fail
from tensorprog.language.expr import Expr
from tensorprog.language.ir import Table
from tensorprog.language.yaml_io.data import DataError, read_array
from tensorprog.language.yaml_io.reader import Reader


def read_numbers(reader: Reader, node: Node, what: str) -> Expr | Table:
    """An expression, a list of numbers, or a file."""
    table = read_table(reader, node, what, 0)
    if table is not None:
        return table
    return expression(reader.value(node, what), reader.names, reader.inside(node))


def read_table(reader: Reader, node: Node, what: str, dimensions: int) -> Table | None:
    """Numbers of a nested list or of a file; None for any other text.  `dimensions` 0 leaves them open."""
    if isinstance(node, SequenceNode):
        return Table.of(_read_list(reader, node, what))
    if isinstance(node, MappingNode):
        options = reader.entries(node, "way to give numbers", {"file": 0})
        if "file" not in options:
            raise fail(f"{what}: expected {{file: ...}}", reader.span(node), "{file: numbers.npy}")
        return _read_file(reader, reader.value(options["file"], "file").strip(), what, dimensions, reader.span(node))
    text = str(node.value).strip()
    if re.search(r"\.(npy|npz|csv|txt|pkl|pickle|pt|tsv|h5|mat|json)$", text, re.IGNORECASE):
        return _read_file(reader, text, what, dimensions, reader.span(node))
    return None


def _read_list(reader: Reader, node: SequenceNode, what: str) -> list[Any]:
    values: list[Any] = []
    shapes = set()
    for item in node.value:
        if isinstance(item, SequenceNode):
            values.append(_read_list(reader, item, what))
            shapes.add(np.shape(values[-1]))
        elif isinstance(item, ScalarNode):
            number = scalar(item.value, reader.names, what, reader.span(item))
            values.append(number)
            shapes.add(())
        else:
            raise fail(f"{what}: a list holds numbers only", reader.span(item))
    if not values:
        raise fail(f"{what}: the list is empty", reader.span(node))
    if len(shapes) > 1:
        raise fail(f"{what}: the rows have different lengths", reader.span(node), "give every row the same length")
    return values


def _read_file(reader: Reader, name: str, what: str, dimensions: int, span: Span) -> Table:
    try:
        return Table.of(read_array(name, reader.base, dimensions), file=name)
    except DataError as error:
        raise fail(f"{what}: {name} {error}", span, error.fix) from None

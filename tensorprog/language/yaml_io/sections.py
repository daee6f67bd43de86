"""The declaring sections of a program file to records: constants, indices, widths, initial vectors and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tensorprog.language.entries import (
    check_sources,
    expression,
    make_index,
    make_name,
    plain_name,
    plain_number,
    scalar,
)
from tensorprog.language.errors import Span, did_you_mean, fail
from tensorprog.language.expr import Expr, Number
from tensorprog.language.ir import ConstantDef, Index, Initial, Table, Weight
from tensorprog.language.parse import Names
from tensorprog.language.schema import INITIAL_KEYS, WEIGHT_KEYS
from tensorprog.language.yaml_io.reader import Reader, first_word
from tensorprog.language.yaml_io.tables import read_numbers, read_table


class Declared(NamedTuple):
    """An entry that declares a family: its key as written, name and indices in it, value and position."""

    text: str
    name: str
    indices: tuple[str, ...]
    value: Node
    span: Span


def declared(reader: Reader, entries: Mapping[str, Node], keys: Mapping[str, Node], what: str) -> Iterator[Declared]:
    """The entries that can be read."""
    for text, value in entries.items():
        span, short = reader.span(keys[text]), text.split("[")[0].strip()
        if reader.touches(value, text):
            reader.broken.add(short)
            continue
        with reader.guard(span, short):
            name, indices = make_name(text, reader.names, what, reader.inside(keys[text]))
            yield Declared(text, name, indices, value, span)


def named(reader: Reader, node: Node | None, what: str, article: str) -> Iterator[tuple[str, str, Node, Span]]:
    """As `declared`, for entries without indices: key, name, value and position."""
    keys = reader.keys(node)
    for text, value in reader.entries(node, what).items():
        span = reader.span(keys[text])
        if reader.touches(value):
            reader.broken.add(first_word(text))
            continue
        with reader.guard(span, first_word(text)):
            yield text, plain_name(text, f"{article} {what}", span), value, span


def declare(reader: Reader, sections: Mapping[str, Node]) -> None:
    """Collect the names of constants and indices, so that texts can be read whatever their order."""
    constants, indices = (map(first_word, reader.keys(sections.get(section))) for section in ("constants", "indices"))
    reader.names = Names(dict.fromkeys(constants), frozenset(indices))


def read_constants(reader: Reader, node: Node | None, overrides: Mapping[str, Any]) -> list[ConstantDef]:
    """Constants that are numbers, each with the constants above it; `overrides` replace values."""
    entries = reader.entries(node, "constant")
    keys = reader.keys(node)
    scalars = [name for name in entries if "[" not in name]
    values: dict[str, int | float | None] = dict(reader.names.constants)
    given: dict[str, int | float] = {}
    for name, value in overrides.items():
        shown = f"{name}={value} (from --set or a keyword)" if isinstance(value, str | int | float) else (
            f"the value for {name} (from --set or a keyword)")
        if name not in scalars:
            indexed = next((key for key in entries if first_word(key) == name), None)
            fix = ("only constants that are numbers can be set" if indexed
                   else did_you_mean(name, scalars) or "the program declares no constants")
            kind = "an indexed" if indexed else "not a"
            reader.error(f"{shown}: {indexed or name} is {kind} constant of the program",
                         reader.span(keys[indexed]) if indexed else Span(reader.file), fix)
            continue
        number = plain_number(value) if isinstance(value, str) else value
        with reader.guard(Span(reader.file), name):
            if isinstance(number, bool) or not (hasattr(number, "__float__") or hasattr(number, "__index__")):
                raise fail(f"{shown}: {value!r} is not a number", fix=f"--set {name}=2, or {name}=2 in Python")
            given[name] = scalar(number, reader.names, shown)
    result = []
    for name in scalars:
        entry, span = entries[name], reader.span(keys[name])
        with reader.guard(reader.span(entry), name):
            known = plain_name(name, "a constant", span)
            if not isinstance(entry, ScalarNode):
                raise fail(f"{name} is a list, so it needs an index", span, f"{name}[i]: [..]")
            number = given.get(name)
            if number is None and reader.touches(entry):
                reader.broken.add(name)
                continue
            if number is None:
                number = scalar(reader.value(entry, name), Names(values, reader.names.indices), f"constant {name}",
                                reader.inside(entry))
            values[known] = number
            result.append(ConstantDef(known, number, (), span))
    reader.names = Names(values, reader.names.indices)
    return result


def read_written(
    reader: Reader, nodes: Iterable[Node | None], overrides: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """Texts of the constants and fixed widths that are not written as plain numbers."""
    texts = []
    for node in nodes:
        for name, (_, value) in reader.pairs(node).items():
            if isinstance(value, ScalarNode) and "[" not in name and name not in overrides and (
                    plain_number(value.value) is None):
                texts.append((name, value.value.strip()))
    return tuple(texts)


def read_tables(reader: Reader, node: Node | None) -> list[ConstantDef]:
    """Constants over indices: lists, expressions or files."""
    result = []
    entries = {text: value for text, (_, value) in reader.pairs(node).items() if "[" in text}
    for text, name, indices, entry, span in declared(reader, entries, reader.keys(node), "a constant"):
        short = text.split("[")[0].strip()
        with reader.guard(span, short):
            table = read_table(reader, entry, f"constant {text}", len(indices))
            value: Table | Expr = table if table is not None else expression(
                reader.value(entry, text), reader.names, reader.inside(entry))
            if isinstance(value, Number):
                raise fail(f"{text} is one number for all indices", span, f"{short}: {value}, without indices")
            result.append(ConstantDef(name, value, indices, span))
    return result


def read_indices(reader: Reader, node: Node | None) -> tuple[Index, ...]:
    """The section `indices`."""
    result = []
    for text, name, entry, span in named(reader, node, "index", "an"):
        with reader.guard(span, text):
            boundary, size = "", entry
            if isinstance(entry, MappingNode):
                options = reader.entries(entry, "option of an index", {"size": 0, "boundary": 0})
                if "size" not in options:
                    raise fail(f"index {text} has no size", span, f"{text}: {{size: 4, boundary: zero}}")
                size = options["size"]
                boundary = reader.value(options["boundary"], "boundary") if "boundary" in options else ""
            written = reader.value(size, f"the size of index {text}")
            result.append(make_index(name, written, boundary, reader.names, reader.inside(size)))
    return tuple(result)


def read_widths(reader: Reader, node: Node | None, make: Callable[[str, Any, Names, Span], Any]) -> tuple[Any, ...]:
    """The section `widths` or `fixed_widths`, whose records `make` makes."""
    result = []
    for text, name, entry, span in named(reader, node, "width", "a"):
        with reader.guard(span, text):
            result.append(make(name, reader.value(entry, f"width {text}"), reader.names, reader.inside(entry)))
    return tuple(result)


def read_initial(reader: Reader, node: Node | None) -> tuple[Initial, ...]:
    """The section `initial`."""
    result = []
    for _, name, indices, entry, span in declared(
            reader, reader.entries(node, "initial vector"), reader.keys(node), "initial vector"):
        with reader.guard(span, name):
            if not isinstance(entry, MappingNode):
                raise fail(f"initial vector {name} takes {{mean: ..., cov: ...}}", span,
                           f"{name}: {{mean: 0, cov: 1}}")
            options = reader.entries(entry, "option of an initial vector", INITIAL_KEYS)
            result.append(_one_initial(reader, name, indices, options, span))
    return tuple(result)


def _one_initial(
    reader: Reader, name: str, indices: tuple[str, ...], options: Mapping[str, Node], span: Span
) -> Initial:
    check_sources(name, options, "write cov: for the covariance", span)
    mean: Expr | Table = Number(0)
    if "mean" in options:
        mean = read_numbers(reader, options["mean"], f"the mean of {name}")
    data = None
    cov: Expr | Table = Number(1)
    if "data" in options:
        data = read_table(reader, options["data"], f"the data of {name}", 2)
        if data is None:
            raise fail(f"the data of {name} must be a matrix (members, d) or a file", span, "data: inputs.npy")
        if "variance" in options:
            cov = read_numbers(reader, options["variance"], f"the variance of {name}")
    elif "gram" in options:
        table = read_table(reader, options["gram"], f"the gram matrix of {name}", 0)
        if table is None:
            raise fail(f"the gram matrix of {name} must be a matrix or a file", span, "gram: gram.npy")
        cov = table
    elif "cov" in options:
        cov = read_numbers(reader, options["cov"], f"the cov of {name}")
    width = reader.value(options["width"], "width") if "width" in options else "n"
    return Initial(name, indices, mean, cov, data, width.strip(), span)


def read_weights(reader: Reader, node: Node | None) -> tuple[Weight, ...]:
    """The section `weights`."""
    result = []
    for _, name, indices, entry, span in declared(
            reader, reader.entries(node, "weight"), reader.keys(node), "weight"):
        with reader.guard(span, name):
            variance, shape = entry, ("n", "n")
            if isinstance(entry, MappingNode):
                options = reader.entries(entry, "option of a weight", WEIGHT_KEYS)
                if "shape" in options:
                    shape = _read_shape(reader, options["shape"], name)
                variance = options.get("variance", ScalarNode("", "1", entry.start_mark, entry.end_mark))
            text = reader.value(variance, f"the variance of {name}")
            value = expression(text, reader.names, reader.inside(variance))
            result.append(Weight(name, indices, value, shape, span))
    return tuple(result)


def _read_shape(reader: Reader, node: Node, name: str) -> tuple[str, str]:
    parts = node.value if isinstance(node, SequenceNode) else []
    texts = [part.value.strip() for part in parts if isinstance(part, ScalarNode)]
    if len(texts) != 2 or len(parts) != 2:
        raise fail(f"the shape of {name} is [rows, columns], two widths by name", reader.span(node), "shape: [d, n]")
    for text in texts:
        if plain_number(text) is not None:
            raise fail(f"the shape of {name} names widths, not numbers", reader.span(node),
                       f"fixed_widths: {{d: {text}}} and shape: [d, n]")
    return texts[0], texts[1]

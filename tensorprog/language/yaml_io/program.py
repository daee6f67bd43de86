"""Program files to programs: `load` and `loads`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tensorprog.language.entries import make_fixed, make_option, make_ratio, make_statement
from tensorprog.language.errors import ProgramError, Span, did_you_mean, fail, in_order
from tensorprog.language.ir import Draft, Netsor, Statement
from tensorprog.language.parse import parse_statement
from tensorprog.language.schema import RUN_KEYS, SECTIONS
from tensorprog.language.validity import MAX_STATEMENTS, problems_of
from tensorprog.language.yaml_io.nodes import MAX_TEXT, compose
from tensorprog.language.yaml_io.reader import Reader
from tensorprog.language.yaml_io.sections import (
    declare,
    read_constants,
    read_indices,
    read_initial,
    read_tables,
    read_weights,
    read_widths,
    read_written,
)


def load(
    source: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None, *, file: str | None = None
) -> Netsor:
    """Read the program file at a path; `overrides` replace scalar constants, `file` is the name shown in messages.

    Raises    ProgramError with every mistake found
    """
    path = Path(source)
    shown = os.fspath(source) if file is None else file
    try:
        if path.is_dir():
            raise fail(f"{shown} is a directory", fix="name a program file inside it")
        with path.open("rb") as stream:
            raw = stream.read(4 * MAX_TEXT + 1)
    except FileNotFoundError:
        folder = path.parent if path.parent.is_dir() else None
        near = [entry.name for entry in folder.glob("*.y*ml")] if folder else []
        hint = did_you_mean(path.name, sorted(near))
        raise fail(f"there is no file {shown}", fix=hint if "mean" in hint else "") from None
    except (OSError, ValueError) as error:
        raise fail(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        text = raw.decode("utf-8-sig") if len(raw) <= 4 * MAX_TEXT else "\n" * (MAX_TEXT + 1)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise fail("the file is not UTF-8 text", Span(shown, line), "save it with the encoding UTF-8") from None
    return loads(text, overrides, file=shown, base=path.parent)


def loads(
    text: str, overrides: Mapping[str, Any] | None = None, *, file: str = "<text>",
    base: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> Netsor:
    """As `load`, from text; data files are looked up below the folder `base`, or in arrays by their names."""
    folder = base if base is None or isinstance(base, Mapping) else Path(base)
    return read_program(Reader(text, file, folder), overrides or {})


def read_program(reader: Reader, overrides: Mapping[str, Any]) -> Netsor:
    """All sections, in an order that lets each one refer to those it needs.

    Raises    ProgramError with every mistake found
    """
    root = compose(reader.text, reader.file)
    if root is None:
        hint = "start from a shipped program; `tp list` names them"
        raise fail("the file is empty", Span(reader.file), hint)
    if not isinstance(root, MappingNode):
        raise fail("a program is a list of sections `name: ...`", reader.span(root), "program: name")
    sections = reader.entries(root, "section", SECTIONS)
    required = {"program": "program: name", "body": "body: and below it one `- name = Instruction(...)` per line",
                "outputs": "outputs: [y]"}
    for section, fix in required.items():
        if section not in sections:
            reader.error(f"the section {section}: is missing", Span(reader.file), fix)
            reader.broken.add("outputs")
    title = {key: reader.plain(sections.get(key), key) for key in ("program", "title", "reference")}
    declare(reader, sections)
    parts: dict[str, Any] = {
        "constants": read_constants(reader, sections.get("constants"), overrides),
        "indices": read_indices(reader, sections.get("indices")),
    }
    parts["constants"] += read_tables(reader, sections.get("constants"))
    parts["constants"] = tuple(sorted(parts["constants"], key=lambda c: (c.span.line, c.span.column)))
    parts["widths"] = read_widths(reader, sections.get("widths"), make_ratio)
    parts["fixed_widths"] = read_widths(reader, sections.get("fixed_widths"), make_fixed)
    parts["written"] = read_written(reader, (sections.get("constants"), sections.get("fixed_widths")), overrides)
    parts["initial"] = read_initial(reader, sections.get("initial"))
    parts["weights"] = read_weights(reader, sections.get("weights"))
    parts["body"] = read_body(reader, sections.get("body"))
    parts["outputs"] = read_outputs(reader, sections.get("outputs"))
    parts["run"] = read_run(reader, sections.get("run"))
    arguments = {"name": title["program"], "title": title["title"], "reference": title["reference"]} | parts
    if reader.problems:
        reader.problems += reader.placed(problems_of(Draft(**arguments), frozenset(reader.broken)))
        raise ProgramError(in_order(reader.problems))
    try:
        return Netsor(**arguments)
    except ProgramError as error:
        raise ProgramError(reader.placed(error.problems)) from None


def read_body(reader: Reader, node: Node | None) -> tuple[Statement, ...]:
    """The section `body`."""
    if node is None:
        return ()
    if not isinstance(node, SequenceNode):
        reader.error("body: is a list of statements", reader.span(node), "- u[i] = MatMul(W[i], h)")
        return ()
    if len(node.value) > MAX_STATEMENTS:
        reader.error(f"the body has {len(node.value)} statements, more than the {MAX_STATEMENTS} allowed",
                     reader.span(node), "use families: one statement for all members")
        reader.broken.add("outputs")
        return ()
    statements: list[Statement] = []
    for item in node.value:
        if not isinstance(item, ScalarNode):
            text = reader.span(item).text
            fix = ("quote the statement" if isinstance(item, SequenceNode) else
                   "no `: ` inside a statement" if "=" in text.split(":")[0] else "use `=`, not `:`")
            reader.error("each entry of body: is one statement `name[indices] = Instruction(...)`", reader.span(item),
                         fix)
            # its target is unknown, so every name in it may be the one it was to define
            reader.broken.update(re.findall(r"[^\W\d]\w*", reader.span(item).text)[:1])
            continue
        text = str(item.value)
        span = reader.inside(item, " ".join(text.split()))
        target = re.match(r"\s*([^\W\d]\w*)", text)
        name = target.group(1) if target else ""
        if name not in reader.broken and reader.mentions(text):
            reader.broken.add(name)
            continue
        with reader.guard(span, name):
            parsed = parse_statement(text, reader.names, span)
            statements.append(make_statement(parsed.target, parsed.instruction, parsed.args, parsed.keywords, span))
    return tuple(statements)


def read_outputs(reader: Reader, node: Node | None) -> tuple[str, ...]:
    """The section `outputs`."""
    result = []
    if node is not None and not (isinstance(node, SequenceNode) and node.value):
        reader.error("outputs: is a list of names", reader.span(node), "outputs: [y]")
        reader.broken.add("outputs")
    for item in node.value if isinstance(node, SequenceNode) else ():
        name = item.value.strip() if isinstance(item, ScalarNode) else ""
        if not name.isidentifier():
            reader.error(f"an output is the name of a whole family{f', not {name}' if name else ''}", reader.span(item),
                         name.split("[")[0] or "outputs: [y]")
            reader.broken.add("outputs")
            continue
        reader.places[name] = reader.span(item)
        result.append(name)
    return tuple(result)


def read_run(reader: Reader, node: Node | None) -> tuple[tuple[str, Any], ...]:
    """The section `run`."""
    result: list[tuple[str, Any]] = []
    for key, entry in reader.entries(node, "run option", RUN_KEYS).items():
        with reader.guard(reader.span(entry)):
            result.append((key, make_option(key, reader.data(entry, key), reader.span(entry), reader.names)))
    return tuple(result)

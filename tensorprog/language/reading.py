"""Program files to programs: `load` and `loads` read them; reading executes nothing, and mistakes are told together.

A file is data from somebody else.  The raw text is bounded before YAML sees it, YAML gives nothing but nodes with
their positions, scalars are read by the rules of YAML 1.2 as text, and numbers come from data files only after
path, size and header have been checked (`data_files`).  All mistakes of the first phase that has any are told: the form
of the file, numbers, declarations, statements, and the program as a whole (`validity`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tensorprog.language.data_files import DataError, read_array
from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, fail, refuse, shorten
from tensorprog.language.expr import Number
from tensorprog.language.ir import ConstantDef, Netsor, Statement, Table
from tensorprog.language.parse import Names, parse_statement
from tensorprog.language.schema import (
    MAKERS,
    OPTIONS,
    RUN_KEYS,
    SECTIONS,
    SHORT,
    TRAIN_KEYS,
    expression,
    kinds,
    make_fixed,
    make_name,
    make_option,
    make_ratio,
    make_statement,
    make_training,
    one_line,
    plain_number,
    scalar,
    take,
)
from tensorprog.language.validity import MAX_STATEMENTS

MAX_TEXT = 500_000  # characters of a program file
MAX_NEST = 12  # nested nodes
MAX_NODES = 50_000  # commas and lines
REQUIRED = {
    "program": "program: name",
    "body": "body: and below it one `- name = Instruction(...)` per line",
    "outputs": "outputs: [y]",
}
EXPLAINED = (  # parts of what YAML says, and the same in the words of a program's author
    ("<stream end>", "a bracket { or [ is never closed", "close it, one bracket for each opened"),
    (
        "expected ',' or",
        "inside {...} or [...] YAML cannot hold unquoted brackets or commas",
        'write "W[i]" in quotes, or give the section one entry per line without { }',
    ),
    ("'\\t'", "tabs cannot indent", "use spaces"),
    ("mapping values", "a second `: ` on one line, or wrong indentation", 'quote the text: title: "a: b"'),
    ("expected ':'", "this line does not fit the lines around it", "an entry is written `name: value`"),
    ("<block end>", "this line does not fit the lines around it", "check the indentation, and dashes of statements"),
    ("single document", "a file holds one program", "remove the second `---`"),
    ("are not allowed", "a character is not allowed in a program file", "remove it"),
)
DECLARING = {  # the sections of declarations, and what an entry of each is called
    "constants": "a constant",
    "indices": "an index",
    "widths": "a width",
    "fixed_widths": "a width",
    "initial": "an initial vector",
    "weights": "a weight",
}
OTHERWISE = {"optimizer": "gradient descent with momentum and decay, which is what is followed; tp exponents has Adam"}
OPTIONAL = {"run": RUN_KEYS, "train": TRAIN_KEYS}
Given = dict[str, tuple[Node, Node]]  # key and value by the text of the key


class _Loader(yaml.SafeLoader):
    """YAML's nodes without tags, anchors and aliases, with a bound on depth."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call, unused-ignore]
        self.depth += 1
        tagged = isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None)
        if tagged or self.depth > MAX_NEST:
            told = f"the file is nested more than {MAX_NEST} deep"
            told = "tags, anchors (&) and aliases (*) are not part of programs: nothing is executed" if tagged else told
            raise yaml.MarkedYAMLError(problem=told, problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def load(
    source: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None, *, file: str | None = None
) -> Netsor:
    """Read the program file at a path; `overrides` replace scalar constants, `file` is the name shown in messages.

    Raises    ProgramError with every mistake of the first phase that has any
    """
    path, shown = Path(source), os.fspath(source) if file is None else file
    try:
        with path.open("rb") as stream:
            raw = stream.read(4 * MAX_TEXT + 1)
    except (OSError, ValueError) as error:
        near = sorted(entry.name for entry in path.parent.glob("*.y*ml")) if isinstance(error, OSError) else []
        said = f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}"
        said = f"there is no file {shown}" if isinstance(error, FileNotFoundError) else said
        raise fail(said, fix=did_you_mean(path.name, near, "")) from None
    try:
        text = raw.decode("utf-8-sig") if len(raw) <= 4 * MAX_TEXT else "\n" * (MAX_TEXT + 1)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise fail("the file is not UTF-8 text", Span(shown, line), "save it with the encoding UTF-8") from None
    return loads(text, overrides, file=shown, base=path.parent)


def loads(
    text: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    file: str = "<text>",
    base: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> Netsor:
    """As `load`, from text; data files are looked up below the folder `base`, or in arrays by their names."""
    folder = base if base is None or isinstance(base, Mapping) else Path(base)
    return _FileReader(text, file, folder, overrides or {}).program(compose(text, file))


def compose(text: str, file: str) -> MappingNode:
    """Nodes of a YAML text.

    Raises    ProgramError at the first place where the text is not YAML as programs use it
    """
    if len(text) > MAX_TEXT or text.count(",") + text.count("\n") > MAX_NODES:
        said = f"the file has more than the {MAX_TEXT} characters or {MAX_NODES} entries allowed"
        raise fail(said, Span(file), "save large tables as .npy")
    try:
        root = yaml.compose(text, Loader=_Loader)  # type: ignore[no-untyped-call, unused-ignore]
    except (yaml.YAMLError, RecursionError, MemoryError) as error:
        context, problem = (str(getattr(error, part, None) or "") for part in ("context", "problem"))
        said = f"{context} {problem} {getattr(error, 'reason', '')}"
        known = [(message, fix) for part, message, fix in EXPLAINED if part in said]
        message, fix = known[0] if known else (problem or "this cannot be read as YAML", "`tp new` shows the form")
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = Span(file, text.count("\n", 0, getattr(error, "position", 0)) + 1)
        raise fail(message, _place(text.splitlines(), file, mark) if mark else line, fix) from None
    if not isinstance(root, MappingNode):
        hint = "program: name, as in the shipped programs, which `tp list` names"
        raise fail("the file is empty" if root is None else "a program is a list of sections", Span(file), hint)
    return root


def _place(lines: Sequence[str], file: str, mark: Any) -> Span:
    """A mark of YAML, with its line."""
    text = lines[mark.line].strip() if mark.line < len(lines) else ""
    return Span(file, mark.line + 1, mark.column + 1, shorten(text))


class _FileReader:
    """The sections of one file; problems are collected until the end of a phase."""

    def __init__(
        self, text: str, file: str, base: Path | Mapping[str, Any] | None, overrides: Mapping[str, Any]
    ) -> None:
        self.file, self.base, self.overrides = file, base, overrides
        self.lines = text.splitlines()
        self.problems: list[Problem] = []
        self.names = Names()

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def span(self, node: Node) -> Span:
        """Where a node, or the text of a scalar begins; column 0 where it is not one plain line."""
        span = _place(self.lines, self.file, node.start_mark)
        if not isinstance(node, ScalarNode):
            return span
        plain = node.style not in ("|", ">") and node.value in self.lines[span.line - 1]
        return replace(span, column=span.column + (node.style is not None) if plain else 0)

    @contextmanager
    def guard(self, node: Node) -> Iterator[None]:
        """Collect what goes wrong inside, at a node where it has no place yet."""
        try:
            yield
        except ProgramError as error:
            self.problems += [p if p.span.line else replace(p, span=self.span(node)) for p in error.problems]

    def each(self, section: str, given: Given, make: Callable[..., Any]) -> tuple[Any, ...]:
        """What is made of the entries of a section: from the name, the indices, the value and the place of each."""
        found = []
        for text, (key, value) in given.items():
            with self.guard(key):
                span = self.span(key)
                indexed = section in ("initial", "weights") or (section == "constants" and "[" in text)
                name, indices = make_name(text, self.names, DECLARING.get(section, section), span, indexed)
                found.append(make(section, name, indices, value, span))
        return tuple(found)

    def entries(self, node: Node | None, what: str, known: Collection[str] | None = None) -> Given:
        """Keys and values of a mapping by key; `known` lists the keys allowed."""
        if node is None or (isinstance(node, ScalarNode) and node.style is None and node.value in ("", "~", "null")):
            return {}
        if not isinstance(node, MappingNode):
            raise fail(f"{what} entries are written `name: value`", self.span(node), "one per line, or {name: value}")
        found: Given = {}
        for key, value in node.value:
            name = key.value.strip() if isinstance(key, ScalarNode) else ""
            with self.guard(key):
                if not name or name == "<<":
                    raise fail("a key must be a name", fix='quote names with indices: "W[i]": 1')
                if known is not None and name not in known:
                    fix = OTHERWISE.get(name) or did_you_mean(name, list(known))
                    raise fail(f"there is no {what} {name}", fix=fix)
                if name in found:
                    raise fail(f"{name} is bound twice", fix="remove one of them, or give it another name")
                found[name] = key, value
        return found

    def value(self, node: Node, what: str) -> str:
        """Text of a scalar node."""
        if not isinstance(node, ScalarNode) or not node.value.strip():
            empty = "empty" if isinstance(node, ScalarNode) else "a number or an expression, and no list"
            raise fail(f"{what} is {empty}", self.span(node), "give it one value")
        return str(node.value)

    def data(self, node: Node, what: str) -> Any:
        """Texts, lists and dictionaries of a node."""
        if isinstance(node, SequenceNode):
            return [self.data(item, what) for item in node.value]
        if isinstance(node, MappingNode):
            return {key: self.data(value, what) for key, (_, value) in self.entries(node, what).items()}
        return self.value(node, what)

    def table(self, node: Node, what: str) -> Table | None:
        """Numbers of a nested list or of a file; None for any other text."""

        def listed(item: Node) -> Any:
            if isinstance(item, SequenceNode):
                return [listed(entry) for entry in item.value]
            return scalar(self.value(item, what), self.names, what, self.span(item))

        span = self.span(node)
        if isinstance(node, SequenceNode):
            numbers = listed(node)
            try:
                array = np.array(numbers, dtype=float)
            except ValueError:
                raise fail(f"{what}: the rows have different lengths", span) from None
            if not array.size:
                raise fail(f"{what}: the list is empty", span)
            return Table.of(array)
        given = self.entries(node, "way to give numbers", ("file",)) if isinstance(node, MappingNode) else {}
        name = self.value(given["file"][1] if given else node, what).strip()
        if not given and not re.search(r"\.(npy|npz|csv|txt|pkl|pickle|pt|tsv|h5|mat|json)$", name, re.IGNORECASE):
            return None
        try:
            return Table.of(read_array(name, self.base), file=name)
        except DataError as error:
            raise fail(f"{what}: {name} {error}", span, error.fix) from None

    # -- sections ------------------------------------------------------------------------------------------------------

    def program(self, root: MappingNode) -> Netsor:
        """All sections, in an order that lets each one refer to those it needs."""
        sections = {name: value for name, (_, value) in self.entries(root, "section", SECTIONS).items()}
        missing = [] if self.problems else [name for name in REQUIRED if name not in sections]
        self.problems += [Problem(f"the section {n}: is missing", Span(self.file), REQUIRED[n]) for n in missing]
        refuse(self.problems)
        given = {key: self.entries(sections.get(key), f"entry of {key}") for key in DECLARING}
        given |= {key: self.entries(sections.get(key), f"{key} option", OPTIONAL[key]) for key in OPTIONAL}
        parts: dict[str, Any] = {"places": {}}
        for key, part in (("program", "name"), ("title", "title"), ("reference", "reference")):
            node = sections.get(key)
            with self.guard(node or root):
                if node is not None and (node.value or key == "program"):
                    parts[part] = one_line(self.value(node, key), key)
        refuse(self.problems)
        short = [re.split(r"\W", key, maxsplit=1)[0] for key in given["constants"]]
        self.names = Names(dict.fromkeys(short), frozenset(given["indices"]))
        tables = {key: entry for key, entry in given["constants"].items() if "[" in key}
        numbers = {key: entry for key, entry in given["constants"].items() if key not in tables}
        self.check_overrides(numbers)
        scalars = self.each("constants", numbers, self.constant)
        refuse(self.problems)
        parts["indices"] = self.each("indices", given["indices"], self.entry)
        refuse(self.problems)
        for section in ("widths", "fixed_widths"):
            parts["places"] |= {width: self.span(key) for width, (key, _) in given[section].items()}
            parts[section] = self.each(section, given[section], self.width)
        constants = [*scalars, *self.each("constants", tables, self.constant)]
        parts["constants"] = tuple(sorted(constants, key=lambda constant: (constant.span.line, constant.span.column)))
        parts["written"] = tuple(
            (key, value.value.strip())
            for key, (_, value) in {**numbers, **given["fixed_widths"]}.items()
            if key not in self.overrides and plain_number(value.value) is None
        )
        for section in ("initial", "weights", *OPTIONAL):
            make = self.default if section in OPTIONAL else self.entry
            parts[section] = self.each(section, given[section], make)
        with self.guard(sections["outputs"]):
            outputs = self.items(sections["outputs"], "outputs: is a list of names", "outputs: [y]")
            parts["places"] |= {self.value(item, "an output"): self.span(item) for item in outputs}
            parts["outputs"] = tuple(self.value(item, "an output").strip() for item in outputs)
        refuse(self.problems)
        body = self.items(sections["body"], "body: is a list of statements", "- u[i] = MatMul(W[i], h)")
        parts["body"] = self.body(body[: MAX_STATEMENTS + 1])
        refuse(self.problems)
        netsor = Netsor(**parts)
        self.trained(netsor, given["train"])
        refuse(self.problems)
        return netsor

    def items(self, node: Node, said: str, fix: str) -> list[Node]:
        """The entries of a list."""
        if not isinstance(node, SequenceNode) or not node.value:
            raise fail(said, self.span(node), fix)
        return list(node.value)

    def check_overrides(self, given: Given) -> None:
        """What replaces values of constants are numbers, by names of constants."""
        for name, value in self.overrides.items():
            if name not in given:
                fix = did_you_mean(name, list(given), "only constants that are numbers can be set")
                self.problems.append(Problem(f"{name} is not a constant of the program that is a number", fix=fix))
            elif isinstance(value, bool) or plain_number(str(value)) is None:
                said = f"{name}={value!r} is not a number that can be set"
                self.problems.append(Problem(said, fix=f"--set {name}=2, or {name}=2 in Python"))
        refuse(self.problems)

    def constant(self, _: str, name: str, indices: tuple[str, ...], node: Node, span: Span) -> ConstantDef:
        """A number, made of the constants above it, or replaced; over indices a list, an expression or a file."""
        if not indices:
            if not isinstance(node, ScalarNode):
                raise fail(f"{name} is a list, so it needs an index", fix=f"{name}[i]: [..]")
            text = str(self.overrides[name]) if name in self.overrides else self.value(node, name)
            number = scalar(text, self.names, f"constant {name}", self.span(node))
            self.names = replace(self.names, constants={**self.names.constants, name: number})
            return ConstantDef(name, number, (), span)
        value: Any = self.table(node, f"constant {name}")
        if value is None:
            value = expression(self.value(node, name), self.names, self.span(node))
        if isinstance(value, Number):
            said = f"{name}[{','.join(indices)}] is one number for all indices"
            raise fail(said, fix=f"{name}: {value}, without indices")
        return ConstantDef(name, value, indices, span)

    def width(self, section: str, name: str, _: tuple[str, ...], node: Node, span: Span) -> Any:
        """A further width, or one that stays finite."""
        make = make_ratio if section == "widths" else make_fixed
        return make(name, self.value(node, f"width {name}"), self.names, self.span(node))

    def entry(self, section: str, name: str, indices: tuple[str, ...], node: Node, span: Span) -> Any:
        """An index, an initial vector or a weight, from its options."""
        what, owner = f"option of {DECLARING[section]}", f"index {name}" if section == "indices" else name
        if isinstance(node, MappingNode):
            given = self.entries(node, what, OPTIONS[section])
        elif section in SHORT:
            given = {SHORT[section]: (node, node)}
        else:
            raise fail(f"initial vector {name} takes {{mean: ..., cov: ...}}", fix=f"{name}: {{mean: 0, cov: 1}}")
        options = {key: self.option(section, key, value, owner) for key, (_, value) in given.items()}
        return MAKERS[section](name, indices, options, span)

    def option(self, section: str, key: str, node: Node, owner: str) -> Any:
        """The value of an option."""
        what, taken = f"the {key} of {owner}", kinds(OPTIONS[section][key])
        table = self.table(node, what) if "file" in taken else None
        if table is None and taken == ["list", "file"]:
            raise fail(f"{what} must be a matrix or a file", self.span(node), f"{key}: numbers.npy")
        value = self.data(node, what) if taken == ["shape"] else table or self.value(node, what)
        return take(section, key, value, self.names, owner, self.span(node))

    def default(self, section: str, name: str, _: tuple[str, ...], node: Node, span: Span) -> Any:
        """A default of `tp run`, or how the program is trained."""
        value, place = self.data(node, name), self.span(node)
        if section == "train":
            return name, make_training(name, value, self.names, place)
        return name, make_option(name, value, place, self.names)

    def trained(self, netsor: Netsor, given: Given) -> None:
        """What is trained is a scalar of the program without indices, and what has rates its weights and vectors."""
        for _, node in (given[key] for key in ("loss",) if key in given):
            loss = self.value(node, "loss").strip()
            if loss not in netsor.losses:
                said = f"the loss {loss} is no scalar without indices"
                self.problems.append(Problem(said, self.span(node), did_you_mean(loss, netsor.losses)))
        parameters = [*netsor.weight, *(vector.name for vector in netsor.initial)]
        for name, (key, _) in self.entries(given["rates"][1], "rates").items() if "rates" in given else ():
            if name not in parameters:
                said = f"{name} is no weight or initial vector"
                self.problems.append(Problem(said, self.span(key), did_you_mean(name, parameters)))

    def body(self, items: Sequence[Node]) -> tuple[Statement, ...]:
        """The statements."""
        found: list[Statement] = []
        for item in items:
            with self.guard(item):
                if not isinstance(item, ScalarNode):
                    said = "each entry of body: is one statement `name[indices] = Instruction(...)`"
                    raise fail(said, fix="u[i] = MatMul(W[i], h), without `: `, or in quotes")
                span = replace(self.span(item), text=shorten(" ".join(item.value.split())))
                found.append(make_statement(*parse_statement(item.value, self.names, span), span))
        return tuple(found)

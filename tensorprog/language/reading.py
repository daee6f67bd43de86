"""Program files to programs: `load` and `loads` read them; reading executes nothing, and mistakes are told together.

A file is data from somebody else.  The raw text is bounded before YAML sees it, YAML gives nothing but nodes with
their positions, scalars are read by the rules of YAML 1.2 as text, and numbers come from data files only after
path, size and header have been checked (`data_files`).  All mistakes of the first phase that has any are told: the form
of the file, numbers, declarations, statements, and the program as a whole (`validity`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tensorprog.language.data_files import DataError, read_array
from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, fail, in_order, shorten
from tensorprog.language.expr import Number
from tensorprog.language.ir import ConstantDef, Netsor, Statement, Table
from tensorprog.language.parse import Names, parse_statement
from tensorprog.language.schema import (
    INDEX,
    INITIAL,
    RUN_KEYS,
    SECTIONS,
    WEIGHT,
    Entries,
    Option,
    expression,
    is_program_name,
    make_fixed,
    make_index,
    make_initial,
    make_name,
    make_option,
    make_ratio,
    make_statement,
    make_weight,
    one_line,
    plain_name,
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
    (
        "mapping values are not allowed",
        "a second `: ` on one line, or wrong indentation",
        'quote the text: title: "a: b"',
    ),
    ("expected ':'", "this line does not fit the lines around it", "an entry is written `name: value`"),
    (
        "<block end>",
        "this line does not fit the lines around it",
        "check the indentation, and dashes before statements",
    ),
    ("single document", "a file holds one program", "remove the second `---`"),
)
Given = dict[str, tuple[Node, Node]]  # key and value by the text of the key


class _Loader(yaml.SafeLoader):
    """YAML's nodes without tags, anchors and aliases, with a bound on depth."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call, unused-ignore]
        self.depth += 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
            found = getattr(event, "tag", None) or "anchors (&) and aliases (*)"
            told = f"{found} is not part of program files: values are written out, and nothing is executed"
            raise yaml.MarkedYAMLError(problem=told, problem_mark=event.start_mark)
        if self.depth > MAX_NEST:
            told = f"the file is nested more than {MAX_NEST} deep"
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
    except FileNotFoundError:
        near = sorted(entry.name for entry in path.parent.glob("*.y*ml"))
        raise fail(f"there is no file {shown}", fix=did_you_mean(path.name, near, "")) from None
    except (OSError, ValueError) as error:
        raise fail(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}") from None
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
    return _FileReader(text, file, folder).program(compose(text, file), overrides or {})


def compose(text: str, file: str) -> MappingNode:
    """Nodes of a YAML text.

    Raises    ProgramError at the first place where the text is not YAML as programs use it
    """
    if len(text) > MAX_TEXT:
        raise fail(f"the file has more than the {MAX_TEXT} characters allowed", Span(file), "save large tables as .npy")
    if text.count(",") + text.count("\n") > MAX_NODES:
        raise fail(f"the file has more than {MAX_NODES} entries", Span(file), "save large tables as .npy")
    try:
        root = yaml.compose(text, Loader=_Loader)  # type: ignore[no-untyped-call, unused-ignore]
    except yaml.reader.ReaderError as error:
        code = error.character if isinstance(error.character, int) else ord(error.character)
        line = text.count("\n", 0, error.position) + 1
        raise fail(f"the character U+{code:04X} is not allowed in a program file", Span(file, line)) from None
    except yaml.MarkedYAMLError as error:
        mark, lines = error.problem_mark or error.context_mark, text.splitlines()
        line, column = (mark.line, mark.column + 1) if mark else (0, 0)
        said = f"{error.context or ''} {error.problem or ''}"
        known = [(message, fix) for part, message, fix in EXPLAINED if part in said]
        message, fix = known[0] if known else (str(error.problem), "see programs/attention.yaml for a program")
        shown = shorten(lines[line].strip()) if line < len(lines) else ""
        raise fail(message, Span(file, line + 1, column, shown), fix) from None
    except (RecursionError, MemoryError, yaml.YAMLError):
        raise fail("this cannot be read as YAML", Span(file)) from None
    if not isinstance(root, MappingNode):
        hint = "program: name, as in the shipped programs, which `tp list` names"
        raise fail("the file is empty" if root is None else "a program is a list of sections", Span(file), hint)
    return root


class _FileReader:
    """The sections of one file; problems are collected until the end of a phase."""

    def __init__(self, text: str, file: str, base: Path | Mapping[str, Any] | None) -> None:
        self.file, self.base, self.lines = file, base, text.splitlines()
        self.problems: list[Problem] = []
        self.places: dict[str, Span] = {}  # of widths and outputs, whose records have no spans
        self.names = Names()

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def span(self, node: Node) -> Span:
        """Where a node begins, with its line."""
        mark = node.start_mark
        text = self.lines[mark.line].strip() if mark.line < len(self.lines) else ""
        return Span(self.file, mark.line + 1, mark.column + 1, shorten(text))

    def inside(self, node: Node) -> Span:
        """Where the text of a scalar begins, to count columns from; column 0 where it is not one plain line."""
        span = self.span(node)
        if not isinstance(node, ScalarNode):
            return span
        plain = node.style not in ("|", ">") and node.value in self.lines[span.line - 1]
        return replace(span, column=span.column + (node.style is not None) if plain else 0)

    @contextmanager
    def guard(self, span: Span) -> Iterator[None]:
        """Collect what goes wrong inside, at `span` where it has no place yet."""
        try:
            yield
        except ProgramError as error:
            self.problems += [p if p.span.line else replace(p, span=span) for p in error.problems]

    def done(self) -> None:
        """The end of a phase."""
        if self.problems:
            raise ProgramError(in_order(self.problems))

    def each(self, given: Given, make: Callable[[str, Node, Node], Any]) -> tuple[Any, ...]:
        """What is made of entries: from the text of a key, its node and the node of the value."""
        found = []
        for text, (key, value) in given.items():
            with self.guard(self.span(key)):
                found.append(make(text, key, value))
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
            with self.guard(self.span(key)):
                if not name or name == "<<":
                    raise fail("a key must be a name", fix='quote names with indices: "W[i]": 1')
                if (
                    node.flow_style
                    and isinstance(value, ScalarNode)
                    and value.value.count("(") > value.value.count(")")
                ):
                    fix = f'quote it: {name}: "max(a, b)"'
                    raise ProgramError([*self.problems, Problem(CUT, self.span(key), fix)])
                if known is not None and name not in known:
                    raise fail(f"there is no {what} {name}", fix=did_you_mean(name, list(known)))
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

    def table(self, node: Node, what: str, dimensions: int = 0) -> Table | None:
        """Numbers of a nested list or of a file; None for any other text.  `dimensions` 0 leaves them open."""

        def listed(item: Node) -> Any:
            if isinstance(item, SequenceNode):
                return [listed(entry) for entry in item.value]
            return scalar(self.value(item, what), self.names, what, self.span(item))

        span = self.span(node)
        if isinstance(node, SequenceNode):
            try:
                array = np.array(listed(node), dtype=float)
            except ValueError:
                raise fail(f"{what}: the rows have different lengths", span) from None
            if not array.size:
                raise fail(f"{what}: the list is empty", span)
            return Table.of(array)
        if isinstance(node, MappingNode):
            given = self.entries(node, "way to give numbers", ("file",))
            if "file" not in given:
                raise fail(f"{what}: numbers or a file are needed", span, "{file: numbers.npy}")
            name = self.value(given["file"][1], "file").strip()
        else:
            name = node.value.strip()
            if not re.search(r"\.(npy|npz|csv|txt|pkl|pickle|pt|tsv|h5|mat|json)$", name, re.IGNORECASE):
                return None
        try:
            return Table.of(read_array(name, self.base, dimensions), file=name)
        except DataError as error:
            raise fail(f"{what}: {name} {error}", span, error.fix) from None

    # -- sections ------------------------------------------------------------------------------------------------------

    def program(self, root: MappingNode, overrides: Mapping[str, Any]) -> Netsor:
        """All sections, in an order that lets each one refer to those it needs."""
        sections = {name: value for name, (_, value) in self.entries(root, "section", SECTIONS).items()}
        if not self.problems:
            self.problems += [
                Problem(f"the section {name}: is missing", Span(self.file), fix)
                for name, fix in REQUIRED.items()
                if name not in sections
            ]
        self.done()
        given = {key: self.entries(sections.get(key), entry) for key, entry in DECLARING.items()}
        run = self.entries(sections.get("run"), "run option", RUN_KEYS)
        parts: dict[str, Any] = {"name": "", "title": "", "reference": ""}
        for key, target in (("program", "name"), ("title", "title"), ("reference", "reference")):
            if key in sections and (key == "program" or sections[key].value):
                with self.guard(self.span(sections[key])):
                    parts[target] = one_line(self.value(sections[key], key), key)
        with self.guard(self.span(sections["program"])):
            if not is_program_name(parts["name"]):
                raise fail("program: takes a short name without slashes", fix="program: attention")
        self.done()
        short = {what: [re.split(r"\W", key, maxsplit=1)[0] for key in entries] for what, entries in given.items()}
        self.names = Names(dict.fromkeys(short["constants"]), frozenset(given["indices"]))
        tables = {key: entry for key, entry in given["constants"].items() if "[" in key}
        numbers = {key: entry for key, entry in given["constants"].items() if key not in tables}
        scalars = self.numbers(numbers, overrides)
        self.done()
        parts["indices"] = self.each(given["indices"], self.index)
        self.done()
        for key, make in (("widths", make_ratio), ("fixed_widths", make_fixed)):
            parts[key] = self.each(given[key], partial(self.width, make=make))
        constants = [*scalars, *self.each(tables, self.indexed)]
        parts["constants"] = tuple(sorted(constants, key=lambda constant: (constant.span.line, constant.span.column)))
        parts["written"] = tuple(
            (key, value.value.strip())
            for key, (_, value) in {**numbers, **given["fixed_widths"]}.items()
            if key not in overrides and plain_number(value.value) is None
        )
        for key, rules, make_entry in (("initial", INITIAL, make_initial), ("weights", WEIGHT, make_weight)):
            parts[key] = self.each(given[key], partial(self.declared, rules=rules, make=make_entry))
        parts["run"] = self.each(
            run, lambda name, _, node: (name, make_option(name, self.data(node, name), self.span(node), self.names))
        )
        parts["outputs"] = self.outputs(sections["outputs"])
        self.done()
        parts["body"] = self.body(sections["body"])
        self.done()
        try:
            return Netsor(**parts)
        except ProgramError as error:
            raise ProgramError(in_order(map(self.placed, error.problems))) from None

    def placed(self, problem: Problem) -> Problem:
        """A problem without a position gets that of the first width or output in its text, or at least the file."""
        if problem.span.line:
            return problem
        words = re.findall(r"\w+", problem.message)
        return replace(problem, span=next((self.places[w] for w in words if w in self.places), Span(self.file)))

    def numbers(self, given: Given, overrides: Mapping[str, Any]) -> tuple[ConstantDef, ...]:
        """Constants that are numbers, each with the constants above it; `overrides` replace values."""
        replaced: dict[str, int | float] = {}
        for name, value in overrides.items():
            shown = f"{name}={value} (from --set or a keyword)"
            with self.guard(Span(self.file)):
                if name not in given:
                    fix = did_you_mean(name, list(given), "only constants that are numbers can be set")
                    raise fail(f"{shown}: {name} is not a constant of the program that is a number", fix=fix)
                number = plain_number(value) if isinstance(value, str) else value
                if isinstance(number, bool) or not (hasattr(number, "__float__") or hasattr(number, "__index__")):
                    raise fail(f"{shown}: {value!r} is not a number", fix=f"--set {name}=2, or {name}=2 in Python")
                replaced[name] = scalar(number, self.names, shown)
        values: dict[str, int | float | None] = dict(self.names.constants)

        def number_of(text: str, key: Node, node: Node) -> ConstantDef:
            name = plain_name(text, "a constant", self.span(key))
            if not isinstance(node, ScalarNode):
                raise fail(f"{name} is a list, so it needs an index", fix=f"{name}[i]: [..]")
            number = replaced.get(text)
            if number is None:
                names = Names(values, self.names.indices)
                number = scalar(self.value(node, name), names, f"constant {name}", self.inside(node))
            values[name] = number
            return ConstantDef(name, number, (), self.span(key))

        found = self.each(given, number_of)
        self.names = Names(values, self.names.indices)
        return found

    def index(self, text: str, key: Node, node: Node) -> Any:
        """An entry of the section `indices`."""
        name = plain_name(text, "an index", self.span(key))
        return make_index(name, (), self.options(node, INDEX, f"index {name}", key), self.span(key))

    def width(self, text: str, key: Node, node: Node, make: Callable[..., Any]) -> Any:
        """An entry of the section `widths` or `fixed_widths`."""
        name = plain_name(text, "a width", self.span(key))
        self.places.setdefault(name, self.span(key))
        return make(name, self.value(node, f"width {name}"), self.names, self.inside(node))

    def indexed(self, text: str, key: Node, node: Node) -> ConstantDef:
        """A constant over indices: a list, an expression or a file."""
        name, indices = make_name(text, self.names, "a constant", self.inside(key))
        value: Any = self.table(node, f"constant {text}", len(indices))
        if value is None:
            value = expression(self.value(node, text), self.names, self.inside(node))
        if isinstance(value, Number):
            raise fail(f"{text} is one number for all indices", fix=f"{name}: {value}, without indices")
        return ConstantDef(name, value, indices, self.span(key))

    def declared(self, text: str, key: Node, node: Node, rules: Entries, make: Callable[..., Any]) -> Any:
        """An initial vector or a weight."""
        name, indices = make_name(text, self.names, f"{rules.article} {rules.called}", self.inside(key))
        return make(name, indices, self.options(node, rules, name, key), self.span(key))

    def options(self, node: Node, rules: Entries, owner: str, key: Node) -> dict[str, Any]:
        """The options of an entry."""
        if isinstance(node, MappingNode):
            what = f"option of {rules.article} {rules.called}"
            pairs = {name: value for name, (_, value) in self.entries(node, what, rules.options).items()}
        elif rules.short:
            pairs = {rules.short: node}
        else:
            fix = f"{owner}: {{mean: 0, cov: 1}}"
            raise fail(f"{rules.called} {owner} takes {{mean: ..., cov: ...}}", self.span(key), fix)
        return {
            name: self.option(value, rules.options[name], f"the {name} of {owner}") for name, value in pairs.items()
        }

    def option(self, node: Node, option: Option, what: str) -> Any:
        """The value of an option."""
        if "file" in option.kinds:
            table = self.table(node, what, option.dimensions)
            if table is not None:
                return table
            if "expression" not in option.kinds:
                raise fail(f"{what} must be a matrix or a file", self.span(node), f"{what.split()[1]}: numbers.npy")
        several = isinstance(node, SequenceNode) and not {"shape", "size"}.isdisjoint(option.kinds)
        value = self.data(node, what) if several else self.value(node, what)
        return take(option, value, self.names, what, self.inside(node))

    def outputs(self, node: Node) -> tuple[str, ...]:
        """The section `outputs`."""
        found = []
        with self.guard(self.span(node)):
            if not isinstance(node, SequenceNode) or not node.value:
                raise fail("outputs: is a list of names", fix="outputs: [y]")
            for item in node.value:
                with self.guard(self.span(item)):
                    name = self.value(item, "an output").strip()
                    if not name.isidentifier():
                        fix = name.split("[")[0]
                        raise fail(f"an output is the name of a whole family, not {name}", fix=fix)
                    self.places[name] = self.span(item)
                    found.append(name)
        return tuple(found)

    def body(self, node: Node) -> tuple[Statement, ...]:
        """The section `body`."""
        found: list[Statement] = []
        with self.guard(self.span(node)):
            if not isinstance(node, SequenceNode):
                raise fail("body: is a list of statements", fix="- u[i] = MatMul(W[i], h)")
            if len(node.value) > MAX_STATEMENTS:
                said = f"the body has {len(node.value)} statements, more than the {MAX_STATEMENTS} allowed"
                raise fail(said, fix="use families: one statement for all members")
            for item in node.value:
                with self.guard(self.span(item)):
                    if not isinstance(item, ScalarNode):
                        said = "each entry of body: is one statement `name[indices] = Instruction(...)`"
                        raise fail(said, fix="u[i] = MatMul(W[i], h), without `: `, or in quotes")
                    span = replace(self.inside(item), text=shorten(" ".join(item.value.split())))
                    parsed = parse_statement(item.value, self.names, span)
                    found.append(make_statement(parsed.target, parsed.instruction, parsed.args, parsed.keywords, span))
        return tuple(found)


CUT = "a comma inside {...} ends the entry, so this text was cut in two"
DECLARING = {
    "constants": "constant",
    "indices": "index",
    "widths": "width",
    "fixed_widths": "width",
    "initial": "initial vector",
    "weights": "weight",
}

"""Program files: `load` and `loads` read them, `dump` writes them; reading executes nothing and reports all mistakes.

A file is data from somebody else.  The raw text is bounded before YAML sees it, YAML gives nothing but nodes with
their positions, scalars are read by the rules of YAML 1.2 as text, and numbers come from data files only after
path, size and header have been checked.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from tensorprog.builder import (
    expression,
    fail,
    make_fixed,
    make_index,
    make_name,
    make_option,
    make_ratio,
    make_statement,
    plain_name,
    plain_number,
    scalar,
)
from tensorprog.errors import Problem, ProgramError, Span, did_you_mean
from tensorprog.expr import Expr, Number
from tensorprog.ir import ConstantDef, Index, Initial, Netsor, Statement, Table, Weight
from tensorprog.parse import Names, parse_statement
from tensorprog.schema import INITIAL_KEYS, RUN_KEYS, SECTIONS, WEIGHT_KEYS
from tensorprog.validity import Draft, problems_of

__all__ = ["dump", "load", "loads"]

MAX_TEXT = 500_000  # characters of a program file
MAX_FLOW = 40  # nested { and [ in the raw text
MAX_NEST = 12  # nested nodes
MAX_NODES = 50_000
MAX_ENTRIES = 10_000_000  # numbers in one data file
MAX_CSV = 50_000_000  # bytes of a text file of numbers


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
    base: str | os.PathLike[str] | None = None,
) -> Netsor:
    """As `load`, from text; data files are looked up below the folder `base`."""
    return _Program(text, file, None if base is None else Path(base)).read(overrides or {})


# -- text to nodes ------------------------------------------------------------------------------------------------


class _Refusal(Exception):
    def __init__(self, message: str, mark: Any, fix: str = "") -> None:
        self.message, self.mark, self.fix = message, mark, fix


class _Composer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's composer without tags, anchors and aliases, with bounds on depth and number of nodes."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.depth = self.count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call, unused-ignore]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _Refusal("anchors (&) and aliases (*) are not part of program files", mark, "write the value out")
        if getattr(event, "tag", None):
            raise _Refusal(f"tags such as {str(event.tag).replace('tag:yaml.org,2002:', '!!')} are not part of program "
                           "files; nothing is executed", mark, "remove the tag")
        self.count += 1
        self.depth += 1
        if self.depth > MAX_NEST:
            raise _Refusal(f"the file is nested more than {MAX_NEST} deep", mark, "programs need about five levels")
        if self.count > MAX_NODES:
            raise _Refusal(f"the file has more than {MAX_NODES} entries", mark, "keep large tables in a .npy file")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _flow_depth(text: str) -> tuple[int, int] | None:
    """Line and column of the bracket that nests too deeply, found before any parser sees the text."""
    depth = 0
    for number, line in enumerate(text.split("\n"), 1):
        if "[" not in line and "{" not in line and "]" not in line and "}" not in line:
            continue
        for column, character in enumerate(line, 1):
            if character == "#" and (column == 1 or line[column - 2] in " \t"):
                break
            if character in "[{":
                depth += 1
                if depth > MAX_FLOW:
                    return number, column
            elif character in "]}" and depth:
                depth -= 1
    return None


def _compose(text: str, file: str) -> Node | None:
    """Nodes of a YAML text.

    Raises    ProgramError at the first place where the text is not YAML as programs use it
    """
    if len(text) > MAX_TEXT:
        raise fail(f"the file has more than the {MAX_TEXT} characters allowed", Span(file),
                   "keep large tables in .npy files beside the program")
    place = _flow_depth(text)
    if place is not None:
        raise fail(f"brackets are nested more than {MAX_FLOW} deep", Span(file, *place),
                   "programs need about five levels")
    if text.count(",") + text.count("\n") > MAX_NODES:
        raise fail(f"the file has more than {MAX_NODES} entries", Span(file), "keep large tables in a .npy file")
    lines = text.splitlines() or [""]

    def at(mark: Any) -> Span:
        line, column = (mark.line, mark.column) if mark is not None else (0, 0)
        shown = lines[line].strip() if line < len(lines) else ""
        return Span(file, line + 1, column + 1, _shorten(shown))

    try:
        return _Composer(text).get_single_node()
    except _Refusal as error:
        raise fail(error.message, at(error.mark), error.fix) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise fail(f"the character {_code(error.character)} is not allowed in a program file", Span(file, line),
                   "remove it") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message, fix = _explain(error, lines[mark.line] if mark is not None and mark.line < len(lines) else "")
        raise fail(message, at(mark), fix) from None
    except (RecursionError, MemoryError):
        raise fail("the file is nested too deeply", Span(file), "programs need about five levels") from None
    except yaml.YAMLError as error:
        raise fail(f"this is not YAML: {str(error).splitlines()[0]}", Span(file)) from None


def _code(character: Any) -> str:
    return f"U+{character if isinstance(character, int) else ord(character):04X}"


def _explain(error: Any, line: str) -> tuple[str, str]:
    """A YAML error in the words of a program's author."""
    problem = str(error.problem or error.context or "invalid text")
    if "expected ',' or" in problem:
        if "<stream end>" in problem or not line.strip():
            return "a bracket { or [ is never closed", "close it, one bracket for each opened"
        name = re.search(r"\w+\[[^\]]*\]?", line[max(line.find("{"), line.find("["), 0):])
        example = name.group() if name else "W[i]"
        return ("inside {...} or [...] YAML cannot hold unquoted brackets or commas",
                f'write "{example}" in quotes, or give the section one entry per line without {{ }}')
    if "'\\t'" in problem:
        return "tabs cannot indent", "use spaces"
    if "mapping values are not allowed" in problem:
        return "a second `: ` on one line, or wrong indentation", 'quote the text: title: "a: b"'
    if "could not find expected ':'" in problem or "expected <block end>" in problem:
        return "this line does not fit the lines around it", "check the indentation, and that every key ends in `:`"
    if "single document" in str(error.context or "") + problem:
        return "a file holds one program", "remove the second `---`"
    return f"this is not YAML: {problem}", "see programs/attention.yaml for the form of a program"


def _open(text: str, closing: bool = False) -> bool:
    """Whether a round bracket is left open (or, with `closing`, closed without having been opened)."""
    return text.count(")") > text.count("(") if closing else text.count("(") > text.count(")")


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."


# -- nodes to a program -------------------------------------------------------------------------------------------


class _Program:
    """One reading of a file; problems are collected, and what depends on a broken name is left out silently."""

    def __init__(self, text: str, file: str, base: Path | None) -> None:
        self.text, self.file, self.base = text, file, base
        self.lines = text.splitlines()
        self.problems: list[Problem] = []
        self.broken: set[str] = set()  # names whose declaration is wrong: nothing is concluded from them
        self.places: dict[str, Span] = {}  # where names were written that have no span of their own
        self.names = Names()

    def read(self, overrides: Mapping[str, Any]) -> Netsor:
        root = _compose(self.text, self.file)
        if root is None:
            raise fail("the file is empty", Span(self.file), "`tp new NAME` writes a program to start from")
        if not isinstance(root, MappingNode):
            raise fail("a program is a list of sections `name: ...`", self.span(root), "program: name")
        sections = self.entries(root, "section", SECTIONS)
        required = {"program": "program: name", "body": "body: and below it one `- name = Instruction(...)` per line",
                    "outputs": "outputs: [y]"}
        for section, fix in required.items():
            if section not in sections:
                self.error(f"the section {section}: is missing", Span(self.file), fix)
                self.broken.add("outputs")
        title = {key: self.plain(sections.get(key), key) for key in ("program", "title", "reference")}
        self.declare(sections)
        parts: dict[str, Any] = {
            "constants": self.constants(sections.get("constants"), overrides),
            "indices": self.indices(sections.get("indices")),
        }
        parts["constants"] += self.tables(sections.get("constants"))
        parts["constants"] = tuple(sorted(parts["constants"], key=lambda c: (c.span.line, c.span.column)))
        parts["widths"] = self.widths(sections.get("widths"), make_ratio)
        parts["fixed_widths"] = self.widths(sections.get("fixed_widths"), make_fixed)
        parts["written"] = self.written(sections, overrides)
        parts["initial"] = self.initial(sections.get("initial"))
        parts["weights"] = self.weights(sections.get("weights"))
        parts["body"] = self.body(sections.get("body"))
        parts["outputs"] = self.outputs(sections.get("outputs"))
        parts["run"] = self.run(sections.get("run"))
        arguments = {"name": title["program"], "title": title["title"], "reference": title["reference"]} | parts
        if self.problems:
            self.problems += self.placed(problems_of(Draft(**arguments), frozenset(self.broken)))
            raise ProgramError(sorted(dict.fromkeys(self.problems), key=lambda p: (p.span.line, p.span.column)))
        try:
            return Netsor(**arguments)
        except ProgramError as error:
            raise ProgramError(self.placed(error.problems)) from None

    def placed(self, problems: Sequence[Problem]) -> list[Problem]:
        """Give problems without a position that of the first name in their text, or at least the file."""
        result = []
        for problem in problems:
            span = problem.span
            if not span.line:
                words = re.findall(r"\w+", problem.message)
                span = next((self.places[word] for word in words if word in self.places), Span(self.file))
            result.append(Problem(problem.message, span, problem.fix))
        return result

    # -- nodes ----------------------------------------------------------------------------------------------------

    def error(self, message: str, span: Span, fix: str = "") -> None:
        self.problems.append(Problem(message, span, fix))

    def span(self, node: Node) -> Span:
        """Position of a node, with the line it stands on."""
        mark = node.start_mark
        text = self.lines[mark.line].strip() if mark.line < len(self.lines) else ""
        return Span(self.file, mark.line + 1, mark.column + 1, _shorten(text))

    def inside(self, node: Node, text: str = "") -> Span:
        """Position of a scalar's first character, to count columns from; 0 where the scalar is not one plain line."""
        mark, span = node.start_mark, self.span(node)
        assert isinstance(node, ScalarNode)
        plain = node.style not in ("|", ">") and str(node.value) in self.lines[mark.line]
        column = mark.column + 1 + (node.style is not None) if plain else 0
        return Span(self.file, span.line, column, _shorten(text or span.text))

    @contextmanager
    def guard(self, span: Span, *names: str) -> Iterator[None]:
        """Collect what goes wrong inside, at `span` where it has no place yet; the names count as broken."""
        try:
            yield
        except ProgramError as error:
            self.broken.update(name for name in names if name)
            self.problems += [Problem(p.message, p.span if p.span.line else span, p.fix) for p in error.problems]

    def entries(self, node: Node | None, what: str, known: Mapping[str, Any] | None = None) -> dict[str, Node]:
        """Values of a mapping by key; `known` lists the keys allowed."""
        if node is None or (isinstance(node, ScalarNode) and node.style is None and node.value in ("", "~", "null")):
            return {}
        if not isinstance(node, MappingNode):
            self.error(f"{what} entries are written `name: value`", self.span(node),
                       "one entry per line, or {name: value, ...}")
            return {}
        result: dict[str, Node] = {}
        cut = False
        for key, value in node.value:
            span = self.span(key)
            if not isinstance(key, ScalarNode):
                self.error("a key must be a name", span, 'quote names with indices: "W[i]": 1')
                continue
            name = key.value.strip()
            if name == "<<":
                self.error("merge keys (<<) are not part of program files", span, "write the entries out")
            elif node.flow_style and (cut or (isinstance(value, ScalarNode) and _open(value.value))):
                if not cut:
                    self.error("a comma inside {...} ends the entry, so this text was cut in two", span,
                               'quote it: "max(a, b)"')
                cut = not any(_open(part.value, closing=True) for part in (key, value) if isinstance(part, ScalarNode))
            elif known is not None and name not in known:
                self.error(f"there is no {what} {name}", span, did_you_mean(name, list(known)))
                if what == "section":  # what it declares is missing elsewhere, for this reason alone
                    self.broken.update(re.split(r"\W", declared)[0] for declared in self.keys(value))
            elif name in result:
                place = "file" if what == "section" else "section"
                self.error(f"{name} is bound twice: it stands twice in this {place}", span,
                           "remove one of them, or give it another name")
            else:
                result[name] = value
                if known is None:
                    self.places.setdefault(re.split(r"\W", name)[0], span)
        return result

    def keys(self, node: Node | None) -> dict[str, Node]:
        """Key nodes of a mapping by their text."""
        if not isinstance(node, MappingNode):
            return {}
        return {key.value.strip(): key for key, _ in reversed(node.value) if isinstance(key, ScalarNode)}

    def plain(self, node: Node | None, what: str) -> str:
        if node is None:
            return ""
        if not isinstance(node, ScalarNode):
            self.error(f"{what}: takes one line of text", self.span(node), f'{what}: "..."')
            return ""
        value = str(node.value).strip()
        if what == "program" and (not value or len(value) > 100 or any(c in value for c in "/\\\n\0")):
            self.error("program: takes a short name without slashes", self.span(node), "program: attention")
        return value

    def value(self, node: Node, what: str) -> str:
        """Text of a scalar node."""
        if not isinstance(node, ScalarNode):
            kind = "a list" if isinstance(node, SequenceNode) else "a mapping"
            raise fail(f"{what} must be a number or an expression, not {kind}", self.span(node))
        if not node.value.strip():
            raise fail(f"{what} is empty", self.span(node), "give it a value")
        return str(node.value)

    def touches(self, node: Node, text: str = "") -> bool:
        """Whether a broken name occurs in a declaration, so that nothing certain can be said about it."""
        words = set(re.findall(r"\w+", text))
        stack = [node]
        while stack:
            part = stack.pop()
            if isinstance(part, ScalarNode):
                words.update(re.findall(r"\w+", part.value))
            elif isinstance(part, SequenceNode):
                stack += part.value
            else:
                stack += [child for pair in part.value for child in pair]
        return bool({word.rstrip("_") for word in words} & self.broken)

    # -- sections -------------------------------------------------------------------------------------------------

    def declare(self, sections: Mapping[str, Node]) -> None:
        """Collect the names of constants and indices, so that texts can be read whatever their order."""
        def names(section: str) -> list[str]:
            keys = self.keys(sections.get(section))
            return [re.split(r"\W", key, maxsplit=1)[0] for key in keys]

        self.names = Names(dict.fromkeys(names("constants")), frozenset(names("indices")))

    def constants(self, node: Node | None, overrides: Mapping[str, Any]) -> list[ConstantDef]:
        entries = self.entries(node, "constant")
        keys = self.keys(node)
        scalars = [name for name in entries if "[" not in name]
        values: dict[str, int | float | None] = dict(self.names.constants)
        given: dict[str, int | float] = {}
        for name, value in overrides.items():
            shown = f"{name}={value} (from --set or a keyword)" if isinstance(value, str | int | float) else (
                f"the value for {name} (from --set or a keyword)")
            if name not in scalars:
                indexed = next((key for key in entries if re.split(r"\W", key)[0] == name), None)
                fix = ("only constants that are numbers can be set" if indexed
                       else did_you_mean(name, scalars) or "the program declares no constants")
                kind = "an indexed" if indexed else "not a"
                self.error(f"{shown}: {indexed or name} is {kind} constant of the program",
                           self.span(keys[indexed]) if indexed else Span(self.file), fix)
                continue
            number = plain_number(value) if isinstance(value, str) else value
            with self.guard(Span(self.file), name):
                if isinstance(number, bool) or not (hasattr(number, "__float__") or hasattr(number, "__index__")):
                    raise fail(f"{shown}: {value!r} is not a number", fix=f"--set {name}=2, or {name}=2 in Python")
                given[name] = scalar(number, self.names, shown)
        result = []
        for name in scalars:
            entry, span = entries[name], self.span(keys[name])
            with self.guard(self.span(entry), name):
                known = plain_name(name, "a constant", span)
                if not isinstance(entry, ScalarNode):
                    raise fail(f"{name} is a list, so it needs an index", span, f"{name}[i]: [..]")
                number = given.get(name)
                if number is None and self.touches(entry):
                    self.broken.add(name)
                    continue
                if number is None:
                    number = scalar(self.value(entry, name), Names(values, self.names.indices), f"constant {name}",
                                    self.inside(entry))
                values[known] = number
                result.append(ConstantDef(known, number, (), span))
        self.names = Names(values, self.names.indices)
        return result

    def written(self, sections: Mapping[str, Node], overrides: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        texts = []
        for section in ("constants", "fixed_widths"):
            node = sections.get(section)
            for name, value in self.keys_values(node):
                if isinstance(value, ScalarNode) and "[" not in name and name not in overrides and (
                        plain_number(value.value) is None):
                    texts.append((name, value.value.strip()))
        return tuple(texts)

    def keys_values(self, node: Node | None) -> list[tuple[str, Node]]:
        if not isinstance(node, MappingNode):
            return []
        return [(key.value.strip(), value) for key, value in node.value if isinstance(key, ScalarNode)]

    def tables(self, node: Node | None) -> list[ConstantDef]:
        """Constants over indices: lists, expressions or files."""
        result = []
        keys = self.keys(node)
        seen = set()
        for name, entry in self.keys_values(node):
            if "[" not in name or name in seen:
                continue
            seen.add(name)
            span, short = self.span(keys[name]), name.split("[")[0].strip()
            if self.touches(entry, name):
                self.broken.add(short)
                continue
            with self.guard(span, short):
                target, indices = make_name(name, self.names, "a constant", self.inside(keys[name]))
                table = self.table(entry, f"constant {name}", len(indices))
                value: Table | Expr = table if table is not None else expression(
                    self.value(entry, name), self.names, self.inside(entry))
                if isinstance(value, Number):
                    raise fail(f"{name} is one number for all indices", span, f"{short}: {value}, without indices")
                result.append(ConstantDef(target, value, indices, span))
        return result

    def indices(self, node: Node | None) -> tuple[Index, ...]:
        result = []
        keys = self.keys(node)
        for name, entry in self.entries(node, "index").items():
            span = self.span(keys[name])
            if self.touches(entry):
                self.broken.add(name)
                continue
            with self.guard(span, name):
                plain = plain_name(name, "an index", span)
                boundary, size = "", entry
                if isinstance(entry, MappingNode):
                    options = self.entries(entry, "option of an index", {"size": 0, "boundary": 0})
                    if "size" not in options:
                        raise fail(f"index {name} has no size", span, f"{name}: {{size: 4, boundary: zero}}")
                    size = options["size"]
                    boundary = self.value(options["boundary"], "boundary") if "boundary" in options else ""
                text = self.value(size, f"the size of index {name}")
                result.append(make_index(plain, text, boundary, self.names, self.inside(size)))
        return tuple(result)

    def widths(self, node: Node | None, make: Callable[[str, Any, Names, Span], Any]) -> tuple[Any, ...]:
        result = []
        keys = self.keys(node)
        for name, entry in self.entries(node, "width").items():
            if self.touches(entry):
                self.broken.add(name)
                continue
            with self.guard(self.span(keys[name]), name):
                plain = plain_name(name, "a width", self.span(keys[name]))
                result.append(make(plain, self.value(entry, f"width {name}"), self.names,
                                   self.inside(entry)))
        return tuple(result)

    def declared(self, node: Node | None, what: str) -> Iterator[tuple[str, tuple[str, ...], Node, Span]]:
        """Name, indices, value and position of the entries that can be read."""
        keys = self.keys(node)
        for name, entry in self.entries(node, what).items():
            span, short = self.span(keys[name]), name.split("[")[0].strip()
            if self.touches(entry, name):
                self.broken.add(short)
                continue
            with self.guard(span, short):
                target, indices = make_name(name, self.names, what, self.inside(keys[name]))
                yield target, indices, entry, span

    def initial(self, node: Node | None) -> tuple[Initial, ...]:
        result = []
        for name, indices, entry, span in self.declared(node, "initial vector"):
            with self.guard(span, name):
                if not isinstance(entry, MappingNode):
                    raise fail(f"initial vector {name} takes {{mean: ..., cov: ...}}", span,
                               f"{name}: {{mean: 0, cov: 1}}")
                options = self.entries(entry, "option of an initial vector", INITIAL_KEYS)
                result.append(self.one_initial(name, indices, options, span))
        return tuple(result)

    def one_initial(self, name: str, indices: tuple[str, ...], options: Mapping[str, Node], span: Span) -> Initial:
        sources = [key for key in ("cov", "gram", "data") if key in options]
        if len(sources) > 1:
            raise fail(f"initial vector {name}: {' and '.join(sources)} both give its covariance", span,
                       "keep one of cov, gram and data")
        if "variance" in options and "data" not in options:
            raise fail(f"initial vector {name}: variance belongs to data", span, "write cov: for the covariance")
        mean: Expr | Table = Number(0)
        if "mean" in options:
            mean = self.numbers(options["mean"], f"the mean of {name}")
        data = None
        cov: Expr | Table = Number(1)
        if "data" in options:
            data = self.table(options["data"], f"the data of {name}", 2)
            if data is None:
                raise fail(f"the data of {name} must be a matrix (members, d) or a file", span, "data: inputs.npy")
            if "variance" in options:
                cov = self.numbers(options["variance"], f"the variance of {name}")
        elif "gram" in options:
            table = self.table(options["gram"], f"the gram matrix of {name}", 0)
            if table is None:
                raise fail(f"the gram matrix of {name} must be a matrix or a file", span, "gram: gram.npy")
            cov = table
        elif "cov" in options:
            cov = self.numbers(options["cov"], f"the cov of {name}")
        width = self.value(options["width"], "width") if "width" in options else "n"
        return Initial(name, indices, mean, cov, data, width.strip(), span)

    def weights(self, node: Node | None) -> tuple[Weight, ...]:
        result = []
        for name, indices, entry, span in self.declared(node, "weight"):
            with self.guard(span, name):
                variance, shape = entry, ("n", "n")
                if isinstance(entry, MappingNode):
                    options = self.entries(entry, "option of a weight", WEIGHT_KEYS)
                    if "shape" in options:
                        shape = self.shape(options["shape"], name)
                    variance = options.get("variance", ScalarNode("", "1", entry.start_mark, entry.end_mark))
                text = self.value(variance, f"the variance of {name}")
                value = expression(text, self.names, self.inside(variance))
                result.append(Weight(name, indices, value, shape, span))
        return tuple(result)

    def shape(self, node: Node, name: str) -> tuple[str, str]:
        parts = node.value if isinstance(node, SequenceNode) else []
        texts = [part.value.strip() for part in parts if isinstance(part, ScalarNode)]
        if len(texts) != 2 or len(parts) != 2:
            raise fail(f"the shape of {name} is [rows, columns], two widths by name", self.span(node), "shape: [d, n]")
        for text in texts:
            if plain_number(text) is not None:
                raise fail(f"the shape of {name} names widths, not numbers", self.span(node),
                           f"fixed_widths: {{d: {text}}} and shape: [d, n]")
        return texts[0], texts[1]

    def body(self, node: Node | None) -> tuple[Statement, ...]:
        if node is None:
            return ()
        if not isinstance(node, SequenceNode):
            self.error("body: is a list of statements", self.span(node), "- u[i] = MatMul(W[i], h)")
            return ()
        statements: list[Statement] = []
        for item in node.value:
            if not isinstance(item, ScalarNode):
                text = self.span(item).text
                fix = ("quote the statement" if isinstance(item, SequenceNode) else
                       "no `: ` inside a statement" if "=" in text.split(":")[0] else "use `=`, not `:`")
                self.error("each entry of body: is one statement `name[indices] = Instruction(...)`", self.span(item),
                           fix)
                # its target is unknown, so every name in it may be the one it was to define
                self.broken.update(re.findall(r"[^\W\d]\w*", self.span(item).text)[:1])
                continue
            text = str(item.value)
            span = self.inside(item, " ".join(text.split()))
            target = re.match(r"\s*([^\W\d]\w*)", text)
            name = target.group(1) if target else ""
            if name not in self.broken and self.mentions(text):
                self.broken.add(name)
                continue
            with self.guard(span, name):
                parsed = parse_statement(text, self.names, span)
                statements.append(make_statement(parsed.target, parsed.instruction, parsed.args, parsed.keywords, span))
        return tuple(statements)

    def mentions(self, text: str) -> bool:
        """Whether a broken constant or index occurs in a text: then it cannot be read with certainty."""
        declared = {*self.names.constants, *self.names.indices}
        return bool({word.rstrip("_") for word in re.findall(r"\w+", text)} & self.broken & declared)

    def outputs(self, node: Node | None) -> tuple[str, ...]:
        result = []
        if node is not None and not (isinstance(node, SequenceNode) and node.value):
            self.error("outputs: is a list of names", self.span(node), "outputs: [y]")
            self.broken.add("outputs")
        for item in node.value if isinstance(node, SequenceNode) else ():
            name = item.value.strip() if isinstance(item, ScalarNode) else ""
            if not name.isidentifier():
                self.error(f"an output is the name of a whole family{f', not {name}' if name else ''}", self.span(item),
                           name.split("[")[0] or "outputs: [y]")
                self.broken.add("outputs")
                continue
            self.places[name] = self.span(item)
            result.append(name)
        return tuple(result)

    def run(self, node: Node | None) -> tuple[tuple[str, Any], ...]:
        result: list[tuple[str, Any]] = []
        for key, entry in self.entries(node, "run option", RUN_KEYS).items():
            with self.guard(self.span(entry)):
                result.append((key, make_option(key, self.data(entry, key), self.span(entry))))
        return tuple(result)

    def data(self, node: Node, what: str) -> Any:
        """Texts, lists and dictionaries of a node."""
        if isinstance(node, SequenceNode):
            return [self.data(item, what) for item in node.value]
        if isinstance(node, MappingNode):
            return {key: self.data(value, what) for key, value in self.entries(node, what).items()}
        return self.value(node, what)

    # -- numbers --------------------------------------------------------------------------------------------------

    def numbers(self, node: Node, what: str) -> Expr | Table:
        """An expression, a list of numbers, or a file."""
        table = self.table(node, what, 0)
        if table is not None:
            return table
        return expression(self.value(node, what), self.names, self.inside(node))

    def table(self, node: Node, what: str, dimensions: int) -> Table | None:
        """Numbers of a nested list or of a file; None for any other text.  `dimensions` 0 leaves them open."""
        if isinstance(node, SequenceNode):
            return Table.of(self.listed(node, what))
        if isinstance(node, MappingNode):
            options = self.entries(node, "way to give numbers", {"file": 0})
            if "file" not in options:
                raise fail(f"{what}: expected {{file: ...}}", self.span(node), "{file: numbers.npy}")
            return self.from_file(self.value(options["file"], "file").strip(), what, dimensions, self.span(node))
        text = str(node.value).strip()
        if re.search(r"\.(npy|npz|csv|txt|pkl|pickle|pt|tsv|h5|mat|json)$", text, re.IGNORECASE):
            return self.from_file(text, what, dimensions, self.span(node))
        return None

    def listed(self, node: SequenceNode, what: str) -> list[Any]:
        values: list[Any] = []
        shapes = set()
        for item in node.value:
            if isinstance(item, SequenceNode):
                values.append(self.listed(item, what))
                shapes.add(np.shape(values[-1]))
            elif isinstance(item, ScalarNode):
                number = scalar(item.value, self.names, what, self.span(item))
                values.append(number)
                shapes.add(())
            else:
                raise fail(f"{what}: a list holds numbers only", self.span(item))
        if not values:
            raise fail(f"{what}: the list is empty", self.span(node))
        if len(shapes) > 1:
            raise fail(f"{what}: the rows have different lengths", self.span(node), "give every row the same length")
        return values

    def from_file(self, name: str, what: str, dimensions: int, span: Span) -> Table:
        try:
            return Table.of(_read_numbers(name, self.base, dimensions), file=name)
        except _DataError as error:
            raise fail(f"{what}: {name} {error}", span, error.fix) from None


# -- a program to text --------------------------------------------------------------------------------------------


def dump(netsor: Netsor, schema: str = "") -> str:
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


# -- data files ---------------------------------------------------------------------------------------------------


class _DataError(Exception):
    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


def _data_path(name: str, base: Path | None) -> Path:
    """Path of a data file, which must lie inside the folder of the program."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.drive or windows.root or ".." in (*posix.parts, *windows.parts) or "\0" in name:
        raise _DataError("is outside the program's folder", "use a path below the folder of the program file")
    if base is None:
        raise _DataError("cannot be found: this program was not read from a file", "loads(..., base=folder)")
    folder = base.resolve()
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise _DataError("is a link that leaves the program's folder", "copy the file beside the program")
        if not path.exists():
            near = sorted(entry.name for entry in path.parent.glob("*")) if path.parent.is_dir() else []
            hint = did_you_mean(path.name, near)
            raise _DataError("does not exist", hint if "mean" in hint else "paths are relative to the program file")
        if not stat.S_ISREG(path.stat().st_mode):
            raise _DataError("is not a plain file")
    except (OSError, RuntimeError):
        raise _DataError("cannot be opened") from None
    return path


def _read_numbers(name: str, base: Path | None, dimensions: int) -> Any:
    path = _data_path(name, base)
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".csv"):
        raise _DataError("is not a .npy or .csv file", "np.save('numbers.npy', array) writes one")
    try:
        array = _read_npy(path) if suffix == ".npy" else _read_csv(path)
    except OSError:
        raise _DataError("cannot be read") from None
    if suffix == ".csv" and dimensions == 1 and 1 in array.shape:
        array = array.reshape(-1)
    return array


def _read_npy(path: Path) -> Any:
    """Numbers of a .npy file; the header is checked against cap and size of the file before anything is allocated."""
    with path.open("rb") as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, dtype = read(stream, max_header_size=10_000)
        except (ValueError, KeyError, TypeError, SyntaxError, EOFError, RecursionError, MemoryError, OverflowError):
            raise _DataError("has no valid .npy header", "np.save('numbers.npy', array) writes one") from None
        if dtype.hasobject or dtype.kind not in "fiu":
            raise _DataError(f"holds {dtype}, not real numbers", "save an array of floats; objects are never unpickled")
        count = math.prod(shape)
        if count > MAX_ENTRIES or len(shape) > 8:
            raise _DataError(f"announces {count} numbers, more than the {MAX_ENTRIES} allowed")
        size = os.fstat(stream.fileno()).st_size - stream.tell()
        if count == 0 or size != count * dtype.itemsize:
            raise _DataError(f"is damaged: its header announces {count} numbers, {max(size, 0)} bytes follow")
        array = np.frombuffer(stream.read(size), dtype=dtype).astype(np.float64)
    return array.reshape(shape, order="F" if fortran else "C")


def _read_csv(path: Path) -> Any:
    size = path.stat().st_size
    if size > MAX_CSV:
        raise _DataError(f"has {size} bytes, more than the {MAX_CSV} allowed", "save it as .npy")
    with path.open("rb") as stream:
        raw = stream.read(size)
    try:
        lines = [line for line in raw.decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise _DataError("is not UTF-8 text") from None
    if not lines:
        raise _DataError("is empty")
    if sum(line.count(",") + 1 for line in lines) > MAX_ENTRIES:
        raise _DataError(f"has more than the {MAX_ENTRIES} numbers allowed", "save it as .npy")
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append([float(entry) for entry in line.split(",")])
        except ValueError:
            raise _DataError(f"row {number} is not made of numbers separated by commas",
                             "remove headings and other text") from None
        if len(rows[-1]) != len(rows[0]):
            raise _DataError(f"row {number} has {len(rows[-1])} numbers, row 1 has {len(rows[0])}")
    return np.array(rows)

"""Program files to programs: `load` and `loads` read them; reading executes nothing and reports all mistakes.

A file is data from somebody else.  The raw text is bounded before YAML sees it, YAML gives nothing but nodes with
their positions, scalars are read by the rules of YAML 1.2 as text, and numbers come from data files only after
path, size and header have been checked (`data_files`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader as TextReader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from tensorprog.language.data_files import DataError, read_array
from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, fail, in_order, shorten
from tensorprog.language.expr import Expr, Number
from tensorprog.language.ir import ConstantDef, Draft, Netsor, Statement, Table
from tensorprog.language.parse import Names, parse_statement
from tensorprog.language.schema import (
    CONSTANT,
    INDEX,
    INITIAL,
    RUN_KEYS,
    SECTIONS,
    WEIGHT,
    WIDTHS,
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
from tensorprog.language.validity import MAX_STATEMENTS, problems_of

MAX_TEXT = 500_000  # characters of a program file
MAX_NEST = 12  # nested nodes
MAX_NODES = 50_000  # commas and lines


class _Refusal(Exception):
    def __init__(self, message: str, mark: Any, fix: str = "") -> None:
        self.message, self.mark, self.fix = message, mark, fix


class _Composer(TextReader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's composer without tags, anchors and aliases, with a bound on depth."""

    def __init__(self, text: str) -> None:
        TextReader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call, unused-ignore]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _Refusal("anchors (&) and aliases (*) are not part of program files", mark, "write the value out")
        if getattr(event, "tag", None):
            raise _Refusal(
                f"tags such as {str(event.tag).replace('tag:yaml.org,2002:', '!!')} are not part of program "
                "files; nothing is executed",
                mark,
                "remove the tag",
            )
        self.depth += 1
        if self.depth > MAX_NEST:
            raise _Refusal(f"the file is nested more than {MAX_NEST} deep", mark, "programs need about five levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def compose(text: str, file: str) -> Node | None:
    """Nodes of a YAML text.

    Raises    ProgramError at the first place where the text is not YAML as programs use it
    """
    if len(text) > MAX_TEXT:
        raise fail(
            f"the file has more than the {MAX_TEXT} characters allowed",
            Span(file),
            "keep large tables in .npy files beside the program",
        )
    if text.count(",") + text.count("\n") > MAX_NODES:
        raise fail(f"the file has more than {MAX_NODES} entries", Span(file), "keep large tables in a .npy file")
    lines = text.splitlines() or [""]

    def at(mark: Any) -> Span:
        line, column = (mark.line, mark.column) if mark is not None else (0, 0)
        shown = lines[line].strip() if line < len(lines) else ""
        return Span(file, line + 1, column + 1, shorten(shown))

    try:
        return _Composer(text).get_single_node()
    except _Refusal as error:
        raise fail(error.message, at(error.mark), error.fix) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise fail(
            f"the character U+{code:04X} is not allowed in a program file", Span(file, line), "remove it"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        before = lines[: mark.line + 1] if mark is not None else []
        message, fix, *place = _explain(
            error, lines[mark.line] if mark is not None and mark.line < len(lines) else "", before
        )
        span = Span(file, place[0] + 1, 1, shorten(lines[place[0]].strip())) if place else at(mark)
        raise fail(message, span, fix) from None
    except (RecursionError, MemoryError):
        raise fail("the file is nested too deeply", Span(file), "programs need about five levels") from None
    except yaml.YAMLError as error:
        raise fail(f"this is not YAML: {str(error).splitlines()[0]}", Span(file)) from None


def _without_colon(lines: Sequence[str]) -> tuple[str, str, int] | None:
    """The last of some lines, or the one before it, if it lacks the space behind its colon, or its dash."""
    for back in range(1, min(4, len(lines) + 1)):
        number = len(lines) - back
        text = lines[number].split(" #")[0].strip()
        if text.startswith("-"):
            continue
        statement = re.fullmatch(r"(\w+(?:\[[^\]]*\])?\s*=\s*[A-Z]\w*\(.*\))", text)
        if statement:
            return "a statement of the body begins with a dash", f"- {text}", number
        entry = re.fullmatch(r"(\w+(?:\[[^\]]*\])?)\s*(?:=|:(?=\S))\s*(.+)", text)
        if entry:
            return "an entry is written `name: value`, with a space behind the colon", f"{entry[1]}: {entry[2]}", number
    return None


def _explain(error: Any, line: str, before: Sequence[str] = ()) -> tuple[str, str] | tuple[str, str, int]:
    """A YAML error in the words of a program's author."""
    problem = str(error.problem or error.context or "invalid text")
    if any(part in problem for part in ("could not find expected ':'", "expected <block end>", "mapping values")):
        found = _without_colon(before)
        if found:
            return found
    if "expected ',' or" in problem:
        if "<stream end>" in problem or not line.strip():
            return "a bracket { or [ is never closed", "close it, one bracket for each opened"
        name = re.search(r"\w+\[[^\]]*\]?", line[max(line.find("{" if "{" in line else "["), 0) :])
        example = name.group() if name else "W[i]"
        if line.strip().startswith("outputs:"):
            named = dict.fromkeys(re.findall(r"([^\W\d]\w*)\s*(?=[,\[\]])", line.partition(":")[2]))
            return "an output is the name of a whole family, without indices", f"outputs: [{', '.join(named)}]"
        return (
            "inside {...} or [...] YAML cannot hold unquoted brackets or commas",
            f'write "{example}" in quotes, or give the section one entry per line without {{ }}',
        )
    if "'\\t'" in problem:
        return "tabs cannot indent", "use spaces"
    if "mapping values are not allowed" in problem:
        return "a second `: ` on one line, or wrong indentation", 'quote the text: title: "a: b"'
    if "could not find expected ':'" in problem or "expected <block end>" in problem:
        return "this line does not fit the lines around it", "check the indentation, and that every key ends in `:`"
    if "single document" in str(error.context or "") + problem:
        return "a file holds one program", "remove the second `---`"
    return f"this is not YAML: {problem}", "see programs/attention.yaml for the form of a program"


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
    sections = {name: value for name, (_, value) in reader.entries(root, "section", SECTIONS).items()}
    required = {
        "program": "program: name",
        "body": "body: and below it one `- name = Instruction(...)` per line",
        "outputs": "outputs: [y]",
    }
    written = {str(key.value).strip().lower() for key, _ in root.value}
    for section, fix in required.items():
        if section not in sections:
            if section not in {SECTION_WORDS.get(name) for name in written}:
                reader.error(f"the section {section}: is missing", Span(reader.file), fix)
            reader.broken.add("outputs")
    given = {what: reader.entries(sections.get(section), what) for section, what in DECLARING.items()}
    # names of constants and indices first, so that texts can be read whatever their order
    reader.names = Names(dict.fromkeys(map(first_word, given["constant"])), frozenset(map(first_word, given["index"])))
    widths, fixed = (reader.entries(sections.get(section), "width") for section in ("widths", "fixed_widths"))
    title = {key: reader.plain(sections.get(key), key) for key in ("program", "title", "reference")}
    constants = read_constants(reader, given["constant"], overrides)
    parts: dict[str, Any] = {
        "name": title["program"],
        "title": title["title"],
        "reference": title["reference"],
        "indices": read_entries(reader, given["index"], INDEX, make_index),
        "constants": tuple(
            sorted([*constants, *read_tables(reader, given["constant"])], key=lambda c: (c.span.line, c.span.column))
        ),
        "widths": read_widths(reader, widths, make_ratio),
        "fixed_widths": read_widths(reader, fixed, make_fixed),
        "written": read_written({**given["constant"], **fixed}, overrides),
        "initial": read_entries(reader, given["initial vector"], INITIAL, make_initial),
        "weights": read_entries(reader, given["weight"], WEIGHT, make_weight),
        "body": read_body(reader, sections.get("body")),
        "outputs": read_outputs(reader, sections.get("outputs")),
        "run": read_run(reader, sections.get("run")),
    }
    if reader.problems:
        reader.problems += reader.placed(problems_of(Draft(**parts), frozenset(reader.broken)))
        raise ProgramError(in_order(reader.problems))
    try:
        return Netsor(**parts)
    except ProgramError as error:
        raise ProgramError(reader.placed(error.problems)) from None


SECTION_WORDS = {  # what sections are called elsewhere
    **dict.fromkeys(("statements", "forward", "code", "network", "layers", "model"), "body"),
    **dict.fromkeys(("inputs", "input", "vectors", "inits"), "initial"),
    **dict.fromkeys(("weight", "params", "parameters", "matrices"), "weights"),
    **dict.fromkeys(("hyperparameters", "hparams", "consts", "constant", "config"), "constants"),
    **dict.fromkeys(("index", "dims", "axes", "ranges"), "indices"),
    **dict.fromkeys(("output", "returns", "return"), "outputs"),
    "name": "program",
}
DEVIATIONS, VARIANCES = ("std", "sigma", "stddev", "sd"), ("var", "variance", "sigma2", "sigma_w2", "covariance")
RUN_WORDS = {
    "n": "width",
    "widths": "width",
    "n_samples": "samples",
    "num_samples": "samples",
    "networks": "samples",
    "memory": "max_memory",
    "n_threads": "threads",
    "precision": "dtype",
    "random_state": "seed",
}
DECLARING = {"constants": "constant", "indices": "index", "initial": "initial vector", "weights": "weight"}
Given = dict[str, tuple[Node, Node]]  # key and value by the text of the key


class Reader:
    """Problems are collected, and what depends on a broken name is left out silently."""

    def __init__(self, text: str, file: str, base: Path | Mapping[str, Any] | None) -> None:
        self.text, self.file, self.base = text, file, base
        self.lines = text.splitlines()
        self.problems: list[Problem] = []
        self.broken: set[str] = set()  # names whose declaration is wrong: nothing is concluded from them
        self.places: dict[str, Span] = {}  # where names were written that have no span of their own
        self.names = Names()
        self.written: list[tuple[str, Span, Statement | None]] = []  # the body: texts, and what was read of them

    def error(self, message: str, span: Span, fix: str = "") -> None:
        """Note a problem."""
        self.problems.append(Problem(message, span, fix))

    def span(self, node: Node) -> Span:
        """Position of a node, with the line it stands on."""
        mark = node.start_mark
        text = self.lines[mark.line].strip() if mark.line < len(self.lines) else ""
        return Span(self.file, mark.line + 1, mark.column + 1, shorten(text))

    def inside(self, node: Node, text: str = "") -> Span:
        """Position of a scalar's first character, to count columns from; 0 where the scalar is not one plain line."""
        mark, span = node.start_mark, self.span(node)
        assert isinstance(node, ScalarNode)
        plain = node.style not in ("|", ">") and str(node.value) in self.lines[mark.line]
        column = mark.column + 1 + (node.style is not None) if plain else 0
        return Span(self.file, span.line, column, shorten(text or span.text))

    @contextmanager
    def whole(self, key: str, value: Node, span: Span) -> Iterator[None]:
        """Give fixes of an entry that stands beside others on one line the whole line."""
        try:
            yield
        except ProgramError as error:
            fixes = [
                self.instead(value, span, p.fix, key) if p.fix.startswith(f"{key}: ") else p.fix for p in error.problems
            ]
            raise ProgramError(
                Problem(p.message, p.span, fix) for p, fix in zip(error.problems, fixes, strict=True)
            ) from None

    @contextmanager
    def guard(self, span: Span, *names: str) -> Iterator[None]:
        """Collect what goes wrong inside, at `span` where it has no place yet; the names count as broken."""
        try:
            yield
        except ProgramError as error:
            self.broken.update(name for name in names if name)
            self.problems += [Problem(p.message, p.span if p.span.line else span, p.fix) for p in error.problems]

    def entries(self, node: Node | None, what: str, known: Mapping[str, Any] | None = None) -> Given:
        """Keys and values of a mapping by key; `known` lists the keys allowed."""
        if node is None or (isinstance(node, ScalarNode) and node.style is None and node.value in ("", "~", "null")):
            return {}
        if not isinstance(node, MappingNode):
            self.error(
                f"{what} entries are written `name: value`",
                self.span(node),
                "one entry per line, or {name: value, ...}",
            )
            return {}
        result: Given = {}
        cut = False  # whether an opened round bracket of an earlier entry is still to be closed
        for key, value in node.value:
            span = self.span(key)
            if not isinstance(key, ScalarNode):
                self.error("a key must be a name", span, 'quote names with indices: "W[i]": 1')
                continue
            name = key.value.strip()
            if name == "<<":
                self.error("merge keys (<<) are not part of program files", span, "write the entries out")
            elif node.flow_style and (cut or (isinstance(value, ScalarNode) and _is_open(value.value))):
                if not cut:
                    line = self.lines[span.line - 1]
                    held = re.search(rf"\b{re.escape(name)}\s*:\s*([^,{{}}]*\((?:[^()]|\([^()]*\))*\)[^,{{}}]*)", line)
                    inside = held[1].strip() if held else "max(a, b)"
                    pair = re.fullmatch(r"\(\s*(\w+)\s*,\s*(\w+)\s*\)", inside)
                    quoted = f"[{pair[1]}, {pair[2]}]" if pair else f'"{inside}"'
                    fix = line[: held.start(1)] + quoted + line[held.start(1) + len(inside) :] if held else ""
                    self.error(
                        "a comma inside {...} ends the entry, so this text was cut in two",
                        span,
                        fix.strip() or f"quote it: {quoted}",
                    )
                cut = not any(
                    _is_open(part.value, closing=True) for part in (key, value) if isinstance(part, ScalarNode)
                )
                self.broken.update(re.findall(r"^[^\W\d]\w*", name))
            elif node.flow_style and result and plain_number(name) is not None and value.value == "":
                last, (_, behind) = next(reversed(result.items()))
                place = self.instead(behind, self.span(result[last][0]), "LIST", last)
                parts = re.match(r".*?LIST((?:\s*,\s*[\d_.]+)+)", place)
                texts = [self.source(behind), *re.findall(r"[\d_.]+", parts[1] if parts else name)]
                whole = what == "run option" and "items" not in RUN_KEYS.get(last, {})
                text = f"{last}: {''.join(texts) if whole else '[' + ', '.join(texts) + ']'}"
                fix = place.replace("LIST" + parts[1], text) if parts else text
                self.error(f"a comma inside {{...}} ends the entry {last}", span, fix)
                self.broken.add(last)
                break
            elif known is not None and name not in known:
                self.error(
                    f"there is no {what} {name}",
                    span,
                    self.meant(what, name, value, span, known) or did_you_mean(name, list(known)),
                )
                if what == "section":  # what it declares is missing elsewhere, for this reason alone
                    keys = [key for key, _ in value.value] if isinstance(value, MappingNode) else []
                    self.broken.update(first_word(str(key.value)) for key in keys)
            elif name in result:
                place = "file" if what == "section" else "section"
                self.error(
                    f"{name} is bound twice: it stands twice in this {place}",
                    span,
                    "remove one of them, or give it another name",
                )
            else:
                result[name] = key, value
                if known is None:
                    self.places.setdefault(first_word(name), span)
        return result

    def meant(self, what: str, name: str, value: Node, span: Span, known: Mapping[str, Any]) -> str:
        """The line, or the section, that was meant by an unknown name; '' if that is not known."""
        section = SECTION_WORDS.get(name.lower(), "") if what == "section" else ""
        if section:
            inline = value.start_mark.line + 1 == value.end_mark.line + 1 == span.line
            return f"{section}: {self.source(value)}" if inline and self.source(value) else f"{section}:"
        if what == "run option":
            option = RUN_WORDS.get(name.lower(), "")
            return self.instead(value, span, f"{option}: {self.source(value)}", name) if option in known else ""
        key = "variance" if "shape" in known else "cov" if "cov" in known else ""
        beside = re.search(rf"\b{key}\s*:", self.lines[span.line - 1])
        if beside and key:
            return f"leave {name} out: {key} is its square" if name.lower() in DEVIATIONS else ""
        if key and name.lower() in (*DEVIATIONS, *VARIANCES) and isinstance(value, ScalarNode):
            number = plain_number(value.value)
            squared = f"{number**2:.12g}" if number is not None else f"({value.value})**2"
            return self.instead(value, span, f"{key}: {squared if name.lower() in DEVIATIONS else value.value}", name)
        return ""

    def source(self, node: Node) -> str:
        """The text of a node as it is written."""
        return self.text[node.start_mark.index : node.end_mark.index]

    def instead(self, value: Node, span: Span, text: str, name: str) -> str:
        """The line of an entry with `text` in the place of `name: value`; the text alone where that is not one line."""
        line = self.lines[span.line - 1]
        held = re.search(rf"\b{re.escape(name)}\s*:\s*{re.escape(self.source(value))}", line[span.column - 1 :])
        if held is None or span.line != value.end_mark.line + 1 != value.start_mark.line + 1:
            return text
        start = span.column - 1 + held.start()
        return (line[:start] + text + line[span.column - 1 + held.end() :]).strip()

    def plain(self, node: Node | None, what: str) -> str:
        """Text of a section that is one line."""
        if node is None:
            return ""
        if not isinstance(node, ScalarNode):
            self.error(f"{what}: takes one line of text", self.span(node), f'{what}: "..."')
            return ""
        value = str(node.value).strip()
        with self.guard(self.span(node)):
            value = value if what == "program" else one_line(value, what)
        if what == "program" and not is_program_name(value):
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

    def data(self, node: Node, what: str) -> Any:
        """Texts, lists and dictionaries of a node."""
        if isinstance(node, SequenceNode):
            return [self.data(item, what) for item in node.value]
        if isinstance(node, MappingNode):
            return {key: self.data(value, what) for key, (_, value) in self.entries(node, what).items()}
        return self.value(node, what)

    def touches(self, node: Node, text: str = "") -> bool:
        """Whether a broken name occurs in a declaration, so that nothing certain can be said about it."""
        return self._broken(f"{text} " + self.text[node.start_mark.index : node.end_mark.index])

    def mentions(self, text: str) -> bool:
        """Whether a broken constant or index occurs in a text: then it cannot be read with certainty."""
        return self._broken(text, {*self.names.constants, *self.names.indices})

    def _broken(self, text: str, among: Collection[str] | None = None) -> bool:
        words = {word.rstrip("_") for word in re.findall(r"\w+", text)} & self.broken
        return not words.isdisjoint(among) if among is not None else bool(words)

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


def first_word(text: str) -> str:
    """The name that a key such as `W[i]` begins with."""
    return re.split(r"\W", text, maxsplit=1)[0]


def _is_open(text: str, closing: bool = False) -> bool:
    """Whether a round bracket is left open (or, with `closing`, closed without having been opened)."""
    return text.count(")") > text.count("(") if closing else text.count("(") > text.count(")")


# ---- sections -----------------------------------------------------------------------------------------------------


class Declared(NamedTuple):
    """An entry that declares something: its key as written, name and indices in it, value and position."""

    text: str
    name: str
    indices: tuple[str, ...]
    value: Node
    span: Span


def declared(reader: Reader, given: Given, what: Entries) -> Iterator[Declared]:
    """The entries that can be read."""
    called = f"{what.article} {what.called}"
    for text, (key, value) in given.items():
        span, short = reader.span(key), first_word(text)
        if reader.touches(value, text if what.indexed else ""):
            reader.broken.add(short)
            continue
        with reader.guard(span, short):
            if what.indexed:
                name, indices = make_name(text, reader.names, called, reader.inside(key))
            else:
                name, indices = plain_name(text, called, span), ()
            yield Declared(text, name, indices, value, span)


def read_entries(reader: Reader, given: Given, what: Entries, make: Callable[..., Any]) -> tuple[Any, ...]:
    """A section whose entries have options, from which `make` makes the records."""
    result = []
    for text, name, indices, entry, span in declared(reader, given, what):
        with reader.guard(span, text if what.short else name, name), reader.whole(text, entry, span):
            if isinstance(entry, MappingNode):
                options = {
                    key: value
                    for key, (_, value) in reader.entries(
                        entry, f"option of {what.article} {what.called}", what.options
                    ).items()
                }
            elif what.short:
                options = {what.short: entry}
            else:
                gaussian = re.fullmatch(r"\s*[Nn]\w*\(([^,]+),([^,]+)\)\s*", str(entry.value))
                single = isinstance(entry, ScalarNode) and plain_number(entry.value) is not None
                mean, cov = gaussian.groups() if gaussian else (0, entry.value if single else 1)
                raise fail(
                    f"{what.called} {name} takes {{mean: ..., cov: ...}}",
                    span,
                    f"{text}: {{mean: {str(mean).strip()}, cov: {str(cov).strip()}}}",
                )
            owner = name if what.indexed else f"{what.called} {name}"
            values = {
                key: read_option(reader, value, what.options[key], f"the {key} of {owner}")
                for key, value in options.items()
            }
            result.append(make(name, indices, values, span))
    return tuple(result)


def read_option(reader: Reader, node: Node, option: Option, what: str) -> Any:
    """The value of an option."""
    if "file" in option.kinds:
        table = read_table(reader, node, what, option.dimensions)
        if table is not None:
            return table
        if "expression" not in option.kinds:
            raise fail(f"{what} must be a matrix or a file", reader.span(node), f"{what.split()[1]}: numbers.npy")
    if {"shape", "size"} & set(option.kinds) and isinstance(node, SequenceNode):
        return take(option, reader.data(node, what), reader.names, what, reader.span(node))
    return take(option, reader.value(node, what), reader.names, what, reader.inside(node))


def read_overrides(reader: Reader, given: Given, overrides: Mapping[str, Any]) -> dict[str, int | float]:
    """Values that replace those of constants that are numbers."""
    scalars = [name for name in given if "[" not in name]
    values: dict[str, int | float] = {}
    for name, value in overrides.items():
        shown = (
            f"{name}={value} (from --set or a keyword)"
            if isinstance(value, str | int | float)
            else (f"the value for {name} (from --set or a keyword)")
        )
        if name not in scalars:
            indexed = next((key for key in given if first_word(key) == name), None)
            fix = (
                "only constants that are numbers can be set"
                if indexed
                else did_you_mean(name, scalars) or "the program declares no constants"
            )
            kind = "an indexed" if indexed else "not a"
            reader.error(
                f"{shown}: {indexed or name} is {kind} constant of the program",
                reader.span(given[indexed][0]) if indexed else Span(reader.file),
                fix,
            )
            continue
        number = plain_number(value) if isinstance(value, str) else value
        with reader.guard(Span(reader.file), name):
            if isinstance(number, bool) or not (hasattr(number, "__float__") or hasattr(number, "__index__")):
                raise fail(f"{shown}: {value!r} is not a number", fix=f"--set {name}=2, or {name}=2 in Python")
            values[name] = scalar(number, reader.names, shown)
    return values


def read_constants(reader: Reader, given: Given, overrides: Mapping[str, Any]) -> list[ConstantDef]:
    """Constants that are numbers, each with the constants above it; `overrides` replace values."""
    values: dict[str, int | float | None] = dict(reader.names.constants)
    replaced = read_overrides(reader, given, overrides)
    result = []
    for name, (key, entry) in given.items():
        if "[" in name:
            continue
        span = reader.span(key)
        with reader.guard(reader.span(entry), name):
            known = plain_name(name, "a constant", span)
            if not isinstance(entry, ScalarNode):
                raise fail(f"{name} is a list, so it needs an index", span, f"{name}[i]: [..]")
            if name not in replaced and reader.touches(entry):
                reader.broken.add(name)
                continue
            number = replaced.get(name)
            if number is None:
                names = Names(values, reader.names.indices)
                number = scalar(reader.value(entry, name), names, f"constant {name}", reader.inside(entry))
            values[known] = number
            result.append(ConstantDef(known, number, (), span))
    reader.names = Names(values, reader.names.indices)
    return result


def read_written(given: Given, overrides: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Texts of the constants and fixed widths that are not written as plain numbers."""
    return tuple(
        (name, value.value.strip())
        for name, (_, value) in given.items()
        if isinstance(value, ScalarNode)
        and "[" not in name
        and name not in overrides
        and plain_number(value.value) is None
    )


def read_tables(reader: Reader, given: Given) -> list[ConstantDef]:
    """Constants over indices: lists, expressions or files."""
    result = []
    entries = {text: nodes for text, nodes in given.items() if "[" in text}
    for text, name, indices, entry, span in declared(reader, entries, CONSTANT):
        with reader.guard(span, name):
            table = read_table(reader, entry, f"constant {text}", len(indices))
            value: Table | Expr = (
                table
                if table is not None
                else expression(reader.value(entry, text), reader.names, reader.inside(entry))
            )
            if isinstance(value, Number):
                raise fail(f"{text} is one number for all indices", span, f"{name}: {value}, without indices")
            result.append(ConstantDef(name, value, indices, span))
    return result


def read_widths(reader: Reader, given: Given, make: Callable[[str, Any, Names, Span], Any]) -> tuple[Any, ...]:
    """The section `widths` or `fixed_widths`, whose records `make` makes."""
    result = []
    for text, name, _, entry, span in declared(reader, given, WIDTHS):
        with reader.guard(span, text):
            result.append(make(name, reader.value(entry, f"width {text}"), reader.names, reader.inside(entry)))
    return tuple(result)


def read_body(reader: Reader, node: Node | None) -> tuple[Statement, ...]:
    """The section `body`."""
    if node is None:
        return ()
    if not isinstance(node, SequenceNode):
        reader.error("body: is a list of statements", reader.span(node), "- u[i] = MatMul(W[i], h)")
        return ()
    if len(node.value) > MAX_STATEMENTS:
        reader.error(
            f"the body has {len(node.value)} statements, more than the {MAX_STATEMENTS} allowed",
            reader.span(node),
            "use families: one statement for all members",
        )
        reader.broken.add("outputs")
        return ()
    statements: list[Statement] = []
    for item in node.value:
        if not isinstance(item, ScalarNode):
            text = reader.span(item).text
            fix = (
                "quote the statement"
                if isinstance(item, SequenceNode)
                else "no `: ` inside a statement"
                if "=" in text.split(":")[0]
                else "use `=`, not `:`"
            )
            reader.error(
                "each entry of body: is one statement `name[indices] = Instruction(...)`", reader.span(item), fix
            )
            # its target is unknown, so every name in it may be the one it was to define
            reader.broken.update(re.findall(r"[^\W\d]\w*", reader.span(item).text)[:1])
            continue
        text = str(item.value)
        span = reader.inside(item, " ".join(text.split()))
        target = re.match(r"\s*([^\W\d]\w*)", text)
        name = target.group(1) if target else ""
        reader.written.append((text, span, None))
        if name not in reader.broken and reader.mentions(text):
            reader.broken.add(name)
            continue
        with reader.guard(span, name):
            parsed = parse_statement(text, reader.names, span)
            statements.append(make_statement(parsed.target, parsed.instruction, parsed.args, parsed.keywords, span))
            reader.written[-1] = text, span, statements[-1]
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
            reader.error(
                f"an output is the name of a whole family{f', not {name}' if name else ''}",
                reader.span(item),
                name.split("[")[0] or "outputs: [y]",
            )
            reader.broken.add("outputs")
            continue
        reader.places[name] = reader.span(item)
        result.append(name)
    return tuple(result)


def read_run(reader: Reader, node: Node | None) -> tuple[tuple[str, Any], ...]:
    """The section `run`."""
    result: list[tuple[str, Any]] = []
    for key, (_, entry) in reader.entries(node, "run option", RUN_KEYS).items():
        with reader.guard(reader.span(entry)):
            if isinstance(entry, ScalarNode) and re.fullmatch(r"\d[\d_]*(\s*,\s*\d[\d_]*)+", entry.value.strip()):
                several = "items" in RUN_KEYS[key]
                text = f"[{entry.value.strip()}]" if several else re.sub(r"[\s,]", "", entry.value)
                raise fail(
                    f"{key} takes {'a list in square brackets' if several else 'one number, without commas'}",
                    reader.span(entry),
                    f"{key}: {text}",
                )
            result.append((key, make_option(key, reader.data(entry, key), reader.span(entry), reader.names)))
    return tuple(result)


# ---- numbers ------------------------------------------------------------------------------------------------------


def read_table(reader: Reader, node: Node, what: str, dimensions: int) -> Table | None:
    """Numbers of a nested list or of a file; None for any other text.  `dimensions` 0 leaves them open."""
    if isinstance(node, SequenceNode):
        return Table.of(_read_list(reader, node, what))
    if isinstance(node, MappingNode):
        options = reader.entries(node, "way to give numbers", {"file": 0})
        if "file" not in options:
            raise fail(f"{what}: expected {{file: ...}}", reader.span(node), "{file: numbers.npy}")
        return _read_file(reader, reader.value(options["file"][1], "file").strip(), what, dimensions, reader.span(node))
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

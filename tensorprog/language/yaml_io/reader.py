"""One reading of a program file: access to its nodes, and the problems found so far."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tensorprog.language.entries import is_program_name
from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, fail, shorten
from tensorprog.language.parse import Names


class Reader:
    """Problems are collected, and what depends on a broken name is left out silently."""

    def __init__(self, text: str, file: str, base: Path | Mapping[str, Any] | None) -> None:
        self.text, self.file, self.base = text, file, base
        self.lines = text.splitlines()
        self.problems: list[Problem] = []
        self.broken: set[str] = set()  # names whose declaration is wrong: nothing is concluded from them
        self.places: dict[str, Span] = {}  # where names were written that have no span of their own
        self.names = Names()

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
                    self.error("a comma inside {...} ends the entry, so this text was cut in two", span,
                               'quote it: "max(a, b)"')
                cut = not any(_is_open(part.value, closing=True)
                              for part in (key, value) if isinstance(part, ScalarNode))
            elif known is not None and name not in known:
                self.error(f"there is no {what} {name}", span, did_you_mean(name, list(known)))
                if what == "section":  # what it declares is missing elsewhere, for this reason alone
                    self.broken.update(map(first_word, self.keys(value)))
            elif name in result:
                place = "file" if what == "section" else "section"
                self.error(f"{name} is bound twice: it stands twice in this {place}", span,
                           "remove one of them, or give it another name")
            else:
                result[name] = value
                if known is None:
                    self.places.setdefault(first_word(name), span)
        return result

    def pairs(self, node: Node | None) -> dict[str, tuple[Node, Node]]:
        """Key node and value of a mapping by the text of the key, the first of equal ones."""
        result: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value if isinstance(node, MappingNode) else ():
            if isinstance(key, ScalarNode):
                result.setdefault(key.value.strip(), (key, value))
        return result

    def keys(self, node: Node | None) -> dict[str, Node]:
        """Key nodes of a mapping by their text."""
        return {text: key for text, (key, _) in self.pairs(node).items()}

    def plain(self, node: Node | None, what: str) -> str:
        """Text of a section that is one line."""
        if node is None:
            return ""
        if not isinstance(node, ScalarNode):
            self.error(f"{what}: takes one line of text", self.span(node), f'{what}: "..."')
            return ""
        value = str(node.value).strip()
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
            return {key: self.data(value, what) for key, value in self.entries(node, what).items()}
        return self.value(node, what)

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
        return bool(self._broken(words))

    def mentions(self, text: str) -> bool:
        """Whether a broken constant or index occurs in a text: then it cannot be read with certainty."""
        declared = {*self.names.constants, *self.names.indices}
        return bool(self._broken(re.findall(r"\w+", text)) & declared)

    def _broken(self, words: Iterable[str]) -> set[str]:
        return {word.rstrip("_") for word in words} & self.broken

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

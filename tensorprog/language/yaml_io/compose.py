"""Text to YAML nodes with their positions: bounded before YAML sees it, without tags, anchors and aliases."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import Node
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from tensorprog.language.errors import Span, fail, shorten

MAX_TEXT = 500_000  # characters of a program file
MAX_FLOW = 40  # nested { and [ in the raw text
MAX_NEST = 12  # nested nodes
MAX_NODES = 50_000


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


def compose(text: str, file: str) -> Node | None:
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
        return Span(file, line + 1, column + 1, shorten(shown))

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
        name = re.search(r"\w+\[[^\]]*\]?", line[max(line.find("{" if "{" in line else "["), 0):])
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

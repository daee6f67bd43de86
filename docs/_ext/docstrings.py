"""Docstrings of the package as reStructuredText: prose with its sections Shapes, Scale, Accuracy, Raises and Source.

Fields of records have no docstrings; the comment behind a field says what it is.
"""

from __future__ import annotations

import inspect
import re
from pydoc import locate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SECTION = re.compile(r"(Shapes|Scale|Accuracy|Raises|Source) {2,}(.*)")

ARRAY = re.compile(r"~numpy\.ndarray\[tuple\[.*?\], ~numpy\.dtype\[.*?\]\]")  # what NDArray[Any] stands for


def prose(line: str) -> str:
    """A line of prose: code in backticks, and no other character with a meaning."""
    parts = re.split(r"`([^`]*)`", line)
    return "".join(f"``{part}``" if k % 2 else re.sub(r"([\\*_|])", r"\\\1", part) for k, part in enumerate(parts))


def restructured(lines: list[str]) -> list[str]:
    """A docstring as reStructuredText: its sections become fields."""
    found: list[str] = []
    inside = False
    for line in lines:
        section = SECTION.match(line)
        if section:
            found += [f":{section[1]}:", f"    {prose(section[2])}"]
            inside = True
        elif inside and line.startswith("  "):
            found.append(f"    {prose(line.strip())}")
        else:
            found.append(prose(line))
            inside = inside and not line
    return found


def comment(name: str) -> str:
    """The comment behind a field, by its full name; empty if there is none."""
    owner, _, field = name.rpartition(".")
    found = re.search(rf"^    {field}: .*?  # (.*)$", inspect.getsource(locate(owner)), re.MULTILINE)
    return found[1] if found else ""


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what == "attribute" and not any(lines):
        lines[:] = [comment(name)]
    lines[:] = restructured(lines)


def _signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, *texts: str | None) -> tuple[str | None, ...]:
    return tuple(text and ARRAY.sub("~numpy.ndarray", text) for text in texts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Read docstrings this way."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

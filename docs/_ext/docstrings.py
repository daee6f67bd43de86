"""Docstrings of the package as reStructuredText: prose with its sections Shapes, Scale, Accuracy, Raises and Source."""

import re
from typing import Any

from sphinx.application import Sphinx

SECTION = re.compile(r"(Shapes|Scale|Accuracy|Raises|Source) {2,}(.*)")


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


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = restructured(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Read docstrings this way."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

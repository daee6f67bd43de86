"""Terminals: whether a person is looking, how wide the screen is, and what stands for characters it does not have."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
import unicodedata
from typing import TextIO

__all__ = ["columns_of", "is_styled", "is_terminal", "prepare", "replacement"]

PIPE = 1000  # columns of what is no screen

# where neither the name of a character nor its decomposition says it better
_WRITTEN = {
    "−": "-", "‖": "||", "×": "x", "·": "*", "•": "*", "±": "+-", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "→": "->",
    "←": "<-", "∞": "inf", "√": "sqrt", "∈": "in", "∑": "sum", "∏": "prod", "∫": "int", "ß": "ss", "æ": "ae", "ø": "o",
    "Ø": "O", "ł": "l", "Ł": "L", "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "«": '"', "»": '"', "█": "#",
    "✓": "v", "✗": "x",
}


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is looking at it."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def is_styled(stream: TextIO | None) -> bool:
    """Whether tables are drawn: for a person, and for whoever sets FORCE_COLOR."""
    return is_terminal(stream) or bool(os.environ.get("FORCE_COLOR"))


def columns_of(stream: TextIO | None) -> int:
    """Width of the terminal, or that of a long line for a pipe."""
    return shutil.get_terminal_size().columns if is_styled(stream) else PIPE


def prepare() -> None:
    """Let the streams of the process take every text: closed ones swallow it, others replace what they lack."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="tensorprog")


def replacement(character: str) -> str:
    """ASCII for a character: sigma, || or - for Greek letters, signs and lines; letters without accents; else '?'."""
    name = unicodedata.name(character, "")
    if character in _WRITTEN:
        return _WRITTEN[character]
    if name.startswith("GREEK") and "LETTER" in name:
        letter = name.split("LETTER ")[1].split()[0].lower()
        return letter.capitalize() if "CAPITAL" in name else letter
    if name.startswith("BOX DRAWINGS"):
        return "+" if " AND " in name else "-" if "HORIZONTAL" in name else "|"
    if unicodedata.category(character) in ("Pd", "Zs"):
        return "-" if unicodedata.category(character) == "Pd" else " "
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain or "?"


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(replacement, error.object[error.start : error.end])), error.end


codecs.register_error("tensorprog", _replaced)

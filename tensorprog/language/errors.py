"""Exception types and the one format in which problems are shown."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SHOWN = 50  # problems printed of one program; `problems` holds them all


@dataclass(frozen=True)
class Span:
    """Where a piece of a program was written: file, 1-based line and column, and the text itself."""

    file: str = ""
    line: int = 0
    column: int = 0
    text: str = ""

    def at(self, offset: int) -> Span:
        """Return the position `offset` characters further right on the same line."""
        return Span(self.file, self.line, self.column + offset if self.column else 0, self.text)

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        column = f"column {self.column}" if self.line and self.column else ""
        return ", ".join(filter(None, (self.file, line, column)))


@dataclass(frozen=True)
class Problem:
    """One mistake: what is wrong, where it stands, and what to write instead."""

    message: str
    span: Span = Span()
    fix: str = ""

    def __str__(self) -> str:
        place = str(self.span)
        said = f"{self.message}   [{place}]" if place else self.message
        written = f"\n  in    {self.span.text}" if self.span.text else ""
        fix = "\n  try   " + self.fix.replace("\n", "\n        ") if self.fix else ""
        return visible(said + written + fix)


class TensorprogError(Exception):
    """Base of every error a user can cause; its text is complete and needs no traceback."""

    exit_code = 2


class ProgramError(TensorprogError, ValueError):
    """A program, file or argument is not valid; `problems` lists every mistake found."""

    __str__ = Exception.__str__  # where it is a KeyError, too

    def __init__(self, problems: Problem | str | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        shown = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            shown.append(f"... and {len(self.problems) - MAX_SHOWN} more problems")
        super().__init__("\n".join(shown))


class UnknownNameError(ProgramError, KeyError):
    """Nothing has this name."""


class WrongTypeError(ProgramError, TypeError):
    """An argument is of another type than the one asked for."""


class FullDiskError(ProgramError):
    """There is no room left where something is written."""

    exit_code = 3


class OutsideError(TensorprogError):
    """No limit is claimed for this program; the text names the findings that caused it."""

    exit_code = 1


class NotCompiledError(TensorprogError):
    """The limit may exist, but this version does not compile it; finite widths run.

    `problem` has the statement and its line, and what to write instead.
    """

    exit_code = 3

    def __init__(self, problem: Problem | str) -> None:
        self.problem = Problem(problem) if isinstance(problem, str) else problem
        super().__init__(str(problem))


class AccuracyError(TensorprogError):
    """A number could not be computed to the accuracy asked for."""

    exit_code = 3


class NotFiniteError(AccuracyError):
    """Values overflow, or are no numbers; a function that is certified may still be too large for a computer."""


class MemoryLimitError(TensorprogError):
    """A result would not fit in the memory allowed."""

    exit_code = 3


class WorkerError(TensorprogError):
    """Workers did not survive, or could not do, what they were given."""

    exit_code = 3


def visible(text: str) -> str:
    """The text with what is not printable written out, as \\x1b is: terminals would obey it."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else " " if c == "\t" else c.encode("unicode_escape").decode() for c in text
    )


def did_you_mean(name: str, known: Sequence[str], otherwise: str | None = None) -> str:
    """Return 'did you mean x?' for the closest known name, else `otherwise`, by default the known names."""
    listed = f"known names: {', '.join(sorted(known)[:12])}" if known and otherwise is None else otherwise or ""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else listed


def fail(message: str, span: Span = Span(), fix: str = "", kind: type[ProgramError] = ProgramError) -> ProgramError:
    """One problem as an exception, ready to raise."""
    return kind(Problem(message, span, fix))


def refuse(problems: Iterable[Problem]) -> None:
    """Raise ProgramError if there are problems, with each once, in the order of the text."""
    found = sorted(dict.fromkeys(problems), key=lambda problem: (problem.span.line, problem.span.column))
    if found:
        raise ProgramError(found)


def shorten(text: str) -> str:
    """Text of a position, cut to 200 characters."""
    return text if len(text) <= 200 else text[:197] + "..."


def check_count(name: str, value: Any, least: int = 1) -> int:
    """A whole number; raise ProgramError for anything else."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or value < least:
        said = f"{name} must be a whole number of at least {least}, not {value!r}"
        raise fail(said, kind=ProgramError if whole else WrongTypeError)
    return int(value)


def how_to_install(extra: str) -> str:
    """The command that adds the packages of an extra."""
    return f'pip install "tensorprog[{extra}]"'


class MissingPackageError(TensorprogError):
    """A package that is needed is not installed."""


def need_package(package: str, what: str, extra: str) -> Any:
    """The module, which `what` need.

    Raises    MissingPackageError with the command that installs the extra
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        text = str(Problem(f"{what} need the package {package}", fix=how_to_install(extra)))
        raise MissingPackageError(text) from None

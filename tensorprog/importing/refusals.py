"""What cannot be imported is refused: module path, operation, source line, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorprog.language.errors import Problem, ProgramError, Span

__all__ = ["InvalidText", "Refusal", "SourcePlace", "refusal", "refused"]


@dataclass(frozen=True)
class SourcePlace:
    """Where an operation of a module stands: path of the submodule and its class, operation, source file and line."""

    path: str = ""
    owner: str = ""
    operation: str = "an operation"
    file: str = ""
    line: int = 0
    text: str = ""

    @property
    def alike(self) -> str:
        """The same for all layers that are alike."""
        return re.sub(r"(^|\.)\d+(?=\.|\b)", r"\1*", str(self))

    def __str__(self) -> str:
        owner = f" ({self.owner})" if self.owner else ""
        return f"{self.operation} in {self.path or 'the module itself'}{owner}"


class Refusal(ProgramError):
    """A ProgramError that names the operation of a module which cannot be imported."""


def refusal(place: SourcePlace, why: str, fix: str) -> Refusal:
    """The error for an operation that cannot be imported."""
    return Refusal(_problem(place, why, fix))


class InvalidText(Refusal):
    """A Refusal of the language, of a program that was written already."""


def refused(problems: Sequence[Problem], places: Mapping[int, SourcePlace]) -> InvalidText:
    """The error for a program that the language refuses, with the operations that lines of its text came from."""
    fix = "write this operation in its plainest form, or with other operations; the import should have said so before"
    return InvalidText(
        _problem(
            places.get(problem.span.line, SourcePlace()), f"in the program it is not valid: {problem.message}", fix
        )
        for problem in problems
    )


def _problem(place: SourcePlace, why: str, fix: str) -> Problem:
    return Problem(f"{place} cannot be imported: {why}", Span(place.file, place.line, text=place.text), fix)

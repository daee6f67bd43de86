"""What cannot be imported is refused: module path, operation, source line, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tensorprog.language.errors import Problem, ProgramError, Span

__all__ = ["InvalidText", "Refusal", "SourcePlace", "refusal", "refused"]


@dataclass(frozen=True)
class SourcePlace(Span):
    """Where an operation of a module stands: source file and line, path of the submodule and its class, operation.

    Records that are made of it have it as their `span`, with the role that they play, and with their parameter.
    """

    path: str = ""
    owner: str = ""
    operation: str = "an operation"
    role: str = ""
    parameter: str = ""

    def at(self, offset: int) -> SourcePlace:
        """The place itself: it has no columns."""
        return self

    @property
    def what(self) -> str:
        """The operation and its module."""
        return f"{self.operation} in {self.path or 'the module itself'}{f' ({self.owner})' if self.owner else ''}"

    @property
    def alike(self) -> str:
        """The same for all layers that are alike."""
        return re.sub(r"(^|\.)\d+(?=\.|\b)", r"\1*", self.what)


class Refusal(ProgramError):
    """A ProgramError that names the operation of a module which cannot be imported."""


def refusal(place: SourcePlace, why: str, fix: str) -> Refusal:
    """The error for an operation that cannot be imported."""
    return Refusal(_problem(place, why, fix))


class InvalidText(Refusal):
    """A Refusal of the language, of a program that was written already."""


def refused(problems: Sequence[Problem]) -> InvalidText:
    """The error for a program that the language refuses, with the operations that its records came from."""
    fix = "write this operation in its plainest form, or with other operations; the import should have said so before"
    places = [problem.span if isinstance(problem.span, SourcePlace) else SourcePlace() for problem in problems]
    return InvalidText(
        _problem(place, f"in the program it is not valid: {problem.message}", fix)
        for place, problem in zip(places, problems, strict=True)
    )


def _problem(place: SourcePlace, why: str, fix: str) -> Problem:
    return Problem(f"{place.what} cannot be imported: {why}", Span(place.file, place.line, text=place.text), fix)

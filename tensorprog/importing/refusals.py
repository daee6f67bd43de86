"""What cannot be imported is refused: module path, operation, source line, and what to write instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensorprog.language.errors import ProgramError, Span, fail

__all__ = ["SourcePlace", "refusal"]


@dataclass(frozen=True)
class SourcePlace:
    """Where an operation of a module stands: path of the submodule and its class, operation, source file and line."""

    path: str = ""
    owner: str = ""
    operation: str = ""
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


def refusal(place: SourcePlace, why: str, fix: str) -> ProgramError:
    """The error for an operation that cannot be imported."""
    return fail(f"{place} cannot be imported: {why}", Span(place.file, place.line, text=place.text), fix)

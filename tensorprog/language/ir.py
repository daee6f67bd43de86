"""`Netsor`, the validated immutable program, with the records that it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensorprog.language.records import (
    ConstantDef,
    Dot,
    Draft,
    Family,
    Index,
    Initial,
    Kind,
    MatMul,
    Nonlin,
    Range,
    Statement,
    Table,
    Weight,
    mapped,
)
from tensorprog.language.validity import validate

__all__ = [
    "ConstantDef",
    "Dot",
    "Draft",
    "Family",
    "Index",
    "Initial",
    "Kind",
    "MatMul",
    "Netsor",
    "Nonlin",
    "Range",
    "Statement",
    "Table",
    "Weight",
    "mapped",
]


@dataclass(frozen=True)
class Netsor(Draft):
    """A validated, immutable Netsor program with Dots.

    Raises    ProgramError on construction, with every mistake found
    """

    def __post_init__(self) -> None:
        families, warnings = validate(self)
        object.__setattr__(self, "families", families)
        object.__setattr__(self, "warnings", warnings)

    @cached_property
    def remembered(self) -> dict[Any, Any]:
        """What was worked out of the program alone, by whoever did; no part of it."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "remembered"}

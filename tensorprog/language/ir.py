"""`Netsor`, the validated immutable program, with the records that it is made of."""

from __future__ import annotations

from dataclasses import dataclass

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
)
from tensorprog.language.validity import validate

__all__ = [
    "ConstantDef", "Dot", "Draft", "Family", "Index", "Initial", "Kind", "MatMul", "Netsor", "Nonlin", "Range",
    "Statement", "Table", "Weight",
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

"""Choices of constants: one program for each combination of the values that a study varies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorprog.language.errors import Problem, ProgramError, did_you_mean, fail
from tensorprog.language.ir import Netsor
from tensorprog.language.writing import pack, unpack

__all__ = ["Number", "ProgramChoice", "choices", "with_constants"]

Number = int | float
EXACT = 2**53  # whole numbers up to this are exact as floats


@dataclass(frozen=True)
class ProgramChoice:
    """Values of the constants varied, and the program that has them."""

    values: tuple[tuple[str, Number], ...]
    netsor: Netsor = field(compare=False, repr=False)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values)


def choices(base: Netsor, over: Mapping[str, Any] | None, taken: tuple[str, ...] = ()) -> tuple[ProgramChoice, ...]:
    """The program with each choice of values, which are numbers, or texts as in a program file; equal ones once.

    Raises    ProgramError for what is no constant, whose name is `taken` by an axis of results, or for a value
    """
    over = {} if over is None else over
    if not isinstance(over, Mapping) or not all(isinstance(name, str) for name in over):
        raise fail(f"over must give names of constants their values, not {over!r}", fix='over={"H": [1, 2, 4]}')
    for name in over:
        known = [key for key, value in base.scalars.items() if value is not None]
        if name not in known:
            raise fail(f"{name} is not a constant of {base.name} that has one number", fix=did_you_mean(name, known))
        if name in taken:
            raise fail(
                f"the constant {name} cannot be swept: the result has numbers of that name",
                fix="give it another name in the program",
            )
    found: dict[tuple[Number, ...], ProgramChoice] = {}
    for picked in itertools.product(*(_listed(name, values) for name, values in over.items())):
        netsor = with_constants(base, dict(zip(over, picked, strict=True)))
        values = tuple(netsor.scalars[name] or 0 for name in over)
        found.setdefault(values, ProgramChoice(tuple(zip(over, values, strict=True)), netsor))
    return tuple(found.values())


def with_constants(base: Netsor, values: Mapping[str, Any]) -> Netsor:
    """The program with other values of constants.

    Raises    ProgramError, which names the values
    """
    if not values:
        return base
    said = ", ".join(f"{name}={value}" for name, value in values.items())
    text, tables = pack(base)
    try:
        return unpack(text, tables, dict(values))
    except ProgramError as error:
        raise ProgramError([Problem(f"with {said}: {p.message}", p.span, p.fix) for p in error.problems]) from None


def _listed(name: str, values: Any) -> list[Any]:
    """One value or several, without the types of numpy; whole numbers in one form."""
    listed = [values] if isinstance(values, str) or np.ndim(values) == 0 else list(values)
    plain = [value.item() if isinstance(value, np.generic) else value for value in listed]
    found = [int(v) if isinstance(v, float) and v.is_integer() and abs(v) <= EXACT else v for v in plain]
    if not found:
        raise fail(f"no values of {name} are given: there is nothing to vary")
    return found

"""Choices of constants: one program for each combination of the values that a study varies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorprog.language.errors import Problem, ProgramError, did_you_mean, fail
from tensorprog.language.ir import Netsor
from tensorprog.language.writing import pack, unpack

__all__ = ["Choice", "choices", "choices_of", "said"]

Choice = dict[str, int | float]  # values of the constants varied
EXACT = 2**53  # whole numbers up to this are exact as floats


def said(choice: Choice) -> str:
    """A choice in words."""
    return ", ".join(f"{name}={value:.15g}" for name, value in choice.items())


def choices_of(found: Any, axes: tuple[str, ...]) -> list[Choice]:
    """Each choice of constants in a Dataset that has further `axes`."""
    names = [str(name) for name in found.dims if name not in axes]
    values = itertools.product(*(found[name].values.tolist() for name in names))
    return [dict(zip(names, each, strict=True)) for each in values]


def choices(base: Netsor, over: Mapping[str, Any] | None, taken: tuple[str, ...] = ()) -> list[tuple[Choice, Netsor]]:
    """The program with each choice of values, which are numbers, or texts as in a program file; equal ones once.

    Raises    ProgramError for what is no constant, whose name is `taken` by an axis of results, or for a value
    """
    over = {} if over is None else over
    if not isinstance(over, Mapping):
        raise fail(f"over must give names of constants their values, not {over!r}", fix='over={"H": [1, 2, 4]}')
    if not over:
        return [({}, base)]
    known = [key for key, value in base.scalars.items() if value is not None]
    for name in over:
        if name not in known:
            raise fail(f"{name} is not a constant of {base.name} that has one number", fix=did_you_mean(name, known))
        if name in taken:
            raise fail(f"the constant {name} cannot be varied: the result has numbers of that name", fix="another name")
    found: dict[tuple[int | float, ...], tuple[Choice, Netsor]] = {}
    text, tables = pack(base)
    for picked in itertools.product(*(_listed(name, values) for name, values in over.items())):
        values = dict(zip(over, picked, strict=True))
        try:
            netsor = unpack(text, tables, values)
        except ProgramError as error:
            given = ", ".join(f"{name}={value}" for name, value in values.items())
            raise ProgramError([Problem(f"with {given}: {p.message}", p.span, p.fix) for p in error.problems]) from None
        choice = {name: netsor.scalars[name] or 0 for name in over}
        found.setdefault(tuple(choice.values()), (choice, netsor))
    return list(found.values())


def _listed(name: str, values: Any) -> list[Any]:
    """One value or several, without the types of numpy; whole numbers in one form."""
    listed = [values] if isinstance(values, str) or np.ndim(values) == 0 else list(values)
    plain = [value.item() if isinstance(value, np.generic) else value for value in listed]
    found = [int(v) if isinstance(v, float) and v.is_integer() and abs(v) <= EXACT else v for v in plain]
    if not found:
        raise fail(f"no values of {name} are given: there is nothing to vary")
    return found

"""Members of families as they are written, such as y[0], and numbers with their errors as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Grid
from tensorprog.blocks.html import Shown
from tensorprog.language.builder import FamilyHandle
from tensorprog.language.errors import ProgramError, UnknownNameError, WrongTypeError, did_you_mean
from tensorprog.language.expr import Variable
from tensorprog.language.files import plain
from tensorprog.language.ir import Netsor, Table

LISTED = 4096  # entries of a table that is written out
BRACKETS = "in brackets: the standard error of the last digits"


def label(name: str, index: Sequence[int | str]) -> str:
    """The name of a member, or a family, as it is written: y[0], p[0,1,2], W[i], m."""
    return f"{name}[{','.join(map(str, index))}]" if index else name


def members(netsor: Netsor, name: str, limit: int | None = None) -> list[tuple[int, ...]]:
    """Index values of the (first `limit`) members of a family, in C order; [()] for a name without indices."""
    return netsor.families[name].members(limit)


def name_of(variable: Any) -> str:
    """The name of a variable, given as text or as a handle, without spaces.

    Raises    WrongTypeError
    """
    if not isinstance(variable, str | Variable | FamilyHandle):
        raise WrongTypeError(f"a variable is named by text, such as 'y[0]', not {variable!r}")
    return str(variable).replace(" ", "")


def split(netsor: Netsor, variable: str) -> tuple[str, int]:
    """Family and position in C order of a member written as in `label`.

    Raises    ProgramError if there is no such member
    """
    name, bracket, rest = name_of(variable).partition("[")
    family = netsor.families.get(name)
    if family is None or family.kind == "weight":
        known = [key for key, value in netsor.families.items() if value.kind != "weight"]
        raise UnknownNameError(f"{variable} is not a variable of {netsor.name}; {did_you_mean(name, known)}")
    try:
        index = [int(part) for part in rest.removesuffix("]").split(",")] if bracket else []
    except ValueError:
        example = label(name, members(netsor, name, 1)[0])
        raise ProgramError(f"{variable} is not a member: write for example {example}") from None
    if family.ranges and not bracket:
        raise ProgramError(f"{variable} is a family: name a member, such as {label(name, members(netsor, name, 1)[0])}")
    legal = len(index) == len(family.ranges) and all(
        start <= value < stop for value, (start, stop) in zip(index, family.ranges, strict=True)
    )
    if not legal:
        spans = ", ".join(f"{start}..{stop - 1}" for start, stop in family.ranges) or "no index"
        raise ProgramError(f"{variable} is not a member of {name}, whose indices run over {spans}")
    offsets = [value - start for value, (start, _) in zip(index, family.ranges, strict=True)]
    return name, int(np.ravel_multi_index(offsets, family.shape)) if offsets else 0


def selected(netsor: Netsor, variable: str) -> tuple[str, tuple[int, ...]]:
    """Family, and where in an array over it a member stands; () for the whole family.

    Raises    ProgramError if there is neither
    """
    name = name_of(variable)
    if (family := netsor.families.get(name)) is None or family.kind == "weight":
        name, position = split(netsor, variable)
        return name, tuple(map(int, np.unravel_index(position, netsor.families[name].shape)))
    return name, ()


def one_or_several(values: Any, read: Callable[[Any], Any]) -> list[Any]:
    """What was given, one or several, each passed through `read`, which refuses what is wrong."""
    several = isinstance(values, Iterable) and not isinstance(values, Mapping | str | Shown)
    return [read(value) for value in (values if several else [values])]


def quantity(value: float, error: float = math.nan, figures: int = 2) -> str:
    """A number with its error to so many figures, in units of the last digit: 3.571(12); '-' if it is not a number."""
    if not math.isfinite(value):
        return "-"
    if not math.isfinite(error) or error < 0:
        return short(value)
    if error == 0 or error < abs(value) * 1e-12:
        return f"{value:.6g}"
    largest = max(abs(value), error)
    exponent = math.floor(math.log10(largest))
    shift = exponent if exponent < -3 or exponent > 6 else 0
    value, error = value / 10.0**shift, error / 10.0**shift
    digits = max(0, figures - 1 - math.floor(math.log10(error)))
    bracket = round(error * 10**digits)
    if bracket >= 10**figures and digits > 0:
        digits, bracket = digits - 1, round(error * 10 ** (digits - 1))
    text = f"{value:.{digits}f}({bracket})"
    return f"{text}e{shift}" if shift else text


def law_number(value: float, error: float) -> str:
    """A number of a law with its error; 0 where both are rounding."""
    return "0" if abs(value) < 1e-15 and not error > 1e-15 else quantity(value, error)


def covariance_table(name: str, variables: Sequence[str], value: NDArray[Any], error: NDArray[Any]) -> Grid:
    """The covariance of a family as a table.

    Shapes    value, error (variables, variables)
    """
    rows = tuple(
        (variable, *(law_number(float(v), float(e)) for v, e in zip(*pair, strict=True)))
        for variable, *pair in zip(variables, value, error, strict=True)
    )
    return Grid(f"covariance of {name}", ("", *variables), rows)


def short(value: float) -> str:
    """A number of no stated accuracy, to two or three figures."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.1e}".replace("e-0", "e-") if 0 < abs(value) < 1e-3 else f"{value:.3g}"


def chance(p: float) -> str:
    """A p-value."""
    return "-" if not math.isfinite(p) else "<1e-9" if p < 1e-9 else f"{p:.1g}" if p < 0.01 else f"{p:.2f}"


def plain_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, and of those in it, as plain values; None for numbers that are not finite."""
    found: dict[str, Any] = plain(asdict(record))
    return found


def constants_json(netsor: Netsor) -> dict[str, Any]:
    """Constants by name: numbers, nested lists of small tables, the text of expressions."""
    result: dict[str, Any] = {}
    for constant in netsor.constants:
        value = constant.value
        result[constant.name] = value if isinstance(value, int | float) else str(value)
        if isinstance(value, Table):
            small = math.prod(value.shape) <= LISTED
            result[constant.name] = value.array if small else {"shape": list(value.shape), "file": value.file or None}
    return result

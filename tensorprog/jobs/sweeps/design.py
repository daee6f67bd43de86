"""What a sweep consists of: the request, checked as a whole before any work, its cells, and the numbers of a cell."""

from __future__ import annotations

import itertools
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from tensorprog.finite.job import make_job
from tensorprog.finite.run import estimate
from tensorprog.language.builder import Builder
from tensorprog.language.errors import NotCompiledError, Problem, ProgramError, did_you_mean, fail
from tensorprog.language.formats import label, members, name_of, one_or_several, split
from tensorprog.language.ir import Netsor
from tensorprog.language.reading import load
from tensorprog.language.writing import pack, unpack
from tensorprog.results.comparison import Row
from tensorprog.results.conditional import with_conditional
from tensorprog.shipped import resolve, shipped_programs

__all__ = ["LIMITS", "NUMBERS", "Cell", "Design", "Setting", "described", "design"]

Number = int | float
MAX_WIDTH = 10**7
EXACT = 2**53  # whole numbers up to this are exact as floats
COMPARING = 0.02, 1e-6  # seconds to compare one variable, and more for each network
PRECISE = 0.3  # seconds for the divergence of its conditional laws
AXES = ("width", "repeat", "variable")
# of a cell: every numeric field of a comparison's row
NUMBERS = tuple(field.name for field in fields(Row) if field.type in ("int", "float"))
LIMITS = tuple(name for name in NUMBERS if name.startswith("limit_"))  # the same at all widths and repeats
LONG_NAMES = {
    "samples": "networks drawn",
    "effective": "independent draws",
    "kurtosis": "kurtosis (Gaussian = 3)",
    "ks": "Kolmogorov-Smirnov distance to the limit",
    "kl": "KL(finite || limit) by kernel estimates",
    "kl_precise": "KL(finite || limit) of averaged conditional Gaussians",
}
SUFFIXES = {"_se": "standard error of ", "_error": "error of ", "_p": "p-value of ", "_floor": "noise floor of "}
PREFIXES = {"limit_": "limit's ", "z_": "z-score against the limit of "}


@dataclass(frozen=True)
class Setting:
    """One choice of the constants swept, and the program with it."""

    position: tuple[int, ...]  # along the axes of the constants
    values: tuple[tuple[str, Number], ...]
    netsor: Netsor = field(compare=False, repr=False)
    conditional: Netsor | None = field(compare=False, repr=False)  # with conditional laws, where a variable has one

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values)


@dataclass(frozen=True)
class Cell:
    """One setting, width and repeat: the networks that are drawn and compared at once."""

    setting: Setting
    width: int
    repeat: int

    @property
    def name(self) -> str:
        """What the cell is, in a message."""
        return ", ".join(part for part in (str(self.setting), f"n = {self.width}", f"repeat {self.repeat}") if part)


@dataclass(frozen=True)
class Design:
    """A sweep that is valid: what `sweep` takes, read and checked."""

    base: Netsor
    words: str  # how the program is named in a command; empty if only its text names it
    width: tuple[int, ...]
    over: tuple[tuple[str, tuple[Number, ...]], ...]
    repeats: int
    samples: int
    seed: int
    variables: tuple[str, ...]
    settings: tuple[Setting, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The constants swept."""
        return tuple(name for name, _ in self.over)

    @property
    def command(self) -> str:
        """The command that makes this sweep; a program that no file holds is to be saved first."""
        parts = [f"tp sweep {self.words or 'FILE'}", f"--width {','.join(map(str, self.width))}"]
        parts += [f"--over {name}={','.join(map(str, values))}" for name, values in self.over]
        parts += [f"--repeats {self.repeats}", f"--samples {self.samples}", f"--seed {self.seed}"]
        parts += [f"--variable {shlex.quote(variable)}" for variable in self.variables]
        return " ".join([*parts, *([] if self.words else ["  # FILE: the attribute program, saved"])])

    @cached_property
    def _costs(self) -> dict[tuple[tuple[int, ...], int], float]:
        fixed, each = COMPARING

        def seconds(setting: Setting, width: int) -> float:
            comparing = fixed + each * self.samples + (PRECISE if setting.conditional else 0.0)
            drawn = setting.conditional or setting.netsor
            return len(self.variables) * comparing + estimate(make_job(drawn, width), self.samples, threads=1)[0]

        return {(setting.position, width): seconds(setting, width) for setting in self.settings for width in self.width}

    def cost(self, cell: Cell) -> float:
        """Rough seconds of a cell on one core.

        Raises    ProgramError for widths at which the program does not run
        """
        return self._costs[cell.setting.position, cell.width]

    def cells(self) -> list[Cell]:
        """All cells, those of one setting together, so that its limit need not be kept for long; dearest first."""
        groups = [
            [Cell(setting, width, repeat) for width in self.width for repeat in range(self.repeats)]
            for setting in self.settings
        ]
        groups = [sorted(group, key=self.cost, reverse=True) for group in groups]
        groups.sort(key=lambda group: sum(map(self.cost, group)), reverse=True)
        return [cell for group in groups for cell in group]


def design(
    program: Any,
    width: Iterable[int] | int,
    over: Mapping[str, Iterable[Any]] | None = None,
    repeats: int = 10,
    samples: int = 50_000,
    seed: int = 0,
    variables: str | Iterable[str] | None = None,
    words: str = "",
) -> Design:
    """Read and check a sweep; values of constants are numbers, or texts as in a program file.

    Raises    ProgramError with every mistake found
    """
    base = _program(program)
    words = words or (
        shlex.quote(os.path.basename(os.fspath(program)))
        if isinstance(program, str | os.PathLike)
        else _shipped(base, over or {})
    )
    problems: list[Problem] = []
    widths = _whole_numbers("width", _plain(width), 1, MAX_WIDTH, problems)
    for name, value, least in (("repeats", repeats, 1), ("samples", samples, 2), ("seed", seed, 0)):
        _whole_numbers(name, [value], least, 2**63 - 1, problems)
    wanted = {name: _listed(name, values, base, problems) for name, values in _mapping(over, problems).items()}
    programs = {} if problems else _programs(base, wanted, problems)
    chosen = _variables(
        variables, {_said(wanted, values): netsor for values, netsor in programs.items()} or {"": base}, problems
    )
    if problems:
        raise ProgramError(dict.fromkeys(problems))
    axes = [tuple(dict.fromkeys(values)) for values in zip(*programs, strict=True)]
    settings = [
        Setting(
            tuple(axis.index(value) for axis, value in zip(axes, values, strict=True)),
            tuple(zip(wanted, values, strict=True)),
            netsor,
            _conditional(netsor, chosen),
        )
        for values, netsor in programs.items()
    ]
    found = Design(
        base,
        words,
        tuple(widths),
        tuple(zip(wanted, axes, strict=True)),
        int(repeats),
        int(samples),
        int(seed),
        chosen,
        tuple(settings),
    )
    found.cells()  # widths at which the program does not run
    return found


def _program(program: Any) -> Netsor:
    if isinstance(program, Builder):
        return program.netsor
    if isinstance(program, str | os.PathLike):
        return load(resolve(program) if isinstance(program, str) else program)
    raise fail(f"a sweep takes a program or the path of one, not {type(program).__name__}")


def _shipped(base: Netsor, swept: Iterable[str]) -> str:
    """A program in a command: that which is shipped, with the constants that were set; empty if it is none of these."""
    path = shipped_programs().get(base.name)
    if path is None:
        return ""
    own = load(path)
    known = {entry.name: entry.value for entry in own.constants}
    set_ = {
        entry.name: entry.value
        for entry in base.constants
        if isinstance(entry.value, int | float) and entry.name in known and entry.value != known[entry.name]
    }
    if load(path, set_) != base:
        return ""
    return shlex.join(
        [
            base.name,
            *(word for name, value in set_.items() if name not in swept for word in ("--set", f"{name}={value}")),
        ]
    )


def _plain(values: Any) -> list[Any]:
    """One value or several, without the types of numpy."""
    listed = [values] if isinstance(values, str) or np.ndim(values) == 0 else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in listed]


def _shortest(value: Any) -> Any:
    """A number in one form, as 2, 2.0 and "2.0" make one cell; anything else as it is."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    if isinstance(value, int) or not math.isfinite(number):
        return value
    return int(number) if number.is_integer() and abs(number) <= EXACT else number


def _whole_numbers(name: str, values: Iterable[Any], least: int, most: int, problems: list[Problem]) -> list[int]:
    """Whole numbers, each once."""
    found = list(dict.fromkeys(values))
    if not found:
        problems.append(Problem(f"{name} is empty: there is nothing to sweep", fix=f"{name}=[16, 64, 256]"))
    for value in found:
        if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value <= most:
            problems.append(
                Problem(
                    f"{name} must be a whole number between {least} and {most}, not {value!r}"
                    if most <= MAX_WIDTH
                    else f"{name} must be a whole number of at least {least}, not {value!r}"
                )
            )
    return [int(value) for value in found] if not problems else []


def _mapping(over: Any, problems: list[Problem]) -> Mapping[str, Any]:
    """Constants and their values."""
    if isinstance(over, Mapping | None) and all(isinstance(name, str) for name in over or {}):
        return over or {}
    problems.append(
        Problem(f"over must give names of constants their values, not {over!r}", fix='over={"H": [1, 2, 4]}')
    )
    return {}


def _listed(name: str, values: Any, base: Netsor, problems: list[Problem]) -> list[Any]:
    """The values of one constant; what they mean is checked with the program."""
    known = [key for key, value in base.scalars.items() if value is not None]
    if name not in known:
        problems.append(
            Problem(f"{name} is not a constant of {base.name} that has one number", fix=did_you_mean(name, known))
        )
    elif name in AXES or name in NUMBERS:
        problems.append(
            Problem(
                f"the constant {name} cannot be swept: the result has numbers of that name",
                fix="give it another name in the program",
            )
        )
    found = [_shortest(value) for value in _plain(values)]
    if not found:
        problems.append(Problem(f"no values of {name} are given: there is nothing to sweep"))
    return found


def _programs(
    base: Netsor, wanted: Mapping[str, Sequence[Any]], problems: list[Problem]
) -> dict[tuple[Number, ...], Netsor]:
    """The program of each choice of values; those that mean the same numbers are one."""
    text, tables = pack(base)
    found: dict[tuple[Number, ...], Netsor] = {}
    for choice in itertools.product(*wanted.values()):
        overrides = dict(zip(wanted, choice, strict=True))
        try:
            netsor = unpack(text, tables, overrides) if overrides else base
        except ProgramError as error:
            problems += _with(_said(wanted, choice), error)
        else:
            found.setdefault(tuple(netsor.scalars[name] or 0 for name in wanted), netsor)
    return found


def _said(names: Iterable[str], values: Iterable[Any]) -> str:
    """A choice of values as text."""
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def _with(said: str, error: ProgramError) -> Iterator[Problem]:
    """What is wrong with one choice of values."""
    for problem in error.problems:
        yield Problem(f"with {said}: {problem.message}" if said else problem.message, fix=problem.fix)


def _conditional(netsor: Netsor, variables: Sequence[str]) -> Netsor | None:
    """The program with the conditional laws of its outputs, if a variable has one."""
    try:
        found = with_conditional(netsor)
    except NotCompiledError:
        return None
    return found.netsor if {split(netsor, variable)[0] for variable in variables} & set(found.variance) else None


def _variables(
    given: str | Iterable[str] | None, programs: Mapping[str, Netsor], problems: list[Problem]
) -> tuple[str, ...]:
    """Members that every program, by its choice of values, has; by default the first of each output."""
    base = [*programs.values()][-1]
    try:
        names = (
            [label(name, members(base, name, 1)[0]) for name in base.outputs]
            if given is None
            else (one_or_several(given, name_of))
        )
    except ProgramError as error:
        problems += error.problems
        return ()
    if not names:
        problems.append(Problem("no variables are given: there is nothing to compare"))
    for (said, netsor), name in itertools.product(programs.items(), names):
        try:
            split(netsor, name)
        except ProgramError as error:
            problems += _with(said, error)
    return tuple(dict.fromkeys(names))


# ---- numbers --------------------------------------------------------------------------------------------------------


def described(name: str) -> dict[str, str]:
    """`long_name` and `units` of a field."""
    inner, words = name, ""
    for prefix, said in PREFIXES.items():
        if inner.startswith(prefix):
            inner, words = inner.removeprefix(prefix), said
    for suffix, said in SUFFIXES.items():
        if inner.endswith(suffix):
            inner, words = inner.removesuffix(suffix), said + words
    units = "nat" if inner.startswith("kl") and not name.endswith("_p") else "1"
    return {"long_name": words + LONG_NAMES.get(inner, inner.replace("_", " ")), "units": units}

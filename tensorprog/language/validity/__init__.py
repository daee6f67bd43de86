"""When a program is valid: names, indices, ranges, kinds and widths; every mistake is reported, together.

One file per group of rules.  A rule is a function on the `Checker`, which collects what the rules find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorprog.language.errors import Problem, ProgramError, in_order
from tensorprog.language.ir import Family, Netsor
from tensorprog.language.schedule import schedule
from tensorprog.language.validity.body import (
    MAX_STATEMENTS,
    check_right_side,
    defined_families,
    is_known,
    keep_readable,
    sound_statements,
)
from tensorprog.language.validity.checker import Checker
from tensorprog.language.validity.declarations import MAX_INDEX, check_constants, check_names, declared_families
from tensorprog.language.validity.kinds import with_kinds
from tensorprog.language.validity.masks import check_masks
from tensorprog.language.validity.outputs import check_outputs, note_unused

__all__ = ["MAX_INDEX", "MAX_STATEMENTS", "Draft", "problems_of", "validate"]


def validate(netsor: Netsor) -> tuple[Mapping[str, Family], tuple[Problem, ...]]:
    """Check a program and work out its families.

    Raises    ProgramError with all problems
    """
    checker = Checker(netsor)
    families = _check(checker)
    if checker.problems:
        raise ProgramError(in_order(checker.problems))
    return families, tuple(checker.warnings)


class Draft(Netsor):
    """A program that is not complete yet: no validation on construction, for `problems_of` to look at."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "families", {})
        object.__setattr__(self, "warnings", ())


def problems_of(draft: Netsor, unknown: Iterable[str] = (), last: bool = False) -> list[Problem]:
    """Mistakes that are certain while nothing is known about the names `unknown` (their declarations failed).

    With `last`, only those of the last statement, without values of declarations: quick, for the calls of a builder.
    """
    checker = Checker(draft, unknown)
    if last:
        return _check_last(checker)
    _check(checker)
    return checker.problems


def _check(checker: Checker) -> dict[str, Family]:
    netsor = checker.netsor
    check_names(checker)
    check_constants(checker)
    families = declared_families(checker)
    keep_readable(checker)
    families |= defined_families(checker)
    sound = sound_statements(checker, families)
    families = with_kinds(checker, families, sound)
    body = [netsor.body[position] for position in sound]
    order, problems = schedule(body, netsor.ranges, {name: family.boundaries for name, family in families.items()})
    checker.problems += problems
    check_outputs(checker, families)
    if not checker.problems and not checker.unknown:
        check_masks(checker, order)
        note_unused(checker)
    return families


def _check_last(checker: Checker) -> list[Problem]:
    """Problems of the last statement of a draft."""
    check_names(checker)
    keep_readable(checker)
    families = declared_families(checker, values=False)
    families |= defined_families(checker, whole=False)
    statement = checker.netsor.body[-1]
    if statement.target.name in families or statement.target.name in checker.unknown:
        check_right_side(checker, statement, families)
    if not checker.problems:
        with_kinds(checker, families, [position for position in checker.body if is_known(checker, position, families)])
    return [problem for problem in checker.problems if problem.span.text == statement.span.text]

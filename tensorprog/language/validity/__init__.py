"""When a program is valid: names, indices, ranges, kinds and widths; every mistake is reported, together.

One file per group of rules.  A rule is a function on the `Checker`, which collects what the rules find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorprog.language.errors import Problem, ProgramError, in_order
from tensorprog.language.records import Draft, Family
from tensorprog.language.schedule import schedule
from tensorprog.language.validity.expressions import Checker, statement_parts
from tensorprog.language.validity.families import (
    MAX_INDEX,
    MAX_STATEMENTS,
    check_constants,
    check_names,
    check_outputs,
    check_right_side,
    declared_families,
    defined_families,
    is_known,
    keep_readable,
    note_unused,
    sound_statements,
    with_kinds,
)
from tensorprog.language.validity.numbers import check_masks

__all__ = ["MAX_INDEX", "MAX_STATEMENTS", "problems_of", "statement_parts", "validate"]


def validate(netsor: Draft) -> tuple[Mapping[str, Family], tuple[Problem, ...]]:
    """Check a program and work out its families.

    Raises    ProgramError with all problems
    """
    checker = Checker(netsor)
    families = _check(checker)
    if checker.problems:
        raise ProgramError(in_order(checker.problems))
    return families, tuple(checker.warnings)


def problems_of(draft: Draft, unknown: Iterable[str] = (), last: bool = False) -> list[Problem]:
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

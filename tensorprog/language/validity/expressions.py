"""Rules for expressions wherever they stand, and the `Checker` on which all rules note what they find."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean
from tensorprog.language.expr import (
    COMPARISONS,
    LOGICAL,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    is_call,
    walk,
)
from tensorprog.language.parse import constant_value
from tensorprog.language.records import Draft, Nonlin, Range, Statement, Table
from tensorprog.language.substitute import index_names

MAX_EXPONENT = 1000
MAX_MEMBERS = 10**12  # members of one family


class Checker:
    """State of one check; a name whose declaration is wrong joins `unknown`, and rules are silent on what needs it."""

    def __init__(self, netsor: Draft, unknown: Iterable[str] = ()) -> None:
        self.netsor = netsor
        self.unknown = set(unknown)
        self.body: list[int] = []  # positions of the statements whose left sides can be relied on
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.used: set[str] = set()

    def error(self, message: str, span: Span = Span(), fix: str = "", breaks: str = "") -> None:
        """Note a problem; of the name that it breaks nothing is known any more."""
        self.problems.append(Problem(message, span, fix))
        if breaks:
            self.unknown.add(breaks)

    def doubtful(self, *parts: Expr | Table) -> bool:
        """Whether an unknown constant or index occurs."""
        return any(isinstance(part, Expr) and not self.unknown.isdisjoint(constants_and_indices(part))
                   for part in parts)

    def size(self, names: Iterable[str]) -> int:
        """Number of values of several indices together."""
        return math.prod(stop - start for start, stop in map(self.netsor.ranges.__getitem__, names))

    def index_ranges(self, names: Sequence[str]) -> tuple[Range, ...]:
        """Ranges of several indices."""
        return tuple(self.netsor.ranges[name] for name in names)

    def rules(self, names: Sequence[str]) -> tuple[str, ...]:
        """Boundary rules of several indices."""
        return tuple(self.netsor.index[name].boundary for name in names)

    @cached_property
    def widths(self) -> set[str]:
        """Names of all widths."""
        return {"n", *(name for name, *_ in self.netsor.widths), *dict(self.netsor.fixed_widths)}

    def width(self, name: str, span: Span) -> None:
        """A width where it is used: it is declared."""
        self.used.add(name)
        if name not in self.widths and name not in self.unknown:
            hint = did_you_mean(name, sorted(self.widths))
            self.error(f"{name} is not a declared width", span, hint if "mean" in hint else f"widths: {{{name}: n/2}}")


def statement_parts(statement: Statement) -> tuple[Expr, ...]:
    """Left side and arguments of a statement."""
    return statement.target, *((statement.expr,) if isinstance(statement, Nonlin) else statement.references)


def constants_and_indices(expr: Expr, stripped: bool = True) -> set[str]:
    """Names of the constants and indices in an expression, second copies under the name of the first if `stripped`."""
    names = {name for node in walk(expr) for name in index_names(node)}
    names |= {node.name for node in walk(expr) if isinstance(node, Constant)}
    return {name.rstrip("_") for name in names} if stripped else names


def is_closed(
    checker: Checker, expr: Expr, indices: Sequence[str], what: str, span: Span, copies: bool = False
) -> bool:
    """Complain about anything but numbers, constants and the indices given."""
    before = len(checker.problems)
    allowed = {*indices, *(f"{name}_" for name in indices if copies)}
    for node in walk(expr):
        if isinstance(node, Variable):
            checker.error(f"{what} must be made of constants and indices; {node.name} is neither", span,
                          did_you_mean(node.name, [*checker.netsor.constant, *allowed]))
        elif isinstance(node, IndexValue) and node.name not in allowed:
            second = node.name.endswith("_") and node.name[:-1] in allowed
            checker.error(f"{what} may not depend on the {'second copy' if second else 'index'} {node.name}", span,
                          f"use {node.name[:-1]}" if second else f"its indices are {', '.join(indices) or 'none'}")
        elif isinstance(node, Constant):
            check_constant_use(checker, node, span, allowed)
        elif isinstance(node, Reduction):
            # a reduction would bind an index of its own; outside Nonlin there is nothing to reduce
            checker.error(f"{node.reducer}[...] acts over indices of a Nonlin; it cannot stand here",
                          span.at(node.column), "write the values out, as a list or a .npy file")
        elif isinstance(node, Call):
            check_call(checker, node, span)
    return len(checker.problems) == before


def check_call(checker: Checker, node: Call, span: Span) -> None:
    """Rules of single atoms: comparisons stand in conditions only, exponents are bounded."""
    if node.atom == "where" and not is_condition(node.args[0]):
        checker.error("where(condition, x, y) needs a comparison as its condition", span.at(node.column),
                      "where(j <= i, x, y)")
    if node.atom in LOGICAL and not all(map(is_condition, node.args)):
        checker.error("& and | join comparisons", span.at(node.column), "(a < b) & (c < d), each one in brackets")
    if all(isinstance(p, Call | Number) or (isinstance(p, Constant) and not p.slots) for p in walk(node)):
        check_finite(checker, node, span)
    elif node.atom == "power" and isinstance(node.args[1], Number) and abs(node.args[1].value) > MAX_EXPONENT:
        checker.error(f"the exponent {node.args[1]} is too large", span.at(node.column), f"at most {MAX_EXPONENT}")
    for arg in node.args[1 if node.atom == "where" else 0 :]:
        if is_condition(arg) and node.atom not in LOGICAL:
            checker.error("a comparison can only be the condition of where(condition, x, y)", span.at(node.column),
                          f"where({arg}, 1, 0)")


def check_finite(checker: Checker, node: Call, span: Span) -> None:
    """A part made of numbers and constants must have a finite value."""
    try:
        constant_value(node, {c.name: c.value for c in checker.netsor.constants if isinstance(c.value, int | float)})
    except (ProgramError, ArithmeticError, ValueError):
        checker.error(f"{node} is not a finite number", span.at(node.column), "change its numbers or constants")


def is_bound(checker: Checker, name: str, bound: Iterable[str], span: Span, column: int = 0) -> bool:
    """Whether an index is on the left or reduced outside; complains if not."""
    if name in bound:
        return True
    if name.endswith("_"):
        checker.error(f"{name}: second copies of indices occur in covariances only", span.at(column))
    else:
        checker.error(f"the index {name} is neither on the left nor reduced", span.at(column),
                      f"put {name} on the left, or write sum[{name}](...)")
    return False


def check_slots(
    checker: Checker, reference: Variable | Constant, ranges: Sequence[Range], rules: Sequence[str],
    bound: Iterable[str], span: Span,
) -> bool:
    """Whether a reference has the slots its name needs, within range; complains if not."""
    span = span.at(reference.column)
    if len(reference.slots) != len(ranges):
        checker.error(f"{reference.name} has {len(ranges)} {'index' if len(ranges) == 1 else 'indices'}, "
                      f"{len(reference.slots)} given", span,
                      f"{reference.name}[{', '.join('...' for _ in ranges)}]" if ranges else reference.name)
        return False
    ok = True
    for slot, (start, stop), rule in zip(reference.slots, ranges, rules, strict=True):
        found = [is_bound(checker, name, bound, span) for name in slot.indices]
        if not all(found):
            ok = False
            continue
        checker.used |= set(slot.indices)
        low, high = slot.bounds(checker.netsor.ranges)
        if not rule and (low < start or high >= stop):
            checker.error(f"{reference.name}: the index {slot} runs over {low}..{high}, outside {start}..{stop - 1}",
                          span, "shorten the index, or declare it as {size: ..., boundary: zero}, or boundary: wrap")
            ok = False
    return ok


def check_constant_use(checker: Checker, node: Constant, span: Span, bound: Iterable[str]) -> None:
    """A constant where it is used: it exists, and its slots fit."""
    checker.used.add(node.name)
    definition = checker.netsor.constant.get(node.name)
    if definition is None:
        hint = did_you_mean(node.name, list(checker.netsor.constant))
        checker.error(f"{node.name} is not defined", span.at(node.column), hint)
        return
    check_slots(checker, node, checker.index_ranges(definition.indices), checker.rules(definition.indices), bound, span)


def is_condition(expr: Expr) -> bool:
    """Whether an expression is a comparison, or several joined by & and |."""
    return is_call(expr, *COMPARISONS, *LOGICAL)

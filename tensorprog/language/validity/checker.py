"""What the rules share: the program, the problems found so far, and what is known of its names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

from tensorprog.language.errors import Problem, Span, did_you_mean
from tensorprog.language.expr import Constant, Expr, walk
from tensorprog.language.ir import Netsor, Nonlin, Range, Statement, Table
from tensorprog.language.substitute import index_names

MAX_MEMBERS = 10**12  # members of one family


class Checker:
    """State of one check; a name whose declaration is wrong joins `unknown`, and rules are silent on what needs it."""

    def __init__(self, netsor: Netsor, unknown: Iterable[str] = ()) -> None:
        self.netsor = netsor
        self.unknown = set(unknown)
        self.body: list[int] = []  # positions of the statements whose left sides can be relied on
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.used: set[str] = set()

    def error(self, message: str, span: Span = Span(), fix: str = "") -> None:
        """Note a problem."""
        self.problems.append(Problem(message, span, fix))

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

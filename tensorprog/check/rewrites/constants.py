"""`constants`: the numbers of constants put into expressions, where that takes something away.

    (1 - mu) p + mu m is p where mu is 0, by
    1 e = e / 1 = e + 0 = e - 0 = e      0 - e = -e      0 e = 0 where e is finite      where(condition, a, b) = a or b

Exact, because an expression is replaced only by one that is equal at every value of its variables.  Expressions of
constants are numbers if they are the same for all indices.  Constants that take nothing away stay as they are, and so
does what numbers alone decide, but for 0 e.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tensorprog.check.rewrites.editor import Editor, Rewrite, Stuck
from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import (
    Call,
    Constant,
    Expr,
    Number,
    Reduction,
    Variable,
    as_expr,
    is_call,
    variables,
    walk,
    with_children,
)
from tensorprog.language.ir import Netsor, Nonlin, Table

__all__ = ["constants"]

UNITS = {"add": (0, 0), "subtract": (None, 0), "multiply": (1, 1), "divide": (None, 1)}  # that leave the other argument


def constants(editor: Editor, symbols: Collection[str] = ()) -> Iterator[Rewrite]:
    """Put in the numbers of constants, but for those in `symbols`, where they take something away.

    Raises    Stuck if a recurrence of vectors would no longer be one
    """
    folding, families = _Folding(editor.netsor, symbols), editor.netsor.families
    for position, statement in enumerate(editor.netsor.body):
        if isinstance(statement, Nonlin):
            expr, family = folding.folded(statement.expr), families[statement.target.name]
            vector = editor.vector(expr) or not variables(expr)
            if expr is not statement.expr and vector == (family.kind == "vector"):
                yield editor.becomes("constants", position, expr, "" if editor.vector(expr) else family.width)
    try:
        after = editor.result()[0].families if editor.changed else families
    except ProgramError as error:
        raise Stuck from error
    if any((f.kind, f.width) != (after[name].kind, after[name].width) for name, f in families.items()):
        raise Stuck


@dataclass
class _Folding:
    """The constants of a program put into its expressions, but for `symbols`, which may have any value."""

    netsor: Netsor
    symbols: Collection[str] = ()

    def folded(self, expr: Expr) -> Expr:
        """An expression equal to another; the same object where nothing is taken away."""
        if not expr.children:
            return expr
        if isinstance(expr, Call) and expr.atom == "where" and (holds := self._decided(expr.args[0])) is not None:
            return self.folded(expr.args[1] if holds else expr.args[2])
        new = with_children(expr, *map(self.folded, expr.children))
        value = self.number(new)
        if value is not None:
            return expr if new is expr else Number(int(value) if value == int(value) else value)
        if not isinstance(new, Call):
            return new
        pairs = zip(expr.children, new.args, strict=True)
        return self._shorter(new, [self._decided(arg) if arg is old else self.number(arg) for old, arg in pairs])

    def _decided(self, expr: Expr) -> float | None:
        """The number that constants, or initial vectors that are 0, make of an expression, if it is known."""
        return self.number(expr) if any(isinstance(node, Constant | Variable) for node in walk(expr)) else None

    def number(self, expr: Expr) -> float | None:
        """The finite number that an expression is for all indices, if it is known."""
        if isinstance(expr, Number):
            return expr.value if math.isfinite(expr.value) else None
        if isinstance(expr, Constant):
            return self._constant(expr.name)
        if isinstance(expr, Variable):
            return 0.0 if expr.name in self._vanishing else None
        numbers = [self.number(child) for child in expr.children]
        known = [number for number in numbers if number is not None]
        if not known or len(known) < len(numbers):
            return None
        if isinstance(expr, Reduction):  # 0 is all that does not ask for the sizes of indices
            return 0.0 if REDUCTIONS[expr.reducer].linear and known[0] == 0 else None
        assert isinstance(expr, Call)
        with np.errstate(all="ignore"):
            value = float(ATOMS[expr.atom].numpy(*map(np.float64, known)))
        return value if math.isfinite(value) else None

    def _shorter(self, call: Call, numbers: Sequence[float | None]) -> Expr:
        """A call without arguments that do not matter, given the numbers that constants make of some."""
        for k, unit in enumerate(UNITS.get(call.atom, ())):
            if unit is not None and numbers[k] == unit:
                return call.args[1 - k]
        if call.atom == "subtract" and numbers[0] == 0:
            return Call("negative", (call.args[1],), call.column)
        vanishes = [
            self.number(arg) == 0 and _finite(other) for arg, other in zip(call.args, call.args[::-1], strict=True)
        ]
        return Number(0) if call.atom == "multiply" and any(vanishes) else call

    def _constant(self, name: str) -> float | None:
        """The number that a constant is at all its indices, if it is one."""
        definition = self.netsor.constant[name]
        if name in self.symbols or any(self.netsor.index[i].boundary == "zero" for i in definition.indices):
            return None
        if isinstance(definition.value, Table):
            low, high = definition.value.array.min(), definition.value.array.max()
            return float(low) if low == high else None
        return self.number(as_expr(definition.value))

    @cached_property
    def _vanishing(self) -> frozenset[str]:
        """Initial families that are 0."""
        return frozenset(v.name for v in self.netsor.initial if self._zero(v.mean) and self._zero(v.cov))

    def _zero(self, value: Expr | Table) -> bool:
        return not value.array.any() if isinstance(value, Table) else self.number(value) == 0


def _finite(expr: Expr) -> bool:
    """Whether an expression is sure to be a finite number if the vectors and scalars in it are."""
    calls = [node for node in walk(expr) if isinstance(node, Call)]
    total = all(ATOMS[call.atom].domain == (-math.inf, math.inf) and not ATOMS[call.atom].declared for call in calls)
    finite = all(math.isfinite(node.value) for node in walk(expr) if isinstance(node, Number))
    return total and finite and not any(is_call(call, "divide", "power") for call in calls)

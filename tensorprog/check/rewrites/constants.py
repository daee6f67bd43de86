"""`constants`: the numbers of constants put into expressions, where that takes something away.

    (1 - mu) p + mu m is p where mu is 0, by
    1 e = e / 1 = e + 0 = e - 0 = e      0 - e = -e      0 e = 0 where e is finite      where(condition, a, b) = a or b

Exact, because an expression is replaced only by one that is equal at every value of its variables, and a width that is
declared to be n is called n.  Expressions of constants are numbers if they are the same for all indices.  Constants
that take nothing away stay as they are, and so does what numbers alone decide, but for 0 e.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
    variables,
    walk,
    with_children,
)
from tensorprog.language.ir import Netsor, Nonlin, Table

__all__ = ["Folding", "constants"]

UNITS = {"add": (0, 0), "subtract": (None, 0), "multiply": (1, 1), "divide": (None, 1)}  # that leave the other argument


def constants(editor: Editor, symbols: Collection[str] = ()) -> Iterator[Rewrite]:
    """Put in the numbers of constants, but for those in `symbols`, where they take something away.

    Raises    Stuck if a recurrence of vectors would no longer be one
    """
    folding = Folding(editor.netsor, symbols)
    for position, statement in enumerate(editor.netsor.body):
        if isinstance(statement, Nonlin):
            expr, family = folding.folded(statement.expr), editor.netsor.families[statement.target.name]
            vector = editor.vector(expr) or not variables(expr)
            if expr is not statement.expr and vector == (family.kind == "vector"):
                width = statement.width if editor.vector(expr) else family.width
                yield editor.becomes("constants", position, expr, width)
    for name, ratio, text in editor.netsor.widths:
        over = [p for p, s in enumerate(editor.netsor.body) if editor.netsor.families[s.target.name].width == name]
        if ratio == 1 and over:
            editor.equal.add(name)
            line = editor.netsor.body[over[0]].span.line
            yield Rewrite("constants", editor.origin[over[0]], line, f"the width {name} = {text} is n")
    if editor.changed and not _alike(editor):
        raise Stuck
    editor.prune = bool(editor.changed or editor.equal)


def _alike(editor: Editor) -> bool:
    """Whether every name stays what it is: a vector of its width, or a scalar."""
    try:
        after = editor.result()[0].families
    except ProgramError:
        return False
    before = editor.netsor.families
    return all((f.kind, editor.width(f.width)) == (after[name].kind, after[name].width) for name, f in before.items())


@dataclass
class Folding:
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
        """The number that constants make of an expression, if it is known."""
        return self.number(expr) if any(self._named(node) for node in walk(expr)) else None

    def _named(self, node: Expr) -> bool:
        """Whether a node has a name for a number: a constant, or an initial vector that is 0."""
        return isinstance(node, Constant) or (isinstance(node, Variable) and self.number(node) is not None)

    def number(self, expr: Expr) -> float | None:
        """The finite number that an expression is for all indices, if it is known."""
        if isinstance(expr, Number):
            return expr.value if math.isfinite(expr.value) else None
        if isinstance(expr, Constant):
            return self._constant(expr.name)
        if isinstance(expr, Variable):
            return 0.0 if expr.name in self._vanishing else None
        numbers = []
        for child in expr.children:
            numbers.append(self.number(child))
            if numbers[-1] is None:
                return None
        return _value(expr, np.array(numbers, dtype=np.float64)) if numbers else None

    def _shorter(self, call: Call, numbers: Sequence[float | None]) -> Expr:
        """A call without arguments that do not matter, given the numbers that constants make of some."""
        for k, unit in enumerate(UNITS.get(call.atom, ())):
            if unit is not None and numbers[k] == unit:
                return call.args[1 - k]
        if call.atom == "subtract" and numbers[0] == 0:
            return Call("negative", (call.args[1],), call.column)
        if call.atom == "multiply":
            for k in (0, 1):
                if self.number(call.args[k]) == 0 and self.finite(call.args[1 - k]):
                    return Number(0)
        return call

    # -- numbers ----------------------------------------------------------------------------------------------------

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

    # -- what is finite ---------------------------------------------------------------------------------------------

    def finite(self, expr: Expr) -> bool:
        """Whether an expression is sure to be a finite number at every n."""
        return all(map(self._total, walk(expr))) and self._doubtful.isdisjoint(v.name for v in variables(expr))

    def _total(self, node: Expr) -> bool:
        """Whether a node is a finite number if its children are."""
        if isinstance(node, Number):
            return math.isfinite(node.value)
        if isinstance(node, Constant):
            value = self.netsor.constant[node.name].value
            if isinstance(value, Table):
                return bool(np.isfinite(value.array).all())
            return all(map(self._total, walk(as_expr(value))))
        if not isinstance(node, Call) or self.number(node) is not None:
            return True
        atom, last = ATOMS[node.atom], self.number(node.args[-1])
        if node.atom == "divide":
            return bool(last)
        if node.atom == "power":
            return last is not None and last >= 0 and last == int(last)
        return atom.domain == (-math.inf, math.inf) and not atom.declared

    @cached_property
    def _doubtful(self) -> frozenset[str]:
        """Families of which some member may not be finite, with those that read them."""
        body = self.netsor.body
        found = {s.target.name for s in body if isinstance(s, Nonlin) and not all(map(self._total, walk(s.expr)))}
        while new := {s.target.name for s in body if any(v.name in found for v in s.inputs)} - found:
            found |= new
        return frozenset(found)


def _value(expr: Expr, numbers: NDArray[np.float64]) -> float | None:
    """The number that an expression is, given those that its children are, if it is finite."""
    if isinstance(expr, Reduction):  # 0 is all that does not ask for the sizes of indices
        return 0.0 if REDUCTIONS[expr.reducer].linear and numbers[0] == 0 else None
    assert isinstance(expr, Call)
    with np.errstate(all="ignore"):
        value = float(ATOMS[expr.atom].numpy(*numbers))
    return value if math.isfinite(value) else None

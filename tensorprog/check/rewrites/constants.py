"""`constants`: the numbers of constants put into expressions, where that takes something away.

    (1 - mu) p + mu m is p where mu is 0, by
    1 e = e / 1 = e + 0 = e - 0 = e      0 - e = -e      0 e = 0 where e is finite      where(condition, a, b) = a or b

Exact, because an expression is replaced only by one that is equal at every value of its variables.  Expressions of
constants are numbers if they are the same for all indices.  Constants that take nothing away stay as they are, and so
does what numbers alone decide, but for 0 e.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from tensorprog.check.rewrites.editor import Editor, Rewrite, Stuck
from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import (
    Call,
    Constant,
    Expr,
    Number,
    Reduction,
    as_expr,
    is_call,
    rebuild,
    variables,
    walk,
    with_children,
)
from tensorprog.language.ir import Netsor, Nonlin, Table
from tensorprog.language.parse import constant_value

UNITS = {"add": (0, 0), "subtract": (None, 0), "multiply": (1, 1), "divide": (None, 1)}  # that leave the other argument
NAN = math.nan  # stands for a number that is not known

Known = Mapping[str, float]


def constants(editor: Editor, symbols: Collection[str] = ()) -> Iterator[Rewrite]:
    """Put in the numbers of constants, but for those in `symbols`, where they take something away.

    Raises    Stuck if a recurrence of vectors would no longer be one
    """
    known, families = _known(editor.netsor, symbols), editor.netsor.families
    for position, statement in enumerate(editor.netsor.body):
        if isinstance(statement, Nonlin):
            expr, family = _folded(statement.expr, known), families[statement.target.name]
            vector = editor.vector(expr) or not variables(expr)
            if expr is not statement.expr and vector == (family.kind == "vector"):
                yield editor.becomes("constants", position, expr, "" if editor.vector(expr) else family.width)
    try:
        after = editor.result()[0].families if editor.changed else families
    except ProgramError as error:
        raise Stuck from error
    if any((f.kind, f.width) != (after[name].kind, after[name].width) for name, f in families.items()):
        raise Stuck


def _known(netsor: Netsor, symbols: Collection[str]) -> Known:
    """The constants that are one number at all their indices."""
    known: dict[str, float] = {}
    for definition in netsor.constants:
        if definition.name not in symbols and all(netsor.index[i].boundary != "zero" for i in definition.indices):
            value = definition.value
            if isinstance(value, Table):
                low, high = float(value.array.min()), float(value.array.max())
                known[definition.name] = low if low == high else NAN
            else:
                known[definition.name] = _number(as_expr(value), known)
    return known


def _number(expr: Expr, known: Known) -> float:
    """The finite number that an expression is for all indices; nan if it is not known."""

    def put(node: Expr) -> Expr | None:
        if isinstance(node, Reduction) and REDUCTIONS[node.reducer].linear and _number(node.arg, known) == 0:
            return Number(0)  # all that does not ask for the sizes of indices
        return Number(known.get(node.name, NAN)) if isinstance(node, Constant) else None

    try:
        return constant_value(rebuild(expr, put), {})
    except ProgramError:
        return NAN


def _decided(expr: Expr, known: Known) -> float:
    """The number that constants make of an expression; nan if it is not known."""
    return _number(expr, known) if any(isinstance(node, Constant) for node in walk(expr)) else NAN


def _folded(expr: Expr, known: Known) -> Expr:
    """An expression equal to another; the same object where nothing is taken away."""
    if is_call(expr, "where") and not math.isnan(holds := _decided(expr.args[0], known)):
        return _folded(expr.args[1 if holds else 2], known)
    new = with_children(expr, *(_folded(child, known) for child in expr.children)) if expr.children else expr
    value = _number(new, known)
    if not math.isnan(value):
        return expr if new is expr else Number(int(value) if value == int(value) else value)
    if not isinstance(new, Call):
        return new
    pairs = zip(expr.children, new.args, strict=True)
    numbers = [_decided(arg, known) if arg is old else _number(arg, known) for old, arg in pairs]
    for k, unit in enumerate(UNITS.get(new.atom, ())):
        if unit is not None and numbers[k] == unit:
            return new.args[1 - k]
    if new.atom == "subtract" and numbers[0] == 0:
        return Call("negative", (new.args[1],), new.column)
    both = zip(new.args, new.args[::-1], strict=True)
    zero = new.atom == "multiply" and any(_number(arg, known) == 0 and _finite(other) for arg, other in both)
    return Number(0) if zero else new


def _finite(expr: Expr) -> bool:
    """Whether an expression is sure to be a finite number if the vectors and scalars in it are."""
    calls = [node for node in walk(expr) if isinstance(node, Call)]
    total = all(ATOMS[call.atom].domain == (-math.inf, math.inf) and not ATOMS[call.atom].declared for call in calls)
    finite = all(math.isfinite(node.value) for node in walk(expr) if isinstance(node, Number))
    return total and finite and not any(is_call(call, "divide", "power") for call in calls)

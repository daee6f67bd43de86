"""Expressions on arrays: one walk serves the finite interpreter, the sampler of the limit and the constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import (
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    factors,
    fold,
    is_call,
)
from tensorprog.language.named_arrays import COORDINATE, Open, add, align, broadcast, contract, gather, take, union
from tensorprog.language.records import ConstantDef, Draft, Nonlin, Range, Table

__all__ = ["Scope", "constant_array", "evaluate", "index_array", "overflow"]


@dataclass(frozen=True)
class Scope:
    """What the names of an expression stand for while it is evaluated."""

    netsor: Draft
    ranges: Mapping[str, Range]
    variable: Callable[[Variable, Mapping[str, Range]], Open]
    dtype: Any = np.float64
    # in which pieces a sum of a product over indices is taken: ranges for each
    pieces: Callable[[Expr, Sequence[str], Mapping[str, Range]], Iterable[Mapping[str, Range]]] | None = None


def evaluate(expr: Expr, scope: Scope) -> Open:
    """Value of an expression over the open grid of its free indices.

    Shapes    the result has an axis for each free index that matters, and those of the variables read
    """
    def leaf(node: Expr) -> Open | None:
        if isinstance(node, Number):
            return Open((), np.asarray(node.value, dtype=scope.dtype))
        if isinstance(node, IndexValue):
            return Open((node.name,), np.arange(*scope.ranges[node.name]).astype(scope.dtype))
        if isinstance(node, Constant):
            value = constant_array(scope.netsor, node, scope.ranges)
            return Open(value.axes, value.data.astype(scope.dtype, copy=False))
        if isinstance(node, Variable):
            return scope.variable(node, scope.ranges)
        return _reduced(node, scope) if isinstance(node, Reduction) else None

    return fold(expr, {}, leaf, lambda call, *args: _apply(ATOMS[call.atom].numpy, args))


def _reduced(expr: Reduction, scope: Scope) -> Open:
    """Value of a reduction."""
    if REDUCTIONS[expr.reducer].linear:
        count = int(np.prod([scope.ranges[name][1] - scope.ranges[name][0] for name in expr.indices]))
        total = _sum(expr.arg, expr.indices, scope)
        return total if expr.reducer == "sum" else Open(total.axes, total.data / count)
    local = scope
    if expr.at:  # over the full range, then read at the forms
        full = {name: scope.netsor.ranges[name.rstrip("*")] for name in expr.indices}
        local = replace(scope, ranges={**scope.ranges, **full})
    inner = evaluate(expr.arg, local)
    axes = union(inner.axes, expr.indices)
    data = broadcast(inner, axes, _sizes(inner, local))
    positions = tuple(axes.index(name) for name in expr.indices)
    with np.errstate(all="ignore"):  # what is no number is refused with its statement: see `overflow`
        result = REDUCTIONS[expr.reducer].numpy(data, positions)
    if expr.removes:
        return Open(tuple(name for name in axes if name not in expr.indices), result)
    if not expr.at:
        return Open(axes, result)
    starts = {name: start for name, (start, _) in local.ranges.items()}
    return gather(Open(axes, result), dict(zip(expr.indices, expr.at, strict=True)), scope.ranges, starts)


def overflow(statement: Nonlin, value: Open) -> str:
    """What is wrong with the values that a statement took: inf or no number; '' if nothing, and -inf may be a mask.

    A statement that was added to a program is told with what it was made for, which its span has.
    """
    with np.errstate(all="ignore"):
        if bool((value.data < np.inf).all()):
            return ""
    of = statement.span.text
    written = not of or of.partition("=")[0].replace(" ", "") == str(statement.target).replace(" ", "")
    made = "" if written else f" (made for {of})"
    return (
        f"{statement}{made} took values that are not finite numbers: it overflows, or leaves the domain of a "
        "function (log, sqrt, division)"
    )


def _apply(function: Callable[..., NDArray[Any]], args: Sequence[Open]) -> Open:
    axes = union(*(arg.axes for arg in args))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore", under="ignore"):
        result = function(*(align(arg, axes) if arg.axes else arg.data for arg in args))
    return Open(axes, np.asarray(result))


def _sizes(value: Open, scope: Scope) -> dict[str, int]:
    sizes = {name: stop - start for name, (start, stop) in scope.ranges.items()}
    return sizes | dict(zip(value.axes, value.data.shape, strict=True))


def _sum(expr: Expr, indices: Sequence[str], scope: Scope) -> Open:
    """Sum over indices: linear in its terms, and a product of factors is contracted, never broadcast."""
    if is_call(expr, "add", "subtract", "negative"):
        return _apply(ATOMS[expr.atom].numpy, [_sum(arg, indices, scope) for arg in expr.args])
    if isinstance(expr, Reduction) and expr.reducer == "sum":
        return _sum(expr.arg, (*indices, *expr.indices), scope)
    with np.errstate(all="ignore"):
        if scope.pieces is None:
            return _sum_of_product(expr, indices, scope)
        pieces = scope.pieces(expr, indices, scope.ranges)
        return reduce(add, (_sum_of_product(expr, indices, replace(scope, ranges=ranges)) for ranges in pieces))


def _sum_of_product(expr: Expr, indices: Sequence[str], scope: Scope) -> Open:
    values = [evaluate(factor, scope) for factor in factors(expr, signs=True)]
    # the factors with coordinates are large, the others small: one product each, then one contraction
    small = _product([value for value in values if COORDINATE not in value.axes])
    large = _product([value for value in values if COORDINATE in value.axes])
    if small is None or large is None:
        value = small if large is None else large
        assert value is not None
        small, large = Open((), np.ones((), dtype=value.data.dtype)), value
    repeated = 1
    for name in indices:
        if name not in small.axes and name not in large.axes:
            repeated *= scope.ranges[name][1] - scope.ranges[name][0]
    result = contract(small, large, [name for name in indices if name in small.axes or name in large.axes])
    return result if repeated == 1 else Open(result.axes, result.data * repeated)


def _product(values: Sequence[Open]) -> Open | None:
    result: Open | None = None
    for value in values:
        result = value if result is None else _apply(np.multiply, [result, value])
    return result


def constant_array(netsor: Draft, node: Constant, ranges: Mapping[str, Range]) -> Open:
    """Value of a constant at its slots."""
    definition = netsor.constant[node.name]
    if isinstance(definition.value, int | float):
        return Open((), np.asarray(definition.value))
    starts = [netsor.index[name].start for name in definition.indices]
    rules = [netsor.index[name].boundary for name in definition.indices]
    return take(_full_constant(netsor, definition), (), starts, node.slots, (), ranges, rules)


def _full_constant(netsor: Draft, definition: ConstantDef) -> NDArray[Any]:
    if isinstance(definition.value, Table):
        return definition.value.array
    assert isinstance(definition.value, Expr)
    return index_array(netsor, definition.value, definition.indices)


def index_array(
    netsor: Draft, expr: Expr, axes: Sequence[str], ranges: Mapping[str, Range] | None = None
) -> NDArray[Any]:
    """Evaluate an expression of constants and indices over the full grid of the axes named.

    Raises    ProgramError if a vector or scalar of the program occurs in it
    """
    def refuse(node: Variable, _: Mapping[str, Range]) -> Open:
        raise ProgramError(f"{node} is not a constant or an index here")

    own = netsor.ranges if ranges is None else ranges
    value = evaluate(expr, Scope(netsor, own, refuse))
    sizes = {name: own[name][1] - own[name][0] for name in axes}
    return broadcast(value, axes, sizes)

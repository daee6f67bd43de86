"""Expressions taken apart and compared: factors, summands, members of a reduced family."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensorprog.calculus.inline import instance
from tensorprog.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    rebuild,
    variables,
    walk,
)
from tensorprog.rename import free_indices, fresh_substitute, indices_of, substitute

if TYPE_CHECKING:
    from tensorprog.calculus.composition import Composition

__all__ = ["apart", "canonical", "factors", "multiplied", "put", "same_up_to_indices", "summands"]


def factors(expr: Expr) -> list[Expr]:
    """The factors of a product."""
    if isinstance(expr, Call) and expr.atom == "multiply":
        return [*factors(expr.args[0]), *factors(expr.args[1])]
    if isinstance(expr, Call) and expr.atom == "negative":
        return [Number(-1), *factors(expr.args[0])]
    if isinstance(expr, Call) and expr.atom == "where" and expr.args[2] == Number(0) and not variables(expr.args[0]):
        return [Call("where", (expr.args[0], factor, Number(0))) for factor in factors(expr.args[1])]
    return [expr]


def multiplied(parts: Sequence[Expr]) -> Expr:
    """The product of factors; 1 if there are none."""
    result: Expr = Number(1)
    for part in parts:
        result = part if result == Number(1) else Call("multiply", (result, part))
    return result


def summands(expr: Expr) -> list[Expr]:
    """The terms of a sum."""
    if isinstance(expr, Call) and expr.atom == "add":
        return [*summands(expr.args[0]), *summands(expr.args[1])]
    return [expr]


def apart(rules: Composition, expr: Expr, indices: Sequence[str]) -> Expr:
    """The expression with some reduced indices under other names (primed), to stand where these indices are free."""
    used = set(indices_of(expr, rules.ranges))
    values: dict[str, Affine] = {}
    for name in sorted(used & set(indices)):
        new = next(other for k in itertools.count(1) if (other := name + "'" * k) not in used)
        rules.ranges[new] = rules.ranges[name]
        values[name] = Affine(((new, 1),))
    return substitute(expr, values, along=True)


def put(expr: Expr, u: Expr, value: Expr) -> Expr:
    """The expression where a subexpression has a value; softmaxes over its indices read other members, and stay."""
    own = set(free_indices(u))

    def change(node: Expr) -> Expr | None:
        if node == u:
            return value
        return node if isinstance(node, Reduction) and own.intersection(node.indices) else None

    return rebuild(expr, change)


def same_up_to_indices(rules: Composition, summed: Expr, free: Expr, indices: Sequence[str]) -> bool:
    """Whether one expression is the other at some values of the summed indices, all inside their ranges."""
    if summed == free:
        return True
    values: dict[str, Affine] = {}
    for inner, outer in zip(walk(summed), walk(free), strict=False):
        for slot, seen in zip(_slots(inner), _slots(outer), strict=False):
            own = [name for name in slot.indices if name in indices]
            if len(own) == 1 and (own[0], 1) in slot.terms:
                values.setdefault(own[0], _difference(seen, slot, own[0]))
    ranges = dict(rules.ranges)
    for name, value in values.items():
        if any(other not in ranges for other in value.indices):
            return False
        low, high = value.bounds(ranges)
        if low < ranges[name][0] or high >= ranges[name][1]:
            return False
    again = instance(summed, values, ranges, itertools.count())
    return canonical(again) == canonical(free)


def _slots(node: Expr) -> Iterator[Affine]:
    """The affine forms that a node mentions itself; a number is one without indices."""
    if isinstance(node, IndexValue):
        yield Affine(((node.name, 1),))
    elif isinstance(node, Number) and float(node.value).is_integer():
        yield Affine((), int(node.value))
    elif isinstance(node, Constant | Variable):
        yield from node.slots
    elif isinstance(node, Reduction) and node.at:
        yield from node.at


def _difference(seen: Affine, slot: Affine, name: str) -> Affine:
    """The value of an index at which a form reads as another: slot = name + rest, so name = seen - rest."""
    total = dict(seen.terms)
    for other, coefficient in slot.terms:
        if other != name:
            total[other] = total.get(other, 0) - coefficient
    return Affine(tuple((other, c) for other, c in total.items() if c), seen.offset - slot.offset)


def canonical(expr: Expr) -> Expr:
    """The expression with its reduced indices named by their order."""
    numbers = itertools.count()
    return fresh_substitute(expr, {}, lambda name: f"#{next(numbers)}")

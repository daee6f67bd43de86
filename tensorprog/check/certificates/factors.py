"""Expressions taken apart and compared: factors, summands, members of a reduced family."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from tensorprog.check.certificates.knowledge import ZERO, Enclosure, Knowledge
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    free_indices,
    fresh_substitute,
    indices_of,
    product_of,
    rebuild,
    substitute,
    variables,
    walk,
)
from tensorprog.language.ir import Range

__all__ = ["apart", "base", "built", "instance", "linear", "meeting", "powers", "put", "same_up_to_indices"]


def powers(known: Knowledge, expr: Expr, power: Fraction = Fraction(1)) -> Iterator[tuple[Expr, Fraction]]:
    """Factors with their powers; numbers are factors as well."""
    if isinstance(expr, Call) and expr.atom == "multiply":
        parts = [(arg, power) for arg in expr.args]
    elif isinstance(expr, Call) and expr.atom == "divide":
        parts = [(expr.args[0], power), (expr.args[1], -power)]
    elif isinstance(expr, Call) and expr.atom == "negative":
        parts = [(Number(-1), power), (expr.args[0], power)]
    elif isinstance(expr, Call) and expr.atom in ("power", "sqrt"):
        exponent = known.enclosure(expr.args[1]) if expr.atom == "power" else None
        a = Fraction(1, 2) if expr.atom == "sqrt" else exponent.low if exponent is not None and exponent.exact else None
        inner = [] if a is None else list(powers(known, expr.args[0]))
        if a is not None and a.denominator > 1 and not all(_nonnegative(known, x) for x, _ in inner):
            # roots of what may be negative stay as they are
            inner = [(expr.args[0], Fraction(1))] if _nonnegative(known, expr.args[0]) else []
        if a is not None and inner:
            yield from ((x, power * a * b) for x, b in inner)
            return
        parts = []
    elif isinstance(expr, Call) and expr.atom == "where" and expr.args[2] == Number(0) and not variables(expr.args[0]):
        for x, a in powers(known, expr.args[1]):
            yield Call("where", (expr.args[0], x, Number(0))) if a > 0 else x, power * a
        return
    else:
        parts = []
    if not parts:
        yield expr, power
    for part, a in parts:
        yield from powers(known, part, a)


def _nonnegative(known: Knowledge, expr: Expr) -> bool:
    found = known.of(expr)
    return found.low >= 0 and found.real


def built(factors: Mapping[Expr, Fraction]) -> Expr:
    """The product of powers as an expression."""
    tops = [_raised(x, a) for x, a in factors.items() if a > 0]
    bottoms = [_raised(x, -a) for x, a in factors.items() if a < 0]
    # a factor that cancels must still be a number
    tops += [Call("power", (x, Number(0))) for x, a in factors.items() if a == 0]
    top = product_of(tops)
    return Call("divide", (top, product_of(bottoms))) if bottoms else top


def _raised(x: Expr, a: Fraction) -> Expr:
    if a == 1:
        return x
    return Call("sqrt", (x,)) if a == Fraction(1, 2) else Call("power", (x, written(a)))


def written(a: Fraction) -> Number:
    """A power as a number of the program."""
    return Number(int(a) if a.denominator == 1 else float(a))


def base(known: Knowledge, expr: Expr) -> Expr | None:
    """The deepest subexpression of which an expression is a function; None for numbers, itself if there is none."""
    return known.recall("base", (expr,), lambda: _base(known, expr))


def _base(known: Knowledge, expr: Expr) -> Expr | None:
    if not isinstance(expr, Call):
        return expr if variables(expr) else None
    found = {b for b in (base(known, arg) for arg in expr.args) if b is not None}
    if len(found) == 1:
        return found.pop()
    return expr if found else None


def linear(known: Knowledge, expr: Expr) -> tuple[dict[Expr, Fraction], Enclosure]:
    """Coefficients of the parts of a linear combination, and its constant; what is no combination is one part.

    Accuracy  exact: a part keeps a factor that is rounded or depends on indices
    """
    number = known.enclosure(expr)
    if number is not None:
        return {}, number
    if isinstance(expr, Call) and expr.atom in ("negative", "add", "subtract", "multiply", "divide"):
        found = _combination(known, expr)
        if found is not None:
            return {x: a for x, a in found[0].items() if a}, found[1]
    return {expr: Fraction(1)}, ZERO


def _combination(known: Knowledge, expr: Call) -> tuple[dict[Expr, Fraction], Enclosure] | None:
    parts, constant = linear(known, expr.args[0])
    if expr.atom == "negative":
        return {x: -a for x, a in parts.items()}, -constant
    if expr.atom in ("add", "subtract"):
        way = 1 if expr.atom == "add" else -1
        others, more = linear(known, expr.args[1])
        total = dict(parts)
        for x, a in others.items():
            total[x] = total.get(x, Fraction(0)) + way * a
        return total, constant + (more if way > 0 else -more)
    for one, other in (expr.args, expr.args[::-1])[: 2 if expr.atom == "multiply" else 1]:
        factor = known.enclosure(other)
        if factor is None or not factor.exact or not (factor.sign or expr.atom == "multiply"):
            continue
        parts, constant = linear(known, one)
        factor = factor.inverse() if expr.atom == "divide" else factor
        return {x: a * factor.low for x, a in parts.items()}, constant * factor
    return None


def apart(known: Knowledge, expr: Expr, indices: Sequence[str]) -> Expr:
    """The expression with some reduced indices under other names (primed), to stand where these indices are free."""
    used = set(indices_of(expr, known.ranges))
    values: dict[str, Affine] = {}
    for name in sorted(used & set(indices)):
        new = next(other for k in itertools.count(1) if (other := name + "'" * k) not in used)
        known.ranges[new] = known.ranges[name]
        values[name] = Affine(((new, 1),))
    return substitute(expr, values, along=True)


def same_up_to_indices(known: Knowledge, summed: Expr, free: Expr, indices: Sequence[str]) -> bool:
    """Whether one expression is the other at some values of the summed indices, all inside their ranges."""
    return meeting(known, summed, free, indices) is not None


def meeting(known: Knowledge, summed: Expr, free: Expr, indices: Sequence[str]) -> dict[str, Affine] | None:
    """Values of the summed indices, all inside their ranges, at which one expression is the other; None if none."""
    if summed == free:
        return {}
    values: dict[str, Affine] = {}
    for inner, outer in zip(walk(summed), walk(free), strict=False):
        for slot, seen in zip(_slots(inner), _slots(outer), strict=False):
            own = [name for name in slot.indices if name in indices]
            if len(own) == 1 and (own[0], 1) in slot.terms:
                values.setdefault(own[0], _difference(seen, slot, own[0]))
    ranges = dict(known.ranges)
    for name, value in values.items():
        if any(other not in ranges for other in value.indices):
            return None
        low, high = value.bounds(ranges)
        if low < ranges[name][0] or high >= ranges[name][1]:
            return None
    again = instance(summed, values, ranges, itertools.count())
    return values if _canonical(again, ranges) == _canonical(free, ranges) else None


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
    return seen - Affine(tuple(term for term in slot.terms if term[0] != name), slot.offset)


def _canonical(expr: Expr, ranges: Mapping[str, Range]) -> Expr:
    """The expression with its reduced indices named by their order and their ranges."""
    numbers = itertools.count()
    return fresh_substitute(expr, {}, lambda name: f"#{next(numbers)} in {ranges[name]}")


def instance(expr: Expr, bound: dict[str, Affine], ranges: dict[str, Range], fresh: Iterator[int]) -> Expr:
    """Replace indices by affine forms; reduced indices get fresh names."""

    def renamed(name: str) -> str:
        new = f"{name}#{next(fresh)}"
        ranges[new] = ranges[name]
        return new

    return fresh_substitute(expr, bound, renamed)


def put(expr: Expr, u: Expr, value: Expr) -> Expr:
    """The expression where a subexpression has a value; softmaxes over its indices read other members, and stay."""
    own = set(free_indices(u))

    def change(node: Expr) -> Expr | None:
        if node == u:
            return value
        return node if isinstance(node, Reduction) and own.intersection(node.indices) else None

    return rebuild(expr, change)

"""Definitions written out: references to Nonlins replaced by what they stand for."""

from __future__ import annotations

from dataclasses import replace

from tensorprog.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable, rebuild, walk
from tensorprog.graph import Structure
from tensorprog.ir import Nonlin, Range

__all__ = ["TooLarge", "index_names", "inline", "substitute"]

MAX_NODES = 400  # of an inlined expression


class TooLarge(Exception):
    """An expression cannot be written out within bounds."""


def inline(structure: Structure, expr: Expr, position: int) -> tuple[Expr, dict[str, Range]] | None:
    """Replace references to Nonlins by their definitions.

    Returns   the expression over G-vars, initial vectors, scores and averages, with the ranges of its (renamed)
              reduction indices; None where a recurrence or the size forbids it
    """
    ranges: dict[str, Range] = dict(structure.netsor.ranges)
    fresh = iter(range(10**6))

    def definition(node: Variable, at: int, depth: int) -> Expr | None:
        definers = structure.definers(at, node)
        if len(definers) != 1 or not isinstance(structure.netsor.body[definers[0]], Nonlin):
            if any(isinstance(structure.netsor.body[d], Nonlin) for d in definers):
                raise TooLarge
            return None
        inner = structure.netsor.body[definers[0]]
        assert isinstance(inner, Nonlin)
        if (
            depth > 40
            or "".join(structure.netsor.families[node.name].boundaries) != ""
            or structure.cyclic_at(definers[0])
        ):
            raise TooLarge
        slots = dict(zip([s.bare for s in inner.target.slots], node.slots, strict=True))
        bound = {k: v for k, v in slots.items() if k is not None}
        return go(substitute(inner.expr, bound, ranges, fresh), definers[0], depth + 1)

    def go(node: Expr, at: int, depth: int) -> Expr:
        result = rebuild(node, lambda n: definition(n, at, depth) if isinstance(n, Variable) else None)
        if sum(1 for _ in walk(result)) > MAX_NODES:
            raise TooLarge
        return result

    try:
        return go(expr, position, 0), ranges
    except TooLarge:
        return None


def substitute(expr: Expr, bound: dict[str, Affine], ranges: dict[str, Range], fresh: object) -> Expr:
    """Replace indices by affine forms; reduced indices get fresh names."""
    if isinstance(expr, IndexValue):
        return _affine_expr(bound[expr.name]) if expr.name in bound else expr
    if isinstance(expr, Constant | Variable):
        return replace(expr, slots=tuple(_affine_in(slot, bound) for slot in expr.slots))
    if isinstance(expr, Call):
        return Call(expr.atom, tuple(substitute(arg, bound, ranges, fresh) for arg in expr.args), expr.column)
    if isinstance(expr, Reduction):
        names = []
        inner = dict(bound)
        for name in expr.indices:
            if not expr.removes and name in bound:
                if bound[name].bare is None:
                    raise TooLarge
                names.append(bound[name].bare or "")
                continue
            if not expr.removes:
                names.append(name)
                continue
            new = f"{name}#{next(fresh)}"  # type: ignore[call-overload]
            ranges[new] = ranges[name]
            names.append(new)
            inner[name] = Affine(((new, 1),))
        return Reduction(expr.reducer, tuple(names), substitute(expr.arg, inner, ranges, fresh), expr.column)
    return expr


def index_names(node: Expr) -> tuple[str, ...]:
    """Indices that a node itself mentions, its children left aside."""
    if isinstance(node, IndexValue):
        return (node.name,)
    return tuple(n for s in node.slots for n in s.indices) if isinstance(node, Constant | Variable) else ()


def _affine_in(slot: Affine, bound: dict[str, Affine]) -> Affine:
    terms: dict[str, int] = {}
    offset = slot.offset
    for name, coefficient in slot.terms:
        inner = bound.get(name, Affine(((name, 1),)))
        offset += coefficient * inner.offset
        for other, factor in inner.terms:
            terms[other] = terms.get(other, 0) + coefficient * factor
    return Affine(tuple((name, c) for name, c in terms.items() if c), offset)


def _affine_expr(slot: Affine) -> Expr:
    result: Expr = Number(slot.offset)
    for name, coefficient in slot.terms:
        term: Expr = IndexValue(name)
        term = term if coefficient == 1 else Call("multiply", (Number(coefficient), term))
        result = term if isinstance(result, Number) and result.value == 0 else Call("add", (result, term))
    return result

"""Definitions written out: references to Nonlins replaced by what they stand for."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping

from tensorprog.check.graph import Structure
from tensorprog.check.overlaps import crossed
from tensorprog.language.expr import (
    MAX_NODES,
    Affine,
    Expr,
    Number,
    Reduction,
    Variable,
    free_indices,
    fresh_substitute,
    rebuild,
    replace_variables,
    walk,
    with_stars,
)
from tensorprog.language.ir import Initial, Nonlin, Range

__all__ = ["fixed", "inline", "instance", "put"]


class TooLarge(Exception):
    """An expression cannot be written out within bounds."""


def inline(
    structure: Structure, expr: Expr, position: int, first: bool = False
) -> tuple[Expr, dict[str, Range]] | None:
    """Replace references to Nonlins by their definitions; with `first`, for the statement's first member only.

    Returns   the expression over G-vars, initial vectors, scores and averages, with the ranges of its (renamed)
              reduction indices; None where a recurrence or the size forbids it
    """
    declared = structure.netsor.ranges
    ranges: dict[str, Range] = with_stars(declared)  # see `Reduction.at`
    fresh = iter(range(10**6))
    body = structure.netsor.body
    free = {name: span for name, span in declared.items() if name in [s.bare for s in body[position].target.slots]}
    pinned = ChainMap({name: (start, start + 1) for name, (start, _) in free.items()}, ranges)

    def definition(node: Variable, at: int, depth: int) -> Expr | None:
        plain = not crossed(structure.netsor, node, ranges)
        initial = structure.initial.get(node.name)
        if initial is not None:
            value, places = fixed(initial), dict(zip(initial.indices, node.slots, strict=True))
            return instance(value, places, ranges, fresh) if value is not None and plain else None
        # a reference whose indices were replaced may read any statement of its family
        definers = structure.definers(at, node) or structure.netsor.families[node.name].statements
        if not any(isinstance(body[d], Nonlin) for d in definers):
            return None
        if len(definers) == 1 and plain and not structure.cyclic(definers[0]):
            chosen = definers[0]
        else:
            found = next((d for d in definers if first and _inside(node, body[d].target, pinned)), None)
            if found is None:
                raise TooLarge
            chosen = found
        inner = body[chosen]
        if depth > 40:
            raise TooLarge
        if not isinstance(inner, Nonlin):
            return None
        slots = dict(zip([s.bare for s in inner.target.slots], node.slots, strict=True))
        bound = {k: v for k, v in slots.items() if k is not None}
        return go(instance(inner.expr, bound, ranges, fresh), chosen, depth + 1)

    def go(node: Expr, at: int, depth: int) -> Expr:
        result = replace_variables(node, lambda reference: definition(reference, at, depth))
        if sum(1 for _ in walk(result)) > MAX_NODES:
            raise TooLarge
        return result

    try:
        return go(expr, position, 0), ranges
    except TooLarge:
        return None


def fixed(initial: Initial) -> Expr | None:
    """The value of an initial vector without variance, whose coordinates are all the same number."""
    still = isinstance(initial.cov, Number) and initial.cov.value == 0
    return initial.mean if still and isinstance(initial.mean, Expr) else None


def _inside(reference: Variable, target: Variable, ranges: Mapping[str, Range]) -> bool:
    """Whether all members that a reference reads are among those that a definition binds."""
    for slot, own in zip(reference.slots, target.slots, strict=True):
        (low, high), (least, most) = slot.bounds(ranges), own.bounds(ranges)
        if low < least or high > most:
            return False
    return True


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

"""Definitions read beyond the boundaries of their indices.

    f[o] = phi(u[o]), zero:   f[o + 1] = phi(u[o + 1]) where o + 1 is in range, else 0
    f[o] = phi(u[o]), wrap:   f[o + 1] = phi(u[o + 1]), if all that phi reads at o goes around with it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from tensorprog.check.rewrites.tools.folding import Folding
from tensorprog.language.expr import Affine, Call, Constant, Expr, IndexValue, Number, Variable, affine_expr, walk
from tensorprog.language.ir import Netsor, Range

__all__ = ["conditions", "crossed", "periodic", "reaches", "readable", "within"]


def reaches(slot: Affine, span: Range, ranges: Mapping[str, Range]) -> tuple[bool, bool]:
    """Whether a slot reads below a range, and whether above."""
    low, high = slot.bounds(ranges)
    return low < span[0], high >= span[1]


def crossed(netsor: Netsor, reference: Variable, ranges: Mapping[str, Range]) -> list[str]:
    """Rules of the boundaries beyond which a reference reads."""
    family = netsor.families[reference.name]
    places = zip(reference.slots, family.ranges, family.boundaries, strict=True)
    return [rule for slot, span, rule in places if any(reaches(slot, span, ranges))]


def conditions(slot: Affine, span: Range, ranges: Mapping[str, Range]) -> list[Expr]:
    """What holds where a slot is in range, as far as that is in doubt."""
    below, above = reaches(slot, span, ranges)
    value = affine_expr(slot)
    found: list[Expr] = [Call("greater_equal", (value, Number(span[0])))] * below
    return found + [Call("less_equal", (value, Number(span[1] - 1)))] * above


def within(expr: Expr, holds: list[Expr]) -> Expr:
    """An expression where some conditions hold, 0 elsewhere."""
    return Call("where", (reduce(lambda a, b: Call("logical_and", (a, b)), holds), expr, Number(0)))


def _slots(netsor: Netsor, expr: Expr) -> Iterator[tuple[Affine, Range, str]]:
    """Slots of what an expression reads, with the ranges and boundaries there."""
    for node in walk(expr):
        if isinstance(node, Variable):
            family = netsor.families[node.name]
            yield from zip(node.slots, family.ranges, family.boundaries, strict=True)
        elif isinstance(node, Constant):
            own = [netsor.index[name] for name in netsor.constant[node.name].indices]
            yield from ((slot, (i.start, i.stop), i.boundary) for slot, i in zip(node.slots, own, strict=True))


def readable(netsor: Netsor, expr: Expr, ranges: Mapping[str, Range]) -> bool:
    """Whether all that an expression reads is in range or has a boundary, and it is finite at every n."""
    slots = ((rule, reaches(slot, span, ranges)) for slot, span, rule in _slots(netsor, expr))
    return all(rule or not any(out) for rule, out in slots) and Folding(netsor).finite(expr)


def periodic(netsor: Netsor, expr: Expr, index: str, span: Range) -> bool:
    """Whether an expression has the same value when an index is moved by the length of a range."""
    if any(isinstance(node, IndexValue) and node.name == index for node in walk(expr)):
        return False
    length = span[1] - span[0]
    return all(rule == "wrap" and stop - start == length
               for slot, (start, stop), rule in _slots(netsor, expr) if index in slot.indices)

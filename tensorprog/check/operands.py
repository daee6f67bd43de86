"""Scores whose operands are functions of MatMul outputs, coordinate by coordinate, and whose mean is zero all the same.

In every coordinate the product of the two operands changes its sign with weights of one side, so that its mean, given
all that the other weights make, is zero; Lindeberg's theorem gives the limit.

Source    the theory page, on operands that are functions
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count

from tensorprog.check.graph import Operand, Structure
from tensorprog.check.overlaps import crossed
from tensorprog.check.signs import Sign, product, signs
from tensorprog.language.expr import Affine, Variable, reindexed
from tensorprog.language.ir import Dot, MatMul, Nonlin, Range

__all__ = ["SIDES", "coordinatewise"]

SIDES = ("left", "right")
MOST = 2000  # ways from an operand to what it is a function of


def coordinatewise(structure: Structure, zeros: Collection[int] = ()) -> dict[int, tuple[Operand, ...]]:
    """Such scores, by position, with the MatMuls behind both sides in the place of their operands.

    `zeros` are statements that make nothing but zeros.  There are none if a score of MatMul outputs stands beside them
    whose operands are both read elsewhere: these might depend on the coordinates of the others.
    """
    body, made, others = structure.netsor.body, set[int](), dict[int, list[Operand]]()
    for o in structure.operands:
        if structure.fixed(o.dot):
            continue
        others.setdefault(o.dot, []).append(o)
        if o.definer is not None and isinstance(body[o.definer], Nonlin) and o.definer not in zeros:
            made.add(o.dot)
    if not made:
        return {}
    for dot in others.keys() - made:
        weights = [(o.side, _weight(structure, o)) for o in others[dot]]
        elsewhere = {side for side, weight in weights if weight and not _read_by_dots(structure, weight)}
        if len(elsewhere) == len(SIDES):
            return {}
    found = {dot: _behind(structure, dot) for dot in sorted(made)}
    return {dot: operands for dot, operands in found.items() if operands and _centred(structure, dot, operands)}


def _weight(structure: Structure, operand: Operand) -> str:
    """The weight that makes an operand; none if no MatMul does."""
    statement = None if operand.definer is None else structure.netsor.body[operand.definer]
    return statement.weight.name if isinstance(statement, MatMul) else ""


def _behind(structure: Structure, dot: int) -> tuple[Operand, ...]:
    """The MatMuls whose outputs the operands of a score are functions of; none where that is not known."""
    netsor, found, numbers = structure.netsor, list[Operand](), count()
    for side, reference in zip(SIDES, netsor.body[dot].inputs, strict=True):
        ranges: dict[str, Range] = {}
        for number, leaf in enumerate(_leaves(structure, dot, reference, reference, ranges, numbers)):
            if leaf is None or number >= MOST:
                return ()
            family = netsor.families[leaf.name]
            positions = [p for p in family.statements if isinstance(netsor.body[p], MatMul)]
            if family.kind == "scalar" and not structure.converging.issuperset(family.statements):
                return ()  # scores are no parameters of other scores
            inside = {name for slot in leaf.slots for name in slot.indices}
            bound = tuple((name, span) for name, span in ranges.items() if name in inside)
            found += [Operand(dot, side, leaf, position, bound=bound) for position in positions]
    return tuple(dict.fromkeys(found))


def _leaves(
    structure: Structure,
    position: int,
    written: Variable,
    read: Variable,
    ranges: dict[str, Range],
    numbers: Iterator[int],
) -> Iterator[Variable | None]:
    """What a vector, `written` in a statement, is a function of, at the indices of `read`; None: not known."""
    netsor = structure.netsor
    definers = structure.definers(position, written)
    nonlins = [d for d in definers if isinstance(netsor.body[d], Nonlin)]
    if len(nonlins) < len(definers) or not definers:
        yield read
    wraps = "wrap" in crossed(netsor, written, netsor.ranges)
    if any(map(structure.cyclic, nonlins)):
        yield None
        return
    for definer in nonlins:
        pairs = zip(netsor.body[definer].target.slots, read.slots, strict=True)
        values = {own.bare: slot for own, slot in pairs if own.bare is not None}
        for v in dict.fromkeys(netsor.body[definer].inputs):
            rules = zip(v.slots, netsor.families[v.name].boundaries, strict=True)
            if wraps and not all(
                (slot.bare and rule == "wrap") or values.keys().isdisjoint(slot.indices) for slot, rule in rules
            ):
                yield None  # it does not go around with what reads it
                return
            bound = {}
            for name in dict.fromkeys(name for slot in v.slots for name in slot.indices if name not in values):
                fresh = f"{name}#{next(numbers)}"
                ranges[fresh], bound[name] = netsor.ranges[name.rstrip("*")], Affine.index(fresh)
            yield from _leaves(structure, definer, v, reindexed(v, {**values, **bound}), ranges, numbers)


def _centred(structure: Structure, dot: int, operands: Collection[Operand]) -> bool:
    """Whether the product of both sides changes its sign with weights whose products nothing but Dots reads.

    Those of one side, or one weight.
    """
    statement = structure.netsor.body[dot]
    assert isinstance(statement, Dot)
    body = [structure.netsor.body[p] for p in sorted(structure.ancestors(dot))]
    sides = [dict.fromkeys(_weight(structure, o) for o in operands if o.side == side) for side in SIDES]
    for seeds in (*sides, *([name] for side in sides for name in side)):
        if seeds and all(_read_by_dots(structure, name) for name in seeds):
            found = signs(body, list(seeds), given=True)
            both = (found.get(v.name, Sign.EVEN) for v in (statement.left, statement.right))
            if product(*both) is Sign.ODD:
                return True
    return False


def _read_by_dots(structure: Structure, weight: str) -> bool:
    """Whether what a weight makes, and functions of it, are read by Dots alone."""
    body, waiting, seen = structure.netsor.body, list(structure.weight_uses(weight)), set[int]()
    while waiting:
        position = waiting.pop()
        readers = structure.readers[position].keys() - seen
        if body[position].target.name in structure.netsor.outputs:
            return False
        if any(isinstance(body[reader], MatMul) for reader in readers):
            return False
        seen |= readers
        waiting += (reader for reader in readers if isinstance(body[reader], Nonlin))
    return True

"""Points that refute: lines through drawn arguments, along which a function jumps, is too steep, or grows too fast.

What no Nonlin makes, a MatMul output, say, may have any value: it gets one that its name and its indices decide.  So a
member of a family is computed from what it reads alone, whatever the sizes of others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.graph import Structure
from tensorprog.check.overlaps import crossed
from tensorprog.language.evaluate import BATCH, Open, Scope, affine_values, align, evaluate, gather, union
from tensorprog.language.expr import Call, Expr, Variable, walk, with_stars
from tensorprog.language.ir import MatMul, Nonlin, Range

Values = NDArray[np.float64]
Leaf = Callable[[Variable, Mapping[str, Range], Variable], Open]  # of what is read, and of what decides its value
Line = Callable[[Values], Values]
Spread = Callable[[Variable, int], tuple[float, float, bool]]  # ends of what a reference reads, and whether it is fixed

MANY = 200_000  # numbers that are drawn for one value
DEEPEST = 40  # Nonlins of Nonlins that are followed
LINES = 12  # through each of the members that are looked at
FAR = 3.0  # arguments are drawn between -FAR and FAR: far out there is rounding
CELLS, ROUNDS, SMOOTH = 24, 13, 6  # three cells stay, so many times; after some a smooth function is straight
JUMP, NOISE = 1e-3, 1e-9  # a difference that stays; rounding, relative to values of at least 1
STEEPER = 1.15  # times, at each round: the slope of a cusp
POWER, SQUARE, LARGE = 30.0, 3.95, 10.0  # growth that no power has; log f(2 x) / log f(x) of exp(x**2); logs from there


class Unread(Exception):
    """A value that is not followed: beyond a boundary, or through many rounds of a recurrence."""


def value(
    structure: Structure, expr: Expr, at: int, ranges: Mapping[str, Range], leaf: Leaf, deep: int = DEEPEST
) -> Open:
    """The value of an expression in a statement over ranges of its indices, where `leaf` gives what no Nonlin makes.

    Raises    Unread
    """
    netsor = structure.netsor

    def read(reference: Variable, inside: Mapping[str, Range]) -> Open:
        definers = structure.definers(at, reference)
        spans = [slot.bounds(inside) for slot in reference.slots]
        if not deep or crossed(netsor, reference, inside):
            raise Unread
        for definer in definers:  # the one that defines all members between these ends
            statement = netsor.body[definer]
            slots = list(zip(statement.target.slots, reference.slots, spans, strict=True))
            ends = ((own.bounds(netsor.ranges), span) for own, _, span in slots)
            if not all(first <= low and high <= last for (first, last), (low, high) in ends):
                continue
            forms = {own.bare: slot for own, slot, _ in slots if own.bare is not None}
            if isinstance(statement, MatMul):  # members of a weight and a vector decide: equal products are equal
                name = f"{statement.weight.name} {statement.vector.name} {statement.transposed}"
                read = (*statement.weight.slots, *statement.vector.slots)
                return leaf(reference, inside, Variable(name, tuple(slot.at(forms) for slot in read)))
            if not isinstance(statement, Nonlin):
                return leaf(reference, inside, reference)
            starts = {own.bare: low for own, _, (low, _) in slots if own.bare is not None}
            own_ranges = {own.bare: (low, high + 1) for own, _, (low, high) in slots if own.bare is not None}
            made = value(structure, statement.expr, definer, with_stars(netsor.ranges) | own_ranges, leaf, deep - 1)
            return gather(made, forms, inside, starts)
        if definers:
            raise Unread
        return leaf(reference, inside, reference)

    return evaluate(expr, Scope(netsor, ranges, read))


def lines(structure: Structure, position: int, spread: Spread) -> Iterator[Line]:
    """Members of a Nonlin along lines: between drawn points, or whole numbers, or through 0."""
    netsor, statement = structure.netsor, structure.netsor.body[position]
    assert isinstance(statement, Nonlin)
    for part in (0.5, 0.0, 1.0):
        ranges = with_stars(netsor.ranges)
        for name in (slot.bare for slot in statement.target.slots if slot.bare is not None):
            start, stop = netsor.ranges[name]
            place = start + int(part * (stop - 1 - start))
            ranges[name] = place, place + 1
        for k in range(LINES):
            leaf = partial(_leaf, k, spread, position)

            def along(t: Values, leaf: Callable[..., Open] = leaf, ranges: Mapping[str, Range] = ranges) -> Values:
                found = value(structure, statement.expr, position, ranges, partial(leaf, t)).data
                return np.broadcast_to(np.asarray(found, dtype=float).reshape(-1), t.shape)

            yield along


def _leaf(
    k: int, spread: Spread, at: int, t: Values, reference: Variable, ranges: Mapping[str, Range], decides: Variable
) -> Open:
    """What is read along the line k, at the places t of it; numbers in the limit stay what they are."""
    axes = union(*(slot.indices for slot in decides.slots))
    if len(t) * math.prod(high + 1 - low for low, high in (slot.bounds(ranges) for slot in decides.slots)) > MANY:
        raise Unread
    key: NDArray[np.uint64] = np.asarray(zlib.crc32(decides.name.encode()), dtype=np.uint64)
    for slot in decides.slots:
        key = _mixed(key + align(affine_values(slot, ranges), axes).astype(np.uint64))
    start, end = (FAR * (_mixed(key + np.uint64(salt)) / 2.0**63 - 1) for salt in (2 * k, 2 * k + 1))
    low, high, fixed = spread(reference, at)
    start, end = ((start, end), (np.round(start), np.round(end)), (-end, end))[0 if fixed else k % 3]
    start = np.abs(start) if fixed and low >= 0 else start
    t = (0 * t if fixed else t).reshape(-1, *(1,) * len(axes))
    return Open((BATCH, *axes), np.clip(start + (end - start) * t, low, high))


def _mixed(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers that look random (splitmix64)."""
    with np.errstate(over="ignore"):
        key = key * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
        return key ^ (key >> np.uint64(31))


def refuted(structure: Structure, position: int, spread: Spread, scored: bool, real: bool) -> bool:
    """Whether a Nonlin is sure not to be pseudo-Lipschitz (`scored`), or controlled; `real`: if it is a number."""
    made = (structure.netsor.body[p] for p in (position, *structure.ancestors(position)))
    nodes = (node for statement in made if isinstance(statement, Nonlin) for node in walk(statement.expr))
    steep = any(isinstance(node, Call) and node.atom == "exp" for node in nodes)  # it may overflow
    for k, line in enumerate(lines(structure, position, spread)):
        try:
            drawn = line(np.linspace(0.1, 0.9, 8))
            lost = not real and not steep and k % 3 == 0 and not np.isfinite(drawn).all()
            if lost or _grows(line, scored) or ((scored or not real) and _breaks(line, scored)):
                return True
        except Unread:
            continue
    return False


def _breaks(line: Line, scored: bool) -> bool:
    """Whether a function of one number, where it bends most, has a pole, or with scores a jump or an endless slope."""
    low, high, slope, top, steeper, higher = 0.0, 1.0, 0.0, 0.0, scored, True
    for k in range(ROUNDS):
        t = np.linspace(low, high, CELLS + 1)
        y = line(t)
        t, y = t[np.isfinite(y)], y[np.isfinite(y)]
        if len(y) < CELLS // 2:
            return False
        change, before = np.diff(y), (slope, top)
        worst = int(np.argmax(np.abs(change - np.median(change))))
        low, high, size = t[max(worst - 1, 0)], t[min(worst + 2, len(t) - 1)], abs(change[worst])
        slope, top = size / (t[worst + 1] - t[worst]), float(np.max(np.abs(y)))
        steeper &= k <= SMOOTH or slope > STEEPER * before[0]
        higher &= k <= SMOOTH or top > before[1] + JUMP
        if size <= NOISE * max(top, 1.0):
            return steeper and k > SMOOTH + 2
    return steeper or higher or (scored and size > JUMP + NOISE * top)


def _grows(line: Line, scored: bool) -> bool:
    """Whether a function of one number grows like exp(x), or without scores like exp(x**2)."""
    with np.errstate(all="ignore"):
        logs = np.log(np.abs(line(2.0 ** (np.arange(-40, 160) / 4))))
    logs = logs[: int(np.argmin(np.isfinite(logs)))] if not np.isfinite(logs).all() else logs
    if len(logs) < 9 or logs[-5] < LARGE:
        return False
    last, before = (logs[-1] - logs[-5]) / np.log(2), (logs[-5] - logs[-9]) / np.log(2)
    return bool(last > POWER and last > 1.5 * before if scored else logs[-1] > SQUARE * logs[-5])

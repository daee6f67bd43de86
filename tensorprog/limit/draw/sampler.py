"""Draws of (Z, p-ring): every Gaussian source is a block of standard normals, so that quasi-random points serve too.

    vectors W x over one weight member    Z = e_x . xi                     e_x.e_x' = sigma**2 E[Z^x Z^x']
    scores over one pair of members A, B  p-ring = e_x^T G_AB e_y          G_AB i.i.d., G_BA = G_AB^T

Both Isserlis terms of clause (iv) and all sharing of weights across scores follow from the second line.  Averages over
vectors that depend on scores are functions of p-ring, E[. | p-ring], and are worked out for each draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import NotFiniteError
from tensorprog.language.evaluate import (
    BATCH,
    COORDINATE,
    Open,
    Scope,
    affine_values,
    align,
    broadcast,
    evaluate,
    gather,
    overflow,
    take,
    union,
)
from tensorprog.language.expr import Affine, Expr, Reduction, Variable, indices_of, variables, walk
from tensorprog.language.ir import Dot, Family, Initial, MatMul, Nonlin, Range, Statement
from tensorprog.language.schedule import Step
from tensorprog.language.weight_members import Grouping
from tensorprog.limit.draw.layers import given_scalars
from tensorprog.limit.draw.normals import CHUNK, Normals, Points, Source
from tensorprog.limit.draw.weight_factors import RANK, Rows, factor_rows
from tensorprog.limit.form.definitions import Box, held_ranges, pieced, place, reads_beyond, target_box
from tensorprog.limit.moment.compilable import refuse_cells
from tensorprog.limit.moment.compiler import Compiler
from tensorprog.limit.moment.numbers import initial_draws
from tensorprog.limit.moment.values import REPLICATE

__all__ = ["Box", "Sampler", "plain"]

Array = NDArray[Any]
RANK2 = "r2"
WORKED = 4  # arrays of the size of a run of normals, then of a piece of a sum, that are needed at once


def plain(value: Open, count: int) -> Array:
    """Draws of a variable without the axis of coordinates.

    Shapes    (count, *members)
    """
    data = value.data[..., 0] if COORDINATE in value.axes else value.data
    return np.broadcast_to(data, (count, *data.shape[1:]))


class Sampler:
    """Maps standard normals to the variables wanted, computing only the members that they need.

    `dim` normals make one draw: first those of the scores, then those of the vectors (none if not `vectors`).
    """

    def __init__(self, compiler: Compiler, wanted: Mapping[str, Box], vectors: bool = True) -> None:
        self.compiler, self.netsor = compiler, compiler.netsor
        self.wanted, self.vectors = dict(wanted), vectors
        self.demand: dict[str, Box] = {}
        self.scores: dict[str, Dot] = {}
        self.averages: dict[str, set[str]] = {}  # the random scalars that each reads
        self.inner = 0.0  # the largest error of the averages drawn so far
        self.sources: list[Source] = []
        self.rows: dict[str, Rows] = {}
        self._ranks: dict[str, tuple[NDArray[np.int64], int]] = {}  # members and rank of each weight's factor
        self._pairs: dict[tuple[str, str], NDArray[np.int64]] = {}
        self._drawn: set[str] = set()  # Gaussian families whose Z is read, not only their inner products
        for name, box in wanted.items():
            self._ask(name, box, vectors)
        self._factorise({r.name for s in self.scores.values() for r in (s.left, s.right)})
        self._collect_pairs()
        if vectors:
            self._factorise(self._drawn)
            self._vector_sources()

    @property
    def dim(self) -> int:
        """Standard normals per draw."""
        return sum(math.prod(shape) for _, shape in self.sources)

    @property
    def demanded(self) -> int:
        """Members that one draw has, of all families."""
        return sum(math.prod(stop - start for start, stop in box) for box in self.demand.values())

    def numbers(self, later: Collection[str] = ()) -> int:
        """Numbers of one draw: its normals, and all members demanded but for scores that are drawn when read."""
        kept = (box for name, box in self.demand.items() if name not in later)
        return self.dim + sum(math.prod(stop - start for start, stop in box) for box in kept)

    def most(self, block: int, draws: int, later: Collection[str] = ()) -> int:
        """Numbers held at once, about, while some draws of a block are evaluated.

        The normals of large sources are read one run at a time, scores in `later` and what is made of them in the
        pieces of a sum.
        """
        runs = (block * math.prod(shape[1:]) for _, shape in self.sources)
        run = max(runs, default=0)
        largest = 0
        for statement in (s for s in self.netsor.body if isinstance(s, Nonlin) and s.target.name in self.demand):
            ranges = held_ranges(statement, self.demand[statement.target.name], self.netsor.ranges)
            if ranges is None or not any(variable.name in later for variable in statement.inputs):
                continue
            for node in walk(statement.expr):
                if isinstance(node, Reduction) and node.removes:
                    piece = self._pieces(draws)(node.arg, node.indices, ranges)[0]
                    sizes = (piece[name][1] - piece[name][0] for name in indices_of(node.arg, piece))
                    largest = max(largest, draws * math.prod(sizes))
        kept = sum(math.prod(b - a for a, b in box) for name, box in self.demand.items() if name not in later)
        return WORKED * max(run, largest) + 2 * draws * kept

    # -- what is needed -----------------------------------------------------------------------------------------

    def _ask(self, name: str, box: Box, vectors: bool, operand: bool = False) -> None:
        if not operand and self.compiler.parts.is_base(name):
            self._drawn.add(name)
        box = self._whole(name, box)
        old = self.demand.get(name)
        new = box if old is None else tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(old, box, strict=True))
        if new == old:
            return
        self.demand[name] = new
        family = self.netsor.families[name]
        if not family.statements:
            return
        statement = self.netsor.body[family.statements[0]]
        if isinstance(statement, Dot) and statement.scale == "1/n" and name in self.compiler.random:
            refuse_cells(self.compiler, [v.name for v in statement.inputs])
            scalars = list(self._scalars(statement, new))
            self.averages[name] = {scalar for scalar, _ in scalars}
            for scalar, needed in scalars:
                self._ask(scalar, needed, vectors)
            return
        if isinstance(statement, Dot) and name in self.compiler.random:
            if not self.compiler.expanded:
                return  # given, not drawn
            self.scores[name] = statement
        if isinstance(statement, MatMul):  # of a vector that no score reaches: else there are layers
            return
        if isinstance(statement, Dot) and name not in self.compiler.random:
            return
        for position in family.statements:
            statement = self.netsor.body[position]
            ranges = held_ranges(statement, new, self.netsor.ranges)
            if ranges is None:
                continue
            for reference in statement.inputs:
                kind = self.netsor.families[reference.name].kind
                unread = isinstance(statement, Nonlin) and kind == "vector" and not vectors
                if unread and reference.name not in self.compiler.random:
                    continue  # no score is reached through it
                self._ask(reference.name, self._box(reference, ranges), vectors, isinstance(statement, Dot))

    def _scalars(self, statement: Dot, box: Box) -> Iterator[tuple[str, Box]]:
        """The random scalars that an average reads, with the members that are; all of them in recurrences."""
        parts, whole = self.compiler.parts, bool(self.compiler.recurrences.loops)
        held = held_ranges(statement, box, self.netsor.ranges)
        assert held is not None  # members of the family
        for operand in statement.inputs:
            if parts.is_base(operand.name):
                continue
            read, spans = list(variables(parts.inlined(operand.name))), [slot.bounds(held) for slot in operand.slots]
            ranges = parts.every_range() | {str(k): (low, high + 1) for k, (low, high) in enumerate(spans)}
            for reference in read:
                family = self.netsor.families[reference.name]
                if family.kind == "scalar" and reference.name in self.compiler.random:
                    yield reference.name, family.ranges if whole else self._box(reference, ranges)

    def _average(self, name: str, values: Mapping[str, Open], draws: int) -> Open:
        """An average given the scalars that it reads, for every draw."""
        given, found = {scalar: (values[scalar], self.demand[scalar]) for scalar in self.averages[name]}, []
        axes = tuple(str(k) for k in range(len(self.demand[name])))
        sizes = {axis: stop - start for axis, (start, stop) in zip(axes, self.demand[name], strict=True)}
        for part, moments in given_scalars(self.compiler, given, draws):
            value = moments.average_in(name, self.demand[name])
            self.inner = max(self.inner, float(np.max(value.estimate.error, initial=0.0)))
            sizes[REPLICATE] = part.stop - part.start
            found.append(broadcast(value.value, (REPLICATE, *axes), sizes))
        return Open((BATCH, *axes), np.concatenate(found))

    def _whole(self, name: str, box: Box) -> Box:
        """The box, widened along indices over which the definition takes a softmax: that needs them all."""
        family = self.netsor.families[name]
        for statement in (self.netsor.body[position] for position in family.statements):
            if isinstance(statement, Nonlin):
                over = [n for n in walk(statement.expr) if isinstance(n, Reduction) and not n.removes]
                kept = {index for node in over for index in node.indices}
                box = tuple(
                    full if slot.bare in kept else span
                    for slot, span, full in zip(statement.target.slots, box, family.ranges, strict=True)
                )
        return box

    def wanted_value(self, name: str, values: Mapping[str, Open]) -> Open:
        """The members asked for of a variable; more of them may have been computed."""
        value = values[name]
        return Open(value.axes, value.data[(slice(None), *place(self.wanted[name], self.demand[name]))])

    def _box(self, reference: Variable, ranges: Mapping[str, Range]) -> Box:
        family = self.netsor.families[reference.name]
        box = []
        for slot, (start, stop), rule in zip(
            reference.slots, family.ranges, family.boundaries or [""] * len(reference.slots), strict=True
        ):
            low, high = slot.bounds(dict(ranges))
            if low < start or high >= stop:  # beyond a boundary
                low, high = (start, stop - 1) if rule == "wrap" else (min(max(x, start), stop - 1) for x in (low, high))
            box.append((low, high + 1))
        return tuple(box)

    def local_ranges(self, name: str, box: Box | None = None) -> dict[str, Range]:
        """Index ranges with the left side of a family's definition held to a box, or to the members asked for."""
        statement = self.netsor.body[self.netsor.families[name].statements[0]]
        ranges = dict(self.netsor.ranges)
        for slot, span in zip(statement.target.slots, self.demand[name] if box is None else box, strict=True):
            if slot.bare:
                ranges[slot.bare] = span
        return ranges

    def _factorise(self, names: Collection[str]) -> None:
        """Factor the second moments of all vectors that the weights of these families multiply."""
        weights = {s.weight.name for s in self.netsor.body if isinstance(s, MatMul) and s.target.name in names}
        for weight in sorted(weights - self._ranks.keys()):
            uses = [s for s in self.netsor.body if isinstance(s, MatMul) and s.weight.name == weight]
            groups = [
                Grouping(s, self.netsor.families[weight], self.local_ranges(s.target.name))
                for s in uses
                if s.target.name in self.demand
            ]
            members, rank, rows = factor_rows(self.compiler, groups)
            self._ranks[weight] = members, rank
            self.rows |= rows

    # -- scores -------------------------------------------------------------------------------------------------

    def _operand(self, name: str, side: str, ranges: Mapping[str, Range]) -> tuple[Variable, Rows, Open]:
        """Reference, factor rows, and weight member number (over the score's indices) of one operand."""
        reference: Variable = getattr(self.scores[name], side)
        if reference.name not in self.rows:
            raise pieced(self.scores[name], reference)
        rows = self.rows[reference.name]
        names = self._given(rows, reference)
        total: Array = np.zeros((), dtype=np.int64)
        axes: tuple[str, ...] = ()
        family = rows.group.weight
        for slot, (start, stop), rule in zip(
            rows.group.statement.weight.slots, family.ranges, family.boundaries, strict=True
        ):
            value = affine_values(slot.at(names), ranges)
            joined = union(axes, value.axes)
            number = (value.data - start) % (stop - start) if rule == "wrap" else value.data - start
            total = align(Open(axes, total), joined) * (stop - start) + align(Open(value.axes, number), joined)
            axes = joined
        return reference, rows, Open(axes, total)

    def _collect_pairs(self) -> None:
        """One block of normals for each unordered pair of weight members that meet in a score."""
        for name in self.scores:
            key, codes, _ = self._pair_codes(name, self.local_ranges(name))
            found = np.unique(codes.data)
            old = self._pairs.get(key)
            self._pairs[key] = found if old is None else np.union1d(old, found)
        for key, codes_found in self._pairs.items():
            self.sources.append((("pair", *key), (len(codes_found), *(self._ranks[weight][1] for weight in key))))

    def _pair_codes(self, name: str, ranges: Mapping[str, Range]) -> tuple[tuple[str, str], Open, Open]:
        """Weight families in order, code of the unordered member pair, and whether the operands stand swapped."""
        (_, left, first), (_, right, second) = (self._operand(name, side, ranges) for side in ("left", "right"))
        axes = union(first.axes, second.axes)
        a, b = align(first, axes), align(second, axes)
        swapped = np.asarray(left.group.weight.name > right.group.weight.name)
        if left.group.weight.name == right.group.weight.name:
            swapped = np.asarray(a > b)
        big = 1 + max(math.prod(left.group.weight.shape), math.prod(right.group.weight.shape))
        low, high = np.where(swapped, b, a), np.where(swapped, a, b)
        shape = np.broadcast_shapes(a.shape, b.shape)
        names = sorted((left.group.weight.name, right.group.weight.name))
        codes = np.broadcast_to(low * big + high, shape)
        return (names[0], names[1]), Open(axes, codes), Open(axes, np.broadcast_to(swapped, shape))

    def _draw_score(self, name: str, box: Box, normals: Normals) -> Open:
        """The scores in a box, from the normals of the pairs of weight members that meet in it."""
        ranges = self.local_ranges(name, box)
        key, codes, swapped = self._pair_codes(name, ranges)
        pairs, where = np.unique(codes.data, return_inverse=True)
        block = normals.of(("pair", *key), np.searchsorted(self._pairs[key], pairs))
        where = where.reshape(codes.data.shape)
        if where.size == len(pairs) and np.array_equal(where.reshape(-1), np.arange(where.size)):
            picked = block.reshape(block.shape[0], *where.shape, *block.shape[2:])
        else:
            picked = block[:, where]
        if swapped.data.any():
            turned = np.swapaxes(picked, -1, -2)
            picked = turned if swapped.data.all() else np.where(swapped.data[None, ..., None, None], turned, picked)
        matrix = Open((BATCH, *codes.axes, RANK, RANK2), picked)
        statement = self.scores[name]
        for reference, rank in ((statement.left, RANK), (statement.right, RANK2)):
            rows = self.rows[reference.name]
            matrix = rows.apply(matrix, rank, self._given(rows, reference), ranges)
        return self.over_positions(statement, matrix, ranges)

    @staticmethod
    def _given(rows: Rows, reference: Variable) -> dict[str, Affine]:
        """What a reference puts in place of the indices on the left side of a MatMul."""
        target = rows.group.statement.target
        return {slot.bare: given for slot, given in zip(target.slots, reference.slots, strict=True) if slot.bare}

    @staticmethod
    def over_positions(statement: Statement, value: Open, ranges: Mapping[str, Range]) -> Open:
        """From the indices of a definition's left side to full position axes '0', '1', ... behind the batch."""
        axes = (BATCH, *(slot.bare or f"={k}" for k, slot in enumerate(statement.target.slots)))
        vector = COORDINATE in value.axes
        sizes = {axis: ranges[axis][1] - ranges[axis][0] if axis in ranges else 1 for axis in axes[1:]}
        sizes |= dict(zip(value.axes, value.data.shape, strict=True))
        sizes.setdefault(BATCH, 1)
        trail = (COORDINATE,) if vector else ()
        data = broadcast(value, (*axes, *trail), sizes | {COORDINATE: 1})
        return Open((BATCH, *(str(k) for k in range(len(axes) - 1)), *trail), data)

    # -- vectors ------------------------------------------------------------------------------------------------

    def _vector_sources(self) -> None:
        """Normals for the weights and initial vectors whose Z is read."""
        used = {rows.group.weight.name for name, rows in self.rows.items() if name in self._drawn}
        for weight in sorted(used):
            members, rank = self._ranks[weight]
            self.sources.append((("weight", weight), (len(members), rank)))
        for initial in self.netsor.initial:
            if initial.name in self._drawn:
                self.sources.append((("initial", initial.name), self.compiler.initials[initial.name].blocks.shape[:-1]))

    def _draw_gaussian(self, name: str, rows: Rows, normals: Normals) -> Open:
        """Z of the outputs of a MatMul."""
        group = rows.group
        block = normals.of(("weight", group.weight.name), np.searchsorted(rows.members, group.members))
        if group.separable:
            sizes = [group.sizes[axis] for axis in group.member_axes]
            xi = Open((BATCH, *group.member_axes, RANK), block.reshape(block.shape[0], *sizes, block.shape[-1]))
        else:
            spread = np.broadcast_to(block[:, :, None], (*block.shape[:2], group.columns, block.shape[-1]))
            value = group.unpack(spread)
            xi = Open((*value.axes[:-1], RANK), value.data)
        z = rows.apply(xi, RANK, {}, group.ranges)
        value = Open((*z.axes, COORDINATE), z.data[..., None])
        return self.over_positions(group.statement, value, self.local_ranges(name))

    def _draw_initial(self, initial: Initial, normals: Normals) -> Open:
        """Z of initial vectors."""
        family = self.netsor.families[initial.name]
        block = normals.of(("initial", initial.name), np.arange(self.compiler.initials[initial.name].blocks.shape[0]))
        data = initial_draws(self.compiler, initial, block[..., None])
        data = data[(slice(None), *place(self.demand[initial.name], family.ranges))]
        return Open((BATCH, *(str(k) for k in range(len(family.ranges))), COORDINATE), data)

    # -- evaluation ---------------------------------------------------------------------------------------------

    def draw(self, points: Array) -> dict[str, Open]:
        """Values of everything demanded that the points reach.

        Shapes    points (draws, dim) -> Open over BATCH, positions (over the members asked for) and, for vectors,
                  COORDINATE of length 1
        """
        return self.values(Points(self.sources, points))

    def scores_of(self, name: str, normals: Normals) -> Open:
        """All members demanded of a score."""
        return self._draw_score(name, self.demand[name], normals)

    def values(self, normals: Normals, later: Collection[str] = ()) -> dict[str, Open]:
        """Values of everything demanded, in the shapes of `draw`; scores named by `later` are drawn where they are
        read, as many at a time as a sum takes, and not kept."""
        values = {name: self.scores_of(name, normals) for name in self.scores if name not in later}
        if self.vectors:
            drawn = {name: rows for name, rows in self.rows.items() if name in self._drawn}
            values |= {name: self._draw_gaussian(name, rows, normals) for name, rows in drawn.items()}
            initials = [initial for initial in self.netsor.initial if initial.name in self._drawn]
            values |= {initial.name: self._draw_initial(initial, normals) for initial in initials}
        return self.derived(values, normals.draws, self.reader(values, normals), later)

    def derived(
        self, values: dict[str, Open], draws: int, reader: Any, later: Collection[str] = (),
        walk: Callable[[Expr, Scope], Open] = evaluate, average: Callable[[str], Open] | None = None,
    ) -> dict[str, Open]:  # fmt: skip
        """The values given, and what is made of them by nonlinear functions and averages, evaluated by `walk`."""
        pieces = self._pieces(draws)
        for step in self.compiler.recurrences.steps:
            name, statement = step.statement.target.name, step.statement
            if name in self.averages:
                values[name] = self._average(name, values, draws) if average is None else average(name)
            elif isinstance(statement, Nonlin) and name in self.demand:
                ranges = held_ranges(statement, self.demand[name], step.ranges(self.netsor.ranges))
                known = (r.name in {*later, name} or self._known(r, values) for r in statement.inputs)
                if ranges is not None and all(known):
                    self._make_room(step, values, draws)
                    result = walk(statement.expr, Scope(self.netsor, ranges, reader, pieces=pieces))
                    wrong = overflow(statement, result) if walk is evaluate else ""
                    if wrong:  # ranges over boxes may be infinite
                        raise NotFiniteError(f"a draw of the limit: {wrong}")
                    self._enter(step, self.over_positions(statement, result, ranges), ranges, values)
        return values

    @staticmethod
    def _at_once(step: Step, family: Family) -> bool:
        """Whether a step gives all members of its family at once."""
        return len(family.statements) == 1 and not step.fixed

    def _make_room(self, step: Step, values: dict[str, Open], draws: int) -> None:
        """An array for a family that is filled in parts; before the first it is read only beyond a boundary."""
        name = step.statement.target.name
        family = self.netsor.families[name]
        if name not in values and not self._at_once(step, family):
            trail = (1,) if family.kind == "vector" else ()
            shape = (draws, *(stop - start for start, stop in self.demand[name]), *trail)
            axes = (BATCH, *(str(k) for k in range(len(family.ranges))), *((COORDINATE,) if trail else ()))
            values[name] = Open(axes, np.zeros(shape))

    def _enter(self, step: Step, value: Open, ranges: Mapping[str, Range], values: dict[str, Open]) -> None:
        """Write what a step gives among the values: all members of its family, or some of them."""
        name = step.statement.target.name
        if self._at_once(step, self.netsor.families[name]):
            values[name] = value
            return
        filled = place(target_box(step.statement, ranges), self.demand[name])
        values[name].data[(slice(None), *filled)] = align(value, values[name].axes)

    @staticmethod
    def _pieces(draws: int) -> Any:
        """Cuts a sum into pieces of about CHUNK numbers, along an index that only products have."""

        def pieces(expr: Expr, indices: Sequence[str], ranges: Mapping[str, Range]) -> list[Mapping[str, Range]]:
            sizes = {name: ranges[name][1] - ranges[name][0] for name in indices_of(expr, ranges)}
            numbers = draws * math.prod(sizes.values())
            inside = {name for node in walk(expr) if isinstance(node, Reduction) for name in node.indices}
            free = [name for name in indices if name in sizes and name not in inside]
            if numbers <= CHUNK or not free:
                return [ranges]
            start, stop = ranges[free[0]]
            step = max(1, CHUNK * (stop - start) // numbers)
            return [{**ranges, free[0]: (low, min(low + step, stop))} for low in range(start, stop, step)]

        return pieces

    def _known(self, reference: Variable, values: Mapping[str, Open]) -> bool:
        family = self.netsor.families[reference.name]
        return reference.name in values or (family.kind == "scalar" and reference.name not in self.compiler.random)

    def _read(self, value: Open, reference: Variable, box: Box, ranges: Mapping[str, Range]) -> Open:
        """The members of a box that a reference reads."""
        starts = [start for start, _ in box]
        if reads_beyond(self.netsor, reference, ranges):
            trail = (COORDINATE,) if COORDINATE in value.axes else ()
            rules = self.netsor.families[reference.name].boundaries
            return take(value.data, (BATCH,), starts, reference.slots, trail, ranges, rules)
        slots = {str(k): slot for k, slot in enumerate(reference.slots)}
        return gather(value, slots, ranges, {str(k): start for k, start in enumerate(starts)})

    def reader(self, values: Mapping[str, Open], normals: Normals | None = None) -> Any:
        """How expressions read the values drawn (and averages, which are numbers); other scores are drawn now."""

        def read(reference: Variable, ranges: Mapping[str, Range]) -> Open:
            if reference.name in values:
                return self._read(values[reference.name], reference, self.demand[reference.name], ranges)
            if normals is not None and reference.name in self.scores:
                box = self._box(reference, ranges)
                return self._read(self._draw_score(reference.name, box, normals), reference, box, ranges)
            return self.compiler.scope(ranges, apart=False).variable(reference, ranges)

        return read

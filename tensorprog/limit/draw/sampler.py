"""Draws of (Z, p-ring): every Gaussian source is a block of standard normals, so that quasi-random points serve too.

    vectors W x over one weight member    Z = e_x . xi                     e_x.e_x' = sigma**2 E[Z^x Z^x']
    scores over one pair of members A, B  p-ring = e_x^T G_AB e_y          G_AB i.i.d., G_BA = G_AB^T

Both Isserlis terms of clause (iv) and all sharing of weights across scores follow from the second line.  Averages over
vectors that depend on scores are functions of p-ring, E[. | p-ring], and are worked out for each draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import TINY
from tensorprog.language.errors import NotFiniteError
from tensorprog.language.evaluate import (
    BATCH,
    COORDINATE,
    Open,
    Scope,
    affine_values,
    align,
    broadcast,
    contract,
    evaluate,
    gather,
    multiply,
    overflow,
    pieces_of_sums,
    take,
    union,
)
from tensorprog.language.expr import Affine, Expr, Reduction, Variable, indices_of, variables, walk
from tensorprog.language.ir import Dot, Family, Initial, MatMul, Netsor, Nonlin, Range, Statement
from tensorprog.language.linalg import psd_cholesky, times_triangle
from tensorprog.language.schedule import Step
from tensorprog.language.weight_members import Grouping, variances
from tensorprog.limit.draw.joint_scores import ROUNDING, JointScores, dependent
from tensorprog.limit.draw.layers import given_scalars
from tensorprog.limit.draw.normals import CHUNK, Normals, Points, Source
from tensorprog.limit.form.definitions import Box, held_ranges, place, reads_beyond, target_box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.memory import need
from tensorprog.limit.moment.compilable import refuse_cells
from tensorprog.limit.moment.indexed import difference
from tensorprog.limit.moment.numbers import EXACT, initial_draws
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import REPLICATE, IndexedValues

__all__ = ["Box", "Sampler", "members_read", "without_coordinates"]

Array = NDArray[Any]
RANK, RANK2 = "%rank", "%rank2"  # axes of factors; no index is called so
FACTORED = 5  # arrays of the size of second moments while they are factored
TOGETHER = 1 << 19  # second moments computed at once
NEAR = 4.0  # deviations of the squared length of normals within which draws are not far out
LARGE = 64  # rows of a triangle from which on a product with it is faster than one with any matrix
WORKED = 4  # arrays of the size of a run of normals, then of a piece of a sum, that are needed at once


def without_coordinates(value: Open, count: int) -> Array:
    """Draws of a variable without the axis of coordinates.

    Shapes    (count, *members)
    """
    data = value.data[..., 0] if COORDINATE in value.axes else value.data
    return np.broadcast_to(data, (count, *data.shape[1:]))


def members_read(netsor: Netsor, reference: Variable, ranges: Mapping[str, Range]) -> Box:
    """The members of a family that a reference reads while its indices run over ranges; at least one."""
    family = netsor.families[reference.name]
    box = []
    for slot, (start, stop), rule in zip(
        reference.slots, family.ranges, family.boundaries or [""] * len(reference.slots), strict=True
    ):
        low, high = slot.bounds(dict(ranges))
        if low < start or high >= stop:  # beyond a boundary
            low, high = (start, stop - 1) if rule == "wrap" else (min(max(x, start), stop - 1) for x in (low, high))
        box.append((low, high + 1))
    return tuple(box)


class Sampler:
    """Maps standard normals to the variables wanted, computing only the members that they need.

    `dim` normals make one draw: first those of the scores, then those of the vectors (none if not `vectors`).  Factors
    are found, and averages taken, in double precision, whatever the precision `dtype` of draws.
    """

    def __init__(
        self, recursion: NumericRecursion, wanted: Mapping[str, Box], vectors: bool = True, dtype: Any = np.float64
    ) -> None:
        self.recursion, self.netsor, self.dtype = recursion, recursion.netsor, np.dtype(dtype)
        self.wanted, self.vectors = dict(wanted), vectors
        self.demand: dict[str, Box] = {}
        self.scores: dict[str, Dot] = {}
        self.averages: dict[str, set[str]] = {}  # the random scalars that each reads
        self.inner = 0.0  # the largest error of the averages drawn so far
        self.errors: dict[str, Open] = {}  # of the averages drawn last, where they are more than rounding
        self.numbers_read: set[str] = set()  # averages that no score reaches
        self.largest: dict[str, float] = {}  # error of an average so far, at draws that are not far out
        self.sources: list[Source] = []
        self.rows: dict[str, Rows] = {}
        self._ranks: dict[str, tuple[NDArray[np.int64], int]] = {}  # members and rank of each weight's factor
        self._pairs: dict[tuple[str, str], NDArray[np.int64]] = {}
        self._drawn: set[str] = set()  # Gaussian families whose Z is read, not only their inner products
        for name, box in wanted.items():
            self._ask(name, box, vectors)
        groups = dependent(recursion, sorted(self.scores)) if recursion.summands else []
        self.joint = [JointScores(recursion, {name: self.demand[name] for name in group}) for group in groups]
        self._jointly = {name: k for k, group in enumerate(groups) for name in group}
        alone = [s for name, s in self.scores.items() if name not in self._jointly]
        self._factorise({r.name for s in alone for r in (s.left, s.right)})
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
                    piece = pieces_of_sums(draws, CHUNK)(node.arg, node.indices, ranges)[0]
                    sizes = (piece[name][1] - piece[name][0] for name in indices_of(node.arg, piece))
                    largest = max(largest, draws * math.prod(sizes))
        kept = sum(math.prod(b - a for a, b in box) for name, box in self.demand.items() if name not in later)
        return WORKED * max(run, largest) + 2 * draws * kept

    # -- what is needed -----------------------------------------------------------------------------------------

    def _ask(self, name: str, box: Box, vectors: bool, operand: bool = False) -> None:
        if not operand and self.recursion.parts.is_base(name):
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
        if isinstance(statement, Dot) and statement.scale == "1/n" and name in self.recursion.random:
            refuse_cells(self.recursion, [v.name for v in statement.inputs])
            scalars = list(self._scalars(statement, new))
            self.averages[name] = {scalar for scalar, _ in scalars}
            for scalar, needed in scalars:
                self._ask(scalar, needed, vectors)
            return
        if isinstance(statement, Dot) and name in self.recursion.random:
            if not self.recursion.expanded:
                return  # given, not drawn
            self.scores[name] = statement
            if name in self.recursion.summands and not all(
                map(self.recursion.parts.is_base, (statement.left.name, statement.right.name))
            ):
                return  # drawn by its covariance
        if isinstance(statement, MatMul):  # of a vector that no score reaches: else there are layers
            return
        if isinstance(statement, Dot) and name not in self.recursion.random:
            return
        for position in family.statements:
            statement = self.netsor.body[position]
            ranges = held_ranges(statement, new, self.netsor.ranges)
            if ranges is None:
                continue
            for reference in statement.inputs:
                kind = self.netsor.families[reference.name].kind
                unread = isinstance(statement, Nonlin) and kind == "vector" and not vectors
                if unread and reference.name not in self.recursion.random:
                    continue  # no score is reached through it
                read = members_read(self.netsor, reference, ranges)
                self._ask(reference.name, read, vectors, isinstance(statement, Dot))

    def _scalars(self, statement: Dot, box: Box) -> Iterator[tuple[str, Box]]:
        """The random scalars that an average reads, with the members that are; all of them in recurrences."""
        parts, whole = self.recursion.parts, bool(self.recursion.recurrences.loops)
        held = held_ranges(statement, box, self.netsor.ranges)
        assert held is not None  # members of the family
        for operand in statement.inputs:
            if parts.is_base(operand.name):
                continue
            read, spans = list(variables(parts.inlined(operand.name))), [slot.span(held) for slot in operand.slots]
            ranges = parts.every_range() | {str(k): span for k, span in enumerate(spans)}
            for reference in read:
                family = self.netsor.families[reference.name]
                if family.kind == "scalar" and reference.name in self.recursion.random:
                    yield reference.name, family.ranges if whole else members_read(self.netsor, reference, ranges)

    def _average(self, name: str, values: Mapping[str, Open], draws: int) -> Open:
        """An average given the scalars that it reads, for every draw; its errors, with what theirs do, are kept."""
        value, error = self._given_scalars(name, values, draws)
        for scalar in sorted(self.averages[name] & self.errors.keys()):
            moved = Open(values[scalar].axes, values[scalar].data + self.errors[scalar].data)
            there, _ = self._given_scalars(name, {**values, scalar: moved}, draws)
            error = error + np.abs(there - value)
        worst = float(np.max(error, initial=0.0))
        self.inner = max(self.inner, worst)
        axes = (BATCH, *(str(k) for k in range(len(self.demand[name]))))
        self.errors.pop(name, None)
        if worst > EXACT * np.max(np.abs(value), initial=0.0):
            self.errors[name] = Open(axes, error)
        return Open(axes, value.astype(self.dtype, copy=False))

    def _given_scalars(self, name: str, values: Mapping[str, Open], draws: int) -> tuple[Array, Array]:
        """An average and its errors.

        Shapes    (draws, *members), twice
        """
        given = {scalar: (Open(values[scalar].axes, values[scalar].data.astype(np.float64, copy=False)), box)
                 for scalar, box in self.demand.items() if scalar in self.averages[name]}  # fmt: skip
        axes = tuple(str(k) for k in range(len(self.demand[name])))
        sizes = {axis: stop - start for axis, (start, stop) in zip(axes, self.demand[name], strict=True)}
        found = []
        for part, moments in given_scalars(self.recursion, given, draws):
            value = moments.average_in(name, self.demand[name])
            sizes[REPLICATE] = part.stop - part.start
            found.append([broadcast(each, (REPLICATE, *axes), sizes) for each in (value.value, value.error)])
        values_, errors = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return values_, errors

    def displaced(
        self, values: Mapping[str, Open], draws: int
    ) -> Iterator[tuple[tuple[str, int], dict[str, Open], float]]:
        """The values drawn last with one family of averages after the other moved by its errors.

        First all members go up, or down, then some of them up and others down, as it may be their differences that are
        read.  Opposite ways have one key: the larger effect counts, as functions may change to one side only.  With
        each the largest error so far over the largest of these, as more draws at once may have larger errors.
        Then, in the same way, averages that are numbers, and what is drawn, by the errors of their second moments.
        """
        known = {other: value for other, value in values.items() if other in self.scores or other in self._drawn}
        for name, error in list(self.errors.items()):  # other averages count their effect
            for number, sign in _signs(error.data.shape[1:]):
                averages = {**values, name: Open(error.axes, values[name].data + sign * error.data)}
                moved = dict(known)
                self.derived(moved, draws, self.reader(moved), average=averages.__getitem__)
                yield (name, number), moved, self.largest[name] / float(error.data.max())
        for name in sorted(self.numbers_read):
            axes = (BATCH, *position_names(self.netsor, name))
            sizes = dict(zip(axes, (draws, *self.netsor.families[name].shape), strict=True))
            average = self.recursion.average(name)
            value, wrong = (broadcast(part, axes, sizes) for part in (average.value, average.error))
            if not np.any(wrong > EXACT * np.abs(value)):
                continue
            for number, sign in _signs(value.shape[1:]):
                moved = known | {name: Open(axes, value + sign * wrong)}
                yield (name, number), self.derived(moved, draws, self.reader(moved), average=values.__getitem__), 1.0
        for name, rows in self.rows.items():
            if np.any(rows.error.data > EXACT):
                for number, sign in _signs(rows.error.data.shape):
                    grown = Open(rows.error.axes, (1 + rows.error.data) ** (sign / 2))
                    moved = {other: self._grown(other, drawn, name, grown) for other, drawn in known.items()}
                    yield (name, number), self.derived(moved, draws, self.reader(moved)), 1.0

        for name, k in self._jointly.items():
            off = self.joint[k].error(name)
            if np.any(off.data > EXACT):
                for number, sign in _signs(off.data.shape[1:]):
                    grown = Open(off.axes, known[name].data * (1 + off.data) ** (sign / 2))
                    moved = {**known, name: grown}
                    yield (name, number), self.derived(moved, draws, self.reader(moved)), 1.0

    def _grown(self, name: str, value: Open, family: str, by: Open) -> Open:
        """Draws of a score, or of a Gaussian family, with the rows of one family times numbers over its indices."""
        rows = self.rows[family]
        if name == family:
            by, ranges = Open((*by.axes, COORDINATE), by.data[..., None]), self.local_ranges(name)
            return Open(value.axes, value.data * self.over_positions(rows.group.statement, by, ranges).data)
        score = self.scores.get(name)
        for reference in () if score is None else (score.left, score.right):
            if reference.name == family:
                ranges = self.local_ranges(name)
                picked = gather(by, self._given(rows, reference), ranges, starts_of(rows.group.ranges))
                value = Open(value.axes, value.data * self.over_positions(self.scores[name], picked, ranges).data)
        return value

    @property
    def rounding(self) -> float:
        """What rounding of the second moments of vectors does to those of their products, relatively."""
        errors = [rows.error.data for rows in self.rows.values()]
        errors += [self.joint[k].error(name).data for name, k in self._jointly.items()]
        return max((float(np.max(error, initial=0.0, where=error <= EXACT)) for error in errors), default=0.0)

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
            members, rank, rows = factor_rows(self.recursion, groups)
            self._ranks[weight] = members, rank
            self.rows |= {name: each.rounded(self.dtype) for name, each in rows.items()}

    # -- scores -------------------------------------------------------------------------------------------------

    def _operand(self, name: str, side: str, ranges: Mapping[str, Range]) -> tuple[Variable, Rows, Open]:
        """Reference, factor rows, and weight member number (over the score's indices) of one operand."""
        reference: Variable = getattr(self.scores[name], side)
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
        """One block of normals for each unordered pair of weight members that meet in a score, or of joint scores."""
        self.sources += [(("scores", str(k)), joint.shape) for k, joint in enumerate(self.joint)]
        for name in (name for name in self.scores if name not in self._jointly):
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
        if name in self._jointly:
            joint = self.joint[self._jointly[name]]
            block = normals.of(("scores", str(self._jointly[name])), np.arange(joint.shape[0]))
            found = joint.draws(name, block)
            return Open(found.axes, found.data[(slice(None), *place(box, self.demand[name]))])
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
                shape = self.recursion.initials[initial.name].shape
                self.sources.append((("initial", initial.name), shape))

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
        block = normals.of(("initial", initial.name), np.arange(self.recursion.initials[initial.name].shape[0]))
        data = initial_draws(self.recursion, initial, block[..., None]).astype(self.dtype, copy=False)
        data = data[(slice(None), *place(self.demand[initial.name], family.ranges))]
        return Open((BATCH, *(str(k) for k in range(len(family.ranges))), COORDINATE), data)

    # -- evaluation ---------------------------------------------------------------------------------------------

    def draw(self, points: Array) -> dict[str, Open]:
        """Values of everything demanded that the points reach.

        Shapes    points (draws, dim) -> Open over BATCH, positions (over the members asked for) and, for vectors,
                  COORDINATE of length 1
        """
        values = self.values(Points(self.sources, points))
        near = np.square(points).sum(axis=1) <= self.dim + NEAR * math.sqrt(2 * self.dim) + NEAR
        for name, error in self.errors.items():
            worst = float(error.data[near[: len(error.data)]].max(initial=0.0))
            self.largest[name] = max(self.largest.get(name, 0.0), worst)
        return values

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
        pieces = pieces_of_sums(draws, CHUNK)
        for step in self.recursion.recurrences.steps:
            name, statement = step.statement.target.name, step.statement
            if name in self.averages:
                values[name] = self._average(name, values, draws) if average is None else average(name)
            elif isinstance(statement, Nonlin) and name in self.demand:
                ranges = held_ranges(statement, self.demand[name], step.ranges(self.netsor.ranges))
                known = (r.name in {*later, name} or self._known(r, values) for r in statement.inputs)
                if ranges is not None and all(known):
                    self._make_room(step, values, draws)
                    result = walk(statement.expr, Scope(self.netsor, ranges, reader, self.dtype, pieces))
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
            values[name] = Open(axes, np.zeros(shape, self.dtype))

    def _enter(self, step: Step, value: Open, ranges: Mapping[str, Range], values: dict[str, Open]) -> None:
        """Write what a step gives among the values: all members of its family, or some of them."""
        name = step.statement.target.name
        if self._at_once(step, self.netsor.families[name]):
            values[name] = value
            return
        filled = place(target_box(step.statement, ranges), self.demand[name])
        values[name].data[(slice(None), *filled)] = align(value, values[name].axes)

    def _known(self, reference: Variable, values: Mapping[str, Open]) -> bool:
        family = self.netsor.families[reference.name]
        return reference.name in values or (family.kind == "scalar" and reference.name not in self.recursion.random)

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
                own = self.netsor.families[reference.name].ranges  # of averages that are numbers, which are moved whole
                box = own if reference.name in self.numbers_read else self.demand[reference.name]
                return self._read(values[reference.name], reference, box, ranges)
            if normals is not None and reference.name in self.scores:
                box = members_read(self.netsor, reference, ranges)
                return self._read(self._draw_score(reference.name, box, normals), reference, box, ranges)
            self.numbers_read.add(reference.name)
            number = self.recursion.scope(ranges, apart=False).variable(reference, ranges)
            return Open(number.axes, number.data.astype(self.dtype, copy=False))

        return read


def _signs(shape: tuple[int, ...]) -> Iterator[tuple[int, Array]]:
    """Up for all members; up for some of them, down for others, where there are several; and both the other way."""
    mixed = [np.random.default_rng(0).choice([-1.0, 1.0], shape)] if math.prod(shape) > 1 else []
    for number, sign in enumerate([np.ones(()), *mixed]):
        yield from ((number, sign), (number, -sign))


# ---- factor rows of MatMul families: vectors e_g with e_g.e_g' = Cov(Z^g, Z^g'), for each weight member --------------


@dataclass(frozen=True)
class Rows:
    """Factor rows e_g of a MatMul family over the indices of its left side.

    Either `values` has the axis RANK, or the vectors are orthogonal: then e_g is `values` times the unit vector number
    `place`, an affine form of the indices.
    """

    values: Open
    place: Affine | None
    group: Grouping
    members: NDArray[np.int64]  # all members of the weight that have a block of normals
    error: Open  # of the second moments of the vectors multiplied, each beside its own size

    @cached_property
    def lower(self) -> bool:
        """Whether all rows together are a lower triangle, large enough to be multiplied as one."""
        data = self.values.data
        return data.ndim == 2 and LARGE <= len(data) == data.shape[1] and not np.triu(data, 1).any()

    def rounded(self, dtype: Any) -> Rows:
        """The same with numbers of another precision."""
        return replace(self, values=Open(self.values.axes, self.values.data.astype(dtype, copy=False)))

    def apply(self, normals: Open, rank: str, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> Open:
        """Contract normals over the axis `rank` with the rows read at affine forms of other indices."""
        starts = starts_of(self.group.ranges)
        values = gather(self.values, names, ranges, starts)
        if self.place is None:
            values = Open(tuple(rank if axis == RANK else axis for axis in values.axes), values.data)
            whole = self.lower and _same(values.data, self.values.data)
            if whole and rank in normals.axes[-2:] and values.axes[0] not in normals.axes:
                at = normals.axes.index(rank)
                data = times_triangle(normals.data, values.data, right=at == len(normals.axes) - 1)
                return Open((*normals.axes[:at], values.axes[0], *normals.axes[at + 1 :]), data)
            return contract(values, normals, [rank])
        picked = gather(normals, {rank: self.place.at(names)}, ranges, {rank: 0} | starts_of(ranges))
        return multiply(values, picked)


def _same(view: Array, whole: Array) -> bool:
    """Whether a view of an array is all of it, in its order."""
    return view.shape == whole.shape and view.strides == whole.strides and np.may_share_memory(view, whole)


def starts_of(ranges: Mapping[str, Range]) -> dict[str, int]:
    """First value of every index."""
    return {name: span[0] for name, span in ranges.items()}


def place_of(group: Grouping, offset: int) -> Affine:
    """Number of a column as an affine form of the column indices, in C order."""
    terms, stride = [], 1
    for name in reversed(group.column_axes):
        terms.append((name, stride))
        offset -= stride * group.ranges[name][0]
        stride *= group.sizes[name]
    return Affine(tuple(terms), offset)


def spread(part: Array, group: Grouping) -> Open:
    """Rows (members or 1, columns, rank) over the indices of the left side."""
    if group.separable and part.shape[0] == 1:
        sizes = [group.sizes[name] for name in group.column_axes]
        return Open((*group.column_axes, RANK), part.reshape(*sizes, part.shape[-1]))
    full = np.broadcast_to(part, (len(group.members), *part.shape[1:]))
    value = group.unpack(full[None])
    return Open((*value.axes[1:-1], RANK), value.data[0])


def factor_rows(
    recursion: NumericRecursion, groups: Sequence[Grouping]
) -> tuple[NDArray[np.int64], int, dict[str, Rows]]:
    """Factor the second moments of all vectors that one weight family multiplies: its members, rank, rows by family.

    One factor serves all members of the weight where their vectors have the same moments.
    """
    members = np.unique(np.concatenate([g.members for g in groups]))
    varying = any(_varies(recursion, g, other) for g in groups for other in groups)
    whole = all(np.array_equal(g.members, members) for g in groups)
    shared = whole and not varying
    offsets = np.cumsum([0, *(g.columns for g in groups)])
    rows, errors, orthogonal = _factor(recursion, groups, offsets, members[:1] if shared else members)
    if whole and len(rows) > 1 and (not rows.strides[0] or np.all(rows == rows[:1])):
        rows = rows[:1]
    sigma = np.sqrt(variances(recursion.netsor, groups[0].weight.name)[members])
    rows = rows * (sigma[:1] if np.all(sigma == sigma[:1]) else sigma)[:, None, None]
    result = {}
    for g, start, stop in zip(groups, offsets, offsets[1:], strict=False):
        part = rows[:, start:stop]
        values = spread(part[np.searchsorted(members, g.members)] if len(rows) > 1 else part, g)
        column: Affine | None = None
        if orthogonal:
            values, column = Open(values.axes[:-1], values.data[..., 0]), place_of(g, int(start))
        wrong = errors[:, start:stop, None]
        error = spread(wrong[np.searchsorted(members, g.members)] if len(errors) > 1 else wrong, g)
        result[g.statement.target.name] = Rows(values, column, g, members, Open(error.axes[:-1], error.data[..., 0]))
    return members, int(offsets[-1]), result


def _factor(
    recursion: NumericRecursion, groups: Sequence[Grouping], offsets: NDArray[np.int64], members: NDArray[np.int64]
) -> tuple[Array, Array, bool]:
    """Rows of the factor of the second moments of all columns, or their lengths where the vectors are orthogonal.

    Shapes    (members, columns, columns), or (members, columns, 1); relative errors (members, columns), see `_moments`;
              and whether they are orthogonal
    Raises    MemoryLimitError
    """
    if _apart(recursion, groups):  # nothing but the diagonal is ever formed
        lengths, errors = _moments(recursion, groups, offsets, members, diagonal=True)
        return np.sqrt(np.maximum(lengths, 0))[..., None], errors, True
    names = ", ".join(dict.fromkeys(g.statement.vector.name for g in groups))
    need(
        FACTORED * len(members) * int(offsets[-1]) ** 2,
        f"factoring the second moments of {offsets[-1]} vectors ({names}) for {len(members)} members of "
        f"{groups[0].weight.name}",
    )
    gram, errors = _moments(recursion, groups, offsets, members)
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1)
    if all(g.separable for g in groups) and np.count_nonzero(gram) == np.count_nonzero(diagonal):
        return np.sqrt(np.maximum(diagonal, 0))[..., None], errors, True
    if len(gram) > 1 and np.all(gram == gram[:1]):
        gram = gram[:1]
    factor = psd_cholesky(gram)
    return np.broadcast_to(factor, (len(members), *factor.shape[1:])), errors, False


def _apart(recursion: NumericRecursion, groups: Sequence[Grouping]) -> bool:
    """Whether the structure of second moments says that all columns of a member are orthogonal."""
    for k, first in enumerate(groups):
        if not first.separable or reads_beyond(recursion.netsor, first.statement.vector, first.ranges):
            return False
        for second in groups[: k + 1]:
            moment = _at_columns(recursion, first, second)
            if moment is None or (moment.terms and first is not second):
                return False
            same = {difference(Affine.index(name), Affine.index(f"{name}_")) for name in first.column_axes}
            if not all(same <= term.equations for term in moment.terms):
                return False
    return True


def _at_columns(recursion: NumericRecursion, first: Grouping, second: Grouping) -> IndexedValues | None:
    """Second moments of the columns of two families at the same member of their weight, second copies for the second;
    None where the member is not read in the same way."""
    names = {name: Affine.index(f"{name}_") for name in second.axes}
    for a, b in zip(first.statement.weight.slots, second.statement.weight.slots, strict=True):  # the same member
        if bool(a.terms) != bool(b.terms):
            return None
        for name, _ in b.terms:
            names[name] = Affine(a.terms, a.offset - b.offset)
    slots = {str(k): slot for k, slot in enumerate(first.statement.vector.slots)}
    slots |= {f"{k}_": slot.at(names) for k, slot in enumerate(second.statement.vector.slots)}
    ranges = {name: first.ranges[name] for name in first.axes}
    ranges |= {f"{name}_": second.ranges[name] for name in second.column_axes}
    return recursion.second(first.statement.vector.name, second.statement.vector.name).read(slots, ranges)


def _varies(recursion: NumericRecursion, first: Grouping, second: Grouping) -> bool:
    """Whether the moments of the vectors of two families may differ from one member of their weight to another."""
    if not (first.separable and second.separable):
        return True
    if any(reads_beyond(recursion.netsor, group.statement.vector, group.ranges) for group in (first, second)):
        return True
    if not (first.reads_members or second.reads_members):
        return False
    moment = _at_columns(recursion, first, second)
    if moment is None:
        return True
    used = {n for t in moment.terms for n in (*t.value.axes, *(n for e in t.equations for n in e.indices))}
    return bool(used & set(first.member_axes))


def _moments(
    recursion: NumericRecursion, groups: Sequence[Grouping], offsets: NDArray[np.int64], members: NDArray[np.int64],
    diagonal: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """Second moments of all columns, member by member, some rows at a time; or of each column with itself.

    With the error of each column: the largest of its moments, beside the lengths of both columns.

    Shapes    (members, columns, columns), or (members, columns); errors (members, columns)
    """
    shape = len(members), offsets[-1]
    lengths = errors = np.zeros(shape)
    if not diagonal:
        lengths, errors = _moments(recursion, groups, offsets, members, diagonal=True)
        lengths = np.maximum(lengths, 0) * (1 + errors)
    level = ROUNDING * lengths.max(axis=1, initial=0.0)  # that of the largest column, which all may have
    found = [_positions(g, recursion.netsor.families[g.statement.vector.name]) for g in groups]
    result = np.zeros(shape if diagonal else (*shape, offsets[-1]))
    for a, g in enumerate(groups):
        for b, other in enumerate(groups):
            common = np.intersect1d(np.intersect1d(members, g.members), other.members)
            if not len(common) or (diagonal and a != b):
                continue
            moment = recursion.second(g.statement.vector.name, other.statement.vector.name)
            left, right = (
                [p[np.searchsorted(group.members, common)] if len(p) > 1 else p for p in found[k][0]]
                for k, group in ((a, g), (b, other))
            )
            rows = np.searchsorted(members, common)[:, None, None]
            if diagonal:
                at = {str(k): p for k, p in enumerate(left)} | {f"{k}_": p for k, p in enumerate(right)}
                read, place = moment.at(at), np.arange(offsets[a], offsets[a + 1])
                result[rows[:, 0], place] = read.value
                errors[rows[:, 0], place] = read.error / np.maximum(read.value, TINY)
                continue
            step = max(1, TOGETHER // (len(common) * other.columns))
            for start in range(0, g.columns, step):
                part = slice(start, min(start + step, g.columns))
                at = {str(k): p[:, part, None] for k, p in enumerate(left)}
                at |= {f"{k}_": p[:, None, :] for k, p in enumerate(right)}
                place = np.arange(offsets[a] + part.start, offsets[a] + part.stop)[:, None]
                read, across = moment.at(at), np.arange(offsets[b], offsets[b + 1])
                result[rows, place, across] = read.value
                size = np.sqrt(np.maximum(lengths[rows, place] * lengths[rows, across], TINY))
                own = np.where(read.error > level[rows], read.error / size, 0.0).max(axis=-1)
                errors[rows[:, 0], place[:, 0]] = np.maximum(errors[rows[:, 0], place[:, 0]], own)
    if diagonal:
        return result, errors
    for g, (_, exists), start, stop in zip(groups, found, offsets, offsets[1:], strict=False):
        if not exists.all():
            place = np.flatnonzero(np.isin(members, g.members))
            chosen = exists[np.searchsorted(g.members, members[place])] if len(exists) > 1 else exists
            result[place, start:stop] *= chosen[..., None]
            result[place, :, start:stop] *= chosen[:, None, :]
    return result, errors


def _positions(group: Grouping, family: Family) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Index values of the vectors that are multiplied, one array for each slot, and which there are.

    Shapes    each (members or 1, columns)
    """
    arrays = []
    exists = np.ones((1, 1), dtype=bool) if group.separable else group.exists
    rules = family.boundaries or ("",) * len(family.ranges)
    for slot, (start, stop), rule in zip(group.statement.vector.slots, family.ranges, rules, strict=True):
        values = affine_values(slot, group.ranges)
        packed = group.pack(Open((*values.axes, COORDINATE), values.data[..., None]))[0, :, :, 0]
        if not group.separable:  # padded columns read some member that exists; their products are dropped
            packed = np.where(group.exists, packed, slot.bounds(group.ranges)[0])
        if rule == "wrap":
            packed = start + (packed - start) % (stop - start)
        exists = exists & (packed >= start) & (packed < stop)
        arrays.append(np.clip(packed, start, stop - 1))
    shape = np.broadcast_shapes((1, group.columns), exists.shape, *(a.shape for a in arrays))
    return [np.broadcast_to(a, shape) for a in arrays], np.broadcast_to(exists, shape)

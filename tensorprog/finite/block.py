"""One block of networks: the plan's ops in order, on arrays over (network, members, coordinates).

Weights are matrices, exact by definition, or there are only products without the matrix.
Let Q be an orthonormal basis of the inputs so far.  W is seen only through Xi = W Q^T n_in**0.5 / sigma, which has
i.i.d. standard normal entries.  A later input x is C Q plus a residual of length r, so W x is sigma n_in**-0.5 times
C Xi plus r times a fresh normal vector, which joins Xi as the residual's direction joins Q: the same law at every
finite n, at the cost of O(n k) numbers for k products.  Inputs and outputs may as well be given by coordinates in a
frame (`frames`): inner products and combinations are all that is used.

Products with the transpose have a basis S of their own inputs, and H of normals.  They fix what W makes along S: for a
new direction q, the vector of normals is q H^T S plus a fresh vector without its part along S (Bolthausen 2014).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.normals import gaussian_vectors, standard_normal
from tensorprog.finite.plan import History, Job, Op
from tensorprog.language.errors import ProgramError
from tensorprog.language.evaluate import (
    BATCH,
    COORDINATE,
    Open,
    Scope,
    align,
    broadcast,
    contract,
    elementwise,
    evaluate,
    overflow,
    pieces_of_sums,
    take,
    union,
)
from tensorprog.language.expr import Expr, Variable, is_call
from tensorprog.language.ir import Dot, Initial, Nonlin, Range
from tensorprog.language.linalg import pivoted_cholesky, psd_cholesky
from tensorprog.language.memory import keep_freed_memory
from tensorprog.language.schedule import Step
from tensorprog.language.weight_members import Grouping

__all__ = ["Lazy", "draw_blocks"]

Array = NDArray[Any]
SUMMED = 1 << 18  # numbers of factors of a sum that are worked out at once, about
BUFFER = 512  # numbers in numpy's buffers: shorter rows are copied where a product has one number for each row
FEW_ROWS = 32  # up to which a product of halves is faster than a symmetric one
FACTOR = "%"  # the axis that a factor of the inputs' Gram matrix shares with fresh vectors


def draw_blocks(job: Job, blocks: Sequence[int], watched: bool = False) -> list[dict[str, Array]]:
    """Reported arrays of the blocks numbered, in order; what a worker runs.

    Raises    ProgramError, if the values of every statement are `watched`, with the first that has others than numbers
    """
    keep_freed_memory()
    return [_Networks(job, number, watched).draw() for number in blocks]


class _Networks:
    """The networks of a block, and what is known of them: families by name, Gram matrices and factors by key.

    Shapes    families (batch, *members, coordinates) for vectors, (batch, *members) for scalars
    """

    def __init__(self, job: Job, number: int, watched: bool) -> None:
        self.watched = watched
        self.job, self.plan, self.netsor, self.count = job, job.plan, job.plan.netsor, job.block
        self.generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(job.seed, spawn_key=(number,))))
        self.values: dict[str, Any] = {}
        self.matrices: dict[str, Array] = {}  # of weights that are still to be used
        self.drops: tuple[str, ...] = ()  # families and factors that the op under way is the last to read
        self.lazy = Lazy()

    @np.errstate(all="ignore")  # what is not finite in the end is told with its statement
    def draw(self) -> dict[str, Array]:
        before = np.setbufsize(BUFFER)  # products of vectors of 1,024 coordinates and scalars take a third of the time
        try:
            for op, drops in zip(self.plan.ops, self.job.drops, strict=True):
                self.drops = drops
                getattr(self, op.kind)(op)
                for name in drops:
                    self.values.pop(name, None)
            return {name: self.reported(name) for name in self.plan.kept}  # and forgotten, one after the other
        finally:
            np.setbufsize(before)  # which numpy 1 would keep

    def reported(self, name: str) -> Array:
        """What a run gives of a family, as an array that keeps no larger one alive; the family is forgotten."""
        value: Array = self.values.pop(name)
        if self.netsor.families[name].kind == "vector":
            value = value[..., : self.plan.coordinates]
            value = value[..., 0] if self.plan.coordinates == 1 else np.moveaxis(value, -1, 1)
        whole = value if value.base is None else value.base
        copied = not value.flags.c_contiguous or whole.nbytes > value.nbytes
        return value.copy(order="C") if copied else value

    def initial(self, op: Op) -> None:
        initial = self.netsor.initial[op.at]
        if initial.grid:
            self.values[initial.name] = self.grid(initial)
            return
        law = self.plan.initials[initial.name]
        family = self.netsor.families[initial.name]
        sizes = dict(zip(initial.indices, family.shape, strict=True))
        normals = gaussian_vectors(
            self.generator, self.plan.recipes[initial.name], self.count,
            {name: sizes[name] for name in law.independent}, law.shape[-1], self.job.dtype,
        )  # fmt: skip
        factor = law.factor.astype(self.job.dtype)
        drawn = np.matmul(factor, normals) if factor.shape[-1] > 1 else np.multiply(factor, normals, out=normals)
        joint = [sizes[name] for name in law.joint]
        axes = (BATCH, *law.independent, *law.joint, COORDINATE)
        value = Open(axes, drawn.reshape(*drawn.shape[: 1 + len(law.independent)], *joint, drawn.shape[-1]))
        array = align(value, (BATCH, *initial.indices, COORDINATE))
        if law.mean.any():
            array = array + law.mean[..., None].astype(self.job.dtype) * self.ones(initial.name)
        self.values[initial.name] = array

    def grid(self, initial: Initial) -> Array:
        """The coordinate vector (a + 1/2)/n of a width.

        Where reported vectors read it coordinate by coordinate, the coordinates of each network begin anywhere and go
        around: those reported are as good as any, and nothing else changes in law.

        Shapes    (batch, coordinates)
        """
        width, length = self.plan.widths[initial.width], self.plan.lengths[initial.name]
        numbers = np.arange(length)[None]
        if initial.name in self.plan.asked.seen:
            numbers = (numbers + self.generator.integers(width, size=(self.count, 1))) % width
        return np.array(np.broadcast_to((numbers + 0.5) / width, (self.count, length)), self.job.dtype)

    def ones(self, name: str) -> Array:
        """The constant vector in the coordinates of a family."""
        frame = self.plan.frames.get(name)
        if frame is None:
            return np.ones(self.plan.lengths[name], self.job.dtype)
        result = np.zeros(frame.length, self.job.dtype)
        result[: frame.seen] = 1
        if frame.ones is not None:
            result[frame.ones] = np.sqrt(self.plan.widths[self.netsor.families[name].width] - frame.seen)
        return result

    def read(self, reference: Variable, ranges: Mapping[str, Range], coordinates: int) -> Open:
        family = self.netsor.families[reference.name]
        array = self.room(reference.name)
        trail: tuple[str, ...] = ()
        if family.kind == "vector":
            array, trail = array[..., :coordinates], (COORDINATE,)
        return take(array, (BATCH,), [a for a, _ in family.ranges], reference.slots, trail, ranges, family.boundaries)

    def inputs(self, op: Op) -> tuple[Grouping, Open]:
        group = self.plan.group(op)
        vector = group.statement.vector
        return group, self.read(vector, group.ranges, self.plan.lengths[vector.name])

    def gram(self, op: Op) -> None:
        group, vectors = self.inputs(op)
        self.values[op.writes] = inner_products(group.pack(vectors))

    def factor(self, op: Op) -> None:
        """L with L L^T the Gram matrix of the inputs, over batch, weight members if they differ, columns and FACTOR."""
        group = self.plan.group(op)
        if op.key in self.plan.lengths:  # coordinates are a factor already
            _, vectors = self.inputs(op)
            if group.separable:
                self.values[op.writes] = Open((*_renamed(vectors.axes[:-1], group, back=False), FACTOR), vectors.data)
            else:
                self.values[op.writes] = group.pack(vectors)
            return
        packed = psd_cholesky(self.values[op.key]).astype(self.job.dtype, copy=False)
        if not group.separable:
            self.values[op.writes] = packed
            return
        names = (*(group.member_axes if group.reads_members else ()), *group.column_axes)
        data = packed.reshape(self.count, *(group.sizes[name] for name in names), packed.shape[-1])
        self.values[op.writes] = Open((BATCH, *_renamed(names, group, back=False), FACTOR), data)

    def matmul(self, op: Op) -> None:
        group = self.plan.group(op)
        scale = self.job.deviations[group.weight.name][group.members].astype(self.job.dtype)
        if not op.key:
            product = self.with_history(op, group, scale)
        elif group.separable:
            product = self.without_history(op, group, scale)
        else:
            packed = np.matmul(self.values[op.key], self.packed(op, group))
            product = group.unpack(packed * scale[:, None, None])
        self.store(self.plan.order[op.at], product)

    def fresh(self, op: Op, members: Mapping[str, int], columns: int) -> Array:
        recipe = self.plan.recipes[op.at]
        return gaussian_vectors(self.generator, recipe, self.count, members, columns, self.job.dtype)

    def packed(self, op: Op, group: Grouping) -> Array:
        columns = self.plan.fresh[op.at]
        members = (
            {name: group.sizes[name] for name in group.member_axes} if group.separable else {"": len(group.members)}
        )
        drawn = self.fresh(op, members, columns)
        return drawn.reshape(self.count, len(group.members), columns, drawn.shape[-1])

    def with_history(self, op: Op, group: Grouping, scale: Array) -> Open:
        vectors = group.pack(self.inputs(op)[1])
        place = self.plan.histories[op.at]
        if self.plan.method == "dense":
            return group.unpack(self.by_matrix(group, vectors, scale, place.last))
        return group.unpack(self.lazy.matmul(group, vectors, scale, self.packed(op, group), place))

    def by_matrix(self, group: Grouping, vectors: Array, scale: Array, last: bool) -> Array:
        """Packed vectors times their weights, drawn when first used and dropped after their last use."""
        name, transposed, members = group.weight.name, group.statement.transposed, math.prod(group.weight.shape)
        if name not in self.matrices:
            sides = self.plan.lengths[group.statement.target.name], vectors.shape[-1]
            self.matrices[name] = np.empty((self.count, members, *sides[:: -1 if transposed else 1]), self.job.dtype)
            standard_normal(self.generator, self.matrices[name])
        weight = self.matrices.pop(name) if last else self.matrices[name]
        if not np.array_equal(group.members, np.arange(members)):
            weight = weight[:, group.members]
        return np.asarray(np.matmul(vectors, weight if transposed else weight.swapaxes(-1, -2)) * scale[:, None, None])

    def without_history(self, op: Op, group: Grouping, scale: Array) -> Open:
        """The factor of the inputs times fresh vectors."""
        named: Open = self.values[op.key]
        factor = Open(_renamed(named.axes, group, back=True), named.data)
        members = {name: group.sizes[name] for name in group.member_axes}
        columns = self.plan.fresh[op.at]
        if self.plan.recipes[op.at].plain and not any(name in factor.axes for name in members):
            # any order serves independent numbers: this one makes one matrix product of a network
            drawn = self.fresh(op, {}, columns * len(scale))
            axes = (BATCH, FACTOR, *members, COORDINATE)
            fresh = Open(axes, drawn.reshape(self.count, columns, *members.values(), drawn.shape[-1]))
        else:
            axes = (BATCH, *members, FACTOR, COORDINATE)
            fresh = Open(axes, self.fresh(op, members, columns))
        uniform = bool((scale == scale[0]).all())
        scales = Open((), scale[0]) if uniform else Open(tuple(members), scale.reshape([*members.values()]))
        factor = elementwise(np.multiply, factor, scales)
        if columns == 1 and not group.column_axes:  # in place
            np.multiply(fresh.data, align(factor, fresh.axes), out=fresh.data)
            return Open(tuple(name for name in axes if name != FACTOR), fresh.data.squeeze(axes.index(FACTOR)))
        return contract(factor, fresh, (FACTOR,))

    def dot(self, op: Op) -> None:
        step = self.plan.order[op.at]
        statement = step.statement
        assert isinstance(statement, Dot)
        ranges = step.ranges(self.netsor.ranges)
        width = self.plan.widths[self.netsor.families[statement.left.name].width]
        left = self.read(statement.left, ranges, self.plan.lengths[statement.left.name])
        right = self.read(statement.right, ranges, self.plan.lengths[statement.right.name])
        value = contract(left, right, (COORDINATE,))
        scale = width**-0.5 if statement.scale == "n**-0.5" else 1 / width
        np.multiply(value.data, np.asarray(scale, dtype=self.job.dtype), out=value.data)
        self.store(step, value)

    def nonlin(self, op: Op) -> None:
        step = self.plan.order[op.at]
        statement = step.statement
        assert isinstance(statement, Nonlin)
        name = statement.target.name
        ranges = step.ranges(self.netsor.ranges)
        count = self.plan.lengths.get(name, 0)
        scope = Scope(
            self.netsor, ranges, lambda reference, box: self.read(reference, box, count), self.job.dtype,
            pieces_of_sums(self.count, SUMMED),
        )  # fmt: skip
        clip = statement.expr if is_call(statement.expr, "clip") and self.spent(statement.expr.args[0]) else None
        value = evaluate(statement.expr, scope) if clip is None else in_place(*(evaluate(a, scope) for a in clip.args))
        if step.position in self.plan.offset:
            # a constant c stands for c times the constant vector, which in a frame is not (1, 1, ..)
            constant = evaluate(statement.expr, Scope(self.netsor, ranges, self.without_vectors, self.job.dtype))
            beyond = elementwise(np.multiply, constant, Open((COORDINATE,), self.ones(name) - 1))
            value = elementwise(np.add, value, beyond)
        if self.watched and (wrong := overflow(statement, value)):
            raise ProgramError(f"at width {self.plan.width}, {wrong}")
        self.store(step, value)

    def spent(self, expr: Expr) -> bool:
        """Whether an expression is a vector that is read for the last time, so that its array may be overwritten."""
        if not isinstance(expr, Variable) or expr.name not in self.drops:
            return False
        own = self.values[expr.name]
        others = (value for name, value in self.values.items() if name != expr.name)
        return not any(np.may_share_memory(own, v.data if isinstance(v, Open) else v) for v in others)

    def without_vectors(self, reference: Variable, ranges: Mapping[str, Range]) -> Open:
        if self.netsor.families[reference.name].kind == "vector":
            return Open((), np.zeros((), self.job.dtype))
        return self.read(reference, ranges, 0)

    def store(self, step: Step, value: Open) -> None:
        """Enter a result in the family, broadcasting over indices it does not depend on."""
        name = step.statement.target.name
        family = self.netsor.families[name]
        vector = family.kind == "vector"
        count = self.plan.lengths.get(name, 0)
        ranges = step.ranges(self.netsor.ranges)
        sizes = {index: stop - start for index, (start, stop) in ranges.items()} | {
            BATCH: self.count,
            COORDINATE: count,
        }
        slots = step.statement.target.slots
        axes = (BATCH, *(slot.bare for slot in slots if slot.bare), *((COORDINATE,) if vector else ()))
        full = broadcast(value, axes, sizes)
        for position, slot in enumerate(slots):
            if not slot.bare:
                full = np.expand_dims(full, position + 1)
        if full.shape[1 : 1 + len(slots)] == family.shape:
            self.values[name] = full
            return
        key = []
        for slot, (start, _) in zip(slots, family.ranges, strict=True):
            low, high = slot.span(ranges)
            key.append(slice(low - start, high - start))
        self.room(name)[(slice(None), *key)] = full

    def room(self, name: str) -> Array:
        """The array of a family that is filled in parts; before the first it is read only beyond a boundary."""
        if name not in self.values:
            family = self.netsor.families[name]
            trail = (self.plan.lengths.get(name, 0),) if family.kind == "vector" else ()
            self.values[name] = np.zeros((self.count, *family.shape, *trail), self.job.dtype)
        array: Array = self.values[name]
        return array


class Lazy:
    """Histories of the weights of one block of networks: basis Q and normals Xi of the products so far.

    Directions of inputs that depend on earlier ones, or that other members of the weight have, are zero in Q; their
    normals serve nothing.

    Shapes    Q (batch, members or 1, columns of all products, n_in), Xi (batch, members, the same columns, n_out)
    """

    def __init__(self) -> None:
        self._histories: dict[tuple[str, bool], tuple[Array, Array]] = {}  # of W, and of W^T

    def matmul(self, group: Grouping, vectors: Array, scale: Array, fresh: Array, place: History) -> Array:
        """Products of packed vectors with their weights, given all earlier ones.

        Shapes    vectors (batch, members or 1, columns, n_in), scale (members used,): sigma n_in**-0.5 of each,
                  fresh (batch, members used, columns, n_out): independent N(0, I) vectors
                  -> (batch, members used, columns, n_out)
        """
        dtype, members = fresh.dtype, math.prod(group.weight.shape)
        side, other_side = ((group.weight.name, group.statement.transposed != turned) for turned in (False, True))
        vectors = vectors.astype(np.float64, copy=False)  # so that what is new in an input is not lost in rounding
        if side not in self._histories:
            basis = np.zeros((len(vectors), 1 if place.shared else members, place.capacity, vectors.shape[-1]))
            self._histories[side] = basis, np.zeros((len(fresh), members, place.capacity, fresh.shape[-1]), dtype)
        (basis, normals), other = self._histories[side], self._histories.get(other_side)
        used: Any = slice(None) if np.array_equal(group.members, np.arange(members)) else group.members
        in_basis: Any = slice(None) if place.shared else used
        squares = np.einsum("...ij,...ij->...i", vectors, vectors)
        residual, products = vectors, None
        if place.start:
            earlier = basis[:, in_basis, : place.start]
            along = np.matmul(vectors, earlier.swapaxes(-1, -2))
            residual = vectors - np.matmul(along, earlier)
            products = np.matmul(along.astype(dtype, copy=False), normals[:, used, : place.start])
        factor, order = pivoted_cholesky(np.matmul(residual, residual.swapaxes(-1, -2)), squares)
        directions = None if place.last and other is None else _directions(residual, factor, order)
        if other is not None and directions is not None:
            along_other, made = (part if part.shape[1] == 1 else part[:, used] for part in other)
            onsager = np.matmul(directions, made.swapaxes(-1, -2)) - np.matmul(fresh, along_other.swapaxes(-1, -2))
            fresh = fresh + np.matmul(onsager, along_other).astype(dtype, copy=False)
        lower = factor.astype(dtype, copy=False)
        new = np.matmul(lower, fresh) if lower.shape[-1] != 1 else lower * fresh
        products = new if products is None else np.add(products, new, out=products)
        if place.last:
            self._histories = {key: kept for key, kept in self._histories.items() if key[0] != group.weight.name}
        else:
            columns = slice(place.start, place.start + fresh.shape[2])
            basis[:, in_basis, columns] = directions
            normals[:, used, columns] = fresh
        products *= scale[:, None, None]
        return products


def _directions(residual: Array, factor: Array, order: NDArray[np.intp]) -> Array:
    """Orthonormal rows Q with factor Q = residual; zero where a column of the factor is."""
    result = np.zeros(residual.shape, residual.dtype)
    for column in range(residual.shape[-2]):
        row = order[..., column, None, None]
        rest = np.take_along_axis(residual, row, axis=-2)[..., 0, :]
        entries = np.take_along_axis(factor, row, axis=-2)[..., 0, :]
        if column:
            rest = rest - np.matmul(entries[..., None, :column], result[..., :column, :])[..., 0, :]
        pivot = entries[..., column, None]
        np.divide(rest, pivot, out=result[..., column, :], where=pivot > 0)
    return result


def inner_products(vectors: Array) -> Array:
    """Inner products of the rows of matrices.

    Rows are multiplied in two halves: a matrix times its own transpose is a symmetric product for BLAS, which takes up
    to four times as long where there are few rows.

    Shapes    vectors (.., m, n) -> (.., m, m)
    """
    vectors = vectors.astype(np.float64, copy=False)  # what is new in a vector is a difference
    rows, turned = vectors.shape[-2], vectors.swapaxes(-1, -2)
    if rows == 1 or rows > FEW_ROWS:
        return np.asarray(np.matmul(vectors, turned))
    result = np.empty((*vectors.shape[:-1], rows))
    for half in (slice(rows // 2), slice(rows // 2, rows)):
        np.matmul(vectors[..., half, :], turned, out=result[..., half, :])
    return result


def in_place(x: Open, low: Open, high: Open) -> Open:
    """The clip of a vector, in its own array: one pass over memory in place of two."""
    own = union(x.axes, low.axes, high.axes) == x.axes and x.data.flags.writeable
    return elementwise(partial(np.clip, out=x.data) if own else np.clip, x, low, high)


def _renamed(axes: Iterable[str], group: Grouping, back: bool) -> tuple[str, ...]:
    """Indices by their role in the MatMul, under which steps with other index names share a factor; or back."""
    roles = {name: f"member {k}" for k, name in enumerate(group.member_axes)}
    roles |= {name: f"column {k}" for k, name in enumerate(group.column_axes)}
    names = {role: name for name, role in roles.items()} if back else roles
    return tuple(names.get(name, name) for name in axes)

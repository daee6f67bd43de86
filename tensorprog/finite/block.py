"""One block of networks: its steps in order, on arrays over (network, members, coordinates)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import BATCH, COORDINATE, Open, align, broadcast, contract, take
from tensorprog.evaluate import Scope, evaluate
from tensorprog.expr import Variable
from tensorprog.finite.job import METHODS, Job
from tensorprog.grouping import Grouping
from tensorprog.ir import Dot, MatMul, Nonlin, Range
from tensorprog.order import Step

__all__ = ["draw_blocks"]

Array = NDArray[Any]


def draw_blocks(job: Job, blocks: Sequence[int]) -> list[dict[str, Array]]:
    """Reported arrays of the blocks numbered, in order; what a worker runs."""
    return [_Block(job, number).draw() for number in blocks]


class _Block:
    """The environment of one block of networks while its steps run."""

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.netsor = job, job.netsor
        self.generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(job.seed, spawn_key=(number,))))
        self.values: dict[str, Array] = {}  # (batch, *members, coordinates) or (batch, *members)
        self.engine = METHODS[job.method](self.generator, job.dtype)

    def draw(self) -> dict[str, Array]:
        for initial in self.netsor.initial:
            self.initial(initial)
        order = self.job.order
        last = {reference.name: position for position, step in enumerate(order) for reference in step.statement.inputs}
        uses: dict[str, int] = {}
        for step in order:
            if isinstance(step.statement, MatMul):
                uses[step.statement.weight.name] = uses.get(step.statement.weight.name, 0) + 1
        for position, step in enumerate(order):
            if isinstance(step.statement, MatMul):
                uses[step.statement.weight.name] -= 1
                group = self.job.groups[position]
                assert group is not None
                value = self.matmul(step.statement, group, uses[step.statement.weight.name] > 0)
            elif isinstance(step.statement, Dot):
                value = self.dot(step, step.statement)
            else:
                value = self.nonlin(step, step.statement)
            self.store(step, value)
            for reference in step.statement.inputs:
                if last[reference.name] == position and reference.name not in self.job.kept:
                    self.values.pop(reference.name, None)
        return {name: self.reported(name) for name in self.job.kept}

    def reported(self, name: str) -> Array:
        value = self.values[name]
        if self.netsor.families[name].kind == "scalar":
            return np.array(value)
        value = value[..., : self.job.coordinates]
        return np.array(value[..., 0] if self.job.coordinates == 1 else np.moveaxis(value, -1, 1))

    def coordinates(self, name: str) -> int:
        width = self.job.plan.widths[self.netsor.families[name].width]
        return width if name in self.job.plan.full else min(self.job.coordinates, width)

    def initial(self, initial: Any) -> None:
        law = self.job.initials[initial.name]
        family = self.netsor.families[initial.name]
        count = self.coordinates(initial.name)
        factor = law.factor.astype(self.job.dtype)
        shape = (self.job.block, *law.blocks.shape[:-1], count)
        normals = self.generator.standard_normal(shape, dtype=self.job.dtype)  # type: ignore[call-overload]
        drawn = np.matmul(factor, normals) if factor.shape[-1] > 1 else factor * normals
        sizes = [family.shape[initial.indices.index(name)] for name in (*law.independent, *law.joint)]
        axes = (BATCH, *law.independent, *law.joint, COORDINATE)
        value = Open(axes, drawn.reshape(self.job.block, *sizes, count))
        self.values[initial.name] = align(value, (BATCH, *initial.indices, COORDINATE)) + law.mean[..., None].astype(
            self.job.dtype
        )

    def read(self, reference: Variable, ranges: Mapping[str, Range], coordinates: int) -> Open:
        family = self.netsor.families[reference.name]
        array = self.values[reference.name]
        trail: tuple[str, ...] = ()
        if family.kind == "vector":
            array, trail = array[..., :coordinates], (COORDINATE,)
        return take(array, (BATCH,), [a for a, _ in family.ranges], reference.slots, trail, ranges, family.boundaries)

    def matmul(self, statement: MatMul, group: Grouping, again: bool) -> Open:
        columns = self.job.plan.widths[self.netsor.weight[group.weight.name].shape[1]]
        vectors = group.pack(self.read(statement.vector, group.ranges, columns))
        scale = self.job.deviations[group.weight.name][group.members].astype(self.job.dtype)
        product = self.engine.matmul(
            group, vectors, scale, self.coordinates(statement.target.name), math.prod(group.weight.shape), again
        )
        return group.unpack(product)

    def dot(self, step: Step, statement: Dot) -> Open:
        ranges = step.ranges(self.netsor.ranges)
        width = self.job.plan.widths[self.netsor.families[statement.left.name].width]
        left = self.read(statement.left, ranges, width)
        right = self.read(statement.right, ranges, width)
        scale = width**-0.5 if statement.scale == "n**-0.5" else 1 / width
        return _inner(left, right, np.asarray(scale, dtype=self.job.dtype))

    def nonlin(self, step: Step, statement: Nonlin) -> Open:
        ranges = step.ranges(self.netsor.ranges)
        vector = self.netsor.families[statement.target.name].kind == "vector"
        count = self.coordinates(statement.target.name) if vector else 0
        scope = Scope(self.netsor, ranges, lambda reference, box: self.read(reference, box, count), self.job.dtype)
        return evaluate(statement.expr, scope)

    def store(self, step: Step, value: Open) -> None:
        """Enter a result in the family, broadcasting over indices it does not depend on."""
        name = step.statement.target.name
        family = self.netsor.families[name]
        vector = family.kind == "vector"
        count = self.coordinates(name) if vector else 0
        ranges = step.ranges(self.netsor.ranges)
        sizes = {index: stop - start for index, (start, stop) in ranges.items()} | {
            BATCH: self.job.block,
            COORDINATE: count,
        }
        slots = step.statement.target.slots
        axes = (BATCH, *(slot.bare for slot in slots if slot.bare), *((COORDINATE,) if vector else ()))
        full = broadcast(value, axes, sizes)
        for position, slot in enumerate(slots):
            if not slot.bare:
                full = np.expand_dims(full, position + 1)
        trail = (count,) if vector else ()
        if full.shape[1 : 1 + len(slots)] == family.shape:
            self.values[name] = full
            return
        if name not in self.values:
            self.values[name] = np.zeros((self.job.block, *family.shape, *trail), dtype=self.job.dtype)
        key = []
        for slot, (start, _) in zip(slots, family.ranges, strict=True):
            low, high = slot.bounds(ranges)
            key.append(slice(low - start, high + 1 - start))
        self.values[name][(slice(None), *key)] = full


def _inner(left: Open, right: Open, scale: Array) -> Open:
    """Inner products over the coordinates: batched matrix products over the indices both share."""
    result = contract(left, right, (COORDINATE,))
    return Open(result.axes, result.data * scale)

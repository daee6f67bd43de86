"""A run decided: the program, its plan in stages, the memory that they take, the block size and the seed.

This is all that a worker needs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.plan import METHODS, Op, Plan, plan
from tensorprog.language.atoms import REDUCTIONS
from tensorprog.language.errors import ProgramError, check_count, did_you_mean
from tensorprog.language.expr import Expr, Reduction, Variable, factors, fold, index_names, is_call
from tensorprog.language.ir import Dot, Netsor, Nonlin, Range
from tensorprog.language.weight_members import variances

__all__ = ["FREED_BYTES", "Job", "Stage", "check_kept", "make_job"]

Array = NDArray[Any]
# aimed at for the numbers of one block and of a part of it: they should stay in cache
BLOCK_BYTES, PART_BYTES = 16 << 20, 4 << 20
TILE_BYTES = 1 << 20  # of the vectors that are drawn, and left again, in one piece
FREED_BYTES = 16 << 20  # kept by the allocator instead of being returned to the system after every op
FEW, MAX_BLOCK = 16, 1024  # networks in a block
BLOCK_NANOSECONDS = 1e8  # results come in whole blocks: a few networks should not wait for many


@dataclass(frozen=True)
class Stage:
    """Consecutive ops; those `apart` run on parts of the block, one after the other.

    `reads` come from the block and `writes` go back to it; `drops` are read for the last time by the op beside it,
    `dropped` by the stage.
    """

    apart: bool
    ops: tuple[Op, ...]
    drops: tuple[tuple[str, ...], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """All a worker needs to draw any block of networks; `part` networks at a time where all coordinates are touched.

    `netsor` is the program as it is written, that of the plan may have fewer functions.
    """

    netsor: Netsor
    plan: Plan
    seed: int
    block: int
    part: int
    dtype: str

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of what one network reports, by name."""
        shapes = {}
        for name in self.plan.kept:
            family = self.netsor.families[name]
            coordinates = (self.plan.coordinates,) if family.kind == "vector" and self.plan.coordinates > 1 else ()
            shapes[name] = (*coordinates, *family.shape)
        return shapes

    @property
    def drawn(self) -> int:
        """Bytes of the results of one block."""
        return sum(map(math.prod, self.shapes.values())) * np.dtype(self.dtype).itemsize * self.block

    @property
    def memory(self) -> int:
        """Bytes that drawing one block takes at most, roughly: arrays of the block, of one part, and what ops copy."""
        block, part = self.held
        tiles = max((self.tile(op) * _streamed(self.plan, op) for op in self.plan.ops if op.inner), default=0)
        return 2 * (block * self.block + part * self.part + tiles) * np.dtype(self.dtype).itemsize + FREED_BYTES

    def tile(self, op: Op) -> int:
        """Networks in one piece of a streamed op."""
        vectors = _size(self.plan, op.inner[0]) * np.dtype(self.dtype).itemsize
        return min(self.block, _power_of_two(TILE_BYTES / vectors))

    @property
    def seconds(self) -> float:
        """Seconds that drawing one block takes, roughly, on one current core."""
        return self.plan.work * 1.2e-9 * self.block + 2e-3

    @cached_property
    def held(self) -> tuple[int, int]:
        """Most numbers of one network alive in arrays over the block, and in those over a part of it."""
        most_block = most_part = 0
        block: dict[str, int] = {}
        for stage in self.stages:
            alive = {} if stage.apart else block
            most = 0
            for op, drops in zip(stage.ops, stage.drops, strict=True):
                alive[op.writes] = _size(self.plan, op)
                most = max(most, sum(alive.values()) + _passing(self.plan, op, alive))
                for name in drops:
                    alive.pop(name, None)
            if stage.apart:
                most_part = max(most_part, most)
                block |= {name: alive[name] for name in stage.writes}
                for name in self.heads.intersection(stage.writes):
                    block[name] = math.prod(self.netsor.families[name].shape) * self.plan.coordinates
                most = sum(block.values())
            most_block = max(most_block, most)
            for name in stage.dropped:
                block.pop(name, None)
        return most_block, most_part

    @cached_property
    def heads(self) -> frozenset[str]:
        """Full vectors of which only the reported coordinates outlive their stage."""
        used: set[str] = set()
        for stage in self.stages:
            used.update(name for op in stage.ops if op.large for name in op.reads if name in stage.reads)
            used.update(op.writes for op in stage.ops if op.writes in stage.reads)
        return self.plan.full - used

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The plan's ops cut where they change between all coordinates and few numbers.

        Matrices, and histories over all coordinates, belong to whole blocks: with them there is one stage.
        """
        plan = self.plan
        together = plan.method == "dense" or any(op.kind == "matmul" and op.large and not op.key for op in plan.ops)
        last = {name: number for number, op in enumerate(plan.ops) for name in op.reads}
        last |= dict.fromkeys(plan.kept, len(plan.ops))
        stages = []
        before: set[str] = set()
        for apart, items in groupby(enumerate(plan.ops), lambda item: item[1].large and not together):
            piece = [*items]
            first, stop = piece[0][0], piece[-1][0] + 1
            written = {op.writes for _, op in piece}
            reads = {name for _, op in piece for name in (*op.reads, op.writes) if name in before}
            reads -= {name for name in written if last.get(name, -1) < first}
            drops = (dict.fromkeys(name for name in op.reads if last[name] == number) for number, op in piece)
            alive = (name for name in written if last.get(name, -1) >= stop)
            ended = (name for name in reads - written if last[name] < stop)
            stages.append(
                Stage(
                    apart,
                    tuple(op for _, op in piece),
                    tuple(map(tuple, drops)),
                    *(tuple(sorted(names)) for names in (reads, alive, ended)),
                )
            )
            before |= written
        return tuple(stages)

    @cached_property
    def deviations(self) -> dict[str, Array]:
        """sigma n_in**-0.5 of every member of each weight family."""
        return {
            weight.name: np.sqrt(variances(self.netsor, weight.name) / self.plan.widths[weight.shape[1]])
            for weight in self.netsor.weights
        }


def check_kept(netsor: Netsor, keep: Sequence[str]) -> None:
    """Names to keep are vectors or scalars of the program.

    Raises    ProgramError
    """
    readable = [name for name, family in netsor.families.items() if family.kind != "weight"]
    for name in keep:
        if name not in readable:
            raise ProgramError(f"keep: {name} is not a vector or scalar of the program; {did_you_mean(name, readable)}")


def make_job(
    netsor: Netsor, width: int, seed: int, method: str, coordinates: int, keep: Sequence[str], dtype: str,
    exact: bool = False,
) -> Job:  # fmt: skip
    """Check the arguments of a run, plan it and choose its block size.

    Raises    ProgramError
    """
    width, seed = check_count("width", width), check_count("seed", seed, 0)
    coordinates = check_count("coordinates", coordinates, 0)
    if coordinates < 1 or coordinates > width:
        raise ProgramError(f"coordinates must lie between 1 and the width {width}, not {coordinates}")
    if dtype not in ("float64", "float32"):
        raise ProgramError(f"dtype must be float64 or float32, not {dtype!r}")
    if method not in (*METHODS, "auto"):
        raise ProgramError(f"there is no method {method!r}; choose auto, {', '.join(METHODS)}")
    scores = [s.target.name for s in netsor.body if isinstance(s, Dot)]
    check_kept(netsor, keep)
    kept = tuple(dict.fromkeys([*netsor.outputs, *keep, *scores]))
    decided = plan(netsor, width, coordinates, kept, method, exact)
    for name in kept:
        has = decided.widths.get(netsor.families[name].width, coordinates)  # a scalar has no width
        if has < coordinates:
            raise ProgramError(f"{name} has only {has} coordinates at n = {width}, {coordinates} were asked for")
    one = Job(netsor, decided, seed, 1, 1, dtype)
    over_block, over_part = (held * np.dtype(dtype).itemsize + 1 for held in one.held)
    fit = BLOCK_BYTES / over_block
    fit = max(fit, min(FEW, 4 * fit))  # fewer networks would not outweigh the interpreter
    block = _power_of_two(min(MAX_BLOCK, fit, BLOCK_NANOSECONDS / (decided.work + 1)))
    return replace(one, block=block, part=min(block, _power_of_two(PART_BYTES / over_part)))


def _power_of_two(number: float) -> int:
    return 1 << int(math.log2(max(1.0, number)))


def _size(plan: Plan, op: Op) -> int:
    """Numbers of what an op writes."""
    if op.inner:
        return _size(plan, op.inner[-1])
    if op.kind in ("gram", "factor"):
        wide = plan.fresh[op.at] if op.kind == "factor" else plan.group(op).columns
        return plan.group(op).sets * plan.group(op).columns * wide
    return math.prod(plan.netsor.families[op.writes].shape) * plan.lengths.get(op.writes, 1)


def _streamed(plan: Plan, op: Op) -> int:
    """Numbers of one network that a streamed op holds at a time."""
    return max(_size(plan, each) + _passing(plan, each, {}) for each in op.inner) + _size(plan, op.inner[0])


def _passing(plan: Plan, op: Op, alive: dict[str, int]) -> int:
    """Numbers needed in passing; histories and matrices of weights, which stay, are entered in `alive`."""
    if op.inner:
        return 0
    if op.kind == "nonlin":
        step = plan.order[op.at]
        assert isinstance(step.statement, Nonlin)
        sizes = _Sizes(step.ranges(plan.netsor.ranges), plan.lengths, plan.lengths.get(op.writes, 1))
        return sizes.evaluated(step.statement.expr).most
    if op.kind in ("initial", "dot"):
        return 0
    if op.kind == "factor":
        return _size(plan, op)
    group = plan.group(op)
    inputs = plan.lengths[group.statement.vector.name]
    packed = group.sets * group.columns * inputs
    if op.kind == "gram":
        return packed
    outputs, place = plan.lengths[op.writes], plan.histories[op.at]
    passing = len(group.members) * plan.fresh[op.at] * outputs
    if not op.key:
        kept = inputs * outputs if plan.method == "dense" else place.capacity * (inputs + outputs)
        alive[f"weight {group.weight.name}"] = math.prod(group.weight.shape) * kept
        passing += packed + (alive.pop(f"weight {group.weight.name}") if place.last else 0)
    return passing


@dataclass(frozen=True)
class _Part:
    """A subexpression: indices it has axes for, coordinates (1 without), most numbers of any array on the way."""

    indices: frozenset[str] = frozenset()
    length: int = 1
    most: int = 0

    def __add__(self, other: _Part) -> _Part:
        """Both together."""
        length, most = max(self.length, other.length), max(self.most, other.most)
        return _Part(self.indices | other.indices, length, most)


@dataclass(frozen=True)
class _Sizes:
    """Numbers of arrays over indices of these ranges, and over `length` coordinates of vectors."""

    ranges: Mapping[str, Range]
    vectors: Collection[str]
    length: int

    def formed(self, parts: Iterable[_Part], removed: Collection[str] = ()) -> _Part:
        """Parts put together in one array, over whose indices `removed` it is summed."""
        whole = sum(parts, _Part())
        size = math.prod(self.ranges[name][1] - self.ranges[name][0] for name in whole.indices) * whole.length
        return _Part(whole.indices.difference(removed), whole.length, max(whole.most, size))

    def evaluated(self, expr: Expr) -> _Part:
        """A value."""

        def leaf(node: Expr) -> _Part | None:
            if isinstance(node, Reduction) and REDUCTIONS[node.reducer].linear:
                return self.contracted(node.arg, frozenset(node.indices))
            vector = isinstance(node, Variable) and node.name in self.vectors
            return None if node.children else _Part(frozenset(index_names(node)), self.length if vector else 1)

        def combined(node: Expr, *parts: _Part) -> _Part:
            removed = node.indices if isinstance(node, Reduction) and node.removes else ()
            return self.formed([_Part(frozenset(index_names(node))), *parts], removed)

        return fold(expr, {}, leaf, combined)

    def contracted(self, expr: Expr, summed: frozenset[str]) -> _Part:
        """A sum: of terms one by one, and of a product without forming it, but for that of its factors of one kind."""
        if is_call(expr, "add", "subtract", "negative"):
            return self.formed(self.contracted(arg, summed) for arg in expr.args)
        if isinstance(expr, Reduction) and expr.reducer == "sum":
            return self.contracted(expr.arg, summed | set(expr.indices))
        parts = [self.evaluated(factor) for factor in factors(expr, signs=True)]
        whole = sum(parts, _Part())
        result = self.formed([replace(whole, indices=whole.indices - summed)])
        kinds = ([part for part in parts if (part.length > 1) == large] for large in (False, True))
        return replace(result, most=max([result.most, *(self.formed(kind).most for kind in kinds if len(kind) > 1)]))

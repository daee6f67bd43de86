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
from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError, check_count, check_precision, did_you_mean
from tensorprog.language.expr import Call, Expr, Reduction, Variable, factors, fold, index_names, is_call, walk
from tensorprog.language.formats import name_of, selected
from tensorprog.language.ir import Dot, Netsor, Nonlin, Range
from tensorprog.language.weight_members import variances

__all__ = ["FREED_BYTES", "SUMMED", "Job", "Stage", "kept_families", "make_job"]

Array = NDArray[Any]
# aimed at for the numbers of one block and of a part of it: they should stay in cache
BLOCK_BYTES, PART_BYTES = 16 << 20, 4 << 20
TILE_BYTES = 1 << 20  # of the vectors that are drawn, and left again, in one piece
OVERHEAD = 1 << 20  # bytes of objects of Python, and of what the allocator cannot use again
FREED_BYTES = 16 << 20  # kept by the allocator instead of being returned to the system after every op
SUMMED = 1 << 18  # numbers of factors of a sum that are worked out at once, about
FEW, MAX_BLOCK = 16, 4096  # networks in a block
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

    @cached_property
    def memory(self) -> int:
        """Bytes that drawing one block takes at most, results included: those of arrays, and a little for the rest."""
        vectors = (name for name in self.shapes if self.netsor.families[name].kind == "vector")
        copied = sum(math.prod(self.shapes[name]) for name in vectors) * np.dtype(self.dtype).itemsize
        held = self.held(tiles=True)
        stages = [block * self.block + part * self.part for block, part in held]
        return int(max(*stages, (held[-1][0] + copied) * self.block, self.drawn)) + OVERHEAD

    def tile(self, op: Op) -> int:
        """Networks in one piece of a streamed op."""
        return min(self.block, _power_of_two(TILE_BYTES / _Alive(self, 1).size(op.inner[0])))

    def _streamed(self, op: Op) -> int:
        """Bytes of one network that a streamed op holds at a time: vectors, functions of them, and what these take."""
        alive, (source, *functions, _) = _Alive(self, 1), op.inner
        beside = max((alive.after(each) for each in functions), default=0)
        double = 8 if self.dtype == "float32" else 0
        return alive.size(source) + max(beside, double * alive.size(source) // alive.number)

    @property
    def seconds(self) -> float:
        """Seconds that drawing one block takes, roughly, on one current core: fitted to the shipped programs."""
        parts = self.block / self.part
        ops = sum(sum(1 + len(op.inner) for op in stage.ops) * (parts if stage.apart else 1) for stage in self.stages)
        return self.plan.work * 0.6e-9 * self.block + 1.5e-4 * ops + 3e-3

    def held(self, tiles: bool = False) -> list[tuple[float, float]]:
        """Most bytes of one network in arrays over the block, and in those over a part of it: during each stage, and
        after the last; with its share of the `tiles` of streamed ops."""
        found: list[tuple[float, float]] = []
        block = _Alive(self, self.block)
        for stage in self.stages:
            alive = _Alive(self, self.part) if stage.apart else block
            most = 0.0
            for op, drops in zip(stage.ops, stage.drops, strict=True):
                tile = self.tile(op) * self._streamed(op) / alive.count if tiles and op.inner else 0
                most = max(most, alive.after(op) + tile)
                for name in drops:
                    alive.drop(name)
            if stage.apart:
                for name in stage.writes:
                    if name not in stage.reads:  # else written in place
                        block.enter(name, alive)
                found.append((block.total, most))
            else:
                found.append((most, 0))
            for name in stage.dropped:
                block.drop(name)
        return [*found, (block.total, 0)]

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


def kept_families(netsor: Netsor, keep: Sequence[str]) -> tuple[str, ...]:
    """The families of vectors and scalars to keep, which are named by themselves or by members.

    Raises    ProgramError for other names
    """
    readable = [name for name, family in netsor.families.items() if family.kind != "weight"]
    for variable in keep:
        name = name_of(variable).partition("[")[0]
        if name not in readable:
            raise ProgramError(
                f"keep: {variable} is not a vector or scalar of the program; {did_you_mean(name, readable)}"
            )
    return tuple(dict.fromkeys(selected(netsor, variable)[0] for variable in keep))


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
    check_precision(dtype)
    if method not in (*METHODS, "auto"):
        raise ProgramError(f"there is no method {method!r}; choose auto, {', '.join(METHODS)}")
    scores = [s.target.name for s in netsor.body if isinstance(s, Dot)]
    kept = tuple(dict.fromkeys([*netsor.outputs, *kept_families(netsor, keep), *scores]))
    decided = plan(netsor, width, coordinates, kept, method, exact)
    for name in kept:
        has = decided.widths.get(netsor.families[name].width, coordinates)  # a scalar has no width
        if has < coordinates:
            raise ProgramError(f"{name} has only {has} coordinates at n = {width}, {coordinates} were asked for")
    one = Job(netsor, decided, seed, 1, 1, dtype)
    over_block, over_part = (max(stage[k] for stage in one.held()) + 1 for k in range(2))
    fit = BLOCK_BYTES / over_block
    fit = max(fit, min(FEW, 4 * fit))  # fewer networks would not outweigh the interpreter
    block = _power_of_two(min(MAX_BLOCK, fit, BLOCK_NANOSECONDS / (decided.work + 1)))
    return replace(one, block=block, part=min(block, _power_of_two(PART_BYTES / over_part)))


def _power_of_two(number: float) -> int:
    return 1 << int(math.log2(max(1.0, number)))


class _Alive:
    """The arrays of one network that are alive at once, by name in bytes, while so many networks are worked on."""

    def __init__(self, job: Job, count: int) -> None:
        self.job, self.plan, self.count, self.number = job, job.plan, count, np.dtype(job.dtype).itemsize
        self.sizes: dict[str, int] = {}
        self._views: dict[str, tuple[str, int]] = {}  # factors that are the coordinates of vectors, with their size

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(self.sizes.values())

    def drop(self, name: str) -> None:
        """Forget an array; what looks at it keeps it."""
        self.sizes.pop(name, None)
        self._views.pop(name, None)
        for view, (source, size) in [*self._views.items()]:
            if source == name:
                self.sizes[view] = size
                del self._views[view]

    def enter(self, name: str, other: _Alive) -> None:
        """Take in what a part made: of full vectors that no large op reads any more, the reported coordinates."""
        size = other._views[name][1] if name in other._views else other.sizes[name]
        if name in self.job.heads:
            size = math.prod(self.plan.netsor.families[name].shape) * self.plan.coordinates * self.number
        self.sizes[name] = size

    def after(self, op: Op) -> int:
        """Enter what an op writes; gives the most bytes that are alive on the way."""
        passing = self._passing(op) * self.number
        size = self.size(op)
        if op.kind == "factor" and self.plan.direct(op.at) and self.plan.group(op).separable:
            self._views[op.writes] = op.reads[0], size
        else:
            self.sizes[op.writes] = size
        return int(self.total + passing)

    def size(self, op: Op) -> int:
        """Bytes of what an op writes."""
        plan = self.plan
        if op.inner:
            return self.size(op.inner[-1])
        if op.kind == "gram":
            return 8 * plan.group(op).sets * plan.group(op).columns ** 2
        if op.kind == "factor":
            return self.number * plan.group(op).sets * plan.group(op).columns * plan.fresh[op.at]
        return self.number * math.prod(plan.netsor.families[op.writes].shape) * plan.lengths.get(op.writes, 1)

    def _passing(self, op: Op) -> float:
        """Numbers needed in passing; histories and matrices of weights, which stay, are entered."""
        plan = self.plan
        if op.inner:
            return 0  # a few networks at a time
        double = 8 / self.number  # Gram matrices are in double precision
        if op.kind == "initial":
            law = plan.initials[op.writes]
            copies = int(law.shape[-1] > 1) + int(bool(law.mean.any()))
            return copies * self.size(op) / self.number
        step = plan.order[op.at]
        in_parts = bool(step.fixed) or len(plan.netsor.families[step.statement.target.name].statements) > 1
        ranges = step.ranges(plan.netsor.ranges)
        if op.kind in ("nonlin", "dot"):
            result = math.prod(
                ranges[slot.bare][1] - ranges[slot.bare][0] for slot in step.statement.target.slots if slot.bare
            ) * plan.lengths.get(op.writes, 1)
            if op.kind == "dot":
                return result if in_parts else 0
            assert isinstance(step.statement, Nonlin)
            sizes = _Sizes(plan, ranges, plan.lengths.get(op.writes, 1), self.count)
            return max(0, sizes.evaluated(step.statement.expr).most - (0 if in_parts else result))
        group = plan.group(op)
        inputs = plan.lengths[group.statement.vector.name]
        packed = 0 if group.separable else 2 * group.sets * group.columns * inputs
        if op.kind == "gram":
            return packed + (group.sets * group.columns * inputs * double if double > 1 else 0)
        if op.kind == "factor":
            direct = plan.direct(op.at)
            return packed if direct else (double * self.size(op) / self.number if double > 1 else 0)
        outputs, place = plan.lengths[op.writes], plan.histories[op.at]
        fresh, product = (len(group.members) * vectors * outputs for vectors in (plan.fresh[op.at], group.columns))
        if op.key:
            if not group.separable:
                return fresh + 2 * product
            if plan.fresh[op.at] == 1 and not group.column_axes:
                return 0
            factor = group.sets * group.columns * plan.fresh[op.at]
            return fresh + (factor if factor < fresh else 0) + (product if in_parts else 0)
        kept = inputs * outputs if plan.method == "dense" else place.capacity * (inputs * double + outputs)
        weight = f"weight {group.weight.name}"
        self.sizes[weight] = int(math.prod(group.weight.shape) * kept * self.number)
        passing: float = packed + product + (0 if group.separable else product)
        if plan.method != "dense":
            passing += fresh + product + 3 * double * group.sets * group.columns * inputs
        return passing + (self.sizes.pop(weight) / self.number if place.last else 0)


@dataclass(frozen=True)
class _Part:
    """A subexpression: indices it has axes for, coordinates (1 without), numbers of its own array (0 for a view of
    another), and most numbers of arrays alive on the way."""

    indices: frozenset[str] = frozenset()
    length: int = 1
    own: int = 0
    most: int = 0


@dataclass(frozen=True)
class _Sizes:
    """Numbers of arrays over indices of these ranges, and over `length` coordinates of vectors, for one of so many
    networks that are worked on together."""

    plan: Plan
    ranges: Mapping[str, Range]
    length: int
    count: int

    def numbers(self, indices: Iterable[str], length: int = 1) -> int:
        """Numbers of an array over such indices."""
        return math.prod(self.ranges[name][1] - self.ranges[name][0] for name in indices) * length

    def formed(self, parts: Sequence[_Part], removed: Collection[str] = (), beside: int = 0) -> _Part:
        """Parts, worked out one after the other, put together in one array, and so many arrays like it beside it; it
        is summed over the indices `removed`."""
        held = most = 0
        for part in parts:
            most = max(most, held + part.most)
            held += part.own
        indices = frozenset(name for part in parts for name in part.indices)
        length = max((part.length for part in parts), default=1)
        whole = self.numbers(indices, length)
        left = indices.difference(removed)
        own = self.numbers(left, length)
        return _Part(left, length, own, max(most, held + own + whole * beside))

    def evaluated(self, expr: Expr) -> _Part:
        """A value."""

        def leaf(node: Expr) -> _Part | None:
            if isinstance(node, Reduction) and REDUCTIONS[node.reducer].linear:
                return self.contracted(node.arg, frozenset(node.indices))
            return None if node.children else self._read(node)

        def combined(node: Expr, *parts: _Part) -> _Part:
            if isinstance(node, Reduction):
                removed = node.indices if node.removes else ()
                return self.formed([*parts, _Part(frozenset(index_names(node)))], removed, int(node.removes))
            assert isinstance(node, Call)
            return self.formed([*parts, _Part(frozenset(index_names(node)))], beside=ATOMS[node.atom].passing)

        return fold(expr, {}, leaf, combined)

    def _read(self, node: Expr) -> _Part:
        """A variable: a view, unless members are picked one by one."""
        if not isinstance(node, Variable):
            return _Part(frozenset(index_names(node)))
        family = self.plan.netsor.families[node.name]
        length = self.length if family.kind == "vector" else 1
        terms = [term for slot in node.slots for term in slot.terms]
        plain = all(factor == 1 for _, factor in terms) and len({name for name, _ in terms}) == len(terms)
        plain = plain and all(len(slot.terms) < 2 for slot in node.slots)
        bounds = zip((slot.bounds(self.ranges) for slot in node.slots), family.ranges, strict=True)
        inside = all(start <= low and high < stop for (low, high), (start, stop) in bounds)
        indices = frozenset(index_names(node))
        own = 0 if plain and inside else self.numbers(indices, length)
        return _Part(indices, length, own, own if inside else 2 * own)

    def contracted(self, expr: Expr, summed: frozenset[str]) -> _Part:
        """A sum: of terms one by one, and of a product without forming it, but for that of its factors of one kind;
        some of the terms at a time where they take many numbers."""
        if is_call(expr, "add", "subtract", "negative"):
            return self.formed([self.contracted(arg, summed) for arg in expr.args])
        if isinstance(expr, Reduction) and expr.reducer == "sum":
            return self.contracted(expr.arg, summed | set(expr.indices))
        parts = [self.evaluated(factor) for factor in factors(expr, signs=True)]
        kinds = [[part for part in parts if (part.length > 1) == large] for large in (False, True)]
        small, large = (self.formed(kind) if len(kind) > 1 else kind[0] if kind else _Part() for kind in kinds)
        inside = {name for node in walk(expr) if isinstance(node, Reduction) for name in node.indices}
        indices = small.indices | large.indices
        share = 1.0
        if indices & summed - inside:
            share = min(1.0, SUMMED / (self.count * self.numbers(indices)))
        turned = self.numbers(small.indices) if len(small.indices & summed) > 1 else 0
        result = self.numbers(indices - summed, max(small.length, large.length))
        most = max(small.most, small.own + turned) * share + large.most + result * (2 if share < 1 else 1)
        return _Part(indices - summed, max(small.length, large.length), result, int(most))

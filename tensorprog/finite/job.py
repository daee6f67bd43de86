"""A run decided: the program, its plan, the block size, the memory of a block, and the seed.

This is all that a worker needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.plan import METHODS, Op, Plan, plan
from tensorprog.language.errors import ProgramError, check_count, check_precision, did_you_mean
from tensorprog.language.expr import Expr, Reduction, Variable, fold, index_names, is_call
from tensorprog.language.formats import name_of, selected
from tensorprog.language.ir import Dot, Netsor, Nonlin
from tensorprog.language.weight_members import variances

__all__ = ["Job", "kept_families", "make_job"]

Array = NDArray[Any]
BLOCK_BYTES = 16 << 20  # aimed at for the numbers of one block: they should stay in cache
OVERHEAD = 1 << 20  # bytes of objects of Python, and of what the allocator cannot use again
FEW, MAX_BLOCK = 16, 4096  # networks in a block
BLOCK_NANOSECONDS = 1e8  # results come in whole blocks: a few networks should not wait for many


@dataclass(frozen=True)
class Job:
    """All a worker needs to draw any block of networks.

    `netsor` is the program as it is written, that of the plan may have fewer functions.
    """

    netsor: Netsor
    plan: Plan
    seed: int
    block: int
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
        """Bytes that drawing one block takes, results included, within a factor of 2."""
        return self.block * self.network + OVERHEAD

    @property
    def seconds(self) -> float:
        """Seconds that drawing one block takes, roughly, on one current core: fitted to the shipped programs."""
        return self.plan.work * 0.6e-9 * self.block + 1.5e-4 * len(self.plan.ops) + 3e-3

    @cached_property
    def drops(self) -> tuple[tuple[str, ...], ...]:
        """What each op is the last to read."""
        last = {name: at for at, op in enumerate(self.plan.ops) for name in (*op.reads, op.writes)}
        return tuple(
            tuple(
                name for name in dict.fromkeys((*op.reads, op.writes)) if last[name] == at and name not in self.shapes
            )
            for at, op in enumerate(self.plan.ops)
        )

    @cached_property
    def network(self) -> int:
        """Bytes of the arrays of one network that are alive at once, at most."""
        sizes: dict[str, int] = {}
        most = 0
        for op, drops in zip(self.plan.ops, self.drops, strict=True):
            sizes |= self._made(op)
            most = max(most, sum(sizes.values()) + self._beside(op))
            if op.kind == "matmul" and not op.key and self.plan.histories[op.at].last:
                drops = (*drops, *(f"weight {self.plan.group(op).weight.name}{turned}" for turned in ("", ".T")))
            for name in drops:
                sizes.pop(name, None)
        return most * np.dtype(self.dtype).itemsize

    def _made(self, op: Op) -> dict[str, int]:
        """Numbers of the arrays that an op makes, by name: what it writes, and the weight that it needs."""
        plan = self.plan
        if op.kind in ("gram", "factor"):
            group = plan.group(op)
            return {op.writes: group.sets * group.columns * (group.columns if op.kind == "gram" else plan.fresh[op.at])}
        outputs = plan.lengths.get(op.writes, 1)
        made = {op.writes: math.prod(plan.netsor.families[op.writes].shape) * outputs}
        if op.kind == "matmul" and not op.key:
            group = plan.group(op)
            inputs = plan.lengths[group.statement.vector.name]
            kept = inputs * outputs if plan.method == "dense" else plan.histories[op.at].capacity * (inputs + outputs)
            side = ".T" if group.statement.transposed and plan.method != "dense" else ""
            made[f"weight {group.weight.name}{side}"] = math.prod(group.weight.shape) * kept
        return made

    def _beside(self, op: Op) -> int:
        """Numbers that an op needs in passing."""
        plan = self.plan
        if op.kind == "nonlin":
            step = plan.order[op.at]
            assert isinstance(step.statement, Nonlin)
            ranges = step.ranges(plan.netsor.ranges)
            return 2 * _largest(step.statement.expr, plan, {k: stop - start for k, (start, stop) in ranges.items()})
        if op.kind == "matmul":
            group = plan.group(op)
            vectors = plan.fresh[op.at] + (0 if op.key and group.separable else 2 * group.columns)
            packed = 0 if op.key else 2 * group.sets * group.columns * plan.lengths[group.statement.vector.name]
            return len(group.members) * vectors * plan.lengths[op.writes] + packed
        return sum(self._made(op).values())

    @cached_property
    def deviations(self) -> dict[str, Array]:
        """sigma n_in**-0.5 of every member of each weight family."""
        return {
            weight.name: np.sqrt(variances(self.netsor, weight.name) / self.plan.widths[weight.shape[1]])
            for weight in self.netsor.weights
        }


def _largest(expr: Expr, plan: Plan, sizes: dict[str, int]) -> int:
    """Numbers of the largest array on the way to a value; the terms of a sum of products are not formed."""

    def leaf(node: Expr) -> tuple[frozenset[str], int, int] | None:
        if node.children:
            return None
        vector = isinstance(node, Variable) and plan.netsor.families[node.name].kind == "vector"
        length = plan.lengths[node.name] if isinstance(node, Variable) and vector else 1
        indices = frozenset(index_names(node))
        return indices, length, math.prod(sizes[name] for name in indices) * length

    def combined(node: Expr, *parts: tuple[frozenset[str], int, int]) -> tuple[frozenset[str], int, int]:
        indices = frozenset(index_names(node)).union(*(part[0] for part in parts))
        length, most = max(part[1] for part in parts), max(part[2] for part in parts)
        if isinstance(node, Reduction) and node.removes:
            indices -= set(node.indices)
        formed = 0 if is_call(node, "multiply", "divide", "negative", "add", "subtract") and node is not expr else 1
        return indices, length, max(most, formed * math.prod(sizes[name] for name in indices) * length)

    return fold(expr, {}, leaf, combined)[2]


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
    netsor: Netsor, width: int, seed: int = 0, method: str = "auto", coordinates: int = 1, keep: Sequence[str] = (),
    dtype: str = "float64",
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
    decided = plan(netsor, width, coordinates, kept, method)
    for name in kept:
        has = decided.widths.get(netsor.families[name].width, coordinates)  # a scalar has no width
        if has < coordinates:
            raise ProgramError(f"{name} has only {has} coordinates at n = {width}, {coordinates} were asked for")
    one = Job(netsor, decided, seed, 1, dtype)
    fit = BLOCK_BYTES / (one.network + 1)
    fit = max(fit, min(FEW, 4 * fit))  # fewer networks would not outweigh the interpreter
    fit = max(1.0, min(MAX_BLOCK, fit, BLOCK_NANOSECONDS / (decided.work + 1)))
    return replace(one, block=1 << int(math.log2(fit)))

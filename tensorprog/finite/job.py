"""A run decided: the program, its plan, the block size and the seed; all that a worker needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.footprint import footprint
from tensorprog.finite.plan import Op, Plan
from tensorprog.finite.planner import METHODS, plan
from tensorprog.language.errors import ProgramError, did_you_mean
from tensorprog.language.evaluate import index_array
from tensorprog.language.ir import Dot, Netsor

__all__ = ["FREED_BYTES", "METHODS", "Job", "Stage", "check_kept", "make_job"]

Array = NDArray[Any]
# aimed at for the numbers of one block and of a part of it: they should stay in cache
BLOCK_BYTES, PART_BYTES = 16 << 20, 4 << 20
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
    """All a worker needs to draw any block of networks; `part` networks at a time where all coordinates are touched."""

    netsor: Netsor
    plan: Plan
    seed: int
    block: int
    part: int
    dtype: str

    @property
    def kept(self) -> tuple[str, ...]:
        """Names reported."""
        return self.plan.kept

    @property
    def method(self) -> str:
        """The method that is used."""
        return self.plan.method

    @property
    def coordinates(self) -> int:
        """Number of coordinates reported of every vector."""
        return self.plan.coordinates

    @property
    def memory(self) -> int:
        """Bytes that drawing one block takes at most, roughly: arrays of the block, of one part, and what ops copy."""
        block, part = self.held
        return 2 * (block * self.block + part * self.part) * np.dtype(self.dtype).itemsize + FREED_BYTES

    @cached_property
    def held(self) -> tuple[int, int]:
        """Numbers of one network alive at a time: over the block, and over a part of it."""
        return footprint(self.plan, self.stages, self.heads)

    @cached_property
    def heads(self) -> frozenset[str]:
        """Full vectors of which only the reported coordinates outlive their stage."""
        used: set[str] = set()
        for stage in self.stages:
            used.update(name for op in stage.ops if op.large for name in op.reads if name in stage.reads)
            used.update(op.writes for op in stage.ops if op.writes in stage.reads)
        return self.plan.full - used

    @cached_property
    def together(self) -> bool:
        """Whether all ops run on whole blocks: matrices and histories over all coordinates belong to them."""
        return self.plan.method == "dense" or any(
            op.kind == "matmul" and op.large and not op.key for op in self.plan.ops
        )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The plan's ops cut where they change between all coordinates and few numbers."""
        plan, together = self.plan, self.together
        pieces: list[list[Op]] = []
        for op in plan.ops:
            if pieces and (together or pieces[-1][-1].large == op.large):
                pieces[-1].append(op)
            else:
                pieces.append([op])
        last = {name: number for number, op in enumerate(plan.ops) for name in op.reads}
        stages = []
        number = 0
        for piece in pieces:
            first, stop = number, number + len(piece)
            written = {op.writes for op in piece}
            before = {op.writes for op in plan.ops[:first]}
            reads = {name for op in piece for name in (*op.reads, op.writes) if name in before}
            reads -= {op.writes for op in piece if last.get(op.writes, -1) < first and op.writes not in plan.kept}
            drops = []
            for op in piece:
                ends = dict.fromkeys(name for name in op.reads if last[name] == number and name not in plan.kept)
                drops.append(tuple(ends))
                number += 1
            alive = [name for name in written if name in plan.kept or last.get(name, -1) >= stop]
            ended = [name for name in reads if name not in plan.kept and last.get(name, -1) < stop]
            stages.append(
                Stage(
                    piece[0].large and not together,
                    tuple(piece),
                    tuple(drops),
                    tuple(sorted(reads)),
                    tuple(sorted(alive)),
                    tuple(sorted(set(ended) - written)),
                )
            )
        return tuple(stages)

    @cached_property
    def deviations(self) -> dict[str, Array]:
        """sigma n_in**-0.5 of every member of each weight family."""
        return {
            weight.name: np.sqrt(
                index_array(self.netsor, weight.variance, weight.indices).reshape(-1)
                / self.plan.widths[weight.shape[1]]
            )
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
    netsor: Netsor, width: int, seed: int, method: str, coordinates: int, keep: Sequence[str], dtype: str
) -> Job:
    """Check the arguments of a run, plan it and choose its block size.

    Raises    ProgramError
    """
    if isinstance(width, bool) or not hasattr(width, "__index__") or width < 1:
        raise ProgramError(f"width must be a whole number of at least 1, not {width!r}")
    if not hasattr(seed, "__index__") or seed < 0:
        raise ProgramError(f"seed must be a whole number of at least 0, not {seed!r}")
    if isinstance(coordinates, bool) or not hasattr(coordinates, "__index__"):
        raise ProgramError(f"coordinates must be a whole number, not {coordinates!r}")
    if coordinates < 1 or coordinates > width:
        raise ProgramError(f"coordinates must lie between 1 and the width {width}, not {coordinates}")
    if dtype not in ("float64", "float32"):
        raise ProgramError(f"dtype must be float64 or float32, not {dtype!r}")
    if method not in (*METHODS, "auto"):
        raise ProgramError(f"there is no method {method!r}; choose auto, {', '.join(METHODS)}")
    scores = [s.target.name for s in netsor.body if isinstance(s, Dot)]
    check_kept(netsor, keep)
    kept = tuple(dict.fromkeys([*netsor.outputs, *keep, *scores]))
    decided = plan(netsor, int(width), coordinates, kept, method)
    for name in kept:
        family = netsor.families[name]
        if family.kind == "vector" and decided.widths[family.width] < coordinates:
            raise ProgramError(
                f"{name} has only {decided.widths[family.width]} coordinates at n = {width}, "
                f"{coordinates} were asked for"
            )
    one = Job(netsor, decided, int(seed), 1, 1, dtype)
    over_block, over_part = (held * np.dtype(dtype).itemsize + 1 for held in one.held)
    fit = BLOCK_BYTES / over_block
    fit = max(fit, min(FEW, 4 * fit))  # fewer networks would not outweigh the interpreter
    block = _power_of_two(min(MAX_BLOCK, fit, BLOCK_NANOSECONDS / (decided.work + 1)))
    return replace(one, block=block, part=min(block, _power_of_two(PART_BYTES / over_part)))


def _power_of_two(number: float) -> int:
    return 1 << int(math.log2(max(1.0, number)))

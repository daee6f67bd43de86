"""A run decided: the program, its plan, the block size and the seed; all that a worker needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.errors import ProgramError, did_you_mean
from tensorprog.evaluate import index_array
from tensorprog.finite.dense import Dense
from tensorprog.finite.lazy import Lazy
from tensorprog.finite.plan import Plan, plan
from tensorprog.grouping import Grouping
from tensorprog.initials import InitialLaw, initial_laws
from tensorprog.ir import Dot, MatMul, Netsor
from tensorprog.order import Step, steps

__all__ = ["METHODS", "Job", "make_job"]

Array = NDArray[Any]
METHODS: dict[str, type[Dense] | type[Lazy]] = {"dense": Dense, "lazy": Lazy}
BLOCK_BYTES = 4 << 20  # aimed at for the numbers of one block: they should stay in cache
MAX_BLOCK = 1024


@dataclass(frozen=True)
class Job:
    """All a worker needs to draw any block of networks."""

    netsor: Netsor
    plan: Plan
    seed: int
    block: int
    method: str
    coordinates: int
    kept: tuple[str, ...]
    dtype: str

    @cached_property
    def order(self) -> list[Step]:
        """The steps of every block."""
        return steps(self.netsor)

    @cached_property
    def groups(self) -> list[Grouping | None]:
        """How each MatMul step meets its weights."""
        ranges, families = self.netsor.ranges, self.netsor.families
        return [
            Grouping(step.statement, families[step.statement.weight.name], step.ranges(ranges))
            if isinstance(step.statement, MatMul)
            else None
            for step in self.order
        ]

    @cached_property
    def initials(self) -> dict[str, InitialLaw]:
        """Means, covariances and factors of the initial vectors."""
        return initial_laws(self.netsor)

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
    method = "lazy" if method == "auto" else method
    if method not in METHODS:
        raise ProgramError(f"there is no method {method!r}; choose auto, {', '.join(METHODS)}")
    scores = [s.target.name for s in netsor.body if isinstance(s, Dot)]
    for name in keep:
        if name not in netsor.families or netsor.families[name].kind == "weight":
            raise ProgramError(
                f"keep: {name} is not a vector or scalar of the program; {did_you_mean(name, list(netsor.families))}"
            )
    kept = tuple(dict.fromkeys([*netsor.outputs, *keep, *scores]))
    decided = plan(netsor, int(width), coordinates, kept, method)
    for name in kept:
        family = netsor.families[name]
        if family.kind == "vector" and decided.widths[family.width] < coordinates:
            raise ProgramError(
                f"{name} has only {decided.widths[family.width]} coordinates at n = {width}, "
                f"{coordinates} were asked for"
            )
    itemsize = np.dtype(dtype).itemsize
    block = max(1, min(MAX_BLOCK, 1 << int(math.log2(max(1.0, BLOCK_BYTES / max(1, decided.floats * itemsize))))))
    return Job(netsor, decided, int(seed), block, method, coordinates, kept, dtype)

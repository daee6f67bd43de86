"""The module itself, redrawn by its own initialisers, beside the program and beside its limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorprog.blocks import Block, paragraph
from tensorprog.importing.agreement import outputs_of
from tensorprog.language.errors import (
    AccuracyError,
    MemoryLimitError,
    NotCompiledError,
    OutsideError,
    check_count,
    fail,
)
from tensorprog.language.samples import Samples
from tensorprog.program import Program
from tensorprog.results.comparison import Comparison, compare

__all__ = ["ModuleComparison", "compared"]


@dataclass(frozen=True, repr=False)
class ModuleComparison(Comparison):
    """A module beside the program that was made of it, at one width; `limit` sets it beside the limit."""

    limit: Comparison | None = None
    refused: str = ""  # why there is no limit to compare with
    left_out: tuple[str, ...] = ()  # parameters that vanish as the width grows, which only the module has

    @property
    def title(self) -> str:
        """What is compared with what."""
        return f"the module of width {self.width} against the program {self.program} at n = {self.width}"

    def blocks(self) -> list[Block]:
        """The table against the program, and the one against the limit."""
        found = [*super().blocks(), *(self.limit.blocks() if self.limit else ())]
        if self.left_out:
            names = ", ".join(self.left_out[:4]) + (", .." if len(self.left_out) > 4 else "")
            found.append(
                paragraph(
                    f"The program has no {names}: they vanish as the width grows, but the module of "
                    f"width {self.width} has them. from_torch(.., at={self.width}) keeps them.",
                    note=True,
                )
            )
        return found


def compared(
    program: Program, make: Callable[[int], Any], inputs: Any, width: int, samples: int, seed: int, limit: bool
) -> ModuleComparison:
    """What `compare_torch` gives."""
    if program.imported is None:
        raise fail(f"{program.name} was not imported from a module", fix="P = tp.from_torch(make, inputs)")
    check_count("samples", samples, 2)
    (name,) = program.netsor.outputs
    began = time.perf_counter()
    shape = program.netsor.families[name].shape
    values, where = np.empty((samples, *shape)), np.random.default_rng(seed)
    with closing(outputs_of(make, inputs, width, program.imported.layout, seed)) as modules:
        for value, (members, _) in zip(values, modules, strict=False):  # coordinates may have positions of their own
            value[...] = members[..., int(where.random() * members.shape[-1])]
    values /= width ** float(program.imported.power)
    module = Samples(program.netsor, {name: values}, samples, seed, "torch", width, seconds=time.perf_counter() - began)
    networks = program.run(width, samples, seed=seed + 1)
    found = compare(module, networks)
    beside, refused = None, ""
    if limit:
        try:
            beside = compare(module, program.limit())
        except (OutsideError, NotCompiledError, AccuracyError, MemoryLimitError) as error:
            refused = str(error)
    return ModuleComparison(
        found.rows,
        found.width,
        found.reference,
        found.program,
        found.averages,
        beside,
        refused,
        tuple(fate.parameter for fate in program.imported.fates if "left out" in fate.became),
    )

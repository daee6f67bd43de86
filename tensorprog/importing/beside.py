"""The module itself, redrawn by its own initialisers, beside the program and beside its limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensorprog.blocks import Block, paragraph
from tensorprog.importing.capture import inputs_at
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
    values = _drawn(make, inputs, width, samples, seed, program.imported.layout, shape)
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


def _drawn(
    make: Callable[[int], Any],
    inputs: Any,
    width: int,
    samples: int,
    seed: int,
    layout: Sequence[tuple[int, int, int]],
    shape: tuple[int, ...],
) -> Any:
    """The output of so many modules, one coordinate of each: (samples, *members)."""
    tensors, generator = inputs_at(inputs, width), np.random.default_rng(seed)
    values = np.empty((samples, *shape))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        before: list[Any] = []
        for k in range(samples):
            module = make(width).eval()
            if k < 2:
                drawn = [parameter.detach().clone() for parameter in module.parameters()]
                if before and all(torch.equal(one, other) for one, other in zip(before, drawn, strict=True)):
                    raise fail(f"make({width}) gives the same numbers each time", fix="set no seed inside of make")
                before = drawn
            result = module(*(tensor.clone() for tensor in tensors))
            first = next(leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
            values[k] = _members(first.double().numpy(), layout, generator.random())
    return values


def _members(array: Any, layout: Sequence[tuple[int, int, int]], where: float) -> Any:
    """The members of the output's family among the entries of the module's output; of a width the coordinate at
    `where`, from 0 to 1: coordinates with positions of their own are not alike."""
    sizes: list[int] = []
    for axis, size in enumerate(array.shape):
        inside = [entry[2] for entry in layout if entry[0] == axis]
        known = int(np.prod([entry for entry in inside if entry], dtype=int))
        sizes += [entry or size // known for entry in inside]
    split = array.reshape(sizes)
    index = tuple(
        slice(None) if place >= 0 else int(where * size) for size, (_, place, _) in zip(sizes, layout, strict=True)
    )
    places = [place for _, place, _ in layout if place >= 0]
    return np.transpose(split[index], np.argsort(places))

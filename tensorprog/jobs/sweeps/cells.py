"""One cell: its random stream, what its numbers depend on, its draws and their comparison with the limit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.job import Job, make_job
from tensorprog.finite.store import settings
from tensorprog.finite.workers import Packed, opened
from tensorprog.jobs.sweeps.design import Cell, Design
from tensorprog.jobs.sweeps.fields import NUMBERS
from tensorprog.language.errors import MemoryLimitError, NotCompiledError, OutsideError, ProgramError, TensorprogError
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import Samples
from tensorprog.program import Program
from tensorprog.results.comparison import compare
from tensorprog.results.law_summary import Reference, split

__all__ = ["Drawn", "Limits", "Numbers", "draw", "identity", "job_of", "named", "numbers", "stream"]

Array = NDArray[Any]
Drawn = dict[str, Array]  # variable -> its draws, and mean and variance of its conditional laws if it has them
Numbers = dict[str, dict[str, float | None]]  # variable -> field -> number; None where there is none


def stream(seed: int, cell: Cell) -> int:
    """The seed of a cell: of the sweep's seed, the program's constants, the width and the repeat, and of nothing else.

    Derived by SeedSequence, so that streams of different cells are independent.
    """
    scalars = cell.setting.netsor.scalars
    text = json.dumps({name: float(scalars[name] or 0) for name in sorted(scalars)})
    words = np.frombuffer(hashlib.sha256(text.encode()).digest(), "<u4").tolist()
    sequence = np.random.SeedSequence(seed, spawn_key=(*words, cell.width, cell.repeat))
    return int(sequence.generate_state(1, np.uint64)[0])


@contextmanager
def named(cell: str) -> Iterator[None]:
    """Say of every error inside the block in which cell it happened; its type stays what it is."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the cell {cell} of the sweep")
        raise


def job_of(design: Design, cell: Cell) -> Job:
    """The program, the width and the seed of a cell, planned."""
    setting = cell.setting
    keep = _kept(setting.netsor, design.variables)
    return make_job(setting.netsor, cell.width, stream(design.seed, cell), "auto", 1, keep, "float64")


def _kept(netsor: Netsor, variables: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(split(netsor, variable)[0] for variable in variables))


def identity(design: Design, cell: Cell) -> dict[str, Any]:
    """Everything that a cell's numbers depend on, as plain values."""
    return settings(job_of(design, cell)) | {
        "samples": design.samples, "variables": list(design.variables), "numbers": list(NUMBERS),
        "conditional": cell.setting.conditional is not None}


def draw(
    cell: Job | Packed, samples: int, variables: Sequence[str], conditional: bool, threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Drawn:
    """Draw the networks of a cell, in this process or another, and keep the columns that are compared.

    Shapes    variable -> (1 or 3, samples)
    Scale     results that memory would not hold, such as scores of many heads, pass through a temporary folder
    """
    job = opened(cell) if isinstance(cell, Packed) else cell
    program = Program.from_netsor(job.netsor)
    assert isinstance(program, Program)
    run = partial(program.run, job.plan.width, samples, seed=job.seed, keep=_kept(job.netsor, variables),
                  threads=threads, progress=progress, conditional=conditional)
    try:
        return _columns(run(), variables)
    except MemoryLimitError:
        with TemporaryDirectory() as folder:
            return _columns(run(store=folder), variables)


def _columns(drawn: Samples, variables: Sequence[str]) -> Drawn:
    found = {}
    for variable in variables:
        name, position = split(drawn.netsor, variable)
        arrays = (drawn[name], *drawn.conditional.get(name, ()))
        found[variable] = np.array([array.reshape(len(array), -1)[:, position] for array in arrays])
    return found


class Limits:
    """The limits of settings, each compiled when it is first asked for."""

    def __init__(self, design: Design) -> None:
        self._variables = design.variables
        self._known: dict[tuple[int, ...], tuple[Reference | None, str]] = {}

    def of(self, cell: Cell) -> tuple[Reference | None, str]:
        """The limit of a cell's program, and why there is none of all or some variables."""
        key = cell.setting.position
        if key not in self._known:
            self._known[key] = _compiled(cell.setting.netsor, _kept(cell.setting.netsor, self._variables))
        return self._known[key]

    def forget(self, cell: Cell) -> None:
        """Let go of what a setting's limit holds in memory."""
        self._known.pop(cell.setting.position, None)


def _compiled(netsor: Netsor, families: Sequence[str]) -> tuple[Reference | None, str]:
    program = Program.from_netsor(netsor)
    assert isinstance(program, Program)
    missing = []
    try:
        reference = Reference(program.limit())
        for name in families:
            try:
                reference.moments(name)
            except (NotCompiledError, MemoryLimitError) as error:
                missing.append(str(error))
        return reference, "; ".join(missing)
    except OutsideError:
        return None, "outside the theory"
    except ProgramError:
        raise
    except TensorprogError as error:
        return None, str(error)


def numbers(design: Design, cell: Cell, drawn: Drawn, reference: Reference | None) -> Numbers:
    """Compare the draws of each variable with the limit; None where a number does not exist."""
    found: Numbers = {}
    for variable, values in drawn.items():
        (row,) = compare(_samples(design, cell, variable, values), reference, [variable]).rows
        fields: Mapping[str, Any] = row.to_json()
        found[variable] = {name: fields[name] for name in NUMBERS}
    return found


def _samples(design: Design, cell: Cell, variable: str, columns: Array) -> Samples:
    """Samples of which one member is read: all members of its family are views of its draws."""
    netsor = cell.setting.netsor
    name, _ = split(netsor, variable)
    shape = netsor.families[name].shape
    size = columns.shape[1]
    values, *law = (np.broadcast_to(part.reshape(size, *(1 for _ in shape)), (size, *shape)) for part in columns)
    conditional = {name: (law[0], law[1])} if law else {}
    return Samples(netsor, {name: values}, size, stream(design.seed, cell), "auto", cell.width, conditional=conditional)

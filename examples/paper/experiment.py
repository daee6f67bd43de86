"""What the figures are made of: networks of shipped programs, their limits, and tables of what is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog.results.reference import Reference

Array = NDArray[Any]
Table = dict[str, Array]  # columns of equal length

WIDTHS = (16, 64, 256, 1024)
OUTPUT = "y[0]"  # the variable of the figures but that of scores
HEADS = "a"  # the index of heads in the programs of attention


class Listener:
    """Hears what is being done; this one keeps it for itself."""

    progress = None

    def stage(self, text: str) -> None:
        """A step begins."""


@dataclass(frozen=True)
class Settings:
    """Networks at each width, the seed from which all others follow, the trials of the KL figures; what networks may
    take of memory, on which no number depends.
    """

    samples: int = 50_000
    seed: int = 0
    repeats: int = 10
    max_memory: str | int = "3GiB"  # 50,000 networks of 256 heads have 1.6 GiB of scores

    @property
    def numbers(self) -> dict[str, int]:
        """What the figures depend on."""
        return {"samples": self.samples, "seed": self.seed, "repeats": self.repeats}


@dataclass(frozen=True)
class Case:
    """A shipped program at one width.  `scale` multiplies its outputs, where the paper's differ by a factor."""

    program: str
    width: int
    constants: tuple[tuple[str, float], ...]
    scale: float = 1.0

    @property
    def loaded(self) -> tp.Program:
        """The program with its constants."""
        return _loaded(self.program, self.constants)

    @property
    def reference(self) -> Reference:
        """The limit, compiled once for all figures."""
        return _reference(self.program, self.constants)

    @property
    def heads(self) -> int:
        """H."""
        return int(dict(self.constants)["H"])

    @property
    def key(self) -> dict[str, float]:
        """Columns by which tables tell cases apart."""
        return {"n": self.width, "H": self.heads}

    def networks(self, settings: Settings, told: Listener, trial: int = 0, **options: Any) -> tp.Samples:
        """Independent networks; trial 0 is that of the densities, whichever figure asks."""
        told.stage(f"{self.program}, H = {self.heads}, n = {self.width}")
        return self.loaded.run(
            self.width,
            settings.samples,
            seed=seed_of(settings, trial, self.width),
            max_memory=settings.max_memory,
            progress=told.progress,
            **options,
        )

    def run(self, net: tp.Samples) -> dict[str, Any]:
        """How networks were drawn, for the numbers beside a figure."""
        return {"networks": net.samples, "seed": net.seed, "method": net.method, "seconds": net.seconds}

    def limit_draws(self, settings: Settings, trial: int) -> Array:
        """Draws of the output from the limit, as many as networks.

        Shapes    (samples,)
        """
        return self.reference.law.sample(settings.samples, seed=seed_of(settings, trial, 0))["y"][:, 0]

    @property
    def spread(self) -> float:
        """Standard deviation of the output in the limit, without the scale."""
        return math.sqrt(self.reference.law.var(OUTPUT))


@cache
def _loaded(program: str, constants: tuple[tuple[str, float], ...]) -> tp.Program:
    return tp.load(program, **dict(constants))


@cache
def _reference(program: str, constants: tuple[tuple[str, float], ...]) -> Reference:
    return Reference(_loaded(program, constants).limit())


def seed_of(settings: Settings, trial: int, width: int) -> int:
    """The seed of one run; width 0 is the limit."""
    return int(np.random.SeedSequence([settings.seed, trial, width]).generate_state(1)[0])


@dataclass
class Data:
    """Everything a figure draws, and the numbers it shows.

    `tables` go to CSV files, `numbers` to the JSON file beside the picture; `lines` say the most important ones.
    """

    tables: dict[str, Table] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


class Drawing(Protocol):
    """A part of a figure: data first, then panels drawn from the data alone."""

    @property
    def panels(self) -> int:
        """Panels side by side."""

    def data(self, settings: Settings, told: Listener) -> Data:
        """Draw networks, compile limits, measure."""

    def draw(self, axes: Sequence[Any], data: Data) -> list[Any]:
        """Draw into axes, and give the entries of the legend."""


@dataclass(frozen=True)
class Together:
    """Several parts in one figure, by name; their tables and numbers are told apart by it."""

    parts: Mapping[str, Drawing]

    @property
    def panels(self) -> int:
        """Those of all parts."""
        return sum(part.panels for part in self.parts.values())

    def data(self, settings: Settings, told: Listener) -> Data:
        """The data of all parts."""
        whole = Data()
        for name, part in self.parts.items():
            found = part.data(settings, told)
            whole.tables |= {f"{name}_{key}".rstrip("_"): table for key, table in found.tables.items()}
            whole.numbers[name] = found.numbers
            whole.lines += found.lines
        return whole

    def draw(self, axes: Sequence[Any], data: Data) -> list[Any]:
        """Each part into its own axes; entries of the legend that look the same appear once."""
        handles: dict[str, Any] = {}
        start = 0
        for name, part in self.parts.items():
            own = Data(
                {
                    key.removeprefix(name).removeprefix("_"): table
                    for key, table in data.tables.items()
                    if key == name or key.startswith(f"{name}_")
                },
                data.numbers[name],
            )
            for handle in part.draw(axes[start : start + part.panels], own):
                handles.setdefault(handle.get_label(), handle)
            start += part.panels
        return list(handles.values())


def stacked(rows: Sequence[tuple[Mapping[str, float], Mapping[str, Array]]]) -> Table:
    """One table in long form: columns that name the case, then its arrays."""
    parts = [
        {name: np.full(len(next(iter(arrays.values()))), value) for name, value in key.items()} | dict(arrays)
        for key, arrays in rows
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def chosen(table: Table, key: Mapping[str, float]) -> Table:
    """The rows of one case."""
    rows = np.logical_and.reduce([table[name] == value for name, value in key.items()])
    return {name: values[rows] for name, values in table.items()}

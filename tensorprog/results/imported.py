"""`Imported`: what became of a torch module: its parameters with their laws and powers of n, and what was left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tensorprog.blocks import Block, Grid, paragraph
from tensorprog.blocks.html import Printed

__all__ = ["Fate", "Imported"]


@dataclass(frozen=True)
class Fate:
    """One parameter: the law of its entries at the widths that were looked at, and what it became in the program.

    `exponent` is the power of n by which the variance grows, times the fan-in for weights: 0 stays in the limit, what
    is negative vanishes, what is positive diverges.
    """

    parameter: str
    law: str
    became: str
    exponent: Fraction = Fraction(0)
    variances: tuple[float, float] = (0.0, 0.0)  # of an entry, at the two widths
    gaussian: bool = True  # else what became of it is a function of a Gaussian vector, if it is not a weight

    @property
    def verdict(self) -> str:
        """What happens as the width grows."""
        return "stays" if not self.exponent else "vanishes" if self.exponent < 0 else "diverges"

    @property
    def alike(self) -> str:
        """Its path, the same for parameters that are alike in all layers."""
        return re.sub(r"(^|\.)\d+(?=\.)", r"\1*", self.parameter)


@dataclass(frozen=True, repr=False)
class Imported(Printed):
    """The story of an import: of which module, at which widths, each parameter, notes, and the commented file."""

    module: str
    widths: tuple[int, int]
    at: int | None
    fates: tuple[Fate, ...]
    notes: tuple[str, ...]
    text: str = field(repr=False)  # the program file, with comments
    arrays: Mapping[str, Any] = field(repr=False)  # data files beside it, by name
    power: Fraction = Fraction(0)  # of n, by which the module's output is divided
    layout: tuple[tuple[int, int, int], ...] = ()  # of the output: axis, place in the family, size; see `importing`

    def __getitem__(self, parameter: str) -> Fate:
        return next(fate for fate in self.fates if fate.parameter == parameter)

    def behind(self, weights: Collection[str], vectors: Collection[str]) -> dict[tuple[str, ...], list[Fate]]:
        """The parameters behind weights, or behind initial vectors, of those that are given.

        What became both is none: its entries are numbers, which random vectors with their law stand for.
        """
        found: dict[tuple[str, ...], list[Fate]] = {}
        for fate in self.fates:
            names = tuple(name for name in fate.became.split(", ") if name in weights or name in vectors)
            if len({name in weights for name in names}) == 1:
                found.setdefault(names, []).append(fate)
        return found

    def blocks(self) -> list[Block]:
        """The table of parameters, those of layers that are alike in one row, and the notes below."""
        frozen = f", variances as they are at n = {self.at}" if self.at else ""
        alike: dict[tuple[str, ...], list[str]] = {}
        for fate in self.fates:
            power = f"n**{fate.exponent}" if fate.exponent else "1"
            key = fate.alike, fate.law, power, fate.verdict, fate.became
            alike.setdefault(key, []).append(fate.parameter)
        rows = tuple(
            (names[0] if len(names) == 1 else f"{key[0]} ({len(names)})", *key[1:]) for key, names in alike.items()
        )
        grid = Grid(
            f"{self.module} at widths {self.widths[0]} and {self.widths[1]}{frozen}",
            ("parameter", "law of its entries", "power of n", "with n it", "in the program"),
            rows,
        )
        return [grid, *(paragraph(note, note=True) for note in self.notes)]

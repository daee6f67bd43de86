"""The plan of a finite run: how every vector is represented, in which order things are drawn, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tensorprog.blocks import Block, Grid, code
from tensorprog.blocks.html import Shown
from tensorprog.blocks.text import to_text
from tensorprog.finite.frames import Draw
from tensorprog.language.initials import InitialLaw
from tensorprog.language.ir import Netsor
from tensorprog.language.schedule import Step
from tensorprog.language.weight_members import Grouping

__all__ = ["Op", "Plan", "PlanRow"]


@dataclass(frozen=True)
class Op:
    """One action on a block of networks.

    "gram" makes the inner products of packed vectors, "factor" a matrix L with L L^T equal to them; MatMuls of weights
    used once share these by their `key`.  An op is `large` if it touches arrays over all coordinates.
    """

    kind: Literal["initial", "gram", "factor", "matmul", "dot", "nonlin"]
    at: int  # place in `Plan.order`; for "initial" in `Netsor.initial`
    large: bool
    key: str = ""
    reads: tuple[str, ...] = ()
    writes: str = ""


@dataclass(frozen=True)
class PlanRow:
    """What the plan says of one line of the program."""

    line: str
    representation: str
    normals: int
    chi_squares: int


@dataclass(frozen=True)
class Plan(Shown):
    """The decisions taken before any number is drawn; `str` prints them as a table.

    Shapes    `normals` and `chi_squares` are drawn per network; `work` are rough nanoseconds per network on one core
    Source    the law is that of the dense program at every width: conditional Gaussians given earlier products, and
              Bartlett's decomposition where only inner products are read
    """

    netsor: Netsor = field(repr=False)
    width: int
    method: str
    coordinates: int
    kept: tuple[str, ...]
    widths: Mapping[str, int]
    full: frozenset[str]  # vectors in all coordinates
    lengths: Mapping[str, int] = field(repr=False)  # numbers per vector of every family
    seen: Mapping[str, int] = field(repr=False)  # of framed families: coordinates in front of the frame
    ones: Mapping[str, int | None] = field(repr=False)  # of framed families: place of the constant's direction
    draws: Mapping[str | int, Draw] = field(repr=False)  # by initial family or place in the order
    order: tuple[Step, ...] = field(repr=False)
    groups: tuple[Grouping | None, ...] = field(repr=False)
    fresh: Mapping[int, int] = field(repr=False)  # Gaussian vectors per weight member of each MatMul step
    later: frozenset[int] = field(repr=False)  # MatMul steps whose weight is used again
    capacity: Mapping[str, int] = field(repr=False)  # products of one member of each weight, at most
    offset: frozenset[int] = field(repr=False)  # statements: Nonlins with a constant summand
    ops: tuple[Op, ...] = field(repr=False)
    initials: Mapping[str, InitialLaw] = field(repr=False)
    rows: tuple[PlanRow, ...] = field(repr=False)
    normals: int = 0
    chi_squares: int = 0
    work: float = 0.0
    matrices: str = ""  # why no other method will do

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {
            "width": self.width,
            "method": self.method,
            "normals": self.normals,
            "chi_squares": self.chi_squares,
            "statements": [vars(row) for row in self.rows],
        }

    @property
    def title(self) -> str:
        """Method and random numbers of the whole."""
        return (
            f"{self.netsor.name} at n = {self.width}: method {self.method}"
            + (f" ({self.matrices})" if self.matrices else "")
            + f", {self.normals:,} normals"
            + (f" and {self.chi_squares:,} chi-squares" if self.chi_squares else "")
            + " per network"
        )

    def blocks(self) -> list[Block]:
        """The title, and one row for each line of the program."""
        header = ("statement", "representation", "normals", "chi-squares")[: 4 if self.chi_squares else 3]
        rows = tuple(
            (code(row.line), row.representation, f"{row.normals:,}" if row.normals else "", f"{row.chi_squares or ''}")
            [: len(header)] for row in self.rows
        )
        return [Grid(self.title, header, rows, text_columns=(0, 1))]

    def __str__(self) -> str:
        return to_text(self.blocks())

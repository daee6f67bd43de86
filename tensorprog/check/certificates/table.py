"""The facts of every statement of a program as rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from tensorprog.blocks import Grid
from tensorprog.check.certificates.profile import Kinks, shown, shown_kinks
from tensorprog.check.certificates.program import PROPERTIES, Calculus
from tensorprog.language.atoms import Interval
from tensorprog.language.expr import Variable
from tensorprog.language.ir import Netsor, Nonlin

__all__ = ["FactRow", "Loss", "facts_blocks", "facts_table"]

PARITIES = {1: "even", -1: "odd", 0: ""}
TRENDS = {1: "nondecreasing", -1: "nonincreasing", 0: ""}


class Loss(NamedTuple):
    """A property that a function of bounded, or of Gaussian, arguments loses: in which statement and part, and why."""

    property: str
    statement: str
    part: str
    why: str


class FactRow(NamedTuple):
    """What is certified of one statement, as a function of G-vars, initial vectors, scores and averages.

    `range`, `growth`, `order`, `parity`, `monotone`, `kinks` as in `Profile`; inf, 0 and None: not known, or not so.
    `partial`: why the value may be no real number somewhere, else "".  `lost`: the functions, here or before, by which
    a Nonlin is not known to be bounded, pseudo-Lipschitz or controlled.
    """

    statement: str
    range: Interval
    growth: float
    order: float
    parity: int
    monotone: int
    kinks: Kinks
    partial: str = ""
    lost: tuple[Loss, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data; null: infinite, or not known."""
        low, high, growth, order = (x if math.isfinite(x) else None for x in (*self.range, self.growth, self.order))
        kinks = None if self.kinks is None else shown_kinks(self.kinks)
        return {
            "statement": self.statement,
            "range": [low, high],
            "growth": growth,
            "order": order,
            "parity": PARITIES[self.parity],
            "monotone": TRENDS[self.monotone],
            "kinks": kinks,
            "partial": self.partial,
            "lost": [loss._asdict() for loss in self.lost],
        }

    def cells(self) -> tuple[str, ...]:
        """The row as text: statement, range, growth, order, parity, monotone, kinks."""
        numbers, shape = (f"{self.growth:g}", f"{self.order:g}"), (PARITIES[self.parity], TRENDS[self.monotone])
        return self.statement, shown(self.range), *numbers, *shape, shown_kinks(self.kinks)


def facts_table(netsor: Netsor) -> tuple[FactRow, ...]:
    """One row for each statement, in the order of the program.

    Scale     work and rows grow with the lines of the program, not with its families
    """
    calculus = Calculus(netsor)
    rows = []
    for position, statement in enumerate(netsor.body):
        p = calculus.written(position)
        partial = p.partial.reason if p.partial else ""
        lost = tuple(_lost(calculus, position)) if isinstance(statement, Nonlin) else ()
        rows.append(
            FactRow(str(statement.target), p.interval, p.growth, p.order, p.parity, p.monotone, p.kinks, partial, lost)
        )
    return tuple(rows)


def _lost(calculus: Calculus, position: int) -> Iterator[Loss]:
    """Why a statement's value lacks properties, unless G-vars lack them; where it may be no real number, this alone."""
    p = calculus.statement(position)
    for name in (name for name, known in PROPERTIES.items() if not known.certified(p)):
        fault = calculus.blame(name, position)
        if not isinstance(fault.expr, Variable):
            at = str(calculus.netsor.body[fault.position].target)
            yield Loss("real" if p.partial else name, at, str(fault.expr), fault.reason)
        if p.partial:
            return


def facts_blocks(netsor: Netsor) -> tuple[Grid, ...]:
    """What is certified of each statement; then, where functions lose a property, which of them and why."""
    rows = facts_table(netsor)
    header = ("statement", "range", "growth", "order", "parity", "monotone", "kinks")
    note = "as functions of G-vars, initial vectors, scores and averages; order: pseudo-Lipschitz"
    facts = Grid("", header, tuple(row.cells() for row in rows), note, text_columns=(0, 1, 4, 5, 6))
    losses = dict.fromkeys(
        (each.statement, each.property, f"{each.part}: {each.why}") for row in rows for each in row.lost
    )
    lost = Grid("", ("lost in", "property", "by"), tuple(losses), text_columns=(0, 1, 2))
    return (facts, lost) if losses else (facts,)

"""The facts of every statement of a program as rows of a table."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tensorprog.atoms import Interval
from tensorprog.calculus.profile import Kinks, shown, shown_kinks
from tensorprog.calculus.program import Calculus
from tensorprog.ir import Netsor

__all__ = ["FactRow", "facts_table"]

PARITIES = {1: "even", -1: "odd", 0: ""}
TRENDS = {1: "nondecreasing", -1: "nonincreasing", 0: ""}


class FactRow(NamedTuple):
    """What is certified of one statement, as a function of G-vars, initial vectors, scores and averages.

    `range`, `growth`, `order`, `parity`, `monotone`, `kinks` as in `Profile`; inf, 0 and None: not known, or not so.
    `partial`: why the value may be no real number somewhere, else "".
    """

    statement: str
    range: Interval
    growth: float
    order: float
    parity: int
    monotone: int
    kinks: Kinks
    partial: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data; null: infinite, or not known."""
        low, high, growth, order = (
            x if math.isfinite(x) else None for x in (*self.range, self.growth, self.order)
        )
        kinks = None if self.kinks is None else shown_kinks(self.kinks)
        return {"statement": self.statement, "range": [low, high], "growth": growth, "order": order,
                "parity": PARITIES[self.parity], "monotone": TRENDS[self.monotone], "kinks": kinks,
                "partial": self.partial}

    def cells(self) -> tuple[str, ...]:
        """The row as text: statement, range, growth, order, parity, monotone, kinks."""
        numbers, shape = (f"{self.growth:g}", f"{self.order:g}"), (PARITIES[self.parity], TRENDS[self.monotone])
        return self.statement, shown(self.range), *numbers, *shape, shown_kinks(self.kinks)


def facts_table(netsor: Netsor, calculus: Calculus | None = None) -> tuple[FactRow, ...]:
    """One row for each statement, in the order of the program.

    Scale     work and rows grow with the lines of the program, not with its families
    """
    calculus = calculus or Calculus(netsor)
    rows = []
    for position, statement in enumerate(netsor.body):
        p = calculus.written(position)
        partial = p.partial.reason if p.partial else ""
        rows.append(
            FactRow(str(statement.target), p.interval, p.growth, p.order, p.parity, p.monotone, p.kinks, partial)
        )
    return tuple(rows)

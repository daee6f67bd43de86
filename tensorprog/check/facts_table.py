"""The facts of every statement of a program as rows of a table."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tensorprog.blocks import Grid
from tensorprog.check.facts import ALL, Calculus, shown
from tensorprog.language.atoms import Interval
from tensorprog.language.ir import Netsor

__all__ = ["FactRow", "facts_blocks", "facts_table"]


class FactRow(NamedTuple):
    """What is certain of one statement, as a function of MatMul outputs, initial vectors, scores and averages.

    `range`, `growth`, `order`: inf where nothing is known, or it may be no real number.
    """

    statement: str
    range: Interval
    growth: float
    order: float

    def to_json(self) -> dict[str, Any]:
        """Return plain data; null: infinite, or not known."""
        low, high, growth, order = (x if math.isfinite(x) else None for x in (*self.range, self.growth, self.order))
        return {"statement": self.statement, "range": [low, high], "growth": growth, "order": order}


def facts_table(netsor: Netsor) -> tuple[FactRow, ...]:
    """One row for each statement, in the order of the program."""
    calculus = Calculus(netsor)
    found = [(str(statement.target), calculus.statement(position)) for position, statement in enumerate(netsor.body)]
    return tuple(
        FactRow(name, facts.interval, facts.growth, facts.order)
        if facts.real
        else FactRow(name, ALL, math.inf, math.inf)
        for name, facts in found
    )


def facts_blocks(netsor: Netsor) -> tuple[Grid, ...]:
    """What is certain of each statement."""
    rows = facts_table(netsor)
    cells = tuple((row.statement, shown(row.range), f"{row.growth:g}", f"{row.order:g}") for row in rows)
    note = "as functions of G-vars, initial vectors, scores and averages; order: pseudo-Lipschitz"
    return (Grid("", ("statement", "range", "growth", "order"), cells, note, text_columns=(0, 1)),)

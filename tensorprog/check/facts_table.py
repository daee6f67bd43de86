"""The facts of every statement of a program as rows of a table."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tensorprog.blocks import Grid
from tensorprog.check.facts import PROPERTIES, Calculus, shown
from tensorprog.language.atoms import Interval
from tensorprog.language.expr import Variable
from tensorprog.language.ir import Netsor, Nonlin

__all__ = ["FactRow", "Loss", "facts_blocks", "facts_table"]


class Loss(NamedTuple):
    """A property that a statement's value lacks: by which part of which statement, and why."""

    property: str
    statement: str
    part: str
    why: str


class FactRow(NamedTuple):
    """What is certain of one statement, as a function of MatMul outputs, initial vectors, scores and averages.

    `range`, `growth`, `order`: inf where nothing is known.  `lost`: the functions, here or before, by which a Nonlin is
    not known to be a real number, bounded, pseudo-Lipschitz or controlled.
    """

    statement: str
    range: Interval
    growth: float
    order: float
    lost: tuple[Loss, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data; null: infinite, or not known."""
        low, high, growth, order = (x if math.isfinite(x) else None for x in (*self.range, self.growth, self.order))
        lost = [loss._asdict() for loss in self.lost]
        return {"statement": self.statement, "range": [low, high], "growth": growth, "order": order, "lost": lost}


def facts_table(netsor: Netsor) -> tuple[FactRow, ...]:
    """One row for each statement, in the order of the program."""
    calculus, rows = Calculus(netsor), []
    for position, statement in enumerate(netsor.body):
        found, lost = calculus.statement(position), []
        for name in (name for name, has in PROPERTIES.items() if isinstance(statement, Nonlin) and not has(found)):
            fault = calculus.blame(name, position)
            if not isinstance(fault.expr, Variable):
                lost.append(Loss(name, str(netsor.body[fault.position].target), str(fault.expr), fault.reason))
        if not found.real:
            lost = [loss._replace(property="real") for loss in lost[:1]]
        rows.append(FactRow(str(statement.target), found.interval, found.growth, found.order, tuple(lost)))
    return tuple(rows)


def facts_blocks(netsor: Netsor) -> tuple[Grid, ...]:
    """What is certain of each statement; then, where functions lose a property, which of them and why."""
    rows = facts_table(netsor)
    cells = tuple((row.statement, shown(row.range), f"{row.growth:g}", f"{row.order:g}") for row in rows)
    note = "as functions of G-vars, initial vectors, scores and averages; order: pseudo-Lipschitz"
    facts = Grid("", ("statement", "range", "growth", "order"), cells, note, text_columns=(0, 1))
    losses = dict.fromkeys(
        (loss.statement, loss.property, f"{loss.part}: {loss.why}") for row in rows for loss in row.lost
    )
    lost = Grid("", ("lost in", "property", "by"), tuple(losses), text_columns=(0, 1, 2))
    return (facts, lost) if losses else (facts,)

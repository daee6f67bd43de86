"""`LawPlan`: what a law would compute for a question, how much of it, and what it takes, before it is done."""

from __future__ import annotations

from typing import Any

from tensorprog.blocks import Block, Grid, code
from tensorprog.blocks.html import Shown
from tensorprog.blocks.text import to_text
from tensorprog.language.memory import amount
from tensorprog.limit.moment.planned import DRAWN, GIVEN, STEPPED, Ledger, MomentRow

__all__ = ["LawPlan"]


class LawPlan(Shown):
    """What `law.cov` would compute; `str` prints it as a table, one row for each covariance in between.

    Scale     `numbers` are those of all rows; `seconds`, on one core, and `memory`, the most bytes at a time, are
              rough: every number counts with an error of its own, and nothing as zero.  What is `uncounted`, averages
              over scores and the like, comes on top
    """

    def __init__(self, name: str, asked: str, ledger: Ledger, limit: int, scores: bool) -> None:
        self.name, self.asked, self.limit = name, asked, limit
        done = {row.method for row in ledger.rows}
        counted = {"averages over scores": scores, "averages over draws": any(DRAWN in m for m in done),
                   "the steps of recurrences": STEPPED in done}  # fmt: skip
        self.uncounted = tuple(what for what, there in counted.items() if there)
        self.rows: tuple[MomentRow, ...] = tuple(ledger.rows)
        self.numbers = sum(row.numbers for row in self.rows)
        self.seconds = ledger.nanoseconds / 1e9
        self.memory = ledger.peak

    @property
    def fits(self) -> bool:
        """Whether the memory is within `max_memory`."""
        return self.memory <= self.limit

    @property
    def title(self) -> str:
        """The whole in one sentence."""
        layered = any(row.method == GIVEN for row in self.rows)
        more = f", without {'the time of ' * layered}{' and '.join(self.uncounted)}" if self.uncounted else ""
        within = "within" if self.fits else "more than"
        time = "" if layered else f"about {_rounded(self.seconds)} s and "
        return (
            f"{self.name}, {self.asked}: {self.numbers:,} numbers, {time}{amount(self.memory, up=True)}, {within} "
            f"max_memory, {amount(self.limit)}{more}"
        )

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {
            "asked": self.asked,
            "numbers": self.numbers,
            "seconds": self.seconds,
            "memory": self.memory,
            "max_memory": self.limit,
            "uncounted": list(self.uncounted),
            "moments": [vars(row) | {"families": list(row.families)} for row in self.rows],
        }

    def blocks(self) -> list[Block]:
        """The title, and one row for each covariance or second moment in the order of computation."""
        rows = tuple(
            (code(", ".join(dict.fromkeys(row.families))), row.positions, f"{row.numbers:,}", row.method)
            for row in self.rows
        )
        return [Grid(self.title, ("moments of", "at", "numbers", "method"), rows, text_columns=(0, 1, 3))]

    def __str__(self) -> str:
        return to_text(self.blocks())

    __repr__ = __str__


def _rounded(seconds: float) -> str:
    return f"{seconds:.1g}" if seconds < 10 else f"{seconds:,.0f}"

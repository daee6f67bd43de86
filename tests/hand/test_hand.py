"""Programs written by hand, from papers and with malice: each has the grade that the theorems give it.

Of the tables a slice is checked, and the rows marked with what is reported today; `python -m tests.hand.tables` checks
all.
"""

import pytest

from tests.hand.tables import disagreement, rows


def wrong(table: str, slices: int) -> list[str]:
    """Where the check disagrees with the table."""
    chosen = rows(table)[::slices] + [row for row in rows(table) if row.today]
    return [text for row in chosen if (text := disagreement(row))]


def test_tables_are_as_large_as_promised() -> None:
    """A mistake in a table, or in what reads it, would leave programs out in silence."""
    assert len({(row.gap, row.group) for row in rows("realistic")}) >= 280
    assert len({(row.gap, row.group) for row in rows("hostile")}) >= 900


def test_realistic_programs_have_their_grade() -> None:
    assert wrong("realistic", slices=12) == []


@pytest.mark.slow
def test_hostile_programs_have_no_better_grade() -> None:
    assert wrong("hostile", slices=12) == []

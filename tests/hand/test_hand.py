"""Programs written by hand, from papers and with malice: each has the grade that the theorems give it.

Of the tables a sample is checked, another one for each commit; `python -m tests.hand.tables` checks all.
"""

import subprocess

import pytest

from tests.hand.tables import HERE, Row, disagreement, rows


def sample(table: str, every: int) -> list[Row]:
    """Every so many rows, from one that the commit picks, and those marked with what is reported today."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False)
    first = int(asked.stdout[:7] or "0", 16) % every
    found = rows(table)
    return found[first::every] + [row for row in found if row.today]


def wrong(table: str, every: int) -> list[str]:
    """Where the check disagrees with the table."""
    return [text for row in sample(table, every) if (text := disagreement(row))]


def test_tables_are_as_large_as_promised() -> None:
    """A mistake in a table, or in what reads it, would leave programs out in silence."""
    assert len({(row.gap, row.group) for row in rows("realistic")}) >= 280
    assert len({(row.gap, row.group) for row in rows("hostile")}) >= 900


@pytest.mark.turns(3)
def test_realistic_programs_have_their_grade() -> None:
    assert wrong("realistic", every=14) == []


@pytest.mark.slow
def test_hostile_programs_have_no_better_grade() -> None:
    assert wrong("hostile", every=50) == []


@pytest.mark.slow
def test_more_realistic_programs_have_their_grade() -> None:
    assert wrong("realistic", every=4) == []


@pytest.mark.slow
def test_more_hostile_programs_have_no_better_grade() -> None:
    assert wrong("hostile", every=12) == []

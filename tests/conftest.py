"""Hypothesis draws the same examples in every run: a failure can be repeated, and a passing commit stays passing.

Functions that a test declares are gone after it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tensorprog.atoms import ATOMS

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """The registry of functions, as it was before the test when the test is over."""
    before = dict(ATOMS)
    yield
    ATOMS.clear()
    ATOMS.update(before)

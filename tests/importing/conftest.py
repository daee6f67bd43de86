"""Comparisons of imports with their modules."""

from __future__ import annotations

import pytest


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that agree with their programs are compared for a quarter of the time: 64 to 256 networks at a width."""
    pytest.importorskip("torch")
    monkeypatch.setattr("tensorprog.importing.agreement.SECONDS", 0.2)

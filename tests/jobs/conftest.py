"""The command line called in the process of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensorprog.jobs.cli import main

Tp = Callable[..., tuple[int, str, str]]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of runs are blank, in tests of what else a run writes."""

    def blank(draw: object, panels: int = 1, png: Path | None = None) -> str:
        if png is not None:
            png.write_bytes(b"\x89PNG")
        return "<svg/>"

    monkeypatch.setattr("tensorprog.show.plots.svg", blank)


@pytest.fixture
def tp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Tp:
    """Call the command line beside small.yaml, the module's PROGRAM; gives (exit code, stdout, stderr)."""
    (tmp_path / "small.yaml").write_text(request.module.PROGRAM)
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(args=list(args), prog_name="tp")
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return caught.value.code, out, err  # type: ignore[return-value]

    return call

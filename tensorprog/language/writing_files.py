"""Files written in one step: readers see the old one or the new one, never half of one; and JSON as text."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorprog.language.errors import Problem, ProgramError

__all__ = ["is_reserved", "json_text", "partial_name", "whole", "write_text", "writing"]

DEVICES = {"con", "prn", "aux", "nul"} | {f"{port}{digit}" for port in ("com", "lpt") for digit in "123456789"}


def is_reserved(name: str) -> bool:
    """Whether Windows takes the name of a file for that of a device: `con`, `NUL.txt`."""
    return name.split(".")[0].rstrip(" ").lower() in DEVICES


@contextmanager
def writing(path: str | os.PathLike[str], fix: str = "choose another place with --out") -> Iterator[None]:
    """Turn the system's refusals into a message about the path.

    Raises    ProgramError
    """
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ProgramError(Problem(f"{path} cannot be written: {reason}", fix=fix)) from None


def partial_name(path: str | os.PathLike[str]) -> Path:
    """Where a file is written before it is complete: beside it, hidden, with the same ending."""
    target = Path(path)
    return target.with_name(f".{target.stem}.partial{target.suffix}")


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path to write to; on leaving, the file written replaces the one named, or nothing is left behind."""
    partial = partial_name(path)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file in one step: readers see the old one or the new one."""
    with writing(path), whole(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def json_text(report: Mapping[str, Any]) -> str:
    """One JSON object as text; numbers that are not finite have become null before."""
    return json.dumps(_clean(report), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _clean(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays and numbers of numpy
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value

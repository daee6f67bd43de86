"""Files written in one step, so that readers see the old one or the new one, and locks that end with their process."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tensorprog.language.errors import FullDiskError, Problem, ProgramError, WrongTypeError, fail

FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG}  # no room left on the disk, or allowed


@contextmanager
def writing(path: str | os.PathLike[str], fix: str = "choose another place with --out") -> Iterator[None]:
    """Turn the system's refusals into a message about the path.

    Raises    ProgramError
    """
    if not isinstance(path, str | os.PathLike):
        raise fail(f"a file is named by text, not by {path!r}", fix='"file.npz"', kind=WrongTypeError)
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if error.errno in FULL:
            fix = f"make room, or {fix.partition(', or ')[0]}"
        kind = FullDiskError if error.errno in FULL else ProgramError
        raise kind(Problem(f"{path} cannot be written: {reason}", fix=fix)) from None


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


def read_json(path: Path, fix: str) -> Any:
    """The value in a file of JSON.

    Raises    ProgramError if it is damaged; OSError
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=int)  # which takes no NaN or Infinity
    except (ValueError, RecursionError):
        raise fail(f"{path} is damaged", fix=fix) from None


def json_text(report: Mapping[str, Any], ascii_only: bool = False) -> str:
    """One JSON object as text; numbers that are not finite have become null before."""
    return json.dumps(plain(report), indent=1, allow_nan=False, ensure_ascii=ascii_only) + "\n"


def plain(value: Any) -> Any:
    """A value as JSON has it: lists, dictionaries, and None for numbers that are not finite."""
    if hasattr(value, "tolist"):  # arrays and numbers of numpy
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


# ---- locks --------------------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is made, and refuse instead of waiting: another run, or a part of this process.

    Raises    ProgramError if another run holds it
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock_file(descriptor)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            raise
        fix = "wait for its end, or name another folder"
        raise fail(f"another run is writing to {folder}", fix=fix) from None
    try:
        yield
    finally:
        with suppress(OSError):  # nobody else has it, and not every system removes what is open
            (folder / "lock").unlink()
        os.close(descriptor)


def _lock_file(descriptor: int) -> None:
    """Lock a file without waiting, against all who opened it apart."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

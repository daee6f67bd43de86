"""The folder in which commands remember what they found: where it is, what is in it, and how it is emptied.

Nothing here is ever a reason to fail: a folder that cannot be read or written is one that remembers nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["LAWS", "PACE", "clear", "folder", "inside", "keep_below", "usage", "write"]

VARIABLE = "TENSORPROG_CACHE"  # names another folder; `off` remembers nothing
LAWS, PACE = "laws", "pace.json"
MOST = 256 << 20  # bytes; beyond them the oldest laws are forgotten


def folder() -> Path | None:
    """The folder, which need not exist yet; nothing where commands shall not remember, or there is no home."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen:
        return None if chosen == "off" else Path(chosen)
    try:
        home = Path.home()
    except (RuntimeError, OSError):
        return None
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "tensorprog" / "Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "tensorprog"
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else home / ".cache") / "tensorprog"


def inside(*parts: str) -> Path | None:
    """A path in the folder."""
    found = folder()
    return None if found is None else found.joinpath(*parts)


def write(path: Path, content: bytes) -> None:
    """Write a file in one step, if that is possible; several processes may write it at once."""
    partial = path.with_name(f".{os.getpid()}-{threading.get_ident()}-{path.name}")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def files() -> list[Path]:
    """The files that are ours."""
    found = inside(LAWS)
    try:
        return [] if found is None else [path for path in found.glob("*/*") if path.is_file()]
    except OSError:
        return []


def usage() -> tuple[int, int]:
    """How many laws are remembered, and the bytes that they take."""
    laws, size = set(), 0
    for path in files():
        with suppress(OSError):
            size += path.stat().st_size
            laws.add(path.parent)
    return len(laws), size


def clear() -> None:
    """Forget everything."""
    found = folder()
    if found is not None:
        shutil.rmtree(found / LAWS, ignore_errors=True)
        with suppress(OSError):
            (found / PACE).unlink()


def keep_below(most: int = MOST) -> None:
    """Forget the oldest laws, until the others take no more than so many bytes."""
    held: dict[Path, list[os.stat_result]] = {}
    for path in files():
        with suppress(OSError):
            held.setdefault(path.parent, []).append(path.stat())
    sizes = {law: sum(each.st_size for each in found) for law, found in held.items()}
    total = sum(sizes.values())
    for law in sorted(held, key=lambda law: max(each.st_mtime for each in held[law])):
        if total <= most:
            return
        shutil.rmtree(law, ignore_errors=True)
        total -= sizes[law]

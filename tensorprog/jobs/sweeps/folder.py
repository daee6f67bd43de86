"""A sweep on disk: one small file for each finished cell, then the whole as netCDF and CSV.

    cells/<digest>.json    a cell's numbers, beside everything that they depend on; the digest is that of the latter
    lock                   held by the process that writes

Files appear whole or not at all.  A cell is found again by what its numbers depend on, in whichever sweep it occurs:
one that was stopped goes on, and one with more widths, repeats or values computes what is new.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tensorprog.jobs.sweeps.cells import Numbers, identity
from tensorprog.jobs.sweeps.design import Cell, Design
from tensorprog.language.files import Lock, write_text, writing

__all__ = ["Finished", "Folder"]


class Finished(NamedTuple):
    """What is known of a finished cell."""

    numbers: Numbers
    refused: str  # why there is no limit; empty if there is one


class Folder:
    """The folder of a sweep, or with None a memory that is gone afterwards; open for writing inside a `with` block.

    Raises    ProgramError if another process is writing to it, or nobody can
    """

    def __init__(self, path: Path | None, design: Design) -> None:
        self.path, self._design = path, design
        self._lock = None if path is None else Lock(path / "lock")

    def __enter__(self) -> Folder:
        if self.path is not None and self._lock is not None:
            with writing(self.path):
                (self.path / "cells").mkdir(parents=True, exist_ok=True)
                self._lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.release()

    def read(self, cell: Cell) -> Finished | None:
        """What is known of a cell; None if it is not finished, or its file is not what was written."""
        if self.path is None:
            return None
        wanted = identity(self._design, cell)
        try:
            found = json.loads(self._file(wanted).read_text(encoding="utf-8"))
            if found["identity"] != wanted:
                return None
            return Finished(found["numbers"], found["refused"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def write(self, cell: Cell, done: Finished) -> None:
        """Put a finished cell on disk."""
        if self.path is None:
            return
        wanted = identity(self._design, cell)
        entry = {"cell": cell.name, "numbers": done.numbers, "refused": done.refused, "identity": wanted}
        write_text(self._file(wanted), json.dumps(entry, indent=1, allow_nan=False) + "\n")

    def _file(self, wanted: dict[str, Any]) -> Path:
        assert self.path is not None
        digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
        return self.path / "cells" / f"{digest[:32]}.json"

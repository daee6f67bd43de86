"""Results in a folder, written block by block: a run that was stopped goes on where it was.

    meta.json    what the numbers depend on; written first, never changed
    y.npy, ..    one array for each name; its header counts no networks until all those asked for are there
    finished     one byte for each block: 1 when its numbers are on disk
    lock         held by the process that writes

Blocks have their place in the arrays from the start and are written whole, so they may come in any order, and a longer
run goes on in the same files.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.job import Job
from tensorprog.finite.workers import libraries
from tensorprog.language.atoms.declared import declared_function
from tensorprog.language.errors import FullDiskError, Problem, ProgramError, fail
from tensorprog.language.files import Lock, partial_name, whole, writing
from tensorprog.language.memory import amount
from tensorprog.language.samples import program_text

__all__ = ["Store", "differences", "settings"]

Array = NDArray[Any]
FORMAT = 1
SYNC_SECONDS = 1.0  # between two moments at which blocks are recorded as finished
FIX = "name another folder, or remove this one"


class Store:
    """A folder of results, open for writing inside a `with` block; leaving it without an exception completes it.

    Raises    ProgramError if the folder holds another run, is being written by another process, or cannot be written
    """

    def __init__(self, folder: str | os.PathLike[str], job: Job, samples: int) -> None:
        self.folder = Path(folder)
        self.job, self.samples = job, samples
        self.blocks = -(-samples // job.block)
        self.files = _file_names(job.plan.kept)
        self.dtype = np.dtype(job.dtype)
        self.settings = settings(job)
        self._open: dict[str, io.FileIO] = {}
        self._pending: list[int] = []  # written, not recorded
        self._next_sync = 0.0
        self._lock = Lock(self.folder / "lock")

    def __enter__(self) -> Store:
        with writing(self.folder, FIX):
            if self.known() and self._complete():
                return self
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            try:
                self._begin()
            except BaseException:
                self._close()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with writing(self.folder, FIX):
                self.sync()
                if kind is None:
                    self._count()
        except ProgramError:
            if kind is None:  # else it is not the first to be told
                raise
        finally:
            self._close()

    def known(self) -> bool:
        """Whether the folder holds this run already.

        Raises    ProgramError if it holds anything else
        """
        path = self.folder / "meta.json"
        try:
            meta = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            ours = {"lock", partial_name(path).name}
            if self.folder.exists() and any(entry.name not in ours for entry in self.folder.iterdir()):
                raise fail(f"{self.folder} holds other files", fix="name a new folder or an empty one") from None
            return False
        except ValueError:
            raise fail(f"{path} is damaged", fix=FIX) from None
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise fail(f"{path} was written by another version of tensorprog", fix=FIX)
        different = differences(meta["settings"], self.settings)
        if different:
            raise ProgramError(
                Problem(f"{self.folder} holds the samples of another run: {'; '.join(different)}", fix=FIX)
            )
        self._check_sizes()
        return True

    @property
    def done(self) -> int:
        """Networks on disk, of those asked for."""
        finished = self._finished()
        beyond = self.blocks * self.job.block - self.samples
        return int(finished.sum()) * self.job.block - (beyond if finished[-1] else 0)

    def unfinished(self) -> Iterator[int]:
        """Numbers of the blocks to draw."""
        return map(int, np.flatnonzero(~self._finished()))

    def write(self, number: int, values: Mapping[str, Array]) -> None:
        """Put one block in its place; now and then what was written is recorded as finished."""
        with writing(self.folder, FIX):
            for name, value in values.items():
                data = np.ascontiguousarray(value, dtype=self.dtype)
                _write_at(self._open[name], self._place(name, number), data.reshape(-1).view(np.uint8).data)
            self._pending.append(number)
            if time.monotonic() > self._next_sync:
                self.sync()

    def sync(self) -> None:
        """Record the blocks written as finished, after their numbers have reached the disk."""
        if self._pending:
            for name in self.files:
                os.fsync(self._open[name].fileno())
            for number in self._pending:
                _write_at(self._open["finished"], number, memoryview(b"\1"))
            os.fsync(self._open["finished"].fileno())
            self._pending.clear()
        self._next_sync = time.monotonic() + SYNC_SECONDS

    def arrays(self) -> dict[str, Array]:
        """The arrays of a complete folder, mapped to memory: what is read is loaded, nothing else."""
        return {
            name: np.memmap(
                self.folder / self.files[name], self.dtype, "r", _HEADER, (self.samples, *self.job.shapes[name])
            )
            for name in self.files
        }

    def _complete(self) -> bool:
        return self.done == self.samples and all(self._rows(name) >= self.samples for name in self.files)

    def _begin(self) -> None:
        """Open the files, making those that are not there."""
        if not self.known():
            meta = {"format": FORMAT, "settings": self.settings, "files": self.files}
            with whole(self.folder / "meta.json") as partial:
                partial.write_text(json.dumps(meta, indent=1), encoding="utf-8")
        missing = sum(1 for _ in self.unfinished()) * self.job.drawn
        free = shutil.disk_usage(self.folder).free
        if missing > free:
            raise FullDiskError(
                Problem(
                    f"{self.folder}: the samples take {amount(missing, up=True)}, the disk has {amount(free)} left",
                    fix="ask for fewer samples, or name a folder on another disk",
                )
            )
        for name, file in (*self.files.items(), ("finished", "finished")):
            descriptor = os.open(self.folder / file, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            self._open[name] = io.FileIO(descriptor, "r+")
        for name in self.files:
            if self._rows(name) == 0:
                _write_at(self._open[name], 0, memoryview(self._header(name, 0)))
        self._next_sync = time.monotonic() + SYNC_SECONDS

    def _count(self) -> None:
        """Let the arrays count their networks, now that all are there."""
        for name in self.files:
            if name in self._open and self._rows(name) < self.samples:
                _write_at(self._open[name], 0, memoryview(self._header(name, self.samples)))
                os.fsync(self._open[name].fileno())

    def _close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._lock.release()

    def _check_sizes(self) -> None:
        """Raise ProgramError if an array is shorter than the record says."""
        record = self.folder / "finished"
        size = record.stat().st_size if record.exists() else 0
        for name, file in self.files.items():
            path = self.folder / file
            have = path.stat().st_size if path.exists() else 0
            if size and have < self._place(name, size):
                raise fail(f"{path} is damaged: it is shorter than it was", fix=FIX)

    def _place(self, name: str, number: int) -> int:
        return _HEADER + number * self.job.block * math.prod(self.job.shapes[name]) * self.dtype.itemsize

    def _finished(self) -> NDArray[np.bool_]:
        found = np.zeros(self.blocks, dtype=bool)
        with suppress(FileNotFoundError), open(self.folder / "finished", "rb") as file:
            read = np.frombuffer(file.read(self.blocks), dtype=np.uint8)
            found[: len(read)] = read == 1
        return found

    def _rows(self, name: str) -> int:
        """Networks that an array counts."""
        try:
            with open(self.folder / self.files[name], "rb") as file:
                if np.lib.format.read_magic(file) != (1, 0):
                    return 0
                shape, _, _ = np.lib.format.read_array_header_1_0(file)
                return int(shape[0])
        except (FileNotFoundError, ValueError):  # not begun
            return 0

    def _header(self, name: str, rows: int) -> bytes:
        """Header of an .npy file, of the same length for any number of rows."""
        text = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            text,
            {"shape": (rows, *self.job.shapes[name]), "fortran_order": False, "descr": self.dtype.str},
        )
        magic, fields = text.getvalue()[:8], text.getvalue()[10:].rstrip()
        length = _HEADER - 10
        return magic + length.to_bytes(2, "little") + fields.ljust(length - 1) + b"\n"


_HEADER = 512  # bytes before the numbers of an array, room enough for any shape


def _file_names(names: tuple[str, ...]) -> dict[str, str]:
    """A file for each name, different also where letters of either case are one."""
    seen: dict[str, int] = {}
    files = {}
    for name in names:
        count = seen[name.casefold()] = seen.get(name.casefold(), 0) + 1
        files[name] = f"{name}.npy" if count == 1 else f"{name}-{count}.npy"
    return files


def _write_at(file: io.FileIO, place: int, data: memoryview) -> None:
    file.seek(place)
    while data:
        data = data[file.write(data) :]


def settings(job: Job) -> dict[str, Any]:
    """Everything that determines the numbers of a block, by name.

    Scale     tables of numbers enter by their digests
    """
    functions = {name: declared_function(name).digest for name in job.netsor.own}  # the text has only their names
    inactive = job.plan.inactive
    return {
        "program": re.sub(" +", " ", program_text(job.netsor)),  # columns are aligned: one line moves others
        "tables": {  # the program's text has only the names of their files
            name: hashlib.sha256(repr(table.shape).encode() + table.data).hexdigest()
            for name, table in job.netsor.tables.items()
        },
        **({"functions": functions} if functions else {}),
        "width": job.plan.width,
        "seed": job.seed,
        "method": job.plan.method,
        **({"drawn as": [str(drawn) for _, drawn in inactive.statements]} if inactive is not None else {}),
        "coordinates": job.plan.coordinates,
        "names": sorted(job.plan.kept),
        "dtype": job.dtype,
        "networks in a block": job.block,
        **libraries(),
        "processor": _processor(),
    }


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """One phrase for each value that differs."""
    phrases = []
    for key in {**there, **here}:
        old, new = there.get(key), here.get(key)
        if old != new:
            phrases.append(f"{key} is {_shown(key, old, new)} there, {_shown(key, new, old)} here")
    return phrases


def _shown(key: str, value: Any, other: Any) -> str:
    if key == "program":  # the first line that differs
        lines, others = str(value).splitlines(), str(other).splitlines()
        new = [line for position, line in enumerate(lines) if position >= len(others) or others[position] != line]
        return repr(new[0].strip()) if new else "shorter"
    if isinstance(value, dict):
        return ", ".join(f"{name} ({digest[:8]})" for name, digest in value.items()) or "none"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _processor() -> str:
    """The kind of processor, as far as BLAS tells kinds apart: others round differently."""
    from threadpoolctl import threadpool_info

    kinds = [library["architecture"] for library in threadpool_info() if "architecture" in library]
    return " ".join([platform.machine(), *kinds[:1]])

"""Results in a folder, written block by block: a run that was stopped goes on where it was.

    meta.json    what the numbers depend on; written first, never changed
    y.npy, ..    one array for each name; its header counts no networks until all those asked for are there
    finished     one byte for each block: 1 when its numbers are on disk
    lock         held by the process that writes

Blocks have their place in the arrays from the start and are written whole; a longer run goes on in the same files.
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
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.plan import Job
from tensorprog.language.atoms.declared import declared_function
from tensorprog.language.errors import FullDiskError, Problem, fail
from tensorprog.language.files import locked, partial_name, read_json, whole, writing
from tensorprog.language.memory import amount
from tensorprog.language.samples import program_text
from tensorprog.version import libraries

__all__ = ["Store", "settings"]

Array = NDArray[Any]
FORMAT = 2
SYNC_SECONDS = 1.0  # between two moments at which blocks are recorded as finished
FIX = "name another folder, or remove this one"


class Store:
    """A folder of results, open for writing inside a `with` block; leaving it without an exception completes it.

    Raises    ProgramError if the folder holds another run, is being written by another process, or cannot be written
    """

    def __init__(self, folder: str | os.PathLike[str], job: Job, samples: int) -> None:
        self.folder, self.job, self.samples = Path(folder), job, samples
        self.settings = settings(job)
        self.done = np.zeros(-(-samples // job.block), bool)  # block by block
        self._files: dict[str, BinaryIO] = {}
        self._pending: list[int] = []  # written, not recorded
        self._next_sync = 0.0
        self._held = ExitStack()

    def __enter__(self) -> Store:
        with writing(self.folder, FIX):
            if self.known() and self.done.all() and all(self._rows(n) >= self.samples for n in self.job.shapes):
                return self
            with ExitStack() as held:
                held.enter_context(locked(self.folder))
                self._begin(held)
                self._held = held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._held, writing(self.folder, FIX):
            self._sync()
            for name, file in self._files.items():
                if kind is None and name:
                    _write(file, 0, self._header(name, self.samples))

    def known(self) -> bool:
        """Whether the folder holds this run already, of which `done` says what is on disk.

        Raises    ProgramError if it holds anything else
        """
        path = self.folder / "meta.json"
        try:
            meta = read_json(path, FIX)
        except FileNotFoundError:
            ours = {"lock", partial_name(path).name}
            if self.folder.exists() and any(entry.name not in ours for entry in self.folder.iterdir()):
                raise fail(f"{self.folder} holds other files", fix="name a new folder or an empty one") from None
            return False
        old = meta.get("settings") if isinstance(meta, dict) else None
        if not isinstance(old, dict) or meta.get("format") != FORMAT:
            raise fail(f"{path} is damaged, or was written by another version of tensorprog", fix=FIX)
        different = [key for key in {**old, **self.settings} if old.get(key) != self.settings.get(key)]
        if different:
            what = ", ".join(different)
            raise fail(f"{self.folder} holds the samples of another run, with another {what}", fix=FIX)
        record = self.folder / "finished"
        blocks = np.fromfile(record, np.uint8) if record.exists() else np.zeros(0, np.uint8)
        for name in self.job.shapes:
            file = self._path(name)
            if blocks.size and (not file.exists() or file.stat().st_size < self._place(name, blocks.size)):
                raise fail(f"{file} is damaged: it is shorter than it was", fix=FIX)
        self.done[: len(blocks)] = blocks[: len(self.done)] == 1
        return True

    @property
    def networks(self) -> int:
        """Networks on disk, of those asked for."""
        beyond = len(self.done) * self.job.block - self.samples
        return int(self.done.sum()) * self.job.block - (beyond if self.done[-1] else 0)

    def unfinished(self) -> Iterator[int]:
        """Numbers of the blocks to draw."""
        return map(int, np.flatnonzero(~self.done))

    def write(self, number: int, values: Mapping[str, Array]) -> None:
        """Put one block in its place; now and then what was written is recorded as finished."""
        with writing(self.folder, FIX):
            for name, value in values.items():
                data = np.ascontiguousarray(value, dtype=self.job.dtype)
                _write(self._files[name], self._place(name, number), data.tobytes())
            self._pending.append(number)
            if time.monotonic() > self._next_sync:
                self._sync()

    def arrays(self) -> dict[str, Array]:
        """The arrays of a complete folder, mapped to memory: what is read is loaded, nothing else."""
        found = {name: np.load(self._path(name), mmap_mode="r", allow_pickle=False) for name in self.job.shapes}
        return {name: array[: self.samples] for name, array in found.items()}

    def _sync(self) -> None:
        """Record the blocks written as finished, after their numbers have reached the disk."""
        if self._pending:
            for name, file in self._files.items():
                if name:
                    os.fsync(file.fileno())
            for number in self._pending:
                _write(self._files[""], number, b"\1")
            os.fsync(self._files[""].fileno())
            self._pending.clear()
        self._next_sync = time.monotonic() + SYNC_SECONDS

    def _begin(self, held: ExitStack) -> None:
        if not self.known():
            with whole(self.folder / "meta.json") as partial:
                meta = {"format": FORMAT, "settings": self.settings}
                partial.write_text(json.dumps(meta, indent=1), encoding="utf-8")
        missing, free = int((~self.done).sum()) * self.job.drawn, shutil.disk_usage(self.folder).free
        if missing > free:
            what = f"the samples take {amount(missing, up=True)}, the disk has {amount(free)} left"
            fix = "ask for fewer samples, or name a folder on another disk"
            raise FullDiskError(Problem(f"{self.folder}: {what}", fix=fix))
        for name in (*self.job.shapes, ""):
            path = self._path(name) if name else self.folder / "finished"
            path.touch()
            self._files[name] = held.enter_context(path.open("r+b", buffering=0))
            if name and not path.stat().st_size:
                _write(self._files[name], 0, self._header(name, 0))
        self._next_sync = time.monotonic() + SYNC_SECONDS

    def _path(self, name: str) -> Path:
        """The file of a name, different also where letters of either case are one."""
        same = [other for other in self.job.shapes if other.casefold() == name.casefold()]
        number = same.index(name) + 1
        return self.folder / (f"{name}.npy" if number == 1 else f"{name}-{number}.npy")

    def _place(self, name: str, number: int) -> int:
        size = math.prod(self.job.shapes[name]) * np.dtype(self.job.dtype).itemsize
        return len(self._header(name, 0)) + number * self.job.block * size

    def _rows(self, name: str) -> int:
        try:
            found = np.load(self._path(name), mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            raise fail(f"{self._path(name)} is damaged", fix=FIX) from None
        return len(found) if found.shape[1:] == self.job.shapes[name] and found.dtype == self.job.dtype else 0

    def _header(self, name: str, rows: int) -> bytes:
        """Header of an .npy file: numpy makes it of the same length for any number of rows."""
        text = io.BytesIO()
        fields = {
            "shape": (rows, *self.job.shapes[name]),
            "fortran_order": False,
            "descr": np.dtype(self.job.dtype).str,
        }
        np.lib.format.write_array_header_1_0(text, fields)
        return text.getvalue()


def _write(file: BinaryIO, place: int, data: bytes) -> None:
    file.seek(place)
    while data:
        data = data[file.write(data) :]


def settings(job: Job) -> dict[str, Any]:
    """Everything that determines the numbers of a block, by name.

    Scale     tables of numbers enter by their digests
    """
    from threadpoolctl import threadpool_info

    blas = [library["architecture"] for library in threadpool_info() if "architecture" in library]  # rounds its own way
    return {
        "program": re.sub(" +", " ", program_text(job.netsor)),  # columns are aligned: one line moves others
        "tables": {  # the program's text has only the names of their files
            name: hashlib.sha256(repr(table.shape).encode() + table.data).hexdigest()
            for name, table in job.netsor.tables.items()
        },
        "functions": {name: declared_function(name).sketch for name in job.netsor.own},
        "width": job.plan.width,
        "seed": job.seed,
        "method": job.plan.method,
        "drawn as": [str(drawn) for _, drawn in job.plan.left_out],
        "coordinates": job.plan.coordinates,
        "names": sorted(job.shapes),
        "dtype": job.dtype,
        "networks in a block": job.block,
        **libraries(),
        "processor": " ".join([platform.machine(), *blas[:1]]),
    }

"""A law as a file: the program with its tables, and the settings from which the law is compiled again, exactly."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from tensorprog.language.atoms.declared import check_sketch, declared_function
from tensorprog.language.errors import ProgramError
from tensorprog.language.ir import Netsor
from tensorprog.language.writing_files import whole

__all__ = ["Saved", "read", "write"]

ENTRY = "law.json"
MAX_ENTRY = 16_000_000  # bytes, four for a character: far more than a program file may have
NUMBER = (float, int, NoneType)
KINDS: dict[str, Any] = {"program": str, "grade": str, "accuracy": NUMBER, "seed": int, "functions": dict}
BROKEN = (  # what reading an archive raises that is damaged, or none
    OSError, EOFError, ValueError, LookupError, MemoryError, NotImplementedError, RuntimeError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


class Saved(NamedTuple):
    """What a law is made of."""

    netsor: Netsor
    grade: str
    accuracy: float | None
    seed: int


def write(path: str | os.PathLike[str], law: Saved) -> None:
    """Write an .npz; of functions declared in Python only a few values."""
    from tensorprog import __version__
    from tensorprog.language.yaml_io import pack

    text, tables = pack(law.netsor)
    meta = {
        "program": text,
        "grade": law.grade,
        "accuracy": law.accuracy,
        "seed": law.seed,
        "version": __version__,
        "functions": {name: declared_function(name).sketch for name in law.netsor.own},
    }
    with whole(path) as partial, partial.open("wb") as file:
        arrays: dict[str, Any] = {ENTRY: np.array(json.dumps(meta)), **tables}
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read(path: str | os.PathLike[str]) -> Saved:
    """What `write` wrote; nothing in the file is executed.

    Raises    ProgramError if the file is not one, or calls a function that is not declared, or declared otherwise
    """
    from tensorprog.language.yaml_io import DataError, read_tables, unpack

    try:
        with zipfile.ZipFile(path) as archive:
            meta = _meta(archive)
            tables = read_tables(archive)
    except (*BROKEN, DataError) as error:
        raise ProgramError(f"{path} is not a law written by Law.save ({error})") from None
    netsor = unpack(meta["program"], tables)
    for name in netsor.own:
        check_sketch(name, meta["functions"].get(name))
    return Saved(netsor, meta["grade"], meta["accuracy"], meta["seed"])


def _meta(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The settings, each of its kind."""
    entry = archive.getinfo(f"{ENTRY}.npy")
    if entry.file_size > MAX_ENTRY:
        raise ValueError(f"{ENTRY} has {entry.file_size} bytes")
    with archive.open(entry) as stream:
        found: Any = json.loads(str(np.lib.format.read_array(stream, allow_pickle=False)))
    if not isinstance(found, dict) or not all(isinstance(found.get(key), kind) for key, kind in KINDS.items()):
        raise ValueError("entries of the wrong kind")
    return found

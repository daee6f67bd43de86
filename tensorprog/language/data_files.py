"""Data files beside a program, .npy: their paths, what they may hold, and the arrays read from them."""

from __future__ import annotations

import math
import os
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

import numpy as np

from tensorprog.language.errors import did_you_mean

MAX_ENTRIES = 10_000_000  # numbers in one data file


class DataError(Exception):
    """What is wrong with a data file, to follow its name, and what to do."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


def data_path(name: str, base: Path | None) -> Path:
    """Path of a data file, which must lie inside the folder of the program; both slashes separate its parts.

    Raises    DataError
    """
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.drive or windows.root or ".." in (*posix.parts, *windows.parts) or "\0" in name:
        raise DataError("is outside the program's folder", "use a path below the folder of the program file")
    if base is None:
        raise DataError("cannot be found: this program was not read from a file", "loads(..., base=folder)")
    folder = base.resolve()
    try:
        path = folder.joinpath(*windows.parts).resolve()
        if not path.is_relative_to(folder):
            raise DataError("is a link that leaves the program's folder", "copy the file beside the program")
        if not path.exists():
            near = sorted(entry.name for entry in path.parent.glob("*"))
            raise DataError("does not exist", did_you_mean(path.name, near, "paths are relative to the program file"))
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError("is not a plain file")
    except (OSError, RuntimeError):
        raise DataError("cannot be opened") from None
    return path


def read_array(name: str, base: Path | Mapping[str, Any] | None) -> Any:
    """Numbers of the file `name` below the folder `base`, which may hold them itself, by the names of the files.

    Raises    DataError
    """
    if isinstance(base, Mapping):
        if name not in base:
            raise DataError("is not among the arrays given", did_you_mean(name, list(base)))
        return base[name]
    path = data_path(name, base)
    if path.suffix.lower() != ".npy":
        raise DataError("is not a .npy file", f"np.save('{path.stem}.npy', array) writes one")
    try:
        with path.open("rb") as stream:
            return read_npy(stream, os.fstat(stream.fileno()).st_size)
    except OSError:
        raise DataError("cannot be read") from None


def read_npy(stream: IO[bytes], size: int) -> Any:
    """Numbers of a .npy file of `size` bytes; its header is checked against cap and size before anything is allocated.

    Raises    DataError
    """
    try:
        np.lib.format.read_magic(stream)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # headers of Python 2 are repaired by a tokenizer that can fail
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=10_000)
        count = math.prod(shape)
    except OSError:
        raise
    except Exception:  # the reader parses untrusted text in ways that raise almost anything
        raise DataError("has no valid .npy header", "np.save('numbers.npy', array) writes one") from None
    if dtype.kind not in "fiu":
        raise DataError(f"holds {dtype}, not real numbers", "save an array of floats; objects are never unpickled")
    if count > MAX_ENTRIES or len(shape) > 8 or any(type(side) is not int or side < 1 for side in shape):
        raise DataError(f"announces the shape {shape}; at most {MAX_ENTRIES} numbers in 8 dimensions are allowed")
    if size - stream.tell() != count * dtype.itemsize:
        raise DataError(f"is damaged: its header announces {count} numbers, and other bytes follow")
    stream.seek(0)
    return np.load(stream, allow_pickle=False).astype(np.float64)

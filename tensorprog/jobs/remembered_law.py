"""`RememberedLaw`: a law whose answers outlive the command that asked for them.

An answer is a file of numbers, named by everything that it hangs on: the program, the settings of the law, the version
and the files of tensorprog, the libraries that compute, and the machine.  So the answer of another command is the very
same numbers, bit for bit.  Files hold arrays and names only; nothing in them is ever executed, and one that cannot be
read is as good as none.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.jobs.cache import LAWS, inside, keep_below, write
from tensorprog.language.ir import Netsor
from tensorprog.language.memory import parse_memory

if TYPE_CHECKING:
    from tensorprog.law import Law

__all__ = ["RememberedLaw"]

Array = NDArray[Any]

ENTRY = "answer"
ABOUT = "about"  # the file with what is known of a law before it is asked
MOST_NUMBERS = 1 << 18  # of one answer; larger ones are computed again
SURROUNDINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE", "TENSORPROG_FAST")
ASKED = ("mean", "var", "kurtosis", "cov", "density", "cdf", "density_method", "averages")  # what is remembered


class RememberedLaw:
    """The limit of a program, which is compiled when something is asked that no command has asked before.

    It answers what `Law` does; `error` is the largest error of the numbers asked for in this process.
    """

    def __init__(
        self, program: Any, *, accuracy: float | None = None, max_memory: str | int = "1GiB", seed: int = 0
    ) -> None:
        self._settings = {"accuracy": accuracy, "max_memory": max_memory, "seed": seed}
        self.netsor, self._program = program.netsor, program
        self._compiled: Law | None = None
        self._folder = _folder(program, self._settings)
        self._worst = 0.0
        about = _read(self._folder, ABOUT)
        self.known = about is not None  # by another command
        if about is None:
            about = self._remember(ABOUT, {name: _plain(getattr(self._law(), name)) for name in _KNOWN}, 0.0)
        found = about[0]
        self.outputs, self.scores = tuple(found["outputs"]), tuple(found["scores"])
        self.widths = {name: math.inf if size is None else size for name, size in found["widths"].items()}
        self.grade: str = found["grade"]

    def __repr__(self) -> str:
        return repr(self._law())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ASKED:
            return lambda *args, **options: self._ask(name, args, options)
        return getattr(self._law(), name)

    @property
    def error(self) -> float:
        """The largest error of the numbers given so far."""
        return self._worst if self._compiled is None else max(self._worst, self._compiled.error)

    def _law(self) -> Law:
        """The law itself."""
        if self._compiled is None:
            self._compiled = self._program.limit(**self._settings)
        return self._compiled

    def _ask(self, method: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The answer that is remembered, else the law's, which is."""
        name = _digest(json.dumps([method, [_words(value) for value in args], _words(dict(options))]))
        known = _read(self._folder, name)
        if known is not None:
            self._worst = max(self._worst, known[1])
            return known[0]
        law = self._law()
        before, law.error = law.error, 0.0
        try:
            answer = getattr(law, method)(*args, **options)
        finally:
            error, law.error = law.error, max(law.error, before)
        self._remember(name, answer, error)
        return answer

    def _remember(self, name: str, answer: Any, error: float) -> tuple[Any, float]:
        if self._folder is not None and _numbers(answer) <= MOST_NUMBERS:
            arrays: list[Array] = []
            said = np.array(json.dumps([_taken_apart(answer, arrays), error]))
            content = io.BytesIO()
            np.savez(content, allow_pickle=False, **{ENTRY: said}, **{f"a{k}": a for k, a in enumerate(arrays)})
            write(self._folder / f"{name}.npz", content.getvalue())
        return answer, error


_KNOWN = ("outputs", "scores", "widths", "grade")


def _plain(value: Any) -> Any:
    """As JSON has it: infinite widths are null."""
    if isinstance(value, Mapping):
        return {key: None if size == math.inf else size for key, size in value.items()}
    return list(value) if isinstance(value, tuple) else value


# ---- names of files --------------------------------------------------------------------------------------------------


def _folder(program: Any, settings: Mapping[str, Any]) -> Path | None:
    """The folder of a law; nothing where nothing is remembered, as of functions that only this process knows."""
    from tensorprog.language.writing import pack

    netsor: Netsor = program.netsor
    if netsor.own or inside() is None:
        return None
    text, tables = pack(replace(netsor, title="", reference="", run=()))
    said = hashlib.sha256(
        json.dumps(
            [
                text,
                program.check().grade,
                settings["accuracy"],
                settings["seed"],
                parse_memory(settings["max_memory"]),
                _where(),
            ]
        ).encode()
    )
    for name, table in sorted(tables.items()):
        said.update(f"{name}{table.shape}".encode())
        said.update(table.tobytes())
    found = inside(LAWS, said.hexdigest()[:32])
    if found is not None and not found.exists():
        keep_below()
    return found


@cache
def _where() -> list[Any]:
    """What the bits of a number hang on besides the program: the code that computes it, and the machine."""
    import scipy

    from tensorprog import __version__

    code = hashlib.sha256()
    root = Path(__file__).resolve().parents[1]
    for place, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                found = os.stat(os.path.join(place, name))
                code.update(f"{place}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return [
        __version__,
        code.hexdigest(),
        np.__version__,
        scipy.__version__,
        platform.python_version(),
        platform.machine(),
        platform.node(),
        os.cpu_count(),
        [os.environ.get(name) for name in SURROUNDINGS],
    ]


def _words(value: Any) -> Any:
    """An argument as JSON has it, arrays by what they hold."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, Mapping):
        return {str(key): _words(each) for key, each in value.items()}
    return value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# ---- answers as files ------------------------------------------------------------------------------------------------


def _numbers(answer: Any) -> int:
    """How many numbers an answer has."""
    inner = answer.values() if isinstance(answer, Mapping) else answer if isinstance(answer, tuple | list) else None
    return math.prod(np.shape(answer)) if inner is None else sum(map(_numbers, inner))


def _taken_apart(answer: Any, arrays: list[Array]) -> Any:
    """The shape of an answer, with places in `arrays` for its numbers."""
    if answer is None or isinstance(answer, str | bool):
        return answer
    if isinstance(answer, tuple):
        return {"tuple": [_taken_apart(each, arrays) for each in answer]}
    if isinstance(answer, list):
        return {"list": [_taken_apart(each, arrays) for each in answer]}
    if isinstance(answer, Mapping):
        return {"mapping": [[key, _taken_apart(each, arrays)] for key, each in answer.items()]}
    arrays.append(np.asarray(answer))
    return {"number" if isinstance(answer, float | int) else "array": len(arrays) - 1}


def _put_together(shape: Any, arrays: Mapping[str, Array]) -> Any:
    """The answer again."""
    if not isinstance(shape, dict):
        return shape
    ((kind, inner),) = shape.items()
    if kind in ("number", "array"):
        array = arrays[f"a{int(inner)}"]
        return array.item() if kind == "number" else array
    if kind == "mapping":
        return {str(key): _put_together(each, arrays) for key, each in inner}
    return {"tuple": tuple, "list": list}[kind](_put_together(each, arrays) for each in inner)


def _read(folder: Path | None, name: str) -> tuple[Any, float] | None:
    """An answer, and the error that it had; nothing where there is none that can be read."""
    if folder is None:
        return None
    path = folder / f"{name}.npz"
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > 16 * MOST_NUMBERS:
                return None
            content = io.BytesIO(stream.read())
        with zipfile.ZipFile(content) as archive:
            arrays = {}
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:
                    return None
                with archive.open(entry) as opened:
                    arrays[entry.filename.removesuffix(".npy")] = np.lib.format.read_array(opened, allow_pickle=False)
        shape, error = json.loads(str(arrays.pop(ENTRY)))
        return _put_together(shape, arrays), float(error)
    except Exception:  # whatever is wrong with it
        return None

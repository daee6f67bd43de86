"""What a worker does: draw blocks with one BLAS thread, in this process, in another or on another machine."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.block import draw_blocks
from tensorprog.finite.job import Job
from tensorprog.finite.normals import prepare
from tensorprog.language.atoms.declared import declared_function, install
from tensorprog.language.errors import Problem, WorkerError

__all__ = ["Packed", "draw_packed", "libraries", "one_blas_thread", "opened", "pack", "ready"]

_lock = threading.Lock()
_inside = 0  # how many are inside `one_blas_thread`
_before: dict[str, tuple[Any, int]] = {}  # by file: each library and the number of threads it had


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread in this process, until the last of those who asked for it has left.

    Products are then never split, so they round the same wherever they are computed; and workers, which are threads or
    processes already, do not fight for the cores.
    """
    global _inside
    from threadpoolctl import ThreadpoolController

    with _lock:
        _inside += 1
        for library in ThreadpoolController().lib_controllers:  # those loaded by now
            _before.setdefault(library.filepath, (library, library.num_threads))
            library.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                for library, threads in _before.values():
                    library.set_num_threads(threads)
                _before.clear()


def libraries() -> dict[str, str]:
    """Versions of the libraries that numbers depend on."""
    import scipy

    from tensorprog import __version__

    return {"tensorprog": __version__, "numpy": np.__version__, "scipy": scipy.__version__}


@dataclass(frozen=True)
class Packed:
    """A job on its way to another process, with the libraries it is meant for and the functions declared for it."""

    libraries: tuple[tuple[str, str], ...]
    job: bytes
    normals: float
    functions: tuple[tuple[str, bytes], ...] = ()


def pack(job: Job, normals: float) -> Packed:
    """Make a job ready to travel to a worker that will draw so many random numbers, roughly.

    Raises    WorkerError if a function of its own cannot be sent
    """
    functions = tuple((name, _written(name)) for name in job.netsor.own)
    return Packed(tuple(libraries().items()), pickle.dumps(job), normals, functions)


def _written(name: str) -> bytes:
    try:
        return pickle.dumps(declared_function(name).fn)
    except Exception as error:  # of many kinds: the function may hold anything
        raise _not_sent(name, f"it cannot be pickled ({error})") from error


def _not_sent(name: str, reason: str) -> WorkerError:
    fix = "define it with def in a module that workers can import, or run without an executor"
    return WorkerError(Problem(f"the function {name} cannot be sent to workers: {reason}", fix=fix))


def _install(functions: Sequence[tuple[str, bytes]]) -> None:
    """Declare here what the job's program calls.

    Raises    WorkerError naming what cannot be
    """
    for name, written in functions:
        try:
            install(name, pickle.loads(written))  # written by `pack`
        except Exception as error:  # of many kinds: modules that are missing or other ones
            raise _not_sent(name, str(error)) from error


def ready(job: Job, normals: float) -> None:
    """Work out what all blocks need, once, before several workers share the job."""
    prepare(normals)
    _ = job.stages, job.heads, job.deviations


def opened(packed: Packed) -> Job:
    """The job that was packed; functions declared for it are declared here.

    Raises    WorkerError if other libraries are installed here
    """
    here = libraries()
    other = [
        f"{name} {here.get(name)} instead of {version}"
        for name, version in packed.libraries
        if here.get(name) != version
    ]
    if other:
        raise WorkerError(f"a worker has {', '.join(other)}: its numbers would not be those of one seed")
    _install(packed.functions)
    job: Job = pickle.loads(packed.job)  # written by `pack`
    return job


@lru_cache(maxsize=4)
def _unpack(packed: Packed) -> Job:
    """The job, once in a process, so that what is worked out once for all blocks is."""
    job = opened(packed)
    ready(job, packed.normals)
    return job


def draw_packed(packed: Packed, blocks: Sequence[int]) -> list[dict[str, NDArray[Any]]]:
    """As `draw_blocks`, in a process that may be another one."""
    with one_blas_thread():
        return draw_blocks(_unpack(packed), blocks)

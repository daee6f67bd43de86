"""Compiled passes over tiles of pairs, where they pay, and threads: the extra `fast` brings numba.

Starting numba takes 0.3 to 0.5 s, and 5 s more when it has to compile, once per machine and release.  An entry under
relu or erf then takes 1 to 2 ns of a processor instead of 15 to 20, a term of a series 0.2 instead of 1.  So numba
starts where a process has asked for MANY entries.  Whatever is missing or fails, numpy computes; both keep within the
errors stated.  TENSORPROG_FAST=0 in the environment switches numba off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock
from types import ModuleType
from typing import TypeVar

__all__ = ["passes", "prepare", "threaded"]

Argument = TypeVar("Argument")
Found = TypeVar("Found")

MANY = 50_000_000  # entries, of all matrices on the way: ten kernels of networks of three layers on 1,000 inputs
_compiled: ModuleType | None = None
_asked = 0.0
_tried = False
_lock = Lock()


def prepare(entries: float) -> None:
    """Say that so many entries are to be computed; start numba if this process has asked for so many that it pays."""
    global _asked, _compiled, _tried
    with _lock:
        _asked += entries
        if _tried or _asked < MANY or os.environ.get("TENSORPROG_FAST") == "0":
            return
        _tried = True
        try:
            from tensorprog.gaussian import compiled

            _compiled = compiled if getattr(compiled.sums, "signatures", ()) else None  # numba may not compile
        except Exception:  # no numba, none for this numpy, no place for compiled code, a warning made an error, ..
            _compiled = None


def passes() -> ModuleType | None:
    """The compiled passes, if they have been started."""
    return _compiled


def threaded(function: Callable[[Argument], Found], arguments: Iterable[Argument]) -> list[Found]:
    """A function of each argument, by as many threads as there are processors, in the context of the caller."""
    tasks = [(copy_context(), argument) for argument in arguments]
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if min(len(tasks), processors) < 2:
        return [function(argument) for _, argument in tasks]
    with ThreadPoolExecutor(min(processors, len(tasks))) as pool:
        return list(pool.map(lambda task: task[0].run(function, task[1]), tasks))

"""Compiled code, where it pays: the extra `fast` brings numba.

Starting numba takes 0.3 to 0.5 s, and 2 to 8 s more when it has to compile, once per machine and release.  So whoever
has compiled code says how much a process is to compute (`prepare`), and only much of it starts numba.  Whatever is
missing or fails, numpy computes.  TENSORPROG_FAST=0 in the environment switches numba off.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from threading import Lock
from types import ModuleType

__all__ = ["Compiled"]


@dataclass
class Compiled:
    """A module of compiled code, what it is to do at least, in all, and whether it does what it should."""

    name: str
    many: float
    fits: Callable[[ModuleType], bool]
    module: ModuleType | None = None  # once it has been started
    tried: bool = False
    _asked: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def prepare(self, amount: float) -> None:
        """Say that so much is to be computed; start the module if this process has asked for so much that it pays.

        Raises    nothing: numpy computes where numba is missing, switched off, fails to compile or gives other numbers
        """
        with self._lock:
            self._asked += amount
            if self.tried or self._asked < self.many or os.environ.get("TENSORPROG_FAST") == "0":
                return
            self.tried = True
            try:
                module = import_module(self.name)
                self.module = module if self.fits(module) else None
            except Exception:  # no numba, none for this numpy, no place for compiled code, a warning made an error, ..
                self.module = None

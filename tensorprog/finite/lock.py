"""A lock on a file, held by one process at most, that ends with its process however that ends."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from tensorprog.language.errors import fail

__all__ = ["Lock"]

_held: set[Path] = set()  # by this process: the system's locks do not keep its own threads apart
_guard = threading.Lock()


class Lock:
    """A lock that refuses instead of waiting."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key: Path | None = None
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock.

        Raises    ProgramError if another run holds it
        """
        key = self.path.resolve()
        with _guard:
            if key in _held:
                raise self._refusal()
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                _lock(self._descriptor)
            except OSError as error:
                os.close(self._descriptor)
                if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                    raise self._refusal() from None
                raise
            _held.add(key)
            self._key = key

    def release(self) -> None:
        """Give the lock back, if it is held."""
        with _guard:
            if self._key is not None:
                os.close(self._descriptor)
                _held.discard(self._key)
                self._key = None

    def _refusal(self) -> Exception:
        return fail(f"another run is writing to {self.path.parent}", fix="wait for its end, or name another folder")


def _lock(descriptor: int) -> None:
    """Lock a file without waiting; locks of this kind are not inherited by child processes."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

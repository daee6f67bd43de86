"""Progress in notebooks: one line below the cell while something takes long, and nothing when it is done.

    with watched("64 networks") as tell:
        ...
        tell(done, total)

The line appears after a second, says what is done and how long it still takes, and is emptied at the end.  Outside
notebooks nothing is shown, and nothing is imported.
"""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from importlib import import_module
from typing import Any

__all__ = ["in_notebook", "watched"]

PATIENCE = 1.0  # seconds until the line appears
PAUSE = 0.5  # seconds between two states of the line
KERNEL = "ZMQInteractiveShell"  # of Jupyter; the shell in a terminal has another name

_shown = threading.Lock()  # by the outermost of what is watched: its parts stay silent


def in_notebook() -> bool:
    """Tell whether the code runs in a cell of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == KERNEL


@contextmanager
def watched(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A line for what is done inside the block: the function that it gives takes how much is done, and of how much."""
    if not in_notebook() or not _shown.acquire(blocking=False):
        yield None
        return
    line = _Line(what)
    try:
        yield line.tell
    finally:
        line.end()
        _shown.release()


class _Line:
    """The line, kept up to date by a thread of its own: what is watched may say nothing for long."""

    def __init__(self, what: str) -> None:
        self._what, self._begun = what, time.monotonic()
        self._share = 0.0
        self._display: Any = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=copy_context().run, args=(self._keep,), daemon=True)
        self._thread.start()

    def tell(self, done: int, total: int) -> None:
        """Take how much is done."""
        self._share = done / total if total else 0.0

    def end(self) -> None:
        """Take the line away."""
        self._over.set()
        self._thread.join()
        if self._display is not None:
            self._display.update({}, raw=True)

    def _keep(self) -> None:
        if self._over.wait(PATIENCE):
            return
        display = import_module("IPython.display").display
        self._display = display(self._state(), raw=True, display_id=True)
        while not self._over.wait(PAUSE):
            self._display.update(self._state(), raw=True)

    def _state(self) -> dict[str, str]:
        from tensorprog.results.study import duration

        passed = time.monotonic() - self._begun
        if self._share:
            said = f"{self._share:.0%}, about {duration(passed * (1 / self._share - 1))} left"
            bar = f'<progress value="{self._share:.3f}" max="1" aria-label="{html.escape(self._what)}"></progress> '
        else:
            said, bar = f"{duration(passed)} so far", ""
        return {"text/plain": f"{self._what}: {said}", "text/html": f"{bar}{html.escape(self._what)}: {said}"}

"""Progress: notes on stderr and a bar on terminals, and in notebooks a bar below a cell that takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Self, TextIO

from tensorprog.show.terminal import console, is_terminal

__all__ = ["Listener", "Progress", "watched"]

PATIENCE = 1.0  # seconds until a notebook shows a bar

_shown = threading.Lock()  # by the outermost of what is watched: its parts stay silent


class Listener:
    """What long work tells while it goes on; the base class is silent."""

    def stage(self, text: str) -> None:
        """A step begins."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def progress(self, done: int, total: int) -> None:
        """How much of the step is done."""


class Progress(Listener):
    """Notes on stderr, and a bar for each step if it is a terminal."""

    def __init__(self, notes: bool = True, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.notes = notes
        self.bar: Any = None
        self.task: Any = None

    @contextmanager
    def shown(self) -> Iterator[Self]:
        """Show the bar inside the block, and take it away at the end."""
        if not (self.notes and is_terminal(self.stream)):
            yield self
            return
        self.bar = _bar(console=console(self.stream))
        with self.bar:
            self.task = self.bar.add_task("", total=None)
            yield self
        self.bar = None

    def stage(self, text: str) -> None:
        """Name the step that begins."""
        if self.bar is not None:
            self.bar.reset(self.task, total=None, description=text)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        if self.notes and self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        elif self.notes:
            print(text, file=self.stream, flush=True)

    def progress(self, done: int, total: int) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total)


@contextmanager
def watched(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar in a notebook for what takes long inside the block; the function given takes how much of how much is done.

    Elsewhere, and without ipywidgets, nothing is shown.
    """
    if "ipykernel" not in sys.modules or find_spec("ipywidgets") is None or not _shown.acquire(blocking=False):
        yield None
        return
    started, bar = time.monotonic(), _bar()
    task = bar.add_task(what, total=None)

    def tell(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if time.monotonic() - started > PATIENCE:
            bar.start()

    try:
        yield tell
    finally:
        bar.stop()
        _shown.release()


def _bar(**options: Any) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    text = TextColumn("{task.description}", markup=False)
    return Bar(text, BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn(), transient=True, **options)

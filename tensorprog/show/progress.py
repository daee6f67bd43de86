"""The progress of a run and of a sweep: notes on stderr, and a bar if a person looks at it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, TextIO

from tensorprog.results.study import Listener
from tensorprog.show.terminal import columns_of, console, is_terminal

__all__ = ["Progress", "SweepProgress"]

TEXTS = 42  # columns of a bar's description, numbers and time


class Progress(Listener):
    """Notes on stderr, and one progress bar per width if it is a terminal."""

    counted = True  # steps are counted

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
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        room = columns_of(self.stream) - TEXTS
        bars = [BarColumn(bar_width=min(room, 24))] if room > 4 else []
        counts = (MofNCompleteColumn(),) if self.counted else ()
        self.bar = Bar(TextColumn("{task.description}", markup=False), *bars, *counts, TimeRemainingColumn(),
                       console=console(self.stream), transient=True)
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
        if not self.notes:
            return
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)

    def progress(self, done: int, total: int) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total)


class SweepProgress(Progress):
    """Notes on stderr, and a bar with the cells done and the time that remains if it is a terminal."""

    counted = False
    said = "nothing is finished"

    def cells(self, done: int, total: int, share: float) -> None:
        """Move the bar."""
        self.said = f"{done:,} of {total:,} cells are finished"
        if self.bar is not None:
            self.bar.update(self.task, description=f"{done:,} of {total:,} cells", completed=share, total=1.0)

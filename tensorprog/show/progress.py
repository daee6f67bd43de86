"""The progress of a run and of a sweep: notes on stderr, and a bar if a person looks at it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
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
        self._expected: dict[str, float] = {}
        self._begun: set[str] = set()
        self._now, self._shown, self._since, self._share = "", "", time.monotonic(), 0.0

    @contextmanager
    def shown(self) -> Iterator[Self]:
        """Show the bar inside the block, and take it away at the end."""
        if not (self.notes and is_terminal(self.stream)):
            yield self
            return
        from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.text import Text

        told = self

        class Remaining(ProgressColumn):
            """The time that the whole command still takes, where that is known, else the step."""

            def render(self, task: Any) -> Any:
                left = told.left()
                return TimeRemainingColumn().render(task) if left is None else Text(_clock(left), "progress.remaining")

        room = columns_of(self.stream) - TEXTS
        bars = [BarColumn(bar_width=min(room, 24))] if room > 4 else []
        counts = (MofNCompleteColumn(),) if self.counted else ()
        self.bar = Bar(
            TextColumn("{task.description}", markup=False),
            *bars,
            *counts,
            Remaining(),
            console=console(self.stream),
            transient=True,
        )
        with self.bar:
            self.task = self.bar.add_task("", total=None)
            yield self
        self.bar = None

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Take how long the steps to come will take."""
        self._expected = dict(seconds)
        self._begun = set()

    def left(self) -> float | None:
        """Seconds that the command still takes; nothing if that is not known."""
        if self._now not in self._expected:
            return None
        passed, expected = time.monotonic() - self._since, self._expected[self._now]
        rest = expected - passed if not self._share else passed * (1 / self._share - 1)
        return max(rest, 0.0) + sum(value for text, value in self._expected.items() if text not in self._begun)

    def stage(self, text: str) -> None:
        """Name the step that begins."""
        if text in self._expected:  # others are parts of these
            self._now, self._since = text, time.monotonic()
            self._begun.add(text)
        self._shown, self._share = text, 0.0
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
        if self._shown == self._now:
            self._share = done / total if total else 0.0
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


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"

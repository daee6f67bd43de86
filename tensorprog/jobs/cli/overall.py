"""The progress of a sweep: one bar for all of it, by the work that each cell is estimated to be."""

from __future__ import annotations

import time

from tensorprog.jobs.study import duration
from tensorprog.jobs.sweeps.work import Listener
from tensorprog.show.display import Progress

__all__ = ["Overall"]


class Overall(Progress, Listener):
    """Notes on stderr, and a bar with the cells done and the time that remains if it is a terminal."""

    counted = False
    said = "nothing is finished"
    _started = 0.0

    def cells(self, done: int, total: int, share: float) -> None:
        """Move the bar."""
        self._started = self._started or time.monotonic()
        self.said = f"{done:,} of {total:,} cells are finished"
        if self.bar is None:
            return
        text = f"{done:,} of {total:,} cells"
        if share > 0.01:
            text += f", {duration((time.monotonic() - self._started) * (1 - share) / share)} left"
        self.bar.update(self.task, description=text, completed=share, total=1.0)

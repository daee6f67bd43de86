"""How long the steps of a command take on this machine: rough seconds, corrected by what such steps took before.

The first command measures the machine for a moment; each command corrects what is remembered by the time that its own
steps took.  Where nothing can be remembered, every command measures.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from tensorprog.jobs.cache import PACE, inside, write
from tensorprog.language.errors import TensorprogError
from tensorprog.language.ir import Netsor
from tensorprog.results.study import Listener

__all__ = ["Pace", "Paced", "about", "about_curves", "about_first_order"]

MEASURED = 0.012  # seconds of what is measured, on the machine on which rough seconds are right
SLOWEST = 50.0  # how far a correction may go
WEIGHT, OWN, MOST = 0.5, 0.8, 500  # how much a command counts, for all programs and for its own; factors remembered
# rough seconds where there are scores, and more for each of those that are read together: for the numbers of a limit,
# for the law of one variable, for a first order in 1/n
LIMIT, CURVE, FIRST_ORDER = (0.7, 0.08), (0.15, 0.025), (1.2, 0.12)
SHARED = 8.0  # processes on one core beside which a step is still taken for one that works here
SHORTEST = 0.05  # seconds; shorter steps say nothing


class Pace:
    """How much longer than roughly expected each kind of step takes here, and with one program."""

    def __init__(self, program: str = "") -> None:
        self._program = program
        self._machine = [platform.node(), platform.machine(), os.cpu_count()]
        self._factors = self._remembered()

    def _remembered(self) -> dict[str, float]:
        path = inside(PACE)
        try:
            assert path is not None
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["machine"] == self._machine:
                factors = {str(kind): float(factor) for kind, factor in found["factors"].items()}
                if all(1 / SLOWEST <= factor <= SLOWEST for factor in factors.values()) and "" in factors:
                    return factors
        except Exception:  # there is none, or whatever is wrong with it
            pass
        factors = {"": _bounded(_measured() / MEASURED)}
        self._save(factors)
        return factors

    def _save(self, factors: Mapping[str, float]) -> None:
        path = inside(PACE)
        if path is not None:
            write(path, json.dumps({"machine": self._machine, "factors": factors}, indent=1).encode())

    def seconds(self, kind: str, rough: float) -> float:
        """What a step of this kind takes here."""
        return rough * self._factor(kind)

    def _factor(self, kind: str) -> float:
        known = self._factors
        return known.get(self._own(kind), known.get(kind, known[""]))

    def _own(self, kind: str) -> str:
        return f"{kind} of {self._program}" if self._program else kind

    def learn(self, took: Mapping[str, tuple[float, float]]) -> None:
        """Correct what is remembered: by kind of step the rough seconds, and those that it took."""
        for kind, (rough, seconds) in took.items():
            if min(rough, seconds) > SHORTEST:
                found = seconds / rough
                for name, weight in {self._own(kind): OWN, kind: WEIGHT}.items():  # what was learned last stands last
                    known = self._factors.pop(name, self._factors.get(kind, self._factors[""]))
                    self._factors[name] = _bounded(known * (found / known) ** weight)
        self._factors = {"": self._factors[""]} | dict([*self._factors.items()][-MOST:])
        self._save(self._factors)


def _bounded(factor: float) -> float:
    return min(max(factor, 1 / SLOWEST), SLOWEST)


def _measured() -> float:
    """Seconds that some random numbers and matrix products keep this thread at work, the least of three times."""
    rng, found = np.random.Generator(np.random.SFC64(0)), []
    for _ in range(3):
        start = time.thread_time()
        x = rng.standard_normal((256, 256))
        for _ in range(8):
            x = np.tanh(x @ x / 256)
        found.append(time.thread_time() - start)
    return min(found)


def _alone(passed: float, worked: float) -> float:
    """Seconds that a step would have taken with the machine to itself: those that its one thread worked.

    With several threads it worked longer than the clock; far less is what waits for other processes, and the clock
    counts for both.
    """
    return worked if passed / SHARED < worked < passed else passed


class Paced(Listener):
    """Passes on what a command tells, says how long its steps will take, and learns how long they took."""

    def __init__(self, told: Listener, pace: Pace, steps: Mapping[str, tuple[str, float]]) -> None:
        self._told, self._pace, self._steps = told, pace, dict(steps)
        self._now, self._since = "", time.perf_counter()
        self._took: dict[str, tuple[float, float]] = {}
        self.expected = {text: pace.seconds(kind, rough) for text, (kind, rough) in self._steps.items()}
        self._worked = time.process_time()
        told.expect(self.expected)

    def stage(self, text: str) -> None:
        """A step begins, and the one before it is over."""
        now, worked = time.perf_counter(), time.process_time()
        if self._now in self._steps:
            kind, rough = self._steps[self._now]
            known = self._took.get(kind, (0.0, 0.0))
            self._took[kind] = known[0] + rough, known[1] + _alone(now - self._since, worked - self._worked)
        self._now, self._since, self._worked = text, now, worked
        if text:
            self._told.stage(text)

    def done(self) -> None:
        """The last step is over."""
        self.stage("")
        self._pace.learn(self._took)

    def note(self, text: str) -> None:
        """Pass on a note."""
        self._told.note(text)

    def progress(self, done: int, total: int) -> None:
        """Pass on how many networks are drawn."""
        self._told.progress(done, total)

    def cells(self, done: int, total: int, share: float) -> None:
        """Pass on which cells are done."""
        self._told.cells(done, total, share)


def about(program: Any, law: Any) -> float:
    """Rough seconds that the numbers of a limit take."""
    if law.known:
        return 0.05
    fixed, each = LIMIT
    seconds = 0.2 + (fixed + each * _keys(program.netsor) if program.netsor.scores else 0.0)
    return seconds + (8.0 if law.recursion.layered else 0.0)


def about_curves(program: Any, law: Any, names: Iterable[str], most: int) -> float:
    """Rough seconds that the laws of up to so many members of each name take, of those that differ."""
    if law.known or not program.netsor.scores:
        return 0.0
    fixed, each = CURVE
    seconds = 0.0
    for name in names:
        with suppress(TensorprogError):  # where there is no limit of it
            seconds += min(law.different(name), most) * (fixed + each * _keys(program.netsor))
    return seconds


def about_first_order(netsor: Netsor, most: float) -> float:
    """Rough seconds to find the first order in 1/n of one variable, or that it would take too long."""
    fixed, each = FIRST_ORDER
    return min(fixed + each * (_keys(netsor) if netsor.scores else 0.0), most)


def _keys(netsor: Netsor) -> int:
    """Scores that are read together, as by a softmax: those over the last index."""
    return max((shape[-1] for name in netsor.scores if (shape := netsor.families[name].shape)), default=1)

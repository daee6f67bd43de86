"""Memory that a law may take: what arrays need is estimated before they are made, and refused where it is too much.

Where work can be done in pieces, `numbers_at_once` says how large they may be; where it cannot, `need` raises an error
that says what takes how much, and how to need less.  Both count what the recursion keeps already.  A law answers every
question within its budget (`within`); without one nothing is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.memory import amount, keep_freed_memory, too_much

__all__ = ["Budget", "budgeted", "keep", "need", "numbers_at_once"]

Array = NDArray[Any]
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
NUMBER = 8  # bytes
SMALL = 1 << 12  # bytes of an array that does not count
FEW = 1 << 20  # bytes that are not worth counting
LESS = "ask for fewer members at a time", "make the program smaller"


class Budget:
    """Bytes that may be taken, and the arrays that are kept from question to question."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: WeakValueDictionary[int, Array] = WeakValueDictionary()

    def __reduce__(self) -> Any:
        return Budget, (self.limit,)

    @property
    def held(self) -> int:
        """Bytes of the arrays that are kept."""
        return sum(array.nbytes for array in self._kept.values())

    def keep(self, *arrays: Array) -> None:
        """Count large arrays as long as they live; views count as what they look at."""
        for array in arrays:
            if array.nbytes < SMALL:
                continue
            while isinstance(array.base, np.ndarray):
                array = array.base
            self._kept[id(array)] = array

    @contextmanager
    def within(self) -> Iterator[None]:
        """What is computed inside keeps to the budget."""
        keep_freed_memory()
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


def keep(*arrays: Array) -> None:
    """See `Budget.keep`."""
    budget = _CURRENT.get()
    if budget is not None:
        budget.keep(*arrays)


def numbers_at_once(most: int, arrays: int) -> int:
    """Numbers of an array that is worked on in pieces: `most`, or fewer where so many such arrays would not fit."""
    budget = _CURRENT.get()
    return most if budget is None else max(1, min(most, (budget.limit - budget.held) // (NUMBER * arrays)))


def need(numbers: float, what: str, *ways: str) -> None:
    """Raise MemoryLimitError if so many numbers do not fit beside what is kept; `what` takes them, and in these `ways`
    fewer are needed.

    Raises    MemoryLimitError
    """
    budget = _CURRENT.get()
    if budget is None or NUMBER * numbers <= FEW:
        return
    held = budget.held
    if NUMBER * numbers + held > budget.limit:
        beside = f" with the {amount(held)} that are kept" if held > FEW else ""
        raise too_much(what, NUMBER * numbers + held, budget.limit, ways or LESS, beside)


def budgeted(method: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """A method that keeps to the `budget` of its object."""

    @wraps(method)
    def answer(*args: Asked.args, **options: Asked.kwargs) -> Answer:
        budget: Budget = args[0].budget  # type: ignore[attr-defined]
        with budget.within():
            return method(*args, **options)

    return answer

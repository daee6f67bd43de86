"""`Sampled`: what `Law.sample` fills `Samples` with."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.memory import amount
from tensorprog.limit.draw.conditioned import without_coordinates
from tensorprog.limit.draw.draws import Draws
from tensorprog.limit.draw.normals import CHUNK, Normals, Some, Streams
from tensorprog.limit.memory import Budget, need, numbers_at_once
from tensorprog.limit.moment.compilable import bases_of
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["Sampled"]

Array = NDArray[Any]
BLOCK = 1024  # draws per random stream, at most
WORKING = 1 << 25  # numbers that draws take at once, about: every piece computes its moments again


class Sampled(Mapping[str, NDArray[Any]]):
    """Draws of variables by name.

    Those in `held` are drawn at once; other scores, of which there may be far more than of outputs, when they are
    first read: from the same streams, so with the values that the outputs were drawn with.

    `number` gives the limits of scalars that no score reaches.

    Shapes    each (size, *members)
    Scale     a block of draws is worked on at a time; if a draw takes more than CHUNK normals, one draw
    Raises    MemoryLimitError if what is asked for does not fit
    """

    def __init__(
        self, recursion: NumericRecursion, budget: Budget, number: Callable[[str], Array], size: int, seed: int,
        names: Sequence[str], held: Collection[str],
    ) -> None:  # fmt: skip
        self._families, self._budget, self._number = recursion.netsor.families, budget, number
        self._size, self._seed, self._names = size, seed, tuple(names)
        self._arrays: dict[str, Array] = {}
        self._check(held)
        vectors = [name for name in names if self._families[name].kind == "vector"]
        self.draws = Draws(recursion, names, bases_of(part for name in vectors for part in recursion.parts.last(name)))
        # scores that a rewrite wrote as sums of others are drawn with what is held
        held = [*held, *(name for name in names if name not in (*held, *self.draws.scores))]
        self._block = 1 << max(0, min(BLOCK, CHUNK // max(1, self.draws.dim)).bit_length() - 1)
        self._together = min(self._block, max(1, numbers_at_once(WORKING, 2) // self.draws.working))
        self._working = self._together * self.draws.working + self._block * self.draws.dim
        self._draw(held)

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays and name in self._names:
            with self._budget.within():
                self._draw([name])
        return self._arrays[name]

    @property
    def held(self) -> Mapping[str, Array]:
        """What is drawn so far."""
        return self._arrays

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def _check(self, names: Collection[str], working: int = 0) -> None:
        """Refuse results of some variables, beside those that are held, and what drawing them takes meanwhile."""
        names = list(dict.fromkeys([*self._arrays, *names]))
        numbers = self._size * sum(math.prod(self._families[name].shape) for name in names)
        what, way = f"{self._size} draws of {', '.join(names)}", "draw fewer at a time"
        if working > numbers:
            what, way = f"{what}, with {amount(8 * working)} for the work,", "make the program smaller"
        need(numbers + working, what, way)

    def _blocks(self) -> Iterator[tuple[slice, Normals]]:
        """Draws some at a time, each with their normals; the last block of streams may be cut off."""
        for first in range(0, self._size, self._block):
            streams = Streams(self.draws.sources, self._block, self._seed, first // self._block)
            for start in range(0, min(self._block, self._size - first), self._together):
                stop = min(start + self._together, self._block)
                yield slice(first + start, min(first + stop, self._size)), Some(streams, slice(start, stop))

    def _draw(self, names: Collection[str]) -> None:
        self._check(names, self._working if any(math.prod(self._families[name].shape) for name in names) else 0)
        arrays = {n: np.empty((self._size, *self._families[n].shape)) for n in self._names if n in names}
        for part, streams in self._blocks():
            values = self.draws.values(streams, [*arrays])
            for name, array in arrays.items():
                drawn = without_coordinates(values[name], streams.draws) if name in values else self._number(name)
                array[part] = drawn[: part.stop - part.start]
        self._arrays |= arrays

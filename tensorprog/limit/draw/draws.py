"""`Draws`: what `Law.sample` fills `Samples` with."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.memory import amount
from tensorprog.limit.draw.layers import Layers, without_coordinates
from tensorprog.limit.draw.normals import CHUNK, Joined, Normals, Some, Streams
from tensorprog.limit.memory import Budget, need, numbers_at_once
from tensorprog.limit.moment.compilable import bases_of
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["Draws"]

Array = NDArray[Any]
BLOCK = 1024  # draws per random stream, at most
# numbers that draws take at once, about: every piece computes its moments again; blocks that are worked on together
WORKING, MOST_BLOCKS = 1 << 25, 16


class Draws(Mapping[str, NDArray[Any]]):
    """Draws of variables by name.

    Those in `held` are drawn at once; other scores, of which there may be far more than of outputs, when they are
    first read: from the same streams, so with the values that the outputs were drawn with.

    `number` gives the limits of scalars that no score reaches.

    Shapes    each (size, *members), of the precision `dtype`
    Scale     a block of draws is worked on at a time; if a draw takes more than CHUNK normals, one draw, and scores
              that are not held as many members at a time as a sum over them takes
    Raises    MemoryLimitError if what is asked for does not fit
    """

    def __init__(
        self, recursion: NumericRecursion, budget: Budget, number: Callable[[str], Array], size: int, seed: int,
        names: Sequence[str], held: Collection[str], dtype: str = "float64",
    ) -> None:  # fmt: skip
        self._families, self._budget, self._number = recursion.netsor.families, budget, number
        self._size, self._seed, self._names, self._dtype = size, seed, tuple(names), np.dtype(dtype)
        self._arrays: dict[str, Array] = {}
        self._check(held)
        vectors = [name for name in names if self._families[name].kind == "vector"]
        parts = (part for name in vectors for part in recursion.parts.last(name))
        self.sampler = Layers(recursion, names, bases_of(parts))
        # scores that a rewrite wrote as sums of others are drawn with what is held
        held = [*held, *(name for name in names if name not in (*held, *self.sampler.scores))]
        self._check(held)
        self._block = 1 << max(0, min(BLOCK, CHUNK // max(1, self.sampler.dim)).bit_length() - 1)
        self._later = self.sampler.drawn_when_read(held, self._block)
        at_once = numbers_at_once(WORKING, 2) // self.sampler.working_of(self._later)
        self._together = max(1, min(self._block, at_once))
        self._most = self._blocks_together(held)
        self._check(held, self.sampler.most(self._block, self._together, self._later))
        self._draw(held)

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays and name in self._names:
            with self._budget.within():
                one = math.prod(self._families[name].shape)
                self._check([name], self.sampler.most(self._block, self._together, self._later) if one else 0)
                array = self._empty(name)
                for part, streams in self._blocks():
                    drawn = without_coordinates(self.sampler.values(streams, [name], self._later)[name], streams.draws)
                    array[part] = drawn[: part.stop - part.start]
                self._arrays[name] = array
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
        need(numbers * self._dtype.itemsize / 8 + working, what, way)

    def _empty(self, name: str) -> Array:
        return np.empty((self._size, *self._families[name].shape), self._dtype)

    def _blocks(self) -> Iterator[tuple[slice, Normals]]:
        """Draws some at a time, each with their normals; the last block of streams may be cut off."""
        block = self._block
        for first, count in self._groups():
            streams = [Streams(self.sampler.sources, block, self._seed, first + k) for k in range(count)]
            for start in range(0, min(count * block, self._size - first * block), self._together * count):
                stop = min(start + self._together * count, count * block)
                part = slice(first * block + start, min(first * block + stop, self._size))
                whole = streams[0] if count == 1 else Joined(streams)
                yield part, whole if stop - start == whole.draws else Some(whole, slice(start, stop))

    def _blocks_together(self, held: Collection[str]) -> int:
        """A power of 2 of blocks that are worked on together, at most; fewer where results leave them no room."""
        if self._later or self._together < self._block:
            return 1
        most = max(
            1, min(MOST_BLOCKS, numbers_at_once(2 * WORKING, 1) // (self._block * self.sampler.working_of(self._later)))
        )
        most = 1 << (most.bit_length() - 1)
        room = numbers_at_once(1 << 60, 1) - self._size * sum(math.prod(self._families[name].shape) for name in held)
        while most > 1 and self.sampler.most(most * self._block, most * self._block, self._later) > room:
            most //= 2
        return most

    def _groups(self) -> Iterator[tuple[int, int]]:
        """First blocks and numbers of blocks that are worked on together: one, and as many as there were before.

        They are the same however many draws there are, so that no draw depends on that.
        """
        first = 0
        while first * self._block < self._size:
            count = min(max(1, first), self._most)
            yield first, count
            first += count

    def _draw(self, held: Collection[str]) -> None:
        arrays = {name: self._empty(name) for name in self._names if name in held}
        for part, streams in self._blocks():
            values = self.sampler.values(streams, [*arrays], self._later)
            for name, array in arrays.items():
                drawn = without_coordinates(values[name], streams.draws) if name in values else self._number(name)
                array[part] = drawn[: part.stop - part.start]
        self._arrays |= arrays

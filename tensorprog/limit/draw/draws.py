"""`Draws`: which normals make one draw of all that is random, and the moments given them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.evaluate import (
    BATCH,
    COORDINATE,
    Open,
    align,
    broadcast,
)
from tensorprog.language.expr import Variable, indices_of, variables
from tensorprog.language.ir import Dot, MatMul
from tensorprog.language.memory import amount
from tensorprog.language.schedule import upstream
from tensorprog.limit.draw.conditioned import ARRAYS, Conditioned, statements_of, without_coordinates
from tensorprog.limit.draw.factors import CHUNK, Factor, GivenNormals, Normals, Some, Source, Streams, dependent
from tensorprog.limit.form.definitions import place, target_box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.form.weight_columns import Columns
from tensorprog.limit.memory import Budget, need, numbers_at_once
from tensorprog.limit.moment.compilable import bases_of, refuse_cells
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.points import FEWEST, numbers_given, variables_drawn
from tensorprog.limit.moment.values import REPLICATE

__all__ = ["Draws", "Sampled"]


Array = NDArray[Any]
HELD = 4  # of the size of all moments, while they are computed
OF_SCORES = 2  # of the size of the largest family of scores or averages, where ARRAYS are of the largest moments


class Draws:
    """Draws all that is random and upstream of some variables, and one coordinate of each family in `bases`.

    `dim` normals make one draw.  Of a recurrence moments of one vector alone are kept, if its name is `passing`.

    Raises    NotCompiledError for gated cells of a recurrence that depend on scores or meet vectors that do
    """

    def __init__(
        self, recursion: NumericRecursion, wanted: Collection[str], bases: Collection[str] = (), passing: str = ""
    ) -> None:
        self.recursion, self.netsor = recursion, recursion.netsor
        self.wanted, self.bases = tuple(wanted), self._gaussian(bases)
        self.inner = 0.0  # the largest error of the averages drawn so far
        self.passing = passing
        read = upstream(self.netsor, [*self.wanted, *self.bases]) & recursion.random
        refuse_cells(recursion.parts, recursion.random, filter(self._is_vector, read))
        groups = dependent(recursion, [*recursion.summands])
        self.columns = Columns(
            self.netsor, recursion.recurrences.steps, {name: k for k, group in enumerate(groups) for name in group}
        )
        self.scores = {name: recursion.dot(name) for name in self.netsor.scores if name in recursion.random}
        self.sources = self._sources()
        self._factors: dict[Any, Factor] = {}  # of what is the same for all draws

    def _gaussian(self, bases: Collection[str]) -> frozenset[str]:
        """The Gaussian families among some, and those that others are functions of along recurrences."""
        parts, found, waiting = self.recursion.parts, set(bases), list(bases)
        while waiting:
            name = waiting.pop()
            if name in parts.carried:
                read = {v.name for p in self.netsor.families[name].statements for v in variables(parts.statement(p))}
                new = {other for other in read - found if self._is_vector(other)}
                found |= new
                waiting += new
        return frozenset(found - parts.carried)

    def _is_vector(self, name: str) -> bool:
        return self.netsor.families[name].kind == "vector"

    @property
    def dim(self) -> int:
        """Standard normals per draw."""
        return sum(math.prod(shape) for _, shape in self.sources)

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """Numbers of one draw that the moments of all layers are, as far as they are kept, and those of the largest."""
        random, families, sizes, scalars, passed = self.recursion.random, self.netsor.families, [1], [1], 0
        for step in self.recursion.recurrences.steps:
            name = step.statement.target.name
            if name in random and not isinstance(step.statement, MatMul):
                box = target_box(step.statement, step.ranges(self.netsor.ranges))
                members = math.prod(stop - start for start, stop in box)
                (sizes if self._is_vector(name) else scalars).append(members ** (1 + self._is_vector(name)))
                passed += sizes[-1] if self._is_vector(name) and name != self.passing else 0
        products = [s for s in self.netsor.body if isinstance(s, MatMul) and s.vector.name in random]
        for weight in {s.weight.name for s in products}:
            own = [s for s in products if s.weight.name == weight]
            members = max(1, math.prod(families[weight].shape))  # whose products depend on each other
            size = sum(math.prod(families[name].shape) for name in {s.target.name for s in own}) // members
            made = [size**2] * self._kinds(weight, own)
            sizes += made
            passed += sum(made)
        outputs = sum(math.prod(families[name].shape) ** 2 for name in self.netsor.outputs)
        largest = max(outputs, *sizes, *(count**2 for count in self._jointly), OF_SCORES * max(scalars) // ARRAYS)
        kept = sum(sizes) - passed if self.passing else max(sum(sizes), outputs)
        return max(self.dim, kept + sum(scalars)), largest

    def _kinds(self, weight: str, products: Sequence[MatMul]) -> int:
        """Members of a weight whose products have covariances of their own: those of other members are like one."""
        declared, ranges = self.netsor.weight[weight], self.netsor.ranges
        told = {k for k, index in enumerate(declared.indices) if index in indices_of(declared.variance, ranges)}
        for s in products:
            indices = self._tells(s.vector)
            told |= {k for k, slot in enumerate(s.weight.slots) if indices & {*slot.indices}}
        return math.prod(self.netsor.families[weight].shape[k] for k in told)

    def _tells(self, vector: Variable, before: frozenset[str] = frozenset()) -> set[str]:
        """Indices on which covariances of a vector depend: of products, those of what they multiply."""
        made = [self.netsor.body[position] for position in self.netsor.families[vector.name].statements]
        if len(made) == 1 and isinstance(made[0], MatMul) and vector.name not in before:
            inner = self._tells(made[0].vector, before | {vector.name})
            slots = zip(vector.slots, made[0].target.slots, strict=True)
            return {name for slot, own in slots if inner & {*own.indices} for name in slot.indices}
        return {name for slot in vector.slots for name in slot.indices}

    @cached_property
    def _jointly(self) -> list[int]:
        """Variables of each vector whose moments are averages over draws of their own, for every draw of scores."""
        statements, parts = statements_of(self.recursion), self.recursion.parts
        needed, found = upstream(self.netsor, self.wanted), set(() if self.bases else self.wanted)
        for statement in self.netsor.body:
            averages = isinstance(statement, MatMul) or (isinstance(statement, Dot) and statement.scale == "1/n")
            if averages and statement.target.name in needed:
                found |= {v.name for v in statement.inputs}
        asked = sorted(name for name in found & self.recursion.random if self._is_vector(name))
        ranges = {name: tuple(self.netsor.families[name].ranges) for name in asked}
        boxes = [(name, box) for name, whole in ranges.items() for box in statements.boxes(name, whole)]
        return [count for name, box in boxes if (count := variables_drawn(parts, name, box))]

    @property
    def width(self) -> int:
        """Numbers that one draw takes, about."""
        return self._sizes[0] + FEWEST * sum(self._jointly)

    @property
    def working(self) -> int:
        """Numbers held at once for one draw, about: of all layers what is known, and what one layer takes.

        Of vectors at points all that is known: these take most of it.
        """
        return HELD * (self._sizes[0] + sum(map(numbers_given, self._jointly))) + ARRAYS * self._sizes[1]

    # -- what is needed -------------------------------------------------------------------------------------------

    def _sources(self) -> list[Source]:
        needed, families = upstream(self.netsor, self.wanted), self.netsor.families
        drawn = {name for name in needed if self._is_vector(name) and self.recursion.is_finite(name)}
        drawn = {name for name in drawn if self.recursion.parts.is_base(name)} | self.bases
        columns = {weight: owner.shape[1] for weight, owner in self.columns.owner.items()}
        found: list[Source] = []
        for key in sorted({self.columns.source[name] for name in needed & self.columns.source.keys()}):
            found.append((key, (len(self.columns.pairs[key]), *(columns[weight] for weight in key[1:]))))
        for name in sorted(needed & self.columns.together.keys()):
            found.append((("scores", name), (math.prod(families[name].shape),)))
        widths = {name: self.recursion.width(name) for name in sorted(drawn)}
        products = {self.columns.weight[name]: widths[name] for name in widths if families[name].statements}
        for weight, width in sorted(products.items()):
            found.append((("weight", weight), (*self.columns.owner[weight].shape, width)))
        for name in (name for name in widths if not families[name].statements):
            found.append((("initial", name), (*self.recursion.initials[name].shape, widths[name])))
        return found

    # -- draws ----------------------------------------------------------------------------------------------------

    def at(self, points: Array) -> Conditioned:
        """The moments given draws at points (draws, dim)."""
        normals = GivenNormals(self.sources, points)
        return Conditioned(self.recursion, self.columns, normals, None, self._factors, self.passing, self.bases)

    def values(self, normals: Normals, names: Collection[str]) -> dict[str, Open]:
        """Draws of variables that are random, or vectors, which have one coordinate, by name.

        Shapes    over BATCH, the positions and, for vectors, COORDINATE
        """
        found = Conditioned(self.recursion, self.columns, normals, factors=self._factors)
        wanted = [name for name in names if name in self.recursion.random or self._is_vector(name)]
        values = {name: self.drawn(found, name) for name in wanted}
        found.forget()
        return values

    def drawn(self, found: Conditioned, name: str) -> Open:
        """A variable for every draw: a scalar, or the first coordinate of a vector.

        Shapes    over BATCH, the positions and, for vectors, COORDINATE
        """
        ranges = position_names(self.netsor, name)
        sizes = {axis: stop - start for axis, (start, stop) in ranges.items()}
        if not self._is_vector(name):
            axes, average = (REPLICATE, *ranges), found.average(name)
            self.inner = max(self.inner, float(np.max(average.estimate.error, initial=0.0)))
            data = broadcast(average.value, axes, sizes | {REPLICATE: found.normals.draws})
            return Open((BATCH, *ranges), data)
        draws, axes = found.normals.draws, (REPLICATE, *ranges, COORDINATE)
        data = np.empty((draws, *sizes.values(), 1))
        whole = tuple(ranges.values())
        for box in found.statements.boxes(name, whole) if found.parts.spelled else [whole]:
            value = found.vector(name, dict(zip(ranges, box, strict=True)))
            value = Open(value.axes, value.data[..., :1]) if COORDINATE in value.axes else value
            data[(slice(None), *place(box, whole))] = align(value, axes)
        return Open((BATCH, *ranges, COORDINATE), data)


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

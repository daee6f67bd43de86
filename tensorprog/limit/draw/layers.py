"""Draws where there are several layers of scores or widths that stay finite: layer after layer, all draws at once."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from numpy.typing import NDArray

from tensorprog.language.ir import MatMul
from tensorprog.language.named_arrays import BATCH, COORDINATE, Open, broadcast
from tensorprog.language.schedule import upstream
from tensorprog.limit.draw.conditioned import Conditioned
from tensorprog.limit.draw.normals import Normals, Points, Source
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.form.weight_columns import Columns
from tensorprog.limit.moment.compilable import refuse_cells
from tensorprog.limit.moment.compiler import Compiler
from tensorprog.limit.moment.replicates import REPLICATE

__all__ = ["ARRAYS", "Layers"]

Array = NDArray[Any]
ARRAYS = 20  # of the size of all that is drawn, while moments are computed


class Layers:
    """Draws all that is random and upstream of some variables, and one coordinate of each family in `bases`.

    `dim` normals make one draw.

    Raises    NotCompiledError for gated cells of a recurrence that depend on scores or meet vectors that do
    """

    def __init__(self, compiler: Compiler, wanted: Collection[str], bases: Collection[str] = ()) -> None:
        self.compiler, self.netsor = compiler, compiler.netsor
        self.wanted, self.bases = tuple(wanted), frozenset(bases)
        self.averages: dict[str, Any] = {}
        refuse_cells(compiler)
        self.columns = Columns(self.netsor, compiler.recurrences.steps)
        self.scores = {name: compiler.dot(name) for name in self.netsor.scores if name in compiler.random}
        self.sources = self._sources()

    def _is_vector(self, name: str) -> bool:
        return self.netsor.families[name].kind == "vector"

    @property
    def dim(self) -> int:
        """Standard normals per draw."""
        return sum(math.prod(shape) for _, shape in self.sources)

    @property
    def width(self) -> int:
        """Numbers that one draw takes, about."""
        random = self.compiler.random
        products = {s.vector.name for s in self.netsor.body if isinstance(s, MatMul) and s.vector.name in random}
        names = [*products, *self.netsor.outputs]
        return max(1, self.dim, sum(math.prod(self.netsor.families[name].shape) ** 2 for name in names))

    def numbers(self, later: Collection[str] = ()) -> int:
        """Numbers of one draw, about."""
        return self.width

    def most(self, block: int, draws: int, later: Collection[str] = ()) -> int:
        """Numbers held at once, about, while some draws of a block are evaluated."""
        return block * self.dim + ARRAYS * draws * self.width

    # -- what is needed -------------------------------------------------------------------------------------------

    def _sources(self) -> list[Source]:
        needed, families = upstream(self.netsor, self.wanted), self.netsor.families
        drawn = {name for name in needed if self._is_vector(name) and self.compiler.is_finite(name)}
        drawn = {name for name in drawn if self.compiler.parts.is_base(name)} | self.bases
        columns = {weight: owner.shape[1] for weight, owner in self.columns.owner.items()}
        found: list[Source] = []
        for key in sorted({self.columns.source[name] for name in needed & self.columns.source.keys()}):
            found.append((key, (len(self.columns.pairs[key]), *(columns[weight] for weight in key[1:]))))
        widths = {name: self.compiler.width(name) for name in sorted(drawn)}
        products = {self.columns.weight[name]: widths[name] for name in widths if families[name].statements}
        for weight, width in sorted(products.items()):
            found.append((("weight", weight), (*self.columns.owner[weight].shape, width)))
        for name in (name for name in widths if not families[name].statements):
            found.append((("initial", name), (*self.compiler.initials[name].blocks.shape[:-1], widths[name])))
        return found

    # -- draws ----------------------------------------------------------------------------------------------------

    def conditioned(self, normals: Normals) -> Conditioned:
        """The moments given draws."""
        return Conditioned(self.compiler, self.columns, normals)

    def at(self, points: Array) -> Conditioned:
        """The moments given draws at points (draws, dim)."""
        return self.conditioned(Points(self.sources, points))

    def values(self, normals: Normals, later: Collection[str] = ()) -> dict[str, Open]:
        """Draws of the variables wanted, vectors with one coordinate; nothing is left for `later`.

        Shapes    over BATCH, the positions and, for vectors, COORDINATE
        """
        found = self.conditioned(normals)
        random = self.compiler.random
        names = [name for name in self.wanted if name in random or self._is_vector(name)]
        values = {name: self.drawn(found, name) for name in names}
        found.forget()
        return values

    def scores_of(self, name: str, normals: Normals) -> Open:
        """All members of a score."""
        return self.drawn(self.conditioned(normals), name)

    def drawn(self, found: Conditioned, name: str) -> Open:
        """A variable for every draw: a scalar, or the first coordinate of a vector.

        Shapes    over BATCH, the positions and, for vectors, COORDINATE
        """
        ranges = position_names(self.netsor, name)
        sizes = {axis: stop - start for axis, (start, stop) in ranges.items()}
        if not self._is_vector(name):
            axes = (REPLICATE, *ranges)
            data = broadcast(found.average(name).value, axes, sizes | {REPLICATE: found.normals.draws})
            return Open((BATCH, *ranges), data)
        value = found.vector(name, ranges)
        value = Open(value.axes, value.data[..., :1]) if COORDINATE in value.axes else value
        axes = (REPLICATE, *ranges, COORDINATE)
        data = broadcast(value, axes, sizes | {REPLICATE: found.normals.draws, COORDINATE: 1})
        return Open((BATCH, *ranges, COORDINATE), data)

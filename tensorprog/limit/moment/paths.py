"""What is carried along a recurrence without a MatMul between, as the cells of an LSTM: averages over draws.

Such a vector is a function of all Gaussian variables of the steps before it.  Draws of these grow with the recurrence:
each step adds the members whose covariances it has made known, conditionally on those before, and what is carried is
computed for every draw.  Second moments are averages of products over the draws.

There are several replicates of quasi-random draws, and each keeps to its own covariances from the first step to the
last: their spread is the error of the results, with the effect of errors of earlier steps on later ones in it.  The
replicates are an axis of all values until `settled`.  They are worked on a few at a time, so that beside the draws that
are kept little memory is needed; every product is one of a single replicate, so that it does not matter how many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.evaluate import Scope, evaluate
from tensorprog.language.expr import Expr, Variable, variables
from tensorprog.language.ir import MatMul, Range
from tensorprog.language.named_arrays import COORDINATE, Open, align, gather, multiply
from tensorprog.language.substitute import compose
from tensorprog.limit.form.definitions import Box, place, target_box
from tensorprog.limit.form.sums_of_functions import Part
from tensorprog.limit.moment.averaging import REPLICATES, point_sets
from tensorprog.limit.moment.budget import need
from tensorprog.limit.moment.joint import triangular
from tensorprog.limit.moment.numbers import Numbers
from tensorprog.limit.moment.products import factors_of, written
from tensorprog.limit.moment.replicates import REPLICATE, members_read
from tensorprog.limit.moment.values import Value
from tensorprog.limit.moment.weights import Source, Weights, meet, plain

__all__ = ["Paths"]

Array = NDArray[Any]
LEAST_LOG2, MOST_LOG2 = 6, 17  # draws per replicate
FEW = 2  # rows of a matrix product
TOGETHER = 1 << 19  # numbers of an array that is needed for a while only, about; at least those of one replicate


class _Joint:
    """Gaussian families of one source, drawn member after member: a factor of their covariance in each replicate."""

    def __init__(self, replicates: int) -> None:
        self.segments: list[tuple[str, list[Array]]] = []  # family and positions of the members in the order drawn
        self.cov = np.zeros((replicates, 0, 0))
        self.factor = self.cov
        self.columns = np.zeros(0, dtype=np.int64)  # which normals are theirs


class Paths:
    """Draws of all that carried families depend on, as far as recurrences have come.

    Shapes    values of a carried family (replicates, *members, draws)
    Scale     `held` numbers are held at once by all draws: more of them, and fewer draws, for longer recurrences
    """

    def __init__(self, numbers: Numbers, held: int, pilot: Callable[[], Paths] | None = None) -> None:
        self.numbers, self.netsor, self.parts = numbers, numbers.netsor, numbers.parts
        self.replicates = 1 if pilot is None else REPLICATES
        self.range: Range = (0, self.replicates)
        self.relative = 0.0  # the largest relative error of the covariances drawn with, without the spread
        vectors = [name for name in self.parts.carried if self.netsor.families[name].kind == "vector"]
        self.families = families = sorted(set(vectors) - numbers.random)
        self._sources = self._closure(families)
        self.weights = Weights(self)
        drawn = {name for name in self.netsor.families if self.parts.is_base(name)}
        self._needed = self._reached()
        drawn = {name for name in drawn if self.parts.source(name) in self._needed}
        self.dim = sum(math.prod(self.netsor.families[name].shape) for name in drawn)
        carried = sum(math.prod(self.netsor.families[name].shape) for name in families)
        members = (self.dim + 1) // 2 + carried * (1 + self.weights.count)
        log2 = int(math.log2(max(1, held // (self.replicates * max(1, members)))))
        self._log2 = min(max(log2, LEAST_LOG2), MOST_LOG2)
        self.points = 1 << self._log2
        need(
            self.replicates * self.points * max(1, members),
            f"the fewest draws, {self.points} in each of {self.replicates} replicates, of what is carried along a "
            f"recurrence ({', '.join(families)})",
            "make the recurrence shorter, or raise max_memory",
        )
        self._joints: dict[str, _Joint] = {}
        self._rows: dict[str, Array] = {}  # number of each member in its joint; -1 before it is drawn
        self._values: dict[str, Array] = {}
        self._used = 0
        self._pilot = pilot
        self._normals: Array | None = None

    def _members(self, reference: Variable) -> Source:
        """The source of a Gaussian variable, with the slots of the weight that are numbers; None stands for any."""
        positions = self.netsor.families[reference.name].statements
        if not positions:
            return reference.name, ()
        statement = self.netsor.body[positions[0]]
        assert isinstance(statement, MatMul)
        names = {own.bare: s for own, s in zip(statement.target.slots, reference.slots, strict=True) if own.bare}
        slots = [compose(slot, names) for slot in statement.weight.slots]
        return statement.weight.name, tuple(None if slot.terms else slot.offset for slot in slots)

    def _closure(self, families: Sequence[str]) -> dict[str, frozenset[Source]]:
        """The sources that each carried family depends on."""
        read = {
            name: {v for position in self.netsor.families[name].statements
                   for v in variables(self.parts.statement(position)) if self.netsor.families[v.name].kind == "vector"}
            for name in families
        }  # fmt: skip
        found: dict[str, frozenset[Source]] = {name: frozenset() for name in families}
        for _ in families:
            for name in families:
                own = {self._members(v) for v in read[name] if v.name not in found}
                found[name] = found[name].union(own, *(found[v.name] for v in read[name] if v.name in found))
        return found

    def _reached(self) -> set[str]:
        """The weights and initial vectors that are drawn: all that some factor has together with carried families."""
        vectors = [name for name, family in self.netsor.families.items() if family.kind == "vector"]
        parts = [part for name in vectors if name not in self.numbers.random for part in self.parts.of(name)]
        factors = {self.sources_of(factor) for part in parts for factor in factors_of(self.parts, part)}
        found = frozenset[Source]().union(*self._sources.values())
        while joined := {sources for sources in factors if meet(found, sources)}:
            factors -= joined
            found = found.union(*joined)
        return {source for source, _ in found}

    # -- draws --------------------------------------------------------------------------------------------------

    def step(self, position: int, box: Box) -> None:
        """Compute the members in a box of a carried family by one of its statements."""
        name = self.netsor.body[position].target.name
        family = self.netsor.families[name]
        axes = tuple(str(k) for k in range(len(box)))
        if name not in self._values:  # before its first members, which may read it beyond a boundary
            self._values[name] = np.zeros((self.replicates, *family.shape, self.points))
        ranges, values = dict(zip(axes, box, strict=True)), self._values[name]
        for part in self.replicate_groups(math.prod(b - a for a, b in box)):
            value = self.evaluate(self.parts.statement(position), ranges, part)
            values[(part, *place(box, family.ranges))] = align(value, (REPLICATE, *axes, COORDINATE))
        self.weights.step(position, box)

    def draw(self, name: str, box: Box) -> None:
        """Draw members of a Gaussian family, given all that was drawn before."""
        source, family = self.parts.source(name), self.netsor.families[name]
        if source not in self._needed:
            return
        joint = self._joints.setdefault(source, _Joint(self.replicates))
        grid = [g.reshape(-1) for g in np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij")]
        count, old = math.prod(b - a for a, b in box), joint.cov.shape[-1]
        rows = self._rows.setdefault(name, np.full(family.shape, -1))
        rows[place(box, family.ranges)] = np.arange(old, old + count).reshape([b - a for a, b in box])
        joint.segments.append((name, grid))
        cov = np.zeros((self.replicates, old + count, old + count))
        cov[:, :old, :old] = joint.cov
        stop = 0
        for other, places in joint.segments:
            start, stop = stop, stop + (len(places[0]) if places else 1)
            block = self._covariance(name, grid, other, places)
            cov[:, old:, start:stop], cov[:, start:stop, old:] = block, np.swapaxes(block, 1, 2)
        joint.cov, joint.factor = cov, triangular(cov)
        joint.columns = np.append(joint.columns, np.arange(self._used, self._used + count))
        self._used += count

    def _covariance(self, f: str, first: Sequence[Array], g: str, second: Sequence[Array]) -> Array:
        at = {str(k): p[None, :, None] for k, p in enumerate(first)}
        at |= {f"{k}_": p[None, None, :] for k, p in enumerate(second)}
        moment = self.numbers.base(f, g)
        found = moment.at({**at, REPLICATE: np.arange(self.replicates)[:, None, None]})
        self.relative = max(self.relative, float(found.error.max() / max(np.abs(found.value).max(), 1e-300)))
        return np.broadcast_to(found.value, (self.replicates, *(len(p[0]) if p else 1 for p in (first, second))))

    @property
    def normals(self) -> Array:
        """Quasi-random normals, their first coordinates turned to where they matter most.

        Shapes    (replicates, dim, draws), in single precision
        """
        if self._normals is None:
            turn = np.eye(max(self.dim, 1)) if self._pilot is None or not self.dim else self._pilot().directions()
            self._normals = np.empty((self.replicates, len(turn), self.points), dtype=np.float32)
            for number, points in zip(range(self.replicates), point_sets(len(turn), self._log2, 0), strict=False):
                self._normals[number] = turn @ points.T
        return self._normals

    def directions(self) -> Array:
        """Directions of the normals in falling order of their effect on the affine forms that statements read.

        Any rotation of standard normals is exact; one along principal axes concentrates what functions vary with in
        the first coordinates, where quasi-random points are best.

        Shapes    (dim, dim), orthogonal
        """
        self.numbers.ready(*self.families)
        self._normals = np.tile(np.eye(self.dim, self.dim + 1), (self.replicates, 1, 1))
        effects = []
        for position in (p for name in self.families for p in self.netsor.families[name].statements):
            box = target_box(self.netsor.body[position], self.netsor.ranges)
            for form in self._forms(self.parts.statement(position)):
                drawn = self.evaluate(form, {str(k): span for k, span in enumerate(box)})
                mean = np.moveaxis(drawn.data, drawn.axes.index(REPLICATE), 0).mean(axis=0).reshape(-1, self.dim + 1)
                effects.append(mean[:, :-1] - mean[:, -1:])
        return np.asarray(np.linalg.svd(np.concatenate([*effects, np.zeros((1, self.dim))]))[2].T)

    def _forms(self, expr: Expr) -> Iterator[Expr]:
        """The largest parts of an expression that are affine in Gaussian variables."""
        if not self.parts.is_vector(expr) or (isinstance(expr, Variable) and expr.name in self.parts.carried):
            return
        reads = {variable.name for variable in variables(expr)}
        if self.parts.affine(expr) is not None and not reads & self.parts.carried:
            yield expr
            return
        for child in expr.children:
            yield from self._forms(child)

    def _gaussian(self, reference: Variable, ranges: Mapping[str, Range], part: slice) -> Open:
        """Draws of a Gaussian variable."""
        name, family = reference.name, self.netsor.families[reference.name]
        self.numbers.ready(name)
        if name not in self._rows:
            self.draw(name, family.ranges)
        joint = self._joints[self.parts.source(name)]
        slots = {str(k): slot for k, slot in enumerate(reference.slots)}
        starts = {str(k): start for k, (start, _) in enumerate(family.ranges)}
        rows = gather(Open(tuple(slots), self._rows[name]), slots, ranges, starts)
        flat = rows.data.reshape(-1)
        drawn = np.stack([_product(factor[flat], normals[joint.columns])
                          for factor, normals in zip(joint.factor[part], self.normals[part], strict=True)])  # fmt: skip
        mean = self.numbers.base_mean(reference, ranges)
        value = Open((REPLICATE, *rows.axes, COORDINATE), drawn.reshape(len(drawn), *rows.data.shape, -1))
        if mean.zero():
            return value
        axes = (REPLICATE, *dict.fromkeys((*rows.axes, *mean.axes)), COORDINATE)
        return Open(axes, align(value, axes) + align(mean.value, axes))

    def _read(self, part: slice, reference: Variable, ranges: Mapping[str, Range]) -> Open:
        family = self.netsor.families[reference.name]
        if family.kind == "scalar":
            found: Open = self.numbers.scope(ranges).variable(reference, ranges)
            if REPLICATE not in found.axes:
                return found
            return Open(found.axes, found.data[(slice(None),) * found.axes.index(REPLICATE) + (part,)])
        if reference.name not in self.parts.carried:
            return self._gaussian(reference, ranges, part)
        self.numbers.ready(reference.name)
        return members_read(self._values[reference.name][part], reference, family, ranges, COORDINATE)

    def evaluate(self, expr: Expr, ranges: Mapping[str, Range], part: slice = slice(None)) -> Open:
        """An expression over the indices in the ranges, for every draw of some replicates."""
        return evaluate(expr, Scope(self.netsor, self.parts.every_range() | dict(ranges), partial(self._read, part)))

    def replicate_groups(self, members: int) -> list[slice]:
        """The replicates in groups that are worked on together, if so many numbers are needed for each draw."""
        size = max(1, TOGETHER // (max(1, members) * self.points))
        return [slice(start, min(start + size, self.replicates)) for start in range(0, self.replicates, size)]

    # -- averages -----------------------------------------------------------------------------------------------

    def split(self, factors: Sequence[Part]) -> tuple[list[Part], list[list[Part]]]:
        """Factors that no carried family takes part in, and groups of others that are independent of each other."""
        groups: list[tuple[frozenset[Source], list[Part]]] = []
        plain = []
        for factor in factors:
            sources = self.sources_of(factor)
            if not sources and not self._carried(factor):
                plain.append(factor)
                continue
            joined = [group for group in groups if meet(group[0], sources)]
            groups = [group for group in groups if not meet(group[0], sources)]
            groups.append((sources.union(*(s for s, _ in joined)), [*(f for _, g in joined for f in g), factor]))
        drawn = [group for _, group in groups if any(self._carried(factor) for factor in group)]
        return [*plain, *(f for _, group in groups if group not in drawn for f in group)], drawn

    def sources_of(self, factor: Part) -> frozenset[Source]:
        """The sources that a factor depends on."""
        read = {variable for _, variable, _ in factor.inner}
        own = {self._members(variable) for variable in read if variable.name not in self._sources}
        return frozenset(own).union(*(self._sources[v.name] for v in read if v.name in self._sources))

    def _carried(self, factor: Part) -> bool:
        return any(variable.name in self.parts.carried for _, variable, _ in factor.inner)

    def average(self, first: Sequence[Part], second: Sequence[Part], ranges: Mapping[str, Range]) -> Value:
        """E of a product, for every replicate; the factors of each side read indices of their own."""
        if all(len(side) == 1 and plain(side[0], self.parts.carried) for side in (first, second)):
            exact = self.weights.average(first[0].inner[0][1], second[0].inner[0][1], ranges)
            if exact is not None:
                return Value(exact.axes, Estimate(exact.data, self.relative * np.abs(exact.data)))
        found = [self._average(first, second, ranges, part) for part in self.replicate_groups(_members(ranges))]
        value = np.concatenate([each.data for each in found])
        return Value(found[0].axes, Estimate(value, self.relative * np.abs(value)))

    def _average(
        self, first: Sequence[Part], second: Sequence[Part], ranges: Mapping[str, Range], part: slice
    ) -> Open:
        """The same for some replicates, which are the first axis."""
        count = len(range(*part.indices(self.replicates)))
        sides = [
            reduce(multiply, (self.evaluate(written(factor), ranges, part) for factor in side))
            if side else Open((REPLICATE, COORDINATE), np.ones((count, self.points)))
            for side in (first, second)
        ]  # fmt: skip
        own = [tuple(name for name in side.axes if name not in (REPLICATE, COORDINATE)) for side in sides]
        arrays = [align(side, (REPLICATE, *axes, COORDINATE)) for side, axes in zip(sides, own, strict=True)]
        one, two = (np.ascontiguousarray(a.reshape(count, -1, self.points)) for a in arrays)
        total = _product(one, two.swapaxes(1, 2)) / self.points
        if not np.isfinite(total).all():
            raise FloatingPointError("a function of vectors in a recurrence is not finite for some of their values")
        return Open((REPLICATE, *own[0], *own[1]), total.reshape(count, *(n for a in arrays for n in a.shape[1:-1])))


def _members(ranges: Mapping[str, Range]) -> int:
    """Numbers that both sides of an average have for each draw, about."""
    sizes = {name: stop - start for name, (start, stop) in ranges.items() if name != REPLICATE}
    sides = ([size for name, size in sizes.items() if name.endswith("_") == copy] for copy in (False, True))
    return sum(math.prod(side) for side in sides)


def _product(first: Array, second: Array) -> Array:
    """Matrix products; with few rows they only read memory, and the threads of a BLAS would wait for each other."""
    few = min(first.shape[-2], second.shape[-1]) <= FEW
    return np.asarray(np.einsum("...ab,...bc->...ac", first, second) if few else np.matmul(first, second))

"""Vectors that are linear given the scores, as sums of independent parts: heads, and blocks that share nothing.

y = sum over a of y_a with y_a = sum over j of w(p[a, .]) Z[a, j] is a sum of H independent variables when different a
share neither scores nor Gaussian variables.  Each is Gaussian given its own scores, which are few: averages over them
converge quickly, and moments and characteristic functions of the sum are powers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import TINY
from tensorprog.gaussian.several import normal_points
from tensorprog.language.errors import NotFiniteError
from tensorprog.language.evaluate import BATCH, Open, broadcast
from tensorprog.language.expr import Affine, Variable, index_names, reindexed, variables, walk
from tensorprog.language.ir import Range
from tensorprog.limit.draw.sampler import Sampler, members_read
from tensorprog.limit.form.definitions import Box, reads_beyond
from tensorprog.limit.form.sums_of_functions import WeightedFunction
from tensorprog.limit.law.intervals import Moving
from tensorprog.limit.moment.given_scores import LinearCovariance, Of, linear_mean
from tensorprog.limit.moment.indexed import Equations, canonical, difference, solve
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["HEAD", "Displacement", "LinearVector", "ScoreBlock", "Summands"]

Array = NDArray[Any]
Ranges = Mapping[str, Range]
Structure = list[tuple[Equations, frozenset[str]]]  # equations of the terms of a covariance, axes of their values
HEAD = "%"  # the index of the summands of a block
Reading = Callable[[Mapping[str, Open], int], tuple[Array, Array]]
FEW_LOG2 = 6  # of draws at which it is looked at what errors do
FEWEST, AT_ONCE = 8, 1 << 20  # of them where a draw has many members, of which so many are held


class LinearVector:
    """A linear vector family over the members of a box: its parts, and the ranges of its positions."""

    def __init__(self, recursion: NumericRecursion, name: str, box: Box) -> None:
        self.name, self.parts = name, recursion.parts.of(name)
        self.ranges = {str(k): span for k, span in enumerate(box)}

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the positions."""
        return tuple(self.ranges)

    @property
    def members(self) -> tuple[int, ...]:
        """Sizes of the positions."""
        return tuple(stop - start for start, stop in self.ranges.values())


@dataclass(frozen=True)
class Region:
    """Means and variances at the centres of boxes of given masses, and how far functions may move means and deviations
    that are not followed (see `Moving`); `smooth` if all functions are, and have no kink.

    Shapes    mass (boxes,), mean, var, more_mean, more_sd (boxes, numbers)
    """

    smooth: bool
    mass: Array
    mean: Array
    var: Array
    more_mean: Array
    more_sd: Array

    def hidden(self, unseen: float) -> tuple[Array, Array]:
        """Most that a set of that mass, wherever it hides, can add to the second and fourth moments.

        Shapes    (numbers,) twice
        """
        with np.errstate(invalid="ignore", over="ignore"):
            size = self.mean**2 + self.var
            more = (np.abs(self.mean) + self.more_mean) ** 2 + (np.sqrt(self.var) + self.more_sd) ** 2 - size
            moved = (self.more_mean > 0) | (self.more_sd > 0)
            gains = [np.where(moved, np.nan_to_num(g, nan=np.inf), 0.0) for g in (more, more * (2 * size + more))]
        found = []
        for gain in gains:
            order = np.argsort(-gain, axis=0)
            mass = self.mass[order]
            before = np.cumsum(mass, axis=0) - mass
            part = np.clip(unseen - before, 0.0, mass)
            with np.errstate(invalid="ignore"):
                each = np.where(part > 0, part * np.take_along_axis(gain, order, axis=0), 0.0)
            found.append(each.sum(axis=0))
        return found[0], found[1]


class Displacement:
    """What errors do to variables: looked at for a few draws.

    `read` gives means and variances given draws, (draws, numbers), of the values and the number of draws; `wrong` what
    errors of the moments of Gaussian variables do to these.  Errors of averages count in proportion to their largest.
    """

    def __init__(self, sampler: Sampler, read: Reading, wrong: Reading | None = None) -> None:
        self.sampler, self.read, self.wrong = sampler, read, wrong
        self._largest: dict[str, float] = {}
        self._found: tuple[Array, Array] | None = None

    @property
    def found(self) -> tuple[Array, Array]:
        """How far they may move means, and how much central second and fourth moments, relatively.

        Shapes    (numbers,), twice
        """
        larger = any(error > self._largest.get(name, 0.0) for name, error in self.sampler.largest.items())
        if self._found is None or larger:
            self._found = self._looked_at()
            self._largest = dict(self.sampler.largest)
        return self._found

    def few(self) -> tuple[Mapping[str, Open], int]:
        """Values at a few draws, and their number."""
        dim = self.sampler.dim
        few = min(1 << FEW_LOG2, max(FEWEST, AT_ONCE // max(1, self.sampler.demanded))) if dim else 1
        points = normal_points(max(dim, 1), FEW_LOG2, 1, 0)[0][:few, :dim]
        return self.sampler.draw(points), few

    def effects(self, values: Mapping[str, Open], few: int, change: Callable[[Mapping[str, Open]], Array]) -> Array:
        """The sum over everything that may be off of how much something changes with it."""
        largest: dict[tuple[str, int], Array] = {}
        for key, moved, times in self.sampler.displaced(values, few):
            found = times * change(moved)
            largest[key] = np.maximum(largest[key], found) if key in largest else found
        return np.asarray(sum(largest.values(), start=np.zeros(())))

    def _looked_at(self) -> tuple[Array, Array]:
        values, few = self.few()
        own = self.read(values, few)
        here = _central(*own)

        def changes(there: tuple[Array, Array, Array]) -> Array:
            mean, second, fourth = (np.abs(a - b) for a, b in zip(there, here, strict=True))
            with np.errstate(over="ignore"):
                relative = second / np.maximum(here[1], TINY), fourth / np.maximum(2 * here[2], TINY)
            return np.stack([mean, np.maximum(*relative)])

        total = self.effects(values, few, lambda moved: changes(_central(*self.read(moved, few))))
        if self.wrong is not None:
            off, more = self.wrong(values, few)
            total = total + changes(_central(own[0], own[1] + more))
            total[0] += off.mean(axis=0)
        shift, relative = np.broadcast_to(total, (2, *here[0].shape))
        return shift, relative


def _central(mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """Mean, and central second and fourth moments, over equally many draws of Gaussians."""
    centre = mean.mean(axis=0)
    away = np.square(mean - centre)
    return centre, (var + away).mean(axis=0), (3 * var**2 + 6 * var * away + away**2).mean(axis=0)


class ScoreBlock:
    """Parts of the functions that depend on each other, and on no other part.

    `head` names the index over which the block is a sum of independent summands, or is empty.  The summands are
    `count` copies of the members of `heads`: one member where all have the same law.
    """

    def __init__(
        self,
        recursion: NumericRecursion,
        vectors: Sequence[LinearVector],
        parts: Sequence[Sequence[WeightedFunction]],
        head: str,
        span: Range,
        alike: bool,
    ) -> None:
        self.recursion, self.vectors, self.parts, self.head = recursion, vectors, parts, head
        start, stop = span
        self.heads = (start, start + 1) if alike else span
        self.count = stop - start if alike else 1
        wanted: dict[str, Box] = {}
        for function, own in zip(vectors, parts, strict=True):
            ranges = recursion.parts.every_range() | function.ranges | {HEAD: self.heads}
            for part in own:
                for reference in _random(recursion, part):
                    box = members_read(recursion.netsor, reference, ranges)
                    old = wanted.get(reference.name, box)
                    wanted[reference.name] = tuple(
                        (min(a, c), max(b, d)) for (a, b), (c, d) in zip(old, box, strict=True)
                    )
        self.random = bool(wanted)
        self.sampler = Sampler(recursion, wanted, vectors=False)
        self._covariances: dict[tuple[int, int], LinearCovariance] = {}
        self.displacement = Displacement(self.sampler, self._given, self._wrong)

    @property
    def size(self) -> int:
        """Number of members of `heads`."""
        return self.heads[1] - self.heads[0]

    def draw(self, points: Array) -> Mapping[str, Open]:
        """Scores at quasi-random normals (draws, dim)."""
        return self.sampler.draw(points)

    def mean(self, k: int, values: Mapping[str, Open], draws: int, of: Of = "numbers") -> Array:
        """E[summands of function k | p-ring]; `of` the errors: what they do to it.

        Shapes    (draws, heads, *members)
        """
        f = self.vectors[k]
        ranges = f.ranges | {HEAD: self.heads}
        with np.errstate(all="ignore"):
            value = linear_mean(self.recursion, self.parts[k], ranges, self.sampler.reader(values), of)
        return broadcast(self._finite(value, k), (BATCH, HEAD, *f.positions), self._sizes(draws, f))

    def var(self, k: int, values: Mapping[str, Open], draws: int, of: Of = "numbers") -> Array:
        """Var[summands of function k | p-ring], or what errors do to it.

        Shapes    (draws, heads, *members)
        """
        f = self.vectors[k]
        with np.errstate(all="ignore"):
            value = self._covariance(k, k).value(self.sampler.reader(values), [HEAD, *f.positions], of)
        return broadcast(self._finite(value, k), (BATCH, HEAD, *f.positions), self._sizes(draws, f))

    def at(self, points: Array) -> tuple[Array, Array]:
        """Means and variances of the summands of all functions at standard normals.

        Shapes    points (draws, dim) -> two arrays (draws, numbers), one function after the other
        """
        return self._given(self.draw(points), len(points))

    def _given(self, values: Mapping[str, Open], count: int) -> tuple[Array, Array]:
        """The same given values of the scores."""
        found = [(self.mean(k, values, count), self.var(k, values, count)) for k in range(len(self.vectors))]
        mean, var = self._side_by_side(found, count)
        return mean, np.maximum(var, 0.0)

    def _wrong(self, values: Mapping[str, Open], count: int) -> tuple[Array, Array]:
        """What errors of the moments of Gaussian variables do to both."""
        every = range(len(self.vectors))
        found = [(self.mean(k, values, count, "errors"), self.var(k, values, count, "errors")) for k in every]
        return self._side_by_side(found, count)

    @staticmethod
    def _side_by_side(found: Sequence[tuple[Array, Array]], count: int) -> tuple[Array, Array]:
        means, variances = ([pair[x].reshape(count, -1) for pair in found] for x in (0, 1))
        return np.concatenate(means, axis=1), np.concatenate(variances, axis=1)

    def effects(self, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
        """Means and variances at the centres of boxes of normals, and how far what is not followed on a box (see
        `intervals`) may move means and deviations.

        Shapes    low, high (boxes, dim) -> four arrays (boxes, numbers)
        """
        reader = Moving(self.sampler, (low + high) / 2, (high - low) / 2)
        return self._ranges(len(low), [reader, reader.halved()])

    def conditional(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance of the summands of the first function.

        Shapes    points (draws, dim) -> (draws, heads, *members) twice
        """
        values, count = self.draw(points), len(points)
        return self.mean(0, values, count), self.var(0, values, count)

    @cached_property
    def region(self) -> Region:
        """What functions do anywhere in the region of the normals."""
        reader = Moving.region(self.sampler)
        ranges = self._ranges(reader.boxes, [reader, reader.halved()])
        return Region(not reader.bends, reader.mass(), *ranges)

    def _ranges(self, count: int, readers: Sequence[Any]) -> tuple[Array, Array, Array, Array]:
        """Means and variances by the first reader, and how far they may be off by the halves that the other gives."""
        found: list[list[Array]] = [[], [], [], []]
        for k, f in enumerate(self.vectors):
            sizes, ranges = self._sizes(count, f), f.ranges | {HEAD: self.heads}
            axes = (BATCH, HEAD, *f.positions)
            kinds: tuple[Of, Of] = ("numbers", "sizes")
            for half, (reader, of) in enumerate(zip(readers, kinds, strict=True)):
                mean = linear_mean(self.recursion, self.parts[k], ranges, reader, of)
                var = self._covariance(k, k).value(reader, [HEAD, *f.positions], of)
                found[2 * half].append(broadcast(mean, axes, sizes).reshape(count, -1))
                found[2 * half + 1].append(broadcast(var, axes, sizes).reshape(count, -1))
        centre, spread, more, square = (np.concatenate(each, axis=1) for each in found)
        with np.errstate(invalid="ignore"):
            more, square = (np.where(np.isnan(a), np.inf, a) for a in (more, square))
        return centre, np.maximum(spread, 0.0), more, np.sqrt(np.maximum(square, 0.0))

    def cov(self, k: int, m: int, values: Mapping[str, Open], draws: int, of: Of = "numbers") -> Array:
        """Cov[summands of function k, of function m | p-ring], summed over the heads, or what errors do to it.

        Shapes    (draws, *members of k, *members of m)
        """
        f, g = self.vectors[k], self.vectors[m]
        second = tuple(f"{name}_" for name in g.positions)
        sizes = self._sizes(draws, f) | dict(zip(second, g.members, strict=True))
        with np.errstate(all="ignore"):
            value = self._finite(self._covariance(k, m).value(self.sampler.reader(values), [HEAD], of), k, m)
        if HEAD in value.axes:
            axis = value.axes.index(HEAD)
            value = Open(tuple(name for name in value.axes if name != HEAD), value.data.sum(axis=axis))
        else:
            value = Open(value.axes, value.data * self.size)
        return broadcast(value, (BATCH, *f.positions, *second), sizes)

    def _finite(self, value: Open, *functions: int) -> Open:
        """The value itself; refused, with the statements that made it, where it overflows or is no number."""
        if np.isfinite(value.data).all():
            return value
        names = {self.vectors[k].name for k in functions}
        told = dict.fromkeys(str(s) for s in self.recursion.netsor.body if s.target.name in names)
        raise NotFiniteError(
            f"{'; '.join(told)}: the mean or variance given the scores is not a finite number for some of them: it "
            "overflows, or leaves the domain of a function (log, sqrt, division)"
        )

    def _sizes(self, draws: int, f: LinearVector) -> dict[str, int]:
        return {BATCH: draws, HEAD: self.size} | dict(zip(f.positions, f.members, strict=True))

    def _covariance(self, k: int, m: int) -> LinearCovariance:
        if (k, m) not in self._covariances:
            ranges = self.vectors[k].ranges | {HEAD: self.heads, f"{HEAD}_": self.heads}
            ranges |= {f"{name}_": span for name, span in self.vectors[m].ranges.items()}
            self._covariances[k, m] = LinearCovariance(self.recursion, self.parts[k], self.parts[m], ranges)
        return self._covariances[k, m]

    def errors(self, k: int) -> tuple[Array, Array]:
        """How far errors may move the mean of a function, and how much its central moments, relatively.

        Shapes    (*members), twice
        """
        ends = np.cumsum([self.size * math.prod(f.members) for f in self.vectors])[:-1]
        shape = self.size, *self.vectors[k].members
        shift, relative = (np.split(part, ends)[k].reshape(shape) for part in self.displacement.found)
        return self.count * shift.sum(axis=0), relative.max(axis=0) + self.sampler.rounding

    def covariance_errors(self, k: int, m: int) -> Array:
        """How far errors may move Cov[sum of the summands of function k, of function m].

        Shapes    (*members of k, *members of m)
        """
        values, few = self.displacement.few()

        def whole(values: Mapping[str, Open]) -> Array:
            one, two = (self.mean(x, values, few).reshape(few, self.size, -1) for x in (k, m))
            within = self.cov(k, m, values, few).mean(axis=0)
            apart = np.tensordot(one - one.mean(axis=0), two - two.mean(axis=0), ((0, 1), (0, 1))) / few
            return np.asarray(within + apart.reshape(within.shape))

        here = whole(values)
        moved = self.displacement.effects(values, few, lambda there: np.abs(whole(there) - here))
        return np.asarray(self.count * (moved + self.cov(k, m, values, few, "errors").mean(axis=0)))


class Summands:
    """Linear functions as independent blocks, each a sum of independent summands where it can be split."""

    def __init__(self, recursion: NumericRecursion, vectors: Sequence[LinearVector], split: bool = True) -> None:
        self.recursion, self.vectors, self._split = recursion, vectors, split

    @cached_property
    def _blocks(self) -> tuple[list[ScoreBlock], ScoreBlock | None]:
        every = [(k, part) for k, function in enumerate(self.vectors) for part in function.parts]
        groups = self._components(every) if self._split else [every]
        blocks = [self._block(group) for group in groups]
        rest = [part for group, block in zip(groups, blocks, strict=True) if not block.random for part in group]
        fixed = self._gathered(rest, "", (0, 1), False) if rest else None
        return [block for block in blocks if block.random], fixed

    @property
    def blocks(self) -> list[ScoreBlock]:
        """The independent blocks that scores reach."""
        return self._blocks[0]

    @property
    def fixed(self) -> ScoreBlock | None:
        """The block of all that no score reaches, or None."""
        return self._blocks[1]

    def beside(self, k: int) -> tuple[Array, Array]:
        """Mean and variance of what no score reaches of a vector.

        Shapes    (*members), twice
        """
        if self.fixed is None:
            zero = np.zeros(self.vectors[k].members)
            return zero, zero
        return self.fixed.mean(k, {}, 1)[0, 0], self.fixed.var(k, {}, 1)[0, 0]

    def errors(self, k: int) -> tuple[Array, Array]:
        """How far errors may move the mean of a vector, and how much its central moments, relatively.

        Shapes    (*members), twice
        """
        found = [block.errors(k) for block in [*self.blocks, *([self.fixed] if self.fixed else [])]]
        zero = np.zeros(self.vectors[k].members)
        shift = sum((shift for shift, _ in found), start=zero)
        return shift, reduce(np.maximum, (relative for _, relative in found), zero)

    def _gathered(
        self, group: Sequence[tuple[int, WeightedFunction]], head: str, span: Range, alike: bool
    ) -> ScoreBlock:
        parts = [[part for k, part in group if k == m] for m in range(len(self.vectors))]
        return ScoreBlock(self.recursion, self.vectors, parts, head, span, alike)

    # -- what depends on what -----------------------------------------------------------------------------------

    def alike(self, position: str) -> bool:
        """Whether members of the only vector have one law for every value of a position."""
        (vector,) = self.vectors
        group = [(0, part) for part in vector.parts]
        return self._alike(group, position, (0, 1), vector.positions)

    def _components(self, every: Sequence[tuple[int, WeightedFunction]]) -> list[list[tuple[int, WeightedFunction]]]:
        """Parts grouped so that parts of different groups are independent."""
        groups: list[list[tuple[int, WeightedFunction]]] = []
        for k, part in every:
            meets = [g for g in groups if any(self._structure(m, other, k, part) for m, other in g)]
            groups = [g for g in groups if not any(g is met for met in meets)]
            groups.append([(k, part), *(entry for g in meets for entry in g)])
        return groups

    def _structure(
        self, k: int, p: WeightedFunction, m: int, q: WeightedFunction, span: Range = (0, 1), tied: Collection[str] = ()
    ) -> Structure:
        """Terms of all covariances between the variables and scores of two parts, the second part in second copies,
        but for the indices `tied`, which both share.
        """
        recursion, tie = self.recursion, {f"{name}_": Affine.index(name) for name in tied}
        ranges = self.vectors[k].ranges | {f"{n}_": s for n, s in self.vectors[m].ranges.items()}
        ranges |= {HEAD: span, f"{HEAD}_": span}
        p2, q2, local = recursion.paired(p, q, ranges)
        names = recursion.parts.every_range()
        local = names | {f"{name}_": own for name, own in names.items()} | local
        found: Structure = []
        if p2.function is not None and q2.function is not None:
            moment = recursion.reference_covariance(p2.inner[0][1], reindexed(q2.inner[0][1], tie), local)
            found += [(term.equations, frozenset(term.value.axes)) for term in moment.terms]
        for u in _random(recursion, p):
            for v in _random(recursion, q):
                other = Variable(v.name, tuple(slot.at(_second(slot)).at(tie) for slot in v.slots))
                found += _score_structure(recursion, u, other, local)
        return found

    def _block(self, group: Sequence[tuple[int, WeightedFunction]]) -> ScoreBlock:
        """The group as a sum of independent summands over an index that all of its parts sum over."""
        whole = self._gathered(group, "", (0, 1), False)
        if not self._split or not whole.random:
            return whole
        k, first = group[0]
        for head in first.bound:
            names = [head]
            for m, part in group[1:]:
                partner = [h for h in part.bound if self._apart([(k, first, head), (m, part, h)])]
                names += partner[:1]
            entries = [(m, part, h) for (m, part), h in zip(group, names, strict=False)]
            spans = {self.recursion.parts.bound_ranges[h] for h in names}
            if len(names) == len(group) and len(spans) == 1 and self._apart(entries):
                kept = [(m, _headed(part, h)) for m, part, h in entries]
                span = spans.pop()
                return self._gathered(kept, head.split("~")[0], span, self._alike(kept, HEAD, span, (HEAD,)))
        return whole

    def _apart(self, entries: Sequence[tuple[int, WeightedFunction, str]]) -> bool:
        """Whether parts at different values of their indices are independent."""
        for k, p, h in entries:
            for m, q, g in entries:
                same = difference(Affine.index(h), Affine.index(f"{g}_"))
                assert same is not None
                for equations, _ in self._structure(k, p, m, q):
                    if canonical(same.at(solve(equations, ()))) is not None:
                        return False
        return True

    def _alike(
        self, group: Sequence[tuple[int, WeightedFunction]], index: str, span: Range, tied: Collection[str]
    ) -> bool:
        """Whether the joint law of parts is the same for every value of an index, which is one of those `tied`.

        It is where neither coefficients nor means nor covariances depend on the index, but for the names of scores and
        variables.
        """
        return not any(
            part.box or self._reads(part, index, self.vectors[k].ranges | {HEAD: span}) for k, part in group
        ) and not any(
            index in axes or any(index in form.indices for form in equations)
            for k, p in group
            for m, q in group
            for equations, axes in self._structure(k, p, m, q, span, tied)
        )

    def _reads(self, part: WeightedFunction, index: str, ranges: Ranges) -> bool:
        """Whether the coefficient or the mean of a part depends on an index other than through scores."""
        recursion = self.recursion
        local = recursion.parts.every_range() | dict(ranges)
        nodes = (node for expr in (part.coefficient, *(weight for weight, _, _ in part.inner)) for node in walk(expr))
        if any(index in index_names(node) for node in nodes if not isinstance(node, Variable)):
            return True
        for reference in variables(part.coefficient):
            number = reference.name not in recursion.random and reference.name not in recursion.scores
            if number and index in recursion.scope(local, apart=False).variable(reference, local).axes:
                return True
        read = [*variables(part.coefficient), *(variable for _, variable, _ in part.inner)]
        if any(index in index_names(v) and reads_beyond(recursion.netsor, v, local) for v in read):
            return True
        return part.function is not None and index in recursion.base_mean(part.inner[0][1], local).axes


def _headed(part: WeightedFunction, head: str) -> WeightedFunction:
    """The part with its index `head` free and called HEAD."""
    left = replace(part, bound=tuple(name for name in part.bound if name != head))
    return left.renamed({head: Affine.index(HEAD)})


def _random(recursion: NumericRecursion, part: WeightedFunction) -> list[Variable]:
    """Scores, and averages that depend on scores, in a part's coefficient."""
    return [reference for reference in variables(part.coefficient) if reference.name in recursion.random]


def _second(slot: Affine) -> dict[str, Affine]:
    return {name: Affine.index(f"{name}_") for name in slot.indices}


def _score_structure(recursion: NumericRecursion, u: Variable, v: Variable, ranges: Ranges) -> Structure:
    """Equations and axes of the terms of Cov(p, p') by clause (iv), without its values."""
    if any(recursion.dot(reference.name).scale == "1/n" for reference in (u, v)):  # a function of other scores
        return [(frozenset(), frozenset(name for slot in (*u.slots, *v.slots) for name in slot.indices))]
    if u.name in recursion.summands and v.name in recursion.summands:
        names = {str(k): slot for k, slot in enumerate(u.slots)} | {f"{k}_": slot for k, slot in enumerate(v.slots)}
        moment = recursion.score(u.name, v.name).read(names, ranges)
        return [(term.equations, frozenset(term.value.axes)) for term in moment.terms]
    (a, b), (c, d) = (_operands(recursion, reference) for reference in (u, v))
    found: Structure = []
    for first, second in (((a, c), (b, d)), ((a, d), (b, c))):
        one, two = (recursion.reference_covariance(*pair, ranges) for pair in (first, second))
        found += [
            (s.equations | t.equations, frozenset((*s.value.axes, *t.value.axes)))
            for s in one.terms
            for t in two.terms
            if _possible(s.equations | t.equations)
        ]
    return found


def _possible(equations: Equations) -> bool:
    solution = solve(equations, ())
    forms = [canonical(form.at(solution)) for form in equations]
    return all(form is None or form.terms for form in forms)


def _operands(recursion: NumericRecursion, reference: Variable) -> list[Variable]:
    names = {str(k): slot for k, slot in enumerate(reference.slots)}
    return [reindexed(operand, names) for operand in recursion.operands(reference.name)]

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.several import REPLICATES, point_sets
from tensorprog.language.evaluate import COORDINATE, Open, Scope, align, contract, evaluate, gather, multiply
from tensorprog.language.expr import Affine, Expr, Variable, free_indices, indices_of, product_of, substitute, variables
from tensorprog.language.ir import MatMul, Nonlin, Range
from tensorprog.language.linalg import triangular
from tensorprog.limit.form.definitions import Box, place, target_box
from tensorprog.limit.form.sums_of_functions import FORMAL, ONE, WeightedFunction
from tensorprog.limit.memory import need
from tensorprog.limit.moment.numbers import Numbers
from tensorprog.limit.moment.recurrences import box_ranges, merged
from tensorprog.limit.moment.values import REPLICATE, Value, members_read

__all__ = ["Paths"]

Array = NDArray[Any]
Source = tuple[str, tuple[int | None, ...]]  # a weight with the slots that are numbers, or initial vectors
SUMMAND, OTHER = "k", "k_"  # axes of the b_k
LEAST_LOG2, MOST_LOG2 = 6, 17  # draws per replicate
TURNED = 48  # directions that normals are turned to
FEW = 2  # rows of a matrix product that only reads memory
TOGETHER = 1 << 19  # numbers of an array that is needed for a while only, about; at least those of one replicate


@dataclass
class _SumOfGaussians:
    """A family of sums of Gaussian variables, as the pre-activations of a gate, that are drawn as one.

    Its members have the positions '0', '1', ... of its first variable, whose weight is 1.
    """

    terms: list[tuple[float, Variable]]
    rows: Array  # number of each member in its joint; -1 before it is drawn
    waiting: Array  # how many variables of each member are not known yet
    last: tuple[bytes, Array] = (b"", np.zeros(0))  # rows that were read last, and their draws

    @property
    def name(self) -> str:
        """The first variable, which stands for the sum."""
        return self.terms[0][1].name


class _Joint:
    """Sums with sources in common, drawn member after member: a factor of their covariance in each replicate.

    The normals from `start` on are theirs.
    """

    def __init__(self, replicates: int, start: int) -> None:
        self.members: dict[str, tuple[Array, list[Array]]] = {}  # rows and positions of those that are drawn
        self.factor = np.zeros((replicates, 0, 0))
        self.start = start


class Paths:
    """Draws of all that carried families depend on, as far as recurrences have come.

    Shapes    values of a carried family (replicates, *members, draws)
    Scale     `held` numbers are held at once by all draws: more of them, and fewer draws, for longer recurrences

    Sums of Gaussian variables are drawn as one where nothing else reads them, or all variables `apart`.
    """

    def __init__(
        self, numbers: Numbers, held: int, pilot: Callable[[], Paths] | None = None, apart: bool = False
    ) -> None:
        self.numbers, self.netsor, self.parts, self._held = numbers, numbers.netsor, numbers.parts, held
        self._apart = apart
        self.replicates = 1 if pilot is None else REPLICATES
        self.range: Range = (0, self.replicates)
        self.relative = 0.0  # the largest relative error of the covariances drawn with, without the spread
        vectors = [name for name in self.parts.carried if self.netsor.families[name].kind == "vector"]
        self.families = families = sorted(set(vectors) - numbers.random)
        self._sources = self._closure(families)
        self.weights = LinearStates(self)
        self._needed = self._reached()
        self._sums = self._summed()
        self.dim = sum(sum_.rows.size for sum_ in self._sums.values())
        carried = sum(math.prod(self.netsor.families[name].shape) for name in families)
        kept = 1 if self.weights.summands is None else self.weights.count  # of each carried member, beside its values
        members = (self.dim + 1) // 2 + carried * (1 + kept)
        log2 = int(math.log2(max(1, held // (self.replicates * max(1, members)))))
        self._log2 = min(max(log2, LEAST_LOG2), MOST_LOG2)
        self.points = 1 << self._log2
        need(
            self.replicates * self.points * max(1, members),
            f"the fewest draws, {self.points} in each of {self.replicates} replicates, of what is carried along a "
            f"recurrence ({', '.join(families)})",
            "make the recurrence shorter",
        )
        self._joints = self._joined()
        self._read_in = {variable.name: sum_ for sum_ in self._sums.values() for _, variable in sum_.terms}
        self._fitting: dict[Expr, bool] = {}
        self._values: dict[str, Array] = {}
        self._pilot = pilot
        self._done: dict[str, Array] = {}  # which members have their values
        self._followed: dict[tuple[Any, ...], _Followed] = {}
        self._normals: Array | None = None

    def afresh(self) -> Paths:
        """The same draws, of which none is made yet."""
        return Paths(self.numbers, self._held, self._pilot, self._apart)

    def _members(self, reference: Variable) -> Source:
        """The source of a Gaussian variable, with the slots of the weight that are numbers; None stands for any."""
        positions = self.netsor.families[reference.name].statements
        if not positions:
            return reference.name, ()
        statement = self.netsor.body[positions[0]]
        assert isinstance(statement, MatMul)
        names = {own.bare: s for own, s in zip(statement.target.slots, reference.slots, strict=True) if own.bare}
        slots = [slot.at(names) for slot in statement.weight.slots]
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
        factors = {self.sources_of(factor) for part in parts for factor in self.parts.factors_of(part)}
        found = frozenset[Source]().union(*self._sources.values())
        while joined := {sources for sources in factors if meet(found, sources)}:
            factors -= joined
            found = found.union(*joined)
        return {source for source, _ in found}

    # -- sums that are drawn as one -------------------------------------------------------------------------------

    def _expressions(self) -> Iterator[Expr]:
        """All that the recursion evaluates for draws."""
        asked = {v.name for s in self.netsor.body if not isinstance(s, Nonlin) for v in s.inputs}
        for position in (p for name in self.families for p in self.netsor.families[name].statements):
            yield self.parts.statement(position)
            for part in self.parts.split(self.parts.statement(position)):
                yield from (factor.expression for factor in self.parts.factors_of(part))
        for name, family in self.netsor.families.items():
            read = not self.parts.is_base(name) or name in asked or name in self.netsor.outputs
            if read and family.kind == "vector" and name not in self.numbers.random:
                for part in self.parts.of(name):
                    yield from (factor.expression for factor in self.parts.factors_of(part))

    def _summed(self) -> dict[str, _SumOfGaussians]:
        """Sums that Gaussian variables are only ever read in, or single variables, by the first variable.

        A sum of Gaussian variables is one: it needs one normal, and one row of a factor.
        """
        read: dict[str, set[tuple[tuple[float, Variable], ...]]] = {}
        for expr in () if self._apart else set(self._expressions()):
            for form in self._forms(expr):
                for terms in self._terms(form):
                    for _, variable in terms:
                        read.setdefault(variable.name, set()).add(terms)
        found = {}
        for name, family in self.netsor.families.items():
            if not self.parts.is_base(name) or self.parts.source(name) not in self._needed:
                continue
            terms = next(iter(read.get(name, ())), ())
            if not terms or any(len(read[variable.name]) > 1 for _, variable in terms):
                terms = ((1.0, self._positions(name)),)
            if terms[0][1].name == name:
                waiting = sum(self.numbers.recurrent(variable.name) for _, variable in terms)
                found[name] = _SumOfGaussians(list(terms), np.full(family.shape, -1), np.full(family.shape, waiting))
        return found

    def fits(self, *factors: WeightedFunction) -> bool:
        """Whether functions read sums that are drawn as one only as such."""
        return all(self._fits(factor.expression) for factor in factors)

    def _fits(self, expr: Expr) -> bool:
        if expr not in self._fitting:
            read = [terms for form in self._forms(expr) for terms in self._terms(form)]
            sums = [(self._read_in[variable.name].terms, terms) for terms in read for _, variable in terms]
            self._fitting[expr] = all(len(sum_) == 1 or sum_ == list(terms) for sum_, terms in sums)
        return self._fitting[expr]

    def _positions(self, name: str) -> Variable:
        return Variable(name, tuple(Affine.index(str(k)) for k in range(len(self.netsor.families[name].ranges))))

    def _terms(self, form: Expr) -> Iterator[tuple[tuple[float, Variable], ...]]:
        """The variables of an affine form as one sum over positions of the first, or each by itself."""
        inner = (self.parts.affine(form) or ({}, form))[0]
        variables_ = [variable for variable, _ in inner if self.parts.source(variable.name) in self._needed]
        if not variables_:
            return
        apart = [((1.0, self._positions(variable.name)),) for variable in variables_]
        first = max(variables_, key=lambda v: (len(v.slots), self.numbers.recurrent(v.name)))
        names = {slot.bare: Affine.index(str(k)) for k, slot in enumerate(first.slots) if slot.bare is not None}
        whole = {str(k): span for k, span in enumerate(self.netsor.families[first.name].ranges)}
        terms = []
        for (variable, bound), weight in inner.items():
            slots = tuple(slot.at(names) for slot in variable.slots)
            own = self.netsor.families[variable.name]
            plain = len(names) == len(first.slots) and not bound and not any(own.boundaries)
            plain = plain and not any(True for _ in variables(weight)) and not free_indices(weight)
            for slot, (low, high) in zip(slots, own.ranges, strict=True):
                plain = plain and {name for name, _ in slot.terms} <= whole.keys()
                plain = plain and low <= slot.bounds(whole)[0] and slot.bounds(whole)[1] < high
            if not plain or (self.numbers.recurrent(variable.name) and slots != self._positions(first.name).slots):
                yield from apart
                return
            found = evaluate(weight, Scope(self.netsor, self.netsor.ranges, partial(self._read, slice(None))))
            terms.append((float(found.data), Variable(variable.name, slots)))
        scale = next(value for value, variable in terms if variable.name == first.name)
        if not scale or len({variable.name for variable in variables_}) < len(terms):
            yield from apart
            return
        terms.sort(key=lambda term: (term[1].name != first.name, term[1].name))
        yield tuple((value / scale, variable) for value, variable in terms)

    def _joined(self) -> dict[str, _Joint]:
        """The joint of each sum: of all that have sources in common with it."""
        groups: list[tuple[set[str], list[str]]] = []
        for name, sum_ in self._sums.items():
            sources, names = {self.parts.source(variable.name) for _, variable in sum_.terms}, [name]
            for group in [group for group in groups if group[0] & sources]:
                groups.remove(group)
                sources, names = sources | group[0], [*group[1], *names]
            groups.append((sources, names))
        joints: dict[str, _Joint] = {}
        start = 0
        for _, names in groups:
            joints |= dict.fromkeys(names, _Joint(self.replicates, start))
            start += sum(self._sums[name].rows.size for name in names)
        return joints

    # -- draws --------------------------------------------------------------------------------------------------

    def step(self, position: int, box: Box) -> None:
        """Compute the members in a box of a carried family by one of its statements."""
        name = self.netsor.body[position].target.name
        family = self.netsor.families[name]
        axes = tuple(str(k) for k in range(len(box)))
        if name not in self._values:  # before its first members, which may read it beyond a boundary
            self._values[name] = np.zeros((self.replicates, *family.shape, self.points))
            self._done[name] = np.zeros(family.shape, dtype=bool)
        ranges, values = dict(zip(axes, box, strict=True)), self._values[name]
        for part in self.replicate_groups(math.prod(b - a for a, b in box)):
            value = self.evaluate(self.parts.statement(position), ranges, part)
            values[(part, *place(box, family.ranges))] = align(value, (REPLICATE, *axes, COORDINATE))
        self._done[name][place(box, family.ranges)] = True
        self.weights.step(position, box)

    def draw(self, name: str, box: Box) -> None:
        """Members of a Gaussian family are known: draw the sums of which all is known, given all that was drawn."""
        for sum_ in self._sums.values():
            if any(variable.name == name for _, variable in sum_.terms):
                inside = place(box, self.netsor.families[name].ranges)
                sum_.waiting[inside] -= self.numbers.recurrent(name)
                new = np.zeros(sum_.rows.shape, dtype=bool)
                new[inside] = (sum_.waiting[inside] <= 0) & (sum_.rows[inside] < 0)
                if new.any():
                    self._draw(sum_, new)

    def _draw(self, sum_: _SumOfGaussians, new: Array) -> None:
        """Draw members of a sum, given all that was drawn before."""
        joint = self._joints[sum_.name]
        starts = [start for start, _ in self.netsor.families[sum_.name].ranges]
        grid = [found + start for found, start in zip(np.nonzero(new), starts, strict=True)] if new.ndim else []
        old, count = joint.factor.shape[-1], int(new.sum())
        fresh = np.arange(old, old + count)
        sum_.rows[new] = fresh
        rows, places = joint.members.get(sum_.name, (fresh[:0], [part[:0] for part in grid]))
        joint.members[sum_.name] = (np.append(rows, fresh),
                                    [np.append(a, b) for a, b in zip(places, grid, strict=True)])  # fmt: skip
        cov = np.zeros((self.replicates, count, old + count))
        for other, (rows, places) in joint.members.items():
            cov[:, :, rows] = self._covariance(sum_, grid, self._sums[other], places)
        joint.factor = _extended(joint.factor, cov)

    def _covariance(
        self, one: _SumOfGaussians, first: Sequence[Array], two: _SumOfGaussians, second: Sequence[Array]
    ) -> Array:
        """Covariances of members of two sums, in each replicate."""
        total, error = np.zeros((1, 1, 1)), 0.0
        for a, f in one.terms:
            for b, g in two.terms:
                if self.parts.source(f.name) != self.parts.source(g.name):
                    continue
                at = {str(k): _positions_at(slot, first)[None, :, None] for k, slot in enumerate(f.slots)}
                at |= {f"{k}_": _positions_at(slot, second)[None, None, :] for k, slot in enumerate(g.slots)}
                with self.numbers.by_itself():
                    moment = self.numbers.base(f.name, g.name)
                found = moment.at({**at, REPLICATE: np.arange(self.replicates)[:, None, None]})
                total = total + a * b * found.value
                error += abs(a * b) * float(found.error.max())
        self.relative = max(self.relative, error / max(float(np.abs(total).max()), 1e-300))
        return total

    @property
    def normals(self) -> Array:
        """Quasi-random normals, their first coordinates turned to where they matter most.

        Shapes    (replicates, dim, draws), in single precision
        """
        if self._normals is None:
            dim = max(self.dim, 1)
            first = np.eye(dim, 0) if self._pilot is None or not self.dim else self._pilot().directions()
            self._normals = np.empty((self.replicates, dim, self.points), dtype=np.float32)
            for number, points in zip(range(self.replicates), point_sets(dim, self._log2, 0), strict=False):
                self._normals[number] = _turned(first, points.astype(np.float32)).T
        return self._normals

    def directions(self) -> Array:
        """Orthonormal directions of the normals that have most effect on the affine forms that statements read.

        Any rotation of standard normals is exact; one along principal axes concentrates what functions vary with in
        the first coordinates, where quasi-random points are best.

        Shapes    (dim, few)
        """
        self.numbers.ready(*self.families)
        self._normals = np.tile(np.eye(self.dim, self.dim + 1), (self.replicates, 1, 1))
        for sum_ in self._sums.values():
            sum_.last = b"", np.zeros(0)
        effects = []
        for position in (p for name in self.families for p in self.netsor.families[name].statements):
            box = target_box(self.netsor.body[position], self.netsor.ranges)
            for form in self._forms(self.parts.statement(position)):
                drawn = self.evaluate(form, {str(k): span for k, span in enumerate(box)})
                mean = np.moveaxis(drawn.data, drawn.axes.index(REPLICATE), 0).mean(axis=0).reshape(-1, self.dim + 1)
                effects.append(mean[:, :-1] - mean[:, -1:])
        found = np.linalg.svd(np.concatenate([*effects, np.zeros((1, self.dim))]), full_matrices=False)[2]
        return np.asarray(found[:TURNED].T)

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
        value = Open((REPLICATE, COORDINATE), np.zeros((1, 1)))  # of what the first variable of a sum stands for
        sum_ = self._read_in[name]
        if name == sum_.name:
            for _, variable in sum_.terms:
                self.numbers.ready(variable.name)
            if not sum_.waiting.any() and (sum_.rows < 0).any():
                self._draw(sum_, sum_.rows < 0)
            slots = {str(k): slot for k, slot in enumerate(reference.slots)}
            starts = {str(k): start for k, (start, _) in enumerate(family.ranges)}
            rows = gather(Open(tuple(slots), sum_.rows), slots, ranges, starts)
            drawn = self._drawn_rows(sum_, rows.data.reshape(-1), part)
            value = Open((REPLICATE, *rows.axes, COORDINATE), drawn.reshape(len(drawn), *rows.data.shape, -1))
        mean = self.numbers.base_mean(reference, ranges)
        if mean.zero():
            return value
        axes = (REPLICATE, *dict.fromkeys((*value.axes[1:-1], *mean.axes)), COORDINATE)
        return Open(axes, align(value, axes) + align(mean.value, axes))

    def _drawn_rows(self, sum_: _SumOfGaussians, rows: Array, part: slice) -> Array:
        """The draws of some rows of a factor; few rows are drawn for all replicates, and remembered.

        Shapes    (replicates in the part, rows, draws), in single precision
        """
        joint, key = self._joints[sum_.name], rows.tobytes()
        if sum_.last[0] == key:
            return sum_.last[1][part]
        few = len(rows) * self.replicates * self.points <= 4 * TOGETHER
        held, count = slice(None) if few else part, int(rows.max(initial=-1)) + 1
        if not count:  # all beyond a boundary, where nothing is drawn yet
            return np.zeros((len(range(self.replicates)[part]), len(rows), self.points), dtype=np.float32)
        factor = joint.factor[held][:, rows, :count].astype(np.float32)
        drawn = _product(factor, self.normals[held, joint.start : joint.start + count])
        if not few:
            return drawn
        sum_.last = key, drawn
        return drawn[part]

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
        if not self._fits(expr):
            raise RuntimeError(f"a mistake in tensorprog: {expr} reads part of a sum that is drawn as one")
        return evaluate(expr, Scope(self.netsor, self.parts.every_range() | dict(ranges), partial(self._read, part)))

    def replicate_groups(self, members: int) -> list[slice]:
        """The replicates in groups that are worked on together, if so many numbers are needed for each draw."""
        size = max(1, TOGETHER // (max(1, members) * self.points))
        return [slice(start, min(start + size, self.replicates)) for start in range(0, self.replicates, size)]

    # -- averages -----------------------------------------------------------------------------------------------

    def split(self, factors: Sequence[WeightedFunction]) -> tuple[list[WeightedFunction], list[list[WeightedFunction]]]:
        """Factors that no carried family takes part in, and groups of others that are independent of each other."""
        groups: list[tuple[frozenset[Source], list[WeightedFunction]]] = []
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

    def sources_of(self, factor: WeightedFunction) -> frozenset[Source]:
        """The sources that a factor depends on."""
        read = {variable for _, variable, _ in factor.inner}
        own = {self._members(variable) for variable in read if variable.name not in self._sources}
        return frozenset(own).union(*(self._sources[v.name] for v in read if v.name in self._sources))

    def _carried(self, factor: WeightedFunction) -> bool:
        return any(variable.name in self.parts.carried for _, variable, _ in factor.inner)

    def average(
        self, first: Sequence[WeightedFunction], second: Sequence[WeightedFunction], ranges: Mapping[str, Range],
        whole: Mapping[str, Range] | None = None,
    ) -> Value:  # fmt: skip
        """E of a product, for every replicate; the factors of each side read indices of their own.

        Who comes again with other parts of the `whole` ranges has the values of the second side kept from step to step.
        """
        if all(len(side) == 1 and is_carried(side[0], self.parts.carried) for side in (first, second)):
            exact = self.weights.average(first[0].inner[0][1], second[0].inner[0][1], ranges)
            if exact is not None:
                return Value(exact.axes, Estimate(exact.data, self.relative * np.abs(exact.data)))
        along = () if whole is None else (self._along(second, ranges, whole), self._along(first, ranges, whole, False))
        groups = self.replicate_groups(_members(ranges))
        found = [self._average(first, second, ranges, part, along[::-1]) for part in groups]
        value = np.concatenate([each.data for each in found])
        return Value(found[0].axes, Estimate(value, self.relative * np.abs(value)))

    def _average(
        self,
        first: Sequence[WeightedFunction],
        second: Sequence[WeightedFunction],
        ranges: Mapping[str, Range],
        part: slice,
        along: Sequence[Open | None],
    ) -> Open:
        """The same for some replicates, which are the first axis."""
        count = len(range(*part.indices(self.replicates)))
        sides = [self._side(side, ranges, part) if known is None else Open(known.axes, known.data[part])
                 for side, known in zip((first, second), along or (None, None), strict=True)]  # fmt: skip
        own = [tuple(name for name in side.axes if name not in (REPLICATE, COORDINATE)) for side in sides]
        arrays = [align(side, (REPLICATE, *axes, COORDINATE)) for side, axes in zip(sides, own, strict=True)]
        one, two = (a.reshape(count, -1, self.points) for a in arrays)
        total = _product(one, two.swapaxes(1, 2)) / self.points
        if not np.isfinite(total).all():
            raise FloatingPointError("a function of vectors in a recurrence is not finite for some of their values")
        return Open((REPLICATE, *own[0], *own[1]), total.reshape(count, *(n for a in arrays for n in a.shape[1:-1])))

    def _side(self, side: Sequence[WeightedFunction], ranges: Mapping[str, Range], part: slice) -> Open:
        if not side:
            return Open((REPLICATE, COORDINATE), np.ones((len(range(*part.indices(self.replicates))), self.points)))
        return reduce(multiply, (self.evaluate(factor.expression, ranges, part) for factor in side))

    def _along(
        self, side: Sequence[WeightedFunction], ranges: Mapping[str, Range], whole: Mapping[str, Range],
        compute: bool = True,
    ) -> Open | None:  # fmt: skip
        """The values of a side over its one index, of which only those that are new are computed; None for others.

        Without `compute`, only values that are there already.
        """
        names = {name for factor in side for name in indices_of(factor.expression, ranges)}
        if len(names) != 1 or any(factor.all_bound for factor in side):
            return None
        (name,) = names
        (start, stop), low = ranges[name], whole[name][0]
        key = whole[name], *(substitute(factor.expression, {name: Affine.index("0")}) for factor in side)
        known = self._followed.get(key)
        if not compute and (known is None or start < known.start or known.stop < stop):
            return None
        if known is None:
            shape = (self.replicates, whole[name][1] - low, self.points)
            need(math.prod(shape), f"the values of {side[0].expression} for every draw")
            known = self._followed[key] = _Followed(np.empty(shape), start, start)
        if not known.start <= start <= known.stop:
            known.start = known.stop = start
        if known.stop < stop:
            new = {**ranges, name: (known.stop, stop)}
            for part in self.replicate_groups(stop - known.stop):
                value = align(self._side(side, new, part), (REPLICATE, name, COORDINATE))
                known.values[part, known.stop - low : stop - low] = value
            known.stop += self._final(side, name, new)
        return Open((REPLICATE, name, COORDINATE), known.values[:, start - low : stop - low])

    def _final(self, side: Sequence[WeightedFunction], name: str, ranges: Mapping[str, Range]) -> int:
        """The members, from the first on, of which all that they read is known."""
        start, stop = ranges[name]
        final = np.ones(stop - start, dtype=bool)
        for variable in {variable for factor in side for _, variable, _ in factor.inner}:
            sum_ = self._sums.get(variable.name)
            table = self._done.get(variable.name) if sum_ is None else sum_.rows >= 0
            if table is not None:
                slots = {str(k): slot for k, slot in enumerate(variable.slots)}
                starts = {str(k): span[0] for k, span in enumerate(self.netsor.families[variable.name].ranges)}
                final = final & gather(Open(tuple(slots), table), slots, ranges, starts).data
        return int(final.argmin()) if not final.all() else stop - start


@dataclass
class _Followed:
    """The values of one side of averages over a range of its index, as far as they are final."""

    values: Array  # (replicates, members, draws)
    start: int
    stop: int


def _turned(first: Array, points: Array) -> Array:
    """Points turned so that their first coordinates are along some orthonormal directions.

    Q of their factors Q R, which is a product of few reflections; R is diagonal, of 1 and -1.

    Shapes    directions (dim, few), points (m, dim) -> as points
    """
    dim, few = first.shape
    if not few:
        return points
    factors, tau, _, _ = lapack.dgeqrf(first)
    reflections = (np.tril(factors, -1) + np.eye(dim, few)) * (tau != 0)
    inner = np.triu(reflections.T @ reflections, 1)  # Q = 1 - V T V', and T**-1 is diag(1 / tau) with V'V above it
    inner[np.diag_indices(few)] = 1 / np.where(tau, tau, 1.0)
    onto = reflections @ solve_triangular(inner, np.eye(few))
    signed = points * np.append(np.sign(np.diagonal(factors)), np.ones(dim - few)).astype(points.dtype)
    signed -= signed @ reflections.astype(points.dtype) @ onto.T.astype(points.dtype)
    return np.asarray(signed)


def _extended(known: Array, cov: Array) -> Array:
    """Lower triangular factors of more variables, whose covariances with all are given, from those before.

    Shapes    known (replicates, d, d), cov (replicates, new, d + new) -> (replicates, d + new, d + new)
    """
    old, size = known.shape[-1], cov.shape[-1]
    factor = np.zeros((len(cov), size, size))
    factor[:, :old, :old] = known
    for one, before, row in zip(factor, known, cov, strict=True):
        free = np.diagonal(before) == 0  # of a variable that those before determine
        solved = solve_triangular(before + np.diag(free), row[:, :old].T, lower=True, check_finite=False).T
        one[old:, :old] = np.where(free, 0.0, solved)
    fresh = factor[:, old:, :old]
    variances = np.einsum("rii->ri", cov[:, :, old:])
    factor[:, old:, old:] = triangular(cov[:, :, old:] - fresh @ fresh.swapaxes(1, 2), variances)
    return factor


def _positions_at(form: Affine, positions: Sequence[Array]) -> Array:
    """The values of an affine form of positions."""
    size = len(positions[0]) if positions else 1
    return form.offset + sum((c * positions[int(name)] for name, c in form.terms), np.zeros(size, dtype=np.int64))


def _members(ranges: Mapping[str, Range]) -> int:
    """Numbers that both sides of an average have for each draw, about."""
    sizes = {name: stop - start for name, (start, stop) in ranges.items() if name != REPLICATE}
    sides = ([size for name, size in sizes.items() if name.endswith("_") == copy] for copy in (False, True))
    return sum(math.prod(side) for side in sides)


def _product(first: Array, second: Array) -> Array:
    """Matrix products; those of two rows are quicker without a BLAS."""
    few = min(first.shape[-2], second.shape[-1]) == FEW
    return np.asarray(np.einsum("...ab,...bc->...ac", first, second) if few else np.matmul(first, second))


# ---- carried families that are linear in themselves ------------------------------------------------------------------


@dataclass(frozen=True)
class _Summand:
    """coefficient * (a carried variable, or a function b of Gaussian variables independent of all coefficients)."""

    coefficient: Expr
    carried: Variable | None
    function: WeightedFunction  # b, or 1
    position: int  # of the statement
    number: int  # of the summand in it


class LinearStates:
    """Carried families that are linear in themselves: second moments given their coefficients in closed form.

    The state of a GRU, h[t] = (1 - z[t]) h[t-1] + z[t] n[t], is a sum of functions b_k of Gaussian variables that are
    independent of its coefficients:

        h_t = sum_k w_tk b_k        E[h_t h_t' | w] = sum_kl w_tk w_t'l E[b_k b_l]

    with E[b_k b_l] by closed form or quadrature.  So only the weights w are averaged over draws, which vary far less:
    this is what it buys.

    Shapes    weights of a family (replicates, *members, summands, draws); moments of the b_k (replicates, summands,
              summands)
    """

    def __init__(self, paths: Paths) -> None:
        self.paths, self.parts, self.netsor = paths, paths.parts, paths.netsor
        self.summands = self._summands() if self._wanted() else None
        sizes = [self._size(s) for each in (self.summands or {}).values() for s in each if s.carried is None]
        self.count = sum(sizes)
        self._places: dict[tuple[int, int], Array] = {}  # number of b_k by member
        self._known: dict[tuple[int, int], list[Box]] = {}
        self._weights: dict[str, Array] = {}
        self._used = 0
        self._moments = np.zeros((0, 0, 0))
        self._version = 0  # of the weights
        self._last: tuple[Any, Open | None] = (None, None)  # what was asked for last, and its average

    def _wanted(self) -> bool:
        """Whether second moments of carried variables themselves are read, not of nonlinear functions of them."""
        vectors = {s.vector.name for s in self.netsor.body if isinstance(s, MatMul)} - self.paths.numbers.random
        parts = [part for name in sorted({*vectors, *self.netsor.outputs}) for part in self._parts_of(name)]
        return any(is_carried(factor, self.parts.carried) for part in parts for factor in self.parts.factors_of(part))

    def _parts_of(self, name: str) -> Sequence[WeightedFunction]:
        return self.parts.of(name) if self.netsor.families[name].kind == "vector" else ()

    # -- what is linear -----------------------------------------------------------------------------------------

    def _summands(self) -> dict[int, list[_Summand]] | None:
        """The summands of every statement; None if one is not linear, or has nothing to integrate out."""
        split: list[tuple[int, WeightedFunction, Variable | None, list[WeightedFunction]]] = []
        for name in sorted(self.paths.families):
            for position in self.netsor.families[name].statements:
                for part in self.parts.split(self.parts.statement(position)):
                    found = self._linear(part)
                    if found is None:
                        return None
                    split.append((position, part, *found))
        fixed = {s for _, _, v, factors in split if v is not None for f in factors for s in self.paths.sources_of(f)}
        result: dict[int, list[_Summand]] = {}
        for position, part, variable, factors in split:
            apart = [f for f in factors if f.function is not None and not meet(fixed, self.paths.sources_of(f))]
            free = [] if variable is not None else apart
            held = [f for f in factors if not any(f is g for g in free)]
            coefficient = product_of([part.coefficient, *(f.expression for f in held)])
            whole = product_of([f.expression for f in free])
            function = WeightedFunction(ONE) if whole == ONE else self.parts.function_part(whole)
            own = result.setdefault(position, [])
            own.append(_Summand(coefficient, variable, function, position, len(own)))
        return result if any(s.function.function is not None for each in result.values() for s in each) else None

    def _linear(self, part: WeightedFunction) -> tuple[Variable | None, list[WeightedFunction]] | None:
        """The carried variable of a part, if any, and its other factors; None if it is not linear in one."""
        found, others = [], []
        for factor in self.parts.factors_of(part):
            reads = [v for _, v, _ in factor.inner if v.name in self.parts.carried]
            if reads and not is_carried(factor, self.parts.carried):
                return None
            found += reads
            others += [] if reads else [factor]
        return None if len(found) > 1 or part.all_bound else (found[0] if found else None, others)

    def _size(self, summand: _Summand) -> int:
        ranges = self.netsor.ranges
        slots = self.netsor.body[summand.position].target.slots
        return math.prod(high + 1 - low for low, high in (slot.bounds(ranges) for slot in slots))

    # -- weights ------------------------------------------------------------------------------------------------

    def step(self, position: int, box: Box) -> None:
        """The weights of the members in a box, by one statement."""
        if self.summands is None:
            return
        name, ranges = self.netsor.body[position].target.name, box_ranges(box)
        family, replicates = self.netsor.families[name], self.paths.range[1]
        if name not in self._weights:
            self._weights[name] = np.zeros((replicates, *family.shape, self.count, self.paths.points))
        own = self._weights[name][(slice(None), *place(box, family.ranges))]
        axes = (REPLICATE, *ranges, SUMMAND, COORDINATE)
        groups = self.paths.replicate_groups(math.prod(b - a for a, b in box) * self.count)
        self._version += 1
        entered = [None if summand.carried is not None else self._enter(summand, box)
                   for summand in self.summands[position]]  # fmt: skip
        for summand, numbers in zip(self.summands[position], entered, strict=True):
            for part in groups:
                coefficient, values = self.paths.evaluate(summand.coefficient, ranges, part), own[part]
                if summand.carried is not None:
                    read = self._read(summand.carried, ranges, part)
                    values[..., : self._used, :] += align(multiply(coefficient, read), axes)
                    continue
                assert numbers is not None
                full = np.broadcast_to(align(coefficient, (REPLICATE, *ranges, COORDINATE)), values[..., 0, :].shape)
                spot = np.indices(numbers.shape, sparse=True)
                values[(slice(None), *spot, numbers)] += full

    def _enter(self, summand: _Summand, box: Box) -> Array:
        """Numbers of the functions b of a summand in a box, with their moments entered."""
        key = summand.position, summand.number
        shape = tuple(b - a for a, b in box)
        self._known[key] = merged([*self._known.get(key, ()), box])
        numbers = self._used + np.arange(math.prod(shape)).reshape(shape)
        self._used += numbers.size
        family = self.netsor.families[self.netsor.body[summand.position].target.name]
        self._places.setdefault(key, np.full(family.shape, -1))[place(box, family.ranges)] = numbers
        if not self._moments.size:
            self._moments = np.zeros((self.paths.range[1], self.count, self.count))
        for other in (s for each in (self.summands or {}).values() for s in each if s.carried is None):
            for known in self._known.get((other.position, other.number), ()):
                self._enter_moment(summand, box, other, known)
        return numbers

    def _enter_moment(self, first: _Summand, box: Box, second: _Summand, known: Box) -> None:
        numbers, ranges = self.paths.numbers, box_ranges(box, known)
        moment = numbers.expectation(first.function, second.function, numbers.over(ranges))
        grid = [np.arange(*span).reshape([-1 if k == n else 1 for n in range(len(ranges) + 1)])
                for k, span in enumerate(ranges.values(), 1)]  # fmt: skip
        at = dict(zip(ranges, grid, strict=True))
        replicates = np.arange(self.paths.range[1]).reshape([-1] + [1] * len(ranges))
        value = moment.at({**at, REPLICATE: replicates}).value
        value = np.broadcast_to(value, (len(replicates), *(b - a for a, b in ranges.values())))
        rows, columns = (self._numbers(s, b) for s, b in ((first, box), (second, known)))
        block = value.reshape(len(replicates), rows.size, columns.size)
        self._moments[:, rows[:, None], columns] = block
        self._moments[:, columns[:, None], rows] = np.swapaxes(block, 1, 2)

    def _numbers(self, summand: _Summand, box: Box) -> Array:
        family = self.netsor.families[self.netsor.body[summand.position].target.name]
        return self._places[summand.position, summand.number][place(box, family.ranges)].reshape(-1)

    def _read(self, reference: Variable, ranges: Mapping[str, Range], part: slice) -> Open:
        family = self.netsor.families[reference.name]
        known = self._weights[reference.name][part][..., : self._used, :]
        return members_read(known, reference, family, ranges, SUMMAND, COORDINATE)

    # -- averages -----------------------------------------------------------------------------------------------

    def average(self, first: Variable, second: Variable, ranges: Mapping[str, Range]) -> Open | None:
        """E[c c'] of two carried variables, for every replicate; None where their weights are not known."""
        self.paths.numbers.ready(first.name, second.name)
        if self.summands is None:
            return None
        key = first, second, tuple(ranges.items()), self._version
        if self._last[0] != key:
            sizes = [ranges[name][1] - ranges[name][0] for slot in first.slots for name in slot.indices]
            groups = self.paths.replicate_groups(self._used * math.prod(sizes))
            found = [self._average(first, second, ranges, part) for part in groups]
            average = Open(found[0].axes, np.concatenate([each.data for each in found]) / self.paths.points)
            self._last = key, average
        return self._last[1]

    def _average(self, first: Variable, second: Variable, ranges: Mapping[str, Range], part: slice) -> Open:
        """The sum over the draws of some replicates, which are the first axis."""
        one, two = (self._read(reference, ranges, part) for reference in (first, second))
        moments = Open((REPLICATE, OTHER, SUMMAND), self._moments[part, : self._used, : self._used])
        renamed = Open(tuple(OTHER if axis == SUMMAND else axis for axis in two.axes), two.data)
        return contract(contract(moments, one, [SUMMAND]), renamed, [OTHER, COORDINATE])


def meet(first: Iterable[Source], second: Iterable[Source]) -> bool:
    """Whether two sets of sources have a weight matrix or initial vectors in common."""
    return any(
        a == b and all(None in pair or pair[0] == pair[1] for pair in zip(slots, others, strict=True))
        for a, slots in first
        for b, others in second
    )


def is_carried(factor: WeightedFunction, carried: frozenset[str]) -> bool:
    """Whether a factor is a carried variable."""
    if factor.function != FORMAL or len(factor.inner) > 1:
        return False
    weight, variable, bound = factor.inner[0]
    return weight == ONE and not bound and variable.name in carried

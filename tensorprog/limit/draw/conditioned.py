"""`Conditioned`: the recursion given draws, an axis of all values.

Layer after layer, scores are Gaussian given all that was drawn before, with covariances that differ from draw to draw:
the moments that the next layer's scores need are those of a program without scores.  So the same recursion serves, with
one axis more: the draws are an axis of all values, as replicates are elsewhere.

    infinite width   g = W x      Cov(g, g') = sigma**2 E[x x' | draws]          moments, one set for each draw
    score            q.k / sqrt(n)   e_q^T G e_k, G i.i.d.                          a number for each draw
    finite width d   g = W x      d coordinates e_g . xi, xi i.i.d.              d numbers for each draw

Here e_g are rows of a triangular factor of Cov(g, g'), so that what comes later leaves them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.evaluate import (
    COORDINATE,
    Open,
    Scope,
    align,
    evaluate,
    pieces_of_sums,
    take,
)
from tensorprog.language.expr import Affine, Expr, Variable, indices_of, substitute, variables
from tensorprog.language.ir import Dot, Nonlin, Range
from tensorprog.language.linalg import triangular, undetermined
from tensorprog.limit.draw.factors import (
    CHUNK,
    SHOWN,
    Factor,
    Members,
    Normals,
    given_before,
    relative_error,
    same_for_all,
)
from tensorprog.limit.draw.statements import Statements, formal, meet
from tensorprog.limit.form.definitions import place, target_box
from tensorprog.limit.form.sums_of_functions import FORMAL, ONE, WeightedFunction, position_names
from tensorprog.limit.form.weight_columns import Columns
from tensorprog.limit.memory import need, numbers_at_once
from tensorprog.limit.moment.indexed import NOTHING, Equations, Term
from tensorprog.limit.moment.numbers import initial_draws
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.recurrences import Box, box_ranges
from tensorprog.limit.moment.values import REPLICATE, IndexedValues, Settled, Value, picked

__all__ = ["ARRAYS", "Conditioned", "Drawn", "statements_of", "without_coordinates"]

Array = NDArray[Any]
Drawn = tuple[Open, Box]  # draws of the members of a scalar family in a box
ARRAYS = 20  # of the size of the largest moments, while they are computed
RECENT = 2  # windows of moments of two vectors that are kept, where they pass


class Conditioned(NumericRecursion):
    """Moments of a program for each of some draws; `given` scores are not drawn.

    Shapes    every value may have the axis REPLICATE, over the draws
    Accuracy  `relative` is the largest relative error of the moments drawn with, each beside the sizes of its
              variables; `wrong` are the errors of the numbers given last, averaged over the draws
    """

    each = True

    def __init__(
        self, whole: NumericRecursion, columns: Columns | None, normals: Normals,
        given: Mapping[str, Drawn] | None = None, factors: dict[Any, Factor] | None = None,
        passing: str = "", drawn: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.share(whole)
        self.passing, self._drawn, self._recent = passing, frozenset(drawn), dict[tuple[str, str], list[Any]]()
        self.whole, self.normals, self.given = whole, normals, dict(given or {})
        if columns is not None:
            self.columns = columns
        self.replicates, self.jointly = (0, normals.draws), whole.layered
        self.factors = {} if factors is None else factors
        self.random = frozenset()
        self.relative, self.wrong = 0.0, np.zeros(())
        self._collapsed = np.zeros(1, bool)  # draws in which different vectors came closer than numbers tell
        self._doubted = False  # whether scores are read with their errors
        self.statements = statements_of(whole)
        self._windows: dict[Any, IndexedValues] = {}  # second moments and means of members in boxes
        self._evaluated: dict[tuple[Any, ...], Value] = {}  # coefficients, until more averages are known
        self._coordinates: dict[str, Array] = {}
        self._known_scores: dict[int, list[tuple[str, Box]]] = {}  # that were drawn jointly, by group
        self.start(whole.recurrences.afresh(self))

    def forget(self) -> None:
        """Free all moments at once: what the recursion holds refers to it, and would wait for the next collection."""
        self.start(self.whole.recurrences)
        for held in (self._windows, self._evaluated, self._coordinates, self.given):
            held.clear()

    # -- moments: nothing is settled, and what is not random is known already -------------------------------------

    def replicated(self, f: str, g: str, where: Equations = NOTHING) -> IndexedValues:
        """E[Z^f Z^g] for every draw."""
        return super().replicated(f, g, where) if self.whole.random & {f, g} else self.whole.second(f, g, where)

    def base(self, f: str, g: str, where: Equations = NOTHING) -> IndexedValues:
        """Covariance of two Gaussian families for every draw; of finite width, of each coordinate."""
        return super().base(f, g, where) if self.whole.random & {f, g} else self.whole.centred(f, g, where)

    def between(self, f: str, g: str, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> IndexedValues:
        """E[Z^f Z^g] of the members that are read at these forms of other indices."""
        if self.whole.random & {f, g}:
            return super().between(f, g, names, ranges)
        return self.replicated(f, g, self.wanted(f, g, names))

    def expectation(
        self, p: WeightedFunction, q: WeightedFunction, ranges: Mapping[str, Range],
        at: Mapping[str, Affine] | None = None
    ) -> IndexedValues:  # fmt: skip
        """E[part part'] over the positions, where parts may be multiples of vectors that are not Gaussian."""
        named = any(v is not None and not self.parts.is_base(v.name) for v in map(formal, (p, q)))
        return self._of_vectors(p, q, ranges, at or {}) if named else super().expectation(p, q, ranges, at)

    def _of_vectors(
        self, p: WeightedFunction, q: WeightedFunction, ranges: Mapping[str, Range], at: Mapping[str, Affine]
    ) -> IndexedValues:
        """The same of multiples of vectors that are not Gaussian, by the moments of these."""
        one, two, local = self.paired(p, q, ranges)
        two = two.renamed(at) if at else two
        u, v = formal(one), formal(two)
        if u is not None and v is not None:
            names = {str(k): slot for k, slot in enumerate(u.slots)}
            names |= {f"{k}_": slot for k, slot in enumerate(v.slots)}
            moment = self.between(u.name, v.name, names, local).read(names, local)
            return self.summed(one, two, moment, local, ranges)
        nothing = WeightedFunction(ONE)
        if p.function is None or q.function is None:
            reference = v if u is None else u
            assert reference is not None
            slots = dict(enumerate(reference.slots))
            box = tuple(slot.span(local) for slot in slots.values())
            mean = self._mean_in(reference.name, box).read({str(k): slot for k, slot in slots.items()}, local)
            return self.summed(one, two, mean, local, ranges)
        if not meet(self.statements.sources_of(one, local), self.statements.sources_of(two, local)):
            return self.expectation(p, nothing, ranges) * self.expectation(nothing, q, ranges, at)
        own = local | {name[:-1]: span for name, span in local.items() if name.endswith("_")}
        own |= {name[:-1]: form.span(local) for name, form in at.items()}  # of the second part by itself
        first, second = (
            self.statements.written_out(part, held) if formal(part) is not None else [part]
            for part, held in ((p, local), (q, own))
        )
        total = self.nothing(ranges)
        for a in first:
            for b in second:
                total = total + super().expectation(a, b, ranges, at)
        return total

    def expectations(self, p: WeightedFunction, q: WeightedFunction, ranges: Mapping[str, Range]) -> IndexedValues:
        """E[f(l) g(l')] without coefficients: for all draws at once, and only once, of what is not random."""
        read = [p.without_coefficient.expression, q.without_coefficient.expression]
        random = any(v.name in self.whole.random for expr in read for v in variables(expr))
        if random or (self.whole.replicates is None and (self.needs_points(p) or self.needs_points(q))):
            return super().expectations(p, q, ranges)
        own = self.whole.over({name: span for name, span in ranges.items() if name != REPLICATE})
        return IndexedValues(self.whole.settle(self.whole.expectations(p, q, own)).terms, ranges)

    def _average(self, name: str) -> Value:
        if name in self.given:
            drawn, box = self.given[name]
            return Value.of(drawn.data, (REPLICATE, *(str(k) for k in range(len(box)))))
        if name not in self.whole.random:
            return self.whole.average(name)
        return super()._average(name)

    def average_at(self, reference: Variable, ranges: Mapping[str, Range]) -> Value:
        """Averages that a reference reads; scores have errors where they are numbers, not coefficients of vectors.

        Keys whose scores can not be told apart belong to vectors that can not either: it does not matter which is read.
        """
        found = super().average_at(reference, ranges)
        if self._doubted or reference.name not in self.netsor.scores or not self._collapsed.any():
            return found
        return Value.of(found.estimate.value, found.axes)

    def known(self, name: str) -> Box:
        """The members of a scalar family that are known."""
        return self.given[name][1] if name in self.given else super().known(name)

    def _number(self, expr: Expr, ranges: Mapping[str, Range]) -> Value:
        """An expression of numbers, which is evaluated once for both copies of its indices."""
        names = {name.rstrip("_'"): name for name in indices_of(expr, ranges)}
        copies = {name: Affine.index(first) for first, name in names.items() if first != name}
        if copies and len(names) == len(indices_of(expr, ranges)):
            ranges = dict(ranges) | {first: ranges[name] for first, name in names.items()}
            found = self._number(substitute(expr, copies), ranges)
            return Value(tuple(names.get(name, name) for name in found.axes), found.estimate)
        key = self._doubted, expr, *((name, tuple(ranges[name])) for name in indices_of(expr, ranges))
        if key not in self._evaluated:
            self._evaluated[key] = super()._number(expr, ranges)
        return self._evaluated[key]

    def settle(self, found: Settled) -> Settled:
        """Nothing: every draw keeps its own numbers."""
        return found

    def _boxes(self, f: str, g: str, ranges: Mapping[str, Range]) -> list[Box]:
        """The members of both families over which positions run."""
        copies = ((f, ""), (g, "_"))
        return [tuple(ranges[name] for name in position_names(self.netsor, of, copy)) for of, copy in copies]

    def _compute(
        self, f: str, g: str, ranges: Mapping[str, Range], at: Mapping[str, Affine] | None = None
    ) -> IndexedValues:
        key = f, g, *self._boxes(f, g, ranges), *sorted((at or {}).items())
        compute = super()._compute
        found = self._made(self._windows, key, lambda: compute(f, g, ranges, at))
        recent = self._recent.setdefault((f, g), []) if self.passing and not f == g == self.passing else [key]
        if key not in recent:
            recent.append(key)
            for old in recent[:-RECENT]:
                del self._windows[old]
            del recent[:-RECENT]
        return found

    def _uncentred(
        self, f: str, g: str, ranges: Mapping[str, Range], at: Mapping[str, Affine] | None = None
    ) -> IndexedValues:
        if self.is_finite(f):
            return self._empirical(f, g, ranges)
        boxes = self._boxes(f, g, ranges)
        with self.guarded(f, g):
            if not meet(self.statements.sources(f, boxes[0]), self.statements.sources(g, boxes[1])):
                one, two = self._mean_in(f, boxes[0]), self._mean_in(g, boxes[1])
                if one.zero() or two.zero():
                    return self.nothing(ranges)
                names = {name: Affine.index(f"{name}_").at(at or {}) for name in position_names(self.netsor, g)}
                return one.read({}, ranges) * two.read(names, ranges)
            first, second = self._in_terms(f, g, boxes)
            return self._summed_parts(first, second, ranges, at)

    def _in_terms(self, f: str, g: str, boxes: Sequence[Box]) -> list[Sequence[WeightedFunction]]:
        """Two vectors as sums of parts: the later one in terms of the vectors that its statement reads.

        The other one stands for itself, unless both are made by one step.
        """
        own = [self.statements.own(name, box) for name, box in zip((f, g), boxes, strict=True)]
        times = [self.statements.time(name, box) for name, box in zip((f, g), boxes, strict=True)]
        found: list[Sequence[WeightedFunction]] = []
        for k, name in enumerate((f, g)):
            mine, other = own[k], own[1 - k]
            if mine is not None and (times[k] >= times[1 - k] or other is None):
                found.append(mine)
            elif self.parts.is_base(name) or other is None:
                found.append(self.parts.at(name, boxes[k]))
            else:
                slots = tuple(Affine.index(str(slot)) for slot in range(len(boxes[k])))
                found.append([WeightedFunction(ONE, (), FORMAL, ((ONE, Variable(name, slots), ()),))])
        return found

    def _mean_in(self, name: str, box: Box) -> IndexedValues:
        """E[Z^f] of the members in a box for every draw, over positions '0', '1', ...."""
        if not self._by_steps(name):
            mean = (self if name in self.whole.random else self.whole).mean(name)
            return IndexedValues((Term(frozenset(), mean),), self.over(position_names(self.netsor, name)))

        def made() -> IndexedValues:
            own = self.statements.own(name, box)
            with self.guarded(name):
                parts = self.parts.at(name, box) if own is None else own
                return self._summed_parts(parts, [WeightedFunction(ONE)], self.over(box_ranges(box)))

        return self._made(self._windows, (name, box), made)

    def first(self, name: str, parts: Sequence[WeightedFunction] | None = None) -> IndexedValues:
        """E[Z^f] for every draw, over positions '0', '1', ..., of a vector or of some of its parts."""
        if parts is not None or self.is_finite(name):
            return super().first(name, parts)
        return self._mean_in(name, tuple(self.netsor.families[name].ranges))

    def average_of(self, position: int, ranges: Mapping[str, Range]) -> Value:
        """What one statement gives for every draw: scores given or drawn, averages, and functions of them."""
        statement = self.netsor.body[position]
        name = statement.target.name
        before, self._doubted = self._doubted, isinstance(statement, Nonlin)
        if name in self.given:
            drawn, box = self.given[name]
            positions = [str(k) for k in range(len(box))]
            at = place([ranges[position] for position in positions], box)
            found = Value.of(drawn.data[(slice(None), *at)], (REPLICATE, *positions))
        elif not isinstance(statement, Dot) or statement.scale == "1/n":
            found = super().average_of(position, ranges)
        elif self.is_finite(statement.left.name):  # an average times sqrt(d)
            found = super().average_of(position, ranges).scaled(self.width(statement.left.name) ** 0.5)
        else:
            found = self._joint_score(name, ranges) if name in self.columns.together else self._score(statement, ranges)
        self._doubted = before
        self._evaluated.clear()
        return found

    # -- draws ----------------------------------------------------------------------------------------------------

    def operand_moment(self, f: str, g: str) -> IndexedValues:
        """The average over coordinates of products of two families that are operands of scores: their covariance."""
        return self.base(f, g)

    def _factor(self, weight: str, members: Array, stop: int, operands: bool = False) -> Factor:
        """Triangular factors of the covariance of the first columns of some weight members, as `operands` of scores.

        Those that are the same for all draws are computed once.
        """
        owner, families = self.columns.owner[weight], self.columns.families[weight]
        known = self.whole.random.isdisjoint(families[k] for k in np.unique(owner[:, :stop]) if k >= 0)
        found = self.factors.get((weight, operands, stop)) if known else None
        if found is None:
            every = np.arange(len(owner)) if known else members
            own, kind = self._kinds(weight, every, stop, operands)
            found = Factor.of(self._covariances(weight, int(member), stop, operands) for member in own).at(kind)
            self.factors |= {(weight, operands, stop): found} if known else {}
        self.relative = max(self.relative, found.relative)
        return found.at(members) if known else found

    def _kinds(self, weight: str, members: Array, stop: int, operands: bool) -> tuple[Array, NDArray[np.int64]]:
        """Weight members of which the others read the same covariances, and which of them each one is like.

        2,000 heads take no longer than two.  Members are told by what their columns are, and by the positions that
        moments depend on; equations between positions by both sides, less what the first has in common.
        """
        owner, place = (table[weight][members, :stop] for table in (self.columns.owner, self.columns.place))
        moment, told, families = self.operand_moment if operands else self.base, [owner], self.columns.families[weight]
        used = [(k, owner == k) for k in np.unique(owner) if k >= 0] if len(members) > 1 else []
        for (k, first), (m, second) in product(used, repeat=2):
            found = moment(families[k], families[m])
            at = self.columns.positions(families[k], np.where(first, place, 0), "")
            at |= self.columns.positions(families[m], np.where(second, place, 0), "_")
            told += [at[name] for term in found.terms for name in term.value.axes if name in at]
            for equation in (equation for term in found.terms for equation in term.equations):
                one, two = (
                    np.zeros_like(owner) + sum(c * at[name] for name, c in equation.terms if name.endswith("_") == copy)
                    for copy in (False, True)
                )
                common = np.take_along_axis(one, first.argmax(axis=1)[:, None], 1)
                told += [
                    np.where(first, one - common, 0),
                    np.where(first.any(1, keepdims=True) & second, two + common, 0),
                ]
        _, own, kind = np.unique(np.concatenate(told, axis=1), axis=0, return_index=True, return_inverse=True)
        return members[own], kind.reshape(-1)

    def _covariances(self, weight: str, member: int, stop: int, operands: bool) -> tuple[Array, Array]:
        """The covariance of the first columns of a weight member for every draw, or for all, and errors of its mean.

        Shapes    (draws or 1, columns, columns), (columns, columns)
        """
        owner, place = (table[weight][member, :stop] for table in (self.columns.owner, self.columns.place))
        rows = {k: np.flatnonzero(owner == k) for k in np.unique(owner) if k >= 0}
        entries = [(self.columns.families[weight][k], own, place[own]) for k, own in rows.items()]
        moment = self.operand_moment if operands else self.base
        return self._blocks(lambda k, j: moment(entries[k][0], entries[j][0]), entries, stop)

    def _blocks(
        self, moment: Callable[[int, int], IndexedValues], entries: Sequence[tuple[str, Array, Array]], size: int
    ) -> tuple[Array, Array]:
        """The covariance of members of families, by their places in it and in the family: see `_covariances`.

        `moment` has those of two entries, by their numbers.
        """
        moments = [(one, two, moment(k, j)) for (k, one), (j, two) in product(enumerate(entries), repeat=2)]
        draws = 1 if all(same_for_all(found) for *_, found in moments) else self.normals.draws
        names = ", ".join(dict.fromkeys(name for name, *_ in entries))
        need(6 * draws * size**2, f"factoring the covariance of {size} members ({names}) that depend on each other")
        cov, error = np.zeros((draws, size, size)), np.zeros((size, size))
        for (f, rows, flat), (g, columns, other), found in moments:
            at = {name: values[:, None] for name, values in self.columns.positions(f, flat, "").items()}
            at |= {**self.columns.positions(g, other, "_"), REPLICATE: np.arange(draws)[:, None, None]}
            block, shape = found.at(at), (draws, rows.size, columns.size)
            cov[np.ix_(np.arange(draws), rows, columns)] = block.value
            error[np.ix_(rows, columns)] = np.broadcast_to(block.error, shape).sum(axis=0) / max(1, draws)
        return cov, error

    def _flat(self, name: str, box: Box) -> NDArray[np.int64]:
        """The numbers of the members of a family in a box."""
        family = self.netsor.families[name]
        return np.arange(math.prod(family.shape)).reshape(family.shape)[place(box, family.ranges)]

    def _score(self, statement: Dot, ranges: Mapping[str, Range]) -> Value:
        meeting = self.columns.meeting(statement, ranges)
        pairs, place = np.unique(meeting.pairs, return_inverse=True)
        key = ("pair", *meeting.weights)
        stops = [int(column.max()) + 1 for column in meeting.columns]
        factors = [
            self._factor(weight, own, stop, True)
            for weight, own, stop in zip(
                meeting.weights, (pairs // self.columns.most, pairs % self.columns.most), stops, strict=True
            )
        ]
        parts, step = [], max(1, CHUNK // max(1, stops[0] * stops[1]))
        for start in range(0, len(pairs), step):
            own = slice(start, start + step)
            block = self.normals.of(key, np.searchsorted(self.columns.pairs[key], pairs[own]))
            block = factors[0].at(own).times(block[:, :, : stops[0], : stops[1]])
            parts.append(factors[1].at(own).times(block, right=True))
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        every = np.arange(len(whole)).reshape(-1, *[1] * meeting.pairs.ndim)
        drawn = picked(whole, (every, place.reshape(meeting.pairs.shape), *meeting.columns))
        shape = (len(drawn), *(span[1] - span[0] for span in map(ranges.__getitem__, meeting.axes)))
        lost, error = [factor.lost for factor in factors], None
        if any(part.any() for part in lost):
            at = place.reshape(meeting.pairs.shape)
            error = np.broadcast_to(self._doubts(lost, factors[0].errors(factors[1], at, meeting.columns)), shape)
        return Value.of(np.broadcast_to(drawn, shape), (REPLICATE, *meeting.axes), error)

    def _joint_moment(self, one: Members, two: Members) -> IndexedValues:
        """The covariance of members in boxes of scores of functions: later layers are not known yet."""
        (f, first), (g, second) = one, two
        if not self.whole.random & {self.summands[f], self.summands[g]}:
            return self.score_covariance(f, g)
        return self._compute(self.summands[f], self.summands[g], self.over(box_ranges(first, second)))

    def _joint_score(self, name: str, ranges: Mapping[str, Range]) -> Value:
        """Scores of functions of MatMul outputs, given those of their group that were drawn before."""
        own = name, tuple(ranges[str(k)] for k in range(len(self.netsor.families[name].ranges)))
        known = self._known_scores.setdefault(self.columns.together[name], [])
        drawn, shape = [*given_before(self._joint_moment, own, known), own], [stop - start for start, stop in own[1]]
        places = [(other, self._flat(other, box).reshape(-1)) for other, box in drawn]
        ends = np.cumsum([0, *(flat.size for _, flat in places)])
        entries = [(other, ends[k] + np.arange(flat.size), flat) for k, (other, flat) in enumerate(places)]
        cov, error = self._blocks(lambda k, j: self._joint_moment(drawn[k], drawn[j]), entries, int(ends[-1]))
        self.relative = max(self.relative, relative_error(cov, error))
        normals = np.concatenate([self.normals.of(("scores", other), flat) for other, flat in places], axis=-1)
        rows = triangular(cov)
        values, lost = np.matmul(rows[:, ends[-2] :], normals[..., None]), undetermined(cov, rows)[:, ends[-2] :]
        known.append(own)
        axes = REPLICATE, *(str(k) for k in range(len(shape)))
        return Value.of(values.reshape(-1, *shape), axes,
                        self._doubts([lost], lost.reshape(-1, *shape)) if lost.any() else None)  # fmt: skip

    def _doubts(self, lost: Sequence[Array], error: Array) -> Array:
        """Errors of scores drawn, from those signed as in `undetermined`; none that no softmax shows.

        Variables that are others in every number are the same ones, unless different ones came that close before.
        """
        for part in lost:
            self._collapsed = self._collapsed | (part > 0).any(axis=tuple(range(1, part.ndim)))
        doubted = (error > 0) | self._collapsed.reshape(-1, *[1] * (error.ndim - 1))
        return np.where(doubted & (np.abs(error) > SHOWN), np.abs(error), 0.0)

    def entered(self, name: str, box: Sequence[Range]) -> None:
        """Draw the coordinates of members that a recurrence has made known, where that must be at once."""
        alone = self.passing and name in self._drawn and len(self.netsor.families[name].statements) == 1
        if self.is_finite(name) or alone:
            self._draw(name, tuple(box))

    def _draw(self, name: str, box: Box) -> None:
        """Coordinates of members of a Gaussian family: all of a finite width, or one."""
        family, width = self.netsor.families[name], self.width(name)
        at = place(box, family.ranges)
        if not family.statements:
            initial = next(entry for entry in self.netsor.initial if entry.name == name)
            block = self.normals.of(("initial", name), np.arange(self.initials[name].shape[0]))
            self._coordinates[name] = initial_draws(self, initial, block)
            return
        flat = self._flat(name, box)
        member, column = (table[name][flat] for table in (self.columns.member, self.columns.column))
        weight = self.columns.weight[name]
        members, back = np.unique(member, return_inverse=True)
        stop = int(column.max(initial=-1)) + 1
        normals = self.normals.of(("weight", weight), members)[:, :, :stop]
        drawn = self._factor(weight, members, stop).times(normals)
        values = self._coordinates.setdefault(name, np.zeros((self.normals.draws, *family.shape, width)))
        values[(slice(None), *at)] = drawn[:, back.reshape(flat.shape), column]

    def coordinates(self, name: str) -> Array:
        """Coordinates of a Gaussian family for every draw.

        Shapes    (draws, *members, d), or 1 coordinate where the width is infinite
        """
        self.recurrences.ensure(name)
        if name not in self._coordinates and name in self.parts.carried:
            self._carry(name)
        if name not in self._coordinates:
            self._draw(name, self.netsor.families[name].ranges)
        return self._coordinates[name]

    def _carry(self, name: str) -> None:
        """One coordinate of a vector that is carried along, and of those that it is a function of, step by step."""
        names, waiting = {name}, [name]
        while waiting:
            statements = map(self.parts.statement, self.netsor.families[waiting.pop()].statements)
            new = {v.name for expr in statements for v in variables(expr)} & self.parts.carried - names
            waiting += new
            names |= new
        for name in names:
            self._coordinates[name] = np.zeros((self.normals.draws, *self.netsor.families[name].shape, 1))
        for step in self.recurrences.steps:
            name = step.statement.target.name
            if name in names:
                box = target_box(step.statement, step.ranges(self.netsor.ranges))
                axes = tuple(str(k) for k in range(len(box)))
                value = self.evaluate(self.parts.statement(step.position), dict(zip(axes, box, strict=True)))
                at = (slice(None), *place(box, self.netsor.families[name].ranges))
                self._coordinates[name][at] = align(value, (REPLICATE, *axes, COORDINATE))

    def _read(self, reference: Variable, ranges: Mapping[str, Range]) -> Open:
        family = self.netsor.families[reference.name]
        if family.kind == "scalar":
            found: Open = self.scope(ranges).variable(reference, ranges)
            return found
        starts = [start for start, _ in family.ranges]
        values = self.coordinates(reference.name)
        return take(values, (REPLICATE,), starts, reference.slots, (COORDINATE,), ranges, family.boundaries)

    def vector(self, name: str, ranges: Mapping[str, Range], names: Mapping[str, Affine] | None = None) -> Open:
        """Coordinates of a vector for every draw, over positions in the ranges, or `names` in place of positions.

        Shapes    over REPLICATE, indices in the ranges, COORDINATE; axes that do not matter may be missing
        """
        slots = {str(k): Affine.index(str(k)) for k in range(len(self.netsor.families[name].ranges))} | dict(
            names or {}
        )
        if self.parts.is_base(name):
            return self.evaluate(Variable(name, tuple(slots.values())), ranges)
        written = self.parts.written(name, [slot.span(ranges) for slot in slots.values()])
        return self.evaluate(self.parts.fresh(written, slots), ranges)

    def evaluate(self, expr: Expr, ranges: Mapping[str, Range]) -> Open:
        """An expression in Gaussian variables and scalars for every draw, with coordinates drawn."""
        pieces = pieces_of_sums(self.normals.draws, numbers_at_once(CHUNK, ARRAYS))
        ranges = self.parts.every_range() | dict(ranges)
        return evaluate(expr, Scope(self.netsor, ranges, self._read, pieces=pieces))

    def _empirical(self, f: str, g: str, ranges: Mapping[str, Range]) -> IndexedValues:
        """The average over the coordinates of two vectors of finite width: a number for every draw."""
        first = tuple(position_names(self.netsor, f))
        second = tuple(position_names(self.netsor, g, "_"))
        one = self.vector(f, {name: ranges[name] for name in first})
        two = self.vector(g, {n: ranges[n] for n in second}, {n[:-1]: Affine.index(n) for n in second})
        arrays = []
        for value, names in ((one, first), (two, second)):
            data = align(value, (REPLICATE, *names, COORDINATE))
            full = (self.normals.draws, *(ranges[n][1] - ranges[n][0] for n in names), self.width(f))
            arrays.append(np.broadcast_to(data, full).reshape(full[0], -1, full[-1]))
        found = np.matmul(arrays[0], np.swapaxes(arrays[1], 1, 2)) / self.width(f)
        axes = (REPLICATE, *first, *second)
        shape = [ranges[name][1] - ranges[name][0] for name in axes[1:]]
        return IndexedValues((Term(frozenset(), Value.of(found.reshape(-1, *shape), axes)),), dict(ranges))

    # -- numbers --------------------------------------------------------------------------------------------------

    def means(self, name: str, box: Box | None = None) -> Array:
        """Means of the members of a vector in a box, by default all; of a scalar, its values.

        Shapes    (draws, *members)
        """
        whole = tuple(self.netsor.families[name].ranges) if box is None else tuple(box)
        parts = [(place(own, whole), self._mean_in(name, own), _places(own, "")) for own in self._steps(name, whole)]
        return self._joined(whole, parts)

    def variances(self, name: str, box: Box) -> Array:
        """Variances of the members in a box, of a vector or of a score given what its operands depend on.

        Shapes    (draws, *members)
        """
        return self._joined(box, [  # pairs of steps are many more
            (place(own, box), self._moment(name, name, own, own), _places(own, "") | _places(own, "_"))
            for own in self._steps(name, box)
        ])  # fmt: skip

    def _steps(self, name: str, box: Box) -> list[Box]:
        """A box, in parts where each step of the program adds to the moments of a vector."""
        return self.statements.boxes(name, box) if self._by_steps(name) else [box]

    def _by_steps(self, name: str) -> bool:
        """Whether a vector has moments for every draw that each step of the program adds to."""
        return name in self.whole.random and self.netsor.families[name].kind == "vector" and not self.is_finite(name)

    def covariances(self, f: str, g: str, first: Box | None = None, second: Box | None = None) -> Array:
        """Covariances of the members in two boxes, by default all, of two vectors or two scores.

        Shapes    (draws, *members of the first, *members of the second)
        """
        one, two = (
            tuple(self.netsor.families[name].ranges if box is None else box) for name, box in ((f, first), (g, second))
        )
        apart = bool(self.parts.spelled) and self._by_steps(f) and self._by_steps(g)
        steps = product(*(self._steps(name, box) if apart else [box] for name, box in ((f, one), (g, two))))
        return self._joined((*one, *two), [
            ((*place(own, one), *place(other, two)), self._moment(f, g, own, other),
             _places(own, "", len(two)) | _places(other, "_"))
            for own, other in steps
        ])  # fmt: skip

    def _joined(self, box: Box, parts: Sequence[tuple[tuple[slice, ...], IndexedValues, dict[str, Array]]]) -> Array:
        """The numbers of the members in a box, from moments at places in parts of it."""
        if len(parts) == 1:
            return self._numbers_at(*parts[0][1:])
        sizes = [stop - start for start, stop in box]
        found, wrong = np.full((self.normals.draws, *sizes), np.nan), np.full(sizes, np.nan)
        for cut, moment, places in parts:
            found[(slice(None), *cut)] = self._numbers_at(moment, places)
            wrong[cut] = self.wrong
        self.wrong = wrong
        return found

    def _moment(self, f: str, g: str, first: Box, second: Box) -> IndexedValues:
        if f in self.scores:
            return self.score_covariance(f, g)
        both = self.parts.is_base(f) and self.parts.is_base(g)
        part = (tuple(first), tuple(second)) != tuple(self.netsor.families[name].ranges for name in (f, g))
        if both or not part or not self.whole.random & {f, g}:
            return self.centred(f, g)
        ranges = self.over(box_ranges(first, second))
        names = {name: Affine.index(f"{name}_") for name in position_names(self.netsor, g)}
        one, two = self._mean_in(f, tuple(first)), self._mean_in(g, tuple(second))
        product = one.read({}, ranges) * two.read(names, ranges)
        return self._compute(f, g, ranges) + product.times(Value.of(-1.0))

    def _numbers_at(self, moment: IndexedValues, places: Mapping[str, Array]) -> Array:
        """The numbers at places."""
        shape = np.broadcast_shapes(*(place.shape for place in places.values()))
        batch = np.arange(self.normals.draws).reshape([-1] + [1] * len(shape))
        found = moment.at({**places, REPLICATE: batch})
        value, error = (np.broadcast_to(part, (len(batch), *shape)) for part in (found.value, found.error))
        same = len(batch) and not error.strides[0]  # for all draws
        self.wrong = error[0] if same else error.sum(axis=0) / max(1, len(batch))
        return value


def statements_of(recursion: NumericRecursion) -> Statements:
    """The statements of a program one at a time, which are looked through once."""
    known = recursion.program.known
    if "statements" not in known:
        known["statements"] = Statements(recursion.netsor, recursion.parts, recursion.recurrences.steps)
    found: Statements = known["statements"]
    return found


def without_coordinates(value: Open, count: int) -> Array:
    """The draws without the axis of coordinates.

    Shapes    (count, *members)
    """
    data = value.data[..., 0] if COORDINATE in value.axes else value.data
    return np.broadcast_to(data, (count, *data.shape[1:]))


def _places(box: Box, suffix: str, after: int = 0) -> dict[str, Array]:
    """Index values in a box, with axes of length 1 after them."""
    grids = np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij", sparse=True)
    return {f"{k}{suffix}": grid.reshape(*grid.shape, *([1] * after)) for k, grid in enumerate(grids)}

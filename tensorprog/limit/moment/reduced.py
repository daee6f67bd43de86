"""Functions that reduce over an index of vectors, as batch normalisation does: averages over draws of all they read.

E[f g] where f or g reads the members of a family together, not one after the other, has no closed form.  The affine
forms that f and g read are drawn jointly, all members at once:

    relu((u[i] - mu) / sqrt(mean[j]((u[j] - mu)**2) + eps)),  mu = mean[j](u[j])        reads u[k] - mu for every k

so that one set of draws serves all i, and E[f(i) g(i')] is an average of products over the draws.  An index that is
free beside a reduced one (the c of mean[j](u[c,j])) makes cells: the forms of c and c' are drawn for each pair of them.

The draws are replicates of quasi-random points (see `carried`): each replicate keeps to its own covariances, and their
spread is the error.  Where every draw of scores has covariances of its own (`Numbers.each`), all replicates serve each
of these, and the spread is that of averages for one draw.  Behind several layers of scores (`Numbers.jointly`) this is
also the way of a function of several vectors with a sum over some inside, with kinks or of more than two layers,

    relu(y[i] + sum[j](a[i,j] v[j])),  y[i] = relu(u[i])        reads u[i] and the sum for every i

as its moments pair by pair would be integrals over four variables or more for every draw of the scores.  Smooth
functions of few variables take Gauss-Hermite rules, which have an error of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import islice, pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.several import REPLICATES, point_sets, rising_orders, spread_factor, standard_errors
from tensorprog.language.arrows import connected
from tensorprog.language.errors import MemoryLimitError, NotCompiledError
from tensorprog.language.evaluate import COORDINATE, Open, Scope, broadcast, contract, evaluate, gather
from tensorprog.language.expr import (
    Affine,
    Expr,
    Variable,
    product_of,
    reindexed,
    replace_variables,
    substitute,
    variables,
)
from tensorprog.language.ir import Nonlin, Range
from tensorprog.limit.form.definitions import Box, reduces_numbered, reductions
from tensorprog.limit.form.sums_of_functions import Inner, SumsOfFunctions, WeightedFunction, free_in_form, plain_text
from tensorprog.limit.form.univariate import smooth
from tensorprog.limit.memory import numbers_at_once
from tensorprog.limit.moment.indexed import Equations
from tensorprog.limit.moment.numbers import Numbers
from tensorprog.limit.moment.products import renamed
from tensorprog.limit.moment.values import REPLICATE, IndexedValues, Value

__all__ = ["Reduced", "any_reduces", "reduces", "reducing_groups", "variables_drawn"]

Array = NDArray[Any]
Ranges = Mapping[str, Range]
LEAST_LOG2, MOST_LOG2 = 8, 17  # draws per replicate
NUMBERS, CHUNK, POINTS = 1 << 27, 1 << 19, 1 << 24  # of all draws together, and at once; normals behind them
EACH = 1 << 20  # of one replicate of all draws together, where every draw has moments of its own
FEWEST = REPLICATES << LEAST_LOG2  # points for such a draw
MOST = 1 << 24  # entries of all covariances together
SEED = 1  # other draws than those of paths
ENOUGH, GOOD = 1e-12, 1e-6  # asked of Gauss-Hermite rules, and accepted, relative to the size of the function


def sums_over_vectors(parts: SumsOfFunctions, factor: WeightedFunction) -> bool:
    """Whether a factor reads several vectors and reduces over an index of some."""
    over = reductions(factor.function) if factor.function is not None and factor.joint else []
    return any(map(parts.is_vector, over))


def reduces(parts: SumsOfFunctions, factor: WeightedFunction) -> bool:
    """Whether a factor reduces over an index of vectors, beyond the affine forms that it reads."""
    if factor.function is None or not sums_over_vectors(parts, factor):
        return False
    return reduces_numbered(parts.numbered(factor.function)[0])


def variables_drawn(parts: SumsOfFunctions, name: str, box: Box | None = None) -> int:
    """Variables, about, that are drawn jointly for the moments of a vector where every draw has moments of its own.

    Of the members in a box, by default of all.
    """
    size, factors = _factors_in(parts, name, box)
    drawn = (f.function for f in factors if f.function is not None and sums_over_vectors(parts, f))
    return size * sum(len(parts.numbered(function)[1]) for function in drawn)


def _factors_in(parts: SumsOfFunctions, name: str, box: Box | None) -> tuple[int, list[WeightedFunction]]:
    """How many members a box has, and the factors of the parts of each."""
    family = parts.netsor.families[name]
    if family.kind != "vector":
        return 0, []
    found = parts.last(name) if box is None else parts.at(name, box)
    size = math.prod(stop - start for start, stop in box or family.ranges)
    return size, [factor for part in found for factor in parts.factors_of(part)]


def any_reduces(parts: SumsOfFunctions, names: Iterable[str]) -> bool:
    """Whether a factor of one of these families reduces over an index of vectors."""
    body, families = parts.netsor.body, parts.netsor.families
    reducing = [node for s in body if isinstance(s, Nonlin) for node in reductions(s.expr) if parts.is_vector(node)]
    vectors = [name for name in names if families[name].kind == "vector"] if reducing else []
    with suppress(NotCompiledError):  # which whoever asks for the family will meet
        return any(reduces(parts, f) for name in vectors for part in parts.of(name) for f in parts.factors_of(part))
    return False


def reducing_groups(
    numbers: Numbers, factors: Sequence[WeightedFunction]
) -> tuple[list[WeightedFunction], list[list[WeightedFunction]]]:
    """Factors that are independent of those that reduce, and groups of others that depend on each other."""
    parts, base = numbers.parts, numbers.base
    together = sums_over_vectors if numbers.jointly else reduces
    if not any(together(parts, factor) for factor in factors):
        return list(factors), []

    def tied(one: WeightedFunction, two: WeightedFunction) -> bool:
        return any(u.name == v.name or base(u.name, v.name).terms for _, u, _ in one.inner for _, v, _ in two.inner)

    groups = connected(factors, tied)
    drawn = [group for group in groups if any(together(parts, factor) for factor in group)]
    return [f for f in factors if not any(f is g for group in drawn for g in group)], drawn


@dataclass(frozen=True)
class _Reading:
    """An affine form where it stands in a function, and the indices of the reductions around it."""

    inner: Inner
    inside: frozenset[str]

    @property
    def free(self) -> dict[str, None]:
        """The indices that the form does not sum over, in order of appearance."""
        return {name: None for weight, variable, bound in self.inner
                for name in sorted(free_in_form(weight, variable, bound))}  # fmt: skip

    def slots(self) -> Iterator[tuple[tuple[str, int], str]]:
        """The places of vectors, each with the indices that are read there."""
        for _, variable, bound in self.inner:
            for k, slot in enumerate(variable.slots):
                yield from (((variable.name, k), name) for name in slot.indices if name not in bound)


@dataclass
class _Family:
    """Affine forms over indices of their own and over the cells."""

    inner: Inner
    own: dict[str, Range]  # ranges of the own indices
    start: int = 0

    @property
    def size(self) -> int:
        return math.prod(b - a for a, b in self.own.values())

    @property
    def place(self) -> slice:
        return slice(self.start, self.start + self.size)


class Reduced:
    """E of a product of two sides of factors, the indices of the second side in second copies.

    It holds where no equation between cells does but for those that the factors have been renamed by; `dropped` are the
    sets of equations under which further variables are dependent.

    Raises    MemoryLimitError for more variables than fit
    """

    def __init__(self, numbers: Numbers, sides: Sequence[Sequence[WeightedFunction]], ranges: Ranges) -> None:
        self.numbers, self.sides, self.given = numbers, sides, ranges
        self.ranges = self.numbers.parts.every_range() | dict(ranges)
        self._readings: list[_Reading] = []
        bodies = [[numbers.parts.with_numbers(f.expression, self._read) for f in side] for side in sides]
        self.cells = self._cells()
        self.families: dict[Any, _Family] = {}
        read = [self._family(reading) for reading in self._readings]
        self._names = {f".{k}": family for k, family in enumerate(self.families.values())}
        self._bodies = [[replace_variables(body, lambda v: read[int(v.name[1:])] if v.name[0] == "." else None)
                         for body in side] for side in bodies]  # fmt: skip
        for one, two in pairwise(self._names.values()):
            two.start = one.start + one.size
        self.dim = sum(family.size for family in self._names.values())
        self.dropped: set[Equations] = set()
        self._means, self._moments = self._law()
        known = {name for value in self._means.values() for name in value.axes}
        for term in (term for moment in self._moments.values() for term in moment.terms):
            known |= {*term.value.axes, *(name for form in term.equations for name in form.indices)}
        self.axes = (REPLICATE, *(name for name in self.cells if name in known))
        self.shape = tuple(self.ranges[name][1] - self.ranges[name][0] for name in self.axes)
        if math.prod(self.shape) * self.dim**2 > MOST:
            raise MemoryLimitError(
                f"{self.dim} variables that {self._readings[0].inner[0][1]} is read with take {math.prod(self.shape)} "
                f"matrices of {self.dim**2} numbers, more than the {MOST} that are held: choose smaller indices"
            )

    def at(self, solution: Mapping[str, Affine]) -> Reduced:
        """The same where equations hold, with the indices in `solution` eliminated."""
        moved = [[factor.renamed(solution) for factor in side] for side in self.sides]
        return self if moved == self.sides else Reduced(self.numbers, moved, self.given)

    # -- what is read -------------------------------------------------------------------------------------------

    def _read(self, inner: Inner, inside: frozenset[str]) -> int:
        self._readings.append(_Reading(inner, inside))
        return len(self._readings) - 1

    def _cells(self) -> tuple[str, ...]:
        """Indices that are free beside a reduced one, and those that stand where such an index stands elsewhere."""
        beside = [reading for reading in self._readings if reading.inside & reading.free.keys()]
        found = {name: None for reading in beside for name in reading.free if name not in reading.inside}
        places = {place for reading in beside for place, name in reading.slots() if name in found}
        found |= {name: None for reading in self._readings for place, name in reading.slots()
                  if place in places and name not in reading.inside}  # fmt: skip
        return tuple(found)

    def _family(self, reading: _Reading) -> Variable:
        """The form as a member of a family of forms, over all indices that make no cells."""
        own = [name for name in reading.free if name not in self.cells]
        names = {name: Affine(((f"?{k}", 1),)) for k, name in enumerate(own)}
        moved = tuple((substitute(w, names), reindexed(v, names), bound)
                      for w, v, bound in reading.inner)  # fmt: skip
        key = tuple(sorted(plain_text(*entry) for entry in moved))
        spans = {f"?{k}": self.ranges[name] for k, name in enumerate(own)}
        known = self.families.setdefault(key, _Family(moved, spans))
        known.own = {name: (min(a, known.own[name][0]), max(b, known.own[name][1])) for name, (a, b) in spans.items()}
        return Variable(f".{list(self.families).index(key)}", tuple(Affine(((name, 1),)) for name in own))

    # -- numbers ------------------------------------------------------------------------------------------------

    def expectation(self) -> Value:
        """The expectation in every replicate, over the free indices of both sides.

        Accuracy  the error of rules, and what errors of the covariances without a spread may do; the spread is apart
        """
        apart = self._apart()
        if len(apart) > 1:
            each = (Reduced(self.numbers, sides, self.given).expectation() for sides in apart)
            return reduce(lambda a, b: a * b, each)
        mean, factor, relative = self._numbers()
        rank = int(np.max(np.nonzero(np.any(factor, axis=tuple(range(factor.ndim - 1))))[0], initial=-1)) + 1
        factor = np.ascontiguousarray(factor[..., :rank])
        own = self.numbers.each  # draws are no replicates: every draw has all of them
        points = numbers_at_once(POINTS, 4)  # of all replicates: as they are made, and as they are kept
        replicates = REPLICATES if own else self.shape[0]
        most = min((EACH if own else NUMBERS) // math.prod(self.shape), points // replicates) // self.dim
        log2 = min(max(int(math.log2(max(1, most))), LEAST_LOG2), MOST_LOG2)
        found = self._by_orders(mean, factor, 1 << log2)
        if found is None:
            sets = (points[None, :, :rank] for points in islice(point_sets(max(rank, 1), log2, SEED), replicates))
            groups = sets if own else [np.concatenate(list(sets))]
            sums = [self._sums(mean, factor, group, np.full(1 << log2, 0.5**log2)) for group in groups]
            values = np.stack([value.data for value, _ in sums])
            error = standard_errors(values) if own else np.zeros(())
            found = Open(sums[0][0].axes, values.mean(axis=0)), sums[0][1], error
        value, size, error = found
        return Value(value.axes, Estimate(value.data, error + relative * self.dim * size.data))

    def _apart(self) -> list[list[list[WeightedFunction]]]:
        """The sides of groups of factors that are independent of each other."""
        found = [({v.name for v in variables(body) if v.name in self._names}, side, factor)
                 for side, (bodies, factors) in enumerate(zip(self._bodies, self.sides, strict=True))
                 for body, factor in zip(bodies, factors, strict=True)]  # fmt: skip
        groups = connected(found, lambda one, two: any(self._moments[key].terms for key in product(one[0], two[0])))
        return [[[factor for _, side, factor in group if side == k] for k in range(2)] for group in groups]

    def _law(self) -> tuple[dict[str, Value], dict[tuple[str, str], IndexedValues]]:
        """Means of all families of forms, and covariances of all pairs without what needs equations between cells."""
        means, moments = {}, {}
        for name, family in self._names.items():
            form, own = self._named(family, "")
            means[name] = self.numbers.centre(form, self.ranges | own)
            for other, second in self._names.items():
                copy, also = self._named(second, "'")
                moment = self.numbers.covariance(form, copy, self.ranges | own | also)
                kept = []
                for term in moment.terms:
                    between = frozenset(form for form in term.equations if {*form.indices} <= {*self.cells})
                    self.dropped |= {between} if between else set()
                    kept += [] if between else [term]
                moments[name, other] = IndexedValues(tuple(kept), moment.ranges)
        return means, moments

    def _numbers(self) -> tuple[Array, Array, float]:
        """Means and a factor of the covariances of all forms, and the relative error of these without the spread."""
        mean = np.zeros((*self.shape, self.dim))
        cov = np.zeros((*self.shape, self.dim, self.dim))
        size, error = 1e-300, 0.0
        for name, one in self._names.items():
            mean[..., one.place] = self._full(self._means[name].value, self._named(one, "")[1])
            for other, two in self._names.items():
                own = [span for k, family in (("", one), ("'", two)) for span in self._named(family, k)[1]]
                found = self._moments[name, other].dense((*self.axes, *own))
                cov[..., one.place, two.place] = found.value.reshape(*self.shape, one.size, two.size)
                size, error = max(size, np.abs(found.value).max()), max(error, found.error.max())
        return mean, spread_factor(cov), float(error / size)

    def _named(self, family: _Family, copy: str) -> tuple[Inner, dict[str, Range]]:
        """The form of a family with names of its own indices that nothing else has."""
        names = {name: Affine(((f"{name}{copy}", 1),)) for name in family.own}
        return renamed(family.inner, names), {f"{name}{copy}": span for name, span in family.own.items()}

    def _full(self, value: Open, own: Ranges) -> Array:
        sizes = dict(zip(self.axes, self.shape, strict=True)) | {name: b - a for name, (a, b) in own.items()}
        return broadcast(value, (*self.axes, *own), sizes).reshape(*self.shape, -1)

    def _by_orders(self, mean: Array, factor: Array, most: int) -> tuple[Open, Open, Array] | None:
        """Gauss-Hermite rules of rising order until they agree; None if the functions have kinks or none does."""
        if not (factor.shape[-1] and all(smooth(body) for side in self._bodies for body in side)):
            return None
        axes: tuple[str, ...] = ()

        def sums(points: Array, weights: Array) -> tuple[Array, Array]:
            nonlocal axes
            value, size = self._sums(mean, factor, np.broadcast_to(points, (1, *points.shape)), weights)
            axes = value.axes
            return value.data, size.data**2

        found = None
        for rule, square in rising_orders(sums, factor.shape[-1], most):
            size = np.sqrt(square)
            if np.all(rule.error <= GOOD * size):
                found = Open(axes, rule.value), Open(axes, size), rule.error
            if np.all(rule.error <= ENOUGH * size):
                break
        return found

    def _sums(self, mean: Array, factor: Array, points: Array, weights: Array) -> tuple[Open, Open]:
        """Weighted sums over the points of the product of both sides, and roots of those of its square.

        Shapes    mean (replicates, cells, dim), factor (..., dim, rank), points (replicates or 1, m, rank),
                  weights (m,)
        """
        chunk = max(1, CHUNK // (math.prod(self.shape) * self.dim))
        cells = (1,) * (len(self.axes) - 1)
        sums: list[list[Open]] = [[], []]
        for start in range(0, len(weights), chunk):
            new = points[:, start : start + chunk].swapaxes(1, 2)
            new = new.reshape(len(points), *cells, *new.shape[1:])
            draws = mean[..., None] + np.matmul(factor, new)
            one, two = (self._values(product_of(side), draws) for side in self._bodies)
            if not (np.isfinite(one.data).all() and np.isfinite(two.data).all()):
                raise FloatingPointError("a function that reduces over an index is not finite for some of its values")
            weighed = Open(two.axes, two.data * weights[start : start + chunk])
            squares = Open(one.axes, one.data**2), Open(two.axes, two.data * weighed.data)
            for total, pair in zip(sums, ((one, weighed), squares), strict=True):
                total.append(contract(*pair, [COORDINATE]))
        value, square = (reduce(lambda a, b: Open(a.axes, a.data + b.data), total) for total in sums)
        return value, Open(square.axes, np.sqrt(square.data))

    def _values(self, body: Expr, draws: Array) -> Open:
        """One side for all draws, the draws last."""

        def read(reference: Variable, ranges: Ranges) -> Open:
            family = self._names.get(reference.name)
            if family is None:
                return self.numbers.scope(ranges).variable(reference, ranges)
            sizes = (b - a for a, b in family.own.values())
            data = draws[..., family.place, :].reshape(*self.shape, *sizes, draws.shape[-1])
            slots = dict(zip(family.own, reference.slots, strict=True))
            starts = {name: start for name, (start, _) in family.own.items()}
            return gather(Open((*self.axes, *family.own, COORDINATE), data), slots, ranges, starts)

        found = evaluate(body, Scope(self.numbers.netsor, self.ranges, read))
        axes = (*(name for name in found.axes if name not in (REPLICATE, COORDINATE)),)
        sizes = dict(zip(found.axes, found.data.shape, strict=True))
        sizes |= {REPLICATE: self.shape[0], COORDINATE: draws.shape[-1]}
        return Open((REPLICATE, *axes, COORDINATE), broadcast(found, (REPLICATE, *axes, COORDINATE), sizes))

"""The algebra of numbers: Definition 1 on arrays with errors, expectations by closed forms, quadrature or draws."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.pairs import Pairs
from tensorprog.language.errors import NotFiniteError, ProgramError
from tensorprog.language.evaluate import (
    BATCH,
    COORDINATE,
    Open,
    Scope,
    affine_values,
    align,
    broadcast,
    evaluate,
    index_array,
    union,
)
from tensorprog.language.expr import Affine, Expr, Number, Variable, indices_of
from tensorprog.language.initials import InitialLaw, alike, covariance_size, initial_laws
from tensorprog.language.ir import Initial, Netsor, Range
from tensorprog.limit.form.definitions import Box, Corrected, indicator, readings
from tensorprog.limit.form.sums_of_functions import WeightedFunction, position_names
from tensorprog.limit.form.weight_columns import Columns
from tensorprog.limit.memory import keep, need
from tensorprog.limit.moment.indexed import Equations, difference, patterns
from tensorprog.limit.moment.recursion import Recursion
from tensorprog.limit.moment.values import REPLICATE, DeferredPairs, IndexedValues, Settled, Value, check_memory

__all__ = ["EXACT", "Numbers", "initial_draws"]

Array = NDArray[Any]
Ranges = Mapping[str, Range]
COVARIANCES = 3  # arrays of the size of the covariance of initial vectors while it is computed
MANY = 100  # members whose covariances wait until they are read, to be computed with those of all layers
LARGEST = 1e150  # second moments whose squares are numbers still
EXACT = 1e-12  # relative errors that are rounding


class Numbers(Recursion[Value, IndexedValues]):
    """Definition 1 in numbers with errors.

    Values may have the axis REPLICATE (`values`): replicates of draws, whose spread is part of the error once they
    are settled, or draws of scores.

    Raises    NotCompiledError for what this version does not compile, NotFiniteError for moments that are not finite
    """

    kind = IndexedValues
    each = False  # whether every draw has moments of its own
    jointly = False  # whether functions of several vectors, summed over, are averaged over points of all that they read
    passing = ""  # a vector, if of recurrences only its moments are kept, and of others those of the last members
    relative = 0.0  # the largest error of a covariance that points or draws were made with, beside both deviations

    def __init__(self, program: Netsor, expanded: bool = True, symbols: Collection[str] = ()) -> None:
        super().__init__(program, expanded, symbols)
        self.replicates: Range | None = None
        self.initials = initial_laws(self.netsor)
        self._whole: set[str] = set()

    @abstractmethod
    def ready(self, *names: str) -> None:
        """Fill in the recurrences that define these families."""

    @abstractmethod
    def start_again(self) -> None:
        """Nothing is computed yet: filling in a recurrence did not finish."""

    @property
    @abstractmethod
    def weight_columns(self) -> Columns:
        """The products of every weight, numbered in the order in which they become known."""

    @abstractmethod
    def by_moments(self, statement: Corrected) -> bool:
        """Whether the coefficients of an Onsager term follow from moments, and not with the vectors at points."""

    def entered(self, name: str, box: Box) -> None:
        """A recurrence has made members of a Gaussian family known."""

    # -- the axis of draws ----------------------------------------------------------------------------------------

    def over(self, ranges: Ranges) -> dict[str, Range]:
        """The ranges, with that of the replicates of draws, or of the draws, if there are any."""
        return dict(ranges) | ({} if self.replicates is None else {REPLICATE: self.replicates})

    def settle(self, found: Settled) -> Settled:
        """One number for all replicates."""
        return found.settled()

    def by_patterns(
        self, equations: Iterable[Equations], expectation: Callable[[Equations, Mapping[str, Affine]], Value],
        ranges: Ranges, prefer: Sequence[str],
    ) -> IndexedValues:  # fmt: skip
        """An expectation for each set of equations, but for those that can not hold by themselves."""
        given = list(equations)
        always = {form for own in given for form in own if form.bounds(ranges) == (0, 0)}
        found = patterns(given, ranges, prefer)
        return IndexedValues.of_cases({e: expectation(e, s) for e, s in found if always <= e}, ranges, prefer)

    def finished(self, moment: IndexedValues, f: str, g: str) -> IndexedValues:
        """A second moment, whose arrays count as kept, refused where an entry or its error is not finite.

        Sums of several parts round by their order, so that of a family it is the mean of both orders of the copies.
        """
        if f == g and sum(part.within(moment.ranges) is not None for part in self.parts.of(f)) > 1:
            copies = [(span, moment.ranges.get(f"{name}_")) for name, span in moment.ranges.items() if name.isdigit()]
            values = [term.value for term in moment.terms if any(name.endswith("_") for name in term.value.axes)]
            symmetric = all(isinstance(value, DeferredPairs) for value in values)
            if not symmetric and all(first == second for first, second in copies):
                moment = (moment + self.swapped(moment, moment.ranges)).mapped(lambda value: value.scaled(0.5))
        keep(*(array for term in moment.terms for array in term.value.arrays))
        size = max((float(term.value.bound.value) for term in moment.terms), default=1.0) if f == g else 1.0
        if 0 < size < 1 / LARGEST or LARGEST < size < np.inf:
            raise NotFiniteError(
                f"E[{f}**2] is of the size of {size:.0e}: beyond {LARGEST:.0e} and {1 / LARGEST:.0e} no limit can be "
                "stated in the numbers of a computer; scale weights and initial vectors"
            )
        return _finite(moment, f"E[{f}**2]" if f == g else f"E[{f} {g}]")

    @contextmanager
    def guarded(self, *names: str) -> Iterator[None]:
        """Refuse functions that take values which are no numbers, by the statements of the families that they make."""
        try:
            with np.errstate(all="ignore"):
                yield
        except FloatingPointError as error:
            told = dict.fromkeys(str(s) for s in self.netsor.body if s.target.name in names)
            raise NotFiniteError(
                f"{'; '.join(told)}: not a finite number for some values of Gaussian variables: it overflows, or "
                "leaves the domain of a function (log, sqrt, division)"
            ) from error

    # -- the algebra ----------------------------------------------------------------------------------------------

    def scope(
        self, ranges: Ranges, moved: Variable | None = None, by: float = 1.0,
        seen: dict[Variable, Estimate] | None = None,
    ) -> Scope:  # fmt: skip
        """Constants, indices, averages (`moved` by its error, times `by`; those read are `seen`).

        A score would be a mistake of ours.
        """
        full = dict(self.netsor.ranges) | dict(self.parts.bound_ranges) | dict(ranges)

        def read(reference: Variable, box: Ranges) -> Open:
            value = self.average_at(reference, box)
            if seen is not None:
                seen[reference] = value.estimate
            if reference == moved:
                return Open(value.axes, value.estimate.value + by * value.estimate.error)
            return value.value

        return Scope(self.netsor, full, read)

    def known(self, name: str) -> Box:
        """The members of a scalar family that are known: all."""
        return self.netsor.families[name].ranges

    def average_at(self, reference: Variable, ranges: Ranges) -> Value:
        """Averages that a reference reads, a value for each replicate."""
        starts = {str(k): span[0] for k, span in enumerate(self.known(reference.name))}
        total = Value.of(0.0)
        for case in readings(reference, self.netsor.families[reference.name], ranges):
            value = self._average(reference.name)
            names = {str(k): slot for k, slot in enumerate(case.slots) if str(k) in value.axes}
            value = value.gather(names, ranges, starts)
            total = total + (value * self.number(indicator(case.inside), ranges) if case.inside else value)
        return total

    def number(self, expr: Expr, ranges: Ranges) -> Value:
        """An expression of constants, indices and averages, with the error of the averages carried through."""
        if isinstance(expr, Number):
            return Value.of(expr.value)
        return self._number(expr, ranges)

    def _number(self, expr: Expr, ranges: Ranges) -> Value:
        def evaluated(scope: Scope) -> Value:
            found = evaluate(expr, scope)
            return Value.of(found.data, found.axes)

        return self.of_averages(ranges, evaluated, 0.0)

    def of_averages(self, ranges: Ranges, found: Callable[[Scope], Value], rounding: float = EXACT) -> Value:
        """What is made of averages, with how it changes where each is larger by its error, and where it is smaller.

        Both count, as a function may turn to one side only.  Relative errors up to `rounding` are not looked at.
        """
        read: dict[Variable, Estimate] = {}
        result = found(self.scope(ranges, seen=read))
        for average, known in read.items():
            with np.errstate(invalid="ignore"):  # 0 * inf, where a mask is read
                large = np.any(known.error > rounding * np.abs(known.value))
            if large:
                moved = [found(self.scope(ranges, average, by)) for by in (1.0, -1.0)]
                axes = union(result.axes, *(other.axes for other in moved))
                value = result.aligned(axes)
                apart = np.maximum(*(np.abs(other.aligned(axes).value - value.value) for other in moved))
                error = value.error + np.where(np.isnan(apart), np.inf, apart)
                result = Value(axes, Estimate(np.broadcast_to(value.value, error.shape), error))
        return result

    def variance(self, weight: str, slots: Sequence[Affine], ranges: Ranges) -> Value:
        """The variance of a weight whose indices are affine forms of others."""
        declared = self.netsor.weight[weight]
        used = [n for n in declared.indices if any(n == m for m in indices_of(declared.variance, self.netsor.ranges))]
        key = "variance", weight
        if key not in self.program.known:
            self.program.known[key] = Value.of(index_array(self.netsor, declared.variance, used), used)
        value: Value = self.program.known[key]
        where = dict(zip(declared.indices, slots, strict=True))
        starts = {name: self.netsor.ranges[name][0] for name in used}
        return value.gather({name: where[name] for name in used}, ranges, starts)

    def initial_law(self, name: str) -> InitialLaw:
        """The law of initial vectors, whose whole covariance has room."""
        law = self.initials[name]
        if name not in self._whole:
            size = covariance_size(self.netsor, law.initial)
            need(COVARIANCES * size, f"the covariance of the initial vectors {name}, {size} numbers,")
            keep(law.blocks)
            self._whole.add(name)
        return law

    def initial(self, name: str, ranges: Ranges, where: Equations) -> IndexedValues:
        """The covariance of initial vectors: blocks of those that depend on each other, or equal positions only."""
        indices = self.initials[name].initial.indices
        position = {index: str(k) for k, index in enumerate(indices)}
        equal = {n: k for n, k in position.items() if difference(Affine.index(k), Affine.index(f"{k}_")) in where}
        found = self._initial_at(name, position, equal) if equal and name not in self._whole else None
        if found is None:
            equal, found = {}, self._initial_blocks(name, position, ranges)
        same = {difference(Affine.index(position[i]), Affine.index(f"{position[i]}_"))
                for i in self.initials[name].independent if i not in equal}  # fmt: skip
        equations = frozenset(form for form in same if form is not None)
        return IndexedValues.of_overlapping([(equations, found)], dict(ranges))

    def _initial_at(self, name: str, position: Mapping[str, str], equal: Mapping[str, str]) -> Value | None:
        shape = self.netsor.families[name].shape
        check_memory([*shape, *(size for size, index in zip(shape, position, strict=True) if index not in equal)])
        found = self.initials[name].at(equal)
        if found is None:
            return None
        value, error = (Open(tuple(position.get(n) or f"{position[n[:-1]]}_" for n in part.axes), part.data)
                        for part in found)  # fmt: skip
        axes = tuple(sorted(value.axes, key=lambda n: (n in equal.values(), n.endswith("_"))))  # as pairs are computed
        bound = broadcast(error, axes, dict(zip(value.axes, value.data.shape, strict=True)))
        bound = bound if 0 in bound.strides else np.asarray(bound, order="C")  # in the order of the numbers
        return Value.of(np.asarray(align(value, axes), order="C"), axes, bound)

    def _initial_blocks(self, name: str, position: Mapping[str, str], ranges: Ranges) -> Value:
        law = self.initials[name]
        if law.tiled and law.shape[-1] >= MANY and name not in self._whole:
            diagonal = Estimate(law.variances, np.broadcast_to(law.spread**2, law.shape))
            return DeferredPairs(
                ("0", "0_"), Pairs.of_tiles(diagonal, lambda rows, columns, _: law.tile(rows, columns))
            )
        law = self.initial_law(name)
        shape = [ranges[position[index]][1] - ranges[position[index]][0] for index in law.joint]
        data = law.blocks.reshape((*law.blocks.shape[: len(law.independent)], *shape, *shape))
        own, joint = ([position[i] for i in names] for names in (law.independent, law.joint))
        axes = (*own, *joint, *(f"{k}_" for k in joint))
        if law.independent and data.size and np.all(data == data[(slice(0, 1),) * len(law.independent)]):
            data, axes = data[(0,) * len(law.independent)], axes[len(law.independent) :]
        # only laws without independent members have errors
        if len(axes) == len(data.shape) == 2 and len(data) >= MANY:
            return DeferredPairs(axes, Pairs.of(data, np.broadcast_to(law.spread**2, len(data))))
        size = alike(law.spread)  # zero for laws with independent members
        bound = np.outer(size, size)
        return Value.of(
            data, axes, np.broadcast_to(bound, law.blocks.shape).reshape(data.shape) if bound.any() else None
        )

    def initial_mean(self, reference: Variable, ranges: Ranges) -> Value | None:
        """The mean of an initial vector; None where it is zero."""
        mean, family = self.initials[reference.name].mean, self.netsor.families[reference.name]
        if not mean.any():
            return None
        names = [str(k) for k in range(len(family.ranges))]
        starts = {name: span[0] for name, span in zip(names, family.ranges, strict=True)}
        return Value.of(mean, names).gather(dict(zip(names, reference.slots, strict=True)), ranges, starts)

    def weighed(
        self, value: Value, coefficients: Sequence[Expr], inside: Sequence[tuple[Affine, Range]], over: Sequence[str],
        ranges: Ranges,
    ) -> Value:  # fmt: skip
        """Coefficients, then sums over indices, by products of matrices where that is possible."""
        factors = []
        for form, (start, stop) in inside:
            at = affine_values(form, ranges)
            factors.append(Value.of((at.data >= start) & (at.data < stop), at.axes))
        factors += [self.number(expr, ranges) for expr in coefficients]
        left = list(over)
        if factors and not value.axes:  # one number comes last
            value, factors = factors[0], [*factors[1:], value]
        for k, factor in enumerate(factors):
            later = {name for other in factors[k + 1 :] for name in other.axes}
            now = [n for n in left if n in (*value.axes, *factor.axes) and n not in later]
            value, left = value.contracted(factor, now), [name for name in left if name not in now]
        # what does not depend on an index counts with its size
        sizes = [ranges[name][1] - ranges[name][0] for name in left if name not in value.axes]
        value = value.summed([name for name in left if name in value.axes])
        return value * Value.of(float(math.prod(sizes)))

    def value_of(self, moment: IndexedValues) -> Value:
        """All terms as one array, over the axes that matter."""
        axes = {name: None for term in moment.terms for name in term.value.axes}
        axes |= {name: None for term in moment.terms for form in term.equations for name in form.indices}
        return Value(tuple(axes), moment.dense(tuple(axes)))

    # -- means ----------------------------------------------------------------------------------------------------

    def mean(self, name: str) -> Value:
        """E[Z^f] of a vector that no score reaches, over positions '0', '1', ..."""
        if name in self.random:
            raise ProgramError(f"{name} depends on scores: its mean given them is law.given(...).mean")
        if self.netsor.families[name].kind == "scalar":
            return self.average(name)
        return self.settle(self._mean_of(name))

    def _mean_of(self, name: str, parts: Sequence[WeightedFunction] | None = None) -> Value:
        axes = tuple(self.over(position_names(self.netsor, name)))
        return Value(axes, _finite(self.first(name, parts), f"E of a function of {name}").dense(axes))


def _finite(moment: IndexedValues, name: str) -> IndexedValues:
    """The moment, refused where an entry or its error is not finite."""
    for bound in (term.value.bound for term in moment.terms):
        if not (np.isfinite(bound.value) and np.isfinite(bound.error)):
            what = "its error cannot be bounded" if np.isfinite(bound.value) else "too large for a computer"
            raise NotFiniteError(f"{name} is infinite, or {what}, so that no limit can be stated")
    return moment


def initial_draws(numbers: Numbers, initial: Initial, block: Array) -> Array:
    """Coordinates of initial vectors from standard normals.

    Shapes    block (draws, independent members, joint members, coordinates) -> (draws, *members, coordinates)
    """
    law, family = numbers.initial_law(initial.name), numbers.netsor.families[initial.name]
    drawn = law.factor.astype(block.dtype) @ block  # one product for each draw, however many there are
    names = (*law.independent, *law.joint)
    sizes = [family.shape[initial.indices.index(name)] for name in names]
    value = Open((BATCH, *names, COORDINATE), drawn.reshape(len(drawn), *sizes, block.shape[-1]))
    return np.asarray(align(value, (BATCH, *initial.indices, COORDINATE)) + law.mean[..., None])

"""Variables given draws of all that is random: their means and covariances, which `Outputs` averages.

The recursion computes moments for each draw.  What is not known given the draws is drawn itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import REPLICATES, point_sets
from tensorprog.language.errors import (
    AccuracyError,
    MemoryLimitError,
    NotCompiledError,
    ProgramError,
    did_you_mean,
    fail,
)
from tensorprog.language.evaluate import BATCH, Open, broadcast
from tensorprog.language.expr import Expr
from tensorprog.language.formats import name_of, selected
from tensorprog.language.ir import MatMul, Netsor
from tensorprog.language.schedule import upstream
from tensorprog.limit.draw.conditioned import ARRAYS, Conditioned, without_coordinates
from tensorprog.limit.draw.draws import Draws
from tensorprog.limit.draw.factors import GivenNormals
from tensorprog.limit.form.definitions import Box, place
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.law.marginals import check_points
from tensorprog.limit.memory import budgeted, need, numbers_at_once
from tensorprog.limit.moment.compilable import bases_of, refuse_cells
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import Value

__all__ = ["ConditionalLaw", "DrawSource", "average", "coefficients", "diagonal", "in_box", "is_linear", "pieces"]


Array = NDArray[Any]
Member = tuple[str, Box]  # a variable: members of a family in a box
NUMBERS = 1 << 25  # held at once while draws are evaluated: not too few, since every piece compiles again


def is_linear(recursion: NumericRecursion, name: str) -> bool:
    """Whether a vector is linear in Gaussian variables given the draws, so conditionally Gaussian."""
    vector = recursion.netsor.families[name].kind == "vector" and not recursion.is_finite(name)
    return vector and all(map(recursion.parts.gaussian, recursion.parts.last(name)))


def in_box(recursion: NumericRecursion, found: Value, name: str, box: Box) -> tuple[Array, Array]:
    """Numbers and errors of the members in a box, of a value over the positions of a family.

    Shapes    (*members), twice
    """
    ranges = position_names(recursion.netsor, name)
    sizes, at = {axis: stop - start for axis, (start, stop) in ranges.items()}, place(box, [*ranges.values()])
    return broadcast(found.value, tuple(ranges), sizes)[at], broadcast(found.error, tuple(ranges), sizes)[at]


def diagonal(box: Box) -> dict[str, Array]:
    """Positions '0', '0_', '1', .. of the members in a box, each beside itself."""
    grids = np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij")
    return {f"{k}{copy}": grid for k, grid in enumerate(grids) for copy in ("", "_")}


class DrawSource:
    """Where draws come from, and what is known of some variables given them.

    Scores over infinite widths are Gaussian given what their operands are made from, where all variables are scores, or
    depend on none.  Vectors named by `drawn` are values of their own; `by_values`, so is the first variable, if it is
    a vector that is not Gaussian given the draws.  `passing`: see `Draws`.

    `dim` standard normals make one draw; `relative` is the largest relative error of the moments used so far, `inner`
    the largest error of the averages drawn so far.  Variables go by their numbers in the order given.

    Raises    NotCompiledError for scores over finite widths, or behind one another, if these are `joint`
    """

    def __init__(
        self, recursion: NumericRecursion, variables: Sequence[Member], by_values: bool = False, joint: bool = False,
        drawn: Collection[str] = (), passing: str = "",
    ) -> None:  # fmt: skip
        self.recursion, self.netsor, self.variables = recursion, recursion.netsor, variables
        self.relative, self.inner, self._values = 0.0, 0.0, frozenset(drawn)
        self._off: dict[tuple[str, int, int], Array] = {}
        names = dict.fromkeys(name for name, _ in variables)
        scores = [name for name in names if name in recursion.scores]
        operands = {v.name for name in scores for v in recursion.dot(name).inputs}
        finite = any(map(recursion.is_finite, operands))
        if joint and (finite or set(scores) & upstream(self.netsor, operands)):
            raise NotCompiledError(
                f"{', '.join(sorted(scores))}: joint laws of scores over finite widths, or of scores behind one "
                "another, are not computed yet; law.sample draws them"
            )
        apart = not finite and recursion.random.isdisjoint(names.keys() - set(scores))
        self.scores = frozenset(scores if apart else ())
        first = variables[0][0]
        if by_values and self.has_moments(first) and not is_linear(recursion, first):
            self._values |= {first}
        whole = (part for name in self._values for part in recursion.parts.last(name))
        wanted = {*(operands if self.scores else ()), *(names.keys() - self.scores)}
        self.draws = Draws(recursion, wanted, bases_of(whole), passing)
        self.dim = self.draws.dim

    def draws_at_once(self, results: int, what: str) -> int:
        """Draws that are worked on at once, a power of 2; `results` are the numbers kept of each."""
        need(self.draws.working, f"one draw of {what}, with all the moments that it needs,")
        return 1 << max(0, (numbers_at_once(NUMBERS, 1) // (self.draws.working + results)).bit_length() - 1)

    @contextmanager
    def at(self, points: Array) -> Iterator[Conditioned]:
        """The moments given the draws at points (draws, dim)."""
        found = self.draws.at(points)
        yield found
        self.relative, self.inner = max(self.relative, found.relative), self.draws.inner
        found.forget()

    def has_moments(self, name: str) -> bool:
        """Whether moments given the draws are known: vectors of infinite width, but for those that are drawn."""
        if name in self._values:
            return False
        return self.netsor.families[name].kind == "vector" and not self.recursion.is_finite(name)

    def _note(self, kind: str, k: int, m: int, error: Array) -> None:
        """Remember the error of the average of a mean or covariance given the draws, the largest of some pieces."""
        self._off[kind, k, m] = np.maximum(self._off.get((kind, k, m), 0.0), error)

    def off(self, kind: str, k: int = 0, m: int = 0) -> Array:
        """The errors noted: of "mean", "var" or "cov" of variables by their numbers.

        Shapes    (*members of k) or (*members of k, *members of m), or one number for all
        """
        return self._off.get((kind, k, m), np.zeros(()))

    # -- given draws ----------------------------------------------------------------------------------------------

    def halves(self, found: Conditioned) -> tuple[Array, ...]:
        """Means and variances of the first variable where it is Gaussian given the draws, else values of it alone.

        Shapes    each (draws, *members)
        """
        name, box = self.variables[0]
        if name not in self.scores and not self.has_moments(name):
            return (self._drawn(found, name, box),)
        mean, var = self.mean(found, 0), found.variances(name, box)
        self._note("var", 0, 0, found.wrong)
        return mean, var

    def moments(self, found: Conditioned) -> tuple[Array, Array]:
        """Means and covariances of the first variable, a vector, given the draws, also where it is drawn itself.

        Shapes    (draws, *members), (draws, *members, *members)
        """
        name, box = self.variables[0]
        mean = found.means(name, box)
        self._note("mean", 0, 0, found.wrong)
        cov = found.covariances(name, name, box, box)
        self._note("cov", 0, 0, found.wrong)
        return mean, cov

    def mean(self, found: Conditioned, k: int) -> Array:
        """Means of a variable given the draws, or values of it.

        Shapes    (draws, *members)
        """
        name, box = self.variables[k]
        if name in self.scores:
            return np.zeros((found.normals.draws, *(stop - start for start, stop in box)))
        if not self.has_moments(name):
            return self._drawn(found, name, box)
        mean = found.means(name, box)
        self._note("mean", k, k, found.wrong)
        return mean

    def cov(self, found: Conditioned, k: int, m: int) -> Array:
        """Covariances given the draws; those of values are 0.

        Shapes    (draws, *members of k, *members of m), or (draws,) of zeros
        """
        (one, first), (two, second) = (self.variables[number] for number in (k, m))
        both_scores = one in self.scores and two in self.scores
        if not both_scores and not (self.has_moments(one) and self.has_moments(two)):
            return np.zeros(found.normals.draws)
        cov = found.covariances(one, two, first, second)
        self._note("cov", k, m, found.wrong)
        return cov

    def _drawn(self, found: Conditioned, name: str, box: Box) -> Array:
        values = without_coordinates(self.draws.drawn(found, name), found.normals.draws)
        return values[(slice(None), *place(box, self.netsor.families[name].ranges))]


FIRST_LOG2, AIM_LOG2, MAX_LOG2 = 9, 15, 18  # points per replicate: first, last without and with an accuracy asked for
MORE_LOG2 = 3  # points at once, of those that seem to be needed: what is exact enough by then is read no more
AIM = 1e-4  # error aimed at, relative where numbers exceed 1
FEWEST = 2  # points per replicate, which has moments about its own mean
STUCK = 0.97  # of the error before, or the other way round: points that matter change it more
AIM_NUMBERS, MAX_NUMBERS = 1 << 22, 1 << 26  # normals per replicate, without and with an accuracy asked for


def pieces(sets: Iterable[Array], most: int) -> Iterator[list[tuple[int, Array]]]:
    """The points of several replicates, so many at a time, each part with the number of its replicate."""
    held: list[tuple[int, Array]] = []
    for number, points in enumerate(sets):
        for start in range(0, len(points), most):
            part = points[start : start + most]
            if held and sum(len(other) for _, other in held) + len(part) > most:
                yield held
                held = []
            held.append((number, part))
    if held:
        yield held


def average(
    dim: int, read: Callable[[Iterable[Array]], Sequence[Any]],
    finish: Callable[[Sequence[Any]], tuple[Array, Array]], what: str, *,
    accuracy: float | None, seed: int, aim: float = AIM, width: int = 1, most: int | None = None, fewest: int = FEWEST,
) -> tuple[Array, Array]:  # fmt: skip
    """A number and its error from what is `read` of every replicate, with twice as many points until that is small.

    `read` takes the points of each replicate that it has not had before, and gives what it has read of all.

    Without an explicit accuracy the aim is `aim`, and what is reached within 2**AIM_LOG2 points, or AIM_NUMBERS numbers
    where a point takes `width` of them, or `most` points, is returned as it is.  An error that more points hardly lower
    is not theirs: there are no more.

    Raises    AccuracyError when an explicit accuracy is not met
    """
    if dim == 0:
        return finish(read([np.zeros((1, 0))]))
    target = aim if accuracy is None else accuracy
    # as points are made, and as they are used
    numbers = numbers_at_once(AIM_NUMBERS if accuracy is None else MAX_NUMBERS, 3)
    most = max(fewest, min(1 << MAX_LOG2 if most is None else most, numbers // max(dim, width)))
    last = min(AIM_LOG2 if accuracy is None else MAX_LOG2, int(math.log2(most)))
    log2, done, before = min(FIRST_LOG2, last), 0, math.inf
    while True:
        value, error = finish(read(point_sets(dim, log2, seed, done)))
        known = np.isfinite(value)  # a constant has no kurtosis
        size = float(np.max(np.abs(value), initial=0.0, where=known))
        worst = float(np.max(error, initial=0.0, where=known)) / max(1.0, size)
        stuck = accuracy is None and STUCK * before < worst < before / STUCK
        if worst <= target or (accuracy is None and (log2 >= last or stuck)):
            return value, error
        if log2 >= last:
            raise AccuracyError(
                f"{what} has an error of {worst:.1e} after {REPLICATES * 2**log2:,} draws, and {target:.1e} was asked "
                f"for (errors of numbers above 1 are relative): ask for less with accuracy={worst:.1g}"
            )
        steps = worst / target
        more = max(1, math.ceil(math.log2(steps) / 1.5)) if steps < math.inf else last
        before, done, log2 = worst, 1 << log2, min(last, log2 + min(more, MORE_LOG2))


LOOKS, FEWEST_LOOKS = 64, 8  # draws
LOOK_NUMBERS = 1 << 22  # held by all draws together
LOOKED_AT = 1 << 4  # members of the average
LISTED = 1 << 20  # of an average that is a number
SMALL, NEARBY = 1e-3, 1 + 1e-9  # values that may be rounding, and how far off draws are that tell
COVARIANCES = 1 << 22  # of the outputs of one weight family, which are factored


def coefficients(netsor: Netsor, name: str) -> tuple[Array, Array, Box, bool]:
    """Values and errors of an average at draws of p-ring, its members that were looked at, and whether these are all.

    Of large families the first few members along each index are looked at.  An average that no score reaches has one
    draw.

    Shapes    (draws, *members), twice
    Scale     at most LOOK_NUMBERS numbers are held for the draws
    Accuracy  bounds where integrals are in closed form or by quadrature, else it holds with a probability of 99.9 %
    Raises    NotCompiledError, AccuracyError, MemoryLimitError
    """
    recursion = NumericRecursion(netsor)
    spans, random = recursion.netsor.families[name].ranges, name in recursion.random
    along = len(spans) and max(2, int((LOOKED_AT if random else LISTED) ** (1 / len(spans))))
    box = tuple((start, min(stop, start + along)) for start, stop in spans)
    if not random:
        value, error = in_box(recursion, recursion.average(name), name, box)
        return value[None], error[None], box, box == spans
    largest = max((_covariances(netsor, s) for s in netsor.body if isinstance(s, MatMul)), default=0)
    if largest > COVARIANCES:
        raise MemoryLimitError(f"{largest} covariances of the outputs of one family of weights are too many to factor")
    source = DrawSource(recursion, [(name, box)])
    numbers = max(1, source.dim, source.draws.width)
    if LOOK_NUMBERS // numbers < FEWEST_LOOKS:
        raise MemoryLimitError(f"{numbers} numbers for a draw are too many")
    points = np.random.default_rng(0).standard_normal((min(LOOKS, LOOK_NUMBERS // numbers), source.dim))

    def drawn(points: Array) -> Array:
        with source.at(points) as found:
            return source.mean(found, 0)

    value = drawn(points)
    error = source.inner + source.off("mean") + source.relative * np.abs(value)
    if np.max(np.abs(value), initial=0.0) < SMALL:  # what cancels leaves rounding, which nearby draws do not share
        error = error + np.abs(drawn(NEARBY * points) - value).max(axis=0)
    return value, error, box, box == spans


def _covariances(netsor: Netsor, statement: MatMul) -> int:
    """Between the outputs of the same member of a weight."""
    members, weights = (math.prod(netsor.families[v.name].shape) for v in (statement.target, statement.weight))
    return members * max(1, members // weights)


GIVEN_NUMBERS, GIVEN_DRAWS = 1 << 20, 4096  # that are worked on together


class ConditionalLaw:
    """The Gaussian law of the outputs given scores; leading axes of the scores are draws."""

    def __init__(self, law: Any, scores: Mapping[str, Array]) -> None:
        self._law, self._scores, self._recursion, self.budget = law, scores, law.recursion, law.budget
        recursion = law.recursion
        self._families = families = recursion.netsor.families
        known = [name for name in recursion.netsor.scores if name in recursion.random]
        if not isinstance(scores, Mapping) or set(scores) != set(known):
            hint = ", ".join(known) or "none: ask law.cov and law.density"
            raise fail("given takes a mapping from every score of the program to its values", fix=f"scores: {hint}")
        arrays, self._lead = {}, tuple[int, ...]()
        for name, values in scores.items():
            array, shape = check_points(f"given: the values of {name}", values), families[name].shape
            lead = array.shape[: array.ndim - len(shape)]
            if array.shape[len(lead) :] != shape:
                wanted = ", ".join(map(str, shape))
                raise ProgramError(f"given: {name} must have shape (..., {wanted}), not {array.shape}")
            self._lead, arrays[name] = np.broadcast_shapes(self._lead, lead), array
        self._values = {}
        for name, array in arrays.items():
            shape = families[name].shape
            flat = np.broadcast_to(array, (*self._lead, *shape)).reshape(-1, *shape)
            self._values[name] = Open((BATCH, *(str(k) for k in range(len(shape)))), flat)

    def __reduce__(self) -> Any:
        return ConditionalLaw, (self._law, self._scores)

    def _one(self, name: str | None) -> tuple[str, Any]:
        """The output meant, and where a member of it stands; () for all."""
        outputs = self._recursion.netsor.outputs
        if name is None:
            if len(outputs) > 1:
                raise ProgramError(f"name one of the outputs: {', '.join(outputs)}")
            return outputs[0], ()
        family = name_of(name).partition("[")[0]
        if family not in outputs:
            raise ProgramError(f"{name} is not an output; {did_you_mean(name, outputs)}")
        return selected(self._recursion.netsor, name)

    def _parts(self, recursion: NumericRecursion) -> Iterator[Conditioned]:
        """The moments of the vectors for every draw, some draws at a time."""
        if recursion.netsor.fixed_widths:
            width = recursion.netsor.fixed_widths[0][0]
            raise NotCompiledError(
                f"vectors of width {width}, which stays finite, are random given the scores: laws "
                "given scores are not computed for them; law.sample draws them"
            )
        refuse_cells(recursion.parts, recursion.random)
        numbers = sum(math.prod(value.data.shape[1:]) for value in self._values.values())
        size = max(1, min(GIVEN_DRAWS, numbers_at_once(GIVEN_NUMBERS, 2 * ARRAYS) // max(1, numbers)))
        for start in range(0, max(math.prod(self._lead), 1), size):
            given = {name: (Open(value.axes, value.data[start : start + size]), self._families[name].ranges)
                     for name, value in self._values.items()}  # fmt: skip
            draws = min(size, math.prod(self._lead) - start)
            found = Conditioned(recursion, None, GivenNormals([], np.zeros((draws, 0))), given)
            yield found
            found.forget()

    def _linear(self, name: str, read: Callable[[Conditioned], Array]) -> Array:
        """Numbers of an output for every draw."""
        if not self._law.is_linear(name):
            raise ProgramError(
                f"{name} is not linear in the vectors, and not Gaussian given the scores; law.sample draws it"
            )
        values = np.concatenate([read(found) for found in self._parts(self._recursion)])
        return values.reshape((*self._lead, *values.shape[1:]))

    @budgeted
    def mean(self, name: str | None = None) -> Array:
        """Conditional mean.

        Shapes    (*draws, *members), (*draws) for a member such as 'y[0]'
        """
        name, at = self._one(name)
        return self._linear(name, lambda found: found.means(name))[(..., *at)]

    @budgeted
    def cov(self, name: str | None = None) -> Array:
        """Conditional covariance.

        Shapes    (*draws, *members, *members), (*draws) for a member
        """
        name, at = self._one(name)
        draws, members = math.prod(self._lead), math.prod(self._families[name].shape)
        what = f"the covariance of {name} for each of {draws} draws of scores"
        need(2 * draws * members**2, what, "give fewer draws at a time")
        return self._linear(name, lambda found: found.covariances(name, name))[(..., *at, *at)]

    @budgeted
    def expectation(self, psi: str | Expr, *, with_error: bool = False) -> Any:
        """E[psi(Z) | p-ring] of a function of vectors and scores, such as 'tanh(y[0])**2': Theorem 1's limit.

        Shapes    (*draws, *free indices of psi)
        Source    Sakai et al. 2025, Theorem 1
        """
        added, law = self._law._extended({"expectation": psi})
        name = added.families["expectation"]
        pairs = [(found.means(name), found.average(name).estimate.error) for found in self._parts(law.recursion)]
        data, error = np.concatenate([means for means, _ in pairs]), max(np.max(e, initial=0.0) for _, e in pairs)
        data = data.reshape((*self._lead, *data.shape[1:]))
        result = data if data.shape else float(data)
        return (result, float(error)) if with_error else result

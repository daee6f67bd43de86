"""`NumericLaw`: the limit of a program, to be asked for covariances, draws, densities and moments."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import EPS, TINY
from tensorprog.language.averages import Averages, with_averages
from tensorprog.language.errors import (
    AccuracyError,
    NotCompiledError,
    NotFiniteError,
    Problem,
    ProgramError,
    UnknownNameError,
    check_count,
    did_you_mean,
    fail,
)
from tensorprog.language.expr import Call, Expr, Number
from tensorprog.language.formats import name_of
from tensorprog.language.ir import Netsor
from tensorprog.language.parse import Names, parse_target
from tensorprog.language.samples import Samples
from tensorprog.limit.draw.draws import Sampled
from tensorprog.limit.form.definitions import Box, place
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.law.conditional_moments import ConditionalLaw, diagonal, in_box, is_linear
from tensorprog.limit.law.marginals import Marginals, answer, check_points
from tensorprog.limit.law.mixture import Joint, Mixture, Moment
from tensorprog.limit.law.outputs import Outputs
from tensorprog.limit.law.structured_covariance import Covariance
from tensorprog.limit.memory import Budget, budgeted
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import IndexedValues

__all__ = ["NumericLaw", "widths_text"]

Array = NDArray[Any]
TOGETHER = 64  # members of an output behind layers of scores that are averaged at once


class NumericLaw(Marginals):
    """The infinite-width limit of a program: Definition 1, with a sampler for (Z, p-ring).

    The numbers of the public `Law`, which explains them.
    """

    def __init__(
        self,
        netsor: Netsor,
        *,
        grade: str = "",
        accuracy: float | None = None,
        max_memory: int = 1 << 30,
        seed: int = 0,
        expanded: bool = True,
        assumed: Sequence[str] = (),
    ) -> None:
        if not isinstance(netsor, Netsor):
            raise fail("a law is made of a program", fix="P.limit()")
        self.netsor, self.grade, self.accuracy = netsor, grade, accuracy
        self.assumed = tuple(assumed)  # what is not shown of the program's functions, and the law rests on
        self.budget, self._max_memory, self._seed = Budget(max_memory), max_memory, seed
        with self.budget.within():
            self.recursion = NumericRecursion(netsor, expanded, max_memory // 12)
        self.compiled = self.recursion.netsor
        self._outputs = Outputs(netsor, self.recursion, accuracy, max_memory, seed)
        self._joints: dict[tuple[tuple[str, Box], ...], Joint] = {}
        self._cov: dict[tuple[str, str], tuple[Array, Array]] = {}
        self._moments: dict[tuple[str, Box, Moment, int], tuple[Array, Array]] = {}
        self._larger: dict[Any, tuple[Averages, NumericLaw]] = {}
        # one member takes all that is random, and so do all of them
        known = self.compiled.families
        few = (name for name in (*self.outputs, *self.scores) if math.prod(known[name].shape) <= TOGETHER)
        self._together = frozenset(few)
        self.error = 0.0  # the largest error of the numbers given so far

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.compiled.outputs

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores, but for those that constants put out of use."""
        return tuple(name for name in self.netsor.scores if name in self.compiled.families)

    @property
    def widths(self) -> dict[str, float]:
        """What each width is in the limit: infinity, or the number at which it stays."""
        infinite = ("n", *(name for name, *_ in self.netsor.widths))
        return dict.fromkeys(infinite, math.inf) | dict(self.compiled.fixed_widths)

    def __repr__(self) -> str:
        scores, widths = ", ".join(self.scores) or "none", widths_text(self.widths)
        assumed = "".join(f"; {text}" for text in self.assumed)
        return f"Law({self.netsor.name}, outputs={', '.join(self.outputs)}, scores={scores}, {widths}{assumed})"

    def __reduce__(self) -> Any:
        return partial(type(self), **self._settings), (self.netsor,)

    @property
    def _settings(self) -> dict[str, Any]:
        kept = {"max_memory": self._max_memory, "seed": self._seed, "expanded": self.recursion.expanded}
        return kept | {"grade": self.grade, "accuracy": self.accuracy, "assumed": self.assumed}

    # -- names --------------------------------------------------------------------------------------------------

    def member(self, text: str) -> tuple[str, Box, bool]:
        """Family, box of members, and whether one member is meant."""
        names = Names(self.compiled.scalars, frozenset())
        reference = parse_target(name_of(text), names)
        family = self.compiled.families.get(reference.name)
        if family is None or family.kind == "weight":
            known = [name for name, f in self.compiled.families.items() if f.kind != "weight"]
            if family is None and reference.name in self.netsor.families:
                raise ProgramError(f"{reference.name} reaches no output with these constants: it is not in the limit")
            raise UnknownNameError(
                f"{reference.name} is not a vector or scalar of the program; {did_you_mean(reference.name, known)}"
            )
        if not reference.slots:
            return reference.name, family.ranges, not family.ranges
        if len(reference.slots) != len(family.ranges):
            raise ProgramError(f"{family.name} has {len(family.ranges)} indices, {len(reference.slots)} given")
        box = []
        for slot, (start, stop) in zip(reference.slots, family.ranges, strict=True):
            if slot.terms or not start <= slot.offset < stop:
                raise ProgramError(f"{text}: the index {slot} is not a number in {start}..{stop - 1}")
            box.append((slot.offset, slot.offset + 1))
        return family.name, tuple(box), True

    def is_linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the scores, so conditionally Gaussian."""
        return is_linear(self.recursion, name)

    def _is_gaussian_score(self, name: str) -> bool:
        """Whether a family is one of scores that are Gaussian: no other score stands behind their operands."""
        scores = self.recursion.scores
        return name in scores and self.recursion.random.isdisjoint(v.name for v in self.recursion.dot(name).inputs)

    def _note(self, error: Any, value: Any = 0.0, what: str = "") -> None:
        """Remember the largest error; with an accuracy asked for, raise AccuracyError if `what` does not meet it."""
        worst = float(np.max(error, initial=0.0, where=~np.isnan(error)))
        self.error = max(self.error, worst)
        known = np.isfinite(value)
        size = max(1.0, float(np.max(np.abs(value), initial=0.0, where=known)))
        if what and self.accuracy is not None and worst > self.accuracy * size:
            more = "" if self.recursion.replicates is None else ", or allow more draws with max_memory="
            raise AccuracyError(
                f"{what} has an error of {worst / size:.1e}, and {self.accuracy:.1e} was asked for (errors of numbers "
                f"above 1 are relative): ask for less with accuracy={more}"
            )

    # -- means and covariances ----------------------------------------------------------------------------------

    @budgeted
    def mean(self, name: str, *, with_error: bool = False) -> Any:
        """E[Z].

        Shapes    (*members), or a number for one member such as 'y[0]'
        """
        family, box, single = self.member(name)
        if family in self.recursion.scores and not self.recursion.is_finite(self.recursion.dot(family).left.name):
            value = error = np.zeros([b - a for a, b in box])
        else:
            value, error = self._known_mean(family, box) or self._mixture(family, box).expected()
        self._note(error, value, f"the mean of {name}")
        return answer(value, error, single, with_error)

    def _known_mean(self, family: str, box: Box) -> tuple[Array, Array] | None:
        with suppress(NotCompiledError):
            if family not in self.recursion.random:
                return in_box(self.recursion, self.recursion.mean(family), family, box)
        return None

    @budgeted
    def second_moment(self, first: str, second: str | None = None) -> Any:
        """E[Z^f Z^g], uncentred: what clause (ii) of Definition 1 propagates.

        Shapes    a `Covariance`; for a member such as 'x[0]' beside a family an array, for two members a number
        """
        second = first if second is None else second
        one, two = self._family(first), self._family(second)
        moment = self.recursion.second(one, two)
        self._note(moment.error, moment.size, f"the second moment of {first} and {second}")
        found = self._covariance(moment, one, two)
        return self._entries(found, np.asarray(moment.error), first, second)[0]

    def _family(self, name: str) -> str:
        return self.member(name)[0]

    def _covariance(self, moment: IndexedValues, first: str, second: str) -> Covariance:
        one, two = position_names(self.compiled, first), position_names(self.compiled, second, "_")
        return Covariance(moment, [*one], [*two], self.budget)

    @budgeted
    def cov(self, first: str, second: str | None = None, *, with_error: bool = False) -> Any:
        """Centred covariance of two families: of Z for vectors, of p-ring for scores, over both for outputs of scores.

        Shapes    a `Covariance`; np.asarray of it has the members of the first, then of the second.  For variables
                  that depend on scores, an array of that shape (and its error).  For two members such as 'y[0]' and
                  'y[1]' a number, for a member and a family an array
        Source    Sakai et al. 2025, Definition 1 (ii), (iv)
        """
        second = first if second is None else second
        names, what = (self._family(first), self._family(second)), f"the covariance of {first} and {second}"
        moment = self._known_cov(*names)
        found: Any
        if moment is None:
            found, error = self._averaged_cov(*names)
            self._note(error, found, what)
        else:
            self._note(moment.error, moment.size, what)
            found, error = self._covariance(moment, *names), np.asarray(moment.error)
            if with_error and self.recursion.replicates is not None:  # whose spread differs from entry to entry
                error = moment.dense([*position_names(self.compiled, names[0]),
                                      *position_names(self.compiled, names[1], "_")]).error  # fmt: skip
        value, error = self._entries(found, error, first, second)
        if not with_error:
            return value
        return value, error if isinstance(value, float) else np.broadcast_to(error, value.shape)

    def corr(self, first: str, second: str | None = None) -> Any:
        """Correlations of two families or members: `cov` over standard deviations; nan beside a constant."""
        sds = np.multiply.outer(self.std(first), self.std(first if second is None else second))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.cov(first, second)) / sds

    def _known_cov(self, first: str, second: str) -> IndexedValues | None:
        """The covariance of two families, unless it takes averages over draws."""
        random = {first, second} & self.recursion.random
        numbers = {n for n in (first, second) if self.compiled.families[n].kind == "scalar"} - self.recursion.random
        scores = {first, second} & set(self.recursion.scores)
        if len(scores) == len({first, second}) and all(map(self._is_gaussian_score, scores)):
            return self.recursion.score_covariance(first, second)
        if numbers or (scores and random != {first, second}):
            # averages are numbers, and scores are independent of every vector that no score reaches
            return IndexedValues((), self.recursion.pair_ranges(first, second))
        with suppress(NotCompiledError):
            return None if random else self.recursion.centred(first, second)
        return None

    def _entries(self, found: Any, error: Array, first: str, second: str) -> tuple[Any, Any]:
        """What two names mean, members or families, of the numbers of their families, with errors."""
        sides = [self.member(name) for name in (first, second)]
        if (first, second) == tuple(family for family, *_ in sides):
            return found, error
        places = [place(box, self.compiled.families[family].ranges) for family, box, _ in sides]
        key = tuple(part.start if one else part for own, (*_, one) in zip(places, sides, strict=True) for part in own)
        if isinstance(found, Covariance) and all(one for *_, one in sides):
            value: Any = found.at(*([start for start, _ in box] for _, box, _ in sides))
        else:
            value = np.asarray(found)[key]
        error = error[key] if error.ndim else error
        return (value, error) if np.ndim(value) else (float(value), float(error))

    def _averaged_cov(self, first: str, second: str) -> tuple[Array, Array]:
        """The covariance by averaging, the same numbers in both orders; variances are those of `var`."""
        one, two = sorted((first, second))
        if (one, two) not in self._cov:
            families = self.compiled.families
            spans = [families[name].ranges for name in (one, two)]
            variance = one, spans[0], Mixture.moment, 2
            if one == two and self._outputs.alike(one) is not None:
                value, error = map(np.array, self._outputs.cov(one, two, None))
                self._moments[variance] = np.diagonal(value).copy(), np.diagonal(error).copy()
                known = [self._moments[variance]]
            else:
                known = [
                    self._moment_of(name, own, Mixture.moment, 2) for name, own in zip((one, two), spans, strict=True)
                ]
                sizes = [var.reshape(-1) for var, _ in known]
                value, error = map(np.array, self._outputs.cov(one, two, sizes))
            self._cov[one, two] = value, error
            size = known[0][0].size
            for part, own in zip((value, error), known[0], strict=True) if one == two else ():
                square = part.reshape(size, size)
                square[:] = (square + square.T) / 2
                np.fill_diagonal(square, own)
        members = len(self.compiled.families[one].shape)
        axes = np.roll(np.arange(self._cov[one, two][0].ndim), -members if first > second else 0)
        value, error = (part.transpose(axes).copy() for part in self._cov[one, two])
        return value, error

    # -- one-dimensional laws -----------------------------------------------------------------------------------

    def _mixture(self, name: str, box: Box) -> Mixture:
        """Conditional means and variances of members over draws of p-ring: see `Outputs.mixture`."""
        family = self.compiled.families[name]
        if name in self._together and box != family.ranges:
            return self._mixture(name, family.ranges).member(place(box, family.ranges))
        if not math.prod(b - a for a, b in box):
            raise ProgramError(f"{name} has no members")
        if family.kind == "scalar" and name not in self.recursion.random | self.recursion.scores.keys():
            value, _ = in_box(self.recursion, self.recursion.mean(name), name, box)
            return Mixture.gaussian(value, np.zeros_like(value))
        if name not in self.recursion.random and self.is_linear(name):
            mean, known = self._known_mean(name, box), self._known_variance(name, box)
            if mean is not None and known is not None:
                return Mixture.gaussian(mean[0], np.maximum(known[0], 0.0), known[1] / np.maximum(known[0], TINY))
        return self._outputs.mixture(name, box)

    def _moment_of(self, family: str, box: Box, which: Moment, order: int) -> tuple[Array, Array]:
        key = family, box, which, order
        variances = which is Mixture.moment and order == 2 and box == self.compiled.families[family].ranges
        random = variances and key not in self._moments and family in self.recursion.random
        if random and self._outputs.alike(family) is not None:
            self._averaged_cov(family, family)
        if key not in self._moments:
            found = self._known_moment(family, box, order) if which is Mixture.moment else None
            if which is Mixture.standardised and (known := self._known_moment(family, box, order)) is not None:
                (value, error), (var, off) = known, self._moment_of(family, box, Mixture.moment, 2)
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = value / var ** (order / 2)
                    found = ratio, np.nan_to_num(error / var ** (order / 2) + 0.5 * order * np.abs(ratio) * off / var)
            self._moments[key] = which(self._mixture(family, box), order) if found is None else found
        return self._moments[key]

    def _known_moment(self, family: str, box: Box, order: int) -> tuple[Array, Array] | None:
        """The central moment of a function of one Gaussian variable, by expectations of its powers; None of others.

        A vector that is linear is an exact average.
        """
        recursion, vector = self.recursion, self.compiled.families[family].kind == "vector"
        if family in recursion.random or not vector or self.is_linear(family):
            return None
        part, *more = recursion.parts.last(family)
        if more or part.joint or part.bound or part.box or part.linear or recursion.needs_points(part):
            return self._known_variance(family, box) if order == 2 else None
        raw: list[tuple[Array, Array]] = [(np.ones([b - a for a, b in box]), np.zeros(()))]
        assert part.function is not None  # a number is linear
        with suppress(NotCompiledError):
            for k in range(1, order + 1):
                coefficient, function = (Call("power", (expr, Number(k))) for expr in (part.coefficient, part.function))
                one = replace(part, coefficient=coefficient, function=function)
                found = recursion.settle(recursion.first(family, [one])).at(diagonal(box))
                raw.append((found.value, found.error))
            signs = [math.comb(order, k) * (-raw[1][0]) ** (order - k) for k in range(order + 1)]
            value = sum(c * v for c, (v, _) in zip(signs, raw, strict=True))
            error = sum(np.abs(c) * (order * e + EPS * np.abs(v)) for c, (v, e) in zip(signs, raw, strict=True))
            return np.asarray(value + 0 * raw[0][0]), np.asarray(error + 0 * raw[0][0])
        return None

    def _known_variance(self, family: str, box: Box) -> tuple[Array, Array] | None:
        """The diagonal of the covariance of a vector that no score reaches."""
        with suppress(NotCompiledError):
            moment = self.recursion.centred(family, family, self.recursion.equal(family))
            found, shape = moment.at(diagonal(box)), [b - a for a, b in box]
            return np.broadcast_to(found.value, shape).copy(), np.broadcast_to(found.error, shape).copy()
        return None

    # -- several variables --------------------------------------------------------------------------------------

    def moment(self, name: str | Sequence[str], order: Any, *, with_error: bool = False) -> Any:
        """Central moment of a member such as 'y[0]', or of all members of a family; mixed moments of several members.

        Shapes    one name and order, or d names and d orders: E of the product of (Y_k - E Y_k)**order_k
        Raises    AccuracyError when the accuracy of the law cannot be met; ProgramError for mixed moments of variables
                  that have no joint law
        """
        if not isinstance(name, list | tuple):
            return super().moment(name, order, with_error=with_error)  # type: ignore[arg-type]
        joint, powers = self._joint(name), list(order) if np.ndim(order) == 1 else []
        if len(powers) != joint.size or not all(isinstance(k, int | np.integer) and k >= 0 for k in powers):
            raise ProgramError(f"{joint.size} variables need as many orders, whole numbers, not {order!r}")
        if sum(powers) > 16:
            raise ProgramError(f"mixed moments go up to a total order of 16, not {sum(powers)}")
        value, error = joint.moment([int(k) for k in powers])
        self._note(error, value, f"the mixed moment of {', '.join(map(str, name))}")
        return (value, error) if with_error else value

    def density(self, name: str | Sequence[str], grid: Any, *, with_error: bool = False) -> Any:
        """Density of one member at the grid points, or joint density of several.

        Shapes    one name, grid (...) -> (...); d names, grid (..., d) -> (...)
        Raises    ProgramError for several variables that have no joint density
        """
        if not isinstance(name, list | tuple):
            return super().density(name, grid, with_error=with_error)
        joint, points = self._joint(name), check_points("points of a grid", grid)
        if points.shape[-1:] != (joint.size,):
            raise ProgramError(f"{joint.size} variables need points (..., {joint.size}), not {points.shape}")
        try:
            return self._on_grid(*joint.density(points), points.shape[:-1], ", ".join(map(str, name)), with_error)
        except np.linalg.LinAlgError:
            raise ProgramError(
                f"{', '.join(map(str, name))}: linearly dependent given some scores, so that there is no joint density"
            ) from None

    @budgeted
    def _joint(self, names: Any) -> Joint:
        if not isinstance(names, list | tuple) or not names:
            raise ProgramError(f'a name such as "y[0]", or a list of at least one, is needed here, not {names!r}')
        members = tuple(self._one(name) for name in names)
        if members not in self._joints:
            families = {family for family, _ in members}
            for family in families - self.recursion.scores.keys():
                if not self.is_linear(family):
                    raise ProgramError(
                        f"{family} is not linear in the vectors: joint laws need variables that are; moments of "
                        "products come from law.expectation"
                    )
                if families & self.recursion.scores.keys() and family in self.recursion.random:
                    raise ProgramError(
                        "scores and vectors that depend on them have no joint density here; draw them with law.sample"
                    )
            self._joints[members] = self._outputs.joint(members)
        return self._joints[members]

    # -- draws --------------------------------------------------------------------------------------------------

    @budgeted
    def sample(
        self, size: int, seed: int = 0, keep: Sequence[str] = (), averages: Mapping[str, str | Expr] | None = None,
    ) -> Samples:  # fmt: skip
        """Draws of (Z, p-ring): outputs, scores, and the variables named by `keep`.

        Scores that `keep` does not name take no memory until they are read: then they are drawn again from the same
        streams.  Variables do not depend on how many draws there are, nor on which are read.

        `averages` names functions psi as for `Program.run`; the draws of their limits, E[psi(Z) | p-ring], belong to
        the same p-ring as the outputs, which are the same with and without averages.

        Shapes    each (size, *members), as for finite width with one coordinate
        Accuracy  each draw of an average has an error of its own, the largest of which enters `error`: rounding for
                  functions of one Gaussian variable, else what Gauss-Hermite or quasi-Monte Carlo reach
        Raises    NotCompiledError for averages this version does not compile
        Source    Sakai et al. 2025, Theorem 1
        """
        added, law = self._extended(averages) if averages else (None, self)
        held = dict.fromkeys([*law.outputs, *map(law._family, keep)])
        if added is None:
            return law._draw(size, seed, tuple(held | dict.fromkeys(law.scores)), tuple(held))
        with _expected(added):  # which read the scores
            held |= dict.fromkeys(law.scores)
            names = *held, *added.families.values()
            draws = law._draw(size, seed, names, names)
        self._note(law.error)
        return added.separate(draws)

    @budgeted
    def averages(self, averages: Mapping[str, str | Expr], size: int, seed: int = 0) -> Mapping[str, Array]:
        """Draws of averages alone, which read few of the scores: {"m": "tanh(y[0])**2"} -> draws of E[psi | p-ring].

        Shapes    name -> (size, *members)
        Accuracy  as for `sample`
        """
        added, law = self._extended(averages)
        with _expected(added):
            names = tuple(added.families.values())
            draws = law._draw(size, seed, names, names)
        self._note(law.error)
        return added.separate(draws).averages

    def _extended(self, averages: Mapping[str, str | Expr]) -> tuple[Averages, NumericLaw]:
        """The program with the statements of averages, and its law."""
        added = with_averages(self.netsor, averages)
        key = tuple(added.psi.items()), tuple(str(s) for s in added.netsor.body[len(self.netsor.body) :])
        if key not in self._larger:
            self._larger[key] = added, self.of(added.netsor)
        return self._larger[key]

    def of(self, netsor: Netsor, **settings: Any) -> NumericLaw:
        """The law of another program, with the same settings but for some."""
        return NumericLaw(netsor, **(self._settings | settings))

    @budgeted
    def expectation(self, psi: str | Expr, *, with_error: bool = False) -> Any:
        """E[psi(Z)] of a function of vectors and scores, such as 'tanh(y[0])**2 * y[1]': the mean of Theorem 1's limit.

        Shapes    over the free indices of psi, or a number
        Accuracy  the average over p-ring of E[psi | p-ring]: see `Law`, and `sample` for the latter
        """
        added, law = self._extended({"expectation": psi})
        with _expected(added):
            value, error = law._expectation(added.families["expectation"])
        self._note(error, value, f"the expectation of {psi}")
        return answer(value, error, not value.shape, with_error)

    def _expectation(self, name: str) -> tuple[Array, Array]:
        box = self.compiled.families[name].ranges
        if name not in self.recursion.random:
            return in_box(self.recursion, self.recursion.average(name), name, box)
        return self._outputs.expectation(name, box)

    @budgeted
    def number(self, name: str) -> Array:
        """Limits of a family of scalars that no score reaches.

        Shapes    (1, *members)
        """
        return in_box(self.recursion, self.recursion.average(name), name, self.compiled.families[name].ranges)[0][None]

    def _draw(self, size: int, seed: int, names: Sequence[str], held: Sequence[str]) -> Samples:
        started = time.perf_counter()
        checked = check_count("size", size), check_count("seed", seed, 0)
        draws = Sampled(self.recursion, self.budget, self.number, *checked, names, held)
        self._note(draws.draws.inner)
        return Samples(self.netsor, draws, int(size), int(seed), "limit", None, 1, time.perf_counter() - started)

    def given(self, scores: Mapping[str, Any]) -> ConditionalLaw:
        """The Gaussian law of the outputs given scores: {"p": values}, leading axes of the values are draws."""
        as_written = self.netsor.scores != self.compiled.scores and set(scores) <= set(self.netsor.scores)
        return ConditionalLaw(self.of(self.netsor, expanded=False) if as_written else self, scores)


def widths_text(widths: Mapping[str, float]) -> str:
    """In words: which widths go to infinity, and which stay."""
    infinite = " and ".join(name for name, value in widths.items() if value == math.inf)
    return ", ".join([f"{infinite} to infinity", *(f"{n} stays {v}" for n, v in widths.items() if v != math.inf)])


@contextmanager
def _expected(added: Averages) -> Iterator[None]:
    """Raise ProgramError where a function has no finite expectation, or is no number for some values."""
    try:
        yield
    except (FloatingPointError, NotFiniteError) as error:
        psi = ", ".join(added.psi.values())
        message = (
            f"averages: {psi} has no expectation: it is not a number for some values of Gaussian variables, or its "
            "mean is not finite"
        )
        fix = "a function of all real numbers, such as log(1 + y[0]**2)"
        raise ProgramError([Problem(message, fix=fix)]) from error

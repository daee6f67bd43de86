"""`NumericLaw`: the limit of a program, to be asked for covariances, draws, densities and moments."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.averages import Averages, with_averages
from tensorprog.language.errors import (
    AccuracyError,
    NotCompiledError,
    NotFiniteError,
    Problem,
    ProgramError,
    check_count,
    check_precision,
    did_you_mean,
    fail,
)
from tensorprog.language.evaluate import broadcast
from tensorprog.language.expr import Expr
from tensorprog.language.ir import Netsor
from tensorprog.language.parse import Names, parse_target
from tensorprog.language.samples import Samples
from tensorprog.limit.draw.draws import Draws
from tensorprog.limit.form.definitions import Box, place
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.law.conditional_law import ConditionalLaw
from tensorprog.limit.law.joint import Joint
from tensorprog.limit.law.mixture import Mixture, crossing
from tensorprog.limit.law.outputs import Outputs
from tensorprog.limit.law.structured_covariance import Covariance
from tensorprog.limit.memory import Budget, budgeted
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import IndexedValues, Value

__all__ = ["NumericLaw", "check_levels", "check_order", "check_points", "widths_text"]

Array = NDArray[Any]
ROUNDING = 16 * float(np.finfo(np.float64).eps)  # of averages of products, relative to the sizes of the factors
TOGETHER = 64  # members of an output behind layers of scores that are averaged at once


@budgeted
class NumericLaw:
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
        self.budget, self._max_memory, self._seed = Budget(max_memory, self._watch), max_memory, seed
        with self.budget.within():
            self.recursion = NumericRecursion(netsor, expanded, max_memory // 12)
        self.compiled = self.recursion.netsor
        self._outputs = Outputs(self.recursion, accuracy, max_memory, seed)
        self._curves: dict[tuple[str, Box], Mixture] = {}
        self._joints: dict[tuple[tuple[str, Box], ...], Joint] = {}
        self._cov: dict[tuple[str, str], tuple[Array, Array]] = {}
        self._moments: dict[tuple[str, Box, str, int], tuple[Array, Array]] = {}
        self._numbers: dict[str, Value] = {}
        self._larger: dict[Any, tuple[Averages, NumericLaw]] = {}
        # one member takes all that is random, and so do all of them
        known = self.compiled.families
        few = (name for name in (*self.outputs, *self.scores) if math.prod(known[name].shape) <= TOGETHER)
        self._together = frozenset(few)
        self.error = 0.0  # the largest error of the numbers given so far

    @staticmethod
    def _watch() -> AbstractContextManager[Any]:
        """What goes on beside each question."""
        return nullcontext()

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
        settings: dict[str, Any] = {
            "grade": self.grade,
            "accuracy": self.accuracy,
            "max_memory": self._max_memory,
            "seed": self._seed,
            "assumed": self.assumed,
        }
        return partial(type(self), **settings, expanded=self.recursion.expanded), (self.netsor,)

    # -- names --------------------------------------------------------------------------------------------------

    def member(self, text: str) -> tuple[str, Box, bool]:
        """Family, box of members, and whether one member is meant."""
        if not isinstance(text, str):
            raise ProgramError(f"a variable is named by text, such as 'y[0]', not {text!r}")
        names = Names(self.compiled.scalars, frozenset())
        reference = parse_target(text, names)
        family = self.compiled.families.get(reference.name)
        if family is None or family.kind == "weight":
            known = [name for name, f in self.compiled.families.items() if f.kind != "weight"]
            if family is None and reference.name in self.netsor.families:
                raise ProgramError(f"{reference.name} reaches no output with these constants: it is not in the limit")
            raise ProgramError(
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

    def _positions(self, name: str) -> tuple[str, ...]:
        return tuple(position_names(self.compiled, name))

    def is_linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the scores, so conditionally Gaussian."""
        return self._outputs.linear(name)

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

    def mean(self, name: str, *, with_error: bool = False) -> Any:
        """E[Z].

        Shapes    (*members), or a number for one member such as 'y[0]'
        """
        family, box, single = self.member(name)
        if family in self.recursion.scores and not self.recursion.is_finite(self.recursion.dot(family).left.name):
            value = error = np.zeros([b - a for a, b in box])
        else:
            value, error = self._known_mean(family, box) or self._from_mixture(family, box, "expected")
        self._note(error, value, f"the mean of {name}")
        return self._answer(value, error, single, with_error)

    def _known_mean(self, family: str, box: Box) -> tuple[Array, Array] | None:
        if family in self.recursion.random:
            return None
        try:
            return self._members_of(self.recursion.mean(family), family, box)
        except NotCompiledError:
            return None

    def _members_of(self, result: Value, family: str, box: Box) -> tuple[Array, Array]:
        """Numbers and errors of the members in a box, of a value over the positions of a family."""
        declared = self.compiled.families[family]
        key = place(box, declared.ranges)
        sizes = dict(zip(self._positions(family), declared.shape, strict=True))
        axes = tuple(sizes)
        return broadcast(result.value, axes, sizes)[key], broadcast(result.error, axes, sizes)[key]

    @staticmethod
    def _answer(value: Array, error: Array, single: bool, with_error: bool) -> Any:
        if single:
            value, error = float(np.reshape(value, -1)[0]), float(np.reshape(error, -1)[0])  # type: ignore[assignment]
        return (value, error) if with_error else value

    def second_moment(self, first: str, second: str | None = None) -> Any:
        """E[Z^f Z^g], uncentred: what clause (ii) of Definition 1 propagates.

        Shapes    a `Covariance`; for a member such as 'x[0]' beside a family an array, for two members a number
        """
        second = first if second is None else second
        if (self._family(first), self._family(second)) != (first, second):
            found = self.second_moment(self._family(first), self._family(second))
            return self._entries(found, found.error, first, second)[0]
        moment = self.recursion.second(first, second)
        self._note(moment.error, moment.size, f"the second moment of {first} and {second}")
        return self._covariance(moment, first, second)

    def _family(self, name: str) -> str:
        return self.member(name)[0]

    def _covariance(self, moment: IndexedValues, first: str, second: str) -> Covariance:
        return Covariance(moment, self._positions(first), [f"{k}_" for k in self._positions(second)], self.budget)

    def cov(self, first: str, second: str | None = None, *, with_error: bool = False) -> Any:
        """Centred covariance of two families: of Z for vectors, of p-ring for scores, over both for outputs of scores.

        Shapes    a `Covariance`; np.asarray of it has the members of the first, then of the second.  For variables
                  that depend on scores, an array of that shape (and its error).  For two members such as 'y[0]' and
                  'y[1]' a number, for a member and a family an array
        Source    Sakai et al. 2025, Definition 1 (ii), (iv)
        """
        second = first if second is None else second
        one, two = self._family(first), self._family(second)
        if (one, two) != (first, second):
            found = self.cov(one, two)
            wrong = found.error if isinstance(found, Covariance) else self.cov(one, two, with_error=True)[1]
            value, error = self._entries(found, wrong, first, second)
            return (value, error) if with_error else value
        random = {first, second} & self.recursion.random
        numbers = {n for n in (first, second) if self.compiled.families[n].kind == "scalar"} - self.recursion.random
        scores = {first, second} & set(self.recursion.scores)
        if len(scores) == len({first, second}) and all(map(self._outputs.gaussian, scores)):
            moment = self.recursion.score(first, second)
        elif numbers or (scores and random != {first, second}):
            # averages are numbers, and scores are independent of every vector that no score reaches
            moment = IndexedValues((), self.recursion.pair_ranges(first, second))
        elif random:
            return self._averaged_cov(first, second, with_error)
        else:
            try:
                moment = self.recursion.centred(first, second)
            except NotCompiledError:
                return self._averaged_cov(first, second, with_error)
        self._note(moment.error, moment.size, f"the covariance of {first} and {second}")
        result = self._covariance(moment, first, second)
        return (result, np.full(result.shape, result.error)) if with_error else result

    def _entries(self, found: Any, error: Any, first: str, second: str) -> tuple[Any, Any]:
        """What two names mean, members or families, of the numbers of their families, with errors."""
        sides = [self.member(name) for name in (first, second)]
        if isinstance(found, Covariance) and all(single for *_, single in sides):
            value: Any = found.at(*([start for start, _ in box] for _, box, _ in sides))
        else:
            key: tuple[slice | int, ...] = ()
            for family, box, single in sides:
                where = place(box, self.compiled.families[family].ranges)
                key += tuple(part.start for part in where) if single else where
            value = np.asarray(found)[key]
            error = error if np.ndim(error) == 0 else error[key]
        if np.ndim(value) == 0:
            return float(value), float(error)
        return value, np.broadcast_to(error, np.shape(value))

    def _averaged_cov(self, first: str, second: str, with_error: bool) -> Any:
        """The covariance by averaging, the same numbers in both orders; variances are those of `var`."""
        one, two = sorted((first, second))
        if (one, two) not in self._cov:
            self._cov[one, two] = self._averaged_pair(one, two)
        members = len(self.compiled.families[one].shape)
        turned = (*range(members, self._cov[one, two][0].ndim), *range(members))
        value, error = (a.transpose(turned) if first > second else a for a in self._cov[one, two])
        self._note(error, value, f"the covariance of {first} and {second}")
        return (value.copy(), error.copy()) if with_error else value.copy()

    def _averaged_pair(self, first: str, second: str) -> tuple[Array, Array]:
        shapes = [self.compiled.families[name].shape for name in (first, second)]
        sizes = [math.prod(shape) for shape in shapes]
        known = [self._spread(name) for name in (first, second)]
        if first == second and sizes[0] == 1:
            value, error = known[0]
        else:
            value, error = self._outputs.cov(first, second, [variance for variance, _ in known])
        value, error = (np.array(a).reshape(sizes) for a in (value, error))
        error += ROUNDING * np.multiply.outer(*(self._root_mean_square(name) for name in (first, second)))
        if first == second:
            value, error = (value + value.T) / 2, (error + error.T) / 2
            np.fill_diagonal(value, known[0][0])
            np.fill_diagonal(error, known[0][1])
        for axis, (variance, wrong) in enumerate(known):  # a constant has no covariance with anything
            constant = (variance == 0) & (wrong == 0)
            place = (constant, slice(None)) if axis == 0 else (slice(None), constant)
            value[place] = error[place] = 0.0
        return value.reshape(shapes[0] + shapes[1]), error.reshape(shapes[0] + shapes[1])

    def _root_mean_square(self, name: str) -> Array:
        """Sizes of all members of a family, in C order."""
        mean = np.zeros(1) if name in self.recursion.scores else np.reshape(self.mean(name), -1)
        return np.asarray(np.sqrt(self._spread(name)[0] + np.square(mean)))

    def _spread(self, name: str) -> tuple[Array, Array]:
        """Variances of all members of a family, and their errors, in C order."""
        ranges = self.compiled.families[name].ranges
        value, error = self._moment_of(name, ranges, "moment", 2)
        return value.reshape(-1), error.reshape(-1)

    # -- one-dimensional laws -----------------------------------------------------------------------------------

    def _mixture(self, name: str, box: Box) -> Mixture:
        """Conditional means and variances of members over draws of p-ring: see `Outputs.mixture`."""
        family = self.compiled.families[name]
        if name in self._together and box != family.ranges:
            return self._mixture(name, family.ranges).member(place(box, family.ranges))
        if not math.prod(b - a for a, b in box):
            raise ProgramError(f"{name} has no members")
        if family.kind == "scalar" and name not in self.recursion.random | self.recursion.scores.keys():
            value, _ = self._members_of(self.recursion.mean(name), name, box)
            return Mixture.gaussian(value, np.zeros_like(value))
        return self._outputs.mixture(name, box)

    def _ask(self, name: str, method: str, order: int, with_error: bool) -> Any:
        family, box, single = self.member(name)
        value, error = self._moment_of(family, box, method, order)
        self._note(error, value, f"the moment of order {order} of {name}")
        return self._answer(value.copy(), error.copy(), single, with_error)

    def _moment_of(self, family: str, box: Box, method: str, order: int) -> tuple[Array, Array]:
        key = family, box, method, order
        if key not in self._moments:
            found = self._known_variance(family, box) if (method, order) == ("moment", 2) else None
            self._moments[key] = self._from_mixture(family, box, method, order) if found is None else found
        return self._moments[key]

    def _from_mixture(self, family: str, box: Box, method: str, *order: int) -> tuple[Array, Array]:
        mixture = self._mixture(family, box)
        value, error = getattr(mixture, method)(*order)
        if (method, *order) == ("moment", 2):  # values that agree to rounding are one value
            constant = value + error <= np.square(ROUNDING * mixture.expected()[0])
            value, error = np.where(constant, 0.0, value), np.where(constant, 0.0, error)
        return value, error

    def _known_variance(self, family: str, box: Box) -> tuple[Array, Array] | None:
        """The diagonal of the covariance of a vector that no score reaches; a linear one is an exact average too."""
        if family in self.recursion.random or self.compiled.families[family].kind != "vector":
            return None
        if self.is_linear(family):
            return None
        try:
            moment = self.recursion.centred(family, family, self.recursion.equal(family))
        except NotCompiledError:
            return None
        grids = np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij")
        shape = tuple(b - a for a, b in box)
        found = moment.at({f"{k}{copy}": grid for k, grid in enumerate(grids) for copy in ("", "_")})
        return np.broadcast_to(found.value, shape).copy(), np.broadcast_to(found.error, shape).copy()

    def _knows(self, ask: str, name: str) -> bool:
        """Whether the answer to "mean", "var", "kurtosis" or "cov" of a variable is at hand from questions before."""
        if ask == "cov":
            return (name, name) in self._cov
        family, box, _ = self.member(name)
        keys = {"var": ("moment", 2), "kurtosis": ("standardised", 4)}
        if ask == "mean":
            return self._outputs.knows(family, box)
        return (family, box, *keys[ask]) in self._moments

    def moment(self, name: str | Sequence[str], order: Any, *, with_error: bool = False) -> Any:
        """Central moment of a member such as 'y[0]', or of all members of a family; mixed moments of several members.

        Shapes    one name and order, or d names and d orders: E of the product of (Y_k - E Y_k)**order_k
        Raises    AccuracyError when the accuracy of the law cannot be met
        """
        if not isinstance(name, str):
            return self._mixed_moment(name, order, with_error)
        return self._ask(name, "moment", check_order(order), with_error)

    def _mixed_moment(self, names: Sequence[str], orders: Any, with_error: bool) -> Any:
        members = self._named(names)
        powers = list(orders) if np.ndim(orders) == 1 else []
        if len(powers) != len(members) or not all(isinstance(k, int | np.integer) and k >= 0 for k in powers):
            raise ProgramError(f"{len(members)} variables need as many orders, whole numbers, not {orders!r}")
        if sum(powers) > 16:
            raise ProgramError(f"mixed moments go up to a total order of 16, not {sum(powers)}")
        needed = {name: int(sum(k for n, k in zip(names, powers, strict=True) if n == name)) for name in names}
        needed = {name: power for name, power in needed.items() if power}
        if len(needed) == 1:
            return self.moment(*next(iter(needed.items())), with_error=with_error)
        if self._not_joint(members):
            value, error = self._mixed_moment_of_functions(needed)
        else:
            value, error = self._joint(names).moment([int(k) for k in powers])
        self._note(error, value, f"the mixed moment of {', '.join(names)}")
        return (value, error) if with_error else value

    def _mixed_moment_of_functions(self, powers: Mapping[str, int]) -> tuple[float, float]:
        """E of the product of (Y_k - E Y_k)**powers_k for any variables: the expectation of that polynomial.

        What the errors of the means leave it is what its derivatives make of them.
        """
        means = {name: [float(part) for part in self.mean(name, with_error=True)] for name in powers}

        def expected(left: Mapping[str, int]) -> tuple[float, float]:
            factors = [f"({name} - ({means[name][0]!r}))**{power}" for name, power in left.items() if power]
            value, error = self.expectation(" * ".join(factors), with_error=True) if factors else (1.0, 0.0)
            return float(value), float(error)

        value, error = expected(powers)
        for name, power in powers.items():
            if means[name][1]:
                slope, off = expected({**powers, name: power - 1})
                error += means[name][1] * power * (abs(slope) + off)
        return value, error

    def var(self, name: str, *, with_error: bool = False) -> Any:
        """Variance."""
        return self.moment(name, 2, with_error=with_error)

    def std(self, name: str, *, with_error: bool = False) -> Any:
        """Standard deviation, the square root of the variance, with the error that the variance leaves it."""
        value, error = (np.asarray(part) for part in self.var(name, with_error=True))
        root = np.sqrt(np.maximum(value, 0.0))
        off = np.maximum(np.sqrt(np.maximum(value + error, 0.0)) - root, root - np.sqrt(np.maximum(value - error, 0.0)))
        return self._answer(root, off, not root.shape, with_error)

    def kurtosis(self, name: str, *, with_error: bool = False) -> Any:
        """Fourth central moment over squared variance; a Gaussian has 3, a constant none (nan)."""
        return self._ask(name, "standardised", 4, with_error)

    def _one(self, name: str) -> tuple[str, Box]:
        family, box, single = self.member(name)
        if not single:
            raise ProgramError(
                f"{name} is a family; name one member, such as {family}[{', '.join(str(a) for a, _ in box)}]"
            )
        return family, box

    def averaged(self, name: str) -> Mixture:
        """The law of one member as an average of Gaussians over p-ring: `densities` of all draws and in each set.

        Raises    NotCompiledError where the density is an estimate from draws
        """
        curve = self._curve(name)
        if curve.smoothed:
            raise NotCompiledError(f"{name} is not Gaussian given the scores: its density is an estimate from draws")
        return curve

    def _curve(self, name: str) -> Mixture:
        """What answers for density and distribution function of one member."""
        family, box = self._one(name)
        if (family, box) not in self._curves:
            self._curves[family, box] = self._mixture(family, box).member((0,) * len(box))
        return self._curves[family, box]

    def density_method(self, name: str) -> str:
        """How the density of a member is found.

        'conditional': the conditional Gaussian averaged over p-ring; 'kernel': an estimate from draws, for variables
        that are not linear in the vectors.
        """
        return "kernel" if self._curve(name).smoothed else "conditional"

    def density(self, name: str | Sequence[str], grid: Any, *, with_error: bool = False) -> Any:
        """Density of one member at the grid points, or joint density of several.

        Shapes    one name, grid (...) -> (...); d names, grid (..., d) -> (...)
        Raises    ProgramError for several variables that have no joint density
        """
        return self._grid(name, "density", grid, with_error)

    def cdf(self, name: str | Sequence[str], grid: Any, *, with_error: bool = False) -> Any:
        """Distribution function of one member at the grid points, or of several jointly.

        Shapes    as for `density`
        """
        return self._grid(name, "cdf", grid, with_error)

    def _grid(self, name: str | Sequence[str], method: str, grid: Any, with_error: bool) -> Any:
        points = check_points("points of a grid", grid)
        if isinstance(name, str):
            value, error = getattr(self._curve(name), method)(points.reshape(-1))
            value, error = value.reshape(points.shape), error.reshape(points.shape)
        else:
            joint = self._joint(name)
            if points.shape[-1:] != (joint.size,):
                raise ProgramError(f"{joint.size} variables need points (..., {joint.size}), not {points.shape}")
            try:
                value, error = getattr(joint, method)(points)
            except np.linalg.LinAlgError:
                raise ProgramError(
                    f"{', '.join(name)}: linearly dependent given some scores, so that there is no joint density"
                ) from None
        self._note(error, value, f"the {method} of {name if isinstance(name, str) else ', '.join(name)}")
        return (value, error) if with_error else value

    def _named(self, names: Any) -> tuple[tuple[str, Box], ...]:
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            raise ProgramError(f'a name such as "y[0]", or a list of at least one, is needed here, not {names!r}')
        return tuple(self._one(name) for name in names)

    def _joint(self, names: Sequence[str]) -> Joint:
        members = self._named(names)
        if members not in self._joints:
            reason = self._not_joint(members)
            if reason:
                raise ProgramError(reason)
            self._joints[members] = self._outputs.joint(members)
        return self._joints[members]

    def _not_joint(self, members: Sequence[tuple[str, Box]]) -> str:
        """Why variables are not Gaussian together, given what their law is averaged over; empty if they are."""
        for family, _ in members:
            if family not in self.recursion.scores and not self.is_linear(family):
                return f"{family} is not linear in the vectors: joint laws need variables that are"
        if len({family in self.recursion.scores for family, _ in members}) > 1 and any(
            family in self.recursion.random and family not in self.recursion.scores for family, _ in members
        ):
            return "scores and vectors that depend on them have no joint density here; draw them with law.sample"
        return ""

    def quantile(self, name: str, q: Any) -> Array:
        """Quantiles of one member, where the distribution function passes them, to full precision."""
        levels = check_levels(q)
        curve = self._curve(name)
        centre, reach = curve.spread[0], 1.001 * curve.reach
        found = crossing(lambda y: curve.cdf(y)[0], levels.reshape(-1), centre, reach)
        return np.asarray(found).reshape(levels.shape)  # at an atom the distribution function jumps there

    # -- draws --------------------------------------------------------------------------------------------------

    def sample(
        self, size: int, seed: int = 0, keep: Sequence[str] = (), averages: Mapping[str, str | Expr] | None = None,
        dtype: str = "float64",
    ) -> Samples:  # fmt: skip
        """Draws of (Z, p-ring): outputs, scores, and the variables named by `keep`.

        Scores that `keep` does not name take no memory until they are read: then they are drawn again from the same
        streams.  Variables do not depend on how many draws there are, nor on which are read.

        `averages` names functions psi as for `Program.run`; the draws of their limits, E[psi(Z) | p-ring], belong to
        the same p-ring as the outputs, which are the same with and without averages.

        `dtype` "float32" draws large programs in about half the time, into half the memory: the normals of the same
        streams, rounded, so that draws are those of "float64" but for rounding, of about 1e-7 of the numbers that are
        added up; factors of covariances, averages, and all that stands behind several layers of scores are worked out
        in double precision, and only then rounded.

        Shapes    each (size, *members), as for finite width with one coordinate
        Accuracy  each draw of an average has an error of its own, the largest of which enters `error`: rounding for
                  functions of one Gaussian variable, else what Gauss-Hermite or quasi-Monte Carlo reach
        Raises    NotCompiledError for averages this version does not compile
        Source    Sakai et al. 2025, Theorem 1
        """
        if not averages:
            return self._sample(size, seed, keep, (), dtype)
        added, law = self._extended(averages)
        with _expected(added):
            draws = law._sample(size, seed, keep, tuple(added.families.values()), dtype)
        self._note(law.error)
        return added.separate(draws)

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

    def of(self, netsor: Netsor, expanded: bool | None = None) -> NumericLaw:
        """The law of another program, with the same settings."""
        return NumericLaw(
            netsor,
            grade=self.grade,
            accuracy=self.accuracy,
            max_memory=self._max_memory,
            seed=self._seed,
            expanded=self.recursion.expanded if expanded is None else expanded,
            assumed=self.assumed,
        )

    def expectation(self, psi: str | Expr, *, with_error: bool = False) -> Any:
        """E[psi(Z)] of a function of vectors and scores, such as 'tanh(y[0])**2 * y[1]': the mean of Theorem 1's limit.

        Shapes    over the free indices of psi, or a number
        Accuracy  the average over p-ring of E[psi | p-ring]: see `Law`, and `sample` for the latter
        """
        added, law = self._extended({"expectation": psi})
        with _expected(added):
            value, error = law._expectation(added.families["expectation"])
        self._note(error, value, f"the expectation of {psi}")
        return self._answer(value, error, not value.shape, with_error)

    def _expectation(self, name: str) -> tuple[Array, Array]:
        box = self.compiled.families[name].ranges
        if name not in self.recursion.random:
            return self._members_of(self._number(name), name, box)
        return self._outputs.expectation(name, box)

    def _number(self, name: str) -> Value:
        """The limit of a scalar that no score reaches."""
        if name not in self._numbers:
            self._numbers[name] = self.recursion.average(name)
        return self._numbers[name]

    def number(self, name: str) -> Array:
        """Limits of a family of scalars that no score reaches.

        Shapes    (1, *members)
        """
        return self._members_of(self._number(name), name, self.compiled.families[name].ranges)[0][None]

    def _sample(self, size: int, seed: int, keep: Sequence[str], added: Sequence[str], dtype: str) -> Samples:
        check_precision(dtype)
        keep = list(map(self._family, keep))
        held = dict.fromkeys([*self.outputs, *keep])
        scores = dict.fromkeys(self.scores)
        held_now = (*held, *added, *(scores if added else ()))
        return self._draw(size, seed, (*(held | scores), *added), held_now, dtype)

    def _draw(self, size: int, seed: int, names: Sequence[str], held: Sequence[str], dtype: str = "float64") -> Samples:
        started = time.perf_counter()
        checked = check_count("size", size), check_count("seed", seed, 0)
        draws = Draws(self.recursion, self.budget, self.number, *checked, names, held, dtype)
        self._note(draws.sampler.inner)
        return Samples(self.netsor, draws, int(size), int(seed), "limit", None, 1, time.perf_counter() - started)

    def given(self, scores: Mapping[str, Any]) -> ConditionalLaw:
        """The Gaussian law of the outputs given scores: {"p": values}, leading axes of the values are draws."""
        as_written = self.netsor.scores != self.compiled.scores and set(scores) <= set(self.netsor.scores)
        law = self.of(self.netsor, expanded=False) if as_written else self

        def extended(psi: str | Expr) -> tuple[NumericRecursion, str]:
            added, larger = law._extended({"expectation": psi})
            return larger.recursion, added.families["expectation"]

        return ConditionalLaw(law.recursion, scores, law.is_linear, extended, law.budget)


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


def check_order(order: Any) -> int:
    """The order of a moment; raise ProgramError unless it is a whole number from 1 to 64."""
    if isinstance(order, bool) or not hasattr(order, "__index__") or not 1 <= order <= 64:
        raise ProgramError(f"the order of a moment is a whole number from 1 to 64, not {order!r}")
    return int(order)


def check_levels(q: Any) -> NDArray[np.float64]:
    """Levels of quantiles; raise ProgramError unless they lie between 0 and 1."""
    levels = check_points("quantile levels", q)
    if not np.all((levels > 0) & (levels < 1)):
        raise ProgramError("quantile levels must lie strictly between 0 and 1")
    return levels


def check_points(what: str, values: Any) -> NDArray[np.float64]:
    """An array of real numbers, possibly infinite; raise ProgramError for anything else."""
    try:
        points = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ProgramError(f"{what} must be real numbers, not {values!r}") from None
    if np.isnan(points).any():
        raise ProgramError(f"{what} must be real numbers, and some are nan")
    return points

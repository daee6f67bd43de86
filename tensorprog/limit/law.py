"""`Law`: the limit of a program, to be asked for covariances, draws, densities and moments."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import BATCH, COORDINATE, Open, broadcast
from tensorprog.averages import Averages, with_averages
from tensorprog.errors import MemoryLimitError, NotCompiledError, Problem, ProgramError, did_you_mean
from tensorprog.expr import Expr
from tensorprog.files import whole
from tensorprog.gaussian.estimate import Estimate
from tensorprog.ir import Dot, Netsor
from tensorprog.limit.averages import ConditionalAverage
from tensorprog.limit.averaging import REPLICATES, converge
from tensorprog.limit.conditional import ConditionalGaussian
from tensorprog.limit.covariance import Compiler
from tensorprog.limit.given import Conditional
from tensorprog.limit.mixture import Mixture
from tensorprog.limit.moments import Moment, Value
from tensorprog.limit.parts import position_names
from tensorprog.limit.sampler import Box, Sampler
from tensorprog.limit.structured import Covariance
from tensorprog.parse import Names, parse_target
from tensorprog.samples import Samples

__all__ = ["Law"]

Array = NDArray[Any]
CHUNK_NUMBERS = 1 << 18  # numbers held at once while draws are evaluated
BLOCK = 1024  # draws per random stream in `sample`, at most


class Law:
    """The infinite-width limit of a program: Definition 1, with a sampler for (Z, p-ring).

    Vectors stand for a typical coordinate Z, scores for p-ring.  Given p-ring, outputs that are linear in the vectors
    are Gaussian; their density and moments are averages of the conditional Gaussian over p-ring.

    Accuracy  every number has an error: a bound where it is computed by closed form or quadrature, three standard
              errors where quasi-Monte Carlo averages over p-ring
    Source    Sakai, Karakida & Imaizumi 2025 (arXiv 2506.00846), Definition 1, Theorem 1, Corollary 2
    """

    def __init__(
        self,
        netsor: Netsor,
        *,
        grade: str = "",
        accuracy: float | None = None,
        max_memory: int = 1 << 30,
        seed: int = 0,
    ) -> None:
        self.netsor, self.grade, self.accuracy = netsor, grade, accuracy
        self.compiler = Compiler(netsor)
        self._max_memory, self._seed = max_memory, seed
        self._mixtures: dict[tuple[str, Box], Mixture] = {}
        self._cov: dict[tuple[str, str], tuple[Array, Array]] = {}
        self._numbers: dict[str, Value] = {}
        self._larger: dict[Any, tuple[Averages, Law]] = {}
        self.error = 0.0  # the largest error of the numbers given so far

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.netsor.outputs

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores that are random in the limit."""
        return tuple(
            dict.fromkeys(s.target.name for s in self.netsor.body if isinstance(s, Dot) and s.scale == "n**-0.5")
        )

    def __repr__(self) -> str:
        return f"Law({self.netsor.name}, outputs={', '.join(self.outputs)}, scores={', '.join(self.scores) or 'none'})"

    def latex(self) -> str:
        """The derivation of the limit, line by line, in formulas: what `SymbolicLaw.latex` gives."""
        from tensorprog.limit.symbolic import SymbolicLaw

        return SymbolicLaw(self.netsor, grade=self.grade).latex()

    # -- names --------------------------------------------------------------------------------------------------

    def member(self, text: str) -> tuple[str, Box, bool]:
        """Family, box of members, and whether one member is meant."""
        names = Names(self.netsor.scalars, frozenset())
        reference = parse_target(text, names)
        family = self.netsor.families.get(reference.name)
        if family is None or family.kind == "weight":
            known = [name for name, f in self.netsor.families.items() if f.kind != "weight"]
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
        return tuple(position_names(self.netsor, name))

    def is_linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the scores, so conditionally Gaussian."""
        if self.netsor.families[name].kind == "scalar":
            return False
        return ConditionalGaussian.linear(self.compiler, name)

    def _note(self, error: Any) -> None:
        self.error = max(self.error, float(np.max(error, initial=0.0)))

    # -- means and covariances ----------------------------------------------------------------------------------

    def mean(self, name: str, with_error: bool = False) -> Any:
        """E[Z].

        Shapes    (*members), or a number for one member such as 'y[0]'
        """
        family, box, single = self.member(name)
        if family in self.scores:
            value = error = np.zeros([b - a for a, b in box])
        else:
            value, error = self._known_mean(family, box) or self._averaged_mean(family, box)
        self._note(error)
        return self._answer(value, error, single, with_error)

    def _known_mean(self, family: str, box: Box) -> tuple[Array, Array] | None:
        if family in self.compiler.random:
            return None
        try:
            return self._mean_of(family, box)
        except NotCompiledError:
            return None

    def _averaged_mean(self, family: str, box: Box) -> tuple[Array, Array]:
        mixture = self._mixture(family, box)
        return mixture.estimate(mixture.mean)

    def _mean_of(self, family: str, box: Box) -> tuple[Array, Array]:
        """Mean and error of members of a family that no score reaches."""
        return self._members_of(self.compiler.mean(family), family, box)

    def _members_of(self, result: Value, family: str, box: Box) -> tuple[Array, Array]:
        declared = self.netsor.families[family]
        key = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(box, declared.ranges, strict=True))
        sizes = dict(zip(self._positions(family), declared.shape, strict=True))
        axes = tuple(sizes)
        return broadcast(result.value, axes, sizes)[key], broadcast(result.error, axes, sizes)[key]

    @staticmethod
    def _answer(value: Array, error: Array, single: bool, with_error: bool) -> Any:
        if single:
            value, error = float(np.reshape(value, -1)[0]), float(np.reshape(error, -1)[0])  # type: ignore[assignment]
        return (value, error) if with_error else value

    def second_moment(self, first: str, second: str | None = None) -> Covariance:
        """E[Z^f Z^g], uncentred: what clause (ii) of Definition 1 propagates."""
        second = first if second is None else second
        for name in (first, second):
            self._family(name)
        moment = self.compiler.second(first, second)
        self._note(moment.error)
        return self._covariance(moment, first, second)

    def _family(self, name: str) -> None:
        family, _, single = self.member(name)
        if family != name or (single and self.netsor.families[family].ranges):
            raise ProgramError(f"{name}: name a whole family, and read entries with .at(I, J)")

    def _covariance(self, moment: Moment, first: str, second: str) -> Covariance:
        return Covariance(moment, self._positions(first), [f"{k}_" for k in self._positions(second)], self._max_memory)

    def cov(self, first: str, second: str | None = None, with_error: bool = False) -> Any:
        """Centred covariance of two families: of Z for vectors, of p-ring for scores, over both for outputs of scores.

        Shapes    a `Covariance`; np.asarray of it has the members of the first, then of the second.  For variables
                  that depend on scores, an array of that shape (and its error)
        Source    Sakai et al. 2025, Definition 1 (ii), (iv)
        """
        second = first if second is None else second
        for name in (first, second):
            self._family(name)
        random = {first, second} & self.compiler.random
        numbers = {n for n in (first, second) if self.netsor.families[n].kind == "scalar"} - self.compiler.random
        if first in self.scores and second in self.scores:
            moment = self.compiler.score(first, second)
        elif numbers or ({first, second} & set(self.scores) and len(random) == 1 and first != second):
            # averages are numbers, and scores are independent of every vector that no score reaches
            moment = Moment((), self.compiler.pair_ranges(first, second))
        elif random:
            return self._averaged_cov(first, second, with_error)
        else:
            try:
                moment = self.compiler.centred(first, second)
            except NotCompiledError:
                return self._averaged_cov(first, second, with_error)
        self._note(moment.error)
        result = self._covariance(moment, first, second)
        return (result, np.full(result.shape, result.error)) if with_error else result

    def _averaged_cov(self, first: str, second: str, with_error: bool) -> Any:
        if (first, second) not in self._cov:
            self._cov[first, second] = self._random_cov(first, second)
        value, error = self._cov[first, second]
        self._note(error)
        return (value.copy(), error.copy()) if with_error else value.copy()

    def _random_cov(self, first: str, second: str) -> tuple[Array, Array]:
        """Covariance by averaging over p-ring: E Cov(. | p) + Cov of the conditional means."""
        shape = (*self.netsor.families[first].shape, *self.netsor.families[second].shape)
        if 64 * math.prod(shape) > self._max_memory:
            raise MemoryLimitError(
                f"the covariance of {first} and {second} has shape {shape}; it would not fit in max_memory"
            )
        gaussian = first == second and self.is_linear(first)
        boxes = {name: self.netsor.families[name].ranges for name in (first, second)}
        sampler = Sampler(self.compiler, boxes, vectors=not gaussian)
        conditional = ConditionalGaussian(self.compiler, first, boxes[first]) if gaussian else None
        relative = conditional.error if conditional is not None else 0.0
        dim = sampler.score_dim if gaussian else sampler.dim
        axes = (*(str(k) for k in range(len(boxes[first]))), *(f"{k}_" for k in range(len(boxes[second]))))
        ranges = self.compiler.pair_ranges(first, second)
        sizes = {name: ranges[name][1] - ranges[name][0] for name in axes}
        width = max(math.prod(shape), sum(math.prod(b - a for a, b in box) for box in sampler.demand.values()))

        def replicate(points: Array) -> tuple[Array, Array, Array]:
            total: Any = 0.0
            one: Any = 0.0
            two: Any = 0.0
            step = max(1, CHUNK_NUMBERS // max(1, width))
            for start in range(0, len(points), step):
                part = points[start : start + step]
                values = sampler.draw(part)
                count = len(part)
                if conditional is not None:
                    m = broadcast(
                        conditional.mean(sampler, values), (BATCH, *axes[: len(axes) // 2]), sizes | {BATCH: count}
                    )
                    c = broadcast(conditional.cov(sampler, values, False), (BATCH, *axes), sizes | {BATCH: count})
                    left = right = m.reshape(count, -1)
                    total = total + c.sum(axis=0)
                else:
                    left = self._plain(sampler.wanted_value(first, values), count).reshape(count, -1)
                    right = self._plain(sampler.wanted_value(second, values), count).reshape(count, -1)
                total = total + (left.T @ right).reshape(shape)
                one, two = one + left.sum(axis=0), two + right.sum(axis=0)
            return total / len(points), one / len(points), two / len(points)

        def finish(results: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array]:
            seconds = np.stack([r[0] for r in results])
            ones, twos = np.stack([r[1] for r in results]), np.stack([r[2] for r in results])
            m1, m2 = ones.mean(axis=0), twos.mean(axis=0)
            cov = seconds - np.multiply.outer(m1, m2).reshape(shape)
            # linearised in the means, which are estimates as well
            moves = (ones - m1)[:, :, None] * m2 + m1[:, None] * (twos - m2)[:, None, :]
            spread = seconds - moves.reshape(len(results), *shape)
            error = 3 * spread.std(axis=0, ddof=1) / math.sqrt(len(results)) if len(results) > 1 else np.zeros(shape)
            return cov.mean(axis=0), error + relative * np.abs(cov.mean(axis=0))

        return converge(
            dim, replicate, finish, f"the covariance of {first} and {second}", accuracy=self.accuracy, seed=self._seed
        )

    @staticmethod
    def _plain(value: Open, count: int) -> Array:
        data = value.data[..., 0] if COORDINATE in value.axes else value.data
        return np.broadcast_to(data, (count, *data.shape[1:]))

    # -- one-dimensional laws -----------------------------------------------------------------------------------

    def _mixture(self, name: str, box: Box) -> Mixture:
        """Conditional means and variances of members over draws of p-ring, as many as the accuracy asks for."""
        if (name, box) in self._mixtures:
            return self._mixtures[name, box]
        if name in self.scores:
            self._mixtures[name, box] = self._score_mixture(name, box)
            return self._mixtures[name, box]
        if self.netsor.families[name].kind == "scalar" and name not in self.compiler.random:  # a number
            value, _ = self._mean_of(name, box)
            self._mixtures[name, box] = Mixture(value[None, None], np.zeros_like(value)[None, None])
            return self._mixtures[name, box]
        linear = self.is_linear(name)
        sampler = Sampler(self.compiler, {name: box}, vectors=not linear)
        conditional = ConditionalGaussian(self.compiler, name, box) if linear else None
        dim = sampler.score_dim if linear else sampler.dim
        members = tuple(b - a for a, b in box)
        width = sum(math.prod(b - a for a, b in other) for other in sampler.demand.values())
        relative = conditional.error if conditional is not None else 0.0
        axes = tuple(str(k) for k in range(len(box)))
        sizes = dict(zip(axes, members, strict=True))

        def replicate(points: Array) -> tuple[Array, Array]:
            means, variances = [], []
            step = max(1, CHUNK_NUMBERS // max(1, width))
            for start in range(0, len(points), step):
                part = points[start : start + step]
                values = sampler.draw(part)
                count = len(part)
                full = sizes | {BATCH: count}
                if conditional is not None:
                    means.append(broadcast(conditional.mean(sampler, values), (BATCH, *axes), full))
                    variances.append(broadcast(conditional.cov(sampler, values, True), (BATCH, *axes), full))
                else:
                    data = self._plain(sampler.wanted_value(name, values), count)
                    means.append(data)
                    variances.append(np.zeros_like(data))
            return np.concatenate(means), np.concatenate(variances)

        def build(results: Sequence[tuple[Array, Array]]) -> Mixture:
            return Mixture(np.stack([r[0] for r in results]), np.stack([r[1] for r in results]), relative, not linear)

        kept: list[Mixture] = []

        def finish(results: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
            mixture = build(results)
            kept[:] = [mixture]
            return mixture.standardised(4)

        if not np.prod(members):
            raise ProgramError(f"{name} has no members")
        # mean and variance of every draw are kept, twice while they are put together
        most = self._max_memory // (32 * REPLICATES * math.prod(members))
        what = f"the law of {name}"
        converge(dim, replicate, finish, what, accuracy=self.accuracy, seed=self._seed, most=most)
        self._mixtures[name, box] = kept[0]
        return kept[0]

    def _score_mixture(self, name: str, box: Box) -> Mixture:
        """Scores are Gaussian: one draw with their variances."""
        moment = self.compiler.score(name, name)
        grids = np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij", sparse=True)
        positions = {str(k): grid for k, grid in enumerate(grids)} | {f"{k}_": grid for k, grid in enumerate(grids)}
        variance = moment.at(positions)
        shape = (1, 1, *(b - a for a, b in box))
        scale = float(np.max(variance.value, initial=1e-300))
        return Mixture(np.zeros(shape), np.broadcast_to(variance.value, shape[2:]).reshape(shape), moment.error / scale)

    def _ask(self, name: str, method: str, order: int, with_error: bool) -> Any:
        family, box, single = self.member(name)
        found = self._integrated(family, box, method, order)
        value, error = getattr(self._mixture(family, box), method)(order) if found is None else found
        self._note(error)
        return self._answer(value, error, single, with_error)

    def _integrated(self, family: str, box: Box, method: str, order: int) -> tuple[Array, Array] | None:
        """Central moments of a nonlinear function of one Gaussian, by integration instead of draws."""
        if order > 8 or family in self.compiler.random or self.netsor.families[family].kind != "vector":
            return None
        if self.is_linear(family):
            return None
        raw = [self.compiler.raw_moment(family, k) for k in range(1, max(order, 2) + 1)]
        if any(value is None or not np.isfinite(value.estimate.error).all() for value in raw):
            return None
        pairs = [(np.ones(()), np.zeros(())), *(self._members_of(v, family, box) for v in raw if v is not None)]
        moments = [Estimate(np.asarray(value), np.asarray(error)) for value, error in pairs]

        def central(k: int) -> Estimate:
            total = Estimate.exact(0.0)
            for j in range(k + 1):
                term = moments[j] * float(math.comb(k, j) * (-1) ** (k - j))
                for _ in range(k - j):
                    term = term * moments[1]
                total = total + term
            return total

        top, variance = central(order), central(2)
        if method == "moment":
            return top.value, top.error
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.where(variance.value > variance.error, top.value / variance.value ** (order / 2), np.nan)
            relative = top.error / np.abs(top.value) + (order / 2) * variance.error / variance.value
        return value, np.where(np.isnan(value), 0.0, np.abs(value) * relative)

    def moment(self, name: str, order: int, with_error: bool = False) -> Any:
        """Central moment of a member such as 'y[0]', or of all members of a family.

        Raises    AccuracyError when the accuracy of the law cannot be met
        """
        if not hasattr(order, "__index__") or order < 1 or order > 64:
            raise ProgramError(f"the order of a moment is a whole number from 1 to 64, not {order!r}")
        return self._ask(name, "moment", int(order), with_error)

    def var(self, name: str, with_error: bool = False) -> Any:
        """Variance."""
        return self.moment(name, 2, with_error)

    def kurtosis(self, name: str, with_error: bool = False) -> Any:
        """Fourth central moment over squared variance; a Gaussian has 3."""
        return self._ask(name, "standardised", 4, with_error)

    def _one(self, name: str) -> Mixture:
        family, box, single = self.member(name)
        if not single:
            raise ProgramError(
                f"{name} is a family; name one member, such as {family}[{', '.join(str(a) for a, _ in box)}]"
            )
        mixture = self._mixture(family, box)
        shape = mixture.mean.shape[:2]
        return Mixture(
            mixture.mean.reshape(shape), mixture.var.reshape(shape), mixture.relative_error, mixture.smoothed
        )

    def density_method(self, name: str) -> str:
        """'conditional' where densities are averaged conditional Gaussians, 'kernel' where kernel estimates."""
        return "kernel" if self._one(name).smoothed else "conditional"

    def density(self, name: str, grid: Any, with_error: bool = False) -> Any:
        """Density of one member at the grid points, the conditional Gaussian averaged over p-ring.

        Shapes    grid (...) -> (...)
        """
        return self._grid(name, "density", grid, with_error)

    def cdf(self, name: str, grid: Any, with_error: bool = False) -> Any:
        """Distribution function of one member at the grid points."""
        return self._grid(name, "cdf", grid, with_error)

    def _grid(self, name: str, method: str, grid: Any, with_error: bool) -> Any:
        points = np.asarray(grid, dtype=np.float64)
        value, error = getattr(self._one(name), method)(points.reshape(-1))
        value, error = value.reshape(points.shape), error.reshape(points.shape)
        return (value, error) if with_error else value

    def quantile(self, name: str, q: Any) -> Array:
        """Quantiles of one member, by bisection of the distribution function to full precision."""
        levels = np.asarray(q, dtype=np.float64)
        if not np.all((levels > 0) & (levels < 1)):
            raise ProgramError("quantile levels must lie strictly between 0 and 1")
        mixture = self._one(name)
        spread = float(np.sqrt(mixture.var.max() + mixture.mean.var())) * 45
        centre = float(mixture.mean.mean())
        low = np.full(levels.size, centre - spread)
        high = np.full(levels.size, centre + spread)
        for _ in range(70):
            middle = (low + high) / 2
            below = mixture.cdf(middle)[0] < levels.reshape(-1)
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if np.all(high - low <= 4e-16 * np.maximum(np.abs(low), spread * 1e-3)):
                break
        return np.asarray((low + high) / 2).reshape(levels.shape)

    # -- draws --------------------------------------------------------------------------------------------------

    def sample(
        self, size: int, seed: int = 0, keep: Sequence[str] = (), averages: Mapping[str, str | Expr] | None = None
    ) -> Samples:
        """Draws of (Z, p-ring): outputs, scores, and the variables named by `keep`.

        `averages` names functions psi as for `Program.run`; the draws of their limits, E[psi(Z) | p-ring], belong to
        the same p-ring as the outputs, which are the same with and without averages.

        Shapes    each (size, *members), as for finite width with one coordinate
        Accuracy  each draw of an average has an error of its own, the largest of which enters `error`: rounding for
                  functions of one Gaussian variable, else what Gauss-Hermite or quasi-Monte Carlo reach
        Raises    NotCompiledError for averages this version does not compile
        Source    Sakai et al. 2025, Theorem 1
        """
        if not averages:
            return self._sample(size, seed, keep, ())
        added, law = self._extended(averages)
        with _expected(added):
            draws = law._sample(size, seed, keep, tuple(added.families.values()))
        self._note(law.error)
        return _finite(added.separate(draws))

    def averages(self, averages: Mapping[str, str | Expr], size: int, seed: int = 0) -> Mapping[str, Array]:
        """Draws of averages alone, which read few of the scores: {"m": "tanh(y[0])**2"} -> draws of E[psi | p-ring].

        Shapes    name -> (size, *members)
        Accuracy  as for `sample`
        """
        added, law = self._extended(averages)
        with _expected(added):
            draws = law._draw(size, seed, tuple(added.families.values()))
        self._note(law.error)
        return _finite(added.separate(draws)).averages

    def _extended(self, averages: Mapping[str, str | Expr]) -> tuple[Averages, Law]:
        """The program with the statements of averages, and its law."""
        added = with_averages(self.netsor, averages)
        key = tuple(added.psi.items()), tuple(str(s) for s in added.netsor.body[len(self.netsor.body) :])
        if key not in self._larger:
            law = Law(
                added.netsor,
                grade=self.grade,
                accuracy=self.accuracy,
                max_memory=self._max_memory,
                seed=self._seed,
            )
            self._larger[key] = added, law
        return self._larger[key]

    def expectation(self, psi: str | Expr, with_error: bool = False) -> Any:
        """E[psi(Z)] of a function of vectors and scores, such as 'tanh(y[0])**2 * y[1]': the mean of Theorem 1's limit.

        Shapes    over the free indices of psi, or a number
        Accuracy  the average over p-ring of E[psi | p-ring]: see `Law`, and `sample` for the latter
        """
        added, law = self._extended({"expectation": psi})
        with _expected(added):
            value, error = law._expectation(added.families["expectation"])
        self._note(error)
        return self._answer(value, error, not value.shape, with_error)

    def _expectation(self, name: str) -> tuple[Array, Array]:
        box = self.netsor.families[name].ranges
        if name not in self.compiler.random:
            value = self._number(name)
            axes = self._positions(name)
            sizes = dict(zip(axes, self.netsor.families[name].shape, strict=True))
            return broadcast(value.value, axes, sizes), broadcast(value.error, axes, sizes)
        # in one variable E[psi | p-ring] costs little; in several it is quicker to average over all variables at once
        average = ConditionalAverage(self.compiler, name, box)
        statement = self.netsor.body[self.netsor.families[name].statements[0]]
        assert isinstance(statement, Dot)
        read = name if average.quick else statement.left.name
        sampler = Sampler(self.compiler, {read: box}, vectors=not average.quick)
        width = sum(math.prod(b - a for a, b in other) for other in sampler.demand.values())

        def replicate(points: Array) -> Array:
            total: Any = 0.0
            step = max(1, CHUNK_NUMBERS // max(1, width))
            for start in range(0, len(points), step):
                part = points[start : start + step]
                total = total + self._plain(sampler.wanted_value(read, sampler.draw(part)), len(part)).sum(axis=0)
            return np.asarray(total / len(points))

        def finish(results: Sequence[Array]) -> tuple[Array, Array]:
            values = np.stack(results)
            spread = values.std(axis=0, ddof=1) if len(results) > 1 else np.zeros(values.shape[1:])
            inner = max((other.error for other in sampler.averages.values()), default=0.0)
            return values.mean(axis=0), 3 * spread / math.sqrt(len(results)) + inner

        what = "the expectation"
        return converge(sampler.dim, replicate, finish, what, accuracy=self.accuracy, seed=self._seed)

    def _number(self, name: str) -> Value:
        """The limit of a scalar that no score reaches."""
        if name not in self._numbers:
            try:
                self._numbers[name] = self.compiler.average(name)
            except NotCompiledError:
                self._numbers[name] = self._direct(name)
        return self._numbers[name]

    def _direct(self, name: str) -> Value:
        """The same by integration over all variables at once, of functions the recursion does not take apart."""
        statement = self.netsor.body[self.netsor.families[name].statements[0]]
        if not isinstance(statement, Dot):
            raise NotCompiledError(f"{statement} is not compiled by this version")
        average = ConditionalAverage(self.compiler, name, self.netsor.families[name].ranges)
        scope = self.compiler.scope
        value = average.draw({}, lambda _: lambda reference, ranges: scope(ranges).variable(reference, ranges))
        return Value.of(value.data[0], self._positions(name), average.error)

    def _sample(self, size: int, seed: int, keep: Sequence[str], added: Sequence[str]) -> Samples:
        for name in keep:
            self._family(name)
        return self._draw(size, seed, tuple(dict.fromkeys([*self.outputs, *keep, *self.scores, *added])))

    def _draw(self, size: int, seed: int, names: Sequence[str]) -> Samples:
        started = time.perf_counter()
        if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
            raise ProgramError(f"size must be a whole number of at least 1, not {size!r}")
        if not hasattr(seed, "__index__") or seed < 0:
            raise ProgramError(f"seed must be a whole number of at least 0, not {seed!r}")
        boxes = {name: self.netsor.families[name].ranges for name in names}
        results = 8 * size * sum(math.prod(self.netsor.families[name].shape) for name in names)
        if results > self._max_memory:
            raise MemoryLimitError(
                f"{size} draws would take {results / 2**30:.3g} GiB, more than max_memory: draw fewer at a time"
            )
        sampler = Sampler(self.compiler, boxes)
        arrays = {name: np.empty((size, *self.netsor.families[name].shape)) for name in names}
        block = max(1, min(BLOCK, 1 << int(math.log2(max(1, CHUNK_NUMBERS // max(1, sampler.dim))))))
        for number in range(-(-size // block)):
            generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(number,))))
            values = sampler.draw(generator.standard_normal((block, sampler.dim)))
            start, stop = number * block, min((number + 1) * block, size)
            for name in names:
                value = values.get(name)
                if value is None:  # a number in the limit
                    axes = self._positions(name)
                    sizes = dict(zip(axes, self.netsor.families[name].shape, strict=True))
                    arrays[name][start:stop] = broadcast(self._number(name).value, axes, sizes)
                else:
                    arrays[name][start:stop] = self._plain(value, block)[: stop - start]
        self._note([average.error for average in sampler.averages.values()])
        return Samples(self.netsor, arrays, int(size), int(seed), "limit", None, 1, time.perf_counter() - started)

    def given(self, scores: Mapping[str, Any]) -> Conditional:
        """The Gaussian law of the outputs given scores: {"p": values}, leading axes of the values are draws."""
        return Conditional(self, scores)

    # -- files --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program and the settings from which the law is compiled again, exactly, by `Law.load`."""
        import json

        from tensorprog import __version__
        from tensorprog.yaml_io import dump

        meta = {
            "program": dump(self.netsor),
            "grade": self.grade,
            "accuracy": self.accuracy,
            "seed": self._seed,
            "version": __version__,
        }
        with whole(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **{"law.json": np.array(json.dumps(meta))})  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Law:
        """Read a law written by `save`.

        Raises    ProgramError if the file is not one
        """
        import json

        from tensorprog.yaml_io import loads

        try:
            with np.load(path, allow_pickle=False) as data:
                meta = json.loads(str(data["law.json"]))
        except (OSError, ValueError, KeyError) as error:
            raise ProgramError(f"{path} is not a law written by Law.save ({error})") from None
        return cls(loads(meta["program"]), grade=meta["grade"], accuracy=meta["accuracy"], seed=meta["seed"])


@contextmanager
def _expected(added: Averages) -> Iterator[None]:
    """Raise ProgramError where a function of averages is not a number for some values of its variables."""
    try:
        yield
    except FloatingPointError as error:
        psi = ", ".join(added.psi.values())
        message = f"averages: {psi} is not a number for some values of Gaussian variables, so it has no expectation"
        fix = "a function of all real numbers, such as log(1 + y[0]**2)"
        raise ProgramError([Problem(message, fix=fix)]) from error


def _finite(samples: Samples) -> Samples:
    """The samples themselves; raise ProgramError if an average is infinite."""
    for name, values in samples.averages.items():
        if not np.isfinite(values).all():
            raise ProgramError(f"average {name}: its expectation given the scores is not finite")
    return samples

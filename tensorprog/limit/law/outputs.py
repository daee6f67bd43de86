"""Laws and covariances of variables that depend on scores: averages over draws of p-ring.

Means and covariances given the draws (`conditional_moments`) are averaged over randomised quasi-Monte Carlo points, as
many as the accuracy asks for: the same draws give moments, densities and distribution functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import TINY
from tensorprog.gaussian.several import REPLICATES, normal_points, standard_errors
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.law.averaging import AIM, average, pieces
from tensorprog.limit.law.conditional_moments import DrawSource, Given, is_linear
from tensorprog.limit.law.joint import Joint
from tensorprog.limit.law.mixture import Mixture
from tensorprog.limit.memory import need
from tensorprog.limit.moment.indexed import Term
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.points import variables_drawn
from tensorprog.limit.moment.values import IndexedValues

__all__ = ["Outputs"]

Array = NDArray[Any]
Results = Sequence[tuple[Array, ...]]  # of every replicate
Read = Callable[[Given, slice], tuple[Array, ...]]  # of some of the draws
TOGETHER = 64  # members whose covariance comes with their law
JOINT_DRAWS = 1 << 11  # per replicate


class Outputs:
    """Laws of variables that depend on scores, by averaging over draws of p-ring.

    Accuracy  99.9 % of errors over replicates hold; see `averaging.average` for how many draws are taken
    """

    def __init__(self, recursion: NumericRecursion, accuracy: float | None, max_memory: int, seed: int) -> None:
        self.recursion, self.netsor = recursion, recursion.netsor
        self.accuracy, self.max_memory, self.seed = accuracy, max_memory, seed
        self._mixtures: dict[tuple[str, Box], Mixture] = {}
        self._covs: dict[str, tuple[Array, Array]] = {}  # of small families, from the draws of their mixtures

    def linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the draws, so conditionally Gaussian."""
        return is_linear(self.recursion, name)

    def _values(self, names: Sequence[str]) -> list[str]:
        """Vectors of which values are averaged: moments of functions for each draw cost much more.

        Behind several layers each draw costs much itself.
        """
        vectors = [] if self.recursion.layered else [n for n in names if self.netsor.families[n].kind == "vector"]
        return [name for name in vectors if name in self.recursion.random and not self.linear(name)]

    def gaussian(self, name: str) -> bool:
        """Whether a family is one of scores that are Gaussian: no other score stands behind their operands."""
        scores = self.recursion.scores
        return name in scores and self.recursion.random.isdisjoint(v.name for v in self.recursion.dot(name).inputs)

    def _averaged(
        self, source: DrawSource, read: Read, finish: Callable[[Results, int], tuple[Array, Array]], what: str,
        results: int = 1, *, summed: bool = False, extra: int = 0, width: int | None = None, most: int | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """What is read given the draws of each replicate, made a number with its error by `finish`.

        `read` gives arrays over draws; if `summed`, their sums, of which replicates keep averages.  `results` are the
        numbers kept of a draw; `extra` normals are drawn besides and come last.
        """
        together = source.draws_at_once(results, what)
        found: dict[int, list[tuple[Array, ...]]] = {}
        sizes: dict[int, int] = {}

        def replicates(sets: Iterable[Array]) -> list[tuple[Array, ...]]:
            for piece in pieces(sets, together):
                points = piece[0][1] if len(piece) == 1 else np.concatenate([part for _, part in piece])
                with source.at(points[:, : source.dim]) as given:
                    start = 0
                    for number, part in piece:
                        own = slice(start, start := start + len(part))
                        beside = (part[:, source.dim :],) if extra else ()
                        found.setdefault(number, []).append((*read(given, own), *beside))
                        sizes[number] = sizes.get(number, 0) + len(part)
            for number, parts in found.items():
                each = zip(*parts, strict=True)
                found[number] = [tuple(np.asarray(sum(own)) if summed else np.concatenate(own) for own in each)]
            if summed:
                return [tuple(total / sizes[number] for total in parts[0]) for number, parts in found.items()]
            return [parts[0] for parts in found.values()]

        return average(
            source.dim + extra,
            replicates,
            lambda results: finish(results, sum(sizes.values())),
            what,
            accuracy=self.accuracy,
            seed=self.seed,
            aim=AIM,
            width=source.width if width is None else width,
            most=most,
        )

    # -- one variable ---------------------------------------------------------------------------------------------

    def mixture(self, name: str, box: Box) -> Mixture:
        """Conditional means and variances of members over draws of p-ring, as many as the accuracy asks for."""
        if (name, box) not in self._mixtures:
            self._mixtures[name, box] = (self._score if self.gaussian(name) else self._drawn)(name, box)
        return self._mixtures[name, box]

    def knows(self, name: str, box: Box) -> bool:
        """Whether the mixture of members is at hand."""
        return (name, box) in self._mixtures

    def _score(self, name: str, box: Box) -> Mixture:
        """Scores that are Gaussian."""
        moment = self.recursion.score(name, name, self.recursion.equal(name))
        grids = np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij", sparse=True)
        read = moment.at({f"{k}{copy}": grid for k, grid in enumerate(grids) for copy in ("", "_")})
        shape = [b - a for a, b in box]
        variance, error = (np.broadcast_to(part, shape) for part in (read.value, read.error))
        return Mixture.gaussian(np.zeros(shape), variance, error / np.maximum(variance, TINY))

    def _drawn(self, name: str, box: Box) -> Mixture:
        """The law of a variable from draws, each with its conditional mean and variance, or of the variable itself.

        The same draws give the covariance of a small family, where that takes no draws of its own.
        """
        source = DrawSource(self.recursion, [(name, box)], by_parts=True)
        members = tuple(b - a for a, b in box)
        size = math.prod(members)
        whole = box == self.netsor.families[name].ranges and 1 < size <= TOGETHER
        whole = whole and not variables_drawn(self.recursion.parts, name) and not self._values([name])
        kept: list[Mixture] = []

        def read(found: Given, own: slice) -> tuple[Array, ...]:
            both = tuple(part[own] for part in found.gaussian())
            if not whole:
                return both
            return (*both, *(part[None] for part in _seconds(found, own, 0, (*members, *members))))

        def finish(results: Results, draws: int) -> tuple[Array, Array]:
            if whole:
                sums = [[part.sum(axis=0) * len(results) / draws for part in each[-3:]] for each in results]
                value, error = _covariance(sums)
                sds = 2 * [np.sqrt(np.maximum(np.diagonal(value.reshape(size, size)), 0.0))]
                self._covs[name] = value, error + _rounding(source, 0, sds).reshape(value.shape)
                results = [each[:-3] for each in results]
            mean = np.stack([each[0] for each in results])
            known = len(results[0]) > 1
            var = np.stack([each[1] for each in results]) if known else np.zeros_like(mean)
            found = Mixture(mean, var, source.relative, not known, source.off("mean"))
            if source.off("var").any() or source.off("mean").any():
                total = np.maximum(found.moment(2)[0], TINY)
                more = source.off("var") + 2 * source.off("mean") * np.sqrt(total)
                found = replace(found, relative_error=found.relative_error + more / total)
            kept[:] = [found]
            return found.standardised(4)

        # mean and variance of every draw are kept, twice while they are put together
        most = self.max_memory // (64 * REPLICATES * max(1, size))
        results = size**2 if whole else size
        self._averaged(source, read, finish, f"the law of {name}", results, most=most)
        kept[0].warn(name)
        return kept[0]

    # -- several --------------------------------------------------------------------------------------------------

    def joint(self, members: Sequence[tuple[str, Box]]) -> Joint:
        """The joint law of single members: linear vectors, and scores, given what their operands are made from.

        Raises    NotCompiledError for scores over a finite width, or behind one another
        """
        d = len(members)
        if all(n not in self.recursion.random or self.gaussian(n) for n, _ in members):
            return self._known_joint(members)
        source = DrawSource(self.recursion, members, joint=True)
        kept: list[Joint] = []

        def read(found: Given, own: slice) -> tuple[Array, ...]:
            mean = np.stack([found.mean(k)[own].reshape(-1) for k in range(d)], axis=-1)
            cov = np.zeros((*mean.shape, d))
            for k, m in product(range(d), repeat=2):
                known = found.cov(k, m)
                cov[:, k, m] = 0.0 if known is None else known[own].reshape(-1)
            return mean, cov

        def finish(results: Results, draws: int) -> tuple[Array, Array]:
            mean, cov, *normals = (np.stack(arrays) for arrays in zip(*results, strict=True))
            seconds = (cov + mean[..., :, None] * mean[..., None, :]).mean(axis=1)
            sd = np.sqrt(np.maximum(seconds.mean(axis=0).diagonal(), TINY))
            pairs = product(range(d), repeat=2)
            relative = source.relative + max(float(np.max(source.off("cov", k, m))) / (sd[k] * sd[m]) for k, m in pairs)
            relative += 2 * max(float(np.max(source.off("mean", k, k))) / sd[k] for k in range(d))
            kept[:] = [Joint(mean, cov, normals[0] if normals else mean[..., :0], relative)]
            return seconds.mean(axis=0), standard_errors(seconds)

        names = ", ".join(dict.fromkeys(name for name, _ in members))
        # mean, covariance and normals of every draw are kept, twice while they are put together
        most = self.max_memory // (16 * REPLICATES * d * (d + 2))
        most = min(most, JOINT_DRAWS) if self.accuracy is None else most
        self._averaged(source, read, finish, f"the joint law of {names}", d * d, extra=d - 1, most=most)
        return kept[0]

    def _known_joint(self, members: Sequence[tuple[str, Box]]) -> Joint:
        """Gaussian variables; scores are independent of vectors that no score reaches."""
        d = len(members)
        mean, cov = np.zeros(d), np.zeros((d, d))
        off, wrong = np.zeros(d), np.zeros((d, d))
        for k, (f, box) in enumerate(members):
            at = {str(x): np.asarray(start) for x, (start, _) in enumerate(box)}
            if f not in self.recursion.random:
                value = self.recursion.mean(f)
                read = IndexedValues((Term(frozenset(), value),), position_names(self.netsor, f)).at(at)
                mean[k], off[k] = read.value, read.error
            for m, (g, other) in enumerate(members):
                if (f in self.recursion.random) != (g in self.recursion.random):
                    continue
                moment = (self.recursion.score if f in self.recursion.random else self.recursion.centred)(f, g)
                read = moment.at(at | {f"{x}_": np.asarray(start) for x, (start, _) in enumerate(other)})
                cov[k, m], wrong[k, m] = read.value, read.error
        normals = normal_points(max(d - 1, 1), int(math.log2(JOINT_DRAWS)), REPLICATES, self.seed)[..., : d - 1]
        sd = np.sqrt(np.maximum(np.diagonal(cov), TINY))
        # a move of a mean by its error changes densities and probabilities less than twice as large a change of the sd
        relative = float(np.max(wrong / np.multiply.outer(sd, sd)) + 2 * np.max(off / sd))
        return Joint(mean[None, None], cov[None, None], normals, relative)

    def expectation(self, name: str, box: Box) -> tuple[Array, Array]:
        """Mean over p-ring of an average that depends on scores, and its error."""
        # in one variable E[psi | p-ring] costs little; in several it is quicker to average over all at once
        integrand = self.recursion.dot(name).left.name
        if any(part.joint for part in self.recursion.parts.of(integrand)) and not self.recursion.is_finite(integrand):
            source = DrawSource(self.recursion, [(integrand, box)], drawn=[integrand])
        else:
            source = DrawSource(self.recursion, [(name, box)])

        def finish(results: Results, draws: int) -> tuple[Array, Array]:
            each = [value for (value,) in results]
            value = np.mean(each, axis=0)
            return value, standard_errors(each) + source.inner + source.off("mean") + source.relative * np.abs(value)

        def mean(found: Given, own: slice) -> tuple[Array, ...]:
            return (found.mean(0)[own].sum(axis=0),)

        return self._averaged(source, mean, finish, "the expectation", summed=True)

    # -- covariances --------------------------------------------------------------------------------------------

    def cov(self, first: str, second: str, variances: Sequence[Array]) -> tuple[Array, Array]:
        """Cov of two families by averaging over p-ring: E Cov(. | p) + Cov of the conditional means.

        Shapes    variances (members of the first,), (members of the second,)
                  -> (*members of the first, *members of the second), value and error
        Raises    MemoryLimitError
        """
        families = self.netsor.families
        shape = (*families[first].shape, *families[second].shape)
        what = f"the covariance of {first} and {second}"
        need(8 * math.prod(shape), f"{what}, of shape {shape},", "read members one by one", "make the program smaller")
        if first == second and math.prod(families[first].shape) <= TOGETHER:
            self.mixture(first, families[first].ranges)
            if first in self._covs:
                return self._covs[first]
        variables = [(name, families[name].ranges) for name in dict.fromkeys((first, second))]
        values = self._values([name for name, _ in variables])
        source, other = DrawSource(self.recursion, variables, drawn=values), len(variables) - 1

        def read(found: Given, own: slice) -> tuple[Array, ...]:
            return _seconds(found, own, other, shape)

        def finish(results: Results, draws: int) -> tuple[Array, Array]:
            value, error = _covariance(results)
            sds = [np.sqrt(variance) for variance in variances]
            return value, error + _rounding(source, other, sds).reshape(shape)

        return self._averaged(source, read, finish, what, math.prod(shape), summed=True)


def _seconds(found: Given, own: slice, other: int, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Second moments of two variables given draws, and their means: sums over the draws.

    Shapes    (*shape), (members,), (others,)
    """
    one = found.mean(0)[own]
    one = one.reshape(len(one), -1)
    two = found.mean(1)[own].reshape(len(one), -1) if other else one
    total, known = (one.T @ two).reshape(shape), found.cov(0, other)
    return total if known is None else total + known[own].sum(axis=0), one.sum(axis=0), two.sum(axis=0)


def _covariance(results: Sequence[Sequence[Array]]) -> tuple[Array, Array]:
    """A covariance and its spread from second moments and means in each replicate."""

    def total(second: Array, one: Array, two: Array) -> Array:
        return np.asarray(second - np.multiply.outer(one, two).reshape(second.shape))

    value = total(*(np.mean(arrays, axis=0) for arrays in zip(*results, strict=True)))
    return value, standard_errors([total(*parts) for parts in results])


def _rounding(source: DrawSource, other: int, sds: Sequence[Array]) -> Array:
    """How far errors of moments given the draws move a covariance, and those of means with the sizes of the others.

    Shapes    (members of the first, members of the second)
    """
    means = [np.resize(source.off("mean", k, k), sd.shape) for k, sd in zip((0, other), sds, strict=True)]
    within = np.resize(source.off("cov", 0, other), (sds[0].size, sds[1].size))
    within = within + source.relative * np.multiply.outer(*sds)
    return np.asarray(within + np.multiply.outer(means[0], sds[1]) + np.multiply.outer(sds[0], means[1]))

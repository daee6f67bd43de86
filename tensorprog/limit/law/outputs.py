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
from tensorprog.gaussian.several import REPLICATES, standard_errors
from tensorprog.language.ir import Netsor
from tensorprog.limit.draw.conditioned import Conditioned
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.law.alike import alike
from tensorprog.limit.law.conditional_moments import AIM, FEWEST, DrawSource, average, is_linear, pieces
from tensorprog.limit.law.heads import Heads, apart, heads
from tensorprog.limit.law.mixture import ROUNDING, Joint, Mixture
from tensorprog.limit.memory import need
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.points import variables_drawn

__all__ = ["Outputs"]

Array = NDArray[Any]
Results = Sequence[tuple[Array, ...]]  # of every replicate
Reduce = Callable[..., tuple[Array, ...]]
TOGETHER = 64  # members whose covariance comes with their law
JOINT_DRAWS = 1 << 11  # per replicate


class Outputs:
    """Laws of variables that depend on scores, by averaging over draws of p-ring.

    Accuracy  99.9 % of errors over replicates hold; see `average` for how many draws are taken
    """

    def __init__(
        self, program: Netsor, recursion: NumericRecursion, accuracy: float | None, max_memory: int, seed: int
    ) -> None:
        self.program, self.recursion, self.netsor = program, recursion, recursion.netsor
        self.accuracy, self.max_memory, self.seed = accuracy, max_memory, seed
        self._mixtures: dict[tuple[str, Box], Mixture] = {}
        self._covs: dict[str, tuple[Array, Array]] = {}  # of small families, from the draws of their mixtures
        self._heads: dict[str, Heads] = {}
        self._alike: dict[str, Array | None] = {}

    def heads(self, name: str) -> Heads:
        """The alike heads that a vector is a sum over, of which one is averaged."""
        if name not in self._heads:
            recursion, own = apart(self.recursion, name)
            self._heads[name] = heads(self.program, recursion, name) if own == name else Heads(recursion, own)
        return self._heads[name]

    @staticmethod
    def _values(recursion: NumericRecursion, names: Sequence[str]) -> list[str]:
        """Vectors of which values are averaged: moments of functions for each draw cost much more.

        Values of one vector vary with those of the others.  Behind several layers each draw costs much itself.
        """
        vectors = [] if recursion.layered else [n for n in names if recursion.netsor.families[n].kind == "vector"]
        costly = any(name in recursion.random and not is_linear(recursion, name) for name in vectors)
        return vectors if costly else []

    def _averaged(
        self, source: DrawSource, read: Callable[[Conditioned], tuple[Array, ...]],
        finish: Callable[[Results], tuple[Array, Array]], what: str, results: int = 1, *,
        reduce: Reduce = lambda *kept: kept, most: int | None = None, fewest: int = FEWEST,
    ) -> tuple[Array, Array]:  # fmt: skip
        """What is read given the draws of each replicate, made a number with its error by `finish`.

        `read` gives arrays over draws, of which `reduce` makes what is kept of some draws of a replicate, one after the
        other along the first axis.  `results` are the numbers kept of a draw.
        """
        together = source.draws_at_once(results, what)
        found: dict[int, list[tuple[Array, ...]]] = {}

        def replicates(sets: Iterable[Array]) -> Results:
            for piece in pieces(sets, together):
                with source.at(np.concatenate([part for _, part in piece])) as given:
                    arrays = read(given)
                ends = np.cumsum([0, *(len(part) for _, part in piece)])
                for (number, _), start, stop in zip(piece, ends, ends[1:], strict=False):
                    found.setdefault(number, []).append(reduce(*(array[start:stop] for array in arrays)))
            for number, parts in found.items():
                found[number] = [tuple(np.concatenate(each) for each in zip(*parts, strict=True))]
            return [parts[0] for parts in found.values()]

        return average(
            source.dim, replicates, finish, what,
            accuracy=self.accuracy, seed=self.seed, aim=AIM, width=source.draws.width, most=most, fewest=fewest,
        )  # fmt: skip

    # -- one variable ---------------------------------------------------------------------------------------------

    def mixture(self, name: str, box: Box) -> Mixture:
        """Conditional means and variances of members over draws of p-ring, as many as the accuracy asks for."""
        if (name, box) not in self._mixtures:
            self._mixtures[name, box] = self._drawn(name, box)
        return self._mixtures[name, box]

    def _drawn(self, name: str, box: Box) -> Mixture:
        """The law of a variable from draws, each with its conditional mean and variance, or of the variable itself.

        The same draws give the covariance of a small family, by moments given the draws unless these cost much: those
        of the block of an MLP-Mixer take 3 % of the time, and its variances are six times as exact as from values.
        They are computed until the covariance is as exact as is aimed at: values may need many more draws.
        """
        heads = self.heads(name)
        source = DrawSource(heads.recursion, [(heads.name, box)], by_values=True)
        rest = heads.shared(box)
        members = tuple(b - a for a, b in box)
        size = math.prod(members)
        own = heads.recursion.netsor.families[heads.name]
        whole = box == self.netsor.families[name].ranges and 1 < size <= TOGETHER
        whole = whole and own.kind == "vector" and not heads.recursion.is_finite(own.name)
        by_values = bool(self._values(heads.recursion, [own.name]))
        whole = whole and (by_values or not variables_drawn(heads.recursion.parts, own.name))
        kept: list[Mixture] = []
        exact = False

        def read(found: Conditioned) -> tuple[Array, ...]:
            both = source.halves(found)
            if not whole:
                return both
            if exact:
                return (*both, np.zeros((0, *members)), np.zeros((0, *members, *members)))
            return (*both, both[0], np.zeros(len(both[0]))) if by_values else (*both, *source.moments(found))

        def reduce(*arrays: Array) -> tuple[Array, ...]:
            each = [np.array(part, order="F") for part in (arrays[:-2] if whole else arrays)]  # along draws
            return (*each, *(_seconds((*members, *members), arrays[-2], *arrays[-2:]) if whole else ()))

        def finish(results: Results) -> tuple[Array, Array]:
            nonlocal exact
            if whole:
                value, error = heads.added(*_covariance([each[-4:] for each in results]))
                sds = 2 * [np.sqrt(np.maximum(np.diagonal(value.reshape(size, size)), 0.0))]
                self._covs[name] = value, error + _rounding(source, 0, sds, heads.count).reshape(value.shape)
                exact = not by_values and bool(error.max() <= (self.accuracy or AIM) * np.abs(value).max())
                results = [each[:-4] for each in results]
            mean = np.stack([each[0] for each in results])
            known = len(results[0]) > 1
            exact = exact and not known
            var = np.stack([each[1] for each in results]) if known else np.zeros_like(mean)
            found = Mixture(mean, var, source.relative, not known, source.off("mean"), heads.count, rest)
            if source.off("var").any() or source.off("mean").any():
                total = np.maximum(found.moment(2)[0], TINY)
                more = heads.count * (source.off("var") + 2 * source.off("mean") * np.sqrt(total))
                found = replace(found, relative_error=found.relative_error + more / total)
            if whole and not (known or by_values):
                second = [np.diagonal(part.reshape(size, size)).reshape(members) for part in self._covs[name]]
                found = replace(found, second=(second[0], second[1]))
            kept[:] = [found]
            return found.standardised(4)

        # mean and variance of every draw are kept, twice while they are put together
        most = self.max_memory // (64 * REPLICATES * max(1, size))
        results, what = size**2 if whole else size, f"the law of {name}"
        self._averaged(source, read, finish, what, results, reduce=reduce, most=most)
        kept[0].warn(name)
        return kept[0]

    # -- several --------------------------------------------------------------------------------------------------

    def joint(self, members: Sequence[tuple[str, Box]]) -> Joint:
        """The joint law of single members: linear vectors, and scores, given what their operands are made from.

        Raises    NotCompiledError for scores over a finite width, or behind one another
        """
        d = len(members)
        source = DrawSource(self.recursion, members, joint=True)
        kept: list[Joint] = []

        def read(found: Conditioned) -> tuple[Array, ...]:
            draws = found.normals.draws
            mean = np.stack([source.mean(found, k).reshape(draws) for k in range(d)], axis=-1)
            cov = np.stack([source.cov(found, k, m).reshape(draws) for k, m in product(range(d), repeat=2)], axis=-1)
            return mean, cov.reshape(draws, d, d)

        def finish(results: Results) -> tuple[Array, Array]:
            mean, cov = (np.stack(arrays) for arrays in zip(*results, strict=True))
            seconds = (cov + mean[..., :, None] * mean[..., None, :]).mean(axis=1)
            sd = np.sqrt(np.maximum(seconds.mean(axis=0).diagonal(), TINY))
            pairs = product(range(d), repeat=2)
            relative = source.relative + max(float(np.max(source.off("cov", k, m))) / (sd[k] * sd[m]) for k, m in pairs)
            relative += 2 * max(float(np.max(source.off("mean", k, k))) / sd[k] for k in range(d))
            kept[:] = [Joint(mean, cov, relative)]
            return seconds.mean(axis=0), standard_errors(seconds)

        names = ", ".join(dict.fromkeys(name for name, _ in members))
        # mean and covariance of every draw are kept, twice while they are put together
        most = self.max_memory // (16 * REPLICATES * d * (d + 2))
        most = min(most, JOINT_DRAWS) if self.accuracy is None else most
        self._averaged(source, read, finish, f"the joint law of {names}", d * d, most=most)
        return kept[0]

    def expectation(self, name: str, box: Box) -> tuple[Array, Array]:
        """Mean over p-ring of an average that depends on scores, and its error."""
        # in one variable E[psi | p-ring] costs little; in several it is quicker to average over all at once
        integrand = self.recursion.dot(name).left.name
        if any(part.joint for part in self.recursion.parts.of(integrand)) and not self.recursion.is_finite(integrand):
            source = DrawSource(self.recursion, [(integrand, box)], drawn=[integrand])
        else:
            source = DrawSource(self.recursion, [(name, box)])

        def finish(results: Results) -> tuple[Array, Array]:
            each = [value.sum(axis=0) / count.sum() for value, count in results]
            value = np.mean(each, axis=0)
            return value, standard_errors(each) + source.inner + source.off("mean") + source.relative * np.abs(value)

        return self._averaged(
            source, lambda found: (source.mean(found, 0),), finish, "the expectation",
            reduce=lambda values: (values.sum(axis=0)[None], np.array([len(values)])),
        )  # fmt: skip

    # -- covariances --------------------------------------------------------------------------------------------

    def alike(self, name: str) -> Array | None:
        """Groups of pairs of members of a large family that have one law; see `alike`."""
        if name not in self._alike:
            large = math.prod(self.netsor.families[name].shape) > TOGETHER
            heads = self.heads(name) if large else None
            self._alike[name] = None if heads is None or heads.rest else alike(heads.recursion, heads.name)
        return self._alike[name]

    def cov(self, first: str, second: str, variances: Sequence[Array] | None) -> tuple[Array, Array]:
        """Cov of two families by averaging over p-ring: E Cov(. | p) + Cov of the conditional means.

        The entries of pairs that are alike are averaged, in every replicate.

        Shapes    variances (members of the first,), (members of the second,); None for those that are found
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
        heads = self.heads(first) if first == second else Heads(self.recursion, first)
        names = {heads.name: first} if first == second else {first: first, second: second}
        variables = [(name, families[own].ranges) for name, own in names.items()]
        values = self._values(heads.recursion, [*names])
        source, other = DrawSource(heads.recursion, variables, drawn=values), len(variables) - 1

        def read(found: Conditioned) -> tuple[Array, ...]:
            one = source.mean(found, 0)
            return one, source.mean(found, 1) if other else one, source.cov(found, 0, other)

        groups = self.alike(first) if first == second else None
        sizes = np.ones(1) if groups is None else np.bincount(groups.ravel())

        def pooled(values: Array) -> Array:
            """The averages of groups, if there are any."""
            return values if groups is None else np.bincount(groups.ravel(), values.ravel()) / sizes

        def finish(results: Results) -> tuple[Array, Array]:
            value, error = _covariance(results, pooled)
            value, error = heads.added(*((value, error) if groups is None else (value[groups], error[groups])))
            known = [np.diagonal(value)] * 2 if variances is None else variances
            sds = [np.sqrt(np.maximum(variance, 0.0)) for variance in known]
            return value, error + _rounding(source, other, sds, heads.count).reshape(shape)

        return self._averaged(
            source, read, finish, what, math.prod(shape),
            reduce=lambda one, two, cov: _seconds(shape, one, two, cov, pooled=pooled),
            fewest=FEWEST if groups is None else 1,
        )  # fmt: skip


def _seconds(
    shape: tuple[int, ...], one: Array, two: Array, cov: Array, *, pooled: Callable[[Array], Array] = np.asarray
) -> tuple[Array, ...]:
    """Second moments of two variables given draws, and their means: sums over the draws, and how many there are.

    Shapes    (1, *shape), or `pooled` in place of the shape, (1, members), (1, others), (1,)
    """
    one, two = (values.reshape(len(values), math.prod(values.shape[1:])) for values in (one, two))
    seconds = pooled((one.T @ two).reshape(shape) + cov.sum(axis=0))
    return tuple(part[None] for part in (seconds, one.sum(axis=0), two.sum(axis=0), np.asarray(len(one))))


def _covariance(results: Results, pooled: Callable[[Array], Array] = np.asarray) -> tuple[Array, Array]:
    """A covariance and its spread from the sums that `_seconds` gives of each replicate."""

    each = [[part.sum(axis=0) / counts.sum() for part in parts] for *parts, counts in results]
    seconds, *centre = [sum(arrays[1:], start=arrays[0]) / len(arrays) for arrays in zip(*each, strict=True)]

    def outer(one: Array, two: Array) -> Array:
        zero = not (one.any() and two.any())
        return np.zeros(()) if zero else pooled(np.multiply.outer(one, two)).reshape(seconds.shape)

    def about(second: Array, one: Array, two: Array) -> Array:
        """About the means of all replicates: one draw of its own is enough for each."""
        return second - outer(one, centre[1]) - outer(centre[0], two - centre[1])

    spread = standard_errors([about(*parts) for parts in each])
    return about(seconds, *centre), spread + ROUNDING * (np.abs(seconds) + np.abs(outer(*centre)))


def _rounding(source: DrawSource, other: int, sds: Sequence[Array], heads: int) -> Array:
    """How far errors of moments given the draws move a covariance, and those of means with the sizes of the others.

    Shapes    (members of the first, members of the second)
    """
    means = [heads * np.resize(source.off("mean", k, k), sd.shape) for k, sd in zip((0, other), sds, strict=True)]
    within = heads * np.resize(source.off("cov", 0, other), (sds[0].size, sds[1].size))
    within = within + source.relative * np.multiply.outer(*sds)
    return np.asarray(within + np.multiply.outer(means[0], sds[1]) + np.multiply.outer(sds[0], means[1]))

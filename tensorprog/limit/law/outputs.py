"""Laws and covariances of variables that depend on scores: averages over draws of p-ring.

One way serves all: means and covariances given the draws (`conditional_moments`) are averaged over randomised
quasi-Monte Carlo points, as many as the accuracy asks for.  Linear vectors behind one layer of scores are taken apart
first, which buys precision:

- into independent blocks and heads, whose draws converge quickly, as each depends on few scores;
- blocks of up to four normals are averaged by two product rules, to rounding where functions are smooth;
- blocks of one normal by panels, to rounding for any function.
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
from tensorprog.gaussian.rules import product_points
from tensorprog.gaussian.several import REPLICATES, normal_points, standard_errors
from tensorprog.language.memory import too_much
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.law.averaging import ORDERS, Averaging, converge, pieces
from tensorprog.limit.law.conditional_moments import (
    DrawSource,
    Given,
    OneLayer,
    ScoreBlocks,
    SeveralLayers,
    is_linear,
)
from tensorprog.limit.law.joint import Joint
from tensorprog.limit.law.mixture import Mixture, Summand
from tensorprog.limit.law.panels import panels
from tensorprog.limit.law.summands import LinearVector, ScoreBlock, Summands
from tensorprog.limit.moment.indexed import Term
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.points import variables_drawn
from tensorprog.limit.moment.values import IndexedValues

__all__ = ["Outputs"]

Array = NDArray[Any]
# results of all replicates, and the number of draws in all -> value and error
Finish = Callable[[Sequence[tuple[Array, ...]], int], tuple[Array, Array]]
UNSEEN = 14.0  # a set of that many times the mass of a draw is missed once in a million times
CONFIRMING = 1 << 8  # draws per replicate that confirm a product rule
MOST_ALONE = 16  # members whose laws are found one by one
TOGETHER = 64  # members whose covariance comes with their law
JOINT_DRAWS = 1 << 11  # per replicate
FINE_AIM = 1e-6  # where conditional Gaussians are averaged, which is cheap
JOINT_AIM = 1e-9  # as many draws as there may be


class Outputs:
    """Laws of variables that depend on scores, by averaging over draws of p-ring.

    Accuracy  99.9 % of errors over replicates hold; see `averaging.converge` for how many draws are taken
    """

    def __init__(self, recursion: NumericRecursion, accuracy: float | None, max_memory: int, seed: int) -> None:
        self.recursion, self.netsor = recursion, recursion.netsor
        self.accuracy, self.max_memory, self.seed = accuracy, max_memory, seed
        self._mixtures: dict[tuple[Any, ...], Mixture] = {}
        self._summands: dict[tuple[str, Box, bool], Summands] = {}
        self._same: dict[str, list[bool]] = {}  # positions that laws of members do not depend on
        self._covs: dict[str, tuple[Array, Array]] = {}  # of small families, from the draws of their mixtures

    def linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the draws, so conditionally Gaussian."""
        return is_linear(self.recursion, name)

    def _apart(self, *names: str) -> bool:
        """Whether variables are linear behind one layer of scores, so that they can be taken apart."""
        return not self.recursion.layered and all(map(self.linear, names))

    def _source(self, variables: Sequence[tuple[str, Box]], by_parts: bool = False, joint: bool = False) -> DrawSource:
        if self.recursion.layered:
            return SeveralLayers(self.recursion, variables, by_parts, joint)
        return OneLayer(self.recursion, variables)

    def _averaged(
        self, source: DrawSource, read: Callable[[Any], tuple[Array, ...]], finish: Finish, what: str,
        results: int = 1, *, summed: bool = False, extra: int = 0, width: int | None = None, aim: float | None = None,
        most: int | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """What is read given the draws of each replicate, made a number with its error by `finish`.

        `read` gives arrays over draws; if `summed`, their sums, of which replicates keep averages.  `results` are the
        numbers kept of a draw; `extra` normals are drawn besides and come last.
        """
        together, counts = source.draws_at_once(results, what), [0]

        def replicates(sets: Iterable[Array]) -> list[tuple[Array, ...]]:
            found: dict[int, list[tuple[Array, ...]]] = {}
            sizes: dict[int, int] = {}
            for piece in pieces(sets, together, source.joined):
                points = piece[0][1] if len(piece) == 1 else np.concatenate([part for _, part in piece])
                with source.at(points[:, : source.dim]) as given:
                    start = 0
                    for number, part in piece:
                        own = given if len(piece) == 1 else given.part(slice(start, start := start + len(part)))
                        beside = (part[:, source.dim :],) if extra else ()
                        found.setdefault(number, []).append((*read(own), *beside))
                        sizes[number] = sizes.get(number, 0) + len(part)
            counts[:] = [*sizes.values()][-1:]
            each = [list(zip(*found[number], strict=True)) for number in found]
            if summed:
                return [tuple(np.asarray(sum(arrays) / sizes[number]) for arrays in own)
                        for number, own in zip(found, each, strict=True)]  # fmt: skip
            return [tuple(np.concatenate(arrays) for arrays in own) for own in each]

        return converge(
            source.dim + extra,
            replicates,
            lambda found: finish(found, len(found) * counts[0]),
            what,
            accuracy=None if aim == math.inf else self.accuracy,  # an infinite aim: whatever it takes to confirm
            seed=self.seed,
            aim=aim,
            width=source.numbers(results) if width is None else width,
            most=most,
            first=source.first,
        )

    # -- one variable ---------------------------------------------------------------------------------------------

    def mixture(self, name: str, box: Box, split: bool = True, dense: bool = False) -> Mixture:
        """Conditional means and variances of members over draws of p-ring, as many as the accuracy asks for.

        `dense`: for densities and distribution functions, which need more of a rule than moments do.
        """
        key: tuple[Any, ...] = name, box, split
        if key not in self._mixtures:
            if name in self.recursion.scores and not self.recursion.layered:
                self._mixtures[key] = self._score(name, box)
            elif self._apart(name):
                self._mixtures[key] = self._by_rules(name, box, split) or self._by_draws(name, box, split)
            else:
                self._mixtures[key] = self._drawn_mixture(name, box)
        found = self._mixtures[key]
        rough = dense and found.rule.orders and any(s.panels is None for s in found.summands)
        if not rough or found.disagreement() <= (self.accuracy or FINE_AIM):
            return found
        drawn = *key, "drawn"
        if drawn not in self._mixtures:
            self._mixtures[drawn] = self._by_draws(name, box, split)
        return self._mixtures[drawn]

    def alike(self, name: str, box: Box, asked: bool = False) -> Box:
        """The members in a box without those that have, by the structure of the program, the law of another one: the
        first alone along a position that laws of members do not depend on.  `asked`: as far as it has been asked.
        """
        if name not in self.recursion.random or not self._apart(name) or (asked and name not in self._same):
            return box
        ranges = self.netsor.families[name].ranges
        if name not in self._same:
            whole = Summands(self.recursion, [LinearVector(self.recursion, name, ranges)])
            self._same[name] = [stop - start > 1 and whole.alike(str(k)) for k, (start, stop) in enumerate(ranges)]
        return tuple(
            (start, start + 1) if same else span
            for span, (start, _), same in zip(box, ranges, self._same[name], strict=True)
        )

    def knows(self, name: str, box: Box) -> bool:
        """Whether the mixture of members is at hand."""
        return (name, box, True) in self._mixtures

    def by_rules(self, name: str, box: Box) -> list[Box]:
        """Members one by one, where a rule serves each of them, as joint laws do not matter; else nothing."""
        members = [tuple((i, i + 1) for i in index) for index in product(*(range(*span) for span in box))]
        if not 1 < len(members) <= MOST_ALONE or not self._apart(name):
            return []
        blocks = (block for member in members for block in self._parts(name, member).blocks)
        few = all(block.sampler.dim in ORDERS for block in blocks)
        return members if few and all(self.mixture(name, member).rule.orders for member in members) else []

    def _parts(self, name: str, box: Box, split: bool = True) -> Summands:
        key = name, box, split
        if key not in self._summands:
            self._summands[key] = Summands(self.recursion, [LinearVector(self.recursion, name, box)], split)
        return self._summands[key]

    def _score(self, name: str, box: Box) -> Mixture:
        """Scores of one layer are Gaussian."""
        moment = self.recursion.score(name, name, self.recursion.equal(name))
        grids = np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij", sparse=True)
        positions = {str(k): grid for k, grid in enumerate(grids)} | {f"{k}_": grid for k, grid in enumerate(grids)}
        read = moment.at(positions)
        variance = np.broadcast_to(read.value, [b - a for a, b in box])
        error = np.broadcast_to(np.asarray(read.error) / np.maximum(read.value, TINY), variance.shape)
        return Mixture((), np.zeros(variance.shape), variance, error)

    def _by_rules(self, name: str, box: Box, split: bool) -> Mixture | None:
        """The law of linear vectors behind one layer from their independent blocks, each averaged by a rule.

        None where a block has none, or where its error is large, or draws contradict it.  That buys precision: the
        kurtosis of attention has an error of 1e-8, where draws of all scores reach 3e-4 in several times the time.
        """
        summands = self._parts(name, box, split)
        mean, var = summands.beside(0)
        own: list[Summand] = []
        for block in summands.blocks:
            rule = _by_rule(block, var)
            if rule is None:
                return None
            own.append(rule)
        smoothed = bool(own) and not var.any() and not any(s.var.any() or s.panels is not None for s in own)
        off, relative = summands.errors(0)
        found = Mixture(tuple(own), mean, var, relative, smoothed, Averaging(orders=bool(own)), off)
        if all(s.panels is not None for s in own):
            return found
        value, error = found.standardised(4)
        if not np.all(error <= (self.accuracy or FINE_AIM) * np.abs(value)):
            return None
        other = self._by_draws(name, box, split, np.inf, CONFIRMING)
        return found if _agree(found.moment(2), other.moment(2)) else None

    def _by_draws(self, name: str, box: Box, split: bool, aim: float = FINE_AIM, most: int | None = None) -> Mixture:
        """The same by draws over the normals of all blocks."""
        summands = self._parts(name, box, split)
        mean, var = summands.beside(0)
        blocks, kept = summands.blocks, list[Mixture]()
        if most is None:  # mean and variance of every draw are kept, twice while they are put together
            numbers = mean.size * sum(block.size for block in blocks)
            most = self.max_memory // (64 * REPLICATES * max(1, numbers))

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            each = [np.stack(arrays) for arrays in zip(*results, strict=True)]
            weights = np.full(each[0].shape[:2], 1 / each[0].shape[1])
            own = [Summand(m, v, weights, b.count) for m, v, b in zip(each[::2], each[1::2], blocks, strict=True)]
            smoothed = not var.any() and not any(s.var.any() for s in own)
            off, relative = summands.errors(0)
            found = Mixture(tuple(own), mean, var, relative, smoothed, mean_error=off)
            hidden = [block.region.hidden(UNSEEN / draws) for block in blocks]
            if any(np.any(second) for second, _ in hidden):
                found = replace(found, relative_error=found.relative_error + _relative(found, blocks, hidden))
            kept[:] = [found]
            return found.standardised(4)

        def read(found: Sequence[tuple[ScoreBlock, Array]]) -> tuple[Array, ...]:
            return tuple(part for block, points in found for part in block.conditional(points))

        self._averaged(ScoreBlocks(blocks), read, finish, f"the law of {name}", mean.size, aim=aim, most=most)
        return kept[0]

    def _drawn_mixture(self, name: str, box: Box) -> Mixture:
        """The law of a variable from draws, each with its conditional mean and variance, or of the variable itself.

        The same draws give the covariance of a small family, where that takes no draws of its own.
        """
        source = self._source([(name, box)], by_parts=True)
        members = tuple(b - a for a, b in box)
        zero = np.zeros(members)
        whole = box == self.netsor.families[name].ranges and 1 < zero.size <= TOGETHER
        whole = whole and not variables_drawn(self.recursion.parts, name)
        kept: list[Mixture] = []

        def read(found: Given) -> tuple[Array, ...]:
            both = found.gaussian()
            return (*both, *(part[None] for part in _seconds(found, 0, (*members, *members)))) if whole else both

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            if whole:
                sums = [[part.sum(axis=0) * len(results) / draws for part in each[-3:]] for each in results]
                value, error = _covariance([1], sums)
                sizes = np.diagonal(value.reshape(zero.size, zero.size))
                roots = np.sqrt(np.resize(source.relative + source.displaced[1], zero.size) * np.maximum(sizes, 0.0))
                error = error + np.multiply.outer(roots, roots).reshape(value.shape)
                sds = 2 * [np.sqrt(np.maximum(sizes, 0.0))]
                self._covs[name] = value, error + _moved(source, 0, sds).reshape(value.shape)
                results = [each[:-3] for each in results]
            mean = np.stack([r[0] for r in results])[:, :, None]
            known = len(results[0]) > 1
            var = np.stack([r[1] for r in results])[:, :, None] if known else np.zeros_like(mean)
            weights = np.full(mean.shape[:2], 1 / mean.shape[1])
            off, relative = (np.resize(part, members) for part in source.displaced)
            own = (Summand(mean, var, weights),)
            found = Mixture(own, zero, zero, source.relative + relative, not known, mean_error=off + source.off("mean"))
            if source.off("var").any() or source.off("mean").any():
                total = np.maximum(found.moment(2)[0], TINY)
                more = source.off("var") + 2 * source.off("mean") * np.sqrt(total)
                found = replace(found, relative_error=found.relative_error + more / total)
            kept[:] = [found]
            return kept[0].standardised(4)

        # mean and variance of every draw are kept, or values alone, twice while they are put together
        most = self.max_memory // ((64 if self.recursion.layered else 32) * REPLICATES * max(1, zero.size))
        results = zero.size**2 if whole else zero.size
        self._averaged(source, read, finish, f"the law of {name}", results, width=source.numbers(zero.size), most=most)
        return kept[0]

    # -- several --------------------------------------------------------------------------------------------------

    def joint(self, members: Sequence[tuple[str, Box]]) -> Joint:
        """The joint law of single members: linear vectors, and scores, given what their operands are made from.

        Raises    NotCompiledError for scores over a finite width, or behind one another
        """
        d, several = len(members), self.recursion.layered
        if not several and all(n not in self.recursion.random or n in self.recursion.scores for n, _ in members):
            return self._known_joint(members)
        source = self._source(members, joint=True)
        kept: list[Joint] = []

        def read(found: Given) -> tuple[Array, ...]:
            mean = np.stack([found.mean(k).reshape(-1) for k in range(d)], axis=-1)
            cov = np.zeros((*mean.shape, d))
            for k, m in product(range(d), repeat=2):
                known = found.cov(k, m)
                cov[:, k, m] = 0.0 if known is None else known.reshape(-1)
            return mean, cov

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            mean, cov, *normals = (np.stack(arrays) for arrays in zip(*results, strict=True))
            seconds = (cov + mean[..., :, None] * mean[..., None, :]).mean(axis=1)
            hidden = source.hidden(UNSEEN / draws)
            relative = source.relative + float(np.max(source.displaced[1], initial=0.0))
            sd = np.sqrt(np.maximum(seconds.mean(axis=0).diagonal(), TINY))
            pairs = product(range(d), repeat=2)
            relative += max(float(np.max(source.off("cov", k, m))) / (sd[k] * sd[m]) for k, m in pairs)
            relative += 2 * max(float(np.max(source.off("mean", k, k))) / sd[k] for k in range(d))
            relative += hidden / float(seconds.mean(axis=0).diagonal().min()) if hidden else 0.0
            kept[:] = [Joint(mean, cov, normals[0] if normals else mean[..., :0], relative)]
            return seconds.mean(axis=0), standard_errors(seconds)

        names = ", ".join(dict.fromkeys(name for name, _ in members))
        # mean, covariance and normals of every draw are kept, twice while they are put together
        most = self.max_memory // (16 * REPLICATES * d * (d + 2))
        most = min(most, JOINT_DRAWS) if self.accuracy is None else most
        aim = None if several else JOINT_AIM
        self._averaged(source, read, finish, f"the joint law of {names}", d * d, extra=d - 1, aim=aim, most=most)
        return kept[0]

    def _known_joint(self, members: Sequence[tuple[str, Box]]) -> Joint:
        """Gaussian variables; scores are independent of vectors that no score reaches."""
        d = len(members)
        mean, cov = np.zeros(d), np.zeros((d, d))
        off, wrong = np.zeros(d), np.zeros((d, d))
        for k, (f, box) in enumerate(members):
            if f not in self.recursion.random:
                value = self.recursion.mean(f)
                at = {str(x): np.asarray(start) for x, (start, _) in enumerate(box)}
                read = IndexedValues((Term(frozenset(), value),), position_names(self.netsor, f)).at(at)
                mean[k], off[k] = read.value, read.error
            for m, (g, other) in enumerate(members):
                if (f in self.recursion.random) != (g in self.recursion.random):
                    continue
                moment = (self.recursion.score if f in self.recursion.random else self.recursion.centred)(f, g)
                at = {str(x): np.asarray(start) for x, (start, _) in enumerate(box)}
                at |= {f"{x}_": np.asarray(start) for x, (start, _) in enumerate(other)}
                read = moment.at(at)
                cov[k, m], wrong[k, m] = read.value, read.error
        normals = normal_points(max(d - 1, 1), int(math.log2(JOINT_DRAWS)), REPLICATES, self.seed)[..., : d - 1]
        sd = np.sqrt(np.maximum(np.diagonal(cov), TINY))
        # a move of a mean by its error changes densities and probabilities less than twice as large a change of the sd
        relative = float(np.max(wrong / np.multiply.outer(sd, sd)) + 2 * np.max(off / sd))
        return Joint(mean[None, None], cov[None, None], normals, relative)

    def expectation(self, name: str, box: Box) -> tuple[Array, Array]:
        """Mean over p-ring of an average that depends on scores, and its error."""
        source: DrawSource
        if self.recursion.layered:
            source, width = self._source([(name, box)]), None
        else:
            # in one variable E[psi | p-ring] costs little; in several it is quicker to average over all at once
            integrand = self.recursion.dot(name).left.name
            quick = not any(part.joint for part in self.recursion.parts.of(integrand))
            read = name if quick else integrand
            source, width = OneLayer(self.recursion, [(read, box)], vectors=not quick), 1

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            each = [value for (value,) in results]
            value = np.mean(each, axis=0)
            off = np.maximum(np.resize(source.displaced[0], value.shape), source.inner)  # averages are moved there too
            off = off + source.off("mean")
            return value, standard_errors(each) + off + source.relative * np.abs(value)

        def mean(found: Given) -> tuple[Array, ...]:
            return (found.mean(0).sum(axis=0),)

        return self._averaged(source, mean, finish, "the expectation", summed=True, width=width)

    # -- covariances --------------------------------------------------------------------------------------------

    def cov(self, first: str, second: str, variances: Sequence[Array]) -> tuple[Array, Array]:
        """Cov of two families by averaging over p-ring: E Cov(. | p) + Cov of the conditional means.

        Shapes    variances (members of the first,), (members of the second,)
                  -> (*members of the first, *members of the second), value and error
        Raises    MemoryLimitError
        """
        families = self.netsor.families
        shape = (*families[first].shape, *families[second].shape)
        if 64 * math.prod(shape) > self.max_memory:
            raise too_much(
                f"the covariance of {first} and {second}, of shape {shape},",
                64 * math.prod(shape),
                self.max_memory,
                ["read members one by one", "make the program smaller"],
            )
        if first == second and not self._apart(first) and math.prod(families[first].shape) <= TOGETHER:
            self.mixture(first, families[first].ranges)
            if first in self._covs:
                return self._covs[first]
        variables = [(name, families[name].ranges) for name in dict.fromkeys((first, second))]
        other, known, wrong, blocks = len(variables) - 1, np.zeros(shape), np.zeros(shape), list[ScoreBlock]()
        source: DrawSource
        if self._apart(first, second):
            summands = Summands(self.recursion, [LinearVector(self.recursion, *each) for each in variables])
            source, blocks = ScoreBlocks(summands.blocks), summands.blocks
            if summands.fixed is not None:
                known = summands.fixed.cov(0, other, {}, 1)[0]
                wrong = summands.fixed.covariance_errors(0, other)
            if not blocks:
                return known, wrong
        else:
            source = self._source(variables)
        counts = [block.count for block in blocks] or [1]

        def read(found: Any) -> tuple[Array, ...]:
            each = [_GivenBlock(block, points) for block, points in found] if blocks else [found]
            return tuple(part for one in each for part in _seconds(one, other, shape))

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            value, error = _covariance(counts, results, known)
            for block in blocks:
                hidden = block.region.hidden(UNSEEN / draws)[0]
                error = error + block.count * _spread_over(block, hidden, other, shape)
                error = error + block.covariance_errors(0, other)
            if not blocks:
                sizes = np.concatenate(variances[: other + 1])
                roots = np.sqrt(np.resize(source.relative + source.displaced[1], sizes.shape) * sizes)
                one, two = roots[: variances[0].size], roots[-variances[-1].size :]
                error = error + np.multiply.outer(one, two).reshape(shape)
                error = error + _moved(source, other, [np.sqrt(variance) for variance in variances]).reshape(shape)
            return value, error + wrong

        aim = FINE_AIM if blocks else None
        what = f"the covariance of {first} and {second}"
        return self._averaged(source, read, finish, what, math.prod(shape), summed=True, aim=aim)


class _GivenBlock:
    """Functions of a block given the draws of its scores."""

    def __init__(self, block: ScoreBlock, points: Array) -> None:
        self.block, self.values, self.draws = block, block.draw(points), len(points)

    def mean(self, k: int) -> Array:
        """Means of the summands of a function.

        Shapes    (draws, heads, *members)
        """
        return self.block.mean(k, self.values, self.draws)

    def cov(self, k: int, m: int) -> Array:
        """Covariances of two functions, summed over heads.

        Shapes    (draws, *members of k, *members of m)
        """
        return self.block.cov(k, m, self.values, self.draws)


def _by_rule(block: ScoreBlock, fixed: Array) -> Summand | None:
    """A block at the nodes of two rules for its normals, panels if there is one; None where there are too many.

    `fixed`: variances that stand beside those of the block, over the members.
    """
    dim, shape = block.sampler.dim, (block.size, *block.vectors[0].members)
    if dim == 1:
        found = panels(
            lambda z: block.at(z[:, None]),
            lambda low, high: block.effects(low[:, None], high[:, None]),
            np.tile(np.ravel(fixed), block.size),
        ).reshaped(shape)
        return Summand(*found.sets(), block.count, found)
    if dim not in ORDERS or not block.region.smooth:
        return None
    rules = [product_points(dim, order) for order in ORDERS[dim]]
    step = ScoreBlocks([block]).draws_at_once(math.prod(shape), "")
    each = []
    for points, _ in rules:
        pieces = [block.conditional(points[start : start + step]) for start in range(0, len(points), step)]
        each.append([np.concatenate(parts) for parts in zip(*pieces, strict=True)])
    mean, var = (_stacked([parts[k] for parts in each]) for k in (0, 1))
    return Summand(mean, var, _stacked([weights for _, weights in rules]), block.count)


def _seconds(found: Given | _GivenBlock, other: int, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Second moments of two variables given draws, and their means: sums over the draws.

    Shapes    (*shape), (heads, members), (heads, others)
    """
    one = found.mean(0)
    heads = one.shape[1] if isinstance(found, _GivenBlock) else 1
    one = one.reshape(len(one), heads, -1)
    two = found.mean(1).reshape(len(one), heads, -1) if other else one
    total = np.tensordot(one, two, ((0, 1), (0, 1))).reshape(shape)
    known = found.cov(0, other)
    return total if known is None else total + known.sum(axis=0), one.sum(axis=0), two.sum(axis=0)


def _covariance(
    counts: Sequence[int], results: Sequence[Sequence[Array]], known: Array | float = 0.0
) -> tuple[Array, Array]:
    """A covariance and its spread from second moments and means in each replicate, block after block."""

    def total(parts: Sequence[Array]) -> Array:
        found = known
        for count, second, one, two in zip(counts, parts[::3], parts[1::3], parts[2::3], strict=True):
            found = found + count * (second - (one.T @ two).reshape(second.shape))
        return np.asarray(found)

    value = total([np.mean(arrays, axis=0) for arrays in zip(*results, strict=True)])
    return value, standard_errors([total(parts) for parts in results])


def _moved(source: DrawSource, other: int, sds: Sequence[Array]) -> Array:
    """How far errors of moments given the draws move a covariance, and those of means with the sizes of the others.

    Shapes    (members of the first, members of the second)
    """
    means = [np.resize(source.off("mean", k, k), sd.shape) for k, sd in zip((0, other), sds, strict=True)]
    within = np.resize(source.off("cov", 0, other), (sds[0].size, sds[1].size))
    return np.asarray(within + np.multiply.outer(means[0], sds[1]) + np.multiply.outer(sds[0], means[1]))


def _spread_over(block: ScoreBlock, slack: Array, other: int, shape: tuple[int, ...]) -> Array:
    """Slack of covariances from that of second moments, by Cauchy and Schwarz.

    Shapes    slack (numbers,), of one function after the other -> shape
    """
    sizes = [block.size * math.prod(f.members) for f in block.vectors]
    parts = np.split(slack, np.cumsum(sizes)[:-1])
    roots = [np.sqrt(part.reshape(block.size, -1).sum(axis=0)) for part in (parts[0], parts[other])]
    return np.asarray(np.multiply.outer(*roots).reshape(shape))


def _agree(one: tuple[Array, Array], two: tuple[Array, Array]) -> bool:
    """Whether two numbers differ by no more than twice the sum of their errors."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(one[0] - two[0]) > 2 * (one[1] + two[1]) + 1e-12 * np.abs(one[0])
    return not apart.any()


def _relative(mixture: Mixture, blocks: Sequence[ScoreBlock], hidden: Sequence[tuple[Array, Array]]) -> Array:
    """Relative error of variances that stands for what a set of draws may not have seen of some blocks."""
    total = np.maximum(mixture.moment(2)[0], 1e-300)
    second = sum(b.count * h[0].reshape(b.size, *total.shape).sum(axis=0) for b, h in zip(blocks, hidden, strict=True))
    fourth = sum(b.count * h[1].reshape(b.size, *total.shape).sum(axis=0) for b, h in zip(blocks, hidden, strict=True))
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(second / total, fourth / (4 * total**2)))


def _stacked(sets: Sequence[Array]) -> Array:
    """Arrays of different lengths as one, filled up with zeros."""
    result = np.zeros((len(sets), max(map(len, sets)), *sets[0].shape[1:]))
    for k, values in enumerate(sets):
        result[k, : len(values)] = values
    return result

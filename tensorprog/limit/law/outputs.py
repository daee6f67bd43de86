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
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.rules import product_points
from tensorprog.gaussian.several import REPLICATES, normal_points, standard_errors
from tensorprog.language.errors import MemoryLimitError
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.law.averaging import ORDERS, Averaging, Quadrature, converge
from tensorprog.limit.law.conditional_moments import (
    DrawSource,
    Given,
    OneLayer,
    ScoreBlocks,
    SeveralLayers,
    is_linear,
)
from tensorprog.limit.law.intervals import TAME
from tensorprog.limit.law.joint import Joint
from tensorprog.limit.law.mixture import Marginals, Mixture, Summand
from tensorprog.limit.law.panels import panels
from tensorprog.limit.law.summands import LinearVector, ScoreBlock, Summands
from tensorprog.limit.moment.compiler import Compiler
from tensorprog.limit.moment.indexed import Term
from tensorprog.limit.moment.values import IndexedValues

__all__ = ["Outputs"]

Array = NDArray[Any]
# results of all replicates, and the number of draws in all -> value and error
Finish = Callable[[Sequence[tuple[Array, ...]], int], tuple[Array, Array]]
UNSEEN = 14.0  # a set of that many times the mass of a draw is missed once in a million times
CONFIRMING = 1 << 8  # draws per replicate that confirm a product rule
MOST_MARGINALS = 16  # members whose laws are found one by one
JOINT_DRAWS = 1 << 11  # per replicate
FINE_AIM = 1e-6  # where conditional Gaussians are averaged, which is cheap
JOINT_AIM = 1e-9  # as many draws as there may be


class Outputs:
    """Laws of variables that depend on scores, by averaging over draws of p-ring.

    Accuracy  99.9 % of errors over replicates hold; see `averaging.converge` for how many draws are taken
    """

    def __init__(self, compiler: Compiler, accuracy: float | None, max_memory: int, seed: int) -> None:
        self.compiler, self.netsor = compiler, compiler.netsor
        self.accuracy, self.max_memory, self.seed = accuracy, max_memory, seed

    def linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the draws, so conditionally Gaussian."""
        return is_linear(self.compiler, name)

    def _apart(self, *names: str) -> bool:
        """Whether variables are linear behind one layer of scores, so that they can be taken apart."""
        return not self.compiler.layered and all(map(self.linear, names))

    def _source(self, variables: Sequence[tuple[str, Box]], by_parts: bool = False, joint: bool = False) -> DrawSource:
        if self.compiler.layered:
            return SeveralLayers(self.compiler, variables, by_parts, joint)
        return OneLayer(self.compiler, variables)

    def _averaged(
        self, source: DrawSource, read: Callable[[Any], tuple[Array, ...]], finish: Finish, what: str,
        results: int = 1, *, summed: bool = False, extra: int = 0, width: int | None = None, aim: float | None = None,
        most: int | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """What is read given the draws of each replicate, made a number with its error by `finish`.

        `read` gives arrays over draws; if `summed`, their sums, of which replicates keep averages.  `results` are the
        numbers kept of a draw; `extra` normals are drawn besides and come last.
        """
        together, counts = source.together(results, what), [0]

        def replicate(points: Array) -> tuple[Array, ...]:
            parts, counts[:] = [], [len(points)]
            for start in range(0, len(points), together):
                with source.at(points[start : start + together, : source.dim]) as found:
                    parts.append(read(found))
            if summed:
                return tuple(np.asarray(sum(arrays) / len(points)) for arrays in zip(*parts, strict=True))
            kept = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            return (*kept, points[:, source.dim :]) if extra else tuple(kept)

        return converge(
            source.dim + extra,
            replicate,
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

    def mixture(self, name: str, box: Box, split: bool = True, dense: bool = False) -> Mixture | Marginals:
        """Conditional means and variances of members over draws of p-ring, as many as the accuracy asks for.

        `dense`: for densities and distribution functions, which need more than moments do.
        """
        if name in self.compiler.scores and not self.compiler.layered:
            return self._score(name, box)
        if not self._apart(name):
            return self._drawn_mixture(name, box)
        if split and not dense:
            marginals = self._marginals(name, box)
            if marginals is not None:
                return marginals
        return self._linear_mixture(name, box, split, dense)

    def _score(self, name: str, box: Box) -> Mixture:
        """Scores of one layer are Gaussian."""
        moment = self.compiler.score(name, name, self.compiler.equal(name))
        grids = np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij", sparse=True)
        positions = {str(k): grid for k, grid in enumerate(grids)} | {f"{k}_": grid for k, grid in enumerate(grids)}
        found = moment.at(positions).value
        variance = np.broadcast_to(found, [b - a for a, b in box])
        return Mixture((), np.zeros(variance.shape), variance, moment.error / float(np.max(found, initial=1e-300)))

    def _marginals(self, name: str, box: Box) -> Marginals | None:
        """Member by member, where each has so few scores that a rule serves; joint laws do not matter."""
        members = [tuple((i, i + 1) for i in index) for index in product(*(range(*span) for span in box))]
        if not 1 < len(members) <= MOST_MARGINALS:
            return None
        found = []
        for member in members:
            summands = Summands(self.compiler, [LinearVector(self.compiler, name, member)])
            if any(block.sampler.dim > max(ORDERS) for block in summands.blocks):
                return None
            found.append(self._linear_mixture(name, member, True))
            if not found[-1].rule.orders:
                return None
        return Marginals(found, tuple(stop - start for start, stop in box))

    def _linear_mixture(self, name: str, box: Box, split: bool, dense: bool = False) -> Mixture:
        """The law of linear vectors behind one layer from their independent blocks: by rules, or by draws of each.

        That buys precision: the kurtosis of attention has an error of 1e-8, where plain draws of all scores reach 3e-4
        in several times the time.
        """
        vector = LinearVector(self.compiler, name, box)
        summands = Summands(self.compiler, [vector], split)
        mean, var = summands.beside(0)
        panelled: list[Summand] = []
        left: list[tuple[ScoreBlock, Quadrature | None]] = []
        for block in summands.blocks:
            rule = self.quadrature(block, var)
            if rule is not None and rule.panels is not None:
                panelled.append(_by_rule(block, rule))
            else:
                left.append((block, rule))
        by_rules = [_by_rule(b, r) for b, r in left if r is not None] if all(r is not None for _, r in left) else []
        if len(by_rules) == len(left):
            own = (*panelled, *by_rules)
            smoothed = bool(own) and not var.any() and not any(s.var.any() or s.panels is not None for s in own)
            found = Mixture(own, mean, var, summands.error, smoothed, Averaging(orders=True) if own else Averaging())
            if not left:
                return found
            value, error = found.standardised(4)
            aim = FINE_AIM if self.accuracy is None else self.accuracy
            if np.all(error <= aim * np.abs(value)) and (not dense or found.disagreement() <= aim):
                other = self._by_draws(name, summands, [block for block, _ in left], panelled, np.inf, CONFIRMING)
                if _agree(found.moment(2), other.moment(2)):
                    return found
        # mean and variance of every draw are kept, twice while they are put together
        heads = sum(block.size for block, _ in left)
        most = self.max_memory // (64 * REPLICATES * max(1, math.prod(vector.members) * heads))
        return self._by_draws(name, summands, [block for block, _ in left], panelled, FINE_AIM, most)

    def _by_draws(
        self, name: str, summands: Summands, drawn: Sequence[ScoreBlock], known: Sequence[Summand], aim: float,
        most: int,
    ) -> Mixture:  # fmt: skip
        """The same by draws over the normals of some blocks, the others as they are."""
        mean, var = summands.beside(0)
        value, error = Mixture(tuple(known), mean, var, rule=Averaging(orders=True)).standardised(4)
        with np.errstate(invalid="ignore"):
            relative = float(np.max(np.nan_to_num(error / np.abs(value)), initial=0.0)) / 2
        regions = [block.region for block in drawn]
        kept: list[Mixture] = []

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            each = [np.stack(arrays) for arrays in zip(*results, strict=True)]
            weights = np.full(each[0].shape[:2], 1 / each[0].shape[1])
            own = [Summand(m, v, weights, b.count) for m, v, b in zip(each[::2], each[1::2], drawn, strict=True)]
            own += [_repeated(summand, len(results)) for summand in known]
            smoothed = not var.any() and not any(s.var.any() for s in own)
            found = Mixture(tuple(own), mean, var, summands.error + relative, smoothed)
            hidden = [region.hidden(UNSEEN / draws) for region in regions]
            if any(np.any(second) for second, _ in hidden):
                found = replace(found, relative_error=found.relative_error + _relative(found, drawn, hidden))
            kept[:] = [found]
            return found.standardised(4)

        members = mean.size
        self._averaged(ScoreBlocks(drawn), _conditional, finish, f"the law of {name}", members, aim=aim, most=most)
        return kept[0]

    def quadrature(self, block: ScoreBlock, fixed: Array | None = None) -> Quadrature | None:
        """Two rules for the normals of a block; None where there are too many of them.

        `fixed`: variances that stand beside those of the block, over the members of its first function.
        """
        dim = block.sampler.dim
        if dim == 1:
            numbers = sum(math.prod(f.members) for f in block.vectors)
            beside = np.zeros(numbers) if fixed is None else np.ravel(fixed)
            found = panels(
                lambda z: block.at(z[:, None]),
                lambda low, high: block.effects(low[:, None], high[:, None]),
                np.tile(beside, block.size),
            )
            one, two = found.points()
            return Quadrature((one[:, None], two[:, None]), found.both_weights(), found)
        if dim not in ORDERS or block.region.steepest > TAME:
            return None
        (one, first), (two, second) = (product_points(dim, order) for order in ORDERS[dim])
        return Quadrature((one, two), (first, second))

    def _drawn_mixture(self, name: str, box: Box) -> Mixture:
        """The law of a variable from draws, each with its conditional mean and variance, or of the variable itself."""
        source = self._source([(name, box)], by_parts=True)
        members = tuple(b - a for a, b in box)
        zero = np.zeros(members)
        kept: list[Mixture] = []

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            mean = np.stack([r[0] for r in results])[:, :, None]
            known = len(results[0]) > 1
            var = np.stack([r[1] for r in results])[:, :, None] if known else np.zeros_like(mean)
            weights = np.full(mean.shape[:2], 1 / mean.shape[1])
            kept[:] = [Mixture((Summand(mean, var, weights),), zero, zero, source.relative, not known)]
            return kept[0].standardised(4)

        # mean and variance of every draw are kept, or values alone, twice while they are put together
        numbers = math.prod(members)
        most = self.max_memory // ((64 if self.compiler.layered else 32) * REPLICATES * max(1, numbers))
        self._averaged(source, lambda found: found.gaussian(), finish, f"the law of {name}", numbers, most=most)
        return kept[0]

    # -- several --------------------------------------------------------------------------------------------------

    def joint(self, members: Sequence[tuple[str, Box]]) -> Joint:
        """The joint law of single members: linear vectors, and scores, given what their operands are made from.

        Raises    NotCompiledError for scores over a finite width, or behind one another
        """
        d, several = len(members), self.compiler.layered
        if not several and all(n not in self.compiler.random or n in self.compiler.scores for n, _ in members):
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
            relative = source.relative + (hidden / float(seconds.mean(axis=0).diagonal().min()) if hidden else 0.0)
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
        worst = 0.0
        for k, (f, box) in enumerate(members):
            if f not in self.compiler.random:
                value = self.compiler.mean(f)
                at = {str(x): np.asarray(start) for x, (start, _) in enumerate(box)}
                mean[k] = IndexedValues((Term(frozenset(), value),), position_names(self.netsor, f)).at(at).value
            for m, (g, other) in enumerate(members):
                if (f in self.compiler.random) != (g in self.compiler.random):
                    continue
                moment = (self.compiler.score if f in self.compiler.random else self.compiler.centred)(f, g)
                at = {str(x): np.asarray(start) for x, (start, _) in enumerate(box)}
                at |= {f"{x}_": np.asarray(start) for x, (start, _) in enumerate(other)}
                cov[k, m] = moment.at(at).value
                worst = max(worst, moment.error)
        normals = normal_points(max(d - 1, 1), int(math.log2(JOINT_DRAWS)), REPLICATES, self.seed)[..., : d - 1]
        return Joint(mean[None, None], cov[None, None], normals, worst / max(float(np.abs(cov).max()), 1e-300))

    def expectation(self, name: str, box: Box) -> tuple[Array, Array]:
        """Mean over p-ring of an average that depends on scores, and its error."""
        source: DrawSource
        if self.compiler.layered:
            source, width = self._source([(name, box)]), None
        else:
            # in one variable E[psi | p-ring] costs little; in several it is quicker to average over all at once
            integrand = self.compiler.dot(name).left.name
            quick = not any(part.joint for part in self.compiler.parts.of(integrand))
            read = name if quick else integrand
            source, width = OneLayer(self.compiler, [(read, box)], vectors=not quick), 1

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            each = [value for value, in results]
            return np.mean(each, axis=0), standard_errors(each) + source.inner

        def mean(found: Given) -> tuple[Array, ...]:
            return (found.mean(0).sum(axis=0),)

        return self._averaged(source, mean, finish, "the expectation", summed=True, width=width)

    # -- covariances --------------------------------------------------------------------------------------------

    def cov(self, first: str, second: str) -> tuple[Array, Array]:
        """Cov of two families by averaging over p-ring: E Cov(. | p) + Cov of the conditional means.

        Shapes    (*members of the first, *members of the second), value and error
        Raises    MemoryLimitError
        """
        families = self.netsor.families
        shape = (*families[first].shape, *families[second].shape)
        if 64 * math.prod(shape) > self.max_memory:
            raise MemoryLimitError(
                f"the covariance of {first} and {second} has shape {shape}; it would not fit in max_memory"
            )
        if self._apart(first, second):
            return self._linear_cov(first, second, shape)
        variables = [(name, families[name].ranges) for name in dict.fromkeys((first, second))]
        other = len(variables) - 1
        source = self._source(variables)

        def read(found: Given) -> tuple[Array, ...]:
            means = [found.mean(k) for k in range(other + 1)]
            one, two = (mean.reshape(len(mean), -1) for mean in (means[0], means[other]))
            total, known = (one.T @ two).reshape(shape), found.cov(0, other)
            total = total if known is None else total + known.sum(axis=0)
            return total, one.sum(axis=0, keepdims=True), two.sum(axis=0, keepdims=True)

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            value = _centred(*(np.mean(arrays, axis=0) for arrays in zip(*results, strict=True)))
            return value, standard_errors([_centred(*r) for r in results]) + source.relative * np.abs(value)

        return self._averaged(source, read, finish, _covariance(first, second), math.prod(shape), summed=True)

    def _linear_cov(self, first: str, second: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Covariances of linear vectors behind one layer from their independent blocks, as in `_linear_mixture`."""
        names = [first] if first == second else [first, second]
        vectors = [LinearVector(self.compiler, name, self.netsor.families[name].ranges) for name in names]
        other = len(names) - 1
        summands = Summands(self.compiler, vectors)
        known = np.zeros(shape) if summands.fixed is None else summands.fixed.cov(0, other, {}, 1)[0]
        wrong = np.zeros(shape)
        blocks = []
        for block in summands.blocks:
            rule = self.quadrature(block)
            found = None if rule is None else self._cov_by_rule(block, rule, other, shape)
            if found is None or not np.all(found[1] <= FINE_AIM * np.abs(found[0]).max(initial=0.0)):
                blocks.append(block)
            else:
                known, wrong = known + found[0], wrong + found[1]
        if not blocks:
            return known, wrong + summands.error * np.abs(known)
        regions = [block.region for block in blocks]

        def read(found: Sequence[tuple[ScoreBlock, Array]]) -> tuple[Array, ...]:
            return tuple(part.sum(axis=0) for block, own in found for part in _seconds(block, own, other, shape))

        def finish(results: Sequence[tuple[Array, ...]], draws: int) -> tuple[Array, Array]:
            def total(parts: Sequence[Array]) -> Any:
                own = (parts[3 * k : 3 * k + 3] for k in range(len(blocks)))
                return sum(block.count * _centred(*three) for block, three in zip(blocks, own, strict=True))

            value = np.asarray(known + total([np.mean(arrays, axis=0) for arrays in zip(*results, strict=True)]))
            error = standard_errors([total(r) for r in results]) + wrong + summands.error * np.abs(value)
            for block, region in zip(blocks, regions, strict=True):
                hidden = region.hidden(UNSEEN / draws)[0]
                error = error + block.count * _spread_over(block, hidden, other, shape)
            return value, error

        what = _covariance(first, second)
        return self._averaged(ScoreBlocks(blocks), read, finish, what, math.prod(shape), summed=True, aim=FINE_AIM)

    def _cov_by_rule(
        self, block: ScoreBlock, rule: Quadrature, other: int, shape: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """A block's covariance by two rules, and its error."""
        each = []
        for points, weights in zip(rule.points, rule.weights, strict=True):
            total: Any = 0.0
            one: Any = 0.0
            two: Any = 0.0
            step = len(_chunks(points, block, math.prod(shape))[0])
            for start in range(0, len(points), step):
                more, m, n = _seconds(block, points[start : start + step], other, shape)
                own = weights[start : start + step]
                total, one, two = (t + np.tensordot(own, x, 1) for t, x in ((total, more), (one, m), (two, n)))
            each.append(block.count * _centred(total, one, two))
        error = 3 * np.abs(each[1] - each[0])
        if rule.panels is not None:
            found, mass = rule.panels, rule.panels.masses[:, None]
            with np.errstate(invalid="ignore", over="ignore"):
                size = np.abs(found.mean).max(axis=1), found.var.max(axis=1)
                slack = mass * (found.var_slack + found.mean_slack * (2 * size[0] + found.mean_slack))
                slack = np.where(mass > 0, np.nan_to_num(slack, nan=np.inf), 0.0).sum(axis=0)
            error = error + block.count * _spread_over(block, slack, other, shape)
        return each[0], error

def _conditional(found: Sequence[tuple[ScoreBlock, Array]]) -> tuple[Array, ...]:
    """Means and variances of every block."""
    return tuple(part for block, own in found for part in block.conditional(own))


def _by_rule(block: ScoreBlock, rule: Quadrature) -> Summand:
    """The first vector of a block at the nodes of both rules."""
    shape = (block.size, *block.vectors[0].members)
    if rule.panels is not None:
        own = rule.panels.reshaped(slice(0, math.prod(shape)), shape)
        mean, var, weights = own.sets()
        return Summand(mean, var, weights, block.count, own)
    each = []
    for points in rule.points:
        pieces = []
        for part in _chunks(points, block, math.prod(shape)):
            pieces.append(block.conditional(part))
        each.append([np.concatenate([p[k] for p in pieces]) for k in (0, 1)])
    return Summand(_stacked([e[0] for e in each]), _stacked([e[1] for e in each]), _stacked(rule.weights), block.count)


def _seconds(block: ScoreBlock, points: Array, other: int, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Conditional second moments of two functions of a block, summed over heads, and their means.

    Shapes    points (draws, dim) -> (draws, *shape), (draws, heads, members) twice
    """
    values, count = block.draw(points), len(points)
    total = block.cov(0, other, values, count)
    m = block.mean(0, values, count).reshape(count, block.size, -1)
    n = m if not other else block.mean(1, values, count).reshape(count, block.size, -1)
    if m.any() and n.any():
        total = total + np.einsum("dhi,dhj->dij", m, n, optimize=True).reshape(count, *shape)
    return total, m, n


def _spread_over(block: ScoreBlock, slack: Array, other: int, shape: tuple[int, ...]) -> Array:
    """Slack of covariances from that of second moments, by Cauchy and Schwarz.

    Shapes    slack (numbers,), of one function after the other -> shape
    """
    sizes = [block.size * math.prod(f.members) for f in block.vectors]
    parts = np.split(slack, np.cumsum(sizes)[:-1])
    roots = [np.sqrt(part.reshape(block.size, -1).sum(axis=0)) for part in (parts[0], parts[other])]
    return np.asarray(np.multiply.outer(*roots).reshape(shape))


def _agree(one: tuple[Array, Array], two: tuple[Array, Array]) -> bool:
    """Whether two numbers agree within twice three of their standard errors."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(one[0] - two[0]) > 2 * (one[1] + two[1]) + 1e-12 * np.abs(one[0])
    return not apart.any()


def _relative(mixture: Mixture, blocks: Sequence[ScoreBlock], hidden: Sequence[tuple[Array, Array]]) -> float:
    """Relative error of variances that stands for what a set of draws may not have seen of some blocks."""
    total = np.maximum(mixture.moment(2)[0], 1e-300)
    second = sum(b.count * h[0].reshape(b.size, *total.shape).sum(axis=0) for b, h in zip(blocks, hidden, strict=True))
    fourth = sum(b.count * h[1].reshape(b.size, *total.shape).sum(axis=0) for b, h in zip(blocks, hidden, strict=True))
    with np.errstate(over="ignore"):
        return float(np.max(np.maximum(second / total, fourth / (4 * total**2)), initial=0.0))


def _repeated(summand: Summand, sets: int) -> Summand:
    """What a rule gives, beside replicates."""
    def wide(values: Array) -> Array:
        return np.broadcast_to(values[:1], (sets, *values.shape[1:]))

    return Summand(wide(summand.mean), wide(summand.var), wide(summand.weights), summand.count)


def _covariance(first: str, second: str) -> str:
    return f"the covariance of {first} and {second}"


def _centred(total: Array, one: Array, two: Array) -> Array:
    """Second moments without the products of means, summed over heads.

    Shapes    total any, one (heads, members), two (heads, others) -> as total
    """
    return np.asarray(total - (one.T @ two).reshape(total.shape))


def _stacked(sets: Sequence[Array]) -> Array:
    """Arrays of different lengths as one, filled up with zeros."""
    result = np.zeros((len(sets), max(map(len, sets)), *sets[0].shape[1:]))
    for k, values in enumerate(sets):
        result[k, : len(values)] = values
    return result


def _chunks(points: Array, block: ScoreBlock, results: int) -> list[Array]:
    step = ScoreBlocks([block]).together(results, "")
    return [points[start : start + step] for start in range(0, len(points), step)]

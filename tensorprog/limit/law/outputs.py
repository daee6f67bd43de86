"""Averages over p-ring: mixtures for laws of variables, and covariances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.qmc import normal_points, standard_errors
from tensorprog.gaussian.several import product_points
from tensorprog.language.errors import MemoryLimitError
from tensorprog.limit.draw.sampler import Sampler, plain
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.law.averaging import MIN_LOG2, ORDERS, Quadrature, Rule, converge
from tensorprog.limit.law.intervals import TAME
from tensorprog.limit.law.joint import Joint
from tensorprog.limit.law.mixture import Marginals, Mixture, Summand
from tensorprog.limit.law.panels import panels
from tensorprog.limit.law.summands import Block, Function, Summands
from tensorprog.limit.moment.averages import ConditionalAverage
from tensorprog.limit.moment.compiler import Compiler
from tensorprog.limit.moment.indexed import Term
from tensorprog.limit.moment.replicates import REPLICATES
from tensorprog.limit.moment.values import IndexedValues

__all__ = ["CHUNK_NUMBERS", "Outputs"]

Array = NDArray[Any]
UNSEEN = 14.0  # a set of that many times the mass of a draw is missed once in a million times
CONFIRMING = 1 << 8  # draws per replicate that confirm a product rule
CHUNK_NUMBERS = 1 << 18  # numbers held at once while draws are evaluated
MOST_MARGINALS = 16  # members whose laws are found one by one
JOINT_DRAWS = 1 << 11  # per replicate
FINE_AIM = 1e-6  # where conditional Gaussians are averaged, which is cheap


class Outputs:
    """Laws of variables that depend on scores, by averaging over draws of p-ring.

    Accuracy  99.9 % of errors over replicates hold; see `averaging.converge` for how many draws are taken
    """

    def __init__(self, compiler: Compiler, accuracy: float | None, max_memory: int, seed: int) -> None:
        self.compiler, self.netsor = compiler, compiler.netsor
        self.accuracy, self.max_memory, self.seed = accuracy, max_memory, seed

    def linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the scores, so conditionally Gaussian."""
        vector = self.netsor.families[name].kind == "vector"
        return vector and all(map(self.compiler.parts.gaussian, self.compiler.parts.of(name)))

    def converge(
        self, dim: int, replicate: Callable[[Array], Any], finish: Callable[[Sequence[Any]], tuple[Array, Array]],
        what: str, width: int, *, aim: float | None = None, most: int | None = None, first: int = MIN_LOG2,
    ) -> tuple[Array, Array]:  # fmt: skip
        """`averaging.converge` over draws of which one takes `width` numbers."""
        return converge(
            dim,
            replicate,
            finish,
            what,
            accuracy=None if aim == math.inf else self.accuracy,  # an infinite aim: whatever it takes to confirm
            seed=self.seed,
            aim=aim,
            width=width,
            most=most,
            first=first,
        )

    def mixture(self, name: str, box: Box, split: bool = True, dense: bool = False) -> Mixture | Marginals:
        """Conditional means and variances of members over draws of p-ring, as many as the accuracy asks for.

        `dense`: for densities and distribution functions, which need more than moments do.
        """
        if not self.linear(name):
            return self._drawn_mixture(name, box)
        if split and not dense:
            marginals = self._marginals(name, box)
            if marginals is not None:
                return marginals
        return self._linear_mixture(name, box, split, dense)

    def _marginals(self, name: str, box: Box) -> Marginals | None:
        """Member by member, where each has so few scores that a rule serves; joint laws do not matter."""
        members = [tuple((i, i + 1) for i in index) for index in product(*(range(*span) for span in box))]
        if not 1 < len(members) <= MOST_MARGINALS:
            return None
        found = []
        for member in members:
            summands = Summands(self.compiler, [Function(self.compiler, name, member)])
            if any(block.sampler.dim > max(ORDERS) for block in summands.blocks):
                return None
            found.append(self._linear_mixture(name, member, True))
            if not found[-1].rule.orders:
                return None
        return Marginals(found, tuple(stop - start for start, stop in box))

    def _linear_mixture(self, name: str, box: Box, split: bool, dense: bool = False) -> Mixture:
        function = Function(self.compiler, name, box)
        summands = Summands(self.compiler, [function], split)
        fixed, blocks = summands.fixed, summands.blocks
        mean = np.zeros(function.members) if fixed is None else fixed.mean(0, {}, 1)[0, 0]
        var = np.zeros(function.members) if fixed is None else fixed.var(0, {}, 1)[0, 0]
        if not blocks:
            return Mixture((), mean, var, summands.error)
        rules = [self.quadrature(block, var) for block in blocks]
        one = [None if r is None or r.panels is None else _by_rule(b, r) for b, r in zip(blocks, rules, strict=True)]
        members = math.prod(function.members)

        def by_draws(drawn: Sequence[Block], known: Sequence[Summand], aim: float | None, most: int) -> Mixture:
            """Quasi-Monte Carlo over the normals of some blocks, the others as they are."""
            beside = Mixture(tuple(known), mean, var, rule=Rule(orders=True))
            value, error = beside.standardised(4) if known else (np.ones(()), np.zeros(()))
            with np.errstate(invalid="ignore"):
                relative = float(np.max(np.nan_to_num(error / np.abs(value)), initial=0.0)) / 2
            width, regions = _width(drawn, members), [block.region() for block in drawn]

            def replicate(points: Array) -> list[tuple[Array, Array]]:
                pieces: list[list[tuple[Array, Array]]] = [[] for _ in drawn]
                for part in _chunks(points, width):
                    for found, block, own in zip(pieces, drawn, _columns(drawn, part), strict=True):
                        found.append(block.conditional(own))
                return [(np.concatenate([m for m, _ in p]), np.concatenate([v for _, v in p])) for p in pieces]

            def build(results: Sequence[list[tuple[Array, Array]]], weights: Array, rule: Rule) -> Mixture:
                own = [
                    Summand(
                        _stacked([r[k][0] for r in results]), _stacked([r[k][1] for r in results]), weights, block.count
                    )
                    for k, block in enumerate(drawn)
                ]
                own += [_repeated(summand, len(results)) for summand in known]
                smoothed = not var.any() and not any(s.var.any() for s in own)
                found = Mixture(tuple(own), mean, var, summands.error + relative, smoothed, rule)
                hidden = [region.hidden(UNSEEN / weights.size) for region in regions]
                if any(np.any(second) for second, _ in hidden):
                    found = replace(found, relative_error=found.relative_error + _relative(found, drawn, hidden))
                return found

            return self._converged(sum(b.sampler.dim for b in drawn), replicate, build, name, width, aim, most)

        if all(rule is not None for rule in rules):
            known = [o or _by_rule(b, r) for o, b, r in zip(one, blocks, rules, strict=True) if r is not None]
            smoothed = not var.any() and not any(s.var.any() or s.panels is not None for s in known)
            found = Mixture(tuple(known), mean, var, summands.error, smoothed, Rule(orders=True))
            several = [block for o, block in zip(one, blocks, strict=True) if o is None]
            if not several:
                return found
            value, error = found.standardised(4)
            aim = FINE_AIM if self.accuracy is None else self.accuracy
            if np.all(error <= aim * np.abs(value)) and (not dense or found.disagreement() <= aim):
                other = by_draws(several, [o for o in one if o is not None], np.inf, CONFIRMING)
                if _agree(found.moment(2), other.moment(2)):
                    return found
        drawn = [block for o, block in zip(one, blocks, strict=True) if o is None]
        # mean and variance of every draw are kept, twice while they are put together
        heads = sum(block.size for block in drawn)
        most = self.max_memory // (64 * REPLICATES * max(1, members * heads))
        return by_draws(drawn, [o for o in one if o is not None], FINE_AIM, most)

    def quadrature(self, block: Block, fixed: Array | None = None) -> Quadrature | None:
        """Two rules for the normals of a block; None where there are too many of them.

        `fixed`: variances that stand beside those of the block, over the members of its first function.
        """
        dim = block.sampler.dim
        if dim == 1:
            numbers = sum(math.prod(f.members) for f in block.functions)
            beside = np.zeros(numbers) if fixed is None else np.ravel(fixed)
            found = panels(
                lambda z: block.at(z[:, None]),
                lambda low, high: block.effects(low[:, None], high[:, None]),
                np.tile(beside, block.size),
            )
            one, two = found.points()
            return Quadrature((one[:, None], two[:, None]), found.both_weights(), found)
        if dim not in ORDERS or block.region().steepest > TAME:
            return None
        (one, first), (two, second) = (product_points(dim, order) for order in ORDERS[dim])
        return Quadrature((one, two), (first, second))

    def _drawn_mixture(self, name: str, box: Box) -> Mixture:
        """Draws of the variable itself, where it is not Gaussian given the scores."""
        sampler = Sampler(self.compiler, {name: box})
        members = tuple(b - a for a, b in box)
        width = sum(math.prod(b - a for a, b in other) for other in sampler.demand.values())
        zero = np.zeros(members)
        relative = max((rows.error for rows in sampler.rows.values()), default=0.0)

        def replicate(points: Array) -> Array:
            drawn = [plain(sampler.wanted_value(name, sampler.draw(p)), len(p)) for p in _chunks(points, width)]
            return np.concatenate(drawn)

        def build(results: Sequence[Array], weights: Array, rule: Rule) -> Mixture:
            values = np.stack(results)[:, :, None]
            return Mixture((Summand(values, np.zeros_like(values), weights),), zero, zero, relative, True, rule)

        most = self.max_memory // (32 * REPLICATES * max(1, math.prod(members)))
        return self._converged(sampler.dim, replicate, build, name, width, None, most)

    def _converged(
        self, dim: int, replicate: Callable[[Array], Any], build: Callable[[Sequence[Any], Array, Rule], Mixture],
        name: str, width: int, aim: float | None, most: int,
    ) -> Mixture:  # fmt: skip
        kept: list[Mixture] = []
        sizes: list[int] = []

        def counted(points: Array) -> Any:
            sizes.append(len(points))
            return replicate(points)

        def finish(results: Sequence[Any]) -> tuple[Array, Array]:
            weights = np.full((len(results), sizes[-1]), 1 / sizes[-1])
            kept[:] = [build(results, weights, Rule())]
            return kept[0].standardised(4)

        self.converge(dim, counted, finish, f"the law of {name}", width, aim=aim, most=most)
        return kept[0]

    def score_mixture(self, name: str, box: Box) -> Mixture:
        """Scores are Gaussian."""
        moment = self.compiler.score(name, name)
        grids = np.meshgrid(*(np.arange(a, b) for a, b in box), indexing="ij", sparse=True)
        positions = {str(k): grid for k, grid in enumerate(grids)} | {f"{k}_": grid for k, grid in enumerate(grids)}
        found = moment.at(positions).value
        variance = np.broadcast_to(found, [b - a for a, b in box])
        return Mixture((), np.zeros(variance.shape), variance, moment.error / float(np.max(found, initial=1e-300)))

    def joint(self, members: Sequence[tuple[str, Box]]) -> Joint:
        """The joint law of single members, all scores or all linear vectors."""
        d = len(members)
        if all(name not in self.compiler.random or name in self.compiler.scores for name, _ in members):
            return self._known_joint(members)
        functions = [Function(self.compiler, name, box) for name, box in members]
        summands = Summands(self.compiler, functions, split=False)
        (block,) = summands.blocks
        region = block.region()
        kept: list[Joint] = []

        def replicate(points: Array) -> tuple[Array, Array, Array]:
            means, covs = [], []
            for part in _chunks(points, _width([block], d * d)):
                values = block.draw(part[:, : summands.dim])
                means.append(np.stack([block.mean(k, values, len(part)).reshape(-1) for k in range(d)], axis=-1))
                rows = [[block.cov(k, m, values, len(part)).reshape(-1) for m in range(d)] for k in range(d)]
                covs.append(np.stack([np.stack(row, axis=-1) for row in rows], axis=-2))
            return np.concatenate(means), np.concatenate(covs), points[:, summands.dim :]

        def finish(results: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array]:
            mean, cov, normals = (np.stack([r[x] for r in results]) for x in range(3))
            seconds = (cov + mean[..., :, None] * mean[..., None, :]).mean(axis=1)
            hidden = region.hidden(UNSEEN / math.prod(mean.shape[:2]))[0].max(initial=0.0)
            size = float(seconds.mean(axis=0).diagonal().min())
            relative = float(hidden) / size if hidden else 0.0
            kept[:] = [Joint(mean, cov, normals, summands.error + relative)]
            return seconds.mean(axis=0), standard_errors(seconds)

        names = ", ".join(dict.fromkeys(name for name, _ in members))
        # mean, covariance and normals of every draw are kept, twice while they are put together
        most = self.max_memory // (16 * REPLICATES * d * (d + 2))
        if self.accuracy is None:
            most = min(most, JOINT_DRAWS)
        width = _width([block], d * d)
        self.converge(summands.dim + d - 1, replicate, finish, f"the joint law of {names}", width, aim=1e-9, most=most)
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
        # in one variable E[psi | p-ring] costs little; in several it is quicker to average over all variables at once
        quick = ConditionalAverage(self.compiler, name, box).quick
        read = name if quick else self.compiler.dot(name).left.name
        sampler = Sampler(self.compiler, {read: box}, vectors=not quick)
        width = sum(math.prod(b - a for a, b in other) for other in sampler.demand.values())

        def replicate(points: Array) -> Array:
            drawn = (plain(sampler.wanted_value(read, sampler.draw(p)), len(p)) for p in _chunks(points, width))
            return np.asarray(sum(values.sum(axis=0) for values in drawn) / len(points))

        def finish(results: Sequence[Array]) -> tuple[Array, Array]:
            inner = max((average.error for average in sampler.averages.values()), default=0.0)
            return np.mean(results, axis=0), standard_errors(results) + inner

        return self.converge(sampler.dim, replicate, finish, "the expectation", 1)

    # -- covariances --------------------------------------------------------------------------------------------

    def cov(self, first: str, second: str) -> tuple[Array, Array]:
        """Cov of two families by averaging over p-ring: E Cov(. | p) + Cov of the conditional means.

        Shapes    (*members of the first, *members of the second), value and error
        Raises    MemoryLimitError
        """
        shape = (*self.netsor.families[first].shape, *self.netsor.families[second].shape)
        if 64 * math.prod(shape) > self.max_memory:
            raise MemoryLimitError(
                f"the covariance of {first} and {second} has shape {shape}; it would not fit in max_memory"
            )
        if self.linear(first) and self.linear(second):
            return self._linear_cov(first, second, shape)
        return self._drawn_cov(first, second, shape)

    def _linear_cov(self, first: str, second: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
        names = [first] if first == second else [first, second]
        functions = [Function(self.compiler, name, self.netsor.families[name].ranges) for name in names]
        other = len(names) - 1
        summands = Summands(self.compiler, functions)
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
        width, regions = _width(blocks, math.prod(shape)), [block.region() for block in blocks]
        counted: list[int] = []

        def replicate(points: Array) -> list[tuple[Array, Array, Array]]:
            sums: list[Any] = [(0.0, 0.0, 0.0)] * len(blocks)
            for part in _chunks(points, width):
                for k, (block, own) in enumerate(zip(blocks, _columns(blocks, part), strict=True)):
                    total, one, two = sums[k]
                    more, m, n = _seconds(block, own, other, shape)
                    sums[k] = total + more.sum(axis=0), one + m.sum(axis=0), two + n.sum(axis=0)
            counted.append(len(points))
            return [(total / len(points), one / len(points), two / len(points)) for total, one, two in sums]

        def finish(results: Sequence[list[tuple[Array, Array, Array]]]) -> tuple[Array, Array]:
            value: Any = known
            for k, block in enumerate(blocks):
                means: list[Any] = [sum(r[k][x] for r in results) / len(results) for x in range(3)]
                value = value + block.count * _centred(*means)
            each = [
                np.asarray(sum(block.count * _centred(*own) for block, own in zip(blocks, r, strict=True)))
                for r in results
            ]
            error = standard_errors(each) + wrong + summands.error * np.abs(value)
            unseen = UNSEEN / (counted[-1] * len(results))
            for block, region in zip(blocks, regions, strict=True):
                error = error + block.count * _spread_over(block, region.hidden(unseen)[0], other, shape)
            return value, error

        dim = sum(block.sampler.dim for block in blocks)
        return self.converge(dim, replicate, finish, _covariance(first, second), width, aim=FINE_AIM)

    def _cov_by_rule(
        self, block: Block, rule: Quadrature, other: int, shape: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """A block's covariance by two rules, and its error."""
        each = []
        for points, weights in zip(rule.points, rule.weights, strict=True):
            total: Any = 0.0
            one: Any = 0.0
            two: Any = 0.0
            step = len(_chunks(points, _width([block], math.prod(shape)))[0])
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

    def _drawn_cov(self, first: str, second: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
        boxes = {name: self.netsor.families[name].ranges for name in (first, second)}
        sampler = Sampler(self.compiler, boxes)
        demanded = sum(math.prod(b - a for a, b in box) for box in sampler.demand.values())
        width = max(math.prod(shape), demanded)

        def replicate(points: Array) -> tuple[Array, Array, Array]:
            total = one = two = np.zeros(())
            for part in _chunks(points, width):
                values = sampler.draw(part)
                left, right = (
                    plain(sampler.wanted_value(name, values), len(part)).reshape(len(part), -1)
                    for name in (first, second)
                )
                total = total + (left.T @ right).reshape(shape)
                one, two = one + left.sum(axis=0), two + right.sum(axis=0)
            return total / len(points), (one / len(points))[None], (two / len(points))[None]

        def finish(results: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array]:
            value = _centred(*(np.mean([r[x] for r in results], axis=0) for x in range(3)))
            return value, standard_errors(np.stack([_centred(*r) for r in results]))

        return self.converge(sampler.dim, replicate, finish, _covariance(first, second), width)


def _by_rule(block: Block, rule: Quadrature) -> Summand:
    """The first function of a block at the nodes of both rules."""
    shape = (block.size, *block.functions[0].members)
    if rule.panels is not None:
        own = rule.panels.reshaped(slice(0, math.prod(shape)), shape)
        mean, var, weights = own.sets()
        return Summand(mean, var, weights, block.count, own)
    each = []
    for points in rule.points:
        pieces = []
        for part in _chunks(points, _width([block], math.prod(shape))):
            pieces.append(block.conditional(part))
        each.append([np.concatenate([p[k] for p in pieces]) for k in (0, 1)])
    return Summand(_stacked([e[0] for e in each]), _stacked([e[1] for e in each]), _stacked(rule.weights), block.count)


def _seconds(block: Block, points: Array, other: int, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
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


def _spread_over(block: Block, slack: Array, other: int, shape: tuple[int, ...]) -> Array:
    """Slack of covariances from that of second moments, by Cauchy and Schwarz.

    Shapes    slack (numbers,), of one function after the other -> shape
    """
    sizes = [block.size * math.prod(f.members) for f in block.functions]
    parts = np.split(slack, np.cumsum(sizes)[:-1])
    roots = [np.sqrt(part.reshape(block.size, -1).sum(axis=0)) for part in (parts[0], parts[other])]
    return np.asarray(np.multiply.outer(*roots).reshape(shape))


def _agree(one: tuple[Array, Array], two: tuple[Array, Array]) -> bool:
    """Whether two numbers agree within twice three of their standard errors."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(one[0] - two[0]) > 2 * (one[1] + two[1]) + 1e-12 * np.abs(one[0])
    return not apart.any()


def _relative(mixture: Mixture, blocks: Sequence[Block], hidden: Sequence[tuple[Array, Array]]) -> float:
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


def _columns(blocks: Sequence[Block], points: Array) -> list[Array]:
    """The columns of points that belong to each block."""
    ends = np.cumsum([block.sampler.dim for block in blocks])
    return np.split(points, ends[:-1], axis=1)


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


def _width(blocks: Sequence[Block], results: int) -> int:
    """Numbers that one draw takes."""
    demanded = [math.prod(b - a for a, b in box) for block in blocks for box in block.sampler.demand.values()]
    return max(results, sum(demanded), 1)


def _chunks(points: Array, width: int) -> list[Array]:
    step = max(1, CHUNK_NUMBERS // max(1, width))
    return [points[start : start + step] for start in range(0, len(points), step)]

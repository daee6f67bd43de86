"""Variables given draws of all that is random: their means and covariances, which `Outputs` averages.

Behind one layer of scores, vectors that are linear have both in closed form.  Behind several layers, or of widths that
stay finite, the recursion computes them for each draw.  What is not known given the draws is drawn itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import NotCompiledError
from tensorprog.language.evaluate import Open
from tensorprog.language.ir import MatMul
from tensorprog.language.schedule import upstream
from tensorprog.limit.draw.layers import Conditioned, Layers
from tensorprog.limit.draw.sampler import Sampler, without_coordinates
from tensorprog.limit.form.definitions import Box, place
from tensorprog.limit.form.sums_of_functions import WeightedFunction
from tensorprog.limit.law.averaging import MIN_LOG2
from tensorprog.limit.law.summands import Displacement, LinearVector, ScoreBlock, Summands
from tensorprog.limit.memory import need, numbers_at_once
from tensorprog.limit.moment.compilable import bases_of
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["DrawSource", "Given", "OneLayer", "ScoreBlocks", "SeveralLayers", "is_linear"]

Array = NDArray[Any]
Member = tuple[str, Box]  # a variable: members of a family in a box
CHUNK_NUMBERS = 1 << 18  # held at once while draws behind one layer are evaluated
NUMBERS = 1 << 26  # behind several layers: more, since every piece compiles again


def is_linear(recursion: NumericRecursion, name: str) -> bool:
    """Whether a vector is linear in Gaussian variables given the draws, so conditionally Gaussian."""
    vector = recursion.netsor.families[name].kind == "vector" and not recursion.is_finite(name)
    return vector and all(map(recursion.parts.gaussian, recursion.parts.last(name)))


class DrawSource(ABC):
    """Where draws come from, and what is known of variables given them.

    `first` is log2 of how many draws a replicate takes at first, `joined` whether those of several replicates are
    worked on together, `dim` the standard normals of one draw, `relative` the largest relative error of the moments
    used so far, `inner` the largest error of the averages drawn so far.
    """

    first = MIN_LOG2
    joined = False
    relative = 0.0
    inner = 0.0
    dim: int

    def __init__(self) -> None:
        self._off: dict[tuple[str, int, int], Array] = {}

    @abstractmethod
    def at(self, points: Array) -> AbstractContextManager[Any]:
        """The variables given the draws at points (draws, dim): a `Given`, or blocks with their points."""

    @abstractmethod
    def numbers(self, results: int) -> int:
        """Numbers that one draw takes, of which `results` are wanted."""

    @property
    def working(self) -> int:
        """Numbers held at once for one draw, about."""
        return self.numbers(1)

    def draws_at_once(self, results: int, what: str) -> int:
        """Draws that are worked on at once."""
        return max(1, CHUNK_NUMBERS // self.numbers(results))

    def hidden(self, mass: float) -> float:
        """Most that a set of that mass, wherever it hides, can add to a second moment, as far as that is known."""
        return 0.0

    def note(self, kind: str, k: int, m: int, error: Array) -> None:
        """Remember the error of the average of a mean or covariance given the draws, the largest of some pieces."""
        self._off[kind, k, m] = np.maximum(self._off.get((kind, k, m), 0.0), error)

    def off(self, kind: str, k: int = 0, m: int = 0) -> Array:
        """The errors noted: of "mean", "var" or "cov" of variables by their numbers.

        Shapes    (*members of k) or (*members of k, *members of m), or one number for all
        """
        return self._off.get((kind, k, m), np.zeros(()))

    @property
    def displaced(self) -> tuple[Array, Array]:
        """What errors do to means and variances beside `relative`: see `summands.Displacement`."""
        return np.zeros(()), np.zeros(())


class ScoreBlocks(DrawSource):
    """The normals of several independent blocks, side by side."""

    def __init__(self, blocks: Sequence[ScoreBlock]) -> None:
        super().__init__()
        self.blocks, self.dim = blocks, sum(block.sampler.dim for block in blocks)

    @contextmanager
    def at(self, points: Array) -> Iterator[list[tuple[ScoreBlock, Array]]]:
        """Each block with its columns of the points."""
        ends = np.cumsum([block.sampler.dim for block in self.blocks])
        yield list(zip(self.blocks, np.split(points, ends[:-1], axis=1), strict=True))

    def numbers(self, results: int) -> int:
        """Numbers that one draw takes, of which `results` are wanted."""
        return max(results, sum(block.sampler.demanded for block in self.blocks), 1)


class OneLayer(DrawSource):
    """Given the scores of the only layer: linear vectors by closed forms; other variables as draws of themselves."""

    def __init__(self, recursion: NumericRecursion, variables: Sequence[Member], vectors: bool = True) -> None:
        super().__init__()
        self.names = [name for name, _ in variables]
        self.block: ScoreBlock | None = None
        if all(is_linear(recursion, name) for name in self.names):
            (self.block,) = Summands(recursion, [LinearVector(recursion, *each) for each in variables], False).blocks
        self.sampler = Sampler(recursion, dict(variables), vectors) if self.block is None else self.block.sampler
        self.dim = self.sampler.dim
        self._displacement = Displacement(self.sampler, self._values)

    @contextmanager
    def at(self, points: Array) -> Iterator[_GivenScores]:
        """The variables given the draws."""
        yield _GivenScores(self, points)
        self.relative = self.sampler.rounding
        self.inner = self.sampler.inner

    def numbers(self, results: int) -> int:
        """Numbers that one draw takes, of which `results` are wanted."""
        return max(results, self.sampler.demanded, 1)

    @property
    def displaced(self) -> tuple[Array, Array]:
        """What errors do to the variables, one after the other."""
        return (self._displacement if self.block is None else self.block.displacement).found

    def _values(self, values: Mapping[str, Open], draws: int) -> tuple[Array, Array]:
        """All variables, which have no variances given the draws."""
        wanted = (self.sampler.wanted_value(name, values) for name in self.names)
        found = np.concatenate([without_coordinates(each, draws).reshape(draws, -1) for each in wanted], axis=1)
        return found, np.zeros(found.shape)

    def hidden(self, mass: float) -> float:
        """Most that a set of that mass can add to a second moment."""
        return 0.0 if self.block is None else float(self.block.region.hidden(mass)[0].max(initial=0.0))


class _GivenScores:
    """Variables given draws of the scores of one layer, by their numbers in the order in which they were asked for."""

    def __init__(self, source: OneLayer, points: Array) -> None:
        self.source, self.draws = source, len(points)
        self.values = source.sampler.draw(points)

    def gaussian(self) -> tuple[Array, ...]:
        """Means and variances of the first variable where it is Gaussian given the draws, else values of it alone.

        Shapes    each (draws, *members)
        """
        if self.source.block is None:
            return (self.mean(0),)
        return self.mean(0), self.source.block.var(0, self.values, self.draws)[:, 0]

    def mean(self, k: int) -> Array:
        """Means of a variable given the draws, or values of it.

        Shapes    (draws, *members)
        """
        if self.source.block is None:
            return without_coordinates(self.source.sampler.wanted_value(self.source.names[k], self.values), self.draws)
        return self.source.block.mean(k, self.values, self.draws)[:, 0]

    def cov(self, k: int, m: int) -> Array | None:
        """Covariances given the draws; None where they are 0, as of values.

        Shapes    (draws, *members of k, *members of m)
        """
        return None if self.source.block is None else self.source.block.cov(k, m, self.values, self.draws)


class SeveralLayers(DrawSource):
    """Given draws of all that is random: vectors of infinite width by the moments that the recursion has for each draw.

    Scores are Gaussian given what their operands are made from, of finite width given one of the operands, where all
    variables are scores, or depend on none.  Of vectors that are not Gaussian given the draws, those `by_parts` are
    sums of a Gaussian part and of others, independent of it, that are drawn.

    Raises    NotCompiledError for scores over finite widths, or behind one another, if these are `together`
    """

    first, joined = 10, True  # fewer cost as much, since every piece compiles again

    def __init__(
        self, recursion: NumericRecursion, variables: Sequence[Member], by_parts: bool = False, joint: bool = False
    ) -> None:
        super().__init__()
        self.recursion, self.netsor, self.variables = recursion, recursion.netsor, variables
        names = dict.fromkeys(name for name, _ in variables)
        scores = [name for name in names if name in recursion.scores]
        apart = not any(name in recursion.random for name in names if name not in scores)
        self.scores = frozenset(scores if apart and self._follow(scores) else ())
        operands = self._operands(scores)
        if joint and (set(scores) & upstream(self.netsor, operands) or any(map(recursion.is_finite, operands))):
            raise NotCompiledError(
                f"{', '.join(sorted(scores))}: joint laws of scores over finite widths, or of scores behind one "
                "another, are not computed yet; law.sample draws them"
            )
        self.gaussian: Sequence[WeightedFunction] = ()
        self.others: Sequence[WeightedFunction] = ()
        if by_parts and self.has_moments(variables[0][0]):
            self._take_apart(variables[0][0])
        wanted = {*self._operands(self.scores), *(name for name in names if name not in self.scores)}
        self.layers = Layers(recursion, wanted, bases_of(self.others))
        self.dim = self.layers.dim

    def numbers(self, results: int) -> int:
        """Numbers that one draw takes, of which `results` are wanted."""
        return self.layers.width

    @property
    def working(self) -> int:
        """See `DrawSource.working`."""
        return self.layers.working

    def draws_at_once(self, results: int, what: str) -> int:
        """See `DrawSource.draws_at_once`: a power of 2."""
        need(self.layers.working, f"one draw of {what}, with all the moments that it needs,")
        return 1 << max(0, (numbers_at_once(NUMBERS, 1) // (self.layers.working + results)).bit_length() - 1)

    @contextmanager
    def at(self, points: Array) -> Iterator[_GivenLayers]:
        """The variables given the draws."""
        found = self.layers.at(points)
        yield _GivenLayers(self, found)
        self.relative, self.inner = max(self.relative, found.relative), self.layers.inner
        found.forget()

    def has_moments(self, name: str) -> bool:
        """Whether moments given the draws are known: vectors of infinite width."""
        return self.netsor.families[name].kind == "vector" and not self.recursion.is_finite(name)

    def _take_apart(self, name: str) -> None:
        """The parts of a vector that are Gaussian given the draws, if they are independent of the others, and these."""
        parts = self.recursion.parts.last(name)
        gaussian = [part for part in parts if self.recursion.parts.gaussian(part)]
        others = [part for part in parts if not self.recursion.parts.gaussian(part)]
        one, two = ({self.recursion.parts.source(base) for base in bases_of(own)} for own in (gaussian, others))
        several = parts is not self.recursion.parts.of(name)  # whose steps have parts of their own
        self.gaussian, self.others = ((), parts) if one & two or (several and others) else (gaussian, others)

    # -- scores ---------------------------------------------------------------------------------------------------

    def _follow(self, scores: Sequence[str]) -> bool:
        """Whether the covariances of scores, given what their operands are made from, follow from clause (iv).

        Over a finite width, where weights may be used again: of products with two weights, new to all the operands.
        """
        finite = [name for name in scores if self.recursion.is_finite(self.recursion.dot(name).left.name)]
        used = {product.weight.name for name in upstream(self.netsor, self._inputs(scores))
                for product in self._products(name)}  # fmt: skip
        for name in finite:
            weights = [product.weight.name for operand in self._operands([name]) for product in self._products(operand)]
            if len(weights) != 2 or weights[0] == weights[1] or used & set(weights):
                return False
        return True

    def _operands(self, scores: Iterable[str]) -> list[str]:
        """Both operands of each score."""
        dots = [self.recursion.dot(name) for name in scores]
        return [reference.name for dot in dots for reference in (dot.left, dot.right)]

    def _inputs(self, scores: Iterable[str]) -> set[str]:
        """What the operands of scores are made from."""
        families, body = self.netsor.families, self.netsor.body
        positions = [position for name in self._operands(scores) for position in families[name].statements]
        return {reference.name for position in positions for reference in body[position].inputs}

    def _products(self, name: str) -> list[MatMul]:
        statements = (self.netsor.body[position] for position in self.netsor.families[name].statements)
        return [statement for statement in statements if isinstance(statement, MatMul)]


class _GivenLayers:
    """The same given draws of several layers."""

    def __init__(self, source: SeveralLayers, found: Conditioned) -> None:
        self.source, self.found, self.draws = source, found, found.normals.draws
        self._gaussian: tuple[Array, ...] | None = None
        self._means: dict[int, Array] = {}
        self._covs: dict[tuple[int, int], Array | None] = {}

    def part(self, own: slice) -> _PartOfLayers:
        """The same of some of the draws."""
        return _PartOfLayers(self, own)

    def gaussian(self) -> tuple[Array, ...]:
        """See `_GivenScores.gaussian`."""
        self._gaussian = self._gaussian or self._halves()
        return self._gaussian

    def mean(self, k: int) -> Array:
        """See `_GivenScores.mean`."""
        if k not in self._means:
            self._means[k] = self._mean(k)
        return self._means[k]

    def cov(self, k: int, m: int) -> Array | None:
        """See `_GivenScores.cov`."""
        if (k, m) not in self._covs:
            self._covs[k, m] = self._cov(k, m)
        return self._covs[k, m]

    def _halves(self) -> tuple[Array, ...]:
        source, (name, box) = self.source, self.source.variables[0]
        if name in source.scores:
            finite = source.recursion.is_finite(source.recursion.dot(name).left.name)
            var = (self.found.score_variances if finite else self.found.variances)(name, box)
            source.note("var", 0, 0, self.found.wrong)
            return np.zeros_like(var), var
        if not source.has_moments(name):
            return (self.mean(0),)
        if not source.others:
            mean, var = self.mean(0), self.found.variances(name, box)
            source.note("var", 0, 0, self.found.wrong)
            return mean, var
        if source.gaussian:
            mean, var = self.found.halves(source.gaussian, source.others, name, box)
            for kind, error in zip(("mean", "var"), self.found.wrong, strict=True):
                source.note(kind, 0, 0, error)
            return mean, var
        return (self._drawn(name, box),)

    def _mean(self, k: int) -> Array:
        name, box = self.source.variables[k]
        if name in self.source.scores:
            return np.zeros((self.draws, *(stop - start for start, stop in box)))
        if not self.source.has_moments(name):
            return self._drawn(name, box)
        found = self.found.means(name, box)
        self.source.note("mean", k, k, self.found.wrong)
        return found

    def _cov(self, k: int, m: int) -> Array | None:
        (one, first), (two, second) = (self.source.variables[number] for number in (k, m))
        both_scores = one in self.source.scores and two in self.source.scores
        if both_scores or (self.source.has_moments(one) and self.source.has_moments(two)):
            found = self.found.covariances(one, two, first, second)
            self.source.note("cov", k, m, self.found.wrong)
            return found
        return None

    def _drawn(self, name: str, box: Box) -> Array:
        values = without_coordinates(self.source.layers.drawn(self.found, name), self.draws)
        return values[(slice(None), *place(box, self.source.netsor.families[name].ranges))]


class _PartOfLayers:
    """The same of some draws."""

    def __init__(self, whole: _GivenLayers, own: slice) -> None:
        self.whole, self.own, self.draws = whole, own, own.stop - own.start

    def gaussian(self) -> tuple[Array, ...]:
        """See `_GivenScores.gaussian`."""
        return tuple(part[self.own] for part in self.whole.gaussian())

    def mean(self, k: int) -> Array:
        """See `_GivenScores.mean`."""
        return self.whole.mean(k)[self.own]

    def cov(self, k: int, m: int) -> Array | None:
        """See `_GivenScores.cov`."""
        found = self.whole.cov(k, m)
        return None if found is None else found[self.own]


Given = _GivenScores | _GivenLayers | _PartOfLayers

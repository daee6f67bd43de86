"""Laws of variables behind several layers of scores, or finite widths: averages over draws, each with its own moments.

Given the draws, vectors that are linear are Gaussian, with means and covariances of the compiler; those of other
vectors are known as well.  A score is Gaussian given all that is upstream of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.qmc import standard_errors
from tensorprog.language.errors import MemoryLimitError, NotCompiledError
from tensorprog.language.ir import MatMul
from tensorprog.language.schedule import upstream
from tensorprog.limit.draw.conditioned import Conditioned
from tensorprog.limit.draw.layers import ARRAYS, Layers
from tensorprog.limit.draw.sampler import plain
from tensorprog.limit.form.definitions import Box, place
from tensorprog.limit.form.sums_of_functions import Part
from tensorprog.limit.law.averaging import Rule
from tensorprog.limit.law.joint import Joint
from tensorprog.limit.law.mixture import Mixture, Summand
from tensorprog.limit.law.outputs import Outputs
from tensorprog.limit.memory import need, pieces
from tensorprog.limit.moment.compilable import bases_of
from tensorprog.limit.moment.replicates import REPLICATES

__all__ = ["LayeredOutputs"]

Array = NDArray[Any]
Read = Callable[[Layers, Conditioned], tuple[Array, ...]]
JOINT_DRAWS = 1 << 11  # per replicate
FIRST = 10  # log2 of the draws per replicate at first: fewer cost as much, since every part compiles again
NUMBERS = 1 << 22  # held at once, about: more than elsewhere, since every part compiles again


class LayeredOutputs(Outputs):
    """As `Outputs`; every average is over draws of all that is random.

    Accuracy  99.9 % of errors over replicates hold, and the error of the covariances drawn with
    """

    def linear(self, name: str) -> bool:
        """Whether a vector is Gaussian given the draws."""
        return super().linear(name) and not self.compiler.is_finite(name)

    def _averaged(
        self, names: Collection[str], read: Read, finish: Callable[[Sequence[tuple[Array, ...]], float], Any],
        what: str, numbers: int = 1, bases: Collection[str] = (), extra: int = 0, most: int | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Values read for all draws of each replicate, made a number with its error by `finish`.

        `numbers` are those kept of a draw; `extra` normals are drawn besides and come last.
        """
        layers = Layers(self.compiler, names, bases)
        together = pieces(NUMBERS, ARRAYS)
        need(ARRAYS * layers.width, f"one draw of {what}, with all the moments that it needs,")
        size = 1 << max(0, (together // max(layers.width, numbers)).bit_length() - 1)  # equal parts
        relative = 0.0

        def replicate(points: Array) -> tuple[Array, ...]:
            nonlocal relative
            pieces = []
            for start in range(0, len(points), size):
                part = points[start : start + size]
                found = layers.at(part[:, : layers.dim])
                pieces.append((*read(layers, found), part[:, layers.dim :]))
                relative = max(relative, found.relative)
                found.forget()
            return tuple(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))

        if most is None:
            most = self.max_memory // (64 * REPLICATES * max(1, numbers))
        return self.converge(
            layers.dim + extra,
            replicate,
            lambda results: finish(results, relative),
            what,
            layers.width,
            most=most,
            first=FIRST,
        )

    # -- one variable ---------------------------------------------------------------------------------------------

    def mixture(self, name: str, box: Box, split: bool = True, dense: bool = False) -> Mixture:
        """Conditional means and variances of members: of the whole, of the parts that are Gaussian given the draws and
        independent of the others, which are drawn, or draws alone."""
        if not self._moments(name):
            return self._mixed(name, box, lambda layers, found: self._drawn(layers, found, name, box), smoothed=True)
        gaussian, others = self._halves(name)
        if not others:
            return self._mixed(name, box, lambda _, found: (found.means(name, box), found.variances(name, box)))
        bases = bases_of(others)
        if gaussian:
            return self._mixed(name, box, lambda _, found: found.halves(gaussian, others, name, box), bases)
        return self._mixed(name, box, lambda layers, found: self._drawn(layers, found, name, box), bases, smoothed=True)

    def _halves(self, name: str) -> tuple[Sequence[Part], Sequence[Part]]:
        """The parts of a vector that are Gaussian given the draws, if they are independent of the others, and these."""
        parts = self.compiler.parts.of(name)
        gaussian = [part for part in parts if self.compiler.parts.gaussian(part)]
        others = [part for part in parts if not self.compiler.parts.gaussian(part)]
        sources = [{self.compiler.parts.source(name) for name in bases_of(own)} for own in (gaussian, others)]
        return ((), parts) if sources[0] & sources[1] else (gaussian, others)

    def score_mixture(self, name: str, box: Box) -> Mixture:
        """Scores are Gaussian given what their operands depend on; of finite width, given one of the operands."""
        operands = self._operands([name])
        finite = self.compiler.is_finite(operands[0])
        if not self._scores(name):
            return self._mixed(name, box, lambda layers, found: self._drawn(layers, found, name, box), smoothed=True)

        def read(_: Layers, found: Conditioned) -> tuple[Array, Array]:
            var = found.score_variances(name, box) if finite else found.variances(name, box)
            return np.zeros_like(var), var

        return self._mixed(name, box, read, wanted=operands)

    def _drawn(self, layers: Layers, found: Conditioned, name: str, box: Box) -> tuple[Array, Array]:
        family = self.netsor.families[name]
        values = plain(layers.drawn(found, name), found.normals.draws)[(slice(None), *place(box, family.ranges))]
        return values, np.zeros_like(values)

    def _mixed(
        self, name: str, box: Box, read: Read, bases: Collection[str] = (), *, smoothed: bool = False,
        wanted: Collection[str] = (),
    ) -> Mixture:  # fmt: skip
        members = tuple(b - a for a, b in box)
        kept: list[Mixture] = []

        def finish(results: Sequence[tuple[Array, ...]], relative: float) -> tuple[Array, Array]:
            mean, var = (np.stack([r[k] for r in results])[:, :, None] for k in (0, 1))
            weights = np.full(mean.shape[:2], 1 / mean.shape[1])
            zero = np.zeros(members)
            kept[:] = [Mixture((Summand(mean, var, weights),), zero, zero, relative, smoothed, Rule())]
            return kept[0].standardised(4)

        self._averaged(wanted or {name}, read, finish, f"the law of {name}", math.prod(members), bases)
        return kept[0]

    # -- several --------------------------------------------------------------------------------------------------

    def joint(self, members: Sequence[tuple[str, Box]]) -> Joint:
        """The joint law of single members: linear vectors, and scores, given what their operands are made from.

        Raises    NotCompiledError for scores over a finite width, or behind one another
        """
        d = len(members)
        kept: list[Joint] = []
        scores = {name for name, _ in members if name in self.compiler.scores}
        operands = self._operands(scores)
        if scores & upstream(self.netsor, operands) or any(map(self.compiler.is_finite, operands)):
            raise NotCompiledError(
                f"{', '.join(sorted(scores))}: joint laws of scores over finite widths, or of scores behind one "
                "another, are not compiled by this version; draw them with law.sample"
            )

        def read(_: Layers, found: Conditioned) -> tuple[Array, Array]:
            zero = np.zeros(found.normals.draws)

            def cov(one: tuple[str, Box], two: tuple[str, Box]) -> Array:
                if (one[0] in scores) != (two[0] in scores):  # of a score and a vector that no score reaches
                    return zero
                return found.covariances(one[0], two[0], one[1], two[1]).reshape(zero.shape)

            mean = [zero if name in scores else found.means(name, box).reshape(zero.shape) for name, box in members]
            covs = np.array([[cov(one, two) for two in members] for one in members])
            return np.stack(mean, axis=-1), np.moveaxis(covs, -1, 0)

        def finish(results: Sequence[tuple[Array, ...]], relative: float) -> tuple[Array, Array]:
            mean, cov, normals = (np.stack([r[k] for r in results]) for k in range(3))
            kept[:] = [Joint(mean, cov, normals, relative)]
            seconds = (cov + mean[..., :, None] * mean[..., None, :]).mean(axis=1)
            return seconds.mean(axis=0), standard_errors(seconds)

        names = ", ".join(dict.fromkeys(name for name, _ in members))
        most = JOINT_DRAWS if self.accuracy is None else None
        wanted = {*operands, *(name for name, _ in members if name not in scores)}
        self._averaged(wanted, read, finish, f"the joint law of {names}", d * d, extra=d - 1, most=most)
        return kept[0]

    def expectation(self, name: str, box: Box) -> tuple[Array, Array]:
        """Mean over all draws of a random average, and its error."""

        def read(_: Layers, found: Conditioned) -> tuple[Array, ...]:
            error = float(np.max(found.average(name).estimate.error, initial=0.0))
            return found.means(name, box).mean(axis=0)[None], np.full((1,), error)

        def finish(results: Sequence[tuple[Array, ...]], _: float) -> tuple[Array, Array]:
            each = [r[0].mean(axis=0) for r in results]
            return np.mean(each, axis=0), standard_errors(each) + np.max([r[1].max() for r in results])

        return self._averaged({name}, read, finish, "the expectation")

    # -- covariances ----------------------------------------------------------------------------------------------

    def cov(self, first: str, second: str) -> tuple[Array, Array]:
        """E Cov(. | draws) + Cov of the means given the draws."""
        shapes = [self.netsor.families[name].shape for name in (first, second)]
        if 64 * math.prod((*shapes[0], *shapes[1])) > self.max_memory:
            raise MemoryLimitError(
                f"the covariance of {first} and {second} has shape {(*shapes[0], *shapes[1])}; it would not fit in "
                "max_memory"
            )
        boxes = [self.netsor.families[name].ranges for name in (first, second)]
        scores = self._scores(first, second)
        names = set(self._operands([first, second])) if scores else {first, second}

        def read(layers: Layers, found: Conditioned) -> tuple[Array, ...]:
            draws = found.normals.draws
            if scores:
                zero = np.zeros((1, 1))
                return found.covariances(first, second).mean(axis=0)[None], zero, zero
            means = [self._mean(layers, found, name, box) for name, box in zip((first, second), boxes, strict=True)]
            one, two = (mean.reshape(draws, -1) for mean in means)
            total = (one.T @ two).reshape((*shapes[0], *shapes[1])) / draws
            if all(self._moments(name) for name in (first, second)):
                total = total + found.covariances(first, second).mean(axis=0)
            return total[None], one.mean(axis=0)[None], two.mean(axis=0)[None]

        def finish(results: Sequence[tuple[Array, ...]], relative: float) -> tuple[Array, Array]:
            each = [[r[k].mean(axis=0) for k in range(3)] for r in results]

            def centred(total: Array, one: Array, two: Array) -> Array:
                return total if scores else total - np.multiply.outer(one, two).reshape(total.shape)

            value = centred(*(np.mean([e[k] for e in each], axis=0) for k in range(3)))
            return value, standard_errors([centred(*e) for e in each]) + relative * np.abs(value)

        numbers = math.prod((*shapes[0], *shapes[1]))
        return self._averaged(names, read, finish, f"the covariance of {first} and {second}", numbers)

    def _scores(self, *names: str) -> bool:
        """Whether these are scores whose covariances, given what their operands are made from, follow from clause (iv).

        Over a finite width, where weights may be used again: of products with two weights, new to all the operands.
        """
        if not all(name in self.compiler.scores for name in names):
            return False
        finite = [name for name in names if self.compiler.is_finite(self.compiler.dot(name).left.name)]
        used = {product.weight.name for name in upstream(self.netsor, self._inputs(names))
                for product in self._products(name)}  # fmt: skip
        for name in finite:
            weights = [product.weight.name for operand in self._operands([name]) for product in self._products(operand)]
            if len(weights) != 2 or weights[0] == weights[1] or used & set(weights):
                return False
        return True

    def _operands(self, scores: Iterable[str]) -> list[str]:
        """Both operands of each score."""
        dots = [self.compiler.dot(name) for name in scores]
        return [reference.name for dot in dots for reference in (dot.left, dot.right)]

    def _inputs(self, scores: Iterable[str]) -> set[str]:
        """What the operands of scores are made from."""
        families, body = self.netsor.families, self.netsor.body
        positions = [position for name in self._operands(scores) for position in families[name].statements]
        return {reference.name for position in positions for reference in body[position].inputs}

    def _products(self, name: str) -> list[MatMul]:
        statements = (self.netsor.body[position] for position in self.netsor.families[name].statements)
        return [statement for statement in statements if isinstance(statement, MatMul)]

    def _moments(self, name: str) -> bool:
        """Whether moments given the draws are known: vectors of infinite width."""
        return self.netsor.families[name].kind == "vector" and not self.compiler.is_finite(name)

    def _mean(self, layers: Layers, found: Conditioned, name: str, box: Box) -> Array:
        if self._moments(name):
            return found.means(name, box)
        return self._drawn(layers, found, name, box)[0]

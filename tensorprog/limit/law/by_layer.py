"""What tokens are in every layer of a program, given draws of all that is random: Gram matrices and plain moments.

The layers of z[t,i] are the values of one of its indices, the tokens those of another; further indices are kept apart.
A program without scores has one Gram matrix in each layer; behind scores there is one for each draw, and what is
averaged over draws is up to the reader.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import REPLICATES, point_sets
from tensorprog.language.errors import NotCompiledError
from tensorprog.language.evaluate import align
from tensorprog.language.expr import Affine
from tensorprog.limit.draw.conditioned import Conditioned
from tensorprog.limit.law.conditional_moments import DrawSource, is_linear, pieces
from tensorprog.limit.law.law import NumericLaw
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import REPLICATE, PassedError

__all__ = ["Axes", "LayerDraws", "LayerMoments", "ordered"]

Array = NDArray[Any]
TINY = 1e-300


@dataclass(frozen=True)
class Axes:
    """A family whose members are tokens in layers: the places of both indices; `token` is None for a single vector."""

    name: str
    layer: int
    token: int | None


@dataclass(frozen=True)
class LayerMoments:
    """What is known of the tokens given each of some draws of a replicate.

    Shapes    gram (draws, layers, others, tokens, tokens); raw (orders, draws, layers, others, tokens) are plain
              moments, None where they are not known; relative (2, layers) are errors of Gram matrices beside the sizes
              of the tokens, on the diagonal and of all entries, averaged over draws; each of scalars, and of
              their errors, (draws, *members)
    """

    replicate: int
    gram: Array
    raw: Array | None
    relative: Array
    scalars: dict[str, Array] = field(default_factory=dict)
    errors: dict[str, Array] = field(default_factory=dict)


class LayerDraws:
    """Moments of tokens in all layers, given draws in replicates, or once where nothing is random.

    Points of the same `seed` are the same whatever the constants of the program, as long as they do not change sizes:
    curves over constants are as smooth as the moments.
    """

    def __init__(
        self, law: NumericLaw, axes: Axes, scalars: Sequence[str], seed: int = 0, moments: bool = True
    ) -> None:
        self.law, self.axes, self.scalars, self.seed = law, axes, tuple(scalars), seed
        self.recursion: NumericRecursion = law.recursion
        self.random = bool(self.recursion.random & {axes.name, *scalars})
        self.has_moments = moments  # beyond the second
        if self.random:
            ranges = law.compiled.families
            self._wanted = [(name, ranges[name].ranges) for name in (axes.name, *scalars)]
            self.source = self._source()

    def _source(self, passing: str = "") -> DrawSource:
        return DrawSource(self.recursion, self._wanted, by_values=self.has_moments, passing=passing)

    def replicates(self, draws: int, count: int = REPLICATES) -> Iterator[LayerMoments]:
        """The moments of replicates of so many draws each, a power of 2, in pieces; of one where nothing is random."""
        if not self.random:
            yield self._known()
            return
        shape, token = self.law.compiled.families[self.axes.name].shape, self.axes.token
        results, what = math.prod(shape) * (1 if token is None else shape[token]), f"the layers of {self.axes.name}"
        if self.source.draws_at_once(results, what) < draws * count:
            self._let_pass()
        step = self.source.draws_at_once(results, what)
        sets = islice(point_sets(self.source.dim, int(math.log2(draws)), self.seed), count)
        for piece in pieces(sets, step):
            yield from self._given(piece)

    def _let_pass(self) -> None:
        """Keep moments of what is asked for alone, where each layer follows from the one before, as one draw tells.

        So twice as many layers take twice as long.
        """
        kept, self.source = self.source, self._source(self.axes.name)
        try:
            deque(self._given([(0, np.random.default_rng(0).standard_normal((1, kept.dim)))]), 0)
            self.source = self._source(self.axes.name)  # of which that draw is no part
        except PassedError:
            self.source = kept

    def _given(self, held: Sequence[tuple[int, Array]]) -> Iterator[LayerMoments]:
        """The moments at points of several replicates, all worked out at once."""
        points = np.concatenate([part for _, part in held])
        with self.source.at(points) as found:
            gram, relative = self._gram(found, len(points))
            raw = self._raw(found)
            scalars = {name: self.source.mean(found, number) for number, name in enumerate(self.scalars, 1)}
            errors = {name: self._errors(found, name, value.shape) for name, value in scalars.items()}
        relative, start = relative + self.source.relative, 0
        for number, part in held:
            own = slice(start, start := start + len(part))
            yield LayerMoments(
                number,
                gram[own],
                None if raw is None else raw[:, own],
                relative,
                {name: value[own] for name, value in scalars.items()},
                {name: error[own] for name, error in errors.items()},
            )

    def _errors(self, found: Conditioned, name: str, shape: tuple[int, ...]) -> Array:
        """Errors of scalars given the draws."""
        axes = REPLICATE, *map(str, range(len(shape) - 1))
        return np.broadcast_to(align(found.average(name).error, axes), shape)

    def _raw(self, found: Conditioned) -> Array | None:
        """Plain moments given the draws: of Gaussians, or of draws themselves."""
        if not self.has_moments:
            return None
        try:
            mean, *rest = self.source.halves(found)
        except NotCompiledError:
            self.has_moments = False
            return None
        var = rest[0] if rest else np.zeros_like(mean)
        return _of_gaussians(ordered(mean, self.axes), ordered(var, self.axes))

    def _gram(self, recursion: NumericRecursion, draws: int) -> tuple[Array, Array]:
        """E[z_i z_j] of the tokens of each layer, and how large errors are beside the sizes of the tokens."""
        name, token = self.axes.name, self.axes.token
        ranges = tuple(self.law.compiled.families[name].ranges)
        shared = [k for k in range(len(ranges)) if k != token]
        order = [self.axes.layer, *(k for k in shared if k != self.axes.layer)]
        names = {f"{k}{end}": Affine.index(f"{k}{end}" if k == token else str(k)) for k in range(len(ranges))
                 for end in ("", "_")}  # fmt: skip
        places: dict[str, NDArray[np.int64]] = {}
        for where, k in enumerate(order, 1):
            places[str(k)] = _along(np.arange(*ranges[k]), where, len(order) + 3)
        own = (0, 1) if token is None else ranges[token]
        for suffix, where in (("", len(order) + 1), ("_", len(order) + 2)) if token is not None else ():
            places[f"{token}{suffix}"] = _along(np.arange(*own), where, len(order) + 3)
        if isinstance(recursion, Conditioned):
            places[REPLICATE] = _along(np.arange(draws), 0, len(order) + 3)
        tokens, layer, grams, errors = own[1] - own[0], str(self.axes.layer), list[Array](), list[Array]()
        whole = {name: ranges[int(name.rstrip("_"))] for name in places if name != REPLICATE}
        first, last = ranges[self.axes.layer]
        recursion.ready(name)  # in the order of layers
        for start in range(first, last) if isinstance(recursion, Conditioned) else (first,):
            stop = start + 1 if isinstance(recursion, Conditioned) else last  # of draws a layer is known by itself
            local = recursion.over(whole | {layer: (start, stop)})
            at = names | ({layer: Affine((), start), f"{layer}_": Affine((), start)} if stop == start + 1 else {})
            moment = recursion.settle(recursion.between(name, name, at, local)).read(at, local)
            found = moment.at(places | {layer: _along(np.arange(start, stop), 1, len(order) + 3)})
            shape = (draws, stop - start, *(ranges[k][1] - ranges[k][0] for k in order[1:]), tokens, tokens)
            value, error = (np.broadcast_to(part, shape).reshape(draws, stop - start, -1, tokens, tokens)
                            for part in (found.value, found.error))  # fmt: skip
            root = np.sqrt(np.maximum(np.einsum("...ii->...i", value), TINY))
            relative = error / root[..., :, None] / root[..., None, :]
            own_largest = np.einsum("...ii->...i", relative).max(axis=(-2, -1))
            grams.append(value)
            errors.append(np.stack([own_largest, relative.max(axis=(-3, -2, -1))]).mean(axis=1))
        return np.concatenate(grams, axis=1), np.concatenate(errors, axis=1)

    def _known(self) -> LayerMoments:
        """The same without draws."""
        name = self.axes.name
        gram, relative = self._gram(self.recursion, 1)
        raw: Array | None = None
        if self.has_moments and is_linear(self.recursion, name):
            mean = ordered(self.law.mean(name)[None], self.axes)
            raw = _of_gaussians(mean, np.einsum("...ii->...i", gram) - mean**2)
        scalars = {scalar: self.law.number(scalar) for scalar in self.scalars}
        return LayerMoments(0, gram, raw, relative, scalars)


def ordered(values: Array, axes: Axes) -> Array:
    """Numbers of all members with the axes in order.

    Shapes    (draws, *members) -> (draws, layers, others, tokens)
    """
    tokens = [] if axes.token is None else [1 + axes.token]
    moved = np.moveaxis(values, [1 + axes.layer, *tokens], [1, *([-1] if tokens else [])])
    moved = moved if tokens else moved[..., None]
    return moved.reshape(*moved.shape[:2], -1, moved.shape[-1])


def _of_gaussians(mean: Array, var: Array) -> Array:
    """Plain moments of orders 1 to 4."""
    second = var + mean**2
    with np.errstate(over="ignore"):
        return np.stack([mean, second, mean * (second + 2 * var), second**2 + 4 * mean**2 * var + 2 * var**2])


def _along(values: NDArray[np.int64], axis: int, axes: int) -> NDArray[np.int64]:
    """One axis of several."""
    return values.reshape([-1 if place == axis else 1 for place in range(axes)])

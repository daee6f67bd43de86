"""Variables given draws of all that is random: their means and covariances, which `Outputs` averages.

The recursion computes moments for each draw.  What is not known given the draws is drawn itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import NotCompiledError
from tensorprog.language.schedule import upstream
from tensorprog.limit.draw.layers import Conditioned, Layers, without_coordinates
from tensorprog.limit.form.definitions import Box, place
from tensorprog.limit.form.sums_of_functions import WeightedFunction
from tensorprog.limit.memory import need, numbers_at_once
from tensorprog.limit.moment.compilable import bases_of
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["DrawSource", "Given", "is_linear"]

Array = NDArray[Any]
Member = tuple[str, Box]  # a variable: members of a family in a box
NUMBERS = 1 << 25  # held at once while draws are evaluated: not too few, since every piece compiles again


def is_linear(recursion: NumericRecursion, name: str) -> bool:
    """Whether a vector is linear in Gaussian variables given the draws, so conditionally Gaussian."""
    vector = recursion.netsor.families[name].kind == "vector" and not recursion.is_finite(name)
    return vector and all(map(recursion.parts.gaussian, recursion.parts.last(name)))


class DrawSource:
    """Where draws come from, and what is known of some variables given them.

    Scores over infinite widths are Gaussian given what their operands are made from, where all variables are scores, or
    depend on none.  Of vectors that are not Gaussian given the draws, those `by_parts` are
    sums of a Gaussian part and of others, independent of it, that are drawn.

    Vectors named by `drawn` are values of their own.

    `dim` standard normals make one draw; `relative` is the largest relative error of the moments used so far, `inner`
    the largest error of the averages drawn so far.

    Raises    NotCompiledError for scores over finite widths, or behind one another, if these are `joint`
    """

    def __init__(
        self, recursion: NumericRecursion, variables: Sequence[Member], by_parts: bool = False, joint: bool = False,
        drawn: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.recursion, self.netsor, self.variables = recursion, recursion.netsor, variables
        self.relative, self.inner, self._values = 0.0, 0.0, frozenset(drawn)
        self._off: dict[tuple[str, int, int], Array] = {}
        names = dict.fromkeys(name for name, _ in variables)
        scores = [name for name in names if name in recursion.scores]
        apart = not any(name in recursion.random for name in names if name not in scores)
        apart = apart and not any(map(recursion.is_finite, self._operands(scores)))
        self.scores = frozenset(scores if apart else ())
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
        whole = (part for name in drawn for part in recursion.parts.last(name))
        self.layers = Layers(recursion, wanted, bases_of([*self.others, *whole]))
        self.dim = self.layers.dim

    @property
    def width(self) -> int:
        """Numbers that one draw takes."""
        return self.layers.width

    def draws_at_once(self, results: int, what: str) -> int:
        """Draws that are worked on at once, a power of 2; `results` are the numbers kept of each."""
        need(self.layers.working, f"one draw of {what}, with all the moments that it needs,")
        return 1 << max(0, (numbers_at_once(NUMBERS, 1) // (self.layers.working + results)).bit_length() - 1)

    @contextmanager
    def at(self, points: Array) -> Iterator[Given]:
        """The variables given the draws at points (draws, dim)."""
        found = self.layers.at(points)
        yield Given(self, found)
        self.relative, self.inner = max(self.relative, found.relative), self.layers.inner
        found.forget()

    def has_moments(self, name: str) -> bool:
        """Whether moments given the draws are known: vectors of infinite width, but for those that are drawn."""
        if name in self._values:
            return False
        return self.netsor.families[name].kind == "vector" and not self.recursion.is_finite(name)

    def note(self, kind: str, k: int, m: int, error: Array) -> None:
        """Remember the error of the average of a mean or covariance given the draws, the largest of some pieces."""
        self._off[kind, k, m] = np.maximum(self._off.get((kind, k, m), 0.0), error)

    def off(self, kind: str, k: int = 0, m: int = 0) -> Array:
        """The errors noted: of "mean", "var" or "cov" of variables by their numbers.

        Shapes    (*members of k) or (*members of k, *members of m), or one number for all
        """
        return self._off.get((kind, k, m), np.zeros(()))

    def _take_apart(self, name: str) -> None:
        """The parts of a vector that are Gaussian given the draws, if they are independent of the others, and these."""
        parts = self.recursion.parts.last(name)
        gaussian = [part for part in parts if self.recursion.parts.gaussian(part)]
        others = [part for part in parts if not self.recursion.parts.gaussian(part)]
        one, two = ({self.recursion.parts.source(base) for base in bases_of(own)} for own in (gaussian, others))
        several = parts is not self.recursion.parts.of(name)  # whose steps have parts of their own
        self.gaussian, self.others = ((), parts) if one & two or (several and others) else (gaussian, others)

    def _operands(self, scores: Iterable[str]) -> list[str]:
        """Both operands of each score."""
        dots = [self.recursion.dot(name) for name in scores]
        return [reference.name for dot in dots for reference in (dot.left, dot.right)]


class Given:
    """The variables given draws, by their numbers in the order in which they were asked for."""

    def __init__(self, source: DrawSource, found: Conditioned) -> None:
        self.source, self.found, self.draws = source, found, found.normals.draws
        self._gaussian: tuple[Array, ...] | None = None
        self._means: dict[int, Array] = {}
        self._covs: dict[tuple[int, int], Array | None] = {}

    def gaussian(self) -> tuple[Array, ...]:
        """Means and variances of the first variable where it is Gaussian given the draws, else values of it alone.

        Shapes    each (draws, *members)
        """
        self._gaussian = self._gaussian or self._halves()
        return self._gaussian

    def mean(self, k: int) -> Array:
        """Means of a variable given the draws, or values of it.

        Shapes    (draws, *members)
        """
        if k not in self._means:
            self._means[k] = self._mean(k)
        return self._means[k]

    def cov(self, k: int, m: int) -> Array | None:
        """Covariances given the draws; None where they are 0, as of values.

        Shapes    (draws, *members of k, *members of m)
        """
        if (k, m) not in self._covs:
            self._covs[k, m] = self._cov(k, m)
        return self._covs[k, m]

    def _halves(self) -> tuple[Array, ...]:
        source, (name, box) = self.source, self.source.variables[0]
        if name in source.scores:
            var = self.found.variances(name, box)
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

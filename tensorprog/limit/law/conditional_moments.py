"""Variables given draws of all that is random: their means and covariances, which `Outputs` averages.

The recursion computes moments for each draw.  What is not known given the draws is drawn itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import NotCompiledError
from tensorprog.language.evaluate import broadcast
from tensorprog.language.schedule import upstream
from tensorprog.limit.draw.conditioned import Conditioned, without_coordinates
from tensorprog.limit.draw.draws import Draws
from tensorprog.limit.form.definitions import Box, place
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.memory import need, numbers_at_once
from tensorprog.limit.moment.compilable import bases_of
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import Value

__all__ = ["DrawSource", "in_box", "is_linear"]

Array = NDArray[Any]
Member = tuple[str, Box]  # a variable: members of a family in a box
NUMBERS = 1 << 25  # held at once while draws are evaluated: not too few, since every piece compiles again


def is_linear(recursion: NumericRecursion, name: str) -> bool:
    """Whether a vector is linear in Gaussian variables given the draws, so conditionally Gaussian."""
    vector = recursion.netsor.families[name].kind == "vector" and not recursion.is_finite(name)
    return vector and all(map(recursion.parts.gaussian, recursion.parts.last(name)))


def in_box(recursion: NumericRecursion, found: Value, name: str, box: Box) -> tuple[Array, Array]:
    """Numbers and errors of the members in a box, of a value over the positions of a family.

    Shapes    (*members), twice
    """
    ranges = position_names(recursion.netsor, name)
    sizes, at = {axis: stop - start for axis, (start, stop) in ranges.items()}, place(box, [*ranges.values()])
    return broadcast(found.value, tuple(ranges), sizes)[at], broadcast(found.error, tuple(ranges), sizes)[at]


class DrawSource:
    """Where draws come from, and what is known of some variables given them.

    Scores over infinite widths are Gaussian given what their operands are made from, where all variables are scores, or
    depend on none.  Vectors named by `drawn` are values of their own; `by_values`, so is the first variable, if it is
    a vector that is not Gaussian given the draws.

    `dim` standard normals make one draw; `relative` is the largest relative error of the moments used so far, `inner`
    the largest error of the averages drawn so far.  Variables go by their numbers in the order given.

    Raises    NotCompiledError for scores over finite widths, or behind one another, if these are `joint`
    """

    def __init__(
        self, recursion: NumericRecursion, variables: Sequence[Member], by_values: bool = False, joint: bool = False,
        drawn: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.recursion, self.netsor, self.variables = recursion, recursion.netsor, variables
        self.relative, self.inner, self._values = 0.0, 0.0, frozenset(drawn)
        self._off: dict[tuple[str, int, int], Array] = {}
        names = dict.fromkeys(name for name, _ in variables)
        scores = [name for name in names if name in recursion.scores]
        operands = {v.name for name in scores for v in recursion.dot(name).inputs}
        finite = any(map(recursion.is_finite, operands))
        if joint and (finite or set(scores) & upstream(self.netsor, operands)):
            raise NotCompiledError(
                f"{', '.join(sorted(scores))}: joint laws of scores over finite widths, or of scores behind one "
                "another, are not computed yet; law.sample draws them"
            )
        apart = not finite and recursion.random.isdisjoint(names.keys() - set(scores))
        self.scores = frozenset(scores if apart else ())
        first = variables[0][0]
        if by_values and self.has_moments(first) and not is_linear(recursion, first):
            self._values |= {first}
        whole = (part for name in self._values for part in recursion.parts.last(name))
        wanted = {*(operands if self.scores else ()), *(names.keys() - self.scores)}
        self.draws = Draws(recursion, wanted, bases_of(whole))
        self.dim = self.draws.dim

    def draws_at_once(self, results: int, what: str) -> int:
        """Draws that are worked on at once, a power of 2; `results` are the numbers kept of each."""
        need(self.draws.working, f"one draw of {what}, with all the moments that it needs,")
        return 1 << max(0, (numbers_at_once(NUMBERS, 1) // (self.draws.working + results)).bit_length() - 1)

    @contextmanager
    def at(self, points: Array) -> Iterator[Conditioned]:
        """The moments given the draws at points (draws, dim)."""
        found = self.draws.at(points)
        yield found
        self.relative, self.inner = max(self.relative, found.relative), self.draws.inner
        found.forget()

    def has_moments(self, name: str) -> bool:
        """Whether moments given the draws are known: vectors of infinite width, but for those that are drawn."""
        if name in self._values:
            return False
        return self.netsor.families[name].kind == "vector" and not self.recursion.is_finite(name)

    def _note(self, kind: str, k: int, m: int, error: Array) -> None:
        """Remember the error of the average of a mean or covariance given the draws, the largest of some pieces."""
        self._off[kind, k, m] = np.maximum(self._off.get((kind, k, m), 0.0), error)

    def off(self, kind: str, k: int = 0, m: int = 0) -> Array:
        """The errors noted: of "mean", "var" or "cov" of variables by their numbers.

        Shapes    (*members of k) or (*members of k, *members of m), or one number for all
        """
        return self._off.get((kind, k, m), np.zeros(()))

    # -- given draws ----------------------------------------------------------------------------------------------

    def halves(self, found: Conditioned) -> tuple[Array, ...]:
        """Means and variances of the first variable where it is Gaussian given the draws, else values of it alone.

        Shapes    each (draws, *members)
        """
        name, box = self.variables[0]
        if name not in self.scores and not self.has_moments(name):
            return (self._drawn(found, name, box),)
        mean, var = self.mean(found, 0), found.variances(name, box)
        self._note("var", 0, 0, found.wrong)
        return mean, var

    def mean(self, found: Conditioned, k: int) -> Array:
        """Means of a variable given the draws, or values of it.

        Shapes    (draws, *members)
        """
        name, box = self.variables[k]
        if name in self.scores:
            return np.zeros((found.normals.draws, *(stop - start for start, stop in box)))
        if not self.has_moments(name):
            return self._drawn(found, name, box)
        mean = found.means(name, box)
        self._note("mean", k, k, found.wrong)
        return mean

    def cov(self, found: Conditioned, k: int, m: int) -> Array:
        """Covariances given the draws; those of values are 0.

        Shapes    (draws, *members of k, *members of m), or (draws,) of zeros
        """
        (one, first), (two, second) = (self.variables[number] for number in (k, m))
        both_scores = one in self.scores and two in self.scores
        if not both_scores and not (self.has_moments(one) and self.has_moments(two)):
            return np.zeros(found.normals.draws)
        cov = found.covariances(one, two, first, second)
        self._note("cov", k, m, found.wrong)
        return cov

    def _drawn(self, found: Conditioned, name: str, box: Box) -> Array:
        values = without_coordinates(self.draws.drawn(found, name), found.normals.draws)
        return values[(slice(None), *place(box, self.netsor.families[name].ranges))]

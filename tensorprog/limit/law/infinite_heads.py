"""`InfiniteHeads`: the Gaussian that outputs tend to when the number of heads grows, after the width has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import TINY
from tensorprog.language.errors import ProgramError, did_you_mean
from tensorprog.language.ir import Netsor
from tensorprog.limit.form.definitions import Box, place
from tensorprog.limit.law.heads import heads
from tensorprog.limit.law.law import NumericLaw
from tensorprog.limit.law.marginals import Marginals
from tensorprog.limit.law.mixture import Mixture

__all__ = ["InfiniteHeads"]

Array = NDArray[Any]


class InfiniteHeads(Marginals):
    """The law of the outputs for infinitely many heads: Gaussian, with the mean and covariance of any number of them.

    Outputs are sums over the index of independent, identically distributed heads of mean zero, scaled by one over the
    square root of their number; the central limit theorem does the rest.  Both are checked when the law is made.

    Source    Hron et al. 2020 (arXiv 2006.10540), Theorem 3, for heads and width growing together; here the heads grow
              after the width has, which is an extension of Sakai et al. 2025, labelled conjecture
    """

    grade = "extension"
    scores = ()  # there are infinitely many

    def __init__(self, law: NumericLaw, index: str) -> None:
        self._law, self.index, self.netsor, self.budget = law, index, law.netsor, law.budget
        if index not in self.netsor.index:
            raise ProgramError(
                f"{index} is not an index of the program; {did_you_mean(str(index), list(self.netsor.index))}"
            )
        self.outputs = tuple(name for name in law.outputs if name in law.recursion.random)
        if not self.outputs:
            raise ProgramError(
                f"no output of {self.netsor.name} depends on scores: there are no heads to be infinitely many"
            )
        for name in self.outputs:
            if not law.is_linear(name):
                raise ProgramError(f"{name} is not linear in the vectors: infinitely many heads need outputs that are")
        twice = law.of(_doubled(self.netsor, index))
        for name in self.outputs:
            found = heads(twice.netsor, twice.recursion, name)
            reason = f"{name} is not a sum over {index} of independent heads"
            mean, slack = law.mean(name, with_error=True)
            if index not in found.sizes or found.rest or np.any(np.abs(mean) > slack):
                raise ProgramError(f"{reason} with one law, and mean 0")
            (one, off), (two, wrong) = (each.var(name, with_error=True) for each in (law, twice))
            if one.shape != two.shape or np.any(np.abs(one - two) > 2 * (off + wrong) + 1e-9 * one.max(initial=0.0)):
                raise ProgramError(
                    f"{reason}, each with half the variance where there are twice as many; divide the sum over {index} "
                    "by the square root of its size"
                )

    def __repr__(self) -> str:
        return f"InfiniteHeads({self._law.compiled.name}, {self.index}, outputs={', '.join(self.outputs)})"

    @property
    def error(self) -> float:
        """The largest error of the numbers given so far."""
        return self._law.error

    @property
    def widths(self) -> dict[str, float]:
        """As for `Law.widths`; the number of heads goes to infinity after them."""
        return self._law.widths

    def member(self, text: str) -> tuple[str, Box, bool]:
        """Family, box of members, and whether one member is meant, of an output of heads."""
        found = self._law.member(text)
        if found[0] not in self.outputs:
            raise ProgramError(f"{found[0]} is not an output of heads; {did_you_mean(found[0], self.outputs)}")
        return found

    def _mixture(self, name: str, box: Box) -> Mixture:
        at = place(box, self._law.compiled.families[name].ranges)
        mean, (var, error) = self._law.mean(name)[at], (part[at] for part in self._law.var(name, with_error=True))
        return Mixture.gaussian(mean, var, error / np.maximum(var, TINY))

    def _note(self, error: Any, value: Any, what: str) -> None:
        """The law of some heads has noted it."""

    def mean(self, name: str, *, with_error: bool = False) -> Any:
        """E[Z], as for `Law.mean`."""
        self.member(name)
        return self._law.mean(name, with_error=with_error)

    def cov(self, first: str, second: str | None = None, *, with_error: bool = False) -> Any:
        """Cov(Z), as for `Law.cov`."""
        for name in (first, first if second is None else second):
            self.member(name)
        return self._law.cov(first, second, with_error=with_error)


def _doubled(netsor: Netsor, index: str) -> Netsor:
    """The program with twice as many heads."""
    from tensorprog.language.writing import pack, unpack

    declared = netsor.index[index]
    size = declared.text.rpartition("..")[2].strip()
    heads = netsor.scalars.get(size)
    if heads is None:
        raise ProgramError(f"the number of heads must be a constant: declare {index} with a name for its size")
    return unpack(*pack(netsor), {size: 2 * heads})

"""`InfiniteHeads`: the Gaussian that outputs tend to when the number of heads grows, after the width has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, check_count, did_you_mean
from tensorprog.language.ir import Netsor
from tensorprog.language.linalg import psd_cholesky
from tensorprog.limit.law.law import NumericLaw, check_levels, check_order, check_points
from tensorprog.limit.law.mixture import Mixture
from tensorprog.limit.memory import Budget, budgeted

__all__ = ["InfiniteHeads"]

Array = NDArray[Any]


@budgeted
class InfiniteHeads:
    """The law of the outputs for infinitely many heads: Gaussian, with the mean and covariance of any number of them.

    Outputs are sums over the index of independent, identically distributed heads of mean zero, scaled by one over the
    square root of their number; the central limit theorem does the rest.  Both are checked when the law is made.

    Source    Hron et al. 2020 (arXiv 2006.10540), Theorem 3, for heads and width growing together; here the heads grow
              after the width has, which is an extension of Sakai et al. 2025, labelled conjecture
    """

    grade = "extension"
    scores = ()  # there are infinitely many

    def __init__(self, law: NumericLaw, index: str) -> None:
        self._law, self.index = law, index
        self.netsor = netsor = law.netsor
        if index not in netsor.index:
            raise ProgramError(
                f"{index} is not an index of the program; {did_you_mean(str(index), list(netsor.index))}"
            )
        self.outputs = tuple(name for name in law.outputs if name in law.recursion.random)
        if not self.outputs:
            raise ProgramError(
                f"no output of {netsor.name} depends on scores: there are no heads to be infinitely many"
            )
        for name in self.outputs:
            if not law.is_linear(name):
                raise ProgramError(f"{name} is not linear in the vectors: infinitely many heads need outputs that are")
        twice = law.of(_doubled(netsor, index))
        for name in self.outputs:
            self._check(name, twice)

    @property
    def budget(self) -> Budget:
        """That of the law with some heads."""
        return self._law.budget

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

    def _check(self, name: str, twice: NumericLaw) -> None:
        """With twice as many heads, mean and covariance stay, and the excess of the fourth moments is halved."""
        reason = f"{name} is not a sum over {self.index} of independent heads with one law"
        if twice.compiled.families[name].shape != self._law.compiled.families[name].shape:
            raise ProgramError(f"{reason}: it has more members where {self.index} is longer")
        for ask in (NumericLaw.mean, NumericLaw.cov):
            (one, off), (two, wrong) = (ask(law, name, with_error=True) for law in (self._law, twice))
            if not _agree(one, two, off + np.asarray(wrong)):
                if ask is NumericLaw.mean:
                    raise ProgramError(f"{reason}: its mean changes where there are twice as many")
                raise ProgramError(
                    f"{reason}, each with half the variance where there are twice as many; "
                    f"divide the sum over {self.index} by the square root of its size"
                )
        (one, off), (two, wrong) = (law.moment(name, 4, with_error=True) for law in (self._law, twice))
        var, error = self._law.var(name, with_error=True)
        gaussian, slack = 3 * np.square(var), 6 * var * error
        if not _agree(one - gaussian, 2 * (two - gaussian), off + 2 * wrong + 3 * slack):
            raise ProgramError(reason)

    # -- numbers ------------------------------------------------------------------------------------------------

    def _output(self, text: str) -> str:
        family, _, _ = self._law.member(text)
        if family not in self.outputs:
            raise ProgramError(f"{family} is not an output of heads; {did_you_mean(family, self.outputs)}")
        return text

    def mean(self, name: str, *, with_error: bool = False) -> Any:
        """E[Z], as for `Law.mean`."""
        return self._law.mean(self._output(name), with_error=with_error)

    def cov(self, first: str, second: str | None = None, *, with_error: bool = False) -> Any:
        """Cov(Z), as for `Law.cov`."""
        other = None if second is None else self._output(second)
        return self._law.cov(self._output(first), other, with_error=with_error)

    def var(self, name: str, *, with_error: bool = False) -> Any:
        """Variance, as for `Law.var`."""
        return self._law.var(self._output(name), with_error=with_error)

    def moment(self, name: str, order: int, *, with_error: bool = False) -> Any:
        """Central moment: (order - 1)!! var**(order / 2) for even orders, 0 for odd ones."""
        return self._of_gaussian(name, "moment", check_order(order), with_error)

    def kurtosis(self, name: str, *, with_error: bool = False) -> Any:
        """3, exactly."""
        return self._of_gaussian(name, "standardised", 4, with_error)

    def _of_gaussian(self, name: str, method: str, order: int, with_error: bool) -> Any:
        mean, (var, error) = np.asarray(self.mean(name)), map(np.asarray, self.var(name, with_error=True))
        value, wrong = getattr(Mixture.gaussian(mean, var), method)(order)
        if method == "moment":
            wrong = order / 2 * np.abs(value) * np.divide(error, var, out=np.zeros_like(var), where=var > 0)
        answer = [float(x) if np.ndim(x) == 0 else x for x in (value, wrong)]
        return tuple(answer) if with_error else answer[0]

    def averaged(self, name: str) -> Mixture:
        """The Gaussian of one member, as `Law.averaged` gives other densities."""
        _, _, single = self._law.member(self._output(name))
        if not single:
            raise ProgramError(f"{name} is a family; name one member")
        var, error = self.var(name, with_error=True)
        return Mixture.gaussian(np.asarray(self.mean(name)), np.asarray(var), error / var)

    def _grid(self, name: str, method: str, grid: Any, with_error: bool) -> Any:
        points = check_points("points of a grid", grid)
        value, error = (part.reshape(points.shape) for part in getattr(self.averaged(name), method)(points.reshape(-1)))
        return (value, error) if with_error else value

    def density(self, name: str, grid: Any, *, with_error: bool = False) -> Any:
        """Density of one member at the grid points."""
        return self._grid(name, "density", grid, with_error)

    def cdf(self, name: str, grid: Any, *, with_error: bool = False) -> Any:
        """Distribution function of one member at the grid points."""
        return self._grid(name, "cdf", grid, with_error)

    def quantile(self, name: str, q: Any) -> Array:
        """Quantiles of one member."""
        from scipy.special import ndtri

        gaussian = self.averaged(name)
        return np.asarray(gaussian.spread[0] + np.sqrt(gaussian.spread[1]) * ndtri(check_levels(q)))

    def sample(self, size: int, seed: int = 0) -> dict[str, Array]:
        """Draws of the outputs.

        Shapes    name -> (size, *members)
        """
        size = check_count("size", size)
        means = [np.asarray(self.mean(name)) for name in self.outputs]
        counts = [mean.size for mean in means]
        rows = [
            np.concatenate(
                [np.asarray(self.cov(f, g)).reshape(k, m) for g, m in zip(self.outputs, counts, strict=True)], 1
            )
            for f, k in zip(self.outputs, counts, strict=True)
        ]
        factor = psd_cholesky(np.concatenate(rows))
        drawn = np.random.Generator(np.random.SFC64(seed)).standard_normal((size, sum(counts))) @ factor.T
        parts = np.split(drawn, np.cumsum(counts)[:-1], axis=1)
        return {
            name: mean + part.reshape(size, *mean.shape)
            for name, mean, part in zip(self.outputs, means, parts, strict=True)
        }


def _agree(one: Array, two: Array, error: Array) -> bool:
    """Whether two numbers are the same within twice the sum of their errors, and rounding."""
    return bool(np.all(np.abs(one - two) <= 2 * error + 1e-9 * np.max(np.abs(one), initial=0.0)))


def _doubled(netsor: Netsor, index: str) -> Netsor:
    """The program with twice as many heads."""
    from tensorprog.language.writing import pack, unpack

    declared = netsor.index[index]
    size = declared.text.rpartition("..")[2].strip()
    heads = netsor.scalars.get(size)
    if heads is None:
        raise ProgramError(f"the number of heads must be a constant: declare {index} with a name for its size")
    return unpack(*pack(netsor), {size: 2 * heads})

"""`InfiniteHeads`: the Gaussian that outputs tend to when the number of heads grows, after the width has."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, check_count, did_you_mean
from tensorprog.language.ir import Netsor
from tensorprog.language.linalg import psd_cholesky
from tensorprog.limit.law.law import NumericLaw, check_levels, check_order, check_points
from tensorprog.limit.law.mixture import Mixture
from tensorprog.limit.law.summands import LinearVector, Summands
from tensorprog.limit.memory import Budget, budgeted
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["InfiniteHeads"]

Array = NDArray[Any]
PROBES = 4  # draws at which the scale of a head is compared


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
        parts = {name: self._parts(law.recursion, name) for name in self.outputs}
        for name, own in parts.items():
            if any(block.head != index or block.size != 1 for block in own.blocks):
                raise ProgramError(f"{name} is not a sum over {index} of independent heads with one law")
            self._check_mean(name)
        larger = NumericRecursion(_doubled(netsor, index))
        for name, own in parts.items():
            self._check_scale(name, own, self._parts(larger, name))

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

    def _parts(self, recursion: NumericRecursion, name: str) -> Summands:
        """What an output is a sum of."""
        if not self._law.is_linear(name):
            raise ProgramError(f"{name} is not linear in the vectors: infinitely many heads need outputs that are")
        return Summands(recursion, [LinearVector(recursion, name, recursion.netsor.families[name].ranges)])

    def _check_mean(self, name: str) -> None:
        for start in itertools.product(*(range(*span) for span in self._law.compiled.families[name].ranges)):
            each = self._law._mixture(name, tuple((i, i + 1) for i in start))
            heads = replace(each, mean=np.zeros_like(each.mean), var=np.zeros_like(each.var))
            value, error = heads.expected()
            if np.any(np.abs(value) > error + 1e-12 * np.sqrt(heads.moment(2)[0])):
                raise ProgramError(
                    f"{name}: heads have a mean, so that their sum grows like the square root of their number"
                )

    def _check_scale(self, name: str, parts: Summands, twice: Summands) -> None:
        """With twice as many heads each has half the variance, and what no score reaches stays as it is."""
        beside = zip(parts.beside(0), twice.beside(0), strict=True)
        if not all(np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in beside):
            raise ProgramError(f"{name}: what stands beside the heads must not depend on their number")
        for block, other in zip(parts.blocks, twice.blocks, strict=True):
            points = np.random.default_rng(0).standard_normal((PROBES, block.sampler.dim))
            var, half = (b.var(0, b.draw(points), PROBES) for b in (block, other))
            if not np.allclose(var, 2 * half, rtol=1e-9, atol=0):
                raise ProgramError(
                    f"{name}: with twice as many heads the variance of each must be half as large; "
                    f"divide the sum over {self.index} by the square root of its size"
                )

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
        value, wrong = getattr(Mixture((), mean, var), method)(order)
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
        return Mixture((), np.asarray(self.mean(name)), np.asarray(var), error / var)

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
        return np.asarray(gaussian.mean + np.sqrt(gaussian.var) * ndtri(check_levels(q)))

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


def _doubled(netsor: Netsor, index: str) -> Netsor:
    """The program with twice as many heads."""
    from tensorprog.language.writing import pack, unpack

    declared = netsor.index[index]
    size = declared.text.rpartition("..")[2].strip()
    heads = netsor.scalars.get(size)
    if heads is None:
        raise ProgramError(f"the number of heads must be a constant: declare {index} with a name for its size")
    return unpack(*pack(netsor), {size: 2 * heads})

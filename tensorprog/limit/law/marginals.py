"""`Marginals`: questions about one variable at a time, answered by mixtures of Gaussians."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import NotCompiledError, ProgramError, WrongTypeError
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.law.mixture import Mixture, Moment, crossing
from tensorprog.limit.memory import Budget, budgeted

__all__ = ["Marginals", "answer", "check_order", "check_points"]

Array = NDArray[Any]


class Marginals(ABC):
    """Moments, densities, distribution functions and quantiles of variables by name, such as 'y[0]'."""

    budget: Budget

    @abstractmethod
    def member(self, text: str) -> tuple[str, Box, bool]:
        """Family, box of members, and whether one member is meant."""

    @abstractmethod
    def _mixture(self, name: str, box: Box) -> Mixture:
        """Conditional means and variances of members over draws of p-ring."""

    @abstractmethod
    def _note(self, error: Any, value: Any, what: str) -> None:
        """Remember the error of a number that is given."""

    def _moment_of(self, family: str, box: Box, which: Moment, order: int) -> tuple[Array, Array]:
        return which(self._mixture(family, box), order)

    @budgeted
    def _ask(self, name: str, which: Moment, order: int, with_error: bool) -> Any:
        family, box, single = self.member(name)
        value, error = self._moment_of(family, box, which, order)
        self._note(error, value, f"the moment of order {order} of {name}")
        return answer(value.copy(), error.copy(), single, with_error)

    def moment(self, name: str, order: Any, *, with_error: bool = False) -> Any:
        """Central moment of a member such as 'y[0]', or of all members of a family.

        Raises    AccuracyError when the accuracy of the law cannot be met
        """
        return self._ask(name, Mixture.moment, check_order(order), with_error)

    def var(self, name: str, *, with_error: bool = False) -> Any:
        """Variance."""
        return self._ask(name, Mixture.moment, 2, with_error)

    def std(self, name: str, *, with_error: bool = False) -> Any:
        """Standard deviation, the square root of the variance, with the error that the variance leaves it."""
        value, error = (np.asarray(part) for part in self.var(name, with_error=True))
        root, low = np.sqrt(np.maximum(value, 0.0)), np.sqrt(np.maximum(value - error, 0.0))
        return answer(root, root - low, not root.shape, with_error)

    def kurtosis(self, name: str, *, with_error: bool = False) -> Any:
        """Fourth central moment over squared variance; a Gaussian has 3, a constant none (nan)."""
        return self._ask(name, Mixture.standardised, 4, with_error)

    def _one(self, name: str) -> tuple[str, Box]:
        family, box, single = self.member(name)
        if not single:
            raise ProgramError(
                f"{name} is a family; name one member, such as {family}[{', '.join(str(a) for a, _ in box)}]"
            )
        return family, box

    def _curve(self, name: str) -> Mixture:
        """What answers for density and distribution function of one member."""
        family, box = self._one(name)
        return self._mixture(family, box).member((0,) * len(box)).summed()

    @budgeted
    def averaged(self, name: str) -> Mixture:
        """The law of one member as an average of Gaussians over p-ring: `densities` of all draws and in each set.

        Raises    NotCompiledError where the density is an estimate from draws
        """
        curve = self._curve(name)
        if curve.smoothed:
            raise NotCompiledError(f"{name} is not Gaussian given the scores: its density is an estimate from draws")
        return curve

    @budgeted
    def density_method(self, name: str) -> str:
        """How the density of a member is found.

        'conditional': the conditional Gaussian averaged over p-ring; 'kernel': an estimate from draws, for variables
        that are not linear in the vectors.
        """
        return "kernel" if self._curve(name).smoothed else "conditional"

    @budgeted
    def density(self, name: Any, grid: Any, *, with_error: bool = False) -> Any:
        """Density of one member at the grid points.

        Shapes    grid (...) -> (...)
        """
        points = check_points("points of a grid", grid)
        return self._on_grid(*self._curve(name).density(points.reshape(-1)), points.shape, f"{name}", with_error)

    @budgeted
    def cdf(self, name: Any, grid: Any, *, with_error: bool = False) -> Any:
        """Distribution function of one member at the grid points.

        Shapes    grid (...) -> (...)
        """
        points = check_points("points of a grid", grid)
        return self._on_grid(*self._curve(name).cdf(points.reshape(-1)), points.shape, f"{name}", with_error)

    def _on_grid(self, value: Array, error: Array, shape: tuple[int, ...], name: str, with_error: bool) -> Any:
        self._note(error, value, f"the density or distribution function of {name}")
        value, error = value.reshape(shape), error.reshape(shape)
        return (value, error) if with_error else value

    @budgeted
    def quantile(self, name: str, q: Any) -> Array:
        """Quantiles of one member, where the distribution function passes them, to full precision."""
        levels = check_points("quantile levels", q)
        if not np.all((levels > 0) & (levels < 1)):
            raise ProgramError("quantile levels must lie strictly between 0 and 1")
        curve = self._curve(name)
        found = crossing(lambda y: curve.cdf(y)[0], levels.reshape(-1), curve.spread[0], 1.001 * curve.within(38.0))
        return np.asarray(found).reshape(levels.shape)  # at an atom the distribution function jumps there

    def interval(self, name: str, confidence: float) -> Array:
        """The two quantiles of one member that leave as much on either side, with so much between them."""
        return self.quantile(name, [0.5 - 0.5 * confidence, 0.5 + 0.5 * confidence])

    def sf(self, name: Any, grid: Any) -> Any:
        """One minus the distribution function of one member at the grid points."""
        return 1 - np.asarray(self.cdf(name, grid))

    def logpdf(self, name: Any, grid: Any) -> Any:
        """The logarithm of the density of one member at the grid points, or of the joint density of several."""
        with np.errstate(divide="ignore"):
            return np.log(self.density(name, grid))


def answer(value: Array, error: Array, single: bool, with_error: bool) -> Any:
    """What a question is answered with: arrays, or numbers for one member, with or without the error."""
    if single:
        value, error = float(np.reshape(value, -1)[0]), float(np.reshape(error, -1)[0])  # type: ignore[assignment]
    return (value, error) if with_error else value


def check_order(order: Any) -> int:
    """The order of a moment; raise ProgramError unless it is a whole number from 1 to 64."""
    if isinstance(order, bool) or not hasattr(order, "__index__") or not 1 <= order <= 64:
        raise ProgramError(f"the order of a moment is a whole number from 1 to 64, not {order!r}")
    return int(order)


def check_points(what: str, values: Any) -> NDArray[np.float64]:
    """An array of real numbers, possibly infinite; raise ProgramError for anything else."""
    try:
        points = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise WrongTypeError(f"{what} must be real numbers, not {values!r}") from None
    if np.isnan(points).any():
        raise ProgramError(f"{what} must be real numbers, and some are nan")
    return points

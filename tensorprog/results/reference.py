"""`Reference`: what the displays need to know of a law, asked once; `LawCurve`, the law of one variable on a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, paragraph
from tensorprog.blocks.html import Shown
from tensorprog.language.errors import ProgramError, TensorprogError
from tensorprog.language.formats import covariance_table, label, law_number, members, split
from tensorprog.language.ir import Netsor

__all__ = ["MAX_COVARIANCE", "MAX_LISTED", "LawCurve", "LimitDensity", "Reference"]

Array = NDArray[Any]

CURVE_POINTS = 257
SAME, WHOLE = 1e-6, 1e-3  # what the integral of a density may be off, and that of a kernel estimate over all
MIN_DRAWS, MAX_DRAWS = 20_000, 100_000  # of the limits of averages
MAX_LISTED = 4096  # members of a family whose numbers are asked for
MAX_COVARIANCE = 128  # members of a family whose covariance matrix is written out
REACH = 12.0  # standard deviations on either side of a mean that a density is known for, at least
LISTED = 12  # members listed one by one in a table
MATRIX = 8  # members of a family whose covariance is a table
_NAN = float("nan")


@dataclass(frozen=True)
class LawCurve:
    """Density and distribution function of one variable on a grid, and between its points by interpolation.

    Without a distribution function the density is a kernel estimate from draws of the law, not the law's own.
    """

    grid: Array
    density: Array
    distribution: Array | None = None

    @cached_property
    def _log(self) -> Callable[[Array], Array]:
        from scipy.interpolate import CubicSpline, PchipInterpolator

        smooth = bool((self.density > 1e-250).all())
        logarithm = np.log(np.maximum(self.density, 1e-300))
        return CubicSpline(self.grid, logarithm) if smooth else PchipInterpolator(self.grid, logarithm)

    def pdf(self, x: Array) -> Array:
        """Density at x; 0 outside the grid."""
        inside = (x >= self.grid[0]) & (x <= self.grid[-1])
        return np.where(inside, np.exp(self._log(np.clip(x, self.grid[0], self.grid[-1]))), 0.0)

    @property
    def whole(self) -> bool:
        """Whether the density says all: its integral, by Simpson's rule, is the distribution function."""
        ends, middle = self.density, self.pdf((self.grid[1:] + self.grid[:-1]) / 2)
        total = np.cumsum(np.diff(self.grid) * (ends[1:] + 4 * middle + ends[:-1]) / 6)
        if self.distribution is None:
            return bool(abs(total[-1] - 1) < WHOLE)
        return bool(np.abs(total - (self.distribution[1:] - self.distribution[0])).max() < SAME)

    def cdf(self, x: Array) -> Array:
        """Distribution function at x."""
        from scipy.interpolate import CubicHermiteSpline

        assert self.distribution is not None
        values = CubicHermiteSpline(self.grid, self.distribution, self.density)(np.clip(x, self.grid[0], self.grid[-1]))
        return np.clip(values, 0.0, 1.0)


@dataclass(frozen=True)
class LimitDensity:
    """Mean, standard deviation, and the density, if there is one that says all."""

    mean: float
    deviation: float
    curve: LawCurve | None

    def to_json(self) -> dict[str, Any]:
        """The numbers; `at` and `density` are null where the law has no density."""
        at, density = (None, None) if self.curve is None else (self.curve.grid, self.curve.density)
        return {"mean": self.mean, "deviation": self.deviation, "at": at, "density": density}


class Reference(Shown):
    """The numbers of a law that displays need, each asked of the law once.

    Wrapping a law in a `Reference` before several comparisons saves the work of all but the first.
    """

    def __init__(self, law: Any) -> None:
        self.law = law
        self.netsor: Netsor = law.netsor
        self._curves: dict[tuple[str, float], LawCurve | None] = {}
        self._moments: dict[str, dict[str, tuple[Array, ...]]] = {}
        self._averages: dict[tuple[tuple[str, str], ...], Mapping[str, Array]] = {}
        self.failed: dict[str, Exception] = {}  # families whose moments the law could not give, and why

    @classmethod
    def of(cls, law: Any, wanted: str = "a law is needed here") -> Reference:
        """Wrap a law; a reference passes through; `wanted` begins the message for anything else.

        Raises    ProgramError
        """
        if isinstance(law, Reference):
            return law
        if not (hasattr(law, "netsor") and hasattr(law, "density")):
            raise ProgramError(f"{wanted}, not {type(law).__name__}")
        return cls(law)

    def covariance(self, name: str) -> tuple[Array, Array]:
        """Covariance matrix over the members of a family in C order, and its errors."""
        size = math.prod(self.netsor.families[name].shape)
        value, error = self.law.cov(name, with_error=True)
        return np.array(value, dtype=np.float64).reshape(size, size), np.array(error).reshape(size, size)

    def moments(self, name: str) -> dict[str, tuple[Array, ...]]:
        """Mean, variance and kurtosis of all members of a family, each with the error of the law; nan if it has none.

        Shapes    name -> (value, error), each (members,) in C order
        """
        if name in self.failed:
            raise self.failed[name]
        if name not in self._moments:
            size = math.prod(self.netsor.families[name].shape)
            asked = {"mean": self.law.mean, "variance": self.law.var, "kurtosis": self.law.kurtosis}
            try:
                found = {key: ask(name, with_error=True) for key, ask in asked.items()}
            except Exception as reason:
                self.failed[name] = reason
                raise
            flat = {
                key: tuple(np.array(np.broadcast_to(np.ravel(part), (size,)), dtype=np.float64) for part in pair)
                for key, pair in found.items()
            }
            flat["kurtosis"][0][~(flat["variance"][0] > 0)] = _NAN
            self._moments[name] = flat
        return self._moments[name]

    def refused(self) -> list[str]:
        """Outputs that the law gives no moments of; `failed` has the reasons."""
        for name in self.law.outputs:
            with suppress(TensorprogError, FloatingPointError):
                self.moments(name)
        return [name for name in self.law.outputs if name in self.failed]

    def numbers(self, name: str, position: int) -> dict[str, tuple[float, float]]:
        """The same of one member; none where it has been said that the law could not give them."""
        if name in self.failed:
            return {}
        return {key: (float(v[position]), float(e[position])) for key, (v, e) in self.moments(name).items()}

    def centre(self, variable: str) -> tuple[float, float]:
        """Mean and standard deviation of one member."""
        name, position = split(self.netsor, variable)
        (mean, _), (variance, _) = (self.moments(name)[key] for key in ("mean", "variance"))
        return float(mean[position]), math.sqrt(max(0.0, float(variance[position])))

    def limit_density(self, variable: str, draws: Iterable[Array]) -> LimitDensity:
        """The density of a member such as "y[0]", as far out as draws of it lie."""
        mean, deviation = self.centre(variable)
        ends = [mean - REACH * deviation, mean + REACH * deviation]
        ends += [float(end(x)) for x in draws if x.size for end in (np.min, np.max)]
        return LimitDensity(mean, deviation, self.curve(variable, min(ends), max(ends)))

    def averages(self, psi: Mapping[str, str], draws: int) -> Mapping[str, Array]:
        """Draws of E[psi | p-ring], at least so many up to `MAX_DRAWS`; those asked for first are used again.

        Shapes    name -> (draws, *members)
        Raises    NotCompiledError for averages without a limit here
        """
        key = tuple(psi.items())
        if key not in self._averages:
            self._averages[key] = self.law.averages(psi, min(max(2 * draws, MIN_DRAWS), MAX_DRAWS), seed=1)
        return self._averages[key]

    def curve(self, variable: str, low: float, high: float) -> LawCurve | None:
        """Density and distribution function over at least low..high; None if the law has no density that says all.

        That is, one that integrates, between the points of a grid, to the distribution function: not with atoms, nor
        with spikes between them.
        """
        centre, spread = self.centre(variable)
        if not spread > 0 or not math.isfinite(spread):
            return None
        reach = max(abs(low - centre), abs(high - centre), REACH * spread) / spread
        reach = REACH * 2.0 ** math.ceil(math.log2(reach / REACH))  # so that few samples ask for more
        if (variable, reach) in self._curves:  # what a sample is given does not depend on those before it
            return self._curves[variable, reach]
        # points crowd at the centre and grow exponentially apart in the tails
        grid = centre + spread * 0.3 * np.sinh(np.linspace(-1, 1, CURVE_POINTS) * math.asinh(reach / 0.3))
        self._curves[variable, reach] = None
        with suppress(TensorprogError):
            smoothed = getattr(self.law, "density_method", lambda _: "conditional")(variable) == "kernel"
            density = np.asarray(self.law.density(variable, grid), dtype=np.float64)
            exact = None if smoothed else np.asarray(self.law.cdf(variable, grid), dtype=np.float64)
            curve = LawCurve(grid, np.maximum(density, 0.0), exact)
            if np.isfinite(density).all() and curve.whole:
                self._curves[variable, reach] = curve
        return self._curves[variable, reach]

    # -- what is shown and written ------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Means, variances and kurtosis of each family, and covariances, each computed when asked for."""
        for name in (*self.law.outputs, *self.law.scores):
            kind = "output" if name in self.law.outputs else "score"
            size = math.prod(self.netsor.families[name].shape)
            if size > MAX_LISTED:
                yield paragraph(f"{kind} {name}: {size:,} members, not listed; ask for single ones in Python")
                continue
            try:
                values = self.moments(name)
            except TensorprogError:
                yield paragraph(f"{kind} {name}: there is no limit of it")
                continue
            names = [label(name, index) for index in members(self.netsor, name, LISTED)]
            rows = tuple(
                (variable, *(law_number(float(value[k]), float(error[k])) for value, error in values.values()))
                for k, variable in enumerate(names)
            )
            note = f"{size - len(names):,} further members" if size > len(names) else ""
            yield Grid(f"{kind} {name}", ("variable", *values), rows, note)
            if 1 < size <= MATRIX:
                yield covariance_table(name, names, *self.covariance(name))
            elif size > 1:
                yield paragraph(f"{size * (size - 1) // 2:,} covariances of {name}: see law.cov, or --format json")

    def to_json(self, kept: Sequence[str] = ()) -> dict[str, Any]:
        """The law's numbers: families flattened in C order, with their indices beside them; `kept` beside outputs."""
        return {
            "outputs": {name: self._family_json(name) for name in dict.fromkeys([*self.law.outputs, *kept])},
            "scores": {name: self._family_json(name) for name in self.law.scores},
            "error": float(self.law.error),
            "widths": {name: "infinity" if n == math.inf else n for name, n in self.law.widths.items()},
        }

    def _family_json(self, name: str) -> dict[str, Any]:
        size = math.prod(self.netsor.families[name].shape)
        entry: dict[str, Any] = {"index": None, "mean": None, "cov": None, "kurtosis": None}
        if size > MAX_LISTED:
            return entry | {"members": size}
        entry["index"] = [list(index) for index in members(self.netsor, name)]
        try:
            values = self.moments(name)
        except (TensorprogError, FloatingPointError) as error:  # too large, or a number the law does not offer
            return entry | {"refused": str(error)}
        for key, (value, wrong) in values.items():
            entry |= {key: value, f"{key}_error": wrong}
        return entry | ({"cov": self.covariance(name)[0]} if size <= MAX_COVARIANCE else {})

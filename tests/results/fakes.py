"""A law with known numbers and samples at a known distance from it, without limit or finite engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from tensorprog import ProgramError, Samples
from tensorprog.language.ir import Index, Initial, Nonlin
from tensorprog.language.parse import Names, parse_expression, parse_statement
from tests.reading import Netsor


def netsor(members: int = 2) -> Netsor:
    index = Index("i", 0, members)
    target, _, args, _ = parse_statement("y[i] = Nonlin(h[i])", Names(indices=frozenset({"i"})))
    number = lambda text: parse_expression(text, Names())  # noqa: E731
    return Netsor(
        "mixture",
        indices=(index,),
        initial=(Initial("h", ("i",), number("0"), number("1")),),
        body=(Nonlin(target, args[0]),),
        outputs=("y",),
        run=(("width", (16, 64)), ("samples", 1000)),
    )


@dataclass(frozen=True)
class MixtureLaw:
    """y ~ N(0, v) with v from `variances` at equal odds: a hierarchical Gaussian, all of it known exactly."""

    netsor: Netsor
    variances: tuple[float, ...] = (1.0,)
    error: float = 0.0
    has_density: bool = True
    scores = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.netsor.outputs

    @property
    def size(self) -> int:
        return self.netsor.families["y"].shape[0]

    def _answer(self, value: float, with_error: bool) -> Any:
        array = np.full(self.size, value)
        return (array, np.zeros(self.size)) if with_error else array

    def mean(self, name: str, with_error: bool = False) -> Any:
        return self._answer(0.0, with_error)

    def var(self, name: str, with_error: bool = False) -> Any:
        return self._answer(float(np.mean(self.variances)), with_error)

    def kurtosis(self, name: str, with_error: bool = False) -> Any:
        with np.errstate(invalid="ignore"):
            value = 3 * np.mean(np.square(self.variances)) / np.mean(self.variances) ** 2
        return self._answer(float(value), with_error)

    def cov(self, name: str) -> Any:
        return np.eye(self.size) * np.mean(self.variances)

    def density(self, variable: str, grid: Any, with_error: bool = False) -> Any:
        if not self.has_density:
            raise ProgramError("no density")
        value = np.mean([norm.pdf(grid, scale=v**0.5) for v in self.variances], axis=0)
        return (value, np.zeros_like(value)) if with_error else value

    def cdf(self, variable: str, grid: Any) -> Any:
        return np.mean([norm.cdf(grid, scale=v**0.5) for v in self.variances], axis=0)

    def sample(self, size: int, seed: int = 0, keep: Sequence[str] = ()) -> Samples:
        return draw(self.netsor, size, self.variances, seed=seed, width=None)


def draw(
    program: Netsor,
    size: int,
    variances: tuple[float, ...],
    *,
    seed: int = 0,
    width: int | None = 16,
    coordinates: int = 1,
    shift: float = 0.0,
) -> Samples:
    """Draws of the mixture; coordinates of one network share the variance."""
    rng = np.random.default_rng(seed)
    count = program.families["y"].shape[0]
    v = np.sqrt(rng.choice(variances, size=(size, 1, count)))
    y = shift + v * rng.standard_normal((size, coordinates, count))
    return Samples(program, {"y": y[:, 0] if coordinates == 1 else y}, size, seed, "lazy", width, coordinates, 0.1)

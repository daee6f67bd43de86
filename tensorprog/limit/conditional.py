"""Outputs given the scores: Gaussian with mean and covariance that are functions of p-ring."""

from __future__ import annotations

from collections.abc import Mapping

from tensorprog.arrays import Open
from tensorprog.limit.covariance import Compiler
from tensorprog.limit.linear import LinearCovariance, linear_mean
from tensorprog.limit.sampler import Box, Sampler

__all__ = ["ConditionalGaussian"]


class ConditionalGaussian:
    """Mean and covariance of a vector family, linear in Gaussian variables, given the scores."""

    def __init__(self, compiler: Compiler, name: str, box: Box) -> None:
        self.compiler, self.name, self.box = compiler, name, box
        self.parts = compiler.parts.of(name)
        ranges = {str(k): span for k, span in enumerate(box)}
        self.ranges = ranges | {f"{k}_": span for k, span in ranges.items()}
        self._covariance = LinearCovariance(compiler, self.parts, self.parts, self.ranges)
        self.error = self._covariance.error  # relative, of the variables' covariances

    @staticmethod
    def linear(compiler: Compiler, name: str) -> bool:
        """Whether a vector family is linear in Gaussian variables, given the scores."""
        return all(part.linear for part in compiler.parts.of(name))

    def mean(self, sampler: Sampler, values: Mapping[str, Open]) -> Open:
        """E[Z | p-ring].

        Shapes    over BATCH (if scores matter) and the positions that matter
        """
        return linear_mean(self.compiler, self.parts, self.ranges, sampler.reader(values))

    def cov(self, sampler: Sampler, values: Mapping[str, Open], diagonal: bool) -> Open:
        """Cov[Z | p-ring]: the variances over positions '0', ..., or all pairs over '0', ... and '0_', ...

        Shapes    Open over BATCH (if scores matter) and position axes, those missing that do not matter
        """
        return self._covariance.value(sampler.reader(values), [str(k) for k in range(len(self.box))] * diagonal)

"""Outputs given the scores: Gaussian with mean and covariance that are functions of p-ring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import BATCH, Open, affine_values, align, contract, gather, multiply, union
from tensorprog.evaluate import Scope, evaluate
from tensorprog.expr import Affine
from tensorprog.ir import Range
from tensorprog.limit.covariance import Compiler
from tensorprog.limit.moments import Equations, Value, canonical
from tensorprog.limit.parts import Part
from tensorprog.limit.sampler import Box, Sampler
from tensorprog.rename import compose, substitute

__all__ = ["ConditionalGaussian"]

Array = NDArray[Any]


class ConditionalGaussian:
    """Mean and covariance of a vector family, linear in Gaussian variables, given the scores.

    Coefficients are evaluated for all draws at once; covariances of the variables stay structured.
    """

    def __init__(self, compiler: Compiler, name: str, box: Box) -> None:
        self.compiler, self.name, self.box = compiler, name, box
        self.parts = compiler.parts.of(name)
        size = worst = 0.0
        self._pairs: list[tuple[Part, Part, Mapping[str, Range], Equations, Value]] = []
        ranges = {str(k): span for k, span in enumerate(box)}
        self.ranges = ranges | {f"{k}_": span for k, span in ranges.items()}
        for p in self.parts:
            for q in self.parts:
                if p.function is None or q.function is None:
                    continue
                p2, q2, local = compiler.patterns.paired(p, q, self.ranges)
                for equations, value in self._covariances(p2, q2, local):
                    self._pairs.append((p2, q2, local, equations, value))
                    size = max(size, float(np.max(np.abs(value.estimate.value), initial=0.0)))
                    worst = max(worst, float(np.max(value.estimate.error, initial=0.0)))
        self.error = worst / max(size, 1e-300)  # relative, of the variables' covariances

    @staticmethod
    def linear(compiler: Compiler, name: str) -> bool:
        """Whether a vector family is linear in Gaussian variables, given the scores."""
        return all(part.linear for part in compiler.parts.of(name))

    def _covariances(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> list[tuple[Equations, Value]]:
        (a, u, _), (b, v, _) = p.inner[0], q.inner[0]  # linear parts have one variable each
        moment = self.compiler.reference_covariance(u, v, ranges)
        factor = self.compiler.number(a, ranges) * self.compiler.number(b, ranges)
        return [(term.equations, term.value * factor) for term in moment.terms]

    def _coefficient(self, part: Part, names: Mapping[str, Affine], ranges: Mapping[str, Range], reader: Any) -> Open:
        full = dict(self.compiler.netsor.ranges) | dict(self.compiler.parts.bound_ranges) | dict(ranges)
        expr = substitute(part.coefficient, dict(names.items()))
        return evaluate(expr, Scope(self.compiler.netsor, full, reader))

    def mean(self, sampler: Sampler, values: Mapping[str, Open]) -> Open:
        """E[Z | p-ring].

        Shapes    over BATCH (if scores matter) and the positions that matter
        """
        total = Open((), np.zeros(()))
        reader = sampler.reader(values)
        for part in self.parts:
            local = self.ranges | {name: self.compiler.parts.bound_ranges[name] for name in part.bound}
            if part.function is not None:
                value: Value = Value.of(0.0)
                for weight, variable, _ in part.inner:
                    value = value + self.compiler.number(weight, local) * self.compiler.base_mean(variable, local)
                if not np.any(value.estimate.value):
                    continue
                inner = value.value
            else:
                inner = Open((), np.ones(()))
            coefficient = self._coefficient(part, {}, local, reader)
            summed = _sum_product(coefficient, inner, part.bound, local)
            axes = union(total.axes, summed.axes)
            total = Open(axes, align(total, axes) + align(summed, axes))
        return total

    def cov(self, sampler: Sampler, values: Mapping[str, Open], diagonal: bool) -> Open:
        """Cov[Z | p-ring]: the variances over positions '0', ..., or all pairs over '0', ... and '0_', ...

        Shapes    Open over BATCH (if scores matter) and position axes, those missing that do not matter
        """
        positions = [str(k) for k in range(len(self.box))]
        tie = {f"{name}_": Affine(((name, 1),)) for name in positions} if diagonal else {}
        reader = sampler.reader(values)
        total = Open((), np.zeros(()))
        for p, q, local, equations, value in self._pairs:
            starts = {name: span[0] for name, span in local.items()}
            tied: set[Affine] = set()
            holds = True
            for equation in equations:
                form = canonical(compose(equation, tie))
                if form is not None:
                    holds = holds and bool(form.terms)
                    tied.add(form)
            if not holds:
                continue
            remaining, bound_solution, solution, mask = self.compiler.patterns.eliminate(p, q, frozenset(tied), local)
            names = {key: compose(form, solution) for key, form in tie.items()} | solution
            middle = gather(value.value, names, local, starts)
            if mask is not None:
                middle = multiply(middle, mask)
            first = self._coefficient(p, dict(names.items()), local, reader)
            second = self._coefficient(q, dict(names.items()), local, reader)
            bound = [name for name in (*p.bound, *q.bound) if name not in bound_solution]
            only_first = [name for name in bound if name not in second.axes]
            left = _sum_product(first, middle, only_first, local)
            result = _sum_product(left, second, [name for name in bound if name in second.axes], local)
            for equation in remaining:  # e.g. outputs of different heads are independent
                grid = affine_values(equation, local)
                result = multiply(result, Open(grid.axes, (grid.data == 0).astype(float)))
            axes = union(total.axes, result.axes)
            total = Open(axes, align(total, axes) + align(result, axes))
        return total


def _sum_product(first: Open, second: Open, over: Sequence[str], ranges: Mapping[str, Range]) -> Open:
    """Sum of first * second over indices, those in neither counted with their size."""
    present = [name for name in over if name in first.axes or name in second.axes]
    count = 1
    for name in over:
        if name not in present:
            count *= ranges[name][1] - ranges[name][0]
    result = (
        contract(first, second, present)
        if present or BATCH in first.axes or BATCH in second.axes
        else multiply(first, second)
    )
    return Open(result.axes, result.data * count)

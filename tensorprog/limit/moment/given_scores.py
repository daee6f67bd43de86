"""Given the scores of one layer: means and covariances of sums of vectors that are linear in Gaussian ones.

Coefficients are functions of the scores, evaluated for all draws at once; moments of the Gaussian variables stay
structured.

Source    Sakai et al. 2025, Theorem 1
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tensorprog.language.evaluate import (
    BATCH,
    Open,
    Scope,
    add,
    affine_values,
    contract,
    evaluate,
    gather,
    multiply,
)
from tensorprog.language.expr import Affine, substitute
from tensorprog.language.ir import Range
from tensorprog.limit.form.sums_of_functions import WeightedFunction
from tensorprog.limit.moment.indexed import Equations, canonical
from tensorprog.limit.moment.numbers import inside_mask
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import Value

__all__ = ["LinearCovariance", "Of", "linear_mean"]

Ranges = Mapping[str, Range]
Of = Literal["numbers", "sizes", "errors"]  # which are summed; sizes and errors with the sizes of coefficients


def _read(value: Value, of: Of) -> Open:
    if of == "errors":
        return value.error
    return Open(value.axes, np.abs(value.value.data)) if of == "sizes" else value.value


def coefficient(
    recursion: NumericRecursion, part: WeightedFunction, names: Mapping[str, Affine], ranges: Ranges, reader: Any,
    of: Of = "numbers",
) -> Open:  # fmt: skip
    """The coefficient of a part at affine forms of other indices, by a reader of scores that may evaluate it too."""
    full = dict(recursion.netsor.ranges) | dict(recursion.parts.bound_ranges) | dict(ranges)
    expr = substitute(part.coefficient, dict(names.items()))
    found: Open = getattr(reader, "walk", evaluate)(expr, Scope(recursion.netsor, full, reader))
    return found if of == "numbers" else Open(found.axes, np.abs(found.data))


def linear_mean(
    recursion: NumericRecursion, parts: Sequence[WeightedFunction], ranges: Ranges, reader: Any, of: Of = "numbers"
) -> Open:
    """E[sum of linear parts | p-ring], or a bound on it from the sizes, or the errors, of the means of the variables.

    Shapes    over BATCH (if scores matter) and the indices that matter
    """
    total = Open((), np.zeros(()))
    for part in parts:
        local = dict(ranges) | {name: recursion.parts.bound_ranges[name] for name in part.bound}
        if part.function is not None:
            value = recursion.settle(recursion.centre(part.inner, local))
            inner = _read(value, of)
            if not np.any(inner.data):
                continue
        elif of == "errors":
            continue
        else:
            inner = Open((), np.ones(()))
        summed = sum_product(coefficient(recursion, part, {}, local, reader, of), inner, part.bound, local)
        total = add(total, summed)
    return total


class LinearCovariance:
    """Cov[f, g | p-ring] of two sums of linear parts, f over the indices in `ranges`, g over their second copies.

    Coefficients are evaluated for all draws at once; covariances of the variables stay structured.
    """

    def __init__(
        self,
        recursion: NumericRecursion,
        first: Sequence[WeightedFunction],
        second: Sequence[WeightedFunction],
        ranges: Ranges,
    ) -> None:
        self.recursion = recursion
        self._pairs: list[tuple[WeightedFunction, WeightedFunction, Ranges, Equations, Value]] = []
        for one, two, local, moment in recursion.linear_pairs(first, second, ranges):
            self._pairs += [(one, two, local, term.equations, term.value) for term in moment.terms]

    def value(self, reader: Any, tied_names: Collection[str], of: Of = "numbers") -> Open:
        """The covariance, where the second copies of the indices `tied_names` are equal to the first.

        Of the sizes of the variables' covariances it is a bound where coefficients are bounds, of their errors what
        these do to it.

        Shapes    Open over BATCH (if scores matter) and the indices, those missing that do not matter
        """
        tie = {f"{name}_": Affine.index(name) for name in tied_names}
        total = Open((), np.zeros(()))
        for p, q, local, equations, value in self._pairs:
            starts = {name: span[0] for name, span in local.items()}
            tied: set[Affine] = set()
            holds = True
            for equation in equations:
                form = canonical(equation.at(tie))
                if form is not None:
                    holds = holds and bool(form.terms)
                    tied.add(form)
            if not holds:
                continue
            solved = self.recursion.eliminate(p, q, frozenset(tied), local)
            names = {key: form.at(solved.solution) for key, form in tie.items()} | solved.solution
            mask = inside_mask(solved.inside, local)
            middle = gather(_read(value, of), names, local, starts)
            if mask is not None:
                middle = multiply(middle, mask)
            first = coefficient(self.recursion, p, names, local, reader, of)
            second = coefficient(self.recursion, q, names, local, reader, of)
            only_first = [name for name in solved.over if name not in second.axes]
            left = sum_product(first, middle, only_first, local)
            result = sum_product(left, second, [name for name in solved.over if name in second.axes], local)
            for equation in solved.remaining:  # e.g. outputs of different heads are independent
                grid = affine_values(equation, local)
                result = multiply(result, Open(grid.axes, (grid.data == 0).astype(float)))
            total = add(total, result)
        return total


def sum_product(first: Open, second: Open, over: Sequence[str], ranges: Ranges) -> Open:
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

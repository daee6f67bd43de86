"""Expectations of two parts over all patterns of equations between their indices, by inclusion and exclusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import NotCompiledError
from tensorprog.language.expr import Affine, Number
from tensorprog.language.ir import Range
from tensorprog.language.named_arrays import Open, affine_values, align, union
from tensorprog.language.substitute import compose, substitute
from tensorprog.limit.form.sums_of_functions import ONE, Part
from tensorprog.limit.moment.moments import Equations, Moment, Term, Value, canonical, possible, solve
from tensorprog.limit.moment.products import Product, factors_of
from tensorprog.limit.moment.reduced import Reduced, together

if TYPE_CHECKING:
    from tensorprog.limit.moment.covariance import Compiler

__all__ = ["Patterns", "variable_pairs"]

Array = NDArray[Any]
Difference = tuple[Equations, Value]  # one entry of the inclusion-exclusion over equation patterns


def variable_pairs(p: Part, q: Part, ranges: Mapping[str, Range]) -> Iterator[tuple[Part, Part, dict[str, Range]]]:
    """The pairs of terms of two affine forms, each weight * variable summed over its indices, with all ranges."""
    for a, u, bound in p.inner:
        first = Part(a, bound, None, ((Number(1), u, ()),))
        for b, v, other in q.inner:
            # the variance of a sum: its second copy runs by itself
            again = {name: Affine(((f"{name}'", 1),)) for name in other if name in bound}
            second = Part(b, other, None, ((Number(1), v, ()),)).renamed(again)
            yield first, second, dict(ranges) | {f"{name}'": ranges[name] for name in again}


class Patterns:
    """E[part part'] as sums of 1[equations] * value, from the covariances that a compiler knows."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self._known: dict[Any, list[Difference]] = {}

    def paired(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> tuple[Part, Part, dict[str, Range]]:
        """Give the second part second-copy names; ranges with the bound indices of both."""
        bound = self.compiler.parts.bound_ranges
        names = {
            name: Affine(((f"{name}_", 1),)) for name in [*(n[:-1] for n in ranges if n.endswith("_")), *q.all_bound]
        }
        local = dict(ranges) | {name: self._bound_range(name) for name in p.all_bound}
        local |= {f"{name}_": self._bound_range(name) for name in q.all_bound}
        # softmax and the like keep indices that are bound here: both copies need their ranges
        local |= {f"{name}_": bound[name] for name in bound} | {name: bound[name] for name in bound}
        return p, q.renamed(names), local

    def _bound_range(self, name: str) -> Range:
        return self.compiler.parts.bound_ranges.get(name) or self.compiler.netsor.ranges[name]

    def differences(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> list[Difference]:
        """E[f(l) g(l')] without coefficients, as a sum of 1[equations] * value.

        The covariances of the arguments are sums of terms 1[E_k] * c_k; the expectation takes one value for each set
        of equations that hold, and the union of the E_k that hold is all that matters (inclusion and exclusion).
        """
        free = tuple((name, span) for name, span in ranges.items() if "~" not in name)
        key = (p.without_coefficient, q.without_coefficient, free)
        if key not in self._known:  # deep residual networks meet the same parts again in every layer
            self._known[key] = self._differences(p, q, ranges)
        return self._known[key]

    def _differences(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> list[Difference]:
        first, second = (factors_of(self.compiler.parts, part) for part in (p, q))
        pieces, drawn = [*first, *second], Value.of(1.0)
        if self.compiler.paths is not None:
            pieces, groups = self.compiler.paths.split(pieces)
            for group in groups:
                one, two = ([f for f in side if any(f is g for g in group)] for side in (first, second))
                drawn = drawn * self.compiler.paths.average(one, two, ranges)
        pieces, groups = together(self, pieces)
        blocks = [Reduced(self, [[f for f in side if any(f is g for g in group)] for side in (first, second)], ranges)
                  for group in groups]  # fmt: skip
        product = Product(self, pieces, ranges)
        lattice: set[Equations] = {frozenset()}
        held = [term.equations for moment in product.moments for term in moment.terms]
        for equations in (*held, *(dropped for block in blocks for dropped in block.dropped)):
            lattice |= {known | equations for known in lattice}
        result: list[Difference] = []
        for equations in sorted(lattice, key=lambda e: (len(e), sorted(map(str, e)))):
            solution = solve(equations, (*q.bound, *p.bound))
            if self._contradicts(equations, solution, ranges):
                continue
            each = (block.at(solution).expectation() for block in blocks)
            value = reduce(lambda a, b: a * b, each, product.expectation(equations, solution))
            found = value
            for smaller, part in result:
                if smaller < equations:
                    value = value + self._placed(part, solution, ranges).scaled(-1.0)
            if not (equations and self._vanishes(value, found)) and not value.zero():
                result.append((equations, value))
        return [(equations, value * self._placed(drawn, solve(equations, (*q.bound, *p.bound)), ranges))
                for equations, value in result]  # fmt: skip

    @staticmethod
    def _placed(value: Value, solution: Mapping[str, Affine], ranges: Mapping[str, Range]) -> Value:
        """The value where the equations put its indices."""
        starts = {name: span[0] for name, span in ranges.items()}
        return value.gather({k: v for k, v in solution.items() if k in value.axes}, ranges, starts)

    @staticmethod
    def _vanishes(difference: Value, found: Value) -> bool:
        """Whether a difference is zero within its error, at rounding level."""
        error, scale = difference.estimate.error, np.max(np.abs(found.estimate.value), initial=0.0)
        return bool(np.all(np.abs(difference.estimate.value) <= error) and np.max(error, initial=0.0) <= 1e-12 * scale)

    def _contradicts(self, equations: Equations, solution: Mapping[str, Affine], ranges: Mapping[str, Range]) -> bool:
        for equation in equations:
            form = canonical(compose(equation, solution))
            if form is not None and (not form.terms or not possible(form, ranges)):
                return True
        return False

    def centre(self, p: Part, ranges: Mapping[str, Range]) -> Value:
        """Mean of the affine form inside a part."""
        total = self.compiler.number(p.offset, ranges)
        for weight, variable, bound in p.inner:
            centre = self.compiler.base_mean(variable, ranges)
            if not centre.zero():
                total = total + self._summed(self.compiler.number(weight, ranges) * centre, bound, ranges)
        return total

    @staticmethod
    def _summed(value: Value, bound: Sequence[str], ranges: Mapping[str, Range]) -> Value:
        """Sum over indices; one that the value does not have counts with its size."""
        for name in bound:
            if name in value.axes:
                axis = value.axes.index(name)
                value = Value(tuple(a for a in value.axes if a != name), value.estimate.sum(axis=axis))
            else:
                value = value.scaled(float(ranges[name][1] - ranges[name][0]))
        return value

    def covariance(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> Moment:
        """Covariance of the affine forms inside two parts."""
        total = Moment((), dict(ranges))
        for first, second, local in variable_pairs(p, q, ranges):
            moment = self.compiler.replicated_covariance(first.inner[0][1], second.inner[0][1], local)
            for term in moment.terms:
                total = total + self.summed_term(first, second, term.equations, term.value, local, ranges)
        return total.simplified().merged()

    def summed_term(
        self,
        p: Part,
        q: Part,
        equations: Equations,
        value: Value,
        local: Mapping[str, Range],
        ranges: Mapping[str, Range],
    ) -> Moment:
        """Coefficients, then the sums over bound indices."""
        remaining, bound_solution, solution, mask = self.eliminate(p, q, equations, local)
        starts = {name: span[0] for name, span in local.items()}
        value = value.gather({k: v for k, v in solution.items() if k in value.axes}, local, starts)
        factors = [] if mask is None else [Value.of(mask.data, mask.axes)]
        for part in (p, q):
            if part.coefficient != ONE:
                factors.append(self.compiler.number(substitute(part.coefficient, dict(solution)), local))
        over = [name for name in (*p.bound, *q.bound) if name not in bound_solution]
        for k, factor in enumerate(factors):
            later = {name for other in factors[k + 1 :] for name in other.axes}
            now = [n for n in over if n in (*value.axes, *factor.axes) and n not in later]
            value, over = value.contracted(factor, now), [name for name in over if name not in now]
        value = self._summed(value, over, local)
        return Moment((Term(remaining, value),), ranges).simplified()

    def eliminate(
        self, p: Part, q: Part, equations: Equations, ranges: Mapping[str, Range]
    ) -> tuple[Equations, dict[str, Affine], dict[str, Affine], Open | None]:
        """Solve equations for bound indices first: what remains over free ones, and where bound ones stay in range."""
        bound = (*q.bound, *p.bound)
        bound_solution: dict[str, Affine] = {}
        remaining: set[Affine] = set()
        for equation in sorted(equations, key=str):
            form = canonical(compose(equation, bound_solution))
            if form is None:
                continue
            candidates = [name for name in bound if any(n == name and abs(v) == 1 for n, v in form.terms)]
            if not candidates:
                remaining.add(form)
                continue
            name = candidates[0]
            value = dict(form.terms)[name]
            rest = Affine(tuple((n, -v * value) for n, v in form.terms if n != name), -form.offset * value)
            bound_solution = {k: compose(old, {name: rest}) for k, old in bound_solution.items()} | {name: rest}
            remaining = {r for r in (canonical(compose(old, {name: rest})) for old in remaining) if r is not None}
        if any(name in bound for form in remaining for name in form.indices):
            raise NotCompiledError(
                "a sum over an index with a stride inside a covariance is not compiled by this version"
            )
        free = solve(frozenset(remaining), ())
        solution = {name: compose(form, free) for name, form in bound_solution.items()} | free
        mask: Open | None = None
        for name, form in bound_solution.items():
            form = compose(form, free)
            low, high = form.bounds(dict(ranges))
            start, stop = ranges[name]
            if low < start or high >= stop:
                values = affine_values(form, ranges)
                inside = Open(values.axes, ((values.data >= start) & (values.data < stop)).astype(float))
                if mask is None:
                    mask = inside
                else:
                    axes = union(mask.axes, inside.axes)
                    mask = Open(axes, align(mask, axes) * align(inside, axes))
        return frozenset(remaining), bound_solution, solution, mask

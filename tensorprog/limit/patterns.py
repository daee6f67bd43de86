"""Expectations of two parts over all patterns of equations between their indices, by inclusion and exclusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import COORDINATE, Open, affine_values, align, broadcast, union
from tensorprog.errors import NotCompiledError
from tensorprog.evaluate import Scope, evaluate
from tensorprog.expr import Affine, Number, Reduction, Variable, walk
from tensorprog.gaussian import qmc
from tensorprog.gaussian.propagation import cross_of_estimates, mean_of_estimates
from tensorprog.ir import Range
from tensorprog.limit.moments import Equations, Moment, Term, Value, canonical, possible, solve
from tensorprog.limit.parts import ONE, Part, indices_of
from tensorprog.limit.univariate import function
from tensorprog.rename import compose, substitute

if TYPE_CHECKING:
    from tensorprog.limit.covariance import Compiler

__all__ = ["Patterns"]

Array = NDArray[Any]
Difference = tuple[Equations, Value]  # one entry of the inclusion-exclusion over equation patterns


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
        self._refuse_reductions(p, q)
        one, two = self._form(p, ranges), self._form(q, ranges)
        between = self._covariance(p, q, ranges)
        moments = (
            [between, *(form[1] for form in (one, two))]
            if not (p.joint or q.joint)
            else self._joint_moments(p, q, ranges)
        )
        lattice: set[Equations] = {frozenset()}
        for moment in moments:
            for term in moment.terms:
                lattice |= {known | term.equations for known in lattice}
        result: list[Difference] = []
        starts = {name: span[0] for name, span in ranges.items()}
        for equations in sorted(lattice, key=lambda e: (len(e), sorted(map(str, e)))):
            solution = solve(equations, (*q.bound, *p.bound))
            if self._contradicts(equations, solution, ranges):
                continue
            value = self._expectation(p, q, one, two, between, equations, solution, ranges)
            found = value
            for smaller, part in result:
                if smaller < equations:
                    value = value + part.gather(
                        {k: v for k, v in solution.items() if k in part.axes}, ranges, starts
                    ).scaled(-1.0)
            if not (equations and self._vanishes(value, found)) and not value.zero():
                result.append((equations, value))
        return result

    @staticmethod
    def _vanishes(difference: Value, found: Value) -> bool:
        """Whether a difference is zero within its error, at rounding level."""
        error, scale = difference.estimate.error, np.max(np.abs(found.estimate.value), initial=0.0)
        return bool(np.all(np.abs(difference.estimate.value) <= error) and np.max(error, initial=0.0) <= 1e-12 * scale)

    def _refuse_reductions(self, *parts: Part) -> None:
        """A softmax or maximum over an index of vectors has no members to split by."""
        for part in parts:
            over = [n for n in walk(part.function) if isinstance(n, Reduction)] if part.function is not None else []
            if part.joint and any(self.compiler.parts.is_vector(node) for node in over):
                raise NotCompiledError(
                    f"{part.function}: nonlinear in vectors over an index, not compiled by this version"
                )

    def _contradicts(self, equations: Equations, solution: Mapping[str, Affine], ranges: Mapping[str, Range]) -> bool:
        for equation in equations:
            form = canonical(compose(equation, solution))
            if form is not None and (not form.terms or not possible(form, ranges)):
                return True
        return False

    def _form(self, p: Part, ranges: Mapping[str, Range]) -> tuple[Value, Moment]:
        """Mean and variance of the affine form inside a part."""
        total = self.compiler.number(p.offset, ranges)
        for weight, variable, bound in p.inner:
            centre = self.compiler.base_mean(variable, ranges)
            if not centre.zero():
                total = total + self._summed(self.compiler.number(weight, ranges) * centre, bound, ranges)
        return total, self._covariance(p, p, ranges)

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

    def _covariance(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> Moment:
        """Covariance of the affine forms inside two parts."""
        total = Moment((), dict(ranges))
        for a, u, bound in p.inner:
            first = Part(a, bound, None, ((Number(1), u, ()),))
            for b, v, other in q.inner:
                # the variance of a sum: its second copy runs by itself
                again = {name: Affine(((f"{name}'", 1),)) for name in other if name in bound}
                second = Part(b, other, None, ((Number(1), v, ()),)).renamed(again)
                local = dict(ranges) | {f"{name}'": ranges[name] for name in again}
                moment = self.compiler.reference_covariance(u, second.inner[0][1], local)
                for term in moment.terms:
                    total = total + self.summed_term(first, second, term.equations, term.value, local, ranges)
        return total.simplified().merged()

    def _expectation(
        self,
        p: Part,
        q: Part,
        one: tuple[Value, Moment],
        two: tuple[Value, Moment],
        between: Moment,
        equations: Equations,
        solution: Mapping[str, Affine],
        ranges: Mapping[str, Range],
    ) -> Value:
        starts = {name: span[0] for name, span in ranges.items()}

        def total(moment: Moment) -> Value:
            value = Value.of(0.0)
            for term in moment.terms:
                if term.equations <= equations:
                    inner = {k: v for k, v in solution.items() if k in term.value.axes}
                    value = value + term.value.gather(inner, ranges, starts)
            return value

        def placed(value: Value) -> Value:
            return value.gather({k: v for k, v in solution.items() if k in value.axes}, ranges, starts)

        if p.joint or q.joint:
            return self._joint(p, q, total, solution, ranges)
        (mean_p, var_p), (mean_q, var_q) = ((placed(m), total(v)) for m, v in (one, two))
        cov = total(between)
        if p.function is None and q.function is None:
            return Value.of(1.0)
        if p.linear and q.linear:
            if p.function is None or q.function is None:
                return mean_q if p.function is None else mean_p
            return cov + mean_p * mean_q
        needed = [substitute(part.function, dict(solution)) for part in (p, q) if part.function is not None]
        used = union(
            mean_p.axes, mean_q.axes, var_p.axes, var_q.axes, cov.axes, *(indices_of(e, ranges) for e in needed)
        )
        axes, pairs = _paired_axes(used)
        scope = self.compiler.scope(ranges)
        means = mean_p.aligned(axes), mean_q.aligned(axes)
        variances = var_p.aligned(axes), var_q.aligned(axes)
        f = function(needed[0], scope, axes)
        if p.function is None or q.function is None:
            which = 1 if p.function is None else 0
            found = mean_of_estimates(f, means[which], variances[which])
        else:
            g = f if needed[0] == needed[1] else function(needed[1], scope, axes)
            same = partial(self._one_variable, p, q, solution, axes, pairs, ranges)
            found = cross_of_estimates(f, g, means, variances, cov.aligned(axes), pairs, same)
        return Value(axes, found.reshape(np.broadcast_shapes(found.value.shape, (1,) * len(axes))))

    @staticmethod
    def _one_variable(
        p: Part, q: Part, solution: Mapping[str, Affine], axes: Sequence[str], pairs: int, ranges: Mapping[str, Range]
    ) -> Array:
        """Where two parts are functions of one variable: on the diagonal of the paired axes, if they are one part."""
        split = len(axes) - pairs
        copies = dict(zip(axes[split - pairs : split], axes[split:], strict=True))
        copies |= {name: f"{name}_" for name in p.all_bound if f"{name}_" not in solution}
        first, second = (part.without_coefficient.renamed(dict(solution)) for part in (p, q))
        alike = first.renamed({name: Affine(((copy, 1),)) for name, copy in copies.items()}) == second
        mask = np.full((1,) * len(axes), alike)
        for k in range(split - pairs, split):
            line = np.arange(ranges[axes[k]][1] - ranges[axes[k]][0])
            one, two = (line.reshape([-1 if k == place else 1 for k in range(len(axes))]) for place in (k, k + pairs))
            mask = mask & (one == two)
        return mask

    def _joint_moments(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> list[Moment]:
        references = [v for part in (p, q) for _, v, _ in part.inner]
        return [self.compiler.reference_covariance(u, v, ranges) for u, v in combinations(references, 2)] + [
            self.compiler.reference_covariance(u, u, ranges) for u in references
        ]

    def _joint(
        self, p: Part, q: Part, total: Any, solution: Mapping[str, Affine], ranges: Mapping[str, Range]
    ) -> Value:
        """Functions of several arguments: randomised quasi-Monte Carlo over all variables of both.

        Where the equations make members of both equal, their variables are the same, and the covariance is singular.
        """
        p, q = p.renamed(dict(solution)), q.renamed(dict(solution))
        references = list(dict.fromkeys(v for part in (p, q) for _, v, _ in part.inner))
        if any(bound for part in (p, q) if not part.joint for _, _, bound in part.inner):
            raise NotCompiledError("a function of several arguments beside one of a sum, not compiled by this version")
        means = [self.compiler.base_mean(v, ranges) for v in references]
        covs = [[total(self.compiler.reference_covariance(u, v, ranges)) for v in references] for u in references]
        exprs = []
        for part in (p, q):
            body = part.function
            if body is not None:
                exprs.append((part, body))
        free = union(
            *(m.axes for m in means),
            *(c.axes for row in covs for c in row),
            *(indices_of(body, ranges) for _, body in exprs),
        )
        sizes = {name: ranges[name][1] - ranges[name][0] for name in free}
        mean_array = np.stack([broadcast(m.value, free, sizes) for m in means], axis=-1)
        cov_array = np.stack(
            [np.stack([broadcast(c.value, free, sizes) for c in row], axis=-1) for row in covs], axis=-2
        )
        scope = self.compiler.scope(ranges)

        def call(z: Array) -> Array:
            result: Array = np.ones(1)
            for part, body in exprs:

                def read(reference: Variable, box: Mapping[str, Range]) -> Open:
                    if reference in references:
                        return Open((*free, COORDINATE), z[..., references.index(reference), :])
                    return scope.variable(reference, box)

                inner = Scope(self.compiler.netsor, ranges, read)
                if part.joint:
                    value = evaluate(body, inner)
                else:
                    form = evaluate(part.offset, inner)
                    for weight, variable, _ in part.inner:
                        a, b = evaluate(weight, inner), read(variable, ranges)
                        axes = union(form.axes, a.axes, b.axes)
                        form = Open(axes, align(form, axes) + align(a, axes) * align(b, axes))
                    argument = form

                    def formal(reference: Variable, box: Mapping[str, Range], argument: Open = argument) -> Open:
                        return argument if reference.name == "." else scope.variable(reference, box)

                    value = evaluate(body, Scope(self.compiler.netsor, ranges, formal))
                result = result * align(value, (*free, COORDINATE))
            return np.broadcast_to(result, (*mean_array.shape[:-1], z.shape[-1]))

        if any(name in solution for name in free):
            raise NotCompiledError(
                "a function of several arguments over shared weights is not compiled by this version"
            )
        return Value(free, qmc.expect(call, mean_array, cov_array, tolerance=1e-5))

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
        for part in (p, q):
            if part.coefficient != ONE:
                value = value * self.compiler.number(substitute(part.coefficient, dict(solution)), local)
        if mask is not None:
            value = value * Value.of(mask.data, mask.axes)
        value = self._summed(value, [n for n in (*p.bound, *q.bound) if n not in bound_solution], local)
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


def _paired_axes(used: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The axes as (*others, *first copies, *second copies), and how many first copies have a second one."""
    first = tuple(name for name in used if f"{name}_" in used)
    second = tuple(f"{name}_" for name in first)
    return (*(name for name in used if name not in (*first, *second)), *first, *second), len(first)

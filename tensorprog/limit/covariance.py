"""Definition 1 as one recursion over families: second moments of vectors, covariances of scores.

    MatMul    E[g g'] = sigma**2 1[same weight] E[x x']                  clause (ii)
    Nonlin    E[phi(Z) phi'(Z')] under the covariance of the arguments   clause (iii)
    Dot       Cov(p, p') = C(q, q') C(k, k') + C(q, k') C(k, q')         clause (iv), Isserlis
    average   n**-1 u.v -> E[Z^u Z^v], a number                          Yang's Netsor+
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import COORDINATE, Open, affine_values, align, broadcast, union
from tensorprog.errors import OutsideError
from tensorprog.evaluate import Scope, evaluate, index_array
from tensorprog.expr import Affine, Constant, Expr, IndexValue, Number, Variable, variables, walk
from tensorprog.gaussian import qmc
from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.expectation import cross, mean
from tensorprog.initials import initial_law
from tensorprog.ir import Dot, MatMul, Netsor, Range
from tensorprog.limit.moments import Equations, Moment, Term, Value, canonical, difference, possible, solve
from tensorprog.limit.parts import Part, Parts, position_names
from tensorprog.limit.univariate import function
from tensorprog.order import Loop, schedule
from tensorprog.rename import compose, substitute

__all__ = ["Compiler"]

Array = NDArray[Any]
Difference = tuple[Equations, Value]  # one entry of the inclusion-exclusion over equation patterns


class Compiler:
    """Moments of one program, computed when asked for and remembered.

    Raises    OutsideError for what this version does not compile
    """

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.parts = Parts(netsor)
        self._second: dict[tuple[str, str], Moment] = {}
        self._base: dict[tuple[str, str], Moment] = {}
        self._averages: dict[str, Value] = {}
        self.random = self._random_scalars()
        self._refuse()

    def _random_scalars(self) -> frozenset[str]:
        """Families that depend on scores: random in the limit."""
        found: set[str] = set()
        for _ in range(len(self.netsor.body) + 1):
            before = len(found)
            for statement in self.netsor.body:
                score = isinstance(statement, Dot) and statement.scale == "n**-0.5"
                if score or any(reference.name in found for reference in statement.inputs):
                    found.add(statement.target.name)
            if len(found) == before:
                break
        return frozenset(found)

    def _refuse(self) -> None:
        boundaries = {name: family.boundaries for name, family in self.netsor.families.items()}
        order, _ = schedule(self.netsor.body, self.netsor.ranges, boundaries)
        if any(isinstance(entry, Loop) for entry in order):
            raise OutsideError("the limit of recurrences is not compiled by this version; finite widths run")
        for statement in self.netsor.body:
            family = self.netsor.families[statement.target.name]
            if len(family.statements) > 1:
                raise OutsideError(f"{family.name} has several definitions: their limit is not compiled by this version")
            for reference in statement.inputs:
                target = self.netsor.families[reference.name]
                for slot, (start, stop) in zip(reference.slots, target.ranges, strict=True):
                    low, high = slot.bounds(self.netsor.ranges)
                    if low < start or high >= stop:
                        raise OutsideError(f"{reference} reads beyond its boundary: not compiled by this version")
        if self.netsor.fixed_widths:
            raise OutsideError("a width that stays finite needs products of Gaussians: not compiled by this version")

    # -- second moments of vectors ------------------------------------------------------------------------------

    def pair_ranges(self, f: str, g: str) -> dict[str, Range]:
        """Ranges of '0', '1', ... of f and '0_', '1_', ... of g."""
        return position_names(self.netsor, f) | position_names(self.netsor, g, "_")

    def second(self, f: str, g: str) -> Moment:
        """E[Z^f Z^g], uncentred, for vectors that no score reaches."""
        if (f, g) not in self._second:
            if (g, f) in self._second:
                self._second[f, g] = self._swapped(self._second[g, f], f, g)
            else:
                self._second[f, g] = self._compute(f, g)
        return self._second[f, g]

    def _swapped(self, moment: Moment, f: str, g: str) -> Moment:
        names = {}
        for name in moment.ranges:
            names[name] = Affine(((name[:-1] if name.endswith("_") else f"{name}_", 1),))
        return moment.rename(names, self.pair_ranges(f, g))

    def _compute(self, f: str, g: str) -> Moment:
        for name in (f, g):
            if name in self.random:
                raise OutsideError(f"{name} depends on scores: its second moment is random; see law.given(...)")
        ranges = self.pair_ranges(f, g)
        total = Moment((), ranges)
        for p in self.parts.of(f):
            for q in self.parts.of(g):
                p2, q2, local = self.paired(p, q, ranges)
                for equations, value in self.differences(p2, q2, local):
                    total = total + self._finish(p2, q2, equations, value, local, ranges)
        return total

    def mean(self, name: str) -> Value:
        """E[Z^f] of a vector that no score reaches, over positions '0', '1', ..."""
        if name in self.random:
            raise OutsideError(f"{name} depends on scores: its mean given them is law.given(...).mean")
        if self.netsor.families[name].kind == "scalar":
            return self.average(name)
        ranges = position_names(self.netsor, name)
        total = Moment((), ranges)
        for part in self.parts.of(name):
            p, one, local = self.paired(part, Part(Number(1)), ranges)
            for equations, value in self.differences(p, one, local):
                total = total + self._finish(p, one, equations, value, local, ranges)
        axes = tuple(ranges)
        return Value(axes, total.dense(axes))

    def centred(self, f: str, g: str) -> Moment:
        """Cov(Z^f, Z^g) of vectors that no score reaches."""
        if self.parts.is_base(f) and self.parts.is_base(g):
            return self.base(f, g)
        second, ranges = self.second(f, g), self.pair_ranges(f, g)
        names = {name: Affine(((f"{name}_", 1),)) for name in position_names(self.netsor, g)}
        starts = {name: span[0] for name, span in position_names(self.netsor, g).items()}
        product = self.mean(f) * self.mean(g).gather(names, ranges, starts)
        if not np.any(product.estimate.value):
            return second
        return second + Moment((Term(frozenset(), product.scaled(-1.0)),), ranges)

    def paired(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> tuple[Part, Part, dict[str, Range]]:
        """Give the second part second-copy names; ranges with the bound indices of both."""
        bound = self.parts.bound_ranges
        names = {name: Affine(((f"{name}_", 1),)) for name in [*(n[:-1] for n in ranges if n.endswith("_")), *q.all_bound]}
        local = dict(ranges) | {name: self._bound_range(name) for name in p.all_bound}
        local |= {f"{name}_": self._bound_range(name) for name in q.all_bound}
        # softmax and the like keep indices that are bound here: both copies need their ranges
        local |= {f"{name}_": bound[name] for name in bound} | {name: bound[name] for name in bound}
        return p, q.renamed(names), local

    def _bound_range(self, name: str) -> Range:
        return self.parts.bound_ranges.get(name) or self.netsor.ranges[name]

    def differences(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> list[Difference]:
        """E[f(l) g(l')] without coefficients, as a sum of 1[equations] * value.

        The covariances of the arguments are sums of terms 1[E_k] * c_k; the expectation takes one value for each set
        of equations that hold, and the union of the E_k that hold is all that matters (inclusion and exclusion).
        """
        one, two = self._form(p, ranges), self._form(q, ranges)
        between = self._covariance(p, q, ranges)
        moments = [between, *(form[1] for form in (one, two))] if not (p.joint or q.joint) else self._joint_moments(p, q, ranges)
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
            scale = float(np.max(np.abs(value.estimate.value), initial=0.0))
            for smaller, part in result:
                if smaller < equations:
                    value = value + part.gather({k: v for k, v in solution.items() if k in part.axes}, ranges, starts).scaled(-1.0)
            error = value.estimate.error
            if equations and np.all(np.abs(value.estimate.value) <= error) and np.max(error, initial=0.0) <= 1e-12 * scale:
                continue
            if not value.zero():
                result.append((equations, value))
        return result

    def _contradicts(self, equations: Equations, solution: Mapping[str, Affine], ranges: Mapping[str, Range]) -> bool:
        for equation in equations:
            form = canonical(compose(equation, solution))
            if form is not None and (not form.terms or not possible(form, ranges)):
                return True
        return False

    def _form(self, p: Part, ranges: Mapping[str, Range]) -> tuple[Value, Moment]:
        """Mean and variance of the affine form inside a part."""
        total = self.number(p.offset, ranges)
        for weight, variable, bound in p.inner:
            total = total + self._summed(self.number(weight, ranges) * self.base_mean(variable, ranges), bound, ranges)
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
                moment = self.reference_covariance(u, second.inner[0][1], local)
                for term in moment.terms:
                    total = total + self._finish(first, second, term.equations, term.value, local, ranges)
        return total.simplified().merged()

    def reference_covariance(self, u: Variable, v: Variable, ranges: Mapping[str, Range]) -> Moment:
        """Covariance of two references to Gaussian variables, over the indices in their slots."""
        names = {str(k): slot for k, slot in enumerate(u.slots)} | {f"{k}_": slot for k, slot in enumerate(v.slots)}
        return self.base(u.name, v.name).rename(names, dict(ranges)).simplified()

    def _expectation(
        self, p: Part, q: Part, one: tuple[Value, Moment], two: tuple[Value, Moment], between: Moment,
        equations: Equations, solution: Mapping[str, Affine], ranges: Mapping[str, Range],
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
            return self._joint(p, q, total, placed, solution, ranges)
        (mean_p, var_p), (mean_q, var_q) = ((placed(m), total(v)) for m, v in (one, two))
        cov = total(between)
        if p.function is None and q.function is None:
            return Value.of(1.0)
        if p.linear and q.linear:
            if p.function is None or q.function is None:
                return mean_q if p.function is None else mean_p
            return cov + mean_p * mean_q
        needed = [substitute(part.function, dict(solution)) for part in (p, q) if part.function is not None]
        used = union(mean_p.axes, mean_q.axes, var_p.axes, var_q.axes, cov.axes, *(self._indices(e, ranges) for e in needed))
        axes = tuple(used)
        scope = self.scope(ranges)
        args = [value.aligned(axes) for value in (mean_p, mean_q, var_p, var_q, cov)]
        if p.function is None or q.function is None:
            which = 1 if p.function is None else 0
            f = function(needed[0], scope, axes)
            return Value(axes, _propagate(lambda m, v: mean(f, m, v), [args[which], args[2 + which]], axes))
        f, g = (function(expr, scope, axes) for expr in needed)

        def evaluate_cross(mp: Array, mq: Array, vp: Array, vq: Array, c: Array) -> Estimate:
            vp, vq = np.maximum(vp, 0), np.maximum(vq, 0)
            edge = np.sqrt(vp) * np.sqrt(vq)
            return cross(f, g, mp, mq, vp, vq, np.clip(c, -edge, edge))

        return Value(axes, _propagate(evaluate_cross, args, axes))

    def _joint_moments(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> list[Moment]:
        references = [v for part in (p, q) for _, v, _ in part.inner]
        return [self.reference_covariance(u, v, ranges) for u, v in combinations(references, 2)] + [
            self.reference_covariance(u, u, ranges) for u in references]

    def _joint(self, p: Part, q: Part, total: Any, placed: Any, solution: Mapping[str, Affine], ranges: Mapping[str, Range]) -> Value:
        """Functions of several arguments: randomised quasi-Monte Carlo over all variables of both."""
        references = list(dict.fromkeys(v for part in (p, q) for _, v, _ in part.inner))
        if any(bound for part in (p, q) if not part.joint for _, _, bound in part.inner):
            raise OutsideError("a function of several arguments beside one of a sum is not compiled by this version")
        for part in (p, q):
            for node in variables(part.function) if part.function is not None and part.joint else ():
                extra = {name for slot in node.slots for name in slot.indices} - set(ranges)
                if extra:
                    raise OutsideError(f"{node} is reduced nonlinearly over an index inside a vector function: its limit is not "
                                       "compiled by this version")
        means = [placed(self.base_mean(v, ranges)) for v in references]
        covs = [[total(self.reference_covariance(u, v, ranges)) for v in references] for u in references]
        exprs = []
        for part in (p, q):
            body = part.function
            if body is not None:
                exprs.append((part, body))
        free = union(*(m.axes for m in means), *(c.axes for row in covs for c in row),
                     *(self._indices(substitute(body, dict(solution)), ranges) for _, body in exprs))
        sizes = {name: ranges[name][1] - ranges[name][0] for name in free}
        mean_array = np.stack([broadcast(m.value, free, sizes) for m in means], axis=-1)
        cov_array = np.stack([np.stack([broadcast(c.value, free, sizes) for c in row], axis=-1) for row in covs], axis=-2)
        scope = self.scope(ranges)

        def call(z: Array) -> Array:
            result: Array = np.ones(1)
            for part, body in exprs:
                def read(reference: Variable, box: Mapping[str, Range]) -> Open:
                    if reference in references:
                        return Open((*free, COORDINATE), z[..., references.index(reference), :])
                    return scope.variable(reference, box)

                inner = Scope(self.netsor, ranges, read)
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

                    value = evaluate(body, Scope(self.netsor, ranges, formal))
                result = result * align(value, (*free, COORDINATE))
            return np.broadcast_to(result, (*mean_array.shape[:-1], z.shape[-1]))

        if any(name in solution for name in free):
            raise OutsideError("a function of several arguments over shared weights is not compiled by this version")
        return Value(free, qmc.expect(call, mean_array, cov_array, tolerance=1e-5))

    def _finish(
        self, p: Part, q: Part, equations: Equations, value: Value, local: Mapping[str, Range], ranges: Mapping[str, Range]
    ) -> Moment:
        """Coefficients, then the sums over bound indices."""
        remaining, bound_solution, solution, mask = self.eliminate(p, q, equations, local)
        starts = {name: span[0] for name, span in local.items()}
        value = value.gather({k: v for k, v in solution.items() if k in value.axes}, local, starts)
        for part in (p, q):
            value = value * self.number(substitute(part.coefficient, dict(solution)), local)
        if mask is not None:
            value = value * Value.of(mask.data, mask.axes)
        value = self._summed(value, [n for n in (*p.bound, *q.bound) if n not in bound_solution], local)
        return Moment((Term(remaining, value),), ranges).simplified()

    def eliminate(
        self, p: Part, q: Part, equations: Equations, ranges: Mapping[str, Range]
    ) -> tuple[Equations, dict[str, Affine], dict[str, Affine], Open | None]:
        """Solve equations for bound indices first: what remains over free indices, and where bound ones stay in range."""
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
            raise OutsideError("a sum over an index with a stride inside a covariance is not compiled by this version")
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

    # -- Gaussian variables -------------------------------------------------------------------------------------

    def base(self, f: str, g: str) -> Moment:
        """Covariance of two Gaussian families over positions '0', ... and '0_', ...: clauses (i) and (ii)."""
        if (f, g) not in self._base:
            self._base[f, g] = self._base_covariance(f, g)
        return self._base[f, g]

    def _base_covariance(self, f: str, g: str) -> Moment:
        ranges = self.pair_ranges(f, g)
        first, second = (self.netsor.families[name].statements for name in (f, g))
        if not first or not second:
            return self._initial(f, ranges) if f == g else Moment((), ranges)
        a, b = self.netsor.body[first[0]], self.netsor.body[second[0]]
        assert isinstance(a, MatMul) and isinstance(b, MatMul)
        if a.weight.name != b.weight.name:
            return Moment((), ranges)
        left = {slot.bare: Affine(((str(k), 1),)) for k, slot in enumerate(a.target.slots) if slot.bare}
        right = {slot.bare: Affine(((f"{k}_", 1),)) for k, slot in enumerate(b.target.slots) if slot.bare}
        names = {str(k): compose(slot, left) for k, slot in enumerate(a.vector.slots)}
        names |= {f"{k}_": compose(slot, right) for k, slot in enumerate(b.vector.slots)}
        moment = self.second(a.vector.name, b.vector.name).rename(names, ranges)
        equations: set[Affine] = set()
        for s, t in zip(a.weight.slots, b.weight.slots, strict=True):
            form = difference(compose(s, left), compose(t, right))
            if form is not None:
                equations.add(form)
        weight = self.netsor.weight[a.weight.name]
        variance = Value.of(*self._at_slots(weight.variance, weight.indices, [compose(s, left) for s in a.weight.slots], ranges))
        return moment.times(variance, frozenset(equations)).simplified().merged()

    def _at_slots(
        self, expr: Expr, indices: Sequence[str], slots: Sequence[Affine], ranges: Mapping[str, Range]
    ) -> tuple[Array, tuple[str, ...]]:
        """An expression in declared indices, read at affine forms of other indices."""
        used = [name for name in indices if any(name == n for n in self._indices(expr, self.netsor.ranges))]
        data = index_array(self.netsor, expr, used)
        value = Value.of(data, used)
        where = dict(zip(indices, slots, strict=True))
        starts = {name: self.netsor.ranges[name][0] for name in used}
        placed = value.gather({name: where[name] for name in used}, dict(ranges), starts)
        return placed.estimate.value, placed.axes

    def _initial(self, name: str, ranges: Mapping[str, Range]) -> Moment:
        initial = next(entry for entry in self.netsor.initial if entry.name == name)
        law = initial_law(self.netsor, initial)
        position = {index: str(k) for k, index in enumerate(initial.indices)}
        shape = [ranges[position[index]][1] - ranges[position[index]][0] for index in law.joint]
        data = law.blocks.reshape((*law.blocks.shape[: len(law.independent)], *shape, *shape))
        axes = (*(position[i] for i in law.independent), *(position[i] for i in law.joint),
                *(f"{position[i]}_" for i in law.joint))
        equations = frozenset(
            form for form in (difference(Affine(((position[i], 1),)), Affine(((f"{position[i]}_", 1),)))
                              for i in law.independent) if form is not None)
        if law.independent and data.size and np.all(data == data[(slice(0, 1),) * len(law.independent)]):
            data, axes = data[(0,) * len(law.independent)], axes[len(law.independent) :]
        return Moment((Term(equations, Value.of(data, axes)),), dict(ranges)).merged()

    def base_mean(self, reference: Variable, ranges: Mapping[str, Range]) -> Value:
        """Mean of a Gaussian variable: zero for MatMul outputs."""
        family = self.netsor.families[reference.name]
        if family.statements:
            return Value.of(0.0)
        initial = next(entry for entry in self.netsor.initial if entry.name == reference.name)
        mean_array = initial_law(self.netsor, initial).mean
        names = [str(k) for k in range(len(family.ranges))]
        starts = {name: span[0] for name, span in zip(names, family.ranges, strict=True)}
        if np.all(mean_array == 0):
            return Value.of(0.0)
        return Value.of(mean_array, names).gather(dict(zip(names, reference.slots, strict=True)), ranges, starts)

    # -- numbers ------------------------------------------------------------------------------------------------

    def _indices(self, expr: Expr, ranges: Mapping[str, Range]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for node in walk(expr):
            if isinstance(node, IndexValue):
                found[node.name] = None
            elif isinstance(node, Constant | Variable):
                found |= dict.fromkeys(name for slot in node.slots for name in slot.indices)
        return tuple(name for name in found if name in ranges)

    def scope(self, ranges: Mapping[str, Range]) -> Scope:
        """Numbers: constants, indices and averages; a score here would be a mistake of ours."""
        full = dict(self.netsor.ranges) | dict(self.parts.bound_ranges) | dict(ranges)
        return Scope(self.netsor, full, lambda reference, box: self._average_at(reference, box).value)

    def _average_at(self, reference: Variable, ranges: Mapping[str, Range]) -> Value:
        value = self.average(reference.name)
        names = {str(k): slot for k, slot in enumerate(reference.slots)}
        starts = {str(k): span[0] for k, span in enumerate(self.netsor.families[reference.name].ranges)}
        return value.gather({k: v for k, v in names.items() if k in value.axes}, ranges, starts)

    def average(self, name: str) -> Value:
        """Limit of a scalar that no score reaches: an average n**-1 u.v, or a function of averages."""
        if name in self._averages:
            return self._averages[name]
        if name in self.random:
            raise OutsideError(f"{name} is random in the limit")
        family = self.netsor.families[name]
        statement = self.netsor.body[family.statements[0]]
        ranges = position_names(self.netsor, name)
        names = {slot.bare: Affine(((str(k), 1),)) for k, slot in enumerate(statement.target.slots) if slot.bare}
        if isinstance(statement, Dot):
            slots = {str(k): compose(slot, names) for k, slot in enumerate(statement.left.slots)}
            slots |= {f"{k}_": compose(slot, names) for k, slot in enumerate(statement.right.slots)}
            moment = self.second(statement.left.name, statement.right.name).rename(slots, ranges).simplified()
            axes = tuple(dict.fromkeys(a for t in moment.terms for a in (
                *t.value.axes, *(n for e in t.equations for n in e.indices))))
            value = Value(axes, moment.dense(axes))
        else:
            assert not isinstance(statement, MatMul)
            value = self.number(self.parts.fresh(statement.expr, names), ranges)
        self._averages[name] = value
        return value

    def number(self, expr: Expr, ranges: Mapping[str, Range]) -> Value:
        """An expression of constants, indices and averages, with the error of the averages carried through."""
        scope = self.scope(ranges)
        value = evaluate(expr, scope)
        result = Value.of(value.data, value.axes)
        names = [v for v in variables(expr)]
        if not names:
            return result
        for reference in names:  # first-order: move each average by its error
            def shifted(other: Variable, box: Mapping[str, Range], moved: Variable = reference) -> Open:
                base = self._average_at(other, box)
                if other == moved:
                    return Open(base.axes, base.estimate.value + base.estimate.error)
                return base.value

            changed = evaluate(expr, Scope(self.netsor, scope.ranges, shifted))
            error = np.abs(align(changed, result.axes) - result.estimate.value) if changed.axes == result.axes else 0.0
            result = Value(result.axes, Estimate(result.estimate.value, result.estimate.error + error))
        return result

    # -- scores -------------------------------------------------------------------------------------------------

    def operands(self, name: str) -> tuple[Variable, Variable]:
        """The two references of a score over its position names."""
        statement = self.netsor.body[self.netsor.families[name].statements[0]]
        assert isinstance(statement, Dot)
        names = {slot.bare: Affine(((str(k), 1),)) for k, slot in enumerate(statement.target.slots) if slot.bare}
        left, right = (Variable(r.name, tuple(compose(slot, names) for slot in r.slots))
                       for r in (statement.left, statement.right))
        return left, right

    def score(self, f: str, g: str) -> Moment:
        """Cov of two score families: clause (iv), by Isserlis."""
        ranges = self.pair_ranges(f, g)
        second = {name[:-1]: Affine(((name, 1),)) for name in ranges if name.endswith("_")}
        left, right = self.operands(f)
        other_left, other_right = (
            Variable(r.name, tuple(compose(slot, second) for slot in r.slots)) for r in self.operands(g)
        )

        def c(u: Variable, v: Variable) -> Moment:
            return self.reference_covariance(u, v, ranges)

        return c(left, other_left) * c(right, other_right) + c(left, other_right) * c(right, other_left)


def _propagate(call: Any, args: Sequence[Estimate], axes: Sequence[str]) -> Estimate:
    """Evaluate with the values of the arguments and add the effect of their errors, to first order."""
    values = [arg.value for arg in args]
    result: Estimate = call(*values)
    scale = max(float(np.max(np.abs(v), initial=0.0)) for v in values)
    worst = max(float(np.max(arg.error, initial=0.0)) for arg in args)
    error = result.error
    if worst > 64 * EPS * scale:
        for k, arg in enumerate(args):
            if np.any(arg.error > 0):
                step = [*values[:k], values[k] + arg.error, *values[k + 1 :]]
                moved: Estimate = call(*step)
                error = error + np.abs(moved.value - result.value)
    shape = np.broadcast_shapes(result.value.shape, (1,) * len(axes))
    return Estimate(np.broadcast_to(result.value, shape), np.broadcast_to(error, shape))


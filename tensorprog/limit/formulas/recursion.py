"""Definition 1 on formulas: the recursion of `limit.covariance` over families, its values sympy expressions.

A formula holds unevaluated expectations and names for those of earlier lines; closed forms are taken when a member is
asked for, where it is known which variables are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

from tensorprog.language.errors import NotCompiledError, ProgramError
from tensorprog.language.expr import Affine, Expr, Number, Variable
from tensorprog.language.ir import Dot, MatMul, Netsor, Range, Table
from tensorprog.language.substitute import compose, reindexed, substitute
from tensorprog.limit.form.definitions import positions_of, refuse_steps
from tensorprog.limit.form.sums_of_functions import FORMAL, Part, position_names
from tensorprog.limit.formulas.cases import NOTHING, Cases, place
from tensorprog.limit.formulas.convert import Converter, Data, Lookup, affine, inside
from tensorprog.limit.formulas.expectation import Entry, Expectation, factor_of, in_variables
from tensorprog.limit.formulas.indexed import index_symbol, summed
from tensorprog.limit.formulas.outputs import Score
from tensorprog.limit.moment.covariance import Compiler
from tensorprog.limit.moment.moments import Equations, difference, solve
from tensorprog.limit.moment.patterns import variable_pairs
from tensorprog.limit.moment.reduced import reduces

__all__ = ["Formulas"]

Ranges = Mapping[str, Range]
ZERO, ONE = sp.S.Zero, sp.S.One
Forms = tuple[Any, Cases]  # mean and variance of the affine form inside a part


class Formulas:
    """Formulas of one program, made when asked for and remembered.

    Raises    NotCompiledError for what the numeric compiler does not compile
    """

    def __init__(self, netsor: Netsor, kept: frozenset[str]) -> None:
        refuse_steps(netsor)
        self.numeric = Compiler(netsor, symbols=kept)  # refuses; knows parts, patterns and operands
        if self.numeric.layered:
            raise NotCompiledError(
                "formulas for layers of scores and for finite widths are not compiled by this version; numbers are"
            )
        self.netsor = self.numeric.netsor
        self.parts, self.random = self.numeric.parts, self.numeric.random
        self.converter = Converter(self.netsor, kept)
        self.definitions: dict[tuple[str, str, int], tuple[tuple[Any, ...], Any]] = {}
        self._second: dict[tuple[str, str], Cases] = {}
        self._base: dict[tuple[str, str], Cases] = {}
        self._averages: dict[str, Any] = {}
        self._expanded: dict[Any, Any] = {}
        self._shallow: dict[Any, Any] = {}

    # -- numbers ------------------------------------------------------------------------------------------------

    def number(self, expr: Expr, ranges: Ranges) -> Any:
        """An expression of constants, indices and averages."""
        return self.converter.number(expr, self._average_at, self._all(ranges))

    def _all(self, ranges: Ranges) -> dict[str, Range]:
        return dict(self.netsor.ranges) | dict(self.parts.bound_ranges) | dict(ranges)

    def _average_at(self, reference: Variable) -> Any:
        if reference.name in self.random:
            return Score(sp.Symbol(reference.name), *map(affine, reference.slots))
        return place(self.average(reference.name), {str(k): slot for k, slot in enumerate(reference.slots)})

    def average(self, name: str) -> Any:
        """Limit of a scalar that no score reaches, over positions '0', '1', ..."""
        if name in self.random:
            raise ProgramError(f"{name} is random in the limit")
        if name not in self._averages:
            statement = self.netsor.body[self.netsor.families[name].statements[0]]
            ranges = position_names(self.netsor, name)
            names = positions_of(statement.target)
            if isinstance(statement, Dot):
                slots = {str(k): compose(slot, names) for k, slot in enumerate(statement.left.slots)}
                slots |= {f"{k}_": compose(slot, names) for k, slot in enumerate(statement.right.slots)}
                moment = self.second(statement.left.name, statement.right.name)
                self._averages[name] = moment.rename(slots, ranges).expression()
            else:
                assert not isinstance(statement, MatMul)
                self._averages[name] = self.number(self.parts.fresh(statement.expr, names), ranges)
        return self._averages[name]

    # -- clauses (i) and (ii) -----------------------------------------------------------------------------------

    def base(self, f: str, g: str) -> Cases:
        """Covariance of two Gaussian families."""
        if (f, g) not in self._base:
            self._base[f, g] = self._base_covariance(f, g)
        return self._base[f, g]

    def reference_covariance(self, u: Variable, v: Variable, ranges: Ranges) -> Cases:
        """Covariance of two references to vectors, over the indices in their slots."""
        names = {str(k): slot for k, slot in enumerate(u.slots)} | {f"{k}_": slot for k, slot in enumerate(v.slots)}
        return self.centred(u.name, v.name).rename(names, dict(ranges))

    def _base_covariance(self, f: str, g: str) -> Cases:
        ranges = self.numeric.pair_ranges(f, g)
        first, second = (self.netsor.families[name].statements for name in (f, g))
        if not first or not second:
            return self._initial(f, ranges) if f == g else Cases.constant(ZERO, ranges)
        a, b = self.netsor.body[first[0]], self.netsor.body[second[0]]
        assert isinstance(a, MatMul) and isinstance(b, MatMul)
        if a.weight.name != b.weight.name:
            return Cases.constant(ZERO, ranges)
        left = positions_of(a.target)
        right = positions_of(b.target, "_")
        names = {str(k): compose(slot, left) for k, slot in enumerate(a.vector.slots)}
        names |= {f"{k}_": compose(slot, right) for k, slot in enumerate(b.vector.slots)}
        slots = [compose(slot, left) for slot in a.weight.slots]
        forms = [difference(s, compose(t, right)) for s, t in zip(slots, b.weight.slots, strict=True)]
        weight = self.netsor.weight[a.weight.name]
        variance = substitute(weight.variance, dict(zip(weight.indices, slots, strict=True)))
        same = Cases.where(frozenset(form for form in forms if form is not None), self.number(variance, ranges), ranges)
        return self.second(a.vector.name, b.vector.name).rename(names, ranges) * same

    def _initial(self, name: str, ranges: Ranges) -> Cases:
        initial = next(entry for entry in self.netsor.initial if entry.name == name)
        own = {index: Affine(((str(k), 1),)) for k, index in enumerate(initial.indices)}
        other = {f"{index}_": Affine(((f"{k}_", 1),)) for k, index in enumerate(initial.indices)}
        everywhere = [affine(form) for form in (*own.values(), *other.values())]
        if isinstance(initial.cov, Table):
            shape = self.netsor.families[name].shape
            array = initial.cov.array.reshape((*shape, *shape))
            return Cases.constant(self._entry(f"K_{name}", array, name, 2, everywhere), ranges)
        value = self.number(substitute(initial.cov, own | other), ranges)
        if initial.data is not None:
            data = initial.data.array
            shape = self.netsor.families[name].shape
            gram = ((data @ data.T) / data.shape[1]).reshape((*shape, *shape))
            return Cases.constant(value * self._entry(f"G_{name}", gram, name, 2, everywhere), ranges)
        joint = self.numeric.initials[name].joint
        equations = {difference(own[i], other[f"{i}_"]) for i in initial.indices if i not in joint}
        return Cases.where(frozenset(form for form in equations if form is not None), value, ranges).tidied()

    def _entry(self, label: str, array: Any, family: str, copies: int, places: Sequence[Any]) -> Any:
        starts = tuple(start for start, _ in self.netsor.families[family].ranges) * copies
        return Lookup(Data(label, Table.of(array), starts), *places)

    def base_mean(self, reference: Variable, ranges: Ranges) -> Any:
        """Mean of a Gaussian variable."""
        if self.netsor.families[reference.name].statements:
            return ZERO
        initial = next(entry for entry in self.netsor.initial if entry.name == reference.name)
        if isinstance(initial.mean, Table):
            if not np.any(initial.mean.array):
                return ZERO
            places = [affine(slot) for slot in reference.slots]
            return self._entry(f"mu_{reference.name}", initial.mean.array, reference.name, 1, places)
        return self.number(substitute(initial.mean, dict(zip(initial.indices, reference.slots, strict=True))), ranges)

    # -- clause (iii) -------------------------------------------------------------------------------------------

    def second(self, f: str, g: str) -> Cases:
        """E[Z^f Z^g], uncentred, for vectors that no score reaches."""
        if (f, g) not in self._second:
            for name in (f, g):
                if name in self.random:
                    raise ProgramError(f"{name} depends on scores: its second moment is random")
            if (g, f) in self._second:
                found = self._second[g, f]
                names = {n: Affine(((n[:-1] if n.endswith("_") else f"{n}_", 1),)) for n in found.ranges}
                self._second[f, g] = found.rename(names, self.numeric.pair_ranges(f, g))
            else:
                self._second[f, g] = self._named(self._compute(f, g), f, g)
        return self._second[f, g]

    def _compute(self, f: str, g: str) -> Cases:
        ranges = self.numeric.pair_ranges(f, g)
        total = Cases.constant(ZERO, ranges)
        for p in self.parts.of(f):
            for q in self.parts.of(g):
                total = total + self.pair(p, q, ranges)
        return total

    def pair(self, p: Part, q: Part, ranges: Ranges) -> Cases:
        """E[part part'], coefficients and sums included."""
        p, q, local = self.numeric.patterns.paired(p, q, ranges)
        return self.summed(p, q, self.expectations(p, q, local), local, ranges)

    def _named(self, cases: Cases, f: str, g: str) -> Cases:
        """Formulas with expectations stand by name in later lines."""
        values = {}
        for key, value in cases.values.items():
            if value.has(Expectation):
                number = sum(known[:2] == (f, g) for known in self.definitions)
                symbols = tuple(sorted((s for s in value.free_symbols if s.is_integer), key=str))
                self.definitions[f, g, number] = symbols, value
                value = Entry(sp.Symbol(f), sp.Symbol(g), sp.Integer(number), *symbols)
            values[key] = value
        return Cases(values, cases.ranges)

    def mean(self, name: str) -> Cases:
        """E[Z^f] of a vector that no score reaches, over positions '0', '1', ..."""
        ranges = position_names(self.netsor, name)
        if self.netsor.families[name].kind == "scalar":
            return Cases.constant(self.average(name), ranges)
        total = Cases.constant(ZERO, ranges)
        for part in self.parts.of(name):
            total = total + self.pair(part, Part(Number(1)), ranges)
        return total

    def centred(self, f: str, g: str) -> Cases:
        """Cov(Z^f, Z^g) of vectors that no score reaches."""
        if self.parts.is_base(f) and self.parts.is_base(g):
            return self.base(f, g)
        ranges = self.numeric.pair_ranges(f, g)
        again = {name: Affine(((f"{name}_", 1),)) for name in position_names(self.netsor, g)}
        means = self.mean(f).rename({}, ranges) * self.mean(g).rename(again, ranges)
        return self.second(f, g).combined(means, lambda a, b: a - b)

    def expectations(self, p: Part, q: Part, ranges: Ranges) -> Cases:
        """E[f(l) g(l')] without coefficients, for every set of equations between indices that matters."""
        for part in (p, q):
            if reduces(self.parts, part):
                raise NotCompiledError(f"{part.function}: nonlinear in vectors over an index, no formulas of that")
        if p.joint or q.joint:
            return self._joint(p, q, ranges)
        one, two = self._form(p, ranges), self._form(q, ranges)
        moments = (one[1], two[1], self._covariance(p, q, ranges))

        def value(key: Equations, names: Mapping[str, Affine]) -> Any:
            means = [place(form[0], names) for form in (one, two)]
            return self._expectation(p, q, means, [place(c.at(key), names) for c in moments], names, ranges)

        return self._over(moments, ranges, value, (*q.bound, *p.bound))

    @staticmethod
    def _over(moments: Sequence[Cases], ranges: Ranges, value: Any, prefer: Sequence[str]) -> Cases:
        keys = {NOTHING}
        for moment in moments:
            keys |= {key | other for key in keys for other in moment.values}
        found: dict[Equations, Any] = {}
        for key in keys:
            solution = solve(key, prefer)
            if Cases({}, ranges).solutions(key) is not None:
                found[key] = value(key, solution)
        return Cases(found, ranges).tidied()

    def _form(self, p: Part, ranges: Ranges) -> Forms:
        """Mean and variance of the affine form inside a part."""
        total = self.number(p.offset, ranges)
        for weight, variable, bound in p.inner:
            value = self.number(weight, ranges) * self.base_mean(variable, ranges)
            for name in bound:
                value = summed(value, index_symbol(name), ranges[name])
            total += value
        return total, self._covariance(p, p, ranges)

    def _covariance(self, p: Part, q: Part, ranges: Ranges) -> Cases:
        """Covariance of the affine forms inside two parts."""
        total = Cases.constant(ZERO, ranges)
        for first, second, local in variable_pairs(p, q, ranges):
            moment = self.reference_covariance(first.inner[0][1], second.inner[0][1], local)
            total = total + self.summed(first, second, moment, local, ranges)
        return total

    def _expectation(
        self,
        p: Part,
        q: Part,
        means: Sequence[Any],
        moments: Sequence[Any],
        names: Mapping[str, Affine],
        ranges: Ranges,
    ) -> Any:
        (mp, mq), (vp, vq, c) = means, moments
        if p.linear and q.linear:
            if p.function is None or q.function is None:
                return ONE if p.function is q.function else mq if p.function is None else mp
            return c + mp * mq
        alone = {FORMAL: 0}
        if p.function is None or q.function is None:
            part, mean, variance = (q, mq, vq) if p.function is None else (p, mp, vp)
            return Expectation.of([self._factor(part, alone, names, ranges)], (mean,), ((variance,),)).settled()
        factors = [self._factor(p, alone, names, ranges), self._factor(q, {FORMAL: 1}, names, ranges)]
        return Expectation.of(factors, (mp, mq), ((vp, c), (c, vq))).settled()

    def _factor(self, part: Part, places: Mapping[Variable, int], names: Mapping[str, Affine], ranges: Ranges) -> Any:
        assert part.function is not None
        function = substitute(part.function, dict(names))
        return factor_of(function, places, lambda expr: self.number(expr, ranges))

    def _joint(self, p: Part, q: Part, ranges: Ranges) -> Cases:
        """Functions of several arguments; where the equations make members equal, their variables are the same."""
        if any(bound for part in (p, q) if not part.joint for _, _, bound in part.inner):
            raise NotCompiledError("a function of several arguments beside one of a sum, not compiled by this version")
        references = list(dict.fromkeys(v for part in (p, q) for _, v, _ in part.inner))
        covs = [[self.reference_covariance(u, v, ranges) for v in references] for u in references]

        def value(key: Equations, names: Mapping[str, Affine]) -> Any:
            moved = [part.renamed(dict(names)) for part in (p, q)]
            placed = [reindexed(v, names) for v in references]
            kept = [k for k, v in enumerate(placed) if v not in placed[:k]]
            places = {placed[k]: number for number, k in enumerate(kept)}
            factors = [
                factor_of(in_variables(part), places, lambda expr: self.number(expr, ranges))
                for part in moved
                if part.function is not None
            ]
            means = [self.base_mean(v, ranges) for v in places]
            return Expectation.of(
                factors, means, [[place(covs[a][b].at(key), names) for b in kept] for a in kept]
            ).settled()

        return self._over([c for row in covs for c in row], ranges, value, (*q.bound, *p.bound))

    def summed(self, p: Part, q: Part, cases: Cases, local: Ranges, ranges: Ranges) -> Cases:
        """Coefficients, then the sums over bound indices."""
        bound = (*p.bound, *q.bound)
        if not bound:
            factor = self._coefficients(p, q, {}, local)
            return Cases(cases.mapped(lambda value: factor * value).values, ranges).tidied()
        terms = []
        for equations, value in cases.differences():
            remaining, solved, solution, _ = self.numeric.patterns.eliminate(p, q, equations, local)
            value = place(value, solution) * self._coefficients(p, q, solution, local)
            for name in solved:
                value = value * inside(solution[name], local[name], local)
            for name in bound:
                if name not in solved:
                    value = summed(value, index_symbol(name), local[name])
            terms.append((remaining, value))
        return Cases.total(terms, ranges)

    def _coefficients(self, p: Part, q: Part, names: Mapping[str, Affine], ranges: Ranges) -> Any:
        return sp.Mul(*(self.number(substitute(part.coefficient, dict(names)), ranges) for part in (p, q)))

    # -- clause (iv) --------------------------------------------------------------------------------------------

    def score(self, f: str, g: str) -> Cases:
        """Cov of two score families, by Isserlis."""
        ranges = self.numeric.pair_ranges(f, g)
        second = {name[:-1]: Affine(((name, 1),)) for name in ranges if name.endswith("_")}
        left, right = self.numeric.operands(f)
        other = [Variable(r.name, tuple(compose(s, second) for s in r.slots)) for r in self.numeric.operands(g)]

        def c(u: Variable, v: Variable) -> Cases:
            return self.reference_covariance(u, v, ranges)

        return c(left, other[0]) * c(right, other[1]) + c(left, other[1]) * c(right, other[0])

    # -- given the scores ---------------------------------------------------------------------------------------

    def conditional(self, f: str, g: str) -> Cases:
        """Cov(f, g | p-ring) of vectors that are linear in Gaussian ones given the scores."""
        ranges = self.numeric.pair_ranges(f, g)
        total = Cases.constant(ZERO, ranges)
        for p in self.parts.of(f):
            for q in self.parts.of(g):
                if p.function is not None and q.function is not None:
                    first, second, local = self.numeric.patterns.paired(p, q, ranges)
                    covariance = self._covariance(first, second, local)
                    total = total + self.summed(first, second, covariance, local, ranges)
        return total

    def conditional_mean(self, name: str) -> Cases:
        """E[f | p-ring], likewise."""
        ranges = position_names(self.netsor, name)
        one = Part(Number(1))
        total = Cases.constant(ZERO, ranges)
        for part in self.parts.of(name):
            p, q, local = self.numeric.patterns.paired(part, one, ranges)
            mean = ONE if p.function is None else self._form(p, local)[0]
            total = total + self.summed(p, q, Cases.constant(mean, local), local, ranges)
        return total

    # -- from names to formulas ---------------------------------------------------------------------------------

    def expand(self, expr: Any) -> Any:
        """Names replaced by their formulas, expectations by closed forms where there are any."""
        return self._walk(expr, self._expanded, True)

    def shallow(self, expr: Any) -> Any:
        """The same, names of earlier lines kept."""
        return self._walk(expr, self._shallow, False)

    def _walk(self, expr: Any, known: dict[Any, Any], names: bool) -> Any:
        if not expr.args or not expr.has(Entry, Expectation):
            return expr
        if expr not in known:
            if isinstance(expr, Entry) and not names:
                return expr
            if isinstance(expr, Entry):
                symbols, value = self.definitions[expr.key]
                found = self.expand(value.xreplace(dict(zip(symbols, expr.args[3:], strict=True))))
            else:
                args = [self._walk(arg, known, names) for arg in expr.args]
                found = Expectation(*args).closed() if isinstance(expr, Expectation) else expr.func(*args)
            known[expr] = found
        return known[expr]

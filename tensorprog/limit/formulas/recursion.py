"""The algebra of formulas: Definition 1 on sympy expressions, kept case by case, where nothing cancels.

A formula holds unevaluated expectations and names for those of earlier lines; closed forms are taken when a member is
asked for, where it is known which variables are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import add, mul, truediv
from typing import Any

import numpy as np
import sympy as sp

from tensorprog.language.arrows import connected
from tensorprog.language.errors import NotCompiledError
from tensorprog.language.expr import (
    Affine,
    Expr,
    Variable,
    factors,
    product_of,
    reindexed,
    substitute,
)
from tensorprog.language.initials import initial_laws
from tensorprog.language.ir import Initial, MatMul, Netsor, Range, Table
from tensorprog.limit.form.definitions import ONE, at_positions, operands_of, refuse_steps
from tensorprog.limit.form.sums_of_functions import FORMAL, SumsOfFunctions, WeightedFunction, position_names
from tensorprog.limit.formulas.conversion import Converter, within
from tensorprog.limit.formulas.expectation import Expectation, factor_of
from tensorprog.limit.formulas.nodes import (
    Choice,
    Entry,
    Lookup,
    Named,
    Score,
    ScoreAverage,
    affine,
    index_symbol,
    same,
    summed,
)  # fmt: skip
from tensorprog.limit.moment.indexed import NOTHING, Equations, Indexed, Term, difference, patterns, solved
from tensorprog.limit.moment.products import Factors, NumberedFactor, merged
from tensorprog.limit.moment.recursion import Forms, Recursion

__all__ = ["FormulaRecursion", "IndexedFormulas", "Ranges"]

Ranges = Mapping[str, Range]


def place(value: Any, names: Mapping[str, Affine]) -> Any:
    """A formula at affine forms of other indices."""
    return value.xreplace({index_symbol(name): affine(form) for name, form in names.items()})


class IndexedFormulas(Indexed[Any]):
    """A formula for each set of equations: where several sets hold, that of their union, which is listed too.

    Formulas are read where the equations put them; cases that cannot hold or say nothing new are left out.
    """

    @property
    def table(self) -> dict[Equations, Any]:
        """Every case with its formula."""
        return {term.equations: term.value for term in self.terms}

    @classmethod
    def constant(cls, value: Any, ranges: Ranges) -> IndexedFormulas:
        """One formula everywhere."""
        return cls((Term(NOTHING, sp.sympify(value)),), ranges)

    @classmethod
    def of_cases(cls, cases: Mapping[Equations, Any], ranges: Ranges, prefer: Sequence[str] = ()) -> IndexedFormulas:
        """From the formula of every case."""
        values: dict[Equations, Any] = {}
        for key in sorted(cases, key=lambda e: (len(e), sorted(map(str, e)))):
            solution = solved(key, ranges)
            if solution is not None:
                values[key] = place(cases[key], solution)
        for key in sorted(values, key=len, reverse=True):
            below = [other for other in values if other < key]
            if not key or any(a | b == key for a in below for b in below):
                continue
            parent = NOTHING.union(*below)
            if same(values[key], place(values[parent], solved(key, ranges) or {})):
                del values[key]
        return cls(tuple(Term(equations, value) for equations, value in values.items()), ranges)

    @classmethod
    def of_overlapping(cls, summands: Iterable[tuple[Equations, Any]], ranges: Ranges) -> IndexedFormulas:
        """From formulas that count wherever their equations hold."""
        given = list(summands)
        keys = [key for key, _ in patterns((equations for equations, _ in given), ranges)]
        return cls.of_cases({key: sum((v for e, v in given if e <= key), sp.S.Zero) for key in keys}, ranges)

    def overlapping(self) -> list[tuple[Equations, Any]]:
        """What each case adds to the smaller ones."""
        found: list[tuple[Equations, Any]] = []
        for term in sorted(self.terms, key=lambda term: len(term.equations)):
            at = solved(term.equations, self.ranges) or {}
            rest = sum((place(value, at) for smaller, value in found if smaller < term.equations), sp.S.Zero)
            value = sp.expand_mul(term.value - rest)
            if value != 0:
                found.append((term.equations, value))
        return found

    def case(self, equations: Equations, solution: Mapping[str, Affine] | None = None) -> Any:
        """The formula of the most special case that holds there."""
        cases = self.table
        value = cases[NOTHING.union(*(key for key in cases if key <= equations))]
        return value if solution is None else place(value, solution)

    def _combined(self, other: IndexedFormulas, operation: Callable[[Any, Any], Any]) -> IndexedFormulas:
        """Case by case."""
        keys = {a.equations | b.equations for a in self.terms for b in other.terms}
        possible = [key for key in keys if solved(key, self.ranges) is not None]
        both = {key: operation(self.case(key), other.case(key)) for key in possible}
        return IndexedFormulas.of_cases(both, self.ranges)

    def __add__(self, other: IndexedFormulas) -> IndexedFormulas:
        return self._combined(other, add)

    def __mul__(self, other: IndexedFormulas) -> IndexedFormulas:
        return self._combined(other, mul)

    def divided(self, other: IndexedFormulas) -> IndexedFormulas:
        """Case by case."""
        return self._combined(other, truediv)

    def times(self, value: Any, equations: Equations = NOTHING) -> IndexedFormulas:
        """Times a formula, and zero where the equations do not hold."""
        factor = (Term(NOTHING, sp.S.Zero), Term(equations, sp.sympify(value)))
        return self * IndexedFormulas(factor if equations else factor[1:], self.ranges)

    def zero(self) -> bool:
        """Whether all formulas are zero."""
        return all(term.value == 0 for term in self.terms)

    def placed(self, value: Any, names: Mapping[str, Affine], ranges: Ranges) -> Any:
        """A formula at affine forms of other indices."""
        return place(value, names)

    def _gathered(self, terms: Sequence[tuple[Equations, Term[Any]]], ranges: Ranges) -> IndexedFormulas:
        # two sets that have become one another's parts may have a union that was not listed
        found: dict[Equations, Any] = {}
        for _, term in sorted(terms, key=lambda entry: -len(entry[0])):
            found.setdefault(term.equations, term.value)
        return IndexedFormulas.of_cases(found, ranges)

    def entry(self, positions: Mapping[str, int]) -> Any:
        """The formula of one member of each family."""
        fixed = {name: Affine((), value) for name, value in positions.items()}
        holds = frozenset(e for key in self.table for e in key if e.at(fixed).offset == 0)
        return place(self.case(holds), fixed)


class FormulaRecursion(Recursion[Any, IndexedFormulas]):
    """Definition 1 in formulas, made when asked for and remembered.

    Raises    NotCompiledError for what the recursion in numbers does not compile, and for recurrences and layers
    """

    kind = IndexedFormulas

    def __init__(self, netsor: Netsor, kept: frozenset[str]) -> None:
        refuse_steps(netsor)
        super().__init__(netsor, symbols=kept)
        if self.layered:
            raise NotCompiledError(
                "scores behind scores and widths that stay finite have no formulas yet; limit() without symbolic=True "
                "gives their numbers"
            )
        if self.program.corrected:
            self.parts = SumsOfFunctions(self.netsor, written_out=True)
        self.joint = {name: law.joint for name, law in initial_laws(self.netsor).items()}
        self.converter = Converter(self.netsor, kept)
        self.definitions: dict[
            Any, tuple[tuple[str, str], tuple[Any, ...], Any]
        ] = {}  # name: families, indices, formula
        self._known: dict[Any, Any] = {}  # closed forms
        self._coefficients: dict[str, IndexedFormulas] = {}
        self.reset()

    @property
    def families(self) -> tuple[str, ...]:
        """Names of vectors and scalars, in the order of the program."""
        return tuple(dict.fromkeys(s.target.name for s in self.netsor.body))

    # -- the algebra ----------------------------------------------------------------------------------------------

    def number(self, expr: Expr, ranges: Ranges) -> Any:
        """An expression of constants, indices and averages; scores stay as they are."""
        full = dict(self.netsor.ranges) | dict(self.parts.bound_ranges) | dict(ranges)
        return self.converter.number(expr, self._average_at, full)

    def _average_at(self, reference: Variable) -> Any:
        if reference.name in self.random:
            return Score(sp.Symbol(reference.name), *map(affine, reference.slots))
        return place(self.average(reference.name), {str(k): slot for k, slot in enumerate(reference.slots)})

    def variance(self, weight: str, slots: Sequence[Affine], ranges: Ranges) -> Any:
        """The variance of a weight whose indices are affine forms of others."""
        declared = self.netsor.weight[weight]
        return self.number(substitute(declared.variance, dict(zip(declared.indices, slots, strict=True))), ranges)

    def initial(self, name: str, ranges: Ranges, where: Equations) -> IndexedFormulas:
        """The covariance of initial vectors: an expression, or an entry of a table or of a Gram matrix of data."""
        initial = self._declared(name)
        own = {index: Affine.index(str(k)) for k, index in enumerate(initial.indices)}
        other = {f"{index}_": Affine.index(f"{k}_") for k, index in enumerate(initial.indices)}
        everywhere = [affine(form) for form in (*own.values(), *other.values())]
        factor, array, label = sp.S.One, None, "K"
        if isinstance(initial.cov, Table):
            array = initial.cov.array
        else:
            factor = self.number(substitute(initial.cov, own | other), ranges)
        if initial.data is not None:
            array, label = initial.data.array @ initial.data.array.T / initial.data.shape[1], "G"
        if array is not None:
            array = array.reshape(self.netsor.families[name].shape * 2)
            return IndexedFormulas.constant(factor * self._entry(f"{label}_{name}", array, name, everywhere), ranges)
        same = {difference(own[i], other[f"{i}_"]) for i in initial.indices if i not in self.joint[name]}
        equations = frozenset(form for form in same if form is not None)
        return IndexedFormulas.of_cases({NOTHING: sp.S.Zero, equations: factor}, ranges)

    def _declared(self, name: str) -> Initial:
        return next(entry for entry in self.netsor.initial if entry.name == name)

    def _entry(self, label: str, array: Any, family: str, places: Sequence[Any]) -> Any:
        starts = [start for start, _ in self.netsor.families[family].ranges]
        return Lookup.of(label, Table.of(array), tuple(starts * (len(places) // max(len(starts), 1))), places)

    def initial_mean(self, reference: Variable, ranges: Ranges) -> Any:
        """The mean of an initial vector: an expression, or an entry of a table; None where it is zero."""
        initial = self._declared(reference.name)
        if isinstance(initial.mean, Table):
            if not np.any(initial.mean.array):
                return None
            places = [affine(slot) for slot in reference.slots]
            return self._entry(f"mu_{reference.name}", initial.mean.array, reference.name, places)
        mean = self.number(substitute(initial.mean, dict(zip(initial.indices, reference.slots, strict=True))), ranges)
        return None if mean == 0 else mean

    def averaged(self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges) -> IndexedFormulas:
        """E[f(l) g(l')] without coefficients: an expectation for each set of factors that are not independent."""
        for part in (p, q):
            if self.parts.reduces(part):
                raise NotCompiledError(
                    f"{part.function} reads the members of a vector together, for which there are "
                    "no formulas yet; limit() without symbolic=True gives the numbers"
                )
        factors = Factors(self.parts, [factor for part in (p, q) for factor in self.parts.factors_of(part)])
        forms = Forms(self, factors.forms, factors.met, ranges, {})

        def expectation(equations: Equations, solution: Mapping[str, Affine]) -> Any:
            def cov(j: int, k: int) -> Any:
                return forms.cov(j, k, equations, solution)

            def tied(one: NumberedFactor, two: NumberedFactor) -> bool:
                return any(j == k or cov(j, k) != 0 for j in one.places for k in two.places)

            found = [self.number(substitute(number, solution), ranges) for number in factors.constants]
            for block in connected(factors.placed(solution), tied):
                places = sorted({place for factor in block for place in factor.places})
                means = [forms.mean(k, solution) for k in places]
                covs = [[cov(j, k) for k in places] for j in places]
                linear = all(factor.plain == FORMAL for factor in block)
                if linear and len(block) <= 2:
                    own = [means[places.index(factor.places[0])] for factor in block]
                    found.append(sp.Mul(*own) + (covs[0][-1] if len(block) == 2 else 0))
                    continue
                numbers = {Variable(f".{place}"): k for k, place in enumerate(places)}
                parts = [factor_of(f.body, numbers, lambda expr: self.number(expr, ranges)) for f in merged(block)]
                found.append(Expectation.of(parts, means, covs).settled())
            return sp.Mul(*found)

        return self.by_patterns(forms.equations, expectation, ranges, (*q.bound, *p.bound))

    def _average(self, name: str) -> Any:
        return self.value_of(self.coefficient(name)) if name in self.program.corrected else super()._average(name)

    def coefficient(self, name: str) -> IndexedFormulas:
        """A coefficient of an Onsager term, by Stein's lemma: for x = f(l), l an affine form of Gaussian variables,

        E[dx / dhat] = (dl / dhat) E[f'(l)], and E[f'(l)] = E[(l - E l) f(l)] / Var l, also where f jumps.
        """
        if name not in self._coefficients:
            self._coefficients[name] = self._coefficient(name)
        return self._coefficients[name]

    def _coefficient(self, name: str) -> IndexedFormulas:
        statement, ranges = self.program.corrected[name], position_names(self.netsor, name)
        dot = next(c for c in statement.coefficients if c.target.name == name)
        left, right = operands_of(dot)
        (other,) = (self.netsor.body[p] for p in self.netsor.families[right.name].statements)
        assert isinstance(other, MatMul)
        there = {own.bare: slot for own, slot in zip(other.target.slots, right.slots, strict=True) if own.bare}
        weight, met = at_positions(statement.product.weight, dot.target), reindexed(other.weight, there)
        total, one = self.nothing(ranges), WeightedFunction(ONE)
        for part in self.parts.of(left.name):
            part = part.renamed({str(k): slot for k, slot in enumerate(left.slots)})
            hats = [entry for entry in part.inner if entry[1].name == right.name]
            if hats and part.joint:
                raise NotCompiledError(
                    f"{left.name} is a function of several products, whose Onsager terms have no formulas yet; "
                    "limit() without symbolic=True gives the numbers"
                )
            local = ranges | {index: self.parts.bound_ranges[index] for index in part.all_bound}
            for number, hat, bound in hats:
                slots = zip((*hat.slots, *weight.slots), (*right.slots, *met.slots), strict=True)
                forms = (difference(a, b) for a, b in slots)
                slope = self._slope(part, local).times(1, frozenset(form for form in forms if form is not None))
                scaled = replace(part, coefficient=product_of((part.coefficient, number)), bound=(*part.bound, *bound))
                total = total + self.summed(scaled, one, slope, local, ranges)
        return total.times(self.variance(weight.name, weight.slots, ranges))

    def _slope(self, part: WeightedFunction, ranges: Ranges) -> IndexedFormulas:
        """E[f'(l)] of a part f(l)."""
        if part.function is None or part.linear:
            return IndexedFormulas.constant(1, ranges)
        one, form = WeightedFunction(ONE), WeightedFunction(ONE, (), FORMAL, part.inner)
        f = replace(part.without_coefficient, bound=())
        moment = self.averaged(replace(f, function=product_of((FORMAL, part.function))), one, ranges)
        mean = self.averaged(form, one, ranges)
        if not mean.zero():
            moment = moment + (mean * self.averaged(f, one, ranges)).times(-1)
        return moment.divided(self.covariance(part.inner, part.inner, ranges))

    def summed(
        self, p: WeightedFunction, q: WeightedFunction, moment: IndexedFormulas, local: Ranges, ranges: Ranges
    ) -> IndexedFormulas:
        """The same, coefficients of Onsager terms with the equations where they are not zero."""
        sides = list[WeightedFunction]()
        for part in (p, q):
            found = factors(part.coefficient) if self.program.corrected else []
            terms = [f for f in found if isinstance(f, Variable) and f.name in self.program.corrected]
            for v in terms:
                slots = {str(k): slot for k, slot in enumerate(v.slots)}
                moment = moment * self.coefficient(v.name).read(slots, local)
            rest = product_of([f for f in found if f not in terms])
            sides.append(replace(part, coefficient=rest) if terms else part)
        p, q = sides
        return super().summed(p, q, moment, local, ranges)

    def weighed(
        self, value: Any, coefficients: Sequence[Expr], inside: Sequence[tuple[Affine, Range]], over: Sequence[str],
        ranges: Ranges,
    ) -> Any:  # fmt: skip
        """Coefficients and conditions as factors, sums that stay sums."""
        value = value * sp.Mul(*(self.number(expr, ranges) for expr in coefficients))
        for form, span in inside:
            value = value * within(form, span, ranges)
        for name in over:
            value = summed(value, name, ranges[name])
        return value

    def value_of(self, moment: IndexedFormulas) -> Any:
        """All cases as one formula in index symbols."""
        value, *others = (term for term in sorted(moment.terms, key=lambda term: len(term.equations)))
        total = value.value
        for term in others:
            where = sp.And(*(sp.Eq(affine(e), 0) for e in sorted(term.equations, key=str)))
            total = Choice(where, term.value, total)
        return total

    def finished(self, moment: IndexedFormulas, f: str, g: str) -> IndexedFormulas:
        """Formulas with expectations stand by name in later lines."""

        def named(value: Any) -> Any:
            if not value.has(Expectation):
                return value
            number = sum(families == (f, g) for families, _, _ in self.definitions.values())
            name = sp.Symbol(f"K_{f}" + (f"_{g}" if g != f else "") + "'" * number)
            symbols = tuple(sorted((s for s in value.free_symbols if s.is_integer), key=str))
            self.definitions[name] = (f, g), symbols, value
            return Entry(name, *symbols)

        return IndexedFormulas.of_cases({t.equations: named(t.value) for t in moment.terms}, moment.ranges)

    # -- of any vectors and scalars -------------------------------------------------------------------------------

    def mean(self, name: str) -> IndexedFormulas:
        """E[Z], over positions '0', '1', ...; an average where scores reach."""
        ranges = position_names(self.netsor, name)
        if name in self.scores:
            return self.nothing(ranges)
        if name in self.random:
            return self._averaged((name,))
        if name in self.program.corrected:
            return self.coefficient(name)
        if self.netsor.families[name].kind == "scalar":
            return IndexedFormulas.constant(self.average(name), ranges)
        return self.first(name)

    def cov(self, f: str, g: str) -> IndexedFormulas:
        """The centred covariance of two families; an average where scores reach."""
        random = {f, g} & self.random
        numbers = [n for n in (f, g) if self.netsor.families[n].kind == "scalar" and n not in self.random]
        if {f, g} <= set(self.scores):
            return self.score_covariance(f, g)
        if numbers or ({f, g} & set(self.scores) and len(random) == 1 and f != g):
            return self.nothing(self.pair_ranges(f, g))
        return self._averaged((f, g)) if random else self.centred(f, g)

    def is_linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the scores."""
        return self.netsor.families[name].kind == "vector" and all(part.linear for part in self.parts.of(name))

    def _averaged(self, names: tuple[str, ...]) -> IndexedFormulas:
        """E or Cov over p-ring and the vectors, by the moments given p-ring where there are some."""
        ranges = self.pair_ranges(*names) if len(names) == 2 else position_names(self.netsor, names[0])
        linear = all(map(self.is_linear, names))
        found = []
        for copy, name in enumerate(names):
            own = position_names(self.netsor, name, "_" * copy)
            mean: Any = Named(sp.Symbol(name), *map(index_symbol, own))
            if linear:
                again = {new.rstrip("_"): Affine.index(new) for new in own}
                mean = self.value_of(self.conditional_mean(name).read(again, ranges))
            found.append(mean)
        apart = sp.Mul(*(ScoreAverage(mean) if mean != 0 else mean for mean in found))
        if len(names) == 1:
            return IndexedFormulas.constant(apart, ranges)
        given = self.conditional(*names) if linear else self.nothing(ranges)
        return given.mapped(lambda value: ScoreAverage(value + sp.Mul(*found)) - apart)

    # -- given the scores -----------------------------------------------------------------------------------------

    def conditional(self, f: str, g: str) -> IndexedFormulas:
        """Cov(f, g | p-ring) of vectors that are linear in Gaussian ones given the scores."""
        self._refuse_nonlinear(f, g)
        second = self._summed_parts(self.parts.of(f), self.parts.of(g), self.pair_ranges(f, g))
        return self.without_means(second, f, g)

    def _refuse_nonlinear(self, *names: str) -> None:
        if not all(map(self.is_linear, names)):
            raise NotCompiledError(
                f"{' and '.join(dict.fromkeys(names))}: not linear in Gaussian vectors given the scores, so that there "
                "is no formula; P.limit().sample(1000) draws them"
            )

    def conditional_mean(self, name: str) -> IndexedFormulas:
        """E[f | p-ring], likewise."""
        self._refuse_nonlinear(name)
        return self.first(name)

    # -- from names to formulas -----------------------------------------------------------------------------------

    def expand(self, expr: Any) -> Any:
        """Names replaced by their formulas, expectations by closed forms where there are any."""
        return expr.replace(lambda e: isinstance(e, Entry | Expectation), self._closed, simultaneous=False)

    def shallow(self, expr: Any) -> Any:
        """The same, names of earlier lines kept."""
        return expr.replace(lambda e: isinstance(e, Expectation), self._closed, simultaneous=False)

    def _closed(self, node: Any) -> Any:
        if node not in self._known:
            if isinstance(node, Expectation):
                self._known[node] = node.closed()
            else:
                _, symbols, value = self.definitions[node.args[0]]
                self._known[node] = self.expand(value.xreplace(dict(zip(symbols, node.args[1:], strict=True))))
        return self._known[node]

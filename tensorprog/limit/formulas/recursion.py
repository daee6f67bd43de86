"""The algebra of formulas: Definition 1 on sympy expressions.

A formula holds unevaluated expectations and names for those of earlier lines; closed forms are taken when a member is
asked for, where it is known which variables are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

from tensorprog.language.errors import NotCompiledError
from tensorprog.language.expr import Affine, Expr, Variable, substitute
from tensorprog.language.initials import initial_laws
from tensorprog.language.ir import Initial, Netsor, Range, Table
from tensorprog.limit.form.definitions import refuse_steps
from tensorprog.limit.form.sums_of_functions import FORMAL, ONE, Inner, Part, position_names
from tensorprog.limit.formulas.cases import IndexedFormulas, place
from tensorprog.limit.formulas.convert import Converter, Data, Lookup, affine, within
from tensorprog.limit.formulas.expectation import Entry, Expectation, factor_of
from tensorprog.limit.formulas.nodes import Score, index_symbol, summed
from tensorprog.limit.moment.indexed import NOTHING, Equations, difference
from tensorprog.limit.moment.products import renamed, written
from tensorprog.limit.moment.recursion import Forms, Recursion
from tensorprog.limit.moment.reduced import reduces

__all__ = ["FormulaRecursion"]

Ranges = Mapping[str, Range]


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
                "formulas for layers of scores and for finite widths are not compiled by this version; numbers are"
            )
        self.joint = {name: law.joint for name, law in initial_laws(self.netsor).items()}
        self.converter = Converter(self.netsor, kept)
        self.definitions: dict[tuple[str, str, int], tuple[tuple[Any, ...], Any]] = {}
        self._expanded: dict[Any, Any] = {}
        self._shallow: dict[Any, Any] = {}
        self.reset()

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

    def initial(self, name: str, ranges: Ranges) -> IndexedFormulas:
        """The covariance of initial vectors: an expression, or an entry of a table or of a Gram matrix of data."""
        initial = self._declared(name)
        own = {index: Affine.index(str(k)) for k, index in enumerate(initial.indices)}
        other = {f"{index}_": Affine.index(f"{k}_") for k, index in enumerate(initial.indices)}
        everywhere = [affine(form) for form in (*own.values(), *other.values())]
        shape = self.netsor.families[name].shape
        if isinstance(initial.cov, Table):
            array = initial.cov.array.reshape((*shape, *shape))
            return IndexedFormulas.constant(self._entry(f"K_{name}", array, name, 2, everywhere), ranges)
        value = self.number(substitute(initial.cov, own | other), ranges)
        if initial.data is not None:
            data = initial.data.array
            gram = ((data @ data.T) / data.shape[1]).reshape((*shape, *shape))
            return IndexedFormulas.constant(value * self._entry(f"G_{name}", gram, name, 2, everywhere), ranges)
        same = {difference(own[i], other[f"{i}_"]) for i in initial.indices if i not in self.joint[name]}
        equations = frozenset(form for form in same if form is not None)
        return IndexedFormulas.of_cases({NOTHING: sp.S.Zero, equations: value}, ranges)

    def _declared(self, name: str) -> Initial:
        return next(entry for entry in self.netsor.initial if entry.name == name)

    def _entry(self, label: str, array: Any, family: str, copies: int, places: Sequence[Any]) -> Any:
        starts = tuple(start for start, _ in self.netsor.families[family].ranges) * copies
        return Lookup(Data(label, Table.of(array), starts), *places)

    def initial_mean(self, reference: Variable, ranges: Ranges) -> Any:
        """The mean of an initial vector: an expression, or an entry of a table."""
        initial = self._declared(reference.name)
        if isinstance(initial.mean, Table):
            if not np.any(initial.mean.array):
                return sp.S.Zero
            places = [affine(slot) for slot in reference.slots]
            return self._entry(f"mu_{reference.name}", initial.mean.array, reference.name, 1, places)
        return self.number(substitute(initial.mean, dict(zip(initial.indices, reference.slots, strict=True))), ranges)

    def product(self, p: Part, q: Part, ranges: Ranges) -> _OneExpectation:
        """One expectation of both functions."""
        for part in (p, q):
            if reduces(self.parts, part):
                raise NotCompiledError(f"{part.function}: nonlinear in vectors over an index, no formulas of that")
        return _OneExpectation(self, [part for part in (p, q) if part.function is not None], ranges)

    def weighed(
        self, value: Any, coefficients: Sequence[Expr], inside: Sequence[tuple[Affine, Range]], over: Sequence[str],
        ranges: Ranges,
    ) -> Any:  # fmt: skip
        """Coefficients and conditions as factors, sums that stay sums."""
        value = value * sp.Mul(*(self.number(expr, ranges) for expr in coefficients))
        for form, span in inside:
            value = value * within(form, span, ranges)
        for name in over:
            value = summed(value, index_symbol(name), ranges[name])
        return value

    def summed(self, p: Part, q: Part, moment: IndexedFormulas, local: Ranges, ranges: Ranges) -> IndexedFormulas:
        """The recursion's own sum where an index is summed over; else coefficients multiply case by case."""
        if p.bound or q.bound:
            return super().summed(p, q, moment, local, ranges)
        factor = sp.Mul(*(self.number(part.coefficient, local) for part in (p, q)))
        return IndexedFormulas.of_cases({t.equations: factor * t.value for t in moment.terms}, ranges)

    def place(self, value: Any, names: Mapping[str, Affine], ranges: Ranges) -> Any:
        """A formula at affine forms of other indices."""
        return place(value, names)

    def value_of(self, moment: IndexedFormulas) -> Any:
        """All cases as one formula in index symbols."""
        return moment.expression()

    def vanishes(self, value: Any) -> bool:
        """Whether a formula is zero."""
        return bool(value == 0)

    def finished(self, moment: IndexedFormulas, f: str, g: str) -> IndexedFormulas:
        """Formulas with expectations stand by name in later lines."""
        values = {}
        for term in moment.terms:
            value = term.value
            if value.has(Expectation):
                number = sum(known[:2] == (f, g) for known in self.definitions)
                symbols = tuple(sorted((s for s in value.free_symbols if s.is_integer), key=str))
                self.definitions[f, g, number] = symbols, value
                value = Entry(sp.Symbol(f), sp.Symbol(g), sp.Integer(number), *symbols)
            values[term.equations] = value
        return IndexedFormulas.of_cases(values, moment.ranges)

    def mean(self, name: str) -> IndexedFormulas:
        """E[Z^f] of a vector or scalar that no score reaches, over positions '0', '1', ..."""
        if self.netsor.families[name].kind == "scalar":
            return IndexedFormulas.constant(self.average(name), position_names(self.netsor, name))
        return self.first(name)

    # -- given the scores -----------------------------------------------------------------------------------------

    def conditional(self, f: str, g: str) -> IndexedFormulas:
        """Cov(f, g | p-ring) of vectors that are linear in Gaussian ones given the scores."""
        ranges = self.pair_ranges(f, g)
        total = self.nothing(ranges)
        for p in self.parts.of(f):
            for q in self.parts.of(g):
                first, second, local = self.paired(p, q, ranges)
                covariance = self.covariance(first.inner, second.inner, local)
                total = total + self.summed(first, second, covariance, local, ranges)
        return total

    def conditional_mean(self, name: str) -> IndexedFormulas:
        """E[f | p-ring], likewise."""
        ranges = position_names(self.netsor, name)
        total = self.nothing(ranges)
        for part in self.parts.of(name):
            p, q, local = self.paired(part, Part(ONE), ranges)
            mean = sp.S.One if p.function is None else self.centre(p.inner, local)
            total = total + self.summed(p, q, IndexedFormulas.constant(mean, local), local, ranges)
        return total

    # -- from names to formulas -----------------------------------------------------------------------------------

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


class _OneExpectation:
    """One or two functions of Gaussian variables under one expectation."""

    def __init__(self, recursion: FormulaRecursion, functions: Sequence[Part], ranges: Ranges) -> None:
        self.recursion, self.functions, self.ranges = recursion, functions, ranges
        self.joint = any(part.joint for part in functions)
        forms: Sequence[Inner] = [part.inner for part in functions]
        if self.joint:  # where the equations make members equal, their variables are the same
            if any(bound for part in functions if not part.joint for _, _, bound in part.inner):
                raise NotCompiledError(
                    "a function of several arguments beside one of a sum, not compiled by this version"
                )
            forms = [((ONE, v, ()),) for v in dict.fromkeys(v for form in forms for _, v, _ in form)]
        self.forms = Forms(recursion, forms, ranges)

    @property
    def equations(self) -> list[Equations]:
        """Those of the covariances of all variables."""
        return self.forms.equations

    def expectation(self, equations: Equations, solution: Mapping[str, Affine]) -> Any:
        """A polynomial of moments, or an expectation that is not evaluated yet."""
        placed = [renamed(form, solution) for form in self.forms.forms]
        kept = [k for k, form in enumerate(placed) if not (self.joint and form in placed[:k])]
        means = [self.forms.mean(k, solution) for k in kept]
        cov = [[self.forms.cov(j, k, equations, solution) for k in kept] for j in kept]
        if all(part.linear for part in self.functions):
            return sp.Mul(*means) + (cov[0][1] if len(kept) == 2 else 0)
        places = {placed[k][0][1]: number for number, k in enumerate(kept)} if self.joint else {}
        factors = []
        for number, part in enumerate(self.functions):
            function = written(part.renamed(solution)) if self.joint else substitute(_function(part), solution)
            own = places if self.joint else {FORMAL: number}
            factors.append(factor_of(function, own, lambda expr: self.recursion.number(expr, self.ranges)))
        return Expectation.of(factors, means, cov).settled()


def _function(part: Part) -> Expr:
    assert part.function is not None
    return part.function

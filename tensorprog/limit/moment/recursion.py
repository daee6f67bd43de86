"""Definition 1 as one recursion over families: second moments of vectors, covariances of scores.

initial   mean and covariance as declared                            clause (i)
MatMul    E[g g'] = sigma**2 1[same weight] E[x x']                  clause (ii)
Nonlin    E[phi(Z) phi'(Z')] under the covariance of the arguments   clause (iii)
Dot       Cov(p, p') = C(q, q') C(k, k') + C(q, k') C(k, q')         clause (iv), Isserlis
average   n**-1 u.v -> E[Z^u Z^v], a number                          Yang's Netsor+

Who asks for a moment goes backwards through the program.  Of two vectors, each a sum of parts coefficient * function
(`form`), `replicated` adds up the expectations of all pairs of parts.  Those depend on the means and covariances of the
affine forms inside (`Forms`), these on covariances of Gaussian families (`base`), and these on second moments of the
vectors that the weights multiply: the same question, one layer earlier.  Everything is remembered.

Families are never taken apart: a moment of f[i, j] and g[k] is one value over positions '0', '1' of f and '0_' of g,
with a term for each set of equations between positions (`indexed`).  Who reads only equal positions, as variances are
read, passes them as `where`; of large families only these are computed then.

`Recursion` walks the statements; what values are, and the expectation of a product of functions, it leaves to an
algebra: numbers with errors (`numbers`) or formulas (`formulas.recursion`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from itertools import product
from typing import Any, Generic, TypeVar

from tensorprog.check.rewrites import normalize
from tensorprog.language.errors import NotCompiledError, ProgramError
from tensorprog.language.expr import Affine, Expr, Number, Variable, reindexed, substitute
from tensorprog.language.ir import Dot, MatMul, Netsor, Range, Statement
from tensorprog.language.schedule import upstream
from tensorprog.limit.form.definitions import (
    Condition,
    Corrected,
    at_positions,
    indicator,
    is_layered,
    operands_of,
    places,
    positions_of,
    random_families,
    readings,
    reads_beyond,
    single,
    with_summands,
)
from tensorprog.limit.form.sums_of_functions import ONE, Inner, SumsOfFunctions, WeightedFunction, position_names
from tensorprog.limit.moment.indexed import (
    NOTHING,
    Equations,
    Indexed,
    canonical,
    difference,
    held_in,
    patterns,
    rewrite,
    solve,
    solved,
)

__all__ = ["Copies", "Forms", "Recursion"]


V = TypeVar("V", bound=Any)  # what can be added and multiplied
M = TypeVar("M", bound=Indexed[Any])
K = TypeVar("K")
W = TypeVar("W")
Ranges = Mapping[str, Range]
Copies = Mapping[int, tuple[tuple[int, int], Mapping[str, Affine]]]
DEEP = 20  # covariances and averages that are computed inside each other


class _Prepared:
    """What the recursion reads of a program: what is worked out once, whatever is asked and however often."""

    def __init__(self, program: Netsor, expanded: bool, symbols: Collection[str]) -> None:
        netsor = single(normalize(program, expanded, symbols).netsor)
        self.random = random_families(netsor)
        turned = {s.target.name for s in program.body if isinstance(s, MatMul) and s.transposed}  # copies here
        self.scores = {
            s.target.name: s
            for s in (*program.body, *netsor.body)
            if isinstance(s, Dot) and s.scale != "1/n" and s.target.name in netsor.families
            if s.target.name in netsor.scores
            or not (
                self.random & {s.left.name, s.right.name}
                or upstream(program, {s.left.name, s.right.name}) & turned
                or any(reads_beyond(program, v) for v in s.inputs)
            )
        }
        self.netsor, self.summands = with_summands(netsor, self.scores)
        self.random = random_families(self.netsor)
        self.parts = SumsOfFunctions(self.netsor)
        corrected = (s for s in self.netsor.body if isinstance(s, Corrected))
        self.corrected = {c.target.name: s for s in corrected for c in s.coefficients}
        self.known: dict[Any, Any] = {}  # what else is asked of it


class Recursion(ABC, Generic[V, M]):
    """Moments of one program, computed when asked for and remembered.

    `netsor` is the program after exact rewrites, in which every name keeps its meaning.  `scores` are the Dots whose
    limits are Gaussian: those of `netsor`, and those that a rewrite wrote as sums of scores.  Without `expanded` scores
    of sums stay as they are: they can be given, not drawn.  Constants in `symbols` may have any value.

    Values may have an axis of draws (`over`), along which all moments are computed side by side: replicates of what is
    averaged over draws, or draws of the scores of earlier layers.  `settle` makes one value of them.

    Raises    NotCompiledError for what this version does not compile
    """

    kind: type[M]  # the container of moments

    def __init__(self, program: Netsor, expanded: bool = True, symbols: Collection[str] = ()) -> None:
        self.expanded = expanded
        key = Recursion, expanded, frozenset(symbols)
        if key not in program.remembered:
            program.remembered[key] = _Prepared(program, expanded, symbols)
        self.program: _Prepared = program.remembered[key]
        self.netsor: Netsor = self.program.netsor
        self.parts: SumsOfFunctions = self.program.parts
        self.random: frozenset[str] = self.program.random
        self.scores: dict[str, Dot] = self.program.scores
        self.summands = self.program.summands  # score -> the vector whose second moment is its covariance

    def reset(self) -> None:
        """Nothing is computed yet."""
        self._second: dict[tuple[str, str], dict[Equations, M]] = {}  # for every draw
        self._settled: dict[tuple[str, str, Equations], M] = {}
        self._base: dict[tuple[str, str], dict[Equations, M]] = {}
        self._averages: dict[str, V] = {}
        self._expectations: dict[Any, M] = {}
        self._ranges: dict[tuple[str, str], dict[str, Range]] = {}
        self._inside = 0

    @property
    def layered(self) -> bool:
        """Whether moments of Gaussian vectors are random: layers of scores, or widths that stay finite."""
        return is_layered(self.netsor, self.random)

    # -- the algebra ----------------------------------------------------------------------------------------------

    @abstractmethod
    def number(self, expr: Expr, ranges: Ranges) -> V:
        """An expression of constants, indices and averages."""

    @abstractmethod
    def variance(self, weight: str, slots: Sequence[Affine], ranges: Ranges) -> V:
        """The variance of a weight whose indices are affine forms of others."""

    @abstractmethod
    def initial(self, name: str, ranges: Ranges, where: Equations) -> M:
        """The covariance of initial vectors, as declared, where these equations hold; elsewhere any value."""

    @abstractmethod
    def initial_mean(self, reference: Variable, ranges: Ranges) -> V | None:
        """The mean of an initial vector, as declared; None where it is zero."""

    @abstractmethod
    def averaged(self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges) -> M:
        """E[f(l) g(l')] without coefficients, not yet known."""

    @abstractmethod
    def weighed(
        self, value: V, coefficients: Sequence[Expr], inside: Sequence[tuple[Affine, Range]], over: Sequence[str],
        ranges: Ranges,
    ) -> V:  # fmt: skip
        """A value times coefficients, and 1 where forms stay in ranges, summed over indices."""

    @abstractmethod
    def value_of(self, moment: M) -> V:
        """All terms as one value."""

    # what an algebra may do besides

    def over(self, ranges: Ranges) -> dict[str, Range]:
        """The ranges, with that of an axis of draws if there is one."""
        return dict(ranges)

    def settle(self, found: Any) -> Any:
        """What leaves the recursion: one value for all draws."""
        return found

    def finished(self, moment: M, f: str, g: str) -> M:
        """A second moment of two families that is remembered."""
        return moment

    def guarded(self, *names: str) -> AbstractContextManager[None]:
        """What is computed inside for these families is told by their statements where it fails."""
        return nullcontext()

    def in_part(self, f: str, g: str) -> bool:
        """Whether moments of two families are computed at the positions that are asked for, where that is less work."""
        return False

    # -- ranges ---------------------------------------------------------------------------------------------------

    def pair_ranges(self, f: str, g: str) -> dict[str, Range]:
        """Ranges of '0', '1', ... of f and '0_', '1_', ... of g."""
        if (f, g) not in self._ranges:
            self._ranges[f, g] = self.over(position_names(self.netsor, f) | position_names(self.netsor, g, "_"))
        return self._ranges[f, g]

    def nothing(self, ranges: Ranges) -> M:
        """Zero everywhere."""
        return self.kind.constant(0, ranges)

    # -- clauses (i) and (ii): Gaussian families ------------------------------------------------------------------

    def base(self, f: str, g: str, where: Equations = NOTHING) -> M:
        """Covariance of two Gaussian families, at least `where` these positions are equal; elsewhere any value."""
        found, known, where = self._found(self._base, f, g, where)
        if found is None:
            found = self._made(known, where, lambda: self.gaussian(f, g, self.pair_ranges(f, g), where))
        return found

    def gaussian(self, f: str, g: str, ranges: Ranges, where: Equations = NOTHING) -> M:
        """The same over members in some ranges, computed now."""
        first, second = (self.netsor.families[name].statements for name in (f, g))
        if not first or not second:
            return self.initial(f, ranges, where).read(solve(where), ranges) if f == g else self.nothing(ranges)
        a, b = self.netsor.body[first[0]], self.netsor.body[second[0]]
        assert isinstance(a, MatMul) and isinstance(b, MatMul)
        at, total = solve(where), self.nothing(ranges)
        if a.weight.name != b.weight.name:
            return total
        own = self.netsor.families[a.weight.name]
        weights = [readings(at_positions(s.weight, s.target, copy), own, ranges) for s, copy in ((a, ""), (b, "_"))]
        for one, two in product(*weights):
            forms = {difference(s, t) for s, t in zip(one.slots, two.slots, strict=True)} - {None}
            same = rewrite(frozenset(form for form in forms if form is not None), at, ranges)
            if same is None:
                continue
            u, v = at_positions(a.vector, a.target), at_positions(b.vector, b.target, "_")
            moment = self.read_around(u, v, solve(same | where), (*one.inside, *two.inside), ranges)
            total = total + moment.times(self.variance(a.weight.name, one.slots, ranges), same)
        return total

    def read_around(
        self, u: Variable, v: Variable, at: Mapping[str, Affine], inside: Sequence[Condition], ranges: Ranges
    ) -> M:
        """E[Z^u Z^v] of two references over positions, those in `at` eliminated, where forms are inside; elsewhere 0.

        A position that goes around a circular boundary is read as an index of its own over all members, then modulo
        their number; where equations tie it to others, one turn after the other.
        """
        names, around = dict[str, Affine](), dict[tuple[Affine, Range], Affine]()
        held = [(form.at(at), span) for form, span in inside]
        for reference, copy in ((u, ""), (v, "_")):
            family = self.netsor.families[reference.name]
            for k, (slot, span, rule) in enumerate(zip(reference.slots, family.ranges, family.boundaries, strict=True)):
                form, name = slot.at(at), f"{k}{copy}"
                if rule == "wrap" and places(form, span, rule, ranges) != [(form, ())]:
                    names[name] = around.setdefault((form, span), Affine.index(f"around {len(around)}"))
                else:
                    ((names[name], conditions),) = places(form, span, rule, ranges)
                    held += conditions
        own = {index.indices[0]: slot for slot, index in around.items()}
        whole = {**ranges, **{name: span for name, (_, span) in own.items()}}
        moment = self.products(u.name, v.name, names, whole).read(names, whole)
        tied = {name for term in moment.terms for form in term.equations for name in form.indices}
        cases = (places(*slot, "wrap" if name in tied else "", ranges) for name, slot in own.items())
        total = self.nothing(ranges)
        for case in product(*cases):
            slots = {name: slot for name, (slot, _) in zip(own, case, strict=True)}
            part = moment.read(slots, ranges)
            for condition in dict.fromkeys((*held, *(c for _, conditions in case for c in conditions))):
                part = part.times(self.number(indicator([condition]), ranges))
            total = total + part
        return total

    # -- clause (iii): functions of Gaussian families -------------------------------------------------------------

    def second(self, f: str, g: str, where: Equations = NOTHING) -> M:
        """E[Z^f Z^g], uncentred, for vectors that no score reaches, at least `where` these positions are equal."""
        if (f, g, where) not in self._settled:
            self._settled[f, g, where] = self.settle(self.replicated(f, g, where))
        return self._settled[f, g, where]

    def replicated(self, f: str, g: str, where: Equations = NOTHING) -> M:
        """The same for every draw."""
        found, known, where = self._found(self._second, f, g, where)
        if found is not None:
            return found
        if f > g and not where:  # so that both orders have the same values, whichever is asked for first
            known[where] = self.swapped(self.replicated(g, f), self.pair_ranges(f, g))
        else:
            known[where] = self._compute(f, g, self.pair_ranges(f, g), solve(where))
        return known[where]

    @staticmethod
    def swapped(moment: M, ranges: Ranges) -> M:
        """A moment with first and second copies in exchanged roles."""
        positions = (name for name in moment.ranges if name.rstrip("_").isdigit())
        names = {name: Affine(((name[:-1] if name.endswith("_") else f"{name}_", 1),)) for name in positions}
        return moment.read(names, ranges)

    def between(self, f: str, g: str, names: Mapping[str, Affine], ranges: Ranges) -> M:
        """E[Z^f Z^g] for every draw with at least the members that are read at these forms of other indices."""
        return self.replicated(f, g, self.wanted(f, g, names))

    def products(self, f: str, g: str, names: Mapping[str, Affine], ranges: Ranges) -> M:
        """What `between` gives, where a statement averages over all coordinates, which first orders in 1/n move."""
        return self.between(f, g, names, ranges)

    def _compute(self, f: str, g: str, ranges: Ranges, at: Mapping[str, Affine] | None = None) -> M:
        """E[Z^f Z^g] over members in some ranges."""
        return self.finished(self._uncentred(f, g, ranges, at), f, g)

    def _uncentred(self, f: str, g: str, ranges: Ranges, at: Mapping[str, Affine] | None = None) -> M:
        for name in (f, g):
            if name in self.random:
                raise ProgramError(f"{name} depends on scores: its second moment is random; see law.given(...)")
        with self.guarded(f, g):
            return self._summed_parts(self.parts.of(f), self.parts.of(g), ranges, at)

    def _summed_parts(
        self,
        first: Sequence[WeightedFunction],
        second: Sequence[WeightedFunction],
        ranges: Ranges,
        at: Mapping[str, Affine] | None = None,
    ) -> M:
        total, forms = self.nothing(ranges), (difference(Affine.index(n), f) for n, f in (at or {}).items())
        same = frozenset(form for form in forms if form is not None)
        # of a part by itself covariances are asked for that others have parts of
        for p, q in sorted(product(first, second), key=lambda pair: pair[0] is not pair[1]):
            held = p.within(ranges)
            held = None if held is None else q.within(held, "_")
            held = held_in(held, same) if held and same else held
            if held is not None:
                found = self.expectation(p.unheld, q.unheld, held, at)
                whole = {name: ranges[name] for name in at or () if name in ranges}
                total = total + self.kind(found.terms, {**found.ranges, **whole}).widened(ranges)
        return total

    def expectation(
        self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges, at: Mapping[str, Affine] | None = None
    ) -> M:
        """E[part part'] over the positions in the ranges, the second part in second copies, or `at` first ones."""
        p, q, local = self.paired(p, q, ranges)
        q = q.renamed(at) if at else q
        return self.summed(p, q, self.expectations(p, q, local), local, ranges)

    def expectations(self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges) -> M:
        """E[f(l) g(l')] without coefficients.

        The covariances of the arguments are sums of terms 1[E_k] * c_k; the expectation takes one value for each set
        of equations that hold, and the union of the E_k that hold is all that matters.
        """
        free = tuple((name, span) for name, span in ranges.items() if "~" not in name)
        key = p.without_coefficient, q.without_coefficient, free
        if key not in self._expectations:  # deep residual networks meet the same parts again in every layer
            self._expectations[key] = self.averaged(p, q, ranges)
        return self._expectations[key]

    def by_patterns(
        self, equations: Iterable[Equations], expectation: Callable[[Equations, Mapping[str, Affine]], V],
        ranges: Ranges, prefer: Sequence[str],
    ) -> M:  # fmt: skip
        """An expectation for each set of equations that can hold, given what they say, `prefer` eliminated first."""
        cases = {e: expectation(e, s) for e, s in patterns(equations, ranges, prefer)}
        return self.kind.of_cases(cases, ranges, prefer)

    def first(self, name: str, parts: Sequence[WeightedFunction] | None = None) -> M:
        """E[Z^f] for every draw, over positions '0', '1', ..., of a vector or of some of its parts."""
        ranges = self.over(position_names(self.netsor, name))
        with self.guarded(name):
            return self._summed_parts(self.parts.of(name) if parts is None else parts, [WeightedFunction(ONE)], ranges)

    def centred(self, f: str, g: str, where: Equations = NOTHING) -> M:
        """Cov(Z^f, Z^g) of vectors that no score reaches; `where`: at these positions, elsewhere any value."""
        found: M = self.settle(self._centred(f, g, where))
        return found

    def _centred(self, f: str, g: str, where: Equations = NOTHING) -> M:
        if self.parts.is_base(f) and self.parts.is_base(g):
            return self.base(f, g, where)
        return self.without_means(self.replicated(f, g, where), f, g, where)

    def without_means(self, second: M, f: str, g: str, where: Equations = NOTHING) -> M:
        """A second moment less the product of the means."""
        ranges, one, two = self.pair_ranges(f, g), self.first(f), self.first(g)
        if one.zero() or two.zero():
            return second
        copies = {name: Affine.index(f"{name}_").at(solve(where)) for name in position_names(self.netsor, g)}
        product = one.read({}, ranges) * two.read(copies, ranges)
        return second + product.times(self.number(Number(-1), ranges))

    def replicated_covariance(self, u: Variable, v: Variable, ranges: Ranges) -> M:
        """Covariance of two references to vectors, over the indices in their slots, for every draw."""
        names, equal = _slots_of(u, v)
        return self._centred(u.name, v.name, equal if self.in_part(u.name, v.name) else NOTHING).read(names, ranges)

    # -- equal positions only -------------------------------------------------------------------------------------

    def wanted(self, f: str, g: str, names: Mapping[str, Affine]) -> Equations:
        """The equations between positions that hold wherever these forms are read, if it is worth to ask for them."""
        return _equal(names) if self.in_part(f, g) else NOTHING

    def equal(self, f: str) -> Equations:
        """The equations of the diagonal of a family: all positions are equal."""
        positions = position_names(self.netsor, f)
        return _equal({f"{k}{copy}": Affine.index(k) for copy in ("", "_") for k in positions})

    def _found(
        self, moments: dict[tuple[str, str], dict[Equations, M]], f: str, g: str, where: Equations
    ) -> tuple[M | None, dict[Equations, M], Equations]:
        """What is known where these equations hold, or fewer of them; and where else to put it, and for which."""
        known = moments.setdefault((f, g), {})
        where = where if self.in_part(f, g) else NOTHING
        ranges = self.pair_ranges(f, g)
        if where and solved(where, ranges) is None:  # the equations contradict each other
            return self.nothing(ranges), known, where
        return next((moment for fewer, moment in known.items() if fewer <= where), None), known, where

    # -- affine forms inside functions ----------------------------------------------------------------------------

    def centre(self, form: Inner, ranges: Ranges) -> V:
        """Mean of an affine form of Gaussian variables."""
        total = self.number(Number(0), ranges)
        for weight, variable, bound in form:
            mean = None if self.netsor.families[variable.name].statements else self.initial_mean(variable, ranges)
            if mean is not None:
                total = total + self.weighed(mean, [weight] if weight != ONE else [], (), bound, ranges)
        return total

    def covariance(self, first: Inner, second: Inner, ranges: Ranges) -> M:
        """Covariance of two affine forms of Gaussian variables."""
        total = self.nothing(ranges)
        for p, q, again in self._meetings(first, second):
            local = {**ranges, **{f"{name}'": ranges[name] for name in again}} if again else ranges
            moment = self.replicated_covariance(p.inner[0][1], q.inner[0][1], local)
            total = total + (self.summed(p, q, moment, local, ranges) if moment.terms else moment)
        return total

    def _meetings(self, first: Inner, second: Inner) -> list[tuple[WeightedFunction, WeightedFunction, list[str]]]:
        """The variables of two forms that are not independent, as parts; the second copy of a sum runs by itself."""
        key = "meetings", first, second
        if key not in self.program.known:
            found = self.program.known[key] = list[tuple[WeightedFunction, WeightedFunction, list[str]]]()
            for (a, u, bound), (b, v, other) in product(first, second):
                if not self.parts.independent(u.name, v.name):
                    again = [name for name in other if name in bound]
                    q = WeightedFunction(b, other, None, ((ONE, v, ()),))
                    q = q.renamed({name: Affine.index(f"{name}'") for name in again}) if again else q
                    found.append((WeightedFunction(a, bound, None, ((ONE, u, ()),)), q, again))
        meetings: list[tuple[WeightedFunction, WeightedFunction, list[str]]] = self.program.known[key]
        return meetings

    # -- coefficients and sums over bound indices -----------------------------------------------------------------

    def paired(
        self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges
    ) -> tuple[WeightedFunction, WeightedFunction, dict[str, Range]]:
        """Give the second part second-copy names; ranges with the bound indices of both."""
        bound = self.parts.bound_ranges
        names = [name[:-1] for name in ranges if name.endswith("_")]
        copies = "copies", q, *names
        if copies not in self.program.known:
            names += q.all_bound
            self.program.known[copies] = q.renamed({name: Affine.index(f"{name}_") for name in names})
        local = dict(ranges) | {name: bound.get(name) or self.netsor.ranges[name] for name in p.all_bound}
        local |= {f"{name}_": bound.get(name) or self.netsor.ranges[name] for name in q.all_bound}
        # softmax and the like keep indices that are bound here: both copies need their ranges
        local |= {f"{name}_": bound[name] for name in bound} | {name: bound[name] for name in bound}
        return p, self.program.known[copies], local

    def summed(self, p: WeightedFunction, q: WeightedFunction, moment: M, local: Ranges, ranges: Ranges) -> M:
        """A moment over all indices times the coefficients of two parts, summed over their bound indices."""
        if p.plain and q.plain:
            return self.kind(moment.terms, ranges)
        found, bound = [], (*q.bound, *p.bound)
        for equations, value in moment.overlapping():  # solved for bound indices first
            solution = solve(equations, bound, only=True)
            forms = (canonical(equation.at(solution)) for equation in equations)
            remaining = frozenset(form for form in forms if form is not None)
            if any(name in bound for form in remaining for name in form.indices):
                raise NotCompiledError(
                    "a sum over an index that steps by more than 1 has no covariance yet; write its terms one by one"
                )
            free = solve(remaining)
            solution = {name: form.at(free) for name, form in solution.items()}
            inside = [
                (form, local[name])
                for name, form in solution.items()
                if form.bounds(local)[0] < local[name][0] or form.bounds(local)[1] >= local[name][1]
            ]
            over, at = [name for name in (*p.bound, *q.bound) if name not in solution], solution | free
            coefficients = [substitute(part.coefficient, at) for part in (p, q) if part.coefficient != ONE]
            value = self.weighed(moment.placed(value, at, local), coefficients, inside, over, local)
            found.append((remaining, value))
        return self.kind.of_overlapping(found, ranges)

    # -- averages -------------------------------------------------------------------------------------------------

    def average(self, name: str) -> V:
        """Limit of a scalar that no score reaches: an average n**-1 u.v, or a function of averages."""
        found: V = self.settle(self._average(name))
        return found

    def _average(self, name: str) -> V:
        if name in self.random:
            raise ProgramError(f"{name} is random in the limit")
        return self._made(self._averages, name, lambda: self.whole_average(name))

    def whole_average(self, name: str) -> V:
        """All averages of a family."""
        ranges = self.over(position_names(self.netsor, name))
        return self.average_of(self.netsor.families[name].statements[0], ranges)

    def average_of(self, position: int, ranges: Ranges) -> V:
        """What one statement gives, over positions in some ranges."""
        statement: Statement = self.netsor.body[position]
        if not isinstance(statement, Dot):
            assert not isinstance(statement, MatMul)
            return self.number(self.parts.fresh(statement.expr, positions_of(statement.target)), ranges)
        return self.value_of(self.read_around(*operands_of(statement), {}, (), ranges))

    # -- clause (iv): scores --------------------------------------------------------------------------------------

    def dot(self, name: str) -> Dot:
        """The statement of a score or an average, as written."""
        if name in self.scores:
            return self.scores[name]
        statement = self.netsor.body[self.netsor.families[name].statements[0]]
        assert isinstance(statement, Dot)
        return statement

    def operands(self, name: str) -> tuple[Variable, Variable]:
        """The two references of a score over its position names."""
        return operands_of(self.dot(name))

    def score_covariance(self, f: str, g: str, where: Equations = NOTHING) -> M:
        """Cov of two score families, by Isserlis; `where`: at these positions, elsewhere any value.

        Of functions of MatMul outputs, coordinate by coordinate, E[Z^u Z^v Z^u' Z^v'] in general.
        """
        if f in self.summands and g in self.summands:
            return self.second(self.summands[f], self.summands[g], where)
        ranges, at = self.pair_ranges(f, g), solve(where)
        second = {name: Affine.index(f"{name}_").at(at) for name in position_names(self.netsor, g)}
        left, right = self.operands(f)
        other_left, other_right = (reindexed(reference, second) for reference in self.operands(g))

        def c(u: Variable, v: Variable) -> M:
            found: M = self.settle(self.replicated_covariance(u, v, ranges))
            return found

        return c(left, other_left) * c(right, other_right) + c(left, other_right) * c(right, other_left)

    # -- remembered, however deep a program is ----------------------------------------------------------------------

    def _made(self, known: dict[K, W], key: K, make: Callable[[], W]) -> W:
        """What is remembered, or made now.

        A covariance of layer 100 needs those of layer 99.  What stands DEEP computations inside others is made before
        them; they are begun again, and find it.
        """
        if key in known:
            return known[key]

        def enter() -> None:
            known[key] = make()

        if self._inside >= DEEP:
            raise _Waiting(enter)
        before, waiting = self._inside, [enter]
        self._inside += 1
        try:
            while waiting:
                try:
                    waiting[-1]()
                    waiting.pop()
                except _Waiting as deeper:
                    if before:
                        raise
                    waiting.append(deeper.enter)
        finally:
            self._inside = before
        return known[key]

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """What is computed inside is not begun again: it changes what is known step by step."""
        before, self._inside = self._inside, 0
        try:
            yield
        finally:
            self._inside = before


class _Waiting(Exception):
    """A computation is to be made before all those that it stands in."""

    def __init__(self, enter: Callable[[], None]) -> None:
        self.enter = enter


@lru_cache(maxsize=1 << 12)
def _slots_of(u: Variable, v: Variable) -> tuple[Mapping[str, Affine], Equations]:
    """The forms at which two references are read, by positions of their families, and which are equal everywhere."""
    names = {str(k): slot for k, slot in enumerate(u.slots)} | {f"{k}_": slot for k, slot in enumerate(v.slots)}
    return names, _equal(names)


def _equal(names: Mapping[str, Affine]) -> Equations:
    """The equations between first and second positions that hold wherever these forms are read."""
    found, firsts = set[Affine | None](), [name for name in names if name[-1] != "_"]
    for second in (name for name in names if name[-1] == "_"):
        for own in sorted(firsts, key=lambda name: name != second[:-1]):
            apart = names[own] - names[second]
            if names[own].terms and not apart.terms:
                found.add(difference(Affine.index(own), Affine.index(second) + apart.offset))
                break
    return frozenset(form for form in found if form is not None)


class Forms(Generic[V]):
    """Affine forms of Gaussian variables with their means and covariances, before any equations hold.

    Those in `met` may have a covariance.  Variances of the forms in `copies` are covariances of two forms, read at
    these names.
    """

    def __init__(
        self, recursion: Recursion[V, Any], forms: Sequence[Inner], met: Sequence[tuple[int, int]], ranges: Ranges,
        copies: Copies,
    ) -> None:  # fmt: skip
        self.recursion, self.forms, self.ranges = recursion, forms, ranges
        self.means = [recursion.centre(form, ranges) for form in forms]
        self.covariances: dict[tuple[int, int], Indexed[V]] = {
            (k, j): recursion.covariance(forms[j], forms[k], ranges) for k, j in met if j < k or k not in copies
        }
        for k, (pair, names) in copies.items():
            self.covariances[k, k] = self.covariances[pair].read(names, ranges)

    @property
    def equations(self) -> list[Equations]:
        """The equations of all covariances, which tell the cases apart."""
        return [term.equations for moment in self.covariances.values() for term in moment.terms]

    def mean(self, k: int, solution: Mapping[str, Affine]) -> V:
        """Mean of one form, some indices eliminated."""
        found: V = self.recursion.nothing(self.ranges).placed(self.means[k], solution, self.ranges)
        return found

    def cov(self, j: int, k: int, equations: Equations, solution: Mapping[str, Affine]) -> V:
        """Covariance of two forms where exactly these equations hold."""
        moment = self.covariances.get((max(j, k), min(j, k))) or self.recursion.nothing(self.ranges)
        found: V = moment.case(equations, solution)
        return found

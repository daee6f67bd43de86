"""Definition 1 as one recursion over families: second moments of vectors, covariances of scores.

MatMul    E[g g'] = sigma**2 1[same weight] E[x x']                  clause (ii)
Nonlin    E[phi(Z) phi'(Z')] under the covariance of the arguments   clause (iii)
Dot       Cov(p, p') = C(q, q') C(k, k') + C(q, k') C(k, q')         clause (iv), Isserlis
average   n**-1 u.v -> E[Z^u Z^v], a number                          Yang's Netsor+

Recurrences are filled in step by step (`recurrences`); what is carried along them without a MatMul between is averaged
over draws (`paths`), in replicates that stay apart, as an axis of all values, until a number leaves the compiler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.rewrites import normalize
from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.errors import AccuracyError, NotFiniteError, ProgramError, TensorprogError
from tensorprog.language.evaluate import Scope, evaluate
from tensorprog.language.expr import Affine, Expr, Variable, variables
from tensorprog.language.initials import covariance_size, initial_laws
from tensorprog.language.ir import Dot, MatMul, Netsor, Range, Statement
from tensorprog.language.named_arrays import Open, align
from tensorprog.language.substitute import reindexed
from tensorprog.limit.form.definitions import (
    indicator,
    is_layered,
    leaves,
    operands_of,
    positions_of,
    random_families,
    readings,
    single,
)
from tensorprog.limit.form.sums_of_functions import ONE, Part, Parts, position_names
from tensorprog.limit.memory import keep, need
from tensorprog.limit.moment.gaussians import Gaussians
from tensorprog.limit.moment.moments import Moment, Term, Value
from tensorprog.limit.moment.needs import in_order
from tensorprog.limit.moment.paths import Paths
from tensorprog.limit.moment.patterns import Patterns
from tensorprog.limit.moment.recurrences import Recurrences
from tensorprog.limit.moment.reduced import any_reduces
from tensorprog.limit.moment.replicates import REPLICATE, REPLICATES, Settled, settled

__all__ = ["Compiler"]

Array = NDArray[Any]


def _kept(moment: Moment) -> Moment:
    """The moment, whose arrays count as kept."""
    for factor in (factor for term in moment.terms for factor in term.value.factors):
        keep(factor.estimate.value, factor.estimate.error)
    return moment


def _finite(moment: Moment, name: str) -> Moment:
    """The moment, refused where an entry or its error is not finite."""
    for term in moment.terms:
        bound = term.value.bound
        if not (np.isfinite(bound.value) and np.isfinite(bound.error)):
            raise AccuracyError(f"{name} is infinite, or its numbers overflow: no limit can be stated")
    return moment


COVARIANCES = 3  # arrays of the size of the covariance of initial vectors while it is computed
EXACT = 1e-12  # relative errors that are rounding
NUMBERS, PILOT = 1 << 26, 1 << 18  # numbers held by all draws together, for what is carried along recurrences


class Compiler:
    """Moments of one program, computed when asked for and remembered.

    `netsor` is the program after exact rewrites, in which every name keeps its meaning.  `scores` are the Dots whose
    limits are Gaussian: those of `netsor`, and those that a rewrite wrote as sums of scores.  Without `expanded` scores
    of sums stay as they are: they can be given, not drawn.  Constants in `symbols` may have any value.  A `pilot` takes
    one replicate of draws, to find the directions that matter; its numbers have no error.

    Raises    NotCompiledError for what this version does not compile, AccuracyError for moments that are not finite
    """

    each = False  # whether every draw has moments of its own

    def __init__(
        self, program: Netsor, expanded: bool = True, numbers: int = NUMBERS, symbols: Collection[str] = (),
        pilot: bool = False,
    ) -> None:  # fmt: skip
        self.expanded = expanded
        self.replicates: Range | None = None
        self.paths: Paths | None = None
        self.netsor = netsor = single(normalize(program, expanded, symbols).netsor)
        self.parts = Parts(netsor)
        for initial in netsor.initial:
            size = covariance_size(netsor, initial)
            need(COVARIANCES * size, f"the covariance of the initial vectors {initial.name}, {size} numbers,")
        self.initials = initial_laws(netsor)
        keep(*(law.blocks for law in self.initials.values()))
        self.random = random_families(netsor)
        self.scores = {
            s.target.name: s
            for s in (*program.body, *netsor.body)
            if isinstance(s, Dot) and s.scale != "1/n" and s.target.name in netsor.families
            if s.target.name in netsor.scores
            or not (self.random & {s.left.name, s.right.name} or any(leaves(program, v) for v in s.inputs))
        }
        self._start(Recurrences(self))
        if any(netsor.families[name].kind == "vector" for name in self.parts.carried - self.random):
            few = min(PILOT, numbers)
            turned = None if pilot else lambda: Compiler(program, expanded, few, symbols, pilot=True).drawn
            self.paths = Paths(self, numbers, turned)
        drawn = any_reduces(self.parts, netsor.families.keys() - self.random)
        self.replicates = self.paths.range if self.paths is not None else (0, REPLICATES) if drawn else None

    def _start(self, recurrences: Recurrences) -> None:
        """Nothing is computed yet."""
        self._second: dict[tuple[str, str], Moment] = {}
        self._settled: dict[tuple[str, str], Moment] = {}
        self._base: dict[tuple[str, str], Moment] = {}
        self._averages: dict[str, Value] = {}
        self._in_order = False
        self.patterns, self.gaussians = Patterns(self), Gaussians(self)
        self.recurrences = recurrences

    @property
    def layered(self) -> bool:
        """Whether moments of Gaussian vectors are random: layers of scores, or widths that stay finite."""
        return is_layered(self.netsor, self.random)

    def is_finite(self, name: str) -> bool:
        """Whether a vector has a width that stays finite."""
        return self.netsor.families[name].width in dict(self.netsor.fixed_widths)

    def width(self, name: str) -> int:
        """Number of coordinates that one draw has: 1 where the width is infinite, as all follow one law."""
        return dict(self.netsor.fixed_widths).get(self.netsor.families[name].width, 1)

    @property
    def drawn(self) -> Paths:
        """The draws of what is carried along recurrences."""
        assert self.paths is not None
        return self.paths

    def entered(self, name: str, box: Sequence[Range]) -> None:
        """A recurrence has made members of a Gaussian family known."""
        if self.paths is not None:
            self.paths.draw(name, tuple(box))

    def over(self, ranges: Mapping[str, Range]) -> dict[str, Range]:
        """The ranges, with that of the replicates of draws, or of the draws, if there are any."""
        return dict(ranges) | ({} if self.replicates is None else {REPLICATE: self.replicates})

    def settle(self, found: Settled) -> Settled:
        """What leaves the compiler: one number for all replicates."""
        return settled(found)

    def pair_ranges(self, f: str, g: str) -> dict[str, Range]:
        """Ranges of '0', '1', ... of f and '0_', '1_', ... of g."""
        return self.over(position_names(self.netsor, f) | position_names(self.netsor, g, "_"))

    def _prepare(self, *names: str) -> None:
        """Compute what families are made of first, so that no computation waits for more than one statement."""
        if self._in_order:
            return
        self._in_order = True
        try:
            for need in in_order(self, *names):
                if len(need) > 1:
                    self.base(need[0], need[1])
                else:
                    self._average(need[0])
        except (TensorprogError, FloatingPointError):
            pass  # whoever needs it will meet it again
        finally:
            self._in_order = False

    def second(self, f: str, g: str) -> Moment:
        """E[Z^f Z^g], uncentred, for vectors that no score reaches."""
        if (f, g) not in self._settled:
            self._settled[f, g] = _kept(self.settle(self.replicated(f, g)))
        return self._settled[f, g]

    def replicated(self, f: str, g: str) -> Moment:
        """E[Z^f Z^g] for every replicate."""
        if (f, g) not in self._second:
            self._prepare(f, g)
            if f > g:  # so that both orders have the same numbers, whichever is asked for first
                self._second[f, g] = self._swapped(self.replicated(g, f), f, g)
            else:
                self._second[f, g] = _kept(self._compute(f, g, self.pair_ranges(f, g)))
        return self._second[f, g]

    def _swapped(self, moment: Moment, f: str, g: str) -> Moment:
        names = {}
        for name in moment.ranges.keys() - {REPLICATE}:
            names[name] = Affine(((name[:-1] if name.endswith("_") else f"{name}_", 1),))
        return moment.rename(names, self.pair_ranges(f, g))

    def _compute(self, f: str, g: str, ranges: Mapping[str, Range]) -> Moment:
        """E[Z^f Z^g] over members in some ranges."""
        for name in (f, g):
            if name in self.random:
                raise ProgramError(f"{name} depends on scores: its second moment is random; see law.given(...)")
        total = Moment((), ranges)
        with self._numbers(f, g):
            for p in self.parts.of(f):
                for q in self.parts.of(g):
                    held = p.within(ranges)
                    held = None if held is None else q.within(held, "_")
                    if held is not None:
                        total = total + self.expectation(p, q, held).widened(ranges)
        total = self._symmetric(total) if f == g else total
        return _finite(total, f"E[{f}**2]" if f == g else f"E[{f} {g}]")

    def _symmetric(self, moment: Moment) -> Moment:
        """Second moments of a family: the mean of both orders, unless they agree to rounding anyway.

        Rules for several variables take the first member's before the second's, so that the orders differ within the
        error of the rule; the mean of two numbers has at most the mean of their errors.
        """
        ranges = moment.ranges
        names = {name: f"{name}_" for name in ranges if f"{name}_" in ranges}
        if not moment.error > EXACT * moment.size or any(ranges[a] != ranges[b] for a, b in names.items()):
            return moment
        swap = {a: Affine(((b, 1),)) for one, two in names.items() for a, b in ((one, two), (two, one))}
        both = moment + moment.rename(swap, ranges)
        return Moment(tuple(Term(term.equations, term.value.scaled(0.5)) for term in both.terms), ranges)

    def expectation(self, p: Part, q: Part, ranges: Mapping[str, Range]) -> Moment:
        """E[part part'] over the positions in the ranges, the second part in second copies."""
        p2, q2, local = self.patterns.paired(p, q, ranges)
        total = Moment((), ranges)
        for equations, value in self.patterns.differences(p2, q2, local):
            total = total + self.patterns.summed_term(p2, q2, equations, value, local, ranges)
        return total

    def mean(self, name: str) -> Value:
        """E[Z^f] of a vector that no score reaches, over positions '0', '1', ..."""
        if name in self.random:
            raise ProgramError(f"{name} depends on scores: its mean given them is law.given(...).mean")
        if self.netsor.families[name].kind == "scalar":
            return self.average(name)
        return self.settle(self._mean_of(name, self.parts.of(name)))

    def raw_moment(self, name: str, order: int) -> Value | None:
        """E[(Z^f)**order] of a vector that is a function of one Gaussian form; None for any other."""
        if name in self.random or self.netsor.families[name].kind == "scalar":
            return None
        parts = self.parts.powers(name, order)
        return None if parts is None else self.settle(self._mean_of(name, parts))

    def _mean_of(self, name: str, parts: Sequence[Part]) -> Value:
        ranges = self.over(position_names(self.netsor, name))
        total = Moment((), ranges)
        with self._numbers(name):
            for part in parts:
                held = part.within(ranges)
                if held is not None:
                    total = total + self.expectation(part, Part(ONE), held).widened(ranges)
        axes = tuple(ranges)
        return Value(axes, _finite(total, f"E of a function of {name}").dense(axes))

    @contextmanager
    def _numbers(self, *names: str) -> Iterator[None]:
        """Refuse functions that take values which are no numbers, by the statements of the families that they make."""
        try:
            with np.errstate(all="ignore"):
                yield
        except FloatingPointError as error:
            told = dict.fromkeys(str(s) for s in self.netsor.body if s.target.name in names)
            raise NotFiniteError(
                f"{'; '.join(told)}: not a finite number for some values of Gaussian variables: it overflows, or "
                "leaves the domain of a function (log, sqrt, division)"
            ) from error

    def centred(self, f: str, g: str) -> Moment:
        """Cov(Z^f, Z^g) of vectors that no score reaches."""
        return self.settle(self._centred(f, g))

    def _centred(self, f: str, g: str) -> Moment:
        if self.parts.is_base(f) and self.parts.is_base(g):
            return self.base(f, g)
        second, ranges = self.replicated(f, g), self.pair_ranges(f, g)
        means = [self._mean_of(name, self.parts.of(name)) for name in (f, g)]
        if any(mean.zero() for mean in means):
            return second
        names = {name: Affine(((f"{name}_", 1),)) for name in position_names(self.netsor, g)}
        starts = {name: span[0] for name, span in position_names(self.netsor, g).items()}
        product = means[0] * means[1].gather(names, ranges, starts)
        return second + Moment((Term(frozenset(), product.scaled(-1.0)),), ranges)

    def base(self, f: str, g: str) -> Moment:
        """Covariance of two Gaussian families over positions '0', ... and '0_', ...: clauses (i) and (ii)."""
        self.recurrences.ensure(f, g)
        if self.recurrences.active & {f, g} or (f, g) in self.recurrences.covariances:  # as far as it is known
            return self.recurrences.covariances.get((f, g), Moment((), self.pair_ranges(f, g)))
        if (f, g) not in self._base:
            self._prepare(f, g)
            self._base[f, g] = _kept(self.gaussians.covariance(f, g, self.pair_ranges(f, g)))
        return self._base[f, g]

    def reference_covariance(self, u: Variable, v: Variable, ranges: Mapping[str, Range]) -> Moment:
        """Covariance of two references to vectors, over the indices in their slots."""
        return self.settle(self.replicated_covariance(u, v, ranges))

    def replicated_covariance(self, u: Variable, v: Variable, ranges: Mapping[str, Range]) -> Moment:
        """The same for every replicate."""
        names = {str(k): slot for k, slot in enumerate(u.slots)} | {f"{k}_": slot for k, slot in enumerate(v.slots)}
        return self._centred(u.name, v.name).rename(names, dict(ranges)).simplified()

    def between(self, f: str, g: str, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> Moment:
        """E[Z^f Z^g] with at least the members that are read at these forms of other indices."""
        whole, held = position_names(self.netsor, f) | position_names(self.netsor, g, "_"), {}
        for name, (start, stop) in whole.items():
            low, high = names[name].bounds(dict(ranges))
            held[name] = max(low, start), min(high + 1, stop)
        several = any(len(self.netsor.families[name].statements) > 1 for name in (f, g))  # later ones may read earlier
        if not self.recurrences.active & {f, g} and not (several and held != whole):
            return self.replicated(f, g)
        if any(start >= stop for start, stop in held.values()):
            return Moment((), self.over(held))
        return self._compute(f, g, self.over(held))

    def base_mean(self, reference: Variable, ranges: Mapping[str, Range]) -> Value:
        """Mean of a Gaussian variable."""
        return self.gaussians.mean(reference, ranges)

    def average(self, name: str) -> Value:
        """Limit of a scalar that no score reaches: an average n**-1 u.v, or a function of averages."""
        return self.settle(self._average(name))

    def _average(self, name: str) -> Value:
        if name in self.random:
            raise ProgramError(f"{name} is random in the limit")
        self.recurrences.ensure(name)
        family = self.netsor.families[name]
        if name not in self._averages:
            self._prepare(name)
        if name not in self._averages and name not in self.recurrences.active:
            if len(family.statements) == 1 and name not in self.recurrences.averages:
                ranges = self.over(position_names(self.netsor, name))
                self._averages[name] = self.average_of(family.statements[0], ranges)
            else:
                self.recurrences.rest_of(name)
                self._averages[name] = self.recurrences.averages[name]
        return self._averages[name] if name in self._averages else self.recurrences.averages.get(name, Value.of(0.0))

    def average_of(self, position: int, ranges: Mapping[str, Range]) -> Value:
        """What one statement gives, over positions in some ranges."""
        statement: Statement = self.netsor.body[position]
        names = positions_of(statement.target)
        if not isinstance(statement, Dot):
            assert not isinstance(statement, MatMul)
            return self.number(self.parts.fresh(statement.expr, names), ranges)
        left, right = statement.left, statement.right
        total = Moment((), ranges)
        for one in self.gaussians.cases(left, names, ranges):
            for two in self.gaussians.cases(right, names, ranges):
                read = {str(k): slot for k, slot in enumerate(one.slots)}
                read |= {f"{k}_": slot for k, slot in enumerate(two.slots)}
                moment = self.between(left.name, right.name, read, ranges).rename(read, ranges)
                total = total + moment.times(self.number(indicator((*one.inside, *two.inside)), ranges)).simplified()
        axes = tuple(
            dict.fromkeys(a for t in total.terms for a in (*t.value.axes, *(n for e in t.equations for n in e.indices)))
        )
        return Value(axes, total.dense(axes))

    def _average_at(self, reference: Variable, ranges: Mapping[str, Range]) -> Value:
        starts = {str(k): span[0] for k, span in enumerate(self.netsor.families[reference.name].ranges)}
        total = Value.of(0.0)
        for case in readings(reference, self.netsor.families[reference.name], ranges):
            value = self._average(reference.name)
            names = {str(k): slot for k, slot in enumerate(case.slots) if str(k) in value.axes}
            value = value.gather(names, ranges, starts)
            total = total + (value * self.number(indicator(case.inside), ranges) if case.inside else value)
        return total

    def scope(self, ranges: Mapping[str, Range], moved: Variable | None = None, apart: bool = True) -> Scope:
        """Numbers: constants, indices, averages (`moved` with its error added); a score would be a mistake of ours.

        Averages have a value for each replicate, or not `apart`, one.
        """
        full = dict(self.netsor.ranges) | dict(self.parts.bound_ranges) | dict(ranges)

        def read(reference: Variable, box: Mapping[str, Range]) -> Open:
            value = self._average_at(reference, box)
            value = value if apart else self.settle(value)
            if reference == moved:
                return Open(value.axes, value.estimate.value + value.estimate.error)
            return value.value

        return Scope(self.netsor, full, read)

    def number(self, expr: Expr, ranges: Mapping[str, Range]) -> Value:
        """An expression of constants, indices and averages, with the error of the averages carried through."""
        value = evaluate(expr, self.scope(ranges))
        result = Value.of(value.data, value.axes)
        names = list(variables(expr))
        if not names:
            return result
        for reference in names:  # first-order: move each average by its error
            if not self._average(reference.name).estimate.error.any():
                continue
            changed = evaluate(expr, self.scope(ranges, reference))
            error = np.abs(align(changed, result.axes) - result.estimate.value) if changed.axes == result.axes else 0.0
            result = Value(result.axes, Estimate(result.estimate.value, result.estimate.error + error))
        return result

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

    def score(self, f: str, g: str) -> Moment:
        """Cov of two score families: clause (iv), by Isserlis."""
        ranges = self.pair_ranges(f, g)
        second = {name[:-1]: Affine(((name, 1),)) for name in ranges if name.endswith("_")}
        left, right = self.operands(f)
        other_left, other_right = (reindexed(reference, second) for reference in self.operands(g))

        def c(u: Variable, v: Variable) -> Moment:
            return self.reference_covariance(u, v, ranges)

        return c(left, other_left) * c(right, other_right) + c(left, other_right) * c(right, other_left)

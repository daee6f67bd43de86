"""Facts of expressions by composition: one walk, in which atoms bring their facts and the rules only compose them.

Source    Sakai et al. 2025, Def. 2, Prop. 6, Lemma 7; the theory page, "Facts"
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tensorprog.check.certificates.factors import put
from tensorprog.check.certificates.knowledge import (
    MAX_GRID,
    ROUNDING,
    Knowledge,
    Undecided,
    around,
    rational,
    with_errors,
)
from tensorprog.check.certificates.profile import (
    GAUSSIAN,
    Fault,
    Kinks,
    Profile,
    assumed,
    compose,
    constant,
    crossing,
    join,
    join_kinks,
    meet,
    moved,
    product,
    shown,
    sum_parity,
    tidy,
    times,
    trend,
    unary_kinks,
    unknown,
)
from tensorprog.language.atoms import ATOMS, REDUCTIONS, Interval, Regularity
from tensorprog.language.atoms.outward import LARGEST, hull, near, quotient, sums
from tensorprog.language.atoms.outward import product as products
from tensorprog.language.evaluate import broadcast
from tensorprog.language.expr import (
    COMPARISONS,
    LOGICAL,
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    free_indices,
    index_names,
    indices_of,
    rebuild,
    substitute,
    variables,
    walk,
)
from tensorprog.language.ir import Netsor

__all__ = ["Composition"]

INF = math.inf
MAX_STEPS = 2_000  # functions in a statement, and in what they are related to, after which composition alone goes on
MAX_PARAMS = 2_000  # different parameters of one atom over its indices
AT_MASKS = {"exp": 0.0, "sigmoid": 0.0, "relu": 0.0, "softplus": 0.0, "tanh": -1.0, "maximum": INF}  # values at -inf


Relation = Callable[[Knowledge, Call, Profile], Profile | None]


class Composition(Knowledge):
    """The walk over one expression; what a reference stands for is left to the program (`vector`).

    relations: what is asked of each function after composition, which cannot see what its arguments have to do with
               each other; each gives what it knows of the whole, or None
    """

    def __init__(self, netsor: Netsor, relations: Sequence[Relation] = ()) -> None:
        super().__init__(netsor)
        self.relations = tuple(relations)
        self.steps: dict[int, int] = {}  # functions that were looked at, by statement

    @abstractmethod
    def vector(self, reference: Variable, position: int) -> Profile:
        """Facts of what a reference in a statement reads."""

    def expression(self, expr: Expr, position: int) -> Profile:
        """Facts of an expression that stands in a statement; remembered, for each branch of `where`."""
        self.at = position
        found: Profile = self.recall("expression", (expr, self.spread), lambda: self._expression(expr))
        return found

    def _expression(self, expr: Expr) -> Profile:
        found = self._node(expr)
        if expr in self._known:
            low, high = self._known[expr]
            if max(found.low, low) <= min(found.high, high):
                found = tidy(found, low=max(found.low, low), high=min(found.high, high))
        if found.depends == {"average"} and (found.growth or found.modulus or found.partial):
            # a number in the limit: what counts is its limiting value
            needs = dict.fromkeys((*found.assumes, _smooth(expr, self.ranges)))
            found = Profile(
                found.low,
                found.high,
                0.0,
                0.0,
                INF,
                0.0,
                found.parity,
                rises=True,
                falls=True,
                kinks=(),
                depends=found.depends,
                masked=found.masked,
                open=found.open,
                assumes=tuple(needs),
            )
        return found

    def _node(self, expr: Expr) -> Profile:
        if isinstance(expr, Number):
            if math.isinf(expr.value):
                return self._infinite(expr)
            return constant(*(self.closed(expr) or (-INF, INF)))
        if isinstance(expr, Variable):
            return self.vector(expr, self.at)
        interval = self.closed(expr)
        if interval is not None:
            return constant(*interval)
        if isinstance(expr, IndexValue | Constant):
            return constant(-INF, INF)
        seen = self._unmasked(expr)
        if seen is not None:
            return replace(constant(*seen), masked=True)
        if isinstance(expr, Reduction):
            return self.reduce(expr)
        assert isinstance(expr, Call)
        self.steps[self.at] = self.steps.get(self.at, 0) + 1
        composed = self.call(expr)
        if self.exhausted(self.at):
            return composed
        # what relations see when they come back to where they are
        self._remembered[self._place("expression", expr, self.spread)] = composed
        return composed if self.exhausted(self.at) else self._related(expr, composed)

    def _related(self, node: Call, composed: Profile) -> Profile:
        """What is known by composition, and by relations between the parts."""
        found = composed
        for relation in self.relations:
            if _settled(found):
                break
            try:
                more = relation(self, node, found)
            except Undecided:
                continue
            if more is not None and more.masked <= found.masked:  # -inf is no value of a relation between numbers
                found = meet(found, more)
        return found

    def exhausted(self, position: int) -> bool:
        """Whether a statement is so large that relations between its parts are no longer looked for."""
        return self.steps.get(position, 0) > MAX_STEPS

    def _infinite(self, expr: Number) -> Profile:
        if expr.value < 0:
            return replace(constant(-INF, -INF), masked=True)
        return unknown(Fault(expr, self.at, "inf is no number; only -inf may stand for a value, as a mask"))

    def _unmasked(self, expr: Expr) -> Interval | None:
        """Interval of the values of an expression of constants and indices that are not -inf, if others are."""
        if self.closed(expr) is not None or any(isinstance(node, Variable) for node in walk(expr)):
            return None
        names = {name for node in walk(expr) for name in index_names(node)}
        if math.prod(self.ranges[name][1] - self.ranges[name][0] for name in names) > MAX_GRID:
            return None
        values, errors = (np.asarray(part.data, dtype=float) for part in with_errors(self.netsor, expr, self.ranges))
        values, errors = np.broadcast_arrays(values, errors)
        seen = values != -INF
        known = seen.any() and np.isfinite(values[seen]).all() and np.isfinite(errors[seen]).all()
        return around(values[seen], errors[seen]) if known else None

    def _arguments(self, args: Sequence[Expr]) -> list[Profile]:
        return [self.expression(arg, self.at) for arg in args]

    def call(self, node: Call) -> Profile:
        """Facts of an atom applied to arguments, by composition alone."""
        if node.atom == "where":
            return self._where(node)
        return self._applied(node, self._arguments(node.arguments))

    def _applied(self, node: Call, args: list[Profile]) -> Profile:
        atom = ATOMS[node.atom]
        depends = frozenset[str]().union(*(p.depends for p in args))
        if any(p.masked for p in args):
            return self._masked(node, args, depends)
        found = RULES.get(node.atom, Composition._unary if atom.arity == 1 else Composition._several)(self, node, args)
        partial = next((p.partial for p in args if p.partial), None) or found.partial
        wild = next((p.wild for p in args if p.wild), None)
        found = tidy(found, depends=depends, assumes=assumed(*args, found), partial=partial, rough=None, wild=None)
        rough = None
        if found.modulus == INF:
            inherited = next((p.rough for p in args if p.rough), None) or partial
            rough = inherited or Fault(node, self.at, self._why_rough(node, args))
        if found.exponent >= GAUSSIAN and found.growth == INF:
            known = f"{node} outgrows exp(C |x|**r) for every r < 2"
            wild = wild or Fault(node, self.at, f"no growth is declared of {atom.name}" if atom.declared else known)
        return tidy(found, rough=rough, wild=wild)

    def _several(self, node: Call, args: list[Profile]) -> Profile:
        """A function of several arguments: a sum, a maximum, a comparison."""
        atom = ATOMS[node.atom]
        numbers = all(p.depends == frozenset() for p in args)
        bound = atom.image(*(p.interval for p in args)) if atom.image else (-INF, INF)
        found = compose(Regularity(0, 0, 0) if numbers else atom.regularity, args, bound)
        if node.atom in ("add", "subtract"):
            found = replace(found, parity=sum_parity(args), lipschitz=args[0].lipschitz + args[1].lipschitz)
        return moved(node, args, found)

    def _multiply(self, node: Call, args: list[Profile]) -> Profile:
        found = product(*args)
        return replace(found, low=max(found.low, 0.0)) if node.args[0] == node.args[1] else found  # a square

    def _why_rough(self, node: Call, args: Sequence[Profile]) -> str:
        atom = ATOMS[node.atom]
        if node.atom in COMPARISONS:
            return f"{node} jumps where its two sides are equal"
        if atom.declared and atom.regularity.modulus == INF:
            return f"no modulus is declared of {atom.name}"
        if not atom.continuous and node.atom != "divide":
            return f"{atom.name} is discontinuous"
        if node.atom == "divide":
            return f"the denominator {node.args[1]} is not kept away from 0"
        if node.atom == "exp":
            return f"exp is not pseudo-Lipschitz where its argument {node.args[0]} is not bounded above"
        if node.atom in ("multiply", "add", "subtract"):
            return f"the growth of {node} is not bounded by a power"
        return f"{atom.name} has no slope bounded by a power on the range {shown(args[0].interval)} of {node.args[0]}"

    def _params(self, node: Call) -> list[tuple[float, ...]] | None:
        """All values of an atom's parameters over their indices; None if there are too many."""
        numbers = [self.number(p) for p in node.params]
        if all(number is not None for number in numbers):
            return [tuple(number for number in numbers if number is not None)]
        names = {name for p in node.params for n in walk(p) for name in index_names(n)}
        ranges = self.ranges
        axes = sorted(names)
        if math.prod(ranges[name][1] - ranges[name][0] for name in axes) > MAX_GRID:
            return None
        columns = []
        for p in node.params:
            values, errors = with_errors(self.netsor, p, ranges)
            if not (errors.data <= ROUNDING * np.abs(values.data)).all():
                return None
            columns.append(np.ravel(broadcast(values, axes, {name: b - a for name, (a, b) in ranges.items()})))
        grid = np.stack(columns, axis=-1)
        unique = np.unique(grid, axis=0)
        return [tuple(map(float, row)) for row in unique] if len(unique) <= MAX_PARAMS else None

    def _nearby(self, node: Call, params: tuple[float, ...]) -> Iterator[tuple[float, ...]]:
        """Parameters between which those of an atom lie: both ends of those that are not exact."""
        ends = []
        for p, span in zip(params, map(self.closed, node.params), strict=True):
            exact = math.isinf(p) or (span is not None and span[0] == span[1])
            ends.append((p,) if exact else (p - ROUNDING * abs(p), p + ROUNDING * abs(p)))
        return itertools.product(*ends)

    def _unary(self, node: Call, args: list[Profile]) -> Profile:
        (inner,), atom, choices = args, ATOMS[node.atom], self._params(node)
        if choices is None:
            return unknown(Fault(node, self.at, _unreal(node, inner)))
        found = functools.reduce(join, [self._with_parameters(node, inner, params) for params in choices])
        # where the value may be no real number, the growth is not known
        grows = all(atom.regularity_on(inner.interval, *params).exponent < INF for params in choices) or atom.declared
        if not (grows and atom.domain[0] <= inner.low and inner.high <= atom.domain[1]):
            return replace(found, partial=Fault(node, self.at, _unreal(node, inner)))
        if found.low >= LARGEST or found.high <= -LARGEST:
            return replace(found, partial=Fault(node, self.at, f"{node} is infinite"))
        return found

    def _with_parameters(self, node: Call, inner: Profile, params: tuple[float, ...]) -> Profile:
        atom = ATOMS[node.atom]
        bound = hull(*(atom.range_on(inner.interval, *near) for near in self._nearby(node, params)))
        found = tidy(compose(atom.regularity_on(inner.interval, *params), [inner], bound))
        parity = atom.parity
        if node.atom == "power" and params[0] == int(params[0]):
            parity = -1 if params[0] % 2 else 1
        if node.atom == "clip" and params[0] == -params[1]:
            parity = -1
        rises, falls = trend(atom, inner, params)
        return tidy(
            found,
            parity={1: 1, -1: parity, 0: 0}[inner.parity],
            rises=rises,
            falls=falls,
            kinks=unary_kinks(atom, node.args[0], inner, params),
        )

    def _divide(self, node: Call, args: list[Profile]) -> Profile:
        (top, bottom), under = args, node.args[1]
        inverse = self.closed(Call("divide", (Number(1), under)))
        if inverse is not None:  # numbers of either sign, none of them 0
            return product(top, constant(*inverse))
        low, high = bottom.interval
        gap = low if low > 0 else -high if high < 0 else 0.0
        if gap == 0 and bottom.depends == {"average"}:
            return replace(
                product(top, replace(constant(-INF, INF), lipschitz=INF)),
                low=-INF,
                high=INF,
                assumes=(_apart(under, self.ranges),),
            )
        if gap == 0:
            reason = f"the denominator {under} is not kept away from 0: its range is {shown(bottom.interval)}"
            zero = crossing((under, Number(0)), (bottom, constant(0.0, 0.0)))
            return replace(unknown(Fault(node, self.at, reason)), kinks=join_kinks(top.kinks, bottom.kinks, zero))
        inverted = tidy(  # |d(1/h)| = |dh| / h**2, where |h| is at least the gap
            bottom,
            low=quotient(1.0, high)[0],
            high=quotient(1.0, low)[1],
            growth=0.0,
            exponent=0.0,
            lipschitz=times(bottom.lipschitz, 1 / gap / gap),
            rises=bottom.falls,
            falls=bottom.rises,
        )
        return replace(product(top, inverted), parity=top.parity * bottom.parity)

    def _where(self, node: Call) -> Profile:
        condition, first, second = node.args
        if self.closed(condition) is not None or not variables(condition):
            interval = self.closed(condition)
            if interval == (1.0, 1.0):
                return self.expression(first, self.at)
            if interval == (0.0, 0.0):
                return self.expression(second, self.at)
            yes, no = self._arguments((first, second))
            found = join(yes, no)
            if yes.masked != no.masked:  # ranges and growth speak of the entries that are not masked
                kept = no if yes.masked else yes
                found = replace(kept, masked=True, parity=0, open=yes.open or no.open)
            return found
        inside = self._branch(condition)
        yes, no = self.within(first, inside[0]), self.within(second, inside[1])
        given = self.expression(condition, self.at)
        found = join(yes, no)
        kinks = join_kinks(found.kinks, given.kinks)
        glued = self._glued(condition, first, second)
        asked = self._arguments(_compared(condition)) if glued else [given]
        needs = assumed(found, *asked)
        partial = found.partial or given.partial  # what is no number is neither so nor not
        found = replace(
            found, parity=0, kinks=kinks, depends=found.depends | given.depends, assumes=needs, partial=partial
        )
        if found.masked:
            found = replace(found, open=Fault(node, self.at, f"{node} may mask every entry"))
        if glued or given.depends == {"average"}:  # one branch near the limits, as is assumed
            return found
        found = replace(found, rises=False, falls=False)
        reason = f"{node} switches where its condition changes; it is continuous only if both branches agree there"
        jump = Fault(node, self.at, reason)
        modulus = 0.0 if found.constant else INF
        return tidy(found, modulus=modulus, lipschitz=INF, rough=found.rough or jump)

    def within(self, expr: Expr, known: dict[Expr, Interval]) -> Profile:
        """Facts of an expression where subexpressions lie in intervals."""
        before = self._known
        self._known = before | {u: _overlap(interval, before.get(u, interval)) for u, interval in known.items()}
        found = self.expression(expr, self.at)
        self._known = before
        return found

    def _within_reduction(self, node: Reduction) -> Profile:
        """Facts of what is reduced: what is known of one member of a family is not known of all."""
        before = self._known
        self._known = {u: span for u, span in before.items() if not set(free_indices(u)).intersection(node.indices)}
        found = self.expression(node.arg, self.at)
        self._known = before
        return found

    def _threshold(self, condition: Expr) -> tuple[Expr, Interval, str] | None:
        """(u, enclosure of c, atom) of a condition u < c and the like."""
        if not (isinstance(condition, Call) and condition.atom in COMPARISONS[:4]):
            return None
        left, right = condition.args
        c = self.closed(right)
        if c is not None and self.number(right) is not None:
            return left, c, condition.atom
        c = self.closed(left) if self.number(left) is not None else None
        flipped = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
        return (right, c, flipped[condition.atom]) if c is not None else None

    def _branch(self, condition: Expr) -> tuple[dict[Expr, Interval], dict[Expr, Interval]]:
        """Intervals of subexpressions where a condition holds, and where it does not."""
        if isinstance(condition, Call) and condition.atom in LOGICAL:
            first, second = (self._branch(part)[LOGICAL.index(condition.atom)] for part in condition.args)
            both = first | {u: _overlap(span, first.get(u, span)) for u, span in second.items()}
            return (both, {}) if condition.atom == "logical_and" else ({}, both)
        found = self._threshold(condition)
        if found is None:
            return {}, {}
        u, (least, most), atom = found
        below: dict[Expr, Interval] = {u: (-INF, most)}
        above: dict[Expr, Interval] = {u: (least, INF)}
        if isinstance(u, Call) and u.atom == "abs":
            below[u.args[0]] = (-most, most)
        return (below, above) if atom.startswith("less") else (above, below)

    def _glued(self, condition: Expr, first: Expr, second: Expr) -> bool:
        """Whether both branches agree wherever the two sides of a comparison are equal."""
        if isinstance(condition, Call) and condition.atom in LOGICAL:
            return all(self._glued(part, first, second) for part in condition.args if variables(part))
        if not (isinstance(condition, Call) and condition.atom in COMPARISONS[:4]):
            return False
        return any(
            all(self._agree(first, second, *place) for place in _places(u, c))
            for u, c in (condition.args, condition.args[::-1])
            if variables(u)
        )

    def _agree(self, first: Expr, second: Expr, u: Expr, c: Expr) -> bool:
        """Whether two expressions are equal where a subexpression has a value."""
        sides = [self._decided(put(branch, u, c)) for branch in (first, second)]
        if sides[0] == sides[1]:
            return True
        if rational(self.netsor, sides[0]) is not None:
            return rational(self.netsor, sides[0]) == rational(self.netsor, sides[1])
        values = [self.closed(side) for side in sides]  # exactly: what is glued may be scaled up
        return values[0] is not None and values[0] == values[1] and values[0][0] == values[0][1]

    def _decided(self, expr: Expr) -> Expr:
        """The expression with one branch for each `where` whose condition is known to hold, or not to."""

        def change(node: Expr) -> Expr | None:
            if not (isinstance(node, Call) and node.atom == "where"):
                return None
            holds: Fraction | float | None = rational(self.netsor, node.args[0])
            span = self.closed(node.args[0]) if holds is None else None
            if span is not None and span[0] == span[1]:
                holds = span[0]
            return None if holds is None else self._decided(node.args[1 if holds else 2])

        return rebuild(expr, change)

    def _masked(self, node: Call, args: Sequence[Profile], depends: frozenset[str]) -> Profile:
        if node.atom in AT_MASKS:
            found = self._applied(node, [replace(p, masked=False) for p in args])
            low = min(found.low, AT_MASKS[node.atom], *(p.low for p in args if node.atom == "maximum"))
            masked = node.atom == "maximum" and all(p.masked for p in args)
            return replace(found, low=low, masked=masked, open=_first_open(args) if masked else None)
        if _keeps_mask(node.atom, args):
            found = self._applied(node, [replace(p, masked=False) for p in args])
            return replace(found, masked=True, open=_first_open(args))
        reason = f"{node.atom} meets the value -inf of a mask; only softmax, logsumexp, max and exp take it"
        return unknown(Fault(node, self.at, reason), depends)

    def reduce(self, node: Reduction) -> Profile:
        """Facts of a reducer over indices."""
        inner = self._within_reduction(node)
        count = self.count(node)
        reducer = REDUCTIONS[node.reducer]
        if inner.masked and reducer.linear:
            return unknown(Fault(node, self.at, f"{node.reducer} meets the value -inf of a mask"), inner.depends)
        found = replace(
            inner,
            masked=False,
            open=None,
            partial=inner.partial or inner.open,
            kinks=_unprimed(inner.kinks, node.indices),
        )
        if node.reducer == "sum":
            low, high = products(inner.low, count)[0], products(inner.high, count)[1]
            return tidy(found, low=low, high=high, lipschitz=times(inner.lipschitz, count))
        if node.reducer == "mean":
            return found
        parity = 1 if inner.parity == 1 else 0
        if node.reducer == "max":
            return tidy(found, parity=parity, kinks=None if found.depends else found.kinks)
        if node.reducer == "logsumexp":
            return tidy(found, high=sums(inner.high, near(math.log(count), 1.0)[1])[1], parity=parity)
        assert node.reducer == "softmax"
        fixed = inner.rises and inner.falls
        return tidy(
            found,
            low=0.0,
            high=1.0,
            growth=0.0,
            exponent=0.0,
            lipschitz=inner.lipschitz / 2,
            parity=parity,
            rises=fixed,
            falls=fixed,
            wild=None,
        )


Rule = Callable[[Composition, Call, list[Profile]], Profile]
RULES: dict[str, Rule] = {"multiply": Composition._multiply, "divide": Composition._divide}


def _settled(p: Profile) -> bool:
    """Whether relations have nothing to add but a narrower range."""
    return p.real and p.modulus == 0 and math.isfinite(p.low) and math.isfinite(p.high)


def _first_open(args: Sequence[Profile]) -> Fault | None:
    """Why the entries that stay masked may be all there are."""
    return next((p.open for p in args if p.masked and p.open), None)


def _overlap(a: Interval, b: Interval) -> Interval:
    """The common part of two intervals; the first, where there is none."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a


def _compared(condition: Expr) -> list[Expr]:
    """The sides of all comparisons of a condition."""
    if isinstance(condition, Call) and condition.atom in LOGICAL:
        return [side for part in condition.args for side in _compared(part)]
    return list(condition.children)


def _places(u: Expr, c: Expr) -> list[tuple[Expr, Expr]]:
    """Subexpressions with the values that they have where u = c: abs(x) is c where x is c or -c."""
    if isinstance(u, Call) and u.atom == "abs":
        return [*_places(u.args[0], c), *_places(u.args[0], Call("negative", (c,)))]
    return [(u, c)]


def _unprimed(kinks: Kinks, indices: Sequence[str]) -> Kinks:
    """Kinks under the names that reduced indices have in the program (see `factors.apart`)."""
    names = {name: Affine(((name.rstrip("'"), 1),)) for name in indices if name.endswith("'")}
    if not kinks or not names:
        return kinks
    return join_kinks(tuple((substitute(expr, names, along=True), thresholds) for expr, thresholds in kinks))


def _keeps_mask(atom: str, args: Sequence[Profile]) -> bool:
    """Whether -inf stays -inf: a finite number is added, or a positive one multiplied."""
    if atom == "add":
        return True
    if atom == "subtract":
        return not args[1].masked
    if len(args) != 2:
        return False
    factor = args[1] if args[0].masked else args[0]
    linear = atom == "multiply" or (atom == "divide" and not args[1].masked)
    return linear and not factor.masked and not factor.depends and factor.low > 0


def _unreal(node: Call, inner: Profile) -> str:
    known = f"all that is known of {node.args[0]} is its range {shown(inner.interval)}"
    return f"{known}, and {node.atom} is not a finite real number everywhere in it"


def _smooth(expr: Expr, ranges: Collection[str]) -> tuple[str, Expr]:
    expr = _in_program(expr, ranges)
    return f"{expr} is finite and smooth at the limiting value of the averages", expr


def _apart(expr: Expr, ranges: Collection[str]) -> tuple[str, Expr]:
    expr = _in_program(expr, ranges)
    return f"{expr} is not 0 at the limiting value of the averages", Call("divide", (Number(1), expr))


def _in_program(expr: Expr, ranges: Collection[str]) -> Expr:
    """An expression under the names that its indices have in the program, where that keeps them apart."""
    names = {name: re.split("['#]", name)[0] for name in indices_of(expr, ranges)}
    if len(set(names.values())) < len(names):
        return expr
    return substitute(expr, {old: Affine(((new, 1),)) for old, new in names.items() if old != new}, along=True)

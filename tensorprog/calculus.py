"""Facts of an expression as a function of G-vars, initial vectors, scores and averages, by composition rules.

Every subexpression carries a `Profile`: range, growth, modulus, exponent, parity.  Atoms bring their own facts; the
rules here only compose them, and name the smallest subexpression at which a property is lost.  Nonlins are inlined by
composition: the facts of `x[i]` are those of its definition, so families cost one profile per statement.

Source    Sakai et al. 2025, Def. 2, Prop. 6, Lemma 7; Bayati & Montanari 2011; theory.md section 3
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import BATCH, Open, affine_values
from tensorprog.atoms import ATOMS, REDUCTIONS, Interval, Regularity
from tensorprog.errors import ProgramError
from tensorprog.evaluate import Scope, evaluate, index_array
from tensorprog.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    rebuild,
    variables,
    walk,
)
from tensorprog.facts import FAILS, HOLDS, UNKNOWN, Fact
from tensorprog.graph import Structure
from tensorprog.ir import Dot, Initial, MatMul, Netsor, Nonlin, Range

__all__ = ["Calculus", "Fault", "Profile"]

INF = math.inf
MAX_GRID = 1_000_000  # values of a constant that are computed one by one
MAX_PARAMS = 2_000  # different parameters of one atom over its indices
MAX_NODES = 400  # of an inlined expression in the search for a witness
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
SWITCHES = ("sigmoid", "tanh", "erf")  # bounded, with derivatives that decay faster than any power


@dataclass(frozen=True)
class Fault:
    """The smallest subexpression at which a property is lost, although its arguments have it."""

    expr: Expr
    position: int
    reason: str


@dataclass(frozen=True)
class Profile:
    """What is certified of a function f of all its arguments together; the defaults are those of one argument.

    `low`, `high`: its range lies between them.  `growth`, `modulus`, `lipschitz`, `exponent` as in `Regularity`, inf
    where nothing is certified.  `depends`: kinds of arguments that occur.  `rough`, `partial`: why there is no modulus,
    why f may be no real number somewhere.  `assumes`: what the limiting values of averages must satisfy.
    """

    low: float = -INF
    high: float = INF
    growth: float = 1.0
    modulus: float = 0.0
    lipschitz: float = 1.0
    exponent: float = 0.0
    parity: int = 0  # +1 even, -1 odd, under a change of sign of all vectors and scores together
    masked: bool = False  # -inf, by a mask on indices
    depends: frozenset[str] = frozenset()
    rough: Fault | None = None
    wild: Fault | None = None  # where growth leaves every exp(C |x|**r) with r < 2
    partial: Fault | None = None
    assumes: tuple[str, ...] = ()

    @property
    def interval(self) -> Interval:
        """The range."""
        return self.low, self.high

    @property
    def constant(self) -> bool:
        """Whether the value is one number."""
        return self.low == self.high and not self.masked

    @property
    def bounded(self) -> bool:
        """Whether boundedness is certified."""
        return self.growth == 0 and self.partial is None

    @property
    def pseudo_lipschitz(self) -> bool:
        """Whether a finite modulus is certified."""
        return self.modulus < INF and self.partial is None

    @property
    def controlled(self) -> bool:
        """Whether |f(x)| <= exp(C |x|**r + c) with r < 2 is certified (Yang 2019, Def. 5.3)."""
        return (self.growth < INF or self.exponent < 2) and self.partial is None

    @property
    def order(self) -> float:
        """The papers' pseudo-Lipschitz order."""
        return self.modulus + 1


VECTOR = Profile(parity=-1, depends=frozenset({"vector"}))
SCORE = Profile(parity=-1, depends=frozenset({"score"}))


def _tidy(p: Profile) -> Profile:
    """Draw the conclusions that link the fields."""
    low, high, growth, exponent, modulus, rough = p.low, p.high, p.growth, p.exponent, p.modulus, p.rough
    if math.isnan(low) or math.isnan(high) or low > high:
        low, high = -INF, INF
    if low == high and p.partial is None:
        modulus, rough = 0.0, None
        p = replace(p, lipschitz=0.0, parity=1)
    if -INF < low and high < INF:
        growth = 0.0
    if modulus < INF:
        growth, rough = min(growth, modulus + 1), None
    if growth < INF:
        exponent = 0.0
    wild = None if growth < INF or exponent < 2 else p.wild
    lipschitz = p.lipschitz if modulus == 0 else INF
    return replace(p, low=low, high=high, growth=growth, exponent=exponent, modulus=modulus, rough=rough, wild=wild,
                   lipschitz=lipschitz)


def constant(low: float, high: float) -> Profile:
    """Profile of a number known to lie in an interval."""
    return Profile(low, high, 0.0, 0.0, 0.0, 0.0, 1)


def _join(first: Profile, second: Profile) -> Profile:
    """What holds of both."""
    parity = first.parity if first.parity == second.parity else 0
    return _tidy(Profile(
        min(first.low, second.low), max(first.high, second.high), max(first.growth, second.growth),
        max(first.modulus, second.modulus), max(first.lipschitz, second.lipschitz), max(first.exponent, second.exponent),
        parity, first.masked or second.masked, first.depends | second.depends, first.rough or second.rough,
        first.wild or second.wild, first.partial or second.partial, tuple(dict.fromkeys(first.assumes + second.assumes)),
    ))


def _meet(first: Profile, second: Profile) -> Profile:
    """What is known when both are certified of the same function; `second` brings range and regularity only."""
    return _tidy(replace(
        first, low=max(first.low, second.low), high=min(first.high, second.high), growth=min(first.growth, second.growth),
        modulus=min(first.modulus, second.modulus), lipschitz=min(first.lipschitz, second.lipschitz),
        exponent=min(first.exponent, second.exponent), parity=first.parity or second.parity,
        partial=None if second.partial is None else first.partial,
        wild=None if second.wild is None else first.wild,
        assumes=first.assumes if len(first.assumes) <= len(second.assumes) else second.assumes,
    ))


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _compose(outer: Regularity, inner: Sequence[Profile], bound: Interval) -> Profile:
    """f(g1, g2, ...): growth gf gg, modulus mf gg + mg.

    Source    Sakai et al. 2025, Prop. 6
    """
    growth = max(p.growth for p in inner)
    modulus = max(p.modulus for p in inner)
    wildness = max(p.exponent for p in inner)
    if outer.growth < INF:
        exponent = 0.0 if outer.growth == 0 else wildness
    elif outer.exponent < INF:  # exp(C |g|**r) with |g| <= K (1 + |x|**growth)
        exponent = _times(outer.exponent, growth)
    else:
        exponent = INF
    if outer.growth == 0 or (growth == 0 and min(outer.growth, outer.exponent) < INF):
        rise = 0.0  # a function without poles is bounded where its arguments are
    else:
        rise = outer.growth * growth if growth else INF
    total = INF if modulus == INF or outer.modulus == INF else _times(outer.modulus, growth) + modulus
    return Profile(*bound, growth=rise, modulus=total, exponent=exponent,
                   lipschitz=_times(outer.lipschitz, sum(p.lipschitz for p in inner)))


class Calculus:
    """Profiles of all statements of a program, and the facts that follow from them."""

    def __init__(self, netsor: Netsor, structure: Structure | None = None) -> None:
        self.netsor = netsor
        self.structure = structure or Structure(netsor)
        self._profiles: dict[int, Profile] = {}
        self._closed: dict[Expr, Interval | None] = {}
        self._at = -1
        self.ranges: dict[str, Range] = dict(netsor.ranges)
        self._known: dict[Expr, Interval] = {}  # ranges that hold inside a branch of `where`
        for position, one in enumerate(netsor.body):
            if not isinstance(one, Nonlin):
                self._profiles[position] = self._single(position)
        for group in self.structure.groups:
            if group[0] not in self._profiles:
                self._group(group)

    # -- statements -------------------------------------------------------------------------------------------------

    def statement(self, position: int) -> Profile:
        """Facts of what a statement defines, as a function of G-vars, initial vectors, scores and averages."""
        return self._profiles[position]

    def vector(self, reference: Variable, position: int) -> Profile:
        """Facts of what a reference in a statement reads."""
        initial = self.structure.initial.get(reference.name)
        if initial is not None:
            return self._initial(initial)
        definers = self.structure.definers(position, reference) or self.netsor.families[reference.name].statements
        found = [self._profiles[d] for d in definers if d in self._profiles]
        if not found:  # a recurrence, before its first member is known: nothing to join yet
            return constant(0.0, 0.0)
        result = found[0]
        for other in found[1:]:
            result = _join(result, other)
        if "zero" in self.netsor.families[reference.name].boundaries:
            result = _join(result, replace(constant(0.0, 0.0), parity=result.parity))
        return result

    def _initial(self, initial: Initial) -> Profile:
        if isinstance(initial.cov, Number) and initial.cov.value == 0 and isinstance(initial.mean, Expr):
            interval = self.closed(initial.mean)
            if interval is not None:
                return _tidy(replace(constant(*interval), depends=VECTOR.depends))
        return VECTOR

    def _single(self, position: int) -> Profile:
        statement = self.netsor.body[position]
        if isinstance(statement, MatMul):
            return VECTOR
        if isinstance(statement, Dot):
            if statement.scale == "n**-0.5":
                return SCORE
            # a number in the limit: a parameter near its limiting value, so bounded though no bound is known here
            low = 0.0 if statement.left == statement.right else -INF
            return Profile(low, INF, 0.0, 0.0, 0.0, 0.0, 1, depends=frozenset({"average"}))
        found = self.expression(statement.expr, position)
        if not (found.pseudo_lipschitz and found.controlled) and self._settled(statement, position):
            # a relation between factors may span several statements: look at the definition written out
            inlined = self.inline(statement.expr, position)
            if inlined is not None and inlined[0] != statement.expr:
                before, self.ranges = self.ranges, inlined[1]
                again = self.expression(inlined[0], position)
                self.ranges = before
                found = _meet(found, again) if again.pseudo_lipschitz or again.controlled else found
        return found

    def _settled(self, statement: Nonlin, position: int) -> bool:
        return all(d in self._profiles for v in statement.inputs for d in self.structure.definers(position, v))

    def _group(self, group: tuple[int, ...]) -> None:
        if not self.structure.cyclic(group):
            self._profiles[group[0]] = self._single(group[0])
            return
        # Kleene iteration: a stable answer is an inductive invariant; else after as many rounds as the recurrence has
        # steps every member has been reached
        depth = math.prod(b - a for a, b in self.netsor.families[self.netsor.body[group[0]].target.name].ranges) * len(group)
        for rounds in range(min(depth, 200) + 2):
            before = {p: self._profiles.get(p) for p in group}
            for p in group:
                new, old = self._single(p), before[p]
                self._profiles[p] = new if old is None else _join(old, new)
            if all(before[p] is not None and _same(before[p], self._profiles[p]) for p in group):
                return
            if rounds == 8:  # constants may grow for ever: give up the best one, keep its being finite
                for p in group:
                    self._profiles[p] = replace(self._profiles[p], lipschitz=INF)
        if depth <= 200:
            return
        reason = "the recurrence does not settle"
        for p in group:
            statement = self.netsor.body[p]
            assert isinstance(statement, Nonlin)
            fault = Fault(statement.expr, p, reason)
            self._profiles[p] = Profile(-INF, INF, INF, INF, INF, INF, 0, depends=self._profiles[p].depends, rough=fault,
                                        wild=fault)
        for _ in range(2):  # a bound that holds by the function's own range comes back
            for p in group:
                self._profiles[p] = self._single(p)

    # -- expressions ------------------------------------------------------------------------------------------------

    def expression(self, expr: Expr, position: int) -> Profile:
        """Facts of an expression that stands in a statement."""
        self._at = position
        found = self._node(expr)
        if expr in self._known:
            low, high = self._known[expr]
            if max(found.low, low) <= min(found.high, high):
                found = _tidy(replace(found, low=max(found.low, low), high=min(found.high, high)))
        if found.depends == {"average"} and (found.growth or found.modulus or found.partial):
            # a number in the limit: what counts is its limiting value
            found = replace(found, growth=0.0, modulus=0.0, exponent=0.0, lipschitz=INF, rough=None, wild=None, partial=None,
                            assumes=tuple(dict.fromkeys((*found.assumes, f"{expr} is finite and smooth"))))
        return found

    def _node(self, expr: Expr) -> Profile:
        if isinstance(expr, Number):
            if math.isinf(expr.value):
                return replace(constant(expr.value, expr.value), masked=True)
            return constant(expr.value, expr.value)
        if isinstance(expr, Variable):
            return self.vector(expr, self._at)
        interval = self.closed(expr)
        if interval is not None:
            return constant(*interval)
        if isinstance(expr, IndexValue | Constant):
            return constant(-INF, INF)
        if isinstance(expr, Reduction):
            return self._reduce(expr)
        assert isinstance(expr, Call)
        known = self._identity(expr)
        composed = self._call(expr)
        return composed if known is None else _meet(composed, known)

    def closed(self, expr: Expr) -> Interval | None:
        """Interval of an expression of constants and indices; None for others and for very large grids."""
        if expr in self._closed:
            return self._closed[expr]
        self._closed[expr] = result = self._closed_interval(expr)
        return result

    def _closed_interval(self, expr: Expr) -> Interval | None:
        names: dict[str, None] = {}
        for node in walk(expr):
            if isinstance(node, Variable):
                return None
            names |= dict.fromkeys(node.indices if isinstance(node, Reduction) else _index_names(node))
        if isinstance(expr, IndexValue):
            start, stop = self.ranges[expr.name]
            return float(start), float(stop - 1)
        axes = list(names)
        ranges = self.ranges
        if math.prod(ranges[name][1] - ranges[name][0] for name in axes) > MAX_GRID:
            return None
        values = index_array(self.netsor, expr, [name for name in axes if not _removed(expr, name)], ranges)
        return (float(np.min(values)), float(np.max(values))) if np.isfinite(values).all() else None

    def _number(self, expr: Expr) -> float | None:
        interval = self.closed(expr)
        return interval[0] if interval is not None and interval[0] == interval[1] else None

    def _arguments(self, args: Sequence[Expr]) -> list[Profile]:
        return [self.expression(arg, self._at) for arg in args]

    def _call(self, node: Call) -> Profile:
        atom = ATOMS[node.atom]
        if node.atom == "where":
            return self._where(node)
        args = self._arguments(node.arguments)
        depends = frozenset[str]().union(*(p.depends for p in args))
        assumes = tuple(dict.fromkeys(text for p in args for text in p.assumes))
        inherited = next((p.rough for p in args if p.rough), None)
        partial = next((p.partial for p in args if p.partial), None)
        wild = next((p.wild for p in args if p.wild), None)
        if any(p.masked for p in args):
            return self._masked(node, args, depends)
        if node.atom == "multiply":
            found = _product(args[0], args[1])
        elif node.atom == "divide":
            found, partial, more = self._quotient(node, args, partial)
            assumes += more
            inherited = inherited or partial
        elif atom.arity == 1:
            found = self._unary(node, args[0])
            low, high = atom.domain
            if partial is None and not (low <= args[0].low and args[0].high <= high):
                partial = Fault(node, self._at, f"{atom.name} is no real number on part of the range "
                                                f"{_interval(args[0].interval)} of {node.args[0]}")
                inherited = inherited or partial
            if partial is None and found.exponent == INF and args[0].exponent < INF:
                partial = Fault(node, self._at, f"{node} is no real number on part of the range "
                                                f"{_interval(args[0].interval)} of {node.args[0]}")
                inherited = inherited or partial
        else:
            bound = atom.image(*(p.interval for p in args)) if atom.image else (
                atom.bounds() if atom.bounds and not atom.params else (-INF, INF))
            regularity = atom.regularity
            if all(p.depends == frozenset() for p in args):
                regularity = Regularity(0, 0, 0)
            found = _compose(regularity, args, bound)
            if node.atom in ("add", "subtract"):
                found = replace(found, parity=_sum_parity(args), lipschitz=args[0].lipschitz + args[1].lipschitz)
        found = _tidy(replace(found, depends=depends, assumes=tuple(dict.fromkeys(assumes))))
        rough = (inherited or Fault(node, self._at, self._why_rough(node, args))) if found.modulus == INF else None
        if found.exponent >= 2 and found.growth == INF:
            wild = wild or Fault(node, self._at, f"{node} outgrows exp(C |x|**r) for every r < 2")
        return _tidy(replace(found, rough=rough, partial=partial, wild=wild))

    def _why_rough(self, node: Call, args: Sequence[Profile]) -> str:
        atom = ATOMS[node.atom]
        if node.atom in COMPARISONS:
            return f"{node} jumps where its two sides are equal"
        if not atom.continuous and node.atom != "divide":
            return f"{atom.name} is discontinuous"
        if node.atom == "divide":
            return f"the denominator {node.args[1]} is not kept away from 0"
        if node.atom == "exp":
            return f"exp is not pseudo-Lipschitz where its argument {node.args[0]} is not bounded above"
        if node.atom in ("multiply", "add", "subtract"):
            return f"the growth of {node} is not bounded by a power"
        return (f"{atom.name} has no slope bounded by a power on the range {_interval(args[0].interval)} of "
                f"{node.args[0]}")

    def _params(self, node: Call) -> list[tuple[float, ...]] | None:
        """All values of an atom's parameters over their indices; None if there are too many."""
        numbers = [self._number(p) for p in node.params]
        if all(number is not None for number in numbers):
            return [tuple(number for number in numbers if number is not None)]
        names = {name for p in node.params for n in walk(p) for name in _index_names(n)}
        ranges = self.ranges
        axes = sorted(names)
        if math.prod(ranges[name][1] - ranges[name][0] for name in axes) > MAX_GRID:
            return None
        grid = np.stack([np.ravel(index_array(self.netsor, p, axes, ranges)) for p in node.params], axis=-1)
        unique = np.unique(grid, axis=0)
        return [tuple(map(float, row)) for row in unique] if len(unique) <= MAX_PARAMS else None

    def _unary(self, node: Call, inner: Profile) -> Profile:
        atom = ATOMS[node.atom]
        choices = self._params(node)
        if choices is None:
            return Profile(-INF, INF, INF, INF, INF, INF)
        result: Profile | None = None
        for params in choices:
            regularity = atom.regularity_on(inner.interval, *params)
            one = _tidy(_compose(regularity, [inner], atom.range_on(inner.interval, *params)))
            parity = 0
            if inner.parity == 1:
                parity = 1
            elif inner.parity == -1:
                parity = atom.parity
                if node.atom == "power" and params[0] == int(params[0]):
                    parity = -1 if params[0] % 2 else 1
                if node.atom == "clip" and params[0] == -params[1]:
                    parity = -1
            one = replace(one, parity=parity)
            result = one if result is None else _join(result, one)
        assert result is not None
        return result

    def _quotient(self, node: Call, args: list[Profile], partial: Fault | None) -> tuple[Profile, Fault | None, tuple[str, ...]]:
        top, bottom = args
        low, high = bottom.interval
        gap = low if low > 0 else -high if high < 0 else 0.0
        if gap == 0 and bottom.depends == {"average"}:
            return (replace(_product(top, replace(constant(-INF, INF), lipschitz=INF)), low=-INF, high=INF), partial,
                    (f"{node.args[1]} is not 0",))
        if gap == 0:
            fault = Fault(node, self._at, f"the denominator {node.args[1]} is not kept away from 0: its range is "
                                          f"{_interval(bottom.interval)}")
            wild = Profile(*ATOMS["divide"].image(top.interval, bottom.interval), INF, INF, INF, INF)  # type: ignore[misc]
            return wild, partial or fault, ()
        inverse = _tidy(replace(bottom, low=1 / high, high=1 / low, growth=0.0, exponent=0.0,
                                lipschitz=_times(bottom.lipschitz, 1 / gap**2)))
        return replace(_product(top, inverse), parity=_product_parity(top, bottom)), partial, ()

    def _where(self, node: Call) -> Profile:
        condition, first, second = node.args
        if self.closed(condition) is not None or not variables(condition):
            interval = self.closed(condition)
            if interval == (1.0, 1.0):
                return self.expression(first, self._at)
            if interval == (0.0, 0.0):
                return self.expression(second, self._at)
            yes, no = self._arguments((first, second))
            found = _join(yes, no)
            if yes.masked != no.masked:  # ranges and growth speak of the entries that are not masked
                kept = no if yes.masked else yes
                found = replace(kept, masked=True, parity=0)
            return found
        inside = self._branch(condition)
        before = self._known
        self._known = before | inside[0]
        yes = self.expression(first, self._at)
        self._known = before | inside[1]
        no = self.expression(second, self._at)
        self._known = before
        given = [self.expression(c, self._at) for c in condition.children]
        found = _join(yes, no)
        found = replace(found, parity=0, depends=found.depends.union(*(p.depends for p in given)))
        if self._glued(condition, first, second):
            return found
        jump = Fault(node, self._at, f"{node} switches where its condition changes; it is continuous only if both branches "
                                     "agree there")
        return _tidy(replace(found, modulus=INF if not found.constant else 0.0, lipschitz=INF, rough=found.rough or jump))

    def _threshold(self, condition: Expr) -> tuple[Expr, float, str] | None:
        """(u, c, atom) of a condition u < c and the like."""
        if not (isinstance(condition, Call) and condition.atom in COMPARISONS[:4]):
            return None
        left, right = condition.args
        c = self._number(right)
        if c is not None:
            return left, c, condition.atom
        c = self._number(left)
        flipped = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
        return (right, c, flipped[condition.atom]) if c is not None else None

    def _branch(self, condition: Expr) -> tuple[dict[Expr, Interval], dict[Expr, Interval]]:
        found = self._threshold(condition)
        if found is None:
            return {}, {}
        u, c, atom = found
        below, above = {u: (-INF, c)}, {u: (c, INF)}
        return (below, above) if atom.startswith("less") else (above, below)

    def _glued(self, condition: Expr, first: Expr, second: Expr) -> bool:
        """Whether both branches are functions of u alone and agree at the threshold u = c."""
        found = self._threshold(condition)
        if found is None:
            return False
        u, c, _ = found
        values = []
        for branch in (first, second):
            at = rebuild(branch, lambda node: Number(c) if node == u else None)
            value = self._number(at)
            if value is None:
                return False
            values.append(value)
        return abs(values[0] - values[1]) <= 1e-12 * max(1.0, abs(values[0]))

    def _masked(self, node: Call, args: Sequence[Profile], depends: frozenset[str]) -> Profile:
        if node.atom in ("exp", "maximum", "sigmoid", "relu", "tanh", "softplus"):
            kept = [replace(p, masked=False) for p in args]
            atom = ATOMS[node.atom]
            if node.atom == "maximum":
                found = _compose(atom.regularity, kept, (min(p.low for p in kept), max(p.high for p in kept)))
            else:
                found = self._unary(node, kept[0])
                found = replace(found, low=min(found.low, -1.0 if node.atom == "tanh" else 0.0))
            rough = next((p.rough for p in args if p.rough), None) or Fault(node, self._at, self._why_rough(node, args))
            return _tidy(replace(found, depends=depends, rough=rough, partial=next((p.partial for p in args if p.partial), None)))
        fault = Fault(node, self._at, f"{node.atom} meets the value -inf of a mask; only softmax, logsumexp, max and exp take it")
        return Profile(-INF, INF, INF, INF, INF, INF, depends=depends, rough=fault, wild=fault, partial=fault)

    def _reduce(self, node: Reduction) -> Profile:
        inner = self.expression(node.arg, self._at)
        count = math.prod(self.ranges[name][1] - self.ranges[name][0] for name in node.indices)
        reducer = REDUCTIONS[node.reducer]
        if inner.masked and reducer.linear:
            fault = Fault(node, self._at, f"{node.reducer} meets the value -inf of a mask")
            return Profile(-INF, INF, INF, INF, INF, INF, depends=inner.depends, rough=fault, wild=fault, partial=fault)
        found = replace(inner, masked=False)
        if node.reducer == "sum":
            return _tidy(replace(found, low=_times(inner.low, count), high=_times(inner.high, count),
                                 lipschitz=_times(inner.lipschitz, count)))
        if node.reducer in ("mean", "max"):
            return replace(found, parity=found.parity if node.reducer == "mean" or found.parity == 1 else 0)
        parity = 1 if inner.parity == 1 else 0
        if node.reducer == "logsumexp":
            return _tidy(replace(found, high=inner.high + math.log(count), parity=parity))
        if node.reducer == "softmax":
            wild = None
            return _tidy(replace(found, low=0.0, high=1.0, growth=0.0, exponent=0.0, lipschitz=inner.lipschitz / 2,
                                 parity=parity, wild=wild))
        fault = Fault(node, self._at, f"nothing is known of {node.reducer}")
        bound = reducer.bounds or (-INF, INF)
        return _tidy(Profile(*bound, INF, INF, INF, INF, depends=inner.depends, rough=fault, wild=fault, partial=inner.partial))

    # -- relations that composition cannot see ------------------------------------------------------------------------

    def _polynomial(self, expr: Expr) -> tuple[Expr | None, NDArray[np.float64]]:
        """Write an expression as a polynomial, lowest coefficient first, in one subexpression (None: a number)."""
        number = self._number(expr)
        if number is not None:
            return None, np.array([number])
        if isinstance(expr, Call):
            if expr.atom == "negative":
                base, c = self._polynomial(expr.args[0])
                return base, -c
            if expr.atom in ("add", "subtract", "multiply"):
                (u, a), (v, b) = self._polynomial(expr.args[0]), self._polynomial(expr.args[1])
                if u is None or v is None or u == v:
                    if expr.atom == "multiply":
                        product = np.convolve(a, b)
                        if len(product) <= 13:
                            return u if u is not None else v, product
                    else:
                        size = max(len(a), len(b))
                        a, b = np.pad(a, (0, size - len(a))), np.pad(b, (0, size - len(b)))
                        return u if u is not None else v, a + b if expr.atom == "add" else a - b
            if expr.atom == "divide":
                (u, a), (v, b) = self._polynomial(expr.args[0]), self._polynomial(expr.args[1])
                if v is None and b[0] != 0:
                    return u, a / b[0]
            if expr.atom == "power":
                exponent = self._number(expr.args[1])
                u, a = self._polynomial(expr.args[0])
                if exponent is not None and exponent in range(1, 13) and (len(a) - 1) * exponent <= 12:
                    result = a
                    for _ in range(int(exponent) - 1):
                        result = np.convolve(result, a)
                    return u, result
        return expr, np.array([0.0, 1.0])

    def _identity(self, node: Call) -> Profile | None:
        """Facts that hold by a relation between the arguments, e.g. u / (1 + u**2) is bounded."""
        if node.atom == "divide":
            top, bottom = node.args
            weighted = self._weighted(top, bottom)
            if weighted is not None:
                return weighted
            logistic = self._logistic(bottom)
            if logistic is not None:
                base, line = self._polynomial(bottom)
                over, top_line = self._polynomial(top)
                if over == base and len(top_line) == 2:
                    # (a + b E) / (c + d E) = b/d + (a/c - b/d) c / (c + d E)
                    (a, b), (c, d) = top_line, line
                    rise = Call("multiply", (Number(float(a - b * c / d)), logistic))
                    return self.expression(Call("add", (Number(float(b / d)), rise)), self._at)
                return self.expression(Call("multiply", (top, logistic)), self._at)
            if isinstance(bottom, Call) and bottom.atom == "sqrt":
                return self._ratio(top, bottom.args[0], 0.5)
            return self._ratio(top, bottom, 1.0)
        if node.atom == "log" and isinstance(node.args[0], Call | Reduction):
            arg = node.args[0]
            if isinstance(arg, Reduction) and arg.reducer == "sum" and isinstance(arg.arg, Call) and arg.arg.atom == "exp":
                return self._reduce(Reduction("logsumexp", arg.indices, arg.arg.args[0]))
            base, c = self._polynomial(arg)
            if len(c) == 2 and c[0] == c[1] == 1 and isinstance(base, Call) and base.atom == "exp":
                return self._call(Call("softplus", base.args))
        if node.atom == "sqrt":
            base, c = self._polynomial(node.args[0])
            if base is not None and len(c) == 3 and c[0] == c[1] == 0 < c[2]:
                return self._call(Call("multiply", (Number(math.sqrt(c[2])), Call("abs", (base,)))))
            return self._ratio(Number(1), node.args[0], -0.5)
        if node.atom == "power":
            exponent = self._number(node.args[1])
            if exponent is not None and exponent < 0:
                return self._ratio(Number(1), node.args[0], -exponent)
        if node.atom in ("multiply", "add", "subtract", "power"):
            base, c = self._polynomial(node)
            if base is not None and base != node and len(c) > 2:
                return self._ratio(node, Number(1), 1.0)
        if node.atom == "multiply":
            return self._switched(node)
        return None

    def _weighted(self, top: Expr, bottom: Expr) -> Profile | None:
        """exp(u_j) / sum_k exp(u_k), or a sum of such weights times anything: softmax written by hand."""
        if not (isinstance(bottom, Reduction) and bottom.reducer == "sum" and isinstance(bottom.arg, Call)
                and bottom.arg.atom == "exp"):
            return None
        if isinstance(top, Reduction) and top.reducer == "sum":
            for factor in _factors(top.arg):
                if self._same_up_to_indices(bottom.arg, factor, bottom.indices):
                    rest: Expr = Number(1)
                    for other in _factors(top.arg):
                        rest = rest if other is factor else Call("multiply", (rest, other))
                    return self._reduce(Reduction("sum", top.indices, Call("multiply", (Call("divide", (factor, bottom)), rest))))
            return None
        if isinstance(top, Call) and self._same_up_to_indices(bottom.arg, top, bottom.indices):
            return self._reduce(Reduction("softmax", bottom.indices, bottom.arg.args[0]))
        return None

    def _same_up_to_indices(self, summed: Expr, free: Expr, indices: Sequence[str]) -> bool:
        """Whether renaming the summed indices to others of the same range turns one expression into the other."""
        if summed == free:
            return True
        names = dict.fromkeys(name for node in walk(free) for name in _index_names(node))
        choices = [[other for other in names if self.ranges[other] == self.ranges[name]] for name in indices]
        if math.prod(map(len, choices)) > 100:
            return False
        for chosen in itertools.product(*choices):
            bound = {name: Affine(((other, 1),)) for name, other in zip(indices, chosen, strict=True)}
            try:
                if len(set(chosen)) == len(chosen) and self._substitute(summed, bound, dict(self.ranges), iter(())) == free:
                    return True
            except (_TooLarge, StopIteration):
                return False
        return False

    def _logistic(self, bottom: Expr) -> Expr | None:
        """1 / (c + d exp(v)), c and d positive, as a sigmoid."""
        base, coefficients = self._polynomial(bottom)
        if len(coefficients) != 2 or coefficients.min() <= 0 or not (isinstance(base, Call) and base.atom == "exp"):
            return None
        c, d = coefficients
        inner = Call("subtract", (Number(math.log(c / d)), base.args[0]))
        u, line = self._polynomial(inner)
        if u is not None and len(line) == 2 and line[0] == 0 and line[1] == 1:
            inner = u  # type: ignore[assignment]
        return Call("multiply", (Number(float(1 / c)), Call("sigmoid", (inner,))))

    def _ratio(self, top: Expr, bottom: Expr, power: float) -> Profile | None:
        """P(u) / Q(u)**power for polynomials with Q > 0 (or, for whole powers, without zeros) on the range of u."""
        (u, p), (v, q) = self._polynomial(top), self._polynomial(bottom)
        p, q = np.trim_zeros(p, "b"), np.trim_zeros(q, "b")
        base = u if u is not None else v
        if base is None or (u is not None and v is not None and u != v) or not len(p) or not len(q):
            return None
        if base in (top, bottom) and len(p) <= 2 and len(q) <= 2 and (u is None or v is None):
            return None  # composition does as well
        if isinstance(base, Call) and base in (Call("divide", (top, bottom)),):
            return None
        inner = self.expression(base, self._at)
        if inner.masked or inner.partial:
            return None
        low, high = inner.interval
        zeros = np.roots(q[::-1])
        margin = 1e-6 * (1 + np.abs(zeros))
        if ((np.abs(zeros.imag) < margin) & (zeros.real > low - margin) & (zeros.real < high + margin)).any():
            return None

        def value(x: float) -> float:
            numerator, denominator = np.polyval(p[::-1], x), np.polyval(q[::-1], x)
            if not power.is_integer() and denominator <= 0:
                return math.nan
            return float(numerator / denominator**power)

        degree = len(p) - 1 - power * (len(q) - 1)
        slope = _add(np.convolve(_derive(p), q), -power * np.convolve(p, _derive(q)))
        slope = np.trim_zeros(slope, "b")
        points = [float(r.real) for r in np.roots(slope[::-1])] if len(slope) > 1 else []
        points = [x for x in points if low <= x <= high] + [x for x in (low, high) if math.isfinite(x)]
        if not points:
            points = [min(max(0.0, low), high)]
        values = [value(x) for x in points]
        if not np.isfinite(values).all():
            return None
        for end in (low, high):
            if math.isinf(end):
                sign = math.copysign(1.0, p[-1]) * (math.copysign(1.0, q[-1]) if power.is_integer() and power % 2 else 1.0)
                if end < 0:
                    steps = len(p) - 1 + (power * (len(q) - 1) if power.is_integer() else 0)
                    sign *= -1.0 if steps % 2 else 1.0
                limit = sign * INF if degree > 0 else 0.0 if degree < 0 else sign * abs(p[-1]) / abs(q[-1]) ** power
                values.append(limit)
        slack = 1e-9 * max((abs(x) for x in values if math.isfinite(x)), default=0.0)
        bound = min(values) - slack, max(values) + slack
        if power == -0.5:  # a root is not negative
            bound = max(bound[0], 0.0), bound[1]
        unbounded = math.isinf(low) or math.isinf(high)
        growth = max(degree, 0.0) if unbounded else 0.0
        modulus = max(degree - 1, 0.0) if unbounded else 0.0
        found = _compose(Regularity(growth, modulus, INF), [inner], bound)
        return _tidy(replace(found, depends=inner.depends, assumes=inner.assumes))

    def _switched(self, node: Call) -> Profile | None:
        """P(u) s(u): slope of degree deg P - 1, because u**k s'(u) is bounded; bounded for a Gaussian factor.

        s is a product of sigmoid, tanh, erf of a u + b, or of 1 + such a function; or gaussian(a u + b), exp(-u**2).
        """
        polynomial: Expr = Number(1)
        switches: list[Expr] = []
        decays: list[Expr] = []
        for factor in _factors(node):
            base, c = self._polynomial(factor)
            if isinstance(base, Call) and base.atom in SWITCHES and len(c) == 2:
                switches.append(base.args[0])
            elif isinstance(base, Call) and base.atom == "gaussian" and len(c) == 2 and c[0] == 0:
                decays.append(base.args[0])
            elif isinstance(base, Call) and base.atom == "exp" and len(c) == 2 and c[0] == 0:
                _, q = self._polynomial(base.args[0])
                if not (len(q) == 3 and q[2] < 0):
                    return None
                decays.append(base.args[0])
            else:
                polynomial = factor if polynomial == Number(1) else Call("multiply", (polynomial, factor))
        if not switches and not decays:
            return None
        u, p = self._polynomial(polynomial)
        bases = {self._polynomial(arg)[0] for arg in (*switches, *decays)}
        if u is None or bases != {u} or any(len(self._polynomial(arg)[1]) != 2 for arg in switches):
            return None
        if any(len(self._polynomial(arg)[1]) < 2 or self._polynomial(arg)[1][-1] == 0 for arg in (*switches, *decays)):
            return None
        inner = self.expression(u, self._at)
        if inner.masked or inner.partial:
            return None
        degree = float(len(np.trim_zeros(p, "b")) - 1)
        regularity = Regularity(0, 0) if decays else Regularity(degree, max(degree - 1, 0.0))
        found = _compose(regularity, [inner], (-INF, INF))
        return _tidy(replace(found, depends=inner.depends, assumes=inner.assumes))

    # -- facts --------------------------------------------------------------------------------------------------------

    def fact(self, name: str, position: int) -> Fact:
        """'bounded', 'pseudo-Lipschitz' or 'controlled' of a statement's value: certified, refuted or neither."""
        profile = self.statement(position)
        source = {"bounded": "Sakai et al. 2025, Assumption 1", "pseudo-Lipschitz": "Sakai et al. 2025, Def. 2",
                  "controlled": "Yang 2019, Def. 5.3"}[name]
        holds = {"bounded": profile.bounded, "pseudo-Lipschitz": profile.pseudo_lipschitz,
                 "controlled": profile.controlled}[name]
        if holds:
            reason = {"bounded": f"range {_interval(profile.interval)}", "pseudo-Lipschitz": f"order {profile.order:g}",
                      "controlled": f"growth {profile.growth:g}" if profile.growth < INF
                      else f"exponent {profile.exponent:g}"}[name]
            return Fact(name, HOLDS, reason, source)
        fault = self.blame(name, position)
        witness = self.witness(name, position)
        return Fact(name, FAILS if witness else UNKNOWN, fault.reason, source, witness)

    def blame(self, name: str, position: int) -> Fault:
        """The smallest subexpression at fault for a property that a statement's value lacks."""
        profile = self.statement(position)
        if profile.partial is not None:
            return profile.partial
        if name == "pseudo-Lipschitz" and profile.rough is not None:
            return profile.rough
        if name == "controlled" and profile.wild is not None:
            return profile.wild
        return self._unbounded(position)

    def _unbounded(self, position: int) -> Fault:
        statement = self.netsor.body[position]
        if not isinstance(statement, Nonlin):
            return Fault(statement.target, position, f"{statement.target} is Gaussian in the limit, so not bounded")
        node, at = statement.expr, position
        for _ in range(200):
            if isinstance(node, Call) and node.atom in ("add", "subtract", "multiply", "negative", "minimum", "maximum"):
                inner = [arg for arg in node.arguments if not self.expression(arg, at).bounded]
            elif isinstance(node, Reduction):
                inner = [node.arg] if not self.expression(node.arg, at).bounded else []
            elif isinstance(node, Variable):
                definers = [d for d in self.structure.definers(at, node) if not self.statement(d).bounded]
                deeper = next((d for d in definers if isinstance(self.netsor.body[d], Nonlin) and d != at), None)
                if deeper is None:
                    return Fault(node, at, f"{node} is Gaussian in the limit, so not bounded")
                inner_statement = self.netsor.body[deeper]
                assert isinstance(inner_statement, Nonlin)
                node, at = inner_statement.expr, deeper
                continue
            else:
                break
            if not inner:
                break
            node = inner[0]
        if isinstance(node, Call):
            arguments = ", ".join(map(str, node.arguments))
            return Fault(node, at, f"{node.atom} is unbounded on the range of {arguments}")
        return Fault(node, at, f"{node} is not bounded")

    # -- witnesses ----------------------------------------------------------------------------------------------------

    def inline(self, expr: Expr, position: int) -> tuple[Expr, dict[str, Range]] | None:
        """Replace references to Nonlins by their definitions.

        Returns   the expression over G-vars, initial vectors, scores and averages, with the ranges of its (renamed)
                  reduction indices; None where a recurrence or the size forbids it
        """
        ranges: dict[str, Range] = dict(self.netsor.ranges)
        fresh = iter(range(10**6))

        def definition(node: Variable, at: int, depth: int) -> Expr | None:
            definers = self.structure.definers(at, node)
            if len(definers) != 1 or not isinstance(self.netsor.body[definers[0]], Nonlin):
                if any(isinstance(self.netsor.body[d], Nonlin) for d in definers):
                    raise _TooLarge
                return None
            inner = self.netsor.body[definers[0]]
            assert isinstance(inner, Nonlin)
            if depth > 40 or "" != "".join(self.netsor.families[node.name].boundaries) or self.structure.cyclic_at(definers[0]):
                raise _TooLarge
            slots = dict(zip([s.bare for s in inner.target.slots], node.slots, strict=True))
            bound = {k: v for k, v in slots.items() if k is not None}
            return go(self._substitute(inner.expr, bound, ranges, fresh), definers[0], depth + 1)

        def go(node: Expr, at: int, depth: int) -> Expr:
            result = rebuild(node, lambda n: definition(n, at, depth) if isinstance(n, Variable) else None)
            if sum(1 for _ in walk(result)) > MAX_NODES:
                raise _TooLarge
            return result

        try:
            return go(expr, position, 0), ranges
        except _TooLarge:
            return None

    def _substitute(self, expr: Expr, bound: dict[str, Affine], ranges: dict[str, Range], fresh: object) -> Expr:
        """Replace indices by affine forms; reduced indices get fresh names."""
        if isinstance(expr, IndexValue):
            return _affine_expr(bound[expr.name]) if expr.name in bound else expr
        if isinstance(expr, Constant | Variable):
            return replace(expr, slots=tuple(_affine_in(slot, bound) for slot in expr.slots))
        if isinstance(expr, Call):
            return Call(expr.atom, tuple(self._substitute(arg, bound, ranges, fresh) for arg in expr.args), expr.column)
        if isinstance(expr, Reduction):
            names = []
            inner = dict(bound)
            for name in expr.indices:
                if not expr.removes and name in bound:
                    if bound[name].bare is None:
                        raise _TooLarge
                    names.append(bound[name].bare or "")
                    continue
                if not expr.removes:
                    names.append(name)
                    continue
                new = f"{name}#{next(fresh)}"  # type: ignore[call-overload]
                ranges[new] = ranges[name]
                names.append(new)
                inner[name] = Affine(((new, 1),))
            return Reduction(expr.reducer, tuple(names), self._substitute(expr.arg, inner, ranges, fresh), expr.column)
        return expr

    @cached_property
    def _witnesses(self) -> dict[tuple[str, int], str]:
        return {}

    def witness(self, name: str, position: int) -> str:
        """Search for numbers that refute a property of a statement's value; '' if none are found."""
        key = (name, position)
        if key not in self._witnesses:
            self._witnesses[key] = self._search(name, position)
        return self._witnesses[key]

    def _search(self, name: str, position: int) -> str:
        statement = self.netsor.body[position]
        if not isinstance(statement, Nonlin):
            return f"{statement.target} is Gaussian" if name == "bounded" else ""
        found = self.inline(statement.expr, position)
        if found is None:
            return ""
        expr, ranges = found
        f = _Probe(self.netsor, expr, ranges)
        if not f.names or f.size > 40_000 or f.averages(self.structure):
            return ""
        for varied in (False, True):
            text = f.refute(name, varied)
            if text:
                return text
        return ""


class _TooLarge(Exception):
    pass


class _Probe:
    """An expression along lines x = t * direction through its arguments' space, for the search for witnesses."""

    def __init__(self, netsor: Netsor, expr: Expr, ranges: dict[str, Range]) -> None:
        self.netsor, self.expr = netsor, expr
        self.variables = variables(expr)
        self.names = sorted({v.name for v in self.variables})
        kept = {n for node in walk(expr) if isinstance(node, Reduction) for n in node.indices}
        self.ranges = {name: span if name in kept else (span[0], span[0] + 1) for name, span in ranges.items()}
        self.size = math.prod(self.ranges[name][1] - self.ranges[name][0] for name in kept)
        self.expr_numbers = [float(n.value) for n in walk(expr) if isinstance(n, Number) and math.isfinite(n.value)]

    def averages(self, structure: Structure) -> bool:
        return any(name in structure.averages for name in self.names)

    def __call__(self, t: NDArray[np.float64], varied: bool) -> NDArray[np.float64]:
        def variable(reference: Variable, ranges: object) -> Open:
            if not varied:
                return Open((BATCH,), t)
            total = Open((), np.asarray(float(1 + self.names.index(reference.name))))
            axes = list(dict.fromkeys(n for s in reference.slots for n in s.indices))
            phase = np.asarray(total.data).reshape((1,) * len(axes))
            for weight, slot in enumerate(reference.slots):
                value = affine_values(slot, self.ranges)
                shape = [value.data.shape[value.axes.index(n)] if n in value.axes else 1 for n in axes]
                order = [n for n in axes if n in value.axes]
                data = value.data.transpose([value.axes.index(n) for n in order]) if order else value.data
                phase = phase + (2.0 + weight) * data.reshape(shape)
            return Open((BATCH, *axes), t.reshape(-1, *(1,) * len(axes)) * np.cos(phase))

        try:
            result = evaluate(self.expr, Scope(self.netsor, self.ranges, variable))
        except (ProgramError, KeyError):
            return np.full(t.shape, np.nan)
        data = result.data
        if BATCH not in result.axes:
            return np.full(t.shape, float(np.ravel(data)[0]))
        return np.asarray(data[(slice(None), *(0,) * (len(result.axes) - 1))], dtype=float)

    def refute(self, name: str, varied: bool) -> str:
        """Text of a witness, or ''."""
        with np.errstate(all="ignore"):
            return self._refute(name, varied)

    def _refute(self, name: str, varied: bool) -> str:
        what = ", ".join(str(v) for v in self.variables[:2]) + (", ..." if len(self.variables) > 2 else "")
        where = f"along {what} = t" if len(self.variables) > 1 and not varied else (
            f"at {what} = t" if not varied else f"on a line through {what}")
        numbers = [x for c in self.expr_numbers for x in (c, -c)]
        grid = np.unique(np.array([0.0, *numbers, *np.linspace(-6, 6, 61), *(s * 10.0**k for k in (1, 2) for s in (1, -1))]))
        values = self(grid, varied)
        if np.isnan(values).any():
            return f"{where}: no real number at t = {grid[np.isnan(values)][0]:g}"
        for sign in (1.0, -1.0):
            if name == "bounded":
                t = sign * 10.0 ** np.arange(1, 7)
                v = np.abs(self(t, varied))
                steps = np.diff(v)
                if not np.isnan(v).any() and (np.isinf(v[-1]) or ((steps > 0).all() and (steps[1:] >= 0.5 * steps[:-1]).all())):
                    finite = int(np.flatnonzero(np.isfinite(v))[-1]) if np.isfinite(v).any() else 0
                    return f"{where}: |value| = {v[0]:.4g} at t = {t[0]:g}, {v[finite]:.4g} at t = {t[finite]:g}"
                continue
            t = sign * np.array([4.0, 8.0, 16.0, 32.0])
            # log |f| itself: local exponents of log|f| tell exp(|t|**r), those of |f| tell powers
            v = np.abs(self(t, varied))
            if np.isinf(values).any():
                return f"{where}: not finite at t = {grid[np.isinf(values)][0]:g}"
            logs = np.log(v)
            ratio = logs[1:] / logs[:-1]
            good = np.isfinite(logs) & (logs > 4)
            if name == "controlled":
                pairs = good[1:] & good[:-1]
                if pairs.any() and (ratio[pairs] > 3.9).all() and (pairs.sum() >= 1):
                    k = int(np.flatnonzero(pairs)[0])
                    return f"{where}: log|value| = {logs[k]:.4g} at t = {t[k]:g}, {logs[k + 1]:.4g} at t = {t[k + 1]:g}"
                continue
            t = sign * np.array([25.0, 50.0, 100.0, 200.0, 400.0])
            logs = np.log(np.abs(self(t, varied)))
            if np.isfinite(logs[:3]).all() and (np.diff(logs[np.isfinite(logs)]) / math.log(2) > [15, 30, 60, 120][
                    : int(np.isfinite(logs).sum()) - 1]).all():
                return f"{where}: |value| = {math.exp(min(logs[0], 700)):.3g} at t = {t[0]:g}, {math.exp(min(logs[1], 700)):.3g} at {t[1]:g}"
        return self._steep(grid, values, varied, where) if name == "pseudo-Lipschitz" else ""

    def _steep(self, grid: NDArray[np.float64], values: NDArray[np.float64], varied: bool, where: str) -> str:
        """Two points a tiny distance apart whose values are not: a jump, or an infinite slope."""
        slope = np.abs(np.diff(values)) / np.diff(grid)
        places = [x for x in grid if abs(x) <= 10]
        for k in np.argsort(slope)[::-1][:4]:
            a, b = grid[k], grid[k + 1]
            for _ in range(60):
                middle = (a + b) / 2
                left, centre, right = self(np.array([a, middle, b]), varied)
                if not (a < middle < b):
                    break
                a, b = (a, middle) if abs(centre - left) >= abs(right - centre) else (middle, b)
            if b - a < 1e-9:
                left, right = self(np.array([a, b]), varied)
                if abs(right - left) > 1e-3:
                    return f"{where}: value {left:.4g} at t = {a:.12g}, but {right:.4g} at t = {a:.12g} + {b - a:.1g}"
        steps = np.array([1e-4, 1e-6, 1e-8])
        for sign in (1.0, -1.0):
            points = np.array(places)
            here = self(points, varied)
            moved = np.stack([self(points + sign * h, varied) for h in steps])
            steep = np.abs(moved - here) / steps[:, None]
            bad = (steep[2] > 5 * steep[1]) & (steep[1] > 5 * steep[0]) & (np.abs(moved[2] - here) > 1e-6)
            if bad.any():
                k = int(np.flatnonzero(bad)[0])
                return (f"{where}: slope {steep[0][k]:.3g} between t = {points[k]:g} and a point 1e-4 away, "
                        f"{steep[2][k]:.3g} and 1e-8 away")
        return ""


def _index_names(node: Expr) -> tuple[str, ...]:
    if isinstance(node, IndexValue):
        return (node.name,)
    return tuple(n for s in node.slots for n in s.indices) if isinstance(node, Constant | Variable) else ()


def _same(a: Profile | None, b: Profile | None) -> bool:
    assert a is not None
    assert b is not None
    return (a.low, a.high, a.growth, a.modulus, a.exponent, a.lipschitz, a.parity, a.partial is None, a.depends) == (
        b.low, b.high, b.growth, b.modulus, b.exponent, b.lipschitz, b.parity, b.partial is None, b.depends)


def _removed(expr: Expr, name: str) -> bool:
    """Whether an index disappears inside a closed expression."""
    if isinstance(expr, Reduction) and name in expr.indices:
        return expr.removes
    if isinstance(expr, IndexValue):
        return expr.name != name
    if isinstance(expr, Constant):
        return not any(name in slot.indices for slot in expr.slots)
    return all(_removed(child, name) for child in expr.children)


def _product_parity(a: Profile, b: Profile) -> int:
    return a.parity * b.parity


def _sum_parity(args: Sequence[Profile]) -> int:
    kept = [p.parity for p in args if not (p.constant and p.low == 0)]
    return kept[0] if kept and all(x == kept[0] for x in kept) else 0 if kept else 1


def _product(a: Profile, b: Profile) -> Profile:
    """f g: growth adds; modulus max(g1 + m2, m1 + g2), where a bounded factor has growth 0.

    Source    Sakai et al. 2025, Lemma 7
    """
    image = ATOMS["multiply"].image
    assert image is not None
    low, high = image(a.interval, b.interval)
    growth = 0.0 if (a.constant and a.low == 0) or (b.constant and b.low == 0) else a.growth + b.growth
    # a factor that does not move (a constant, an average) adds no modulus
    parts = [g + m for g, m, moving in ((a.growth, b.modulus, b.depends), (b.growth, a.modulus, a.depends))
             if moving - {"average"}]
    reach = [max(abs(p.low), abs(p.high)) for p in (a, b)]
    return Profile(low, high, growth, max(parts, default=0.0), _times(reach[0], b.lipschitz) + _times(reach[1], a.lipschitz),
                   max(a.exponent, b.exponent), _product_parity(a, b))


def _factors(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call) and expr.atom == "multiply":
        return [*_factors(expr.args[0]), *_factors(expr.args[1])]
    if isinstance(expr, Call) and expr.atom == "negative":
        return [Number(-1), *_factors(expr.args[0])]
    return [expr]


def _derive(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return p[1:] * np.arange(1, len(p)) if len(p) > 1 else np.zeros(1)


def _add(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    size = max(len(a), len(b))
    return np.pad(a, (0, size - len(a))) + np.pad(b, (0, size - len(b)))


def _affine_in(slot: Affine, bound: dict[str, Affine]) -> Affine:
    terms: dict[str, int] = {}
    offset = slot.offset
    for name, coefficient in slot.terms:
        inner = bound.get(name, Affine(((name, 1),)))
        offset += coefficient * inner.offset
        for other, factor in inner.terms:
            terms[other] = terms.get(other, 0) + coefficient * factor
    return Affine(tuple((name, c) for name, c in terms.items() if c), offset)


def _affine_expr(slot: Affine) -> Expr:
    result: Expr = Number(slot.offset)
    for name, coefficient in slot.terms:
        term: Expr = IndexValue(name)
        term = term if coefficient == 1 else Call("multiply", (Number(coefficient), term))
        result = term if isinstance(result, Number) and result.value == 0 else Call("add", (result, term))
    return result


def _interval(interval: Interval) -> str:
    low, high = interval
    left, right = "(" if low == -INF else "[", ")" if high == INF else "]"
    return f"{left}{low:g}, {high:g}{right}"

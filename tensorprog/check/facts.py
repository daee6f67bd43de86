"""What is certain of each expression, by composition: range, growth, modulus.

|f(x)| <= K (1 + |x|**growth);  |f(x) - f(y)| <= K |x - y| (1 + |x|**modulus + |y|**modulus);
|f(x)| <= exp(C |x|**exponent).

A property holds, or it is not shown; what is not shown fails where `refutation` finds points that refute it, or where
no number is left.

Source    Sakai et al. 2025, Def. 2, Prop. 6, Lemma 7; Yang 2019, Def. 5.3
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Grid
from tensorprog.check.graph import Structure
from tensorprog.check.overlaps import FAILS, HOLDS, UNKNOWN, Verdict, crossed
from tensorprog.check.refutation import Unread, refuted, value
from tensorprog.language.atoms import ATOMS, REDUCTIONS, Atom, Interval, Regularity
from tensorprog.language.evaluate import Open, index_values
from tensorprog.language.expr import (
    LOGICAL,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    free_indices,
    index_names,
    rebuild,
    variables,
    walk,
    with_stars,
)
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin

INF = math.inf
ALL = (-INF, INF)
MOST = 1_000_000  # values of indices at which an expression of constants is evaluated
ROUNDING = 1e-15  # of one operation on numbers, relative to the largest of them; ten are counted at most
TINY = 1e-13  # what may be 0 but for rounding
FEW = 64  # values of a parameter that are looked at one by one
ROUNDS, SETTLING = 12, 3  # of a recurrence, and those after which ranges that still grow are given up
BELOW_TWO = 2 - 1e-9
ORDERED = ("less", "less_equal", "greater", "greater_equal")

JUMPS = ("sign", "step")  # for the reason that is given: `refuted` decides, by numbers

Need = tuple[str, Expr]


@dataclass(frozen=True)
class Fault:
    """The smallest part at which a property is lost; `certain` where no point is needed to see that it is."""

    expr: Expr
    position: int
    reason: str
    certain: bool = False


@dataclass(frozen=True)
class Facts:
    """What is certain of a function of Gaussian vectors, scores and averages; the defaults are those of one of them.

    `growth`, `modulus`, `exponent`: inf where none is known.  `depends`: the kinds of what it is a function of.
    `masked`: it is -inf at some indices.  `rough`, `wild`, `partial`: why no modulus and no growth are known, and why
    it may be no real number.  `assumes`: what the limits of averages must satisfy.
    """

    low: float = -INF
    high: float = INF
    growth: float = 1.0
    modulus: float = 0.0
    exponent: float = 0.0
    depends: frozenset[str] = frozenset({"vector"})
    masked: bool = False
    rough: Fault | None = None
    wild: Fault | None = None
    partial: Fault | None = None
    assumes: tuple[Need, ...] = ()

    @property
    def interval(self) -> Interval:
        """The range lies in it."""
        return self.low, self.high

    @property
    def constant(self) -> bool:
        """Whether it is one number."""
        return self.low == self.high and not self.masked

    @property
    def real(self) -> bool:
        """Whether it is a real number everywhere."""
        return self.partial is None and not self.masked

    @property
    def bounded(self) -> bool:
        """Whether it is bounded."""
        return self.growth == 0 and self.real

    @property
    def averages(self) -> bool:
        """Whether it is a function of averages alone, so a number in the limit."""
        return self.depends == {"average"}


PROPERTIES: Mapping[str, Callable[[Facts], bool]] = {
    "pseudo-Lipschitz": lambda f: f.modulus < INF and f.real,
    "controlled": lambda f: (f.growth < INF or f.exponent < BELOW_TWO) and f.real,
}


def shown(interval: Interval) -> str:
    """An interval as text."""
    low, high = interval
    return f"{'(' if low == -INF else '['}{low:g}, {high:g}{')' if high == INF else ']'}"


# -- rules of composition ----------------------------------------------------------------------------------------------


def _number(low: float, high: float, masked: bool = False) -> Facts:
    return Facts(low, high, 0.0, 0.0, depends=frozenset(), masked=masked)


def _tidy(f: Facts, **changes: Any) -> Facts:
    """The facts with changes, and with what follows from them."""
    f = replace(f, **changes)
    if math.isnan(f.low) or math.isnan(f.high) or f.low > f.high:
        f = replace(f, low=-INF, high=INF)
    growth = 0.0 if f.low > -INF and f.high < INF else min(f.growth, f.modulus + 1)
    rough = None if f.modulus < INF else f.rough
    wild = None if growth < INF or f.exponent < BELOW_TWO else f.wild
    return replace(f, growth=growth, exponent=0.0 if growth < INF else f.exponent, rough=rough, wild=wild)


def _joint(parts: Sequence[Facts]) -> dict[str, Any]:
    """What several functions bring to one that is made of them; a value that is no number stays none."""
    partial = sorted((p.partial for p in parts if p.partial is not None), key=lambda fault: not fault.certain)
    return {
        "depends": frozenset[str]().union(*(p.depends for p in parts)),
        "partial": next(iter(partial), None),
        "rough": next((p.rough for p in parts if p.rough is not None), None),
        "wild": next((p.wild for p in parts if p.wild is not None), None),
        "assumes": tuple(dict.fromkeys(need for p in parts for need in p.assumes)),
    }


def _either(*parts: Facts) -> Facts:
    """What holds of all."""
    low, high = min(p.low for p in parts), max(p.high for p in parts)
    growth, modulus, exponent = (max(getattr(p, key) for p in parts) for key in ("growth", "modulus", "exponent"))
    found = Facts(low, high, growth, modulus, exponent, masked=any(p.masked for p in parts))
    return _tidy(found, **_joint(parts))


def _composed(outer: Regularity, parts: Sequence[Facts], low: float, high: float) -> Facts:
    """f(g1, g2, ...): growth gf gg, modulus mf gg + mg."""
    growth, modulus, exponent = (max(getattr(p, key) for p in parts) for key in ("growth", "modulus", "exponent"))
    if outer.growth < INF:
        wild = exponent if outer.growth else 0.0
    else:
        wild = _times(outer.exponent, growth)
    flat = not outer.growth or (not growth and min(outer.growth, outer.exponent) < INF)
    rise = 0.0 if flat else outer.growth * growth if growth else INF
    total = INF if INF in (modulus, outer.modulus) else _times(outer.modulus, growth) + modulus
    return _tidy(Facts(low, high, rise, total, wild), **_joint(parts))


def _times(a: float, b: float) -> float:
    return 0.0 if 0 in (a, b) else a * b


def _product(a: Facts, b: Facts, same: bool = False) -> Facts:
    """f g: growth adds; modulus max(g1 + m2, m1 + g2)."""
    ends = [_times(x, y) for x in a.interval for y in b.interval]
    moves = [g + m for g, m, d in ((a.growth, b.modulus, b), (b.growth, a.modulus, a)) if d.depends - {"average"}]
    growth = 0.0 if any(p.constant and p.low == 0 for p in (a, b)) else a.growth + b.growth
    low, modulus = max(min(ends), 0.0) if same else min(ends), max(moves, default=0.0)
    return _tidy(Facts(low, max(ends), growth, modulus, max(a.exponent, b.exponent)), **_joint((a, b)))


def _put(expr: Expr, part: Expr, to: Expr) -> Expr:
    """The expression where a part has a value; softmaxes over the part's indices read other members, and stay."""
    own = set(free_indices(part))

    def change(node: Expr) -> Expr | None:
        if node == part:
            return to
        return node if isinstance(node, Reduction) and own.intersection(node.indices) else None

    return rebuild(expr, change)


# -- the facts of a program --------------------------------------------------------------------------------------------


class Calculus:
    """The facts of all statements of a program."""

    def __init__(self, netsor: Netsor) -> None:
        self.netsor, self.structure = netsor, Structure.of(netsor)
        self.ranges = netsor.ranges
        self.statements: dict[int, Facts] = {}  # by position, as functions of MatMul outputs, scores and averages
        self._closed: dict[Expr, tuple[float, float, bool] | None] = {}
        for p, s in enumerate(netsor.body):
            match s:
                case MatMul():
                    self.statements[p] = Facts()
                case Dot():
                    low = 0.0 if s.left == s.right and s.scale == "1/n" else -INF
                    number = replace(_number(low, INF), depends=frozenset({"average"}))
                    random = s.scale == "n**-0.5" or p in self.structure.random
                    kind = "given average" if p in self.structure.converging else "score"
                    self.statements[p] = Facts(low, depends=frozenset({kind})) if random else number
        for group in self.structure.groups:
            if group[0] not in self.statements:
                self._group(group)

    def _group(self, group: Sequence[int]) -> None:
        """The facts of a Nonlin, or of the Nonlins of a recurrence, round by round until they stay."""
        loop, nonlins = group[0] in self.structure.cyclic, {p: self.netsor.body[p] for p in group}
        for rounds in range(ROUNDS if loop else 1):
            before = {p: self.statements.get(p) for p in group}
            for p, statement in nonlins.items():
                assert isinstance(statement, Nonlin)
                old, new = before[p], self.expression(statement.expr, p)
                new = new if old is None else _either(old, new)
                if old is not None and rounds >= SETTLING:
                    low, high = old.low if new.low >= old.low else -INF, old.high if new.high <= old.high else INF
                    new = _tidy(new, low=low, high=high)
                self.statements[p] = new
            if not loop or before == {p: self.statements[p] for p in group}:
                return
        for p, statement in nonlins.items():
            lost = self._unknown(statement.target, p, "the recurrence does not settle", (self.statements[p],))
            self.statements[p] = replace(lost, partial=None)

    def vector(self, reference: Variable, position: int) -> Facts:
        """Facts of what a reference in a statement reads."""
        initial = self.structure.initial.get(reference.name)
        if initial is not None:
            mean = initial.mean if initial.cov == Number(0) else None
            still = self.closed(mean) if isinstance(mean, Expr) else None
            found = _tidy(Facts(*((0.0, 1.0) if initial.grid else still or ALL)))
        else:
            definers = self.structure.definers(position, reference)
            if not definers and reference not in self.netsor.body[position].references:
                definers = self.netsor.families[reference.name].statements
            found = _either(*([self.statements[d] for d in definers if d in self.statements] or [_number(0.0, 0.0)]))
        beyond = "zero" in crossed(self.netsor, reference, self.ranges)
        return _either(found, _number(0.0, 0.0)) if beyond else found

    # -- expressions of constants and indices --------------------------------------------------------------------------

    def closed(self, expr: Expr) -> Interval | None:
        """Interval of an expression of constants and indices; None for others, and where a value is not finite."""
        span = self._values(expr)
        return None if span is None or span[2] else span[:2]

    def _values(self, expr: Expr) -> tuple[float, float, bool] | None:
        """The least and the largest finite value, and whether there is a mask besides."""
        if expr not in self._closed:
            values, self._closed[expr] = self._grid(expr), None
            seen = values[values != -INF]
            if seen.size and np.isfinite(seen).all():
                low, high = float(seen.min()), float(seen.max())
                exact = not expr.children or (low.is_integer() and high.is_integer())
                nodes = list(walk(expr))
                most = max((abs(n.value) for n in nodes if isinstance(n, Number)), default=0.0)
                slack = 0.0 if exact else ROUNDING * min(len(nodes), 10) * max(abs(low), abs(high), most)
                self._closed[expr] = low - slack, high + slack, len(seen) < values.size
        return self._closed[expr]

    def _grid(self, expr: Expr) -> NDArray[np.float64]:
        """The values of an expression of constants and indices; none of others, and where there are too many."""
        nodes = list(walk(expr))
        if any(isinstance(n, Variable) for n in nodes) or self._size({m for n in nodes for m in index_names(n)}) > MOST:
            return np.empty(0)
        return np.atleast_1d(np.asarray(index_values(self.netsor, expr).data, dtype=float))

    def _size(self, names: Collection[str]) -> int:
        spans = (self.ranges[name.rstrip("*")] for name in names)
        return math.prod(stop - start for start, stop in spans)

    # -- the walk ------------------------------------------------------------------------------------------------------

    def expression(self, expr: Expr, position: int) -> Facts:
        """Facts of an expression that stands in a statement."""
        found = self._node(expr, position)
        steep = found.modulus == INF and found.growth < INF and found.real
        calls = (ATOMS[node.atom] for node in walk(expr) if isinstance(node, Call))
        if steep and found.depends == {"given average"} and all(a.continuous or a.name == "divide" for a in calls):
            found = _tidy(found, modulus=0.0)  # averages converge given the scores, and so does what is continuous
        if found.averages and (found.growth or found.modulus or found.partial):
            need = f"{expr} is finite and smooth at the limiting value of the averages", expr
            number = _number(*found.interval, found.masked)
            found = replace(number, depends=found.depends, assumes=(*found.assumes, need))
        return found

    def _node(self, expr: Expr, at: int) -> Facts:
        match expr:
            case Variable():
                return self.vector(expr, at)
            case Number(value) if value == -INF:
                return _number(-INF, -INF, masked=True)
            case _ if (span := self._values(expr)) is not None:
                return _number(*span)
            case Reduction():
                return self._reduction(expr, at)
            case Call("where"):
                return self._where(expr, at)
            case Call():
                args = [self.expression(arg, at) for arg in expr.arguments]
                return self._masked(expr, at, args) if any(p.masked for p in args) else self._call(expr, at, args)
        return self._unknown(expr, at, "it is no finite number", certain=True)

    def _unknown(self, expr: Expr, at: int, why: str, parts: Sequence[Facts] = (), certain: bool = False) -> Facts:
        """An expression that may be no real number."""
        fault, joint = Fault(expr, at, why, certain), _joint(parts)
        partial = joint["partial"]
        kept = partial is not None and (partial.certain or not certain)
        faults = {"partial": partial if kept else fault, "rough": fault, "wild": fault}
        return Facts(-INF, INF, INF, INF, INF, **(joint | faults))

    def _call(self, expr: Call, at: int, args: Sequence[Facts]) -> Facts:
        atom = ATOMS[expr.atom]
        match expr.atom:
            case "multiply":
                found = _product(args[0], args[1], expr.args[0] == expr.args[1])
            case "divide":
                found = self._quotient(expr, at, *args)
            case _ if atom.arity == 1:
                found = self._function(expr, at, args[0], atom)
            case _:
                low, high = atom.image(*(p.interval for p in args)) if atom.image else ALL
                numbers = not any(p.depends for p in args)
                found = _composed(Regularity(0, 0, 0) if numbers else atom.regularity, args, low, high)
        if found.modulus == INF and found.rough is None:
            why = f"{atom.name} is discontinuous" if atom.name in JUMPS else f"{expr} jumps, or is too steep"
            found = replace(found, rough=Fault(expr, at, why))
        if found.growth == INF and found.exponent >= BELOW_TWO and found.wild is None:
            found = replace(found, wild=Fault(expr, at, f"{expr} outgrows exp(C |x|**r) for every r < 2"))
        return found

    def _function(self, expr: Call, at: int, inner: Facts, atom: Atom) -> Facts:
        choices = [self._parameter(p) for p in expr.params]
        if any(not values for values in choices):
            return self._unknown(expr, at, "its parameters are no finite numbers", (inner,), certain=True)
        results = []
        for params in itertools.product(*choices):  # functions are monotone in their parameters, or have one
            regularity = atom.regularity_on(inner.interval, *params)
            low, high = atom.range_on(inner.interval, *params)
            if low == INF or high == -INF:
                return self._unknown(expr, at, "it is infinite", (inner,), certain=True)
            found = _composed(regularity, [inner], low, high)
            least, most = atom.domain
            if (regularity.exponent == INF and not atom.declared) or inner.low < least or inner.high > most:
                why = f"{expr} is not a finite real number everywhere on {shown(inner.interval)}"
                found = replace(found, partial=found.partial or Fault(expr, at, why))
            results.append(found)
        return functools.reduce(_either, results)

    def _parameter(self, param: Expr) -> set[float]:
        """The values of a parameter, or the least and the largest if they are many; none if it is no number."""
        if isinstance(param, Number):
            return {float(param.value)}
        span = self.closed(param)
        values = set(np.round(self._grid(param), 14).ravel().tolist()) if span else set()
        return values if span is None or len(values) <= FEW else set(span)

    def _quotient(self, expr: Call, at: int, top: Facts, bottom: Facts) -> Facts:
        under = expr.args[1]
        inverse = Call("divide", (Number(1), under))
        if max(bottom.low, -bottom.high) > TINY:
            low, high = (1 / x if math.isfinite(x) else 0.0 for x in (bottom.high, bottom.low))
            weak = _joint((bottom,)) | {"low": low, "high": high}
            return _product(top, replace(bottom, growth=0.0, exponent=0.0, **weak))
        span = None if bottom.depends else self.closed(inverse)  # numbers of either sign
        if span and max(map(abs, span)) * TINY < 1:
            return _product(top, _number(*span))
        if bottom.averages:
            need = f"{under} is not 0 at the limiting value of the averages", inverse
            free = replace(_number(-INF, INF), depends=bottom.depends, assumes=(*bottom.assumes, need))
            return _tidy(_product(top, free), low=-INF, high=INF)
        why = f"the denominator {under} is not kept away from 0: its range is {shown(bottom.interval)}"
        return self._unknown(expr, at, why, (top, bottom), certain=bottom.constant and not bottom.low)

    def _masked(self, expr: Call, at: int, args: Sequence[Facts]) -> Facts:
        """A function of something that is -inf at some indices."""
        plain = [replace(p, masked=False) for p in args]
        found = self._call(expr, at, plain)
        other = args[-1] if args[0].masked else args[0]
        positive = not other.masked and not other.depends and other.low > 0
        match expr.atom:
            case "exp" | "sigmoid" | "relu" | "softplus":
                return _tidy(found, low=min(found.low, 0.0))
            case "maximum":
                return replace(found, masked=all(p.masked for p in args), low=min(p.low for p in plain))
            case "add":
                return replace(found, masked=True)
            case "subtract" if not args[1].masked:
                return replace(found, masked=True)
            case "multiply" | "divide" if positive and (expr.atom == "multiply" or args[0].masked):
                return replace(found, masked=True)
        return self._unknown(expr, at, f"{expr.atom} meets the value -inf of a mask", args, certain=True)

    def _reduction(self, expr: Reduction, at: int) -> Facts:
        inner = self.expression(expr.arg, at)
        count = self._size(expr.indices)
        if inner.masked and REDUCTIONS[expr.reducer].linear:
            return self._unknown(expr, at, f"{expr.reducer} meets the value -inf of a mask", (inner,), certain=True)
        if inner.masked and self._emptied(expr, at):
            return self._unknown(expr, at, f"{expr} may be masked at all values of its index", (inner,), certain=True)
        found = replace(inner, masked=False)
        match expr.reducer:
            case "sum":
                return _tidy(found, low=_times(inner.low, count), high=_times(inner.high, count))
            case "logsumexp":
                return _tidy(found, high=inner.high + math.log(count) * (1 + ROUNDING))
            case "softmax":
                return _tidy(found, low=0.0, high=1.0, growth=0.0, wild=None, exponent=0.0)
        return found

    def _emptied(self, expr: Reduction, at: int) -> bool:
        """Whether masks leave nothing to reduce for some index: with a number in the place of all that is random."""
        if self._size({name for node in walk(expr) for name in index_names(node)}) > MOST:
            return False
        try:
            leaf = Open((), np.asarray(0.5))
            found = value(self.structure, expr, at, with_stars(self.ranges), lambda *_: leaf)
        except Unread:
            return False
        return not np.isfinite(found.data).all()

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _where(self, expr: Call, at: int) -> Facts:
        condition, yes, no = expr.args
        if not variables(condition):
            span = self.closed(condition)
            if span in ((1.0, 1.0), (0.0, 0.0)):
                return self.expression(yes if span[0] else no, at)
            branches = [self.expression(branch, at) for branch in (yes, no)]
            seen = [p for p in branches if p.high > -INF]
            return replace(_either(*seen), masked=any(p.masked for p in branches)) if seen else branches[0]
        given, *branches = (self.expression(part, at) for part in expr.args)
        found = replace(_either(*branches), **_joint((*branches, replace(given, rough=None, wild=None))))
        if any(p.masked for p in branches):
            return self._unknown(expr, at, f"{expr} is masked under a condition that is random", branches, certain=True)
        if found.partial is not None and given.partial is None:
            found = replace(found, partial=replace(found.partial, certain=False))  # it may be a branch never taken
        if given.averages or found.constant or self._meets(condition, yes, no):
            return found
        return _tidy(found, modulus=INF, rough=Fault(expr, at, f"{expr} switches where its condition changes"))

    def _meets(self, condition: Expr, yes: Expr, no: Expr) -> bool:
        """Whether both branches are equal wherever the sides of a comparison are."""
        if isinstance(condition, Call) and condition.atom in LOGICAL:
            return all(self._meets(part, yes, no) for part in condition.args if variables(part))
        if not (isinstance(condition, Call) and condition.atom in ORDERED):
            return False
        u, c = condition.args if variables(condition.args[0]) else condition.args[::-1]
        if self.closed(c) is None:
            return False
        places = [(u, c)]
        if isinstance(u, Call) and u.atom == "abs":
            places = [(u.args[0], c), (u.args[0], Call("negative", (c,)))]
        for place in places:
            one, two = (self._values(_put(branch, *place)) for branch in (yes, no))
            if one is None or two is None or one[1] < two[0] or two[1] < one[0]:
                return False
        return True

    # -- what the rules ask --------------------------------------------------------------------------------------------

    def verdict(self, name: str, position: int) -> Verdict:
        """Whether a statement's value has one of the `PROPERTIES`."""
        found = self.statements[position]
        if PROPERTIES[name](found):
            return HOLDS
        if found.masked or self.blame(name, position).certain:
            return FAILS
        if not isinstance(self.netsor.body[position], Nonlin):
            return UNKNOWN
        fails = refuted(self.structure, position, self._spread, name == "pseudo-Lipschitz", found.partial is None)
        return FAILS if fails else UNKNOWN

    def _spread(self, reference: Variable, position: int) -> tuple[float, float, bool]:
        """The range of what a reference reads, and whether it is a number in the limit."""
        found, initial = self.vector(reference, position), self.structure.initial.get(reference.name)
        if initial is not None and initial.cov == Number(0) and not found.constant and not initial.grid:
            raise Unread
        return *found.interval, found.averages

    def blame(self, name: str, position: int) -> Fault:
        """The smallest part at fault for a property that a statement's value lacks."""
        found, statement = self.statements[position], self.netsor.body[position]
        if found.partial is not None:
            return found.partial
        if found.masked:
            return Fault(statement.target, position, "the value is -inf where it is masked", True)
        fault = found.rough if name == "pseudo-Lipschitz" else found.wild
        return fault or Fault(statement.target, position, "nothing is known of it")


# -- as a table --------------------------------------------------------------------------------------------------------


def facts_table(netsor: Netsor) -> list[dict[str, Any]]:
    """`statement`, `range`, `growth` and `order` of each, as a function of MatMul outputs, scores and averages.

    inf where nothing is known, or it may be no real number; pseudo-Lipschitz of order modulus + 1, as in the papers.
    """
    calculus = Calculus(netsor)
    found = [(s, calculus.statements[position]) for position, s in enumerate(netsor.body)]
    known = [(s, facts if facts.real else Facts(growth=INF, modulus=INF)) for s, facts in found]
    return [
        {"statement": str(s.target), "range": f.interval, "growth": f.growth, "order": f.modulus + 1} for s, f in known
    ]


def facts_grid(netsor: Netsor) -> Grid:
    """What is certain of each statement."""
    rows = facts_table(netsor)
    cells = tuple((row["statement"], shown(row["range"]), f"{row['growth']:g}", f"{row['order']:g}") for row in rows)
    note = "as functions of G-vars, initial vectors, scores and averages; order: pseudo-Lipschitz"
    return Grid("", ("statement", "range", "growth", "order"), cells, note, text_columns=(0, 1))

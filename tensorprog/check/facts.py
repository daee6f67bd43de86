"""What is certain of each expression, by composition: range, growth, modulus.

|f(x)| <= K (1 + |x|**growth);  |f(x) - f(y)| <= K |x - y| (1 + |x|**modulus + |y|**modulus);
|f(x)| <= exp(C |x|**exponent).

A property holds, fails, or is not shown.  It fails where a part of an expression is sure not to have it and nothing
around that part can make up for it; where parts read the same vectors, as in exp(u) / (1 + exp(u)), they might.

Source    Sakai et al. 2025, Def. 2, Prop. 6, Lemma 7; Yang 2019, Def. 5.3
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.graph import Structure
from tensorprog.check.overlaps import crossed
from tensorprog.language.atoms import ATOMS, REDUCTIONS, Atom, Interval, Regularity
from tensorprog.language.errors import ProgramError
from tensorprog.language.evaluate import Open, Scope, evaluate
from tensorprog.language.expr import (
    LOGICAL,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    fold,
    free_indices,
    index_names,
    rebuild,
    substitute,
    variables,
    walk,
)
from tensorprog.language.facts import FAILS, HOLDS, UNKNOWN, Verdict
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin, Range
from tensorprog.language.recognised import recognised

__all__ = ["JUMPS", "PROPERTIES", "SOURCES", "Calculus", "Facts", "Fault", "shown"]

INF = math.inf
ALL = (-INF, INF)
MOST = 1_000_000  # values of indices at which an expression of constants is evaluated
ROUNDING = 4e-15  # of an expression of numbers, relative to the largest of them
LEAST, LARGEST = 1e-3, 100.0  # size of numbers in functions that are recognised by their values
TINY = 1e-15  # what may be 0 but for rounding
FEW = 64  # values of a parameter that are looked at one by one
DEEPEST = 10  # definitions that are followed to find what masks hide; beyond, runs refuse rows without an entry
ROUNDS, SETTLING = 12, 3  # of a recurrence, and those after which ranges that still grow are given up
BELOW_TWO = 2 - 1e-9
BELOW = {"less": True, "less_equal": True, "greater": False, "greater_equal": False}
FLAT = ("relu", "clip", "abs", "power", "sign", "step", "sin", "cos")  # their ranges are reached at finite arguments

JUMPS = ("sign", "step")
LINEAR = ("add", "subtract", "multiply", "negative", "minimum", "maximum", "divide")  # blame looks through these

Known = Mapping[Expr, Interval]
Need = tuple[str, Expr]


@dataclass(frozen=True)
class Fault:
    """The smallest part at which a property is lost; `certain` if nothing that stands around it makes up for that."""

    expr: Expr
    position: int
    reason: str
    certain: bool = False
    jump: bool = False  # which no function with an inverse takes back


@dataclass(frozen=True)
class Facts:
    """What is certain of a function of Gaussian vectors, scores and averages; the defaults are those of one of them.

    `growth`, `modulus`, `exponent`: inf where none is known.  `sources`: what it is a function of, as kinds with names.
    `masked`: it is -inf at some indices.  `rough`, `wild`, `partial`: why no modulus and no growth are known, and why
    it may be no real number.  `assumes`: what the limits of averages must satisfy.  `attained`: 2 if the range is
    reached, 1 if that is so but for its ends, 0 if it may be too wide.
    """

    low: float = -INF
    high: float = INF
    growth: float = 1.0
    modulus: float = 0.0
    exponent: float = 0.0
    sources: frozenset[tuple[str, str]] = frozenset()
    masked: bool = False
    rough: Fault | None = None
    wild: Fault | None = None
    partial: Fault | None = None
    assumes: tuple[Need, ...] = ()
    attained: int = 2

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
    def pseudo_lipschitz(self) -> bool:
        """Whether it is pseudo-Lipschitz (Sakai et al. 2025, Def. 2)."""
        return self.modulus < INF and self.real

    @property
    def controlled(self) -> bool:
        """Whether it is controlled (Yang 2019, Def. 5.3)."""
        return (self.growth < INF or self.exponent < BELOW_TWO) and self.real

    @property
    def averages(self) -> bool:
        """Whether it is a function of averages alone, so a number in the limit."""
        return bool(self.sources) and all(kind == "average" for kind, _ in self.sources)

    @property
    def order(self) -> float:
        """The order of the papers: pseudo-Lipschitz of order modulus + 1."""
        return self.modulus + 1


PROPERTIES: Mapping[str, Callable[[Facts], bool]] = {
    "bounded": lambda f: f.bounded,
    "pseudo-Lipschitz": lambda f: f.pseudo_lipschitz,
    "controlled": lambda f: f.controlled,
}
SOURCES = {
    "bounded": "Sakai et al. 2025, Assumption 1",
    "pseudo-Lipschitz": "Sakai et al. 2025, Def. 2",
    "controlled": "Yang 2019, Def. 5.3",
}


def shown(interval: Interval) -> str:
    """An interval as text."""
    low, high = interval
    return f"{'(' if low == -INF else '['}{low:g}, {high:g}{')' if high == INF else ']'}"


# -- rules of composition ----------------------------------------------------------------------------------------------


def _number(low: float, high: float, masked: bool = False, attained: int = 2) -> Facts:
    return Facts(low, high, 0.0, 0.0, masked=masked, attained=attained)


def _tidy(f: Facts, **changes: Any) -> Facts:
    """The facts with changes, and with what follows from them."""
    f = replace(f, **changes)
    if math.isnan(f.low) or math.isnan(f.high) or f.low > f.high:
        f = replace(f, low=-INF, high=INF, attained=0)
    growth = 0.0 if f.low > -INF and f.high < INF else min(f.growth, f.modulus + 1)
    exponent = 0.0 if growth < INF else f.exponent
    rough = None if f.modulus < INF else f.rough
    wild = None if growth < INF or f.exponent < BELOW_TWO else f.wild
    return replace(f, growth=growth, exponent=exponent, rough=rough, wild=wild)


def _first(parts: Sequence[Facts], name: str, certain: bool) -> Fault | None:
    """The first fault of some parts, one that is certain before others; `certain`: whether it may stay so."""
    faults: list[Fault] = [fault for p in parts if (fault := getattr(p, name)) is not None]
    found = next((fault for fault in faults if fault.certain), faults[0] if faults else None)
    return found if found is None or certain or not found.certain else replace(found, certain=False)


def _joint(parts: Sequence[Facts], certain: bool = False) -> dict[str, Any]:
    """What several functions bring to one that is made of them; a value that is no number stays none."""
    return {
        "sources": frozenset[tuple[str, str]]().union(*(p.sources for p in parts)),
        "partial": _first(parts, "partial", True),
        "rough": _first(parts, "rough", certain),
        "wild": _first(parts, "wild", certain),
        "assumes": tuple(dict.fromkeys(need for p in parts for need in p.assumes)),
    }


def _apart(parts: Sequence[Facts]) -> bool:
    """Whether functions have no arguments in common."""
    return sum(len(p.sources) for p in parts) == len(frozenset().union(*(p.sources for p in parts)))


def _either(*parts: Facts) -> Facts:
    """What holds of all."""
    low, high = min(p.low for p in parts), max(p.high for p in parts)
    growth, modulus, exponent = (max(getattr(p, key) for p in parts) for key in ("growth", "modulus", "exponent"))
    masked, attained = any(p.masked for p in parts), min(p.attained for p in parts)
    found = Facts(low, high, growth, modulus, exponent, masked=masked, attained=attained)
    return _tidy(found, **_joint(parts, certain=True))


def _composed(outer: Regularity, parts: Sequence[Facts], low: float, high: float, attained: int, keeps: bool) -> Facts:
    """f(g1, g2, ...): growth gf gg, modulus mf gg + mg; `keeps`: what an argument has lost, f has lost."""
    growth, modulus, exponent = (max(getattr(p, key) for p in parts) for key in ("growth", "modulus", "exponent"))
    if outer.growth < INF:
        wild = exponent if outer.growth else 0.0
    else:
        wild = outer.exponent * growth if growth and outer.exponent else 0.0
    if not outer.growth or (not growth and min(outer.growth, outer.exponent) < INF):
        rise = 0.0
    else:
        rise = outer.growth * growth if growth else INF
    if INF in (modulus, outer.modulus):
        total = INF
    else:
        total = (outer.modulus * growth if outer.modulus and growth else 0.0) + modulus
    return _tidy(Facts(low, high, rise, total, wild, attained=attained), **_joint(parts, keeps))


def _times(a: float, b: float) -> float:
    return 0.0 if 0 in (a, b) else a * b


def _product(a: Facts, b: Facts, same: bool = False) -> Facts:
    """f g: growth adds; modulus max(g1 + m2, m1 + g2)."""
    ends = [_times(x, y) for x in a.interval for y in b.interval]
    moves = [g + m for g, m, d in ((a.growth, b.modulus, b), (b.growth, a.modulus, a)) if d.sources and not d.averages]
    zero, apart = any(p.constant and p.low == 0 for p in (a, b)), _apart((a, b))
    growth, modulus = 0.0 if zero else a.growth + b.growth, max(moves, default=0.0)
    low, attained = max(min(ends), 0.0) if same else min(ends), min(a.attained, b.attained) if apart or same else 0
    found = Facts(low, max(ends), growth, modulus, max(a.exponent, b.exponent), attained=attained)
    return _tidy(found, **_joint((a, b), apart and not zero))


def _exact(expr: Expr, netsor: Netsor) -> Fraction | None:
    """The value of numbers that are added, multiplied and compared, or at which functions are simple; else None."""

    def leaf(node: Expr) -> Fraction | None:
        value = netsor.constant[node.name].value if isinstance(node, Constant) else getattr(node, "value", None)
        return Fraction(str(value)) if isinstance(value, int | float) and math.isfinite(value) else None

    def rule(operation: Callable[..., Fraction]) -> Callable[..., Fraction | None]:
        return lambda _, *parts: None if None in parts else operation(*parts)

    def simple(node: Expr, *parts: Fraction | None) -> Fraction | None:
        if not isinstance(node, Call) or len(parts) != 1 or parts[0] not in (0, 1) or ATOMS[node.atom].declared:
            return None
        with np.errstate(all="ignore"):
            value = 2 * float(ATOMS[node.atom].numpy(np.float64(parts[0])))
        return Fraction(int(value), 2) if value.is_integer() else None  # exp(0), log(1), sigmoid(0)

    def power(_: Expr, base: Fraction | None, exponent: Fraction | None) -> Fraction | None:
        if base is None or exponent is None or exponent.denominator > 1 or not 0 <= exponent <= FEW:
            return None
        return Fraction(base ** int(exponent))

    operations: dict[str, Callable[..., Fraction]] = {
        "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "negative": operator.neg,
        "abs": abs, "relu": lambda x: max(x, Fraction(0)), "minimum": min, "maximum": max,
    }  # fmt: skip
    rules = {name: rule(operation) for name, operation in operations.items()}
    rules["divide"] = lambda _, top, bottom: top / bottom if top is not None and bottom else None
    return fold(expr, rules | {"power": power}, leaf, simple)


def _put(expr: Expr, part: Expr, value: Expr) -> Expr:
    """The expression where a part has a value; softmaxes over the part's indices read other members, and stay."""
    own = set(free_indices(part))

    def change(node: Expr) -> Expr | None:
        if node == part:
            return value
        return node if isinstance(node, Reduction) and own.intersection(node.indices) else None

    return rebuild(expr, change)


# -- the facts of a program --------------------------------------------------------------------------------------------


class Calculus:
    """The facts of all statements of a program."""

    def __init__(self, netsor: Netsor) -> None:
        self.netsor, self.structure = netsor, Structure.of(netsor)
        self.ranges = netsor.ranges
        self._found: dict[int, Facts] = {}
        self._closed: dict[Expr, tuple[float, float, bool] | None] = {}
        self._known: dict[Expr, Interval] = {}  # ranges of parts inside a branch of `where`
        for position, statement in enumerate(netsor.body):
            if not isinstance(statement, Nonlin):
                self._found[position] = self._given(position, statement)
        for group in self.structure.groups:
            if group[0] not in self._found:
                self._group(group)

    def _given(self, position: int, statement: MatMul | Dot) -> Facts:
        name = statement.target.name
        if isinstance(statement, MatMul):
            return Facts(sources=frozenset({("vector", name)}))
        low = 0.0 if statement.left == statement.right and statement.scale == "1/n" else -INF
        if statement.scale == "n**-0.5" or position in self.structure.random:
            return Facts(low, sources=frozenset({("score", name)}))
        return replace(_number(low, INF), sources=frozenset({("average", name)}))

    def _group(self, group: Sequence[int]) -> None:
        """The facts of a Nonlin, or of the Nonlins of a recurrence, round by round until they stay."""
        loop, body = self.structure.cyclic(group[0]), self.netsor.body
        for rounds in range(ROUNDS if loop else 1):
            before = {p: self._found.get(p) for p in group}
            for p in group:
                statement = body[p]
                assert isinstance(statement, Nonlin)
                old, new = before[p], self._best(statement.expr, p)
                if old is not None:
                    new = _either(old, new)
                    if rounds >= SETTLING:
                        low, high = (
                            (old.low if new.low >= old.low else -INF),
                            (old.high if new.high <= old.high else INF),
                        )
                        new = _tidy(new, low=low, high=high)
                self._found[p] = new
            if not loop or before == {p: self._found[p] for p in group}:
                return
        for p in group:
            fault = Fault(body[p].target, p, "the recurrence does not settle")
            self._found[p] = Facts(
                -INF, INF, INF, INF, INF, self._found[p].sources, rough=fault, wild=fault, attained=0
            )

    def _best(self, expr: Expr, position: int) -> Facts:
        """Facts of an expression, or of the functions of the language that it spells out."""
        found = self.expression(expr, position)
        if found.pseudo_lipschitz and (found.bounded or found.order == 1):
            return found
        # what may be too small, or too far out, to be seen in values
        spans = [span for node in walk(expr) if (span := self.closed(node))]
        odd = any(x and not LEAST <= abs(x) <= LARGEST for span in spans for x in span)
        powers = [self.expression(e.args[0], position) for e in walk(expr) if isinstance(e, Call) and e.atom == "exp"]
        steep = any(p.growth >= 2 and p.high == INF for p in powers)
        if odd or steep or (found.rough is not None and found.rough.jump):
            return found
        short = recognised(expr)
        return found if short == expr else self.expression(short, position)

    def statement(self, position: int) -> Facts:
        """Facts of what a statement defines, as a function of MatMul outputs, initial vectors, scores and averages."""
        return self._found[position]

    def vector(self, reference: Variable, position: int) -> Facts:
        """Facts of what a reference in a statement reads."""
        initial = self.structure.initial.get(reference.name)
        zero = _number(0.0, 0.0)
        if initial is not None:
            still = isinstance(initial.cov, Number) and initial.cov.value == 0
            span = self.closed(initial.mean) if still and isinstance(initial.mean, Expr) else None
            own = frozenset({("vector", reference.name)})
            if initial.grid:
                found = Facts(0.0, 1.0, 0.0, sources=own)
            else:
                found = Facts(sources=own) if span is None else replace(_number(*span), sources=own)
        else:
            definers = self.structure.definers(position, reference)
            if not definers and reference not in self.netsor.body[position].references:
                definers = self.netsor.families[reference.name].statements
            known = [self._found[d] for d in definers if d in self._found]
            found = _either(*known) if known else zero
        return _either(found, zero) if "zero" in crossed(self.netsor, reference, self.ranges) else found

    # -- expressions of constants and indices --------------------------------------------------------------------------

    def closed(self, expr: Expr) -> Interval | None:
        """Interval of an expression of constants and indices; None for others, and where a value is not finite."""
        span = self._values(expr)
        return None if span is None or span[2] else span[:2]

    def _values(self, expr: Expr) -> tuple[float, float, bool] | None:
        """The least and the largest finite value, and whether there is a mask besides."""
        if expr not in self._closed:
            values = self._grid(expr)
            seen = values[values != -INF]
            if seen.size and np.isfinite(seen).all():
                low, high, slack = float(seen.min()), float(seen.max()), 0.0
                if isinstance(expr, Call | Reduction) and not (low.is_integer() and high.is_integer()):
                    slack = ROUNDING * max(abs(low), abs(high), self._magnitude(expr))
                self._closed[expr] = low - slack, high + slack, len(seen) < values.size
            else:
                self._closed[expr] = None
        return self._closed[expr]

    def _grid(self, expr: Expr) -> NDArray[np.float64]:
        """The values of an expression of constants and indices; none of others, and where there are too many."""
        nodes = list(walk(expr))
        if any(isinstance(n, Variable) for n in nodes) or self._size({m for n in nodes for m in index_names(n)}) > MOST:
            return np.empty(0)

        def refuse(reference: Variable, ranges: Mapping[str, Range]) -> Open:
            raise ProgramError("no constant")

        with np.errstate(all="ignore"):
            return np.atleast_1d(np.asarray(evaluate(expr, Scope(self.netsor, self.ranges, refuse)).data, dtype=float))

    def _size(self, names: Collection[str]) -> int:
        spans = (self.ranges[name.rstrip("*")] for name in names)
        return math.prod(stop - start for start, stop in spans)

    def _magnitude(self, expr: Expr) -> float:
        """The largest number in an expression of constants and indices."""
        leaves = (n for n in walk(expr) if isinstance(n, Number | Constant | IndexValue))
        spans = [self._values(n) for n in leaves]
        return max((abs(x) for span in spans if span for x in span[:2]), default=0.0)

    # -- the walk ------------------------------------------------------------------------------------------------------

    def expression(self, expr: Expr, position: int, known: Known | None = None) -> Facts:
        """Facts of an expression that stands in a statement; `known`: ranges of some of its parts."""
        before = self._known
        self._known = before if known is None else _meet(before, known)
        found = self._node(expr, position)
        low, high = self._known.get(expr, ALL)
        if max(found.low, low) <= min(found.high, high):
            found = _tidy(found, low=max(found.low, low), high=min(found.high, high))
        self._known = before
        if found.averages and (found.growth or found.modulus or found.partial):
            need = f"{expr} is finite and smooth at the limiting value of the averages", expr
            assumes = (*found.assumes, need)
            found = replace(_number(*found.interval, found.masked, 0), sources=found.sources, assumes=assumes)
        return found

    def _node(self, expr: Expr, at: int) -> Facts:
        if isinstance(expr, Variable):
            return self.vector(expr, at)
        if expr == Number(-INF):
            return _number(-INF, -INF, masked=True)
        span = self._values(expr)
        if span is not None:
            return _number(*span)
        if isinstance(expr, Number | Constant | IndexValue):
            return self._unknown(expr, at, "it is no finite number", certain=True)
        if isinstance(expr, Reduction):
            return self._reduction(expr, at)
        assert isinstance(expr, Call)
        if expr.atom == "where":
            return self._where(expr, at)
        args = [self.expression(arg, at) for arg in expr.arguments]
        return self._masked(expr, at, args) if any(p.masked for p in args) else self._call(expr, at, args)

    def _unknown(self, expr: Expr, at: int, why: str, parts: Sequence[Facts] = (), certain: bool = False) -> Facts:
        """An expression that may be no real number."""
        fault = Fault(expr, at, why, certain)
        faults = {"partial": fault, "rough": fault, "wild": fault}
        joint = _joint(parts) if parts else {}
        partial = joint.get("partial")
        if partial is not None and (partial.certain or not certain):
            faults["partial"] = partial
        return Facts(-INF, INF, INF, INF, INF, attained=0, **(joint | faults))

    def _call(self, expr: Call, at: int, args: Sequence[Facts]) -> Facts:
        atom, certain = ATOMS[expr.atom], False
        if expr.atom == "multiply":
            found = _product(args[0], args[1], expr.args[0] == expr.args[1])
        elif expr.atom == "divide":
            found = self._quotient(expr, at, *args)
        elif atom.arity == 1:
            found = self._function(expr, at, args[0], atom)
            certain = self._surely(expr, args[0], atom)
        else:
            constant = all(not p.sources for p in args)
            low, high = atom.image(*(p.interval for p in args)) if atom.image else ALL
            apart = _apart(args)
            attained = min(p.attained for p in args) if apart else 0
            keeps = expr.atom in ("add", "subtract") and (apart or sum(p.rough is not None for p in args) == 1)
            regularity = Regularity(0, 0, 0) if constant else atom.regularity
            found = _composed(regularity, args, low, high, attained, keeps)
        if found.modulus == INF and found.rough is None:
            why = f"{atom.name} is discontinuous" if atom.name in JUMPS else f"{expr} jumps, or is too steep"
            found = replace(found, rough=Fault(expr, at, why, certain, atom.name in JUMPS))
        if found.growth == INF and found.exponent >= BELOW_TWO and found.wild is None:
            why = f"{expr} outgrows exp(C |x|**r) for every r < 2"
            found = replace(found, wild=Fault(expr, at, why, certain))
        return found

    def _surely(self, expr: Call, inner: Facts, atom: Atom) -> bool:
        """Whether a function of one argument that has no modulus there is sure to have none."""
        low, high = inner.interval
        if atom.name in JUMPS:
            return bool(inner.attained) and (low < 0 < high or (inner.attained == 2 and 0 in (low, high)))
        if atom.name in ("sqrt", "power"):
            return isinstance(arg := expr.args[0], Call) and arg.atom in ("abs", "relu") and inner.modulus == low == 0
        logs = any(isinstance(n, Call) and n.atom == "log" for n in walk(expr))
        return atom.name == "exp" and bool(inner.attained) and high == INF and not logs

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
            reached = atom.name in FLAT or [math.isfinite(x) for x in inner.interval] == [
                math.isfinite(x) for x in ((low, high) if atom.monotone >= 0 else (high, low))
            ]
            attained = 0 if atom.declared or atom.name == "log" else min(inner.attained, 2 if reached else 1)
            injective = atom.monotone and (atom.name not in FLAT or (low, high) == inner.interval)
            jumps = inner.rough is not None and inner.rough.jump and injective
            keeps = bool(jumps) or atom.name in ("negative", "exp")
            found = _composed(regularity, [inner], low, high, attained, keeps)
            least, most = atom.domain
            if (regularity.exponent == INF and not atom.declared) or inner.low < least or inner.high > most:
                why = f"{expr} is not a finite real number everywhere on {shown(inner.interval)}"
                outside = inner.low < max(least, 0.0) if inner.attained else False
                certain = outside or (inner.attained == 2 and inner.low == 0)
                found = replace(found, partial=found.partial or Fault(expr, at, why, certain))
            results.append(found)
        return functools.reduce(_either, results)

    def _parameter(self, param: Expr) -> set[float]:
        """The values of a parameter, or the least and the largest if they are many; none if it is no number."""
        if isinstance(param, Number):
            return {float(param.value)}
        span = self._values(param)
        if span is None or span[2]:
            return set()
        values = set(np.round(self._grid(param), 14).ravel().tolist())
        return values if len(values) <= FEW else set(span[:2])

    def _quotient(self, expr: Call, at: int, top: Facts, bottom: Facts) -> Facts:
        under = expr.args[1]
        gap = max(bottom.low, -bottom.high)
        gap = gap if gap > TINY else 0.0
        inverse = Call("divide", (Number(1), under))
        if gap == 0 and not bottom.sources:  # numbers of either sign
            span = self.closed(inverse)
            if span and max(map(abs, span)) * TINY * max(1.0, self._magnitude(under)) < 1:
                return _product(top, _number(*span))
        if gap == 0 and bottom.averages:
            need = f"{under} is not 0 at the limiting value of the averages", inverse
            free = replace(_number(-INF, INF), sources=bottom.sources, assumes=(*bottom.assumes, need), attained=0)
            return _tidy(_product(top, free), low=-INF, high=INF)
        if gap == 0:
            why = f"the denominator {under} is not kept away from 0: its range is {shown(bottom.interval)}"
            inside = bottom.low < 0 < bottom.high or (bottom.attained == 2 and 0 in bottom.interval)
            certain = bool(bottom.attained) and inside and _apart((top, bottom)) and not bottom.masked
            return self._unknown(expr, at, why, (top, bottom), certain)
        low, high = (1 / x if math.isfinite(x) else 0.0 for x in (bottom.high, bottom.low))
        attained = (
            bottom.attained if math.isfinite(bottom.low) and math.isfinite(bottom.high) else min(bottom.attained, 1)
        )
        weak = _joint((bottom,)) | {"low": low, "high": high, "attained": attained}
        return _product(top, replace(bottom, growth=0.0, exponent=0.0, **weak))

    def _masked(self, expr: Call, at: int, args: Sequence[Facts]) -> Facts:
        """A function of something that is -inf at some indices."""
        plain = [replace(p, masked=False) for p in args]
        found = self._call(expr, at, plain)
        if expr.atom in ("exp", "sigmoid", "relu", "softplus"):
            return _tidy(found, low=min(found.low, 0.0))
        if expr.atom == "maximum":
            return replace(found, masked=all(p.masked for p in args), low=min(p.low for p in plain))
        other = args[-1] if args[0].masked else args[0]
        positive = not other.masked and not other.sources and other.low > 0
        scaled = positive and (expr.atom == "multiply" or (expr.atom == "divide" and args[0].masked))
        if expr.atom == "add" or (expr.atom == "subtract" and not args[1].masked) or scaled:
            return replace(found, masked=True)
        return self._unknown(expr, at, f"{expr.atom} meets the value -inf of a mask", args, certain=True)

    def _reduction(self, expr: Reduction, at: int) -> Facts:
        inner = self.expression(expr.arg, at)
        count = self._size(expr.indices)
        if inner.masked and REDUCTIONS[expr.reducer].linear:
            return self._unknown(expr, at, f"{expr.reducer} meets the value -inf of a mask", (inner,), certain=True)
        if (
            inner.masked
            and not np.isfinite(self._grid(rebuild(expr, functools.partial(self._mask, at, DEEPEST)))).all()
        ):
            return self._unknown(expr, at, f"{expr} may be masked at all values of its index", (inner,), certain=True)
        found = replace(inner, masked=False)
        if expr.reducer == "sum":
            return _tidy(found, low=_times(inner.low, count), high=_times(inner.high, count))
        if expr.reducer == "logsumexp":
            return _tidy(found, high=inner.high + math.log(count) * (1 + 1e-12), attained=min(found.attained, 1))
        if expr.reducer == "softmax":
            return _tidy(found, low=0.0, high=1.0, growth=0.0, wild=None, exponent=0.0, attained=min(found.attained, 1))
        return found

    def _mask(self, at: int, deep: int, node: Expr) -> Expr | None:
        """Numbers in the place of variables, so that an expression shows its masks alone; some statements `deep`."""
        if not isinstance(node, Variable):
            return None
        if not deep or not self.vector(node, at).masked:
            return Number(0.5)
        definition = self.structure.definition(at, node)
        if definition is None:
            return Number(-INF)
        pairs = zip(definition.target.slots, node.slots, strict=True)
        values = {own.bare: slot for own, slot in pairs if own.bare is not None}
        (definer,) = self.structure.definers(at, node)
        return rebuild(
            substitute(definition.expr, values, along=True), functools.partial(self._mask, definer, deep - 1)
        )

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
        given, sides = self.expression(condition, at), self._sides(condition)
        branches = [self.expression(branch, at, side) for branch, side in zip((yes, no), sides, strict=True)]
        joint = _joint((*branches, replace(given, rough=None, wild=None)))
        joint["partial"] = given.partial or _first(branches, "partial", certain=False)
        found = replace(_either(*branches), attained=0, **joint)
        if any(p.masked for p in branches):
            return self._unknown(expr, at, f"{expr} is masked under a condition that is random", branches, certain=True)
        if given.averages or found.constant:
            return found
        chosen = branches[0].sources | branches[1].sources
        meets = self._meets(condition, yes, no, at, chosen)
        if meets is HOLDS:
            return found
        why = f"{expr} switches where its condition changes"
        return _tidy(found, modulus=INF, rough=Fault(expr, at, why, meets is FAILS, True))

    def _threshold(self, condition: Expr) -> tuple[Expr, Expr, bool, Interval] | None:
        """(u, c, whether u lies below c where it holds, c's range) of a comparison of u with a number, or None."""
        if not (isinstance(condition, Call) and condition.atom in BELOW):
            return None
        (u, c), below = condition.args, BELOW[condition.atom]
        u, c, below = (u, c, below) if variables(u) else (c, u, not below)
        span = self.closed(c)
        return (u, c, below, span) if span and not variables(c) else None

    def _sides(self, condition: Expr) -> tuple[Known, Known]:
        """Ranges of parts where a condition holds, and where it does not."""
        if isinstance(condition, Call) and condition.atom in LOGICAL:
            k = LOGICAL.index(condition.atom)
            both = _meet(*(self._sides(part)[k] for part in condition.args))
            return ({}, both) if k else (both, {})
        found = self._threshold(condition)
        if not found:
            return {}, {}
        u, _, below, (low, high) = found
        under, over = {u: (-INF, high)}, {u: (low, INF)}
        if isinstance(u, Call) and u.atom == "abs":
            under[u.args[0]] = -high, high
        return (under, over) if below else (over, under)

    def _meets(self, condition: Expr, yes: Expr, no: Expr, at: int, chosen: Collection[Any]) -> Verdict:
        """Whether both branches, functions of what is `chosen`, are equal wherever the sides of a comparison are."""
        if isinstance(condition, Call) and condition.atom in LOGICAL:
            both = {self._meets(part, yes, no, at, chosen) for part in condition.args if variables(part)}
            return HOLDS if both == {HOLDS} else UNKNOWN
        threshold = self._threshold(condition)
        if not threshold:
            one, two = self._values(yes), self._values(no)
            sides = [self.expression(side, at) for side in condition.children]
            met = _apart(sides) and all(side.interval == ALL and side.attained for side in sides)
            return FAILS if met and one and two and (one[1] < two[0] or two[1] < one[0]) else UNKNOWN
        u, c, _, (low, high) = threshold
        places = [(u, c)]
        if isinstance(u, Call) and u.atom == "abs":
            places = [(u.args[0], c), (u.args[0], Call("negative", (c,)))]
        here = self.expression(u, at)
        reached = bool(here.attained) and here.low < low and high < here.high
        found = HOLDS
        for place in places:
            ends = [_put(branch, *place) for branch in (yes, no)]
            one, two = map(self._values, ends)
            if one is None or two is None:
                return FAILS if reached and here.sources.isdisjoint(chosen) and yes != no else UNKNOWN
            exact = [_exact(end, self.netsor) for end in ends]
            apart = exact[0] != exact[1] if None not in exact else one[1] < two[0] or two[1] < one[0]
            if apart:
                found = FAILS if reached else UNKNOWN
            elif None in exact and ends[0] != ends[1] and found is HOLDS:
                found = UNKNOWN  # equal but for rounding
        return found

    # -- what the rules ask --------------------------------------------------------------------------------------------

    def verdict(self, name: str, position: int) -> Verdict:
        """Whether a statement's value has one of the `PROPERTIES`."""
        found = self._found[position]
        if PROPERTIES[name](found):
            return HOLDS
        certain = found.masked or self.blame(name, position).certain
        return FAILS if certain else UNKNOWN

    def blame(self, name: str, position: int) -> Fault:
        """The smallest part at fault for a property that a statement's value lacks."""
        found, statement = self._found[position], self.netsor.body[position]
        if found.partial is not None:
            return found.partial
        if found.masked:
            return Fault(statement.target, position, "the value is -inf where it is masked", True)
        fault = {"pseudo-Lipschitz": found.rough, "controlled": found.wild}.get(name)
        return fault or self._unbounded(statement.target, position)

    def _unbounded(self, node: Expr, position: int) -> Fault:
        """The first part that is not bounded although what it is made of is, or is Gaussian."""
        seen = {position}
        statement = self.netsor.body[position]
        if not isinstance(statement, Nonlin):
            return Fault(node, position, f"{node} is Gaussian in the limit, so not bounded", True)
        node = statement.expr
        while True:
            if isinstance(node, Variable):
                made = [d for d in self.structure.definers(position, node) if not self._found[d].bounded]
                nonlins = [d for d in made if isinstance(self.netsor.body[d], Nonlin)]
                if not nonlins:
                    return Fault(node, position, f"{node} is Gaussian in the limit, so not bounded", True)
                further = next((d for d in nonlins if d not in seen), None)
                if further is None:
                    return Fault(node, position, f"{node} grows along its recurrence")
                seen.add(further)
                position, statement = further, self.netsor.body[further]
                assert isinstance(statement, Nonlin)
                node = statement.expr
                continue
            if isinstance(node, Call) and node.atom not in LINEAR:
                read = ", ".join(map(str, node.arguments))
                return Fault(node, position, f"{node.atom} is unbounded on the range of {read}", _unbounds(node))
            children = node.children[:1] if isinstance(node, Call) and node.atom == "divide" else node.children
            parts = [c for c in children if not self.expression(c, position).bounded]
            if not parts:
                return Fault(node, position, f"{node} is not bounded")
            node = parts[0]


def _unbounds(node: Call) -> bool:
    """Whether a function of one argument that is not bounded is sure to be unbounded on an unbounded range."""
    atom = ATOMS[node.atom]
    return atom.arity == 1 and atom.bounds is None and not atom.declared


def _meet(one: Known, two: Known) -> dict[Expr, Interval]:
    """Ranges that hold together."""
    both = dict(one)
    for part, (low, high) in two.items():
        least, most = both.get(part, ALL)
        both[part] = max(low, least), min(high, most)
    return both

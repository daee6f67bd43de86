"""Functions of one real variable by their sizes at its infinite ends, and by being tame between them.

Near an end, with t -> inf the distance from 0, a function is written as a sum of terms c t**k exp(q(t)), q a sum of
powers of t, plus a remainder R with |R| <= C r for such a term r.  Sums and products of such expansions are expansions.
If one term l outweighs all others and the remainder, f = l (1 + d) with d -> 0, and

    f**a = l**a (1 + a d + O(d**2)),   exp(g + c + d) = exp(g) exp(c) (1 + d + O(d**2)),   log f = log l + d + O(d**2)

are expansions as well.  tanh, sigmoid, softplus, gelu and others are made of these; erf(f) - 1 is O(exp(-f**2)) where
f -> inf.  Of what is bounded, or Lipschitz, a bound remains where its argument's sign is not known.

All these functions lie in a Hardy field: each is 0, positive or negative near the end, and so are their derivatives.
So if |f| <= C t**k, then |f'| <= C' t**max(k - 1, 0): by l'Hopital's rule t f' / f has the limit of log |f| / log t, at
most k, if |f| grows without bound, and else f' -> 0.  (Waves such as sin are in no such field, and have no expansion.)
If f is Lipschitz on every bounded interval too (`tame`: no jump, no root or logarithm of what touches 0, no denominator
with a zero), the largest terms bound its growth and modulus.

Source    Hardy 1912; Rosenlicht, Trans. AMS 280 (1983), on Hardy fields closed under exp, log and integration
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from tensorprog.check.certificates.knowledge import ONE, ZERO, Enclosure, Knowledge, Undecided, increasing, outward
from tensorprog.language.atoms import ATOMS, Regularity
from tensorprog.language.atoms.outward import sums
from tensorprog.language.expr import Call, Expr, variables

__all__ = ["behaviour", "positive", "tame"]

INF = math.inf
LONGEST = 8  # terms of an expansion; smaller ones go to the remainder
WHOLE = 12  # powers that are multiplied out
CLOSE = Fraction(1, 10**9)  # numbers in exponents that differ by less, relative to them, may be rounded equals
NEAR = Fraction(1, 10**12)  # the accuracy of numbers that are computed here
# what is tame
SMOOTH = (
    "exp",
    "tanh",
    "sigmoid",
    "erf",
    "gaussian",
    "softplus",
    "gelu",
    "gelu_tanh",
    "silu",
    "elu",
    "selu",
    "sin",
    "cos",
    "abs",
    "relu",
    "leaky_relu",
    "clip",
    "negative",
    "add",
    "subtract",
    "multiply",
    "minimum",
    "maximum",
)
OPEN = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "erf": (-1.0, 1.0), "elu": (-1.0, INF)}  # ends are no values
BOUNDED = ("tanh", "sigmoid", "erf", "gaussian")
LIPSCHITZ = ("softplus", "gelu", "gelu_tanh", "silu", "elu", "selu", "abs", "relu", "leaky_relu", "minimum", "maximum")


# ---- expansions at an end -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Monomial:
    """t**power exp(sum of c t**d over the exponent's (d, c), largest d first); d = inf: smaller than all others."""

    power: Fraction = Fraction(0)
    exponent: tuple[tuple[Fraction | float, Fraction], ...] = ()

    def __mul__(self, other: Monomial) -> Monomial:
        total = dict(self.exponent)
        for degree, c in other.exponent:
            total[degree] = _sum(total[degree], c) if degree in total and degree != INF else c
        return Monomial(self.power + other.power, _ordered(total))

    def raised(self, a: Fraction) -> Monomial:
        """The a-th power."""
        return Monomial(self.power * a, _ordered({degree: c * a for degree, c in self.exponent}))

    def exceeds(self, other: Monomial) -> int:
        """+1, 0, -1: whether it is larger than another at the end, alike up to a factor, or smaller."""
        ours, theirs = dict(self.exponent), dict(other.exponent)
        for degree in sorted({*ours, *theirs}, reverse=True):
            more = _sum(ours.get(degree, Fraction(0)), -theirs.get(degree, Fraction(0)))
            if more:
                return 1 if more > 0 else -1
        return (self.power > other.power) - (self.power < other.power)


def _sum(a: Fraction, b: Fraction) -> Fraction:
    """The sum of two numbers, where no digits are lost: of what nearly cancels the sign is not known."""
    if a + b and abs(a + b) < CLOSE * abs(a):
        raise Undecided
    return a + b


def _ordered(exponent: dict[Fraction | float, Fraction]) -> tuple[tuple[Fraction | float, Fraction], ...]:
    return tuple(sorted(((d, c) for d, c in exponent.items() if c), key=lambda pair: -pair[0]))


UNIT = Monomial()
TINY = Monomial(exponent=((INF, Fraction(-1)),))  # exp(-exp(t)) and the like


def _largest(monos: Iterable[Monomial | None]) -> Monomial | None:
    best: Monomial | None = None
    for m in monos:
        if m is not None and (best is None or m.exceeds(best) > 0):
            best = m
    return best


def _times(a: Monomial | None, b: Monomial | None) -> Monomial | None:
    return None if a is None or b is None else a * b


@dataclass(frozen=True)
class Expansion:
    """A function near an end: terms, and a bound of the remainder (None: 0)."""

    terms: dict[Monomial, Enclosure] = field(default_factory=dict)
    rest: Monomial | None = None

    @property
    def size(self) -> Monomial | None:
        """A bound of the function."""
        return _largest([*self.terms, self.rest])

    @property
    def lead(self) -> Monomial:
        """The term that outweighs all others and the remainder."""
        first = _largest(self.terms)
        if first is None or (self.rest is not None and self.rest.exceeds(first) >= 0):
            raise Undecided
        return first

    @property
    def sign(self) -> int:
        """The sign near the end."""
        if not self.terms and self.rest is None:
            return 0
        sign = self.terms[self.lead].sign
        if sign is None:
            raise Undecided
        return sign

    def __add__(self, other: Expansion) -> Expansion:
        terms = dict(self.terms)
        for m, c in other.terms.items():
            terms[m] = terms[m] + c if m in terms else c
        return _kept(terms, [self.rest, other.rest])

    def __mul__(self, other: Expansion) -> Expansion:
        terms: dict[Monomial, Enclosure] = {}
        for (m, c), (n, d) in ((x, y) for x in self.terms.items() for y in other.terms.items()):
            terms[m * n] = terms[m * n] + c * d if m * n in terms else c * d
        return _kept(terms, [_times(self.size, other.rest), _times(self.rest, other.size)])

    def __neg__(self) -> Expansion:
        return Expansion({m: -c for m, c in self.terms.items()}, self.rest)

    def __sub__(self, other: Expansion) -> Expansion:
        return self + -other


def _kept(terms: dict[Monomial, Enclosure], rests: list[Monomial | None]) -> Expansion:
    """An expansion without zeros, of its largest terms."""
    terms = {m: c for m, c in terms.items() if c != ZERO}
    order = sorted(terms, key=functools.cmp_to_key(Monomial.exceeds), reverse=True)
    return Expansion({m: terms[m] for m in order[:LONGEST]}, _largest([*rests, *order[LONGEST:]]))


def _number(value: Enclosure) -> Expansion:
    return Expansion({UNIT: value} if value != ZERO else {})


def _whole(value: int) -> Expansion:
    return _number(Enclosure(Fraction(value), Fraction(value)))


def _near(start: int, d: Expansion, slope: Fraction = Fraction(1)) -> Expansion:
    """start + slope d + O(d**2)."""
    return _whole(start) + d * _number(Enclosure(slope, slope)) + Expansion({}, _times(d.size, d.size))


def _relative(f: Expansion) -> tuple[Monomial, Enclosure, Expansion]:
    """(l, c, d) with f = c l (1 + d), where c l is the largest term."""
    lead = f.lead
    c = f.terms[lead]
    if not c.sign:
        raise Undecided
    others = Expansion({m: x for m, x in f.terms.items() if m != lead}, f.rest)
    d = others * Expansion({lead.raised(Fraction(-1)): c.inverse()})
    if d.size is not None and d.size.exceeds(UNIT) >= 0:
        raise Undecided
    return lead, c, d


def _power(f: Expansion, a: Fraction) -> Expansion:
    if a.denominator == 1 and 0 <= a <= WHOLE:
        return functools.reduce(lambda x, y: x * y, [f] * int(a), _whole(1))
    lead, c, d = _relative(f)
    if a.denominator > 1 and c.sign != 1:
        raise Undecided
    return Expansion({lead.raised(a): _raised(c, a)}) * _near(1, d, a)


def _raised(c: Enclosure, a: Fraction) -> Enclosure:
    """A power of numbers that are not 0, of positive ones if it is no whole power."""
    if a.denominator == 1 and c.exact and abs(a) <= WHOLE:
        return Enclosure(c.low ** int(a), c.low ** int(a))
    if c == ONE:
        return ONE
    sign = 1 if c.sign == 1 or int(a) % 2 == 0 else -1
    ends = sorted(abs(float(end)) ** float(a) for end in (c.low, c.high))
    found = outward(*ends)
    return found if sign > 0 else -found


def _single(c: Enclosure) -> Fraction:
    """A number but for its rounding, which must be far from 0."""
    middle = (c.low + c.high) / 2
    if c.high - c.low > NEAR * abs(middle):
        raise Undecided
    return middle


def _exp(f: Expansion) -> Expansion:
    lead = _largest(f.terms)
    if lead is not None and lead.exponent and lead.exceeds(UNIT) > 0:  # exp of what grows as exp does
        if f.sign > 0:
            raise Undecided
        return Expansion({}, TINY)
    grown = {m.power: c for m, c in f.terms.items() if m.exceeds(UNIT) > 0}
    if any(m.exponent for m in f.terms if m.exceeds(UNIT) >= 0):
        raise Undecided
    head = Monomial(exponent=_ordered({degree: _single(c) for degree, c in grown.items()}))
    start = f.terms.get(UNIT, ZERO)
    factor = ONE if start == ZERO else increasing(math.exp, start)
    small = Expansion({m: c for m, c in f.terms.items() if m.exceeds(UNIT) < 0}, f.rest)
    beside = 1 if f.rest is None else -f.rest.exceeds(UNIT)
    if beside < 0:
        raise Undecided
    if beside == 0:  # a bounded factor
        return Expansion({}, head)
    return Expansion({head: factor}) * _near(1, small)


def _log(f: Expansion) -> Expansion:
    lead, c, d = _relative(f)
    if c.sign != 1 or any(degree == INF for degree, _ in lead.exponent):
        raise Undecided
    terms = {Monomial(Fraction(degree)): Enclosure(a, a) for degree, a in lead.exponent}
    if c != ONE:
        terms[UNIT] = increasing(math.log, c)
    power = Expansion({}, Monomial(Fraction(1))) if lead.power else Expansion()  # log t <= t
    return Expansion(terms) + power + _near(0, d)


def _diverges(f: Expansion) -> int:
    """+1 or -1 where a function tends to inf or -inf, 0 where it is bounded."""
    size = f.size
    if size is None or size.exceeds(UNIT) <= 0:
        return 0
    return f.sign


def _sigmoid(f: Expansion) -> Expansion:
    if _diverges(f) < 0:
        e = _exp(f)
        return e * _power(_whole(1) + e, Fraction(-1))
    return _power(_whole(1) + _exp(-f), Fraction(-1))


def _tanh(f: Expansion) -> Expansion:
    way = _diverges(f)
    if way < 0:
        return -_tanh(-f)
    e = _exp(-(f + f))
    return (_whole(1) - e) * _power(_whole(1) + e, Fraction(-1))


def _softplus(f: Expansion) -> Expansion:
    return f + _softplus(-f) if _diverges(f) > 0 else _log(_whole(1) + _exp(f))


def _erf(f: Expansion) -> Expansion:
    way = _diverges(f)
    if way == 0:
        return Expansion({}, f.size)  # |erf x| <= 2 |x|
    return _whole(way) + Expansion({}, _exp(-(f * f)).size)


def _elu(f: Expansion, alpha: Expansion) -> Expansion:
    return f if f.sign >= 0 else alpha * (_exp(f) - _whole(1))


def _leaky(f: Expansion, slope: Expansion) -> Expansion:
    return f if f.sign >= 0 else slope * f


HALF = Enclosure(Fraction(1, 2), Fraction(1, 2))
MADE = {
    "exp": _exp,
    "log": _log,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "softplus": _softplus,
    "erf": _erf,
    "elu": _elu,
    "leaky_relu": _leaky,
    "negative": lambda f: -f,
    "add": lambda f, g: f + g,
    "subtract": lambda f, g: f - g,
    "multiply": lambda f, g: f * g,
    "divide": lambda f, g: f * _power(g, Fraction(-1)),
    "sqrt": lambda f: _power(f, Fraction(1, 2)),
    "gaussian": lambda f: _exp(-(f * f)),
    "silu": lambda f: f * _sigmoid(f),
    "gelu": lambda f: f * (_whole(1) + _erf(f * _number(outward(math.sqrt(0.5), math.sqrt(0.5))))) * _number(HALF),
    "gelu_tanh": lambda f: (
        f
        * _sigmoid(
            f * _number(outward(1.5957691216057308, 1.5957691216057308))
            + f * f * f * _number(outward(0.07135481627260025, 0.07135481627260025))
        )
    ),
    "selu": lambda f: (
        _elu(f, _number(outward(1.6732632423543772, 1.6732632423543772)))
        * _number(outward(1.0507009873554805, 1.0507009873554805))
    ),
    "abs": lambda f: f if f.sign >= 0 else -f,
    "relu": lambda f: f if f.sign > 0 else Expansion(),
    "maximum": lambda f, g: f if (f - g).sign >= 0 else g,
    "minimum": lambda f, g: f if (f - g).sign <= 0 else g,
}


def _expansion(known: Knowledge, expr: Expr, u: Expr, side: int) -> Expansion:
    """The expansion of a function of u as u -> inf (side 1) or -inf (side -1)."""
    found = known.attempt("germ", (expr, u, side), lambda: _expanded(known, expr, u, side))
    if found is None:
        raise Undecided
    return found


def _expanded(known: Knowledge, expr: Expr, u: Expr, side: int) -> Expansion:
    if expr == u:
        return Expansion({Monomial(Fraction(1)): Enclosure(Fraction(side), Fraction(side))})
    number = known.enclosure(expr)
    if number is not None:
        return _number(number)
    if not isinstance(expr, Call):
        raise Undecided
    if expr.atom == "where":
        if variables(expr.args[0]):
            raise Undecided
        f, g = (_expansion(known, arg, u, side) for arg in expr.args[1:])
        return f if f == g else Expansion({}, _largest([f.size, g.size]))
    if expr.atom == "divide" and isinstance(expr.args[1], Call) and expr.args[1].atom == "exp":
        top, exponent = expr.args[0], Call("negative", expr.args[1].args)
        return _expansion(known, top, u, side) * _exp(_expansion(known, exponent, u, side))
    args = [_expansion(known, arg, u, side) for arg in expr.args]
    if expr.atom == "power":
        power = known.enclosure(expr.args[1])
        if power is None or not power.exact or abs(power.low) > 100:
            raise Undecided
        return _power(args[0], power.low)
    if expr.atom == "clip":
        f, low, high = args
        return _chosen("minimum", _chosen("maximum", f, low), high)
    return _chosen(expr.atom, *args)


def _chosen(atom: str, *args: Expansion) -> Expansion:
    if atom not in MADE:
        raise Undecided
    try:
        return MADE[atom](*args)  # type: ignore[no-any-return, operator]
    except (Undecided, OverflowError):
        if atom in BOUNDED:
            return Expansion({}, UNIT)
        if atom not in LIPSCHITZ:
            raise
        return Expansion({}, _largest([UNIT, *(x.size for x in args)]))


# ---- between the ends -----------------------------------------------------------------------------------------------


def positive(known: Knowledge, expr: Expr) -> bool:
    """Whether the value is positive everywhere, though perhaps as small as one likes."""
    return known.recall("positive", (expr,), lambda: _positive(known, expr))


def _positive(known: Knowledge, expr: Expr) -> bool:
    found = known.of(expr)
    if found.low > 0 and found.real:
        return True
    if not isinstance(expr, Call) or not found.real:
        return False
    if expr.atom in ("exp", "sigmoid", "softplus", "gaussian"):
        return True
    if expr.atom in ("add", "subtract") and _inside(known, expr):
        return True
    signs = [positive(known, arg) for arg in expr.args]
    if expr.atom in ("multiply", "divide", "minimum", "where"):
        return all(signs[1:] if expr.atom == "where" else signs)
    if expr.atom in ("sqrt", "power", "relu"):
        return signs[0]
    if expr.atom == "maximum":
        return any(signs)
    terms = zip(signs, expr.args[::-1], strict=True) if expr.atom == "add" else ()
    return any(one and known.of(other).low >= 0 for one, other in terms)


def _inside(known: Knowledge, expr: Call) -> bool:
    """Whether a sum or difference of ranges is not negative, and its end no value, as of 1 - sigmoid(v)."""
    (first, second), (a, b) = expr.args, [known.of(arg) for arg in expr.args]
    ends = [(first, a.low, 0), (second, b.low, 0) if expr.atom == "add" else (second, b.high, 1)]
    if sums(a.low, b.low if expr.atom == "add" else -b.high)[0] < 0:
        return False
    return any(isinstance(x, Call) and x.atom in OPEN and end == OPEN[x.atom][side] for x, end, side in ends)


def _away(known: Knowledge, expr: Expr) -> bool:
    """Whether the value is never 0."""
    found = known.of(expr)
    return positive(known, expr) or (found.high < 0 and found.real)


def tame(known: Knowledge, expr: Expr, u: Expr) -> bool:
    """Whether a function of u is a real number everywhere, and Lipschitz on every bounded interval."""
    return known.recall("tame", (expr, u), lambda: _tame(known, expr, u))


def _tame(known: Knowledge, expr: Expr, u: Expr) -> bool:
    if expr == u:
        return True
    if not variables(expr):
        return known.closed(expr) is not None
    if not isinstance(expr, Call):
        return False
    if expr.atom == "where" and variables(expr.args[0]):
        return False
    args = expr.args[1:] if expr.atom == "where" else expr.args
    if not all(tame(known, arg, u) for arg in args):
        return False
    if expr.atom in SMOOTH or expr.atom == "where":
        return True
    if expr.atom == "divide":
        return _away(known, expr.args[1])
    if expr.atom in ("sqrt", "log"):
        return positive(known, expr.args[0])
    if expr.atom == "power":
        exponent = known.number(expr.args[1])
        if exponent is None:
            return False
        if exponent >= 0 and exponent.is_integer():
            return True
        if exponent.is_integer():
            return _away(known, expr.args[0])
        return positive(known, expr.args[0]) or (exponent >= 1 and known.of(expr.args[0]).low >= 0)
    regularity = ATOMS[expr.atom].regularity
    return len(expr.args) == 1 and regularity.modulus < INF


def behaviour(known: Knowledge, expr: Expr, u: Expr) -> Regularity | None:
    """Growth and modulus of a function of u on the range of u; None if they are not seen."""
    if not tame(known, expr, u):
        return None
    growth = exponent = 0.0
    for side, end in ((1, known.of(u).high), (-1, -known.of(u).low)):
        if end < INF:
            continue
        try:
            size = _expansion(known, expr, u, side).size
        except Undecided:
            return None
        growth = max(growth, _grows(size))
        if size is not None and _grows(size) == INF:
            exponent = max(exponent, float(size.exponent[0][0]))
    return Regularity(growth, max(growth - 1, 0.0), INF, exponent)


def _grows(size: Monomial | None) -> float:
    """The power of 1 + |u| that bounds a term; inf where none does."""
    if size is None:
        return 0.0
    for _, c in size.exponent[:1]:
        return INF if c > 0 else 0.0
    return max(0.0, float(size.power))

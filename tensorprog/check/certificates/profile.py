"""`Profile`: what is certified of a function, how it composes, and how atoms move it; no program is named here.

Source    Sakai et al. 2025, Def. 2, Prop. 6, Lemma 7; Bayati & Montanari 2011
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tensorprog.language.atoms import Atom, Interval, Regularity
from tensorprog.language.atoms.outward import hull
from tensorprog.language.atoms.outward import product as products
from tensorprog.language.expr import Call, Expr

__all__ = [
    "GAUSSIAN",
    "SCORE",
    "VECTOR",
    "Assumes",
    "Fault",
    "Kinks",
    "Profile",
    "assumed",
    "compose",
    "constant",
    "crossing",
    "join",
    "join_kinks",
    "meet",
    "moved",
    "product",
    "product_trend",
    "same",
    "shown",
    "shown_kinks",
    "sum_parity",
    "tidy",
    "times",
    "trend",
    "unary_kinks",
    "unknown",
]

INF = math.inf
GAUSSIAN = 2.0 - 1e-9  # exponents are products of numbers that were rounded
LARGEST = sys.float_info.max
MAX_KINKS = 12  # more thresholds than these are not listed

Kinks = tuple[tuple[Expr, tuple[float, ...]], ...] | None
"""Where a function may fail to be twice differentiable: subexpressions with thresholds; () nowhere, None not known."""
Assumes = tuple[tuple[str, Expr | None], ...]  # what must hold of averages; what shows it at their limits


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
    where nothing is certified.  `rises`, `falls`: nondecreasing, nonincreasing when vectors and scores move up
    together, member by member; a constant does both.  `kinks`: see `Kinks`.  `depends`: kinds of arguments that occur.
    `rough`, `partial`: why there is no modulus, why f may be no real number somewhere; `open`: why all entries may be
    masked.  `assumes`: what the limiting values of averages must satisfy.
    """

    low: float = -INF
    high: float = INF
    growth: float = 1.0
    modulus: float = 0.0
    lipschitz: float = 1.0
    exponent: float = 0.0
    parity: int = 0  # +1 even, -1 odd, under a change of sign of all vectors and scores together
    rises: bool = False
    falls: bool = False
    kinks: Kinks = None
    masked: bool = False  # -inf, by a mask on indices
    depends: frozenset[str] = frozenset()
    rough: Fault | None = None
    wild: Fault | None = None  # where growth leaves every exp(C |x|**r) with r < 2
    partial: Fault | None = None
    assumes: Assumes = ()
    open: Fault | None = None

    @property
    def real(self) -> bool:
        """Whether the value is a real number everywhere."""
        return self.partial is None and not self.masked

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
        return self.growth == 0 and self.real

    @property
    def pseudo_lipschitz(self) -> bool:
        """Whether a finite modulus is certified."""
        return self.modulus < INF and self.real

    @property
    def controlled(self) -> bool:
        """Whether |f(x)| <= exp(C |x|**r + c) with r < 2 is certified (Yang 2019, Def. 5.3)."""
        return (self.growth < INF or self.exponent < GAUSSIAN) and self.real

    @property
    def monotone(self) -> int:
        """+1 nondecreasing (constants too), -1 nonincreasing, 0 neither or not known."""
        return 1 if self.rises else -1 if self.falls else 0

    @property
    def order(self) -> float:
        """The papers' pseudo-Lipschitz order."""
        return self.modulus + 1


VECTOR = Profile(parity=-1, rises=True, kinks=(), depends=frozenset({"vector"}))
SCORE = replace(VECTOR, depends=frozenset({"score"}))


def tidy(profile: Profile, **changes: Any) -> Profile:
    """The profile with some fields changed, and the conclusions that link the fields."""
    p = replace(profile, **changes) if changes else profile
    low, high, growth, exponent, modulus, rough = p.low, p.high, p.growth, p.exponent, p.modulus, p.rough
    if math.isnan(low) or math.isnan(high) or low > high:
        low, high = -INF, INF
    if not p.masked:  # an end that overflowed
        low, high = min(low, LARGEST), max(high, -LARGEST)
    if low == high and p.partial is None:
        modulus, rough = 0.0, None
        p = replace(p, lipschitz=0.0, parity=1, rises=True, falls=True, kinks=())
    if low > -INF and high < INF:
        growth = 0.0
    if modulus < INF:
        growth, rough = min(growth, modulus + 1), None
    if growth < INF:
        exponent = 0.0
    wild = None if growth < INF or exponent < GAUSSIAN else p.wild
    lipschitz = p.lipschitz if modulus == 0 else INF
    return replace(
        p,
        low=low,
        high=high,
        growth=growth,
        exponent=exponent,
        modulus=modulus,
        rough=rough,
        wild=wild,
        lipschitz=lipschitz,
    )


def constant(low: float, high: float) -> Profile:
    """Profile of a number known to lie in an interval."""
    return Profile(low, high, 0.0, 0.0, 0.0, 0.0, 1, rises=True, falls=True, kinks=())


def unknown(fault: Fault, depends: frozenset[str] = frozenset()) -> Profile:
    """Profile of what may be no real number somewhere."""
    return Profile(-INF, INF, INF, INF, INF, INF, depends=depends, rough=fault, wild=fault, partial=fault)


def join(first: Profile, second: Profile) -> Profile:
    """What holds of both."""
    return tidy(
        Profile(
            min(first.low, second.low),
            max(first.high, second.high),
            max(first.growth, second.growth),
            max(first.modulus, second.modulus),
            max(first.lipschitz, second.lipschitz),
            max(first.exponent, second.exponent),
            first.parity if first.parity == second.parity else 0,
            first.rises and second.rises,
            first.falls and second.falls,
            join_kinks(first.kinks, second.kinks),
            first.masked or second.masked,
            first.depends | second.depends,
            first.rough or second.rough,
            first.wild or second.wild,
            first.partial or second.partial,
            assumed(first, second),
            first.open or second.open,
        )
    )


def assumed(*parts: Profile) -> Assumes:
    """What all parts need of averages."""
    return tuple(dict.fromkeys(need for part in parts for need in part.assumes))


def meet(first: Profile, second: Profile) -> Profile:
    """What is known when both are certified of the same function; `second` brings range and regularity only."""
    both = tidy(
        first,
        low=max(first.low, second.low),
        high=min(first.high, second.high),
        growth=min(first.growth, second.growth),
        modulus=min(first.modulus, second.modulus),
        lipschitz=min(first.lipschitz, second.lipschitz),
        exponent=min(first.exponent, second.exponent),
        parity=first.parity or second.parity,
        rises=first.rises or second.rises,
        falls=first.falls or second.falls,
        kinks=min((k for k in (first.kinks, second.kinks) if k is not None), key=len, default=None),
        partial=None if second.partial is None else first.partial,
        wild=None if second.wild is None else first.wild,
    )
    alone = [one.assumes for one in (first, second) if _claims(one) == _claims(both)]
    return replace(both, assumes=min(alone, key=len, default=assumed(first, second)))


def join_kinks(*parts: Kinks) -> Kinks:
    """Kinks of a smooth function of several; None if those of one are not known, or if there are too many."""
    found: dict[Expr, set[float]] = {}
    for part in parts:
        if part is None:
            return None
        for expr, thresholds in part:
            found.setdefault(expr, set()).update(thresholds)
    if sum(map(len, found.values())) > MAX_KINKS:
        return None
    return tuple((expr, tuple(sorted(thresholds))) for expr, thresholds in found.items() if thresholds)


def _claims(p: Profile) -> tuple[object, ...]:
    """What assumptions may be needed for; constants of moduli and shapes never decide alone."""
    return p.low, p.high, p.growth, p.modulus, p.exponent, p.partial is None, p.rough is None, p.wild is None


def times(a: float, b: float) -> float:
    """Product in which 0 times inf is 0: an end of inf stands for every finite value."""
    return 0.0 if a == 0 or b == 0 else a * b


def compose(outer: Regularity, inner: Sequence[Profile], bound: Interval) -> Profile:
    """f(g1, g2, ...): growth gf gg, modulus mf gg + mg.

    Source    Sakai et al. 2025, Prop. 6
    """
    growth = max(p.growth for p in inner)
    modulus = max(p.modulus for p in inner)
    wildness = max(p.exponent for p in inner)
    if outer.growth < INF:
        exponent = 0.0 if outer.growth == 0 else wildness
    elif outer.exponent < INF:  # exp(C |g|**r) with |g| <= K (1 + |x|**growth)
        exponent = times(outer.exponent, growth)
    else:
        exponent = INF
    if outer.growth == 0 or (growth == 0 and min(outer.growth, outer.exponent) < INF):
        rise = 0.0  # a function without poles is bounded where its arguments are
    else:
        rise = outer.growth * growth if growth else INF
    total = INF if modulus == INF or outer.modulus == INF else times(outer.modulus, growth) + modulus
    return Profile(
        *bound,
        growth=rise,
        modulus=total,
        exponent=exponent,
        lipschitz=times(outer.lipschitz, sum(p.lipschitz for p in inner)),
    )


def same(a: Profile | None, b: Profile | None) -> bool:
    """Whether two profiles claim the same; faults and assumptions aside."""
    assert a is not None
    assert b is not None

    def claims(p: Profile) -> Profile:
        return replace(p, rough=None, wild=None, partial=None, assumes=(), masked=False)

    return claims(a) == claims(b) and (a.partial is None) == (b.partial is None)


def sum_parity(args: Sequence[Profile]) -> int:
    """Parity of a sum."""
    kept = [p.parity for p in args if not (p.constant and p.low == 0)]
    return kept[0] if kept and all(x == kept[0] for x in kept) else 0 if kept else 1


def product_trend(a: Profile, b: Profile) -> tuple[bool, bool]:
    """Whether a product rises, falls: f(y) g(y) - f(x) g(x) = (f(y) - f(x)) g(y) + f(x) (g(y) - g(x))."""

    def lifts(moving: Profile, other: Profile, up: bool) -> bool:
        rises, falls = (moving.rises, moving.falls) if up else (moving.falls, moving.rises)
        return (rises and falls) or (rises and other.low >= 0) or (falls and other.high <= 0)

    return lifts(a, b, True) and lifts(b, a, True), lifts(a, b, False) and lifts(b, a, False)


def product(a: Profile, b: Profile) -> Profile:
    """f g: growth adds; modulus max(g1 + m2, m1 + g2), where a bounded factor has growth 0.

    Source    Sakai et al. 2025, Lemma 7
    """
    low, high = hull(*(products(x, y) for x in a.interval for y in b.interval))
    growth = 0.0 if (a.constant and a.low == 0) or (b.constant and b.low == 0) else a.growth + b.growth
    # a factor that does not move (a constant, an average) adds no modulus
    parts = [
        g + m
        for g, m, moving in ((a.growth, b.modulus, b.depends), (b.growth, a.modulus, a.depends))
        if moving - {"average"}
    ]
    reach = [max(abs(p.low), abs(p.high)) for p in (a, b)]
    return Profile(
        low,
        high,
        growth,
        max(parts, default=0.0),
        times(reach[0], b.lipschitz) + times(reach[1], a.lipschitz),
        max(a.exponent, b.exponent),
        a.parity * b.parity,
        *product_trend(a, b),
        join_kinks(a.kinks, b.kinks),
    )


def shown(interval: Interval) -> str:
    """An interval as text."""
    low, high = interval
    left, right = "(" if low == -INF else "[", ")" if high == INF else "]"
    return f"{left}{low:g}, {high:g}{right}"


def shown_kinks(kinks: Kinks) -> str:
    """Kinks as text."""
    if kinks is None:
        return "not known"
    places = (f"{expr} = {', '.join(f'{t:g}' for t in thresholds)}" for expr, thresholds in kinks)
    return "; ".join(places) or "none"


# ---- monotonicity and kinks of atoms on an interval; functions move up "member by member" -----------

Moves = tuple[bool, bool]  # rises, falls


def _power(interval: Interval, exponent: float) -> Moves:
    # the derivative, exponent * x**(exponent - 1), has one sign on either side of 0
    low, high = interval
    whole, up = exponent == int(exponent), exponent >= 0
    if low >= 0 if up else low > 0:
        return up, not up
    if not whole:
        return False, False
    if exponent % 2:
        return up, not up and high < 0
    return not up and high < 0, up and high <= 0


def _valley(interval: Interval) -> Moves:
    return interval[0] >= 0, interval[1] <= 0


def _kinked(interval: Interval, slope: float) -> Moves:
    # slope `slope` below 0 and 1 above; elu's slope below 0 has the sign of alpha
    return slope >= 0 or interval[0] >= 0, slope <= 0 and interval[1] <= 0


# where monotonicity depends on the interval or on parameters
LOCAL: dict[str, Callable[..., Moves]] = {
    "abs": _valley,
    "gaussian": lambda interval: _valley(interval)[::-1],
    "power": _power,
    "leaky_relu": _kinked,
    "elu": _kinked,
}


def trend(atom: Atom, inner: Profile, params: Sequence[float]) -> Moves:
    """Whether an atom of one argument rises, falls as a function of all arguments."""
    local = LOCAL.get(atom.name)
    rises, falls = local(inner.interval, *params) if local else (atom.monotone > 0, atom.monotone < 0)
    return (
        (rises and inner.rises) or (falls and inner.falls) or (inner.rises and inner.falls),
        (rises and inner.falls) or (falls and inner.rises) or (inner.rises and inner.falls),
    )


def unary_kinks(atom: Atom, argument: Expr, inner: Profile, params: Sequence[float]) -> Kinks:
    """Kinks of an atom of one argument: its own where its argument can be, and those of the argument."""
    if atom.kinks is None:
        return None
    own = tuple(k for k in atom.kinks(*params) if math.isfinite(k) and inner.low <= k <= inner.high)
    return join_kinks(inner.kinks, ((argument, own),))


def crossing(sides: Sequence[Expr], args: Sequence[Profile]) -> Kinks:
    """Where two expressions can be equal: at a threshold of one if the other is a number, else where they cross."""
    (first, second), (a, b) = sides, args
    if a.high < b.low or b.high < a.low or not (a.depends or b.depends):
        return ()
    if _narrow(b):
        return ((first, (b.high,)),)
    return ((second, (a.high,)),) if _narrow(a) else ((Call("subtract", (first, second)), (0.0,)),)


def _narrow(p: Profile) -> bool:
    """Whether a value is one number, up to rounding."""
    return p.constant or (not p.depends and p.high - p.low <= 1e-14 * abs(p.high))


# which way each argument moves the value
SIGNS = {"add": (1, 1), "subtract": (1, -1), "minimum": (1, 1), "maximum": (1, 1)}


def moved(node: Call, args: Sequence[Profile], found: Profile) -> Profile:
    """Monotonicity and kinks of an operator of two arguments that is neither a product nor a quotient."""
    kinks = join_kinks(*(p.kinks for p in args))
    if node.atom not in ("add", "subtract", "logical_and", "logical_or"):
        kinks = join_kinks(kinks, crossing(node.args, args))
    signs = SIGNS.get(node.atom)
    if signs is None:
        return replace(found, kinks=kinks)
    ways = [(p.rises, p.falls) if sign > 0 else (p.falls, p.rises) for p, sign in zip(args, signs, strict=True)]
    return replace(found, rises=all(r for r, _ in ways), falls=all(f for _, f in ways), kinks=kinks)

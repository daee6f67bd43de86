"""Quotients of polynomials in one subexpression, or in exp of one: sigmoid, tanh and exp of its multiples among them.

Their values, signs and trends are those of polynomials with exact coefficients.  With x = exp(v), R(x) has the slope
x R'(x) in v: if R is bounded for x > 0 it has limits at 0 and inf, where x R'(x) -> 0, so it is Lipschitz in v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from tensorprog.check.certificates.knowledge import ONE, ZERO, Knowledge, Span, Undecided, increasing
from tensorprog.check.certificates.profile import Profile, compose, tidy
from tensorprog.check.relations import polynomials
from tensorprog.check.relations.factors import linear
from tensorprog.check.relations.polynomials import Poly
from tensorprog.language.atoms import Interval, Regularity
from tensorprog.language.expr import Call, Expr, walk

__all__ = ["keeps_sign", "rational"]

INF = math.inf
ARITHMETIC = ("negative", "add", "subtract", "multiply", "divide", "power")
CURVES = ("exp", "sigmoid", "tanh")
IDENTITY: Poly = (ZERO, ONE)


@dataclass(frozen=True)
class Curve:
    """top / bottom in x, which is an expression, or exp(scale * expression); `taken`: what must not be 0 beside."""

    top: Poly
    bottom: Poly
    taken: tuple[Poly, ...] = ()


@dataclass(frozen=True)
class Quotient:
    """A rational function of an expression v, or of exp(scale v), on the values that this takes."""

    function: Curve
    v: Expr
    scale: Fraction | None
    interval: Interval


def _quotient(known: Knowledge, expr: Expr) -> Quotient | None:
    """An expression as a rational function, with what is known of its argument; None if it is none."""
    return known.attempt("quotient", (expr,), lambda: _written(known, expr))


def _written(known: Knowledge, expr: Expr) -> Quotient | None:
    leaves = dict.fromkeys(_leaves(known, expr))
    if not leaves:
        return None
    curves = [leaf for leaf in leaves if isinstance(leaf, Call) and leaf.atom in CURVES]
    if len(curves) == len(leaves):
        found = _exponentials(known, curves)
        if found is not None:
            v, scale, values = found
            inner = known.of(v)
            if not inner.real:
                return None
            ends = _exp(inner.low * float(scale), 1 - 1e-12), _exp(inner.high * float(scale), 1 + 1e-12)
            return Quotient(_evaluated(known, expr, values), v, scale, ends)
    if len(leaves) > 1:
        return None
    (leaf,) = leaves
    if leaf == expr:
        return None
    inner = known.of(leaf)
    if not inner.real:
        return None
    return Quotient(_evaluated(known, expr, {leaf: Curve(IDENTITY, (ONE,))}), leaf, None, inner.interval)


def _exp(x: float, outwards: float) -> float:
    """exp of the end of an interval."""
    if x == 0 or math.isinf(x):
        return math.exp(x)
    return math.exp(x) * outwards if x < 600 else 1e260 if outwards < 1 else INF


def _leaves(known: Knowledge, expr: Expr) -> list[Expr]:
    """The subexpressions that arithmetic combines."""
    if known.span(expr) is not None:
        return []
    if isinstance(expr, Call) and expr.atom in ARITHMETIC:
        exponent = known.number(expr.args[1]) if expr.atom == "power" else 1.0
        if exponent is not None and exponent.is_integer() and abs(exponent) <= polynomials.MAX_DEGREE:
            args = expr.args[:1] if expr.atom == "power" else expr.args
            return [leaf for arg in args for leaf in _leaves(known, arg)]
    return [expr]


def _exponentials(known: Knowledge, curves: list[Call]) -> tuple[Expr, Fraction, dict[Expr, Curve]] | None:
    """exp, sigmoid and tanh of multiples of one v (and constants) as rational functions of x = exp(scale v)."""
    forms = [linear(known, curve.args[0]) for curve in curves]
    first = forms[0][0]
    if not first:
        return None
    if len(first) == 1:
        (v,), (unit,) = first, first.values()
    else:
        v, unit = curves[0].args[0], Fraction(1)
        if forms[0][1] != ZERO:
            return None
    pivot = next(iter(first))
    ratios = []
    for parts, _ in forms:
        ratio = parts.get(pivot, Fraction(0)) / first[pivot]
        if not ratio or parts != {x: ratio * a for x, a in first.items()}:
            return None
        ratios.append(ratio * unit)
    step = Fraction(math.gcd(*(r.numerator for r in ratios)), math.lcm(*(r.denominator for r in ratios)))
    values: dict[Expr, Curve] = {}
    for curve, ratio, (_, constant) in zip(curves, ratios, forms, strict=True):
        degree = ratio / step
        if degree.denominator > 1 or abs(degree) > polynomials.MAX_DEGREE // 2:
            return None
        values[curve] = _curve(curve.atom, int(degree), ONE if constant == ZERO else increasing(math.exp, constant))
    return v, step, values


def _curve(atom: str, degree: int, factor: Span) -> Curve:
    """exp(w), sigmoid(w) or tanh(w) with exp(w) = factor x**degree."""
    up, one = (*[ZERO] * abs(degree), ONE), (ONE,)
    top, bottom = (polynomials.scale(up, factor), one) if degree > 0 else ((factor,), up)
    if atom == "exp":
        return Curve(top, bottom)
    if atom == "sigmoid":
        return Curve(top, polynomials.add(top, bottom))
    top, bottom = polynomials.power(top, 2), polynomials.power(bottom, 2)
    return Curve(polynomials.add(top, polynomials.scale(bottom, -ONE)), polynomials.add(top, bottom))


def _evaluated(known: Knowledge, expr: Expr, values: dict[Expr, Curve]) -> Curve:
    number = known.span(expr)
    if number is not None:
        return Curve((number,) if number != ZERO else (), (ONE,))
    if expr in values:
        return values[expr]
    assert isinstance(expr, Call)
    f = _evaluated(known, expr.args[0], values)
    if expr.atom == "negative":
        return replace(f, top=polynomials.scale(f.top, -ONE))
    if expr.atom == "power":
        exponent = known.number(expr.args[1])
        assert exponent is not None
        parts = (f.top, f.bottom) if exponent >= 0 else (f.bottom, f.top)
        top, bottom = (polynomials.power(p, abs(int(exponent))) for p in parts)
        return Curve(top, bottom, (*f.taken, f.bottom))
    g = _evaluated(known, expr.args[1], values)
    taken = tuple(dict.fromkeys((*f.taken, *g.taken)))
    if expr.atom == "divide":
        top, bottom = polynomials.multiply(f.top, g.bottom), polynomials.multiply(f.bottom, g.top)
        return Curve(top, bottom, (*taken, g.bottom))
    if expr.atom == "multiply":
        return Curve(polynomials.multiply(f.top, g.top), polynomials.multiply(f.bottom, g.bottom), taken)
    sign = ONE if expr.atom == "add" else -ONE
    if f.bottom == g.bottom:
        return Curve(polynomials.add(f.top, polynomials.scale(g.top, sign)), f.bottom, taken)
    tops = polynomials.multiply(f.top, g.bottom), polynomials.multiply(g.top, f.bottom)
    top = polynomials.add(tops[0], polynomials.scale(tops[1], sign))
    return Curve(top, polynomials.multiply(f.bottom, g.bottom), taken)


def _bare(p: Poly) -> tuple[Poly, int]:
    """A polynomial without its factors x, and their number."""
    zeros = next((k for k, a in enumerate(p) if a != ZERO), 0)
    return p[zeros:], zeros


def _regular(found: Quotient) -> tuple[Poly, Poly, int] | None:
    """(P, Q, k) of x**k P / Q, where no denominator has a zero; None if one may have."""
    f = found.function
    (top, above), (bottom, below) = (f.top, 0), (f.bottom, 0)
    if found.scale is not None:  # x > 0
        (top, above), (bottom, below) = _bare(f.top), _bare(f.bottom)
    others = [_bare(p)[0] if found.scale is not None else p for p in f.taken]
    if any(polynomials.sign(p, *found.interval) == 0 for p in (bottom, *others)):
        return None
    return top, bottom, above - below


def keeps_sign(known: Knowledge, expr: Expr) -> int:
    """+1 or -1 if a rational function has that sign everywhere, 0 if not, or if it is none."""
    found = _quotient(known, expr)
    regular = None if found is None else _regular(found)
    if found is None or regular is None:
        return 0
    return polynomials.sign(regular[0], *found.interval) * polynomials.sign(regular[1], *found.interval)


def rational(known: Knowledge, node: Call) -> Profile | None:
    """Range, trend, growth and modulus of a rational function."""
    found = _quotient(known, node)
    if found is None:
        return None
    f = found.function
    plain = found.scale is None and len(f.top) <= 2 and len(f.bottom) <= 1
    if plain and sum(part == found.v for part in walk(node)) == 1:
        return None  # composition does as well
    regular = _regular(found)
    if regular is None:
        return None
    top, bottom, lifted = regular
    if lifted >= 0:
        top = (*[ZERO] * lifted, *top) if top else ()
    elif top:
        return None  # a pole at x = 0
    low, high = found.interval
    try:
        bound = polynomials.bounds(top, bottom, low, high)
        slope = polynomials.ratio_slope(top, bottom)
        way = polynomials.trend(slope, low, high)
    except Undecided:
        bound, slope, way = (-INF, INF), IDENTITY, 0
    inner = known.of(found.v)
    degree = float(len(top) - len(bottom)) if math.isinf(low) or math.isinf(high) else 0.0
    if found.scale is not None:
        if degree > 0:
            return None
        regularity = Regularity(0, 0, INF)
        way *= 1 if found.scale > 0 else -1
    else:
        regularity = Regularity(max(degree, 0.0), max(degree - 1, 0.0), INF)
    value = compose(regularity, [inner], bound)
    still = not slope
    rises, falls = (inner.rises, inner.falls) if way > 0 else (inner.falls, inner.rises)
    steady = way != 0 or (inner.rises and inner.falls)
    value = replace(value, rises=still or (steady and rises), falls=still or (steady and falls), kinks=inner.kinks)
    return tidy(replace(value, depends=inner.depends, assumes=inner.assumes))




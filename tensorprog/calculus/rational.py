"""Polynomials and quotients of polynomials in one subexpression, and monomials over sums of squares in many."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from tensorprog.atoms import Interval, Regularity
from tensorprog.calculus import polynomials
from tensorprog.calculus.matching import apart, factors, multiplied, same_up_to_indices
from tensorprog.calculus.polynomials import Poly
from tensorprog.calculus.profile import Fault, Profile, assumed, compose, product, tidy
from tensorprog.expr import Call, Expr, Number, Reduction

if TYPE_CHECKING:
    from tensorprog.calculus.composition import Composition

__all__ = ["Square", "monomial", "polynomial", "ratio", "rooted", "squares"]

INF = math.inf
LONGEST = 13  # coefficients of a polynomial


def polynomial(rules: Composition, expr: Expr) -> tuple[Expr | None, Poly]:
    """Write an expression as a polynomial in one subexpression (None: a number).

    Accuracy  exact, where numbers of the program are what their floating-point values are
    """
    number = rules.exact(expr)
    if number is not None:
        return None, polynomials.trim([number])
    if isinstance(expr, Call) and expr.atom in ("negative", "power", "add", "subtract", "multiply", "divide"):
        found = _combined(rules, expr)
        if found is not None and len(found[1]) <= LONGEST:
            return found
    if isinstance(expr, Call) and expr.atom == "abs" and rules.expression(expr.args[0], rules.at).low >= 0:
        return polynomial(rules, expr.args[0])
    return expr, (Fraction(0), Fraction(1))


def _combined(rules: Composition, expr: Call) -> tuple[Expr | None, Poly] | None:
    """An operator's result as a polynomial in one subexpression, if it is one."""
    u, a = polynomial(rules, expr.args[0])
    if expr.atom == "negative":
        return u, polynomials.scale(a, Fraction(-1))
    if expr.atom == "power":
        exponent = rules.number(expr.args[1])
        whole = exponent is not None and exponent in range(1, LONGEST) and (len(a) - 1) * exponent < LONGEST
        return (u, polynomials.power(a, int(exponent))) if whole and exponent is not None else None
    v, b = polynomial(rules, expr.args[1])
    if expr.atom == "divide":
        return (u, polynomials.scale(a, 1 / b[0])) if v is None and b else None
    if u is not None and v is not None and u != v:
        return None
    base = u if u is not None else v
    if expr.atom == "multiply":
        return base, polynomials.multiply(a, b)
    found = polynomials.add(a, b if expr.atom == "add" else polynomials.scale(b, Fraction(-1)))
    # what is left where terms cancel may be their rounding alone
    left = any(0 < abs(c) <= polynomials.ROUNDING * 100 * abs(x) for c, x in zip(found, a, strict=False))
    return None if left else (base, found)


def rooted(rules: Composition, expr: Expr) -> tuple[Expr, float]:
    """(Q, r) of an expression Q**r; r = 1 for others."""
    if isinstance(expr, Call) and expr.atom == "sqrt":
        return expr.args[0], 0.5
    exponent = rules.number(expr.args[1]) if isinstance(expr, Call) and expr.atom == "power" else None
    return (expr.children[0], exponent) if exponent is not None and exponent > 0 else (expr, 1.0)


def ratio(rules: Composition, top: Expr, bottom: Expr, power: float) -> Profile | None:
    """P(u) / Q(u)**power for polynomials with Q > 0 (or, for whole powers, without zeros) on the range of u."""
    (u, p), (v, q) = polynomial(rules, top), polynomial(rules, bottom)
    base = u if u is not None else v
    if base is None or (u is not None and v is not None and u != v) or not p or not q:
        return None
    if base in (top, bottom) and len(p) <= 2 and len(q) <= 2 and (u is None or v is None):
        return None  # composition does as well
    inner = rules.expression(base, rules.at)
    if not inner.real:
        return None
    low, high = inner.interval
    positive = polynomials.sign(q, low, high)
    if positive == 0 or (positive < 0 and not power.is_integer()):
        return None
    degree = len(p) - 1 - power * (len(q) - 1) if math.isinf(low) or math.isinf(high) else 0.0
    bound = _range(p, q, power, low, high)
    if isinstance(base, Call) and base.atom == "exp" and len(p) - 1 <= power * (len(q) - 1):
        # R(exp(v)): its slope in v is exp(v) R'(exp(v)), which is bounded as R is
        found = compose(Regularity(0, 0, INF), [rules.expression(base.args[0], rules.at)], bound)
    else:
        found = compose(Regularity(max(degree, 0.0), max(degree - 1, 0.0), INF), [inner], bound)
    # (P / Q**r)' = (P' Q - r P Q') / Q**(r + 1)
    fall = polynomials.scale(polynomials.multiply(p, polynomials.derive(q)), -Fraction(power))
    slope = polynomials.add(polynomials.multiply(polynomials.derive(p), q), fall)
    way = polynomials.trend(slope, low, high) * (-1 if positive < 0 and power % 2 == 0 else 1)
    rises, falls = (inner.rises, inner.falls) if way > 0 else (inner.falls, inner.rises)
    steady = way != 0 or (inner.rises and inner.falls)
    found = replace(found, rises=steady and rises, falls=steady and falls, kinks=inner.kinks)
    return tidy(replace(found, depends=inner.depends, assumes=inner.assumes))


def _range(p: Poly, q: Poly, power: float, low: float, high: float) -> Interval:
    """Range of P / Q**power, for powers 1, 2, ... and 1/2; composition does as well for others."""
    if power.is_integer() and power > 0 and (len(q) - 1) * power <= polynomials.MAX_DEGREE:
        return polynomials.bounds(p, polynomials.power(q, int(power)), low, high)
    if power != 0.5:
        return -INF, INF
    ends = polynomials.bounds(polynomials.power(p, 2), q, low, high)  # of the square
    least, most = math.nextafter(math.sqrt(max(ends[0], 0.0)), 0), math.nextafter(math.sqrt(ends[1]), INF)
    side = polynomials.sign(p, low, high)
    return (least, most) if side > 0 else (-most, -least) if side < 0 else (-most, most)


@dataclass(frozen=True)
class Square:
    """A term weight * base**2, for all members over some reduced indices."""

    weight: float
    base: Expr
    indices: tuple[str, ...] = ()


def monomial(rules: Composition, top: Expr, bottom: Expr, power: float) -> Profile | None:
    """x_1 ... x_d / Q**r with Q = c + sum_k a_k x_k**2: regular as |x|**(d - 2r), and smooth where c > 0.

    |x_k| <= sqrt(Q / a_k) and |dQ/dx| <= C sqrt(Q); so |f| <= C Q**(d/2 - r), |df/dx| <= C Q**((d-1)/2 - r).
    """
    found = squares(rules, bottom)
    if found is None:
        return None
    floor, terms = found
    taken: list[Square] = []
    rest: list[Expr] = []
    for factor in factors(top):
        for part, copies in ((factor, 1), _repeated(rules, factor)):
            match = next((s for s in terms if same_up_to_indices(rules, s.base, part, s.indices)), None)
            if match is not None:
                taken += [match] * copies
                break
        else:
            rest.append(factor)
    excess = len(taken) - 2 * power
    singular = floor == 0 and not (power <= 0 and excess >= 1)  # a norm is Lipschitz at 0 too
    if not terms or (singular and not (excess == 0 and isinstance(bottom, Reduction))):
        return None
    inner = [rules.expression(s.base, rules.at) for s in terms]
    other = rules.expression(multiplied(rest), rules.at)
    if not all(p.real for p in (*inner, other)):
        return None
    with np.errstate(all="ignore"):  # an infinite bound is no bound
        weights = np.prod([s.weight**-0.5 for s in taken]) * (np.float64(floor) ** (excess / 2) if excess else 1.0)
    reach = math.nextafter(float(weights) * (1 + 1e-9), INF) if excess <= 0 else INF
    share = tidy(compose(Regularity(max(excess, 0.0), max(excess - 1, 0.0)), inner, (-reach, reach)))
    depends = frozenset[str]().union(*(p.depends for p in inner))
    assumes = assumed(*inner, other)
    rough = None
    if singular:
        node = Call("divide", (top, Call("sqrt", (bottom,))))
        norm = re.sub(r"#\d+", "", str(node.args[1]))  # indices under the names they had before inlining
        share = replace(share, modulus=INF, relative=INF, lipschitz=INF)
        rough = Fault(node, rules.at, f"{node} is discontinuous where {norm} is 0")
        assumes = (*assumes, (f"{norm} is not 0, almost surely, in the limit", None))
    share = replace(share, depends=depends)
    whole = product(other, share) if rest else share
    return tidy(replace(whole, depends=depends | other.depends, rough=rough, assumes=assumes, kinks=None))


def squares(rules: Composition, expr: Expr) -> tuple[float, list[Square]] | None:
    """(c, squares) of an expression that is at least c >= 0 plus the squares, and no more than a multiple of that."""
    constant = rules.closed(expr)
    if constant is not None:
        return (constant[0], []) if constant[0] >= 0 else None
    if isinstance(expr, Call) and expr.atom == "add":
        parts = [squares(rules, arg) for arg in expr.args]
        first, second = parts
        return None if first is None or second is None else (first[0] + second[0], first[1] + second[1])
    if isinstance(expr, Reduction) and expr.reducer in ("sum", "mean"):
        inner = squares(rules, expr.arg)
        count = rules.count(expr)
        floor, weight = (count, 1.0) if expr.reducer == "sum" else (1, 1 / count)
        return None if inner is None else (
            inner[0] * floor, [replace(s, weight=s.weight * weight, indices=s.indices + expr.indices) for s in inner[1]]
        )
    if not isinstance(expr, Call):
        return None
    if expr.atom == "subtract":
        return _variance(rules, *expr.args)
    square = _root(rules, expr)
    if square is not None:
        return 0.0, [Square(1.0, square)]
    if expr.atom in ("multiply", "divide"):
        for inner_expr, other in (expr.args, expr.args[::-1])[: 2 if expr.atom == "multiply" else 1]:
            factor = rules.closed(other if expr.atom == "multiply" else Call("divide", (Number(1), other)))
            inner = squares(rules, inner_expr)
            if factor is not None and factor[0] > 0 and inner is not None:
                return inner[0] * factor[0], [replace(s, weight=s.weight * factor[0]) for s in inner[1]]
    return None


def _variance(rules: Composition, second: Expr, first: Expr) -> tuple[float, list[Square]] | None:
    """mean x**2 - (mean x)**2 = mean (x - mean x)**2, where further terms may be added to the first."""
    if isinstance(second, Call) and second.atom == "add":
        for one, other in (second.args, second.args[::-1]):
            spread, rest = _variance(rules, one, first), squares(rules, other)
            if spread is not None and rest is not None:
                return rest[0], spread[1] + rest[1]
    average = _root(rules, first) if isinstance(first, Call) else None
    x = _root(rules, second.arg) if isinstance(second, Reduction) and isinstance(second.arg, Call) else None
    if x is None or average is None or not isinstance(second, Reduction) or second.reducer != "mean":
        return None
    if not same_up_to_indices(rules, average, Reduction("mean", second.indices, x), ()):
        return None
    centred = Call("subtract", (x, apart(rules, average, second.indices)))
    return 0.0, [Square(1 / rules.count(second), centred, second.indices)]


def _repeated(rules: Composition, expr: Expr) -> tuple[Expr, int]:
    """(x, k) of an expression x**k with a small whole k; k = 1 for others."""
    exponent = rules.number(expr.args[1]) if isinstance(expr, Call) and expr.atom == "power" else None
    return (expr.children[0], int(exponent)) if exponent is not None and exponent in range(2, LONGEST) else (expr, 1)


def _root(rules: Composition, expr: Call) -> Expr | None:
    """x of an expression x**2, x * x or x**(2k), which is (x**k)**2."""
    if expr.atom == "multiply" and expr.args[0] == expr.args[1]:
        return expr.args[0]
    exponent = rules.number(expr.args[1]) if expr.atom == "power" else None
    if exponent is None or exponent <= 0 or exponent % 2:
        return None
    return expr.args[0] if exponent == 2 else Call("power", (expr.args[0], Number(int(exponent) // 2)))

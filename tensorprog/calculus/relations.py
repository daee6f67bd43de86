"""Relations that composition cannot see: 1 / (1 + exp(-x)) is a sigmoid, u / (1 + u**2) is bounded.

Each function gives the facts of an expression it recognises, or None: "not mine".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from tensorprog.atoms import Regularity
from tensorprog.calculus.matching import apart, factors, multiplied, put, summands
from tensorprog.calculus.polynomials import Poly
from tensorprog.calculus.positive import bounded_above, logarithm, share, weight
from tensorprog.calculus.profile import Profile, assumed, compose, join, join_kinks, meet, tidy
from tensorprog.calculus.rational import monomial, polynomial, ratio, rooted
from tensorprog.expr import Call, Expr, Number, Reduction, variables, walk

if TYPE_CHECKING:
    from tensorprog.calculus.composition import Composition

__all__ = ["identity"]

INF = math.inf
ZERO = Number(0)
LIMITS = {"sigmoid": (0, 1), "tanh": (-1, 1), "erf": (-1, 1), "gaussian": (0, 0), "exp": (0, INF)}  # at -inf and inf
POLYNOMIALS = ("multiply", "add", "subtract", "power")


def identity(rules: Composition, node: Call) -> Profile | None:
    """Facts that hold by a relation between the arguments, e.g. u / (1 + u**2) is bounded."""
    relation = RELATIONS.get(node.atom)
    found = relation(rules, node) if relation is not None else None
    return _both(found, _polynomial(rules, node)) if node.atom in POLYNOMIALS else found


def _polynomial(rules: Composition, node: Call) -> Profile | None:
    base, c = polynomial(rules, node)
    if base is None or base == node:
        return None
    if len(c) > 2:
        return ratio(rules, node, Number(1), 1.0)
    return _line(rules, base, c) if sum(part == base for part in walk(node)) > 1 else None


def _line(rules: Composition, base: Expr, c: Poly) -> Profile | None:
    """A polynomial of degree 1 or 0 that terms of higher degree left: (u + 1)**2 - u**2 - 2 * u is 1."""
    inner = rules.expression(base, rules.at)
    if not inner.real:
        return None
    start, slope = (Number(float(x)) for x in (*c, 0, 0)[:2])
    line = Call("add", (start, Call("multiply", (slope, base)))) if slope.value else start
    return _with(inner, rules.expression(line, rules.at))


def _divide(rules: Composition, node: Call) -> Profile | None:
    top, bottom = node.args
    if isinstance(bottom, Call) and bottom.atom == "exp":
        return rules.expression(multiplied([top, Call("exp", (Call("negative", bottom.args),))]), rules.at)
    curve = logistic(rules, bottom)
    if curve is not None:
        base, line = polynomial(rules, bottom)
        over, top_line = polynomial(rules, top)
        if over == base and len(top_line) == 2:
            # (a + b E) / (c + d E) = b/d + (a/c - b/d) c / (c + d E)
            (a, b), (c, d) = top_line, line
            rise = Call("multiply", (Number(float(a - b * c / d)), curve))
            return rules.expression(Call("add", (Number(float(b / d)), rise)), rules.at)
        return rules.expression(Call("multiply", (top, curve)), rules.at)
    return _both(halves(rules, node) or quotient(rules, top, *rooted(rules, bottom)), parts(rules, top, bottom))


def _both(*found: Profile | None) -> Profile | None:
    """What is known from all relations that apply."""
    known = [p for p in found if p is not None]
    return functools.reduce(meet, known) if known else None


def parts(rules: Composition, top: Expr, bottom: Expr) -> Profile | None:
    """A quotient whose numerator, or a part of it, has to do with the denominator."""
    if rules.closed(bottom) is not None:
        return None
    base = polynomial(rules, rooted(rules, bottom)[0])[0]
    near = [x for x in factors(top) if polynomial(rules, x)[0] in (None, base)]
    if any(variables(x) for x in near) and len(near) < len(factors(top)):
        rest = [x for x in factors(top) if x not in near]
        return rules.expression(multiplied([*rest, Call("divide", (multiplied(near), bottom))]), rules.at)
    written = weight(rules, top, bottom)
    shared = share(rules, top, bottom)
    if isinstance(top, Reduction) and top.reducer in ("sum", "mean"):
        under = apart(rules, bottom, top.indices)
        if share(rules, top.arg, under) is not None:
            shared = rules.reduce(Reduction(top.reducer, top.indices, Call("divide", (top.arg, under))))
    return _both(None if written is None else rules.expression(written, rules.at), shared)


def _log(rules: Composition, node: Call) -> Profile | None:
    """log sum_k exp(v_k): between the largest v_k and log count more, with slopes that are weights."""
    logs = [logarithm(rules, term) for term in summands(node.args[0])]
    if None in logs:
        whole = logarithm(rules, node.args[0])
        return None if whole is None else rules.expression(whole, rules.at)
    if logs == [node]:
        return _log_softplus(rules, node)
    inner = [rules.expression(v, rules.at) for v in logs if v is not None]
    if any(p.masked for p in inner):  # log 0
        return None
    one = inner[0]
    for other in inner[1:]:
        low, high = (float(np.logaddexp(a, b)) for a, b in zip(one.interval, other.interval, strict=True))
        one = replace(
            compose(Regularity(1, 0, 1.0), [one, other], (low, high)),
            rises=one.rises and other.rises,
            falls=one.falls and other.falls,
            kinks=join_kinks(one.kinks, other.kinks),
            depends=one.depends | other.depends,
            assumes=assumed(one, other),
            partial=one.partial or other.partial,
        )
    return tidy(one)


def _log_softplus(rules: Composition, node: Call) -> Profile | None:
    """log softplus(v): rises with slopes up to 1, between v - exp(v) / 2 and v."""
    (curve,) = node.args
    inner = rules.expression(curve.children[0], rules.at)
    if inner.masked:
        return None
    low, high = (x if x < -30 else math.log(np.logaddexp(x, 0.0)) for x in inner.interval)
    found = compose(Regularity(1, 0, 1.0), [inner], (low - 1e-12, high + 1e-12))
    return tidy(replace(found, rises=inner.rises, falls=inner.falls, kinks=inner.kinks, depends=inner.depends,
                        assumes=inner.assumes, partial=inner.partial))


def _subtract(rules: Composition, node: Call) -> Profile | None:
    """x - L <= c where x is one of the terms whose largest, or whose log sum exp, is L."""
    first, second = node.args
    high, low = bounded_above(rules, first, second), -bounded_above(rules, second, first)
    if high == INF and low == -INF:
        return None
    found = rules.call(node)
    return tidy(replace(found, low=max(found.low, low), high=min(found.high, high)))


def _magnitude(rules: Composition, node: Call) -> Profile | None:
    """abs, relu of what has a sign."""
    reach = rules.expression(node.args[0], rules.at)
    if reach.low >= 0:
        return reach
    negated = node.atom == "abs" and reach.high <= 0
    return rules.expression(Call("negative", node.args), rules.at) if negated else None


def _sqrt(rules: Composition, node: Call) -> Profile | None:
    base, c = polynomial(rules, node.args[0])
    if base is not None and len(c) == 3 and c[0] == c[1] == 0 < c[2]:
        return rules.call(Call("multiply", (Number(math.sqrt(c[2])), Call("abs", (base,)))))
    return quotient(rules, Number(1), node.args[0], -0.5)


def _power(rules: Composition, node: Call) -> Profile | None:
    exponent = rules.number(node.args[1])
    if exponent is None or (exponent >= 0 and exponent.is_integer()):
        return None
    return quotient(rules, Number(1), node.args[0], -exponent)


def _multiply(rules: Composition, node: Call) -> Profile | None:
    curves: list[Expr] = []
    rest: list[Expr] = []
    for factor in factors(node):
        (curves if isinstance(factor, Call) and factor.atom == "exp" else rest).append(factor)
    if len(curves) > 1:
        total = functools.reduce(lambda a, b: Call("add", (a, b)), (curve.children[0] for curve in curves))
        return rules.expression(multiplied([*rest, Call("exp", (total,))]), rules.at)
    return _both(switched(rules, node), gated(rules, node), powers(rules, node), halves(rules, node))


def gated(rules: Composition, node: Call) -> Profile | None:
    """sign(u) f or step(u) f, where f is 0 at u = 0: its branches agree there."""
    gates = [x for x in factors(node) if isinstance(x, Call) and x.atom in ("sign", "step") and variables(x)]
    if len(gates) != 1:
        return None
    (gate,) = gates
    (u,) = gate.args
    rest = multiplied([x for x in factors(node) if x is not gate])
    if rules.number(put(rest, u, ZERO)) != 0:
        return None
    other = Call("negative", (rest,)) if gate.atom == "sign" else Number(0)
    return rules.expression(Call("where", (Call("greater", (u, Number(0))), rest, other)), rules.at)


def _where(rules: Composition, node: Call) -> Profile | None:
    """where(c, exp(x - y), 0), c about indices, is exp(where(c, x, -inf) - y): the masks of x may be those of y."""
    parts = [_masked_exponent(factor) for factor in factors(node)]
    if all(part is None for part in parts):
        return None
    written = multiplied([factor if part is None else part for part, factor in zip(parts, factors(node), strict=True)])
    return rules.expression(written, rules.at)


def _masked_exponent(factor: Expr) -> Expr | None:
    if not (isinstance(factor, Call) and factor.atom == "where" and factor.args[2] == ZERO):
        return None
    condition, curve, _ = factor.args
    if variables(condition) or not (isinstance(curve, Call) and curve.atom == "exp"):
        return None
    exponent = curve.args[0]
    if not (isinstance(exponent, Call) and exponent.atom == "subtract"):
        return None
    first, second = exponent.args
    return Call("exp", (Call("subtract", (Call("where", (condition, first, Number(-INF))), second)),))


def _exp(rules: Composition, node: Call) -> Profile | None:
    """exp(a + b log(x)) is exp(a) x**b."""
    log, line = polynomial(rules, node.args[0])
    if not (isinstance(log, Call) and log.atom == "log" and len(line) == 2):
        return None
    inner = rules.expression(log, rules.at)
    if not inner.real:
        return None
    power = Call("power", (log.args[0], Number(float(line[1]))))
    start = Call("exp", (Number(float(line[0])),))
    return _with(inner, rules.expression(Call("multiply", (start, power)) if line[0] else power, rules.at))


def _with(inner: Profile, found: Profile) -> Profile:
    """What is known of another form of an expression, with what the parts of the first form need."""
    return replace(found, assumes=assumed(inner, found))


RELATIONS: dict[str, Callable[[Composition, Call], Profile | None]] = {
    "divide": _divide, "log": _log, "sqrt": _sqrt, "power": _power, "multiply": _multiply, "subtract": _subtract,
    "exp": _exp, "abs": _magnitude, "relu": _magnitude, "where": _where,
}


def quotient(rules: Composition, top: Expr, bottom: Expr, power: float) -> Profile | None:
    """top / bottom**power as a function of one subexpression, or of the squares in the denominator."""
    return _both(ratio(rules, top, bottom, power), monomial(rules, top, bottom, power))


def logistic(rules: Composition, bottom: Expr) -> Expr | None:
    """1 / (c + d exp(v)), c and d positive, as a sigmoid."""
    base, coefficients = polynomial(rules, bottom)
    if len(coefficients) != 2 or min(coefficients) <= 0 or not (isinstance(base, Call) and base.atom == "exp"):
        return None
    c, d = coefficients
    inner = Call("subtract", (Number(math.log(c / d)), base.args[0]))
    u, line = polynomial(rules, inner)
    if u is not None and len(line) == 2 and line[0] == 0 and line[1] == 1:
        inner = u  # type: ignore[assignment]
    return Call("multiply", (Number(float(1 / c)), Call("sigmoid", (inner,))))


def halves(rules: Composition, node: Call) -> Profile | None:
    """P(u, abs(u)) / Q(u, abs(u)): what holds for u >= 0 and for u <= 0, because both agree at 0."""
    inner = next((n for n in walk(node) if isinstance(n, Call) and n.atom == "abs"), None)
    if inner is None:
        return None
    u = inner.args[0]
    if variables(put(node, u, ZERO)) or inner in walk(put(node, inner, u)):
        return None  # not a function of u alone, or of it at other members
    reach = rules.expression(u, rules.at)
    sides = []
    for value, half in ((u, (0.0, INF)), (Call("negative", (u,)), (-INF, 0.0))):
        if reach.low <= half[1] and half[0] <= reach.high:
            sides.append(rules.within(put(node, inner, value), {u: half}))
    if any(p.partial or p.modulus == INF for p in sides):
        return None
    found = functools.reduce(join, sides)
    return replace(found, parity=0, kinks=join_kinks(found.kinks, ((u, (0.0,)),)))


def powers(rules: Composition, node: Call) -> Profile | None:
    """abs(u)**d or u abs(u)**(d - 1), from factors that are powers of u or abs(u): of slope d abs(u)**(d - 1)."""
    base: Expr | None = None
    degree = 0.0
    for factor in factors(node):
        if rules.closed(factor) is not None:
            continue
        x, exponent = rooted(rules, factor)
        positive = isinstance(x, Call) and x.atom == "abs"
        u = x.children[0] if positive else x
        if (base is not None and u != base) or not (positive or exponent.is_integer()):
            return None
        base, degree = u, degree + exponent
    if base is None or degree < 1:
        return None
    inner = rules.expression(base, rules.at)
    if not inner.real:
        return None
    found = compose(Regularity(degree, degree - 1, INF), [inner], (-INF, INF))
    return tidy(replace(found, depends=inner.depends, assumes=inner.assumes))


def switched(rules: Composition, node: Call) -> Profile | None:
    """P(u) s(u): slope of degree deg P - 1, because u**k s'(u) is bounded; bounded if s vanishes at the ends.

    s is a product of polynomials in sigmoid, tanh, erf, gaussian of a u + b, and of exp(q(u)) with a polynomial q that
    goes to -inf; all of them come to their limits faster than any power of u grows.
    """
    rest: list[Expr] = []
    curves: list[tuple[Call, Poly]] = []
    for factor in factors(node):
        base, c = polynomial(rules, factor)
        if isinstance(base, Call) and base.atom in LIMITS:
            curves.append((base, c))
        else:
            rest.append(factor)
    u, p = polynomial(rules, multiplied(rest))
    if u is None or not curves or not p or any(polynomial(rules, curve.args[0])[0] != u for curve, _ in curves):
        return None
    inner = rules.expression(u, rules.at)
    if not inner.real:
        return None
    ends = [end for end in inner.interval if math.isinf(end)]
    limits = [[_limit(rules, curve, c, end) for curve, c in curves] for end in ends]
    if any(math.isinf(limit) for at_end in limits for limit in at_end):
        return None
    degree = 0.0 if all(0 in at_end for at_end in limits) else float(len(p) - 1)
    found = replace(compose(Regularity(degree, max(degree - 1, 0.0)), [inner], (-INF, INF)), kinks=inner.kinks)
    return tidy(replace(found, depends=inner.depends, assumes=inner.assumes))


def _limit(rules: Composition, curve: Call, c: Poly, end: float) -> float:
    """The limit of a polynomial in sigmoid, tanh, .. of a polynomial in u, as u goes to one end; inf if it grows."""
    _, q = polynomial(rules, curve.args[0])
    if len(q) < 2 or (curve.atom != "exp" and len(q) > 2):
        return INF
    way = math.copysign(1, q[-1]) * (math.copysign(1, end) if len(q) % 2 == 0 else 1)
    value = LIMITS[curve.atom][way > 0]
    return INF if math.isinf(value) else float(sum(a * Fraction(value) ** k for k, a in enumerate(c)))

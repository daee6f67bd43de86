"""Relations that composition cannot see: 1 / (1 + exp(-x)) is a sigmoid, u / (1 + u**2) is bounded.

Each function gives the facts of an expression it recognises, or None: "not mine".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tensorprog.atoms import Regularity
from tensorprog.calculus.matching import factors, multiplied, same_up_to_indices, summands
from tensorprog.calculus.profile import Profile, compose, join, join_kinks, meet, tidy
from tensorprog.calculus.rational import monomial, polynomial, ratio, rooted
from tensorprog.expr import Call, Expr, Number, Reduction, rebuild, variables, walk

if TYPE_CHECKING:
    from tensorprog.calculus.composition import Composition

__all__ = ["identity"]

INF = math.inf
SWITCHES = ("sigmoid", "tanh", "erf")  # bounded, with derivatives that decay faster than any power


def identity(rules: Composition, node: Call) -> Profile | None:
    """Facts that hold by a relation between the arguments, e.g. u / (1 + u**2) is bounded."""
    relation = RELATIONS.get(node.atom)
    found = relation(rules, node) if relation is not None else None
    if found is None and node.atom in ("multiply", "add", "subtract", "power"):
        base, c = polynomial(rules, node)
        if base is not None and base != node and len(c) > 2:
            return ratio(rules, node, Number(1), 1.0)
    return found


def _divide(rules: Composition, node: Call) -> Profile | None:
    top, bottom = node.args
    if isinstance(bottom, Call) and bottom.atom == "exp":
        return rules.expression(multiplied([top, Call("exp", (Call("negative", bottom.args),))]), rules.at)
    average = weighted(rules, top, bottom)
    if average is not None:
        return average
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
    return halves(rules, node) or quotient(rules, top, *rooted(rules, bottom))


def _log(rules: Composition, node: Call) -> Profile | None:
    """log sum_k exp(v_k): between the largest v_k and log count more, with slopes that are weights."""
    exponents = [_exponent(rules, term) for term in summands(node.args[0])]
    inner = [rules.expression(v, rules.at) for v in exponents if v is not None]
    if len(inner) < len(exponents) or any(p.masked for p in inner):
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
            assumes=tuple(dict.fromkeys(one.assumes + other.assumes)),
            partial=one.partial or other.partial,
        )
    return tidy(one)


def _exponent(rules: Composition, term: Expr) -> Expr | None:
    """v of a term exp(v): a positive number, a multiple of exp, a sum of exp over indices."""
    parts = factors(term)
    curves = [part for part in parts if isinstance(part, Call) and part.atom == "exp"]
    weights = [rules.number(part) for part in parts if part not in curves]
    if isinstance(term, Reduction) and term.reducer in ("sum", "mean"):
        inner = _exponent(rules, term.arg)
        count = math.prod(rules.ranges[name][1] - rules.ranges[name][0] for name in term.indices)
        shift = -math.log(count) if term.reducer == "mean" else 0.0
        return None if inner is None else Call("add", (Number(shift), Reduction("logsumexp", term.indices, inner)))
    if any(w is None or w <= 0 for w in weights):
        return None
    shift = sum(math.log(w) for w in weights if w is not None)
    total: Expr = Number(shift)
    for k, curve in enumerate(curves):
        total = curve.children[0] if k == 0 and shift == 0 else Call("add", (total, curve.children[0]))
    return total


def _sqrt(rules: Composition, node: Call) -> Profile | None:
    base, c = polynomial(rules, node.args[0])
    if base is not None and len(c) == 3 and c[0] == c[1] == 0 < c[2]:
        return rules.call(Call("multiply", (Number(math.sqrt(c[2])), Call("abs", (base,)))))
    return quotient(rules, Number(1), node.args[0], -0.5)


def _power(rules: Composition, node: Call) -> Profile | None:
    exponent = rules.number(node.args[1])
    return quotient(rules, Number(1), node.args[0], -exponent) if exponent is not None and exponent < 0 else None


def _multiply(rules: Composition, node: Call) -> Profile | None:
    curves: list[Expr] = []
    rest: list[Expr] = []
    for factor in factors(node):
        (curves if isinstance(factor, Call) and factor.atom == "exp" else rest).append(factor)
    if len(curves) > 1:
        total = functools.reduce(lambda a, b: Call("add", (a, b)), (curve.children[0] for curve in curves))
        return rules.expression(multiplied([*rest, Call("exp", (total,))]), rules.at)
    return switched(rules, node)


RELATIONS: dict[str, Callable[[Composition, Call], Profile | None]] = {
    "divide": _divide, "log": _log, "sqrt": _sqrt, "power": _power, "multiply": _multiply,
}


def quotient(rules: Composition, top: Expr, bottom: Expr, power: float) -> Profile | None:
    """top / bottom**power as a function of one subexpression, or of the squares in the denominator."""
    found = [p for p in (ratio(rules, top, bottom, power), monomial(rules, top, bottom, power)) if p is not None]
    return functools.reduce(meet, found) if found else None


def weighted(rules: Composition, top: Expr, bottom: Expr) -> Profile | None:
    """exp(u_j) / sum_k exp(u_k), or a sum of such weights times anything: softmax written by hand."""
    if not (
        isinstance(bottom, Reduction)
        and bottom.reducer == "sum"
        and isinstance(bottom.arg, Call)
        and bottom.arg.atom == "exp"
    ):
        return None
    if isinstance(top, Reduction) and top.reducer == "sum":
        for factor in factors(top.arg):
            if same_up_to_indices(rules, bottom.arg, factor, bottom.indices):
                rest = multiplied([other for other in factors(top.arg) if other is not factor])
                return rules.reduce(
                    Reduction("sum", top.indices, Call("multiply", (Call("divide", (factor, bottom)), rest)))
                )
        return None
    if isinstance(top, Call) and same_up_to_indices(rules, bottom.arg, top, bottom.indices):
        return rules.reduce(Reduction("softmax", bottom.indices, bottom.arg.args[0]))
    return None


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
    if variables(rebuild(node, lambda n: Number(0) if n == u else None)):
        return None  # not a function of u alone
    reach = rules.expression(u, rules.at)
    sides = []
    for value, half in ((u, (0.0, INF)), (Call("negative", (u,)), (-INF, 0.0))):
        if reach.low <= half[1] and half[0] <= reach.high:
            signed = rebuild(node, functools.partial(lambda n, value: value if n == inner else None, value=value))
            sides.append(rules.within(signed, {u: half}))
    if any(p.partial or p.modulus == INF for p in sides):
        return None
    found = functools.reduce(join, sides)
    return replace(found, parity=0, kinks=join_kinks(found.kinks, ((u, (0.0,)),)))


def switched(rules: Composition, node: Call) -> Profile | None:
    """P(u) s(u): slope of degree deg P - 1, because u**k s'(u) is bounded; bounded for a Gaussian factor.

    s is a product of sigmoid, tanh, erf of a u + b, or of 1 + such a function; or gaussian(a u + b), exp(-u**2).
    """
    rest: list[Expr] = []
    switches: list[Expr] = []
    decays: list[Expr] = []
    for factor in factors(node):
        base, c = polynomial(rules, factor)
        if isinstance(base, Call) and base.atom in SWITCHES and len(c) == 2:
            switches.append(base.args[0])
        elif isinstance(base, Call) and base.atom == "gaussian" and len(c) == 2 and c[0] == 0:
            decays.append(base.args[0])
        elif isinstance(base, Call) and base.atom == "exp" and len(c) == 2 and c[0] == 0:
            _, q = polynomial(rules, base.args[0])
            if not (len(q) == 3 and q[2] < 0):
                return None
            decays.append(base.args[0])
        else:
            rest.append(factor)
    if not switches and not decays:
        return None
    u, p = polynomial(rules, multiplied(rest))
    bases = {polynomial(rules, arg)[0] for arg in (*switches, *decays)}
    if u is None or bases != {u} or any(len(polynomial(rules, arg)[1]) != 2 for arg in switches):
        return None
    if not p or any(len(polynomial(rules, arg)[1]) < 2 for arg in decays):
        return None
    inner = rules.expression(u, rules.at)
    if inner.masked or inner.partial:
        return None
    degree = float(len(p) - 1)
    regularity = Regularity(0, 0) if decays else Regularity(degree, max(degree - 1, 0.0))
    found = replace(compose(regularity, [inner], (-INF, INF)), kinks=inner.kinks)
    return tidy(replace(found, depends=inner.depends, assumes=inner.assumes))

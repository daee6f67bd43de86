"""Positive expressions by their logarithms, differences with a sign, quotients of a term by a sum that holds it.

Weights of attention written by hand are exp(u - L) with L the logarithm of their sum, of which u is a term: u <= L.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorprog.calculus.matching import apart, factors, multiplied, same_up_to_indices, summands
from tensorprog.calculus.profile import Profile, assumed, join_kinks, product, product_parity, tidy
from tensorprog.calculus.rational import squares
from tensorprog.expr import Call, Expr, Number, Reduction, variables

if TYPE_CHECKING:
    from tensorprog.calculus.composition import Composition

__all__ = ["bounded_above", "logarithm", "share", "weight"]

INF = math.inf
ZERO, ONE = Number(0), Number(1)


def _log(x: Expr) -> Expr:
    return Call("log", (x,))


# logarithms of positive functions, none of them steeper than its argument; log softplus has no simpler form
LOGARITHMS: dict[str, Callable[[Expr], Expr]] = {
    "exp": lambda v: v,
    "sigmoid": lambda v: Call("negative", (Call("softplus", (Call("negative", (v,)),)),)),
    "softplus": lambda v: _log(Call("softplus", (v,))),
}


def logarithm(rules: Composition, expr: Expr) -> Expr | None:
    """The logarithm of an expression of positive parts, in which no part is steeper than the arguments."""
    number = rules.number(expr)
    if number is not None:
        return Number(math.log(number)) if number > 0 else Number(-INF) if number == 0 else None
    interval = rules.closed(expr)
    if interval is not None:
        return _numbers(expr, interval[0])
    if isinstance(expr, Reduction):
        return _reduced(rules, expr)
    if not isinstance(expr, Call):
        return None
    if expr.atom in LOGARITHMS:
        return LOGARITHMS[expr.atom](expr.args[0])
    if expr.atom == "where":
        condition, *branches = expr.args
        parts = None if variables(condition) else _all(rules, branches)
        return None if parts is None else Call("where", (condition, *parts))
    if expr.atom == "power":
        exponent, inner = rules.number(expr.args[1]), logarithm(rules, expr.args[0])
        return Call("multiply", (Number(exponent), inner)) if inner is not None and exponent is not None else None
    if expr.atom not in ("multiply", "divide", "add", "minimum", "maximum"):
        return None
    if expr.atom == "add":
        return _summed(rules, expr)
    parts = _all(rules, expr.args)
    if parts is None:
        return None
    return Call({"multiply": "add", "divide": "subtract"}.get(expr.atom, expr.atom), parts)


def _numbers(expr: Expr, least: float) -> Expr | None:
    """The logarithm of numbers that are not negative; 0 is a mask."""
    if least > 0:
        return _log(expr)
    seen = Call("greater", (expr, ZERO))
    return Call("where", (seen, _log(Call("where", (seen, expr, ONE))), Number(-INF))) if least == 0 else None


def _all(rules: Composition, exprs: Sequence[Expr]) -> tuple[Expr, ...] | None:
    """Logarithms of all; None if one has none."""
    found = tuple(logarithm(rules, x) for x in exprs)
    return None if None in found else tuple(x for x in found if x is not None)


def _reduced(rules: Composition, expr: Reduction) -> Expr | None:
    if expr.reducer == "softmax" and not expr.at:
        return Call("subtract", (expr.arg, apart(rules, Reduction("logsumexp", expr.indices, expr.arg), expr.indices)))
    inner = logarithm(rules, expr.arg) if expr.reducer in ("sum", "mean", "max") else None
    if inner is None or (rules.expression(inner, rules.at).masked and not _everywhere(rules, expr.indices, inner)):
        return None
    found = Reduction("max" if expr.reducer == "max" else "logsumexp", expr.indices, inner)
    return Call("subtract", (found, Number(math.log(rules.count(expr))))) if expr.reducer == "mean" else found


def _everywhere(rules: Composition, indices: tuple[str, ...], masked: Expr) -> bool:
    """Whether at every member some entry is not masked: else the sum is 0 there, and has no logarithm."""
    return rules.number(Reduction("max", indices, _present(rules, masked))) == 1


def _present(rules: Composition, expr: Expr) -> Expr:
    """1 where an expression is surely not masked, else 0."""
    if not isinstance(expr, Call):
        return ZERO if rules.expression(expr, rules.at).masked else ONE
    parts = [_present(rules, arg) for arg in expr.args]
    if expr.atom == "where" and not variables(expr.args[0]):
        return Call("where", (expr.args[0], *parts[1:]))
    return multiplied([part for part in parts if part != ONE])


def _summed(rules: Composition, expr: Call) -> Expr | None:
    """The logarithm of a sum, as one of exponentials; of elu(v) + 1, which is exp(v) below 0."""
    for curve, one in (expr.args, expr.args[::-1]):
        if isinstance(curve, Call) and curve.atom == "elu" and {rules.number(x) for x in (*curve.params, one)} == {1.0}:
            (v,) = curve.arguments
            return Call("add", (Call("minimum", (v, ZERO)), _log(Call("add", (ONE, Call("relu", (v,)))))))
    parts = _all(rules, summands(expr))
    if parts is None:
        return None
    total: Expr = Call("exp", (parts[0],))
    for part in parts[1:]:
        total = Call("add", (total, Call("exp", (part,))))
    return _log(total)


def weight(rules: Composition, top: Expr, bottom: Expr) -> Expr | None:
    """The quotient of two products as exp of a difference, times what has no logarithm; of a sum, as a sum of such."""
    below = logarithm(rules, bottom)
    if below is None or rules.expression(below, rules.at).masked:  # log 0
        return None
    return _over(rules, top, below)


def _over(rules: Composition, top: Expr, below: Expr) -> Expr:
    if isinstance(top, Call) and top.atom in ("add", "subtract", "negative"):
        return Call(top.atom, tuple(_over(rules, arg, below) for arg in top.args))
    if isinstance(top, Reduction) and top.reducer in ("sum", "mean"):
        return Reduction(top.reducer, top.indices, _over(rules, top.arg, apart(rules, below, top.indices)))
    rest: list[Expr] = []
    above: Expr | None = None
    for factor in factors(top):
        interval = rules.closed(factor)
        own = logarithm(rules, factor) if interval is None or interval[0] == 0 < interval[1] else None
        if own is None:
            rest.append(factor)
        else:
            above = own if above is None else Call("add", (above, own))
    difference = Call("negative", (below,)) if above is None else Call("subtract", (above, below))
    return multiplied([*rest, Call("exp", (difference,))])


def bounded_above(rules: Composition, small: Expr, large: Expr, indices: Sequence[str] = ()) -> float:
    """A number c with small - large <= c, because the one is part of the other; inf if none is seen.

    indices: those of `large` over which the largest may be taken
    """
    if same_up_to_indices(rules, large, small, indices):
        return 0.0
    found = [INF]
    for side, other, sign in ((small, large, 1.0), (large, small, -1.0)):
        if isinstance(side, Call) and side.atom in ("add", "subtract"):
            for k, (x, shift) in enumerate((side.args, side.args[::-1])):
                interval = rules.closed(shift)
                if interval is not None and (side.atom == "add" or k == 0):
                    ends = [sign * end * (1 if side.atom == "add" else -1) for end in interval]
                    pair = (x, other) if side is small else (other, x)
                    found.append(max(ends) + bounded_above(rules, *pair, indices))
    if isinstance(small, Call) and small.atom == "minimum":
        found += [bounded_above(rules, arg, large, indices) for arg in small.args]
    if isinstance(large, Call) and large.atom == "maximum":
        found += [bounded_above(rules, small, arg, indices) for arg in large.args]
    if isinstance(large, Reduction) and large.reducer in ("max", "logsumexp"):
        found.append(bounded_above(rules, small, large.arg, (*indices, *large.indices)))
    if isinstance(large, Call) and large.atom == "log":
        logs = (logarithm(rules, term) for term in summands(large.args[0]))
        terms = [x for x in logs if x is not None]
        if len(terms) == len(summands(large.args[0])) and terms != [large]:
            found += [bounded_above(rules, small, term, indices) for term in terms]
    return min(found)


def share(rules: Composition, top: Expr, bottom: Expr) -> Profile | None:
    """x / b where |x| <= q b and b > 0: bounded by q, and no steeper than x and b.

    d(x / b) = dx / b - (x / b) db / b, where |dx| and |db| are at most K (1 + |..|**r) (1 + b)
    """
    below = rules.expression(bottom, rules.at)
    if not (below.low > 0 and below.real):
        return None
    parts = factors(top)
    for k, x in enumerate(parts):
        reach = _multiple(rules, x, bottom)
        if reach == INF:
            continue
        own = rules.expression(x, rules.at)
        if not own.real:
            continue
        steep = max(own.steepness, below.steepness)
        found = Profile(
            -reach if own.low < 0 else 0.0,
            reach if own.high > 0 else 0.0,
            growth=0.0,
            modulus=steep,
            lipschitz=INF,
            parity=product_parity(own, below),
            kinks=join_kinks(own.kinks, below.kinks),
            depends=own.depends | below.depends,
            rough=own.rough or below.rough,
            assumes=assumed(own, below),
        )
        rest = parts[:k] + parts[k + 1 :]
        if not rest:
            return tidy(found)
        other = rules.expression(multiplied(rest), rules.at)
        if not other.real:
            return None
        return tidy(
            replace(
                product(other, tidy(found)),
                depends=other.depends | found.depends,
                rough=other.rough or found.rough,
                wild=other.wild,
                assumes=assumed(other, found),
            )
        )
    return None


def _multiple(rules: Composition, x: Expr, bottom: Expr, indices: Sequence[str] = ()) -> float:
    """A number q with |x| <= q bottom, because x is part of what is summed there; inf if none is seen."""
    if isinstance(x, Call) and x.atom in ("abs", "negative"):
        return _multiple(rules, x.args[0], bottom, indices)
    if rules.closed(x) is not None:
        return INF
    if isinstance(bottom, Call) and bottom.atom == "abs":
        return 1.0 if same_up_to_indices(rules, bottom.args[0], x, indices) else INF
    if same_up_to_indices(rules, bottom, x, indices):
        return 1.0 if rules.expression(bottom, rules.at).low >= 0 else INF
    if isinstance(bottom, Reduction) and bottom.reducer in ("sum", "mean", "max"):
        if rules.expression(bottom.arg, rules.at).low < 0:
            return INF
        inside = _multiple(rules, x, bottom.arg, (*indices, *bottom.indices))
        return inside * rules.count(bottom) if bottom.reducer == "mean" else inside
    if not isinstance(bottom, Call):
        return INF
    if bottom.atom == "sqrt":
        found = squares(rules, bottom.args[0])
        terms = [] if found is None else found[1]
        held = [s.weight for s in terms if same_up_to_indices(rules, s.base, x, (*indices, *s.indices))]
        return max(held) ** -0.5 if held else INF
    if bottom.atom == "maximum":
        return min(_multiple(rules, x, arg, indices) for arg in bottom.args)
    if bottom.atom == "add":
        pairs = (bottom.args, bottom.args[::-1])
        return min(
            _multiple(rules, x, arg, indices) if rules.expression(other, rules.at).low >= 0 else INF
            for arg, other in pairs
        )
    return INF

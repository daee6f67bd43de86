"""What composition cannot see because the parts of an expression have to do with each other: u / (1 + u**2) is bounded.

Each relation takes a function with what is known of its parts, and gives what it knows of the whole, or None.  A
product is taken apart into powers of factors, so that u * exp(u) / (1 + exp(u)) and u * (exp(u) / (1 + exp(u))) are the
same; what holds of some factors together leaves the rest to composition.  Functions of one value are judged by their
expansions at infinity (`expansions`), quotients of sums of exponentials by one exponential (`exponentials`), norms by
the squares under them (`squares`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from fractions import Fraction

from tensorprog.check.certificates.expansions import behaviour, positive
from tensorprog.check.certificates.exponentials import Combination, combination, logarithm, value, weight
from tensorprog.check.certificates.factors import apart, base, built, powers
from tensorprog.check.certificates.inline import put
from tensorprog.check.certificates.knowledge import Knowledge, Undecided
from tensorprog.check.certificates.profile import Profile, assumed, compose, meet, product, tidy
from tensorprog.check.certificates.squares import over_squares, squares
from tensorprog.language.expr import Call, Expr, Number, Reduction, variables

__all__ = ["RELATIONS"]

INF = math.inf
PRODUCTS = ("multiply", "divide", "power", "sqrt", "negative")
SPREAD = 2  # sums that are multiplied out within each other
MOST = 24  # factors of a product

Factors = dict[Expr, Fraction]


def _ends(known: Knowledge, node: Call, composed: Profile) -> Profile | None:
    """Growth and modulus of a function of one value."""
    u = base(known, node)
    if u is None or u == node or (composed.real and composed.growth == composed.modulus == 0):
        return None
    inner = known.of(u)
    if not inner.real:
        return None
    regularity = behaviour(known, node, u)
    if regularity is None:
        return None
    found = compose(regularity, [inner], (-INF, INF))
    return tidy(found, depends=inner.depends, assumes=inner.assumes)


def _exponential(known: Knowledge, node: Call, composed: Profile) -> Profile | None:
    """Sums, logarithms and exponentials that hold a log sum exp, or a maximum."""
    if node.atom == "exp":
        return weight(known, combination(known, node.args[0]))
    if node.atom == "where" and not variables(node.args[0]):
        form = logarithm(known, node)
        return None if form is None else weight(known, form)
    if node.atom in ("log", "add", "subtract", "maximum", "minimum"):
        return value(known, combination(known, node))
    return None


def _squares(known: Knowledge, node: Call, composed: Profile) -> Profile | None:
    """A sum of squares, or a variance, is not negative."""
    if node.atom not in ("add", "subtract") or composed.low >= 0 or not composed.real:
        return None
    found = squares(known, node)
    return tidy(composed, low=max(composed.low, found[0])) if found is not None and found[1] else None


# ---- products -------------------------------------------------------------------------------------------------------


def _collected(known: Knowledge, node: Call) -> Factors:
    found: Factors = {}
    under = set()
    for x, a in powers(known, node):
        found[x] = found.get(x, Fraction(0)) + a
        if a < 0:
            under.add(x)
    if len(found) > MOST or any(found[x] >= 0 and not positive(known, x) for x in under):
        raise Undecided  # what cancels may be 0
    return found


def _joint(parts: list[Profile]) -> Profile:
    """What is known of a product."""
    result = parts[0]
    for other in parts[1:]:
        result = tidy(
            product(result, other),
            depends=result.depends | other.depends,
            rough=result.rough or other.rough,
            wild=result.wild or other.wild,
            partial=result.partial or other.partial,
            assumes=assumed(result, other),
            masked=result.masked or other.masked,
        )
    return result


def _product(known: Knowledge, node: Call, composed: Profile) -> Profile | None:
    """What holds of some factors together, times what is known of the others."""
    if node.atom not in PRODUCTS and not (node.atom == "where" and not variables(node.args[0])):
        return None
    factors = _collected(known, node)
    moving = {x: a for x, a in factors.items() if known.enclosure(x) is None}
    found: list[Profile] = []
    if len(moving) > 1 or list(moving.values()) not in ([], [1]):
        for x, a in moving.items():
            if a < 0 or a.denominator > 1:
                found += _divided(known, factors, x)
    best = functools.reduce(meet, found) if found else None
    if best is not None and best.pseudo_lipschitz and best.bounded:
        return best
    spread = _spread(known, factors) if len(moving) > 1 else None
    return best if spread is None else spread if best is None else meet(best, spread)


def _others(known: Knowledge, factors: Factors, *without: Expr) -> list[Profile]:
    rest = {x: a for x, a in factors.items() if x not in without}
    return [known.of(built(rest))] if rest else []


def _divided(known: Knowledge, factors: Factors, bottom: Expr) -> Iterator[Profile]:
    """What holds of a power of one factor and what has to do with it."""
    power = -factors[bottom]
    tops = [(x, a) for x, a in factors.items() if x != bottom]
    normed = over_squares(known, tops, bottom, float(power))
    if normed is not None:
        used = [x for x in factors if x == bottom or x not in dict(normed[1])]
        yield _joint([normed[0], *_others(known, factors, *used)])
    if power > 0:
        yield from _weighed(known, factors, bottom)


def _weighed(known: Knowledge, factors: Factors, bottom: Expr) -> Iterator[Profile]:
    """All factors with logarithms as one exponential."""
    forms = {x: logarithm(known, x) for x in factors}
    if forms[bottom] is None:
        return
    total, used = Combination(), []
    for x, form in forms.items():
        if form is not None:
            total = total.plus(form, factors[x])
            used.append(x)
    found = weight(known, total)
    if found is not None:
        yield _joint([found, *_others(known, factors, *used)])


def _spread(known: Knowledge, factors: Factors) -> Profile | None:
    """A sum times what is left, term by term."""
    if known.spread >= SPREAD:
        return None
    for x, a in factors.items():
        rest = {y: b for y, b in factors.items() if y != x}
        if a != 1 or not (isinstance(x, Call | Reduction)) or (isinstance(x, Call) and base(known, x) != x):
            continue
        if isinstance(x, Call) and x.atom in ("add", "subtract"):
            terms = tuple(built({**rest, term: rest.get(term, Fraction(0)) + 1}) for term in x.args)
            expr: Expr = Call(x.atom, terms)
        elif isinstance(x, Reduction) and x.reducer in ("sum", "mean"):
            under = built({apart(known, y, x.indices): b for y, b in rest.items()})
            expr = Reduction(x.reducer, x.indices, Call("multiply", (x.arg, under)))
        else:
            continue
        known.spread += 1
        try:
            return known.of(expr)
        finally:
            known.spread -= 1
    return None


def _gate(known: Knowledge, node: Call, _: Profile) -> Profile | None:
    """sign(u) f or step(u) f, where f is 0 at u = 0: its branches agree there."""
    if node.atom not in ("multiply", "divide", "negative"):
        return None
    factors = _collected(known, node)
    gates = [x for x in factors if isinstance(x, Call) and x.atom in ("sign", "step") and variables(x)]
    if len(gates) != 1 or factors[gates[0]] != 1:
        return None
    (gate,) = gates
    assert isinstance(gate, Call)
    (u,) = gate.args
    rest = built({x: a for x, a in factors.items() if x != gate})
    if known.number(put(rest, u, Number(0))) != 0:
        return None
    other = Call("negative", (rest,)) if gate.atom == "sign" else Number(0)
    return known.expression(Call("where", (Call("greater", (u, Number(0))), rest, other)), known.at)


RELATIONS = (_ends, _exponential, _squares, _product, _gate)

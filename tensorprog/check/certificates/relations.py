"""What composition cannot see because the parts of an expression have to do with each other: u / (1 + u**2) is bounded.

Each relation takes a function with what is known of its parts, and gives what it knows of the whole, or None.  A
product is taken apart into powers of factors, so that u * exp(u) / (1 + exp(u)) and u * (exp(u) / (1 + exp(u))) are the
same; what holds of some factors together leaves the rest to composition.  Functions of one value are judged by their
expansions at infinity (`expansions`), quotients of sums of exponentials by one exponential (`exponentials`), norms by
the squares under them.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from tensorprog.check.certificates.expansions import behaviour, positive
from tensorprog.check.certificates.exponentials import Combination, combination, logarithm, value, weight
from tensorprog.check.certificates.factors import apart, base, built, powers, put, same_up_to_indices
from tensorprog.check.certificates.knowledge import Knowledge, Undecided
from tensorprog.check.certificates.profile import Fault, Profile, assumed, compose, meet, product, tidy
from tensorprog.language.atoms import Regularity
from tensorprog.language.expr import Call, Expr, Number, Reduction, product_of, variables

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


def _nonnegative(known: Knowledge, node: Call, composed: Profile) -> Profile | None:
    """A sum of squares, or a variance, is not negative."""
    if node.atom not in ("add", "subtract") or composed.low >= 0 or not composed.real:
        return None
    found = _squares(known, node)
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
        whole = _by_value(known, factors)
        found += [] if whole is None else [whole]
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
    normed = _over_squares(known, tops, bottom, float(power))
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


def _by_value(known: Knowledge, factors: Factors) -> Profile | None:
    """Functions of one value together, where there are several values."""
    groups: dict[Expr | None, Factors] = {}
    for x, a in factors.items():
        groups.setdefault(base(known, x), {})[x] = a
    parts = [known.of(built(group)) for group in groups.values()]
    return _joint(parts) if len(groups.keys() - {None}) > 1 else None


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


# ---- products over sums of squares: norms, root mean squares ---------------------------------------------------------


@dataclass(frozen=True)
class Square:
    """A term weight * base**2, for all members over some reduced indices."""

    weight: float
    base: Expr
    indices: tuple[str, ...] = ()


def _over_squares(
    known: Knowledge, tops: Sequence[tuple[Expr, Fraction]], bottom: Expr, power: float
) -> tuple[Profile, list[tuple[Expr, Fraction]]] | None:
    """x_1 ... x_d / Q**r with Q = c + sum_k a_k x_k**2: regular as |x|**(d - 2r), and smooth where c > 0.

    |x_k| <= sqrt(Q / a_k) and |dQ/dx| <= C sqrt(Q); so |f| <= C Q**(d/2 - r), |df/dx| <= C Q**((d-1)/2 - r).
    Returns   what is known of it, and the factors that are no x_k; None if Q is no sum of squares
    """
    found = _squares(known, bottom)
    if found is None:
        return None
    floor, terms = found
    taken: list[Square] = []
    rest: list[tuple[Expr, Fraction]] = []
    for factor, copies in tops:
        part = factor.children[0] if isinstance(factor, Call) and factor.atom == "abs" else factor
        match = next((s for s in terms if same_up_to_indices(known, s.base, part, s.indices)), None)
        if match is not None and copies in (1, 2, 3, 4):
            taken += [match] * int(copies)
        else:
            rest.append((factor, copies))
    excess = len(taken) - 2 * power
    singular = floor == 0 and not (power <= 0 and excess >= 1)  # a norm is Lipschitz at 0 too
    if not terms or (singular and not (excess == 0 and isinstance(bottom, Reduction))):
        return None
    inner = [known.of(s.base) for s in terms]
    if not all(p.real for p in inner):
        return None
    with np.errstate(all="ignore"):  # an infinite bound is no bound
        weights = np.prod([s.weight**-0.5 for s in taken]) * (np.float64(floor) ** (excess / 2) if excess else 1.0)
    reach = math.nextafter(float(weights) * (1 + 1e-9), INF) if excess <= 0 else INF
    share = tidy(compose(Regularity(max(excess, 0.0), max(excess - 1, 0.0)), inner, (-reach, reach)))
    assumes = assumed(*inner)
    rough = None
    if singular:
        whole = product_of([x for x, _ in tops])
        node = Call("divide", (whole, Call("sqrt", (bottom,))))
        norm = re.sub(r"#\d+", "", str(node.args[1]))  # indices under the names they had before inlining
        share = replace(share, modulus=INF, lipschitz=INF)
        rough = Fault(node, known.at, f"{node} is discontinuous where {norm} is 0")
        assumes = (*assumes, (f"{norm} is not 0, almost surely, in the limit", None))
    depends = frozenset[str]().union(*(p.depends for p in inner))
    return tidy(share, depends=depends, rough=rough, assumes=assumes, kinks=None), rest


def _squares(known: Knowledge, expr: Expr) -> tuple[float, list[Square]] | None:
    """(c, squares) of an expression that is at least c >= 0 plus the squares, and no more than a multiple of that."""
    constant = known.closed(expr)
    if constant is not None:
        return (constant[0], []) if constant[0] >= 0 else None
    if isinstance(expr, Call) and expr.atom == "add":
        first, second = (_squares(known, arg) for arg in expr.args)
        return None if first is None or second is None else (first[0] + second[0], first[1] + second[1])
    if isinstance(expr, Reduction) and expr.reducer in ("sum", "mean"):
        inner = _squares(known, expr.arg)
        count = known.count(expr)
        floor, weight = (count, 1.0) if expr.reducer == "sum" else (1, 1 / count)
        return (
            None
            if inner is None
            else (
                inner[0] * floor,
                [replace(s, weight=s.weight * weight, indices=s.indices + expr.indices) for s in inner[1]],
            )
        )
    if not isinstance(expr, Call):
        return None
    if expr.atom == "subtract":
        return _variance(known, *expr.args)
    weight = 1.0
    root: dict[Expr, Fraction] = {}
    for x, a in powers(known, expr):
        interval = known.closed(x)
        if interval is not None and a in (1, -1):
            factor = interval[0] if a > 0 else 1 / interval[1] if interval[0] > 0 else 0.0
            weight *= factor
        elif a < 0:
            return None  # what is divided by is no square
        else:
            root[x] = root.get(x, Fraction(0)) + a / 2
    if weight <= 0 or any(a.denominator > 1 for a in root.values()):
        return None
    return 0.0, [Square(weight, built(root))]


def _variance(known: Knowledge, second: Expr, first: Expr) -> tuple[float, list[Square]] | None:
    """mean x**2 - (mean x)**2 = mean (x - mean x)**2, where further terms may be added to the first."""
    if isinstance(second, Call) and second.atom == "add":
        for one, other in (second.args, second.args[::-1]):
            spread, rest = _variance(known, one, first), _squares(known, other)
            if spread is not None and rest is not None:
                return rest[0], spread[1] + rest[1]
    if not (isinstance(second, Reduction) and second.reducer == "mean"):
        return None
    found = [_squares(known, expr) for expr in (second.arg, first)]
    bases = [square.base for part in found if part is not None and part[0] == 0 for square in part[1]
             if square.weight == 1 and not square.indices]  # fmt: skip
    if len(bases) != 2 or not same_up_to_indices(known, bases[1], Reduction("mean", second.indices, bases[0]), ()):
        return None
    centred = Call("subtract", (bases[0], apart(known, bases[1], second.indices)))
    return 0.0, [Square(1 / known.count(second), centred, second.indices)]


RELATIONS = (_ends, _exponential, _nonnegative, _product, _gate)

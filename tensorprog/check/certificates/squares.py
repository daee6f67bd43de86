"""Products over sums of squares: norms, root mean squares, variances, and what is divided by them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from tensorprog.check.certificates.factors import apart, built, powers, same_up_to_indices
from tensorprog.check.certificates.knowledge import Knowledge
from tensorprog.check.certificates.profile import Fault, Profile, assumed, compose, tidy
from tensorprog.language.atoms import Regularity
from tensorprog.language.expr import Call, Expr, Number, Reduction, product_of

__all__ = ["Square", "over_squares", "squares"]

INF = math.inf
MANY = 1000  # a power that no product has


@dataclass(frozen=True)
class Square:
    """A term weight * base**2, for all members over some reduced indices."""

    weight: float
    base: Expr
    indices: tuple[str, ...] = ()


def over_squares(
    known: Knowledge, tops: Sequence[tuple[Expr, Fraction]], bottom: Expr, power: float
) -> tuple[Profile, list[tuple[Expr, Fraction]]] | None:
    """x_1 ... x_d / Q**r with Q = c + sum_k a_k x_k**2: regular as |x|**(d - 2r), and smooth where c > 0.

    |x_k| <= sqrt(Q / a_k) and |dQ/dx| <= C sqrt(Q); so |f| <= C Q**(d/2 - r), |df/dx| <= C Q**((d-1)/2 - r).
    Returns   what is known of it, and the factors that are no x_k; None if Q is no sum of squares
    """
    found = squares(known, bottom)
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


def squares(known: Knowledge, expr: Expr) -> tuple[float, list[Square]] | None:
    """(c, squares) of an expression that is at least c >= 0 plus the squares, and no more than a multiple of that."""
    constant = known.closed(expr)
    if constant is not None:
        return (constant[0], []) if constant[0] >= 0 else None
    if isinstance(expr, Call) and expr.atom == "add":
        parts = [squares(known, arg) for arg in expr.args]
        first, second = parts
        return None if first is None or second is None else (first[0] + second[0], first[1] + second[1])
    if isinstance(expr, Reduction) and expr.reducer in ("sum", "mean"):
        inner = squares(known, expr.arg)
        count = known.count(expr)
        floor, weight = (count, 1.0) if expr.reducer == "sum" else (1, 1 / count)
        return None if inner is None else (
            inner[0] * floor, [replace(s, weight=s.weight * weight, indices=s.indices + expr.indices) for s in inner[1]]
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
        else:
            root[x] = root.get(x, Fraction(0)) + (a / 2 if a > 0 else Fraction(-MANY))
    if weight <= 0 or not all(a > 0 and a.denominator == 1 for a in root.values()):
        return _multiple_of_squares(known, expr)
    return 0.0, [Square(weight, built(root))]


def _multiple_of_squares(known: Knowledge, expr: Call) -> tuple[float, list[Square]] | None:
    """A positive number times squares, or squares over one."""
    if expr.atom not in ("multiply", "divide"):
        return None
    for inner_expr, other in (expr.args, expr.args[::-1])[: 2 if expr.atom == "multiply" else 1]:
        factor = known.closed(other if expr.atom == "multiply" else Call("divide", (Number(1), other)))
        inner = squares(known, inner_expr)
        if factor is not None and factor[0] > 0 and inner is not None:
            return inner[0] * factor[0], [replace(s, weight=s.weight * factor[0]) for s in inner[1]]
    return None


def _variance(known: Knowledge, second: Expr, first: Expr) -> tuple[float, list[Square]] | None:
    """mean x**2 - (mean x)**2 = mean (x - mean x)**2, where further terms may be added to the first."""
    if isinstance(second, Call) and second.atom == "add":
        for one, other in (second.args, second.args[::-1]):
            spread, rest = _variance(known, one, first), squares(known, other)
            if spread is not None and rest is not None:
                return rest[0], spread[1] + rest[1]
    average = _root(known, first) if isinstance(first, Call) else None
    x = _root(known, second.arg) if isinstance(second, Reduction) and isinstance(second.arg, Call) else None
    if x is None or average is None or not isinstance(second, Reduction) or second.reducer != "mean":
        return None
    if not same_up_to_indices(known, average, Reduction("mean", second.indices, x), ()):
        return None
    centred = Call("subtract", (x, apart(known, average, second.indices)))
    return 0.0, [Square(1 / known.count(second), centred, second.indices)]


def _root(known: Knowledge, expr: Call) -> Expr | None:
    """x of an expression x**2, x * x, or a product of such."""
    roots = {x: a / 2 for x, a in _collected(known, expr).items()}
    return built(roots) if all(a > 0 and a.denominator == 1 for a in roots.values()) else None


def _collected(known: Knowledge, expr: Call) -> dict[Expr, Fraction]:
    found: dict[Expr, Fraction] = {}
    for x, a in powers(known, expr):
        found[x] = found.get(x, Fraction(0)) + (a if a > 0 else Fraction(-MANY))  # what is divided by is no square
    return found

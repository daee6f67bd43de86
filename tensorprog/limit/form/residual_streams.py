"""Residual streams along a recurrence: sums over the steps, so that what is Gaussian needs no draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensorprog.language.expr import Affine, Call, Expr, IndexValue, Reduction, Variable, variables
from tensorprog.language.substitute import affine_expr, free_indices, substitute
from tensorprog.limit.form.definitions import ONE, ZERO, target_box

if TYPE_CHECKING:
    from tensorprog.limit.form.sums_of_functions import Parts

__all__ = ["combination", "running_sum", "times"]


def running_sum(parts: Parts, name: str) -> tuple[int, Expr] | None:
    """h[t] = a h[t-1] + g[t] as sum over k <= t of a**(t-k) g[k], and where it stands; None for what is not so.

    a is a number and g[t] affine in Gaussian variables, so that h[t] is Gaussian: a residual stream.
    """
    family = parts.netsor.families[name]
    own = [p for p in family.statements if name in {v.name for v in variables(parts.statement(p))}]
    form = parts.affine(parts.statement(own[0])) if len(own) == 1 and family.kind == "vector" else None
    before = [(v, bound, a) for (v, bound), a in form[0].items() if v.name in parts.carried] if form else []
    if len(before) != 1 or before[0][0].name != name or before[0][1] or free_indices(before[0][2]):
        return None
    reference, _, factor = before[0]
    moved = [k for k, slot in enumerate(reference.slots) if slot != Affine(((str(k), 1),))]
    if len(moved) != 1 or reference.slots[moved[0]] != Affine(((str(moved[0]), 1),), -1) or list(variables(factor)):
        return None
    box = target_box(parts.netsor.body[own[0]], parts.netsor.ranges)
    here, (start, stop) = str(moved[0]), box[moved[0]]
    name_k = parts.bound("k", (start, stop))

    def decay(since: Affine) -> Expr:
        lag = affine_expr(Affine(((here, 1), *((n, -v) for n, v in since.terms)), -since.offset))
        return ONE if factor == ONE else Call("power", (factor, lag))

    step = Affine(((name_k, 1),))
    assert form is not None
    added = combination({key: weight for key, weight in form[0].items() if key[0] != reference}, form[1])
    known = Call("where", (Call("less_equal", (affine_expr(step), IndexValue(here))), decay(step), ZERO))
    summed = Reduction("sum", (name_k,), times(known, substitute(added, {here: step})))
    first = tuple(Affine((), start - 1) if str(k) == here else s for k, s in enumerate(reference.slots))
    ranges = {str(k): span for k, span in enumerate(box)}
    base = parts.read(Variable(name, first), ranges, [p for p in family.statements if p not in own])
    return own[0], summed if base is None else Call("add", (times(decay(first[moved[0]]), base), summed))


def combination(weights: Mapping[tuple[Variable, tuple[str, ...]], Expr], offset: Expr = ZERO) -> Expr:
    """An affine form as an expression: variables by weights, summed over indices, and what is added."""
    total = offset
    for (variable, bound), weight in weights.items():
        term = times(weight, variable)
        term = Reduction("sum", bound, term) if bound else term
        total = term if total == ZERO else Call("add", (total, term))
    return total


def times(factor: Expr, other: Expr) -> Expr:
    """A product, short where a factor is 1 or the other 0."""
    return other if factor == ONE or other == ZERO else factor if other == ONE else Call("multiply", (factor, other))

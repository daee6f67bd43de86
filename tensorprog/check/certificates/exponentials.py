"""Positive expressions by their logarithms: linear combinations of parts, and of log sum exp and max over such.

Sums, products and quotients of exponentials are exp(a) with a such a combination; sigmoid(v) = exp(-L(0, -v)), softplus
(v) = L(0, v), softmax(v) = exp(v - L(v)), where L is the log sum exp.  Of any other positive expression the logarithm
is a part.  With weights w >= 0 of sum 1 that are the gradient of L (or of max: one of them is 1),

    t_k <= max t <= L(t) <= max t + log count,    dL = sum_k w_k dt_k

so that a is bounded above if it is when each L that is subtracted is replaced by one of its terms and each that is
added by any of its terms; and a is Lipschitz in its parts, so exp(a) is where a is bounded above.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Union

from tensorprog.check.certificates.expansions import positive
from tensorprog.check.certificates.factors import (
    apart,
    base,
    linear,
    meeting,
)
from tensorprog.check.certificates.knowledge import ZERO, Enclosure, Knowledge, Undecided, increasing
from tensorprog.check.certificates.profile import Profile, assumed, compose, join_kinks, tidy
from tensorprog.language.atoms import Interval, Regularity
from tensorprog.language.expr import (
    Affine,
    Call,
    Expr,
    Number,
    Reduction,
    free_indices,
    product_of,
    substitute,
    summands,
    variables,
)

__all__ = ["Combination", "combination", "logarithm", "value", "weight"]

INF = math.inf
MASK, NOUGHT, UNIT = Number(-INF), Number(0), Number(1)
MOST = 80  # replacements that are tried for one bound
Part = Union[Expr, "Peak"]


@dataclass(frozen=True)
class Combination:
    """A linear combination of parts, and a number."""

    parts: frozenset[tuple[Part, Fraction]] = frozenset()
    shift: Enclosure = ZERO

    def plus(self, other: Combination, factor: Fraction = Fraction(1)) -> Combination:
        """This form and a multiple of another."""
        total = dict(self.parts)
        for part, a in other.parts:
            total[part] = total.get(part, Fraction(0)) + factor * a
        shift = self.shift + other.shift * Enclosure(factor, factor)
        return Combination(frozenset((x, a) for x, a in total.items() if a), shift)

    def without(self, part: Part) -> Combination:
        """All but one part."""
        return Combination(frozenset((x, a) for x, a in self.parts if x != part), self.shift)


@dataclass(frozen=True)
class Peak:
    """max (or, if soft, log sum exp) of forms, over all members of some indices."""

    terms: tuple[Combination, ...]
    indices: tuple[str, ...]
    soft: bool
    count: int  # of all members of all terms

    @property
    def excess(self) -> float:
        """How much it may exceed its largest term."""
        return math.log(self.count) * (1 + 1e-15) if self.soft else 0.0


def _single(part: Part) -> Combination:
    return Combination(frozenset({(part, Fraction(1))}))


def _leaves(form: Combination) -> Iterator[Expr]:
    """The expressions in all parts."""
    for part, _ in form.parts:
        if isinstance(part, Peak):
            for term in part.terms:
                yield from _leaves(term)
        else:
            yield part


def _replaced(form: Combination, values: dict[str, Affine]) -> Combination:
    """The form with indices replaced by affine forms."""
    if not values:
        return form
    result = Combination(shift=form.shift)
    for part, a in form.parts:
        if isinstance(part, Peak):
            new: Part = replace(part, terms=tuple(_replaced(term, values) for term in part.terms))
        else:
            new = substitute(part, values)
        result = result.plus(_single(new), a)
    return result


def _depth(form: Combination) -> int:
    return max((1 + max(map(_depth, part.terms)) for part, _ in form.parts if isinstance(part, Peak)), default=0)


def _peak(known: Knowledge, terms: Sequence[Combination], indices: tuple[str, ...], soft: bool) -> Combination:
    """A peak under names of indices that tell only ranges and depth; what all terms have in common stands before it."""
    depth = max(map(_depth, terms))
    count = len(terms)
    values = {}
    for k, name in enumerate(indices):
        start, stop = known.ranges[name]
        new = f"~{depth}.{k}.{start}:{stop}"
        known.ranges[new] = known.ranges[name]
        known.renamed[new] = known.renamed.get(name, name)
        values[name] = Affine(((new, 1),))
        count *= stop - start
    terms = [_replaced(term, values) for term in terms]
    bound = {form.indices[0] for form in values.values()}
    common = frozenset.intersection(*(term.parts for term in terms))
    before = Combination(
        frozenset(
            (x, a) for x, a in common if not any(bound.intersection(free_indices(leaf)) for leaf in _leaves(_single(x)))
        )
    )
    terms = [term.plus(before, Fraction(-1)) for term in terms]
    inner = list(terms)
    if len(inner) == 1 and not indices:
        return before.plus(inner[0])
    names = tuple(form.indices[0] for form in values.values())
    return before.plus(_single(Peak(tuple(inner), names, soft, count)))


# ---- expressions as forms -------------------------------------------------------------------------------------------


def combination(known: Knowledge, expr: Expr) -> Combination:
    """An expression as a form, its logarithms, maxima and softplus taken apart."""
    parts, constant = linear(known, expr)
    result = Combination(shift=constant)
    for part, a in parts.items():
        result = result.plus(_opened(known, part), a)
    return result


def _opened(known: Knowledge, part: Expr) -> Combination:
    """One part of a linear combination."""
    if isinstance(part, Reduction) and part.reducer in ("logsumexp", "max") and not part.at:
        inner = combination(known, part.arg)
        if _present_everywhere(known, part.indices, inner):
            return _peak(known, [inner], part.indices, part.reducer == "logsumexp")
    if not isinstance(part, Call):
        return _single(part)
    if part.atom == "log":
        found = logarithm(known, part.args[0])
        return _single(part) if found is None else found
    if part.atom == "softplus":
        return _peak(known, [Combination(), combination(known, part.args[0])], (), True)
    if part.atom in ("maximum", "minimum"):
        way = Fraction(1 if part.atom == "maximum" else -1)
        terms = [Combination().plus(combination(known, arg), way) for arg in part.args]
        return Combination().plus(_peak(known, terms, (), False), way) if not _masked(known, terms) else _single(part)
    if part.atom == "where" and not variables(part.args[0]) and part.args[2] == MASK:
        return _covered(part.args[0], combination(known, part.args[1])) or _single(part)
    return _single(part)


def _covered(condition: Expr, form: Combination) -> Combination | None:
    """A form that is -inf where a condition does not hold: one of its parts is."""
    risen = sorted((x for x, a in form.parts if a > 0 and not isinstance(x, Peak)), key=str)
    if not risen and form.parts:
        return None
    if not risen:
        return form.plus(_single(Call("where", (condition, NOUGHT, MASK))))
    chosen = Call("where", (condition, risen[0], MASK))
    return form.without(risen[0]).plus(_single(chosen), dict(form.parts)[risen[0]])


def logarithm(known: Knowledge, expr: Expr) -> Combination | None:
    """The logarithm of a positive expression; -inf, as a mask, where it is 0 by a condition on indices."""
    return known.attempt("logarithm", (expr,), lambda: _logarithm(known, expr))


def _logarithm(known: Knowledge, expr: Expr) -> Combination | None:
    number = known.enclosure(expr)
    if number is not None:
        if number.sign == 1:
            return Combination(shift=ZERO if number.exact and number.low == 1 else increasing(math.log, number))
        if number.low < 0 or number.sign == 0:
            return None
        seen = Call("greater", (expr, NOUGHT))
        return _single(Call("where", (seen, Call("log", (Call("where", (seen, expr, UNIT)),)), MASK)))
    found = _taken_apart(known, expr)
    if found is None and positive(known, expr) and base(known, expr) != expr:
        return _single(Call("log", (expr,)))
    return found


def _taken_apart(known: Knowledge, expr: Expr) -> Combination | None:
    if isinstance(expr, Reduction):
        return _reduced(known, expr)
    if not isinstance(expr, Call):
        return None
    if expr.atom == "exp":
        return combination(known, expr.args[0])
    if expr.atom == "sigmoid":
        inner = Combination().plus(combination(known, expr.args[0]), Fraction(-1))
        return Combination().plus(_peak(known, [Combination(), inner], (), True), Fraction(-1))
    if expr.atom == "gaussian":
        return combination(known, Call("negative", (Call("power", (expr.args[0], Number(2))),)))
    if expr.atom == "where" and not variables(expr.args[0]) and known.number(expr.args[2]) == 0:
        inner_form = logarithm(known, expr.args[1])
        return None if inner_form is None else _covered(expr.args[0], inner_form)
    if expr.atom in ("power", "sqrt"):
        exponent = known.enclosure(expr.args[1]) if expr.atom == "power" else Enclosure(Fraction(1, 2), Fraction(1, 2))
        inner_form = logarithm(known, expr.args[0])
        if inner_form is None or exponent is None or not exponent.exact:
            return None
        return Combination().plus(inner_form, exponent.low)
    if expr.atom not in ("multiply", "divide", "add", "minimum", "maximum"):
        return None
    parts = [logarithm(known, arg) for arg in (summands(expr) if expr.atom == "add" else expr.args)]
    forms = [part for part in parts if part is not None]
    if len(forms) < len(parts):
        return None
    if expr.atom in ("multiply", "divide"):
        return forms[0].plus(forms[1], Fraction(1 if expr.atom == "multiply" else -1))
    if _masked(known, forms):
        return None
    if expr.atom == "minimum":
        return Combination().plus(
            _peak(known, [Combination().plus(x, Fraction(-1)) for x in forms], (), False), Fraction(-1)
        )
    return _peak(known, forms, (), expr.atom == "add")


def _reduced(known: Knowledge, expr: Reduction) -> Combination | None:
    if expr.reducer == "softmax" and not expr.at:
        under = apart(known, Reduction("logsumexp", expr.indices, expr.arg), expr.indices)
        below = combination(known, under)
        return combination(known, expr.arg).plus(below, Fraction(-1)) if _single(under) != below else None
    inner = logarithm(known, expr.arg) if expr.reducer in ("sum", "mean", "max") else None
    if inner is None or not _present_everywhere(known, expr.indices, inner):
        return None
    found = _peak(known, [inner], expr.indices, expr.reducer != "max")
    if expr.reducer == "mean":
        found = found.plus(Combination(shift=-increasing(math.log, Enclosure(*[Fraction(known.count(expr))] * 2))))
    return found


def _masked(known: Knowledge, forms: Sequence[Combination]) -> bool:
    """Whether a part of some forms may be -inf."""
    return any(known.of(part).masked for form in forms for part, _ in form.parts if not isinstance(part, Peak))


def _present_everywhere(known: Knowledge, indices: tuple[str, ...], form: Combination) -> bool:
    """Whether at every member some entry is not masked: else the sum is 0 there, and has no logarithm."""
    hidden = [(part, a) for part, a in form.parts if not isinstance(part, Peak) and known.of(part).masked]
    if not hidden:
        return True
    if any(a < 0 for _, a in hidden):
        return False
    return known.number(Reduction("max", indices, product_of([_present(known, part) for part, _ in hidden]))) == 1


def _present(known: Knowledge, expr: Expr) -> Expr:
    """1 where an expression is surely not masked, else 0."""
    if expr == MASK:
        return NOUGHT
    if not isinstance(expr, Call):
        return NOUGHT if known.of(expr).masked else UNIT
    parts = [_present(known, arg) for arg in expr.args]
    if expr.atom == "where" and not variables(expr.args[0]):
        return Call("where", (expr.args[0], *parts[1:]))
    return product_of(parts)


# ---- what is known of forms -----------------------------------------------------------------------------------------


def _upper(known: Knowledge, form: Combination, budget: list[int]) -> float:
    """A number that a form does not exceed; inf if none is seen."""
    budget[0] -= 1
    if budget[0] < 0:
        return INF
    peaks = [(part, a) for part, a in form.parts if isinstance(part, Peak)]
    peaks.sort(key=lambda pair: (-_depth(_single(pair[0])), str(pair)))
    for peak, a in peaks:
        if a > 0:
            rest = form.without(peak)
            ends = [_upper(known, rest.plus(_some_member(known, peak, term), a), budget) for term in peak.terms]
            return max(ends) + float(a) * peak.excess
    if not peaks:
        return _direct(known, form)
    peak, a = peaks[0]
    rest = form.without(peak)
    best = INF
    for term in peak.terms:
        for chosen in _members(known, peak, term, form):
            best = min(best, _upper(known, rest.plus(chosen, a), budget))
    return best


def _some_member(known: Knowledge, peak: Peak, term: Combination) -> Combination:
    """A term at members that nothing is known of."""
    values = {}
    for name in peak.indices:
        new = f"~any{len(known.ranges)}"
        known.ranges[new] = known.ranges[name]
        values[name] = Affine(((new, 1),))
    return _replaced(term, values)


def _members(known: Knowledge, peak: Peak, term: Combination, form: Combination) -> list[Combination]:
    """A term at the members at which one of its parts is a part of the form, or of itself; else at the first."""
    if not peak.indices:
        return [term]
    found = []
    own = list(dict.fromkeys(_leaves(term)))
    seen = dict.fromkeys(_leaves(form.without(peak)))
    for x in own:
        for y in (*seen, *(z for z in own if z != x)):
            values = meeting(known, x, y, peak.indices)
            if values is not None and values not in found:
                found.append(values)
    first = {name: Affine((), known.ranges[name][0]) for name in peak.indices}
    return [_replaced(term, {**first, **values}) for values in found or [{}]]


def _direct(known: Knowledge, form: Combination) -> float:
    total = float(form.shift.high)
    for part, a in form.parts:
        assert not isinstance(part, Peak)
        p = known.of(part)
        end = p.high if a > 0 else p.low
        if math.isinf(end) or (p.masked and a < 0):
            return INF
        total += float(a) * end
    return total + abs(total) * 1e-14


def _bounds(known: Knowledge, form: Combination) -> Interval:
    ends = []
    for way in (1, -1):
        try:
            ends.append(_upper(known, Combination().plus(form, Fraction(way)), [MOST]))
        except Undecided:
            ends.append(INF)
    return -ends[1], ends[0]


def _composed(known: Knowledge, form: Combination, regularity: Regularity, bound: Interval) -> Profile | None:
    leaves = dict.fromkeys(_as_written(known, leaf) for leaf in _leaves(form))
    parts = [known.of(leaf) for leaf in leaves]
    if not parts or any(p.partial or (p.masked and p.open) for p in parts):
        return None
    if any(p.assumes and _own_names(leaf) for leaf, p in zip(leaves, parts, strict=True)):
        return None  # what is assumed is said in the names of the program
    found = compose(regularity, [replace(p, masked=False) for p in parts], bound)
    kinks = join_kinks(*(p.kinks for p in parts)) if _smooth(form) else None
    depends = frozenset[str]().union(*(p.depends for p in parts))
    return tidy(found, depends=depends, assumes=assumed(*parts), kinks=kinks)


def _own_names(expr: Expr) -> list[str]:
    """Names that peaks gave to indices."""
    return [name for name in free_indices(expr) if name.startswith("~")]


def _as_written(known: Knowledge, leaf: Expr) -> Expr:
    """An expression under the names that its indices had, where that keeps them apart."""
    names = {name: known.renamed[name] for name in _own_names(leaf) if name in known.renamed}
    if not names or len({*names.values(), *free_indices(leaf)}) < len(names) + len(free_indices(leaf)):
        return leaf
    return substitute(leaf, {name: Affine(((old, 1),)) for name, old in names.items()})


def _smooth(form: Combination) -> bool:
    """Whether a form is smooth in its parts, which are all named as in the program."""
    peaks = [part for part, _ in form.parts if isinstance(part, Peak)]
    return all(peak.soft and not peak.indices and all(map(_smooth, peak.terms)) for peak in peaks)


def value(known: Knowledge, form: Combination) -> Profile | None:
    """What is known of a form; None if it has no peaks, or is -inf somewhere."""
    if not any(isinstance(part, Peak) for part, _ in form.parts) or _masked(known, [form]):
        return None
    return _composed(known, form, Regularity(1, 0, INF), _bounds(known, form))


def weight(known: Knowledge, form: Combination) -> Profile | None:
    """What is known of exp of a form that is bounded above; None for others."""
    hidden = [a for part, a in form.parts if not isinstance(part, Peak) and known.of(part).masked]
    if any(a < 0 for a in hidden):
        return None
    low, high = _bounds(known, form)
    if high > 700:
        return None
    below = 0.0 if hidden or low < -700 else math.exp(low) * (1 - 1e-12)
    above = 1.0 if high == 0 else math.nextafter(math.exp(high) * (1 + 1e-12), INF)  # above 0 where exp underflows
    return _composed(known, form, Regularity(0, 0, INF), (below, above))

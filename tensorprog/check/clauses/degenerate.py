"""Warnings: scores whose limiting laws are degenerate, and averages that vanish in the limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorprog.check.clauses.context import Context, rule, shown_place
from tensorprog.check.clauses.report import Finding, Fix
from tensorprog.language.expr import Constant, IndexValue, Variable, walk
from tensorprog.language.facts import HOLDS
from tensorprog.language.ir import Dot, MatMul, Nonlin

__all__ = ["variance"]


@rule("positive variance", "Sakai et al. 2025, Theorem 1 (remark)")
def variance(check: Context) -> Iterator[Finding]:
    """Scores have positive variance, and averages are not of independent vectors."""
    if not _regular(check):
        yield from _degenerate(check)
    yield from _vanishing_averages(check)


def _regular(check: Context) -> bool:
    """Whether scores are seen at once to be regular: as written, of independent vectors by weights of their own."""
    makers = list(check.makers(check.operands))
    weights = {maker.statement.weight.name for maker in makers}
    variances = [check.calculus.closed(check.netsor.weight[name].variance) for name in weights]
    plain = all(_indices(m.operand.reference) is not None and _made_apart(check, m.position) for m in makers)
    written = all(check.netsor.body[dot] == check.source(dot) for dot in check.scores)
    positive = all(variance is not None and variance[0] > 0 for variance in variances)
    apart = len(weights) == len(makers) == len(check.operands) == 2 * len(check.scores)
    return plain and written and positive and apart


def _made_apart(check: Context, position: int) -> bool:
    """Whether the members of a MatMul are made by weights of their own, or of vectors that are made so."""
    product = check.product(position)
    own, read = _indices(product.weight), _indices(product.vector)
    target = _indices(product.target)
    if own is None or read is None or target is None or check.zeros & {position}:
        return False
    return target <= own or (target == own | read and _apart(check, position, product.vector))


def _apart(check: Context, position: int, vector: Variable) -> bool:
    """Whether the members of a vector are functions, the same for all, of vectors that are made apart."""
    definers = check.structure.definers(position, vector)
    made = check.netsor.body[definers[0]] if len(definers) == 1 else None
    if isinstance(made, MatMul):
        return _made_apart(check, definers[0])
    if not isinstance(made, Nonlin) or [v.slots for v in made.inputs] != [made.target.slots]:
        return False
    indexed = (n for n in walk(made.expr) if isinstance(n, IndexValue) or (isinstance(n, Constant) and n.slots))
    return next(indexed, None) is None and _apart(check, definers[0], made.inputs[0])


def _indices(reference: Variable) -> set[str] | None:
    """The indices in the slots of a reference; None if a slot is more than an index, or two are the same."""
    names = {slot.bare for slot in reference.slots if slot.bare is not None}
    return names if len(names) == len(reference.slots) else None


def _degenerate(check: Context) -> Iterator[Finding]:
    """Scores that the limiting covariances tell to be degenerate, each told once."""
    position = {check.text(dot): dot for dot in check.scores}
    written = [dot for dot in map(check.source, position.values()) if isinstance(dot, Dot)]
    told: set[str] = set()
    for found in check.numbers.degenerate(check.written, written):
        scores = dict.fromkeys(str(dot.target) for dot, _ in found.members)
        if told.isdisjoint(scores):
            told |= scores.keys()
            members = " and ".join(f"{dot.target}{shown_place(place)}" for dot, place in found.members)
            message = f"{members}: {found.how} (Theorem 1 speaks of scores of positive variance)"
            yield check.finding("warning", tuple(position[s] for s in scores), message)


def _vanishing_averages(check: Context) -> Iterator[Finding]:
    """Averages of q k for q and k by different weights: attention on the scale 1/n without tied weights."""
    for position in sorted(check.converging):
        dot = check.netsor.body[position]
        assert isinstance(dot, Dot)
        made = [check.structure.definers(position, side) for side in (dot.left, dot.right)]
        sides = [[d for d in definers if isinstance(check.netsor.body[d], MatMul)] for definers in made]
        if all(sides) and sides == [list(d) for d in made] and all(
            check.structure.same_member(one, two)[0] is HOLDS for one in sides[0] for two in sides[1]
        ):
            yield check.finding(
                "warning",
                (position,),
                f"{dot.left} and {dot.right} are made by different weights, so the average {dot.target} is 0 in the "
                "limit",
                (Fix("the scale n**-0.5", (replace(dot, scale="n**-0.5"),)), "one weight for both"),
            )

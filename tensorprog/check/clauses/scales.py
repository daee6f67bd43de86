"""Scales: a score on the scale n**-0.5 has a limit only if its mean vanishes; an average is on the scale 1/n."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorprog.check.certificates import Profile
from tensorprog.check.clauses.context import DIVERGES, NOT_COVERED, Context
from tensorprog.check.clauses.means import values
from tensorprog.check.clauses.report import Finding
from tensorprog.language.facts import FAILS, HOLDS
from tensorprog.language.ir import Dot, Nonlin

__all__ = ["mean_of", "not_centred", "scales", "values"]


def mean_of(check: Context, position: int) -> tuple[bool, str]:
    """Whether the mean of a score as written is known to be other than zero, and what is known of it.

    All parts of one score have one mean.
    """
    dot = check.source(position)
    assert isinstance(dot, Dot)
    width = check.written.families[dot.left.name].width
    product = f"E[Z^{dot.left} Z^{dot.right}]"
    mean = check.numbers.mean(check.written, dot)
    if mean is not None:
        return not mean.zero, f"sqrt({width}) {product}, {mean.text(product)}"
    argument = _argument(check, position)
    known = f"and that is not zero ({argument})" if argument else "which is not known"
    return bool(argument), f"sqrt({width}) {product}, {known}"


def _argument(check: Context, position: int) -> str:
    """Why the mean of a score is not zero, as far as ranges tell; '' if they do not, or if it is one part of several.

    The parts of a score may cancel, so that the mean of one of them says nothing of the whole.
    """
    if str(check.netsor.body[position].target) != check.text(position):
        return ""
    structure, calculus = check.structure, check.calculus
    for left, right in check.pairs(position):
        one, two = left.statement, right.statement
        elsewhere = one.weight.name in check.rewritten.initials or one.transposed != two.transposed
        elsewhere = elsewhere or not check.zeros.isdisjoint((left.position, right.position))
        if not elsewhere and structure.same_weight_in_score(left.operand, right.operand)[0] is FAILS:
            same, place = structure.same_weight_in_score(left.operand, right.operand, vectors=True)
            profiles = [calculus.vector(side.statement.vector, side.position) for side in (left, right)]
            return _not_zero(same is FAILS, place, profiles)
    operands = {operand.side: operand for operand in check.sides[position]}
    same, place = structure.same_operands(position)
    return _not_zero(same is FAILS, place, [calculus.vector(o.reference, o.dot) for o in operands.values()])


def _not_zero(same: bool, place: Mapping[str, int], profiles: list[Profile]) -> str:
    """Why E[Z^x Z^x'] is not zero, as far as ranges tell; '' if they do not."""
    if any(p.constant and p.low == 0 for p in profiles):
        return ""
    if all(p.low > 0 for p in profiles):
        return "both are positive"
    return f"the mean of a square{values(place)}, unless that vanishes" if same else ""


def not_centred(check: Context) -> dict[int, str]:
    """Scores with parts that are products of initial or constant vectors, and whose mean is not zero; what it is."""
    found = {}
    for dot in check.scores:
        makers = [None if o.definer is None else check.netsor.body[o.definer] for o in check.sides[dot]]
        if all(s is None or (isinstance(s, Nonlin) and not s.inputs) for s in makers):
            grows, why = mean_of(check, dot)
            if grows:
                found[dot] = why
    return found


def scales(check: Context) -> Iterator[Finding]:
    """No initial vectors with a mean or a covariance stand in both operands of a score: it would grow like sqrt(n)."""
    for dot, why in not_centred(check).items():
        yield check.finding(
            "fails", (dot,), f"the mean of the score {check.text(dot)} is {why}, so it grows like sqrt(n) and diverges",
            _fix(check, dot), DIVERGES,
        )
    for dot in check.scores:
        for left, right in check.pairs(dot):
            weight = left.statement.weight.name
            name = check.rewritten.initials.get(weight)
            verdict, _ = check.structure.same_weight_in_score(left.operand, right.operand)
            if name is None or verdict is HOLDS or {left.position, right.position} & check.zeros:
                continue
            grows, why = mean_of(check, dot)
            then = "so it grows like sqrt(n) and diverges" if grows else "and no theorem covers such a score"
            yield check.finding(
                verdict,
                (dot,),
                f"initial vectors {name} that may depend on each other stand in both operands of the score "
                f"{check.text(dot)}: its mean is {why}, {then}",
                _fix(check, dot),
                DIVERGES if grows else NOT_COVERED,
                ((left.position, dot), (right.position, dot)),
                (check.weight(weight),),
            )


def _fix(check: Context, position: int) -> str:
    dot = check.source(position)
    assert isinstance(dot, Dot)
    average = f"{dot.target} = Dot({dot.left}, {dot.right}, scale=1/n), an average"
    return f"{average}; or independent initial vectors of mean 0 in the two operands"

"""Scales: a score on the scale n**-0.5 has a limit only if its mean vanishes; an average is on the scale 1/n."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorprog.assumptions.context import DIVERGES, NOT_COVERED, Context
from tensorprog.assumptions.report import Finding
from tensorprog.facts import HOLDS
from tensorprog.ir import Dot, Nonlin

__all__ = ["mean_of", "not_centred", "scales", "values"]


EXACT = 1e-9  # an error that is rounding


def mean_of(check: Context, position: int, argument: str = "") -> tuple[bool, str]:
    """Whether the mean of a score is known to be other than zero, and what is known of it: 'is 0.25 sqrt(n), ..'.

    `argument` says why it is, where the number itself cannot be had.
    """
    dot = check.source(position)
    assert isinstance(dot, Dot)
    width = check.written.families[dot.left.name].width
    number = check.numbers.mean(check.written, dot)
    e = f"sqrt({width}) E[Z^{dot.left} Z^{dot.right}]"
    if number is None:
        return bool(argument), f"{e}, and that is not zero ({argument})" if argument else f"{e}, which is not known"
    value, error, place = number
    if abs(value) <= max(error, 1e-12):
        return False, f"{e}, which is 0" + (f" within {error:.1g}" if error > EXACT else "")
    return True, f"{e}, and E[Z^{dot.left} Z^{dot.right}] is {value:.4g}{values(place)}"


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
    fix = "independent initial vectors of mean 0 in the two operands; or an average, with scale=1/n"
    for dot, why in not_centred(check).items():
        yield check.finding(
            "fails", (dot,), f"the mean of the score {check.text(dot)} is {why}, so it grows like sqrt(n) and diverges",
            fix, DIVERGES,
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
                fix,
                DIVERGES if grows else NOT_COVERED,
                ((left.position, dot), (right.position, dot)),
                (check.weight(weight),),
            )


def values(witness: Mapping[str, int]) -> str:
    """Index values at which something happens, as text."""
    shown = {name: value for name, value in witness.items() if not name.endswith(("'", '"'))}  # copies
    return f" at {', '.join(f'{name}={value}' for name, value in sorted(shown.items()))}" if shown else ""

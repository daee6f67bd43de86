"""Scales: a score on the scale n**-0.5 has a limit only if its mean vanishes; an average is on the scale 1/n."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorprog.assumptions.context import DIVERGES, Context
from tensorprog.assumptions.report import Finding
from tensorprog.facts import FAILS, HOLDS
from tensorprog.graph import Operand
from tensorprog.ir import Dot, MatMul, Nonlin

__all__ = ["mean_of", "not_centred", "scales", "sides_of", "values"]


def sides_of(check: Context, dot: int) -> Iterator[tuple[Operand, Operand]]:
    """Pairs of MatMuls that make the left and the right operand of a score."""
    made = [
        o
        for o in check.operands
        if o.dot == dot and o.definer is not None and isinstance(check.netsor.body[o.definer], MatMul)
    ]
    for left in (o for o in made if o.side == "left"):
        yield from ((left, right) for right in made if right.side == "right")


def mean_of(check: Context, position: int, place: Mapping[str, int], argument: str) -> tuple[bool, str]:
    """Whether the mean of a Dot, divided by sqrt(n), is known to be non-zero, and why.

    `argument` says why it is, where the number itself cannot be had; '' if nothing is known.
    """
    dot = check.netsor.body[position]
    assert isinstance(dot, Dot)
    number = check.mean(check.netsor, dot.left, dot.right, place)
    if number is None:
        return bool(argument), f"is not zero ({argument})" if argument else "may be other than zero"
    value, error = number
    if abs(value) <= max(error, 1e-12):
        return False, f"is {value:.2g}{values(place)}"
    return True, f"is {value:.4g}{values(place)}" + (f" ({argument})" if argument else "")


def not_centred(check: Context) -> dict[int, str]:
    """Scores of two initial or constant vectors whose mean is known not to be zero, and why."""
    found = {}
    for dot in check.scores:
        makers = [None if o.definer is None else check.netsor.body[o.definer] for o in check.operands if o.dot == dot]
        if all(s is None or (isinstance(s, Nonlin) and not s.inputs) for s in makers):
            _, place = check.structure.same_operands(dot)
            grows, why = mean_of(check, dot, place or check.first(dot), "")
            if grows:
                found[dot] = why
    return found


def scales(check: Context) -> Iterator[Finding]:
    """No initial vectors with a mean or a covariance stand in both operands of a score: it would grow like sqrt(n)."""
    fix = "independent initial vectors of mean 0 in the two operands; or an average, with scale=1/n"
    for dot, why in not_centred(check).items():
        statement = check.netsor.body[dot]
        assert isinstance(statement, Dot)
        yield check.finding(
            "fails",
            (dot,),
            f"sqrt(n) E[Z^{statement.left} Z^{statement.right}] is part of the mean of the score {check.text(dot)}, "
            f"and E[Z^{statement.left} Z^{statement.right}] {why}, so the score grows like sqrt(n) and diverges",
            fix,
            DIVERGES,
        )
    for dot in check.scores:
        for left, right in sides_of(check, dot):
            assert left.definer is not None
            maker = check.netsor.body[left.definer]
            assert isinstance(maker, MatMul)
            name = check.rewritten.initials.get(maker.weight.name)
            verdict, place = check.structure.same_weight_in_score(left, right)
            if name is None or verdict is HOLDS:
                continue
            _, why = mean_of(check, dot, place, "the variance of an initial vector")
            e = f"E[Z^{left.reference} Z^{right.reference}]"
            yield check.finding(
                "fails" if verdict is FAILS else "unknown",
                (dot,),
                f"initial vectors {name} that depend on each other stand in both operands of the score "
                f"{check.text(dot)}: sqrt(n) {e} is part of its mean, and {e} {why}, so the score grows like sqrt(n) "
                "and diverges",
                fix,
                DIVERGES,
                (left.definer, dot),
                (check.weight(maker.weight.name),),
            )


def values(witness: Mapping[str, int]) -> str:
    """Index values at which something happens, as text."""
    shown = {name: value for name, value in witness.items() if not name.endswith("'")}
    return f" at {', '.join(f'{name}={value}' for name, value in sorted(shown.items()))}" if shown else ""

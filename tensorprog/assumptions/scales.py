"""Scales: a score on the scale n**-0.5 has a limit only if its mean vanishes; an average is on the scale 1/n."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorprog.assumptions.context import DIVERGES, Context
from tensorprog.assumptions.report import Finding
from tensorprog.facts import FAILS, HOLDS
from tensorprog.graph import Operand
from tensorprog.ir import Dot, MatMul

__all__ = ["mean_of", "scales", "sides_of", "values"]


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


def scales(check: Context) -> Iterator[Finding]:
    """No initial vector stands in both operands of a score: its mean would grow like sqrt(n)."""
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
            yield check.finding(
                "fails" if verdict is FAILS else "unknown",
                (dot,),
                f"initial vectors {name} that depend on each other stand in both operands of the score "
                f"{check.text(dot)}: sqrt(n) E[Z^{left.reference} Z^{right.reference}] is part of its mean, and {why} "
                "sqrt(n), so the score grows like sqrt(n) and diverges",
                "independent initial vectors in the two operands; or an average, with scale=1/n",
                DIVERGES,
                (left.definer, dot),
                (check.weight(maker.weight.name),),
            )


def values(witness: Mapping[str, int]) -> str:
    """Index values at which something happens, as text."""
    shown = {name: value for name, value in witness.items() if not name.endswith("'")}
    return f" at {', '.join(f'{name}={value}' for name, value in sorted(shown.items()))}" if shown else ""

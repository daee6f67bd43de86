"""What the check asks of the limit of a program, and the form of the answers; who computes them, it does not know.

The rules decide by structure alone wherever they can.  Four questions are left for numbers: does a score have a mean,
are functions finite at the limits of averages, is a denominator 0 with some probability, and does this version compute
the limit at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tensorprog.language.errors import Problem
from tensorprog.language.expr import Expr
from tensorprog.language.ir import Dot, Netsor

__all__ = ["LimitNumbers", "ScoreMean"]

ROUNDING = 1e-12


@dataclass(frozen=True)
class ScoreMean:
    """E[Z^left Z^right] of the member of a Dot that is furthest from 0 beyond its error.

    With scores upstream it is random, and `value` is its value in the draw of them that is furthest from 0.
    """

    value: float
    error: float
    place: Mapping[str, int] = field(default_factory=dict)
    random: bool = False
    whole: bool = True  # whether all members were looked at
    conjecture: bool = False  # whether it rests on the conjecture on iterated layers

    @property
    def zero(self) -> bool:
        """Whether it is 0 within its error."""
        return abs(self.value) <= max(self.error, ROUNDING)


class LimitNumbers:
    """The questions, with the answer that nothing is known, so that the rules say what structure alone can tell.

    `netsor` is the program as written, unless something else is said; None stands for: not known.
    """

    def mean(self, netsor: Netsor, dot: Dot) -> ScoreMean | None:
        """The mean of a score over sqrt(n), or of an average, of the member for which it is furthest from 0."""
        return None

    def singular(self, netsor: Netsor, expr: Expr) -> str | None:
        """What is wrong with an expression of averages at their limits: not finite, or a jump; '' if nothing."""
        return None

    def zero_probability(self, netsor: Netsor, expr: Expr) -> float | None:
        """The largest limiting probability of a = 0 over the members of a family a of vectors, an expression.

        `netsor` is the program after its rewrites.
        """
        return None

    def uncompiled(self, netsor: Netsor) -> Sequence[Problem]:
        """What the limit of a program after its rewrites does not compute; statement, line and what to write."""
        return ()

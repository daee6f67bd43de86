"""What becomes of vectors and scalars where the entries of some weights change sign: nothing, their sign, or neither.

Weights and their negatives are equal in law.  So a function of vectors that changes its sign with some of them has mean
zero in every coordinate, given all that the other weights make.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tensorprog.check.certificates.composition import Composition
from tensorprog.check.certificates.profile import Profile
from tensorprog.check.certificates.program import Calculus
from tensorprog.language.expr import Call, Expr, Variable
from tensorprog.language.ir import Dot, MatMul

__all__ = ["Signs"]


class Signs(Composition):
    """Parities under a change of sign of some families of weights, by composition.

    A product with another weight counts as unaffected, whatever it multiplies: what it makes is held fixed.
    """

    def __init__(self, calculus: Calculus, flipped: Collection[str]) -> None:
        super().__init__(calculus.netsor)
        self.calculus, self.structure, self.flipped = calculus, calculus.structure, frozenset(flipped)
        self._found: dict[int, int] = {}
        self._looking: set[int] = set()

    def parity(self, expr: Expr, position: int) -> int:
        """+1 unaffected, -1 changes its sign, 0 neither is certified; of an expression that stands in a statement."""
        return self.expression(expr, position).parity

    def vector(self, reference: Variable, position: int) -> Profile:
        """What is known of a reference in a statement."""
        definers = self.structure.definers(position, reference)
        parities = {self._statement(definer) for definer in definers} or {1}
        parity = parities.pop() if len(parities) == 1 else 0
        return replace(self.calculus.vector(reference, position), parity=parity)

    def _statement(self, position: int) -> int:
        if position in self._looking:  # a recurrence
            return 0
        if position not in self._found:
            self._looking.add(position)
            before = getattr(self, "at", position)
            self._found[position] = self._one(position)
            self.at = before
            self._looking.discard(position)
        return self._found[position]

    def _one(self, position: int) -> int:
        statement = self.netsor.body[position]
        if isinstance(statement, MatMul):
            return -1 if statement.weight.name in self.flipped else 1
        if isinstance(statement, Dot):  # an average that changes its sign is a parameter that does not stay
            return max(self.parity(Call("multiply", (statement.left, statement.right)), position), 0)
        return self.parity(statement.expr, position)

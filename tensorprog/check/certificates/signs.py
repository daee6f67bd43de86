"""What becomes of vectors and scalars where the entries of some weights change sign: nothing, their sign, or neither.

Weights and their negatives are equal in law.  So a function of vectors that changes its sign with some of them has mean
zero in every coordinate, given all that the other weights make.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tensorprog.check.certificates.composition import Composition
from tensorprog.check.certificates.profile import VECTOR, Profile, constant, join
from tensorprog.check.graph import Structure
from tensorprog.language.expr import Call, Expr, Variable
from tensorprog.language.ir import Dot, MatMul

__all__ = ["Signs"]

UNAFFECTED = replace(VECTOR, parity=1)


class Signs(Composition):
    """Parities under a change of sign of some families of weights, by composition.

    A product with another weight counts as unaffected, whatever it multiplies: what it makes is held fixed.
    """

    def __init__(self, structure: Structure, flipped: Collection[str]) -> None:
        super().__init__(structure.netsor)
        self.structure, self.flipped = structure, frozenset(flipped)
        self._found: dict[int, Profile] = {}
        self._looking: set[int] = set()

    def parity(self, expr: Expr, position: int) -> int:
        """+1 unaffected, -1 changes its sign, 0 neither is certified; of an expression that stands in a statement."""
        return self.expression(expr, position).parity

    def vector(self, reference: Variable, position: int) -> Profile:
        """What is known of a reference in a statement."""
        if reference.name in self.structure.initial:
            return UNAFFECTED
        found = [self._statement(definer) for definer in self.structure.definers(position, reference)]
        joined = found[0] if found else constant(0.0, 0.0)
        for other in found[1:]:
            joined = join(joined, other)
        return joined

    def _statement(self, position: int) -> Profile:
        if position in self._looking:  # a recurrence
            return replace(VECTOR, parity=0)
        if position not in self._found:
            self._looking.add(position)
            before = getattr(self, "at", position)
            self._found[position] = self._one(position)
            self.at = before
            self._looking.discard(position)
        return self._found[position]

    def _one(self, position: int) -> Profile:
        statement = self.netsor.body[position]
        if isinstance(statement, MatMul):
            return replace(VECTOR, parity=-1) if statement.weight.name in self.flipped else UNAFFECTED
        if isinstance(statement, Dot):
            return replace(VECTOR, parity=self.parity(Call("multiply", (statement.left, statement.right)), position))
        return replace(VECTOR, parity=self.parity(statement.expr, position))

"""Gradients of programs, as programs: `backward`.

    derivatives    derivatives of the language's functions as expressions
    adjoint        what each statement hands on to the families that it reads
    assembly       the adjoint program as a whole, recurrences backwards
"""

from __future__ import annotations

from tensorprog.gradients.assembly import adjoint
from tensorprog.program import Program

__all__ = ["backward"]


def backward(P: Program) -> Program:
    """The adjoint program: P with the gradients of sum(xi . y) / sqrt(n) by all its families.

    The sum runs over the members of the outputs, with a fresh vector xi of standard normals for each of them, the
    initial vectors xi_<output>.  The family grad_<name> of a vector is sqrt(its width) times the gradient, so that its
    coordinates neither grow nor fall with the width; that of a score is the gradient itself, that of an average
    n**-0.5 times it.  Gradients of vectors are outputs, beside those of P.

    Raises    ProgramError for outputs that are scalars, and functions whose derivative is not known as an expression
    """
    found = Program.from_netsor(adjoint(P.netsor))
    assert isinstance(found, Program)
    return found
